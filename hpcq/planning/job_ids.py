"""What jobs are called: j00001 measures the first pair of the plan, g00001 is the first allocation that several pairs share."""

from __future__ import annotations


def job_id_of(pair_index: int) -> str:
    """The job of the pair at this place of the plan."""
    return f"j{pair_index + 1:05d}"


def pair_index_of(job_id: str) -> int:
    """Where the pair of a job stands in the plan: job j00001 is pair 0."""
    return int(job_id[1:]) - 1


def shared_job_id(number: int) -> str:
    """The `number`th allocation, from 1, that several pairs of a plan share."""
    return f"g{number:05d}"


def is_shared(job_id: str) -> bool:
    """Whether several pairs share the allocation of this job."""
    return job_id.startswith("g")
