"""Load of a campaign on the controller: commands and the records that it sends for them, on a simulated Slurm.

    python bench/controller.py [--quick] [--nodes 5000] [--jobs 1000] [--others 4000]
    python bench/controller.py --lab [--quick]      200 jobs on the lab's real Slurm: requests by its own count (sdiag)

The queue holds jobs of other people, as at a busy site: a command that loads the whole job table then makes the
controller send all of them. Jobs of the campaign run for some seconds, so most polls fall between two events. For the
figures of an earlier commit use --before FILE; this program prints such a file with --json.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import Claim, against, claim, finish, parser
from bench.scale import CAMPAIGN
from bench.support.labs import lab_of
from hpcq.runner import stages
from hpcq.runner.site.place import open_run
from tests.lab.driven_in_lab import Driven
from tests.simulated_slurm.site import simulated_slurm

#: How long a job of the campaign runs.
JOB_S = 15.0


def counted(jobs: int, nodes: int, others: int, folder: Path) -> dict[str, float]:
    """Drive one campaign. Returns its load on the controller, and the time it took."""
    campaign = folder / "scale.yaml"
    campaign.write_text(CAMPAIGN.format(rounds=max(1, round(2 * jobs / nodes)), nodes=min(nodes, 2 * jobs)), encoding="utf-8")
    with simulated_slurm(folder / "slurm", nodes + 2) as slurm:
        slurm.control(set={"run_s": JOB_S})
        for _ in range(others):
            slurm.control(other={"nodes": [f"n{nodes + 1:04d}", f"n{nodes + 2:04d}"], "run_s": 1e6})
        run = open_run(campaign, [slurm.cluster()], folder / "results.db", folder / "runs")
        stages.plan(run, "sim")
        before, started = slurm.control(), time.monotonic()
        stages.drive(run, "sim", lambda _: None)
        after, took_s = slurm.control(), time.monotonic() - started
    found: dict[str, float] = {"jobs": jobs, "wall_s": took_s}
    for what in ("calls", "rows"):
        for program, count in after[what].items():
            found[f"{program}_{what}"] = count - before[what].get(program, 0)
    return found


def counted_on_lab(jobs: int, folder: Path) -> dict[str, float]:
    """Drive one campaign of pairs on a lab of its own. Returns what its controller counted of this user, and the time."""
    with lab_of(4, None) as lab:
        driven = Driven(folder, lab, "alpha", f"pairs: {{rounds: {jobs // 2}}}", duration_s=0.01)
        lab.exec("alpha", "sdiag", "--reset")
        started = time.monotonic()
        driven.finish(driven.start(), within_s=60 + 10 * jobs)
        took_s, told = time.monotonic() - started, lab.exec("alpha", "sdiag")
    [count] = re.findall(r"^\s*labuser\s*\(\s*\d+\) count:(\d+)", told, flags=re.MULTILINE)
    return {"jobs": len(driven.plan.pairs), "wall_s": took_s, "rpcs": float(count)}


def shares(found: dict[str, float]) -> list[Claim]:
    """Requests of the controller for each job, and in each minute; each command is one, or in a few cases two."""
    text = f"{int(found['jobs'])} jobs"
    asked = found.get("rpcs") or sum(count for name, count in found.items() if name.endswith("_calls"))
    what = "requests, real Slurm" if "rpcs" in found else "commands"
    per_minute = asked / (found["wall_s"] / 60)
    return [
        claim(text, f"{what} a job", "count", asked / found["jobs"]),
        claim(text, f"{what} a minute", "count", per_minute),
    ]


def claims_of(found: dict[str, float], before: dict[str, float]) -> list[Claim]:
    """Every count, beside that of the earlier commit if given."""
    claims = []
    for name in sorted(found):
        if name == "jobs":
            continue
        text, metric = f"{int(found['jobs'])} jobs", name.replace("_", ", ")
        unit = "s" if name == "wall_s" else "count"
        if before.get(name) and name != "wall_s":  # times of two days are not compared
            claims.append(against(text, metric, unit, found[name], peer="the first driver", peer_value=before[name]))
        else:
            claims.append(claim(text, metric, unit, found[name]))
    claims += shares(found)
    calls, rows = found["squeue_calls"], found["squeue_rows"]
    text, metric = f"{int(found['jobs'])} jobs", "squeue, rows per call"
    if before.get("squeue_calls"):
        earlier = before["squeue_rows"] / before["squeue_calls"]
        claims.append(against(text, metric, "count", rows / calls, peer="the first driver", peer_value=earlier))
    else:
        claims.append(claim(text, metric, "count", rows / calls))
    return claims


def main() -> int:
    """Measure and report."""
    options = parser(__doc__ or "", seed=1)
    options.add_argument("--nodes", type=int, default=5000)
    options.add_argument("--jobs", type=int, default=1000)
    options.add_argument("--others", type=int, default=4000)
    options.add_argument("--before", type=Path, help="figures of another commit, as --json prints them")
    options.add_argument("--json", action="store_true", help="print the figures and write nothing")
    options.add_argument(
        "--lab", action="store_true", help="on the lab's real Slurm, as root; print the figures, write nothing"
    )
    chosen = options.parse_args()
    if chosen.lab:
        with tempfile.TemporaryDirectory(prefix="hpcq-controller-") as folder:
            found = counted_on_lab(20 if chosen.quick else 200, Path(folder))
        print(json.dumps(found | {one.metric: one.ours for one in shares(found)}))
        return 0
    jobs, nodes, others = (50, 200, 100) if chosen.quick else (chosen.jobs, chosen.nodes, chosen.others)
    with tempfile.TemporaryDirectory(prefix="hpcq-controller-") as folder:
        found = counted(jobs, nodes, others, Path(folder))
    if chosen.json:
        print(json.dumps(found))
        return 0
    before: dict[str, Any] = json.loads(chosen.before.read_text(encoding="utf-8")) if chosen.before else {}
    return finish("controller", claims_of(found, before), quick=chosen.quick)


if __name__ == "__main__":
    sys.exit(main())
