"""What all kinds of gate references share: the series that a gate judges, its reference, and what to look up. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from hpcq.kernels import MetricOfTest

_Made = TypeVar("_Made")
Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MeasuredSeries(MetricOfTest):
    """All valid values of one metric of one test between two nodes, in the metric's own unit.

    result_id: the last result measured among them, 0 if there is none. lost_reason: why a test that ran never gave a valid
    result; empty if it has values or never ran. Values beside other work are left out (left_out_count); where there are
    no others, they are all kept (disturbed).
    """

    values: tuple[float, ...]
    series_id: int = 0
    result_id: int = 0
    lost_reason: str = ""
    left_out_count: int = 0
    disturbed: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """What a relative gate compares a series with. value: None if there is no reference; then `reason` says why.

    source: in words, such as `baseline good`. count: the values, or peers, that it rests on.
    """

    source: str
    value: float | None
    count: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """One node of a series as its facts describe it; the facts are empty if none were read."""

    node: str
    interface: str
    facts: Facts

    def fact(self, name: str) -> Any:
        """A fact of the interface under test, or None."""
        return self.facts.get(name.replace("{interface}", self.interface))


class Lookup(Protocol):
    """What a kind may look up in the database that holds the judged run."""

    def ends(self, series: Sequence[MeasuredSeries]) -> Mapping[int, tuple[End, End]]:
        """Client and server of each series, by its result_id."""
        ...

    def baseline(self, name: str, metric: str) -> Mapping[int, list[tuple[float, int]]] | None:
        """(value, number of results behind it) by series in the runs of a baseline; None if the baseline is unknown."""
        ...

    def measured_with(self, metric: str, history_s: float) -> Sequence[MeasuredSeries]:
        """The series of this run, and of runs up to history_s before it, in this metric."""
        ...

    def kept(self, key: tuple[object, ...], make: Callable[[], _Made]) -> _Made:
        """What `make` returns; it is called once per run and key."""
        ...


class GateKind(ABC):
    """One kind of reference. A subclass sets the class variables; its module defines an instance KIND."""

    #: The word in a campaign: `against: name`, or `against: "name:ARGUMENT"`.
    name: ClassVar[str]
    #: What follows the colon, for people; empty: there is no colon.
    argument: ClassVar[str] = ""
    #: Whether it rests on a number of values or peers (key `at_least`) and not on facts.
    counted: ClassVar[bool] = False
    #: Whether results from before the run may count (key `history`).
    takes_history: ClassVar[bool] = False
    #: The unit of the metrics that it can bound; None: any metric.
    unit: ClassVar[str | None] = None
    #: Facts of both nodes that it needs; {interface} is replaced by the interface under test.
    facts: ClassVar[tuple[str, ...]] = ()
    #: For docs/campaigns.md: what the reference is, and when there is none.
    meaning: ClassVar[str]
    missing: ClassVar[str]

    @property
    def written(self) -> str:
        """The notation in a campaign: `baseline:NAME`, `peers`."""
        return f"{self.name}:{self.argument}" if self.argument else self.name

    def baseline_of(self, argument: str) -> str | None:  # noqa: ARG002
        """The baseline whose runs are the reference, so that it does not judge its own runs; None: there is none."""
        return None

    @abstractmethod
    def reference(self, against: GateAgainst, series: MeasuredSeries, lookup: Lookup) -> Reference:
        """The reference of one series of the run, or the reason why there is none."""


@dataclass(frozen=True, slots=True)
class GateAgainst:
    """What one gate compares with. argument: the text after the kind's colon. at_least: values of the baseline, or
    peers, that it needs. history_s: how far back results of peers count, in addition to those of the run itself.
    """

    kind: GateKind
    argument: str = ""
    at_least: int = 0
    history_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind.name}:{self.argument}" if self.argument else self.kind.name
