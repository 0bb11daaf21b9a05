"""`hpcq cluster new`: from nothing to a checked cluster file and a campaign with a verdict, on three kinds of scheduler."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpcq.definition.files.cluster import read_cluster
from hpcq.runner.site.new_cluster import read_interfaces
from hpcq.scheduler.slurm.scheduler import read_survey
from tests.lab.heads_in_lab import typed_in_readme, typed_on_head
from tests.lab.lab_fixture import RunningLab
from tests.local.local_desk import LocalDesk
from tests.people.test_on_terminals import on_a_terminal
from tests.simulated_pbs.site import simulated_pbs


def an_interface() -> str:
    """An interface of this machine that is up and has an address."""
    done = subprocess.run(
        ["ip", "-o", "-4", "addr", "show", "up", "scope", "global"], capture_output=True, text=True, check=True
    )
    return done.stdout.split()[1]


def row(*words: str) -> str:
    return "\t".join(["@interface", *words])


NODE = "\n".join([
    "@node n1",
    row("eno1", "1", "up", "1000", "tg3", "", "", "yes", "10.1.0.1/16 "),
    row("eno2", "1", "down", "", "tg3", "", "", "no", ""),
    row("ens1", "1", "up", "100000", "mlx5_core", "mlx5_1:1", "100 Gb/sec (2X NDR)", "no", "10.3.0.1/16 "),
    row("ib0", "32", "up", "", "mlx5_core", "mlx5_0:1", "100 Gb/sec (4X EDR)", "no", "10.2.0.1/16 "),
    row("nobody", "1", "up", "100000", "", "", "", "no", ""),
])  # fmt: skip


@pytest.mark.fast
@pytest.mark.promise("`hpcq cluster new` names for each interface of a node its kind, speed, addresses and RDMA device.")
def test_a_fabric_comes_before_a_fast_ethernet_and_that_before_the_control_network() -> None:
    found = read_interfaces(NODE)
    assert [one.name for one in found] == ["ib0", "ens1", "eno1"], "those without an address, or down, are left out"
    assert found[0].words == "InfiniBand, 100 Gbit/s, 10.2.0.1/16, mlx5_0:1"
    assert found[2].words == "Ethernet, 1 Gbit/s, 10.1.0.1/16, the node's name leads here"
    slingshot = row("hsn0", "1", "up", "200000", "cxi_ss1", "", "", "no", "10.4.0.1/16 ")
    assert read_interfaces(f"{NODE}\n{slingshot}")[0].words == "Slingshot, 200 Gbit/s, 10.4.0.1/16"


SITE = """\
PartitionName=main AllowAccounts=ALL AllowQos=ALL Default=YES QoS=N/A MaxNodes=UNLIMITED MaxTime=1-00:00:00 State=UP
PartitionName=staff AllowAccounts=root AllowQos=ALL Default=NO QoS=N/A MaxNodes=UNLIMITED MaxTime=UNLIMITED State=UP
PartitionName=one AllowAccounts=ALL AllowQos=ALL Default=NO QoS=N/A MaxNodes=1 MaxTime=UNLIMITED State=UP
@user 20001
@groups me
@assoc guest||||||
@assoc lab||||01:00:00||
@name alpha
@node main|n1|idle|64|257000|gpu:4
@node main|n2|idle|64|257000|gpu:4
@node main|n3|down*|32|128000|(null)
@node staff|n1|idle|64|257000|gpu:4
@node staff|n2|idle|64|257000|gpu:4
@node one|n1|idle|64|257000|gpu:4
@node one|n2|idle|64|257000|gpu:4
@account lab
@mpi pmix
@mpi pmi2
@mpi MPI plugin types are...
"""


@pytest.mark.fast
@pytest.mark.promise(
    "`hpcq cluster new` offers only partitions that take a job of two nodes of this user, and says why not others."
)
def test_partitions_accounts_and_hardware_of_a_slurm_site() -> None:
    found = read_survey(SITE, None)
    assert (found.name, found.accounts) == ("alpha", ("lab", "guest"))
    assert found.mpi_launches["Open MPI"] == "srun --mpi=pmix"
    assert found.mpi_launches["Cray"] == found.mpi_launches[""] == "srun --mpi=pmi2", "no plugin of Cray's is listed"
    assert [one.name for one in found.partitions if one.takes_pairs] == ["main"]
    main, staff, _ = found.partitions
    assert main.words() == (
        "2 nodes of 64 CPUs, 251 GiB, gpu:4, 1 node of 32 CPUs, 125 GiB, 2 idle; at most 3600 s (MaxWall of account lab)"
    )
    assert "AllowAccounts=root: lab is not among them" in staff.words()


@pytest.mark.promise("`hpcq cluster new` overwrites no file.")
def test_this_machine_from_nothing_to_a_verdict(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    said = desk.hpcq("cluster", "new", "here", "--scheduler", "local")
    assert said.stderr.splitlines()[-1] == "next: hpcq run first-here.yaml"
    with (tmp_path / "clusters" / "here.yaml").open("a") as made:  # so were the kernels of other tests built: once is enough
        made.write("compiler: {cflags: -O0}\n")
    before = (tmp_path / "clusters" / "here.yaml").read_bytes()
    done = desk.hpcq("run", "first-here.yaml", expect=None)
    gates = re.findall(r"gates: (.+)", done.stdout)
    assert (done.returncode, gates) == (0, ["2 pass"]) or (
        done.returncode == 4 and "inconclusive" in gates[0] and "fail" not in gates[0]  # other work on this machine
    ), done.stdout + done.stderr
    again = desk.hpcq("cluster", "new", "here", "--scheduler", "local", expect=2)
    assert again.stderr.startswith("error: clusters/here.yaml: exists: hpcq overwrites no file"), again.stderr
    (tmp_path / "first-there.yaml").write_text("mine")
    assert "first-there.yaml: exists" in desk.hpcq("cluster", "new", "there", "--scheduler", "local", expect=2).stderr
    assert not (tmp_path / "clusters" / "there.yaml").exists()
    assert (tmp_path / "clusters" / "here.yaml").read_bytes() == before


def test_wishes_that_cannot_be_met_say_what_there_is(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    said = desk.hpcq("cluster", "new", "x", "--scheduler", "sge", expect=2).stderr
    assert said.startswith("error: scheduler: 'sge': must be one of slurm, pbs, torque, local"), said
    with simulated_pbs(tmp_path / "pbs"):
        said = desk.hpcq("cluster", "new", "x", "--partition", "nosuch", expect=2).stderr
        assert said.startswith("error: --partition: 'nosuch': must be one of workq"), said
        said = desk.hpcq("cluster", "new", "x", "--interface", "ib7", expect=2).stderr
        assert re.search(r"error: --interface: 'ib7': \S+ has no such interface with an address: there are ", said), said
    assert not list(tmp_path.glob("clusters/x.yaml"))


def test_a_pbs_site(tmp_path: Path) -> None:
    with simulated_pbs(tmp_path / "pbs") as pbs:
        pbs.control(set={"sleep_s": 0.0})
        desk = LocalDesk.at(tmp_path)
        (tmp_path / "shared").mkdir(mode=0o700)
        desk.hpcq("cluster", "new", "site", "--work-directory", str(tmp_path / "shared"), expect=None)
        made = read_cluster(tmp_path / "clusters" / "site.yaml")
        assert (made.scheduler, made.partition, made.work_directory) == ("pbs", "workq", str(tmp_path / "shared"))
        text = (tmp_path / "clusters" / "site.yaml").read_text()
        assert "workq (default): 4 nodes of " in text
        assert made.interface in text.partition("interface: ")[0], "what was chosen is among what was seen"


@pytest.mark.promise("On a terminal `hpcq cluster new` asks where several answers are possible.")
def test_on_a_terminal_it_asks(tmp_path: Path) -> None:
    with simulated_pbs(tmp_path / "pbs"):
        environment = LocalDesk.at(tmp_path).environment()
        argv = [sys.executable, "-P", "-m", "hpcq", "cluster", "new", "site", "--interface", an_interface()]
        said = on_a_terminal(argv, tmp_path, 80, typed=f"{tmp_path}\n", expect=None, **environment)
    assert "folder that the login node and all nodes share" in said
    assert f"work_directory: {tmp_path}" in (tmp_path / "clusters" / "site.yaml").read_text()


# ----------------------------------------------------------------------------------------------------------------------
# On the lab.


@pytest.mark.long
@pytest.mark.lab
@pytest.mark.promise("On a Slurm login node, an ordinary user in an empty folder has a verdict after two commands.")
@pytest.mark.promise("What README.md says of a new cluster works when typed on a login node, in its order.")
def test_an_ordinary_user_on_the_head_of_a_cluster(lab: RunningLab) -> None:
    """That of the newer Slurm stands in tests/lab/test_two_generations.py."""
    lab.at_rest("alpha")
    first = typed_in_readme("On your cluster", "alpha")
    assert first == ["hpcq cluster new", "hpcq run first-alpha.yaml"], "two commands"
    later = typed_in_readme("Every day", "alpha")
    assert later[0] == first[1]
    assert "--against good" in later[2], "measures for minutes: the tutorial's test types it"
    typed = typed_on_head(lab, "alpha", [*first, later[1]])
    typed.assert_verdict()
    assert "partition: main\n" in typed.files["clusters/alpha.yaml"]
    assert "interface: eth0\n" in typed.files["clusters/alpha.yaml"]


@pytest.mark.lab
def test_from_outside_by_ssh(lab: RunningLab, tmp_path: Path) -> None:
    lab.at_rest("beta")
    desk = LocalDesk.at(tmp_path)
    words = ["--ssh", "beta-head", "--ssh-config", str(lab.state / "ssh_config")]
    said = desk.hpcq("cluster", "new", *words, "--partition", "batch", "--work-directory", "/scratch")
    made = read_cluster(tmp_path / "clusters" / "beta.yaml")
    assert (made.partition, made.interface, made.connection.ssh_host) == ("batch", "eth0", "beta-head")
    assert made.mpi is not None
    assert made.mpi.launch == ("srun", "--mpi=pmix")
    assert "BAD" not in said.stdout
