"""Verdicts for the health checks of nodes: the file, the two programs that read it, and the exit code of the ledger."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from hpcq.cli.main import run
from hpcq.store.database import transaction, writing
from hpcq.store.ledger import decide
from hpcq.verdict.words import Thing, Verdict, VerdictRecord
from tests.history.histories import History
from tests.people.nights import PAIRS

pytestmark = pytest.mark.fast


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    """A database whose n1 passed, n2 failed, n3 is inconclusive; n4 and the others have no verdict."""
    made = History(tmp_path, pairs=PAIRS)
    made.night(-1)
    verdicts = {"n1": Verdict.PASS, "n2": Verdict.FAILED, "n3": Verdict.INCONCLUSIVE}
    records = [VerdictRecord(Thing.NODE, name, word, f"{word.value} and\nso on", (name,)) for name, word in verdicts.items()]
    with writing(made.database) as database, transaction(database):
        decide(database, "alpha", records, run_id=None, baseline=None)
    return made.database


@pytest.mark.heavy
@pytest.mark.promise("hpcq nodes --verdicts --exit-code ends with 0 only for a node whose last verdict is a pass.")
def test_the_exit_code_of_a_node(judged: Path) -> None:
    codes = {node: run(["nodes", node, "--verdicts", "--exit-code", "--db", str(judged)]) for node in ("n1", "n2", "n3", "n4")}
    assert codes == {"n1": 0, "n2": 3, "n3": 4, "n4": 4}
    assert run(["nodes", "n2", "--verdicts", "--db", str(judged)]) == 0


@pytest.mark.heavy
@pytest.mark.promise("The health file names every node of a cluster, those without a verdict too.")
def test_the_file_has_every_node(judged: Path, tmp_path: Path) -> None:
    assert run(["health", "write", str(tmp_path / "health"), "--db", str(judged)]) == 0
    head, *lines = (tmp_path / "health").read_text().splitlines()
    assert head.startswith("# hpcq health 1 20")
    assert [line.split()[:2] for line in lines[:6]] == [
        ["n1", "pass"], ["n2", "failed"], ["n3", "inconclusive"], ["n4", "none"], ["n5", "none"], ["n6", "none"]
    ]  # fmt: skip
    assert lines[1].endswith("Z failed and so on")
    assert not list(tmp_path.glob(".health*"))


def script(kind: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The program that hpcq prints for the nodes."""
    capsys.readouterr()
    assert run(["health", "script", kind]) == 0
    path = folder / f"check-{kind}"
    path.write_text(capsys.readouterr().out)
    path.chmod(0o755)
    return path


@pytest.mark.heavy
@pytest.mark.promise("Slurm's HealthCheckProgram drains a node that failed, once, and asks Slurm nothing about the others.")
def test_slurms_health_check_drains_what_failed_and_nothing_else(
    judged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["health", "write", str(tmp_path / "health"), "--db", str(judged)]) == 0
    program, log = script("slurm", tmp_path, capsys), tmp_path / "scontrol.log"
    stand_in = tmp_path / "scontrol"
    stand_in.write_text(f'#!/bin/sh\necho "$@" >>{log}\n[ "$1" = show ] && cat {tmp_path}/state\nexit 0\n')
    stand_in.chmod(0o755)
    (tmp_path / "state").write_text("NodeName=n2 State=IDLE\n")

    def check(node: str, file: str = "health") -> tuple[int, str]:
        kept = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HPCQ_HEALTH": str(tmp_path / file), "SLURMD_NODENAME": node}
        done = subprocess.run([program], env=kept, capture_output=True, text=True, timeout=20, check=False)
        return done.returncode, done.stderr

    assert [check(node)[0] for node in ("n1", "n3", "n4")] == [0, 0, 0]
    assert not log.exists(), "nothing is asked of Slurm for a node that did not fail"
    assert check("n2")[0] == 1
    assert "update nodename=n2 state=drain reason=hpcq: failed and so on" in log.read_text()
    (tmp_path / "state").write_text("NodeName=n2 State=IDLE+DRAIN Reason=hpcq: failed and so on\n")
    log.unlink()
    assert check("n2")[0] == 1
    assert "update" not in log.read_text(), "drained already"
    assert "has no verdict on n77" in check("n77")[1]
    code, said = check("n1", "gone")
    assert (code, "cannot be read: this node was not checked" in said) == (1, True)


@pytest.mark.heavy
@pytest.mark.promise("The check for NHC fails on a node that failed, with the reason.")
def test_the_check_for_nhc_dies_with_the_reason(judged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["health", "write", str(tmp_path / "health"), "--db", str(judged)]) == 0
    checks = script("nhc", tmp_path, capsys)

    def check(node: str, file: str = "health") -> tuple[int, str]:
        text = f'die() {{ shift; echo "DIED $*"; }}; HOSTNAME={node}.site; . {checks}; check_hpcq {tmp_path}/{file}'
        done = subprocess.run(["/bin/bash", "-c", text], capture_output=True, text=True, timeout=20, check=False)
        return done.returncode, done.stdout

    assert check("n1") == (0, "")
    assert check("n2") == (1, "DIED check_hpcq:  hpcq measured n2 and it failed: failed and so on\n")
    assert check("n1", "gone")[0] == 1


@pytest.mark.heavy
@pytest.mark.real_time
def test_a_check_takes_a_millisecond_among_a_thousand_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"n{number} pass 2026-11-21T04:00:00Z as expected" for number in range(1000)]
    (tmp_path / "health").write_text("\n".join(["# hpcq health 1 2026-11-21T04:00:00Z", *lines, ""]))
    checks = script("nhc", tmp_path, capsys)
    text = f"HOSTNAME=n999; . {checks}; for i in {{1..20}}; do check_hpcq {tmp_path}/health; done"
    best_s = 9.0
    for _ in range(5):
        begun = time.monotonic()
        subprocess.run(["/bin/bash", "-c", text], check=True, timeout=20)
        best_s = min(best_s, (time.monotonic() - begun) / 20)
    assert best_s < 0.05
