"""Small messages of tcp_stream go in rows with one look at the clock, and are counted as if each were alone."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kernels.kernel_programs import Server, ended

COUNT = 5003  # no multiple of a row


class Calls(NamedTuple):
    """How often a client read the clock, sent and received, and received nothing."""

    clock: int
    sent: int
    received: int
    in_vain: int


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("calls") / "calls.so"
    source = Path(__file__).with_name("calls.c")
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return made


def counted(server: Server, shim: Path, folder: Path, **options: Any) -> tuple[dict[str, Any], Calls]:
    """The result line of a client and the calls that it made."""
    said = folder / "calls"
    given = {"duration_s": 60, "warmup_s": 0, **options}
    done = ended(server.command("tcp_stream", **given), env={"LD_PRELOAD": str(shim), "CALLS": str(said)})
    assert done.line["valid"], done.line["invalid_reason"]
    return done.line, Calls(*map(int, said.read_text().split()))


@pytest.mark.promise("Small messages go in rows with one look at the clock; each is counted, and so is each call.")
@pytest.mark.parametrize(("flow_count", "wait_by"), [(1, "block"), (3, "block"), (1, "epoll")])
def test_a_row_of_small_messages_has_one_look_at_the_clock(
    server: Server, shim: Path, tmp_path: Path, flow_count: int, wait_by: str
) -> None:
    flows = {"flow_count": flow_count, "wait_by": wait_by, "operation_count_max": COUNT}
    line, calls = counted(server, shim, tmp_path, message_bytes=64, **flows)
    metrics = line["metrics"]
    assert calls.sent >= COUNT
    assert calls.clock < calls.sent / 2
    assert (metrics["sent_count"], metrics["sent_bytes"], metrics["received_bytes"]) == (COUNT, 64 * COUNT, 64 * COUNT)
    assert metrics["client_call_count"] >= COUNT
    line, calls = counted(server, shim, tmp_path, message_bytes=1024, **flows)
    assert line["metrics"]["sent_count"] == COUNT
    assert calls.clock >= COUNT, "of larger ones each has its own"


@pytest.mark.parametrize("wait_by", ["block", "epoll"])
def test_a_read_that_emptied_a_flow_is_not_followed_by_one_in_vain(
    server: Server, shim: Path, tmp_path: Path, wait_by: str
) -> None:
    """What comes in pieces is waited for with the other flows."""
    slow = {"direction": "server_to_client", "pacing_rate_bps": 20_000_000, "message_bytes": 4096, "duration_s": 0.5}
    _, calls = counted(server, shim, tmp_path, flow_count=3, wait_by=wait_by, **slow)
    assert calls.received > 100
    assert calls.in_vain < 0.1 * calls.received


@pytest.mark.promise("A measurement that ends by count sends that many messages, also where they go in rows.")
@pytest.mark.parametrize("count", [2, 15, 16, 17, 31])
def test_a_count_ends_a_row(server: Server, count: int) -> None:
    line = server.run("tcp_stream", message_bytes=64, duration_s=60, warmup_s=0, operation_count_max=count, read_bytes=32).line
    metrics = line["metrics"]
    assert (metrics["sent_count"], metrics["received_bytes"]) == (count, 64 * count)


def test_small_reads_have_one_look_at_the_clock_too(server: Server, shim: Path, tmp_path: Path) -> None:
    options = {"direction": "server_to_client", "operation_count_max": 100, "message_bytes": 65536}
    line, calls = counted(server, shim, tmp_path, read_bytes=512, **options)
    assert line["metrics"]["received_bytes"] == 100 * 65536
    assert calls.received >= 100 * 65536 / 512
    assert calls.clock < calls.received / 2
    assert line["metrics"]["client_call_count"] >= 100 * 65536 / 512


def test_a_slow_reader_changes_no_count(server: Server) -> None:
    """One byte a call: rows end amid a message, and the time ends amid a row."""
    small = {"message_bytes": 1000, "read_bytes": 1, "send_buffer_bytes": 4096, "receive_buffer_bytes": 4096}
    line = server.run("tcp_stream", duration_s=0.3, warmup_s=0, **small).line
    metrics = line["metrics"]
    assert line["valid"], line["invalid_reason"]
    assert metrics["sent_bytes"] == metrics["received_bytes"]
    assert metrics["sent_count"] == metrics["sent_bytes"] // 1000
