"""What the ledger keeps of collectives: who reads it later finds them, and no node passes or fails by them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcq.runner.accept.accepting import ClusterAcceptance, _Acceptor, not_covered
from hpcq.store.database import reading, transaction, writing
from hpcq.store.ledger import at_fault, decide, last_verdicts
from hpcq.verdict.acceptance import Acceptance, CollectiveVerdict, records_of
from hpcq.verdict.node_sets import PairsOfSet
from hpcq.verdict.words import Thing, Verdict, VerdictRecord
from tests.history.histories import json_of
from tests.mpi.test_accepted_collectives import NODES, PAIRS, TEST, accepted
from tests.mpi.test_slow_collectives import Collectives, say
from tests.store.run_folders import START

__all__ = ["say"]
pytestmark = pytest.mark.fast

NAME = f"{TEST} on n[1-4]"


def verdict(word: Verdict, reason: str = "why", nodes: tuple[str, ...] = NODES) -> CollectiveVerdict:
    return CollectiveVerdict(TEST, nodes, word, reason, 0.5, PairsOfSet.of(nodes, PAIRS, (), ()), "2026-11-21T00:00:00Z")


def write_down(made: Collectives, *verdicts: CollectiveVerdict, run: str | None = None) -> None:
    """Let an acceptance write its ledger."""
    acceptor: Any = SimpleNamespace(
        order=SimpleNamespace(database=made.database, against=None),
        name="alpha",
        run_ids=[],
        set_runs=[] if run is None else [run],
    )
    _Acceptor._write_down(acceptor, ClusterAcceptance("alpha", {}, Acceptance(()), collectives=verdicts))


@pytest.mark.promise("The ledger keeps what an acceptance said of a collective, with what its pairs said.")
@pytest.mark.heavy
def test_an_acceptance_keeps_what_it_said_of_collectives(tmp_path: Path) -> None:
    made = Collectives(tmp_path)
    for day in range(6):
        made.night(day)
    run = made.night(6, collective_fails=True)
    write_down(made, *accepted(made, run).collectives, run=run)
    with reading(made.database) as database:
        kept = last_verdicts(database, "alpha")
        assert [one.kind for one in kept] == [Thing.COLLECTIVE] * 2, "two tests of one set"
        assert len({one.name for one in kept}) == 2
        for one in kept:
            assert one.name.endswith(" on n[1-4]")
            assert (one.verdict, one.run, one.nodes) == (Verdict.INCONCLUSIVE, run, NODES)
            assert "brings nothing in 1 of 1 job" in one.reason
            assert "its pairs: none of 6 judged pairs" in one.reason
            assert str(one.measured_utc)[:10] == (START + dt.timedelta(days=6)).strftime("%Y-%m-%d")
        assert {one.name for one in at_fault(database, "alpha")} == {one.name for one in kept}


@pytest.mark.promise("A collective that failed and could not run again is still failed in the ledger.")
def test_the_last_verdict_on_a_collective_holds_and_one_without_a_set_is_none(tmp_path: Path, monkeypatch: Any) -> None:
    made = Collectives(tmp_path)
    made.night(0)

    def last(second: int, *verdicts: CollectiveVerdict) -> list[tuple[str, Verdict]]:
        monkeypatch.setattr("hpcq.store.ledger.utc_now", lambda: f"2026-11-21T00:00:{second:02d}Z")
        write_down(made, *verdicts)
        with reading(made.database) as database:
            return [(one.name, one.verdict) for one in last_verdicts(database, node="n3")]

    assert last(1, verdict(Verdict.FAILED)) == [(NAME, Verdict.FAILED)]
    assert last(2, verdict(Verdict.NOT_COVERED), *not_covered(["mpi_collective"])) == [(NAME, Verdict.FAILED)]
    assert last(3, verdict(Verdict.PASS)) == [(NAME, Verdict.PASS)]


@pytest.mark.promise("Of one collective over two networks or with two toolchains, the ledger keeps the worse verdict.")
def test_of_two_networks_the_ledger_keeps_the_worse_verdict() -> None:
    both = (verdict(Verdict.PASS), verdict(Verdict.FAILED, "slower"), verdict(Verdict.INCONCLUSIVE))
    [kept] = records_of(both)
    assert (kept.name, kept.verdict, kept.reason[:6]) == (NAME, Verdict.FAILED, "slower")


@pytest.mark.promise("A collective in the ledger decides no node's exit code.")
@pytest.mark.promise("A node's page and `node` tell the last acceptance of its collectives, and neither is decided by it.")
@pytest.mark.heavy
def test_a_collective_of_the_ledger_stands_on_the_pages_of_its_nodes_and_decides_none(tmp_path: Path, say: Any) -> None:
    made = Collectives(tmp_path).nights()
    assert say(made, "nodes", "--verdicts", "--exit-code")[0] == 4, "no verdict at all"
    of_node = ("report", "--since", "90d", "--node", "alpha/n3", "--json", "--to", str(tmp_path / "n3.html"))
    page_before = say(made, *of_node)
    node = VerdictRecord(Thing.NODE, "n3", Verdict.PASS, "as expected", ("n3",))
    with writing(made.database) as database, transaction(database):
        decide(database, "alpha", [node, *records_of([verdict(Verdict.FAILED)])], run_id=None, baseline=None)
    code, listed = say(made, "nodes", "n3", "--verdicts", "--exit-code")
    assert code == 0, "a collective names no node"
    assert "collective" in listed
    assert say(made, "nodes", "--verdicts", "--exit-code")[0] == 3
    assert f"last acceptance of collective {NAME}: FAIL: why" in " ".join(say(made, "nodes", "n3")[1].split())
    page = say(made, *of_node)
    assert (page[0], json_of(page[1])["verdict"]) == (page_before[0], json_of(page_before[1])["verdict"])
    assert f"last acceptance of collective {NAME}: FAIL" in " ".join(json_of(page[1])["reasons"])
    whole = say(made, "report", "--since", "90d", "--json", "--to", str(tmp_path / "all.html"))
    assert (whole[0], json_of(whole[1])["verdict"]) == (3, "failed")
    assert f"failed: collective alpha/{NAME}: last acceptance, " in " ".join(json_of(whole[1])["reasons"])


def test_a_repaired_collective_is_none_of_the_things_at_fault(tmp_path: Path) -> None:
    made = Collectives(tmp_path)
    made.night(0)
    write_down(made, verdict(Verdict.PASS))
    with reading(made.database) as database:
        assert at_fault(database, "alpha") == []
