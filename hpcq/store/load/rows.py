"""Turn one measurement into rows: result, metrics, warnings, granted values, samples, histogram, evidence of both ends.

    ResultWriter.add(Line, who and where) -> rows in memory -> flush() -> executemany into each table

Nothing in a line is trusted: whatever lacks the promised form becomes a warning of the result, never an exception.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hpcq.clock import DriverTimes, utc_or_none
from hpcq.evidence.judgement import Judgement
from hpcq.run_folder.lines import Line, Outcome, finite, mapping, whole
from hpcq.store.load.row_keys import RowKeys, canonical, unit_or_number

_FLUSH_ROWS = 50_000
#: kernels/c/base/histogram.h: HISTOGRAM_BUCKET_COUNT. No kernel prints more buckets.
_BUCKETS_MAX = 4352
#: Far more than any node has: 1,000 CPUs with 60 interrupts each.
_COUNTERS_MAX = 60_000
_INTERVAL_COLUMNS_MAX = 32
#: A day in intervals of 100 ms.
_INTERVALS_MAX = 864_000
_GRANTED_MAX = 200
_UNAVAILABLE_MAX = 5000
_ENDS = ("client", "server")
_INSERTS = {
    "result": "INSERT INTO result (result_id, job_id, test_no, repetition_no, attempt_id, final, series_id, parameter_set_id,"
    " outcome, reason, started_utc, duration_ns, exit_code, disturbed, crossed_interface, rules_version, build_id,"
    " granted_set_id, ingest_file_id) VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "metric": "INSERT INTO metric (result_id, metric_name_id, value) VALUES (?, ?, ?)",
    "warning": "INSERT INTO warning (result_id, warning_no, name, message) VALUES (?, ?, ?, ?)",
    "sample": "INSERT INTO sample (result_id, path, format, sample_count) VALUES (?, ?, ?, ?)",
    "histogram": "INSERT OR IGNORE INTO histogram (result_id, lower, unit, sample_count) VALUES (?, ?, ?, ?)",
    "interval_value": "INSERT INTO interval_value (result_id, quantity_id, begin_ms, value) VALUES (?, ?, ?, ?)",
    "evidence_end": "INSERT INTO evidence_end (result_id, end_index, endpoint_id, node_boot_id, pid, cpu_index, before_utc,"
    " after_utc, interval_ns, before_cost_ns, after_cost_ns, unavailable_set_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "evidence": "INSERT INTO evidence (result_id, end_index, counter_id, delta) VALUES (?, ?, ?, ?)",
    "gauge": "INSERT INTO gauge (result_id, end_index, counter_id, before, after) VALUES (?, ?, ?, ?, ?)",
    "result_finding": "INSERT OR REPLACE INTO result_finding (result_id, rule_id, end_index, message, figures)"
    " VALUES (?, ?, ?, ?, ?)",
}


@dataclass(frozen=True, slots=True)
class Place:
    """What a result belongs to; all but `result_id`, `test_no` and `repetition_no` are keys of other tables."""

    result_id: int
    job_id: int
    test_no: int
    repetition_no: int
    attempt_id: int | None
    kernel_id: int
    series_id: int
    parameter_set_id: int
    build_id: int | None
    ingest_file_id: int | None
    #: Of the client and the server; of MPI, of each rank.
    node_ids: tuple[int, ...]
    #: What the driver's clock says about when it was measured.
    driver_times: DriverTimes


class ResultWriter:
    """Collects the rows of many results. Nothing reaches the database before `flush`."""

    def __init__(self, database: sqlite3.Connection, names: RowKeys) -> None:
        self._database = database
        self._names = names
        self._rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in _INSERTS}
        self._row_count = 0
        self._boots: dict[int, tuple[str, str]] = {}

    def add(self, line: Line, place: Place, judgement: Judgement) -> None:
        """Add all rows of one result."""
        result_id, content = place.result_id, line.content
        self._evidence(line, place)
        self._samples(line, place)
        self._intervals(line, place)
        granted = self._some(line, "granted", mapping(content.get("granted")), _GRANTED_MAX)
        granted_set_id = self._names.content_set("granted", granted, ("name", "value")) if granted else None
        for finding in judgement.findings:
            rule = finding.rule
            rule_id = self._names.rule(rule.name, rule.meaning, rule.advice, rule.source)
            end_index = _ENDS.index(finding.end) if finding.end else -1
            self._put("result_finding", (result_id, rule_id, end_index, finding.message, canonical(finding.figures)))
        self._put(
            "result",
            (
                result_id,
                place.job_id,
                place.test_no,
                place.repetition_no,
                place.attempt_id,
                place.series_id,
                place.parameter_set_id,
                line.outcome.value,
                line.reason,
                line.started_utc,
                line.duration_ns,
                line.exit_code,
                int(judgement.disturbed),
                judgement.crossed_interface.value,
                judgement.rules_version,
                place.build_id,
                granted_set_id,
                place.ingest_file_id,
            ),
        )
        for name, value in line.metrics.items():
            self._put("metric", (result_id, self._names.metric_name(place.kernel_id, name), value))
        for warning_no, (name, message) in enumerate(line.warnings, start=1):
            self._put("warning", (result_id, warning_no, name, message))
        if self._row_count > _FLUSH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the collected rows."""
        for table, rows in self._rows.items():
            if rows:
                self._database.executemany(_INSERTS[table], rows)
                rows.clear()
        self._row_count = 0
        for node_boot_id, (first_utc, last_utc) in self._boots.items():
            self._database.execute(
                "UPDATE node_boot SET first_seen_utc = min(first_seen_utc, ?2), last_seen_utc = max(last_seen_utc, ?3)"
                " WHERE node_boot_id = ?1",
                (node_boot_id, first_utc, last_utc),
            )
        self._boots.clear()

    @staticmethod
    def _some(line: Line, what: str, found: Mapping[str, Any], most: int) -> Mapping[str, Any]:
        """At most so many entries; a line that has more was not written by a program of ours, and gets a warning."""
        if len(found) <= most:
            return found
        line.warnings.append(
            (f"{what}_left_out", f"{len(found) - most} of {len(found)} entries of {what}: at most {most} are kept")
        )
        return dict(itertools.islice(found.items(), most))

    def _put(self, table: str, row: tuple[Any, ...]) -> None:
        self._rows[table].append(row)
        self._row_count += 1

    def _samples(self, line: Line, place: Place) -> None:
        samples = mapping(line.content.get("samples"))
        count = whole(samples.get("count"))
        if count is not None:
            self._put("sample", (place.result_id, str(samples.get("file", "")), str(samples.get("format", "")), count))
        histogram = mapping(line.content.get("histogram"))
        buckets = histogram.get("buckets")
        unit = histogram.get("unit", "ns")
        if isinstance(buckets, list) and len(buckets) > _BUCKETS_MAX:
            line.warnings.append(("histogram_unusable", f"{len(buckets)} buckets: must be at most {_BUCKETS_MAX}"))
            return
        for bucket in buckets if isinstance(buckets, list) else ():
            lower, sample_count = _pair(bucket)
            if unit not in {"ns", "us", "ms", "s", "bytes", "bps"} or whole(lower) is None or whole(sample_count) is None:
                line.warnings.append(("histogram_unusable", f"bucket {str(bucket)[:60]} in {str(unit)[:20]}"))
                break
            self._put("histogram", (place.result_id, lower, unit, sample_count))

    def _intervals(self, line: Line, place: Place) -> None:
        series = self._some(line, "series", mapping(line.content.get("series")), _INTERVAL_COLUMNS_MAX)
        interval_ms, begins = whole(series.get("interval_ms")), series.get("begin_ms")
        for name, values in series.items():
            if name in {"interval_ms", "begin_ms"}:
                continue
            begin_ms = _begins(begins, interval_ms, values)
            if begin_ms is None or len(begin_ms) > _INTERVALS_MAX:
                line.warnings.append(("series_unusable", f"{name[:40]} {str(values)[:40]} each {str(interval_ms)[:20]} ms"))
                return
            quantity_id = self._names.row("quantity", name=name, unit=unit_or_number(name))
            for begin, value in zip(begin_ms, values, strict=True):
                if finite(value) is not None:  # null: the sender got no turn
                    self._put("interval_value", (place.result_id, quantity_id, begin, value))

    def _evidence(self, line: Line, place: Place) -> None:
        ends = mapping(line.content.get("evidence"))
        for end_index, (end, node_id) in enumerate(zip(end_names(len(place.node_ids)), place.node_ids, strict=True)):
            evidence = mapping(ends.get(end))
            if evidence:
                self._put("evidence_end", (place.result_id, end_index, *self._end(evidence, node_id, line, place)))
                counters, gauges = (
                    self._some(line, what, mapping(evidence.get(what)), _COUNTERS_MAX) for what in ("counters", "gauges")
                )
                unusable = [
                    *self._counters(counters, (place.result_id, end_index)),
                    *self._gauges(gauges, (place.result_id, end_index)),
                ]
                if unusable:
                    message = f"{end}: {len(unusable)} values are only in the file, first {unusable[0][:100]}"
                    line.warnings.append(("evidence_unusable", message))
        ends_expected = _ENDS[:1] if line.content.get("one_node") is True else _ENDS
        if line.outcome is Outcome.MEASURED and not all(mapping(ends.get(end)) for end in ends_expected):
            line.warnings.append(("evidence_missing", "the line lacks the evidence of an end"))

    def _end(self, evidence: Mapping[str, Any], node_id: int, line: Line, place: Place) -> tuple[Any, ...]:
        endpoint_id = self._names.row(
            "endpoint",
            node_id=node_id,
            host_name=str(evidence.get("node") or ""),
            interface=str(evidence.get("interface") or ""),
            address=str(evidence.get("address") or ""),
        )
        before_utc, after_utc = utc_or_none(evidence.get("before_utc")), utc_or_none(evidence.get("after_utc"))
        before_cost_ns, after_cost_ns = _pair(evidence.get("snapshot_cost_ns"))
        unavailable = {name: str(reason) for name, reason in mapping(evidence.get("unavailable")).items()}
        unavailable = dict(self._some(line, "unavailable", unavailable, _UNAVAILABLE_MAX))
        return (
            endpoint_id,
            self._boot(evidence, node_id, place.driver_times.believed(before_utc) if before_utc else line.started_utc),
            whole(evidence.get("pid")),
            whole(evidence.get("cpu_index")),
            before_utc,
            after_utc,
            whole(evidence.get("interval_ns")),
            whole(before_cost_ns),
            whole(after_cost_ns),
            self._names.content_set("unavailable", unavailable, ("source", "reason")) if unavailable else None,
        )

    def _boot(self, evidence: Mapping[str, Any], node_id: int, seen_utc: str | None) -> int | None:
        boot_id = evidence.get("boot_id")
        if not isinstance(boot_id, str) or not boot_id or seen_utc is None:
            return None
        key = self._names.node_boot(node_id, boot_id, seen_utc)
        first_utc, last_utc = self._boots.get(key, (seen_utc, seen_utc))
        self._boots[key] = (min(first_utc, seen_utc), max(last_utc, seen_utc))
        return key

    def _counters(self, counters: Mapping[str, Any], key: tuple[int, int]) -> Iterable[str]:
        for name, value in counters.items():
            delta = whole(value)
            if delta is None:
                yield f"{name} {str(value)[:40]}"
            elif delta != 0:
                self._put("evidence", (*key, self._names.counter(name, "counter"), delta))

    def _gauges(self, gauges: Mapping[str, Any], key: tuple[int, int]) -> Iterable[str]:
        for name, value in gauges.items():
            before, after = _pair(value) if isinstance(value, list) else (value, None)
            if not _storable(before) or (after is not None and not _storable(after)):
                yield f"{name} {str(value)[:40]}"
            else:
                self._put("gauge", (*key, self._names.counter(name, "gauge"), before, after))


def end_names(count: int) -> list[str]:
    """What a result line calls its ends, by their index: client, server, rank2, ..."""
    return [*_ENDS, *(f"rank{number}" for number in range(2, count))][:count]


def _pair(value: object) -> tuple[Any, Any]:
    return (value[0], value[1]) if isinstance(value, list) and len(value) == 2 else (None, None)


def _storable(value: object) -> bool:
    return isinstance(value, str) or whole(value) is not None or (isinstance(value, float) and finite(value) is not None)


def _begins(begins: Any, interval_ms: int | None, values: Any) -> list[int] | None:
    """When each value's interval began: as the line says, or one after the other; None if it does not say so."""
    if not isinstance(values, list):
        return None
    if isinstance(begins, list):
        found = [whole(one) for one in begins]
        told = [one for one in found if one is not None and one >= 0]
        return told if len(told) == len(values) == len(set(told)) else None
    return [index * interval_ms for index in range(len(values))] if interval_ms and interval_ms > 0 else None
