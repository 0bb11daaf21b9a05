"""The verdict of one run: who may go back to users. From the top down, each level on what is left by those above it.

    levels   what a class of hardware and a place (inside a group, across) gives: from the baseline, else from the peers
    cluster  everything slower than the baseline, or than what the hardware can give
    groups   every member slow to the outside and fine inside: the uplink; slow inside as well: what its nodes share
    nodes    by all of a node's jobs with good partners, whoever they were: how much is it slower, or in how many jobs
    links    what is left: two nodes that are both fine with others

A cause that explains leaves its parts unaccused. How much slower a node is, is a likelihood over its jobs with the
scatter that this very test shows (scatter.py); PASS rules the smallest effect told out with 99 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import exp, log, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from hpcq.judge.scatter import Scatter, core_width, scatter_of
from hpcq.judge.values import NOBODY, Floats, Ints, Outcome, Values

Bools = np.ndarray[Any, np.dtype[np.bool_]]
Pair = tuple[str, str]

#: The end of a test's name if it is about the share of packets that arrived.
PACKETS = " packets"
#: A slowdown that matters, one that is a failure, and the least scatter (logarithms); then those of lost packets.
EFFECT, FAILURE, SCATTER_LEAST = -log(0.95), -log(0.9), 0.005
LOSS_EFFECT, LOSS_FAILURE, LOSS_SCATTER_LEAST = 5e-4, 2e-3, 5e-5
#: While it may still measure, an acceptance wants to rule out this much in one direction.
ONE_WAY = 2.0
#: A job is low beyond so many scales below its level.
LOW_SIGMAS = 5.0
#: PASS rules out with this confidence; what is told is what nearly every healthy node can rule out.
PASS_CHANCE, TOLD_SIGMAS = 0.01, 5.2
#: Once in so many acceptances chance accuses anybody. A suspect is worth three jobs, so it is named earlier.
CHANCE, SUSPECT_SIGMAS = 0.005, 2.6
#: Jobs, partners and runs before a node is told, and the share of jobs that a node may be slow in unseen.
JOBS_MIN, PARTNERS_MIN, RUNS_MIN, FLAPPING_SHARE = 3, 2, 2, 1 / 3
#: In one run alone, jobs and partners that make a node's fault certain.
SURE_JOBS, SURE_PARTNERS = 6, 3
#: Members of a group, nodes, and pairs before everything or a group is told.
MEMBERS_MIN, MEMBERS_WHOLE_MIN, NODES_MIN, PAIRS_MIN = 2, 3, 4, 4
#: Nearly all: of a group's members. Most: of the nodes that a fault spares.
NEARLY_ALL, FINE_SHARE = 0.9, 0.6
#: The cluster is told from here on; its common level of one run and the next is known no better than this.
CLUSTER_EFFECT, RUN_SCATTER = 0.025, 0.006
#: A pair's own offset in the baseline counts in full beyond so many standard errors.
OFFSET_SIGMAS = 4.0
#: No test that scatters so much that this is the smallest effect can pass a node.
TOLD_MAX = 0.36
#: A link is low in so many of its jobs; a node that is low in some of them is low with others, too.
STEADY_SHARE = 0.7
#: A low job of a healthy site is that rare at least, as far as anybody knows.
STRAY_LOW = 0.01
#: An uplink is shared if, without the two nodes that are low most often, so many of the low pairs across it are left.
SHARED_SHARE, SHARED_MIN = 0.2, 2
#: A baseline with more low jobs than this between groups met a crowd as well.
CROWDED_SHARE = 0.1
#: So many pairs across an edge, fine alone, speak for the others.
ALONE_MIN = 3

CLIENT, SERVER, BOTH = 0, 1, 2
NO_REFERENCE = "no reference"


class Word(StrEnum):
    """The words of verdicts."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    DEGRADED = "degraded"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    NOT_COVERED = "not_covered"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known apart from values. Rows are indices into the values that are judged.

    allowed: shape (jobs,), oriented logarithm of the least that the hardware should give; nan: nothing is said.
    broken: by row, the gate that it broke. open_gates: by row, why a gate could not be judged: no PASS rests on such a
    row. reasons: by row, why it brought nothing. missing: why a node has no row. flaws: what its evidence says is wrong
    with a node. booted: nodes that booted after they were measured. notes: by test, what stands beside a scatter that
    hides something. alone: nights (runs) that measured one pair at a time, so that none shared an uplink with another.
    """

    allowed: Floats | None = None
    broken: Mapping[int, str] = field(default_factory=dict)
    open_gates: Mapping[int, str] = field(default_factory=dict)
    reasons: Mapping[int, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    flaws: Mapping[str, str] = field(default_factory=dict)
    booted: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    alone: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Said:
    """A verdict on a node, link, group or cluster. ratio: its speed as a share of what is expected, of its worst test."""

    kind: str
    name: str
    word: Word
    reason: str
    nodes: tuple[str, ...] = ()
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """The smallest effects that this run would have shown of a test, as ratios of its level: slower by 0.05 is 5 %."""

    test: str
    slower: float
    one_way: float


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """All verdicts, and what to measure again.

    told, flapping: smallest effects. suspects: nodes to run with good partners. open: pairs that were low or failed and
    that nothing explains. explained: low pairs of each cause. unsettled: pairs that one more run may settle. drainable:
    nodes that are bad with most of their partners. decided: nodes whose jobs bring nothing, so surely that one run is enough.
    words: of each pair, low, fine or unclear. notes: what a person
    should know of the reference.
    """

    nodes: tuple[Said, ...]
    things: tuple[Said, ...] = ()
    told: tuple[Told, ...] = ()
    flapping: float = FLAPPING_SHARE
    suspects: tuple[str, ...] = ()
    good: tuple[str, ...] = ()
    open: tuple[Pair, ...] = ()
    explained: tuple[tuple[Pair, ...], ...] = ()
    unsettled: tuple[Pair, ...] = ()
    drainable: frozenset[str] = frozenset()
    decided: frozenset[str] = frozenset()
    words: Mapping[Pair, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def judge_run(
    targets: Sequence[str],
    now: Values,
    before: Values | None = None,
    known: Known | None = None,
    *,
    trusted: bool = True,
    final: bool = True,
    cluster: str = "",
) -> RunVerdict:
    """Judge one acceptance; a night of `now` is one of its runs.

    before: a baseline (trusted), or earlier runs of the cluster, which tell levels of classes and nothing of a pair.
    final: nothing more is measured, so the smallest effect is what the values tell. Otherwise nodes stay inconclusive
    until EFFECT is ruled out, and suspects are named.
    """
    return _Judge(targets, now, before, known or Known(), trusted=trusted, final=final, cluster=cluster).verdict()


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What matters in a test: logarithms, or shares of packets."""

    effect: float
    failure: float
    least: float
    is_loss: bool

    @classmethod
    def of(cls, test: str) -> _Sizes:
        if test.endswith(PACKETS):
            return cls(LOSS_EFFECT, LOSS_FAILURE, LOSS_SCATTER_LEAST, is_loss=True)
        return cls(EFFECT, FAILURE, SCATTER_LEAST, is_loss=False)


@dataclass(slots=True)
class _Fit:
    """One test: what is expected of each row, and what is left.

    rows: indices into the values. left: residual of each row (nan: no value, or nothing to compare it with); low: low,
    failed or beyond a gate. common: error of each row's level, which all rows of a cell share. shift: of everything from
    the baseline.
    explained: rows that pass something told; by_groups: those of them that pass the edge of a group.
    """

    name: str
    sizes: _Sizes
    rows: Ints
    client: Ints
    server: Ints
    night: Ints
    left: Floats
    scatter: Scatter
    failed: Bools
    disturbed: Bools
    common: Floats
    shift: float | None = None
    shift_error: float = 0.0
    explained: Bools = field(default_factory=lambda: np.zeros(0, bool))
    by_groups: Bools = field(default_factory=lambda: np.zeros(0, bool))
    low: Bools = field(default_factory=lambda: np.zeros(0, bool))
    density: Floats = field(default_factory=lambda: np.zeros(0))
    grid: Floats = field(default_factory=lambda: np.zeros(0))
    widths: Floats = field(default_factory=lambda: np.zeros(0))
    slow: dict[int, _Slow] = field(default_factory=dict)
    slow_groups: dict[tuple[int, str], float] = field(default_factory=dict)
    slow_across: float | None = None
    slow_between: dict[tuple[int, int], float] = field(default_factory=dict)

    def usable(self) -> Bools:
        """Rows that tell something of a node: a value that can be compared, and nothing told on its way."""
        found: Bools = np.isfinite(self.left) & ~self.explained
        return found

    def prepare(self) -> None:
        """Compute the likelihood of each row under each shift of the grid, and which rows are low."""
        sigma, least = self.scatter.sigma, self.sizes.effect
        span = 14 * max(sigma, least / 4)
        near = np.arange(-span, 5 * max(sigma, least / 4), max(sigma, least / 4) / 8)
        far = -np.geomspace(span, max(4.0, 2 * span), 60)[1:]
        self.grid = np.concatenate([far[::-1], near])
        self.widths = np.gradient(self.grid)
        with np.errstate(invalid="ignore"):
            self.density = np.where(
                np.isfinite(self.left)[:, None], self.scatter.log_density(self.left[:, None] - self.grid[None, :]), 0.0
            )
            bound = -max(least, LOW_SIGMAS * sigma)
            self.low = self.failed | (self.scatter.below_nearest(self.left) < bound)


@dataclass(frozen=True, slots=True)
class _Slow:
    """What a set of rows says together: how much slower (below 0: slower), its error, how sure. rows: those of the fit."""

    change: float
    error: float
    z: float
    rows: Ints
    role: int = BOTH

    def rules_out(self, effect: float) -> bool:
        """Whether it is not slower than this; normal at the tails, which the likelihood is beyond a few jobs."""
        return self.change - NormalDist().inv_cdf(1 - PASS_CHANCE) * self.error > -effect


class _Judge:
    """One verdict in the making: the levels one after the other."""

    def __init__(
        self,
        targets: Sequence[str],
        now: Values,
        before: Values | None,
        known: Known,
        *,
        trusted: bool,
        final: bool,
        cluster: str,
    ) -> None:
        self.targets, self.now, self.known, self.final, self.cluster = targets, now, known, final, cluster
        self.trusted = trusted and before is not None
        self.index = {name: number for number, name in enumerate(now.nodes)}
        self.names = now.nodes
        self.group = now.node_group
        self.notes: list[str] = []
        self.slow_before: dict[str, float] = {}
        self.things: list[Said] = []
        self.cells = _Cells(now)
        self.before = _Before(before, self) if before is not None and len(before.value) else None
        #: ordered pairs that are slow beside other pairs, and as expected alone
        self.crowded: set[tuple[int, int]] = set()
        rows = np.isin(now.night, list(self.known.alone))
        self.measured_alone = set(zip(now.client[rows].tolist(), now.server[rows].tolist(), strict=True))
        self.fits = [fit for number in range(len(now.tests)) if (fit := self._fit(number)) is not None]
        self.below_allowed: dict[int, float] = {}
        self.cluster_slow = False
        self.cluster_unsure = False

    # -- levels ---------------------------------------------------------------------------------------------------------

    def _fit(self, test: int) -> _Fit | None:
        """Residuals of one test. Where a pair was measured alone and is fine, its jobs beside other pairs do not count."""
        crowded, shared = frozenset[tuple[int, int]](), set[int]()
        while (fit := self._fit_of(test, crowded)) is not None:
            more = self._crowded(fit, shared) - crowded
            if not more:
                break
            crowded |= more  # without these jobs the others scatter less, and more of them may be low
        self.crowded |= crowded
        return fit

    def _crowded(self, fit: _Fit, shared: set[int]) -> frozenset[tuple[int, int]]:
        """Ordered pairs between two groups that were low beside other pairs, and are fine alone.

        One or two nodes that are slow by turns look much the same. But they are low inside their group as well, and without
        them nothing is left: a shared uplink slows whoever crosses it. What a baseline under the same load did not show is no
        shared uplink: it lost something. Where enough pairs across the edge of a group are fine alone, and none is not, all
        of its low pairs are. shared: groups whose uplink is known to be shared; those that are found are added.
        """
        alone = np.isin(fit.night, list(self.known.alone))
        if not alone.any():
            return frozenset()
        ends = self.group[fit.client], self.group[fit.server]
        crossing = (ends[0] != NOBODY) & (ends[1] != NOBODY) & (ends[0] != ends[1])
        inside = self._slow_inside(fit, ~crossing)
        beside = crossing & ~alone & ~np.isin(fit.client, inside) & ~np.isin(fit.server, inside)
        low = fit.low & beside
        if not shared and self._is_new(fit, beside & (fit.night == fit.night.min())):
            return frozenset()
        pairs, measured = _pairs_of(fit, low), _pairs_of(fit, crossing & alone)
        fine = {pair for pair in measured if self._fine_alone(fit, pair, alone)}
        found = set[tuple[int, int]]()
        for group in {int(self.group[node]) for pair in measured for node in pair}:
            if group in shared or self._is_shared(fit, low & ((ends[0] == group) | (ends[1] == group))):
                shared.add(group)
                its = {pair for pair in pairs | measured if group in (self.group[pair[0]], self.group[pair[1]])}
                slow = its & measured - fine
                every = all(set(inside) & {*pair} for pair in slow) and len(its & fine) >= min(ALONE_MIN, len(its))
                found |= {pair for pair in its & pairs if pair in fine or (every and pair not in measured)}
        return frozenset(found - _pairs_of(fit, fit.failed))

    @staticmethod
    def _fine_alone(fit: _Fit, pair: tuple[int, int], alone: Bools) -> bool:
        """Whether most jobs of a pair alone are as expected, and nearer to that than to its low jobs beside others."""
        its = (fit.client == pair[0]) & (fit.server == pair[1])
        apart, beside = its & alone, its & fit.low & ~alone
        if fit.low[apart].mean() > 1 / 2:
            return False
        return not beside.any() or bool(fit.left[apart].max() > np.median(fit.left[beside]) / 2)

    def _is_new(self, fit: _Fit, first: Bools) -> bool:
        """Whether more of the pairs between groups were low in the first run than in a baseline, beyond chance."""
        past = self.before.crossing.get(fit.name, (0, 0)) if self.trusted and self.before is not None else (0, 0)
        count, of = int((fit.low & first).sum()), int(first.sum())
        if past[0] > CROWDED_SHARE * past[1]:  # it met such a crowd, too: how often is chance
            return False
        return past[1] >= PAIRS_MIN and 1 - _at_most(count - 1, of, (past[0] + 1) / (past[1] + 2)) < CHANCE

    @staticmethod
    def _slow_inside(fit: _Fit, inside: Bools) -> list[int]:
        """The fewest nodes that explain the low rows inside groups, but for single ones."""
        found, rows = list[int](), fit.low & inside
        while rows.any():
            worst = _most_often(fit, rows)
            its = (fit.client == worst) | (fit.server == worst)
            found += [worst] if (rows & its).sum() >= 2 else []
            rows &= ~its
        return found

    @staticmethod
    def _is_shared(fit: _Fit, rows: Bools) -> bool:
        """Whether more than two nodes are needed to explain the low rows that cross the edge of a group."""
        left = rows.copy()
        for _ in range(2):
            if left.any():
                worst = _most_often(fit, left)
                left &= (fit.client != worst) & (fit.server != worst)
        return int(left.sum()) >= max(SHARED_MIN, SHARED_SHARE * int(rows.sum()))

    def _is_new_between(self, fit: _Fit) -> bool:
        """Whether jobs between groups are low that the baseline did not have, and few inside: no levels of a test do that."""
        ends = self.group[fit.client], self.group[fit.server]
        crossing = (ends[0] != NOBODY) & (ends[1] != NOBODY) & (ends[0] != ends[1])
        first = fit.usable() & (fit.night == fit.night.min())
        shares = [float(fit.low[rows].mean()) if rows.any() else 1.0 for rows in (first & ~crossing, first & crossing)]
        # of pairs that share an uplink those are left that were not low alone: they say nothing of how many were
        return not self.crowded and shares[0] < shares[1] / 4 and self._is_new(fit, first & crossing)

    def _fit_of(self, test: int, crowded: frozenset[tuple[int, int]]) -> _Fit | None:
        """Residuals of one test: its jobs against the baseline's level and offset, else against the peers' level.

        crowded: ordered pairs of which only the jobs count that measured them alone.
        """
        now = self.now
        name = now.tests[test].name
        sizes = _Sizes.of(name)
        rows = self._rows_of(test, crowded)
        if not len(rows):
            return None
        client, server, night = now.client[rows], now.server[rows], now.night[rows]
        value = np.where(now.outcome[rows] == Outcome.FAILED, np.nan, now.value[rows])
        disturbed = now.outcome[rows] == Outcome.DISTURBED
        if self._disturbed_as_usual(name, disturbed, value):
            disturbed = np.zeros(len(rows), bool)
        failed = (now.outcome[rows] == Outcome.FAILED) | np.isin(rows, list(self.known.broken))
        cell = self.cells.of(client, server)
        left = np.full(len(rows), np.nan)
        errors = np.zeros(len(rows))
        shift, shift_error = None, 0.0
        scatter = Scatter(max(sizes.least, 0.05 if not sizes.is_loss else 2e-3))
        expected = self.before.expected(name, client, server, cell) if self.before is not None else np.full(len(rows), np.nan)
        clean = np.isfinite(value) & ~disturbed
        level = _levels(value, client, server, cell, clean & ~np.isfinite(expected), sizes, self.cells.count)
        known_rows = np.isfinite(expected) & np.isfinite(value)
        if known_rows.any():
            change = value - expected
            common = _levels(change, client, server, np.zeros_like(cell), clean & known_rows, sizes, 1)
            found = float(common.level[0])
            if np.isfinite(found) and _without_any_one(change, client, server, clean & known_rows, found, sizes):
                shift = self._without_any_group(change, client, server, clean & known_rows, found, sizes)
                shift = shift if self._is_common(change, client, server, clean & known_rows, shift) else None
            left[known_rows] = (change - (shift or 0.0))[known_rows]
            earlier = self.before.scatter(name) if self.before is not None else None
            mine = common.scatter if common.row_count >= 12 else None
            scatter = mine or earlier or common.scatter or scatter
            errors[known_rows] = self.before.errors(name, cell)[known_rows] if self.before is not None else 0.0
            if shift is not None:
                nodes = len(set(client[clean & known_rows].tolist()) | set(server[clean & known_rows].tolist()))
                shift_error = sqrt(
                    scatter.sigma**2 * (1 / common.row_count + 1 / max(1, nodes)) + self._run_scatter(name, sizes) ** 2
                )
        alone = np.isfinite(value) & ~known_rows
        if self.trusted and alone.any() and not known_rows.any() and not sizes.is_loss:
            self.notes.append(f"{name}: the baseline has nothing of it, so its jobs are compared with each other only")
        if alone.any():
            left[alone] = (value - level.level[cell])[alone]
            if not known_rows.any() and level.scatter is not None:
                scatter = level.scatter
            errors[alone] = level.errors(scatter)[cell][alone]
        lowest = -max(sizes.effect, LOW_SIGMAS * scatter.sigma)
        with np.errstate(invalid="ignore"):
            left[disturbed & (scatter.below_nearest(left) < lowest / 2)] = np.nan  # it may be the other work
        fit = _Fit(name, sizes, rows, client, server, night, left, scatter, failed, disturbed, errors, shift, shift_error)
        fit.explained = np.zeros(len(rows), bool)
        fit.prepare()
        return fit

    def _rows_of(self, test: int, crowded: frozenset[tuple[int, int]]) -> Ints:
        """The rows of a test in the order of their runs."""
        now = self.now
        rows = np.flatnonzero((now.test == test) & (now.outcome != Outcome.INVALID) & (now.server != NOBODY))
        if crowded:
            kept = np.array([(int(now.client[row]), int(now.server[row])) not in crowded for row in rows])
            rows = rows[kept | np.isin(now.night[rows], list(self.known.alone))]
        found: Ints = rows[np.argsort(now.night[rows], kind="stable")].astype(np.int32)
        return found

    def _disturbed_as_usual(self, name: str, disturbed: Bools, value: Floats) -> bool:
        """Whether most jobs of a test, the earlier ones too, ran beside other work: that is the usual state here."""
        past = self.before.disturbed(name) if self.before is not None else (0, 0)
        return bool((disturbed.sum() + past[0]) * 2 > np.isfinite(value).sum() + past[1])

    def _without_any_group(  # noqa: PLR0917 - columns of one table
        self, change: Floats, client: Ints, server: Ints, use: Bools, level: float, sizes: _Sizes
    ) -> float:
        """The common change, or what is left of it without the group that has the largest part in it."""
        best = level
        for group in sorted(set(self.group.tolist()) - {NOBODY}):
            rest = use & (self.group[client] != group) & (self.group[server] != group)
            if rest.sum() < max(6, 0.4 * use.sum()):
                continue
            values = change[rest]
            middle = float(np.median(values))
            error = 1.25 * float(np.median(np.abs(values - middle))) / 0.6745 / sqrt(len(values))
            if middle - level > max(0.3 * sizes.effect, 2 * error):
                best = max(best, middle)
        return best

    def _is_common(self, change: Floats, client: Ints, server: Ints, use: Bools, level: float) -> bool:
        """Whether a common change shows inside groups as well as between them: else it is no change of everything."""
        ends = self.group[client], self.group[server]
        known = use & (ends[0] != NOBODY) & (ends[1] != NOBODY)
        for part in (known & (ends[0] == ends[1]), known & (ends[0] != ends[1])):
            values = change[part]
            if len(values) >= PAIRS_MIN:
                middle = float(np.median(values))
                error = 1.25 * float(np.median(np.abs(values - middle))) / 0.6745 / sqrt(len(values))
                if abs(middle - level) > max(abs(level) / 2, EFFECT / 2, 3 * error):
                    return False
        return True

    def _run_scatter(self, name: str, sizes: _Sizes) -> float:
        """How far the common level of runs scatters: from the nights of the baseline where there are enough."""
        least = RUN_SCATTER if not sizes.is_loss else sizes.least
        return max(least, self.before.night_scatter(name)) if self.before is not None else least

    # -- the verdict ----------------------------------------------------------------------------------------------------

    def verdict(self) -> RunVerdict:
        """All levels, then the words."""
        self._expected_of_hardware()
        accuse = _Accuser(self.fits, self.names, self.group)
        for fit in self.fits:
            accuse.of_test(fit)
            if not self._is_new_between(fit):
                _with_lower_levels(fit, accuse)
            self._level_again(fit, accuse)
        accuse.across_tests()
        self._cluster()
        self.accuser = accuse
        self.flapping = accuse.flapping()
        accuse.explains({node for node in self.flapping if self._is_at_fault(node)})
        for fit in self.fits:
            accuse.between(fit)
        self.links, self.open = accuse.links()
        self._groups()
        self._links()
        told = self._told()
        for fit in self.fits:
            if len(fit.scatter.centres) > 1:
                note = self.known.notes.get(fit.name, "")
                self.notes.append(f"{fit.name}: its speed changes from job to job{f'; {note}' if note else ''}")
        if self.crowded:
            self.notes.append(
                f"{len(self.crowded)} pairs across groups are slow beside other pairs, as expected alone: they share an uplink"
            )
        effects = {one.test: (one.slower, one.one_way) for one in told}
        nodes = [self._node(node, effects) for node in self.targets]
        said = tuple(one for one, _ in nodes)
        suspects = {one.name for one, again in nodes if again}
        suspects |= {end for pair in self.open for end in pair}
        bad = self._accused() | suspects | set(self.known.flaws)
        behind = self._behind()
        measured = {self.names[node] for fit in self.fits for node in fit.client[np.isfinite(fit.left)]}
        unsettled = {pair for name in self._accused() & suspects for pair in self._pairs(self._against(self.index[name]))}
        unsettled |= set(self._sample()) if self.cluster_unsure else set()
        unsettled |= {(self.names[one], self.names[other]) for one, other in self.crowded - self.measured_alone}
        return RunVerdict(
            said,
            tuple(self.things),
            told,
            FLAPPING_SHARE,
            tuple(sorted(suspects)),
            tuple(sorted(measured - bad - behind)),
            tuple(sorted(self.open)),
            tuple(self._explained()),
            tuple(sorted(unsettled)),
            frozenset(one.name for one in said if one.word is Word.FAILED and self._mostly_bad(self.index[one.name])),
            frozenset(one.name for one in said if one.word is Word.FAILED and self._decided(self.index[one.name])),
            self._words(),
            tuple(self.notes),
        )

    def _expected_of_hardware(self) -> None:
        """Hold what was measured against what the hardware should give: all of it, then node by node."""
        allowed = self.known.allowed
        if allowed is None:
            return
        worst: dict[int, list[float]] = {}
        for fit in self.fits:
            share = np.where(fit.failed, np.nan, self.now.value[fit.rows]) - allowed[fit.rows]
            known = np.isfinite(share) & ~fit.disturbed
            best: dict[int, float] = {}
            for row in np.flatnonzero(known):
                for node in (int(fit.client[row]), int(fit.server[row])):
                    best[node] = max(best.get(node, -np.inf), float(share[row]))
            below = {node: one for node, one in best.items() if one < -0.5 * fit.sizes.effect}
            for node, one in below.items():
                worst.setdefault(node, []).append(one)
            if len(best) >= NODES_MIN and len(below) * 2 > len(best):
                middle = exp(float(np.median(list(best.values()))))
                why = (
                    f"{fit.name}: {len(below)} of {len(best)} nodes give less than the hardware should:"
                    f" their best jobs bring {100 * middle:.0f} % of the least that is expected of it"
                )
                self.things.append(Said("cluster", self.cluster, Word.FAILED, why, (), middle))
                self.cluster_slow = True
        if not self.cluster_slow:
            self.below_allowed = {node: min(several) for node, several in worst.items()}

    def _cluster(self) -> None:
        """Everything slower, or faster, than the baseline."""
        if not self.trusted:
            return
        slower: list[str] = []
        worst, sure = 0.0, True
        for fit in self.fits:
            if fit.slow_across is not None:
                what = _percent(fit, fit.slow_across, "below the baseline", "of the packets lost")
                slower.append(f"{fit.name.removesuffix(PACKETS)}: {what} on every pair across groups, and fine inside them")
                worst, self.cluster_slow = min(worst, fit.slow_across), True
                continue
            everywhere = self._fails_everywhere(fit)
            if everywhere:
                slower.append(everywhere)
                worst, sure = -np.inf, sure and self._in_two_runs(fit, fit.failed)
                fit.explained |= fit.failed
                fit.low &= ~fit.failed
                continue
            if fit.shift is None:
                continue
            least = CLUSTER_EFFECT if not fit.sizes.is_loss else fit.sizes.effect
            if fit.shift >= EFFECT and fit.shift - 3 * fit.shift_error > 0:
                self.notes.append(
                    f"{fit.name}: the others are better than the baseline by {100 * (exp(fit.shift) - 1):.0f} %:"
                    " each node is compared with the others, and the baseline is worth a new one"
                )
            if fit.shift > -least or fit.shift > -3 * fit.shift_error:
                continue
            pairs = {(int(a), int(b)) for a, b in zip(fit.client, fit.server, strict=True)}
            what = _percent(fit, fit.shift, "below the baseline", "of the packets lost")
            slower.append(f"{fit.name.removesuffix(PACKETS)}: {what} on {len(pairs)} pairs")
            sure = sure and len(set(fit.night.tolist())) >= RUNS_MIN
            relative = fit.shift if not fit.sizes.is_loss else fit.shift / LOSS_FAILURE * FAILURE
            worst = min(worst, relative)
            if relative - 1.645 * (fit.shift_error if not fit.sizes.is_loss else 0.0) <= -EFFECT:
                self.cluster_slow = True
        if not slower:
            return
        self.cluster_slow |= worst == -np.inf
        word = Word.FAILED if worst <= -FAILURE else Word.DEGRADED
        why = f"everything is worse, and no single node is the reason: {'; '.join(slower)}"
        if not sure and not self.final:
            self.cluster_unsure = True
            word, why = Word.INCONCLUSIVE, f"{why}; seen in one run only: measure again"
        self.things.append(Said("cluster", self.cluster, word, why, (), exp(worst)))

    @staticmethod
    def _level_again(fit: _Fit, accuse: _Accuser) -> None:
        """Take what everything shares from the rows that nothing explains, and look for culprits once more."""
        rest = fit.usable()
        if fit.shift is None or not fit.explained.any() or rest.sum() < PAIRS_MIN:
            return
        ends = list(zip(fit.client[rest].tolist(), fit.server[rest].tolist(), strict=True))
        level, _ = scatter_of(fit.left[rest], ends, fit.sizes.least)
        if abs(level) < fit.sizes.least:
            return
        fit.shift += level
        fit.left = fit.left - level
        accuse.again(fit)

    def _fails_everywhere(self, fit: _Fit) -> str:
        """Words if a test that the baseline measured brings nothing on nearly all pairs, without any one node too."""
        count = len(fit.rows)
        nodes = set(fit.client.tolist()) | set(fit.server.tolist())
        if len(nodes) < NODES_MIN or fit.failed.sum() < NEARLY_ALL * count:
            return ""
        for node in nodes:
            rest = (fit.client != node) & (fit.server != node)
            if rest.sum() < 2 or fit.failed[rest].mean() < NEARLY_ALL:
                return ""
        return f"{fit.name} brings nothing in {int(fit.failed.sum())} of {count} jobs{self._reason_of(fit, fit.failed)}"

    def _in_two_runs(self, fit: _Fit, rows: Bools) -> bool:
        return len(set(fit.night[rows].tolist())) >= RUNS_MIN

    def _sample(self) -> tuple[Pair, ...]:
        """Pairs of which no two share a node: one job of each shows again what everything does."""
        used: set[int] = set()
        found = []
        for fit in self.fits:
            for a, b in zip(fit.client.tolist(), fit.server.tolist(), strict=True):
                if used.isdisjoint((a, b)):
                    used.update((a, b))
                    found += [(self.names[a], self.names[b]), (self.names[b], self.names[a])]
        return tuple(found)

    # -- groups and links -----------------------------------------------------------------------------------------------

    def _groups(self) -> None:
        """Tell groups and the ways between two of them, one verdict each."""
        for (group, how), changes in sorted(self.accuser.group_causes().items(), key=lambda cause: cause[0]):
            fit, change = _clearest(changes)
            members = tuple(self.names[node] for node in np.flatnonzero(self.group == group))
            inside = _HOW[how]
            word = Word.FAILED if change <= -fit.sizes.failure else Word.DEGRADED
            why = f"{inside}: {_percent(fit, change)} in {fit.name.removesuffix(PACKETS)}"
            ratio = exp(change) if not fit.sizes.is_loss else None
            self.things.append(Said("group", self._group_name(group), word, why, members, ratio))
        for (one, other), (fit, change) in sorted(self.accuser.between_causes().items(), key=lambda cause: cause[0]):
            members = tuple(self.names[node] for node in np.flatnonzero((self.group == one) | (self.group == other)))
            word = Word.FAILED if change <= -fit.sizes.failure else Word.DEGRADED
            why = (
                "every pair between them is bad; a third leaf with good nodes would tell whose uplink it is:"
                f" {_percent(fit, change)} in {fit.name.removesuffix(PACKETS)}"
            )
            name = f"{self._group_name(one)} - {self._group_name(other)}"
            self.things.append(Said("link", name, word, why, members, exp(change)))

    def _group_name(self, group: int) -> str:
        return self.now.groups[group] if group < len(self.now.groups) else f"group {group}"

    def _links(self) -> None:
        for (one, other), against in sorted(self.links.items()):
            jobs = sum(len(rows) for _, rows in against)
            ways = {(int(fit.client[row]), int(fit.server[row])) for fit, rows in against for row in rows}
            shown = "both directions" if len(ways) > 1 else " > ".join(self.names[node] for node in next(iter(ways)))
            why = f"bad in {jobs} jobs while both ends are fine with others ({shown}): {self._in_words(against)}"
            failure = any(fit.failed[rows].any() or self._median(fit, rows) <= -fit.sizes.failure for fit, rows in against)
            names = (self.names[one], self.names[other])
            word = Word.FAILED if failure else Word.DEGRADED
            self.things.append(Said("link", " - ".join(names), word, why, names, self._ratio(against)))

    @staticmethod
    def _median(fit: _Fit, rows: Ints) -> float:
        values = fit.left[rows]
        values = values[np.isfinite(values)]
        return float(np.median(values)) if len(values) else 0.0

    # -- nodes ----------------------------------------------------------------------------------------------------------

    def _told(self) -> tuple[Told, ...]:
        """The smallest effects: fixed while more may be measured, else what nearly all nodes can rule out."""
        found = []
        judged = set(self.targets) - self._accused() - self._behind()
        for fit in self.fits:
            least = fit.sizes.effect
            if not self.final:
                found.append(Told(fit.name, least, ONE_WAY * least))
                continue
            both: list[float] = []
            one_way: list[float] = []
            for node in sorted(judged & set(self.index)):
                for role, errors in ((BOTH, both), (CLIENT, one_way), (SERVER, one_way)):
                    slow = self.accuser.node(fit, self.index[node], role)
                    if slow is not None:
                        errors.append(slow.error)
            sizes = [max(least, TOLD_SIGMAS * float(np.quantile(one, 0.9))) if one else least for one in (both, one_way)]
            found.append(Told(fit.name, sizes[0], max(sizes)))
        return tuple(found)

    def _node(self, name: str, effects: Mapping[str, tuple[float, float]]) -> tuple[Said, bool]:  # noqa: PLR0911
        """The verdict on a node, and whether jobs with good partners would help."""
        node = self.index.get(name, NOBODY)
        mine = [(fit, np.flatnonzero((fit.client == node) | (fit.server == node)).astype(np.int32)) for fit in self.fits]
        mine = [(fit, rows) for fit, rows in mine if len(rows)]
        if not mine:
            mine_now = np.flatnonzero((self.now.client == node) | (self.now.server == node)) if node != NOBODY else ()
            why = _commonest([self.known.reasons[int(row)] for row in mine_now if int(row) in self.known.reasons])
            why = why or self.known.missing.get(name, "nothing was measured with it")
            return _node_says(name, Word.NOT_COVERED, why), False
        accused = self._against(node)
        if accused:
            return self._accused_node(name, node, accused)
        if not any(np.isfinite(fit.left[rows]).any() or fit.failed[rows].any() for fit, rows in mine):
            why = _commonest(
                [self.known.reasons[int(row)] for fit, rows in mine for row in fit.rows[rows] if int(row) in self.known.reasons]
            )
            few = f"{NO_REFERENCE}: fewer than three other pairs of such hardware ran its tests; --against BASELINE gives one"
            return _node_says(name, Word.INCONCLUSIVE, why or few), False
        if name in self.known.booted:
            return _node_says(
                name, Word.INCONCLUSIVE, f"booted after it was measured ({self.known.booted[name]}): measure again"
            ), False
        if name in self.known.flaws:
            return _node_says(name, Word.DEGRADED, f"its results do not show it yet, but: {self.known.flaws[name]}"), False
        if self.cluster_slow:
            return _node_says(name, Word.INCONCLUSIVE, "as bad as everything on this cluster: see the cluster's verdict"), False
        if name in self._behind():
            leaf = self._group_name(int(self.group[node]))
            return _node_says(
                name, Word.INCONCLUSIVE, f"behind {leaf}, which is bad: to be judged when that is repaired"
            ), False
        if node in self.below_allowed:
            share = exp(self.below_allowed[node])
            why = f"its best jobs bring {100 * share:.0f} % of the least that is expected of its hardware"
            return _node_says(name, Word.FAILED, why, share), False
        open_gate = _commonest([self.known.open_gates[int(row)] for fit, rows in mine for row in fit.rows[rows]
                                if int(row) in self.known.open_gates])  # fmt: skip
        unjudged = (f"a gate could not be judged: {open_gate}" if open_gate else "", False)
        for reason, again in (self._incomplete(node, mine), self._unsure(node, effects), self._low_jobs(node), unjudged):
            if reason:
                return _node_says(name, Word.INCONCLUSIVE, reason), again
        return self._passes(name, node, mine), False

    def _against(self, node: int) -> list[tuple[_Fit, Ints]]:
        """The rows that accuse a node: slow as a whole, else low too often."""
        found = [(fit, self._slow_rows(fit, node)) for fit in self.fits if node in fit.slow]
        return found + self.flapping.get(node, [])

    @staticmethod
    def _slow_rows(fit: _Fit, node: int) -> Ints:
        """Of the rows in which it is slow as a whole, those that show it themselves: one fine pair does not clear it."""
        slow = fit.slow[node]
        half = fit.scatter.below_nearest(fit.left[slow.rows] - slow.change) < -slow.change / 2
        found: Ints = slow.rows[half | fit.low[slow.rows]]
        return found

    def _accused_node(self, name: str, node: int, against: list[tuple[_Fit, Ints]]) -> tuple[Said, bool]:
        partners: set[int] = set()
        nights: set[int] = set()
        jobs: set[tuple[int, int, int]] = set()
        failure = False
        flaps = not any(node in fit.slow for fit in self.fits)
        for fit, rows in against:
            ends = {(int(fit.night[row]), int(fit.client[row]), int(fit.server[row])) for row in rows}
            jobs |= ends
            nights |= {one[0] for one in ends}
            partners |= {end for one in ends for end in one[1:]} - {node}
            size = fit.slow[node].change if node in fit.slow else self._median(fit, rows)
            failure |= size <= -fit.sizes.failure or bool(fit.failed[rows].any())
        fine = sorted(self._fine_partners(node) - partners, key=lambda one: self.names[one])
        fine_words = f" (fine with {_some([self.names[one] for one in fine])})" if fine else ""
        shown = _some(sorted(self.names[one] for one in partners))
        what = self._in_words(against)
        if flaps and not all(fit.failed[rows].all() for fit, rows in against):
            what = f"{what}; in {len(jobs)} of {self._job_count(node)} jobs: it comes and goes"
        if name in self.slow_before:
            what = f"{what}; it was {100 * (1 - exp(self.slow_before[name])):.0f} % slower than its like in the baseline itself"
        reason = f"bad with {shown}{fine_words}: {what}"
        reason = f"{self.known.flaws[name]}; {reason}" if name in self.known.flaws else reason
        failing = {int(fit.client[row] + fit.server[row] - node) for fit, rows in against for row in rows if fit.failed[row]}
        sure = len(nights) >= RUNS_MIN and len(jobs) >= JOBS_MIN
        once = self.final and not (flaps and self._nights(node) > len(nights))
        sure |= len(jobs) >= SURE_JOBS and len(partners) >= SURE_PARTNERS and once
        sure |= (len(failing) >= SURE_PARTNERS and once) or self._decided(node)
        if len(partners) < PARTNERS_MIN or not sure:
            few = "seen with one run only" if len(partners) >= PARTNERS_MIN else "seen with one partner only"
            if len(partners) >= PARTNERS_MIN and flaps and self._nights(node) > len(nights):
                few = "bad in one run and fine in another"
            return _node_says(name, Word.INCONCLUSIVE, f"{reason}; {few}", self._ratio(against)), True
        word = Word.FAILED if failure else Word.DEGRADED
        return _node_says(name, word, reason, self._ratio(against)), False

    def _is_at_fault(self, node: int) -> bool:
        """Whether enough speaks against an accused node to tell of it, and not only to measure it again."""
        said, _ = self._accused_node(self.names[node], node, self._against(node))
        return said.word is not Word.INCONCLUSIVE

    def _decided(self, node: int) -> bool:
        """Whether a test brings nothing with enough partners that are fine with others, and with no other partner at all."""
        for fit in self.fits:
            mine = (fit.client == node) | (fit.server == node)
            if fit.sizes.is_loss or not fit.failed[mine].all():
                continue
            fine = {
                int(one)
                for row in np.flatnonzero(~mine & ~fit.failed & np.isfinite(fit.left))
                for one in (fit.client[row], fit.server[row])
            }
            if len(set((fit.client[mine] + fit.server[mine] - node).tolist()) & fine) >= SURE_PARTNERS:
                return True
        return False

    def _fine_partners(self, node: int) -> set[int]:
        found: set[int] = set()
        bad: set[int] = set()
        for fit in self.fits:
            against = set(self._slow_rows(fit, node).tolist()) if node in fit.slow else set()
            for row in np.flatnonzero((fit.client == node) | (fit.server == node)).tolist():
                other = int(fit.client[row] + fit.server[row] - node)
                (bad if fit.low[row] or row in against else found).add(other)
        return found - bad

    def _nights(self, node: int) -> int:
        """In how many runs it was measured."""
        return len({int(one) for fit in self.fits for one in fit.night[(fit.client == node) | (fit.server == node)]})

    def _job_count(self, node: int) -> int:
        return len(
            {
                (int(fit.night[row]), int(fit.client[row]), int(fit.server[row]))
                for fit in self.fits
                for row in np.flatnonzero((fit.client == node) | (fit.server == node))
            }
        )

    def _incomplete(self, node: int, mine: Iterable[tuple[_Fit, Ints]]) -> tuple[str, bool]:
        """What was planned and not measured, or cannot be compared."""
        for fit in self.fits:
            if fit.sizes.is_loss:
                continue
            rows = next((rows for one, rows in mine if one is fit), np.zeros(0, np.int32))
            for role, name in ((CLIENT, "client"), (SERVER, "server")):
                ends = fit.client if role == CLIENT else fit.server
                planned = rows[ends[rows] == node]
                wanted = self._planned(fit.name, node, role)
                if not len(wanted):
                    return f"{fit.name} was not measured with it as the {name}", False
                tells = fit.usable()[planned]
                partners = {int(self.now.client[row] + self.now.server[row] - node) for row in wanted}
                clean = set((fit.client[planned] + fit.server[planned] - node)[tells].tolist())
                if len(clean) >= min(PARTNERS_MIN, max(1, len(partners))):
                    continue
                why = [self.known.reasons[int(row)] for row in wanted if int(row) in self.known.reasons]
                reason = f": {_commonest(why)}" if why else ""
                if not reason and fit.disturbed[planned].any():
                    reason = ": other work ran on its nodes during the test"
                have = f"{fit.name} as the {name}: {len(clean)} of {len(partners)} partners can tell"
                return f"{have}{reason or ', the others are bad themselves'}", not reason
        return "", False

    def _planned(self, test: str, node: int, role: int) -> Ints:
        """The rows of a test in which a node has a role, those without a value too."""
        number = next(number for number, one in enumerate(self.now.tests) if one.name == test)
        found: Ints = np.flatnonzero((self.now.test == number) & ((self.now.client, self.now.server)[role] == node)).astype(
            np.int32
        )
        return found

    def _unsure(self, node: int, effects: Mapping[str, tuple[float, float]]) -> tuple[str, bool]:
        """Whether it may be slower by what matters."""
        for fit in self.fits:
            for role in (BOTH, CLIENT, SERVER):
                slow = self.accuser.node(fit, node, role)
                if slow is None:
                    continue
                effect = effects[fit.name][role != BOTH]
                if effect > TOLD_MAX and not fit.sizes.is_loss and all(one[0] > TOLD_MAX for one in effects.values()):
                    return f"{fit.name}: its jobs scatter too much to tell", True
                if slow.rules_out(effect):
                    continue
                way = ("", "") if role == BOTH else ("", f" as the {('client', 'server')[role]}")
                shown = f"{_percent(fit, slow.change, 'below what is expected', 'of the packets lost')}, give or take"
                error = 100 * NormalDist().inv_cdf(1 - PASS_CHANCE) * slow.error
                note = self.known.notes.get(fit.name, "")
                return (
                    f"{fit.name.removesuffix(PACKETS)}{way[1]}: {shown} {error:.2g} %{f'; {note}' if note else ''}:"
                    f" {_share_words(fit, effect)} is not ruled out"
                ), True
        return "", False

    def _low_jobs(self, node: int) -> tuple[str, bool]:
        """Whether it was low in jobs that nothing explains, and too few others speak against a node that flaps."""
        for fit in self.fits:
            mine = ((fit.client == node) | (fit.server == node)) & ~fit.explained & (np.isfinite(fit.left) | fit.failed)
            low = mine & fit.low
            count, of = int(low.sum()), int(mine.sum())
            if not count or (_at_most(count, of, FLAPPING_SHARE) < 0.05 and not fit.failed[low].any()):
                continue
            pairs = {frozenset((int(fit.client[row]), int(fit.server[row]))) for row in np.flatnonzero(low)}
            if all(any(set(pair) == set(ends) for ends in self.links) for pair in pairs):
                continue
            others = _some(sorted({self.names[end] for pair in pairs for end in pair if end != node}))
            fine = (
                mine
                & ~low
                & np.array([frozenset((int(a), int(b))) in pairs for a, b in zip(fit.client, fit.server, strict=True)])
            )
            nights = {int(one) for one in fit.night[low]}
            flips = bool({int(one) for one in fit.night[fine]} - nights)
            said = (
                f"bad in one run and fine in another with {others}"
                if flips
                else f"bad with {others}, and it is not clear whose fault it is"
            )
            return f"{said}: {self._in_words([(fit, np.flatnonzero(low).astype(np.int32))])} ({count} of {of} jobs)", True
        return "", False

    def _passes(self, name: str, node: int, mine: Iterable[tuple[_Fit, Ints]]) -> Said:
        clean = [(fit, rows[fit.usable()[rows]]) for fit, rows in mine]
        jobs = {(int(fit.night[row]), int(fit.client[row]), int(fit.server[row])) for fit, rows in clean for row in rows}
        partners = sorted({self.names[end] for one in jobs for end in one[1:] if end != node})
        why = f"as expected with {_some(partners)} in {len(jobs)} jobs"
        links = [" - ".join(self.names[end] for end in ends) for ends in sorted(self.links) if node in ends]
        why = f"{why}; see link {', '.join(links)}" if links else why
        beside = sorted({self.names[end] for ends in self.crowded if node in ends for end in ends if end != node})
        if beside:
            why = f"{why}; slow beside other pairs with {_some(beside)}, as expected alone: the uplink is shared"
        return _node_says(name, Word.PASS, why, self._ratio(clean))

    # -- words ----------------------------------------------------------------------------------------------------------

    def _in_words(self, against: Sequence[tuple[_Fit, Ints]]) -> str:
        parts = []
        for fit, rows in against:
            gate = next((self.known.broken[int(row)] for row in fit.rows[rows] if int(row) in self.known.broken), "")
            lost = rows[fit.failed[rows] & ~np.isin(fit.rows[rows], list(self.known.broken))]
            if len(lost):
                why = self._reason_of(fit, np.isin(np.arange(len(fit.rows)), lost))
                parts.append(f"{fit.name} brings nothing in {len(lost)} jobs{why}")
            values = fit.left[rows][np.isfinite(fit.left[rows])]
            if len(values) and np.median(values) < 0 and not gate:
                what = _percent(fit, float(np.median(values)), "below what is expected", "of the packets lost")
                parts.append(f"{what} in {fit.name.removesuffix(PACKETS)}")
            if gate:
                parts.append(gate)
        return "; ".join(parts)

    def _reason_of(self, fit: _Fit, rows: Bools) -> str:
        reasons = [self.known.reasons[int(row)] for row in fit.rows[rows] if int(row) in self.known.reasons]
        return f": {_commonest(reasons)}" if reasons else ""

    @staticmethod
    def _ratio(against: Sequence[tuple[_Fit, Ints]]) -> float | None:
        found = []
        for fit, rows in against:
            values = fit.left[rows][np.isfinite(fit.left[rows])]
            if fit.failed[rows].any() and not len(values):
                return 0.0
            if len(values) and not fit.sizes.is_loss:
                found.append(exp(float(np.median(values))))
        return min(found, default=None)

    def _accused(self) -> set[str]:
        return {self.names[node] for fit in self.fits for node in fit.slow} | {self.names[node] for node in self.flapping}

    def _behind(self) -> set[str]:
        groups = {group for fit in self.fits for group, _ in fit.slow_groups}
        groups |= {group for fit in self.fits for ends in fit.slow_between for group in ends}
        return {name for name, group in zip(self.names, self.group, strict=True) if int(group) in groups}

    def _mostly_bad(self, node: int) -> bool:
        """Whether it is bad with at least half of its partners in a role of some test, and no pair alone explains it."""
        for fit in self.fits:
            for ends in (fit.client, fit.server):
                mine = np.flatnonzero(ends == node)
                if not len(mine):
                    continue
                others = fit.client[mine] + fit.server[mine] - node
                bad = fit.low[mine] | (np.isin(mine, fit.slow[node].rows) if node in fit.slow else False)
                if (
                    2 * len(set(others[bad].tolist())) >= len(set(others.tolist()))
                    and len(set(others[bad].tolist())) >= PARTNERS_MIN
                ):
                    return True
        return False

    def _explained(self) -> Iterable[tuple[Pair, ...]]:
        for name in sorted(self._accused()):
            yield self._pairs(self._against(self.index[name]))
        for fit in self.fits:
            for group, _ in fit.slow_groups:
                rows = np.flatnonzero((self.group[fit.client] == group) != (self.group[fit.server] == group))
                yield tuple(sorted({(self.names[fit.client[row]], self.names[fit.server[row]]) for row in rows}))
            for ways in fit.slow_between:
                groups = np.stack([self.group[fit.client], self.group[fit.server]])
                rows = np.flatnonzero((groups.min(axis=0) == min(ways)) & (groups.max(axis=0) == max(ways)))
                yield tuple(sorted({(self.names[fit.client[row]], self.names[fit.server[row]]) for row in rows}))

    def _pairs(self, against: Sequence[tuple[_Fit, Ints]]) -> tuple[Pair, ...]:
        ends = {(int(fit.client[row]), int(fit.server[row])) for fit, rows in against for row in rows}
        return tuple(sorted((self.names[client], self.names[server]) for client, server in ends))

    def _words(self) -> dict[Pair, str]:
        found: dict[Pair, str] = {}
        for fit in self.fits:
            for row in range(len(fit.rows)):
                pair = (self.names[fit.client[row]], self.names[fit.server[row]])
                word = "low" if fit.low[row] else "fine" if np.isfinite(fit.left[row]) else "unclear"
                order = ("fine", "unclear", "low")
                if order.index(word) >= order.index(found.get(pair, "fine")):
                    found[pair] = word
        return found


class _Cells:
    """Which rows are expected to give the same: hardware classes of both ends, and inside a group or across."""

    def __init__(self, values: Values) -> None:
        self.node_class = values.node_class
        self.group = values.node_group
        self.kinds = int(self.node_class.max(initial=-1)) + 2
        self.count = self.kinds * self.kinds * 3

    def of(self, client: Ints, server: Ints) -> Ints:
        """The cell of each pair of nodes."""
        one, other = self.node_class[client] + 1, self.node_class[server] + 1
        low, high = np.minimum(one, other), np.maximum(one, other)
        ends = self.group[client], self.group[server]
        place = np.where((ends[0] == NOBODY) | (ends[1] == NOBODY), 0, np.where(ends[0] == ends[1], 1, 2))
        found: Ints = ((low * self.kinds + high) * 3 + place).astype(np.int32)
        return found


@dataclass(frozen=True, slots=True)
class _Levels:
    """level: per cell, nan where too little is known. scatter: around them, of healthy jobs. counts: jobs per cell."""

    level: Floats
    scatter: Scatter | None
    row_count: int
    counts: Floats

    def errors(self, scatter: Scatter) -> Floats:
        """Standard error of each cell's level: all rows of the cell share it."""
        found: Floats = scatter.sigma / np.sqrt(np.maximum(1.0, self.counts))
        return found


def _pairs_of(fit: _Fit, rows: Bools) -> set[tuple[int, int]]:
    """The ordered pairs of these rows."""
    return {(int(fit.client[row]), int(fit.server[row])) for row in np.flatnonzero(rows)}


def _most_often(fit: _Fit, rows: Bools) -> int:
    """The node that is an end of most of these rows; of several, the one that is low most often."""
    counts = [np.bincount(np.concatenate([fit.client[some], fit.server[some]])) for some in (rows, rows | fit.low)]
    return max(np.flatnonzero(counts[0]).tolist(), key=lambda node: (counts[0][node], counts[1][node]))


def _levels(  # noqa: PLR0917 - columns of one table
    value: Floats, client: Ints, server: Ints, cell: Ints, use: Bools, sizes: _Sizes, cell_count: int
) -> _Levels:
    """The healthy level of each cell. A fault only makes a pair slower, and most nodes are healthy.

    A node's best job tells whether it can be fast; nodes whose best one is far below most nodes' best do not count.
    """
    level = np.full(cell_count, np.nan)
    counts = np.zeros(cell_count)
    healthy = np.zeros(len(value), bool)
    centred = np.full(len(value), np.nan)
    for number in sorted(set(cell[use].tolist())):
        rows = np.flatnonzero(use & (cell == number))
        ends = list(zip(client[rows].tolist(), server[rows].tolist(), strict=True))
        if len({frozenset(one) for one in ends}) < 3 or len({node for one in ends for node in one}) < 3:
            continue
        if frozenset.intersection(*(frozenset(one) for one in ends)):
            continue  # the only node of its class has a hand in each: nobody knows what that class should give
        best: dict[int, float] = {}
        for (one, other), found in zip(ends, value[rows].tolist(), strict=True):
            best[one], best[other] = max(best.get(one, -np.inf), found), max(best.get(other, -np.inf), found)
        middle = float(np.median(list(best.values())))
        # Of several faults most pairs may be slow, but not the best pairs of most nodes.
        spread = min(core_width(value[rows], sizes.least), max(sizes.least, _robust_width(list(best.values()))))
        slow = {node for node, one in best.items() if one < middle - max(sizes.effect, 4 * spread)}
        good = rows[[not slow & set(one) for one in ends]]
        if len(good) < 3:
            continue
        top, _ = scatter_of(value[good], list(zip(client[good].tolist(), server[good].tolist(), strict=True)), sizes.least)
        level[number] = top
        counts[number] = len(good)
        centred[good] = value[good] - top
        healthy[good] = True
    _borrow(level)
    rows = np.flatnonzero(healthy)
    if len(rows) < 3:
        return _Levels(level, None, len(rows), counts)
    ends = list(zip(client[rows].tolist(), server[rows].tolist(), strict=True))
    return _Levels(level, scatter_of(centred[rows], ends, sizes.least)[1], len(rows), counts)


def _robust_width(values: Sequence[float]) -> float:
    """A standard deviation by the median absolute deviation: half of the values may be anything."""
    return float(np.median(np.abs(np.array(values) - np.median(values)))) / 0.6745


def _borrow(level: Floats) -> None:
    """Where one place of a class pair is not known, take the other one's: without leaves known, then the other place."""
    if len(level) < 3:
        return
    for first in range(0, len(level), 3):
        places = level[first : first + 3]
        known = places[np.isfinite(places)]
        if len(known):
            places[~np.isfinite(places)] = known.min()  # counted as one job: it is a guess


def _without_any_one(  # noqa: PLR0917 - columns of one table
    change: Floats, client: Ints, server: Ints, use: Bools, level: float, sizes: _Sizes
) -> bool:
    """Whether a common change also shows among the pairs without any one node: else it may be that node's."""
    nodes = set(client[use].tolist()) | set(server[use].tolist())
    if (
        len(nodes) < NODES_MIN
        or len({frozenset((a, b)) for a, b in zip(client[use].tolist(), server[use].tolist(), strict=True)}) < PAIRS_MIN
    ):
        return False
    counts = np.bincount(np.concatenate([client[use], server[use]]))
    crowded = [node for node in nodes if counts[node] * 4 > use.sum()]
    for node in crowded:
        rest = use & (client != node) & (server != node)
        if rest.sum() < 2 or abs(float(np.quantile(change[rest], 0.75)) - level) > max(abs(level) / 2, sizes.effect / 2):
            return False
    return True


def _with_lower_levels(fit: _Fit, accuse: _Accuser) -> None:
    """Where slow jobs are left that no culprit explains, on pairs all over the site: the test has levels of its own."""
    rest = fit.usable()
    if rest.sum() < PAIRS_MIN:
        return
    ends = list(zip(fit.client[rest].tolist(), fit.server[rest].tolist(), strict=True))
    _, scatter = scatter_of(fit.left[rest], ends, fit.sizes.least, lower=True)
    if len(scatter.centres) > 1:
        fit.scatter = scatter
        accuse.again(fit)


class _Before:
    """What a baseline (or earlier runs) says: levels of cells, lasting offsets of pairs, and who was slow in it."""

    def __init__(self, before: Values, judge: _Judge) -> None:
        self.judge = judge
        self.values = before
        self.number = {one.name: number for number, one in enumerate(before.tests)}
        nodes = np.array([judge.index.get(name, NOBODY) for name in before.nodes], dtype=np.int32)
        self.to_now = nodes
        kinds = max(int(before.node_class.max(initial=-1)), int(judge.now.node_class.max(initial=-1))) + 2
        self.cells = _Cells(before)
        self.cells.kinds = judge.cells.kinds = kinds
        self.cells.count = judge.cells.count = kinds * kinds * 3
        self.known: dict[str, tuple[_Levels, dict[tuple[int, int], float]]] = {}
        self.nights: dict[str, float] = {}
        #: by test, how many of its jobs between groups are low, and of how many
        self.crossing: dict[str, tuple[int, int]] = {}
        for name, number in self.number.items():
            self._learn(name, number)

    def _learn(self, name: str, number: int) -> None:
        values, sizes = self.values, _Sizes.of(name)
        usual = values.outcome == Outcome.MEASURED
        rows = np.flatnonzero((values.test == number) & np.isfinite(values.value) & (values.server != NOBODY))
        if usual[rows].sum() * 2 >= len(rows):
            rows = rows[usual[rows]]
        if not len(rows):
            return
        client, server, value = values.client[rows], values.server[rows], values.value[rows]
        cell = self.cells.of(client, server)
        levels = _levels(value, client, server, cell, np.ones(len(rows), bool), sizes, self.cells.count)
        left = value - levels.level[cell]
        scatter = levels.scatter or Scatter(max(sizes.least, 0.05 if not sizes.is_loss else 2e-3))
        night = values.night[rows]
        failed = np.zeros(len(rows), bool)
        fit = _Fit(
            name,
            sizes,
            rows.astype(np.int32),
            client,
            server,
            night,
            left,
            scatter,
            failed,
            failed.copy(),
            levels.errors(scatter)[cell],
        )
        fit.explained = np.zeros(len(rows), bool)
        fit.prepare()
        ends = values.node_group[client], values.node_group[server]
        crossing = (ends[0] != NOBODY) & (ends[1] != NOBODY) & (ends[0] != ends[1])
        self.crossing[name] = int((fit.low & crossing).sum()), int(crossing.sum())
        slow: set[int] = set()
        accuse = _Accuser([fit], values.nodes, values.node_group)
        accuse.of_test(fit)
        _with_lower_levels(fit, accuse)
        scatter, levels = fit.scatter, replace(levels, scatter=fit.scatter)
        if self.judge.trusted:
            slow = {node for node, one in fit.slow.items() if one.change <= -sizes.effect * 0.8}
            for node in slow:
                label = values.nodes[node]
                if not sizes.is_loss and label in self.judge.index:
                    self.judge.slow_before[label] = min(self.judge.slow_before.get(label, 0.0), fit.slow[node].change)
        offsets = self._offsets(client, server, left, value, scatter, slow) if self.judge.trusted else {}
        self.known[name] = levels, offsets
        common = [
            float(np.nanmedian(left[night == one]))
            for one in sorted(set(night.tolist()))
            if np.isfinite(left[night == one]).any()
        ]
        self.nights[name] = float(np.std(common, ddof=1)) if len(common) >= 3 else 0.0

    def _offsets(  # noqa: PLR0917 - columns of one table
        self, client: Ints, server: Ints, left: Floats, value: Floats, scatter: Scatter, slow: set[int]
    ) -> dict[tuple[int, int], float]:
        """By pair (now's nodes), how far it lies from its cell for good; a value of its own where the cell has no level."""
        own: dict[tuple[int, int], list[float]] = {}
        for a, b, one, raw in zip(client.tolist(), server.tolist(), left.tolist(), value.tolist(), strict=True):
            ends = int(self.to_now[a]), int(self.to_now[b])
            if NOBODY not in ends and not {a, b} & slow:
                own.setdefault(ends, []).append(one if np.isfinite(one) else raw)
        means = {pair: float(np.median(several)) for pair, several in own.items()}
        if not means:
            return {}
        values = np.array(list(means.values()))
        counts = np.array([len(several) for several in own.values()])
        error = scatter.sigma / np.sqrt(counts)
        spread = float(np.median(np.abs(values - np.median(values)))) / 0.6745
        lasting = max(0.0, spread**2 - float(np.median(error**2)))
        found = {}
        for (pair, mean), mine in zip(means.items(), error.tolist(), strict=True):
            steady = len(scatter.centres) == 1
            full = abs(mean) > OFFSET_SIGMAS * mine and steady
            found[pair] = mean if full else mean * lasting / (lasting + mine**2) if steady else 0.0
        return found

    def expected(self, name: str, client: Ints, server: Ints, cell: Ints) -> Floats:
        """What each pair should give; nan where nothing like it is known."""
        if name not in self.known:
            return np.full(len(client), np.nan)
        levels, offsets = self.known[name]
        level = levels.level[cell]
        own = np.array([offsets.get(pair, 0.0) for pair in zip(client.tolist(), server.tolist(), strict=True)])
        lone = np.array([pair in offsets for pair in zip(client.tolist(), server.tolist(), strict=True)])
        found: Floats = np.where(np.isfinite(level), level + own, np.where(lone, own, np.nan))
        return found

    def errors(self, name: str, cell: Ints) -> Floats:
        """Standard error of the level of each row's cell."""
        levels = self.known[name][0]
        found: Floats = levels.errors(levels.scatter or Scatter(_Sizes.of(name).least))[cell]
        return found

    def scatter(self, name: str) -> Scatter | None:
        """How its jobs scatter."""
        return self.known[name][0].scatter if name in self.known else None

    def disturbed(self, name: str) -> tuple[int, int]:
        """Of how many jobs with a value how many ran beside other work: (these, all)."""
        if name not in self.number:
            return 0, 0
        mine = (self.values.test == self.number[name]) & np.isfinite(self.values.value)
        return int((mine & (self.values.outcome == Outcome.DISTURBED)).sum()), int(mine.sum())

    def night_scatter(self, name: str) -> float:
        """How far the common level of its runs scatters."""
        return self.nights.get(name, 0.0)


#: How a group is bad, in words.
_HOW = {
    "uplink": "bad to every other group, and its nodes are fine with each other",
    "whole": "its nodes are slow with each other, too: what they share",
    "open": "bad to every other group; too few pairs inside it were measured to tell its uplink from its nodes",
}


class _Accuser:
    """Finds what explains the slow rows of tests, strongest first, and leaves the parts of a cause alone."""

    def __init__(self, fits: Sequence[_Fit], names: Sequence[str], group: Ints) -> None:
        self.fits, self.names, self.group = fits, names, group
        count = max(16, len(names)) * max(1, len(fits)) * 3
        self.z = max(3.7, NormalDist().inv_cdf(1 - CHANCE / count))
        self.chance = CHANCE / count

    # -- slow as a whole ------------------------------------------------------------------------------------------------

    def of_test(self, fit: _Fit) -> None:
        """Tell groups, then nodes that are slow as a whole, until nothing of this test stands out."""
        self._across(fit)
        self._groups(fit)
        fit.by_groups = fit.explained.copy()
        self._nodes(fit)

    def again(self, fit: _Fit) -> None:
        """Forget what was told of a test whose levels or scatter are other ones now, and judge it anew."""
        fit.explained = np.zeros(len(fit.rows), bool)
        fit.slow.clear()
        fit.slow_groups.clear()
        fit.slow_between.clear()
        fit.slow_across = None
        fit.prepare()
        self.of_test(fit)

    def across_tests(self) -> None:
        """What was told of one test explains what is slow on its way in the others: groups first, then nodes."""
        groups = {group for fit in self.fits for group, _ in fit.slow_groups}
        for fit in self.fits:
            ends = self.group[fit.client], self.group[fit.server]
            crosses = np.isin(ends[0], list(groups)) | np.isin(ends[1], list(groups))
            slow = crosses & (ends[0] != ends[1]) & self._leans(fit) & ~fit.by_groups
            if slow.any():
                fit.by_groups = fit.by_groups | slow
                fit.explained = fit.by_groups.copy()
                fit.slow.clear()
                self._nodes(fit)
        self.explains({node for fit in self.fits for node in fit.slow})

    def explains(self, nodes: Set[int]) -> None:
        """What is bad on the way of told nodes is theirs also in tests that do not tell of them: no link, no other end."""
        for fit in self.fits:
            others = list(nodes - set(fit.slow))
            fit.explained |= (np.isin(fit.client, others) | np.isin(fit.server, others)) & self._leans(fit)

    @staticmethod
    def _leans(fit: _Fit) -> Bools:
        with np.errstate(invalid="ignore"):
            found: Bools = fit.failed | (fit.left < -fit.sizes.effect / 2)
        return found

    def node(self, fit: _Fit, node: int, role: int) -> _Slow | None:
        """What a node's jobs with good partners say in a role."""
        ends = (fit.client == node, fit.server == node, (fit.client == node) | (fit.server == node))[role]
        return self._slow(fit, np.flatnonzero(ends & fit.usable()), role)

    def _slow(self, fit: _Fit, rows: np.ndarray[Any, np.dtype[np.intp]], role: int = BOTH) -> _Slow | None:
        if not len(rows):
            return None
        likelihood = fit.density[rows].sum(axis=0)
        best = int(likelihood.argmax())
        weight = np.exp(likelihood - likelihood[best]) * fit.widths
        weight /= weight.sum()
        mean = float(weight @ fit.grid)
        error = sqrt(max(float(weight @ (fit.grid - mean) ** 2), (fit.scatter.sigma / (3 * sqrt(len(rows)))) ** 2))
        at_zero = float(np.interp(0.0, fit.grid, likelihood))
        common = float(np.mean(fit.common[rows]))
        error = sqrt(error**2 + common**2)
        change = float(fit.grid[best])
        z = min(sqrt(max(0.0, 2 * (float(likelihood[best]) - at_zero))), abs(change) / error)
        return _Slow(mean, error, z if change < 0 else -z, rows.astype(np.int32), role)

    def _nodes(self, fit: _Fit) -> None:
        nodes = sorted(set(fit.client.tolist()) | set(fit.server.tolist()))
        cached: dict[int, _Slow | None] = {}
        while True:
            for node in nodes:
                if node not in cached and node not in fit.slow:
                    cached[node] = self._worst_role(fit, node)
            standing = [(one.z, node, one) for node, one in cached.items() if one is not None and node not in fit.slow]
            if not standing:
                return
            _, node, one = max(standing, key=lambda each: each[0])
            fit.slow[node] = one
            of_role = (
                (fit.client, fit.server)[one.role] == node if one.role != BOTH else (fit.client == node) | (fit.server == node)
            )
            met = set(fit.client[of_role].tolist()) | set(fit.server[of_role].tolist())
            fit.explained |= of_role
            for other in met:
                cached.pop(other, None)

    def _worst_role(self, fit: _Fit, node: int) -> _Slow | None:
        """The role in which a node stands out most, if it does: with enough partners and jobs, and in each run."""
        worst: _Slow | None = None
        for role in (BOTH, CLIENT, SERVER):
            one = self.node(fit, node, role)
            if one is None or one.z < self.z or one.change > -0.4 * fit.sizes.effect or not self._everywhere(fit, node, one):
                continue
            margin = 0.0 if role == BOTH else 2.0  # both roles explain more than one, unless one is clearly better
            if worst is None or one.z > worst.z + margin:
                worst = one
        return worst

    @staticmethod
    def _everywhere(fit: _Fit, node: int, one: _Slow) -> bool:
        """Whether most partners, and every run with two jobs, show at least half of it."""
        values = fit.left[one.rows]
        others = fit.client[one.rows] + fit.server[one.rows] - node
        level = fit.scatter.below_nearest(values - one.change)
        if len(one.rows) < JOBS_MIN or len(set(others.tolist())) < PARTNERS_MIN:
            return False
        half = abs(one.change) / 2
        wide = max(half, 3 * fit.scatter.sigma)
        leaning = [float(np.median(level[others == other])) < wide for other in sorted(set(others.tolist()))]
        if sum(leaning) < 0.7 * len(leaning):
            return False
        if one.change < -LOW_SIGMAS * fit.scatter.sigma and np.mean(level > half) > 0.4:
            return False
        return all(
            float(np.median(level[fit.night[one.rows] == night])) < half
            for night in sorted(set(fit.night[one.rows].tolist()))
            if (fit.night[one.rows] == night).sum() >= 2
        )

    # -- groups ---------------------------------------------------------------------------------------------------------

    def _across(self, fit: _Fit) -> None:
        """Tell the way between all groups, where nearly every pair across is slow and pairs inside groups are fine."""
        ends = self.group[fit.client], self.group[fit.server]
        known = (ends[0] != NOBODY) & (ends[1] != NOBODY) & fit.usable()
        across, inside = known & (ends[0] != ends[1]), known & (ends[0] == ends[1])
        groups = sorted(set(ends[0][across].tolist()) | set(ends[1][across].tolist()))
        one = self._slow(fit, np.flatnonzero(across))
        if one is None or one.z < self.z or one.change > -fit.sizes.effect or inside.sum() < PAIRS_MIN:
            return
        if across.sum() < 2 * PAIRS_MIN or not self._fine(fit, inside, one.change):
            return
        if float(np.mean(fit.left[across] < one.change / 2)) < NEARLY_ALL:
            return
        fit.explained |= across
        if len(groups) == 2:
            fit.slow_between[groups[0], groups[1]] = one.change
        else:
            fit.slow_across = one.change

    def _groups(self, fit: _Fit) -> None:
        for group in sorted(set(self.group.tolist()) - {NOBODY}):
            ends = self.group[fit.client], self.group[fit.server]
            known = (ends[0] != NOBODY) & (ends[1] != NOBODY) & fit.usable()
            out, into = known & (ends[0] == group) & (ends[1] != group), known & (ends[1] == group) & (ends[0] != group)
            beyond = known & (ends[0] != group) & (ends[1] != group) & (ends[0] != ends[1])
            inside = known & (ends[0] == group) & (ends[1] == group)
            for crossing in (out | into, out, into):
                one = self._slow(fit, np.flatnonzero(crossing))
                if one is None or one.z < self.z or one.change > -0.4 * fit.sizes.effect:
                    continue
                if not self._all_members(fit, crossing, group, one.change) or not self._fine(fit, beyond, one.change):
                    continue
                members = set(fit.client[inside].tolist()) | set(fit.server[inside].tolist())
                size = len(set(np.flatnonzero(self.group == group).tolist()))
                if inside.sum() and self._fine(fit, inside, one.change):
                    fit.slow_groups[group, "uplink"] = one.change
                    fit.explained |= crossing
                elif inside.sum() and len(members) >= max(MEMBERS_WHOLE_MIN, 0.7 * size):
                    fit.slow_groups[group, "whole"] = one.change
                    fit.explained |= known & ((ends[0] == group) | (ends[1] == group))
                elif len(self._ends_in(fit, crossing, group)) >= MEMBERS_WHOLE_MIN:
                    fit.slow_groups[group, "open"] = one.change
                    fit.explained |= known & ((ends[0] == group) | (ends[1] == group))
                else:
                    continue
                break

    def _ends_in(self, fit: _Fit, crossing: Bools, group: int) -> set[int]:
        ends = np.concatenate([fit.client[crossing], fit.server[crossing]])
        return set(ends[self.group[ends] == group].tolist())

    def _all_members(self, fit: _Fit, crossing: Bools, group: int, change: float) -> bool:
        """Whether nearly all members are slow across the edge, with two nodes on either side."""
        members: dict[int, list[float]] = {}
        others: dict[int, list[float]] = {}
        for row in np.flatnonzero(crossing):
            a, b, value = int(fit.client[row]), int(fit.server[row]), float(fit.left[row])
            near, far = (a, b) if self.group[a] == group else (b, a)
            members.setdefault(near, []).append(value)
            others.setdefault(far, []).append(value)
        if len(members) < MEMBERS_MIN or len(others) < MEMBERS_MIN:
            return False
        for part in (members, others):
            leaning = sum(float(np.median(several)) < change / 2 for several in part.values())
            if leaning < NEARLY_ALL * len(part) - (len(part) >= 8):
                return False
        return True

    @staticmethod
    def _fine(fit: _Fit, rows: Bools, change: float) -> bool:
        """Whether most nodes of these rows are fine with somebody in them: other faults do not make them slow with all."""
        best: dict[int, float] = {}
        for pair in {(int(one), int(other)) for one, other in zip(fit.client[rows], fit.server[rows], strict=True)}:
            middle = float(np.median(fit.left[rows & (fit.client == pair[0]) & (fit.server == pair[1])]))
            for node in pair:
                best[node] = max(best.get(node, -np.inf), middle)
        return bool(best) and sum(one > change / 2 for one in best.values()) >= FINE_SHARE * len(best)

    def between(self, fit: _Fit) -> None:
        """Tell ways between two groups: all of their pairs slow, and nothing else of either. Last, after nodes that flap."""
        ends = self.group[fit.client], self.group[fit.server]
        known = (ends[0] != NOBODY) & (ends[1] != NOBODY) & (ends[0] != ends[1]) & fit.usable()
        slow = known & (fit.left < -fit.sizes.effect)
        for one, other in sorted({(int(min(a, b)), int(max(a, b))) for a, b in zip(ends[0][slow], ends[1][slow], strict=True)}):
            way = known & (np.minimum(*ends) == one) & (np.maximum(*ends) == other)
            found = self._slow(fit, np.flatnonzero(way))
            if found is None or found.z < self.z or found.change > -fit.sizes.effect:
                continue
            if self._all_members(fit, way, one, found.change) and self._fine(fit, fit.usable() & ~way, found.change):
                fit.slow_between[one, other] = found.change
                fit.explained |= way

    def group_causes(self) -> dict[tuple[int, str], list[tuple[_Fit, float]]]:
        """By group and how, the tests that show it."""
        found: dict[tuple[int, str], list[tuple[_Fit, float]]] = {}
        for fit in self.fits:
            for key, change in fit.slow_groups.items():
                found.setdefault(key, []).append((fit, change))
        return found

    def between_causes(self) -> dict[tuple[int, int], tuple[_Fit, float]]:
        """By two groups, the test that shows it most."""
        found: dict[tuple[int, int], list[tuple[_Fit, float]]] = {}
        for fit in self.fits:
            for key, change in fit.slow_between.items():
                found.setdefault(key, []).append((fit, change))
        return {key: _clearest(changes) for key, changes in found.items()}

    # -- slow in some jobs ----------------------------------------------------------------------------------------------

    def flapping(self) -> dict[int, list[tuple[_Fit, Ints]]]:
        """Nodes that are low or fail in more jobs than chance gives, with two partners or more; strongest first."""
        found: dict[int, list[tuple[_Fit, Ints]]] = {}
        for fit in self.fits:
            while True:
                tells = (np.isfinite(fit.left) | fit.failed) & ~fit.explained
                low = tells & fit.low
                best: tuple[float, int, Bools] | None = None
                for node in sorted(set(fit.client[low].tolist()) | set(fit.server[low].tolist())):
                    mine = tells & ((fit.client == node) | (fit.server == node))
                    hits = mine & low
                    others = set((fit.client[hits] + fit.server[hits] - node).tolist())
                    if len(others) < PARTNERS_MIN or hits.sum() < JOBS_MIN:
                        continue
                    rest = tells & ~mine
                    rate = max(STRAY_LOW, float(low[rest].sum() / max(30, rest.sum())))
                    chance = max(
                        1 - _at_most(int(each.sum()) - 1, int(of.sum()), rate)
                        for each, of in ((hits, mine), self._without_its_worst_pair(fit, node, hits, mine))
                    )
                    if chance < max(self.chance, 1e-15) and (best is None or (chance, -hits.sum()) < (best[0], -best[2].sum())):
                        best = chance, node, hits
                if best is None:
                    break
                _, node, hits = best
                found.setdefault(node, []).append((fit, np.flatnonzero(hits).astype(np.int32)))
                fit.explained |= tells & ((fit.client == node) | (fit.server == node))
        return found

    @staticmethod
    def _without_its_worst_pair(fit: _Fit, node: int, hits: Bools, mine: Bools) -> tuple[Bools, Bools]:
        """Its low jobs, and all, without the pair that is low most often, if that one nearly always is: it may be the link."""
        others = fit.client + fit.server - node
        steady = [
            (int((hits & (others == other)).sum()), other)
            for other in sorted(set(others[hits].tolist()))
            if (hits & (others == other)).sum() >= max(2, STEADY_SHARE * (mine & (others == other)).sum())
        ]
        rest = others != max(steady)[1] if steady else np.ones(len(others), bool)
        return hits & rest, mine & rest

    def links(self) -> tuple[dict[tuple[int, int], list[tuple[_Fit, Ints]]], set[Pair]]:
        """Pairs that are low again and again while both ends are fine with others; and low pairs that stay open."""
        by_ends: dict[tuple[int, int], list[tuple[_Fit, Ints]]] = {}
        for fit in self.fits:
            tells = (np.isfinite(fit.left) | fit.failed) & ~fit.explained
            for row in np.flatnonzero(tells & fit.low):
                ends = (int(min(fit.client[row], fit.server[row])), int(max(fit.client[row], fit.server[row])))
                several = by_ends.setdefault(ends, [])
                if several and several[-1][0] is fit:
                    several[-1] = fit, np.append(several[-1][1], np.int32(row))
                else:
                    several.append((fit, np.array([row], np.int32)))
        links: dict[tuple[int, int], list[tuple[_Fit, Ints]]] = {}
        left: set[Pair] = set()
        for ends, against in by_ends.items():
            jobs = sum(len(rows) for _, rows in against)
            nights = {int(fit.night[row]) for fit, rows in against for row in rows}
            steady = any(self._share_low(fit, rows) >= STEADY_SHARE for fit, rows in against)
            if (
                jobs >= JOBS_MIN
                and len(nights) >= RUNS_MIN
                and steady
                and all(self._fine_with_others(end, ends) for end in ends)
            ):
                links[ends] = against
                for fit, rows in against:
                    fit.explained[rows] = True
            else:
                left |= {(self.names[fit.client[row]], self.names[fit.server[row]]) for fit, rows in against for row in rows}
        return links, left

    @staticmethod
    def _share_low(fit: _Fit, rows: Ints) -> float:
        ways = {(int(fit.client[row]), int(fit.server[row])) for row in rows}
        all_rows = [row for row in range(len(fit.rows)) if (int(fit.client[row]), int(fit.server[row])) in ways]
        return len(rows) / max(1, len(all_rows))

    def _fine_with_others(self, node: int, ends: tuple[int, int]) -> bool:
        partners: set[int] = set()
        for fit in self.fits:
            fine = np.isfinite(fit.left) & ~fit.low & ((fit.client == node) | (fit.server == node))
            partners |= set((fit.client[fine] + fit.server[fine] - node).tolist())
        return len(partners - set(ends)) >= 1


def _at_most(count: int, of: int, share: float) -> float:
    """The chance of at most `count` of `of` draws, each with this chance: exact."""
    if count < 0:
        return 0.0
    term, total = (1 - share) ** of, 0.0
    for number in range(min(count, of) + 1):
        total += term
        term *= (of - number) / (number + 1) * share / (1 - share)
    return min(1.0, total)


def _clearest(changes: Sequence[tuple[_Fit, float]]) -> tuple[_Fit, float]:
    """Return the test that says best what is wrong: one that fails, then one that is slow: losses follow from that."""
    return min(changes, key=lambda one: (one[1] > -one[0].sizes.failure, one[0].sizes.is_loss, one[1] / one[0].sizes.effect))


def _percent(fit: _Fit, change: float, slower: str = "slower", lost: str = "of the packets lost") -> str:
    percent = -100 * change if fit.sizes.is_loss else 100 * (1 - exp(change))
    digits = 0 if percent >= 10 else 1 if not fit.sizes.is_loss else 2
    return f"{percent:.{digits}f} % {lost if fit.sizes.is_loss else slower}"


def _share_words(fit: _Fit, effect: float) -> str:
    return f"{100 * effect:.2g} % lost" if fit.sizes.is_loss else f"{100 * (1 - exp(-effect)):.2g} % slower"


def _node_says(name: str, word: Word, reason: str, ratio: float | None = None) -> Said:
    return Said("node", name, word, reason, (name,), ratio)


def _commonest(words: Sequence[str]) -> str:
    """The words that stand there most often, of several the first of the alphabet; empty without any."""
    return min(set(words), key=lambda one: (-words.count(one), one), default="")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:7])} and {len(names) - 7} more"
