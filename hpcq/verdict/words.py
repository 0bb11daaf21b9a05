"""The words of every verb that judges, their exit code, and the first line that says how much was judged. Pure.

    PASS          planned, measured, comparable, and within its bounds
    DEGRADED      clearly worse than expected
    FAIL          far worse, beyond a bound, or tests that ran without a valid result
    INCONCLUSIVE  measured, but the results are too few or contradict each other
    NOT COVERED   nothing was measured
    NOT JUDGED    a whole run: all that was planned is measured, and neither a gate nor a history judges it

Exit codes: 3 if something is degraded or failed; otherwise 4 if something is inconclusive or not covered, or if a verb
that judges found nothing to judge; otherwise 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from hpcq.errors import Exit


class Verdict(StrEnum):
    """The verdict on a node, link, group, cluster or series. The values are the words of the database."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    DEGRADED = "degraded"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    NOT_COVERED = "not_covered"
    NOT_JUDGED = "not_judged"

    @property
    def shown(self) -> str:
        """The word for people."""
        return _SHOWN[self]


_SHOWN = {
    Verdict.PASS: "PASS",
    Verdict.DEGRADED: "DEGRADED",
    Verdict.FAILED: "FAIL",
    Verdict.INCONCLUSIVE: "INCONCLUSIVE",
    Verdict.NOT_COVERED: "NOT COVERED",
    Verdict.NOT_JUDGED: "NOT JUDGED",
}


@dataclass(frozen=True, slots=True)
class Tally:
    """How many things got which verdict."""

    counts: Counter[Verdict]

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> Tally:
        """Count verdicts."""
        return cls(Counter(verdicts))

    @property
    def total(self) -> int:
        """The number of things looked at."""
        return self.counts.total()

    @property
    def exit_code(self) -> Exit:
        """3, 4 or 0, as the head of this file says. If nothing was judged, that is too little data: 4."""
        if self.counts[Verdict.DEGRADED] or self.counts[Verdict.FAILED]:
            return Exit.DEGRADED
        open_count = self.counts[Verdict.INCONCLUSIVE] + self.counts[Verdict.NOT_COVERED]
        return Exit.INCOMPLETE if open_count or not self.total else Exit.OK

    def to_json(self) -> dict[str, int]:
        """For --json of every verb that judges: how many things, how many judged, and how many got each verdict."""
        counts = {f"{one.value}_count": self.counts[one] for one in Verdict if one is not Verdict.NOT_JUDGED}
        return {"total_count": self.total, "judged_count": self.total - self.counts[Verdict.NOT_COVERED], **counts}

    def first_line(self, noun: str, plural: str | None = None) -> str:
        """`3 of 4 nodes judged: 2 PASS, 1 FAIL; 1 NOT COVERED`: how much was judged, then what came out."""
        many = plural or f"{noun}s"
        if not self.total:
            return f"no {noun} judged: there is nothing to judge"
        judged = self.total - self.counts[Verdict.NOT_COVERED]
        words = ", ".join(f"{self.counts[one]} {one.shown}" for one in Verdict if self.counts[one])
        of = f"{judged}" if judged == self.total else f"{judged} of {self.total}"
        return f"{of} {noun if self.total == 1 else many} judged: {words}"


def too_little(have: str, need: str) -> str:
    """The reason of an INCONCLUSIVE: `too little data: 2 jobs, at least 3 are needed`."""
    return f"too little data: {have}, {need}"


# ----------------------------------------------------------------------------------------------------------------------
# One verdict on one thing: a node, a link, a group of nodes, a whole cluster, or a collective on a set of nodes. Pure.
#
# An acceptance makes these records, the ledger stores them, and people read them later. It is the same record each time.


class Thing(StrEnum):
    """What a verdict can be about. The values are the words of the database."""

    NODE = "node"
    LINK = "link"
    GROUP = "group"
    CLUSTER = "cluster"
    COLLECTIVE = "collective"


@dataclass(frozen=True, slots=True)
class VerdictRecord:
    """A verdict on one thing, with its reason in words.

    name: the node, both ends of a link (`a - b`), the leaf switch, the cluster, or the test and its set. nodes: the nodes
    that share it. ratio: its speed as a share of what is expected. measured_utc: start of the first measurement that the
    verdict rests on. cluster, decided_utc, run: known once the ledger has it. waits: judged too recently to measure again.
    """

    kind: Thing
    name: str
    verdict: Verdict
    reason: str
    nodes: tuple[str, ...] = ()
    ratio: float | None = None
    measured_utc: str | None = None
    cluster: str = ""
    decided_utc: str = ""
    run: str | None = None
    waits: bool = False

    @property
    def line(self) -> str:
        """`failed: node alpha/n3: last acceptance, 2026-11-20 02:00 UTC: bad with ...`."""
        of = self.cluster if self.kind is Thing.CLUSTER else f"{self.cluster}/{self.name}"
        decided = self.decided_utc[:16].replace("T", " ")
        return f"{self.verdict.value}: {self.kind.value} {of}: last acceptance, {decided} UTC: {self.reason}"

    def concerns(self, client: str, server: str) -> bool:
        """Whether it speaks of a test of this pair."""
        if self.kind is Thing.LINK:
            return set(self.nodes) == {client, server}
        return self.kind is Thing.CLUSTER or bool({client, server} & {self.name, *self.nodes})
