"""The lab is what it says: real clusters, separate machines, links of the asked rate, and nothing left behind."""

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.lab_fixture import LABS_FOLDER, PROGRAM, RunningLab, lab_command
from tests.lab_programs import ECHO_CLIENT, ECHO_SERVER, FLOOD, MPI_BYTES, MPI_ENVIRONMENT, MPI_PROGRAM, SINK, SOURCE

pytest_plugins = ["tests.lab_fixture"]
pytestmark = [pytest.mark.lab]


@pytest.fixture(scope="module", autouse=True)
def power_cut(lab: RunningLab) -> float:
    """One node of beta loses its power before the first test; the last tests ask what Slurm made of it."""
    lab.at_rest("alpha", "beta")
    lab.command("kill-node", "beta/n04")
    return time.monotonic()


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
OF_OTHER_TESTS = ("/pytest-of-", "/run/netns/hpcq-test-")


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
    @pytest.mark.parametrize("cluster", ["alpha", "beta"])
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


class TestTheLinks:
    def test_a_node_link_has_the_asked_rate(self, lab: RunningLab) -> None:
        assert 180e6 < steady_bps(lab, ("alpha/n01", "alpha/n02"), 1.0, 180e6, 200e6) < 200e6
        assert 180e6 < steady_bps(lab, ("beta/n03", "beta/n01"), 1.0, 180e6, 200e6) < 200e6

    def test_two_flows_between_the_leaves_share_the_uplink(self, lab: RunningLab) -> None:
        pairs = (("alpha/n01", "alpha/n03"), ("alpha/n02", "alpha/n04"))
        for _ in range(4):
            with ThreadPoolExecutor(2) as both:
                found_bps = list(both.map(lambda pair: throughput_bps(lab, pair[0], pair[1], 1.5), pairs))
            if all(150e6 < each_bps < 200e6 for each_bps in found_bps):
                break
        assert all(150e6 < each_bps < 200e6 for each_bps in found_bps), found_bps
        assert lab.status()["settings"]["uplink_rate_bps"] == 400_000_000

    def test_a_node_a_leaf_and_a_pair_are_broken_and_mended(self, lab: RunningLab) -> None:
        lab.command("slow", "alpha/n01", "--rate", "30mbit")
        assert 20e6 < steady_bps(lab, ("alpha/n01", "alpha/n02"), 0.6, 20e6, 31e6) < 31e6
        assert 20e6 < steady_bps(lab, ("alpha/n03", "alpha/n01"), 0.6, 20e6, 31e6) < 31e6
        lab.command("slow", "alpha/leaf2", "--rate", "30mbit")
        assert 20e6 < steady_bps(lab, ("alpha/n02", "alpha/n04"), 0.6, 20e6, 31e6) < 31e6
        assert steady_bps(lab, ("alpha/n03", "alpha/n04"), 0.6, 70e6, 1e9) > 70e6
        lab.command("mend")
        assert steady_bps(lab, ("alpha/n04", "alpha/n01"), 0.6, 70e6, 1e9) > 70e6

        lab.command("lossy", "alpha/n01", "n04", "--loss", "50%")
        assert 0.4 < arrived_ratio(lab, "alpha/n01", "alpha/n04") < 0.6
        assert 0.4 < arrived_ratio(lab, "alpha/n04", "alpha/n01") < 0.6
        assert arrived_ratio(lab, "alpha/n01", "alpha/n03") == 1
        lab.command("mend", "alpha")
        assert lab.exec("alpha/n01", "nft", "list", "ruleset") == ""
        assert arrived_ratio(lab, "alpha/n01", "alpha/n04") == 1

    def test_the_wide_area_link_has_the_asked_delay(self, lab: RunningLab) -> None:
        lab.command("wan", "--delay", "1.45ms", "--rate", "400mbit", "--loss", "0")
        for _ in range(4):
            found = round_trips_us(lab, "alpha/n01", "beta/n01", 300)
            times_us = [time_us for time_us in found if time_us is not None]
            if len(times_us) == 300 and statistics.median(times_us) < 3600:
                break
        assert len(times_us) == 300
        assert 2900 < min(times_us) < 3100
        assert 2900 < statistics.median(times_us) < 3600

    def test_the_wide_area_link_has_the_asked_rate(self, lab: RunningLab) -> None:
        lab.command("wan", "--rate", "50mbit")
        found_bps = steady_bps(lab, ("beta/n01", "alpha/n04"), 2.0, 44e6, 50e6)
        lab.command("wan", "--rate", "400mbit")
        assert 44e6 < found_bps < 50e6

    def test_the_wide_area_link_loses_what_was_asked(self, lab: RunningLab) -> None:
        lab.command("wan", "--loss", "5%")
        for _ in range(4):  # a wire that was held up for long drops what it never saw
            before = json.loads(lab.command("wan", "--json"))["a_to_b"]
            lab.exec("alpha/n02", "python3", "-c", FLOOD, address_of(lab, "beta/n02"), "8000")
            time.sleep(0.5)
            after = json.loads(lab.command("wan", "--json"))["a_to_b"]
            lost, carried = (after[key] - before[key] for key in ("lost_count", "frame_count"))
            if 8000 <= lost + carried < 8100:
                break
        lab.command("wan", "--loss", "0")
        assert 8000 <= lost + carried < 8100
        assert 0.04 < lost / (lost + carried) < 0.06


class TestStartAndEnd:
    def test_the_link_and_the_verbs_answer_in_the_products_words(self, lab: RunningLab) -> None:
        for words, status, said in (
            (["up", "--nodes", "49"], 2, "error: --nodes: '49' is out of range: 1 to 48 are allowed\n"),
            (["up", "--wan-delay", "3"], 2, "error: --wan-delay: '3' has no unit of time: ns, us, ms and s are allowed\n"),
            (["up", "--name", "A"], 2, "error: --name: 'A' is not a name: "),
            (["up", "--name", lab.name], 1, f"error: lab {lab.name}: found it up already, in {lab.state}\n"),
            (["exec", "--name", lab.name, "gamma", "--", "true"], 2, "error: cluster: 'gamma' is not in this lab: "),
            (["exec", "--name", lab.name, "alpha/n09", "--", "true"], 2, "error: node: 'n09' is not in alpha: "),
            (["up", "--leaves", "0"], 2, "error: --leaves: '0' is out of range: 1 to 16 are allowed\n"),
            (["slow", "--name", lab.name, "alpha/leaf3", "--rate", "1mbit"], 2, "error: leaf: 'leaf3' is not in alpha: leaf1 "),
            (
                ["lossy", "--name", lab.name, "alpha/n01", "n01", "--loss", "1%"],
                2,
                "error: lossy: alpha/n01 and n01: two",
            ),
            (["status", "--name", "nowhere"], 1, "error: lab nowhere: found it absent: it must be up\n"),
        ):
            done = lab_command(*words, check=False)
            assert (done.returncode, done.stdout) == (status, "")
            assert done.stderr.startswith(said), done.stderr
        assert lab_command("down", "--name", "nowhere").stderr == "lab nowhere was not there\n"

    def test_without_root_it_says_so(self) -> None:
        words = ["setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/python3", str(PROGRAM), "up", "--name", "x"]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        assert done.returncode == 1
        assert done.stderr == (
            "error: lab up: found user id 65534: only root may make namespaces and mounts\n"
            "\nhint: run it as root: sudo hpcq lab up\n"
        )

    def test_a_second_lab_stands_beside_the_first_and_leaves_nothing(self, lab: RunningLab) -> None:
        other = RunningLab(f"{lab.name[:18]}-b")
        before = host_view()
        try:
            lab_command("up", "--name", other.name, "--nodes", "2", "--node-rate", "none")
            was = namespaces(descendants(other.status()["init_pid"]))
            assert len(was) > 20
            assert other.ssh("alpha", "srun -w alpha-n0[1-2] -N2 hostname | sort").split() == ["alpha-n01", "alpha-n02"]
            assert steady_bps(other, ("beta/n01", "beta/n02"), 0.5, 250e6, 1e12) > 250e6
            assert lab.ssh("alpha", "srun -w alpha-n0[1-2] -N2 hostname | sort").split() == ["alpha-n01", "alpha-n02"]
        finally:
            lab_command("down", "--name", other.name)
        assert_gone(other.name, was, before)
        lab_command("down", "--name", other.name)
        assert lab.status()["state"] == "up"

    @pytest.mark.parametrize("after_s", [0.3, 0.9, 2.5])
    def test_an_up_that_was_killed_half_way_leaves_nothing(self, lab: RunningLab, after_s: float) -> None:
        name = f"{lab.name[:18]}-c"
        before = host_view()
        with subprocess.Popen(
            [sys.executable, str(PROGRAM), "up", "--name", name, "--nodes", "2"], stdout=subprocess.PIPE
        ) as started:
            time.sleep(after_s)
            started.kill()
        pid_file = LABS_FOLDER / name / "init.pid"
        words = pid_file.read_text().split() if pid_file.exists() else []
        was = namespaces(descendants(int(words[0]))) if words else set()
        lab_command("down", "--name", name)
        assert_gone(name, was, before)

    def test_a_lab_that_crashed_is_called_broken_and_goes_away(self, lab: RunningLab) -> None:
        name = f"{lab.name[:18]}-d"
        before = host_view()
        lab_command("up", "--name", name, "--nodes", "1")
        init_pid = RunningLab(name).status()["init_pid"]
        was = namespaces(descendants(init_pid))
        os.kill(init_pid, signal.SIGKILL)
        wait_until(lambda: not was & namespaces(all_pids()), 60, "processes outlive the lab's first one")
        done = lab_command("status", "--name", name, check=False)
        assert done.stderr == f"error: lab {name}: found it broken: it must be up\n\nhint: hpcq lab down clears it away\n"
        lab_command("down", "--name", name)
        assert_gone(name, was, before)


class TestPowerCut:
    def test_slurm_sees_a_killed_node_down_and_back_up(self, lab: RunningLab, power_cut: float) -> None:
        assert "up" in lab.exec("beta", "cat", "/sys/class/net/eth0/operstate")
        wait_until(lambda: "down" in lab.ssh("beta", "sinfo -h -n beta-n04 -o %t"), 120, "the node is not down")
        assert time.monotonic() - power_cut > 5
        lab.command("start-node", "beta/n04")
        wait_until(lambda: lab.ssh("beta", "sinfo -h -p batch -n beta-n04 -o %t") == "idle\n", 60, "not idle again")
        assert lab.ssh("beta", "srun -w beta-n04 hostname") == "beta-n04\n"
