"""What comes from outside of hpcq on a real PBS: jobs deleted by force, the scheduler's estimates, other launchers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hpcq.scheduler.types import JobState, NodeCondition
from tests.lab.campaigns_in_lab import ENDLESS
from tests.lab.heads_in_lab import typed_on_head
from tests.lab.lab_fixture import RunningLab
from tests.local.local_desk import LocalDesk
from tests.pbs_live.live import QUICK, Live
from tests.pbs_live.test_campaigns import outcomes
from tests.pbs_live.test_hostile import running
from tests.pbs_live.test_sequences import ONE_TEST

KEY = "/home/labuser/.ssh/hpcq"
SSH = f"-o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i {KEY}"
MPI_TEST = "tests: [{kernel: mpi_pingpong, parameters: {duration_s: 30, warmup_s: 0, operation_count_max: 20}}]"
#: How Open MPI, and hydra, reach the other nodes without PBS. hpcq names them a remote shell of PBS; words go first.
MPI_BY_SSH = {
    "Open MPI": (
        "{compiler: mpicc.openmpi, launch: 'mpirun.openmpi -np {count} --hostfile {hostfile} --map-by node --mca plm rsh"
        f' --mca plm_rsh_agent "ssh {SSH}"\'}}'
    ),
    "MPICH": (
        "{compiler: mpicc.mpich, launch: 'mpirun.mpich -np {count} -f {hostfile} -launcher ssh"
        " -launcher-exec /scratch/of-labuser/by-ssh'}"
    ),
}


@contextmanager
def strict_ordering(live: Live) -> Iterator[None]:
    """The scheduler keeps nodes for the first jobs of the queue, and so estimates their starts."""
    config, home = "/var/spool/pbs/sched_priv/sched_config", "/var/spool/pbs"
    reread = f"kill -HUP $(cat {home}/sched_priv/sched.lock)"
    live.root(f"cp {config} /tmp/sched_config; sed -i 's/^strict_ordering:.*/strict_ordering: true ALL/' {config}; {reread}")
    live.qmgr("set server backfill_depth = 2")
    try:
        yield
    finally:
        live.root(f"cp /tmp/sched_config {config}; {reread}")
        live.qmgr("unset server backfill_depth")


@contextmanager
def ssh_to_nodes(live: Live) -> Iterator[None]:
    """The nodes let labuser in by ssh, as nodes of many sites do."""
    made = f"[ -e {KEY} ] || ssh-keygen -q -t ed25519 -N '' -f {KEY} && cat {KEY}.pub >>.ssh/authorized_keys"
    live.lab.ssh(live.cluster, made)
    script = f"printf '#!/bin/sh\\nexec ssh {SSH} \"$@\"\\n' >{live.work()}/by-ssh && chmod 755 {live.work()}/by-ssh"
    live.lab.ssh(live.cluster, script)
    for node in live.nodes:
        config = "sed '/^ListenAddress/d' /etc/ssh/sshd_config >/run/sshd_config && mkdir -p /run/sshd"
        live.lab.exec(
            f"{live.cluster}/{node}", "sh", "-c", f"{config} && /usr/sbin/sshd -f /run/sshd_config -o PidFile=/run/s.pid"
        )
        assert live.lab.ssh(live.cluster, f"ssh {SSH} {node} hostname").strip().split(".")[0] == node
    try:
        yield
    finally:
        for node in live.nodes:
            live.lab.exec(f"{live.cluster}/{node}", "sh", "-c", "kill $(cat /run/s.pid)")


def test_a_job_that_root_deletes_by_force_is_cancelled(live: Live, tmp_path: Path) -> None:
    """The server does not wait for the nodes then: nobody tells it how the job ended."""
    site = live.site(tmp_path)
    runs, waits = running(site, "runs"), site.submit("waits", "exit 0")
    assert waits.scheduler_job_id
    site.wait(waits.scheduler_job_id, JobState.QUEUED)
    live.root(f"qdel -W force {waits.scheduler_job_id} {runs.scheduler_job_id}")
    site.ends(runs.scheduler_job_id, JobState.CANCELLED)
    site.ends(waits.scheduler_job_id, JobState.CANCELLED)


def test_a_run_whose_jobs_are_deleted_by_force_measures_them_again_or_says_who(users: Live, tmp_path: Path) -> None:
    desk = users.desk(tmp_path)
    desk.campaign(f"clusters: [beta]\npairs: {{rounds: 3}}\nretries: 0\ntests:\n  {ENDLESS}")
    with desk.running("run", "campaign.yaml") as driver:
        desk.wait_for(lambda events: any(event.get("state") == "running" for event in events), "beta")
        users.root("for id in $(qselect); do qdel -W force $id; done")
        assert driver.wait(timeout=300) == 4, desk.log()
    ends = [(event["outcome"], event["reason"]) for event in desk.events("beta") if event["event"] == "ended"]
    assert len(ends) == 6, ends
    assert all(reason for _, reason in ends), ends
    # Nothing was measured, and nothing says that it was. With history, PBS says that somebody deleted them.
    words = {"cancelled"} if users.history else {"lost", "failed", "cancelled"}
    assert {outcome for outcome, _ in ends} <= words, ends
    assert set(outcomes(desk)) == {"cluster not_measured"}
    left = "ps -e -o args | grep '[h]pcq-net' || true"
    users.until(lambda: not "".join(users.on(node, left) for node in users.nodes), "nodes without kernels")


def test_a_start_that_the_scheduler_estimates_is_quoted(live: Live, tmp_path: Path) -> None:
    site = live.site(tmp_path, walltime="0:05:00")
    with strict_ordering(live):
        busy = running(site, "busy")
        waits = site.submit("waits", "exit 0")
        assert waits.scheduler_job_id
        key = site.key(waits.scheduler_job_id)
        quoted = live.until(
            lambda: re.search(r"PBS expects it to start (.+)", site.scheduler.poll([key])[key.scheduler_job_id].reason),
            "an estimate",
        )
        raw = live.root(f"qstat -f {key.scheduler_job_id} | sed -n 's/^ *estimated.start_time = //p'").strip()
        assert quoted[1] == raw
        # In the lab's time zone: after the busy job's time limit of five minutes, counted from its start.
        now = datetime.fromisoformat(live.root("date -Iseconds").strip()).astimezone(UTC)
        expected = datetime.fromisoformat(live.root(f"date -Iseconds -d '{raw}'").strip()).astimezone(UTC)
        assert 120 <= (expected - now).total_seconds() <= 330, (raw, now)
        site.scheduler.cancel([key, busy])


@pytest.mark.parametrize(
    "allocation", ["pairs: {rounds: 1}", "pairs: {rounds: 1}\nallocation: whole"], ids=["pairs", "tournament"]
)
def test_processes_are_started_by_ssh(users: Live, tmp_path: Path, allocation: str) -> None:
    with ssh_to_nodes(users):
        desk = users.desk(tmp_path, f"{QUICK}launcher: ssh {SSH} {{node}}\n")
        desk.campaign(f"clusters: [beta]\n{allocation}\nrepetitions: 1\n{ONE_TEST}")
        desk.hpcq("run", "campaign.yaml", timeout_s=300)
        assert outcomes(desk) == {"cluster measured": 2}
        [script, *_] = desk.run_folder.glob("beta/jobs/*/1/job.sh")
        assert not re.search(r"^ *timeout .* pbs_tmrsh", script.read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("library", MPI_BY_SSH)
def test_mpi_starts_by_a_remote_shell_that_is_not_of_pbs(users: Live, tmp_path: Path, library: str) -> None:
    with ssh_to_nodes(users):
        desk = users.desk(tmp_path, QUICK)
        path = users.cluster_yaml(desk.folder / "clusters")
        text = path.read_text()
        assert "\nmpi: {compiler: mpicc}\n" in text
        path.write_text(text.replace("\nmpi: {compiler: mpicc}\n", f"\nmpi: {MPI_BY_SSH[library]}\n"))
        desk.campaign(f"clusters: [beta]\npairs: {{rounds: 1}}\nrepetitions: 1\n{MPI_TEST}")
        desk.hpcq("run", "campaign.yaml", timeout_s=300)
        assert outcomes(desk) == {"cluster measured": 2}
        lines = [path.read_text() for path in desk.run_folder.glob("beta/jobs/*/1/**/t*-r[0-9].json")]
        assert lines
        assert all(library in line for line in lines)


STARTED_BY_PBSDSH = {
    "pairs": f"pairs: {{rounds: 1}}\nrepetitions: 1\n{ONE_TEST}",
    "tournament": f"pairs: {{rounds: 1}}\nallocation: whole\nrepetitions: 1\n{ONE_TEST}",
    "mpi": f"pairs: {{rounds: 1}}\nrepetitions: 1\n{MPI_TEST}",
}


@pytest.mark.parametrize("what", STARTED_BY_PBSDSH)
def test_processes_are_started_by_pbsdsh(users: Live, tmp_path: Path, what: str) -> None:
    desk = users.desk(tmp_path, f"{QUICK}task_starter: pbsdsh\n")
    desk.campaign(f"clusters: [beta]\n{STARTED_BY_PBSDSH[what]}")
    desk.hpcq("run", "campaign.yaml", timeout_s=300)
    assert outcomes(desk) == {"cluster measured": 2}
    assert list(desk.run_folder.glob("beta/jobs/*/1/job.sh"))
    assert all("START_TASK=pbs_tmrsh" not in path.read_text() for path in desk.run_folder.glob("beta/jobs/*/1/job.sh"))


def test_cluster_check_tries_pbsdsh(users: Live, tmp_path: Path) -> None:
    desk = users.desk(tmp_path, f"{QUICK}task_starter: pbsdsh\n")
    said = desk.hpcq("cluster", "check", "beta", expect=None, timeout_s=300)
    assert said.returncode == 0, said.stdout + said.stderr
    assert re.search(r"pbsdsh +.*starts processes on the other node", said.stdout), said.stdout
    assert "through pbsdsh" in said.stdout


def test_a_reservation_one_of_whose_nodes_goes_out_keeps_the_other_and_is_not_prolonged(live: Live, tmp_path: Path) -> None:
    site = live.site(tmp_path)
    site.scheduler.nodes()
    first, second = live.nodes[:2]
    assert site.scheduler.reserve("run-1", [first, second], 5) is None
    live.until(lambda: "RESV_RUNNING" in live.root("pbs_rstat -f"), "a reservation that runs")
    assert site.scheduler.prolong("run-1", 9)
    live.root(f"pbsnodes -o -C fan {second}")
    assert not site.scheduler.prolong("run-1", 12), "PBS denies it, and ends with 0"
    live.root(f"pbsnodes -r -C '' {second}")
    live.until(lambda: site.scheduler.prolong("run-1", 12), "a reservation that is prolonged")
    assert site.scheduler.release("run-1")
    live.until(lambda: not live.root("pbs_rstat -f"), "no reservation")

    start = '$(date -d "@$(($(date +%s) + 600))" +%Y%m%d%H%M.%S)'
    select = f"1:host={first}:ncpus=1+1:host={second}:ncpus=1"
    live.root(f"pbs_rsub -I 20 -R {start} -D 5:00 -l select={select} -l place=scatter:excl | grep CONFIRMED")
    live.root(f"pbsnodes -o -C fan {second}")
    live.until(lambda: "RESV_DEGRADED" in live.root("pbs_rstat -f"), "a degraded reservation")
    states = {state.node: state for state in site.scheduler.nodes()}
    assert [states[node].condition for node in (first, second)] == [NodeCondition.IDLE, NodeCondition.DRAINED]
    assert "begins at" in str(states[first].kept_from(900)), "a job would not end before it"
    assert states[first].kept_from(60) is None


def test_a_new_cluster_has_a_verdict_after_two_commands(pbs_lab: RunningLab, tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    made = desk.hpcq("cluster", "new", "--ssh", "beta-head", "--ssh-config", str(pbs_lab.state / "ssh_config"))
    assert "next: hpcq run first-beta-head.yaml" in made.stderr, "called after its server"
    said = desk.hpcq("run", "first-beta-head.yaml", timeout_s=600)
    assert "gates: " in said.stdout + said.stderr
    assert {row["outcome"] for row in desk.rows("SELECT outcome FROM v_results")} == {"measured"}


def test_an_ordinary_user_on_the_head_has_a_verdict_after_two_commands(pbs_lab: RunningLab) -> None:
    typed_on_head(pbs_lab, "beta", ["hpcq cluster new", "hpcq run first-beta-head.yaml", "hpcq results"]).assert_verdict()
