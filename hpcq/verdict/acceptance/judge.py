"""What an acceptance says: records for the ledger and for people, made of the verdict of its run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

from hpcq.judge.acceptance import PACKETS, RunVerdict, Said, Told
from hpcq.verdict.acceptance.points import Pair
from hpcq.verdict.acceptance.standing import Sides, passes
from hpcq.verdict.record import Thing, VerdictRecord
from hpcq.verdict.words import Verdict


@dataclass(frozen=True, slots=True)
class Acceptance:
    """All verdicts. suspects: nodes to run with good partners before anybody is told.

    explained: the bad pairs of each culprit. open: bad pairs that nothing explains yet. unsettled: pairs to run once
    more. drainable: nodes at fault with most of their partners in at least one role; others have fine pairs. told: the
    smallest effects that would have shown. flapping: the share of its jobs in which a node may be slow unseen. notes: what
    a person should know of the reference. decided: nodes that failed with enough good partners to need no second run.
    """

    nodes: tuple[VerdictRecord, ...]
    links: tuple[VerdictRecord, ...] = ()
    groups: tuple[VerdictRecord, ...] = ()
    clusters: tuple[VerdictRecord, ...] = ()
    suspects: tuple[str, ...] = ()
    good: tuple[str, ...] = ()
    explained: tuple[tuple[Pair, ...], ...] = ()
    open: tuple[Pair, ...] = ()
    unsettled: tuple[Pair, ...] = ()
    drainable: frozenset[str] = frozenset()
    told: tuple[Told, ...] = ()
    flapping: float = 0.0
    notes: tuple[str, ...] = ()
    decided: frozenset[str] = frozenset()

    @property
    def told_words(self) -> str:
        """What would have been found: `5 % slower (6 % one way), 0.05 % of the packets lost, or slow in 33 % of the jobs`.

        Of several tests that tell different things, each is named. Empty where nothing was judged.
        """
        sizes: dict[str, list[str]] = {}
        for one in self.told:
            if not one.test.endswith(PACKETS):
                slower, one_way = (100 * (1 - exp(-size)) for size in (one.slower, one.one_way))
                words = f"{slower:.2g} % slower" + (f" ({one_way:.2g} % one way)" if one_way > 1.1 * slower else "")
                sizes.setdefault(words, []).append(one.test)
        parts = [f"{words} in {', '.join(tests)}" if len(sizes) > 1 else words for words, tests in sizes.items()]
        lost = [one.slower for one in self.told if one.test.endswith(PACKETS)]
        parts += [f"{100 * max(lost):.2g} % of the packets lost"] if lost else []
        return f"{', '.join(parts)}, or slow in {100 * self.flapping:.0f} % of its jobs" if parts else ""


def acceptance_of(found: RunVerdict, standing: Sequence[Sides] = ()) -> Acceptance:
    """The records of a run's verdict. standing: links and groups that were at fault before; they may pass now."""
    things = {kind: [_record(one) for one in found.things if one.kind == kind] for kind in ("link", "group", "cluster")}
    at_fault = {(one.kind, one.name) for several in things.values() for one in several}
    for one in standing:
        if (one.kind, one.name) not in at_fault and passes(one, found.words):
            why = "as expected again, in both directions"
            things[one.kind].append(VerdictRecord(one.kind, one.name, Verdict.PASS, why, one.nodes))
    return Acceptance(
        tuple(_record(one) for one in found.nodes),
        tuple(things["link"]), tuple(things["group"]), tuple(things["cluster"]),
        found.suspects, found.good, found.explained, found.open, found.unsettled, found.drainable,
        found.told, found.flapping, found.notes, found.decided,
    )  # fmt: skip


def not_covered(node: str, reason: str) -> VerdictRecord:
    """The record of a node that nothing was measured with."""
    return VerdictRecord(Thing.NODE, node, Verdict.NOT_COVERED, reason, (node,))


def _record(one: Said) -> VerdictRecord:
    return VerdictRecord(Thing(one.kind), one.name, Verdict(one.word.value), one.reason, one.nodes, one.ratio)
