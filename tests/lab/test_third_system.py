"""Debian sid as a third system: beta's machines run Slurm 26.05 and Open MPI 6, and no PMIx for srun.

Only in the long tier: sid moves, and its files come over the network once (`hpcq lab prepare sid`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.campaigns_in_lab import Desk
from tests.lab.lab_fixture import RunningLab, lab_command
from tests.schedulers.scheduler_contract import PROMISES, Site, slurm_site

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(1500)]
BRIEF = "parameters: {duration_s: 100ms, warmup_s: 50ms}"
CAMPAIGN = f"""
clusters: [alpha, beta]
links: [{{from: alpha, to: beta, pairs: 1}}]
pairs: {{rounds: 1}}
repetitions: 1
retries: 0
tests: [{{kernel: tcp_stream, {BRIEF}}}, {{kernel: mpi_pingpong, {BRIEF}}}]
"""


@pytest.fixture(scope="module")
def newest() -> Iterator[RunningLab]:
    """A lab whose beta is sid; HPCQ_TEST_LAB_SID names one that is up."""
    given = os.environ.get("HPCQ_TEST_LAB_SID")
    name = given or f"test-sid-{os.getpid()}"
    try:
        if not given:
            lab_command("prepare", "sid", timeout_s=1200)
            lab_command("up", "--name", name, "--beta", "sid", timeout_s=300)
        yield RunningLab(name)
    finally:
        if not given:
            lab_command("down", "--name", name)


@pytest.fixture(scope="module")
def desk(newest: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Beta's MPI is MPICH by pmi2: its srun has no PMIx."""
    folder = tmp_path_factory.mktemp("sid")
    (folder / "clusters").mkdir()
    for name in ("alpha", "beta"):
        lines = newest.cluster_file(name).read_text().splitlines()
        lines = [line for line in lines if not line.startswith("mpi:")] if name == "beta" else lines
        lines += ["mpi: {compiler: mpicc.mpich, launch: srun --mpi=pmi2}"] if name == "beta" else []
        (folder / "clusters" / f"{name}.yaml").write_text("\n".join([*lines, "compiler: {cflags: -O0}", ""]))
    return Desk(folder, newest)


@pytest.fixture(scope="module")
def site(newest: RunningLab) -> Site:
    return slurm_site(newest, "beta")


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_the_contract_holds(site: Site, promise: Callable[[Site], None]) -> None:
    promise(site)


@pytest.mark.promise("Slurm 26.05 runs pairs, MPI, and links with a cluster of Slurm 22.05.")
def test_a_campaign_and_a_link(newest: RunningLab, desk: Desk) -> None:
    assert newest.ssh("beta", "sinfo -V").startswith("slurm-wlm 26.")
    newest.at_rest("alpha", "beta")
    desk.campaign(CAMPAIGN)
    desk.hpcq("run", "campaign.yaml", timeout_s=900)
    found = desk.rows("SELECT cluster, outcome, reason, count(*) AS n FROM v_results GROUP BY 1, 2, 3 ORDER BY 1")
    assert {(row["outcome"], row["reason"]) for row in found} == {("measured", None)}, found
    assert {row["cluster"] for row in found} == {"alpha", "beta", "alpha+beta"}


@pytest.mark.promise("`hpcq cluster check` names a plugin that srun lacks, and those that it has.")
def test_a_plugin_that_is_missing_is_named(newest: RunningLab, tmp_path: Path) -> None:
    (tmp_path / "clusters").mkdir()
    text = newest.cluster_file("beta").read_text()
    (tmp_path / "clusters" / "beta.yaml").write_text(text)
    said = Desk(tmp_path, newest).hpcq("cluster", "check", "beta", expect=None, timeout_s=600)
    words = said.stdout + said.stderr
    assert "pmix" in words
    assert "pmi2" in words
