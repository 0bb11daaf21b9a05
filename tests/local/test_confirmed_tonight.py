"""A node that slows down between two nights: suspected, measured again in the same run and told, also after a kill."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.local.local_desk import LocalDesk

pytestmark = [pytest.mark.long, pytest.mark.quiet]  # what this machine does beside them makes nodes slow, too

NODES = [f"n{number}" for number in range(1, 9)]
#: Both ends tell their node; a pair has the rate of its slower end. `slow_until`: so many uses of it are slow, later ones not.
PEER = """
import json, os, random, socket, sys
here = os.environ["HPCQ_NODE"]
if sys.argv[1] == "server":
    with socket.create_server((sys.argv[2], int(sys.argv[3]))) as listening:
        print("listening", flush=True)
        while True:
            connection, _ = listening.accept()
            connection.sendall(here.encode())
            connection.close()
with socket.create_connection((sys.argv[2], int(sys.argv[3]))) as connection:
    there = connection.makefile().read()
slow = json.load(open(sys.argv[4]))
factor = 1.0
if slow["node"] in (here, there):
    with open(sys.argv[4] + ".uses", "a") as uses:
        uses.write("x")
    factor = 0.4 if os.stat(sys.argv[4] + ".uses").st_size <= slow["slow_until"] else 1.0
print("rate =", factor * random.uniform(990, 1010), "Mbit/s")
"""
DESCRIPTION = """
name: made_up
summary: A rate that a test makes up.
shape: client and server
program: PYTHON
server: {command: "{{ program }} PEER server {{ address }} {{ port }}", ready: {words: listening, within_s: 7}}
command: "{{ program }} PEER client {{ address }} {{ port }} SLOW"
limit_s: 20
metrics:
  rate_bps: {better: higher, regex: 'rate = (\\S+) Mbit/s', times: 1.0e6, help: the rate}
"""


@pytest.fixture
def desk(tmp_path: Path) -> LocalDesk:
    """Eight nodes with five nights of history in which all were fine."""
    desk = LocalDesk.at(tmp_path)
    for name in ("kernels", "peer"):
        (desk.folder / name).mkdir()
    peer, slow = desk.folder / "peer" / "peer.py", desk.folder / "peer" / "slow.json"
    peer.write_text(PEER)
    described = DESCRIPTION.replace("PYTHON", sys.executable).replace("PEER", str(peer)).replace("SLOW", str(slow))
    (desk.folder / "kernels" / "made_up.yaml").write_text(described)
    desk.cluster("tiny", f"name: {{name}}\nscheduler: local\nnodes: [{', '.join(NODES)}]\ncompiler: {{{{cflags: -O0}}}}\n")
    pairs = "pairs: {pattern: rounds, rounds: 3}\nrepetitions: 1\nseed: 7"
    (desk.folder / "try.yaml").write_text(f"name: try\nclusters: [tiny]\n{pairs}\ntests: [{{kernel: made_up}}]\n")
    slows(desk, "nobody", 0)
    desk.hpcq("run", "try.yaml")
    first = desk.run_folder
    for night in range(1, 5):
        earlier(desk, first, f"2026-01-0{night}T02:00:00Z")
    return desk


def slows(desk: LocalDesk, node: str, until: int) -> None:
    """From now on a node is slow, in its first so many measurements."""
    (desk.folder / "peer" / "slow.json").write_text(json.dumps({"node": node, "slow_until": until}))
    (desk.folder / "peer" / "slow.json.uses").unlink(missing_ok=True)


def earlier(desk: LocalDesk, run: Path, utc: str) -> None:
    """The same run once more, as if it had been made at another time."""
    name = f"try-{re.sub('[-:]', '', utc)}-00ff"
    made = run.with_name(name)
    shutil.copytree(run, made)
    for path in [made / "run.json", *made.glob("tiny/*.json*"), *made.glob("tiny/jobs/*/*/job.json")]:
        path.write_text(path.read_text().replace(run.name, name))
    described = json.loads((made / "run.json").read_text())
    (made / "run.json").write_text(json.dumps({**described, "created_utc": utc}))
    desk.hpcq("db", "load", name)


def confirmations(desk: LocalDesk) -> list[dict[str, Any]]:
    return [one for one in desk.json("results", desk.run_folder.name)["results"] if one["purpose"] == "confirmation"]


@pytest.mark.promise("A node that slowed down is suspected, measured again and told in one run, also if its driver is killed.")
def test_a_slow_node_is_told_the_same_night_though_the_driver_is_killed_in_between(desk: LocalDesk) -> None:
    slows(desk, "n5", 10**6)
    with desk.running(["-m", "hpcq", "run", "--confirm", "try.yaml"]):
        desk.wait_for(lambda: any(one["event"] == "attempt" and one["job"] > "j00012" for one in desk.events()))
    name = desk.run_folder.name
    assert name in desk.hpcq("status", expect=0).stderr, "it has not ended"
    # a submit command that died with the driver is waited for: five minutes
    said = desk.hpcq("resume", expect=3, timeout_s=600).stdout
    assert re.search(r"^tiny/n5: suspected at \d\d:\d\d, confirmed at \d\d:\d\d by 6 of 6 jobs$", said, re.MULTILINE), said
    assert re.search(r"^told: node tiny/n5: .*confirmed at \d\d:\d\d by 6 of 6 jobs", said, re.MULTILINE), said
    again = confirmations(desk)
    ends = [{one["client"], one["server"]} for one in again]
    assert [("n5" in both, one["outcome"]) for both, one in zip(ends, again, strict=True)] == [(True, "measured")] * 6
    assert len(set().union(*ends) - {"n5"}) >= 2, "no partner alone decides"
    attempts = Counter(one["job"] for one in desk.events() if one["event"] == "attempt")
    assert attempts.keys() == {f"j{number:05d}" for number in range(1, 19)}, "nothing is lost"
    assert {attempts[f"j{number:05d}"] for number in range(1, 13)} == {1}, "what the plan wanted is not measured again"
    assert "confirmed at" in (desk.run_folder / "report.html").read_text()
    assert "by 6 of 6 jobs" in desk.hpcq("regressions", "--since", name, expect=3).stdout
    events = len(desk.events())
    desk.hpcq("resume", name, expect=3)
    assert len(desk.events()) == events, "a run that is done is left alone"


@pytest.mark.promise("A node that is fine again in its second measurement is not told.")
def test_a_node_that_is_fine_again_is_not_told(desk: LocalDesk) -> None:
    slows(desk, "n5", 3)
    ran = desk.hpcq("run", "--confirm", "try.yaml", "--json", expect=None)
    done = json.loads(ran.stdout)
    # One machine plays all nodes: a series whose jobs all ran beside others is measured again, and nobody is told.
    assert (ran.returncode, done["verdict"]) in {(0, "pass"), (4, "inconclusive")}, ran.stdout
    [look] = done["second_looks"]
    assert (*look["names"], look["state"], look["slow_count"], look["job_count"]) == ("n5", "fine", 0, 6)
    assert re.fullmatch(r"suspected at \d\d:\d\d, not confirmed at \d\d:\d\d: slow in 0 of 6 jobs", look["words"])
    assert "not confirmed" in (desk.run_folder / "report.html").read_text()
