"""Who else could have put a file or a folder where this user finds it: in /tmp anybody, in a group's folder its members.

own_folder.py makes and checks the folders that hpcq uses on a cluster, by a shell. This looks at what is already there on
this machine, whether it is a file that hpcq found by its name or the folder of a socket.

Each name from / down is looked at from within its parent, links too, and where a link leads is looked at from the start. A
parent that passed cannot lose a name that belongs to the user or to root, so what was seen stays there.
"""

from __future__ import annotations

import grp
import os
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hpcq.assets import user_name

_LINKS_MAX = 40
_ACCESS_LIST = "system.posix_acl_access"


def stranger(path: Path, *, groups: Collection[int] = ()) -> str:
    """Return the first name on the way to `path` that somebody else could replace, and who; empty: nobody could.

    groups: whoever is in one of these counts as the user, where a folder of that group is his place to write. What is not
    there was put there by nobody.
    """
    left, at, links = _names(str(path.absolute())), Path("/"), 0
    above = at.lstat()
    # In a container with a user namespace root's files have another owner, the one of /.
    ours = {os.geteuid(), 0, above.st_uid}
    while left:
        if words := _everybody(at, above) or _some_group(at, above, groups):
            return words
        name = left.pop(0)
        if name == "..":
            at = at.parent
            above = at.lstat()
            continue
        here = at / name
        try:
            found = here.lstat()
        except OSError:
            return ""
        if found.st_uid not in ours and not _of_a_colleague(found, above, groups):
            return f"{here}: belongs to {user_name(found.st_uid)}: must belong to you or to root"
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _LINKS_MAX:
                return f"{here}: too many links"
            to = str(here.readlink())
            left = _names(to) + left
            if to.startswith("/"):
                at = Path("/")
                above = at.lstat()
            continue
        at, above = here, found
    return _everybody(at, above) or _some_group(at, above, groups)


class Replaceable(NamedTuple):
    """Where everybody could put something else in the place of what is there, and the words for it."""

    at: Path
    words: str


def open_to_all(path: Path) -> Replaceable | None:
    """Return the first folder above `path`, or above where its links lead, in which anybody could replace what is there.

    Unlike `stranger` it takes folders of other users and of groups as they are.
    """
    for folder in dict.fromkeys((*reversed(path.absolute().parents), *reversed(Path(os.path.realpath(path)).parents))):
        with suppress(OSError):  # what is not there, or cannot be entered, is said better by whoever opens the file
            if words := _everybody(folder, folder.stat()):
                return Replaceable(folder, words)
    return None


def replaceable(file: Path) -> Replaceable | None:
    """Return where everybody could change what a file says: in itself, or in a folder above it."""
    with suppress(OSError):
        if words := _everybody(file, file.stat()):
            return Replaceable(file, words)
    return open_to_all(file)


def others_write(folder: Path) -> bool:
    """Whether somebody else may make files in a folder, also where he could replace none, as in /tmp."""
    found = folder.stat()
    return _writable_by_all(found) or bool(found.st_mode & stat.S_IWGRP and _group_words(folder, found))


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in {"", "."}]


def _writable_by_all(found: os.stat_result) -> bool:
    return bool(found.st_mode & stat.S_IWOTH) and not stat.S_ISLNK(found.st_mode)


def _everybody(at: Path, found: os.stat_result) -> str:
    if not _writable_by_all(found) or found.st_mode & stat.S_ISVTX:
        return ""
    return f"{at}: everybody can change it (mode {stat.S_IMODE(found.st_mode):o}): must be writable by nobody else"


def _some_group(at: Path, found: os.stat_result, groups: Collection[int]) -> str:
    if not found.st_mode & stat.S_IWGRP or found.st_mode & stat.S_ISVTX or found.st_gid in groups:
        return ""
    return _group_words(at, found)


def _group_words(at: Path, found: os.stat_result) -> str:
    """Who the group is that may write there; empty if it is the user alone."""
    if _has_access_list(at):
        return f"{at}: its access list lets others change it: must be writable by nobody else"
    name = _group_name(found.st_gid)
    if found.st_gid == os.getegid() and name == user_name(os.geteuid()):
        return ""  # a group of the user's own, as most systems give each user
    return f"{at}: the group {name} can change it (mode {stat.S_IMODE(found.st_mode):o}): must be writable by nobody else"


def _of_a_colleague(found: os.stat_result, above: os.stat_result, groups: Collection[int]) -> bool:
    """Whether a name of another user is in a folder of a group of ours, or is such a folder and not where everybody writes."""
    if _writable_by_all(above):
        return False
    its_folder = bool(above.st_mode & stat.S_IWGRP) and above.st_gid in groups
    same_owner = found.st_uid == above.st_uid  # and the folder above was taken
    is_one = stat.S_ISDIR(found.st_mode) and bool(found.st_mode & stat.S_IWGRP) and found.st_gid in groups
    return its_folder or same_owner or is_one


def _has_access_list(at: Path) -> bool:
    try:
        return bool(os.getxattr(at, _ACCESS_LIST))
    except OSError:
        return False


def _group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return f"gid-{number}"
