"""Links: what a pair loses that neither of its ends loses with others. Only pairs with a history of their own."""

from __future__ import annotations

import numpy as np

from hpcq.judge.jobs import Indices
from hpcq.judge.values import NOBODY, Floats

#: An end that is this many scatters down with others explains the pair.
EXPLAINS = 2.0


def left_by_nodes(client: Indices, server: Indices, left: Floats, takes: Floats, job_scatter: Floats) -> Floats:
    """`left`, shape (jobs, tests), less what its ends lose tonight with others, or are known to take."""
    paired = np.flatnonzero(server != NOBODY)
    node = np.concatenate([client[paired], server[paired]])
    value = np.concatenate([left[paired], left[paired]])
    filled = np.where(np.isfinite(value), value, -np.inf)
    best = np.full((len(takes), left.shape[1]), -np.inf)
    np.maximum.at(best, node, filled)
    is_best = filled == best[node]
    second = np.full(best.shape, -np.inf)
    np.maximum.at(second, node, np.where(is_best, -np.inf, filled))
    shared = np.zeros(best.shape, np.int64)
    np.add.at(shared, node, is_best)
    second = np.where(shared > 1, best, second)
    explained = np.zeros(left.shape)
    for end in (client, server):
        others = np.where(left == best[end], second[end], best[end])
        tonight = np.where(np.isfinite(others) & (others < -EXPLAINS * job_scatter), others, 0.0)
        explained = np.minimum(explained, np.minimum(tonight, np.minimum(takes[end], 0.0)))
    explained = np.maximum(explained, np.minimum(left, 0.0))  # nobody explains more than there is
    return np.where((server == NOBODY)[:, None], np.nan, left - explained)
