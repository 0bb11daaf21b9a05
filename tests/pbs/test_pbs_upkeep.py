"""What an acceptance learns of a PBS: leaf switches by placement sets, and nodes that came up."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hpcq.scheduler.pbs.nodes import SEPARATOR, Vnode, came_up_s, leaves, read_dsv, read_vnode, sets_apart
from hpcq.scheduler.types import JobState
from tests.local.local_desk import LocalDesk
from tests.pbs.test_pbs_campaign import BRIEF, CLUSTER, measured
from tests.pbs.test_pbs_queues import orders, site
from tests.simulated_pbs.site import simulated_pbs

pytestmark = pytest.mark.fast


def vnodes(*lines: str) -> list[Vnode]:
    """Each line is a vnode and its attributes, as words."""
    found = []
    for line in lines:
        name, *words = line.split()
        host = f"resources_available.host={name.partition('[')[0]}"
        found.append(SEPARATOR.join([f"Name={name}", host, *words]))
    return [read_vnode(record) for record in read_dsv("\n".join(found))]


def placed(**where: str) -> list[Vnode]:
    """Each host, with the words by which it is placed."""
    return vnodes(*(" resources_available.".join([name, *text.split()]) for name, text in where.items()))


def test_a_leaf_is_the_finest_set_that_holds_several_hosts() -> None:
    found = placed(
        n1="switch=s1 rack=r1 chassis=c1", n2="switch=s1 rack=r1 chassis=c2", n3="switch=s2 rack=r1 chassis=c3",
        n4="switch=s2 rack=r1 chassis=c4",
    )  # fmt: skip
    by_switch = {"n1": "s1", "n2": "s1", "n3": "s2", "n4": "s2"}
    assert leaves(found, ["switch"]) == by_switch
    assert leaves(found, ["rack", "chassis", "switch"]) == by_switch
    assert leaves(found, ["rack"]) == dict.fromkeys(by_switch, "r1")
    assert leaves(found, ["chassis"]) == leaves(found, []) == leaves(found, ["router"]) == {}


def test_a_host_in_several_sets_has_no_leaf() -> None:
    found = placed(n1="switch=s1,s2", n2="switch=s1", n3="switch=s1", n4="rack=r1")
    assert leaves(found, ["switch"]) == {"n2": "s1", "n3": "s1"}


@pytest.mark.heavy
@pytest.mark.promise("Leaf switches of a PBS are its placement sets (node_group_key), for pairs, acceptance and blame.")
def test_switches_and_leaves_come_from_the_placement_sets(tmp_path: Path) -> None:
    with simulated_pbs(tmp_path / "pbs") as pbs:
        pbs.control(set={"sleep_s": 0.0})
        for number in (1, 2, 3, 4):
            pbs.control(nodes={f"pbn{number}": {"resources": {"switch": f"s{(number + 1) // 2}", "rack": "r1"}}})
        orders(pbs, "set server node_group_key = rack", "set queue workq node_group_key = switch")
        scheduler = site(pbs).scheduler
        wanted = {"pbn1": "s1", "pbn2": "s1", "pbn3": "s2", "pbn4": "s2"}
        assert scheduler.topology().leaves == wanted
        administration = scheduler.administration()
        assert administration is not None
        assert administration.look().leaves == wanted


@pytest.mark.promise("A PBS node that was rebooted, or was away, since its last verdict is tested again.")
@pytest.mark.parametrize(
    ("words", "moment"),
    [
        ("state=free last_state_change_time=5000 last_used_time=1000", 5000),
        ("state=free last_state_change_time=5000", 5000),
        ("state=free last_state_change_time=5000 last_used_time=4940", 5000),  # a short boot
        ("state=free last_state_change_time=5000 last_used_time=4999", None),  # a job ended
        ("state=free last_state_change_time=5000 last_used_time=4990 jobs=7.head/0", None),
        ("state=job-exclusive last_state_change_time=5000 last_used_time=1000", None),
        ("state=down last_state_change_time=5000 last_used_time=1000", None),
        ("state=free", None),
    ],
)
def test_a_node_came_up_when_it_became_free_and_no_job_had_ended(words: str, moment: int | None) -> None:
    assert came_up_s(vnodes(f"n1 {words}")) == moment
    other = "n1[1] state=free last_state_change_time=900 last_used_time=900"
    assert came_up_s(vnodes(f"n1[0] {words}", other)) == moment


@pytest.mark.heavy
def test_a_node_that_was_away_came_up_then_and_one_whose_job_ended_did_not(tmp_path: Path) -> None:
    with simulated_pbs(tmp_path / "pbs") as pbs:
        pbs.control(set={"sleep_s": 0.0, "exiting_s": 0.0})
        place = site(pbs)
        job = place.submit("short", "true")
        assert job.scheduler_job_id
        place.ends(job.scheduler_job_id, JobState.COMPLETED)
        pbs.control(nodes={"pbn3": {"down": True}})
        pbs.control(nodes={"pbn3": {"down": False}})
        administration = place.scheduler.administration()
        assert administration is not None
        seen = administration.look().nodes
        assert seen["pbn1"].started_utc is None
        assert (seen["pbn3"].started_utc or "")[:4] == time.strftime("%Y", time.gmtime())


@pytest.mark.heavy
def test_a_node_that_is_not_heard_is_said_to_be_that(tmp_path: Path) -> None:
    with simulated_pbs(tmp_path / "pbs") as pbs:
        pbs.control(set={"sleep_s": 0.0}, nodes={"pbn1": {"down": True, "comment": "node down: communication closed"}})
        pbs.control(nodes={"pbn2": {"offline": True, "comment": "node 7 is down for repair"}})
        administration = site(pbs).scheduler.administration()
        assert administration is not None
        reasons = {node: up.reason for node, up in administration.look().nodes.items() if up.reason}
    assert reasons == {"pbn1": "does not answer", "pbn2": "node 7 is down for repair"}


SETS = {
    "n1": "switch=s1 rack=r1", "n2": "switch=s1 rack=r1", "n3": "switch=s2 rack=r1", "n4": "switch=s2 rack=r2", "n5": "rack=r2",
}  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "explicit", "apart"),
    [
        (["switch"], True, ["n1 n2", "n3 n4"]),
        (["switch"], False, ["n1 n2", "n3 n4", "n5"]),
        (["switch", "rack"], True, ["n1 n2 n3", "n4 n5"]),  # the largest sets go before
        (["chassis"], False, []),
        ([], False, []),
    ],
)
def test_hosts_of_one_job_are_of_one_set(keys: list[str], explicit: bool, apart: list[str]) -> None:
    found: dict[str, list[str]] = {}
    for host, name in sets_apart(placed(**SETS), keys, explicit=explicit).items():
        found.setdefault(name, []).append(host)
    assert sorted(" ".join(sorted(hosts)) for hosts in found.values()) == apart


def test_one_set_that_has_all_hosts_keeps_nothing_apart() -> None:
    assert sets_apart(placed(n1="switch=s1,all", n2="switch=s2,all"), ["switch"], explicit=False) == {}


@pytest.mark.heavy
@pytest.mark.promise("Where no job of PBS may span placement sets, pairs are planned within each of them.")
@pytest.mark.parametrize(
    ("lines", "place", "within"),
    [
        ("set sched do_not_span_psets = True;set server node_group_enable = True", "", True),
        ("set server node_group_enable = True", "", False),
        ("set sched do_not_span_psets = True", "", False),
        pytest.param("", "place: scatter:exclhost:group=switch\n", True, marks=pytest.mark.long),
    ],
)
def test_pairs_stay_within_sets_that_no_job_may_span(tmp_path: Path, lines: str, place: str, within: bool) -> None:
    with simulated_pbs(tmp_path / "pbs") as pbs:
        pbs.control(set={"sleep_s": 0.0})
        for number in (1, 2, 3, 4):
            pbs.control(nodes={f"pbn{number}": {"resources": {"switch": f"s{(number + 1) // 2}"}}})
        orders(pbs, "set server node_group_key = switch", *(line for line in lines.split(";") if line))
        desk = LocalDesk.at(tmp_path)
        desk.cluster("tiny", CLUSTER + place)
        desk.campaign(BRIEF, more="retries: 0")
        [plan] = json.loads(desk.hpcq("plan", "try.yaml", "--json").stdout)
        pairs = {frozenset(pair) for pair in plan["pairs"]}
        inside = {frozenset(("pbn1", "pbn2")), frozenset(("pbn3", "pbn4"))}
        assert pairs == inside if within else len(pairs) == 6
        if within:
            [note] = plan["notes"]
            assert "no job may have nodes of two of the 2 fabrics switch=s1: pbn[1-2]; switch=s2: pbn[3-4]" in note
            desk.hpcq("run", "try.yaml")
            assert measured(desk) == 2


@pytest.mark.promise("A reservation of PBS is meant by the name that a person gave it, and by its id.")
def test_a_reservation_is_meant_by_its_name_and_by_its_id(tmp_path: Path) -> None:
    with simulated_pbs(tmp_path / "pbs") as pbs:
        administration = site(pbs).scheduler.administration()
        assert administration is not None
        soon = time.strftime("%Y%m%d%H%M.%S", time.localtime(time.time() + 3600))
        pbs.run("pbs_rsub", "-N", "swap", "-R", soon, "-D", "600", "--hosts", "pbn1")
        [seen] = administration.look().reservations
    assert seen.name == "swap"
    assert seen.native_id.startswith("M")
    assert (seen.is_called("swap"), seen.is_called(seen.native_id), seen.is_called("")) == (True, True, False)
