"""Write a tournament's folder for pairs that share an allocation: the file that agents and ranks read, and the script.

Plan + pairs + what each still lacks -> Tournament -> jobs/<g00001>/1/{job.json, job.sh, tournament.txt, launched.txt}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpcq.definition.model import Cluster, Test, launched, running
from hpcq.kernels import Kernels
from hpcq.nodelist import natural
from hpcq.planning.allocations import PlayedStep, estimate_s, nodes_of, rounds_of, steps_of, walltime_of
from hpcq.planning.plan import Plan, PlannedPair, shared_job_name
from hpcq.render import render
from hpcq.run_folder.journal import Attempt, StepKey, attempt_folder
from hpcq.run_folder.paths import write_text
from hpcq.run_folder.spools import SPOOL, earlier_spools, sizes_spooled, spooled_step
from hpcq.runner.queue.cluster_queue import ClusterQueue
from hpcq.runner.queue.run_state import PROGRAMS, Job, modules_of, played, write_folder, write_job, write_programs
from hpcq.runner.site.place import site_context
from hpcq.scheduler.kinds import describe
from hpcq.scheduler.types import JobState
from hpcq.transport import quote

#: How long agents may take to join: enough for a slow file system and a slow step start.
_JOIN_TIMEOUT_S = 60
#: How often the script starts the MPI step again after it lost a rank.
_MPI_STARTS_MAX = 5


@dataclass(frozen=True, slots=True)
class SizesDone:
    """Sizes of a pair's sweep that earlier tournaments measured, so that this one need not."""

    job: str
    test_no: int
    repetition_no: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tournament:
    """One allocation that measures many pairs; it holds one attempt of each pair."""

    job: str
    attempt_no: int
    tag: str
    run: str
    campaign: str
    cluster: str
    nodes: tuple[str, ...]
    pairs: tuple[PlannedPair, ...]
    walltime_s: int
    evidence: str
    tests: tuple[Test, ...]
    steps: tuple[PlayedStep, ...]
    sizes_done: tuple[SizesDone, ...] = ()
    decided_after: int = 0

    @property
    def folder(self) -> str:
        """Return its folder, as Job.folder does."""
        return attempt_folder(self.job, self.attempt_no)

    @property
    def programs(self) -> set[str]:
        """Return the kernel programs that live through its rounds."""
        return {test.program for test in self._playing if not launched(test)}

    @property
    def launches(self) -> tuple[Test, ...]:
        """Return the tests whose program the MPI launcher starts once per pair."""
        return tuple(test for test in self._playing if launched(test))

    @property
    def _playing(self) -> list[Test]:
        playing = {step.test_no for step in self.steps}
        return [test for test in self.tests if test.test_no in playing]


def make_tournament(
    plan: Plan, indices: Sequence[int], number: int, missing: Mapping[int, frozenset[StepKey]], folder: Path | None = None
) -> Tournament:
    """Return the allocation, the `number`th of its plan, that measures what these pairs still lack.

    folder: of the plan's part of the run, with earlier attempts.
    """
    pairs = [plan.pair_at(index) for index in indices]
    wanted = {pair.job: missing[index] for pair, index in zip(pairs, indices, strict=True)}
    job = shared_job_name(number)
    steps = tuple(steps_of(plan, pairs, wanted))
    estimated_s = estimate_s(plan.tests, plan.repetition_count, len(rounds_of(pairs)), len(pairs))
    return Tournament(
        job=job,
        attempt_no=1,
        tag=f"hpcq-{plan.run}-{plan.cluster}-{job}-1",
        run=plan.run,
        campaign=plan.campaign,
        cluster=plan.cluster,
        nodes=tuple(sorted(nodes_of(pairs), key=natural)),
        pairs=tuple(pairs),
        walltime_s=min(plan.walltime_s, walltime_of(estimated_s, plan.tests, plan.repetition_count * len(pairs))),
        evidence=plan.evidence,
        tests=plan.tests,
        steps=steps,
        sizes_done=_sizes_done(plan, steps, folder) if folder else (),
        decided_after=plan.decided_after,
    )


def _sizes_done(plan: Plan, steps: Sequence[PlayedStep], folder: Path) -> tuple[SizesDone, ...]:
    """Return what earlier attempts measured of the sweeps among these steps. Of a sweep, the plan has a test per size."""
    swept = {test.measured_by for test in plan.tests}
    played_sweeps = [(step, pair) for step in steps if step.test_no in swept for pair in step.pairs]
    spools = earlier_spools(folder / "jobs") if played_sweeps else []
    found = (
        SizesDone(
            job=pair.job,
            test_no=step.test_no,
            repetition_no=step.repetition_no,
            sizes=sizes_spooled(spools, pair.job, (step.test_no, step.repetition_no)),
        )
        for step, pair in played_sweeps
    )
    return tuple(one for one in found if one.sizes)


def write_any(job: Job | Tournament, kernels: Kernels, cluster: Cluster, root: str, folder: Path) -> None:
    """Write the folder of a job or a tournament."""
    if isinstance(job, Job):
        write_job(job, kernels, cluster, root, folder)
    else:
        write_tournament(job, kernels, cluster, root, folder)


def write_tournament(tournament: Tournament, kernels: Kernels, cluster: Cluster, root: str, folder: Path) -> None:
    """Write job.json, tournament.txt, launched.txt and job.sh into `folder`; `root` is the run's folder on the cluster."""
    content = {"format": 1, **asdict(tournament)}
    content["steps"] = [
        [step.round_no, step.test_no, step.repetition_no, [pair.job for pair in step.pairs]] for step in tournament.steps
    ]
    tests = running(tournament.tests)
    context = {
        **site_context(cluster, root),
        "programs": write_programs(folder, kernels, tests) and PROGRAMS,
        "modules": modules_of(cluster, kernels, tests),
        "job": tournament,
        "folder": f"{root}/{tournament.folder}",
        "body": "tournament.sh.j2",
        "join_timeout_s": _JOIN_TIMEOUT_S,
        "mpi_starts_max": _MPI_STARTS_MAX,
        "spool": SPOOL,
        "commands": {test.test_no: played(kernels, test)["parameters"] for test in tournament.launches},
    }
    write_text(folder / "tournament.txt", tournament_text(tournament, kernels), synced=False)
    if tournament.launches:
        write_text(folder / "launched.txt", launched_text(tournament), synced=False)
    write_folder(folder, content, render(describe(cluster.scheduler).head_template, context))


def tournament_text(tournament: Tournament, kernels: Kernels) -> str:
    """Return the file that conductor and ranks read. kernels/c/tournament.h defines its records."""
    lines = ["tournament 1", *(f"node {node}" for node in tournament.nodes)]
    lines += [f"decided_after {tournament.decided_after}"] if tournament.decided_after else []
    apart = {test.test_no for test in tournament.tests if launched(test)}
    measured = {
        (done.job, done.test_no, done.repetition_no): ["measured " + ",".join(map(str, done.sizes))]
        for done in tournament.sizes_done
    }
    for test in running(tournament.tests):
        if test.test_no in apart:
            continue
        command = played(kernels, test)
        lines.append(f"test {test.test_no} {command['kernel']} {test.timeout_s}")
        lines += [f"option {name} {_value(value)}" for name, value in command["parameters"].items()]
    for step in tournament.steps:
        if step.test_no in apart:
            continue
        lines.append(f"step {step.round_no} {step.test_no} {step.repetition_no}")
        for pair in step.pairs:
            lines.append(f"match {pair.job} {pair.client} {pair.server}")
            lines += measured.get((pair.job, step.test_no, step.repetition_no), [])
    return "\n".join(lines) + "\n"


def launched_text(tournament: Tournament) -> str:
    """Return what the script launches, one pair after the other: round, test, repetition, pair, client and server."""
    apart = {test.test_no for test in tournament.launches}
    lines = [
        f"{step.round_no} {step.test_no} {step.repetition_no} {pair.job} {pair.client} {pair.server}\n"
        for step in tournament.steps
        for pair in step.pairs
        if step.test_no in apart
    ]
    return "".join(lines)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# ----------------------------------------------------------------------------------------------------------------------
# Read what running tournaments have measured so far: with each poll, the heads of the new lines of their spools.
#
#     spool.jsonl there --tail, heads only--> journal event `spooled` --> state, progress, hpcq status
#
# While a tournament has not begun, each poll also reads the last line of what its agents say: an agent that cannot join
# writes why at once, long before the conductor gives it up.
#
# hpcq fetches the whole spool when the job has ended. Until then it only shows the count, and decides nothing by it.


_SIGN = b"@spool "
_AGENTS_SIGN = b"@agents "
#: Enough of a line to see what was measured and whether it was; and how many lines one poll reads at most.
_HEAD_BYTES = 400
_LINES_MAX = 20_000


class Spools:
    """The offsets in the spools of running tournaments up to which the last poll read."""

    def __init__(self, queue: ClusterQueue) -> None:
        self._queue = queue
        self._read_bytes: dict[str, int] = {}
        #: What was said of the agents of a tournament.
        self._said: dict[str, str] = {}

    def read(self) -> None:
        """Record what was measured since the last poll."""
        queue = self._queue
        playing = [one for one in queue.known() if one.shared and one.state is JobState.RUNNING]
        if not playing:
            return
        done = queue.transport.sh("\n".join(map(self._command, playing)))
        texts = done.stdout.split(_SIGN)[1:]
        self._tell_agents(texts)
        found = (self._steps_of(text) for text in texts)
        queue.record.note_all([{"event": "spooled", "tag": tag, "measured_of": steps} for tag, steps in found if steps])

    def _command(self, attempt: Attempt) -> str:
        """Print, per complete line, its length and its head. A torn line waits until the rest is there."""
        folder = f"{self._queue.root}/{attempt.folder}"
        path = quote(f"{folder}/{SPOOL}")
        start = self._read_bytes.get(attempt.tag, 0) + 1
        program = f"NR > {_LINES_MAX} {{ exit }} /}}$/ {{ print length($0) + 1, substr($0, 1, {_HEAD_BYTES}) }}"
        return (
            f"printf '%s%s\\n' {quote(_SIGN.decode())} {quote(attempt.tag)}; "
            f"[ ! -f {path} ] || tail -c +{start} -- {path} | LC_ALL=C awk {quote(program)}"
            f"; [ -s {path} ] || tail -n 1 -- {quote(f'{folder}/agents.err')} 2>/dev/null | cut -c 1-{_HEAD_BYTES}"
            f" | sed 's/^/{_AGENTS_SIGN.decode()}/'"
        )

    def _tell_agents(self, texts: Iterable[bytes]) -> None:
        """Say once what keeps agents from joining."""
        for text in texts:
            name, *lines = text.splitlines()
            for line in lines:
                words = line.removeprefix(_AGENTS_SIGN).decode(errors="replace").strip()
                if line.startswith(_AGENTS_SIGN) and words and self._said.get(name.decode()) != words:
                    self._said[name.decode()] = words
                    attempt = self._queue.record.state.attempts[name.decode()]
                    self._queue.say(f"{attempt.job} has not begun to measure; its agents say: {words}")

    def _steps_of(self, text: bytes) -> tuple[str, dict[str, list[StepKey]]]:
        name, *lines = text.splitlines()
        tag = name.decode()
        steps: dict[str, list[StepKey]] = {}
        for line in lines:
            length, _, head = line.partition(b" ")
            if length.isdigit():
                self._read_bytes[tag] = self._read_bytes.get(tag, 0) + int(length)
                job, step = spooled_step(head) or ("", None)
                if step is not None:
                    steps.setdefault(job, []).append(step)
        return tag, steps
