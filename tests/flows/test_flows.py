"""Many flows, both directions at once, many datagrams to a call: what is sent is counted exactly, whichever way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kernels.kernel_programs import Programs, Server

COUNTED = {"duration_s": 60, "warmup_s": 0.005}


@pytest.mark.promise("Where both ends send at once, each direction is counted to the last byte, apart from the other.")
@pytest.mark.parametrize("wait_by", ["block", "epoll", "spin"])
@pytest.mark.parametrize("flow_count", [1, 64])
def test_both_directions_at_once_are_counted_apart(server: Server, wait_by: str, flow_count: int) -> None:
    options: dict[str, Any] = {"direction": "both", "flow_count": flow_count, "wait_by": wait_by, "warmup_s": 0.01}
    tcp = server.run("tcp_stream", duration_s=0.1, **options).line
    assert tcp["valid"], tcp["invalid_reason"]
    assert tcp["metrics"]["received_bytes"] == tcp["metrics"]["sent_bytes"] > 0
    assert tcp["metrics"]["return_received_bytes"] == tcp["metrics"]["return_sent_bytes"] > 0
    assert tcp["metrics"]["return_throughput_bps"] > 0
    udp = server.run("udp_stream", duration_s=0.1, rate_bps=2e7, **options).line
    assert udp["valid"], udp["invalid_reason"]
    for way in ("", "return_"):
        metrics = {name: udp["metrics"][f"{way}{name}"] for name in ("sent_count", "received_count", "lost_count")}
        assert metrics["sent_count"] == metrics["received_count"] + metrics["lost_count"] > 0


@pytest.mark.parametrize("kernel", ["tcp_stream", "udp_stream"])
@pytest.mark.parametrize("direction", ["client_to_server", "server_to_client"])
def test_one_direction_names_no_return(server: Server, kernel: str, direction: str) -> None:
    line = server.run(kernel, direction=direction, flow_count=3, operation_count_max=300, **COUNTED).line
    assert not [name for name in line["metrics"] if name.startswith("return_")]
    assert line["metrics"]["sent_count"] == 300
    assert 1 / 3 <= line["metrics"]["flow_fairness_ratio"] <= 1


@pytest.mark.promise("The server's UDP flows share one port, whatever their number.")
def test_sixty_four_udp_flows_fit_eight_ports_of_a_firewall(programs: Programs, secret: Path) -> None:
    with Server(programs.net, secret) as finder:
        control = min(finder.port, 65000)
    with Server(programs.net, secret, "--ports", f"{control}-{control + 7}") as running:
        line = running.run("udp_stream", flow_count=64, operation_count_max=640, **COUNTED).line
    assert line["valid"], line
    assert line["metrics"]["received_count"] == 640
    assert line["metrics"]["flow_fairness_ratio"] == 1


@pytest.mark.promise("Segments and merging save system calls, and every datagram is still counted.")
@pytest.mark.promise(
    "With merged datagrams, which share one stamp and one drop, no jitter and no drops of the socket are reported."
)
def test_segments_and_merging_save_system_calls(server: Server) -> None:
    options: dict[str, Any] = {"operation_count_max": 880, "rate_bps": 0, **COUNTED}
    plain, cut, merged = (
        server.run("udp_stream", **options, **more).line
        for more in ({}, {"gso_segment_count": 44}, {"gso_segment_count": 44, "gro": "true"})
    )
    assert plain["metrics"]["client_call_count"] >= plain["metrics"]["sent_count"] == 880
    assert cut["metrics"]["client_call_count"] < 80
    assert cut["metrics"]["sent_count"] == 880
    assert cut["granted"]["client_gso_segment_count"] == 44
    assert plain["granted"]["client_gso_segment_count"] == 1
    assert "server_gso_segment_count" not in cut["granted"]
    assert merged["metrics"]["received_count"] == 880
    assert merged["metrics"]["server_call_count"] < 300 < cut["metrics"]["server_call_count"]
    for name in ("jitter_ns", "socket_drop_count"):
        assert name in cut["metrics"]
        assert name not in merged["metrics"], "one stamp, one drop for many datagrams"


@pytest.mark.promise("A measurement that ends by count sends exactly that many datagrams, also where one call takes more.")
def test_many_messages_to_a_call(server: Server) -> None:
    line = server.run("udp_stream", call_message_count=32, operation_count_max=1000, rate_bps=0, **COUNTED).line
    assert line["metrics"]["sent_count"] == line["metrics"]["received_count"] == 1000, "the last call has eight"
    assert line["metrics"]["client_call_count"] < 60


@pytest.mark.promise("Fewer segments than asked for are reported with their number.")
def test_segments_that_do_not_fit_a_message_are_told(server: Server) -> None:
    line = server.run("udp_stream", message_bytes=30000, gso_segment_count=64, operation_count_max=10, **COUNTED).line
    assert line["granted"]["client_gso_segment_count"] == 2
    told = {one["name"]: one["message"] for one in line["warnings"]}
    assert "asked for 64, granted 2" in told["option_not_granted"]


def test_a_spinning_receiver_does_not_sleep(server: Server) -> None:
    """A hundred datagrams in a second or so: one who sleeps needs a hundred calls."""
    options: dict[str, Any] = {"operation_count_max": 100, "rate_bps": 100 * 1452 * 8 / 0.2, **COUNTED}
    calls = {
        how: server.run("udp_stream", wait_by=how, **options).line["metrics"]["server_call_count"] for how in ("block", "spin")
    }
    assert calls["block"] < 300
    assert calls["spin"] > 1000


def test_sanitizers_find_nothing_in_flows(sanitized: Programs, secret: Path) -> None:
    with Server(sanitized.net, secret) as running:
        for kernel, options in (
            (
                "udp_stream",
                {"gso_segment_count": 20, "gro": "true", "call_message_count": 3, "flow_count": 5, "wait_by": "epoll"},
            ),
            ("udp_stream", {"direction": "both", "flow_count": 64, "call_message_count": 4, "rate_bps": 1e6}),
            ("tcp_stream", {"direction": "both", "flow_count": 9, "wait_by": "spin"}),
            ("udp_rate_search", {"direction": "server_to_client", "rate_max_bps": 5e6, "trial_s": 0.1}),
        ):
            done = running.run(kernel, operation_count_max=200, **COUNTED, **options)
            assert (done.rc, done.err) == (0, ""), kernel
