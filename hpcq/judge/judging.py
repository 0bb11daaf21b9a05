"""From the values of a site to what is said of it: night after night, each level on what those above it leave.

    value of a job = level of its place and class + night - (what the slower of its parts takes away: group, node, link)
                     + what its pair always has + scatter

    each night:  night  ->  classes  ->  groups  ->  between two groups  ->  nodes and their roles  ->  links
                   |           |           |               |                         |                   |
                 OverTime of each level: fine, suspected, told, ended

Nothing is stored between calls, and no night looks ahead: what is said of night B is what was said on B.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import exp, lgamma, log, sqrt

import numpy as np

from hpcq.judge.causes import Cause, Coverage, Effect, Judged, Judgement, Role, State, Thing
from hpcq.judge.levels import (
    GROUP_SHARE,
    NODE_SHARE,
    Ends,
    Roles,
    Witnesses,
    classes_met,
    explained_by_groups,
    group_scores,
    groups_crossed,
    groups_take,
    left_by_nodes,
    lost_with_others,
    night_level,
    night_scatter,
    node_scores,
    role_of,
    scores_again,
    seen_from,
)
from hpcq.judge.over_time import MEMORY_NIGHTS, SMALLEST_EFFECT, START_NIGHTS, OverTime, Told
from hpcq.judge.values import NOBODY, Flags, Floats, Indices, Jobs, NightJobs, Values, by_night, column_medians
from hpcq.kernels import Better

#: What a site bears: 1 false morning per 100 nights.
FALSE_MORNINGS = 0.01
#: How the levels share it.
_SHARES = {
    Thing.NIGHT: 0.25,
    Thing.CLASS: 0.03,
    Thing.WITHIN: 0.02,
    Thing.GROUP: 0.1,
    Thing.BETWEEN: 0.05,
    Thing.NODE: 0.3,
    Thing.ROLE: 0.1,
    Thing.LINK: 0.15,
}
#: One class alone is everything. Of two groups, what leaves one enters the other.
FEWEST_THINGS = {Thing.CLASS: 2, Thing.WITHIN: 2, Thing.GROUP: 3}
#: With so many jobs inside a group, before and since, it is known whether its nodes are as slow with each other.
INSIDE_JOBS_MIN = 3
#: A node that has less than this share of what a slow group leaves it has something of its own, too.
MUCH_WORSE = 0.85
#: Logarithm of what a failed job counts as: a hundredth of what is expected.
NOTHING = -float(np.log(100.0))
#: The level of a place is the median of its first so many jobs; from then on it follows slowly.
FIRST_JOBS = 30
#: So many second jobs that are slow, all of them, are a clear answer: three with each of two partners.
CLEAR_JOBS = 6
#: A suspect is cleared if no larger share of its second jobs is slow.
REFUTED_SHARE = 1 / 3
#: What is measured again the same night if it is suspected. A night or a class has no good partner.
MEASURED_AGAIN = (Thing.NODE, Thing.ROLE, Thing.LINK, Thing.GROUP, Thing.BETWEEN)
#: Nights of a thing, the newest among them, without which silence about it is not called fine: with two before it nothing is
#: ever suspected, and only then is it held against its peers.
ENOUGH_NIGHTS = START_NIGHTS[0]
#: A night is held against its past by the jobs of nodes of which nothing is told, if there are so many.
FEWEST_OTHERS = 3
#: From so many nights on the scatter of jobs is known. A night then counts as so many times as much at most: as less where
#: it has two or three jobs, for one bad node is in most of them.
FEW_NIGHTS, SCATTER_GROWS, SCATTER_OF_FEW_GROWS = 5, 3.0, 1.5
#: A node that fails with some partners alone is looked for in so many nights. It is told from so many jobs and partners on
#: (two, if it has no more), where chance gives as many to none of all nodes, nor as many as are left without its worst
#: partner, and until the jobs since then favour a node that is well by so much.
LOST_NIGHTS, LOST_JOBS, LOST_PARTNERS, LOST_CHANCE, LOST_APART, LOST_ENDS = 14, 3, 3, 1e-4, 0.1, 400.0
#: A job fails that often at least, as far as anybody knows.
STRAY_LOST = 0.01
#: Nights that a thing needs before it can be judged.
_QUIET = {
    Thing.NIGHT: 3,
    Thing.CLASS: 3,
    Thing.WITHIN: 3,
    Thing.GROUP: 3,
    Thing.BETWEEN: 5,
    Thing.NODE: 1,
    Thing.ROLE: 1,
    Thing.LINK: 3,
}


def judge(values: Values, *, false_mornings: float = FALSE_MORNINGS, first: int = 0) -> Judgement:
    """What is said on the newest night of `values`; coverage counts the nights from index `first` on."""
    return watch(values, false_mornings=false_mornings).judgement(first)


def watch(values: Values, *, false_mornings: float = FALSE_MORNINGS) -> Watched:
    """Go through all nights. The result has every message that was given on the way."""
    watched = Watched(values, by_night(values), false_mornings)
    for index in range(len(values.nights)):
        watched.add(index)
    return watched


@dataclass(frozen=True, slots=True)
class Again:
    """What came of measuring a suspect again the same night (an index each)."""

    night: int
    thing: Thing
    index: int
    #: of the jobs that measured it again, how many were nearer to the suspected level than to the old one
    slow_jobs: int
    job_count: int
    confirmed: bool


@dataclass(slots=True)
class _First:
    """The first look of tonight at one level, shape (things, tests): how far from the levels, and how far scores scatter."""

    deviation: Floats
    scatter: Floats


@dataclass(slots=True)
class _Tonight:
    """What one look left at each stage. left, expected: shape (jobs, tests)."""

    jobs: NightJobs
    left: Floats
    expected: Floats
    crossing: Indices
    between: Indices


@dataclass(slots=True)
class Watched:
    """A site after some of its nights."""

    values: Values
    jobs: Jobs
    false_mornings: float
    levels: dict[Thing, OverTime] = field(init=False)
    suspects: dict[Thing, list[int]] = field(init=False, default_factory=dict)
    counted: dict[Thing, Indices] = field(init=False, default_factory=dict)
    again: list[Again] = field(init=False, default_factory=list)
    #: by night: what was suspected before anything was measured again
    suspects_on: dict[int, dict[Thing, list[int]]] = field(init=False, default_factory=dict)
    _newest: int = field(init=False, default=-1)
    _first: dict[Thing, _First] = field(init=False, default_factory=dict)
    _takes: dict[Thing, Floats] = field(init=False, default_factory=dict)
    _place: Indices = field(init=False)
    _place_level: Floats = field(init=False)
    _place_known: Flags = field(init=False)
    _place_first: dict[tuple[int, int], list[float]] = field(init=False, default_factory=dict)
    _pair_level: Floats = field(init=False)
    _base: Floats = field(init=False)
    _night_level: Floats = field(init=False)
    _job_scatter: Floats = field(init=False)
    _job_nights: Floats = field(init=False)
    _witnesses: Witnesses = field(init=False)
    _roles: Roles = field(init=False)
    #: the first partner of each node, and whether it met another one: a drift of a node that has one partner is the pair's
    _partner: Indices = field(init=False)
    _has_partners: Flags = field(init=False)
    _links: Indices = field(init=False)
    _between: dict[tuple[int, int], int] = field(init=False)
    _ways: list[tuple[int, int]] = field(init=False)
    _way_keys: Indices = field(init=False)
    _group_count: int = field(init=False)
    _link_of: dict[tuple[int, int], int] = field(init=False)
    _link_pairs: Indices = field(init=False)
    _group: Indices = field(init=False)
    #: of each group that is told, what jobs inside it lost since then
    _inside: dict[int, list[float]] = field(init=False, default_factory=dict)
    _class: Indices = field(init=False)

    def __post_init__(self) -> None:
        values, jobs, tests = self.values, self.jobs, len(self.values.tests)
        self._group = values.node_group.astype(np.int64)
        self._group_count = int(self._group.max(initial=-1)) + 1
        self._class = values.node_class.astype(np.int64)
        client, server = jobs.pairs[:, 0], jobs.pairs[:, 1]
        self._place = _places(client, server, self._group, self._class)
        count = int(self._place.max(initial=-1)) + 1
        self._place_level, self._place_known = np.zeros((count, tests)), np.zeros((count, tests), bool)
        self._base, self._night_level = np.full(tests, np.nan), np.zeros(tests)
        self._job_scatter, self._job_nights = np.full(tests, 0.02), np.zeros(tests)
        self._links = np.full(len(jobs.pairs), NOBODY, np.int64)
        judged = np.flatnonzero((jobs.pair_count > _QUIET[Thing.LINK]) & (server != NOBODY))
        self._links[judged] = np.arange(len(judged))
        self._witnesses = Witnesses(len(values.nodes))
        self._partner = np.full(len(values.nodes), NOBODY - 1, np.int64)
        self._has_partners = np.zeros(len(values.nodes), bool)
        ends = groups_crossed(client, server, self._group)
        self._way_keys = np.unique(self._way_key(ends[ends[:, 0] != NOBODY]))
        self._ways = [(one // self._group_count, one % self._group_count) for one in self._way_keys.tolist()]
        self._between = {way: index for index, way in enumerate(self._ways)}
        self._link_pairs = judged
        self._link_of = {(int(jobs.pairs[one, 0]), int(jobs.pairs[one, 1])): place for place, one in enumerate(judged)}
        class_count = len(values.classes) or int(self._class.max(initial=-1)) + 1
        sizes = {
            Thing.NIGHT: 1,
            Thing.CLASS: class_count,
            Thing.WITHIN: class_count,
            Thing.GROUP: self._group_count,
            Thing.BETWEEN: len(self._ways),
            Thing.NODE: len(values.nodes),
            Thing.ROLE: 2 * len(values.nodes),
            Thing.LINK: len(judged),
        }
        self._pair_level = np.zeros((len(judged), tests))
        self.levels = {
            thing: OverTime(
                size,
                tests,
                false_alarms=self.false_mornings * _SHARES[thing],
                pooled=thing is not Thing.NIGHT,
                quiet_nights=_QUIET[thing],
            )
            for thing, size in sizes.items()
        }
        self._roles = Roles(self.levels[Thing.NODE], self.levels[Thing.ROLE])
        self.counted = {thing: np.zeros((len(values.nights), size), np.int64) for thing, size in sizes.items()}

    # One night -----------------------------------------------------------------------------------------------------

    def add(self, index: int) -> None:
        """Judge the night of this index; call it once for each, in order."""
        self._newest = index
        jobs = self.jobs.first[index]
        if jobs is None:
            return
        tonight = self._tonight(jobs)
        self._night(index, tonight)
        self._class_level(index, tonight)
        self._group_levels(index, tonight)
        self._node_level(index, tonight)
        self._link_level(index, tonight)
        place = self._place[jobs.pair]
        left = self._of_others(jobs, tonight.left - self._node_part(jobs))
        self._learn_places(jobs, left + self._place_level[place], new=False)
        self._place_known[place] |= np.isfinite(tonight.left)
        self.suspects = self._suspected()
        again = self.jobs.again[index]
        if again is not None:
            self.suspects_on[index] = self.suspects
            self._again(index, again)
            self.suspects = self._suspected()

    def _suspected(self) -> dict[Thing, list[int]]:
        """Of a node that is slow in one role alone the role is suspected; of others the node."""
        found = {thing: level.suspected() for thing, level in self.levels.items()}
        found[Thing.NODE] &= ~self._roles.one_sided_nodes()
        found[Thing.ROLE] &= self._roles.accused() & ~np.tile(self.levels[Thing.NODE].told, 2)
        return {thing: np.flatnonzero(flags).tolist() for thing, flags in found.items()}

    def _expected(self, jobs: NightJobs) -> Floats:
        """All but the night's own: where the test stands here, and what the pair always has."""
        place = self._place[jobs.pair]
        link = self._links[jobs.pair]
        own = np.where((link != NOBODY)[:, None], self._pair_level[link], 0.0) if len(self._pair_level) else 0.0
        return np.asarray(self._place_level[place] + own)

    def _way_key(self, crossed: Indices) -> Indices:
        """One number for the two groups of each row, shape (rows, 2), whichever of them comes first."""
        return np.asarray(crossed.min(axis=1) * self._group_count + crossed.max(axis=1))

    def _tonight(self, jobs: NightJobs) -> _Tonight:
        expected = self._expected(jobs)
        crossing = groups_crossed(jobs.client, jobs.server, self._group)
        between = np.where(crossing[:, 0] == NOBODY, NOBODY, np.searchsorted(self._way_keys, self._way_key(crossing)))
        return _Tonight(jobs, np.zeros(jobs.value.shape), expected, crossing, between)

    def _node_part(self, jobs: NightJobs, *, with_told: bool = False) -> Floats:
        """What the slower end of each job always takes, shape (jobs, tests). with_told: and what was told of it."""
        level = self.levels[Thing.NODE].level
        of_client, of_server = self._ends(level) if with_told else (level, level)
        other = np.where((jobs.server != NOBODY)[:, None], of_server[jobs.server], np.inf)
        return np.minimum(of_client[jobs.client], other)

    def _ends(self, level: Floats | float = 0.0) -> Ends:
        """What is told of each node, and its `level`, as client and as server."""
        nodes, roles = self.levels[Thing.NODE], self.levels[Thing.ROLE]
        whole = level + np.where(nodes.told[:, None], nodes.effect, 0.0)
        as_client, as_server = np.split(np.where(roles.told[:, None], roles.effect, 0.0), 2)
        return whole + as_client, whole + as_server

    def _is_told(self, jobs: NightJobs) -> Flags:
        """Jobs of which an end is told, as a node or in its role."""
        nodes, roles = self.levels[Thing.NODE].told, self.levels[Thing.ROLE].told
        clients, servers = (np.append(nodes | its, False) for its in np.split(roles, 2))
        return np.asarray(clients[jobs.client] | servers[jobs.server])

    def _of_others(self, jobs: NightJobs, value: Floats) -> Floats:
        """`value`, shape (jobs, tests), without the jobs of nodes that are told, in tests of which enough others are left.

        Enough are FEWEST_OTHERS, or half of all. What such nodes take is not the night's nor the place's, even where they
        have a hand in most of its jobs.
        """
        others = ~self._is_told(jobs)
        measured = np.isfinite(value)
        enough = measured[others].sum(axis=0) >= np.clip(measured.sum(axis=0) / 2, 1, FEWEST_OTHERS)
        return np.where(others[:, None] | ~enough, value, np.nan)

    def _night(self, index: int, tonight: _Tonight) -> None:
        jobs = tonight.jobs
        place = self._place[jobs.pair]
        raw = jobs.value - tonight.expected
        known = self._place_known[place]
        part = self._node_part(jobs)
        usable = np.where(known, raw - part, np.nan)
        fresh = ~np.isfinite(usable).any(axis=0)
        usable = self._of_others(jobs, np.where(fresh, raw, usable))
        failed_as = self._base + self._night_level + NOTHING
        filled = np.where(jobs.failed & np.isfinite(failed_as), failed_as, usable)
        level, counts = night_level(filled - self._groups_of_night(tonight, filled))
        new = ~np.isfinite(self._base) & np.isfinite(level)
        self._base = np.where(new, level, self._base)
        self._night_level = np.where(np.isfinite(level), level - self._base, self._night_level)
        self._learn_places(jobs, raw - level, new=True)
        tonight.expected = self._expected(jobs)
        failed_left = np.where(level - self._base < NOTHING / 2, 0.0, NOTHING)
        left = jobs.value - tonight.expected - level
        tonight.left = np.where(jobs.failed & np.isfinite(level), failed_left + part, left)
        scatter = night_scatter(self._job_scatter, counts)
        score = (level - self._base)[None, :]
        self._count(Thing.NIGHT, index, np.zeros(len(jobs.client), np.int64), jobs)
        self.levels[Thing.NIGHT].look(index, score, scatter[None, :])
        self._learn_job_scatter(tonight.left - self._node_part(jobs, with_told=True))

    def _class_level(self, index: int, tonight: _Tonight) -> None:
        level = self.levels[Thing.CLASS]
        if len(level.told) < FEWEST_THINGS[Thing.CLASS]:
            return
        met, within = classes_met(tonight.jobs.client, tonight.jobs.server, self._class)
        self._collective(index, Thing.CLASS, met, tonight)
        self._collective(index, Thing.WITHIN, within, tonight)

    def _groups_of_night(self, tonight: _Tonight, filled: Floats) -> Floats:
        """What single groups take from jobs tonight, shape (jobs, tests), also where most jobs happen to meet one of them.

        Held against tonight's median, such a group hides. Held against the night's own past it shows, if what meets it not
        is nearer to that than to the median; where everything is slower, all groups are, and so is what leaves none.
        """
        level, _ = night_level(filled)
        usual = self._base + self.levels[Thing.NIGHT].level[0]
        explained = self._explained_by_groups(tonight, filled - level)
        if not (level - usual < -SMALLEST_EFFECT).any():
            return explained
        alone = self._explained_by_groups(tonight, filled - usual)
        others, count = night_level(np.where(alone < 0, np.nan, filled))
        shows = (level - usual < -SMALLEST_EFFECT) & (count >= FEWEST_OTHERS) & (others - usual > (level - usual) / 2)
        return np.where(shows, alone, explained)

    def _explained_by_groups(self, tonight: _Tonight, left: Floats) -> Floats:
        """What single groups and classes take away tonight: that is not the night's."""
        jobs = tonight.jobs
        explained = np.zeros(left.shape)
        met, within = classes_met(jobs.client, jobs.server, self._class)
        for thing, things in ((Thing.CLASS, met), (Thing.WITHIN, within), (Thing.GROUP, tonight.crossing)):
            level = self.levels[thing]
            if len(level.told) >= FEWEST_THINGS[thing]:
                score, scatter = group_scores(things, left - explained, level.told_effect(), self._job_scatter)
                look = level.peek(score, scatter)
                takes = groups_take(look.deviation, look.far(), level.told, level.effect)
                explained = explained + explained_by_groups(things, takes)
        return explained

    def _group_levels(self, index: int, tonight: _Tonight) -> None:
        """With two groups alone, what leaves one enters the other: it is the way between them."""
        if len(self.levels[Thing.GROUP].told) >= FEWEST_THINGS[Thing.GROUP]:
            self._collective(index, Thing.GROUP, tonight.crossing, tonight)
            self._inside_of_groups(tonight)
        if len(self._between):
            self._collective(index, Thing.BETWEEN, tonight.between[:, None], tonight)

    def _inside_of_groups(self, tonight: _Tonight) -> None:
        """Where jobs inside a group that is told are as slow, it is no single node's."""
        level, jobs = self.levels[Thing.GROUP], tonight.jobs
        own = np.where(jobs.server == NOBODY, NOBODY, self._group[jobs.server])
        own = np.where(self._group[jobs.client] == own, own, NOBODY)
        self._inside = {group: found for group, found in self._inside.items() if level.told[group]}
        left = tonight.left - self._node_part(jobs)
        for group in np.flatnonzero(level.told).tolist():
            takes = np.minimum(level.effect[group], 0.0)
            test = int(np.argmin(takes))
            rows = own == group
            found = self._inside.setdefault(group, [])
            found += left[rows & np.isfinite(left[:, test]), test].tolist()
            if len(found) >= INSIDE_JOBS_MIN and np.median(found) < takes[test] / 2:
                tonight.left = tonight.left - np.where(rows[:, None], takes, 0.0)

    def _collective(self, index: int, thing: Thing, things: Indices, tonight: _Tonight) -> None:
        level = self.levels[thing]
        for column in things.T:
            self._count(thing, index, column, tonight.jobs)
        left = tonight.left - self._node_part(tonight.jobs)
        score, scatter = group_scores(things, left, level.told_effect(), self._job_scatter)
        look = level.look(index, score, scatter, was_good=level.was_good())
        takes = groups_take(look.deviation, look.far(), level.told, level.effect)
        self._first[thing], self._takes[thing] = _First(look.deviation, scatter), takes
        tonight.left = tonight.left - explained_by_groups(things, takes)

    def _node_level(self, index: int, tonight: _Tonight) -> None:
        level, jobs = self.levels[Thing.NODE], tonight.jobs
        seen = seen_from(jobs.client, jobs.server, tonight.left, self._ends(level.level), self._ends())
        # beside a partner that is told, and slow tonight, nobody shows how fast it is: such a job clears no node
        says = np.where(seen.hidden, np.nan, seen.says)
        heard = np.isfinite(says).any(axis=1)
        role = role_of(seen.node, seen.end, seen.partner, len(level.told))
        self._count_ends(index, jobs)
        score, scatter = node_scores(seen.node, says - self._of_role(role, says), len(level.told), self._job_scatter)
        with np.errstate(invalid="ignore"):
            slow = ((score - level.level) < -2 * scatter).any(axis=1)
        self._witnesses.add(seen.node[heard], seen.partner[heard], np.asarray(slow))
        fresh = self._partner[seen.node] == NOBODY - 1
        self._partner[seen.node[fresh]] = seen.partner[fresh]
        self._has_partners[seen.node[(seen.partner == NOBODY) | (seen.partner != self._partner[seen.node])]] = True
        rows = heard & (role != NOBODY)
        of_role = np.where(self._slow_with_others(jobs, says), np.nan, says)[rows]
        deviation, role_scatter = self._roles.look(index, role[rows], seen.partner[rows], of_role, self._job_scatter)
        self._first[Thing.ROLE] = _First(deviation, role_scatter)
        both = ~self._roles.one_sided_nodes()
        may = {"may_tell": self._witnesses.enough & both, "may_drift": self._has_partners & both}
        look = level.look(index, score, scatter, **may, was_good=level.was_good())
        self._witnesses.forget((level.sum <= 0).all(axis=1) & ~level.told)
        peers = np.where(self._class == NOBODY, self._class.max(initial=0) + 1, self._class)
        level.tell_slow_from_the_start(index, peers)
        level.recentre((level.seen == index) & ~level.told)
        self._roles.tell(index, peers)
        self._first[Thing.NODE] = _First(look.deviation, scatter)

    def _slow_with_others(self, jobs: NightJobs, says: Floats) -> Flags:
        """Rows of `says` whose partner is slow tonight with others, too: they do not show how fast the node is in its role."""
        others = lost_with_others(jobs.client, jobs.server, says[: len(jobs.client)], self._job_scatter)
        return np.asarray(np.concatenate([others[1], others[0][jobs.server != NOBODY]]) < 0)

    def _of_role(self, role: Indices, says: Floats) -> Floats:
        """What was told of a node in its role, shape (rows, tests): no word on the node itself, as far as it shows tonight."""
        roles = self.levels[Thing.ROLE]
        told = np.where(roles.told[:, None], np.minimum(roles.effect, 0.0), 0.0)[role]
        return np.where((role == NOBODY)[:, None], 0.0, np.maximum(told, np.minimum(says, 0.0)))

    def _link_level(self, index: int, tonight: _Tonight) -> None:
        level, jobs = self.levels[Thing.LINK], tonight.jobs
        link = self._links[jobs.pair]
        rows = link != NOBODY
        if not rows.any():
            return
        part = self._node_part(jobs)
        left = left_by_nodes(jobs.client, jobs.server, tonight.left - part, self._ends(), self._job_scatter)
        score = np.full(level.level.shape, np.nan)
        score[link[rows]] = left[rows] + self._pair_level[link[rows]]
        self._count(Thing.LINK, index, link, jobs)
        scatter = np.broadcast_to(self._job_scatter, score.shape)
        self._first[Thing.LINK] = _First(level.look(index, score, scatter).deviation, scatter)
        self._pair_level = level.level * (level.nights >= 1)

    def _again(self, index: int, again: NightJobs) -> None:
        """The second measurements of tonight's suspects, each judged by its own: partners were chosen because they are good."""
        self._count_ends(index, again)
        for thing in MEASURED_AGAIN:
            if self.levels[thing].suspected().any() and thing in self._first:
                self._thing_again(index, thing, again)

    def _thing_again(self, index: int, thing: Thing, again: NightJobs) -> None:
        level, first = self.levels[thing], self._first[thing]
        suspects = level.suspected()
        owner, partner, says = self._says_again(index, thing, again)
        jobs = sum(np.isin(again.pair, one.pair).astype(np.int64) for one in self.jobs.each_again[index])
        rows = np.where(again.count > 0, np.broadcast_to(jobs, again.count.T.shape).T, 0)
        of_ends = thing in {Thing.NODE, Thing.ROLE}
        rows = np.concatenate([rows, rows[again.server != NOBODY]]) if of_ends else rows
        mine = owner != NOBODY
        share = NODE_SHARE if of_ends else GROUP_SHARE
        score, relative = scores_again(owner[mine], says[mine], rows[mine], self._job_scatter, len(level.told), share)
        sure = suspects
        if thing is Thing.NODE:
            self._witnesses.add(owner, partner, suspects & np.isfinite(score).any(axis=1))
            sure = suspects & self._witnesses.enough & ~self._roles.one_sided_nodes()
        elif thing is Thing.ROLE:
            self._roles.witnesses.add(owner[mine], partner[mine], suspects & np.isfinite(score).any(axis=1))
        else:
            self._count(thing, index, owner, again)
        total = self._job_scatter**2
        shared = level.shared(first.scatter, total)
        variance = shared + relative**2 * np.maximum(total - shared, 0.1 * total)
        repeats = np.clip(shared / np.maximum((level.scale * first.scatter) ** 2, 1e-12), 0.0, 1.0)
        variance = np.maximum(variance - repeats * shared, 1e-12)
        scatter = np.hypot(np.sqrt(variance), level.floor)
        if thing is Thing.ROLE:
            self._roles.look_again(score, scatter)
            sure = suspects & self._roles.witnesses.enough & self._roles.accused()
        each = [self._says_again(index, thing, jobs) for jobs in self.jobs.each_again[index]]
        shift = level.gathered / np.maximum(level.gathered_nights, 1)
        slow: dict[int, Flags] = {}
        for one in np.flatnonzero(suspects & np.isin(np.arange(len(suspects)), owner)).tolist():
            nearer = min(float(np.min(shift[one])), -SMALLEST_EFFECT) / 2
            slow[one] = np.concatenate([(said[end == one] - level.level[one] < nearer).any(axis=1) for end, _, said in each])
        every = np.zeros(len(suspects), bool)
        every[[one for one, by_job in slow.items() if len(by_job) >= CLEAR_JOBS and by_job.all()]] = True
        told = level.look_again(index, score, scatter, things=sure, every=every, first=first.deviation, shared=repeats)
        for one, by_job in slow.items():
            self.again.append(Again(index, thing, one, int(by_job.sum()), len(by_job), bool(told[one])))
            if not told[one] and by_job.mean() <= REFUTED_SHARE:
                level.sum[one] = 0.0  # a lower sum is told more rarely still

    def _says_again(self, index: int, thing: Thing, again: NightJobs) -> tuple[Indices, Indices, Floats]:
        """What second measurements say of the things of a level: thing (NOBODY: of none), its partner, and the value."""
        left = again.value - self._expected(again) - (self._base + self._night_level)
        left = np.where(again.failed, NOTHING + self._node_part(again), left)
        if thing in {Thing.NODE, Thing.ROLE}:
            seen = seen_from(again.client, again.server, left, self._ends(self.levels[Thing.NODE].level), self._ends())
            role = role_of(seen.node, seen.end, seen.partner, len(self.values.nodes))
            if thing is Thing.ROLE:
                return role, seen.partner, seen.says
            return seen.node, seen.partner, seen.says - self._of_role(role, seen.says)
        left = left - self._node_part(again)
        about = [self.about(index, int(a), int(b)) for a, b in zip(again.client, again.server, strict=True)]
        owner = np.array([one if its is thing else NOBODY for its, one in about], np.int64)
        if thing is Thing.LINK:
            left = left + np.where((owner != NOBODY)[:, None], self._pair_level[owner], 0.0)
        if thing is not Thing.GROUP and Thing.GROUP in self._takes:
            crossing = groups_crossed(again.client, again.server, self._group)
            left = left - explained_by_groups(crossing, self._takes[Thing.GROUP])
        return owner, again.server, left

    def about(self, night: int, client: int, server: int) -> tuple[Thing, int]:
        """What a second measurement of this pair was for, that night: one of those that were suspected before it."""
        suspects = self.suspects_on.get(night, {})
        for thing, index in self._ends_as_things(client, server):
            if index in suspects.get(thing, ()):
                return thing, index
        link = self._link_of.get((client, server), NOBODY)
        if link in suspects.get(Thing.LINK, ()):
            return Thing.LINK, link
        group, other = int(self._group[client]), int(self._group[server]) if server != NOBODY else NOBODY
        way = self._between.get((min(group, other), max(group, other)), NOBODY)
        if way != NOBODY and group in suspects.get(Thing.GROUP, ()):
            return Thing.GROUP, group
        return (Thing.BETWEEN, way) if way in suspects.get(Thing.BETWEEN, ()) else (Thing.NODE, client)

    def _ends_as_things(self, client: int, server: int) -> tuple[tuple[Thing, int], ...]:
        alone = server == NOBODY
        of_server = () if alone else ((Thing.NODE, server), (Thing.ROLE, server + len(self.values.nodes)))
        return (Thing.NODE, client), (Thing.ROLE, client), *of_server

    def roles_of(self, thing: Thing, index: int) -> tuple[tuple[Thing, int], ...]:
        """The roles of a node, as things; of anything else none."""
        return ((Thing.ROLE, index), (Thing.ROLE, index + len(self.values.nodes))) if thing is Thing.NODE else ()

    def sides_of(self, thing: Thing, index: int) -> tuple[int, int]:
        """The groups that a way connects; of a group itself and NOBODY."""
        return self._ways[index] if thing is Thing.BETWEEN else (index, NOBODY)

    def ends_of(self, link: int) -> tuple[int, int]:
        """Client and server of a link."""
        client, server = self.jobs.pairs[self._link_pairs[link]]
        return int(client), int(server)

    # Learning ------------------------------------------------------------------------------------------------------

    def _learn_places(self, jobs: NightJobs, above: Floats, *, new: bool) -> None:
        """Of a new place the median of its first jobs counts, drawn to that of all; later it follows slowly.

        above: shape (jobs, tests), over the night's level. new: learn of places that nothing is known of, or of others.
        """
        place = self._place[jobs.pair]
        due = self._place_known[place] != new
        for one in np.unique(place[due.any(axis=1)]):
            here = place == one
            rows = np.where(due[here], above[here], np.nan)
            medians, counts = column_medians(rows)
            for test in np.flatnonzero(counts).tolist():
                first = self._place_first.setdefault((int(one), test), [])
                if len(first) < FIRST_JOBS:
                    first.extend(rows[np.isfinite(rows[:, test]), test].tolist())
                    self._place_level[one, test] = len(first) / (len(first) + 2) * float(np.median(first))
                    continue
                reach = 3 * float(self._job_scatter[test]) / sqrt(counts[test])
                moved = min(max(float(medians[test] - self._place_level[one, test]), -reach), reach)
                self._place_level[one, test] += moved / MEMORY_NIGHTS

    def _learn_job_scatter(self, left: Floats) -> None:
        medians, counts = column_medians(left)
        far, _ = column_medians(np.abs(left - medians))
        for test in np.flatnonzero(counts >= 2).tolist():
            many = counts[test] >= 4
            scatter = 1.4826 * far[test] if many else left[np.isfinite(left[:, test]), test].std(ddof=1)
            tonight = max(float(scatter), 1e-4)
            if self._job_nights[test] >= FEW_NIGHTS:  # a node that became slow makes half of a small site's jobs scatter
                grows = SCATTER_GROWS if many else SCATTER_OF_FEW_GROWS
                tonight = min(tonight, grows * float(self._job_scatter[test]))
            gain = max(1 / (self._job_nights[test] + 1), 1 / MEMORY_NIGHTS)
            self._job_scatter[test] = np.sqrt((1 - gain) * self._job_scatter[test] ** 2 + gain * tonight**2)
            self._job_nights[test] += 1

    def _count(self, thing: Thing, index: int, things: Indices, jobs: NightJobs) -> None:
        rows = things != NOBODY
        np.add.at(self.counted[thing][index], things[rows], jobs.count[rows].sum(axis=1))

    def _count_ends(self, index: int, jobs: NightJobs) -> None:
        for end, (one, other) in enumerate(((jobs.client, jobs.server), (jobs.server, jobs.client))):
            self._count(Thing.NODE, index, one, jobs)
            role = role_of(one, np.full(len(one), end), other, len(self.values.nodes))
            self._count(Thing.ROLE, index, np.where(one == NOBODY, NOBODY, role), jobs)

    # What is said --------------------------------------------------------------------------------------------------

    def judgement(self, first: int = 0) -> Judgement:
        """What is said after the newest night that was added. Ended causes, and coverage, from night index `first` on."""
        newest = len(self.values.nights) - 1
        causes: list[Cause] = []
        for thing, level in self.levels.items():
            for told in level.messages:
                if told.ended is None or told.ended >= first:
                    causes.append(self._told_cause(thing, told))
            causes += [self._suspected_cause(thing, index) for index in self.suspects.get(thing, ())]
        causes += self._lost_causes()
        order = {State.TOLD: 0, State.SUSPECTED: 1, State.ENDED: 2, State.FINE: 3}
        groups = zip(self.values.nodes, self._group.tolist(), strict=True)
        group_of = {node: self._group_name(group) for node, group in groups if group != NOBODY}
        kept = [one for one in self._directions(causes) if not _is_part(one, causes, group_of)]
        kept.sort(key=lambda one: (order[one.state], one.since, list(Thing).index(one.thing), one.names))
        return Judgement(newest, tuple(kept), tuple(self._coverage(first)))

    def _lost_causes(self) -> list[Cause]:
        """Nodes that bring nothing with some partners, and are as before with others: no best of their pairs shows that."""
        places = range(max(0, self._newest + 1 - LOST_NIGHTS), self._newest + 1)
        nights = [(place, jobs) for place in places if (jobs := self.jobs.first[place]) is not None]
        if not any(jobs.failed.any() for _, jobs in nights):
            return []
        night = np.concatenate([np.full(len(jobs.client), place) for place, jobs in nights])
        client, server = (np.concatenate([getattr(jobs, end) for _, jobs in nights]) for end in ("client", "server"))
        failed = np.concatenate([jobs.failed for _, jobs in nights])
        left, found = (server != NOBODY) & ~self._told_ends(client, server), list[Cause]()
        while True:
            lost = left & failed.any(axis=1)
            counts = np.bincount(np.concatenate([client[lost], server[lost]]), minlength=len(self.values.nodes))
            node = int(np.argmax(counts))
            its = left & ((client == node) | (server == node))
            if counts[node] < LOST_JOBS:
                return found
            cause = self._lost_cause(node, night[its], (client + server - node)[its], failed[its], lost[left & ~its])
            found += [cause] if cause is not None else []
            left &= ~its

    def _told_ends(self, client: Indices, server: Indices) -> Flags:
        told = np.append(self.levels[Thing.NODE].told, False)
        return np.asarray(told[client] | told[server])

    def _lost_cause(self, node: int, night: Indices, partner: Indices, failed: Flags, others: Flags) -> Cause | None:
        """night, partner, failed: of the node's jobs, in the order of nights. others: which jobs of other nodes failed."""
        lost = np.asarray(failed.any(axis=1))
        count, of = int(lost.sum()), lost.size
        usual = min(max(STRAY_LOST, float(others.mean()) if others.size else 0.0), 0.99)
        chance = _chance_of(count, of, usual)
        others_of_node = np.flatnonzero(partner != np.argmax(np.bincount(partner[lost])))
        apart = _chance_of(int(lost[others_of_node].sum()), len(others_of_node), usual)
        partners, since_then = len(set(partner[lost].tolist())), of - 1 - int(np.flatnonzero(lost)[-1])
        well = (1 - min(count / of, 0.99)) ** -since_then if count < of else 1.0
        enough = min(LOST_PARTNERS, max(2, len(set(partner.tolist()))))
        by_chance = max(chance / LOST_CHANCE, apart / LOST_APART) * len(self.values.nodes)
        if partners < enough or by_chance > 1 or well >= LOST_ENDS:
            return None
        nights = np.unique(night[lost])
        tests = np.flatnonzero(failed.any(axis=0))
        ratio = 1 - count / of
        reason = f"no valid result in {count} of {of} jobs on {len(np.unique(night))} nights, with {partners} partners"
        told = int(night[np.flatnonzero(lost)[LOST_JOBS - 1]])
        shown = Effect(ratio, ratio, ratio)
        names, since = (self.values.nodes[node],), int(nights[0])
        return Cause(Thing.NODE, names, self._test_names(tests), State.TOLD, since, told, None, shown, of, reason)

    def _told_cause(self, thing: Thing, told: Told) -> Cause:
        level = self.levels[thing]
        nights = np.maximum(told.nights, 1)
        tests = self._affected(told.effect, told.nights > 0, told.column)
        scatter = np.sqrt(np.maximum(told.squares / nights - told.effect**2, 0.0))
        least = np.where(np.isfinite(level.scale), level.scale, 1.0) * self._job_scatter
        error = np.maximum(scatter, least) / np.sqrt(nights)
        effect = _effect(told.effect[tests], error[tests])
        count = int(self.counted[thing][told.since :, told.thing].sum())
        state = State.TOLD if told.ended is None else State.ENDED
        reason = self._words(thing, told.thing, tests, effect, told.since)
        if told.from_start or told.since <= level.first_seen[told.thing]:
            reason = reason.replace("worse than before", "worse than its peers since it was first measured")
        whole = thing is Thing.GROUP and self._slow_inside(told.thing, tests, effect, told.since)
        if whole:
            reason = reason.replace(_SEEN[thing], _SEEN_WHOLE)
        if told.drifted:
            reason += "; it came slowly, no night stood out"
        if told.relapses:
            reason += f"; it comes and goes: fine in between, {'once' if told.relapses == 1 else f'{told.relapses} times'}"
        if told.confirmed:
            reason += "; confirmed the same night"
        return Cause(
            Thing.NODE if thing is Thing.ROLE else thing,
            self.names(thing, told.thing),
            self._test_names(tests),
            state,
            told.since,
            told.told,
            told.ended,
            effect,
            count,
            reason,
            self._role(thing, told.thing),
            whole=whole,
        )

    def _slow_inside(self, group: int, tests: Indices, effect: Effect, since: int) -> bool:
        """Whether jobs inside a group lost half as much since then as what leaves it, beside jobs that do not meet it."""
        values, ratios = self.values, list[float]()
        ends = self._group[values.client], np.where(values.server == NOBODY, NOBODY, self._group[values.server])
        met = (ends[0] == group) | (ends[1] == group)
        inside = (ends[0] == group) & (ends[1] == group)
        new = values.night >= since
        for test in tests:
            usable = np.isfinite(values.value) & (values.test == test)
            parts = [values.value[usable & some & when] for some in (inside, ~met) for when in (new, ~new)]
            if min(map(len, parts)) >= INSIDE_JOBS_MIN:
                medians = [float(np.median(part)) for part in parts]
                ratios.append(medians[0] - medians[1] - (medians[2] - medians[3]))
        return bool(ratios) and float(np.median(ratios)) < log(max(effect.ratio, exp(NOTHING))) / 2

    def _suspected_cause(self, thing: Thing, index: int) -> Cause:
        level = self.levels[thing]
        column, since, values, nearly = level.doubt(index)
        nights = np.isfinite(values).sum(axis=0)
        shift = np.nansum(values, axis=0) / np.maximum(nights, 1)
        tests = self._affected(shift, nights > 0, column)
        scale = np.where(np.isfinite(level.scale), level.scale, 1.0) * self._job_scatter
        effect = _effect(shift[tests], (scale / np.sqrt(np.maximum(nights, 1)))[tests])
        count = int(self.counted[thing][since:, index].sum())
        lost = np.isfinite(values) & (values < NOTHING / 2)
        others = values[np.isfinite(values) & ~lost]
        only_lost = lost.any() and len(others) > 0 and float(np.median(others)) > -SMALLEST_EFFECT
        if only_lost:  # a mean of nothing and of all that is as before would tell of a loss that no job shows
            tests = np.flatnonzero(lost.any(axis=0))
        said = _lost_words(int(lost.any(axis=1).sum()), len(values)) if only_lost else None
        reason = self._words(thing, index, tests, effect, since, said)
        what, names = Thing.NODE if thing is Thing.ROLE else thing, self.names(thing, index)
        role, shown = self._role(thing, index), self._test_names(tests)
        return Cause(what, names, shown, State.SUSPECTED, since, None, None, effect, count, reason, role, nearly)

    def _role(self, thing: Thing, index: int) -> Role | None:
        if thing is not Thing.ROLE:
            return None
        return Role.CLIENT if index < len(self.values.nodes) else Role.SERVER

    def _words(  # noqa: PLR0917 - what was seen, of what and since when
        self, thing: Thing, index: int, tests: Indices, effect: Effect, since: int, said: str | None = None
    ) -> str:
        """What was seen. Of a role: as the end that sends, where all of its tests have one. said: instead of an effect."""
        jobs, role, seen = self.counted[thing][since:, index], self._role(thing, index), _SEEN[thing]
        if thing is Thing.NODE and (self.values.server[np.isin(self.values.test, tests)] == NOBODY).all():
            seen = "measured alone"
        words = said or _words(effect, seen, int(jobs.sum()), int((jobs > 0).sum()), grows=self._grows(tests))
        if role is None:
            return words
        sends = {self.values.tests[test].sends for test in tests}
        if None in sends or len(sends) > 1:
            return f"slow as the {role}: {words}"
        return f"slow when it {'sends' if role in sends else 'receives'}: {words}"

    def _grows(self, tests: Indices) -> bool:
        """Whether all of these tests get larger as they get worse, as latencies do."""
        return all(self.values.tests[test].better is Better.LOWER for test in tests)

    def _test_names(self, tests: Indices) -> tuple[str, ...]:
        return tuple(self.values.tests[test].name for test in tests)

    def _affected(self, shift: Floats, measured: Flags, column: int) -> Indices:
        """The tests in which a cause shows: the one that told it, and those that moved at least a third as far."""
        largest = float(np.min(np.where(measured, shift, 0.0)))
        moved = measured & (shift <= min(largest / 3, -SMALLEST_EFFECT))
        if column >= 0:
            moved[column] = True
        found = np.flatnonzero(moved)
        return found if len(found) else np.flatnonzero(measured)

    def _directions(self, causes: list[Cause]) -> list[Cause]:
        """Links are watched per direction. Where the other direction is measured and fine, the cause is the pair alone."""
        place = {name: index for index, name in enumerate(self.values.nodes)}
        found: list[Cause] = []
        links_told = {(one.names, one.state): one for one in causes if one.thing is Thing.LINK}
        for one in causes:
            if one.thing is not Thing.LINK:
                found.append(one)
                continue
            client, server = one.names
            twin = links_told.get(((server, client), one.state))
            if twin is None and (place[server], place[client]) in self._link_of:
                found.append(replace(one, thing=Thing.PAIR))
            elif twin is None:
                found.append(replace(one, names=(min(one.names), max(one.names))))
            elif client < server:
                tests = tuple(dict.fromkeys((*one.tests, *twin.tests)))
                worse = min((one, twin), key=lambda each: each.effect.ratio)
                count, since = one.job_count + twin.job_count, min(one.since, twin.since)
                found.append(replace(worse, names=(client, server), tests=tests, since=since, job_count=count))
        return found

    def _coverage(self, first: int) -> list[Coverage]:
        found = []
        for thing, level in ((thing, level) for thing, level in self.levels.items() if thing is not Thing.ROLE):
            jobs = self.counted[thing][first:].sum(axis=0)
            nights = level.nights.max(axis=1, initial=0)
            if (thing in FEWEST_THINGS and len(jobs) < FEWEST_THINGS[thing]) or not len(jobs):
                continue
            for index in range(len(jobs)) if thing is not Thing.LINK else np.flatnonzero(jobs):
                need = max(_QUIET[thing], ENOUGH_NIGHTS) - int(nights[index])
                if jobs[index] == 0:
                    judged, missing = Judged.NOT_MEASURED, "no job in this stretch"
                elif need > 0:
                    judged, missing = Judged.TOO_FEW_JOBS, f"{need} more night{'s' if need > 1 else ''} of it"
                else:
                    judged, missing = Judged.JUDGED, ""
                found.append(Coverage(thing, self.names(thing, int(index)), judged, int(jobs[index]), missing))
        return found

    def names(self, thing: Thing, index: int) -> tuple[str, ...]:
        """What a thing of a level is called."""
        values = self.values
        if thing in {Thing.CLASS, Thing.WITHIN}:
            return (values.classes[index] if values.classes else str(index),)
        if thing is Thing.GROUP:
            return (self._group_name(index),)
        if thing is Thing.BETWEEN:
            a, b = self._ways[index]
            return (self._group_name(a), self._group_name(b))
        if thing in {Thing.NODE, Thing.ROLE}:
            return (values.nodes[index % len(values.nodes)],)
        if thing is Thing.LINK:
            client, server = self.jobs.pairs[self._link_pairs[index]]
            return (values.nodes[client], values.nodes[server])
        return ()

    def _group_name(self, index: int) -> str:
        return self.values.groups[index] if self.values.groups else str(index)


def _is_part(one: Cause, causes: list[Cause], group_of: Mapping[str, str]) -> bool:  # noqa: PLR0911 - one rule after the other
    """Whether a cause above it, at least as certain, explains this one. group_of: the group of each node that has one."""
    certain = (State.TOLD,) if one.state is State.TOLD else (State.TOLD, one.state)
    for other in causes:
        if other is one or other.state not in certain or not set(other.tests) & set(one.tests):
            continue
        if other.thing is Thing.NODE and other.names[0] in one.names:
            of_pair = one.thing is Thing.PAIR and one.names == (other.names[0], one.names[1])
            if one.thing is Thing.NODE and (other.state is not one.state or (one.role is not None and other.role is None)):
                return True
            if one.thing is Thing.LINK or (
                one.thing is Thing.PAIR and (other.role is None or of_pair == (other.role is Role.CLIENT))
            ):
                return True
        if other.thing is Thing.GROUP and one.thing is Thing.BETWEEN and other.names[0] in one.names:
            return True
        if other.thing is Thing.CLASS and one.thing is Thing.WITHIN and other.names == one.names:
            return True
        in_group = other.whole and one.thing is Thing.NODE and group_of.get(one.names[0]) in other.names
        if in_group and one.effect.ratio > MUCH_WORSE * other.effect.ratio and one.since >= other.since - 1:
            return True
        of_link = other.thing in {Thing.LINK, Thing.PAIR} and other.state is State.TOLD and one.state is State.SUSPECTED
        if of_link and one.thing is Thing.NODE and one.names[0] in other.names and one.job_count <= other.job_count:
            return True  # where a node has one partner at that end, its jobs are those of the link
    return False


def _effect(shift: Floats, error: Floats) -> Effect:
    """The mean over tests of logarithms, with 1.96 standard errors either way."""
    mean = float(np.mean(shift))
    if mean < NOTHING / 2:
        return Effect(0.0, 0.0, 0.0)
    reach = 1.96 * float(np.sqrt(np.sum(error**2))) / len(error)
    return Effect(float(np.exp(mean)), float(np.exp(mean - reach)), float(np.exp(mean + reach)))


_SEEN = {
    Thing.NIGHT: "everything together",
    Thing.CLASS: "most jobs of nodes of this class, whoever the other end is",
    Thing.WITHIN: "most jobs among nodes of this class",
    Thing.GROUP: "most jobs that leave the group, whoever the other end is",
    Thing.BETWEEN: "most jobs between the two groups",
    Thing.NODE: "with everybody it met",
    Thing.ROLE: "with everybody, and as before the other way",
    Thing.LINK: "while both ends are fine with others",
}

_SEEN_WHOLE = "most jobs of its nodes, also those that stay inside the group: so not its uplink alone"


def _words(effect: Effect, seen: str, jobs: int, nights: int, *, grows: bool) -> str:
    """grows: the values got larger: what was measured is 30 % above before where it is said to be 30 % worse."""
    found = "no valid result"
    if effect.ratio > 0:
        found = f"{100 * (1 / effect.ratio - 1 if grows else 1 - effect.ratio):.1f} % worse than before"
    counted = f"{jobs} job{'s' if jobs != 1 else ''} on {nights} night{'s' if nights != 1 else ''}"
    return f"{found}, {seen}, in {counted}"


def _chance_of(count: int, of: int, usual: float) -> float:
    """How probable it is that `count` of `of` jobs or more fail where each fails with probability `usual`."""
    ways = (lgamma(of + 1) - lgamma(k + 1) - lgamma(of - k + 1) for k in range(count, of + 1))
    return sum(exp(one + k * log(usual) + (of - k) * log(1 - usual)) for k, one in enumerate(ways, count))


def _lost_words(lost: int, nights: int) -> str:
    return f"no valid result in one of its tests on {lost} of {nights} nights; what came through is as before"


def _places(client: Indices, server: Indices, group: Indices, kind: Indices) -> Indices:
    """Number the places of pairs: the classes of both ends, and whether they share their group (or nobody knows)."""
    alone = server == NOBODY
    kinds = np.sort(np.stack([kind[client], np.where(alone, kind[client], kind[server])], axis=1), axis=1)
    own, other = group[client], np.where(alone, group[client], group[server])
    where = np.where(alone, 3, np.where((own == NOBODY) | (other == NOBODY), 0, np.where(own == other, 1, 2)))
    if not len(client):
        return np.zeros(0, np.int64)
    return np.asarray(np.unique(np.column_stack([kinds, where]), axis=0, return_inverse=True)[1]).reshape(-1)
