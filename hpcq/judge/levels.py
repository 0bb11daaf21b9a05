"""What one night says of each level, from numbers alone: the night, groups and classes, nodes, links.

    left by the levels above  ->  score of each thing of this level, and how far it scatters  ->  over_time.py

The best of several says of a thing: who is slow only if all of its jobs are.

    jobs of node 3 tonight:  -0.11 (with 7)   0.00 (with 9)      the best: 0.00, so node 3 is fine

The best of a few is their largest; of many, a quantile, or one lucky job would speak for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TypeVar

import numpy as np

from hpcq.judge.over_time import BEGINS, SMALLEST_EFFECT, START_NIGHTS, OverTime
from hpcq.judge.values import NOBODY, Flags, Floats, Indices

#: The ends of a job, and the same of clients and of servers.
CLIENT, SERVER = 0, 1
Ends = tuple[Floats, Floats]
Rows = TypeVar("Rows", Floats, Flags)


def best_of(thing: Indices, value: Floats, thing_count: int, share: float) -> tuple[Floats, Indices]:
    """Per thing and test the value that `share` of its others lie below.

    thing: shape (rows,); value: shape (rows, tests), nan: none. Returns (things, tests), nan where there is none, and
    how many values each had.
    """
    tests = value.shape[1]
    found = np.full(tests * thing_count, np.nan)
    test, row = np.nonzero(np.isfinite(value.T))
    owner, ordered = test * thing_count + thing[row], value[row, test]
    counts = np.bincount(owner, minlength=tests * thing_count)
    by_value = np.argsort(ordered)
    # numbers of 16 bits are sorted by their digits, several times as fast
    order = by_value[np.argsort(owner[by_value].astype(np.min_scalar_type(tests * thing_count)), kind="stable")]
    owners = np.flatnonzero(counts)
    size = counts[owners]
    found[owners] = ordered[order[np.cumsum(size) - size + rank_of(size, share)]]
    shape = tests, thing_count
    return np.ascontiguousarray(found.reshape(shape).T), np.ascontiguousarray(counts.reshape(shape).T)


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


def group_scores(things: Indices, left: Floats, told: Floats, job_scatter: Floats) -> tuple[Floats, Floats]:
    """Tonight's score of each thing and how far it scatters, shape (things, tests).

    things: shape (jobs, ways): the things that each job belongs to, NOBODY: none. left: shape (jobs, tests). told: shape
    (things, tests): what is told of each, at most 0. A job that the other one's loss explains says nothing of this one.
    """
    thing, thing_count = things.reshape(-1), len(told)
    value = np.repeat(left, things.shape[1], axis=0)
    if things.shape[1] > 1:
        other = np.vstack([told, np.zeros((1, told.shape[1]))])[things[:, ::-1].reshape(-1)]
        value = np.where((other < -SMALLEST_EFFECT) & (value < other / 2), np.nan, value)
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


#: A class of fewer nodes is these nodes, each judged by itself.
CLASS_NODES_MIN = 3


def classes_met(client: Indices, server: Indices, kind: Indices) -> tuple[Indices, Indices]:
    """The classes of the ends of each job, each once, shape (jobs, 2); and the one that a pair is wholly within, (jobs, 1).

    NOBODY: none, or a class of few nodes.
    """
    sizes = np.bincount(kind[kind != NOBODY], minlength=1)
    kind = np.where((kind != NOBODY) & (sizes[kind] >= CLASS_NODES_MIN), kind, NOBODY)
    ends = np.stack([_of(kind, client), _of(kind, server)], axis=1)
    same = ends[:, 0] == ends[:, 1]
    within = np.where(same, ends[:, 0], NOBODY)[:, None]
    ends[:, 1] = np.where(same, NOBODY, ends[:, 1])
    return ends, within


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


@dataclass(frozen=True, slots=True)
class Seen:
    """Each job once from each of its ends (CLIENT, SERVER). Shape (rows,).

    partner: NOBODY: alone. says: shape (rows, tests), what the job says of the node. hidden: the same, where the partner is
    told and slow tonight, so that nobody sees how fast the node is.
    """

    node: Indices
    partner: Indices
    end: Indices
    says: Floats
    hidden: Flags


def seen_from(client: Indices, server: Indices, left: Floats, takes: Ends, told: Ends) -> Seen:
    """Turn jobs into what they say of each of their ends.

    left: shape (jobs, tests). takes: what each node takes from its pairs as client and as server, 0 or below, each of shape
    (nodes, tests). told: the part of it that was told, likewise.
    """
    paired = server != NOBODY
    node = np.concatenate([client, server[paired]])
    partner = np.concatenate([server, client[paired]])
    end = np.concatenate([np.zeros(len(client), np.int64), np.ones(int(paired.sum()), np.int64)])
    known = _of_ends(takes, partner, 1 - end)
    says = np.concatenate([left, left[paired]]) - known
    hidden = (_of_ends(told, partner, 1 - end) < -SMALLEST_EFFECT) & (says < -known / 2)
    return Seen(node, partner, end, says, hidden)


def _of_ends(of: Ends, node: Indices, end: Indices) -> Floats:
    """What of[end] says of each node, at most 0; 0 for NOBODY."""
    found = np.where((end == 0)[:, None], of[0][node], of[1][node])
    return np.where((node == NOBODY)[:, None], 0.0, np.minimum(found, 0.0))


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


def left_by_nodes(client: Indices, server: Indices, left: Floats, takes: Ends, job_scatter: Floats) -> Floats:
    """`left`, shape (jobs, tests), less what its ends lose tonight with others, or are known to take."""
    explained = np.zeros(left.shape)
    for end, its, tonight in zip((client, server), takes, lost_with_others(client, server, left, job_scatter), strict=True):
        explained = np.minimum(explained, np.minimum(tonight, np.minimum(its[end], 0.0)))
    explained = np.maximum(explained, np.minimum(left, 0.0))  # nobody explains more than there is
    return np.where((server == NOBODY)[:, None], np.nan, left - explained)


def lost_with_others(client: Indices, server: Indices, left: Floats, job_scatter: Floats) -> Ends:
    """What the client of each job, and its server, lose tonight in the best of their other jobs, shape (jobs, tests).

    0 where that is no more than single jobs scatter, and where there is no other job.
    """
    paired = np.flatnonzero(server != NOBODY)
    node = np.concatenate([client[paired], server[paired]])
    value = np.concatenate([left[paired], left[paired]])
    filled = np.where(np.isfinite(value), value, -np.inf)
    shape = (int(max(client.max(initial=0), server.max(initial=0))) + 1, left.shape[1])
    best, second = np.full(shape, -np.inf), np.full(shape, -np.inf)
    # one index for node and test: NumPy is ten times as fast with flat ones
    entry = (node[:, None] * shape[1] + np.arange(shape[1])).ravel()
    np.maximum.at(best.reshape(-1), entry, filled.ravel())
    is_best = filled == best[node]
    np.maximum.at(second.reshape(-1), entry, np.where(is_best, -np.inf, filled).ravel())
    shared = np.bincount(entry[is_best.ravel()], minlength=best.size).reshape(shape)
    second = np.where(shared > 1, best, second)
    found = []
    for end in (client, server):
        others = np.where(left == best[end], second[end], best[end])
        others = np.where((server == NOBODY)[:, None], np.inf, others)
        found.append(np.where(np.isfinite(others) & (others < -END_EXPLAINS * job_scatter), others, 0.0))
    return found[0], found[1]


# ----------------------------------------------------------------------------------------------------------------------
# Roles: a node that is slow only when it sends, or only when it receives (a bad egress queue, a driver's receive path).
#
#     role       client of n0 .. client of n63 | server of n0 .. server of n63         as things: n, and node_count + n
#
# A node is fine if any of its jobs tonight is. So one that is slow only as client would hide behind its jobs as server. Its
# roles are therefore watched, too, each against its own past. Most of what is slow as client is slow as server as well, and is
# told as the node; a role is told only if the other one is seen to be fine:
#
#     for each night with a job as server, since the doubt as client began:   x  how far it is off as server
#                                                                             mu what it lost as client
#     odds for "fine as server" against "as slow":   sum of ((x - mu)^2 - x^2) / 2 sigma^2,   at most ONE_SIDED a night

#: Logarithm of the odds for the other role being fine from which on a node is slow in one role alone.
ONE_SIDED = 3.0
#: They never get larger than this, nor lower than minus twice this.
_MOST = 2 * ONE_SIDED


def role_of(node: Indices, end: Indices, partner: Indices, node_count: int) -> Indices:
    """The role of each node as client (end 0) or server (1), as a thing; NOBODY where it was measured alone."""
    return np.where(partner == NOBODY, NOBODY, node + end * node_count)


class Roles:
    """The roles of all nodes beside the nodes themselves. nodes, roles: their states over time."""

    def __init__(self, nodes: OverTime, roles: OverTime) -> None:
        self.nodes, self.roles = nodes, roles
        count = len(nodes.told)
        self.witnesses = Witnesses(2 * count)
        self.fine = np.zeros(2 * count)
        self._partner = np.full(2 * count, NOBODY - 1, np.int64)
        self._has_partners = np.zeros(2 * count, bool)

    def look(self, night: int, role: Indices, partner: Indices, says: Floats, job_scatter: Floats) -> tuple[Floats, Floats]:
        """Take in what jobs say of their roles tonight, says: shape (rows, tests). Nothing is told yet.

        Returns the deviation of each role, and how far such a score scatters.
        """
        score, scatter = node_scores(role, says, len(self.fine), job_scatter)
        with np.errstate(invalid="ignore"):
            slow = ((score - self.roles.level) < -2 * scatter).any(axis=1)
        self.witnesses.add(role, partner, np.asarray(slow))
        fresh = self._partner[role] == NOBODY - 1
        self._partner[role[fresh]] = partner[fresh]
        self._has_partners[role[partner != self._partner[role]]] = True
        deviation, spread = score - self.roles.level, self.roles.spread(scatter)
        of_told = np.tile(self.nodes.told, 2)
        with np.errstate(invalid="ignore"):
            steady: Flags = np.asarray((self.roles.drift > -SMALLEST_EFFECT).all(axis=1))
        looked = np.where(of_told[:, None], np.nan, score)
        self.roles.look(
            night,
            looked,
            scatter,
            may_tell=np.zeros(len(self.fine), bool),
            may_drift=self._other(steady) & self._has_partners,
            was_good=self.roles.was_good() | np.tile(self.nodes.was_good(), (2, 1)),
        )
        self._weigh(deviation, spread)
        return deviation, scatter

    def look_again(self, score: Floats, scatter: Floats) -> None:
        """What second measurements say of each role, for the odds."""
        self._weigh(score - self.roles.level, scatter)

    def _weigh(self, deviation: Floats, spread: Floats) -> None:
        """Nights on which both roles are fine say nothing, and one that saw a single role says half: it may come and go."""
        lost = self._lost()
        with np.errstate(invalid="ignore"):
            x, mu = deviation / spread, lost / spread
            gain = np.where(np.isfinite(x) & (lost < -SMALLEST_EFFECT), ((x - mu) ** 2 - x**2) / 2, 0.0).sum(axis=1)
            is_slow: Flags = np.asarray(((deviation < lost / 2) & (lost < 0)).any(axis=1))
            is_fine: Flags = np.asarray((deviation > lost / 2).any(axis=1) & ~is_slow)
        most = np.where(self._other(is_slow), ONE_SIDED, np.where(self._other(is_fine), 0.0, ONE_SIDED / 2))
        grown = np.clip(self.fine + np.clip(gain, -ONE_SIDED, most), -2 * _MOST, _MOST)
        self.fine = np.where((lost < 0).any(axis=1), grown, 0.0)

    def _lost(self) -> Floats:
        """What a role would have lost by now if it were as slow as its node, or its worse role; shape (roles, tests)."""
        nodes, roles = self.nodes, self.roles
        doubted: Flags = np.asarray((roles.sum > BEGINS).any(axis=1))
        shift = np.where(doubted[:, None], roles.gathered / np.maximum(roles.gathered_nights, 1), 0.0)
        shift = np.where(roles.told[:, None], roles.effect, shift)
        worse = np.minimum(shift, self._other(shift))
        return np.asarray(np.minimum(np.where(np.tile(nodes.told, 2)[:, None], np.tile(nodes.effect, (2, 1)), worse), 0.0))

    @staticmethod
    def _other(of_roles: Rows) -> Rows:
        """The same for the other role of each node."""
        return np.roll(of_roles, len(of_roles) // 2, axis=0)

    def one_sided(self) -> Flags:
        """Roles that are slow, or in doubt, while the other one is fine, shape (roles,)."""
        return np.asarray((self._other(self.fine) >= ONE_SIDED) & (self.fine <= -ONE_SIDED))

    def accused(self) -> Flags:
        """Roles that may be suspected, and told: the other one is fine, or told itself. Others are their node's."""
        return np.logical_or(self.one_sided(), self._other(self.roles.told))

    def one_sided_nodes(self) -> Flags:
        """Nodes that are slow, or in doubt, in one role alone."""
        return np.asarray(self.one_sided().reshape(2, -1).any(axis=0))

    def tell(self, night: int, peers: Indices) -> None:
        """Tell roles, after the nodes were looked at. peers: as OverTime.tell_slow_from_the_start takes it, of nodes.

        Where a node's own sum passes its bound, and one of its roles is fine, the other one is told.
        """
        nodes, roles = self.nodes, self.roles
        self._hand_over(night)
        roles.sum[np.tile(nodes.told, 2)] = 0.0
        may = self.accused() & self.witnesses.enough & ~np.tile(nodes.told, 2)
        must = np.tile((nodes.sum >= nodes.bound()).any(axis=1), 2) & (roles.sum > BEGINS).any(axis=1)
        roles.tell(night, may, must)
        self.witnesses.forget((roles.sum <= 0).all(axis=1) & ~roles.told)
        self._tell_from_the_start(night, peers)
        self._tell_whole_nodes()
        of_told = np.tile(nodes.told, 2)
        roles.level[of_told] = np.tile(nodes.level, (2, 1))[of_told]  # what is told of a node is not learned as its role's

    def _tell_whole_nodes(self) -> None:
        """Who is slow in both roles, in the same test, is slow."""
        nodes, roles, count = self.nodes, self.roles, len(self.nodes.told)
        lost = (roles.effect < -SMALLEST_EFFECT) & roles.told[:, None]
        for node in np.flatnonzero((lost[:count] & lost[count:]).any(axis=1)).tolist():
            nodes.tell_together(node, [roles.take_back(one) for one in (node, node + count)])

    def _hand_over(self, night: int) -> None:
        """What was told of a node that was slow in one role alone is that role's, once a night is fine the other way.

        Nights that only see the other role would end what was told of the node.
        """
        sided = (self.fine <= -ONE_SIDED) & (self._other(self.fine) > 0) & np.tile(self.nodes.told, 2)
        for role in np.flatnonzero(sided).tolist():
            node = role % len(self.nodes.told)
            if self.nodes.current[node].told != night:
                self.roles.tell_instead(role, self.nodes.take_back(node))

    def _tell_from_the_start(self, night: int, peers: Indices) -> None:
        """Roles that never were as good as those of their peers, of nodes whose other role is."""
        nodes, roles = self.nodes, self.roles
        other_fine: Flags = np.asarray((roles.nights >= START_NIGHTS[0]) & (roles.level > self._other(roles.level) / 2))
        ends = np.repeat([CLIENT, SERVER], len(nodes.told))
        peers = np.where(np.tile(peers, 2) < 0, NOBODY, 2 * np.tile(peers, 2) + ends)
        roles.tell_slow_from_the_start(night, peers, self._other(other_fine).all(axis=1) & ~np.tile(nodes.told, 2))
