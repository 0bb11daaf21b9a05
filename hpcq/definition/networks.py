"""Which interface a campaign measures where a cluster has several networks."""

from __future__ import annotations

from collections.abc import Mapping

from hpcq.errors import UserError

#: Keys of cluster files that people write into campaigns and tests, and what they then read: message and hint.
NETWORK_INSTEAD = (
    "not a key of campaigns or tests, whose clusters name theirs: allowed is network: NAME, a key of the campaign",
    "the cluster file says which interface that is: networks: {NAME: eth0}",
)
IN_CLUSTER_FILES: Mapping[str, tuple[str, str]] = {"interface": NETWORK_INSTEAD}


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
