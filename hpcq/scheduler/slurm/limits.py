"""Read what a site allows one job of this user: limits of partition, QOS and association, and access. Pure.

    scontrol show partition | config, sacctmgr show assoc | qos, id  --read_job_limits-->  JobLimits

Source: man slurm.conf, PARTITION CONFIGURATION; man sacctmgr. 22.05 and 24.11 use the same forms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hpcq.scheduler.limits import NO_LIMITS, Bound, JobLimits
from hpcq.transport import quote

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
        "scontrol --all --oneliner show partition || exit 1; "
        'printf "@user %s\\n@groups %s\\n" "$(id -u)" "$(id -Gn)"; '
        "scontrol show config 2>/dev/null | sed -n 's/^EnforcePartLimits *= */@enforce /p'; "
        f"{SACCTMGR}; "
        f"$s show assoc where {association(account)} format=Account,DefaultQOS,MaxWall,MaxTRES 2>/dev/null"
        " | sed 's/^/@assoc /'; $s show qos format=Name,MaxWall,MaxTRES 2>/dev/null | sed 's/^/@qos /'; true"
    )


def read_job_limits(
    answer: str, *, partition: str | None, account: str | None, qos: str | None, reservation: str | None
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
    found = [_of_partition(answer, by_name[name], account, qos, reservation) for name in names]
    return found[0] if len(found) == 1 else _of_several(found, all_count=_rows(answer, "@enforce ") in ([["ALL"]], [["YES"]]))


def _of_partition(
    answer: str, found: Mapping[str, str], account: str | None, qos: str | None, reservation: str | None
) -> JobLimits:
    name = found["PartitionName"]
    associations = [row for row in _rows(answer, "@assoc ") if len(row) == 4]
    if account is None and len({row[0] for row in associations}) == 1:
        account = associations[0][0]
    if qos is None and len({row[1] for row in associations}) == 1:
        qos = associations[0][1] or None
    qos_names = {qos, found.get("QoS")}
    bounds = [(f"QOS {row[0]}", row[1], row[2]) for row in _rows(answer, "@qos ") if len(row) == 3 and row[0] in qos_names]
    bounds += [(f"account {row[0]}", row[2], row[3]) for row in associations if row[0] == account]
    walls = [_bound(_seconds(found.get("MaxTime", "")), f"MaxTime of partition {name}")]
    walls += [_bound(_seconds(wall), f"MaxWall of {who}") for who, wall, _ in bounds]
    nodes = [_bound(_count(found.get("MaxNodes", "")), f"MaxNodes of partition {name}")]
    nodes += [_bound(_node_share(tres), f"MaxTRES of {who}") for who, _, tres in bounds]
    least = _count(found.get("MinNodes", ""))
    [groups] = _rows(answer, "@groups ") or [[""]]
    root = any(row == ["0"] for row in _rows(answer, "@user "))
    return JobLimits(
        partition=name,
        state=found.get("State", "UP"),
        nodes_at_most=_least(nodes),
        nodes_at_least=Bound(least, f"MinNodes of partition {name}") if least and least > 1 else None,
        walltime_at_most_s=_least(walls),
        refusals=(*_shared(found), *(() if root else _refusals(found, groups[0].split(), account, qos, reservation))),
    )


def _of_several(found: Sequence[JobLimits], *, all_count: bool) -> JobLimits:
    """Return the limits of a job that names these partitions."""
    taking = [one for one in found if not one.refusals]
    refused = all_count and len(taking) < len(found)
    counting = found if refused or not taking else taking
    most_nodes, walls = [one.nodes_at_most for one in counting], [one.walltime_at_most_s for one in counting]
    fewest = [one.nodes_at_least for one in counting]
    return JobLimits(
        partition=",".join(one.partition for one in found),
        state="UP" if any(one.state == "UP" for one in counting) else counting[0].state,
        nodes_at_most=_least(most_nodes) if all_count else _most(most_nodes),
        nodes_at_least=_most([one for one in fewest if one]) if all_count else None if None in fewest else _least(fewest),
        walltime_at_most_s=_least(walls) if all_count else _most(walls),
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


def _refusals(
    found: Mapping[str, str], groups: Sequence[str], account: str | None, qos: str | None, reservation: str | None
) -> list[str]:
    name = found["PartitionName"]
    said = []
    for key, mine in (("AllowGroups", groups), ("AllowAccounts", [account]), ("AllowQos", [qos])):
        allowed = found.get(key, "ALL")
        known = [one for one in mine if one]
        if allowed != "ALL" and known and not _among(known, allowed):
            said.append(f"partition {name}: {key}={allowed}: {', '.join(known)} is not among them")
    for key, one in (("DenyAccounts", account), ("DenyQos", qos)):
        if one and _among([one], found.get(key, "")):
            said.append(f"partition {name}: {key}={found[key]}: {one} is among them")
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


def _node_share(tres: str) -> int | None:
    match = re.search(r"(?:^|,)node=(\d+)", tres)
    return int(match[1]) if match else None


def _seconds(text: str) -> int | None:
    """Convert `1-00:00:00` or `02:00:00`; None for UNLIMITED and for text that is not a time."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", text)
    if text.upper() in _UNLIMITED or match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
