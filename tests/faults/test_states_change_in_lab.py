"""Nodes change state while a run goes on, or it is cancelled in the middle: nothing is forgotten, nothing stays queued."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from hpcq.runner.cancelling import cancel_run
from tests.lab.driven_in_lab import Driven, names, states
from tests.lab.lab_fixture import RunningLab

pytestmark = pytest.mark.lab


def state(lab: RunningLab, node: str, word: str) -> None:
    reason = ["reason=test"] if word != "resume" else []
    lab.exec("beta", "scontrol", "update", f"nodename={node}", f"state={word}", *reason)


@pytest.mark.long
def test_pairs_of_a_node_out_of_service_are_carried_until_it_is_back(lab: RunningLab, tmp_path: Path) -> None:
    driven = Driven(tmp_path, lab, "beta", "pairs: {rounds: 3}\nbudget: {max_jobs: 1}", duration_s=1)
    driving = driven.start()
    driven.wait_for(names("submitted"))  # the node's last pair comes four jobs later at the earliest
    state(lab, "beta-n04", "drain")
    try:
        deadline = time.monotonic() + 120
        while not any("no two of the wanted nodes are idle" in text for text in driven.said):
            assert time.monotonic() < deadline, driven.events()[-3:]
            time.sleep(0.2)
        done = {event["tag"].split("-")[-2] for event in driven.events() if event.get("outcome") == "completed"}
        left = [pair for index, pair in enumerate(driven.plan.pairs, 1) if f"j{index:05d}" not in done]
        assert left
        assert all("beta-n04" in pair for pair in left)  # all others were measured meanwhile
    finally:
        state(lab, "beta-n04", "resume")
    driven.finish(driving)
    assert driven.load()["measured_count"] == 6
    assert not [event for event in driven.events() if event["event"] == "not_run"]


@pytest.mark.long  # one that comes back is always played
def test_pairs_of_a_node_that_stays_away_are_rows_that_say_so(lab: RunningLab, tmp_path: Path) -> None:
    more = "pairs: {rounds: 3}\nbudget: {max_jobs: 1}"
    driven = Driven(tmp_path, lab, "beta", more, keys="\nmax_wait_s: 3\n", duration_s=1)
    driving = driven.start()
    driven.wait_for(names("submitted"))
    state(lab, "beta-n04", "drain")
    try:
        driven.finish(driving)
    finally:
        state(lab, "beta-n04", "resume")
    left = [event for event in driven.events() if event["event"] == "not_run"]
    assert left
    assert all("beta-n04" in event["pair"] and "beta-n04 drain" in event["reason"] for event in left), left
    loaded = driven.load()
    assert (loaded["measured_count"], loaded["not_measured_count"]) == (6 - len(left), len(left))


@pytest.mark.parametrize("allocation", ["group of 3", pytest.param("pair", marks=pytest.mark.long)])
def test_cancel_leaves_nothing_queued_of_any_kind(lab: RunningLab, tmp_path: Path, allocation: str) -> None:
    driven = Driven(tmp_path, lab, "beta", f"pairs: {{rounds: 3}}\nallocation: {allocation}", duration_s=60)
    driving = driven.start()
    driven.wait_for(states("running"))
    cancel_run(driven.run, driven.said.append)
    driven.finish(driving)
    deadline = time.monotonic() + 120
    while lab.exec("beta", "squeue", "--noheader", "--user=labuser"):  # those that are ending have KillWait for it
        assert lab.exec("beta", "squeue", "--noheader", "--user=labuser", "--states=PD,R,CF") == ""
        assert time.monotonic() < deadline
        time.sleep(0.3)
    loaded = driven.load()
    assert loaded["measured_count"] == 0
    # A job whose kernel was ended first comes to its own end, which needs no reason; its results do.
    ends = [event for event in driven.events() if event["event"] in {"ended", "not_run"}]
    reasons = [event["reason"] for event in ends if event.get("outcome") != "completed"]
    with closing(sqlite3.connect(driven.folder / "r.db")) as database:
        reasons += [reason for (reason,) in database.execute("SELECT reason FROM v_results")]
    assert reasons
    assert all(reasons)
