"""The judge over nights: false mornings of sites where nothing happens, and how soon a fault is told.

python bench/judge.py [--seed N] [--quick] [--nights N]

false mornings   nights with a new message, per 100 nights and site, after 60 nights of history: 64 and 1,000 nodes,
                 two rounds, 1 and 3 tests, three ways to choose pairs (bench/support/histories.py), each noise.
                 The worst of the three ways is what counts
delay            nights until a fault is told and named as what it is, at 1 to 3 % noise. Where nodes are idle in
                 30 % of the nights, only nights that measured the node count, and the calendar stands beside it. The
                 same of a node that is slow as client or as server alone; a node with fixed pairs may never be either
confirmation     a node at half speed: told the night it dies, once its suspects are measured again; and false mornings
                 where every night's suspects are. Whom to measure again, and what comes of it, is decided by the rule
                 of `hpcq run --confirm` itself (hpcq/judge/confirming.py)
"""

from __future__ import annotations

import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import harness
from bench.support.histories import NOISES, PLANS, Fault, Site, again, draw
from hpcq.judge.causes import Thing
from hpcq.judge.confirming import plan
from hpcq.judge.judging import FALSE_MORNINGS, Watched, watch
from hpcq.judge.values import Floats, Indices, NightJobs, Outcome, Values, by_night

HISTORY, NODES = 60, 64
#: false mornings per 100 that a noise may bring; 1 where not named
ALLOWED = {"modes_iid": 3, "ar1": 3, "modes_sticky": 10}
#: (name, fault, thing, index of it, median and 95 % quantile of the delay in nights)
FAULTS = (
    ("everything 10 % slower", Fault("cluster", 0.1, HISTORY), Thing.NIGHT, 0, 2, 2),
    ("everything at 30 %", Fault("cluster", 0.7, HISTORY), Thing.NIGHT, 0, 1, 1),
    ("one node 10 % slower", Fault("node", 0.1, HISTORY), Thing.NODE, 3, 3, 6),
    ("one node 10 % slower when it sends", Fault("sends", 0.1, HISTORY), Thing.ROLE, 3, 4, 8),
    ("one node 10 % slower when it receives", Fault("receives", 0.1, HISTORY), Thing.ROLE, 3 + NODES, 4, 8),
    ("uplink of a leaf 10 % slower", Fault("leaf", 0.1, HISTORY, 2), Thing.GROUP, 2, 6, 6),
)
NEVER = 99
#: Noises of which a second measurement of the same night knows nothing.
MEMORYLESS = ("gauss1", "gauss2", "gauss5", "lognormal3", "heavy")


def false_mornings(site: Site, seed: int) -> float:
    """Nights with a new message, per 100 nights after the history."""
    watched = watch(draw(site, seed))
    nights = {told.told for level in watched.levels.values() for told in level.messages if told.told >= HISTORY}
    return 100 * len(nights) / (site.night_count - HISTORY)


def delay(site: Site, thing: Thing, index: int, seed: int) -> tuple[int, int, int]:
    """Nights until told: those that measured the thing, those of the calendar; and how many others were told."""
    values = draw(site, seed)
    watched = watch(values)
    told = {
        (level, one.thing): one.told for level, found in watched.levels.items() for one in found.messages if one.told >= HISTORY
    }
    night = told.pop((thing, index), None)
    if night is None:
        return NEVER, NEVER, len(told)
    measured = {
        Thing.NODE: (values.client == index) | (values.server == index),
        Thing.ROLE: (values.client if index < site.node_count else values.server) == index % site.node_count,
    }.get(thing, np.ones(len(values.night), bool))
    seen = np.unique(values.night[measured & (values.night >= HISTORY)])
    return int((seen <= night).sum()), night - HISTORY + 1, len(told)


def confirmed(site: Site, node: int, factor: float, seed: int) -> tuple[bool, int]:
    """Is the node told the night it dies, its suspects measured again? And how many second jobs that took."""
    values = draw(site, seed)
    before = watch(values)
    retests = plan(before)
    rows = [
        (values.nodes.index(one.client), values.nodes.index(one.server), number)
        for one in retests
        for number in range(1, one.job_count + 1)
    ]
    after = watch(_with_second_jobs(values, rows, node, factor, np.random.default_rng(seed))) if rows else before
    return _told_tonight(after, node), len(rows)


def _jobs_of(ends: Indices, place: Indices, rows: Indices, value: Floats) -> NightJobs:
    """Jobs of these pairs, one per row; value: shape (rows, tests)."""
    flags, ones = np.zeros(value.shape, bool), np.ones(value.shape, np.int64)
    return NightJobs(ends[rows, 0], ends[rows, 1], place[rows], value, flags, ones)


def false_mornings_confirmed(site: Site, seed: int) -> tuple[float, float]:
    """The same with the suspects of each night measured again; and how many second jobs a night takes."""
    values, random = draw(site, seed), np.random.default_rng([seed, 2])
    jobs = by_night(values)
    known = {(int(client), int(server)): place for place, (client, server) in enumerate(jobs.pairs)}
    nodes = range(site.node_count)
    others = [(one, other) for one in nodes for other in nodes if one != other and (one, other) not in known]
    known |= {pair: len(known) + place for place, pair in enumerate(others)}
    pairs, counts = np.vstack([jobs.pairs, np.array(others)]), np.append(jobs.pair_count, np.zeros(len(others), np.int64))
    watched = Watched(values, replace(jobs, pairs=pairs, pair_count=counts), FALSE_MORNINGS)
    second_count = 0
    for night in range(site.night_count):
        kept = {id(watched.values): watched.values, id(watched.jobs): watched.jobs}
        first = deepcopy(watched, kept)
        first.add(night)
        retests = plan(first)
        if retests:
            ends = np.array([(values.nodes.index(one.client), values.nodes.index(one.server)) for one in retests])
            counts = np.array([one.job_count for one in retests])
            number = np.concatenate([np.arange(count) for count in counts])
            job = np.repeat(np.arange(len(retests)), counts)
            each = np.log(again(site, random, night, ends[job])).reshape(len(job), -1)
            each += np.where(values.node_group[ends[:, 0]] != values.node_group[ends[:, 1]], np.log(0.97), 0.0)[job, None]
            place = np.array([known[int(one), int(other)] for one, other in ends])
            looks = [_jobs_of(ends, place, job[number == one], each[number == one]) for one in range(int(counts.max()))]
            medians = np.array([np.median(each[job == one], axis=0) for one in range(len(retests))])
            merged = _jobs_of(ends, place, np.arange(len(retests)), medians)
            merged = replace(merged, count=np.broadcast_to(counts[:, None], medians.shape).copy())
            spliced = [
                (*found[:night], new, *found[night + 1 :])
                for found, new in ((jobs.again, merged), (jobs.each_again, tuple(looks)))
            ]
            watched.jobs = replace(watched.jobs, again=spliced[0], each_again=spliced[1])
            second_count += len(job)
        watched.add(night)
    nights = {told.told for level in watched.levels.values() for told in level.messages if told.told >= HISTORY}
    return 100 * len(nights) / (site.night_count - HISTORY), second_count / site.night_count


def _told_tonight(watched: Watched, node: int) -> bool:
    return any(one.thing == node and one.told == HISTORY for one in watched.levels[Thing.NODE].messages)


def _with_second_jobs(
    values: Values, rows: list[tuple[int, int, int]], node: int, factor: float, random: np.random.Generator
) -> Values:
    ends = np.array(rows, np.int32)
    across = values.node_group[ends[:, 0]] != values.node_group[ends[:, 1]]
    level = np.where(across, 0.97, 1.0) * np.where((ends[:, :2] == node).any(axis=1), factor, 1.0)
    drawn = np.log(level * (1 + 0.03 * random.standard_normal(len(rows))))
    return replace(
        values,
        night=np.append(values.night, np.full(len(rows), HISTORY, np.int32)),
        test=np.append(values.test, np.zeros(len(rows), np.int32)),
        client=np.append(values.client, ends[:, 0]),
        server=np.append(values.server, ends[:, 1]),
        value=np.append(values.value, drawn),
        outcome=np.append(values.outcome, np.full(len(rows), Outcome.MEASURED, np.int8)),
        look=np.append(np.zeros(len(values.night), np.int8), ends[:, 2].astype(np.int8)),
    )


def site_claims(seed: int, nights: int, sites: dict[int, int]) -> list[harness.Claim]:
    """sites: number of nodes -> how many histories of each kind are drawn."""
    found = []
    for nodes, histories in sites.items():
        for tests in (1, 3):
            for noise in (one for one in NOISES if one != "gauss3"):
                shares = {
                    way: float(
                        np.mean(
                            [
                                false_mornings(Site(nodes, HISTORY + nights, noise, way, tests), seed + number)
                                for number in range(histories)
                            ]
                        )
                    )
                    for way in PLANS
                }
                words = ", ".join(f"{way} {share:.2g}" for way, share in shares.items())
                found.append(
                    harness.claim(
                        f"false mornings, {nodes} nodes, {tests} test{'s' if tests > 1 else ''}, {noise}",
                        f"per 100 nights, the worst of: {words}",
                        "count",
                        max(shares.values()),
                        f"<= {ALLOWED.get(noise, 1)}",
                    )
                )
                print(found[-1].claim, found[-1].metric, flush=True)
    return found


def delay_claims(seed: int, histories: int) -> list[harness.Claim]:
    """Delays of each fault, in each way to choose pairs."""
    found = []
    for name, fault, thing, index, median, late in FAULTS:
        for noise in ("gauss1", "gauss2", "gauss3"):
            for way in PLANS if thing is not Thing.ROLE else PLANS[1:]:
                after = 40 if thing is not Thing.ROLE else 80
                site = Site(NODES, HISTORY + after, noise, way, fault=fault)
                drawn = np.array([delay(site, thing, index, seed + number) for number in range(histories)])
                text = f"{name}, {noise}, {way}"
                calendar = f"calendar: median {np.median(drawn[:, 1]):g}, 95 % {np.quantile(drawn[:, 1], 0.95):g}"
                calendar += f"; {drawn[:, 2].mean():.2g} others told"
                for what, share, goal in (("median", 0.5, median), ("95 %", 0.95, late)):
                    taken = float(np.quantile(drawn[:, 0], share, method="inverted_cdf"))
                    found.append(
                        harness.claim(text, f"{what} of the nights until told ({calendar})", "count", taken, f"<= {goal}")
                    )
                print(text, found[-2].ours, found[-1].ours, calendar, flush=True)
    return found


def confirmation_claims(seed: int, histories: int) -> list[harness.Claim]:
    """A node at half speed, measured again."""
    found = []
    for way in ("fixed", "each_run"):
        site = Site(NODES, HISTORY + 1, "gauss3", way, fault=Fault("node", 0.5, HISTORY))
        drawn = [confirmed(site, 3, 0.5, seed + number) for number in range(histories)]
        share = float(np.mean([one[0] for one in drawn]))
        jobs = float(np.mean([one[1] for one in drawn]))
        text = f"a node at half speed is told the same night after confirmation, gauss3, {way}"
        found.append(harness.claim(text, f"share of histories, {jobs:.2g} second jobs each", "share", share, ">= 0.95"))
    for noise in MEMORYLESS:
        nights = max(HISTORY // 2, 5 * histories)
        told, second = false_mornings_confirmed(Site(NODES, HISTORY + nights, noise, "each_run"), seed)
        text = f"false mornings where suspects are measured again, 64 nodes, 1 test, {noise}, each_run"
        found.append(harness.claim(text, f"per 100 nights; {second:.2g} second jobs a night", "count", told, "<= 1"))
        print(text, told, second, flush=True)
    return found


def main() -> int:
    parser = harness.parser("The judge over nights.", seed=2026)
    parser.add_argument("--nights", type=int, default=200, help="nights judged per history (default %(default)s)")
    parser.add_argument("--histories", type=int, default=40, help="histories per fault (default %(default)s)")
    parser.add_argument("--part", choices=("delay", "64", "1000"), help="measure only this; what was measured before stays")
    given = parser.parse_args()
    nights, histories = (given.nights // 10, given.histories // 10) if given.quick else (given.nights, given.histories)
    claims = []
    if given.part in {None, "delay"}:
        claims += delay_claims(given.seed, histories) + confirmation_claims(given.seed, histories)
    if given.part in {None, "64"}:
        claims += site_claims(given.seed, nights, {64: 1})
    if given.part in {None, "1000"} and not given.quick:
        claims += site_claims(given.seed, nights, {1000: 1})
    return harness.finish("judge", claims if given.quick else harness.with_older("judge", claims), quick=given.quick)


if __name__ == "__main__":
    sys.exit(main())
