"""A maintenance on a real PBS from end to end, with the orders that `hpcq accept --apply` gives and those that it prints.

Brings up a lab of its own with slow links: the network and not the cores is to be measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.campaigns_in_lab import Desk
from tests.lab.lab_fixture import RunningLab, own_lab
from tests.pbs_live.conftest import FOUR
from tests.pbs_live.live import Live, let_root_in

SHAPE = ("--beta", "pbs", "--nodes", "8", "--leaves", "4", "--node-rate", "50mbit", "--uplink-rate", "100mbit")
# A small buffer: what stands in one when a measurement ends has to leave it first.
CAMPAIGN = """clusters: [beta]
pairs: {rounds: 3}
allocation: whole
repetitions: 5
tests: [{kernel: tcp_stream, parameters: {duration_s: 100ms, warmup_s: 50ms, send_buffer_bytes: 64KiB}}]"""
BROKEN = "ip link set eth0 mtu 1400 && tc qdisc replace dev eth0 root tbf rate 15mbit burst 16000 latency 50ms"
REPAIRED = "ip link set eth0 mtu 1500 && tc qdisc replace dev eth0 root tbf rate 50mbit burst 16000 latency 50ms"


@pytest.fixture(scope="module")
def lab8() -> Iterator[RunningLab]:
    with own_lab("pbs8", *SHAPE) as lab:
        let_root_in(lab, "beta")
        yield lab


@pytest.fixture(params=FOUR, ids=lambda one: f"{one[0]}-{'history' if one[1] else 'no-history'}")
def live8(lab8: RunningLab, request: pytest.FixtureRequest) -> Live:
    made = Live(lab8, "beta", *request.param)
    made.switch_history()
    made.qmgr("unset server operators")
    made.qmgr("set server managers = root@*")
    if state(made, "n04")[0].startswith("down"):  # the story broke off before
        made.lab.command("start-node", "beta/n04")
    made.at_rest()
    return made


def accept(desk: Desk, *words: str, expect: int) -> dict[str, Any]:
    """One acceptance against the baseline; verdicts by the node's number."""
    done = desk.hpcq("accept", "campaign.yaml", "--against", "good", *words, "--json", expect=None, timeout_s=600)
    assert done.returncode == expect, done.stdout + done.stderr
    [cluster] = json.loads(done.stdout)["clusters"]
    verdicts = {one["name"].removeprefix("beta-"): one["verdict"] for one in cluster["nodes"]}
    return {**cluster, "verdicts": verdicts}


def at_fault(cluster: dict[str, Any]) -> dict[str, bool]:
    """Whether each node is told to be bad. Degraded or failed: other work on this machine may lift some of its values."""
    return {name: verdict in {"failed", "degraded"} for name, verdict in cluster["verdicts"].items()}


def state(live: Live, node: str) -> tuple[str, str]:
    """State and comment of a node, in PBS's words."""
    found = json.loads(live.root(f"pbsnodes -v beta-{node} -F json"))["nodes"][f"beta-{node}"]
    return found["state"], str(found.get("comment", ""))


def reserved(live: Live, *nodes: str) -> str:
    """Root takes nodes for a maintenance; the reservation's name."""
    hosts = " ".join(f"beta-{node}" for node in nodes)
    start = '$(date -d "@$(($(date +%s) + 3))" +%Y%m%d%H%M.%S)'
    said = live.root(f"pbs_rsub -N swap -R {start} -D 3600 --hosts {hosts}")
    name = said.split(".")[0]
    live.until(lambda: "RESV_RUNNING" in live.root(f"pbs_rstat -f {name}"), "a reservation that runs")
    return name


def kept_out(live: Live, desk: Desk) -> None:
    """Nodes of a reservation that does not let this user in are not covered; root then carries out the printed order."""
    during = accept(desk, expect=4)
    others = {f"n0{number}": "pass" for number in (1, 5, 6, 7, 8)}
    assert during["verdicts"] == others | dict.fromkeys(("n02", "n03", "n04"), "not_covered"), during
    live.root(next(one["command"] for one in during["commands"] if "pbs_ralter -U" in one["command"]))


def test_a_maintenance_from_end_to_end(live8: Live, tmp_path: Path) -> None:
    desk = live8.desk(tmp_path)
    desk.campaign(CAMPAIGN, "accept")
    live8.on("n02", REPAIRED)
    desk.hpcq("run", "campaign.yaml", timeout_s=600)
    desk.hpcq("baseline", "set", "good", "latest", "--why", "first light")

    # Two nodes in a maintenance that does not let us in, one repaired wrong; a third one is down.
    name = reserved(live8, "n02", "n03")
    live8.on("n02", BROKEN)
    live8.lab.command("kill-node", "beta/n04")
    live8.until(lambda: state(live8, "n04")[0].startswith("down"), "a node that is down")
    may = live8.user == "root"
    if not may:  # the reservation is root's, which it lets in
        kept_out(live8, desk)

    # Let in, it runs inside. Two nodes alone say little of each other, but one of them has another MTU.
    inside = accept(desk, "--since", name, expect=3)
    assert (inside["reservation"], at_fault(inside)) == ("swap", {"n02": True, "n03": False}), inside["verdicts"]
    assert inside["verdicts"]["n03"] == "inconclusive"
    # What only the evidence shows drains nobody, and PBS lets no job out of a reservation, to other partners.
    assert inside["commands"] == [], inside

    # The maintenance ends. Draining is for those who may: labuser may not, and is told so. root waits to be asked.
    live8.root(f"pbs_rdel {name}")
    live8.until(lambda: {state(live8, node)[0] for node in ("n02", "n03")} == {"free"}, "nodes that are free")
    refused = accept(desk, expect=3) if may else accept(desk, "--apply", expect=1)
    assert [node for node, bad in at_fault(refused).items() if bad] == ["n02"], refused["verdicts"]
    assert (refused["verdicts"]["n03"], refused["verdicts"]["n04"]) == ("pass", "not_covered")
    assert "nic.eth0.mtu_bytes 1500 > 1400" in refused["changed"]["beta-n02"]
    assert "maintenance" in refused["reasons"]["beta-n02"]
    assert (len(refused["refused"]), refused["applied"], state(live8, "n02")[0]) == (0 if may else 1, [], "free")
    live8.qmgr("set server operators += labuser@*")
    live8.qmgr("set server managers += labuser@*")
    drained = accept(desk, "--node", "beta-n02", "--apply", expect=3)
    assert len(drained["applied"]) == 1, drained
    words, reason = state(live8, "n02")
    assert ("offline" in words, reason.startswith("hpcq accept: ")) == (True, True), (words, reason)

    # Somebody else's drain keeps its reason.
    live8.root("pbsnodes -o -C cable beta-n03")
    live8.lab.command("start-node", "beta/n04")
    live8.root("pbsnodes -o -C fan beta-n04")
    live8.until(lambda: state(live8, "n04")[0] == "offline", "a node that is up")
    live8.on("n02", REPAIRED)
    three = ("--node", "beta-n02", "--node", "beta-n03", "--node", "beta-n04")
    waiting = accept(desk, *three, "--apply", expect=4)
    assert (set(waiting["verdicts"].values()), waiting["applied"]) == ({"not_covered"}, [])
    assert (state(live8, "n03")[1], state(live8, "n04")[1]) == ("cable", "fan")

    # Repaired: released to the test and to nobody else. Three nodes have partners enough, and are given back to users.
    [release] = [one["command"] for one in waiting["commands"]]
    live8.root(release)
    live8.until(lambda: "RESV_RUNNING" in live8.root("pbs_rstat -f"), "a reservation that runs")
    repaired = accept(desk, *three, "--apply", expect=0)
    assert (repaired["reservation"], set(repaired["verdicts"].values())) == ("hpcq-accept", {"pass"}), repaired
    assert [line.split()[0].rpartition("/")[2] for line in repaired["applied"]] == ["pbs_rdel"]
    live8.until(lambda: {state(live8, f"n0{number}") for number in range(1, 9)} == {("free", "")}, "nodes back with users")
    quiet = accept(desk, expect=0)
    assert (quiet["nodes"], quiet["runs"]) == ([], [])
    found = json.loads(desk.hpcq("nodes", "--verdicts", "--json").stdout)
    assert {row["verdict"] for row in found if row["kind"] == "node"} == {"pass"}
