"""`hpcq stage`: one stage of a run, as workflow/Snakefile calls it.

A stage that fails leaves a marker (runner/workflow.py), so that `hpcq run` can report the error in its own words.
"""

from __future__ import annotations

from pathlib import Path

import click

from hpcq.cli.options import Verbs, database_option
from hpcq.run_folder.paths import RunFolder, write_json
from hpcq.runner.workflow import marked, say


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
    with marked(run, cluster, "build"):
        stages.build(run, cluster, lambda text: say(run, text))


@stage.command()
@_run_argument
@click.argument("cluster")
def plan(run_folder: Path, cluster: str) -> None:
    """Plan a cluster's part, or a link."""
    from hpcq.runner import stages
    from hpcq.runner.link import link_group

    run = RunFolder(run_folder)
    with marked(run, cluster, "plan"):
        if link_group.is_link(cluster):
            link_group.plan(run, cluster)
        else:
            stages.plan(run, cluster, lambda text: say(run, text))


@stage.command()
@_run_argument
@click.argument("cluster")
def submit(run_folder: Path, cluster: str) -> None:
    """Queue the first jobs of a part, and leave: `hpcq resume` goes on."""
    from hpcq.runner.link import link_group

    run, told = RunFolder(run_folder), list[str]()

    def tell(text: str) -> None:
        told.append(text)
        say(run, text)

    with marked(run, cluster, "drive"):
        link_group.submit_first(run, cluster, tell)
        write_json(run.path / cluster / "submitted.json", {"format": 1, "said": told})


@stage.command()
@_run_argument
@click.argument("cluster")
def drive(run_folder: Path, cluster: str) -> None:
    """Drive a cluster's jobs to their end."""
    from hpcq.runner import stages

    run = RunFolder(run_folder)
    with marked(run, cluster, "drive"):
        stages.drive(run, cluster, lambda text: say(run, text))


@stage.command("drive-linked")
@_run_argument
@click.argument("group")
def drive_linked(run_folder: Path, group: str) -> None:
    """Drive a group of linked clusters, joined by +, and the links between them."""
    from hpcq.runner.link import link_group

    run = RunFolder(run_folder)
    with marked(run, group.split("+", maxsplit=1)[0], "drive"):
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
    with marked(run, cluster, "load"):
        loaded = stages.load(run, Path(run.described_run()["database"]))
        write_json(run.path / cluster / "loaded.json", loaded)


@stage.command()
@_run_argument
@click.argument("cluster")
def confirm(run_folder: Path, cluster: str) -> None:
    """Measure a cluster's suspects again, and load what came back."""
    from hpcq.runner.confirming import confirm

    run = RunFolder(run_folder)
    with marked(run, cluster, "confirm"):
        done = confirm(run, cluster, Path(run.described_run()["database"]), lambda text: say(run, text))
        write_json(run.confirmed(cluster), done)


@stage.command()
@_run_argument
def report(run_folder: Path) -> None:
    """Write the page."""
    from hpcq.runner import stages

    run = RunFolder(run_folder)
    with marked(run, "", "report"):
        stages.report(run, Path(run.described_run()["database"]))
