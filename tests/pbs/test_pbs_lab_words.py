"""What the lab says when the PBS that was built does not start, and what it takes of that PBS's installation."""

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


@pytest.mark.promise("Where the PBS of the lab does not start, `hpcq lab up` quotes the last lines of its server's log.")
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


@pytest.mark.promise("The lab takes over no `/etc/pbs.conf` of the machine that it is on.")
def test_the_machines_own_pbs_is_none_of_the_labs(tmp_path: Path) -> None:
    """OpenPBS's installation writes /etc/pbs.conf; with it, a machine of Slurm took itself for one of PBS."""
    host = tmp_path / "host"
    host.mkdir()
    for name in ("pbs.conf", "services"):
        (host / name).write_text("of this machine\n")
    copy = (
        "import sys; from pathlib import Path; from services.site_files import _copy_etc; _copy_etc(*map(Path, sys.argv[1:]))"
    )
    subprocess.run(
        [sys.executable, "-c", copy, str(host), str(tmp_path / "etc")], cwd=REPOSITORY / "lab", check=True, timeout=30
    )
    assert [path.name for path in (tmp_path / "etc").iterdir()] == ["services"]
