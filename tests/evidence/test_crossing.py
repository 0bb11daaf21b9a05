"""Whether bytes crossed the interface: what share of the expected ones must be seen there, and from how many on."""

from __future__ import annotations

from typing import Any

import pytest

from hpcq.evidence.case import CrossedInterface, JudgedResult, crossing, read_case

pytestmark = pytest.mark.fast

YES, NO, UNKNOWN = CrossedInterface.YES, CrossedInterface.NO, CrossedInterface.UNKNOWN


def answer(moved: float, share: float, *, driver: str = "mlx5_core", interval_s: float = 10) -> CrossedInterface:
    """What is said of a stream of so many bytes of which the interfaces of both ends saw this share."""
    seen = round(moved * share)

    def end(way: str) -> dict[str, Any]:
        counters = {f"net_dev.eth0.{way}_bytes": seen, f"net_dev.eth0.{way}_packets": 1, "net_dev.eth0.other_bytes": 1}
        return {
            "node": way,
            "interface": "eth0",
            "interval_ns": round(interval_s * 1e9),
            "interface_bytes": {"tx": seen if way == "tx" else 0, "rx": seen if way == "rx" else 0},
            "counters": counters,
            "gauges": {},
            "unavailable": {},
        }

    line = {
        "kernel": "tcp_stream",
        "metrics": {"sent_bytes": moved, "received_bytes": moved},
        "evidence": {"client": end("tx"), "server": end("rx")},
    }
    facts = {"nic": {"eth0.driver": driver}}
    return crossing(read_case(JudgedResult(line, {"message_bytes": 1}, facts, facts))).answer


@pytest.mark.promise("Bytes have crossed when the interface saw at least half of them.")
@pytest.mark.promise("Bytes have not crossed when the interface saw less than a tenth of them; between the two it is unknown.")
@pytest.mark.parametrize(
    ("share", "found"),
    [(1.0, YES), (1.05, YES), (0.51, YES), (0.5, YES), (0.49, UNKNOWN), (0.11, UNKNOWN), (0.09, NO), (0.0, NO)],
)
def test_half_of_the_bytes_have_crossed_and_less_than_a_tenth_have_not(share: float, found: CrossedInterface) -> None:
    assert answer(1e9, share) is found


@pytest.mark.promise("The probes of a path that the server answered prove that they crossed the interface under test.")
@pytest.mark.parametrize(("seen", "found"), [(25_000, YES), (1_500, NO)])
def test_the_answered_probes_of_a_path_have_crossed(seen: int, found: CrossedInterface) -> None:
    def end(way: str) -> dict[str, Any]:
        counters = {f"net_dev.eth0.{way}_{what}": seen for what in ("bytes", "packets")}
        return {"interface": "eth0", "interval_ns": 10**9, "counters": counters, "gauges": {}, "unavailable": {}}

    metrics = {"round_trip_min_ns": 1e5, "probe_count": 40.0, "answered_bytes": 24_000.0}
    line = {"kernel": "path_probe", "metrics": metrics, "evidence": {"client": end("tx"), "server": end("rx")}}
    assert crossing(read_case(JudgedResult(line, {}, {}, {}))).answer is found


def lower_bound(at_least: list[float], seen: int, *, many_ranks: bool) -> CrossedInterface:
    """What is said of an MPI program whose description gives a lower bound; `seen` crossed at each end each way."""
    end = {
        "interface": "eth0",
        "interval_ns": 10**10,
        "interface_bytes": {"tx": seen, "rx": seen},
        "counters": {f"net_dev.eth0.{way}_{what}": seen for way in ("tx", "rx") for what in ("bytes", "packets")},
        "gauges": {},
        "unavailable": {},
    }
    line = {"kernel": "osu_bw", "metrics": {"throughput_bps": 1.0}, "evidence": {"client": end, "server": end}}
    more = {"over_mpi": True, "many_ranks": many_ranks, "sent_at_least_bytes": at_least}
    more["warnings"] = [{"name": "same_node"}]  # so that no fabric without counters can explain it
    return crossing(read_case(JudgedResult(line | more, {}, {}, {}))).answer


@pytest.mark.promise(
    "A lower bound of what is sent, from a description, proves whether the bytes crossed the interface under test."
)
@pytest.mark.parametrize(
    ("at_least", "seen", "many_ranks", "found"),
    [
        ([1e9, 1e9], 10**9, False, YES),
        ([1e9, 0], 10**9, False, YES),
        ([1e9, 0], 10**6, False, NO),
        ([1e9, 1e9], 3 * 10**9, True, YES),
        ([1e9, 1e9], 10**6, True, NO),
        ([], 10**9, False, UNKNOWN),
    ],
)
def test_a_lower_bound_of_a_description_is_a_proof(
    at_least: list[float], seen: int, many_ranks: bool, found: CrossedInterface
) -> None:
    assert lower_bound(at_least, seen, many_ranks=many_ranks) is found


@pytest.mark.promise("Fewer than 2000 expected bytes accuse no interface.")
@pytest.mark.parametrize(("moved", "found"), [(1e4, NO), (2000, NO), (1990, UNKNOWN), (100, UNKNOWN)])
def test_few_bytes_are_lost_in_the_chatter_of_a_node(moved: float, found: CrossedInterface) -> None:
    assert answer(moved, 0.0) is found


@pytest.mark.promise("Counters that lag behind accuse no interface in a short measurement.")
@pytest.mark.parametrize(("driver", "interval_s", "found"), [("tg3", 2, UNKNOWN), ("tg3", 4, NO), ("mlx5_core", 2, NO)])
def test_counters_that_lag_behind_accuse_nobody(driver: str, interval_s: float, found: CrossedInterface) -> None:
    assert answer(1e9, 0.0, driver=driver, interval_s=interval_s) is found


@pytest.mark.promise("Both directions at once have crossed an interface only where each end sent and received.")
@pytest.mark.parametrize(("seen_back", "found"), [(3e8, YES), (2e7, NO)])
def test_both_directions_at_once_have_to_cross(seen_back: float, found: CrossedInterface) -> None:
    """A GB there and 300 MB back: at the client the first is sent and the second received."""

    def end(sent: float, received: float) -> dict[str, Any]:
        seen = {"tx": round(sent), "rx": round(received)}
        counters = {
            f"net_dev.eth0.{way}_{what}": seen[way] if what == "bytes" else 1 for way in seen for what in ("bytes", "packets")
        }
        empty: dict[str, Any] = {"gauges": {}, "unavailable": {}}
        return {"interface": "eth0", "interval_ns": 10**10, "interface_bytes": seen, "counters": counters, **empty}

    metrics = {"sent_bytes": 1e9, "received_bytes": 1e9, "return_sent_bytes": 3e8, "return_received_bytes": 3e8}
    ends = {"client": end(1e9, seen_back), "server": end(seen_back, 1e9)}
    line = {"kernel": "tcp_stream", "metrics": metrics, "evidence": ends}
    facts = {"nic": {"eth0.driver": "mlx5_core"}}
    asked = {"message_bytes": 1, "direction": "both"}
    assert crossing(read_case(JudgedResult(line, asked, facts, facts))).answer is found


@pytest.mark.promise("Where the sizes of reply and request differ, each way is expected to cross with its own.")
@pytest.mark.parametrize(("seen_back", "found"), [(1.2e9, YES), (1e8, NO)])
def test_a_reply_of_another_size_has_to_cross(seen_back: float, found: CrossedInterface) -> None:
    """A million requests of 100 bytes, replies of 1,200."""

    def end(sent: float, received: float) -> dict[str, Any]:
        seen = {"tx": round(sent), "rx": round(received)}
        counters = {
            f"net_dev.eth0.{way}_{what}": seen[way] if what == "bytes" else 1 for way in seen for what in ("bytes", "packets")
        }
        empty: dict[str, Any] = {"gauges": {}, "unavailable": {}}
        return {"interface": "eth0", "interval_ns": 10**10, "interface_bytes": seen, "counters": counters, **empty}

    there = 1.5e8 if found is YES else 1e9
    ends = {"client": end(there, seen_back), "server": end(seen_back, there)}
    line = {"kernel": "udp_pingpong", "metrics": {"round_trip_min_ns": 1e4, "received_count": 1e6}, "evidence": ends}
    facts = {"nic": {"eth0.driver": "mlx5_core"}}
    asked = {"message_bytes": 100, "reply_bytes": 1200}
    assert crossing(read_case(JudgedResult(line, asked, facts, facts))).answer is found


def over_mpi(kernel: str, sent: tuple[float, float], asked: dict[str, Any], metrics: dict[str, float], more: float = 0) -> Any:
    """What is said where each end sent so many bytes over eth0, and received what the other sent. more: over eth1."""

    def end(out: float, back: float) -> dict[str, Any]:
        moved = {"eth0": {"tx": round(out), "rx": round(back)}, "eth1": {"tx": round(more), "rx": round(more)}}
        counters = {
            f"net_dev.{name}.{way}_{what}": moved[name][way]
            for name in moved
            for way in ("tx", "rx")
            for what in ("bytes", "packets")
        }
        empty: dict[str, Any] = {"gauges": {}, "unavailable": {}}
        return {"interface": "eth0", "interval_ns": 10**10, "interface_bytes": moved["eth0"], "counters": counters, **empty}

    line = {"kernel": kernel, "metrics": metrics, "evidence": {"client": end(*sent), "server": end(*reversed(sent))}}
    facts = {"nic": {"eth0.driver": "mlx5_core"}}
    return crossing(read_case(JudgedResult(line, {"message_bytes": 1000, **asked}, facts, facts))).answer


THOUSAND = {"operation_count": 1000.0}


@pytest.mark.promise("Applications over MPI prove that what they moved crossed the interface.")
@pytest.mark.promise(
    "Every MPI kernel but a barrier proves that its bytes crossed the interface, by the least that its ends must send."
)
@pytest.mark.promise("The pairs of multi_pair prove that what they sent crossed the interface.")
@pytest.mark.parametrize(
    ("kernel", "asked", "metrics", "sent"),
    [
        ("mpi_pingping", {}, THOUSAND, (1e6, 1e6)),
        ("mpi_stream", {"direction": "client_to_server", "window_count": 64}, THOUSAND, (64e6, 1e3)),
        ("mpi_stream", {"direction": "server_to_client", "window_count": 64}, THOUSAND, (1e3, 64e6)),
        ("mpi_one_sided", {"operation": "put"}, THOUSAND, (1e6, 1e3)),
        ("mpi_one_sided", {"operation": "get"}, THOUSAND, (1e3, 1e6)),
        ("mpi_collective", {"operation": "bcast"}, THOUSAND | {"rank_count": 2}, (1e6, 1e3)),
        ("mpi_collective", {"operation": "incast"}, THOUSAND | {"rank_count": 2}, (1e3, 1e6)),
        (
            "mpi_collective",
            {"operation": "multi_pair", "window_count": 8},
            THOUSAND | {"rank_count": 2, "pair_count": 1},
            (8e6, 1e3),
        ),
        (
            "mpi_collective",
            {"operation": "multi_pair", "window_count": 8},
            THOUSAND | {"rank_count": 4, "pair_count": 2},
            (8e6, 8e6),
        ),
        (
            "mpi_collective",
            {"operation": "multi_pair", "window_count": 8, "ranks_per_node": 2},
            THOUSAND | {"rank_count": 4, "pair_count": 2},
            (16e6, 1e3),
        ),
        (
            "mpi_collective",
            {"operation": "multi_pair", "window_count": 8, "ranks_per_node": 2},
            THOUSAND | {"rank_count": 6, "pair_count": 3},
            (16e6, 8e6),
        ),
        ("mpi_collective", {"operation": "ialltoall"}, THOUSAND | {"rank_count": 5}, (4e6, 4e6)),
        ("mpi_collective", {"operation": "ialltoall", "ranks_per_node": 2}, THOUSAND | {"rank_count": 4}, (2e6, 2e6)),
        ("mpi_collective", {"operation": "iallreduce"}, THOUSAND | {"rank_count": 5}, (1e6, 1e6)),
        ("mpi_matrix_multiply", {}, {"rank_count": 5, "client_moved_bytes": 1e6, "server_moved_bytes": 1e6}, (1e6, 1e6)),
    ],
)
def test_every_mpi_kernel_proves_what_it_sent(
    kernel: str, asked: dict[str, Any], metrics: dict[str, float], sent: tuple[float, float]
) -> None:
    assert over_mpi(kernel, sent, asked, metrics) is YES
    assert over_mpi(kernel, (1e4, 1e4), asked, metrics, more=1e8) is NO  # it went over another interface
    assert over_mpi(kernel, (1e4, 1e4), asked, metrics) is UNKNOWN  # a fabric may have no counters


def test_a_barrier_proves_nothing() -> None:
    assert over_mpi("mpi_collective", (1e6, 1e6), {"operation": "barrier"}, THOUSAND | {"rank_count": 2}) is UNKNOWN
