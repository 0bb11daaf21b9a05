"""Cost of the driver by number of jobs: plan, submit, poll, fetch and load on a simulated Slurm of 5,000 nodes.

    python bench/scale.py [--quick] [--nodes 5000] [--jobs 1000 2500 5000 10000]

Each size runs in its own process, for its own CPU time and peak memory. The jobs are instant, so the cost is that of
hpcq and of the scheduler's commands. It needs no Slurm and no lab; the commands are those of tests/simulated_slurm.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import Claim, against, claim, finish, parser
from hpcq.runner import stages
from hpcq.runner.site.place import open_run
from tests.simulated_slurm.site import simulated_slurm

#: Seconds that ReFrame 4.11 needed for 1,000 instant tests on such a scheduler, measured on a similar machine.
REFRAME_1000_S = 181.0

CAMPAIGN = """
name: scale
clusters: [sim]
pairs: {{rounds: {rounds}}}
nodes: {{at_most: {nodes}}}
repetitions: 1
tests:
  - {{kernel: tcp_pingpong, parameters: {{message_bytes: 1, operation_count_max: 1, duration_s: 1, warmup_s: 0}}}}
budget: {{max_jobs: 1000}}
"""


def one_size(jobs: int, nodes: int, folder: Path) -> dict[str, float]:
    """Plan, drive and load one campaign of `jobs` jobs. Returns the cost of each."""
    rounds = max(1, round(2 * jobs / nodes))
    used = 2 * jobs // rounds
    campaign = folder / "scale.yaml"
    campaign.write_text(CAMPAIGN.format(rounds=rounds, nodes=used), encoding="utf-8")
    with simulated_slurm(folder / "slurm", nodes) as slurm:
        clusters = slurm.cluster()
        run = open_run(campaign, [clusters], folder / "results.db", folder / "runs")
        found: dict[str, float] = {"jobs": jobs}
        found |= _timed("plan", lambda: stages.plan(run, "sim"))
        found |= _timed("drive", lambda: stages.drive(run, "sim", print))
        found |= _timed("load", lambda: stages.load(run, folder / "results.db"))
        measured = stages.load(run, folder / "results.db")["clusters"][0]["measured_count"]
        assert measured == jobs, f"{measured} of {jobs} jobs measured"
        found["polls"] = sum(count for program, count in slurm.control()["calls"].items() if program in {"squeue", "sinfo"})
    found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def _timed(name: str, work: Callable[[], Any]) -> dict[str, float]:
    started, cpu_before, children_before = time.monotonic(), time.process_time(), _children_cpu_s()
    work()
    return {
        f"{name}_wall_s": time.monotonic() - started,
        f"{name}_cpu_s": time.process_time() - cpu_before,
        f"{name}_commands_cpu_s": _children_cpu_s() - children_before,
    }


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measured_apart(jobs: int, nodes: int) -> dict[str, float]:
    """Measure one size in its own process."""
    with tempfile.TemporaryDirectory(prefix="hpcq-scale-") as folder:
        command = [sys.executable, __file__, "--one", str(jobs), "--nodes", str(nodes), "--folder", folder]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def claims_of(sizes: list[dict[str, float]]) -> list[Claim]:
    """The table, and its goals."""
    claims = []
    for one in sizes:
        jobs = int(one["jobs"])
        wall_s = one["drive_wall_s"] + one["load_wall_s"]
        text = f"{jobs} instant jobs"
        if jobs == 1000:
            claims.append(
                against(
                    f"{text}, from first submission to rows", "wall time", "s", wall_s,
                    peer="ReFrame 4.11", peer_value=REFRAME_1000_S, goal="< 20",
                )
            )  # fmt: skip
        else:
            claims.append(claim(f"{text}, from first submission to rows", "wall time", "s", wall_s))
        claims += [
            claim(text, "plan, CPU", "s", one["plan_cpu_s"]),
            claim(text, "driver, CPU", "s", one["drive_cpu_s"]),
            claim(text, "driver, CPU a job", "ms", 1000 * one["drive_cpu_s"] / jobs),
            claim(text, "shell and scheduler commands, CPU a job", "ms", 1000 * one["drive_commands_cpu_s"] / jobs),
            claim(text, "load, CPU a job", "ms", 1000 * one["load_cpu_s"] / jobs),
            claim(text, "peak memory", "MiB", one["peak_mib"]),
            claim(text, "squeue and sinfo", "count", one["polls"]),
        ]
    first, last = sizes[0], sizes[-1]
    growth = last["jobs"] / first["jobs"]
    span = f"{int(first['jobs'])} to {int(last['jobs'])} jobs"
    for stage in ("drive", "load"):
        ratio = last[f"{stage}_cpu_s"] / first[f"{stage}_cpu_s"] / growth
        claims.append(claim(f"{stage}: CPU a job grows by, {span}", "ratio", "", ratio, "<= 1.25"))
    mib = (last["peak_mib"] - first["peak_mib"]) * 1024 / (last["jobs"] - first["jobs"])
    claims.append(claim(f"memory a job, {span}", "memory", "KiB", mib, "<= 20"))
    return claims


def main() -> int:
    """Measure and report."""
    options = parser(__doc__ or "", seed=1)
    options.add_argument("--nodes", type=int, default=5000)
    options.add_argument("--jobs", type=int, nargs="+", default=[1000, 2500, 5000, 10000])
    options.add_argument("--one", type=int, help="run one size here and print what it took as JSON")
    options.add_argument("--folder", type=Path)
    chosen = options.parse_args()
    if chosen.one:
        os.chdir(chosen.folder)
        print(json.dumps(one_size(chosen.one, chosen.nodes, chosen.folder)))
        return 0
    sizes = []
    for jobs in [100, 200] if chosen.quick else chosen.jobs:
        sizes.append(measured_apart(jobs, chosen.nodes))
        print(json.dumps(sizes[-1]), flush=True)
    return finish("scale", claims_of(sizes), quick=chosen.quick)


if __name__ == "__main__":
    sys.exit(main())
