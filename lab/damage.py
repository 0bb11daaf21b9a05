"""Make and mend faults of the network: a slow node, a slow leaf uplink, a pair that loses packets.

    slow_node    tbf on both ends of its cable: eth0 and the switch's port
    slow_leaf    tbf on both ends of its uplink
    lossy_pair   an nftables table in the network namespaces of both, which drops packets from the other
    mend         restores everything as `up` made it, whatever the fault

Nothing is stored on disk: faults exist only in Linux, and a node that boots has none.
"""

from layout import Cluster, Lab, Machine
from machines import process_of, site_of
from processes import Process, enter_command, recorded, run
from services.site_files import HOST_QUEUE, SWITCH_QUEUE, tbf

PPM = 1_000_000


def slow_node(lab: Lab, machine: Machine, rate_bps: int) -> None:
    """Limit everything that the machine sends or receives on eth0 to this rate; 0 removes the limit."""
    _shape(process_of(lab, machine), "eth0", rate_bps, HOST_QUEUE)
    _shape(site_of(lab.cluster(machine.cluster)), machine.port, rate_bps, SWITCH_QUEUE)


def slow_leaf(cluster: Cluster, leaf_no: int, rate_bps: int) -> None:
    """Limit everything that leaves or enters the leaf to this rate; traffic inside it keeps its speed."""
    for end in ("up", "down"):
        _shape(site_of(cluster), f"{end}{leaf_no}", rate_bps, SWITCH_QUEUE)


def lossy_pair(lab: Lab, one: Machine, other: Machine, loss_ratio: float) -> None:
    """Drop packets between the two at random, in either direction; 0 ends it."""
    for machine, sender in ((one, other), (other, one)):
        table = f"inet lab_{sender.port}"
        rules = f"add table {table}\ndelete table {table}\n"
        if loss_ratio:
            rules += (
                f"add table {table}\nadd chain {table} arriving {{ type filter hook input priority 0; }}\n"
                f"add rule {table} arriving ip saddr {sender.address}"
                f" numgen random mod {PPM} < {round(loss_ratio * PPM)} drop\n"
            )
        _nft(process_of(lab, machine), rules)


def mend(lab: Lab, cluster: Cluster) -> None:
    """Undo all faults, on every machine that is up."""
    for leaf_no in cluster.leaf_numbers:
        slow_leaf(cluster, leaf_no, lab.settings.uplink_rate_bps)
    for machine in cluster.machines:
        if recorded(cluster.pid_file(machine.name)) is not None:
            slow_node(lab, machine, lab.settings.node_rate_bps)
            _nft(process_of(lab, machine), "flush ruleset\n")


def _shape(where: Process, interface: str, rate_bps: int, queue: str) -> None:
    if rate_bps:
        words = ["tc", "qdisc", "replace", *tbf(interface, rate_bps, queue).split()]
        run(enter_command(where, words, ["--net"]), interface)
    else:
        shell = f"tc qdisc del dev {interface} root 2> /dev/null || true"
        run(enter_command(where, ["sh", "-c", shell], ["--net"]), interface)


def _nft(where: Process, rules: str) -> None:
    run(enter_command(where, ["nft", "-f", "-"], ["--net"]), "nft", input_text=rules)
