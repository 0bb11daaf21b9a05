"""`hpcq accept`: choose the nodes that need it, run their pairs, and judge the results.

observe     record the scheduler's report on drains, reservations, restarts and leaves in the database
choose      nodes that were never accepted, that came up or were released since, or that a person names
run         the baseline's pairs of these nodes if both ends are available, else pairs with good nodes
judge       against the baseline, else against peers; the campaign's gates
run again   suspects with good partners, slow pairs once more; one bad run alone leads to no verdict
record      verdicts in the ledger; commands to drain or resume, which hpcq runs only on request
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from hpcq import units
from hpcq.analysis import pair_values
from hpcq.analysis.series_outcomes import SeriesOutcome, outcomes_in
from hpcq.analysis.standing import standings, told_before
from hpcq.definition.derive import collectives_of, plays_tournaments, with_pairs, with_reservation, with_set
from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.find import find_cluster
from hpcq.definition.model import Campaign, Cluster, Pattern, measured_over
from hpcq.errors import HpcqError, UserError
from hpcq.kernels import Better
from hpcq.nodelist import fold, names_several, natural, nodes_of
from hpcq.run_folder.paths import RunFolder, write_json
from hpcq.runner import stages
from hpcq.runner.accept.choice import MEETINGS, NodeSelection, NodesToTest, again, both_ways, choose, partners, to_measure_alone
from hpcq.runner.accept.judging import Judging, Measured, disturbed_as_usual, oriented
from hpcq.runner.site.place import check_definitions, copy_descriptions, open_run, reach, scheduler_of
from hpcq.scheduler.administration import OWN_REASON, Administration, Reservation, Upkeep
from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.types import NodeCondition
from hpcq.store import ledger, selection
from hpcq.store.database import reading, transaction, writing
from hpcq.store.query import runs as runs_of
from hpcq.store.selection import Selection, baseline_runs, find_run, run_id_of
from hpcq.transport import Transport
from hpcq.verdict.acceptance import (
    SET_JOBS_MIN,
    Acceptance,
    CollectiveVerdict,
    SetJob,
    judge_collective,
    pairs_across,
    records_of,
    sides_of,
)
from hpcq.verdict.node_sets import PairsOfSet
from hpcq.verdict.words import Thing, Verdict, VerdictRecord

# ----------------------------------------------------------------------------------------------------------------------
# Tests of several nodes together in an acceptance: which set may run them now, and what their results say.
#
# A set runs where earlier runs (those of the baseline, if one is named) have measured just this set, all of its nodes are
# available, and one of them at least is under test. So no node is taken that nobody asked about, and there is something to
# compare with.


NO_SET = (
    "left out: no earlier run measured it on a set of nodes that are all available now with one under test among them;"
    " `hpcq run` of the campaign measures one"
)
_BAD = (Verdict.DEGRADED, Verdict.FAILED)


def set_to_run(known: Iterable[tuple[str, str]], testable: Collection[str], room: Collection[str]) -> tuple[str, ...]:
    """The nodes of the largest set that may run now; empty if there is none. known: pairs and sets of earlier runs."""
    usable = {*testable, *room}
    sets = [nodes_of(*one) for one in known if names_several(one[1])]
    fitting = [one for one in sets if usable.issuperset(one) and not set(testable).isdisjoint(one)]
    return max(fitting, key=len, default=())


def not_covered(kernels: Iterable[str]) -> tuple[CollectiveVerdict, ...]:
    """The verdicts on collectives of a campaign that no set of nodes can run now."""
    pairs = PairsOfSet.of((), set(), set(), set())
    return tuple(CollectiveVerdict(kernel, (), Verdict.NOT_COVERED, NO_SET, None, pairs) for kernel in kernels)


def judged_collectives(  # noqa: PLR0917 - what was run, what it is compared with, and what its pairs said
    database: Path, cluster: str, runs: Sequence[str], reference: Sequence[int], verdicts: Acceptance, found: Measured
) -> tuple[CollectiveVerdict, ...]:
    """The verdict on every test of a set in these runs, against the reference runs. found, verdicts: what the pairs said."""
    if not runs:
        return ()
    with reading(database) as connection:
        run_ids = [run_id_of(connection, run) for run in runs]
        earlier = [one for one in reference if one not in run_ids]
        now = outcomes_in(connection, run_ids, Selection(cluster=cluster))
        before = {one.series_id: one for one in outcomes_in(connection, earlier, Selection(cluster=cluster))} if earlier else {}
        names = pair_values.names_of_tests(connection, [*run_ids, *earlier])
    slow = _bad_pairs(verdicts)
    judged = set(found.counts) | slow
    return tuple(
        replace(
            judge_collective(
                names[one.test],
                PairsOfSet.of(nodes_of(one.client, one.server), judged, slow, slow),
                [_level(value, Better(old.better)) for value in old.values] if old is not None else [],
                _jobs(one, usual=disturbed_as_usual([one, *filter(None, [old])])),
                one.why,
            ),
            measured_utc=min((job.started_utc for job in one.jobs if job.value is not None or job.lost_count), default=None),
        )
        for one, old in ((one, before.get(one.series_id)) for one in now)
        if names_several(one.server)
    )


def _bad_pairs(verdicts: Acceptance) -> set[tuple[str, str]]:
    """The pairs that are bad, whether something explains them or not."""
    bad = {(pair[0], pair[1]) for pairs in verdicts.explained for pair in pairs} | set(verdicts.open)
    bad |= {(one.nodes[0], one.nodes[1]) for one in verdicts.links if one.verdict in _BAD and len(one.nodes) == 2}
    return bad


def _level(value: float, better: Better) -> float:
    """A value as a logarithm, higher is better. A metric without a direction has no slow values: all are alike."""
    return 0.0 if better is Better.NONE else oriented(value, better)


def _jobs(one: SeriesOutcome, *, usual: bool) -> list[SetJob]:
    """The jobs of a set. usual: most jobs of this test ran beside other work, so that says nothing against one."""
    better = Better(one.better)
    found = []
    for job in one.jobs:
        value = job.value if usual or job.clean_value is None else job.clean_value
        disturbed = job.value is not None and job.clean_value is None and not usual
        found.append(SetJob(None if value is None else _level(value, better), job.lost_count, disturbed))
    return found


# ----------------------------------------------------------------------------------------------------------------------
# Write the scheduler commands to type after an acceptance, and run those that a person allowed.
#
#     failed with most of its partners              drain it
#     passed inside a reservation                   give it back to users; --apply only in the reservation for the test
#     not covered: drained, down                    release it to the test: a reservation keeps users off, the drain ends
#     not covered, inconclusive: in a reservation   let this user in, or let its jobs have partners outside
#
# A scheduler runs nothing on a drained node, so hpcq cannot measure it, and no verdict ends a drain. hpcq does not drain
# a node whose other pairs are fine: neither for a link nor for the uplink of its leaf.


class Order(StrEnum):
    """What a command does. The scheduler writes the line for it."""

    DRAIN = "drain"
    GIVE_BACK = "give_back"
    RESERVE = "reserve"
    RESUME = "resume"
    ADMIT = "admit"
    OPEN_OUTWARD = "open_outward"


@dataclass(frozen=True, slots=True)
class Command:
    """A line for the cluster's shell. by_apply: whether --apply runs it; a person decides on the others.

    reservation: the one that the order changes. reason: what a drain tells other people.
    """

    command: str
    why: str
    by_apply: bool
    order: Order
    nodes: tuple[str, ...] = ()
    reservation: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Applied:
    """What --apply did with commands.

    Three groups: (printed, run), (run, the scheduler's words against it), (printed, what had changed).
    """

    done: tuple[tuple[str, str], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    left_alone: tuple[tuple[str, str], ...] = ()


class Orders:
    """Writes commands for one cluster. It leaves out an order for which the scheduler has no line."""

    def __init__(self, administration: Administration | None, seen: Upkeep) -> None:
        self._administration = administration
        self._seen = seen

    def drain(self, nodes: Sequence[str], reason: str, why: str, *, by_apply: bool) -> list[Command]:
        """Take nodes out of service."""
        line = self._administration.drain(nodes, reason) if self._administration else None
        return self._of(line, why, Order.DRAIN, by_apply=by_apply, nodes=nodes, reason=reason)

    def give_back(self, standing: Reservation, nodes: Sequence[str], why: str) -> list[Command]:
        """Take nodes out of a reservation. --apply does this only in hpcq's own reservation."""
        line = self._administration.give_back(standing, nodes) if self._administration else None
        return self._of(line, why, Order.GIVE_BACK, by_apply=standing.own, nodes=nodes, reservation=standing.name)

    def resume(self, nodes: Sequence[str], why: str) -> list[Command]:
        """End drains."""
        line = self._administration.resume(nodes) if self._administration else None
        return self._of(line, why, Order.RESUME, nodes=nodes)

    def reserve(self, nodes: Sequence[str], standing: Reservation | None, why: str) -> list[Command]:
        """Keep users off nodes, then end the drains of these nodes."""
        if self._administration is None:
            return []
        reserve = self._administration.reserve(nodes, self._seen.user, standing)
        resume = self._administration.resume(nodes)
        line = f"{reserve} && {resume}" if reserve and resume else None
        return self._of(line, why, Order.RESERVE, nodes=nodes)

    def admit(self, reservation: str, why: str) -> list[Command]:
        """Let this user run in a reservation."""
        line = self._administration.admit(reservation, self._seen.user) if self._administration else None
        return self._of(line, why, Order.ADMIT, reservation=reservation)

    def open_outward(self, reservation: str, why: str) -> list[Command]:
        """Let jobs of a reservation also use nodes outside it."""
        line = self._administration.open_outward(reservation) if self._administration else None
        return self._of(line, why, Order.OPEN_OUTWARD, reservation=reservation)

    @staticmethod
    def _of(
        line: str | None,
        why: str,
        order: Order,
        *,
        by_apply: bool = False,
        nodes: Sequence[str] = (),
        reservation: str | None = None,
        reason: str = "",
    ) -> list[Command]:
        return [] if line is None else [Command(line, why, by_apply, order, tuple(nodes), reservation, reason)]


def commands_for(
    verdicts: Acceptance, seen: Upkeep, administration: Administration | None, inside: str | None = None
) -> list[Command]:
    """Drain what failed, give back what passed, release to the test what could not be measured.

    inside: the reservation in which the test ran.
    """
    orders = Orders(administration, seen)
    found = [
        command
        for one in verdicts.nodes
        if one.verdict is Verdict.FAILED and one.name in verdicts.drainable
        if one.name in seen.nodes and not seen.nodes[one.name].drained
        for command in orders.drain([one.name], f"{OWN_REASON} {one.reason}", f"{one.name} failed", by_apply=True)
    ]
    standing = next((one for one in seen.reservations if one.name == inside), None)
    if standing is not None:
        found += _after(orders, verdicts, standing)
    open_nodes = [one.name for one in verdicts.nodes if one.verdict is Verdict.NOT_COVERED and one.name in seen.nodes]
    found += [one for name in open_nodes for one in _admit(orders, name, seen)]
    found += _release(orders, [name for name in open_nodes if not _kept_out(name, seen)], seen)
    return list(dict.fromkeys(found))


def apply(transport: Transport, administration: Administration | None, commands: Sequence[Command]) -> Applied:
    """Run the allowed commands, each after a new query of the states. If the scheduler refuses one, run the others."""
    done, refused, left_alone = [], [], []
    for one in commands:
        if not one.by_apply or administration is None:
            continue
        line, changed = _line_now(administration, one)
        if line is None:
            left_alone.append((one.command, changed))
            continue
        result = transport.sh(line)
        if result.returncode == 0:
            done.append((one.command, line))
        else:
            refused.append((line, result.stderr.strip().splitlines()[-1] if result.stderr.strip() else "failed"))
    return Applied(tuple(done), tuple(refused), tuple(left_alone))


def _line_now(administration: Administration, one: Command) -> tuple[str | None, str]:
    """Return the order as it must be given now; None, and why, if nothing of it is left to do."""
    seen = administration.look()
    if one.order is Order.DRAIN:
        free = [name for name in one.nodes if name in seen.nodes and not seen.nodes[name].drained]
        held = [name for name in one.nodes if name in seen.nodes and seen.nodes[name].drained]
        if free:
            return administration.drain(free, one.reason), ""
        words = [f"{name} is drained already: {seen.nodes[name].reason or 'without a reason'}" for name in held]
        return None, "; ".join(words) or "the scheduler does not say how its nodes are"
    standing = next((found for found in seen.reservations if found.name == one.reservation), None)
    if standing is None or not standing.own:
        return None, f"reservation {one.reservation} is gone"
    inside = [name for name in one.nodes if name in standing.nodes]
    if not inside:
        return None, f"{', '.join(one.nodes)} left reservation {one.reservation} meanwhile"
    return administration.give_back(standing, inside), ""


def _after(orders: Orders, verdicts: Acceptance, standing: Reservation) -> list[Command]:
    """After the test of a reservation: give back nodes that passed.

    If the fault is still open, admit partners from outside.
    """
    behind = {node for one in verdicts.groups if one.verdict is Verdict.FAILED for node in one.nodes}
    mine = [one for one in verdicts.nodes if one.name in standing.nodes]
    passed = [one.name for one in mine if one.verdict is Verdict.PASS and one.name not in behind]
    found: list[Command] = []
    if passed:
        why = f"{', '.join(passed)} passed: back to users before {standing.name} ends"
        found += orders.give_back(standing, passed, why)
    if not standing.flex and any(one.verdict is Verdict.INCONCLUSIVE for one in mine):
        why = f"to the test: lets it run the nodes of {standing.name} with good ones outside, to tell whose fault it is"
        found += orders.open_outward(standing.name, why)
    return found


def _holder(name: str, seen: Upkeep) -> Reservation | None:
    return next((one for one in seen.reservations if one.active and name in one.nodes), None)


def _kept_out(name: str, seen: Upkeep) -> bool:
    """Whether another reservation keeps this user off the node."""
    held = _holder(name, seen)
    return held is not None and not held.mine


def _admit(orders: Orders, name: str, seen: Upkeep) -> list[Command]:
    """Return what would give the test access to a node that a reservation holds."""
    held = _holder(name, seen)
    if held is None:
        return []
    if not held.mine:
        return orders.admit(held.name, f"to the test: lets {seen.user} run in {held.name}")
    if not held.flex:
        return orders.open_outward(held.name, f"to the test: lets it run {name} with partners outside of {held.name}")
    return []


def _release(orders: Orders, names: Sequence[str], seen: Upkeep) -> list[Command]:
    """Release nodes that are out of service to the test, not to users.

    Otherwise users would be the first to try them.
    """
    dead = [name for name in names if seen.nodes[name].drained or seen.nodes[name].down]
    silent = [name for name in dead if seen.nodes[name].down]
    later = f"; once {', '.join(silent)} answers" if silent else ""
    held = [name for name in dead if _holder(name, seen) is not None]
    free = [name for name in dead if name not in held]
    found: list[Command] = []
    if held:
        found += orders.resume(held, f"to the test: in a reservation already: {', '.join(held)}{later}")
    if free:
        own = next((one for one in seen.reservations if one.own), None)
        why = f"to the test, and not to users: {', '.join(free)}{later}"
        found += orders.reserve(free, own, why)
    return found


# ----------------------------------------------------------------------------------------------------------------------
# Reservations that the clusters of an acceptance have, or had as far as the ledger knows.


def check_reservation(name: str, database: Path, cluster_paths: Mapping[str, Path]) -> None:
    """Raise UserError for a name that no cluster has or had: a wrong name must not read as "nothing to do"."""
    there: set[str] = set()
    ids: set[str] = set()
    with reading(database) as connection:
        for cluster in cluster_paths:
            there |= {one for node in ledger.nodes_of(connection, cluster).values() for one in node.reservations}
    for path in cluster_paths.values():
        cluster_file = read_cluster(path)
        administration = scheduler_of(cluster_file, reach(cluster_file)).administration()
        present = administration.look().reservations if administration is not None else ()
        there |= {one.name for one in present}
        ids |= {one.native_id for one in present if one.native_id}
    if name not in there | ids:
        known = f"there are {', '.join(sorted(there)[:12])}" if there else "no reservation is there, and none was recorded"
        raise UserError(f"--since: {name!r}: must be a reservation, a time (now-12h, 2026-11-20), a run, or boot", known)


# ----------------------------------------------------------------------------------------------------------------------
# Run a campaign that an acceptance derived from its own, and load the run.


class AcceptOrder(Protocol):
    """What is asked for, as far as measuring needs it."""

    @property
    def campaign(self) -> Path: ...
    @property
    def cluster_folders(self) -> tuple[Path, ...]: ...
    @property
    def database(self) -> Path: ...
    @property
    def runs_folder(self) -> Path: ...


@dataclass(frozen=True, slots=True)
class Measuring:
    """Where to run. path: the cluster's file. reservation: the one to run in."""

    order: AcceptOrder
    campaign: Campaign
    cluster: str
    path: Path
    reservation: str | None
    say: Callable[[str], None]

    def run(self, write: Callable[[Path], None], runs: list[str], what: str) -> int:
        """Run the campaign that `write` writes, and load it. What cannot be measured becomes rows with reasons.

        Adds the run to `runs` before it starts. Returns its number in the database.
        """
        moment = units.utc_now()[:19].replace(":", "")
        folder = self.order.runs_folder / ".accept" / f"{self.cluster}-{moment}-{len(runs)}"
        campaign = folder / self.order.campaign.name
        while campaign.exists():
            campaign = campaign.with_name(f"again-{campaign.name}")
        write(campaign)
        copy_descriptions(self.campaign, folder)
        folders = [*self.order.cluster_folders, self.path.parent]
        if self.reservation is not None:
            with_reservation(self.path, folder / "clusters" / self.path.name, self.reservation)
            folders = [folder / "clusters", *folders]
        run: RunFolder = open_run(campaign, folders, self.order.database, self.order.runs_folder)
        self.say(f"{self.cluster}: run {run.run}: {what}")
        runs.append(run.run)
        try:
            stages.build(run, self.cluster, self.say)
            stages.plan(run, self.cluster)
            stages.drive(run, self.cluster, self.say)
        except BaseException:
            with contextlib.suppress(
                HpcqError
            ):  # load what exists, so that it is not lost; the outer error says why there is no more
                stages.load(run, self.order.database)
            raise
        write_json(run.path / self.cluster / "loaded.json", stages.load(run, self.order.database))
        with reading(self.order.database) as database:
            return run_id_of(database, run.run)


@contextlib.contextmanager
def alone(runs_folder: Path, cluster: str) -> Iterator[bool]:
    """Whether no other acceptance of this cluster runs here. The lock lasts until the end."""
    runs_folder.mkdir(parents=True, exist_ok=True)
    path = runs_folder / f".accept-{cluster}.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HpcqError(
            f"{path}: cannot be opened: {error.strerror}", "it is a file that only hpcq makes: remove it"
        ) from error
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True


# ----------------------------------------------------------------------------------------------------------------------


Say = Callable[[str], None]

#: The fewest repetitions of a test: their median is the value of the job.
REPETITIONS_MIN = 5
#: The most runs of suspects against good partners.
RETESTS_MAX = 2
#: What looks slow between two leaves is measured so many times more with nothing else on the uplinks.
ALONE_RUNS = 2
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
            "told": list(self.verdicts.told),
            "flapping_ratio": self.verdicts.flapping,
            "notes": list(self.verdicts.notes),
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
    campaign, paths, reference = _read(order)
    outcomes = []
    for name, path in paths.items():
        with alone(order.runs_folder, name) as mine:
            if not mine:
                say(f"{name}: another acceptance is under way; this one does nothing")
                outcomes.append(ClusterAcceptance(name, {}, Acceptance(()), busy=True))
                continue
            outcomes.append(_Acceptor(order, campaign, name, path, reference, say).run())
    return outcomes


def plan_acceptance(order: AcceptRequest, say: Say) -> list[PlannedAcceptance]:
    """Look and choose as `accept` does, and stop there: no job, no verdict, no order.

    What the scheduler says of nodes is written down, as in every acceptance: it decides who needs a verdict. Raises UserError
    like `accept`.
    """
    campaign, paths, reference = _read(order)
    planned = []
    for name, path in paths.items():
        acceptor = _Acceptor(order, campaign, name, path, reference, say)
        ready = acceptor.ready()
        choice, left_out = ready.choice, tuple(one.words for one in acceptor.left_out(ready))
        reasons = (choice.targets, choice.blocked, choice.reservation)
        planned.append(PlannedAcceptance(name, *reasons, ready.pairs, ready.together, left_out))
    return planned


def _read(order: AcceptRequest) -> tuple[Campaign, dict[str, Path], tuple[int, ...] | None]:
    """Read the campaign, the cluster files, and the runs of the baseline if one is named."""
    campaign, paths = check_definitions(order.campaign, order.cluster_folders)
    with writing(order.database) as database:
        reference = None if order.against is None else baseline_runs(database, order.against)
    if order.selection.reservation is not None:
        check_reservation(order.selection.reservation, order.database, paths)
    return campaign, dict(paths), reference


def accept_from(  # noqa: PLR0917 - what to judge, against what, and where it is
    runs: Sequence[str], against: str | None, nodes: Collection[str], database: Path, folders: Sequence[Path], say: Say
) -> list[ClusterAcceptance]:
    """Judge what these runs brought, imported ones too, as if an acceptance had just measured it; measure and record nothing.

    nodes: judge these only; empty: all that the runs measured. The ledger stays as it is: a run of some past day says
    nothing of the boot that a node has now. Raises UserError for an unknown run, baseline or node.
    """
    with reading(database) as connection:
        names = list(dict.fromkeys(find_run(connection, run) for run in runs))
        run_ids = [run_id_of(connection, name) for name in names]
        clusters = selection.clusters_of(connection, run_ids)
        reference = None if against is None else baseline_runs(connection, against)
        found_pairs = {cluster: pair_values.pairs_of(connection, cluster, run_ids) for cluster in clusters}
    there = {
        cluster: sorted({node for pair in pairs if not names_several(pair[1]) for node in pair}, key=natural)
        for cluster, pairs in found_pairs.items()
    }
    for node in nodes:
        known = [one for several in there.values() for one in several]
        if node not in known:
            hint = f"there are {', '.join(known[:12])}"
            raise UserError(f"--node: {node!r}: must be a node that {', '.join(names)} measured", hint)
    outcomes = []
    for cluster, measured_nodes in there.items():
        with reading(database) as connection:
            earlier = reference or selection.runs_before(connection, cluster, min(run_ids), REFERENCE_RUNS)
            leaves = ledger.leaves_of(connection, cluster)
        judging = Judging(database, cluster, earlier, against)
        judging.leaf_of = leaves
        judging.check_baseline()
        targets = [node for node in measured_nodes if node in nodes or not nodes]
        found = judging.measured(names)
        verdicts = _told_by_nights(
            database, names, judging.with_since(judging.verdicts(targets, found, {})), cluster, left_out=not nodes
        )
        outcome = ClusterAcceptance(cluster, {}, verdicts, names)
        outcome.collectives = judged_collectives(database, cluster, names, earlier, verdicts, found)
        outcome.changed = judging.changed(verdicts, run_ids)
        outcome.commands = _orders_now(cluster, verdicts, folders, say)
        outcomes.append(outcome)
    return outcomes


def _told_by_nights(database: Path, runs: Sequence[str], verdicts: Acceptance, cluster: str, *, left_out: bool) -> Acceptance:
    """No node passes that all nights until the newest of these runs tell of, or doubt, alone or with those it is slow with.

    Where the run itself cannot say, what the nights say is the reason. left_out: a node that is told and that these runs did
    not measure is not covered.
    """
    with reading(database) as connection:
        newest = max(runs, key=lambda run: runs_of(connection, run)[0].created_utc)
        stood = standings(connection, [cluster], newest)
        run_ids = [run_id_of(connection, run) for run in runs]
        pairs = [(cluster, *pair) for pair in pair_values.pairs_of(connection, cluster, run_ids)]
        before = told_before(connection, stood, pairs, run_ids) if left_out else []
        found = [one for each in stood for one in each.causes]
        told = [one for one in found if one.is_told or one.is_doubt]
    nodes = []
    for one in verdicts.nodes:
        its = [cause for cause in told if cause.holds(one.name) or (cause.thing == "node" and one.name in cause.names)]
        if one.verdict is Verdict.INCONCLUSIVE:  # that it is behind a bad leaf the run says itself, and what to do
            its = [cause for cause in its if cause.thing != "group"]
        unsure = one.verdict in {Verdict.PASS, Verdict.INCONCLUSIVE} and its
        nodes.append(replace(one, verdict=Verdict.INCONCLUSIVE, reason=its[0].words) if unsure else one)
    measured = {one.name for one in nodes}
    nodes += [
        VerdictRecord(Thing.NODE, cause.names[0], Verdict.NOT_COVERED, cause.words, cause.names)
        for cause in before
        if cause.thing == "node" and cause.names[0] not in measured
    ]
    return replace(verdicts, nodes=tuple(nodes))


def _orders_now(cluster: str, verdicts: Acceptance, folders: Sequence[Path], say: Say) -> list[Command]:
    """The orders for nodes as the scheduler sees them now; none where no cluster file says how to reach it."""
    try:
        file = read_cluster(find_cluster(cluster, None, folders))
    except UserError:
        say(f"{cluster}: no cluster file of it here, so there are no commands to type")
        return []
    administration = scheduler_of(file, reach(file)).administration()
    return [] if administration is None else commands_for(verdicts, _upkeep(administration, cluster, say), administration)


#: Pauses before an acceptance asks once more for the upkeep of nodes: a loaded controller may give no answer at once.
LOOK_AGAIN_S = (1.0, 4.0)


def _upkeep(administration: Administration, cluster: str, say: Say, pauses_s: Sequence[float] = LOOK_AGAIN_S) -> Upkeep:
    """Return the upkeep of the nodes. Without an answer to several questions it says so: no order can be printed then."""
    for pause_s in (0.0, *pauses_s):
        time.sleep(pause_s)
        seen = administration.look()
        if seen.nodes:
            return seen
    say(f"{cluster}: the scheduler does not say which nodes are drained or reserved: no order is printed")
    return seen


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

    def __init__(  # noqa: PLR0917 - what is asked for, and where
        self, order: AcceptRequest, campaign: Campaign, name: str, path: Path, baseline: tuple[int, ...] | None, say: Say
    ) -> None:
        self.order = order
        self.campaign = campaign
        self.name = name
        self.path = path
        self.say = say
        self.cluster: Cluster = read_cluster(path)
        self.scheduler: Scheduler = scheduler_of(self.cluster, reach(self.cluster))
        self.baseline = baseline
        self.run_ids: list[int] = []
        self.runs: list[str] = []
        self.set_runs: list[str] = []
        self.wanted = collectives_of(order.campaign.read_text(encoding="utf-8"), campaign.kernels)
        #: What nodes of one job must have in common: the fabric of each, and its interface.
        self.apart: dict[str, str] = {}

    def ready(self) -> _Ready:
        """Observe and choose."""
        administration = self.scheduler.administration()
        seen = _upkeep(administration, self.name, self.say) if administration is not None else Upkeep()
        states = {state.node: state for state in self.scheduler.nodes()}
        self._observe(seen, list(states))
        over = {node: ", ".join(measured_over(self.cluster, state.features)) for node, state in states.items()}
        self.apart = {node: f"{seen.fabrics.get(node, '')} {over[node]}" for node in states}
        with reading(self.order.database) as database:
            known = ledger.nodes_of(database, self.name)
            reference = self.baseline
            if reference is None:
                reference = selection.newest_runs(database, self.name, REFERENCE_RUNS)
            known_pairs = pair_values.pairs_of(database, self.name, reference)
            baseline_pairs = known_pairs if self.order.against else []
            groups = ledger.leaves_of(database, self.name)
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
            pairs = partners(
                choice.testable,
                room,
                baseline=baseline_pairs,
                good=good,
                leaf_of=groups,
                every_link=self.campaign.pairs.pattern is Pattern.ALL,
                meetings=MEETINGS,
                apart=self.apart,
            )
            settling = [pair for one in self.judging.standing for pair in pairs_across(one, choice.testable, room, good)]
            planned = dict.fromkeys([*pairs, *both_ways(settling)])
        native = {node: state.native_state for node, state in states.items()}
        together = set_to_run(known_pairs, choice.testable, choice.room) if choice.can_run and self.wanted else ()
        return _Ready(administration, seen, native, choice, tuple(planned), standing, together)

    def run(self) -> ClusterAcceptance:
        """Observe, choose, run, judge, record."""
        ready = self.ready()
        administration, seen, choice, standing = ready.administration, ready.seen, ready.choice, ready.standing
        if choice.can_run:
            self._measure(ready.pairs, choice)
            self._again(choice, choice.room)
            self._alone(choice)
            self._measure_set(ready.together, choice)
        found = self.judging.measured(self.runs)
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
            ledger.Occurrence(node, one.started_utc, one.name)
            for one in seen.reservations
            if one.maintenance and one.active and not one.own
            for node in one.nodes
        ]
        drained = [one.node for one in seen.nodes.values() if one.drained]
        with writing(self.order.database) as database, transaction(database):
            ledger.ensure_nodes(database, self.name, nodes)
            ledger.observed(database, self.name, standing, drained, seen.leaves)

    def _measure(self, pairs: Sequence[tuple[str, str]], choice: NodesToTest, *, alone: bool = False) -> None:
        """Run these pairs once and load the run. What cannot be measured becomes rows with reasons. alone: one at a time."""
        if not pairs:
            return
        measuring = Measuring(self.order, self.campaign, self.name, self.path, choice.reservation, self.say)
        source = self.order.campaign.read_text(encoding="utf-8")

        def write(target: Path) -> None:
            left_out = with_pairs(source, self.campaign.kernels, target, self.name, pairs, REPETITIONS_MIN, alone=alone)
            if left_out and not self.runs:
                self.say(f"{self.name}: tests of {', '.join(left_out)} are left out here: nodes are judged by their pairs")

        self.run_ids.append(measuring.run(write, self.runs, f"{len(pairs)} pairs"))

    def _measure_set(self, nodes: Sequence[str], choice: NodesToTest) -> None:
        """Run the tests of this set, if there is one; and once more what is bad: nobody is told after one job."""
        if not nodes:
            return
        source = self.order.campaign.read_text(encoding="utf-8")
        measuring = Measuring(self.order, self.campaign, self.name, self.path, choice.reservation, self.say)
        for _ in range(SET_JOBS_MIN):
            measuring.run(
                lambda target: with_set(source, self.campaign.kernels, target, self.name, nodes, REPETITIONS_MIN),
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
            found = self.judging.measured(self.runs)
            verdicts = self._judged(choice, {}, found, final=False)
            pairs = again(verdicts, room, counts=found.counts, leaf_of=self.judging.leaf_of, apart=self.apart)
            if not pairs:
                return
            self.say(f"{self.name}: measuring again: {_some(pairs)}")
            self._measure(pairs, choice)

    def _alone(self, choice: NodesToTest) -> None:
        """Measure what looks slow between leaves once more, one pair at a time.

        The pairs of a run share the uplinks of their leaves. Where these carry less than all nodes behind them together, as
        on most machines, some pair is slow by turns, and nothing is wrong with it. A tournament measures pairs under the
        load that its campaign names: a pair alone would be another test, with nothing to compare it with.
        """
        if plays_tournaments(self.order.campaign.read_text(encoding="utf-8")):
            return
        for number in range(ALONE_RUNS):
            verdicts = self._judged(choice, {}, self.judging.measured(self.runs), final=False)
            pairs = to_measure_alone(verdicts, self.judging.leaf_of)
            if not pairs:
                return
            if number == 0:
                words = f"{_some(pairs)}: one pair at a time, since these share the uplinks of their leaves"
                self.say(f"{self.name}: measuring again: {words}")
            self._measure(pairs, choice, alone=True)

    def _judged(
        self,
        choice: NodesToTest,
        states: Mapping[str, str],
        found: Measured,
        now: Upkeep | None = None,
        *,
        final: bool = True,
    ) -> Acceptance:
        missing = dict(choice.blocked)
        for node in choice.targets:
            missing.setdefault(node, f"no result; the scheduler says {states.get(node, 'nothing')}")
        return self.judging.verdicts(list(choice.targets), found, missing, now, final=final)

    def _write_down(self, outcome: ClusterAcceptance) -> None:
        run = self.run_ids[-1] if self.run_ids else None
        with writing(self.order.database) as database, transaction(database):
            of_set = selection.run_id_of(database, self.set_runs[-1]) if self.set_runs else None
            for records, rests_on in ((outcome.all_judged, run), (records_of(outcome.collectives), of_set)):
                new = [one for one in records if not ledger.says_as_much(database, self.name, one)]
                ledger.decide(database, self.name, new, run_id=rests_on, baseline=self.order.against)


def _some(pairs: Sequence[tuple[str, str]]) -> str:
    shown = ", ".join(f"{a} > {b}" for a, b in pairs[:8])
    return shown if len(pairs) <= 8 else f"{shown} and {len(pairs) - 8} more pairs"
