"""Every word that Slurm says of a waiting job, and what it means for a job of ours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpcq.definition.model import Budget
from hpcq.run_folder.journal import Attempt
from hpcq.runner.queue.yield_policy import YieldPolicy
from hpcq.scheduler.slurm.reading import read_wait
from hpcq.scheduler.types import FreeUntil, JobReport, JobState, NodeCondition, NodeState, QueueSnapshot, Wait

pytestmark = pytest.mark.fast

NEVER = [
    "AccountNotAllowed",
    "AssociationTimeLimit",
    "BadConstraints",
    "DeadLine",
    "DependencyNeverSatisfied",
    "InactiveLimit",
    "InvalidAccount",
    "InvalidQOS",
    "JobHoldMaxRequeue",
    "MaxMemPerLimit",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "QOSNotAllowed",
    "QOSTimeLimit",
    "QOSUsageThreshold",
    "RequiresReservation",
    "ReservationDeleted",
    "ReservationInvalid",
    "AssocMaxWallDurationPerJobLimit",
    "AssocMaxCpuPerJobLimit",
    "AssocMaxNodePerJobLimit",
    "AssocMaxMemPerJob",
    "AssocMaxCPUMinutesPerJobLimit",
    "QOSMaxCpuPerJobLimit",
    "QOSMaxNodePerJobLimit",
    "QOSMaxWallDurationPerJobLimit",
    "QOSMaxCpuPerNode",
    "QOSMaxGRESPerNode",
    "QOSMinCpuNotSatisfied",
    "QOSMinGRES",
    "QOSMinMemory",
    "AssocGrpCPUMinutesLimit",
    "AssocGrpBillingMinutes",
    "AssocGrpGRESMinutes",
    "QOSGrpCPUMinutesLimit",
    "QOSGrpMemMinutes",
]
LIMIT = [
    "AssociationJobLimit",
    "AssociationResourceLimit",
    "FrontEndDown",
    "JobArrayTaskLimit",
    "JobHeldAdmin",
    "JobHeldUser",
    "Licenses",
    "PartitionDown",
    "PartitionInactive",
    "QOSJobLimit",
    "QOSResourceLimit",
    "Reservation",
    "AssocGrpCpuLimit",
    "AssocGrpJobsLimit",
    "AssocGrpNodeLimit",
    "AssocGrpMemLimit",
    "AssocGrpCPURunMinutesLimit",
    "AssocGrpSubmitJobsLimit",
    "AssocGrpWallLimit",
    "AssocMaxJobsLimit",
    "AssocMaxSubmitJobLimit",
    "QOSGrpCpuLimit",
    "QOSGrpJobsLimit",
    "QOSGrpNodeLimit",
    "QOSGrpCPURunMinutesLimit",
    "QOSMaxJobsPerUserLimit",
    "QOSMaxCpuPerUserLimit",
    "QOSMaxNodePerUserLimit",
    "QOSMaxSubmitJobPerUserLimit",
    "MaxJobsPerAccount",
    "MaxCpuPerAccount",
    "MaxNodePerAccount",
    "MaxCpuRunMinsPerUser",
    "MaxNodeRunMinsPerAccount",
    "AccountingPolicy",
    "PartitionConfig",
    "Constraints",
    "MaxPoweredUpNodes",
    "NvidiaImexChannels",
    "BurstBufferOperation",
    "BurstBufferResources",
    "BurstBufferStageIn",
]
ORDINARY = [
    "None",
    "Priority",
    "Resources",
    "BeginTime",
    "Cleaning",
    "Dependency",
    "FedJobLock",
    "JobLaunchFailure",
    "NonZeroExitCode",
    "MpiPortsBusy",
    "OutOfMemory",
    "Prolog",
    "SchedDefer",
    "WaitingForScheduling",
    "RaisedSignal",
    "SystemFailure",
    "TimeLimit",
    "ReqNodeNotAvail",
]
ORDINARY += ["ReqNodeNotAvail, Reserved", "", "  ", "(null)"]
NODE = [
    "NodeDown",
    "ReqNodeNotAvail, UnavailableNodes:n[1-2]",
    "ReqNodeNotAvail, Reserved for maintenance",
    "ReqNodeNotAvail, May be reserved for other job",
    "ReqNodeNotAvail(UnavailableNodes:n3)",
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
]
UNKNOWN = ["Unknown", "AWordOfALaterVersion", "BlockMaxError", "Nodes required for job"]
MEANINGS = {Wait.NEVER: NEVER, Wait.LIMIT: LIMIT, Wait.ORDINARY: ORDINARY, Wait.NODE: NODE, Wait.UNKNOWN: UNKNOWN}


@pytest.mark.promise("A job that asks for more time than its partition gives is not waited for.")
@pytest.mark.promise("A limit that passes when other jobs end is waited for.")
@pytest.mark.promise("Minutes that are running count as a limit that passes; minutes that are used up do not.")
@pytest.mark.promise("A node that went down under a waiting job is told apart from one in use.")
@pytest.mark.parametrize("wait", MEANINGS, ids=lambda wait: wait.name)
def test_every_word_means_one_thing(wait: Wait) -> None:
    assert {word: read_wait(word) for word in MEANINGS[wait] if read_wait(word) is not wait} == {}


@pytest.mark.parametrize("wait", [Wait.NEVER, Wait.LIMIT], ids=lambda wait: wait.name)
def test_what_slurm_adds_behind_a_word_changes_nothing(wait: Wait) -> None:
    for word in MEANINGS[wait]:
        assert {read_wait(f"{word}{rest}") for rest in ("", " ", ", more", "(more)", " more")} == {wait}, word


def test_a_job_that_was_requeued_and_held_never_starts() -> None:
    assert read_wait("launch failed requeued held") is Wait.NEVER
    assert read_wait("user env retrieval failed requeued held") is Wait.NEVER


UNAVAILABLE = "ReqNodeNotAvail, UnavailableNodes:n3"
FIRST = Attempt(tag="first", job="j00001", attempt_no=1, nodes=("n1", "n3"), pairs=(0,), scheduler_job_id="16")
SECOND = Attempt(tag="second", job="j00002", attempt_no=1, nodes=("n3", "n2"), pairs=(1,), scheduler_job_id="17")


def queued(scheduler_job_id: str, wait: Wait = Wait.ORDINARY, reason: str = "None") -> JobReport:
    return JobReport(scheduler_job_id, JobState.QUEUED, "PENDING", reason, wait=wait)


def withdrawn(*attempts: Attempt, nodes: list[NodeState] | None = None, max_wait_s: float = 600, **waits: Wait) -> list[str]:
    """The tags that are withdrawn at the third poll with the same answer."""
    policy = YieldPolicy(Budget(), max_wait_s=max_wait_s)
    reports = {
        one.scheduler_job_id: queued(one.scheduler_job_id, waits.get(one.tag, Wait.ORDINARY), UNAVAILABLE) for one in attempts
    }
    for second in range(3):
        found = policy.to_withdraw(attempts, QueueSnapshot(reports, nodes), None, float(second))
    return [one.tag for one in found]


def test_a_job_whose_node_is_unavailable_is_withdrawn() -> None:
    assert withdrawn(SECOND, second=Wait.NODE) == ["second"]


@pytest.mark.promise(
    "A queued job is withdrawn for an unavailable node, not for one that another job of its own run is about to get."
)
def test_a_node_that_another_job_of_the_run_is_about_to_get_is_not_unavailable() -> None:
    """Slurm 22.05 says ReqNodeNotAvail of it for seconds where both jobs are in a reservation."""
    assert withdrawn(FIRST, SECOND, second=Wait.NODE) == []


def test_jobs_that_share_an_unavailable_node_are_both_withdrawn() -> None:
    assert withdrawn(FIRST, SECOND, first=Wait.NODE, second=Wait.NODE) == ["first", "second"]


def test_a_node_that_is_seen_to_be_down_is_unavailable_whoever_else_waits_for_it() -> None:
    down = [NodeState("n3", NodeCondition.DOWN, "down")]
    assert withdrawn(FIRST, SECOND, nodes=down, second=Wait.NODE) == ["second"]
    policy = YieldPolicy(Budget(), max_wait_s=600)
    policy.to_withdraw([SECOND], QueueSnapshot({"17": queued("17", Wait.NODE, UNAVAILABLE)}), None, 0.0)
    assert policy.wants_nodes([SECOND], 1.0), "so the next poll asks for the nodes"


@pytest.mark.promise(
    "A queued job that would not end before a reservation of its node begins is withdrawn, with both in its words."
)
@pytest.mark.parametrize("wait", [Wait.NODE, Wait.ORDINARY], ids=lambda wait: wait.name)
def test_a_job_before_a_reservation_is_withdrawn_with_its_name(wait: Wait) -> None:
    """Slurm says "May be reserved for other job", and PBS "Insufficient amount of resource: host"."""
    bounded = FreeUntil("reservation swap begins at 10:10:00", 540.0)
    nodes = [NodeState("n2", NodeCondition.IDLE, "idle"), NodeState("n3", NodeCondition.IDLE, "idle", bounded=bounded)]
    policy = YieldPolicy(Budget(), max_wait_s=600)
    snapshot = QueueSnapshot({"17": queued("17", wait, "Not Running")}, nodes)
    long, short = replace(SECOND, walltime_s=600), replace(SECOND, walltime_s=120)
    assert policy.to_withdraw([long], snapshot, None, 0.0) == []
    [gone] = policy.to_withdraw([long], snapshot, None, 5.0)
    words = "n3 is idle: reservation swap begins at 10:10:00, before a job of 600 s would end"
    assert gone.reason == f"queued with Not Running: {words}"
    assert (gone.retry_later, gone.final, gone.taken) == (True, False, False)
    if wait is Wait.ORDINARY:
        assert [policy.to_withdraw([short], snapshot, None, float(second)) for second in (10, 15, 20)] == [[], [], []]


@pytest.mark.promise("A node that the scheduler plans for another job of the run does not count as taken.")
def test_a_node_that_is_planned_for_another_job_of_the_run_is_not_taken() -> None:
    """Slurm calls a node planned in the moment between two of our jobs."""
    planned, busy = (
        [
            NodeState("n3", one, one.value),
            NodeState("n1", NodeCondition.IDLE, "idle"),
            NodeState("n2", NodeCondition.IDLE, "idle"),
        ]
        for one in (NodeCondition.PLANNED, NodeCondition.BUSY)
    )
    assert withdrawn(FIRST, SECOND, nodes=planned, max_wait_s=0) == []
    assert withdrawn(SECOND, nodes=planned, max_wait_s=0) == ["second"]
    assert withdrawn(FIRST, SECOND, nodes=busy, max_wait_s=0) == ["first", "second"]


@pytest.mark.promise("Jobs that wait for a limit which jobs of their own run fill are not given up between two of these.")
def test_patience_with_a_limit_begins_when_nothing_of_the_run_runs() -> None:
    """A user may run one job at a time: the second waits as long as the first runs, and is next."""
    policy = YieldPolicy(Budget(), max_wait_s=600)
    limited = {"17": queued("17", Wait.LIMIT, "QOSMaxJobsPerUserLimit")}
    running = replace(FIRST, state=JobState.RUNNING)
    for now_s in (0.0, 400.0, 800.0):
        assert policy.to_withdraw([running, SECOND], QueueSnapshot(limited), None, now_s) == []
    for now_s in (805.0, 1200.0, 1400.0):
        assert policy.to_withdraw([SECOND], QueueSnapshot(limited), None, now_s) == []
    [gone] = policy.to_withdraw([SECOND], QueueSnapshot(limited), None, 1405.0)
    assert gone.waited
