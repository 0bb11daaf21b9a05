"""The socket kernels: built, described, run on the loopback interface, and wrong in every way a person can be wrong."""

from __future__ import annotations

import json
import math
import os
import re
import struct
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hpcq import __version__, units
from tests.kernels.kernel_programs import INSTANT, LIMIT_S, ROOT, SOCKET_KERNELS, Programs, Server, ended, make

LINE_KEYS = {
    *("format", "kernel", "program", "version", "build_id", "options", "granted", "valid", "invalid_reason", "exit_code"),
    *("error", "started_utc", "duration_ns", "metrics", "warnings", "samples", "histogram", "series", "evidence", "frame"),
}


def described(programs: Programs) -> dict[str, dict[str, Any]]:
    text = subprocess.run([programs.net, "--describe"], capture_output=True, text=True, check=True).stdout
    return {kernel["name"]: kernel for kernel in json.loads(text)["kernels"]}


def test_builds_without_a_warning(programs: Programs) -> None:
    assert "warning" not in programs.said
    for flag in ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion"):
        assert flag in programs.said


@pytest.mark.promise("The interval of a mean holds the true mean as often as its level says, also where neighbours are alike.")
@pytest.mark.promise("A percentile is the value of its rank.")
@pytest.mark.promise("A percentile of a whole rank is that rank's value, whatever rounding does.")
@pytest.mark.promise("A percentile is interpolated within its bucket.")
@pytest.mark.promise("A percentile on the edge of a bucket belongs to that bucket.")
@pytest.mark.promise("A 32-bit counter that wraps still counts.")
@pytest.mark.promise("A counter that was reset is reported as decreased, not as a huge number.")
@pytest.mark.promise("A datagram that comes twice is counted once.")
@pytest.mark.promise("Datagrams out of order are counted as such and not as lost.")
@pytest.mark.promise("Two digests are compared to their last byte.")
@pytest.mark.promise("What strangers and old files hand in, damaged in 3,000 ways, breaks no parser; the sanitizers watch.")
def test_c_unit_tests(sanitized: Programs) -> None:
    assert "all C unit tests passed" in make("check", f"BUILD={sanitized.folder.parent}")


def test_build_id_follows_flags_and_nothing_else(programs: Programs, tmp_path: Path) -> None:
    def build_id(name: str, *words: str) -> str:
        make(f"{tmp_path}/{name}/net/identity", f"BUILD={tmp_path}/{name}", *words)
        return (tmp_path / name / "net" / "identity").read_text().strip()

    said = subprocess.run([programs.net, "--describe"], capture_output=True, text=True, check=True).stdout
    assert re.fullmatch(r"[0-9a-f]{16}", json.loads(said)["build_id"])
    assert build_id("same") == json.loads(said)["build_id"]
    assert build_id("other", "CFLAGS=-O1") != json.loads(said)["build_id"]
    assert "hpcq-net" not in make("net", f"BUILD={programs.folder}").replace("Nothing to be done", ""), "built twice"


def test_the_same_sources_give_the_same_bytes_in_another_folder(programs: Programs, tmp_path: Path) -> None:
    objects = ["common/engine/run.o", "net/kernels/tcp_stream.o", "net/build_id.o"]
    make(*(f"{tmp_path}/{name}" for name in objects), f"BUILD={tmp_path}")
    for name in objects:
        assert (tmp_path / name).read_bytes() == (programs.folder / name).read_bytes(), name


def test_committed_descriptions_are_the_programs(programs: Programs, tmp_path: Path) -> None:
    make("describe", f"BUILD={programs.folder}", f"OUT={tmp_path}", "MPI=", "LIBFABRIC=")
    committed = (ROOT / "kernels" / "describe" / "hpcq-net.json").read_text()
    assert (tmp_path / "hpcq-net.json").read_text() == committed, "run `make describe`"
    assert json.loads(committed)["build_id"] == ""


def test_the_program_is_hardened(programs: Programs) -> None:
    said = subprocess.run(["readelf", "-ldW", programs.net], capture_output=True, text=True, check=True).stdout
    assert "DYN (Position-Independent" in said
    assert "GNU_RELRO" in said
    assert "BIND_NOW" in said
    symbols = subprocess.run(["readelf", "-sW", programs.net], capture_output=True, text=True, check=True).stdout
    assert "__stack_chk_fail" in symbols
    assert "_chk@" in symbols  # FORTIFY_SOURCE


@pytest.mark.promise("The kernels are built with the hardening that the compiler knows, and without what it refuses.")
def test_hardening_that_a_compiler_refuses_is_left_out(tmp_path: Path) -> None:
    """-fcf-protection is of x86; a compiler may be older than either."""
    picky = tmp_path / "picky"
    picky.write_text('#!/bin/sh\ncase " $* " in *" -fcf-protection "*) echo "error: no" >&2; exit 1 ;; esac\nexec cc "$@"\n')
    picky.chmod(0o755)
    lines = {name: make("net", "-n", f"BUILD={tmp_path}", f"CC={name}", "MPI=") for name in ("cc", str(picky))}
    option = subprocess.run(["cc", "-fcf-protection", "-fsyntax-only", "-xc", "/dev/null"], capture_output=True, check=False)
    assert ("-fcf-protection" in lines["cc"]) == (option.returncode == 0)
    assert "-fcf-protection" not in lines[str(picky)]
    assert "-fstack-clash-protection" in lines["cc"]
    assert "-fstack-clash-protection" in lines[str(picky)]


def test_version_is_the_packages(programs: Programs) -> None:
    said = subprocess.run([programs.net, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"hpcq-net {__version__} build ")


def test_units_are_in_the_names(programs: Programs) -> None:
    for kernel in described(programs).values():
        assert kernel["summary"]
        assert kernel["method"]
        for row in [*kernel["options"], *kernel["metrics"]]:
            assert row["help"], row
            if row["unit"] is not None:
                assert row["name"].endswith("_" + row["unit"])
        for metric in kernel["metrics"]:
            assert metric["unit"] in {"bps", "pps", "rpm", "ns", "count", "bytes", "ratio"}, metric
        for option in kernel["options"]:
            if option["type"] in {"integer", "number"}:
                assert option["minimum"] <= option["default"] <= option["maximum"]
            if option["type"] == "choice":
                assert option["default"] in option["choices"]


def test_help_names_every_option(programs: Programs) -> None:
    for name, kernel in described(programs).items():
        text = subprocess.run([programs.net, name, "--help"], capture_output=True, text=True, check=True).stdout
        for row in [*kernel["options"], *kernel["metrics"]]:
            assert row["name"] in text


@pytest.mark.parametrize("kernel", SOCKET_KERNELS)
def test_measures_on_loopback(server: Server, programs: Programs, kernel: str) -> None:
    done = server.run(kernel, "--interface", "lo", **INSTANT)
    line = done.line
    assert (done.rc, done.err) == (0, "")
    assert set(line) == LINE_KEYS
    assert line["valid"] is True
    assert (line["invalid_reason"], line["exit_code"], line["error"]) == (None, 0, None)
    description = described(programs)[kernel]
    assert list(line["options"]) == [option["name"] for option in description["options"]]
    assert set(line["metrics"]) <= {metric["name"] for metric in description["metrics"]}
    assert 0 < line["duration_ns"] < 60e9, "ended by its count"
    for end in ("client", "server"):
        assert line["evidence"][end]["interface"] == "lo"
        assert line["granted"][f"{end}_receive_buffer_bytes"] > 0
    stream, oneway = kernel.endswith("stream"), kernel == "udp_oneway"
    main = "throughput_bps" if stream else "received_count" if oneway else "round_trip_p50_ns"
    assert line["metrics"][main] > 0


@pytest.mark.parametrize("direction", ["client_to_server", "server_to_client"])
def test_the_connection_says_how_its_sender_spent_the_time(server: Server, direction: str) -> None:
    line = server.run("tcp_stream", duration_s=0.2, warmup_s=0.05, direction=direction).line
    sender, receiver = ("client", "server") if direction == "client_to_server" else ("server", "client")
    evidence = line["evidence"][sender]
    assert 0 < evidence["counters"]["self.tcp_info.busy_us"] <= 1.1 * evidence["interval_ns"] / 1e3 + 10_000  # in jiffies
    assert evidence["gauges"]["self.tcp_info.min_round_trip_us"]
    assert "self.tcp_info.busy_us" not in line["evidence"][receiver]["counters"]
    asked = server.run("udp_stream", **INSTANT).line["evidence"]["client"]
    assert not [name for part in ("counters", "gauges", "unavailable") for name in asked[part] if "tcp_info" in name]


@pytest.mark.parametrize("kernel", ["tcp_stream", "udp_stream"])
def test_the_server_sends_too(server: Server, kernel: str) -> None:
    line = server.run(kernel, direction="server_to_client", **INSTANT).line
    assert line["valid"], line
    assert line["metrics"]["sent_count"] > 0
    assert line["metrics"]["throughput_bps"] > 0


@pytest.mark.promise("What a sanitizer reports of a process that the server forked is read, and fails the test.")
@pytest.mark.parametrize("kernel", SOCKET_KERNELS)
def test_sanitizers_find_nothing(sanitized: Programs, secret: Path, tmp_path: Path, kernel: str) -> None:
    extra = ["--evidence-file", str(tmp_path / "whole.json"), "--raw-dir", str(tmp_path / "raw")]
    with Server(sanitized.net, secret, "--sessions", "1") as running:
        done = running.run(kernel, *extra, **INSTANT)
        assert (done.rc, done.err) == (0, "")
        assert running.process.wait(timeout=LIMIT_S) == 0
        assert running.process.stderr is not None
        assert running.process.stderr.read() == ""


def test_every_option_is_echoed_and_changes_nothing_else(server: Server) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    asked = {
        "message_bytes": 999,
        "read_bytes": 70_000,
        "direction": "client_to_server",
        "flow_count": 2,
        "thread_count": 1,
        "thread_place": "as_is",
        "client_thread_cpus": str(cpus[0]),
        "server_thread_cpus": "system",
        "wait_by": "epoll",
        "send_by": "zero_copy",
        "duration_s": 59.875,
        "warmup_s": 0.0001,
        "operation_count_max": 77,
        "client_cpu_index": cpus[0],
        "server_cpu_index": cpus[-1],
        "client_numa_index": -1,
        "server_numa_index": -1,
        "buffer_offset_bytes": 100,
        "buffer_pages": "small",
        "series_interval_ms": 40,
        "width_max_ratio": 0,
        "width_level_ratio": 0.9,
        "warmup_level_ratio": 0.25,
        "sweep_to_bytes": 0,
        "sweep_perturbation_bytes": 0,
        "companion": "tcp_pingpong",
        "companion_rate_pps": 1000,
        "companion_message_bytes": 99,
        "companion_idle_s": 0.125,
        "companion_dscp": 8,
        "capture": "headers",
        "capture_max_bytes": 8192,
        "idle": "hold",
        "send_buffer_bytes": 65536,
        "receive_buffer_bytes": 70000,
        "dscp": 46,
        "hop_limit_count": 33,
        "busy_poll_us": 0,
        "bind_device": "lo",
        "mss_bytes": 1000,
        "no_delay": True,
        "tcp_cork": True,
        "not_sent_low_water_bytes": 131072,
        "pacing_rate_bps": 8_000_000_000,
        "congestion_control": "reno",
        "source_port_first_no": 0,
        "source_port_last_no": 0,
        "client_bind_device": "system",
        "server_bind_device": "lo",
        "mptcp": False,
    }
    words = {name: str(value).lower() if isinstance(value, bool) else value for name, value in asked.items()}
    line = server.run("tcp_stream", **words).line
    assert line["options"] == asked
    as_asked = {"dscp": 46, "hop_limit_count": 33, "no_delay": True, "tcp_cork": True, "not_sent_low_water_bytes": 131072}
    as_asked["pacing_rate_bps"] = 8_000_000_000
    for end in ("client", "server"):
        assert {name: line["granted"][f"{end}_{name}"] for name in as_asked} == as_asked
    assert line["metrics"]["sent_count"] == 77
    assert line["metrics"]["received_bytes"] == 77 * 999
    for end in ("client", "server"):
        assert line["granted"][f"{end}_congestion_control"] == "reno"
        assert line["granted"][f"{end}_mss_bytes"] <= 1000
        assert line["evidence"][end]["cpu_index"] == cpus[0 if end == "client" else -1]
    assert line["granted"]["client_send_buffer_bytes"] == 2 * 65536


def test_a_count_ends_a_measurement_long_before_its_time(server: Server) -> None:
    line = server.run("udp_pingpong", duration_s=60, reply_timeout_s=60, warmup_s=0, operation_count_max=10).line
    assert line["metrics"]["received_count"] == line["metrics"]["sent_count"] == 10
    assert line["duration_ns"] < 60e9


@pytest.mark.promise("The percentiles are those of the samples, exact to the histogram's bucket.")
@pytest.mark.parametrize("kernel", ["tcp_pingpong", "udp_pingpong"])
def test_samples_histogram_and_metrics_are_one_truth(server: Server, tmp_path: Path, kernel: str) -> None:
    path = tmp_path / "samples"
    options = {**INSTANT, "operation_count_max": 5000, "reply_timeout_s": 10}
    line = server.run(kernel, "--samples-file", str(path), **options).line
    assert line["samples"] == {"file": str(path), "format": "u64-ns-le", "count": path.stat().st_size // 8}
    samples = sorted(struct.unpack(f"<{line['samples']['count']}Q", path.read_bytes()))
    metrics = line["metrics"]
    assert (metrics["round_trip_min_ns"], metrics["round_trip_max_ns"]) == (samples[0], samples[-1])
    assert metrics["round_trip_mean_ns"] == pytest.approx(sum(samples) / len(samples), rel=1e-6)
    buckets = line["histogram"]["buckets"]
    assert buckets == [list(one) for one in sorted(Counter(bucket_lower_ns(one) for one in samples).items())]
    for name, quantile in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
        true = samples[math.ceil(round(quantile * len(samples), 6)) - 1]  # the smallest with that share at or below it
        found = metrics[f"round_trip_{name}_ns"]
        bucket = bucket_lower_ns(true)
        assert max(bucket, samples[0]) <= found <= min(bucket + bucket_width_ns(true), samples[-1]), name
        below = sum(one < bucket for one in samples)
        here = sum(bucket_lower_ns(one) == bucket for one in samples)
        exact = bucket + bucket_width_ns(true) * (quantile * len(samples) - below) / here
        assert found == pytest.approx(min(max(exact, samples[0]), samples[-1]), rel=1e-9), name


def bucket_width_ns(value_ns: int) -> int:
    """histogram.h: 128 buckets per octave above 128 ns."""
    return 1 << max(0, value_ns.bit_length() - 8)


def bucket_lower_ns(value_ns: int) -> int:
    """The smallest value of the bucket that holds this one."""
    return value_ns - value_ns % bucket_width_ns(value_ns)


def test_bytes_reconcile_with_the_interface(server: Server) -> None:
    line = server.run("tcp_stream", duration_s=0.2, warmup_s=0).line
    sent = line["metrics"]["sent_bytes"]
    assert line["metrics"]["received_bytes"] == sent
    for end in ("client", "server"):
        crossed = line["evidence"][end]["interface_bytes"]
        assert crossed["tx"] == line["evidence"][end]["counters"]["net_dev.lo.tx_bytes"]
        # Headers on top; other tests may use lo at the same time, so there is no upper bound.
        assert crossed["tx"] >= sent
    line = server.run("udp_stream", duration_s=0.2, warmup_s=0, rate_bps=50e6).line
    metrics = line["metrics"]
    assert metrics["received_count"] + metrics["lost_count"] == metrics["sent_count"]
    for end in ("client", "server"):
        assert line["evidence"][end]["counters"]["snmp.Udp.InDatagrams"] >= metrics["received_count"]


@pytest.mark.real_time
def test_datagrams_are_sent_at_the_rate_that_was_asked_for(server: Server) -> None:
    """A sender that gets no CPU for a while is behind: one turn in which it was left alone is enough."""
    turns = (server.run("udp_stream", duration_s=0.2, warmup_s=0, rate_bps=50e6).line for _ in range(50))
    assert any(line["metrics"]["sent_bps"] == pytest.approx(50e6, rel=0.15) for line in turns)


def test_a_small_receive_buffer_loses_in_the_socket(server: Server) -> None:
    """The receiver shares its CPU with the sender, so that it falls behind; what is lost is lost in its own socket."""
    cpu = min(os.sched_getaffinity(0))
    options = {
        "message_bytes": 8192,
        "rate_bps": 0,
        "receive_buffer_bytes": 4096,
        "client_cpu_index": cpu,
        "server_cpu_index": cpu,
    }
    turns = (server.run("udp_stream", duration_s=0.2, warmup_s=0, **options).line for _ in range(20))
    line = next(line for line in turns if line["metrics"]["lost_count"] > 0)
    metrics = line["metrics"]
    assert metrics["lost_ratio"] == pytest.approx(metrics["lost_count"] / metrics["sent_count"])
    assert metrics["socket_drop_count"] == metrics["lost_count"]
    assert line["evidence"]["server"]["counters"]["snmp.Udp.RcvbufErrors"] >= metrics["lost_count"]


def test_a_clipped_buffer_is_told(server: Server) -> None:
    line = server.run("udp_stream", receive_buffer_bytes=1 << 30, **INSTANT).line
    assert line["valid"]
    assert {warning["name"] for warning in line["warnings"]} == {"buffer_clipped"}
    assert len(line["warnings"]) == 2
    assert line["granted"]["server_receive_buffer_bytes"] < 2 << 30


@pytest.mark.promise("A pacing rate bounds the throughput of TCP, and what the system granted is in the result.")
def test_a_pacing_rate_bounds_the_throughput(server: Server) -> None:
    line = server.run("tcp_stream", pacing_rate_bps=50_000_000, duration_s=1, warmup_s=0.2).line
    assert (line["granted"]["client_pacing_rate_bps"], line["granted"]["server_pacing_rate_bps"]) == (50_000_000, 50_000_000)
    assert 1e7 < line["metrics"]["throughput_bps"] < 1.1 * 50e6


@pytest.mark.promise("All addresses of a name are tried.")
@pytest.mark.lab
def test_all_addresses_of_a_name_are_tried(programs: Programs, secret: Path, tmp_path: Path) -> None:
    """The system would have 127.0.0.1 tried first, where nobody listens."""
    (tmp_path / "hosts").write_text("127.0.0.1 twofold\n127.0.0.9 twofold\n")
    with Server(programs.net, secret, "--bind", "127.0.0.9") as running:
        command = running.command("tcp_pingpong", **INSTANT)
        command[command.index("--to") + 1] = "twofold"
        renamed = ["unshare", "--mount", "sh", "-c", f"mount --bind '{tmp_path}/hosts' /etc/hosts && exec \"$@\"", "sh"]
        done = ended([*renamed, *command])
        assert (done.rc, done.line["valid"]) == (0, True), done.err
        command[command.index("--port") + 1] = "1"
        done = ended([*renamed, *command])
        assert done.rc == 3
        assert "127.0.0.1 port 1" in done.line["error"]["message"], "what is said is of the address that is preferred"


@pytest.mark.promise("Numbers by hand may be written as 1e9, 1G or 64Ki, whole ones too, and with the units of campaigns.")
def test_numbers_by_hand(server: Server) -> None:
    line = server.run("tcp_stream", message_bytes="64Ki", pacing_rate_bps="1e9", **INSTANT).line
    assert (line["options"]["message_bytes"], line["options"]["pacing_rate_bps"]) == (65536, 1_000_000_000)
    as_in_campaigns: dict[str, object] = {"message_bytes": "64KiB", "pacing_rate_bps": "800mbit", "duration_s": "50ms"}
    line = server.run("tcp_stream", **{**INSTANT, **as_in_campaigns}).line
    parameters = {name: str(units.parse(str(value), units.unit_of(name) or "")) for name, value in as_in_campaigns.items()}
    assert {name: str(line["options"][name]) for name in as_in_campaigns} == parameters
    for wrong in ({"duration_s": "50KiB"}, {"message_bytes": "1s"}, {"pacing_rate_bps": "8MB"}):
        assert server.run("tcp_stream", **{**INSTANT, **wrong}).rc == 2, wrong
    assert server.run("udp_stream", rate_bps="0.5M", **INSTANT).line["options"]["rate_bps"] == 500_000
    done = server.run("tcp_stream", message_bytes="1.5", **INSTANT)
    assert (done.rc, "message_bytes: found 1.5: allowed: integer" in done.err) == (2, True)


def test_the_receiver_reads_as_much_as_it_was_told(server: Server) -> None:
    """With reads of 1000 bytes, 100 messages of 10,000 take 1000 calls and more."""
    options = {**INSTANT, "warmup_s": 0, "message_bytes": 10_000}
    small = server.run("tcp_stream", read_bytes=1000, **options).line["metrics"]
    assert small["server_call_count"] >= small["received_bytes"] / 1000
    large = server.run("tcp_stream", **options).line["metrics"]
    assert large["server_call_count"] < large["received_bytes"] / 1000


def test_a_link_local_address_without_its_interface_gets_a_hint(programs: Programs, secret: Path) -> None:
    place = ["--to", "fe80::1", "--port", "4711", "--secret-file", str(secret)]
    done = ended([str(programs.net), "tcp_stream", *place])
    allowed = "found fe80::1: allowed: a link-local address with its interface\n"
    assert (done.rc, done.err.startswith(f"error: connect: to: {allowed}")) == (2, True)
    assert "--to fe80::1%eth0" in done.err
    hint = "hint: a link-local address names its interface too: --bind fe80::1%eth0"
    listen = ended([str(programs.net), "server", "--bind", "fe80::1", "--secret-file", str(secret)])
    bound = ended([str(programs.net), "tcp_stream", "--bind", "fe80::1", "--to", "::1", *place[2:]])
    for one, where in ((listen, "server"), (bound, "connect")):
        assert (one.rc, one.err.startswith(f"error: {where}: bind: {allowed}")) == (2, True), one.err
        assert hint in one.err


@pytest.mark.long
def test_a_series_that_ends_early_is_said(server: Server) -> None:
    """36,000 intervals are kept: of 1 ms, 36 s."""
    line = server.run("udp_stream", duration_s=36.3, warmup_s=0, series_interval_ms=1, rate_bps=1e5).line
    assert "the first 36 of 36.3" in {one["name"]: one["message"] for one in line["warnings"]}["series_truncated"]
