"""Turn the words that people use for times into bounds that compare with the database's times.

    30d  12h  2w            that long ago
    now  now-7d  today  yesterday
    2026  2026-11  2026-11-20  2026-11-20T02:00      a stretch as long as the part that the word leaves open
    latest, a run, a campaign                   the run (of a campaign: its last one)
    baseline:NAME                               the runs of a baseline
    A..B                                        from A to B; either side may be left out

Bounds have no Z and may be the beginning of a time, so comparing them as plain text suffices.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass

from hpcq.errors import UserError
from hpcq.store.database import Connection
from hpcq.store.query import find_run

_LENGTH = re.compile(r"(\d+(?:\.\d+)?)(min|h|d|w|m|y)")
_MOMENT = re.compile(r"\d{4}(-\d{2}(-\d{2}([T ]\d{2}(:\d{2}(:\d{2}(\.\d+)?)?)?Z?)?)?)?")
_DAYS = {"min": 1 / 1440, "h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0, "y": 365.0}
#: Sorts after every continuation of a time.
_BEHIND = "~"
_HINT = "give 30d, now-7d, 2026, 2026-11, 2026-11-20T02:00, latest, a run, a campaign, baseline:NAME, or A..B"


#: When a result was measured; the creation of its run where it never began.
AT_UTC = "coalesce(x.started_utc, r.created_utc)"
#: Results with their run, for conditions of `within`.
RESULTS = (
    "FROM result x JOIN job j ON j.job_id = x.job_id JOIN run_cluster rc ON rc.run_cluster_id = j.run_cluster_id"
    " JOIN run r ON r.run_id = rc.run_id LEFT JOIN retraction t ON t.result_id = x.result_id"
)


@dataclass(frozen=True, slots=True)
class Window:
    """A selection: from_utc <= started_utc < until_utc (None: no bound), and only these runs (None: any)."""

    text: str
    from_utc: str | None = None
    until_utc: str | None = None
    run_ids: tuple[int, ...] | None = None


def moment(database: Connection, text: str, now: dt.datetime | None = None) -> str:
    """The beginning of the time that `text` names. Raises UserError with what is allowed."""
    found = window(database, text, now)
    if found.from_utc is not None:
        return found.from_utc
    if found.run_ids:
        marks = ",".join("?" * len(found.run_ids))
        query = f"SELECT min(created_utc) FROM run WHERE run_id IN ({marks})"  # noqa: S608 - question marks only
        return str(database.execute(query, found.run_ids).fetchone()[0])[:19]
    raise UserError(f"{text!r} has no beginning", _HINT)


def window(database: Connection, text: str, now: dt.datetime | None = None) -> Window:
    """The window that `text` names. Raises UserError with what is allowed."""
    present = now or dt.datetime.now(dt.UTC)
    if ".." in text:
        first, _, last = (part.strip() for part in text.partition(".."))
        from_utc = moment(database, first, present) if first else None
        until_utc = _end(database, last, present) if last else None
        if from_utc is not None and until_utc is not None and from_utc >= until_utc:
            raise UserError(f"{text!r}: {first} is not before {last}", "write the earlier moment first: 90d..30d")
        return Window(text, from_utc, until_utc)
    bounds = _bounds(text.strip(), present)
    if bounds is not None:
        return Window(text, *bounds)
    if text.startswith("baseline:"):
        return Window(text, run_ids=baseline_runs(database, text.partition(":")[2]))
    try:
        name = find_run(database, text)
    except UserError as error:
        raise UserError(f"{error.message}, and no time either", f"{_HINT}; {error.hint}") from error
    return Window(text, run_ids=(int(database.execute("SELECT run_id FROM run WHERE name = ?", (name,)).fetchone()[0]),))


def is_length(text: str) -> bool:
    """Whether a text is a length of time: 30d, 12h."""
    return _LENGTH.fullmatch(text) is not None


def baseline_runs(database: Connection, name: str) -> tuple[int, ...]:
    """The runs of the baseline that holds under NAME or `baseline:NAME`. Raises UserError that lists the baselines."""
    name = name.removeprefix("baseline:")
    rows = database.execute("SELECT DISTINCT run_id FROM v_baselines WHERE baseline = ? AND holds = 1", (name,)).fetchall()
    if not rows:
        known = [str(row[0]) for row in database.execute("SELECT DISTINCT baseline FROM v_baselines ORDER BY baseline")]
        hint = f"there are {', '.join(known)}" if known else "hpcq baseline set NAME RUN... makes one"
        raise UserError(f"{name!r} is not a baseline", hint)
    return tuple(int(row[0]) for row in rows)


def run_ids(database: Connection) -> dict[str, int]:
    """Row number of every run, by its name."""
    return {str(row[1]): int(row[0]) for row in database.execute("SELECT run_id, name FROM run")}


def newest_runs(database: Connection, cluster: str, count: int) -> tuple[int, ...]:
    """The last `count` runs on a cluster, the newest first."""
    rows = database.execute(
        "SELECT r.run_id FROM run r JOIN run_cluster rc ON rc.run_id = r.run_id JOIN cluster c ON c.cluster_id = rc.cluster_id"
        " WHERE c.name = ? ORDER BY r.created_utc DESC LIMIT ?",
        (cluster, count),
    )
    return tuple(int(row[0]) for row in rows)


def runs_before(database: Connection, cluster: str, run_id: int, count: int) -> tuple[int, ...]:
    """The last `count` runs on a cluster before a run began, the newest first."""
    rows = database.execute(
        "SELECT r.run_id FROM run r JOIN run_cluster rc ON rc.run_id = r.run_id JOIN cluster c ON c.cluster_id = rc.cluster_id"
        " WHERE c.name = ? AND r.created_utc < (SELECT created_utc FROM run WHERE run_id = ?)"
        " ORDER BY r.created_utc DESC LIMIT ?",
        (cluster, run_id, count),
    )
    return tuple(int(row[0]) for row in rows)


def clusters_of(database: Connection, run_ids: Sequence[int]) -> list[str]:
    """The clusters that these runs were on, by name."""
    marks = ",".join("?" * len(run_ids))
    query = (
        "SELECT DISTINCT c.name FROM cluster c JOIN run_cluster rc ON rc.cluster_id = c.cluster_id"  # noqa: S608 - marks only
        f" WHERE rc.run_id IN ({marks}) ORDER BY c.name"
    )
    rows = database.execute(query, tuple(run_ids))
    return [str(row[0]) for row in rows]


def looks_like_a_time(text: str) -> bool:
    """Whether a word was meant as a date: digits as in 2026-02-30 or 20261101, even if no calendar has that day."""
    return re.fullmatch(r"\d{4}-?\d{1,2}(-?\d{1,2})?([T ].*)?", text) is not None


def _end(database: Connection, text: str, now: dt.datetime) -> str | None:
    """Where a stretch that ends with `text` ends: a date includes all of it; a length is the moment that long ago."""
    bounds = _bounds(text, now)
    if bounds is None or _LENGTH.fullmatch(text):
        return moment(database, text, now)
    return bounds[1] if bounds[1] is not None else bounds[0]


def _bounds(text: str, now: dt.datetime) -> tuple[str, str | None] | None:
    """First and last bound of a time word; None if `text` is none."""
    if _MOMENT.fullmatch(text):
        plain = text.rstrip("Z").replace(" ", "T")
        _check_date(text, plain)
        return plain, plain + _BEHIND
    if text in {"today", "yesterday"}:
        day = (now - dt.timedelta(days=1 if text == "yesterday" else 0)).strftime("%Y-%m-%d")
        return day, day + _BEHIND
    if text == "now":
        return _text(now), None
    match = _LENGTH.fullmatch(text.removeprefix("now-"))
    if match is None:
        return None
    try:
        return _text(now - dt.timedelta(days=float(match.group(1)) * _DAYS[match.group(2)])), None
    except OverflowError:
        return "0000", None


def _check_date(text: str, plain: str) -> None:
    """Raise UserError for a day or hour that no calendar has. 2026-02-30 would otherwise select nothing."""
    whole = plain + "0001-01-01T00:00:00"[len(plain) :] if len(plain) < len("0001-01-01T00:00:00") else plain
    try:
        dt.datetime.fromisoformat(whole)
    except ValueError as error:
        raise UserError(f"{text!r} is not a date: {error}", _HINT) from error


def _text(at: dt.datetime) -> str:
    return at.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")


def within(window: Window) -> tuple[str, dict[str, str]]:
    """The condition for results that count and lie in this stretch, and its values."""
    conditions, bound = ["x.final = 1", "t.result_id IS NULL"], {}
    if window.from_utc is not None:
        conditions.append(f"{AT_UTC} >= :from_utc")
        bound["from_utc"] = window.from_utc
    if window.until_utc is not None:
        conditions.append(f"{AT_UTC} < :until_utc")
        bound["until_utc"] = window.until_utc
    if window.run_ids is not None:
        conditions.append(f"r.run_id IN ({', '.join(str(int(one)) for one in window.run_ids)})")
    return " AND ".join(conditions), bound


def runs_in(database: Connection, window: Window) -> list[int]:
    """The run_id of every run with a planned result in this stretch."""
    condition, bound = within(window)
    return [int(row[0]) for row in database.execute(f"SELECT DISTINCT r.run_id {RESULTS} WHERE {condition}", bound)]


def run_id_of(database: Connection, name: str) -> int:
    """The database number of a run."""
    return int(database.execute("SELECT run_id FROM run WHERE name = ?", (name,)).fetchone()[0])
