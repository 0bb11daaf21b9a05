"""One row of the table of rules."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hpcq.evidence.conditions.network import Condition
from hpcq.evidence.judgement import Rule


class Scope(Enum):
    """The ends at which a rule applies."""

    EACH_END = "each end"
    """For counters of one network stack, process or interface."""
    EACH_MACHINE = "each machine"
    """For counters of a whole machine: reported once for both ends if they share one system."""
    RESULT = "the result"
    """For both ends at once."""


@dataclass(frozen=True, slots=True)
class Row:
    """One rule: `when` is its condition in words, `message` its text with places for the figures."""

    rule: Rule
    scope: Scope
    condition: Condition
    when: str
    message: str
    disturbs: bool = False


def rule(
    name: str,
    scope: Scope,
    condition: Condition,
    *,
    when: str,
    message: str,
    meaning: str,
    advice: str,
    source: str,
    disturbs: bool = False,
) -> Row:
    return Row(Rule(name, meaning, advice, source), scope, condition, when, message, disturbs)
