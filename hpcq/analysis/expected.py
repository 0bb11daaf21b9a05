"""What a test of a run was expected to give, and what the other pairs of its cluster gave a moment before.

    a gate's reference  >  the cluster's earlier runs of the campaign  >  the link's own speed  >  nothing

One value per test: a picture that shows each pair against it shows also what all pairs have in common. While a run goes on,
`Forecast` says it of each value that a job brings, from what is known by then.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hpcq import units
from hpcq.analysis.gates import References
from hpcq.definition.find import kernels_of_run
from hpcq.definition.model import Gate
from hpcq.errors import HpcqError
from hpcq.gate_kinds import LINK, ONE_CORE, End, GateAgainst, MeasuredSeries, Reference
from hpcq.kernels import Better, size_option
from hpcq.run_folder.paths import RunFolder, read_json_or_none, read_regular
from hpcq.store import query
from hpcq.store.database import Connection, reading
from hpcq.store.history import series_values
from hpcq.store.query import Summary, median
from hpcq.store.selection import Selection, metrics_of
from hpcq.verdict.gates import GateVerdict, judge_gates
from hpcq.verdict.words import Verdict

_Made = TypeVar("_Made")

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
    before = _before(database, run)
    link = _links(database, run, own)
    expected = {test: Expected(value, "the link's own speed", is_usual=False) for test, value in link.items()}
    values: dict[Test, list[float]] = {}
    beside: dict[Test, list[float]] = {}
    for name, _ in before:
        for test, level, is_beside in query.main_medians(database, name):
            (beside if is_beside else values).setdefault(test, []).append(level)
    for test, found in beside.items():  # where all there is was measured beside other work, that says more than a limit
        values.setdefault(test, found)
    usual = f"the cluster's earlier runs of this campaign ({len(before)})"
    expected |= {test: Expected(median(found), usual) for test, found in values.items() if len(found) >= _VALUES_MIN}
    expected |= _of_gates(own, gates)
    known = {(test_of(one), one.client, one.server) for one in own}
    tests, others = {test_of(one) for one in own}, []
    for name, recent in before:
        for one in query.summaries(database, Selection(run=name)) if recent else ():
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
            key = (gate.series.cluster, gate.series.kernel, size, gate.series.metric, gate.series.toolchain)
            found.setdefault(key, []).append((gate.reference.value, gate.reference.source))
    made = {}
    for one in own:
        references = found.get((one.cluster, one.kernel, one.message_bytes, one.metric, one.toolchain))
        if references:
            sources = {source for _, source in references}
            source = sources.pop() if len(sources) == 1 else "what the gates compare with"
            made[test_of(one)] = Expected(median([value for value, _ in references]), source)
    return made


# ----------------------------------------------------------------------------------------------------------------------
# While a run goes on.


#: Cluster, kernel, parameters, metric, network, toolchain. The database gives 10 back for 10.0: equal here, and not as text.
_TestKey = tuple[str, str, frozenset[tuple[str, Any]], str, str, str]
#: Pairs of one test differ by place and by moment; what lies further from their median than this is told.
_USUAL_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class ShareOfExpected:
    """A value as a share of what was expected. source: what says so, in words. bound: empty, or what it must be and is not.

    judged: whether a bound was there to hold it against; a share of the link alone is a note. disturbed: below its bound, and
    measured beside other work, so that nothing is judged either.
    """

    ratio: float
    source: str
    bound: str = ""
    judged: bool = True
    disturbed: bool = False


class Forecast:
    """What the tests of a run are expected to give, before it is loaded: gates whose reference is known by now, the cluster's
    earlier runs of the campaign, the link's own speed. It is the `Lookup` of gate kinds for one job.
    """

    def __init__(self, folder: RunFolder) -> None:
        run = folder.described_run()
        self._folder = folder
        self._kernels = kernels_of_run(folder.described)
        self._gates = _gates_of_folder(folder)
        self._database, self._campaign = Path(run["database"]), str(run["campaign"])
        self._ends: tuple[End, End] | None = None
        self._usual: dict[_TestKey, float] | None = None

    def share(self, series: MeasuredSeries, ends: tuple[End, End] | None) -> ShareOfExpected | None:
        """Hold the values of one job's test against what is expected; None if nothing is. ends: None without their facts."""
        self._ends, value = ends, median(series.values)
        for one in judge_gates(self._gates, [series], self._refer):
            bound = f"must be {one.bound}" if one.verdict is Verdict.FAILED else ""
            disturbed = one.verdict is Verdict.INCONCLUSIVE
            if one.share_ratio is not None and one.reference is not None:
                return ShareOfExpected(one.share_ratio, one.reference.source, bound, disturbed=disturbed)
            if one.limit and one.against is None:
                return ShareOfExpected(value / one.limit, "the campaign's bound", bound, disturbed=disturbed)
        if usual := self._usual_of(series):
            found = self._kernels[series.kernel].metric(series.metric)
            better = found is not None and found.better is Better.LOWER
            worse = value > usual / _USUAL_SHARE if better else value < usual * _USUAL_SHARE
            bound = "other pairs and runs differ less" if worse and not series.disturbed else ""
            return ShareOfExpected(value / usual, "usual", bound, disturbed=worse and series.disturbed)
        from hpcq.definition.files.gates import fills_a_link

        if ends is not None and series.metric == "throughput_bps" and fills_a_link(series.kernel, series.parameters):
            link = LINK.reference(GateAgainst(LINK, ONE_CORE), series, self)
            return ShareOfExpected(value / link.value, link.source, judged=False) if link.value else None
        return None

    def _refer(self, gate: Gate, series: MeasuredSeries) -> Reference:
        assert gate.against is not None  # noqa: S101 - only asked for relative gates
        if self._ends is None:
            return Reference(str(gate.against), None, reason="the job left no facts")
        return gate.against.kind.reference(gate.against, series, self)

    def _usual_of(self, series: MeasuredSeries) -> float | None:
        if self._usual is None:
            try:
                self._usual = _usual(self._database, self._campaign)
            except HpcqError:  # the first run makes the database
                self._usual = {}
        record = read_json_or_none(self._folder.build(series.cluster)) or {}
        return self._usual.get(_test_key(series, series.toolchain or str(record.get("toolchain") or "default")))

    def ends(self, series: Sequence[MeasuredSeries]) -> Mapping[int, tuple[End, End]]:
        """Client and server of the job."""
        return {one.result_id: self._ends for one in series if self._ends is not None}

    def baseline(self, name: str, metric: str) -> None:
        """Not known while the run goes on: its series have no numbers yet."""

    def measured_with(self, metric: str, history_s: float) -> Sequence[MeasuredSeries]:  # noqa: ARG002
        """Nothing: the other pairs are still being measured."""
        return ()

    def kept(self, key: tuple[object, ...], make: Callable[[], _Made]) -> _Made:  # noqa: ARG002
        """What `make` returns."""
        return make()


def _gates_of_folder(folder: RunFolder) -> tuple[Gate, ...]:
    """The gates of a run's copy of its campaign; none if they cannot be read, which other stages complain of."""
    from hpcq.definition.files.campaign import gates_of

    try:
        descriptions = {path.stem: read_regular(path).decode() for path in folder.described.glob("*.yaml")}
        return gates_of(read_regular(folder.campaign_yaml).decode(), str(folder.campaign_yaml), descriptions)
    except (HpcqError, OSError):
        return ()


def _usual(database: Path, campaign: str) -> dict[_TestKey, float]:
    """The median over all pairs in the last runs of a campaign, by what makes a test."""
    found: dict[_TestKey, list[float]] = {}
    with reading(database) as connection:
        rows = connection.execute(
            "SELECT r.name FROM run r JOIN campaign c ON c.campaign_id = r.campaign_id WHERE c.name = ?"
            " ORDER BY r.created_utc DESC LIMIT ?",
            (campaign, _RUNS),
        )
        runs = [str(row[0]) for row in rows]
        mains = {one.name for one in metrics_of(connection, None).values()} if runs else set()
        toolchains = dict(connection.execute("SELECT series_id, toolchain FROM series").fetchall()) if runs else {}
        for series in (MeasuredSeries(*row) for row in series_values(connection, runs, mains)):
            if series.values:
                found.setdefault(_test_key(series, toolchains[series.series_id]), []).append(median(series.values))
    return {key: median(values) for key, values in found.items() if len(values) >= _VALUES_MIN}


def _test_key(series: MeasuredSeries, toolchain: str) -> _TestKey:
    """toolchain: that of the series even where its kernel ran with no other one, as it may have in other runs."""
    parameters = frozenset(series.parameters.items())
    return series.cluster, series.kernel, parameters, series.metric, series.network, toolchain
