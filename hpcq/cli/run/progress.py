"""Progress of a run: one line per cluster, updated while a person watches, or printed once by `hpcq status`."""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
import threading
import time
from collections.abc import Iterator

import click

from hpcq import units
from hpcq.cli.rows import Column, print_rows
from hpcq.errors import HpcqError
from hpcq.planning.coverage import Coverage
from hpcq.run_folder.paths import RunFolder
from hpcq.runner.live import ClusterStatus, RunStatus, Watch
from hpcq.runner.queue.run_state import powered_down_words
from hpcq.units import count_of

_EVERY_S = 1.0
#: Without a terminal, waves that follow each other faster than this share a line.
_LINE_EVERY_S = 10.0
#: A time without its date would look like today's.
_CLOCK_BELOW_S = 12 * 3600
#: Nothing more happens to a cluster in these stages.
_ENDED = ("loaded", "measured")
_COLUMNS = [
    *(Column(name) for name in ("cluster", "stage", "pairs", "queued", "running", "done", "failed", "not run")),
    *(Column(name) for name in ("results", "planned", "coverage", "ends")),
]


@contextlib.contextmanager
def shown_progress(run: RunFolder) -> Iterator[None]:
    """Show the run's progress on standard error until the block ends: a table on a terminal, elsewhere lines."""
    done = threading.Event()
    thread = threading.Thread(target=_show, args=(run, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def watch_status(run: RunFolder) -> None:
    """Show the run's progress until nothing more happens to it."""
    _show(run, threading.Event())


def _show(run: RunFolder, done: threading.Event) -> None:
    """Look every second. Ends when `done` is set or every cluster has ended."""
    if not sys.stderr.isatty():
        _lines(run, done)
        return
    from rich.console import Console, Group
    from rich.live import Live

    from hpcq.cli.fitted import fitted

    console = Console(stderr=True)
    with Live(console=console, transient=True, auto_refresh=False, vertical_overflow="visible") as live:
        for status in _looks(run, done):
            rows = [_row(one) for one in status.clusters]
            live.update(Group(*fitted(rows, _COLUMNS, None, width=console.width)), refresh=True)


def _lines(run: RunFolder, done: threading.Event) -> None:
    """Without a terminal: a line per cluster when its stage changes, and for each wave of jobs."""
    said: dict[str, tuple[str, int, float]] = {}
    for status in _looks(run, done):
        for one in status.clusters:
            stage, attempts, at = said.get(one.name, ("", 0, 0.0))
            now, count = time.monotonic(), one.counts.get("attempt_count", 0)
            if one.stage != stage or (count != attempts and now - at > _LINE_EVERY_S):
                said[one.name] = one.stage, count, now
                click.echo(progress_line(one), err=True)


def _looks(run: RunFolder, done: threading.Event) -> Iterator[RunStatus]:
    """The state of the run, once per second and once more at the end."""
    watch = Watch(run)
    while True:
        last = done.is_set()
        with contextlib.suppress(HpcqError, OSError):  # a file that is being written is read next time
            status = watch.look()
            yield status
            if all(one.error or one.stage in _ENDED for one in status.clusters):
                return
        if last:
            return
        done.wait(_EVERY_S)


def progress_line(cluster: ClusterStatus) -> str:
    """One cluster in words: `alpha: running: 12 of 30 results, 3 jobs running, 5 queued`."""
    counts = cluster.counts
    if not counts:
        return f"{cluster.name}: {cluster.stage}"
    attempts = counts["attempts"]
    jobs = f"{count_of(attempts.get('running', 0), 'job')} running, {attempts.get('queued', 0)} queued"
    results = f"{counts['measured_result_count']} of {count_of(counts['planned_result_count'], 'result')}"
    return f"{cluster.name}: {cluster.stage}: {results}, {jobs}"


def print_status(status: RunStatus) -> None:
    """Print the run's state as a table to standard output, and what stopped a cluster to standard error."""
    for line in (f"run {status.run_id}", *coverage_lines(status)):
        click.echo(line, err=not sys.stdout.isatty())
    print_rows([_row(cluster) for cluster in status.clusters], _COLUMNS)
    for cluster in status.clusters:
        if cluster.counts.get("waiting"):
            click.echo(f"{cluster.name}: {cluster.counts['waiting']}", err=not sys.stdout.isatty())
        for one in cluster.counts.get("powered_down", ()):
            seen = units.parse_utc(one["since_utc"]).astimezone().strftime("%Y-%m-%d %H:%M:%S")
            words = powered_down_words(one["cluster"], one["nodes"])
            click.echo(f"{cluster.name}: {words} (seen {seen})", err=not sys.stdout.isatty())
        if cluster.error:
            click.echo(f"{cluster.name}: {cluster.error}", err=True)


def coverage_lines(status: RunStatus) -> list[str]:
    """What was covered so far, by cluster, and what was not and why."""
    lines = []
    for cluster in status.clusters:
        if "coverage" in cluster.counts:
            covered, *short = Coverage.from_json(cluster.counts["coverage"]).lines()
            lines += [f"{cluster.name}: measured {covered}", *(f"  {line}" for line in short)]
    return lines


def _row(cluster: ClusterStatus) -> dict[str, object]:
    """One line of the table; unknown counts are None."""
    counts = cluster.counts
    row: dict[str, object] = {column.name: None for column in _COLUMNS}
    row.update(cluster=cluster.name, stage=cluster.stage)
    if counts:
        if counts.get("waiting"):
            row["stage"] = f"waits: {counts['waiting']}"
        attempts = counts["attempts"]
        row.update(
            pairs=counts["pair_count"],
            queued=attempts.get("queued", 0),
            running=attempts.get("running", 0) + attempts.get("ending", 0),
            done=counts.get("measured_pair_count"),
            failed=counts.get("failed_pair_count"),
            results=counts["measured_result_count"],
            planned=counts["planned_result_count"],
            ends=_ends(cluster, dt.datetime.now(dt.UTC)),
        )
        row["not run"] = counts["not_run_pair_count"]
        if "coverage" in counts:  # pairs of the node that has the fewest
            row["coverage"] = f"{counts['coverage']['node_min']} of {counts['planned_node_pair_count_min']}"
    return row


def _ends(cluster: ClusterStatus, now: dt.datetime) -> str:
    """Estimated end of the run, at the rate so far; before the first result, from the plan's estimate."""
    counts = cluster.counts
    open_jobs = counts["pending_pair_count"] + counts["live_attempt_count"]
    if not open_jobs:
        return "-"
    measured, since = counts["measured_result_count"], counts.get("measuring_since_utc")
    if measured and since:
        missing = counts["planned_result_count"] - measured
        left_s = (now - units.parse_utc(since)).total_seconds() * missing / measured
    else:
        left_s = open_jobs / max(1, counts["attempts"].get("running", 0)) * cluster.estimated_job_s
    end = (now + dt.timedelta(seconds=left_s)).astimezone()
    return f"{end:%H:%M:%S}" if left_s < _CLOCK_BELOW_S else f"{end:%Y-%m-%d %H:%M}"
