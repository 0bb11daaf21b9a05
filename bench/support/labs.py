"""A lab for a benchmark: a running one, or a new one that is taken down afterwards."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.lab.lab_fixture import RunningLab

_PROGRAM = [sys.executable, str(Path(__file__).resolve().parents[2] / "lab")]


@contextlib.contextmanager
def lab_of(node_count: int, name: str | None) -> Iterator[RunningLab]:
    """Yield the named lab, or a new one with this many nodes per cluster."""
    if name:
        yield RunningLab(name)
        return
    own = f"bench-{os.getpid()}"
    try:
        subprocess.run([*_PROGRAM, "up", "--name", own, "--nodes", str(node_count)], check=True, stdout=sys.stderr)
        yield RunningLab(own)
    finally:
        subprocess.run([*_PROGRAM, "down", "--name", own], check=True, stdout=sys.stderr)
