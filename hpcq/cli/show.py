"""`hpcq show`: one result with the evidence of both ends, readable without the source code."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcq import units
from hpcq.cli.options import NUMBER, database_option, json_option
from hpcq.cli.output import says_that_it_works, sparkline
from hpcq.errors import Exit

if TYPE_CHECKING:
    from hpcq.store.query import ResultDetail

#: Characters in a line elsewhere than on a terminal.
_WIDTH = 118
#: No column of a narrow terminal has less.
_COLUMN_MIN = 12
#: One interval is no course.
_INTERVALS_MIN = 2
#: Sources of counters shown without --all: those about the network path and the test's own process.
_TOLD_SOURCES = ("net_dev", "qdisc", "ethtool", "sys_net", "infiniband", "snmp", "snmp6", "netstat", "softnet", "conntrack")
_TOLD_NAMES = ("stat.cpu.", "self.", "cgroup.", "cpu_power.", "pressure.cpu.")
#: Facts shown without --all; {interface} is the interface under test of that end.
_TOLD_FACTS = (
    "kernel.release",
    "cpu.model",
    "cpu.thread_count",
    "cpu.governor",
    "cpu.idle_states",
    "nic.{interface}.driver",
    "nic.{interface}.driver_version",
    "nic.{interface}.firmware",
    "nic.{interface}.link.speed_bps",
    "nic.{interface}.speed_mbps",
    "nic.{interface}.speed_bps",
    "nic.{interface}.duplex",
    "nic.{interface}.mtu_bytes",
    "nic.{interface}.numa_node",
    "nic.{interface}.pci_width",
    "nic.{interface}.pci_width_maximum",
    "nic.{interface}.coalescing.rx_usecs",
    "nic.{interface}.coalescing.adaptive_rx",
    "nic.{interface}.ring.rx",
    "nic.{interface}.rx_queue_count",
    "nic.{interface}.offload.tcp-segmentation-offload",
    "nic.{interface}.offload.rx-gro",
    "qdisc.{interface}.kinds",
    "sysctl.net.core.rmem_max",
    "sysctl.net.core.wmem_max",
    "sysctl.net.core.default_qdisc",
    "sysctl.net.core.netdev_max_backlog",
    "sysctl.net.ipv4.tcp_rmem",
    "sysctl.net.ipv4.tcp_wmem",
    "sysctl.net.ipv4.tcp_congestion_control",
    "software.mpi",
    "software.tuned_profile",
)


@click.command()
@click.argument("result", type=NUMBER)
@click.option("--all", "everything", is_flag=True, help="Every counter, gauge and fact.")
@database_option
@json_option
@says_that_it_works
def show(result: int, everything: bool, database: Path, as_json: bool) -> int:
    """Show one result with the evidence of both ends.

    RESULT is a result's number: `hpcq results --each` and `--findings` show it.

    \b
    Example: hpcq show 17
    """
    from hpcq.store import query
    from hpcq.store.database import reading
    from hpcq.store.read import evidence_queries

    with reading(database) as connection:
        found = query.detail(connection, result)
        facts = evidence_queries.facts_of_result(connection, result)
        words = evidence_queries.words_of_kernel(connection, found.result.kernel)
    if as_json:
        from hpcq.cli.output import print_json

        print_json({"detail": found, "facts": facts, "kernel": words})
    else:
        for line in page(found, facts, words, everything=everything):
            click.echo(line)
    return Exit.OK


def page(
    found: ResultDetail, facts: Mapping[str, Mapping[str, Any]], words: Mapping[str, str], *, everything: bool = False
) -> Iterator[str]:
    """The lines that `hpcq show` prints."""
    yield from _head(found, words)
    yield from _findings(found)
    yield from _metrics(found)
    yield from _intervals(found)
    yield from _set(found)
    yield from _ends(found)
    yield from _counters(found, everything=everything)
    yield from _gauges(found, everything=everything)
    yield from _facts(found, facts, everything=everything)
    yield from _origin(found)


def _head(found: ResultDetail, words: Mapping[str, str]) -> Iterator[str]:
    one = found.result
    size = f", {_shown('message_bytes', one.message_bytes)}" if one.message_bytes is not None else ""
    yield from _lines(f"result {one.result_id}: {one.kernel}{size}, {one.client} > {one.server}, cluster {one.cluster}")
    lasted = f", {units.human(found.duration_ns, 'ns')} long" if found.duration_ns else ""
    when = f"{one.started_utc[:19].replace('T', ' ')} UTC{lasted}" if one.started_utc else "not started"
    numbers = f"run {one.run}, test {one.test_no}, repetition {one.repetition_no}"
    yield from _lines(f"{one.outcome.replace('_', ' ')}: {when}; {numbers}")
    if one.reason:
        yield from _wrapped("why", one.reason)
    if found.retracted:
        yield from _wrapped("retracted", found.retracted)
    if not found.final:
        yield "another try of the same repetition counts, not this one"
    for word in ("summary", "method"):
        if words.get(word):
            yield from _wrapped("what" if word == "summary" else "how", words[word])


def _findings(found: ResultDetail) -> Iterator[str]:
    yield from _title("What the evidence says")
    one = found.result
    if found.imported:
        source = f" from {one.raw_file}" if one.raw_file else ""
        yield from _wrapped("there is none", f"another program measured this, and `hpcq import` brought it{source}", indent=2)
        return
    crossed = {"yes": "yes", "no": "NO", "unknown": "no counter tells"}[one.crossed_interface]
    yield f"  bytes went through the interface under test: {crossed}"
    yield f"  other work disturbed it: {'YES' if one.disturbed else 'no sign of it'}"
    if not found.findings:
        yield "  nothing conspicuous at either end" if found.ends else "  there is no evidence"
    for finding in found.findings:
        yield ""
        yield f"  {finding['rule']}{' at the ' + finding['end'] if finding['end'] else ''}"
        for label, key in (("seen", "message"), ("means", "meaning"), ("try", "advice")):
            yield from _wrapped(label, finding[key], indent=4)
    for warning in found.warnings:
        yield ""
        yield from _wrapped(f"kernel warns: {warning['name']}", warning["message"], indent=2)


def _metrics(found: ResultDetail) -> Iterator[str]:
    if found.metrics:
        yield from _title("Metrics")
    yield from _table((one["metric"], units.human(one["value"], one["unit"]), one["help"]) for one in found.metrics)


def _hops(found: ResultDetail) -> Iterator[str]:
    """The way of path_probe: each hop with its address, its round trips, and how many probes it answered."""
    columns = ("hop_round_trip_min_ns", "hop_round_trip_p50_ns", "hop_round_trip_max_ns")
    rows: list[tuple[str, ...]] = [("hop", "address", "shortest", "median", "longest", "answered")]
    for begin, number in sorted(found.intervals["hop_no"].items()):
        trips = [found.intervals.get(name, {}).get(begin) for name in columns]
        address = found.granted.get(f"client_hop_{number:.0f}_address", "silent")
        shown = [units.human(value, "ns") if value is not None else "" for value in trips]
        answered = found.intervals.get("hop_answered_count", {}).get(begin, 0.0)
        rows.append((f"{number:.0f}", str(address), *shown, f"{answered:.0f}"))
    yield from _title("The way")
    yield from _table(rows)


def _intervals(found: ResultDetail) -> Iterator[str]:
    """What it was interval by interval."""
    if "hop_no" in found.intervals:
        yield from _hops(found)
        return
    begins = sorted({begin for values in found.intervals.values() for begin in values})
    if len(begins) < _INTERVALS_MIN:
        return
    lengths_ms = {after - before for before, after in pairwise(begins)}
    each = f"each {min(lengths_ms)} ms" if max(lengths_ms) % min(lengths_ms) == 0 else f"{len(begins)} parts of unequal length"
    yield from _title(f"Over time, {each}, from the least to the most")
    yield from _table((name, sparkline([*values.values()], units.unit_of(name))) for name, values in found.intervals.items())


def _set(found: ResultDetail) -> Iterator[str]:
    yield from _title("Parameters")
    yield from _table((name, _shown(name, value)) for name, value in found.parameters.items())
    if found.granted:
        yield from _title("Granted by the system")
        yield from _table((name, _shown(name, value)) for name, value in found.granted.items())


def _ends(found: ResultDetail) -> Iterator[str]:
    ends = {one["end"]: one for one in found.ends}
    if not ends:
        return
    yield from _title("Ends", "client", "server")
    rows = []
    for name in ("node", "host_name", "interface", "address", "cpu_index", "pid", "boot_id", "before_utc", "interval_ns"):
        rows.append((name, *(_shown(name, ends.get(end, {}).get(name)) for end in ("client", "server"))))
    for name in ("before_cost_ns", "after_cost_ns"):
        rows.append((f"snapshot {name}", *(_shown(name, ends.get(end, {}).get(name)) for end in ("client", "server"))))
    missing = {end: ", ".join(one["source"] for one in found.unavailable if one["end"] == end) for end in ("client", "server")}
    rows.append(("could not be read", missing["client"] or "-", missing["server"] or "-"))
    yield from _table(rows)


def _counters(found: ResultDetail, *, everything: bool) -> Iterator[str]:
    told = [one for one in found.counters if everything or _is_told(one["counter"])]
    if not found.counters:
        return
    yield from _title("Counters, how far they moved", "client", "server")
    yield from _table((one["counter"], *(_moved(one, end) for end in ("client", "server"))) for one in told)
    if len(told) < len(found.counters):
        yield f"  ... and {len(found.counters) - len(told)} of single CPUs, interrupts and memory: --all"


def _gauges(found: ResultDetail, *, everything: bool) -> Iterator[str]:
    if not found.gauges or not everything:
        return
    yield from _title("Gauges, before and after", "client", "server")
    rows: dict[str, dict[str, str]] = {}
    for one in found.gauges:
        before = _shown(one["gauge"], one["before"])
        after = "" if one["after"] is None else f" > {_shown(one['gauge'], one['after'])}"
        rows.setdefault(one["gauge"], {})[one["end"]] = before + after
    yield from _table((name, ends.get("client", "-"), ends.get("server", "-")) for name, ends in rows.items())


def _facts(found: ResultDetail, facts: Mapping[str, Mapping[str, Any]], *, everything: bool) -> Iterator[str]:
    if not facts:
        return
    yield from _title("Facts of the nodes", "client", "server", "(* they differ)")
    interfaces = {one["end"]: str(one["interface"]) for one in found.ends}
    rows = []
    if everything:
        pairs = [(name, name, name) for name in sorted({name for one in facts.values() for name in one})]
    else:
        named = [name.replace("{interface}", "IF") for name in _TOLD_FACTS]
        by_end = [
            [name.replace("{interface}", interfaces.get(end, "")) for name in _TOLD_FACTS] for end in ("client", "server")
        ]
        pairs = list(zip(named, *by_end, strict=True))
    for shown, client, server in pairs:
        values = (facts.get("client", {}).get(client), facts.get("server", {}).get(server))
        if any(value is not None for value in values):
            differs = len(facts) == 2 and values[0] != values[1]
            rows.append((f"{'*' if differs else ' '} {shown}", *(_shown(shown, value) for value in values)))
    yield from _table(rows)


def _origin(found: ResultDetail) -> Iterator[str]:
    yield from _title("Where it comes from")
    one, rows = found.result, []
    if found.attempt is not None:
        native = f", {found.attempt.scheduler_job_id} in the scheduler" if found.attempt.scheduler_job_id else ""
        rows.append(("job", f"{one.job}, attempt {one.attempt_no}{native}, {found.attempt.outcome or 'alive'}"))
    if found.build is not None:
        build = found.build
        rows.append(("program", f"{build['program']} {build['version']}, sources {build['source_build_id']}"))
        rows.append(("built by", f"{build['compiler']} {build['flags']}".strip()))
        for name in ("mpi", "modules", "toolchain", "binary_sha256"):
            if build[name]:
                rows.append((name.removeprefix("binary_"), build[name]))  # so a sum of 64 characters fits a line of 80
    if found.imported:
        rows = [("job", one.job), ("imported from", one.raw_file or "-")]
    elif one.raw_file:
        rows.append(("raw line", f"{one.raw_file} in the run's folder"))
    if found.samples is not None:
        rows.append(("samples", f"{found.samples['sample_count']} in {found.samples['path']}, beside the raw line"))
    yield from _table(rows)


def _is_told(counter: str) -> bool:
    return counter.partition(".")[0] in _TOLD_SOURCES or counter.startswith(_TOLD_NAMES)


def _moved(counter: Mapping[str, Any], end: str) -> str:
    delta = counter[f"{end}_delta"]
    return "-" if delta is None else _shown(counter["counter"], delta)


def _shown(name: str, value: object) -> str:
    """A value in the unit of its name."""
    if value is None or value == "":
        return "-"
    return str(value).lower() if isinstance(value, bool) else units.human_of(name, value)


def _title(*words: str) -> Iterator[str]:
    yield ""
    yield words[0] if len(words) == 1 else f"{words[0]}: {' | '.join(words[1:])}"


def _width() -> int:
    """Characters in a line: of the terminal, but no more than can be read."""
    return min(_WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _WIDTH


#: Where a cell may break beside blanks: in a name, before the hour of a time, before the last part of a boot id.
_BREAKS = re.compile(r"(\s+|(?<=[._/])(?=[A-Za-z])|(?<=\d)(?=T\d\d:)|(?<=-)(?=[0-9a-f]{12}\b))")


class _Cell(textwrap.TextWrapper):
    """The lines of a cell, broken where a reader would break them."""

    def __init__(self, width: int) -> None:
        super().__init__(width, break_on_hyphens=False)
        self.wordsep_simple_re = _BREAKS


def _table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Columns side by side, at most 44 characters wide but for the last; a cell that is longer wraps below itself."""
    lines = [tuple(row) for row in rows]
    if not lines:
        return
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    widths[:-1] = [min(width, 44) for width in widths[:-1]]
    while sum(widths) + 2 * len(widths) > _width() and max(widths) > _COLUMN_MIN:
        widths[widths.index(max(widths))] -= 1
    for line in lines:
        parts = [_Cell(max(width, 1)).wrap(cell) or [""] for cell, width in zip(line, widths, strict=True)]
        for shown in zip_longest(*parts, fillvalue=""):
            yield ("  " + "  ".join(f"{part:<{width}}" for part, width in zip(shown, widths, strict=True))).rstrip()


def _wrapped(label: str, text: str, indent: int = 0) -> Iterator[str]:
    start = " " * indent + f"{label}: "
    yield from textwrap.wrap(text, _width(), initial_indent=start, subsequent_indent=" " * (indent + 2)) or [start]


def _lines(text: str) -> Iterator[str]:
    """A sentence over as many lines as it needs."""
    yield from textwrap.wrap(text, _width(), subsequent_indent="    ")
