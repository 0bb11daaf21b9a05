"""Fold a journal of a cluster or a link: what each pair still lacks, what hpcq may try again, what attempts have used.

Only the journal's events determine the state. The driver builds it while it writes them, and `hpcq status` while it
reads them. So both agree, and a driver that dies loses nothing. A subclass decides when the attempt of a pair is over.
"""

from __future__ import annotations

import json
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from hpcq import nodelist
from hpcq.clock import CLOCK_TOLERANCE_S, seconds_between, utc_or_none
from hpcq.definition.model import Cluster, Test, running
from hpcq.described import limit_s, programs_text
from hpcq.kernels import Kernels
from hpcq.planning.plan import Plan, coverage_of, nodes_of_pair, pair_index_of
from hpcq.render import render
from hpcq.run_folder.failed_starts import cause_of
from hpcq.run_folder.journal import Attempt, Journal, JournalState, StepKey, attempt_folder
from hpcq.run_folder.lines import sizes_measured_before
from hpcq.run_folder.paths import write_text
from hpcq.runner.site.place import launches, site_context
from hpcq.scheduler.kinds import describe
from hpcq.scheduler.types import JobState
from hpcq.units import count_of

# ----------------------------------------------------------------------------------------------------------------------
# Turn a pair of the plan into a job's folder: final parameters and a complete script.
#
# Plan + pair + missing measurements -> Job -> runs/<run>/<cluster>/jobs/<job>/<attempt_no>/{job.json, job.sh}


#: The file of the foreign programs of a job, in its folder.
PROGRAMS = "programs.txt"


@dataclass(frozen=True, slots=True)
class Step:
    """One measurement of a job: one kernel process with its final parameters."""

    name: str
    test_no: int
    repetition_no: int
    program: str
    kernel: str
    parameters: dict[str, Any]
    timeout_s: float
    toolchain: str = ""
    #: As in Test: how a foreign program is started.
    launch: str = ""
    #: Of a sweep: what earlier attempts measured, so that this one need not.
    sizes_done: tuple[int, ...] = ()

    @property
    def key(self) -> StepKey:
        return self.test_no, self.repetition_no


@dataclass(frozen=True, slots=True)
class Job:
    """One allocation of two nodes for one attempt."""

    job: str
    attempt_no: int
    tag: str
    run: str
    campaign: str
    cluster: str
    client: str
    server: str
    walltime_s: int
    evidence: str
    steps: tuple[Step, ...]
    #: Whether a test that failed twice the same way is not repeated.
    decides: bool = False

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that it needs; of a set, `server` lists all but the first."""
        return nodes_of_pair((self.client, self.server))

    @property
    def launches(self) -> bool:
        """Return whether it starts foreign programs of ranks."""
        return any(step.launch for step in self.steps)

    @property
    def folder(self) -> str:
        """Return its folder, relative to the cluster's part of the run folder and to the work directory there."""
        return attempt_folder(self.job, self.attempt_no)


def played(kernels: Kernels, test: Test | Step) -> dict[str, Any]:
    """Return kernel and options as hpcq-net plays a test; a foreign program is its kernel `program`."""
    described = kernels[test.kernel].described
    if described is None:
        return {"kernel": test.kernel, "parameters": test.parameters}
    limit = limit_s(described, test.parameters)
    options = {"test_no": test.test_no, "duration_s": limit, "warmup_s": 0, "operation_count_max": 1}
    return {"kernel": "program", "parameters": options}


def write_programs(folder: Path, kernels: Kernels, tests: Iterable[Test | Step]) -> bool:
    """Write the file of the foreign programs that these tests start; False if they start none."""
    found = [(one.test_no, kernels[one.kernel], one.parameters) for one in tests]
    foreign = {one[0]: one for one in found if one[1].described is not None}
    if foreign:
        write_text(folder / PROGRAMS, programs_text([foreign[test_no] for test_no in sorted(foreign)]), synced=False)
    return bool(foreign)


def modules_of(cluster: Cluster, kernels: Kernels, tests: Iterable[Test | Step]) -> tuple[str, ...]:
    """Return the modules of a cluster and of the foreign programs that these tests start, each once."""
    described = (kernels[name].described for name in sorted({one.kernel for one in tests}))
    return tuple(dict.fromkeys([*cluster.modules, *(one for found in described if found for one in found.modules)]))


def all_steps(plan: Plan, pair_index: int = 0) -> frozenset[StepKey]:
    """Return every measurement that the plan wants of a pair or a set of nodes."""
    tests = running(plan.tests_at(pair_index))
    return frozenset((test.test_no, rep) for test in tests for rep in range(1, plan.repetition_count + 1))


def make_job(plan: Plan, pair_index: int, attempt_no: int, missing: frozenset[StepKey], folder: Path | None = None) -> Job:
    """Return the job that measures what one pair still lacks. folder: of the plan's part of the run, with earlier attempts.

    Each repetition runs all tests once, in an order drawn from the plan's seed, so that a drift of the machine does not
    affect only one test.
    """
    pair = plan.pair_at(pair_index)
    job = pair.job
    steps: list[Step] = []
    for repetition_no in range(1, plan.repetition_count + 1):
        order = running(plan.tests_at(pair_index))
        random.Random(f"{plan.seed} {job} {repetition_no}").shuffle(order)  # noqa: S311 - an order, not a secret
        for test in order:
            if (test.test_no, repetition_no) in missing:
                name = f"t{test.test_no}-r{repetition_no}"
                steps.append(
                    Step(
                        name=name,
                        test_no=test.test_no,
                        repetition_no=repetition_no,
                        program=test.program,
                        kernel=test.kernel,
                        parameters=dict(test.parameters),
                        timeout_s=test.timeout_s,
                        toolchain=test.toolchain,
                        launch=test.launch,
                        sizes_done=sizes_measured_before(folder / "jobs" / job, name) if folder else (),
                    )
                )
    return Job(
        job=job,
        attempt_no=attempt_no,
        tag=f"hpcq-{plan.run}-{plan.cluster}-{job}-{attempt_no}",
        run=plan.run,
        campaign=plan.campaign,
        cluster=plan.cluster,
        client=pair.client,
        server=pair.server,
        walltime_s=plan.walltime_s,
        evidence=plan.evidence,
        steps=tuple(steps),
        decides=plan.decided_after > 0,
    )


def write_job(job: Job, kernels: Kernels, cluster: Cluster, root: str, folder: Path) -> None:
    """Write job.json and job.sh into `folder`; `root` is the run's folder on the cluster."""
    used = {name: cluster.toolchains[name] for name in sorted({step.toolchain for step in job.steps} - {""})}
    context = {
        **site_context(cluster, root),
        "job": job,
        "toolchains": launches(used),
        "folder": f"{root}/{job.folder}",
        "modules": modules_of(cluster, kernels, job.steps),
        "programs": write_programs(folder, kernels, job.steps) and PROGRAMS,
        "commands": {step.name: played(kernels, step) for step in job.steps},
    }
    script = render(describe(cluster.scheduler).head_template, context)
    write_folder(folder, {"format": 1, **asdict(job)}, script)


def write_folder(folder: Path, described: Mapping[str, Any], script: str) -> None:
    """Write the files that every submission's folder holds, each aside and renamed.

    It does not wait for the disk: if a crash loses the files of a job, that job was never submitted.
    """
    write_text(folder / "job.json", json.dumps(described, indent=1) + "\n", synced=False)
    write_text(folder / "job.sh", script, mode=0o700, synced=False)


# ----------------------------------------------------------------------------------------------------------------------


#: Outcomes that say nothing about the test itself: another attempt may succeed.
_RETRIED_OUTCOMES = frozenset({"node_failed", "preempted", "boot_failed", "lost", "revoked", "refused", "completed", "failed"})
#: Outcomes that say something about the nodes, where a plan decides: also of a job that hangs until its time limit.
_TELLING_OUTCOMES = frozenset({"completed", "timed_out", "failed"})
#: The outcome that does not count as an attempt, because it says nothing about the nodes: users waited, or a limit.
_UNCOUNTED_OUTCOME = "withdrawn"
#: How many lists of nodes a line shows.
_SHOWN_MAX = 8


class RunState(JournalState, ABC):
    """The state of one part of a run."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        #: What the plan wants of every pair, and of each set of nodes.
        self._of_pairs = all_steps(plan, 0) if plan.sets_begin else frozenset[StepKey]()
        self._of_sets = {index: all_steps(plan, index) for index in range(plan.sets_begin, plan.confirmations_begin)}
        #: Pairs, by index, that have neither a live attempt nor an end, in plan order.
        self.pending: dict[int, None] = dict.fromkeys(range(len(plan.pairs)))
        self.measured_count = 0
        self._missing: dict[int, frozenset[StepKey]] = {}
        self._tries: dict[int, int] = {}

    # -- what a part of a run says of itself --------------------------------------------------------------------------

    @abstractmethod
    def _end_pair(self, index: int, attempt: Attempt) -> None:
        """React to the end of an attempt of this pair, whose measurements count.

        Call `_try_again` when no attempt of the pair is left.
        """

    @abstractmethod
    def _took(self, attempt: Attempt, node_seconds: float) -> None:
        """Add what an ended attempt used of the nodes, as far as it is known."""

    # -- what its users ask ------------------------------------------------------------------------------------------

    def missing(self, pair_index: int) -> frozenset[StepKey]:
        """Return the measurements of this pair that no attempt has provided yet."""
        return self._missing.get(pair_index, self._of_sets.get(pair_index, self._of_pairs))

    def lacks_all(self, pair_index: int) -> bool:
        """Return whether nothing at all is measured of this pair or set of nodes."""
        return self.missing(pair_index) == self._of_sets.get(pair_index, self._of_pairs)

    def measured_pairs(self) -> list[int]:
        """Return the pairs that lack no measurement any more."""
        return [index for index, missing in self._missing.items() if not missing]

    @property
    def planned_count(self) -> int:
        """Return how many measurements must run."""
        pair_count = self.plan.sets_begin + self.plan.confirmation_count
        return pair_count * len(self._of_pairs) + sum(map(len, self._of_sets.values()))

    @property
    def measured_now_count(self) -> int:
        """Return how many measurements exist so far."""
        return self.measured_count

    def count(self, *states: JobState) -> int:
        """Return how many live attempts are in one of these states."""
        return sum(attempt.state in states for attempt in self.active.values())

    # -- private ----------------------------------------------------------------------------------------------------

    def _commit(self, attempt: Attempt) -> None:
        attempt.walltime_s = attempt.walltime_s or self.plan.walltime_s
        super()._commit(attempt)
        for index in attempt.pairs:
            self.pending.pop(index, None)

    def _give_up(self, index: int, reason: str) -> None:
        super()._give_up(index, reason)
        self.pending.pop(index, None)

    def _end(self, attempt: Attempt, event: Mapping[str, Any]) -> None:
        super()._end(attempt, event)
        self._took(attempt, _node_seconds(event, attempt))
        measured = _measured(event, attempt)
        for index in attempt.pairs:
            before, brought = self.missing(index), measured.get(index, frozenset())
            self._missing[index] = before - brought
            self.measured_count += len(before & brought)
            self._end_pair(index, attempt)

    def _try_again(self, index: int, outcomes: Collection[str], *, final: bool = False) -> None:
        """The attempts of a pair are over: make it pending again, or finish it.

        outcomes: of those attempts that caused the end.
        """
        counted = _UNCOUNTED_OUTCOME not in outcomes
        self._tries[index] = self._tries.get(index, 0) + counted
        if not self._missing[index] or self.cancelled or final:
            return
        helpful = any(outcome in _RETRIED_OUTCOMES for outcome in outcomes)
        if not counted or (helpful and self._tries[index] < self.plan.attempt_count_max):
            self.pending[index] = None


def _measured(event: Mapping[str, Any], attempt: Attempt) -> dict[int, frozenset[StepKey]]:
    """Return what an ended attempt measured, by pair."""
    of_pairs = {pair_index_of(job): steps for job, steps in event.get("measured_of", {}).items()}
    if event.get("measured"):
        of_pairs[attempt.pairs[0]] = event["measured"]
    return {index: frozenset((test_no, rep) for test_no, rep in steps) for index, steps in of_pairs.items()}


def _node_seconds(event: Mapping[str, Any], attempt: Attempt) -> float:
    """Return the node-seconds of an ended attempt.

    Without an end time, it ran until hpcq noticed the end, at most for its time limit. Both times are of the node's clock:
    if somebody set that clock meanwhile, the time limit bounds what they say.
    """
    started, ended = utc_or_none(event.get("started_utc")), utc_or_none(event.get("ended_utc"))
    if not started:
        return 0.0
    took_s = max(0.0, seconds_between(started, ended or event.get("utc") or started) or 0.0)
    within_limit = ended is not None and took_s <= attempt.walltime_s + CLOCK_TOLERANCE_S
    return len(event["nodes"]) * (took_s if within_limit else min(took_s, attempt.walltime_s))


def powered_down_words(cluster: str, nodes: Sequence[str]) -> str:
    """Say which nodes, as folded lists, their site has switched off, and what follows."""
    count = sum(len(nodelist.expand(one)) for one in nodes)
    shown = ",".join(nodes[:_SHOWN_MAX]) + (",..." if len(nodes) > _SHOWN_MAX else "")
    return f"{count_of(count, 'node')} of {cluster} powered down ({shown}); hpcq uses none of them and wakes none"


def summary(state: RunState) -> dict[str, Any]:
    """Return the counts of one part, for markers and `hpcq status`. A link's attempts count on both sides."""
    measured = state.measured_pairs()
    live = [index for attempt in state.active.values() for index in attempt.pairs]
    return {
        "pair_count": len(state.plan.pairs),
        # What must run: the sizes that one run measures count once, as they do where hpcq counts what ran.
        "planned_result_count": state.planned_count,
        "measured_result_count": state.measured_now_count,
        "measured_pair_count": len(measured),
        "failed_pair_count": len(state.plan.pairs) - len(state.pending) - len({*measured, *live, *state.not_run}),
        "measuring_since_utc": state.measuring_since_utc,
        "planned_node_pair_count_min": state.plan.goals.node_pair_count_min,
        "attempt_count": len(state.attempts),
        "attempts": dict(Counter(one.outcome or one.state.value for one in state.attempts.values())),
        "live_attempt_count": len(state.active),
        "pending_pair_count": len(state.pending),
        "not_run_pair_count": len(state.not_run),
        "cancelled": bool(state.cancelled),
        "no_start": {"words": state.cancelled, "remedy": state.remedy} if state.remedy else None,
        "waiting": state.waiting,
        "powered_down": [
            {"cluster": cluster, "nodes": nodes, "since_utc": since_utc}
            for cluster, (nodes, since_utc) in state.powered_down.items()
            if nodes
        ],
        "coverage": coverage_of(state.plan, measured, state.not_run).to_json(),
    }


# ----------------------------------------------------------------------------------------------------------------------
# Fold the journal of a cluster into its attempts, each of one pair or, in a tournament, of many.
#
# attempt -> submitted | refused -> state … -> ended {measured: steps that have a result}


class ClusterState(RunState):
    """The state of one cluster's part of a run."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.node_seconds = 0.0
        #: Number of allocations so far that several pairs shared.
        self.tournament_count = 0
        #: Interface, client and server of jobs that told something: whether some test brought nothing there, where the plan
        #: decides.
        self._judged: dict[tuple[str, str, str], bool] = {}
        self._numbers: dict[int, int] = {}
        #: What running tournaments have measured, by tag and pair. hpcq shows it, and counts it finally when they end.
        self._spooled: dict[str, dict[int, set[StepKey]]] = {}

    @classmethod
    def replay(cls, plan: Plan, events: Iterable[Mapping[str, Any]]) -> ClusterState:
        """Return the state after all these events."""
        return cls(plan).replayed(events)

    def next_attempt_no(self, pair_index: int) -> int:
        """Return the number of the next attempt."""
        return self._numbers.get(pair_index, 0) + 1

    def measured_pairs(self) -> list[int]:
        """Return the pairs that lack no measurement any more, as far as hpcq knows."""
        playing = [index for steps in self._spooled.values() for index in steps if not self._missing_now(index)]
        return super().measured_pairs() + [index for index in playing if self.missing(index)]

    @property
    def measured_now_count(self) -> int:
        """Return how many measurements exist so far, including those of running tournaments."""
        spooled = ((index, steps) for of_pairs in self._spooled.values() for index, steps in of_pairs.items())
        return self.measured_count + sum(len(steps & self.missing(index)) for index, steps in spooled)

    def _missing_now(self, index: int) -> frozenset[StepKey]:
        return self.missing(index).difference(*(of_pairs.get(index, ()) for of_pairs in self._spooled.values()))

    def _apply_other(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "spooled" and event["tag"] in self.active:
            of_pairs = self._spooled.setdefault(event["tag"], {})
            for job, steps in event["measured_of"].items():
                of_pairs.setdefault(pair_index_of(job), set()).update((test_no, rep) for test_no, rep in steps)

    def _end(self, attempt: Attempt, event: Mapping[str, Any]) -> None:
        self._spooled.pop(attempt.tag, None)
        super()._end(attempt, event)

    def _commit(self, attempt: Attempt) -> None:
        super()._commit(attempt)
        self.tournament_count += attempt.shared
        for index in attempt.pairs:
            self._numbers[index] = self.next_attempt_no(index) if attempt.shared else attempt.attempt_no

    def _end_pair(self, index: int, attempt: Attempt) -> None:
        # What failed in a job that ran to its end has failed: where tests are decided, it is not tried again.
        self._judge(attempt)
        decided = self.plan.decided_after > 0 and attempt.outcome == "completed"
        # Other nodes have measured, so it is this one that only a person can mend.
        cause = cause_of(attempt.reason) if attempt.outcome == "failed" and self.measured_count > 0 else None
        self._try_again(index, (attempt.outcome,), final=decided or (cause is not None and cause.stays))

    def failed_pairs(self) -> set[tuple[str, frozenset[str]]]:
        """Return interfaces and pairs of nodes that failed in a job that told something, where the plan decides."""
        return {(over, frozenset(pair)) for (over, *pair), failed in self._judged.items() if failed}

    def _judge(self, attempt: Attempt) -> None:
        """Note whether a pair measured everything, or some test brought nothing at all."""
        if not self.plan.decided_after or attempt.outcome not in _TELLING_OUTCOMES or attempt.shared or len(attempt.nodes) != 2:
            return
        of_tests = Counter(test_no for test_no, _ in self.missing(attempt.pairs[0]))
        failed = any(count >= self.plan.repetition_count for count in of_tests.values())
        if failed or not of_tests:
            self._judged[self.plan.interface_of(attempt.pairs[0]), attempt.nodes[0], attempt.nodes[1]] = failed

    def decided(self) -> dict[tuple[str, str], list[str]]:
        """Return by interface and node that has failed for good with whom: some test brought nothing with each of them.

        They are `decided_after` or more, and each of them measured everything with somebody else.
        """
        bad: dict[tuple[str, str], set[str]] = {}
        fine: dict[tuple[str, str], set[str]] = {}
        for (over, client, server), failed in self._judged.items():
            for node, other in ((client, server), (server, client)):
                (bad if failed else fine).setdefault((over, node), set()).add(other)
        found = {
            (over, node): sorted(other for other in others if fine.get((over, other), set()) - {node})
            for (over, node), others in bad.items()
        }
        return {at: others for at, others in found.items() if len(others) >= self.plan.decided_after}

    def _took(self, attempt: Attempt, node_seconds: float) -> None:  # noqa: ARG002 - all nodes are of one cluster
        self.node_seconds += node_seconds


# ----------------------------------------------------------------------------------------------------------------------
# What one part of a run records: its journal, the state that follows from it, and messages for a person.


_State = TypeVar("_State", bound=RunState)


@dataclass(frozen=True, slots=True)
class Record(Generic[_State]):
    """The journal of one part, and its state. An event counts only when it is on the disk."""

    #: The name of the part: a cluster, or a link.
    name: str
    journal: Journal
    state: _State
    tell: Callable[[str], None]

    def say(self, text: str) -> None:
        """Print one line for the person who watches, and for the log."""
        self.tell(f"{self.name}: {text}")

    def waits(self, words: str) -> None:
        """Set what this part waits for, for the terminal, the log and `hpcq status`; empty: it waits no longer."""
        if words != self.state.waiting:
            if words:
                self.say(words)
            self.note("waiting", reason=words)

    def note(self, event: str, **fields: Any) -> None:
        """Record one event."""
        self.note_all([{"event": event, **fields}])

    def note_all(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Record events with one wait for the disk; then they count."""
        if not events:
            return
        for event in self.journal.append_all(events):
            self.state.apply(event)

    def not_run(self, indices: Iterable[int], reason: str) -> None:
        """Record that hpcq does not try these pairs again, and why."""
        pairs = list(map(self.state.plan.pair_at, indices))
        self.note_all(
            [{"event": "not_run", "job": pair.job, "pair": [pair.client, pair.server], "reason": reason} for pair in pairs]
        )
