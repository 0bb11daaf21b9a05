"""Shell text for a PBS server: where its commands are, how jobs are listed, found and ended. Nothing is run here.

    PRELUDE        a login shell may not be what runs us: the commands are found where /etc/pbs.conf says
    listing(...)   one `qstat -f` of several ids, in a form that shows them all
    cancel(...)    only jobs with this id, this name and this user

`qstat` ends with 255 where the server does not answer. Over ssh that would look like a broken connection, so it
becomes 162, which
the other commands end with.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpcq.scheduler.pbs.records import DSV
from hpcq.transport import quote

PRELUDE = (
    "command -v qstat >/dev/null 2>&1 || "
    'PATH="$PATH:$(sed -n "s/^PBS_EXEC=//p" "${PBS_CONF_FILE:-/etc/pbs.conf}" 2>/dev/null)/bin"; '
)
#: Jobs of other people that one look reads at most: the oldest that wait are the ones that matter.
_OTHERS_MAX = 200
#: A moment that never comes for a job that is about to be deleted.
_NEVER = "203712312359"
_WITHOUT_VARIABLES = "sed 's/\\x1fVariable_List=[^\\x1f]*//'"
NODES_MARK = "@nodes"
RESERVATIONS_MARK = "@reservations"
USER_MARK = "@user"
#: Those of $ids that are this user's and called as $wanted says; with the states of $1 only.
_OURS = (
    "ours() { qstat -f " + DSV + ' $ids 2>/dev/null | awk -F\'\\037\' -v user="$(id -un)" -v wanted="$wanted" -v states="$1" \''
    '/^Job Id: /{id = substr($1, 9); sub(/[ \\t]*$/, "", id); name = owner = state = "";'
    " for (i = 2; i <= NF; i++) { if ($i ~ /^Job_Name=/) name = substr($i, 10);"
    " else if ($i ~ /^Job_Owner=/) owner = substr($i, 11); else if ($i ~ /^job_state=/) state = substr($i, 11) }"
    ' sub(/@.*/, "", owner);'
    ' if (owner == user && index(wanted, " " id "|" name " ") && index(states, state)) print id}\'; }\n'
)


def subshell(text: str) -> str:
    """A command of its own: it may end with `exit`, and 255 does not leave it."""
    return f"(\nset -f; {PRELUDE}{text}\n)"


def listing(native_ids: Sequence[str], *, ended: bool = False) -> str:
    """All of these jobs, and the nodes where one of them waits for a node that it names."""
    ids = " ".join(quote(one) for one in native_ids)
    return subshell(
        f"printf '{USER_MARK} %s\\n' \"$(id -un)\"\n"
        f"said=$(qstat {'-x ' if ended else ''}-f {DSV} {ids}); rc=$?\n"
        "printf '%s\\n' \"$said\"\n"
        "case $said in *'amount of resource: host'*|*'amount of resource: vnode'*)\n"
        f" printf '{NODES_MARK}\\n'; pbsnodes -av {DSV} ;;\nesac\n"
        '[ "$rc" -ne 255 ] || rc=162\nexit "$rc"'
    )


def nodes(*, reservations: bool) -> str:
    """All vnodes; and what reservations there are, where they matter: one of them may begin soon."""
    also = "true" if reservations else "false"
    return subshell(
        f"said=$(pbsnodes -av {DSV}) || exit 1\nprintf '%s\\n' \"$said\"\n"
        f"case $said in *'\x1fresv='*) true ;; *) {also} ;; esac || exit 0\n"
        f"printf '{RESERVATIONS_MARK} %s\\n' \"$(LC_ALL=C date '+%a %b %e %T %Y')\"; pbs_rstat -f"
    )


def find(names: Sequence[str]) -> str:
    """This user's jobs with these names, ended ones too where the server remembers them."""
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
    """End those of these (id, name) that are this user's. queued_only: a job whose time is put off cannot start meanwhile."""
    ids = " ".join(quote(native_id) for native_id, _ in jobs)
    wanted = quote(" " + " ".join(f"{native_id}|{name}" for native_id, name in jobs) + " ")
    put_off = f'ids=$(ours QHW); [ -n "$ids" ] || exit 0\nqalter -a {_NEVER} $ids >/dev/null 2>&1\n'
    return subshell(
        f"{_OURS}ids='{ids}'; wanted={wanted}\n"
        "words=$(qstat $ids 2>&1 >/dev/null); [ $? -ne 255 ] || { printf '%s\\n' \"$words\" >&2; exit 162; }\n"
        f"{put_off if queued_only else ''}"
        f"ids=$(ours {'QHW' if queued_only else 'QHWTRSUBE'})\n"
        "failed=0\nfor id in $ids; do\n"
        ' words=$(qdel "$id" 2>&1); rc=$?\n'
        # The daemon of its first node is dead: only by force does the server let it go.
        ' [ "$rc" -ne 222 ] || { words=$(qdel -W force "$id" 2>&1); rc=$?; }\n'
        " case $rc in 0|35|153) ;; *) printf '%s\\n' \"$words\" >&2; failed=$rc ;; esac\ndone\n"
        'exit "$failed"'
    )


def others() -> str:
    """The oldest waiting jobs of other people, without their environments."""
    return subshell(
        "u=$(id -un)\n"
        'all=$(qselect -s Q) || exit $?\nmine=$(qselect -s Q -u "$u") || exit $?\n'
        'ids=$(printf \'%s\\n\' "$all" | grep -Fvx -- "$mine" | head -n '
        f'{_OTHERS_MAX})\n[ -n "$ids" ] || exit 0\n'
        f"said=$(qstat -f {DSV} $ids 2>/dev/null); rc=$?\n"
        f"printf '%s\\n' \"$said\" | {_WITHOUT_VARIABLES}\n"
        'case $rc in 0|35|153) exit 0 ;; 255) exit 162 ;; esac; exit "$rc"'
    )


def limits(queue: str | None) -> str:
    """This user, the queues or the one, and the server."""
    which = quote(queue) if queue else ""
    return subshell(
        f'printf \'{USER_MARK} %s\\n@groups %s\\n\' "$(id -un)" "$(id -Gn)"\n'
        f"qstat -Bf {DSV} || exit 162\nqstat -Qf {DSV} {which} 2>/dev/null || qstat -Qf {DSV}"
    )


def of_reservation(name: str, short: str, order: str) -> str:
    """Run an order on the reservation of that name: $id is its id, $queue its queue. Ends with 1 where there is none."""
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
    """Make a reservation that begins in a moment; one that is not confirmed within 20 s is taken back by PBS itself."""
    return subshell(
        'start=$(date -d "@$(($(date +%s) + 3))" +%Y%m%d%H%M.%S)\n'
        f'pbs_rsub -I -20 -N {quote(name)} -R "$start" -D {60 * minutes}'
        f" -l select={quote('+'.join(chunks))} -l place={quote(place)}"
    )


def later(minutes: int) -> str:
    """A time of day in the form of PBS, so many minutes from now."""
    return f'"$(date -d "@$(($(date +%s) + {60 * minutes}))" +%Y%m%d%H%M.%S)"'
