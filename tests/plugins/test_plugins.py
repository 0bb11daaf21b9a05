"""Packages that add to hpcq without a change of it, and such that do not work: the example beside this file."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import REPOSITORY
from tests.local.local_desk import CLUSTER, INSTANT, LocalDesk

SITE = REPOSITORY / "tests" / "plugins" / "site"


@dataclass(frozen=True, slots=True)
class PluggedDesk(LocalDesk):
    """A desk of somebody who has installed the example package."""

    def environment(self) -> dict[str, str]:
        return {**LocalDesk.environment(self), "PYTHONPATH": str(SITE)}


@pytest.fixture
def desk(tmp_path: Path) -> PluggedDesk:
    made = PluggedDesk(LocalDesk.at(tmp_path).folder)
    made.cluster("tiny", CLUSTER.replace("scheduler: local", "scheduler: example"))
    return made


def refused(desk: LocalDesk, *words: str) -> str:
    said = desk.hpcq(*words, expect=None)
    assert said.returncode in {1, 2}, said
    assert "Traceback" not in said.stderr, said.stderr
    return said.stderr


@pytest.mark.long
@pytest.mark.promise("Gate kinds, schedulers and export formats of other packages work like hpcq's own.")
@pytest.mark.promise("A plug-in that fails at work is named in the result, not a traceback.")
def test_a_package_adds_a_scheduler_a_gate_kind_and_a_format(desk: PluggedDesk) -> None:
    gate = "{metric: round_trip_p50_ns, against: 'promised:LINE', maximum: 100%}"
    name = desk.campaign(INSTANT, more=f"gates:\n  - {gate.replace('LINE', 'latency')}\n  - {gate.replace('LINE', 'nonsense')}")
    said = desk.hpcq("run", name, expect=4)
    assert "# the example queue" in next(desk.run_folder.glob("tiny/jobs/*/*/job.sh")).read_text()
    gates = {one["verdict"]: str(one) for one in desk.json("results", expect=4)["gates"]}
    assert sorted(gates) == ["inconclusive", "pass"]
    assert "the plug-in of gate kind promised failed: KeyError: 'nonsense'" in gates["inconclusive"], said.stdout
    assert desk.hpcq("export", "--format", "lines", expect=4).stdout == f"{desk.run_folder.name} tiny 1\n"
    told = refused(desk, "export", "--format", "fails")
    assert told.startswith("error: --format fails: its plug-in failed: KeyError: "), told


def told_of(desk: LocalDesk) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = json.loads(desk.hpcq("doctor", "--json", expect=None).stdout)
    return told


@pytest.mark.promise("A plug-in that cannot be used is named with its package and the reason; everything else works.")
def test_a_broken_plug_in_is_named(desk: PluggedDesk) -> None:
    reason = "hpcq-example 1.0: hpcq_example.broken:{}: cannot be loaded: RuntimeError: no licence today"
    desk.cluster("bad", CLUSTER.replace("scheduler: local", "scheduler: unlicensed"))
    assert f"bad.yaml:2: scheduler: 'unlicensed': plug-in {reason.format('SCHEDULER')}" in refused(
        desk, "cluster", "check", "bad"
    )
    gate = "gates:\n  - {metric: round_trip_p50_ns, against: unlicensed, maximum: 100%}"
    assert f"plug-in {reason.format('KIND')}" in refused(desk, "check", desk.campaign(INSTANT, more=gate))
    assert "error: --format: 'number': plug-in hpcq-example 1.0: is no function: must be one" in refused(
        desk, "export", "--format", "number"
    )
    told: dict[str, Any] = {one["item"]: one for one in told_of(desk) if one["area"] == "installation"}
    assert told["gate kind promised"]["state"] == "ok"
    assert told["scheduler example"]["state"] == "ok"
    assert told["gate kind peers"]["found"] == "hpcq-example 1.0: hpcq has one of this name"
    assert told["scheduler torn"]["found"] == "hpcq-example 1.0: its kind is 'example': must be the name of its entry point"
    assert (told["scheduler unlicensed"]["state"], told["scheduler unlicensed"]["found"]) == ("bad", reason.format("SCHEDULER"))
    desk.cluster("tiny")
    desk.hpcq("check", desk.campaign(INSTANT))


def test_without_plug_ins_none_is_told(tmp_path: Path) -> None:
    argv = [sys.executable, "-P", "-c", "import hpcq.plugins as p; print([p.plugins(one) for one in p.GROUPS])"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "[(), (), ()]\n"


BAD = """
from dataclasses import replace
from hpcq.gate_kinds import GateKind
from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.local import DESCRIPTION, Local

print("a plug-in that prints where data goes")

class Kind(GateKind):
    name, meaning, missing, facts = "facts", "m", "m", 3
    def reference(self, against, series, lookup): ...

class Property(Kind):
    @property
    def name(self): raise ValueError("no name today")

class Half(Scheduler): ...

class Raises(Local):
    def nodes_command(self): raise KeyError("nodes")

FACTS, PROPERTY, OWN = Kind(), Property(), type("Own", (Kind,), {"name": "peers", "facts": ()})()
TWICE = type("Twice", (Kind,), {"name": "twice", "facts": ()})()
LOCAL = (DESCRIPTION, Raises)
PREFIXES = (replace(DESCRIPTION, kind="prefixes", scrubbed_prefixes=None), Local)
HALF = (replace(DESCRIPTION, kind="half"), Half)
HEAD = (replace(DESCRIPTION, kind="head", head_template="nosuch.j2"), Local)
RAISES = (replace(DESCRIPTION, kind="raises"), Raises)
"""
POINTS = """[hpcq.gate_kinds]
facts = bad:FACTS
property = bad:PROPERTY
peers = bad:OWN
twice = bad:TWICE
slow = slow:KIND
absent = bad:NOSUCH

[hpcq.schedulers]
local = bad:LOCAL
prefixes = bad:PREFIXES
half = bad:HALF
head = bad:HEAD
raises = bad:RAISES
"""


@dataclass(frozen=True, slots=True)
class BadDesk(LocalDesk):
    """A desk of somebody whose site has installed plug-ins that are wrong in many ways."""

    def environment(self) -> dict[str, str]:
        return {**LocalDesk.environment(self), "PYTHONPATH": str(self.folder / "site")}


@pytest.fixture
def bad(tmp_path: Path) -> BadDesk:
    made = BadDesk(LocalDesk.at(tmp_path).folder)
    site = made.folder / "site"
    for package, points in {"bad": POINTS, "other": "[hpcq.gate_kinds]\ntwice = bad:TWICE\n"}.items():
        (site / f"{package}-1.0.dist-info").mkdir(parents=True)
        (site / f"{package}-1.0.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (site / f"{package}-1.0.dist-info" / "entry_points.txt").write_text(points)
    (site / "bad.py").write_text(BAD)
    (site / "slow.py").write_text(
        "import time\nfor second in range(300):\n    try: time.sleep(1)\n    except Exception: pass\n"
    )
    return made


def gate(kind: str) -> str:
    return f"gates:\n  - {{metric: round_trip_p50_ns, against: {kind}, maximum: 100%}}"


@pytest.mark.promise("A plug-in that cannot be used is named with its package and the reason; everything else works.")
@pytest.mark.promise("A word of hpcq's own stays hpcq's, whatever plug-ins are installed.")
@pytest.mark.promise("What a plug-in prints while it is loaded goes to standard error: data stays data.")
def test_plug_ins_that_are_wrong_harm_only_themselves(bad: BadDesk) -> None:
    bad.cluster("tiny", CLUSTER)
    said = bad.hpcq("plan", "--json", bad.campaign(INSTANT, more=gate("peers")))
    json.loads(said.stdout)
    assert "a plug-in that prints where data goes" in said.stderr
    told = {
        one["item"]: one["found"]
        for one in json.loads(bad.hpcq("doctor", "--json", expect=None).stdout)
        if one["area"] == "installation" and one["state"] == "bad"
    }
    assert told.pop("scheduler half").startswith("bad 1.0: its Half has no cancel_command, find_command, ")
    assert told == {
        "gate kind absent": "bad 1.0: bad:NOSUCH: cannot be loaded: AttributeError: module 'bad' has no attribute 'NOSUCH'",
        "gate kind facts": "bad 1.0: its facts is an int: must be tuple[str, ...]",
        "gate kind peers": "bad 1.0: hpcq has one of this name",
        "gate kind property": "bad 1.0: cannot be looked at: ValueError: no name today",
        "gate kind slow": "bad 1.0: slow:KIND: cannot be loaded: it takes more than 5 s: must be less",
        "gate kind twice": told["gate kind twice"],
        "scheduler head": "bad 1.0: its head_template 'nosuch.j2' is not there: must be a file beside its module",
        "scheduler local": "bad 1.0: hpcq has one of this name",
        "scheduler prefixes": "bad 1.0: its scrubbed_prefixes is a NoneType: must be tuple[str, ...]",
    }
    assert "has one of this name, too: must be one" in told["gate kind twice"]


@pytest.mark.promise("A plug-in that cannot be used is named with its package and the reason; everything else works.")
def test_a_wrong_plug_in_is_refused_where_its_word_is_used(bad: BadDesk) -> None:
    (bad.folder / "site" / "slow.py").write_text("KIND = None\n")
    bad.cluster("tiny", CLUSTER)
    said = bad.hpcq("check", bad.campaign(INSTANT, more=gate("twice")), expect=2).stderr
    assert "against: 'twice': plug-in " in said
    assert "bad 1.0: other 1.0 has one of this name, too" in said
    bad.cluster("tiny", CLUSTER.replace("scheduler: local", "scheduler: prefixes"))
    said = bad.hpcq("plan", bad.campaign(INSTANT), expect=2).stderr
    assert "tiny.yaml:2: scheduler: 'prefixes': plug-in bad 1.0: its scrubbed_prefixes is a NoneType" in said
    bad.cluster("tiny", CLUSTER.replace("scheduler: local", "scheduler: raises"))
    said = bad.hpcq("plan", bad.campaign(INSTANT), expect=1).stderr
    assert "error: scheduler raises: its plug-in failed in look: KeyError: 'nodes'" in said
    assert "defect of hpcq" not in said
