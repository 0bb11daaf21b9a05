"""One run's tests with several toolchains beside each other, in the layout of printed tables; nothing here writes.

    results of a test, by toolchain --median of each job--> time and throughput per toolchain, with their intervals
                                                       \\--> do the toolchains differ by more than jobs do?

Repetitions within one job share its nodes, its launch and its moment, so jobs count, not repetitions. Each toolchain is
compared with the first one by the rank sum test over jobs; the level is divided by the number of comparisons (Bonferroni).
Values beside other work do not count, unless most jobs of a test have no others: then that is usual there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from statistics import median
from typing import Any

import numpy as np

from hpcq.kernels import Better, KernelTest
from hpcq.statistics.comparison import mann_whitney, smallest_p
from hpcq.store.database import Connection

#: Chance that one run of equal toolchains has any row that calls them different.
ALPHA = 0.05
#: Coverage of the intervals of medians.
_COVERAGE = 0.95

#: The values of each job: without other work beside them, and with.
_Jobs = dict[str, tuple[list[float], list[float]]]

_VALUES = """
SELECT v.cluster, v.kernel, v.message_bytes, v.parameters, v.toolchain, v.job, m.metric, m.value, m.unit, v.disturbed
FROM v_results v JOIN v_metrics m ON m.result_id = v.result_id JOIN result r ON r.result_id = v.result_id
WHERE v.run = ? AND v.outcome = 'measured' AND (m.metric LIKE '%\\_p50\\_ns' ESCAPE '\\' OR m.metric = 'throughput_bps')
    AND m.metric NOT LIKE '%rank%' AND r.parameter_set_id IN ({sets})
ORDER BY r.test_no, v.result_id
"""
#: The tests of a run that have several toolchains: mostly none of them. The values of the others are not read.
_SEVERAL = """
SELECT x.parameter_set_id FROM run r JOIN run_cluster rc ON rc.run_id = r.run_id
JOIN job j ON j.run_cluster_id = rc.run_cluster_id JOIN result x ON x.job_id = j.job_id
JOIN series s ON s.series_id = x.series_id
WHERE r.name = ? AND x.final = 1 AND x.outcome = 'measured'
GROUP BY x.parameter_set_id HAVING min(s.toolchain) <> max(s.toolchain)
"""


@dataclass(frozen=True, slots=True)
class ToolchainLevel:
    """The median over jobs of one toolchain, and the interval that holds it with 95 %; None with too few jobs."""

    toolchain: str
    median: float
    lowest: float | None
    highest: float | None
    job_count: int


@dataclass(frozen=True, slots=True)
class ToolchainRow(KernelTest):
    """One test and metric with every toolchain. said: whether they differ; p_value: the smallest of the comparisons."""

    variant: str
    metric: str
    unit: str
    levels: tuple[ToolchainLevel, ...]
    said: str
    p_value: float | None
    #: Values beside other work that are in none of these figures.
    left_out_count: int
    #: Whether most jobs ran beside other work: then all values count.
    disturbed: bool


def toolchain_rows(database: Connection, run: str) -> list[ToolchainRow]:
    """The tests of a run that ran with two toolchains or more, by kernel and size; empty if none did."""
    tests: dict[tuple[str, ...], dict[str, _Jobs]] = {}
    units: dict[str, str] = {}
    sets = ", ".join(str(int(row[0])) for row in database.execute(_SEVERAL, (run,)))
    for row in database.execute(_VALUES.format(sets=sets), (run,)):
        key = (row["cluster"], row["kernel"], row["metric"], row["parameters"])
        tests.setdefault(key, {}).setdefault(row["toolchain"], {}).setdefault(row["job"], ([], []))[row["disturbed"]].append(
            row["value"]
        )
        units[row["metric"]] = row["unit"]
    several = {key: found for key, found in tests.items() if len(found) > 1}
    # Time and throughput of one test order jobs alike: one comparison, not two.
    comparison_count = sum({(*key[:2], key[3]): len(found) - 1 for key, found in several.items()}.values())
    varying = _varying([key[3] for key in several])
    rows = []
    for (cluster, kernel, metric, parameters), found in several.items():
        values, left_out_count, usual = _undisturbed(found)
        given: Mapping[str, Any] = json.loads(parameters)
        variant = ", ".join(f"{name}={given[name]}" for name in varying if name in given and name != "message_bytes")
        only = [name for name, each in values.items() if not each]
        said, p_value = f"{', '.join(only)}: measured beside other work only", None
        if not only:
            said, p_value = compared(values, ALPHA / max(1, comparison_count))
        levels = tuple(level(name, each) for name, each in values.items() if each)
        size = given.get("message_bytes")
        rows.append(
            ToolchainRow(cluster, kernel, size, variant, metric, units[metric], levels, said, p_value, left_out_count, usual)
        )
    return sorted(rows, key=lambda one: (one.cluster, one.kernel, one.variant, one.metric, one.message_bytes or 0))


def _undisturbed(found: Mapping[str, _Jobs]) -> tuple[dict[str, list[float]], int, bool]:
    """The median of each job by toolchain, how many values beside other work these leave out, and whether these are usual."""
    cells = [clean for jobs in found.values() for clean, _ in jobs.values()]
    usual = 2 * sum(not clean for clean in cells) > len(cells)
    chosen = {name: [clean + late if usual else clean for clean, late in jobs.values()] for name, jobs in found.items()}
    left_out_count = 0 if usual else sum(len(late) for jobs in found.values() for _, late in jobs.values())
    return {name: [median(each) for each in jobs if each] for name, jobs in chosen.items()}, left_out_count, usual


def level(toolchain: str, values: Sequence[float]) -> ToolchainLevel:
    """The median of jobs with the narrowest pair of order statistics that covers it with 95 % (no distribution assumed)."""
    ordered = sorted(values)
    count = len(ordered)
    ends: tuple[float | None, float | None] = (None, None)
    for place in range(count // 2):
        outside = 2 * sum(comb(count, below) for below in range(place + 1)) / 2**count
        if 1 - outside < _COVERAGE:
            break
        ends = ordered[place], ordered[count - 1 - place]
    return ToolchainLevel(toolchain, median(ordered), *ends, count)


def compared(values: Mapping[str, Sequence[float]], alpha: float) -> tuple[str, float | None]:
    """Whether any toolchain differs from the first beyond what jobs differ: words, and the smallest p.

    values: one per job, by toolchain. alpha: level of one comparison.
    """
    (first, base), *others = values.items()
    found = {name: 2 * min(mann_whitney(np.array(base), np.array(each), Better.HIGHER)) for name, each in others}
    p_value = min(1.0, *found.values())
    differing = [name for name, p in found.items() if p < alpha]
    if differing:
        moves = [f"{name} {median(values[name]) / median(base) - 1:+.1%}" for name in differing]
        return f"{', '.join(moves)} against {first}", p_value
    reach = min(smallest_p(len(base), len(each), two_sided=True) for _, each in others)
    if reach >= alpha:
        counts = ", ".join(str(len(each)) for each in values.values())
        return f"too few jobs to tell ({counts})", p_value
    return "no difference beyond noise", p_value


def _varying(parameters: Sequence[str]) -> list[str]:
    """The parameters that tell some tests apart."""
    seen: dict[str, set[str]] = {}
    for text in set(parameters):
        for name, value in json.loads(text).items():
            seen.setdefault(name, set()).add(json.dumps(value))
    return [name for name, values in seen.items() if len(values) > 1]
