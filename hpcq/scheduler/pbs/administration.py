"""What PBS tells an acceptance about the upkeep of its nodes, and the orders that an operator may give.

    drain        pbsnodes -o -C REASON       a vnode that is already offline keeps its reason
    resume       pbsnodes -r -C ""
    reserve      pbs_rsub --hosts            a maintenance reservation: whole hosts, even if jobs run there
    give back    pbs_rdel                    PBS cannot take single hosts out of a running reservation: all go back, and
                                             only while those that did not pass are offline

A job in a reservation cannot use nodes outside it, so a reservation of hpcq for one or two nodes holds partners, too. Its
name at PBS says which nodes it is made for: hpcq-accept.n2.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpcq import nodelist
from hpcq.scheduler.administration import (
    OWN_MINUTES,
    OWN_RESERVATION,
    SILENT,
    Administration,
    NodeUpkeep,
    Reservation,
    Upkeep,
)
from hpcq.scheduler.pbs import shell
from hpcq.scheduler.pbs.nodes import (
    DSV,
    Ability,
    Dialect,
    Family,
    Listed,
    Vnode,
    came_up_s,
    leaves,
    read_dialect,
    read_dsv,
    read_plain,
    read_vnode,
    vnodes,
)
from hpcq.scheduler.pbs.queues import Queues
from hpcq.scheduler.types import CheckedItem, FreeUntil, NodeCondition, NodeState, SchedulerSettings
from hpcq.transport import Transport, quote

# ----------------------------------------------------------------------------------------------------------------------
# Read the reservations of `pbs_rstat -f`. Their names are not ours:
#
# PBS itself names them (R109.pbhead; M131.pbhead for maintenance). Their queue is the letter and the number: R109.
# Reserve_Name is the name that a person gave; several reservations may share it. PBS has no JSON and no dsv for them.


ID_PATTERN = re.compile(r"[RSM]\d+(?:\.[A-Za-z0-9][A-Za-z0-9.-]*)?")
#: reserve_state and reserve_substate of `pbs_rstat -f`. Source: convert_resv_state() in src/cmds/pbs_rstat.c and
#: enum resv_states in src/include/pbs_ifl.h of OpenPBS 23.06.
_RUNNING, _RUNNING_SUBSTATE = "RESV_RUNNING", "5"
_ALTERED = "RESV_BEING_ALTERED"  # for a moment after pbs_ralter; the substate tells whether it runs
_ENDING = {"RESV_BEING_DELETED", "RESV_DELETED", "RESV_FINISHED", "RESV_DELETING_JOBS"}
#: Degraded: one of its nodes is offline or down, before it began. In conflict: with a maintenance reservation.
_STANDING = {_RUNNING, _ALTERED, "RESV_CONFIRMED", "RESV_TIME_TO_RUN", "RESV_DEGRADED", "RESV_IN_CONFLICT"}
_CTIME = "%a %b %d %H:%M:%S %Y"
_ANSWER = re.compile(r"^([RSM]\d+\S*) (CONFIRMED|UNCONFIRMED|DENIED)\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PbsReservation:
    """One reservation. start and end are as PBS prints them: local time without a zone."""

    scheduler_job_id: str
    name: str
    queue: str
    state: str
    substate: str
    vnodes: tuple[str, ...]
    users: tuple[str, ...]
    start: str
    end: str
    #: Its vnodes with what it has of each: (v[0]:ncpus=2+v[1]:ncpus=1)+(pbn2:ncpus=3).
    resv_nodes: str = ""
    #: Of a reservation of hpcq: `.n2.n5`, the nodes that it is made for; "": all of them.
    made_for: str = ""

    @property
    def active(self) -> bool:
        """Whether jobs in it may run now."""
        return self.state == _RUNNING or (self.state == _ALTERED and self.substate == _RUNNING_SUBSTATE)

    @property
    def standing(self) -> bool:
        """Whether it accepts jobs, now or later: it is confirmed and not about to end, whatever happened to a node of it."""
        return self.state in _STANDING

    @property
    def ending(self) -> bool:
        """Whether PBS is removing it."""
        return self.state in _ENDING

    @property
    def maintenance(self) -> bool:
        """Whether it is a maintenance reservation: an administrator took whole hosts, whatever jobs run there."""
        return self.scheduler_job_id.startswith("M")

    def admits(self, user: str) -> bool:
        """Whether this user may submit to its queue."""
        return any(entry.partition("@")[0] in {user, "*"} for entry in self.users)


def read_reservations(text: str) -> list[PbsReservation]:
    """Read all reservations of `pbs_rstat -f`."""
    return [read_reservation(record) for record in read_plain(text) if record.kind == "Resv ID"]


def read_reservation(record: Listed) -> PbsReservation:
    """Read one record of `pbs_rstat -f`."""
    name = record.get("Reserve_Name").removeprefix("NULL")
    own = name.startswith(f"{OWN_RESERVATION}.")
    return PbsReservation(
        scheduler_job_id=record.name,
        name=OWN_RESERVATION if own else name,
        made_for=name.removeprefix(OWN_RESERVATION) if own else "",
        queue=record.get("queue") or record.name.partition(".")[0],
        state=record.get("reserve_state"),
        substate=record.get("reserve_substate"),
        vnodes=vnodes(record.get("resv_nodes")),
        users=tuple(one.strip() for one in record.get("Authorized_Users").split(",") if one.strip()),
        start=record.get("reserve_start"),
        end=record.get("reserve_end"),
        resv_nodes=record.get("resv_nodes"),
    )


def called(reservations: Sequence[PbsReservation], name: str) -> PbsReservation | None:
    """Find a reservation by its id, its queue, or the name a person gave it. One that is not ending goes first."""
    meant = [one for one in reservations if name in {one.scheduler_job_id, one.queue, one.name}]
    return next((one for one in meant if not one.ending), next(iter(meant), None))


def read_made(text: str) -> tuple[str, bool] | None:
    """Read the answer of pbs_rsub: the id, and whether the reservation is confirmed; None without an answer.

    PBS also ends with 0 when it denies a reservation.
    """
    match = _ANSWER.search(text)
    return None if match is None else (match[1], match[2] == "CONFIRMED")


def seen_from_inside(
    states: Sequence[NodeState], vnodes: Sequence[Vnode], ours: PbsReservation | None, name: str
) -> list[NodeState]:
    """Return the nodes as a job in a reservation sees them.

    The reservation's own nodes are idle if only the reservation holds them. All other nodes are out of its reach.
    """
    mine = _hosts(vnodes, ours) if ours is not None else set()
    busy = {vnode.host for vnode in vnodes if vnode.jobs}
    found = []
    for state in states:
        condition, reason = state.condition, state.reason
        if ours is None or state.node not in mine or not ours.active:
            condition = NodeCondition.RESERVED if condition is NodeCondition.IDLE else condition
            reason = f"reservation {name} is not active" if state.node in mine else f"not in reservation {name}"
        elif condition in {NodeCondition.RESERVED, NodeCondition.MAINTENANCE}:
            condition = NodeCondition.BUSY if state.node in busy else NodeCondition.IDLE
        found.append(replace(state, condition=condition, reason=reason))
    return found


def taken_soon(
    states: Sequence[NodeState], vnodes: Sequence[Vnode], reservations: Sequence[PbsReservation], now: str
) -> list[NodeState]:
    """Return the nodes as a job outside all reservations sees them: each until its next reservation begins.

    A free node counts as reserved if its reservation runs or begins at an unknown time.
    """
    found = {state.node: state for state in states}
    for one in reservations:
        if not one.standing:
            continue
        begins_s = None if one.active else _seconds_until(one.start, now)
        words = f"reservation {one.queue}{f' of {one.name}' if one.name else ''}"
        for node in _hosts(vnodes, one) & found.keys():
            state = found[node]
            if state.condition is NodeCondition.IDLE and begins_s is None:
                state = replace(state, condition=NodeCondition.RESERVED, reason=state.reason or f"{words}, from {one.start}")
            elif begins_s is not None and (state.bounded is None or begins_s < state.bounded.in_s):
                state = replace(state, bounded=FreeUntil(f"{words} begins at {one.start}", begins_s))
            found[node] = state
    return list(found.values())


def _hosts(listed: Sequence[Vnode], one: PbsReservation) -> set[str]:
    names = set(one.vnodes)
    return {vnode.host for vnode in listed if vnode.name in names or one.scheduler_job_id in vnode.reserved_by}


def _seconds_until(moment: str, now: str) -> float | None:
    """Both are local times of the server's machine."""
    try:
        return (dt.datetime.strptime(moment, _CTIME) - dt.datetime.strptime(now.strip(), _CTIME)).total_seconds()
    except ValueError:
        return None


# ----------------------------------------------------------------------------------------------------------------------


_SIGN = "== hpcq =="
#: Source: src/server/node_manager.c of OpenPBS, momptr_down().
_NOT_HEARD = "node down: "
#: A node passes only with two partners at least. Partners make so many nodes of one or two, of which one may be bad.
_ENOUGH, _TOGETHER = 3, 4


class PbsAdministration(Administration):
    """Orders of `pbsnodes` and `pbs_rsub`, each one line that a person could type."""

    def __init__(self, transport: Transport, queue: str | None = None) -> None:
        """queue: that of the cluster file."""
        self._transport = transport
        self._queue = queue
        #: The queue of each known reservation, which is also PBS's name for it.
        self._queues: dict[tuple[str, tuple[str, ...]], str] = {}
        #: The nodes of each known reservation that it is made for; the others are partners.
        self._made_for: dict[tuple[str, tuple[str, ...]], set[str]] = {}
        #: Queue -> who may use that reservation.
        self._users: dict[str, tuple[str, ...]] = {}
        #: Host -> its vnodes. Orders name hosts, which PBS takes for all vnodes there; a vnode's own name is unknown to it.
        self._vnodes: dict[str, list[Vnode]] = {}
        #: The folder of the commands, if the cluster's shell does not find them: orders then include it.
        self._bin = ""
        #: What this release can do; of an unknown one, everything.
        self._dialect = Dialect(Family.UNKNOWN, "")

    def look(self) -> Upkeep:
        done = self._transport.sh(
            "command -v pbsnodes || echo not-found\n"
            + shell.subshell(
                "export TZ=UTC0 LC_ALL=C; command -v pbsnodes; id -un;"
                f" echo '{_SIGN}'; pbsnodes -av {DSV}; echo '{_SIGN}'; qstat -Bf {DSV}; qstat -Qf {DSV};"
                f" echo '{_SIGN}'; pbs_rstat -f"
            )
        )
        parts = done.text.split(f"{_SIGN}\n")
        if len(parts) != 4:
            return Upkeep()
        queues = Queues.of(read_dsv(parts[2]))
        version = queues.server.get("pbs_version")
        self._dialect = read_dialect(f"pbs_version = {version}" if version else parts[2])
        plain, found_at, user = [*parts[0].split(), "", "", ""][:3]
        self._bin = "" if plain == found_at else f"{found_at.rpartition('/')[0]}/"
        vnodes = [read_vnode(record) for record in read_dsv(parts[1]) if record.kind == "Name"]
        self._vnodes = {}
        for vnode in vnodes:
            self._vnodes.setdefault(vnode.host, []).append(vnode)
        found = []
        standing = [one for one in read_reservations(parts[3]) if one.standing]
        for one in standing:
            alone = sum(other.name == one.name for other in standing) == 1
            shown = _reservation(one, vnodes, user, alone=alone)
            if shown is not None:
                self._queues[shown.name, shown.nodes] = one.queue
                made_for = {node for node in shown.nodes if not one.made_for or f".{node}." in f"{one.made_for}."}
                self._made_for[shown.name, shown.nodes] = made_for
                self._users[one.queue] = one.users
                found.append(shown)
        return Upkeep(user, _nodes(vnodes), tuple(found), leaves(vnodes, queues.group_keys(self._queue)))

    def drain(self, nodes: Sequence[str], reason: str) -> str | None:
        return " && ".join(
            f"{{ {self._bin}pbsnodes -v {self._vnodes_of(node)} | grep -q 'state = .*offline'"
            f" || {self._bin}pbsnodes -o -C {quote(reason)} {quote(node)}; }}"
            for node in nodes
        )

    def resume(self, nodes: Sequence[str]) -> str | None:
        # -C '' removes the reason, which PBS would keep otherwise.
        return f"{self._bin}pbsnodes -r -C '' {' '.join(map(quote, nodes))}"

    def reserve(self, nodes: Sequence[str], user: str, standing: Reservation | None) -> str | None:  # noqa: ARG002
        if not self._dialect.has(Ability.MAINTENANCE_RESERVATIONS):
            return None
        # PBS cannot enlarge a reservation, so hpcq makes another one with the same name.
        partners = self._partners(nodes)
        hosts = " ".join(quote(node) for node in [*nodes, *partners])
        name = ".".join([OWN_RESERVATION, *nodes]) if partners else OWN_RESERVATION
        start = 'date -d "@$(($(date +%s) + 3))" +%Y%m%d%H%M.%S'
        users = quote(f"{user}@*")
        made = f'{self._bin}pbs_rsub -N {quote(name)} -R "$({start})" -D {60 * OWN_MINUTES} -U {users} --hosts {hosts}'
        return f"{made} | grep CONFIRMED"

    def give_back(self, standing: Reservation, nodes: Sequence[str]) -> str | None:
        # All of its nodes or none: PBS cannot take single hosts out of a running reservation.
        queue = self._queues.get((standing.name, standing.nodes), standing.name)
        kept = [
            f"{{ {self._bin}pbsnodes -v {self._vnodes_of(node)} | grep -q 'state = .*offline'"
            f" || {{ echo {quote(f'{node} is in it, and is not offline')} >&2; false; }}; }}"
            for node in standing.nodes
            if node not in nodes and node in self._made_for.get((standing.name, standing.nodes), standing.nodes)
        ]
        return " && ".join([*kept, f"{self._bin}pbs_rdel {quote(queue)}"])

    def admit(self, reservation: str, user: str) -> str | None:
        if not self._dialect.has(Ability.USERS_OF_RESERVATIONS):
            return None
        queue = next((queue for (name, _), queue in self._queues.items() if name == reservation), reservation)
        # qmgr could add to the queue's list, but pbs_rstat would go on to name the old users.
        users = ",".join([*self._users.get(queue, ()), f"{user}@*"])
        return f"{self._bin}pbs_ralter -U {quote(users)} {quote(queue)}"

    def _vnodes_of(self, node: str) -> str:
        return " ".join(quote(vnode.name) for vnode in self._vnodes.get(node, [])) or quote(node)

    def _partners(self, nodes: Sequence[str]) -> list[str]:
        """Return free hosts like these nodes, for a test to pair them with; none if the nodes are enough."""
        mine = self._vnodes.get(nodes[0], []) if nodes else []
        wanted = [(vnode.queue, vnode.features) for vnode in mine]
        free = [
            (host, parts)
            for host, parts in self._vnodes.items()
            if host not in nodes
            and all(part.words == "free" and not part.jobs and not part.reserved_by for part in parts)
            and not any(part.shared_always for part in parts)
            and {part.queue for part in parts} == {queue for queue, _ in wanted}
        ]
        alike = sorted(free, key=lambda one: ([(v.queue, v.features) for v in one[1]] != wanted, nodelist.natural(one[0])))
        return [host for host, _ in alike[: _TOGETHER - len(nodes)]] if len(nodes) < _ENOUGH else []

    def open_outward(self, reservation: str) -> str | None:  # noqa: ARG002 - PBS cannot do this
        return None


def _nodes(vnodes: Sequence[Vnode]) -> dict[str, NodeUpkeep]:
    found: dict[str, list[Vnode]] = {}
    for vnode in vnodes:
        found.setdefault(vnode.host, []).append(vnode)
    return {host: _node(host, parts) for host, parts in found.items()}


def _node(host: str, parts: Sequence[Vnode]) -> NodeUpkeep:
    words = {word.strip() for part in parts for word in part.words.split(",")}
    return NodeUpkeep(
        node=host,
        started_utc=_of_epoch(came_up_s(parts)),
        drained=bool(words & {"offline", "offline_by_mom"}),
        down=any(part.condition in {NodeCondition.DOWN, NodeCondition.POWERED_DOWN} for part in parts),
        reason=next((_reason(part.comment) for part in parts if part.comment), ""),
        partitions=tuple(dict.fromkeys(part.queue for part in parts if part.queue)),
    )


def _reason(comment: str) -> str:
    """Return a comment; one that the server itself wrote of a node that it does not hear, in hpcq's words."""
    return SILENT if comment.startswith(_NOT_HEARD) else comment


def _reservation(one: PbsReservation, vnodes: Sequence[Vnode], user: str, *, alone: bool) -> Reservation | None:
    """Return what an acceptance knows of it. alone: no other one has the name that a person gave it, if one did."""
    start, end = _utc(one.start), _utc(one.end)
    if start is None or end is None:
        return None
    hosts = dict.fromkeys(v.host for v in vnodes if v.name in one.vnodes or one.scheduler_job_id in v.reserved_by)
    return Reservation(
        name=one.name if one.name == OWN_RESERVATION or (one.name and alone) else one.queue,
        started_utc=start,
        ended_utc=end,
        nodes=tuple(hosts),
        active=one.active,
        maintenance=one.maintenance,
        mine=one.admits(user),
        native_id=one.queue,
    )


def _of_epoch(moment_s: int | None) -> str | None:
    return None if moment_s is None else f"{dt.datetime.fromtimestamp(moment_s, dt.UTC):%Y-%m-%dT%H:%M:%S}Z"


def _utc(text: str) -> str | None:
    try:
        moment = dt.datetime.strptime(text.strip(), "%a %b %d %H:%M:%S %Y")
    except ValueError:
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}Z"


# ----------------------------------------------------------------------------------------------------------------------
# What `hpcq cluster check` asks PBS: a job on one node now, and the ways to start processes on a job's other nodes.
#
# pbs_tmrsh   what hpcq uses: passes the exit code but no standard input or output: both go through files of the job
# pbsdsh      with `task_starter: pbsdsh`: passes no exit code either, which goes through a file of the job, too
# mpirun      through pbs_tmrsh as its remote shell, or through its own support for PBS (tm)


_PROBE_WAIT_S = 15
_RC = "@rc "
#: What may start processes on a job's other nodes; the first is the default.
_STARTERS = ("pbs_tmrsh", "pbsdsh")
_TWO = """
n=$(tail -n 1 "$PBS_NODEFILE")
command -v pbs_tmrsh >/dev/null && { pbs_tmrsh "$n" /bin/sh -c 'exit 7'; echo "pbs_tmrsh $?"; } || echo "pbs_tmrsh missing"
command -v pbsdsh >/dev/null && {
    said=$(pbsdsh -n "$(($(wc -l <"$PBS_NODEFILE") - 1))" -- /bin/sh -c 'exit 7' 2>&1)
    case $said in *"exit status 7"*) echo "pbsdsh 7" ;; *) echo "pbsdsh 0" ;; esac
} || echo "pbsdsh missing"
command -v ompi_info >/dev/null && echo "ompi_tm $(ompi_info --parsable 2>/dev/null | grep -c 'mca:plm:tm:')"
"""


def probe_command(script: str, settings: SchedulerSettings, reservation_queue: str | None, *, node_count: int = 1) -> str:
    """Return a command that runs a script in a job and waits for its output. The job must start within 15 s.

    The job writes its output itself where it sees the folder: PBS delivers late, or never, where copying fails.
    """
    options = [f"-q {quote(queue)}" for queue in (reservation_queue or settings.partition,) if queue]
    options += [f"-A {quote(settings.account)}"] if settings.account else []
    options += [f"-P {quote(settings.extra['project'])}"] if "project" in settings.extra else []
    options += [f"-l {quote(settings.extra['resources'])}"] if "resources" in settings.extra else []
    chunk = f":{settings.extra['select']}" if "select" in settings.extra else ""
    options.append(f"-l select={quote(f'{node_count}{chunk}')} -l place=scatter -l walltime=1:00 -r n -j oe -N hpcq-probe")
    body = f'[ ! -d "$HPCQ_PROBE" ] || exec >"$HPCQ_PROBE/seen"\n{{ /bin/sh -c {quote(script)}; }} 2>&1; echo \'{_RC}\'$?'
    return shell.subshell(
        'd=$(mktemp -d "$HOME/.hpcq-probe-XXXXXX") && cd "$d" || exit 1\n'
        'trap \'[ -z "$id" ] || qdel "$id" >/dev/null 2>&1; rm -rf "$d"\' EXIT\n'
        f"printf '%s\\n' {quote(body)} >job.sh\n"
        f'id=$(qsub {" ".join(options)} -v HPCQ_PROBE="$d" -o "$d/out" job.sh) || exit 1\n'
        f"i=0; while [ $i -lt {10 * _PROBE_WAIT_S} ] && ! grep -qs '^{_RC}' seen out; do sleep 0.3; i=$((i + 3))\n"
        ' case $(qstat -f "$id" 2>/dev/null | sed -n "s/^ *job_state = //p") in R|E) i=0 ;; esac\n'
        "done\n"
        f"grep -qs '^{_RC}' seen || ln -f out seen 2>/dev/null\n"
        f"grep -qs '^{_RC}' seen || {{\n"
        " words=$(qstat -f \"$id\" | sed -n 's/^ *comment = //p')\n"
        f' echo "no node within {_PROBE_WAIT_S} s: $words" >&2; exit 1\n}}\n'
        # What PBS is about to deliver needs the folder for a moment more.
        "j=0; while [ ! -e out ] && [ $j -lt 10 ]; do sleep 0.3; j=$((j + 1)); done; [ ! -e out ] || id=\n"
        f"grep -v '^{_RC}' seen; exit $(sed -n 's/^{_RC}//p' seen)"
    )


def site_items(
    transport: Transport,
    settings: SchedulerSettings,
    mpi_launch: Sequence[str] | None,
    *,
    queues: Queues,
    vnodes: Sequence[Vnode],
    cpus: tuple[int, int] | None,
) -> list[CheckedItem]:
    """Check the release, what the server shows and keeps, what jobs get, and with a job how processes start elsewhere.

    queues and vnodes: as they were listed for this check. cpus: how many processors a job gets on a node.
    """
    dialect = read_dialect(transport.sh(shell.subshell("qstat --version 2>&1")).text)
    if not queues.server.name:  # it does not answer
        return [release(dialect, settings)]
    return [
        release(dialect, settings),
        _history(queues.server),
        *_hidden(queues.server),
        *_shared(vnodes),
        *_processors(cpus),
        *_launch_ways(transport, settings, mpi_launch),
    ]


def release(dialect: Dialect, settings: SchedulerSettings) -> CheckedItem:
    """Which PBS it is, and what hpcq does without there. A release that hpcq cannot read is not ok."""
    if not dialect.known:
        advice = "hpcq takes it for a PBS of today: `hpcq cluster check` after each upgrade tells what changed"
        return CheckedItem("release", True, f"not recognised: {dialect.number or 'no answer'}", advice)
    lacks = dialect.lacks()
    if settings.extra.get("tolerate_node_failures") == "none":
        lacks.pop(Ability.NODE_FAILURES, None)
    words = "; ".join(f"no {ability}: {without}" for ability, without in lacks.items())
    return CheckedItem("release", Ability.DSV not in lacks, str(dialect), words or None)


def _history(server: Listed) -> CheckedItem:
    if server.get("job_history_enable") == "True":
        return CheckedItem("job history", True, "on")
    words = "a job that has ended is known by its exit file only; job_history_enable of the server keeps its exit status, too"
    return CheckedItem("job history", True, "off", words)


def _hidden(server: Listed) -> list[CheckedItem]:
    """Say that jobs of others are hidden, where they are: hpcq then yields to nobody."""
    if server.get("query_other_jobs", "False") == "True":
        return []
    advice = "hpcq cannot see that others wait, and never yields: set a budget with few nodes, or hours"
    return [CheckedItem("jobs of others", True, "hidden (query_other_jobs of the server is not True)", advice)]


def _shared(vnodes: Sequence[Vnode]) -> list[CheckedItem]:
    """Say which hosts are left out because jobs of others run there in any case; none left is not ok."""
    shared = nodelist.fold(sorted({vnode.host for vnode in vnodes if vnode.shared_always}, key=nodelist.natural))
    if not shared:
        return []
    some = any(not vnode.shared_always for vnode in vnodes)
    advice = f"jobs of others run there beside ours, whatever a job asks for: {'left out' if some else 'no host is left'}"
    return [CheckedItem("whole hosts", some, f"sharing = ignore_excl: {', '.join(shared)}", advice)]


def _processors(cpus: tuple[int, int] | None) -> list[CheckedItem]:
    """Say how many processors a job gets on each of its nodes."""
    if cpus is None:
        return []
    shown = f"{cpus[0]}" if cpus[0] == cpus[1] else f"{cpus[0]} to {cpus[1]}"
    one = "ncpus in the key select says so: programs get OMP_NUM_THREADS=1" if cpus == (1, 1) else None
    return [CheckedItem("processors", True, f"{shown} a node for each job", one)]


def _launch_ways(transport: Transport, settings: SchedulerSettings, mpi_launch: Sequence[str] | None) -> list[CheckedItem]:
    done = transport.sh(probe_command(_TWO, settings, None, node_count=2), timeout_s=120)
    found = dict(line.split(" ", 1) for line in done.text.splitlines() if line.count(" ") == 1)
    if done.returncode != 0 and not found:
        words = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        return [CheckedItem("launch on two nodes", False, words, "two free nodes are needed to try it")]
    items = _starters(found, settings.extra.get("task_starter", _STARTERS[0]))
    if mpi_launch is not None and "ompi_tm" in found:
        own = found["ompi_tm"] != "0"
        items.append(CheckedItem("mpi launch", True, "Open MPI's own support for PBS" if own else f"through {items[0].item}"))
    return items


def _starters(found: dict[str, str], chosen: str) -> list[CheckedItem]:
    """The one that is in use comes first, and only it must work."""
    works = [name for name in _STARTERS if found.get(name) == "7"]
    others = [name for name in works if name != chosen]
    items = []
    for name in sorted(_STARTERS, key=lambda one: one != chosen):
        said = "starts processes on the other node" if name in works else f"ended with {found.get(name)}"
        said = "missing" if found.get(name) == "missing" else said
        advice = None
        if name == chosen and name not in works:
            advice = f"write `task_starter: {others[0]}`" if others else "name another way in `launcher`, such as ssh {node}"
        items.append(CheckedItem(name, name != chosen or name in works, said, advice))
    return items
