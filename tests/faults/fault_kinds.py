"""Things that break under a running campaign: one function each, and when it may happen.

    @fault("submitted", ...)          moments of MOMENTS, each seen in journals and files, never by the clock
    def what_breaks(scene) -> None:   does it; scene.mend(...) says how it is put right again

A new kind is one more function here: the seed draws from all of them.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcq.definition.files.cluster import read_cluster
from hpcq.runner.site.place import reach
from hpcq.transport import Ssh
from tests.lab.campaigns_in_lab import Desk, event_names
from tests.lab.lab_fixture import RunningLab
from tests.local.desk import kill_session

CLUSTERS = ("alpha", "beta")
LINK = "alpha+beta"


@dataclass
class Scene:
    """A campaign that runs, and what was done to it."""

    desk: Desk
    dice: random.Random
    cluster: str
    #: hpcq itself: a fault may replace it, as by a resume.
    child: subprocess.Popen[bytes] | None = None
    resume_count: int = 0
    said: list[str] = field(default_factory=list)
    #: Whole lines of spools that a fault took from a cluster: the driver may have fetched them a moment before.
    torn: set[tuple[str, str, int, int]] = field(default_factory=set)
    mends: list[Callable[[], object]] = field(default_factory=list)

    @property
    def lab(self) -> RunningLab:
        return self.desk.lab

    @property
    def ended(self) -> bool:
        return self.child is not None and self.child.poll() is not None

    def start(self, *words: str) -> None:
        """hpcq in the background, in a session of its own."""
        with (self.desk.folder.parent / "said.log").open("ab") as log:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "hpcq", *words],
                cwd=self.desk.folder,
                env=self.desk.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def mend(self, how: Callable[[], object]) -> None:
        """To be done when all is over."""
        self.mends.append(how)

    def root(self, *words: str, text: str = "") -> str:
        """A command as root on the head of the cluster that the fault hits."""
        return self.lab.exec(self.cluster, *words, check=False, text=text)

    def on_cluster(self, cluster: str) -> Path:
        """The run's folder as the machines of a cluster write it."""
        return self.lab.state / cluster / "scratch" / "hpcq" / self.desk.run_folder.name

    def seen(self, event: str, part: str | None = None, **keys: Any) -> bool:
        """Whether a journal has such an event."""
        return any(
            one["event"] == event and all(one.get(key) == value for key, value in keys.items())
            for one in self.desk.events(part or self.cluster)
        )


#: In the order in which a campaign comes by. Each is a question to the scene.
MOMENTS: dict[str, Callable[[Scene], bool]] = {
    "planned": lambda scene: any((scene.desk.folder / "runs").glob(f"*/{scene.cluster}/plan.json")),
    "committed": lambda scene: scene.seen("attempt"),
    "submitted": lambda scene: scene.seen("submitted"),
    "running": lambda scene: scene.seen("state", state="running"),
    "measuring": lambda scene: bool(_measured_files(scene)),
    "within clusters done": lambda scene: all("closed" in event_names(scene.desk.events(name)) for name in CLUSTERS),
    "link committed": lambda scene: scene.seen("attempt", LINK),
    "link met": lambda scene: scene.seen("ways", LINK),
    "link measured": lambda scene: scene.seen("ended", LINK),
}


@dataclass(frozen=True)
class Fault:
    """One kind: `free` says that everything is measured nevertheless."""

    name: str
    do: Callable[[Scene], None]
    moments: tuple[str, ...]
    free: bool


FAULTS: dict[str, Fault] = {}


def fault(*moments: str, free: bool = False) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    """Register a kind of fault under its function's name."""

    def register(do: Callable[[Scene], None]) -> Callable[[Scene], None]:
        FAULTS[do.__name__] = Fault(do.__name__, do, moments, free)
        return do

    return register


# -- what every site sees -----------------------------------------------------------------------------------------------


@fault("running", "measuring")
def far_side_does_not_start(scene: Scene) -> None:
    """beta takes jobs and starts none any more; what runs there goes on."""
    _partition(scene.lab, "down")
    scene.mend(lambda: _partition(scene.lab, "up"))


@fault("planned", "committed", "submitted", "running", "measuring", "link committed", "link met", free=True)
def ssh_is_cut(scene: Scene) -> None:
    """SIGKILL to the process that carries all connections to the cluster."""
    cluster = read_cluster(scene.lab.cluster_file(scene.cluster))
    transport = reach(cluster)
    assert isinstance(transport, Ssh)
    checked = subprocess.run(
        [*transport._connection(), "-O", "check", transport.host], capture_output=True, text=True, check=False
    )
    running = re.search(r"pid=(\d+)", checked.stderr + checked.stdout)
    if running is None:
        scene.said.append("  nothing cut: there was no connection")
        return
    with suppress(ProcessLookupError):
        os.kill(int(running[1]), signal.SIGKILL)


@fault("committed", "submitted", "running", "measuring", "link committed", "link met", free=True)
def controller_restarts(scene: Scene) -> None:
    """slurmctld is ended by SIGTERM and started again."""
    scene.lab.command("restart-controller", scene.cluster)


@fault("measuring")
def node_dies(scene: Scene) -> None:
    """The power of a node is cut; it stays down until all is over."""
    number = scene.dice.randint(1, 4)
    where = f"{scene.cluster}/n{number:02d}"
    scene.said.append(f"  which: {where}")
    scene.lab.command("kill-node", where)
    scene.mend(lambda: scene.lab.command("start-node", where))


@fault("planned", "committed", "submitted", "running", "measuring", "link committed", "link met", "link measured", free=True)
def driver_is_killed(scene: Scene) -> None:
    """SIGKILL to hpcq, its workflow and its drivers; a person types `hpcq resume`."""
    assert scene.child is not None
    kill_session(scene.child)
    scene.start("resume")


# -- others --------------------------------------------------------------------------------------------------------------


@fault("committed", "submitted", "measuring", "link committed", "link met", free=True)
def ssh_is_silent(scene: Scene) -> None:
    """The head hears nothing on port 22 for some seconds: what is open hangs, what is new is not answered."""
    table = "inet hpcq_silence"
    rule = "type filter hook input priority 0; tcp dport 22 drop;"
    scene.root("nft", "-f", "-", text=f"add table {table}\nadd chain {table} heard {{ {rule} }}\n")
    time.sleep(scene.dice.uniform(3, 12))
    scene.root("nft", "delete", "table", *table.split())


@fault("committed", "submitted", "measuring", "link committed", "link met", free=True)
def controller_is_down(scene: Scene) -> None:
    """slurmctld is away for 20 s."""
    scene.root("sh", "-c", "kill -TERM $(cat /run/slurm/slurmctld.pid)")
    time.sleep(20)
    scene.lab.command("restart-controller", scene.cluster)


@fault("submitted", "measuring", "link committed", "link met")
def controller_crashes(scene: Scene) -> None:
    """slurmctld is killed, and forgets what it had not saved."""
    scene.lab.command("restart-controller", scene.cluster, "--crash")


@fault("submitted", "measuring")
def slurmd_dies(scene: Scene) -> None:
    """The daemon of a node is killed and started again ten seconds later; what runs there goes on."""
    where = f"{scene.cluster}/n{scene.dice.randint(1, 4):02d}"
    scene.lab.exec(where, "pkill", "-KILL", "-x", "slurmd")
    time.sleep(10)
    scene.lab.command("start-node", where)


@fault("submitted", "running", "measuring", "link committed", "link met")
def admin_cancels_a_job(scene: Scene) -> None:
    """One of our jobs, queued or running, whatever it is."""
    listed = scene.root("squeue", "-h", "-u", "labuser", "-o", "%i").split()
    if not listed:
        scene.said.append("  nothing cancelled: there was no job")
        return
    scene.root("scancel", scene.dice.choice(sorted(listed)))


@fault("measuring")
def spool_is_torn(scene: Scene) -> None:
    """The end of what a tournament wrote is lost, in the middle of a line, while it writes on."""
    for path in scene.on_cluster(scene.cluster).glob(f"{scene.cluster}/jobs/*/*/spool.jsonl"):
        content = path.read_bytes()
        if path.with_name("exit.json").exists():
            scene.said.append("  nothing torn: it had been written to its end")
            continue
        last = content.rstrip(b"\n").rfind(b"\n") + 1
        os.truncate(path, last + (len(content) - last) // 2)
        line = json.loads(content[last:]) if content.endswith(b"}\n") else {}
        if "rc" in line:
            scene.torn.add((scene.cluster, line["job"], line["test"], line["repetition"]))
        scene.said.append(f"  torn: {line.get('job', 'a part')}")


@fault("planned", "submitted", "measuring", "within clusters done", "link met", free=True)
def disk_is_full(scene: Scene) -> None:
    """Not one byte is left where the driver writes, for some seconds."""
    path = scene.desk.folder / "filler"
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    with suppress(OSError), path.open("ab", buffering=0) as file:
        while True:
            file.write(b"0")
    time.sleep(scene.dice.uniform(2, 8))
    path.unlink(missing_ok=True)


@fault("within clusters done", "link met", "link measured", free=True)
def database_is_locked(scene: Scene) -> None:
    """Somebody else writes to results.db, for some seconds, from now on."""

    def hold(seconds: float) -> None:
        with closing(sqlite3.connect(scene.desk.folder / "results.db", timeout=30)) as database:
            database.execute("BEGIN EXCLUSIVE")
            time.sleep(seconds)
            database.rollback()

    thread = threading.Thread(target=hold, args=(scene.dice.uniform(5, 45),))
    thread.start()
    scene.mend(thread.join)


def _partition(lab: RunningLab, state: str) -> None:
    lab.exec("beta", "scontrol", "update", "partitionname=batch", f"state={state}")


def _measured_files(scene: Scene) -> list[Path]:
    """What says on the cluster that something was measured there already."""
    with suppress(ValueError):  # there is no run yet
        jobs = scene.on_cluster(scene.cluster) / scene.cluster / "jobs"
        spools = [path for path in jobs.glob("*/*/spool.jsonl") if path.stat().st_size > 0]
        return spools + list(jobs.glob("*/*/started.json")) if not list(jobs.glob("g*")) else spools
    return []
