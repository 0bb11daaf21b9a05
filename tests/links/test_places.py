"""`on`: where a test of a campaign runs, what is refused, and what each plan then says."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcq.definition.files.campaign import read_campaign
from hpcq.errors import UserError
from hpcq.planning import links
from hpcq.planning.allocations import Basis
from hpcq.planning.links import LinkPlan
from hpcq.planning.plan import Plan
from hpcq.scheduler.types import NodeCondition, NodeState
from tests import REPOSITORY
from tests.links.link_campaigns import STREAM, campaign_of, cluster_of, plans, text

pytestmark = pytest.mark.fast

TRIP = "{kernel: tcp_pingpong, ON}"
MPI = "{kernel: mpi_pingpong, ON}"
SET = "{kernel: mpi_collective, parameters: {node_count: 3}, ON}"
WITH_MPI = "mpi: {compiler: mpicc}\n"


def on(test: str, places: str) -> str:
    return test.replace("ON", f"on: {places}")


def planned(folder: Path, *tests: str, link: str = "{from: east, to: west}", more: str = "") -> tuple[Plan, Plan, LinkPlan]:
    campaign = campaign_of(folder, link, tests=tests, more=more)
    both = plans(folder, campaign, more=WITH_MPI)
    return (*both, links.plan_link(campaign, campaign.links[0], both))


def told(plan: Plan) -> list[tuple[int, str, tuple[str, ...]]]:
    return [(test.test_no, test.kernel, test.on) for test in plan.tests]


def refused(folder: Path, written: str) -> UserError:
    path = folder / "try.yaml"
    path.write_text(written)
    with pytest.raises(UserError) as caught:
        read_campaign(path)
    return caught.value


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.promise("`on` with a place where the kernel cannot run is refused.")
@pytest.mark.parametrize(
    ("test", "complaint", "hint"),
    [
        (on(TRIP, "[]"), "on: an empty list: must be one of pairs, links, nodes", ""),
        (on(TRIP, "[racks]"), "on: 'racks': must be one of pairs, links, nodes", ""),
        (on(TRIP, "[pairs, pairs]"), "on: 'pairs' stands twice: each of pairs, links, nodes may stand once", ""),
        (on(TRIP, "7"), "on: 7: must be one of pairs, links, nodes", ""),
        (on(TRIP, "nodes"), "'nodes', but tcp_pingpong runs between two nodes: must be pairs or links", "node_count"),
        (on(MPI, "[pairs, links]"), "'links', but one MPI job does not span two batch systems", "within the clusters"),
        (on(SET, "pairs"), "'pairs', but all nodes of a set run mpi_collective together: must be nodes", "node_count: 2"),
    ],
)
def test_a_place_where_a_test_cannot_run_is_refused(tmp_path: Path, test: str, complaint: str, hint: str) -> None:
    error = refused(tmp_path, text(tests=(STREAM, test)))
    assert "try.yaml:10: on: " in error.message
    assert complaint in error.message
    assert hint in str(error.hint)


@pytest.mark.promise("`on: [links]` in a campaign without links is refused.")
def test_links_are_no_place_in_a_campaign_without_them(tmp_path: Path) -> None:
    error = refused(tmp_path, f"name: try\nclusters: [east]\npairs: all\ntests:\n  - {on(TRIP, 'links')}\n")
    assert "try.yaml:5: on: 'links', but the campaign has no links: must be pairs" in error.message
    assert "links: [{from: A, to: B}]" in str(error.hint)


@pytest.mark.parametrize(
    ("tests", "link", "more", "complaint"),
    [
        ([on(TRIP, "pairs")], "", "", "try.yaml:4: links: no test runs over them"),
        ([on(TRIP, "links")], "", "pairs: all", "try.yaml:7: pairs: all tests run over links only"),
        ([STREAM, on(TRIP, "pairs")], ", compare: false", "", "links: compare: false and no `pairs`: a test says `on: pairs`"),
    ],
)
def test_links_and_pairs_without_a_test_are_refused(
    tmp_path: Path, tests: list[str], link: str, more: str, complaint: str
) -> None:
    error = refused(tmp_path, text(f"{{from: east, to: west{link}}}", tests=tuple(tests), more=more))
    assert complaint in error.message


# -- the example -------------------------------------------------------------------------------------------------------


@pytest.mark.promise("campaigns/mixed.yaml plans each of its tests on the pairs, links and nodes that its comments name.")
def test_the_example_of_a_mixed_campaign_runs_each_test_where_its_comments_say(tmp_path: Path) -> None:
    """campaigns/mixed.yaml: sockets within and between, datagrams between, MPI on pairs, collectives on all nodes."""
    campaign = read_campaign(REPOSITORY / "campaigns/mixed.yaml")
    nodes = [NodeState(f"n{number}", NodeCondition.IDLE, "idle") for number in range(1, 5)]
    bases = [Basis(cluster_of(tmp_path, name, WITH_MPI), nodes, "run-1", 7) for name in campaign.clusters]
    alpha, beta = (links.plan_cluster(campaign, basis) for basis in bases)
    link = links.plan_link(campaign, campaign.links[0], (alpha, beta)).plan
    sockets, of_mpi = ["tcp_stream", "tcp_pingpong", "tcp_pingpong"], ["mpi_pingpong", "mpi_pingpong"]
    for plan in (alpha, beta):
        assert [test.kernel for test in plan.tests_at(0)] == [*sockets, *of_mpi]
        assert len(plan.pairs[: plan.sets_begin]) == 6  # all pairs of four nodes
        assert plan.nodes_at(plan.sets_begin) == ("n1", "n2", "n3", "n4")
        assert {test.kernel for test in plan.tests_at(plan.sets_begin)} == {"mpi_collective"}
    assert {test.kernel for test in link.tests} == {*sockets, "udp_stream"}
    assert len(link.pairs) == 2


# -- what is planned ---------------------------------------------------------------------------------------------------


@pytest.mark.promise("Each test of each plan says where it runs.")
def test_a_campaign_that_says_nothing_runs_each_test_wherever_it_can(tmp_path: Path) -> None:
    silent = tuple(test.replace(", ON", "") for test in (TRIP, MPI, SET))
    east, west, link = planned(tmp_path, *silent)
    within = [(1, "tcp_pingpong", ("pairs",)), (2, "mpi_pingpong", ("pairs",)), (3, "mpi_collective", ("nodes",))]
    assert told(east) == told(west) == within
    assert told(link.plan) == [(1, "tcp_pingpong", ("links",))]


@pytest.mark.promise("A test of a campaign with links runs where `on` says, over links or within the clusters.")
def test_each_test_runs_where_it_says(tmp_path: Path) -> None:
    near = "{kernel: udp_pingpong, on: [pairs]}"
    both = "{kernel: tcp_connect, on: [links, pairs]}"
    far = "{kernel: tcp_stream, on: links}"
    east, west, link = planned(tmp_path, far, near, on(SET, "[nodes]"), both)
    within = [(1, "udp_pingpong", ("pairs",)), (2, "mpi_collective", ("nodes",)), (3, "tcp_connect", ("pairs",))]
    assert told(east) == told(west) == within
    assert told(link.plan) == [(1, "tcp_stream", ("links",)), (2, "tcp_stream", ("links",)), (3, "tcp_connect", ("links",))]
    assert [test.kernel for test in east.tests_at(0)] == ["udp_pingpong", "tcp_connect"]
    assert east.goals.result_count == 2 * len(east.pairs)
    assert [one.reason for one in east.not_planned] == ["node_count 3: 2 nodes may be used"]  # the link's nodes alone
    assert link.plan.goals.result_count == 3 * len(link.plan.pairs)
    assert Plan.from_json(east.to_json()) == east


def test_tests_that_run_over_links_alone_leave_the_clusters_without_a_job(tmp_path: Path) -> None:
    east, west, link = planned(tmp_path, on(TRIP, "links"))
    assert [(plan.tests, plan.pairs, plan.cost.job_count, plan.goals.result_count) for plan in (east, west)] == [
        ((), (), 0, 0)
    ] * 2
    assert link.plan.goals.result_count == len(link.plan.pairs) == 2


def test_sizes_that_another_test_measures_keep_it(tmp_path: Path) -> None:
    """Numbers without gaps: a test that is left out takes its sizes with it, and the others still name theirs."""
    table = "{kernel: netpipe_tcp, ON}"
    east, _, _ = planned(tmp_path, on(TRIP, "links"), on(table, "pairs"))
    assert [test.test_no for test in east.tests] == list(range(1, len(east.tests) + 1))
    assert [test.measured_by for test in east.tests] == [0] + [1] * (len(east.tests) - 1)
    assert len(east.tests) > 1
