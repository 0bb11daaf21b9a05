"""A user whose jobs arrive all the time on a cluster of the lab, and what is seen of ours meanwhile.

    arrivals(seed, ...)          when which job comes: sizes, lengths and named nodes drawn from the seed
    users_waits(lab, jobs)       hand them in at their moments, wait for their ends; how long each waited, by sacct
    Sampled(lab)                 squeue again and again: the most jobs and nodes that were ours at one moment

The jobs are otheruser's, on alpha, where there is accounting. sacct's moments are whole seconds.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import random
import secrets
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.lab.lab_fixture import RunningLab

_USER = "otheruser"
#: Nodes of a job and how often: most jobs are small, some want the whole machine of 16.
_SIZES = {1: 40, 2: 25, 4: 20, 8: 10, 16: 5}
LENGTHS_S = (2.0, 8.0)
#: How many of the small jobs insist on a node.
_NAMED_SHARE = 0.15


@dataclass(frozen=True, slots=True)
class UserJob:
    """One job of the user: node is the one that it insists on, or empty."""

    at_s: float
    node_count: int
    length_s: float
    node: str = ""


@dataclass(frozen=True, slots=True)
class Waited:
    """How long one of them was queued; submitted_s counts from the first submission of all."""

    submitted_s: float
    wait_s: float


def arrivals(
    seed: int, span_s: float, nodes: Sequence[str], load_ratio: float, lengths_s: tuple[float, float] = LENGTHS_S
) -> list[UserJob]:
    """Jobs that come over `span_s` at random (Poisson) and would fill this share of the nodes on average."""
    draw = random.Random(seed)
    sizes = {size: weight for size, weight in _SIZES.items() if size <= len(nodes)}
    size_mean = sum(size * weight for size, weight in sizes.items()) / sum(sizes.values())
    between_s = size_mean * sum(lengths_s) / 2 / (load_ratio * len(nodes))
    found, now_s = [], draw.expovariate(1 / between_s)
    while now_s < span_s:
        [size] = draw.choices(list(sizes), weights=list(sizes.values()))
        named = draw.choice(nodes) if draw.random() < _NAMED_SHARE and size == 1 else ""
        found.append(UserJob(now_s, size, round(draw.uniform(*lengths_s), 1), named))
        now_s += draw.expovariate(1 / between_s)
    return found


def users_waits(lab: RunningLab, jobs: Sequence[UserJob], within_s: float = 240) -> list[Waited]:
    """Hand the jobs in as they come, and return how long each of them was queued, in their order."""
    name = f"user-{secrets.token_hex(3)}"
    words = lab.exec_words("alpha", "bash", user=_USER)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as shell:
        assert shell.stdin is not None
        started = time.monotonic()
        for number, job in enumerate(jobs):
            time.sleep(max(0.0, started + job.at_s - time.monotonic()))
            wish = f"--nodes={job.node_count}" + (f" --nodelist={job.node}" if job.node else "")
            options = f"--exclusive --time=1 --output=/dev/null --job-name={name}-{number:04d}"
            shell.stdin.write(f"sbatch {options} {wish} --wrap 'sleep {job.length_s}' &\n")
            shell.stdin.flush()
        shell.stdin.write("wait\n")
        shell.stdin.close()
        assert shell.wait(timeout=180) == 0
    deadline = time.monotonic() + within_s
    while len(ended := _accounted(lab, name)) < len(jobs):
        assert time.monotonic() < deadline, f"{len(ended)} of {len(jobs)} jobs of the user ended"
        time.sleep(1.0)
    first = min(submitted for submitted, _ in ended.values())
    return [Waited(submitted - first, begun - submitted) for _, (submitted, begun) in sorted(ended.items())]


@dataclass(slots=True)
class Sampled:
    """What squeue showed of labuser's jobs, at its most: those that end count too, for their nodes are not free yet."""

    jobs_max: int = 0
    nodes_max: int = 0
    look_count: int = 0
    #: Our pending jobs and running nodes at every look, for whoever wants to see the course of it.
    course: list[tuple[int, int]] = field(default_factory=list)

    def take(self, rows: Sequence[str]) -> None:
        """One listing: a line a job, `state|nodes`."""
        jobs = [row.split("|") for row in rows]
        nodes = sum(int(count) for _, count in jobs)
        self.jobs_max, self.nodes_max = max(self.jobs_max, len(jobs)), max(self.nodes_max, nodes)
        self.look_count += 1
        pending = sum(state == "PENDING" for state, _ in jobs)
        self.course.append((pending, sum(int(count) for state, count in jobs if state != "PENDING")))


@contextlib.contextmanager
def sampled(lab: RunningLab, every_s: float = 0.5) -> Iterator[Sampled]:
    """Look at the queue all the time until the block ends."""
    loop = f"while squeue --noheader --user=labuser --format='%T|%D' && echo .; do sleep {every_s}; done"
    found, rows = Sampled(), list[str]()
    # It ends with its input: the block is left, or this process is no more.
    script = f"{{ {loop}; }} & looking=$!; cat >/dev/null; kill $looking"
    words = lab.exec_words("alpha", "bash", "-c", script)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        try:
            yield found
        finally:
            shell.stdin.close()
            for line in shell.stdout:
                if line == ".\n":
                    found.take(rows)
                    rows = []
                else:
                    rows.append(line.strip())


def _accounted(lab: RunningLab, name: str) -> dict[str, tuple[float, float]]:
    """Submission and start of the ended jobs whose names begin so, in seconds since 1970."""
    columns = "JobName%40,Submit,Start,End"
    told = lab.exec("alpha", "sacct", "-n", "-P", "-X", "-S", "now-2hours", "-u", _USER, "-o", columns)
    rows = [line.split("|") for line in told.splitlines() if line.startswith(name)]
    return {job: (_seconds(submit), _seconds(start)) for job, submit, start, end in rows if end[:1].isdigit()}


def _seconds(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()
