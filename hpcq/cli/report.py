"""`hpcq report`: the page of a run, a stretch of time, a node, a cluster."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcq.cli.options import database_option, filter_options, json_option, runs_option, since_option
from hpcq.cli.output import check_target, print_json, print_words, says_that_it_works
from hpcq.errors import UserError

if TYPE_CHECKING:
    from hpcq.store.selection import Selection

#: Of a page of a node or cluster, if nothing else is said.
_STRETCH = "90d"


@click.command()
@click.argument("run", required=False)
@click.option(
    "--to",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write. Default: in the run's folder, or here.",
)
@since_option(help_text="The page of a stretch of time instead of a run")
@click.option(
    "--site",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="A folder of pages for a web server, brought up to date.",
)
@filter_options
@database_option
@runs_option
@json_option
@says_that_it_works
def report(  # noqa: PLR0917 - Click passes by name
    run: str | None,
    path: Path | None,
    since: str | None,
    site: Path | None,
    wanted: Selection,
    database: Path,
    runs_folder: Path,
    as_json: bool,
) -> int:
    """Write one self-contained HTML page on a run, a stretch of time, a node or a cluster.

    Without RUN it is the newest run in the database; one in the folder of runs that is not loaded is named. The first line
    says how much of the run is there. Then comes the verdict that the page begins with. The exit code is 3 when something
    is slow, broken or fails a gate, and 4 when something is missing or undecided. A run that nothing judges is NOT JUDGED:
    exit code 0 if all of it was measured.

    With --since, or an option that selects tests or results, the page covers a stretch of time (default: 90d): what got
    worse, what differs since, who is slow, what is missing and what happened. The exit code is that of `hpcq regressions`,
    and 3 also if the last verdict on anything in the ledger is not a pass.

    --site writes one page for each cluster, run, node and change of the last 90 days, and an index, with links between them.
    Call it after each run: it rewrites only what changed. The exit code is that of the worst cluster's page.

    \b
    Example: hpcq report --to report.html
             hpcq report --since 90d --to quarter.html
             hpcq report --site pages
    """
    from hpcq.store.selection import Selection

    if site is not None:
        if any(one is not None for one in (run, path, since)) or wanted != Selection():
            raise UserError("--site beside RUN, --to, --since, --node or the like: a site has all pages: must be alone")
        return _site(database, site, as_json=as_json)
    check_target(path)
    if since is not None or wanted != Selection():
        if run is not None:
            raise UserError(
                "RUN beside --since, --node, --cluster or the like: a page is of one run or of a stretch: must be one of them",
                "hpcq report --help",
            )
        return _stretch(database, since or _STRETCH, wanted, path, as_json=as_json)
    from hpcq.cli.results import judge_selection
    from hpcq.reports import write_report
    from hpcq.store.database import reading

    run, default = _run_and_page(run, database, runs_folder)
    place = path or default
    try:
        verdict = write_report(database, run, place)
    except OSError as error:
        raise UserError(f"--to: {place}: cannot be written: {error.strerror}", "name a file in a folder of yours") from None
    with reading(database) as connection:
        judged = judge_selection(connection, Selection(run=run))
    if as_json:
        print_json({"run": run, "report": str(place.absolute()), **verdict.to_json(), "judged": judged.to_json()})
    else:
        print_words(judged.first_line, err=True)
        for line in verdict.lines:
            print_words(line, err=True)
        click.echo(str(place))
    return verdict.exit_code


def _stretch(database: Path, since: str, wanted: Selection, path: Path | None, *, as_json: bool) -> int:
    from hpcq.reports.stretch import write_stretch

    name = "-".join(["hpcq", *(re.sub(r"[^\w.]+", "-", one) for one in (*_names(wanted), f"since-{since}"))])
    place = path or Path(f"{name}.html")
    try:
        judged = write_stretch(database, since, wanted, place)
    except OSError as error:
        raise UserError(f"--to: {place}: cannot be written: {error.strerror}", "name a file in a folder of yours") from None
    if as_json:
        said: dict[str, Any] = {
            "verdict": judged.verdict.value,
            "judged": judged.series.to_json(),
            "reasons": list(judged.reasons),
        }
        said["causes"] = [one.to_json() for one in judged.causes]
        print_json({"since": since, "report": str(place.absolute()), **said})
    else:
        print_words(f"{judged.verdict.shown}: {judged.series.first_line('series', 'series')}", err=True)
        for one in judged.reasons:
            print_words(f"  {one}", err=True)
        click.echo(str(place))
    return judged.exit_code


def _site(database: Path, folder: Path, *, as_json: bool) -> int:
    from hpcq.reports.site import write_site

    try:
        told = write_site(database, folder)
    except OSError as error:
        raise UserError(f"--site: {folder}: cannot be written: {error.strerror}", "name a folder of yours") from None
    if as_json:
        verdicts = {name: verdict.value for name, verdict in told.verdicts.items()}
        counts = {"written_count": told.written, "kept_count": told.kept}
        print_json({"index": str(told.index.absolute()), "verdicts": verdicts, **counts})
    else:
        for name, verdict in told.verdicts.items():
            print_words(f"{name}: {verdict.shown}", err=True)
        print_words(f"{told.written} pages written, {told.kept} as they were", err=True)
        click.echo(str(told.index))
    return told.exit_code


def _names(wanted: Selection) -> list[str]:
    """What makes the name of a page: everything that was chosen."""
    words = [
        value
        for name in ("cluster", "node", "client", "server", "group", "kernel", "network", "metric")
        if (value := getattr(wanted, name))
    ]
    return [*words, *(f"{name}-{value}" for name, value in (*wanted.where, *wanted.facts))]


def _run_and_page(run: str | None, database: Path, runs_folder: Path) -> tuple[str, Path]:
    """The run, and where its page belongs: in its folder, or here if this machine has only the database.

    Without a name it is the database's newest run: a newer one in the folder of runs, which is not loaded, is told.
    """
    from hpcq.runner.live import find_run_folder
    from hpcq.store.database import reading
    from hpcq.store.selection import find_run, run_ids

    if run is None and database.exists():
        with reading(database) as connection:
            loaded = run_ids(connection)
            run = find_run(connection, None) if loaded else None
        with suppress(UserError):
            newest = find_run_folder(None, runs_folder).run
            if run is not None and newest not in loaded:
                print_words(f"{newest} in {runs_folder} is not in {database}: hpcq db load {newest}", err=True)
    if runs_folder.is_dir() or not database.exists() or (run is not None and (Path(run) / "run.json").is_file()):
        try:
            folder = find_run_folder(run, runs_folder)
        except UserError:
            if not database.exists():
                raise
        else:
            return folder.run, folder.report
    with reading(database) as connection:
        name = find_run(connection, run)
    return name, Path(f"{name}.html")
