"""Pairs by chance, by groups and from a file; coverage as a goal and as a result."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.model import Budget, PairChoice, Pattern
from hpcq.errors import UserError
from hpcq.planning.allocations import choose_allocations
from hpcq.planning.make_plan import make_plan
from hpcq.planning.pairs import make_pairs
from hpcq.planning.plan import Plan, coverage_of
from hpcq.scheduler.types import NodeCondition, NodeState
from hpcq.topology import Topology, read_topology

pytestmark = pytest.mark.fast


def names(count: int) -> list[str]:
    return [f"n{number:02d}" for number in range(1, count + 1)]


@pytest.mark.parametrize(("count", "wanted"), [(2, 1), (3, 2), (5, 2), (6, 3), (9, 8), (40, 3), (41, 5)])
def test_random_pairs_give_each_node_its_number_and_nobody_meets_twice(count: int, wanted: int) -> None:
    for seed in range(8):
        pairs = make_pairs(PairChoice(Pattern.RANDOM, per_node_count=wanted), names(count), seed)
        counts = Counter(node for pair in pairs for node in pair)
        assert min(counts[name] for name in names(count)) == wanted
        assert len({frozenset(pair) for pair in pairs}) == len(pairs)
        assert len(pairs) <= (count * wanted + 1) // 2 + wanted
    assert pairs == make_pairs(PairChoice(Pattern.RANDOM, per_node_count=wanted), names(count), 7)


@pytest.mark.heavy
def test_random_pairs_of_five_thousand_nodes_are_drawn_in_seconds() -> None:
    pairs = make_pairs(PairChoice(Pattern.RANDOM, per_node_count=10), [f"n{number}" for number in range(5000)], 1)
    assert 25_000 <= len(pairs) <= 25_010


def groups_of(sizes: list[int]) -> dict[str, str]:
    return {f"g{group}-{place}": f"leaf{group}" for group, size in enumerate(sizes) for place in range(size)}


def test_within_groups_every_two_of_each_group_meet_and_nobody_else() -> None:
    groups = groups_of([4, 3, 1])
    pairs = make_pairs(PairChoice(Pattern.WITHIN, group="switch"), list(groups), 3, groups)
    assert len(pairs) == 6 + 3
    assert all(groups[client] == groups[server] for client, server in pairs)
    assert len(make_pairs(PairChoice(Pattern.WITHIN, group="switch", round_count=1), list(groups), 3, groups)) == 2 + 1


@pytest.mark.parametrize("each", [1, 2, 5])
def test_across_groups_every_two_groups_meet_so_many_times(each: int) -> None:
    sizes = [random.Random(each).randint(3, 6) for _ in range(7)]
    groups = groups_of(sizes)
    pairs = make_pairs(PairChoice(Pattern.ACROSS, group="switch", per_group_pair_count=each), list(groups), 3, groups)
    met = Counter(frozenset((groups[client], groups[server])) for client, server in pairs)
    assert set(met.values()) == {each}
    assert len(met) == len(list(itertools.combinations(range(7), 2)))
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)


def test_a_topology_file_names_the_lowest_switches() -> None:
    text = "# ours\nSwitchName=s1 Nodes=n[01-02]\nswitchname=s2 nodes=n03 # one\nSwitchName=top Switches=s[1-2]\n"
    assert read_topology(text) == Topology({"n01": "s1", "n02": "s1", "n03": "s2"})


@pytest.mark.promise("Blocks of a topology are groups of nodes.")
def test_blocks_are_groups() -> None:
    text = (
        "BlockName=b1 BlockIndex=0 Nodes=n[01-02] BlockSize=2\nBlockName=b2 BlockIndex=1 Nodes=n[03-04] BlockSize=2\n"
        "AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[01-04] BlockSize=4\n"
    )
    assert read_topology(text) == Topology({"n01": "b1", "n02": "b1", "n03": "b2", "n04": "b2"})


@pytest.mark.parametrize(
    ("text", "spans", "fabrics"),
    [
        ("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n3\n", False, {"n1": "a", "n2": "a", "n3": "b"}),
        ("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n3\n", True, {}),
        ("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n3\nSwitchName=top Switches=a,b\n", False, {}),
        # two spines over one leaf
        (
            "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2\nSwitchName=s Switches=a,b\nSwitchName=t Switches=b",
            False,
            {},
        ),
        # as scontrol shows it: a switch over others lists the nodes below, too
        (
            "SwitchName=a Level=0 Nodes=n1\nSwitchName=c Level=0 Nodes=n3\nSwitchName=s Level=1 Nodes=n[1-2] Switches=a\n",
            False,
            {"n1": "s", "n3": "c"},
        ),
        ("BlockName=b1 Nodes=n1\nBlockName=b2 Nodes=n2\n", False, {}),
    ],
)
def test_fabrics_are_what_no_switch_joins(text: str, spans: bool, fabrics: dict[str, str]) -> None:
    assert read_topology(text, spans=spans).fabrics == fabrics


CAMPAIGN = "name: try\nclusters: [sim]\ntests: [{{kernel: tcp_pingpong}}]\npairs: {pairs}\n"
CLUSTER = "name: sim\nscheduler: slurm\ninterface: eth0\n"


def plan_of(
    folder: Path, pairs: str, count: int = 6, switch_of: int | None = 2, *, features: str = "", fabrics: str = ""
) -> Plan:
    from hpcq.definition.files.cluster import read_cluster

    (folder / "try.yaml").write_text(CAMPAIGN.format(pairs=pairs))
    (folder / "sim.yaml").write_text(CLUSTER)
    nodes = [
        NodeState(
            name,
            NodeCondition.IDLE,
            "idle",
            features=tuple(f"{features}{index // 3}" for _ in [0] if features),
            switch=f"leaf{index // switch_of + 1}" if switch_of else None,
            fabric=fabrics[index] if fabrics else None,
        )
        for index, name in enumerate(names(count))
    ]
    return make_plan(read_campaign(folder / "try.yaml"), read_cluster(folder / "sim.yaml"), nodes, "try-1", 7)


def test_groups_come_from_switches_features_or_a_file(tmp_path: Path) -> None:
    assert len(plan_of(tmp_path, "{within: switch}").pairs) == 3
    assert len(plan_of(tmp_path, "{across: 'rack*'}", features="rack").pairs) == 1
    assert len(plan_of(tmp_path, "{within: rack}", features="rack", switch_of=None).pairs) == 6
    (tmp_path / "site.conf").write_text("SwitchName=a Nodes=n[01-03]\nSwitchName=b Nodes=n[04-06]\n")
    plan = plan_of(tmp_path, "{across: switch, each: 2, topology: site.conf}")
    assert len(plan.pairs) == 2
    assert plan.groups["n04"] == "b"


def test_groups_that_nobody_knows_are_an_error_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="groups by switch: none: needed are 2") as caught:
        plan_of(tmp_path, "{across: switch}", switch_of=None)
    assert "topology" in (caught.value.hint or "")


def test_pairs_of_a_file_keep_the_order_of_their_rounds(tmp_path: Path) -> None:
    (tmp_path / "night.pairs").write_text("2 n03 n01\n\n1 n01 n02  # first\n1 n03 n99\n")
    plan = plan_of(tmp_path, "{file: night.pairs}")
    assert plan.pairs == (("n01", "n02"), ("n03", "n01"))
    assert plan.not_planned[0].reason == "n99 is not a node of sim"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("1 n01\n", "line 1: '1 n01': must be ROUND CLIENT SERVER"),
        ("1 n01 n01\n", "line 1"),
        ("one n01 n02\n", "line 1"),
        ("# nothing\n", "no pairs in it"),
    ],
)
def test_a_bad_pairs_file_is_named_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "night.pairs").write_text(text)
    with pytest.raises(UserError, match=complaint):
        plan_of(tmp_path, "{file: night.pairs}")


@pytest.mark.parametrize("pairs", ["{file: ../x}", "{file: /etc/passwd}", "{within: switch, each: 2}", "{random: 0}", "random"])
def test_what_pairs_cannot_be(tmp_path: Path, pairs: str) -> None:
    with pytest.raises(UserError, match=r"pairs|file|each|random"):
        plan_of(tmp_path, pairs)


def test_coverage_is_a_goal_and_a_result(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "{rounds: 2, coverage: {node: 2, group_pair: 1}}")
    everything = coverage_of(plan)
    assert everything.reached
    assert everything.lines()[0] == "6 pairs of 6 nodes, each node in at least 2 of 2, every two of the groups at least 1 of 1"
    part = coverage_of(plan, [0], dict.fromkeys(range(1, 6), "not idle for 600 s"))
    assert not part.reached
    assert part.nodes_short_count == 6
    assert "not idle for 600 s" in "\n".join(part.lines())


def test_a_node_left_out_is_not_covered_and_says_why(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "{random: 2, coverage: {node: 2}}")
    from dataclasses import replace

    from hpcq.planning.plan import Excluded

    lines = coverage_of(replace(plan, excluded=(Excluded("n99", "state drained: disk"),))).lines()
    assert lines[1] == "not covered: n99: 0 of 2: state drained: disk"


@pytest.mark.promise("Nodes that no switch joins are never put into one job: pairs are planned within each fabric.")
@pytest.mark.parametrize(
    ("pairs", "count"),
    [
        ("all", 4),
        ("{rounds: 1}", 2),
        ("{random: 2}", 4),
        ("ring", 4),
        ("{star: n01}", 2),
        ("{bisection: 1}", 2),
        ("{list: [[n01, n02], [n01, n04]]}", 1),
    ],
)
def test_pairs_stay_within_their_fabric(tmp_path: Path, pairs: str, count: int) -> None:
    """Three nodes in one fabric, two in another, one alone."""
    plan = plan_of(tmp_path, pairs, fabrics="aaabbc")
    assert len(plan.pairs) == count
    assert all(plan.fabrics[client] == plan.fabrics[server] for client, server in plan.pairs)
    assert plan.notes == (
        "no job may have nodes of two of the 3 fabrics a: n[01-03]; b: n[04-05]; c: n06: every job is within one",
    )
    reasons = {(one.client, one.server): one.reason for one in plan.not_planned}
    lost = {"{star: n01}": 3, "{list: [[n01, n02], [n01, n04]]}": 1}.get(pairs, 0)
    assert len(reasons) == lost
    assert reasons.get(("n01", "n04")) == ("one is in a, the other in b: no job may have nodes of both" if lost else None)


def test_one_fabric_is_no_fabric(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "all", fabrics="aaaaaa")
    assert (len(plan.pairs), plan.fabrics, plan.notes) == (15, {}, ())


def test_one_allocation_of_all_nodes_is_one_for_each_fabric(tmp_path: Path) -> None:
    plan = replace(plan_of(tmp_path, "all", fabrics="aaabbb"), allocation="whole")
    pairs, chosen = list(plan.planned_pairs()), []
    while pairs:
        [sharing] = choose_allocations(pairs, names(6), [], Budget(), plan)
        chosen.append({node for pair in sharing for node in pair.nodes})
        pairs = [pair for pair in pairs if pair not in sharing]
    assert sorted(map(sorted, chosen)) == [["n01", "n02", "n03"], ["n04", "n05", "n06"]]
