"""The upkeep of nodes as scontrol reports it, and the orders of an acceptance as scontrol commands.

Slurm 22.05 and 24.11 share these formats. hpcq asks for times in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcq.scheduler.administration import OWN_MINUTES, OWN_RESERVATION, Administration, NodeUpkeep, Reservation, Upkeep
from hpcq.scheduler.slurm.reading import expanded
from hpcq.scheduler.types import CheckedItem
from hpcq.topology import Topology, read_topology
from hpcq.transport import Transport, quote

_SIGN = "== hpcq =="
#: Who gave a node's reason, and when: `[root@2026-11-21T03:00:00]`. The first one that ends the line or precedes a key.
_STAMP = re.compile(r"\s*\[[^\s\[\]@]+@(?:\d{4}-\d\d-\d\dT[\d:]{8}|Unknown)\](?=\s*$|\s+[A-Z]\w*=)")
_BEHIND_REASON = re.compile(r"\s+(?:Comment|Extra|ResumeAfterTime|ReservationName|InstanceId|InstanceType)=")
_KEY = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9/:]*)=")


class SlurmAdministration(Administration):
    """scontrol commands, as an operator would type them."""

    def __init__(self, transport: Transport, partition: str | None = None) -> None:
        self._transport = transport
        self._partition = partition

    def look(self) -> Upkeep:
        script = (
            f"export TZ=UTC0 SLURM_TIME_FORMAT=standard; id -un; echo '{_SIGN}'\n"
            f"scontrol --oneliner show node; echo '{_SIGN}'\n"
            f"scontrol --oneliner show reservation 2>/dev/null; echo '{_SIGN}'; {topology_command(self._partition)}"
        )
        parts = self._transport.sh(script).text.split(f"{_SIGN}\n")
        if len(parts) != 4:
            return Upkeep()
        user, nodes, reservations, topology = parts
        found = topology_of(topology)
        return Upkeep(
            user.strip(), read_nodes(nodes), read_reservations(reservations, user.strip()), found.leaves, found.fabrics
        )

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
        keys = _keys(line)
        if "NodeName" not in keys:
            continue
        state = keys.get("State", "").upper()
        times = [one for one in (_utc(keys.get("BootTime")), _utc(keys.get("SlurmdStartTime"))) if one]
        found[keys["NodeName"]] = NodeUpkeep(
            node=keys["NodeName"],
            started_utc=max(times, default=None),
            drained="DRAIN" in state,
            down="DOWN" in state or "NOT_RESPONDING" in state or "POWERED" in state,
            reason=_reason(line),
            partitions=tuple(one for one in keys.get("Partitions", "").split(",") if one),
        )
    return found


def _reason(line: str) -> str:
    """Return the free text behind Reason=, which may hold brackets and `word=`: it ends at Slurm's own stamp of it.

    Without a stamp it ends at the keys that Slurm writes behind it.
    """
    _, _, text = line.partition(" Reason=")
    stamped = _STAMP.search(text)
    found = text[: stamped.start()] if stamped else _BEHIND_REASON.split(text, maxsplit=1)[0]
    return "" if found.strip() in {"(null)", "None"} else found.strip()


def read_reservations(text: str, user: str) -> tuple[Reservation, ...]:
    """Read the lines of `scontrol --oneliner show reservation`."""
    found = []
    for line in text.splitlines():
        keys = _keys(line)
        started, ended = _utc(keys.get("StartTime")), _utc(keys.get("EndTime"))
        if "ReservationName" in keys and started and ended:
            users = keys.get("Users", "").split(",")
            flags = keys.get("Flags", "").split(",")
            found.append(
                Reservation(
                    name=keys["ReservationName"],
                    started_utc=started,
                    ended_utc=ended,
                    nodes=expanded(keys.get("Nodes", "")),
                    active=keys.get("State") == "ACTIVE",
                    maintenance="MAINT" in flags,
                    mine=user in users,
                    flex="FLEX" in flags,
                )
            )
    return tuple(found)


def _keys(line: str) -> dict[str, str]:
    """Return the KEY=value pairs of a line of scontrol. A value ends at the next key, since reasons contain blanks."""
    starts = list(_KEY.finditer(line))
    ends = [*(one.start() for one in starts[1:]), len(line)][: len(starts)]
    found: dict[str, str] = {}
    for one, end in zip(starts, ends, strict=True):
        value = line[one.end() : end].strip()
        found.setdefault(one.group(1), "" if value in {"(null)", "None"} else value)
    return found


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
