"""How much longer a user waits because of a campaign that yields, on a real Slurm of 16 nodes.

    python bench/yield.py [--quick] [--lab NAME] [--seed 1] [--span 120]

A user's jobs arrive all the time. First the user is alone, twice, which shows how much waits vary by themselves. Then
the same jobs arrive while a campaign of pair jobs runs with `yield: true`, and while one of tournaments does. Waits are
from Slurm's accounting (whole seconds). The budget is compared with squeue's output, every half second.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import Claim, against, claim, finish, parser
from bench.support.labs import lab_of
from tests.lab.campaigns_in_lab import Desk
from tests.lab.lab_fixture import RunningLab
from tests.lab.users_in_lab import Sampled, UserJob, Waited, arrivals, sampled, users_waits

#: How much of the nodes the user alone occupies: rarely a queue, and often one.
LOAD_RATIOS = (0.25, 0.5)
JOBS_AT_MOST = 6
NODES_AT_MOST = 12
TOLD_ABOVE_S = 5
#: More than the span can hold, so that the campaign never runs out of jobs.
CAMPAIGN = """clusters: [alpha]
pairs: all
repetitions: 4
allocation: {allocation}
budget: {{yield: true, max_jobs: {jobs}, max_nodes: {nodes}}}
tests:
  - {{kernel: tcp_pingpong, parameters: {{duration_s: 1, warmup_s: 0}}}}
  - {{kernel: udp_pingpong, parameters: {{duration_s: 1, warmup_s: 0}}}}
"""


@dataclass(frozen=True, slots=True)
class Beside:
    """What a campaign did beside the user: waits of the user's jobs, squeue's output, results measured."""

    waits: list[Waited]
    seen: Sampled
    measured_count: int


def beside(lab: RunningLab, jobs: Sequence[UserJob], allocation: str, folder: Path) -> Beside:
    """The same arrivals while a campaign runs."""
    folder.mkdir()
    desk = Desk(folder, lab)
    desk.campaign(CAMPAIGN.format(allocation=allocation, jobs=JOBS_AT_MOST, nodes=NODES_AT_MOST), allocation)
    with desk.running("run", "campaign.yaml") as driver, sampled(lab) as seen:
        desk.wait_for(lambda events: any(event.get("state") == "running" for event in events))
        waits = users_waits(lab, jobs)
        assert driver.poll() is None, f"the campaign ended before the user: {desk.log()}"
        status = json.loads(desk.hpcq("status", "--json", expect=None).stdout)
        desk.hpcq("cancel")
    counts: dict[str, Any] = status["clusters"][0]["counts"]
    return Beside(waits, seen, int(counts["measured_result_count"]))


def longer_s(waits: Sequence[Waited], alone: Sequence[Waited]) -> list[float]:
    """How much longer each job waited than the same job without a campaign."""
    return [one.wait_s - other.wait_s for one, other in zip(waits, alone, strict=True)]


def claims_of(load_ratio: float, alone: Sequence[Waited], again: Sequence[Waited], campaigns: dict[str, Beside]) -> list[Claim]:
    """The goals, and what the campaigns achieved."""
    text = f"a user's {len(alone)} jobs on 16 nodes, {load_ratio:.0%} full"
    claims = [
        claim(f"{text}, nobody else", "longest wait", "s", max(one.wait_s for one in alone)),
        claim(f"{text}, nobody else, once more", "longer wait than before, worst job", "s", max(longer_s(again, alone))),
    ]
    for allocation, one in campaigns.items():
        beside_it = f"{text}, beside a campaign of {'tournaments' if allocation == 'whole' else 'pair jobs'}"
        means = [sum(wait.wait_s for wait in waits) / len(waits) for waits in (one.waits, alone)]
        claims += [
            claim(beside_it, "longer wait than alone, worst job", "s", max(longer_s(one.waits, alone)), "<= 10"),
            against(beside_it, "mean wait", "s", means[0], peer="alone", peer_value=means[1]),
            claim(beside_it, "most jobs in squeue at a time", "count", one.seen.jobs_max, f"<= {JOBS_AT_MOST}"),
            claim(beside_it, "most nodes in squeue at a time", "count", one.seen.nodes_max, f"<= {NODES_AT_MOST}"),
            claim(beside_it, "results measured meanwhile", "count", one.measured_count, "> 0"),
        ]
    return claims


def one_load(lab: RunningLab, seed: int, span_s: float, load_ratio: float, folder: Path) -> list[Claim]:
    """The same arrivals four times: alone, alone, beside pair jobs, beside tournaments."""
    jobs = arrivals(seed, span_s, [f"alpha-n{number:02d}" for number in range(1, 17)], load_ratio)
    alone, again = users_waits(lab, jobs), users_waits(lab, jobs)
    campaigns = {
        allocation: beside(lab, jobs, allocation, folder / f"{allocation}-{load_ratio:g}") for allocation in ("pair", "whole")
    }
    for allocation, one in campaigns.items():
        for number, more_s in enumerate(longer_s(one.waits, alone)):
            if more_s > TOLD_ABOVE_S:
                print(f"{allocation}: {jobs[number]} waited {more_s:+.0f} s", flush=True)
    return claims_of(load_ratio, alone, again, campaigns)


def main() -> int:
    """Measure and report."""
    options = parser(__doc__ or "", seed=1)
    options.add_argument("--lab", help="a lab of 16 nodes that is up; otherwise one is made")
    options.add_argument("--span", type=float, default=120.0, help="seconds over which jobs arrive (default %(default)s)")
    chosen = options.parse_args()
    span_s = 30.0 if chosen.quick else chosen.span
    with lab_of(16, chosen.lab) as lab, tempfile.TemporaryDirectory(prefix="hpcq-yield-") as folder:
        claims = [one for ratio in LOAD_RATIOS for one in one_load(lab, chosen.seed, span_s, ratio, Path(folder))]
    return finish("yield", claims, quick=chosen.quick)


if __name__ == "__main__":
    sys.exit(main())
