"""Cost of hpcq beside a bare shell loop: 100 pair jobs of an instant kernel on the lab.

    hpcq lab up && python bench/overhead.py [--lab NAME] [--rounds 4] [--jobs 100]

ours  from the first submission to the rows in the database: `hpcq stage drive` and `hpcq stage load`, with start-up
peer  on the head node: sbatch in a loop over the very same scripts, then squeue every half second until the queue is empty

Both run in turn on the same cluster. The goal is at most 1.2 times the loop, with at most one scheduler query a second.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import alternate, claim, finish, paired, parser
from hpcq.definition.files.cluster import read_cluster
from hpcq.run_folder.paths import RunFolder, read_json
from hpcq.runner.site.build import work_root
from hpcq.runner.site.place import open_run, reach
from hpcq.transport import quote

CAMPAIGN = """
name: overhead
clusters: [alpha]
pairs: {{rounds: {rounds}}}
repetitions: 1
tests:
  - {{kernel: tcp_pingpong, parameters: {{message_bytes: 1, operation_count_max: 1, duration_s: 1, warmup_s: 0}}}}
budget: {{max_jobs: {jobs}}}
"""

LOOP = """
cd {root}/peer || exit 1
for script in jobs/*/1/job.sh; do sbatch --parsable "$script" >/dev/null || exit 1; done
while [ -n "$(squeue --noheader --me)" ]; do sleep 0.5; done
ls jobs/*/1/exit.json | wc -l
"""


class Bench:
    """One lab's alpha, a folder for runs, and the scripts that both sides submit."""

    def __init__(self, lab: str, jobs: int, folder: Path) -> None:
        self.clusters = Path("/run/hpcq-lab") / lab / "clusters"
        self.cluster = read_cluster(self.clusters / "alpha.yaml")
        self.transport = reach(self.cluster)
        self.folder = folder
        self.jobs = jobs
        self.campaign = folder / "overhead.yaml"
        self.campaign.write_text(CAMPAIGN.format(rounds=jobs // 2, jobs=jobs), encoding="utf-8")
        self.queries_per_s: list[float] = []
        self.run = self.prepared()

    def prepared(self) -> RunFolder:
        """Prepare a run: build and plan it."""
        run = open_run(self.campaign, [self.clusters], self.folder / "results.db", self.folder / "runs")
        for stage in ("build", "plan"):
            self.stage(run, stage)
        return run

    def stage(self, run: RunFolder, name: str) -> None:
        """Run one stage as the workflow does."""
        subprocess.run([sys.executable, "-m", "hpcq", "stage", name, str(run.path), "alpha"], check=True)

    def ours(self) -> float:
        """Seconds from the first submission to the rows."""
        self.run = self.prepared()
        started = time.monotonic()
        self.stage(self.run, "drive")
        self.stage(self.run, "load")
        took_s = time.monotonic() - started
        driven = read_json(self.run.path / "alpha" / "driven.json")
        loaded = read_json(self.run.path / "alpha" / "loaded.json")
        assert loaded["clusters"][0]["measured_count"] == self.jobs, loaded
        self.queries_per_s.append(driven["scheduler_query_count"] / driven["wall_s"])
        return took_s

    def peer(self) -> float:
        """Seconds of the bare loop over the scripts of the previous run."""
        root = work_root(self.cluster, self.run.run)
        scripts = sorted((self.run.path / "alpha" / "jobs").glob("*/1/job.sh"))
        if not scripts:
            self.ours()
            return self.peer()
        with tempfile.TemporaryDirectory() as folder:
            for script in scripts:
                copy = Path(folder) / script.relative_to(self.run.path / "alpha")
                copy.parent.mkdir(parents=True)
                copy.write_text(script.read_text().replace(f"{root}/jobs/", f"{root}/peer/jobs/"))
                shutil.copymode(script, copy)
            self.transport.sh(f"rm -rf {quote(root)}/peer")
            self.transport.push(Path(folder), f"{root}/peer")
        started = time.monotonic()
        done = self.transport.sh(LOOP.format(root=root), timeout_s=900)
        took_s = time.monotonic() - started
        assert done.text.strip() == str(len(scripts)), done
        return took_s


def main() -> int:
    """Measure and report."""
    options = parser(__doc__ or "", seed=1)
    options.add_argument("--lab", default="hpcq", help="name of a running lab (default %(default)s)")
    options.add_argument("--rounds", type=int, default=4)
    options.add_argument("--jobs", type=int, default=100)
    chosen = options.parse_args()
    rounds, jobs = (1, 10) if chosen.quick else (chosen.rounds, chosen.jobs)
    os.environ.pop("HPCQ_CLUSTERS", None)
    with tempfile.TemporaryDirectory(prefix="hpcq-bench-") as folder:
        bench = Bench(chosen.lab, jobs, Path(folder))
        ours, theirs = alternate(bench.ours, bench.peer, rounds)
    text = f"{jobs} pair jobs of an instant kernel, from submission to rows in the database"
    claims = [
        paired(text, "wall time", "s", ours, peer="shell loop of sbatch and a wait", theirs=theirs, goal="<= 1.2"),
        claim("scheduler queries of the driver", "queries a second", "1/s", max(bench.queries_per_s), "<= 1"),
    ]
    print(json.dumps({"ours_s": ours, "peer_s": theirs}))
    return finish("overhead", claims, quick=chosen.quick)


if __name__ == "__main__":
    sys.exit(main())
