"""The verdict of a run, which its page begins with, and which `runs`, `export` and `notify` repeat: by all
that judges, is anything slow, broken or missing?

    what became of every test   a test that ran and never gave a valid result: worse than any value
    the campaign's gates        failed, inconclusive
    the judge                   nodes, links, groups or the whole cluster that a person is told of
    history                     series of this run that are gone, and series whose level is worse than before
    the ledger                  nodes of this run whose last acceptance failed
    coverage                    what was planned and is missing
    blame                       where none of these judges anything: nodes and links that are slow next to the others

Coverage alone is no verdict. A run in which nothing of this says a word is NOT JUDGED where everything was measured: its
campaign asked for values, and they are there.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpcq import units
from hpcq.analysis.change import Changed
from hpcq.analysis.gates import judge_run
from hpcq.analysis.series_outcomes import RunSeries, SeriesOutcome, outcomes_in, series_of_run
from hpcq.analysis.standing import (
    DOUBTFUL_RATIO,
    CauseNights,
    ClusterCause,
    Standing,
    beside_nights,
    nights_of_cause,
    standing_after,
    standings,
    told_before,
    touching,
)
from hpcq.errors import Exit, UserError
from hpcq.judge.causes import State
from hpcq.nodelist import natural
from hpcq.store import query
from hpcq.store.database import Connection, answered
from hpcq.store.query import RunRow, repeated_series
from hpcq.store.selection import Selection, Window, run_ids
from hpcq.verdict.gates import GateVerdict
from hpcq.verdict.words import Tally, Thing, Verdict, VerdictRecord

#: Days of history before the run that a search reads. Changes older than the second number are left to `hpcq history`.
_LOOK_BACK_DAYS = 120
_CHANGED_DAYS = 30
_SHOWN = 5
#: What judges a run that has neither a gate nor a history.
_BESIDE_WORK = ", but only in jobs beside other work: measure again"
_ONE_RUN = "no gate and no history judges this run, but its own values next to each other"
#: What people say of a change so that it is no alarm.
_NO_ALARM = {"expected", "false"}
#: Verdicts that name a fault, the worst first.
_BAD = (Verdict.FAILED, Verdict.DEGRADED)


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason for a verdict, in words for people. count: the number of series, gates or nodes that it is about."""

    verdict: Verdict
    words: str
    count: int


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The verdict on the whole run. judged_by: what was able to judge it, in words; empty if nothing was.

    suspected: what the judge (hpcq/analysis/standing.py) suspects and does not tell yet, and what came of suspects that were
    measured again. What is suspected of a tenth or more lets no run pass. told: what the judge tells, as `regressions` does.
    nightly: both night by night, where that was asked for.
    """

    verdict: Verdict
    judged_by: str
    reasons: tuple[Reason, ...]
    suspected: tuple[str, ...] = ()
    told: tuple[ClusterCause, ...] = ()
    nightly: tuple[CauseNights, ...] = ()

    @property
    def by(self) -> str:
        """What judged the run, for people."""
        none = "no gate and no history judges " + ("what was measured" if self.reasons else "this run")
        return self.judged_by or none

    @property
    def lines(self) -> list[str]:
        """For people: the word in large letters and what it was judged by, then the reasons."""
        return [f"{self.verdict.shown}: {self.by}", *(f"  {one.words}" for one in self.reasons)]

    def to_json(self) -> dict[str, Any]:
        """For --json: the verdict, what it was judged by, and the reasons in words."""
        reasons = [one.words for one in self.reasons]
        return {"verdict": self.verdict.value, "judged_by": self.judged_by, "reasons": reasons}

    @property
    def exit_code(self) -> Exit:
        """3 where something is slow or broken, 4 where something is missing or could not be decided, else 0."""
        return Tally.of([self.verdict]).exit_code


def verdict_of_run(
    database: Connection, run: str, *, cluster: str | None = None, standing: Standing | None = None, brief: bool = False
) -> RunVerdict:
    """What `run_verdict` says, with the gates that the run's campaign has. Raises UserError if the run is not there."""
    unread = ""
    gates: Sequence[GateVerdict] = ()
    try:
        gates = judge_run(database, run)
    except UserError as error:
        unread = f"The gates were not judged: {error.message}"
    runs = [one for one in query.runs(database, run) if cluster in {None, one.cluster}]
    here = [one for one in gates if cluster in {None, one.series.cluster}]
    return run_verdict(database, run, runs, here, unread, cluster=cluster, standing=standing, brief=brief)


def run_verdict(
    database: Connection,
    run: str,
    runs: Sequence[RunRow],
    gates: Sequence[GateVerdict],
    unread: str = "",
    *,
    cluster: str | None = None,
    standing: Standing | None = None,
    brief: bool = False,
    with_nightly: bool = False,
) -> RunVerdict:
    """Everything that judges this run, put together; the worst word holds.

    unread: why the campaign's gates could not be judged; gates that nobody judged never let a run pass. cluster: only what
    it has of the run. standing: what the judge said after the run, if it was asked already. brief: series that the judge
    speaks for are not searched one by one; the verdict is the same, with fewer words.
    """
    run_id = run_ids(database)[run]
    series = series_of_run(database, run_id, cluster)
    pairs = set(series.pairs.values())
    found = (standing,) if standing is not None else standings(database, {place for place, _, _ in pairs}, run)
    history = _History(database, runs[0], series, found, brief=brief)
    changes, judged_ids, declared = _changes(database, history, _beside_work(series.doubtful), found)
    for each in found:
        judged_ids |= series.pairs.keys() & each.judged_series
    causes = [*touching(found, pairs, declared), *told_before(database, found, pairs, [run_id])]
    drawn = (nights_of_cause(one, each, "") for one in causes for each in found) if with_nightly else ()
    nightly = tuple(one for one in drawn if one is not None)
    told = [Reason(Verdict.DEGRADED, one.words, 1) for one in causes if one.is_told]
    looks = [look for one in found for look in one.second_looks if look.state != State.TOLD]
    own, accepted = _accepted(database, runs[0], cluster)
    failed = {(one.cluster, one.kind.value, one.name) for one in accepted if one.verdict in _BAD}

    def known_bad(one: ClusterCause) -> bool:
        return (one.cluster, one.thing, " - ".join(one.names)) in failed  # its last acceptance failed: that is no suspicion

    doubts = (one.words for one in causes if not one.is_told and not known_bad(one))
    suspected = (*doubts, *(look.line for look in looks))
    closed = history.declared | {one.row.series_id for one, state in declared if state in _NO_ALARM}
    doubted = touching(found, {pair for series_id, pair in series.pairs.items() if series_id not in closed})
    told += [Reason(Verdict.INCONCLUSIVE, one.words, 1) for one in doubted if one.is_doubt and not known_bad(one)]
    # Measured again and not settled, it is an open question of this run, however small.
    told += [Reason(Verdict.INCONCLUSIVE, look.line, 1) for look in looks if look.state == State.SUSPECTED]
    nodes = _ledger(accepted, pairs)
    lost = _lost(database, run_id, cluster, series, history)
    reasons = [
        *_gone(lost, history, query.kernels_of_several_toolchains(database, run_id)),
        *told,
        *_failed_gates(gates),
        *changes,
        *nodes,
        *_open_gates(gates),
        *_missing(runs),
    ]
    if unread:
        reasons.append(Reason(Verdict.INCONCLUSIVE, unread.rstrip("."), 1))
    reasons.sort(key=lambda one: _BAD.index(one.verdict) if one.verdict in _BAD else len(_BAD))
    judged_by = _judged_by(gates, own, len(judged_ids), len(series.pairs))
    worst = [verdict for verdict in _BAD if any(one.verdict is verdict for one in reasons)]
    if worst:
        return RunVerdict(worst[0], judged_by, tuple(reasons), suspected, tuple(one for one in causes if one.is_told), nightly)
    if not judged_by:
        slow = [
            reason for place in sorted({row.cluster for row in runs}) for reason in _slow_next_to_others(database, run, place)
        ]
        if slow:
            sure = any(one.verdict is Verdict.DEGRADED for one in slow)
            word = Verdict.DEGRADED if sure else Verdict.INCONCLUSIVE
            return RunVerdict(word, _ONE_RUN, (*slow, *reasons), suspected, nightly=nightly)
    if reasons:
        nothing = not any(one.measured_count for one in runs)
        return RunVerdict(
            Verdict.NOT_COVERED if nothing else Verdict.INCONCLUSIVE, judged_by, tuple(reasons), suspected, nightly=nightly
        )
    return RunVerdict(Verdict.PASS if judged_by else Verdict.NOT_JUDGED, judged_by, (), suspected, nightly=nightly)


def _slow_next_to_others(database: Connection, run: str, cluster: str) -> list[Reason]:
    """What blame names in this run, if it lost a tenth or more: who judges a first run has nothing but its own values.

    What is slow only in jobs beside other work is named too, as inconclusive.
    """
    from hpcq.analysis.blame_tables import slow_only_beside_work, tables_of, with_enough_jobs
    from hpcq.localisation import blame

    found = dict[tuple[str, ...], Reason]()
    read = tables_of(database, [run], Selection(cluster=cluster), None)
    for test, higher_is_better, table in read.tables:
        said = with_enough_jobs(blame(table, higher_is_better=higher_is_better), None, read.pairs[test])
        beside_work = slow_only_beside_work(said, read.undisturbed.get(test), higher_is_better=higher_is_better)
        for one in (*said.groups, *said.nodes, *said.links):
            if one.speed_ratio <= DOUBTFUL_RATIO:
                words = (
                    f"{one.kind.value} {cluster}/{' - '.join(one.names)}: {100 * (1 - one.speed_ratio):.1f} % slower"
                    f" than others of this run in {test}, in {one.slow_count} of {one.result_count} jobs"
                )
                doubt = one in beside_work
                reason = Reason(Verdict.INCONCLUSIVE if doubt else Verdict.DEGRADED, words + _BESIDE_WORK * doubt, 1)
                key = (one.kind.value, *one.names)
                if key not in found or found[key].verdict is not Verdict.DEGRADED:
                    found[key] = reason
    return sorted(found.values(), key=lambda one: one.verdict is not Verdict.DEGRADED)


def with_verdicts(database: Connection, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `hpcq.store.free_query.runs`, each with `coverage_ratio` and `verdict`: that of its page, of its cluster."""
    wanted = [[row["run"], row["cluster"]] for row in rows]
    verdicts = answered(database, {"verdicts of": wanted}, lambda: _verdicts(database, rows))
    found = []
    for row, verdict in zip(rows, verdicts, strict=True):
        planned, measured = row["planned_count"], row["measured_count"]
        found.append({**row, "coverage_ratio": measured / planned if planned else None, "verdict": verdict})
    return found


def _verdicts(database: Connection, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    stood: dict[str, dict[str, Standing]] = {}
    for cluster in {str(row["cluster"]) for row in rows}:
        created = {str(row["run"]): str(row["created_utc"]) for row in rows if row["cluster"] == cluster}
        stood[cluster] = standing_after(database, cluster, created)
    return [
        verdict_of_run(
            database,
            row["run"],
            cluster=row["cluster"],
            standing=stood[row["cluster"]].get(row["run"]),
            brief=True,
        ).verdict.value
        for row in rows
    ]


def _judged_by(gates: Sequence[GateVerdict], accepted: Sequence[VerdictRecord], judged_count: int, series_count: int) -> str:
    words = []
    if gates:
        words.append(Tally.of(one.verdict for one in gates).first_line("gate"))
    nodes = [one for one in accepted if one.kind is Thing.NODE]
    if nodes:
        words.append(f"acceptance: {Tally.of(one.verdict for one in nodes).first_line('node')}")
    if judged_count:
        words.append(f"{judged_count} of {series_count} series have a history long enough to compare with")
    return "; ".join(words)


class _History:
    """The series of a run, as far as hpcq looks back from it. gone: those that were measured and have only failed since.

    declared: those of them that a person called expected or false. brief: those that are as fine as their nodes, or told
    with them, are left out.
    """

    def __init__(self, database: Connection, run: RunRow, series: RunSeries, found: Sequence[Standing], *, brief: bool) -> None:
        from hpcq.analysis.changed import gone_since, known_states
        from hpcq.store.selection import metrics_of
        from hpcq.store.series import select
        from hpcq.verdict.levels import JUDGED_POINTS_MIN

        began = units.parse_utc(run.created_utc)
        last_utc = series.last_utc or run.created_utc
        settled = _settled(series, found) if brief else set()
        # The others have no history to compare with, and a value now: a survey has a hundred thousand of them.
        known = series.pairs.keys() - settled
        known &= repeated_series(database, run.run, JUDGED_POINTS_MIN) if known else known
        known |= {one.series_id for one in series.doubtful if one.measured_count == 0}
        self.rows = select(database, Selection(), known)
        self.metrics = metrics_of(database, None)
        self.window = Window("this run's history", _text(began - dt.timedelta(days=_LOOK_BACK_DAYS)), f"{last_utc}~")
        self.since_utc = _text(began - dt.timedelta(days=_CHANGED_DAYS))
        judged = self.rows.of_kernels(self.metrics)
        stretch, ever = replace(self.window, from_utc=self.since_utc), replace(self.window, from_utc=None)
        lost = gone_since(database, judged, self.metrics, stretch, ever) if judged else []
        states = known_states(database, lost)
        self.gone = {one.row.series_id: one for one, state in zip(lost, states, strict=True) if state not in _NO_ALARM}
        self.declared = {one.row.series_id for one in lost} - self.gone.keys()


def _settled(series: RunSeries, found: Iterable[Standing]) -> set[int]:
    """Series of which their cluster's standing says all: judged with their nodes, and none of these suspected."""
    by_cluster = {one.cluster: one for one in found}
    suspected = {
        (cluster, client, server)
        for cluster, client, server in set(series.pairs.values())
        if cluster not in by_cluster or by_cluster[cluster].says_of(client, server) == State.SUSPECTED
    }
    return {
        series_id
        for series_id, pair in series.pairs.items()
        if pair not in suspected and series_id in by_cluster[pair[0]].judged_series
    }


def _lost(
    database: Connection, run_id: int, cluster: str | None, series: RunSeries, history: _History
) -> Sequence[SeriesOutcome]:
    """The outcomes of all series that may have brought nothing: also of those that failed again after a value."""
    doubtful = {one.series_id for one in series.doubtful}
    again = history.gone.keys() & series.pairs.keys() - doubtful
    return outcomes_in(database, [run_id], Selection(cluster=cluster), doubtful | again) if again else series.doubtful


def _gone(outcomes: Iterable[SeriesOutcome], history: _History, several: Collection[str]) -> Iterator[Reason]:
    """Tests that ran without a valid result, grouped by node if one node has most of them; and others that are gone.

    Others did not run this time, and have only failed since they were last measured. several: kernels that the run measured
    with several toolchains; their pairs are told with theirs.
    """
    every = [one for one in outcomes if one.series_id not in history.declared]
    failed = [one for one in every if one.gone]
    if failed:
        why = Counter(one.why for one in failed).most_common(1)[0][0]
        words = (
            f"{_count(len(failed), 'series')} ran and brought no valid result: {_places(failed, several)}. Most often: {why}"
        )
        yield Reason(Verdict.FAILED, words + _since(failed, history), len(failed))
    others = [one for one in every if not one.gone and one.series_id in history.gone]
    if others:
        words = f"{_count(len(others), 'series')} did not run, and only failed before: {_places(others, several)}"
        yield Reason(Verdict.FAILED, words + _since(others, history), len(others))


def _since(failed: Sequence[SeriesOutcome], history: _History) -> str:
    """Which of them history knows with values, and since when they have none."""
    known = [history.gone[one.series_id] for one in failed if one.series_id in history.gone]
    if not known:
        return ""
    first_utc = min(one.at_utc for one in known)[:16].replace("T", " ")
    which = (
        "it was" if len(known) == len(failed) == 1 else f"{len(known)} of them were" if len(known) > 1 else "one of them was"
    )
    return f"; {which} measured before, and gone since {first_utc} UTC"


def _places(gone: Sequence[SeriesOutcome], several: Collection[str]) -> str:
    by = {one.series_id: f" with {one.toolchain}" if one.kernel in several else "" for one in gone}
    of_all = set(by.values()).pop() if len(set(by.values())) == 1 else ""
    ends = Counter(f"{one.cluster}: {end}" for one in gone for end in {one.client, one.server})
    node, count = ends.most_common(1)[0]
    if len(gone) > 1 and count == len(gone):
        return f"all of {node}{of_all}" if of_all else f"all with {node}"
    pairs = list(dict.fromkeys(f"{one.cluster}: {one.client} > {one.server}{by[one.series_id]}" for one in gone))
    more = f" and {len(pairs) - _SHOWN} more pairs" if len(pairs) > _SHOWN else ""
    return ", ".join(pairs[:_SHOWN]) + more


def _failed_gates(gates: Sequence[GateVerdict]) -> Iterator[Reason]:
    failed = [one for one in gates if one.verdict is Verdict.FAILED]
    if failed:
        first = failed[0]
        place = f"{first.series.cluster}: {first.series.ends}"
        words = f"{_count(len(failed), 'gate')} failed, such as {place}: {first.words}, must be {first.bound}"
        yield Reason(Verdict.FAILED, words, len(failed))


def _open_gates(gates: Sequence[GateVerdict]) -> Iterator[Reason]:
    found = [one for one in gates if one.verdict is Verdict.INCONCLUSIVE]
    if found:
        why = Counter(one.reason for one in found).most_common(1)[0][0]
        yield Reason(Verdict.INCONCLUSIVE, f"{_count(len(found), 'gate')} could not be judged. Most often: {why}", len(found))


def _missing(runs: Sequence[RunRow]) -> Iterator[Reason]:
    planned = sum(one.planned_count for one in runs)
    lost = planned - sum(one.measured_count for one in runs)
    if not planned:
        yield Reason(Verdict.NOT_COVERED, "no result was planned", 0)
    elif lost:
        words = f"{lost} of {_count(planned, 'planned result')} {'is' if lost == 1 else 'are'} not there"
        yield Reason(Verdict.NOT_COVERED, words, lost)


def _beside_work(outcomes: Iterable[SeriesOutcome]) -> set[int]:
    """The series that this run measured only beside other work."""
    return {
        one.series_id
        for one in outcomes
        if one.values and all(job.clean_value is None for job in one.jobs if job.value is not None)
    }


def _changes(
    database: Connection, history: _History, beside_work: set[int], found: Sequence[Standing]
) -> tuple[list[Reason], set[int], list[tuple[Changed, str | None]]]:
    """Series of this run whose level is worse; which have enough history to be searched; all changes but those for the
    better, each with what a person said of it. What the nights of their nodes speak against is no reason.

    beside_work: this run's values of them count for nothing.
    """
    from hpcq.analysis.changed import explained, known_states, searched, tracks_of
    from hpcq.verdict.levels import JUDGED_POINTS_MIN

    rows, metrics, window = history.rows, history.metrics, history.window
    if not rows:
        return [], set(), []
    points = tracks_of(database, rows.of_kernels(metrics).series_id, metrics, window, boundary=history.since_utc)
    points = points.only(points.counts >= JUDGED_POINTS_MIN)
    known = set(points.series_id.tolist())
    compared = rows.of(known)
    left_out = len(known & beside_work)
    words = f"{_count(left_out, 'series')} with a history, measured this time only beside other work: measure again"
    unclear = [Reason(Verdict.INCONCLUSIVE, words, left_out)] if left_out else []
    judged = searched(database, compared, metrics, history.since_utc, window, points=points)
    beside = beside_nights(judged, compared, found)
    sure = [one for one in judged.changes if one.level.sure and one.level.direction not in {"same", "better"}]
    declared = list(zip(sure, known_states(database, sure), strict=True))
    told = [(one, state) for one, state in declared if one.level.direction == "worse" and not one.level.came_back]
    open_ones = [one for one, state in told if state not in _NO_ALARM]
    worse = [one for one in open_ones if id(one) not in beside.noise]
    agreeing = {one.row.series_id for one in open_ones if id(one) in beside.noise and one.row.series_id in beside.unclear}
    if agreeing:
        words = f"{_count(len(agreeing), 'series')} got worse, of what is suspected and not yet told: measure again"
        unclear.append(Reason(Verdict.INCONCLUSIVE, words, len(agreeing)))
    judged_ids = known - beside_work
    if not worse:
        return unclear, judged_ids, declared
    worst = max(worse, key=lambda one: abs((one.level.ratio or 1.0) - 1.0))
    ends = Counter(f"{one.row.cluster}: {end}" for one in worse for end in {one.row.client, one.row.server})
    node, count = ends.most_common(1)[0]
    shared = f", {count} of them with {node}" if count > 1 else ""
    change = f"{100 * (worst.level.ratio - 1):+.0f} %" if worst.level.ratio is not None else "changed"
    words = (
        f"{_count(len(worse), 'series')} got worse and stayed so{shared}; the furthest is"
        f" {worst.row.label} {change} since {worst.at_utc[:16].replace('T', ' ')} UTC"
    )
    differs = explained(database, worst).words
    if differs:
        words += f"; what differs since then: {differs}"
    return [Reason(Verdict.DEGRADED, words, len(worse)), *unclear], judged_ids, declared


def _accepted(database: Connection, run: RunRow, cluster: str | None) -> tuple[list[VerdictRecord], list[VerdictRecord]]:
    """What the acceptance of this run decided itself; and the last word on each thing after it: nothing undecided counts."""
    from hpcq.store.ledger import last_verdicts

    every = [
        one for one in last_verdicts(database, cluster, each=True) if one.run == run.run or one.decided_utc <= run.created_utc
    ]
    decided = {(one.cluster, one.kind, one.name): one for one in every if one.verdict in {Verdict.PASS, *_BAD}}
    own = {(one.cluster, one.kind, one.name): one for one in every if one.run == run.run}
    return list(own.values()), list(decided.values())


def _ledger(accepted: Iterable[VerdictRecord], pairs: Iterable[tuple[str, str, str]]) -> Iterator[Reason]:
    """Nodes of this run, and what they share, whose last acceptance failed and that have not passed one since."""
    nodes = {(cluster, end) for cluster, client, server in pairs for end in (client, server)}
    here = nodes | {(cluster, cluster) for cluster, _ in nodes}
    for verdict in _BAD:
        bad = [one for one in accepted if one.verdict is verdict and (one.cluster, one.name) in here]
        bad.sort(key=lambda one: (one.cluster, natural(one.name)))
        names = [f"{one.cluster}/{one.name}" if one.kind is Thing.NODE else one.cluster for one in bad[:_SHOWN]]
        if len(bad) == 1:
            yield Reason(verdict, f"{names[0]} did not pass the last acceptance: {bad[0].reason}", 1)
        elif bad:
            yield Reason(verdict, f"{_count(len(bad), 'node')} did not pass the last acceptance: {', '.join(names)}", len(bad))


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 or noun == "series" else f"{count} {noun}s"


def _text(at: dt.datetime) -> str:
    return at.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")
