"""A reservation of the run's own: made, used, found again after a crash, removed; and who may not make one hears it first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcq.errors import UserError
from hpcq.runner.site.place import open_run, place
from tests.lab.campaigns_in_lab import INSTANT, SLOW, Desk
from tests.lab.driven_in_lab import CAMPAIGN, Driven, names, states
from tests.lab.lab_fixture import RunningLab
from tests.local.desk import kill_session

pytestmark = pytest.mark.lab

MAKE = "nodes: {reservation: {make: true}, exclude: [alpha-n04]}"


@pytest.fixture
def operator(lab: RunningLab) -> Iterator[None]:
    """labuser is an operator of alpha's Slurm while the test runs."""
    words = ["sacctmgr", "-i", "modify", "user", "labuser", "set"]
    lab.exec("alpha", *words, "AdminLevel=Operator")
    try:
        yield
    finally:
        lab.exec("alpha", *words, "AdminLevel=None")
        assert "hpcq-" not in reservations(lab)


def reservations(lab: RunningLab) -> str:
    return lab.exec("alpha", "scontrol", "--oneliner", "show", "reservation")


def test_an_operators_run_makes_uses_and_removes_its_own(lab: RunningLab, tmp_path: Path, operator: None) -> None:
    driven = Driven(tmp_path, lab, "alpha", f"pairs: {{rounds: 2}}\n{MAKE}", duration_s=6)
    driving = driven.start()
    driven.wait_for(states("running"))
    [line] = reservations(lab).splitlines()
    assert f"ReservationName=hpcq-{driven.run.run}-alpha " in line
    assert "Nodes=alpha-n[01-03] " in line
    assert "Users=labuser " in line
    listed = lab.exec("alpha", "squeue", "--noheader", "--user=labuser", "--states=all", "--format=%j %v").splitlines()
    told = [line.split()[1] for line in listed if driven.run.run in line.split()[0]]  # also of those that have ended
    assert set(told) == {f"hpcq-{driven.run.run}-alpha"}
    driven.finish(driving)
    assert "hpcq-" not in reservations(lab)
    assert driven.outcomes() == ["completed"] * 2
    assert driven.load()["measured_count"] == 2


def test_whoever_may_not_make_one_hears_it_before_anything_runs(lab: RunningLab, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="labuser may not make reservations"):
        Driven(tmp_path, lab, "alpha", f"pairs: {{rounds: 1}}\n{MAKE}")
    desk = Desk(tmp_path, lab)
    desk.campaign(f"clusters: [alpha]\npairs: {{rounds: 1}}\n{MAKE}\ntests:\n  {INSTANT}")
    said = desk.hpcq("plan", "campaign.yaml", expect=2).stderr
    assert "alpha: nodes.reservation.make: labuser may not make reservations" in said
    assert "hint: " in said


def test_a_campaign_may_go_on_without(lab: RunningLab, tmp_path: Path) -> None:
    without = "nodes: {reservation: {make: true, otherwise: without}}"
    driven = Driven(tmp_path, lab, "alpha", f"pairs: {{rounds: 1}}\n{without}")
    driven.finish(driven.start())
    assert driven.outcomes() == ["completed"] * 2
    assert any("reservation refused" in text for text in driven.said)


@pytest.mark.long
def test_a_user_who_waits_gets_the_reserved_nodes(lab: RunningLab, tmp_path: Path, operator: None) -> None:
    driven = Driven(tmp_path, lab, "alpha", f"pairs: {{rounds: 3}}\nbudget: {{yield: true}}\n{MAKE}", duration_s=4)
    driving = driven.start()
    driven.wait_for(states("running"))
    words = "sbatch --wait --nodes=4 --exclusive --time=1 --output=/dev/null --wrap true"
    lab.exec("alpha", *words.split(), user="otheruser")  # returns when the job has ended
    driven.finish(driving)
    assert driven.load()["measured_count"] == 3
    assert sum("reservation hpcq-" in text for text in driven.said) >= 2, driven.said  # made, given back, made again


def test_a_later_driver_finds_and_removes_it(lab: RunningLab, tmp_path: Path, operator: None) -> None:
    desk = Desk(tmp_path, lab)
    desk.campaign(f"clusters: [alpha]\npairs: {{rounds: 1}}\nrepetitions: 1\n{MAKE}\ntests:\n  {SLOW}")
    with desk.running("run", "campaign.yaml") as child:
        desk.wait_for(names("submitted"))
        kill_session(child)
    assert "hpcq-" in reservations(lab)
    desk.hpcq("cancel")
    assert "hpcq-" not in reservations(lab)
    assert lab.exec("alpha", "squeue", "--noheader", "--user=labuser", "--states=PD,R,CF") == ""


def test_the_scheduler_is_told_the_name(lab: RunningLab, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CAMPAIGN.format(cluster="alpha", duration_s=1, repetitions=1, more=f"pairs: all\n{MAKE}"))
    run = open_run(tmp_path / "c.yaml", [lab.state / "clusters"], tmp_path / "r.db", tmp_path / "runs")
    scheduler = place(run, "alpha").scheduler
    name = f"hpcq-{run.run}-alpha"
    assert len([one for one in scheduler.nodes() if one.condition == "idle"]) >= 3  # there is none yet: nothing is within
    make = ["scontrol", "create", "reservation", f"reservationname={name}", "users=labuser", "nodes=alpha-n02"]
    lab.exec("alpha", *make, "starttime=now", "duration=5")
    try:
        assert scheduler.has_reservation(name)
        assert [one.node for one in scheduler.nodes() if one.condition == "idle"] == ["alpha-n02"]
    finally:
        lab.exec("alpha", "scontrol", "delete", f"reservationname={name}")
    assert not scheduler.has_reservation(name)
