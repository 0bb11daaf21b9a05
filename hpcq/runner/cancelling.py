"""`hpcq cancel`: end all queued and running jobs of a run, whether its driver lives or not.

    request -> a live driver ends its jobs; without one, this process drives the rest to its end
            -> then hpcq asks the queues and orders remaining jobs to end again, until they are gone or time is up

hpcq says "cancelled" only when the queues show no job of the run. Otherwise it names the jobs that remain.
"""

from __future__ import annotations

from collections.abc import Callable

from hpcq.clock import Clock
from hpcq.definition.files.cluster import read_cluster
from hpcq.errors import HeldError, HpcqError
from hpcq.run_folder.journal import Attempt, fold, read_journal
from hpcq.run_folder.paths import RunFolder
from hpcq.runner import stages
from hpcq.runner.link import link_group
from hpcq.runner.live import status_of
from hpcq.runner.site.place import place, refuse_others
from hpcq.runner.workflow import marked
from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.types import JobKey, JobReport, JobState

#: A live driver sees the request within seconds, or when a slow controller has answered; then it also waits for exit files.
_DRIVER_ANSWERS_S = 90.0
#: For how long, and how often, hpcq orders the end of remaining jobs.
_GONE_WITHIN_S = 120.0
_LOOK_S = 5.0
SchedulerOf = Callable[[RunFolder, str], Scheduler]


def cancel_run(run: RunFolder, say: stages.Say, clock: Clock | None = None) -> list[str]:
    """Ask the drivers of a run to end it, or end it here without a driver. Returns the remaining jobs, in words.

    Raises HpcqError if others can change the run's folder.
    """
    refuse_others(run)
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
