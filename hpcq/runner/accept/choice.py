"""Choose the nodes that an acceptance tests. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hpcq.errors import UserError
from hpcq.nodelist import natural
from hpcq.planning.pairs import Pair
from hpcq.scheduler.administration import OWN_REASON, Reservation, Upkeep
from hpcq.store.ledger import LedgerNode
from hpcq.verdict.acceptance import Acceptance
from hpcq.verdict.words import Thing, Verdict, VerdictRecord


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """The nodes that a person asks for; with all fields empty, the nodes that need a test.

    since_utc: nodes that came up or were released since then. boot: nodes that booted since their last verdict.
    reservation: its nodes; once it has ended, those without a verdict since.
    """

    nodes: tuple[str, ...] = ()
    everything: bool = False
    since_utc: str | None = None
    reservation: str | None = None
    boot: bool = False


@dataclass(frozen=True, slots=True)
class NodesToTest:
    """The nodes to test.

    targets: node -> why. testable: those available now. blocked: node -> why not. room: possible partners.
    """

    targets: dict[str, str]
    testable: tuple[str, ...]
    room: frozenset[str]
    blocked: dict[str, str] = field(default_factory=dict)
    reservation: str | None = None

    @property
    def can_run(self) -> bool:
        """Whether there is something to measure."""
        return bool(self.testable)


def choose(
    selection: NodeSelection,
    known: Mapping[str, LedgerNode],
    seen: Upkeep,
    idle: set[str],
    standing: Sequence[VerdictRecord] = (),
) -> NodesToTest:
    """Find the nodes that need a verdict, and those of them that can be measured now.

    standing: links and groups at fault. The nodes of a reservation are paired with each other and, if it is flexible,
    also
    with idle nodes outside. Nodes outside our reservations then wait for the next acceptance.
    """
    idle = idle - {node for one in seen.reservations if one.active for node in one.nodes}
    unknown = [node for node in selection.nodes if node not in known]
    if unknown:
        raise UserError(
            f"{unknown[0]!r} is not a node of this cluster's partition", f"there are {', '.join(sorted(known)[:12])}"
        )
    targets = {}
    for node in sorted(known, key=natural):
        why = _why(selection, known[node], seen)
        if why:
            targets[node] = why
    if selection == NodeSelection():
        targets |= {node: why for node, why in _of_links(standing, idle).items() if node not in targets}
    usable = _usable(seen, targets, idle)
    room = frozenset(idle)
    if usable is not None:
        inside = frozenset(node for node in usable.nodes if node in known and not _held(node, seen))
        room = inside | idle if usable.flex else inside
    testable = tuple(node for node in targets if node in room)
    blocked = {node: _blocked(known[node], seen, idle) for node in targets if node not in testable}
    return NodesToTest(targets, testable, room, blocked, usable.name if usable else None)


def _why(selection: NodeSelection, node: LedgerNode, seen: Upkeep) -> str:
    """Return why a node needs a verdict; empty if it does not."""
    if selection.nodes:
        return "asked for" if node.node in selection.nodes else ""
    if selection.everything:
        return "asked for"
    up = seen.nodes.get(node.node)
    started = up.started_utc if up else None
    if selection.reservation is not None:
        return _why_reserved(selection.reservation, node, seen)
    came_up = bool(started and started > (selection.since_utc or _judged_utc(node) or "~"))
    reasons = ["booted"] if node.booted else []
    reasons += ["came up"] if came_up and not node.booted else []
    if selection.boot:
        return ", ".join(reasons)
    if node.last is None:
        return "never accepted"
    reasons += [{"maintenance": "maintenance", "resume": "back from drain"}.get(kind, kind) for kind in node.since]
    if node.verdict in {Verdict.NOT_COVERED, Verdict.INCONCLUSIVE} and not node.last.waits:
        reasons.append(f"{node.last.verdict.replace('_', ' ')} last time")
    if not reasons and up is not None and up.down:
        reasons.append("down")
    return ", ".join(dict.fromkeys(reasons))


def _why_reserved(name: str, node: LedgerNode, seen: Upkeep) -> str:
    """Return why a reservation gives a node a test: the node is in it, or has no verdict since it ended."""
    if any(one.is_called(name) and node.node in one.nodes for one in seen.reservations):
        return f"in reservation {name}"
    ended = node.reservations.get(name)
    return f"was in reservation {name}" if ended is not None and (_judged_utc(node) or "") <= ended else ""


def _judged_utc(node: LedgerNode) -> str | None:
    """Return the time that its last verdict is about.

    A boot after the measurement is not judged, even if the verdict came later.
    """
    return None if node.last is None else node.last.measured_utc or node.last.decided_utc


def _of_links(standing: Sequence[VerdictRecord], idle: set[str]) -> dict[str, str]:
    """Return both ends of links that failed, so that they are tested again: hpcq cannot see that a cable was changed.

    Leaves are tested with their nodes.
    """
    links = [one for one in standing if one.kind is Thing.LINK and len(one.nodes) == 2 and not one.waits]
    due = [one for one in links if idle.issuperset(one.nodes)]
    return {node: f"link {one.name} {one.verdict} last time" for one in due for node in one.nodes}


def _usable(seen: Upkeep, targets: Mapping[str, str], idle: set[str]) -> Reservation | None:
    """Return an active reservation for this user with two nodes to test, or with one that has partners.

    Those are outside if it is flexible; hpcq's own may hold them.
    """
    for one in seen.reservations:
        held = [node for node in one.nodes if node in targets and not _held(node, seen)]
        partners = idle if one.flex else [node for node in one.nodes if one.own and not _held(node, seen)][1:]
        if one.active and one.mine and (len(held) >= 2 or (held and partners)):
            return one
    return None


def _held(node: str, seen: Upkeep) -> bool:
    up = seen.nodes.get(node)
    return up is not None and (up.drained or up.down)


def _blocked(state: LedgerNode, seen: Upkeep, idle: set[str]) -> str:
    node = state.node
    up = seen.nodes.get(node)
    if up is not None and up.down:
        return f"down{': ' + up.reason if up.reason else ''}"
    if up is not None and up.drained:
        # Of hpcq's own reason some schedulers keep the beginning only.
        whole = f"{OWN_REASON} {state.last.reason}" if state.last else ""
        reason = whole if up.reason and whole.startswith(up.reason) else up.reason
        return f"drained{': ' + reason if reason else ''}"
    held = next((one for one in seen.reservations if one.active and node in one.nodes), None)
    if held is not None:
        alone = ", alone there: it has no partner" if held.mine and not held.flex else ""
        return f"in reservation {held.name} until {held.ended_utc[:16].replace('T', ' ')} UTC{alone}"
    if node in idle:
        return "idle, but a reservation was tested first: the next acceptance takes it"
    return "busy: not idle now"


# ----------------------------------------------------------------------------------------------------------------------
# Choose the pairs that reveal most about the nodes under test, and about those that were slow. Pure.
#
#     partners(...)      PARTNERS per node: one in its own leaf, the others spread evenly over all available nodes
#     again(...)         slow pairs once more; suspects with good partners; of a suspected leaf also the other nodes
#
# Each pair occurs in both directions: a limit on a node's sending does not show while it only receives.


#: Partners per node under test, by default.
PARTNERS = 3
#: More partners per node, met in one direction: a node that cannot reach half of the others would meet none of them
#: in one acceptance of six with three partners, in one of sixty with six.
MEETINGS = 3
#: The most partners if the campaign or the baseline has all pairs. Acceptance does not cover further links.
PARTNERS_MAX = 16
#: A pair that ran this many times does not run again in the same acceptance.
RUNS_ENOUGH = 3
#: On a large machine, how many nodes are candidates for each node's partners.
SPREAD = 64


def partners(
    targets: Sequence[str],
    room: Collection[str],
    *,
    baseline: Collection[Pair] = (),
    good: Collection[str] = (),
    leaf_of: Mapping[str, str] | None = None,
    met: Collection[Pair] = (),
    every_link: bool = False,
    meetings: int = 0,
    apart: Mapping[str, str] | None = None,
) -> list[Pair]:
    """Return pairs for these nodes, at least PARTNERS each.

    The pairs of the baseline come first, then good partners, then any available node. It wants all of a node's pairs in
    the baseline, up to PARTNERS_MAX. every_link: it also wants all pairs that the baseline lacks.
    room: available partners. baseline: pairs that have reference values. good: nodes that passed. met: pairs that have
    already run and are not wanted again. meetings: how many more partners each node meets, in one direction only. apart:
    what the nodes of one job have in common where nodes differ, as their fabric.
    """
    plan = _Plan(targets, room, baseline=baseline, good=good, leaf_of=leaf_of or {}, met=met, apart=apart or {})
    for turn in range(PARTNERS_MAX):
        for node in sorted(targets, key=natural):
            plan.add(node, turn, every_link=every_link)
    one_way = list(plan.pairs)
    # The other way round comes last: a node that fails with several partners is decided before it has run with one twice.
    back = [pair[::-1] for pair in one_way]
    if every_link:
        return [*one_way, *back]
    plan.pairs.clear()
    for turn in range(PARTNERS, PARTNERS + meetings):
        for node in sorted(targets, key=natural):
            plan.meet(node, turn)
    return [*one_way, *_in_turn(plan.pairs), *back]


class Doubts(Protocol):
    """What a verdict leaves open. See hpcq.judge.acceptance.RunVerdict."""

    @property
    def suspects(self) -> tuple[str, ...]: ...
    @property
    def good(self) -> tuple[str, ...]: ...
    @property
    def open(self) -> tuple[Pair, ...]: ...
    @property
    def explained(self) -> tuple[tuple[Pair, ...], ...]: ...
    @property
    def decided(self) -> frozenset[str]: ...
    @property
    def unsettled(self) -> tuple[Pair, ...]: ...


def again(
    verdicts: Doubts,
    room: Collection[str],
    *,
    counts: Mapping[Pair, int],
    leaf_of: Mapping[str, str],
    apart: Mapping[str, str] | None = None,
) -> list[Pair]:
    """Return what to run before hpcq reports anything. counts: in how many runs each pair was."""
    once = [pair for pair in (*verdicts.open, *verdicts.unsettled) if counts.get(pair, 0) < RUNS_ENOUGH]
    for pairs in verdicts.explained:
        enough = any(all(node in pair for pair in pairs) for node in verdicts.decided)
        if not enough and all(counts.get(pair, 0) < 2 for pair in pairs):
            once += _some(pairs)
    once = [pair for pair in once if pair[0] in room and pair[1] in room]
    wanted = [node for node in verdicts.suspects if node in room]
    for node in tuple(wanted):
        if _may_be_its_leaf(node, verdicts.open, leaf_of, counts):
            mates = [one for one in room if one not in wanted and leaf_of.get(one) == leaf_of[node]]
            wanted += sorted(mates, key=natural)[:1]
    trusted = [node for node in verdicts.good if node in room]
    fresh = partners(wanted, {*trusted, *wanted}, good=trusted, leaf_of=leaf_of, met=list(counts), apart=apart)
    met = {end for pair in fresh for end in pair}
    lonely = {node for node in wanted if node not in met}  # nobody new is left to meet: the same pairs once more, both ways
    known = [pair for one in counts for pair in (one, one[::-1]) if lonely & {*pair} and {*pair} <= {*trusted, *wanted}]
    once += [pair for pair in known if counts.get(pair, 0) < RUNS_ENOUGH]
    return list(dict.fromkeys([*once, *fresh]))


#: At most this many pairs: one at a time takes long. Of one cause so many.
ALONE_PAIRS, ALONE_PAIRS_OF_CAUSE = 32, 6


def to_measure_alone(verdicts: Acceptance, leaf_of: Mapping[str, str]) -> list[Pair]:
    """Return pairs between two leaves that are slow: of what would fail, and of nodes that stay undecided.

    A node that is slow inside its leaf, too, or brings nothing with anybody, needs no pair alone.
    """
    bad = [one for one in verdicts.links if one.verdict in {Verdict.DEGRADED, Verdict.FAILED} and len(one.nodes) == 2]
    links = [(one.nodes[0], one.nodes[1]) for one in bad]
    undecided = {one.name for one in verdicts.nodes if one.verdict is Verdict.INCONCLUSIVE}
    accused = {one.name for one in verdicts.nodes if one.verdict in {Verdict.DEGRADED, Verdict.FAILED}}
    causes = [pairs for pairs in verdicts.explained if all(_crosses(one, leaf_of) or accused >= {*one} for one in pairs)]
    causes = [pairs for pairs in causes if not any(all(node in pair for pair in pairs) for node in verdicts.decided)]
    across = ([pair for pair in pairs if _crosses(pair, leaf_of)] for pairs in causes)
    of_causes = [pair for pairs in across for pair in _spread(pairs)[:ALONE_PAIRS_OF_CAUSE]]
    slow = [
        *both_ways(links),
        *of_causes,
        *(pair for pair in (*sorted(verdicts.open), *verdicts.unsettled) if undecided & {*pair}),
    ]
    return list(dict.fromkeys(pair for pair in slow if _crosses(pair, leaf_of)))[:ALONE_PAIRS]


def _crosses(pair: Pair, leaf_of: Mapping[str, str]) -> bool:
    return bool(leaf_of.get(pair[0])) and leaf_of.get(pair[0]) != leaf_of.get(pair[1], "")


def _spread(pairs: Iterable[Pair]) -> list[Pair]:
    """The same pairs, those first whose nodes came least often."""
    left, taken, found = list(pairs), Counter[str](), list[Pair]()
    while left:
        pair = min(left, key=lambda one: sum(taken[end] for end in one))
        left.remove(pair)
        taken.update(pair)
        found.append(pair)
    return found


def _some(pairs: Sequence[Pair]) -> list[Pair]:
    """Of the pairs that a culprit explains, return enough to run each node again with PARTNERS others."""
    count: Counter[str] = Counter()
    taken = []
    for ends in dict.fromkeys(frozenset(pair) for pair in pairs):
        if all(count[end] < PARTNERS for end in ends):
            count.update(ends)
            taken += [pair for pair in pairs if frozenset(pair) == ends]
    return taken


def _may_be_its_leaf(node: str, slow: Collection[Pair], leaf_of: Mapping[str, str], met: Collection[Pair]) -> bool:
    """Whether a suspect is slow outside its leaf, and not known to be slow inside."""
    mine = [pair for pair in met if node in pair and leaf_of.get(pair[0]) and leaf_of.get(pair[1])]
    inside = [pair for pair in mine if leaf_of[pair[0]] == leaf_of[pair[1]]]
    beyond = [pair for pair in mine if pair not in inside]
    return any(pair in slow for pair in beyond) and not any(pair in slow for pair in inside)


def _in_turn(pairs: Sequence[Pair]) -> list[Pair]:
    """Return each pair once, turned so that a node is the client about as often as the server."""
    sent: Counter[str] = Counter()
    turned = []
    for one, other in pairs:
        client, server = (one, other) if sent[one] <= sent[other] else (other, one)
        sent.update({client: 1, server: -1})
        turned.append((client, server))
    return turned


def both_ways(pairs: Sequence[Pair]) -> list[Pair]:
    """Return each pair and its reverse."""
    return [pair for client, server in pairs for pair in ((client, server), (server, client))]


class _Plan:
    """The pairs so far, and how many each node has."""

    def __init__(
        self,
        targets: Sequence[str],
        room: Collection[str],
        *,
        baseline: Collection[Pair],
        good: Collection[str],
        leaf_of: Mapping[str, str],
        met: Collection[Pair],
        apart: Mapping[str, str],
    ) -> None:
        self.apart = apart
        self.targets = set(targets)
        self.known = {frozenset(pair) for pair in baseline}
        self.direction = {frozenset(pair): pair for pair in baseline}
        self.good = set(good)
        self.room = sorted(room, key=natural)
        self.place = {node: index for index, node in enumerate(self.room)}
        self.trusted = [node for node in self.room if node in self.good]
        self.neighbours: dict[str, list[str]] = {}
        for one, other in self.direction.values():
            self.neighbours.setdefault(one, []).append(other)
            self.neighbours.setdefault(other, []).append(one)
        self.members: dict[str, list[str]] = {}
        for node in self.room:
            self.members.setdefault(leaf_of.get(node, ""), []).append(node)
        self.leaf_of = leaf_of
        self.taken = {frozenset(pair) for pair in met}
        self.count: Counter[str] = Counter()
        self.met_leaves: dict[str, Counter[str]] = {}
        self.pairs: list[Pair] = []

    def add(self, node: str, turn: int, *, every_link: bool) -> None:
        """Add the next partner of a node that needs one. The first comes from its own leaf if possible."""
        if self.count[node] > turn:
            return
        if turn >= PARTNERS and not every_link:
            others = self._free(node, self.neighbours.get(node, []))
        else:
            leaf = self._leaf(node)
            inside = self._free(node, self.members[leaf]) if leaf in self.members else []
            everybody = self._free(node, self._candidates(node))
            beyond = [other for other in everybody if leaf is None or self._leaf(other) != leaf]
            others = (inside if turn == 0 else beyond) or everybody or inside
        if others:
            self._take(node, min(others, key=lambda other: self._cost(node, other)))

    def meet(self, node: str, turn: int) -> None:
        """Add one more partner of any leaf to a node that has fewer than `turn` + 1."""
        if self.count[node] <= turn:
            others = self._free(node, self._candidates(node))
            if others:
                self._take(node, min(others, key=lambda other: self._cost(node, other)))

    def _free(self, node: str, others: Sequence[str]) -> list[str]:
        mine = self.apart.get(node)
        return [
            one
            for one in others
            if one in self.place and one != node and self.apart.get(one) == mine and frozenset((node, one)) not in self.taken
        ]

    def _candidates(self, node: str) -> list[str]:
        """Return all nodes; on a large machine, its partners in the baseline and some spread over the machine."""
        if len(self.room) <= 2 * SPREAD:
            return self.room
        found = self.neighbours.get(node, [])[:SPREAD]
        for several in (self.trusted, self.room):
            step = max(1, len(several) // SPREAD)
            offset = self.place.get(node, 0) % step
            found = [*found, *several[offset::step]]
        return list(dict.fromkeys(found))

    def _cost(self, node: str, other: str) -> tuple[object, ...]:
        """Return the sort key of a partner; lowest is best.

        It has a baseline, is trusted, has few partners yet, and is in a leaf that the node has not met.
        """
        trust = 0 if other in self.good else 1 if other in self.targets else 2
        seen = self.met_leaves.get(node, Counter())[self._leaf(other) or other]
        distance = (self.place[other] - self.place.get(node, 0)) % max(1, len(self.room))
        return (frozenset((node, other)) not in self.known, trust, self.count[other], seen, distance)

    def _take(self, node: str, other: str) -> None:
        ends = frozenset((node, other))
        first, second = sorted((node, other), key=natural)
        self.pairs.append(self.direction.get(ends, (first, second)))
        self.taken.add(ends)
        for one, partner in ((node, other), (other, node)):
            self.count[one] += 1
            self.met_leaves.setdefault(one, Counter())[self._leaf(partner) or partner] += 1

    def _leaf(self, node: str) -> str | None:
        return self.leaf_of.get(node)
