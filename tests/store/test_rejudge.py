"""Stored evidence read again by newer rules; and views over points and facts."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hpcq.cli.main import run
from hpcq.evidence.case import EvidenceVerdict, Finding, JudgedResult, Rule
from hpcq.evidence.judge import judge
from hpcq.evidence.rules import VERSION
from hpcq.store.keep.check_and_prune import Rejudged, rejudge
from tests.history.histories import History, json_of

pytestmark = pytest.mark.fast

PRUNED = {"n2": {"netstat.TcpExt.PruneCalled": 40}}


def rows(history: History, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(history.database) as database:
        return database.execute(query).fetchall()


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path)
    for day in range(-6, 0):
        made.night(day, counters=PRUNED, facts={"n2": {"nic": {"eth0.mtu_bytes": 1300 if day == -1 else 1500}}})
    return made


@pytest.mark.heavy
@pytest.mark.promise("db rejudge finds in stored evidence what loading found in the line.")
def test_stored_evidence_says_what_the_line_said(history: History) -> None:
    query = 'SELECT result_id, rule, "end", message, figures FROM v_findings ORDER BY 1, 2, 3'
    loaded = rows(history, query)
    assert {row[1] for row in loaded} >= {"receive_buffer_pruned"}
    with sqlite3.connect(history.database) as database:
        database.execute("DELETE FROM result_finding")
        database.execute("UPDATE result SET rules_version = 0")
    done = rejudge(history.database, judge, VERSION)
    assert (done.judged_count, done.pruned_count) == (12, 0)
    assert rows(history, query) == loaded
    assert rejudge(history.database, judge, VERSION) == Rejudged(0, 0, 0)


@pytest.mark.heavy
def test_pruned_results_keep_their_findings(history: History) -> None:
    before = rows(history, "SELECT count(*) FROM result_finding")
    assert run(["db", "prune", "--keep", "2026-11-18", "--db", str(history.database)]) == 0
    with sqlite3.connect(history.database) as database:
        database.execute("UPDATE result SET rules_version = 0")
    done = rejudge(history.database, judge, VERSION)
    assert done.pruned_count > 0
    assert done.pruned_count + done.judged_count == 12
    assert rows(history, "SELECT count(*) FROM result_finding") == before


@pytest.mark.promise("A new version of a rule is not reported as a change of the machine.")
@pytest.mark.heavy
def test_a_newer_rule_is_no_change_of_the_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = History(tmp_path)
    for day in range(-30, 0):
        made.night(day, levels={"n2": 0.8 if day >= -10 else 1.0}, counters=PRUNED)
    newer = Rule("brand_new", "a rule of tomorrow", "try it", "nowhere")

    def newer_judge(result: JudgedResult) -> EvidenceVerdict:
        return EvidenceVerdict((Finding(newer, None, "seen"),), rules_version=VERSION + 1)

    late = [row[0] for row in rows(made, "SELECT name FROM run WHERE name >= 'nightly-20261111' ORDER BY name")]
    for name in late:
        rejudge(made.database, newer_judge, VERSION + 1, name)
    run(["regressions", "--since", "2026-11-01", "--json", "--db", str(made.database)])
    told = json_of(capsys.readouterr().out)["changes"]
    assert told
    assert not any(symptom["rule"] == "brand_new" for one in told for symptom in one["symptoms"])
    rejudge(made.database, newer_judge, VERSION + 1)
    assert {row[0] for row in rows(made, "SELECT DISTINCT rules_version FROM result WHERE outcome = 'measured'")} == {
        VERSION + 1
    }


@pytest.mark.heavy
def test_the_verb_says_what_it_did(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "rejudge", "--db", str(history.database)]) == 0
    assert "0 results judged" in capsys.readouterr().err
    assert run(["db", "rejudge", "--run", "none", "--db", str(history.database)]) == 2


@pytest.mark.heavy
@pytest.mark.usefixtures("every_job_rolls_up")
def test_points_are_the_same_before_and_after_pruning(tmp_path: Path) -> None:
    made = History(tmp_path)
    for day in range(-5, 0):
        made.night(day, repetitions=4 if day % 2 else 3)
    query = "SELECT series_id, metric, job, started_utc, value, value_count, lowest, highest FROM v_points ORDER BY 1, 2, 4"
    before = rows(made, query)
    assert len(before) == len(rows(made, "SELECT DISTINCT series_id, metric, run FROM v_history"))
    assert run(["db", "prune", "--keep", "2026-11-19", "--db", str(made.database)]) == 0
    assert rows(made, query) == before


@pytest.mark.heavy
def test_latest_facts_are_of_the_last_reading(history: History) -> None:
    query = "SELECT value FROM v_latest_facts WHERE node = 'n2' AND fact = 'nic.eth0.mtu_bytes'"
    assert rows(history, query) == [(1300,)]
