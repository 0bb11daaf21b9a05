"""What a failed stage leaves for those who read the run: a marker, and a line in the run's log.

    stage fails      -> <run>/<part>/<stage>.error.json    who wrote it, when, the message, the hint, the exit code
    stage succeeds   -> removes that marker, whoever wrote it: what it tells of is over
    lock refused     -> nothing: another process is at that stage, and its outcome counts

The traceback of an unforeseen failure goes to <run>/log.txt.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from hpcq import units
from hpcq.errors import Exit, HeldError, HpcqError, StoreError, UserError, of_the_machine
from hpcq.run_folder.paths import RunFolder, read_json, write_json
from hpcq.visible import visible

#: Space reserved for the last error message: on a full disk nothing new can be written.
_SPARE_BYTES = 4096


def say(run: RunFolder, text: str) -> None:
    """Log one event per line, UTC first, to stderr and to the run's own log."""
    line = visible(f"{units.utc_now()} {text}")
    print(line, file=sys.stderr)  # noqa: T201
    with contextlib.suppress(OSError), (run.path / "log.txt").open("a", encoding="utf-8") as file:  # stderr has it already
        file.write(line + "\n")


@contextlib.contextmanager
def marked(run: RunFolder, part: str, stage: str) -> Iterator[None]:
    """Record a failure of this stage where `hpcq run` and `hpcq status` look for it, then raise it.

    part: a cluster or a link; empty for a stage of the whole run. Success removes what an earlier failure left.
    """
    mark = run.path / part / f"{stage}.error.json"
    spare = mark.with_name(f".{stage}.spare")
    ours = True
    mark.unlink(missing_ok=True)
    try:
        spare.parent.mkdir(parents=True, exist_ok=True)
        ours = not spare.exists()  # else it is of a process that is at this stage now, or was killed there
        spare.write_text(" " * _SPARE_BYTES)
        yield
        ours = True
        mark.unlink(missing_ok=True)
    except HeldError:
        raise
    except Exception as error:
        ours = True
        place = f"{part}: {stage}" if part else stage
        failure = error if isinstance(error, HpcqError) else of_the_machine(error, run.path)
        if failure is None:
            say(run, f"error={stage} cluster={part} unexpected\n{traceback.format_exc()}")
            hint = f"this is a defect of hpcq: its traceback is in {run.path / 'log.txt'}"
            _leave_word(mark, spare, stage, HpcqError(f"{place}: {type(error).__name__}: {error}", hint))
            raise
        say(run, f"error={stage} cluster={part} {failure.message}")
        _leave_word(mark, spare, stage, failure)
        if failure is error:
            raise
        raise failure from error
    finally:
        if ours:
            spare.unlink(missing_ok=True)


def failures_of(run: RunFolder) -> list[HpcqError]:
    """Return the failures that stages recorded, the gravest exit code first.

    If two stages report the same message, it is one failure.
    """
    found: dict[str, HpcqError] = {}
    for path in sorted([*run.path.glob("*.error.json"), *run.path.glob("*/*.error.json")]):
        said = read_json(path)
        kind = UserError if said["exit_code"] == Exit.USAGE else HpcqError
        found.setdefault(said["message"], kind(said["message"], said["hint"]))
    return sorted(found.values(), key=lambda error: error.exit_code, reverse=True)


def _leave_word(mark: Path, spare: Path, stage: str, failure: HpcqError) -> None:
    writer = {"host": socket.gethostname(), "pid": os.getpid(), "utc": units.utc_now()}
    said = {"stage": stage, "message": failure.message, "hint": failure.hint, "exit_code": int(failure.exit_code)}
    try:
        write_json(mark, {**said, "writer": writer})
    except StoreError:
        said |= {"message": failure.message[:1000], "hint": (failure.hint or "")[:200]}
        with contextlib.suppress(OSError), spare.open("r+", encoding="utf-8") as file:  # `hpcq run` checks the disk
            file.write(json.dumps({**said, "writer": writer}))
            file.flush()
            spare.replace(mark)
