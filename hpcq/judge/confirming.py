"""Confirmed the same night: what to measure again, with whom, and what came of it.

    node n7       --3 jobs-->  n12 (good, same group)      links and groups, too: a suspected link its own pair, six jobs;
                  <--3 jobs--  n31 (good, another group)   the uplink of a group three of its nodes with good ones outside,
    link n1 - n2  --6 jobs-->                              two jobs each. A node that is suspected when it sends alone
                                                           sends to both

The jobs are rows of the same night with look 1. judging.Watched counts them for the suspects alone: their partners
were chosen because they are good, and two bad suspects must not make a good partner look bad.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcq.judge.causes import Thing
from hpcq.judge.judging import CLEAR_JOBS, MEASURED_AGAIN, Watched
from hpcq.judge.levels import CLIENT, GROUP_JOBS_MIN, SERVER
from hpcq.judge.values import NOBODY, Flags

#: Good partners of a suspected node.
PARTNERS = 2
#: Jobs of one run that measure suspects again, where no budget says otherwise: ten suspects.
JOBS_AT_MOST = 10 * CLEAR_JOBS


@dataclass(frozen=True, slots=True)
class Retest:
    """One pair to measure again, for one suspect. Of a node, client or server is the suspect."""

    thing: Thing
    names: tuple[str, ...]
    client: str
    server: str
    job_count: int


def plan(watched: Watched, jobs_at_most: int = JOBS_AT_MOST) -> tuple[Retest, ...]:
    """The second measurements that tonight's suspects need; empty where nothing is suspected.

    Those nearest to being told come first; what is beyond `jobs_at_most` stays suspected until tomorrow. A suspect that was
    not measured tonight, or has no good partner, is left out, and so is a link of a node that is suspected itself.
    """
    again = _Again(watched)
    found: list[Retest] = []
    for thing, index in again.suspects():
        pairs = again.pairs_of(thing, index)
        each = CLEAR_JOBS // len(pairs) if pairs else 0
        if len(pairs) * each > jobs_at_most:
            break
        jobs_at_most -= len(pairs) * each
        names, nodes = watched.names(thing, index), watched.values.nodes
        found += [Retest(thing, names, nodes[client], nodes[server], each) for client, server in pairs]
    return tuple(found)


class _Again:
    """Partners for tonight's suspects. A good partner serves each suspect once, and as few of them as possible."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        level = watched.levels[Thing.NODE]
        newest = int(level.seen.max(initial=-1))
        self.newest = newest
        self.group, self.kind = watched.values.node_group, watched.values.node_class
        self.sum = level.sum.max(axis=1, initial=0.0)
        in_role = np.array(watched.suspects.get(Thing.ROLE, []), np.int64) % len(self.sum)
        self.doubted = np.isin(np.arange(len(self.sum)), [*watched.suspects.get(Thing.NODE, []), *in_role.tolist()])
        told = level.told | watched.levels[Thing.ROLE].told.reshape(2, -1).any(axis=0)
        there: Flags = np.asarray((level.seen == newest) & ~told & ~self.doubted)
        self.there = there
        self.good = there & (self.sum < 1.0) & (level.nights.max(axis=1) >= 3)
        for link in watched.suspects.get(Thing.LINK, []):
            self.good[list(watched.ends_of(link))] = False
        self.used = np.zeros(len(self.sum), np.int64)

    def suspects(self) -> list[tuple[Thing, int]]:
        """Nodes, links, groups and ways between two of them that were measured tonight, those nearest to their bound first."""
        found = []
        for thing in MEASURED_AGAIN:
            level = self.watched.levels[thing]
            bound = level.bound()
            for index in self.watched.suspects.get(thing, []):
                of_a_suspect = thing is Thing.LINK and self.doubted[list(self.watched.ends_of(index))].any()
                if level.seen[index] == self.newest and not of_a_suspect:
                    found.append((-float((level.sum[index] / bound).max()), thing, index))
        order = list(Thing)
        return [(thing, index) for _, thing, index in sorted(found, key=lambda one: (one[0], order.index(one[1]), one[2]))]

    def pairs_of(self, thing: Thing, index: int) -> list[tuple[int, int]]:
        """The pairs (client, server) that measure a suspect again; empty where no good partner is there."""
        if thing is Thing.LINK:
            return [self.watched.ends_of(index)]
        if thing is Thing.NODE:
            return self._of_node(index, (CLIENT, SERVER))
        if thing is Thing.ROLE:
            end, node = divmod(index, len(self.sum))
            return self._of_node(node, (end, end))
        side, other = self.watched.sides_of(thing, index)
        inside = [int(one) for one in np.flatnonzero(self.there & (self.group == side))]
        inside.sort(key=lambda one: (float(self.sum[one]), one))
        wanted = self.group == other if other != NOBODY else (self.group != side) & (self.group != NOBODY)
        partners = [self._partner(one, [], wanted) for one in inside[:GROUP_JOBS_MIN]]
        outside = [partner for partner in partners if partner >= 0 and wanted[partner]]
        return list(zip(inside, outside, strict=False)) if len(outside) == GROUP_JOBS_MIN else []

    def _of_node(self, node: int, ends: tuple[int, int]) -> list[tuple[int, int]]:
        """A pair with a good node of its group, and one with another; the node is this end of each."""
        taken: list[int] = []
        inside = (self.group == self.group[node]) & (self.group[node] != NOBODY)
        for wanted in (inside, ~inside):
            partner = self._partner(node, taken, wanted)
            taken += [partner] if partner >= 0 else []
        return [(node, one) if end == CLIENT else (one, node) for one, end in zip(taken, ends, strict=False)]

    def _partner(self, node: int, taken: list[int], wanted: Flags) -> int:
        """A good partner, best one that is `wanted`, of the same class, and little used; -1 where there is none."""
        candidates = np.flatnonzero(self.good)
        candidates = candidates[~np.isin(candidates, [node, *taken])]
        if not len(candidates):
            return -1
        other_kind = self.kind[candidates] != self.kind[node]
        best = np.lexsort((candidates, self.sum[candidates], ~wanted[candidates], other_kind, self.used[candidates]))[0]
        self.used[candidates[best]] += 1
        return int(candidates[best])
