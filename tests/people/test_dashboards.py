"""Dashboards: each statement runs on a real database, Datasette itself answers its questions, Grafana's JSON is whole."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hpcq.cli.main import run as hpcq
from hpcq.exports import datasette, described, grafana, grafana_sql
from hpcq.store.read.stretches import PARAMETERS, QUESTIONS, Question
from tests import REPOSITORY
from tests.history.histories import History
from tests.people.nights import NIGHTS

SCHEMA = (REPOSITORY / "results.db.schema").read_text().splitlines()
#: Datasette gives up after a second of its own; a busy machine needs longer.
PATIENT = {"sql_time_limit_ms": 120_000}


@pytest.fixture(scope="module")
def database(nights: History, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the history of fourteen nights, with recorded changes and a note."""
    made = tmp_path_factory.mktemp("dashboards") / "results.db"
    shutil.copyfile(nights.database, made)
    assert hpcq(["regressions", "--record", "--db", str(made)]) == 3
    assert hpcq(["event", "add", "note", "cables", "--node", "n1", "--db", str(made)]) == 0
    return made


def asked(database: Path, sql: str, values: dict[str, str] | None = None) -> list[sqlite3.Row]:
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        return connection.execute(sql, values or {}).fetchall()
    finally:
        connection.close()


def in_grafana(sql: str, cluster: str = "all") -> str:
    """What Grafana makes of a statement: its variables are replaced by texts in quotes."""
    words = {"cluster:sqlstring": f"'{cluster}'", "kernel:sqlstring": "'all'", "__from:date:iso": "2020-01-01T00:00:00.000Z",
             "__to:date:iso": "2030-01-01T00:00:00.000Z"}  # fmt: skip
    return re.sub(r"\$\{([^}]+)\}", lambda found: words[found[1]], sql)


@pytest.mark.promise("Grafana and Datasette ask the same statements and get the same rows.")
@pytest.mark.parametrize("one", QUESTIONS, ids=lambda one: one.name)
def test_grafana_and_datasette_get_the_same_rows(one: Question, database: Path) -> None:
    anything = {"cluster": "all", "kernel": "all", "since_utc": "", "until_utc": ""}
    rows = asked(database, one.sql, {name: anything[name] for name in one.parameters})
    there = asked(database, in_grafana(grafana_sql(one.sql)))
    assert [tuple(row) for row in there] == [tuple(row) for row in rows]
    if one.over_time and rows:
        assert rows[0].keys() == ["time_utc", "line", "value"]
        assert all(re.match(r"\d{4}-\d\d-\d\dT", row["time_utc"]) for row in rows)
    nowhere = asked(database, one.sql, {name: anything[name] for name in one.parameters} | {"cluster": "beta"})
    assert nowhere == []


def test_the_questions_find_what_is_there(database: Path) -> None:
    rows = {one.name: asked(database, in_grafana(grafana_sql(one.sql))) for one in QUESTIONS}
    found = {name: len(some) for name, some in rows.items()}
    assert found["coverage"] == NIGHTS
    assert found["throughput"] == NIGHTS * 30
    assert found["open_changes"] > 5
    assert next(row["node"] for row in rows["not_measured_for"]) == "n9"  # planned, and never measured
    assert found["not_measured_for"] == 7
    assert found["events"] >= 2  # the note, and a reboot of n2


@pytest.mark.promise("The dashboards show first what is gone, among the changes that nobody decided about.")
def test_what_is_gone_is_the_first_open_change(database: Path, tmp_path: Path) -> None:
    copy = tmp_path / "results.db"
    shutil.copyfile(database, copy)
    [question] = [one for one in QUESTIONS if one.name == "open_changes"]
    last = asked(copy, in_grafana(grafana_sql(question.sql)))[-1]["change_id"]
    with sqlite3.connect(copy) as connection:
        connection.execute("UPDATE change SET direction = 'gone' WHERE change_id = ?", (last,))
    connection.close()
    first = asked(copy, in_grafana(grafana_sql(question.sql)))[0]
    assert (first["change_id"], first["direction"]) == (last, "gone")


@pytest.mark.promise("Datasette itself answers the questions of its metadata.")
def test_datasette_answers_a_question(database: Path) -> None:
    from datasette.app import Datasette  # here: it loads for a second, and the other workers need not

    sqlite3.enable_callback_tracebacks(False)  # it turns them on for the whole process, other tests too
    metadata = datasette("results", described(SCHEMA))

    async def answer(address: str) -> Any:
        served = Datasette([str(database)], metadata=metadata, settings=PATIENT)
        await served.invoke_startup()
        try:
            response = await served.client.get(address)
        finally:
            for one in served.databases.values():
                one.close()
            served.executor.shutdown()
        assert response.status_code == 200, response.text
        return response

    rows = asyncio.run(answer("/results/open_changes.json?_shape=array&cluster=alpha")).json()
    [question] = [one for one in QUESTIONS if one.name == "open_changes"]
    assert [tuple(row.values()) for row in rows] == [tuple(row) for row in asked(database, question.sql, {"cluster": "alpha"})]
    assert {row["client"] for row in rows} & {"n4"}
    page = asyncio.run(answer("/results/v_points")).text
    assert "one row per series, metric and job" in page


@pytest.mark.promise("Datasette knows what every table, view and column means.")
def test_every_table_and_view_of_the_database_is_described(database: Path) -> None:
    known = described(SCHEMA)
    rows = asked(database, "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite%'")
    assert {row["name"] for row in rows} <= set(known)
    columns = {row["name"] for row in asked(database, "SELECT name FROM pragma_table_info('result')")}
    assert set(known["result"][1]) == columns


def test_the_dashboard_of_grafana_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert hpcq(["export", "--format", "grafana"]) == 0
    board = json.loads(capsys.readouterr().out)
    assert board == grafana()
    [asked_on_import] = board["__inputs"]
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) == len(QUESTIONS)
    taken = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(taken) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
    variables = {one["name"] for one in board["templating"]["list"]}
    for part in (*panels, *board["templating"]["list"], *(target for panel in panels for target in panel["targets"])):
        assert part["datasource"]["uid"] == f"${{{asked_on_import['name']}}}"
    for panel in panels:
        [target] = panel["targets"]
        used = set(re.findall(r"\$\{(\w+)", target["queryText"]))
        assert used <= variables | {"__from", "__to"}
        assert not any(f":{name}" in target["queryText"].replace(":sqlstring", "") for name in PARAMETERS)
        assert (panel["type"] == "timeseries") == (target["queryType"] == "time series") == bool(target["timeColumns"])


def missing_from(wanted: Any, found: Any, place: str = "") -> list[str]:
    """Where `found` lacks or changes something of `wanted`."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [line for name in wanted for line in missing_from(wanted[name], found.get(name), f"{place}/{name}")]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [
            line
            for number, (one, other) in enumerate(zip(wanted, found, strict=True))
            for line in missing_from(one, other, f"{place}/{number}")
        ]
    return [] if wanted == found else [place]


@pytest.mark.promise("Grafana's own library, made from its schema, knows every part of the dashboard.")
def test_grafana_itself_knows_every_part_of_the_dashboard() -> None:
    """Grafana's own library, made from its schema, reads it and writes it back: a field that it does not know is lost."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder  # here: it loads for a while, and the other workers need not
    from grafana_foundation_sdk.models.dashboard import Dashboard

    board = grafana()
    back = json.loads(JSONEncoder().encode(Dashboard.from_json(board)))
    of_the_import = {"/__inputs", "/__requires"}  # read by the form for imports, and not part of a dashboard
    assert set(missing_from(board, back)) <= of_the_import
    wrong = board | {"panels": [board["panels"][0] | {"gridPosition": {"w": 12}}]}
    back = json.loads(JSONEncoder().encode(Dashboard.from_json(wrong)))
    assert "/panels/0/gridPosition" in missing_from(wrong, back), "it would be seen"


def test_the_variables_of_grafana_list_what_is_there(database: Path) -> None:
    lists = {one["name"]: one["query"]["queryText"] for one in grafana()["templating"]["list"]}
    assert [row[0] for row in asked(database, lists["cluster"])] == ["all", "alpha"]
    assert [row[0] for row in asked(database, lists["kernel"])] == ["all", "tcp_stream"]


def test_a_name_that_no_address_holds_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hpcq(["export", "--format", "datasette", "--db", str(tmp_path / "a?b.db")]) == 2
    assert "must be one without" in capsys.readouterr().err
