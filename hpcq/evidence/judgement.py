"""Input and output of judging.

    load: one measured line + facts of both nodes -> JudgedResult -> judge(...) -> Judgement -> result_finding, result

Gathering and judging are separate: rules never see the database, and loading knows no rule. The caller of `load_run`
passes the judge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hpcq.clock import DriverTimes


class CrossedInterface(StrEnum):
    """Whether the bytes of a measurement went through the interface under test."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule for people: its name, its message when it applies, what to try, and the source of the knowledge."""

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
    """The input of a judge: the kernel's whole line and the facts of both nodes, if present.

    nodes: client and server as the plan calls them. A program only knows its host's name, which two local nodes share.
    driver_times: between which moments the driver's clock says that it was measured; None if no driver was there.
    """

    line: Mapping[str, Any]
    parameters: Mapping[str, Any]
    client_facts: Mapping[str, Any] | None
    server_facts: Mapping[str, Any] | None
    nodes: tuple[str, str] | None = None
    driver_times: DriverTimes | None = None


@dataclass(frozen=True, slots=True)
class EvidenceVerdict:
    """The outcome. `invalid_reason` makes the result invalid."""

    findings: tuple[Finding, ...] = ()
    disturbed: bool = False
    crossed_interface: CrossedInterface = CrossedInterface.UNKNOWN
    invalid_reason: str | None = None
    rules_version: int = 0
    """Version of the rules that judged (hpcq.evidence.rules.VERSION); 0: not judged."""


Judge = Callable[[JudgedResult], EvidenceVerdict]


def no_judge(_: JudgedResult) -> EvidenceVerdict:
    """A judge that finds nothing; loading uses it if the caller passes none."""
    return EvidenceVerdict()
