"""The judge over nights: what was seen to go wrong, states as the history grows, and who is named."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from bench.support.histories import Fault, Site, draw
from hpcq.judge import values as columns
from hpcq.judge.causes import Cause, Judged, Role, State, Thing
from hpcq.judge.confirming import Retest, plan
from hpcq.judge.judging import ENOUGH_NIGHTS, judge, watch
from hpcq.judge.over_time import OverTime
from hpcq.judge.values import NOBODY, Flags, Night, Outcome, Values
from hpcq.kernels import Better

pytestmark = pytest.mark.fast

Levels = np.ndarray[tuple[int, int], np.dtype[np.float64]]


def values_of(pairs: list[tuple[int, int]], levels: Levels, node_count: int) -> Values:
    """One test; levels: shape (nights, pairs), nan: failed; below 0: not measured."""
    night, pair = np.nonzero(~(levels < 0))
    ends = np.array(pairs, np.int32)
    found = levels[night, pair]
    failed = np.isnan(found)
    return Values(
        night.astype(np.int32),
        np.zeros(len(night), np.int32),
        ends[pair, 0],
        ends[pair, 1],
        np.log(np.where(failed, 1.0, found)) + np.where(failed, np.nan, 0.0),
        np.where(failed, Outcome.FAILED, Outcome.MEASURED).astype(np.int8),
        tuple(Night(str(one), 86_400.0 * one) for one in range(len(levels))),
        (columns.Test("tcp_stream", Better.HIGHER),),
        tuple(f"n{one}" for one in range(node_count)),
        np.zeros(node_count, np.int32),
        np.full(node_count, NOBODY, np.int32),
    )


def _rows(values: Values, kept: Flags, nights: int) -> Values:
    names = ("night", "test", "client", "server", "value", "outcome")
    return replace(values, **{name: getattr(values, name)[kept] for name in names}, nights=values.nights[:nights])


def noisy(nights: int, pairs: int, *, level: float = 200e6, scatter: float = 0.01, seed: int = 1) -> Levels:
    random = np.random.default_rng(seed)
    return np.asarray(level * (1 + scatter * random.standard_normal((nights, pairs))))


def told(causes: tuple[Cause, ...]) -> list[tuple[Thing, tuple[str, ...]]]:
    return [(one.thing, one.names) for one in causes if one.state is State.TOLD]


@pytest.mark.heavy
@pytest.mark.parametrize("pair_count", [2, 24])
def test_everything_at_30_percent_is_told_the_same_morning(pair_count: int) -> None:
    levels = noisy(76, pair_count)
    levels[-1] *= 0.3
    said = judge(values_of([(2 * one, 2 * one + 1) for one in range(pair_count)], levels, 2 * pair_count))
    assert told(said.causes) == [(Thing.NIGHT, ())]
    assert said.causes[0].since == 75
    assert said.causes[0].effect.ratio == pytest.approx(0.3, rel=0.05)


@pytest.mark.heavy
def test_a_node_at_half_speed_is_named_though_its_partners_change_every_night() -> None:
    said = judge(draw(Site(64, 60, "gauss2", "each_run", fault=Fault("node", 0.5, 50)), seed=11))
    assert told(said.causes) == [(Thing.NODE, ("n0003",))]
    assert said.causes[0].since == 50
    assert said.causes[0].job_count == 20
    assert said.causes[0].effect.low_ratio < 0.5 < said.causes[0].effect.high_ratio


@pytest.mark.heavy
@pytest.mark.promise("A node that is slow only when it sends, or receives, is told as that, though its other jobs are fine.")
@pytest.mark.parametrize(("kind", "role"), [("sends", Role.CLIENT), ("receives", Role.SERVER)])
@pytest.mark.parametrize(("noise", "seed"), [("gauss1", 1), ("gauss2", 2), ("gauss3", 3)])
def test_a_node_that_is_slow_one_way_is_told_as_that(kind: str, role: Role, noise: str, seed: int) -> None:
    values = draw(Site(64, 120, noise, "each_run", fault=Fault(kind, 0.1, 60)), seed=seed)
    watched = watch(values)
    [(thing, message)] = [(thing, one) for thing, level in watched.levels.items() for one in level.messages if one.told >= 60]
    assert (thing, message.thing, message.ended) == (Thing.ROLE, 3 + 64 * (role is Role.SERVER), None)
    assert message.told <= 68
    [cause] = [one for one in watched.judgement().causes if one.state is State.TOLD]
    assert (cause.thing, cause.names, cause.role) == (Thing.NODE, ("n0003",), role)
    assert cause.reason.startswith(f"slow when it {kind}: ")
    assert cause.effect.ratio == pytest.approx(0.9, abs=0.02)


@pytest.mark.heavy
@pytest.mark.promise("Everything a tenth slower is told by the second morning, also where few nodes are idle and jobs scatter.")
@pytest.mark.parametrize("seed", [9136, 9147, 9152])
def test_everything_a_tenth_slower_is_told_by_the_second_morning_where_few_jobs_show_it(seed: int) -> None:
    watched = watch(draw(Site(64, 64, "gauss3", "idle", fault=Fault("cluster", 0.1, 60)), seed=seed))
    [message] = watched.levels[Thing.NIGHT].messages
    assert message.told <= 61


@pytest.mark.heavy
@pytest.mark.promise("The first bad nights of a node do not become what is usual of it before it is told.")
@pytest.mark.parametrize(("kind", "seed", "nights"), [("sends", 9204, 4), ("receives", 9202, 5)])
def test_bad_nights_of_a_node_that_is_seldom_idle_do_not_become_its_usual_ones(kind: str, seed: int, nights: int) -> None:
    """nights: of those on which it was measured in that role since it is slow."""
    values = draw(Site(64, 140, "gauss3", "idle", fault=Fault(kind, 0.1, 60)), seed=seed)
    [message] = [one for one in watch(values).levels[Thing.ROLE].messages if one.told >= 60]
    assert message.thing == 3 + 64 * (kind == "receives")
    end = values.client if kind == "sends" else values.server
    assert len(np.unique(values.night[(end == 3) & (values.night >= 60) & (values.night <= message.told)])) <= nights


def one_way_site(slow: Flags, rows: Flags) -> Values:
    """64 nodes over 110 nights of which these jobs are left; the `slow` ones lose 15 %."""
    values = draw(Site(64, 110, "gauss1", "each_run"), seed=4)
    columns_of = replace(values, value=values.value + np.where(slow, np.log(0.85), 0.0))
    return _rows(columns_of, rows, 110)


@pytest.mark.heavy
def test_what_was_told_of_a_node_becomes_its_roles_once_it_is_seen_fine_the_other_way() -> None:
    """At first node 3 is measured as client alone: nobody can know more than that it is slow."""
    values = draw(Site(64, 110, "gauss1", "each_run"), seed=4)
    client, server = values.client == 3, values.server == 3
    values = one_way_site(client & (values.night >= 60), ~(server & (values.night >= 60) & (values.night < 75)))
    [early] = judge(values.until(74)).causes
    assert (early.names, early.role, early.state) == (("n0003",), None, State.TOLD)
    [late] = judge(values).causes
    assert (late.names, late.role, late.state) == (("n0003",), Role.CLIENT, State.TOLD)
    assert (late.since, late.told) == (early.since, early.told)


@pytest.mark.heavy
def test_a_node_that_is_slow_in_both_roles_is_slow_and_has_ended_when_it_is_back() -> None:
    values = draw(Site(64, 110, "gauss1", "each_run"), seed=4)
    client, server, night = values.client == 3, values.server == 3, values.night
    hit = (client & (night >= 60) & (night < 100)) | (server & (night >= 75) & (night < 100))
    values = one_way_site(hit, np.ones(len(night), bool))
    for until, role in ((74, Role.CLIENT), (90, None)):
        [cause] = [one for one in judge(values.until(until)).causes if one.state is State.TOLD]
        assert (cause.names, cause.role, cause.told) == (("n0003",), role, 62)
    assert told(judge(values).causes) == []


def test_a_site_of_nodes_that_were_measured_alone_has_no_roles() -> None:
    alone = values_of([(one, NOBODY) for one in range(3)], noisy(12, 3), 3)
    watched = watch(alone)
    assert told(watched.judgement().causes) == []
    assert watched.levels[Thing.ROLE].nights.max() == 0


@pytest.mark.heavy
def test_what_is_suspected_is_as_large_as_it_is_since_it_began() -> None:
    """A doubt that began by chance some nights before does not thin out what happened tonight."""
    values = draw(Site(24, 30, "night", "fixed", fault=Fault("node", 0.3, 29)), seed=403)
    [cause] = [one for one in judge(values).causes if one.thing is Thing.NODE]
    assert (cause.names, cause.state, cause.since) == (("n0003",), State.SUSPECTED, 29)
    assert cause.effect.ratio == pytest.approx(0.7, abs=0.02)


@pytest.mark.promise("A node is not suspected for a week because of one job without a valid result among fine ones.")
@pytest.mark.parametrize("seed", range(4))
def test_one_failed_job_is_forgotten_after_two_fine_nights(seed: int) -> None:
    values = draw(Site(16, 30, "gauss2", "each_run"), seed=seed)
    place = int(np.flatnonzero((values.night == 22) & ((values.client == 5) | (values.server == 5)))[0])
    lost = np.arange(len(values.night)) == place
    outcome, value = np.where(lost, Outcome.FAILED, values.outcome), np.where(lost, np.nan, values.value)
    failed = replace(values, outcome=outcome.astype(np.int8), value=value)
    healthy = {one.names for one in judge(values).causes if one.thing is Thing.NODE}
    assert {one.names for one in judge(failed).causes if one.thing is Thing.NODE} <= healthy


@pytest.mark.heavy
@pytest.mark.promise("A node at half speed one way is told the same night once it is measured again, and as what it is.")
@pytest.mark.parametrize(("kind", "role"), [("sends", Role.CLIENT), ("receives", Role.SERVER)])
def test_a_node_that_is_slow_one_way_is_confirmed_the_same_night(kind: str, role: Role) -> None:
    """The second look comes from both sides, or from the suspected one."""
    values = draw(Site(64, 64, "gauss3", "each_run", fault=Fault(kind, 0.5, 60)), seed=8)
    for night in range(60, 64):
        until = values.until(night)
        retests = plan(watch(until))
        if retests:
            rows = as_planned(until, retests)
            slow = [one for one in rows if (one[0] if role is Role.CLIENT else one[1]) == 3]
            fine = [one for one in rows if one not in slow]
            again = with_retests(with_retests(until, slow, np.log(0.485)), fine, np.log(0.97)) if fine else None
            after = watch(again or with_retests(until, slow, np.log(0.485)))
            assert {one.thing for one in after.again} <= {Thing.NODE, Thing.ROLE}
            [cause] = [one for one in after.judgement().causes if one.names == ("n0003",)]
            assert (cause.role, cause.state in {State.TOLD, State.SUSPECTED}) == (role, True)
            assert cause.state is State.TOLD or fine, "three jobs of one side may leave it suspected; six never do"
            return
    raise AssertionError("never suspected")


@pytest.mark.heavy
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_slow_nodes_of_six_stay_told_though_most_jobs_suffer_from_them(seed: int) -> None:
    """Of 30 pairs 18 are slow: their common loss is the nodes', not the night's."""
    pairs = list(permutations(range(6), 2))
    levels = noisy(120, len(pairs), scatter=0.004, seed=seed)
    for place, pair in enumerate(pairs):
        levels[4:, place] *= 0.7 if pair == (0, 2) else 1.0
        levels[6:, place] *= 0.9 if 1 in pair else 1.0
        levels[10:, place] *= 0.6 if 3 in pair else 1.0
    values = values_of(pairs, levels, 6)
    for night in (14, 18, 22, 28, 60, 119):
        said = told(judge(values.until(night)).causes)
        assert said == [(Thing.PAIR, ("n0", "n2")), (Thing.NODE, ("n1",)), (Thing.NODE, ("n3",))], night


@pytest.mark.heavy
@pytest.mark.promise("Slow nodes stay told however often they are measured with each other.")
def test_slow_nodes_stay_told_though_they_meet_each_other() -> None:
    """A rack of four with a wrong driver among 16: what the other one takes away explains all of such a job."""
    values = draw(Site(16, 90, "gauss2", "each_run"), seed=3)
    rack = np.isin(values.client, range(8, 12)) | np.isin(values.server, range(8, 12))
    slow = rack & (values.night >= 30) & (values.night < 80)
    values = replace(values, value=values.value + np.where(slow, np.log(0.85), 0.0))
    for night, ends in ((79, {None}), (89, {81, 82, 83})):
        messages = watch(values.until(night)).levels[Thing.NODE].messages
        assert sorted(one.thing for one in messages) == [8, 9, 10, 11]
        assert {one.ended for one in messages} <= ends


def test_a_node_a_tenth_below_five_peers_from_the_start_is_told_on_its_eighth_night() -> None:
    pairs = list(permutations(range(6), 2))
    levels = noisy(20, len(pairs))
    levels[:, [place for place, pair in enumerate(pairs) if 2 in pair]] *= 0.9
    (message,) = watch(values_of(pairs, levels, 6)).levels[Thing.NODE].messages
    assert (message.thing, message.from_start, message.told) == (2, True, 7)


def test_two_slow_nodes_that_only_meet_each_other_end_when_they_are_fast_again() -> None:
    pairs = [(0, 1), (2, 3), (3, 4), (4, 5), (5, 2), (0, 6), (7, 1), (6, 7)]
    levels = noisy(60, len(pairs))
    levels[20:40, [0, 5, 6]] *= 0.7
    levels[30:, 5:7] = -1  # from then on these two meet nobody else
    messages = watch(values_of(pairs, levels, 8)).levels[Thing.NODE].messages
    assert [one.thing for one in messages] == [0, 1]
    assert all(one.ended is not None and 40 < one.ended < 50 for one in messages)


def shaped(site: Site, share: Levels, hit: str) -> Values:
    """A drawn site of which node 3, or everything, keeps this share on each night; shape (nights, 1)."""
    values = draw(site, seed=6)
    rows = ((values.client == 3) | (values.server == 3)) if hit == "node" else np.ones(len(values.night), bool)
    return replace(values, value=values.value + np.where(rows, np.log(share[values.night, 0]), 0.0))


@pytest.mark.heavy
@pytest.mark.promise("What gets slower by little every night is told, and stays told until it is back.")
@pytest.mark.parametrize("plan_word", ["fixed", pytest.param("each_run", marks=pytest.mark.long)])
@pytest.mark.parametrize(("hit", "thing", "names"), [("all", Thing.NIGHT, ()), ("node", Thing.NODE, ("n0003",))])
def test_a_slow_decline_is_told_though_no_night_stands_out(
    plan_word: str, hit: str, thing: Thing, names: tuple[str, ...]
) -> None:
    """30 % over 150 nights; then it is repaired."""
    nights = np.arange(230)[:, None]
    share = np.where(nights < 210, 1 - 0.3 * np.clip((nights - 30) / 150, 0, 1), 1.0)
    values = shaped(Site(32, 230, "gauss2", plan_word), share, hit)
    for night in (100, 140, 200):
        said = judge(values.until(night))
        assert (thing, names) in told(said.causes), night
        (cause,) = [one for one in said.causes if (one.thing, one.names) == (thing, names)]
        assert cause.since >= 30
        assert cause.effect.ratio < 0.95
    assert told(judge(values).causes) == []


@pytest.mark.heavy
def test_things_with_two_speeds_do_not_decline_because_they_met_the_lower_one_more_often() -> None:
    random = np.random.default_rng(2)
    level, unit = OverTime(64, 1, false_alarms=0.004), np.full((64, 1), 0.005)
    for night in range(200):
        level.look(night, np.where(random.random((64, 1)) < 0.35, -0.1, 0.0) + random.normal(0, 0.005, (64, 1)), unit)
    assert [one for one in level.messages if one.drifted] == []


@pytest.mark.heavy
@pytest.mark.promise("A node with two speeds is not told slow since it was new because it met the lower one first.")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_things_with_two_speeds_were_not_slow_since_they_were_new(seed: int) -> None:
    watched = watch(draw(Site(64, 200, "modes_iid", "idle"), seed=seed))
    assert [one for level in watched.levels.values() for one in level.messages if one.from_start and one.told >= 60] == []


@pytest.mark.heavy
def test_what_fell_again_after_a_slow_decline_was_repaired_is_told_as_soon_as_any_other() -> None:
    """What was learned on the way down is no level."""
    nights = np.arange(400)[:, None]
    decline = 1 - 0.25 * np.clip((nights - 30) / 250, 0, 1)
    share = np.where(nights < 310, decline, np.where(nights < 330, 1.0, 0.9))
    messages = watch(shaped(Site(32, 400, "gauss2", "fixed"), share, "all")).levels[Thing.NIGHT].messages
    assert [one.drifted for one in messages] == [True, False]
    assert messages[1].told <= 333


@pytest.mark.heavy
def test_a_suspect_that_was_away_for_weeks_is_told_by_what_was_seen_of_it() -> None:
    """A drained node keeps its doubt. Its last nights are older than those that are looked at one by one."""
    random = np.random.default_rng(1)
    level, unit = OverTime(16, 1, false_alarms=0.004), np.full((16, 1), 0.02)
    for night in range(101):
        score = random.normal(0, 0.02, (16, 1))
        score[0] = -0.5 if 40 <= night < 44 else np.nan if night >= 44 else score[0]
        level.look(night, score, unit, np.full(16, night >= 100))
    [told_of] = level.messages
    assert (told_of.thing, told_of.since, told_of.told) == (0, 40, 100)
    assert told_of.effect[0] == pytest.approx(-0.5, abs=0.02)


@pytest.mark.heavy
@pytest.mark.promise("A node that is slow every third night is told, and is not called fine on the nights between.")
@pytest.mark.parametrize("node_count", [16, 64])
@pytest.mark.parametrize("plan_word", ["fixed", "each_run"])
def test_a_node_that_comes_and_goes_stays_told(plan_word: str, node_count: int) -> None:
    nights = np.arange(120)[:, None]
    values = shaped(Site(node_count, 120, "gauss2", plan_word), np.where((nights >= 60) & (nights % 3 == 0), 0.6, 1.0), "node")
    watched = watch(values)
    (*_, newest) = [one for one in watched.levels[Thing.NODE].messages if one.thing == 3]
    assert newest.told <= 80
    assert newest.ended is None
    (cause,) = [one for one in watched.judgement().causes if one.state is State.TOLD]
    assert cause.names == ("n0003",)
    assert "it comes and goes" in cause.reason


@pytest.mark.heavy
@pytest.mark.promise("A node that was slow from its first night on is told as that, also where nobody knows the hardware.")
def test_a_node_that_never_was_as_good_as_its_peers_is_told() -> None:
    values = shaped(Site(16, 30, "gauss2", "each_run"), np.full((30, 1), 0.5), "node")
    for kind in (values.node_class, np.full_like(values.node_class, NOBODY)):
        (cause,) = judge(replace(values, node_class=kind)).causes
        assert (cause.state, cause.names) == (State.TOLD, ("n0003",))
        assert "since it was first measured" in cause.reason
        assert cause.effect.ratio == pytest.approx(0.5, abs=0.05)


@pytest.mark.heavy
@pytest.mark.promise("A node that fails after one or two good nights never passes: these slow nights are not its level.")
@pytest.mark.parametrize("node_count", [6, 24])
@pytest.mark.parametrize("good", [1, 2, 3])
@pytest.mark.parametrize("plan_name", ["fixed", "each_run"])
def test_a_node_that_fails_after_a_few_good_nights_is_told_as_a_whole(node_count: int, good: int, plan_name: str) -> None:
    """Suspected once any silence would be called fine, then told, and neither of its roles alone."""
    for night in (ENOUGH_NIGHTS, good + 5, good + 8, 14):
        site = Site(node_count, night, "gauss2", plan_name, fault=Fault("node", 0.5, good))
        said = judge(draw(site, seed=good)).causes
        assert set(told(said)) <= {(Thing.NODE, ("n0003",))}, night
        causes = [one for one in said if one.thing is Thing.NODE and one.names == ("n0003",)]
        assert [one.role for one in causes] == [None], night
        assert night < good + 8 or causes[0].state is State.TOLD, night


@pytest.mark.heavy
@pytest.mark.promise("A node that brings nothing in one test, and is as before in the others, is not said to be slow in all.")
def test_what_only_fails_is_told_apart_from_what_is_slow() -> None:
    values = draw(Site(16, 40, "gauss2", "fixed", test_count=3), seed=4)
    mine = ((values.client == 3) | (values.server == 3)) & (values.test == 0) & np.isin(values.night, (37, 39))
    lost = np.where(mine, np.nan, values.value), np.where(mine, Outcome.FAILED, values.outcome).astype(np.int8)
    (cause,) = judge(replace(values, value=lost[0], outcome=lost[1])).causes
    assert (cause.state, cause.names, cause.tests, cause.effect.ratio) == (State.SUSPECTED, ("n0003",), ("test0",), 0.0)
    assert cause.reason == "no valid result in one of its tests on 2 of 3 nights; what came through is as before"


@pytest.mark.heavy
@pytest.mark.promise("What everything or an uplink loses after one or two good nights is told of it, and of no node behind it.")
@pytest.mark.parametrize("good", [1, 2, 3])
@pytest.mark.parametrize(
    ("node_count", "fault", "about"),
    [(6, "cluster", (Thing.NIGHT, ())), (24, "cluster", (Thing.NIGHT, ())), (64, "leaf", (Thing.GROUP, ("leaf2",)))],
)
def test_what_fails_as_a_whole_after_a_few_good_nights_is_told(
    node_count: int, fault: str, about: tuple[Thing, tuple[str, ...]], good: int
) -> None:
    for night in (ENOUGH_NIGHTS, 9, 14, 25):
        site = Site(node_count, night, "gauss2", "each_run", fault=Fault(fault, 0.5, good, index=2))
        said = judge(draw(site, seed=good)).causes
        assert about in [(one.thing, one.names) for one in said], night
        assert night < good + 8 or told(said) == [about], night


@pytest.mark.heavy
@pytest.mark.promise("A node slow since it was new is told once its silence would be called fine, also on 4 nodes.")
@pytest.mark.parametrize("node_count", [4, 6, 12])
@pytest.mark.parametrize("first", [0, 20])
@pytest.mark.parametrize("plan_name", ["fixed", "each_run"])
def test_a_node_that_was_slow_since_it_was_new_never_passes(node_count: int, first: int, plan_name: str) -> None:
    """It is the only thing that is ever told, and its effect is right though it has a hand in half of the jobs."""
    drawn = draw(Site(node_count, first + 12, "gauss2", plan_name, fault=Fault("node", 0.5, 0)), seed=1)
    absent = ((drawn.client == 3) | (drawn.server == 3)) & (drawn.night < first)
    young = watch(_rows(drawn, ~absent & (drawn.night < first + 3), first + 3))
    assert [one.judged for one in young.judgement().coverage if one.names == ("n0003",)] == [Judged.TOO_FEW_JOBS]
    watched = watch(_rows(drawn, ~absent, first + 12))
    told_all = [(thing, one.thing, one.told) for thing, level in watched.levels.items() for one in level.messages]
    assert told_all == [(Thing.NODE, 3, first + 3)]
    (cause,) = (one for one in watched.judgement().causes if one.state is State.TOLD)
    assert cause.effect.ratio == pytest.approx(0.5, abs=0.08)  # of 4 nodes, half of all values are slow


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(5))
def test_what_is_told_begins_where_it_began_and_is_as_large_as_it_is(seed: int) -> None:
    """A sum that stood above zero by chance before does not make a fault of three nights one of eight."""
    said = judge(draw(Site(16, 60, "gauss3", "each_run", fault=Fault("node", 0.25, 57)), seed=seed))
    (cause,) = [one for one in said.causes if one.state is State.TOLD]
    assert (cause.names, cause.since) == (("n0003",), 57)
    assert cause.effect.ratio == pytest.approx(0.75, abs=0.04)


@pytest.mark.heavy
def test_what_was_told_stays_told_however_long_the_history_grows() -> None:
    """n1 > n3 falls by 30 % after 4 nights and stays; the other direction is fine."""
    pairs = [(a, b) for a, b in permutations(range(4), 2)]
    levels = noisy(400, len(pairs), seed=5)
    levels[4:, pairs.index((1, 3))] *= 0.7
    values = values_of(pairs, levels, 4)
    for nights in (14, 20, 28, 60, 150, 400):
        said = judge(values.until(nights - 1))
        assert told(said.causes) == [(Thing.PAIR, ("n1", "n3"))], nights
        assert said.causes[0].effect.ratio == pytest.approx(0.7, abs=0.02)


@pytest.mark.heavy
@pytest.mark.parametrize("back", [70, 90])
def test_what_came_back_has_ended(back: int) -> None:
    levels = noisy(110, 16, seed=back)
    pairs = [(one, (one + 1) % 16) for one in range(16)]
    slow = [one for one, pair in enumerate(pairs) if 5 in pair]
    levels[60:back, slow] *= 0.8
    values = values_of(pairs, levels, 16)
    assert told(judge(values.until(back - 1)).causes) == [(Thing.NODE, ("n5",))]
    (cause,) = judge(values.until(back + 5)).causes
    assert cause.state is State.ENDED
    assert cause.ended is not None
    assert back <= cause.ended <= back + 3
    assert judge(values, first=back + 10).causes == ()


@pytest.mark.heavy
def test_a_slow_ramp_of_a_node_is_told() -> None:
    levels = noisy(120, 32, seed=3)
    pairs = [(one, (one + 1) % 32) for one in range(32)]
    levels[:, [4, 5]] *= np.linspace(1, 0.64, 120)[:, None]
    assert told(judge(values_of(pairs, levels, 32)).causes) == [(Thing.NODE, ("n5",))]


@pytest.mark.heavy
def test_a_node_that_fails_with_everybody_is_told_with_a_ratio_of_nothing() -> None:
    levels = noisy(40, 32, seed=4)
    levels[36:, [4, 5]] = np.nan
    (cause,) = judge(values_of([(one, (one + 1) % 32) for one in range(32)], levels, 32)).causes
    assert (cause.thing, cause.names, cause.state) == (Thing.NODE, ("n5",), State.TOLD)
    assert cause.effect.ratio == 0.0
    assert "no valid result" in cause.reason


@pytest.mark.heavy
@pytest.mark.parametrize("plan_name", ["fixed", "each_run"])
def test_an_uplink_is_named_as_the_group_and_nobody_behind_it(plan_name: str) -> None:
    site = Site(64, 70, "gauss3", plan_name, fault=Fault("leaf", 0.1, 62, index=2))
    assert told(judge(draw(site, seed=21)).causes) == [(Thing.GROUP, ("leaf2",))]


@pytest.mark.heavy
@pytest.mark.promise("A slow uplink is named on nights on which most jobs happen to cross it; the cluster is not, nor others.")
@pytest.mark.parametrize("seed", [2026, 2028, 2031, 2034])
def test_an_uplink_that_most_jobs_cross_is_not_taken_for_the_cluster(seed: int) -> None:
    watched = watch(draw(Site(64, 100, "gauss1", "idle", fault=Fault("leaf", 0.1, 60, 2)), seed=seed))
    messages = [(thing, one) for thing, level in watched.levels.items() for one in level.messages if one.told >= 60]
    assert [(thing, one.thing, one.ended) for thing, one in messages] == [(Thing.GROUP, 2, None)]
    assert messages[0][1].told <= 62


@pytest.mark.heavy
def test_what_is_said_of_a_night_is_what_was_said_on_it() -> None:
    values = draw(Site(32, 60, "heavy", "fixed", 2, Fault("node", 0.3, 40)), seed=2)
    whole = watch(values)
    for night in (41, 45, 52):
        then = watch(values.until(night))
        for thing, level in then.levels.items():
            known = [(one.thing, one.since, one.told) for one in whole.levels[thing].messages if one.told <= night]
            assert [(one.thing, one.since, one.told) for one in level.messages] == known


@pytest.mark.heavy
def test_the_order_of_rows_changes_nothing() -> None:
    values = draw(Site(32, 50, "gauss3", "idle", 3, Fault("node", 0.3, 40)), seed=8)
    order = np.random.default_rng(0).permutation(len(values.night))
    shuffled = {name: getattr(values, name)[order] for name in ("night", "test", "client", "server", "value", "outcome")}
    assert judge(replace(values, **shuffled)) == judge(values)


@pytest.mark.heavy
@pytest.mark.parametrize("noise", ["gauss2", "heavy", "weekday", "temperature", "node_night", "ar1"])
@pytest.mark.parametrize(
    "plan_name", [pytest.param("fixed", marks=pytest.mark.long), "each_run", pytest.param("idle", marks=pytest.mark.long)]
)
def test_nothing_is_told_where_nothing_happens(noise: str, plan_name: str) -> None:
    watched = watch(draw(Site(48, 80, noise, plan_name), seed=31))
    assert [(thing, one.thing, one.told) for thing, level in watched.levels.items() for one in level.messages] == []


def test_a_node_that_was_never_as_good_as_its_peers_is_told() -> None:
    levels = noisy(12, 32, seed=6)
    levels[:, [4, 5]] *= 0.5
    values = values_of([(one, (one + 1) % 32) for one in range(32)], levels, 32)
    (cause,) = judge(values).causes
    assert (cause.thing, cause.names, cause.state, cause.since) == (Thing.NODE, ("n5",), State.TOLD, 0)
    assert "than its peers since it was first measured" in cause.reason


@pytest.mark.heavy
def test_an_older_generation_is_no_fault() -> None:
    """Four of 16 nodes at 0.7, whether or not their class is known."""
    levels = noisy(30, 32, seed=7)
    pairs = [(one, (one + step) % 16) for one in range(16) for step in (1, 5)]
    levels[:, [one for one, pair in enumerate(pairs) if min(pair) < 4]] *= 0.7
    values = values_of(pairs, levels, 16)
    assert told(judge(values).causes) == []
    kinds = np.array([1] * 4 + [0] * 12, np.int32)
    assert told(judge(replace(values, node_class=kinds, classes=("new", "old"))).causes) == []


@pytest.mark.heavy
@pytest.mark.promise("Where all nodes of one kind of hardware got slower, the class is told, not the cluster and no node.")
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("whoever the other end is", [(Thing.CLASS, ("old",))]),
        ("among themselves", [(Thing.WITHIN, ("old",))]),
        ("everybody", [(Thing.NIGHT, ())]),
    ],
)
def test_a_class_that_got_slower_is_told_as_that(fault: str, expected: list[tuple[Thing, tuple[str, ...]]], seed: int) -> None:
    """Each night other pairs of 30 nodes, ten of an older kind that is slower anyway; most jobs meet one of these."""
    values = draw(Site(30, 60, "gauss2", "each_run"), seed=seed)
    old = np.arange(30) < 10
    meets = np.where(old[values.client] & old[values.server], 2, (old[values.client] | old[values.server]).astype(int))
    hit = {"whoever the other end is": meets > 0, "among themselves": meets == 2, "everybody": meets >= 0}[fault]
    changed = values.value + np.log(0.7) * (meets > 0) + np.log(0.8) * (hit & (values.night >= 48))
    found = judge(replace(values, value=changed, node_class=old.astype(np.int32), classes=("new", "old")))
    assert told(found.causes) == expected


@pytest.mark.heavy
@pytest.mark.promise("Where the nodes of a rack are slow with each other, too, they are told as a group, and not its uplink.")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("whole", [True, False])
def test_a_rack_of_slow_nodes_is_no_slow_uplink(whole: bool, seed: int) -> None:
    """Four leaves of 16 nodes, each night other pairs: a few of them inside the leaf."""
    values = draw(Site(64, 70, "gauss2", "each_run", fault=None if whole else Fault("leaf", 0.2, 60, 2)), seed=seed)
    met = (values.node_group[values.client] == 2) | (values.node_group[values.server] == 2)
    if whole:
        values = replace(values, value=values.value + np.log(0.8) * (met & (values.night >= 60)))
    (cause,) = [one for one in judge(values).causes if one.state is State.TOLD]
    assert (cause.thing, cause.names, cause.whole) == (Thing.GROUP, ("leaf2",), whole)
    assert ("also those that stay inside the group" in cause.reason) == whole
    assert [one for one in judge(values).causes if whole and one.state is State.SUSPECTED] == []


@pytest.mark.heavy
def test_a_slow_node_of_no_group_is_no_part_of_a_slow_rack() -> None:
    values = draw(Site(64, 70, "gauss2", "each_run"), seed=1)
    groups = np.where(np.arange(64) == 0, NOBODY, values.node_group).astype(np.int32)
    slow = (groups == groups.max()) | (np.arange(64) == 0)
    loss = np.log(0.8) * ((slow[values.client] | slow[values.server]) & (values.night >= 60))
    found = judge(replace(values, value=values.value + loss, node_group=groups))
    assert told(found.causes) == [(Thing.GROUP, ("leaf3",)), (Thing.NODE, ("n0000",))]


@pytest.mark.promise("What is told of a link leaves no node suspected whose only jobs at that end are the link's.")
def test_a_slow_link_leaves_its_ends_unsuspected_where_they_have_no_other_jobs() -> None:
    """Each node has one partner as client and one as server."""
    levels = noisy(30, 16, seed=8)
    levels[22:, 3] *= 0.7
    found = judge(values_of([(one, (one + 1) % 16) for one in range(16)], levels, 16))
    assert [(one.thing, one.names, one.state) for one in found.causes] == [(Thing.LINK, ("n3", "n4"), State.TOLD)]


@pytest.mark.parametrize("seed", range(4))
def test_a_node_that_fails_now_and_then_with_both_of_its_partners_is_told(seed: int) -> None:
    """Most of its jobs since night 20, with each of two partners; but never all of one night's."""
    levels = noisy(30, 16, seed=seed)
    for night in range(20, 30):
        levels[night, [2, 3][(night + seed) % 2]] = np.nan
    found = judge(values_of([(one, (one + 1) % 16) for one in range(16)], levels, 16))
    assert told(found.causes) == [(Thing.NODE, ("n3",))]


def test_a_link_that_fails_beside_single_jobs_of_its_ends_is_no_node() -> None:
    levels = noisy(30, 16, seed=3)
    levels[20:, 3] = np.nan
    levels[24, 2] = levels[26, 4] = np.nan
    found = judge(values_of([(one, (one + 1) % 16) for one in range(16)], levels, 16))
    assert told(found.causes) == [(Thing.LINK, ("n3", "n4"))]


def test_a_node_that_is_measured_alone_met_nobody() -> None:
    levels = noisy(30, 8, seed=9)
    levels[22:, 3] *= 0.7
    (cause,) = judge(values_of([(one, NOBODY) for one in range(8)], levels, 8)).causes
    assert (cause.names, cause.state) == (("n3",), State.TOLD)
    assert cause.reason.endswith(" % worse than before, measured alone, in 8 jobs on 8 nights")


def test_silence_has_its_own_word() -> None:
    levels = noisy(4, 4)
    levels[:, 3] = -1
    levels[:3, 2] = -1
    said = judge(values_of([(0, 1), (2, 3), (4, 5), (6, 7)], levels, 8))
    words = {one.names: (one.judged, one.job_count) for one in said.coverage if one.thing is Thing.NODE}
    assert words[("n0",)] == (Judged.JUDGED, 4)
    assert words[("n4",)] == (Judged.TOO_FEW_JOBS, 1)
    assert words[("n6",)] == (Judged.NOT_MEASURED, 0)


@pytest.mark.heavy
def test_a_half_dead_node_is_told_the_same_night_after_confirmation() -> None:
    """Its suspects are measured again with good partners; the good ones stay unaccused."""
    values = draw(Site(64, 61, "gauss3", "each_run", fault=Fault("node", 0.5, 60)), seed=41)
    before = watch(values)
    assert told(before.judgement().causes) == []
    retests = plan(before)
    assert [(one.client == "n0003", one.server == "n0003") for one in retests] == [(True, False), (False, True)]
    values = with_retests(values, as_planned(values, retests), np.log(0.485))
    after = watch(values)
    (cause,) = after.judgement().causes
    assert (cause.thing, cause.names, cause.state, cause.told) == (Thing.NODE, ("n0003",), State.TOLD, 60)
    assert "confirmed the same night" in cause.reason
    [again] = [one for one in after.again if one.thing is Thing.NODE]
    assert (again.slow_jobs, again.job_count, again.confirmed) == (6, 6, True)


@pytest.mark.heavy
def test_a_suspect_that_is_fine_again_is_not_told() -> None:
    values = draw(Site(64, 61, "gauss3", "each_run", fault=Fault("node", 0.5, 60)), seed=44)
    retests = plan(watch(values))
    values = with_retests(values, as_planned(values, retests), np.log(0.97))
    after = watch(values)
    assert told(after.judgement().causes) == []
    assert after.again[0].confirmed is False
    assert (after.again[0].slow_jobs, after.again[0].job_count) == (0, 6)
    assert after.suspects[Thing.NODE] == [], "cleared"


def slow_tonight(values: Values, rows: Flags, level: float) -> Values:
    """The same with these jobs of the last night at this logarithm."""
    hit = rows & (values.night == len(values.nights) - 1)
    return replace(values, value=np.where(hit, level, values.value))


@pytest.mark.heavy
@pytest.mark.promise("A link, and the uplink of a group, that slow down are told the same night once they are measured again.")
@pytest.mark.parametrize(("thing", "node_count"), [(Thing.LINK, 32), (Thing.BETWEEN, 64), (Thing.GROUP, 64)])
def test_links_and_groups_are_confirmed_the_same_night_too(thing: Thing, node_count: int) -> None:
    values = draw(Site(node_count, 30, "gauss3", "fixed"), seed=41)
    sides = np.sort(values.node_group[np.stack([values.client, values.server])], axis=0)
    crosses = (sides[0] != sides[1]) & ((sides == 1).any(axis=0) if thing is Thing.GROUP else (sides == [[0], [1]]).all(axis=0))
    first = np.flatnonzero(values.night == len(values.nights) - 1)[0]
    of_pair = (values.client == values.client[first]) & (values.server == values.server[first])
    level = float(np.median(values.value)) + np.log({Thing.LINK: 0.5, Thing.BETWEEN: 0.7, Thing.GROUP: 0.88}[thing])
    values = slow_tonight(values, of_pair if thing is Thing.LINK else crosses, level)
    before = watch(values)
    assert told(before.judgement().causes) == []
    retests = [one for one in plan(before) if one.thing is thing]
    assert sum(one.job_count for one in retests) == 6
    assert plan(before, 0) == ()
    ends = [(values.nodes.index(one.client), values.nodes.index(one.server), one.job_count) for one in retests]
    after = watch(with_retests(values, ends, level))
    [cause] = [one for one in after.judgement().causes if one.state is State.TOLD]
    assert cause.thing in {thing, Thing.PAIR}
    assert "confirmed the same night" in cause.reason
    assert [(one.thing, one.slow_jobs, one.job_count, one.confirmed) for one in after.again] == [(thing, 6, 6, True)]
    fine = watch(with_retests(values, ends, float(np.median(values.value))))
    assert told(fine.judgement().causes) == []
    assert fine.suspects[thing] == [], "cleared"


def as_planned(values: Values, retests: tuple[Retest, ...]) -> list[tuple[int, int, int]]:
    return [(values.nodes.index(one.client), values.nodes.index(one.server), one.job_count) for one in retests]


def with_retests(values: Values, retests: list[tuple[int, int, int]], level: float) -> Values:
    """The same with second measurements of the last night, each at this logarithm."""
    rows = [(client, server, number) for client, server, count in retests for number in range(1, count + 1)]
    ends = np.array(rows, np.int32)
    count = len(rows)
    scatter = 0.01 * np.random.default_rng(1).standard_normal(count)
    return replace(
        values,
        night=np.append(values.night, np.full(count, len(values.nights) - 1, np.int32)),
        test=np.append(values.test, np.zeros(count, np.int32)),
        client=np.append(values.client, ends[:, 0]),
        server=np.append(values.server, ends[:, 1]),
        value=np.append(values.value, level + scatter),
        outcome=np.append(values.outcome, np.full(count, Outcome.MEASURED, np.int8)),
        look=np.append(np.zeros(len(values.night), np.int8), ends[:, 2].astype(np.int8)),
    )
