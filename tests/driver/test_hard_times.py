"""The database in hard times: loaders killed at any moment, a disk that is full, locks that lock nothing or are refused.

After each: nothing lost, nothing twice, integrity_check clean. Locks are taken away by a library before libc's fcntl, since
no file system without locks can be mounted everywhere; the full disk is a real small tmpfs.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from hpcq import writer_lock
from hpcq.errors import StoreError
from hpcq.store.database import reading, transaction, writing
from hpcq.store.load.cluster import load_run
from tests import REPOSITORY as ROOT
from tests.store.run_folders import RunBuilder

HEAD = f"""import os,random,signal,sys,time
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
import hpcq.store.database as store
from hpcq.errors import StoreError
from hpcq.store.load.cluster import load_run
from hpcq.store.database import reading
"""
#: argv: database, run folder, kills. Each child loads; it is killed at a random moment of a load's length.
KILLING = f"""{HEAD}
database, folder, kills = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
random.seed(11)
begun = time.monotonic()
load_run(Path(f"{{database}}.whole"), folder)
took = time.monotonic() - begun
died = turn = 0
while died < kills and turn < 20 * kills:
    turn += 1
    child = os.fork()
    if child == 0:
        load_run(database, folder)
        os._exit(0)
    fresh, begun = not database.exists(), time.monotonic()
    until = begun + (random.uniform(0, 1.3 * took) if turn % 2 else random.uniform(0.6, 1.0) * took)
    ended = status = 0
    while not ended and time.monotonic() < until:
        time.sleep(0.002)
        ended, status = os.waitpid(child, os.WNOHANG)
    assert status == 0, status
    if ended:  # a load that the machine has more time for than it had for the first
        took = time.monotonic() - begun if fresh else took
    else:
        os.kill(child, signal.SIGKILL)
        died += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
    if turn % 3 == 2:
        database.unlink(missing_ok=True)
        Path(f"{{database}}-journal").unlink(missing_ok=True)
print(died)
"""
#: argv: database, run folders. One process each loads, another reads all the time.
CROWD = f"""{HEAD}
database, folders = Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]
children = []
for folder in folders:
    child = os.fork()
    if child == 0:
        load_run(database, folder)
        os._exit(0)
    children.append(child)
reader = os.fork()
if reader == 0:
    while True:
        try:
            with reading(database) as connection:
                connection.execute("SELECT count(*) FROM metric").fetchone()
        except StoreError:
            pass
ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
os.kill(reader, signal.SIGKILL)
os.waitpid(reader, 0)
sys.exit(max(ended))
"""
#: argv: mount point, run folder. Runs in a mount namespace of its own. The disk has room for a little more each time.
FULL = f"""{HEAD}
import sqlite3
from tests import REPOSITORY
place, folder = Path(sys.argv[1]), Path(sys.argv[2])
database, ballast = place / "results.db", place / "ballast"
refused = 0
for room_kib in (0, 8, 64, 160, 300, 450, 600):
    ballast.unlink(missing_ok=True)
    free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
    ballast.write_bytes(b"x" * max(0, free - 1024 * room_kib))
    try:
        load_run(database, folder)
    except StoreError as error:
        assert "full" in error.message or "space" in error.message, error.message
        refused += 1
    ballast.unlink()
    if database.exists() and database.stat().st_size:
        assert sqlite3.connect(database).execute("PRAGMA integrity_check").fetchone() == ("ok",)
assert refused >= 3, refused
print(load_run(database, folder).complete)
"""
#: argv: database, run folder. What is said when every lock is refused; the wait for it is cut short.
REFUSED = f"""{HEAD}
store.BUSY_TIMEOUT_S = 0.5
try:
    load_run(Path(sys.argv[1]), Path(sys.argv[2]))
except StoreError as error:
    print(error.message, error.hint, sep="|")
"""
#: Locks are what HPCQ_LOCKS says: `agree` to everything, or `refuse` everything.
NO_LOCKS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
static int without(const char *next, int file, int command, void *argument)
{
    if (command == F_SETLK || command == F_SETLKW || command == F_GETLK) {
        const char *how = getenv("HPCQ_LOCKS");
        if (how && !strcmp(how, "refuse")) {
            errno = ENOLCK;
            return -1;
        }
        if (command == F_GETLK)
            ((struct flock *)argument)->l_type = F_UNLCK;
        return 0;
    }
    return ((int (*)(int, int, void *))dlsym(RTLD_NEXT, next))(file, command, argument);
}
#define WRAPPED(name) int name(int file, int command, ...) { va_list rest; va_start(rest, command); \
    void *argument = va_arg(rest, void *); va_end(rest); return without(#name, file, command, argument); }
WRAPPED(fcntl)
WRAPPED(fcntl64)
"""


def rows_of(path: Path) -> dict[str, int]:
    """How many rows each table has; the file must be sound."""
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}


def start(script: str, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", script, *(str(word) for word in words)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300, env={**os.environ, **environment})


@pytest.fixture(scope="module")
def no_locks(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library that takes the locks of a process away."""
    folder = tmp_path_factory.mktemp("nolocks")
    (folder / "nolocks.c").write_text(NO_LOCKS)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "nolocks.so", folder / "nolocks.c", "-ldl"], check=True)
    return str(folder / "nolocks.so")


def built(folder: Path, number: int = 0, repetitions: int = 20) -> Path:
    made = RunBuilder(folder / "runs", run=f"nightly-202611{10 + number}T020000Z-00ff", repetition_count=repetitions)
    made.everything()
    return made.path


def test_loaders_killed_at_any_moment(tmp_path: Path) -> None:
    folder, database = built(tmp_path), tmp_path / "results.db"
    done = start(KILLING, database, folder, 20)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 20, "so many died at work"
    if database.exists() and database.stat().st_size:
        with contextlib.suppress(StoreError), reading(database) as connection:  # rolls back what the last one left: maybe all
            connection.execute("SELECT count(*) FROM result").fetchone()
    assert load_run(database, folder).complete
    assert rows_of(database) == rows_of(Path(f"{database}.whole"))
    assert not list(tmp_path.glob("*.writer*"))


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    folder, place = built(tmp_path), tmp_path / "small"
    place.mkdir()
    mounted = f'mount -t tmpfs -o size=6m small "{place}" && exec "{sys.executable}" -c "$0" "$@"'
    argv = ["unshare", "--mount", "sh", "-c", mounted, FULL, str(place), str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


@pytest.mark.parametrize("how", ["agree", "hold"])
def test_many_loaders_and_a_reader_at_once(tmp_path: Path, no_locks: str, how: str) -> None:
    """Where locks lock nothing only the writer's own link keeps loaders apart; 'hold' is the same with locks that work."""
    folders = [built(tmp_path, number, 6) for number in range(5)]
    together, apart = tmp_path / "results.db", tmp_path / "apart.db"
    environment = {"LD_PRELOAD": no_locks, "HPCQ_LOCKS": "agree"} if how == "agree" else {}
    done = start(CROWD, together, *folders, **environment)
    assert done.returncode == 0, done.stderr
    for folder in folders:
        load_run(apart, folder)
    assert rows_of(together) == rows_of(apart)


def test_locks_that_are_refused(tmp_path: Path, no_locks: str) -> None:
    folder, database = built(tmp_path, 0, 3), tmp_path / "results.db"
    done = start(REFUSED, database, folder, LD_PRELOAD=no_locks, HPCQ_LOCKS="refuse")
    message, _, hint = done.stdout.partition("|")
    assert message.startswith(f"{database}: locked by another process"), done.stderr
    assert "`hpcq doctor` says whether this file system has locks at all" in hint
    assert "nothing was changed" in hint
    assert load_run(database, folder).complete
    rows_of(database)


@pytest.mark.fast
def test_a_dead_writer_is_known_at_once_and_a_living_one_is_named(tmp_path: Path) -> None:
    lock = tmp_path / "results.db.writer"
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        held = f"{writer_lock._place()}/{child.pid}/{writer_lock._started(child.pid)}/00"
        lock.symlink_to(held)
        told = pytest.raises(StoreError, match=f"locked by another process for 0 s: process {child.pid} on ")
        with told, writer_lock.sole_writer(tmp_path / "results.db", 0.2):
            pass
    finally:
        child.kill()
        child.communicate()
    with writer_lock.sole_writer(tmp_path / "results.db", 0.2) as mine:
        assert mine()
        with writer_lock.sole_writer(tmp_path / "results.db", 0.2):
            assert lock.is_symlink(), "a writer within a writer is the same one"
        assert lock.is_symlink()
    assert not lock.is_symlink()


@pytest.mark.fast
def test_a_writer_elsewhere_is_dead_when_nobody_touches_its_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "results.db.writer"
    lock.symlink_to("elsewhere/boot/pid:[1]/77/5/00")
    monkeypatch.setattr(writer_lock, "STALE_S", 0.3)
    with writer_lock.sole_writer(tmp_path / "results.db", 30) as mine:
        assert mine()


@pytest.mark.fast
def test_who_was_taken_for_dead_does_not_commit(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    told = pytest.raises(StoreError, match=f"^{re.escape(str(tmp_path))}/results.db: .*took this database for abandoned")
    with told, writing(path) as database, transaction(database):
        database.execute("INSERT INTO cluster (name) VALUES ('a')")
        (tmp_path / "results.db.writer").unlink()
        (tmp_path / "results.db.writer").symlink_to("elsewhere/boot/pid:[1]/77/5/00")
    (tmp_path / "results.db.writer").unlink()
    with reading(path) as connection:
        assert connection.execute("SELECT count(*) FROM cluster").fetchone()[0] == 0
