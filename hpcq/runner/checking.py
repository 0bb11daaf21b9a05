"""`hpcq cluster check`: what a cluster has, one finding an item, each with what to do where something is missing."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from hpcq.definition.model import Cluster
from hpcq.errors import HpcqError
from hpcq.runner.build import load_modules, work_root
from hpcq.runner.runs import reach, scheduler_of
from hpcq.scheduler.base import NodeCondition, Scheduler
from hpcq.transport import Transport, quote


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: what was found, and what to do if it will not do."""

    item: str
    ok: bool
    found: str
    advice: str | None = None

    def to_json(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


def check_cluster(cluster: Cluster) -> list[Finding]:
    """Look at everything a campaign needs of a cluster; stops early only where nothing further can be asked."""
    transport = reach(cluster)
    scheduler = scheduler_of(cluster, transport)
    try:
        host = transport.sh("uname -n; uname -sr").text.split("\n")
    except HpcqError as error:
        return [Finding("reach", False, error.message, error.hint)]
    findings = [Finding("reach", True, f"{transport.where}: {host[0]}, {host[1]}")]
    findings += _scheduler(cluster, scheduler)
    findings += _compilers(cluster, transport)
    findings += _work_directory(cluster, transport, scheduler)
    return findings


def _scheduler(cluster: Cluster, scheduler: Scheduler) -> list[Finding]:
    try:
        said = [line for line in scheduler.versions().splitlines() if line.strip()]
        states = scheduler.nodes()
    except HpcqError as error:
        return [Finding("scheduler", False, error.message, "is the controller up, and may this user ask it?")]
    findings = [Finding("scheduler", bool(said), said[0] if said else "no answer", None if said else "is it on PATH there?")]
    counts = Counter(state.condition.value for state in states)
    shown = ", ".join(f"{count} {word}" for word, count in counts.most_common()) or "none"
    enough = counts[NodeCondition.IDLE.value] >= 2
    advice = None if enough else "a pair needs two idle nodes; partition in the cluster file says where to look"
    findings.append(Finding("nodes", enough, shown, advice))
    if cluster.scheduler == "slurm" and cluster.mpi is not None:
        plugins = [word.strip() for word in " ".join(said[1:]).replace(",", " ").split()]
        wanted = next((word.partition("=")[2] for word in cluster.mpi.launch if word.startswith("--mpi=")), None)
        if wanted is not None:
            found = [word for word in plugins if word.startswith(("pmi", "cray", "none"))]
            advice = None if wanted in plugins else f"mpi.launch says --mpi={wanted}; install its plugin or name another"
            findings.append(Finding("mpi plugin", wanted in plugins, " ".join(dict.fromkeys(found)) or "none listed", advice))
    return findings


def _compilers(cluster: Cluster, transport: Transport) -> list[Finding]:
    wanted = {"compiler": cluster.compiler.cc, "make": "make"}
    if cluster.mpi is not None:
        wanted["mpi compiler"] = cluster.mpi.compiler
    findings = []
    for item, program in wanted.items():
        done = transport.sh(
            f"{load_modules(cluster)}\n{quote(program)} --version 2>&1 | head -n 1; command -v {quote(program)} >/dev/null"
        )
        found = done.text.strip() or "not found"
        advice = None if done.returncode == 0 else f"install {program} there, or name modules that bring it"
        findings.append(Finding(item, done.returncode == 0, found, advice))
    return findings


def _work_directory(cluster: Cluster, transport: Transport, scheduler: Scheduler) -> list[Finding]:
    """Written from the head, read and written from a node: both ends of a job must see the same folder."""
    root = work_root(cluster, "check")
    token = secrets.token_hex(8)
    made = transport.sh(f"mkdir -p -- {quote(root)} && echo {token} >{quote(root)}/head && df -P {quote(root)} | tail -n 1")
    if made.returncode != 0:
        return [Finding("work directory", False, made.stderr.strip(), "work_directory must be writable by you")]
    findings = [Finding("work directory", True, f"{root}: {made.text.split()[0] if made.text.split() else ''}")]
    there = f"cat {quote(root)}/head && echo {token} >{quote(root)}/node && uname -n"
    try:
        probed = scheduler.probe(there)
        answer = probed.text.split()
        ok = probed.returncode == 0 and answer[:1] == [token]
        found = f"seen and written from {answer[1]}" if ok else probed.stderr.strip() or "not seen there"
    except HpcqError as error:
        ok, found = False, error.message
    advice = None if ok else "work_directory must be on a file system that head and nodes share; an idle node is needed to look"
    findings.append(Finding("from a node", ok, found, advice))
    transport.sh(f"rm -rf -- {quote(root)}")
    return findings
