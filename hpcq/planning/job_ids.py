"""Names of jobs: j00001 measures the first pair of the plan, g00001 is the first allocation shared by several pairs."""

from __future__ import annotations


def job_id_of(pair_index: int) -> str:
    """The name of the job that measures the pair with this index in the plan."""
    return f"j{pair_index + 1:05d}"


def pair_index_of(job_id: str) -> int:
    """The index in the plan of the pair that a job measures: job j00001 measures pair 0."""
    return int(job_id[1:]) - 1


def shared_job_id(number: int) -> str:
    """The name of the `number`th shared allocation of a plan, counted from 1."""
    return f"g{number:05d}"


def is_shared(job_id: str) -> bool:
    """Whether several pairs share the allocation of this job."""
    return job_id.startswith("g")
