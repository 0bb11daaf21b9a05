"""`capture: headers`: what the packets of both ends say together, what it costs, and what is said where it cannot be had."""

from __future__ import annotations

import ctypes
import ctypes.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.kernel_namespaces import wired
from tests.kernels.kernel_programs import SOURCES, Ended, Programs, Server, ended

#: By how much the capture's figures may differ from the kernel's own.
NEAR = 0.05


def packets_of(path: Path) -> int:
    """How many packets libpcap, whose reader Wireshark shares, finds in a file."""
    pcap = ctypes.CDLL(ctypes.util.find_library("pcap"))
    pcap.pcap_open_offline.restype = ctypes.c_void_p
    handle = pcap.pcap_open_offline(str(path).encode(), ctypes.create_string_buffer(256))
    assert handle, path
    head, data, count = ctypes.c_void_p(), ctypes.c_void_p(), 0
    while (said := pcap.pcap_next_ex(ctypes.c_void_p(handle), ctypes.byref(head), ctypes.byref(data))) == 1:
        count += 1
    assert said == -2  # the end, not an error
    pcap.pcap_close(ctypes.c_void_p(handle))
    return count


def agrees(found: dict[str, float]) -> None:
    """Round trips of 40 ms: what the hosts add to the shortest is little, and no capture is slower than its program."""
    assert found["capture_round_trip_min_ns"] == pytest.approx(found["round_trip_min_ns"], rel=NEAR)
    assert 0.04e9 < found["capture_round_trip_min_ns"] <= found["capture_round_trip_p50_ns"]
    assert found["capture_round_trip_p50_ns"] <= found["round_trip_p50_ns"] * 1.01  # both from a histogram


@pytest.mark.promise(
    "What the packets of both ends say agrees with the kernel's own figures: losses exactly, times within 5 %."
)
def test_what_packets_say_agrees_with_the_kernels_own_figures(programs: Programs, tmp_path: Path) -> None:
    with wired(tmp_path, delay_s=0.02, rate_bps=5e7, loss_ratio=0.01) as pair:
        short: dict[str, Any] = {"capture": "headers", "warmup_s": 0.1}
        line = pair.run(programs.net, "tcp_stream", duration_s=2, **short).line
        found = line["metrics"]
        assert not [one for one in line["warnings"] if one["name"].startswith("capture_")]
        assert found["retransmit_count"] > 0
        assert found["capture_retransmit_count"] == pytest.approx(found["retransmit_count"], rel=NEAR)
        lost = found["capture_lost_in_host_count"] + found["capture_lost_on_path_count"]
        assert lost + found["capture_duplicate_count"] == pytest.approx(found["capture_retransmit_count"], rel=NEAR)
        line = pair.run(programs.net, "udp_stream", duration_s=1, rate_bps=1e7, flow_count=3, direction="both", **short).line
        found = line["metrics"]
        assert found["lost_count"] > 0
        assert found["capture_lost_on_path_count"] == found["lost_count"] - found["socket_drop_count"]
        assert found["capture_sent_count"] == found["sent_count"]
        line = pair.run(programs.net, "udp_pingpong", duration_s=3, flow_count=4, outstanding_count=4, **short).line
        found = line["metrics"]
        agrees(found)
        for _ in range(4):  # one whose SYN or its answer the path lost has no round trip of it
            words = ["--capture-file", str(tmp_path / "kept" / "here")]
            line = pair.run(programs.net, "tcp_pingpong", *words, duration_s=3, **short).line
            found = line["metrics"]
            if "capture_syn_round_trip_ns" in found:
                break
        assert found["capture_syn_round_trip_ns"] > 0.04e9
        agrees(found)
        for end in ("client", "server"):
            path = Path(line["granted"][f"{end}_capture_file"])
            assert path == tmp_path / "kept" / f"here.{end}.pcap"
            assert packets_of(path) == found[f"{end}_capture_packet_count"] > 0
            assert found[f"{end}_capture_dropped_count"] == 0
            assert 0 < found[f"{end}_capture_cpu_ratio"] < 1


@pytest.mark.promise("Where the server sends, what packets say is of its way: what it sent, and what the path took of it.")
def test_what_packets_say_is_of_the_way_that_is_measured(programs: Programs, tmp_path: Path) -> None:
    """3 ms and 0.5 % of loss."""
    back: dict[str, Any] = {"capture": "headers", "warmup_s": 0.1, "direction": "server_to_client", "duration_s": 2}
    with wired(tmp_path, delay_s=0.003, rate_bps=7e7, loss_ratio=0.005) as pair:
        for kernel, options in (("udp_stream", {"rate_bps": 2e7}), ("udp_oneway", {"rate_pps": 1000})):
            found = pair.run(programs.net, kernel, **options, **back).line["metrics"]
            assert found["lost_count"] > 0
            assert found["capture_lost_on_path_count"] == found["lost_count"] - found.get("socket_drop_count", 0)
            assert found["capture_sent_count"] == found["sent_count"]
        assert found["capture_delay_change_max_ns"] == pytest.approx(found["delay_change_max_ns"], rel=NEAR, abs=1e5)
        found = pair.run(programs.net, "tcp_stream", pacing_rate_bps=30_000_000, **back).line["metrics"]
    assert found["capture_retransmit_count"] == pytest.approx(found["retransmit_count"], rel=NEAR)
    assert found["capture_lost_on_path_count"] + found["capture_duplicate_count"] == found["capture_retransmit_count"]
    assert 0.006e9 < found["capture_round_trip_min_ns"] < 0.05e9


@pytest.mark.promise("A capture has bounded bytes; when a file is full, a warning says so, and the measurement goes on.")
def test_a_capture_has_bounded_bytes(sanitized: Programs, secret: Path, tmp_path: Path) -> None:
    """On the loopback interface, with both sanitizers."""
    options: dict[str, Any] = {"capture": "headers", "duration_s": 0.3, "warmup_s": 0.01}
    with Server(sanitized.net, secret) as server:
        for kernel in ("tcp_stream", "udp_oneway"):
            place = ["--capture-file", str(tmp_path / kernel)]
            done = server.run(kernel, *place, capture_max_bytes=4096, **options)
            assert done.rc == 0, done.err
            assert {one["name"] for one in done.line["warnings"]} >= {"capture_full"}
            for end in ("client", "server"):
                path = tmp_path / f"{kernel}.{end}.pcap"
                assert 2048 < path.stat().st_size <= 4096
                assert packets_of(path) == done.line["metrics"][f"{end}_capture_packet_count"]
        done = server.run("udp_pingpong", rate_pps=100, **options)
        assert done.line["metrics"]["capture_sent_count"] == done.line["metrics"]["sent_count"]


def without(done: Ended, words: str) -> None:
    assert done.rc == 0, done.err
    said = [one["message"] for one in done.line["warnings"] if one["name"] == "option_not_granted"]
    assert any(words in one and one.startswith("capture: asked for headers, granted none at the client: ") for one in said)
    assert done.line["granted"]["client_capture"] is False
    assert not any(name.startswith("capture_") for name in done.line["metrics"])


@pytest.mark.promise("Where an end cannot capture, the test is measured without it, and a warning says what is missing.")
def test_what_a_capture_lacks_is_said(server: Server, programs: Programs, tmp_path: Path) -> None:
    command = server.command("tcp_pingpong", capture="headers", operation_count_max=100, warmup_s=0)
    bare = ["setpriv", "--inh-caps=-net_raw", "--bounding-set=-net_raw", "--ambient-caps=-all"]
    without(ended([*bare, *command]), "CAP_NET_RAW is missing")
    # The same program where the build found no libpcap: one object differs.
    archive = tmp_path / "hpcq.a"
    shutil.copy(programs.folder / "common" / "hpcq.a", archive)
    flags = [
        "-std=c11",
        "-D_GNU_SOURCE",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Wconversion",
        "-Werror",
        "-fPIE",
        "-I",
        str(SOURCES),
    ]
    subprocess.run(["cc", *flags, "-c", SOURCES / "capture" / "capture.c", "-o", tmp_path / "capture.o"], check=True)
    subprocess.run(["ar", "r", archive, tmp_path / "capture.o"], check=True, capture_output=True)
    objects = sorted((programs.folder / "net").rglob("*.o"))
    subprocess.run(["cc", "-pie", "-o", tmp_path / "plain", *objects, archive, "-lm", "-pthread"], check=True)
    without(ended([str(tmp_path / "plain"), *command[1:]]), "built without libpcap")
