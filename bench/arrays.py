"""What a job array would save a driver whose jobs each name their own two nodes: submit N pair jobs to a real Slurm.

    python bench/arrays.py [--quick] [--lab NAME] [--jobs 200] [--rounds 7]

Three ways in turn, all jobs held so that none starts: one sbatch per job in one shell, as hpcq does; one sbatch --array
of that many tasks, which cannot name nodes; and the same array with each task's nodes set afterwards, by one scontrol
that reads all changes from its standard input. Measures wall time on the head, and CPU time of slurmctld.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import Claim, claim, finish, paired, parser
from bench.support.labs import lab_of
from tests.lab.lab_fixture import RunningLab

#: Prints wall seconds of the block, and clock ticks of slurmctld's CPU during it.
TIMED = """
ticks() {{ awk '{{ print $14 + $15 }}' /proc/$(cat /run/slurm/slurmctld.pid)/stat; }}
cd /tmp && printf '#!/bin/sh\\ntrue\\n' >job.sh && chmod 755 job.sh
before=$(ticks); start=$(date +%s%N)
{body}
end=$(date +%s%N); after=$(ticks)
scancel --user=labuser >/dev/null
echo "$((end - start)) $((after - before))"
"""
AS_USER = "setpriv --reuid=labuser --regid=labuser --init-groups --"
OPTIONS = "--parsable --hold --time=1 --output=/dev/null --account=lab --exclusive"
PAIRS = "$((i % 3 + 1)),alpha-n0$((i % 3 + 2))"
SINGLY = f"""
{AS_USER} sh -c 'i=0; while [ $i -lt {{jobs}} ]; do
    sbatch {OPTIONS} --nodes=2 --job-name=pair-$i --nodelist=alpha-n0{PAIRS} job.sh >/dev/null; i=$((i + 1)); done'
"""
ARRAY = f"""
{AS_USER} sbatch {OPTIONS} --nodes=2 --array=0-$(({{jobs}} - 1)) job.sh >/dev/null
"""
NAMED = f"""
{AS_USER} sh -c 'id=$(sbatch {OPTIONS} --nodes=2 --array=0-$(({{jobs}} - 1)) job.sh)
    i=0; while [ $i -lt {{jobs}} ]; do echo "update jobid=${{{{id}}}}_$i reqnodelist=alpha-n0{PAIRS}"; i=$((i + 1)); done |
    scontrol >/dev/null'
"""


def handed_in(lab: RunningLab, body: str, jobs: int) -> tuple[float, float]:
    """Wall seconds, and CPU seconds of slurmctld, for submitting this many jobs in one way."""
    text = lab.exec("alpha", "bash", "-c", TIMED.format(body=body.format(jobs=jobs)))
    wall_ns, ticks = text.split()[-2:]
    return int(wall_ns) / 1e9, int(ticks) / 100


def main() -> int:
    """Measure and report."""
    options = parser(__doc__ or "", seed=1)
    options.add_argument("--lab", help="a lab that is up; otherwise one is made")
    options.add_argument("--jobs", type=int, default=200)
    options.add_argument("--rounds", type=int, default=7)
    chosen = options.parse_args()
    ways = {"one sbatch a job": SINGLY, "an array": ARRAY, "an array, nodes set for each task": NAMED}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    jobs, rounds = (20, 2) if chosen.quick else (chosen.jobs, chosen.rounds)
    with lab_of(4, chosen.lab) as lab:
        for number in range(rounds):
            for name in list(ways)[:: 1 if number % 2 == 0 else -1]:
                taken[name].append(handed_in(lab, ways[name], jobs))
    text = f"{jobs} held pair jobs, real Slurm"
    wall = {name: [1000 * one / jobs for one, _ in each] for name, each in taken.items()}
    cpu = {name: [1000 * one / jobs for _, one in each] for name, each in taken.items()}
    singly = wall["one sbatch a job"]
    claims: list[Claim] = []
    for name in list(ways)[1:]:
        claims.append(paired(f"{text}: {name}", "wall time a job", "ms", wall[name], peer="one sbatch a job", theirs=singly))
    for name in ways:
        middle = sorted(cpu[name])[len(cpu[name]) // 2]
        claims.append(claim(f"{text}: {name}", "slurmctld's CPU a job", "ms", middle))
    return finish("arrays", claims, quick=chosen.quick)


if __name__ == "__main__":
    sys.exit(main())
