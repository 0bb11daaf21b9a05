"""Show what a run is doing, from its files alone: without asking a cluster, without taking a lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpcq.clock import Clock
from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.model import Campaign, Cluster
from hpcq.errors import HeldError, HpcqError, UserError
from hpcq.planning.allocations import Basis
from hpcq.planning.links import plan_cluster, plan_link, refuse_beyond_budget
from hpcq.planning.plan import Plan
from hpcq.run_folder.journal import Attempt, fold, read_journal, read_journal_from
from hpcq.run_folder.paths import RunFolder, read_json
from hpcq.runner import stages
from hpcq.runner.failure_marks import marked
from hpcq.runner.link import link_group
from hpcq.runner.queue.reservations import refuse_where_forbidden
from hpcq.runner.queue.run_state import ClusterState, RunState, summary
from hpcq.runner.site.place import check_definitions, nodes_now, place, reach, scheduler_of
from hpcq.scheduler.base import JobLimits, Scheduler
from hpcq.scheduler.types import JobKey, JobReport, JobState


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


class Watch:
    """Polls a run. It reads each journal on from where the last poll ended."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._states: dict[str, tuple[RunState, int]] = {}

    def look(self) -> RunStatus:
        """Return how far every cluster of the run is now."""
        run = self._run
        names = [*read_json(run.run_json)["clusters"], *run.link_names()]
        return RunStatus(run.run, str(run.path), tuple(_cluster_status(run, name, self._state) for name in names))

    def _state(self, name: str) -> RunState:
        if name not in self._states:
            self._states[name] = _new_state(self._run, name), 0
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


def _cluster_status(run: RunFolder, name: str, state_of: Callable[[str], RunState]) -> ClusterStatus:
    folder = run.path / name
    errors = [read_json(path) for path in sorted(folder.glob("*.error.json"))]
    error = str(errors[0]["message"]) if errors else None
    if not run.plan(name).is_file():
        return ClusterStatus(name, str(errors[0]["stage"]) if errors else "building", error, 0.0, {})
    state = state_of(name)
    return ClusterStatus(name, _stage(folder), error, state.plan.cost.estimated_job_s, summary(state))


def _new_state(run: RunFolder, name: str) -> RunState:
    path = run.plan(name)
    text = path.read_text(encoding="utf-8")
    if name in run.link_names():
        from hpcq.planning.links import LinkPlan
        from hpcq.runner.link.side import LinkState

        return LinkState(LinkPlan.from_json(text, str(path)))
    return ClusterState(Plan.from_json(text, str(path)))


def _stage(folder: Path) -> str:
    if (folder / "loaded.json").is_file():
        return "loaded"
    if (folder / "driven.json").is_file():
        return "measured"
    return "running" if (folder / "journal.jsonl").is_file() else "planned"


# ----------------------------------------------------------------------------------------------------------------------
# `hpcq cancel`: end all queued and running jobs of a run, whether its driver lives or not.
#
#     request -> a live driver ends its jobs; without one, this process drives the rest to its end
#             -> then hpcq asks the queues and orders remaining jobs to end again, until they are gone or time is up
#
# hpcq says "cancelled" only when the queues show no job of the run. Otherwise it names the jobs that remain.


#: A live driver sees the request within seconds, or when a slow controller has answered; then it also waits for exit files.
_DRIVER_ANSWERS_S = 90.0
#: For how long, and how often, hpcq orders the end of remaining jobs.
_GONE_WITHIN_S = 120.0
_LOOK_S = 5.0
SchedulerOf = Callable[[RunFolder, str], Scheduler]


def cancel_run(run: RunFolder, say: stages.Say, clock: Clock | None = None) -> list[str]:
    """Ask the drivers of a run to end it, or end it here without a driver. Returns the remaining jobs, in words."""
    clock = clock or Clock()
    (run.path / "cancel").touch()
    within_s = _DRIVER_ANSWERS_S + _files_appear_within_s(run)
    deadline_s = clock.now_s() + within_s
    waiting = [cluster.name for cluster in status_of(run).clusters if cluster.counts]
    left: list[str] = []
    told: set[str] = set()
    while waiting:
        for name in list(waiting):
            if (run.path / name / "driven.json").is_file():
                waiting.remove(name)
                continue
            try:
                with marked(run, name, "drive"):
                    link_group.drive(run, name, say)
            except HeldError as error:
                if clock.now_s() > deadline_s:
                    left.append(f"{name}: its driver lives and has not ended it within {within_s:g} s: {error.message}")
                    waiting.remove(name)
                else:
                    if name not in told:
                        told.add(name)
                        say(f"{name}: its driver lives and ends the jobs; waits for it for {within_s:g} s at most")
                    clock.sleep(1.0)
            except HpcqError as error:  # the jobs of the others, and what of this one is in a queue, are ended all the same
                left.append(f"{name}: its driver failed: {error.message}")
                waiting.remove(name)
            else:
                waiting.remove(name)
    return left + still_there(run, say, clock)


def _files_appear_within_s(run: RunFolder) -> float:
    """Return how long the drivers of a run wait for files of jobs that have ended."""
    files = [path for path in map(run.cluster_yaml, run.clusters()) if path.is_file()]
    return max((read_cluster(path).filesystem_delay_s for path in files), default=0.0)


def still_there(
    run: RunFolder, say: stages.Say, clock: Clock, scheduler_of: SchedulerOf = lambda run, name: place(run, name).scheduler
) -> list[str]:
    """Ask each cluster for the run's jobs and order the end of live ones until none is left.

    Returns the last answer.
    """
    left: list[str] = []
    for cluster in run.clusters():
        deadline_s = clock.now_s() + _GONE_WITHIN_S
        said = False
        while True:
            try:
                live = _end_what_lives(scheduler_of(run, cluster), _attempts_on(run, cluster))
            except HpcqError as error:
                live = [f"cannot be asked: {error.message}"]
            if not live or clock.now_s() > deadline_s:
                break
            if not said:
                say(f"{cluster}: still there: {', '.join(live[:5])}; ordering the end again for {_GONE_WITHIN_S:g} s at most")
                said = True
            clock.sleep(_LOOK_S)
        left += [f"{cluster}: {words}" for words in live]
    return left


def _attempts_on(run: RunFolder, cluster: str) -> list[Attempt]:
    """Return the attempts on one cluster, also on its sides of links, except those that ended by themselves."""
    found: list[Attempt] = []
    for part in run.parts():
        if part == cluster or link_group.is_link(part):
            found += [
                attempt
                for attempt in fold(read_journal(run.journal(part))).attempts.values()
                if attempt.outcome != "completed" and cluster in {part, attempt.cluster}
            ]
    return found


def _end_what_lives(scheduler: Scheduler, attempts: list[Attempt]) -> list[str]:
    """Order the end of the jobs that the queue still shows, and return them."""
    unknown = [attempt.tag for attempt in attempts if not attempt.scheduler_job_id]
    found = scheduler.find(unknown) if unknown else {}
    keys = [attempt.key for attempt in attempts if attempt.scheduler_job_id]
    keys += [JobKey(scheduler_job_id, tag) for tag, scheduler_job_id in found.items()]
    reports = scheduler.poll(keys) if keys else {}
    live = [key for key in keys if reports[key.scheduler_job_id].in_queue]
    words = scheduler.cancel(live) if live else None
    return [
        f"{key.tag} ({key.scheduler_job_id} {_state_of(reports[key.scheduler_job_id])})" + (f": {words}" if words else "")
        for key in live
    ]


def _state_of(report: JobReport) -> str:
    """Return a job's state, in the scheduler's word if hpcq has none for it."""
    return report.native_state if report.state is JobState.UNKNOWN else report.state.value


# ----------------------------------------------------------------------------------------------------------------------
# `hpcq plan`: the plans of a campaign, made from the present nodes and not written.


@dataclass(frozen=True, slots=True)
class Preview:
    """Plans of clusters and links; failures: why a cluster or a link has none."""

    plans: list[Plan] = field(default_factory=list)
    failures: list[HpcqError] = field(default_factory=list)


def preview(campaign_path: Path, cluster_folders: Sequence[Path]) -> Preview:
    """Plan every cluster and link. One that cannot be reached or planned does not keep the others from it.

    Raises UserError for bad files: then nothing can be planned.
    """
    campaign, paths = check_definitions(campaign_path, cluster_folders)
    found = Preview()
    limits: dict[str, JobLimits] = {}
    clusters = {name: campaign.narrowed(read_cluster(path)) for name, path in paths.items()}
    for cluster in clusters.values():
        try:
            plan, limits[cluster.name] = _plan(campaign, cluster)
            found.plans.append(plan)
        except HpcqError as error:
            found.failures.append(error)
    made = {plan.cluster: plan for plan in found.plans}
    for link in campaign.links:
        names = (link.from_cluster, link.to_cluster)
        if not set(names) <= set(made):
            lost = ", ".join(name for name in names if name not in made)
            found.failures.append(
                HpcqError(f"{link.name}: not planned, because {lost} is not", "see the error of that cluster")
            )
            continue
        try:
            linked = plan_link(campaign, link, (made[names[0]], made[names[1]]), {name: limits[name] for name in names})
            for name in names:
                refuse_beyond_budget(campaign, campaign.budget_on(clusters[name]), linked, made[name])
            found.plans.append(linked.plan)
        except HpcqError as error:
            found.failures.append(error)
    return found


def _plan(campaign: Campaign, cluster: Cluster) -> tuple[Plan, JobLimits]:
    scheduler = scheduler_of(cluster, reach(cluster))
    refuse_where_forbidden(cluster, scheduler)
    nodes = nodes_now(campaign, scheduler)
    limits = scheduler.job_limits()
    return plan_cluster(campaign, Basis(cluster, nodes, "preview", campaign.seed_of("preview"), limits)), limits
