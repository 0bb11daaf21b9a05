"""Other ways to start processes than srun, on real nodes: what a cluster file says about them is what happens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hpcq.run_folder.paths import RunFolder
from hpcq.runner import stages
from hpcq.runner.site.place import open_run
from tests.lab.lab_fixture import RunningLab

pytestmark = pytest.mark.lab

NODES = [f"alpha-n{number:02d}" for number in range(1, 5)]
MPI_TEST = "{kernel: mpi_pingpong, parameters: {duration_s: 100ms, warmup_s: 0, message_bytes: 32KiB}}"
TCP_TEST = "{kernel: tcp_pingpong, parameters: {duration_s: 100ms, warmup_s: 0}}"
#: Both directions of a pair: launchers number ranks in the order of the nodes' names.
PAIRS = "pairs: {list: [[alpha-n01, alpha-n03], [alpha-n04, alpha-n02]]}"
WHOLE = "pairs: all\nallocation: whole"
SSH = (
    "-o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i /home/labuser/.ssh/hpcq"
)

OPEN_MPI = "mpi: {compiler: mpicc.openmpi, launch: 'mpirun.openmpi -np 2 --host {nodes}'}"
HYDRA = "mpi: {compiler: mpicc.mpich, launch: 'mpirun.mpich -np {count} -f {hostfile}'}"
PMI2 = "mpi: {compiler: mpicc.mpich, launch: srun --mpi=pmi2}"
OVER_SSH = (
    "mpi: {compiler: mpicc.openmpi, launch: 'mpirun.openmpi -np {count} --hostfile {hostfile} --mca plm rsh"
    f' --mca plm_rsh_agent "ssh {SSH}"\'}}'
)


@dataclass(frozen=True)
class Measured:
    """One campaign that was driven to its end on alpha."""

    run: RunFolder
    loaded: dict[str, Any]

    def script(self) -> str:
        return next(self.run.path.glob("alpha/jobs/*/1/job.sh")).read_text()

    def results(self) -> list[dict[str, Any]]:
        """Each result's line, with the planned client and server beside it."""
        found = []
        for job in (json.loads(path.read_text()) for path in self.run.path.glob("alpha/jobs/j*/1/job.json")):
            for path in (self.run.path / "alpha" / "jobs" / job["job"] / "1").glob("t*-r[0-9].json"):
                found.append({"client": job["client"], "server": job["server"], "result": json.loads(path.read_text())})
        for path in self.run.path.glob("alpha/jobs/g*/1/spool.jsonl"):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            found += [line for line in lines if "begun_utc" not in line]
        return found


def drive(lab: RunningLab, folder: Path, keys: str, campaign: str, test: str) -> Measured:
    """Run a campaign on alpha, whose cluster file has `keys` instead of its own mpi line."""
    lab.at_rest("alpha")
    (folder / "clusters").mkdir(parents=True)
    text = re.sub(r"^mpi:.*\n", "", lab.cluster_file("alpha").read_text(), flags=re.MULTILINE)
    (folder / "clusters" / "alpha.yaml").write_text(f"{text}\n{keys}\ncompiler: {{cflags: -O0}}\nmax_wait_s: 60\n")
    (folder / "try.yaml").write_text(f"name: try\nclusters: [alpha]\nrepetitions: 1\n{campaign}\ntests: [{test}]\n")
    run = open_run(folder / "try.yaml", [folder / "clusters"], folder / "r.db", folder / "runs")
    stages.build(run, "alpha")
    stages.plan(run, "alpha")
    stages.drive(run, "alpha", print)
    return Measured(run, stages.load(run, folder / "r.db")["clusters"][0])


def facts_of_every_node_came(measured: Measured) -> None:
    """Whichever program was there to tell them: hpcq-net is not built for campaigns of MPI alone."""
    facts = {path.name: json.loads(path.read_text()) for path in measured.run.path.glob("alpha/jobs/*/1/facts-*.json")}
    assert set(facts) == {f"facts-{node}.json" for node in NODES}
    assert len({one["boot"]["id"] for one in facts.values()}) == 4
    assert {one["node"].get("scheduler_node") for one in facts.values()} <= {None, *NODES}


def all_measured_in_their_roles(measured: Measured, count: int) -> None:
    facts_of_every_node_came(measured)
    assert measured.loaded["measured_count"] == count, measured.loaded
    for line in measured.results():
        ends = [line["result"]["evidence"][end] for end in ("client", "server")]
        assert [end["node"] for end in ends] == [line["client"], line["server"]]
        assert all(end["scheduler_node"] in {None, end["node"]} for end in ends)
        assert {end["interface"] for end in ends} == {"eth0"}
        assert all(end["interface_bytes"]["tx"] > 0 for end in ends)
    assert len(measured.results()) == count


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(OPEN_MPI, id="openmpi-mpirun"),
        pytest.param(HYDRA, id="mpich-hydra", marks=pytest.mark.long),
        pytest.param(PMI2, id="mpich-srun-pmi2", marks=pytest.mark.long),
    ],
)
def test_mpi_pairs_keep_their_roles_whatever_numbers_the_ranks(lab: RunningLab, tmp_path: Path, keys: str) -> None:
    measured = drive(lab, tmp_path, keys, PAIRS, MPI_TEST)
    all_measured_in_their_roles(measured, 2)
    name = "Open MPI" if keys is OPEN_MPI else "MPICH"
    for line in measured.results():
        moved = line["result"]["metrics"]["operation_count"] * 32768
        assert all(line["result"]["evidence"][end]["interface_bytes"]["tx"] > moved for end in ("client", "server"))
        assert name in line["result"]["granted"]["client_mpi_library_version"]


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(OPEN_MPI, id="openmpi-mpirun"),
        pytest.param(HYDRA, id="mpich-hydra", marks=pytest.mark.long),
        pytest.param(PMI2, id="mpich-srun-pmi2", marks=pytest.mark.long),
    ],
)
def test_mpi_tournaments_start_a_rank_on_each_node(lab: RunningLab, tmp_path: Path, keys: str) -> None:
    all_measured_in_their_roles(drive(lab, tmp_path, keys, WHOLE, MPI_TEST), 6)


@pytest.fixture(scope="module")
def ssh_to_nodes(lab: RunningLab) -> Iterator[RunningLab]:
    """The nodes of alpha let labuser in by ssh, as nodes of many sites do."""
    lab.ssh(
        "alpha", "[ -e .ssh/hpcq ] || ssh-keygen -q -t ed25519 -N '' -f .ssh/hpcq && cat .ssh/hpcq.pub >>.ssh/authorized_keys"
    )
    for node in NODES:
        config = "sed '/^ListenAddress/d' /etc/ssh/sshd_config >/run/sshd_config && mkdir -p /run/sshd"
        lab.exec(f"alpha/{node}", "sh", "-c", f"{config} && /usr/sbin/sshd -f /run/sshd_config -o PidFile=/run/sshd.pid")
    yield lab
    for node in NODES:
        lab.exec(f"alpha/{node}", "sh", "-c", "kill $(cat /run/sshd.pid)")


@pytest.mark.parametrize(
    ("campaign", "count"),
    [pytest.param(PAIRS, 2, id="pairs", marks=pytest.mark.long), pytest.param(WHOLE, 6, id="tournament")],
)
def test_processes_are_started_by_ssh_and_nothing_of_them_stays(
    ssh_to_nodes: RunningLab, tmp_path: Path, campaign: str, count: int
) -> None:
    measured = drive(ssh_to_nodes, tmp_path, f"launcher: ssh {SSH} {{node}}", campaign, TCP_TEST)
    all_measured_in_their_roles(measured, count)
    assert not re.search(r"^[^#\n]*(?<!\^)\bsrun\b", measured.script(), re.MULTILINE)
    for node in NODES:
        assert "hpcq-net" not in ssh_to_nodes.exec(f"alpha/{node}", "ps", "-e", "-o", "args")


def test_open_mpi_reaches_the_nodes_by_ssh(ssh_to_nodes: RunningLab, tmp_path: Path) -> None:
    all_measured_in_their_roles(drive(ssh_to_nodes, tmp_path, OVER_SSH, WHOLE, MPI_TEST), 6)
