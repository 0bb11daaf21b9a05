"""perfSONAR: what pScheduler's archivers get, one JSON object per run of a test: on lines, in a list, or one per file.

Read are throughput (iperf3, nuttcp, ethr), rtt (ping) and latency (owping, twping) between two hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcq.errors import UserError
from hpcq.imports.others import Maker, files_in, list_of, made, mapping_of, number_of, objects
from hpcq.imports.values import Problems, Source, Value, read_bytes

SUFFIXES = (".json", ".jsonl", ".log")
_DURATION = re.compile(r"(-)?P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")


def read(paths: Sequence[Path], maker: Maker, problems: Problems) -> Iterator[Source]:
    """The values in these files, and in those below folders. Raises UserError for a file of another kind."""
    for path in files_in(paths, SUFFIXES):
        content, digest = read_bytes(path)
        yield Source(str(path), digest, _values(path, content.decode("utf-8", "replace"), maker, problems))


def _values(path: Path, text: str, maker: Maker, problems: Problems) -> Iterator[Value]:
    said = maker.roles(path)
    for line, one in objects(str(path), text):
        test = one.get("test") if isinstance(one, dict) else None
        if not isinstance(test, dict) or "type" not in test:
            raise UserError(f"{path}:{line}: no test with a type: must be what pScheduler hands to its archivers")
        try:
            yield from _of_run(line, one, said, maker)
        except ValueError as error:
            problems.add(str(path), line, str(error))


def _of_run(line: int, one: Mapping[str, Any], said: Mapping[str, str], maker: Maker) -> Iterator[Value]:
    kind, spec = str(one["test"]["type"]), mapping_of(one["test"].get("spec"))
    if kind not in _READERS:
        maker.notes[f"tests of type {kind} were left out: read are {', '.join(_READERS)}"] = None
        return
    ends = [said.get("client") or spec.get("source") or next(iter(list_of(one.get("participants"))), ""), said.get("server")]
    ends[1] = ends[1] or spec.get("dest") or ""
    if not (ends[0] and ends[1]):
        raise ValueError("test.spec: source or dest is missing: must be both hosts")
    client, server = maker.nodes([str(end) for end in ends])
    start = (
        mapping_of(one.get("schedule")).get("start") or mapping_of(one.get("run")).get("start-time") or one.get("start-time")
    )
    if not start:
        raise ValueError("schedule.start: missing: must be when the run began")
    time_utc = maker.utc(str(start))
    where = {
        "time_utc": time_utc,
        "run": maker.run(said, time_utc),
        "job": re.sub(r"[^A-Za-z0-9_-]", "_", str(one.get("id") or one.get("run-id") or ""))[:60]
        or time_utc[11:19].replace(":", ""),
        "test": maker.test(kind, {"tool": str(mapping_of(one.get("tool")).get("name") or "unknown")}),
        "client": client,
        "server": server,
        "repetition_no": None,
    }
    result = mapping_of(one.get("result"))
    if result.get("succeeded") is not True:
        yield made(line, where, None, None, str(result.get("error") or "pScheduler says that it did not succeed")[:400])
        return
    for name, unit, better, value in _READERS[kind](result, spec):
        metric, factor = maker.metric(name, unit, better)
        yield made(line, where, metric, value * factor, None)


#: Metric, unit, direction, value.
Found = Iterator[tuple[str, str, str, float]]


def _throughput(result: Mapping[str, Any], _: Mapping[str, Any]) -> Found:
    summary = mapping_of(mapping_of(result.get("summary")).get("summary"))
    yield "throughput", "bps", "higher", number_of(summary.get("throughput-bits"), "result.summary.summary.throughput-bits")
    if summary.get("retransmits") is not None:
        yield "retransmits", "", "lower", number_of(summary["retransmits"], "result.summary.summary.retransmits")


def _rtt(result: Mapping[str, Any], _: Mapping[str, Any]) -> Found:
    for key in ("mean", "min", "max"):
        if result.get(key) is not None:
            yield f"round_trip_{key}", "s", "lower", _seconds(result[key], f"result.{key}")
    if result.get("loss") is not None:
        yield "loss", "ratio", "lower", number_of(result["loss"], "result.loss")


def _latency(result: Mapping[str, Any], spec: Mapping[str, Any]) -> Found:
    """The median; the keys of the histogram are in widths of its buckets, a millisecond unless the test says otherwise."""
    width_s = number_of(spec.get("bucket-width", 0.001), "test.spec.bucket-width")
    counts = mapping_of(result.get("histogram-latency"))
    if not counts:
        raise ValueError("result.histogram-latency: missing: must be a histogram")
    ordered = sorted(
        (number_of(float(delay), "delay"), number_of(count, f"result.histogram-latency.{delay}"))
        for delay, count in counts.items()
    )
    half, passed = sum(count for _, count in ordered) / 2, 0.0
    for delay, count in ordered:
        passed += count
        if passed >= half:
            yield "one_way_p50", "s", "lower", delay * width_s
            break
    sent, lost = result.get("packets-sent"), result.get("packets-lost")
    if sent and lost is not None:
        yield "loss", "ratio", "lower", number_of(lost, "result.packets-lost") / number_of(sent, "result.packets-sent")


_READERS = {"throughput": _throughput, "rtt": _rtt, "latency": _latency, "latencybg": _latency}


def _seconds(text: object, what: str) -> float:
    found = _DURATION.fullmatch(str(text))
    if found is None:
        raise ValueError(f"{what}: {text!r}: must be a duration like PT0.0012S")
    sign, days, hours, minutes, seconds = found.groups()
    total = int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(seconds or 0)
    return -total if sign else total
