"""The journal survives a crash, a second writer, a full disk."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcq.errors import StoreError
from hpcq.run_folder.journal import Journal, fold, read_journal

pytestmark = pytest.mark.fast

ATTEMPT = {"event": "attempt", "job": "j00001", "attempt_no": 1, "tag": "t1", "nodes": ["n1", "n2"]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "alpha" / "journal.jsonl"


def test_events_come_back_in_order_with_their_time(path: Path) -> None:
    with Journal(path) as journal:
        journal.append("opened")
        journal.append_all([ATTEMPT, {"event": "submitted", "tag": "t1", "scheduler_job_id": "17"}])
    events = read_journal(path)
    assert [event["event"] for event in events] == ["opened", "attempt", "submitted"]
    assert all(event["utc"].endswith("Z") for event in events)
    assert next(iter(events[0])) == "utc"
    with Journal(path) as journal:
        assert journal.events == events


def test_no_file_is_no_event(path: Path) -> None:
    assert read_journal(path) == []


@pytest.mark.promise("Who reads a journal while its driver makes it finds no event or the first ones, and no error.")
def test_a_journal_that_is_made_meanwhile_is_read(path: Path) -> None:
    path.parent.mkdir()
    ended = threading.Event()

    def make() -> None:
        while not ended.is_set():
            path.write_bytes(b"")
            path.unlink()

    maker = threading.Thread(target=make)
    maker.start()
    try:
        assert all(read_journal(path) == [] for _ in range(20_000))
    finally:
        ended.set()
        maker.join()


@pytest.mark.parametrize(
    "put", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere")], ids=["folder", "pipe", "link"]
)
def test_what_stands_in_place_of_a_journal_is_no_empty_one(path: Path, put: Callable[[Path], None]) -> None:
    path.parent.mkdir()
    put(path)
    with pytest.raises(StoreError, match=r"journal\.jsonl: cannot be read: is a (link|pipe)"):
        read_journal(path)


@pytest.mark.promise("A torn last line of the journal is cut off when it is opened again.")
@pytest.mark.parametrize("torn", [b'{"utc":"2026', b'{"utc": 1}\n', b"\0\0\0\0", b"\xff\xfe\n", b"[1]\n", b"[" * 5000 + b"\n"])
def test_a_torn_last_line_is_cut_off(path: Path, torn: bytes) -> None:
    with Journal(path) as journal:
        journal.append("opened")
    with path.open("ab") as file:
        file.write(torn)
    assert [event["event"] for event in read_journal(path)] == ["opened"]
    with Journal(path) as journal:
        journal.append("closed")
    assert [event["event"] for event in read_journal(path)] == ["opened", "closed"]


@pytest.mark.promise("An event of the journal with a value that hpcq cannot have written is an error with line and field.")
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"utc": True}, "utc: True: must be a time"),
        ({"utc": "2026-99-99T00:00:00Z"}, "utc: 2026-99-99"),
        ({"tag": {}}, "tag: {}: must be a text"),
        ({"job": "j\n"}, "job: "),
        ({"job": [1]}, "job: [1]: must be a text"),
        ({"pairs": [None]}, "job: ['j00001', None]: must be a job like j00001"),
        ({"attempt_no": 10**400}, "attempt_no: 1000"),
        ({"attempt_no": "1"}, "attempt_no: 1: must be a whole number"),
        ({"nodes": [{}]}, "nodes: [{}]: must be names"),
        ({"event": "ended", "outcome": "fine"}, "outcome: fine: must be one of"),
        ({"event": []}, "event: []: must be a text"),
    ],
)
def test_a_value_that_hpcq_cannot_have_written(path: Path, changed: dict[str, object], said: str) -> None:
    event = {"event": "attempt", "job": "j00001", "attempt_no": 1, "tag": "t", "nodes": ["n1"], "outcome": "lost", "reason": ""}
    with Journal(path) as journal:
        journal.append("opened")
    whole = {"utc": "2026-11-21T02:00:00.000000Z", **event}
    with path.open("a") as file:
        file.write(json.dumps(whole) + "\n")
    assert len(read_journal(path)) == 2
    with path.open("a") as file:
        file.write(json.dumps(whole | changed) + "\n")
    with pytest.raises(StoreError, match=re.escape(f"{path}:3: {said}")):
        read_journal(path)


@pytest.mark.promise("A damaged line in the middle of the journal is an error.")
def test_a_damaged_line_in_the_middle_is_not_passed_over(path: Path) -> None:
    with Journal(path) as journal:
        journal.append("opened")
        journal.append("closed")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0][:20] + b"\n" + lines[1])
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"journal\.jsonl:1: not a journal event"):
        read_journal(path)
    with pytest.raises(StoreError, match=r":1:"):
        Journal(path)
    assert path.read_bytes() == before


def test_one_writer_and_the_other_hears_who(path: Path) -> None:
    with Journal(path) as journal:
        journal.append("opened")
        with pytest.raises(StoreError, match=f"held by pid {os.getpid()} on ") as raised:
            Journal(path)
        assert raised.value.hint
        assert len(read_journal(path)) == 1  # reading needs no lock, and does not break it
        with pytest.raises(StoreError, match="held by"):
            Journal(path)
    Journal(path).close()


@pytest.fixture
def locks_that_lock_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Lustre with localflock or NFS with local_lock: every process gets the lock."""
    monkeypatch.setattr("hpcq.run_folder.journal.fcntl.flock", lambda *_: None)


@pytest.mark.promise("A journal has one writer, also where locks lock nothing.")
@pytest.mark.usefixtures("locks_that_lock_nothing")
def test_two_heads_whose_locks_lock_nothing_have_one_writer(path: Path) -> None:
    with Journal(path) as journal:
        journal.append("opened")
        with pytest.raises(StoreError, match=f"held by process {os.getpid()} on ") as raised:
            Journal(path)
        assert raised.value.hint
        journal.append("closed")
    with Journal(path) as journal:
        assert [event["event"] for event in journal.events] == ["opened", "closed"]


@pytest.mark.promise("A living driver on another head node keeps its lease.")
@pytest.mark.heavy
@pytest.mark.usefixtures("locks_that_lock_nothing")
def test_a_driver_on_another_head_is_alive_as_long_as_its_link_is_touched(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcq.writer_lock.STALE_S", 1.0)
    path.parent.mkdir()
    link = path.with_name("journal.jsonl.writer")
    link.symlink_to("head2/boot/pid:[1]/77/5/00")
    done = threading.Event()

    def touch() -> None:
        while not done.wait(0.2):
            os.utime(link, follow_symlinks=False)

    thread = threading.Thread(target=touch)
    thread.start()
    try:
        with pytest.raises(StoreError, match="held by process 77 on head2"):
            Journal(path)
    finally:
        done.set()
        thread.join()
    Journal(path).close()  # nobody touched it for STALE_S: that driver is dead


@pytest.mark.promise("A driver whose run another one took over writes nothing more.")
def test_a_driver_that_was_taken_for_dead_writes_nothing_more(path: Path) -> None:
    with Journal(path) as journal:
        journal.append("opened")
        path.with_name("journal.jsonl.writer").unlink()
        path.with_name("journal.jsonl.writer").symlink_to("head2/boot/pid:[1]/77/5/00")
        with pytest.raises(StoreError, match="another driver took this run over"):
            journal.append("closed")
    assert len(read_journal(path)) == 1
    assert path.with_name("journal.jsonl.writer").is_symlink(), "the other driver's link stays"


@pytest.mark.heavy
def test_the_lock_of_a_killed_writer_is_free(path: Path) -> None:
    code = """
        import sys, time
        from pathlib import Path
        from hpcq.run_folder.journal import Journal
        journal = Journal(Path(sys.argv[1]))
        journal.append("opened")
        print("held", flush=True)
        time.sleep(60)
    """
    writer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"held\n"
    with pytest.raises(StoreError, match=f"pid {writer.pid} "):
        Journal(path)
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    with Journal(path) as journal:
        assert [event["event"] for event in journal.events] == ["opened"]


def test_what_could_not_be_written_is_not_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(path) as journal:
        journal.append("opened")
        whole = path.read_bytes()
        write = os.write

        def half_once(descriptor: int, content: bytes) -> int:
            monkeypatch.setattr(os, "write", full)
            return write(descriptor, content[:20])

        def full(_: int, __: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "write", half_once)
        with pytest.raises(StoreError, match="No space left"):
            journal.append_all([ATTEMPT])
        monkeypatch.undo()
        assert path.read_bytes() == whole
        journal.append("closed")
    assert [event["event"] for event in read_journal(path)] == ["opened", "closed"]


@pytest.mark.promise("An event counts only after it is synced to disk.")
def test_an_event_is_synced_before_it_counts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(path) as journal:
        done: list[str] = []
        write, sync = os.write, os.fsync

        def seen_write(descriptor: int, content: bytes) -> int:
            done.append("write")
            return write(descriptor, content)

        def seen_sync(descriptor: int) -> None:
            done.append("sync")
            sync(descriptor)

        monkeypatch.setattr(os, "write", seen_write)
        monkeypatch.setattr(os, "fsync", seen_sync)
        journal.append("opened")
        assert done == ["write", "sync"]
        journal.append_all([ATTEMPT, {"event": "submitted", "tag": "t1", "scheduler_job_id": "17"}])
        assert done == ["write", "sync"] * 2, "one wait for the disk for several events"


@pytest.mark.promise("Nothing of an event that could not be written stays in the journal.")
def test_what_could_not_be_synced_is_not_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(path) as journal:
        journal.append("opened")

        def broken(_: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(StoreError, match="Input/output error"):
            journal.append_all([ATTEMPT])
        monkeypatch.undo()
    assert [event["event"] for event in read_journal(path)] == ["opened"]


def test_unwritable_folder(tmp_path: Path) -> None:
    (tmp_path / "alpha").write_text("a file where a folder should be")
    with pytest.raises(StoreError, match="alpha"):
        Journal(tmp_path / "alpha" / "journal.jsonl")


@pytest.mark.parametrize(
    "event",
    [
        {"event": "submitted", "tag": "t1"},
        {"event": "sumbitted", "tag": "t1", "scheduler_job_id": "1"},
        {"event": "ended", "tag": "t1", "outcome": "done", "reason": "", "nodes": [], "rc": 0},
    ],
)
def test_a_misspelt_event_is_refused_before_it_is_written(path: Path, event: dict[str, Any]) -> None:
    with Journal(path) as journal:
        with pytest.raises(ValueError, match=r"lacks|not a valid|is no outcome"):
            journal.append_all([event])
        assert path.read_bytes() == b""


def test_values_with_line_breaks_stay_on_their_line(path: Path) -> None:
    message = "sbatch: error:\n  invalid\r account \u2028 \x85"
    with Journal(path) as journal:
        journal.append_all([ATTEMPT, {"event": "refused", "tag": "t1", "message": message}])
    assert read_journal(path)[1]["message"] == message
    assert len(path.read_bytes().splitlines()) == 2


def test_fold_tells_the_state_of_every_attempt(path: Path) -> None:
    second = {**ATTEMPT, "tag": "t2", "attempt_no": 2}
    ending = {"event": "ended", "tag": "t1", "outcome": "node_failed", "reason": "NODE_FAIL", "nodes": ["n1", "n2"], "rc": None}
    with Journal(path) as journal:
        journal.append("opened")
        journal.append("not_run", job="j00001", pair=["n1", "n2"], reason="not idle")
        journal.append_all([ATTEMPT, {"event": "submitted", "tag": "t1", "scheduler_job_id": "17"}])
        journal.append_all([{"event": "state", "tag": "t1", "state": "running", "reason": ""}, ending])
        journal.append_all([second, {"event": "submitted", "tag": "t2", "scheduler_job_id": "18"}])
        journal.append("not_run", job="j00002", pair=["n2", "n1"], reason="cancelled")
    state = fold(read_journal(path))
    first, last = state.attempts.values()
    assert (first.outcome, first.scheduler_job_id, first.describe()) == (
        "node_failed",
        "17",
        "attempt 1 node_failed: NODE_FAIL",
    )
    assert (last.live, last.describe()) == (True, "attempt 2 queued")
    assert state.not_run == {1: "cancelled"}
    assert state.closed_utc is None
    with Journal(path) as journal:
        journal.append("closed")
    assert fold(read_journal(path)).closed_utc


@pytest.mark.promise("A driver that finds nothing to do does not change when its run was settled.")
def test_a_run_is_settled_when_its_last_work_ended() -> None:
    first = [{"utc": "2026-11-21T02:00:00Z", "event": "opened"}, {"utc": "2026-11-21T02:01:00Z", "event": "closed"}]
    idle = [{"utc": "2026-11-21T03:00:00Z", "event": "opened"}, {"utc": "2026-11-21T03:01:00Z", "event": "closed"}]
    assert fold(first).closed_utc == fold([*first, *idle]).closed_utc == fold([*first, *idle, *idle]).closed_utc
    assert fold([*first, idle[0]]).closed_utc is None
    work: list[dict[str, Any]] = [idle[0], {"utc": "2026-11-21T03:00:30Z"} | ATTEMPT, idle[1]]
    assert fold([*first, *work]).closed_utc == "2026-11-21T03:01:00Z"


def test_fold_passes_over_what_it_does_not_know() -> None:
    events = [json.loads('{"utc": "2026-11-21T00:00:00Z", "event": "new_in_a_later_version"}')]
    assert fold([*events, {"utc": "x", "event": "ended", "tag": "nobody's"}]).attempts == {}
