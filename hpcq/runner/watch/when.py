"""The words of `--when`, and the same moments as cron and systemd write them.

02:00           every day, local time        Mon 02:00, Mon,Thu 02:00, Mon-Fri 02:00     on these days
5min, 2h        an interval that divides the hour or the day
"""

from __future__ import annotations

import re

from hpcq.errors import UserError

_DAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_EVERY = re.compile(r"(\d{1,3})(min|h)")
_AT = re.compile(r"(?:(?P<days>[A-Za-z,-]+) )?(?P<hour>[01]\d|2[0-3]):(?P<minute>[0-5]\d)")
_ALLOWED = (
    "allowed are a time of day (02:00), days and a time (Mon 02:00, Mon,Thu 02:00, Mon-Fri 02:00),"
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


def cron(when: str) -> str:
    """The five fields of a crontab line."""
    at, every = _AT.fullmatch(when), _EVERY.fullmatch(when)
    if at is not None:
        days = _days_of(when)
        named = "*" if len(days) == len(_DAYS) else ",".join(map(str, days))
        return f"{int(at.group('minute'))} {int(at.group('hour'))} * * {named}"
    count, unit = (every.group(1), every.group(2)) if every else ("1", "h")
    return f"*/{count} * * * *" if unit == "min" else f"0 */{count} * * *"


def calendar(when: str) -> str:
    """A calendar event of systemd."""
    minute, hour, *_ = cron(when).split()
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
