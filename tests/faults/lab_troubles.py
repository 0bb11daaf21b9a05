"""Trouble for a cluster of the lab whose Slurm is real: what stands in place of a command, a controller's saved state."""

from __future__ import annotations

import itertools
import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.driven_in_lab import Driven
from tests.lab.lab_fixture import RunningLab

#: Longer than any of it takes.
LONG_S = 500.0
_PLACE = "/usr/local/storm"
_SBATCH = """#!/bin/sh
case $* in *--parsable*) ;; *) exec /usr/bin/sbatch "$@" ;; esac
for token in {place}/go-*; do
    if rm -- "$token" 2>/dev/null; then
        : >"{place}/hit-${{token##*-}}"
        {body}
        exit
    fi
done
exec /usr/bin/sbatch "$@"
"""
_TAR = """#!/bin/sh
case $* in *-cf*) ;; *) exec /usr/bin/tar "$@" ;; esac
young=$(find . -name exit.json -newermt "-{age_s} seconds" -printf '--exclude=%P\\n')
[ -z "$young" ] || echo "$young" >>{place}/late
exec /usr/bin/tar $young "$@"
"""
_STATE = "/var/lib/slurm/slurmctld"
_KILL_CONTROLLER = """pid=$(cat /run/slurm/slurmctld.pid) && kill -{signal} "$pid"
while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done"""


@dataclass(frozen=True, slots=True)
class ChangedLab(RunningLab):
    """A lab, and cluster files of it in which something was replaced."""

    folder: Path
    old: str
    new: str

    def cluster_file(self, cluster: str) -> Path:
        text = RunningLab.cluster_file(self, cluster).read_text()
        assert self.old in text, text
        path = self.folder / f"changed-{cluster}.yaml"
        path.write_text(text.replace(self.old, self.new))
        return path


@dataclass
class Trouble:
    """What goes wrong on alpha; `over` puts all of it right."""

    lab: RunningLab
    cluster: str = "alpha"
    _small: bool = False
    _renamed: list[tuple[str, str]] = field(default_factory=list)

    def root(self, script: str) -> str:
        """A shell script as root on the head."""
        return self.lab.exec(self.cluster, "sh", "-euc", script)

    def _program(self, name: str, text: str) -> None:
        script = f"mkdir -p /usr/local/bin {_PLACE}; chown labuser: {_PLACE}; cat >/usr/local/bin/{name}"
        self.lab.exec(self.cluster, "sh", "-euc", f"{script}; chmod 755 /usr/local/bin/{name}", text=text)

    def sbatch(self, body: str, *, times: int) -> None:
        """The next sbatch commands do this."""
        self._program("sbatch", _SBATCH.format(place=_PLACE, body=body))
        self.root(f"for n in $(seq {times}); do : >{_PLACE}/go-$n; done; chown labuser: {_PLACE}/go-*")

    def hits(self) -> int:
        """How many commands did it."""
        return len(self.root(f"ls {_PLACE}").split("hit-")) - 1

    def late_files(self, age_s: int) -> None:
        """Whoever fetches files sees no exit file that is younger."""
        self._program("tar", _TAR.format(place=_PLACE, age_s=age_s))

    def late_count(self) -> int:
        """How often an exit file was there and not seen."""
        return len(self.root(f"cat {_PLACE}/late 2>/dev/null || true").splitlines())

    # -- the controller -----------------------------------------------------------------------------------------------

    def keep_state(self) -> None:
        """Keep what the controller knows now. It saves all of it when it ends."""
        self.lab.command("restart-controller", self.cluster)
        self.root(f"rm -rf {_STATE}.kept; cp -a {_STATE} {_STATE}.kept")

    def back_on_kept_state(self) -> None:
        """The controller dies, and comes back on that state."""
        self.root(f"{_KILL_CONTROLLER.format(signal='KILL')}\nrm -rf {_STATE}; cp -a {_STATE}.kept {_STATE}")
        self.lab.command("restart-controller", self.cluster)

    def controller_down(self) -> None:
        """It ends, and saves its state."""
        self.root(_KILL_CONTROLLER.format(signal="TERM"))

    def controller_up_after(self, seconds: float) -> threading.Thread:
        """It comes back by itself."""

        def up() -> None:
            time.sleep(seconds)
            self.lab.command("restart-controller", self.cluster)

        thread = threading.Thread(target=up)
        thread.start()
        return thread

    def strangers(self, count: int) -> list[str]:
        """Another person's jobs take the next ids; they wait for a long time."""
        script = f"for n in $(seq {count}); do sbatch --parsable --begin=now+2hours --job-name=theirs --wrap='sleep 1'; done"
        return self.lab.exec(self.cluster, "sh", "-euc", f"cd /tmp; {script}", user="otheruser").split()

    def alive(self, ids: list[str]) -> list[str]:
        """Which of these jobs of the other person the queue shows."""
        shown = self.root("squeue --noheader --user=otheruser --format=%i").split()
        return sorted(one for one in shown if one in ids)

    # -- files and names ----------------------------------------------------------------------------------------------

    def small_file_system(self, folder: Path) -> RunningLab:
        """The lab with a work directory on a file system of 64 MB."""
        self._small = True
        self.root("mount -o remount,size=64m /usr/local; mkdir -p /usr/local/work; chown labuser: /usr/local/work")
        return ChangedLab(self.lab.name, folder, "work_directory: /scratch", "work_directory: /usr/local/work")

    def fill(self) -> None:
        """Not one byte is left there."""
        self.root("dd if=/dev/zero of=/usr/local/filler bs=4k 2>/dev/null || true")

    def make_room(self) -> None:
        """There is room again."""
        self.root("rm -f /usr/local/filler")

    def rename_nodes(self, old: str, new: str) -> None:
        """The scheduler's names of the nodes become other ones than their host names; the nodes stay what they are."""
        cluster = old.partition("-")[0]
        self._rename(cluster, [(f"NodeName={old}[01-02]", f"NodeName={new}[01-02] NodeHostname={old}[01-02]"),
                               (f"NodeName={old}[03-04]", f"NodeName={new}[03-04] NodeHostname={old}[03-04]"),
                               (f"Nodes={old}", f"Nodes={new}")])  # fmt: skip
        self._renamed.append((cluster, new))

    def _rename(self, cluster: str, changes: list[tuple[str, str]]) -> None:
        folder = self.lab.state / cluster / "etc" / "slurm"
        for name in ("slurm.conf", "topology.conf"):
            text = (folder / name).read_text()
            for old, new in changes:
                text = text.replace(old, new)
            (folder / name).write_text(text)
        nodes = [f"{cluster}/n{number:02d}" for number in range(1, 5)]
        for node in nodes:
            self.lab.exec(node, "sh", "-c", "pkill -TERM -x slurmd; while pidof slurmd >/dev/null; do sleep 0.1; done")
        self.lab.exec(cluster, "sh", "-c", f"{_KILL_CONTROLLER.format(signal='TERM')}\nrm -f {_STATE}/*state*")
        self.lab.command("restart-controller", cluster)
        for node in nodes:
            self.lab.command("start-node", node)
        self.lab.at_rest(cluster)

    # -- the end ------------------------------------------------------------------------------------------------------

    def over(self) -> None:
        """Everything is as before."""
        self.root(f"rm -rf /usr/local/bin/sbatch /usr/local/bin/tar {_PLACE} /usr/local/filler {_STATE}.kept")
        self.lab.command("restart-controller", self.cluster)
        self.root("scancel --user=otheruser; scancel --user=labuser")
        if self._small:
            self.root("rm -rf /usr/local/work; mount -o remount,size=1m /usr/local")
        for cluster, new in self._renamed:
            old = f"{cluster}-n"
            changes = [
                (f"NodeName={new}{span} NodeHostname={old}{span}", f"NodeName={old}{span}") for span in ("[01-02]", "[03-04]")
            ]
            self._rename(cluster, [*changes, (f"Nodes={new}", f"Nodes={old}")])


# -- what came of it ---------------------------------------------------------------------------------------------------


def scheduler_job_ids(driven: Driven) -> list[str]:
    """The ids that the journal has of its jobs."""
    return [one["scheduler_job_id"] for one in driven.events() if one["event"] == "submitted"]


def jobs_in_slurm(driven: Driven) -> list[str]:
    """The names of all jobs of the run that the controller has had, once per job; it remembers them for five minutes."""
    shown = driven.lab.exec(driven.cluster, "squeue", "--noheader", "--states=all", "--user=labuser", "--format=%j").split()
    return sorted(name for name in shown if name.startswith(f"hpcq-{driven.run.run}-"))


def measured_side_by_side(driven: Driven) -> list[str]:
    """Attempts of one pair that measured at the same time, by their own files on the cluster and here."""
    spans: dict[str, dict[str, tuple[str, str]]] = {}
    there = driven.lab.state / driven.cluster / "scratch" / "hpcq" / driven.run.run
    for root in (there, driven.run.path):
        for path in root.glob(f"{driven.cluster}/jobs/*/*/started.json"):
            end = path.with_name("exit.json")
            if end.is_file() and path.stat().st_size and end.stat().st_size:
                began, ended = json.loads(path.read_text())["started_utc"], json.loads(end.read_text())["ended_utc"]
                spans.setdefault(path.parents[1].name, {})[path.parent.name] = began, ended
    found = []
    for job, attempts in spans.items():
        for (one, first), (two, second) in itertools.pairwise(sorted(attempts.items(), key=lambda item: item[1])):
            if second[0] < first[1]:
                found.append(f"{job}: attempts {one} and {two}: {first} and {second}")
    return found


def nothing_left(lab: RunningLab, cluster: str, within_s: float = 30.0) -> list[str]:
    """What is still there of our user: jobs in the queue, kernels on nodes. A job that ends takes a moment."""
    deadline = time.monotonic() + within_s
    while True:
        left = lab.exec(cluster, "squeue", "--noheader", "--user=labuser", "--format=%i %j %T").splitlines()
        for number in range(1, 5):
            node = f"{cluster}/n{number:02d}"
            left += [f"{node}: {line}" for line in lab.exec(node, "pgrep", "-u", "labuser", "-a", "-x", "hpcq-net",
                                                            check=False).splitlines()]  # fmt: skip
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.5)
