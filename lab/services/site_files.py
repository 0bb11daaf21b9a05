"""Write the files of a site before anything runs: /etc, /var, the homes, and how machines connect to switches."""

import os
import shutil
from pathlib import Path

from layout import USERS, Cluster, Lab, Machine
from processes import run
from writing import TEMPLATES, fill, own_by

from services import slurm_files
from services.pbs_files import write_pbs

# A short burst keeps the rate even within milliseconds. Queues are as long as those of a host and of a shallow switch.
BURST_MIN_BYTES = 16_000
BURST_LINE_TIME_S = 0.0005
HOST_QUEUE = "50ms"
SWITCH_QUEUE = "10ms"
# Files that the lab writes itself, or that a cluster should not see of its host.
NOT_COPIED = {
    "passwd", "passwd-", "group", "group-", "shadow", "shadow-", "gshadow", "gshadow-", "subuid", "subgid",
    "hosts", "hostname", "resolv.conf", "nsswitch.conf", "fstab", "mtab", "munge", "slurm", "slurm-llnl", "ssh", "mysql",
    "systemd", "cron.d", "cron.daily", "apt", "X11", "pbs.conf",
}  # fmt: skip


def write_site(lab: Lab, cluster: Cluster, public_key: str) -> None:
    """Create the folder of a cluster's site. The lab owns everything in it and removes it at its end."""
    for folder in ("etc", "home", "scratch", "var/lib/lab", "var/lib/mysql", "var/lib/slurm/slurmctld", "var/spool"):
        (cluster.folder / folder).mkdir(parents=True)
    for folder in ("log/munge", "log/slurm", "log/mysql", "log/lab", "tmp", "cache"):
        (cluster.var / folder).mkdir(parents=True)
    (cluster.var / "run").symlink_to("/run")
    (cluster.folder / "scratch").chmod(0o1777)
    own_by(cluster, "slurm", cluster.var / "lib/slurm/slurmctld", cluster.var / "log/slurm")
    own_by(cluster, "mysql", cluster.var / "lib/mysql", cluster.var / "log/mysql")
    _copy_etc(cluster.root / "etc", cluster.etc)
    _write_accounts(cluster)
    _write_names(cluster)
    _write_keys(lab, cluster, public_key)
    _write_plugs(lab, cluster)
    if cluster.scheduler == "pbs":
        write_pbs(cluster)
    else:
        slurm_files.write_slurm(cluster)


def _copy_etc(source: Path, target: Path) -> None:
    """Copy what every user may read: alternatives, loader and MPI settings. Keys and passwords are not included."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        out = set(NOT_COPIED & set(names)) if Path(folder) == source else set()
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink() and not (path.stat().st_mode & 0o004):
                out.add(name)
        return out

    shutil.copytree(source, target, symlinks=True, ignore=left_out, dirs_exist_ok=True)


def _write_accounts(cluster: Cluster) -> None:
    """Write the system's own users and two ordinary ones."""
    passwd, shadow = [], []
    for line in (cluster.root / "etc/passwd").read_text().splitlines():
        name, _, uid = line.split(":")[:3]
        if int(uid) < 1000 or name in {"nobody", "slurm"}:
            passwd.append(line)
            shadow.append(f"{name}:*:19000:0:99999:7:::")
    group = [
        line
        for line in (cluster.root / "etc/group").read_text().splitlines()
        if int(line.split(":")[2]) < 1000 or line.split(":")[0] in {"nogroup", "slurm"}
    ]
    for user, user_id in USERS.items():
        passwd.append(f"{user}:x:{user_id}:{user_id}:{user} of {cluster.name}:/home/{user}:/bin/bash")
        shadow.append(f"{user}:*:19000:0:99999:7:::")
        group.append(f"{user}:x:{user_id}:")
    (cluster.etc / "passwd").write_text("\n".join(passwd) + "\n")
    (cluster.etc / "group").write_text("\n".join(group) + "\n")
    shadow_file = cluster.etc / "shadow"
    shadow_file.touch(mode=0o600)
    shadow_file.write_text("\n".join(shadow) + "\n")
    (cluster.etc / "nsswitch.conf").write_text(
        "passwd: files\ngroup: files\nshadow: files\nhosts: files\nservices: files\nprotocols: files\n"
    )


def _write_names(cluster: Cluster) -> None:
    """Let host names resolve to the management network: the interface under test has another address."""
    lines = ["127.0.0.1 localhost"]
    for machine in cluster.machines:
        full_name = f"{machine.name}.{cluster.name}.lab " if cluster.scheduler == "pbs" else ""
        lines += [f"{machine.mgmt_address} {full_name}{machine.name}", f"{machine.address} {machine.name}-eth0"]
    (cluster.etc / "hosts").write_text("\n".join(lines) + "\n")
    (cluster.etc / "hostname").write_text(f"{cluster.head.name}\n")
    (cluster.etc / "resolv.conf").write_text("")


def _write_keys(lab: Lab, cluster: Cluster, public_key: str) -> None:
    (cluster.etc / "munge").mkdir(mode=0o700)
    munge_key = cluster.etc / "munge/munge.key"
    munge_key.touch(mode=0o400)
    munge_key.write_bytes(os.urandom(128))
    ssh_folder = cluster.etc / "ssh"
    ssh_folder.mkdir()
    (ssh_folder / "sshd_config").write_text(
        fill("sshd_config", {"cluster": cluster.name, "mgmt_address": cluster.head.mgmt_address})
    )
    host_key = ssh_folder / "ssh_host_ed25519_key"
    new_key(host_key, cluster.head.name)
    with (lab.state / "ssh/known_hosts").open("a") as known_hosts:
        known_hosts.write(f"{cluster.head.name} {host_key.with_suffix('.pub').read_text()}")
    for user, uid in USERS.items():
        home = cluster.folder / "home" / user
        (home / ".ssh").mkdir(parents=True, mode=0o700)
        home.chmod(0o700)
        (home / ".ssh/authorized_keys").write_text(public_key)
        for path in (home, home / ".ssh", home / ".ssh/authorized_keys"):
            os.chown(path, uid, uid)


def new_key(path: Path, comment: str) -> None:
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)], "key for ssh")


def _write_plugs(lab: Lab, cluster: Cluster) -> None:
    """Write batches for ip and tc: one set for the switches, one for each machine."""
    folder = cluster.etc / "lab"
    folder.mkdir()
    for script in ("machine.sh", "slurm-machine.sh", "pbs-node.sh"):
        shutil.copy(TEMPLATES / script, folder)
    uplink = lab.settings.uplink_rate_bps
    links = ["link set lo up"]
    bridges = ["spine", *(f"leaf{leaf_no}" for leaf_no in cluster.leaf_numbers), "mgmt"]
    links += [f"link add {bridge} type bridge mcast_snooping 0" for bridge in bridges]
    shape = []
    for leaf_no in cluster.leaf_numbers:
        links.append(f"link add up{leaf_no} type veth peer name down{leaf_no}")
        links.append(f"link set up{leaf_no} master leaf{leaf_no} up")
        links.append(f"link set down{leaf_no} master spine up")
        shape += [f"qdisc add {tbf(f'{end}{leaf_no}', uplink, SWITCH_QUEUE)}" for end in ("up", "down")]
    links += [f"link set {bridge} up" for bridge in bridges]
    links.append(f"address add {cluster.gateway}/16 dev spine")
    (folder / "site.links").write_text("\n".join(links) + "\n")
    (folder / "site.shape").write_text("\n".join(shape) + "\n" if uplink else "")
    for index, machine in enumerate(cluster.machines):
        _write_plug(folder, cluster, machine, index, lab.settings.node_rate_bps)


def _write_plug(folder: Path, cluster: Cluster, machine: Machine, index: int, rate_bps: int) -> None:
    port = machine.port
    mac = f"02:{cluster.number:02x}:00:00:00:{index:02x}"
    mgmt_mac = f"02:{cluster.number:02x}:01:00:00:{index:02x}"
    links = [
        "link set lo up",
        f"link add eth0 address {mac} type veth peer name {port} netns fabric",
        f"link add mgmt0 address {mgmt_mac} type veth peer name {port}m netns fabric",
        f"address add {machine.address}/16 dev eth0",
        f"address add {machine.mgmt_address}/16 dev mgmt0",
        "link set eth0 up",
        "link set mgmt0 up",
        f"route add default via {cluster.gateway} dev eth0",
    ]
    switch = [f"link set {port} master leaf{machine.leaf_no} up", f"link set {port}m master mgmt up"]
    (folder / f"{machine.name}.unplug").write_text(f"link delete {port}\nlink delete {port}m\n")
    (folder / f"{machine.name}.links").write_text("\n".join(links) + "\n")
    (folder / f"{machine.name}.switch").write_text("\n".join(switch) + "\n")
    if rate_bps:
        (folder / f"{machine.name}.shape").write_text(f"qdisc add {tbf('eth0', rate_bps, HOST_QUEUE)}\n")
        (folder / f"{machine.name}.switch-shape").write_text(f"qdisc add {tbf(port, rate_bps, SWITCH_QUEUE)}\n")


def tbf(interface: str, rate_bps: int, queue: str) -> str:
    """The end of a tc line that limits what leaves `interface` to this rate."""
    burst_bytes = max(BURST_MIN_BYTES, int(rate_bps / 8 * BURST_LINE_TIME_S))
    return f"dev {interface} root tbf rate {rate_bps}bit burst {burst_bytes} latency {queue}"
