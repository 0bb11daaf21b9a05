"""`hpcq stage`: one stage of a run, as workflow/Snakefile calls it.

A stage that fails writes <run>/<cluster>/<stage>.error.json, so that `hpcq run` can report the error in its own words.
The traceback of an unforeseen failure goes to <run>/log.txt.
"""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import click

from hpcq import units
from hpcq.cli.options import Verbs, database_option
from hpcq.errors import HpcqError, StoreError, of_the_machine
from hpcq.run_folder.paths import RunFolder, read_json, write_json


def _absolute(context: click.Context, parameter: click.Parameter, value: Path) -> Path:  # noqa: ARG001 - Click's signature
    return value.absolute()


@click.group(cls=Verbs)
def stage() -> None:
    """One stage of a run; what the workflow calls."""


_run_argument = click.argument("run_folder", type=click.Path(path_type=Path, exists=True, file_okay=False), callback=_absolute)


@stage.command("open")
@click.argument("campaign")
@click.argument("run_folder", type=click.Path(path_type=Path))
@database_option
def open_stage(campaign: str, run_folder: Path, database: Path) -> None:
    """Make a run's folder from a campaign file."""
    from hpcq.definition.find import find_campaign
    from hpcq.runner.site.place import open_run

    open_run(find_campaign(campaign), [], database, run_folder.parent, run_folder)


@stage.command()
@_run_argument
@click.argument("cluster")
def build(run_folder: Path, cluster: str) -> None:
    """Build the kernels on a cluster."""
    from hpcq.runner import stages

    run = RunFolder(run_folder)
    with told(run, cluster, "build"):
        stages.build(run, cluster, lambda text: say(run, text))


@stage.command()
@_run_argument
@click.argument("cluster")
def plan(run_folder: Path, cluster: str) -> None:
    """Plan a cluster's part, or a link."""
    from hpcq.runner import stages
    from hpcq.runner.link import link_group

    with told(RunFolder(run_folder), cluster, "plan"):
        (link_group.plan if link_group.is_link(cluster) else stages.plan)(RunFolder(run_folder), cluster)


@stage.command()
@_run_argument
@click.argument("cluster")
@click.option("--only-submit", is_flag=True, help="Return when the first wave is queued.")
def drive(run_folder: Path, cluster: str, only_submit: bool) -> None:
    """Drive a cluster's jobs to their end."""
    from hpcq.runner import stages

    run = RunFolder(run_folder)
    with told(run, cluster, "drive"):
        stages.drive(run, cluster, lambda text: say(run, text), only_submit=only_submit)


@stage.command("drive-linked")
@_run_argument
@click.argument("group")
def drive_linked(run_folder: Path, group: str) -> None:
    """Drive a group of linked clusters, joined by +, and the links between them."""
    from hpcq.runner.link import link_group

    run = RunFolder(run_folder)
    with told(run, group.split("+", maxsplit=1)[0], "drive"):
        driven = link_group.drive_group(run, group.split("+"), lambda text: say(run, text))
        (run.path / "groups").mkdir(exist_ok=True)
        write_json(run.path / "groups" / f"{group}.json", driven)


@stage.command()
@_run_argument
@click.argument("cluster")
def load(run_folder: Path, cluster: str) -> None:
    """Load what came back."""
    from hpcq.runner import stages

    run = RunFolder(run_folder)
    with told(run, cluster, "load"):
        loaded = stages.load(run, Path(read_json(run.run_json)["database"]))
        write_json(run.path / cluster / "loaded.json", loaded)


@stage.command()
@_run_argument
def report(run_folder: Path) -> None:
    """Write the page."""
    from hpcq.runner import stages

    run = RunFolder(run_folder)
    with told(run, "", "report"):
        stages.report(run, Path(read_json(run.run_json)["database"]))


def say(run: RunFolder, text: str) -> None:
    """Log one event per line, UTC first, to stderr and to the run's own log."""
    line = f"{units.utc_now()} {text}"
    print(line, file=sys.stderr)  # noqa: T201
    with contextlib.suppress(OSError), (run.path / "log.txt").open("a", encoding="utf-8") as file:  # stderr has it already
        file.write(line + "\n")


@contextlib.contextmanager
def told(run: RunFolder, cluster: str, name: str) -> Iterator[None]:
    """Record a failure where `hpcq run` and `hpcq status` look for it, then raise it."""
    mark = run.path / cluster / f"{name}.error.json"
    mark.unlink(missing_ok=True)
    spare = mark.with_name(f".{name}.spare")
    try:
        spare.parent.mkdir(parents=True, exist_ok=True)
        spare.write_text(" " * _SPARE_BYTES)
        yield
    except Exception as error:
        place = f"{cluster}: {name}" if cluster else name
        failure = error if isinstance(error, HpcqError) else of_the_machine(error, run.path)
        if failure is None:
            say(run, f"error={name} cluster={cluster} unexpected\n{traceback.format_exc()}")
            hint = f"this is a defect of hpcq: its traceback is in {run.path / 'log.txt'}"
            _leave_word(mark, spare, name, HpcqError(f"{place}: {type(error).__name__}: {error}", hint))
            raise
        say(run, f"error={name} cluster={cluster} {failure.message}")
        _leave_word(mark, spare, name, failure)
        if failure is error:
            raise
        raise failure from error
    finally:
        spare.unlink(missing_ok=True)


#: Space reserved for the last error message: on a full disk nothing new can be written.
_SPARE_BYTES = 4096


def _leave_word(mark: Path, spare: Path, name: str, failure: HpcqError) -> None:
    said = {"stage": name, "message": failure.message, "hint": failure.hint, "exit_code": int(failure.exit_code)}
    try:
        write_json(mark, said)
    except StoreError:
        said |= {"message": failure.message[:1000], "hint": (failure.hint or "")[:200]}
        with contextlib.suppress(OSError), spare.open("r+", encoding="utf-8") as file:  # `hpcq run` checks the disk
            file.write(json.dumps(said))
            file.flush()
            spare.replace(mark)
