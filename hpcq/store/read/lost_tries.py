"""Failed attempts at results that a later attempt measured: such a result may hide a program that crashed."""

from __future__ import annotations

from dataclasses import dataclass

from hpcq.store.database import Connection

#: Words in a reason that point to a signal; see run_folder/crashes.py.
_DIED = "died of "


@dataclass(frozen=True, slots=True)
class LostTries:
    """Attempts of one cluster and kernel that ended for one reason, at results that a later attempt measured.

    pairs: `client > server`, the first few. died: a signal ended the program.
    """

    cluster: str
    kernel: str
    reason: str
    count: int
    pairs: tuple[str, ...]

    @property
    def died(self) -> bool:
        """Whether a signal ended the program."""
        return _DIED in self.reason


def lost_tries(database: Connection, run: str) -> list[LostTries]:
    """Reasons of earlier attempts at the run's measured results, the commonest first."""
    rows = database.execute(
        "SELECT v.cluster, v.kernel, coalesce(v.reason, v.outcome) AS reason, count(*) AS count,"
        " group_concat(DISTINCT v.client || ' > ' || v.server) AS pairs"
        " FROM v_all_results v WHERE v.run = ? AND v.final = 0 AND v.attempt_no IS NOT NULL"
        " AND v.outcome IN ('failed', 'invalid')"
        " AND EXISTS (SELECT 1 FROM v_all_results f WHERE f.run = v.run AND f.cluster = v.cluster AND f.job = v.job"
        "             AND f.test_no = v.test_no AND f.repetition_no = v.repetition_no AND f.final = 1"
        "             AND f.outcome = 'measured')"
        " GROUP BY v.cluster, v.kernel, reason ORDER BY count DESC, v.cluster, v.kernel, reason",
        (run,),
    )
    return [
        LostTries(row["cluster"], row["kernel"], row["reason"], row["count"], tuple(str(row["pairs"]).split(",")[:3]))
        for row in rows
    ]
