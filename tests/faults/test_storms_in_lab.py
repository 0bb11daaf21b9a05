"""The kinds of trouble of storms.py on a real Slurm: wrappers around its commands, its own saved state, a full file system.

/usr/local of a cluster's machines is one small file system of their own, and its bin comes first on PATH. What stands
there in place of sbatch or tar runs the real program and changes when, and what of its answer, the driver sees.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcq.runner.cancelling import cancel_run
from tests import REPOSITORY
from tests.faults.lab_troubles import (
    LONG_S,
    ChangedLab,
    Trouble,
    jobs_in_slurm,
    measured_side_by_side,
    nothing_left,
    scheduler_job_ids,
)
from tests.lab.driven_in_lab import Driven, names, states
from tests.lab.lab_fixture import RunningLab, own_lab

pytestmark = [pytest.mark.lab, pytest.mark.long]


@pytest.fixture(scope="module")
def own() -> Iterator[RunningLab]:
    """A lab for this module alone: its controllers lose their memory, and nodes of beta get other names."""
    given = os.environ.get("HPCQ_TEST_STORM_LAB")
    if given:
        yield RunningLab(given)
        return
    with own_lab("storm") as lab:
        yield lab


@pytest.fixture
def trouble(own: RunningLab) -> Iterator[Trouble]:
    made = Trouble(own)
    try:
        yield made
    finally:
        made.over()


def campaign(lab: RunningLab, folder: Path, *, rounds: int = 2, duration_s: float = 1.0) -> Driven:
    """Two pairs at a time on alpha."""
    return Driven(folder, lab, "alpha", f"pairs: {{rounds: {rounds}}}", duration_s=duration_s)


def kept_its_promises(driven: Driven) -> None:
    """Everything measured, once; each attempt has one end; no two jobs of a pair at once; nothing is left."""
    loaded = driven.load()
    assert loaded["measured_count"] == loaded["planned_count"], (driven.said, loaded)
    events = driven.events()
    ended = sorted(one["tag"] for one in events if one["event"] in {"ended", "refused"})
    assert ended == sorted({one["tag"] for one in events if one["event"] == "attempt"}), "one end of each attempt"
    counted = [(one["tag"].rsplit("-", 2)[1], *step) for one in events if one["event"] == "ended" for step in one["measured"]]
    assert len(counted) == len(set(counted)), "measured once"
    assert measured_side_by_side(driven) == []
    assert nothing_left(driven.lab, "alpha") == []


@pytest.mark.parametrize("words", ["Welcome to alpha!", "unknown", "1,2", ""])
def test_an_id_that_is_nonsense(own: RunningLab, tmp_path: Path, trouble: Trouble, words: str) -> None:
    driven = campaign(own, tmp_path)
    trouble.sbatch(f"/usr/bin/sbatch \"$@\" >/dev/null; echo '{words}'", times=2)
    driven.finish(driven.start())
    kept_its_promises(driven)
    assert trouble.hits() == 2
    assert len(jobs_in_slurm(driven)) == len(driven.plan.pairs), "what had been accepted was found by its name"


@pytest.mark.parametrize("killed", ["$$", "$PPID $$"])
def test_sbatch_is_killed_after_acceptance(own: RunningLab, tmp_path: Path, trouble: Trouble, killed: str) -> None:
    """sbatch alone, or with the shell that called it, so that nobody says what became of the wave."""
    driven = campaign(own, tmp_path)
    trouble.sbatch(f'/usr/bin/sbatch "$@" >/dev/null; kill -KILL {killed}', times=1)
    driven.finish(driven.start())
    kept_its_promises(driven)
    assert trouble.hits() == 1
    assert len(jobs_in_slurm(driven)) == len(driven.plan.pairs)


@pytest.mark.parametrize("late_s", [90, 150])
def test_sbatch_answers_late(own: RunningLab, tmp_path: Path, trouble: Trouble, late_s: int) -> None:
    """Within the time-out of a wave of four jobs, 100 s, or after it: what arrives then measures nothing or counts, once."""
    driven = campaign(own, tmp_path)
    trouble.sbatch(f'sleep {late_s}; exec /usr/bin/sbatch "$@"', times=1)
    driven.finish(driven.start(), within_s=LONG_S)
    kept_its_promises(driven)
    assert trouble.hits() == 1


def test_the_controller_is_back_on_a_state_of_two_minutes_ago(own: RunningLab, tmp_path: Path, trouble: Trouble) -> None:
    """It knows no job of this campaign, kills those that run, and gives their ids to another person's jobs."""
    driven = campaign(own, tmp_path, rounds=3, duration_s=50.0)
    trouble.keep_state()
    kept_s = time.monotonic()
    driving = driven.start()
    driven.wait_for(names("ended", 2))
    driven.wait_for(states("running", 4))
    time.sleep(max(0.0, 120.0 - (time.monotonic() - kept_s)))
    trouble.back_on_kept_state()
    ours = scheduler_job_ids(driven)
    theirs = trouble.strangers(len(ours))
    assert set(theirs) & set(ours), "ids were handed out again"
    driven.finish(driving, within_s=LONG_S)
    assert trouble.alive(theirs) == sorted(theirs), "no job of another person was ended"
    kept_its_promises(driven)


def test_exit_files_that_are_45_s_late(own: RunningLab, tmp_path: Path, trouble: Trouble) -> None:
    """tar, with which the driver fetches files, sees no exit file that is younger, as with caches of attributes."""
    driven = campaign(ChangedLab(own.name, tmp_path, "filesystem_delay_s: 10s", "filesystem_delay_s: 90s"), tmp_path)
    trouble.late_files(45)
    driven.finish(driven.start(), within_s=LONG_S)
    kept_its_promises(driven)
    assert set(driven.outcomes()) == {"completed"}, "late is not lost"
    assert trouble.late_count() > 0
    assert len(jobs_in_slurm(driven)) == len(driven.plan.pairs)


def test_a_second_driver_on_another_head(own: RunningLab, tmp_path: Path) -> None:
    """Another host with processes of its own, and locks that lock nothing there: it is refused while the first one lives."""
    driven = campaign(own, tmp_path, duration_s=5.0)
    driving = driven.start()
    driven.wait_for(names("submitted"))
    code = (
        "import sys, fcntl; fcntl.flock = lambda *_: None\n"
        "from pathlib import Path; from hpcq.runner import stages; from hpcq.run_folder.paths import RunFolder\n"
        "from hpcq.runner.site.place import ClusterSite; ClusterSite.secure = lambda _: None  # no ssh from there\n"
        "stages.drive(RunFolder(Path(sys.argv[1])), 'alpha', print)"
    )
    elsewhere = ["unshare", "--uts", "--pid", "--fork", "--mount-proc", "sh", "-c", 'hostname head2; exec "$@"', "sh"]
    done = subprocess.run(
        [*elsewhere, sys.executable, "-c", code, str(driven.run.path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert "held by process" in done.stderr, done.stderr[-800:]
    driven.finish(driving)
    kept_its_promises(driven)
    assert len(jobs_in_slurm(driven)) == len(driven.plan.pairs)


def test_a_file_system_of_the_cluster_that_is_full(own: RunningLab, tmp_path: Path, trouble: Trouble) -> None:
    """No byte is left for half a minute while jobs end; a person makes room and resumes where hpcq ended."""
    driven = campaign(trouble.small_file_system(tmp_path), tmp_path, rounds=3, duration_s=4.0)
    driving = driven.start()
    driven.wait_for(states("running", 2))
    trouble.fill()
    time.sleep(30)
    trouble.make_room()
    driving.join(LONG_S)
    if driven.failed:
        driven.said.append(f"ended: {driven.failed.pop()}")
        driven.finish(driven.start(), within_s=LONG_S)
    assert not driving.is_alive()
    kept_its_promises(driven)


@pytest.mark.parametrize("moment", ["running", "submitted"])
def test_cancel_while_the_controller_is_down(own: RunningLab, tmp_path: Path, trouble: Trouble, moment: str) -> None:
    driven = campaign(own, tmp_path, rounds=3, duration_s=300.0)
    driving = driven.start()
    driven.wait_for(names("submitted", 2) if moment == "submitted" else states("running", 2))
    trouble.controller_down()
    back = trouble.controller_up_after(25)
    left = cancel_run(driven.run, driven.said.append)
    back.join()
    driven.finish(driving, within_s=LONG_S)
    assert left == [], driven.said
    assert nothing_left(own, "alpha") == []


def test_node_names_that_are_no_host_names(own: RunningLab, trouble: Trouble, tmp_path: Path) -> None:
    """NodeName=beta-x[01-04] NodeHostname=beta-n[01-04]: a result names the scheduler's node and is no result elsewhere."""
    trouble.rename_nodes("beta-n", "beta-x")
    driven = Driven(tmp_path, own, "beta", "pairs: {rounds: 2}")
    assert {node for pair in driven.plan.pairs for node in pair} == {f"beta-x{number:02d}" for number in range(1, 5)}
    driven.finish(driven.start())
    loaded = driven.load()
    assert loaded["measured_count"] == loaded["planned_count"], (driven.said, loaded)
    hosts = {path.read_text() for path in driven.run.path.glob("beta/jobs/*/*/started.json")}
    assert all('"host": "beta-n' in text or '"host":"beta-n' in text for text in hosts), hosts
