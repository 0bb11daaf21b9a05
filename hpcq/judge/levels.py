"""What one night says of each level, from numbers alone: the night, groups and classes, nodes, links.

    left by the levels above  ->  score of each thing of this level, and how far it scatters  ->  over_time.py

The best of several says of a thing: who is slow only if all of its jobs are.

    jobs of node 3 tonight:  -0.11 (with 7)   0.00 (with 9)      the best: 0.00, so node 3 is fine

The best of a few is their largest; of many, a quantile, or one lucky job would speak for all.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

import numpy as np

from hpcq.judge.values import NOBODY, Flags, Floats, Indices


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


def expected_best(counts: Indices, share: float) -> tuple[Floats, Floats]:
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


# ----------------------------------------------------------------------------------------------------------------------
# The night: what everything had in common, one number per test.
#
# A night is held against its own past; all levels below are judged on what it leaves.

#: The night's common effect is known to this much at best: whoever repairs a cluster has no use for less.
NIGHT_FLOOR = 0.005


def night_level(left: Floats) -> tuple[Floats, Floats]:
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


def night_scatter(job_scatter: Floats, counts: Floats) -> Floats:
    """Standard deviation of `night_level` for so many jobs, shape (tests,)."""
    return np.hypot(NIGHT_FLOOR, 1.2533 * job_scatter / np.sqrt(np.maximum(counts, 1)))


# ----------------------------------------------------------------------------------------------------------------------
# Groups and classes: nodes that share an uplink, or their kind of hardware.
#
# leaf0 --+            jobs that leave leaf1 are slow, whoever the other end is, and those inside it are fine:
# leaf1 --+-- spine    the uplink of leaf1. A job that leaves two groups counts for both; a group is slow only if
# leaf2 --+            most of what leaves it is.

#: A group is slow if all but this share of its jobs are.
GROUP_SHARE = 0.7
#: With fewer jobs in a night it is not judged.
GROUP_JOBS_MIN = 3


def group_scores(things: Indices, left: Floats, thing_count: int, job_scatter: Floats) -> tuple[Floats, Floats]:
    """Tonight's score of each thing and how far it scatters, shape (things, tests).

    things: shape (jobs, ways): the things that each job belongs to, NOBODY: none. left: shape (jobs, tests).
    """
    thing = things.reshape(-1)
    value = np.repeat(left, things.shape[1], axis=0)
    rows = thing != NOBODY
    score, count = best_of(thing[rows], value[rows], thing_count, GROUP_SHARE)
    mean, deviation = expected_best(count, GROUP_SHARE)
    score = np.where(count >= GROUP_JOBS_MIN, score - mean * job_scatter, np.nan)
    return score, deviation * job_scatter


def groups_crossed(client: Indices, server: Indices, group: Indices) -> Indices:
    """The two groups that each job connects, shape (jobs, 2); NOBODY where it leaves none."""
    ends = np.stack([_of(group, client), _of(group, server)], axis=1)
    crosses = (ends[:, 0] != ends[:, 1]) & (ends != NOBODY).all(axis=1)
    return np.where(crosses[:, None], ends, NOBODY)


def class_inside(client: Indices, server: Indices, kind: Indices) -> Indices:
    """The class that each job is wholly inside of, shape (jobs, 1); NOBODY: none."""
    ends = _of(kind, client), np.where(server == NOBODY, _of(kind, client), _of(kind, server))
    return np.where(ends[0] == ends[1], ends[0], NOBODY)[:, None]


def explained_by_groups(things: Indices, takes: Floats) -> Floats:
    """What the slower of a job's things takes away, shape (jobs, tests); takes: (things, tests), 0 or below."""
    padded = np.vstack([takes, np.zeros((1, takes.shape[1]))])
    return np.asarray(np.min(padded[things], axis=1))


def groups_take(deviation: Floats, far: Flags, told: Flags, effect: Floats) -> Floats:
    """What each thing takes from its jobs tonight, 0 or below: nothing, unless it is far down or told."""
    tonight = np.where(np.isfinite(deviation), deviation, effect)
    return np.minimum(np.where(far | told[:, None], tonight, 0.0), 0.0)


def _of(table: Indices, node: Indices) -> Indices:
    return np.where(node == NOBODY, NOBODY, table[node])


# ----------------------------------------------------------------------------------------------------------------------
# Nodes: by the best of their pairs, whoever the partners were.
#
# A pair runs at the speed of its slower end. So a node is slow only if it is slow with everybody it met; what a partner
# is known to take away is given back first. It is accused on the word of two partners at least.

#: A node is slow if all but this share of its jobs are.
NODE_SHARE = 0.75


def seen_from(client: Indices, server: Indices, left: Floats, takes: Floats) -> tuple[Indices, Indices, Floats]:
    """Each job once from each of its ends: node, partner (NOBODY: alone), and what it says of the node.

    left: shape (jobs, tests); takes: shape (nodes, tests): what each node takes from its pairs, 0 or below.
    """
    paired = server != NOBODY
    node = np.concatenate([client, server[paired]])
    partner = np.concatenate([server, client[paired]])
    known = np.vstack([np.minimum(takes, 0.0), np.zeros((1, takes.shape[1]))])
    return node, partner, np.concatenate([left, left[paired]]) - known[partner]


def node_scores(node: Indices, says: Floats, node_count: int, job_scatter: Floats) -> tuple[Floats, Floats]:
    """Tonight's score of each node and how far it scatters, shape (nodes, tests)."""
    score, count = best_of(node, says, node_count, NODE_SHARE)
    mean, deviation = expected_best(count, NODE_SHARE)
    return score - mean * job_scatter, deviation * job_scatter


class Witnesses:
    """Whether a node that is in doubt was slow with two partners since its doubt began."""

    def __init__(self, node_count: int) -> None:
        self.first = np.full(node_count, NOBODY - 1, np.int64)
        self.enough = np.zeros(node_count, bool)

    def add(self, node: Indices, partner: Indices, slow: Flags) -> None:
        """slow: shape (nodes,): whose best is slow tonight, so that all their partners say so."""
        rows = slow[node]
        node, partner = node[rows], partner[rows]
        self.enough[node[partner == NOBODY]] = True
        fresh = self.first[node] < NOBODY
        self.first[node[fresh]] = partner[fresh]
        self.enough[node[partner != self.first[node]]] = True

    def forget(self, fine: Flags) -> None:
        """fine: shape (nodes,): nodes in no doubt."""
        self.first[fine] = NOBODY - 1
        self.enough[fine] = False


def scores_again(  # noqa: PLR0917 - what was measured, and of how many
    thing: Indices, says: Floats, rows: Indices, job_scatter: Floats, thing_count: int, share: float
) -> tuple[Floats, Floats]:
    """Of second measurements: the best of each thing's pairs, and how far it scatters relative to one job.

    says: shape (pairs, tests), the median of each pair's jobs; rows: of how many, same shape. share: as best_of takes it.
    """
    score, count = best_of(thing, says, thing_count, share)
    mean, deviation = expected_best(count, share)
    jobs, _ = best_of(thing, np.where(np.isfinite(says), rows, np.nan), thing_count, 0.0)
    one = np.where(jobs >= 3, 1.2533 / np.sqrt(np.maximum(jobs, 1) + 0.5), 1 / np.sqrt(np.maximum(jobs, 1)))
    return score - mean * one * job_scatter, np.where(count > 0, deviation * one, np.nan)


# ----------------------------------------------------------------------------------------------------------------------
# Links: what a pair loses that neither of its ends loses with others. Only pairs with a history of their own.

#: An end that is this many scatters down with others explains the pair.
END_EXPLAINS = 2.0


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
        tonight = np.where(np.isfinite(others) & (others < -END_EXPLAINS * job_scatter), others, 0.0)
        explained = np.minimum(explained, np.minimum(tonight, np.minimum(takes[end], 0.0)))
    explained = np.maximum(explained, np.minimum(left, 0.0))  # nobody explains more than there is
    return np.where((server == NOBODY)[:, None], np.nan, left - explained)
