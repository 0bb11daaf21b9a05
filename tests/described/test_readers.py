"""Readers go by headings and units: what other versions of a program write, and what hypothesis makes up."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcq import assets
from hpcq.definition.kernel_file import kernel_of
from hpcq.described import Read, UnreadableError, failure_said, read_output, sizes
from hpcq.errors import UserError
from hpcq.kernels import Described, Kernel, complete, own_kernels
from tests.described.descriptions import RATE
from tests.described.samples import FOLDER, delivered, kernel_in

pytestmark = pytest.mark.fast

PERFTEST = ("#bytes", "#iterations", "BW peak[Gb/sec]", "BW average[Gb/sec]", "MsgRate[Mpps]")
NCCL = ("size", "count", "type", "redop", "time", "algbw", "busbw", "error", "time", "algbw", "busbw", "error")
NCCL_UNITS = "#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"


def kernel_named(name: str) -> Kernel:
    return kernel_in(assets.described_kernels() / f"{name}.yaml")


def described(name: str) -> Described:
    found = kernel_named(name).described
    assert found is not None
    return found


def read(name: str, text: str, **options: Any) -> Read:
    return read_output(described(name), text, sizes(described(name), complete(kernel_named(name), options)))


def refused(name: str, text: str, **options: Any) -> str:
    try:
        return "; ".join(read(name, text, **options).complaints.values())
    except UnreadableError as error:
        return str(error)


def iperf3(**changed: Any) -> str:
    end = {"sum_sent": {"bytes": 9, "retransmits": 1}, "sum_received": {"bytes": 9, "bits_per_second": 8e9}}
    return json.dumps({"start": {}, "end": end} | changed, indent=1) + "\n"


@pytest.mark.promise("A key that stands twice in a program's JSON harms only the numbers that are read through it.")
def test_a_key_that_nobody_reads_may_stand_twice() -> None:
    doubled = iperf3().replace('"start": {}', '"start": {"sock_bufsize": 0, "sock_bufsize": 0}')
    assert read("iperf3_tcp", doubled).metrics[None]["throughput_bps"] == 8e9
    for path in ('"bits_per_second": 8000000000.0', '"end": {}'):
        twice = (
            iperf3().replace('"end": {', '"end": {},\n"end": {') if "end" in path else iperf3().replace(path, f"{path}, {path}")
        )
        assert "stands twice in one object" in refused("iperf3_tcp", twice)


@pytest.mark.promise("An iperf3 that says error and ends with 0 has failed, in its own words; no rate of 0 is stored.")
def test_an_error_of_iperf3_is_a_failure() -> None:
    ended = iperf3(error="the server went away")
    assert failure_said(described("iperf3_tcp"), ended) == '"error": "the server went away"'
    assert failure_said(described("iperf3_tcp"), iperf3()) is None
    nothing = iperf3().replace("8000000000.0", "0")
    assert refused("iperf3_tcp", nothing) == "throughput_bps: 0: must be 1 or more"


def imb(banner: str) -> str:
    text = (FOLDER / "imb_pingpong" / "2018.1.txt").read_text("utf-8")
    assert "Intel (R) MPI Benchmarks 2018 Update 1" in text
    return text.replace("Intel (R) MPI Benchmarks 2018 Update 1", banner)


@pytest.mark.promise("IMB's Mbytes are 2^20 bytes where its banner is of 2017 or before; without a banner there is no rate.")
@pytest.mark.parametrize(
    ("banner", "megabyte"),
    [
        ("Intel (R) MPI Benchmark Suite V3.2", 2**20),
        ("Intel (R) MPI Benchmarks 4.0", 2**20),
        ("Intel (R) MPI Benchmarks 2017 Update 2", 2**20),
        ("Intel (R) MPI Benchmarks 2018", 1e6),
        ("Intel(R) MPI Benchmarks 2021.11", 1e6),
    ],
)
def test_the_megabyte_of_imb(banner: str, megabyte: float) -> None:
    found = read("imb_pingpong", imb(banner), size_log_max_count=6)
    assert found.metrics[64]["throughput_bps"] == pytest.approx(385.68 * 8 * megabyte)
    assert "its unit is unknown" in refused("imb_pingpong", imb("Benchmarks"), size_log_max_count=6)


@pytest.mark.promise("Percentiles of sockperf without --full-rtt, which halves them, are stored as whole round trips.")
@pytest.mark.parametrize("name", ["sockperf_tcp", "sockperf_udp"])
def test_half_a_round_trip_of_sockperf(name: str) -> None:
    text = (FOLDER / name / "3.7.txt").read_text("utf-8")
    whole = read(name, text).metrics[None]
    half = read(name, text.replace("avg-rtt=", "avg-latency=")).metrics[None]
    for metric in whole:
        assert half[metric] == pytest.approx(whole[metric] * (2 if metric.startswith("round_trip_") else 1))
    assert "its unit is unknown" in refused(name, text.replace("avg-rtt=", "avg="))


def perftest(headings: list[str], cells: list[str]) -> str:
    return f" {'    '.join(headings)}\n {'   '.join(cells)}\n---------\n"


LIKE = [  # tests of a suite whose tables look alike
    ["osu_bw", "osu_bibw"],
    ["osu_latency", "osu_allreduce", "osu_alltoall"],
    ["imb_pingpong", "imb_pingping"],
    ["perftest_write_bw", "perftest_send_bw", "perftest_read_bw"],
    ["perftest_write_lat", "perftest_send_lat", "perftest_read_lat"],
    ["qperf_tcp_bw", "qperf_tcp_lat"],
    ["gpcnet", "gpcnet_load"],
    ["sockperf_tcp", "sockperf_udp"],
    ["iperf3_tcp", "iperf3_udp"],
]


@pytest.mark.promise("The output of another test of a suite, whose table looks the same, is refused by its title.")
@pytest.mark.parametrize(("of", "by"), [pair for alike in LIKE for pair in itertools.permutations(alike, 2)])
def test_a_table_of_another_test_is_refused(of: str, by: str) -> None:
    texts = [path.read_text("utf-8") for path in (FOLDER / of).iterdir() if path.suffix != ".toml"]
    assert len(texts) >= 2
    for text in texts:
        assert refused(by, text).startswith("output: it is of ")


def test_a_title_without_a_name_is_refused() -> None:
    file = RATE.replace("PYTHON", "sh") + "title: {line: '^# foreign', must_be: rate}\n"
    with pytest.raises(UserError, match="0 groups: must be one, the name"):
        kernel_of(file, "foreign_rate.yaml", own_kernels())


@pytest.mark.promise("A table with a column more is read by its headings; a row with a field more says so.")
def test_a_column_more_or_less() -> None:
    row = ["65536", "5000", "368.67", "368.48", "0.702829"]
    more = perftest([*PERFTEST, "BW min[Gb/sec]"], [*row, "0.00"])
    assert read("perftest_write_bw", more).metrics[None]["throughput_bps"] == pytest.approx(368.48e9)
    assert refused("perftest_write_bw", perftest([*PERFTEST], [*row, "0.00"])).startswith("table: 6 fields for 5 columns: ")
    assert "must have MsgRate" in refused("perftest_write_bw", perftest([*PERFTEST[:4]], row[:4]))
    assert refused("perftest_write_bw", more, message_bytes=8) == "table: size '65536': allowed here is 8"


def test_the_table_of_nccl_tests_before_2_12() -> None:
    """It has no root, and `error` instead of `#wrong`."""
    row = "  1048576        262144     float     sum    61.5   17.05   29.84  2e-07    60.1   17.45   30.53  2e-07\n"
    text = f"#       {'  '.join(NCCL)}\n{NCCL_UNITS}{row}# Out of bounds values : 0 OK\n"
    [(size, found)] = read("nccl_all_reduce", text, message_bytes_min=1 << 20, message_bytes_max=1 << 20).metrics.items()
    assert (size, found["operation_mean_ns"], found["in_place_bus_throughput_bps"]) == (1 << 20, 61500, 30.53 * 8e9)
    assert "wrong_count" not in found
    minutes = text.replace("(us)", "(ms)")
    options = {"message_bytes_min": 1 << 20, "message_bytes_max": 1 << 20}
    assert refused("nccl_all_reduce", minutes, **options).startswith("table: units ")


@pytest.mark.promise("The output of another test of a suite, whose table looks the same, is refused by its title.")
def test_the_table_of_another_test_of_nccl_tests_is_refused() -> None:
    """Newer ones have a title; of the others, the column of the operator or the root tells."""
    text = (FOLDER / "nccl_all_reduce" / "rccl-tests.txt").read_text("utf-8")
    sizes_read = {"message_bytes_min": 1 << 33, "message_bytes_max": 1 << 34}
    assert refused("nccl_all_reduce", text, **sizes_read) == ""
    titled = text.replace("starting: all_reduce_perf", "starting: reduce_scatter_perf")
    assert refused("nccl_all_reduce", titled, **sizes_read).startswith("output: it is of 'reduce_scatter_perf': ")
    assert "operator: 'none': must be sum|" in refused("nccl_all_reduce", text.replace(" sum ", "none "), **sizes_read)
    assert "root: '0': must be -1" in refused("nccl_all_reduce", text.replace("sum      -1", "sum       0"), **sizes_read)


@pytest.mark.heavy
@settings(database=None, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from(["BW min[Gb/sec]", "CPU_Util[%]", "x", "Retries", "p50 [us]"]), unique=True, max_size=4),
    st.data(),
)
def test_columns_of_other_versions_move_no_number(added: list[str], data: st.DataObject) -> None:
    """Whatever columns stand between, each number is that below its heading."""
    columns = dict(zip(PERFTEST, ("65536", "5000", "200.5", "100.25", "0.5"), strict=True))
    headings = list(PERFTEST)
    for one in added:
        headings.insert(data.draw(st.integers(4, len(headings))), one)
    cells = [columns.get(one, "7.75") for one in headings]
    found = read("perftest_write_bw", perftest(headings, cells)).metrics[None]
    assert found == {"throughput_bps": 100.25e9, "throughput_peak_bps": 200.5e9, "message_rate_pps": 0.5e6}
    lost = data.draw(st.integers(0, len(cells) - 1))
    fewer = refused("perftest_write_bw", perftest(headings, cells[:lost] + cells[lost + 1 :]))
    assert fewer.startswith(f"table: {len(cells) - 1} fields for {len(cells)} columns: ")


@pytest.mark.heavy
@settings(database=None, deadline=None, derandomize=True, max_examples=200)
@given(st.sampled_from(delivered()), st.text(max_size=300))
def test_any_text_is_refused_in_words(name: str, text: str) -> None:
    for output in (text, text + "\n"):
        assert refused(name, output)
