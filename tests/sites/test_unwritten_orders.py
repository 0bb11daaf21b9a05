"""Orders to running jobs are files on the cluster: while they cannot be written there, nothing counts as ordered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcq.definition.model import WithoutReservation
from hpcq.runner.queue.reservations import OwnReservation, ReservationState
from hpcq.scheduler.slurm.scheduler import Slurm
from hpcq.scheduler.types import SchedulerSettings
from hpcq.transport import Completed, Here
from tests.driver.fake_clock import FakeClock
from tests.driver.fake_site import FakeSite

pytestmark = pytest.mark.fast

FULL = "touch: cannot touch 'finish': Disk quota exceeded"


class FullHere(Here):
    """This machine, where scripts that write these names fail at times, as with a full quota."""

    refused: tuple[str, ...] = ()

    def sh(self, script: str, *, timeout_s: float = 120.0, stdin: bytes = b"") -> Completed:
        if any(one in script for one in self.refused):
            return Completed(1, FULL.encode(), FULL)
        return super().sh(script, timeout_s=timeout_s, stdin=stdin)


def full_site(folder: Path, *, shares_account: bool = False) -> tuple[FakeSite, FullHere]:
    """One pair whose job runs for long, on a cluster whose quota is full."""
    site = FakeSite(folder, node_count=2, pairs=(("n1", "n2"),), shares_account=shares_account)
    site.scheduler.run_s = 5000.0
    site.scheduler.transport = there = FullHere()
    there.refused = ("touch -- ", "/claim 2>&1)", '/claim" 2>/dev/null')
    return site, there


def has_room_from(site: FakeSite, there: FullHere, room_s: float) -> None:
    """Somebody makes room at this moment."""
    site.at(room_s, lambda: setattr(there, "refused", ()))


@pytest.mark.heavy
@pytest.mark.promise("Running jobs are told to end early until the order is written, and hpcq says while it cannot be.")
def test_running_jobs_are_told_to_end_early_until_the_order_is_written(tmp_path: Path) -> None:
    site, there = full_site(tmp_path, shares_account=True)
    stop = site.folder / "work" / "hpcq" / "stop"
    asked: dict[float, bool] = {}
    site.at(100, stop.touch)
    has_room_from(site, there, 150)
    for passed_s in (149, 166):

        def look(passed_s: float = passed_s) -> None:
            asked[passed_s] = (site.scheduler.of_tag("j00001-1").folder / "finish").exists()

        site.at(passed_s, look)
    site.at(300, stop.unlink)
    site.at(300, lambda: setattr(site.scheduler, "run_s", 60.0))
    site.drive()
    assert asked == {149: False, 166: True}
    assert sum("running jobs cannot be told to end early: touch" in text for text in site.said) == 1


def lost_s(site: FakeSite) -> float:
    """Let the controller forget the first job, which runs on and obeys no order; returns when it counted as lost."""
    site.scheduler.shown = lambda job, report: None if "j00001-1" in job.tag else report
    site.scheduler.obeys = lambda job: "j00001-1" not in job.tag
    site.at(3000, lambda: setattr(site.scheduler, "run_s", 60.0))
    site.drive()
    return next(at for at, text in site.said_at if "j00001 attempt 1: lost" in text)


@pytest.mark.promise("A forgotten job that can be neither claimed nor told to end is not lost before its time limit is over.")
@pytest.mark.heavy
def test_a_forgotten_job_that_can_be_neither_claimed_nor_told_to_end_is_not_lost(tmp_path: Path) -> None:
    """With a second try beside it two jobs of a pair would measure at once."""
    site, there = full_site(tmp_path)
    has_room_from(site, there, 500)
    lost = lost_s(site)
    said = next(at for at, text in site.said_at if "can neither be claimed nor told to end: touch" in text)
    assert said < 500
    assert lost >= 500 + site.cluster.filesystem_delay_s
    assert (site.scheduler.of_tag("j00001-1").folder / "finish").exists()


@pytest.mark.promise("A forgotten job of which nothing proves the end is lost when its time limit is over.")
@pytest.mark.heavy
def test_a_forgotten_job_without_any_proof_is_lost_when_its_time_limit_is_over(tmp_path: Path) -> None:
    site, _ = full_site(tmp_path)
    lost = lost_s(site)
    assert site.scheduler.of_tag("j00001-1").walltime_s + 300 <= lost < 3000


SCONTROL = """#!/bin/sh
if [ -e there/away ]; then echo 'scontrol: error: Unable to contact slurm controller (connect failure)' >&2; exit 1; fi
case "$*" in
    create*) : >there/made ;;
    delete*) rm there/made 2>/dev/null || { echo 'Requested reservation is invalid' >&2; exit 1; } ;;
    *) [ -e there/made ] || { echo 'Reservation hpcq-run-1-sim not found' >&2; exit 1; } ;;
esac
"""


@pytest.mark.heavy
@pytest.mark.promise("A reservation of hpcq's own is not believed gone because the controller does not answer.")
def test_a_reservation_is_not_believed_gone_because_the_controller_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would keep users off its nodes; so the order is repeated until an answer shows that there is none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "scontrol").write_text(SCONTROL)
    (tmp_path / "scontrol").chmod(0o755)
    (tmp_path / "there").mkdir()
    made, away, said, clock = tmp_path / "there/made", tmp_path / "there/away", list[str](), FakeClock()
    slurm = Slurm(Here(), SchedulerSettings())
    mine = OwnReservation(slurm, "hpcq-run-1-sim", 60.0, WithoutReservation.STOP, say=said.append, clock=clock)
    assert mine.hold(["n1"]) is ReservationState.YES
    away.touch()
    clock.sleep(451)
    mine.keep()
    mine.drop()
    assert mine.held, "neither order was heard"
    mine.drop(patiently=True)
    assert any("could not be removed" in text for text in said)
    away.unlink()
    mine.drop()
    assert not mine.held
    assert not made.exists()
    mine.adopt(["n1"])
    assert not mine.held, "an answer says that there is none"
