"""Configuration of Slurm for one cluster. The two clusters differ as two sites would.

alpha   one partition `main` for all, one small `debug`; accounting with QOS and preemption; multifactor priority
beta    partitions `batch` (default) and `short` over overlapping nodes; no accounting at all
"""

import re

from layout import Cluster
from processes import run
from writing import fill, own_by

ACCOUNTING = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={head}
AccountingStorageEnforce=associations,limits,qos
PriorityType=priority/multifactor
PriorityWeightQOS=10000
PriorityWeightAge=100
PreemptType=preempt/qos
PreemptMode=REQUEUE
"""
NO_ACCOUNTING = """
PriorityType=priority/basic
"""
# Waves of commands; within a wave the order is free. `low` yields to everybody, `high` goes first, `small` exists to
# refuse jobs.
ACCOUNTS = (
    (
        "add cluster {cluster}",
        "add qos low Priority=0 PreemptMode=requeue",
        "add qos small MaxSubmitJobsPerUser=2 MaxWall=10",
    ),
    (
        "add account lab,guest Description=lab Organization=lab",
        "add qos high Priority=1000 Preempt=low MaxJobsPerUser=8",
        "modify qos normal set Priority=100 Preempt=low",
    ),
    ("add user labuser Account=lab QOS=normal,low,high,small DefaultQOS=normal MaxSubmitJobs=2000",),
    ("add user otheruser Account=lab,guest QOS=normal,low,high DefaultQOS=normal",),
)
DEFAULT_PARTITION = {"alpha": "main", "beta": "batch"}
# A node that does not answer for this long is down. Two cores for many nodes need patience.
SLURMD_TIMEOUT_S = 15
SLURMD_TIMEOUT_MANY_S = 60
MANY_NODES = 12
NODE_MEMORY_MAX_MIB = 4000
MEMORY_SHARE = 0.8


def write_slurm(cluster: Cluster) -> None:
    """Write slurm.conf, topology.conf, cgroup.conf and, with accounting, slurmdbd.conf and that of the database."""
    folder = cluster.etc / "slurm"
    folder.mkdir()
    hardware, cpu_count, memory_mib = _hardware()
    names = {"cluster": cluster.name, "head": cluster.head.name}
    (folder / "slurm.conf").write_text(
        fill(
            "slurm.conf",
            {
                **names,
                "memory_per_cpu_mib": memory_mib // cpu_count,
                "accounting": (ACCOUNTING if cluster.has_accounting else NO_ACCOUNTING).format(**names).strip(),
                "slurmd_timeout_s": SLURMD_TIMEOUT_S if len(cluster.nodes) <= MANY_NODES else SLURMD_TIMEOUT_MANY_S,
                "nodes": "\n".join(_node_lines(cluster, f"{hardware} RealMemory={memory_mib}")),
                "partitions": "\n".join(_partitions(cluster)),
            },
        )
    )
    leaves = cluster.leaf_numbers
    (folder / "topology.conf").write_text(
        fill(
            "topology.conf",
            {
                "leaves": "\n".join(f"SwitchName=leaf{no} Nodes={_node_range(cluster, no)}" for no in leaves),
                "leaf_names": ",".join(f"leaf{no}" for no in leaves),
            },
        )
    )
    (folder / "cgroup.conf").write_text(fill("cgroup.conf", {}))
    if cluster.has_accounting:
        dbd_conf = folder / "slurmdbd.conf"
        dbd_conf.touch(mode=0o600)
        dbd_conf.write_text(fill("slurmdbd.conf", names))
        own_by(cluster, "slurm", dbd_conf)
        (cluster.etc / "mysql").mkdir()
        (cluster.etc / "mysql/lab.cnf").write_text(fill("my.cnf", names))


def _hardware() -> tuple[str, int, int]:
    """The true sockets and cores of this machine in the form of a node line, its CPUs, and the memory of a node."""
    found = run(["slurmd", "-C"], "hardware")
    words = dict(re.findall(r"(\w+)=(\S+)", found))
    keys = ("CPUs", "Boards", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore")
    memory_mib = min(NODE_MEMORY_MAX_MIB, int(int(words["RealMemory"]) * MEMORY_SHARE))
    return " ".join(f"{key}={words[key]}" for key in keys), int(words["CPUs"]), memory_mib


def _node_lines(cluster: Cluster, hardware: str) -> list[str]:
    """One line per leaf, so that jobs can request the leaf as a feature."""
    return [
        f"NodeName={_node_range(cluster, leaf_no)} {hardware} Feature=leaf{leaf_no} State=UNKNOWN"
        for leaf_no in cluster.leaf_numbers
    ]


def _node_range(cluster: Cluster, leaf_no: int = 0, *, at_most: int = 99) -> str:
    """alpha-n[01-02]: the nodes of a leaf, or of the whole cluster."""
    nodes = (cluster.leaf_nodes(leaf_no) if leaf_no else list(cluster.nodes))[:at_most]
    return f"{cluster.name}-n[{nodes[0].port[1:]}-{nodes[-1].port[1:]}]"


def _partitions(cluster: Cluster) -> list[str]:
    everything, two = _node_range(cluster), _node_range(cluster, at_most=2)
    if cluster.name == "alpha":
        return [
            f"PartitionName=main Nodes={everything} Default=YES MaxTime=1-00:00:00 DefaultTime=00:30:00 State=UP",
            f"PartitionName=debug Nodes={two} MaxTime=00:10:00 PriorityTier=10 State=UP",
            f"PartitionName=staff Nodes={everything} AllowAccounts=root MaxTime=UNLIMITED State=UP",
        ]
    return [
        f"PartitionName=batch Nodes={everything} Default=YES MaxTime=02:00:00 DefaultTime=00:15:00 State=UP",
        f"PartitionName=short Nodes={two} MaxTime=00:05:00 MaxNodes=2 PriorityTier=5 State=UP",
    ]
