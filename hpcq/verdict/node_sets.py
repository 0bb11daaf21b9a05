"""What the pairs of a set of nodes say when a test that all of them ran together got worse. Pure.

A slow collective names no node: it waits for the slowest way between any two, and for the slowest node. Its pairs tell
which, if they were measured. If they were and none is slow, the cause shows only when many send at once, or with more
than two nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hpcq.nodelist import fold, natural
from hpcq.units import count_of

Pair = tuple[str, str]

_SHOWN = 4
#: The smallest set of which a half is still a set and no pair.
_HALVED_MIN = 6


def set_name(nodes: Iterable[str]) -> str:
    """The name of a set of nodes for people: `n[1-8]`."""
    return ",".join(fold(nodes))


@dataclass(frozen=True, slots=True)
class PairsOfSet:
    """The pairs within a set of nodes. judged: those with enough points. slow: those that got worse at the same time.

    earlier: those that got worse at another time.
    """

    nodes: tuple[str, ...]
    judged: tuple[Pair, ...]
    slow: tuple[Pair, ...] = ()
    earlier: tuple[Pair, ...] = ()

    @classmethod
    def of(cls, nodes: Sequence[str], judged: Iterable[Pair], slow: Iterable[Pair], worse: Iterable[Pair]) -> PairsOfSet:
        """Keep what lies within the set. slow: worse at the same time. worse: at any time. Directions count as one pair."""
        members = set(nodes)

        def within(pairs: Iterable[Pair]) -> set[Pair]:
            kept = {tuple(sorted(pair, key=natural)) for pair in pairs if pair[0] != pair[1] and members.issuperset(pair)}
            return {(one, other) for one, other in kept}

        same, known = within(slow), within(judged)
        later = within(worse) - same
        return cls(tuple(sorted(members, key=natural)), *(_ordered(one) for one in (known | same | later, same, later)))

    @property
    def without_pair(self) -> tuple[str, ...]:
        """Nodes of the set that are in none of the judged pairs."""
        seen = {node for pair in self.judged for node in pair}
        return tuple(node for node in self.nodes if node not in seen)

    @property
    def words(self) -> str:
        """Which of its pairs are slow; if none is, what to measure."""
        if not self.judged:
            return f"no pair of its nodes was judged: measure them (pairs: all, include: {set_name(self.nodes)})"
        if self.slow:
            shown = ", ".join(" - ".join(pair) for pair in self.slow[:_SHOWN])
            more = f" and {len(self.slow) - _SHOWN} more" if len(self.slow) > _SHOWN else ""
            return (
                f"{len(self.slow)} of {count_of(len(self.judged), 'judged pair')} of its nodes got worse with it: {shown}{more}"
            )
        told = f"none of {count_of(len(self.judged), 'judged pair')} of its nodes got worse with it"
        if self.earlier:
            shown = ", ".join(" - ".join(pair) for pair in self.earlier[:_SHOWN])
            told += f" ({shown}: at another time)"
        if self.without_pair:
            return f"{told}, but {set_name(self.without_pair)} is in none of them: measure its pairs"
        return f"{told}: {self._next()}"

    def _next(self) -> str:
        """What to measure where all pairs are fine one by one."""
        together = "measure the pairs all at once (allocation: whole)"
        if len(self.nodes) >= _HALVED_MIN:
            middle = len(self.nodes) // 2
            halves = " and ".join(f"include: {set_name(part)}" for part in (self.nodes[:middle], self.nodes[middle:]))
            return f"{together}, and the collective on each half of the nodes ({halves}; node_count: 0)"
        first = self.nodes[0]
        return f"{together}, and the collective without one node after the other (exclude: {first} and so on; node_count: 0)"


def _ordered(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    return tuple(sorted(pairs, key=lambda pair: (natural(pair[0]), natural(pair[1]))))
