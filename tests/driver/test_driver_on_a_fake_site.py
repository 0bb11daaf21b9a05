"""Each sequence of trouble against a scheduler in this process and a clock that only waiting moves."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from hpcq.errors import SchedulerError
from hpcq.runner.queue.attempt_files import AttemptFiles
from hpcq.scheduler.types import Fate, JobReport, JobState, NodeCondition, Submission, Submitted
from tests.driver.fake_site import FakeJob, FakeSite, steps_of, undetermined

pytestmark = pytest.mark.fast

SLURM_GRACE_S = 90.0


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    return FakeSite(tmp_path)


def test_everything_is_measured_once(site: FakeSite) -> None:
    events = site.drive()
    assert site.ends() == [("j00001", "completed"), ("j00002", "completed")]
    assert steps_of(events) == 2
    assert site.clock.passed_s < 90


@pytest.mark.heavy
@pytest.mark.promise("A node that fails with three partners that are fine with others is measured no further.")
def test_a_node_that_failed_with_three_good_partners_is_measured_no_further(tmp_path: Path) -> None:
    nodes = [f"n{number}" for number in range(1, 8)]
    pairs = [pair for one, other in combinations(nodes, 2) for pair in ((one, other), (other, one))]
    site = FakeSite(tmp_path, node_count=7, pairs=pairs)
    site.scheduler.failing = {"n2"}
    site.plan = replace(site.plan, decided_after=3)
    site.drive()
    ends = dict(site.ends())
    mine = {f"j{place:05d}" for place, pair in enumerate(pairs, 1) if "n2" in pair}
    assert all(ends[job] == "completed" for job in {f"j{place:05d}" for place in range(1, len(pairs) + 1)} - mine)
    assert 3 <= sum(ends.get(job) == "completed" for job in mine) <= 6, "of twelve; some ran before their partners were known"
    reasons = set(site.reasons().values()) | {one["reason"] for one in site.events() if one["event"] == "withdraw"}
    assert {reason.partition(" failed with ")[0] for reason in reasons} == {"decided: n2"}


@pytest.mark.promise("Suspects that get no nodes are waited for within bounds, and their rows say so.")
def test_suspects_wait_for_nodes_within_bounds(tmp_path: Path) -> None:
    """One pair's nodes are never idle, somebody takes those of the other's job: both are given up, and say why."""
    site = FakeSite(tmp_path, node_count=4, pairs=[("n1", "n2")], keys="max_wait_s: 86400")
    site.plan = site.plan.confirming([("n3", "n1"), ("n4", "n2")])
    busy = (NodeCondition.BUSY, "ALLOCATED")
    site.scheduler.node_states = {"n3": busy}
    site.scheduler.answer = lambda _: site.scheduler.node_states.update(n4=busy)
    with site.driver() as driver:
        driver.drive([1, 2], patience_s=900)
        driver.finish()
    assert 900 <= site.clock.passed_s < 1100
    words = "no nodes came free for it within 900 s"
    assert site.reasons() == {"j00002": words, "j00003": words}, "what is not due is left alone"
    assert {outcome for _, outcome in site.ends()} == {"withdrawn"}


# -- identity ----------------------------------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize(("name", "mine"), [("", False), ("my own other job", True)])
def test_an_id_that_now_belongs_to_another_job_is_not_believed(site: FakeSite, name: str, mine: bool) -> None:
    """A controller that lost its state hands ids out again: the stranger's end is not ours, and its job is left alone."""

    def stranger(job: FakeJob, report: JobReport) -> JobReport:
        if "j00001-1" in job.tag and site.clock.passed_s > 20:
            return replace(report, name=name or job.tag, mine=mine, state=JobState.CANCELLED)
        return report

    site.scheduler.shown = stranger
    site.scheduler.exit_file_delay_s = 30.0
    site.drive()
    assert ("j00001", "cancelled") not in site.ends()
    assert site.ends().count(("j00001", "completed")) == 1


@pytest.mark.promise("A claim that failed leaves a submission undetermined; no id is made up.")
@pytest.mark.heavy
def test_a_claim_that_failed_leaves_it_undetermined(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that fails for another reason than a started job (quota) proves nothing: no id is made up, nothing runs twice."""
    site.scheduler.find_knows = lambda job: "j00001-1" not in job.tag
    took = site.scheduler.take
    site.scheduler.answer = lambda one: (took(one), undetermined(one.tag))[1] if "j00001-1" in one.tag else None
    claim = AttemptFiles.claim
    failing = [True]

    def make_room() -> None:
        failing[0] = False

    def full(self: AttemptFiles, attempt: object) -> object:
        made = claim(self, attempt)  # type: ignore[arg-type]
        return replace(made, taken=False, scheduler_job_id="", words="Disk quota exceeded") if failing[0] else made

    monkeypatch.setattr(AttemptFiles, "claim", full)
    site.at(200, make_room)
    site.drive()
    assert "unknown" not in {event.get("scheduler_job_id") for event in site.events()}
    assert any("cannot be claimed: Disk quota exceeded" in text for text in site.said)
    assert sum(outcome == "completed" for _, outcome in site.ends()) == 2


# -- refused, lost, withdrawn ------------------------------------------------------------------------------------------


@pytest.mark.promise("A submission without an answer is looked up before it is submitted again.")
def test_a_submission_without_an_answer_is_found(site: FakeSite) -> None:
    took = site.scheduler.take
    site.scheduler.answer = lambda one: (took(one), undetermined(one.tag))[1]
    site.drive()
    assert site.ends() == [("j00001", "completed"), ("j00002", "completed")]
    assert len(site.scheduler.submissions) == 2


@pytest.mark.promise("A submission that arrives after it was withdrawn is cancelled by its name.")
def test_a_late_submission_is_cancelled_by_its_name(site: FakeSite) -> None:
    """sbatch retries a full queue for minutes, longer than anybody waits for its answer."""
    late: list[Submission] = []

    def slow(one: Submission) -> Submitted | None:
        if "j00001-1" in one.tag:
            late.append(one)
            return undetermined(one.tag)
        return None

    site.scheduler.answer = slow
    site.scheduler.run_s = 150.0
    site.at(90, lambda: site.scheduler.take(late[0]))
    events = site.drive()
    assert site.ends()[0] == ("j00001", "withdrawn")
    assert site.scheduler.of_tag("j00001-1").state is JobState.CANCELLED
    assert any("j00001 arrived late, as job" in text for text in site.said)
    assert steps_of(events) == 2
    assert sum(outcome == "completed" for _, outcome in site.ends()) == 2


@pytest.mark.heavy
@pytest.mark.promise("hpcq does not take unknown words for a refusal: it submits again after a pause.")
def test_unknown_refusals_pause_and_try_again(site: FakeSite) -> None:
    """A standby controller, a rate limit: three refusals within a second once ended a campaign."""
    words = "slurmctld is in standby mode"
    site.scheduler.answer = lambda one: Submitted(one.tag, None, words, Fate.UNSURE) if site.clock.passed_s < 150 else None
    site.drive()
    assert not site.reasons()
    assert sum(outcome == "completed" for _, outcome in site.ends()) == 2
    assert {outcome for _, outcome in site.ends()} == {"withdrawn", "completed"}, "an unknown answer is no try"
    paused = [text for text in site.said if words in text and "submitting again in" in text]
    assert ["30 s" in paused[0], "60 s" in paused[1]] == [True, True]


@pytest.mark.heavy
@pytest.mark.promise("Refusals count per wave, not per job.")
def test_refusals_count_by_wave_and_not_by_job(tmp_path: Path) -> None:
    pairs = [(f"n{number}", f"n{number + 1}") for number in range(1, 12, 2)]
    site = FakeSite(tmp_path, node_count=12, pairs=pairs, attempts=5)
    waves: set[float] = set()

    def refuse(one: Submission) -> Submitted | None:
        waves.add(site.clock.passed_s)
        return Submitted(one.tag, None, "Not today", Fate.REFUSED) if len(waves) < 3 else None

    site.scheduler.answer = refuse
    site.drive()
    assert not site.reasons(), "two refused waves of six jobs are two refusals"
    assert sum(outcome == "completed" for _, outcome in site.ends()) == 6


@pytest.mark.promise("After three refused waves hpcq gives up the rest and quotes the scheduler.")
def test_three_refused_waves_are_the_end(site: FakeSite) -> None:
    site = FakeSite(site.folder / "x", attempts=9)
    site.scheduler.answer = lambda one: Submitted(one.tag, None, "Not today", Fate.REFUSED)
    site.drive()
    assert set(site.reasons().values()) == {"the scheduler refuses: Not today"}
    assert len({at for at, _ in site.scheduler.submissions}) == 3


@pytest.mark.promise("Before the second attempt, hpcq tells a running job that the scheduler has forgotten to end.")
@pytest.mark.promise("A job that the scheduler has forgotten is cancelled by its name before it is lost.")
@pytest.mark.heavy
@pytest.mark.parametrize("obeyed", [True, False])
def test_a_forgotten_job_that_runs_is_ended(site: FakeSite, obeyed: bool) -> None:
    """A controller on an old state answers, but not of our job, which still runs."""
    site.scheduler.shown = lambda job, report: None if "j00001-1" in job.tag else report
    site.scheduler.obeys = lambda job: obeyed or "j00001-1" not in job.tag
    site.scheduler.run_s = 5000.0
    site.at(600, lambda: setattr(site.scheduler, "run_s", 60.0))
    site.drive()
    first = site.scheduler.of_tag("j00001-1")
    ordered_s = next(at for at, tag, _ in site.scheduler.orders if tag == first.tag)
    again_s = next(at for at, tag in site.scheduler.submissions if "j00001-2" in tag)
    asked_s = next(at for at, text in site.said_at if "j00001: the scheduler has forgotten it" in text)
    assert ordered_s <= asked_s < again_s
    assert (first.folder / "finish").exists(), "its script is asked to end, whatever the scheduler says"
    assert site.ends().count(("j00001", "failed" if obeyed else "lost")) == 1


@pytest.mark.promise("A forgotten job that starts after it was lost finds the driver's claim and measures nothing.")
@pytest.mark.heavy
def test_a_forgotten_job_that_never_started_is_claimed(site: FakeSite) -> None:
    site.scheduler.shown = lambda job, report: None if "j00001-1" in job.tag else report
    held = ["j00001-1"]
    start = site.scheduler._start
    site.scheduler._start = lambda job: None if any(one in job.tag for one in held) else start(job)  # type: ignore[method-assign]
    site.scheduler.obeys = lambda job: "j00001-1" not in job.tag  # nor does it hear our order
    site.at(3000, held.clear)
    site.drive()
    assert ("j00001", "lost") in site.ends()
    site.clock.passed_s = 4000
    held.clear()
    site.scheduler.advance()
    first = site.scheduler.of_tag("j00001-1")
    assert first.state is not JobState.QUEUED
    assert not (first.folder / "started.json").exists(), "it found the claim and measured nothing"


# -- cancel ------------------------------------------------------------------------------------------------------------


@pytest.mark.promise("hpcq repeats a cancellation until the queue shows no job of the run.")
def test_cancelling_is_ordered_again_and_again(site: FakeSite) -> None:
    site.scheduler.run_s = 100_000.0
    site.scheduler.obeys = lambda _: site.clock.passed_s > 120
    site.at(30, (site.run.path / "cancel").touch)
    site.drive()
    assert not site.scheduler.live()
    assert len({at for at, tag, _ in site.scheduler.orders if "j00001" in tag}) >= 7  # every 10 to 15 s, by chance
    assert any("cancelling: still there: j00001 (101 running)" in text for text in site.said)
    assert {outcome for _, outcome in site.ends()} == {"cancelled"}


@pytest.mark.heavy
@pytest.mark.promise("While a run is cancelled, a job that has ended is not called still there.")
def test_a_job_that_has_ended_is_not_called_still_there(site: FakeSite) -> None:
    """It ends by itself while the order to end it is unheard, and its exit file is late."""
    site.scheduler.run_s = 60.0
    site.scheduler.obeys = lambda _: False
    site.scheduler.exit_file_delay_s = 45.0
    site.at(20, (site.run.path / "cancel").touch)
    site.drive()
    said = [text for text in site.said if "cancelling: still there" in text]
    assert any("running)" in text for text in said), site.said
    assert not [text for text in said if "completed)" in text]


@pytest.mark.promise("A driver that takes up a cancelled run orders the cancellation again.")
def test_a_later_driver_orders_the_cancelling_again(site: FakeSite) -> None:
    """The first driver died right behind its order, which nobody obeyed."""
    site.scheduler.run_s = 100_000.0
    site.scheduler.obeys = lambda _: site.clock.passed_s > 60

    class KilledError(Exception):
        pass

    def die() -> None:
        raise KilledError

    site.at(30, (site.run.path / "cancel").touch)
    site.at(45, die)
    with pytest.raises(KilledError):
        site.drive()
    assert len(site.scheduler.live()) == 2
    site.drive()
    assert not site.scheduler.live()
    assert site.clock.passed_s < 200


def test_cancelling_waits_for_a_controller_that_is_down(site: FakeSite) -> None:
    site.scheduler.run_s = 100_000.0

    def down() -> None:
        if 20 < site.clock.passed_s < 400:
            raise SchedulerError("here: squeue: Unable to contact slurm controller")

    site.scheduler.look_hook = down
    site.scheduler.obeys = lambda _: site.clock.passed_s > 400
    site.at(60, (site.run.path / "cancel").touch)
    site.drive()
    assert not site.scheduler.live()
    assert site.clock.passed_s > 400


@pytest.mark.promise("A job that the driver itself ended does not count as an attempt, even if it had just started.")
def test_a_job_that_starts_while_it_is_withdrawn_costs_no_try(site: FakeSite) -> None:
    """scancel --state=PENDING filters in the client: the job may start in between, and ends by our own order."""
    site = FakeSite(site.folder / "x", pairs=(("n1", "n2"),), attempts=1, keys="max_wait_s: 60")
    site.scheduler.node_states["n2"] = (NodeCondition.IDLE, "idle")
    start = site.scheduler._start
    held = [True]
    site.scheduler._start = lambda job: None if held and "-1" in job.tag[-2:] else start(job)  # type: ignore[method-assign]

    def racing(jobs: object, *, queued_only: bool = False) -> None:
        job = site.scheduler.of_tag("j00001-1")
        if job.live and queued_only:
            held.clear()
            site.scheduler.node_states.clear()
            start(job)
            site.scheduler.end(job, JobState.CANCELLED)

    site.scheduler.cancel = racing  # type: ignore[method-assign]
    site.at(5, lambda: site.scheduler.node_states.update(n2=(NodeCondition.DRAINED, "drained")))
    site.drive()
    assert site.ends() == [("j00001", "withdrawn"), ("j00001", "completed")]


# -- waiting -----------------------------------------------------------------------------------------------------------
