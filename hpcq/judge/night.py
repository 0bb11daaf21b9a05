"""The night: what everything had in common, one number per test.

A night is held against its own past; all levels below are judged on what it leaves.
"""

from __future__ import annotations

import numpy as np

from hpcq.judge.best import rank_of
from hpcq.judge.values import Floats

#: The night's common effect is known to this much at best: whoever repairs a cluster has no use for less.
NIGHT_FLOOR = 0.005


def common(left: Floats) -> tuple[Floats, Floats]:
    """The upper median of what the jobs left, shape (jobs, tests), per test; and how many jobs each has.

    Of two jobs it is the better one: the night is slow only if most of it is.
    """
    found = np.full(left.shape[1], np.nan)
    counts = np.isfinite(left).sum(axis=0)
    ordered = np.sort(left, axis=0)
    for test, size in enumerate(counts):
        if size:
            found[test] = ordered[int(rank_of(np.array([size]), 0.5)[0]), test]
    return found, counts


def scatter(job_scatter: Floats, counts: Floats) -> Floats:
    """Standard deviation of `common` for so many jobs, shape (tests,)."""
    return np.hypot(NIGHT_FLOOR, 1.2533 * job_scatter / np.sqrt(np.maximum(counts, 1)))
