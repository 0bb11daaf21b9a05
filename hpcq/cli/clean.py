"""`hpcq clean`: remove the folders of earlier runs from a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from hpcq import units
from hpcq.cli.options import clusters_option, json_option, runs_option
from hpcq.cli.output import Column, print_json, print_rows, print_words
from hpcq.errors import Exit

_COLUMNS = (
    Column("run", "run"),
    Column("changed_utc", "last change"),
    Column("size_bytes", "size", unit="bytes"),
    Column("fate", wrap=True),
)


def _duration(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:  # noqa: ARG001 - Click's signature
    if value is None:
        return None
    allowed = f"{value!r}: must be a length of time with its unit, like 12h or 30d"
    try:
        seconds = units.parse(value, "s")
    except ValueError:
        raise click.BadParameter(allowed) from None
    if seconds <= 0 or value.strip()[-1:].isdecimal():  # a bare number would be seconds, and --remove removes
        raise click.BadParameter(allowed)
    return seconds


@click.command()
@click.argument("name", metavar="CLUSTER")
@click.option(
    "--older-than",
    "older_than_s",
    metavar="TIME",
    callback=_duration,
    help="Only folders in which nothing changed for this long, like 12h. Default: run_folders_kept_s of the cluster"
    " file, else 30d.",
)
@click.option("--unknown", is_flag=True, help="Also folders of runs that are not in the folder of run folders here.")
@click.option("--remove", "removing", is_flag=True, help="Remove them. Without it, this only shows what would go.")
@runs_option
@clusters_option
@json_option
def clean(  # noqa: PLR0917 - Click passes by name
    name: str,
    older_than_s: float | None,
    unknown: bool,
    removing: bool,
    runs_folder: Path,
    cluster_folders: Sequence[Path],
    as_json: bool,
) -> int:
    """Show which folders of earlier runs can go from a cluster's work directory; --remove removes them.

    For each folder that it keeps, hpcq says why: the run has not ended, it has a job in the queue, or this machine does not
    know it. No result is lost: the files of a run that ended are on this machine, too.

    \b
    Example: hpcq clean local --older-than 30d
    """
    from hpcq.definition.files.cluster import read_cluster
    from hpcq.definition.find import find_cluster
    from hpcq.runner.site import checking
    from hpcq.runner.site.place import reach, scheduler_of

    cluster = read_cluster(find_cluster(name, None, cluster_folders))
    scheduler = scheduler_of(cluster, reach(cluster))
    age_s = older_than_s or cluster.run_folders_kept_s or checking.KEPT_S
    found = checking.run_folders(cluster, scheduler, runs_folder, age_s, unknown=unknown)
    going = [one for one in found if not one.kept]
    if removing:
        found = checking.remove(cluster, scheduler, found)
    if as_json:
        print_json([one.to_json() for one in found])
    else:
        fate = "removed" if removing else "would be removed"
        rows = [{**one.to_json(), "fate": f"stays: {one.kept}" if one.kept else fate} for one in found]
        none = f"no run folder on {name} is older than {age_s / 86400:g} days"
        if cluster.work_directory is None:
            none = f"{name} has no work_directory: its runs work within their run folders here, which hpcq never removes"
        print_rows(rows, _COLUMNS, empty=none)
    if going and not removing:
        size = units.human(sum(one.size_bytes for one in going), "bytes")
        print_words(f"nothing was removed: --remove removes {len(going)} folders, {size}", err=True)
    return Exit.OK
