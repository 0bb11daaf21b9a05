"""Words of MPI libraries on the standard output of a kernel: the framed result counts, the words are kept beside it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcq.kernels import own_kernels
from hpcq.run_folder.lines import Line, Outcome, RawLine, framed, measured_sizes, printed, read_line, skipped_sizes
from hpcq.run_folder.paths import RunFolder
from hpcq.runner.live import Watch
from tests.store.run_folders import RunBuilder

pytestmark = pytest.mark.fast

INTEL_WORDS = (
    "[0] MPI startup(): Intel(R) MPI Library, Version 2021.99  Build 20300101",
    "[0] MPI startup(): libfabric provider: tcp;ofi_rxm",
    "[0] MPI startup(): 0       4711     n0001      {0-1}",
    '[0] MPI startup(): File "/opt/none/tuning.dat" not found',
)
UCX_WORDS = (
    "[1893456000.000001] [n0001:4711 :0]     ucp_context.c:2190 UCX  INFO  Version 1.99.0 (loaded from /lib/libucp.so.0)",
    "[1893456000.000002] [n0001:4711 :0]          parser.c:2000 UCX  WARN  unused variable: UCX_TSL (maybe: UCX_TLS?)",
)
WORDS = (*INTEL_WORDS, *UCX_WORDS)
UCX_ERROR = "[1893456000.000003] [n0001:4711 :0]          select.c:629  UCX  ERROR   no active messages transport to n0002"


def frame(line: dict[str, Any]) -> bytes:
    """As kernels/c/engine/result.c frames it; tests/mpi/test_library_words_live.py reads theirs."""
    text = json.dumps(line, separators=(",", ":")).encode()[:-1]
    return text + b',"frame":{"length_bytes":%d,"sha256":"%s"}}' % (len(text), hashlib.sha256(text).hexdigest().encode())


@pytest.fixture
def result(tmp_path: Path) -> dict[str, Any]:
    return RunBuilder(tmp_path).line("j00001", (1, 1))


def read(content: bytes, result: dict[str, Any], rc: int = 0, words: str = "") -> Line:
    raw = RawLine(content, json.dumps({"rc": rc}).encode(), b"", words=words)
    return read_line(raw, Path("t1-r1.json"), own_kernels(), result["kernel"], result["options"])


def lines(*words: str) -> bytes:
    return "".join(f"{one}\n" for one in words).encode()


@pytest.mark.promise("Words of MPI libraries on standard output take no result away, and are kept beside it.")
@pytest.mark.parametrize("words", [INTEL_WORDS, UCX_WORDS], ids=["intel_mpi", "ucx"])
@pytest.mark.parametrize("place", ["before", "after", "around", "without_line_ends", "into_the_line"])
def test_a_result_among_words_counts(result: dict[str, Any], words: tuple[str, ...], place: str) -> None:
    whole, said = frame(result), lines(*words)
    half = len(whole) // 2
    content = {
        "before": said + whole + b"\n",
        "after": whole + b"\n" + said,
        "around": said + whole + b"\n" + said,
        "without_line_ends": said[:-1] + whole + said,
        "into_the_line": whole[:half] + said + whole[half:] + b"\n",
    }[place]
    line = read(content, result)
    assert (line.outcome, line.reason, line.metrics) == (Outcome.MEASURED, None, result["metrics"])
    told = {"mpi_transport_said": "tcp;ofi_rxm"} if words == INTEL_WORDS else {}
    expected = {**result, "granted": {**result.get("granted", {}), **told}} if told else result
    assert line.content == expected, "the frame is no part of the result"
    [(name, kept)] = line.warnings
    assert name == "library_said"
    assert kept.splitlines() == [*words, *(words if place in {"around", "without_line_ends"} else ())]


@pytest.mark.promise("A result names the transports that UCX or Intel MPI say they send over, where they log it.")
@pytest.mark.promise("A result names the transports that Open MPI says it sends over, where it is asked to say so.")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (INTEL_WORDS, "tcp;ofi_rxm"),
        (UCX_WORDS, ""),
        (  # UCX 1.13, as recorded: a rank to itself, and to the other one by both ranks
            (
                "[1.2] [n1:80:0]      ucp_worker.c:1763 UCX  INFO    ep_cfg[0]: tag(self/memory0 tcp/lo) am(self/memory0)",
                "[1.2] [n1:80:0]      ucp_worker.c:1763 UCX  INFO    ep_cfg[1]: tag(tcp/lo tcp/eth0) rma_am(tcp/lo)",
                "[1.2] [n1:81:0]      ucp_worker.c:1763 UCX  INFO    ep_cfg[0]: tag(tcp/lo tcp/eth0) rma_am(tcp/lo)",
            ),
            "tcp/lo tcp/eth0",
        ),
        (
            (
                "[1.2] [n1:80:0]      ucp_worker.c:1877 UCX  INFO    0x5581 self cfg#0 tag(self/memory cma/memory)",
                "[1.2] [n1:80:0]      ucp_worker.c:1877 UCX  INFO    0x5581 inter-node cfg#1 tag(rc_mlx5/mlx5_0:1)",
            ),
            "rc_mlx5/mlx5_0:1",
        ),
        (("==== Capability set configuration ====", "libfabric provider: tcp;ofi_rxm - 10.0.0.0/24"), "tcp;ofi_rxm"),  # MPICH
        (  # Open MPI
            (
                "[n1:80] mca: bml: Using self btl for send to [[16556,1],0] on node n1",
                "[n1:80] mca: bml: Using tcp btl for send to [[16556,1],1] on node n2",
            ),
            "tcp",
        ),
        (("[n1:80] mtl_ofi_component.c:362: mtl:ofi:provider: rdmap0s6-rdm",), "rdmap0s6-rdm"),
        (("the author of this program talks of libfabric provider: tcp", "UCX  WARN  ep_cfg[1]: tag(tcp/lo)"), ""),
    ],
    ids=["intel_mpi", "ucx_says_no_lanes", "ucx_before_1.14", "ucx_later", "mpich", "open_mpi", "open_mpi_ofi", "others"],
)
def test_the_transport_that_a_library_names(result: dict[str, Any], words: tuple[str, ...], told: str) -> None:
    """Libraries write to standard output or standard error."""
    over_mpi = result | {"program": "hpcq-mpi"}
    for line in (read(lines(*words) + frame(result), result), read(frame(over_mpi), over_mpi, words=lines(*words).decode())):
        assert line.content["granted"].get("mpi_transport_said", "") == told
        assert line.outcome == Outcome.MEASURED


def test_a_result_alone_has_no_words(result: dict[str, Any]) -> None:
    for content in (frame(result), json.dumps(result).encode()):
        line = read(content + b"\n", result)
        assert (line.outcome, line.warnings, line.content) == (Outcome.MEASURED, [], result)


@pytest.mark.promise("Where a library ended the program, the reason of the row has the library's own error.")
def test_where_there_is_no_result_the_library_is_quoted(result: dict[str, Any]) -> None:
    line = read(lines(*INTEL_WORDS, UCX_ERROR, *UCX_WORDS), result, 1, "launcher: task 0 ended\n")
    assert line.outcome is Outcome.FAILED
    assert line.reason == f"no result line; exit code 1; {UCX_ERROR}; launcher: task 0 ended"
    assert dict(line.warnings)["library_said"].splitlines() == [*INTEL_WORDS, UCX_ERROR, *UCX_WORDS]
    assert read(lines(UCX_ERROR), result, 255).reason == f"no result line; exit code 255; {UCX_ERROR}"
    assert read(lines(*INTEL_WORDS), result, 255).reason == f"no result line; exit code 255; {INTEL_WORDS[-1]}"


def test_what_is_not_whole_does_not_count(result: dict[str, Any]) -> None:
    whole = frame(result)
    changed = whole.replace(b'"valid":true', b'"valid":null')
    lost = whole[:300] + whole[310:]
    scattered = whole[:100] + lines(UCX_WORDS[0]) + whole[100:200] + lines(UCX_WORDS[1]) + whole[200:]
    for content in (changed, lost, scattered, lines(*WORDS) + changed):
        line = read(content + b"\n", result)
        assert (line.outcome, line.metrics) == (Outcome.INVALID, {})
        assert (line.reason or "").startswith("result line: not whole: ")
    unframed = read(lines(*WORDS) + json.dumps(result).encode() + b"\n", result)
    assert unframed.outcome is Outcome.INVALID
    assert "no frame among 7 lines proves it whole" in (unframed.reason or "")
    twice = read(whole + b"\n" + whole + b"\n", result)
    assert (twice.outcome, twice.reason) == (Outcome.INVALID, "2 result lines: must be exactly one; exit code 0")


@pytest.mark.promise("Each size of a sweep counts among words of a library; of one that was killed, each that is whole.")
def test_a_sweep_among_words(result: dict[str, Any]) -> None:
    def one(size: int) -> bytes:
        return frame(result | {"options": result["options"] | {"message_bytes": size}})

    words, head = lines(*WORDS), b'{"format":1,"kernel":"tcp_stream","skipped":[4],"sizes":[\n'
    begun = words + head + words + one(8) + b"\n" + words + b"," + one(16)[:200] + words + one(16)[200:] + b"\n"
    ended = begun + words + b'],"exit_code":0}\n' + words
    found, said = printed(ended)
    assert (measured_sizes(ended), found["exit_code"], skipped_sizes(ended)) == ([8, 16], 0, [4])
    assert said == list(WORDS) * 6
    killed = begun + b"," + one(32)[:500]
    assert (measured_sizes(killed), "exit_code" in printed(killed)[0], printed(killed)[1]) == ([8, 16], False, list(WORDS) * 4)
    nothing, said = printed(words + head + words)
    assert (nothing["sizes"], "exit_code" in nothing, said) == ([], False, list(WORDS) * 2)
    damaged = ended.replace(b'"message_bytes":16', b'"message_bytes":61')
    line = read(damaged, result | {"options": result["options"] | {"message_bytes": 16}})
    assert (line.outcome, (line.reason or "")[:24]) == (Outcome.INVALID, "result line: not whole: ")
    assert measured_sizes(damaged) == [8]


@pytest.mark.heavy
@settings(database=None, deadline=None, derandomize=True)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), max_size=4), st.data())
def test_a_result_is_whole_or_refused(words: list[str], data: st.DataObject) -> None:
    """Whatever comes before it, after it and into it: what is taken is what was printed."""
    result = {"format": 1, "kernel": "mpi_pingpong", "metrics": {"round_trip_mean_ns": 1234.5}, "said": "é\n\\"}
    content = frame(result)
    for one in words:
        place = data.draw(st.integers(0, len(content)))
        content = content[:place] + one.encode() + b"\n" + content[place:]
    assert framed(content).results in ([result], [])
    outside = "".join(words).encode() + b"\n" + frame(result) + b"\n" + "".join(words).encode()
    assert framed(outside).results == [result]


@pytest.mark.promise("The line that tells of a test as it ends has its value, also where a library said something before it.")
def test_the_line_of_a_test_that_ended_has_its_value(tmp_path: Path) -> None:
    built = RunBuilder(tmp_path)
    built.attempt("j00001")
    for step in built.steps:
        path = built.line_path("j00001", 1, *step)
        path.write_bytes(lines(*INTEL_WORDS) + frame(json.loads(path.read_bytes())) + b"\n" + lines(*UCX_WORDS))
    built.line_path("j00001", 1, *built.steps[0]).write_bytes(lines(*INTEL_WORDS))  # one without a result
    watch = Watch(RunFolder(built.path))
    watch.look()
    told = list(watch.ended())
    assert [one.kernel for one in told] == ["tcp_stream", "tcp_pingpong"]
    assert all(one.value is not None for one in told)
