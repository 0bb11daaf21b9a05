"""What a job's script would leave: started.json, facts, one valid line a step in the kernel's own form, exit.json last."""

from __future__ import annotations

import datetime as dt
import functools
import json
import os
from pathlib import Path
from typing import Any

from hpcq import assets


def is_job_of_hpcq(folder: Path) -> bool:
    """Whether a script's folder holds what the driver writes beside it."""
    return (folder / "job.json").is_file()


def leave_start(folder: Path, number: int) -> None:
    """Claim the attempt and say so."""
    (folder / "claim").mkdir(exist_ok=True)
    _put(
        folder / "started.json",
        {"format": 1, "tag": "", "scheduler_job_id": str(number), "started_utc": _now(), "host": "n0001", "node": "n0001"},
    )


def leave_results(folder: Path, number: int) -> None:
    """One line a step, and the end."""
    job = json.loads((folder / "job.json").read_text())
    now = _now()
    for node in (job["client"], job["server"]):
        _put(folder / f"facts-{node}.json", {"kernel": {"release": "6.1.0"}, "boot": {"id": f"boot-of-{node}"}})
    for step in job["steps"]:
        _put(folder / f"{step['name']}.json", _line(job, step, now))
        _put(folder / f"{step['name']}.status", {"rc": 0, "started_utc": now, "ended_utc": now})
    end = {"format": 1, "tag": job["tag"], "scheduler_job_id": str(number), "reason": "done", "rc": 0, "ended_utc": now}
    aside = folder / "exit.json.part"
    _put(aside, end)
    aside.rename(folder / "exit.json")


def _line(job: dict[str, Any], step: dict[str, Any], now: str) -> dict[str, Any]:
    names = _metrics()[step["kernel"]]
    ends = {"client": job["client"], "server": job["server"]}
    return {
        "format": 1,
        "kernel": step["kernel"],
        "program": step["program"],
        "version": "1.0.0",
        "build_id": "simulated",
        "options": step["parameters"],
        "granted": {},
        "valid": True,
        "invalid_reason": None,
        "exit_code": 0,
        "error": None,
        "started_utc": now,
        "duration_ns": 1_000_000,
        "metrics": dict.fromkeys(names, 70_000.0),
        "warnings": [],
        "samples": None,
        "histogram": None,
        "evidence": {end: _evidence(node, now) for end, node in ends.items()},
    }


def _evidence(node: str, now: str) -> dict[str, Any]:
    return {
        "node": node,
        "address": "10.0.0.1",
        "interface": "eth0",
        "pid": 1,
        "cpu_index": 0,
        "boot_id": f"boot-of-{node}",
        "before_utc": now,
        "after_utc": now,
        "interval_ns": 1_000_000,
        "snapshot_cost_ns": [300_000, 300_000],
        "counters": {"net_dev.eth0.rx_bytes": 50_000_000, "net_dev.eth0.tx_bytes": 50_000_000, "stat.cpu.user_ticks": 1},
        "gauges": {"loadavg.all.one": 0.1},
        "unavailable": {},
    }


@functools.cache
def _metrics() -> dict[str, list[str]]:
    found = {}
    for path in assets.kernel_descriptions().glob("*.json"):
        for kernel in json.loads(path.read_text("utf-8"))["kernels"]:
            found[kernel["name"]] = [metric["name"] for metric in kernel["metrics"]]
    return found


def _put(path: Path, content: dict[str, Any]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(descriptor, json.dumps(content).encode() + b"\n")
    os.close(descriptor)


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
