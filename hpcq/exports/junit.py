"""JUnit XML, as CI systems read it: one suite per cluster, one case per pair, test and metric.

a gate failed                       failure
planned and not measured            error (nothing shows that it is fine)
a gate that cannot be judged        skipped, with its reason
everything else that was measured   passed
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from hpcq import units
from hpcq.exports.collect import Exported
from hpcq.sorting import natural

if TYPE_CHECKING:
    from hpcq.verdict import GateVerdict

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


def _gate_case(cluster: str, gate: GateVerdict) -> ET.Element:
    case = _case(cluster, gate.series.kernel, f"gate: {gate.gate}: {gate.series.client} > {gate.series.server}")
    if gate.verdict == "failed":
        ET.SubElement(case, "failure", type="gate", message=_clean(f"{gate.words}: allowed is {gate.bound}"))
    elif gate.verdict == "inconclusive":
        ET.SubElement(case, "skipped", message=_clean(gate.reason))
    return case


def _case(cluster: str, kernel: str, name: str) -> ET.Element:
    return ET.Element("testcase", classname=_clean(f"{cluster}.{kernel}"), name=_clean(" ".join(name.split())))


def _clean(text: str) -> str:
    return "".join(sign if sign >= " " or sign in _ALLOWED_CONTROL else " " for sign in text)
