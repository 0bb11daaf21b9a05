"""Which interface a campaign measures where a cluster has several networks."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from hpcq.errors import UserError

if TYPE_CHECKING:
    from hpcq.definition.checking import Document, Place

_BIND_DEVICES = ("bind_device", "client_bind_device", "server_bind_device")

#: Keys of cluster files that people write into campaigns and tests, and what they then read: message and hint.
NETWORK_INSTEAD = (
    "not a key of campaigns or tests, whose clusters name theirs: must be network: NAME, a key of the campaign",
    "the cluster file says which interface that is: networks: {NAME: eth0}",
)
#: An address belongs to one node, and a campaign has many: each end takes that of the interface on its own node.
NO_ADDRESS = (
    "not a key of campaigns or tests, which name no address: must be network: NAME, a key of the campaign",
    "each end takes the address of networks: {NAME: eth0} in the cluster file; bind_device: eth0 keeps packets there",
)
IN_CLUSTER_FILES: Mapping[str, tuple[str, str]] = {
    "interface": NETWORK_INSTEAD,
    **dict.fromkeys(("bind", "bind_address", "source_address", "local_address"), NO_ADDRESS),
}


def interface_of(network: str | None, networks: Mapping[str, str], otherwise: str, where: str, campaign: str) -> str:
    """The interface of the named network; `otherwise` if none is named.

    Raises UserError for a name that the cluster file `where` does not have.
    """
    if network is None:
        return otherwise
    if network not in networks:
        known = ", ".join(networks) or "none"
        raise UserError(
            f"{where}: networks: {network}: {campaign} asks for it: the cluster file names {known}",
            "networks: {ib: ib0, eth: eth0}",
        )
    return networks[network]


def interface_at(features: Iterable[str], by_feature: Mapping[str, str], otherwise: str) -> str:
    """The interface of a node with these features: that of the first pattern in the cluster file that one of them fits."""
    words = list(features)
    return next((name for pattern, name in by_feature.items() if any(fnmatchcase(one, pattern) for one in words)), otherwise)


def check_bind_device(document: Document) -> None:
    """Complain about tests whose bind_device is an address: it passes for a name, and no node has such an interface."""
    entries = document.data.get("tests")
    for no, entry in enumerate(entries if isinstance(entries, list) else []):
        for place, value in _bind_devices(entry if isinstance(entry, dict) else {}):
            at = ("tests", no, *place)
            if _is_address(value) and document.clean(at):
                said = f"{value!r} is an address: must be the name of an interface"
                hint = "bind_device: eth0; an address belongs to one node, a name is that of an interface on each"
                document.complain(at, said, hint)


def _bind_devices(entry: Mapping[str, Any]) -> Iterator[tuple[Place, object]]:
    columns = entry.get("zip")
    lists: list[tuple[Place, object]] = [(("matrix",), entry.get("matrix"))]
    lists += [(("zip", no), one) for no, one in enumerate(columns)] if isinstance(columns, list) else [(("zip",), columns)]
    fixed = entry.get("parameters")
    for name in _BIND_DEVICES:
        if isinstance(fixed, dict) and name in fixed:
            yield ("parameters", name), fixed[name]
        for place, values in lists:
            swept = values.get(name) if isinstance(values, dict) else None
            for no, value in enumerate(swept if isinstance(swept, list) else []):
                yield (*place, name, no), value


def _is_address(value: object) -> bool:
    try:
        ipaddress.ip_address(value if isinstance(value, str) else "")
    except ValueError:
        return False
    return True
