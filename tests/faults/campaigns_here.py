"""A seeded fault injector without a lab: whole campaigns on this machine, real processes, and what breaks under them.

    python -m tests.faults.campaigns_here [--count 200] [--first 1] [--seed 7 ...] [--folder DIR]

A seed draws the site (the local queue, the PBS stand-in, the Slurm stand-in), how pairs are packed, two to four kinds of
fault and the moment of each, and whether `hpcq run` runs with its workflow or, as most often, its stages one after the other
in one process, which takes a third of the time. Its folder lies on a small disk of its own, and it is resumed where it ended.
`broken` looks at what must hold whatever happened, the last of it: that the next run works.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpcq.cli.main import complain
from hpcq.errors import HpcqError
from tests import REPOSITORY
from tests.faults.fault_invariants import DONE, ROWS, exit_code_of, to_the_end
from tests.faults.test_full_disk import Desk, fill
from tests.local.desk import kill_session
from tests.local.local_desk import CLUSTER, INSTANT, LocalDesk
from tests.simulated_pbs.site import simulated_pbs
from tests.simulated_slurm.site import simulated_slurm

BRIEF = "{kernel: tcp_pingpong, parameters: {duration_s: 300ms, warmup_s: 0}}"
REPETITIONS, TESTS = 2, 2
RESUMES_MAX, END_WITHIN_S = 8, 600.0
DISK_BYTES = 24 << 20
_BATCH = "name: {{name}}\nscheduler: {kind}\nconnection: local\npoll_interval_s: 1s\ncompiler: {{{{cflags: -O0}}}}\n{more}"
#: By site: its cluster file, which pairs, and the commands that can be made to lie.
SITES = {
    "local": (CLUSTER, "pairs: all", ()),
    "pbs": (_BATCH.format(kind="pbs", more="interface: lo\n"), "pairs: {rounds: 1}", ("qsub", "qstat", "qselect", "pbsnodes")),
    "slurm": (
        _BATCH.format(kind="slurm", more="partition: main\ninterface: eth0\n"),
        "pairs: {rounds: 1}",
        ("sbatch", "squeue", "sinfo", "scontrol"),
    ),
}  # fmt: skip
#: What a command that lies does instead; $real is the command itself.
LIES = {
    "hangs": 'sleep 4; exec "$real" "$@"',
    "answers half": '"$real" "$@" | head -c 15',
    "answers nothing": "exit 0",
    "fails": 'echo "Connection refused" >&2; exit 1',
    "prints a banner first": 'echo "Welcome to sim!"; exec "$real" "$@"',
    "answers, and is killed": '"$real" "$@"; kill -KILL $$',
}


@dataclass
class Scene:
    """A campaign that runs, and what was done to it."""

    desk: LocalDesk
    dice: random.Random
    site: str
    #: First on PATH, of hpcq and of its jobs.
    lies: Path
    control: Callable[..., Any] | None
    by_hand: bool
    child: subprocess.Popen[bytes] | None = None
    resume_count: int = 0
    said: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    mends: list[Callable[[], object]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.child is not None and self.child.poll() is not None

    @property
    def log(self) -> Path:
        return self.lies.parent / "said.log"

    def start(self, verb: str) -> None:
        """`hpcq run try.yaml` or `hpcq resume` in the background, in a session of its own."""
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                [sys.executable, "-P", *self.words(verb)],
                cwd=self.desk.folder,
                env={**self.desk.environment(), "PYTHONPATH": str(REPOSITORY)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def words(self, verb: str) -> list[str]:
        """What Python is started with."""
        if self.by_hand:
            return ["-m", "tests.faults.campaigns_here", "--stages", verb]
        return ["-m", "hpcq", "run", "try.yaml"] if verb == "run" else ["-m", "hpcq", "resume"]

    def lie(self, name: str, text: str, seconds: float) -> None:
        """A program of that name stands before the real one for a time."""
        path = self.lies / name
        real = next((Path(one, name) for one in os.environ["PATH"].split(":")[1:] if Path(one, name).exists()), None)
        if real is None:
            self.said.append(f"  there is no {name} here")
            return
        part = path.with_suffix(".part")
        part.write_text(f"#!/bin/bash\nreal={real}\n{text}\n")
        part.chmod(0o755)
        part.rename(path)
        self.later(seconds, lambda: path.unlink(missing_ok=True))

    def later(self, seconds: float, do: Callable[[], object]) -> None:
        """In some seconds, and before anybody looks at the end."""
        timer = threading.Timer(seconds, do)
        timer.start()
        self.mends.append(timer.join)


@dataclass(frozen=True)
class Planned:
    """One fault of a schedule."""

    kind: str
    moment: str


@dataclass
class Story:
    """What a seed drew and what came of it."""

    seed: int
    site: str
    by_hand: bool
    faults: list[Planned]
    said: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    exit_code: int | None = None
    outcomes: dict[str, int] = field(default_factory=dict)
    wall_s: float = 0.0


def _jobs(scene: Scene) -> list[Path]:
    """Jobs that have started, wherever their folders are; folders may vanish while it looks."""
    walked = ((Path(folder), names) for folder, _, names in os.walk(scene.desk.folder.parent))
    return [folder / "started.json" for folder, names in walked if "started.json" in names and folder.parents[1].name == "jobs"]


def _seen(*names: str) -> Callable[[Scene], bool]:
    return lambda scene: bool({event["event"] for event in scene.desk.events()} & set(names))


#: In the order in which a campaign comes by.
MOMENTS: dict[str, Callable[[Scene], bool]] = {
    "before": lambda _: True,
    "made": lambda scene: any(scene.desk.folder.glob("runs/*/run.json")),
    "opened": _seen("opened"),
    "committed": _seen("attempt"),
    "submitted": _seen("submitted"),
    "measuring": lambda scene: bool(_jobs(scene)),
    "one ended": _seen("ended"),
    "all driven": lambda scene: any(scene.desk.folder.glob("runs/*/tiny/driven.json")),
    "loading": lambda scene: (scene.desk.folder / "results.db").exists(),
}
#: Where jobs are processes; those of the Slurm stand-in are files that it writes.
_REAL = ("local", "pbs")
_AT_WORK = ("opened", "committed", "submitted", "measuring", "one ended")


@dataclass(frozen=True)
class Fault:
    """One kind: at which moments, at which sites, and whether everything is measured nevertheless."""

    do: Callable[[Scene], None]
    moments: tuple[str, ...]
    sites: tuple[str, ...]
    free: bool


FAULTS: dict[str, Fault] = {}


def fault(
    *moments: str, sites: tuple[str, ...] = tuple(SITES), free: bool = False
) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    """Register a kind of fault under its function's name."""

    def register(do: Callable[[Scene], None]) -> Callable[[Scene], None]:
        FAULTS[do.__name__] = Fault(do, moments, sites, free)
        return do

    return register


# -- kinds -------------------------------------------------------------------------------------------------------------


@fault(*list(MOMENTS)[1:], free=True)
def driver_is_killed(scene: Scene) -> None:
    """SIGKILL to hpcq, its workflow and its drivers; a person types `hpcq resume`."""
    assert scene.child is not None
    kill_session(scene.child)
    if any(scene.desk.folder.glob("runs/*/run.json")):
        scene.start("resume")


@fault(*list(MOMENTS)[1:], free=True)
def driver_is_told_to_end(scene: Scene) -> None:
    """SIGTERM, SIGHUP or the keyboard's interrupt, to all of hpcq at once."""
    assert scene.child is not None
    which = scene.dice.choice([signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
    scene.said.append(f"  which: {which.name}")
    subprocess.run(["pkill", f"-{which.name[3:]}", "--session", str(scene.child.pid)], check=False)


@fault(*_AT_WORK, "loading", free=True)
def driver_stands_still(scene: Scene) -> None:
    """SIGSTOP for some seconds; somebody types `hpcq resume` meanwhile."""
    assert scene.child is not None
    session = ["--session", str(scene.child.pid)]
    subprocess.run(["pkill", "-STOP", *session], check=False)
    try:
        _resume_beside(scene)
    finally:
        subprocess.run(["pkill", "-CONT", *session], check=False)


@fault(*_AT_WORK, "loading", free=True)
def somebody_resumes_beside(scene: Scene) -> None:
    """`hpcq resume` beside the living driver."""
    _resume_beside(scene)


def _resume_beside(scene: Scene) -> None:
    if scene.ended or not any(scene.desk.folder.glob("runs/*/run.json")):
        return
    # A loader that stands still holds the database: after 30 s it counts as gone, and SQLite waits 60 s more.
    done = scene.desk.hpcq("resume", expect=None, timeout_s=300)
    scene.said.append(f"  resume ended with {done.returncode}")
    if done.returncode not in {*DONE, 1} or "Traceback" in done.stderr:
        scene.broken.append(f"resume beside a driver ended with {done.returncode}: {done.stderr[-500:]}")


@fault("measuring", sites=_REAL)
def a_kernel_is_killed(scene: Scene) -> None:
    """SIGKILL to one end of a measurement."""
    _signal_one(scene, ("hpcq-net ", "hpcq-mpi "), signal.SIGKILL)


@fault("measuring", sites=_REAL)
def a_kernel_stands_still(scene: Scene) -> None:
    """SIGSTOP to one end of a measurement, for two seconds."""
    pid = _signal_one(scene, ("hpcq-net ", "hpcq-mpi "), signal.SIGSTOP)
    if pid:
        scene.later(2.0, lambda: _signal(pid, signal.SIGCONT))


@fault("submitted", "measuring", sites=_REAL)
def a_job_is_killed(scene: Scene) -> None:
    """SIGKILL to the script of a job."""
    _signal_one(scene, ("job.sh", ".SC"), signal.SIGKILL)


@fault("submitted", "measuring", sites=_REAL)
def a_job_is_told_to_end(scene: Scene) -> None:
    """SIGTERM to the script of a job, as at the end of its time."""
    _signal_one(scene, ("job.sh", ".SC"), signal.SIGTERM)


@fault(*list(MOMENTS)[:-1], sites=_REAL, free=True)  # the Slurm stand-in itself writes there
def disk_is_full(scene: Scene) -> None:
    """Not one byte is left where hpcq writes, for some seconds."""
    fill(scene.desk.folder)
    time.sleep(scene.dice.uniform(1, 4))
    for path in scene.desk.folder.glob("ballast-*"):
        path.unlink()


@fault("all driven", "loading", "one ended", free=True)
def database_is_locked(scene: Scene) -> None:
    """Somebody else writes to results.db for some seconds."""
    seconds = scene.dice.uniform(1, 5)

    def hold() -> None:
        path = scene.desk.folder / "results.db"
        with contextlib.suppress(sqlite3.DatabaseError), contextlib.closing(sqlite3.connect(path, timeout=30)) as database:
            database.execute("BEGIN EXCLUSIVE")  # fails where it is just being made
            time.sleep(seconds)
            database.rollback()

    if (scene.desk.folder / "results.db").exists():
        thread = threading.Thread(target=hold)
        thread.start()
        scene.mends.append(thread.join)


@fault("before", "committed", "measuring", free=True)
def clock_of_scripts_is_off(scene: Scene) -> None:
    """`date` says another day, in scripts of jobs and wherever else somebody asks it."""
    days = scene.dice.choice([-20000, -1, 1, 400])
    scene.said.append(f"  by {days} days")
    scene.lie("date", f'exec "$real" -d "{days} days" "$@"', scene.dice.uniform(2, 8))


@fault(*list(MOMENTS)[:-2], sites=("pbs", "slurm"))
def a_command_lies(scene: Scene) -> None:
    """A command of the scheduler hangs, answers half, nothing or with an error, for some seconds."""
    name, how = scene.dice.choice(SITES[scene.site][2]), scene.dice.choice(sorted(LIES))
    seconds = scene.dice.uniform(1, 5)
    scene.said.append(f"  {name} {how}, for {seconds:.1f} s")
    scene.lie(name, LIES[how], seconds)


@fault("made", *_AT_WORK, sites=("slurm",), free=True)
def controller_is_away(scene: Scene) -> None:
    """The next commands find no controller."""
    control = scene.control
    assert control is not None
    scene.mends.append(lambda: control(set={"broken": {}}))
    control(set={"broken": {name: scene.dice.randint(1, 4) for name in ("squeue", "sinfo")}})


@fault("made", "opened", sites=("slurm",))
def answers_get_lost(scene: Scene) -> None:
    """Submissions are taken, and sbatch's answer gets lost, or a signal ends it."""
    control = scene.control
    assert control is not None
    scene.mends.append(lambda: control(set={"lost_answers": 0, "killed_answers": 0}))
    control(set={scene.dice.choice(["lost_answers", "killed_answers"]): scene.dice.randint(1, 2)})


@fault("submitted", "measuring", sites=("slurm",))
def a_node_goes_down(scene: Scene) -> None:
    """With what runs on it, for some seconds."""
    control, node = scene.control, f"n{scene.dice.randint(1, 4):04d}"
    assert control is not None
    scene.said.append(f"  which: {node}")
    control(nodes={node: "down"})
    scene.later(scene.dice.uniform(1, 4), lambda: control(nodes={node: ""}))


def _signal_one(scene: Scene, some: tuple[str, ...], which: signal.Signals) -> int:
    deadline, found = time.monotonic() + 2.0, list[int]()
    while not found and time.monotonic() < deadline:
        found = [pid for pid, words in processes_of(scene) if any(one in words for one in some)]
    if not found:
        scene.said.append(f"  none was there: {some[0]}")
        return 0
    pid = scene.dice.choice(sorted(found))
    _signal(pid, which)
    return pid


def _signal(pid: int, which: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, which)


def processes_of(scene: Scene) -> list[tuple[int, str]]:
    """Jobs, kernels and drivers of this campaign: whose words or folder lie below its place. Not this program."""
    place, found = str(scene.lies.parent), []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            own = place in words or (entry / "cwd").readlink().as_posix().startswith(place)
            if words and own and "tests.simulated_" not in words and "--inside" not in words:
                found.append((int(entry.name), words))
    return found


# -- play --------------------------------------------------------------------------------------------------------------


def drawn(seed: int) -> tuple[str, str, bool, list[Planned]]:
    """What a seed draws: a site, how pairs are packed, whether by hand, and faults in the order of their moments."""
    dice = random.Random(seed)
    site = dice.choice(["local", "local", "pbs", "slurm"])
    packing = "" if site == "slurm" else dice.choice(["", "", "allocation: whole"])  # the stand-in plays no tournament
    kinds = dice.sample(sorted(name for name, one in FAULTS.items() if site in one.sites), dice.randint(2, 4))
    faults = [Planned(kind, dice.choice(FAULTS[kind].moments)) for kind in kinds]
    return site, packing, dice.random() < 0.8, sorted(faults, key=lambda one: list(MOMENTS).index(one.moment))


def play(folder: Path, seed: int) -> Story:
    """Play a seed in a mount namespace of its own, where its small disk lies."""
    folder.mkdir(parents=True, exist_ok=True)
    disk = folder / "disk"
    disk.mkdir()
    mounted = f'mount -t tmpfs -o size={DISK_BYTES} small "{disk}" && exec "$0" "$@"'
    inside = [sys.executable, "-m", "tests.faults.campaigns_here", "--inside", str(folder), "--seed", str(seed)]
    began = time.monotonic()
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mounted, *inside], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return Story(seed, "", False, [], broken=[f"the injector itself failed: {done.stderr[-2000:]}"])
    told = json.loads(done.stdout.splitlines()[-1])
    faults = [Planned(**one) for one in told.pop("faults")]
    return Story(**{**told, "faults": faults, "wall_s": time.monotonic() - began})


def _inside(folder: Path, seed: int) -> Story:
    site, packing, by_hand, faults = drawn(seed)
    cluster, pairs, _ = SITES[site]
    lies = folder / "lies"
    lies.mkdir()
    os.environ["PATH"] = f"{lies}:{os.environ['PATH']}"
    made = LocalDesk.at(folder / "elsewhere")
    desk = Desk(folder / "disk", made.folder / "home")
    with _site(site, folder / "site") as control:
        os.environ["PATH"] = f"{lies}:{os.environ['PATH']}"
        desk.cluster("tiny", cluster)
        desk.campaign(INSTANT, BRIEF, more=f"{packing}\nseed: {seed}")
        text = (desk.folder / "try.yaml").read_text()
        text = text.replace("pairs: all", pairs).replace("repetitions: 1", f"repetitions: {REPETITIONS}")
        (desk.folder / "try.yaml").write_text(text)
        scene = Scene(desk, random.Random(seed), site, lies, control, by_hand)
        story = Story(seed, site, by_hand, faults, scene.said, scene.broken)
        try:
            _break_things(scene, faults)
            story.exit_code = to_the_end(scene, _resumed, within_s=END_WITHIN_S)
            for mend in scene.mends:
                mend()
            if story.exit_code not in DONE:
                scene.broken.append(f"hpcq ended with {story.exit_code}: {_tail(scene)}")
            else:
                scene.broken += broken(scene, story.exit_code, free=all(FAULTS[one.kind].free for one in faults))
                story.outcomes = dict(Counter(row["outcome"] for row in desk.rows(ROWS) if row["final"]))
        finally:
            if scene.child is not None:
                kill_session(scene.child)
            for pid, _ in processes_of(scene):
                _signal(pid, signal.SIGKILL)
    return story


@contextlib.contextmanager
def _site(site: str, folder: Path) -> Iterator[Callable[..., Any] | None]:
    if site == "pbs":
        with simulated_pbs(folder) as pbs:
            pbs.control(set={"sleep_s": 0.0})
            yield pbs.control
    elif site == "slurm":
        with simulated_slurm(folder, 4, 2) as slurm:
            slurm.control(set={"run_s": 0.5})
            yield slurm.control
    else:
        yield None


def _break_things(scene: Scene, faults: list[Planned]) -> None:
    started = False
    for one in faults:
        if not started and one.moment != "before":
            scene.start("run")
            started = True
        while not MOMENTS[one.moment](scene):
            if scene.ended and not _resumed(scene):
                scene.said.append(f"{one.moment}: {one.kind}: the run had ended before")
                return
            time.sleep(0.01)
        scene.said.append(f"{one.moment}: {one.kind}")
        FAULTS[one.kind].do(scene)
    if not started:
        scene.start("run")


def _resumed(scene: Scene) -> bool:
    """Where hpcq ended for a fault and not for its results, a person types it again; not for ever."""
    assert scene.child is not None
    code = scene.child.returncode
    if code in DONE or scene.resume_count == RESUMES_MAX:
        return False
    if code > 0 and "error: " not in scene.log.read_text(errors="replace"):
        scene.broken.append(f"hpcq ended with {code} and said no error")
    scene.resume_count += 1
    there = any(scene.desk.folder.glob("runs/*/run.json"))
    scene.said.append(f"  hpcq ended with {code}; {'resumed' if there else 'run again'}")
    scene.start("resume" if there else "run")
    return True


def _tail(scene: Scene) -> str:
    return scene.log.read_text(errors="replace")[-1500:]


# -- what must hold ----------------------------------------------------------------------------------------------------


def broken(scene: Scene, exit_code: int, *, free: bool) -> Iterator[str]:
    """Every promise that does not hold, in words."""
    if len(list(scene.desk.folder.glob("runs/*/run.json"))) != 1:
        yield "there is not one run"
    yield from _rows_are_true(scene, exit_code, free=free)
    yield from _nothing_is_left(scene)
    yield from _database_is_whole(scene)
    yield from _next_run_works(scene)


def _rows_are_true(scene: Scene, exit_code: int, *, free: bool) -> Iterator[str]:
    run, rows = scene.desk.run_folder, scene.desk.rows(ROWS)
    plan = json.loads((run / "tiny" / "plan.json").read_text())
    planned = {
        (f"j{pair:05d}", test, repetition)
        for pair in range(1, len(plan["pairs"]) + 1)
        for test in range(1, TESTS + 1)
        for repetition in range(1, REPETITIONS + 1)
    }
    final = Counter((row["job"], row["test_no"], row["repetition_no"]) for row in rows if row["final"])
    wanted = Counter(planned)
    if final != wanted:
        yield f"final rows are not one per planned result: {sorted((final - wanted) + (wanted - final))[:5]}"
    measured = Counter((row["job"], row["test_no"], row["repetition_no"]) for row in rows if row["outcome"] == "measured")
    yield from (f"measured {count} times: {step}" for step, count in measured.items() if count > 1)
    for row in rows:
        if row["final"] and row["outcome"] != "measured" and (not row["reason"] or str(row["reason"]).startswith("pending")):
            yield f"{row['outcome']} for no reason: {row}"
    whole = sum(row["outcome"] == "measured" for row in rows if row["final"]) == len(planned)
    code = exit_code_of(row for row in rows if row["final"])
    if scene.by_hand and code:
        code = 4  # it ends with `hpcq results`, which judges no run: something is missing
    if exit_code != code:
        yield f"exit code {exit_code}, and what was measured says {code}: {sum(measured.values())} of {len(planned)}"
    if free and not whole:
        lost = [row for row in rows if row["final"] and row["outcome"] != "measured"]
        yield f"nothing of this costs a result, but these were lost: {lost[:3]}"
    begun = Counter(event["tag"] for event in scene.desk.events() if event["event"] == "attempt")
    ends = Counter(event["tag"] for event in scene.desk.events() if event["event"] in {"ended", "refused"})
    yield from (f"begun {count} times: {tag}" for tag, count in begun.items() if count > 1)
    yield from (f"{ends[tag]} ends: {tag}" for tag in begun if ends[tag] != 1)


def _nothing_is_left(scene: Scene, within_s: float = 20.0) -> Iterator[str]:
    deadline = time.monotonic() + within_s
    while processes_of(scene) and time.monotonic() < deadline:
        time.sleep(0.1)
    yield from (f"still runs: {words[:200]}" for _, words in processes_of(scene))
    marks = (".error.json", ".writer", ".spare")
    yield from (f"left behind: {path.name}" for path in scene.desk.found("*") if path.name.endswith(marks))
    if scene.control is not None:
        states = scene.control()["states"]
        live = {name: count for name, count in states.items() if name in {"PENDING", "RUNNING", "Q", "R", "H"}}
        if live:
            yield f"still in the queue: {live}"


def _database_is_whole(scene: Scene) -> Iterator[str]:
    checked = scene.desk.hpcq("db", "check", expect=None)
    if checked.returncode != 0:
        yield f"db check: {checked.stdout[-300:]}{checked.stderr[-300:]}"
    before = _content(scene.desk.folder / "results.db")
    loaded = scene.desk.hpcq("db", "load", expect=None)
    if loaded.returncode != 0:
        yield f"loading again ended with {loaded.returncode}: {loaded.stderr[-300:]}"
    changed = sorted(before ^ _content(scene.desk.folder / "results.db"))
    if changed:
        yield f"loading again changed {len(changed)} rows: {changed[:4]}"


def _content(path: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return set(database.iterdump())


def _next_run_works(scene: Scene) -> Iterator[str]:
    scene.start("run")
    assert scene.child is not None
    code = scene.child.wait(END_WITHIN_S)
    if code != 0:
        yield f"the next run ended with {code}: {_tail(scene)}"


def _stages(verb: str) -> int:
    """The stages of a run in this process, one after the other: a new one, or what is missing of the newest."""
    from hpcq.cli.main import run as hpcq
    from hpcq.run_folder.paths import RunFolder
    from hpcq.runner.site.place import open_run
    from hpcq.runner.workflow import forget_failures

    if verb == "run":
        run = open_run(Path("try.yaml"), [Path("clusters")], Path("results.db").absolute(), Path("runs")).path
    else:
        run = max(Path("runs").glob("*/run.json"), key=lambda path: path.stat().st_mtime).parent.absolute()
    for stage, marker in {"build": "build", "plan": "plan", "drive": "driven", "load": "loaded"}.items():
        if not (run / "tiny" / f"{marker}.json").exists():
            code = hpcq(["stage", stage, str(run), "tiny"])
            if code:
                return code
    forget_failures(RunFolder(run))  # as `hpcq resume` does once all stages are there
    return hpcq(["results", run.name, "--limit", "1"])


def told(story: Story) -> str:
    """A story for people."""
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(story.outcomes.items()))
    where = story.site if story.by_hand else f"{story.site}, workflow"
    head = f"seed {story.seed} ({where}): exit {story.exit_code}, {counts}, {story.wall_s:.0f} s"
    return "\n".join([head, *(f"  {line}" for line in story.said), *(f"  BROKEN {line}" for line in story.broken)])


def main() -> int:
    """Play seeds."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--seed", type=int, action="append", help="play this one; several may be given")
    words.add_argument("--first", type=int, default=1, help="the first of --count seeds")
    words.add_argument("--count", type=int, default=10)
    words.add_argument("--folder", type=Path, help="where what broke is kept (default: a new one below /tmp)")
    words.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    words.add_argument("--stages", help=argparse.SUPPRESS)
    given = words.parse_args()
    if given.stages:
        try:
            return _stages(given.stages)
        except HpcqError as error:
            complain(error.message, error.hint)
            return 1
    if given.inside:
        print(json.dumps(asdict(_inside(given.inside, given.seed[0]))))
        return 0
    base = given.folder or Path(tempfile.mkdtemp(prefix="hpcq-faults-"))
    if "HPCQ_TEST_BUILDS" not in os.environ:
        (base / "builds").mkdir(parents=True, exist_ok=True)
        os.environ["HPCQ_TEST_BUILDS"] = str(base / "builds")
        (base / "sums").mkdir(exist_ok=True)
    kinds, faults, bad = Counter[str](), 0, 0
    for seed in given.seed or range(given.first, given.first + given.count):
        story = play(base / str(seed), seed)
        print(told(story), flush=True)
        happened = [line.partition(": ")[2] for line in story.said if not line.startswith(" ") and "had ended" not in line]
        kinds.update(happened)
        faults += len(happened)
        bad += bool(story.broken)
    count = len(given.seed or range(given.count))
    print(f"{count} campaigns, {faults} faults of {len(kinds)} kinds, {bad} with a broken promise; kept in {base}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
