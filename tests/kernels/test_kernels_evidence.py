"""Counters and facts: of this node, and of recorded trees of nodes that are not here."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.evidence import evidence_trees
from tests.kernels.kernel_programs import INSTANT, LIMIT_S, Programs, Server


def diff(program: Path, before: Path, after: Path, *words: str) -> dict[str, Any]:
    command = [str(program), "snapshot-diff", str(before), str(after), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def facts(program: Path, *words: str) -> dict[str, Any]:
    done = subprocess.run([program, "facts", *words], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def ib_node(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return evidence_trees.unpack("ib_node", tmp_path_factory.mktemp("ib_node"))


def test_every_source_of_a_recorded_node(sanitized: Programs, ib_node: tuple[Path, Path]) -> None:
    found = diff(sanitized.net, *ib_node, "--interface", "bond0")
    counters = found["counters"]
    wanted = {
        "stat.cpu.user_ticks": 10,
        "stat.cpu0.softirq_ticks": 60,
        "stat.node.context_switches": 10000,
        "stat.node.forks": 3,
        "interrupts.mlx5_comp0@pci:0000:17:00-0#120.cpu0": 8000,
        "softirqs.NET_RX.cpu0": 7000,
        "schedstat.cpu0.run_ns": 3000000,
        "schedstat.cpu0.wait_ns": 400000,
        "schedstat.cpu0.slices": 20,
        "self.schedstat.wait_ns": 200,
        "net_dev.bond0.rx_bytes": 50000,
        "net_dev.bond0.rx_dropped": 7,
        "snmp.Udp.RcvbufErrors": 33,
        "snmp.Tcp.RetransSegs": 40,
        "snmp.IcmpMsg.InType3": 4,
        "netstat.TcpExt.PruneCalled": 4,
        "softnet.cpu0.processed": 0x10000,
        "softnet.cpu0.dropped": 10,
        "softnet.cpu0.time_squeeze": 2,
        "pressure.cpu.some_us": 2500,
        "vmstat.node.pgfault": 500,
        "conntrack.node.drop": 2,
        "cpu_power.cpu0.core_throttle_count": 6,
        "cpu_power.cpu1.package_throttle_count": 2,  # where an interrupt of the NIC is handled
        "cpu_power.cpu0.idle_POLL_us": 600,
        "sys_net.ens1f0np0.rx_crc_errors": 2,
        "sys_net.ens1f0np0.carrier_down_count": 1,
        "infiniband.mlx5_0.1.port_xmit_data_bytes": 1000000,
        "infiniband.mlx5_0.1.symbol_error": 5,
        "infiniband.mlx5_0.1.out_of_sequence": 3,
        "ethtool.ens1f0np0.rx_out_of_buffer": 15,
        "ethtool.ens1f0np0.rx_prio0_pause": 40,
        "qdisc.bond0.mq.drops": 13,
        "cgroup.self.throttled": 2,
        "cgroup.self.throttled_us": 80000,
        "self.rusage.user_us": 100,
        "self.rusage.involuntary_context_switches": 7,
    }
    assert {name: counters.get(name) for name in wanted} == wanted
    assert 0 not in counters.values(), "zero differences are dropped"
    assert not any(name.endswith((".total", "lifespan")) for name in counters)
    assert found["counter_count"] >= len(counters)
    assert found["boot_id"] == "0f0e0d0c-0b0a-4908-8706-050403020100"


def test_gauges_are_values_or_pairs(programs: Programs, ib_node: tuple[Path, Path]) -> None:
    gauges = diff(programs.net, *ib_node, "--interface", "bond0")["gauges"]
    assert gauges["cpufreq.cpu0.frequency_hz"] == [3.2e9, 2e9]
    assert gauges["cpufreq.cpu1.frequency_hz"] == [1.2e9, 1.3e9]
    assert gauges["qdisc.bond0.mq.backlog_bytes"] == [0, 3000]
    assert gauges["clock.wall_minus_monotonic_us"] == [1700000000000000, 1700000002000000]
    assert gauges["meminfo.node.MemTotal_bytes"] == 263840000 * 1024
    assert gauges["meminfo.node.HugePages_Free"] == 12
    assert gauges["snmp.Tcp.CurrEstab"] == [4, 5]
    assert gauges["loadavg.node.1min"] == 1.25
    assert gauges["sockstat.TCP.mem"] == [2, 700]
    assert "sockstat.TCP.orphan" not in gauges, "0 both times says nothing"


def test_bytes_of_interface_and_rdma_port(programs: Programs, ib_node: tuple[Path, Path]) -> None:
    def crossed(interface: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
        found = diff(programs.net, *ib_node, "--interface", interface)
        return found["interface_bytes"], found["rdma_bytes"]

    assert crossed("bond0") == ({"tx": 90000, "rx": 50000}, {"tx": 1000000, "rx": 4000})
    assert crossed("ens1f0np0") == ({"tx": 90000, "rx": 1000}, {"tx": 1000000, "rx": 4000})
    assert crossed("nope0") == ({"tx": None, "rx": None}, None)


def test_wrapped_reset_plugged_and_missing(programs: Programs, ib_node: tuple[Path, Path]) -> None:
    found = diff(programs.net, *ib_node, "--interface", "bond0")
    unavailable = found["unavailable"]
    assert found["counters"]["net_dev.ens1f0np0.rx_bytes"] == 1000, "wrapped at 32 bit"
    assert unavailable["net_dev.ib0.rx_bytes"] == "decreased"
    assert "net_dev.ib0.rx_bytes" not in found["counters"]
    assert unavailable["net_dev.usb0"] == "appeared"
    assert unavailable["net_dev.veth1a"] == "vanished"
    assert unavailable["stat.cpu.iowait_ticks"] == "decreased"
    assert unavailable["snmp6"] == "ENOENT"
    assert not any(name.startswith(("net_dev.usb0.", "snmp6.")) for name in [*found["counters"], *unavailable])


def test_unreadable_and_empty_trees(programs: Programs, tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for root in (before, after):
        (root / "proc" / "net").mkdir(parents=True)
        (root / "proc" / "net" / "dev").mkdir()
        (root / "proc" / "stat").symlink_to("stat")
        (root / "proc" / "interrupts").write_text("")
    found = diff(programs.net, before, after)
    assert found["counters"] == {}
    assert found["unavailable"]["net_dev"] == "EISDIR"
    assert found["unavailable"]["stat"] == "ELOOP"
    assert found["unavailable"]["schedstat"] == "ENOENT"
    assert "interrupts" not in found["unavailable"]
    if os.geteuid() != 0:
        (after / "proc" / "interrupts").chmod(0)
        assert diff(programs.net, before, after)["unavailable"]["interrupts"] == "EACCES"
    assert facts(programs.net, "--root", str(after), "--interface", "eth0")["unavailable"]["nic"] == "ENOENT"


def test_a_large_node_keeps_its_line_short(programs: Programs, tmp_path: Path) -> None:
    before, after = evidence_trees.large(tmp_path)
    line = diff(programs.net, before, after, "--interface", "hsn0")
    whole = diff(programs.net, before, after, "--interface", "hsn0", "--counters", "full")
    assert len(whole["counters"]) == line["counter_count"] > 4000
    assert len(line["counters"]) < 120
    assert len(json.dumps(line)) < 12000
    assert line["counters"].items() <= whole["counters"].items()
    for kept in ("stat.cpu77.softirq_ticks", "softnet.cpu77.processed", "softirqs.NET_RX.cpu77"):
        assert line["counters"][kept] == 1000, "the busiest stays"
    assert line["counters"]["interrupts.nic-rx-77#77.cpu77"] == 1000
    assert line["counters"]["net_dev.hsn0.tx_bytes"] == 7000
    assert line["counters"]["softirqs.NET_RX.total"] == whole["counters"]["softirqs.NET_RX.total"]


def test_snapshots_are_cheap(server: Server) -> None:
    """Both ends share two cores here, and other tests run beside this one: a turn in which nobody disturbed is the cost."""
    turns = (server.run("udp_pingpong", **INSTANT).line["evidence"] for _ in range(50))
    assert any(sum(evidence[end]["snapshot_cost_ns"]) < 5e6 for evidence in turns for end in ("client", "server"))


def test_evidence_of_a_measurement(server: Server) -> None:
    line = server.run("udp_stream", rate_bps=1e8, duration_s=0.3, warmup_s=0).line
    for end in ("client", "server"):
        evidence = line["evidence"][end]
        assert evidence["node"] == os.uname().nodename.split(".")[0]
        assert evidence["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert evidence["address"] == "127.0.0.1"
        assert evidence["before_utc"] < evidence["after_utc"]
        assert evidence["interval_ns"] >= 0.3e9
        # how the kernel shares precise time out between both goes by ticks: either may be none
        assert sum(evidence["counters"].get(f"self.rusage.{mode}_us", 0) for mode in ("user", "system")) > 0
        assert len(evidence["counters"]) < 200
        assert not evidence["unavailable"].keys() & {"net_dev", "snmp", "netstat", "softnet", "stat", "self.rusage"}
    assert line["evidence"]["client"]["pid"] != line["evidence"]["server"]["pid"]


def test_whole_and_raw_evidence_of_both_ends(server: Server, tmp_path: Path) -> None:
    whole, raw = tmp_path / "deep" / "whole.json", tmp_path / "raw"
    line = server.run("tcp_pingpong", "--evidence-file", str(whole), "--raw-dir", str(raw), **INSTANT).line
    kept = json.loads(whole.read_text())
    for end in ("client", "server"):
        assert line["evidence"][end]["counters"].items() <= kept[end]["counters"].items()
        assert len(kept[end]["counters"]) == kept[end]["counter_count"]
        again = diff(server.program, raw / end / "before", raw / end / "after", "--interface", "lo")
        assert again["counters"] == line["evidence"][end]["counters"], "raw files are a recorded tree"
        assert again["gauges"] == line["evidence"][end]["gauges"]
    assert not list(tmp_path.rglob("*.part"))


def test_facts_of_this_node(programs: Programs) -> None:
    found = facts(programs.net, "--interface", "lo")
    assert found["kernel"]["release"] == os.uname().release
    assert found["boot"]["id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert found["node"]["hostname"] == os.uname().nodename
    assert found["cpu"]["thread_count"] >= len(os.sched_getaffinity(0))
    assert found["nic"]["lo.mtu_bytes"] == int(Path("/sys/class/net/lo/mtu").read_text())
    assert "127.0.0.1" in found["nic"]["lo.addresses"].split()
    assert found["sysctl"]["net.core.rmem_max"] == int(Path("/proc/sys/net/core/rmem_max").read_text())
    assert found["software"]["libc"]
    flat = [f"{group}.{name}" for group, content in found.items() for name in content]
    assert len(flat) == len(set(flat)) > 60
    assert all(not isinstance(value, (dict, list)) for content in found.values() for value in content.values())


def test_a_program_that_hangs_is_unknown_and_not_gone(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ucx_info").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "ofed_info").write_text("#!/bin/sh\necho MLNX_OFED-5\n")
    for path in tmp_path.iterdir():
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = facts(programs.net, "--interface", "lo")
    assert found["unavailable"]["software.ucx"] == "ETIMEDOUT"
    assert found["software"]["ofed"] == "MLNX_OFED-5"


def test_facts_stay_the_same(programs: Programs) -> None:
    first, second = (facts(programs.net, "--interface", "lo") for _ in range(2))
    assert {k: v for k, v in first.items() if k != "now"} == {k: v for k, v in second.items() if k != "now"}


def test_facts_of_a_recorded_node(sanitized: Programs, ib_node: tuple[Path, Path]) -> None:
    found = facts(sanitized.net, "--root", str(ib_node[1]), "--interface", "bond0")
    wanted = {
        ("node", "name"): "n042",
        ("node", "hostname"): "n042.cluster.example",
        ("kernel", "release"): "4.18.0-513.el8.x86_64",
        ("kernel", "cmdline"): "BOOT_IMAGE=/vmlinuz root=/dev/sda2 intel_idle.max_cstate=1 isolcpus=2-3",
        ("boot", "time_utc"): "2023-11-14T22:13:20Z",
        ("cpu", "model"): "Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz",
        ("cpu", "microcode"): "0xd0003a5",
        ("cpu", "socket_count"): 2,
        ("cpu", "core_count"): 2,
        ("cpu", "governor"): "performance 1, powersave 1",
        ("cpu", "smt_active"): 0,
        ("numa", "node_count"): 2,
        ("numa", "node1.cpus"): 1,
        ("mitigation", "meltdown"): "Not affected",
        ("nic", "bond0.mtu_bytes"): 9000,
        ("nic", "bond0.bond_mode"): "802.3ad 4",
        ("nic", "ens1f0np0.speed_mbps"): 100000,
        ("nic", "ens1f0np0.duplex"): "full",
        ("nic", "ens1f0np0.numa_node"): 1,
        ("nic", "ens1f0np0.pci_address"): "0000:17:00.0",
        ("nic", "ens1f0np0.pci_width"): 8,
        ("nic", "ens1f0np0.pci_width_maximum"): 16,
        ("nic", "ens1f0np0.driver"): "mlx5_core",
        ("nic", "ens1f0np0.driver_version"): "5.8-3.0.7",
        ("nic", "ens1f0np0.firmware"): "20.36.1010 (MT_0000000224)",
        ("nic", "ens1f0np0.coalescing.rx_usecs"): 8,
        ("nic", "ens1f0np0.ring.rx_max"): 8192,
        ("nic", "ens1f0np0.interrupt_affinity"): "120=0-31 121=32-63",
        ("nic", "ens1f0np0.xps_cpus"): "tx-0=00000000,00000001",
        ("qdisc", "bond0.kinds"): "mq",
        ("rdma", "mlx5_0.fw_ver"): "20.36.1010",
        ("rdma", "mlx5_0.port1.rate"): "100 Gb/sec (4X EDR)",
        ("rdma", "bond0.port"): "mlx5_0.1",
        ("route", "bond0.0.0.0.0/0"): "10.0.1.1",
        ("route", "bond0.10.0.0.0/16"): "link",
        ("route", "bond0.fd00::/64"): "link",
        ("route", "bond0.::/0"): "fd00::1",
        ("nic", "ens1f0np0.link.speed_maximum_bps"): 100_000_000_000,
        ("nic", "ens1f0np0.link.partner_speed_maximum_bps"): 100_000_000_000,
        ("now", "neighbour.10.0.7.2"): "b8:59:9f:01:02:03",
        ("software", "tuned_profile"): "hpc-compute",
        ("software", "distribution"): "Rocky Linux 8.9 (Green Obsidian)",
        ("module", "mlx5_core"): "loaded",
        ("machine", "memory_bytes"): 263840000 * 1024,
        ("now", "load_1min"): 1.25,
    }
    assert {key: found[key[0]].get(key[1]) for key in wanted} == wanted
    assert "ens1f0np0.rps_cpus" not in found["nic"], "all zero is off"
    assert found["unavailable"]["nic.bond0.driver"] == "ENOENT"


def test_tree_readme_names_every_tree() -> None:
    readme = (evidence_trees.TREES / "README.md").read_text()
    for path in evidence_trees.TREES.glob("*.tree"):
        assert f"`{path.name}`" in readme


def _interrupts(folder: Path, count: int) -> tuple[Path, Path]:
    """16 CPUs and `count` interrupts; in the second snapshot a CPU and an interrupt more."""
    for name, more in (("before", 0), ("after", 1)):
        (folder / name / "proc").mkdir(parents=True)
        lines = ["    " + " ".join(f"CPU{cpu}" for cpu in range(16 + more))]
        if more:
            lines.append("  5: " + " ".join("0" for _ in range(17)) + " IR-PCI 1 new")
        for number in range(count):
            counts = ["0"] * (16 + more)
            counts[number % 16] = str(1000 + more)
            lines.append(f"{number + 30}: {' '.join(counts)} IR-PCI-MSI {number} nic-{number}")
        (folder / name / "proc" / "interrupts").write_text("\n".join(lines) + "\n")
    return folder / "before", folder / "after"


def _cpu_s(program: Path, trees: tuple[Path, Path]) -> float:
    """User time of one comparison; the least of three, as load only adds to it."""

    def once() -> float:
        before_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        diff(program, *trees, "--counters", "full")
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before_s

    return min(once() for _ in range(3))


@pytest.mark.promise("A CPU that came between the snapshots is named once, not once per interrupt.")
@pytest.mark.promise("Comparing two snapshots of a large node takes no square of its interrupts.")
def test_comparing_a_large_node_takes_no_square(programs: Programs, tmp_path: Path) -> None:
    """Eight times the interrupts: about eight times the time; with a search through all interrupts for each, fifty times."""
    large = _interrupts(tmp_path / "large", 32000)
    found = diff(programs.net, *large, "--counters", "full")
    assert sum(name.endswith(".total") for name in found["counters"]) == 32000
    assert found["unavailable"]["interrupts.new#5"] == found["unavailable"]["interrupts.cpu16"] == "appeared"
    assert not [name for name in found["unavailable"] if name.startswith("interrupts.nic")], "a new CPU is named once"
    small_s = max(_cpu_s(programs.net, _interrupts(tmp_path / "small", 4000)), 0.01)  # the system counts in ticks of 4 ms
    assert _cpu_s(programs.net, large) < 20 * small_s


@pytest.mark.promise("Of half a million interrupt counts only those that moved are named, so a large node costs little.")
def test_a_large_node_costs_no_more_than_reading_it(programs: Programs, tmp_path: Path) -> None:
    """Half a million cells twice: each had a name of its own once, which took 0.5 s and 101 MB. Memory is no matter of load."""
    before, after = evidence_trees.large(tmp_path)
    files_bytes = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    script = "import resource,subprocess,sys;subprocess.run(sys.argv[1:],check=True,stdout=subprocess.DEVNULL);"
    script += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss*1024)"
    words = [sys.executable, "-c", script, str(programs.net), "snapshot-diff", str(before), str(after)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    assert int(done.stdout) < 4 * files_bytes
