"""`hpcq accept --plan` says what an acceptance would test, and submits nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcq.cli.main import run
from hpcq.definition.files.cluster import read_cluster
from hpcq.runner.accept import accepting
from hpcq.runner.site.place import reach
from hpcq.store import ledger
from hpcq.store.database import transaction, writing
from hpcq.verdict.words import Thing, Verdict, VerdictRecord
from tests.simulated_slurm.site import SimulatedSlurm, simulated_slurm

pytestmark = pytest.mark.fast


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[SimulatedSlurm]:
    with simulated_slurm(tmp_path / "slurm", node_count=4, leaf_size=2) as running:
        cluster = read_cluster(running.cluster() / "sim.yaml")
        reach(cluster).sh("scontrol update nodename=n0004 state=down reason='no light'")
        yield running


@pytest.fixture
def words(slurm: SimulatedSlurm, tmp_path: Path) -> list[str]:
    (tmp_path / "after.yaml").write_text("name: after\nclusters: [sim]\npairs: all\ntests: [{kernel: tcp_stream}]\n")
    places = ("--db", str(tmp_path / "results.db"), "--runs", str(tmp_path / "runs"), "--clusters", str(slurm.cluster()))
    return ["accept", str(tmp_path / "after.yaml"), *places]


@pytest.mark.heavy
@pytest.mark.promise("hpcq accept --plan submits nothing.")
def test_a_plan_names_nodes_reasons_and_pairs_and_submits_nothing(
    slurm: SimulatedSlurm, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--plan", "--json"]) == 0
    [plan] = json.loads(capsys.readouterr().out)["clusters"]
    assert plan["reasons"] == dict.fromkeys(("n0001", "n0002", "n0003", "n0004"), "never accepted")
    assert list(plan["blocked"]) == ["n0004"]
    assert {tuple(sorted(pair)) for pair in plan["pairs"]} == {("n0001", "n0002"), ("n0001", "n0003"), ("n0002", "n0003")}
    assert slurm.control()["calls"].get("sbatch", 0) == 0
    assert not list((tmp_path / "runs").glob("after*"))
    assert run([*words, "--plan"]) == 0
    said = capsys.readouterr().out
    assert "sim: 4 nodes need a verdict, 1 of them cannot be tested now" in said
    assert "n0004: never accepted; not now: down" in said
    assert "nothing was submitted" in said


@pytest.mark.heavy
@pytest.mark.promise("The acceptance measures the pairs that its plan named.")
def test_the_acceptance_then_measures_these_pairs(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--plan", "--json"]) == 0
    [plan] = json.loads(capsys.readouterr().out)["clusters"]
    measured: list[Any] = []
    monkeypatch.setattr(accepting._Acceptor, "_measure", lambda _, *words: measured.append(list(words[0])))
    assert run([*words, "--json"]) == 4
    assert [list(pair) for pair in measured[0]] == plan["pairs"]


def test_a_plan_applies_nothing(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--plan", "--apply"]) == 2
    assert "must be one of them" in capsys.readouterr().err


@pytest.mark.heavy
@pytest.mark.promise("`accept --since RESERVATION` takes its nodes; once it has ended, those without a verdict since.")
def test_since_a_reservation_takes_its_nodes_also_when_it_has_ended(
    slurm: SimulatedSlurm, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [*words, "--plan", "--json", "--since", "swap"]
    slurm.control(set={"reservations": {"swap": ["n0002", "n0003"]}})
    assert run(asked) == 0
    [plan] = json.loads(capsys.readouterr().out)["clusters"]
    assert plan["reasons"] == dict.fromkeys(("n0002", "n0003"), "in reservation swap")
    reach(read_cluster(slurm.cluster() / "sim.yaml")).sh("scontrol delete reservationname=swap")
    assert run([*words, "--plan", "--json"]) == 0, "the ledger hears that it has ended"
    capsys.readouterr()
    assert run(asked) == 0
    [plan] = json.loads(capsys.readouterr().out)["clusters"]
    assert plan["reasons"] == dict.fromkeys(("n0002", "n0003"), "was in reservation swap")
    decided = VerdictRecord(Thing.NODE, "n0002", Verdict.PASS, "as expected", ("n0002",))
    with writing(tmp_path / "results.db") as database, transaction(database):
        ledger.decide(database, "sim", [decided], run_id=None, baseline=None)
    assert run(asked) == 0
    [plan] = json.loads(capsys.readouterr().out)["clusters"]
    assert list(plan["reasons"]) == ["n0003"], "n0002 was judged since"


@pytest.mark.heavy
@pytest.mark.promise("`accept --since NAME` refuses a name that is no reservation, time or run.")
def test_since_a_name_that_nobody_knows_is_refused(
    slurm: SimulatedSlurm, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["--plan"]):
        assert run([*words, *more, "--since", "swapp"]) == 2
        assert "error: --since: 'swapp': must be a reservation, a time" in capsys.readouterr().err
    slurm.control(set={"reservations": {"swap": ["n0002", "n0003"]}})
    assert run([*words, "--since", "swapp"]) == 2
    assert "there are swap" in capsys.readouterr().err
    assert slurm.control()["calls"].get("sbatch", 0) == 0
    assert not list((tmp_path / "runs").glob("after*"))
