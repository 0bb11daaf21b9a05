"""Six usual ways to find bad nodes in a table of pairs, re-implemented. Each returns the node numbers that it names.

The first five give every node a score. They name nodes below the median score by 3.5 robust standard deviations and 2.5
%. The vote names nodes if more than half of their pairs are below 93 % of the best pair.
Sources: ordinary least squares; Huber 1964 by iterated reweighting; median polish, Tukey 1977; the 93 % rule is ClusterKit's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hpcq.localisation import PairTable

Floats = NDArray[np.float64]
Method = Callable[[PairTable], list[int]]


def _least_squares(table: PairTable) -> list[int]:
    return _low(_additive(table, np.ones(len(table.value))))


def _huber(table: PairTable) -> list[int]:
    weights = np.ones(len(table.value))
    scores = np.zeros(len(table.nodes))
    for _ in range(20):
        scores = _additive(table, weights)
        residual = _logs(table) - np.median(_logs(table)) - scores[table.node_a] - scores[table.node_b]
        scale = max(1e-6, 1.4826 * float(np.median(np.abs(residual - np.median(residual)))))
        weights = 1.345 / np.maximum(np.abs(residual) / scale, 1.345)
    return _low(scores)


def _median_polish(table: PairTable) -> list[int]:
    scores = np.zeros(len(table.nodes))
    logs = _logs(table) - np.median(_logs(table))
    for _ in range(10):
        residual = logs - scores[table.node_a] - scores[table.node_b]
        scores = scores + _by_node(table, residual, lambda values: float(np.median(values)))
        scores = scores - np.median(scores)
    return _low(scores)


def _node_median(table: PairTable) -> list[int]:
    return _low(_by_node(table, _logs(table), lambda values: float(np.median(values))))


def _upper_quartile(table: PairTable) -> list[int]:
    return _low(_by_node(table, _logs(table), lambda values: float(np.quantile(values, 0.75))))


def _vote(table: PairTable) -> list[int]:
    slow = (table.value < 0.93 * table.value.max()).astype(np.float64)
    share = _by_node(table, slow, lambda values: float(np.mean(values)))
    return [int(i) for i in np.flatnonzero(share > 0.5)]


METHODS: dict[str, Method] = {
    "least squares": _least_squares,
    "Huber": _huber,
    "median polish": _median_polish,
    "node median": _node_median,
    "upper quartile": _upper_quartile,
    "93 % vote": _vote,
}


def _logs(table: PairTable) -> Floats:
    return np.asarray(np.log(table.value), dtype=np.float64)


def _additive(table: PairTable, weights: Floats) -> Floats:
    """Weighted least squares of log value = centre + node a + node b."""
    rows = np.arange(len(table.value))
    design = np.zeros((len(rows), len(table.nodes)))
    design[rows, table.node_a] = 1.0
    design[rows, table.node_b] += 1.0
    root = np.sqrt(weights)
    target = _logs(table) - np.median(_logs(table))
    solution = np.linalg.lstsq(design * root[:, None], target * root, rcond=None)[0]
    return np.asarray(solution, dtype=np.float64)


def _by_node(table: PairTable, values: Floats, summary: Callable[[Floats], float]) -> Floats:
    node = np.concatenate([table.node_a, table.node_b])
    order = np.argsort(node, kind="stable")
    parts = np.split(np.concatenate([values, values])[order], np.cumsum(np.bincount(node))[:-1])
    return np.array([summary(part) for part in parts])


def _low(scores: Floats) -> list[int]:
    centre = float(np.median(scores))
    scale = max(1e-6, 1.4826 * float(np.median(np.abs(scores - centre))))
    return [int(i) for i in np.flatnonzero((scores < centre - 3.5 * scale) & (scores < centre + np.log(0.975)))]
