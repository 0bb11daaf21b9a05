"""What a test of a run was expected to give, and what the other pairs of its cluster gave a moment before.

    a gate's reference  >  the cluster's earlier runs of the campaign  >  the link's own speed  >  nothing

One value per test: a picture that shows each pair against it shows also what all pairs have in common.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hpcq import units
from hpcq.analysis.gates import References
from hpcq.gate_kinds.base import GateAgainst
from hpcq.gate_kinds.link import KIND as LINK
from hpcq.kernels import size_option
from hpcq.store import query
from hpcq.store.database import Connection
from hpcq.store.query import Summary, median
from hpcq.store.selection import Selection
from hpcq.verdict import GateVerdict

#: Earlier runs of the campaign that say what is usual.
_RUNS = 10
_DAYS = 120
#: Of fewer pairs, the earlier runs say what is usual of one pair, not of a test.
_VALUES_MIN = 3
#: Runs of one campaign within so many hours are one undertaking: an acceptance measures its suspects again.
_TOGETHER_HOURS = 12
#: Series whose link is looked up for one test.
_ENDS = 8
#: So many of a test are asked for theirs: where the facts of these say nothing, a thousand more will not either.
_ASKED = 64

#: Cluster, kernel, size, variant, metric.
Test = tuple[str, str, int | None, str, str]


@dataclass(frozen=True, slots=True)
class Expected:
    """A value in the metric's own unit, and what says so in words. is_usual: it was measured, and is no mere limit."""

    value: float
    source: str
    is_usual: bool = True


@dataclass(frozen=True, slots=True)
class Around:
    """What stands around a run. expected, link_bps: by test. others: results of the same undertaking of pairs that this run
    did not measure itself, newest first.
    """

    expected: dict[Test, Expected]
    link_bps: dict[Test, float]
    others: tuple[Summary, ...]


def test_of(one: Summary) -> Test:
    """Which test a summary belongs to."""
    return one.cluster, one.kernel, one.message_bytes, one.variant, one.metric


def around(database: Connection, run: str, own: Sequence[Summary], gates: Sequence[GateVerdict]) -> Around:
    """Look around a run whose main metrics are `own`."""
    earlier = [(created, query.summaries(database, Selection(run=name))) for name, created in _before(database, run)]
    link = _links(database, run, own)
    expected = {test: Expected(value, "the link's own speed", is_usual=False) for test, value in link.items()}
    values: dict[Test, list[float]] = {}
    for _, rows in earlier:
        for one in rows:
            if one.main and one.disturbed_count < one.n:
                values.setdefault(test_of(one), []).append(one.median)
    usual = f"the cluster's earlier runs of this campaign ({len(earlier)})"
    expected |= {test: Expected(median(found), usual) for test, found in values.items() if len(found) >= _VALUES_MIN}
    expected |= _of_gates(own, gates)
    known = {(test_of(one), one.client, one.server) for one in own}
    tests, others = {test_of(one) for one in own}, []
    for recent, rows in earlier:
        for one in rows if recent else ():
            key = (test_of(one), one.client, one.server)
            if key not in known and key[0] in tests:
                known.add(key)
                others.append(one)
    return Around({test: one for test, one in expected.items() if one.value > 0}, link, tuple(others))


def _before(database: Connection, run: str) -> list[tuple[str, bool]]:
    """The campaign's runs before this one, newest first, and whether they are of the same undertaking."""
    rows = database.execute(
        "SELECT r.name, r.created_utc, o.created_utc FROM run r JOIN run o ON o.campaign_id = r.campaign_id"
        " WHERE o.name = ? AND r.created_utc < o.created_utc ORDER BY r.created_utc DESC LIMIT ?",
        (run, _RUNS),
    )
    found = []
    for name, created, now in rows:
        age = units.parse_utc(str(now)) - units.parse_utc(str(created))
        if age <= dt.timedelta(days=_DAYS):
            found.append((str(name), age <= dt.timedelta(hours=_TOGETHER_HOURS)))
    return found


def _links(database: Connection, run: str, own: Iterable[Summary]) -> dict[Test, float]:
    """By test of a throughput: the median speed of the links that it was measured over, where facts show it."""
    wanted = {one.metric for one in own if one.unit == "bps" and one.better == "higher"}
    references = References(database, run)
    against = GateAgainst(LINK)
    by_test: dict[tuple[Any, ...], list[float]] = {}
    asked = Counter[tuple[Any, ...]]()
    for series in references.measured(wanted):
        key = (series.cluster, series.kernel, series.parameters.get(size_option(series.kernel) or ""), series.metric)
        found = by_test.setdefault(key, [])
        if series.values and len(found) < _ENDS and asked[key] < _ASKED:
            asked[key] += 1
            reference = references.against(against, series)
            found += [reference.value] if reference.value else []
    made = {}
    for one in own:
        speeds = by_test.get((one.cluster, one.kernel, one.message_bytes, one.metric))
        if speeds:
            made[test_of(one)] = median(speeds)
    return made


def _of_gates(own: Iterable[Summary], gates: Iterable[GateVerdict]) -> dict[Test, Expected]:
    """What relative gates compare with, the median over their series."""
    found: dict[tuple[Any, ...], list[tuple[float, str]]] = {}
    for gate in gates:
        if gate.reference is not None and gate.reference.value:
            size = gate.series.parameters.get(size_option(gate.series.kernel) or "")
            key = (gate.series.cluster, gate.series.kernel, size, gate.series.metric)
            found.setdefault(key, []).append((gate.reference.value, gate.reference.source))
    made = {}
    for one in own:
        references = found.get((one.cluster, one.kernel, one.message_bytes, one.metric))
        if references:
            sources = {source for _, source in references}
            source = sources.pop() if len(sources) == 1 else "what the gates compare with"
            made[test_of(one)] = Expected(median([value for value, _ in references]), source)
    return made
