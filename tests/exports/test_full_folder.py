"""What verbs say in a full and in a read-only folder: what writes ends with 1 and leaves nothing, what reads goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.history.histories import History

pytestmark = [pytest.mark.fast, pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system in a namespace")]

WRITING = (
    "baseline set good latest", "export --format csv --to a.csv", "report --to a.html", "health write h", "notify true",
    "plot curve latest -o a.svg", "annotate run latest text",
)  # fmt: skip
_PROGRAM = """
import contextlib, io, shlex, sys
from hpcq.cli.main import run
for verb in sys.argv[1:]:
    said, told = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(told):
        code = run(shlex.split(verb))
    words = [line for line in said.getvalue().splitlines() if line.startswith(("error: ", "hint: "))]
    bad = " ".join(told.getvalue().split()) if verb == "doctor" else ""
    print(code, verb, *words, bad, sep="|")
"""


@pytest.mark.promise("`hpcq doctor` reports a read-only folder and goes on; verbs that write say so and exit with 1.")
@pytest.mark.heavy
@pytest.mark.parametrize("state", ["full", "read-only"])
def test_what_writes_says_so_and_what_reads_goes_on(state: str, nights: History, tmp_path: Path) -> None:
    folder = tmp_path / "desk"
    folder.mkdir()
    spoil = "dd if=/dev/zero of=fill bs=1k 2>/dev/null || true" if state == "full" else f"mount -o remount,ro {folder}"
    script = f"""set -e
mount -t tmpfs -o size=8m,mode=0700 tmpfs {folder}
cp {nights.database} {folder}/results.db
cd {folder}
{spoil}
program=$1 python=$2
shift 2
"$python" -c "$program" "$@"
ls -A
"""
    argv = ["unshare", "--mount", "sh", "-c", script, "sh", _PROGRAM, sys.executable, *WRITING, "doctor", "runs --limit 1"]
    settings = os.environ | {"HPCQ_LABS": "no", "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=200, check=False, env=settings)
    assert done.returncode == 0, done.stderr
    answers = [line.split("|") for line in done.stdout.splitlines() if "|" in line]
    for code, verb, error, hint, _ in answers[: len(WRITING)]:
        assert (code, "cannot be written" in error or "disk is full" in error) == ("1", True), (verb, error)
        assert "load it again" not in hint
        assert ("make room" in hint) <= (state == "full"), (verb, hint)
    doctor, listing = answers[len(WRITING) :]
    assert (doctor[0], doctor[2:-1]) == ("1", []), doctor
    assert "cannot be locked or written" in doctor[-1] or state == "full", doctor
    assert listing[0] == "0"
    left = [line for line in done.stdout.splitlines() if "|" not in line]
    assert left == (["fill", "results.db"] if state == "full" else ["results.db"])
