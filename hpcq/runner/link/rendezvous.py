"""The rendezvous of a link's two jobs: what the driver carries between them, and when it ends one of them.

    both ready        -> `peer` on each side: where the other one listens          event met
    probes are back   -> `role` where the planned client cannot connect            event ways
    the client ended  -> `role` end on the server's side
    one side waits longer than patience_s, or the other one has ended -> a reason to stop it

All of this follows from the journal and the fetched files, so carrying twice does no harm,
and a new driver can continue.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpcq.run_folder.journal_state import Attempt
from hpcq.runner.link.link_run import LinkRun
from hpcq.runner.link.side import LinkSide, Ready
from hpcq.runner.link.state import Try, other
from hpcq.runner.queue.outcome import PATIENCE_OVER, AttemptOutcome
from hpcq.scheduler.types import JobState

#: What a side's own script reports, in words for a person.
_WORDS = {
    "nobody_connected": "its server ended: nobody had connected",
    "never_told_to_end": "it was never told to end",
    "server_not_ready": "its server did not begin to listen",
}
_NEVER = 1e18
_NO_WAY = "no_way_open"


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the driver ends an attempt.

    follows: only because the other side had ended. final: another attempt would not help.
    """

    reason: str
    follows: bool
    final: bool


class Rendezvous:
    """Connects the two sides of each try."""

    def __init__(self, link_run: LinkRun) -> None:
        self.link, self.sides, self.state = link_run.link, link_run.sides, link_run.state
        self._note, self._clock = link_run.record.note, link_run.clock
        #: What hpcq wrote into attempts' folders: by tag and name of the file.
        self._written: dict[tuple[str, str], str] = {}
        self._alone_since: dict[str, float] = {}
        self._queued_since: dict[str, float] = {}
        #: When, by the monotonic clock, the patience of the next side ends.
        self.patience_ends = _NEVER

    # -- carrying ---------------------------------------------------------------------------------------------------

    def carry(self, one: Try, side: LinkSide) -> None:
        """Give one side of a try what it waits for, if that is known by now."""
        attempt, opposite = one.sides.get(side.name), one.sides.get(other(side.name))
        if attempt is None or opposite is None or not attempt.native_id:
            return
        here, there = self._ready(attempt), self._ready(opposite)
        if here is None or there is None:
            return
        if attempt.live and not one.met:
            self._tell(side, attempt, "peer", f"{there.address} {there.port}")
        if not one.met and all(self._has_peer(part) for part in (attempt, opposite)):
            addresses = {part.side: self._address(part) for part in one.sides.values()}
            self._note("met", job_id=attempt.job_id, attempt_no=one.attempt_no, addresses=addresses)
        if one.met:
            self._learn_ways(one)
            role = self._role(one, attempt, opposite)
            if role is not None and attempt.live:
                self._tell(side, attempt, "role", role)

    def _tell(self, side: LinkSide, attempt: Attempt, name: str, text: str) -> None:
        if self._written.get((attempt.tag, name)) != text:
            side.tell(attempt, name, text)
            self._written[attempt.tag, name] = text

    def _has_peer(self, part: Attempt) -> bool:
        """Whether a side knows where the other one listens. An earlier driver may have told it."""
        return (part.tag, "peer") in self._written or self._reached(part) is not None or part.outcome == "completed"

    def _learn_ways(self, one: Try) -> None:
        """Record which directions are open and who is the client, once both probes are back or the try is over."""
        if one.ways_known:
            return
        reached = {name: self._reached(attempt) for name, attempt in one.sides.items()}
        probing = [name for name in reached if self._probes(one, name)]
        first = one.first
        if any(reached[name] is None and one.sides[name].live for name in probing):
            return
        clients = [name for name in (first, other(first)) if reached[name]]
        ways = {name: _way(reached[name], asked=name in probing) for name in reached}
        job_id = one.sides[first].job_id
        self._note(
            "ways", job_id=job_id, attempt_no=one.attempt_no, ways=ways, client=clients[0] if clients else None,
            words={name: self.sides[name].probe_words(one.sides[name]) for name in probing if reached[name] is False},
        )  # fmt: skip

    def _role(self, one: Try, attempt: Attempt, opposite: Attempt) -> str | None:
        """Return what to tell an attempt now: to measure, or to end."""
        if not opposite.live:
            return "end"
        if not one.ways_known:
            return None
        client = self._client(one)
        if client is None:
            return f"end {_NO_WAY}"
        return "client" if client == attempt.side != one.first else None

    def _client(self, one: Try) -> str | None:
        """Return who measures in this try: the planned client if it can connect, else the other side."""
        return next((name for name in (one.first, other(one.first)) if self._reached(one.sides[name])), None)

    def _probes(self, one: Try, name: str) -> bool:
        opposite = self._ready(one.sides[other(name)])
        return opposite is not None and opposite.port != 0

    # -- ending -----------------------------------------------------------------------------------------------------

    def forget_patience(self) -> None:
        """Begin a turn. `reason_to_stop` then sets `patience_ends` again."""
        self.patience_ends = _NEVER

    def reason_to_stop(self, one: Try, attempt: Attempt) -> Stop | None:
        """Return why the driver must end an attempt now; None if it may continue, or is already leaving."""
        if attempt.stopped or (attempt.withdrawal and attempt.state is JobState.QUEUED):
            return None
        opposite = one.sides.get(other(attempt.side))
        if opposite is not None and opposite.stopped and not opposite.follows:
            return Stop(f"ended because {self._where(opposite)} was: {opposite.stopped}", follows=True, final=False)
        if opposite is not None and not opposite.live:
            return self._after(one, attempt, opposite)
        if self._ready(attempt) is None and attempt.state is JobState.QUEUED:
            return self._queued_too_long(attempt, opposite)
        return None

    def _after(self, one: Try, attempt: Attempt, ended: Attempt) -> Stop | None:
        """The other side has ended. A server that met its client gets the order to end; stop anything else."""
        if one.met and (ended.outcome == "completed" or attempt.side != self._client(one)):
            return None
        return Stop(f"ended because {self._where(ended)} was {ended.outcome}: {ended.reason}", follows=True, final=False)

    def _queued_too_long(self, attempt: Attempt, opposite: Attempt | None) -> Stop | None:
        """Apply the bounds of waiting.

        patience_s while the other side runs, the cluster's own patience while nothing runs yet.
        """
        now = self._clock.now_s()
        queued_s = now - self._queued_since.setdefault(attempt.tag, now)
        state = _state(attempt)
        if opposite is not None and opposite.live and opposite.state is not JobState.QUEUED:
            alone_s = now - self._alone_since.setdefault(attempt.tag, now)
            self.patience_ends = min(self.patience_ends, now - alone_s + self.link.patience_s)
            if alone_s >= self.link.patience_s:
                words = f"did not start within {self.link.patience_s:g} s while {self._where(opposite)} waited: {state}"
                return Stop(words, follows=False, final=True)
            return None
        # Late enough that a better reason to withdraw the job comes first.
        patience_s = self.sides[attempt.side].cluster.patience_s
        queued_s -= 2 * self.sides[attempt.side].pace.query_s
        self.patience_ends = min(self.patience_ends, now - queued_s + patience_s)
        if queued_s >= patience_s:
            return Stop(f"did not start within {patience_s:g} s: {state}", follows=False, final=True)
        return None

    def explain(self, attempt: Attempt, opposite: Attempt | None, outcome: AttemptOutcome) -> AttemptOutcome:
        """Return an outcome with what the driver knows about it."""
        if outcome.outcome == "withdrawn":
            return outcome
        if attempt.withdrawal and outcome.outcome == "cancelled" and self._ready(attempt) is None:
            return AttemptOutcome("cancelled" if attempt.final else "withdrawn", attempt.withdrawal)
        if attempt.stopped:
            return outcome if outcome.outcome == "completed" else AttemptOutcome("cancelled", attempt.stopped)
        if outcome.reason == PATIENCE_OVER:
            there = f"{self._where(opposite)}: {_state(opposite)}" if opposite else "the other side was not submitted"
            return AttemptOutcome("failed", f"waited more than {self.link.patience_s:g} s, {there}")
        if outcome.reason == _NO_WAY:
            words = self.sides[attempt.side].probe_words(attempt)
            return AttemptOutcome("failed", "neither side could connect to the other" + (f": {words}" if words else ""))
        return AttemptOutcome(outcome.outcome, _WORDS.get(outcome.reason, outcome.reason))

    # -- small things -----------------------------------------------------------------------------------------------

    def _ready(self, attempt: Attempt) -> Ready | None:
        return self.sides[attempt.side].ready(attempt)

    def _reached(self, attempt: Attempt) -> bool | None:
        return self.sides[attempt.side].reached(attempt)

    def _address(self, attempt: Attempt) -> str:
        ready = self._ready(attempt)
        return f"{ready.address} {ready.port}" if ready else ""

    def _where(self, attempt: Attempt) -> str:
        return f"{self.sides[attempt.side].cluster.name}/{attempt.nodes[0]}"


def _state(attempt: Attempt) -> str:
    word = attempt.outcome or attempt.state.value
    return f"{word}, {attempt.reason}" if attempt.reason else word


def _way(reached: bool | None, *, asked: bool) -> str:
    if not asked:
        return "not probed"
    return "unknown" if reached is None else "open" if reached else "closed"
