"""Torque, on a stand-in after its manual: the contract of schedulers, a campaign, a tournament, and its answers read."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hpcq.definition.files.cluster import read_cluster
from hpcq.errors import SchedulerError
from hpcq.runner.site.place import reach, scheduler_of
from hpcq.scheduler.torque import Torque, read_node, read_report, read_xml
from hpcq.scheduler.types import JobState, NodeCondition, QueueQuery, SchedulerSettings
from hpcq.transport import Completed, Here
from tests.local.local_desk import LocalDesk
from tests.schedulers.scheduler_contract import PROMISES, Site, the_time_limit_ends_a_job
from tests.simulated_pbs.site import SimulatedPbs, simulated_pbs

CLUSTER = "name: {name}\nscheduler: torque\nconnection: local\ninterface: lo\npoll_interval_s: 1s\ncompiler: {{cflags: -O0}}\n"
TEST = "{kernel: tcp_pingpong, parameters: {message_bytes: 1, operation_count_max: 20, duration_s: 1, warmup_s: 0}}"
GIVEN = os.environ.get("HPCQ_TEST_TORQUE", "")
HEAD = "#PBS -l nodes={nodes}\n#PBS -l walltime=0:01:00\n#PBS -W x=NACCESSPOLICY:SINGLEJOB\n#PBS -r n -j oe"


@pytest.fixture(scope="module")
def torque(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedPbs]:
    with simulated_pbs(tmp_path_factory.mktemp("torque")) as running:
        running.control(set={"torque": True, "sleep_s": 0.0, "kill_delay_s": 0.5, "limits_every_s": 0.3})
        yield running


class TorqueSite(Site):
    """Its nodes are joined with a plus."""

    def _head(self, name: str, nodes: tuple[str, ...]) -> str:  # noqa: ARG002
        return self.head.replace("{nodes}", "+".join(nodes))


@pytest.fixture(params=["kept", "forgotten"])
def site(torque: SimulatedPbs, request: pytest.FixtureRequest) -> Site:
    """With jobs that stay as C, and where keep_completed is 0."""
    torque.control(set={"history": request.param == "kept"})
    folder = torque.folder / "clusters"
    folder.mkdir(exist_ok=True)
    (folder / "sim.yaml").write_text(CLUSTER.format(name="sim"))
    cluster = read_cluster(folder / "sim.yaml")
    scheduler = scheduler_of(cluster, reach(cluster))
    return TorqueSite(scheduler, f"{folder}/contract-{secrets.token_hex(4)}", HEAD, remembers=request.param == "kept")


@pytest.mark.promise("A job of Torque is found, believed and ended by id, name and user.")
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_promise(site: Site, promise: Callable[[Site], None]) -> None:
    promise(site)


def test_the_time_limit(site: Site) -> None:
    the_time_limit_ends_a_job(replace(site, head=site.head.replace("0:01:00", "0:00:02")))


@pytest.fixture(scope="module")
def given() -> Site:
    """A real Torque; whether it keeps ended jobs, it says itself. A job gets no nodes of others: pbs_sched knows no access."""
    if not GIVEN:
        pytest.skip("HPCQ_TEST_TORQUE: the cluster file of a Torque")
    cluster = read_cluster(Path(GIVEN))
    scheduler = scheduler_of(cluster, reach(cluster))
    keeps = "keep_completed" in scheduler.transport.sh("qstat -B -f").text
    folder = f"{cluster.work_directory or Path(GIVEN).parent}/contract-{secrets.token_hex(4)}"
    return TorqueSite(scheduler, folder, HEAD, remembers=keeps)


@pytest.mark.long
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_promise_of_a_given_torque(given: Site, promise: Callable[[Site], None]) -> None:
    promise(given)


@pytest.mark.long
def test_the_time_limit_of_a_given_torque(given: Site) -> None:
    the_time_limit_ends_a_job(replace(given, head=given.head.replace("0:01:00", "0:00:02")))


@pytest.mark.promise("Campaigns run on Torque, pairs and tournaments.")
@pytest.mark.parametrize("more", ["", pytest.param("allocation: whole", marks=pytest.mark.long)])
def test_a_campaign(tmp_path: Path, more: str) -> None:
    with simulated_pbs(tmp_path / "torque") as running:
        running.control(set={"torque": True, "sleep_s": 0.0})
        desk = LocalDesk.at(tmp_path)
        desk.cluster("tiny", CLUSTER)
        desk.hpcq("run", desk.campaign(TEST, more=f"retries: 0\n{more}"))
        submitted = next(desk.run_folder.glob("tiny/jobs/*/1/job.sh")).read_text()
    rows = desk.rows("SELECT outcome, reason, count(*) AS n FROM v_results GROUP BY 1, 2")
    assert {(row["outcome"], row["reason"]) for row in rows} == {("measured", None)}
    assert "#PBS -W x=NACCESSPOLICY:SINGLEJOB\n" in submitted
    assert "#PBS -l nodes=pbn" in submitted


def test_the_check_of_a_cluster(tmp_path: Path) -> None:
    with simulated_pbs(tmp_path / "torque") as running:
        running.control(set={"torque": True, "sleep_s": 0.0})
        desk = LocalDesk.at(tmp_path)
        desk.cluster("tiny", CLUSTER)
        said = desk.hpcq("cluster", "check", "tiny").stdout
    assert "Torque 6.1.3" in said
    assert "4 idle" in said
    assert "BAD" not in said


JOB = (
    "<Data><Job><Job_Id>12.head</Job_Id><Job_Name>x</Job_Name><Job_Owner>me@login</Job_Owner><job_state>{state}</job_state>"
    "<exec_host>n1/0-7+n2/0,4-6</exec_host><Resource_List><nodes>n1:ppn=8</nodes></Resource_List>{more}</Job></Data>"
)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("state", "more", "wanted"),
    [
        ("Q", "", JobState.QUEUED),
        ("R", "", JobState.RUNNING),
        ("E", "", JobState.ENDING),
        ("C", "<exit_status>0</exit_status>", JobState.COMPLETED),
        ("C", "<exit_status>3</exit_status>", JobState.FAILED),
        ("C", "<exit_status>-11</exit_status>", JobState.TIMED_OUT),
        ("C", "<exit_status>-10</exit_status>", JobState.OUT_OF_MEMORY),
        ("C", "<exit_status>271</exit_status>", JobState.CANCELLED),
        ("C", "", JobState.FAILED),
        ("?", "", JobState.UNKNOWN),
    ],
)
def test_a_job_is_read(state: str, more: str, wanted: JobState) -> None:
    [record] = read_xml(JOB.format(state=state, more=more))
    report = read_report(record, "me")
    assert (report.state, report.nodes, report.mine) == (wanted, ("n1", "n2"), True)
    assert read_report(record, "you").mine is False


@pytest.mark.fast
@pytest.mark.promise("A job of Torque that was deleted before it ran is cancelled, not failed.")
def test_a_job_that_was_deleted_before_it_ran_is_cancelled() -> None:
    """What a real server shows of it: C, without an end, a start and hosts."""
    text = JOB.format(state="C", more="<comment>Not Running: Not enough of the right type of nodes</comment>")
    [record] = read_xml(re.sub("<exec_host>.*</exec_host>", "", text))
    report = read_report(record, "me")
    assert (report.state, report.reason) == (JobState.CANCELLED, "deleted before it ran")


@pytest.mark.fast
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("<state>free</state>", NodeCondition.IDLE),
        ("<state>free</state><jobs>0/12.head</jobs>", NodeCondition.BUSY),
        ("<state>job-exclusive</state>", NodeCondition.BUSY),
        ("<state>offline,job-exclusive</state>", NodeCondition.DRAINED),
        ("<state>down,offline</state>", NodeCondition.DOWN),
        ("<state>down,offline,MOM-list-not-sent</state>", NodeCondition.DOWN),  # a real server, of nodes just added
        ("<state>free,MOM-list-not-sent</state>", NodeCondition.DOWN),
        ("<state>free</state><power_state>Running</power_state>", NodeCondition.IDLE),
        ("<state>free</state><power_state>Sleep</power_state>", NodeCondition.POWERED_DOWN),
        ("<state>news</state>", NodeCondition.UNKNOWN),
        ("", NodeCondition.UNKNOWN),
    ],
)
def test_a_node_is_read(words: str, wanted: NodeCondition) -> None:
    [record] = read_xml(f"<Data><Node><name>n1</name>{words}<np>8</np><note>a &lt; b</note></Node></Data>")
    node = read_node(record)
    assert (node.node, node.condition, node.reason) == ("n1", wanted, "a < b")


@pytest.mark.fast
def test_an_answer_that_breaks_off_says_nothing_of_jobs() -> None:
    scheduler = Torque(Here(), SchedulerSettings())
    with pytest.raises(SchedulerError, match="XML breaks off"):
        scheduler.read_poll(Completed(0, f"@user me\n{JOB[:60]}".encode(), ""))
    with pytest.raises(SchedulerError, match="cannot connect"):
        scheduler.read_poll(Completed(162, b"@user me\n", "qstat: cannot connect to server"))


def test_jobs_of_others_are_seen(torque: SimulatedPbs, site: Site) -> None:
    whole = "1:host=pbn1:ncpus=4"
    running, waiting = (torque.control(other={"select": whole, "run_s": 30, "name": name})["id"] for name in "ab")
    try:
        while "other R" not in torque.control()["states"]:
            time.sleep(0.05)
        found = site.scheduler.look(QueueQuery(nodes=True, mine=True))
        again = site.scheduler.look(QueueQuery(others=True))
        assert found.nodes is not None
        assert {node.node for node in found.nodes if node.condition is NodeCondition.BUSY} == {"pbn1"}
        assert [(one.scheduler_job_id, one.sure) for one in again.others or ()] == [(waiting, False)]
        assert found.mine == 0
    finally:
        torque.as_user("root", "qdel", running, waiting)


@pytest.mark.promise("Limits of a queue of Torque are limits of the plan, and what it takes of a user is kept to.")
def test_limits_of_a_queue(tmp_path: Path) -> None:
    with simulated_pbs(tmp_path / "torque") as running:
        running.control(set={"torque": True, "sleep_s": 0.0})
        for line in (
            "resources_max.nodect = 3", "resources_max.walltime = 00:30:00", "max_user_queuable = 5", "max_queuable = 40",
            "acl_user_enable = True", "acl_users = anna@*",
        ):  # fmt: skip
            assert running.as_user("root", "qmgr", "-c", f"set queue workq {line}").returncode == 0
        (tmp_path / "sim.yaml").write_text(CLUSTER.format(name="sim"))
        cluster = read_cluster(tmp_path / "sim.yaml")
        scheduler = scheduler_of(cluster, reach(cluster))
        limits, most = scheduler.job_limits(), scheduler.submit_limit()
    assert most == 5
    assert (limits.max_nodes and limits.max_nodes.value, limits.max_walltime_s and limits.max_walltime_s.value) == (3, 1800)
    assert limits.max_nodes is not None
    assert limits.max_nodes.source == "resources_max.nodect of queue workq"
    [refusal] = limits.refusals
    assert refusal.startswith("queue workq: acl_users=anna@*: ")


@pytest.mark.promise("`hpcq accept` on Torque drains with pbsnodes, and leaves a drain of somebody else with its reason.")
def test_orders_of_an_acceptance(tmp_path: Path) -> None:
    with simulated_pbs(tmp_path / "torque") as running:
        running.control(set={"torque": True, "sleep_s": 0.0}, nodes={"pbn2": {"offline": True, "comment": "disk"}})
        running.control(nodes={"pbn3": {"down": True}})
        (tmp_path / "sim.yaml").write_text(CLUSTER.format(name="sim"))
        cluster = read_cluster(tmp_path / "sim.yaml")
        administration = scheduler_of(cluster, reach(cluster)).administration()
        assert administration is not None

        def by_root(order: str | None) -> int:
            script = (running.folder / "bin" / "pbsnodes").read_text()
            (tmp_path / "pbsnodes").write_text(re.sub(r'"\$PWD" "[^"]*"', '"$PWD" "root"', script))
            (tmp_path / "pbsnodes").chmod(0o755)
            words = ["bash", "-c", f"PATH={tmp_path}:$PATH; {order}"]
            return subprocess.run(words, check=False, timeout=60, capture_output=True).returncode

        def seen() -> dict[str, tuple[bool, bool, str]]:
            return {name: (one.drained, one.down, one.reason) for name, one in administration.look().nodes.items()}

        assert seen() == {
            "pbn1": (False, False, ""), "pbn2": (True, False, "disk"), "pbn3": (False, True, ""), "pbn4": (False, False, ""),
        }  # fmt: skip
        assert by_root(administration.drain(["pbn1", "pbn2"], "hpcq accept: it's slow")) == 0
        assert seen()["pbn1"] == (True, False, "hpcq accept: it's slow")
        assert seen()["pbn2"] == (True, False, "disk")
        assert by_root(administration.resume(["pbn1"])) == 0
        assert seen()["pbn1"] == (False, False, "")
        assert administration.reserve(["pbn1"], "anna", None) is None
