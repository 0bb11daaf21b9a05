"""Where the pages of one folder stand, so that each can link to the others; a page by itself links to nothing.

index.html   clusters/CLUSTER.html   runs/RUN.html   nodes/CLUSTER/NODE.html   changes/CHANGE.html
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from urllib.parse import quote

#: Names of campaigns and nodes come from people: only these signs stand in a file's name.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class Links:
    """The other pages as seen from one.

    up: the way to the folder, such as `../`. nodes: CLUSTER/NODE of those that have a page. changes: the changes that have
    one; None: all that are asked for.
    """

    up: str = ""
    nodes: frozenset[str] = frozenset()
    changes: frozenset[str] | None = None

    def has(self, kind: str, name: str) -> bool:
        """Whether there is such a page."""
        if kind == "node":
            return name in self.nodes
        return kind != "change" or self.changes is None or name in self.changes

    def to(self, kind: str, name: str = "") -> str:
        """The address of the page of a run, node (CLUSTER/NODE), cluster or change; without a name, of the index."""
        return self.up + quote(page_path(kind, name))


def page_path(kind: str, name: str = "") -> str:
    """The file of a page, below the folder."""
    if not name:
        return "index.html"
    return f"{kind}s/{'/'.join(_file(part) for part in name.split('/', 1))}.html"


def links_of(path: str, nodes: frozenset[str] = frozenset(), changes: frozenset[str] | None = None) -> Links:
    """The links of the page in this file."""
    return Links("../" * path.count("/"), nodes, changes)


def _file(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    return re.sub(r"[^A-Za-z0-9_-]", "-", name)[:80] + "-" + hashlib.sha256(name.encode()).hexdigest()[:8]
