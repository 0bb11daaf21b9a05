"""Nodes as their batch system sees them: booted, and able to take jobs."""

from faults import LabError
from layout import Cluster, Lab, Machine
from machines import process_of, run_in, start_machines
from processes import enter_command, recorded, run, wait_for

from services.pbs_files import LIST_NODES, START_NODE, idle_nodes

START_BASE_S = 30.0
START_EACH_S = 1.0


def boot(lab: Lab, node: Machine) -> None:
    """Start a node that is down. On one that is up, start slurmd if it has ended."""
    cluster = lab.cluster(node.cluster)
    if recorded(cluster.pid_file(node.name)) is None:
        start_machines(lab, cluster, [node])
    else:
        start = START_NODE if cluster.scheduler == "pbs" else "pidof slurmd > /dev/null || slurmd"
        run_in(lab, node, ["sh", "-c", start], f"{node.name}: its daemon")


def idle_node_count(lab: Lab, cluster: Cluster) -> int:
    """How many nodes can take jobs; -1 if the controller does not answer."""
    head = process_of(lab, cluster.head)
    listing = LIST_NODES if cluster.scheduler == "pbs" else ["sinfo", "-h", "-a", "-N", "-o", "%N %t"]
    try:
        found = run(enter_command(head, listing), f"{cluster.name}: nodes", timeout_s=10)
    except LabError:
        return -1
    if cluster.scheduler == "pbs":
        return idle_nodes(found)
    states = dict(line.split() for line in found.splitlines())
    return sum(state in {"idle", "mix", "alloc"} for state in states.values())


def wait_idle(lab: Lab, cluster: Cluster) -> None:
    """Wait until every node has registered with its controller."""
    wanted = len(cluster.nodes)
    wait_for(
        lambda: idle_node_count(lab, cluster) >= wanted,
        START_BASE_S + START_EACH_S * wanted,
        f"{cluster.name}: found {idle_node_count(lab, cluster)} of {wanted} nodes ready",
        f"their logs are in {cluster.var}/log/slurm",
        interval_s=0.1,
    )
