"""A database of each released version: brought to the present one, and read by every verb that reads."""

from __future__ import annotations

import lzma
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hpcq import assets
from hpcq.cli.main import run
from hpcq.errors import StoreError
from hpcq.store.database import FIRST_VERSION, SCHEMA_VERSION, differing, reading, writing
from hpcq.store.keep.check_and_prune import check
from tests.store.kept_databases import BAD_NIGHT, KEPT, NIGHTS, PAIRS

pytestmark = pytest.mark.fast

VERSIONS = sorted(int(path.name.partition(".")[0]) for path in KEPT.glob("*.db.xz"))
#: Exit codes of a verb that could read.
FINE = {0, 3, 4}
READING = (
    "runs", "runs --cost", "results", "results --each", "results --findings", "show 2 --all", "nodes", "nodes n2",
    "nodes --verdicts", "facts show n2", "facts diff n2 first", "history", "history 1", "regressions --since 2026-11-20",
    "compare nightly-20261121T020000Z-alph latest", "blame", "changes list", "changes show 1", "baseline list",
    "event list", "export latest --format csv", "export latest --format prometheus", "export latest --format junit",
    "report latest --to page.html", "db check", "db export-notes notes.json", "sql SELECT+*+FROM+v_counters+LIMIT+1",
)  # fmt: skip


@pytest.fixture(params=VERSIONS)
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kept database of a version, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "results.db"
    path.write_bytes(lzma.decompress((KEPT / f"{request.param}.db.xz").read_bytes()))
    return path


def asked(words: str) -> int:
    return run([word.replace("+", " ") if word.startswith("SELECT") else word for word in words.split()])


def test_one_is_kept_of_each_version() -> None:
    assert list(range(FIRST_VERSION, SCHEMA_VERSION + 1)) == VERSIONS


@pytest.mark.promise(
    "From 1.0.0 on, the next load brings a database of any released version to the present one; nothing is lost."
)
def test_a_kept_database_becomes_one_of_this_version(kept: Path) -> None:
    with closing(sqlite3.connect(kept)) as before:
        rows = {name: before.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("result", "metric", "event")}
    with writing(kept) as database:
        assert differing(database, assets.database_schema().read_text("utf-8")) is None
        for name, count in rows.items():
            assert database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] == count
    assert rows["result"] == NIGHTS * len(PAIRS) * 2
    assert [one.item for one in check(kept) if not one.ok] == []
    with reading(kept) as database:
        slow = "SELECT avg(value) FROM v_results WHERE client = 'n2' AND started_utc {} '2026-11-2" + str(1 + BAD_NIGHT) + "'"
        good, bad = (database.execute(slow.format(sign)).fetchone()[0] for sign in "<>")
        assert bad < 0.7 * good
        assert database.execute("SELECT count(*) FROM v_evidence").fetchone()[0] > 0


@pytest.mark.heavy
@pytest.mark.promise("Every verb that reads, reads a database of each released version after it was brought forward.")
def test_every_reading_verb_reads_it(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with writing(kept):
        pass
    for words in READING:
        code = asked(words)
        said = capsys.readouterr()
        assert code in FINE, f"hpcq {words}: {said.out}{said.err}"
        assert said.out.strip() or "--to" in words or "notes.json" in words, words


def test_a_reader_asks_for_the_upgrade_and_the_words_it_names_do_it(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the next version of the schema will do."""
    following = SCHEMA_VERSION + 1
    monkeypatch.setattr("hpcq.store.database.SCHEMA_VERSION", following)
    step = (following, "CREATE TABLE later (rack TEXT);\nINSERT INTO later SELECT name FROM node_group;")
    monkeypatch.setattr("hpcq.store.database.MIGRATIONS", (step,))
    before = kept.read_bytes()
    assert asked("results") == 1
    said = capsys.readouterr().err
    assert f"has version {SCHEMA_VERSION}, this hpcq reads {following}" in said
    assert "hpcq db upgrade --db results.db" in said
    assert kept.read_bytes() == before
    assert asked("db upgrade --db results.db") in FINE, capsys.readouterr().err
    with reading(kept) as database:
        assert database.execute("SELECT DISTINCT rack FROM later").fetchall()[0][0] == "r1"
    for words in ("results", "history 1", "changes list"):
        assert asked(words) in FINE, capsys.readouterr().err


@pytest.mark.promise("An older hpcq leaves a database of a newer one as it is, and says so.")
def test_an_older_hpcq_leaves_it_alone(kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    newer = SCHEMA_VERSION + 1
    with closing(sqlite3.connect(kept)) as database:
        database.execute(f"PRAGMA user_version = {newer}")
    before = kept.read_bytes()
    for words in ("results", "show 2", "annotate run latest hello", "db check"):
        assert asked(words) == 1
        assert f"was written by a newer hpcq (version {newer}, this one knows {SCHEMA_VERSION})" in capsys.readouterr().err
    with pytest.raises(StoreError, match="newer hpcq"), writing(kept):
        pass
    assert kept.read_bytes() == before
