"""Show what a run is doing, from its files alone: without asking a cluster, without taking a lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from hpcq.analysis.expected import Forecast, ShareOfExpected
from hpcq.definition.find import kernels_of_run
from hpcq.definition.model import Test
from hpcq.errors import UserError
from hpcq.evidence.case import JudgedResult
from hpcq.evidence.judge import judge
from hpcq.gate_kinds import End, MeasuredSeries
from hpcq.kernels import Kernels
from hpcq.planning.plan import Plan
from hpcq.run_folder.journal import Attempt, read_journal_from
from hpcq.run_folder.lines import mapping, printed
from hpcq.run_folder.paths import FailedStage, RunFolder, read_job_file, read_json, read_json_or_none, read_regular
from hpcq.runner.queue.run_state import ClusterState, RunState, summary
from hpcq.store.load.row_keys import flatten


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """One cluster's part. `stage`: what happens there, or where it stopped. `counts` come from its journal."""

    name: str
    stage: str
    error: str | None
    estimated_job_s: float
    counts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A whole run."""

    run: str
    folder: str
    clusters: tuple[ClusterStatus, ...]

    @property
    def cancelled(self) -> bool:
        return any(cluster.counts.get("cancelled") for cluster in self.clusters)

    def to_json(self) -> dict[str, Any]:
        """Return the content for --json."""
        return {"run": self.run, "folder": self.folder, "clusters": [asdict(cluster) for cluster in self.clusters]}


@dataclass(frozen=True, slots=True)
class EndedTest:
    """What one test of a pair brought, when its job has ended. value: the median of the main metric; None: no valid value."""

    cluster: str
    client: str
    server: str
    kernel: str
    message_bytes: int | None
    metric: str
    value: float | None
    #: Why there is no value.
    reason: str
    #: The value beside what is expected; None if nothing is known to compare it with.
    share: ShareOfExpected | None = None
    #: The interface where the run measures several networks.
    over: str = ""
    #: Where the run measures the kernel with several.
    toolchain: str = ""


class Watch:
    """Polls a run. It reads each journal on from where the last poll ended."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._states: dict[str, tuple[RunState, int]] = {}
        self._planned_ns: dict[str, int] = {}
        self._told: set[str] = set()
        self._forecast: Forecast | None = None
        self._kernels: Kernels | None = None

    def ended(self) -> Iterator[EndedTest]:
        """Yield what jobs of pairs brought that have ended since the last call; of tournaments and links nothing."""
        for name, (state, _) in self._states.items():
            for attempt in state.attempts.values():
                if attempt.live or attempt.tag in self._told:
                    continue
                self._told.add(attempt.tag)
                if not attempt.shared and not attempt.side:
                    self._forecast = self._forecast or Forecast(self._run)
                    self._kernels = self._kernels or kernels_of_run(self._run.described)
                    yield from _ended_tests(self._run, name, state.plan, attempt, self._forecast, self._kernels)

    def look(self) -> RunStatus:
        """Return how far every cluster of the run is now."""
        run = self._run
        names = [*run.described_run()["clusters"], *run.link_names()]
        return RunStatus(run.run, str(run.path), tuple(_cluster_status(run, name, self._state) for name in names))

    def _state(self, name: str) -> RunState:
        planned_ns = self._run.plan(name).stat().st_mtime_ns
        if planned_ns != self._planned_ns.get(name):  # suspects that are measured again stand behind what was planned first
            self._states[name], self._planned_ns[name] = (_new_state(self._run, name), 0), planned_ns
        state, offset_bytes = self._states[name]
        events, offset_bytes = read_journal_from(self._run.journal(name), offset_bytes)
        for event in events:
            state.apply(event)
        self._states[name] = state, offset_bytes
        return state


def status_of(run: RunFolder) -> RunStatus:
    """Return how far every cluster of a run is."""
    return Watch(run).look()


def find_run_folder(name: str | None, runs_folder: Path) -> RunFolder:
    """Find a run by its id, a prefix of its id (the newest match), or its folder; without a name, the newest run."""
    if name is not None and (Path(name) / "run.json").is_file():
        return RunFolder(Path(name).absolute())
    if not runs_folder.is_dir():
        raise UserError(
            f"{runs_folder}: there is no such folder", "--runs names the folder of runs; hpcq run CAMPAIGN makes one"
        )
    known = [path.parent for path in runs_folder.glob("*/run.json")]
    matching = [path for path in known if name is None or path.name.startswith(name)]
    if not matching:
        found = ", ".join(sorted(path.name for path in known)[-5:]) or "none"
        wanted = f"no run {name!r}" if name else "no run"
        raise UserError(f"{runs_folder}: {wanted}: known are {found}", "hpcq run CAMPAIGN makes one")
    newest = max(matching, key=lambda path: str(read_json(path / "run.json").get("created_utc", "")))
    return RunFolder(newest.absolute())


def find_unfinished_run(name: str | None, runs_folder: Path, say: Callable[[str], None]) -> RunFolder:
    """As find_run_folder, but without a name the newest run that has not ended, which it says; where each has, the newest."""
    found = find_run_folder(name, runs_folder)
    if name is not None:
        return found
    known = (path.parent for path in runs_folder.glob("*/run.json"))
    open_runs = [RunFolder(path.absolute()) for path in known if not has_ended(RunFolder(path))]
    if not open_runs:
        return found
    newest = max(open_runs, key=lambda run: str(read_json(run.run_json).get("created_utc", "")))
    if newest.path != found.path:
        say(f"{newest.run}: the newest run that has not ended ({found.run}, which is newer, has)")
    return newest


def has_ended(run: RunFolder) -> bool:
    """Whether each part of a run is loaded: nothing is left to drive, cancel or load."""
    loaded = all((run.path / part / "loaded.json").is_file() for part in [*run.clusters(), *run.link_names()])
    return loaded and not run.to_confirm()


def _cluster_status(run: RunFolder, name: str, state_of: Callable[[str], RunState]) -> ClusterStatus:
    folder = run.path / name
    errors = [read_json(path, FailedStage) for path in sorted(folder.glob("*.error.json"))]
    error = str(errors[0]["message"]) if errors else None
    if not run.plan(name).is_file():
        return ClusterStatus(name, str(errors[0]["stage"]) if errors else "building", error, 0.0, {})
    state = state_of(name)
    return ClusterStatus(name, _stage(run, name), error, state.plan.cost.estimated_job_s, summary(state))


def _ended_tests(  # noqa: PLR0917 - what ended, and what it is held against
    run: RunFolder, name: str, plan: Plan, attempt: Attempt, forecast: Forecast, kernels: Kernels
) -> Iterator[EndedTest]:
    index = attempt.pairs[0]
    client, server = plan.pairs[index]
    folder = run.path / name / attempt.folder
    for test in plan.tests_at(index):
        kernel = kernels.get(test.kernel)  # of a foreign program somebody may have removed the description
        metric = next((one.name for one in kernel.metrics if one.better != "none"), None) if kernel is not None else None
        lines = list(_lines(folder, test))
        if metric is None or not lines:
            continue
        found = [(line, mapping(line.get("metrics")).get(metric)) for line in lines if line.get("valid") is True]
        of_lines = [(line, float(one)) for line, one in found if isinstance(one, (int, float))]
        values = tuple(value for _, value in of_lines)
        reason = next((str(line["invalid_reason"]) for line in lines if line.get("invalid_reason")), attempt.reason)
        size = test.parameters.get("message_bytes")
        told = (name, client, server, test.kernel)
        facts = _facts_of_ends(folder, lines[0])
        ends = _ends(facts, lines[0])
        series = MeasuredSeries(*told, test.telling, metric, values, network=plan.interface_of(index), toolchain=test.toolchain)
        share = forecast.share(series, ends) if values else None
        if share is not None and share.bound:  # what was measured beside other work fails nothing
            clean = tuple(value for line, value in of_lines if not judge(JudgedResult(line, test.parameters, *facts)).disturbed)
            values = clean or values
            share = forecast.share(replace(series, values=values, disturbed=not clean), ends)
        value = median(values) if values else None
        over = plan.over[index] if plan.over else ""
        several = any(one.kernel == test.kernel and one.toolchain != test.toolchain for one in plan.tests_at(index))
        by = test.toolchain if several else ""
        yield EndedTest(*told, size if isinstance(size, int) else None, metric, value, reason, share, over, by)


def _lines(folder: Path, test: Test) -> Iterator[Mapping[str, Any]]:
    """The result lines of a test that say its values themselves: of a sweep its size; of a foreign program none."""
    beginning = f"t{test.measured_by or test.test_no}-r"
    for path in sorted(path for path in folder.glob(f"{beginning}*.json") if path.stem.removeprefix(beginning).isdecimal()):
        line = _printed(path)
        sizes = line.get("sizes")
        for one in sizes if isinstance(sizes, list) else [] if test.measured_by else [line]:
            told = mapping(one)
            same_size = mapping(told.get("options")).get("message_bytes") == test.parameters.get("message_bytes")
            if not told.get("outputs") and (sizes is None or same_size):
                yield told


def _printed(path: Path) -> Mapping[str, Any]:
    """What a kernel printed, among whatever words of its libraries; nothing where it is not whole."""
    try:
        return printed(read_job_file(path))[0]
    except (OSError, ValueError):
        return {}


#: The facts of client and server; None for one that left none.
_Facts = tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]


def _evidence(line: Mapping[str, Any], role: str) -> Mapping[str, Any]:
    return mapping(mapping(line.get("evidence")).get(role))


def _facts_of_ends(folder: Path, line: Mapping[str, Any]) -> _Facts:
    """What a job left of the client and of the server of a result line."""
    of_ends = (_evidence(line, role) for role in ("client", "server"))
    nodes = (end.get("scheduler_node") or end.get("node") for end in of_ends)
    client, server = (read_json_or_none(folder / f"facts-{node}.json") or None for node in nodes)
    return client, server


def _ends(facts: _Facts, line: Mapping[str, Any]) -> tuple[End, End] | None:
    """Client and server as gates see them; None if one of them left no facts."""
    found = []
    for role, content in zip(("client", "server"), facts, strict=True):
        if content is None:
            return None
        end = _evidence(line, role)
        flat = [flatten(group, values) for group, values in content.items()]
        node = str(end.get("scheduler_node") or end.get("node"))
        found.append(End(node, str(end.get("interface", "")), {name: one[name] for one in flat for name in one}))
    return found[0], found[1]


def _new_state(run: RunFolder, name: str) -> RunState:
    path = run.plan(name)
    text = read_regular(path).decode()
    if name in run.link_names():
        from hpcq.planning.links import LinkPlan
        from hpcq.runner.link.side import LinkState

        return LinkState(LinkPlan.from_json(text, str(path)))
    return ClusterState(Plan.from_json(text, str(path)))


def _stage(run: RunFolder, name: str) -> str:
    folder = run.path / name
    if (folder / "loaded.json").is_file():
        return "confirming" if name in run.to_confirm() else "loaded"
    if (folder / "driven.json").is_file():
        return "measured"
    return "running" if (folder / "journal.jsonl").is_file() else "planned"
