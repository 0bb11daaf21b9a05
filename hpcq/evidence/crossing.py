"""Decide from the interface's own counters whether the bytes of a measurement crossed the interface under test.

yes      both ends' interface counters, or those of the RDMA port behind it, contain what the test moved
no       the counters exist and did not move with the test: the number does not belong to that network
unknown  nothing can show it: no counters, counters that lag behind, a fabric that bypasses them
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from hpcq.evidence import names
from hpcq.evidence.case import HEAD_BYTES_MIN, Case, interface_moved
from hpcq.evidence.ends import End
from hpcq.evidence.judgement import CrossedInterface

#: From this share of the expected bytes on, they have crossed. Losses before the interface leave less than all of it.
CROSSED_RATIO = 0.5
#: Below this share they have not crossed. Between the two shares nothing is certain.
NOT_CROSSED_RATIO = 0.1
#: With fewer bytes than this, background traffic of a node (ssh, time keeping) would decide.
EXPECTED_BYTES_MIN = 2000
#: Drivers that copy counters from the card once per second (ethtool -c: stats-block-usecs). A shorter measurement may
#: end
#: before its bytes show.
LAGGING_DRIVERS = frozenset({"be2net", "bnx2", "bnx2x", "bnxt_en", "tg3"})
LAG_INTERVAL_S = 3.0


@dataclass(frozen=True, slots=True)
class Crossing:
    """The answer and its reason, for people. `end` is the end that decided, None for both."""

    answer: CrossedInterface
    reason: str
    end: str | None = None
    expected_bytes: int = 0
    moved_bytes: int = 0


@lru_cache(maxsize=1)  # several rules ask about one case
def crossing(case: Case) -> Crossing:
    """Judge both ends. An end that says `no` decides, then one that cannot tell."""
    if case.one_node:
        return Crossing(CrossedInterface.UNKNOWN, "it runs on one node: nothing crosses a network")
    found = [_at_end(case, end) for end in (case.client, case.server) if end is not None]
    if len(found) < 2:
        return Crossing(CrossedInterface.UNKNOWN, "the evidence of an end is missing")
    for answer in (CrossedInterface.NO, CrossedInterface.UNKNOWN):
        first = next((one for one in found if one.answer is answer), None)
        if first is not None:
            return first
    return found[0]


def lags(end: End) -> bool:
    """Whether the interface's counters may miss the end of the measurement."""
    return end.fact("driver") in LAGGING_DRIVERS and end.interval_s < LAG_INTERVAL_S


def _at_end(case: Case, end: End) -> Crossing:
    moved = case.moved_at_least(end.name)
    if moved is None:
        return Crossing(CrossedInterface.UNKNOWN, f"{case.kernel} does not say how much it moved", end.name)
    if not end.interface:
        return Crossing(CrossedInterface.UNKNOWN, f"the interface of the {end.name} is not known", end.name)
    shares = []
    for way, one in moved.items():
        expected = one.least_bytes + one.least_count * HEAD_BYTES_MIN
        if expected <= 0:
            continue
        seen = interface_moved(end, way)
        if seen is None:
            return Crossing(
                CrossedInterface.UNKNOWN, f"{end.name}: the counters of {end.interface} could not be read", end.name
            )
        moved_bytes = max([seen[0], end.rdma_bytes.get(way, 0), *end.matching(names.RDMA_BYTES[way]).values()])
        shares.append((moved_bytes / expected, way, int(expected), moved_bytes))
    if not shares:
        return Crossing(CrossedInterface.UNKNOWN, "nothing was moved", end.name)
    share, way, expected_bytes, moved_bytes = min(shares)
    figures = (end.name, expected_bytes, moved_bytes)
    if share >= CROSSED_RATIO:
        return Crossing(CrossedInterface.YES, f"{end.interface} moved what the test moved", *figures)
    return _doubtful(case, end, way, share, figures)


def _doubtful(case: Case, end: End, way: str, share: float, figures: tuple[str, int, int]) -> Crossing:
    _, expected_bytes, moved_bytes = figures
    if share >= NOT_CROSSED_RATIO or expected_bytes < EXPECTED_BYTES_MIN:
        reason = f"{end.name}: {end.interface} moved {moved_bytes} bytes, the test {expected_bytes}: too few to tell"
        return Crossing(CrossedInterface.UNKNOWN, reason, *figures)
    if lags(end):
        reason = f"{end.name}: the counters of {end.interface} lag behind by up to a second ({end.fact('driver')})"
        return Crossing(CrossedInterface.UNKNOWN, reason, *figures)
    return _not_crossed(case, end, way, figures)


def _not_crossed(case: Case, end: End, way: str, figures: tuple[str, int, int]) -> Crossing:
    """Sockets always use a network interface; an MPI library may bypass all of them."""
    elsewhere = _busiest(end, way)
    if elsewhere and elsewhere[1] >= CROSSED_RATIO * figures[1]:
        where = f"; {elsewhere[0]} moved {elsewhere[1]}"
    elif case.over_mpi and "same_node" not in case.warnings:
        reason = f"{end.name}: {end.interface} did not move, and the fabric that MPI used has no counters here"
        return Crossing(CrossedInterface.UNKNOWN, reason, *figures)
    else:
        where = ""
    reason = (
        f"the bytes did not cross {end.interface} of the {end.name}: the test moved {figures[1]}, it moved {figures[2]}{where}"
    )
    return Crossing(CrossedInterface.NO, reason, *figures)


def _busiest(end: End, way: str) -> tuple[str, int] | None:
    regex = re.compile(names.ANY_INTERFACE_BYTES[way])
    found = end.matching(names.ANY_INTERFACE_BYTES[way])
    moved = [(delta, match["interface"]) for name, delta in found.items() if (match := regex.fullmatch(name))]
    others = [one for one in moved if one[1] != end.interface]
    return (max(others)[1], max(others)[0]) if others else None
