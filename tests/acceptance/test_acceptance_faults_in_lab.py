"""Faults that once passed acceptance, on a real Slurm.

An MTU black hole, a wrong MTU, everything slower, slow one way only, slow in one run only, half-dead beside leaves.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcq import units
from tests.lab.campaigns_in_lab import Desk
from tests.lab.lab_fixture import RunningLab, own_lab

#: Quiet: beside other work nobody is PASS, and rightly.
pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.quiet, pytest.mark.timeout(1500)]

SHAPE = ("--nodes", "6", "--leaves", "3", "--node-rate", "50mbit", "--uplink-rate", "100mbit")
CAMPAIGN = """clusters: [alpha]
pairs: {rounds: 5}
allocation: whole
repetitions: 3
tests:
  - {kernel: tcp_stream, parameters: {duration_s: 100ms, warmup_s: 50ms, send_buffer_bytes: 64KiB}}
  - {kernel: udp_pingpong, parameters: {message_bytes: 1472, duration_s: 100ms, warmup_s: 50ms}}"""
#: One segment a packet: what the rule sees is what a wire would carry.
TABLE = (
    "ip link set eth0 gso_max_segs 1 && nft add table inet hole"
    " && nft add chain inet hole out '{ type filter hook output priority 0; }'"
)
#: Packets above 1,400 bytes vanish without a word, as behind a switch port with a small MTU.
BLACK_HOLE = f"{TABLE} && nft add rule inet hole out meta length gt 1400 drop"
#: No large packet to these nodes arrives.
HALF_DEAD = (
    "for node in {}; do far=$(getent ahostsv4 $node | head -n 1 | cut -d' ' -f1)"
    " && nft add rule inet hole out ip daddr $far meta length gt 1400 drop || exit 1; done"
)
#: Only what n02 sends is slow: it is bad as a client and fine as a server.
ONE_WAY = "tc qdisc replace dev eth0 root tbf rate 15mbit burst 16000 latency 50ms"
SPEED_AGAIN = "tc qdisc replace dev eth0 root tbf rate 50mbit burst 16000 latency 50ms"
MENDED = "nft delete table inet hole; ip link set eth0 mtu 1500 gso_max_segs 65535"


@pytest.fixture(scope="module")
def lab6() -> Iterator[RunningLab]:
    with own_lab("faults", *SHAPE) as lab:
        yield lab


@pytest.fixture(scope="module")
def lab7() -> Iterator[RunningLab]:
    with own_lab("seven", "--nodes", "7", "--node-rate", "50mbit") as lab:
        yield lab


@pytest.fixture(scope="module")
def first_light(lab6: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A desk with one run of the whole cluster, before any fault, as its baseline."""
    made = Desk(tmp_path_factory.mktemp("first_light"), lab6)
    made.campaign(CAMPAIGN, "accept")
    made.hpcq("run", "campaign.yaml", timeout_s=600)
    made.hpcq("baseline", "set", "good", "latest", "--why", "first light")
    return made.folder


@pytest.fixture
def desk(lab6: RunningLab, first_light: Path, tmp_path: Path) -> Desk:
    """A copy of that desk: no test knows what another one found."""
    subprocess.run(["cp", "-a", f"{first_light}/.", str(tmp_path)], check=True)
    return Desk(tmp_path, lab6)


def accept(desk: Desk) -> dict[str, Any]:
    done = desk.hpcq("accept", "campaign.yaml", "--against", "good", "--all", "--json", expect=None, timeout_s=1300)
    [cluster] = json.loads(done.stdout)["clusters"]
    return cluster  # type: ignore[no-any-return]


def at_fault(cluster: dict[str, Any]) -> set[str]:
    judged = [*cluster["clusters"], *cluster["nodes"], *cluster["links"], *cluster["groups"]]
    return {one["name"].removeprefix("alpha-") for one in judged if one["verdict"] in {"failed", "degraded"}}


def drained(cluster: dict[str, Any]) -> set[str]:
    """The nodes that a printed command would drain."""
    commands = [str(line["command"]) for line in cluster["commands"] if "state=drain" in str(line["command"])]
    return {command.partition("nodename=")[2].split()[0] for command in commands}


def reason_of(cluster: dict[str, Any], name: str) -> str:
    return next(str(one["reason"]) for one in cluster["nodes"] if one["name"] == f"alpha-{name}")


def test_an_mtu_black_hole_fails_with_the_reason_of_its_tests(lab6: RunningLab, desk: Desk) -> None:
    lab6.exec("alpha/n02", "sh", "-c", BLACK_HOLE)
    try:
        found = accept(desk)
    finally:
        lab6.exec("alpha/n02", "sh", "-c", MENDED)
    assert at_fault(found) == {"n02"}
    assert "brings nothing" in reason_of(found, "n02")
    assert {one["name"] for one in found["nodes"] if one["verdict"] == "pass"}.isdisjoint({"alpha-n02"})


@pytest.mark.real_time
@pytest.mark.promise("In one allocation, an MTU black hole among seven nodes is decided within two minutes.")
def test_a_black_hole_among_seven_nodes_is_decided_within_two_minutes(lab7: RunningLab, tmp_path: Path) -> None:
    """A first-time site: nothing but the peers says that n02 is bad. After three of them, nobody waits for it any more."""
    desk = Desk(tmp_path, lab7)
    desk.campaign(CAMPAIGN, "accept")
    lab7.exec("alpha/n02", "sh", "-c", BLACK_HOLE)
    try:
        done = desk.hpcq("accept", "campaign.yaml", "--all", "--json", expect=None, timeout_s=900)
    finally:
        lab7.exec("alpha/n02", "sh", "-c", MENDED)
    [found] = json.loads(done.stdout)["clusters"]
    assert at_fault(found) == {"n02"}
    query = "SELECT client, server, outcome, reason, started_utc FROM v_results WHERE run = ? ORDER BY started_utc"
    rows = desk.rows(query, found["runs"][0])
    decided = [row for row in rows if row["outcome"] == "not_measured"]
    assert decided
    assert all("decided: " in row["reason"] and "alpha-n02" in {row["client"], row["server"]} for row in decided)
    began = [units.parse_utc(row["started_utc"]) for row in rows if row["started_utc"]]
    waited = [units.parse_utc(row["started_utc"]) for row in rows if row["outcome"] == "failed" and row["started_utc"]]
    assert (max(waited) - min(began)).total_seconds() < 120, f"{len(waited)} waited for, {len(decided)} left out"


def test_a_wrong_mtu_is_named_by_accept_and_by_blame(lab6: RunningLab, desk: Desk) -> None:
    lab6.exec("alpha/n02", "ip", "link", "set", "eth0", "mtu", "1300")
    try:
        found = accept(desk)
        runs = [word for run in found["runs"] for word in ("--run", run)]  # the last one alone may be about other nodes
        blamed = json.loads(desk.hpcq("blame", *runs, "--json", expect=None).stdout)
    finally:
        lab6.exec("alpha/n02", "sh", "-c", "ip link set eth0 mtu 1500")
    assert at_fault(found) == {"n02"}
    assert "MTU of 1300" in reason_of(found, "n02")
    assert "MTU of 1300" in blamed["flaws"]["alpha-n02"]


def test_everything_slower_is_said_of_the_cluster(lab6: RunningLab, desk: Desk) -> None:
    for number in range(1, 7):
        lab6.command("slow", f"alpha/n0{number}", "--rate", "25mbit")
    try:
        found = accept(desk)
    finally:
        lab6.command("mend", "alpha")
    assert at_fault(found) == {"alpha"}
    assert "slower since run" in found["clusters"][0]["reason"]
    assert found["commands"] == []


def test_a_node_that_is_slow_one_way_only_fails(lab6: RunningLab, desk: Desk) -> None:
    lab6.exec("alpha/n02", "sh", "-c", ONE_WAY)
    try:
        found = accept(desk)
    finally:
        lab6.exec("alpha/n02", "sh", "-c", SPEED_AGAIN)
    assert at_fault(found) == {"n02"}
    assert drained(found) <= {"alpha-n02"}


def test_a_half_dead_node_that_reaches_its_own_leaf_only_fails_and_is_no_link(lab6: RunningLab, desk: Desk) -> None:
    beyond = ("n01", "n02", "n05", "n06")
    try:
        lab6.exec("alpha/n03", "sh", "-c", f"{TABLE} && {HALF_DEAD.format(' '.join(f'alpha-{one}' for one in beyond))}")
        for node in beyond:
            lab6.exec(f"alpha/{node}", "sh", "-c", f"{TABLE} && {HALF_DEAD.format('alpha-n03')}")
        found = accept(desk)
    finally:
        for node in ("n03", *beyond):
            lab6.exec(f"alpha/{node}", "sh", "-c", MENDED)
    assert at_fault(found) == {"n03"}, "neither leaf2, nor n04, nor a link"
    assert "brings nothing" in reason_of(found, "n03")
    assert drained(found) <= {"alpha-n03"}
    assert {one["name"] for one in found["nodes"] if one["verdict"] == "pass"} == {f"alpha-n0{one}" for one in (1, 2, 4, 5, 6)}


def test_slow_in_one_run_and_fine_in_the_next_is_watched(lab6: RunningLab, desk: Desk) -> None:
    known = len(list(desk.folder.glob("runs/*/run.json")))
    lab6.exec("alpha/n02", "sh", "-c", ONE_WAY)

    def mend_before_the_second_run() -> None:
        give_up = time.monotonic() + 500
        while len(list(desk.folder.glob("runs/*/run.json"))) < known + 2 and time.monotonic() < give_up:
            time.sleep(0.1)
        lab6.exec("alpha/n02", "sh", "-c", SPEED_AGAIN)

    mending = threading.Thread(target=mend_before_the_second_run)
    mending.start()
    try:
        found = accept(desk)
    finally:
        mending.join()
    assert len(found["runs"]) > 1
    assert at_fault(found) == set()
    assert [one["verdict"] for one in found["nodes"] if one["name"] == "alpha-n02"] == ["inconclusive"], found["nodes"]
    assert "bad in one run and fine in another" in reason_of(found, "n02")
    assert drained(found) == set()


@pytest.mark.promise(
    "Where uplinks carry a quarter of what the nodes behind them could send, an acceptance fails nothing for it."
)
def test_pairs_that_share_a_narrow_uplink_are_no_fault(tmp_path: Path) -> None:
    """Four nodes a leaf, and an uplink for little more than one of them: pairs of a run are slow by turns."""
    with own_lab("narrow", "--nodes", "8", "--leaves", "2", "--node-rate", "50mbit", "--uplink-rate", "55mbit") as lab:
        desk = Desk(tmp_path, lab)
        stream = "{kernel: tcp_stream, parameters: {duration_s: 200ms, warmup_s: 50ms, send_buffer_bytes: 64KiB}}"
        desk.campaign(
            f"clusters: [alpha]\npairs: {{pattern: all, directions: both}}\nrepetitions: 3\ntests: [{stream}]", "accept"
        )
        desk.hpcq("run", "campaign.yaml", expect=None, timeout_s=600)
        desk.hpcq("baseline", "set", "good", "latest", "--why", "first light")
        done = desk.hpcq("accept", "campaign.yaml", "--against", "good", "--all", "--json", expect=None, timeout_s=1300)
    [cluster] = json.loads(done.stdout)["clusters"]
    assert at_fault(cluster) == set()
    assert drained(cluster) == set()
    assert {one["verdict"] for one in cluster["nodes"]} <= {"pass", "inconclusive"}
    assert "one pair at a time, since these share the uplinks" in done.stderr
