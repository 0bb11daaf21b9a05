"""Judges jobs that a test wrote down, against a baseline of three quiet runs of every pair."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from math import log, nan

import numpy as np

from hpcq.judge.acceptance import Known as JudgeKnown
from hpcq.judge.acceptance import judge_run
from hpcq.judge.values import NOBODY, Night, Outcome, Test, Values
from hpcq.kernels import Better
from hpcq.nodelist import natural
from hpcq.verdict.acceptance import Acceptance, Sides, acceptance_of

STREAM = "tcp_stream 64 KiB"
NODES = ("n1", "n2", "n3", "n4", "n5")
EIGHT = tuple(f"n{number}" for number in range(1, 9))
LEAF_OF = {node: f"leaf{1 + place // 2}" for place, node in enumerate(EIGHT)}
PASSED = dict.fromkeys(NODES, "pass")

Slow = dict[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class Job:
    """One test of one pair in one run. change: logarithm from what is expected; None: it brought nothing, see lost."""

    client: str
    server: str
    test: str
    run_no: int
    change: float | None
    lost: bool = False
    gate: str = ""
    reason: str = ""
    disturbed: bool = False

    @property
    def pair(self) -> tuple[str, str]:
        return self.client, self.server


@dataclass(frozen=True, slots=True)
class Known:
    """As hpcq.judge.acceptance.Known, with leaves and what was at fault before."""

    missing: Mapping[str, str] = field(default_factory=dict)
    leaf_of: Mapping[str, str] = field(default_factory=dict)
    flaws: Mapping[str, str] = field(default_factory=dict)
    booted: Mapping[str, str] = field(default_factory=dict)
    standing: Sequence[Sides] = ()


BEHIND = Known(leaf_of=LEAF_OF)


def jobs_of(
    slow: Slow,
    *,
    run_no: int = 1,
    pairs: Sequence[tuple[str, str]] | None = None,
    scatter: float = 0.003,
    lost: Slow | None = None,
) -> list[Job]:
    """Every ordered pair as expected, but for slow ones; `("n2", "*")` is everything that n2 sends. lost: 1 where it fails."""
    noise = random.Random(run_no)
    found = []
    for client, server in pairs or list(permutations(NODES, 2)):
        keys = ((client, server), (client, "*"), ("*", server))
        fails = max((lost or {}).get(key, 0.0) for key in keys) > 0
        change = log(min(slow.get(key, 1.0) for key in keys)) + noise.gauss(0, scatter)
        found.append(
            Job(client, server, STREAM, run_no, None if fails else change, fails, "", "no data for 30 s" if fails else "")
        )
    return found


def judge(
    targets: Sequence[str],
    jobs: Sequence[Job],
    known: Known | None = None,
    *,
    cluster: str = "",
    final: bool = True,
    baseline: bool = True,
    scatter: float = 0.003,
) -> Acceptance:
    """The verdict of these jobs."""
    given = known or Known()
    nodes = sorted({*targets, *(end for one in jobs for end in one.pair)}, key=natural)
    noise = random.Random(99)
    good = [
        Job(*pair, test, run_no, noise.gauss(0, scatter))
        for test in sorted({one.test for one in jobs})
        for run_no in (1, 2, 3)
        for pair in permutations(nodes, 2)
    ]
    said = judge_run(
        targets,
        values_of(jobs, nodes, given.leaf_of),
        values_of(good, nodes, given.leaf_of) if baseline else None,
        JudgeKnown(
            broken={row: one.gate for row, one in enumerate(jobs) if one.gate},
            reasons={row: one.reason for row, one in enumerate(jobs) if one.reason},
            missing=given.missing, flaws=given.flaws, booted=given.booted,
        ),
        final=final, cluster=cluster,
    )  # fmt: skip
    return acceptance_of(said, given.standing)


def values_of(jobs: Sequence[Job], nodes: Sequence[str], leaf_of: Mapping[str, str]) -> Values:
    """The jobs as columns."""
    index = {name: number for number, name in enumerate(nodes)}
    tests = sorted({one.test for one in jobs})
    groups = sorted(set(leaf_of.values()))
    runs = max((one.run_no for one in jobs), default=0)

    def outcome(one: Job) -> Outcome:
        if one.lost:
            return Outcome.FAILED
        if one.change is None:
            return Outcome.INVALID
        return Outcome.DISTURBED if one.disturbed else Outcome.MEASURED

    return Values(
        np.array([one.run_no - 1 for one in jobs], np.int32),
        np.array([tests.index(one.test) for one in jobs], np.int32),
        np.array([index[one.client] for one in jobs], np.int32),
        np.array([index[one.server] for one in jobs], np.int32),
        np.array([nan if one.change is None else one.change for one in jobs]),
        np.array([outcome(one) for one in jobs], np.int8),
        tuple(Night(f"run-{one}", 3600.0 * one) for one in range(runs)),
        tuple(Test(name, Better.HIGHER) for name in tests),
        tuple(nodes),
        np.zeros(len(nodes), np.int32),
        np.array([groups.index(leaf_of[one]) if one in leaf_of else NOBODY for one in nodes], np.int32),
        ("one",),
        tuple(groups),
    )


def counts_of(jobs: Sequence[Job]) -> Counter[tuple[str, str]]:
    """In how many runs each pair was."""
    return Counter(pair for pair, _ in {(one.pair, one.run_no) for one in jobs})


def words(found: Acceptance) -> dict[str, str]:
    return {one.name: one.verdict.value for one in (*found.clusters, *found.nodes, *found.links, *found.groups)}


def reason_of(found: Acceptance, name: str) -> str:
    return next(one.reason for one in (*found.clusters, *found.nodes, *found.links, *found.groups) if one.name == name)
