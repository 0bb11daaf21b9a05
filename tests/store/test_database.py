"""The database file: what it accepts, what it survives, and that people can read it with an old sqlite3."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import tracemalloc
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from hpcq import assets, units
from hpcq.errors import StoreError
from hpcq.kernels import own_kernels
from hpcq.store import database as store
from hpcq.store.blocks import unpacked
from hpcq.store.database import SCHEMA_VERSION, migrate, reading, statements, writing
from hpcq.store.load.cluster import load_run
from hpcq.store.read.nodes import _OF_NODE
from tests import REPOSITORY
from tests.store.run_folders import RunBuilder

pytestmark = pytest.mark.fast

SCHEMA = assets.database_schema().read_text("utf-8")
#: What SQLite 3.26 does not know, by the version that brought it.
LATER_THAN_3_26 = {
    r"\bSTRICT\b": "3.37",
    r"->": "3.38",
    r"\bRETURNING\b": "3.35",
    r"\bGENERATED\b|\bAS\s*\([^)]*\)\s*(STORED|VIRTUAL)": "3.31",
    r"\bIIF\s*\(": "3.32",
    r"\bNULLS\s+(FIRST|LAST)\b": "3.30",
    r"\bFILTER\s*\(": "3.30",
    r"\bMATERIALIZED\b": "3.35",
    r"\b(RIGHT|FULL)\s+(OUTER\s+)?JOIN\b": "3.39",
    r"\bDISTINCT\s+FROM\b": "3.39",
    r"\b(unixepoch|format|string_agg|concat|concat_ws|octet_length|ceil|floor|ln|log10|pow|sqrt)\s*\(": "3.35",
    r"\bjson_(?!each\b|extract\b)\w+\s*\(": "3.38",
    r"\bDROP\s+COLUMN\b": "3.35",
}


@pytest.fixture
def builder(tmp_path: Path) -> RunBuilder:
    builder = RunBuilder(tmp_path / "runs")
    builder.everything()
    return builder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


@pytest.fixture
def loaded(builder: RunBuilder, path: Path) -> sqlite3.Connection:
    load_run(path, builder.path)
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    connection.create_function("sqlar_uncompress", 2, unpacked)
    return connection


def sound(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def without_comments(sql: str) -> str:
    return re.sub(r"--[^\n]*", "", sql)


# -- the schema --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", LATER_THAN_3_26)
def test_schema_and_statements_use_nothing_that_rhel_8_lacks(pattern: str) -> None:
    assert re.search(pattern, without_comments(SCHEMA), re.IGNORECASE) is None
    for source in Path(store.__file__).parent.glob("*.py"):
        for text in re.findall(
            r'"((?:[^"\\\n]|\\.)*(?:SELECT|INSERT|UPDATE|DELETE|WHERE|ORDER BY)[^"\n]*)"', source.read_text()
        ):
            assert re.search(pattern, text, re.IGNORECASE) is None, f"{source.name}: {text}"


def test_every_table_and_column_is_explained(loaded: sqlite3.Connection) -> None:
    silent = []
    for name, kind, sql in loaded.execute("SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view')"):
        if not re.search(rf"CREATE {kind.upper()} {name}[^\n]* -- \w", sql):
            silent.append(name)
        if kind == "view":
            continue
        for column in loaded.execute(f"PRAGMA table_info({name})"):
            explained = re.search(rf"^    {column['name']} (?:(?!\n    \w).)*? -- \S", sql, re.MULTILINE | re.DOTALL)
            if not explained:
                silent.append(f"{name}.{column['name']}")
    assert silent == []


def test_every_column_is_checked(loaded: sqlite3.Connection) -> None:
    """Each column has a CHECK, refers to a row that has, or is a key."""
    loose = []
    for name, sql in loaded.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"):
        lines = {line.split()[0]: line for line in sql.splitlines() if line.startswith("    ")}
        for column in loaded.execute(f"PRAGMA table_info({name})"):
            line = lines[column["name"]]
            if "CHECK" not in line and "REFERENCES" not in line and "INTEGER PRIMARY KEY" not in line:
                loose.append(f"{name}.{column['name']}")
    assert loose == []


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO metric VALUES (1, 1, 'fast')",
        "INSERT INTO metric VALUES (1, 9999, 1.0)",
        "INSERT INTO metric VALUES (1, 5, 9e999)",
        "INSERT INTO metric VALUES (1, 5, NULL)",
        "UPDATE result SET outcome = 'good'",
        "UPDATE result SET started_utc = 'yesterday'",
        "UPDATE result SET outcome = 'failed', reason = NULL",
        "UPDATE result SET final = 2",
        "UPDATE attempt SET outcome = 'vanished'",
        "UPDATE evidence SET block = 'text'",
        "DELETE FROM series",
    ],
)
def test_what_does_not_belong_is_refused(loaded: sqlite3.Connection, statement: str) -> None:
    loaded.execute("PRAGMA foreign_keys = ON")
    with pytest.raises(sqlite3.IntegrityError):
        loaded.execute(statement)


def test_every_view_can_be_read_and_is_documented(loaded: sqlite3.Connection) -> None:
    views = [row[0] for row in loaded.execute("SELECT name FROM sqlite_master WHERE type = 'view' ORDER BY name")]
    empty = [view for view in views if loaded.execute(f"SELECT * FROM {view}").fetchone() is None]
    later = ["v_acceptances", "v_baselines", "v_changes", "v_events", "v_groups", "v_retractions"]  # test_keeping.py fills them
    links = ["v_links"]  # test_links.py fills it
    ledger = ["v_ledger"]  # test_acceptance_ledger.py fills it
    assert empty == sorted(["v_findings", "v_not_measured", *links, *ledger, *later])
    page = (REPOSITORY / "docs" / "database.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| `(v_\w+)`", page, re.MULTILINE)) == views


def documented_queries() -> list[str]:
    pages = [(REPOSITORY / "docs" / name).read_text("utf-8") for name in ("database.md", "questions.md")]
    return re.findall(r"```sql\n(.*?)```", "".join(pages), re.DOTALL)


@pytest.mark.heavy
@pytest.mark.parametrize("number", range(len(documented_queries())))
def test_documented_queries_run(loaded: sqlite3.Connection, number: int) -> None:
    sql = documented_queries()[number]
    rows = loaded.execute(sql).fetchall()
    if not re.search(r"v_not_measured|v_changes|v_ledger|v_findings|disturbed|drop", sql):
        assert rows, sql


def test_a_series_is_found_by_its_index(loaded: sqlite3.Connection) -> None:
    plan = loaded.execute("EXPLAIN QUERY PLAN SELECT value FROM v_results WHERE series_id = 1 ORDER BY started_utc").fetchall()
    assert any("result_of_series" in row["detail"] for row in plan)


@pytest.mark.promise("An index finds the results of a run by outcome, and the series of a node.")
def test_runs_and_nodes_are_read_by_indexes(loaded: sqlite3.Connection) -> None:
    """A site has a million results and half a million series: an index finds what a list counts."""

    def plan(query: str) -> str:
        return " ".join(str(row["detail"]) for row in loaded.execute(f"EXPLAIN QUERY PLAN {query}", {"node_id": 1}))

    assert "x USING INDEX result_of_job (job_id=? AND outcome=?)" in plan(
        "SELECT measured_count FROM v_runs WHERE run_cluster_id = 1"
    )
    of_node = plan(f"SELECT count(*) FROM result x WHERE x.series_id IN ({_OF_NODE})")
    assert "series_of_server" in of_node
    assert "SCAN series" not in of_node


# -- files that are not ours -------------------------------------------------------------------------------------------


def test_migrations_run_in_order_once_and_views_are_made_anew(loaded: sqlite3.Connection, path: Path) -> None:
    loaded.close()
    steps = (
        (1, "CREATE TABLE never (x);"),
        (SCHEMA_VERSION + 1, "ALTER TABLE node ADD COLUMN rack TEXT; -- with a ; in it\nUPDATE node SET rack = 'r1';"),
        (SCHEMA_VERSION + 2, "CREATE TABLE later (rack TEXT);\nINSERT INTO later SELECT rack FROM node;"),
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP VIEW v_builds")
        for _ in range(2):
            migrate(connection, steps, SCHEMA)
        assert connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION + 2
        assert connection.execute("SELECT DISTINCT rack FROM later").fetchall() == [("r1",)]
        assert connection.execute("SELECT count(*) FROM v_builds").fetchone()[0] == 2
        assert connection.execute("SELECT count(*) FROM v_results").fetchone()[0] == 12
        assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'never'").fetchall()


def test_a_failing_migration_changes_nothing(loaded: sqlite3.Connection, path: Path) -> None:
    loaded.close()
    steps = ((SCHEMA_VERSION + 1, "DELETE FROM series;\nINSERT INTO nowhere VALUES (1);"),)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(sqlite3.OperationalError):
            migrate(connection, steps, SCHEMA)
        with pytest.raises(StoreError, match="migration leaves a row of result without its series"):
            migrate(connection, ((SCHEMA_VERSION + 1, "DELETE FROM series;"),), SCHEMA)
        assert connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION
        assert connection.execute("SELECT count(*) FROM v_results").fetchone()[0] == 12


def test_a_writer_brings_an_older_database_forward_and_readers_refuse_it_until_then(
    loaded: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded.close()
    following = SCHEMA_VERSION + 1
    monkeypatch.setattr("hpcq.store.database.SCHEMA_VERSION", following)
    monkeypatch.setattr("hpcq.store.database.MIGRATIONS", ((following, "CREATE TABLE later (rack TEXT);"),))
    with pytest.raises(StoreError, match=f"has version {SCHEMA_VERSION}, this hpcq reads {following}"), reading(path):
        pass
    with writing(path) as connection:
        assert connection.execute("SELECT count(*) FROM v_results").fetchone()[0] == 12
        assert connection.execute("SELECT count(*) FROM later").fetchone()[0] == 0
    with reading(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == following
    monkeypatch.undo()
    with pytest.raises(StoreError, match=f"newer hpcq \\(version {following}, this one knows {SCHEMA_VERSION}"), writing(path):
        pass


@pytest.mark.promise("A database with the tables of an earlier state is left alone, with the words how to load the runs anew.")
def test_a_database_of_an_earlier_state_of_the_schema_says_so(path: Path) -> None:
    """Before the first release, evidence_end held two ends; rows of rank 2 would fail with SQLite's words."""
    earlier = SCHEMA.replace("CHECK (end_index >= 0)", "CHECK (end_index IN (0, 1))")
    assert earlier != SCHEMA
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(earlier)
    before = path.read_bytes()
    for opened in (reading, writing):
        with (
            pytest.raises(StoreError, match="its table evidence_end is not the one that this hpcq writes") as caught,
            opened(path),
        ):
            pass
        assert "hpcq db load RUN --db NEW" in str(caught.value.hint)
    assert path.read_bytes() == before


def test_views_of_an_earlier_state_are_made_anew_by_the_next_writer(loaded: sqlite3.Connection, path: Path) -> None:
    loaded.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("DROP VIEW v_ends; CREATE VIEW v_ends AS SELECT 1 AS never; CREATE TABLE of_others (x);")
    with pytest.raises(StoreError, match="its view v_ends is not the one"), reading(path):
        pass
    with writing(path) as connection:
        assert connection.execute("SELECT node FROM v_ends").fetchone() is not None
    with reading(path) as connection:
        assert connection.execute("SELECT count(*) FROM v_results").fetchone()[0] == 12
        assert connection.execute("SELECT count(*) FROM of_others").fetchone()[0] == 0


@pytest.mark.promise("What reads somebody's database changes nothing in it, and a block that swells in it takes no memory.")
def test_somebodys_database_is_only_read(loaded: sqlite3.Connection, path: Path) -> None:
    loaded.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        swollen = zlib.compress(bytes(200_000_000), 9)
        connection.execute("UPDATE evidence SET block = ?, json_bytes = 1000 WHERE result_id = 1", (swollen,))
        connection.execute("UPDATE evidence SET block = ?, json_bytes = ? WHERE result_id = 2", (swollen, 1 << 40))
        connection.execute("CREATE TRIGGER of_somebody AFTER INSERT ON event BEGIN DELETE FROM result; END")
    before = path.read_bytes()
    for result_id in (1, 2):
        tracemalloc.start()
        with pytest.raises(StoreError), reading(path) as connection:
            connection.execute("SELECT json FROM v_blocks WHERE result_id = ?", (result_id,)).fetchone()
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak_bytes < 10_000_000
    with pytest.raises(StoreError, match="cannot be written"), reading(path) as connection:
        connection.execute("INSERT INTO event SELECT * FROM event")
    assert path.read_bytes() == before


@pytest.mark.promise("A results.db that an earlier hpcq made learns new units when the next results are loaded.")
def test_units_that_an_earlier_state_lacks_are_added_by_the_next_writer(loaded: sqlite3.Connection, path: Path) -> None:
    loaded.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM unit WHERE name = 'flops'")
    with writing(path) as connection:
        assert connection.execute("SELECT help FROM unit WHERE name = 'flops'").fetchone()


def test_a_database_with_other_pages_is_written_as_it_is(builder: RunBuilder, path: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(path)) as made:
        made.executescript(f"PRAGMA page_size = 4096; {SCHEMA}")
    load_run(path, builder.path)
    load_run(tmp_path / "new.db", builder.path)
    sound(path)
    sizes, counts = [], []
    for database in (path, tmp_path / "new.db"):
        with reading(database) as connection:
            sizes.append(connection.execute("PRAGMA page_size").fetchone()[0])
            counts.append(connection.execute("SELECT count(*) FROM v_counters").fetchone()[0])
    assert sizes == [4096, 8192]
    assert counts[0] == counts[1] > 0


def test_every_unit_of_a_name_is_a_unit_of_the_database(path: Path) -> None:
    of_kernels = {metric.unit or "number" for one in own_kernels().values() for metric in one.metrics}
    of_kernels |= {option.unit or "number" for one in own_kernels().values() for option in one.options}
    with writing(path) as connection:
        known = {row[0] for row in connection.execute("SELECT name FROM unit")}
    assert known >= of_kernels | {suffix[1:] for suffix in units.SUFFIXES}


def test_statements_keep_triggers_and_comments_whole() -> None:
    assert sum("CREATE" in statement for statement in statements(SCHEMA)) == SCHEMA.count("\nCREATE ")
    assert any("END;" in statement and "INSERT" in statement for statement in statements(SCHEMA))


@pytest.mark.heavy
def test_reading_imports_nothing_heavy() -> None:
    code = "import sys, hpcq.store.query, hpcq.store.database, hpcq.store.load.cluster\n"
    code += "print([name for name in ('numpy', 'pydantic', 'jinja2', 'rich', 'ruamel', 'scipy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout.strip() == "[]"
