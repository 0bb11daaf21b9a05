"""Whole campaigns on a real PBS: campaigns/pbs.yaml, a link with Slurm, and a driver that is killed five times."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from tests import REPOSITORY
from tests.lab.campaigns_in_lab import Desk
from tests.local.desk import assert_clean
from tests.pbs_live.live import Live

KILLS = 5
LINKED = """name: linked
clusters: [alpha, beta]
links: [{from: alpha, to: beta, list: [[alpha-n01, beta-n01], [alpha-n02, beta-n02]], peer_wait_s: 120s}]
repetitions: 2
tests:
  - {kernel: tcp_stream, parameters: {duration_s: 300ms, warmup_s: 100ms}}
  - {kernel: tcp_pingpong, parameters: {duration_s: 200ms, warmup_s: 50ms}}
"""


def outcomes(desk: Desk) -> dict[str, int]:
    rows = desk.rows("SELECT placement || ' ' || outcome AS what, count(*) AS n FROM v_results GROUP BY 1")
    return {row["what"]: row["n"] for row in rows}


def nothing_ran_twice(live: Live, desk: Desk, part: str, *, crashes: int = 0) -> None:
    """Every attempt has one id and one end, and the server started each at most once.

    crashes: of the server, which after each may start again what it had started; the claim lets only one measure.
    """
    events = desk.events(part)
    tags = [event["tag"] for event in events if event["event"] == "submitted"]
    ids = [
        event["scheduler_job_id"]
        for event in events
        if event["event"] == "submitted" and ".beta-head" in event["scheduler_job_id"]
    ]
    assert ids
    assert (len(tags), len(ids)) == (len(set(tags)), len(set(ids))), events
    ends = Counter(event["tag"] for event in events if event["event"] in {"ended", "refused"})
    assert set(ends.values()) == {1}, ends
    started = live.starts("hpcq-")
    assert {started[scheduler_job_id] for scheduler_job_id in ids} <= set(range(2 + crashes)), started
    assert live.root("qselect", check=False) == "", "a job was left"


def longer_than(count: int, events: list[dict[str, Any]]) -> bool:
    return len(events) >= count


def test_the_pbs_campaign(live: Live, tmp_path: Path) -> None:
    desk = live.desk(tmp_path)
    shutil.copy(REPOSITORY / "campaigns" / "pbs.yaml", tmp_path / "campaign.yaml")
    desk.hpcq("run", "campaign.yaml", timeout_s=600)
    assert outcomes(desk) == {"cluster measured": 84}
    assert_clean(desk.run_folder)
    nothing_ran_twice(live, desk, "beta")


def test_a_link_between_pbs_and_slurm(live: Live, tmp_path: Path) -> None:
    desk = live.desk(tmp_path)
    live.lab.at_rest("alpha")
    (tmp_path / "campaign.yaml").write_text(LINKED)
    desk.hpcq("run", "campaign.yaml", timeout_s=600)
    assert outcomes(desk) == {"link measured": 12, "cluster measured": 8}
    nothing_ran_twice(live, desk, "alpha+beta")
    sides = desk.rows("SELECT side, cluster, outcome FROM v_links ORDER BY job, side")
    assert [(row["side"], row["cluster"], row["outcome"]) for row in sides] == [
        ("from", "alpha", "completed"),
        ("to", "beta", "completed"),
    ] * 2


def test_a_driver_that_is_killed_five_times(live: Live, tmp_path: Path) -> None:
    desk = live.desk(tmp_path)
    tests = "[{kernel: tcp_pingpong, parameters: {duration_s: 1s, warmup_s: 0, message_bytes: 1}}]"
    desk.campaign(f"clusters: [beta]\npairs: all\nrepetitions: 2\nbudget: {{max_jobs: 2}}\ntests: {tests}")
    for kill in range(KILLS):
        # At the first attempt, then each time one to three events later: before, in and after a submission.
        wanted = len(desk.events("beta")) + kill % 3 + 1
        with desk.running(*(("resume",) if kill else ("run", "campaign.yaml"))) as driver:
            desk.wait_for(partial(longer_than, wanted), "beta")
            driver.send_signal(signal.SIGKILL)
    desk.hpcq("resume", timeout_s=600)
    assert outcomes(desk) == {"cluster measured": 12}
    # One that was killed before it could submit finds that the server never had the job.
    ends = [event["outcome"] for event in desk.events("beta") if event["event"] == "ended"]
    assert (ends.count("completed"), set(ends) <= {"completed", "withdrawn"}) == (6, True), desk.events("beta")
    nothing_ran_twice(live, desk, "beta")
