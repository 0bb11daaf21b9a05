"""What schedulers say, read: words and signs of Slurm as its manual lists them, answers that are no answers."""

from __future__ import annotations

import pytest

from hpcq.errors import SchedulerError
from hpcq.scheduler.pbs.nodes import Listed
from hpcq.scheduler.pbs.scheduler import read_job
from hpcq.scheduler.slurm import Slurm
from hpcq.scheduler.slurm.reading import node_condition
from hpcq.scheduler.slurm.scheduler import read_job_limits, topology_command, topology_of
from hpcq.scheduler.types import JobState, NodeCondition, SchedulerSettings
from hpcq.transport import Completed, Here

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("flags", "outside", "state"),
    [
        ("MAINT,IGNORE_JOBS", NodeCondition.RESERVED, "ACTIVE"),
        ("MAINT,FLEX,IGNORE_JOBS", NodeCondition.IDLE, "ACTIVE"),
        ("MAINT,FLEX", NodeCondition.RESERVED, "INACTIVE"),
    ],
)
def test_nodes_seen_from_inside_a_reservation(flags: str, outside: NodeCondition, state: str) -> None:
    nodes = "n1|maint|main*||none\nn2|idle|main*||none\nn3|drained|main*||fan\nn4|idle|main*||none\n"
    shown = f"@reservation ReservationName=swap Nodes=n[1-3] Flags={flags} State={state}\n"
    found = Slurm(Here(), SchedulerSettings(reservation="swap")).read_nodes(nodes + shown)
    inside = NodeCondition.IDLE if state == "ACTIVE" else NodeCondition.RESERVED
    assert {node.node: node.condition for node in found} == {
        "n1": inside if state == "ACTIVE" else NodeCondition.MAINTENANCE,
        "n2": inside,
        "n3": NodeCondition.DRAINED,
        "n4": outside,
    }


AHEAD = """n1|idle|main*||none
n2|planned|main*||none
n3|idle|main*||none
n4|allocated|main*||none
@reservations 2026-11-28T10:00:00
ReservationName=swap StartTime=2026-11-28T10:10:00 EndTime=2026-11-28T12:10:00 Nodes=n[1-2] NodeCnt=2 Flags=MAINT
ReservationName=daily StartTime=2026-11-28T10:05:00 EndTime=2026-11-28T10:06:00 Nodes=n2,n4 Flags=DAILY State=INACTIVE
ReservationName=over StartTime=2026-11-28T09:00:00 EndTime=2026-11-28T09:30:00 Nodes=n3 Flags= Users=root State=INACTIVE
ReservationName=words StartTime=2026-11-28T10:01:00 EndTime=2026-11-28T11:00:00 Nodes=(null) Licenses=matlab:2 Flags=ANY_NODES
"""


@pytest.mark.promise("A node is not used by a job that would not end before a reservation begins there, planned or idle.")
def test_a_reservation_bounds_the_time_of_its_nodes() -> None:
    nodes = {one.node: one for one in Slurm(Here(), SchedulerSettings()).read_nodes(AHEAD)}
    words = nodes["n1"].kept_from(600)
    assert words == "reservation swap begins at 2026-11-28 10:10:00 UTC, before a job of 600 s would end"
    assert nodes["n1"].kept_from(9 * 60 + 1), "Slurm counts in minutes"
    assert nodes["n1"].kept_from(9 * 60) is None
    assert "reservation daily begins at 2026-11-28 10:05:00 UTC" in (nodes["n2"].kept_from(300) or "")
    assert [nodes[name].kept_from(36000) for name in ("n3", "n4")] == [None, None], "over; in use by a job anyway"


def test_a_runs_reservation_keeps_none_of_its_nodes_from_it() -> None:
    inside = "@reservation ReservationName=swap Nodes=n[1-2] Flags=MAINT State=ACTIVE\n"
    answer = AHEAD.replace("@reservations", f"{inside}@reservations").replace("n1|idle", "n1|maint")
    nodes = {one.node: one for one in Slurm(Here(), SchedulerSettings(reservation="swap")).read_nodes(answer)}
    assert (nodes["n1"].condition, nodes["n1"].kept_from(600)) == (NodeCondition.IDLE, None)
    assert nodes["n2"].kept_from(600), "the other one begins there"


def test_reservations_are_asked_for_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr("hpcq.scheduler.slurm.scheduler.time.monotonic", lambda: now_s)
    slurm = Slurm(Here(), SchedulerSettings())
    assert "show reservation" in slurm.nodes_command()
    slurm.read_nodes(AHEAD)
    now_s += 59.0
    assert "show reservation" not in slurm.nodes_command()
    [first, *_] = slurm.read_nodes(AHEAD.partition("@")[0])
    assert first.bounded is not None
    assert first.bounded.in_s == 541.0
    now_s += 2.0
    assert "show reservation" in slurm.nodes_command()


@pytest.mark.promise("A node in state `allocated+` counts as busy.")
@pytest.mark.parametrize(
    ("word", "condition"),
    [
        ("idle", NodeCondition.IDLE),
        ("idle~", NodeCondition.POWERED_DOWN),
        ("idle#", NodeCondition.POWERED_DOWN),
        ("idle!", NodeCondition.POWERED_DOWN),
        ("idle%", NodeCondition.POWERED_DOWN),
        ("idle*", NodeCondition.DOWN),
        ("idle$", NodeCondition.MAINTENANCE),
        ("idle@", NodeCondition.DOWN),
        ("idle^", NodeCondition.DOWN),
        ("idle-", NodeCondition.PLANNED),
        ("mixed", NodeCondition.BUSY),
        ("mixed-", NodeCondition.BUSY),
        ("allocated", NodeCondition.BUSY),
        ("allocated*", NodeCondition.DOWN),
        ("allocated+", NodeCondition.BUSY),
        ("mixed+", NodeCondition.BUSY),
        ("allocated+*", NodeCondition.DOWN),
        ("completing", NodeCondition.BUSY),
        ("planned", NodeCondition.PLANNED),
        ("reserved", NodeCondition.RESERVED),
        ("maint", NodeCondition.MAINTENANCE),
        ("maint*", NodeCondition.MAINTENANCE),
        ("drained", NodeCondition.DRAINED),
        ("drained*", NodeCondition.DRAINED),
        ("draining", NodeCondition.DRAINED),
        ("down", NodeCondition.DOWN),
        ("down*", NodeCondition.DOWN),
        ("powering_up", NodeCondition.POWERED_DOWN),
        ("inval", NodeCondition.DOWN),
        ("a_word_of_2040", NodeCondition.UNKNOWN),
    ],
)
def test_node_words(word: str, condition: NodeCondition) -> None:
    assert node_condition(word) is condition


def test_only_plain_idle_is_idle() -> None:
    assert [sign for sign in "*~#!%$@^-" if node_condition(f"idle{sign}") is NodeCondition.IDLE] == []


def slurm(partition: str | None = None) -> Slurm:
    return Slurm(Here(), SchedulerSettings(partition=partition))


def test_nodes_of_the_default_partition_when_none_is_named() -> None:
    answer = (
        "n1|idle|main*|ib,fast|none\nn1|idle|debug|ib,fast|none\n"
        "n2|drained*|main*|(null)|disk | broken\nn3|idle|gpu|(null)|none\n"
    )
    found = slurm().read_nodes(answer)
    assert [(one.node, one.condition.value, one.features, one.reason) for one in found] == [
        ("n1", "idle", ("ib", "fast"), None),
        ("n2", "drained", (), "disk | broken"),
    ]
    assert [one.node for one in slurm("main").read_nodes(answer)] == ["n1", "n2", "n3"]  # sinfo itself filters by partition


def test_poll_rows_and_a_reason_with_bars() -> None:
    answer = b"1000\n7|RUNNING|1000|one|n[1-2]|None\n8|PENDING|1000|two||Resources|or so\n9|NEW_WORD|1001|three||\n"
    reports = {report.scheduler_job_id: report for report in slurm().read_poll(Completed(0, answer, ""))}
    assert reports["7"].state is JobState.RUNNING
    assert reports["7"].nodes == ("n1", "n2")
    assert {one.scheduler_job_id: (one.name, one.mine) for one in reports.values()} == {
        "7": ("one", True), "8": ("two", True), "9": ("three", False),
    }  # fmt: skip
    assert reports["8"].reason == "Resources|or so"
    assert (reports["9"].state, reports["9"].native_state) == (JobState.UNKNOWN, "NEW_WORD")


def test_a_failed_poll_is_no_answer() -> None:
    with pytest.raises(SchedulerError, match="Unable to contact slurm controller"):
        slurm().read_poll(Completed(1, b"", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"))


def test_accounting_rows() -> None:
    rows = slurm().read_history(Completed(0, b"1000\n7|CANCELLED by 1000|n1|0:15|1000|a\n8|NODE_FAIL|n2|1:0|1000|b\n", ""))
    assert [(row.scheduler_job_id, row.state.value, row.exit_code) for row in rows] == [
        ("7", "cancelled", 0),
        ("8", "node_failed", 1),
    ]
    assert slurm().read_history(Completed(1, b"", "Slurm accounting storage is disabled")) == []


@pytest.mark.promise("hpcq reports a suspended job as standing still.")
def test_a_job_that_stands_still_is_said_to() -> None:
    [row] = slurm().read_poll(Completed(0, b"1000\n7|SUSPENDED|1000|one|n1|None\n", ""))
    assert (row.state, row.reason) == (JobState.RUNNING, "suspended: it holds its nodes and does nothing")
    assert row.stands_still
    told = read_job(Listed("Job", "7.head", {"job_state": "S", "comment": "Job run at noon"}))
    assert (told.state, told.reason) == (JobState.RUNNING, "suspended: it does nothing, and PBS may give its nodes to others")
    assert told.stands_still


def test_who_ended_a_job() -> None:
    answer = b"1000\n7|CANCELLED by 1000|n1|0:15|1000|a\n8|CANCELLED by 0|n1|0:15|1000|b\n9|COMPLETED|n1|0:0|1000|c\n"
    assert [row.own_request for row in slurm().read_history(Completed(0, answer, ""))] == [True, False, None]


@pytest.mark.promise("Associations are asked with the cluster's name.")
def test_the_accounting_is_asked_about_this_cluster_only() -> None:
    for command in (slurm().limit_command(), slurm().job_limits_command()):
        script = "scontrol() { echo 'ClusterName             = beta'; }; sacctmgr() { printf '%s ' \"$@\"; echo; }\n" + str(
            command
        )
        asked = [line for line in Here().sh(script).text.splitlines() if "show assoc" in line]
        assert asked
        assert all(" cluster=beta " in one for one in asked), "a database may keep several clusters with the same accounts"


@pytest.mark.promise("A partition that puts jobs of others on the same nodes is refused.")
def test_nobody_else_is_on_the_nodes_or_it_is_refused() -> None:
    for word, shared in (("NO", False), ("EXCLUSIVE", False), ("YES:4", False), ("FORCE:1", False), ("FORCE:4", True)):
        answer = f"PartitionName=main Default=YES OverSubscribe={word} State=UP\n@user 0\n@groups root\n"
        refusals = read_job_limits(answer, partition=None, account=None, qos=None, reservation=None).refusals
        assert bool(refusals) is shared, word
        assert not shared or "OverSubscribe=FORCE:4: jobs of others run on the same nodes" in refusals[0]


@pytest.mark.promise("Where PBS estimates when a waiting job will start, hpcq quotes it.")
@pytest.mark.parametrize(("said", "shown"), [("Mon Nov 23 02:11:05 2026", True), ("UNKNOWN", False)])
def test_a_pbs_that_estimates_a_start_is_quoted(said: str, shown: bool) -> None:
    attributes = {"job_state": "Q", "comment": "Not Running: Queue not started.", "estimated.start_time": said}
    report = read_job(Listed("Job Id", "1.simhead", attributes))
    quoted = f"; PBS expects it to start {said}" if shown else ""
    assert report.reason == f"Not Running: Queue not started.{quoted}"
    assert read_job(Listed("Job Id", "1.simhead", {**attributes, "comment": ""})).reason == quoted.removeprefix("; ")


@pytest.mark.promise("What a wrapper of `squeue` prints is no job of the user.")
def test_what_a_wrapper_prints_is_no_job_of_the_user() -> None:
    """A greeting above the list would count as jobs and fill the user's limit."""
    slurm = Slurm(Here(), SchedulerSettings())
    assert slurm.read_mine("Welcome to the cluster!\nquota: 80 %\n101\n102_[1-4]\n") == 2
    assert slurm.read_mine("") == 0


TWO_TOPOLOGIES = """scontrol() {
    case "$*" in
        *"show partition gpu"*) echo "PartitionName=gpu Default=NO State=UP Topology=topo2 JobDefaults=(null)" ;;
        *"show partition"*) printf 'PartitionName=%s\\n' "gpu Default=NO Topology=topo2 x" "cpu Default=YES State=UP" ;;
        *"show config"*) echo "TopologyParam           = (null)" ;;
        *"show topology topo2") echo "BlockName=b1 BlockIndex=0 Nodes=n[1,3] BlockSize=2" ;;
        *"show topology") printf '%s\\n' "SwitchName=a Level=0 Nodes=n[1-2]" "SwitchName=b Level=0 Nodes=n3" ;;
    esac
}
"""


@pytest.mark.promise("A partition's own topology (Slurm 25.05 and later) goes before the cluster's.")
@pytest.mark.parametrize(
    ("partition", "leaves", "fabric_count"),
    [("gpu", {"n1": "b1", "n3": "b1"}, 0), (None, {"n1": "a", "n2": "a", "n3": "b"}, 2), ("gpu,cpu", {"n3": "b"}, 2)],
)
def test_the_topology_is_the_partitions_own(partition: str | None, leaves: dict[str, str], fabric_count: int) -> None:
    found = topology_of(Here().sh(TWO_TOPOLOGIES + topology_command(partition)).text)
    assert leaves.items() <= dict(found.leaves).items()
    assert len(set(found.fabrics.values())) == fabric_count


def test_jobs_may_span_switches_where_slurm_says_so() -> None:
    tree = "SwitchName=a Level=0 Nodes=n[1-2]\nSwitchName=b Level=0 Nodes=n3\n"
    assert topology_of(tree).fabrics
    assert not topology_of(f"@topology TopoOptional,SwitchAsNodeRank\n{tree}").fabrics
    assert not topology_of("SwitchName=a Nodes=n[1\n").leaves
