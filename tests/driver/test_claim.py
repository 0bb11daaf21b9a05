"""An attempt is measured by whoever claims it, once; and nothing is submitted that the journal does not know."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.files.cluster import read_cluster
from hpcq.kernels import own_kernels
from hpcq.planning.make_plan import make_plan
from hpcq.run_folder.journal import Attempt, read_journal
from hpcq.runner import stages
from hpcq.runner.queue.attempt_files import AttemptFiles
from hpcq.runner.queue.run_state import all_steps, make_job, write_job
from hpcq.runner.site.place import open_run
from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.kinds import make
from hpcq.scheduler.types import NodeCondition, NodeState, SchedulerSettings, Submission, Submitted
from hpcq.transport import Here
from tests.simulated_slurm.site import simulated_slurm

pytestmark = pytest.mark.fast

CAMPAIGN = "name: try\nclusters: [{cluster}]\nrepetitions: 1\npairs: {{rounds: 1}}\ntests: [{{kernel: tcp_pingpong}}]\n"


def written_attempt(folder: Path, scheduler: str) -> Path:
    """The folder of an attempt with its script, as the driver writes it."""
    keys = "nodes: [n1, n2]" if scheduler == "local" else "interface: lo"
    (folder / "alpha.yaml").write_text(f"name: alpha\nscheduler: {scheduler}\nwork_directory: {folder}\n{keys}\n")
    (folder / "try.yaml").write_text(CAMPAIGN.format(cluster="alpha"))
    cluster = read_cluster(folder / "alpha.yaml")
    nodes = [NodeState(name, NodeCondition.IDLE, "idle") for name in ("n1", "n2")]
    plan = make_plan(read_campaign(folder / "try.yaml"), cluster, nodes, "try-1", 7)
    job = make_job(plan, 0, 1, all_steps(plan))
    write_job(job, own_kernels(), cluster, str(folder), folder / job.folder)
    return folder / job.folder


@pytest.mark.promise("A job script whose attempt is claimed already measures nothing.")
@pytest.mark.parametrize("scheduler", ["local", "slurm"])
def test_a_script_whose_attempt_is_claimed_ends_at_once_and_leaves_no_trace(tmp_path: Path, scheduler: str) -> None:
    attempt = written_attempt(tmp_path, scheduler)
    (attempt / "claim").mkdir()
    before = sorted(path.name for path in attempt.iterdir())
    done = subprocess.run(["/bin/bash", attempt / "job.sh"], cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert (done.returncode, sorted(path.name for path in attempt.iterdir())) == (0, before)


def files_of(folder: Path) -> AttemptFiles:
    settings = SchedulerSettings(nodes=("n1", "n2"), queue_folder=str(folder / "queue"))
    return AttemptFiles(Here(), make("local", Here(), settings), folder / "here", str(folder / "a b's root"), lambda: None)


@pytest.mark.promise("The driver claims an attempt that no scheduler knows before it gives it up.")
@pytest.mark.promise("Paths on a cluster are quoted, whatever they hold.")
def test_the_driver_claims_an_attempt_that_no_scheduler_knows(tmp_path: Path) -> None:
    attempt = Attempt(tag="tag", job="j00001", attempt_no=1, nodes=("n1", "n2"), pairs=(0,))
    files = files_of(tmp_path)
    there = Path(files.root) / attempt.folder
    assert files.claim(attempt).taken, "its folder was never brought there: it cannot run"
    there.mkdir(parents=True)
    assert files.claim(attempt).taken
    assert (there / "claim").is_dir(), "should it start after all, it finds the claim"
    assert files.claim(attempt).taken, "the claim is the driver's own"


@pytest.mark.promise("An attempt that a script has claimed is not claimed by the driver too.")
def test_an_attempt_that_had_started_is_not_claimed_twice(tmp_path: Path) -> None:
    attempt = Attempt(tag="tag", job="j00001", attempt_no=1, nodes=("n1", "n2"), pairs=(0,))
    files = files_of(tmp_path)
    there = Path(files.root) / attempt.folder
    (there / "claim").mkdir(parents=True)
    (there / "started.json").write_text('{"scheduler_job_id": "17"}')
    claim = files.claim(attempt)
    assert (claim.taken, claim.scheduler_job_id) == (False, "17")


@pytest.mark.heavy
@pytest.mark.promise("A submission is in the journal before it is made.")
def test_every_submission_is_in_the_journal_before_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated_slurm(tmp_path / "slurm", node_count=4) as slurm:
        (tmp_path / "try.yaml").write_text(CAMPAIGN.format(cluster="sim"))
        run = open_run(tmp_path / "try.yaml", [slurm.cluster()], tmp_path / "results.db", tmp_path / "runs")
        stages.plan(run, "sim")
        unknown: list[str] = []
        submitted: list[str] = []
        submit = Scheduler.submit

        def watched(self: Scheduler, submissions: Sequence[Submission]) -> list[Submitted]:
            known = {event["tag"] for event in read_journal(run.journal("sim")) if event["event"] == "attempt"}
            submitted.extend(one.tag for one in submissions)
            unknown.extend(one.tag for one in submissions if one.tag not in known)
            return submit(self, submissions)

        monkeypatch.setattr(Scheduler, "submit", watched)
        stages.drive(run, "sim", lambda _: None, only_submit=True)
    assert len(submitted) == 2
    assert unknown == []


@pytest.mark.promise("The secret of a run has 32 random bytes and is readable by its user only.")
@pytest.mark.promise("The secret of a run is never short.")
def test_the_secret_of_a_run_is_long_and_private(tmp_path: Path) -> None:
    written_attempt(tmp_path, "local")
    before = os.umask(0)
    try:
        run = open_run(tmp_path / "try.yaml", [tmp_path], tmp_path / "results.db", tmp_path / "runs")
    finally:
        os.umask(before)
    secret = run.path / "secret"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert len(bytes.fromhex(secret.read_text().strip())) == 32
