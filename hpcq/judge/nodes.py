"""Nodes: by the best of their pairs, whoever the partners were.

A pair runs at the speed of its slower end. So a node is slow only if it is slow with everybody it met; what a partner
is known to take away is given back first. It is accused on the word of two partners at least.
"""

from __future__ import annotations

import numpy as np

from hpcq.judge.best import best_of, expected
from hpcq.judge.jobs import Flags, Indices
from hpcq.judge.values import NOBODY, Floats

SHARE = 0.75


def seen_from(client: Indices, server: Indices, left: Floats, takes: Floats) -> tuple[Indices, Indices, Floats]:
    """Each job once from each of its ends: node, partner (NOBODY: alone), and what it says of the node.

    left: shape (jobs, tests); takes: shape (nodes, tests): what each node takes from its pairs, 0 or below.
    """
    paired = server != NOBODY
    node = np.concatenate([client, server[paired]])
    partner = np.concatenate([server, client[paired]])
    known = np.vstack([np.minimum(takes, 0.0), np.zeros((1, takes.shape[1]))])
    return node, partner, np.concatenate([left, left[paired]]) - known[partner]


def scores(node: Indices, says: Floats, node_count: int, job_scatter: Floats) -> tuple[Floats, Floats]:
    """Tonight's score of each node and how far it scatters, shape (nodes, tests)."""
    score, count = best_of(node, says, node_count, SHARE)
    mean, deviation = expected(count, SHARE)
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


def scores_again(node: Indices, says: Floats, rows: Indices, job_scatter: Floats, node_count: int) -> tuple[Floats, Floats]:
    """Of second measurements: the best of each node's partners, and how far it scatters relative to one job.

    says: shape (pairs, tests), the median of each pair's jobs; rows: of how many, same shape.
    """
    score, count = best_of(node, says, node_count, SHARE)
    mean, deviation = expected(count, SHARE)
    jobs, _ = best_of(node, np.where(np.isfinite(says), rows, np.nan), node_count, 0.0)
    one = np.where(jobs >= 3, 1.2533 / np.sqrt(np.maximum(jobs, 1) + 0.5), 1 / np.sqrt(np.maximum(jobs, 1)))
    return score - mean * one * job_scatter, np.where(count > 0, deviation * one, np.nan)
