"""What hpcq does at set times. It writes entries for systemd, crontab or a scheduler's own table, shows them first, and
can remove them.

    Entry (name, when, command)  ->  files or lines  ->  the timer calls `hpcq schedule tick NAME`
    tick    takes the entry's lock, or does nothing if the last start still runs; records start, end and exit code
    missed  entries that have not started for more than two of their periods

Entries live in $XDG_STATE_HOME/hpcq/schedule/NAME.json, with folder and command, so all timers have the same line.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hpcq import assets, units
from hpcq.errors import HpcqError, UserError
from hpcq.own_folder import secure
from hpcq.run_folder.paths import write_json, write_text
from hpcq.scheduler.kinds import DESCRIPTIONS
from hpcq.transport import Here, quote, run_here

# ----------------------------------------------------------------------------------------------------------------------
# The words of `--when`, and the same moments as cron and systemd write them.
#
# 02:00           every day, local time        Mon 02:00, Mon,Thu 02:00, Mon-Fri 02:00     on these days
# 5min, 2h        an interval that divides the hour or the day


_DAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_EVERY = re.compile(r"(\d{1,3})(min|h)")
_AT = re.compile(r"(?:(?P<days>[A-Za-z,-]+) )?(?P<hour>[01]\d|2[0-3]):(?P<minute>[0-5]\d)")
_ALLOWED = (
    "must be a time of day (02:00), days and a time (Mon 02:00, Mon,Thu 02:00, Mon-Fri 02:00),"
    " or 1, 5, 10, 15, 20, 30min, 1h, 2h, 3h, 4h, 6h, 12h"
)


def check_when(when: str) -> str:
    """The same words with days as `Mon`. Raises UserError that says what is allowed."""
    every, at = _EVERY.fullmatch(when), _AT.fullmatch(when)
    if at is not None:
        days = "" if at.group("days") is None else f"{_day_words(when, at.group('days'))} "
        return f"{days}{at.group('hour')}:{at.group('minute')}"
    if every is None or not _divides(int(every.group(1)), every.group(2)):
        raise UserError(f"--when {when!r}: {_ALLOWED}", "hours are 00 to 23, days Mon to Sun")
    return when


def is_interval(when: str) -> bool:
    """Whether these words are an interval and not a time of day."""
    return _EVERY.fullmatch(when) is not None


def period_s(when: str) -> int:
    """The longest time between two starts, in seconds."""
    every = _EVERY.fullmatch(when)
    if every is not None:
        return int(every.group(1)) * (60 if every.group(2) == "min" else 3600)
    days = _days_of(when)
    gaps = [(later - day) % 7 or 7 for day, later in zip(days, [*days[1:], days[0]], strict=True)]
    return max(gaps) * 86400


def cron_moments(when: str) -> str:
    """The five fields of a crontab line."""
    at, every = _AT.fullmatch(when), _EVERY.fullmatch(when)
    if at is not None:
        days = _days_of(when)
        named = "*" if len(days) == len(_DAYS) else ",".join(map(str, days))
        return f"{int(at.group('minute'))} {int(at.group('hour'))} * * {named}"
    count, unit = (every.group(1), every.group(2)) if every else ("1", "h")
    return f"*/{count} * * * *" if unit == "min" else f"0 */{count} * * *"


def systemd_calendar(when: str) -> str:
    """A calendar event of systemd."""
    minute, hour, *_ = cron_moments(when).split()
    if is_interval(when):
        return f"*-*-* *:{minute.replace('*/', '0/')}:00" if hour == "*" else f"*-*-* {hour.replace('*/', '0/')}:00:00"
    days, _, clock = when.rpartition(" ")
    return f"{days.replace('-', '..')} *-*-* {clock}:00".strip()


def _days_of(when: str) -> list[int]:
    """Numbers of the days, Sunday 0, in the order of the week; all seven where none is named."""
    words, _, _ = when.rpartition(" ")
    found: set[int] = set()
    for part in words.split(",") if words else _DAYS:
        first, _, last = part.partition("-")
        begin, end = _DAYS.index(first), _DAYS.index(last or first)
        found.update((begin + step) % 7 for step in range((end - begin) % 7 + 1))
    return sorted(found)


def _day_words(when: str, words: str) -> str:
    """The days with capitals. Raises UserError for a word that is no day."""
    for word in re.split("[,-]", words):
        if word.capitalize() not in _DAYS:
            raise UserError(f"--when {when!r}: {word!r} is not a day: {_ALLOWED}", f"days are {', '.join(_DAYS)}")
    if any(part.count("-") > 1 for part in words.split(",")):
        raise UserError(f"--when {when!r}: {_ALLOWED}", "a stretch of days has two ends: Mon-Fri")
    return re.sub("[A-Za-z]+", lambda word: word.group().capitalize(), words)


def _divides(count: int, unit: str) -> bool:
    return count > 0 and (60 if unit == "min" else 24) % count == 0 and (count < 60 if unit == "min" else count < 24)


# ----------------------------------------------------------------------------------------------------------------------


#: Schedulers' own timer tables, by the command that edits them.
_TABLES = {one.timer_table.command: one.timer_table for one in DESCRIPTIONS.values() if one.timer_table is not None}
KINDS = ("systemd", "crontab", *_TABLES)
#: What cron, cronie, busybox and schedulers' tables say if a user has no table yet.
_NO_TABLE = re.compile(r"no s?crontab|no such file", re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One scheduled action. when: `02:00`, `Mon,Thu 02:00` (local time), `5min`, `2h`. words: hpcq's arguments."""

    name: str
    kind: str
    when: str
    words: tuple[str, ...]
    folder: str
    since_utc: str
    started_utc: str | None = None
    ended_utc: str | None = None
    exit_code: int | None = None
    #: hpcq's arguments to run after each start; its exit code is watched like that of the command.
    then: tuple[str, ...] = ()
    then_exit_code: int | None = None

    @property
    def period_s(self) -> int:
        """Return the longest time between two starts, in seconds."""
        return period_s(self.when)


def new_entry(name: str, kind: str, moments: str, words: Sequence[str], folder: Path) -> Entry:
    """Check a new entry. Raises UserError that says what is allowed."""
    if not _NAME.fullmatch(name):
        raise UserError(f"{name!r}: must be small letters, digits and -, at most 41")
    return Entry(name, kind, check_when(moments), tuple(words), str(folder.absolute()), units.utc_now())


def shown(entry: Entry) -> dict[str, str]:
    """Return what `install` would write: file -> text; for tables, the added lines."""
    tick = f"{' '.join(map(quote, assets.own_command()))} schedule tick {entry.name}"
    if entry.kind == "systemd":
        folder = Path(os.environ.get("XDG_CONFIG_HOME") or assets.home() / ".config") / "systemd" / "user"
        calendar = f"OnCalendar={systemd_calendar(entry.when)}" + ("" if is_interval(entry.when) else "\nPersistent=true")
        return {
            str(folder / f"hpcq-{entry.name}.service"): f"[Unit]\nDescription=hpcq {entry.name}\n\n[Service]\nType=oneshot\n"
            f"ExecStart={tick.replace('%', '%%')}\n",
            str(
                folder / f"hpcq-{entry.name}.timer"
            ): f"[Unit]\nDescription=hpcq {entry.name}, {entry.when}\n\n[Timer]\n{calendar}\n"
            "RandomizedDelaySec=20\n\n[Install]\nWantedBy=timers.target\n",
        }
    options = _TABLES[entry.kind].lines if entry.kind in _TABLES else ()
    line = f"{cron_moments(entry.when)} {tick.replace('%', chr(92) + '%')}"
    return {entry.kind: "\n".join([f"# >>> hpcq {entry.name}", *options, line, f"# <<< hpcq {entry.name}", ""])}


#: Where the records of timers are at fault: whoever may write one chooses what is started.
_HINT = "chmod go-w what is named, or let XDG_CONFIG_HOME (else HOME) name a folder of yours: it holds what timers start"


def install(entry: Entry) -> None:
    """Write an entry; it replaces one with the same name. Raises HpcqError if others could change what the timer starts."""
    secure(Here(), "", [str(_folder())], hint=_HINT)
    if (_folder() / f"{entry.name}.json").exists():
        remove(entry.name)
    if entry.kind == "systemd":
        units_folder = Path(next(iter(shown(entry)))).parent
        for folder in reversed([units_folder, *units_folder.parents]):
            folder.mkdir(mode=0o700, exist_ok=True)
        for path, text in shown(entry).items():
            write_text(Path(path), text, mode=0o644)
        _systemctl("daemon-reload")
        _systemctl("enable", "--now", f"hpcq-{entry.name}.timer")
    else:
        _write_table(entry.kind, _without(_read_table(entry.kind), entry.name) + shown(entry)[entry.kind])
    write_json(_path(entry.name), asdict(entry))


def remove(name: str) -> None:
    """Remove an entry: first its timer or lines, then its record."""
    entry = find(name)
    if entry.kind == "systemd":
        _systemctl("disable", "--now", f"hpcq-{name}.timer")
        for path in shown(entry):
            Path(path).unlink(missing_ok=True)
        _systemctl("daemon-reload")
    else:
        _write_table(entry.kind, _without(_read_table(entry.kind), name))
    _path(name).unlink(missing_ok=True)


def tick(name: str) -> int | None:
    """Run an entry now; None if it still runs. Its output goes to NAME.log beside the record.

    Raises HpcqError if others could have changed what it starts.
    """
    if _folder().exists():  # else there is no such entry, and a wrong name makes no folder
        secure(Here(), "", [str(_folder())], hint=_HINT)
    entry = find(name)
    with (_folder() / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return None
        begun = replace(entry, started_utc=units.utc_now())
        write_json(_path(name), asdict(begun))
        log = _folder() / f"{name}.log"
        done = run_here([*assets.own_command(), *entry.words], cwd=Path(entry.folder), output=log)
        ended = replace(begun, ended_utc=units.utc_now(), exit_code=done.returncode)
        write_json(_path(name), asdict(ended))
        if entry.then:
            after = run_here([*assets.own_command(), *entry.then], cwd=Path(entry.folder), output=log)
            write_json(_path(name), asdict(replace(ended, then_exit_code=after.returncode)))
        return done.returncode


def entries() -> list[Entry]:
    """Return all entries, sorted by name."""
    return [_read(path) for path in sorted(_folder().glob("*.json"))]


def find(name: str) -> Entry:
    """One by name. Raises UserError that names what there is."""
    path = _path(name)
    if not path.is_file():
        known = ", ".join(entry.name for entry in entries()) or "none"
        raise UserError(f"{name!r} is not scheduled: there are {known}", "hpcq schedule list")
    return _read(path)


def missed(entry: Entry, now: dt.datetime | None = None) -> str | None:
    """Return what is wrong with an entry: no start for two periods, or a failed command; None if all is well."""
    present = now or dt.datetime.now(dt.UTC)
    last = units.parse_utc(entry.started_utc or entry.since_utc)
    if (present - last).total_seconds() > 2 * entry.period_s + 60:
        word = (
            "was never started" if entry.started_utc is None else f"last started {entry.started_utc[:16].replace('T', ' ')} UTC"
        )
        return f"{word}, though it is due {'every ' if is_interval(entry.when) else 'at '}{entry.when}"
    if entry.exit_code in {1, 2}:
        return f"ended with exit code {entry.exit_code}: its output is in {_folder() / entry.name}.log"
    if entry.then_exit_code:
        return f"its --then ended with exit code {entry.then_exit_code}: its output is in {_folder() / entry.name}.log"
    return None


def gone(entry: Entry) -> str | None:
    """Return what is missing of an entry: its timer or line is gone while its record remains; None if all is there."""
    if entry.kind == "systemd":
        missing = [path for path in shown(entry) if not Path(path).is_file()]
        if missing:
            return f"its timer is gone: {', '.join(missing)}"
        state = run_here(["systemctl", "--user", "is-enabled", f"hpcq-{entry.name}.timer"], timeout_s=60).text.strip()
        return f"its timer is {state}" if state in {"disabled", "masked", "not-found"} else None
    if f"hpcq schedule tick {entry.name}" not in _read_table(entry.kind):
        return f"its line is gone from the {entry.kind}"
    return None


def at_work(name: str) -> bool:
    """Whether an entry runs now."""
    try:
        with (_folder() / f"{name}.lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def log_of(name: str) -> Path:
    """Return the file that receives the output of an entry's command."""
    return _folder() / f"{name}.log"


def _read(path: Path) -> Entry:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return Entry(**{**fields, "words": tuple(fields["words"]), "then": tuple(fields.get("then", ()))})
    except (ValueError, TypeError, KeyError) as error:
        raise HpcqError(f"{path}: is not an entry: {error}", "remove the file, and schedule it again") from error


def _folder() -> Path:
    state = Path(os.environ.get("XDG_STATE_HOME") or assets.home() / ".local" / "state")
    return state / "hpcq" / "schedule"


def _path(name: str) -> Path:
    return _folder() / f"{name}.json"


def _systemctl(*words: str) -> None:
    done = run_here(["systemctl", "--user", *words], timeout_s=60)
    if done.returncode != 0:
        raise HpcqError(
            f"systemctl --user {' '.join(words)}: {done.stderr.strip() or 'failed'}",
            "timers of a user need `loginctl enable-linger`; --with crontab does without",
        )


def _read_table(kind: str) -> str:
    """Return all lines of the user's table.

    Raises HpcqError if it cannot be read: hpcq would overwrite a table that it takes for empty.
    """
    done = run_here([kind, "-l"], timeout_s=60, environment={**os.environ, "LC_ALL": "C"})
    if done.returncode == 0:
        return done.text
    if _NO_TABLE.search(done.stderr + done.text):
        return ""
    raise HpcqError(f"{kind} -l: {done.stderr.strip() or f'exit code {done.returncode}'}", "nothing was changed")


def _write_table(kind: str, text: str) -> None:
    done = run_here([kind, "-"], stdin=text.encode(), timeout_s=60)
    if done.returncode != 0:
        raise HpcqError(f"{kind}: {done.stderr.strip() or 'failed'}", "may this user have one? --with systemd does without")


def _without(table: str, name: str) -> str:
    """Return the table without the entry's lines; all else stays unchanged, byte for byte."""
    begin, end = re.escape(f"# >>> hpcq {name}\n"), re.escape(f"# <<< hpcq {name}\n")
    cut = re.sub(rf"^{begin}.*?^{end}", "", table, flags=re.MULTILINE | re.DOTALL)
    return cut if not cut or cut.endswith("\n") else f"{cut}\n"
