"""Judge a run by its campaign's gates: the same for `hpcq run`, `results`, `accept` and the page of a run.

campaign's text in the database -> gates -> series of the run -> judge_gates, which asks References what relative gates
                                                                 compare them with
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from hpcq.definition.model import Gate
from hpcq.errors import UserError
from hpcq.gate_kinds import End, GateAgainst, MeasuredSeries, Reference
from hpcq.store.selection import Selection
from hpcq.units import count_of
from hpcq.verdict.gates import GateVerdict, judge_gates
from hpcq.verdict.words import Verdict

if TYPE_CHECKING:
    from hpcq.store.database import Connection

_Made = TypeVar("_Made")


def judge_run(connection: Connection, run: str) -> list[GateVerdict]:
    """One verdict per gate and series; none if there are no gates. Raises UserError if the campaign cannot be read."""
    gates = run_gates(connection, run)
    if not gates:
        return []
    references = References(connection, run)
    return judge_gates(gates, references.measured({gate.metric for gate in gates}), references.of)


def judge_selected(connection: Connection, selection: Selection) -> tuple[tuple[GateVerdict, ...], str]:
    """The verdicts on the selected tests of one run, and why its gates could not be judged; empty if they were.

    Gates belong to one run: a selection of several has none.
    """
    from hpcq.store.query import tests_of

    if selection.run is None:
        return (), ""
    try:
        verdicts = judge_run(connection, selection.run)
    except UserError as error:
        return (), error.message
    if not verdicts or selection == Selection(run=selection.run, metric=selection.metric):
        return tuple(verdicts), ""
    tests = tests_of(connection, selection)
    told = (
        (one, (*(getattr(one.series, name) for name in ("cluster", "client", "server", "kernel")), dict(one.series.parameters)))
        for one in verdicts
    )
    return tuple(one for one, (*names, parameters) in told if parameters in tests.get(tuple(names), ())), ""


def run_gates(connection: Connection, run: str) -> tuple[Gate, ...]:
    """The gates of the campaign's file as the run used it."""
    from hpcq.store.query import campaign_text, descriptions

    text = campaign_text(connection, run)
    if text is None or re.search(r"^[\"']?(gates|expect)[\"']?\s*:", text, re.MULTILINE) is None:
        return ()  # parsing YAML takes longer than the rest of a reading verb
    from hpcq.definition.files.campaign import gates_of

    return gates_of(text, f"campaign.yaml of {run}", descriptions(connection))


def shares(
    connection: Connection, runs: Sequence[str], against: GateAgainst, metrics: set[str]
) -> dict[int, list[tuple[float, Reference]]]:
    """By series: its median divided by the reference, run by run, and the reference.

    Series without a reference are left out.
    """
    found: dict[int, list[tuple[float, Reference]]] = {}
    for run in runs:
        references = References(connection, run)
        for series in references.measured(metrics):
            reference = references.against(against, series) if series.values else None
            if reference is not None and reference.value:
                found.setdefault(series.series_id, []).append((median(series.values) / reference.value, reference))
    return found


class References:
    """What the series of one run are compared with: the `Lookup` of gate kinds.

    It queries the database once for each thing.
    """

    def __init__(self, connection: Connection, run: str) -> None:
        self._connection = connection
        self._run = run
        self._kept: dict[tuple[object, ...], Any] = {}
        self._ends: dict[int, tuple[End, End]] = {}

    def measured(self, metrics: set[str]) -> list[MeasuredSeries]:
        """The series of the run in these metrics."""
        return [one for metric in sorted(metrics) for one in self.measured_with(metric, 0.0)]

    def of(self, gate: Gate, series: MeasuredSeries) -> Reference:
        """What the gate compares the series with."""
        assert gate.against is not None  # noqa: S101 - only asked for relative gates
        return self.against(gate.against, series)

    def against(self, against: GateAgainst, series: MeasuredSeries) -> Reference:
        """The reference of a series of this run."""
        kind = against.kind
        try:
            return kind.reference(against, series, self)
        except Exception as error:
            if type(kind).__module__.startswith("hpcq."):
                raise
            reason = f"the plug-in of gate kind {kind.name} failed: {type(error).__name__}: {error}"
            return Reference(kind.name, None, reason=reason)

    def kept(self, key: tuple[object, ...], make: Callable[[], _Made]) -> _Made:
        """The value of `make`, computed once per key."""
        if key not in self._kept:
            self._kept[key] = make()
        made: _Made = self._kept[key]
        return made

    def measured_with(self, metric: str, history_s: float) -> list[MeasuredSeries]:
        """The series of the run, and of runs up to history_s before it, in this metric."""
        from hpcq.store.history import series_values
        from hpcq.store.ledger import runs_before

        def series() -> list[MeasuredSeries]:
            runs = runs_before(self._connection, self._run, history_s) if history_s else [self._run]
            return [MeasuredSeries(*row) for row in series_values(self._connection, tuple(runs), {metric})]

        return self.kept(("series", metric, history_s), series)

    def ends(self, series: Sequence[MeasuredSeries]) -> Mapping[int, tuple[End, End]]:
        """Client and server of these series, by result_id."""
        from hpcq.store.ledger import ends_of

        missing = {one.result_id for one in series if one.result_id not in self._ends}
        if missing:
            self._ends.update(ends_of(self._connection, missing))
        return self._ends

    def baseline(self, name: str, metric: str) -> Mapping[int, list[tuple[float, int]]] | None:
        """The values of the run's series in a baseline's runs; None if there is no such baseline."""
        from hpcq.store.ledger import holding_baseline, values_in_runs

        def values() -> dict[int, list[tuple[float, int]]] | None:
            runs = holding_baseline(self._connection, name)
            series = {one.series_id for one in self.measured_with(metric, 0.0)}
            return None if runs is None else values_in_runs(self._connection, runs, metric, series)

        return self.kept(("baseline", name, metric), values)


@dataclass(frozen=True, slots=True)
class FailedGate:
    """A test of a pair that failed a gate, or what its campaign expects, in the newest run of that campaign."""

    run: str
    verdict: GateVerdict

    @property
    def series_id(self) -> int:
        """Which series it is."""
        return self.verdict.series.series_id

    def to_json(self) -> dict[str, Any]:
        """For --json of every verb that judges."""
        series = self.verdict.series
        named = {name: getattr(series, name) for name in ("series_id", "cluster", "client", "server", "kernel")}
        return {"run": self.run, **named, "gate": self.verdict.gate, "words": self.verdict.words, "bound": self.verdict.bound}


def failed_gates(connection: Connection, begin_utc: str, until_utc: str | None) -> list[FailedGate]:
    """What fails the gates of the newest run of each campaign between these times; a gate that cannot be read fails nothing."""
    rows = connection.execute(
        "SELECT r.name, max(r.created_utc) FROM run r WHERE r.created_utc >= ? AND r.created_utc < ? GROUP BY r.campaign_id"
        " ORDER BY 2 DESC",
        (begin_utc, until_utc or "~"),
    ).fetchall()
    return failed_by(connection, [str(name) for name, _ in rows], Selection())


def failed_by(connection: Connection, runs: Sequence[str], wanted: Selection) -> list[FailedGate]:
    """What fails the gates of these runs, of the selected tests."""
    return [
        FailedGate(name, one)
        for name in runs
        for one in judge_selected(connection, replace(wanted, run=name))[0]
        if one.verdict is Verdict.FAILED
    ]


#: What `nodes` says of a node whose every test in a run is beyond its gate.
BELOW_GATE = "below its gate"


def below_gates(failed: Sequence[FailedGate], connection: Connection) -> set[tuple[str, str]]:
    """Nodes (cluster, name) that fail with everybody they met: of no pair of them a gate is kept."""
    bad = {one.series_id for one in failed}
    fine, beyond = set[tuple[str, str]](), set[tuple[str, str]]()
    for run in dict.fromkeys(one.run for one in failed):
        for series in (one.series for one in judge_run(connection, run)):
            ends = {(series.cluster, series.client), (series.cluster, series.server)}
            (beyond if series.series_id in bad else fine).update(ends)
    return beyond - fine


def failed_lines(failed: Sequence[FailedGate]) -> list[str]:
    """One line per run and gate: `failed: expected: ...: 3 tests, such as alpha: n1 > n2: median ... (run nightly-...)`."""
    together: dict[tuple[str, str], list[GateVerdict]] = {}
    for one in failed:
        together.setdefault((one.run, one.verdict.gate), []).append(one.verdict)
    lines = []
    for (run, gate), members in together.items():
        first = members[0]
        place = f"{first.series.cluster}: {first.series.ends}"
        count = f"{count_of(len(members), 'test')}, such as {place}" if len(members) > 1 else place
        lines.append(f"failed: {gate}: {count}: {first.words} (run {run})")
    return lines
