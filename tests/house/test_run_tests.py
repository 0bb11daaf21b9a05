"""tools/run_tests: which failures are repeated, and what is left of those that are not."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import REPOSITORY

SETTINGS = """[tool.pytest.ini_options]
testpaths = ["tests"]
markers = ["fast", "long", "quiet", "real_time"]
"""
TESTS = """import pathlib, pytest

def once(name):
    path = pathlib.Path("seen-" + name)
    first = not path.exists()
    path.touch()
    return first

def test_fine(tmp_path):
    pass
"""
SHAKY = """
@pytest.mark.real_time
@pytest.mark.parametrize("number", range({count}))
def test_shaky(tmp_path, number):
    (tmp_path / "trace").write_text("what was there")
    assert not once(f"shaky{{number}}")
"""
WRONG = """
def test_wrong_once(tmp_path):
    (tmp_path / "trace").write_text("what was there")
    assert not once("wrong")
"""


def run(folder: Path, tests: str, tool: str = "run_tests") -> tuple[int, list[str]]:
    """Exit code and the lines of a run over a project of its own."""
    (folder / "tools").mkdir()
    (folder / "tests").mkdir()
    shutil.copy(REPOSITORY / "tools" / tool, folder / "tools")
    (folder / "pyproject.toml").write_text(SETTINGS)
    (folder / "tests" / "test_one.py").write_text(TESTS + tests)
    (folder / "kept").mkdir()
    done = subprocess.run(
        ["bash", f"tools/{tool}", sys.executable],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder / "kept")},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


def traces(folder: Path) -> list[Path]:
    """What failed tests left in the folder that the run names."""
    return sorted((folder / "kept").glob("hpcq-tests.*/shared/**/trace"))


@pytest.mark.long
def test_a_test_of_real_time_is_repeated_once_and_named(tmp_path: Path) -> None:
    code, lines = run(tmp_path, SHAKY.format(count=1))
    assert (code, lines[-1]) == (
        0,
        "2 passed, 0 failed, of the passed only when repeated alone: tests/test_one.py::test_shaky[0] ",
    )
    assert re.fullmatch(rf"the log and the folders of the failed tests: {tmp_path}/kept/hpcq-tests\.\w+", lines[-2])
    assert traces(tmp_path), "what the first try left is kept"


@pytest.mark.parametrize(
    "tests",
    [
        pytest.param(WRONG, id="other", marks=pytest.mark.long),
        pytest.param(WRONG + SHAKY.format(count=1), id="both"),
        pytest.param(SHAKY.format(count=5), id="many", marks=pytest.mark.long),
    ],
)
def test_any_other_failure_is_one_at_once(tmp_path: Path, tests: str) -> None:
    code, lines = run(tmp_path, tests)
    assert code == 1
    counted = re.fullmatch(r"1 passed, ([125]) failed", lines[-1])
    assert counted
    named = [line for line in lines[-20:] if re.match(r"failed: test_(shaky\[\d\]|wrong_once) at tests/test_one.py:\d+$", line)]
    assert len(named) == int(counted[1]), lines
    assert any(line.startswith("    ") and "assert not True" in line for line in lines[lines.index(named[0]) :]), lines
    assert traces(tmp_path)


@pytest.mark.long
def test_nothing_is_left_of_a_run_without_failures(tmp_path: Path) -> None:
    code, lines = run(tmp_path, "")
    assert (code, lines[-1]) == (0, "1 passed, 0 failed")
    assert list((tmp_path / "kept").iterdir()) == []


FAST = """
@pytest.mark.fast
def test_fast(tmp_path):
    (tmp_path / "trace").write_text("what was there")
    assert {fine}
"""


@pytest.mark.parametrize("fine", [pytest.param(True, marks=pytest.mark.long), False])
def test_the_fast_ones_keep_the_folders_of_failed_tests_alone(tmp_path: Path, fine: bool) -> None:
    code, lines = run(tmp_path, FAST.format(fine=fine), "fast_tests")
    kept = sorted((tmp_path / "kept").glob("hpcq-fast-tests.*/**/trace"))
    assert (code, "1 passed" in lines[-1], len(kept)) == ((0, True, 0) if fine else (1, False, 1)), lines
    if fine:
        assert list((tmp_path / "kept").iterdir()) == []
    else:
        assert re.fullmatch(rf"the folders of the failed tests: {tmp_path}/kept/hpcq-fast-tests\.\w+", lines[-1])


INTERRUPTED = """import signal, subprocess, sys

def test_interrupted():
    program = "import signal, sys, time; print(0, flush=True); time.sleep(30)"
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as started:
            started.stdout.readline()
            started.send_signal(number)
            assert started.wait() == -number  # 0 if it slept to its end
"""


@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_what_a_test_interrupts_ends_also_where_a_shell_started_the_tests_in_the_background(
    tmp_path: Path, workers: list[str]
) -> None:
    (tmp_path / "conftest.py").write_text((REPOSITORY / "tests/conftest.py").read_text().partition("pytest_plugins =")[0])
    (tmp_path / "test_one.py").write_text(INTERRUPTED)
    ignored = "trap '' INT QUIT HUP; exec \"$@\""
    argv = ["bash", "-c", ignored, "bash", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, "."]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
