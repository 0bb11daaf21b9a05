"""What once ended jobs twice or never, on a real PBS: submissions of unknown fate, orders to a server that is away.

A wrapper stands before qsub or qdel on the user's PATH, as at sites that have one.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab.campaigns_in_lab import ENDLESS, Desk
from tests.pbs_live.live import Live
from tests.pbs_live.test_campaigns import nothing_ran_twice, outcomes

ONE_TEST = "tests: [{kernel: tcp_pingpong, parameters: {duration_s: 300ms, warmup_s: 0, message_bytes: 1}}]"
STOP_SERVER = "kill -KILL $(cat /var/spool/pbs/server_priv/server.lock); sleep 1"
#: What a qsub on the user's PATH does with the first submission of all; later ones go straight through.
FIRST = 'once=/scratch/of-labuser/once; mkdir "$once" 2>/dev/null || exec /opt/pbs/bin/qsub "$@"\n'
QSUBS = {
    "prints a banner": 'echo "Welcome to the cluster"; exec /opt/pbs/bin/qsub "$@"\n',
    "says nothing": FIRST + '/opt/pbs/bin/qsub "$@" >/dev/null; exit 0\n',
    "is killed after the server took the job": FIRST + '/opt/pbs/bin/qsub "$@" >/dev/null; kill -KILL $$\n',
    "is killed before": FIRST + "kill -KILL $$\n",
    "loses its connection and submits all the same, late": FIRST
    + 'setsid sh -c \'sleep 20; exec /opt/pbs/bin/qsub "$@"\' sh "$@" </dev/null >/dev/null 2>&1 &\n'
    + 'echo "Connection timed out" >&2; exit 255\n',
    "takes fifteen seconds": FIRST + 'sleep 15; exec /opt/pbs/bin/qsub "$@"\n',
    "says a word of which nobody knows what it means": FIRST + 'echo "qsub: ticket expired" >&2; exit 7\n',
}


@contextmanager
def in_front_of(live: Live, program: str, script: str) -> Iterator[None]:
    """A program of the site before PBS's own."""
    folder = "/scratch/of-labuser/bin"
    live.lab.exec("beta", "sh", "-c", f"mkdir -p {folder} && cat >{folder}/{program} && chmod 755 {folder}/{program}",
                  user="labuser", text=f"#!/bin/sh\n{script}")  # fmt: skip
    live.lab.exec("beta", "sh", "-c", f"echo 'PATH={folder}:$PATH' >~/.bashrc", user="labuser")
    try:
        yield
    finally:
        live.lab.exec("beta", "sh", "-c", f"rm -rf {folder} /scratch/of-labuser/once ~/.bashrc", user="labuser")


@contextmanager
def server_away(live: Live) -> Iterator[None]:
    """pbs_server is killed; afterwards it is there again with what it had saved."""
    live.root(STOP_SERVER)
    try:
        yield
    finally:
        live.lab.command("restart-controller", "beta")


@pytest.mark.parametrize("how", QSUBS)
def test_a_submission_of_unknown_fate_is_neither_lost_nor_made_twice(users: Live, tmp_path: Path, how: str) -> None:
    desk = users.desk(tmp_path)
    desk.campaign(f"clusters: [beta]\npairs: {{rounds: 1}}\nrepetitions: 1\n{ONE_TEST}")
    with in_front_of(users, "qsub", QSUBS[how]):
        desk.hpcq("run", "campaign.yaml", timeout_s=600)
        users.until(lambda: not users.root("qselect"), "an empty queue")
    assert outcomes(desk) == {"cluster measured": 2}
    ends = [event["outcome"] for event in desk.events("beta") if event["event"] == "ended"]
    assert ends.count("completed") == 2, desk.events("beta")
    measured = list(desk.run_folder.glob("beta/jobs/*/*/**/t*-r*.status"))
    assert len(measured) == 2, measured


def running(users: Live, desk: Desk, driver: subprocess.Popen[bytes] | None = None) -> None:
    """Until a job of it runs and another one waits, where there is one; a driver that ended before has no such job."""

    def seen(events: list[dict[str, Any]]) -> bool:
        assert driver is None or driver.poll() is None, desk.log()
        return any(event.get("state") == "running" for event in events)

    desk.wait_for(seen, "beta")


def test_cancel_while_the_server_is_away_is_repeated_until_nothing_is_left(users: Live, tmp_path: Path) -> None:
    desk = users.desk(tmp_path)
    desk.campaign(f"clusters: [beta]\npairs: {{rounds: 3}}\ntests:\n  {ENDLESS}")
    with desk.running("run", "campaign.yaml") as driver, ExitStack() as stack:
        running(users, desk)
        with server_away(users):
            order = stack.enter_context(desk.running("cancel"))
            users.lab.exec("beta", "sleep", "10")
            assert order.poll() is None, "nobody has heard it yet"
        if order.wait(timeout=240) != 0:  # it says what is still there, and the driver goes on ending it
            assert "still there" in desk.log()
        users.until(lambda: not users.root("qselect"), "an empty queue")
        driver.wait(timeout=120)
    ends = [event["outcome"] for event in desk.events("beta") if event["event"] == "ended"]
    assert set(ends) <= {"cancelled", "withdrawn", "failed"}, desk.events("beta")


def test_cancel_without_a_driver_leaves_nothing(users: Live, tmp_path: Path) -> None:
    desk = users.desk(tmp_path)
    desk.campaign(f"clusters: [beta]\npairs: {{rounds: 3}}\ntests:\n  {ENDLESS}")
    with desk.running("run", "campaign.yaml"):
        running(users, desk)
    desk.hpcq("cancel", timeout_s=240)
    users.until(lambda: not users.root("qselect"), "an empty queue")
    desk.hpcq("cancel", timeout_s=240)


def test_a_server_that_goes_away_in_the_middle_costs_nothing(users: Live, tmp_path: Path) -> None:
    desk = users.desk(tmp_path)
    desk.campaign(f"clusters: [beta]\npairs: {{rounds: 3}}\nrepetitions: 4\nbudget: {{max_jobs: 2}}\n{ONE_TEST}")
    with desk.running("run", "campaign.yaml") as driver:
        running(users, desk)
        with server_away(users):
            driver.poll()
            users.lab.exec("beta", "sleep", "6")
        assert driver.wait(timeout=240) == 0, desk.log()
    assert outcomes(desk) == {"cluster measured": 24}
    nothing_ran_twice(users, desk, "beta", crashes=1)


def test_an_order_that_fails_is_repeated(users: Live, tmp_path: Path) -> None:
    """qdel ends with a refusal twice, and nothing of the run is left all the same."""
    desk = users.desk(tmp_path)
    desk.campaign(f"clusters: [beta]\npairs: {{rounds: 1}}\ntests:\n  {ENDLESS}")
    count = "/scratch/of-labuser/once"
    refuse = f'mkdir -p {count}; [ "$(ls {count} | wc -l)" -ge 2 ] && exec /opt/pbs/bin/qdel "$@"\n'
    refuse += f'mktemp {count}/XXXXXX >/dev/null; echo "qdel: Server busy" >&2; exit 12\n'
    with in_front_of(users, "qdel", refuse), desk.running("run", "campaign.yaml") as driver:
        running(users, desk)
        desk.hpcq("cancel", expect=None, timeout_s=240)
        users.until(lambda: not users.root("qselect"), "an empty queue")
        driver.wait(timeout=120)


def test_jobs_that_root_deletes_are_measured_by_another_attempt_or_told_as_cancelled(users: Live, tmp_path: Path) -> None:
    desk = users.desk(tmp_path)
    desk.campaign(f"clusters: [beta]\npairs: {{rounds: 3}}\nrepetitions: 3\nretries: 2\n{ONE_TEST}")
    with desk.running("run", "campaign.yaml") as driver:
        running(users, desk)
        users.root("for id in $(qselect); do qdel $id; done")
        code = driver.wait(timeout=240)
    ends = [(event["outcome"], event["reason"]) for event in desk.events("beta") if event["event"] == "ended"]
    assert all(outcome == "completed" or reason for outcome, reason in ends), ends
    # With history, PBS says that somebody deleted them: that is respected. Without, they are forgotten, and tried again.
    deleted = sum(outcome == "cancelled" for outcome, _ in ends)
    assert users.history or not deleted, ends
    assert code == (4 if deleted else 0), desk.log()
    # What a deleted job had measured before counts.
    measured = outcomes(desk).get("cluster measured", 0)
    assert 18 - 3 * deleted <= measured <= 18, ends
    assert sum(outcomes(desk).values()) == 18, outcomes(desk)
