"""How long a tournament will run, and how long it may: what its steps cost, and what foreign programs may take beyond."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hpcq.definition.model import Test
from hpcq.definition.running import launched, running
from hpcq.kernels import expected_s

#: What a tournament costs in addition to its steps: claim, agents on all nodes, their connections and facts, their end.
_TOURNAMENT_OVERHEAD_S = 4.0
#: What MPI tests cost in addition: the launch of the one MPI step.
_MPI_OVERHEAD_S = 3.0
#: What a step costs in addition to the duration of its test: connection, snapshots, evidence, the barrier.
_STEP_OVERHEAD_S = 0.2
#: The same of a program that the MPI launcher starts once per pair.
_LAUNCH_OVERHEAD_S = 1.5
#: Shortest time limit of a tournament: slow starts and lost nodes must fit.
_WALLTIME_MARGIN_S = 120.0


def estimate_s(tests: Sequence[Test], repetition_count: int, round_count: int, pair_count: int) -> float:
    """How long a tournament will run."""
    total_s = _TOURNAMENT_OVERHEAD_S
    if any(test.needs_mpi and not launched(test) for test in tests):
        total_s += _MPI_OVERHEAD_S
    for test in running(tests):
        step_count = repetition_count * (pair_count if test.load == "alone" else round_count)
        total_s += step_count * _step_s(test)
    return round(total_s, 1)


def walltime_of(estimated_s: float, tests: Sequence[Test], measurement_count: int) -> int:
    """A tournament's time limit in whole minutes: 1.5 times the estimate, and enough for one test that hangs.

    measurement_count: how often each test is measured. Nobody knows how long a foreign program takes, only how long it
    may: a limit that is too short would end the tournament, and cost all its pairs a try.
    """
    hanging_s = max(test.timeout_s for test in tests)
    more_s = measurement_count * sum(test.timeout_s - _step_s(test) for test in running(tests) if launched(test))
    return 60 * math.ceil(max(1.5 * estimated_s, estimated_s + hanging_s, estimated_s + more_s, _WALLTIME_MARGIN_S) / 60)


def _step_s(test: Test) -> float:
    return expected_s(test.parameters) + (_LAUNCH_OVERHEAD_S if launched(test) else _STEP_OVERHEAD_S)
