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
    assert "error: --format: 'number': plug-in hpcq-example 1.0: is no function" in refused(
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
