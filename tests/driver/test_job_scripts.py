"""Job scripts as bash runs them, with real kernels, under a launcher that fails for a moment or for ever."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.files.cluster import read_cluster
from hpcq.kernels import own_kernels
from hpcq.planning.make_plan import make_plan
from hpcq.runner.drive.tournaments import make_tournament, write_any
from hpcq.runner.queue.attempt_files import measured_steps
from hpcq.runner.queue.run_state import all_steps, make_job, write_job
from hpcq.scheduler.types import NodeCondition, NodeState
from tests.kernels.kernel_programs import Programs, wait_for

#: As srun while its controller restarts: says nothing, ends with 1, does better some calls later. $2 is a folder, $3 counts.
# Then comes `/bin/sh SCRIPT`.
LAUNCHER = """#!/bin/sh
folder=$2 refused=$3
shift 3
case "$(cat "$2")" in *" facts "*"'server'"*) what=server ;; *"'tcp_pingpong'"*) what=client ;; *) exec "$@" ;; esac
echo >>"$folder/$what"
[ "$(wc -l <"$folder/$what")" -gt "$refused" ] || { echo "Unable to create step for job 7" >&2; exit 1; }
exec "$@"
"""


def run_job(
    folder: Path, programs: Programs, refused_count: int, walltime_s: int | None = None, lasts: str = "50ms"
) -> tuple[Path, str]:
    """The folder of a job that ran to its end, and the reason in its exit file."""
    place, environment = written_job(folder, programs, refused_count, walltime_s, lasts)
    subprocess.run(["bash", "job.sh"], cwd=place, check=False, timeout=240, env=environment)
    return place, json.loads((place / "exit.json").read_text())["reason"]


def written_job(
    folder: Path, programs: Programs, refused_count: int, walltime_s: int | None, lasts: str
) -> tuple[Path, dict[str, str]]:
    """The folder of a job that may start, and the environment for it."""
    launcher = folder / "launcher"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    (folder / "c.yaml").write_text(
        "name: c\nclusters: [alpha]\nrepetitions: 1\npairs: {rounds: 1}\n"
        f"tests: [{{kernel: tcp_pingpong, parameters: {{duration_s: {lasts}, warmup_s: 0}}}}]\n"
    )
    (folder / "alpha.yaml").write_text(
        f"{{name: alpha, scheduler: slurm, interface: lo, work_directory: {folder},"
        f" launcher: [{launcher}, '{{node}}', {folder}, '{refused_count}']}}\n"
    )
    cluster = read_cluster(folder / "alpha.yaml")
    nodes = [NodeState(name, NodeCondition.IDLE, "idle") for name in ("n1", "n2")]
    plan = make_plan(read_campaign(folder / "c.yaml"), cluster, nodes, "c-1", 7)
    job = make_job(plan, 0, 1, all_steps(plan))
    job = replace(job, walltime_s=walltime_s or job.walltime_s)
    (folder / "bin").mkdir()
    shutil.copy(programs.net, folder / "bin" / "hpcq-net")
    (folder / "secret").write_text("5" * 64)
    (folder / "secret").chmod(0o600)
    place = folder / job.folder
    write_job(job, own_kernels(), cluster, str(folder), place)
    if walltime_s is None:
        (folder / "sleep").symlink_to(shutil.which("true") or "/bin/true")  # the pauses between launches
    return place, {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def test_what_cannot_be_launched_at_once_is_launched_again(tmp_path: Path, programs: Programs) -> None:
    place, reason = run_job(tmp_path, programs, 1)
    assert reason == "done"
    assert measured_steps(place) == {(1, 1)}
    assert [(tmp_path / what).read_text() for what in ("server", "client")] == ["\n\n", "\n\n"]
    assert "Unable to create step" in (place / "t1-r1.err").read_text()


def test_a_launcher_that_never_works_is_given_up(tmp_path: Path, programs: Programs) -> None:
    place, reason = run_job(tmp_path, programs, 99)
    assert reason == "server_not_ready: Unable to create step for job 7"
    assert measured_steps(place) == frozenset()
    assert 1 < (tmp_path / "server").read_text().count("\n") < 10


def sleeps(seconds: int) -> bool:
    """Whether a process sleeps for so long."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if path.read_bytes().endswith(b"sleep\0%d\0" % seconds):
                return True
    return False


def test_a_time_limit_of_odd_seconds_leaves_no_watch_behind(tmp_path: Path, programs: Programs) -> None:
    """It would send TERM to whatever has the number of the script's process by then."""
    place, reason = run_job(tmp_path, programs, 0, walltime_s=71_117)
    assert reason == "done"
    assert measured_steps(place) == {(1, 1)}
    assert "time_limit_s=71117" in (place / "job.sh").read_text()
    wait_for(lambda: not sleeps(71_117))


def test_a_time_limit_of_odd_seconds_ends_the_job(tmp_path: Path, programs: Programs) -> None:
    """The scheduler would give it the whole minute."""
    place, reason = run_job(tmp_path, programs, 0, walltime_s=3, lasts="100s")
    assert reason == "time_limit"
    assert measured_steps(place) == frozenset()


@pytest.mark.promise(
    "The watch over a job's time limit signals only the script that started it, never a later process of its number."
)
def test_the_watch_of_a_script_that_was_killed_signals_nobody(tmp_path: Path, programs: Programs) -> None:
    """The watch takes the time of 1000 s for over at once; by then another process may have the script's number."""
    place, environment = written_job(tmp_path, programs, 0, 1001, "100s")
    born = 'sleep() { case $1 in 1001) until [ -e go ]; do command sleep 0.1; done ;; *) command sleep "$@" ;; esac; }\n'
    script = place / "job.sh"
    script.write_text(born + script.read_text())
    with (tmp_path / "said").open("w") as said:
        job = subprocess.Popen(["bash", "job.sh"], cwd=place, env=environment, stdout=said, stderr=said, start_new_session=True)
    try:
        wait_for((place / "started.json").exists)
        job.send_signal(signal.SIGKILL)
        job.wait()
        (place / "go").touch()
        wait_for(lambda: not watches(place))
        assert not (place / "out_of_time").exists(), "it found its time to be over, and would have sent TERM"
    finally:
        (place / "go").touch()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)


def watches(place: Path) -> bool:
    """Whether a process of a job's script still is in its folder."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (path / "cwd").readlink() == place and (path / "cmdline").read_bytes() == b"bash\0job.sh\0":
                return True
    return False


def tournament(folder: Path, node_count: int, kind: str, lasts: str = "50ms", walltime_s: int | None = None) -> Path:
    """The folder of a tournament of all nodes, ready to start."""
    (folder / "c.yaml").write_text(
        "name: c\nclusters: [alpha]\nrepetitions: 1\npairs: {rounds: 1}\nallocation: whole\n"
        f"tests: [{{kernel: tcp_pingpong, parameters: {{duration_s: {lasts}, warmup_s: 0}}}}]\n"
    )
    (folder / "alpha.yaml").write_text(f"{{name: alpha, interface: lo, work_directory: {folder}, {kind}}}\n")
    cluster = read_cluster(folder / "alpha.yaml")
    nodes = [NodeState(f"n{number}", NodeCondition.IDLE, "idle") for number in range(1, node_count + 1)]
    plan = make_plan(read_campaign(folder / "c.yaml"), cluster, nodes, "c-1", 7)
    missing = {index: all_steps(plan) for index in range(len(plan.pairs))}
    job = make_tournament(plan, list(missing), 1, missing)
    job = replace(job, walltime_s=walltime_s or job.walltime_s)
    write_any(job, own_kernels(), cluster, str(folder), folder / job.folder)
    return folder / job.folder


@pytest.mark.promise("Many agents of a tournament start in bounded numbers.")
@pytest.mark.parametrize("kind", ["scheduler: local", "scheduler: slurm, launcher: [ssh, '{node}']", "scheduler: pbs"])
@pytest.mark.parametrize("what", ["on_all_nodes 5 true", "living >/dev/null"])
def test_many_agents_start_in_bounded_numbers(tmp_path: Path, kind: str, what: str) -> None:
    """Functions of the script alone, with a count in place of pauses and processes."""
    text = (tournament(tmp_path, 70, kind) / "job.sh").read_text()
    functions = text.partition('cd -- "$FOLDER" || exit 1')[0]
    watch = "sleep() { echo pause >>pauses; }; on_node() { :; }; trap - TERM EXIT\n"
    done = subprocess.run(["bash", "-c", f"{functions}\n{watch}{what}"], cwd=tmp_path, check=False, timeout=60)
    assert done.returncode == 0
    assert (tmp_path / "pauses").read_text() == "pause\n" * 2


def installed(folder: Path, programs: Programs) -> dict[str, str]:
    """The environment for a job whose program and secret are put in place here."""
    (folder / "bin").mkdir()
    shutil.copy(programs.net, folder / "bin" / "hpcq-net")
    (folder / "secret").write_text("5" * 64)
    (folder / "secret").chmod(0o600)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


#: A launcher that kills all agents while they play, as Slurm does at a time limit.
SHORT_AGENTS = """#!/bin/sh
shift 2
case "$(cat "$2")" in *"'agent'"*) exec timeout -s KILL 3 "$@" ;; *) exec "$@" ;; esac
"""


@pytest.mark.promise("A tournament whose agents the scheduler ended at the time limit is timed out.")
@pytest.mark.parametrize(("walltime_s", "reason"), [(None, "agents_lost"), (7, "time_limit")])
def test_a_tournament_whose_agents_are_ended_says_so(
    tmp_path: Path, programs: Programs, walltime_s: int | None, reason: str
) -> None:
    """At the end of its time it does not call that a loss."""
    (tmp_path / "launcher").write_text(SHORT_AGENTS)
    (tmp_path / "launcher").chmod(0o755)
    kind = f"scheduler: slurm, launcher: [{tmp_path / 'launcher'}, '{{node}}', x]"
    folder = tournament(tmp_path, 3, kind, "100s", walltime_s)
    subprocess.run(["bash", "job.sh"], cwd=folder, check=False, timeout=240, env=installed(tmp_path, programs))
    assert json.loads((folder / "exit.json").read_text())["reason"].startswith(reason)
    assert not [line for line in (folder / "spool.jsonl").read_text().splitlines() if '"rc":' in line], "nothing has failed"


#: A launcher under which no agent gets to its conductor.
NO_AGENT = """#!/bin/sh
shift 2
case "$(cat "$2")" in *"'agent'"*) echo 'hpcq-net: join: "10.0.0.1": No route to host' >&2; exit 3 ;; *) exec "$@" ;; esac
"""


@pytest.mark.promise("A tournament whose agents did not come ends with the words of an agent as its reason.")
def test_a_tournament_whose_agents_cannot_join_says_why(tmp_path: Path, programs: Programs) -> None:
    """Three starts, none of which waits for the minute that the conductor would give its agents."""
    (tmp_path / "launcher").write_text(NO_AGENT)
    (tmp_path / "launcher").chmod(0o755)
    folder = tournament(tmp_path, 3, f"scheduler: slurm, launcher: [{tmp_path / 'launcher'}, '{{node}}', x]")
    environment = installed(tmp_path, programs)
    (tmp_path / "sleep").symlink_to(shutil.which("true") or "/bin/true")
    subprocess.run(["bash", "job.sh"], cwd=folder, check=False, timeout=240, env=environment)
    told = json.loads((folder / "exit.json").read_text())["reason"]
    assert told == "agents_did_not_come: hpcq-net: join: 10.0.0.1: No route to host"
    assert (folder / "conductor.err").read_text().count("lost its agents before they played") == 2
