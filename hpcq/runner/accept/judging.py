"""Turn loaded runs into verdicts: points, facts about nodes, what changed, and since when the cluster is slower."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from hpcq.analysis import change_context, pair_values
from hpcq.analysis.series_outcomes import outcomes_in
from hpcq.errors import UserError
from hpcq.kernels import Better
from hpcq.runner.accept.expected import oriented
from hpcq.runner.accept.values import Measured, measured
from hpcq.scheduler.administration import Upkeep
from hpcq.store import time_windows
from hpcq.store.database import Connection, reading
from hpcq.verdict.acceptance.found import Known
from hpcq.verdict.acceptance.judge import Acceptance, judge
from hpcq.verdict.acceptance.points import Scale
from hpcq.verdict.acceptance.standing import Sides
from hpcq.verdict.causes import rank, say
from hpcq.verdict.record import VerdictRecord
from hpcq.verdict.words import Verdict

#: How many runs to search for the moment when a cluster got slower.
SINCE_RUNS = 60
#: How many results per side to compare for facts that differ.
FACTS_OF_RESULTS = 40


class Judging:
    """One cluster's results so far, against its reference."""

    def __init__(self, database: Path, cluster: str, reference: Sequence[int], baseline: str | None) -> None:
        self.database = database
        self.cluster = cluster
        self.reference = reference
        self.baseline = baseline
        self.leaf_of: Mapping[str, str] = {}
        self.standing: Sequence[Sides] = ()

    def check_baseline(self) -> None:
        """Raise UserError for a baseline without any value on this cluster: nothing would have a reference."""
        if self.baseline is None:
            return
        with reading(self.database) as database:
            if not any(one.values for one in outcomes_in(database, self.reference, cluster=self.cluster)):
                raise UserError(
                    f"--against: baseline {self.baseline!r} has no value on {self.cluster}: nothing can be compared with it",
                    f"hpcq baseline set {self.baseline} RUN, with a run that measured {self.cluster}",
                )

    def points(self, runs: Sequence[str]) -> Measured:
        """Return what these runs measured, as points."""
        with reading(self.database) as database:
            return measured(
                database, self.cluster, runs, reference=self.reference, leaf_of=self.leaf_of, baseline=self.baseline
            )

    def verdicts(
        self, targets: Sequence[str], found: Measured, missing: Mapping[str, str], now: Upkeep | None = None
    ) -> Acceptance:
        """Judge the targets.

        now: the scheduler's report after the measurement, which shows nodes that booted meanwhile.
        """
        booted = dict(found.booted)
        for node, state in now.nodes.items() if now is not None else ():
            first_utc = found.first_utc.get(node)
            if first_utc is not None and state.started_utc is not None and state.started_utc > first_utc:
                booted.setdefault(node, f"its daemon started {state.started_utc}")
        known = Known(missing, self.leaf_of, found.flaws, booted, self.standing, found.sleep)
        verdicts = judge(targets, found.points, known, self.cluster)
        dated = tuple(replace(one, measured_utc=found.first_utc.get(one.name)) for one in verdicts.nodes)
        return replace(verdicts, nodes=dated)

    def changed(self, verdicts: Acceptance, run_ids: Sequence[int]) -> dict[str, str]:
        """Return what differs between the reference and now, on nodes at fault and on the whole cluster."""
        found = {}
        with reading(self.database) as database:
            for one in (*verdicts.clusters, *verdicts.nodes):
                if one.verdict in {Verdict.FAILED, Verdict.DEGRADED}:
                    found[one.name] = (
                        self._differs(database, one, run_ids) or "nothing that hpcq knows of differs from the reference"
                    )
        return found

    def with_since(self, verdicts: Acceptance) -> Acceptance:
        """Add to the cluster's verdict the run since which the cluster is slower."""
        if not verdicts.clusters or self.baseline is None:
            return verdicts
        with reading(self.database) as database:
            since = self._since(database)
        return replace(
            verdicts,
            clusters=tuple(replace(one, reason=f"{one.reason}; {since}") for one in verdicts.clusters)
            if since
            else verdicts.clusters,
        )

    def _differs(self, database: Connection, one: VerdictRecord, run_ids: Sequence[int]) -> str:
        nodes = one.nodes or self._nodes(database, run_ids)
        most = max(2, FACTS_OF_RESULTS // max(1, 2 * len(nodes)))
        facts: list[list[Mapping[tuple[str, str], Any]]] = [[], []]
        for node in nodes:
            before, after = (
                pair_values.results_of_node(database, self.cluster, node, runs, most) for runs in (self.reference, run_ids)
            )
            # Together: what is the same in all of one side is left out only if it is the same in the other one, too.
            points = change_context.facts_of(database, [*before, *after])
            called = [_of_node(point, node, "" if one.nodes else "nodes") for point in points]
            facts[0] += called[: len(before)]
            facts[1] += called[len(before) :]
        return say(rank(*facts), 5)

    def _nodes(self, database: Connection, run_ids: Sequence[int]) -> tuple[str, ...]:
        pairs = pair_values.pairs_of(database, self.cluster, run_ids)
        return tuple(sorted({node for pair in pairs for node in pair}))

    def _since(self, database: Connection) -> str:
        """Return since which run the cluster's level is below its baseline.

        Form: `slower since run X (UTC), as expected last in Y`.
        """
        expected = {
            one.series_id: median(oriented(value, Better(one.better)) for value in one.values)
            for one in outcomes_in(database, self.reference, cluster=self.cluster)
            if one.values and one.better != Better.NONE.value
        }
        levels: list[tuple[str, str, float]] = []
        for run_id in time_windows.newest_runs(database, self.cluster, SINCE_RUNS):
            series = [
                one for one in outcomes_in(database, [run_id], cluster=self.cluster) if one.values and one.series_id in expected
            ]
            if series:
                changes = [oriented(one.values[0], Better(one.better)) - expected[one.series_id] for one in series]
                levels.append((series[0].jobs[0].run, series[0].jobs[0].started_utc, median(changes)))
        return since_words(levels)


def since_words(levels: Iterable[tuple[str, str, float]]) -> str:
    """Return these words; empty if the newest run is as expected.

    levels: (run, UTC, change from the baseline) of runs, the newest first.
    """
    bound = -Scale.speed(0.0).effect / 2
    first: tuple[str, str, float] | None = None
    for one in levels:
        if one[2] > bound:
            if first is None:
                return ""
            return f"slower since run {first[0]} ({first[1][:16]}Z), as expected last in run {one[0]} ({one[1][:16]}Z)"
        first = one
    return f"slower since run {first[0]} ({first[1][:16]}Z) at least" if first else ""


def _of_node(facts: Mapping[tuple[str, str], Any], node: str, called: str = "") -> dict[tuple[str, str], Any]:
    """Return the facts of one node, whichever end it was, and those of the build. called: another name for the node."""
    kept = {}
    for (where, name), value in facts.items():
        if where in {f"client {node}", f"server {node}"}:
            kept[called or node, name] = value
        elif where == "build":
            kept[where, name] = value
    return kept
