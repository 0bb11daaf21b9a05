"""hpcq-mpi as a tournament, under every MPI that is installed: several ranks on this machine, told apart by their place."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from hpcq.kernels import complete, own_kernel, own_kernels
from hpcq.run_folder.lines import Outcome, kept_sizes, measured_sizes, read_line
from hpcq.run_folder.spools import Spool
from tests.kernels.test_kernels_mpi import YIELD, Mpi, mpi, mpich_alone_takes_long, program, run
from tests.mpi.mpi_programs import preloaded

__all__ = ["mpi", "program"]

TEXT = """tournament 1
node a
node b
node c
node d
test 1 tcp_pingpong 10
option duration_s 1
test 2 mpi_pingpong 60
option message_bytes 512
option duration_s 0.05
option warmup_s 0
step 1 1 1
match j1 a b
step 1 2 1
match j1 a b
match j2 d c
step 1 2 2
match j1 a b
match j2 d c
step 2 2 1
match j3 c a
step 2 2 2
match j4 b d
"""


#: A node so busy that one rank comes to MPI_Finalize long after the others.
LATE_FINALIZE = """#include <mpi.h>
#include <unistd.h>
int MPI_Finalize(void)
{
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1)
        sleep(8);
    return PMPI_Finalize();
}
"""


def play(
    mpi: Mpi, program: Path, folder: Path, nodes: str, *words: str, preload: Path | None = None
) -> tuple[int, str, list[dict[str, Any]]]:
    path = folder / "tournament.txt"
    path.write_text(TEXT)
    files = ["--tournament", str(path), "--spool", str(folder / "spool.jsonl"), "--interface", "lo"]
    command = [*mpi.launcher, str(len(nodes)), str(program), "tournament", *files, "--nodes", ",".join(nodes), *words]
    # Ranks alone get the library: a launcher need not know MPI.
    command = (
        command
        if preload is None
        else [*command[: len(mpi.launcher) + 1], "env", f"LD_PRELOAD={preload}", *command[len(mpi.launcher) + 1 :]]
    )
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, check=False, env={**os.environ, **YIELD}, stdin=subprocess.DEVNULL
    )
    spool = folder / "spool.jsonl"
    lines = [json.loads(line) for line in spool.read_text().splitlines()] if spool.exists() else []
    return done.returncode, done.stdout + done.stderr, [line for line in lines if "begun_utc" not in line]


def keys(lines: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return sorted((line["job"], line["test"], line["repetition"]) for line in lines)


EVERYTHING = [("j1", 2, 1), ("j1", 2, 2), ("j2", 2, 1), ("j2", 2, 2), ("j3", 2, 1), ("j4", 2, 2)]


def test_all_rounds_in_one_step(mpi: Mpi, program: Path, tmp_path: Path) -> None:
    code, said, lines = play(mpi, program, tmp_path, "abcd")
    assert code == 0, said
    assert keys(lines) == EVERYTHING
    for line in lines:
        result = line["result"]
        assert (line["rc"], line["reason"], result["valid"]) == (0, None, True)
        assert result["options"]["message_bytes"] == 512
        assert result["metrics"]["operation_count"] > 0
        assert result["evidence"]["client"]["pid"] != result["evidence"]["server"]["pid"]
    pids = {(end, line["job"]): line["result"]["evidence"][end]["pid"] for line in lines for end in ("client", "server")}
    assert pids["client", "j1"] == pids["server", "j3"], "a is the same rank in both rounds"


def test_a_node_that_is_not_there_costs_its_own_pairs(mpi: Mpi, program: Path, tmp_path: Path) -> None:
    code, said, lines = play(mpi, program, tmp_path, "abd")
    assert code == 0, said
    assert keys(lines) == EVERYTHING
    lost = {line["job"] for line in lines if line["reason"] == "c: its rank was lost"}
    assert lost == {"j2", "j3"}
    assert all(line["rc"] == (3 if line["job"] in lost else 0) for line in lines)
    before = (tmp_path / "spool.jsonl").read_bytes()
    assert play(mpi, program, tmp_path, "abcd")[0] == 0
    assert (tmp_path / "spool.jsonl").read_bytes() == before


@mpich_alone_takes_long
def test_what_was_begun_twice_is_not_begun_again(mpi: Mpi, program: Path, tmp_path: Path) -> None:
    begun = '{"format":1,"job":"j4","test":2,"repetition":2,"begun_utc":"2026-01-01T00:00:00Z"}\n'
    (tmp_path / "spool.jsonl").write_text(begun * 2)
    code, said, lines = play(mpi, program, tmp_path, "abcd")
    assert code == 0, said
    [line] = [line for line in lines if line["job"] == "j4"]
    assert (line["result"], line["reason"]) == (None, "begun twice, and both times a rank was lost meanwhile")
    assert keys(lines) == EVERYTHING


@mpich_alone_takes_long
def test_it_ends_early_after_the_step_in_hand(mpi: Mpi, program: Path, tmp_path: Path) -> None:
    (tmp_path / "finish").touch()
    ends = ["--finish-file", str(tmp_path / "finish"), "--done-file", str(tmp_path / "done")]
    code, said, lines = play(mpi, program, tmp_path, "abcd", *ends)
    assert code != 0
    assert not (tmp_path / "done").exists()
    assert "ended early" in said
    assert keys(lines) == [("j1", 2, 1), ("j2", 2, 1)]


@pytest.mark.promise("The name of a file is never a format.")
@mpich_alone_takes_long
def test_the_name_of_a_file_is_no_format(mpi: Mpi, program: Path, tmp_path: Path) -> None:
    code, said, _ = play(mpi, program, tmp_path, "abcd", "--done-file", str(tmp_path / "absent" / "%s%s%n"))
    assert code != 0
    assert "absent/%s%s%n: No such file or directory (ENOENT)" in said


@mpich_alone_takes_long
def test_ranks_that_nobody_can_tell_apart_are_refused(mpi: Mpi, program: Path, tmp_path: Path) -> None:
    code, said, lines = play(mpi, program, tmp_path, "xyz")
    assert code != 0
    assert "neither their nodes' names nor --nodes say which is which" in said
    assert lines == []


def test_ranks_that_end_long_after_each_other_are_no_lost_ranks(mpi: Mpi, program: Path, tmp_path: Path) -> None:
    """A rank that left before the others had finished would end the step, and the script would start it again."""
    (tmp_path / "late.c").write_text(LATE_FINALIZE)
    late, done = tmp_path / "late.so", tmp_path / "done"
    subprocess.run([mpi.compiler, "-shared", "-fPIC", "-o", late, tmp_path / "late.c"], check=True, timeout=120)
    code, said, lines = play(mpi, program, tmp_path, "abcd", "--done-file", str(done), preload=late)
    assert code == 0, said
    assert done.is_file()
    assert keys(lines) == EVERYTHING


SYNCED = Path(__file__).parents[1] / "mpi" / "synced.c"
SWEEP = """tournament 1
node a
node b
test 1 mpi_pingpong 60
option message_bytes 16
option sweep_to_bytes 128
option duration_s {duration_s}
option warmup_s 0
step 1 1 1
match j1 a b
"""
SIZES = [16, 32, 64, 128]


def sweeping(mpi: Mpi, program: Path, folder: Path, duration_s: float, more: str = "", **env: str) -> subprocess.Popen[str]:
    """A tournament of one MPI sweep, in a process group of its own; what it synced is noted in folder/synced."""
    (folder / "tournament.txt").write_text(SWEEP.format(duration_s=duration_s) + more)
    words = {**preloaded(mpi, SYNCED, folder / "synced.so"), "SYNCED": str(folder / "synced"), **env}
    command = [*mpi.launcher, "2", "env", *(f"{name}={value}" for name, value in words.items()), str(program), "tournament"]
    files = ["--tournament", str(folder / "tournament.txt"), "--spool", str(folder / "spool.jsonl")]
    return subprocess.Popen(
        [*command, *files, "--interface", "lo", "--nodes", "a,b"],
        cwd=folder,
        env={**os.environ, **YIELD},
        text=True,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def kill(launched: subprocess.Popen[str], folder: Path) -> None:
    """All of it at once: the group of the launcher, and ranks that a launcher puts in groups of their own."""
    for path in Path("/proc").glob("[1-9]*/cmdline"):
        try:
            ours = str(folder).encode() in path.read_bytes()
            if ours and int(path.parent.name) != launched.pid:
                os.kill(int(path.parent.name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            continue
    if launched.poll() is None:
        os.killpg(launched.pid, signal.SIGKILL)
    launched.communicate(timeout=60)


@pytest.mark.promise("A sweep that is kept in a file has each measured size on the disk before the next one begins.")
@pytest.mark.promise(
    "An MPI sweep of a tournament writes each size when it is measured: whoever kills it takes none of them away."
)
def test_a_sweep_that_is_killed_has_each_measured_size_on_the_disk(mpi: Mpi, program: Path, tmp_path: Path) -> None:
    path = tmp_path / "j1-t1-r1.sizes"

    def measured() -> list[int]:
        return measured_sizes(kept_sizes(path.read_bytes()) or b"") if path.exists() else []

    launched = sweeping(mpi, program, tmp_path, duration_s=2)
    try:
        end = time.monotonic() + 100
        while len(measured()) < 2:
            assert time.monotonic() < end
            assert launched.poll() is None
            time.sleep(0.02)
    finally:
        kill(launched, tmp_path)
    sizes = measured()
    assert 2 <= len(sizes) < len(SIZES)
    assert sizes == SIZES[: len(sizes)]
    synced = {int(line) for line in (tmp_path / "synced").read_text().split()}
    content = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")][2:]
    assert set(ends[: len(sizes) - 1]) <= synced, "the last one may have been killed while it was synced"
    [raw] = Spool(tmp_path / "spool.jsonl").read_all("j1", (1, 1))
    for size in SIZES:
        options = complete(
            own_kernel("mpi_pingpong"), {"message_bytes": size, "sweep_to_bytes": 128, "duration_s": 2, "warmup_s": 0}
        )
        line = read_line(raw, path, own_kernels(), "mpi_pingpong", options)
        assert line.outcome is (Outcome.MEASURED if size in sizes else Outcome.FAILED), line
        if size not in sizes:
            assert (line.reason or "").startswith("the sweep was killed before this size was measured"), line
    sweep = {"message_bytes": 16, "sweep_to_bytes": 128, "operation_count_max": 20, "warmup_s": 0}
    rest = run(mpi, program, "--interface", "lo", "--sizes-done", ",".join(map(str, sizes)), **sweep)
    assert [one["options"]["message_bytes"] for one in rest.line["sizes"]] == SIZES[len(sizes) :]
    assert all(one["valid"] for one in rest.line["sizes"])


@pytest.mark.promise("Ranks of a tournament leave out the same sizes of a sweep.")
@mpich_alone_takes_long
def test_sizes_that_an_earlier_attempt_measured_are_left_out(mpi: Mpi, program: Path, tmp_path: Path) -> None:
    launched = sweeping(mpi, program, tmp_path, duration_s=0.05, more="measured 64,16\n")
    said = launched.communicate(timeout=200)[0]
    assert launched.returncode == 0, said
    [line] = [one for one in map(json.loads, (tmp_path / "spool.jsonl").read_text().splitlines()) if "begun_utc" not in one]
    assert (line["rc"], line["result"]["skipped"]) == (0, [64, 16])
    assert [one["options"]["message_bytes"] for one in line["result"]["sizes"] if one["valid"]] == [32, 128]


@pytest.mark.promise("If the disk refuses sizes of a sweep, the result has a warning.")
@pytest.mark.promise("A file of kept sizes that cannot be made is a warning.")
@pytest.mark.parametrize("folder_too", [False, True])
@mpich_alone_takes_long
def test_sizes_that_the_disk_refuses_are_said_and_cost_no_result(
    mpi: Mpi, program: Path, tmp_path: Path, folder_too: bool
) -> None:
    if folder_too:
        (tmp_path / "j1-t1-r1.sizes").mkdir()
    launched = sweeping(mpi, program, tmp_path, duration_s=0.05, REFUSED="1")
    said = launched.communicate(timeout=200)[0]
    assert launched.returncode == 0, said
    words = (
        "j1-t1-r1.sizes: Is a directory: a kill" if folder_too else "may be lost with this node: fdatasync: Input/output error"
    )
    assert said.count(words) == said.count("warning: ") == 1, said
    [line] = [one for one in map(json.loads, (tmp_path / "spool.jsonl").read_text().splitlines()) if "begun_utc" not in one]
    assert [one["options"]["message_bytes"] for one in line["result"]["sizes"]] == SIZES
    assert line["rc"] == 0
