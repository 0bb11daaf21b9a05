"""Reach a cluster: on this machine, or through OpenSSH. Runs commands and copies folders, nothing else.

Hides: process starts, the user's own ssh configuration, one multiplexed connection per host, login shells that are not
POSIX, profiles that print, and the difference between "the command failed" and "the machine could not be reached",
which ssh's exit code alone does not show.

    sh(script)                 ssh HOST  /bin/sh -c 'S=$(head -c N); eval "$S"'   <- stdin: the script, then its input
    push(folder, there)        a tar stream into `there`
    pull(there, names, here)   a tar stream back; each file is written aside and renamed

The script travels on standard input. So its length has no limit, no login shell parses it, and a process list shows
nothing of it. The answer starts after a marker line, so a profile that prints does no harm.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import shlex
import signal
import stat
import subprocess
import tarfile
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import IO

from hpcq.errors import TransportError, of_the_machine
from hpcq.strangers import stranger

#: ssh closes a connection that is unused for this time.
_CONNECTION_KEPT_S = 30
#: A peer that is silent for 45 s is gone. Otherwise a connection that a firewall forgot would hang until TCP gives up.
_ALIVE_INTERVAL_S, _ALIVE_COUNT = 15, 3
#: The intervals of ssh when nobody configured any; Debian's ssh has the second one with BatchMode.
_NOBODYS_INTERVALS = {"serveraliveinterval 0", "serveraliveinterval 300"}
#: A process manager sets these for the ranks that it starts. A program that inherits them believes it is such a rank.
_RANK_PREFIXES = ("PMI_", "PMIX_")
#: Larger than what any kernel keeps of a test (128 MiB of samples); the results of a tournament are many.
_PULLED_MAX_BYTES, _LARGE_MAX_BYTES, _LARGE_NAME = 2**28, 2**33, "spool.jsonl"
_LARGE = "@larger "
#: What a job calls its files may be more than this machine's disk takes, or be two things at once.
_OF_THE_NAME = {errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP}
#: Every script there begins with this: what hpcq makes on a cluster is its user's alone.
_PRIVATE = "umask 077"


@dataclass(frozen=True, slots=True)
class Completed:
    """The outcome of a command."""

    returncode: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are not UTF-8 are replaced and never raise an error."""
        return self.stdout.decode("utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class CommandEnvironment:
    """Which variables of the person's shell reach the commands on a cluster, here and behind ssh.

    scrubbed_prefixes: variables that begin so are removed, except those in `kept`. assigned: variables to add.
    """

    scrubbed_prefixes: tuple[str, ...] = ()
    kept: frozenset[str] = frozenset()
    assigned: Mapping[str, str] = field(default_factory=dict)

    def of_this_process(self) -> dict[str, str]:
        """The environment for a command on this machine, with messages in English."""
        prefixes = (*self.scrubbed_prefixes, *_RANK_PREFIXES)
        kept = {key: value for key, value in os.environ.items() if key in self.kept or not key.startswith(prefixes)}
        return {**kept, "LC_ALL": "C", **self.assigned}

    def as_shell(self) -> str:
        """The same as lines of a POSIX shell."""
        beginnings = "\\|".join((*self.scrubbed_prefixes, *_RANK_PREFIXES))
        listed = f"env | sed -n 's/^\\(\\({beginnings}\\)[A-Za-z0-9_]*\\)=.*/\\1/p'"
        if self.kept:
            listed += " | grep -vx " + " ".join(f"-e {name}" for name in sorted(self.kept))
        lines = ["export LC_ALL=C", f"unset $({listed}) hpcq_none"]
        return "\n".join([*lines, *(f"export {name}={quote(value)}" for name, value in self.assigned.items())])


def run_here(
    argv: Sequence[str],
    *,
    stdin: bytes | None = None,
    timeout_s: float | None = None,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    output: Path | None = None,
    passthrough: bool = False,
) -> Completed:
    """Run one program on this machine until it ends.

    passthrough: the program shares our standard output and error, and hpcq does not capture them.
    output: append both to this file instead, as they come.
    Raises TransportError if the program cannot be started, or does not end within timeout_s and is killed.
    """
    bounded = timeout_s is not None and not passthrough
    with contextlib.ExitStack() as stack:
        out: IO[bytes] | int | None = None if passthrough else subprocess.PIPE
        if output is not None:
            out = stack.enter_context(output.open("ab"))
        try:
            child = stack.enter_context(
                subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                    stdout=out,
                    stderr=subprocess.STDOUT if output is not None else out,
                    cwd=cwd,
                    env=dict(environment) if environment is not None else None,
                    # With a time-out, a process group of its own, so that everything it started ends with it.
                    process_group=0 if bounded else None,
                )
            )
        except FileNotFoundError:
            if cwd is not None and not cwd.is_dir():
                raise TransportError(f"{cwd}: no such folder: {argv[0]} was to run there") from None
            raise TransportError(f"{argv[0]}: not found on this machine", f"install {argv[0]} or put it on PATH") from None
        except OSError as error:
            raise TransportError(f"{argv[0]}: cannot be started: {error.strerror}") from None
        stdout, stderr = _communicate(child, argv[0], stdin, timeout_s)
    return Completed(child.returncode, stdout or b"", (stderr or b"").decode("utf-8", errors="replace"))


def _communicate(
    child: subprocess.Popen[bytes], name: str, stdin: bytes | None, timeout_s: float | None
) -> tuple[bytes | None, bytes | None]:
    try:
        return child.communicate(stdin, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _end_group(child)
        raise TransportError(
            f"{name}: no end after {timeout_s:g} s: killed",
            "raise the time-out or look at that machine",
            transient=True,
        ) from None
    except BaseException:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGTERM)
        child.terminate()
        raise


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End a child and all that it started. Waits for no pipe: a process that left the group may hold it forever."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


#: What the system says of a place that takes no more: of a user's share of it, and of all of it.
_FULL = (os.strerror(errno.EDQUOT), os.strerror(errno.ENOSPC))


def hint_where_full(words: str) -> str | None:
    """Return what to do about a place that takes no more, by the system's words; None where these say something else."""
    return "make room there and type `hpcq resume`" if any(one in words for one in _FULL) else None


class Transport(ABC):
    """One way to reach one cluster."""

    #: The name of the place in messages: "here" or "ssh alpha-head".
    where: str

    def __init__(self, environment: CommandEnvironment | None = None) -> None:
        self.environment = environment or CommandEnvironment()

    @abstractmethod
    def sh(self, script: str, *, timeout_s: float = 120.0, stdin: bytes = b"") -> Completed:
        """Run a POSIX sh script there. Raises TransportError if the place cannot be reached."""

    def push(self, folder: Path, there: str, names: Sequence[str] | None = None) -> None:
        """Copy the content of `folder` (or only its `names`) into the folder `there`, readable only by the user."""
        script = f"mkdir -p -- {quote(there)} && tar -C {quote(there)} --no-same-owner --no-same-permissions -xf -"
        done = self.sh(script, timeout_s=600, stdin=_tar_bytes(folder, names))
        if done.returncode != 0:
            words = done.stderr.strip()
            cause = words.partition("\n")[0] or f"exit code {done.returncode}"
            hint = hint_where_full(words) or "work_directory in the cluster file must be writable"
            raise TransportError(f"{self.where}: {there}: cannot write there: {cause}", hint)

    def pull(self, there: str, names: Sequence[str], folder: Path) -> list[str]:
        """Copy `names` (files, or the files below folders, below `there`) into `folder`; skip those that do not exist.

        Returns which files stay there, and why: those that nothing of hpcq writes so large, and names that this disk has no
        room for. A node may have written them.
        """
        listed = "\n".join(names).encode()
        large = f"\\( -size +{_PULLED_MAX_BYTES // 512} ! -name {_LARGE_NAME} -o -size +{_LARGE_MAX_BYTES // 512} \\)"
        told = f'-exec sh -c \'printf "%s\\n" "{_LARGE}$1" >&2\' sh {{}} \\;'
        script = (
            f"cd -- {quote(there)} || exit 1\n"
            'while IFS= read -r n || [ -n "$n" ]; do [ ! -e "$n" ] || '
            f'find "./$n" -type f \\( {large} {told} -o -print0 \\); done | tar --null -T - -cf -; true'
        )
        done = self.sh(script, timeout_s=600, stdin=listed)
        if done.returncode != 0:
            raise TransportError(f"{self.where}: {there}: cannot be read: {done.stderr.strip()}")
        large_ones = [
            line.removeprefix(_LARGE).removeprefix("./") for line in done.stderr.splitlines() if line.startswith(_LARGE)
        ]
        most = {name: _LARGE_MAX_BYTES if PurePosixPath(name).name == _LARGE_NAME else _PULLED_MAX_BYTES for name in large_ones}
        left = [f"{name}: larger than {size_bytes >> 20} MiB" for name, size_bytes in most.items()]
        return left + _untar(done.stdout, folder, f"{self.where}: {there}")


class Here(Transport):
    """This machine, without a login."""

    where = "here"

    def sh(self, script: str, *, timeout_s: float = 120.0, stdin: bytes = b"") -> Completed:
        text = f"{_PRIVATE}\n{script}".encode()
        argv = ["/bin/sh", "-c", _from_stdin(text)]
        return run_here(argv, stdin=text + stdin, timeout_s=timeout_s, environment=self.environment.of_this_process())


class Ssh(Transport):
    """A machine behind OpenSSH, with the user's own configuration and one connection for all commands."""

    def __init__(self, host: str, config: Path | None = None, environment: CommandEnvironment | None = None) -> None:
        super().__init__(environment)
        self.host = host
        self.where = f"ssh {host}"
        self._argv = ["ssh", *(["-F", str(config)] if config else []), "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"]
        self._multiplexed = False

    def sh(self, script: str, *, timeout_s: float = 120.0, stdin: bytes = b"") -> Completed:
        marker = f"hpcq-{secrets.token_hex(8)}"
        # ssh exits with 255 if it lost the connection, but a command may exit so too. So its code follows the answer.
        wrapped = f'(\n{script}\n)\nhpcq_rc=$?; printf \'\\n%s %s\\n\' {marker} "$hpcq_rc"; exit "$hpcq_rc"\n'
        text = f"echo {marker}\n{_PRIVATE}\n{self.environment.as_shell()}\n{wrapped}".encode()
        remote = f"/bin/sh -c '{_from_stdin(text)}'"
        done = run_here([*self._connection(), "--", self.host, remote], stdin=text + stdin, timeout_s=timeout_s)
        before, found, answer = done.stdout.partition(f"{marker}\n".encode())
        answer, ended, code = answer.rpartition(f"\n{marker} ".encode())
        if not (found and ended and code.strip().isdigit()):
            reason = done.stderr.strip() or before.decode("utf-8", errors="replace").strip()[-300:] or "no answer"
            raise TransportError(
                f"{self.where}: cannot be reached: {reason}",
                f"try: {shlex.join([*self._argv, self.host, 'true'])}",
                transient=True,
            )
        return Completed(int(code), answer, done.stderr)

    def _connection(self) -> list[str]:
        """The ssh command line; leaves a ControlPath of the user's own configuration alone."""
        if not self._multiplexed:
            self._multiplexed = True
            settings = run_here([*self._argv, "-G", self.host], timeout_s=20)
            lines = settings.text.splitlines()
            if not any(line.startswith("controlpath ") and line != "controlpath none" for line in lines):
                # Two configuration files may give two machines the same name, and %C would be the same too.
                path = _control_folder() / f"{blake2b(repr(self._argv).encode(), digest_size=4).hexdigest()}-%C"
                for option in ("ControlMaster=auto", f"ControlPath={path}", f"ControlPersist={_CONNECTION_KEPT_S}"):
                    self._argv += ["-o", option]
            if not _NOBODYS_INTERVALS.isdisjoint(lines):
                self._argv += ["-o", f"ServerAliveInterval={_ALIVE_INTERVAL_S}", "-o", f"ServerAliveCountMax={_ALIVE_COUNT}"]
        return self._argv


def _from_stdin(script: bytes) -> str:
    """A shell line without single quotes that reads its script from the first bytes of standard input."""
    return f'S=$(head -c {len(script)}); eval "$S"'


def quote(text: str) -> str:
    """Quote a text as one word of a POSIX shell."""
    return shlex.quote(text)


def _control_folder() -> Path:
    """A private folder with a short name, because a socket's path may have at most 104 bytes."""
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"hpcq-ssh-{os.getuid()}"
    where = "XDG_RUNTIME_DIR" if os.environ.get("XDG_RUNTIME_DIR") else "TMPDIR"
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:  # after `su` XDG_RUNTIME_DIR may be another user's
        raise TransportError(
            f"{folder}: cannot be made: {error.strerror}: ssh's socket needs a folder of your own",
            f"{where} must name a folder that you can write; `unset {where}` where it is another user's",
        ) from None
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise TransportError(f"{folder}: is not a folder of your own: ssh's socket needs one", f"remove {folder}")
    if stat.S_IMODE(found.st_mode) & 0o077:
        mode = f"{stat.S_IMODE(found.st_mode):03o}"
        raise TransportError(f"{folder}: others may use it (mode {mode}): ssh's socket needs mode 700", f"remove {folder}")
    if words := stranger(folder):  # who puts another folder in its place answers in the cluster's stead
        raise TransportError(
            f"{words}: ssh's socket would lie below it",
            f"{where} must name another folder: yours, or as /tmp is, of root and sticky",
        )
    return folder


def _tar_bytes(folder: Path, names: Sequence[str] | None) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in names if names is not None else sorted(path.name for path in folder.iterdir()):
            tar.add(folder / name, arcname=name, filter=_anonymous)
    return stream.getvalue()


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _untar(stream: bytes, folder: Path, origin: str) -> list[str]:
    """Unpack only regular files, and only below `folder`; each is written aside and renamed.

    Returns which cannot be, and why.
    """
    left = list[str]()
    if not stream:
        return left
    try:
        with tarfile.open(fileobj=io.BytesIO(stream), mode="r:") as tar:
            for member in tar:
                try:
                    if member.isfile():
                        _write_member(tar, member, folder)
                except OSError as error:
                    if error.errno not in _OF_THE_NAME:
                        raise
                    left.append(f"{PurePosixPath(member.name)}: {error.strerror}")
    except tarfile.TarError as error:
        raise TransportError(f"{origin}: the copy broke off: {error}", transient=True) from None
    return left


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts:
        return
    target = folder / name
    source = tar.extractfile(member)
    if source is None:
        return
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside.unlink(missing_ok=True)
        with aside.open("xb") as file:
            file.write(source.read())
        aside.chmod(member.mode & 0o777)
        aside.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):  # that its name is too long was said before
            aside.unlink(missing_ok=True)
        raise of_the_machine(error, target) or error from None
