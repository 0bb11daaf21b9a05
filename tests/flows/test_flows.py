"""Many flows, both directions at once, many datagrams to a call: what is sent is counted exactly, whichever way."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.kernel_programs import ENDLESS_S, LIMIT_S, Programs, Server, make, wait_for

COUNTED = {"duration_s": 60, "warmup_s": 0.005}


def test_datagrams_of_one_moment_have_no_rate(server: Server) -> None:
    """One message, which the receiver's system cuts into twenty with one stamp."""
    options = {"gso_segment_count": 40, "operation_count_max": 20, "duration_s": 60, "warmup_s": 0}
    line = server.run("udp_stream", **options).line
    assert line["metrics"]["received_count"] == 20
    assert line["invalid_reason"] == "all datagrams that arrived of 20 sent arrived at one moment"


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


@pytest.mark.promise("What many threads send and receive is counted to the last byte and datagram, each way and both.")
@pytest.mark.parametrize("direction", ["client_to_server", "server_to_client", "both"])
@pytest.mark.parametrize("wait_by", ["block", "epoll"])
def test_threads_share_the_flows(server: Server, wait_by: str, direction: str) -> None:
    options: dict[str, Any] = {"direction": direction, "wait_by": wait_by, "flow_count": 7, "thread_count": 3, "warmup_s": 0.02}
    tcp = server.run("tcp_stream", duration_s=0.3, **options).line
    udp = server.run("udp_stream", duration_s=0.3, rate_bps=1e7, **options).line
    for line in (tcp, udp):
        assert line["valid"], line["invalid_reason"]
        assert 0 <= line["metrics"]["client_busiest_thread_ratio"] <= 1.1
        assert 0 <= line["metrics"]["server_busiest_thread_ratio"] <= 1.1
        assert line["granted"]["client_busiest_thread_cpu_index"] in os.sched_getaffinity(0)
    for way in ("", "return_") if direction == "both" else ("",):
        assert tcp["metrics"][f"{way}received_bytes"] == tcp["metrics"][f"{way}sent_bytes"] > 0
        sent, received, lost = (udp["metrics"][f"{way}{name}_count"] for name in ("sent", "received", "lost"))
        assert sent == received + lost > 7
    assert udp["metrics"]["flow_fairness_ratio"] > 0.9, "each thread's flows had their share of the rate"
    assert sum(tcp["series"]["throughput_bps"]) > 0


@pytest.mark.promise("A thousand flows over many threads are one measurement.")
@pytest.mark.parametrize("kernel", ["tcp_stream", "udp_stream"])
def test_a_thousand_flows(server: Server, kernel: str) -> None:
    rate = {"rate_bps": 1e7, "message_bytes": 100} if kernel == "udp_stream" else {"message_bytes": 1000}
    done = server.run(kernel, flow_count=1000, thread_count=8, duration_s=0.5, warmup_s=0, **rate)
    metrics = done.line["metrics"]
    assert done.rc == 0, done.err
    if kernel == "tcp_stream":
        assert metrics["received_bytes"] == metrics["sent_bytes"] >= 1000
    else:
        assert metrics["sent_count"] == metrics["received_count"] + metrics["lost_count"] > 1000
    assert metrics["flow_fairness_ratio"] > 0.1


CPUS = sorted(os.sched_getaffinity(0))
#: The options, and the CPUs of four threads.
PLACES: dict[str, tuple[dict[str, object], list[int]]] = {
    "each": ({"thread_place": "each", "client_cpu_index": CPUS[-1]}, (CPUS[-1:] + CPUS[:-1]) * 4),
    "list": ({"client_thread_cpus": ",".join(map(str, reversed(CPUS[:4])))}, CPUS[:4][::-1] * 4),
}


@pytest.mark.promise("With `thread_place: each`, threads go round the CPUs that the process may use; a list names them.")
@pytest.mark.parametrize("rule", PLACES)
def test_threads_are_where_the_rule_says(server: Server, rule: str) -> None:
    placed, order = PLACES[rule]
    options = {"flow_count": 4, "thread_count": 4, **placed}
    command = server.command("tcp_stream", duration_s=ENDLESS_S, warmup_s=0, **options)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:

        def places() -> list[str]:
            tasks = sorted(Path(f"/proc/{client.pid}/task").iterdir(), key=lambda task: int(task.name))
            words = [line.split() for task in tasks for line in (task / "status").read_text().splitlines()]
            return [line[1] for line in words if line[0] == "Cpus_allowed_list:"]

        wait_for(lambda: places() == [str(cpu) for cpu in order[:4]])
        client.send_signal(signal.SIGTERM)
        client.communicate(timeout=LIMIT_S)


@pytest.mark.parametrize("listed", ["0-9999", "70000", "0,0", "0,", "3-1", "", "a", "-1", "0-1-2", "0" * 64])
@pytest.mark.parametrize("end", ["client", "server"])
def test_a_list_that_is_none_is_refused(server: Server, end: str, listed: str) -> None:
    done = server.run("tcp_stream", **{f"{end}_thread_cpus": listed})
    assert done.rc in ({2} if end == "client" else {2, 3}), "3: a server says what it cannot do"
    assert f"{end}_thread_cpus: found {listed or 'nothing'}: allowed: " in done.err
    assert server.serves()


@pytest.mark.parametrize("kernel", ["tcp_stream", "udp_stream"])
def test_more_threads_than_flows_are_refused(server: Server, kernel: str) -> None:
    done = server.run(kernel, flow_count=2, thread_count=3)
    assert done.rc == 2
    assert "thread_count: found 3: allowed: 2 at most (flow_count)" in done.err
    assert server.serves()


@pytest.mark.long
def test_threads_share_no_memory_unwatched(tmp_path: Path, secret: Path) -> None:
    """Those of flows and those of companions."""
    make(f"BUILD={tmp_path / 'tsan'}", "CFLAGS=-O1 -g -fsanitize=thread", "net")
    with Server(tmp_path / "tsan" / "hpcq-net", secret) as running:
        for kernel in ("tcp_stream", "udp_stream"):
            for companion in ("none", "tcp_pingpong", "udp_pingpong"):
                options = {
                    "duration_s": 0.4,
                    "companion": companion,
                    "companion_idle_s": 0.1,
                    "flow_count": 7,
                    "thread_count": 3,
                }
                done = running.run(kernel, direction="both", **options)
                assert done.rc == 0, done.err


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
            ("tcp_stream", {"direction": "both", "flow_count": 9, "thread_count": 4}),
            ("udp_stream", {"direction": "both", "flow_count": 9, "thread_count": 4, "rate_bps": 1e7}),
            ("udp_rate_search", {"direction": "server_to_client", "rate_max_bps": 5e6, "trial_s": 0.1}),
        ):
            done = running.run(kernel, operation_count_max=200, **COUNTED, **options)
            assert (done.rc, done.err) == (0, ""), kernel
