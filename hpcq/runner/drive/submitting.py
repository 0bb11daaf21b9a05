"""Turn pairs into queued jobs: commit them to the journal, render, copy and submit them.

too dear    the job's whole time limit would exceed the budget: it waits for others to end, or gets a shorter limit

queue/refusals.py interprets refusals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hpcq import nodelist
from hpcq.planning.allocations import rounds_of
from hpcq.planning.tournament_time import estimate_s
from hpcq.runner.drive.cluster_run import ClusterRun
from hpcq.runner.drive.tournaments import Tournament, make_tournament, write_any
from hpcq.runner.queue.jobs import Job, make_job

#: How many jobs to commit, copy and submit at a time: bounds memory, and how many jobs go back after a refusal.
_CHUNK = 200


class Submitter:
    """Submits jobs for one driver."""

    def __init__(self, cluster_run: ClusterRun) -> None:
        self._run = cluster_run

    def submit(self, wave: Sequence[Sequence[int]], idle: Sequence[str]) -> None:
        """Submit one job for each of these lists of pairs. Stops early when the site allows no more."""
        run = self._run
        for start in range(0, len(wave), _CHUNK):
            jobs = self._affordable([self._job(indices, place) for place, indices in enumerate(wave[start : start + _CHUNK])])
            if not jobs:
                return
            self._commit(jobs, idle)
            run.queue.transport.push(run.folder, run.root, [job.folder for job in jobs])
            if not run.queue.submit(jobs):
                return

    def _job(self, indices: Sequence[int], place: int) -> Job | Tournament:
        """Return the job of one pair, or the tournament of several.

        `place` counts those that are not in the journal yet.
        """
        run, state = self._run, self._run.state
        if run.plan.allocation == "pair":
            [index] = indices
            return make_job(run.plan, index, state.next_attempt_no(index), state.missing(index), run.folder)
        missing = {index: state.missing(index) for index in indices}
        return make_tournament(run.plan, indices, state.tournament_count + 1 + place, missing, run.folder)

    def _affordable(self, jobs: Sequence[Job | Tournament]) -> list[Job | Tournament]:
        """Return the first of these jobs that fit the node-seconds budget, even if each uses its whole time limit.

        Jobs that end leave more, so the others wait. The last job may get a shorter limit, down to its estimate.
        If not even that fits, hpcq does not run the rest.
        """
        run = self._run
        left, kept = run.account.node_seconds_left(), list[Job | Tournament]()
        left_for_all = run.account.node_seconds_for_all()
        for job in jobs:
            left_for_all -= len(job.nodes) * job.walltime_s
            if left_for_all < 0:
                break
            if len(job.nodes) * job.walltime_s > left:
                if kept or run.state.active:
                    break
                job = replace(job, walltime_s=int(left / len(job.nodes)))  # noqa: PLW2901 - the same job, with less time
                needed_s = self._estimated_s(job)
                if job.walltime_s < needed_s:
                    words = f"a job of {len(job.nodes)} nodes needs about {len(job.nodes) * needed_s:.0f}"
                    run.record.not_run(list(run.state.pending), run.account.too_little(words))
                    break
            kept.append(job)
            left -= len(job.nodes) * job.walltime_s
        return kept

    def _estimated_s(self, job: Job | Tournament) -> float:
        plan = self._run.plan
        if isinstance(job, Job):
            return plan.cost.estimated_job_s
        return estimate_s(plan.tests, plan.repetition_count, len(rounds_of(job.pairs)), len(job.pairs))

    def _commit(self, jobs: Sequence[Job | Tournament], idle: Sequence[str]) -> None:
        run = self._run
        for job in jobs:
            write_any(job, run.account.site(run.queue.cluster), run.root, run.folder / job.folder)
        wave: dict[str, Any] = {"event": "wave", "idle": nodelist.fold(idle), "jobs": [job.job_id for job in jobs]}
        attempts: list[dict[str, Any]] = [
            {
                "event": "attempt",
                "tag": job.tag,
                "job_id": job.job_id,
                "attempt_no": job.attempt_no,
                "nodes": list(job.nodes),
                "walltime_s": job.walltime_s,
                **({"pairs": [pair.job_id for pair in job.pairs]} if isinstance(job, Tournament) else {}),
            }
            for job in jobs
        ]
        run.record.note_all([wave, *attempts])
