"""Run shellcheck on every shell script: those in the repository, and each template as each scheduler's jobs get it.

python -m tools.shell_scripts           exit code 1 if shellcheck finds something
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.model import Campaign, Cluster
from hpcq.planning.links import plan_link
from hpcq.planning.make_plan import make_plan
from hpcq.planning.plan import Plan
from hpcq.runner.drive.tournaments import make_tournament, write_tournament
from hpcq.runner.link.side import SIDES, LinkState, make_side, write_side
from hpcq.runner.queue.run_state import all_steps, make_job, write_job
from hpcq.scheduler.kinds import DESCRIPTIONS
from hpcq.scheduler.types import NodeCondition, NodeState

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = (
    ".ci/run",
    "tools/environment",
    "tools/fast_tests",
    "tools/packages",
    "tools/run_tests",
    "hpcq/scheduler/localq.sh",
)
#: A head defines names that only some bodies use, and a body sets names that only some heads read.
#: Single quotes keep text that another shell expands; a site's own profile is not available here.
EXCLUDED = "SC2034,SC2153,SC2317,SC2329,SC2016,SC1091"
CAMPAIGN = """name: shell
clusters: [east, west]
pairs: all
{more}
tests:
  - {{kernel: tcp_stream}}
"""
#: A link is measured with sockets.
ENDS = {"pairs": "  - {kernel: mpi_pingpong}\n  - {kernel: osu_latency}\n", "links": "links: [{from: east, to: west}]\n"}
CLUSTER = """name: {name}
scheduler: {kind}
work_directory: "/scratch/a b's"
modules: [mpi/5]
environment: {{UCX_TLS: "tcp,self"}}
mpi: {{compiler: mpicc, launch: ["mpirun", "--host", "{{nodes}}"]}}
"""


def scripts_of(kind: str, more: str, folder: Path) -> Iterator[Path]:
    """The scripts of one pair, of a tournament and of both sides of a link, for one kind of scheduler."""
    folder.mkdir(parents=True)
    clusters, root = _clusters(kind, folder), "/scratch/a b's/run"
    campaign = _campaign("pairs", more, folder)
    plan = _plan(campaign, clusters[0])
    write_job(make_job(plan, 0, 1, all_steps(plan)), campaign.kernels, clusters[0], root, folder / "pair")
    pairs = range(len(plan.pairs))
    shared = make_tournament(plan, pairs, 1, {index: all_steps(plan) for index in pairs})
    write_tournament(shared, campaign.kernels, clusters[0], root, folder / "tournament")
    campaign = _campaign("links", more, folder)
    link = plan_link(campaign, campaign.links[0], (_plan(campaign, clusters[0]), _plan(campaign, clusters[1])))
    for side, cluster in zip(SIDES, clusters, strict=True):
        job = make_side(LinkState(link), 0, side, 1)
        roots = (root, f"{root}/links/east+west")
        write_side(job, campaign.kernels, campaign.links[0], cluster, roots=roots, folder=folder / side, first="from")
    yield from sorted(folder.glob("*/job.sh"))


def _clusters(kind: str, folder: Path) -> tuple[Cluster, Cluster]:
    extra = "nodes: [n1, n2, n3]\n" if kind == "local" else "interface: eth0\naccount: me\n"
    for name in ("east", "west"):
        (folder / f"{name}.yaml").write_text(CLUSTER.format(name=name, kind=kind) + extra)
    return read_cluster(folder / "east.yaml"), read_cluster(folder / "west.yaml")


def _campaign(end: str, more: str, folder: Path) -> Campaign:
    (folder / "shell.yaml").write_text(CAMPAIGN.format(more=more) + ENDS[end])
    return read_campaign(folder / "shell.yaml")


def _plan(campaign: Campaign, cluster: Cluster) -> Plan:
    nodes = [NodeState(name, NodeCondition.IDLE, "idle") for name in ("n1", "n2", "n3")]
    return make_plan(campaign, cluster, nodes, "shell-1", 7)


def main(say: Callable[[str], object] = print) -> int:
    """Check all scripts. Returns shellcheck's exit code."""
    with tempfile.TemporaryDirectory() as temporary:
        paths = [ROOT / name for name in WRITTEN]
        for kind in DESCRIPTIONS:
            for number, more in enumerate(("evidence: summary", "evidence: full")):
                paths += scripts_of(kind, more, Path(temporary) / f"{kind}{number}")
        program = Path(sys.executable).with_name("shellcheck")
        argv = [str(program), "--severity=info", f"--exclude={EXCLUDED}", *map(str, paths)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        say(done.stdout + done.stderr + f"shellcheck: {len(paths)} scripts, exit code {done.returncode}")
        return done.returncode


if __name__ == "__main__":
    sys.exit(main())
