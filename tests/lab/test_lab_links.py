"""The lab's links, its start and its end, and a cut of power, on the real thing."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests import REPOSITORY
from tests.lab.lab_fixture import LABS_FOLDER, PROGRAM, RunningLab, lab_command
from tests.lab.lab_programs import FLOOD
from tests.lab.test_lab import (
    address_of,
    all_pids,
    arrived_ratio,
    assert_gone,
    descendants,
    host_view,
    namespaces,
    steady_bps,
    throughput_bps,
    wait_until,
)

pytestmark = [pytest.mark.lab]


@pytest.fixture(scope="module", autouse=True)
def power_cut(lab: RunningLab) -> Iterator[float]:
    """One node of beta loses its power before the first test; the last tests ask what Slurm made of it.

    Whichever tests are chosen and whatever they do, the lab is given back with all its nodes.
    """
    lab.at_rest("alpha", "beta")
    lab.command("kill-node", "beta/n04")
    yield time.monotonic()
    lab.at_rest("beta")


class TestTheLinks:
    @pytest.mark.real_time
    def test_a_node_link_has_the_asked_rate(self, lab: RunningLab) -> None:
        assert 180e6 < steady_bps(lab, ("alpha/n01", "alpha/n02"), 1.0, 180e6, 200e6) < 200e6
        assert 180e6 < steady_bps(lab, ("beta/n03", "beta/n01"), 1.0, 180e6, 200e6) < 200e6

    @pytest.mark.real_time
    def test_two_flows_between_the_leaves_share_the_uplink(self, lab: RunningLab) -> None:
        pairs = (("alpha/n01", "alpha/n03"), ("alpha/n02", "alpha/n04"))
        for _ in range(4):
            with ThreadPoolExecutor(2) as both:
                found_bps = list(both.map(lambda pair: throughput_bps(lab, pair[0], pair[1], 1.5), pairs))
            if all(150e6 < each_bps < 200e6 for each_bps in found_bps):
                break
        assert all(150e6 < each_bps < 200e6 for each_bps in found_bps), found_bps
        assert lab.status()["settings"]["uplink_rate_bps"] == 400_000_000

    @pytest.mark.real_time
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

    @pytest.mark.real_time
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
            (["up", "--nodes", "49"], 2, "error: --nodes: '49': must be 1 to 48\n"),
            (["up", "--wan-delay", "3"], 2, "error: --wan-delay: '3' has no unit of time: ns, us, ms and s are allowed\n"),
            (["up", "--name", "A"], 2, "error: --name: 'A' is not a name: "),
            (["up", "--name", lab.name], 1, f"error: lab {lab.name}: found it up already, in {lab.state}\n"),
            (["exec", "--name", lab.name, "gamma", "--", "true"], 2, "error: cluster: 'gamma' is not in this lab: "),
            (["exec", "--name", lab.name, "alpha/n09", "--", "true"], 2, "error: node: 'n09' is not in alpha: "),
            (["up", "--leaves", "0"], 2, "error: --leaves: '0': must be 1 to 16\n"),
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

    @pytest.mark.long
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

    @pytest.mark.parametrize("after_s", [0.9, *(pytest.param(one, marks=pytest.mark.long) for one in (0.3, 2.5))])
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

    @pytest.mark.promise("A lab whose tests were killed goes down by itself.")
    def test_a_lab_whose_tests_were_killed_goes_down(self, lab: RunningLab) -> None:
        name = f"{lab.name[:18]}-k"
        before = host_view()
        words = f"from tests.lab.lab_fixture import lab_command\nlab_command('up', '--name', {name!r}, '--nodes', '1')\n"
        words += "print('up', flush=True)\ninput()"
        with subprocess.Popen(
            [sys.executable, "-c", words], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as tests:
            assert tests.stdout
            assert tests.stdout.readline() == "up\n"
            was = namespaces(descendants(RunningLab(name).status()["init_pid"]))
            tests.kill()
        wait_until(lambda: not (LABS_FOLDER / name).exists(), 120, "the lab outlives its tests")
        assert_gone(name, was, before)

    @pytest.mark.long
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
