"""Verbs that run campaigns: run, plan, submit, status, resume, cancel.

They parse and print; the runner does the work.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcq.cli.options import clusters_option, database_option, json_option, near, runs_option
from hpcq.cli.rows import print_json
from hpcq.errors import Exit, HeldError, HpcqError, UserError, of_the_machine

if TYPE_CHECKING:
    from hpcq.run_folder.paths import RunFolder


@click.command()
@click.argument("campaign")
@click.option("--detach", is_flag=True, help="Return as soon as the first jobs are queued, like hpcq submit.")
@database_option
@runs_option
@clusters_option
@json_option
def run(
    campaign: str, *, detach: bool, database: Path, runs_folder: Path, cluster_folders: Sequence[Path], as_json: bool
) -> int:
    """Run a campaign: build, plan, measure, load, report.

    CAMPAIGN is a file, or the name of an example that comes with hpcq (demo, lab).

    \b
    Example: hpcq run campaigns/demo.yaml
    """
    opened = _open(campaign, database, runs_folder, cluster_folders)
    if detach:
        return _first_wave(opened, database, as_json=as_json)
    return _to_the_end(opened, database, as_json=as_json)


@click.command()
@click.argument("name", metavar="[RUN]", required=False)
@click.option("--abandoned", is_flag=True, help="Every run whose driver died within a week, one after another; for schedules.")
@database_option
@runs_option
@json_option
def resume(name: str | None, abandoned: bool, database: Path, runs_folder: Path, as_json: bool) -> int:
    """Take over a run whose driver ended; queued jobs are adopted.

    RUN is a run's id, the beginning of one, or its folder. Default: the newest run.

    \b
    Example: hpcq resume lab
    """
    from hpcq.runner.live import find_run_folder

    if abandoned:
        if name is not None:
            raise UserError(f"--abandoned: {name!r} beside it: allowed is one of both, since it takes every such run")
        return _resume_abandoned(database, runs_folder, as_json=as_json)
    return _to_the_end(find_run_folder(name, runs_folder), database, as_json=as_json)


@click.command()
@click.argument("campaign")
@database_option
@runs_option
@clusters_option
@json_option
def submit(campaign: str, database: Path, runs_folder: Path, cluster_folders: Sequence[Path], as_json: bool) -> int:
    """Start a campaign and return as soon as its first jobs are queued.

    No process stays behind; `hpcq resume` takes over the run, now or tomorrow. Links need it: their two sides meet through a
    driver, so `resume` plans and submits their pairs.

    \b
    Example: hpcq submit campaigns/demo.yaml
    """
    return _first_wave(_open(campaign, database, runs_folder, cluster_folders), database, as_json=as_json)


@click.command()
@click.argument("name", metavar="[RUN]", required=False)
@click.option("--watch", is_flag=True, help="Go on showing it until the run ends: a table on a terminal, else lines.")
@runs_option
@json_option
def status(name: str | None, watch: bool, runs_folder: Path, as_json: bool) -> int:
    """Show how far a run is.

    RUN is a run's id, the beginning of one, or its folder. Default: the newest run.

    \b
    Example: hpcq status
    """
    from hpcq.runner.live import find_run_folder

    found = find_run_folder(name, runs_folder)
    if watch:
        from hpcq.cli.run.progress import watch_status

        watch_status(found)
    return _print_status(found, as_json)


@click.command()
@click.argument("name", metavar="[RUN]", required=False)
@runs_option
@json_option
def cancel(name: str | None, runs_folder: Path, as_json: bool) -> int:
    """End a run's jobs; nothing stays queued.

    Ends with 0 when the queues show nothing of the run any more, else with 4 and what is still there.
    What was measured stays, and you can load it. What was not measured becomes rows that say so.

    \b
    Example: hpcq cancel lab
    """
    from hpcq.runner.cancelling import cancel_run
    from hpcq.runner.live import find_run_folder

    found = find_run_folder(name, runs_folder)
    left = cancel_run(found, _say)
    shown = _print_status(found, as_json)
    for words in left:
        click.echo(f"still there: {words}", err=True)
    return Exit.INCOMPLETE if left else shown


@click.command()
@click.argument("campaign")
@clusters_option
@json_option
def plan(campaign: str, cluster_folders: Sequence[Path], as_json: bool) -> int:
    """Show what a campaign would run, where and how long.

    It asks each cluster for its nodes. It starts nothing and writes nothing. Where one cluster cannot be reached, it
    shows the plans of the others, and ends with that error.

    \b
    Example: hpcq plan campaigns/demo.yaml
    """
    from hpcq.definition.find import find_campaign
    from hpcq.runner.preview import preview

    found = preview(find_campaign(campaign), cluster_folders)
    from hpcq.cli.run.planned import print_plan, started

    if as_json and found.plans:
        said = [[{"what": what, "command": words} for what, words in started(made)] for made in found.plans]
        print_json([{**json.loads(made.to_json()), "starts": starts} for made, starts in zip(found.plans, said, strict=True)])
    elif found.plans:
        for made in found.plans:
            print_plan(made)
    if found.failures:
        from hpcq.cli.main import complain

        for error in found.failures[:-1]:
            complain(error.message, error.hint)
        raise found.failures[-1]
    return Exit.OK


def _resume_abandoned(database: Path, runs_folder: Path, *, as_json: bool) -> int:
    """Take over every run whose driver died. Returns the worst exit code; 0 if there is none."""
    from hpcq.runner.watch.abandoned import abandoned

    worst = int(Exit.OK)
    for one in abandoned(runs_folder):
        if one.left:
            _say(f"run {one.run.run_id}: has no driver and is left to you: {one.left}")
            continue
        _say(f"run {one.run.run_id}: its driver died; takes it over")
        try:
            code = _to_the_end(one.run, database, as_json=as_json)
        except HeldError as error:
            _say(f"run {one.run.run_id}: another process was faster: {error.message}")
            continue
        except HpcqError as error:
            _say(f"run {one.run.run_id}: {error.message}")
            code = Exit.ERROR
        worst = Exit.ERROR if Exit.ERROR in {code, worst} else max(worst, code)
    return worst


def _first_wave(opened: RunFolder, database: Path, *, as_json: bool) -> int:
    """Queue the first jobs on every cluster and return."""
    from hpcq.runner.failure_marks import failures_of
    from hpcq.runner.live import status_of
    from hpcq.runner.workflow import leading

    _say(f"run {opened.run_id}: {near(opened.path)}")
    with leading(opened):
        for work in (_prepare, _submit_first):
            for part in status_of(opened).clusters:
                with contextlib.suppress(HpcqError):  # the run's folder has the error; the other clusters go on
                    work(opened, part.name)
    failures = failures_of(opened)
    if failures:
        return _tell_failures(opened, database, failures, as_json=as_json)
    return _print_status(opened, as_json)


def _prepare(run: RunFolder, part: str) -> None:
    """Build and plan a cluster, or plan a link."""
    from hpcq.runner import stages
    from hpcq.runner.failure_marks import marked
    from hpcq.runner.link import link_group
    from hpcq.runner.workflow import SIGN

    if link_group.is_link(part):
        if set(part.split(SIGN)) <= set(run.clusters()):  # otherwise one of its clusters reports why it has no plan
            with marked(run, part, "plan"):
                link_group.plan(run, part)
        return
    with marked(run, part, "build"):
        stages.build(run, part, _say)
    with marked(run, part, "plan"):
        stages.plan(run, part)


def _submit_first(run: RunFolder, part: str) -> None:
    from hpcq.runner.failure_marks import marked
    from hpcq.runner.link import link_group

    if part in run.parts():
        with marked(run, part, "drive"):
            link_group.submit_first(run, part, _say)


def _open(campaign: str, database: Path, runs_folder: Path, cluster_folders: Sequence[Path]) -> RunFolder:
    """Check everything that can be checked before contacting a cluster, then create the run's folder."""
    from hpcq.definition.find import find_campaign
    from hpcq.runner.site.place import check_definitions, check_runs_folder, open_run
    from hpcq.store.database import writing

    path = find_campaign(campaign)
    check_definitions(path, cluster_folders)
    check_runs_folder(runs_folder)
    with writing(database):
        pass  # better to learn of an unwritable database now than after an hour of measuring
    return open_run(path, cluster_folders, database, runs_folder)


def _to_the_end(run: RunFolder, database: Path, *, as_json: bool) -> int:
    from hpcq.cli.read.results import print_run
    from hpcq.cli.run.progress import coverage_lines, shown_progress
    from hpcq.runner.failure_marks import failures_of
    from hpcq.runner.live import status_of
    from hpcq.runner.watch.doctor_runs import holders_of
    from hpcq.runner.workflow import leading, run_workflow

    _say(f"run {run.run_id}: {near(run.path)}")
    with leading(run), shown_progress(run):
        code = run_workflow(run)
    failures = failures_of(run)
    if code != 0 and not failures and (holders := holders_of(run)):
        held = "; ".join(f"{part} by {holder}" for part, holder in holders.items())
        raise HeldError(f"{near(run.path)}: driven by another process: {held}", "wait for it (hpcq status), or hpcq cancel")
    if code != 0 and not failures:
        words = f"{near(run.path)}: the workflow ended with exit code {code}"
        hint = f"its words are in {near(run.path / 'snakemake.log')}; hpcq resume goes on from here"
        failures = [_disk_trouble(run) or HpcqError(words, hint)]
    if failures:
        return _tell_failures(run, database, failures, as_json=as_json)
    for line in coverage_lines(status_of(run)):
        _say(line)
    outcome = print_run(run, database, as_json=as_json)
    if status_of(run).cancelled and outcome == Exit.OK:
        return Exit.INCOMPLETE
    return outcome


def _tell_failures(run: RunFolder, database: Path, failures: list[HpcqError], *, as_json: bool) -> int:
    """Load and show what was measured before a failure, report all failures, and raise the last one."""
    from hpcq.cli.main import complain
    from hpcq.cli.read.results import print_run
    from hpcq.runner import stages

    try:
        if any(run.journal(name).is_file() for name in run.clusters()):
            stages.load(run, database)
            stages.report(run, database)
            print_run(run, database, as_json=as_json)
    except (HpcqError, OSError) as error:
        found = error if isinstance(error, HpcqError) else of_the_machine(error, run.path)
        if found is None:
            raise
        if found.message not in [failure.message for failure in failures]:
            failures = [found, *failures]
    for failure in failures[:-1]:
        complain(failure.message, failure.hint)
    raise failures[-1]


def _disk_trouble(run: RunFolder) -> HpcqError | None:
    """Write a small file to the run's folder and return the error, if any.

    On a full disk no stage can record its failure.
    """
    probe = run.path / ".room"
    try:
        probe.write_bytes(bytes(_PROBE_BYTES))
    except OSError as error:
        return of_the_machine(error, run.path)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
    return None


#: The least space that a workflow needs for its own files.
_PROBE_BYTES = 64 * 1024


def _print_status(run: RunFolder, as_json: bool) -> int:
    from hpcq.cli.run.progress import print_status
    from hpcq.runner.live import status_of

    found = status_of(run)
    if as_json:
        print_json(found.to_json())
    else:
        print_status(found)
    return Exit.OK


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201
