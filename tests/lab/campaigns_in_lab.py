"""Running hpcq as a person would, in a folder of its own, on a running lab; and reading what came out."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tests.lab.lab_fixture import RunningLab
from tests.local.desk import Folder

#: One test that takes milliseconds.
INSTANT = "- {kernel: tcp_pingpong, parameters: {message_bytes: 1, operation_count_max: 20, duration_s: 1, warmup_s: 0}}"
#: One test that takes its time.
SLOW = "- {kernel: tcp_stream, parameters: {duration_s: 12, warmup_s: 0}}"
#: One test that is ended by others, however slow this machine is.
ENDLESS = "- {kernel: tcp_stream, parameters: {duration_s: 60, warmup_s: 0}}"


@dataclass(frozen=True, slots=True)
class Desk(Folder):
    """A person's folder, with the lab's clusters at hand."""

    lab: RunningLab

    def campaign(self, text: str, name: str = "try") -> None:
        """Write campaign.yaml; `text` is everything but the name."""
        (self.folder / "campaign.yaml").write_text(f"name: {name}\n{text}\n")

    def environment(self) -> dict[str, str]:
        return {**Folder.environment(self), "HPCQ_CLUSTERS": f"{self.folder / 'clusters'}:{self.lab.state / 'clusters'}"}

    def running(self, *words: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """hpcq in the background; all of it is ended when the block is left."""
        return self.background(["-m", "hpcq", *words])

    def events(self, cluster: str = "alpha") -> list[dict[str, Any]]:
        return Folder.events(self, cluster)

    def wait_for(self, seen: Callable[[list[dict[str, Any]]], bool], cluster: str = "alpha", within_s: float = 180) -> None:
        """Until the journal shows something."""
        deadline = time.monotonic() + within_s
        while not seen(self.events(cluster)):
            assert time.monotonic() < deadline, f"not seen within {within_s} s: {self.events(cluster)[-3:]}\n{self.log()}"
            time.sleep(0.005)


def event_names(events: list[dict[str, Any]]) -> list[str]:
    return [event["event"] for event in events]


def wait_idle(lab: RunningLab, cluster: str, within_s: float = 180) -> None:
    """Until every node of a cluster may have jobs: what one test broke, the next one must not plan around."""
    deadline = time.monotonic() + within_s
    while True:
        states = lab.exec(cluster, "sinfo", "-h", "-N", "-o", "%N %T", check=False).splitlines()
        if states and all(line.split()[1] == "idle" for line in states):
            return
        assert time.monotonic() < deadline, states
        time.sleep(0.2)
