"""The best of several: who is slow only if all of its jobs are.

    jobs of node 3 tonight:  -0.11 (with 7)   0.00 (with 9)      the best: 0.00, so node 3 is fine

The best of a few is their largest; of many, a quantile, or one lucky job would speak for all.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

from hpcq.judge.values import Floats

Indices = np.ndarray[Any, np.dtype[np.int64]]


def best_of(thing: Indices, value: Floats, thing_count: int, share: float) -> tuple[Floats, Indices]:
    """Per thing and test the value that `share` of its others lie below.

    thing: shape (rows,); value: shape (rows, tests), nan: none. Returns (things, tests), nan where there is none, and
    how many values each had.
    """
    tests = value.shape[1]
    found = np.full((thing_count, tests), np.nan)
    counts = np.zeros((thing_count, tests), np.int64)
    for test in range(tests):
        rows = np.flatnonzero(np.isfinite(value[:, test]))
        if not len(rows):
            continue
        order = rows[np.lexsort((value[rows, test], thing[rows]))]
        owners, starts, size = np.unique(thing[order], return_index=True, return_counts=True)
        found[owners, test] = value[order[starts + rank_of(size, share)], test]
        counts[owners, test] = size
    return found, counts


def rank_of(size: Indices, share: float) -> Indices:
    """The index, from the smallest, that `best_of` takes of so many values."""
    return np.asarray(np.floor(share * (size - 1) + 0.5), np.int64)


def expected(counts: Indices, share: float) -> tuple[Floats, Floats]:
    """Mean and standard deviation of `best_of` for so many standard normal values, same shape; (0, 1) for none."""
    sizes = np.minimum(counts, 1000)
    table = np.array([_order_statistic(size, share) for size in range(int(sizes.max(initial=1)) + 1)])
    return table[sizes, 0], table[sizes, 1]


@lru_cache(maxsize=4096)
def _order_statistic(size: int, share: float) -> tuple[float, float]:
    """Source: Blom 1958 for the mean; the asymptotic variance q(1-q)/n/phi^2; exact values for the largest of 2 and 3."""
    if size <= 1:
        return 0.0, 1.0
    rank = int(np.floor(share * (size - 1) + 0.5)) + 1
    if rank == size and size <= 3:
        return ((0.5642, 0.8256), (0.8463, 0.7480))[size - 2]
    normal = NormalDist()
    mean = normal.inv_cdf((rank - 0.375) / (size + 0.25))
    q = rank / (size + 1)
    return mean, float(np.sqrt(q * (1 - q) / (size + 2)) / normal.pdf(normal.inv_cdf(q)))
