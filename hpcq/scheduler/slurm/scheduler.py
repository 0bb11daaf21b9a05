"""Slurm: which commands to type and how to read the answers. 22.05 and 24.11 share these formats."""

from __future__ import annotations

import datetime as dt
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from hpcq import nodelist
from hpcq.errors import SchedulerError
from hpcq.scheduler.administration import (
    OWN_MINUTES,
    OWN_RESERVATION,
    SILENT,
    Administration,
    NodeUpkeep,
    Reservation,
    Upkeep,
)
from hpcq.scheduler.base import NO_LIMITS, Bound, JobLimits, Partition, Scheduler, SiteSurvey, node_classes
from hpcq.scheduler.description import Description, Key, KeyForm, SharedKey, TimerTable, directive_check
from hpcq.scheduler.slurm.reading import (
    AWAY_WORDS,
    ID,
    LIMIT_WORDS,
    NO_REASON,
    WAITS_FOR_NODES,
    coming_reservations,
    expanded,
    job_report,
    keys_of,
    node_condition,
    node_rows,
    own_rows,
    read_submission,
    state_words,
    within_reservation,
)
from hpcq.scheduler.types import (
    CheckedItem,
    FreeUntil,
    JobKey,
    JobReport,
    NodeCondition,
    NodeState,
    OtherJob,
    SchedulerSettings,
    Submission,
    Submitted,
)
from hpcq.topology import Topology, read_topology
from hpcq.transport import Completed, Transport, quote

# ----------------------------------------------------------------------------------------------------------------------
# As plain data: its keys in a cluster file, the options that hpcq reserves, its environment variables.

#: Options that hpcq writes into every job. A second one would win or lose silently.
_OWN_OPTIONS = (
    *("--array", "--chdir", "--ntasks-per-node", "--error", "--job-name", "--no-requeue"),
    *("--nodelist", "--nodes", "--ntasks", "--open-mode", "--output", "--requeue", "--time", "--deadline", "--parsable"),
    *("--nodefile", "-D", "-F", "-J", "-N", "-a", "-e", "-n", "-o", "-t", "-w"),
)
_KEY_OPTIONS = {
    "--account": "account", "-A": "account", "--partition": "partition", "-p": "partition", "--qos": "qos", "-q": "qos",
    "--reservation": "reservation", "--constraint": "constraint", "-C": "constraint", "--mem": "memory",
    "--exclusive": "exclusive",
}  # fmt: skip
_ELSEWHERE = "the job would run where hpcq does not look for it: describe that cluster in a file of its own"
_WAITS = "the submit command would wait for the job, and hpcq for the command"
_HELD = "a held job never starts: hpcq would wait for it in vain"
_TEST = "nothing would be submitted"
_SHARED = "jobs of others would run on the same nodes, so nothing could be measured"
_REFUSED = {
    "--clusters": _ELSEWHERE, "-M": _ELSEWHERE, "--cluster-constraint": _ELSEWHERE,
    "--wait": _WAITS, "-W": _WAITS, "--hold": _HELD, "-H": _HELD, "--test-only": _TEST, "--help": _TEST, "--usage": _TEST,
    "--oversubscribe": _SHARED, "-s": _SHARED, "--share": _SHARED,
    "--time-min": "the scheduler would shorten the time limit, and end the job amid its tests",
    "--wrap": "the script would not be hpcq's",
    "--quiet": "hpcq reads what the submit command says", "-Q": "hpcq reads what the submit command says",
}  # fmt: skip

#: Standing options of every job that a site may not take, and that a job can do without.
_CAN_BE_LEFT_OUT = ("ntasks-per-node", "no-requeue", "no-kill", "deadline", "open-mode")
_MEMORY = re.compile(r"all|none|[1-9]\d*[KMGT]?")
#: Slurm takes one of them and --mem, not both.
_OTHER_MEMORY = ("--mem-per-cpu", "--mem-per-gpu")


def _check_keys(data: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return what Slurm itself would refuse at every submission."""
    said = []
    memory, left_out, lines = data.get("memory"), data.get("leave_out"), data.get("extra_directives")
    if isinstance(memory, (str, int)) and not _MEMORY.fullmatch(str(memory)):
        said.append(("memory", f"{memory!r}: must be all, none, or a size per node like 3900M"))
    for line in lines if isinstance(lines, list) else ():
        option = str(line).partition("=")[0].split(" ")[0]
        if option in _OTHER_MEMORY and memory != "none":
            said.append(("extra_directives", f"{option} excludes --mem, which hpcq writes into every job: set memory: none"))
    words = left_out if isinstance(left_out, list) else str(left_out).split(",") if left_out else []
    unknown = [str(word) for word in words if word not in _CAN_BE_LEFT_OUT]
    if unknown:
        said.append(("leave_out", f"{unknown[0]!r}: must be among {', '.join(_CAN_BE_LEFT_OUT)}"))
    return said


DESCRIPTION = Description(
    kind="slurm",
    title="Slurm",
    keys=(
        Key("partition", "partition", "Partition of the jobs; only its nodes are used. Several: a list.", KeyForm.WORDS),
        Key("account", "account", "Account to charge."),
        Key("qos", "qos", "Quality of service."),
        Key("reservation", "reservation", "Reservation to run in."),
        Key("constraint", "constraint", "Features of nodes that jobs ask for, joined by & and |.", KeyForm.FEATURES),
        Key("memory", None, "Memory per node: all (--mem=0), none (no such option), or a size like 3900M. Default: all."),
        Key(
            "exclusive",
            None,
            "How whole nodes are asked for: all (--exclusive), user, mcs, topo, or none (no such option). Default: all.",
            allowed=("all", "user", "mcs", "topo", "none"),
        ),
        Key(
            "leave_out",
            None,
            f"Options of the job script that the site does not take: {', '.join(_CAN_BE_LEFT_OUT)}.",
            KeyForm.WORDS,
        ),
    ),
    takes=frozenset({SharedKey.LAUNCHER, SharedKey.EXTRA_DIRECTIVES, SharedKey.INSTANCE}),
    found_by="command -v sbatch >/dev/null && command -v sinfo >/dev/null",
    head_template="slurm.directives.j2",
    default_mpi_launch=("srun", "--mpi=pmix"),
    scrubbed_prefixes=("SBATCH_", "SLURM_", "SRUN_", "SQUEUE_", "SACCT_", "SINFO_", "SALLOC_", "SCANCEL_", "SACCTMGR_"),
    kept_variables=frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_SACK_JWKS", "SLURM_SACK_KEY"}),
    # A federation with fed_display lists nodes and jobs of all its clusters, unless told otherwise.
    assigned_variables={"SINFO_LOCAL": "1", "SQUEUE_LOCAL": "1", "SACCT_LOCAL": "1"},
    instance_variables=("SLURM_CONF", "SLURM_CONF_SERVER"),
    timer_table=TimerTable("scrontab", ("#SCRON --time=1-00:00:00",)),
    check_directive=directive_check(own=_OWN_OPTIONS, keys=_KEY_OPTIONS, refused=_REFUSED, long_is_unique_prefix=True),
    check_keys=_check_keys,
    other_forms=(
        {"memory": "none"},
        {"exclusive": "none"},
        {"memory": "none", "exclusive": "none"},
        {"leave_out": "ntasks-per-node,no-requeue,open-mode"},
        {"memory": "none", "exclusive": "none", "leave_out": "ntasks-per-node,no-requeue,open-mode"},
    ),
)


# ----------------------------------------------------------------------------------------------------------------------
# Read what a site allows one job of this user: limits of partition, QOS and association, and access. Pure.
#
#     scontrol show partition | config, sacctmgr show assoc | qos, id  --read_job_limits-->  JobLimits
#
# Source: man slurm.conf, PARTITION CONFIGURATION; man sacctmgr. 22.05 and 24.11 use the same forms.


_UNLIMITED = {"", "UNLIMITED", "NONE", "N/A", "INFINITE", "(null)"}


#: Shell: $s queries the accounting. $c names this cluster: one database may hold several with the same accounts.
SACCTMGR = (
    "s='sacctmgr --noheader --parsable2 --readonly'; "
    "c=$(scontrol show config 2>/dev/null | sed -n 's/^ClusterName *= */cluster=/p')"
)


def association(account: str | None) -> str:
    """Select the association that jobs are charged to, this user's on this cluster, as an option of $s."""
    return 'user="$(id -un)" $c' + (f" account={quote(account)}" if account else "")


def job_limits_command(account: str | None) -> str:
    """Ask for all limits in one command. The answer lacks what a site does not keep."""
    return (
        "p=$(scontrol --all --oneliner show partition) || exit 1; printf '%s\\n' \"$p\"; "
        'printf "@user %s\\n@groups %s\\n@host %s\\n" "$(id -u)" "$(id -Gn)" "$(uname -n | cut -d. -f1)"; '
        "scontrol show config 2>/dev/null"
        " | sed -n 's/^EnforcePartLimits *= */@enforce /p; s/^SLURM_VERSION *= */@version /p;"
        " s/^AccountingStorageEnforce *= */@enforced /p; s/^SelectTypeParameters *= */@selected /p'; "
        f"{SACCTMGR}; "
        f"o=$($s show assoc where {association(account)} format={_OF_ASSOCIATION} 2>/dev/null); "
        "[ -z \"$o\" ] || printf '%s\\n' \"$o\" | sed 's/^/@assoc /'; "
        f"{_PARENTS}; $s show qos format={_OF_QOS} 2>/dev/null | sed 's/^/@qos /'; "
        "$s show user \"$(id -un)\" format=DefaultAccount 2>/dev/null | sed 's/^/@account /'; "
        "sinfo --noheader --all --format='@cpus %R|%c|%m' 2>/dev/null; true"
    )


#: Columns of sacctmgr. An association may hold for one partition; MaxTRESPU is a user's share of a QOS.
_OF_ASSOCIATION = "Account,Partition,DefaultQOS,QOS,MaxWall,MaxTRES,GrpTRES"
_OF_QOS = "Name,MaxWall,MaxTRES,MaxTRESPU,GrpTRES"

#: Shell: each of our accounts, in $o, and those above it, with the one above each and what its jobs may take together.
_PARENTS = (
    "for a in $(printf '%s\\n' \"$o\" | cut -d'|' -f1 | sort -u); do for _ in 1 2 3 4 5 6 7 8; do "
    '[ -n "$a" ] || break; u=$($s show assoc where account="$a" user= $c format=ParentName,GrpTRES 2>/dev/null | head -n 1); '
    'echo "@parent $a|$u"; a=${u%%|*}; done; done'
)


def read_job_limits(
    answer: str,
    *,
    partition: str | None,
    account: str | None,
    qos: str | None,
    reservation: str | None,
    memory: str = "all",
) -> JobLimits:
    """Read that answer for a job with these settings; without a partition, for the default one.

    If a job names several partitions, one that takes it is enough, so the most generous bounds count. If Slurm requires
    all
    of them (EnforcePartLimits=ALL), the tightest bounds count.
    """
    partitions = [_fields(line) for line in answer.splitlines() if line.startswith("PartitionName=")]
    if not partitions:
        return NO_LIMITS
    names = partition.split(",") if partition else [one["PartitionName"] for one in partitions if one.get("Default") == "YES"]
    by_name = {one["PartitionName"]: one for one in partitions}
    missing = [name for name in names or ["(default)"] if name not in by_name]
    if missing:
        return JobLimits(refusals=(f"partition {missing[0]}: not there: there are {', '.join(by_name)}",))
    found = [_of_partition(answer, by_name[name], account, qos, reservation, memory=memory) for name in names]
    return found[0] if len(found) == 1 else _of_several(found, all_count=_rows(answer, "@enforce ") in ([["ALL"]], [["YES"]]))


def survey_command() -> str:
    """Ask for the name of the cluster, for partitions with their limits and nodes, for accounts and ways to start MPI."""
    return (
        f"( {job_limits_command(None)} ) || exit 1\n"
        "scontrol show config 2>/dev/null | sed -n 's/^ClusterName *= */@name /p'\n"
        "sinfo --noheader --all --Node --format='@node %R|%N|%T|%c|%m|%G'\n"
        "srun --mpi=list 2>&1 | tr ',' '\\n' | sed 's/.*: */ /; s/^[[:space:]]*/@mpi /'; true"
    )


def read_survey(answer: str, account: str | None) -> SiteSurvey:
    """Read that answer for jobs that this account pays; None: the default one."""
    lines = [_fields(line) for line in answer.splitlines() if line.startswith("PartitionName=")]
    accounts = list(dict.fromkeys(row[0] for row in _rows(answer, "@assoc ") if row[0]))
    default = _default_account(answer, accounts)
    accounts.sort(key=lambda name: name != default)
    nodes: dict[str, dict[str, list[str]]] = {}
    for partition, node, *rest in (row for row in _rows(answer, "@node ") if len(row) == 6):
        nodes.setdefault(partition, {})[node] = rest
    partitions = []
    for one in lines:
        mine = list(nodes.get(one["PartitionName"], {}).values())
        partitions.append(
            Partition(
                limits=_of_partition(answer, one, account or default, None, None),
                is_default=one.get("Default") == "YES",
                node_count=len(mine),
                idle_count=sum(node_condition(state) is NodeCondition.IDLE for state, *_ in mine),
                hardware=node_classes((_hardware(*rest), 1) for _, *rest in mine),
            )
        )
    plugins = [row[0] for row in _rows(answer, "@mpi ") if row[0] and " " not in row[0]]
    name = next((row[0] for row in _rows(answer, "@name ")), "")
    return SiteSurvey(name, tuple(partitions), tuple(accounts), _mpi_launches(plugins))


#: The plugins of srun that start programs of an MPI library, the best one first, and what to do without them.
_MPI_PLUGINS = {
    "Open MPI": (("pmix",), "mpirun -np {count} --host {nodes}"),
    "Cray": (("cray_shasta", "pmi2"), "mpiexec -n {count} --ppn 1 --hosts {nodes}"),
    "": (("pmi2", "pmix"), "mpiexec -n {count} -f {hostfile}"),
}


def _mpi_launches(plugins: Sequence[str]) -> dict[str, str]:
    """Return the launch line for each MPI library; "" stands for MPICH and its relatives."""
    found = {}
    for library, (wanted, otherwise) in _MPI_PLUGINS.items():
        plugin = next((one for one in wanted if one in plugins), None)
        found[library] = f"srun --mpi={plugin}" if plugin else otherwise
    return found


def _hardware(cpus: str, memory_mib: str, generic: str) -> str:
    memory = f", {int(memory_mib) / 1024:.0f} GiB" if memory_mib.isdecimal() else ""
    return f"{cpus} CPUs{memory}{'' if generic == '(null)' else f', {generic}'}"


class _Association(NamedTuple):
    """What a user may do with an account, everywhere or in one partition: the columns of _OF_ASSOCIATION."""

    account: str
    partition: str
    default_qos: str
    all_qos: str
    max_wall: str
    max_tres: str
    grp_tres: str

    @property
    def own_qos(self) -> str:
        """The QOS of jobs that name none: the default one, or the only one; "" if nobody says."""
        return self.default_qos or (self.all_qos if "," not in self.all_qos else "")


class _Qos(NamedTuple):
    """The limits of one QOS: the columns of _OF_QOS."""

    name: str
    max_wall: str
    max_tres: str
    max_tres_per_user: str
    grp_tres: str


#: Resources that no job may exceed: of one job, of one user's jobs together, of all jobs together. Key of Slurm, column.
_QOS_SHARES = (("MaxTRES", "max_tres"), ("MaxTRESPU", "max_tres_per_user"), ("GrpTRES", "grp_tres"))
_OWN_SHARES = (("MaxTRES", "max_tres"), ("GrpTRES", "grp_tres"))


def _default_account(answer: str, accounts: Sequence[str]) -> str | None:
    """Return the account of jobs that name none: the user's default one, or the only one."""
    named = next((row[0] for row in _rows(answer, "@account ") if row[0] in accounts), None)
    return named or (accounts[0] if len(set(accounts)) == 1 else None)


def _that_count(everywhere: Sequence[_Association], partition: str, account: str | None) -> list[_Association]:
    """Return the associations of jobs in a partition: for each account the one for this partition, else the one for all."""
    of_partition = {one.account for one in everywhere if one.partition == partition}
    return [
        one
        for one in everywhere
        if account in {None, one.account} and one.partition == (partition if one.account in of_partition else "")
    ]


def _without_association(name: str, everywhere: Sequence[_Association]) -> list[str]:
    """Say that a user has no association for a partition, where the site demands one and shows those that there are."""
    there = ", ".join(sorted({f"account {one.account} in {one.partition or 'every partition'}" for one in everywhere}))
    return [f"partition {name}: you have no association for it: there are {there}"] if there else []


def _of_partition(
    answer: str,
    found: Mapping[str, str],
    account: str | None,
    qos: str | None,
    reservation: str | None,
    *,
    memory: str = "all",
) -> JobLimits:
    name = found["PartitionName"]
    everywhere = [_Association(*row) for row in _rows(answer, "@assoc ") if len(row) == len(_Association._fields)]
    if account is None:
        account = _default_account(answer, [one.account for one in everywhere])
    associations = _that_count(everywhere, name, account)
    enforced = {word for row in _rows(answer, "@enforced ") for word in row[0].lower().split(",")} - {"none", "(null)"}
    if qos is None and len({one.own_qos for one in associations}) == 1:
        qos = associations[0].own_qos or None
    qos_names = {qos, found.get("QoS")}
    qos_rows = [_Qos(*row) for row in _rows(answer, "@qos ") if len(row) == len(_Qos._fields)]
    of_qos = [one for one in qos_rows if one.name in qos_names]
    own = [one for one in associations if one.account == account]
    shares = [(f"{key} of QOS {one.name}", getattr(one, field)) for one in of_qos for key, field in _QOS_SHARES]
    shares += [(f"{key} of account {one.account}", getattr(one, field)) for one in own for key, field in _OWN_SHARES]
    shares += _shares_of_accounts(answer, account)
    walls = [_bound(_seconds(found.get("MaxTime", "")), f"MaxTime of partition {name}")]
    walls += [_bound(_seconds(one.max_wall), f"MaxWall of QOS {one.name}") for one in of_qos]
    walls += [_bound(_seconds(one.max_wall), f"MaxWall of account {one.account}") for one in own]
    nodes = [_bound(_count(found.get("MaxNodes", "")), f"MaxNodes of partition {name}")]
    node = _one_node(answer, name, memory)
    if not enforced or enforced & {"limits", "safe", "all"}:
        nodes += [bound for source, tres in shares for bound in _node_shares(source, tres, node)]
    least = _count(found.get("MinNodes", ""))
    [groups] = _rows(answer, "@groups ") or [[""]]
    [host] = _rows(answer, "@host ") or [[""]]
    root = any(row == ["0"] for row in _rows(answer, "@user "))
    return JobLimits(
        partition=name,
        state=found.get("State", "UP"),
        max_nodes=_least(nodes),
        nodes_at_least=Bound(least, f"MinNodes of partition {name}") if least and least > 1 else None,
        max_walltime_s=_least(walls),
        refusals=(
            *_shared(found),
            *(_without_association(name, everywhere) if enforced and not associations else ()),
            *_submits_from_elsewhere(found, host[0]),
            *(() if root else _refusals(found, groups[0].split(), _with_parents(answer, account), qos, reservation)),
        ),
    )


def _of_several(found: Sequence[JobLimits], *, all_count: bool) -> JobLimits:
    """Return the limits of a job that names these partitions."""
    taking = [one for one in found if not one.refusals]
    refused = all_count and len(taking) < len(found)
    counting = found if refused or not taking else taking
    most_nodes, walls = [one.max_nodes for one in counting], [one.max_walltime_s for one in counting]
    fewest = [one.nodes_at_least for one in counting]
    return JobLimits(
        partition=",".join(one.partition for one in found),
        state="UP" if any(one.state == "UP" for one in counting) else counting[0].state,
        max_nodes=_least(most_nodes) if all_count else _most(most_nodes),
        nodes_at_least=_most([one for one in fewest if one]) if all_count else None if None in fewest else _least(fewest),
        max_walltime_s=_least(walls) if all_count else _most(walls),
        refusals=tuple(words for one in found for words in one.refusals) if refused or not taking else (),
    )


def _shared(found: Mapping[str, str]) -> list[str]:
    """Find partitions that share nodes: FORCE:4 puts other users' jobs on the same nodes, whatever a job asks for.

    FORCE:1 only lets jobs take turns.
    """
    word, _, count = found.get("OverSubscribe", "NO").partition(":")
    if word != "FORCE" or count == "1":
        return []
    shown = f"OverSubscribe={found['OverSubscribe']}"
    return [f"partition {found['PartitionName']}: {shown}: jobs of others run on the same nodes, so nothing can be measured"]


def _submits_from_elsewhere(found: Mapping[str, str], host: str) -> list[str]:
    """Find partitions that take jobs from other hosts only."""
    allowed = found.get("AllocNodes", "ALL")
    if allowed == "ALL" or not host or host in {name.partition(".")[0] for name in expanded(allowed)}:
        return []
    return [f"partition {found['PartitionName']}: AllocNodes={allowed}: jobs are submitted from {host} here"]


#: From this release on a list of accounts holds the accounts below them as well.
_TREES_OF_ACCOUNTS = (23, 2)


def _with_parents(answer: str, account: str | None) -> list[str]:
    """Return an account and, where the partitions' lists mean them too, those above it."""
    if account is None:
        return []
    release = next((row[0] for row in _rows(answer, "@version ")), "")
    numbers = tuple(int(part) for part in re.findall(r"\d+", release)[:2])
    return _and_above(answer, account) if not numbers or numbers >= _TREES_OF_ACCOUNTS else [account]


def _and_above(answer: str, account: str) -> list[str]:
    parents = {row[0]: row[1] for row in _rows(answer, "@parent ") if len(row) > 1}
    found = [account]
    while parents.get(found[-1], "") not in {"", *found}:
        found.append(parents[found[-1]])
    return found


def _shares_of_accounts(answer: str, account: str | None) -> list[tuple[str, str]]:
    """Return what all jobs of the account that pays, and of each account above it, may take together, and who says so."""
    together = {row[0]: row[2] for row in _rows(answer, "@parent ") if len(row) > 2}
    above = _and_above(answer, account) if account is not None else []
    words = {one: f"GrpTRES of account {one}" + (f", above {account}" if one != account else "") for one in above}
    return [(words[one], together[one]) for one in above if together.get(one)]


def _refusals(
    found: Mapping[str, str], groups: Sequence[str], accounts: Sequence[str], qos: str | None, reservation: str | None
) -> list[str]:
    """Say who is not let in. accounts: the one that pays, and those above it."""
    name = found["PartitionName"]
    said = []
    for key, mine, shown in (
        ("AllowGroups", groups, groups),
        ("AllowAccounts", accounts, accounts[:1]),
        ("AllowQos", [qos] if qos else [], [qos or ""]),
    ):
        allowed = found.get(key, "ALL")
        if allowed != "ALL" and mine and not _among(mine, allowed):
            said.append(f"partition {name}: {key}={allowed}: {', '.join(shown)} is not among them")
    for key, mine in (("DenyAccounts", accounts), ("DenyQos", [qos] if qos else [])):
        denied = [one for one in mine if _among([one], found.get(key, ""))]
        if denied:
            below = f"{mine[0]} is below {denied[0]}" if denied[0] != mine[0] else f"{mine[0]} is among them"
            said.append(f"partition {name}: {key}={found[key]}: {below}")
    if found.get("RootOnly") == "YES":
        said.append(f"partition {name}: RootOnly=YES: only root may run jobs there")
    if found.get("ReqResv") == "YES" and not reservation:
        said.append(f"partition {name}: ReqResv=YES: jobs need a reservation there")
    return said


def _among(names: Sequence[str], listed: str) -> bool:
    return bool({name.lower() for name in names} & {one.lower() for one in listed.split(",")})


def _fields(line: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def _rows(answer: str, mark: str) -> list[list[str]]:
    return [line.removeprefix(mark).split("|") for line in answer.splitlines() if line.startswith(mark)]


def _bound(value: int | None, source: str) -> Bound | None:
    return None if value is None else Bound(value, source)


def _least(bounds: Sequence[Bound | None]) -> Bound | None:
    return min((bound for bound in bounds if bound is not None), key=lambda bound: bound.value, default=None)


def _most(bounds: Sequence[Bound | None]) -> Bound | None:
    """Return the largest bound; None means no bound and is larger than any."""
    known = [bound for bound in bounds if bound is not None]
    return max(known, key=lambda bound: bound.value) if known and len(known) == len(bounds) else None


def _count(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _node_shares(source: str, tres: str, node: Mapping[str, int]) -> list[Bound]:
    """Return what limits like `cpu=512,mem=62.5G,node=16` allow one job of nodes. node: what a job takes of each, at least."""
    found = []
    for word, amount in re.findall(r"(?:^|,)(node|cpu|mem)=(\d+(?:\.\d+)?[KMGTP]?)", tres):
        whole = _mebibytes(amount) if word == "mem" else int(float(amount))
        if word == "node":
            found.append(Bound(whole, source))
        elif node.get(word):
            found.append(Bound(whole // node[word], f"{source}, {word}={amount}, in nodes of {node[word]} {_UNITS[word]}"))
    return found


_UNITS = {"cpu": "CPUs", "mem": "MiB"}
_MEBIBYTES = {"K": 1 / 1024, "M": 1.0, "": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}


def _mebibytes(text: str) -> int:
    number = text.rstrip("KMGTP")
    return int(float(number) * _MEBIBYTES[text[len(number) :]])


def _one_node(answer: str, partition: str, memory: str) -> dict[str, int]:
    """Return the CPUs and MiB that a job takes of each node of a partition, at least. memory: the key of the cluster file.

    Without memory among what Slurm gives out (SelectTypeParameters), or with what the partition gives by itself, only CPUs.
    """
    row = next((row for row in _rows(answer, "@cpus ") if row[0] == partition and len(row) > 1), ["", ""])
    counted = any("MEMORY" in one[0].upper() for one in _rows(answer, "@selected ")) and memory != "none"
    mebibytes = _count(row[2].rstrip("+")) if len(row) > 2 else None
    if memory not in {"all", "none"}:
        mebibytes = _mebibytes(memory)
    found = {"cpu": _count(row[1].rstrip("+")), "mem": mebibytes if counted else None}
    return {word: count for word, count in found.items() if count}


def _seconds(text: str) -> int | None:
    """Convert `1-00:00:00` or `02:00:00`; None for UNLIMITED and for text that is not a time."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", text)
    if text.upper() in _UNLIMITED or match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


# ----------------------------------------------------------------------------------------------------------------------


#: Slurm says these of nodes that no job can have, but also of nodes in use if other nodes are down or reserved.
_WAITS_FOR_SUCH_NODES = ("ReqNodeNotAvail", "Nodes required for job are DOWN")
_RESERVATION = "@reservation "
_RESERVATIONS = "@reservations "
#: For how long that list holds. A job that a newer reservation keeps from starting is withdrawn by its reason.
_RESERVATIONS_FOR_S = 60.0
#: Accounting levels whose users may make reservations, besides root and SlurmUser.
_MAY_RESERVE = frozenset({"Operator", "Administrator"})
#: What scontrol says when one of the nodes was taken meanwhile.
_NODES_TAKEN = ("nodes are busy", "overlaps with another reservation", "node configuration is not available")


def _later(bounded: FreeUntil | None, by_s: float) -> FreeUntil | None:
    return None if bounded is None else replace(bounded, in_s=bounded.in_s - by_s)


class Slurm(Scheduler):
    """sbatch, squeue, sinfo, scancel; also sacct if the site has it."""

    id_pattern = ID
    poll_lists_all = True

    def __init__(self, transport: Transport, settings: SchedulerSettings) -> None:
        super().__init__(transport, settings)
        #: The partitions that share nodes with ours, joined with commas; hpcq asks once.
        self._sharing: str | None = None
        #: What takes nodes from jobs next, and when hpcq asked for it.
        self._coming: dict[str, FreeUntil] = {}
        self._reservations_s = -math.inf

    def nodes_command(self) -> str:
        partition = f"--partition={quote(self.settings.partition)}" if self.settings.partition else ""
        said = [f"sinfo --noheader --Node {partition} --format='%N|%T|%P|%f|%E'"]
        in_utc = "TZ=UTC0 SLURM_TIME_FORMAT=standard scontrol --oneliner show reservation"
        if self.settings.reservation:
            shown = f"{in_utc} {quote(self.settings.reservation)}"
            if self.settings.own_reservation:
                shown = f"{{ {shown} 2>/dev/null || true; }}"
            said += [f"printf '{_RESERVATION}'", shown]
        if time.monotonic() - self._reservations_s > _RESERVATIONS_FOR_S:
            now = "TZ=UTC0 date +%Y-%m-%dT%H:%M:%S"
            said.append(f"{{ printf '{_RESERVATIONS}'; {now}; {in_utc} 2>/dev/null; true; }}")
        return " && ".join(said)

    def read_nodes(self, answer: str) -> list[NodeState]:
        answer, asked, coming = answer.partition(_RESERVATIONS)
        answer, _, reservation = answer.partition(_RESERVATION)
        now_s, name = time.monotonic(), self.settings.reservation
        if asked:
            self._reservations_s, self._coming = now_s, coming_reservations(coming, apart_from=name)
        age_s = now_s - self._reservations_s
        states = [replace(one, bounded=_later(self._coming.get(one.node), age_s)) for one in self._read_sinfo(answer)]
        if not name or (self.settings.own_reservation and "ReservationName=" not in reservation):
            return states
        return within_reservation(states, reservation, name)

    def _read_sinfo(self, answer: str) -> list[NodeState]:
        rows = node_rows(answer)
        if not rows and answer.strip():  # a wrapper's words in place of the list
            raise SchedulerError(f"{self.transport.where}: node list: {answer.strip().splitlines()[-1][:200]}")
        if not self.settings.partition:  # a job without a partition goes to the default one, marked with a star
            rows = [row for row in rows if row[2].endswith("*")]
        found: dict[str, NodeState] = {}
        for name, word, partition, features, reason in rows:
            known = found.get(name)
            partitions = (*(known.partitions if known else ()), partition.rstrip("*"))
            found[name] = NodeState(
                node=name,
                condition=node_condition(word),
                native_state=word,
                partitions=partitions,
                features=tuple(part for part in features.split(",") if part and part != "(null)"),
                reason=None if reason in NO_REASON else reason,
            )
        return list(found.values())

    def submit_command(self, submission: Submission) -> str:
        return f"sbatch --parsable {quote(submission.script)}"

    def estimate_command(self, submission: Submission) -> str | None:
        # The head's own clock follows the answer, both in UTC: neither its time zone nor its skew matters.
        return f"TZ=UTC sbatch --test-only {quote(submission.script)} 2>&1; TZ=UTC date +%Y-%m-%dT%H:%M:%S"

    def read_estimate(self, done: Completed) -> float | None:
        start = re.search(r"to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", done.text)
        now = done.text.strip().rpartition("\n")[2]
        try:
            moments = [dt.datetime.fromisoformat(text) for text in (start[1] if start else "", now)]
        except ValueError:
            return None
        return max(0.0, (moments[0] - moments[1]).total_seconds())

    def read_submission(self, tag: str, done: Completed) -> Submitted:
        return read_submission(tag, done, self.read_scheduler_job_id(done.text))

    def read_scheduler_job_id(self, answer: str) -> str:
        scheduler_job_id = answer.strip().split(";")[0]  # `17;cluster` with several clusters
        return scheduler_job_id if ID.fullmatch(scheduler_job_id) else ""

    def limit_words(self) -> Sequence[str]:
        return LIMIT_WORDS

    def poll_command(self, jobs: Sequence[JobKey]) -> str:  # noqa: ARG002 - several ids would load the table of all jobs
        """List all our jobs. The controller filters by user, so an unknown id cannot spoil the answer."""
        return "id -u && squeue --noheader --all --me --states=all --format='%i|%T|%U|%j|%N|%r'"

    def read_poll(self, done: Completed) -> list[JobReport]:
        if done.returncode != 0:
            raise SchedulerError(f"{self.transport.where}: squeue: {done.stderr.strip() or 'failed'}")
        own, rows = own_rows(done.text, 6)
        if any(reason.startswith("ReqNodeNotAvail") for *_, reason in rows):
            self._reservations_s = -math.inf  # perhaps for a reservation that is newer than the last list
        return [
            job_report(job, word, nodes, reason, name=name, mine=user.strip() == own)
            for job, word, user, name, nodes, reason in rows
        ]

    def history_command(self, jobs: Sequence[JobKey]) -> str | None:
        ids = quote(",".join(job.scheduler_job_id for job in jobs))
        columns = "JobIDRaw,State,NodeList,ExitCode,UID,JobName"
        return f"id -u && sacct --noheader --parsable2 --allocations --jobs={ids} --format={columns}"

    def read_history(self, done: Completed) -> list[JobReport]:
        if done.returncode != 0:
            return []  # a site without accounting: the exit file is the only source
        own, rows = own_rows(done.text, 6)
        # "CANCELLED by 1000": the first word is the state, the last one the user who cancelled
        return [
            job_report(
                job,
                word.split()[0],
                nodes,
                "from sacct",
                name=name,
                mine=user.strip() == own,
                exit_code=code,
                own_request=word.split()[-1] == own if word.startswith("CANCELLED by ") else None,
            )
            for job, word, nodes, code, user, name in rows
            if word.strip()
        ]

    def cancel_command(self, jobs: Sequence[JobKey], *, queued_only: bool = False) -> str:
        """End only jobs that have this name and are ours right now.

        scancel accepts only one name, so the command asks the queue first.
        """
        wanted = quote("\n".join(f"{job.scheduler_job_id}|{job.tag}" for job in jobs))
        which = "--state=PENDING " if queued_only else ""
        return (
            "own=$(squeue --noheader --all --me --format='%i|%j') || exit 1\n"
            f"ids=$(printf '%s\\n' \"$own\" | grep -Fx -- {wanted} | cut -d'|' -f1)\n"
            f'[ -z "$ids" ] || scancel {which}--user="$(id -un)" $ids'
        )

    def others_command(self) -> str | None:
        """List pending jobs of all partitions that share nodes with ours: those jobs may wait for our nodes."""
        listing = "squeue --noheader --all --states=PENDING ${s:+--partition=\"$s\"} --format='%i|%U|%n|%r'"
        if self._sharing is not None:
            return f's={quote(self._sharing)}; echo "$s"; id -u && {listing}'
        if self.settings.partition:
            where = f"p={quote(self.settings.partition)}"
        else:
            where = "p=$(sinfo --noheader --format=%P | sed -n 's/[*]$//p' | head -n 1)"
        return (
            where + '; n=$(sinfo --noheader ${p:+--partition="$p"} --format=%N | paste -sd, -) && '
            "s=$(sinfo --noheader --all --nodes=\"$n\" --format='%R|%D' | sed -n '/|0$/!s/|.*//p' | sort -u | paste -sd, -) && "
            's=${s:-$p}; echo "$s"; id -u && ' + listing
        )

    def read_others(self, answer: str) -> tuple[OtherJob, ...]:
        sharing, own, *rows = answer.split("\n")
        self._sharing = sharing.strip() or None
        found = []
        for scheduler_job_id, user, wanted, reason in (row.split("|", 3) for row in rows if row.count("|") >= 3):
            sure = reason in WAITS_FOR_NODES
            if user != own.strip() and (sure or reason.startswith(_WAITS_FOR_SUCH_NODES)):
                found.append(OtherJob(scheduler_job_id, sure, expanded(wanted)))
        return tuple(found)

    def mine_command(self) -> str | None:
        return "squeue --noheader --all --me --format=%i"

    def read_mine(self, answer: str) -> int:
        return sum(line.strip()[:1].isdecimal() for line in answer.splitlines())  # a wrapper may print more

    def topology_command(self) -> str | None:
        return topology_command(self.settings.partition)

    def read_topology(self, answer: str) -> Topology:
        return topology_of(answer)

    def job_limits_command(self) -> str | None:
        return job_limits_command(self.settings.account)

    def read_job_limits(self, answer: str) -> JobLimits:
        mine = self.settings
        return read_job_limits(
            answer,
            partition=mine.partition,
            account=mine.account,
            qos=mine.qos,
            reservation=mine.reservation,
            memory=mine.extra.get("memory", "all"),
        )

    def limit_command(self) -> str | None:
        qos = quote(self.settings.qos or "")
        return (
            f"{SACCTMGR}; "
            f"$s show assoc where {association(self.settings.account)} format=MaxSubmitJobs,DefaultQOS || exit 1; "
            f'q={qos}; [ -z "$q" ] || $s show qos where name="$q" format=MaxSubmitJobsPerUser'
        )

    def read_limit(self, answer: str) -> int | None:
        numbers = [line.partition("|")[0].strip() for line in answer.splitlines()]
        return min((int(number) for number in numbers if number.isdecimal()), default=None)

    def may_reserve_command(self) -> str | None:
        return (
            "id -un; id -u; scontrol show config | sed -n 's/^SlurmUser *= *//p'; "
            'sacctmgr --noheader --parsable2 --readonly show user "$(id -un)" format=AdminLevel 2>/dev/null; true'
        )

    def read_may_reserve(self, done: Completed) -> str | None:
        name, number, slurm_user, level = [*done.text.split("\n"), "", "", "", ""][:4]
        if number == "0" or (name and slurm_user.startswith(f"{name}(")) or level.strip() in _MAY_RESERVE:
            return None
        return f"{name or 'this user'} may not make reservations (not root, SlurmUser or operator)"

    def reservation_command(self, verb: str, name: str, nodes: Sequence[str] = (), minutes: int = 0) -> str:
        named = f"reservationname={quote(name)}"
        if verb == "make":
            wanted = f"nodes={quote(','.join(nodelist.fold(nodes)))} starttime=now duration={minutes}"
            return f'scontrol create reservation {named} users="$(id -un)" {wanted}'
        if verb == "prolong":
            return f"scontrol update {named} endtime=now+{minutes}minutes"
        return f"scontrol delete {named}" if verb == "remove" else f"scontrol show reservation {quote(name)}"

    def busy_words(self) -> Sequence[str]:
        return _NODES_TAKEN

    def away_words(self) -> Sequence[str]:
        return AWAY_WORDS

    def find_command(self, tags: Sequence[str]) -> str:
        names = quote(",".join(tags))
        return (
            f"squeue --noheader --all --me --states=all --name={names} --format='%i|%j' || exit 1; "
            'sacct --noheader --parsable2 --allocations --starttime=now-7days --user="$(id -un)"'
            f" --name={names} --format=JobIDRaw,JobName 2>/dev/null; true"
        )

    def read_find(self, answer: str) -> Iterable[tuple[str, str]]:
        for line in answer.splitlines():
            scheduler_job_id, _, tag = line.partition("|")
            if tag:
                yield tag.strip(), scheduler_job_id.strip()

    def probe_command(self, script: str) -> str:
        wanted = {
            "partition": self.settings.partition,
            "account": self.settings.account,
            "qos": self.settings.qos,
            "reservation": self.settings.reservation,
        }
        options = " ".join(f"--{name}={quote(value)}" for name, value in wanted.items() if value)
        return (
            f"srun --immediate=15 --time=1 --nodes=1 --ntasks=1 --quiet --input=none --job-name=hpcq-probe {options}"
            f" /bin/sh -c {quote(script)}"
        )

    def survey_command(self) -> str | None:
        return survey_command()

    def read_survey(self, answer: str, account: str | None) -> SiteSurvey:
        return read_survey(answer, account)

    def versions_command(self) -> str:
        return "sbatch --version"

    def site_items(self, mpi_launch: Sequence[str] | None) -> list[CheckedItem]:
        return site_items(self.transport, mpi_launch)

    def memory_lock_advice(self) -> str:
        return "MPI over RDMA wants unlimited: LimitMEMLOCK of slurmd, or PropagateResourceLimitsExcept=MEMLOCK"

    def administration(self) -> Administration | None:
        return SlurmAdministration(self.transport, self.settings.partition)


# ----------------------------------------------------------------------------------------------------------------------
# The upkeep of nodes as scontrol reports it, and the orders of an acceptance as scontrol commands.
#
# Slurm 22.05 and 24.11 share these formats. hpcq asks for times in UTC.


_SIGN = "== hpcq =="
#: Who gave a node's reason, and when: `[root@2026-11-21T03:00:00]`. The first one that ends the text, precedes a key, or
#: stands between the first line of a reason and its others, each of which has eight blanks before it.
_STAMP = re.compile(r"\s*\[[^\[\]]+@(?:\d{4}-\d\d-\d\dT[\d:]{8}|Unknown)\](?=\s*$|\s+[A-Z]\w*=|\s{8})")
_BEHIND_REASON = re.compile(
    r"\s+(?:Comment|Extra|ResumeAfterTime|ReservationName|InstanceId|InstanceType|TLSCertTokenSet|Topology|Parameters)="
)
#: What the controller itself writes there.
_NOT_HEARD = "Not responding"
#: A node in one of these states is not up: words of 20.11 (`*`, `power`) among them.
_NOT_UP = frozenset({"down", "*", "not_responding", "error", "future"})
_POWERED = frozenset({"power", "power_down", "powering_down", "powered_down"})
_DRAINED = frozenset({"drain", "drained", "draining", "fail", "failing"})


class SlurmAdministration(Administration):
    """scontrol commands, as an operator would type them."""

    def __init__(self, transport: Transport, partition: str | None = None) -> None:
        self._transport = transport
        self._partition = partition

    def look(self) -> Upkeep:
        script = (
            "export TZ=UTC0 SLURM_TIME_FORMAT=standard; id -un; id -Gn; sacctmgr --noheader --parsable2 --readonly show assoc"
            f" where user=\"$(id -un)\" format=Account 2>/dev/null | sort -u | paste -sd, -; echo '{_SIGN}'\n"
            f"scontrol --oneliner show node; echo '{_SIGN}'\n"
            f"scontrol --oneliner show reservation 2>/dev/null; echo '{_SIGN}'; {topology_command(self._partition)}"
        )
        parts = self._transport.sh(script).text.split(f"{_SIGN}\n")
        if len(parts) != 4:
            return Upkeep()
        who, nodes, reservations, topology = parts
        user, groups, accounts = [*who.split("\n"), "", "", ""][:3]
        me = Who(user.strip(), frozenset(groups.split()), frozenset(one for one in accounts.strip().split(",") if one))
        found = topology_of(topology)
        return Upkeep(me.user, read_nodes(nodes), read_reservations(reservations, me), found.leaves, found.fabrics)

    def drain(self, nodes: Sequence[str], reason: str) -> str | None:
        return f"scontrol update nodename={_listed(nodes)} state=drain reason={quote(reason)}"

    def resume(self, nodes: Sequence[str]) -> str | None:
        return f"scontrol update nodename={_listed(nodes)} state=resume"

    def reserve(self, nodes: Sequence[str], user: str, standing: Reservation | None) -> str | None:
        # maint keeps users off; flex lets the test pair these nodes with partners outside.
        if standing is None:
            return (
                f"scontrol create reservation reservationname={OWN_RESERVATION} starttime=now duration={OWN_MINUTES}"
                f" users={quote(user)} flags=maint,ignore_jobs,flex nodes={_listed(nodes)}"
            )
        return f"scontrol update reservationname={quote(standing.name)} nodes+={_listed(nodes)}"

    def give_back(self, standing: Reservation, nodes: Sequence[str]) -> str | None:
        kept = [node for node in standing.nodes if node not in nodes]
        if not kept:
            return f"scontrol delete reservationname={quote(standing.name)}"
        return f"scontrol update reservationname={quote(standing.name)} nodes-={_listed(nodes)}"

    def admit(self, reservation: str, user: str) -> str | None:
        return f"scontrol update reservationname={quote(reservation)} users+={quote(user)}"

    def open_outward(self, reservation: str) -> str | None:
        return f"scontrol update reservationname={quote(reservation)} flags+=flex"


#: Marks what slurm.conf says of jobs that span switches.
_PARAMETERS = "@topology "


def topology_command(partition: str | None) -> str:
    """Ask for the switches as jobs of this partition see them; without one, of the default partition.

    From 25.05 on a partition may have a topology of its own (topology.yaml). With several that differ, the cluster's counts.
    """
    which = f"--all --oneliner show partition {quote(partition)}" if partition and "," not in partition else ""
    listing = f"scontrol {which}" if which else "scontrol --all --oneliner show partition"
    wanted = "" if which else "/ Default=YES /"
    return (
        f"t=$({listing} 2>/dev/null | sed -n '{wanted}s/.* Topology=\\([^ ]*\\).*/\\1/p'); "
        f"scontrol show config 2>/dev/null | sed -n 's/^TopologyParam *= */{_PARAMETERS}/p'; "
        "scontrol --oneliner show topology $t 2>/dev/null; true"
    )


def topology_of(answer: str) -> Topology:
    """Read that answer; names that are no node list tell nothing."""
    parameters = [line for line in answer.splitlines() if line.startswith(_PARAMETERS)]
    try:
        return read_topology(answer, spans=any("topooptional" in line.lower() for line in parameters))
    except ValueError:
        return Topology()


def _listed(nodes: Sequence[str]) -> str:
    return quote(",".join(nodes))


def read_nodes(text: str) -> dict[str, NodeUpkeep]:
    """Read the lines of `scontrol --oneliner show node`."""
    found = {}
    for line in text.splitlines():
        keys = keys_of(line.partition(" Reason=")[0])
        if not line.startswith("NodeName=") or "State" not in keys:
            continue  # a further line of somebody's comment
        words = state_words(keys["State"])
        times = [one for one in (_utc(keys.get("BootTime")), _utc(keys.get("SlurmdStartTime"))) if one]
        found[keys["NodeName"]] = NodeUpkeep(
            node=keys["NodeName"],
            started_utc=max(times, default=None),
            drained=bool(words & _DRAINED),
            down=bool(words & (_NOT_UP | _POWERED)),
            reason=_reason(line),
            partitions=tuple(one for one in keys.get("Partitions", "").split(",") if one),
        )
    return found


def _reason(line: str) -> str:
    """Return the free text behind Reason=, which may hold brackets and `word=`: it ends at Slurm's own stamp of it.

    Slurm puts the stamp behind the first line of a reason. Without a stamp it ends at the keys that Slurm writes behind it.
    """
    _, _, text = line.partition(" Reason=")
    stamped = _STAMP.search(text)
    first, rest = (text[: stamped.start()], text[stamped.end() :]) if stamped else ("", text)
    lines = rest if not stamped or rest.startswith(" " * 8) else ""
    words = " ".join(f"{first} {_BEHIND_REASON.split(lines, maxsplit=1)[0]}".split())
    return "" if words in {"(null)", "None"} else SILENT if words == _NOT_HEARD else words


@dataclass(frozen=True, slots=True)
class Who:
    """Whom a reservation may admit."""

    user: str
    groups: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()

    def is_admitted(self, keys: Mapping[str, str]) -> bool:
        """Whether the lists of a reservation admit this user: by name, group or account; `-name` shuts somebody out."""
        admitted = False
        for key, mine in (("Users", {self.user}), ("Groups", self.groups), ("Accounts", self.accounts)):
            listed = {one for one in keys.get(key, "").split(",") if one}
            out = {one.removeprefix("-") for one in listed if one.startswith("-")}
            if out & mine:
                return False
            admitted = admitted or bool(listed & mine) or (bool(out) and out == {one.lstrip("-") for one in listed})
        return admitted


def read_reservations(text: str, me: Who) -> tuple[Reservation, ...]:
    """Read the lines of `scontrol --oneliner show reservation`."""
    found = []
    for line in text.splitlines():
        keys = keys_of(line)
        started, ended = _utc(keys.get("StartTime")), _utc(keys.get("EndTime"))
        if line.startswith("ReservationName=") and started and ended:
            flags = keys.get("Flags", "").split(",")
            found.append(
                Reservation(
                    name=keys["ReservationName"],
                    started_utc=started,
                    ended_utc=ended,
                    nodes=expanded(keys.get("Nodes", "")),
                    active=keys.get("State") == "ACTIVE",
                    maintenance="MAINT" in flags,
                    mine=me.is_admitted(keys),
                    flex="FLEX" in flags,
                )
            )
    return tuple(found)


def _utc(text: str | None) -> str | None:
    return f"{text}Z" if text and re.fullmatch(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}", text) else None


# ----------------------------------------------------------------------------------------------------------------------
# What `hpcq cluster check` asks Slurm, beyond the questions for every scheduler, and what follows from the answers.


_MARK = "@site "
#: First the submit command, then the site's configuration, then the user: an operator sees more than others.
_LOOK = (
    f"printf '{_MARK}file\\n'; p=$(command -v sbatch); echo \"$p\"; head -c 2 -- \"$p\" 2>/dev/null | tr -dc '#!'; echo\n"
    f"printf '{_MARK}version\\n'; sbatch --version\n"
    f"printf '{_MARK}queries\\n'; for c in squeue sacct scancel sinfo scontrol; do p=$(command -v $c) && "
    '[ "$(head -c 2 -- "$p" 2>/dev/null | tr -dc \'#!\')" = \'#!\' ] && echo "$p"; done\n'
    f"printf '{_MARK}config\\n'; scontrol show config 2>/dev/null\n"
    f"printf '{_MARK}partitions\\n'; scontrol --oneliner show partition 2>/dev/null\n"
    f"printf '{_MARK}level\\n'; id -u; id -un\n"
    'sacctmgr --noheader --parsable2 --readonly show user "$(id -un)" format=AdminLevel 2>/dev/null; true'
)
#: If ended jobs leave the queue sooner than this, the driver's next poll may miss them.
_MIN_JOB_AGE_S = 60
_OFF = frozenset({"", "(null)", "none", "NONE", "INFINITE", "-1 sec", "-1"})


def site_items(transport: Transport, mpi_launch: Sequence[str] | None) -> list[CheckedItem]:
    """Return all items, in the order in which a person reads them."""
    plugins = _mpi_plugin(transport, mpi_launch) if mpi_launch else []
    return [*plugins, *read_site(transport.sh(_LOOK).text)]


def read_site(text: str) -> list[CheckedItem]:
    """Return what the answers mean for campaigns."""
    parts = dict(part.partition("\n")[::2] for part in text.split(_MARK)[1:])
    lines = (line.partition("=") for line in parts.get("config", "").splitlines())
    config = {name.strip(): value.strip() for name, sign, value in lines if sign}
    level = parts.get("level", "").split()
    sees_all = level[:1] == ["0"] or config.get("SlurmUser", "").startswith(f"{level[1] if level[1:] else ''}(")
    sees_all = sees_all or bool({"Operator", "Administrator"} & set(level))
    return [
        *_submit_command(parts.get("file", "").split("\n"), parts.get("version", "")),
        *_query_commands(parts.get("queries", "").split()),
        *_power_saving(config, parts.get("partitions", "")),
        *_private_data(config, sees_all=sees_all),
        *_memory_of_jobs(config),
    ]


def _submit_command(file: Sequence[str], version: str) -> list[CheckedItem]:
    path, begins = [*file, "", ""][:2]
    noise = [line for line in version.splitlines() if line.strip() and not line.startswith("slurm")]
    follows = "hpcq takes nothing but an id for an answer; else it finds each job by its name: one more question per wave"
    if noise:
        return [CheckedItem("submit command", True, f"{path} prints {noise[0].strip()!r} before its answer", follows)]
    if begins == "#!":
        advice = f"a wrapper may change options or print: {follows}"
        return [CheckedItem("submit command", True, f"{path} is a script", advice)]
    return []


def _query_commands(scripts: Sequence[str]) -> list[CheckedItem]:
    """Check whether the commands that ask the controller are wrappers: some answer from a cache."""
    if not scripts:
        return []
    follows = "one that answers from a cache shows jobs late: hpcq calls none gone before it has claimed and cancelled it"
    return [CheckedItem("query commands", True, f"scripts: {', '.join(scripts)}", follows)]


def _power_saving(config: dict[str, str], partitions: str) -> list[CheckedItem]:
    """Check whether idle nodes are switched off: the whole cluster's, or those of partitions with a time of their own."""
    if config.get("SuspendProgram", "") in _OFF:
        return []
    times = [config["SuspendTime"]] if config.get("SuspendTime", "") not in _OFF else []
    for line in partitions.splitlines():
        fields = dict(word.partition("=")[::2] for word in line.split())
        if fields.get("SuspendTime", "").isdecimal():  # else INFINITE, or GLOBAL where only its time-outs are its own
            times.append(f"{fields['SuspendTime']} s in partition {fields.get('PartitionName', '?')}")
    if not times:
        return []
    found = f"idle nodes are switched off after {', '.join(times)}"
    advice = "hpcq does not use nodes that are switched off (idle~), and wakes none: have them up before a campaign"
    return [CheckedItem("power saving", True, found, advice)]


def _private_data(config: dict[str, str], *, sees_all: bool) -> list[CheckedItem]:
    hidden = [word for word in config.get("PrivateData", "").lower().split(",") if word not in {"", "none", "(null)"}]
    follows = []
    if "jobs" in hidden:
        follows.append("hpcq cannot see that others wait, so it cannot yield to them: use `hours`, or a share of the nodes")
    if "nodes" in hidden:
        follows.append("sinfo refuses you the states of nodes, so hpcq cannot choose idle nodes: ask for the right to see them")
    if "reservations" in hidden:
        follows.append("`hpcq accept` sees only reservations that you may use")
    if {"accounts", "users"} & set(hidden):
        follows.append("limits of accounts are met, not read")
    if not follows or sees_all:
        return []
    return [CheckedItem("private data", "nodes" not in hidden, f"PrivateData={','.join(hidden)}", "; ".join(follows))]


def _memory_of_jobs(config: dict[str, str]) -> list[CheckedItem]:
    """Check whether the queue or the accounting still knows a job after its end."""
    number = config.get("MinJobAge", "").split(" ")[0]
    accounting = "slurmdbd" in config.get("AccountingStorageType", "")
    if accounting or not number.isdecimal() or int(number) >= _MIN_JOB_AGE_S:
        return []
    found = f"MinJobAge={number} s, no accounting"
    advice = "jobs may leave the queue before hpcq looks: only their exit files say how they ended then; the default is 300 s"
    return [CheckedItem("ended jobs", True, found, advice)]


def _mpi_plugin(transport: Transport, mpi_launch: Sequence[str]) -> list[CheckedItem]:
    """Check whether srun has the plugin that the launch line names."""
    wanted = next((word.partition("=")[2] for word in mpi_launch if word.startswith("--mpi=")), None)
    if mpi_launch[0] != "srun" or wanted is None:
        return []
    plugins = [word.strip() for word in transport.sh("srun --mpi=list 2>&1").text.replace(",", " ").split()]
    shown = [word for word in plugins if word.startswith(("pmi", "cray", "none"))]
    listed = " ".join(dict.fromkeys(shown)) or "none listed"
    if wanted in plugins:
        return [CheckedItem("mpi plugin", True, listed)]
    advice = f"mpi.launch says --mpi={wanted}: install its plugin (mpi_{wanted}.so), or name another one"
    return [CheckedItem("mpi plugin", False, f"{wanted} is not there: {listed}", advice)]
