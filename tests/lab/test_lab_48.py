"""The lab at its full size: 48 nodes in each cluster, on the two cores that the development machines have."""

import time
from pathlib import Path

import pytest

from tests.lab.lab_fixture import RunningLab, lab_command

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.quiet]

UP_MAX_S = 120.0
MEMORY_MAX_MIB = 1024


def memory_available_mib() -> int:
    found = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(found["MemAvailable"].split()[0]) // 1024


def test_48_nodes_in_each_cluster_come_up_and_run_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    lab = RunningLab("test-48")
    before_mib, started_s = memory_available_mib(), time.monotonic()
    try:
        lab_command("up", "--name", lab.name, "--nodes", "48", timeout_s=UP_MAX_S)
        up_s, used_mib = time.monotonic() - started_s, before_mib - memory_available_mib()
        for cluster in ("alpha", "beta"):
            nodes = lab.ssh(cluster, "srun -N48 hostname | sort").split()
            assert nodes == [f"{cluster}-n{no:02d}" for no in range(1, 49)]
            time.sleep(10)
            assert lab.ssh(cluster, "sinfo -h -N -o '%N %t' | sort -u | grep -c idle") == "48\n"
        with capsys.disabled():
            print(f"\n2 x 48 nodes: up in {up_s:.1f} s, {used_mib} MiB")
        assert used_mib < MEMORY_MAX_MIB
    finally:
        started_s = time.monotonic()
        lab_command("down", "--name", lab.name)
    assert time.monotonic() - started_s < 30
