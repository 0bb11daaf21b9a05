"""Answers that are kept: only what a new one would say, and only from one's own folder."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from hpcq.store import database as store
from hpcq.store.database import answered, reading, transaction, writing
from hpcq.store.load.cluster import load_run
from hpcq.store.read import nodes, stretches
from hpcq.store.selection import Selection
from tests.store.run_folders import RunBuilder


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Asks a database that nobody writes to just now; each new answer is one more."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "KEPT_FROM_S", 0.0)
    monkeypatch.setattr(store, "SETTLED_AFTER_S", 0.0)
    found: list[int] = []

    def ask(question: str = "how many", path: Path | None = None) -> Any:
        def answer() -> list[int]:
            found.append(len(found) + 1)
            return [found[-1]]

        with reading(path or tmp_path / "results.db") as database:
            return answered(database, {"asked": question}, answer)

    with writing(tmp_path / "results.db"):
        pass
    return ask


def kept(folder: Path) -> list[Path]:
    return [path for path in (folder / "cache").rglob("*") if path.is_file()]


def test_an_answer_is_kept_for_its_question(asked: Callable[..., Any], tmp_path: Path) -> None:
    assert [asked(), asked(), asked("another"), asked()] == [[1], [1], [2], [1]]
    assert len(kept(tmp_path)) == 2
    assert {path.stat().st_mode & 0o777 for path in kept(tmp_path)} == {0o600}
    assert {path.parent.stat().st_mode & 0o777 for path in kept(tmp_path)} == {0o700}


@pytest.mark.promise("What a connection has written and not committed is judged anew.")
def test_no_answer_is_kept_amid_a_write(asked: Callable[..., Any], tmp_path: Path) -> None:
    assert [asked(), asked()] == [[1], [1]]
    with writing(tmp_path / "results.db") as database:
        assert answered(database, {"asked": "how many"}, lambda: "new") == [1], "nothing was written yet"
        with transaction(database):
            database.execute("INSERT INTO cluster (name) VALUES ('alpha')")
            assert answered(database, {"asked": "how many"}, lambda: "new") == "new"


@pytest.mark.promise("What is kept of a judgement ends with the gate kinds of other packages that had a part in it.")
def test_another_gate_kind_ends_every_answer(
    asked: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [asked(), asked()] == [[1], [1]]
    for release, number in (("1.1", 2), ("1.2", 3)):
        package = tmp_path / release / f"site_hpcq-{release}.dist-info"
        package.mkdir(parents=True)
        (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: site_hpcq\nVersion: {release}\n")
        (package / "entry_points.txt").write_text("[hpcq.gate_kinds]\nreverse_of_last_week = site_hpcq:KIND\n")
        with monkeypatch.context() as installed:
            installed.syspath_prepend(package.parent)
            assert [asked(), asked()] == [[number], [number]]


@pytest.mark.promise("What is kept of a judgement is never given once its database was written, by whomever.")
@pytest.mark.parametrize("how", ["hpcq", "sqlite3", "another file in its place", "its time is set back"])
def test_a_write_ends_every_answer(asked: Callable[..., Any], tmp_path: Path, how: str) -> None:
    path = tmp_path / "results.db"
    assert asked() == [1]
    before = path.stat()
    if how == "another file in its place":
        copy = tmp_path / "copy.db"
        copy.write_bytes(path.read_bytes())
        os.utime(copy, ns=(before.st_atime_ns, before.st_mtime_ns))
        copy.rename(path)
    elif how == "hpcq":
        with writing(path) as database, transaction(database):
            database.execute("INSERT INTO cluster (name) VALUES ('alpha')")
    else:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("INSERT INTO cluster (name) VALUES ('alpha')")
    if how == "its time is set back":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert asked() == [2]
    assert len(kept(tmp_path)) == 1, "what was kept of the state before is gone"


def test_other_code_gives_another_answer(asked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked() == [1]
    monkeypatch.setattr(store, "_deciding_code", lambda: "of another checkout")
    assert asked() == [2]


def test_what_is_quick_or_was_just_written_is_not_kept(
    asked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(store, "SETTLED_AFTER_S", 60.0)
    assert [asked(), asked()] == [[1], [2]]
    monkeypatch.setattr(store, "SETTLED_AFTER_S", 0.0)
    monkeypatch.setattr(store, "KEPT_FROM_S", 60.0)
    assert [asked(), asked()] == [[3], [4]]
    assert not kept(tmp_path)


def test_a_write_while_it_is_found_is_not_missed(asked: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "results.db"

    def answer() -> str:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("INSERT INTO cluster (name) VALUES ('alpha')")
        return "of a state that is over"

    with reading(path) as database:
        answered(database, {"asked": "meanwhile"}, answer)
    assert not kept(tmp_path)
    assert asked("meanwhile") == [1]


@pytest.mark.promise("What is kept of a judgement is believed only where nobody else could write it.")
@pytest.mark.parametrize("how", ["writable file", "writable folder", "link", "pipe", "damaged", "another owner"])
def test_what_others_could_write_is_not_believed(asked: Callable[..., Any], tmp_path: Path, how: str) -> None:
    assert asked() == [1]
    [path] = kept(tmp_path)
    forged = tmp_path / "forged"
    forged.write_text("[99]")
    if how == "writable file":
        path.write_text("[99]")
        path.chmod(0o666)
    elif how == "writable folder":
        path.write_text("[99]")
        path.parent.chmod(0o777)
    elif how == "damaged":
        path.write_text("[99")
    elif how == "another owner":
        if os.getuid() != 0:
            pytest.skip("only root can give a file away")
        path.write_text("[99]")
        os.chown(path, 65534, 65534)
    else:
        path.unlink()
        if how == "link":
            path.symlink_to(forged)
        else:
            os.mkfifo(path)
    assert asked() == [2]


def test_a_database_and_a_home_that_cannot_be_written_answer_all_the_same(
    asked: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "results.db").chmod(0o444)
    assert [asked(), asked()] == [[1], [1]], "a database that is only read is kept in mind as well"
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc")
    assert [asked(), asked()] == [[2], [3]]


@pytest.mark.promise("hpcq doctor reads a database whole once for each state of it, and says of that state what it found.")
def test_a_database_is_looked_through_once_for_each_state(
    asked: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def look(database: Any) -> list[str]:
        looked.append(str(database))
        return ["ok"]

    monkeypatch.setattr(stretches, "_quick_check", look)
    path = tmp_path / "results.db"
    first = list(stretches.look_at_database(path))
    assert list(stretches.look_at_database(path)) == first
    assert len(looked) == 1
    with writing(path) as database, transaction(database):
        database.execute("INSERT INTO cluster (name) VALUES ('alpha')")
    assert list(stretches.look_at_database(path))[1] == first[1]
    assert len(looked) == 2, "another state of the file"


@pytest.mark.promise("hpcq doctor names a database that everybody can change, in itself or in a folder above it.")
def test_a_database_that_everybody_can_change_is_named(asked: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "shared: by all"
    folder.mkdir()
    path = (tmp_path / "results.db").rename(folder / "results.db")

    def said() -> list[tuple[str, str]]:
        return [(found, advice) for item, _, found, advice in stretches.look_at_database(path) if item == "writers"]

    assert said() == []
    for place, mode in ((path, 0o666), (folder, 0o777)):
        before = place.stat().st_mode
        place.chmod(mode)
        ((found, advice),) = said()
        assert found.startswith(f"{place}: everybody can change it (mode {mode:o})")
        assert advice == f"chmod o-w {quote(str(place))}"
        place.chmod(before)
    folder.chmod(0o1777)
    assert said() == [], "in a sticky folder nobody replaces what is another's"


_WRITER = """
import sys
from pathlib import Path
from shlex import quote
from hpcq.store.database import transaction, writing
with writing(Path(sys.argv[1])) as database, transaction(database):
    if sys.argv[2] == "killed":  # what is half written lies in the file itself
        database.execute("PRAGMA cache_size = 1")
    database.executemany("INSERT INTO cluster (name) VALUES (?)", ((f"c{number}",) for number in range(9999)))
    print("begun", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.promise("hpcq doctor says that a writer was killed where none lives, and not of one that ended meanwhile.")
@pytest.mark.parametrize("end", ["writes on", "killed"])
def test_a_writer_that_ends_meanwhile_was_not_killed(asked: Callable[..., Any], tmp_path: Path, end: str) -> None:
    path = tmp_path / "results.db"
    command = [sys.executable, "-c", _WRITER, str(path), end]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout
        assert writer.stdout.readline() == "begun\n"
        assert path.with_name("results.db-journal").exists()
        if end == "killed":
            writer.kill()
            writer.wait()
        look = stretches.look_at_database(path)
        found = [next(look)]
        writer.communicate("\n" if end == "writes on" else None)
        found += look
    assert not path.with_name("results.db-journal").exists()
    assert [item for item, *_ in found if item == "journal"] == (["journal"] if end == "killed" else [])


def test_what_a_node_was_beside_its_partners_is_kept(
    asked: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = RunBuilder(tmp_path / "runs", pairs=(("n1", "n2"), ("n2", "n3"), ("n3", "n1")))
    builder.everything()
    path = tmp_path / "site.db"
    load_run(path, builder.path)
    with reading(path) as database:
        first = nodes.node_story(database, "n1", Selection())
        assert {one.partner for one in first.partners} == {"n2", "n3"}
        monkeypatch.setattr(nodes, "_series_medians", lambda *_: pytest.fail("read again"))
        assert nodes.node_story(database, "n1", Selection()) == first
        with pytest.raises(pytest.fail.Exception):
            nodes.node_story(database, "n1", Selection(kernel="tcp_stream"))
