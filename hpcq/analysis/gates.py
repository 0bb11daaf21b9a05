"""Judge a run by its campaign's gates: the same for `hpcq run`, `results`, `accept` and the page of a run.

campaign's text in the database -> gates -> series of the run -> judge_gates, which asks References what relative gates
                                                                 compare them with
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from hpcq.definition.model import Gate
from hpcq.errors import UserError
from hpcq.gate_kinds.base import End, GateAgainst, MeasuredSeries, Reference
from hpcq.verdict import GateVerdict, Verdict, judge_gates

if TYPE_CHECKING:
    from hpcq.store.database import Connection
    from hpcq.store.selection import Selection

_Made = TypeVar("_Made")
#: The word for a run where everything is there and nothing judges it.
NOT_JUDGED = "not_judged"


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
    from hpcq.store.selection import Selection

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
    from hpcq.store.ledger import campaign_text, descriptions

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
        return against.kind.reference(against, series, self)

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


def with_verdicts(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `hpcq.store.free_query.runs`, each with `coverage_ratio` and `verdict`.

    A gate that failed comes first, then what is missing or could not be judged. History and the ledger take longer to ask:
    the page of a run has them too (hpcq.reports.run_verdict).
    """
    gates = {run: _by_cluster(connection, run) for run in dict.fromkeys(str(row["run"]) for row in rows)}
    found = []
    for row in rows:
        planned, measured = row["planned_count"], row["measured_count"]
        ratio = measured / planned if planned else None
        verdict = _verdict(planned, measured, gates[row["run"]].get(row["cluster"], ()))
        found.append({**row, "coverage_ratio": ratio, "verdict": verdict})
    return found


def _verdict(planned: int | None, measured: int, gates: Sequence[Verdict]) -> str:
    if Verdict.FAILED in gates:
        return Verdict.FAILED
    if not planned or not measured:
        return Verdict.NOT_COVERED
    if measured < planned or Verdict.INCONCLUSIVE in gates:
        return Verdict.INCONCLUSIVE
    return Verdict.PASS if gates else NOT_JUDGED


def _by_cluster(connection: Connection, run: str) -> dict[str, list[Verdict]]:
    """The verdicts of a run's gates. Gates that this hpcq cannot read let no run pass."""
    found: dict[str, list[Verdict]] = {}
    try:
        for one in judge_run(connection, run):
            found.setdefault(one.series.cluster, []).append(one.verdict)
    except UserError:
        rows = connection.execute("SELECT cluster FROM v_runs WHERE run = ?", (run,))
        return {str(row[0]): [Verdict.INCONCLUSIVE] for row in rows}
    return found
