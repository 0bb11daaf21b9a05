"""A real OpenPBS in the lab, for tests: as an ordinary user or as root, with or without job history.

    def test_something(live: Live) -> None:      four times: user and root, with history and without
        live.site()                                the scheduler contract's site
        live.desk(folder)                          a person's folder whose cluster beta is that PBS
        live.qmgr("set server ...")                as root on the head
        live.root("qdel -W force 12")              any command of PBS, as root on the head

The lab's sshd lets no root in, so root has one of its own, on another port, for as long as the lab stands.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.campaigns_in_lab import Desk
from tests.lab.lab_fixture import RunningLab
from tests.schedulers.scheduler_contract import Site, pbs_site

ROOT_PORT = 2222
PATH = "PATH=/opt/pbs/bin:/opt/pbs/sbin:$PATH"
#: What a test before left: its jobs, its reservations, nodes that it took out. Then until every node is free.
AT_REST = """
qmgr -c 'set server scheduling = True'
for id in $(qselect); do qdel -W force "$id"; done
for id in $(pbs_rstat -f | sed -n 's/^Resv ID: //p'); do pbs_rdel "$id"; done
for node in $(pbsnodes -av | grep -v '^ '); do pbsnodes -r -C '' "$node"; done
for look in $(seq 300); do
    [ -z "$(qselect)$(pbs_rstat -f)" ] && [ "$(pbsnodes -av | sed -n 's/^ *state = //p' | sort -u)" = free ] && exit 0
    sleep 0.3
done
pbsnodes -av; qstat -f; pbs_rstat -f
exit 1
"""
#: Keys that end a campaign's waits early: nobody else is there.
QUICK = "\ncompiler: {cflags: -O0}\nmax_wait_s: 60\n"


@dataclass(frozen=True, slots=True)
class Live:
    """One cluster of a lab that runs PBS, and who asks."""

    lab: RunningLab
    cluster: str
    user: str
    history: bool

    @property
    def nodes(self) -> list[str]:
        """Its nodes, by the names of PBS."""
        return [f"{self.cluster}-n{number:02d}" for number in range(1, 5)]

    def root(self, command: str, *, check: bool = True) -> str:
        """A shell command on the head, as root."""
        return self.lab.exec(self.cluster, "sh", "-c", f"{PATH}; {command}", check=check)

    def on(self, node: str, command: str) -> str:
        """A shell command on a node, as root."""
        return self.lab.exec(f"{self.cluster}/{node}", "sh", "-c", command)

    def qmgr(self, line: str) -> None:
        """One order of qmgr."""
        self.root(f"qmgr -c '{line}'")

    def at_rest(self) -> None:
        """Nothing of an earlier test is there, and every node is free."""
        self.root(AT_REST)

    def switch_history(self) -> None:
        """As this one wants it."""
        self.qmgr(f"set server job_history_enable = {self.history}")

    def work(self) -> str:
        return f"/scratch/of-{self.user}"

    def cluster_yaml(self, folder: Path, more: str = QUICK) -> Path:
        """Write the cluster file into `folder`, by which this user reaches it."""
        given = self.lab.cluster_file(self.cluster).read_text()
        text = given.replace("work_directory: /scratch", f"work_directory: {self.work()}")
        if self.user == "root":
            config = folder / f"ssh-{self.cluster}-root"
            known = (self.lab.state / "ssh_config").read_text().replace("User labuser", "User root")
            config.write_text(re.sub(r"(nc \S+) 22$", rf"\1 {ROOT_PORT}", known, flags=re.MULTILINE))
            text = text.replace(str(self.lab.state / "ssh_config"), str(config))
        path = folder / f"{self.cluster}.yaml"
        path.write_text(f"{text}{more}")
        return path

    def site(self, folder: Path, *, walltime: str = "0:01:00") -> Site:
        """For the scheduler contract."""
        made = pbs_site(self.cluster_yaml(folder), walltime=walltime)
        assert made.remembers is self.history
        return made

    def desk(self, folder: Path, more: str = QUICK) -> Desk:
        """A person's folder."""
        (folder / "clusters").mkdir(parents=True, exist_ok=True)
        self.cluster_yaml(folder / "clusters", more)
        return Desk(folder, self.lab)

    def starts(self, prefix: str) -> Counter[str]:
        """How often a job of each id was started, by the server's accounting: it is kept with history off, too."""
        text = self.root("cat /var/spool/pbs/server_priv/accounting/*")
        found = re.findall(r"^[^;]*;S;([^;]*);(.*)$", text, flags=re.MULTILINE)
        return Counter(scheduler_job_id for scheduler_job_id, words in found if f"jobname={prefix}" in words)

    def until(self, seen: Callable[[], Any], what: str, within_s: float = 90) -> Any:
        """Wait for it."""
        deadline = time.monotonic() + within_s
        while not (found := seen()):
            assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
            time.sleep(0.3)
        return found


def code_of(rows: Iterable[Mapping[str, Any]]) -> int:
    """How a run with results that are not there ends: 3 where a pair ran and brought nothing at all, else 4."""
    ends: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        ends.setdefault((row["client"], row["server"]), set()).add(row["outcome"])
    return 3 if {"failed"} in ends.values() else 4


def let_root_in(lab: RunningLab, cluster: str) -> None:
    """An sshd for root on the head."""
    options = (
        "PermitRootLogin=yes", "AllowUsers=root", f"Port={ROOT_PORT}", "StrictModes=no", "PidFile=/run/sshd-root.pid",
        "AuthorizedKeysFile=/home/labuser/.ssh/authorized_keys",
    )  # fmt: skip
    lab.exec(cluster, "/usr/sbin/sshd", *[word for option in options for word in ("-o", option)])
    for user in ("labuser", "root"):
        lab.exec(cluster, "install", "-d", "-o", user, f"/scratch/of-{user}")
