"""Limits over all runs of a user on a cluster, and the stop file that every driver obeys."""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcq.clock import Clock
from hpcq.definition.model import Budget
from hpcq.errors import SchedulerError
from hpcq.runner.queue import account as shared_account
from hpcq.runner.queue.account import HeldByJobs, SharedAccount
from hpcq.scheduler.types import JobState
from hpcq.transport import Here
from hpcq.units import utc_text
from tests.driver.fake_clock import FakeClock
from tests.driver.fake_site import FakeSite, steps_of

pytestmark = pytest.mark.fast

PAIRS = (("n1", "n2"), ("n3", "n4"), ("n5", "n6"))


def site_of(folder: Path, limits: str) -> FakeSite:
    site = FakeSite(folder, node_count=6, pairs=PAIRS, keys=f"budget: {{{limits}}}", shares_account=True)
    site.budget = site.cluster.budget
    return site


def other_run(site: FakeSite, limits: Budget, name: str = "other-1") -> SharedAccount:
    """Another run of the same user on the same cluster and the same clock."""
    folder = str(site.folder / "work" / "hpcq" / "account" / "sim")
    account = SharedAccount(Here(), folder, name, limits, site.clock)
    account.refresh(HeldByJobs(), 0.0)
    return account


def most_at_once(site: FakeSite) -> int:
    """How many jobs of this run were queued or running at any time."""
    jobs = list(site.scheduler.jobs.values())
    return max(sum(one.submitted_s <= job.submitted_s < one.ended_s for one in jobs) for job in jobs)


def takes(account: SharedAccount, jobs: tuple[tuple[str, ...], ...], used: float = 0.0) -> None:
    account.refresh(HeldByJobs(jobs, 240.0 * len(jobs), 120.0), used, at_once=True)


@pytest.mark.heavy
@pytest.mark.promise("Limits of a cluster file hold over all runs of a user there.")
@pytest.mark.promise("The share of the nodes counts those that other runs of the user have.")
@pytest.mark.parametrize(
    ("limits", "budget", "at_once"),
    [
        ("max_jobs: 3", Budget(max_jobs=3), 1),
        ("max_nodes: 6", Budget(max_nodes=6), 1),
        ("max_node_ratio: 0.7", Budget(max_node_ratio=0.7), 1),
        ("max_jobs: 4", Budget(max_jobs=4), 2),
    ],
)
def test_limits_of_a_cluster_file_hold_over_all_runs(tmp_path: Path, limits: str, budget: Budget, at_once: int) -> None:
    site = site_of(tmp_path, limits)
    takes(other_run(site, budget), (("m1", "m2"), ("m3", "m4")))
    events = site.drive()
    assert steps_of(events) == 3
    assert most_at_once(site) == at_once


@pytest.mark.heavy
@pytest.mark.promise("Limits of a campaign hold for its own run only.")
def test_limits_of_a_campaign_hold_for_its_run_alone(tmp_path: Path) -> None:
    site = site_of(tmp_path, "max_walltime_s: 1h")
    site.budget = Budget(max_jobs=2)
    takes(other_run(site, Budget()), (("m1", "m2"), ("m3", "m4")))
    site.drive()
    assert most_at_once(site) == 2
    assert min(job.submitted_s for job in site.scheduler.jobs.values()) < 60


@pytest.mark.heavy
@pytest.mark.promise("A run that waits for other runs of its user says which, and until when.")
def test_a_run_waits_for_the_other_runs_and_says_so(tmp_path: Path) -> None:
    site = site_of(tmp_path, "max_jobs: 2")
    other = other_run(site, Budget(max_jobs=2))
    takes(other, (("m1", "m2"), ("m3", "m4")))
    site.at(400, lambda: takes(other, ()))
    events = site.drive()
    words = "other runs of this user (other-1) take what the cluster file allows: 2 jobs on 4 nodes; waits since"
    assert any(words in text for text in site.said)
    assert steps_of(events) == 3
    assert min(job.submitted_s for job in site.scheduler.jobs.values()) >= 400


@pytest.mark.promise("Node-seconds of a cluster file hold over all runs of the last 24 hours.")
@pytest.mark.heavy
def test_node_seconds_of_all_runs_count_for_24_hours(tmp_path: Path) -> None:
    site = site_of(tmp_path, "max_node_seconds: 1000")
    takes(other_run(site, Budget(max_node_seconds=1000)), (), used=900.0)
    site.clock.sleep(23.6 * 3600)
    events = site.drive()
    assert any(
        "all runs of this user took or hold 900 node-seconds in 24 hours, 1000 are allowed" in text for text in site.said
    )
    assert steps_of(events) == 3
    assert 24 * 3600 <= min(job.submitted_s for job in site.scheduler.jobs.values()) <= 25 * 3600


@pytest.mark.heavy
@pytest.mark.promise("A silent driver's jobs count until their time limits are over, and its run is named.")
def test_a_run_whose_driver_is_silent_counts_and_is_named_until_its_time_limits_are_over(tmp_path: Path) -> None:
    site = site_of(tmp_path, "max_jobs: 2")
    takes(other_run(site, Budget(max_jobs=2)), (("m1", "m2"), ("m3", "m4")))
    site.clock.sleep(3300)
    site.drive()
    assert any("run other-1 counts with 2 jobs, but its driver on" in text for text in site.said)
    assert 3700 <= min(job.submitted_s for job in site.scheduler.jobs.values()) <= 3800


def elsewhere(site: FakeSite, wrong_s: float, until_s: int) -> None:
    """A driver on a machine whose clock is wrong, which writes its entry every minute and is killed at a moment."""
    path = site.folder / "work" / "hpcq" / "account" / "sim" / "other-1.json"
    path.parent.mkdir(parents=True)

    def write() -> None:
        written = utc_text(site.clock.utc() + dt.timedelta(seconds=wrong_s))
        entry = {"jobs": ["m[1-2]", "m[3-4]"], "live_node_seconds": 480.0, "walltime_s": 120.0, "took_node_seconds": {}}
        path.write_text(json.dumps({**entry, "run": "other-1", "host": "far", "written_utc": written}))

    write()
    for passed_s in range(60, until_s, 60):
        site.at(passed_s, write)


@pytest.mark.promise("Jobs of a living driver count for all runs, whatever the clock of its machine says.")
@pytest.mark.promise("A dead driver's jobs count no longer than their time limits and an hour, whatever clock wrote its entry.")
@pytest.mark.parametrize("wrong_s", [-7200, pytest.param(7200, marks=pytest.mark.long)])
@pytest.mark.heavy
def test_jobs_of_a_living_driver_count_whatever_its_clock_says(tmp_path: Path, wrong_s: int) -> None:
    """And those of one that died count for their time limit and an hour more, as this host counts."""
    site = site_of(tmp_path, "max_jobs: 2")
    elsewhere(site, wrong_s, 2000)
    site.drive()
    first_s = min(job.submitted_s for job in site.scheduler.jobs.values())
    assert first_s >= 1980 + 150
    assert first_s <= 1980 + 120 + 3600 + 100


@pytest.mark.heavy
@pytest.mark.promise("A resumed run knows what its earlier drivers took, and when.")
def test_a_resumed_run_counts_what_its_earlier_driver_took_when_it_took_it(tmp_path: Path) -> None:
    site = site_of(tmp_path, "max_node_seconds: 1000")
    mine = other_run(site, Budget(), "mine-1")
    takes(mine, (), used=700.0)
    site.clock.sleep(30 * 3600)
    resumed = other_run(site, Budget(), "mine-1")
    takes(resumed, (), used=750.0)
    entry = json.loads((site.folder / "work/hpcq/account/sim/mine-1.json").read_text())
    assert sorted(entry["took_node_seconds"].values()) == [50.0, 700.0]


@pytest.mark.heavy
@pytest.mark.promise("What a run took by a clock that was years ahead uses up no limit until then.")
@pytest.mark.parametrize(("ahead_h", "counts"), [(24 * 365, False), (2, True)])
def test_hours_of_a_clock_that_was_years_ahead(tmp_path: Path, ahead_h: int, counts: bool) -> None:
    site = site_of(tmp_path, "max_node_seconds: 1000")
    takes(other_run(site, Budget(), "other-1"), (), used=990.0)
    path = site.folder / "work/hpcq/account/sim/other-1.json"
    entry = json.loads(path.read_text())
    hour = (site.clock.utc() + dt.timedelta(hours=ahead_h)).strftime("%Y-%m-%dT%H")
    path.write_text(json.dumps(entry | {"took_node_seconds": {hour: 990.0}}))
    site.clock.sleep(25 * 3600)
    assert steps_of(site.drive()) == 3
    assert any("all runs of this user took or hold 990 node-seconds" in text for text in site.said) is counts


@pytest.mark.parametrize("seconds", ["990", [990], None])
def test_an_entry_without_numbers_does_not_count_and_is_told(tmp_path: Path, seconds: object) -> None:
    site = site_of(tmp_path, "max_node_seconds: 1000")
    takes(other_run(site, Budget(), "other-1"), (), used=990.0)
    path = site.folder / "work/hpcq/account/sim/other-1.json"
    entry = json.loads(path.read_text())
    path.write_text(json.dumps(entry | {"took_node_seconds": dict.fromkeys(entry["took_node_seconds"], seconds)}))
    assert steps_of(site.drive()) == 3
    assert any("other-1.json cannot be read: what that run takes does not count" in text for text in site.said)


@pytest.mark.promise("Two drivers on two machines never take the same rest of a limit.")
@pytest.mark.heavy
def test_two_drivers_never_take_the_same_rest_of_a_limit(tmp_path: Path) -> None:
    """On two heads, without any lock but a folder."""
    most, taken, seen = 5, [0, 0, 0], []
    limits = Budget(max_jobs=most)

    def drive(number: int) -> None:
        account = SharedAccount(Here(), str(tmp_path / "account" / "sim"), f"run-{number}", limits, Clock())
        account.refresh(HeldByJobs(), 0.0)
        for _ in range(8):
            if not account.open():
                continue
            room = most - account.others.job_count - taken[number]
            jobs = tuple(("n1", "n2") for _ in range(taken[number] + min(2, room)))
            if account.book(HeldByJobs(jobs, 0.0, 60.0), 0.0):
                taken[number] = len(jobs)
            seen.append(sum(taken))

    threads = [threading.Thread(target=drive, args=(number,)) for number in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert max(seen) == most
    assert sum(taken) == most


def two_accounts(folder: Path) -> tuple[FakeClock, SharedAccount, SharedAccount]:
    """Two runs on one clock that only waiting moves."""
    clock = FakeClock()
    limits = Budget(max_jobs=3)
    first, second = (SharedAccount(Here(), str(folder), name, limits, clock) for name in ("run-1", "run-2"))
    for one in (first, second):
        one.refresh(HeldByJobs(), 0.0)
    return clock, first, second


ONE_JOB = HeldByJobs((("n1", "n2"),), 0.0, 60.0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that is held is waited for during two looks, not during ten seconds."""
    monkeypatch.setattr(shared_account, "_LOCK_TRIES", 2)


@pytest.mark.promise("A driver that lost the lock of the account books nothing.")
@pytest.mark.promise("A lock of the account is broken after a minute of this host's own count, whatever other clocks say.")
@pytest.mark.heavy
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("wrong_s", [-3600, *(pytest.param(one, marks=pytest.mark.long) for one in (0, 3600))])
def test_a_lock_of_a_driver_that_died_is_broken_and_its_owner_books_nothing(tmp_path: Path, wrong_s: int) -> None:
    """Whatever the clock of the file server says: only a minute that this host saw counts."""
    folder = tmp_path / "account" / "sim"
    clock, first, second = two_accounts(folder)
    assert first.open()
    os.utime(folder / "lock", (time.time() + wrong_s,) * 2)
    for passed_s in (0, 30, 29):
        clock.sleep(passed_s)
        assert not second.open(), "the lock is younger than a minute, as this host saw it"
    clock.sleep(1)
    assert second.open()
    assert not first.book(ONE_JOB, 0.0), "it lost the lock"
    assert second.book(ONE_JOB, 0.0)
    assert json.loads((folder / "run-1.json").read_text())["jobs"] == []
    assert not (folder / "lock").exists()


@pytest.mark.promise("A driver that takes the lock of the account again and again keeps it.")
@pytest.mark.heavy
@pytest.mark.usefixtures("impatient")
def test_a_driver_that_takes_the_lock_again_and_again_keeps_it(tmp_path: Path) -> None:
    clock, first, second = two_accounts(tmp_path / "account" / "sim")
    for _ in range(5):
        assert first.open()
        clock.sleep(25)
        assert not second.open(), "another lock than before, though of the same driver"
        assert first.book(ONE_JOB, 0.0)


@pytest.mark.heavy
@pytest.mark.promise("A driver that loses the lock of the account while it writes its entry submits nothing.")
def test_who_loses_the_lock_while_it_writes_submits_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another driver, which has read the account before this entry was there, holds the lock when it is."""
    folder = tmp_path / "account" / "sim"
    _, first, _ = two_accounts(folder)
    assert first.open()
    (tmp_path / "bin").mkdir()
    slow = tmp_path / "bin" / "mv"
    slow.write_text('#!/bin/sh\necho somebody >lock/owner\nexec /bin/mv "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    assert not first.book(ONE_JOB, 0.0)
    assert (folder / "lock" / "owner").read_text() == "somebody\n", "the lock of the other one stays"
    monkeypatch.undo()
    first.refresh(HeldByJobs(), 0.0, at_once=True)
    assert json.loads((folder / "run-1.json").read_text())["jobs"] == []


def stopping(site: FakeSite, words: str) -> Callable[[], object]:
    return lambda: (site.folder / "work" / "hpcq" / "stop").write_text(words)


@pytest.mark.heavy
@pytest.mark.promise("A stop file ends running jobs early, withdraws queued ones, and its words are said.")
def test_the_stop_file_withdraws_ends_early_and_is_said_until_it_is_gone(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, node_count=2, pairs=(("n1", "n2"), ("n2", "n1")), shares_account=True)
    site.scheduler.run_s = 100.0
    site.at(15, stopping(site, "maintenance of the fabric\nuntil noon"))
    site.at(300, (site.folder / "work" / "hpcq" / "stop").unlink)
    events = site.drive()
    words = f"stopped by {site.folder}/work/hpcq/stop: maintenance of the fabric until noon"
    assert any(words in text for text in site.said)
    assert any(event["event"] == "waiting" and words in event["reason"] for event in events)
    assert [job.tag[-8:] for job in site.scheduler.jobs.values() if 30 < job.submitted_s < 300] == []
    assert site.scheduler.of_tag("j00002-1").state is JobState.CANCELLED
    assert (site.scheduler.of_tag("j00001-1").folder / "finish").exists()
    assert steps_of(events) == 2


def finish_file_s(site: FakeSite, from_s: int) -> float:
    """When the first job was asked to end after its test, after its driver has ended."""
    seen: list[float] = []

    def look() -> None:
        if not seen and any(job.live and (job.folder / "finish").exists() for job in site.scheduler.jobs.values()):
            seen.append(site.clock.passed_s)

    for passed_s in range(from_s, from_s + 200):
        site.at(passed_s, look)
    site.drive()
    return seen[0]


@pytest.mark.heavy
@pytest.mark.promise("A stop file is obeyed within 15 s, also while the controller answers slowly or not at all.")
def test_the_stop_file_is_obeyed_within_15_s_also_when_the_controller_answers_slowly(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, node_count=2, pairs=(("n1", "n2"),), shares_account=True)
    site.scheduler.run_s = 600.0
    site.scheduler.look_hook = lambda: site.clock.sleep(7)
    site.at(100, stopping(site, ""))
    site.at(300, (site.folder / "work" / "hpcq" / "stop").unlink)
    assert 100 <= finish_file_s(site, 100) <= 100 + 15 + 7, "a command that is under way takes its time"


@pytest.mark.heavy
@pytest.mark.promise("A stop file is obeyed within 15 s, also while the controller answers slowly or not at all.")
def test_the_stop_file_is_obeyed_while_the_controller_does_not_answer(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, node_count=2, pairs=(("n1", "n2"),), shares_account=True)
    site.scheduler.run_s = 600.0

    def away() -> None:
        if 50 < site.clock.passed_s < 500:
            raise SchedulerError("squeue: Unable to contact slurm controller")

    site.scheduler.look_hook = away
    site.at(100, stopping(site, ""))
    site.at(300, (site.folder / "work" / "hpcq" / "stop").unlink)
    assert 100 <= finish_file_s(site, 100) <= 116


@pytest.mark.heavy
@pytest.mark.promise("A stop file holds also where the account cannot be written.")
def test_the_stop_file_holds_where_the_account_cannot_be_written(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, shares_account=True)
    place = site.folder / "work" / "hpcq"
    place.mkdir(parents=True)
    (place / "account").write_text("a file where the folder belongs")
    stopping(site, "")()
    site.at(500, (place / "stop").unlink)
    site.at(500, (place / "account").unlink)
    site.drive()
    assert min(job.submitted_s for job in site.scheduler.jobs.values()) >= 500


@pytest.mark.promise("The folder of the stop file is opened before it is asked for, so that NFS asks its server.")
def test_the_folder_of_the_stop_file_is_opened_before_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS asks its server again when a folder is opened; else it may say for a minute that a file is not there."""
    (tmp_path / "bin").mkdir()
    opens = tmp_path / "bin" / "ls"
    opens.write_text(f'#!/bin/sh\n[ "$*" != "-f -- {tmp_path}/hpcq" ] || touch {tmp_path}/hpcq/stop\nexec /bin/ls "$@"\n')
    opens.chmod(0o755)
    monkeypatch.setenv("PATH", f"{opens.parent}:{os.environ['PATH']}")
    (tmp_path / "hpcq").mkdir()
    account = SharedAccount(Here(), str(tmp_path / "hpcq" / "account" / "sim"), "run-1", Budget(), FakeClock())
    account.refresh(HeldByJobs(), 0.0)
    assert account.stopped is not None


@pytest.mark.heavy
@pytest.mark.promise("While a stop file exists, hpcq starts no job.")
def test_nothing_starts_where_a_stop_file_lies(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, shares_account=True)
    (site.folder / "work" / "hpcq").mkdir(parents=True)
    stopping(site, "")()
    site.at(500, (site.folder / "work" / "hpcq" / "stop").unlink)
    site.drive()
    assert min(job.submitted_s for job in site.scheduler.jobs.values()) >= 500
    assert any("no reason given" in text for text in site.said)


@pytest.mark.promise("An account that cannot be written stops submissions only where limits are shared, and says so.")
@pytest.mark.heavy
def test_an_account_that_cannot_be_written_stops_submissions_only_where_limits_are_shared(tmp_path: Path) -> None:
    for limits, submitted_after_s in (("max_walltime_s: 1h", 0), ("max_jobs: 9", 300)):
        site = site_of(tmp_path / str(submitted_after_s), limits)
        place = site.folder / "work" / "hpcq"
        place.mkdir(parents=True)
        (place / "account").write_text("a file where the folder belongs")
        site.at(300, (place / "account").unlink)
        site.drive()
        first_s = min(job.submitted_s for job in site.scheduler.jobs.values())
        assert (first_s >= 300) == bool(submitted_after_s)
        assert any("cannot be used: " in text for text in site.said)
