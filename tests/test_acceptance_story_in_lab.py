"""The whole story on a real Slurm: a baseline, a maintenance that breaks a node, the watcher, the verdict, the repair.

Brings up a lab of its own, because nodes lose power in it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns_in_lab import Desk
from tests.lab_fixture import RunningLab, lab_command

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(1500)]

CAMPAIGN = """clusters: [alpha]
pairs: all
repetitions: 5
tests:
  - kernel: tcp_stream
    parameters: {duration_s: 300ms, warmup_s: 100ms}
gates:
  - {metric: throughput_bps, kernel: tcp_stream, minimum: 50mbit}"""
BROKEN = "ip link set eth0 mtu 1400 && tc qdisc replace dev eth0 root tbf rate 60mbit burst 16000 latency 50ms"
REPAIRED = "ip link set eth0 mtu 1500 && tc qdisc replace dev eth0 root tbf rate 200mbit burst 16000 latency 50ms"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    name = f"accept-{os.getpid()}"
    try:
        lab_command("up", "--name", name, timeout_s=180)
        made = Desk(tmp_path_factory.mktemp("story"), RunningLab(name))
        made.campaign(CAMPAIGN, "accept")
        yield made
    finally:
        lab_command("down", "--name", name)


def watch(desk: Desk, expect: int) -> dict[str, Any]:
    """What the watcher runs; the one cluster's part of what it says."""
    done = desk.hpcq("accept", "campaign.yaml", "--against", "good", "--json", expect=expect, timeout_s=600)
    [cluster] = json.loads(done.stdout)["clusters"]
    return {**cluster, "words": {one["name"].removeprefix("alpha-"): one["verdict"] for one in cluster["nodes"]}}


def wait_for_state(desk: Desk, node: str, wanted: str, within_s: float = 120) -> None:
    deadline = time.monotonic() + within_s
    while True:
        seen = desk.lab.exec("alpha", "sinfo", "-h", "-N", "-n", f"alpha-{node}", "-o", "%T").split()
        if seen and all(word.startswith(wanted) and (wanted == "down" or "*" not in word) for word in seen):
            return
        assert time.monotonic() < deadline, f"{node} is {seen}, not {wanted}"
        time.sleep(1)


def root(desk: Desk, *words: str) -> None:
    desk.lab.exec("alpha", *words)


def power_cycle(desk: Desk) -> None:
    """n02 and n03 go down and come up; n04 stays down."""
    for node in ("n02", "n03", "n04"):
        desk.lab.command("kill-node", f"alpha/{node}")
    for node in ("n02", "n03"):
        desk.lab.command("start-node", f"alpha/{node}")


def test_the_whole_story(desk: Desk, tmp_path: Path) -> None:
    desk.hpcq("run", "campaign.yaml", timeout_s=600)
    desk.hpcq("baseline", "set", "good", "latest", "--why", "first light")
    assert watch(desk, 0)["words"] == dict.fromkeys(("n01", "n02", "n03", "n04"), "pass")
    quiet = watch(desk, 0)
    assert (quiet["nodes"], quiet["runs"]) == ([], []), "a second time there is nothing to do"

    words = "reservationname=swap starttime=now duration=60 user=root nodes=alpha-n02,alpha-n03 flags=maint,ignore_jobs"
    root(desk, "scontrol", "create", "reservation", *words.split())
    power_cycle(desk)
    desk.lab.exec("alpha/n02", "sh", "-c", BROKEN)
    wait_for_state(desk, "n02", "maint")
    wait_for_state(desk, "n03", "maint")
    during = watch(desk, 4)
    assert {during["words"][node] for node in ("n02", "n03")} == {"not_covered"}
    assert during["runs"] == []
    assert any("users+=labuser" in one["command"] for one in during["commands"])

    root(desk, "scontrol", "delete", "reservationname=swap")
    wait_for_state(desk, "n02", "idle")
    wait_for_state(desk, "n03", "idle")
    wait_for_state(desk, "n04", "down")
    after = watch(desk, 3)
    assert after["words"] == {"n02": "failed", "n03": "pass", "n04": "not_covered"}
    assert "nic.eth0.mtu_bytes 1500 > 1400" in after["changed"]["alpha-n02"]
    assert after["links"] == []
    [drain] = [one["command"] for one in after["commands"] if "state=drain" in one["command"]]
    assert "nodename=alpha-n02" in drain
    assert "maintenance" in after["reasons"]["alpha-n02"]

    desk.lab.exec("alpha", "sh", "-c", drain)
    wait_for_state(desk, "n02", "drained")
    assert "n02" not in watch(desk, 4)["words"], "a failed node waits for its repair"
    desk.lab.exec("alpha/n02", "sh", "-c", REPAIRED)
    root(desk, "scontrol", "update", "nodename=alpha-n02", "state=resume")
    desk.lab.command("start-node", "alpha/n04")
    wait_for_state(desk, "n02", "idle")
    wait_for_state(desk, "n04", "idle")
    repaired = watch(desk, 0)
    assert repaired["words"] == {"n02": "pass", "n04": "pass"}
    assert "back from drain" in repaired["reasons"]["alpha-n02"]
    found = desk.rows("SELECT node, verdict FROM v_nodes WHERE cluster = 'alpha' ORDER BY node")
    assert {row["verdict"] for row in found} == {"pass"}
