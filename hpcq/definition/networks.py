"""Which interface a campaign measures where a cluster has several networks."""

from __future__ import annotations

from collections.abc import Mapping

from hpcq.errors import UserError


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
