"""The lab is what it says: real clusters, separate machines, links of the asked rate, and nothing left behind."""

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.lab_fixture import LABS_FOLDER, RunningLab, lab_command
from tests.lab.lab_programs import ECHO_CLIENT, ECHO_SERVER, FLOOD, MPI_BYTES, MPI_ENVIRONMENT, MPI_PROGRAM, SINK, SOURCE

pytest_plugins = ["tests.lab.lab_fixture"]
pytestmark = [pytest.mark.lab]


def round_trips_us(lab: RunningLab, client: str, server: str, count: int) -> list[float | None]:
    """UDP echoes between two machines; None for one that was lost."""
    with subprocess.Popen(lab.exec_words(server, "python3", "-c", ECHO_SERVER), stdout=subprocess.PIPE) as echo:
        assert echo.stdout is not None
        echo.stdout.readline()
        found = lab.exec(client, "python3", "-c", ECHO_CLIENT, address_of(lab, server), str(count))
        echo.wait(60)
    return [None if line == "lost" else int(line) / 1000 for line in found.split()]


def throughput_bps(lab: RunningLab, client: str, server: str, seconds: float) -> float:
    """What a TCP stream between two machines brings, as its receiver counts."""
    with subprocess.Popen(lab.exec_words(server, "python3", "-c", SINK), stdout=subprocess.PIPE, text=True) as sink:
        assert sink.stdout is not None
        sink.stdout.readline()
        lab.exec(client, "python3", "-c", SOURCE, address_of(lab, server), str(seconds))
        return float(sink.stdout.read())


def steady_bps(lab: RunningLab, pair: tuple[str, str], seconds: float, low_bps: float, high_bps: float) -> float:
    """The first of at most four throughputs between the two figures, else the last: a busy machine takes away, and a receiver
    that was held up counts too little time."""
    for _ in range(4):
        found_bps = throughput_bps(lab, *pair, seconds)
        if low_bps < found_bps < high_bps:
            break
    return found_bps


def arrived_ratio(lab: RunningLab, client: str, server: str, count: int = 2000) -> float:
    """The share of datagrams to a port that nobody listens at, as the receiving kernel counts them."""

    def no_ports() -> int:
        lines = [line.split() for line in lab.exec(server, "grep", "^Udp:", "/proc/net/snmp").splitlines()]
        return int(dict(zip(*lines, strict=True))["NoPorts"])

    before = no_ports()
    lab.exec(client, "python3", "-c", FLOOD, address_of(lab, server), str(count))
    return (no_ports() - before) / count


def address_of(lab: RunningLab, where: str) -> str:
    """eth0's, as the machine itself has it."""
    return str(re.findall(r"inet ([\d.]+)", lab.exec(where, "ip", "address", "show", "dev", "eth0"))[0])


def eth0_bytes(lab: RunningLab, where: str) -> int:
    counters = [f"/sys/class/net/eth0/statistics/{way}_bytes" for way in ("rx", "tx")]
    return sum(map(int, lab.exec(where, "cat", *counters).split()))


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def submit(lab: RunningLab, cluster: str, options: str, script: str) -> str:
    return lab.ssh(cluster, f"cd /scratch && sbatch --parsable {options}", text=f"#!/bin/sh\n{script}\n").strip()


def job_state(lab: RunningLab, cluster: str, job: str) -> str:
    return str(re.findall(r"JobState=(\w+)", lab.ssh(cluster, f"scontrol show job {job}"))[0])


def descendants(pid: int) -> set[int]:
    """All processes below one, as this namespace numbers them."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, new = set[int](), {pid}
    while new:
        found |= new
        new = {child for child, parent in parents.items() if parent in new} - found
    return found


def namespaces(pids: set[int]) -> set[str]:
    """Namespaces that these processes have and we have not."""
    found = set()
    for pid in pids:
        for kind in ("net", "mnt", "pid", "uts", "ipc"):
            try:
                found.add(str(Path(f"/proc/{pid}/ns/{kind}").readlink()))
            except OSError:
                continue
    return found - {str(path.readlink()) for path in Path("/proc/self/ns").iterdir()}


def all_pids() -> set[int]:
    return {int(path.name) for path in Path("/proc").glob("[0-9]*")}


def host_view() -> dict[str, str]:
    """What of this machine a lab must not touch."""
    mounts = [line.split(" ", 3)[3] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return {
        "links": "\n".join(sorted(path.name for path in Path("/sys/class/net").iterdir())),
        "mounts": "\n".join(line for line in mounts if not any(place in line for place in OF_OTHER_TESTS)),
        "passwd": Path("/etc/passwd").read_text(),
        "hosts": Path("/etc/hosts").read_text(),
        "root": "\n".join(sorted(path.name for path in Path("/").iterdir())),
    }


def assert_gone(name: str, was: set[str], before: dict[str, str]) -> None:
    """No folder, no process in any of its namespaces, no mount, no interface."""
    assert not (LABS_FOLDER / name).exists()
    wait_until(lambda: not was & namespaces(all_pids()), 60, f"processes of {name} are left")
    assert host_view() == before


#: Where tests that run beside these mount disks and name network namespaces of their own.
#: The first of them to make a namespace mounts /run/netns itself.
OF_OTHER_TESTS = (
    *("/pytest-of-", "/hpcq-tests.", " /run/netns "),
    *(f"/run/netns/hpcq-{tests}-" for tests in ("test", "kernel", "path")),
)


class TestTheMachines:
    def test_a_two_node_job_runs_as_an_ordinary_user(self, lab: RunningLab) -> None:
        for cluster in ("alpha", "beta"):
            script = "srun sh -c 'echo $(hostname) $(id -un) $(pwd)' | sort > two-nodes.out"
            job = submit(lab, cluster, f"-w {cluster}-n0[1-2] -N2 --ntasks-per-node=1 --exclusive --no-requeue", script)
            wait_until(lambda c=cluster, j=job: job_state(lab, c, j) == "COMPLETED", 60, "the job did not complete")  # type: ignore[misc]
            found = lab.ssh(cluster, "cat /scratch/two-nodes.out").splitlines()
            assert found == [f"{cluster}-n01 labuser /scratch", f"{cluster}-n02 labuser /scratch"]

    def test_each_machine_has_its_own_network_files_and_boot(self, lab: RunningLab) -> None:
        show = "ls /sys/class/net; cat /proc/sys/kernel/random/boot_id; hostname; ls /tmp /dev/shm; ps -e | wc -l"
        mark = "touch /tmp/mark /dev/shm/mark"
        lab.exec("alpha/n01", "sh", "-c", mark)
        first, second = (lab.exec(where, "sh", "-c", show).split() for where in ("alpha/n01", "alpha/n02"))
        assert first[:3] == second[:3] == ["eth0", "lo", "mgmt0"]
        assert first[3] != second[3]
        assert (first[4], second[4]) == ("alpha-n01", "alpha-n02")
        assert "mark" in first
        assert "mark" not in second
        assert int(first[-1]) < 15

    def test_the_host_name_means_the_management_network(self, lab: RunningLab) -> None:
        found = lab.exec("alpha/n03", "sh", "-c", "getent hosts $(hostname)").split()
        assert found == ["10.177.1.3", "alpha-n03"]
        assert address_of(lab, "alpha/n03") == "10.77.2.3"

    def test_home_and_work_are_shared_within_a_cluster_only(self, lab: RunningLab) -> None:
        lab.ssh("alpha", "echo here | tee ~/mark > /scratch/mark")
        lab.exec("alpha/n04", "grep", "here", "/home/labuser/mark", "/scratch/mark", user="labuser")
        assert lab.ssh("beta", "ls ~ /scratch").count("mark") == 0
        assert lab.exec("beta/n01", "ls", "/").split() == lab.exec("alpha/n01", "ls", "/").split()
        assert lab.exec("alpha/n01", "ls", "/root", "/run").count("hpcq") == 0

    def test_programs_in_the_work_directory_can_be_run(self, lab: RunningLab) -> None:
        lab.ssh("beta", "cp /bin/echo /scratch/say")
        assert lab.exec("beta/n01", "/scratch/say", "yes", user="labuser") == "yes\n"

    def test_the_other_user_is_another_person(self, lab: RunningLab) -> None:
        words = ["sbatch", "--parsable", "-D", "/scratch", "-o", "/dev/null", "--wrap", "sleep 30"]
        job = lab.exec("alpha", *words, user="otheruser").strip()
        assert lab.ssh("alpha", f"scancel {job} 2>&1", check=False).count("denied") == 1
        lab.exec("alpha", "scancel", job, user="otheruser")


class TestTheSites:
    def test_alpha_has_accounting_and_beta_has_none(self, lab: RunningLab) -> None:
        job = submit(lab, "alpha", "-N1 -A lab --qos=low -t 1", "true")
        wait_until(
            lambda: lab.ssh("alpha", f"sacct -nPX -j {job} -o state,qos,account,user") == "COMPLETED|low|lab|labuser\n",
            90,
            "sacct does not know the job",
        )
        assert "disabled" in lab.ssh("beta", "sacct 2>&1", check=False)

    def test_high_may_preempt_low_and_users_have_limits(self, lab: RunningLab) -> None:
        found = lab.ssh("alpha", "sacctmgr -nP list qos format=name,preempt,preemptmode,maxsubmitpu").splitlines()
        assert {"high|low|cluster|", "low||requeue|", "small|||2"} <= {
            line.replace("small||cluster|", "small|||") for line in found
        }
        limits = lab.ssh("alpha", "sacctmgr -nP list assoc user=labuser format=account,user,maxsubmit")
        assert limits == "lab|labuser|2000\n"

    def test_a_preempted_job_that_may_not_be_requeued_says_so(self, lab: RunningLab) -> None:
        low = submit(lab, "alpha", "-N4 --exclusive --qos=low --no-requeue -t 5", "sleep 240")
        wait_until(lambda: job_state(lab, "alpha", low) == "RUNNING", 60, "the low job did not start")
        high = submit(lab, "alpha", "-N4 --exclusive --qos=high --no-requeue -t 5", "true")
        wait_until(lambda: job_state(lab, "alpha", high) == "COMPLETED", 60, "the high job did not run")
        wait_until(lambda: job_state(lab, "alpha", low) == "PREEMPTED", 90, "the low job was not preempted")

    def test_the_topology_is_stated(self, lab: RunningLab) -> None:
        found = lab.ssh("alpha", "scontrol show topology")
        assert re.findall(r"SwitchName=(\S+).* Nodes=(\S+)", found) == [
            ("leaf1", "alpha-n[01-02]"),
            ("leaf2", "alpha-n[03-04]"),
            ("spine", "alpha-n[01-04]"),
        ]

    def test_partitions_of_the_two_sites_differ(self, lab: RunningLab) -> None:
        partitions = {c: set(lab.ssh(c, "sinfo -h -o %R").split()) for c in ("alpha", "beta")}
        assert partitions == {"alpha": {"main", "debug", "staff"}, "beta": {"batch", "short"}}
        assert "partition: main\naccount: lab\n" in lab.cluster_file("alpha").read_text()
        assert "account" not in lab.cluster_file("beta").read_text()

    def test_a_controller_that_is_restarted_keeps_its_jobs(self, lab: RunningLab) -> None:
        until_told = "until [ -e /scratch/go-on ]; do sleep 0.2; done; rm /scratch/go-on"
        job = submit(lab, "alpha", "-N2 --no-requeue -t 5", until_told)
        wait_until(lambda: job_state(lab, "alpha", job) == "RUNNING", 60, "the job did not start")
        lab.command("restart-controller", "alpha")
        assert job_state(lab, "alpha", job) == "RUNNING"
        lab.ssh("alpha", "touch /scratch/go-on")
        wait_until(lambda: job_state(lab, "alpha", job) == "COMPLETED", 60, "the job did not complete")

    def test_a_head_that_lost_its_power_knows_its_jobs_again(self, lab: RunningLab) -> None:
        job = submit(lab, "alpha", "-N1 --qos=low", "true")
        wait_until(lambda: lab.ssh("alpha", f"sacct -nPX -j {job} -o state") == "COMPLETED\n", 60, "the job did not run")
        lab.command("restart-controller", "alpha")
        lab.command("kill-node", "alpha/head")
        assert "error" in lab_command("exec", "--name", lab.name, "alpha", "--", "true", check=False).stderr
        lab.command("start-node", "alpha/head")
        assert job_state(lab, "alpha", job) == "COMPLETED"
        assert lab.ssh("alpha", f"sacct -nPX -j {job} -o state") == "COMPLETED\n"
        wait_until(lambda: lab.ssh("alpha", "sinfo -h -p main -o %t,%D") == "idle,4\n", 60, "nodes did not come back")


class TestMpi:
    @pytest.mark.parametrize(("compiler", "plugin"), [("mpicc.openmpi", "pmix"), ("mpicc.mpich", "pmi2")])
    @pytest.mark.parametrize("cluster", ["alpha", pytest.param("beta", marks=pytest.mark.long)])
    def test_bytes_of_two_ranks_go_through_eth0(self, lab: RunningLab, cluster: str, compiler: str, plugin: str) -> None:
        lab.ssh(cluster, f"cat > {plugin}.c; {compiler} -o {plugin} {plugin}.c", text=MPI_PROGRAM)
        nodes = [f"{cluster}/n01", f"{cluster}/n02"]
        before = [eth0_bytes(lab, node) for node in nodes]
        found = lab.ssh(
            cluster, f"{MPI_ENVIRONMENT} srun -w {cluster}-n0[1-2] -N2 --ntasks-per-node=1 --mpi={plugin} ./{plugin}"
        )
        moved = [eth0_bytes(lab, node) - was for node, was in zip(nodes, before, strict=True)]
        assert sorted(found.splitlines()) == [f"rank {i} of 2 on {cluster}-n0{i + 1}" for i in (0, 1)]
        assert all(MPI_BYTES < byte_count < 1.5 * MPI_BYTES for byte_count in moved), moved
