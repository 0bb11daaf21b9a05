"""Waves of which nothing arrives, many forgotten jobs, and waits whose reason changes, on a fake site with its own clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hpcq.run_folder.journal import Attempt
from hpcq.runner.cancelling import still_there
from hpcq.runner.queue.yield_policy import RetryLater
from hpcq.scheduler.types import JobKey, JobReport, JobState, NodeCondition, NodeState, Submission, Submitted, Wait
from hpcq.transport import Completed
from tests.driver.fake_site import FakeJob, FakeSite, undetermined
from tests.driver.test_claim import files_of
from tests.driver.test_driver_on_a_fake_site import site

FIXTURES = (site,)  # pytest looks for them in this module
pytestmark = pytest.mark.fast


# -- waves ---------------------------------------------------------------------------------------------------------------


@pytest.mark.promise("If nothing of a wave arrives, the next one follows after a growing pause; after twelve hpcq gives up.")
@pytest.mark.heavy
def test_waves_of_which_nothing_arrives_come_ever_less_often_and_end(site: FakeSite) -> None:
    """The submit command is killed each time; once a wave followed every ten seconds, without end."""
    site.scheduler.answer = lambda one: undetermined(one.tag)
    site.drive()
    waves = sorted({at for at, _ in site.scheduler.submissions})
    assert len(waves) == 12
    assert waves[1] - waves[0] > 30
    assert waves[-1] - waves[-2] > 600
    said = [text for text in site.said if "nothing of the last wave arrived: no answer" in text]
    assert ["submitting again in 30 s" in said[0], "submitting again in 60 s" in said[1]] == [True, True]
    assert set(site.reasons().values()) == {"nothing of the last wave arrived: no answer from the scheduler"}


@pytest.mark.promise("If a wave's answers were lost but its jobs are found by name, the next wave follows without a pause.")
def test_a_wave_that_is_found_by_name_is_followed_without_a_pause(site: FakeSite) -> None:
    def lost_answer(one: object) -> object:
        site.scheduler.take(one)  # type: ignore[arg-type]
        return undetermined(one.tag)  # type: ignore[attr-defined]

    site.scheduler.answer = lost_answer  # type: ignore[assignment]
    site.drive()
    assert site.ends() == [("j00001", "completed"), ("j00002", "completed")]
    assert not [text for text in site.said if "submitting again" in text]


@pytest.mark.promise("hpcq rejects an id that two jobs would share and finds the jobs by name.")
def test_an_id_that_two_jobs_would_share_is_none(site: FakeSite) -> None:
    """A wrapper prints the same words for each job, which read like an id: the jobs are found by their names."""

    def one_id(one: Submission) -> Submitted:
        site.scheduler.take(one)
        return Submitted(one.tag, "101")

    site.scheduler.answer = one_id
    site.drive()
    assert site.ends() == [("j00001", "completed"), ("j00002", "completed")]
    assert len(site.scheduler.submissions) == 2
    found = {
        one["tag"]: one["scheduler_job_id"]
        for one in site.events()
        if one["event"] == "submitted" and one["scheduler_job_id"] != "unknown"
    }
    assert sorted(found.values()) == ["101", "102"], site.events()


@pytest.mark.promise("A forgotten job that hpcq ended itself was not cancelled by an operator: another try follows.")
@pytest.mark.heavy
def test_a_forgotten_job_that_hpcq_ended_was_not_cancelled_by_an_operator(site: FakeSite) -> None:
    """It is forgotten until hpcq has ordered its end; then the controller shows it as cancelled."""

    def until_it_ended(job: FakeJob, report: JobReport) -> JobReport | None:
        return None if "j00001-1" in job.tag and not job.state.terminal else report

    site.scheduler.shown = until_it_ended
    site.scheduler.run_s = 5000.0
    site.at(600, lambda: setattr(site.scheduler, "run_s", 60.0))
    site.drive()
    assert ("j00001", "lost") in site.ends()
    assert ("j00001", "completed") in site.ends(), "another try follows; an operator's cancel would be final"


@pytest.mark.heavy
@pytest.mark.promise("Many jobs that a scheduler has forgotten cost one claim, one order and one request to end.")
def test_many_forgotten_jobs_cost_one_order(tmp_path: Path) -> None:
    """A controller back on an old state forgets all jobs at once: it is not asked for each of them."""
    pairs = [(f"n{number}", f"n{number + 1}") for number in range(1, 16, 2)]
    site = FakeSite(tmp_path, node_count=16, pairs=pairs, attempts=1, keys="filesystem_delay_s: 5")
    site.scheduler.run_s = 1e9
    site.scheduler.shown = lambda *_: None
    site.scheduler.obeys = lambda _: False
    orders: list[int] = []
    scripts: list[str] = []
    cancel, transport_sh = site.scheduler.cancel, site.scheduler.transport.sh

    def counted(jobs: Sequence[JobKey], *, queued_only: bool = False) -> str | None:
        orders.append(len(jobs))
        return cancel(jobs, queued_only=queued_only)

    def sh(script: str, *, timeout_s: float = 120.0, stdin: bytes = b"") -> Completed:
        scripts.append(script)
        return transport_sh(script, timeout_s=timeout_s, stdin=stdin)

    site.scheduler.cancel = counted  # type: ignore[method-assign]
    site.scheduler.transport.sh = sh  # type: ignore[method-assign]
    site.drive()
    assert [outcome for _, outcome in site.ends()] == ["lost"] * 8
    assert orders[0] == 8
    assert len(orders) < 8, "its late jobs are looked for once a minute"
    assert sum("touch -- " in script for script in scripts) == 1
    assert sum("mkdir" in script and "/claim" in script for script in scripts) == 1


@pytest.mark.promise("A claim counts as soon as its folder is there, also if a full quota lets nothing be written into it.")
@pytest.mark.promise("The claims of forgotten jobs count as soon as their folders are there.")
@pytest.mark.parametrize("all_at_once", [False, True])
def test_a_claim_counts_although_its_mark_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_at_once: bool
) -> None:
    """A quota with room for one more folder and no file: the script finds the claim, so nothing will be measured."""
    attempt = Attempt(tag="tag", job="j00001", attempt_no=1, nodes=("n1", "n2"), pairs=(0,))
    files = files_of(tmp_path)
    (Path(files.root) / attempt.folder).mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mkdir").write_text('#!/bin/sh\n/bin/mkdir "$@" && /bin/mkdir "$1/driver"\n')
    (tmp_path / "bin" / "mkdir").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert (files.claim_all([attempt]) == {"tag"}) if all_at_once else files.claim(attempt).taken
    assert (Path(files.root) / attempt.folder / "claim").is_dir()


# -- waits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.promise("A node that briefly does not respond does not shorten the wait for the user who occupies it.")
def test_a_node_that_is_silent_for_a_moment_ends_no_patience(tmp_path: Path) -> None:
    """Users have it for 100 s; then it does not respond for 8 s. Down for so long it is not."""
    site = FakeSite(tmp_path, pairs=(("n1", "n2"),), keys="max_wait_s: 600")
    site.scheduler.node_states["n1"] = (NodeCondition.BUSY, "allocated")
    site.at(100, lambda: site.scheduler.node_states.update(n1=(NodeCondition.DOWN, "allocated*")))
    site.at(108, lambda: site.scheduler.node_states.pop("n1"))
    site.drive()
    assert site.ends() == [("j00001", "completed")]


@pytest.mark.promise("A reboot is counted from when the node went down, however long it was busy before.")
@pytest.mark.promise("When the reason of a wait changes, hpcq reports it again with the new end.")
def test_a_reboot_is_counted_from_when_the_node_went_down(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, pairs=(("n1", "n2"),), keys="max_wait_s: 600")
    site.cluster = replace(site.cluster, reboot_within_s=300.0)
    site.scheduler.node_states["n1"] = (NodeCondition.BUSY, "allocated")
    site.at(400, lambda: site.scheduler.node_states.update(n1=(NodeCondition.DOWN, "down*")))
    site.at(650, lambda: site.scheduler.node_states.pop("n1"))
    site.drive()
    assert site.ends() == [("j00001", "completed")]
    said = [text for text in site.said if "waits since" in text]
    assert "waits since 12:00:00, until 12:10:00" in said[0]
    assert "(n1 down*, n2 idle); waits since 12:00:00, until 12:11:4" in said[1], (
        "said again, because it waits for something else"
    )


@pytest.mark.promise("A node that stays down is given up, however long it was busy before.")
def test_a_node_that_stays_down_is_given_up_however_long_it_was_busy_before(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, pairs=(("n1", "n2"),), keys="max_wait_s: 600")
    site.scheduler.node_states["n1"] = (NodeCondition.BUSY, "allocated")
    site.at(400, lambda: site.scheduler.node_states.update(n1=(NodeCondition.DOWN, "down*")))
    site.drive()
    assert 430 <= site.clock.passed_s < 450
    assert site.reasons()["j00001"].startswith("not idle for 4")


def waits_with(site: FakeSite, words: str, wait: Wait, until_s: float = 1e9) -> None:
    """The scheduler starts no job before then, and says this of those that wait."""
    start = site.scheduler._start

    def says(_: FakeJob, report: JobReport) -> JobReport:
        return replace(report, wait=wait, reason=words) if report.state is JobState.QUEUED else report

    site.scheduler.shown = says
    site.scheduler._start = lambda job: start(job) if site.clock.passed_s >= until_s else None  # type: ignore[method-assign]


@pytest.mark.promise(
    "Words that hpcq does not know, of a job whose nodes are free, are told at once and bounded by max_wait_s."
)
@pytest.mark.parametrize("wait", [Wait.UNKNOWN, Wait.LIMIT])
def test_a_wait_in_other_words_is_told_at_once_and_ends(tmp_path: Path, wait: Wait) -> None:
    site = FakeSite(tmp_path, pairs=(("n1", "n2"),), keys="max_wait_s: 300")
    waits_with(site, "BudgetOfTheMoon", wait)
    site.drive()
    [told] = [(at, text) for at, text in site.said_at if "the scheduler says" in text]
    assert told[0] < 5
    assert "j00001: the scheduler says BudgetOfTheMoon; waits since 12:00:0" in told[1]
    assert "until 12:05:0" in told[1]
    assert site.reasons() == {}
    assert site.ends() == [("j00001", "cancelled")]
    assert any("queued with BudgetOfTheMoon for 30" in text for text in site.said)
    assert site.clock.passed_s < 400


def test_words_that_pass_are_no_longer_told(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, pairs=(("n1", "n2"),), keys="max_wait_s: 300")
    waits_with(site, "BudgetOfTheMoon", Wait.UNKNOWN, until_s=60)
    waits = [event["reason"] for event in site.drive() if event["event"] == "waiting"]
    assert ["BudgetOfTheMoon" in waits[0], waits[1:]] == [True, [""]]
    assert site.ends() == [("j00001", "completed")]


@pytest.mark.promise(
    "A job that waits behind somebody else's job gives back its other node after two looks, and is tried again."
)
def test_a_job_behind_somebody_elses_job_is_withdrawn_after_two_looks(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, pairs=(("n1", "n2"),), keys="max_wait_s: 600")

    def taken_meanwhile(one: Submission) -> None:
        if len(site.scheduler.submissions) == 1:
            site.scheduler.node_states["n1"] = (NodeCondition.BUSY, "allocated")

    site.scheduler.answer = taken_meanwhile
    site.at(120, lambda: site.scheduler.node_states.pop("n1"))
    site.drive()
    gone = next(at for at, text in site.said_at if "withdrawn" in text)
    assert gone < 15
    assert site.ends() == [("j00001", "withdrawn"), ("j00001", "completed")]
    assert "behind somebody else's job: n1 is allocated" in "".join(site.said)


@pytest.mark.promise("A job that waits for a node of another of our own jobs, of whatever run, just waits.")
@pytest.mark.parametrize("whose", ["this run's", "another run's"])
def test_a_job_that_waits_for_one_of_our_own_just_waits(tmp_path: Path, whose: str) -> None:
    """Slurm says UnavailableNodes of a node that is in use; it is shown as completing after the job's end."""
    pairs = (("n1", "n2"), ("n1", "n3"), ("n2", "n3")) if whose == "this run's" else (("n1", "n3"),)
    site = FakeSite(tmp_path, pairs=pairs, keys="max_wait_s: 600")

    def unavailable(job: FakeJob, report: JobReport) -> JobReport:
        waits = report.state is JobState.QUEUED
        return replace(report, wait=Wait.NODE, reason="ReqNodeNotAvail, UnavailableNodes:n1") if waits else report

    site.scheduler.shown = unavailable
    if whose == "another run's":

        def other_run(one: Submission) -> None:
            if len(site.scheduler.submissions) == 1:
                job = FakeJob("7", "other", tmp_path, ("n1",), 60.0, -1.0, state=JobState.RUNNING, started_s=0.0)
                (tmp_path / "exit.json").write_text("{}")
                site.scheduler.jobs["7"] = job

        site.scheduler.answer = other_run
    else:
        site.scheduler.poll_lists_all = False  # PBS: only those that it is asked for
        node_of = site.scheduler._node

        def completing(name: str) -> NodeState:
            ended = any(
                name in job.nodes and 0 <= site.clock.passed_s - job.ended_s < 8 for job in site.scheduler.jobs.values()
            )
            return NodeState(name, NodeCondition.BUSY, "completing") if ended else node_of(name)

        site.scheduler._node = completing  # type: ignore[method-assign]
    site.drive()
    assert [outcome for _, outcome in site.ends()] == ["completed"] * len(pairs)


def test_a_node_that_somebody_has_again_and_again_is_given_up_after_an_hour() -> None:
    later = RetryLater()
    for count in range(20):
        later.hold([0], 100.0 * count, "in use", taken=True)
        assert not later.too_often([0], 100.0 * count)
    later.hold([0], 3600.0, "in use", taken=True)
    assert later.too_often([0], 3600.0)


# -- cancel --------------------------------------------------------------------------------------------------------------


@pytest.mark.promise("`hpcq cancel` names and ends a job that the queue shows in a word that hpcq does not know.")
def test_the_verb_names_a_job_that_the_queue_shows_in_an_unknown_word(site: FakeSite) -> None:
    def newer_word(job: FakeJob, report: JobReport) -> JobReport:
        return replace(report, state=JobState.UNKNOWN, native_state="TELEPORTING") if job.live else report

    site.drive()
    job = site.scheduler.of_tag("j00001-1")
    with site.driver() as driver:
        driver.record.note("attempt", tag="hpcq-x-2", job="j00001", attempt_no=2, nodes=["n1", "n2"])
        driver.record.note("submitted", tag="hpcq-x-2", scheduler_job_id=job.scheduler_job_id)
    job.tag, job.state = "hpcq-x-2", JobState.RUNNING
    site.scheduler.run_s = 1e9
    site.scheduler.shown = newer_word
    site.scheduler.obeys = lambda _: site.clock.passed_s > 600
    left = still_there(site.run, site.said.append, site.clock, lambda *_: site.scheduler)
    assert left == [f"sim: hpcq-x-2 ({job.scheduler_job_id} TELEPORTING)"]
    site.clock.sleep(600)
    assert still_there(site.run, site.said.append, site.clock, lambda *_: site.scheduler) == []
    assert job.state is JobState.CANCELLED
