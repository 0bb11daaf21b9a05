"""Start the daemons of PBS on a head.

head    database, pbs_comm, pbs_sched, pbs_server     PBS_HOME in /var/lib/pbs, so it survives the head's reboot
node    pbs_mom                                       PBS_HOME of its own, new with each boot (machine.sh)
"""

from faults import LabError
from layout import Cluster, Lab
from machines import process_of, run_in
from processes import enter_command, run, wait_for

from services.pbs_files import SETTINGS, START_HEAD, START_HINT, last_words

SERVER_START_S = 120.0


def start_server(lab: Lab, cluster: Cluster) -> None:
    """Start the daemons of the head and wait until the server answers."""
    new = not (cluster.var / "lib/pbs/server_priv").exists()
    run_in(lab, cluster.head, ["sh", "-c", START_HEAD], f"{cluster.name}: PBS", timeout_s=SERVER_START_S)
    try:
        wait_for(lambda: _answers(lab, cluster), SERVER_START_S, f"{cluster.name}: pbs_server does not answer", interval_s=0.2)
    except LabError as error:
        raise LabError(f"{error.message}: {last_words(cluster.var / 'lib/pbs/server_logs')}", START_HINT) from None
    if new:
        lines = [line.format(history=cluster.has_accounting) for line in SETTINGS]
        lines += [f"create node {node.name}" for node in cluster.nodes]
        qmgr(lab, cluster, lines)


def restart_server(lab: Lab, cluster: Cluster, *, crash: bool) -> None:
    """End pbs_server (qterm, or SIGKILL as in a crash) and start it again with its saved state."""
    stop = "kill -KILL $(cat /var/spool/pbs/server_priv/server.lock)" if crash else "qterm -t quick"
    run_in(lab, cluster.head, ["sh", "-c", f"PATH=/opt/pbs/bin:$PATH; {stop}; sleep 1"], f"{cluster.name}: ending pbs_server")
    start_server(lab, cluster)


def qmgr(lab: Lab, cluster: Cluster, lines: list[str]) -> None:
    """Send the server commands, one per line."""
    run_in(lab, cluster.head, ["/opt/pbs/bin/qmgr"], f"{cluster.name}: qmgr", input_text="\n".join(lines) + "\n")


def _answers(lab: Lab, cluster: Cluster) -> bool:
    try:
        run(enter_command(process_of(lab, cluster.head), ["/opt/pbs/bin/qmgr", "-c", "list server"]), "asking", timeout_s=5)
    except LabError:
        return False
    return True
