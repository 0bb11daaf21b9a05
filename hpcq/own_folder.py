"""Folders that nobody else can change or put another in place of: what hpcq runs and believes lies in such folders only.

    /        scratch      me          hpcq       builds
    above    above        above       above      own

    above    belongs to the user, to root or to somebody trusted, and nobody else can replace what lies in it: only these write
             there, or it is sticky, as /tmp is
    own      belongs to the user, and only the user writes there

A shell walks from / down, one name at a time, each seen from within its parent. A parent that passed the check cannot
lose a name that belongs to the user, to root or to somebody trusted. So what was seen is what is entered, and stays
there. A link counts as a name, and where it leads is walked from the start. What is missing is made with mode 700.

A group whose name is the user's own, as most Linux systems give each user, counts as the user. Access lists (ACLs) that
let others write show as a writable group, and `ls -l` marks them with +: then nothing says that this group is all.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpcq.definition.model import NOBODY_ELSE, Trusted
from hpcq.errors import HpcqError
from hpcq.transport import Transport, hint_where_full, quote

#: Exit code of a script at a folder that is not safe.
UNSAFE = 96


#: enter PATH own|above [make]: go to PATH, or exit with words on standard error.
_ENTER = r"""
me=$(id -u) private=
[ "$(id -gn 2>/dev/null)" != "$(id -un 2>/dev/null)" ] || private=$(id -g)
unsafe() { printf '%s\n' "$1" >&2; exit UNSAFE; }
among() { case " $3 " in *" $1 "*|*" $2 "*) return 0;; esac; return 1; } # NUMBER NAME LIST
# may_be WHERE own|above NAME OWNER GROUP MODE: a name in the present folder; a link has an owner, but no mode
may_be() {
    [ -n "${6-}" ] || unsafe "$1: cannot be looked at"
    if [ "$4" != "$me" ]; then
        name=$(stat -c %U -- "$3" 2>/dev/null || echo "$4")
        [ "$2" = above ] || unsafe "$1: belongs to $name: must be yours"
        [ "$4" = 0 ] || among "$4" "$name" "$trusted_users" ||
            unsafe "$1: belongs to $name, who can change it: must belong to you, to root or to one of trusted_users"
    fi
    [ ! -L "$3" ] || return 0
    [ "$2" = own ] || [ $((0$6 & 01000)) -eq 0 ] || return 0
    can="can change what hpcq keeps there"
    [ "$2" = own ] || can="can replace what lies in it"
    [ $((0$6 & 02)) -eq 0 ] || unsafe "$1: everybody $can (mode $6): must be writable by nobody else"
    [ $((0$6 & 020)) -eq 0 ] || {
        who="the group $(stat -c %G -- "$3")"
        [ "$5" != "$private" ] || {
            # with an access list, the mode shows what the list allows in place of the group's rights
            case $(ls -ld -- "$3" 2>/dev/null) in ??????????+*) who="whom its access list names";; *) return 0;; esac
        }
        { [ "$2" = above ] && among "$5" "$(stat -c %G -- "$3")" "$trusted_groups"; } ||
            unsafe "$1: $who $can (mode $6): must be writable by nobody else"
    }
}
looked() { stat -c '%u %g %a' -- "$1" 2>/dev/null || echo; }
enter() {
    left=$1 hops=0
    while [ -n "$left" ]; do
        case $left in /*) cd -P / || exit UNSAFE; at=; may_be / above . $(looked .);; esac
        while [ "$left" != "${left#/}" ]; do left=${left#/}; done
        one=${left%%/*}; left=${left#"$one"}
        while [ "$left" != "${left#/}" ]; do left=${left#/}; done
        [ -n "$one" ] && [ "$one" != . ] || continue
        kind=above
        [ -n "$left" ] || kind=$2
        if [ "$one" = .. ]; then
            cd -P .. || exit UNSAFE
            at=$(pwd -P); may_be "$at" "$kind" . $(looked .); continue
        fi
        at=$at/$one
        if [ "${3-}" = make ] && [ ! -L "./$one" ] && [ ! -e "./$one" ]; then
            said=$(mkdir -- "./$one" 2>&1) && chmod 700 "./$one" || [ -d "./$one" ] ||
                unsafe "$at: cannot be made: ${said##*: }"
        fi
        found=$(looked "./$one")
        [ -n "$found" ] || unsafe "$at: is not there, or cannot be looked at"
        if [ -L "./$one" ]; then
            may_be "$at" above "./$one" $found
            hops=$((hops + 1)); [ $hops -le 40 ] || unsafe "$at: too many links"
            to=$(readlink -- "./$one"; echo .); to=${to%.}; to=${to%?}
            left=$to${left:+/$left}; at=${at%/*}
            continue
        fi
        [ -d "./$one" ] || unsafe "$at: is not a folder"
        may_be "$at" "$kind" "./$one" $found
        cd -P -- "./$one" 2>/dev/null || unsafe "$at: cannot be entered"
    done
}
""".replace("UNSAFE", str(UNSAFE))

HINT = (
    "chmod go-w that folder, or let work_directory (or --runs) name another one; whom else you trust there,"
    " trusted_users and trusted_groups of the cluster file say: docs/sites.md"
)


def entering(trusted: Trusted = NOBODY_ELSE) -> str:
    """Return shell lines that define `enter PATH own|above [make]`, which goes there or exits with words."""
    named = {"trusted_users": trusted.users, "trusted_groups": trusted.groups}
    return "\n".join([*(f"{key}={quote(' '.join(names))}" for key, names in named.items()), _ENTER])


def secure(
    transport: Transport, where: str, folders: Sequence[str], trusted: Trusted = NOBODY_ELSE, *, hint: str = HINT
) -> None:
    """Make these folders there if they are missing, and check that they are this user's alone and stay so.

    where: what the error begins with. hint: what to do about a folder at fault. Raises HpcqError that names the first one,
    TransportError if the place cannot be reached.
    """
    script = "\n".join([entering(trusted), *(f"enter {quote(folder)} own make" for folder in folders), "echo safe"])
    done = transport.sh(script)
    if done.returncode == 0 and done.text.strip() == "safe":
        return
    words = done.stderr.strip() or f"{', '.join(folders)}: cannot be looked at"
    # A machine that cannot run the script at all has checked nothing.
    advice = (
        hint_where_full(words) or hint
        if done.returncode == UNSAFE
        else "head, id, stat, mkdir and readlink must be on PATH there"
    )
    raise HpcqError(f"{where}: {words}" if where else words, advice)
