"""Pairs, plans and waves: all pure, all deterministic."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcq.definition.budget import Budget
from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.model import Campaign, Cluster, Directions, NodeChoice, PairChoice, Pattern
from hpcq.errors import StoreError, UserError
from hpcq.kernels import kernel
from hpcq.planning.candidates import has_features
from hpcq.planning.make_plan import derive_walltime_s, estimate_job_s, make_plan
from hpcq.planning.pairs import circle_round, make_pairs, seeded_order
from hpcq.planning.plan import Plan, PlannedPair
from hpcq.planning.waves import ActiveJob, choose_wave
from hpcq.scheduler.types import NodeCondition, NodeState
from hpcq.sorting import natural

pytestmark = pytest.mark.fast

ALL = PairChoice(Pattern.ALL)


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    path = tmp_path / "c.yaml"
    path.write_text(
        "name: c\nclusters: [alpha]\npairs: all\nrepetitions: 3\nwalltime: 2min\n"
        "tests:\n- kernel: tcp_stream\n- kernel: udp_pingpong\n  matrix: {message_bytes: [16, 1KiB]}\n"
    )
    return read_campaign(path)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    path = tmp_path / "alpha.yaml"
    path.write_text("{name: alpha, scheduler: slurm, partition: main, interface: eth0, work_directory: /scratch}\n")
    return read_cluster(path)


def node(name: str, condition: NodeCondition = NodeCondition.IDLE, native: str | None = None, **more: object) -> NodeState:
    return replace(NodeState(name, condition, native or condition.value, ("main",)), **more)  # type: ignore[arg-type]


def nodes(count: int) -> list[NodeState]:
    return [node(f"n{number}") for number in range(1, count + 1)]


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(1, count + 1)]


def planned(*pairs: str) -> list[PlannedPair]:
    return [PlannedPair(f"j{no:05d}", *pair.split("-")) for no, pair in enumerate(pairs, 1)]


def wave(pending: list[PlannedPair], idle: str, active: list[ActiveJob], **budget: float | None) -> list[str]:
    limits = Budget(**budget)  # type: ignore[arg-type]
    return [f"{pair.client}-{pair.server}" for pair in choose_wave(pending, set(idle.split()), active, limits)]


# -- pairs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", range(2, 14))
def test_rounds_are_disjoint_and_a_lap_meets_everyone_once(count: int) -> None:
    order = names(count)
    lap = count - 1 if count % 2 == 0 else count
    met = [frozenset(pair) for round_no in range(1, lap + 1) for pair in circle_round(order, round_no)]
    assert Counter(met) == Counter(map(frozenset, itertools.combinations(order, 2)))
    for round_no in range(1, lap + 1):
        assert max(Counter(itertools.chain(*circle_round(order, round_no))).values()) == 1
    assert circle_round(order, lap + 1) == circle_round(order, 1)


def test_rounds_cover_each_node_as_often() -> None:
    pairs = make_pairs(PairChoice(Pattern.ROUNDS, 3), names(10), 1)
    assert set(Counter(itertools.chain(*pairs)).values()) == {3}
    assert len(set(map(frozenset, pairs))) == 15
    assert pairs == make_pairs(PairChoice(Pattern.ROUNDS, 3), names(10)[::-1], 1)
    assert pairs != make_pairs(PairChoice(Pattern.ROUNDS, 3), names(10), 2)


def test_rounds_beyond_a_lap_meet_the_other_way_round_and_then_repeat() -> None:
    pairs = make_pairs(PairChoice(Pattern.ROUNDS, 9), names(4), 1)
    first, second, third = pairs[:6], pairs[6:12], pairs[12:]
    assert second == [(server, client) for client, server in first]
    assert third == first


def test_all_pairs_once_in_disjoint_rounds() -> None:
    pairs = make_pairs(ALL, names(7), 3)
    assert Counter(map(frozenset, pairs)) == Counter(map(frozenset, itertools.combinations(names(7), 2)))
    for start in range(0, len(pairs), 3):
        assert len(set(itertools.chain(*pairs[start : start + 3]))) == 6


def test_roles_depend_on_the_two_names_only() -> None:
    few, many = make_pairs(ALL, names(5), 9), make_pairs(ALL, names(40), 9)
    assert set(few) <= set(many)
    clients = Counter(client for client, _ in many)
    assert all(8 < clients[name] < 31 for name in names(40))


def test_both_directions() -> None:
    choice = PairChoice(Pattern.ALL, directions=Directions.BOTH)
    assert set(make_pairs(choice, names(4), 1)) == set(itertools.permutations(names(4), 2))


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
def test_ring_joins_neighbours(count: int) -> None:
    pairs = make_pairs(PairChoice(Pattern.RING), names(count)[::-1], 1)
    order = names(count)
    expected = {frozenset((order[place], order[(place + 1) % count])) for place in range(count)}
    assert Counter(map(frozenset, pairs)) == Counter(expected)
    assert len(set(itertools.chain(*pairs[: count // 2]))) == count // 2 * 2


def test_star_and_list() -> None:
    star = make_pairs(PairChoice(Pattern.STAR, node="n2"), names(5), 1)
    assert sorted(map(sorted, star)) == [["n1", "n2"], ["n2", "n3"], ["n2", "n4"], ["n2", "n5"]]
    assert make_pairs(PairChoice(Pattern.STAR, node="n9"), names(5), 1) == []
    listed = PairChoice(Pattern.LIST, pairs=(("n3", "n1"), ("n9", "n1"), ("n1", "n2")))
    assert make_pairs(listed, names(3), 1) == [("n3", "n1"), ("n1", "n2")]


def test_seeded_order_keeps_the_others_in_place() -> None:
    order = seeded_order(names(30), 5)
    assert [name for name in order if name != "n7"] == seeded_order((name for name in names(30) if name != "n7"), 5)
    assert order != seeded_order(names(30), 6)
    assert sorted(["n10", "n2", "a1", "n2b"], key=natural) == ["a1", "n2", "n2b", "n10"]


def test_scale() -> None:
    started = time.process_time()
    pairs = make_pairs(ALL, names(1000), 1)
    assert len(pairs) == 499_500
    assert len(make_pairs(PairChoice(Pattern.ROUNDS, 10), names(5000), 1)) == 25_000
    assert time.process_time() - started < 30


def test_half_a_million_pairs_take_little_memory() -> None:
    """In a process of its own: the most that a process ever had never falls again."""
    code = (
        "import pathlib, re\nfrom hpcq.definition.model import PairChoice, Pattern\n"
        "from hpcq.planning.pairs import make_pairs\n"
        "def most():\n    return int(re.search(r'VmHWM:\\s+(\\d+)', pathlib.Path('/proc/self/status').read_text())[1])\n"
        "before = most()\n"
        "made = make_pairs(PairChoice(Pattern.ALL), [f'n{i}' for i in range(1000)], 1)\nprint(len(made), most() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, more_kib = map(int, done.stdout.split())
    assert count == 499_500
    assert 1_000 < more_kib < 150_000


# -- plans -----------------------------------------------------------------------------------------------------------


def test_plan_as_the_contract_has_it(campaign: Campaign, cluster: Cluster) -> None:
    states = [*nodes(3), node("n9", NodeCondition.DRAINED)]
    plan = make_plan(campaign, cluster, states, "c-20261121T020304Z-1a2b", 7)
    written = json.loads(plan.to_json())
    assert {key: written[key] for key in ("format", "run_id", "campaign", "cluster", "seed")} == {
        "format": 1, "run_id": "c-20261121T020304Z-1a2b", "campaign": "c", "cluster": "alpha", "seed": 7,
    }  # fmt: skip
    assert written["candidates"] == [{"node": name, "state": "idle"} for name in names(3)]
    assert written["excluded"] == [{"node": "n9", "reason": "state drained"}]
    assert written["tests"][2] == {
        "test_no": 3,
        "kernel": "udp_pingpong",
        "program": "hpcq-net",
        "parameters": {option.name: option.default for option in kernel("udp_pingpong").options} | {"message_bytes": 1024},
        "timeout_s": 30,
        "load": "",
    }  # fmt: skip
    assert [written[key] for key in ("repetition_count", "walltime_s", "attempt_count_max")] == [3, 120, 2]
    assert len(written["pairs"]) == 3
    assert written["goals"] == {
        "pair_count": 3,
        "result_count": 27,
        "node_pair_count_min": 2,
        "node_pair_count_goal": 0,
        "group_pair_count_goal": 0,
    }
    assert written["cost"] == {"job_count": 3, "estimated_job_s": 25.5, "node_seconds": 153.0, "allocations": []}
    assert plan.planned_pairs()[2].job_id == "j00003"
    assert Plan.from_json(plan.to_json()) == plan


def test_plan_is_deterministic(campaign: Campaign, cluster: Cluster) -> None:
    texts = {make_plan(campaign, cluster, order, "r", 7).to_json() for order in (nodes(9), nodes(9)[::-1])}
    assert len(texts) == 1
    assert make_plan(campaign, cluster, nodes(9), "r", 8).to_json() not in texts


def test_no_plan_from_something_else() -> None:
    for text in ("", "{", "[]", "{}", '{"format": 2}', '{"format": 1}', '{"format": 1, "pairs": 7}'):
        with pytest.raises(StoreError, match=r"^here/plan\.json: not a plan of this version"):
            Plan.from_json(text, "here/plan.json")


def test_a_node_of_any_of_several_partitions_can_be_used(campaign: Campaign, cluster: Cluster) -> None:
    states = [
        node("a", partitions=("main",)), node("b", partitions=("debug",)), node("c", partitions=("gpu", "debug")),
        node("d", partitions=("gpu",)),
    ]  # fmt: skip
    plan = make_plan(campaign, replace(cluster, partition="main,debug"), states, "r", 7)
    assert {one.node: one.reason for one in plan.excluded} == {"d": "not in partition main,debug"}


def test_every_excluded_node_has_its_reason(campaign: Campaign, cluster: Cluster) -> None:
    states = [
        *nodes(3),
        node("busy", NodeCondition.BUSY, "mixed"),
        node("down", NodeCondition.DOWN, "down*", reason="Not responding"),
        node("other", partitions=("debug",)),
        node("plain", features=("ib",)),
        node("n4"),
    ]
    choice = NodeChoice(exclude=("n4",))
    plan = make_plan(replace(campaign, nodes=choice), cluster, states, "r", 7)
    assert {one.node: one.reason for one in plan.excluded} == {
        "busy": "state busy (mixed)",
        "down": "state down (down*): Not responding",
        "n4": "excluded by the campaign",
        "other": "not in partition main",
    }
    choice = NodeChoice(include=("n1", "n2", "n8"))
    plan = make_plan(replace(campaign, nodes=choice), cluster, nodes(3), "r", 7)
    assert {one.node: one.reason for one in plan.excluded} == {
        "n3": "not included by the campaign",
        "n8": "not a node of alpha",
    }
    ib = [node(f"n{number}", features=("ib",) if number < 3 else ("eth",)) for number in range(1, 4)]
    plan = make_plan(replace(campaign, nodes=NodeChoice(constraint="ib")), cluster, ib, "r", 7)
    assert [(one.node, one.reason) for one in plan.excluded] == [("n3", "does not have ib")]


def test_partition_of_the_campaign_goes_first(campaign: Campaign, cluster: Cluster) -> None:
    states = [*nodes(3), node("d1", partitions=("debug",)), node("d2", partitions=("debug", "main"))]
    plan = make_plan(replace(campaign, nodes=NodeChoice(partition="debug")), cluster, states, "r", 7)
    assert [one.node for one in plan.candidates] == ["d1", "d2"]


def test_at_most_draws_by_the_seed(campaign: Campaign, cluster: Cluster) -> None:
    few = replace(campaign, nodes=NodeChoice(at_most=4))
    drawn = {tuple(one.node for one in make_plan(few, cluster, nodes(20), "r", seed).candidates) for seed in range(5)}
    assert len(drawn) > 1
    assert {len(one) for one in drawn} == {4}
    plan = make_plan(few, cluster, nodes(20), "r", 1)
    assert {one.reason for one in plan.excluded} == {"at most 4 nodes, others were drawn"}
    star = replace(few, pairs=PairChoice(Pattern.STAR, node="n7"))
    for seed in range(5):
        assert make_plan(star, cluster, nodes(20), "r", seed).goals.pair_count == 3


def test_features() -> None:
    assert has_features({"a", "b"}, "a&b")
    assert has_features({"c"}, "a&b|c")
    assert not has_features({"a"}, "a&b|c")


def test_too_few_nodes_says_why(campaign: Campaign, cluster: Cluster) -> None:
    states = [node("n1"), *(node(f"n{number}", NodeCondition.DOWN, "down*") for number in range(2, 13))]
    states.append(node("n13", NodeCondition.DRAINED))
    with pytest.raises(UserError) as caught:
        make_plan(campaign, cluster, states, "r", 7)
    assert caught.value.message.splitlines() == [
        "alpha: 1 of 13 nodes can be used: at least two are needed",
        "  n2, n3, n4, n5, n6, n7, n8, n9 and 3 more: state down (down*)",
        "  n13: state drained",
    ]
    with pytest.raises(UserError, match=r"^alpha: 0 of 0 nodes can be used: at least two are needed$"):
        make_plan(campaign, cluster, [], "r", 7)


def test_nodes_at_work_are_waited_for_where_there_is_no_other_way(campaign: Campaign, cluster: Cluster) -> None:
    busy = [node("b1", NodeCondition.BUSY), node("b2", NodeCondition.PLANNED)]

    def candidates(states: list[NodeState], **changed: Any) -> list[str]:
        plan = make_plan(replace(campaign, **changed), cluster, states, "r", 7)
        assert not {one.node for one in plan.candidates} & {one.node for one in plan.excluded}
        return [one.node for one in plan.candidates]

    assert candidates([*nodes(2), *busy]) == ["n1", "n2"]
    assert candidates([*nodes(1), *busy]) == ["b1", "b2", "n1"]
    assert candidates(busy) == ["b1", "b2"]
    assert candidates([*nodes(2), *busy], nodes=NodeChoice(state="up")) == ["b1", "b2", "n1", "n2"]
    listed = PairChoice(Pattern.LIST, pairs=(("n1", "b2"),))
    assert candidates([*nodes(2), *busy], pairs=listed) == ["b2", "n1", "n2"]
    assert candidates([*nodes(2), *busy], pairs=PairChoice(Pattern.STAR, node="b1")) == ["b1", "n1", "n2"]


def test_listed_pairs_that_cannot_run_are_kept_with_the_reason(campaign: Campaign, cluster: Cluster) -> None:
    states = [*nodes(2), node("n3", NodeCondition.DRAINED)]
    listed = PairChoice(Pattern.LIST, pairs=(("n1", "n2"), ("n1", "n3"), ("n9", "n3")))
    plan = make_plan(replace(campaign, pairs=listed), cluster, states, "r", 7)
    assert plan.pairs == (("n1", "n2"),)
    assert [(one.client, one.server, one.reason) for one in plan.not_planned] == [
        ("n1", "n3", "n3 state drained"),
        ("n9", "n3", "n9 is not a node of alpha; n3 state drained"),
    ]
    assert Plan.from_json(plan.to_json()) == plan
    with pytest.raises(UserError) as caught:
        make_plan(replace(campaign, pairs=PairChoice(Pattern.STAR, node="n3")), cluster, states, "r", 7)
    assert caught.value.message.splitlines() == [
        "alpha: no pair of the campaign can run",
        "  n3 - n1: n3 state drained",
        "  n3 - n2: n3 state drained",
    ]


def test_what_cannot_be_kept_is_refused(campaign: Campaign, cluster: Cluster) -> None:
    def refused(campaign: Campaign, cluster: Cluster = cluster) -> str:
        with pytest.raises(UserError) as caught:
            make_plan(campaign, cluster, nodes(3), "r", 7)
        return caught.value.message

    mpi = replace(campaign, tests=(replace(campaign.tests[0], kernel="mpi_pingpong", program="hpcq-mpi"),))
    assert refused(mpi) == "alpha: mpi: missing, but c runs mpi_pingpong: the cluster file must name one"
    short = "c on alpha: walltime: 10 s is below the 25.5 s that one job is estimated to take"
    assert refused(replace(campaign, walltime_s=10)) == short
    costly = replace(cluster, budget=Budget(node_seconds_at_most=100))
    assert refused(campaign, costly) == "c on alpha: budget: the plan costs 153 node-seconds: at most 100 are allowed"
    share = replace(campaign, budget=Budget(node_share_ratio=0.5))
    assert refused(share) == "c on alpha: budget: 1 of 3 nodes may be used: a pair needs two"


def test_walltime_is_short_and_leaves_room_for_a_test_that_hangs(campaign: Campaign) -> None:
    assert estimate_job_s(campaign.tests, 1) == 10.5
    assert derive_walltime_s(campaign.tests, 1) == 120
    slow = tuple(replace(test, timeout_s=600) for test in campaign.tests)
    assert derive_walltime_s(slow, 1) == 660


def test_seed_of_a_run(campaign: Campaign) -> None:
    assert campaign.seed_of("one") == campaign.seed_of("two")
    each = replace(campaign, seed=None)
    assert each.seed_of("one") != each.seed_of("two")
    assert each.seed_of("one") == each.seed_of("one")


# -- waves -----------------------------------------------------------------------------------------------------------


def test_disjoint_pairs_first_then_more_on_the_same_nodes() -> None:
    pending = planned("a-b", "a-c", "c-d", "b-d", "a-d", "b-c")
    assert wave(pending, "a b c d", []) == ["a-b", "c-d", "a-c", "b-d", "a-d", "b-c"]
    assert wave(pending, "a b c d", [], jobs_at_most=3) == ["a-b", "c-d", "a-c"]


def test_only_idle_nodes_and_our_own_are_used() -> None:
    pending = planned("a-b", "a-c", "c-d", "e-f")
    assert wave(pending, "a b c", []) == ["a-b", "a-c"]
    assert wave(pending, "a", []) == []
    running = [ActiveJob(("c", "d"), running=True)]
    assert wave(pending, "a b", running) == ["a-b", "a-c", "c-d"]
    queued = [ActiveJob(("c", "d"), running=False)]
    assert wave(pending, "a b", queued) == ["a-b"]


def test_nodes_without_a_job_of_ours_come_first() -> None:
    pending = planned("a-b", "c-d", "a-c")
    assert wave(pending, "c d", [ActiveJob(("a", "b"), running=True)]) == ["c-d", "a-b", "a-c"]


def test_jobs_at_most_counts_what_is_queued_and_running() -> None:
    pending = planned("a-b", "c-d", "a-c")
    active = [ActiveJob(("a", "b"), running=True), ActiveJob(("c", "d"), running=False)]
    assert wave(pending, "c d", active, jobs_at_most=3) == ["a-b"]
    assert wave(pending, "c d", active, jobs_at_most=2) == []
    assert wave(pending, "c d", active, jobs_at_most=1) == []


def test_nodes_at_most_and_share_of_the_idle_nodes() -> None:
    pending = planned("a-b", "c-d", "e-f", "a-c", "b-d")
    assert wave(pending, "a b c d e f", [], nodes_at_most=4) == ["a-b", "c-d", "a-c", "b-d"]
    assert wave(pending, "a b c d e f", [], node_share_ratio=0.5) == ["a-b", "a-c"]
    assert wave(pending, "a b c d e f", [], node_share_ratio=0.1) == []
    taken = [ActiveJob(("c", "d"), running=False)]  # queued, and its nodes were taken by a user since
    assert wave(pending, "a b e f", taken, nodes_at_most=4) == ["a-b"]
    assert wave(pending, "a b e f", taken, nodes_at_most=3) == []
    assert wave(pending, "a b e f", taken, node_share_ratio=0.5) == []
    assert wave(pending, "a b e f g h", taken, node_share_ratio=0.5) == ["a-b"]


def test_a_wave_never_breaks_its_budget() -> None:
    pairs = make_pairs(ALL, names(9), 4)
    pending = [PlannedPair(str(no), *pair) for no, pair in enumerate(pairs)]
    for jobs, limit, share, busy in itertools.product((1, 3, 7, 100), (2, 3, 5, None), (0.3, 0.6, 1.0), (0, 1, 4)):
        active = [ActiveJob(pair, running=no % 2 == 0) for no, pair in enumerate(pairs[:busy])]
        ours = {name for job in active for name in job.nodes}
        idle = set(names(9)) - {name for job in active if job.running for name in job.nodes}
        budget = Budget(jobs, limit, share)
        chosen = choose_wave(pending[busy:], idle, active, budget)
        used = ours | {name for pair in chosen for name in (pair.client, pair.server)}
        assert len(chosen) + len(active) <= max(jobs, len(active))
        assert not chosen or len(used) <= max(budget.node_limit(9), len(ours))
        assert len(set(chosen)) == len(chosen)


def test_waves_bring_the_whole_plan_to_its_end() -> None:
    pending = [PlannedPair(str(no), *pair) for no, pair in enumerate(make_pairs(ALL, names(7), 4))]
    waves = 0
    while pending:
        chosen = choose_wave(pending, names(7), [], Budget(jobs_at_most=3))
        assert len({name for pair in chosen for name in (pair.client, pair.server)}) == 2 * len(chosen)
        pending = [pair for pair in pending if pair not in chosen]
        waves += 1
    assert waves == 7


def test_waves_at_scale() -> None:
    pending = [PlannedPair(str(no), *pair) for no, pair in enumerate(make_pairs(ALL, names(1000), 1))]
    started = time.process_time()
    assert len(choose_wave(pending, names(1000), [], Budget(jobs_at_most=32))) == 32
    assert len(choose_wave(pending, names(1000), [], Budget(jobs_at_most=2000))) == 2000
    assert time.process_time() - started < 30
