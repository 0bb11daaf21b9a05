"""The same faults on six nodes of Slurm and six of a real PBS: `hpcq accept` says the same sentence in every row.

Brings up a lab of its own with slow links: the network and not the cores is to be measured.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.campaigns_in_lab import Desk
from tests.lab.lab_fixture import RunningLab, lab_command
from tests.pbs_live.live import Live, let_root_in
from tests.pbs_live.test_maintenance import REPAIRED, state

SHAPE = ("--beta", "pbs", "--nodes", "6", "--leaves", "3", "--node-rate", "50mbit", "--uplink-rate", "100mbit")
CAMPAIGN = """clusters: [alpha, beta]
pairs: {rounds: 3}
allocation: whole
repetitions: 5
tests: [{kernel: tcp_stream, parameters: {duration_s: 100ms, warmup_s: 50ms, send_buffer_bytes: 64KiB}}]"""
REASON = "IB link down: port=1 rate=25G [ticket=4711]"
SOON = 'soon=$(date -d "@$(($(date +%s) + 3))" +%Y%m%d%H%M.%S);'
SLOW = "tc qdisc replace dev eth0 root tbf rate 15mbit burst 16000 latency 50ms"


class Both:
    """A person's folder with both clusters, and root's orders to each."""

    def __init__(self, lab: RunningLab, folder: Path) -> None:
        self.lab, self.pbs = lab, Live(lab, "beta", "labuser", history=True)
        self.desk: Desk = self.pbs.desk(folder)
        self.desk.campaign(CAMPAIGN, "both")

    def first_light(self) -> None:
        """A baseline that holds: other work on this machine may disturb a whole run."""
        for _ in range(4):
            self.desk.hpcq("run", "campaign.yaml", timeout_s=600)
            told = "SELECT cluster, count(*) AS n FROM v_results WHERE run = ? AND NOT disturbed GROUP BY 1"
            newest = self.desk.rows("SELECT name FROM run ORDER BY created_utc")[-1]["name"]
            if len([one for one in self.desk.rows(told.replace("?", f"'{newest}'")) if one["n"] > 30]) == 2:
                break
        self.desk.hpcq("baseline", "set", "good", newest, "--why", "first light")

    def order(self, slurm: str, pbs: str) -> None:
        """One order in the words of each."""
        self.lab.exec("alpha", "sh", "-c", slurm)
        self.pbs.root(pbs)

    def on(self, node: str, command: str) -> None:
        for cluster in ("alpha", "beta"):
            self.lab.exec(f"{cluster}/{node}", "sh", "-c", command)

    def until(self, seen: Callable[[str, str], bool], node: str, what: str) -> None:
        """Until both schedulers show that of a node: (Slurm's word, PBS's word)."""
        self.pbs.until(
            lambda: seen(
                self.lab.exec("alpha", "sinfo", "-h", "-p", "main", "-n", f"alpha-{node}", "-o", "%T").strip(),
                state(self.pbs, node)[0],
            ),
            what,
            within_s=180,
        )

    def accept(self, *words: str, node: str = "") -> dict[str, dict[str, Any]]:
        """One acceptance of each, by cluster. node: the only one that is asked for."""
        found = {}
        for cluster in ("alpha", "beta"):
            (self.desk.folder / f"{cluster}.yaml").write_text(f"name: both\n{CAMPAIGN.replace('alpha, beta', cluster)}\n")
            asked = ("--node", f"{cluster}-{node}") if node else ()
            given = ("accept", f"{cluster}.yaml", "--against", "good", *asked, *words, "--json")
            done = self.desk.hpcq(*given, expect=None, timeout_s=840)
            assert done.stdout.startswith("{"), done.stderr
            [found[cluster]] = json.loads(done.stdout)["clusters"]
        return found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    given = os.environ.get("HPCQ_TEST_LAB_STORY")
    name = given or f"story-{os.getpid()}"
    try:
        if not given:
            lab_command("up", "--name", name, *SHAPE, timeout_s=300)
        lab = RunningLab(name)
        if "sshd-root.pid" not in lab.exec("beta", "ls", "/run"):
            let_root_in(lab, "beta")
        made = Both(lab, tmp_path_factory.mktemp("story"))
        made.pbs.switch_history()
        lab.exec("alpha", "sacctmgr", "-i", "modify", "user", "labuser", "set", "adminlevel=admin")
        made.pbs.root("qmgr -c 'create resource switch type=string_array,flag=h' || true")
        for number in range(1, 7):
            made.pbs.qmgr(f"set node beta-n0{number} resources_available.switch = leaf{(number + 1) // 2}")
        made.pbs.qmgr("set server node_group_key = switch")
        for kind in ("operators", "managers"):
            made.pbs.root(f"qmgr -c 'set server {kind} += labuser@*'", check=False)  # a lab that is given may have it
        made.first_light()
        made.accept("--all")
        yield made
    finally:
        if not given:
            lab_command("down", "--name", name)


def sentence(text: str) -> str:
    """A row's words without what is measured: names of the cluster, numbers and moments."""
    text = re.sub(r"\b(alpha|beta)-", "", text)
    text = re.sub(r"n0\d(, n0\d)+( and n0\d)?|n0\d and n0\d", "NODES", text)
    return re.sub(r"(?<![n\d])\d[\d.:-]*", "#", text)


def rows(found: dict[str, dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
    """What each cluster says under these keys, by node."""
    return [
        {key: {sentence(name): sentence(words) for name, words in found[cluster][key].items()} for key in keys}
        for cluster in ("alpha", "beta")
    ]


def verdicts(found: dict[str, dict[str, Any]], kind: str = "nodes") -> list[dict[str, tuple[str, str]]]:
    return [
        {sentence(one["name"]): (one["verdict"], sentence(one["reason"])) for one in found[cluster][kind]}
        for cluster in ("alpha", "beta")
    ]


def orders(found: dict[str, dict[str, Any]]) -> list[list[tuple[str, str, bool]]]:
    """What is to be done, why, and whether --apply does it."""
    return [
        [(one["order"], sentence(one["why"]), one["by_apply"]) for one in found[cluster]["commands"]]
        for cluster in ("alpha", "beta")
    ]


@pytest.mark.quiet
@pytest.mark.promise("Slurm and PBS: `hpcq accept` says the same sentence for the same fault.")
def test_who_needs_a_test_and_who_cannot_have_one(both: Both) -> None:
    """A reboot, a drain by somebody else, a reservation that does not let us in."""
    for cluster in ("alpha", "beta"):
        both.lab.command("kill-node", f"{cluster}/n01")
    both.until(lambda one, other: "down" in one and "down" in other, "n01", "n01 is down")
    down = rows(both.accept("--plan"), "reasons", "blocked")
    for cluster in ("alpha", "beta"):
        both.lab.command("start-node", f"{cluster}/n01")
    both.order(f"scontrol update nodename=alpha-n02 state=drain reason='{REASON}'", f"pbsnodes -o -C '{REASON}' beta-n02")
    both.order(
        "scontrol create reservation reservationname=swap starttime=now duration=60 user=root flags=maint,ignore_jobs"
        " nodes=alpha-n03",
        f"{SOON} pbs_rsub -N swap -R $soon -D 3600 --hosts beta-n03",
    )
    both.until(lambda one, other: one == "idle" and other == "free", "n01", "n01 is back")
    both.until(lambda one, other: one.startswith("maint") and other == "resv-exclusive", "n03", "n03 is reserved")
    try:
        there = rows(both.accept("--plan"), "reasons", "blocked")
        asked = rows(both.accept("--all", "--plan"), "blocked")
    finally:
        both.order("scontrol delete reservationname=swap", "pbs_rdel $(pbs_rstat -f | sed -n 's/^Resv ID: //p')")
        both.order("scontrol update nodename=alpha-n02 state=resume", "pbsnodes -r -C '' beta-n02")
    assert down[0] == down[1]
    assert there[0] == there[1]
    assert there[0]["reasons"]["n01"] == "came up"
    assert asked[0] == asked[1]
    assert sentence(REASON) in asked[0]["blocked"]["n02"]


@pytest.mark.quiet
def test_a_slow_node_is_drained_repaired_and_given_back(both: Both) -> None:
    both.until(lambda one, other: one == "idle" and other == "free", "n03", "n03 is free")
    both.on("n05", SLOW)
    slow = both.accept("--all", "--apply")
    both.on("n05", REPAIRED)
    waiting = both.accept("--apply", node="n05")
    for cluster in ("alpha", "beta"):
        [release] = [one["command"] for one in waiting[cluster]["commands"]]
        both.order(*((release, "true") if cluster == "alpha" else ("true", release)))
    both.pbs.until(lambda: "RESV_RUNNING" in both.pbs.root("pbs_rstat -f"), "a reservation that runs")
    both.until(lambda one, _: one.startswith("maint"), "n05", "n05 is reserved")
    repaired = both.accept("--apply", node="n05")
    assert verdicts(slow)[0] == verdicts(slow)[1]
    assert orders(slow)[0] == orders(slow)[1]
    assert verdicts(waiting)[0] == verdicts(waiting)[1]
    assert orders(waiting)[0] == orders(waiting)[1]
    assert verdicts(repaired)[0] == verdicts(repaired)[1]
    both.until(lambda one, other: one == "idle" and other == "free", "n05", "n05 is back with users")


@pytest.mark.quiet
def test_a_slow_leaf(both: Both) -> None:
    for cluster in ("alpha", "beta"):
        both.lab.command("slow", f"{cluster}/leaf2", "--rate", "20mbit")
    try:
        found = both.accept("--all")
    finally:
        for cluster in ("alpha", "beta"):
            both.lab.command("mend", cluster)
    groups = verdicts(found, "groups")
    assert groups[0] == groups[1]
    assert list(groups[0]) == ["leaf#"]
    assert verdicts(found)[0] == verdicts(found)[1]
