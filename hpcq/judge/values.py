"""What is judged: one row per job and test, as columns.

    row     night | test | client | server | value      | outcome
              0   |   0  |    3   |    7   | ln(1.2e9)  | MEASURED      a pair
              0   |   1  |    3   |   -1   | ln(8.1e9)  | MEASURED      a node alone (memory_copy)
              1   |   0  |    3   |    7   | nan        | FAILED

A value is the natural logarithm of what the job brought (the median of its repetitions), with its sign turned where
lower is better: higher is always better, and a difference of -0.1 is 10 % worse whatever the metric.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

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
    """What the values of a row are of: kernel, parameters, network and metric."""

    name: str
    better: Better


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
