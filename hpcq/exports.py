"""Results and verdicts of a run for other programs: tables, CI systems, dashboards.

store, analysis ──collect──> Exported ──one writer per format──> text
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from hpcq import plugins, units
from hpcq.errors import HpcqError, UserError
from hpcq.nodelist import natural, nodes_of
from hpcq.store.read.stretches import PARAMETERS, QUESTIONS, Question
from hpcq.units import parse_utc
from hpcq.verdict.words import Thing, Verdict, VerdictRecord
from hpcq.visible import visible

if TYPE_CHECKING:
    from hpcq.analysis.run_verdict import RunVerdict
    from hpcq.store.database import Connection
    from hpcq.store.query import ResultRow, RunRow, Summary
    from hpcq.store.selection import Selection
    from hpcq.verdict.gates import GateVerdict


#: The columns of the table formats, in order. One row per result and metric; a result without metrics is one row.
COLUMNS = (
    "run",
    "campaign",
    "cluster",
    "kernel",
    "client",
    "server",
    "message_bytes",
    "test_no",
    "repetition_no",
    "outcome",
    "reason",
    "started_utc",
    "disturbed",
    "crossed_interface",
    "metric",
    "value",
    "unit",
    "better",
    "series_id",
    "result_id",
    "job",
    "attempt_no",
    "parameters",
    "network",
    "network_name",
)


@dataclass(frozen=True, slots=True)
class Exported:
    """One run for the summary formats. verdict: that of its page. gates_unread: why its gates could not be judged.

    networks: by cluster and interface, the name in the cluster's file and a text for people, `ib (ib0)`.
    """

    run: str
    clusters: tuple[RunRow, ...]
    summaries: tuple[Summary, ...]
    missing: tuple[ResultRow, ...]
    gates: tuple[GateVerdict, ...]
    gates_unread: str
    verdict: RunVerdict
    findings: tuple[dict[str, Any], ...]
    networks: Mapping[tuple[str, str], tuple[str, str]]

    def network_name(self, row: Summary) -> str:
        """The network of a row as the cluster's file names it, else its interface."""
        return self.networks.get((row.cluster, row.network), (row.network, ""))[0]

    def network_text(self, row: Summary) -> str:
        """For people; empty where the cluster's file names no networks."""
        return self.networks.get((row.cluster, row.network), ("", ""))[1]

    @property
    def exit_code(self) -> int:
        """That of `hpcq report`: 3 if something is slow or broken, 4 if something is missing or undecided, else 0."""
        return int(self.verdict.exit_code)


def collect(database: Connection, selection: Selection) -> Exported:
    """Read a run's summaries (main metrics), what is missing, its gates and its findings."""
    from hpcq.analysis.gates import judge_selected
    from hpcq.analysis.run_verdict import run_verdict
    from hpcq.store import query
    from hpcq.store.query import finding_rows, named_networks

    assert selection.run is not None  # noqa: S101 - the caller names one
    gates, unread = judge_selected(database, selection)
    runs = tuple(query.runs(database, selection.run))
    return Exported(
        run=selection.run,
        clusters=runs,
        verdict=run_verdict(database, selection.run, runs, gates, unread),
        summaries=tuple(query.summaries(database, selection, metric=selection.metric)),
        missing=tuple(query.not_measured(database, selection)),
        gates=gates,
        gates_unread=unread,
        findings=tuple(finding_rows(database, selection)),
        networks=named_networks(database),
    )


#: What `hpcq export` writes itself; plug-ins add formats of other names.
TABLES = ("csv", "jsonl", "parquet")
SUMMARIES = ("junit", "markdown", "prometheus")
DASHBOARDS = ("grafana", "datasette")  # of the whole database, whatever the run
OWN_FORMATS = (*TABLES, *SUMMARIES, *DASHBOARDS)


def exporters() -> dict[str, Callable[[Exported], str]]:
    """The formats of plug-ins: functions from a run to the text of a file."""
    complaint = "is no function: must be one"
    return plugins.usable(plugins.EXPORTERS, OWN_FORMATS, lambda one: "" if callable(one.found) else complaint)


def exporter(kind: str) -> Callable[[Exported], str]:
    """The function of a plug-in's format. Raises UserError that names a plug-in which cannot be used."""
    known = exporters()
    plugins.refuse_broken(plugins.EXPORTERS, kind, "--format")
    return known[kind]


def plugged_text(kind: str, exported: Exported) -> str:
    """The run in the format of a plug-in. Raises UserError or HpcqError that names a plug-in which does not work."""
    write = exporter(kind)
    try:
        text = write(exported)
    except Exception as error:
        raise HpcqError(f"--format {kind}: its plug-in failed: {type(error).__name__}: {error}", "tell its authors") from error
    if not isinstance(text, str):
        raise HpcqError(f"--format {kind}: its plug-in gave a {type(text).__name__}: must be a text", "tell its authors")
    return text


def rows(database: Connection, selection: Selection) -> Iterator[dict[str, Any]]:
    """The results of the selection as rows of COLUMNS, with every metric; read from the database one by one."""
    from hpcq.store.query import metric_rows

    return metric_rows(database, selection)


# ----------------------------------------------------------------------------------------------------------------------
# The last verdict on each node as lines that a node's own health check reads with the shell alone.
#
#     # hpcq health 1 2026-11-22T16:00:00Z
#     n1 pass 2026-11-21T04:00:00Z as expected
#     n2 failed 2026-11-21T04:00:00Z 62 % of what is expected, with 5 of 5 partners
#
# NODE VERDICT DECIDED_UTC REASON. A node without a verdict has the verdict `none`.


_HEAD = "# hpcq health 1"


def health_text(records: Iterable[VerdictRecord], nodes: Iterable[str], made_utc: str) -> str:
    """The whole file. nodes: all nodes of the cluster; records: the last verdicts, of which those on nodes count."""
    known = {one.name: one for one in records if one.kind is Thing.NODE}
    lines = [f"{_HEAD} {made_utc[:19]}Z"]
    for node in nodes:
        one = known.get(node)
        words = ("none", "-", "not accepted yet") if one is None else (one.verdict.value, one.decided_utc, one.reason)
        lines.append(" ".join([node, *(" ".join(word.split()) for word in words)]))
    return "\n".join(lines) + "\n"


# ----------------------------------------------------------------------------------------------------------------------
# JUnit XML, as CI systems read it: one suite per cluster, one case per pair, test and metric; and one for the whole run.
#
# the run is slow or broken           failure, with the reasons of its page
# a gate failed                       failure
# planned and not measured            error (nothing shows that it is fine)
# a gate that cannot be judged        skipped, with its reason
# everything else that was measured   passed


#: Control characters to keep. XML 1.0 allows no other, except the carriage return.
_ALLOWED_CONTROL = {"\t", "\n"}


def junit_text(exported: Exported) -> str:
    """The whole document."""
    root = ET.Element("testsuites", name=exported.run)
    for cluster in sorted(_clusters(exported), key=natural):
        cases = list(_cases(exported, cluster))
        suite = ET.SubElement(root, "testsuite", name=f"{exported.run}.{cluster}", tests=str(len(cases)))
        for kind in ("failure", "error", "skipped"):
            name = {"failure": "failures", "error": "errors"}.get(kind, kind)
            suite.set(name, str(sum(case.find(kind) is not None for case in cases)))
        suite.extend(cases)
    root.append(_verdict_suite(exported))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _clusters(exported: Exported) -> set[str]:
    found = {one.cluster for one in exported.clusters}
    return found | {one.cluster for one in exported.summaries} | {one.cluster for one in exported.missing}


def _cases(exported: Exported, cluster: str) -> Iterator[ET.Element]:
    findings: dict[tuple[str, str, str], list[str]] = {}
    for one in exported.findings:
        if one["cluster"] == cluster:
            key = (one["kernel"], one["client"], one["server"])
            findings.setdefault(key, []).append(f"{one['rule']} ({one['result_count']} results): {one['example']}")
    for row in exported.summaries:
        if row.cluster == cluster:
            over = exported.network_text(row)
            name = f"{row.client} > {row.server} {row.size_text} {row.variant} {row.metric}"
            case = _case(cluster, row.kernel, f"{name} over {over}" if over else name)
            value = f"median {units.human(row.median, row.unit)} of {row.n} values"
            words = [value, *findings.get((row.kernel, row.client, row.server), ())]
            ET.SubElement(case, "system-out").text = _clean("\n".join(words))
            yield case
    for gate in exported.gates:
        if gate.series.cluster == cluster:
            yield _gate_case(cluster, gate)
    for lost in exported.missing:
        if lost.cluster == cluster:
            name = f"{lost.client} > {lost.server} test {lost.test_no} repetition {lost.repetition_no}"
            case = _case(cluster, lost.kernel, name)
            ET.SubElement(case, "error", type=lost.outcome, message=_clean(lost.reason or "no reason was given"))
            yield case
    if exported.gates_unread:
        case = _case(cluster, "gates", "gates of the campaign")
        ET.SubElement(case, "error", type="not_judged", message=_clean(exported.gates_unread))
        yield case


def _verdict_suite(exported: Exported) -> ET.Element:
    """One case: the verdict on the whole run, as on its page. What is missing, or not judged, is skipped here."""
    suite = ET.Element("testsuite", name=f"{exported.run}.verdict", tests="1", failures="0", errors="0", skipped="0")
    case = ET.SubElement(suite, "testcase", classname=_clean(exported.run), name="verdict of the run")
    reasons = "; ".join(one.words for one in exported.verdict.reasons)
    words = _clean(reasons or exported.verdict.by)
    if exported.exit_code == 3:
        suite.set("failures", "1")
        ET.SubElement(case, "failure", type=exported.verdict.verdict.value, message=words)
    elif exported.verdict.verdict is not Verdict.PASS:
        suite.set("skipped", "1")
        ET.SubElement(case, "skipped", message=f"{exported.verdict.verdict.shown}: {words}")
    return suite


def _gate_case(cluster: str, gate: GateVerdict) -> ET.Element:
    case = _case(cluster, gate.series.kernel, f"gate: {gate.gate}: {gate.series.ends}")
    if gate.verdict == "failed":
        ET.SubElement(case, "failure", type="gate", message=_clean(f"{gate.words}: must be {gate.bound}"))
    elif gate.verdict == "inconclusive":
        ET.SubElement(case, "skipped", message=_clean(gate.reason))
    return case


def _case(cluster: str, kernel: str, name: str) -> ET.Element:
    return ET.Element("testcase", classname=_clean(f"{cluster}.{kernel}"), name=_clean(" ".join(name.split())))


def _clean(text: str) -> str:
    return "".join(sign if sign >= " " or sign in _ALLOWED_CONTROL else " " for sign in text)


# ----------------------------------------------------------------------------------------------------------------------
# A Markdown summary for the job pages of GitHub and GitLab: first the verdict, then what is wrong, then figures.


#: Rows per table. Job pages have a size limit, and nobody reads more.
_ROWS_AT_MOST = 50


def markdown_text(exported: Exported) -> str:
    """The whole text."""
    return "\n".join(_lines(exported)) + "\n"


def _lines(exported: Exported) -> Iterator[str]:
    planned = sum(one.planned_count for one in exported.clusters)
    measured = sum(one.measured_count for one in exported.clusters)
    yield f"## hpcq: {_text(exported.run)}"
    yield ""
    verdict = exported.verdict
    yield f"**{verdict.verdict.shown}**: {_text(verdict.by)}. {measured} of {planned} planned results measured."
    for one in verdict.reasons:
        yield f"- {_text(one.words)}"
    failed = [one for one in exported.gates if one.verdict == "failed"]
    yield from _table(
        "Gates that failed",
        ("cluster", "pair", "kernel", "seen", "allowed"),
        [(one.series.cluster, one.series.ends, one.series.kernel, one.words, one.bound) for one in failed],
    )
    yield from _table(
        "Not measured",
        ("cluster", "pair", "kernel", "outcome", "reason"),
        [
            (one.cluster, f"{one.client} > {one.server}", one.kernel, one.outcome, one.reason or "no reason was given")
            for one in exported.missing
        ],
    )
    yield from _table(
        "What the evidence says",
        ("cluster", "pair", "finding", "results", "for example"),
        [
            (one["cluster"], f"{one['client']} > {one['server']}", one["rule"], str(one["result_count"]), one["example"])
            for one in exported.findings
        ],
    )
    yield from _table(
        "Medians",
        ("cluster", "pair", "kernel", "size", "metric", "median", "values"),
        [
            (
                row.cluster,
                f"{row.client} > {row.server}",
                " ".join(filter(None, (row.kernel, row.variant, _over(exported.network_text(row))))),
                row.size_text,
                row.metric,
                units.human(row.median, row.unit),
                str(row.n),
            )
            for row in exported.summaries
        ],
    )


def _over(network: str) -> str:
    return f"over {network}" if network else ""


def _table(title: str, heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    if not rows:
        return
    yield ""
    yield f"### {title}"
    yield ""
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    for row in rows[:_ROWS_AT_MOST]:
        yield f"| {' | '.join(_text(cell) for cell in row)} |"
    if len(rows) > _ROWS_AT_MOST:
        yield ""
        yield f"… and {len(rows) - _ROWS_AT_MOST} more."


def _text(value: str) -> str:
    """One cell: escapes markup in names or messages from elsewhere."""
    for sign in "\\`*_{}[]<>|#":
        value = value.replace(sign, f"\\{sign}")
    return " ".join(value.split())


# ----------------------------------------------------------------------------------------------------------------------
# Parquet: the rows of the other tables with types. The only user of pyarrow, which is optional.


#: Rows of one row group. A reader needs one of them in memory, and so does hpcq.
_GROUP_ROWS = 50_000
_INTEGERS = {"message_bytes", "test_no", "repetition_no", "series_id", "result_id", "attempt_no"}
_YES_OR_NO = {"disturbed", "crossed_interface"}
_TIMES = {"started_utc"}


class _Pipe:
    """What pyarrow writes to: it keeps only what was not fetched yet."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._written_bytes = 0

    def write(self, piece: Any) -> int:
        data = bytes(piece)
        self._pieces.append(data)
        self._written_bytes += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written_bytes

    def flush(self) -> None:
        """Nothing waits elsewhere."""

    def close(self) -> None:
        """pyarrow closes what it was given; the pieces stay."""

    def fetch(self) -> Iterator[bytes]:
        """Hand out what was written since."""
        pieces, self._pieces = self._pieces, []
        yield from pieces


def parquet_pieces(rows: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Yield the file in pieces. Raises HpcqError if pyarrow is not installed.

    Whole numbers are int64, yes or no is boolean, times are microseconds in UTC, `value` is a double; `parameters` is JSON
    as text. What is unknown is null.
    """
    arrow = _arrow()
    import pyarrow.parquet as pq

    schema = arrow.schema([(name, _type(arrow, name)) for name in COLUMNS])
    pipe, remaining = _Pipe(), iter(rows)
    with pq.ParquetWriter(arrow.PythonFile(pipe, mode="w"), schema, compression="zstd") as writer:
        while group := list(islice(remaining, _GROUP_ROWS)):
            columns = [arrow.array([_value(name, row[name]) for row in group], type=_type(arrow, name)) for name in COLUMNS]
            writer.write_table(arrow.Table.from_arrays(columns, schema=schema))
            yield from pipe.fetch()
    yield from pipe.fetch()


def _arrow() -> Any:
    try:
        import pyarrow as arrow
    except ImportError:
        raise HpcqError(
            "--format parquet: pyarrow is not installed", "pip install pyarrow; csv and jsonl need nothing more"
        ) from None
    return arrow


def _type(arrow: Any, name: str) -> Any:
    if name in _INTEGERS:
        return arrow.int64()
    if name in _YES_OR_NO:
        return arrow.bool_()
    if name in _TIMES:
        return arrow.timestamp("us", tz="UTC")
    return arrow.float64() if name == "value" else arrow.string()


def _value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _YES_OR_NO:
        return bool(value)
    return units.parse_utc(value) if name in _TIMES else value


# ----------------------------------------------------------------------------------------------------------------------
# Prometheus' text format, for the node exporter's textfile collector.
#
# The number of label values is limited: cluster, kernel, pair, size, network and what distinguishes a test from the
# kernel's other tests. A run or a reason is never a label. Of a site whose pairs are too many, the nodes stand there:
# they are as many on every night, whatever pairs it draws.


#: More series in one file than this would overload a collector.
SERIES_AT_MOST = 20_000


def prometheus_text(exported: Exported, series_at_most: int = SERIES_AT_MOST) -> str:
    """The whole file; of more pairs than fit, by node. Raises UserError where that is more than `series_at_most`, too."""
    lines = _of_pairs(exported) if fits_by_pair(exported, series_at_most) else _of_nodes(exported)
    lines += _family("hpcq_planned_results", "Results that the last run planned.", _counts(exported, "planned_count"))
    lines += _family("hpcq_measured_results", "Results that the last run measured.", _counts(exported, "measured_count"))
    lines += _family("hpcq_gates", "Gates of the last run, by verdict.", _gates(exported))
    lines += _family("hpcq_verdict", "Verdict of the last run, as on its page: 1 for the word that holds.", _word(exported))
    lines += _family("hpcq_run_time_seconds", "When the last run was started, as seconds since 1970.", _times(exported))
    count = sum(not line.startswith("#") for line in lines)
    if count > series_at_most:
        raise UserError(
            f"{count} series: at most {series_at_most} are written to one Prometheus file",
            "choose with --cluster, --kernel or --node",
        )
    return "\n".join(lines) + "\n"


def fits_by_pair(exported: Exported, series_at_most: int = SERIES_AT_MOST) -> bool:
    """Whether each metric of each pair has its series; else only the main metric of each node has."""
    return len(exported.summaries) <= series_at_most


def _of_pairs(exported: Exported) -> list[str]:
    medians: dict[tuple[str, str], list[str]] = {}
    for row in exported.summaries:
        labels = {"cluster": row.cluster, "kernel": row.kernel, "client": row.client, "server": row.server}
        samples = medians.setdefault((row.metric, row.unit), [])
        samples.append(f"hpcq_{row.metric}{_labels(labels | _test_labels(exported, row))} {row.median!r}")
    families = (
        _family(f"hpcq_{metric}", f"Median over the last run, in {unit or 'its own unit'}.", samples)
        for (metric, unit), samples in sorted(medians.items())
    )
    return [line for family in families for line in family]


def _of_nodes(exported: Exported) -> list[str]:
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    known: dict[tuple[Any, ...], str] = {}  # as many as nodes and tests, of pairs a hundred times as many
    for row in exported.summaries:
        if not row.main:
            continue
        test = (row.cluster, row.kernel, row.message_bytes, row.variant, row.network)
        of_labels = values.setdefault((row.metric, row.unit), {})
        for node in nodes_of(row.client, row.server):
            labels = known.get((node, *test))
            if labels is None:
                named = {"cluster": row.cluster, "kernel": row.kernel, "node": node} | _test_labels(exported, row)
                labels = known[node, *test] = _labels(named)
            of_labels.setdefault(labels, []).append(row.median)
    families = (
        _family(
            f"hpcq_node_{metric}",
            f"Median over the partners of a node in the last run, in {unit or 'its own unit'}.",
            (f"hpcq_node_{metric}{labels} {median(found)!r}" for labels, found in of_labels.items()),
        )
        for (metric, unit), of_labels in sorted(values.items())
    )
    return [line for family in families for line in family]


def _test_labels(exported: Exported, row: Summary) -> dict[str, str]:
    size = "" if row.message_bytes is None else str(row.message_bytes)
    return {"message_bytes": size, "variant": row.variant, "network": exported.network_name(row)}


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


def _word(exported: Exported) -> Iterator[str]:
    campaign = exported.clusters[0].campaign if exported.clusters else ""
    for word in Verdict:
        holds = int(exported.verdict.verdict.value == word)
        yield f"hpcq_verdict{_labels({'campaign': campaign, 'verdict': word})} {holds}"


def _times(exported: Exported) -> Iterator[str]:
    for one in exported.clusters:
        labels = _labels({"cluster": one.cluster, "campaign": one.campaign})
        yield f"hpcq_run_time_seconds{labels} {parse_utc(one.created_utc).timestamp():.0f}"


def _labels(values: dict[str, str]) -> str:
    shown = ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items())
    return f"{{{shown}}}"


@lru_cache(maxsize=10_000)  # a file repeats the names of its nodes
def _escaped(value: str) -> str:
    """A label's value. Made visible first: a collector that meets \\u in a label drops the whole file."""
    return visible(value.replace("\r\n", "\n")).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# ----------------------------------------------------------------------------------------------------------------------
# CSV and JSON lines: one row per result and metric.


#: Spreadsheets run a cell that begins with one of these, some also behind blanks or in the full width of East Asian text.
#: Names or messages from elsewhere must not run.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def csv_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A head, then one line per row, as in RFC 4180. Text that a spreadsheet would run gets a leading quote."""
    cells, lines, size = _Cells(), [",".join(COLUMNS)], 0
    for row in rows:
        values = [row[name] for name in COLUMNS]
        line = ",".join(
            ["" if one is None else cells[one] if type(one) is str else repr(one) for one in values]  # as csv writes numbers
        )
        lines.append(line)
        size += len(line)
        if size > 1 << 16:
            yield "\r\n".join([*lines, ""])
            lines, size = [], 0
    if lines:
        yield "\r\n".join([*lines, ""])


class _Cells(dict[str, str]):
    """Texts as cells of CSV. A table repeats the same few a million times: these are made once."""

    _KEPT_MAX = 20_000

    def __missing__(self, text: str) -> str:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\r\n").writerow([_cell(text), ""])
        cell = buffer.getvalue().removesuffix(",\r\n")
        if len(self) < self._KEPT_MAX:
            self[text] = cell
        return cell


def json_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """One JSON object per row; `parameters` is an object, not a text."""
    for row in rows:
        whole = {**row, "parameters": json.loads(row["parameters"])}
        yield json.dumps(whole, ensure_ascii=False, allow_nan=False) + "\n"


def _cell(value: str) -> str:
    return f"'{value}" if value.startswith(("\t", "\r")) or value.lstrip().startswith(_FORMULA) else value


# ----------------------------------------------------------------------------------------------------------------------
# Dashboards over results.db: one of Grafana with its SQLite data source, and the metadata of Datasette.

#: The data source plugin, and the version of Grafana's format that this was written for.
PLUGIN = "frser-sqlite-datasource"
_SCHEMA_VERSION = 39
_SOURCE = {"type": PLUGIN, "uid": "${DS_HPCQ}"}
#: What Grafana puts in place of our parameters. `sqlstring` quotes and escapes.
_GRAFANA_WORDS = {
    "cluster": "${cluster:sqlstring}",
    "kernel": "${kernel:sqlstring}",
    "since_utc": "'${__from:date:iso}'",
    "until_utc": "'${__to:date:iso}'",
}
#: Grafana's names of our units.
_GRAFANA_UNITS = {"bps": "bps", "ns": "ns", "ratio": "percentunit", "": "none"}
_WIDTH, _HEIGHT = 12, 8
_DATASETTE_NAME = re.compile(r"[^/?#%]+")


def grafana() -> dict[str, Any]:
    """Return a dashboard to import. On import Grafana asks for the data source."""
    panels = [_panel(number, one) for number, one in enumerate(QUESTIONS)]
    return {
        "__inputs": [{"name": "DS_HPCQ", "label": "results.db of hpcq", "type": "datasource", "pluginId": PLUGIN}],
        "__requires": [
            {"type": "grafana", "id": "grafana", "name": "Grafana", "version": "10.0.0"},
            {"type": "datasource", "id": PLUGIN, "name": "SQLite", "version": "3.0.0"},
        ],
        "id": None,
        "uid": "hpcq",
        "title": "hpcq",
        "tags": ["hpcq"],
        "timezone": "utc",
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": _SCHEMA_VERSION,
        "refresh": "",
        "time": {"from": "now-90d", "to": "now"},
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [_variable("cluster", "v_runs"), _variable("kernel", "v_series")]},
        "panels": panels,
    }


def grafana_sql(sql: str) -> str:
    """Write a statement with Grafana's variables in place of its named parameters."""
    for name in PARAMETERS:
        sql = sql.replace(f":{name}", _GRAFANA_WORDS[name])
    return sql


def _variable(name: str, view: str) -> dict[str, Any]:
    query = f"SELECT 'all' AS {name} UNION ALL SELECT * FROM (SELECT DISTINCT {name} FROM {view} ORDER BY {name})"  # noqa: S608
    return {
        "name": name,
        "label": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"rawQueryText": query, "queryText": query, "queryType": "table", "timeColumns": []},
        "current": {"selected": True, "text": "all", "value": "all"},
        "refresh": 1,
        "sort": 0,
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
    }


def _panel(number: int, one: Question) -> dict[str, Any]:
    sql = grafana_sql(one.sql)
    target = {
        "refId": "A",
        "datasource": _SOURCE,
        "queryText": sql,
        "rawQueryText": sql,
        "queryType": "time series" if one.over_time else "table",
        "timeColumns": ["time_utc"] if one.over_time else [],
    }
    return {
        "id": number + 1,
        "title": one.title,
        "description": one.words,
        "type": "timeseries" if one.over_time else "table",
        "datasource": _SOURCE,
        "gridPos": {"x": number % 2 * _WIDTH, "y": number // 2 * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": _GRAFANA_UNITS[one.unit]} if one.over_time else {}, "overrides": []},
        "options": {},
        "targets": [target],
    }


def datasette(database: str, described: Mapping[str, tuple[str, Mapping[str, str]]]) -> dict[str, Any]:
    """Return Datasette's metadata for a database of that name.

    described: table or view -> what it holds, and what each column of a table means. Raises UserError for a name that no
    address can hold.
    """
    if not _DATASETTE_NAME.fullmatch(database):
        raise UserError(f"--db: {database!r}: Datasette's addresses cannot hold this name: must be one without /?#%")
    tables = {name: {"description": words, "columns": dict(columns)} for name, (words, columns) in described.items()}
    queries = {one.name: _query(one) for one in QUESTIONS}
    return {
        "title": "hpcq",
        "description": "Results of network test campaigns, with evidence of both ends. Read the views v_*.",
        "databases": {database: {"tables": tables, "queries": queries}},
    }


def _query(one: Question) -> dict[str, Any]:
    return {"title": one.title, "description": one.words, "sql": one.sql, "params": list(one.parameters)}


_TABLE = re.compile(r"^CREATE (?:TABLE|VIEW) (\w+) (?:\( |AS )-- (.+)$")
_COLUMN = re.compile(r"^    (\w+) .*?-- (.+)$")


def described(schema: Sequence[str]) -> dict[str, tuple[str, dict[str, str]]]:
    """Read what tables, views and columns mean from the comments of the database's schema."""
    return {name: (words, columns) for name, words, columns in _described(schema)}


def _described(schema: Sequence[str]) -> Iterator[tuple[str, str, dict[str, str]]]:
    name, words = "", ""
    columns: dict[str, str] = {}
    for line in schema:
        if head := _TABLE.match(line):
            if name:
                yield name, words, columns
            name, words, columns = head[1], head[2], {}
        elif column := _COLUMN.match(line):
            columns[column[1]] = column[2]
    if name:
        yield name, words, columns
