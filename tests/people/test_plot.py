"""hpcq plot: what stands in the pictures, read from the text of the SVG; and what it refuses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from hpcq.cli.main import run as hpcq
from hpcq.store.load.cluster import load_run
from tests.history.histories import History
from tests.store.run_folders import RunBuilder

NODES = ("n1", "n2", "n3")
TESTS = [(kernel, {"message_bytes": size}) for kernel in ("tcp_stream", "udp_stream", "tcp_pingpong") for size in (64, 4096)]


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three nodes, three kernels, two sizes; the pair n2 > n3 was planned and never tried."""
    folder = tmp_path_factory.mktemp("sizes")
    pairs = [(a, b) for a in NODES for b in NODES if a < b]
    builder = RunBuilder(folder / "runs", pairs=pairs, tests=TESTS, repetition_count=1)
    builder.attempt("j00001", 1)
    builder.attempt("j00002", 1)
    load_run(folder / "results.db", builder.path)
    return folder / "results.db"


def drawn(database: Path, path: Path, *words: str, expect: int = 0) -> list[str]:
    """The texts of a picture in SVG."""
    code = hpcq(["plot", *words, "-o", str(path), "--db", str(database)])
    assert code == expect
    if expect:
        assert not path.exists()
        return []
    texts = re.findall(r"<text.*?</text>", path.read_text(), re.S)
    return [" ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split()) for text in texts]


@pytest.mark.promise("A picture of curves has all kernels of one metric in one chart.")
def test_a_curve_has_all_kernels_of_a_metric_in_one_chart(sizes: Path, tmp_path: Path) -> None:
    texts = drawn(sizes, tmp_path / "curve.svg", "curve")
    assert {"TCP stream", "UDP stream", "TCP pingpong", "64 B", "4 KiB", "throughput", "round trip p50"} <= set(texts)
    assert texts.count("64 B") == 2  # one chart for each metric
    only = drawn(sizes, tmp_path / "one.svg", "curve", "--kernel", "udp_stream")
    assert "UDP stream" in only
    assert "TCP stream" not in only


def test_a_curve_of_streams_has_mpi_too(tmp_path: Path) -> None:
    tests = [(kernel, {"message_bytes": size}) for kernel in ("tcp_stream", "udp_stream", "mpi_stream") for size in (64, 4096)]
    builder = RunBuilder(tmp_path / "runs", pairs=[("n1", "n2")], tests=tests, repetition_count=2)
    builder.everything()
    load_run(tmp_path / "results.db", builder.path)
    texts = drawn(tmp_path / "results.db", tmp_path / "curve.svg", "curve")
    assert {"TCP stream", "UDP stream", "MPI stream", "throughput"} <= set(texts)
    assert texts.count("64 B") == 1  # one chart: the main metric of mpi_stream is no throughput


@pytest.mark.promise("The same results make the same picture, byte for byte.")
def test_the_same_results_make_the_same_bytes(sizes: Path, tmp_path: Path) -> None:
    for kind in ("svg", "png", "pdf"):
        first, second = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
        for path in (first, second):
            assert hpcq(["plot", "heatmap", "-o", str(path), "--db", str(sizes), "--kernel", "tcp_stream"]) == 0
        assert first.read_bytes() == second.read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.promise("A heat map shows missing cells and cells that were not planned differently.")
def test_a_heat_map_tells_missing_from_not_planned(sizes: Path, nights: History, tmp_path: Path) -> None:
    texts = drawn(sizes, tmp_path / "map.svg", "heatmap", "--kernel", "tcp_stream")
    assert {"n1", "n2", "n3", "20 % worse", "20 % better", "planned, not measured", "each pair is one cell"} <= set(texts)
    assert "not planned" not in texts
    both_ways = drawn(nights.database, tmp_path / "nights.svg", "heatmap")
    assert {"client", "server"} <= set(both_ways)
    assert sum(bool(re.fullmatch(r"1[12]\d(\.\d)?", text)) for text in both_ways) == 10  # the pairs of n4


@pytest.mark.promise("A picture of a history names each change and what differed.")
def test_a_history_has_its_change_and_what_differed(nights: History, tmp_path: Path) -> None:
    texts = drawn(nights.database, tmp_path / "history.svg", "history", "tcp_stream/n1/n2")
    assert "alpha: tcp_stream 64 KiB n1 > n2" in texts
    [told] = [text for text in texts if text.startswith("1 20")]
    assert re.search(r"-(9|10)\.\d% server n2: sysctl.net.core.rmem_max 4194304 > 212992", told)
    calm = drawn(nights.database, tmp_path / "calm.svg", "history", "tcp_stream/n5/n6")
    assert "level" not in calm


@pytest.mark.promise("hpcq plot writes no picture of nothing, and ends with 4.")
def test_nothing_measured_is_told_and_nothing_is_written(
    sizes: Path, nights: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn(sizes, tmp_path / "none.svg", "curve", "--client", "n2", expect=4)
    assert "nothing was measured there: no picture" in capsys.readouterr().err
    drawn(nights.database, tmp_path / "none.svg", "history", "tcp_stream/n1/n2", "--since", "2020-01..2020-02", expect=4)
    assert "nothing was measured there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("curve", "-o", "x.gif"), "x.gif: must be a name that ends with .svg, .png, .pdf"),
        (("heatmap", "-o", "x.svg", "--kernel", "tcp"), "--kernel"),
        (("history", "1", "-o", "x.svg", "--metric", "speed"), "speed"),
        (("curve",), "-o"),
    ],
)
def test_what_plot_refuses(words: tuple[str, ...], said: str, sizes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hpcq(["plot", *words, "--db", str(sizes)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.promise("No settings of matplotlib in the present folder are obeyed: anybody may have put them there.")
@pytest.mark.parametrize("kind", ["pipe", "settings"])
def test_settings_in_the_present_folder_are_not_obeyed(sizes: Path, tmp_path: Path, kind: str) -> None:
    """By them LaTeX would be started, with words of whoever wrote them."""
    if kind == "pipe":
        os.mkfifo(tmp_path / "matplotlibrc")
    else:
        (tmp_path / "matplotlibrc").write_text("text.usetex: True\ntext.latex.preamble: \\input{/etc/hostname}\n")
    words = ["plot", "curve", "--db", str(sizes), "-o", "x.svg"]
    command = [sys.executable, "-P", "-m", "hpcq", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "TCP stream" in (tmp_path / "x.svg").read_text()


def test_without_matplotlib_the_extra_is_named(sizes: Path, tmp_path: Path) -> None:
    words = ["plot", "curve", "--db", str(sizes), "-o", str(tmp_path / "x.svg")]
    program = f"import sys; sys.modules['matplotlib'] = None\nfrom hpcq.cli.main import run\nsys.exit(run({words!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "pip install matplotlib" in done.stderr
    assert not (tmp_path / "x.svg").exists()
