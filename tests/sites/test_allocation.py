"""A job compares the nodes that it has with the planned ones; a result that was measured elsewhere is invalid."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.files.cluster import read_cluster
from hpcq.kernels import own_kernels
from hpcq.planning.make_plan import make_plan
from hpcq.run_folder.lines import elsewhere
from hpcq.runner.drive.tournaments import make_tournament, write_any
from hpcq.runner.queue.run_state import all_steps, make_job
from hpcq.scheduler.types import NodeCondition, NodeState
from tests.store.run_folders import RunBuilder, ask, load

pytestmark = pytest.mark.fast

#: As the real one: expands the list that it was given. It reads what is left of it from a table of this test.
SCONTROL = """#!/bin/sh
[ "$1 $2" = "show hostnames" ] || exit 1
case $3 in "n[1-2]") printf 'n1\\nn2\\n' ;; "n[1,3]") printf 'n1\\nn3\\n' ;; "n[1-3]") printf 'n1\\nn2\\nn3\\n' ;;
n1) echo n1 ;; *) exit 1 ;; esac
"""


def ended(folder: Path, kind: str, allocation: str, *, tournament: bool = False) -> tuple[str, Path]:
    """Run a job script of nodes n1 and n2 in that allocation. Returns the reason of its end, and its folder."""
    (folder / "c.yaml").write_text(
        "name: c\nclusters: [alpha]\nrepetitions: 1\npairs: {rounds: 1}\ntests: [{kernel: tcp_pingpong}]\n"
    )
    (folder / "alpha.yaml").write_text(f"{{name: alpha, scheduler: {kind}, interface: lo, work_directory: {folder}}}\n")
    cluster = read_cluster(folder / "alpha.yaml")
    nodes = [NodeState(name, NodeCondition.IDLE, "idle") for name in ("n1", "n2")]
    plan = make_plan(read_campaign(folder / "c.yaml"), cluster, nodes, "c-1", 7)
    job: Any = make_job(plan, 0, 1, all_steps(plan))
    if tournament:
        plan = replace(plan, allocation="whole")
        job = make_tournament(plan, [0], 1, {0: all_steps(plan)})
    place = folder / job.folder
    write_any(job, own_kernels(), cluster, str(folder), place)
    commands = folder / "commands"
    commands.mkdir()
    (folder / "bin").mkdir()
    for path, text in {
        commands / "scontrol": SCONTROL,
        commands / "srun": "#!/bin/sh\necho '{}'\n",
        commands / "pbs_tmrsh": '#!/bin/sh\nshift\nexec "$@"\n',
        folder / "bin" / "hpcq-net": "#!/bin/sh\necho '{}'\n",  # neither facts nor an address
    }.items():
        path.write_text(text)
        path.chmod(0o755)
    (folder / "nodefile").write_text(allocation)
    environment = {
        **os.environ,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": allocation,
        "SLURM_JOB_ID": "7",
        "PBS_NODEFILE": str(folder / "nodefile"),
        "PBS_JOBID": "7.server",
    }
    subprocess.run(["bash", "job.sh"], cwd=place, env=environment, check=False, timeout=60, capture_output=True)
    return json.loads((place / "exit.json").read_text())["reason"], place


@pytest.mark.promise("A Slurm job whose nodes are not the planned ones measures nothing and says which it has.")
@pytest.mark.promise("A pair's job that lacks one of its nodes measures nothing.")
@pytest.mark.parametrize(
    ("kind", "allocation", "has"),
    [
        ("slurm", "n[1,3]", "n1 n3"),
        ("slurm", "n[1-3]", "n1 n2 n3"),
        ("slurm", "n1", "n1"),
        ("slurm", "n7,n8", "n7 n8"),
        ("pbs", "n1.site\nn3.site\n", "n1 n3.site"),
        ("pbs", "n1.site\n", "n1"),
    ],
)
def test_a_job_with_other_nodes_measures_nothing_and_says_which_it_has(
    tmp_path: Path, kind: str, allocation: str, has: str
) -> None:
    reason, place = ended(tmp_path, kind, allocation)
    said, _, planned = reason.partition(", planned were ")
    assert (said, sorted(planned.split())) == (f"other_nodes: it has {has}", ["n1", "n2"])
    assert json.loads((place / "started.json").read_text())["allocation"] == has
    assert not list(place.glob("t1-r1*"))


@pytest.mark.promise("A PBS job compares its node file with the plan, whatever domain the names have there.")
@pytest.mark.parametrize(
    ("kind", "allocation"),
    [
        ("slurm", "n[1-2]"),
        ("slurm", "n2,n1"),
        ("slurm", "x[01-99]"),
        ("pbs", "n2.site\nn1.site\nn1.site\n"),
        ("pbs", "n1\nn2\n"),
    ],
)
def test_a_job_with_its_nodes_goes_on(tmp_path: Path, kind: str, allocation: str) -> None:
    """Also where nobody on the node can expand the list: the result's own evidence decides then."""
    reason, place = ended(tmp_path, kind, allocation)
    assert reason.startswith("server_not_ready")
    assert json.loads((place / "started.json").read_text())["allocation"] in {"n1 n2", "n2 n1", ""}


@pytest.mark.parametrize(("allocation", "plays"), [("n[1,3]", False), ("n1", True)])
def test_a_tournament_plays_without_a_lost_node_but_never_on_another(tmp_path: Path, allocation: str, plays: bool) -> None:
    reason, _ = ended(tmp_path, "slurm", allocation, tournament=True)
    assert reason.startswith("other_nodes: ") != plays


def line_of(client: str | None, server: str | None) -> dict[str, Any]:
    named = {"client": client, "server": server}
    return {"evidence": {end: {"node": f"login-{node}", "scheduler_node": node} for end, node in named.items()}}


@pytest.mark.promise("A rank of a foreign MPI program that did not run on the planned node gives no number.")
@pytest.mark.promise("Where a result was measured is the scheduler's name of the node; its host may have another name.")
def test_a_host_may_call_itself_otherwise_than_its_scheduler_does() -> None:
    """NodeHostname may differ from NodeName: only the scheduler's name of the node tells where something ran."""
    assert elsewhere(line_of("n1", "n2"), ("n1", "n2")) is None
    assert elsewhere(line_of(None, "n2"), ("n1", "n2")) is None
    ranks = line_of("n1", "n2")
    ranks["evidence"]["rank2"] = {"scheduler_node": "n9"}
    assert elsewhere(ranks, ("n1", "n2", "n3")) == "elsewhere: its rank2 ran on n9, planned was n3"
    assert elsewhere(line_of("n1", "n3"), ("n1", "n2")) == "elsewhere: its server ran on n3, planned was n2"


@pytest.mark.promise(
    "A result that an end measured on a node other than the planned one is invalid, with both names as the reason."
)
def test_a_result_measured_elsewhere_is_invalid_with_its_reason(tmp_path: Path) -> None:
    folder = RunBuilder(tmp_path / "runs")
    folder.attempt("j00001", 1)
    path = folder.line_path("j00001", 1, 1, 1)
    line = json.loads(path.read_text())
    line["evidence"]["server"]["scheduler_node"] = "n9"
    path.write_text(json.dumps(line) + "\n")
    database = tmp_path / "results.db"
    assert load(database, folder).invalid_count == 1
    [reason] = ask(database, "SELECT reason FROM result WHERE outcome = 'invalid'")
    assert reason == "elsewhere: its server ran on n9, planned was n2"
