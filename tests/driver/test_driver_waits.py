"""What the driver waits for and for how long, on a fake site with its own clock."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from hpcq.cli.campaigns import print_status
from hpcq.definition.model import Budget
from hpcq.errors import HeldError, SchedulerError, TransportError
from hpcq.runner.cancelling import cancel_run, still_there
from hpcq.runner.live import status_of
from hpcq.scheduler.types import FreeUntil, JobReport, JobState, NodeCondition, OtherJob, QueueQuery, QueueSnapshot, Submission
from tests.driver.fake_site import FakeJob, FakeSite
from tests.driver.test_driver_on_a_fake_site import site

FIXTURES = (site,)  # pytest looks for them in this module
pytestmark = pytest.mark.fast


@pytest.mark.heavy
@pytest.mark.promise("hpcq waits for files of a job that appear a minute late.")
def test_exit_files_that_appear_late_are_waited_for(site: FakeSite) -> None:
    """Attribute caches of NFS show a new file up to a minute late."""
    site.scheduler.exit_file_delay_s = 61.0
    site.drive()
    assert site.ends() == [("j00001", "completed"), ("j00002", "completed")]


@pytest.mark.promise("How long files may take to appear is the cluster's own figure.")
@pytest.mark.heavy
def test_the_grace_for_files_is_the_clusters_own(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, keys="filesystem_delay_s: 300", attempts=1)
    site.scheduler.exit_file_delay_s = 250.0
    site.drive()
    assert {outcome for _, outcome in site.ends()} == {"completed"}
    short = FakeSite(tmp_path / "short", keys="filesystem_delay_s: 30", attempts=1)
    short.scheduler.exit_file_delay_s = 250.0
    short.drive()
    assert {outcome for _, outcome in short.ends()} == {"failed"}


@pytest.mark.heavy
@pytest.mark.promise("An accounting that calls a forgotten job running is believed no longer than its time limit.")
def test_the_accounting_is_believed_up_to_the_time_limit(site: FakeSite) -> None:
    def remembered(job: FakeJob, report: JobReport) -> JobReport:
        if "j00001-1" in job.tag and job.state.terminal:
            return replace(report, state=JobState.RUNNING, native_state="RUNNING", remembered=True)
        return report

    def crash() -> None:
        site.scheduler.end(site.scheduler.of_tag("j00001-1"), JobState.FAILED)

    site.scheduler.shown = remembered
    site.scheduler.exit_file_delay_s = 1e9
    site.at(20, crash)
    site.at(150, lambda: setattr(site.scheduler, "exit_file_delay_s", 0.0))
    site.at(3600, lambda: pytest.fail("still waited for after an hour"))
    with site.driver() as driver:
        driver.drive()
    assert ("j00001", "lost") in site.ends() or ("j00001", "failed") in site.ends()


@pytest.mark.promise("A failed query changes no state and is repeated.")
def test_a_connection_that_breaks_is_tried_again(site: FakeSite) -> None:
    def cut() -> None:
        if 20 < site.clock.passed_s < 300:
            raise TransportError("ssh sim: cannot be reached", "", transient=True)

    site.scheduler.look_hook = cut
    site.drive()
    assert site.ends() == [("j00001", "completed"), ("j00002", "completed")]
    assert "sim: answers again" in site.said


@pytest.mark.promise("A driver that yields with nothing in the queue asks once per minute, and only whether others still wait.")
def test_a_driver_that_yields_with_an_empty_queue_asks_ever_less_often(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, budget=Budget(gives_way=True))
    site.scheduler.others = (OtherJob("7", sure=True),)
    site.at(900, lambda: setattr(site.scheduler, "others", ()))
    asked: list[tuple[float, bool]] = []
    look = site.scheduler.look

    def noted(question: QueueQuery) -> QueueSnapshot:
        asked.append((site.clock.passed_s, question.nodes))
        return look(question)

    site.scheduler.look = noted  # type: ignore[method-assign]
    site.drive()
    waiting = [(at, nodes) for at, nodes in asked if at < 900]
    assert len(waiting) < 30
    assert 50 < waiting[-1][0] - waiting[-2][0] < 70
    assert [nodes for _, nodes in waiting[1:]] == [False] * (len(waiting) - 1), "no list of nodes while nothing may start"
    resumed = next(at for at, _ in asked if at >= 900)
    assert resumed < 970
    assert site.ends() == [("j00001", "completed"), ("j00002", "completed")]


@pytest.mark.promise("A cluster that does not answer is a wait: status, log and terminal say for what and since when.")
def test_a_cluster_that_does_not_answer_is_a_wait_that_status_shows(site: FakeSite) -> None:
    def cut() -> None:
        if 20 < site.clock.passed_s < 300:
            raise TransportError("ssh sim: cannot be reached", "", transient=True)

    site.scheduler.look_hook = cut
    waits = [event["reason"] for event in site.drive() if event["event"] == "waiting"]
    assert waits[0].startswith("no answer: ssh sim: cannot be reached; waits since 12:00:"), waits
    assert waits[1] == "", "and no longer when it answers"
    assert any(text.startswith("sim: no answer: ssh sim: cannot be reached; waits since") for text in site.said)


@pytest.mark.promise("What a run waited for before its cluster fell silent is said again afterwards.")
def test_a_wait_that_was_interrupted_by_silence_is_said_again(site: FakeSite) -> None:
    site = FakeSite(site.folder / "x", pairs=(("n1", "n2"),), keys="max_wait_s: 300")
    site.scheduler.node_states["n1"] = (NodeCondition.BUSY, "allocated")

    def cut() -> None:
        if 20 < site.clock.passed_s < 100:
            raise TransportError("ssh sim: cannot be reached", "", transient=True)

    site.scheduler.look_hook = cut
    waits = [event["reason"] for event in site.drive() if event["event"] == "waiting"]
    assert ["no two of" in text for text in waits[:3]] == [True, False, True]


@pytest.mark.promise("A job that its scheduler suspended is said to stand still, in status and log, until it goes on.")
def test_a_suspended_job_is_said_to_stand_still_until_it_goes_on(site: FakeSite) -> None:
    def suspended(job: FakeJob, report: JobReport) -> JobReport:
        still = "j00001-1" in job.tag and 20 < site.clock.passed_s < 40
        return replace(report, reason="suspended", stands_still=True) if still else report

    site.scheduler.shown = suspended
    waits = [event["reason"] for event in site.drive() if event["event"] == "waiting"]
    assert waits == ["j00001 (101) suspended", ""]
    assert "sim: j00001 (101) suspended" in site.said


@pytest.mark.promise("Nodes that are powered down are named by `hpcq status`, log and terminal, until they are up.")
@pytest.mark.promise("A wait for a node that is powered down says so in plain words.")
def test_nodes_that_are_powered_down_are_named_by_status_until_they_are_up(
    site: FakeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    site = FakeSite(site.folder / "x", pairs=(("n1", "n2"),), keys="max_wait_s: 300")
    off = (NodeCondition.POWERED_DOWN, "idle~")
    site.scheduler.node_states.update(n1=off, n4=off)
    site.cluster = replace(site.cluster, reboot_within_s=600.0)
    site.at(150, lambda: site.scheduler.node_states.pop("n1"))
    events = site.drive()
    assert site.ends() == [("j00001", "completed")]
    assert [one["nodes"] for one in events if one["event"] == "powered_down"] == [["n[1,4]"], ["n4"]]
    assert "sim: 2 nodes of sim powered down (n[1,4]); hpcq uses none of them and wakes none" in site.said
    assert any("n1 powered down (idle~)" in text for text in site.said), "what it waits for, in plain words"
    print_status(status_of(site.run))
    assert "sim: 1 node of sim powered down (n4); hpcq uses none of them and wakes none (seen " in capsys.readouterr().err


@pytest.mark.promise("A controller that answers slowly is asked for a tenth of the time at most.")
def test_a_slow_answer_slows_the_driver_down(site: FakeSite) -> None:
    look = site.scheduler.look

    def slow(question: QueueQuery) -> QueueSnapshot:
        site.clock.sleep(4.0)
        return look(question)

    site.scheduler.look = slow  # type: ignore[method-assign]
    site.drive()
    gaps = [later - earlier for earlier, later in pairwise(site.scheduler.look_times)]
    assert min(gaps) > 30


@pytest.mark.promise("What keeps agents of a tournament from joining is said with the next poll.")
def test_agents_that_cannot_join_say_why_at_once(site: FakeSite) -> None:
    """Their log is read with each poll until the first measurement; the conductor gives them up only after a minute."""
    site.scheduler.run_s = 100.0
    with site.driver() as driver:
        event = {"event": "attempt", "tag": "g", "job": "g00001", "attempt_no": 1, "nodes": ["n1", "n2"]}
        driver.record.note_all([{**event, "pairs": ["j00001"], "walltime_s": 60}])
        driver.record.note("submitted", tag="g", scheduler_job_id="101")
        driver.record.note("state", tag="g", state="running", reason="")
        folder = site.root / "jobs" / "g00001" / "1"
        folder.mkdir(parents=True)
        for words in ("", "hpcq-net: join: 10.0.0.1: No route to host"):
            (folder / "agents.err").write_text(f"{words}\n")
            driver._spools.read()
            driver._spools.read()
        line = '{"format":1,"job":"j00001","test":1,"repetition":1,"begun_utc":"..."}'
        (folder / "spool.jsonl").write_text(f"{line}\n")
        (folder / "agents.err").write_text("something later\n")
        driver._spools.read()
    said = [text for text in site.said if "agents" in text]
    assert said == ["sim: g00001 has not begun to measure; its agents say: hpcq-net: join: 10.0.0.1: No route to host"]


def _down_at_the_end(site: FakeSite, back_s: float) -> None:
    """n1 dies in the middle of its job, and comes back after a while."""

    def die() -> None:
        site.scheduler.node_states["n1"] = (NodeCondition.DOWN, "down*")
        site.scheduler.end(site.scheduler.of_tag("j00001-1"), JobState.NODE_FAILED)

    site.at(20, die)
    site.at(back_s, site.scheduler.node_states.clear)


@pytest.mark.promise("hpcq waits for a node that is down only if the campaign says so.")
def test_a_node_that_is_down_is_not_waited_for(site: FakeSite) -> None:
    _down_at_the_end(site, back_s=9000)
    site.drive()
    assert site.reasons()["j00001"].startswith("not idle for")
    assert "n1 down*, n2 idle" in site.reasons()["j00001"]
    assert site.clock.passed_s < 200, "max_wait_s is made for nodes that users have"


@pytest.mark.promise("hpcq waits for a rebooting node as long as the campaign says.")
@pytest.mark.promise("hpcq reports a wait when it begins: for what, since when, and until when.")
def test_a_node_that_reboots_is_waited_for(site: FakeSite) -> None:
    site.cluster = replace(site.cluster, reboot_within_s=600.0)
    _down_at_the_end(site, back_s=500)
    events = site.drive()
    assert ("j00001", "completed") in site.ends()
    said = next(text for text in site.said if "waits since" in text)
    assert "n1 down*" in said
    assert " until 12:1" in said
    assert [event["reason"] for event in events if event["event"] == "waiting"][-1] == "", "status says it no longer"


def test_a_node_that_a_user_has_is_waited_for_as_long_as_patience_lasts(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, pairs=(("n1", "n2"),), keys="max_wait_s: 300")
    site.scheduler.node_states["n1"] = (NodeCondition.BUSY, "allocated")
    site.drive()
    assert "n1 allocated" in site.reasons()["j00001"]
    assert 300 <= site.clock.passed_s < 320


@pytest.mark.promise("A delayed submit command finds its attempt withdrawn and submits nothing.")
def test_a_late_submit_command_finds_its_attempt_withdrawn(tmp_path: Path) -> None:
    """The remote shell outlives a cut connection, and comes to this job minutes later."""
    from hpcq.scheduler.kinds import make
    from hpcq.scheduler.types import SchedulerSettings
    from hpcq.transport import Here

    (tmp_path / "claim").mkdir()
    (tmp_path / "job.sh").write_text("#!/bin/sh\n")
    (tmp_path / "bin").mkdir()
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\necho 17\n")
    sbatch.chmod(0o755)
    here = Here()
    plain = here.sh
    here.sh = lambda script, **more: plain(f"PATH={tmp_path}/bin:$PATH\n{script}", **more)  # type: ignore[method-assign]
    scheduler = make("slurm", here, SchedulerSettings())
    [answer] = scheduler.submit([Submission("t1", str(tmp_path / "job.sh"), ("n1",), 60)])
    assert answer.undetermined
    assert not (tmp_path / "was-run").exists()
    (tmp_path / "claim").rmdir()
    [answer] = scheduler.submit([Submission("t1", str(tmp_path / "job.sh"), ("n1",), 60)])
    assert answer.scheduler_job_id == "17"


# -- the verb ----------------------------------------------------------------------------------------------------------


def _left_by(site: FakeSite) -> list[str]:
    return still_there(site.run, site.said.append, site.clock, lambda *_: site.scheduler)


@pytest.mark.promise("`hpcq cancel` lists the jobs that the queue still shows and cancels them again.")
def test_the_verb_says_what_is_still_there(site: FakeSite) -> None:
    """The journal says that all is over; the queue shows otherwise."""
    site.scheduler.obeys = lambda _: False
    site.drive()
    job = site.scheduler.of_tag("j00001-1")
    job.state = JobState.RUNNING
    site.scheduler.run_s = 1e9
    with site.driver() as driver:
        driver.record.note("attempt", tag="hpcq-x-2", job="j00001", attempt_no=2, nodes=["n1", "n2"])
        driver.record.note("submitted", tag="hpcq-x-2", scheduler_job_id=job.scheduler_job_id)
    job.tag = "hpcq-x-2"
    assert _left_by(site) == [f"sim: hpcq-x-2 ({job.scheduler_job_id} running)"]
    site.scheduler.obeys = lambda _: site.clock.passed_s > 300
    assert _left_by(site) == []
    assert job.state is JobState.CANCELLED


@pytest.mark.promise("hpcq does not take a silent controller as proof that a run has no jobs left.")
def test_a_controller_that_is_down_is_no_proof_that_nothing_is_there(site: FakeSite) -> None:
    site.scheduler.obeys = lambda _: False
    with site.driver() as driver:
        driver.record.note("attempt", tag="t1", job="j00001", attempt_no=1, nodes=["n1", "n2"])
        driver.record.note("submitted", tag="t1", scheduler_job_id="101")

    def down() -> None:
        raise SchedulerError("here: squeue: Unable to contact slurm controller")

    site.scheduler.look_hook = down
    [words] = _left_by(site)
    assert words.startswith("sim: cannot be asked: ")


@pytest.mark.promise("Files that hpcq copies to a cluster are readable by its user only.")
def test_what_is_copied_to_a_cluster_is_private(site: FakeSite) -> None:
    site.drive()
    made = list(site.root.rglob("job.*"))
    assert {path.name for path in made} == {"job.json", "job.sh"}
    assert {path.stat().st_mode & 0o077 for path in [*made, *(path.parent for path in made), site.root]} == {0}


@pytest.mark.promise("`hpcq cancel` is seen within seconds, although a slow controller is asked once per minute.")
def test_a_cancel_is_seen_within_seconds_although_the_controller_is_slow(site: FakeSite) -> None:
    """After an answer of half a minute the next question waits for a minute; a person does not."""
    site.scheduler.run_s = 5000.0
    look = site.scheduler.look

    def slow(question: QueueQuery) -> QueueSnapshot:
        site.clock.sleep(30.0 if site.clock.passed_s < 30 else 0.0)
        return look(question)

    site.scheduler.look = slow  # type: ignore[method-assign]
    site.at(40, (site.run.path / "cancel").touch)
    site.drive()
    first = min(at_s for at_s, _, _ in site.scheduler.orders)
    assert 40 <= first < 50, site.scheduler.orders


@pytest.mark.promise("`hpcq cancel` waits for a living driver as long as exit files may take, and says so.")
def test_the_verb_waits_for_a_driver_as_long_as_files_of_jobs_may_take(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 90 s for exit files a driver that obeys at once needs longer than that to end."""
    path = site.run.cluster_yaml("sim")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((site.folder / "sim.yaml").read_text() + "filesystem_delay_s: 90s\n")

    def drive(*_: object) -> None:
        if site.clock.passed_s < 150:
            raise HeldError("journal.jsonl: held by process 7")

    monkeypatch.setattr("hpcq.runner.cancelling.link_group.drive", drive)
    monkeypatch.setattr("hpcq.runner.cancelling.still_there", lambda *_: [])
    assert cancel_run(site.run, site.said.append, site.clock) == []
    assert site.said == ["sim: its driver lives and ends the jobs; waits for it for 180 s at most"]


@pytest.mark.promise("A wait for a node that a reservation takes soon is told with its name, and ends after max_wait_s.")
def test_a_node_that_is_reserved_soon_is_waited_for_and_no_longer_than_for_a_busy_one(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, keys="max_wait_s: 300", attempts=1)
    site.scheduler.bounded = {"n1": FreeUntil("reservation swap begins at 10:10:00", 20.0)}
    site.drive()
    assert site.scheduler.submissions
    assert all("j00001" not in tag for _, tag in site.scheduler.submissions), "no job of n1 and n2 was submitted"
    waits = [event["reason"] for event in site.events() if event["event"] == "waiting" and event["reason"]]
    words = "n1 idle: reservation swap begins at 10:10:00, before a job of"
    assert any(words in one and "until" in one for one in waits), waits
    assert words in site.reasons()["j00001"]
