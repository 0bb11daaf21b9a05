"""An ordinary user in an empty folder on the head of a cluster of the lab, who types what README.md says, with this hpcq."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import REPOSITORY
from tests.lab.lab_fixture import RunningLab

#: Where the head shows this machine's Python and the sources: machines of another release have no Python, or another one.
_PYTHON, _SOURCES = "/python", "/hpcq"
_HOME = "/home/labuser"
_PACKAGES = next(Path(one) for one in sys.path if one.endswith("site-packages"))
#: Python's libraries are of this machine's release; the one that is not part of every system comes along.
_SETTING = f"""
cd && rm -rf tools site && mkdir tools site && cd site
ln -s {_PYTHON}/{Path(sys.executable).resolve().relative_to(sys.base_prefix)} ../tools/python
ln -s {_PYTHON}/lib/*-linux-gnu/libexpat.so.1 ../tools/
printf '#!/bin/sh\\nexec python -m hpcq "$@"\\n' > ../tools/hpcq && chmod +x ../tools/hpcq
export PATH="$HOME/tools:$PATH" LD_LIBRARY_PATH="$HOME/tools" HPCQ_LABS=no
export PYTHONPATH={_SOURCES}:{_SOURCES}/{_PACKAGES.relative_to(REPOSITORY)}
"""
_OPEN_TREE, _MOVE_MOUNT, _SETNS = 428, 429, 308
_OPEN_TREE_CLONE, _AT_RECURSIVE, _FROM_EMPTY_PATH, _AT_FDCWD, _CLONE_NEWNS = 1, 0x8000, 4, -100, 0x20000


@dataclass(frozen=True, slots=True)
class Typed:
    """What the commands said. files: the YAML files in the folder then, by their path. elapsed_s, crowd: how long it took, and
    how many processes wanted each CPU of this machine meanwhile.
    """

    said: str
    codes: list[int]
    files: dict[str, str]
    elapsed_s: float
    crowd: float

    def assert_verdict(self) -> None:
        """Each command went well, and a verdict was there within three minutes, as far as the machine was there for it."""
        [passed, undecided] = re.findall(r"^gates: (?:(\d+) pass)?(?:, )?(?:(\d+) inconclusive)?$", self.said, re.M)[-1]
        assert int(passed or 0) + int(undecided or 0) == 4, self.said
        assert set(self.codes) == {0} or (undecided and set(self.codes) == {0, 4}), self.said  # other work on this machine
        assert self.elapsed_s < 180 * max(1.0, self.crowd), "an idle machine takes a third of that"


def typed_on_head(lab: RunningLab, cluster: str, lines: Sequence[str]) -> Typed:
    """Type command lines, one after the other, without a terminal."""
    [found] = [one for one in lab.status()["clusters"] if one["name"] == cluster]
    [head] = [one for one in found["machines"] if one["name"] == f"{cluster}-head"]
    _mount_inside(head["pid"], REPOSITORY, _SOURCES)
    _mount_inside(head["pid"], Path(sys.base_prefix), _PYTHON)
    begun_s = time.monotonic()
    typed = "\n".join(f'{line}; echo "=== ended $?"' for line in lines)
    try:
        done = subprocess.run(
            lab.exec_words(cluster, "bash", "-lc", f"{_SETTING}\n{typed}", user="labuser"),
            capture_output=True, text=True, timeout=600, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        elapsed_s, crowd = time.monotonic() - begun_s, os.getloadavg()[0] / len(os.sched_getaffinity(0))
        shown = lab.exec(cluster, "sh", "-c", f"cd {_HOME}/site && head -n 1000 *.yaml */*.yaml")
    finally:
        lab.exec(cluster, "rm", "-rf", f"{_HOME}/site", f"{_HOME}/tools")
    texts = re.split(r"^==> (.*) <==\n", shown, flags=re.M)[1:]
    codes = [int(one) for one in re.findall(r"^=== ended (\d+)$", done.stdout, re.M)]
    return Typed(done.stdout + done.stderr, codes, dict(zip(texts[::2], texts[1::2], strict=True)), elapsed_s, crowd)


def typed_in_readme(heading: str, cluster: str) -> list[str]:
    """The commands of the first block below a heading of README.md, for this cluster."""
    [part] = re.findall(rf"^## {heading}\n(.*?)^## ", (REPOSITORY / "README.md").read_text(), re.M | re.S)
    [block, *_] = re.findall(r"(?:^    hpcq [^\n]*\n)+", part, re.M)
    return [line.partition("  #")[0].strip().replace("mycluster", cluster) for line in block.splitlines()]


def _mount_inside(pid: int, folder: Path, place: str) -> None:
    """Show a folder of this machine at a place of another mount namespace."""
    child = os.fork()
    if child == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        tree = libc.syscall(_OPEN_TREE, _AT_FDCWD, str(folder).encode(), _OPEN_TREE_CLONE | _AT_RECURSIVE)
        there = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
        failed = tree < 0 or libc.syscall(_SETNS, there, _CLONE_NEWNS) != 0
        if not failed:
            Path(place).mkdir(exist_ok=True)
            failed = libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, place.encode(), _FROM_EMPTY_PATH) != 0
        os._exit(ctypes.get_errno() if failed else 0)
    _, status = os.waitpid(child, 0)
    assert status == 0, os.strerror(os.waitstatus_to_exitcode(status))
