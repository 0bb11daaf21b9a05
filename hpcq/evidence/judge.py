"""Apply the table of rules to one result. Pure: the same line and facts always give the same judgement.

JudgedResult -> Case -> every row of RULES at every end -> Judgement
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from typing import Any

from hpcq import units
from hpcq.evidence.case import Case, Side, read_case
from hpcq.evidence.conditions.host import WAITED_RATIO
from hpcq.evidence.crossing import crossing
from hpcq.evidence.judgement import CrossedInterface, Finding, JudgedResult, Judgement
from hpcq.evidence.rules import RULES, VERSION, Row, Scope

#: Sizes below stay exact in messages: an MTU is 9000 and not 8.789 KiB.
_EXACT_BYTES_BELOW = 100_000
#: Counts and plain figures below have three digits; above them, no digit before the decimal point is rounded away.
_THREE_DIGITS_BELOW = 1000


def judge(result: JudgedResult) -> Judgement:
    """Judge the evidence of a measured result. Never raises, whatever the line or the facts contain."""
    case = read_case(result)
    found = [(row, finding) for row in RULES for finding in _findings(row, case)]
    crossed = crossing(case)
    return Judgement(
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
            yield Finding(
                row.rule, None if once else side.here.name, _said(row.message, {"node": node, **figures}), rounded | role
            )


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


def _said(message: str, figures: Mapping[str, Any]) -> str:
    return _Said().vformat(message, (), figures)
