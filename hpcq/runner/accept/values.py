"""Results of acceptance runs as shares of what is expected, and whether they are worse than chance explains.

Every test is judged by its main metric, and once more by the share of packets that arrived: a good congestion control hides
five lost packets in a hundred from the throughput of a short network, and a median round trip never shows them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from hpcq.analysis import pair_values
from hpcq.analysis.gates import judge_run
from hpcq.kernels import Better
from hpcq.run_folder.paths import RunFolder
from hpcq.runner.accept.expected import Expected, effect_of
from hpcq.statistics import ComparisonVerdict, compare
from hpcq.verdict.acceptance import FAILED_RATIO, PairResult
from hpcq.verdict.words import Verdict

if TYPE_CHECKING:
    from hpcq.store.database import Connection

#: What is a failure: at 1 % lost, loss limits what most congestion controls reach.
ARRIVED_FAILED_RATIO = 0.99


def measured(
    database: Connection,
    runs_folder: Path,
    cluster: str,
    runs: Sequence[str],
    *,
    reference: Sequence[int],
    leaf_of: Mapping[str, str],
    trusted: bool,
) -> list[PairResult]:
    """Every test of every pair in these runs, in their order, against the reference runs; trusted: a person named them."""
    before = _values(database, cluster, reference) if reference else {}
    now = [_values(database, cluster, [pair_values.run_id_of(database, run)]) for run in runs]
    expected = Expected.of(before, now, leaf_of, trusted=trusted and bool(before))
    results = []
    for number, (run, found) in enumerate(zip(runs, now, strict=True), 1):
        broken, open_gates = _gates(database, RunFolder(runs_folder / run))
        for (client, server, test), (better, values) in found.items():
            known = expected.known((client, server, test)) or values
            arrived = test.endswith(pair_values.ARRIVED)
            failed = ARRIVED_FAILED_RATIO if arrived else FAILED_RATIO
            slow, sure, leans = _slow(known, values, Better(better), effect_of(test))
            ratios = tuple(_ratio(value, median(known), Better(better)) for value in values)
            gate = None
            if not arrived:
                kernel, _, rest = test.partition(" ")
                key = (client, server, _test(kernel, json.loads(rest.rpartition(" ")[0])))
                sure, gate = sure and key not in open_gates, broken.get(key)
            results.append(PairResult(client, server, test, number, ratios, slow, sure, gate, failed, arrived, leans))
    return results


def _values(database: Connection, cluster: str, run_ids: Sequence[int]) -> dict[pair_values.Key, tuple[str, list[float]]]:
    return {**pair_values.values_of(database, cluster, run_ids), **pair_values.arrived_of(database, cluster, run_ids)}


def _slow(known: Sequence[float], values: Sequence[float], better: Better, effect: float) -> tuple[bool, bool, bool]:
    """Whether the values are worse than known ones, whether that can be said at all, and whether they only lean to it.

    One wild value of five hides any loss from ranks: a median that is as slow as a slow one's then speaks for nobody.
    """
    found = compare(known, values, better=better, minimum_effect_ratio=effect)
    if found.verdict is ComparisonVerdict.DEGRADED:
        return True, True, False
    change = _ratio(median(values), median(known), better) - 1
    leans = change <= -effect
    if found.verdict is ComparisonVerdict.INCONCLUSIVE:
        return False, abs(change) < effect and len(values) >= 3 and len(known) >= 3, leans
    return False, not leans, leans


def _ratio(value: float, expected: float, better: Better) -> float:
    """Above 1 is better than expected, whatever the metric's direction."""
    if value <= 0 or expected <= 0:
        return 1.0 if value == expected else 0.0
    return value / expected if better is Better.HIGHER else expected / value


def _gates(database: Connection, run: RunFolder) -> tuple[dict[tuple[str, str, str], str], set[tuple[str, str, str]]]:
    """By client, server and test: the gate of the campaign that it broke, and where a gate could not tell."""
    broken, unclear = {}, set()
    for one in judge_run(database, run.run_id):
        key = (one.series.client, one.series.server, _test(one.series.kernel, one.series.parameters))
        if one.verdict is Verdict.FAILED:
            broken[key] = f"{one.words}: must be {one.bound}"
        elif one.verdict is Verdict.INCONCLUSIVE:
            unclear.add(key)
    return broken, unclear


def _test(kernel: str, parameters: Mapping[str, Any]) -> str:
    return f"{kernel} {json.dumps(parameters, sort_keys=True)}"
