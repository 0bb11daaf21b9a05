"""`hpcq gate propose`: bounds for a campaign's gates, from values of good runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcq import units
from hpcq.cli.options import Verbs, chosen, database_option, filter_options, json_option, since_option
from hpcq.cli.output import print_json, print_words, says_that_it_works
from hpcq.errors import Exit, UserError
from hpcq.gate_kinds import read_against, written_kinds

if TYPE_CHECKING:
    from hpcq.analysis.standing import ClusterCause
    from hpcq.store.selection import MetricRow, Selection
    from hpcq.store.series import SeriesRow, SeriesRows
    from hpcq.verdict.proposing import Proposal
    from hpcq.verdict.words import Tally, VerdictRecord


@click.group(cls=Verbs)
def gate() -> None:
    """Propose bounds that results must keep."""


@gate.command("propose")
@since_option("90d", "The good runs")
@click.option(
    "--against",
    metavar="REFERENCE",
    help=f"Propose shares of {written_kinds('or')}. Default: absolute bounds.",
)
@click.option(
    "--false-alarm-ratio",
    type=click.FloatRange(min=1e-6, max=0.2),
    default=0.001,
    show_default=True,
    help="Share of good results that may break the bound.",
)
@filter_options
@database_option
@json_option
@says_that_it_works
def propose_gates(  # noqa: PLR0917 - Click passes by name
    since: str, against: str | None, false_alarm_ratio: float, wanted: Selection, database: Path, as_json: bool
) -> int:
    """Propose gates for each test from history, as lines for a campaign, with their expected rate of false alarms.

    The rate is that of a pair's median in one job. To check it, hpcq makes the bound without each series in turn and
    counts how often that series breaks it. It leaves out, and names, the tests of everything that is slow by now (`told:`
    in `hpcq regressions`), or did not pass its last acceptance. A test with fewer than 30 points gets no bound, and is
    named. Exit code 4 when a test has too few points, or when there is none at all.

    \b
    Example: hpcq gate propose --since 90d --against peers --false-alarm-ratio 0.01
    """
    from hpcq.analysis.standing import standings, unfit_of
    from hpcq.store.database import reading
    from hpcq.store.selection import window

    with reading(database) as connection:
        rows, metrics = chosen(connection, wanted)
        stretch_of = window(connection, since)
        found = standings(connection, rows.clusters, since, wanted.metric)
        bad = [one for each in found for one in each.causes if one.is_told]
        unfit = unfit_of(found, rows.pairs)
        left_out: list[ClusterCause | VerdictRecord] = [*bad, *unfit]
        for bad_thing in left_out:
            rows = rows.where(~rows.concerned_by(bad_thing))
        if against is None:
            tests = _tests(connection, rows, metrics, stretch_of, wanted.facts)
        else:
            tests = _shares(connection, rows, metrics, wanted, stretch_of, against)
    for line in (*(one.words for one in bad), *(one.line for one in unfit)):
        print_words(f"left out: {line}", err=True)
    proposals = [one for one in (_proposal(test, false_alarm_ratio) for test in tests) if one is not None]
    tally = _tally(tests, proposals, against)
    if as_json:
        print_json([_row(row, metric, made, against) for row, metric, made in proposals])
        return tally.exit_code
    print_words(tally.first_line("test"), err=True)
    for words in _too_few(tests, against):
        print_words(words, err=True)
    if not proposals:
        told = "" if against is None else f" with a reference to {against}"
        print_words(f"nothing to propose: no test has 30 points in this stretch{told}", err=True)
        return Exit.INCOMPLETE
    print_words("gates:")
    for row, metric, made in proposals:
        seen = "not checked: one series only" if made.seen_ratio is None else f"{made.seen_ratio:.2%} when left out"
        one = _row(row, metric, made, against)
        told = units.human(made.bound, metric.unit if against is None else "ratio") + (f" of {against}" if against else "")
        print_words(
            f"  # {told}, from {made.value_count} points of {made.series_count} series; {made.asked_ratio:.2%} asked, {seen}"
        )
        if not made.enough:
            print_words(
                f"  # {made.asked_ratio:.2%} would need {made.needed_count} points: this is the worst seen, or further off"
            )
        click.echo(f"  - {json.dumps(one['gate'])}")
    return tally.exit_code


Tested = tuple["SeriesRow", "MetricRow", list[Any]]


def _tally(tests: Sequence[Tested], proposals: Sequence[Any], against: str | None) -> Tally:
    """PASS for a test that got a bound, INCONCLUSIVE for one with too few points."""
    from hpcq.verdict.words import Tally, Verdict

    few = len(list(_too_few(tests, against)))
    return Tally.of([Verdict.PASS] * len(proposals) + [Verdict.INCONCLUSIVE] * few)


def _too_few(tests: Sequence[Tested], against: str | None) -> Iterator[str]:
    """One line per test whose points are too few for a bound."""
    from hpcq.kernels import size_text
    from hpcq.verdict.proposing import VALUES_MIN
    from hpcq.verdict.words import too_little

    of = "" if against is None else f" with a reference to {against}"
    for row, metric, series in tests:
        count = sum(len(one) for one in series)
        if count < VALUES_MIN and metric.better != "none":
            words = too_little(units.count_of(count, "point") + of, f"a bound needs {VALUES_MIN}")
            test = f"{row.kernel} {size_text(row.message_bytes)}".rstrip()
            yield f"{row.cluster}: {test}, {metric.name}: {words}"


def _tests(connection: Any, rows: SeriesRows, metrics: dict[str, MetricRow], window: Any, facts: Any) -> list[Tested]:
    """Values by test: kernel and parameters, on one cluster."""
    from hpcq.analysis.changed import tracks

    values = {track.series_id: track.value for track in tracks(connection, rows, metrics, window, facts=facts)}
    return _by_test(rows, metrics, values)


def _shares(  # noqa: PLR0917 - what is chosen, and the reference
    connection: Any,
    rows: SeriesRows,
    chosen_metrics: dict[str, MetricRow],
    wanted: Selection,
    window: Any,
    against: str,
) -> list[Tested]:
    """The same values as shares of a reference.

    Raises UserError for a bad reference, and for metrics that have none.
    """
    import numpy as np

    from hpcq.analysis.gates import shares
    from hpcq.store.ledger import runs_of
    from hpcq.store.selection import baseline_runs, run_ids

    try:
        meant = read_against(against)
    except ValueError as error:
        raise UserError(f"--against: {error}") from error
    if wanted.facts:
        raise UserError("--fact: not with --against: what is compared is whole runs", "leave one of the two out")
    unit = meant.kind.unit
    metrics = {kernel: one for kernel, one in chosen_metrics.items() if unit in {None, one.unit}}
    if not metrics:
        raise UserError(f"--against {against}: no chosen metric is in {unit}", f"--metric NAME chooses one in {unit}")
    names = runs_of(connection, window)
    baseline = meant.kind.baseline_of(meant.argument)
    if baseline is not None:
        good = set(baseline_runs(connection, baseline))
        ids = run_ids(connection)
        names = [name for name in names if ids[name] not in good]
    measured = shares(connection, names, meant, {one.name for one in metrics.values()})
    values = {key: np.array([share for share, _ in each]) for key, each in measured.items()}
    return _by_test(rows.of_kernels(metrics), metrics, values)


def _by_test(rows: SeriesRows, metrics: dict[str, MetricRow], values: dict[int, Any]) -> list[Tested]:
    found: dict[tuple[str, str, str], Tested] = {}
    for row in rows.of(values):
        key = (row.cluster, row.kernel, row.parameters_json)
        found.setdefault(key, (row, metrics[row.kernel], []))[2].append(values[row.series_id])
    return list(found.values())


def _proposal(test: Tested, ratio: float) -> tuple[SeriesRow, MetricRow, Proposal] | None:
    from hpcq.kernels import Better
    from hpcq.verdict.proposing import propose

    row, metric, series = test
    made = propose(series, Better(metric.better), ratio)
    return None if made is None else (row, metric, made)


def _row(row: SeriesRow, metric: MetricRow, made: Proposal, against: str | None) -> dict[str, Any]:
    bound = "minimum" if made.better.value == "higher" else "maximum"
    from hpcq.kernels import size_option

    size_name = size_option(row.kernel)
    size = {name: value for name, value in row.parameters.items() if name == size_name}
    written: dict[str, Any] = {"metric": metric.name, "kernel": row.kernel}
    written |= {"where": size} if size else {}
    written |= {"against": against, bound: f"{100 * made.bound:.4g}%"} if against else {bound: float(f"{made.bound:.4g}")}
    numbers = {"asked_ratio": made.asked_ratio, "seen_ratio": made.seen_ratio}
    counts = {"value_count": made.value_count, "series_count": made.series_count, "needed_count": made.needed_count}
    return {"cluster": row.cluster, "gate": written, **numbers, **counts}
