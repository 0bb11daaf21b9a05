"""Files that are not ours, places that cannot be written, crashes and other readers."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from hpcq.errors import StoreError, UserError
from hpcq.store import database as store
from hpcq.store import query
from hpcq.store.database import reading, writing
from hpcq.store.load.cluster import load_run
from hpcq.store.selection import find_run
from tests.store.run_folders import RunBuilder
from tests.store.test_database import builder, path, sound

FIXTURES = (
    builder,
    path,
)  # pytest looks for them in this module
pytestmark = pytest.mark.fast


def make_other(path: Path, application_id: int, version: int) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE invoice (total REAL)")
        connection.execute(f"PRAGMA application_id = {application_id}")
        connection.execute(f"PRAGMA user_version = {version}")


STRANGERS: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: make_other(path, 0, 0), "not one of hpcq's"),
    (lambda path: make_other(path, 12345, 1), "not one of hpcq's"),
    (lambda path: make_other(path, store.APPLICATION_ID, 99), "written by a newer hpcq"),
    (lambda path: path.write_text("date,total\n2026,1\n" * 100), "is not a database"),
]


@pytest.mark.parametrize(("make", "message"), STRANGERS, ids=range(len(STRANGERS)))
def test_a_file_that_is_not_ours_is_left_alone(
    builder: RunBuilder, path: Path, make: Callable[[Path], object], message: str
) -> None:
    make(path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=message) as raised:
        load_run(path, builder.path)
    assert raised.value.hint
    with pytest.raises(StoreError, match=message), reading(path):
        pass
    assert path.read_bytes() == before


def test_no_database_and_an_empty_file(builder: RunBuilder, path: Path) -> None:
    with pytest.raises(StoreError, match="there is no database"), reading(path):
        pass
    path.touch()
    assert load_run(path, builder.path).complete


def test_names_that_mean_something_in_a_uri(builder: RunBuilder, tmp_path: Path) -> None:
    path = tmp_path / "re sults?mode=memory&x#1%41.db"
    load_run(path, builder.path)
    assert path.is_file()
    with reading(path) as connection:
        assert find_run(connection, None) == builder.run


# -- places that cannot be written ------------------------------------------------------------------------------------


def test_a_folder_that_is_not_there_or_is_the_database(builder: RunBuilder, tmp_path: Path) -> None:
    for place, words in ((tmp_path / "nowhere" / "results.db", "cannot be written"), (tmp_path, "is a folder")):
        with pytest.raises((StoreError, UserError), match=words) as raised:
            load_run(place, builder.path)
        assert raised.value.hint is not None
        assert "nothing was changed" in raised.value.hint


@pytest.mark.promise("A pipe in place of a database, of its journal or of the writer's link is named, and not waited for.")
@pytest.mark.parametrize("name", ["results.db", "results.db-journal", "results.db.writer"])
def test_a_pipe_is_not_waited_for(builder: RunBuilder, path: Path, name: str) -> None:
    load_run(path, builder.path)
    pipe = path.with_name(name.replace("results.db", path.name))
    if pipe != path:
        os.mkfifo(pipe)
    else:
        path.unlink()
        os.mkfifo(path)
    words = "is no link that hpcq made" if name.endswith("writer") else "is a pipe or a device: must be a file"
    with pytest.raises(StoreError, match=f"{pipe.name}: {words}"), writing(path):
        pass
    if not name.endswith("writer"):
        with pytest.raises(StoreError, match=f"{pipe.name}: {words}"), reading(path):
            pass


def test_a_read_only_database(builder: RunBuilder, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with writing(path):
        pass
    connect = store._connect
    monkeypatch.setattr(store, "_connect", lambda path, _: connect(path, "ro"))
    with pytest.raises(StoreError, match="cannot be written: attempt to write a readonly database"):
        load_run(path, builder.path)
    with reading(path) as connection:
        assert query.runs(connection) == []


@pytest.mark.heavy
def test_a_locked_database_loses_nothing(builder: RunBuilder, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with writing(path):
        pass
    monkeypatch.setattr(store, "BUSY_TIMEOUT_S", 0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked by another process") as raised:
            load_run(path, builder.path)
        assert "`hpcq db load RUN`" in str(raised.value.hint)
    assert load_run(path, builder.path).complete


@pytest.mark.heavy
def test_a_full_disk_loses_nothing(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = RunBuilder(tmp_path / "runs", counter_count=500)
    builder.everything()
    with writing(path):
        pass
    prepare = store._prepare

    def nearly_full(connection: sqlite3.Connection, path: Path) -> None:
        prepare(connection, path)
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 3}")

    monkeypatch.setattr(store, "_prepare", nearly_full)
    with pytest.raises(StoreError, match="full"):
        load_run(path, builder.path)
    monkeypatch.undo()
    sound(path)
    with reading(path) as connection:
        assert query.runs(connection) == []
    assert load_run(path, builder.path).complete


# -- crashes and company -----------------------------------------------------------------------------------------------

KILLED = """
    import os, signal, sys
    from pathlib import Path
    from hpcq.store import database
    from hpcq.store.load import cluster
    from hpcq.store.load.cluster import load_run

    prepare = database._prepare
    def small_cache(connection, path):
        prepare(connection, path)
        connection.execute("PRAGMA cache_size = 5")  # so that pages reach the file long before the commit
    database._prepare = small_cache
    cluster.choose_final = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    load_run(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.heavy
def test_a_killed_loader_leaves_nothing_half(builder: RunBuilder, path: Path, tmp_path: Path) -> None:
    load_run(path, builder.path)
    later = RunBuilder(tmp_path / "runs", run="nightly-20261122T020000Z-00aa", repetition_count=10)
    later.everything()
    before = path.read_bytes()
    code = textwrap.dedent(KILLED)
    killed = subprocess.run([sys.executable, "-c", code, str(path), str(later.path)], check=False, timeout=240)
    assert killed.returncode == -signal.SIGKILL
    assert path.read_bytes() != before, "the test is only worth something when pages had reached the file"
    assert path.with_name("results.db-journal").exists()
    with reading(path) as connection:  # a reader is enough to bring it back
        assert [row.run for row in query.runs(connection)] == [builder.run]
        assert connection.execute("SELECT count(*) FROM v_results").fetchone()[0] == 12
    sound(path)
    assert load_run(path, later.path).complete


@pytest.mark.heavy
def test_readers_see_whole_runs_while_another_process_loads(path: Path, tmp_path: Path) -> None:
    builders = [RunBuilder(tmp_path / "runs", run=f"nightly-2026112{day}T020000Z-0000") for day in range(6)]
    for one in builders:
        one.everything()
    load_run(path, builders[0].path)
    seen: list[int] = []
    wrong: list[object] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            with reading(path) as connection:
                rows = query.runs(connection)
                seen.append(len(rows))
                wrong.extend(row for row in rows if row.measured_count != 12)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in readers:
        thread.start()
    code = "import sys; from pathlib import Path; from hpcq.store.load.cluster import load_run\n"
    code += "for folder in sys.argv[2:]: load_run(Path(sys.argv[1]), Path(folder))"
    folders = [str(one.path) for one in builders]
    loaders = [subprocess.Popen([sys.executable, "-c", code, str(path), *order]) for order in (folders[:4], folders[:2:-1])]
    codes = [loader.wait(30) for loader in loaders]
    done.set()
    for thread in readers:
        thread.join()
    assert codes == [0, 0]
    assert wrong == []
    assert min(seen) >= 1
    with reading(path) as connection:
        assert len(query.runs(connection)) == 6
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("DELETE FROM metric")


# -- versions ----------------------------------------------------------------------------------------------------------
