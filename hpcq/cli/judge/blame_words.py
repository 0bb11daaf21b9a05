"""Print what `hpcq blame` found, for people and for --json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from hpcq.units import count_of, human

if TYPE_CHECKING:
    from hpcq.analysis.blame_tables import RunTables
    from hpcq.localisation import Blame, Culprit
    from hpcq.verdict.words import Verdict

#: Blame names nobody on fewer slow jobs.
JOBS_MIN = 3
_SHOWN = 12


def verdict_of(found: Blame) -> Verdict:
    """The verdict on one test, as a word that all judging verbs share."""
    from hpcq.verdict.words import Verdict

    if found.nodes or found.links or found.groups or found.together:
        return Verdict.DEGRADED
    return Verdict.INCONCLUSIVE if found.undecided else Verdict.PASS


def verdicts_of(found: Mapping[str, Blame], read: RunTables | None) -> list[Verdict]:
    """One verdict per judged test and per test that fails, and NOT COVERED for each planned job that never ran."""
    from hpcq.verdict.words import Verdict

    verdicts = [verdict_of(one) for one in found.values()]
    if read is None:
        return verdicts
    missing = [Verdict.NOT_COVERED] * (read.planned_count - read.ran_count)
    sets = [one.verdict for one in read.sets if one.verdict is not None]
    return [*verdicts, *(one.verdict for one in read.failed), *sets, *missing]


def print_tests(found: Mapping[str, Blame], read: RunTables | None) -> None:
    """Print how much was judged, then the outcome test by test. read: of runs; None for a file."""
    if read is not None:
        print_read(read)
        if not found and not read.failed:
            click.echo("Nobody is named: no test of these runs has a value.")
    else:
        click.echo(f"{count_of(sum(one.result_count for one in found.values()), 'result')} of pairs judged")
    for test, one in found.items():
        if test:
            click.echo(f"{test}:")
        print_blame(one, read.units.get(test) if read is not None else None)
        if read is not None and test in read.sleep:
            click.echo(f"idle   {read.sleep[test]}: waking is part of these times, and one level per job is no slow link")


def print_read(read: RunTables) -> None:
    """Print how much was judged, what the evidence says about nodes, and what failed."""
    rows = sum(len(table.value) for _, _, table in read.tables)
    tests = f"{count_of(len(read.tables), 'test')} with values"
    click.echo(
        f"{read.cluster}: {read.ran_count} of {read.planned_count} jobs of pairs judged, {tests} ({count_of(rows, 'value')})"
    )
    if read.ran_count < read.planned_count:
        count = count_of(read.planned_count - read.ran_count, "planned job")
        click.echo(f"open      {count} never ran: nobody is cleared by what was not measured")
    for words in read.flaws.values():
        click.echo(f"evidence  {words}")
    for one in read.failed:
        click.echo(f"failed    {one.words}")
        who = (
            f"it is {', '.join(one.blamed)}"
            if one.blamed
            else "it is not clear who is to blame: measure more pairs of these nodes"
        )
        click.echo(f"          {who}")
    _print_sets(read)


def _print_sets(read: RunTables) -> None:
    """Print what failed or is missing of the tests of several nodes together, and that they name none of them."""
    told = [one for one in read.sets if one.verdict is not None]
    for one in told[:_SHOWN]:
        click.echo(f"{'failed' if one.lost_count else 'open':<9} {one.words}")
    if len(told) > _SHOWN:
        click.echo(f"          and {len(told) - _SHOWN} more; --json has them all")
    if read.sets:
        count = count_of(len(read.sets), "test")
        asked = "their pairs do" if read.planned_count else "measure pairs of them"
        click.echo(f"together  {count} of several nodes together: no node is named by them, {asked}; since when one is slow:")
        click.echo("          hpcq regressions")


def blame_json(found: dict[str, Blame], read: RunTables | None) -> dict[str, Any]:
    """One object for all tests; for runs, also one per test."""
    parts = {test: _blame_json(one) for test, one in found.items()}
    if read is None:
        return parts[""]
    lists = ("nodes", "links", "groups", "together", "next_pairs", "open_questions")
    merged: dict[str, Any] = {}
    for name in lists:
        merged[name] = []
        for part in parts.values():
            merged[name] += [one for one in part[name] if one not in merged[name]]
    merged["undecided"] = any(part["undecided"] for part in parts.values())
    for one in read.failed:
        for name in one.blamed:
            ends: Any = name.split(" - ") if " - " in name else name
            place = merged["links"] if isinstance(ends, list) else merged["nodes"]
            if ends not in place:
                place.append(ends)
        merged["undecided"] = merged["undecided"] or not one.blamed
    merged["tests"] = [{"test": test, **part} for test, part in parts.items()]
    merged["failed"] = [{**asdict(one), "words": one.words} for one in read.failed]
    merged["flaws"] = dict(read.flaws)
    merged["sleep"] = dict(read.sleep)
    merged["sets"] = [{**asdict(one), "words": one.words} for one in read.sets]
    merged["judged"] = {"job_count": read.ran_count, "planned_count": read.planned_count, "cluster": read.cluster}
    return merged


def print_blame(found: Blame, unit: str | None) -> None:
    """Print the outcome of one test. unit: of its values; None for a file, which does not say."""
    if found.healthy_value is not None and found.noise_ratio is not None:
        click.echo(
            f"{count_of(found.result_count, 'result')}; a healthy pair gets {human(found.healthy_value, unit)}, "
            f"give or take {100 * found.noise_ratio:.2g} %."
        )
    for culprit in (*found.groups, *found.nodes, *found.links):
        click.echo(_culprit_line(culprit))
    for culprit in found.together:
        click.echo(f"{_culprit_line(culprit)}, but only when many pairs run at once: load, not a broken part")
    if not (found.groups or found.nodes or found.links or found.together):
        click.echo("Nobody is named." if found.undecided else _nobody_is_slow(found))
    if found.noise_count:
        click.echo(
            f"noise  {count_of(found.noise_count, 'slow result')} that nobody in particular explains: passing traffic, say"
        )
    for question in found.open_questions:
        click.echo(f"open   {question}")
    if found.next_pairs:
        use = "These pairs would settle it" if found.undecided else "To be sure about the noise, run these pairs again"
        click.echo(f"{use}:")
        for a, b in found.next_pairs[: 4 * _SHOWN]:
            click.echo(f"  {a} {b}")
        if len(found.next_pairs) > 4 * _SHOWN:
            click.echo(f"  and {len(found.next_pairs) - 4 * _SHOWN} more; --json has them all")


def _nobody_is_slow(found: Blame) -> str:
    if found.smallest_effect_ratio is None:
        return "Nobody is slow."
    return f"Nobody is slow: none by {100 * found.smallest_effect_ratio:.2g} % or more, and less was not looked for."


def _culprit_line(culprit: Culprit) -> str:
    slower, most, least = (100 * (1 - ratio) for ratio in (culprit.speed_ratio, culprit.low, culprit.high))
    name = " - ".join(culprit.names) or "everybody"
    counts = f"slow in {culprit.slow_count} of {count_of(culprit.result_count, 'result')}"
    return (
        f"{culprit.kind.value:<6} {name}: {slower:.1f} % slower than healthy ({max(least, 0.0):.1f} to {most:.1f} %), {counts}"
    )


def _blame_json(found: Blame) -> dict[str, Any]:
    culprits = (*found.nodes, *found.links, *found.groups, *found.together)
    return {
        "nodes": [one.names[0] for one in found.nodes],
        "links": [list(one.names) for one in found.links],
        "groups": [one.names[0] for one in found.groups],
        "together": [{"kind": one.kind.value, "names": list(one.names)} for one in found.together],
        "undecided": found.undecided,
        "next_pairs": [list(pair) for pair in found.next_pairs],
        "open_questions": list(found.open_questions),
        "noise_count": found.noise_count,
        "healthy_value": found.healthy_value,
        "noise_ratio": found.noise_ratio,
        "smallest_effect_ratio": found.smallest_effect_ratio,
        "evidence": [
            {
                "kind": one.kind.value,
                "names": list(one.names),
                "speed_ratio": one.speed_ratio,
                "low": one.low,
                "high": one.high,
                "slow_count": one.slow_count,
                "result_count": one.result_count,
            }
            for one in culprits
        ],
    }
