"""`hpcq cluster check`: what a cluster has, one line per item, with advice where something is missing."""

from __future__ import annotations

import re
import secrets
from collections import Counter

from hpcq.definition.model import Cluster
from hpcq.errors import HpcqError
from hpcq.runner.site.build import load_modules, work_root
from hpcq.runner.site.place import reach, scheduler_of
from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.kinds import describe
from hpcq.scheduler.limits import JobLimits
from hpcq.scheduler.types import CheckedItem, NodeCondition
from hpcq.transport import Transport, quote

_NODES_AT_LEAST = 2
#: What RDMA registers for a modest job; below it libraries fall back or fail.
_MEMLOCK_KIB_AT_LEAST = 1 << 20
_LOOK_MARK = "@look\n"
_SYSTEM_LOOK = """echo "machine $(uname -m)"; echo "libc $(ldd --version 2>/dev/null | head -n 1)" """
#: What a node is asked, with nothing but a shell and what every Linux has; one line an answer.
_NODE_LOOK = rf"""printf '{_LOOK_MARK.strip()}\n'
state=$(cat /sys/class/net/INTERFACE/operstate 2>/dev/null)
echo "interface $state $(ip -o addr show dev INTERFACE 2>/dev/null | awk '$4 !~ /^fe80/ {{print $4}}' | tr '\n' ' ')"
echo "interfaces $(ls /sys/class/net | tr '\n' ' ')"
echo "memlock $(ulimit -l)"
{_SYSTEM_LOOK}
"""


def check_cluster(cluster: Cluster) -> list[CheckedItem]:
    """Look at everything a campaign needs of a cluster; stops early only where nothing further can be asked."""
    transport = reach(cluster)
    scheduler = scheduler_of(cluster, transport)
    try:
        host = transport.sh("uname -n; uname -sr").text.split("\n")
    except HpcqError as error:
        return [CheckedItem("reach", False, error.message, error.hint)]
    items = [CheckedItem("reach", True, f"{transport.where}: {host[0]}, {host[1]}")]
    items += _scheduler(cluster, scheduler)
    items += _compilers(cluster, transport)
    items += _work_directory(cluster, transport, scheduler)
    return items


def _scheduler(cluster: Cluster, scheduler: Scheduler) -> list[CheckedItem]:
    try:
        said = [line for line in scheduler.versions().splitlines() if line.strip()]
        states = scheduler.nodes()
    except HpcqError as error:
        return [CheckedItem("scheduler", False, error.message, "is the controller up, and may this user ask it?")]
    items = [CheckedItem("scheduler", bool(said), said[0] if said else "no answer", None if said else "is it on PATH there?")]
    counts = Counter(state.condition.value for state in states)
    shown = ", ".join(f"{count} {word}" for word, count in counts.most_common()) or "none"
    enough = counts[NodeCondition.IDLE.value] >= 2
    advice = None if enough else "a pair needs two idle nodes; partition in the cluster file says where to look"
    items.append(CheckedItem("nodes", enough, shown, advice))
    items += _job_limits(cluster, scheduler.job_limits())
    items += scheduler.site_items(cluster.mpi.launch if cluster.mpi is not None else None)
    return items


def _job_limits(cluster: Cluster, limits: JobLimits) -> list[CheckedItem]:
    """Who is let into the partition, and how large and long a job may be; nothing where the scheduler keeps no such thing."""
    if not limits.partition and not limits.refusals:
        return []
    taken = not limits.refusals and limits.state == "UP"
    said = list(limits.refusals) or [f"{limits.partition}: {limits.state}", *limits.words()]
    advice = None if taken else f"{_own_keys(cluster)} of the cluster file decide whether jobs are taken"
    most = limits.nodes_at_most
    if taken and most is not None and most.value < _NODES_AT_LEAST:
        taken, advice = False, f"a pair needs two nodes: change one of {_own_keys(cluster)}"
    return [CheckedItem("partition", taken, "; ".join(said), advice)]


def _own_keys(cluster: Cluster) -> str:
    return ", ".join(key.name for key in describe(cluster.scheduler).keys)


def _compilers(cluster: Cluster, transport: Transport) -> list[CheckedItem]:
    wanted = {"compiler": cluster.compiler.cc, "make": "make"}
    if cluster.mpi is not None:
        wanted["mpi compiler"] = cluster.mpi.compiler
        wanted["mpi launcher"] = cluster.mpi.launch[0]
    items = []
    for item, program in wanted.items():
        done = transport.sh(
            f"{load_modules(cluster)}\n{quote(program)} --version 2>&1 | head -n 1; command -v {quote(program)} >/dev/null"
        )
        found = done.text.strip() or "not found"
        advice = None if done.returncode == 0 else f"install {program} there, or name modules that bring it"
        items.append(CheckedItem(item, done.returncode == 0, found, advice))
    return items


def _work_directory(cluster: Cluster, transport: Transport, scheduler: Scheduler) -> list[CheckedItem]:
    """Written from the head, read and written from a node: both ends of a job must see the same folder."""
    root = work_root(cluster, "check")
    token = secrets.token_hex(8)
    made = transport.sh(f"mkdir -p -- {quote(root)} && echo {token} >{quote(root)}/head && df -P {quote(root)} | tail -n 1")
    if made.returncode != 0:
        return [CheckedItem("work directory", False, made.stderr.strip(), "work_directory must be writable by you")]
    items = [CheckedItem("work directory", True, f"{root}: {made.text.split()[0] if made.text.split() else ''}")]
    there = f"cat {quote(root)}/head && echo {token} >{quote(root)}/node && uname -n || exit 1\n{_NODE_LOOK}"
    told: dict[str, str] = {}
    try:
        probed = scheduler.probe(there.replace("INTERFACE", quote(cluster.interface)))
        first, _, rest = probed.text.partition(_LOOK_MARK)
        told = dict(line.partition(" ")[::2] for line in rest.splitlines())
        answer = first.split()
        ok = probed.returncode == 0 and answer[:1] == [token]
        found = f"seen and written from {answer[1]}" if ok else probed.stderr.strip() or "not seen there"
    except HpcqError as error:
        ok, found = False, error.message
    advice = None if ok else "work_directory must be on a file system that head and nodes share; an idle node is needed to look"
    items.append(CheckedItem("from a node", ok, found, advice))
    transport.sh(f"rm -rf -- {quote(root)}")
    return items + (_node(cluster, transport, scheduler, told) if ok else [])


def _node(cluster: Cluster, transport: Transport, scheduler: Scheduler, told: dict[str, str]) -> list[CheckedItem]:
    """The node that was looked at: its interface under test, and whether what the head builds can run there."""
    state, _, address = told.get("interface", "").partition(" ")
    has_address = bool(address.strip())
    found = (
        f"{cluster.interface}: {state}, {address.strip()}" if has_address else f"{cluster.interface}: {state or 'not there'}"
    )
    there = told.get("interfaces", "").strip()
    advice = None if has_address else f"interface must be one with an address on the nodes: there are {there}"
    items = [CheckedItem("interface", has_address, found, advice)]
    head = dict(line.partition(" ")[::2] for line in transport.sh(_SYSTEM_LOOK).text.splitlines())
    same = head.get("machine") == told.get("machine")
    older = _version(told.get("libc", "")) < _version(head.get("libc", ""))
    words = f"{told.get('machine', '')}, {told.get('libc', '') or 'C library not told'}"
    advice = f"kernels are built where reach leads ({head.get('machine')}, {head.get('libc')}): name a host like the nodes"
    items.append(CheckedItem("node system", same and not older, words, None if same and not older else advice))
    if cluster.mpi is None:
        return items
    limit = told.get("memlock", "").strip()
    small = limit.isdigit() and int(limit) < _MEMLOCK_KIB_AT_LEAST
    advice = scheduler.memory_lock_advice()
    items.append(CheckedItem("memlock", True, f"{limit} KiB" if limit.isdigit() else limit, advice if small else None))
    return items


def _version(text: str) -> tuple[int, ...]:
    """The last number with dots in a line like `ldd (Debian GLIBC 2.36-9) 2.36`."""
    numbers = re.findall(r"\d+(?:\.\d+)+", text)
    return tuple(map(int, numbers[-1].split("."))) if numbers else ()
