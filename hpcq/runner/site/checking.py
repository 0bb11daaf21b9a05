"""`hpcq cluster check`: what a cluster has, one line per item, with advice where something is missing."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcq.definition.model import Cluster, interface_at
from hpcq.errors import HpcqError, SchedulerError
from hpcq.nodelist import natural
from hpcq.own_folder import entering, secure
from hpcq.render import render
from hpcq.run_folder.paths import RunFolder
from hpcq.runner.site.build import account_folder, first_error, load_modules, with_toolchain, work_base, work_root
from hpcq.runner.site.place import launches, reach, scheduler_of, site_context
from hpcq.scheduler.base import JobLimits, Scheduler
from hpcq.scheduler.kinds import describe
from hpcq.scheduler.types import CheckedItem, JobKey, JobState, NodeCondition, NodeState, Submission, Wait
from hpcq.transport import Transport, quote
from hpcq.units import utc_text

_NODES_AT_LEAST = 2
#: How many classes of nodes are tried at most: sites give features of their own to every rack.
_CLASSES_MAX = 4
#: The memory that RDMA registers for a modest job; with a lower limit, libraries fall back or fail.
_MEMLOCK_KIB_AT_LEAST = 1 << 20
_LOOK_MARK = "@look\n"
_SYSTEM_LOOK = """echo "machine $(uname -m)"; echo "libc $(ldd --version 2>/dev/null | head -n 1)" """
#: What hpcq asks a node, with only a shell and what every Linux has: one line per answer.
_NODE_LOOK = rf"""printf '{_LOOK_MARK.strip()}\n'
for i in INTERFACES; do
state=$(cat "/sys/class/net/$i/operstate" 2>/dev/null)
[ "$(cat "/sys/class/net/$i/type" 2>/dev/null)" != 32 ] || state="$state(IPoIB)"
echo "interface@$i $state $(ip -o addr show dev "$i" 2>/dev/null | awk '$4 !~ /^fe80/ {{print $4}}' | tr '\n' ' ')"
done
echo "interfaces $(ls /sys/class/net | tr '\n' ' ')"
echo "memlock $(ulimit -l)"
if command -v flock >/dev/null; then if flock -n lock true; then echo "lock free"; else echo "lock held"; fi; fi
{_SYSTEM_LOOK}
"""


#: Type and options of the mount, which show what its caches may do.
_MOUNT_LOOK = "command -v findmnt >/dev/null && findmnt --noheadings --output FSTYPE,OPTIONS --target . | head -n 1; true"
#: Takes a lock there and reports the holder; 300 s at most.
_LOCK_HELD = """command -v flock >/dev/null || exit 0
cd ROOT && { flock --no-fork lock sleep 300 </dev/null >/dev/null 2>&1 & echo $!; }; sleep 0.2"""
#: Prints after how many seconds the head sees the file that the node wrote; nothing after a minute.
_SEEN_AFTER = """cd ROOT || exit 0
n=0; until [ -s node ]; do [ "$n" -lt 300 ] || exit 0; sleep 0.2; n=$((n + 1)); done
echo "$((n / 5)).$((n % 5 * 2))"
"""
#: How long NFS caches attributes of folders by default, and which delay is too long for a driver.
_NFS_CACHE_S, _LATE_S = 60, 10


def check_cluster(cluster: Cluster) -> list[CheckedItem]:
    """Check everything that a campaign needs of a cluster. Stops early only if nothing further can be asked."""
    transport = reach(cluster)
    try:
        scheduler = scheduler_of(cluster, transport)
        host = transport.sh("uname -n; uname -sr").text.split("\n")
    except HpcqError as error:
        return [CheckedItem("connection", False, error.message, error.hint)]
    items = [CheckedItem("connection", True, f"{transport.where}: {host[0]}, {host[1]}")]
    items += _scheduler(cluster, scheduler)
    items += _compilers(cluster, transport)
    items += _work_directory(cluster, transport, scheduler)
    return items


def _scheduler(cluster: Cluster, scheduler: Scheduler) -> list[CheckedItem]:
    try:
        said = [line for line in scheduler.versions().splitlines() if line.strip()]
        states = scheduler.nodes()
    except HpcqError as error:
        hint = error.hint or "is the controller up, and may this user ask it?"
        lacks = [CheckedItem("scheduler", False, error.message, hint)]
        with contextlib.suppress(HpcqError):
            lacks += scheduler.site_items(None)
        return lacks
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
    """Check who may use the partition, and how large and long a job may be; empty if the scheduler keeps no limits."""
    if not limits.partition and not limits.refusals:
        return []
    taken = not limits.refusals and limits.state == "UP"
    said = list(limits.refusals) or [f"{limits.partition}: {limits.state}", *limits.words()]
    advice = None if taken else f"{_own_keys(cluster)} of the cluster file decide whether jobs are taken"
    most = limits.max_nodes
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
    """Check that the head writes, and that a node reads and writes: both ends of a job must see the same folder."""
    root = work_root(cluster, "check")
    token = secrets.token_hex(8)
    try:
        secure(transport, "", [root, f"{work_base(cluster)}/builds", account_folder(cluster)], cluster.trusted)
    except HpcqError as error:
        return [CheckedItem("work directory", False, error.message, error.hint)]
    made = transport.sh(
        f"{entering(cluster.trusted)}\nenter {quote(root)} own\n"
        f"rm -f node && : >lock && echo {token} >head && df -P . | tail -n 1\n"
        f"{_MOUNT_LOOK}"
    )
    if made.returncode != 0:
        return [CheckedItem("work directory", False, made.stderr.strip(), "work_directory must be writable by you")]
    mounted, _, options = made.text.partition("\n")
    items = [CheckedItem("work directory", True, f"{root}: {mounted.split()[0] if mounted.split() else ''}")]
    look = _NODE_LOOK.replace("INTERFACES", " ".join(quote(one) for one in _interfaces(cluster)))
    there = f"cd {quote(root)} && cat head && echo {token} >node && uname -n || exit 1\n{look}"
    holder = transport.sh(_LOCK_HELD.replace("ROOT", quote(root))).text.strip()
    shown, told, seen = list[CheckedItem](), dict[str, str](), ""
    try:
        shown, trials = _trials(cluster, scheduler, root, there)
        first = next((one for one in trials if one.started), None)
        if first is not None:
            ok, shown_item = _from_a_node(first, token)
            shown.append(shown_item)
            seen = transport.sh(_SEEN_AFTER.replace("ROOT", quote(root))).text.strip() if ok else ""
            told = _told(first) if ok else {}
            if ok:
                shown += _mpi(cluster, transport, scheduler, root)
    except HpcqError as error:
        shown.append(CheckedItem("job", False, error.message, "the scheduler must be reached from there"))
    transport.sh(f"{f'kill {holder} 2>/dev/null; ' if holder.isdecimal() else ''}rm -rf -- {quote(root)}")
    items += shown
    if not told:
        return items
    items += [
        *_locks(told.get("lock", ""), held=holder.isdecimal()),
        *_caches(options, seen, first.late_s if first else 0.0, cluster.filesystem_delay_s),
    ]
    items += [_address(one, told) for one in _interfaces_of(cluster, first.features if first else ())]
    items += _node(cluster, transport, scheduler, told)
    return items + [
        _address(one, _told(other), other.node)
        for other in trials[1:]
        if other.text
        for one in _interfaces_of(cluster, other.features)
    ]


#: Each rank prints one line; the sum shows that they reach each other. No MPI library is too old for it.
_RANKS_SOURCE = r"""#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int rank, size, length, one = 1, sum = 0;
    char node[MPI_MAX_PROCESSOR_NAME];
    MPI_Init(&argc, &argv);
    usleep(100000); /* Open MPI 4 sometimes crashes if a message comes before its handler is set */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(node, &length);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("hpcq: rank %d of %d, sum %d, on %s\n", rank, size, sum, node);
    return MPI_Finalize();
}
"""
_RANK_LINE = re.compile(r"hpcq: rank (\d+) of (\d+), sum (\d+), on ([^.\s]*)")
_START_S, _COMPILE_S = 20, 60
_BUILD_ADVICE = "compiler, modules and environment of the cluster file or of the toolchain must make its wrapper work there"


#: Nodes of the check's own job may be busy for so long after it has ended.
_FREED_S = 3.0


def _idle_soon(scheduler: Scheduler) -> list[str]:
    """The idle nodes, once there are two, or at last: waits only where the cluster has two that may be tried."""
    until = time.monotonic() + _FREED_S
    while True:
        nodes = scheduler.nodes()
        idle = sorted((one.node for one in nodes if _may_try(one)), key=natural)
        if len(idle) >= _NODES_AT_LEAST or len(nodes) < _NODES_AT_LEAST or time.monotonic() >= until:
            return idle
        time.sleep(0.3)


def _mpi(cluster: Cluster, transport: Transport, scheduler: Scheduler, root: str) -> list[CheckedItem]:
    """Build a program of ten lines with the cluster's MPI and with each toolchain, and start it on two idle nodes."""
    chosen = {"mpi": cluster} if cluster.mpi is not None else {}
    chosen |= {f"toolchain {name}": with_toolchain(cluster, name) for name in cluster.toolchains}
    items, starts = [], dict[str, str]()
    for item, one in chosen.items():
        program = f"ranks-{item.replace(' ', '-')}"
        compiler = quote(one.mpi.compiler if one.mpi else "mpicc")
        done = transport.sh(
            f"{load_modules(one)}\ncd {quote(root)} && cat >{program}.c &&"
            f" {compiler} {' '.join(map(quote, one.compiler.cflags))} -o {program} {program}.c 2>&1",
            stdin=_RANKS_SOURCE.encode(),
            timeout_s=_COMPILE_S,
        )
        if done.returncode != 0:
            words = first_error(done.text + done.stderr)
            items.append(CheckedItem(item, False, f"{one.mpi.compiler if one.mpi else ''}: {words}", _BUILD_ADVICE))
        else:
            starts[item] = program
    idle = _idle_soon(scheduler) if starts else []
    if len(idle) < _NODES_AT_LEAST:
        return items + [CheckedItem(item, True, "builds; not started, for want of two idle nodes") for item in starts]
    lines = []
    for item, program in starts.items():
        function = "on_nodes_mpi" if item == "mpi" else item.replace("toolchain ", "with_toolchain ")
        lines.append(f'echo {quote(f"{_LOOK_MARK.strip()} {item}")}; ({function} {_START_S} "$ROOT"/{program}) 2>&1')
    trial = try_job(cluster, scheduler, root, idle[:2], "\n".join(lines))
    if trial.text is None:
        return [*items, *(CheckedItem(item, False, f"not started: {trial.words}", None) for item in starts)]
    said = {item: text for item, _, text in (part.partition("\n") for part in trial.text.split(f"{_LOOK_MARK.strip()} ")[1:])}
    return items + [_started(item, said.get(item, ""), chosen[item], idle[:2]) for item in starts]


def _started(item: str, said: str, cluster: Cluster, nodes: Sequence[str]) -> CheckedItem:
    """Judge what the two ranks of the small program printed. nodes: where they were to be."""
    found = _RANK_LINE.findall(said)
    ranks, hosts = [tuple(map(int, one[:3])) for one in found], {host for *_, host in found}
    launch = " ".join(cluster.mpi.launch) if cluster.mpi else ""
    if sorted(ranks) == [(0, 2, 2), (1, 2, 2)]:
        if len(hosts) == 1 and hosts <= {node.partition(".")[0] for node in nodes}:  # and no name that only MPI knows
            advice = "an option of the launcher for one rank on each node: -ppn 1, --map-by node, -machinefile {hostfile}"
            return CheckedItem(item, False, f"{launch} puts both ranks on {hosts.pop()}, of {' and '.join(nodes)}", advice)
        return CheckedItem(item, True, f"two ranks started by {launch} reach each other")
    if len(ranks) > 1 and {size for _, size, _ in ranks} == {1}:
        advice = "launcher and library must speak the same PMI: another one in launch, or the library's own mpirun"
        return CheckedItem(
            item, False, f"{launch} starts {len(ranks)} programs of one rank each, which know nothing of each other", advice
        )
    advice = "launch, modules and environment of the toolchain decide how its ranks start"
    return CheckedItem(item, False, f"{launch}: {first_error(said)}", advice)


def _trials(cluster: Cluster, scheduler: Scheduler, root: str, look: str) -> tuple[list[CheckedItem], list[Trial]]:
    """Run a job like any other on one idle node of each class. Returns what is to say of these jobs, and the jobs."""
    classes = _classes(scheduler.nodes())
    if not classes:
        return [CheckedItem("job", False, "no node is idle, so none was tried", "look again when one is")], []
    kinds, nodes = list(classes)[:_CLASSES_MAX], list(classes.values())[:_CLASSES_MAX]
    trials = [try_job(cluster, scheduler, root, nodes[:1], look)]
    if trials[0].text is not None:  # where files of a node are not seen, each further look would wait a minute for that
        trials += [try_job(cluster, scheduler, root, [node], look) for node in nodes[1:]]
    trials = [replace(one, features=features) for one, features in zip(trials, kinds, strict=False)]
    failed = next((one for one in trials if not one.started), None)
    if failed is None:
        untried = len(classes) - len(trials)
        more = f"; {untried} more class{'es' * (untried > 1)} of nodes not tried" if untried else ", one of each class"
        tried = ", ".join(one.node for one in trials)
        return [CheckedItem("job", True, f"started on {tried}{more}")], trials
    found = f"{failed.node}: {failed.words}"
    advice = f"{_own_keys(cluster)} and extra_directives of the cluster file make the job's options"
    if failed.form_is_wrong and (taken := form_that_is_taken(cluster, scheduler, root, failed.node, look)):
        form, trial = taken
        keys = "; ".join(f"{key}: {value}" for key, value in form.items())
        advice = f"this site takes it with {keys}: write that in the cluster file"
        if form.get("exclusive") == "none":
            advice += "; only where the partition gives whole nodes anyway: else jobs of others run beside the tests"
        trials = [trial]
    return [CheckedItem("job", False, found, advice)], trials


def _may_try(state: NodeState) -> bool:
    return state.condition is NodeCondition.IDLE and state.kept_from(_WALLTIME_S) is None


def _classes(states: Sequence[NodeState]) -> dict[tuple[str, ...], str]:
    """Return the first idle node of each class: nodes of the same partitions with the same features."""
    found: dict[tuple[str, ...], str] = {}
    for state in sorted(states, key=lambda one: natural(one.node)):
        if _may_try(state):
            found.setdefault(tuple(sorted(state.features)), state.node)
    return found


def _told(trial: Trial) -> dict[str, str]:
    """Return what the look said of the node."""
    _, _, rest = (trial.text or "").partition(_LOOK_MARK)
    return dict(line.partition(" ")[::2] for line in rest.splitlines())


def _from_a_node(trial: Trial, token: str) -> tuple[bool, CheckedItem]:
    """Check whether a job that ran saw the file of the head and wrote its own."""
    answer = (trial.text or "").partition(_LOOK_MARK)[0].split()
    if answer[:1] == [token] and answer[1:]:
        return True, CheckedItem("from a node", True, f"seen and written from {answer[1]}")
    found = f"a job started on {trial.node}, but {trial.words or 'the file of the head was not seen there'}"
    return False, CheckedItem("from a node", False, found, "work_directory must be on a file system that head and nodes share")


def _locks(word: str, *, held: bool) -> list[CheckedItem]:
    """Check whether a lock of the head kept out the node: on some file systems each machine has its own locks."""
    if not held or word not in {"held", "free"}:
        return []
    if word == "held":
        return [CheckedItem("locks", True, "a lock of the head is seen on a node")]
    advice = "two drivers on two machines would not notice each other by locks: start the runs of a folder from one machine"
    return [CheckedItem("locks", True, "locks on the work directory hold on one machine only", advice)]


def _caches(options: str, seen: str, late_before_s: float, waits_s: float) -> list[CheckedItem]:
    """Check how late the head may see what a node wrote: one measurement, and what the mount allows.

    seen: after how many seconds the head saw the node's file, once it had seen what the job printed. late_before_s: how late
    it saw that. waits_s: how long hpcq waits for the exit file of a job that ended.
    """
    kind, _, words = options.strip().partition(" ")
    given = dict(word.partition("=")[::2] for word in words.split(","))
    late_s = round(float(seen) + late_before_s, 1) if seen.replace(".", "", 1).isdecimal() else None
    longest = max(int(given.get(name) or 0) for name in ("actimeo", "acdirmax")) or _NFS_CACHE_S
    allowed = 0 if not kind.startswith("nfs") or "noac" in given or given.get("actimeo") == "0" else longest
    shown = "not within a minute" if late_s is None else f"after {late_s:g} s"
    found = f"the head saw a node's file {shown}" + (f"; {kind} may keep old attributes for {allowed} s" if allowed else "")
    latest_s = max(allowed, _NFS_CACHE_S if late_s is None else late_s)
    if latest_s >= waits_s:
        advice = f"filesystem_delay_s is {waits_s:g}: at {latest_s:g} or less, jobs that are done count as failed"
        return [CheckedItem("file attributes", False, found, advice)]
    advice = f"exit files may appear that late: a job counts as failed only {waits_s:g} s after its end (filesystem_delay_s)"
    return [CheckedItem("file attributes", True, found, advice if latest_s >= _LATE_S else None)]


def _interfaces(cluster: Cluster) -> list[str]:
    """Return all interfaces that the cluster file names, the one under test first."""
    own = (interface for several in cluster.networks_at.values() for interface in several.values())
    return list(dict.fromkeys((cluster.interface, *cluster.networks.values(), *cluster.interfaces.values(), *own)))


def _interfaces_of(cluster: Cluster, features: Sequence[str]) -> list[str]:
    """Return those that a node with these features must have."""
    networks = {**cluster.networks, **interface_at(features, cluster.networks_at, {})}
    return list(dict.fromkeys((interface_at(features, cluster.interfaces, cluster.interface), *networks.values())))


def _address(interface: str, told: dict[str, str], node: str = "") -> CheckedItem:
    """Check that an interface has an address on the node. Over InfiniBand, sockets are IPoIB. node: named, if given."""
    state, _, address = told.get(f"interface@{interface}", "").partition(" ")
    has_address = bool(address.strip())
    found = f"{interface}: {state}, {address.strip()}" if has_address else f"{interface}: {state or 'not there'}"
    there = told.get("interfaces", "").strip()
    advice = None if has_address else f"interface must be one with an address on the nodes: there are {there}"
    if has_address and "(IPoIB)" in state:
        advice = "sockets measure IP over InfiniBand here; RDMA is reached by MPI tests"
    return CheckedItem("interface", has_address, f"{node}: {found}" if node else found, advice)


def _node(cluster: Cluster, transport: Transport, scheduler: Scheduler, told: dict[str, str]) -> list[CheckedItem]:
    """Check the node that ran the look: whether it can run what the head builds."""
    items = list[CheckedItem]()
    head = dict(line.partition(" ")[::2] for line in transport.sh(_SYSTEM_LOOK).text.splitlines())
    same = head.get("machine") == told.get("machine")
    older = _version(told.get("libc", "")) < _version(head.get("libc", ""))
    words = f"{told.get('machine', '')}, {told.get('libc', '') or 'C library unknown'}"
    advice = f"kernels are built where reach leads ({head.get('machine')}, {head.get('libc')}): name a host like the nodes"
    items.append(CheckedItem("node system", same and not older, words, None if same and not older else advice))
    if cluster.mpi is None:
        return items
    limit = told.get("memlock", "").strip()
    small = limit.isdecimal() and int(limit) < _MEMLOCK_KIB_AT_LEAST
    advice = scheduler.memory_lock_advice()
    items.append(CheckedItem("memlock", True, f"{limit} KiB" if limit.isdecimal() else limit, advice if small else None))
    return items


def _version(text: str) -> tuple[int, ...]:
    """Return the last number with dots in a line like `ldd (Debian GLIBC 2.36-9) 2.36`."""
    numbers = re.findall(r"\d+(?:\.\d+)+", text)
    return tuple(map(int, numbers[-1].split("."))) if numbers else ()


# ----------------------------------------------------------------------------------------------------------------------
# Run folders of earlier runs on a cluster: what lies there, what may go, and removing it.
#
#     run_folders   one command lists the folders below <work_directory>/hpcq, with size and last change
#                   -> old ones without a live job, of runs that ended -> may go
#     remove        moves each aside and deletes it
#
# Nothing measured is lost by this: a run whose part has ended has all its files here too. Folders of runs that the folder
# of run folders here does not know stay unless a person asks for them.


#: How a run is called: <campaign>-<UTC yyyymmddThhmmssZ>-<4 hex>. Nothing else is ever removed.
_RUN_ID = re.compile(r".+-\d{8}T\d{6}Z-[0-9a-f]{4}")
#: How old a folder must be where neither the cluster file nor a person says so.
KEPT_S = 30 * 86400.0
#: Prints the cluster's time, then of each run that began $age seconds ago: mark, run, last change, KiB, and the tags of
#: its jobs without an exit file. Only folders of this user that hold a run's secret are listed; it follows no link.
_LIST = r"""
now=$(date +%s); echo "$now"
before=$(date -u -d "@$((now - age))" +%Y%m%dT%H%M%SZ)
[ -e "$base" ] || exit 0 # nothing ran here yet
enter "$base" above
for run in */; do
    run=${run%/}; one=$run/$cluster; began=${run%-*}
    [ "${began##*-}" \< "$before" ] || continue
    [ ! -L "$run" ] && [ ! -L "$one" ] && [ -O "$one" ] && [ -f "$one/secret" ] || continue
    newest=$(find "$one" -xdev -printf '%T@\n' | sort -n | tail -n 1)
    printf '@run\t%s\t%s\t%s\n' "$run" "${newest%.*}" "$(du -sk -- "$one" | cut -f 1)"
    find "$one" -xdev -name job.json | while IFS= read -r job; do
        [ -e "${job%/*}/exit.json" ] || sed -n 's/^ *"tag": "\(.*\)",\{0,1\}$/@tag\t\1/p' "$job"
    done
done
"""
_REMOVE = r"""
enter "$base" above
remove() {
    [ ! -L "$1" ] && [ -O "$1/$cluster" ] && [ -f "$1/$cluster/secret" ] || { echo "$1: no run folder any more" >&2; return 1; }
    mv -T -- "$1/$cluster" "$1/.removed.$$" && rm -rf -- "$1/.removed.$$" && { rmdir -- "$1" 2>/dev/null || true; }
}
failed=0
"""


@dataclass(frozen=True, slots=True)
class OldRun:
    """The folder of one run on a cluster. kept: why it stays; empty: it may go. removed: whether it went."""

    run: str
    folder: str
    changed_utc: str
    age_s: float
    size_bytes: int
    kept: str
    removed: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return it for other programs."""
        return {
            "run": self.run,
            "folder": self.folder,
            "changed_utc": self.changed_utc,
            "age_s": self.age_s,
            "size_bytes": self.size_bytes,
            "kept": self.kept or None,
            "removed": self.removed,
        }


def run_folders(
    cluster: Cluster, scheduler: Scheduler, runs_folder: Path, older_than_s: float, *, unknown: bool = False
) -> list[OldRun]:
    """Return this user's run folders on a cluster that began so long ago, oldest first, each with why it stays.

    unknown: runs that are not below `runs_folder` may go too.
    Raises HpcqError if the cluster cannot be asked.
    """
    if cluster.work_directory is None:
        return []
    done = scheduler.transport.sh(_named(cluster) + f"age={older_than_s:.0f}\n" + _LIST, timeout_s=600)
    if done.returncode != 0:
        raise HpcqError(f"{cluster.name}: {work_base(cluster)}: cannot be listed: {done.stderr.strip()}")
    now_s, _, listing = done.text.partition("\n")
    found, tags = _read(cluster, float(now_s), listing)
    live = _live(scheduler, [tag for one in found if one.age_s >= older_than_s for tag in tags[one.run]])
    judged = [
        replace(one, kept=_kept(one, cluster, runs_folder, older_than_s, live & set(tags[one.run]), unknown=unknown))
        for one in found
    ]
    return sorted(judged, key=lambda one: -one.age_s)


def remove(cluster: Cluster, scheduler: Scheduler, old: Sequence[OldRun]) -> list[OldRun]:
    """Remove those folders that may go. Returns all, with what was done. Raises HpcqError if one could not be removed."""
    going = [one for one in old if not one.kept]
    if not going:
        return list(old)
    lines = [f"remove {quote(one.run)} || failed=1" for one in going]
    script = _named(cluster) + _REMOVE + "\n".join([*lines, "exit $failed"])
    done = scheduler.transport.sh(script, timeout_s=3600)
    if done.returncode != 0:
        raise HpcqError(f"{cluster.name}: {work_base(cluster)}: not all could be removed: {done.stderr.strip()}")
    return [replace(one, removed=not one.kept) for one in old]


def clean_by_age(cluster: Cluster, scheduler: Scheduler, runs_folder: Path) -> str:
    """Do what `run_folders_kept_s` of the cluster file says. Returns words for a person; empty: nothing was to do."""
    if cluster.run_folders_kept_s is None:
        return ""
    try:
        old = remove(cluster, scheduler, run_folders(cluster, scheduler, runs_folder, cluster.run_folders_kept_s))
    except HpcqError as error:
        return f"old run folders stay: {error.message}"
    gone = [one for one in old if one.removed]
    names = ", ".join(one.run for one in gone[:3]) + (f" and {len(gone) - 3} more" if len(gone) > 3 else "")
    return f"removed {len(gone)} old run folders there: {names}" if gone else ""


def _named(cluster: Cluster) -> str:
    """Return what the scripts read: names go in as variables, so that no path can be taken for a part of the script."""
    return f"{entering(cluster.trusted)}\nbase={quote(work_base(cluster))}\ncluster={quote(cluster.name)}\n"


def _read(cluster: Cluster, now_s: float, listing: str) -> tuple[list[OldRun], dict[str, list[str]]]:
    found: list[OldRun] = []
    tags: dict[str, list[str]] = {}
    for line in listing.splitlines():
        mark, *fields = line.split("\t")
        if mark == "@run" and len(fields) == 3 and _RUN_ID.fullmatch(fields[0]):
            run, changed, kib = fields
            changed_utc = utc_text(dt.datetime.fromtimestamp(int(changed), dt.UTC))
            folder = f"{work_base(cluster)}/{run}/{cluster.name}"
            found.append(OldRun(run, folder, changed_utc, now_s - int(changed), int(kib) * 1024, ""))
            tags[run] = []
        elif mark == "@run":
            tags[""] = []
        elif mark == "@tag" and tags:
            tags[next(reversed(tags))].append(fields[0])
    return found, tags


def _live(scheduler: Scheduler, tags: Sequence[str]) -> set[str]:
    """Return those of these jobs that are queued or running. A scheduler without an answer: all of them may be."""
    if not tags:
        return set()
    try:
        keys = [JobKey(scheduler_job_id, tag) for tag, scheduler_job_id in scheduler.find(tags).items()]
        reports = scheduler.poll(keys) if keys else {}
    except SchedulerError:
        return set(tags)
    return {
        key.tag
        for key in keys
        if not reports[key.scheduler_job_id].state.terminal and not reports[key.scheduler_job_id].remembered
    }


def _kept(
    one: OldRun, cluster: Cluster, runs_folder: Path, older_than_s: float, live: set[str], *, unknown: bool
) -> str:  # fmt: skip
    if one.age_s < older_than_s:
        return "too young"
    if live:
        return f"has jobs in the queue: {', '.join(sorted(live)[:3])}"
    here = RunFolder(runs_folder / one.run)
    if not here.path.is_dir():
        return "" if unknown else f"not a run in {runs_folder}; --unknown takes it too"
    ended = (here.path / cluster.name / "driven.json").is_file()
    return "" if ended else f"not ended: hpcq resume or hpcq cancel {one.run}"


# ----------------------------------------------------------------------------------------------------------------------
# A trial job of `hpcq cluster check`: the head of a real job with all its directives, and a look at a node as its body.
#
# no job             the scheduler refused it, or did not start it: the file system has no part in that
# started, no text   its script could not write into the work directory
# started, text      what the look printed there


_WALLTIME_S = 60
#: How long a trial job may wait on an idle node, and how late its files may be.
_STARTS_WITHIN_S, _FILES_WITHIN_S = 20.0, float(_NFS_CACHE_S)
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Trial:
    """How a trial job went on one node. words: what the scheduler says of it, where it did not start.

    form_is_wrong: the scheduler would take no job of this form. text: what its look printed; None: nothing was seen.
    late_s: for how long after the job's end that was not seen.
    """

    node: str
    started: bool
    words: str = ""
    form_is_wrong: bool = False
    text: str | None = None
    features: tuple[str, ...] = ()
    late_s: float = 0.0


def try_job(cluster: Cluster, scheduler: Scheduler, root: str, nodes: Sequence[str], look: str) -> Trial:
    """Run a shell script on a node as a job like any other. It ends within a minute, or hpcq cancels it.

    root: a folder of this user on the cluster. Of two nodes, the look is lines of the job's script, which may start MPI
    programs by on_nodes_mpi and with_toolchain.
    Raises HpcqError where the cluster cannot be asked.
    """
    tag = f"hpcq-check-{secrets.token_hex(4)}"
    folder = f"{root}/{tag}"
    # One toolchain after the other: each may take its time to start.
    walltime_s = _WALLTIME_S * (1 + len(cluster.toolchains) // 2 if len(nodes) > 1 else 1)
    job = {"tag": tag, "nodes": list(nodes), "walltime_s": walltime_s}
    context = {**site_context(cluster, root), "job": job, "folder": folder, "body": "trial.sh.j2", "look": look}
    if len(nodes) > 1:
        context["toolchains"] = launches(cluster.toolchains)
    script = render(describe(cluster.scheduler).head_template, context)
    path = f"{folder}/job.sh"
    made = scheduler.transport.sh(
        f"mkdir -p {quote(folder)} && cat >{quote(path)} && chmod 700 {quote(path)}", stdin=script.encode()
    )
    if made.returncode != 0:
        raise HpcqError(f"{folder}: {made.stderr.strip()}")
    [answer] = scheduler.submit([Submission(tag, path, tuple(nodes), walltime_s)])
    if answer.scheduler_job_id is None:
        words = " ".join(answer.message.split())
        return Trial(nodes[0], started=False, words=f"refused: {words}", form_is_wrong=answer.refused or answer.unsure)
    key = JobKey(answer.scheduler_job_id, tag)
    try:
        return _watched(scheduler, key, folder, nodes[0], walltime_s)
    finally:
        scheduler.cancel([key])


def _watched(scheduler: Scheduler, key: JobKey, folder: str, node: str, walltime_s: int) -> Trial:
    """Wait for the look of a submitted job, within its bounds: it may take as long as the job."""
    begun_s = unseen_s = time.monotonic()
    started_s = ended_s = None
    while True:
        text = _printed(scheduler, folder)
        now_s = time.monotonic()
        report = scheduler.poll([key])[key.scheduler_job_id]
        if text is not None:
            return Trial(node, started=True, text=text, late_s=0.0 if ended_s is None else unseen_s - ended_s)
        unseen_s = now_s
        if started_s is None and (report.state.terminal or report.state in {JobState.RUNNING, JobState.ENDING}):
            started_s = now_s
        if ended_s is None and report.state.terminal:
            ended_s = now_s
        if started_s is None and now_s - begun_s > _STARTS_WITHIN_S:
            odd = report.wait in {Wait.NEVER, Wait.UNKNOWN, Wait.LIMIT}
            words = f"not started within {_STARTS_WITHIN_S:g} s: the scheduler says {report.reason or 'nothing'}"
            return Trial(node, started=False, words=words, form_is_wrong=odd)
        if ended_s is not None and now_s - ended_s > _FILES_WITHIN_S:
            ended = report.native_state.lower() or report.state.value
            words = f"it ended as {ended}, and no file of its own was seen within {_FILES_WITHIN_S:g} s"
            return Trial(node, started=True, words=words)
        if started_s is not None and ended_s is None and now_s - started_s > walltime_s:
            return Trial(node, started=True, words=f"its look did not end within {walltime_s} s")
        time.sleep(_LOOK_S)


def _printed(scheduler: Scheduler, folder: str) -> str | None:
    """Return what the look has printed, once it has ended."""
    done = scheduler.transport.sh(f"cd {quote(folder)} && ls >/dev/null && [ -e look.rc ] && cat look.out")
    return done.text if done.returncode == 0 else None


def form_that_is_taken(
    cluster: Cluster, scheduler: Scheduler, root: str, node: str, look: str
) -> tuple[Mapping[str, str], Trial] | None:
    """Try other forms of the job, each with fewer standing options. Returns the first one that starts, as keys of the file."""
    for form in describe(cluster.scheduler).other_forms:
        if any(cluster.extra.get(key) == value for key, value in form.items()):
            continue
        trial = try_job(replace(cluster, extra={**cluster.extra, **form}), scheduler, root, [node], look)
        if trial.started:
            return form, trial
    return None
