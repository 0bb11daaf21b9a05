"""udp_rate_search: the loss-free rate of known lines, the words where there is none, and its trials in result and database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kernels.kernel_namespaces import joined, wired
from tests.kernels.kernel_programs import Programs, Server

#: Of an Ethernet frame's 1,514 bytes, 1,472 are payload.
PAYLOAD_RATIO = 1452 / 1494
TURNS = 3
WAYS = ("client_to_server", "server_to_client")


@pytest.mark.real_time
@pytest.mark.promise("A search that the server makes has its trials in the client's result.")
@pytest.mark.promise("A loss-free rate was measured twice, the second time for twice as long.")
@pytest.mark.parametrize("direction", WAYS)
def test_what_the_sender_is_asked_for_at_most_is_fine(server: Server, direction: str) -> None:
    done = server.run("udp_rate_search", rate_max_bps=2e7, trial_s=0.2, settle_s=0.02, direction=direction)
    assert (done.rc, done.line["valid"], done.line["options"]["direction"]) == (0, True, direction), done.line
    metrics = done.line["metrics"]
    assert metrics["trial_count"] == 2, "one, and the same again for twice as long"
    assert metrics["loss_free_rate_bps"] == pytest.approx(2e7, rel=0.02)
    assert "lossy_rate_bps" not in metrics
    assert metrics["sent_count"] == metrics["received_count"] > metrics["confirmed_count"]
    assert 2000 <= metrics["confirmed_count"] <= 2001, "a trial of a low rate is longer, and has a thousand datagrams"


@pytest.mark.parametrize("direction", WAYS)
def test_a_search_that_does_not_end_has_no_rate(server: Server, direction: str) -> None:
    done = server.run("udp_rate_search", rate_max_bps=5e6, trial_s=0.2, duration_s=0.5, direction=direction)
    assert (done.rc, done.line["valid"]) == (1, False)
    assert done.line["invalid_reason"].startswith("the search did not end: ")
    assert "loss_free_rate_bps" not in done.line["metrics"]


def test_a_search_goes_one_way(server: Server) -> None:
    done = server.run("udp_rate_search", direction="both")
    assert done.rc == 2
    assert "direction: found both: allowed: one of client_to_server server_to_client" in done.err


@pytest.mark.promise("A rate that fills a queue of the path is no loss-free rate, though nothing was lost yet.")
@pytest.mark.promise("udp_rate_search searches from the end that `direction` names.")
@pytest.mark.lab
@pytest.mark.quiet
@pytest.mark.real_time
@pytest.mark.parametrize(
    ("direction", "rate_bps"),
    [("client_to_server", 40e6), pytest.param("server_to_client", 20e6, marks=pytest.mark.long)],
)
def test_the_rate_of_a_known_line_is_found(programs: Programs, tmp_path: Path, direction: str, rate_bps: float) -> None:
    """A sender or a wire that loses the CPU loses datagrams in truth: the best of three turns counts, and none flatters."""
    truth = rate_bps * PAYLOAD_RATIO
    found: list[float] = []
    with joined(tmp_path, 40e6, 20e6) as pair:
        while len(found) < TURNS and (not found or max(found) < 0.97 * truth):
            done = pair.run(programs.net, "udp_rate_search", trial_s=0.3, settle_s=0.05, direction=direction)
            if not done.line["valid"]:
                continue
            found.append(done.line["metrics"]["loss_free_rate_bps"])
    assert 0.97 * truth <= max(found) <= 1.03 * truth, found
    metrics, series = done.line["metrics"], done.line["series"]
    assert metrics["lossy_rate_bps"] > metrics["loss_free_rate_bps"]
    assert metrics["bracket_ratio"] <= 0.02
    tx = {end: done.line["evidence"][end]["counters"].get("net_dev.eth0.tx_bytes", 0) for end in ("client", "server")}
    assert max(tx, key=lambda end: tx[end]) == direction.partition("_")[0]
    lists = {name: series[name] for name in ("begin_ms", "trial_rate_bps", "trial_received_bps", "trial_lost_ratio")}
    assert {len(values) for values in lists.values()} == {metrics["trial_count"]}
    assert series["trial_lost_ratio"][0] > 0.5 or series["trial_rate_bps"][0] < 1.5 * truth
    assert series["begin_ms"] == sorted(series["begin_ms"])


@pytest.mark.promise("Where every rate loses, the search says so and has no number.")
@pytest.mark.lab
@pytest.mark.parametrize("direction", [WAYS[0], pytest.param(WAYS[1], marks=pytest.mark.long)])
def test_a_line_that_always_loses_has_no_loss_free_rate(programs: Programs, tmp_path: Path, direction: str) -> None:
    given: dict[str, Any] = {"rate_max_bps": 20e6, "trial_s": 0.2, "settle_s": 0.05, "direction": direction}
    with wired(tmp_path, rate_bps=100e6, loss_ratio=0.02) as pair:
        done = pair.run(programs.net, "udp_rate_search", **given)
        assert (done.rc, done.line["valid"]) == (1, False)
        assert done.line["invalid_reason"].startswith("no rate without loss: at ")
        assert "loss_free_rate_bps" not in done.line["metrics"]
        accepted = pair.run(programs.net, "udp_rate_search", **given, loss_ratio_max=0.1)
    assert accepted.line["metrics"]["loss_free_rate_bps"] > 10e6, accepted.line


@pytest.mark.long
@pytest.mark.promise("A receiver that reads too late is no lossy network: the search says that the host is the limit.")
def test_a_late_reader_is_no_lossy_network(server: Server) -> None:
    """Room for a few datagrams only: what the loopback brings, the socket refuses."""
    given: dict[str, Any] = {"rate_max_bps": 2e9, "trial_s": 0.2, "settle_s": 0.02, "receive_buffer_bytes": 4608}
    done = server.run("udp_rate_search", **given, resolution_ratio=0.2, duration_s=60)
    metrics, series = done.line["metrics"], done.line["series"]
    assert metrics["socket_drop_count"] > 0
    assert len(series["trial_socket_drop_count"]) == metrics["trial_count"]
    assert sum(series["trial_socket_drop_count"]) == metrics["socket_drop_count"]
    assert metrics["socket_drop_count"] == metrics["sent_count"] - metrics["received_count"], "the loopback loses nothing"
    assert metrics["receiver_limited_bps"] > 0
    assert "receiver_limited" in {warning["name"] for warning in done.line["warnings"]}
    rates = series["trial_rate_bps"]
    refused = [no for no, count in enumerate(series["trial_socket_drop_count"]) if count]
    assert any(rates[no] == pytest.approx(rates[no + 1], rel=0.1) for no in refused if no + 1 < len(rates)), "tried again"
