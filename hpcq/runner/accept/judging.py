"""Turn loaded runs into verdicts: values of jobs, facts about nodes, what changed, and since when the cluster is slower."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log, nan
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from hpcq.analysis import change, pair_values
from hpcq.analysis.change import rank, say
from hpcq.analysis.gates import References, judge_run
from hpcq.analysis.series_outcomes import JobOutcome, SeriesOutcome, of_pairs, outcomes_in
from hpcq.definition.derive import measures_alone
from hpcq.errors import UserError
from hpcq.gate_kinds import GateAgainst, gate_kinds
from hpcq.judge.acceptance import EFFECT, PACKETS, Known
from hpcq.judge.acceptance import judge_run as judge_values
from hpcq.judge.values import NOBODY, Floats, Night, Outcome, Test, Values
from hpcq.kernels import Better
from hpcq.nodelist import natural
from hpcq.scheduler.administration import Upkeep
from hpcq.store import ledger, query, selection
from hpcq.store.database import Connection, reading
from hpcq.store.read.evidence_queries import Flaw, flaws_in
from hpcq.store.read.judged_values import hardware_of
from hpcq.store.selection import Selection, run_id_of
from hpcq.units import parse_utc
from hpcq.verdict.acceptance import LOST_SHARE, Acceptance, Pair, Sides, acceptance_of, not_covered
from hpcq.verdict.words import Thing, Verdict, VerdictRecord

#: A metric without a direction has no slow values: all are alike.
ALIKE = 0.0
_TINY = 1e-300


def oriented(value: float, better: Better) -> float:
    """The logarithm of a value, so that higher is better."""
    sign = -1.0 if better is Better.LOWER else 1.0
    return ALIKE if better is Better.NONE else sign * log(max(value, _TINY))


@dataclass(frozen=True, slots=True)
class Measured:
    """What acceptance runs measured. values, before: of these runs and of the reference; None: nothing.

    known: what the judge must know apart from values. counts: by pair, in how many of these runs it was. first_utc:
    start of each node's first measurement.
    """

    values: Values | None = None
    before: Values | None = None
    known: Known = field(default_factory=Known)
    counts: Counter[Pair] = field(default_factory=Counter)
    first_utc: Mapping[str, str] = field(default_factory=dict)


def measured(
    database: Connection, cluster: str, runs: Sequence[str], *, reference: Sequence[int], leaf_of: Mapping[str, str],
    baseline: str | None,
) -> Measured:  # fmt: skip
    """Return the jobs of these runs, each run as a night of its own, and those of the reference runs.

    Two values judge each test: its main metric, and the share of packets that arrived. A good congestion control hides
    5 % packet loss from the throughput of a short network, and a median round trip never shows it.
    baseline: its name, if the reference is one.
    """
    run_ids = [run_id_of(database, run) for run in runs]
    if not run_ids:
        return Measured()
    earlier = [one for one in reference if one not in run_ids]
    now = of_pairs(outcomes_in(database, run_ids, Selection(cluster=cluster)))
    before = of_pairs(outcomes_in(database, earlier, Selection(cluster=cluster))) if earlier else []
    names = pair_values.names_of_tests(database, [*run_ids, *earlier])
    losses = pair_values.losses_in(database, [*run_ids, *earlier], cluster)
    hardware = hardware_of(database, [*run_ids, *earlier], cluster)
    broken, unclear, least = _gates(database, runs)
    usual = {
        test: disturbed_as_usual(one for one in (*before, *now) if names[one.test] == test) for test in set(names.values())
    }
    mine = _Columns(now, names, losses, leaf_of, hardware, usual)
    values = mine.values()
    apart = {run for run in runs if measures_alone(query.campaign_text(database, run) or "{}")}
    known = Known(
        allowed=mine.allowed(least),
        broken=mine.of_series(broken) | mine.lost_in_part(),
        open_gates=mine.of_series(unclear),
        reasons=mine.reasons(),
        flaws=_flaws(database, cluster, run_ids, earlier if baseline else (), {node for one in now for node in _ends(one)}),
        booted={
            node: f"seen with {len(seen)} boots, the last one from {seen[-1][1]} on"
            for node, seen in pair_values.boots_in(database, run_ids, cluster).items()
            if len(seen) > 1
        },
        notes=pair_values.sleep_in(database, run_ids, cluster),
        alone=frozenset(number for number, night in enumerate(values.nights) if night.name in apart),
    )
    counts = Counter(pair for pair, _ in {(_ends(one), job.run) for one in now for job in one.jobs})
    past = _Columns(before, names, losses, leaf_of, hardware, usual).values() if before else None
    return Measured(values, past, known, counts, _first_utc(now))


class _Columns:
    """Series of pairs as columns: a row per job and test, and one more where the packets that arrived are known."""

    def __init__(  # noqa: PLR0917 - tables by key
        self,
        series: Sequence[SeriesOutcome],
        names: Mapping[tuple[str, str, str, str], str],
        losses: Mapping[int, Mapping[tuple[str, str], float]],
        leaf_of: Mapping[str, str],
        hardware: Mapping[str, str],
        usual: Mapping[str, bool],
    ) -> None:
        self._leaf_of, self._hardware = leaf_of, hardware
        self._nodes = sorted({node for one in series for node in _ends(one)})
        self._starts: dict[str, str] = {}
        self._rows: list[tuple[str, str, SeriesOutcome, JobOutcome, float, Outcome]] = []
        self._tests: dict[str, Better] = {}
        for one in series:
            test = names[one.test]
            self._tests.setdefault(test, Better(one.better))
            for job in one.jobs:
                self._starts[job.run] = min(self._starts.get(job.run, job.started_utc), job.started_utc)
                value, outcome = _job(one, job, usual=usual[test])
                self._rows.append((test, job.run, one, job, value, outcome))
                lost = losses.get(one.series_id, {}).get((job.run, job.job))
                if lost is not None and outcome is not Outcome.FAILED:
                    packets = f"{test}{PACKETS}"
                    self._tests.setdefault(packets, Better.HIGHER)
                    self._rows.append((packets, job.run, one, job, log(max(1 - lost, _TINY)), outcome))

    def values(self) -> Values:
        """The columns."""
        nodes = {name: number for number, name in enumerate(self._nodes)}
        runs = sorted(self._starts, key=lambda run: (self._starts[run], run))
        # In the order of their names, whichever ran first: two clusters say the same of the same fault.
        tests = sorted(self._tests, key=lambda name: (natural(name.removesuffix(PACKETS)), name.endswith(PACKETS)))
        places = {name: number for number, name in enumerate(tests)}, {name: number for number, name in enumerate(runs)}
        classes = sorted(set(self._hardware.values()))
        usual = Counter(self._hardware.values()).most_common(1)
        kind = [classes.index(self._hardware.get(name, usual[0][0])) if usual else NOBODY for name in self._nodes]
        groups = sorted(set(self._leaf_of.values()), key=natural)
        group = [groups.index(self._leaf_of[name]) if name in self._leaf_of else NOBODY for name in self._nodes]
        return Values(
            np.array([places[1][row[1]] for row in self._rows], np.int32),
            np.array([places[0][row[0]] for row in self._rows], np.int32),
            np.array([nodes[row[2].client] for row in self._rows], np.int32),
            np.array([nodes[row[2].server] for row in self._rows], np.int32),
            np.array([row[4] for row in self._rows], np.float64),
            np.array([row[5] for row in self._rows], np.int8),
            tuple(Night(run, parse_utc(self._starts[run]).timestamp()) for run in runs),
            tuple(Test(name, self._tests[name]) for name in tests),
            tuple(self._nodes), np.array(kind, np.int32), np.array(group, np.int32), tuple(classes), tuple(groups),
        )  # fmt: skip

    def of_series(self, words: Mapping[tuple[str, int], str]) -> dict[int, str]:
        """Words by run and series as words by row."""
        return {
            number: words[run, one.series_id]
            for number, (test, run, one, *_) in enumerate(self._rows)
            if (run, one.series_id) in words and not test.endswith(PACKETS)
        }

    def allowed(self, least: Mapping[tuple[str, int], float]) -> Floats | None:
        """By row the least that the campaign expects, oriented; nan where it expects nothing. None: nothing at all."""
        if not least:
            return None
        found = np.full(len(self._rows), nan)
        for number, (test, run, one, *_) in enumerate(self._rows):
            limit = least.get((run, one.series_id))
            if limit is not None and not test.endswith(PACKETS):
                found[number] = oriented(limit, Better(one.better))
        return found

    def lost_in_part(self) -> dict[int, str]:
        """By row, words where a job lost some repetitions and brought a value in others."""
        return {
            number: f"{test} brings nothing in {job.lost_count} of {job.value_count + job.lost_count} repetitions: {one.why}"
            for number, (test, _, one, job, _, outcome) in enumerate(self._rows)
            if job.lost_count and outcome is not Outcome.FAILED and not test.endswith(PACKETS)
        }

    def reasons(self) -> dict[int, str]:
        """By row, why a job has fewer results than were planned."""
        return {
            number: one.why
            for number, (_, _, one, job, _, _) in enumerate(self._rows)
            if job.value_count < job.planned_count and one.why
        }


def _job(one: SeriesOutcome, job: JobOutcome, *, usual: bool) -> tuple[float, Outcome]:
    """The value of a job and what became of it. Half of its repetitions without a result, or all lost with the job: it failed.

    usual: most jobs of its test ran beside other work, so that says nothing against it.
    """
    ran = job.value_count + job.lost_count
    if ran and job.lost_count / ran >= LOST_SHARE:
        return nan, Outcome.FAILED
    if not ran and job.job_failed_count:
        return nan, Outcome.FAILED
    value = job.value if usual or job.clean_value is None else job.clean_value
    if value is None:
        return nan, Outcome.INVALID
    disturbed = job.clean_value is None and not usual
    return oriented(value, Better(one.better)), Outcome.DISTURBED if disturbed else Outcome.MEASURED


def _gates(
    database: Connection, runs: Sequence[str]
) -> tuple[dict[tuple[str, int], str], dict[tuple[str, int], str], dict[tuple[str, int], float]]:
    """Return by run and series the gate that it broke, why hpcq could not judge a gate, and what is expected of it."""
    broken, unclear, least = {}, {}, {}
    for run in runs:
        for one in judge_run(database, run):
            key = (run, one.series.series_id)
            if one.expected:
                if one.limit is not None:
                    least[key] = one.limit
                continue
            if one.verdict is Verdict.FAILED:
                broken[key] = f"{one.words}: must be {one.bound}"
            elif one.verdict is Verdict.INCONCLUSIVE and one.value is not None:
                unclear[key] = one.reason or one.words
    return broken, unclear, least


def disturbed_as_usual(series: Iterable[SeriesOutcome]) -> bool:
    """Whether most jobs of a test ran beside other work.

    Then that is normal for this site, and the other jobs do not stand for a quieter one.
    """
    measured_jobs = [job for one in series for job in one.jobs if job.value is not None]
    return sum(job.clean_value is None for job in measured_jobs) * 2 > len(measured_jobs)


def _ends(one: SeriesOutcome) -> tuple[str, str]:
    return one.client, one.server


def _first_utc(now: Iterable[SeriesOutcome]) -> dict[str, str]:
    """Return by node when its first measurement of these runs began."""
    found: dict[str, str] = {}
    for one in now:
        for job in one.jobs:
            if job.value_count or job.lost_count:
                for node in _ends(one):
                    found[node] = min(found.get(node, job.started_utc), job.started_utc)
    return found


def _flaws(
    database: Connection, cluster: str, run_ids: Sequence[int], baseline: Sequence[int], nodes: set[str]
) -> dict[str, str]:
    """Return by node what its evidence reports as wrong with it.

    It leaves out what the evidence said in the baseline, and what it says of most nodes.
    """
    known = {(one.node, one.rule) for one in flaws_in(database, baseline, cluster)} if baseline else set()
    found: dict[str, list[Flaw]] = {}
    for one in flaws_in(database, run_ids, cluster):
        found.setdefault(one.rule, []).append(one)
    said: dict[str, list[str]] = {}
    for flaws in found.values():
        for one in flaws:
            if (one.node, one.rule) not in known and (baseline or len(flaws) * 2 <= len(nodes)):
                said.setdefault(one.node, []).append(f"{one.message} (in {one.result_count} results)")
    return {node: "; ".join(parts) for node, parts in said.items()}


# ----------------------------------------------------------------------------------------------------------------------


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
            if not any(one.values for one in outcomes_in(database, self.reference, Selection(cluster=self.cluster))):
                raise UserError(
                    f"--against: baseline {self.baseline!r} has no value on {self.cluster}: nothing can be compared with it",
                    f"hpcq baseline set {self.baseline} RUN, with a run that measured {self.cluster}",
                )

    def measured(self, runs: Sequence[str]) -> Measured:
        """Return what these runs measured."""
        with reading(self.database) as database:
            return measured(
                database, self.cluster, runs, reference=self.reference, leaf_of=self.leaf_of, baseline=self.baseline
            )

    def verdicts(
        self,
        targets: Sequence[str],
        found: Measured,
        missing: Mapping[str, str],
        now: Upkeep | None = None,
        *,
        final: bool = True,
    ) -> Acceptance:
        """Judge the targets.

        now: the scheduler's report after the measurement, which shows nodes that booted meanwhile. final: nothing more
        is measured.
        """
        booted = dict(found.known.booted)
        for node, state in now.nodes.items() if now is not None else ():
            first_utc = found.first_utc.get(node)
            if first_utc is not None and state.started_utc is not None and state.started_utc > first_utc:
                booted.setdefault(node, f"its daemon started {state.started_utc}")
        known = replace(found.known, missing=missing, booted=booted)
        if found.values is None:
            return Acceptance(tuple(not_covered(node, missing.get(node, "nothing was measured with it")) for node in targets))
        trusted = self.baseline is not None
        said = judge_values(targets, found.values, found.before, known, trusted=trusted, final=final, cluster=self.cluster)
        verdicts = acceptance_of(said, self.standing)
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
            points = change.facts_of(database, [*before, *after])
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
            for one in outcomes_in(database, self.reference, Selection(cluster=self.cluster))
            if one.values and one.better != Better.NONE.value
        }
        levels: list[tuple[str, str, float]] = []
        for run in selection.newest_runs(database, self.cluster, SINCE_RUNS):
            series = [
                one
                for one in outcomes_in(database, [run], Selection(cluster=self.cluster))
                if one.values and one.series_id in expected
            ]
            if series:
                changes = [oriented(one.values[0], Better(one.better)) - expected[one.series_id] for one in series]
                levels.append((series[0].jobs[0].run, series[0].jobs[0].started_utc, median(changes)))
        return since_words(levels)


#: Below this share of what the link can give, `baseline set` says how far a test is from it.
LINK_SHARE_TOLD = 0.5


def weak_in(database: Path, runs: Sequence[str]) -> list[str]:
    """What is wrong with these runs as a baseline: who is slower than its class in them, how far from its link a test is, and
    whether most of it was measured beside other work.

    Nothing is compared with earlier runs: the nodes of one class are each other's measure.
    """
    found: list[str] = []
    with reading(database) as connection:
        clusters = selection.clusters_of(connection, [run_id_of(connection, run) for run in runs])
        leaves = {cluster: ledger.leaves_of(connection, cluster) for cluster in clusters}
    for cluster in clusters:
        judging = Judging(database, cluster, (), None)
        judging.leaf_of = leaves[cluster]
        measured_here = judging.measured(runs)
        nodes = measured_here.values.nodes if measured_here.values is not None else ()
        said = judging.verdicts(nodes, measured_here, {})
        at_fault = [
            one for one in (*said.groups, *said.links, *said.nodes) if one.verdict in {Verdict.FAILED, Verdict.DEGRADED}
        ]
        found += [
            f"{cluster}: {one.name if one.kind is Thing.NODE else f'{one.kind} {one.name}'}: {one.reason}" for one in at_fault
        ]
        with reading(database) as connection:
            found += _below_the_link(connection, cluster, runs)
            found += _beside_other_work(connection, cluster, runs)
    return found


def _beside_other_work(database: Connection, cluster: str, runs: Sequence[str]) -> list[str]:
    """One line per run of which most was measured beside other work: what comes later may look better than it is."""
    found = []
    for run in runs:
        total = sum(one.measured_count for one in query.runs(database, run) if one.cluster == cluster)
        disturbed = query.disturbed_count(database, Selection(run=run, cluster=cluster))
        if 2 * disturbed > total:
            counted = f"{disturbed} of {total} results were measured beside other work and may be low"
            found.append(f"{cluster}: {run}: {counted}: what is compared with them may look better than it is")
    return found


def _below_the_link(database: Connection, cluster: str, runs: Sequence[str]) -> list[str]:
    """One line per test whose throughput is far below what the facts of its nodes' links allow."""
    parts: dict[str, list[tuple[float, str]]] = {}
    for run in runs:
        references = References(database, run)
        for series in references.measured({"throughput_bps"}):
            reference = references.against(GateAgainst(gate_kinds()["link"]), series) if series.values else None
            if reference is not None and reference.value and series.cluster == cluster:
                parts.setdefault(series.kernel, []).append((median(series.values) / reference.value, reference.source))
    return [
        f"{cluster}: {kernel} gives {100 * middle:.2g} % of what the {sorted(shares)[len(shares) // 2][1]} can give"
        for kernel, shares in parts.items()
        if (middle := median(share for share, _ in shares)) < LINK_SHARE_TOLD
    ]


def since_words(levels: Iterable[tuple[str, str, float]]) -> str:
    """Return these words; empty if the newest run is as expected.

    levels: (run, UTC, change from the baseline) of runs, the newest first.
    """
    bound = -EFFECT / 2
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
