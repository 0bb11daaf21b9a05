"""PBS on a cluster of the lab, if PBS is installed on this machine: its files and its commands.

Machines have full names here (beta-n01.beta.lab), as at most sites: PBS lists nodes by the short names, and job scripts
see the full ones.
"""

import shutil
from pathlib import Path

from faults import LabError
from layout import Cluster
from writing import fill, own_by

EXEC = Path("/opt/pbs")
START_HEAD = "PBS_CONF_FILE=/etc/lab/pbs-head.conf /opt/pbs/libexec/pbs_init.d start >> /var/log/lab/pbs-server.log 2>&1"
START_NODE = ". /etc/lab/pbs-node.sh"
LIST_NODES = ["/opt/pbs/bin/pbsnodes", "-aS"]
START_HINT = "machines see no home of root: PBS needs the system's Python (docs/pbs.md has the steps)"
SETTINGS = (
    "set server flatuid = True",
    "set server acl_roots = root@*",
    "set server managers = root@*",
    "set server job_history_enable = {history}",
    "set server node_fail_requeue = 60",
    "set queue workq resources_default.walltime = 00:15:00",
    "set queue workq resources_max.walltime = 02:00:00",
    "create queue short queue_type = Execution, priority = 60",
    "set queue short resources_max.walltime = 00:05:00",
    "set queue short resources_max.nodect = 2",
    "set queue short enabled = True",
    "set queue short started = True",
    "create queue small queue_type = Execution",
    "set queue small max_queued = '[u:PBS_GENERIC=2]'",
    "set queue small enabled = True",
    "set queue small started = True",
    "create queue closed queue_type = Execution",
    "set queue closed enabled = False",
    "set queue closed started = True",
)


def check_pbs(option: str) -> None:
    """Raise LabError if PBS is not installed on this machine."""
    missing = [name for name in ("bin/qsub", "sbin/pbs_mom", "sbin/pbs_server.bin", "libexec/pbs_init.d") if not _file(name)]
    if missing:
        raise LabError(
            f"lab up: {option}: not found on this machine: {EXEC}/{missing[0]}",
            "build OpenPBS by its own INSTALL with --prefix=/opt/pbs; docs/pbs.md has the steps",
        )
    if not (EXEC / "sbin/pbs_iff").stat().st_mode & 0o4000:
        raise LabError(
            f"lab up: {option}: {EXEC}/sbin/pbs_iff is not setuid root: users could not ask the server",
            f"chmod 4755 {EXEC}/sbin/pbs_iff {EXEC}/sbin/pbs_rcp",
        )


def _file(name: str) -> bool:
    return (EXEC / name).is_file()


def write_pbs(cluster: Cluster) -> None:
    """Write pbs.conf, the daemons' configuration, the path to the commands for jobs, and the daemons' folders."""
    head = cluster.head.name
    (cluster.etc / "pbs.conf").write_text(fill("pbs.conf", {"head": head, "server": 0, "mom": 0}))
    (cluster.etc / "lab/pbs-head.conf").write_text(fill("pbs.conf", {"head": head, "server": 1, "mom": 0}))
    (cluster.etc / "lab/pbs-node.conf").write_text(fill("pbs.conf", {"head": head, "server": 0, "mom": 1}))
    shutil.copy(EXEC / "etc/pbs.sh", cluster.etc / "profile.d/pbs.sh")
    (cluster.var / "lib/pbs").mkdir()
    (cluster.var / "lib/postgresql").mkdir()
    own_by(cluster, "postgres", cluster.var / "lib/postgresql")


def idle_nodes(listing: str) -> int:
    """How many nodes in `pbsnodes -aS` can take jobs."""
    states = [line.split()[1] for line in listing.splitlines()[2:] if len(line.split()) > 1]
    return sum(state in {"free", "job-busy", "job-exclusive"} for state in states)


def last_words(logs: Path) -> str:
    """The last three messages of a daemon of PBS: lines of its newest log, without time and place."""
    newest = max(logs.glob("[0-9]*"), key=lambda path: path.name, default=None)
    if newest is None:
        return "it has no log"
    lines = newest.read_text(errors="replace").splitlines()[-3:]
    return "; ".join(line.split(";", 5)[-1] for line in lines) or "its log is empty"
