"""A crash that a second try hides is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcq.cli.main import run as hpcq
from hpcq.reports import write_report
from hpcq.run_folder.lines import crash_words
from hpcq.store.database import reading
from hpcq.store.query import lost_tries
from tests.store.run_folders import RunBuilder, load

pytestmark = pytest.mark.fast

#: What Open MPI 5.0.7 left on the lab's newer generation.
OPEN_MPI_CRASH = """[n02:2211] *** Process received signal ***
[n02:2211] Signal: Segmentation fault (11)
[n02:2211] Signal code: Address not mapped (1)
[n02:2211] [ 2] /lib/x86_64-linux-gnu/libmpi.so.40(mca_pml_ob1_recv_frag_callback_match+0x118)[0x7f0d]
[n02:2211] *** End of error message ***
srun: error: n02: task 1: Segmentation fault
"""
#: What osu_mbw_mr with Open MPI 4.1.4 left on eight nodes of the lab; its core said: MPI_Init, TCP, address 0.
OPEN_MPI_4_CRASH = """[alpha-n07:00208] *** Process received signal ***
[alpha-n07:00208] Signal: Segmentation fault (11)
[alpha-n07:00208] Signal code: Address not mapped (1)
[alpha-n07:00208] Failing at address: (nil)
[alpha-n07:00208] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x3c050)[0x7f07e1110050]
[alpha-n07:00208] *** End of error message ***
srun: error: alpha-n07: task 6: Segmentation fault (core dumped)
"""
#: A program that follows an empty pointer of its own has frames to tell.
OWN_CRASH = OPEN_MPI_4_CRASH.replace(
    "[alpha-n07:00208] *** End", "[alpha-n07:00208] [ 1] ./a.out(main+0x9)[0x55]\n[alpha-n07:00208] *** End"
)


@pytest.mark.promise("A crash of Open MPI 4 in MPI_Init is named beside the results.")
@pytest.mark.parametrize(
    ("said", "return_code", "words"),
    [
        (OPEN_MPI_CRASH, 14, "died of SIGSEGV: Open MPI 5 crashed in MPI_Init"),
        (OPEN_MPI_4_CRASH, 139, "died of SIGSEGV: Open MPI 4 crashed, most likely in MPI_Init"),
        ("prterun noticed that process rank 1 exited on signal 7 (Bus error).", 1, "died of SIGBUS"),
        ("", 139, "died of SIGSEGV"),
        ("", 137, "died of SIGKILL"),
        ("error: n2: no answer for 5 s", 3, ""),
        ("", 143, ""),  # somebody ended it: no crash
        ("", None, ""),
        ("Signal: a word in a sentence", 1, ""),
    ],
)
def test_how_a_program_died(said: str, return_code: int | None, words: str) -> None:
    found = crash_words(said, return_code)
    assert found.startswith(words)
    assert bool(found) == bool(words)


def test_a_crash_with_frames_is_not_taken_for_a_known_one() -> None:
    assert crash_words(OWN_CRASH, 139) == "died of SIGSEGV"


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """The first try of one job died in MPI_Init, the second brought everything."""
    builder = RunBuilder(tmp_path / "runs", pairs=(("n1", "n2"),), tests=(("mpi_pingpong", {"message_bytes": 8}),))
    builder.submit("j00001", 1)
    builder.measure("j00001", 1, steps=[(1, 2), (1, 3)])
    path = builder.write_line("j00001", 1, (1, 1), {}, rc=14)
    path.write_text("")
    path.with_suffix(".err").write_text(OPEN_MPI_CRASH)
    builder.end("j00001", 1, outcome="failed", reason="exit code 14")
    builder.attempt("j00001", 2, steps=[(1, 1)])
    load(tmp_path / "results.db", builder)
    return tmp_path / "results.db"


def test_a_crash_before_a_good_try_is_counted(crashed: Path) -> None:
    with reading(crashed) as database:
        [found] = lost_tries(database, "nightly-20261121T020000Z-00ff")
    assert (found.count, found.died, found.pairs) == (1, True, ("n1 > n2",))
    assert "open-mpi/ompi issues 11438 and 12495" in found.reason


@pytest.mark.promise("A crash that a later attempt hides is reported beside the results.")
def test_results_and_the_page_tell_it(crashed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hpcq(["results", "--db", str(crashed)]) == 0
    said = capsys.readouterr().err
    assert "alpha: 1 try of mpi_pingpong brought nothing before a later one did: " in said
    assert "died of SIGSEGV" in said
    hpcq(["results", "--db", str(crashed), "--json"])
    assert [one["count"] for one in json.loads(capsys.readouterr().out)["lost_tries"]] == [1]
    write_report(crashed, "nightly-20261121T020000Z-00ff", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Tries that brought nothing before a later one did" in page


def test_a_run_of_first_tries_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = RunBuilder(tmp_path / "runs")
    builder.everything()
    load(tmp_path / "results.db", builder)
    hpcq(["results", "--db", str(tmp_path / "results.db")])
    assert "brought nothing" not in capsys.readouterr().err
