"""Readers go by headings and units: what other versions of a program write, and what hypothesis makes up."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcq import assets
from hpcq.definition.kernel_file import kernel_of
from hpcq.described import Read, UnreadableError, failure_said, read_output, sizes, sizes_in
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


def in_mebibytes(text: str) -> str:
    """The same table as a version before 2018 wrote it."""
    return re.sub(r"(?m)^( +\d+ +\d+ +\S+ +)(\S+)$", lambda row: f"{row[1]}{float(row[2]) / 1.048576:.2f}", text)


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
    text, other = imb(banner), in_mebibytes(imb(banner))
    text, other = (other, text) if megabyte == 2**20 else (text, other)
    found = read("imb_pingpong", text, size_log_max_count=6)
    assert found.metrics[64]["throughput_bps"] == pytest.approx(385.68 * 8e6, rel=1e-4)
    assert refused("imb_pingpong", other, size_log_max_count=6).endswith(
        "must be numbers of which holds: throughput_bps is message_bytes over half_round_trip_ns"
    )
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
    ["imb_pingpong", "imb_pingping", "imb_multi_pingpong"],
    ["imb_allreduce", "imb_alltoall", "imb_allgather"],
    ["imb_sendrecv", "imb_exchange"],
    ["imb_uniband", "imb_biband"],
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


@pytest.mark.promise("The output of another test of a suite, whose table looks the same, is refused by its title.")
@pytest.mark.parametrize(("of", "title"), [("osu_bw", "MPI_Get Bandwidth"), ("osu_latency", "MPI_Put Latency")])
def test_a_one_sided_test_of_osu_is_another_test(of: str, title: str) -> None:
    text = (FOLDER / of / "7.4.txt").read_text("utf-8")
    assert text.count("# OSU MPI ") == 1
    plain = "# OSU MPI " + title.split()[1]
    assert refused(of, text, message_bytes_max=1024) == ""
    for gpu in ("# OSU MPI-CUDA ", "# OSU MPI-ROCM "):
        assert refused(of, text.replace("# OSU MPI ", gpu), message_bytes_max=1024) == ""
    other = text.replace(plain, f"# OSU {title}")
    assert refused(of, other, message_bytes_max=1024).startswith(f"output: it is of {title!r}: ")


#: Two columns of numbers by description: what a version that wrote them in the other order would give.
SWAPPED = {
    "imb_pingpong": ("2018.1.txt", 1, 2, {"size_log_max_count": 6}),
    "imb_pingping": ("2018.1.txt", 1, 2, {"size_log_max_count": 6}),
    "imb_allreduce": ("2018.1.txt", 1, 2, {"size_log_max_count": 6}),
    "imb_sendrecv": ("2021.11.txt", 2, 5, {"size_log_max_count": 6}),
    "imb_exchange": ("2021.11.txt", 2, 5, {"size_log_max_count": 6}),
    "imb_uniband": ("2021.11.txt", 2, 3, {"size_log_max_count": 6}),
    "imb_biband": ("2021.11.txt", 2, 3, {"size_log_max_count": 6}),
    "osu_mbw_mr": ("7.4.txt", 1, 2, {"message_bytes_max": 1024}),
    "osu_allreduce": ("5.7-full.txt", 1, 2, {"message_bytes_max": 8}),
    "perftest_write_bw": ("dgx-spark.txt", 3, 4, {}),
    "perftest_send_bw": ("roce.txt", 3, 4, {}),
    "perftest_read_bw": ("roce.txt", 3, 4, {}),
    "perftest_write_lat": ("soft-roce.txt", 2, 3, {}),
    "perftest_send_lat": ("roce.txt", 2, 3, {}),
    "perftest_read_lat": ("roce.txt", 2, 3, {}),
    "nccl_all_reduce": ("2.17.9.txt", 1, 5, {"message_bytes_min": 1 << 30, "message_bytes_max": 1 << 33}),
}


def swapped(text: str, one: int, two: int) -> str:
    """The text with two fields of each row exchanged."""
    lines = text.split("\n")
    for no, cells in enumerate(line.split() for line in text.split("\n")):
        if len(cells) > two and all(re.fullmatch(r"[-+.\deE]+", cell) for cell in (cells[0], cells[one], cells[two])):
            cells[one], cells[two] = cells[two], cells[one]
            lines[no] = "  ".join(cells)
    return "\n".join(lines)


@pytest.mark.promise("Where a program's numbers tell the same thing twice, an output in which they disagree is refused.")
@pytest.mark.parametrize("name", SWAPPED)
def test_columns_in_another_order_are_refused_where_numbers_tell_it(name: str) -> None:
    file, one, two, options = SWAPPED[name]
    text = (FOLDER / name / file).read_text("utf-8")
    row = re.search(r"(?m)^ *(\d+) +\d+ ", text)
    if name.startswith("perftest") and row is not None:
        options = {"message_bytes": int(row[1])}
    assert refused(name, text, **options) == ""
    assert "must be numbers of which holds: " in refused(name, swapped(text, one, two), **options)


@pytest.mark.promise("Where a program's numbers tell the same thing twice, an output in which they disagree is refused.")
def test_a_reduce_scatter_of_old_nccl_tests_is_no_all_reduce() -> None:
    """Neither title nor columns tell them apart before 2.13: only that a reduce-scatter's bus bandwidth is the smaller one."""
    row = "  8589934592     268435456     float     sum    32464  264.60  231.52    N/A    32498  264.32  231.28    N/A\n"
    text = f"#       {'  '.join(NCCL)}\n{NCCL_UNITS}{row}# Out of bounds values : 0 OK\n"
    sizes_read = {"message_bytes_min": 1 << 33, "message_bytes_max": 1 << 33}
    assert "bus_throughput_bps is once to twice message_bytes over operation_mean_ns" in refused(
        "nccl_all_reduce", text, **sizes_read
    )
    all_reduce = text.replace("231.52", "463.05").replace("231.28", "462.56")
    assert refused("nccl_all_reduce", all_reduce, **sizes_read) == ""


@pytest.mark.promise("Where a program's numbers tell the same thing twice, an output in which they disagree is refused.")
def test_a_table_of_osu_is_none_of_netpipe() -> None:
    """Both have three columns of numbers, and NetPIPE's has no heading."""
    text = (FOLDER / "osu_mbw_mr" / "7.4.txt").read_text("utf-8")
    found = described("netpipe_tcp")
    with pytest.raises(UnreadableError, match="throughput_bps is message_bytes over half_round_trip_ns"):
        read_output(found, text, sizes_in(found, text))


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ 1 == 1 }}", "names no metric: must be a template over metrics and message_bytes"),
        ("{{ rate_bps }}", "renders to '1': must be True or False"),
        ("{{ rate_bps > other }}", "'other' is undefined"),
    ],
)
def test_what_must_hold_is_checked_with_the_description(template: str, said: str) -> None:
    file = RATE.replace("PYTHON", "sh") + f'must_hold: {{it is small: "{template}"}}\n'
    with pytest.raises(UserError) as refusal:
        kernel_of(file, "foreign_rate.yaml", own_kernels())
    assert said in refusal.value.message


@pytest.mark.promise("A table with a column more is read by its headings; a row with a field more says so.")
def test_a_column_more_or_less() -> None:
    row = ["65536", "5000", "368.67", "368.48", "0.702829"]
    more = perftest([*PERFTEST, "BW min[Gb/sec]"], [*row, "0.00"])
    assert read("perftest_write_bw", more).metrics[None]["throughput_bps"] == pytest.approx(368.48e9)
    assert refused("perftest_write_bw", perftest([*PERFTEST], [*row, "0.00"])).startswith("table: 6 fields for 5 columns: ")
    fewer = read("perftest_write_bw", perftest([*PERFTEST[:4]], row[:4])).metrics[None]
    assert fewer == pytest.approx({"throughput_bps": 368.48e9, "throughput_peak_bps": 368.67e9})
    one_way = "#  size  count  type  redop  root  time  algbw  busbw  #wrong\n" + NCCL_UNITS
    assert "must have time for in_place_us" in refused("nccl_all_reduce", one_way)
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
    columns = dict(zip(PERFTEST, ("65536", "5000", "200.5", "131.072", "0.25"), strict=True))
    headings = list(PERFTEST)
    for one in added:
        headings.insert(data.draw(st.integers(4, len(headings))), one)
    cells = [columns.get(one, "7.75") for one in headings]
    found = read("perftest_write_bw", perftest(headings, cells)).metrics[None]
    assert found == {"throughput_bps": 131.072e9, "throughput_peak_bps": 200.5e9, "message_rate_pps": 0.25e6}
    lost = data.draw(st.integers(0, len(cells) - 1))
    fewer = refused("perftest_write_bw", perftest(headings, cells[:lost] + cells[lost + 1 :]))
    assert fewer.startswith(f"table: {len(cells) - 1} fields for {len(cells)} columns: ")


@pytest.mark.heavy
@settings(database=None, deadline=None, derandomize=True, max_examples=200)
@given(st.sampled_from(delivered()), st.text(max_size=300))
def test_any_text_is_refused_in_words(name: str, text: str) -> None:
    for output in (text, text + "\n"):
        assert refused(name, output)
