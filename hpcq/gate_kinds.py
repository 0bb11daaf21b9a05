"""The kinds of references that a gate can compare results with. Pure.

First what all kinds share: the series that a gate judges, its reference, and what a kind may look up. Then one class per
kind, which says everything about it: its name in a campaign, its keys, the facts of nodes that it needs, its text in
docs/campaigns.md, and how it finds the reference of a series. docs/extending.md shows how to add one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any, ClassVar, Protocol, TypeVar, get_type_hints

from hpcq import plugins
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
    network: str = ""
    #: Of a kernel that ran with several.
    toolchain: str = ""

    @property
    def ends(self) -> str:
        """`n1 > n2`, and the toolchain where the kernel ran with several: `n1 > n2 with intel`."""
        return f"{self.client} > {self.server}" + (f" with {self.toolchain}" if self.toolchain else "")


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
    """One kind of reference. A subclass sets the class variables."""

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


# ----------------------------------------------------------------------------------------------------------------------
# The speed of a node's interface according to the node's facts, for `link` and `peers`.

#: Facts that speed_bps() reads.
SPEED_FACTS = ("nic.{interface}.speed_mbps", "nic.{interface}.link.speed_bps")


def speed_bps(end: End) -> float | None:
    """The current speed that the interface reports; None if it reports none."""
    speed = end.fact("nic.{interface}.link.speed_bps")
    mbps = end.fact("nic.{interface}.speed_mbps")
    found = speed if isinstance(speed, (int, float)) else 1e6 * mbps if isinstance(mbps, (int, float)) else 0
    return float(found) if found > 0 else None


# ----------------------------------------------------------------------------------------------------------------------
# `against: baseline:NAME`: the median of the same series in the runs of a baseline.


def baseline_reference(name: str, values: Sequence[tuple[float, int]] | None, at_least: int) -> Reference:
    """values: (value, number of results behind it) of the series in the baseline; None: there is no such baseline."""
    source = f"baseline {name}"
    if values is None:
        return Reference(source, None, reason=f"there is no baseline {name}: hpcq baseline set {name} RUN makes it")
    count = sum(weight for _, weight in values)
    if count < at_least:
        return Reference(
            source, None, count, f"baseline {name} has {count} undisturbed values of this test and pair: {at_least} are needed"
        )
    spread = [value for value, weight in values for _ in range(weight)]
    return Reference(f"{source}, {count} values", median(spread), count)


class _Baseline(GateKind):
    name = "baseline"
    argument = "NAME"
    counted = True
    meaning = "the median of the same series (pair, test, network) in the baseline's runs"
    missing = "there is no such baseline, or it has fewer than `at_least` values of the series"

    def baseline_of(self, argument: str) -> str:
        return argument

    def reference(self, against: GateAgainst, series: MeasuredSeries, lookup: Lookup) -> Reference:
        values = lookup.baseline(against.argument, series.metric)
        mine = None if values is None else values.get(series.series_id, [])
        return baseline_reference(against.argument, mine, against.at_least)


# ----------------------------------------------------------------------------------------------------------------------
# `against: link`: the speed of the slowest interface on the path, or of a token bucket at the sender.

#: Interfaces that exist only in the operating system: the speed that they report is a fixed number, not a limit.
VIRTUAL_DRIVERS = frozenset(
    {"veth", "tun", "bridge", "dummy", "ifb", "macvlan", "ipvlan", "virtio_net", "openvswitch", "vxlan"}
)


def link_reference(series: MeasuredSeries, ends: tuple[End, End]) -> Reference:
    """The slowest part of the path that the facts show."""
    sender = 1 if series.parameters.get("direction") == "server_to_client" else 0
    limits: list[tuple[float, str]] = []
    reasons = []
    for place, end in enumerate(ends):
        own, why = _link_limit(end)
        shaped = end.fact("qdisc.{interface}.tbf_rate_bps") if place == sender else None
        limits += [(own, f"link of {end.node}")] if own else []
        limits += [(float(shaped), f"token bucket of {end.node}")] if shaped else []
        if why and not shaped:
            reasons.append(why)
    shaped_at = [limit for limit in limits if limit[1].startswith("token")]
    if reasons and not shaped_at:
        return Reference("link", None, reason=reasons[0])
    value, source = min(limits)
    return Reference(source, value, 1)


def _link_limit(end: End) -> tuple[float | None, str]:
    """The speed of a node's link, or None and the reason."""
    driver = end.fact("nic.{interface}.driver")
    if end.interface == "lo":
        return None, f"{end.node} was measured over lo, which is no link: gate against memory"
    if driver in VIRTUAL_DRIVERS:
        return None, f"{end.interface} of {end.node} is virtual ({driver}): the speed it reports is no limit"
    speed = speed_bps(end)
    return speed, "" if speed else f"the speed of {end.interface or 'the interface'} of {end.node} is not known"


#: What one core of today's servers sends or receives of TCP at least, checksums and segments left to the card: a faster
#: link needs more than one stream. Single streams on 100 Gbit/s reach 20 to 40.
ONE_CORE_BPS = 20e9
#: The argument with which a link faster than that counts as ONE_CORE_BPS.
ONE_CORE = "one core"


class _Link(GateKind):
    name = "link"
    unit = "bps"
    facts = ("qdisc.{interface}.tbf_rate_bps", "nic.{interface}.driver", *SPEED_FACTS)
    meaning = "the slower of both ends' NIC speeds, and a token bucket (tbf) at the sender"
    missing = "a speed is not known; the interface is virtual (veth, virtio, ...): what it reports is no limit; lo"

    def reference(self, against: GateAgainst, series: MeasuredSeries, lookup: Lookup) -> Reference:
        found = link_reference(series, lookup.ends([series])[series.result_id])
        if against.argument == ONE_CORE and found.value is not None and found.value > ONE_CORE_BPS:
            return Reference(f"what one core moves; {found.source} is faster", ONE_CORE_BPS, 1)
        return found


# ----------------------------------------------------------------------------------------------------------------------
# `against: memory`: the rate at which the slower of both nodes copies memory. No byte reaches a program uncopied.


def memory_reference(ends: tuple[End, End]) -> Reference:
    """The copy rate of the slower node."""
    rates = [(end.fact("now.memory_copy_bps"), end.node) for end in ends]
    for rate, node in rates:
        if not rate:
            reason = f"how fast {node} copies memory was not measured: its facts are from an older hpcq, or missing"
            return Reference("memory copy", None, reason=reason)
    value, node = min((float(rate), node) for rate, node in rates if rate)
    return Reference(f"memory copy of {node}", value, 1)


class _Memory(GateKind):
    name = "memory"
    unit = "bps"
    facts = ("now.memory_copy_bps",)
    meaning = "the rate at which the slower of both nodes copies a block that fits its caches, measured once per job"
    missing = "the job's facts are missing or of an older hpcq"

    def reference(self, against: GateAgainst, series: MeasuredSeries, lookup: Lookup) -> Reference:  # noqa: ARG002
        return memory_reference(lookup.ends([series])[series.result_id])


# ----------------------------------------------------------------------------------------------------------------------
# `against: peers`: the median of the medians of other pairs in the same test whose nodes have the same hardware.


def hardware(end: End) -> str | None:
    """CPU and NIC of a node in one line; None if its facts do not say.

    For a NIC: its model and abilities, not the speed of its link. A link that came up slow is not different hardware.
    """
    cpu = end.fact("cpu.model") or end.fact("cpu.part")
    if not cpu:
        return None
    model = [end.fact(f"nic.{{interface}}.{name}") for name in ("pci_vendor", "pci_device", "driver")]
    able_bps = end.fact("nic.{interface}.link.speed_maximum_bps")
    if able_bps is None and model[0] is None:
        able_bps = speed_bps(end)
    nic = " ".join(str(part) for part in (*model, able_bps) if part is not None)
    return f"{cpu}; {nic or end.interface}"


class Peers:
    """The medians of pairs, by test and hardware of both ends. A gate asks for the reference of each pair in turn."""

    def __init__(self, series: Iterable[MeasuredSeries], ends: Mapping[int, tuple[End, End]]) -> None:
        """ends: by result_id of the series. Series without values or with unknown hardware are peers of no series."""
        self._ends = ends
        values: dict[str, dict[frozenset[str], list[float]]] = {}
        for one in series:
            alike = self._alike(one)
            if one.values and not one.disturbed and None not in alike:
                pairs = values.setdefault(_test(one, alike), {})
                pairs.setdefault(frozenset((one.client, one.server)), []).append(median(one.values))
        self._medians = {key: {pair: median(each) for pair, each in pairs.items()} for key, pairs in values.items()}
        self._ordered = {key: sorted(pairs.values()) for key, pairs in self._medians.items()}

    def reference(self, series: MeasuredSeries, at_least: int) -> Reference:
        """The median of the other pairs. The two nodes of this pair do not count, whichever of them is the client."""
        alike = self._alike(series)
        if None in alike:
            node = (series.client, series.server)[alike.index(None)]
            return Reference("peers", None, reason=f"the hardware of {node} is not known: it has no facts of its CPU")
        key = _test(series, alike)
        ordered, own = self._ordered.get(key, []), self._medians.get(key, {}).get(frozenset((series.client, series.server)))
        count = len(ordered) - (own is not None)
        if count < at_least:
            reason = f"{count} other pairs of the same hardware have this test: {at_least} are needed"
            return Reference("peers", None, count, reason)
        left_out = len(ordered) if own is None else bisect_left(ordered, own)
        middle = [ordered[place + (place >= left_out)] for place in ((count - 1) // 2, count // 2)]
        return Reference(f"{count} peers", sum(middle) / 2, count)

    def _alike(self, series: MeasuredSeries) -> tuple[str | None, str | None]:
        found = self._ends.get(series.result_id)
        return (None, None) if found is None else (hardware(found[0]), hardware(found[1]))


def _test(series: MeasuredSeries, alike: tuple[str | None, str | None]) -> str:
    """What peers have in common."""
    test = (series.cluster, series.kernel, series.metric, series.network, series.toolchain, alike)
    return f"{test} {sorted((name, str(value)) for name, value in series.parameters.items())}"


class _Peers(GateKind):
    name = "peers"
    counted = True
    takes_history = True
    facts = (
        "cpu.model",
        "cpu.part",
        "nic.{interface}.driver",
        "nic.{interface}.pci_vendor",
        "nic.{interface}.pci_device",
        "nic.{interface}.link.speed_maximum_bps",
        *SPEED_FACTS,
    )
    meaning = (
        "the median over the medians of other pairs in the same run (and `history`), same test, both ends the same hardware"
    )
    missing = "fewer than `at_least` other pairs; a node without facts of its CPU"

    def reference(self, against: GateAgainst, series: MeasuredSeries, lookup: Lookup) -> Reference:
        def peers() -> Peers:
            others = lookup.measured_with(series.metric, against.history_s)
            return Peers(others, lookup.ends([*others, series]))

        return lookup.kept(("peers", series.metric, against.history_s), peers).reference(series, against.at_least)


# ----------------------------------------------------------------------------------------------------------------------
# `against: reverse`: the result of the same two nodes in the other direction. 90 % finds pairs with one fast way.

_OTHER_WAY = {"client_to_server": "server_to_client", "server_to_client": "client_to_server"}


def is_reverse(series: MeasuredSeries, other: MeasuredSeries) -> bool:
    """Whether the other series is the same test of the same two nodes, with the data in the other direction."""
    direction = series.parameters.get("direction")
    turned = {**series.parameters, "direction": _OTHER_WAY[direction]} if direction in _OTHER_WAY else None
    tests = [(one.cluster, one.kernel, one.metric, one.network) for one in (series, other)]
    same_test = tests[0] == tests[1]
    swapped = (series.client, series.server) == (other.server, other.client) and series.parameters == other.parameters
    other_direction = (series.client, series.server) == (other.client, other.server) and turned == other.parameters
    return same_test and (swapped or other_direction)


class _Reverse(GateKind):
    name = "reverse"
    meaning = "the median of the same test between the same two nodes in the other direction, in the same run"
    missing = "the run did not measure the other direction (`directions: both`, or a sweep over `direction`)"

    def reference(self, against: GateAgainst, series: MeasuredSeries, lookup: Lookup) -> Reference:  # noqa: ARG002
        measured = [one for one in lookup.measured_with(series.metric, 0.0) if one.values and is_reverse(series, one)]
        others = [one for one in measured if not one.disturbed]
        if not others:
            pair = f"{series.server} > {series.client}"
            reason = f"{pair} was not measured: give pairs `directions: both`"
            if measured:
                reason = f"{pair} was measured only beside other work: measure again"
            return Reference("other direction", None, reason=reason)
        return Reference("other direction", median(median(one.values) for one in others), len(others))


# ----------------------------------------------------------------------------------------------------------------------
# All gate kinds: those of this file, and those of plug-ins.

LINK = _Link()
_OWN: tuple[GateKind, ...] = (_Baseline(), LINK, _Memory(), _Peers(), _Reverse())

#: Fewer values of a baseline, or fewer peers, are too uncertain. With five, the median is right even if two are off.
REFERENCES_AT_LEAST = 5


@cache
def gate_kinds() -> dict[str, GateKind]:
    """All kinds by name, in the order of the names."""
    own = {kind.name: kind for kind in _OWN}
    return dict(sorted({**own, **plugins.usable(plugins.GATE_KINDS, own, _complaint)}.items()))


def _complaint(one: plugins.Plugin) -> str:
    found = one.found
    if not isinstance(found, GateKind):
        return f"is {plugins.type_words(found)}: must be a GateKind"
    missing = [name for name in ("name", "meaning", "missing") if not hasattr(found, name)]
    if missing:
        return f"has no {missing[0]}: must have name, meaning and missing"
    for name, type_told in get_type_hints(GateKind).items():
        if not plugins.fits(getattr(found, name), type_told):
            return f"its {name} is {plugins.type_words(getattr(found, name))}: must be {plugins.hint_words(type_told)}"
    return "" if found.name == one.name else f"calls itself {found.name!r}: must be the name of its entry point"


def read_against(text: str) -> GateAgainst:
    """Read what a person wrote, such as baseline:NAME or peers. Raises ValueError `FOUND: ALLOWED`."""
    name, _, argument = text.partition(":")
    kind = gate_kinds().get(name)
    reason = plugins.refusal(plugins.GATE_KINDS, name)
    if reason:
        raise ValueError(f"{text!r}: plug-in {reason}")
    if kind is None or bool(argument) != bool(kind.argument):
        raise ValueError(f"{text!r}: must be {written_kinds('or')}")
    return GateAgainst(kind, argument, REFERENCES_AT_LEAST if kind.counted else 0)


def written_kinds(word: str, chosen: Callable[[GateKind], bool] = lambda _: True) -> str:
    """The kinds as a campaign writes them, as part of a sentence: `baseline:NAME, link, memory or peers`."""
    *others, last = [kind.written for kind in gate_kinds().values() if chosen(kind)]
    return f"{', '.join(others)} {word} {last}" if others else last


def needed_facts() -> tuple[str, ...]:
    """All facts that any kind needs, each once."""
    return tuple(dict.fromkeys(fact for kind in gate_kinds().values() for fact in kind.facts))
