"""What people add, and how the database is looked after: nothing is lost, and who said why stays known."""

from __future__ import annotations

import datetime as dt
import shutil
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hpcq.cli.main import run
from hpcq.errors import StoreError
from hpcq.store.database import reading
from hpcq.store.keep.check_and_prune import POINT_VALUES, interval, prune
from tests.history.histories import History, json_of
from tests.store.run_folders import ask as rows_of

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module")
def forty_nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that is made once; each test works on a copy."""
    made = History(tmp_path_factory.mktemp("forty"))
    for day in range(-40, 0):
        made.night(day, levels={"n2": 0.9 if day >= -15 else 1.0}, repetitions=2, counter_count=60)
    return made.database


@pytest.fixture
def history(tmp_path: Path, forty_nights: Path) -> History:
    made = History(tmp_path)
    shutil.copyfile(forty_nights, made.database)
    return made


@pytest.fixture
def say(history: History, capsys: pytest.CaptureFixture[str]) -> Any:
    def said(*words: str, expect: int = 0) -> Any:
        code = run([*words, "--db", str(history.database)])
        printed = capsys.readouterr()
        assert code == expect, printed.err
        return json_of(printed.out) if "--json" in words and printed.out else printed

    return said


@pytest.mark.heavy
def test_changes_have_states_with_who_and_why(history: History, say: Any) -> None:
    say("regressions", "--since", "2026-10-20", "--record", expect=3)
    say("regressions", "--since", "2026-10-20", "--record", expect=3)
    [found] = say("changes", "list", "--json", expect=3)
    assert (found["state"], found["server"], found["direction"]) == ("open", "n2", "worse")
    number = str(found["change_id"])
    say("changes", "set", "acknowledged", number, "--why", "ticket 4711", "--who", "ada")
    say("changes", "set", "expected", number, "--why", "new MTU", "--who", "grace")
    [found] = say("changes", "list", "--json")
    assert (found["state"], found["who"], found["why"]) == ("expected", "grace", "new MTU")
    shown = say("changes", "show", number, "--json")
    assert (shown["server"], shown["metric"]) == ("n2", "throughput_bps")
    assert [one["state"] for one in shown["decisions"]] == ["open", "acknowledged", "expected"]
    assert say("regressions", "--since", "2026-10-20", "--json")["changes"][0]["state"] == "expected"
    assert say("changes", "list", "--state", "open", "--json") == []
    say("changes", "set", "fixed", "99", "--why", "x", expect=2)


@pytest.mark.heavy
def test_retracting_and_taking_it_back(history: History, say: Any) -> None:
    before = rows_of(history.database, "SELECT count(*) FROM result")
    say("retract", "--run", "latest", "--node", "n2", "--why", "cable was out", "--who", "ada")
    gone = rows_of(history.database, "SELECT result_id FROM v_retractions ORDER BY result_id")
    assert len(gone) == 2
    assert say("history", "tcp_stream/n1/n2", "--json")["points"][-1]["started_utc"].startswith("2026-11-19")
    say("retract", "--undo", *map(str, gone), "--why", "wrong cable", "--who", "grace")
    assert say("history", "tcp_stream/n1/n2", "--json")["points"][-1]["started_utc"].startswith("2026-11-20")
    [first, _] = rows_of(history.database, "SELECT retracted_by, reason, withdrawn_by, why FROM v_retractions")
    assert first == ("ada", "cable was out", "grace", "wrong cable")
    assert rows_of(history.database, "SELECT count(*) FROM result") == before
    for words in (
        ["retract", "--why", "x"],
        ["retract", "999999", "--why", "x"],
        ["retract", "1", "--node", "n2", "--why", "x"],
    ):
        say(*words, expect=2)


@pytest.mark.heavy
def test_baselines_keep_their_past(history: History, say: Any) -> None:
    say("baseline", "set", "good", "nightly-20261101", "nightly-20261102", "--why", "after acceptance")
    say("baseline", "set", "good", "nightly-20261103")
    found = say("baseline", "list", "--json")
    assert [(one["holds"], len(one["runs"])) for one in found] == [(1, 1), (0, 2)]
    first = say("compare", "baseline:good", "latest", "--json", expect=3)["pairs"][0]
    assert first["n_a"] == 1  # a job is one value, however often it repeated the test
    say("compare", "baseline:none", "latest", expect=2)


@pytest.mark.heavy
def test_events_and_remarks_explain_changes(history: History, say: Any) -> None:
    when = ["--at", "2026-11-05T03:00", "--until", "2026-11-05T23:00"]
    for _ in range(2):
        say("event", "add", "maintenance", "new switch", *when, "--node", "n2", "--node", "alpha/n4")
    say("event", "add", "drain", "elsewhere", "--at", "2026-11-05T12:00", "--node", "n3")
    assert len(say("event", "list", "--since", "2026-11", "--json")) == 3
    [change] = say("history", "tcp_stream/n1/n2", "--json")["changes"]
    assert [event["note"] for event in change["events"]] == ["new switch"]
    for what, name in (("run", "latest"), ("series", "1"), ("result", "1"), ("node", "n2")):
        say("annotate", what, name, f"about this {what}")
    assert {row["note"] for row in say("event", "list", "--json") if row["kind"] == "note"} == {
        "about this run", "about this series", "about this result", "about this node",
    }  # fmt: skip
    say("annotate", "result", "cable", "x", expect=2)
    say("event", "add", "drain", "x", "--node", "n77", expect=2)


def test_groups(history: History, say: Any, tmp_path: Path) -> None:
    file = tmp_path / "leaves.csv"
    file.write_text("node,group\nn1,leaf1\nn2,leaf1\nn3,leaf2\nn99,leaf2\n")
    assert "n99" in say("db", "groups", str(file), "--cluster", "alpha").err
    assert [row["server"] for row in say("history", "--group", "leaf2", "--json")] == ["n4"]
    file.write_text("n3,leaf1\n")
    say("db", "groups", str(file), "--cluster", "alpha")
    assert len(say("history", "--group", "leaf1", "--json")) == 2


def test_check_finds_what_is_wrong(history: History, say: Any) -> None:
    assert all(one["ok"] for one in say("db", "check", "--json"))
    with closing(sqlite3.connect(history.database)) as connection, connection:
        connection.execute("DELETE FROM metric WHERE result_id = 1")
        connection.execute("DELETE FROM result WHERE result_id = 2")
    bad = {one["item"] for one in say("db", "check", "--json", expect=1) if not one["ok"]}
    assert bad == {"accounting", "values", "references"}


@pytest.mark.heavy
@pytest.mark.usefixtures("every_job_rolls_up")
def test_pruning_changes_no_history(history: History, say: Any) -> None:
    def seen() -> Any:
        points = say("history", "tcp_stream/n1/n2", "--json")
        told = say("regressions", "--since", "2026-10-20", "--json", expect=3)["changes"]
        return points["points"], [(one["at_utc"], one["before"], one["after"]) for one in told]

    evidence = "SELECT sum(length(block)) FROM evidence"
    before, evidence_bytes = seen(), rows_of(history.database, evidence)[0]
    dry = say("db", "prune", "--keep", "2026-11-10", "--dry-run", "--json")
    assert rows_of(history.database, "SELECT count(*) FROM rollup") == [0]
    done = say("db", "prune", "--keep", "2026-11-10", "--json")
    assert dry["rollup_count"] == done["rollup_count"] > 0
    assert rows_of(history.database, evidence)[0] < 0.8 * evidence_bytes
    assert seen() == before
    assert say("db", "prune", "--keep", "2026-11-10", "--json")["value_count"] == 0, "a second time there is nothing to do"
    assert all(one["ok"] for one in say("db", "check", "--json"))
    rows = rows_of(history.database, "SELECT planned_count, measured_count FROM v_runs")
    assert all(planned == measured for planned, measured in rows)
    history.night(0.5)
    say("retract", "1", "--why", "x", expect=2)


@pytest.mark.promise("Pruning never makes a database larger: few values of a job stay, many become one point.")
@pytest.mark.parametrize("repetitions", [1, POINT_VALUES - 1, POINT_VALUES])
def test_pruning_makes_a_database_smaller(tmp_path: Path, capsys: pytest.CaptureFixture[str], repetitions: int) -> None:
    made = History(tmp_path)
    for day in range(-12, 0):
        made.night(day, repetitions=repetitions, counter_count=200)

    def points() -> list[Any]:
        with reading(made.database) as database:
            query = "SELECT value, value_count FROM v_points ORDER BY series_id, metric, started_utc"
            return [tuple(row) for row in database.execute(query)]

    before, value_count = points(), rows_of(made.database, "SELECT count(*) FROM metric")[0]
    assert run(["db", "prune", "--keep", "2099", "--json", "--db", str(made.database)]) == 0
    done = json_of(capsys.readouterr().out)
    assert done["bytes_after"] < done["bytes_before"]
    assert points() == before
    assert done["value_count"] == (value_count if repetitions == POINT_VALUES else 0)
    assert done["rollup_count"] == value_count / repetitions * (repetitions == POINT_VALUES)
    assert run(["db", "prune", "--keep", "2099", "--json", "--db", str(made.database)]) == 0
    again = json_of(capsys.readouterr().out)
    assert (again["result_count"], again["rollup_count"]) == (0, 0), "a second time there is nothing to do"


def test_intervals_of_medians() -> None:
    values = [float(one) for one in range(1, 10)]
    assert interval(values) == (2.0, 8.0), "the sign test's table for n = 9"
    assert interval(values[:5]) == (1.0, 5.0)
    assert interval([3.0]) == (3.0, 3.0)
    assert interval([float(one) for one in range(1, 21)]) == (6.0, 15.0)


@pytest.mark.heavy
def test_merging_sites(history: History, say: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b").mkdir()
    other = History(tmp_path / "b", cluster="beta")
    for day in range(-5, 0):
        other.night(day, campaign="siteb")
    run(["retract", "--run", "latest", "--why", "bad", "--db", str(other.database)])
    run(["baseline", "set", "good", "latest", "--db", str(other.database)])
    capsys.readouterr()
    digest = other.database.read_bytes()
    counts = {
        name: rows_of(history.database, f"SELECT count(*) FROM {name}")[0] for name in ("kernel", "option", "parameter_set")
    }
    for new, known in ((5, 0), (0, 5)):
        merged = say("db", "merge", str(other.database), "--json")[str(other.database)]
        assert (merged["new_count"], merged["known_count"]) == (new, known)
    assert other.database.read_bytes() == digest
    assert all(one["ok"] for one in say("db", "check", "--json"))
    assert {row["cluster"] for row in say("history", "--json")} == {"alpha", "beta"}
    assert {name: rows_of(history.database, f"SELECT count(*) FROM {name}")[0] for name in counts} == counts
    assert rows_of(history.database, "SELECT count(*) FROM v_results WHERE run LIKE 'siteb%'") == [8]
    assert rows_of(history.database, "SELECT reason FROM v_retractions") == ["bad", "bad"]
    assert rows_of(history.database, "SELECT run LIKE 'siteb%' FROM v_baselines") == [1]
    old = rows_of(other.database, "SELECT run, started_utc, value FROM v_results ORDER BY 1, 2, 3")
    new_rows = rows_of(
        history.database, "SELECT run, started_utc, value FROM v_results WHERE cluster = 'beta' ORDER BY 1, 2, 3"
    )
    assert new_rows == old
    facts = rows_of(history.database, "SELECT count(*) FROM v_facts WHERE cluster = 'beta'")
    assert facts == rows_of(other.database, "SELECT count(*) FROM v_facts")


@pytest.mark.heavy
def test_merging_clusters_of_the_same_name_and_into_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        History(tmp_path / name).night(-1, campaign=f"site{name}")
    target = str(tmp_path / "all.db")
    assert run(["db", "merge", str(tmp_path / "a" / "results.db"), "--db", target]) == 0
    assert run(["db", "merge", str(tmp_path / "b" / "results.db"), "--rename", "alpha=b-alpha", "--db", target]) == 0
    with reading(Path(target)) as connection:
        found = [row[0] for row in connection.execute("SELECT DISTINCT client_cluster FROM v_series ORDER BY 1")]
        assert connection.execute("SELECT main_metric_name_id IS NOT NULL FROM kernel").fetchone()[0] == 1
    assert found == ["alpha", "b-alpha"]
    assert run(["db", "merge", str(tmp_path / "b" / "results.db"), "--db", target]) == 0, "the same run under two names"
    assert rows_of(Path(target), "SELECT count(*) FROM run_cluster") == [2]
    assert run(["db", "merge", target, "--db", target]) == 2
    assert run(["db", "merge", str(tmp_path / "b" / "results.db"), "--rename", "gamma=x", "--db", target]) == 2
    capsys.readouterr()


@pytest.mark.usefixtures("every_job_rolls_up")
@pytest.mark.heavy
@pytest.mark.promise("A clock that is ahead makes no run old enough to be pruned.")
def test_an_age_counts_from_the_newest_run(history: History, say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ahead(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Ahead:
            return cls(2099, 1, 1, tzinfo=tz)

    with monkeypatch.context() as patched:
        patched.setattr(dt, "datetime", Ahead)
        assert say("db", "prune", "--keep", "365d", "--dry-run", "--json")["run_count"] == 0
        assert say("db", "prune", "--keep", "1d", "--dry-run", "--json")["run_count"] > 0


@pytest.mark.usefixtures("every_job_rolls_up")
@pytest.mark.heavy
@pytest.mark.promise("A damaged block of evidence stays where it is, is named, and keeps no other from being pruned.")
@pytest.mark.parametrize("text", [b"no JSON", b"[1, 2]", b'{"ends": [5]}', b"[" * 200_000, None])
def test_pruning_goes_past_a_damaged_block(history: History, say: Any, text: bytes | None) -> None:
    block, json_bytes = (b"\0", 500) if text is None else (zlib.compress(text), len(text))
    first = "WHERE result_id = (SELECT min(result_id) FROM evidence)"
    with closing(sqlite3.connect(history.database)) as database, database:
        database.execute(f"UPDATE evidence SET block = ?, json_bytes = ? {first}", (block, json_bytes))
    named = {one["item"]: one["ok"] for one in say("db", "check", "--json", expect=1 if text != b'{"ends": [5]}' else 0)}
    assert named["evidence"] is (text == b'{"ends": [5]}')
    assert say("db", "prune", "--keep", "2026-11-10", "--json")["rollup_count"] > 0
    assert rows_of(history.database, f"SELECT block FROM evidence {first}") == [block]


@pytest.mark.heavy
@pytest.mark.promise("A damaged text of a database is called damaged, and no defect of hpcq.")
def test_a_text_that_is_no_json_any_more(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(history.database)) as database, database:
        database.execute("UPDATE parameter_set SET json = 'no JSON'")
        database.execute("UPDATE series SET parameters = 'no JSON'")
    for words in (["results"], ["history"], ["regressions"], ["export", "--format", "jsonl"], ["show", "1"]):
        assert run([*words, "--db", str(history.database)]) == 1
        assert f"{history.database}: is damaged: 'no JSON' stands where JSON must stand" in capsys.readouterr().err


@pytest.mark.heavy
def test_a_default_that_is_no_json_any_more(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(history.database)) as database, database:
        database.execute("UPDATE option SET first_default = 'no JSON' WHERE first_default IS NOT NULL")
        database.execute("UPDATE parameter_set SET json = 'no JSON'")
    for words in (["results", "--where", "message_bytes=1"], ["db", "rejudge"]):
        assert run([*words, "--db", str(history.database)]) == 1
        assert f"{history.database}: is damaged: 'no JSON' stands where JSON must stand" in capsys.readouterr().err


def test_pruning_killed_half_way_changes_nothing(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    before = rows_of(history.database, "SELECT count(*) FROM metric")
    monkeypatch.setattr("hpcq.store.keep.check_and_prune._ROLLED", "SELECT nowhere")
    with pytest.raises(StoreError, match="nowhere"):
        prune(history.database, "2026-11-10")
    assert rows_of(history.database, "SELECT count(*) FROM metric") == before
    assert rows_of(history.database, "SELECT count(*) FROM rollup") == [0]


@pytest.mark.heavy
def test_runs_are_listed_newest_first(history: History, say: Any) -> None:
    listed = say("runs", "--json", "--limit", "3")
    times = [one["created_utc"] for one in listed]
    assert len(listed) == 3
    assert times == sorted(times, reverse=True)
    assert all(one["planned_count"] == one["measured_count"] + one["missing_count"] for one in listed)
    assert {one["campaign"] for one in say("runs", "--campaign", "nightly", "--json")} == {"nightly"}


def test_a_query_of_ones_own_reads_and_cannot_write(history: History, say: Any) -> None:
    [counted] = say("sql", "SELECT count(*) AS n FROM result", "--json")
    assert [counted["n"]] == rows_of(history.database, "SELECT count(*) FROM result")
    for query in (
        "DELETE FROM result",
        "DROP VIEW v_runs",
        "SELECT * FROM nothing",
        "PRAGMA query_only = 0; DELETE FROM result",
        "",
    ):
        assert "error: SQL: " in say("sql", query, expect=2).err
    assert rows_of(history.database, "SELECT count(*) FROM result") == [counted["n"]]


def test_names_that_cannot_be_are_refused(say: Any) -> None:
    assert "allowed" in say("baseline", "set", "bad name!", "latest", expect=2).err
    assert "groups of facts are" in say("facts", "show", "n1", "--only", "nix", expect=2).err


@pytest.mark.heavy
@pytest.mark.promise("A retraction that is undone after pruning loses no data at the next pruning.")
@pytest.mark.usefixtures("every_job_rolls_up")
def test_a_retraction_taken_back_after_pruning_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = History(tmp_path)
    for day in range(-6, 0):
        made.night(day, repetitions=3)

    def points() -> list[tuple[int, float]]:
        run(["history", "tcp_stream/n1/n2", "--json", "--db", str(made.database)])
        return [(one["n"], one["highest"]) for one in json_of(capsys.readouterr().out)["points"]]

    whole = points()
    top = rows_of(made.database, "SELECT result_id FROM v_results WHERE client = 'n1' ORDER BY started_utc LIMIT 3")
    values = rows_of(made.database, "SELECT result_id FROM v_results WHERE client = 'n1' AND value = ?", whole[0][1])
    assert values[0] in top
    retracted = str(values[0])
    assert run(["retract", retracted, "--why", "x", "--db", str(made.database)]) == 0
    assert run(["db", "prune", "--keep", "2026-11-19", "--db", str(made.database)]) == 0
    assert points()[0] != whole[0]
    assert run(["retract", "--undo", retracted, "--why", "y", "--db", str(made.database)]) == 0
    assert points() == whole
    assert run(["db", "prune", "--keep", "2026-11-19", "--db", str(made.database)]) == 0
    assert points() == whole, "the next pruning must not forget what was rolled up before"
    assert run(["db", "check", "--db", str(made.database)]) == 0


@pytest.mark.heavy
@pytest.mark.promise("Merging two sites keeps both baselines of one name.")
def test_two_sites_keep_their_baselines_of_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, there = History(tmp_path / "a"), History(tmp_path / "b", cluster="beta")
    runs = [made.night(day) for made, day in ((here, -2), (there, -1))]
    for made, name in zip((here, there), runs, strict=True):
        assert run(["baseline", "set", "good", name, "--db", str(made.database)]) == 0
    assert run(["db", "merge", str(there.database), "--db", str(here.database)]) == 0
    capsys.readouterr()
    run(["baseline", "list", "--json", "--db", str(here.database)])
    found = json_of(capsys.readouterr().out)
    assert sorted((one["clusters"][0], one["holds"], one["runs"][0]) for one in found) == [
        ("alpha", 1, runs[0]),
        ("beta", 1, runs[1]),
    ]


_WRITTEN = ("v_events", "v_retractions", "v_baselines", "v_changes", "v_groups", "v_acceptances", "change_state")


@pytest.mark.heavy
@pytest.mark.promise("What people wrote and decided is saved from a database of any state, and a new one takes it back once.")
def test_notes_survive_a_new_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = History(tmp_path)
    nights = [made.night(day, levels={"n2": 0.7 if day >= -8 else 1.0}) for day in range(-20, 0)]
    old, new, file = made.database, tmp_path / "new.db", tmp_path / "notes.json"

    def say(*words: str, expect: int = 0) -> str:
        assert run(list(words)) == expect, capsys.readouterr().err
        return capsys.readouterr().err

    of_old = ("--db", str(old))
    say("regressions", "--record", *of_old, expect=3)
    [number, *_] = rows_of(old, "SELECT change_id FROM change ORDER BY change_id")
    say("changes", "set", "expected", str(number), "--why", "a new switch", *of_old)
    [result, *_] = rows_of(old, "SELECT result_id FROM v_results WHERE outcome = 'measured' ORDER BY started_utc")
    say("retract", str(result), "--why", "a cable was out", *of_old)
    say("baseline", "set", "good", nights[0], "--why", "all was well", *of_old)
    say("annotate", "node", "alpha/n2", "new cable", *of_old)
    say("annotate", "run", nights[3], "by hand", *of_old)
    say("annotate", "result", str(result), "odd", *of_old)
    (tmp_path / "groups.csv").write_text("n1,leaf1\nn2,leaf2\n")
    say("db", "groups", str(tmp_path / "groups.csv"), "--cluster", "alpha", *of_old)

    with closing(sqlite3.connect(old)) as database:  # a state that this hpcq does not read
        database.execute("ALTER TABLE cluster ADD COLUMN colour TEXT")
        database.commit()
    assert "hpcq db export-notes" in say("runs", *of_old, expect=1)
    said = say("db", "export-notes", str(file), *of_old)
    assert "3 of event" in said
    assert file.stat().st_mode & 0o777 == 0o600

    of_new = ("--db", str(new))
    assert "no result run=" in say("db", "import-notes", str(file), *of_new, expect=4), "nothing is loaded yet"
    for name in nights:
        say("db", "load", str(made.runs / name), *of_new)
    say("db", "import-notes", str(file), *of_new)
    said = say("db", "import-notes", str(file), *of_new)
    assert said.startswith("0 new, ")
    assert ", 0 left out" in said
    keys = {"event_id", "change_id", "baseline_id", "series_id", "result_id", "acceptance_id"}
    for view in _WRITTEN:
        with closing(sqlite3.connect(old)) as one, closing(sqlite3.connect(new)) as other:
            both = []
            for database in (one, other):
                database.row_factory = sqlite3.Row
                rows = database.execute(f"SELECT * FROM {view}").fetchall()
                both.append(sorted(str({name: row[name] for name in row.keys() if name not in keys}) for row in rows))  # noqa: SIM118
        assert both[0] == both[1], view
        assert both[0] or view == "v_acceptances", view
