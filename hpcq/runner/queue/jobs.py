"""Turn a pair of the plan into a job's folder: final parameters and a complete script.

Plan + pair + missing measurements -> Job -> runs/<run_id>/<cluster>/jobs/<job_id>/<attempt_no>/{job.json, job.sh}
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpcq.definition.model import Cluster
from hpcq.definition.running import running
from hpcq.described.commands import limit_s, programs_text
from hpcq.kernels import kernel
from hpcq.planning.plan import Plan, nodes_of_pair
from hpcq.render import render
from hpcq.run_folder.journal_state import StepKey, attempt_folder
from hpcq.run_folder.lines import sizes_measured_before
from hpcq.run_folder.paths import write_text
from hpcq.scheduler.kinds import describe

#: How long the server may take to start listening: enough for a slow file system and a slow step start.
_READY_TIMEOUT_S = 60

#: The file of the foreign programs of a job, in its folder.
PROGRAMS = "programs.txt"
#: Launcher options that give the number of processes, which is two in a line written for a pair.
_COUNT_FLAGS = {"-n", "-np", "--np", "--n", "--ntasks", "-c"}


@dataclass(frozen=True, slots=True)
class Step:
    """One measurement of a job: one kernel process with its final parameters."""

    name: str
    test_no: int
    repetition_no: int
    program: str
    kernel: str
    parameters: dict[str, Any]
    timeout_s: float
    toolchain: str = ""
    #: As in Test: how a foreign program is started.
    launch: str = ""
    #: Of a sweep: what earlier attempts measured, so that this one need not.
    sizes_done: tuple[int, ...] = ()

    @property
    def key(self) -> StepKey:
        return self.test_no, self.repetition_no

    @property
    def command(self) -> dict[str, Any]:
        """Return what the kernel program is told: a kernel of its own with options, or a program to start."""
        return played(self.test_no, self.kernel, self.parameters)


@dataclass(frozen=True, slots=True)
class Job:
    """One allocation of two nodes for one attempt."""

    job_id: str
    attempt_no: int
    tag: str
    run_id: str
    campaign: str
    cluster: str
    client: str
    server: str
    walltime_s: int
    evidence: str
    steps: tuple[Step, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that it needs; of a set, `server` lists all but the first."""
        return nodes_of_pair((self.client, self.server))

    @property
    def launches(self) -> bool:
        """Return whether it starts foreign programs of ranks."""
        return any(step.launch for step in self.steps)

    @property
    def folder(self) -> str:
        """Return its folder, relative to the cluster's part of the run folder and to the work directory there."""
        return attempt_folder(self.job_id, self.attempt_no)


def played(test_no: int, kernel_name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return kernel and options as hpcq-net plays a test; a foreign program is its kernel `program`."""
    described = kernel(kernel_name).described
    if described is None:
        return {"kernel": kernel_name, "parameters": parameters}
    limit = limit_s(described, parameters)
    options = {"test_no": test_no, "duration_s": limit, "warmup_s": 0, "operation_count_max": 1}
    return {"kernel": "program", "parameters": options}


def write_programs(folder: Path, tests: Iterable[tuple[int, str, Mapping[str, Any]]]) -> bool:
    """Write the file of the foreign programs that these tests start; False if they start none."""
    found = [(test_no, kernel(name), parameters) for test_no, name, parameters in tests]
    foreign = {one[0]: one for one in found if one[1].described is not None}
    if foreign:
        write_text(folder / PROGRAMS, programs_text([foreign[test_no] for test_no in sorted(foreign)]), synced=False)
    return bool(foreign)


def modules_of(cluster: Cluster, names: Iterable[str]) -> tuple[str, ...]:
    """Return the modules of a cluster and of the foreign programs among these kernels, each once."""
    described = (kernel(name).described for name in sorted(set(names)))
    return tuple(dict.fromkeys([*cluster.modules, *(one for found in described if found for one in found.modules)]))


def all_steps(plan: Plan, pair_index: int = 0) -> frozenset[StepKey]:
    """Return every measurement that the plan wants of a pair or a set of nodes."""
    tests = running(plan.tests_at(pair_index))
    return frozenset((test.test_no, rep) for test in tests for rep in range(1, plan.repetition_count + 1))


def make_job(plan: Plan, pair_index: int, attempt_no: int, missing: frozenset[StepKey], folder: Path | None = None) -> Job:
    """Return the job that measures what one pair still lacks. folder: of the plan's part of the run, with earlier attempts.

    Each repetition runs all tests once, in an order drawn from the plan's seed, so that a drift of the machine does not
    affect only one test.
    """
    pair = plan.pair_at(pair_index)
    job_id = pair.job_id
    steps: list[Step] = []
    for repetition_no in range(1, plan.repetition_count + 1):
        order = running(plan.tests_at(pair_index))
        random.Random(f"{plan.seed} {job_id} {repetition_no}").shuffle(order)  # noqa: S311 - an order, not a secret
        for test in order:
            if (test.test_no, repetition_no) in missing:
                name = f"t{test.test_no}-r{repetition_no}"
                steps.append(
                    Step(
                        name=name,
                        test_no=test.test_no,
                        repetition_no=repetition_no,
                        program=test.program,
                        kernel=test.kernel,
                        parameters=dict(test.parameters),
                        timeout_s=test.timeout_s,
                        toolchain=test.toolchain,
                        launch=test.launch,
                        sizes_done=sizes_measured_before(folder / "jobs" / job_id, name) if folder else (),
                    )
                )
    return Job(
        job_id=job_id,
        attempt_no=attempt_no,
        tag=f"hpcq-{plan.run_id}-{plan.cluster}-{job_id}-{attempt_no}",
        run_id=plan.run_id,
        campaign=plan.campaign,
        cluster=plan.cluster,
        client=pair.client,
        server=pair.server,
        walltime_s=plan.walltime_s,
        evidence=plan.evidence,
        steps=tuple(steps),
    )


def write_job(job: Job, cluster: Cluster, root: str, folder: Path) -> None:
    """Write job.json and job.sh into `folder`; `root` is the run's folder on the cluster."""
    names = {step.kernel for step in job.steps}
    programs = write_programs(folder, [(step.test_no, step.kernel, step.parameters) for step in job.steps])
    context = {**_context(job, cluster, root), "modules": modules_of(cluster, names), "programs": programs and PROGRAMS}
    script = render(describe(cluster.scheduler).head_template, context)
    write_folder(folder, {"format": 1, **asdict(job)}, script)


def write_folder(folder: Path, described: Mapping[str, Any], script: str) -> None:
    """Write the files that every submission's folder holds, each aside and renamed.

    It does not wait for the disk: if a crash loses the files of a job, that job was never submitted.
    """
    write_text(folder / "job.json", json.dumps(described, indent=1) + "\n", synced=False)
    write_text(folder / "job.sh", script, mode=0o700, synced=False)


def _context(job: Job, cluster: Cluster, root: str) -> dict[str, Any]:
    used = {name: cluster.toolchains[name] for name in sorted({step.toolchain for step in job.steps} - {""})}
    launches = {name: {"launch": counted(one.mpi.launch), "modules": one.modules} for name, one in used.items()}
    return {"job": job, **site_context(cluster, root), "toolchains": launches, "folder": f"{root}/{job.folder}"}


def site_context(cluster: Cluster, root: str) -> dict[str, Any]:
    """Return what a script's head and body need of a cluster. The caller adds the job and its folder."""
    return {
        "root": root,
        "programs": None,
        "interface": cluster.interface,
        "ports": str(cluster.ports) if cluster.ports else None,
        "ready_timeout_s": _READY_TIMEOUT_S,
        "modules": cluster.modules,
        "environment": cluster.environment,
        "directives": _directives(cluster),
        "extra": cluster.extra,
        "extra_directives": cluster.extra_directives,
        "start_within_s": cluster.start_within_s,
        "launcher": cluster.launcher,
        "mpi_launch": counted(cluster.mpi.launch) if cluster.mpi else ("false",),
        "toolchains": {},
    }


def counted(launch: Sequence[str]) -> tuple[str, ...]:
    """Adapt a launcher line for a pair (`-np 2`) to as many ranks as there are nodes at run time."""
    words = list(launch)
    for place, word in enumerate(words[:-1]):
        if word in _COUNT_FLAGS and words[place + 1] == "2":
            words[place + 1] = "{count}"
    return tuple(words)


def _directives(cluster: Cluster) -> dict[str, str]:
    named = {
        "partition": cluster.partition,
        "account": cluster.account,
        "qos": cluster.qos,
        "reservation": cluster.reservation,
        "constraint": cluster.constraint,
    }
    return {name: value for name, value in named.items() if value}
