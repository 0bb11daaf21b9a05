"""The simulated Slurm keeps the scheduler contract, so what is tested on it is tested on a Slurm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcq.definition.files.cluster import read_cluster
from hpcq.runner.site.place import reach, scheduler_of
from hpcq.scheduler.types import JobState, NodeCondition
from tests.schedulers.scheduler_contract import PROMISES, TERMINAL, Site, the_time_limit_ends_a_job
from tests.simulated_slurm.site import simulated_slurm

pytestmark = pytest.mark.fast

HEAD = """#SBATCH --job-name={name}
#SBATCH --nodes=2 --exclusive --no-requeue --time=0:02
#SBATCH --partition=main
#SBATCH --nodelist={nodes}"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with simulated_slurm(tmp_path / "slurm", node_count=6, leaf_size=2) as slurm:
        cluster = read_cluster(slurm.cluster() / "sim.yaml")
        yield Site(scheduler_of(cluster, reach(cluster)), str(tmp_path / "work"), HEAD.replace("0:02", "0:30"))


@pytest.mark.heavy
@pytest.mark.promise("Cancelling queued jobs leaves one alone that has started meanwhile.")
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_promise(site: Site, promise: Callable[[Site], None]) -> None:
    promise(site)


@pytest.mark.heavy
def test_the_time_limit(site: Site) -> None:
    the_time_limit_ends_a_job(Site(site.scheduler, site.folder, HEAD))


@pytest.mark.heavy
def test_nodes_that_cannot_be_used_say_why(site: Site) -> None:
    site.scheduler.transport.sh(
        "scontrol update nodename=n0001 state=drain reason=disk; scontrol update nodename=n0002 state=maint"
    )
    states = {state.node: state for state in site.scheduler.nodes()}
    assert (states["n0001"].condition, states["n0001"].reason) == (NodeCondition.DRAINED, "disk")
    assert states["n0002"].condition is NodeCondition.MAINTENANCE
    answer = site.submit("unlucky", "exit 0")
    assert answer.scheduler_job_id
    report = site.wait(answer.scheduler_job_id, JobState.QUEUED)
    assert report.reason == "ReqNodeNotAvail, UnavailableNodes:n0001,n0002"
    site.scheduler.transport.sh("scontrol update nodename=n[0001-0002] state=resume")
    assert site.wait(answer.scheduler_job_id, *TERMINAL).state is JobState.COMPLETED
