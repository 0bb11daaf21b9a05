"""What all runs of this user take of one cluster together, and the stop file that every driver obeys.

    <work directory>/hpcq/account/<cluster>/<run>.json     what a run's live jobs hold, and what its ended ones took
    <work directory>/hpcq/stop                             while it exists, no driver of this user starts anything there

Limits of a cluster file hold over all these entries; limits of a campaign hold for its own run. A driver takes the
lock (a folder, which every file system makes once only), reads what others take, chooses its jobs, and books them
before it submits them. So two drivers on two machines never take the same rest of a limit.

    refresh    every 10 to 15 s: look for the stop file, write the own entry, read the others
    open       take the lock and read the others;  book: write the own entry with new jobs, give the lock back
"""

from __future__ import annotations

import datetime as dt
import json
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcq import nodelist
from hpcq.clock import Clock
from hpcq.definition.budget import Budget
from hpcq.transport import Transport, quote
from hpcq.units import parse_utc, utc_text

#: How often a driver refreshes; how often it writes an entry that has not changed.
_REFRESH_S, _HEARTBEAT_S = 10.0, 60.0
#: A driver whose entry is older than this is silent. Its jobs count for their time limit and this time more.
_SILENT_S, _SILENT_COUNTS_S = 300.0, 3600.0
#: Clocks of two machines may differ: whose entry changed within this time, by this host's own count, is not silent.
_ALIVE_S = 150.0
#: Node-seconds of a cluster file's budget hold for this time.
_WINDOW = dt.timedelta(hours=24)
#: How many half seconds a driver waits for the lock. One that this driver saw unchanged for so long is of one that died.
_LOCK_TRIES = 20
_LOCK_S = 60.0
#: Entries that nobody has written for so many days are removed.
_KEPT_DAYS = 3

#: Who holds the lock, as words that change with every lock: no clock of another machine has a say.
_SEEN = """
seen() { one=$(head -c 40 lock/owner 2>/dev/null); echo "${one:-nobody}"; }
ours() { [ "$(cat lock/owner 2>/dev/null)" = "$token" ] || { echo @lost; exit 0; }; }
"""
_LOCK = """
tries=0
until mkdir lock 2>/dev/null; do
    if [ -n "$dead" ] && [ "$(seen)" = "$dead" ]; then
        mv lock "stale.$token" 2>/dev/null && rm -rf "stale.$token"
    fi
    tries=$((tries + 1))
    [ "$tries" -lt TRIES ] || { echo "@locked $(seen)"; exit 0; }
    sleep 0.5
done
echo "$token" >lock/owner
find . -name '*.json' -mtime +DAYS -exec rm -f {} + 2>/dev/null
"""
#: NFS asks its server about a folder that is opened, so that a file made on another machine is seen at once.
_STOP = """
ls -f -- "${stop%/stop}" >/dev/null 2>&1
[ ! -e "$stop" ] || printf '@stop %s\\n' "$(head -c 200 "$stop" 2>/dev/null | tr '\\n\\t\\r' '   ')"
"""
_READ = """for one in *.json; do [ ! -e "$one" ] || { printf '@entry %s ' "$one"; cat "$one"; echo; }; done"""
_WRITE = 'cat >"$name.part" && mv "$name.part" "$name.json"'
#: Who lost the lock before its entry was there may not have been counted by the next one: it looks again afterwards.
_BOOK = f"ours\n{{ {_WRITE}; }} || {{ rm -rf lock; exit 1; }}\nours\nrm -rf lock"


@dataclass(frozen=True, slots=True)
class Held:
    """What live jobs hold: their nodes, one tuple per job, and the node-seconds that they may take at most."""

    jobs: tuple[tuple[str, ...], ...] = ()
    node_seconds: float = 0.0
    walltime_s: float = 0.0

    def and_more(self, jobs: Iterable[tuple[str, ...]], walltime_s: float) -> Held:
        """Return this with more jobs of that time limit."""
        added = tuple(jobs)
        seconds = self.node_seconds + walltime_s * sum(map(len, added))
        return Held(self.jobs + added, seconds, max(self.walltime_s, walltime_s))


@dataclass(frozen=True, slots=True)
class Others:
    """What the other runs of this user take: live jobs, their nodes, and node-seconds of the last 24 hours and to come."""

    job_count: int = 0
    nodes: frozenset[str] = frozenset()
    node_seconds: float = 0.0
    runs: tuple[str, ...] = ()


class SharedAccount:
    """The account of this user on one cluster, as one run keeps it."""

    def __init__(self, transport: Transport, folder: str, run_id: str, limits: Budget, clock: Clock) -> None:
        """folder: on the cluster, made when needed. limits: those of the cluster file."""
        self.limits = limits
        self.others = Others()
        #: The words of the stop file; None while there is none.
        self.stopped: str | None = None
        self._transport, self._folder, self._run_id, self._clock = transport, folder, run_id, clock
        self._stop_file = folder.rpartition("/account/")[0] + "/stop"
        self._token = secrets.token_hex(8)
        self._took: dict[str, float] | None = None
        self._used = 0.0
        self._refreshed_s = self._written_s = float("-inf")
        self._written = ""
        #: The lock of another driver as last seen, and since when, by this host's own clock, it is the same one.
        self._lock_seen, self._lock_since_s = "", float("-inf")
        #: When each entry of another run was written, in its own words, and since when this host has seen these.
        self._entries_seen: dict[str, tuple[str, float]] = {}
        self._news: list[str] = []
        self._said: set[str] = set()

    @property
    def limited(self) -> bool:
        """Whether the cluster file limits anything over all runs."""
        mine = self.limits
        return mine.node_share_ratio < 1 or any(
            limit is not None for limit in (mine.jobs_at_most, mine.nodes_at_most, mine.node_seconds_at_most)
        )

    def news(self) -> list[str]:
        """Return what a person should hear, once."""
        said, self._news = self._news, []
        return said

    # -- the three orders ---------------------------------------------------------------------------------------------

    def refresh(self, held: Held, used: float, *, at_once: bool = False) -> None:
        """Look for the stop file and the other runs; write what this run takes if it changed or a minute has passed.

        used: node-seconds of all ended jobs of this run.
        """
        now = self._clock.now_s()
        if not at_once and now - self._refreshed_s < _REFRESH_S:
            return
        self._refreshed_s = now
        text = self._entry(held, used) if self._took is not None else ""
        body = text.partition('"written_utc"')[0]
        write = bool(text) and (at_once or body != self._written or now - self._written_s >= _HEARTBEAT_S)
        answer = self._ask([_WRITE, _READ] if write else [_READ], text if write else "")
        if answer is None:
            return
        if write:
            self._written, self._written_s = body, now
        self._read(answer)
        if not text:  # what an earlier driver of this run wrote is known now
            self._refreshed_s = float("-inf")
            self.refresh(held, used, at_once=True)

    def open(self) -> bool:
        """Take the lock and read what the others take. Returns whether this driver may book now."""
        if not self.limited:
            return True
        dead = self._lock_seen if self._clock.now_s() - self._lock_since_s >= _LOCK_S else ""
        self._token = secrets.token_hex(8)  # of this lock: whoever watches sees it change
        answer = self._ask([f"dead={quote(dead)}", _LOCK, _READ], "")
        if answer is None:
            return False
        locked = next((line.removeprefix("@locked ") for line in answer.splitlines() if line.startswith("@locked ")), "")
        if locked != self._lock_seen:
            self._lock_seen, self._lock_since_s = locked, self._clock.now_s()
        if locked:
            self._tell("another driver of this user holds the account: nothing is submitted meanwhile")
            return False
        self._said.discard("another driver of this user holds the account: nothing is submitted meanwhile")
        self._read(answer)
        return self.stopped is None

    def book(self, held: Held, used: float) -> bool:
        """Write what this run takes with its next jobs, and give the lock back. False: the lock was lost meanwhile."""
        if not self.limited:
            return True
        self._written = ""  # also what is not submitted after this is written again
        answer = self._ask([_BOOK], self._entry(held, used))
        return answer is not None and "@lost" not in answer.splitlines() and self.stopped is None

    def release(self) -> None:
        """Give the lock back without any new job."""
        if self.limited:
            self._ask(['[ "$(cat lock/owner 2>/dev/null)" != "$token" ] || rm -rf lock'], "")

    # -- private ------------------------------------------------------------------------------------------------------

    def _ask(self, lines: Sequence[str], entry: str) -> str | None:
        head = f"umask 077; mkdir -p -- {quote(self._folder)} && cd -- {quote(self._folder)} || exit 1"
        names = f"name={quote(self._run_id)} token={self._token} stop={quote(self._stop_file)}"
        script = "\n".join([names, _STOP, head, _SEEN, *lines])
        for word, number in (("TRIES", _LOCK_TRIES), ("DAYS", _KEPT_DAYS)):
            script = script.replace(word, str(number))
        done = self._transport.sh(script, stdin=entry.encode())
        if done.returncode == 0 or "@stop " in done.text:  # it holds also where the account cannot be used
            stop = next((line for line in done.text.splitlines() if line.startswith("@stop ")), None)
            why = (stop or "").removeprefix("@stop ").strip() or "no reason given"
            self.stopped = None if stop is None else f"stopped by {self._stop_file}: {why}"
        if done.returncode != 0:
            words = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
            stops = "; nothing is submitted, because the cluster file has limits over all runs" if self.limited else ""
            self._tell(f"the account {self._folder} cannot be used: {words}{stops}")
            return None
        return done.text

    def _entry(self, held: Held, used: float) -> str:
        took = self._took if self._took is not None else {}
        hour = self._clock.utc().strftime("%Y-%m-%dT%H")
        if used > self._used:
            took[hour] = took.get(hour, 0.0) + used - self._used
            self._used = used
        entry = {
            "format": 1,
            "run": self._run_id,
            "jobs": [",".join(nodelist.fold(nodes)) for nodes in held.jobs],
            "live_node_seconds": held.node_seconds,
            "walltime_s": held.walltime_s,
            "took_node_seconds": took,
            "host": socket.gethostname(),
            "written_utc": utc_text(self._clock.utc()),
        }
        return json.dumps(entry)

    def _read(self, answer: str) -> None:
        entries: dict[str, Mapping[str, Any]] = {}
        for line in answer.splitlines():
            mark, _, rest = line.partition(" ")
            name, _, text = rest.partition(" ")
            if mark != "@entry":
                continue
            try:
                entries[name.removesuffix(".json")] = entry = json.loads(text)
                self._check(entry)
            except (ValueError, KeyError, TypeError, AttributeError):
                entries.pop(name.removesuffix(".json"), None)
                self._tell(f"{self._folder}/{name} cannot be read: what that run takes does not count")
        own = entries.pop(self._run_id, None)
        if self._took is None:
            self._took = dict(own["took_node_seconds"]) if own else {}
            self._used = sum(self._took.values())
        self.others = self._sum(entries)

    @staticmethod
    def _check(entry: Mapping[str, Any]) -> None:
        parse_utc(entry["written_utc"])
        for nodes in entry["jobs"]:
            nodelist.expand(nodes)
        sum(float(seconds) for seconds in entry["took_node_seconds"].values())
        float(entry["live_node_seconds"]), float(entry["walltime_s"])

    def _sum(self, entries: Mapping[str, Mapping[str, Any]]) -> Others:
        now = self._clock.utc()
        oldest = (now - _WINDOW).strftime("%Y-%m-%dT%H")
        jobs, nodes, seconds, runs = 0, set[str](), 0.0, list[str]()
        for run, entry in entries.items():
            seconds += sum(value for hour, value in entry["took_node_seconds"].items() if hour > oldest)
            unchanged_s = self._unchanged_s(run, entry["written_utc"])
            age_s = max(unchanged_s, (now - parse_utc(entry["written_utc"])).total_seconds())
            if unchanged_s < _ALIVE_S:
                age_s = 0.0
            if not entry["jobs"] or age_s > entry["walltime_s"] + _SILENT_COUNTS_S:
                continue
            if age_s > _SILENT_S:
                words = f"its driver on {entry.get('host', '?')} is silent since {entry['written_utc']}"
                self._tell(f"run {run} counts with {len(entry['jobs'])} jobs, but {words}: hpcq resume or cancel it")
            jobs += len(entry["jobs"])
            nodes.update(node for one in entry["jobs"] for node in nodelist.expand(one))
            seconds += entry["live_node_seconds"]
            runs.append(run)
        return Others(jobs, frozenset(nodes), seconds, tuple(runs))

    def _unchanged_s(self, run: str, written: str) -> float:
        """Return for how long this host has seen an entry as it is."""
        if self._entries_seen.get(run, ("", 0.0))[0] != written:
            self._entries_seen[run] = written, self._clock.now_s()
        return self._clock.now_s() - self._entries_seen[run][1]

    def _tell(self, words: str) -> None:
        if words not in self._said:
            self._said.add(words)
            self._news.append(words)
