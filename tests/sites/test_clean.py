"""Run folders on a cluster: which may go, what is shown first, and that nothing else is touched."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcq.cli.main import run as hpcq
from hpcq.errors import HpcqError, SchedulerError, TransportError
from hpcq.runner import stages
from hpcq.runner.site.checking import clean_by_age, remove, run_folders
from hpcq.scheduler.types import JobState
from hpcq.transport import Here
from tests.driver.fake_site import FakeJob, FakeSite

pytestmark = pytest.mark.fast
DAY_S = 86400.0
ENDED, LIVE, UNENDED, UNKNOWN, YOUNG = (
    f"{word}-20200101T000000Z-00a{no}" for no, word in enumerate(("ended", "live", "open", "far", "young"))
)


class Cluster:
    """A work directory with one folder of each kind, and the run folders here."""

    def __init__(self, folder: Path) -> None:
        self.site = FakeSite(folder, keys="run_folders_kept_s: 30d")
        self.base, self.runs = folder / "work" / "hpcq", folder / "runs"
        for name in (ENDED, LIVE, UNENDED, UNKNOWN, YOUNG):
            job = self.base / name / "sim" / "jobs" / "j00001" / "1"
            job.mkdir(parents=True)
            (self.base / name / "sim" / "secret").write_text("x")
            (job / "job.json").write_text(json.dumps({"format": 1, "tag": f"hpcq-{name}-sim-j00001-1"}, indent=1))
            if name != UNKNOWN:
                (self.runs / name / "sim").mkdir(parents=True)
            if name in {ENDED, LIVE, YOUNG}:
                (self.runs / name / "sim" / "driven.json").write_text("{}")
            if name != YOUNG:
                self.age(self.base / name, 100)
        #: Not a run: kept programs, the account, and what somebody else put there.
        for name in ("builds", "account/sim", f"{ENDED}.txt/sim", "mine-20200101T000000Z-00aa/sim"):
            (self.base / name).mkdir(parents=True)
        self.others = {path for path in self.base.iterdir() if not (path / "sim" / "secret").exists()}
        tag = f"hpcq-{LIVE}-sim-j00001-1"
        self.site.scheduler.jobs["7"] = FakeJob("7", tag, folder, (), 60.0, 0.0, state=JobState.RUNNING)

    def age(self, folder: Path, days: float) -> None:
        then = time.time() - days * DAY_S
        for path in [folder, *folder.rglob("*")]:
            os.utime(path, (then, then))

    def look(self, *, unknown: bool = False) -> dict[str, str]:
        found = run_folders(self.site.cluster, self.site.scheduler, self.runs, 30 * DAY_S, unknown=unknown)
        return {one.run: one.kept for one in found}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


@pytest.mark.heavy
@pytest.mark.promise("hpcq clean keeps a run that has not ended, or that has a job in the queue.")
@pytest.mark.promise("hpcq clean keeps runs that the run folders here do not know, unless it is told otherwise.")
def test_only_runs_that_ended_may_go_and_each_other_says_why_it_stays(cluster: Cluster) -> None:
    kept = cluster.look()
    assert kept[ENDED] == ""
    assert kept[LIVE].startswith("has jobs in the queue: hpcq-live-")
    assert kept[UNENDED] == f"not ended: hpcq resume or hpcq cancel {UNENDED}"
    assert kept[UNKNOWN].endswith("--unknown takes it too")
    assert kept[YOUNG] == "too young"
    assert cluster.look(unknown=True)[UNKNOWN] == ""
    assert set(kept) == {ENDED, LIVE, UNENDED, UNKNOWN, YOUNG}


@pytest.mark.heavy
@pytest.mark.promise("hpcq clean touches only run folders and follows no link.")
def test_what_is_removed_is_that_and_nothing_else(cluster: Cluster) -> None:
    found = run_folders(cluster.site.cluster, cluster.site.scheduler, cluster.runs, 30 * DAY_S)
    told = remove(cluster.site.cluster, cluster.site.scheduler, found)
    assert [one.run for one in told if one.removed] == [ENDED]
    assert {path.name for path in cluster.base.iterdir()} == {LIVE, UNENDED, UNKNOWN, YOUNG} | {
        one.name for one in cluster.others
    }


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["STORAGE/BASE CLUSTER", "it's $(here)"])
def test_a_work_directory_may_have_any_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir(parents=True)
    cluster = Cluster(tmp_path / name)
    assert cluster.look()[ENDED] == ""
    clean_by_age(cluster.site.cluster, cluster.site.scheduler, cluster.runs)
    assert not (cluster.base / ENDED).exists()
    assert (cluster.base / LIVE).exists()


@pytest.mark.promise("hpcq clean says so when it cannot read a cluster's work directory.")
def test_a_work_directory_that_cannot_be_listed_is_an_error_and_none_is_none(cluster: Cluster) -> None:
    cluster.base.rename(cluster.base.with_name("elsewhere"))
    assert cluster.look() == {}
    cluster.base.write_text("no folder")
    with pytest.raises(HpcqError, match="cannot be listed"):
        cluster.look()


@pytest.mark.heavy
@pytest.mark.promise("hpcq clean touches only run folders and follows no link.")
def test_a_link_in_place_of_a_run_is_not_followed(cluster: Cluster, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (cluster.base / ENDED).rename(precious)
    (cluster.base / ENDED).symlink_to(precious)
    assert ENDED not in cluster.look()
    (cluster.base / ENDED).unlink()
    (cluster.base / ENDED).mkdir()
    (cluster.base / ENDED / "sim").symlink_to(precious / "sim")
    assert ENDED not in cluster.look()


@pytest.mark.promise("Where the scheduler does not answer, hpcq clean keeps what has jobs without an exit file.")
def test_a_scheduler_that_does_not_answer_keeps_what_has_unfinished_jobs(cluster: Cluster) -> None:
    def down(tags: Sequence[str]) -> dict[str, str]:
        raise SchedulerError("squeue: down")

    cluster.site.scheduler.find = down  # type: ignore[method-assign]
    assert cluster.look()[ENDED].startswith("has jobs in the queue")


@pytest.mark.heavy
def test_the_cluster_file_removes_by_age_and_says_so(cluster: Cluster) -> None:
    words = clean_by_age(cluster.site.cluster, cluster.site.scheduler, cluster.runs)
    assert words == f"removed 1 old run folders there: {ENDED}"
    assert clean_by_age(cluster.site.cluster, cluster.site.scheduler, cluster.runs) == ""


@pytest.mark.promise("A new run removes old run folders only where the cluster file says after what time.")
def test_without_a_word_in_the_cluster_file_nothing_is_removed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    file = cluster.site.folder / "sim.yaml"
    file.write_text(file.read_text().replace("run_folders_kept_s: 30d", ""))
    from hpcq.definition.files.cluster import read_cluster

    assert clean_by_age(read_cluster(file), cluster.site.scheduler, cluster.runs) == ""
    assert (cluster.base / ENDED).is_dir()


def test_a_new_run_removes_old_ones_and_says_so(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    campaign: Any = SimpleNamespace(tests=(), toolchains=())
    monkeypatch.setattr(stages, "place", lambda *_: replace(cluster.site.place, campaign=campaign))
    monkeypatch.setattr(stages, "clean_by_age", lambda _cluster, _scheduler, runs: f"in {runs.name}")
    for name in ("refuse_where_forbidden", "check_description", "write_build"):
        monkeypatch.setattr(stages, name, lambda *_: None)
    monkeypatch.setattr(stages, "build_what_can", lambda *_: {})
    (cluster.site.run.path / "secret").write_text("x")
    stages.build(cluster.site.run, "sim", said.append)
    assert said == ["sim: in runs"]


@pytest.mark.heavy
@pytest.mark.promise("hpcq clean lists what it would remove and removes it only with its flag.")
def test_the_verb_shows_first_and_removes_only_with_its_flag(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hpcq.runner.site.place.scheduler_of", lambda *_: cluster.site.scheduler)
    words = ["clean", "sim", "--clusters", str(cluster.site.folder), "--runs", str(cluster.runs)]
    assert hpcq(words) == 0
    shown = capsys.readouterr()
    assert "would be removed" in shown.out
    assert "nothing was removed: --remove removes 1 folders" in shown.err
    assert (cluster.base / ENDED).is_dir()
    assert hpcq([*words, "--remove", "--json"]) == 0
    told = {one["run"]: one for one in json.loads(capsys.readouterr().out)}
    assert [name for name, one in told.items() if one["removed"]] == [ENDED]
    assert not (cluster.base / ENDED).exists()
    assert hpcq([*words, "--older-than", "soon"]) == 2


# -- private by construction -------------------------------------------------------------------------------------------


@pytest.mark.promise("Only its user can access what hpcq creates on a cluster.")
def test_whatever_a_script_makes_on_a_cluster_is_private(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        Here().sh(f"mkdir {tmp_path}/made; echo x >{tmp_path}/made/file")
    finally:
        os.umask(old)
    assert [path.stat().st_mode & 0o077 for path in (tmp_path / "made", tmp_path / "made" / "file")] == [0, 0]


@pytest.mark.promise("The folder of ssh's sockets is the user's own, no link, and closed to others; else hpcq refuses it.")
def test_the_folder_of_ssh_sockets_is_ours_alone_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hpcq.transport import _control_folder

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = _control_folder()
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o755)
    with pytest.raises(TransportError, match=r"others may use it \(mode 755\)"):
        _control_folder()
    made.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    made.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TransportError, match="is not a folder of your own"):
        _control_folder()
    made.unlink()
    made.mkdir(mode=0o700)
    if os.getuid() == 0:
        os.chown(made, 65534, 65534)
        with pytest.raises(TransportError, match="is not a folder of your own"):
            _control_folder()
