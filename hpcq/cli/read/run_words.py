"""One word for each run and cluster of a list: what its gates say, and whether all of it is there.

History and the ledger take longer to ask; the page of a run has them too (hpcq.reports.run_verdict).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpcq.errors import UserError
from hpcq.verdict.words import Verdict

if TYPE_CHECKING:
    from hpcq.store.database import Connection

#: Everything is there, and nothing judges it.
NOT_JUDGED = "not_judged"


def with_verdicts(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `hpcq.store.free_query.runs`, each with `coverage_ratio` and `verdict`.

    A gate that failed comes first, then what is missing or could not be judged.
    """
    gates = {run: _by_cluster(connection, run) for run in dict.fromkeys(str(row["run"]) for row in rows)}
    found = []
    for row in rows:
        planned, measured = row["planned_count"], row["measured_count"]
        ratio = measured / planned if planned else None
        verdict = _verdict(planned, measured, gates[row["run"]].get(row["cluster"], ()))
        found.append({**row, "coverage_ratio": ratio, "verdict": verdict})
    return found


def _verdict(planned: int | None, measured: int, gates: Sequence[Verdict]) -> str:
    if Verdict.FAILED in gates:
        return Verdict.FAILED
    if not planned or not measured:
        return Verdict.NOT_COVERED
    if measured < planned or Verdict.INCONCLUSIVE in gates:
        return Verdict.INCONCLUSIVE
    return Verdict.PASS if gates else NOT_JUDGED


def _by_cluster(connection: Connection, run: str) -> dict[str, list[Verdict]]:
    """The verdicts of a run's gates. Gates that this hpcq cannot read let no run pass."""
    from hpcq.analysis.gates import judge_run

    found: dict[str, list[Verdict]] = {}
    try:
        for one in judge_run(connection, run):
            found.setdefault(one.series.cluster, []).append(one.verdict)
    except UserError:
        rows = connection.execute("SELECT cluster FROM v_runs WHERE run = ?", (run,))
        return {str(row[0]): [Verdict.INCONCLUSIVE] for row in rows}
    return found
