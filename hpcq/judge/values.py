"""What is judged: one row per job and test, as columns.

    row     night | test | client | server | value      | outcome
              0   |   0  |    3   |    7   | ln(1.2e9)  | MEASURED      a pair
              0   |   1  |    3   |   -1   | ln(8.1e9)  | MEASURED      a node alone (memory_copy)
              1   |   0  |    3   |    7   | nan        | FAILED

A value is the natural logarithm of what the job brought (the median of its repetitions), with its sign turned where
lower is better: higher is always better, and a difference of -0.1 is 10 % worse whatever the metric.

Nights have the tests of a job side by side, once per pair, night and look. A pair that was measured several times in one
night counts with its median:

    Values (one row per job and test)  ->  NightJobs(client, server, value[job, test], failed[job, test])
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Any

import numpy as np

from hpcq.judge.causes import Role
from hpcq.kernels import Better

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int32]]
Bytes = np.ndarray[Any, np.dtype[np.int8]]

#: In `server`: the job measured its client alone. In node_class and node_group: not known.
NOBODY = -1


class Outcome(IntEnum):
    """What became of the job's test."""

    MEASURED = 0
    FAILED = 1
    INVALID = 2
    #: It has a value, measured beside other work: it speaks for nobody and against nobody.
    DISTURBED = 3


@dataclass(frozen=True, slots=True)
class Night:
    """One run: all of its jobs count as one moment."""

    name: str
    utc_s: float


@dataclass(frozen=True, slots=True)
class Test:
    """What the values of a row are of: kernel, parameters, network and metric. sends: the end that sends; None: both do."""

    name: str
    better: Better
    sends: Role | None = Role.CLIENT


@dataclass(frozen=True, slots=True)
class Values:
    """The jobs of one cluster, or of one link between clusters.

    night, test, client, server, value, outcome: shape (jobs,), indices into the tables; value: see above, nan where
    the outcome is FAILED or INVALID. Rows are in no order. Nights are in the order of time.
    node_class: the hardware class of each node (nodes of one class should give the same); node_group: what it shares
    an uplink with, for example its leaf switch. Both of shape (nodes,), NOBODY where not known.
    """

    night: Ints
    test: Ints
    client: Ints
    server: Ints
    value: Floats
    outcome: Bytes
    nights: tuple[Night, ...]
    tests: tuple[Test, ...]
    nodes: tuple[str, ...]
    node_class: Ints
    node_group: Ints
    classes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    #: shape (jobs,): where a suspect was measured again in the same run, the how manieth such job of its pair it was, from 1;
    #: else 0; None: no job did
    look: Bytes | None = None

    def until(self, night: int) -> Values:
        """The same as if `night` (an index) were the newest."""
        rows = self.night <= night
        return Values(
            self.night[rows],
            self.test[rows],
            self.client[rows],
            self.server[rows],
            self.value[rows],
            self.outcome[rows],
            self.nights[: night + 1],
            self.tests,
            self.nodes,
            self.node_class,
            self.node_group,
            self.classes,
            self.groups,
            None if self.look is None else self.look[rows],
        )


def oriented(values: Floats, better: Better) -> Floats:
    """Natural logarithms of `values`, shape (n,), of which higher is better; nan where a value is not above 0."""
    usable = np.where(values > 0, values, np.nan)
    logarithms: Floats = np.log(usable)
    return -logarithms if better is Better.LOWER else logarithms


# ----------------------------------------------------------------------------------------------------------------------
# From rows to nights: the tests of a job side by side, once per pair, night and look.

Indices = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class NightJobs:
    """One look of one night. client, server, pair: shape (jobs,); server is NOBODY where a node was measured alone.

    value, failed: shape (jobs, tests); value is nan where the test has none. pair: index into Jobs.pairs.
    count: how many rows stand behind each job's tests, shape (jobs, tests).
    """

    client: Indices
    server: Indices
    pair: Indices
    value: Floats
    failed: Flags
    count: Indices


@dataclass(frozen=True, slots=True)
class Jobs:
    """All nights. first, again: what each night measured first, and its suspects again; None: nothing.

    each_again: the second measurements once more, job by job. pairs: (client, server) of each pair, shape (pairs, 2);
    pair_count: in how many nights it has a job.
    """

    first: tuple[NightJobs | None, ...]
    again: tuple[NightJobs | None, ...]
    each_again: tuple[tuple[NightJobs, ...], ...]
    pairs: Indices
    pair_count: Indices


def by_night(values: Values) -> Jobs:
    """Sort the rows of `values` into nights. Disturbed rows are left out, where not most of their test have always been."""
    kept = (values.outcome != Outcome.DISTURBED) | _disturbed_as_usual(values)
    night = values.night[kept].astype(np.int64)
    test = values.test[kept].astype(np.int64)
    client, server = values.client[kept].astype(np.int64), values.server[kept].astype(np.int64)
    value = np.where(np.isin(values.outcome[kept], (Outcome.MEASURED, Outcome.DISTURBED)), values.value[kept], np.nan)
    again = np.zeros(len(night), np.int64) if values.look is None else values.look[kept].astype(np.int64)
    node_count, test_count = len(values.nodes) + 1, len(values.tests)
    # A second measurement counts twice: with all of its pair (look 1), and by itself (from look 2 on).
    second = np.flatnonzero(again)
    rows = np.concatenate([np.arange(len(night)), second])
    look = np.concatenate([np.minimum(again, 1), again[second] + 1])
    looks = int(look.max(initial=1)) + 1
    night, test, client, server, value = night[rows], test[rows], client[rows], server[rows], value[rows]

    job_key = ((night * looks + look) * node_count + client) * node_count + (server + 1)
    order = np.argsort(job_key * test_count + test)
    job_key, test, value = job_key[order], test[order], value[order]
    cell_starts = _starts(job_key * test_count + test)
    medians, measured, rows = _medians(value, cell_starts)

    cell_key, cell_test = job_key[cell_starts], test[cell_starts]
    job_starts = _starts(cell_key)
    job_of_cell = np.cumsum(np.isin(np.arange(len(cell_key)), job_starts)) - 1
    keys = cell_key[job_starts]
    table = np.full((len(keys), test_count), np.nan)
    table[job_of_cell, cell_test] = medians
    count = np.zeros((len(keys), test_count), np.int64)
    count[job_of_cell, cell_test] = rows
    failed = np.zeros((len(keys), test_count), bool)
    failed[job_of_cell, cell_test] = measured == 0

    ends = keys % (node_count * node_count)
    pair_keys, pair = np.unique(ends, return_inverse=True)
    clients, servers = ends // node_count, ends % node_count - 1
    place = keys // (node_count * node_count)
    bounds = np.searchsorted(place, np.arange(looks * len(values.nights) + 1))
    found = [
        NightJobs(clients[a:b], servers[a:b], pair[a:b], table[a:b], failed[a:b], count[a:b]) if b > a else None
        for a, b in pairwise(bounds)
    ]
    pairs = np.stack([pair_keys // node_count, pair_keys % node_count - 1], axis=1)
    each = [tuple(one for one in found[begin + 2 : begin + looks] if one) for begin in range(0, len(found), looks)]
    counted = np.bincount(pair[place % looks < 2], minlength=len(pairs))
    return Jobs(tuple(found[0::looks]), tuple(found[1::looks]), tuple(each), pairs, counted)


def _disturbed_as_usual(values: Values) -> Flags:
    """Rows of a test that was measured mostly beside other work, up to their night: that is what it is like at this site."""
    shape = (len(values.nights), len(values.tests))
    counts = np.zeros((2, *shape), np.int64)
    for place, outcome in enumerate((Outcome.MEASURED, Outcome.DISTURBED)):
        rows = values.outcome == outcome
        np.add.at(counts[place], (values.night[rows], values.test[rows]), 1)
    quiet, disturbed = counts.cumsum(axis=1)
    return np.asarray((disturbed > quiet)[values.night, values.test] & np.isfinite(values.value))


def alone(server: Indices) -> Flags:
    """Which jobs measured one node alone."""
    return np.asarray(server == NOBODY)


def column_medians(values: Floats) -> tuple[Floats, Indices]:
    """The median of each column of `values`, shape (rows, columns), nan where it has none; and how many values it has.

    np.median takes longer to be called for each column than all of them take to be sorted.
    """
    counts = np.asarray((~np.isnan(values)).sum(axis=0))
    if not len(values):
        return np.full(len(counts), np.nan), counts
    ordered, column, last = np.sort(values, axis=0), np.arange(len(counts)), np.maximum(counts - 1, 0)
    return (ordered[last // 2, column] + ordered[(last + 1) // 2, column]) / 2, counts


def _starts(keys: Indices) -> Indices:
    """Where a new key begins in sorted keys."""
    if not len(keys):
        return np.zeros(0, np.int64)
    return np.concatenate([[0], np.flatnonzero(np.diff(keys)) + 1])


def _medians(value: Floats, starts: Indices) -> tuple[Floats, Indices, Indices]:
    """Median of each stretch without its nan, how many values it has, and how many rows."""
    rows = np.diff(np.append(starts, len(value)))
    if not len(starts):
        return np.zeros(0), rows, rows
    measured = np.add.reduceat(np.isfinite(value).astype(np.int64), starts)
    # of one or two values, as most stretches have, it lies between the smallest and the largest: only others are sorted
    medians = (np.fmin.reduceat(value, starts) + np.fmax.reduceat(value, starts)) / 2
    many = measured > 2
    if many.any():
        its = np.repeat(many, rows)
        stretch, ordered = np.repeat(np.arange(len(starts)), rows)[its], value[its]
        ordered = ordered[np.lexsort((ordered, stretch))]
        first, last = np.cumsum(rows[many]) - rows[many], measured[many] - 1
        medians[many] = (ordered[first + last // 2] + ordered[first + (last + 1) // 2]) / 2
    return medians, measured, rows
