"""`hpcq sql` on large answers and with slow readers, and what becomes of verbs whose output nobody reads any more."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcq.cli.main import run
from tests.history.histories import History

pytestmark = pytest.mark.fast

NUMBERS = (
    "WITH RECURSIVE x(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM x LIMIT {}) SELECT a, 'a text of some length' AS t FROM x"
)
BY_SIGPIPE = 128 + signal.SIGPIPE
#: A process with this much room for its data cannot hold the rows of the large answer.
_ROOM_BYTES = 150_000_000


def hpcq(*words: str) -> list[str]:
    return [sys.executable, "-m", "hpcq", *words]


@pytest.mark.promise(
    "A pipe that its reader closed ends a verb with SIGPIPE's exit code and without a word, as `cat` and `grep` end."
)
@pytest.mark.heavy
@pytest.mark.parametrize(
    "words",
    ["show 1", "results --all-metrics", "history", "kernels udp_stream", "--help", "results --help", "sql SELECT", "runs"],
)
def test_a_closed_pipe_is_no_error_and_no_verdict(words: str, nights: History) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    argv = [word.replace("SELECT", "SELECT 1") for word in hpcq(*words.split())]
    with os.fdopen(writer, "wb") as out:
        done = subprocess.run(
            argv,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            env=env(nights),
            cwd=nights.database.parent,
        )
    assert done.returncode == BY_SIGPIPE, done.stderr
    assert "error" not in done.stderr
    assert "Traceback" not in done.stderr


def env(nights: History) -> dict[str, str]:
    return {**os.environ, "HPCQ_DB": str(nights.database)}


@pytest.mark.heavy
@pytest.mark.promise("A program that ends before it has read its input is an error, and not a reader that has seen enough.")
def test_the_pipe_of_another_program_is_an_error(
    nights: History, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("hpcq.store.free_query.runs", breaks)
    assert run(["runs", "--db", str(nights.database)]) == 1
    assert "ended before it read its input" in capsys.readouterr().err


@pytest.mark.promise("`hpcq sql` needs little memory for an answer of any length, and prints its beginning at once.")
@pytest.mark.heavy
def test_a_large_answer_needs_little_memory_and_its_reader_sees_the_beginning_at_once(nights: History, tmp_path: Path) -> None:
    limited = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_DATA, ({_ROOM_BYTES},) * 2);"
        " from hpcq.cli.main import run; sys.exit(run(sys.argv[1:]))"
    )
    out = tmp_path / "out.txt"
    with out.open("wb") as file:
        argv = [sys.executable, "-c", limited, "sql", NUMBERS.format(400_000)]
        done = subprocess.run(argv, stdout=file, stderr=subprocess.PIPE, timeout=200, check=False, env=env(nights))
    assert (done.returncode, done.stderr) == (0, b"")
    assert out.read_bytes().count(b"\n") == 400_001
    argv = hpcq("sql", NUMBERS.format(10**12))
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env(nights)) as endless:
        assert endless.stdout is not None
        assert endless.stderr is not None
        assert endless.stdout.readline() == b"a\tt\n"
        endless.stdout.close()
        assert endless.stderr.read() == b""
    assert endless.returncode == BY_SIGPIPE


@pytest.mark.heavy
@pytest.mark.promise("A pager that waits in the middle of `hpcq sql` does not block the loading of runs.")
def test_a_reader_that_waits_keeps_no_writer_waiting(nights: History, tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    path.write_bytes(nights.database.read_bytes())
    query = f"{NUMBERS.format(20_000)}, (SELECT count(*) FROM run)"  # it reads a table: that is what holds a writer up
    argv = hpcq("sql", query, "--db", str(path))
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as pager:
        assert pager.stdout is not None
        pager.stdout.readline()
        until = time.monotonic() + 30
        with sqlite3.connect(path, timeout=1) as writer:
            while True:
                try:
                    writer.execute("CREATE TABLE IF NOT EXISTS written (a)")
                    writer.commit()
                    break
                except sqlite3.OperationalError:  # the answer is still being made
                    assert time.monotonic() < until
        assert pager.poll() is None, "it still holds what nobody has read"
        assert len(pager.stdout.read().splitlines()) == 20_000


@pytest.mark.promise("Ctrl-C ends a statement that SQLite works on.")
@pytest.mark.heavy
def test_the_keyboard_ends_a_long_statement(nights: History) -> None:
    query = "WITH RECURSIVE x(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM x) SELECT count(*) FROM x"
    with subprocess.Popen(hpcq("sql", query), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=env(nights)) as process:
        try:
            until = time.monotonic() + 60
            while Path(f"/proc/{process.pid}/stat").read_text().split()[13] < "20" and time.monotonic() < until:
                time.sleep(0.1)
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()  # a statement that no key ends would be waited for without end
    assert process.returncode == 1
    assert said.decode().strip().startswith("error: stopped from the keyboard\n")
    assert "queued" not in said.decode()


@pytest.mark.promise("`hpcq sql --limit` says that there are more rows; bytes are hexadecimal digits.")
def test_a_limit_is_told_and_bytes_are_digits(nights: History, capsys: pytest.CaptureFixture[str]) -> None:
    db = ["--db", str(nights.database)]
    assert run(["sql", NUMBERS.format(9), "--limit", "3", *db]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 4
    assert said.err == "the first 3 rows; there are more: --limit\n"
    assert run(["sql", NUMBERS.format(3), "--limit", "3", "--json", *db]) == 0
    said = capsys.readouterr()
    assert [row["a"] for row in json.loads(said.out)] == [1, 2, 3]
    assert said.err == ""
    assert run(["sql", "SELECT x'00ff' AS raw", "--json", *db]) == 0
    assert json.loads(capsys.readouterr().out) == [{"raw": "00ff"}]
    assert run(["sql", "SELECT 1 AS a WHERE 0", "--json", *db]) == 0
    assert json.loads(capsys.readouterr().out) == []
