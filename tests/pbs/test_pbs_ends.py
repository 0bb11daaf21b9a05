"""Ends that a PBS does not tell: it forgets what was deleted, and it once never learned that a script had ended."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hpcq.scheduler.types import JobKey, JobState, Submission
from tests.local.desk import Folder
from tests.local.local_desk import SLOW
from tests.pbs.test_pbs_campaign import BRIEF, desk_at, measured
from tests.schedulers.scheduler_contract import TERMINAL, pbs_site
from tests.simulated_pbs.site import simulated_pbs


def ends(desk: Folder) -> list[tuple[str, str]]:
    return [(event["outcome"], event["reason"]) for event in desk.events("tiny") if event["event"] == "ended"]


def said(desk: Folder) -> str:
    path = desk.run_folder / "log.txt"
    return path.read_text() if path.exists() else ""


def test_a_run_that_is_cancelled_while_the_server_is_away_loses_no_job(tmp_path: Path) -> None:
    """Without history. A job that waited vanishes; nothing is waited for, though files may be 90 s late here.

    No job that waits starts on the nodes of one that was deleted before it.
    """
    with simulated_pbs(tmp_path / "pbs") as pbs:
        pbs.control(set={"history": False, "sleep_s": 0.0, "kill_delay_s": 0.5})
        desk = desk_at(tmp_path)
        desk.campaign(SLOW)
        with desk.running(["-m", "hpcq", "run", "try.yaml"]) as driver:
            desk.wait_for(lambda: [event["event"] for event in desk.events("tiny")].count("submitted") == 6)
            assert {state[-1] for state in pbs.control()["states"]} == {"R", "Q"}
            pbs.control(set={"down": -1})
            (desk.run_folder / "cancel").touch()
            desk.wait_for(lambda: "cannot connect to server" in said(desk))
            pbs.control(set={"down": 0})
            driver.wait(timeout=60)
        assert pbs.control()["states"] == {}
    started = [one for one in desk.run_folder.glob("tiny/work/jobs/*/1/claim") if not (one / "driver").exists()]
    assert len(started) <= 2, started
    found = ends(desk)
    assert len(found) == 6, found
    assert {outcome for outcome, _ in found} == {"cancelled"}, found
    assert "cancelled by hpcq cancel" in {reason for _, reason in found}


@pytest.mark.promise("PBS jobs that wait are deleted before those that run: none starts on the nodes of a deleted one.")
def test_jobs_that_wait_are_deleted_before_those_that_run(tmp_path: Path) -> None:
    with simulated_pbs(tmp_path / "pbs", node_count=1) as pbs:
        pbs.control(set={"sleep_s": 0.0})
        site = pbs_site(pbs.cluster() / "sim.yaml")
        keys = []
        for name in ("one", "two", "three"):
            script = tmp_path / f"{name}.sh"
            head = "#!/bin/sh\n#PBS -l select=1:ncpus=4:host=pbn1\n#PBS -l walltime=1:00\n"
            script.write_text(f"{head}#PBS -j oe -o {tmp_path}/{name}.out\nsleep 60\n")
            [answer] = site.scheduler.submit([Submission(name, str(script), (), 60)])
            assert answer.scheduler_job_id, answer
            keys.append(JobKey(answer.scheduler_job_id, name))
            site.tags[answer.scheduler_job_id] = name
            site.wait(answer.scheduler_job_id, JobState.QUEUED if name != "one" else JobState.RUNNING)
        qdel, order = pbs.folder / "bin" / "qdel", tmp_path / "order"
        (tmp_path / "real").mkdir()
        qdel.rename(tmp_path / "real" / "qdel")
        qdel.write_text(f'#!/bin/sh\necho "$1" >>{order}\nexec {tmp_path}/real/qdel "$@"\n')
        qdel.chmod(0o755)
        assert site.scheduler.cancel(keys) is None
        assert order.read_text().split() == [key.scheduler_job_id for key in (*keys[1:], keys[0])]


@pytest.mark.long
def test_a_job_whose_end_the_server_never_learns_is_told_to_end(tmp_path: Path) -> None:
    """It would hold its nodes until its time limit. A plain qdel ends with 0 and does nothing, as on the live server."""
    with simulated_pbs(tmp_path / "pbs", node_count=2) as pbs:
        pbs.control(set={"sleep_s": 0.0, "deaf": True})
        desk = desk_at(tmp_path)
        path = desk.folder / "clusters" / "tiny.yaml"
        path.write_text(f"{path.read_text()}filesystem_delay_s: 2s\n")
        desk.campaign(BRIEF)
        desk.hpcq("run", "try.yaml")  # its time limit is two minutes off
        assert {state[-1] for state in pbs.control()["states"]} <= {"F"}
    assert "its queue still shows it as running; hpcq orders its end" in said(desk)
    assert measured(desk) == 1
    assert {outcome for outcome, _ in ends(desk)} == {"completed"}


@pytest.mark.promise("A PBS job whose script ended and that a plain qdel does not end is deleted by force.")
@pytest.mark.promise("A PBS job whose script has ended just now is not deleted by force.")
def test_a_job_that_runs_without_its_script_is_deleted_by_force(tmp_path: Path) -> None:
    """As soon as its exit file is old enough: its daemons had time to tell its end."""
    with simulated_pbs(tmp_path / "pbs") as pbs:
        pbs.control(set={"sleep_s": 0.0, "deaf": True})
        site = pbs_site(pbs.cluster() / "sim.yaml")
        folder = tmp_path / "a job"
        folder.mkdir()
        script, exit_file = folder / "job.sh", folder / "exit.json"
        head = f"#!/bin/sh\n#PBS -l select=1:host=pbn1\n#PBS -l walltime=1:00\n#PBS -j oe -o {tmp_path}/a\\ job/pbs.out\n"
        script.write_text(head)
        [answer] = site.scheduler.submit([Submission("odd", str(script), (), 60)])
        assert answer.scheduler_job_id, answer
        key = JobKey(answer.scheduler_job_id, "odd")
        site.tags[key.scheduler_job_id] = key.tag
        site.wait(answer.scheduler_job_id, JobState.RUNNING)
        exit_file.write_text("{}")
        assert site.scheduler.cancel([key]) is None
        time.sleep(0.2)
        assert site.scheduler.poll([key])[key.scheduler_job_id].state is JobState.RUNNING, "its daemons may still tell it"
        os.utime(exit_file, (time.time() - 60, time.time() - 60))
        assert site.scheduler.cancel([key]) is None
        site.wait(answer.scheduler_job_id, *TERMINAL, within_s=20)
