"""One end's evidence and facts as rules read them: only whole numbers, absent means zero, unavailable means None.

    End.count(names)      0 if the counter did not move, None if its source could not be read
    End.matching(regex)   every counter that fits and moved
    End.fact("mtu_bytes") None if the node's facts lack it

Values without the promised form are dropped here, so no rule sees them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hpcq.evidence import names

#: Patterns that rules ask for, and the sources that can match them.
_REGEXES: dict[str, tuple[re.Pattern[str], tuple[str, ...]]] = {}

#: Clock ticks of /proc/stat per second: USER_HZ is 100 on every architecture that clusters have (proc_stat(5)).
TICKS_A_SECOND = 100
#: Largest gap between two readings of one clock: some instructions and perhaps a preemption.
SAME_START_US = 1000


@dataclass(frozen=True)
class End:
    """One end of a measurement: `name` is client or server."""

    name: str
    node: str
    interface: str
    address: str
    boot_id: str
    cpu_index: int | None
    interval_ns: int
    before_utc: str
    after_utc: str
    before_cost_ns: int
    counters: Mapping[str, int]
    gauges: Mapping[str, tuple[float, float]]
    unavailable: Mapping[str, str]
    rdma_bytes: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def interval_s(self) -> float:
        """Time between the snapshots; 0 if it is not known."""
        return self.interval_ns / 1e9

    def readable(self, counter: str) -> bool:
        """Whether the counter's source was read in both snapshots."""
        return not any(counter == source or counter.startswith(source + ".") for source in self.unavailable)

    def count(self, counters: Iterable[str] | str) -> int | None:
        """The sum of counters; None if none of them could be read."""
        wanted = [self.named(counter) for counter in ((counters,) if isinstance(counters, str) else counters)]
        readable = [counter for counter in wanted if self.readable(counter)]
        return sum(self.counters.get(counter, 0) for counter in readable) if readable else None

    def matching(self, pattern: str) -> dict[str, int]:
        """Counters whose whole name matches the pattern.

        In it, {interface} is the interface under test, {rdma} its RDMA port, {cpu} the CPU that this end ran on.
        """
        text = pattern.replace("{interface}", re.escape(self.interface)).replace("{cpu}", str(self.cpu_index))
        text = text.replace("{rdma}", self.rdma_pattern)
        regex, sources = _REGEXES.get(text) or _REGEXES.setdefault(text, (re.compile(text), _sources(pattern)))
        return {
            name: self.counters[name] for source in sources for name in self.by_source.get(source, ()) if regex.fullmatch(name)
        }

    @cached_property
    def rdma_pattern(self) -> str:
        """The RDMA port of the interface under test, from the node's facts; without them, the ports that moved data."""
        port = self.facts.get(f"rdma.{self.interface}.port")
        if isinstance(port, str) and port:
            return re.escape(port)
        moved = {
            match[1] for name in self.counters if (match := re.fullmatch(r"infiniband\.(.+\.\d+)\.port_\w+_data_bytes", name))
        }
        return "(" + "|".join(re.escape(one) for one in sorted(moved)) + ")" if moved else "(?!)"

    @cached_property
    def by_source(self) -> dict[str, list[str]]:
        """Names of the counters that moved, by their first word."""
        found: dict[str, list[str]] = {}
        for name in self.counters:
            found.setdefault(name.partition(".")[0], []).append(name)
        return found

    def gauge(self, name: str) -> tuple[float, float] | None:
        """Both readings of a gauge."""
        return self.gauges.get(self.named(name))

    def fact(self, key: str) -> Any:
        """A fact by its key in names.FACTS, or None."""
        return next((self.facts[name] for one, _ in names.FACTS[key] if (name := self.named(one)) in self.facts), None)

    def number(self, key: str) -> float | None:
        """A fact that is a number, in the unit of its key, or None."""
        for one, factor in names.FACTS[key]:
            value = self.facts.get(self.named(one))
            if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value):
                value = float(value)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return value * factor
        return None

    def named(self, name: str) -> str:
        """A name of the table with this end's interface and CPU filled in."""
        return name.replace("{interface}", self.interface).replace("{cpu}", str(self.cpu_index))

    @cached_property
    def ticks(self) -> dict[str, dict[str, int]]:
        """Ticks by CPU (`cpu` is all of them) and mode; empty if they could not be read."""
        found: dict[str, dict[str, int]] = {}
        for name, delta in self.matching(names.TICKS).items():
            _, cpu, mode = name.split(".")
            found.setdefault(cpu, {})[mode.removesuffix("_ticks")] = delta
        return found


def read_end(name: str, evidence: object, facts: Mapping[str, Any] | None) -> End | None:
    """An end of a result line; None if the line lacks it."""
    if not isinstance(evidence, Mapping) or not evidence:
        return None
    gauges = {}
    for gauge, value in _mapping(evidence.get("gauges")).items():
        pair = value if isinstance(value, list) and len(value) == 2 else [value, value]
        if all(_is_number(one) for one in pair):
            gauges[gauge] = (float(pair[0]), float(pair[1]))
    costs = evidence.get("snapshot_cost_ns")
    return End(
        name=name,
        node=_text(evidence.get("scheduler_node")) or _text(evidence.get("node")) or name,
        interface=_text(evidence.get("interface")),
        address=_text(evidence.get("address")),
        boot_id=_text(evidence.get("boot_id")),
        cpu_index=cpu if (cpu := _whole(evidence.get("cpu_index"))) is not None and cpu >= 0 else None,
        interval_ns=max(0, _whole(evidence.get("interval_ns")) or 0),
        before_utc=_text(evidence.get("before_utc")),
        after_utc=_text(evidence.get("after_utc")),
        before_cost_ns=_whole(costs[0]) or 0 if isinstance(costs, list) and costs else 0,
        counters={
            counter: delta
            for counter, value in _mapping(evidence.get("counters")).items()
            if (delta := _whole(value)) is not None and delta > 0
        },
        gauges=gauges,
        unavailable={source: str(reason) for source, reason in _mapping(evidence.get("unavailable")).items()},
        rdma_bytes={
            way: moved
            for way, value in _mapping(evidence.get("rdma_bytes")).items()
            if (moved := _whole(value)) is not None and moved > 0
        },
        facts=flat(facts or {}),
    )


def same_kernel(client: End, server: End) -> bool:
    """Whether both ends ran on one operating system: two names of one machine, or two of its namespaces.

    Counters of the whole machine then contain both ends and cannot separate them. A lab may give each node its own boot
    id, so the start of the monotonic clock counts too: no two systems start within a millisecond.
    """
    if client.boot_id and client.boot_id == server.boot_id:
        return True
    here, there = client.gauge(names.WALL_MINUS_MONOTONIC), server.gauge(names.WALL_MINUS_MONOTONIC)
    if here is None or there is None or abs(here[0] - there[0]) > SAME_START_US:
        return False
    memory = client.gauge(names.MEMORY_TOTAL)
    return memory is not None and memory == server.gauge(names.MEMORY_TOTAL)


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested facts as dotted names, as in the database; an object in a list is addressed by its name."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, Mapping):
            found.update(flat(value, dotted + "."))
        elif isinstance(value, list) and any(isinstance(one, (Mapping, list)) for one in value):
            named = {str(one.get("name", index) if isinstance(one, Mapping) else index): one for index, one in enumerate(value)}
            found.update(flat(named, dotted + "."))
        elif isinstance(value, list):
            found[dotted] = " ".join(str(one) for one in value)
        elif value is not None:
            found[dotted] = value
    return found


def _sources(pattern: str) -> tuple[str, ...]:
    """The first words of a pattern's alternatives: the part before an escaped dot at their beginning."""
    return tuple(dict.fromkeys(re.findall(r"(?:^|\|)([a-z0-9_]+)\\\.", pattern)))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
