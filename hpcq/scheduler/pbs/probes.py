"""What `hpcq cluster check` asks PBS: a job on one node now, and the ways to start processes on a job's other nodes.

pbs_tmrsh   what hpcq uses: passes the exit code but no standard input or output: both go through files of the job
pbsdsh      with `task_starter: pbsdsh`: passes no exit code either, which goes through a file of the job, too
mpirun      through pbs_tmrsh as its remote shell, or through its own support for PBS (tm)
"""

from __future__ import annotations

from collections.abc import Sequence

from hpcq.scheduler.pbs import shell
from hpcq.scheduler.pbs.dialects import NEEDED, Ability, Dialect, Family, read_dialect
from hpcq.scheduler.types import CheckedItem, SchedulerSettings
from hpcq.transport import Transport, quote

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


def site_items(transport: Transport, settings: SchedulerSettings, mpi_launch: Sequence[str] | None) -> list[CheckedItem]:
    """Check the release, the job history, and with a job on two nodes the ways to start processes there."""
    dialect = read_dialect(transport.sh(shell.subshell("qstat --version 2>&1")).text)
    return [release(dialect, settings), _history(transport), *_launch_ways(transport, settings, mpi_launch)]


def release(dialect: Dialect, settings: SchedulerSettings) -> CheckedItem:
    """Which PBS it is, and what hpcq does without there. A release that would spoil campaigns is not ok."""
    if dialect.family is Family.TORQUE:
        return CheckedItem("release", False, str(dialect), "hpcq knows OpenPBS and PBS Professional")
    if not dialect.known:
        advice = "hpcq takes it for a PBS of today: `hpcq cluster check` after each upgrade tells what changed"
        return CheckedItem("release", True, f"not recognised: {dialect.number or 'no answer'}", advice)
    lacks = dialect.lacks()
    if settings.extra.get("tolerate_node_failures") == "none":
        lacks.pop(Ability.NODE_FAILURES, None)
    words = "; ".join(f"no {ability}: {without}" for ability, without in lacks.items())
    return CheckedItem("release", not lacks.keys() & NEEDED, str(dialect), words or None)


def _history(transport: Transport) -> CheckedItem:
    said = transport.sh(shell.subshell("qstat -Bf | sed -n 's/^ *job_history_enable = //p'")).text.strip()
    if said == "True":
        return CheckedItem("job history", True, "on")
    words = "a job that has ended is known by its exit file only; job_history_enable of the server keeps its exit status, too"
    return CheckedItem("job history", True, "off", words)


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
