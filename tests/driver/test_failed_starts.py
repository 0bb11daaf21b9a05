"""Starts that fail: job scripts as bash runs them with a trouble of one kind, and what a driver makes of the words left."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.model import PairChoice, Pattern
from hpcq.kernels import own_kernels
from hpcq.planning.make_plan import make_plan
from hpcq.planning.pairs import make_pairs
from hpcq.run_folder.failed_starts import cause_of, first_error, words_of
from hpcq.runner.queue.run_state import all_steps, make_job, write_job
from hpcq.scheduler.types import Fate, NodeCondition, NodeState, Submitted
from tests.driver.fake_site import FakeJob, FakeSite
from tests.kernels.kernel_programs import Programs
from tests.lab.campaigns_in_lab import Desk
from tests.lab.lab_fixture import RunningLab
from tests.local.local_desk import LocalDesk

#: As srun on two nodes that are this machine: what follows `--` runs here.
SRUN = """#!/bin/bash
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


def job_of(folder: Path, programs: Programs, keys: str, test: str) -> Path:
    """The folder of a job that may start, with `srun` on PATH below `bin`."""
    (folder / "c.yaml").write_text(f"name: c\nclusters: [alpha]\nrepetitions: 1\npairs: {{rounds: 1}}\ntests: [{test}]\n")
    (folder / "alpha.yaml").write_text(f"name: alpha\nscheduler: slurm\nwork_directory: {folder}\n{keys}\n")
    cluster = read_cluster(folder / "alpha.yaml")
    nodes = [NodeState(name, NodeCondition.IDLE, "idle") for name in ("n1", "n2")]
    plan = make_plan(read_campaign(folder / "c.yaml"), cluster, nodes, "c-1", 7)
    job = make_job(plan, 0, 1, all_steps(plan))
    (folder / "bin").mkdir()
    for program in ("hpcq-net", "hpcq-mpi"):
        (folder / "bin" / program).write_bytes(programs.net.read_bytes())
        (folder / "bin" / program).chmod(0o755)
    (folder / "bin" / "srun").write_text(SRUN)
    (folder / "bin" / "srun").chmod(0o755)
    (folder / "bin" / "sleep").symlink_to("/bin/true")  # the pauses between launches
    (folder / "secret").write_text("5" * 64)
    (folder / "secret").chmod(0o600)
    write_job(job, own_kernels(), cluster, str(folder), folder / job.folder)
    return folder / job.folder


def replaced(content: bytes | str, mode: int = 0o755) -> Callable[[Path], None]:
    """Put something else in place of the kernel programs."""

    def put(folder: Path) -> None:
        for program in ("hpcq-net", "hpcq-mpi"):
            path = folder / "bin" / program
            path.unlink()
            path.write_bytes(content.encode() if isinstance(content, str) else content)
            path.chmod(mode)

    return put


def without_a_library(folder: Path) -> None:
    """Link the programs with a library that is gone afterwards."""
    (folder / "gone.c").write_text("int gone(void) { return 0; }")
    (folder / "main.c").write_text("int gone(void); int main(void) { return gone(); }")
    cc = ["cc", "-o"]
    subprocess.run([*cc, folder / "libgone.so.7", "-shared", "-Wl,-soname,libgone.so.7", folder / "gone.c"], check=True)
    subprocess.run([*cc, folder / "main", folder / "main.c", folder / "libgone.so.7"], check=True)
    (folder / "libgone.so.7").unlink()
    replaced((folder / "main").read_bytes())(folder)


def launcher(words: str, code: int) -> Callable[[Path], None]:
    """Put a launcher in place that says something and fails."""

    def put(folder: Path) -> None:
        (folder / "bin" / "srun").write_text(f"#!/bin/sh\ncat <<'END' >&2\n{words}\nEND\nexit {code}\n")

    return put


def lingering(folder: Path) -> None:
    """A program that dies, below a timeout(1) that ends some time after its output has: on a loaded machine that is so."""
    replaced("#!/bin/sh\nkill -ILL $$\n")(folder)
    (folder / "bin" / "timeout").write_text(
        '#!/bin/bash\nshift 2\n"$@" &\nexec >&- 2>&-\nwait $!\n/bin/sleep 0.3\nkill -ILL $$\n'
    )
    (folder / "bin" / "timeout").chmod(0o755)
    (folder / "bin" / "sleep").unlink()


def closed_ports(folder: Path) -> None:
    """Let the client meet a port that nobody opens to it, as behind a firewall that rejects."""
    for program in ("hpcq-net", "hpcq-mpi"):
        real = (folder / "bin" / program).rename(folder / "bin" / f"real-{program}")
        other = 'for one; do [ "$last" = --port ] && one=1; last=$one; set -- "$@" "$one"; shift; done'
        words = f'#!/bin/bash\n{other}\nexec {real} "$@"\n'
        (folder / "bin" / program).write_text(words)
        (folder / "bin" / program).chmod(0o755)


def nothing(_: Path) -> None:
    """The keys are the trouble."""


NET = "{kernel: tcp_pingpong, parameters: {duration_s: 50ms, warmup_s: 0}}"
MPI = "{kernel: mpi_pingpong, parameters: {duration_s: 50ms, warmup_s: 0}}"
LO = "interface: lo"
ARM = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00" + bytes(100)
UCX = "ib_mlx5dv_md.c: error: ibv_create_cq failed: Cannot allocate memory: set max locked memory (ulimit -l) to 'unlimited'"
PLUGIN = "srun: error: Couldn't find the specified plugin name for mpi/nosuch\nsrun: error: cannot find mpi plugin"
PMI2 = (
    "slurmstepd-n1: error: mpi/pmi2: value not properly terminated in client request\nAbort(743588879) on node 0: Fatal error"
)
PMIX = f"{LO}\nmpi: {{launch: srun --mpi=pmix}}"
OLD = '#!/bin/sh\necho "$0: version \\`GLIBC_2.99\' not found" >&2\nexit 1\n'
ACCOUNT = "srun: error: Invalid account or account/partition combination"
SLOTS = f"{LO}\nmpi: {{launch: srun x}}"
STARTS = {
    "interface": ("interface: nosuch0", NET, nothing, "interface nosuch0: no such interface", "`interface`"),
    "launcher": (f"{LO}\nlauncher: nosuch-launcher {{node}}", NET, nothing, "nosuch-launcher", "`launcher`"),
    "ssh": (LO, NET, launcher("Host key verification failed.", 255), "Host key verification failed", "by ssh"),
    "module": (f"{LO}\nmodules: [nosuch/1]", NET, nothing, "module_not_loaded: nosuch/1", "`modules`"),
    "library": (LO, NET, without_a_library, "libgone.so.7: cannot open shared object", "LD_LIBRARY_PATH"),
    "C library": (LO, NET, replaced(OLD), "GLIBC_2.99", "`connection`"),
    "processor": (LO, NET, replaced(ARM), "Exec format error", "`connection`"),
    "cflags": (LO, NET, replaced("#!/bin/sh\nkill -ILL $$\n"), "died of SIGILL", "cflags"),
    "cflags, later": (LO, NET, lingering, "died of SIGILL", "cflags"),
    "noexec": (LO, NET, replaced("#!/bin/sh\n", 0o644), "ermission denied", "noexec"),
    "step": (LO, NET, launcher(ACCOUNT, 1), "Invalid account", "`account`"),
    "limit": (LO, NET, launcher("srun: error: fork: Resource temporarily unavailable", 1), "Resource temporarily", "ulimit -u"),
    "quota": (LO, NET, launcher("slurmstepd: error: write: Disk quota exceeded", 1), "Disk quota exceeded", "make room"),
    "MPI launcher": (f"{LO}\nmpi: {{launch: nosuch-mpirun -np 2}}", MPI, nothing, "nosuch-mpirun", "`mpi.launch`"),
    "MPI plugin": (f"{LO}\nmpi: {{launch: srun --mpi=nosuch}}", MPI, launcher(PLUGIN, 1), "mpi/nosuch", "its launcher lists"),
    "MPI requests": (f"{LO}\nmpi: {{launch: srun --mpi=pmi2}}", MPI, launcher(PMI2, 15), "not properly", "CH4_NETMOD"),
    "MPI library": (PMIX, MPI, without_a_library, "libgone.so.7", "`modules`"),
    "MPI processor": (PMIX, MPI, replaced("#!/bin/sh\nkill -ILL $$\n"), "SIGILL", "cflags"),
    "ports closed": (LO, NET, closed_ports, "refused", "firewall"),
    "memlock": (PMIX, MPI, launcher(UCX, 1), "Cannot allocate memory", "ulimit -l"),
    "slots": (SLOTS, MPI, launcher("There are not enough slots available", 1), "not enough slots", "--oversubscribe"),
}  # fmt: skip


@pytest.mark.parametrize("trouble", STARTS)
@pytest.mark.promise("A job whose programs cannot start ends with the words of the node, and hpcq knows a remedy.")
def test_a_job_that_cannot_start_says_why(tmp_path: Path, programs: Programs, trouble: str) -> None:
    keys, test, spoil, words, remedy = STARTS[trouble]
    if "mpi" not in keys:
        keys += "\nmpi: {compiler: mpicc}"
    folder = job_of(tmp_path, programs, keys, test)
    spoil(tmp_path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BASH_FUNC_module")}
    environment["PATH"] = f"{tmp_path / 'bin'}:{environment['PATH']}"
    subprocess.run(["bash", "job.sh"], cwd=folder, check=False, timeout=100, env=environment, capture_output=True)
    said = words_of(folder)
    assert words in said.text, (said, *[(path.name, path.read_text()) for path in folder.glob("*.err")])
    assert (cause := cause_of(said.text)) is not None, said
    assert remedy in cause.remedy
    json.loads((folder / "exit.json").read_text())
    if test == NET and trouble not in {"module", "ports closed"}:
        assert said.on_each_node, "the client was tried, too, and ended in the same way"


@pytest.mark.fast
@pytest.mark.promise("A pipe in place of what a job wrote for people holds no driver up.")
def test_a_pipe_has_no_words(tmp_path: Path) -> None:
    (tmp_path / "t1-r1.status").write_text('{"rc": 139}')
    os.mkfifo(tmp_path / "t1-r1.err")
    assert words_of(tmp_path).text == "died of SIGSEGV"


@pytest.mark.long
@pytest.mark.promise("A job whose ports are all taken says so.")
def test_ports_that_others_hold(tmp_path: Path, programs: Programs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        folder = job_of(tmp_path, programs, f"{LO}\nports: {port}-{port}", NET)
        environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
        subprocess.run(["bash", "job.sh"], cwd=folder, check=False, timeout=100, env=environment, capture_output=True)
    said = words_of(folder)
    assert said.on_each_node
    assert (cause := cause_of(said.text)) is not None, said
    assert "`ports`" in cause.remedy


@pytest.mark.fast
@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified", "`account`"),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", "`qos`"),
        ("sbatch: error: invalid partition specified: nosuch", "`partition`"),
        ("sbatch: error: Requested time limit is invalid (missing or exceeds some limit)", "fewer tests"),
        ("sbatch: error: Batch job submission failed: Invalid feature specification", "`constraint`"),
        ("qsub: Unknown queue", "`queue`"),
        ("connect to 10.0.0.2 port 20001: No route to host", "firewall"),
        ("/bin/sh: 1: cd: can't cd to /root/hpcq/run/alpha", "folder that all nodes see"),
        ("sh: 1: cannot create .seen: Read-only file system", "nodes may write"),
        ("server: listen on 10.0.0.2: found port 20001: allowed: a port that is not taken", "must leave room"),
        ("server: listen on 10.0.0.2: found ports 80 to 90: allowed: 1024 and more", "may open"),
        ("bind: found 10.0.0.9: allowed: an address of this node", "`interface`"),
    ],
)  # fmt: skip
def test_words_of_schedulers_and_shells(words: str, remedy: str) -> None:
    cause = cause_of(words)
    assert cause is not None
    assert remedy in cause.remedy


@pytest.mark.fast
def test_what_a_launcher_adds_is_no_cause() -> None:
    text = "srun: error: n1: task 0: Exited with exit code 127\nsh: 1: hpcq-net: not found\nsrun: Terminating job step 3.0\n"
    assert first_error(text) == "sh: 1: hpcq-net: not found"
    assert cause_of("Unable to create step for job 7: Job/step already completing or completed") is None, "may pass"


# ----------------------------------------------------------------------------------------------------------------------
# What a driver makes of it.


def failing(site: FakeSite, *nodes: str, reason: str, on_each_node: bool = False) -> None:
    """Let each job with one of these nodes end with this reason."""
    end = site.scheduler._write_end

    def write_end(job: object) -> None:
        end(job)  # type: ignore[arg-type]
        path = job.folder / "exit.json"  # type: ignore[attr-defined]
        if set(nodes) & set(job.nodes):  # type: ignore[attr-defined]
            for left in path.parent.glob("t*-r*.*"):
                left.unlink()
            said = {**json.loads(path.read_text()), "reason": reason, "rc": 1, "on_each_node": on_each_node}
            path.write_text(json.dumps(said))

    site.scheduler._write_end = write_end  # type: ignore[method-assign]


REASON = "server_not_ready: interface ib0: no such interface"


@pytest.mark.promise("A failure that every job of a run will share ends the run, with the node's words and what to do.")
def test_a_cause_that_both_nodes_have_ends_the_run(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, pairs=[("n1", "n2"), ("n3", "n4"), ("n1", "n3"), ("n2", "n4")])
    failing(site, "n1", "n2", "n3", "n4", reason=REASON, on_each_node=True)
    events = site.drive()
    [cancel] = [one for one in events if one["event"] == "cancel"]
    assert cancel["reason"] == REASON
    assert cancel["remedy"].startswith("`interface`")
    assert len([one for one in events if one["event"] == "attempt"]) <= 4, "none was tried twice"
    assert set(site.reasons().values()) == {REASON}


#: What jobs say of a trouble of STARTS where the words there are a part of it.
SAID = {
    "ports closed": "connect to 10.0.0.2: Connection refused (ECONNREFUSED)",
    "launcher": "nosuch-launcher: command not found",
    "MPI launcher": "nosuch-mpirun: not found",
    "noexec": "hpcq-net: Permission denied",
    "MPI plugin": "cannot find mpi plugin mpi/nosuch",
    "MPI library": "libgone.so.7: cannot open shared object file",
    "MPI requests": PMI2,
    "step": ACCOUNT,
    "C library": "version `GLIBC_2.99' not found",
    "limit": "fork: Resource temporarily unavailable",
}


@pytest.mark.promise("A start that fails on every node ends the run with its first jobs, whatever the cause.")
@pytest.mark.parametrize("trouble", [name for name in STARTS if name != "quota"])
def test_every_cause_ends_the_run_with_its_first_jobs(tmp_path: Path, trouble: str) -> None:
    names = [f"n{number}" for number in range(1, 7)]
    site = FakeSite(tmp_path, node_count=6, pairs=make_pairs(PairChoice(Pattern.ALL), names, 7))
    said = SAID.get(trouble, STARTS[trouble][3])
    failing(site, *names, reason=f"server_not_ready: {said}")
    events = site.drive()
    [cancel] = [one for one in events if one["event"] == "cancel"]
    assert said in cancel["reason"]
    assert STARTS[trouble][4] in cancel["remedy"]
    assert len([one for one in events if one["event"] == "ended" and one["outcome"] == "failed"]) <= 3, "one job on each node"
    tries = [one["job"] for one in events if one["event"] == "attempt"]
    assert len(tries) == len(set(tries)), "none was tried twice"


def test_three_bad_nodes_of_twenty_end_nothing(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(1, 21)]
    site = FakeSite(tmp_path, node_count=20, pairs=make_pairs(PairChoice(Pattern.ROUNDS, round_count=1), names, 7))
    bad = [pair[0] for pair in site.pairs[:3]]
    failing(site, *bad, reason=REASON)
    events = site.drive()
    assert not [one for one in events if one["event"] == "cancel"]
    assert len([one for one in site.ends() if one[1] == "completed"]) == 7


@pytest.mark.promise("One node on which nothing starts does not end a run: the others are measured.")
def test_one_bad_node_ends_nothing(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, pairs=[("n1", "n2"), ("n3", "n4")])
    failing(site, "n1", reason=REASON)
    site.scheduler.node_states = dict.fromkeys(("n3", "n4"), (NodeCondition.BUSY, "allocated"))
    site.at(200, site.scheduler.node_states.clear)
    events = site.drive()
    assert not [one for one in events if one["event"] == "cancel"]
    assert ("j00002", "completed") in site.ends()


@pytest.mark.promise("A node without the interface is tried once where others have measured, and its rows say why.")
def test_an_interface_that_is_not_there_comes_by_no_second_try(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, node_count=3, pairs=[("n2", "n3"), ("n1", "n2")])
    failing(site, "n1", reason=REASON)
    events = site.drive()
    assert site.ends() == [("j00001", "completed"), ("j00002", "failed")]
    assert [one["reason"] for one in events if one["event"] == "ended" and one["outcome"] == "failed"] == [REASON]


def over_both(folder: Path) -> FakeSite:
    """A campaign over eth0 and ib0."""
    pairs = [("n1", "n2"), ("n3", "n4"), ("n1", "n3"), ("n2", "n4")]
    both = [pair for pair in pairs for _ in range(2)]
    return FakeSite(folder, pairs=both, over=("eth0", "ib0") * 4, keys="networks: {eth: eth0, ib: ib0}")


def fails_over(site: FakeSite, *interfaces: str) -> None:
    """Let each job over one of these interfaces find that no node has it."""
    end = site.scheduler._write_end

    def write_end(job: FakeJob) -> None:
        end(job)
        script, path = (job.folder / "job.sh").read_text(), job.folder / "exit.json"
        if any(f"INTERFACE={one}\n" in script for one in interfaces):
            for left in path.parent.glob("t*-r*.*"):
                left.unlink()
            said = {**json.loads(path.read_text()), "reason": REASON, "rc": 1, "on_each_node": True}
            path.write_text(json.dumps(said))

    site.scheduler._write_end = write_end  # type: ignore[method-assign]


@pytest.mark.promise("A network that no node has ends with its first jobs and says so; the others are measured.")
def test_a_network_that_is_not_there_ends_its_own_pairs(tmp_path: Path) -> None:
    site = over_both(tmp_path)
    fails_over(site, "ib0")
    events = site.drive()
    assert not [one for one in events if one["event"] == "cancel"]
    assert {job for job, outcome in site.ends() if outcome == "completed"} == {"j00001", "j00003", "j00005", "j00007"}
    failed = {job for job, outcome in site.ends() if outcome == "failed"}
    withdrawn = {one["tag"].split("-")[-2] for one in events if one["event"] == "withdraw"}
    assert failed | withdrawn | site.reasons().keys() == {"j00002", "j00004", "j00006", "j00008"}
    assert len(failed) <= 2, "the first jobs over ib0 tell it of all"
    assert {one["reason"] for one in events if one["event"] == "withdraw"} | {*site.reasons().values()} == {REASON}


def test_a_start_that_fails_over_each_network_ends_the_run(tmp_path: Path) -> None:
    site = over_both(tmp_path)
    fails_over(site, "ib0", "eth0")
    [cancel] = [one for one in site.drive() if one["event"] == "cancel"]
    assert cancel["reason"] == REASON
    assert set(site.reasons().values()) == {REASON}


@pytest.mark.promise("A node that failed for good over one network is still measured over the others.")
def test_a_node_is_decided_for_one_network_only(tmp_path: Path) -> None:
    pairs = [("n4", "n1"), ("n4", "n2"), ("n4", "n3"), ("n1", "n2"), ("n2", "n3"), ("n3", "n1"), ("n4", "n5"), ("n5", "n1")]
    both = [pair for pair in pairs for _ in range(2)]
    site = FakeSite(tmp_path, node_count=5, pairs=both, over=("eth0", "ib0") * 8)
    site.plan = replace(site.plan, decided_after=3)
    site.run.plan("sim").write_text(site.plan.to_json())
    end = site.scheduler._write_end

    def write_end(job: FakeJob) -> None:
        over_ib = "INTERFACE=ib0\n" in (job.folder / "job.sh").read_text()
        site.scheduler.failing = {"n4"} if over_ib else set()
        end(job)

    site.scheduler._write_end = write_end  # type: ignore[method-assign]
    site.drive()
    words = "decided: n4 failed over ib0 with n1, n2, n3, which are fine with others"
    assert site.reasons() == {"j00014": words}
    assert ("j00013", "completed") in site.ends()


def test_what_may_pass_is_tried_again(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, node_count=2, pairs=[("n1", "n2")])
    failing(site, "n1", reason="server_not_ready: Unable to create step for job 7")
    events = site.drive()
    assert len([one for one in events if one["event"] == "attempt"]) == 2


@pytest.mark.promise("A refusal that no job of a run can avoid, as of a wrong account, ends the run after one submission.")
def test_a_wrong_account_ends_the_run(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, pairs=[("n1", "n2"), ("n3", "n4")])
    words = "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified"
    site.scheduler.answer = lambda one: Submitted(one.tag, None, words, Fate.REFUSED)
    events = site.drive()
    [cancel] = [one for one in events if one["event"] == "cancel"]
    assert cancel["reason"] == words
    assert len(site.scheduler.submissions) <= 2


@pytest.mark.long
@pytest.mark.promise("hpcq run ends with the words of the node and a hint if no job can start.")
def test_a_run_on_an_interface_that_is_not_there(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.cluster("tiny", "name: {name}\nscheduler: local\ninterface: ib0\ncompiler: {{cflags: -O0}}\n")
    desk.campaign()
    done = desk.hpcq("run", "try.yaml", expect=4)
    assert "error: tiny: no job of this run can start its programs: server_not_ready: server: interface ib0" in done.stderr
    assert "hint: `interface` of the cluster file" in done.stderr
    [row] = desk.rows("SELECT DISTINCT reason FROM v_all_results")
    assert "interface ib0: no such interface" in row["reason"]
    assert len([one for one in desk.events() if one["event"] == "attempt"]) == 1


@pytest.mark.long
@pytest.mark.lab
@pytest.mark.promise("A work directory that nodes do not share ends the run with the node's words.")
def test_a_work_directory_that_nodes_do_not_see(lab: RunningLab, tmp_path: Path) -> None:
    lab.at_rest("alpha")
    (tmp_path / "clusters").mkdir()
    text = lab.cluster_file("alpha").read_text().replace("work_directory: /scratch", "work_directory: /tmp")
    (tmp_path / "clusters" / "alpha.yaml").write_text(text)
    (tmp_path / "c.yaml").write_text(f"name: c\nclusters: [alpha]\npairs: {{rounds: 1}}\nrepetitions: 1\ntests: [{NET}]\n")
    done = Desk(tmp_path, lab).hpcq("run", "c.yaml", expect=4)
    assert "no job of this run can start its programs:" in done.stderr
    assert "can't cd to /tmp/hpcq" in done.stderr
    assert "must be a folder that all nodes see" in done.stderr
