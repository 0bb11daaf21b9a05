"""hpcq-mpi under the address and undefined-behaviour sanitizers: every way through it, and no leak of its own.

Open MPI leaks at its end, through libraries that it has unloaded by then, so no suppression can name them. Leaks are
therefore reported without effect, and read here: one of ours was allocated by one of our sources.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hpcq.kernels import own_kernel
from tests.kernels.kernel_programs import SOURCES, Programs, made_once
from tests.kernels.test_kernels_mpi import OPEN_MPI, YIELD, run
from tests.kernels.test_kernels_mpi_tournament import EVERYTHING, keys, play
from tests.mpi.mpi_programs import Launched

pytestmark = pytest.mark.long

COLLECTIVES = next(option.choices for option in own_kernel("mpi_collective").options if option.name == "operation")
CHECKED = {**YIELD, "LSAN_OPTIONS": "exitcode=0", "ASAN_OPTIONS": "exitcode=99:fast_unwind_on_malloc=1"}
#: Who called malloc: the second frame of a leak. Of a leak of the library our main() may be a later one, under MPI_Init.
OURS = re.compile(r"^ +#1 .* in (\w+) (?:\S*/)?(\w+\.c):\d+", re.MULTILINE)


@pytest.fixture(scope="module")
def checked(sanitized: Programs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sanitized") / "asan"
    made_once(folder, "mpi", "SANITIZED=yes", f"MPICC={OPEN_MPI.compiler}", beside=sanitized.folder)
    return folder / "hpcq-mpi"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CHECKED.items():
        monkeypatch.setenv(name, value)


def clean(said: str) -> None:
    """No error of either sanitizer, and no leak of ours; that leaks were looked for shows in Open MPI's own."""
    assert "ERROR: AddressSanitizer" not in said, said
    assert "runtime error" not in said, said
    assert "LeakSanitizer: detected" in said, said
    ours = {name for _, name in OURS.findall(said)} & {path.name for path in SOURCES.rglob("*.c")}
    assert not ours, said


@pytest.mark.promise("A leak of hpcq-mpi itself is told apart from those of the MPI library.")
def test_a_measurement(checked: Path, tmp_path: Path) -> None:
    files = [
        "--samples-file",
        str(tmp_path / "samples"),
        "--evidence-file",
        str(tmp_path / "whole"),
        "--raw-dir",
        str(tmp_path / "raw"),
    ]
    done = run(OPEN_MPI, checked, "--interface", "lo", *files, message_bytes=70000, duration_s=0.1, warmup_s=0.02)
    clean(done.err)
    assert (done.rc, done.line["valid"]) == (0, True)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ("mpi_pingping", {"buffers": "cold", "layout": "strided"}),
        ("mpi_stream", {"direction": "both", "source": "any"}),
        ("mpi_one_sided", {"operation": "accumulate", "synchronization": "flush"}),
        ("mpi_one_sided", {"operation": "get", "synchronization": "fence"}),
        ("mpi_collective", {"operation": "alltoallv"}),
        ("mpi_collective", {"operation": "ireduce_scatter"}),
        ("mpi_collective", {"operation": "incast"}),
        ("mpi_collective", {"operation": "multi_pair", "buffers": "cold", "buffer_offset_bytes": 24}),
        ("mpi_collective", {"operation": "allreduce", "start": "window", "transport": "tcp"}),
    ],
)
def test_every_kernel(checked: Path, kernel: str, options: dict[str, Any]) -> None:
    done = Launched(OPEN_MPI, checked, reports=True).run(kernel, message_bytes=56000, validate="true", **options)
    clean(done.err)
    assert (done.rc, done.line["valid"]) == (0, True)


#: Where buffers begin amid a word, amid a cache line, and where they may begin last; sizes that are no multiple of anything.
PLACES = ({"buffer_offset_bytes": 1}, {"buffer_offset_bytes": 2047, "buffer_pages": "small"}, {"buffer_pages": "huge"})


@pytest.mark.promise("Wherever buffers begin, no byte beside them is read or written, and none is read as what it is not.")
@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(str(value) for value in place.values()))
@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ("mpi_pingpong", {"message_bytes": 4999}),
        ("mpi_pingpong", {"message_bytes": 4096, "layout": "strided", "buffers": "separate"}),
        ("mpi_pingping", {"message_bytes": 77, "buffers": "cold"}),
        ("mpi_stream", {"message_bytes": 4097, "direction": "both", "call": "nonblocking"}),
        ("mpi_one_sided", {"message_bytes": 4999, "operation": "put"}),
        ("mpi_one_sided", {"message_bytes": 4999, "operation": "get", "synchronization": "fence"}),
        ("mpi_one_sided", {"message_bytes": 4996, "operation": "accumulate"}),
        *(("mpi_collective", {"message_bytes": 996, "operation": operation}) for operation in COLLECTIVES),
    ],
)
def test_buffers_that_begin_anywhere(checked: Path, kernel: str, options: dict[str, Any], place: dict[str, Any]) -> None:
    short: dict[str, Any] = {"operation_count_max": 30, "duration_s": 30, "warmup_s": 0, "validate": "true"}
    done = Launched(OPEN_MPI, checked, reports=True).run(kernel, **short, **options, **place)
    clean(done.err)
    assert (done.rc, done.line["valid"]) == (0, True), done.err
    granted = {f"{end}_buffer_offset_bytes": place.get("buffer_offset_bytes", 0) for end in ("client", "server")}
    assert granted.items() <= done.line["granted"].items()


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ("mpi_matrix_multiply", {"matrix_row_count": 97, "panel_row_count": 10}),
        ("mpi_sort", {"element_count": 5003, "element_bytes": 101, "key_bytes": 9}),
        ("mpi_sort", {"element_count": 5003, "key_bytes": 8, "keys": "skewed"}),
    ],
)
def test_applications(checked: Path, kernel: str, options: dict[str, Any]) -> None:
    done = Launched(OPEN_MPI, checked, reports=True).run(kernel, ranks=3, **options)
    clean(done.err)
    assert (done.rc, done.line["valid"]) == (0, True)


@pytest.mark.parametrize("words", [["--interface", "nope0"], ["--message_bytes", "-1"], ["--samples-file", "/nowhere/at/all"]])
def test_what_is_refused(checked: Path, words: list[str]) -> None:
    done = run(OPEN_MPI, checked, *words, duration_s=0.01, warmup_s=0)
    clean(done.err)
    assert done.rc != 0
    assert done.line["error"]["message"]


def test_a_tournament_with_a_lost_node_all_counters_and_facts(checked: Path, tmp_path: Path) -> None:
    code, said, lines = play(OPEN_MPI, checked, tmp_path, "abd", "--evidence", "full", "--facts-dir", str(tmp_path))
    clean(said)
    assert (code, keys(lines)) == (0, EVERYTHING)
    assert all(("evidence" in line and line["evidence"]) or line["reason"] for line in lines)
    for node in "abd":
        assert json.loads((tmp_path / f"facts-{node}.json").read_text())["kernel"]["release"]
    assert not (tmp_path / "facts-c.json").exists()
