"""Machines: a head or a node as a set of namespaces. Start all of a cluster at once, or a single one."""

import os
from collections.abc import Sequence

from faults import LabError
from layout import Cluster, Lab, Machine
from processes import Process, enter_command, recorded, run, wait_for

OWN_NAMESPACES = "--fork --pid --net --uts --ipc --mount --propagation private"
SITE_START_S = 20.0
MACHINE_START_BASE_S = 20.0
MACHINE_START_EACH_S = 1.0
RUN_AS = ("setpriv", "--reset-env", "--init-groups")
NO_LAB_HINT = "hpcq lab up"


def init_of(lab: Lab) -> Process:
    found = recorded(lab.init_pid_file)
    if found is None:
        raise LabError(f"lab {lab.settings.name}: found nothing running: it must be up", NO_LAB_HINT)
    return found


def process_of(lab: Lab, machine: Machine) -> Process:
    """The first process of a machine that is up."""
    found = recorded(lab.cluster(machine.cluster).pid_file(machine.name))
    if found is None:
        where = f"{machine.cluster}/{machine.name}"
        raise LabError(f"{where}: found it down: it must be up", f"hpcq lab start-node {where}")
    return found


def site_of(cluster: Cluster) -> Process:
    found = recorded(cluster.pid_file("site"))
    if found is None:
        raise LabError(f"{cluster.name}: found its site not running: it must be up", "hpcq lab down, then lab up")
    return found


def start_site(lab: Lab, cluster: Cluster) -> None:
    """Create the network of the switches and the tree of files."""
    log = cluster.var / "log/lab/site.log"
    script = f"{os.path.dirname(__file__)}/templates/site.sh"  # noqa: PTH120 - a string for the shell
    command = (
        f'setsid unshare --net --mount --propagation private sh "$1" "$2" "$3" < /dev/null > "{log}" 2>&1 &'
    )  # fmt: skip
    run(
        enter_command(
            init_of(lab),
            ["sh", "-c", command, "sh", script, str(cluster.folder), str(cluster.root)],
            ["--mount", "--pid"],
        ),
        f"{cluster.name}: starting the site",
    )
    _wait_ready(lab, cluster, ["site"], SITE_START_S)


def start_machines(lab: Lab, cluster: Cluster, machines: Sequence[Machine]) -> None:
    """Start machines side by side. Returns when each has its network and its munge."""
    lab_folder = cluster.var / "lib/lab"
    for machine in machines:
        for suffix in ("ready", "failed", "pid"):
            (lab_folder / f"{machine.name}.{suffix}").unlink(missing_ok=True)
    role = "head" if machines[0].is_head else "node"
    command = (
        f"for name; do setsid unshare {OWN_NAMESPACES} sh /etc/lab/machine.sh $name {role}"
        " < /dev/null > /var/log/lab/$name.log 2>&1 & done"
    )
    run(
        enter_command(site_of(cluster), ["sh", "-c", command, "sh", *(m.name for m in machines)], ["--mount", "--pid"]),
        f"{cluster.name}: starting {role}s",
    )
    _wait_ready(lab, cluster, [m.name for m in machines], MACHINE_START_BASE_S + MACHINE_START_EACH_S * len(machines))


def stop_machine(lab: Lab, machine: Machine) -> None:
    """Kill its first process: Linux ends the others, and its interfaces vanish from the switches."""
    process_of(lab, machine).kill()


def in_machine(lab: Lab, machine: Machine, command: Sequence[str], *, user: str = "root") -> list[str]:
    """The command line that runs `command` on a machine as one of its users."""
    as_user = [*RUN_AS, f"--reuid={user}", f"--regid={user}"]
    at_home = ["sh", "-c", 'cd "$HOME" && exec "$@"', "sh"]
    return enter_command(process_of(lab, machine), [*as_user, *at_home, *command])


def run_in(
    lab: Lab, machine: Machine, command: Sequence[str], what: str, *, input_text: str = "", timeout_s: float = 60.0
) -> str:
    """Run a command on a machine as root and wait for its end."""
    return run(enter_command(process_of(lab, machine), command), what, input_text=input_text, timeout_s=timeout_s)


def _wait_ready(lab: Lab, cluster: Cluster, holders: Sequence[str], timeout_s: float) -> None:
    folder = cluster.var / "lib/lab"

    def all_ready() -> bool:
        init_of(lab)
        for holder in holders:
            if (folder / f"{holder}.failed").exists():
                log = cluster.var / f"log/lab/{holder}.log"
                last_words = (log.read_text(errors="replace").strip() or "no message").splitlines()[-1]
                raise LabError(f"{cluster.name}: {holder} did not start: {last_words}", f"its log is {log}")
        return all((folder / f"{holder}.ready").exists() for holder in holders)

    wait_for(
        all_ready,
        timeout_s,
        f"{cluster.name}: not ready after {timeout_s:g} s: {', '.join(holders)}",
        f"their logs are in {cluster.var}/log/lab",
    )
