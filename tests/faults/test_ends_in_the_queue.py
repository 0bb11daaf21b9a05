"""Jobs that left the queue as they were told, and jobs that it goes on showing after their script has ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpcq.errors import HeldError
from hpcq.runner import cancelling
from hpcq.scheduler.types import JobReport, JobState
from tests.driver.fake_site import FakeJob, FakeSite
from tests.driver.test_driver_on_a_fake_site import site

FIXTURES = (site,)  # pytest looks for them in this module
pytestmark = [pytest.mark.fast, pytest.mark.heavy]
QUEUED_BEHIND = (("n1", "n2"), ("n1", "n3"))


def forgets(job: FakeJob, report: JobReport) -> JobReport | None:
    """A scheduler that does not know ended jobs."""
    return None if job.state.terminal else report


def ended_at_s(site: FakeSite) -> float:
    with site.driver() as driver:
        driver.drive()
        return site.clock.passed_s


@pytest.fixture
def forgetful(site: FakeSite) -> FakeSite:
    """Two jobs, one behind the other, on a scheduler that forgets ended jobs."""
    site = FakeSite(site.folder / "forgetful", pairs=QUEUED_BEHIND, keys="filesystem_delay_s: 90", attempts=1)
    site.scheduler.shown = forgets
    return site


@pytest.mark.promise("A job that `hpcq cancel` told to end and that its scheduler forgot is cancelled, not lost.")
@pytest.mark.promise(
    "A job that was told to end before it started, and that vanished, is not waited for: the driver has its claim."
)
def test_a_cancelled_job_that_vanished_is_cancelled_at_once_and_no_loss(forgetful: FakeSite) -> None:
    """It cannot start any more: the driver has its claim. So nothing is to be waited for."""
    forgetful.at(30, (forgetful.run.path / "cancel").touch)
    assert ended_at_s(forgetful) < 60
    assert sorted(forgetful.ends()) == [("j00001", "cancelled"), ("j00002", "cancelled")]
    [end] = [event for event in forgetful.events() if event["event"] == "ended" and "j00002" in event["tag"]]
    assert end["reason"] == "cancelled by hpcq cancel"


@pytest.mark.promise("A wait for the last files of jobs that left the queue is said, with its end.")
@pytest.mark.promise("A started job that was told to end and left nothing is waited for over two grace periods, not four.")
def test_a_job_that_was_told_to_end_and_left_nothing_is_waited_for_once_and_that_is_said(forgetful: FakeSite) -> None:
    forgetful.scheduler.exit_file_delay_s = 1e9
    forgetful.at(30, (forgetful.run.path / "cancel").touch)
    assert 30 + 90 < ended_at_s(forgetful) < 30 + 3 * 90, "one grace for its files, one for its script"
    assert sorted(forgetful.ends()) == [("j00001", "cancelled"), ("j00002", "cancelled")]
    [words] = [text for text in forgetful.said if "waits for the last files" in text]
    assert words.startswith("sim: j00001: no longer in the queue; waits for the last files until 12:0"), words
    waits = [event["reason"] for event in forgetful.events() if event["event"] == "waiting"]
    assert waits[-1] == "", "and status does not go on saying so"


def test_a_job_that_vanished_and_was_not_told_to_end_is_lost(forgetful: FakeSite) -> None:
    forgetful.scheduler.exit_file_delay_s = 1e9
    forgetful.at(30, lambda: forgetful.scheduler.end(forgetful.scheduler.of_tag("j00001"), JobState.CANCELLED))
    with forgetful.driver() as driver:
        driver.drive()
    assert forgetful.ends()[0] == ("j00001", "lost")


@pytest.mark.promise("`hpcq cancel` says that it waits for a living driver, and for how long.")
def test_cancel_says_that_it_waits_for_a_living_driver_and_for_how_long(
    forgetful: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def driven_elsewhere(*_: object) -> None:
        if forgetful.clock.passed_s < 20:
            raise HeldError("journal.jsonl.lock: held by pid 1")

    monkeypatch.setattr("hpcq.runner.link.link_group.drive", driven_elsewhere)
    monkeypatch.setattr(cancelling, "still_there", lambda *_: [])
    said: list[str] = []
    assert cancelling.cancel_run(forgetful.run, said.append, forgetful.clock) == []
    assert said == ["sim: its driver lives and ends the jobs; waits for it for 90 s at most"]


def never_learns(job: FakeJob, report: JobReport) -> JobReport:
    """The end of a script does not reach the queue; an order does."""
    if job.state in {JobState.COMPLETED, JobState.FAILED}:
        return replace(report, state=JobState.RUNNING, native_state="R")
    return report


@pytest.mark.promise("A job whose script has ended and that its queue goes on showing as running is told to end.")
@pytest.mark.promise("A job that is told to end only because its script has ended is judged by its exit file.")
@pytest.mark.parametrize("measured", [True, False])
def test_a_job_whose_script_has_ended_and_that_its_queue_shows_as_running_is_told_to_end(
    site: FakeSite, measured: bool
) -> None:
    """With its nodes it would be held until its time limit. What it measured counts, and its exit file says how it ended."""
    site = FakeSite(site.folder / "deaf", keys="filesystem_delay_s: 20", attempts=1)
    scheduler = site.scheduler
    told: list[float] = []

    def shown(job: FakeJob, report: JobReport) -> JobReport:
        if any(tag == job.tag for _, tag, _ in scheduler.orders):
            told.append(site.clock.passed_s)
            return replace(report, state=JobState.CANCELLED, native_state="F")
        return never_learns(job, report)

    scheduler.shown = shown

    def fail() -> None:
        for job in scheduler.live():
            scheduler.end(job, JobState.FAILED)

    if not measured:
        site.at(30, fail)
    assert ended_at_s(site) < 60 + 4 * 20
    assert sorted(site.ends()) == [(job, "completed" if measured else "failed") for job in ("j00001", "j00002")]
    assert told[0] >= (60 if measured else 30) + 20, "not before a grace period"
    said = [text for text in site.said if "still shows it as running; hpcq orders its end" in text]
    assert len(said) == 2, site.said
