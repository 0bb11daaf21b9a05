"""Services on a head: the accounting database and its daemon if any, the controller, sshd."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from faults import LabError
from layout import Cluster, Lab
from machines import process_of, run_in, start_machines
from processes import enter_command, recorded, run, wait_for

from services import pbs_daemons, slurm_files

DATABASE_START_S = 30.0
CONTROLLER_START_S = 30.0
ANSWER_INTERVAL_S = 0.05
DATABASE_USER = """
CREATE DATABASE slurm_acct_db;
CREATE USER slurm@localhost IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
"""


def start_head(lab: Lab, cluster: Cluster) -> None:
    """Start all services on the head of a cluster, each after those that it needs."""
    run_in(lab, cluster.head, ["/usr/sbin/sshd", "-E", "/var/log/lab/sshd.log"], f"{cluster.name}: sshd")
    if cluster.scheduler == "pbs":
        pbs_daemons.start_server(lab, cluster)
        return
    if cluster.has_accounting:
        start_accounting(lab, cluster)
    start_controller(lab, cluster)


def boot_head(lab: Lab, cluster: Cluster) -> None:
    """Boot a head that is down, with the state that the database and the controller had saved."""
    if recorded(cluster.pid_file(cluster.head.name)) is not None:
        raise LabError(f"{cluster.head.name}: found it up: only one that is down can be started", "hpcq lab restart-controller")
    start_machines(lab, cluster, [cluster.head])
    start_head(lab, cluster)


def start_accounting(lab: Lab, cluster: Cluster) -> None:
    head = cluster.head
    is_new = not (cluster.var / "lib/mysql/mysql").exists()
    config = "--defaults-file=/etc/mysql/lab.cnf"
    if is_new:
        make = ["mariadb-install-db", config, "--auth-root-authentication-method=socket", "--skip-test-db"]
        run_in(lab, head, [*make, "--user=mysql"], f"{cluster.name}: making the database")
    start_in_background(lab, cluster, f"mariadbd {config}")
    query = ["mariadb", "--socket=/run/mysqld/mysqld.sock"]
    wait_for(
        _answers(lab, cluster, [*query, "-e", "SELECT 1"]),
        DATABASE_START_S,
        f"{cluster.name}: the database does not answer",
        f"its log is {cluster.var}/log/mysql/error.log",
        ANSWER_INTERVAL_S,
    )
    if is_new:
        run_in(lab, head, query, f"{cluster.name}: making the database's user", input_text=DATABASE_USER)
    run_in(lab, head, as_slurm("slurmdbd"), f"{cluster.name}: slurmdbd")
    wait_for(
        _answers(lab, cluster, ["sacctmgr", "-n", "list", "cluster"]),
        DATABASE_START_S,
        f"{cluster.name}: slurmdbd does not answer",
        f"its log is {cluster.var}/log/slurm/slurmdbd.log",
        ANSWER_INTERVAL_S,
    )
    if is_new:
        _make_accounts(lab, cluster)


def _make_accounts(lab: Lab, cluster: Cluster) -> None:
    """Create the accounts. An sacctmgr command takes a third of a second, so independent ones run side by side."""
    with ThreadPoolExecutor() as side_by_side:
        for wave in slurm_files.ACCOUNTS:
            commands = [["sacctmgr", "-i", *line.format(cluster=cluster.name).split()] for line in wave]
            list(side_by_side.map(lambda words: run_in(lab, cluster.head, words, " ".join(words)), commands))


def start_controller(lab: Lab, cluster: Cluster) -> None:
    """Start slurmctld, and wait until it answers."""
    run_in(lab, cluster.head, as_slurm("slurmctld"), f"{cluster.name}: slurmctld")
    wait_for(
        _answers(lab, cluster, ["sinfo", "-h"]),
        CONTROLLER_START_S,
        f"{cluster.name}: slurmctld does not answer",
        f"its log is {cluster.var}/log/slurm/slurmctld.log",
        ANSWER_INTERVAL_S,
    )


def restart_controller(lab: Lab, cluster: Cluster, *, crash: bool) -> None:
    """End slurmctld (SIGTERM, or SIGKILL as in a crash) and start it again with its saved state.

    With PBS: pbs_server.
    """
    if cluster.scheduler == "pbs":
        pbs_daemons.restart_server(lab, cluster, crash=crash)
        return
    stop = f"""
        pid=$(cat /run/slurm/slurmctld.pid) || exit 0
        kill -{"KILL" if crash else "TERM"} "$pid" || exit 0
        while kill -0 "$pid" 2> /dev/null; do sleep 0.05; done
    """
    run_in(lab, cluster.head, ["sh", "-c", stop], f"{cluster.name}: ending slurmctld")
    start_controller(lab, cluster)


def start_in_background(lab: Lab, cluster: Cluster, command: str) -> None:
    """Start a program in the background that does not do so itself."""
    shell = f"setsid {command} < /dev/null > /dev/null 2>&1 &"
    run_in(lab, cluster.head, ["sh", "-c", shell], f"{cluster.name}: {command.split(maxsplit=1)[0]}")


def as_slurm(program: str) -> list[str]:
    return ["setpriv", "--reuid=slurm", "--regid=slurm", "--init-groups", program]


def _answers(lab: Lab, cluster: Cluster, command: list[str]) -> Callable[[], bool]:
    def ask() -> bool:
        head = process_of(lab, cluster.head)
        try:
            run(enter_command(head, command), "asking", timeout_s=5)
        except LabError:
            return False
        return True

    return ask
