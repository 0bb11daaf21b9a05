"""The verdict of an acceptance on a test that a set of nodes ran together, against its earlier jobs. Pure.

It names no node. A node stays what its pairs say of it, and what the pairs of the set say stands beside the verdict.

    FAIL          in two jobs or more: nothing came, or slower than the earlier jobs by 10 % at least and beyond their scatter
    INCONCLUSIVE  so in one job only, or in one and not in another; or beside other work; or nothing to compare it with
    NOT COVERED   no job of it ran
    PASS          otherwise; the reason says which slowdown it would have reported
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import median, stdev

from hpcq.judge.acceptance import NO_REFERENCE
from hpcq.units import count_of
from hpcq.verdict.node_sets import PairsOfSet, set_name
from hpcq.verdict.record import Thing, VerdictRecord
from hpcq.verdict.words import Verdict

#: Less is not told: where it comes from cannot be said of a set, and the pairs are judged by less.
EFFECT = -log(0.9)
#: How far jobs of one test scatter: the least, where fewer earlier jobs are known than that, and how many that is.
SCATTER_LEAST, SCATTER_ASSUMED, SCATTER_JOBS = 0.005, 0.05, 5
#: A job is slow beyond so many standard deviations of its difference from the earlier ones.
SIGMAS = 3.0
#: Nothing is told after one job.
JOBS_MIN = 2


@dataclass(frozen=True, slots=True)
class SetJob:
    """One job. value: oriented logarithm, higher is better; None: it brought nothing, and ran only if `lost_count`."""

    value: float | None
    lost_count: int = 0
    disturbed: bool = False


@dataclass(frozen=True, slots=True)
class CollectiveVerdict:
    """A verdict on one test of a set. ratio: its speed as a share of the earlier jobs'. pairs: what its pairs say.

    nodes: empty if no set could run it. measured_utc: start of the first job that ran.
    """

    test: str
    nodes: tuple[str, ...]
    verdict: Verdict
    reason: str
    ratio: float | None
    pairs: PairsOfSet
    measured_utc: str | None = None

    @property
    def name(self) -> str:
        """`mpi_collective 64 KiB on n[1-8]`: its name in the ledger."""
        return f"{self.test} on {set_name(self.nodes)}" if self.nodes else self.test

    @property
    def why(self) -> str:
        """The reason; of a bad one, with what its pairs say."""
        of_pairs = "" if self.verdict in {Verdict.PASS, Verdict.NOT_COVERED} else f"; its pairs: {self.pairs.words}"
        return f"{self.reason}{of_pairs}"

    @property
    def words(self) -> str:
        """`collective mpi_collective 64 KiB on n[1-8]: ...`: the line for people."""
        return f"collective {self.name}: {self.why}"


def records_of(verdicts: Iterable[CollectiveVerdict]) -> tuple[VerdictRecord, ...]:
    """What the ledger keeps: one record per test of a set, and the worst where two networks or toolchains ran it.

    Without a set there is nothing to keep a verdict on.
    """
    worst: dict[str, CollectiveVerdict] = {}
    for one in verdicts:
        known = worst.get(one.name)
        if one.nodes and (known is None or _GRAVITY.index(one.verdict) > _GRAVITY.index(known.verdict)):
            worst[one.name] = one
    return tuple(
        VerdictRecord(Thing.COLLECTIVE, name, one.verdict, one.why, one.nodes, one.ratio, one.measured_utc)
        for name, one in worst.items()
    )


_GRAVITY = (Verdict.PASS, Verdict.NOT_COVERED, Verdict.INCONCLUSIVE, Verdict.DEGRADED, Verdict.FAILED)


def judge_collective(
    test: str, pairs: PairsOfSet, before: Sequence[float], jobs: Sequence[SetJob], why: str = ""
) -> CollectiveVerdict:
    """Judge one test of one set. before: one value per earlier job. why: the commonest reason of what failed."""
    ran = [one for one in jobs if one.value is not None or one.lost_count]
    values = [one.value for one in ran if one.value is not None]
    level = median(before) if before else None
    ratio = exp(median(values) - level) if values and level is not None else None
    verdict, reason = _said(ran, level, slow_below(before), why)
    return CollectiveVerdict(test, pairs.nodes, verdict, reason, ratio, pairs)


def slow_below(before: Sequence[float]) -> float:
    """How far below the earlier jobs one is slow: a logarithm, above 0."""
    known = len(before) >= SCATTER_JOBS
    scatter = max(SCATTER_LEAST, stdev(before)) if known else SCATTER_ASSUMED
    return max(EFFECT, SIGMAS * scatter * sqrt(1 + 1 / max(1, len(before))))


def _said(ran: Sequence[SetJob], level: float | None, bound: float, why: str) -> tuple[Verdict, str]:
    if not ran:
        return Verdict.NOT_COVERED, why or "no job of it ran"
    nothing = [one for one in ran if one.value is None]
    changes = [(one, one.value - level) for one in ran if one.value is not None and level is not None]
    slow = [(one, change) for one, change in changes if change < -bound]
    bad = len(nothing) + len(slow)
    parts = [f"brings nothing in {len(nothing)} of {count_of(len(ran), 'job')}: {why}"] if nothing else []
    if slow:
        middle = -100 * (exp(median(change for _, change in slow)) - 1)
        parts.append(f"{middle:.0f} % slower than before in {len(slow)} of {count_of(len(ran), 'job')}")
    said = "; ".join(parts)
    lost = sum(one.lost_count for one in ran)
    doubts = (
        (0 < bad < len(ran), f"{said}, fine in another"),
        (bad and len(ran) < JOBS_MIN, f"{said}; seen in one job only"),
        (any(one.disturbed for one, _ in slow), f"{said}; beside other work"),
        (not bad and level is None, f"{NO_REFERENCE}: no earlier job of this set"),
        (not bad and lost, f"{count_of(lost, 'repetition')} brought nothing: {why}"),
    )
    doubt = next((words for holds, words in doubts if holds), None)
    if doubt is not None:
        return Verdict.INCONCLUSIVE, doubt
    if bad:
        return Verdict.FAILED, said
    change = 100 * (exp(median(change for _, change in changes)) - 1)
    told = 100 * (1 - exp(-bound))
    return Verdict.PASS, f"{change:+.1f} % against before in {count_of(len(ran), 'job')}; {told:.0f} % slower would be found"
