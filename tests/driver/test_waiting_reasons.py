"""Every word that Slurm says of a waiting job, and what it means for a job of ours."""

from __future__ import annotations

import pytest

from hpcq.scheduler.slurm.reasons import read_wait
from hpcq.scheduler.types import Wait

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
    "Prolog",
    "RaisedSignal",
    "SystemFailure",
    "TimeLimit",
    "Unknown",
    "AWordOfALaterVersion",
    "ReqNodeNotAvail",
]
ORDINARY += ["ReqNodeNotAvail, Reserved", "", "  ", "Nodes required for job"]
NODE = [
    "NodeDown",
    "ReqNodeNotAvail, UnavailableNodes:n[1-2]",
    "ReqNodeNotAvail, Reserved for maintenance",
    "ReqNodeNotAvail, May be reserved for other job",
    "ReqNodeNotAvail(UnavailableNodes:n3)",
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
]
MEANINGS = {Wait.NEVER: NEVER, Wait.LIMIT: LIMIT, Wait.ORDINARY: ORDINARY, Wait.NODE: NODE}


@pytest.mark.parametrize("wait", MEANINGS, ids=lambda wait: wait.name)
def test_every_word_means_one_thing(wait: Wait) -> None:
    assert {word: read_wait(word) for word in MEANINGS[wait] if read_wait(word) is not wait} == {}


@pytest.mark.parametrize("wait", [Wait.NEVER, Wait.LIMIT], ids=lambda wait: wait.name)
def test_what_slurm_adds_behind_a_word_changes_nothing(wait: Wait) -> None:
    for word in MEANINGS[wait]:
        assert {read_wait(f"{word}{rest}") for rest in ("", " ", ", more", "(more)", " more")} == {wait}, word


def test_a_job_that_was_requeued_and_held_never_starts() -> None:
    assert read_wait("launch failed requeued held") is Wait.NEVER
