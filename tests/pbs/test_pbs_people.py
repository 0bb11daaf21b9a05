"""What people of a PBS site see through the whole of hpcq, on the simulated PBS: waves, hours that end, doctor.

tests/pbs_live/test_nodes.py does the same on a real one.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.local_desk import LocalDesk
from tests.pbs.test_pbs_campaign import BRIEF, desk_at, measured
from tests.pbs.test_pbs_hostile import pbs_root
from tests.simulated_pbs.site import SimulatedPbs, simulated_pbs


@pytest.fixture
def pbs(tmp_path: Path) -> Iterator[SimulatedPbs]:
    with simulated_pbs(tmp_path / "pbs") as running:
        running.control(set={"sleep_s": 0.0, "history": False})
        yield running


def in_queue(desk: LocalDesk, queue: str) -> None:
    path = desk.folder / "clusters" / "tiny.yaml"
    path.write_text(f"{path.read_text()}queue: {queue}\n")


@pytest.mark.long
def test_a_wave_is_no_larger_than_the_queue_allows(pbs: SimulatedPbs, tmp_path: Path) -> None:
    for line in ("create queue small", "set queue small enabled = True", "set queue small started = True"):
        pbs_root(pbs, line)
    pbs_root(pbs, "set queue small max_queued = [u:PBS_GENERIC=2]")
    desk = desk_at(tmp_path)
    in_queue(desk, "small")
    desk.campaign(BRIEF)
    desk.hpcq("run", "try.yaml")
    assert measured(desk) == 6
    assert not [event for event in desk.events("tiny") if event["event"] in {"refused", "not_run"}]
    assert pbs.control()["calls"]["qsub"] == 6, "the limit was read, not met"


def test_doctor_reaches_a_pbs_and_says_when_its_server_is_away(pbs: SimulatedPbs, tmp_path: Path) -> None:
    desk = desk_at(tmp_path)
    [told] = [line for line in desk.json("doctor", "--reach") if line["item"] == "tiny"]
    assert told["state"] == "ok", told
    pbs.control(set={"down": -1})
    said = desk.hpcq("doctor", "--reach", "--json", expect=1)
    [told] = [line for line in json.loads(said.stdout) if line["item"] == "tiny"]
    assert (told["state"], "cannot connect" in told["found"]) == ("bad", True), told


@pytest.mark.promise("A PBS job that starts after the campaign's hours measures nothing, driver or none.")
def test_a_job_that_starts_after_the_hours_measures_nothing_driver_or_none(pbs: SimulatedPbs, tmp_path: Path) -> None:
    desk = desk_at(tmp_path)
    now = dt.datetime.now()
    hours = f"{now - dt.timedelta(hours=1):%H:%M}-{now + dt.timedelta(hours=1):%H:%M}"
    desk.campaign(BRIEF, more=f"budget: {{hours: '{hours}', max_jobs: 1}}")
    pbs_root(pbs, "set queue workq started = False")
    with desk.running(["-m", "hpcq", "run", "try.yaml"]):
        desk.wait_for(lambda: any(event["event"] == "submitted" for event in desk.events("tiny")))
    [script] = desk.run_folder.glob("tiny/work/**/job.sh")
    long_ago = time.time() - 7200  # it waited in the queue for two hours
    os.utime(script, (long_ago, long_ago))
    pbs_root(pbs, "set queue workq started = True")
    desk.wait_for(lambda: pbs.control()["states"] == {})
    assert (script.parent / "exit.json").exists(), "it ran, and ended by itself"
    assert not list(script.parent.rglob("t*-r*.json"))
