"""Groups and classes: nodes that share an uplink, or their kind of hardware.

leaf0 --+            jobs that leave leaf1 are slow, whoever the other end is, and those inside it are fine:
leaf1 --+-- spine    the uplink of leaf1. A job that leaves two groups counts for both; a group is slow only if
leaf2 --+            most of what leaves it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcq.judge.best import best_of, expected
from hpcq.judge.jobs import Flags, Indices
from hpcq.judge.values import NOBODY, Floats

#: A group is slow if all but this share of its jobs are.
SHARE = 0.7
#: With fewer jobs in a night it is not judged.
FEWEST_JOBS = 3
Things = np.ndarray[Any, np.dtype[np.int64]]


def scores(things: Indices, left: Floats, thing_count: int, job_scatter: Floats) -> tuple[Floats, Floats]:
    """Tonight's score of each thing and how far it scatters, shape (things, tests).

    things: shape (jobs, ways): the things that each job belongs to, NOBODY: none. left: shape (jobs, tests).
    """
    thing = things.reshape(-1)
    value = np.repeat(left, things.shape[1], axis=0)
    rows = thing != NOBODY
    score, count = best_of(thing[rows], value[rows], thing_count, SHARE)
    mean, deviation = expected(count, SHARE)
    score = np.where(count >= FEWEST_JOBS, score - mean * job_scatter, np.nan)
    return score, deviation * job_scatter


def crossing(client: Indices, server: Indices, group: Indices) -> Indices:
    """The two groups that each job connects, shape (jobs, 2); NOBODY where it leaves none."""
    ends = np.stack([_of(group, client), _of(group, server)], axis=1)
    crosses = (ends[:, 0] != ends[:, 1]) & (ends != NOBODY).all(axis=1)
    return np.where(crosses[:, None], ends, NOBODY)


def of_class(client: Indices, server: Indices, kind: Indices) -> Indices:
    """The class that each job is wholly inside of, shape (jobs, 1); NOBODY: none."""
    ends = _of(kind, client), np.where(server == NOBODY, _of(kind, client), _of(kind, server))
    return np.where(ends[0] == ends[1], ends[0], NOBODY)[:, None]


def explained(things: Indices, takes: Floats) -> Floats:
    """What the slower of a job's things takes away, shape (jobs, tests); takes: (things, tests), 0 or below."""
    padded = np.vstack([takes, np.zeros((1, takes.shape[1]))])
    return np.asarray(np.min(padded[things], axis=1))


def takes_away(deviation: Floats, far: Flags, told: Flags, effect: Floats) -> Floats:
    """What each thing takes from its jobs tonight, 0 or below: nothing, unless it is far down or told."""
    tonight = np.where(np.isfinite(deviation), deviation, effect)
    return np.minimum(np.where(far | told[:, None], tonight, 0.0), 0.0)


def _of(table: Indices, node: Indices) -> Indices:
    return np.where(node == NOBODY, NOBODY, table[node])
