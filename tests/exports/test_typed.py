"""Parquet as DuckDB reads it, and JUnit against Jenkins' schema."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
import xmlschema

from hpcq import exports
from hpcq.cli.main import run as hpcq
from tests.exports.test_export import exported, gated, torn, whole

pytestmark = pytest.mark.fast
__all__ = ["torn", "whole"]

#: Of Jenkins' xunit plugin: MIT licence, copyright 2014 Gregory Boissinot; the text stands in the file.
SCHEMA = Path(__file__).with_name("junit-10.xsd")


def written(database: Path, path: Path) -> Path:
    assert hpcq(["export", "--db", str(database), "--format", "parquet", "--to", str(path)]) == 0
    return path


@pytest.mark.heavy
@pytest.mark.promise("Parquet holds the same rows as the other tables, with types; DuckDB reads it.")
def test_duckdb_reads_the_same_rows_as_csv(torn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(torn, tmp_path / "run.parquet")
    rows = list(csv.DictReader(io.StringIO(exported(torn, "csv", capsys)[0])))
    names = ("client", "server", "test_no", "outcome", "reason", "metric", "value", "message_bytes")
    found = duckdb.sql(f"SELECT {', '.join(names)} FROM '{path}' ORDER BY result_id, metric").fetchall()
    said = sorted(rows, key=lambda row: (int(row["result_id"]), row["metric"] or "~"))
    assert [tuple("" if one is None else str(one) for one in row) for row in found] == [
        tuple(row[name] for name in names) for row in said
    ]


@pytest.mark.promise("Times in Parquet are moments in UTC.")
def test_parquet_has_types(torn: Path, tmp_path: Path) -> None:
    path = written(torn, tmp_path / "run.parquet")
    types = dict(duckdb.sql(f"SELECT column_name, column_type FROM (DESCRIBE FROM '{path}')").fetchall())
    assert types["value"] == "DOUBLE"
    assert types["message_bytes"] == types["result_id"] == "BIGINT"
    assert types["disturbed"] == "BOOLEAN"
    assert types["started_utc"] == "TIMESTAMP WITH TIME ZONE"
    text = f"SELECT DISTINCT epoch_us(started_utc) // 3600000000 FROM '{path}' WHERE value IS NOT NULL"
    assert duckdb.sql(text).fetchall() == [(498674,)]  # 2026-11-21 02 UTC, in hours since 1970
    lost = duckdb.sql(f"SELECT count(*) FROM '{path}' WHERE outcome <> 'measured' AND reason IS NOT NULL AND value IS NULL")
    assert lost.fetchall() == [(7,)]


@pytest.mark.heavy
@pytest.mark.promise("Parquet holds the same rows as the other tables, with types; DuckDB reads it.")
def test_more_rows_than_one_group(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = duckdb.sql(f"SELECT count(*) FROM '{written(whole, tmp_path / 'one.parquet')}'").fetchall()
    monkeypatch.setattr(exports, "_GROUP_ROWS", 5)
    several = written(whole, tmp_path / "several.parquet")
    assert duckdb.sql(f"SELECT count(*) FROM '{several}'").fetchall() == count
    groups = duckdb.sql(f"SELECT count(DISTINCT row_group_id) FROM parquet_metadata('{several}')").fetchall()
    assert groups[0][0] > 5


@pytest.mark.heavy
@pytest.mark.promise("A missing optional library is named with the extra that brings it.")
def test_without_pyarrow_the_extra_is_named(whole: Path, tmp_path: Path) -> None:
    words = ["export", "--db", str(whole), "--format", "parquet", "--to", str(tmp_path / "run.parquet")]
    program = f"import sys; sys.modules['pyarrow'] = None\nfrom hpcq.cli.main import run\nsys.exit(run({words!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "pip install pyarrow" in done.stderr
    assert not list(tmp_path.glob("*run.parquet*"))


@pytest.mark.heavy
@pytest.mark.promise("JUnit output fits the schema of Jenkins' xunit plugin.")
@pytest.mark.parametrize("bound", ["1k", "900T"])
def test_junit_fits_jenkins_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str], bound: str) -> None:
    text, _ = exported(gated(tmp_path, bound), "junit", capsys)
    xmlschema.XMLSchema(str(SCHEMA)).validate(text)


@pytest.mark.heavy
def test_junit_of_missing_results_fits_too(torn: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, _ = exported(torn, "junit", capsys)
    schema = xmlschema.XMLSchema(str(SCHEMA))
    schema.validate(text)
    assert not schema.is_valid(text.replace(" failures=", " failed="))
