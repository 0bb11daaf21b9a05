"""Pairs, plans and waves: all pure, all deterministic."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcq.cli.campaigns import print_plan
from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.model import Budget, Campaign, Cluster, NodeChoice, PairChoice, Pattern
from hpcq.errors import StoreError, UserError
from hpcq.kernels import own_kernel
from hpcq.planning.make_plan import derive_walltime_s, estimate_job_s, make_plan
from hpcq.planning.plan import Plan, PlannedPair, has_features
from hpcq.planning.waves import ActiveJob, choose_wave
from hpcq.scheduler.types import NodeCondition, NodeState

pytestmark = pytest.mark.fast

ALL = PairChoice(Pattern.ALL)


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    path = tmp_path / "c.yaml"
    path.write_text(
        "name: c\nclusters: [alpha]\npairs: all\nrepetitions: 3\nwalltime_s: 2min\n"
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


def test_plan_as_the_contract_has_it(campaign: Campaign, cluster: Cluster) -> None:
    states = [*nodes(3), node("n9", NodeCondition.DRAINED)]
    plan = make_plan(campaign, cluster, states, "c-20261121T020304Z-1a2b", 7)
    written = json.loads(plan.to_json())
    assert {key: written[key] for key in ("format", "run", "campaign", "cluster", "seed")} == {
        "format": 1, "run": "c-20261121T020304Z-1a2b", "campaign": "c", "cluster": "alpha", "seed": 7,
    }  # fmt: skip
    assert written["candidates"] == [{"node": name, "state": "idle"} for name in names(3)]
    assert written["excluded"] == [{"node": "n9", "reason": "state drained"}]
    assert written["tests"][2] == {
        "test_no": 3,
        "kernel": "udp_pingpong",
        "program": "hpcq-net",
        "parameters": {option.name: option.default for option in own_kernel("udp_pingpong").options} | {"message_bytes": 1024},
        "timeout_s": 30,
        "load": "",
        "measured_by": 0,
        "launch": "",
        "toolchain": "",
        "on": [],
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
    assert plan.planned_pairs()[2].job == "j00003"
    assert Plan.from_json(plan.to_json()) == plan


def test_plan_is_deterministic(campaign: Campaign, cluster: Cluster) -> None:
    texts = {make_plan(campaign, cluster, order, "r", 7).to_json() for order in (nodes(9), nodes(9)[::-1])}
    assert len(texts) == 1
    assert make_plan(campaign, cluster, nodes(9), "r", 8).to_json() not in texts


@pytest.mark.promise("Rounds that repeat pairs beyond measure are refused with the number that is enough.")
@pytest.mark.heavy
def test_rounds_that_repeat_pairs_beyond_measure_are_refused_with_the_number_that_is_enough(
    campaign: Campaign, cluster: Cluster
) -> None:
    def with_rounds(count: int) -> Campaign:
        return replace(campaign, pairs=PairChoice(Pattern.ROUNDS, round_count=count))

    with pytest.raises(UserError, match="pairs: rounds: 1000000: 2000000 pairs of 4 nodes: a plan holds 100000") as caught:
        make_plan(with_rounds(1_000_000), cluster, nodes(4), "c-1", 7)
    assert str(caught.value.hint).startswith("every two nodes have met after 3 rounds, in both directions after 6;")
    assert make_plan(with_rounds(999), cluster, nodes(600), "c-1", 7).goals.pair_count == 999 * 300, "without repeats"


@pytest.mark.promise("A plan says that it measures all pairs more than once, and how many rounds are enough.")
def test_a_plan_that_repeats_all_pairs_says_so(
    campaign: Campaign, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for count, again in ((6, False), (7, True)):
        rounds = replace(campaign, pairs=PairChoice(Pattern.ROUNDS, round_count=count))
        print_plan(make_plan(rounds, cluster, nodes(4), "c-1", 7), rounds.kernels)
        said = capsys.readouterr().out
        assert ("again" in said) is again
        assert "tcp_stream: 1 parameter set, 3 times each, on pairs" in said
    assert "each of the 12 pairs, by direction, is measured in up to 2 jobs; `rounds: 6` has each in one" in said


def test_no_plan_from_something_else() -> None:
    for text in ("", "{", "[]", "{}", '{"format": 2}', '{"format": 1}', '{"format": 1, "pairs": 7}'):
        with pytest.raises(StoreError, match=r"^here/plan\.json: (not a plan of this version|[a-z ]+: .+: must be )"):
            Plan.from_json(text, "here/plan.json")


@pytest.mark.promise("Nodes of several partitions can be used as one set.")
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
    busy = [node("b1", NodeCondition.BUSY), node("b2", NodeCondition.BUSY)]

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
    planned = node("p1", NodeCondition.PLANNED)
    assert candidates([*nodes(2), *busy, planned]) == ["n1", "n2", "p1"], "the scheduler decides whether a job fits before"


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
    short = "c on alpha: walltime_s: 10 s is below the 25.5 s that one job is estimated to take"
    assert refused(replace(campaign, walltime_s=10)) == short
    costly = replace(cluster, budget=Budget(max_node_seconds=100))
    assert refused(campaign, costly) == "c on alpha: budget: the plan costs 153 node-seconds: at most 100 are allowed"
    share = replace(campaign, budget=Budget(max_node_ratio=0.5))
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
