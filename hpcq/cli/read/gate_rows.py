"""Verdicts of a campaign's gates for people and for --json: the same words right after a run and later."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from hpcq.errors import Exit, UserError

if TYPE_CHECKING:
    from hpcq.store.database import Connection
    from hpcq.store.query import Selection
    from hpcq.verdict import GateVerdict

_PLACES = 3


def chosen_gates(connection: Connection, selection: Selection) -> list[GateVerdict]:
    """Verdicts on the selected series. Reports the campaign of another hpcq version without judging it."""
    from hpcq.analysis.gates import judge_run

    assert selection.run is not None  # noqa: S101 - results are of one run
    try:
        verdicts = judge_run(connection, selection.run)
    except UserError as error:
        print(f"gates not judged: {error.message}", file=sys.stderr)  # noqa: T201
        return []
    return [
        one
        for one in verdicts
        if selection.kernel in {None, one.series.kernel}
        and selection.cluster in {None, one.series.cluster}
        and selection.node in {None, one.series.client, one.series.server}
    ]


def exit_code(verdicts: Sequence[GateVerdict], *, complete: bool) -> Exit:
    """3 if a gate failed, 4 if something is missing or a gate is inconclusive."""
    words = {one.verdict.value for one in verdicts}
    if "failed" in words:
        return Exit.DEGRADED
    return Exit.OK if complete and "inconclusive" not in words else Exit.INCOMPLETE


def gate_json(one: GateVerdict) -> dict[str, Any]:
    """For --json: all fields, and the observed values in words."""
    return {**asdict(one), "words": one.words}


def print_gates(verdicts: Sequence[GateVerdict]) -> None:
    """Print each failure in full, the inconclusive gates by reason, and the total."""
    open_gates: dict[tuple[str, str], list[str]] = {}
    for one in verdicts:
        place = f"{one.series.cluster}: {one.series.client} > {one.series.server}"
        if one.verdict == "failed":
            click.echo(f"gate failed: {place} {one.series.kernel}: {one.words}: allowed is {one.bound}")
        elif one.verdict == "inconclusive":
            open_gates.setdefault((one.gate, one.reason), []).append(place)
    for (gate, reason), places in open_gates.items():
        more = f" and {len(places) - _PLACES} more" if len(places) > _PLACES else ""
        click.echo(f"gate inconclusive: {gate}: {reason} ({', '.join(places[:_PLACES])}{more})")
    if verdicts:
        counts = Counter(one.verdict.value for one in verdicts)
        click.echo(
            f"gates: {', '.join(f'{counts[word]} {word}' for word in ('pass', 'failed', 'inconclusive') if counts[word])}"
        )
