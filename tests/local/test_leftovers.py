"""Files that only a killed process leaves: what docs/architecture.md says of each, played with the verbs that meet them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.local.local_desk import LocalDesk

#: Names that no result, plan or record has.
_PASSING = re.compile(r".*\.(tmp|part|spare|lock|writer)|.*\.writer\..*|.*-journal|.*\.error\.json|\..*")


def _table() -> list[str]:
    """The names in the first column of the table, without backticks."""
    section = (
        (REPOSITORY / "docs" / "architecture.md").read_text("utf-8").partition("\n## Leftover files\n")[2].partition("\n## ")[0]
    )
    cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def _dead() -> str:
    """Who held a lock and has ended, as a link of writer_lock names him."""
    take = "import os, sys; from hpcq import writer_lock as w; print(f'{w._place()}/{os.getpid()}/1/00')"
    return subprocess.run([sys.executable, "-c", take], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.long
@pytest.mark.promise(
    "What a killed process leaves stops no verb, and is removed by the one that the table of leftover files names."
)
def test_what_the_killed_leave_stops_nobody(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.campaign()
    desk.hpcq("run", "try.yaml")
    run, folder = desk.run_folder, desk.folder
    stays = {
        run / "run.json.4711.tmp": "NAME.PID.tmp",
        folder / "runs" / ".try-20260101T000000Z-0000.part": ".RUN.part",
        folder / "results.db.writer.0a1b2c3d": "FILE.writer.HEX",
    }
    goes = {
        run / "tiny" / ".load.spare": ".STAGE.spare",
        run / "tiny" / "load.error.json": "STAGE.error.json",
        folder / "results.db.writer": "results.db.writer",
        run / "tiny" / "journal.jsonl.writer": "journal.jsonl.writer",
        folder / ".out.csv.part": ".NAME.part",
    }
    for path in (*stays, *goes):
        if ".writer" in path.name:
            path.symlink_to(_dead())
        elif path.name.endswith(".error.json"):
            path.write_text('{"stage": "load", "message": "m", "hint": null, "exit_code": 1}')
        elif path.name.startswith(".try"):
            path.mkdir()
        else:
            path.write_text("{")
    (run / "tiny" / "loaded.json").unlink()
    (run / "tiny" / "driven.json").unlink()
    for words in (["status"], ["resume"], ["runs"], ["results"], ["doctor"], ["export", "--format", "csv", "--to", "out.csv"]):
        done = desk.hpcq(*words, expect=None)
        assert done.returncode in ({0, 1} if words in (["status"], ["doctor"]) else {0}), (words, done.stderr)
    assert [path.name for path in goes if os.path.lexists(path)] == []
    assert [path.name for path in stays if not os.path.lexists(path)] == []
    named = _table()
    assert set(stays.values()) | set(goes.values()) <= set(named)
    found = {
        path.relative_to(folder) for path in (*folder.glob("*"), *folder.glob("runs/**/*")) if _PASSING.fullmatch(path.name)
    }
    left = {str(path) for path in found if folder / path not in stays and ".snakemake" not in str(path)}
    assert {Path(one).name for one in left} <= {"journal.jsonl.lock", *named}, left
