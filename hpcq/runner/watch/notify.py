"""Tell a command of the site about verdicts that changed: it gets them as JSON on its standard input.

    verdicts now (ledger, the judge, last run of each campaign)  -  what was told last  =  changed  ->  command  ->  told

What was told stands beside the database in DATABASE.told.json. It is written only after the command has ended with 0,
so a mail that could not be sent is tried again next time. The first time, everything that is not a pass is a change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcq.errors import HpcqError
from hpcq.run_folder.paths import NoFileError, read_regular, write_json
from hpcq.store.database import Connection, reading
from hpcq.transport import run_here
from hpcq.units import count_of, utc_now
from hpcq.verdict.words import Verdict

if TYPE_CHECKING:
    pass

#: A command that hangs must not keep a schedule from its next start.
TIMEOUT_S = 300.0
_CAMPAIGN = "campaign"
#: Of what the judge says, from when on it counts how much it could judge.
_STRETCH = "90d"


@dataclass(frozen=True, slots=True)
class Notice:
    """One verdict. kind: node, link, group, class, cluster, between (two groups), or campaign (its last run). cluster: empty
    for a campaign.
    """

    kind: str
    cluster: str
    name: str
    verdict: str
    reason: str
    decided_utc: str
    run: str | None

    @property
    def key(self) -> str:
        """What it is about, the same for each verdict on it."""
        return "/".join((self.kind, self.cluster, self.name))


@dataclass(frozen=True, slots=True)
class ChangedVerdict:
    """A verdict that differs from the one before. before: None where nothing was told of it yet."""

    before: str | None
    now: Notice

    def to_json(self) -> dict[str, Any]:
        """The fields that the command gets."""
        return {**asdict(self.now), "before": self.before}


def notify(database: Path, command: Sequence[str], *, dry_run: bool = False) -> list[ChangedVerdict]:
    """Run the command once if any verdict changed; returns the changes. dry_run: run nothing, remember nothing.

    Raises HpcqError if the command fails; then the same changes are told again next time.
    """
    told_path = database.with_name(f"{database.name}.told.json")
    before = _told_before(told_path)
    with reading(database) as connection:
        now = list(_verdicts(connection))
    known = {one.key for one in now}
    now += [
        _ended(key)
        for key, verdict in before.items()
        if key not in known and verdict != Verdict.PASS and not key.startswith(_CAMPAIGN)
    ]
    changed = [ChangedVerdict(before.get(one.key), one) for one in now if before.get(one.key, "pass") != one.verdict]
    if dry_run:
        return changed
    if changed:
        text = json.dumps({"format": 1, "database": str(database.absolute()), "changed": [one.to_json() for one in changed]})
        done = run_here(list(command), stdin=text.encode(), timeout_s=TIMEOUT_S)
        if done.returncode != 0:
            said = (done.stderr or done.text).strip().splitlines()
            why = f": {said[-1]}" if said else ""
            raise HpcqError(
                f"{command[0]}: ended with exit code {done.returncode}{why}",
                f"{count_of(len(changed), 'change')} will be reported again next time",
            )
    write_json(told_path, {"format": 1, "verdicts": {one.key: one.verdict for one in now}})
    return changed


def _verdicts(connection: Connection) -> Iterator[Notice]:
    """Every verdict that holds now. What the judge tells of a thing is worse than a pass that the ledger has of it."""
    from hpcq.store.ledger import last_verdicts
    from hpcq.store.query import last_runs

    told = {one.key: one for one in _causes(connection)}
    for one in last_verdicts(connection):
        key = "/".join((one.kind.value, one.cluster, one.name))
        if key in told and one.verdict not in {Verdict.FAILED, Verdict.DEGRADED}:
            continue
        told.pop(key, None)
        yield Notice(one.kind.value, one.cluster, one.name, one.verdict.value, one.reason, one.decided_utc, one.run)
    yield from told.values()
    for campaign, run in last_runs(connection).items():
        yield _of_run(connection, campaign, run)


def _causes(connection: Connection) -> Iterator[Notice]:
    """What the judge tells, as `hpcq regressions` does; what it only suspects is nobody's mail."""
    from hpcq.analysis.standing import standings
    from hpcq.store.query import names

    for standing in standings(connection, names(connection, "cluster"), _STRETCH):
        for cause in standing.causes:
            if cause.is_told:
                kind = "cluster" if cause.thing == "night" else cause.thing
                name = " - ".join(cause.names) or cause.cluster
                told_utc = cause.told_utc or cause.since_utc
                yield Notice(kind, cause.cluster, name, Verdict.DEGRADED.value, cause.words, told_utc, standing.newest_run)


def _ended(key: str) -> Notice:
    """Of something that the judge told of and tells no more."""
    kind, cluster, name = key.split("/", 2)
    return Notice(kind, cluster, name, Verdict.PASS.value, "hpcq regressions tells it no more", utc_now(), None)


def _of_run(connection: Connection, campaign: str, run: str) -> Notice:
    """The verdict that the page of a run begins with."""
    from hpcq.analysis.run_verdict import verdict_of_run
    from hpcq.store import query

    runs = query.runs(connection, run)
    found = verdict_of_run(connection, run)
    reason = "; ".join(one.words for one in found.reasons) or found.by
    return Notice(_CAMPAIGN, "", campaign, found.verdict.value, reason, runs[0].created_utc, run)


def _told_before(path: Path) -> dict[str, str]:
    try:
        return dict(json.loads(read_regular(path))["verdicts"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, FileNotFoundError) and not isinstance(error, NoFileError):
            return {}
        raise HpcqError(
            f"{path}: cannot be read: {error.strerror if isinstance(error, OSError) else error}",
            "remove the file: hpcq then reports everything that is no pass again",
        ) from error
