"""From pairs that share an allocation to a tournament's folder: the file that agents and ranks play, and the script.

Plan + pairs + what each still misses -> Tournament -> jobs/<g00001>/1/{job.json, job.sh, tournament.txt}
spool.jsonl of an attempt -> what was measured of which pair
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpcq.definition.model import Cluster, Test
from hpcq.planning.allocations import PlayedStep, estimate_s, nodes_of, rounds_of, steps_of, walltime_of
from hpcq.planning.plan import Plan, PlannedPair
from hpcq.render import render
from hpcq.run_folder.spools import SPOOL, whole_from
from hpcq.runner.drive.jobs import Job, StepKey, site_context, write_job
from hpcq.runner.drive.outcome import MEASURED_CODES
from hpcq.sorting import natural

#: How long agents may take to come: a slow file system and a slow step start fit in.
_JOIN_TIMEOUT_S = 60
#: How often the MPI step is started again after a rank was lost.
_MPI_STARTS_MAX = 5

#: The head of a line of the spool; what follows says whether it was begun or how it ended.
_SPOOL_HEAD = re.compile(rb'\{"format":1,"job":"([^"]{1,64})","test":(\d{1,9}),"repetition":(\d{1,9}),("begun_utc")?')
_SPOOL_CODE = re.compile(rb'"rc":(\d+),')


@dataclass(frozen=True, slots=True)
class Tournament:
    """One allocation in which many pairs are measured; one attempt of each of them."""

    job_id: str
    attempt_no: int
    tag: str
    run_id: str
    campaign: str
    cluster: str
    nodes: tuple[str, ...]
    pairs: tuple[PlannedPair, ...]
    walltime_s: int
    evidence: str
    tests: tuple[Test, ...]
    steps: tuple[PlayedStep, ...]

    @property
    def folder(self) -> str:
        """Where it lies, as Job.folder."""
        return f"jobs/{self.job_id}/{self.attempt_no}"

    @property
    def programs(self) -> set[str]:
        """Which kernel programs play in it."""
        playing = {step.test_no for step in self.steps}
        return {test.program for test in self.tests if test.test_no in playing}


def make_tournament(plan: Plan, indices: Sequence[int], number: int, missing: Mapping[int, frozenset[StepKey]]) -> Tournament:
    """The allocation, the `number`th of its plan, in which these pairs measure what is still missing of them."""
    pairs = [plan.pair_at(index) for index in indices]
    wanted = {pair.job_id: missing[index] for pair, index in zip(pairs, indices, strict=True)}
    job_id = f"g{number:05d}"
    estimated_s = estimate_s(plan.tests, plan.repetition_count, len(rounds_of(pairs)), len(pairs))
    return Tournament(
        job_id=job_id,
        attempt_no=1,
        tag=f"hpcq-{plan.run_id}-{plan.cluster}-{job_id}-1",
        run_id=plan.run_id,
        campaign=plan.campaign,
        cluster=plan.cluster,
        nodes=tuple(sorted(nodes_of(pairs), key=natural)),
        pairs=tuple(pairs),
        walltime_s=min(plan.walltime_s, walltime_of(estimated_s, plan.tests)),
        evidence=plan.evidence,
        tests=plan.tests,
        steps=tuple(steps_of(plan, pairs, wanted)),
    )


def write_any(job: Job | Tournament, cluster: Cluster, root: str, folder: Path) -> None:
    """Write the folder of either kind of job."""
    if isinstance(job, Job):
        write_job(job, cluster, root, folder)
    else:
        write_tournament(job, cluster, root, folder)


def write_tournament(tournament: Tournament, cluster: Cluster, root: str, folder: Path) -> None:
    """Write job.json, tournament.txt and job.sh into `folder`; `root` is the run's folder on the cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"format": 1, **asdict(tournament)}
    content["steps"] = [
        [step.round_no, step.test_no, step.repetition_no, [pair.job_id for pair in step.pairs]] for step in tournament.steps
    ]
    (folder / "job.json").write_text(json.dumps(content) + "\n", encoding="utf-8")
    (folder / "tournament.txt").write_text(tournament_text(tournament), encoding="utf-8")
    context = {
        **site_context(cluster, root),
        "job": tournament,
        "folder": f"{root}/{tournament.folder}",
        "body": "tournament.sh.j2",
        "join_timeout_s": _JOIN_TIMEOUT_S,
        "mpi_starts_max": _MPI_STARTS_MAX,
        "spool": SPOOL,
    }
    script = folder / "job.sh"
    script.write_text(render(f"{cluster.scheduler}.directives.j2", context), encoding="utf-8")
    script.chmod(0o700)


def tournament_text(tournament: Tournament) -> str:
    """The file that conductor and ranks read; kernels/c/tournament.h has its records."""
    lines = ["tournament 1", *(f"node {node}" for node in tournament.nodes)]
    for test in tournament.tests:
        lines.append(f"test {test.test_no} {test.kernel} {test.timeout_s}")
        lines += [f"option {name} {_value(value)}" for name, value in test.parameters.items()]
    for step in tournament.steps:
        lines.append(f"step {step.round_no} {step.test_no} {step.repetition_no}")
        lines += [f"match {pair.job_id} {pair.client} {pair.server}" for pair in step.pairs]
    return "\n".join(lines) + "\n"


def spooled_steps(folder: Path) -> dict[str, list[StepKey]]:
    """The measurements that an attempt's spool has, by job_id; none where there is no spool."""
    found: dict[str, set[StepKey]] = {}
    try:
        with (folder / SPOOL).open("rb") as file:
            for line in file:
                measured = spooled_step(line) if line.endswith(b"}\n") else None  # otherwise torn
                if measured is not None:
                    found.setdefault(measured[0], set()).add(measured[1])
    except FileNotFoundError:
        return {}
    return {job_id: sorted(steps) for job_id, steps in found.items()}


def spooled_step(line: bytes) -> tuple[str, StepKey] | None:
    """The measurement that a line of a spool, or the head of one, tells of; None where it was begun only, or failed."""
    head = _SPOOL_HEAD.match(line, whole_from(line))
    code = _SPOOL_CODE.search(line, head.end()) if head is not None and not head[4] else None
    if head is None or code is None or int(code[1]) not in MEASURED_CODES:
        return None
    return head[1].decode("utf-8", "replace"), (int(head[2]), int(head[3]))


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
