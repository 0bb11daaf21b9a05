"""`hpcq accept`: choose the nodes that need it, run their pairs, and judge the results.

observe     record the scheduler's report on drains, reservations, restarts and leaves in the database
choose      nodes that were never accepted, that came up or were released since, or that a person names
run         the baseline's pairs of these nodes if both ends are available, else pairs with good nodes
judge       against the baseline, else against peers; the campaign's gates
run again   suspects with good partners, slow pairs once more; one bad run alone leads to no verdict
record      verdicts in the ledger; commands to drain or resume, which hpcq runs only on request
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hpcq.analysis import pair_values
from hpcq.definition.derive import collectives_of, with_pairs, with_set
from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.model import Cluster, Pattern
from hpcq.nodelist import fold
from hpcq.runner.accept.choice import NodeSelection, NodesToTest, choose
from hpcq.runner.accept.collectives import judged_collectives, not_covered, set_to_run
from hpcq.runner.accept.commands import Applied, Command, apply, commands_for
from hpcq.runner.accept.judging import Judging
from hpcq.runner.accept.known_reservations import check_reservation
from hpcq.runner.accept.measuring import Measuring, alone
from hpcq.runner.accept.partners import again, both_ways, partners
from hpcq.runner.accept.values import Measured
from hpcq.runner.site.place import check_definitions, reach, scheduler_of
from hpcq.scheduler.administration import Administration, Upkeep
from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.types import NodeCondition
from hpcq.store import ledger, observed, time_windows
from hpcq.store.database import reading, transaction, writing
from hpcq.store.time_windows import baseline_runs
from hpcq.verdict.acceptance.collectives import JOBS_MIN, CollectiveVerdict, records_of
from hpcq.verdict.acceptance.judge import Acceptance, run_counts
from hpcq.verdict.acceptance.standing import pairs_across, sides_of
from hpcq.verdict.record import Thing, VerdictRecord
from hpcq.verdict.words import Verdict

Say = Callable[[str], None]

#: The fewest repetitions of a test: their median is the value of the job.
REPETITIONS_MIN = 5
#: The most runs of suspects against good partners.
RETESTS_MAX = 2
#: Without a baseline, how many of the cluster's newest runs define what is expected.
REFERENCE_RUNS = 30


@dataclass(frozen=True, slots=True)
class AcceptRequest:
    """What a person asks for."""

    campaign: Path
    cluster_folders: tuple[Path, ...]
    database: Path
    runs_folder: Path
    selection: NodeSelection
    against: str | None
    apply: bool


@dataclass(slots=True)
class ClusterAcceptance:
    """The result on one cluster. reasons: why each node needed the test. commands: what to type, and why.

    busy: another acceptance of the cluster is under way, so this one judged nothing. collectives: they name no node.
    """

    cluster: str
    reasons: dict[str, str]
    verdicts: Acceptance
    runs: list[str] = field(default_factory=list)
    reservation: str | None = None
    commands: list[Command] = field(default_factory=list)
    changed: dict[str, str] = field(default_factory=dict)
    applied: Applied = field(default_factory=Applied)
    busy: bool = False
    collectives: tuple[CollectiveVerdict, ...] = ()

    @property
    def all_judged(self) -> tuple[VerdictRecord, ...]:
        """Return all judged things: the cluster, nodes, links and groups."""
        return (*self.verdicts.clusters, *self.verdicts.nodes, *self.verdicts.links, *self.verdicts.groups)

    def to_json(self) -> dict[str, Any]:
        """Return the content for --json."""
        parts = {name: list(getattr(self.verdicts, name)) for name in ("clusters", "nodes", "links", "groups", "suspects")}
        refused = [{"command": command, "words": words} for command, words in self.applied.refused]
        left_alone = [{"command": command, "words": words} for command, words in self.applied.left_alone]
        applied = {"applied": [line for _, line in self.applied.done], "refused": refused, "left_alone": left_alone}
        rest = {"runs": self.runs, "reservation": self.reservation, "busy": self.busy, **applied}
        return {
            "cluster": self.cluster,
            "reasons": {**{one.name: "" for one in self.verdicts.nodes}, **self.reasons},
            **parts,
            **rest,
            "collectives": [{**asdict(one), "words": one.words} for one in self.collectives],
            "changed": self.changed,
            "commands": self.commands,
        }


@dataclass(frozen=True, slots=True)
class PlannedAcceptance:
    """What an acceptance would do first. reasons, blocked: node -> why it needs a verdict, why it cannot be had now.

    together: the set that would run the collectives of the campaign. left_out: why a collective would not run, in words.
    """

    cluster: str
    reasons: dict[str, str]
    blocked: dict[str, str]
    reservation: str | None
    pairs: tuple[tuple[str, str], ...]
    together: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def accept(order: AcceptRequest, say: Say) -> list[ClusterAcceptance]:
    """Accept the nodes that need it on every cluster of the campaign. Runs nothing if no node needs it.

    Raises UserError for bad files, an unknown baseline or an unknown reservation before it runs anything.
    """
    every_link, paths, reference = _read(order)
    outcomes = []
    for name, path in paths.items():
        with alone(order.runs_folder, name) as mine:
            if not mine:
                say(f"{name}: another acceptance is under way; this one does nothing")
                outcomes.append(ClusterAcceptance(name, {}, Acceptance(()), busy=True))
                continue
            outcomes.append(_Acceptor(order, name, path, reference, say).run(every_link=every_link))
    return outcomes


def plan_acceptance(order: AcceptRequest, say: Say) -> list[PlannedAcceptance]:
    """Look and choose as `accept` does, and stop there: no job, no verdict, no order.

    What the scheduler says of nodes is written down, as in every acceptance: it decides who needs a verdict. Raises UserError
    like `accept`.
    """
    every_link, paths, reference = _read(order)
    planned = []
    for name, path in paths.items():
        acceptor = _Acceptor(order, name, path, reference, say)
        ready = acceptor.ready(every_link=every_link)
        choice, left_out = ready.choice, tuple(one.words for one in acceptor.left_out(ready))
        reasons = (choice.targets, choice.blocked, choice.reservation)
        planned.append(PlannedAcceptance(name, *reasons, ready.pairs, ready.together, left_out))
    return planned


def _read(order: AcceptRequest) -> tuple[bool, dict[str, Path], tuple[int, ...] | None]:
    """Read whether the campaign wants every pair, the cluster files, and the runs of the baseline if one is named."""
    campaign, paths = check_definitions(order.campaign, order.cluster_folders)
    with writing(order.database) as database:
        reference = None if order.against is None else baseline_runs(database, order.against)
    if order.selection.reservation is not None:
        check_reservation(order.selection.reservation, order.database, paths)
    return campaign.pairs.pattern is Pattern.ALL, dict(paths), reference


@dataclass(frozen=True, slots=True)
class _Ready:
    """What is known before anything runs. pairs: those of the first run. together: a set that may run its tests, too."""

    administration: Administration | None
    seen: Upkeep
    states: dict[str, str]
    choice: NodesToTest
    pairs: tuple[tuple[str, str], ...]
    standing: Sequence[VerdictRecord]
    together: tuple[str, ...] = ()


class _Acceptor:
    """One cluster's acceptance."""

    def __init__(self, order: AcceptRequest, name: str, path: Path, baseline: tuple[int, ...] | None, say: Say) -> None:
        self.order = order
        self.name = name
        self.path = path
        self.say = say
        self.cluster: Cluster = read_cluster(path)
        self.scheduler: Scheduler = scheduler_of(self.cluster, reach(self.cluster))
        self.baseline = baseline
        self.run_ids: list[int] = []
        self.runs: list[str] = []
        self.set_runs: list[str] = []
        self.wanted = collectives_of(order.campaign.read_text(encoding="utf-8"))

    def ready(self, *, every_link: bool) -> _Ready:
        """Observe and choose. every_link: the campaign wants all pairs."""
        administration = self.scheduler.administration()
        seen = administration.look() if administration is not None else Upkeep()
        states = {state.node: state for state in self.scheduler.nodes()}
        self._observe(seen, list(states))
        with reading(self.order.database) as database:
            known = ledger.nodes_of(database, self.name)
            reference = self.baseline
            if reference is None:
                reference = time_windows.newest_runs(database, self.name, REFERENCE_RUNS)
            known_pairs = pair_values.pairs_of(database, self.name, reference)
            baseline_pairs = known_pairs if self.order.against else []
            groups = observed.leaves_of(database, self.name)
            standing = ledger.at_fault(database, self.name)
        self.judging = Judging(self.order.database, self.name, reference, self.order.against)
        self.judging.leaf_of = groups
        shared = [one for one in standing if one.kind in {Thing.LINK, Thing.GROUP}]
        self.judging.standing = [sides_of(one, states, groups) for one in shared]
        idle = {name for name, state in states.items() if state.condition is NodeCondition.IDLE}
        choice = choose(self.order.selection, {node: known[node] for node in states}, seen, idle, standing)
        planned: dict[tuple[str, str], None] = {}
        if choice.can_run:
            self.judging.check_baseline()
            good = [node for node in choice.room if known[node].verdict is Verdict.PASS and node not in choice.targets]
            room = choice.room
            pairs = partners(choice.testable, room, baseline=baseline_pairs, good=good, leaf_of=groups, every_link=every_link)
            settling = [pair for one in self.judging.standing for pair in pairs_across(one, choice.testable, room, good)]
            planned = dict.fromkeys([*pairs, *both_ways(settling)])
        native = {node: state.native_state for node, state in states.items()}
        together = set_to_run(known_pairs, choice.testable, choice.room) if choice.can_run and self.wanted else ()
        return _Ready(administration, seen, native, choice, tuple(planned), standing, together)

    def run(self, *, every_link: bool) -> ClusterAcceptance:
        """Observe, choose, run, judge, record. every_link: the campaign wants all pairs."""
        ready = self.ready(every_link=every_link)
        administration, seen, choice, standing = ready.administration, ready.seen, ready.choice, ready.standing
        if choice.can_run:
            self._measure(ready.pairs, choice)
            self._again(choice, choice.room)
            self._measure_set(ready.together, choice)
        found = self.judging.points(self.runs)
        now = administration.look() if administration is not None and self.runs else None
        verdicts = self._judged(choice, ready.states, found, now)
        verdicts = self.judging.with_since(self._with_clusters_that_pass(verdicts, standing))
        outcome = ClusterAcceptance(self.name, choice.targets, verdicts, self.runs, choice.reservation)
        outcome.collectives = self._collectives(verdicts, found) if self.set_runs else self.left_out(ready)
        outcome.runs += self.set_runs
        outcome.changed = self.judging.changed(verdicts, self.run_ids)
        self._write_down(outcome)
        outcome.commands = commands_for(verdicts, seen, administration, choice.reservation)
        if self.order.apply:
            outcome.applied = apply(self.scheduler.transport, administration, outcome.commands)
        return outcome

    def _with_clusters_that_pass(self, verdicts: Acceptance, standing: Sequence[VerdictRecord]) -> Acceptance:
        """Let a cluster that was slower as a whole pass if most of the measurements are as expected again."""
        fault = next((one for one in standing if one.kind is Thing.CLUSTER), None)
        passed = [one for one in verdicts.nodes if one.verdict is Verdict.PASS]
        if fault is None or verdicts.clusters or len(passed) * 2 <= len(verdicts.nodes):
            return verdicts
        record = VerdictRecord(Thing.CLUSTER, self.name, Verdict.PASS, "as expected again")
        return replace(verdicts, clusters=(record,))

    def _observe(self, seen: Upkeep, nodes: Sequence[str]) -> None:
        standing = [
            observed.Occurrence(node, one.started_utc, one.name)
            for one in seen.reservations
            if one.maintenance and one.active and not one.own
            for node in one.nodes
        ]
        drained = [one.node for one in seen.nodes.values() if one.drained]
        with writing(self.order.database) as database, transaction(database):
            observed.ensure_nodes(database, self.name, nodes)
            observed.observed(database, self.name, standing, drained, seen.leaves)

    def _measure(self, pairs: Sequence[tuple[str, str]], choice: NodesToTest) -> None:
        """Run these pairs once and load the run. What cannot be measured becomes rows with reasons."""
        if not pairs:
            return
        measuring = Measuring(self.order, self.name, self.path, choice.reservation, self.say)
        source = self.order.campaign.read_text(encoding="utf-8")

        def write(target: Path) -> None:
            left_out = with_pairs(source, target, self.name, pairs, REPETITIONS_MIN)
            if left_out and not self.runs:
                self.say(f"{self.name}: tests of {', '.join(left_out)} are left out here: nodes are judged by their pairs")

        self.run_ids.append(measuring.run(write, self.runs, f"{len(pairs)} pairs"))

    def _measure_set(self, nodes: Sequence[str], choice: NodesToTest) -> None:
        """Run the tests of this set, if there is one; and once more what is bad: nobody is told after one job."""
        if not nodes:
            return
        source = self.order.campaign.read_text(encoding="utf-8")
        measuring = Measuring(self.order, self.name, self.path, choice.reservation, self.say)
        for _ in range(JOBS_MIN):
            measuring.run(
                lambda target: with_set(source, target, self.name, nodes, REPETITIONS_MIN),
                self.set_runs,
                f"{','.join(fold(nodes))} together",
            )
            said = self._collectives(Acceptance(()), Measured())
            if all(one.verdict in {Verdict.PASS, Verdict.NOT_COVERED} for one in said):
                return

    def left_out(self, ready: _Ready) -> tuple[CollectiveVerdict, ...]:
        """The verdicts on collectives that did not run although some node needs a verdict."""
        return not_covered(self.wanted) if ready.choice.targets and not ready.together else ()

    def _collectives(self, verdicts: Acceptance, found: Measured) -> tuple[CollectiveVerdict, ...]:
        database = self.order.database
        return judged_collectives(database, self.name, self.set_runs, self.judging.reference, verdicts, found)

    def _again(self, choice: NodesToTest, room: Collection[str]) -> None:
        """Run bad pairs once more, suspects with good partners, and what one more run may decide."""
        for _ in range(RETESTS_MAX):
            found = self.judging.points(self.runs)
            verdicts = self._judged(choice, {}, found)
            pairs = again(verdicts, room, counts=run_counts(found.points), leaf_of=self.judging.leaf_of)
            if not pairs:
                return
            self.say(f"{self.name}: measuring again: {_some(pairs)}")
            self._measure(pairs, choice)

    def _judged(self, choice: NodesToTest, states: Mapping[str, str], found: Measured, now: Upkeep | None = None) -> Acceptance:
        missing = dict(choice.blocked)
        for node in choice.targets:
            missing.setdefault(node, f"no result; the scheduler says {states.get(node, 'nothing')}")
        return self.judging.verdicts(list(choice.targets), found, missing, now)

    def _write_down(self, outcome: ClusterAcceptance) -> None:
        run_id = self.run_ids[-1] if self.run_ids else None
        with writing(self.order.database) as database, transaction(database):
            of_set = time_windows.run_id_of(database, self.set_runs[-1]) if self.set_runs else None
            for records, rests_on in ((outcome.all_judged, run_id), (records_of(outcome.collectives), of_set)):
                new = [one for one in records if not ledger.says_as_much(database, self.name, one)]
                ledger.decide(database, self.name, new, run_id=rests_on, baseline=self.order.against)


def _some(pairs: Sequence[tuple[str, str]]) -> str:
    shown = ", ".join(f"{a} > {b}" for a, b in pairs[:8])
    return shown if len(pairs) <= 8 else f"{shown} and {len(pairs) - 8} more pairs"
