"""Names that a database knows: a misspelt one is refused with the nearest, not answered with nothing; and nodes' groups."""

from __future__ import annotations

from hpcq.errors import UserError
from hpcq.kernels import unknown_name
from hpcq.nodelist import single_nodes
from hpcq.sorting import natural
from hpcq.store.database import Connection

_QUERIES = {
    "cluster": "SELECT name FROM cluster",
    "node": "SELECT DISTINCT name FROM node",
    "campaign": "SELECT name FROM campaign",
}
_SHOWN = 40


def names(database: Connection, what: str) -> list[str]:
    """All names of clusters, nodes or campaigns, sorted. A set of nodes is its members."""
    found = {str(row[0]) for row in database.execute(_QUERIES[what])}
    return sorted(single_nodes(found) if what == "node" else found, key=natural)


def nodes_of_cluster(database: Connection, cluster: str) -> list[str]:
    """The nodes of one cluster, sorted."""
    query = "SELECT n.name FROM node n JOIN cluster c ON c.cluster_id = n.cluster_id WHERE c.name = ?"
    return sorted((str(row[0]) for row in database.execute(query, (cluster,))), key=natural)


def check_known(database: Connection, **wanted: str | None) -> None:
    """Raise UserError for a cluster, node or campaign that is not in the database; None is not looked for.

    Each name is an option (`--node n99`).
    """
    for what, name in wanted.items():
        known = names(database, what)
        if name is not None and name not in known:
            message, hint = unknown_name(f"{what} in this database", name, known[:_SHOWN])
            raise UserError(f"--{what}: {message}", hint)


def node_groups(database: Connection) -> dict[tuple[str, str], list[str]]:
    """The groups of each node now, by cluster and name: `leaf s1`."""
    found: dict[tuple[str, str], list[str]] = {}
    for cluster, node, kind, group in database.execute('SELECT cluster, node, kind, "group" FROM v_groups'):
        found.setdefault((str(cluster), str(node)), []).append(f"{kind} {group}")
    return found
