"""From the values of a site to what is said of it: night after night, each level on what those above it leave.

    value of a job = level of its place and class + night - (what the slower of its parts takes away: group, node, link)
                     + what its pair always has + scatter

    each night:  night  ->  classes  ->  groups  ->  between two groups  ->  nodes  ->  links
                   |           |           |               |                 |          |
                 OverTime of each level: fine, suspected, told, ended

Nothing is stored between calls, and no night looks ahead: what is said of night B is what was said on B.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from hpcq.judge.causes import Cause, Coverage, Effect, Judged, Judgement, State, Thing
from hpcq.judge.levels import (
    GROUP_SHARE,
    NODE_SHARE,
    Witnesses,
    class_inside,
    explained_by_groups,
    group_scores,
    groups_crossed,
    groups_take,
    left_by_nodes,
    night_level,
    night_scatter,
    node_scores,
    scores_again,
    seen_from,
)
from hpcq.judge.over_time import MEMORY_NIGHTS, SMALLEST_EFFECT, START_NIGHTS, OverTime, Told
from hpcq.judge.values import NOBODY, Flags, Floats, Indices, Jobs, NightJobs, Values, by_night
from hpcq.kernels import Better

#: What a site bears: 1 false morning per 100 nights.
FALSE_MORNINGS = 0.01
#: How the levels share it.
_SHARES = {Thing.NIGHT: 0.15, Thing.CLASS: 0.05, Thing.GROUP: 0.1, Thing.BETWEEN: 0.1, Thing.NODE: 0.4, Thing.LINK: 0.2}
#: One class alone is everything. Of two groups, what leaves one enters the other.
FEWEST_THINGS = {Thing.CLASS: 2, Thing.GROUP: 3}
#: Logarithm of what a failed job counts as: a hundredth of what is expected.
NOTHING = -float(np.log(100.0))
#: The level of a place is the median of its first so many jobs; from then on it follows slowly.
FIRST_JOBS = 30
#: So many second jobs that are slow, all of them, are a clear answer: three with each of two partners.
CLEAR_JOBS = 6
#: A suspect is cleared if no larger share of its second jobs is slow.
REFUTED_SHARE = 1 / 3
#: What is measured again the same night if it is suspected. A night or a class has no good partner.
MEASURED_AGAIN = (Thing.NODE, Thing.LINK, Thing.GROUP, Thing.BETWEEN)
#: Nights of a thing, the newest among them, without which silence about it is not called fine: with two before it nothing is
#: ever suspected, and only then is it held against its peers.
ENOUGH_NIGHTS = START_NIGHTS[0]
#: A night is held against its past by the jobs of nodes of which nothing is told, if there are so many.
FEWEST_OTHERS = 3
#: From so many nights on the scatter of jobs is known. A night then counts as so many times as much at most: as less where
#: it has two or three jobs, for one bad node is in most of them.
FEW_NIGHTS, SCATTER_GROWS, SCATTER_OF_FEW_GROWS = 5, 3.0, 1.5
#: Nights that a thing needs before it can be judged.
_QUIET = {Thing.NIGHT: 3, Thing.CLASS: 3, Thing.GROUP: 3, Thing.BETWEEN: 5, Thing.NODE: 1, Thing.LINK: 3}


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
    #: the first partner of each node, and whether it met another one: a drift of a node that has one partner is the pair's
    _partner: Indices = field(init=False)
    _has_partners: Flags = field(init=False)
    _links: Indices = field(init=False)
    _between: dict[tuple[int, int], int] = field(init=False)
    _ways: list[tuple[int, int]] = field(init=False)
    _link_of: dict[tuple[int, int], int] = field(init=False)
    _link_pairs: Indices = field(init=False)
    _group: Indices = field(init=False)
    _class: Indices = field(init=False)

    def __post_init__(self) -> None:
        values, jobs, tests = self.values, self.jobs, len(self.values.tests)
        self._group = values.node_group.astype(np.int64)
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
        ways = sorted({(int(min(pair)), int(max(pair))) for pair in ends if pair[0] != NOBODY})
        self._between = {way: index for index, way in enumerate(ways)}
        self._ways = ways
        self._link_pairs = judged
        self._link_of = {(int(jobs.pairs[one, 0]), int(jobs.pairs[one, 1])): place for place, one in enumerate(judged)}
        sizes = {
            Thing.NIGHT: 1,
            Thing.CLASS: len(values.classes) or int(self._class.max(initial=-1)) + 1,
            Thing.GROUP: int(self._group.max(initial=-1)) + 1,
            Thing.BETWEEN: len(ways),
            Thing.NODE: len(values.nodes),
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
        self.counted = {thing: np.zeros((len(values.nights), size), np.int64) for thing, size in sizes.items()}

    # One night -----------------------------------------------------------------------------------------------------

    def add(self, index: int) -> None:
        """Judge the night of this index; call it once for each, in order."""
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
        return {thing: np.flatnonzero(level.suspected()).tolist() for thing, level in self.levels.items()}

    def _expected(self, jobs: NightJobs) -> Floats:
        """All but the night's own: where the test stands here, and what the pair always has."""
        place = self._place[jobs.pair]
        link = self._links[jobs.pair]
        own = np.where((link != NOBODY)[:, None], self._pair_level[link], 0.0) if len(self._pair_level) else 0.0
        return np.asarray(self._place_level[place] + own)

    def _tonight(self, jobs: NightJobs) -> _Tonight:
        expected = self._expected(jobs)
        crossing = groups_crossed(jobs.client, jobs.server, self._group)
        ways = np.sort(crossing, axis=1)
        between = np.array([self._between.get((int(a), int(b)), NOBODY) for a, b in ways], np.int64)
        return _Tonight(jobs, np.zeros(jobs.value.shape), expected, crossing, between)

    def _node_part(self, jobs: NightJobs, *, with_told: bool = False) -> Floats:
        """What the slower end of each job always takes, shape (jobs, tests). with_told: and what was told of it."""
        nodes = self.levels[Thing.NODE]
        level = nodes.level + np.where(nodes.told[:, None], nodes.effect, 0.0) if with_told else nodes.level
        other = np.where((jobs.server != NOBODY)[:, None], level[jobs.server], np.inf)
        return np.minimum(level[jobs.client], other)

    def _of_others(self, jobs: NightJobs, value: Floats) -> Floats:
        """`value`, shape (jobs, tests), without the jobs of nodes that are told, in tests of which enough others are left.

        Enough are FEWEST_OTHERS, or half of all. What such nodes take is not the night's nor the place's, even where they
        have a hand in most of its jobs.
        """
        told = np.append(self.levels[Thing.NODE].told, False)
        others = ~(told[jobs.client] | told[jobs.server])
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
        level, counts = night_level(filled)
        level, counts = night_level(filled - self._explained_by_groups(tonight, filled - level))
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
        things = class_inside(tonight.jobs.client, tonight.jobs.server, self._class)
        self._collective(index, Thing.CLASS, things, tonight)

    def _explained_by_groups(self, tonight: _Tonight, left: Floats) -> Floats:
        """What single groups and classes take away tonight: that is not the night's."""
        jobs = tonight.jobs
        explained = np.zeros(left.shape)
        for thing, things in (
            (Thing.CLASS, class_inside(jobs.client, jobs.server, self._class)),
            (Thing.GROUP, tonight.crossing),
        ):
            level = self.levels[thing]
            if len(level.told) >= FEWEST_THINGS[thing]:
                score, scatter = group_scores(things, left, len(level.told), self._job_scatter)
                look = level.peek(score, scatter)
                takes = groups_take(look.deviation, look.far(), level.told, level.effect)
                explained = explained + explained_by_groups(things, takes)
        return explained

    def _group_levels(self, index: int, tonight: _Tonight) -> None:
        """With two groups alone, what leaves one enters the other: it is the way between them."""
        if len(self.levels[Thing.GROUP].told) >= FEWEST_THINGS[Thing.GROUP]:
            self._collective(index, Thing.GROUP, tonight.crossing, tonight)
        if len(self._between):
            self._collective(index, Thing.BETWEEN, tonight.between[:, None], tonight)

    def _collective(self, index: int, thing: Thing, things: Indices, tonight: _Tonight) -> None:
        level = self.levels[thing]
        for column in things.T:
            self._count(thing, index, column, tonight.jobs)
        left = tonight.left - self._node_part(tonight.jobs)
        score, scatter = group_scores(things, left, len(level.told), self._job_scatter)
        look = level.look(index, score, scatter)
        takes = groups_take(look.deviation, look.far(), level.told, level.effect)
        self._first[thing], self._takes[thing] = _First(look.deviation, scatter), takes
        tonight.left = tonight.left - explained_by_groups(things, takes)

    def _node_level(self, index: int, tonight: _Tonight) -> None:
        level, jobs = self.levels[Thing.NODE], tonight.jobs
        takes = self._node_takes()
        node, partner, says = seen_from(jobs.client, jobs.server, tonight.left, takes)
        # beside a partner that is told, and slow tonight, nobody shows how fast it is: such a job clears no node
        hides = np.where(level.told[:, None] & (level.effect < -SMALLEST_EFFECT), takes, np.nan)
        hides = np.append(hides, np.full((1, says.shape[1]), np.nan), axis=0)
        says = np.where(says < -hides[partner] / 2, np.nan, says)
        for end in (jobs.client, jobs.server):
            self._count(Thing.NODE, index, end, jobs)
        score, scatter = node_scores(node, says, len(level.told), self._job_scatter)
        with np.errstate(invalid="ignore"):
            slow = ((score - level.level) < -2 * scatter).any(axis=1)
        heard = np.isfinite(says).any(axis=1)
        self._witnesses.add(node[heard], partner[heard], np.asarray(slow))
        fresh = self._partner[node] == NOBODY - 1
        self._partner[node[fresh]] = partner[fresh]
        self._has_partners[node[(partner == NOBODY) | (partner != self._partner[node])]] = True
        look = level.look(index, score, scatter, self._witnesses.enough, self._has_partners)
        self._witnesses.forget((level.sum <= 0).all(axis=1) & ~level.told)
        level.tell_slow_from_the_start(index, np.where(self._class == NOBODY, self._class.max(initial=0) + 1, self._class))
        level.recentre((level.seen == index) & ~level.told)
        self._first[Thing.NODE] = _First(look.deviation, scatter)

    def _node_takes(self) -> Floats:
        """What each node is known to take from its pairs: its level, and what was told of it."""
        level = self.levels[Thing.NODE]
        return np.minimum(level.level + np.where(level.told[:, None], level.effect, 0.0), 0.0)

    def _link_level(self, index: int, tonight: _Tonight) -> None:
        level, jobs = self.levels[Thing.LINK], tonight.jobs
        link = self._links[jobs.pair]
        rows = link != NOBODY
        if not rows.any():
            return
        part = self._node_part(jobs)
        takes = np.where(self.levels[Thing.NODE].told[:, None], self.levels[Thing.NODE].effect, 0.0)
        left = left_by_nodes(jobs.client, jobs.server, tonight.left - part, takes, self._job_scatter)
        score = np.full(level.level.shape, np.nan)
        score[link[rows]] = left[rows] + self._pair_level[link[rows]]
        self._count(Thing.LINK, index, link, jobs)
        scatter = np.broadcast_to(self._job_scatter, score.shape)
        self._first[Thing.LINK] = _First(level.look(index, score, scatter).deviation, scatter)
        self._pair_level = level.level * (level.nights >= 1)

    def _again(self, index: int, again: NightJobs) -> None:
        """The second measurements of tonight's suspects, each judged by its own: partners were chosen because they are good."""
        for end in (again.client, again.server):
            self._count(Thing.NODE, index, end, again)
        for thing in MEASURED_AGAIN:
            if self.suspects[thing] and thing in self._first:
                self._thing_again(index, thing, again)

    def _thing_again(self, index: int, thing: Thing, again: NightJobs) -> None:
        level, first = self.levels[thing], self._first[thing]
        suspects = level.suspected()
        owner, partner, says = self._says_again(index, thing, again)
        jobs = sum(np.isin(again.pair, one.pair).astype(np.int64) for one in self.jobs.each_again[index])
        rows = np.where(again.count > 0, np.broadcast_to(jobs, again.count.T.shape).T, 0)
        rows = np.concatenate([rows, rows[again.server != NOBODY]]) if thing is Thing.NODE else rows
        mine = owner != NOBODY
        share = NODE_SHARE if thing is Thing.NODE else GROUP_SHARE
        score, relative = scores_again(owner[mine], says[mine], rows[mine], self._job_scatter, len(level.told), share)
        sure = suspects
        if thing is Thing.NODE:
            self._witnesses.add(owner, partner, suspects & np.isfinite(score).any(axis=1))
            sure = suspects & self._witnesses.enough
        else:
            self._count(thing, index, owner, again)
        total = self._job_scatter**2
        shared = level.shared(first.scatter, total)
        variance = shared + relative**2 * np.maximum(total - shared, 0.1 * total)
        repeats = np.clip(shared / np.maximum((level.scale * first.scatter) ** 2, 1e-12), 0.0, 1.0)
        variance = np.maximum(variance - repeats * shared, 1e-12)
        scatter = np.hypot(np.sqrt(variance), level.floor)
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
        if thing is Thing.NODE:
            return seen_from(again.client, again.server, left, self._node_takes())
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
        if client in suspects.get(Thing.NODE, ()):
            return Thing.NODE, client
        link = self._link_of.get((client, server), NOBODY)
        if link in suspects.get(Thing.LINK, ()):
            return Thing.LINK, link
        group, other = int(self._group[client]), int(self._group[server]) if server != NOBODY else NOBODY
        way = self._between.get((min(group, other), max(group, other)), NOBODY)
        if way != NOBODY and group in suspects.get(Thing.GROUP, ()):
            return Thing.GROUP, group
        return (Thing.BETWEEN, way) if way in suspects.get(Thing.BETWEEN, ()) else (Thing.NODE, client)

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
            rows = np.where(due, above, np.nan)[place == one]
            for test in range(rows.shape[1]):
                values = rows[np.isfinite(rows[:, test]), test]
                if not len(values):
                    continue
                first = self._place_first.setdefault((int(one), test), [])
                if len(first) < FIRST_JOBS:
                    first.extend(values.tolist())
                    self._place_level[one, test] = len(first) / (len(first) + 2) * float(np.median(first))
                    continue
                reach = 3 * self._job_scatter[test] / np.sqrt(len(values))
                moved = float(np.clip(np.median(values) - self._place_level[one, test], -reach, reach))
                self._place_level[one, test] += moved / MEMORY_NIGHTS

    def _learn_job_scatter(self, left: Floats) -> None:
        for test in range(left.shape[1]):
            values = left[np.isfinite(left[:, test]), test]
            if len(values) < 2:
                continue
            far = (
                1.4826 * float(np.median(np.abs(values - np.median(values)))) if len(values) >= 4 else float(values.std(ddof=1))
            )
            tonight = max(far, 1e-4)
            if self._job_nights[test] >= FEW_NIGHTS:  # a node that became slow makes half of a small site's jobs scatter
                grows = SCATTER_GROWS if len(values) >= 4 else SCATTER_OF_FEW_GROWS
                tonight = min(tonight, grows * float(self._job_scatter[test]))
            gain = max(1 / (self._job_nights[test] + 1), 1 / MEMORY_NIGHTS)
            self._job_scatter[test] = np.sqrt((1 - gain) * self._job_scatter[test] ** 2 + gain * tonight**2)
            self._job_nights[test] += 1

    def _count(self, thing: Thing, index: int, things: Indices, jobs: NightJobs) -> None:
        rows = things != NOBODY
        np.add.at(self.counted[thing][index], things[rows], jobs.count[rows].sum(axis=1))

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
        order = {State.TOLD: 0, State.SUSPECTED: 1, State.ENDED: 2, State.FINE: 3}
        kept = [one for one in self._directions(causes) if not _is_part(one, causes)]
        kept.sort(key=lambda one: (order[one.state], one.since, list(Thing).index(one.thing), one.names))
        return Judgement(newest, tuple(kept), tuple(self._coverage(first)))

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
        seen_nights = int((self.counted[thing][told.since :, told.thing] > 0).sum())
        reason = _words(thing, effect, count, seen_nights, grows=self._grows(tests))
        if told.from_start:
            reason = reason.replace("worse than before", "worse than its peers since it was first measured")
        if told.drifted:
            reason += "; it came slowly, no night stood out"
        if told.relapses:
            reason += f"; it comes and goes: fine in between, {'once' if told.relapses == 1 else f'{told.relapses} times'}"
        if told.confirmed:
            reason += "; confirmed the same night"
        names = self._test_names(tests)
        return Cause(
            thing, self.names(thing, told.thing), names, state, told.since, told.told, told.ended, effect, count, reason
        )

    def _suspected_cause(self, thing: Thing, index: int) -> Cause:
        level = self.levels[thing]
        column = int(np.argmax(level.sum[index]))
        since = int(level.start[index, column])
        nights = level.gathered_nights[index]
        shift = level.gathered[index] / np.maximum(nights, 1)
        tests = self._affected(shift, nights > 0, -1 if column >= level.tests else column)
        scale = np.where(np.isfinite(level.scale), level.scale, 1.0) * self._job_scatter
        effect = _effect(shift[tests], (scale / np.sqrt(np.maximum(nights, 1)))[tests])
        count = int(self.counted[thing][since:, index].sum())
        seen_nights = int((self.counted[thing][since:, index] > 0).sum())
        reason = _words(thing, effect, count, seen_nights, grows=self._grows(tests))
        names = self._test_names(tests)
        return Cause(thing, self.names(thing, index), names, State.SUSPECTED, since, None, None, effect, count, reason)

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
        measured = {(int(a), int(b)) for (a, b), link in zip(self.jobs.pairs, self._links, strict=True) if link != NOBODY}
        place = {name: index for index, name in enumerate(self.values.nodes)}
        found: list[Cause] = []
        links_told = {(one.names, one.state): one for one in causes if one.thing is Thing.LINK}
        for one in causes:
            if one.thing is not Thing.LINK:
                found.append(one)
                continue
            client, server = one.names
            twin = links_told.get(((server, client), one.state))
            if twin is None and (place[server], place[client]) in measured:
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
        for thing, level in self.levels.items():
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
        if thing is Thing.CLASS:
            return (values.classes[index] if values.classes else str(index),)
        if thing is Thing.GROUP:
            return (self._group_name(index),)
        if thing is Thing.BETWEEN:
            a, b = self._ways[index]
            return (self._group_name(a), self._group_name(b))
        if thing is Thing.NODE:
            return (values.nodes[index],)
        if thing is Thing.LINK:
            client, server = self.jobs.pairs[self._link_pairs[index]]
            return (values.nodes[client], values.nodes[server])
        return ()

    def _group_name(self, index: int) -> str:
        return self.values.groups[index] if self.values.groups else str(index)


def _is_part(one: Cause, causes: list[Cause]) -> bool:
    """Whether a cause above it, at least as certain, explains this one."""
    certain = (State.TOLD,) if one.state is State.TOLD else (State.TOLD, one.state)
    for other in causes:
        if other is one or other.state not in certain or not set(other.tests) & set(one.tests):
            continue
        if other.thing is Thing.NODE and one.thing in (Thing.LINK, Thing.PAIR) and other.names[0] in one.names:
            return True
        if other.thing is Thing.GROUP and one.thing is Thing.BETWEEN and other.names[0] in one.names:
            return True
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
    Thing.CLASS: "most jobs among nodes of this class",
    Thing.GROUP: "most jobs that leave the group, whoever the other end is",
    Thing.BETWEEN: "most jobs between the two groups",
    Thing.NODE: "with everybody it met",
    Thing.LINK: "while both ends are fine with others",
}


def _words(thing: Thing, effect: Effect, jobs: int, nights: int, *, grows: bool) -> str:
    """grows: the values got larger: what was measured is 30 % above before where it is said to be 30 % worse."""
    found = "no valid result"
    if effect.ratio > 0:
        found = f"{100 * (1 / effect.ratio - 1 if grows else 1 - effect.ratio):.1f} % worse than before"
    counted = f"{jobs} job{'s' if jobs != 1 else ''} on {nights} night{'s' if nights != 1 else ''}"
    return f"{found}, {_SEEN[thing]}, in {counted}"


def _places(client: Indices, server: Indices, group: Indices, kind: Indices) -> Indices:
    """Number the places of pairs: the classes of both ends, and whether they share their group (or nobody knows)."""
    alone = server == NOBODY
    kinds = np.sort(np.stack([kind[client], np.where(alone, kind[client], kind[server])], axis=1), axis=1)
    own, other = group[client], np.where(alone, group[client], group[server])
    where = np.where(alone, 3, np.where((own == NOBODY) | (other == NOBODY), 0, np.where(own == other, 1, 2)))
    if not len(client):
        return np.zeros(0, np.int64)
    return np.asarray(np.unique(np.column_stack([kinds, where]), axis=0, return_inverse=True)[1]).reshape(-1)
