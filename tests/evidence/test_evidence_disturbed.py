"""Disturbances made on purpose in the lab, and the finding that names each."""

from __future__ import annotations

import pytest

from hpcq.evidence.case import CrossedInterface
from tests.evidence.test_evidence_lab import CLIENT, SERVER, THIRD, Nodes, nodes, running

FIXTURES = (nodes,)  # pytest looks for them in this module
pytestmark = [pytest.mark.lab, pytest.mark.quiet, pytest.mark.real_time]


def test_competitor_on_the_pinned_core(nodes: Nodes) -> None:
    options = {"rate_bps": 50_000_000, "pacing": "spin", "client_cpu_index": 0, "server_cpu_index": 1}
    loop = nodes.lab.exec_words(CLIENT, "timeout", "6", "taskset", "-c", "0", "sh", "-c", "while :; do :; done")
    with running(loop):
        told = nodes.measure("udp_stream", options)
    assert told.judgement.disturbed
    assert told.findings_at_rate == []
    assert {"host_busy", "waited_for_cpu"} <= told.of_the_machine
    waited = told.finding("waited_for_cpu", "client").figures
    assert float(waited["waited_ratio"]) > 0.2
    assert waited["cpu"] == "cpu0"


def test_mtu_of_one_end(nodes: Nodes) -> None:
    nodes.lab.exec(SERVER, "ip", "link", "set", "eth0", "mtu", "1400")
    try:
        told = nodes.measure("tcp_stream")
    finally:
        nodes.lab.exec(SERVER, "ip", "link", "set", "eth0", "mtu", "1500")
    assert told.findings == [("mtu_mismatch", "server")]
    assert told.finding("mtu_mismatch", "server").figures["mtu_bytes"] == 1400


def test_second_flow_on_the_interface(nodes: Nodes) -> None:
    flood = {"rate_bps": 60_000_000, "duration_s": 6, "warmup_s": 0}
    with nodes.server(THIRD) as third, running(nodes.client(CLIENT, third, "udp_stream", flood)):
        told = nodes.measure("tcp_pingpong")
    assert told.findings == [("other_traffic", "client")]
    assert told.judgement.disturbed
    figures = told.finding("other_traffic", "client").figures
    assert 30e6 < float(figures["other_bps"]) < 66e6  # at least: all headers that there can be are taken off
    assert figures["way"] == "tx"


def test_bytes_that_never_saw_the_interface(nodes: Nodes) -> None:
    """Both ends on one node: the kernel takes the loopback interface, whatever the address says."""
    told = nodes.measure("tcp_stream", {"duration_s": 0.5}, server=CLIENT)
    assert told.judgement.crossed_interface is CrossedInterface.NO
    assert told.judgement.invalid_reason is not None
    assert "lo moved" in told.judgement.invalid_reason
    assert ("wrong_interface", None) in told.findings
