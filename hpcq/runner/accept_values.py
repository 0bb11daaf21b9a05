"""Results of acceptance runs as shares of what is expected: of the baseline's own values of the pair, else of its peers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from hpcq.kernels import Better
from hpcq.runner.gates import judge_run
from hpcq.statistics import Outcome, compare
from hpcq.store import ledger
from hpcq.store.runfolder import RunFolder
from hpcq.verdict.acceptance import PairResult
from hpcq.verdict.gates import Verdict

if TYPE_CHECKING:
    from hpcq.store.database import Connection

#: Fewer values of the pair itself are too few to stand for it; its peers do then.
OWN_VALUES_MIN = 5
#: A pair must be slower by this share before anybody is asked to act.
EFFECT_RATIO_MIN = 0.05


def measured(
    database: Connection, runs_folder: Path, cluster: str, reference: Sequence[int], runs: Sequence[str]
) -> list[PairResult]:
    """Every test of every pair in these runs, in their order, against the reference runs."""
    expected = ledger.values_of(database, cluster, reference) if reference else {}
    now = [ledger.values_of(database, cluster, [ledger.run_id_of(database, run)]) for run in runs]
    pools: dict[str, list[float]] = {}
    for found in [expected] if expected else now:
        for (_, _, test), (_, values) in found.items():
            pools.setdefault(test, []).extend(values)
    results = []
    for number, (run, found) in enumerate(zip(runs, now, strict=True), 1):
        gates = _gates(database, RunFolder(runs_folder / run))
        for (client, server, test), (better, values) in found.items():
            own = expected.get((client, server, test), (better, []))[1]
            known = own if len(own) >= OWN_VALUES_MIN else pools.get(test) or values
            slow, sure = _slow(known, values, Better(better))
            ratios = tuple(_ratio(value, median(known), Better(better)) for value in values)
            results.append(
                PairResult(client, server, test, number, ratios, slow, sure, gates.get((client, server, test.split(" ")[0])))
            )
    return results


def _slow(known: Sequence[float], values: Sequence[float], better: Better) -> tuple[bool, bool]:
    """Whether the values are worse than known ones, and whether that can be said at all."""
    found = compare(known, values, better=better, minimum_effect_ratio=EFFECT_RATIO_MIN)
    if found.outcome is Outcome.INCONCLUSIVE:
        near = abs(_ratio(median(values), median(known), better) - 1) < EFFECT_RATIO_MIN
        return False, near and len(values) >= 3 and len(known) >= 3
    return found.outcome is Outcome.DEGRADED, True


def _ratio(value: float, expected: float, better: Better) -> float:
    """Above 1 is better than expected, whatever the metric's direction."""
    if value <= 0 or expected <= 0:
        return 1.0 if value == expected else 0.0
    return value / expected if better is Better.HIGHER else expected / value


def _gates(database: Connection, run: RunFolder) -> dict[tuple[str, str, str], str]:
    """By client, server and kernel: the gate of the campaign that it broke."""
    found = {}
    for one in judge_run(database, run):
        if one.verdict is Verdict.FAILED:
            key = (one.series.client, one.series.server, one.series.kernel)
            found[key] = f"{one.series.metric} must be {one.bound}"
    return found
