"""The paths of all files of a run, and how its JSON files are read and written.

Hides the file names of docs/architecture.md, section "A run folder", and makes files appear whole or not at all:

    write_json: <name>.<pid>.tmp --fsync--> rename --> <name>
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, TypedDict

from hpcq.clock import utc_or_none
from hpcq.errors import CHANGED_HINT, StoreError, of_the_machine
from hpcq.shapes import misfit, shown

#: Names of a result line: test and repetition.
RESULT_NAME = re.compile(r"t([1-9]\d{0,8})-r([1-9]\d{0,8})\.json")
#: Larger than any real line; hpcq does not read a larger file.
_FILE_SIZE_MAX_BYTES = 16 * 2**20
#: Libraries write beside a result, and a node that lies as much as its disk holds.
_JOB_FILE_MAX_BYTES = 64 * 2**20
#: A cluster, as its file's name and as a folder.
_FOLDER_NAME = re.compile(r"(?!\.)[^/\x00-\x1f\x7f+]{1,200}")


_LinkFields = TypedDict("_LinkFields", {"name": str, "from": str, "to": str})


class _RunAlways(TypedDict):
    run: str
    campaign: str
    clusters: list[str]
    seed: int
    created_utc: str
    database: str


class _RunFields(_RunAlways, total=False):
    """The fields of run.json."""

    format: int
    links: list[_LinkFields]
    hpcq_version: str
    confirm: bool


class FailedStage(TypedDict):
    """The fields of what a failed stage leaves."""

    stage: str
    message: str
    hint: str | None
    exit_code: int


class FirstWave(TypedDict):
    """The fields of what a first wave leaves."""

    said: list[str]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The paths of one run."""

    path: Path

    @property
    def run(self) -> str:
        """Return the run of run.json, whatever the folder's name; before run.json exists, the folder's name."""
        return str((read_json_or_none(self.run_json) or {}).get("run") or self.path.name)

    @property
    def run_json(self) -> Path:
        return self.path / "run.json"

    def described_run(self) -> dict[str, Any]:
        """Return the content of run.json. Raises StoreError that names the first field that hpcq cannot have written."""
        found = read_json(self.run_json, _RunFields)
        if complaint := _contradiction(found):
            raise StoreError(f"{self.run_json}: {complaint}", CHANGED_HINT)
        return found

    @property
    def campaign_yaml(self) -> Path:
        return self.path / "campaign.yaml"

    @property
    def described(self) -> Path:
        """Return the folder of the descriptions of foreign programs that the run uses."""
        return self.path / "kernels"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def cluster_yaml(self, cluster: str) -> Path:
        """Return the path of the copy of the cluster file."""
        return self.path / "clusters" / f"{cluster}.yaml"

    def plan(self, cluster: str) -> Path:
        """Return the path of a cluster's plan."""
        return self.path / cluster / "plan.json"

    def build(self, cluster: str) -> Path:
        """Return the path of the record of what was built on a cluster."""
        return self.path / cluster / "build.json"

    def journal(self, cluster: str) -> Path:
        """Return the path of the driver's journal of a cluster."""
        return self.path / cluster / "journal.jsonl"

    def confirmed(self, cluster: str) -> Path:
        """Return the path of the marker of a cluster whose suspects were measured again."""
        return self.path / cluster / "confirmed.json"

    @property
    def confirms(self) -> bool:
        """Return whether the run measures its suspects again."""
        return bool((read_json_or_none(self.run_json) or {}).get("confirm"))

    def to_confirm(self) -> list[str]:
        """Return the clusters of run.json whose suspects are still to be measured again."""
        clusters = self.described_run()["clusters"] if self.confirms else []
        return [name for name in clusters if not self.confirmed(name).is_file()]

    def attempt(self, cluster: str, job: str, attempt_no: int) -> Path:
        """Return the folder of one submission."""
        return self.path / cluster / "jobs" / job / str(attempt_no)

    def clusters(self) -> list[str]:
        """Return the clusters of run.json that have a plan by now."""
        return [name for name in self.described_run()["clusters"] if self.plan(name).is_file()]

    def link_names(self) -> list[str]:
        """Return the links of run.json; each has a folder like a cluster's."""
        return [link["name"] for link in self.described_run().get("links", ())]

    def parts(self) -> list[str]:
        """Return the clusters and links that have a plan by now."""
        return self.clusters() + [name for name in self.link_names() if self.plan(name).is_file()]

    def reservation_name(self, cluster_name: str) -> str:
        """Return the name of this run's reservation on a cluster."""
        return f"hpcq-{self.run}-{cluster_name}"


def _contradiction(found: Mapping[str, Any]) -> str | None:
    """What cannot be in a run.json whose fields are of their types: FIELD: FOUND: what it must be."""
    if found.get("format", 1) != 1:
        return f"format: {found['format']}: must be 1"
    if utc_or_none(found["created_utc"]) is None:
        return f"created_utc: {shown(found['created_utc'])}: must be a time like 2026-11-21T02:00:00Z"
    for name in ("run", "campaign", "database"):
        if not found[name]:
            return f"{name}: '': must be a text that is not empty"
    for cluster in found["clusters"]:
        if not _FOLDER_NAME.fullmatch(cluster):
            return f"clusters: {shown(cluster)}: must be names of clusters"
    for link in found.get("links", ()):
        ends = link.get("from"), link.get("to")
        if not set(ends) <= set(found["clusters"]) or link.get("name") != "+".join(map(str, ends)):
            return f"links: {shown(link)}: must be the name FROM+TO, with both ends among the clusters"
    return None


class NoFileError(FileNotFoundError):
    """What stands in place of a file that a job wrote: a pipe, a link, a folder, a device."""


def open_regular(path: Path) -> BinaryIO:
    """Open a file that a job wrote. Raises OSError.

    A pipe would be waited for without end, a link may lead to a device or to somebody's file: in place of a file, either
    counts as if nothing was there, so the error is a FileNotFoundError, whose class and words say what is there.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise NoFileError(errno.ENOENT, "is a link: must be a file of its own", str(path)) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NoFileError(errno.ENOENT, "is a pipe, a folder or a device: must be a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path) -> bytes:
    """Return the content of a file that hpcq wrote. Raises OSError as `open_regular` does."""
    with open_regular(path) as file:
        return file.read()


def read_job_file(path: Path) -> bytes:
    """Return what a job wrote, of a swollen file only its beginning. Raises OSError as `open_regular` does."""
    with open_regular(path) as file:
        return file.read(_JOB_FILE_MAX_BYTES)


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file that a job wrote; what comes after a swollen one counts as not there."""
    while line := file.readline(_JOB_FILE_MAX_BYTES):
        yield line
        if len(line) == _JOB_FILE_MAX_BYTES and not line.endswith(b"\n"):
            return


def job_text(path: Path) -> str:
    """Return what a job wrote for people, as far as it is text; empty if nothing is there, or something that is no file."""
    try:
        return read_job_file(path).decode("utf-8", "replace")
    except OSError:
        return ""


def read_json(path: Path, kind: type | None = None) -> dict[str, Any]:
    """Return the JSON object of a file. Raises StoreError that names the file.

    kind: the TypedDict or dataclass that says what its fields must be.
    """
    try:
        found = parse_json(read_job_file(path))
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise StoreError(f"{path}: {error}", CHANGED_HINT) from error
    if kind is not None and (complaint := misfit(found, kind)):
        raise StoreError(f"{path}: {complaint}", CHANGED_HINT)
    return found


def read_json_or_none(path: Path) -> dict[str, Any] | None:
    """Like `read_json`, but None if the file is absent or unreadable: a job may have died while it wrote the file."""
    try:
        return parse_json(read_job_file(path))
    except (OSError, ValueError):
        return None


def parse_json(content: bytes) -> dict[str, Any]:
    """Return the JSON object in these bytes.

    Raises ValueError that says what is wrong, also for what Python would accept (NaN). A number that no program of C prints,
    as of 400 digits, is a text here: it is a value of the wrong type wherever it stands, and no sum or product of it overflows.
    """
    if len(content) > _FILE_SIZE_MAX_BYTES:
        raise ValueError(f"more than {_FILE_SIZE_MAX_BYTES} bytes: must be at most so many")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: byte {error.start}") from None
    try:
        found = json.loads(text, parse_constant=_no_constant, parse_int=whole_or_text, parse_float=float_or_text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at byte {error.pos}") from None
    except RecursionError:
        raise ValueError("not JSON: nested too deep") from None
    except ValueError as error:  # NaN, Infinity, or a number of thousands of digits
        raise ValueError(f"not JSON: {str(error)[:100]}") from None
    if b"\\ud" in content or b"\\uD" in content:
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("not JSON: half a surrogate pair in a string") from None
    if not isinstance(found, dict):
        raise ValueError(f"a JSON {type(found).__name__}: must be one object")  # noqa: TRY004
    return found


#: Digits of the largest whole number that is one: 128 bits.
_DIGITS_MAX = 39


def whole_or_text(digits: str) -> int | str:
    """A whole number of JSON; the text itself if it has too many digits to be one."""
    return int(digits) if len(digits) <= _DIGITS_MAX else digits


def float_or_text(digits: str) -> float | str:
    """A number of JSON; the text itself if it is beyond all floats, as 1e999."""
    number = float(digits)
    return number if math.isfinite(number) else digits


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a temporary file, wait for the disk, rename it. Raises StoreError."""
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def new_file(path: Path, mode: str) -> IO[Any]:
    """Open a file that was not there. What else has its name goes first: a leftover, or a link that somebody put there.

    mode: that of open(): x or xb.
    """
    path.unlink(missing_ok=True)
    return path.open(mode, encoding=None if "b" in mode else "utf-8")


def write_text(path: Path, text: str, *, mode: int | None = None, synced: bool = True) -> None:
    """Write a temporary file, wait for the disk, rename it. Raises StoreError.

    mode: the file's mode, if the umask must not decide.
    synced: False for a file that hpcq can write again after a crash.
    """
    if path.exists() and not path.is_file():  # /dev/null, a pipe: a rename would put a file in its place
        path.write_text(text, encoding="utf-8")
        return
    aside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(aside, "x") as file:
            file.write(text)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            if synced:
                os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):  # a read-only folder has none
            aside.unlink(missing_ok=True)
        machine = of_the_machine(error, path)
        hint = machine.hint if machine is not None else "name a file in a folder of yours"
        raise StoreError(f"{path}: cannot be written: {error.strerror}", hint) from error


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")
