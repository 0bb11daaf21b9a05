"""Apply the table of rules to one result. Pure: the same line and facts always give the same judgement.

JudgedResult -> Case -> every row of RULES at every end -> Judgement
"""

from __future__ import annotations

import string
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpcq import units
from hpcq.evidence.case import Case, CrossedInterface, EvidenceVerdict, Finding, JudgedResult, Side, crossing, read_case
from hpcq.evidence.rules import RULES, VERSION, WAITED_RATIO, Row, Scope
from hpcq.visible import one_line

#: Sizes below stay exact in messages: an MTU is 9000 and not 8.789 KiB.
_EXACT_BYTES_BELOW = 100_000
#: Counts and plain figures below have three digits; above them, no digit before the decimal point is rounded away.
_THREE_DIGITS_BELOW = 1000


def judge(result: JudgedResult) -> EvidenceVerdict:
    """Judge the evidence of a measured result. Never raises, whatever the line or the facts contain."""
    case = read_case(result)
    found = [(row, finding) for row in RULES for finding in _findings(row, case)]
    crossed = crossing(case)
    return EvidenceVerdict(
        findings=tuple(finding for _, finding in found),
        disturbed=any(_disturbs(row, finding) for row, finding in found),
        crossed_interface=crossed.answer,
        invalid_reason=crossed.reason if crossed.answer is CrossedInterface.NO else None,
        rules_version=VERSION,
    )


def _findings(row: Row, case: Case) -> Iterator[Finding]:
    sides = [
        Side(case, here, there) for here, there in ((case.client, case.server), (case.server, case.client)) if here is not None
    ]
    once = row.scope is Scope.RESULT or (row.scope is Scope.EACH_MACHINE and case.shared_kernel)
    for side in sides[:1] if once else sides:
        figures = row.condition(side)
        if figures is not None:
            node = f"{side.here.node} and {side.there.node} (one machine)" if once and side.there else side.here.node
            role = {} if once else {"role": side.role}
            rounded = {name: round(value, 6) if isinstance(value, float) else value for name, value in figures.items()}
            words = one_line(_Said().vformat(row.message, (), {"node": node, **figures}))
            yield Finding(row.rule, None if once else side.here.name, words, rounded | role)


def _disturbs(row: Row, finding: Finding) -> bool:
    """Whether a finding marks the result as disturbed.

    Ends on one system compete with each other, so only others' activity counts.
    """
    return row.disturbs and float(finding.figures.get("by_others_ratio", 1.0)) >= WAITED_RATIO


class _Said(string.Formatter):
    """Fills figures into a message, each in the unit that its name carries."""

    def get_value(self, key: int | str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        value, unit = super().get_value(key, args, kwargs), units.unit_of(str(key))
        if unit == "bytes" and isinstance(value, int):
            return f"{value} bytes" if value < _EXACT_BYTES_BELOW else units.human(value, unit)
        if isinstance(value, float):
            few = unit in {None, "count"} and abs(value) < _THREE_DIGITS_BELOW
            return f"{value:.3g}" if few else units.human(value, unit)
        return value


# ----------------------------------------------------------------------------------------------------------------------
# Generate the table of rules in docs/evidence.md: `python -m hpcq.evidence.judge docs/evidence.md`.


_MARK = "<!-- rules -->\n"
#: Characters of a prose line; docs/writing.md allows 120.
_WIDTH = 116


def rules_table() -> str:
    """One section per rule: where and when it applies, what it means, what to try, and the source of the knowledge."""
    parts = []
    for row in RULES:
        marks = f"Looked for at {row.scope.value}{'; marks the result disturbed' if row.disturbs else ''}."
        lines = (f"when** {row.when}. {marks}", f"try** {row.rule.advice}", f"source** {row.rule.source}")
        items = "".join(f"{_wrapped(f'- **{line}', '  ')}\n" for line in lines)
        parts.append(f"### {row.rule.name}\n\n{_wrapped(row.rule.meaning)}\n\n{items}")
    return "\n" + "\n".join(parts)


def _wrapped(prose: str, indent: str = "") -> str:
    return textwrap.fill(prose, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(page.read_text("utf-8").split(_MARK)[0] + _MARK + rules_table(), encoding="utf-8")
