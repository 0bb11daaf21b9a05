"""Three hundred calls that a new user gets wrong: each says what was found and what is allowed, with a hint.

bad_calls.txt holds them, a line each: exit code, call, and how the error begins.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from hpcq.cli.main import run
from tests.history.histories import History

pytestmark = pytest.mark.fast

CALLS = [
    (int(line[0]), line[2:].partition(" => ")[0], line.partition(" => ")[2])
    for line in Path(__file__).with_name("bad_calls.txt").read_text(encoding="utf-8").splitlines()
]
CAMPAIGN = "name: t\nclusters: [local]\npairs: {pattern: all}\ntests:\n  - kernel: tcp_stream\n"
AWAY = """name: away
scheduler: slurm
reach: {ssh: no-such-host.invalid}
work_directory: /scratch
interface: ib0
partition: p
"""
FILES = {
    "file.txt": "hello\nworld\n",
    "empty.db": "",
    "empty.yaml": "",
    "broken.yaml": "name: [x\n",
    "wrongkey.yaml": "campain: x\n",
    "list.yaml": "- 1\n- 2\n",
    "wrongkernel.yaml": CAMPAIGN.replace("tcp_stream", "tcp_strem"),
    "wrongcluster.yaml": CAMPAIGN.replace("local", "nosuch"),
    "badnumber.yaml": f"{CAMPAIGN}    message_bytes: lots\n",
    "twosame.yaml": f"{CAMPAIGN}name: u\n",
    "badcluster.yaml": "name: x\nscheduler: lsf\n",
    "leaves.csv": "n1,l1\nn2,l2\n",
    "bad.csv": "n1,l1,x\n",
    "ragged.csv": "a,b\n1,2\n3\n",
    "words.csv": "a\n1\nx\n",
    "series.csv": "a\n" + "\n".join(map(str, range(20))) + "\n",
    "same.csv": "round,node_a,node_b,value\n1,n1,n1,4\n",
}


@pytest.fixture(scope="module")
def desk(nights: History, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good database, and with everything that a call may name by mistake."""
    folder = tmp_path_factory.mktemp("desk")
    for name in ("results.db", "good.db"):
        shutil.copy(nights.database, folder / name)
    (folder / "folder").mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "binary.yaml").write_bytes(bytes(range(256)))
    other = sqlite3.connect(folder / "other.db")
    with other:
        other.execute("CREATE TABLE x (a)")
    other.close()
    whole, page = nights.database.read_bytes(), 4096
    (folder / "torn.db").write_bytes(whole[: 3 * page] + b"\xff" * (20 * page) + whole[30 * page : 40 * page])
    return folder


def test_each_bad_call_says_what_is_allowed(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(desk)
    monkeypatch.setenv("HOME", str(desk))
    monkeypatch.setenv("XDG_STATE_HOME", str(desk / "state"))
    before = sorted(path.name for path in desk.iterdir())
    wrong = []
    for code, call, begins in CALLS:
        got = run(shlex.split(call)[1:])
        said = capsys.readouterr()
        error = f"\n{said.err}".partition("\nerror: ")[2]  # a verb may have said before what it read
        hinted = "\nhint: " in said.err or re.match(r"[\w./=-]+:", error)  # or the place in a file
        good = error.startswith(begins) and hinted and not said.out
        if got != code or not good or "Traceback" in said.err or "defect of hpcq" in said.err:
            wrong.append((call, got, said.out + said.err))
    assert len(CALLS) > 200
    assert wrong == []
    assert sorted(path.name for path in desk.iterdir()) == before


@pytest.mark.parametrize("words", ["runs", "runs --json", "export --format csv"])
def test_a_full_standard_output_is_named(words: str, desk: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        argv = [sys.executable, "-m", "hpcq", *words.split()]
        done = subprocess.run(argv, cwd=desk, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        1,
        "error: standard output: cannot be written: No space left on device",
    )


def test_files_are_checked_without_a_cluster(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(desk)
    (desk / "away.yaml").write_text(AWAY)
    (desk / "good.yaml").write_text(CAMPAIGN.replace("local", "away"))
    try:
        assert run(["check", "good.yaml", "away.yaml", "--clusters", "."]) == 0
        said = capsys.readouterr().out
        assert "ok  campaign  good.yaml: 1 test, each 3 times, on away, no gates" in said
        assert "ok  cluster   away.yaml: scheduler slurm, interface ib0" in said
        assert run(["check", "good.yaml", "list.yaml", "badcluster.yaml", "--clusters", "."]) == 2
        errors = capsys.readouterr().err
        assert "list.yaml:1: found a list" in errors
        assert "scheduler: 'lsf': allowed are" in errors
    finally:
        (desk / "away.yaml").unlink()
        (desk / "good.yaml").unlink()


def test_a_plan_goes_on_past_a_cluster_that_cannot_be_reached(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(desk)
    (desk / "away.yaml").write_text(AWAY)
    (desk / "two.yaml").write_text(CAMPAIGN.replace("[local]", "[away, local]"))
    try:
        assert run(["plan", "two.yaml", "--clusters", "."]) == 1
    finally:
        (desk / "away.yaml").unlink()
        (desk / "two.yaml").unlink()
    said = capsys.readouterr()
    assert said.out.startswith("local: 1 pair of 2 nodes")
    assert "no-such-host.invalid" in said.err
