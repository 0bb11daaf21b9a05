"""From pairs to queued jobs: committed to the journal, rendered, copied, handed in; and what refusals mean.

refused          its own words; three in a row and the rest is not run
limited          no more jobs now: the rest of the wave goes back, and later waves keep within what was allowed
too dear         the budget would not hold if it needed its whole time limit: it waits for others to end, or gets a shorter one
lost             nobody knows; it stays undetermined, and the driver looks it up before it does anything else
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hpcq import nodelist
from hpcq.planning.allocations import estimate_s, rounds_of
from hpcq.runner.drive.cluster_run import ClusterRun
from hpcq.runner.drive.jobs import Job, make_job
from hpcq.runner.drive.tournaments import Tournament, make_tournament, write_any
from hpcq.scheduler.base import Submission, Submitted

#: After this many refusals in a row the scheduler means it.
_REFUSALS_MAX = 3
#: Jobs committed, copied and handed in at a time: bounds memory, and what a limit sends back.
_CHUNK = 200


class Submitter:
    """Hands in jobs for one driver."""

    def __init__(self, part: ClusterRun) -> None:
        self._part = part
        self._refusals = 0

    def submit(self, wave: Sequence[Sequence[int]], idle: Sequence[str]) -> None:
        """Hand in one job for each of these lists of pairs; ends early where no more are allowed."""
        part = self._part
        for start in range(0, len(wave), _CHUNK):
            jobs = self._affordable([self._job(indices, place) for place, indices in enumerate(wave[start : start + _CHUNK])])
            if not jobs:
                return
            self._commit(jobs, idle)
            part.transport.push(part.folder, part.root, [job.folder for job in jobs])
            if not self._hand_in(jobs):
                return

    def _job(self, indices: Sequence[int], place: int) -> Job | Tournament:
        """The job of one pair, or the tournament of several; `place` counts those that the journal has not yet."""
        part, ledger = self._part, self._part.ledger
        if part.plan.allocation == "pair":
            [index] = indices
            return make_job(part.plan, index, ledger.next_attempt_no(index), ledger.missing(index))
        missing = {index: ledger.missing(index) for index in indices}
        return make_tournament(part.plan, indices, ledger.tournament_count + 1 + place, missing)

    def _affordable(self, jobs: Sequence[Job | Tournament]) -> list[Job | Tournament]:
        """Those of these jobs, the first ones, that keep the budget of node-seconds even if each needs its whole time limit.

        What ends leaves more, so the others wait for it. The last job that runs may have a shorter limit, down to its estimate;
        where that is more than there is, the rest is not run.
        """
        part = self._part
        left, kept = part.account.node_seconds_left(), list[Job | Tournament]()
        for job in jobs:
            if len(job.nodes) * job.walltime_s > left:
                if kept or part.ledger.active:
                    break
                job = replace(job, walltime_s=int(left / len(job.nodes)))  # noqa: PLW2901 - the same job, with less time
                needed_s = self._estimated_s(job)
                if job.walltime_s < needed_s:
                    words = f"a job of {len(job.nodes)} nodes needs about {len(job.nodes) * needed_s:.0f}"
                    part.not_run(list(part.ledger.pending), part.account.too_little(words))
                    break
            kept.append(job)
            left -= len(job.nodes) * job.walltime_s
        return kept

    def _estimated_s(self, job: Job | Tournament) -> float:
        plan = self._part.plan
        if isinstance(job, Job):
            return plan.cost.estimated_job_s
        return estimate_s(plan.tests, plan.repetition_count, len(rounds_of(job.pairs)), len(job.pairs))

    def _commit(self, jobs: Sequence[Job | Tournament], idle: Sequence[str]) -> None:
        part = self._part
        for job in jobs:
            write_any(job, part.site, part.root, part.folder / job.folder)
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
        part.note_all([wave, *attempts])

    def _hand_in(self, jobs: Sequence[Job | Tournament]) -> bool:
        """Whether more may be handed in."""
        part = self._part
        submissions = [Submission(job.tag, f"{part.root}/{job.folder}/job.sh", job.nodes, job.walltime_s) for job in jobs]
        answers = part.scheduler.submit(submissions)
        limited = next((answer for answer in answers if answer.limited), None)
        live = self._live_beside(jobs, answers) if limited is not None else 0
        if limited is not None and live:
            part.say(f"no more than {live} jobs now: {limited.message}")
        part.note_all([self._event(answer, wait=bool(live)) for answer in answers if not answer.lost])
        for answer in answers:
            if answer.native_id:
                self._refusals = 0
            elif (answer is limited and not live) or (not answer.limited and not answer.lost):
                self._refusals += 1
                part.say(f"refused: {answer.message}")
        if self._refusals >= _REFUSALS_MAX:
            words = next(answer.message for answer in reversed(answers) if not answer.native_id)
            part.not_run(list(part.ledger.pending), f"the scheduler refuses: {words}")
        return limited is None and self._refusals < _REFUSALS_MAX

    def _live_beside(self, jobs: Sequence[Job | Tournament], answers: Sequence[Submitted]) -> int:
        """How many jobs the user has now that one was refused for a limit: it would be no limit without any."""
        taken = sum(bool(answer.native_id) for answer in answers)
        return self._part.account.limit.met(len(self._part.account.live()) - len(jobs) + taken, taken)

    def _event(self, answer: Submitted, *, wait: bool) -> dict[str, Any]:
        if answer.native_id:
            return {"event": "submitted", "tag": answer.tag, "native_id": answer.native_id}
        never_there = answer.message.startswith("not handed in")
        if answer.limited and (wait or never_there):
            nodes = list(self._part.ledger.attempts[answer.tag].nodes)
            end = {"outcome": "withdrawn", "reason": answer.message, "nodes": nodes, "rc": None, "measured": []}
            return {"event": "ended", "tag": answer.tag, **end}
        return {"event": "refused", "tag": answer.tag, "message": answer.message}
