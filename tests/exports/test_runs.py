"""`hpcq runs`: when, where, how much was measured, and what judged it; and the units of `hpcq blame`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hpcq.cli.main import run
from hpcq.store.database import transaction, writing
from tests.history.histories import History
from tests.people.nights import Asked

pytestmark = pytest.mark.fast


def gates(minimum: str) -> str:
    return f"- {{kernel: tcp_stream, metric: throughput_bps, minimum: {minimum}}}\n"


@pytest.mark.heavy
@pytest.mark.promise(
    "`hpcq runs` says of each run what its page says, and calls no run passed that is not whole or that nothing judges."
)
def test_the_verdict_of_each_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = History(tmp_path)
    history.night(0)
    history.night(1, gates=gates("1mbit"))
    history.night(2, gates=gates("900gbit"))
    history.night(3, gates="- {metric: nosuch, minimum: 1}\n")
    history.night(4, gates=gates("1mbit"))
    with writing(history.database) as database, transaction(database):
        database.execute(
            "UPDATE result SET outcome = 'not_measured', reason = 'lost' WHERE result_id = (SELECT max(result_id) FROM result)"
        )
    assert run(["runs", "--json", "--db", str(history.database)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [one["verdict"] for one in rows] == ["inconclusive", "inconclusive", "failed", "pass", "not_judged"]
    assert [one["coverage_ratio"] == 1 for one in rows] == [False, True, True, True, True]
    days = [one["created_utc"][:10] for one in rows]
    for since, count in (("2000", 5), ("2099", 0), (days[2], 3), (rows[1]["run"], 1), (f"..{days[3]}", 2)):
        assert run(["runs", "--since", since, "--db", str(history.database)]) == 0
        said = capsys.readouterr()
        assert len(said.out.splitlines()) == count + 1, since
    assert run(["runs", "--db", str(history.database)]) == 0
    assert "\tnot judged\t" in capsys.readouterr().out


@pytest.mark.heavy
@pytest.mark.promise(
    "A test below what its campaign expects is failed in regressions, compare, blame, nodes, runs and the page."
)
@pytest.mark.parametrize("wanted", [gates("900gbit"), gates("1mbit") + "expect: {throughput_bps: 900gbit}\n"])
def test_what_a_campaign_expects_fails_in_every_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str], wanted: str) -> None:
    history = History(tmp_path)
    runs = [history.night(day, gates=wanted) for day in range(6)]
    database = ["--db", str(history.database)]
    verbs = (
        ["regressions", "--since", "2026-01-01"],
        ["compare", *runs[-2:]],
        ["blame"],
        ["report", "--to", str(tmp_path / "page.html"), "--runs", str(history.runs)],
        ["report", "--since", "2026-01-01", "--to", str(tmp_path / "month.html")],
    )
    for words in verbs:
        assert run([*words, *database]) == 3, words
        said = capsys.readouterr()
        assert "throughput_bps" in said.out + said.err, words
    for words in (["regressions", "--since", "2026-01-01"], ["compare", *runs[-2:]], ["blame"]):
        assert run([*words, "--json", *database]) == 3, words
        assert {one["run"] for one in json.loads(capsys.readouterr().out)["failed_gates"]} == {runs[-1]}
    assert run(["nodes", "--since", "2026-01-01", "--json", *database]) == 0
    assert {one["judged"] for one in json.loads(capsys.readouterr().out) if one["level_ratio"]} == {"below its gate"}
    assert run(["runs", "--json", *database]) == 0
    assert {one["verdict"] for one in json.loads(capsys.readouterr().out)} == {"failed"}


@pytest.mark.heavy
@pytest.mark.promise("`hpcq blame` says what a healthy pair gets in the unit of the test.")
def test_a_healthy_pair_has_a_unit(ask: Asked) -> None:
    assert re.search(r"a healthy pair gets 200\.1 Mbit/s, give or take", ask.words("blame", expect=3))
