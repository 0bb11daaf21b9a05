"""The outcomes of a comparison of before with after."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil, pi

from hpcq.statistics.shift import Shift
from hpcq.statistics.smallest_effect import PASS_EFFECT_RATIO

#: ALPHA: chance of calling an unchanged series degraded. LOOK_AGAIN: with a p below this, a series looks worse, and you
#: should measure it again.
ALPHA = 0.01
LOOK_AGAIN = 0.05
#: To advise more runs than this would not help anybody.
_ADVICE_MAX = 200


class ComparisonVerdict(StrEnum):
    """The words of a before/after comparison. `pass` means that a worsening that matters is ruled out."""

    PASS = "pass"  # noqa: S105 -- a verdict, not a password
    DEGRADED = "degraded"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One series before against after. improved: it clearly moved in the good direction. reason: for people."""

    verdict: ComparisonVerdict
    reason: str
    improved: bool
    p_value: float | None
    shift: Shift | None
    before_count: int
    after_count: int


def runs_needed(noise_ratio: float, before_count: int, margin_ratio: float = PASS_EFFECT_RATIO) -> int | None:
    """Runs after the boundary that make the interval narrow enough; None if more runs before it are needed too.

    noise_ratio: scatter of single runs, as a share of the level. margin_ratio: distance of the observed move from the
    worsening to rule out; 1.96 standard errors of a difference of medians must fit into it.
    """
    if noise_ratio <= 0:
        return 1
    margin_ratio = max(abs(margin_ratio), PASS_EFFECT_RATIO / 4)
    allowed = (margin_ratio / 1.96 / noise_ratio) ** 2 / (pi / 2) - 1 / max(before_count, 1)
    return ceil(1 / allowed) if allowed > 0 and 1 / allowed <= _ADVICE_MAX else None


def more_needed(noise_ratio: float, margin_ratio: float, before_count: int, after_count: int) -> str:
    """`3 more runs would settle it`, for people; see runs_needed()."""
    needed = runs_needed(noise_ratio, before_count, margin_ratio)
    if needed is not None:
        count = max(1, needed - after_count)
        return f"{count} more run{'' if count == 1 else 's'} would settle it"
    at_least = runs_needed(noise_ratio, 10**9, margin_ratio)
    if at_least is None:
        return f"at a noise of {100 * noise_ratio:.2g} % more runs than anybody waits for would be needed"
    sides = max(1, 2 * at_least - before_count), max(1, 2 * at_least - after_count)
    return f"about {sides[0]} more runs before and {sides[1]} more after would settle it"
