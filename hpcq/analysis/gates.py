"""A run's results held against its campaign's gates: the same for `hpcq run`, `results`, `accept` and the page of a run.

campaign's text in the database -> gates -> series of the run -> judge_gates, which asks References for what relative gates
                                                                 hold them against
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from hpcq.definition.model import Gate, GateAgainst, GateKind
from hpcq.verdict import GateVerdict, MeasuredSeries, judge_gates
from hpcq.verdict.gates import Reference

if TYPE_CHECKING:
    from hpcq.store.database import Connection
    from hpcq.verdict.references import End, Peers


def judge_run(connection: Connection, run: str) -> list[GateVerdict]:
    """One verdict a gate and series; none where there are no gates. Raises UserError for a campaign that cannot be read."""
    gates = run_gates(connection, run)
    if not gates:
        return []
    references = References(connection, run)
    return judge_gates(gates, references.measured({gate.metric for gate in gates}), references.of)


def run_gates(connection: Connection, run: str) -> tuple[Gate, ...]:
    """The gates of the campaign's file as the run had it."""
    from hpcq.store.references import campaign_text

    text = campaign_text(connection, run)
    if text is None or re.search(r"^[\"']?gates[\"']?\s*:", text, re.MULTILINE) is None:
        return ()  # reading YAML takes longer than all the rest of a reading verb
    from hpcq.definition.campaign import gates_of

    return gates_of(text, f"campaign.yaml of {run}")


def shares(
    connection: Connection, runs: Sequence[str], against: GateAgainst, metrics: set[str]
) -> dict[int, list[tuple[float, Reference]]]:
    """By series: what its median was as a share of the reference, run by run, with the reference; where it stood."""
    found: dict[int, list[tuple[float, Reference]]] = {}
    for run in runs:
        references = References(connection, run)
        for series in references.measured(metrics):
            reference = references.against(against, series) if series.values else None
            if reference is not None and reference.value:
                found.setdefault(series.series_id, []).append((median(series.values) / reference.value, reference))
    return found


class References:
    """What the series of one run are held against; asks the database once for each kind."""

    def __init__(self, connection: Connection, run: str) -> None:
        self._connection = connection
        self._run = run
        self._measured: dict[tuple[str, tuple[str, ...]], list[MeasuredSeries]] = {}
        self._ends: dict[int, tuple[End, End]] = {}
        self._peers: dict[tuple[str, float], Peers] = {}
        self._baselines: dict[tuple[str, str], dict[int, list[tuple[float, int]]] | None] = {}

    def measured(self, metrics: set[str]) -> list[MeasuredSeries]:
        """The series of the run in these metrics."""
        return [one for metric in sorted(metrics) for one in self._series(metric, (self._run,))]

    def of(self, gate: Gate, series: MeasuredSeries) -> Reference:
        """What the gate holds the series against."""
        assert gate.against is not None  # noqa: S101 - only asked for relative gates
        return self.against(gate.against, series)

    def against(self, against: GateAgainst, series: MeasuredSeries) -> Reference:
        """The reference of a series of this run."""
        from hpcq.verdict.references import baseline_reference, link_reference, memory_reference

        if against.kind is GateKind.BASELINE:
            values = self._baseline(against.baseline, series.metric)
            mine = None if values is None else values.get(series.series_id, [])
            return baseline_reference(against.baseline, mine, against.at_least)
        if against.kind is GateKind.PEERS:
            self._look_up([series])
            return self._peers_of(series.metric, against.history_s).reference(series, against.at_least)
        self._look_up([series])
        ends = self._ends[series.result_id]
        return link_reference(series, ends) if against.kind is GateKind.LINK else memory_reference(ends)

    def _series(self, metric: str, runs: tuple[str, ...]) -> list[MeasuredSeries]:
        from hpcq.store.series import series_values

        if (metric, runs) not in self._measured:
            self._measured[metric, runs] = [MeasuredSeries(*row) for row in series_values(self._connection, runs, {metric})]
        return self._measured[metric, runs]

    def _peers_of(self, metric: str, history_s: float) -> Peers:
        from hpcq.store.references import runs_before
        from hpcq.verdict.references import Peers

        if (metric, history_s) not in self._peers:
            runs = runs_before(self._connection, self._run, history_s) if history_s else [self._run]
            others = self._series(metric, tuple(runs))
            self._look_up(others)
            self._peers[metric, history_s] = Peers(others, self._ends)
        return self._peers[metric, history_s]

    def _look_up(self, series: Sequence[MeasuredSeries]) -> None:
        from hpcq.store.references import ends_of

        missing = {one.result_id for one in series} - self._ends.keys()
        if missing:
            self._ends |= ends_of(self._connection, missing)

    def _baseline(self, name: str, metric: str) -> dict[int, list[tuple[float, int]]] | None:
        from hpcq.store.references import holding_baseline, values_in_runs

        if (name, metric) not in self._baselines:
            runs = holding_baseline(self._connection, name)
            series = {one.series_id for one in self._series(metric, (self._run,))}
            found = None if runs is None else values_in_runs(self._connection, runs, metric, series)
            self._baselines[name, metric] = found
        return self._baselines[name, metric]
