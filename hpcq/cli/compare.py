"""`hpcq compare`: two runs or stretches of time, pair by pair."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcq.cli.options import chosen, database_option, filter_options, json_option
from hpcq.cli.output import Column, print_json, print_rows, print_words, says_that_it_works, verdict_style
from hpcq.cli.regressions import pairs_json, smallest_words
from hpcq.cli.results import print_flaws
from hpcq.errors import Exit
from hpcq.nodelist import names_several, nodes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hpcq.analysis.gates import FailedGate
    from hpcq.analysis.pairing import Compared, Pairing
    from hpcq.analysis.standing import ClusterCause, Standing
    from hpcq.store.database import Connection
    from hpcq.store.selection import Selection, Window
    from hpcq.store.series import SeriesRow
    from hpcq.verdict.levels import Level
    from hpcq.verdict.words import Tally, VerdictRecord

_ORDER = ("gone", "worse", "unclear", "changed", "better", "same")
_WORSE = frozenset({"gone", "worse"})
_COMPARED = (
    Column("verdict", style=verdict_style),
    Column("kernel"),
    Column("client"),
    Column("server"),
    Column("message_bytes", "size"),
    Column("variant", wrap=True),
    Column("metric"),
    Column("a", unit_field="unit"),
    Column("b", unit_field="unit"),
    Column("change"),
    Column("n_a", "n a"),
    Column("n_b", "n b"),
    Column("why", wrap=True),
)


@click.command()
@click.argument("a")
@click.argument("b")
@click.option("--all", "everything", is_flag=True, help="Also the pairs that are the same.")
@filter_options
@database_option
@json_option
@says_that_it_works
def compare(  # noqa: PLR0917 - Click passes by name
    a: str, b: str, everything: bool, wanted: Selection, database: Path, as_json: bool
) -> int:
    """Compare two runs or stretches, pair by pair and parameter by parameter; B is judged against A.

    A and B are runs, campaigns (their last run), baseline:NAME, or stretches of time. What was measured in A and only fails
    in B is `gone`. What the nights until B say, and gates that B fails (`told:` and `failed:`, as in `hpcq regressions`),
    stand above the table; a test that is worse by fewer than three jobs on a side is unclear where these nights say nothing of
    it. The first line says how much was judged. Exit code 3 when something got worse, is gone or is told, 4 when too little
    was measured to tell: nothing in both, something unclear, or something that B planned and did not measure; also when A and
    B are the same results. Flaws of nodes that the evidence shows in B and not in A come first.

    \b
    Example: hpcq compare baseline:good latest
             hpcq compare 90d..30d 30d --kernel tcp_stream
    """
    from hpcq.analysis.gates import failed_gates
    from hpcq.analysis.pairing import compare_windows
    from hpcq.analysis.standing import bounds_of, standings
    from hpcq.store.database import reading
    from hpcq.store.read.evidence_queries import new_flaws
    from hpcq.store.selection import window

    with reading(database) as connection:
        found, metrics = chosen(connection, wanted)
        windows = [window(connection, text) for text in (a, b)]
        same = len({replace(one, text="") for one in windows}) == 1  # however they are written
        compared = compare_windows(connection, found, metrics, windows[0], windows[1], facts=wanted.facts)
        in_b, pairs_of_b = compared.planned.ids, compared.planned.pairs
        known = () if wanted.facts else standings(connection, compared.planned.clusters, b, wanted.metric)
        told, unfit = _told_in(connection, wanted, known, pairs_of_b, windows[1])
        failed = [] if wanted.facts else failed_gates(connection, *bounds_of(connection, b))
        failed = [one for one in failed if one.series_id in in_b]
        nodes = {(cluster, one) for cluster, *ends in pairs_of_b for one in nodes_of(*ends)}
        flaws = [one for one in new_flaws(connection, windows[1], windows[0]) if (one.cluster, one.node) in nodes]
    if same:
        # What is compared with itself is never worse: no verdict comes of that.
        nothing = compared.planned.of(())
        compared = replace(compared, both=(), only_a=nothing, only_b=nothing, missing=nothing)
        told, unfit, failed = [], [], []
    by_cluster = {one.cluster: one for one in known}
    smallest = _smallest(compared, by_cluster)  # of what the nights overrule, too
    compared = replace(compared, both=tuple(_beside_nights(one, by_cluster) for one in compared.both))
    listed = [one for one in compared.both if as_json or everything or _verdict(one.level) != "same"]
    rows = [_with_pairs(_compared_row(one), one.row, compared) for one in listed]
    verdicts = Counter(_verdict(one.level) for one in compared.both)
    tally = _tally(compared, doubted_count := _doubted_count(compared, known))
    code = Exit.DEGRADED if told or failed or unfit else tally.exit_code
    if as_json:
        only_in = {"only_a": list(compared.only_a), "only_b": list(compared.only_b), "missing_in_b": list(compared.missing)}
        print_json(
            {
                "a": a,
                "b": b,
                "judged": tally.to_json(),
                "causes": [one.to_json() for one in told],
                "failed_gates": [one.to_json() for one in failed],
                "failed_acceptances": [asdict(one) for one in unfit],
                "flaws": flaws,
                "pairs": rows,
                **only_in,
            }
        )
        return code
    rows.sort(key=lambda row: _ORDER.index(row["verdict"]))
    of_doubted = f", {doubted_count} of them of what is suspected" if doubted_count else ""
    only = f"; only in A: {len(compared.only_a)}, only in B: {len(compared.only_b)}{of_doubted}"
    only = only if compared.only_a or compared.only_b else ""
    missing = f"; planned in B, not measured: {len(compared.missing)}" if compared.missing else ""
    if same:
        print_words(f"{tally.first_line('test of a pair')}; {a} and {b} are the same results", err=True)
        return code
    if not compared.both:
        without = f"nothing to compare: no test of a pair is in both{only}{missing}"
        print_words(f"{tally.first_line('test of a pair', 'tests of pairs')}; {without}", err=True)
        _print_told(told, unfit, failed)
        return code
    words = ", ".join(f"{verdicts[word]} {word}" for word in _ORDER if verdicts[word])
    print_words(f"{tally.first_line('test of a pair', 'tests of pairs')}; in both: {words}{only}{missing}{smallest}", err=True)
    _print_told(told, unfit, failed)
    print_flaws(flaws)
    print_rows(rows, _COMPARED, empty="no pair differs")
    return code


def _doubted_count(compared: Compared, known: Iterable[Standing]) -> int:
    """How many tests of B alone touch what is suspected to have lost a tenth."""
    doubts = (cause for one in known for cause in one.causes if cause.is_doubt)
    return len(set[int]().union(*(compared.only_b.where(compared.only_b.concerned_by(cause)).ids for cause in doubts)))


def _told_in(
    connection: Connection, wanted: Selection, known: Sequence[Standing], pairs: set[tuple[str, str, str]], stretch: Window
) -> tuple[list[ClusterCause], list[VerdictRecord]]:
    """What is told at the end of a stretch, and what failed its last acceptance, of what its runs measure. wanted: of it."""
    from hpcq.analysis.standing import told_before, touching, unfit_of
    from hpcq.store.selection import runs_in

    whole = wanted == type(wanted)(cluster=wanted.cluster)
    before = told_before(connection, known, pairs, runs_in(connection, stretch)) if whole else []
    return [*(one for one in touching(known, pairs) if one.is_told), *before], unfit_of(known, pairs)


def _print_told(told: Iterable[ClusterCause], unfit: Iterable[VerdictRecord], failed: Sequence[FailedGate]) -> None:
    from hpcq.analysis.gates import failed_lines

    for line in (*(one.words for one in told), *(one.line for one in unfit), *failed_lines(failed)):
        print_words(f"in B {line}")


def _beside_nights(one: Pairing, standings: Mapping[str, Standing]) -> Pairing:
    """Call a test unclear that is worse by fewer than three jobs on a side, where the nights of both ends say nothing of it.

    So is one that is as before while one of its ends is suspected to have lost a tenth.
    """
    from hpcq.analysis.standing import JOBS_MIN
    from hpcq.judge.causes import State
    from hpcq.statistics import ComparisonVerdict

    level, row = one.level, one.row
    standing = standings.get(row.cluster)
    if standing is not None and _verdict(level) == "same" and standing.doubts(row.client, row.server):
        reason = f"{level.reason}; but one of its ends is suspected to be slow"
        return replace(one, level=replace(level, verdict=ComparisonVerdict.INCONCLUSIVE, reason=reason))
    if standing is None or _verdict(level) != "worse" or not _decided_by_nights(one, standing):
        return one
    said = standing.says_of(row.client, row.server)
    if said == State.TOLD or standing.doubts(row.client, row.server):
        return one
    nights = "show nothing" if said == State.FINE else "suspect little"
    reason = f"{level.reason}; but the nights until then {nights}, and fewer than {JOBS_MIN} jobs on a side decide nothing"
    return replace(one, level=replace(level, verdict=ComparisonVerdict.INCONCLUSIVE, reason=reason))


def _decided_by_nights(one: Pairing, standing: Standing | None) -> bool:
    """Whether what its own jobs say is too little to tell it, and the nights of both ends decide."""
    from hpcq.analysis.standing import JOBS_MIN

    few = min(one.level.before_count, one.level.after_count) < JOBS_MIN
    return few and standing is not None and one.row.series_id in standing.judged_series


def _smallest(compared: Compared, standings: Mapping[str, Standing]) -> str:
    """`; 6.1 % worse would be told of half of them, 9 % of all`: what passes may still have lost less."""
    own, clusters = list[float](), set[str]()
    for one in compared.both:
        if _decided_by_nights(one, standings.get(one.row.cluster)):
            clusters.add(one.row.cluster)
        else:
            own.append(1.0 if one.smallest_ratio is None else one.smallest_ratio)
    own.sort()
    words = ""
    if own:
        half, of_all = (f"{100 * one:.2g} % worse" if one < 1 else "" for one in (own[(len(own) - 1) // 2], own[-1]))
        words = f"; {half} would be told of half of them, {of_all} of all" if half != of_all else f"; {half} would be told"
        words = words if of_all else f"; {half} would be told of half of them, and of some nothing, however slow"
        words = words if half else "; of most of them nothing would be told, however slow: too few jobs"
    return words + (smallest_words(standings[one] for one in sorted(clusters)) if clusters else "")


def _with_pairs(told: dict[str, Any], row: SeriesRow, compared: Compared) -> dict[str, Any]:
    """The row of a set of nodes that got worse, with what the pairs of its nodes say: the test alone accuses none of them."""
    if told["verdict"] not in _WORSE or not names_several(row.server):
        return told
    from hpcq.verdict.node_sets import PairsOfSet

    known, slow = list[tuple[str, str]](), list[tuple[str, str]]()
    for one in compared.both:
        verdict, pair = _verdict(one.level), (one.row.client, one.row.server)
        if one.row.cluster == row.cluster and not names_several(one.row.server) and verdict != "unclear":
            known.append(pair)
            slow += [pair] if verdict in _WORSE else []
    pairs = PairsOfSet.of(nodes_of(row.client, row.server), known, slow, slow)
    why = "; ".join(text for text in (told["why"], pairs.words) if text)
    return {**told, "why": why, "pairs": pairs_json(pairs)}


def _tally(compared: Compared, doubted_count: int) -> Tally:
    """One verdict per test of a pair: gone is FAIL, worse is DEGRADED; what only one side planned gets none.

    doubted_count: tests of B alone that touch what is suspected: they are open.
    """
    from hpcq.verdict.words import Tally, Verdict

    words = {"gone": Verdict.FAILED, "worse": Verdict.DEGRADED, "unclear": Verdict.INCONCLUSIVE}
    verdicts = [words.get(_verdict(one.level), Verdict.PASS) for one in compared.both]
    verdicts += [Verdict.INCONCLUSIVE] * doubted_count
    return Tally.of(verdicts + [Verdict.NOT_COVERED] * len(compared.missing))


def _verdict(level: Level) -> str:
    return level.direction if level.sure else "same" if level.verdict.value == "pass" else "unclear"


def _compared_row(one: Pairing) -> dict[str, Any]:
    row, metric, level = one.row, one.metric, one.level
    verdict = _verdict(level)
    change = "" if level.ratio is None else f"{100 * (level.ratio - 1):+.1f} %"
    names = {
        name: getattr(row, name) for name in ("kernel", "cluster", "client", "server", "message_bytes", "variant", "parameters")
    }
    numbers = {name: one if one == one else None for name, one in (("a", level.before), ("b", level.after))}  # noqa: PLR0124 - NaN
    why = level.reason if verdict in {"gone", "unclear"} else ""
    rest = {"ratio": level.ratio, "low": level.low, "high": level.high, "change": change, "smallest_ratio": one.smallest_ratio}
    counts = {"n_a": level.before_count, "n_b": level.after_count, "reason": level.reason, "why": why}
    return {"verdict": verdict, **names, "metric": metric.name, "unit": metric.unit, **numbers, **rest, **counts}
