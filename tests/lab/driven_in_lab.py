"""Campaigns driven by the driver itself on a running lab, without command line and workflow: seconds instead of a minute."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcq.run_folder.journal import read_journal
from hpcq.run_folder.paths import RunFolder
from hpcq.runner import stages
from hpcq.runner.site.place import open_run
from tests.lab.lab_fixture import RunningLab

Events = list[dict[str, Any]]

CAMPAIGN = """name: driven
clusters: [{cluster}]
repetitions: {repetitions}
tests: [{{kernel: tcp_pingpong, parameters: {{duration_s: {duration_s}, warmup_s: 0, message_bytes: 1}}}}]
{more}
"""


@dataclass
class Driven:
    """One run on one cluster of the lab, built and planned."""

    folder: Path
    lab: RunningLab
    cluster: str
    more: str
    duration_s: float = 0.1
    keys: str = ""
    repetitions: int = 1
    #: Whether what stands and runs on the cluster is put right first; not where the test itself prepared it.
    at_rest: bool = True
    said: list[str] = field(default_factory=list)
    failed: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.at_rest:
            self.lab.at_rest(self.cluster)
        text = CAMPAIGN.format(cluster=self.cluster, duration_s=self.duration_s, repetitions=self.repetitions, more=self.more)
        (self.folder / "driven.yaml").write_text(text)
        clusters = self.folder / "clusters"
        clusters.mkdir(exist_ok=True)
        (clusters / f"{self.cluster}.yaml").write_text(self.lab.cluster_file(self.cluster).read_text() + self.keys)
        self.run: RunFolder = open_run(self.folder / "driven.yaml", [clusters], self.folder / "r.db", self.folder / "runs")
        stages.build(self.run, self.cluster)
        self.plan = stages.plan(self.run, self.cluster)

    def start(self) -> threading.Thread:
        """Drive it in the background."""

        def drive() -> None:
            try:
                stages.drive(self.run, self.cluster, self.said.append)
            except BaseException as error:
                self.failed.append(error)

        thread = threading.Thread(target=drive, daemon=True)
        thread.start()
        return thread

    def finish(self, thread: threading.Thread, within_s: float = 240) -> None:
        """Wait for its end."""
        thread.join(within_s)
        assert not thread.is_alive(), (self.said, self.events()[-3:])
        assert not self.failed, self.failed

    def events(self) -> Events:
        return read_journal(self.run.journal(self.cluster))

    def wait_for(self, seen: Callable[[Events], bool], within_s: float = 120) -> None:
        deadline = time.monotonic() + within_s
        while not seen(self.events()):
            assert time.monotonic() < deadline, (self.said, self.events()[-3:])
            assert not self.failed, self.failed
            time.sleep(0.05)

    def outcomes(self) -> list[str]:
        return [event["outcome"] for event in self.events() if event["event"] == "ended"]

    def load(self) -> dict[str, Any]:
        """What is in the database of it."""
        found: dict[str, Any] = stages.load(self.run, self.folder / "r.db")["clusters"][0]
        return found


def states(word: str, count: int = 1) -> Callable[[Events], bool]:
    """So many jobs were seen in a state."""
    return lambda events: sum(event.get("state") == word for event in events) >= count


def names(word: str, count: int = 1) -> Callable[[Events], bool]:
    """So many events of this name."""
    return lambda events: sum(event["event"] == word for event in events) >= count
