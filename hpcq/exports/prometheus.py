"""Prometheus' text format, for the node exporter's textfile collector.

The number of label values is limited: cluster, kernel, pair, size, network and what distinguishes a test from the
kernel's other tests. A run or a reason is never a label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hpcq.errors import UserError
from hpcq.exports.collect import Exported
from hpcq.units import parse_utc

#: More series in one file than this would overload a collector.
SERIES_AT_MOST = 10_000


def prometheus_text(exported: Exported, series_at_most: int = SERIES_AT_MOST) -> str:
    """The whole file. Raises UserError where it would hold more series than `series_at_most`."""
    lines: list[str] = []
    medians: dict[str, list[str]] = {}
    units: dict[str, str] = {}
    for row in exported.summaries:
        labels = {"cluster": row.cluster, "kernel": row.kernel, "client": row.client, "server": row.server}
        labels |= {"message_bytes": "" if row.message_bytes is None else str(row.message_bytes), "variant": row.variant}
        labels["network"] = exported.network_name(row)
        medians.setdefault(row.metric, []).append(f"hpcq_{row.metric}{_labels(labels)} {row.median!r}")
        units[row.metric] = row.unit
    for metric in sorted(medians):
        lines += _family(f"hpcq_{metric}", f"Median over the last run, in {units[metric] or 'its own unit'}.", medians[metric])
    lines += _family("hpcq_planned_results", "Results that the last run planned.", _counts(exported, "planned_count"))
    lines += _family("hpcq_measured_results", "Results that the last run measured.", _counts(exported, "measured_count"))
    lines += _family("hpcq_gates", "Gates of the last run, by verdict.", _gates(exported))
    lines += _family("hpcq_run_time_seconds", "When the last run was started, as seconds since 1970.", _times(exported))
    count = sum(not line.startswith("#") for line in lines)
    if count > series_at_most:
        raise UserError(
            f"{count} series: at most {series_at_most} are written to one Prometheus file",
            "choose with --cluster, --kernel or --node",
        )
    return "\n".join(lines) + "\n"


def _family(name: str, meaning: str, samples: Iterable[str]) -> list[str]:
    found = list(samples)
    return [f"# HELP {name} {meaning}", f"# TYPE {name} gauge", *found] if found else []


def _counts(exported: Exported, field: str) -> Iterator[str]:
    name = {"planned_count": "hpcq_planned_results", "measured_count": "hpcq_measured_results"}[field]
    for one in exported.clusters:
        yield f"{name}{_labels({'cluster': one.cluster, 'campaign': one.campaign})} {getattr(one, field)}"


def _gates(exported: Exported) -> Iterator[str]:
    counts: dict[tuple[str, str], int] = {}
    for one in exported.gates:
        for verdict in ("pass", "failed", "inconclusive"):
            key = (one.series.cluster, verdict)
            counts[key] = counts.get(key, 0) + (one.verdict.value == verdict)
    for (cluster, verdict), count in sorted(counts.items()):
        yield f"hpcq_gates{_labels({'cluster': cluster, 'verdict': verdict})} {count}"


def _times(exported: Exported) -> Iterator[str]:
    for one in exported.clusters:
        labels = _labels({"cluster": one.cluster, "campaign": one.campaign})
        yield f"hpcq_run_time_seconds{labels} {parse_utc(one.created_utc).timestamp():.0f}"


def _labels(values: dict[str, str]) -> str:
    shown = ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items())
    return f"{{{shown}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
