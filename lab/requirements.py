"""Check what this machine needs for a lab, before anything is written."""

import os
import shutil
from pathlib import Path

from faults import LabError

# program -> Debian package that contains it. Debian keeps daemons in /usr/sbin.
PROGRAMS = {
    "slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "sbatch": "slurm-wlm", "scontrol": "slurm-wlm",
    "slurmdbd": "slurmdbd", "sacctmgr": "slurm-wlm", "munged": "munge",
    "mariadbd": "mariadb-server", "mariadb-install-db": "mariadb-server",
    "mpicc.openmpi": "libopenmpi-dev", "mpicc.mpich": "libmpich-dev",
    "sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client",
    "ip": "iproute2", "tc": "iproute2", "nft": "nftables", "nc": "netcat-openbsd", "gcc": "gcc",
    "nsenter": "util-linux", "unshare": "util-linux", "setpriv": "util-linux",
}  # fmt: skip
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def check_root(verb: str) -> None:
    """Raise LabError unless root runs this: only root may make namespaces, mounts and interfaces."""
    if os.geteuid() != 0:
        raise LabError(
            f"lab {verb}: found user id {os.geteuid()}: only root may make namespaces and mounts",
            f"run it as root: sudo hpcq lab {verb}",
        )


def check_programs() -> None:
    missing = [program for program in PROGRAMS if shutil.which(program, path=SEARCH_PATH) is None]
    if missing:
        raise LabError(
            f"lab up: not found on this machine: {', '.join(missing)}",
            f"apt-get install --no-install-recommends {' '.join(packages())}",
        )


def packages() -> list[str]:
    """The Debian packages listed in packages.txt."""
    return Path(__file__).with_name("packages.txt").read_text().split()
