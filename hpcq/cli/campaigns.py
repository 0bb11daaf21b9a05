"""Verbs that run campaigns: run, plan, status, resume, cancel.

They parse and print; the runner does the work.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import re
import shlex
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from hpcq import units
from hpcq.cli.options import clusters_option, database_option, json_option, near, runs_option
from hpcq.cli.output import Column, print_json, print_rows, print_words
from hpcq.clock import age_s
from hpcq.definition.model import places_of, running
from hpcq.described import commands
from hpcq.errors import Exit, HeldError, HpcqError, UserError, of_the_machine
from hpcq.kernels import Kernels, Shape
from hpcq.planning.pairs import lap_length
from hpcq.planning.plan import Coverage, Plan, coverage_of, nodes_of_pair
from hpcq.run_folder.paths import FirstWave, RunFolder, read_json
from hpcq.runner.live import ClusterStatus, EndedTest, RunStatus, Watch
from hpcq.runner.queue.run_state import powered_down_words
from hpcq.units import count_of, plain
from hpcq.visible import visible

# ----------------------------------------------------------------------------------------------------------------------
# Print a plan for people.


_SHOWN = 12


def print_plan(plan: Plan, kernels: Kernels) -> None:
    """Print coverage first, then nodes, tests, pairs and cost of one cluster."""
    goals, cost = plan.goals, plan.cost
    covered, *short = coverage_of(plan).lines()
    jobs = f"{count_of(cost.job_count, 'job')} of about {plain(cost.estimated_job_s)} s, time limit {plan.walltime_s} s each"
    lines = [
        f"{plan.cluster}: {covered}; {count_of(goals.result_count, 'result')}",
        *(f"  {line}" for line in short),
        f"  cost     {jobs}, {plain(cost.node_seconds)} node-seconds",
        *(f"  limit    {note}" for note in plan.notes),
        *_allocations(plan),
        f"  nodes    {_few([candidate.node for candidate in plan.candidates])}",
    ]
    for reason, count in Counter(excluded.reason for excluded in plan.excluded).most_common():
        names = [excluded.node for excluded in plan.excluded if excluded.reason == reason]
        lines.append(f"  without  {_few(names)}: {reason} ({count})")
    lines += [f"  without  {pair.client} - {pair.server}: {pair.reason}" for pair in plan.not_planned[:_SHOWN]]
    for (name, where), count in Counter((test.kernel, ", ".join(places_of(test))) for test in plan.tests).items():
        lines.append(
            f"  tests    {name}: {count_of(count, 'parameter set')}, {count_of(plan.repetition_count, 'time')} each, on {where}"
        )
    lines += _commands(plan, kernels)
    pairs, sets = plan.pairs[: plan.sets_begin], plan.pairs[plan.sets_begin :]
    if pairs or not sets:
        lines.append(f"  pairs    {_few([f'{client} > {server}' for client, server in pairs])}")
    lines += _repeated(plan, pairs)
    alone = [client for client, server in sets if client == server]
    lines += [f"  alone    {_few(alone)}"] if alone else []
    for one in sets[len(alone) :]:
        lines.append(f"  together {len(nodes_of_pair(one))} nodes: {one[0]},{one[1]}")
    print_words("\n".join(lines))


def _repeated(plan: Plan, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """A word on pairs that the plan measures in more than one job, where all pairs in both directions are there."""
    nodes, counts = len(plan.candidates), Counter(pairs)
    if not counts or max(counts.values()) < 2 or len(counts) < nodes * (nodes - 1):
        return []
    most = count_of(max(counts.values()), "job")
    words = f"each of the {len(counts)} pairs, by direction, is measured in up to {most}; `rounds: {2 * lap_length(nodes)}`"
    return [f"  again    {words} has each in one"]


def started(plan: Plan, kernels: Kernels) -> list[tuple[str, tuple[str, ...]]]:
    """All that foreign programs would start or load, each once: who runs a campaign of somebody else sees it before."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for test in running(plan.tests):
        described = kernels[test.kernel].described
        if described is None:
            continue
        role = {Shape.CLIENT_SERVER: "client", Shape.ONE_NODE: "node"}.get(described.shape, "rank")
        found += [("modules", described.modules)] if described.modules else []
        named = commands(described, test.parameters).items()
        found += [(role if name == "client" else name, words) for name, words in named if words]
    return list(dict.fromkeys(found))


def _commands(plan: Plan, kernels: Kernels) -> list[str]:
    lines = [f"  starts   {name}: {' '.join(map(_word, words))}" for name, words in started(plan, kernels)]
    more = [f"  starts   and {len(lines) - _SHOWN} more commands: hpcq plan --json has all"] if len(lines) > _SHOWN else []
    return lines[:_SHOWN] + more


def _word(word: str) -> str:
    """Quote a word as a shell would need it; what is filled in at run time stands as it is."""
    return word if re.fullmatch(r"[{}\w./:=-]+", word) else shlex.quote(word)


def _allocations(plan: Plan) -> list[str]:
    """Print what each way to share allocations would cost; each job waits in the queue."""
    lines = []
    for one in plan.cost.allocations:
        waits = f"{one.job_count} wait{'s' if one.job_count != 1 else ''} in the queue"
        chosen = " (this plan)" if one.allocation.partition(" ")[0] == plan.allocation else ""
        longest = f"jobs of up to {plain(one.estimated_job_s)} s"
        lines.append(f"  allocation     {one.allocation}: {waits}, {longest}, {plain(one.node_seconds)} node-seconds{chosen}")
    return lines


def _few(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


# ----------------------------------------------------------------------------------------------------------------------
# Progress of a run: one line per cluster, updated while a person watches, or printed once by `hpcq status`.


_EVERY_S = 1.0
#: Without a terminal, waves that follow each other faster than this share a line.
_LINE_EVERY_S = 10.0
#: A time without its date would look like today's.
_CLOCK_BELOW_S = 12 * 3600
#: A run that would take longer was begun by a clock that was wrong, or has hardly begun: its end is not foreseen.
_FORESEEN_S = 366 * 86400
#: Nothing more happens to a cluster in these stages.
_ENDED = ("loaded", "measured")
_COLUMNS = [
    *(Column(name) for name in ("cluster", "stage", "pairs", "queued", "running", "done", "failed", "not run")),
    *(Column(name) for name in ("results", "planned", "coverage", "ends")),
]


@contextlib.contextmanager
def shown_progress(run: RunFolder) -> Iterator[None]:
    """Show the run's progress on standard error until the block ends: a bar on a terminal, elsewhere lines."""
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
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from hpcq.visible import beneath

    console = Console(file=beneath(sys.stderr), highlight=False)
    live_options: dict[str, Any] = {"redirect_stdout": False, "redirect_stderr": False}  # Rich would act on what it holds
    watch = Watch(run)
    with Live(console=console, transient=True, auto_refresh=False, vertical_overflow="visible", **live_options) as live:
        for status in _looks(watch, done):
            for line in _ended_lines(watch):
                console.print(Text(line), overflow="fold")
            live.update(Text("\n".join(progress_bar(one, console.width) for one in status.clusters)), refresh=True)


#: More lines of ended tests than this per look are counted.
_LINES_MAX = 20


def _ended_lines(watch: Watch) -> list[str]:
    """A line for each test of a pair whose job has ended, at most so many that a person can follow."""
    ended = list(watch.ended())
    more = [f"and {count_of(len(ended) - _LINES_MAX, 'test')} more"] if len(ended) > _LINES_MAX else []
    return [*map(_ended_line, ended[:_LINES_MAX]), *more]


def _ended_line(one: EndedTest) -> str:
    """`alpha: n1 > n2: tcp_stream 128 KiB: 191.2 Mbit/s, 98 % of usual: ok`; `measured` where nothing judges it yet."""
    size = f" {units.human(one.message_bytes, 'bytes')}" if one.message_bytes is not None else ""
    if one.value is None:
        shown = f"no value: {one.reason or 'not measured'}"
    elif one.share is None:
        shown = f"{units.human_of(one.metric, one.value)}: measured"
    else:
        outcome = f"not ok, {one.share.bound}" if one.share.bound else "ok" if one.share.judged else "measured"
        outcome = "undecided, other work was there" if one.share.disturbed else outcome
        percent = f"{100 * one.share.ratio:.0f} % of {one.share.source}"
        shown = f"{units.human_of(one.metric, one.value)}, {percent}: {outcome}"
    over = f" over {one.over}" if one.over else ""
    by = f" with {one.toolchain}" if one.toolchain else ""
    return visible(f"{one.cluster}: {one.client} > {one.server}{over}: {one.kernel}{size}{by}: {shown}")


def progress_bar(cluster: ClusterStatus, width: int) -> str:
    """One cluster in a line that fits: `alpha ####------ 12 of 30 results, 3 jobs running, 5 queued, 12 min left`."""
    counts = cluster.counts
    if not counts:
        return f"{cluster.name}: {cluster.stage}"
    measured, planned = counts["measured_result_count"], counts["planned_result_count"]
    attempts = counts["attempts"]
    running = attempts.get("running", 0) + attempts.get("ending", 0)
    words = f"{measured} of {planned}, {count_of(running, 'job')} running, {attempts.get('queued', 0)} queued"
    if counts.get("waiting"):
        words += f"; waits: {counts['waiting']}"
    elif (left_s := _left_s(cluster, dt.datetime.now(dt.UTC))) is not None:
        words += f", {next(f'{left_s / one:.0f} {unit}' for one, unit in _LEFT_UNITS if left_s >= 2 * one or one == 1)} left"
    long = max(0, min(24, width - len(cluster.name) - len(words) - 3))
    done = round(long * measured / planned) if planned else long
    return " ".join(part for part in (cluster.name, "#" * done + "-" * (long - done), words) if part)


def _lines(run: RunFolder, done: threading.Event) -> None:
    """Without a terminal: a line per cluster when its stage changes, and for each wave of jobs."""
    said: dict[str, tuple[str, int, float]] = {}
    watch = Watch(run)
    for status in _looks(watch, done):
        for line in _ended_lines(watch):
            print_words(line, err=True)
        for one in status.clusters:
            stage, attempts, at = said.get(one.name, ("", 0, 0.0))
            now, count = time.monotonic(), one.counts.get("attempt_count", 0)
            if one.stage != stage or (count != attempts and now - at > _LINE_EVERY_S):
                said[one.name] = one.stage, count, now
                print_words(progress_line(one), err=True)


def _looks(watch: Watch, done: threading.Event) -> Iterator[RunStatus]:
    """The state of the run, once per second and once more at the end."""
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
    for line in (f"run {status.run}", *coverage_lines(status)):
        print_words(line, err=not sys.stdout.isatty())
    print_rows([_row(cluster) for cluster in status.clusters], _COLUMNS)
    for cluster in status.clusters:
        if cluster.counts.get("waiting"):
            print_words(f"{cluster.name}: {cluster.counts['waiting']}", err=not sys.stdout.isatty())
        for one in cluster.counts.get("powered_down", ()):
            seen = units.parse_utc(one["since_utc"]).astimezone().strftime("%Y-%m-%d %H:%M:%S")
            words = powered_down_words(one["cluster"], one["nodes"])
            print_words(f"{cluster.name}: {words} (seen {seen})", err=not sys.stdout.isatty())
        if cluster.error:
            print_words(f"{cluster.name}: {cluster.error}", err=True)


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


#: Time left is told in the largest unit of which there are two.
_LEFT_UNITS = ((86400, "days"), (3600, "h"), (60, "min"), (1, "s"))


def _left_s(cluster: ClusterStatus, now: dt.datetime) -> float | None:
    """Estimated time until the run ends, at the rate so far; before the first result, from the plan. None: nothing is open."""
    counts = cluster.counts
    open_jobs = counts["pending_pair_count"] + counts["live_attempt_count"]
    if not open_jobs:
        return None
    measured, since = counts["measured_result_count"], counts.get("measuring_since_utc")
    if measured and since:
        missing = counts["planned_result_count"] - measured
        return age_s(since, now) * float(missing) / float(measured)
    return float(open_jobs / max(1, counts["attempts"].get("running", 0)) * cluster.estimated_job_s)


def _ends(cluster: ClusterStatus, now: dt.datetime) -> str:
    """The same as a time of day."""
    left_s = _left_s(cluster, now)
    if left_s is None or left_s > _FORESEEN_S:
        return "-"
    end = (now + dt.timedelta(seconds=left_s)).astimezone()
    return f"{end:%H:%M:%S}" if left_s < _CLOCK_BELOW_S else f"{end:%Y-%m-%d %H:%M}"


# ----------------------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("campaign")
@click.option("--detach", is_flag=True, help="Return as soon as the first jobs are queued; hpcq resume goes on.")
@click.option("--confirm/--no-confirm", help="Measure what is suspected after it again at once, in the same run.")
@database_option
@runs_option
@clusters_option
@json_option
def run(  # noqa: PLR0917 - Click passes by name
    campaign: str,
    detach: bool,
    confirm: bool,
    database: Path,
    runs_folder: Path,
    cluster_folders: Sequence[Path],
    as_json: bool,
) -> int:
    """Run a campaign: build, plan, measure, load, report.

    CAMPAIGN is a file, or the name of an example that comes with hpcq (demo, lab).

    It ends with the verdict of the run's page and its exit code: 3 when something is slow, broken or fails a gate, 4 when
    something is missing or undecided. A run that nothing judges is NOT JUDGED, exit code 0 if all of it was measured.

    With --detach no process stays behind; `hpcq resume` continues the run, now or tomorrow. The two sides of a link need a
    running driver, so only `hpcq resume` submits pairs over links.

    With --confirm, nodes, links and uplinks of groups that look slow after the last job are measured again, six jobs each
    with good partners, within the campaign's budget (`max_confirmation_jobs`). Exit code 3 when one is slow again, 4 when
    that could not be settled. `hpcq schedule add` does it by default.

    \b
    Example: hpcq run campaigns/demo.yaml
    """
    opened = _open(campaign, database, runs_folder, cluster_folders, confirm=confirm)
    return _first_wave(opened, database, as_json=as_json) if detach else _to_the_end(opened, database, as_json=as_json)


@click.command()
@click.argument("name", metavar="[RUN]", required=False)
@click.option("--abandoned", is_flag=True, help="Every run whose driver died within a week, one after another; for schedules.")
@database_option
@runs_option
@json_option
def resume(name: str | None, abandoned: bool, database: Path, runs_folder: Path, as_json: bool) -> int:
    """Take over a run whose driver ended; queued jobs are adopted.

    RUN is a run's id, the beginning of one, or its folder. Default: the newest run that has not ended.

    \b
    Example: hpcq resume lab
    """
    from hpcq.runner.live import find_unfinished_run, has_ended

    if abandoned:
        if name is not None:
            raise UserError(f"--abandoned: {name!r} beside it: must be one of both, since it takes every such run")
        return _resume_abandoned(database, runs_folder, as_json=as_json)
    found = find_unfinished_run(name, runs_folder, _say)
    if has_ended(found):
        _say(f"{found.run} has ended: nothing of it is left to measure; what it brought is in the database")
    return _to_the_end(found, database, as_json=as_json)


@click.command()
@click.argument("name", metavar="[RUN]", required=False)
@click.option("--watch", is_flag=True, help="Update the view until the run ends: a table on a terminal, else lines.")
@runs_option
@json_option
def status(name: str | None, watch: bool, runs_folder: Path, as_json: bool) -> int:
    """Show how far a run is.

    RUN is a run's id, the beginning of one, or its folder. Default: the newest run that has not ended.

    \b
    Example: hpcq status
    """
    from hpcq.runner.live import find_unfinished_run

    found = find_unfinished_run(name, runs_folder, _say)
    if watch:
        watch_status(found)
    return _print_status(found, as_json)


@click.command()
@click.argument("name", metavar="[RUN]", required=False)
@runs_option
@json_option
def cancel(name: str | None, runs_folder: Path, as_json: bool) -> int:
    """End a run's jobs; nothing stays queued.

    RUN is a run's id, the beginning of one, or its folder. Default: the newest run that has not ended.

    Exit code 0 when the queues show no job of the run any more, else 4 and a list of the jobs that are left. Results that
    were measured stay, and you can load them. Each planned result that is missing becomes a row that says so.

    \b
    Example: hpcq cancel lab
    """
    from hpcq.runner.cancelling import cancel_run
    from hpcq.runner.live import find_unfinished_run, has_ended

    found = find_unfinished_run(name, runs_folder, _say)
    if has_ended(found):
        _say(f"{found.run} has ended: nothing of it is left to cancel")
    left = cancel_run(found, _say)
    shown = _print_status(found, as_json)
    for words in left:
        print_words(f"still there: {words}", err=True)
    return Exit.INCOMPLETE if left else shown


@click.command()
@click.argument("campaign")
@clusters_option
@json_option
def plan(campaign: str, cluster_folders: Sequence[Path], as_json: bool) -> int:
    """Show what a campaign would run, where and how long.

    It asks each cluster for its nodes. It starts nothing and writes nothing. If one cluster cannot be reached, it shows the
    plans of the others and exits with that error.

    \b
    Example: hpcq plan campaigns/demo.yaml
    """
    from hpcq.definition.find import find_campaign
    from hpcq.runner.stages import preview

    found = preview(find_campaign(campaign), cluster_folders)

    if as_json and found.plans:
        said = [[{"what": what, "command": words} for what, words in started(made, found.kernels)] for made in found.plans]
        print_json([{**json.loads(made.to_json()), "starts": starts} for made, starts in zip(found.plans, said, strict=True)])
    elif found.plans:
        for made in found.plans:
            print_plan(made, found.kernels)
    if found.failures:
        from hpcq.cli.main import complain

        for error in found.failures[:-1]:
            complain(error.message, error.hint)
        raise found.failures[-1]
    return Exit.OK


def _resume_abandoned(database: Path, runs_folder: Path, *, as_json: bool) -> int:
    """Take over every run whose driver died. Returns the worst exit code; 0 if there is none."""
    from hpcq.runner.watch.doctor import abandoned

    worst = int(Exit.OK)
    for one in abandoned(runs_folder):
        if one.left:
            _say(f"run {one.run.run}: has no driver and is left to you: {one.left}")
            continue
        _say(f"run {one.run.run}: its driver died; takes it over")
        try:
            code = _to_the_end(one.run, database, as_json=as_json)
        except HeldError as error:
            _say(f"run {one.run.run}: another process was faster: {error.message}")
            continue
        except HpcqError as error:
            _say(f"run {one.run.run}: {error.message}")
            code = Exit.ERROR
        worst = Exit.ERROR if Exit.ERROR in {code, worst} else max(worst, code)
    return worst


def _first_wave(opened: RunFolder, database: Path, *, as_json: bool) -> int:
    """Queue the first jobs on every cluster and return."""
    failures = _workflow(opened, target="submitted")
    for marker in sorted(opened.path.glob("*/submitted.json")):
        for line in read_json(marker, FirstWave)["said"]:
            _say(line)
    if failures:
        return _tell_failures(opened, database, failures, as_json=as_json)
    return _print_status(opened, as_json)


def _open(
    campaign: str, database: Path, runs_folder: Path, cluster_folders: Sequence[Path], *, confirm: bool = False
) -> RunFolder:
    """Check everything that can be checked before contacting a cluster, then create the run's folder."""
    from hpcq.definition.find import find_campaign
    from hpcq.runner.site.place import check_definitions, check_runs_folder, open_run
    from hpcq.store.database import writing

    path = find_campaign(campaign)
    check_definitions(path, cluster_folders)
    check_runs_folder(runs_folder)
    with writing(database):
        pass  # better to learn of an unwritable database now than after an hour of measuring
    return open_run(path, cluster_folders, database, runs_folder, confirm=confirm)


def _workflow(run: RunFolder, *, target: str | None = None) -> list[HpcqError]:
    """Run the stages, to the end or to `target`. Returns what failed: the words of stages, else of the workflow itself."""
    from hpcq.runner.watch.doctor import holders_of
    from hpcq.runner.workflow import failures_of, forget_failures, leading, run_workflow

    _say(f"run {run.run}: {near(run.path)}")
    try:
        with leading(run), shown_progress(run) if target is None else contextlib.nullcontext():
            code = run_workflow(run, target=target)
    except KeyboardInterrupt:
        hint = f"hpcq status {run.run} shows what is still queued; hpcq resume {run.run} goes on, hpcq cancel {run.run} ends it"
        raise HpcqError("stopped from the keyboard", hint) from None
    if code == 0 and target is None:
        forget_failures(run)
    failures = failures_of(run)
    if code == 0 or failures:
        return failures
    if holders := holders_of(run):
        held = "; ".join(f"{part} by {holder}" for part, holder in holders.items())
        raise HeldError(f"{near(run.path)}: driven by another process: {held}", "wait for it (hpcq status), or hpcq cancel")
    words = f"{near(run.path)}: the workflow ended with exit code {code}"
    hint = f"its words are in {near(run.path / 'snakemake.log')}; hpcq resume goes on from here"
    return [_disk_trouble(run) or HpcqError(words, hint)]


def _to_the_end(run: RunFolder, database: Path, *, as_json: bool) -> int:
    from hpcq.cli.main import complain
    from hpcq.cli.results import print_run
    from hpcq.runner.live import status_of

    failures = _workflow(run)
    if failures:
        return _tell_failures(run, database, failures, as_json=as_json)
    for line in coverage_lines(status_of(run)):
        _say(line)
    outcome = print_run(run, database, as_json=as_json)
    status = status_of(run)
    for cluster in status.clusters:
        if found := cluster.counts.get("no_start"):
            complain(f"{cluster.name}: no job of this run can start its programs: {found['words']}", found["remedy"])
    return Exit.INCOMPLETE if status.cancelled and outcome == Exit.OK else outcome


def _tell_failures(run: RunFolder, database: Path, failures: list[HpcqError], *, as_json: bool) -> int:
    """Load and show what was measured before a failure, report all failures, and raise the last one."""
    from hpcq.cli.main import complain
    from hpcq.cli.results import print_run
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
    from hpcq.runner.live import status_of

    found = status_of(run)
    if as_json:
        print_json(found.to_json())
    else:
        print_status(found)
    return Exit.OK


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201
