"""Links: what a campaign may say, what is planned, and what the journal means."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.model import Budget
from hpcq.errors import UserError
from hpcq.planning import links
from hpcq.planning.allocations import Basis
from hpcq.runner.link.side import LinkState
from hpcq.runner.workflow import WorkflowRun, groups
from hpcq.scheduler.slurm import Slurm
from hpcq.scheduler.types import NodeCondition, NodeState, SchedulerSettings
from hpcq.transport import Completed, Here
from tests.links.link_campaigns import TRIP, campaign_of, plans, text

pytestmark = pytest.mark.fast


# -- the campaign file -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "complaint"),
    [
        ("{from: east, to: moon}", "try.yaml:4: to: 'moon' is not one of the campaign's clusters: east, west"),
        ("{from: east, to: east}", "try.yaml:4: to: 'east' is on both sides: a link has two clusters"),
        ("{from: east}", "try.yaml:4: to: missing: this key is required"),
        ("{from: east, to: west, listen: both}", "try.yaml:4: listen: 'both': must be 'from', 'to' or 'either'"),
        ("{from: east, to: west, peer_wait_s: 0}", "try.yaml:4: peer_wait_s: 0 is below the minimum 1"),
        ("{from: east, to: west, pairs: 2, list: [[n1, n1]]}", "try.yaml:4: pairs: list is given too: give one of them"),
        ("{from: east, to: west, list: [[n1]]}", "try.yaml:4: list: a list: must be [node of from, node of to]"),
        ("{from: east, to: west, way: 1}", "try.yaml:4: way: not a key here"),
        (
            "{from: east, to: west}\n  - {from: west, to: east}",
            "try.yaml:5: links: east and west stand in a link already: raise pairs instead",
        ),
    ],
)
def test_refused_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str, complaint: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        campaign_of(Path(), link)
    assert complaint in caught.value.message


def test_a_campaign_of_mpi_alone_has_nothing_for_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        campaign_of(Path(), tests=("{kernel: mpi_pingpong}",))
    assert "all tests are MPI, which cannot run over a link" in caught.value.message
    assert "does not span two batch systems" in str(caught.value.hint)


def test_mpi_without_pairs_of_the_clusters_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        campaign_of(Path(), "{from: alpha, to: beta, compare: false}", tests=(TRIP, "{kernel: mpi_pingpong}"))
    assert "MPI tests run within the clusters, where this campaign has no pairs" in caught.value.message


def test_pairs_may_only_be_left_out_where_links_say_them(tmp_path: Path) -> None:
    path = tmp_path / "try.yaml"
    path.write_text(text().replace("[east, west]", "[east, west, far]"))
    with pytest.raises(UserError, match="'far' is in no link, so its pairs must be said"):
        read_campaign(path)
    assert campaign_of(tmp_path).pairs_of_links
    assert not campaign_of(tmp_path, more="pairs: all").pairs_of_links


DIFFER = "interface: ib0\ninterfaces: {gpu: ib1}\n"

# -- the plan ----------------------------------------------------------------------------------------------------------


def test_pairs_cross_the_link_and_are_compared_within(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path)
    both = plans(tmp_path, campaign)
    plan = links.plan_link(campaign, campaign.links[0], both).plan
    assert plan.cluster == "east+west"
    assert [[links.split(node)[0] for node in pair] for pair in plan.pairs] == [["east", "west"]] * 2
    for cluster, made in zip(("east", "west"), both, strict=True):
        across = {links.split(node)[1] for pair in plan.pairs for node in pair if node.startswith(cluster)}
        assert across == {node for pair in made.pairs for node in pair} == {one.node for one in made.candidates}
    assert plan.walltime_s > both[0].walltime_s
    assert links.LinkPlan.from_json(links.plan_link(campaign, campaign.links[0], both).to_json()).plan == plan


def test_tests_with_a_direction_run_both_ways(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path)
    plan = links.plan_link(campaign, campaign.links[0], plans(tmp_path, campaign)).plan
    assert [(test.kernel, test.parameters.get("direction")) for test in plan.tests] == [
        ("tcp_stream", "client_to_server"),
        ("tcp_stream", "server_to_client"),
        ("tcp_pingpong", None),
    ]
    one_way = campaign_of(tmp_path, "{from: east, to: west, directions: one}")
    assert len(links.plan_link(one_way, one_way.links[0], plans(tmp_path, one_way)).plan.tests) == 2


@pytest.mark.parametrize(("listen", "client"), [("from", "west"), ("to", "east"), ("either", "east")])
def test_who_listens_is_the_server(tmp_path: Path, listen: str, client: str) -> None:
    campaign = campaign_of(tmp_path, f"{{from: east, to: west, listen: {listen}}}")
    plan = links.plan_link(campaign, campaign.links[0], plans(tmp_path, campaign)).plan
    assert {links.split(pair[0])[0] for pair in plan.pairs} == {client}


def test_listed_pairs_and_those_that_cannot_run(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path, "{from: east, to: west, list: [[n1, n1], [n3, n2], [n9, n1]], compare: false}")
    both = plans(tmp_path, campaign, busy="n3")
    made = links.plan_link(campaign, campaign.links[0], both).plan
    assert made.pairs == (("east/n1", "west/n1"),)
    assert [(one.client, one.reason) for one in made.not_planned] == [
        ("east/n3", "n3 state busy (idle)"),
        ("east/n9", "n9 is not a node of east"),
    ]
    assert all(plan.pairs == () and plan.cost.job_count == 0 for plan in both)


def test_more_pairs_than_nodes_use_every_node_as_seldom_as_possible(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path, "{from: east, to: west, pairs: 7}")
    plan = links.plan_link(campaign, campaign.links[0], plans(tmp_path, campaign)).plan
    assert len(set(plan.pairs)) == 7
    assert plan.goals.node_pair_count_min == 2


@pytest.mark.promise("Each end of a link is measured over the interface of its own node, where nodes of a cluster differ.")
def test_each_end_has_the_interface_of_its_node(tmp_path: Path) -> None:
    """n1 is of one kind, n2 and n3 of another; what stands beside the link is of one kind each."""
    campaign = campaign_of(tmp_path, "{from: east, to: west, list: [[n1, n2], [n2, n1]]}")
    nodes = [
        NodeState(name, NodeCondition.IDLE, "idle", features=(word,))
        for name, word in (("n1", "gpu"), ("n2", "cpu"), ("n3", "cpu"), ("n4", "gpu"))
    ]
    made = []
    for name in ("east", "west"):
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\nscheduler: slurm\nwork_directory: /w\n{DIFFER}")
        made.append(links.plan_cluster(campaign, Basis(read_cluster(tmp_path / f"{name}.yaml"), nodes, "run-1", 7)))
    for plan in made:
        assert sorted(sorted(pair) for pair in plan.pairs) == [["n1", "n4"], ["n2", "n3"]]
    across = links.plan_link(campaign, campaign.links[0], (made[0], made[1])).plan
    assert [[across.interface_at((node,)) for node in pair] for pair in across.pairs] == [["ib1", "ib0"], ["ib0", "ib1"]]


# -- groups ------------------------------------------------------------------------------------------------------------


def test_linked_clusters_have_one_driver() -> None:
    joined = [{"name": "a+c", "from": "a", "to": "c"}, {"name": "c+d", "from": "c", "to": "d"}]
    assert groups(["a", "b", "c", "d"], joined) == [("a", "c", "d"), ("b",)]
    run = WorkflowRun("run", ("a", "b", "c", "d"), None, tuple(joined))
    assert run.parts == ("a", "b", "c", "d", "a+c", "c+d")
    assert run.driven_by("b") == "b/driven.json"
    assert {run.driven_by(part) for part in ("a", "c", "d", "a+c", "c+d")} == {"groups/a+c+d.json"}
    assert run.planned_before("c+d") == ["c", "d"]


# -- expected starts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "wait_s"),
    [
        ("sbatch: Job 7 to start at 2026-11-21T10:00:00 using 2 processors on nodes n1\n2026-11-21T09:59:00\n", 60.0),
        ("sbatch: Job 7 to start at 2026-11-21T10:00:00 using 2 processors on nodes n1\n2026-11-21T10:00:01\n", 0.0),
        ("allocation failure: Requested node configuration is not available\n2026-11-21T09:59:00\n", None),
        ("", None),
    ],
)
def test_expected_start_is_read_beside_that_machines_clock(said: str, wait_s: float | None) -> None:
    assert Slurm(Here(), SchedulerSettings()).read_estimate(Completed(0, said.encode(), "")) == wait_s


# -- the ledger --------------------------------------------------------------------------------------------------------


def ledger_after(folder: Path, *events: dict[str, Any], retries: int = 1) -> LinkState:
    campaign = replace(campaign_of(folder), attempt_count_max=retries + 1)
    plan = links.plan_link(campaign, campaign.links[0], plans(folder, campaign))
    return LinkState.replay(plan, events)


def attempt(side: str, attempt_no: int = 1) -> dict[str, Any]:
    tag = f"t{attempt_no}-{side}"
    common = {"job": "j00001", "attempt_no": attempt_no, "nodes": ["n1"], "first": "from"}
    return {"event": "attempt", "tag": tag, "side": side, **common}


def ended(side: str, outcome: str, measured: tuple[tuple[int, int], ...] = (), attempt_no: int = 1) -> dict[str, Any]:
    return {"event": "ended", "tag": f"t{attempt_no}-{side}", "outcome": outcome, "reason": "x", "measured": measured}


ALL = ((1, 1), (2, 1), (3, 1))


def test_a_try_is_over_when_both_sides_are(tmp_path: Path) -> None:
    both = [attempt("from"), attempt("to")]
    ledger = ledger_after(tmp_path, *both, ended("from", "completed", ALL))
    assert [one.index for one in ledger.open_tries] == [0]
    ledger.apply(ended("to", "completed"))
    assert not ledger.open_tries
    assert ledger.measured_count == 3
    assert list(ledger.pending) == [1]


@pytest.mark.parametrize(
    ("stop", "end", "again"),
    [
        (None, "node_failed", True),
        (None, "completed", True),
        ({"follows": False, "final": True}, "cancelled", False),  # did not start
        ({"follows": True, "final": False}, "cancelled", True),  # ended because the other side was lost
    ],
)
def test_the_side_that_caused_the_end_decides_about_another_try(
    tmp_path: Path, stop: dict[str, bool] | None, end: str, again: bool
) -> None:
    events = [attempt("from"), attempt("to")]
    events += [{"event": "stop", "tag": "t1-to", "reason": "y", **stop}] if stop else []
    events += [ended("to", end), ended("from", "completed" if stop is None or not stop["final"] else "cancelled")]
    if stop and stop["final"]:
        events.insert(3, {"event": "stop", "tag": "t1-from", "reason": "z", "follows": True, "final": False})
    assert (0 in ledger_after(tmp_path, *events).pending) is again
    if again:
        assert 0 not in ledger_after(tmp_path, *events, retries=0).pending


# -- budgets and comparison ---------------------------------------------------------------------------------------------


def test_a_plan_whose_links_and_pairs_cost_too_much_together_is_refused(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path)
    made = links.plan_link(campaign, campaign.links[0], both := plans(tmp_path, campaign))
    needed = both[0].cost.node_seconds + made.plan.cost.node_seconds / 2
    with pytest.raises(UserError, match=r"a job of east\+west may take 240 node-seconds: at most 200 are allowed"):
        links.refuse_beyond_budget(campaign, Budget(max_node_seconds=200), made, both[0])
    made = replace(made, plan=replace(made.plan, walltime_s=20))
    links.refuse_beyond_budget(campaign, Budget(max_node_seconds=needed + 1), made, both[0])
    with pytest.raises(UserError) as caught:
        links.refuse_beyond_budget(campaign, Budget(max_node_seconds=needed - 1), made, both[0])
    assert f"its pairs cost {both[0].cost.node_seconds:g} node-seconds and its links" in caught.value.message
    with pytest.raises(UserError, match="walltime_s: jobs of east\\+west ask for"):
        links.refuse_beyond_budget(campaign, Budget(max_walltime_s=10), made, both[0])


def test_pairs_that_a_campaign_names_are_the_comparison_where_both_ends_are_the_links(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path, "{from: east, to: west, list: [[n1, n1], [n2, n3]]}", more="pairs: all")
    both = plans(tmp_path, campaign)
    made = links.plan_link(campaign, campaign.links[0], both)
    named = [{both[side].pairs[index] for index in links.compared_pairs(campaign, both[side], [made])} for side in (0, 1)]
    assert [{frozenset(pair) for pair in pairs} for pairs in named] == [{frozenset({"n1", "n2"})}, {frozenset({"n1", "n3"})}]
