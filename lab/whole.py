"""A lab as a whole: up, down, and the lock against two commands at once."""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import machines
import wan
from faults import LabError
from layout import LABS_FOLDER, Cluster, Lab, Settings, lab_of, settings_as_json, settings_from_json
from processes import ENVIRONMENT, recorded, wait_for
from services import daemons, nodes
from services.site_files import new_key, write_site
from services.slurm_files import DEFAULT_PARTITION
from writing import TEMPLATES, fill

INIT_START_S = 10.0
REMOVE_S = 20.0
MARK = "lab.json"
Progress = Callable[[str], None]


def load(state: Path) -> Lab | None:
    """The lab in this folder; None if there is none."""
    try:
        settings = settings_from_json(json.loads((state / MARK).read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as found:
        raise LabError(f"{state}/{MARK}: not what this release wrote: {found}", "hpcq lab down") from found
    return lab_of(settings, state)


def up(settings: Settings, state: Path, progress: Progress) -> Lab:
    """Start a lab. If anything fails, nothing of it is left running."""
    lab = lab_of(settings, state)
    state.mkdir(parents=True, exist_ok=True)
    with lock(state):
        if recorded(lab.init_pid_file) is not None:
            raise LabError(f"lab {settings.name}: found it up already, in {state}", "hpcq lab down, or another --name")
        _refuse_other_files(state)
        _empty(state)
        try:
            _write(lab)
            _start_init(lab)
            _start(lab, progress)
        except LabError:
            _end_processes(state)
            raise
        except BaseException:
            _remove(state)
            raise
    return lab


def down(state: Path) -> bool:
    """Take down whatever is left of the lab in this folder. Returns False if there was nothing."""
    if not state.exists():
        return False
    with lock(state):
        _remove(state)
    return True


@contextlib.contextmanager
def lock(state: Path, max_wait_s: float = 0.0) -> Iterator[None]:
    """Let only one command at a time change a lab. The lock ends with the process that holds it."""
    folder = os.open(state, os.O_RDONLY | os.O_DIRECTORY)

    def taken() -> bool:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    try:
        wait_for(taken, max_wait_s, f"{state}: another lab command is at work on it", "wait for it, or end it")
        yield
    finally:
        os.close(folder)


def _write(lab: Lab) -> None:
    """Write every file of the lab; lab.json first, so that a half-written lab can be recognised."""
    settings = lab.settings
    (lab.state / MARK).write_text(json.dumps(settings_as_json(settings), indent=1) + "\n")
    for folder in ("ssh", "clusters"):
        (lab.state / folder).mkdir()
    new_key(lab.state / "ssh/key", f"hpcq lab {settings.name}")
    public_key = (lab.state / "ssh/key.pub").read_text()
    hosts = []
    for cluster in lab.clusters:
        write_site(lab, cluster, public_key)
        head = cluster.head
        paths = {"head": head.name, "mgmt_address": head.mgmt_address, "pid_file": cluster.pid_file(head.name)}
        hosts.append(fill("ssh_host", paths))
        lab.cluster_file(cluster).write_text(
            fill(
                "cluster-pbs.yaml" if cluster.scheduler == "pbs" else "cluster.yaml",
                {
                    "cluster": cluster.name,
                    "lab": settings.name,
                    "ssh_config": lab.ssh_config,
                    "partition": DEFAULT_PARTITION[cluster.name],
                    "account": "account: lab\n" if cluster.has_accounting else "",
                },
            )
        )
    lab.ssh_config.write_text(
        fill("ssh_config", {"lab": settings.name, "state": lab.state, "hosts": "".join(hosts).rstrip() + "\n"})
    )
    if settings.wire != "netem":
        wan.build_wire(lab)


def _start_init(lab: Lab) -> None:
    """Start the process from which all others of the lab descend. Until it receives `go`, it ends when we do."""
    command = ["unshare", "--pid", "--fork", "--mount", "--propagation", "private", "sh"]
    with (lab.state / "init.log").open("w") as log:
        started = subprocess.Popen(
            [*command, str(TEMPLATES / "init.sh"), str(lab.state)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=ENVIRONMENT,
            cwd="/",
            start_new_session=True,
            text=True,
        )
    said = started.stdout.readline() if started.stdout else ""
    if said.strip() != "ready" or started.stdin is None:
        last_words = ((lab.state / "init.log").read_text().strip() or "no message").splitlines()[-1]
        raise LabError(
            f"lab {lab.settings.name}: its namespaces could not be made: {last_words}",
            "in a container, it needs to be a privileged one",
        )
    with started.stdin as say:
        say.write("go\n")
    wait_for((lab.state / "init.ready").exists, INIT_START_S, f"{lab.state}/init.log: the lab's first process is not ready")
    started.returncode = 0  # it keeps running; do not wait for it


def _start(lab: Lab, progress: Progress) -> None:
    """Start the two clusters side by side: each mostly waits for its own daemons."""
    with ThreadPoolExecutor(len(lab.clusters)) as side_by_side:
        try:
            progress("switches and heads")
            list(side_by_side.map(lambda cluster: _start_site_and_head(lab, cluster), lab.clusters))
            wan.start_wan(lab)
            list(side_by_side.map(lambda cluster: _start_daemons_and_nodes(lab, cluster, progress), lab.clusters))
        except BaseException:
            _end_processes(lab.state)  # otherwise we would wait for the other cluster
            raise


def _start_site_and_head(lab: Lab, cluster: Cluster) -> None:
    machines.start_site(lab, cluster)
    machines.start_machines(lab, cluster, [cluster.head])


def _start_daemons_and_nodes(lab: Lab, cluster: Cluster, progress: Progress) -> None:
    progress(f"{cluster.name}: accounting and controller" if cluster.has_accounting else f"{cluster.name}: controller")
    daemons.start_head(lab, cluster)
    progress(f"{cluster.name}: {len(cluster.nodes)} nodes")
    machines.start_machines(lab, cluster, cluster.nodes)
    nodes.wait_idle(lab, cluster)
    progress(f"{cluster.name}: ready")


def _remove(state: Path) -> None:
    _end_processes(state)
    _refuse_other_files(state)
    until_s = time.monotonic() + REMOVE_S
    while not _empty(state):  # a command of an `up` that was killed may still write
        if time.monotonic() > until_s:
            raise LabError(f"{state}: found files that come back or cannot be removed: it must be empty", "hpcq lab down again")
        time.sleep(0.2)
    state.rmdir()
    if state.parent == LABS_FOLDER:
        with contextlib.suppress(OSError):
            state.parent.rmdir()


def _end_processes(state: Path) -> None:
    init = recorded(state / "init.pid")
    if init is not None:
        init.kill(timeout_s=60)


def _refuse_other_files(state: Path) -> None:
    if not (state / MARK).exists() and any(state.iterdir()):
        raise LabError(f"{state}: found files that are not a lab's: an empty or a new folder is needed")


def _empty(state: Path) -> bool:
    """Remove everything in the folder but not the folder, which holds the lock. Returns False if something is left.

    lab.json, the mark, goes last.
    """
    mark = state / MARK
    for path in state.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path != mark:
            path.unlink(missing_ok=True)
    if any(path != mark for path in state.iterdir()):
        return False
    mark.unlink(missing_ok=True)
    return not any(state.iterdir())


def progress_on_tty() -> Progress:
    """Print progress on stderr while a person watches; nothing otherwise."""
    if not sys.stderr.isatty():
        return lambda _: None
    started_s = time.monotonic()
    return lambda words: print(f"{time.monotonic() - started_s:5.1f} s  {words}", file=sys.stderr)
