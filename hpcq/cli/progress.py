"""How far a run is: one line a cluster, kept up to date while a person looks on, printed once by `hpcq status`."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from hpcq.cli.rows import Column, print_rows, table_of
from hpcq.coverage import Coverage
from hpcq.errors import HpcqError
from hpcq.runner.live import ClusterStatus, RunStatus, Watch
from hpcq.store.runfolder import RunFolder

if TYPE_CHECKING:
    from rich.live import Live

_EVERY_S = 1.0
_COLUMNS = [
    Column(name) for name in ("cluster", "stage", "jobs", "queued", "running", "ended", "not run", "results", "planned", "left")
]


@contextlib.contextmanager
def shown_progress(run: RunFolder) -> Iterator[None]:
    """Show the run's progress on a terminal until the block ends; quiet anywhere else."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live

    done = threading.Event()
    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:
        thread = threading.Thread(target=_refresh, args=(run, live, done), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def print_status(status: RunStatus) -> None:
    """The run's state as a table on standard output; what stopped a cluster on standard error."""
    for line in (f"run {status.run_id}", *coverage_lines(status)):
        click.echo(line, err=not sys.stdout.isatty())
    print_rows([_row(cluster) for cluster in status.clusters], _COLUMNS)
    for cluster in status.clusters:
        if cluster.error:
            click.echo(f"{cluster.name}: {cluster.error}", err=True)


def coverage_lines(status: RunStatus) -> list[str]:
    """What was covered so far, cluster by cluster, and what was not and why."""
    lines = []
    for cluster in status.clusters:
        if "coverage" in cluster.counts:
            covered, *short = Coverage.from_json(cluster.counts["coverage"]).lines()
            lines += [f"{cluster.name}: measured {covered}", *(f"  {line}" for line in short)]
    return lines


def _refresh(run: RunFolder, live: Live, done: threading.Event) -> None:
    watch = Watch(run)
    while not done.is_set():
        with contextlib.suppress(HpcqError, OSError):  # a file that is just being written is read at the next turn
            live.update(table_of([_row(one) for one in watch.look().clusters], _COLUMNS), refresh=True)
        done.wait(_EVERY_S)


def _row(cluster: ClusterStatus) -> dict[str, object]:
    """One line of the table; counts that nobody knows yet are None."""
    counts = cluster.counts
    row: dict[str, object] = {column.name: None for column in _COLUMNS}
    row.update(cluster=cluster.name, stage=cluster.stage)
    if counts:
        attempts = counts["attempts"]
        row.update(
            jobs=counts["pair_count"],
            queued=attempts.get("queued", 0),
            running=attempts.get("running", 0) + attempts.get("ending", 0),
            ended=counts["attempt_count"] - counts["live_attempt_count"],
            results=counts["measured_result_count"],
            planned=counts["planned_result_count"],
            left=_left(cluster),
        )
        row["not run"] = counts["not_run_pair_count"]
    return row


def _left(cluster: ClusterStatus) -> str:
    """A rough time to the end: what is not measured yet, at the plan's estimate, on as many pairs as run now."""
    counts = cluster.counts
    open_jobs = counts["pending_pair_count"] + counts["live_attempt_count"]
    at_once = max(1, counts["attempts"].get("running", 0))
    if not open_jobs:
        return "-"
    return f"{open_jobs / at_once * cluster.estimated_job_s:.0f} s"
