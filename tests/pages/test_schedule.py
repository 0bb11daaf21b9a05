"""Scheduling: what is written where, that it goes away again, that nothing piles up, and that missed starts are seen."""

from __future__ import annotations

import datetime as dt
import fcntl
from pathlib import Path

import pytest

from hpcq.cli.main import run
from hpcq.errors import UserError
from hpcq.runner.watch import schedule
from hpcq.runner.watch import schedule as words
from hpcq.units import parse_utc

pytestmark = pytest.mark.fast

OTHERS = "MAILTO=me\n0 4 * * * backup\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, with stand-ins for systemctl and crontab that keep what they are told."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    programs = tmp_path / "bin"
    programs.mkdir()
    table = tmp_path / "table"
    table.write_text(OTHERS)
    for name in ("crontab", "scrontab"):
        (programs / name).write_text(f'#!/bin/sh\n[ "$1" = -l ] && exec cat {table}\nexec cat >{table}\n')
    (programs / "systemctl").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/systemctl.log\n')
    for path in programs.iterdir():
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_crontab_keeps_what_is_there(home: Path) -> None:
    words = ["schedule", "add", "watch", "--when", "5min", "--with", "crontab"]
    for _ in range(2):
        assert run([*words, "--", "accept", "demo", "--against", "good"]) == 0
    text = (home / "table").read_text()
    assert text.startswith(OTHERS)
    assert text.count("hpcq schedule tick watch") == 1
    assert "*/5 * * * * " in text
    assert run(["schedule", "remove", "watch"]) == 0
    assert (home / "table").read_text() == OTHERS
    assert run(["schedule", "remove", "watch"]) == 2


@pytest.mark.parametrize("words", ["crontab: your table: Input/output error", ""])
def test_a_table_that_cannot_be_read_is_not_written_over(home: Path, words: str) -> None:
    stand_in = (
        (home / "bin" / "crontab").read_text().replace(f"exec cat {home}/table\n", f"{{ echo '{words}' >&2; exit 1; }}\n", 1)
    )
    (home / "bin" / "crontab").write_text(stand_in)
    assert run(["schedule", "add", "watch", "--when", "5min", "--with", "crontab", "--", "status"]) == 1
    assert (home / "table").read_text() == OTHERS
    assert run(["schedule", "list"]) == 0, "and nothing is on record"


def test_the_first_line_of_a_table(home: Path) -> None:
    (home / "table").unlink()  # cat says "No such file", as some crontabs do
    assert run(["schedule", "add", "watch", "--when", "5min", "--with", "crontab", "--", "status"]) == 0
    assert "hpcq schedule tick watch" in (home / "table").read_text()


def test_scrontab_and_systemd(home: Path) -> None:
    assert run(["schedule", "add", "nightly", "--when", "02:30", "--with", "scrontab", "--", "run", "demo"]) == 0
    assert "#SCRON" in (home / "table").read_text()
    assert "30 2 * * * " in (home / "table").read_text()
    assert run(["schedule", "add", "nightly", "--when", "02:30", "--", "run", "demo"]) == 0
    assert (home / "table").read_text() == OTHERS, "the same name by other means replaces it"
    timer = home / "config" / "systemd" / "user" / "hpcq-nightly.timer"
    assert "OnCalendar=*-*-* 02:30:00\nPersistent=true" in timer.read_text()
    assert "enable --now hpcq-nightly.timer" in (home / "systemctl.log").read_text()
    assert run(["schedule", "remove", "nightly"]) == 0
    assert not timer.exists()


def test_a_misspelt_verb_is_refused_when_it_is_scheduled(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schedule", "add", "nightly", "--when", "2h", "--", "reslts"]) == 2
    assert "results" in capsys.readouterr().err
    assert not (home / "state").exists()
    assert not (home / "systemctl.log").exists()


def test_dry_run_writes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schedule", "add", "nightly", "--when", "2h", "--dry-run", "--", "run", "demo"]) == 0
    assert "OnCalendar=*-*-* 0/2:00:00" in capsys.readouterr().out
    assert not (home / "state").exists()
    assert not (home / "config").exists()


@pytest.mark.promise("A schedule on weekdays starts on those days.")
@pytest.mark.parametrize(
    ("when", "cron", "calendar", "days"),
    [
        ("02:00", "0 2 * * *", "*-*-* 02:00:00", 1),
        ("mon 02:00", "0 2 * * 1", "Mon *-*-* 02:00:00", 7),
        ("Mon,Thu 02:30", "30 2 * * 1,4", "Mon,Thu *-*-* 02:30:00", 4),
        ("Mon-Fri 23:00", "0 23 * * 1,2,3,4,5", "Mon..Fri *-*-* 23:00:00", 3),
        ("Sat-Mon 04:00", "0 4 * * 0,1,6", "Sat..Mon *-*-* 04:00:00", 5),
    ],
)
def test_days_of_the_week(when: str, cron: str, calendar: str, days: int) -> None:
    entry = schedule.new_entry("x", "systemd", when, ["status"], Path())
    assert (words.cron_moments(entry.when), words.systemd_calendar(entry.when)) == (cron, calendar)
    assert entry.period_s == days * 86400


@pytest.mark.parametrize(
    "when", ["7min", "90min", "25:00", "2:00", "often", "0min", "Funday 02:00", "Mon-Tue-Wed 02:00", "Mon"]
)
def test_times_that_cannot_be(when: str) -> None:
    with pytest.raises(UserError, match="must be"):
        schedule.new_entry("x", "crontab", when, ["status"], Path())


@pytest.mark.heavy
def test_ticks_do_not_pile_up(home: Path) -> None:
    assert run(["schedule", "add", "kernels", "--when", "1h", "--with", "crontab", "--", "kernels"]) == 0
    assert schedule.tick("kernels") == 0
    assert "tcp_stream" in (home / "state" / "hpcq" / "schedule" / "kernels.log").read_text()
    with (home / "state" / "hpcq" / "schedule" / "kernels.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert schedule.tick("kernels") is None
    entry = schedule.find("kernels")
    assert (entry.exit_code, schedule.missed(entry)) == (0, None)


@pytest.mark.heavy
def test_missed_starts_are_seen() -> None:
    assert run(["schedule", "add", "watch", "--when", "5min", "--with", "crontab", "--", "status"]) == 0
    entry = schedule.find("watch")
    since = parse_utc(entry.since_utc)
    assert schedule.missed(entry, since + dt.timedelta(minutes=10)) is None
    assert "never started" in str(schedule.missed(entry, since + dt.timedelta(minutes=12)))
    assert run(["schedule", "list"]) == 0
    assert schedule.tick("watch") == 2
    assert "exit code 2" in str(schedule.missed(schedule.find("watch")))
    assert run(["schedule", "list"]) == 1
