"""`hpcq dashboard`: what dashboards of others need to show results.db."""

from __future__ import annotations

import json
from pathlib import Path

import click

from hpcq.cli.options import database_option
from hpcq.cli.output import write_out
from hpcq.errors import Exit


@click.command()
@click.argument("kind", type=click.Choice(["grafana", "datasette"]))
@click.option("--to", "target", type=click.Path(path_type=Path, dir_okay=False), help="This file instead of standard output.")
@database_option
def dashboard(kind: str, target: Path | None, database: Path) -> int:
    """Print a dashboard over the database: JSON for Grafana or Datasette.

    grafana: a dashboard to import; Grafana needs the plugin frser-sqlite-datasource with the path of the database.
    datasette: metadata with the meaning of each table and column, and the same questions as addresses; it names the database
    as --db does.

    \b
    Example: hpcq dashboard datasette --to metadata.json
    """
    from hpcq.assets import database_schema
    from hpcq.exports import dashboards

    if kind == "grafana":
        content = dashboards.grafana()
    else:
        lines = database_schema().read_text(encoding="utf-8").splitlines()
        content = dashboards.datasette(database.stem, dashboards.described(lines))
    write_out([json.dumps(content, indent=1, ensure_ascii=False) + "\n"], target)
    return Exit.OK
