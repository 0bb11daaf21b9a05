"""Which interface a campaign measures where a cluster has several networks."""

from __future__ import annotations

from collections.abc import Mapping

from hpcq.errors import UserError

#: Keys of cluster files that people write into campaigns and tests, and what they then read: message and hint.
NETWORK_INSTEAD = (
    "not a key of campaigns or tests, whose clusters name theirs: allowed is network: NAME, a key of the campaign",
    "the cluster file says which interface that is: networks: {NAME: eth0}",
)
#: An address belongs to one node, and a campaign has many: each end takes that of the interface on its own node.
NO_ADDRESS = (
    "not a key of campaigns or tests, which name no address: allowed is network: NAME, a key of the campaign",
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
