"""Both real Slurm clusters of the lab keep the scheduler contract; alpha has accounting, beta has none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpcq.scheduler.types import JobKey, JobState, Submission
from tests.lab.lab_fixture import RunningLab
from tests.schedulers.scheduler_contract import PROMISES, TERMINAL, Site, slurm_site, the_time_limit_ends_a_job

pytestmark = pytest.mark.lab


@pytest.fixture(params=["alpha", "beta"])
def site(lab: RunningLab, request: pytest.FixtureRequest) -> Site:
    lab.at_rest(request.param)
    return slurm_site(lab, request.param)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_promise(site: Site, promise: Callable[[Site], None]) -> None:
    promise(site)


@pytest.mark.long
def test_the_time_limit(site: Site) -> None:
    the_time_limit_ends_a_job(site)


def test_a_refusal_is_quoted(site: Site) -> None:
    script = site.script("refused", "exit 0")
    site.scheduler.transport.sh(f"sed -i 's/--partition=.*/--partition=nowhere/' {script}")
    [answer] = site.scheduler.submit([Submission("refused", script, (), 60)])
    assert answer.scheduler_job_id is None
    assert "invalid partition specified: nowhere" in answer.message


def test_many_jobs_in_one_submission_and_one_poll(site: Site) -> None:
    names = [f"many{number}" for number in range(12)]
    nodes = tuple(sorted(state.node for state in site.scheduler.nodes())[:2])
    submissions = [Submission(name, site.script(name, "exit 0", nodes), nodes, 60) for name in names]
    before = site.scheduler.query_count
    answers = site.scheduler.submit(submissions)
    assert [answer.tag for answer in answers] == names
    ids = [answer.scheduler_job_id for answer in answers if answer.scheduler_job_id]
    assert len(set(ids)) == 12
    site.scheduler.poll([JobKey(scheduler_job_id, name) for scheduler_job_id, name in zip(ids, names, strict=True)])
    site.tags.update(zip(ids, names, strict=True))
    assert site.scheduler.query_count == before + 1
    for scheduler_job_id in ids:
        assert site.wait(scheduler_job_id, *TERMINAL).state is JobState.COMPLETED


@pytest.mark.long
def test_a_job_that_cannot_start_in_time_removes_itself(site: Site) -> None:
    """As at the end of a campaign's hours: `--deadline` is when the job would have to end."""
    first = site.submit("first", "sleep 300")
    assert first.scheduler_job_id
    site.wait(first.scheduler_job_id, JobState.RUNNING)
    late = Site(site.scheduler, site.folder, f"{site.head}\n#SBATCH --deadline=now+75", site.tags)
    answer = late.submit("late", "exit 0")
    assert answer.scheduler_job_id, answer
    try:
        assert late.wait(answer.scheduler_job_id, *TERMINAL, within_s=240).state is JobState.DEADLINE
    finally:
        site.scheduler.cancel([site.key(first.scheduler_job_id), site.key(answer.scheduler_job_id)])
