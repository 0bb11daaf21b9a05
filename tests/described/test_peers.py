"""Programs side by side: which results are compared, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

from hpcq import assets
from hpcq.definition.kernel_file import read_kernel
from hpcq.kernels import Kernel, Peer, own_kernels
from hpcq.reports.page import ForeignComparison, compare
from hpcq.store.read.grouped import PeerValue

pytestmark = pytest.mark.fast


def delivered(name: str) -> tuple[Kernel, str, Peer]:
    kernel = read_kernel(assets.described_kernels() / f"{name}.yaml", own_kernels())
    assert kernel.described is not None
    [(metric, peer)] = [(one.metric, one.peer) for one in kernel.described.readings if one.peer is not None]
    return kernel, metric, peer


def value(kernel: str, metric: str, number: float, server: str = "n2", **parameters: Any) -> PeerValue:
    return PeerValue("alpha", "n1", server, kernel, parameters, metric, "", number)


def rows(name: str, *values: PeerValue) -> list[ForeignComparison]:
    return compare(*delivered(name), values)


@pytest.mark.promise("A program that reports half a round trip is compared with half a round trip.")
def test_half_a_round_trip_counts_twice() -> None:
    [row] = rows(
        "qperf_tcp_lat",
        value("qperf_tcp_lat", "half_round_trip_mean_ns", 10_000, message_bytes=64, duration_s=2),
        value("tcp_pingpong", "round_trip_mean_ns", 20_000, message_bytes=64, duration_s=1),
    )
    assert (row.ratio, row.differs) == (1.0, False)
    assert (row.theirs, row.ours, row.size) == ("20 us", "20 us", "64 B")


@pytest.mark.promise("Programs are compared only where every option that both have is equal.")
def test_other_options_are_not_compared() -> None:
    [row] = rows(
        "iperf3_tcp",
        value("iperf3_tcp", "throughput_bps", 9e9, message_bytes=1024, flow_count=1, direction="client_to_server"),
        value("tcp_stream", "throughput_bps", 9e9, message_bytes=1024, flow_count=2, direction="client_to_server"),
    )
    assert (row.ratio, row.ours, row.ratios) == (None, "", ())


def test_each_pair_has_its_ratio_over_its_repetitions() -> None:
    options = {"message_bytes": 1024, "flow_count": 1, "direction": "client_to_server"}
    ours = [
        value("tcp_stream", "throughput_bps", number, server, **options) for server in ("n2", "n3") for number in (8e9, 10e9)
    ]
    theirs = [
        value("iperf3_tcp", "throughput_bps", number, server, **options) for server, number in (("n2", 9e9), ("n3", 4.5e9))
    ]
    [row] = rows("iperf3_tcp", *ours, *theirs)
    assert row.ratios == (0.5, 1.0)
    assert (row.ratio, row.differs) == (0.75, True)


def test_a_pair_that_only_one_measured_has_no_ratio() -> None:
    options = {"message_bytes": 64}
    [row] = rows(
        "sockperf_udp",
        value("sockperf_udp", "round_trip_p50_ns", 9000, "n2", **options),
        value("udp_pingpong", "round_trip_p50_ns", 9000, "n3", **options),
    )
    assert row.ratios == ()
