"""How a stream's bytes are given to the socket: every byte arrives whichever way, and copies are told from none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kernels.kernel_namespaces import joined
from tests.kernels.kernel_programs import Programs, Server, unreported

WAYS: list[dict[str, Any]] = [
    {},
    {"flow_count": 5},
    {"direction": "both", "wait_by": "epoll"},
    {"direction": "server_to_client", "wait_by": "spin"},
]


@pytest.mark.promise("With `send_by: sendfile` every byte of the message arrives, whichever way the ends wait.")
@pytest.mark.parametrize("send_by", ["send", "zero_copy", "sendfile"])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_byte_arrives(server: Server, send_by: str, way: dict[str, Any]) -> None:
    line = server.run("tcp_stream", send_by=send_by, duration_s=0.1, warmup_s=0.02, message_bytes=50_001, **way).line
    metrics, granted = line["metrics"], line["granted"]
    assert (line["valid"], line["error"]) == (True, None)
    assert metrics["received_bytes"] == metrics["sent_bytes"] > 0
    assert ("zero_copy_count" in metrics) is (send_by == "zero_copy")
    senders = {"both": {"client", "server"}, "server_to_client": {"server"}}.get(way.get("direction", ""), {"client"})
    assert {end for end in ("client", "server") if granted.get(f"{end}_zero_copy")} == (
        senders if send_by == "zero_copy" else set()
    )


@pytest.mark.promise(
    "With `send_by: zero_copy` each call is answered for, and calls that were copied all the same count apart."
)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_call_without_a_copy_is_answered_by_the_kernel(server: Server, way: dict[str, Any]) -> None:
    """On loopback the kernel copies after all, and says so of each call (msg_zerocopy.rst)."""
    line = server.run("tcp_stream", send_by="zero_copy", duration_s=0.1, warmup_s=0.02, message_bytes=1000, **way).line
    metrics = line["metrics"]
    assert metrics["zero_copy_count"] == 0
    assert metrics["zero_copy_copied_count"] >= metrics["sent_count"] > 0  # a message may take more calls than one
    assert "zero_copy_open" not in {one["name"] for one in line["warnings"]}


@pytest.mark.lab
def test_a_link_that_drops_leaves_no_call_open(programs: Programs, tmp_path: Path) -> None:
    """What is sent again holds its pages longer: all are answered in the end."""
    with joined(tmp_path, rate_bps=3e7) as pair:
        line = pair.run(programs.net, "tcp_stream", send_by="zero_copy", duration_s=0.5, warmup_s=0.1).line
        file = pair.run(programs.net, "tcp_stream", send_by="sendfile", duration_s=0.5, warmup_s=0.1).line
    metrics = line["metrics"]
    assert metrics["zero_copy_count"] + metrics["zero_copy_copied_count"] >= metrics["sent_count"] > 0
    assert "zero_copy_open" not in {one["name"] for one in line["warnings"]}
    assert metrics["received_bytes"] == metrics["sent_bytes"]
    assert file["metrics"]["received_bytes"] == file["metrics"]["sent_bytes"] > 0


def test_sanitizers_find_nothing_either_way(sanitized: Programs, secret: Path) -> None:
    with Server(sanitized.net, secret) as running:
        for send_by in ("zero_copy", "sendfile"):
            done = running.run("tcp_stream", send_by=send_by, duration_s=0.1, warmup_s=0.02, flow_count=2, direction="both")
            unreported(done.err)
            assert done.line["valid"]


def test_another_way_is_refused(server: Server) -> None:
    done = server.run("tcp_stream", send_by="splice")
    assert (done.rc, "send_by: found splice: allowed: one of send zero_copy sendfile" in done.err) == (2, True)
