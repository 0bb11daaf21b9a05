"""Confirmed the same night: whom to measure again, with whom, and what came of it.

    suspect n7  --3 jobs-->  n12 (good, same group)        pairs of one round share no node, so that they may run at once;
    suspect n7  --3 jobs-->  n31 (good, another group)     a good partner is used once per round

The jobs are rows of the same night with look 1. judging.Watched counts them for the suspects alone: their partners
were chosen because they are good, and two bad suspects must not make a good partner look bad.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcq.judge.causes import Thing
from hpcq.judge.judging import Watched
from hpcq.judge.values import NOBODY

#: Good partners of a suspect, and jobs with each of them.
PARTNERS = 2
JOBS = 3
#: One run measures no more suspects again.
SUSPECTS_AT_MOST = 4


@dataclass(frozen=True, slots=True)
class Retest:
    """One pair to measure again. client is the suspect; round counts from 0."""

    client: str
    server: str
    round: int
    job_count: int = JOBS


def plan(watched: Watched) -> tuple[Retest, ...]:
    """The second measurements that tonight's suspected nodes need; empty where nobody is suspected.

    The most suspicious SUSPECTS_AT_MOST come first; the others stay suspected until tomorrow. A suspect that was not
    measured tonight, or has no good partner, is left out.
    """
    level = watched.levels[Thing.NODE]
    newest = int(level.seen.max(initial=-1))
    tonight = [node for node in watched.suspects.get(Thing.NODE, ()) if level.seen[node] == newest]
    suspects = sorted(tonight, key=lambda node: (-float(level.sum[node].max()), node))[:SUSPECTS_AT_MOST]
    good = (level.seen == newest) & ~level.told & (level.sum.max(axis=1) < 1.0) & (level.nights.max(axis=1) >= 3)
    good[tonight] = False
    group, kind = watched.values.node_group, watched.values.node_class
    busy: dict[int, set[int]] = {}
    found: list[Retest] = []
    for suspect in suspects:
        taken: list[int] = []
        for number in range(PARTNERS):
            candidates = np.flatnonzero(good)
            if not len(candidates):
                break
            used = np.isin(candidates, list(busy.get(number, set())))
            repeated = np.isin(candidates, taken)
            inside = (group[candidates] == group[suspect]) & (group[suspect] != NOBODY)
            other_kind = kind[candidates] != kind[suspect]
            order = np.lexsort((level.sum[candidates].max(axis=1), inside != (number == 0), other_kind, used | repeated))
            partner = int(candidates[order[0]])
            if partner in taken or partner in busy.get(number, set()):
                break
            taken.append(partner)
            busy.setdefault(number, set()).add(partner)
            found.append(Retest(watched.values.nodes[suspect], watched.values.nodes[partner], number))
    return tuple(found)
