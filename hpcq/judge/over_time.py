"""Over time: is a thing still at its level? One sequential statistic for every thing of every level.

    tonight's score - what is expected of it  ->  z  ->  p (how often does this site see that?)  ->  e  ->  running sum S

    S  ^                       . told        S = max(0, S + ln e);  e = K p^(K-1), at most 1 on average while nothing
       |- - - - - - - - - - -.- - - -        happens (Vovk & Wang 2021, "E-values: calibration, combination and
       |                   .                 applications"). Such a sum passes ln(n / a) by chance at most a times
       |- - - suspected - .- - - - - -       per night among n things (Shin, Ramdas & Rinaldo 2023, "E-detectors").
       |___.._____.______.____________> nights

p is counted, not assumed: how often did things of this level, at this site, stray so far from what was expected of
them? Beyond what was seen, the tail is continued as an exponential, and never below a twentieth of what the count can
show. A level with one thing has nobody to count among, and a small or young site has counted too little: they take
Student's t with three degrees of freedom. What a thing keeps from night to night (AR(1), sticky modes) is
predicted before it is judged; where sums still grow more than chance allows, the bound grows with them
(exponential tail of such sums: Asmussen 2003, "Applied Probability and Queues", ch. XIII).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hpcq.judge.values import Floats, column_medians

Indices = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

#: What one night may add: e = K p^(K - 1). Small: far values count much, a small shift little.
EXPONENT = 0.25
#: No effect below this is told: 3 %.
SMALLEST_EFFECT = -float(np.log(0.97))
#: A level is learned from so many of its newest nights.
MEMORY_NIGHTS = 40
#: The level of a thing is the median of its first so many nights; from then on it follows slowly.
FIRST_NIGHTS = 7
#: From so many nights on a thing shows how fast large sums become rare.
SETTLED = 15
#: Counts of how far things stray fade over so many nights.
COUNT_NIGHTS = 200
#: With n nights of history the bound is 1 + SHORT / n times as high: what is usual is hardly known yet.
SHORT = 6.0
#: Large sums are never taken to become rare more slowly than e^(-S SLOWEST): else nothing could ever be told.
SLOWEST = 0.25
#: A score so many of its scatters below its level explains tonight's parts of the thing.
FAR = 4.0
#: A suspect that is this much worse in every job of its second look is told, however few nights are known: 10 %.
CLEAR = float(np.log(0.9))
#: p is at least 1 of this many times the values counted.
BEYOND = 20.0
#: A thing with fewer nights than this is compared with those measured tonight, too.
NEW_NIGHTS = 5
#: After so many of its nights a thing is held against its peers: was it ever as good as they are?
START_NIGHTS = (4, 8, 16, 32)
#: What has no peers, and was better by 10 % and so many scatters on its first night, or first two, than on all since, fell.
FALLS = 8.0
#: With fewer peers nobody knows who is the odd one; with as many as MANY_PEERS a smaller effect is seen.
FEWEST_PEERS, MANY_PEERS = 4, 8
#: Nights until a value enters the counts: a fault that begins is told before it calls itself usual.
COUNT_DELAY = 4
#: A change begins on the night that finds no more than this sum: a healthy thing's stays below it on most nights.
BEGINS = 1.0
#: With fewer values counted, Student's t with three degrees of freedom says how far things stray: a small or young site.
FEW_COUNTED = 200
#: There, a thing with fewer nights than this is compared with those measured tonight, too.
FEWEST_NIGHTS = 3
#: Above this part of the bound a thing's newest values are not counted as usual.
DOUBT = 0.7
#: Above this part of it its level and its scatter are not learned from them: one bad night among few would become usual.
LEARNS = 0.4
#: Where this much of a night carries over to the next, bad nights come in rows without a fault, and are learned up to DOUBT.
STICKS = 0.2
#: Of what a night strays, so many scatters at most are expected to last: farther off it is no usual night.
CARRIED = 3.0
#: Above this part of the bound little is missing: healthy things of 24 nodes get there in one night of 30.
NEARLY = 0.6
#: Logarithm of the odds for the old level at which what was told has ended; one night adds at most half of it.
ENDS_AT = 6.0
#: What comes back within so many nights comes and goes: each time its end needs twice the odds, at most 2^4 times.
RELAPSE_NIGHTS, MOST_RELAPSES = 30, 4

#: What drifts is held against its first so many nights, by the median of its newest so many.
FIRST_LEVEL_NIGHTS, DRIFT_NIGHTS = 20, 10
#: No drift below this is told: 8 %. Halls get warmer by the season, and nobody repairs the summer.
SMALLEST_DRIFT = -float(np.log(0.92))
#: Nor one of less than so many standard errors.
DRIFT_ERRORS = 6.0

_EDGES = np.concatenate([[-np.inf], np.arange(-3.0, 8.0, 0.125), np.geomspace(8.0, 400.0, 64), [np.inf]])
#: Of each bin its middle; of the last, which has none, its beginning.
_MIDDLES = np.minimum((_EDGES[:-1] + np.append(_EDGES[1:-1], _EDGES[-2])) / 2, _EDGES[-2])
_TAIL_SHARE = 0.02


@dataclass(slots=True)
class Told:
    """One message about a thing. column: the test, or -1: all tests together. The level it left, and where it is."""

    thing: int
    column: int
    since: int
    told: int
    confirmed: bool
    #: it never was at the level of its peers
    from_start: bool = False
    #: it came too slowly for any night to stand out
    drifted: bool = False
    #: how often it had been fine in between, for a night or so, and had come back
    relapses: int = 0
    ended: int | None = None
    effect: Floats = field(default_factory=lambda: np.zeros(0))
    #: sums over the nights since then, per test: values, squares, how many
    total: Floats = field(default_factory=lambda: np.zeros(0))
    squares: Floats = field(default_factory=lambda: np.zeros(0))
    nights: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at one night gave, each of shape (things, tests): how far from the level, and that in its scatter."""

    deviation: Floats
    z: Floats

    def far(self) -> Flags:
        """Which are so far down tonight that whoever shares it is not to blame."""
        with np.errstate(invalid="ignore"):
            return np.asarray((self.z < -FAR) & (self.deviation < -SMALLEST_EFFECT))


class OverTime:
    """The state of all things of one level, after the nights that it has seen.

    thing_count, test_count: shape of what `look` takes. false_alarms: how many a night may bring on average.
    pooled: things are counted together. prior_nights: so many nights at the level of its peers weigh as much as the
    peers do. quiet_nights: a thing is learned, and not judged, in its first so many nights.
    """

    def __init__(
        self,
        thing_count: int,
        test_count: int,
        *,
        false_alarms: float,
        pooled: bool = True,
        prior_nights: float = 0.5,
        quiet_nights: int = 0,
        floor: float = 1e-4,
    ) -> None:
        self.columns = test_count + 1 if test_count > 1 else 1
        self.tests = test_count
        self.false_alarms = false_alarms
        self.pooled = pooled
        self.prior = prior_nights
        self.quiet = quiet_nights
        self.floor = floor
        shape = (thing_count, test_count)
        self.level = np.zeros(shape)
        self.nights = np.zeros(shape)
        #: of each thing, the nights of the test that has most
        self.night_count = np.zeros(thing_count)
        #: things that can be judged, and were measured in the newest 30 nights
        self._active = 0
        self._first = np.full((*shape, FIRST_NIGHTS), np.inf)
        #: how many of these are there
        self._learned = np.zeros(shape, np.int64)
        self.scale = np.full(test_count, np.nan)
        self.scale_nights = np.zeros(test_count)
        self.own = np.full((thing_count, self.columns), 1.0 if pooled else 2.0)
        self.before = np.full((thing_count, self.columns), np.nan)
        self.carry = np.zeros(self.columns)
        self._carry_sums = np.zeros((2, self.columns))
        self.sum = np.zeros((thing_count, self.columns))
        self.start = np.zeros((thing_count, self.columns), np.int64)
        self.slope = np.ones(self.columns)
        self._above = np.zeros((2, self.columns))
        self._last = np.zeros((thing_count, self.columns))
        self.counts = np.zeros((self.columns, len(_EDGES) - 1))
        self._waiting: list[Floats] = []
        self._past: dict[tuple[int, int], list[float]] = {}
        self.gathered = np.zeros(shape)
        self.gathered_nights = np.zeros(shape)
        self._newest: list[tuple[int, Floats]] = []
        self._first_level = np.full((*shape, FIRST_LEVEL_NIGHTS), np.nan)
        #: the median of these, once all are there
        self._first_median = np.full(shape, np.nan)
        self._lately = np.full((*shape, DRIFT_NIGHTS), np.nan)
        self._score_before = np.full(shape, np.nan)
        self._unrest = np.full(shape, np.nan)
        self._at_first_level = np.full(thing_count, -1, np.int64)
        #: how far each thing lies from its first nights by now, shape (things, tests); nan while it is young
        self.drift = np.full(shape, np.nan)
        #: what fell after a night or two, and is not told yet: since when, and the deviations since then, (nights, tests)
        self._fell: dict[int, tuple[int, Floats]] = {}
        self.seen = np.full(thing_count, -1, np.int64)
        self.first_seen = np.full(thing_count, -1, np.int64)
        self.told = np.zeros(thing_count, bool)
        self.for_old = np.zeros(thing_count)
        self.messages: list[Told] = []
        self._looks = 0
        self._unit: Floats | None = None
        self.current: dict[int, Told] = {}
        self.effect = np.zeros(shape)

    # One night -----------------------------------------------------------------------------------------------------

    def look(
        self,
        night: int,
        score: Floats,
        unit: Floats,
        may_tell: Flags | None = None,
        may_drift: Flags | None = None,
        *,
        was_good: Flags | None = None,
    ) -> Look:
        """Judge tonight's scores, and learn from them.

        score: shape (things, tests), nan where not measured. unit: how far such a score scatters relative to others of
        its level, same shape. may_tell, may_drift: things that may become told tonight, for this and for a drift; None: all.
        was_good: what was as good as its peers before, shape of score: while it is young, a night far below them is not
        learned. None: nothing is known to have been.
        """
        self._looks += 1
        self._unit = unit
        deviation = score - self.level
        self._newest.append((night, deviation))
        del self._newest[:-MEMORY_NIGHTS]
        measured = np.isfinite(deviation)
        self._learn_scale(deviation / unit, measured)
        spread = self.spread(unit)
        with np.errstate(invalid="ignore"):
            single = np.where(measured, deviation / spread, np.nan)
        z = self._with_all_tests(single)
        known = np.isfinite(z)
        left = self._less_what_stays(z)
        chance = self._chance(left, known)
        self._advance(night, chance, known, deviation)
        self._keep_told(night, deviation, spread, measured)
        self._tell(night, may_tell, confirmed=False)
        self._tell_drifts(night, score, may_drift)
        self._learn(z, left, known)
        self._learn_level(deviation, spread, measured & self._trusted()[:, None], was_good)
        self.nights += measured
        self.night_count = self.nights.max(axis=1, initial=0)
        self.seen[measured.any(axis=1)] = night
        newest = int(self.seen.max(initial=-1))
        self._active = int(((self.seen > newest - 30) & (self.seen >= 0) & (self.night_count >= self.quiet)).sum())
        self.first_seen[(self.first_seen < 0) & measured.any(axis=1)] = night
        if not self.pooled:
            self._tell_young_falls(night, spread)
        return Look(deviation, single / self.own[:, : self.tests])

    def tell_slow_from_the_start(self, night: int, peers: Indices, may_tell: Flags | None = None) -> None:
        """Tell things that were never as good as their peers, once they have as many nights as one of START_NIGHTS.

        peers: shape (things,): things of one number should be alike; below 0: nobody knows. Told is who lies 6
        median distances and 10 % below at least 4 peers, if one of them does, or a tenth: a larger part is a kind of its own.
        After more nights than the first of START_NIGHTS 7 % is enough, and 5 % beside at least 8 peers. Who was as good as they
        are, within a quarter of that, on one of its newest nights has two speeds, and met the lower one more often.
        """
        count = self.night_count
        due = np.isin(count, START_NIGHTS) & (self.seen == night) & ~self.told & (peers >= 0)
        due &= True if may_tell is None else may_tell
        for peer in np.unique(peers[due]):
            alike = (peers == peer) & (count >= START_NIGHTS[0]) & ~self.told
            if alike.sum() < FEWEST_PEERS:
                continue
            many = alike.sum() >= MANY_PEERS
            least = np.where(count > START_NIGHTS[0], -np.log(0.95 if many else 0.93), -CLEAR)
            for test in range(self.tests):
                levels = self.level[alike, test]
                middle = float(np.median(levels))
                reach = np.maximum(least, 6 * 1.4826 * float(np.median(np.abs(levels - middle))))
                slow = alike & (self.level[:, test] < middle - reach)
                if slow.sum() > max(1, 0.1 * alike.sum()):
                    continue
                best = np.nan_to_num(self._lately[:, test], nan=-np.inf).max(axis=1)
                for thing in np.flatnonzero(slow & due & ~self.told & (best < middle - least / 4)):
                    self._tell_from_the_start(int(thing), night, test, middle)

    def _tell_from_the_start(self, thing: int, night: int, test: int, middle: float) -> None:
        nights = self.nights[thing]
        told = Told(thing, test if self.tests > 1 else -1, int(self.first_seen[thing]), night, confirmed=False, from_start=True)
        told.effect = np.where(nights > 0, self.level[thing] - middle, 0.0)
        told.total, told.nights = told.effect * nights, nights.copy()
        told.squares = told.effect**2 * nights
        self.level[thing] = middle
        self._now_told(told)

    def peek(self, score: Floats, unit: Floats) -> Look:
        """What `look` would return, without judging or learning."""
        deviation = score - self.level
        return Look(deviation, deviation / self.spread(unit) / self.own[:, : self.tests])

    def look_again(
        self, night: int, score: Floats, scatter: Floats, *, things: Flags, every: Flags, first: Floats, shared: Floats
    ) -> Flags:
        """Judge what suspects gave when they were measured again the same night. Returns those that are told by it.

        score, scatter: shape (things, tests); scatter is the standard deviation of such a score given tonight's first.
        every: things of which each second job was slow: a CLEAR effect far from their level needs no higher sum. first: the
        first deviation of tonight. shared: how much of it a second measurement is expected to repeat (0..1).
        """
        deviation = score - self.level
        with np.errstate(invalid="ignore"):
            single = (deviation - shared * np.where(np.isfinite(first), first, 0.0)) / scatter
        single = np.where(things[:, None] & ~self.told[:, None], single, np.nan)
        z = self._with_all_tests(single)
        known = np.isfinite(z)
        chance = self._chance(z, known)
        self._advance(night, chance, known, deviation)
        before = self.told.copy()
        clear = np.zeros(self.sum.shape, bool)
        with np.errstate(invalid="ignore"):
            clear[:, : self.tests] = every[:, None] & (z[:, : self.tests] < -FAR) & (deviation < CLEAR)
        self._tell(night, things, confirmed=True, clear=clear)
        return self.told & ~before

    def tell(self, night: int, may_tell: Flags, must_tell: Flags) -> None:
        """Tell things of tonight's look. must_tell: of may_tell, those that another level's sum speaks for."""
        self._tell(night, may_tell, confirmed=False, clear=np.broadcast_to(must_tell[:, None], self.sum.shape))

    def take_back(self, thing: int) -> Told:
        """What was told of a thing belongs to another level: it is fine here, and was."""
        told = self.current.pop(thing)
        self.messages.remove(told)
        self._fine_again(thing)
        return told

    def tell_instead(self, thing: int, of: Told) -> None:
        """Tell what another level had told, with what this one saw of `thing` since then."""
        since, values = self._since(thing, of.since, slice(None) if of.column < 0 else of.column)
        told = replace(of, thing=thing, since=since)
        self._count_told(told, values)
        self._now_told(told)

    def tell_together(self, thing: int, parts: Sequence[Told]) -> None:
        """Tell of one thing what another level had told of its parts."""
        first = min(parts, key=lambda one: (one.told, one.since))
        told = replace(first, thing=thing, since=min(one.since for one in parts))
        told.total, told.squares, told.nights = (
            sum(found) for found in zip(*((one.total, one.squares, one.nights) for one in parts), strict=True)
        )
        told.effect = told.total / np.maximum(told.nights, 1)
        self._now_told(told)

    def recentre(self, rows: Flags) -> None:
        """Keep the levels of these things around 0: what they have in common belongs to the night."""
        if rows.any():
            self.level[rows] -= np.median(self.level[rows], axis=0)

    def shared(self, unit: Floats, total: Floats) -> Floats:
        """The variance that all jobs of a thing have in common in one night, shape (things, tests), at most `total`.

        Scores of the best of several jobs scatter by `unit` if their jobs scatter alone, and by more if they do it
        together: what is more tells how much is shared.
        """
        alone = np.clip(unit**2 / total, 0.0, 0.9)
        return np.asarray(np.clip(total * (self.scale**2 - 1) * alone / (1 - alone), 0.0, total))

    def suspected(self, expected_per_night: float = 1.0) -> Flags:
        """Things not told whose sum few of as many healthy things reach: about `expected_per_night`, or fewer.

        Not those whose newest values speak for the old level, as they would end what is told, unless little is missing: one
        night without a valid result among fine ones is no slow node.
        """
        bound = np.log(max(self._active * self.columns / expected_per_night, 2.0)) / self.slope
        shift = self.gathered / np.maximum(self.gathered_nights, 1)
        worth = (shift < -SMALLEST_EFFECT).any(axis=1)
        found = np.asarray((self.sum >= bound).any(axis=1) & worth & ~self.told)
        for thing in np.flatnonzero(found).tolist():
            found[thing] = not self._is_back(thing)
        fell = np.zeros(len(self.told), bool)
        fell[list(self._fell)] = True
        return np.asarray((found | fell) & ~self.told)

    def _is_back(self, thing: int) -> bool:
        column, _, values, nearly = self.doubt(thing)
        if nearly or self._unit is None or len(values) < 2:
            return False
        unit = np.where(np.isfinite(self._unit), self._unit, np.nanmedian(self._unit)) if self._unit.size else self._unit
        scatter = (self.spread(unit)[thing] * self.own[thing, 0])[slice(None) if column < 0 else [column]]
        x = values if column < 0 else values[:, [column]]
        mu = np.nanmean(x, axis=0) / scatter
        for_old = 0.0
        for gain in np.nansum((x / scatter - mu) ** 2 - (x / scatter) ** 2, axis=1).tolist():
            for_old = max(0.0, for_old + min(max(gain / 2, -ENDS_AT), ENDS_AT / 2))
        return for_old >= ENDS_AT

    def smallest_told(self, nights: int) -> float | None:
        """The smallest loss (0.1: a tenth) by which half of the things would be told after so many nights; None: not by half.

        As far as their scores scattered on the newest night.
        """
        if self._unit is None:
            return None
        spread = (self.spread(self._unit) * self.own[:, : self.tests])[np.isfinite(self._score_before)]
        if not np.isfinite(spread).any():
            return None
        usual = float(np.median(spread[np.isfinite(spread)]))
        losses = np.arange(round(-100 * np.expm1(-SMALLEST_EFFECT)), 51) / 100
        far = -np.log1p(-losses) / usual
        few = self.counts[0].sum() < FEW_COUNTED
        chance = student_tail_3(far) if few else self._counted_chance(np.zeros(len(far), np.int64), far)
        enough = nights * (np.log(EXPONENT) - (1 - EXPONENT) * np.log(chance)) >= self.bound()[0]
        return float(losses[enough][0]) if enough.any() else None

    def told_effect(self) -> Floats:
        """What is told of each thing, at most 0, shape (things, tests)."""
        return np.where(self.told[:, None], np.minimum(self.effect, 0.0), 0.0)

    def doubt(self, thing: int) -> tuple[int, int, Floats, bool]:
        """Of what is suspected: the column (as in Told), the likeliest night on which it began, the deviations since then,
        shape (nights, tests), and whether little is missing until it is told.
        """
        if thing in self._fell:
            return -1, *self._fell[thing], True
        column = int(np.argmax(self.sum[thing]))
        all_tests = column >= self.tests
        since, values = self._since(thing, int(self.start[thing, column]), slice(None) if all_tests else column)
        return -1 if all_tests else column, since, values, bool(self.sum[thing, column] >= NEARLY * self.bound()[column])

    def bound(self) -> Floats:
        """The sum at which a thing is told, per column."""
        short = 1 + SHORT / max(float(self._looks), 1.0)
        return np.asarray(short * np.log(max(self._active, 1) * self.columns / self.false_alarms) / self.slope)

    # Parts of it ---------------------------------------------------------------------------------------------------

    def _learn_scale(self, relative: Floats, measured: Flags) -> None:
        """The scatter that all things have in common: the median distance of tonight's, averaged over the nights."""
        if not self.pooled:
            return
        usable = measured & ~self.told[:, None]
        far = np.where(usable, np.abs(relative), np.nan)
        medians, counts = column_medians(far)
        for test in np.flatnonzero(counts >= 2).tolist():
            n = self.scale_nights[test]
            tonight = 1.4826 * float(medians[test])
            if counts[test] < 6:
                usual = self.scale[test] if n >= NEW_NIGHTS else float(medians[test])  # one of four may be broken
                tonight = float(np.sqrt(np.mean(np.minimum(far[usable[:, test], test], 3 * usual) ** 2)))
            gain = max(1 / (n + 1), 1 / MEMORY_NIGHTS)
            kept = 0.0 if n == 0 else self.scale[test] ** 2
            self.scale[test] = np.sqrt((1 - gain) * kept + gain * max(tonight, 1e-9) ** 2)
            self.scale_nights[test] = n + 1

    def spread(self, unit: Floats) -> Floats:
        """The standard deviation of such a score from its level: `unit` in this level's scale, and what a young level lacks."""
        scale = np.where(np.isfinite(self.scale), self.scale, 1.0)
        spread = np.hypot(scale * unit, self.floor)
        return np.asarray(spread * np.sqrt(1 + 1 / (np.minimum(self.nights, MEMORY_NIGHTS) + self.prior)))

    def _with_all_tests(self, single: Floats) -> Floats:
        """One more column: all tests of a thing together."""
        if self.tests == 1:
            return single
        with np.errstate(invalid="ignore"):
            measured = np.isfinite(single)
            count = measured.sum(axis=1)
            both = np.where(count > 0, np.where(measured, single, 0).sum(axis=1) / np.sqrt(np.maximum(count, 1)), np.nan)
        return np.column_stack([single, both])

    def _less_what_stays(self, z: Floats) -> Floats:
        """Less what last night's value tells of tonight's; in units of each thing's own scatter."""
        z = z / self.own
        before = np.clip(np.where(np.isfinite(self.before), self.before, 0.0), -CARRIED, CARRIED)
        return np.asarray((z - self.carry * before) / np.sqrt(1 - self.carry**2))

    def _chance(self, left: Floats, known: Flags) -> Floats:
        """How often a healthy thing of this level strays as far to the bad side, per entry; nan where not known."""
        chance = np.full(left.shape, np.nan)
        thing, column = np.nonzero(known)
        far = -left[thing, column]
        if not self.pooled:
            chance[thing, column] = student_tail_3(far)
            return chance
        few = (self.counts.sum(axis=1) < FEW_COUNTED)[column]
        counted = np.empty(len(far))
        counted[few] = student_tail_3(far[few])
        if not few.all():
            counted[~few] = self._counted_chance(column[~few], far[~few])
        new = self.night_count[thing] < np.where(few, FEWEST_NIGHTS, NEW_NIGHTS)
        for one in np.unique(column[new]).tolist():
            rows = np.flatnonzero(column == one)
            rank = np.argsort(np.argsort(-far[rows], kind="stable"), kind="stable") + 1.0
            counted[rows] = np.where(new[rows], np.maximum(counted[rows], rank / (len(rows) + 1)), counted[rows])
        chance[thing, column] = counted
        return chance

    def _counted_chance(self, column: Indices, far: Floats) -> Floats:
        """How often things strayed as far; column: of each of `far`."""
        counts = self.counts
        total = counts.sum(axis=1)
        beyond = np.zeros((len(counts), len(_EDGES)))
        beyond[:, :-1] = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
        place = np.clip(np.searchsorted(_EDGES, far, side="right") - 1, 0, len(_EDGES) - 2)
        lower, upper = _EDGES[place], _EDGES[place + 1]
        with np.errstate(invalid="ignore"):
            share = np.where(np.isfinite(lower) & np.isfinite(upper), (upper - far) / (upper - lower), 0.5)
        seen = (beyond[column, place + 1] + share * counts[column, place]) / (total + 1)[column]
        tails = np.array([self._tail(*of_column) for of_column in zip(counts, beyond, total.tolist(), strict=True)])
        begin, over, excess = tails[column].T
        fitted = over / total[column] * np.exp(-np.maximum(far - begin, 0.0) / excess)
        chance = np.where(far > begin, np.maximum(fitted, seen), seen)
        return np.asarray(np.clip(chance, (1 / (BEYOND * (total + 1)))[column], 1.0))

    @staticmethod
    def _tail(counts: Floats, beyond: Floats, total: float) -> tuple[float, float, float]:
        """Where the tail of one column begins, how many values lie in it, and how far beyond its beginning on average."""
        tail = int(np.searchsorted(-beyond, -max(_TAIL_SHARE * total, min(20.0, 0.2 * total)), side="right")) - 1
        tail = min(max(tail, 1), len(counts) - 2)
        over = max(float(beyond[tail]), 1e-9)
        excess = (float(np.sum(counts[tail:] * (_MIDDLES[tail:] - _EDGES[tail]))) + 0.5) / (over + 1.0)
        return float(_EDGES[tail]), over, max(excess, 0.05)

    def _advance(self, night: int, chance: Floats, known: Flags, deviation: Floats) -> None:
        judged = known & ~self.told[:, None] & (self.night_count >= self.quiet)[:, None]
        added = np.log(EXPONENT) - (1 - EXPONENT) * np.log(np.where(judged, chance, 1.0))
        begins = judged & (self.sum <= BEGINS)
        self.start[begins] = night
        fresh = judged.any(axis=1) & (self.sum <= BEGINS).all(axis=1)
        self.gathered[fresh] = 0
        self.gathered_nights[fresh] = 0
        self.sum = np.where(judged, np.maximum(0.0, self.sum + added), self.sum)
        measured = np.isfinite(deviation)
        self.gathered += np.where(measured, deviation, 0)
        self.gathered_nights += measured

    def _tell(self, night: int, may_tell: Flags | None, *, confirmed: bool, clear: Flags | None = None) -> None:
        over = (self.sum >= self.bound()) & ~self.told[:, None]
        if clear is not None:
            over |= clear & ~self.told[:, None]
        if may_tell is not None:
            over &= may_tell[:, None]
        for thing in np.flatnonzero(over.any(axis=1)):
            shift = self.gathered[thing] / np.maximum(self.gathered_nights[thing], 1)
            column = int(np.argmax(np.where(over[thing], self.sum[thing], -1.0)))
            all_tests = column >= self.tests
            affected = shift if all_tests else shift[column : column + 1]
            if -float(np.min(affected)) < SMALLEST_EFFECT:
                continue
            since, values = self._since(int(thing), int(self.start[thing, column]), slice(None) if all_tests else column)
            told = Told(int(thing), -1 if all_tests else column, since, night, confirmed)
            self._count_told(told, values)
            told.relapses = _returns(np.nansum(values if all_tests else values[:, [column]], axis=1))
            self._now_told(told)

    def _since(self, thing: int, start: int, column: int | slice) -> tuple[int, Floats]:
        """The night on which what is told began, and the deviations from then on, shape (nights, tests).

        A sum may have stood above zero by chance before anything happened. Of all beginnings since `start` it is the
        likeliest: that of the largest (sum of deviations)^2 / number of them. What was measured too long ago to be looked
        at night by night, of a node that was away, began at `start`.
        """
        kept = [
            (night, found[thing]) for night, found in self._newest if night >= start and np.isfinite(found[thing][column]).any()
        ]
        if not kept:
            return start, (self.gathered[thing] / np.maximum(self.gathered_nights[thing], 1))[None, :]
        values = np.array([found for _, found in kept])
        by_night = np.nansum(values[:, column].reshape(len(kept), -1), axis=1)[::-1].cumsum()[::-1]
        gain = np.where(by_night < 0, by_night**2, 0.0) / np.arange(len(kept), 0, -1)
        place = int(np.argmax(gain))
        return kept[place][0], values[place:]

    @staticmethod
    def _count_told(told: Told, values: Floats) -> None:
        """values: the deviations since what is told began, shape (nights, tests)."""
        told.total, told.squares = np.nansum(values, axis=0), np.nansum(values**2, axis=0)
        told.nights = np.isfinite(values).sum(axis=0).astype(float)
        told.effect = told.total / np.maximum(told.nights, 1)

    def _now_told(self, told: Told) -> None:
        ended = [one for one in self.messages if one.thing == told.thing and one.ended is not None]
        if ended and told.told - (ended[-1].ended or 0) <= RELAPSE_NIGHTS:
            told.relapses += ended[-1].relapses + 1
        self.messages.append(told)
        self.current[told.thing] = told
        self.told[told.thing] = True
        self.effect[told.thing] = told.effect
        self.for_old[told.thing] = 0.0

    def _tell_drifts(self, night: int, score: Floats, may_drift: Flags | None) -> None:
        """Tell what lies far below its first nights by now, though no night stood out: levels follow slow changes."""
        measured = np.isfinite(score)
        rows = measured.any(axis=1)
        step = np.abs(score - self._score_before)
        self._unrest = np.where(
            np.isfinite(step), np.where(np.isfinite(self._unrest), 0.9 * self._unrest + 0.1 * step, step), self._unrest
        )
        self._score_before = np.where(measured, score, self._score_before)
        entry, number = np.nonzero(measured), self.nights[measured].astype(np.int64)
        self._lately[(*entry, number % DRIFT_NIGHTS)] = score[measured]  # in place of the oldest
        early = measured & (self.nights < FIRST_LEVEL_NIGHTS)
        if early.any():
            self._first_level[(*np.nonzero(early), self.nights[early].astype(np.int64))] = score[early]
            full = early & (self.nights == FIRST_LEVEL_NIGHTS - 1)
            self._first_median[full] = np.median(self._first_level[full], axis=-1)
        old = rows & (self.nights >= FIRST_LEVEL_NIGHTS + DRIFT_NIGHTS).any(axis=1)
        if not old.any():
            return
        drift = np.full(score.shape, np.nan)
        lately = np.sort(self._lately[old], axis=-1)  # nan last; np.median takes four times as long for so few values each
        middle = (lately[..., (DRIFT_NIGHTS - 1) // 2] + lately[..., DRIFT_NIGHTS // 2]) / 2
        drift[old] = np.where(np.isnan(lately[..., -1]), np.nan, middle) - self._first_median[old]
        with np.errstate(invalid="ignore"):
            error = 0.886 * self._unrest * 1.2533 * np.sqrt(1 / FIRST_LEVEL_NIGHTS + 1 / DRIFT_NIGHTS)
            self.drift[old] = drift[old]
            self._at_first_level[~(drift < -SMALLEST_EFFECT).any(axis=1) & old] = night
            far = (drift < -SMALLEST_DRIFT) & (drift < -DRIFT_ERRORS * error)
        may = old & ~self.told & (True if may_drift is None else may_drift)
        far = np.asarray(far & may[:, None])
        # who has two speeds may meet the lower one on seven nights in ten: what declines has no good night among them
        best, first_best = self._lately[far].max(axis=-1), np.quantile(self._first_level[far], 0.9, axis=-1)
        far[far] = best - first_best < -SMALLEST_DRIFT / 2
        for thing in np.flatnonzero(far.any(axis=1)).tolist():
            told = Told(thing, -1, max(int(self._at_first_level[thing]), 0), night, confirmed=False, drifted=True)
            told.effect = np.where(np.isfinite(drift[thing]), drift[thing], 0.0)
            told.nights = np.minimum(self.nights[thing], DRIFT_NIGHTS)
            told.total, told.squares = told.effect * told.nights, told.effect**2 * told.nights
            first = self._first_median[thing]
            self.level[thing] = np.where(np.isfinite(first), first, self.level[thing])
            for test in np.flatnonzero(np.isfinite(first)).tolist():
                self._past[thing, test] = self._first_level[thing, test].tolist()  # what it learned on the way down is no level
            self._now_told(told)

    def _tell_young_falls(self, night: int, spread: Floats) -> None:
        """Of things without peers, tell those that were better on their first night, or first two, than on all since.

        Their level is soon learned from the lower nights. Four nights raise a suspicion, eight or sixteen tell it.
        """
        count = self.night_count.astype(np.int64)
        self._fell = {thing: found for thing, found in self._fell.items() if self.seen[thing] != night}
        due = (count >= START_NIGHTS[0]) & (count <= START_NIGHTS[2]) & (self.seen == night) & ~self.told
        for thing in np.flatnonzero(due).tolist():
            values = self._first_level[thing, :, : count[thing]].T
            for split in (1, 2):
                before, since = values[:split].min(axis=0), values[split:]
                scatter = np.maximum(since.std(axis=0, ddof=1), spread[thing]) * np.sqrt(1 + 1 / len(since))
                with np.errstate(invalid="ignore"):
                    fell = np.median(since, axis=0) - before < np.minimum(CLEAR, -FALLS * scatter)
                if not fell.any():
                    continue
                nights = [one for one, found in self._newest if np.isfinite(found[thing]).any()][-count[thing] :]
                self._fell[thing] = nights[split], np.where(fell, since - before, 0.0)
                if count[thing] in START_NIGHTS[1:]:
                    self._tell_fallen(thing, night, np.where(fell, before, self.level[thing]))
                break

    def _tell_fallen(self, thing: int, night: int, before: Floats) -> None:
        since, values = self._fell.pop(thing)
        told = Told(thing, -1, since, night, confirmed=False)
        self._count_told(told, values)
        self.level[thing] = before
        for test, level in enumerate(before.tolist()):
            self._past[thing, test] = [level]
        self._now_told(told)

    def _keep_told(self, night: int, deviation: Floats, spread: Floats, measured: Flags) -> None:
        """What was told stays told until newer values speak for the old level."""
        for thing, told in list(self.current.items()):
            rows = measured[thing]
            if not rows.any() or told.told == night:
                continue
            where = rows if told.column < 0 else rows & (np.arange(self.tests) == told.column)
            if not where.any():
                continue
            x = deviation[thing, where] / (spread[thing, where] * self.own[thing, 0])
            mu = told.effect[where] / (spread[thing, where] * self.own[thing, 0])
            gain = float(np.sum((x - mu) ** 2 - x**2)) / 2
            self.for_old[thing] = max(0.0, self.for_old[thing] + float(np.clip(gain, -ENDS_AT, ENDS_AT / 2)))
            if self.for_old[thing] >= ENDS_AT * 2 ** min(told.relapses, MOST_RELAPSES):
                told.ended = night
                del self.current[thing]
                self._fine_again(thing)
                self._lately[thing] = self.level[thing][:, None]
                continue
            if gain < 0:
                told.total = told.total + np.where(rows, deviation[thing], 0)
                told.squares = told.squares + np.where(rows, deviation[thing], 0) ** 2
                told.nights = told.nights + rows
                told.effect = told.total / np.maximum(told.nights, 1)
                self.effect[thing] = told.effect

    def _fine_again(self, thing: int) -> None:
        self.told[thing] = False
        self.effect[thing] = 0
        self.sum[thing] = 0

    def _learn(self, z: Floats, left: Floats, known: Flags) -> None:
        trusted = known & self._trusted()[:, None]
        self._learn_tail(known)
        self._learn_counts(left, known)
        self._learn_carry(z, trusted)
        self._learn_own(left, trusted)
        self.before = np.where(known, z / self.own, self.before)

    def _trusted(self) -> Flags:
        """Things whose newest values may be learned from: not told, and in no doubt about an effect worth telling."""
        shift = self.gathered / np.maximum(self.gathered_nights, 1)
        part = np.where(self.carry > STICKS, DOUBT, LEARNS) if self.pooled else LEARNS
        doubted = ((self.sum > part * self.bound()).any(axis=1) & (shift < -SMALLEST_EFFECT).any(axis=1)) | self.told
        settled = self.night_count >= max(self.quiet, 1)
        return np.asarray(~(doubted & settled))

    def _learn_level(self, deviation: Floats, spread: Floats, rows: Flags, was_good: Flags | None) -> None:
        if not self.pooled:
            for thing, test in np.argwhere(rows):
                past = self._past.setdefault((int(thing), int(test)), [])
                past.append(float(self.level[thing, test] + deviation[thing, test]))
                del past[:-MEMORY_NIGHTS]
                self.level[thing, test] = float(np.median(past))
            return
        old = self._learned >= FIRST_NIGHTS
        new = rows & ~old
        with np.errstate(invalid="ignore"):
            # what was as good as its peers, and is not tonight, may be broken: that is no level
            far_from_peers = (self.level + deviation < CLEAR) & (deviation < -FAR * spread)
        new &= ~(far_from_peers & (False if was_good is None else was_good))
        thing, test = np.nonzero(new)
        if len(thing):
            count = self._learned[thing, test]
            self._first[thing, test, count] = self.level[thing, test] + deviation[thing, test]
            self._learned[thing, test] += 1
            ordered = np.sort(self._first[thing, test], axis=1)
            place = np.arange(len(thing))
            # of two values the better one, and half of one: a first night that was a dip is no level
            middle = (ordered[place, (count + 1) // 2] + ordered[place, np.maximum((count + 1) // 2, (count + 2) // 2 - 1)]) / 2
            self.level[thing, test] = np.where(count == 0, middle / 2, middle)
        rows = rows & old
        gain = 1 / (np.minimum(self.nights, MEMORY_NIGHTS) + 1)
        reach = 2.5 * spread
        self.level += np.where(rows, gain * np.clip(np.where(rows, deviation, 0.0), -reach, reach), 0.0)

    def was_good(self) -> Flags:
        """Things that some night saw, and whose level so far is that of their peers, shape (things, tests)."""
        return np.asarray((self._learned > 0) & (self.level > -SMALLEST_EFFECT))

    def _learn_counts(self, left: Floats, known: Flags) -> None:
        """Count what was seen some nights ago, but for things that are in doubt by now, or still as far away."""
        if not self.pooled:
            return
        self._waiting.append(np.where(known & (self.night_count >= 1)[:, None], left, np.nan))
        if len(self._waiting) <= COUNT_DELAY:
            return
        ripe = self._waiting.pop(0)
        with np.errstate(invalid="ignore"):
            lasting = ((ripe < -3) & (left < -3)).any(axis=1)
        kept = ~((self.sum > DOUBT * self.bound()).any(axis=1) | self.told | lasting)
        self.counts *= 1 - 1 / COUNT_NIGHTS
        far = -ripe[kept]
        found = np.isfinite(far)
        place = np.clip(np.searchsorted(_EDGES, far[found], side="right") - 1, 0, len(_EDGES) - 2)
        entry = np.nonzero(found)[1] * (len(_EDGES) - 1) + place
        self.counts += np.bincount(entry, minlength=self.counts.size).reshape(self.counts.shape)

    def _learn_carry(self, z: Floats, known: Flags) -> None:
        both = known & np.isfinite(self.before)
        now = np.clip(np.where(both, z / self.own, 0), -3, 3)
        then = np.clip(np.where(both, self.before, 0), -3, 3)
        sums = np.stack([(now * then).sum(axis=0), (then * then).sum(axis=0)])
        self._carry_sums = self._carry_sums * (1 - 1 / COUNT_NIGHTS) + sums
        self.carry = np.clip(self._carry_sums[0] / (self._carry_sums[1] + (100.0 if self.pooled else 10.0)), 0.0, 0.95)

    def _learn_own(self, left: Floats, known: Flags) -> None:
        """Each thing's own scatter relative to its level's, drawn to 1 while it has few nights."""
        count = np.minimum(self.night_count, MEMORY_NIGHTS)[:, None]
        weight = 1 / (count + (15 if self.pooled else 3))
        squares = np.minimum(np.where(known, left, 0) ** 2, 9.0)
        grown = self.own * np.sqrt(1 - weight + weight * squares)
        self.own = np.where(known, np.maximum(grown, 0.7), self.own)

    def _learn_tail(self, known: Flags) -> None:
        """How fast large sums become rare, by how many that pass 3 also pass 5: never trusted to be faster than e^-S."""
        settled = known & (~self.told & (self.night_count >= SETTLED))[:, None]
        passed = [(settled & (self.sum > bound) & (self._last <= bound)).sum(axis=0) for bound in (3, 5)]
        self._last = self.sum.copy()
        self._above = self._above * (1 - 1 / COUNT_NIGHTS) + np.stack(passed)
        certain = np.maximum(self._above[1] - np.sqrt(self._above[1]), 0.0)
        ratio = (certain + 10 * np.exp(-2.0)) / (self._above[0] + 10)
        self.slope = np.clip(-np.log(ratio) / 2, SLOWEST, 1.0)


def _returns(by_night: Floats) -> int:
    """How often a thing that was down, by half of its worst night or more, had been fine again, within a fifth of that."""
    count, down, fine = 0, False, False
    for share in (by_night / min(float(np.min(by_night)), -1e-9)).tolist():
        if share >= 1 / 2:
            count += down and fine
            down, fine = True, False
        fine |= share <= 1 / 5
    return count


def student_tail_3(far: Floats) -> Floats:
    """P(T > far) of Student's t with three degrees of freedom, in closed form; shape of far."""
    x = far / np.sqrt(3.0)
    # 1/2 - (atan x + x / (1 + x^2)) / pi loses all digits far out; there the series of its complement holds
    near = 0.5 - (np.arctan(x) + x / (1 + x * x)) / np.pi
    with np.errstate(divide="ignore", over="ignore"):
        distant = 2 / (3 * np.pi * np.abs(x) ** 3)
    return np.asarray(np.clip(np.where(x > 50, distant, near), 1e-300, 1.0))
