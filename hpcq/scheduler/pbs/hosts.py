"""Hosts as PBS writes them: `exec_host`, `exec_vnode`, chunks of a select.
Listings have short names, node files have full names."""

from __future__ import annotations

import re

#: host/slot or host/slot*cpus; PBS joins several with +.
_SLOT = re.compile(r"([^/+]+)/\d+(?:\*\d+)?")


def exec_hosts(text: str) -> tuple[str, ...]:
    """Return the hosts of `pbn1/0*3+pbn2/0*3` in that order, each once. The script runs on the first."""
    return tuple(dict.fromkeys(match[1] for match in _SLOT.finditer(text)))


def vnodes(text: str) -> tuple[str, ...]:
    """Return the vnodes of an exec_vnode or resv_nodes such as `(v[0]:ncpus=2+v[1]:ncpus=1)+(pbn2:ncpus=3)`."""
    inner = re.sub(r"[()]", "", text)
    return tuple(dict.fromkeys(chunk.partition(":")[0] for chunk in inner.split("+") if chunk))


def named_hosts(select: str) -> tuple[str, ...]:
    """Return the hosts that a select names: `1:host=pbn1:ncpus=4+1:vnode=pbn2` -> pbn1, pbn2."""
    words = (word for chunk in select.split("+") for word in chunk.split(":"))
    return tuple(dict.fromkeys(word.partition("=")[2] for word in words if word.startswith(("host=", "vnode="))))


def is_same(one: str, other: str) -> bool:
    """Whether two names may mean one host: short pbn1 and full pbn1.pb.test may; two full names must be equal."""
    if one == other:
        return True
    short = "." not in one or "." not in other
    return short and one.partition(".")[0] == other.partition(".")[0]
