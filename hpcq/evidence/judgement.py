"""What loading shows to the rules, and what they answer.

    load: one measured line + facts of both nodes -> JudgedResult -> judge(...) -> Judgement -> result_finding, result

Gathering and judging are apart: rules never see the database, loading knows no rule. Whoever calls `load_run` brings the judge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class CrossedInterface(StrEnum):
    """Whether the bytes of a measurement went through the interface under test."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule for people: a word, what it says when it applies, what to try, and where the knowledge comes from."""

    name: str
    meaning: str
    advice: str
    source: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule that applied; `end` is client, server or None (both or neither)."""

    rule: Rule
    end: str | None
    message: str
    figures: Mapping[str, float | int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JudgedResult:
    """What a judge may look at: the kernel's whole line and the facts of both nodes where they came in."""

    line: Mapping[str, Any]
    parameters: Mapping[str, Any]
    client_facts: Mapping[str, Any] | None
    server_facts: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the evidence says; `invalid_reason` takes the result out of the measured ones."""

    findings: tuple[Finding, ...] = ()
    disturbed: bool = False
    crossed_interface: CrossedInterface = CrossedInterface.UNKNOWN
    invalid_reason: str | None = None
    rules_version: int = 0
    """Of the rules that judged (hpcq.evidence.rules.VERSION); 0: nobody did."""


Judge = Callable[[JudgedResult], Judgement]


def no_judge(_: JudgedResult) -> Judgement:
    """Finds nothing; what loading uses when nobody brings rules."""
    return Judgement()
