"""What one run uses of one cluster, for the cluster's own pairs and its links together, and what it may still use.

alpha's own pairs -----+
alpha's side of a link +--> Account: node-seconds, live jobs, queries --> budget, limits of the site, pace
...                    +
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import random
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hpcq import nodelist
from hpcq.clock import Clock
from hpcq.definition.model import NOBODY_ELSE, Budget, Cluster, Trusted
from hpcq.errors import TransportError
from hpcq.own_folder import entering
from hpcq.planning.waves import ActiveJob
from hpcq.run_folder.journal import Attempt
from hpcq.runner.queue.reservations import OwnReservation
from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.kinds import describe
from hpcq.scheduler.types import JobState, QueueQuery, QueueSnapshot
from hpcq.transport import Transport, quote
from hpcq.units import count_of, parse_utc, plain, utc_text

# ----------------------------------------------------------------------------------------------------------------------
# Decide how often to query a scheduler. Hides counting and jitter.
#
#     something happens            1 s between two queries, while queries are left
#     nothing happens              the interval grows by 50 % each time, up to `poll_interval_s` (5 s)
#     always                       30 queries at most, plus one per `poll_interval_s` that has passed
#     answers take long            nine times as long passes before the next query, a minute at most
#     five failures in a row       hpcq says so, and doubles the interval, up to a minute
#
# So a short campaign feels quick, and in the steady state hpcq queries a cluster at most once per 5 s.


#: After this many failed queries in a row, the driver slows down and says so.
FAILURES_SAID = 5
_GROWTH = 1.5
#: The longest time between two turns of a driver that yields and has nothing in the queue.
_QUIET_S = 60.0
_SLOWEST_S = 60.0
#: A controller that takes this long to answer is busy; then hpcq asks for at most a tenth of the time.
_SLOW_ANSWER_S, _PAUSE_PER_ANSWER = 2.0, 9.0
_BURST_COUNT = 30.0
#: A driver that sleeps for long looks this often whether somebody wants it to end.
ATTENTIVE_S = 5.0


@dataclass(slots=True)
class Pace:
    """The rhythm of one driver with one cluster. grace_s: how long files on shared file systems may be late."""

    query_s: float
    poll_max_s: float
    grace_s: float
    refill_s: float
    clock: Clock = field(default_factory=Clock)
    failures: int = 0
    interval_s: float = field(init=False)
    _left: float = field(default=_BURST_COUNT, init=False)
    _counted_at: float = field(init=False)
    _slow_s: float = field(default=0.0, init=False)
    _answered_at: float = field(default=float("-inf"), init=False)
    _asked_at: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        self.interval_s = self.query_s
        self._counted_at = self.clock.now_s()

    @classmethod
    def of(cls, cluster: Cluster, clock: Clock) -> Pace:
        """Return the pace for a cluster.

        At most one query per second for a batch system, more for this machine's own queue.
        """
        if describe(cluster.scheduler).here_only:
            return cls(query_s=0.1, poll_max_s=0.5, grace_s=cluster.filesystem_delay_s, refill_s=0.1, clock=clock)
        poll_s = cluster.poll_interval_s
        return cls(query_s=1.0, poll_max_s=poll_s, grace_s=cluster.filesystem_delay_s, refill_s=poll_s, clock=clock)

    def ask(self) -> None:
        """Wait until a query is allowed, and count it."""
        self._count()
        missing_s = max(0.0, 1.0 - self._left) * self.refill_s
        wait_s = max(missing_s, self._asked_at + self.query_s - self.clock.now_s())
        if wait_s > 0:
            self.clock.sleep(wait_s)
            self._count()
        self._left -= 1.0
        self._asked_at = self.clock.now_s()

    def sleep(
        self, *, eager: bool, quiet: bool = False, least_s: float = 0.0, wakes: Callable[[], bool] = lambda: False
    ) -> None:
        """Wait between two turns. eager: there may soon be something to do. least_s: nothing can happen before.

        quiet: nothing of ours is queued and nothing may be submitted, so a minute between two turns is enough.
        wakes: whether a person wants something, asked every few seconds.
        """
        most_s = max(self.poll_max_s, _QUIET_S) if quiet else self.poll_max_s
        if self.failures == 0:
            self.interval_s = min(self.interval_s, most_s)
        if eager and self.failures == 0:
            self.interval_s = self.query_s
        left_s = max(self.interval_s, least_s, self._slow_s) * random.uniform(0.9, 1.1)  # noqa: S311 - jitter, so that drivers do not march in step
        while left_s > 0 and not wakes():
            self.clock.sleep(min(left_s, ATTENTIVE_S))
            left_s -= ATTENTIVE_S
        self.interval_s = min(max(most_s, self.interval_s), self.interval_s * _GROWTH)

    def answered(self, took_s: float) -> None:
        """Note how long an answer took: a busy controller is asked less often."""
        self._slow_s = min(_SLOWEST_S, _PAUSE_PER_ANSWER * took_s) if took_s >= _SLOW_ANSWER_S else 0.0
        self._answered_at = self.clock.now_s()

    @property
    def slow(self) -> bool:
        """Whether the last answer took long."""
        return self._slow_s > 0

    @property
    def rests(self) -> bool:
        """Whether the last answer took so long that the next query must wait, for a driver that does not sleep here."""
        return self.clock.now_s() < self._answered_at + self._slow_s

    def failed(self) -> bool:
        """Count a failed query; returns whether hpcq should tell a person."""
        self.failures += 1
        if self.failures >= FAILURES_SAID:
            self.interval_s = min(_SLOWEST_S, self.interval_s * 2)
        return self.failures in {1, FAILURES_SAID}

    def succeeded(self) -> bool:
        """Forget earlier failures; returns whether hpcq had told a person about them."""
        many = self.failures >= FAILURES_SAID
        self.failures = 0
        return many

    def _count(self) -> None:
        now = self.clock.now_s()
        self._left = min(_BURST_COUNT, self._left + (now - self._counted_at) / self.refill_s)
        self._counted_at = now


# ----------------------------------------------------------------------------------------------------------------------
# What all runs of this user take of one cluster together, and the stop file that every driver obeys.
#
#     <work directory>/hpcq/account/<cluster>/<run>.json     what a run's live jobs hold, and what its ended ones took
#     <work directory>/hpcq/stop                             while it exists, no driver of this user starts anything there
#
# Limits of a cluster file hold over all these entries; limits of a campaign hold for its own run. A driver takes the
# lock (a folder, which every file system makes once only), reads what others take, chooses its jobs, and books them
# before it submits them. So two drivers on two machines never take the same rest of a limit.
#
#     refresh    every 10 to 15 s: look for the stop file, write the own entry, read the others
#     open       take the lock and read the others;  book: write the own entry with new jobs, give the lock back


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
class HeldByJobs:
    """What live jobs hold: their nodes, one tuple per job, and the node-seconds that they may take at most."""

    jobs: tuple[tuple[str, ...], ...] = ()
    node_seconds: float = 0.0
    walltime_s: float = 0.0

    def and_more(self, jobs: Iterable[tuple[str, ...]], walltime_s: float) -> HeldByJobs:
        """Return this with more jobs of that time limit."""
        added = tuple(jobs)
        seconds = self.node_seconds + walltime_s * sum(map(len, added))
        return HeldByJobs(self.jobs + added, seconds, max(self.walltime_s, walltime_s))


@dataclass(frozen=True, slots=True)
class Others:
    """What the other runs of this user take: live jobs, their nodes, and node-seconds of the last 24 hours and to come."""

    job_count: int = 0
    nodes: frozenset[str] = frozenset()
    node_seconds: float = 0.0
    runs: tuple[str, ...] = ()


class SharedAccount:
    """The account of this user on one cluster, as one run keeps it."""

    def __init__(
        self, transport: Transport, folder: str, run: str, limits: Budget, clock: Clock, *, trusted: Trusted = NOBODY_ELSE
    ) -> None:
        """folder: on the cluster, made when needed. limits, trusted: those of the cluster file."""
        self._trusted = trusted
        self.limits = limits
        self.others = Others()
        #: The words of the stop file; None while there is none.
        self.stopped: str | None = None
        self._transport, self._folder, self._run_id, self._clock = transport, folder, run, clock
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
        return mine.max_node_ratio < 1 or any(
            limit is not None for limit in (mine.max_jobs, mine.max_nodes, mine.max_node_seconds)
        )

    def news(self) -> list[str]:
        """Return what a person should hear, once."""
        said, self._news = self._news, []
        return said

    # -- the three orders ---------------------------------------------------------------------------------------------

    def refresh(self, held: HeldByJobs, used: float, *, at_once: bool = False) -> None:
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
        """Take the lock and read what the others take. Returns whether this driver may choose jobs and book them now."""
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

    def book(self, held: HeldByJobs, used: float) -> bool:
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
        head = f"umask 077\n{entering(self._trusted)}\nenter {quote(self._folder)} own make"
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

    def _entry(self, held: HeldByJobs, used: float) -> str:
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
        numbers = [*entry["took_node_seconds"].values(), entry["live_node_seconds"], entry["walltime_s"]]
        if not all(isinstance(one, (int, float)) for one in numbers):
            raise ValueError("not a number")

    def _sum(self, entries: Mapping[str, Mapping[str, Any]]) -> Others:
        now = self._clock.utc()
        # A run whose machine had a clock of 2099 does not use up the limits until then.
        oldest, newest = ((now + way * _WINDOW).strftime("%Y-%m-%dT%H") for way in (-1, 1))
        jobs, nodes, seconds, runs = 0, set[str](), 0.0, list[str]()
        for run, entry in entries.items():
            seconds += sum(value for hour, value in entry["took_node_seconds"].items() if oldest < hour <= newest)
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


# ----------------------------------------------------------------------------------------------------------------------


#: A limit that hpcq met but did not read may change later.
_LEARNED_FOR_S = 600.0


class Limit:
    """How many jobs the site allows this user: read from the accounting, or learned from a refusal."""

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._read_limit: int | None = None
        self._asked = False
        self._learned: tuple[int, float] | None = None

    def jobs(self) -> int | None:
        """Return how many jobs this user may have; None without a limit. Asks the accounting once."""
        if not self._asked:
            self._asked = True
            self._read_limit = self._scheduler.submit_limit()
        if self._learned is not None and self._clock.now_s() - self._learned[1] > _LEARNED_FOR_S:
            self._learned = None
        limits = [limit for limit in (self._read_limit, self._learned[0] if self._learned else None) if limit is not None]
        return min(limits, default=None)

    def room(self, snapshot: QueueSnapshot) -> int | None:
        """Return how many more jobs this user may have; None without a limit. Other jobs of the same user count."""
        limit = self.jobs()
        return None if limit is None or snapshot.mine is None else max(0, limit - snapshot.mine)

    def met(self, ours: int, taken: int) -> int:
        """Learn the limit from a refusal beside `ours` live jobs, `taken` of them just now. Returns the limit.

        0: the user has no job at all, so the limit is not on their number.
        """
        mine = self._scheduler.look(QueueQuery(mine=True)).mine
        live = ours if mine is None else max(mine, taken)
        if live:
            self._learned = (live, self._clock.now_s())
        return live


@dataclass(frozen=True, slots=True)
class Share:
    """What one part of a run uses of the cluster."""

    node_seconds: Callable[[], float]
    live: Callable[[], Sequence[Attempt]]


@dataclass(slots=True)
class Account:
    """The account of one cluster, shared by every driver that asks the cluster for nodes."""

    budget: Budget
    pace: Pace
    limit: Limit
    #: What all runs of this user take there together.
    shared: SharedAccount
    #: The reservation that the run makes for itself; None if the campaign wants none.
    own_reservation: OwnReservation | None = None
    shares: list[Share] = field(default_factory=list)

    @property
    def clock(self) -> Clock:
        """Return the clock that all drivers of the cluster share."""
        return self.pace.clock

    def budget_now(self, *, alone: bool = False) -> Budget:
        """Return the budget. alone: as if no other run of this user took anything.

        Inside a reservation its share of the nodes does not count: it was applied when the reservation was made.
        """
        budget = self.budget
        if not alone:
            others, limits = self.shared.others, self.shared.limits
            jobs, nodes = limits.max_jobs, limits.max_nodes
            budget = budget.tightest(
                Budget(
                    max_jobs=None if jobs is None else max(0, jobs - others.job_count),
                    max_nodes=None if nodes is None else max(0, nodes - len(others.nodes)),
                    elsewhere_count=len(others.nodes),
                )
            )
        if self.own_reservation is None or not self.own_reservation.held:
            return budget
        return replace(budget, max_node_ratio=1.0)

    # -- what all runs of this user take ------------------------------------------------------------------------------

    def refresh(self) -> list[str]:
        """Look for the stop file and for other runs. Returns what a person should hear."""
        self.shared.refresh(self._held_now(), self._used())
        return self.shared.news()

    def book(self, jobs: Sequence[tuple[str, ...]], walltime_s: float) -> bool:
        """Book the next jobs for all runs to see; none: give the lock back. False: another driver took the lock."""
        if not jobs:
            self.shared.release()
            return True
        return self.shared.book(self._held_now().and_more(jobs, walltime_s), self._used())

    def close(self) -> None:
        """Write what this run still takes, which is nothing when all its parts have ended."""
        with contextlib.suppress(TransportError):  # then its last entry counts until the limits of its jobs are over
            self.shared.refresh(self._held_now(), self._used(), at_once=True)

    def taken_elsewhere(self, job_node_seconds: float) -> str:
        """Say why limits over all runs leave no room for a job that may take so much.

        Call it where this run alone would have room.
        """
        others, most_s = self.shared.others, self.shared.limits.max_node_seconds
        if most_s is not None and self.node_seconds_for_all() < job_node_seconds:
            took_s = others.node_seconds + self._used()
            return f"all runs of this user took or hold {took_s:.0f} node-seconds in 24 hours, {plain(most_s)} are allowed"
        runs = ", ".join(others.runs[:3]) + (", ..." if len(others.runs) > 3 else "")
        taken = f"{count_of(others.job_count, 'job')} on {count_of(len(others.nodes), 'node')}"
        return f"other runs of this user ({runs}) take what the cluster file allows: {taken}" if others.runs else ""

    def node_seconds_for_all(self) -> float:
        """Return what the limit of the cluster file over all runs of the last 24 hours leaves for further jobs."""
        if self.shared.limits.max_node_seconds is None:
            return math.inf
        live = sum(one.max_node_seconds for one in self.live())
        return self.shared.limits.max_node_seconds - self.shared.others.node_seconds - self._used() - live

    def _held_now(self) -> HeldByJobs:
        live = self.live()
        seconds = sum(one.max_node_seconds for one in live)
        return HeldByJobs(tuple(one.nodes for one in live), seconds, max((one.walltime_s for one in live), default=0.0))

    # -- what this run takes ------------------------------------------------------------------------------------------

    def live(self) -> list[Attempt]:
        """Return all jobs of this run, of any part, that are queued or running there."""
        return [attempt for share in self.shares for attempt in share.live()]

    def active_jobs(self) -> list[ActiveJob]:
        """Return the same jobs in the planner's form."""
        return [ActiveJob(attempt.nodes, attempt.state is not JobState.QUEUED) for attempt in self.live()]

    def held(self) -> set[str]:
        """Return the nodes that jobs of this run have or ask for, and those of its own reservation."""
        nodes = {node for attempt in self.live() for node in attempt.nodes}
        return nodes | set(self.own_reservation.nodes) if self.own_reservation is not None else nodes

    def site(self, cluster: Cluster) -> Cluster:
        """Return the cluster as scripts must see it now: with the run's own reservation and the hours, if any."""
        left_s = [hours.seconds_left(self.clock.local_time()) for hours in self.budget.hours]
        cluster = replace(cluster, start_within_s=min(left_s, default=None))
        if self.own_reservation is None or not self.own_reservation.held:
            return cluster
        return replace(cluster, reservation=self.own_reservation.name)

    def mind_reservation(self, paused: str | None) -> None:
        """Prolong the run's own reservation, or drop it while users need its nodes."""
        if self.own_reservation is not None:
            if paused is None:
                self.own_reservation.keep()
            elif not self.live():
                self.own_reservation.drop()

    def spent(self) -> str | None:
        """Say that the budget of node-seconds is used up; None if it is not."""
        used_s, allowed_s = self._used(), self.budget.max_node_seconds
        if allowed_s is None or used_s < allowed_s:
            return None
        return self._used_words()

    def node_seconds_left(self) -> float:
        """Return what further jobs may use.

        The budget then holds even if every live job needs its whole time limit.
        """
        if self.budget.max_node_seconds is None:
            return math.inf
        return self.budget.max_node_seconds - self._used() - sum(one.max_node_seconds for one in self.live())

    def too_little(self, wanted: str) -> str:
        """Say that the rest of the budget is too small for a job. `wanted`: what that job would use."""
        return f"{self._used_words()}: {wanted}"

    def _used(self) -> float:
        return sum(share.node_seconds() for share in self.shares)

    def _used_words(self) -> str:
        return f"budget: {self._used():.0f} node-seconds were used, {self.budget.max_node_seconds or 0:.0f} are allowed"

    def full(self) -> bool:
        """Whether hpcq may not ask for more jobs now.

        If only other runs fill a limit, a run without jobs still looks, so that it can say what it waits for.
        """
        most, count = self.budget.max_jobs, len(self.live())
        most_now = self.budget_now().max_jobs
        return (most is not None and count >= most) or (most_now is not None and 0 < count >= most_now)
