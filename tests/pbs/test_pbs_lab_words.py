"""What the lab says when the PBS that was built does not start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import REPOSITORY

pytestmark = pytest.mark.fast

ASK = "import sys; from pathlib import Path; from services.pbs_files import last_words; print(last_words(Path(sys.argv[1])))"
PLACE = "11/23/2026 01:50:43;0001;Server@beta-head;Svr;Server@beta-head;"


def words(logs: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(logs)], cwd=REPOSITORY / "lab", check=True, capture_output=True, text=True, timeout=30
    )
    return done.stdout.strip()


def test_a_server_that_does_not_start_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "20261122").write_text(f"{PLACE}of yesterday\n")
    said = [
        "Server pid = 646 ready",
        "get_py_progname, Python executable not found!",
        "Failed to start; no interpreter",
        "Stopping",
    ]
    (tmp_path / "20261123").write_text("".join(f"{PLACE}{line}\n" for line in said))
    assert words(tmp_path) == "; ".join(said[1:])


def test_without_a_log_it_says_so(tmp_path: Path) -> None:
    assert words(tmp_path) == "it has no log"
