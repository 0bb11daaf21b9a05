"""One writer at a time, even on file systems whose locks have no effect (Lustre with localflock, NFS with nolock).

    results.db.writer -> HOST/BOOT/PID-NAMESPACE/PID/START/TOKEN      a symbolic link: made atomically, needs no space

The database and each driver's journal have such a link. Its holder touches it every second. On the holder's own machine
others see at once that it is gone. On another machine it counts as gone when they have watched the link for STALE_S and
nobody touched it, so clocks need not agree. SQLite's own locks, and a journal's, are used in addition.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hpcq.assets import user_name
from hpcq.errors import HeldError, StoreError

BEAT_S = 1.0
#: A writer on another machine that does not touch its link for this long counts as dead.
STALE_S = 30.0
_LOOK_S = 0.05
#: Errors that mean that the folder cannot be written at all, whatever the kind of file.
_FOLDER_REFUSES = {errno.EACCES, errno.EROFS, errno.ENOENT, errno.ENOTDIR}
#: The locks of this process: a writer inside a writer shares its lock.
_held: set[Path] = set()


class WriterLock:
    """The right to write one file, held until `release`."""

    def __init__(self, file: Path, timeout_s: float, *, refuse_the_living: bool = False) -> None:
        """Take the lock. refuse_the_living: give up at the holder's first sign of life, not only after timeout_s.

        Raises HeldError if a living writer holds it; StoreError if one still holds it after timeout_s.
        """
        self.link = _link_of(file)
        self._mine = f"{_place()}/{os.getpid()}/{_started(os.getpid())}/{os.urandom(4).hex()}"
        _take(self.link, self._mine, timeout_s, refuse_the_living=refuse_the_living)
        self._stop = threading.Event()
        self._beat = threading.Thread(target=_beat, args=(self.link, self._mine, self._stop), daemon=True)
        self._beat.start()

    def held(self) -> bool:
        """Whether we still hold the lock: another process takes it away if it believes us dead."""
        return _holder(self.link) == self._mine

    def release(self) -> None:
        """Release the lock, so that others can write."""
        self._stop.set()
        self._beat.join()
        if self.held():
            self.link.unlink(missing_ok=True)


@contextmanager
def sole_writer(database: Path, timeout_s: float) -> Iterator[Callable[[], bool]]:
    """Hold the database alone. Yields a function that tells whether we still do.

    Raises StoreError if another process holds it too long. A writer inside a writer of this process shares its lock.
    """
    link = _link_of(database)
    if link in _held:
        yield lambda: True
        return
    lock = WriterLock(database, timeout_s)
    _held.add(link)
    try:
        yield lock.held
    finally:
        _held.discard(link)
        lock.release()


def is_written(file: Path) -> bool:
    """Whether a writer that is not known to be dead holds it now."""
    holder = _holder(_link_of(file))
    return holder is not None and not _dead(holder)


def _link_of(file: Path) -> Path:
    whole = file.resolve()
    return whole.with_name(f"{whole.name}.writer")


def _take(lock: Path, mine: str, timeout_s: float, *, refuse_the_living: bool) -> None:
    begun = time.monotonic()
    watched: tuple[str | None, int] | None = None
    since = begun
    while True:
        try:
            lock.symlink_to(mine)
            return
        except FileExistsError:
            if _is_no_link(lock):
                raise StoreError(
                    f"{lock}: is no link that hpcq made: must not be there", f"remove or rename it: {lock}"
                ) from None
        except OSError as error:
            if error.errno in _FOLDER_REFUSES:
                return  # the error from opening the file will say better what is wrong with this folder
            raise StoreError(f"{lock}: cannot be made: {error.strerror}") from error
        now = time.monotonic()
        holder = _holder(lock)
        seen = (holder, _touched_ns(lock))
        alive = watched is not None and watched[0] == holder and seen != watched
        if seen != watched:
            watched, since = seen, now
        if holder is not None and (_dead(holder) or now - since > STALE_S):
            _take_away(lock, holder)
        elif refuse_the_living and holder is not None and (alive or _here(holder)):
            raise HeldError(f"{lock}: held by {_said(holder)}")
        elif now - begun > timeout_s:
            raise StoreError(f"{lock}: locked by another process for {timeout_s:.0f} s: {_said(holder)}")
        else:
            time.sleep(_LOOK_S)


def _take_away(lock: Path, holder: str) -> None:
    """Remove a dead holder's link, but never one that another process made meanwhile."""
    aside = lock.with_name(f"{lock.name}.{os.urandom(4).hex()}")
    try:
        lock.rename(aside)
    except FileNotFoundError:
        return
    except OSError as error:
        owner = _owner(lock)
        raise StoreError(
            f"{lock}: left by {_said(holder)}, which has ended, and of {owner}: cannot be removed: {error.strerror}",
            f"in a folder with the sticky bit only {owner} or root can remove it: `rm {lock}`; or use a folder of your own",
        ) from error
    if _holder(aside) != holder:
        with contextlib.suppress(OSError):
            lock.symlink_to(aside.readlink())
    aside.unlink(missing_ok=True)


def _beat(lock: Path, mine: str, stop: threading.Event) -> None:
    while not stop.wait(BEAT_S):
        if _holder(lock) == mine:
            with contextlib.suppress(OSError):
                os.utime(lock, follow_symlinks=False)


def _is_no_link(lock: Path) -> bool:
    """Whether a file or folder has the name: nobody would ever release it."""
    try:
        return not stat.S_ISLNK(lock.lstat().st_mode)
    except OSError:
        return False


def _holder(lock: Path) -> str | None:
    try:
        return str(lock.readlink())
    except OSError:
        return None


def _owner(lock: Path) -> str:
    """The user whose link it is, by name where this machine has one."""
    try:
        number = lock.lstat().st_uid
    except OSError:
        return "another user"
    return user_name(number)


def _touched_ns(lock: Path) -> int:
    try:
        return lock.lstat().st_mtime_ns
    except OSError:
        return 0


def _dead(holder: str) -> bool:
    """Whether a holder on this machine is gone; False for another machine, where hpcq cannot know."""
    parts = holder.rsplit("/", 3)
    return _here(holder) and parts[1].isdecimal() and _started(int(parts[1])) != parts[2]


def _here(holder: str) -> bool:
    """Whether a holder names a process of this machine."""
    parts = holder.rsplit("/", 3)
    return len(parts) == 4 and parts[0] == _place()


def _place() -> str:
    """Host, boot and namespace of process numbers: the place where a process number is valid."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
        return f"{socket.gethostname()}/{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return f"{socket.gethostname()}/unknown/unknown"


def _started(pid: int) -> str:
    """When a process started, in ticks since the boot; empty if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in {"Z", "X"} else fields[19]


def _said(holder: str | None) -> str:
    if holder is None or holder.count("/") < 5:
        return "it does not say who it is"
    parts = holder.split("/")
    return f"process {parts[3]} on {parts[0]}"
