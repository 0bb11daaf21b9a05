"""Verdicts of a campaign's gates for people and for --json: the same words right after a run and later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from hpcq.errors import Exit, UserError
from hpcq.nodelist import takes_part

if TYPE_CHECKING:
    from hpcq.store.database import Connection
    from hpcq.store.query import Selection
    from hpcq.verdict import GateVerdict

_PLACES = 3


@dataclass(frozen=True, slots=True)
class RunJudged:
    """How much of what was planned is there, and what judged it.

    outcomes: planned results by outcome. gates_unread: why the campaign's gates could not be judged; empty if they were.
    """

    outcomes: Mapping[str, int]
    gates: tuple[GateVerdict, ...] = ()
    gates_unread: str = ""

    @property
    def planned_count(self) -> int:
        """All planned results."""
        return sum(self.outcomes.values())

    @property
    def exit_code(self) -> Exit:
        """3 if a gate failed; 4 if something is missing or could not be judged, or if there is nothing at all; else 0."""
        from hpcq.verdict.words import Tally

        code = Tally.of(one.verdict for one in self.gates).exit_code if self.gates else Exit.OK
        whole = self.planned_count > 0 and self.outcomes.get("measured", 0) == self.planned_count
        return code if code is not Exit.OK or (whole and not self.gates_unread) else Exit.INCOMPLETE

    @property
    def first_line(self) -> str:
        """`20 of 24 planned results measured (4 invalid); 12 gates judged: 11 PASS, 1 FAIL`."""
        from hpcq.verdict.words import Tally

        if not self.planned_count:
            return "no result judged: there is nothing to judge"
        lost = ", ".join(f"{count} {_OUTCOME[name]}" for name, count in self.outcomes.items() if name != "measured")
        measured = f"{self.outcomes.get('measured', 0)} of {self.planned_count} planned results measured"
        judged = Tally.of(one.verdict for one in self.gates).first_line("gate") if self.gates else "no gate judges them"
        judged = f"gates not judged: {self.gates_unread}" if self.gates_unread else judged
        return f"{measured}{f' ({lost})' if lost else ''}; {judged}"

    def to_json(self) -> dict[str, Any]:
        """For --json: counts by outcome and by verdict of the gates, and the exit code."""
        from hpcq.verdict.words import Tally

        counts = {f"{name}_count": self.outcomes.get(name, 0) for name in _OUTCOME}
        gates = Tally.of(one.verdict for one in self.gates).to_json()
        return {"planned_count": self.planned_count, **counts, "gates": gates, "gates_unread": self.gates_unread}


_OUTCOME = {"measured": "measured", "invalid": "invalid", "failed": "failed", "not_measured": "not measured"}


def judge_selection(connection: Connection, whole: Selection, selection: Selection | None = None) -> RunJudged:
    """What is planned and there in `whole`, and the gates of `selection` (default: the same) if that is one run.

    Gates of a campaign that this hpcq version cannot read are reported as not judged.
    """
    from hpcq.analysis.gates import judge_run
    from hpcq.store.query import outcome_counts

    chosen = selection or whole
    verdicts: Sequence[GateVerdict] = ()
    unread = ""
    if chosen.run is not None:
        try:
            verdicts = judge_run(connection, chosen.run)
        except UserError as error:
            unread = error.message
    kept = tuple(
        one
        for one in verdicts
        if chosen.kernel in {None, one.series.kernel}
        and chosen.cluster in {None, one.series.cluster}
        and (chosen.node is None or takes_part(chosen.node, one.series.client, one.series.server))
    )
    return RunJudged(outcome_counts(connection, whole), kept, unread)


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
