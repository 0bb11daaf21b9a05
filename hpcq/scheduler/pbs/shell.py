"""Shell text for a PBS server: it locates the commands, and lists, finds and ends jobs. This module runs nothing.

    PRELUDE        our shell may not be a login shell, so it finds the commands through /etc/pbs.conf
    listing(...)   one `qstat -f` of several ids, in a form that shows them all
    cancel(...)    only jobs with this id, this name and this user

`qstat` ends with 255 if the server does not answer. Over ssh that would look like a broken connection, so the script
returns 162 instead, as the other commands do.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpcq.scheduler.pbs.nodes import DSV
from hpcq.transport import quote

PRELUDE = (
    "command -v qstat >/dev/null 2>&1 || "
    'PATH="$PATH:$(sed -n "s/^PBS_EXEC=//p" "${PBS_CONF_FILE:-/etc/pbs.conf}" 2>/dev/null)/bin"; '
)
#: How many waiting jobs of other users one poll reads at most: the oldest ones matter.
_OTHERS_MAX = 200
#: A start time that never comes, for a job that hpcq is about to delete.
_NEVER = "203712312359"
_WITHOUT_VARIABLES = "sed 's/\\x1fVariable_List=[^\\x1f]*//'"
NODES_MARK = "@nodes"
SCHEDULERS_MARK = "@schedulers"
RESERVATIONS_MARK = "@reservations"
USER_MARK = "@user"
#: Before the ids that a listing asks for.
ASKED_MARK = "@asked"
#: Those of $ids that belong to this user and have the name in $wanted; only those in the states of $1. Those that wait
#: come first: one that is deleted after a running one may start on its nodes meanwhile.
_OURS = (
    "ours() { qstat -f " + DSV + ' $ids 2>/dev/null | awk -F\'\\037\' -v user="$(id -un)" -v wanted="$wanted" -v states="$1" \''
    '/^Job Id: /{id = substr($1, 9); sub(/[ \\t]*$/, "", id); name = owner = state = "";'
    " for (i = 2; i <= NF; i++) { if ($i ~ /^Job_Name=/) name = substr($i, 10);"
    " else if ($i ~ /^Job_Owner=/) owner = substr($i, 11); else if ($i ~ /^job_state=/) state = substr($i, 11) }"
    ' sub(/@.*/, "", owner);'
    ' if (owner == user && index(wanted, " " id "|" name " ") && index(states, state))'
    ' { if (index("QHW", state)) print id; else rest = rest id "\\n" } }'
    ' END { printf "%s", rest }\'; }\n'
)
#: How long a job may be running after its script has written its exit file; then its daemons will not end it any more.
_EXIT_TAKES_S = 15
#: Those of $ids that run although their script ended: each job's output, and so its exit file, is in its folder.
_OVERDUE = (
    "overdue() { qstat -f " + DSV + " $ids 2>/dev/null | awk -F'\\037' '"
    '/^Job Id: /{id = substr($1, 9); sub(/[ \\t]*$/, "", id); path = state = "";'
    " for (i = 2; i <= NF; i++) { if ($i ~ /^Output_Path=/) path = substr($i, 13);"
    ' else if ($i ~ /^job_state=/) state = substr($i, 11) } sub(/^[^:]*:/, "", path);'
    ' if (state == "R" && path != "") print id " " path}\' | while read -r id path; do'
    ' at=$(stat -c %Y -- "${path%/*}/exit.json" 2>/dev/null) || continue;'
    f' [ "$(($(date +%s) - at))" -lt {_EXIT_TAKES_S} ] || printf " %s " "$id"; done; }}\n'
)
#: How long an order to end a job waits for its server to hear of the job from its nodes.
_HEARD_WITHIN_S = 10
#: Whether one of $ids runs as far as the server knows, but its nodes have not confirmed that: it starts just now, or
#: the server was started again a moment ago. The server forgets an order of this moment when they confirm it: it ends
#: the job and records no deletion. Source: JOB_SUBSTATE_PRERUN in src/include/job.h; src/server/req_runjob.c.
_UNHEARD = (
    "unheard() { qstat -f " + DSV + " $ids 2>/dev/null | awk -F'\\037' '"
    '{run = pre = 0; for (i = 2; i <= NF; i++) { if ($i == "job_state=R") run = 1; else if ($i == "substate=41") pre = 1 }'
    " if (run && pre) found = 1} END {exit !found}'; }\n"
    f"wait_for_nodes() {{ look=0; while [ $look -lt {2 * _HEARD_WITHIN_S} ] && unheard; do"
    " look=$((look + 1)); sleep 0.5; done; }\n"
)


FOREIGN_MARK = "@foreign"
#: Say whose commands these are if they are not PBS's. Torque and Grid Engine have commands of the same names; Torque's
#: give their version on standard error, Grid Engine's in the first line of their help.
_WHOSE = r"""whose() {
    local said
    said=$(qstat --version 2>&1)
    case $said in *pbs_version*) return ;; esac
    said=$(printf '%s\n' "$said" | grep -i '^ *version:'; qstat -help 2>&1 | head -n 1 | grep 'GE\|Grid Engine'
        lsid 2>/dev/null | head -n 1; flux --version 2>/dev/null | sed -n 's/^commands: */flux /p')
    [ -z "$said" ] || printf '@foreign\n%s\n' "$said" >&2
}
"""


def subshell(text: str) -> str:
    """Run a command in a subshell: it may call `exit`, and an exit code of 255 does not get out."""
    return f"(\nset -f; {PRELUDE}{text}\n)"


def listing(scheduler_job_ids: Sequence[str], *, ended: bool = False) -> str:
    """List all of these jobs, and the nodes if one of the jobs waits for a node that it names."""
    ids = " ".join(quote(one) for one in scheduler_job_ids)
    return subshell(
        f"printf '{USER_MARK} %s\\n{ASKED_MARK} %s\\n' \"$(id -un)\" {quote(' '.join(scheduler_job_ids))}\n"
        f"said=$(qstat {'-x ' if ended else ''}-f {DSV} {ids}); rc=$?\n"
        "printf '%s\\n' \"$said\"\n"
        "case $said in *'amount of resource: host'*|*'amount of resource: vnode'*)\n"
        f" printf '{NODES_MARK}\\n'; pbsnodes -av {DSV} ;;\nesac\n"
        '[ "$rc" -ne 255 ] || rc=162\nexit "$rc"'
    )


def nodes(*, reservations: bool, queues: bool) -> str:
    """List all vnodes; if they matter, also the reservations, for one of them may begin soon.

    queues: list the server and its queues before, which say what hosts a queue has.
    """
    also = "true" if reservations else "false"
    before = f"qstat -Bf {DSV} && qstat -Qf {DSV} || {{ whose; exit 162; }}\n" if queues else ""
    return subshell(
        f"{_WHOSE}{before}said=$(pbsnodes -av {DSV}) || {{ whose; exit 1; }}\n"
        "printf '%s\\n' \"$said\"\n"
        f"case $said in *'\x1fresv='*) true ;; *) {also} ;; esac || exit 0\n"
        f"printf '{RESERVATIONS_MARK} %s\\n' \"$(LC_ALL=C date '+%a %b %e %T %Y')\"; pbs_rstat -f"
    )


def topology() -> str:
    """List the server, its queues and all vnodes, and what the schedulers do with placement sets."""
    return subshell(
        f"qstat -Bf {DSV} && qstat -Qf {DSV} && pbsnodes -av {DSV} || exit 162\n"
        f"printf '{SCHEDULERS_MARK}\\n'; qmgr -c 'list sched' 2>/dev/null | sed 's/^Sched /Sched: /'; true"
    )


def find(names: Sequence[str]) -> str:
    """Find this user's jobs with these names, also ended ones if the server remembers them."""
    wanted = " ".join(quote(one) for one in names)
    return subshell(
        f"u=$(id -un); ids=\nfor n in {wanted}; do\n"
        ' found=$(qselect -x -u "$u" -N "$n" 2>/dev/null); [ -n "$found" ] || found=$(qselect -u "$u" -N "$n") || exit $?\n'
        ' ids="$ids $found"\ndone\n'
        '[ -n "$(echo $ids)" ] || exit 0\n'
        f'said=$(qstat -x -f {DSV} $ids 2>/dev/null); [ -n "$said" ] || said=$(qstat -f {DSV} $ids); rc=$?\n'
        "printf '%s\\n' \"$said\"\n"
        'case $rc in 0|35|153) exit 0 ;; 255) exit 162 ;; esac; exit "$rc"'
    )


def cancel(jobs: Sequence[tuple[str, str]], *, queued_only: bool) -> str:
    """End those of these (id, name) that belong to this user.

    queued_only: first postpone each job's start, so that it cannot start meanwhile. A running job whose script ended
    long ago is deleted by force: its daemons wait for each other, and a plain qdel would end with 0 and do nothing. If
    the nodes of a running job have not confirmed its start, the order first waits some seconds for that.
    """
    ids = " ".join(quote(scheduler_job_id) for scheduler_job_id, _ in jobs)
    wanted = quote(" " + " ".join(f"{scheduler_job_id}|{name}" for scheduler_job_id, name in jobs) + " ")
    look = f"{_UNHEARD}wait_for_nodes\n{_OVERDUE}late=$(overdue)"
    put_off = f'ids=$(ours QHW); [ -n "$ids" ] || exit 0\nqalter -a {_NEVER} $ids >/dev/null 2>&1\n'
    return subshell(
        f"{_OURS}ids='{ids}'; wanted={wanted}\n"
        "words=$(qstat $ids 2>&1 >/dev/null); [ $? -ne 255 ] || { printf '%s\\n' \"$words\" >&2; exit 162; }\n"
        f"{put_off if queued_only else ''}"
        f"ids=$(ours {'QHW' if queued_only else 'QHWTRSUBE'})\n"
        f'[ -n "$ids" ] || exit 0\n{"late=" if queued_only else look}\n'
        "failed=0\nfor id in $ids; do\n"
        ' force=; case $late in *" $id "*) force="-W force" ;; esac\n'
        ' words=$(qdel $force "$id" 2>&1); rc=$?\n'
        # The daemon of its first node is dead: the server then deletes the job only by force.
        ' [ "$rc" -ne 222 ] || { words=$(qdel -W force "$id" 2>&1); rc=$?; }\n'
        " case $rc in 0|35|153) ;; *) printf '%s\\n' \"$words\" >&2; failed=$rc ;; esac\ndone\n"
        'exit "$failed"'
    )


def others() -> str:
    """List the oldest waiting jobs of other users, without their environments."""
    return subshell(
        "u=$(id -un)\n"
        'all=$(qselect -s Q) || exit $?\nmine=$(qselect -s Q -u "$u") || exit $?\n'
        'ids=$(printf \'%s\\n\' "$all" | grep -Fvx -- "$mine" | head -n '
        f'{_OTHERS_MAX})\n[ -n "$ids" ] || exit 0\n'
        f"said=$(qstat -f {DSV} $ids 2>/dev/null); rc=$?\n"
        f"printf '%s\\n' \"$said\" | {_WITHOUT_VARIABLES}\n"
        'case $rc in 0|35|153) exit 0 ;; 255) exit 162 ;; esac; exit "$rc"'
    )


def limits() -> str:
    """Show this user, the server and all its queues."""
    return subshell(
        f'printf \'{USER_MARK} %s\\n@groups %s\\n\' "$(id -un)" "$(id -Gn)"\nqstat -Bf {DSV} && qstat -Qf {DSV} || exit 162'
    )


def of_reservation(name: str, short: str, order: str) -> str:
    """Run a command on the reservation with that name: $id is its id, $queue its queue. Ends with 1 without one."""
    return subshell(
        f"name={quote(name)}; short={quote(short)}\n"
        'found=$(pbs_rstat -f | awk -v name="$name" -v short="$short" \''
        '/^Resv ID: /{id = $3; queue = id; sub(/[.].*/, "", queue); given = ""}'
        ' $1 == "Reserve_Name" {given = substr($0, index($0, "= ") + 2)}'
        ' $1 == "reserve_state" && $3 !~ /DELET|FINISHED/ && (id == name || queue == name || given == name || given == short)'
        " {print id, queue; exit}')\n"
        '[ -n "$found" ] || { echo "no reservation $name" >&2; exit 1; }\n'
        f"id=${{found% *}}; queue=${{found#* }}\n{order}"
    )


def reserve(name: str, chunks: Sequence[str], place: str, minutes: int) -> str:
    """Make a reservation that begins in a moment. If PBS cannot confirm it within 20 s, PBS removes it."""
    return subshell(
        'start=$(date -d "@$(($(date +%s) + 3))" +%Y%m%d%H%M.%S)\n'
        f'pbs_rsub -I -20 -N {quote(name)} -R "$start" -D {60 * minutes}'
        f" -l select={quote('+'.join(chunks))} -l place={quote(place)}"
    )


def later(minutes: int) -> str:
    """Return the time of day, in the form of PBS, that is this many minutes from now."""
    return f'"$(date -d "@$(($(date +%s) + {60 * minutes}))" +%Y%m%d%H%M.%S)"'
