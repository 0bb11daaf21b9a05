"""Where the jobs of a simulated PBS run: on this machine, or in the namespaces of a lab's nodes.

A lab's cluster sees its own tree of files. What is /scratch/x there is ROOT/scratch/x here, and the commands of its users
come over its own network: the server listens there, too.
"""

from __future__ import annotations

import ctypes
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True, slots=True)
class Place:
    """root: what stands before the paths that jobs name, as seen from here. network: the namespace to listen in, too."""

    root: str = ""
    home: str = field(default_factory=lambda: str(Path.home()))
    network: str = ""
    address: str = "127.0.0.1"

    def outside(self, path: str) -> Path:
        """A path that a job names, as seen from here."""
        return Path(f"{self.root}{path}")

    def inside(self, path: Path | str) -> str:
        """A path of ours, as jobs see it."""
        return str(path).removeprefix(self.root)

    def listener(self) -> socket.socket | None:
        """A socket in the network of the jobs; none where that is ours."""
        if not self.network:
            return None
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/self/ns/net") as ours, open(self.network) as theirs:  # noqa: PTH123 - only their descriptors
            _enter(libc, theirs.fileno())
            try:
                return socket.create_server((self.address, 0), backlog=64)
            finally:
                _enter(libc, ours.fileno())


def _enter(libc: ctypes.CDLL, descriptor: int) -> None:
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")
