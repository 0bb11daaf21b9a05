"""`hpcq health`: verdicts for the health checks that nodes run themselves."""

from __future__ import annotations

from pathlib import Path

import click

from hpcq.cli.options import Verbs, database_option
from hpcq.cli.output import says_that_it_works, write_out
from hpcq.errors import Exit, UserError


@click.group(cls=Verbs)
def health() -> None:
    """Pass the verdicts on to the nodes' own health checks, the scheduler's or NHC, which keep failed nodes out."""


@health.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--cluster", help="The cluster of these nodes, if the database has several.")
@database_option
@says_that_it_works
def write(file: Path, cluster: str | None, database: Path) -> int:
    """Write the last verdict on each node to FILE, one line per node, in one step.

    A node that `hpcq regressions` tells of is degraded there, unless an acceptance says worse. The checks keep out what
    failed an acceptance only. Put it where every node reads it, and call this after each acceptance: hpcq schedule add.

    \b
    Example: hpcq health write health.txt --cluster alpha
    """
    from hpcq.analysis.standing import standings, with_told
    from hpcq.exports import health_text
    from hpcq.store.database import reading
    from hpcq.store.ledger import last_verdicts
    from hpcq.store.query import check_known, names, nodes_of_cluster
    from hpcq.units import utc_now

    with reading(database) as connection:
        check_known(connection, cluster=cluster)
        known = [one for one in names(connection, "cluster") if nodes_of_cluster(connection, one)]
        if cluster is None and len(known) != 1:
            found = f"{len(known)} clusters are in this database"
            raise UserError(f"--cluster: nothing given: {found}: name one", f"there are {', '.join(known) or 'none'}")
        name = cluster or known[0]
        nodes = nodes_of_cluster(connection, name)
        records = with_told(last_verdicts(connection, name), standings(connection, [name], "90d"))
    write_out([health_text(records, nodes, utc_now())], file, "FILE")
    click.echo(f"{file}: {len(nodes)} nodes of {name}", err=True)
    return Exit.OK


@health.command()
@click.argument("kind", metavar="KIND")
def script(kind: str) -> int:
    """Print a health check of one KIND for the nodes; it reads the file that `hpcq health write` wrote.

    nhc is Node Health Check; the others are the names of schedulers that have a health check of their own.

    \b
    Example: hpcq health script nhc > hpcq.nhc
    """
    from hpcq.assets import templates
    from hpcq.kernels import unknown_name

    known = {path.stem: path for path in sorted((templates() / "health").glob("*.health"))}
    if kind not in known:
        raise UserError(*unknown_name("kind of health check", kind, known))
    click.echo(known[kind].read_text(encoding="utf-8"), nl=False)
    return Exit.OK
