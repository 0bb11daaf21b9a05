"""Jobs as samples: false alarms and delay if jobs scatter more than repetitions do, on simulated histories.

    python bench/between_jobs.py [--seed N] [--quick]

Each job has five repetitions with 0.5 % of scatter; jobs scatter by 1, 2, 3 or 5 %.

    compare      two single jobs, unchanged; 30 nights of history, or none
    nightly      34 unchanged nights, the last one judged: is anything reported? Each series is judged alone
    month        30 more unchanged nights, each judged: is anything ever reported? On two nights in a row?
    delay        10 % slower from some night on: reported by the 2nd, 3rd, 4th, 8th night? On two nights in a row by then?
    many         1,000 series together, one of them halved for the last 3 nights: is it reported, and how many others are?
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import harness
from hpcq.kernels import Better
from hpcq.statistics import ComparisonVerdict, compare_jobs, job_scatter
from hpcq.verdict.levels import Sides, judge_search

Floats = NDArray[np.float64]

WITHIN, REPETITIONS = 0.005, 5
BETWEEN = (0.01, 0.02, 0.03, 0.05)
NIGHTS = 30
LOOKS = (2, 3, 4, 5, 8)


def jobs(random: np.random.Generator, count: int, between: float) -> Floats:
    """One value per job: the median of its repetitions, around 1."""
    levels = 1 + between * random.standard_normal(count)
    values = levels[:, None] * (1 + WITHIN * random.standard_normal((count, REPETITIONS)))
    return np.asarray(np.median(values, axis=1))


def told(points: Floats, boundary: int) -> bool:
    """Whether a change for the worse at or after the boundary is reported, judging this series alone."""
    return any(one.sure and one.direction == "worse" for one in judge_search([Sides(Better.HIGHER, points, boundary)])[0])


def compared(random: np.random.Generator, between: float, count: int, history: int) -> float:
    """Share of unchanged pairs of single jobs that are called worse."""
    worse = 0
    for _ in range(count):
        values = jobs(random, history + 1, between)
        known = job_scatter(values[:-1] if history > 1 else ())
        worse += compare_jobs(values[-2:-1], values[-1:], known).verdict is ComparisonVerdict.DEGRADED
    return worse / count


def nightly(random: np.random.Generator, between: float, count: int) -> float:
    return sum(told(jobs(random, NIGHTS + 4, between), NIGHTS) for _ in range(count)) / count


def month(random: np.random.Generator, between: float, count: int) -> tuple[float, float]:
    """Shares of unchanged series with any report in 30 nightly analyses, and with reports on two nights in a row."""
    once, twice = 0, 0
    for _ in range(count):
        points = jobs(random, 2 * NIGHTS, between)
        nights = [told(points[: NIGHTS + night], NIGHTS) for night in range(2, NIGHTS + 1)]
        once += any(nights)
        twice += any(a and b for a, b in pairwise(nights))
    return once / count, twice / count


def delays(random: np.random.Generator, between: float, count: int) -> tuple[list[float], list[float]]:
    """Shares of series reported by each night of LOOKS after they became 10 % slower: once, and on two nights in a row."""
    once, twice = np.zeros(len(LOOKS)), np.zeros(len(LOOKS))
    never = max(LOOKS) + 1
    for _ in range(count):
        points = jobs(random, NIGHTS + max(LOOKS), between)
        points[NIGHTS:] *= 0.9
        nights = {n: told(points[: NIGHTS + n], NIGHTS - 4) for n in range(1, never)}
        once += [next((n for n in range(2, never) if nights[n]), never) <= look for look in LOOKS]
        twice += [next((n for n in range(2, never) if nights[n] and nights[n - 1]), never) <= look for look in LOOKS]
    return [float(one) for one in once / count], [float(one) for one in twice / count]


def many(random: np.random.Generator, between: float) -> tuple[bool, int]:
    """Whether a halved series is reported among 1,000, and for how many others a worsening is."""
    series = [Sides(Better.HIGHER, jobs(random, NIGHTS + 3, between), NIGHTS) for _ in range(1000)]
    series[0].points[NIGHTS:] *= 0.5
    worse = [any(one.sure and one.direction == "worse" for one in levels) for levels in judge_search(series)]
    return worse[0], sum(worse[1:])


def of_scatter(seed: int, between: float, count: int) -> list[harness.Claim]:
    """All claims for one scatter between jobs."""
    random = np.random.default_rng([seed, int(between * 1000)])
    text = f"jobs scatter by {between:.0%}"
    goal = "<= 0.02"
    alike = "series with any alarm in 30 nightly looks"
    late, confirmed = delays(random, between, count // 4)
    halved, others = many(random, between)
    known, unknown = compared(random, between, count, NIGHTS), compared(random, between, count, 1)
    one_look = nightly(random, between, count)
    ever, twice = month(random, between, count // 10)
    return [
        harness.claim(text, f"two single jobs called worse, {NIGHTS} nights known", "share", known, goal),
        harness.claim(text, "two single jobs called worse, nothing known", "share", unknown, goal),
        harness.claim(text, "false alarms of one nightly look", "share", one_look, goal),
        harness.claim(text, alike, "share", ever),
        harness.claim(text, f"{alike}, and in the next look, too", "share", twice),
        *(
            harness.claim(text, f"10 % slower: told by night {look}", "share", share, ">= 0.9" if look == 4 else None)
            for look, share in zip(LOOKS, late, strict=True)
        ),
        *(
            harness.claim(text, f"10 % slower: told on two nights in a row by night {look}", "share", share)
            for look, share in zip(LOOKS[1:], confirmed[1:], strict=True)
        ),
        harness.claim(text, "a halving among 1,000 series told at night 3", "count", float(halved), ">= 1"),
        harness.claim(text, "others of the 1,000 told", "count", float(others)),
    ]


def main() -> int:
    """Run all sets."""
    arguments = harness.parser("Jobs as the unit of what is compared", seed=20261122).parse_args()
    count = 200 if arguments.quick else 2000
    claims = [one for between in BETWEEN for one in of_scatter(arguments.seed, between, count)]
    return harness.finish("between_jobs", claims, quick=arguments.quick)


if __name__ == "__main__":
    sys.exit(main())
