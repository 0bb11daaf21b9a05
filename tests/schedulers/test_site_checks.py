"""What `hpcq cluster check` finds of a site: answers as Slurm prints them, and real folders, locks and scripts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hpcq.definition.files.cluster import read_cluster
from hpcq.runner.site import checking
from hpcq.runner.site.checking import check_cluster
from hpcq.scheduler.slurm.scheduler import read_site
from hpcq.scheduler.types import NodeCondition, NodeState
from tests.simulated_slurm.site import SimulatedSlurm, simulated_slurm

pytestmark = pytest.mark.fast

CONFIG = """Configuration data as of 2026-11-22T08:00:00
AccountingStorageType   = {accounting}
MinJobAge               = {age} sec
PrivateData             = {private}
SlurmUser               = slurm(64030)
SuspendProgram          = {suspend}
SuspendTime             = {time}
"""


def site(
    *,
    accounting: str = "accounting_storage/slurmdbd",
    age: int = 300,
    private: str = "none",
    suspend: str = "(null)",
    time: str = "INFINITE",
    file: str = "/usr/bin/sbatch\n\n",
    version: str = "slurm 24.11.0\n",
    level: str = "20001\nuser\nNone\n",
    queries: str = "",
    partitions: str = "PartitionName=main State=UP Nodes=n[1-4]\n",
) -> dict[str, tuple[str, str]]:
    """item -> what was found, and what follows."""
    config = CONFIG.format(accounting=accounting, age=age, private=private, suspend=suspend, time=time)
    text = f"@site file\n{file}@site version\n{version}@site queries\n{queries}@site config\n{config}"
    text += f"@site partitions\n{partitions}@site level\n{level}"
    items = read_site(text)
    assert all(one.ok and one.advice for one in items if "nodes" not in private), "campaigns run there, and something follows"
    return {one.item: (one.found, one.advice or "") for one in items}


@pytest.mark.promise("`hpcq cluster check` waits a moment for the nodes of its own job, and not for ever.")
@pytest.mark.parametrize(("node_count", "busy_looks", "idle"), [(3, 2, ["n1", "n2", "n3"]), (3, 99, ["n1"]), (1, 99, ["n1"])])
def test_nodes_of_its_own_job_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, node_count: int, busy_looks: int, idle: list[str]
) -> None:
    """All nodes but n1 are busy at the first looks; a cluster of one node is not waited for."""
    monkeypatch.setattr(checking, "_FREED_S", 0.5)
    looks = []

    def nodes() -> list[NodeState]:
        looks.append(1)
        busy = len(looks) <= busy_looks
        conditions = [NodeCondition.BUSY if busy and number > 1 else NodeCondition.IDLE for number in range(1, node_count + 1)]
        return [NodeState(f"n{number}", one, "") for number, one in enumerate(conditions, 1)]

    assert checking._idle_soon(SimpleNamespace(nodes=nodes)) == idle  # type: ignore[arg-type]
    assert (len(looks) == 1) == (node_count == 1)


def test_a_plain_site_needs_no_word() -> None:
    assert site() == {}


@pytest.mark.promise("`hpcq cluster check` finds a submit command that is a wrapper, or prints.")
def test_a_wrapper_and_one_that_prints() -> None:
    assert site(file="/opt/site/sbatch\n#!\n")["submit command"][0] == "/opt/site/sbatch is a script"
    found, follows = site(version="Welcome!\nslurm-wlm 22.05.8\n")["submit command"]
    assert found == "/usr/bin/sbatch prints 'Welcome!' before its answer"
    assert "finds each job by its name" in follows


def test_wrappers_of_the_commands_that_ask() -> None:
    found, follows = site(queries="/opt/site/squeue\n/opt/site/sinfo\n")["query commands"]
    assert found == "scripts: /opt/site/squeue, /opt/site/sinfo"
    assert "calls none gone before it has claimed and cancelled it" in follows


@pytest.mark.promise("`hpcq cluster check` says that idle nodes are switched off.")
def test_power_saving() -> None:
    found, follows = site(suspend="/usr/sbin/off", time="600 sec")["power saving"]
    assert (found, "does not use nodes that are switched off" in follows) == ("idle nodes are switched off after 600 sec", True)
    assert site(suspend="/usr/sbin/off", time="INFINITE") == {}


@pytest.mark.promise("`hpcq cluster check` says that one partition switches its idle nodes off.")
def test_power_saving_of_one_partition() -> None:
    lines = "PartitionName=main ResumeTimeout=60 SuspendTime=GLOBAL\nPartitionName=old State=UP SuspendTime=900 Nodes=n4\n"
    found, _ = site(suspend="/usr/sbin/off", time="INFINITE", partitions=lines)["power saving"]
    assert found == "idle nodes are switched off after 900 s in partition old"
    assert site(suspend="(null)", partitions=lines) == {}


@pytest.mark.promise("`hpcq cluster check` says that jobs of others are hidden, and what follows.")
@pytest.mark.parametrize(
    ("private", "follows"),
    [
        ("jobs", "cannot see that others wait"),
        ("nodes,usage", "cannot choose idle nodes"),
        ("accounts", "limits of accounts are met, not read"),
        ("reservations", "sees only reservations that you may use"),
    ],
)
def test_private_data(private: str, follows: str) -> None:
    assert follows in site(private=private)["private data"][1]
    for level in ("0\nroot\n", "64030\nslurm\n", "20001\nops\nOperator\n"):
        assert site(private=private, level=level) == {}, "who may see all sees all"


def test_jobs_that_nobody_remembers() -> None:
    assert site(age=2, accounting="accounting_storage/none")["ended jobs"][0] == "MinJobAge=2 s, no accounting"
    assert site(age=2) == {}


@pytest.mark.promise("`hpcq cluster check` tries no further class of nodes where it saw no file of the first, and says so.")
@pytest.mark.parametrize(
    ("text", "words"), [("token n1", "n1, n2, one of each class"), (None, "n1; 1 more class of nodes not tried")]
)
def test_a_class_that_was_not_tried_is_not_said_to_be(monkeypatch: pytest.MonkeyPatch, text: str | None, words: str) -> None:
    idle = [NodeState(f"n{one}", NodeCondition.IDLE, "idle", features=(f"class{one}",)) for one in (1, 2)]
    monkeypatch.setattr(checking, "try_job", lambda *where: checking.Trial(where[3][0], started=True, text=text))
    [item], trials = checking._trials(cast(Any, None), cast(Any, SimpleNamespace(nodes=lambda: idle)), "/w", "look")
    assert item.found == f"started on {words}"
    assert len(trials) == (1 if text is None else 2)


@pytest.mark.promise("`hpcq cluster check` says how late a file of a node may appear.")
@pytest.mark.parametrize(
    ("options", "seen", "word", "late"),
    [
        ("ext4 rw,relatime", "0.0", "after 0 s", False),
        ("nfs4 rw,vers=4.2,actimeo=3", "0.4", "nfs4 may keep old attributes for 3 s", False),
        ("nfs4 rw,vers=4.2,noac", "0.0", "after 0 s", False),
        ("nfs4 rw,vers=4.2", "0.2", "nfs4 may keep old attributes for 60 s", True),
        ("nfs rw,acdirmax=30", "0.0", "nfs may keep old attributes for 30 s", True),
        ("nfs4 rw,actimeo=0", "0.0", "after 0 s", False),
        ("nfs4 rw,lookupcache=none,acdirmax=20", "0.0", "nfs4 may keep old attributes for 20 s", True),
        ("lustre rw,localflock", "12.4", "after 12.4 s", True),
        ("", "", "not within a minute", True),
    ],
)
def test_what_caches_of_attributes_mean(options: str, seen: str, word: str, late: bool) -> None:
    [item] = checking._caches(options, seen, 0.0, 90.0)
    assert item.ok
    assert word in item.found
    assert (item.advice is not None) is late


@pytest.mark.promise("`hpcq cluster check` calls caches bad that last longer than hpcq waits for files, and says what to set.")
@pytest.mark.parametrize(("options", "seen"), [("nfs4 rw,acdirmax=300", "0.2"), ("lustre rw", "95.0")])
def test_caches_that_last_longer_than_hpcq_waits_are_bad(options: str, seen: str) -> None:
    [item] = checking._caches(options, seen, 0.0, 90.0)
    assert not item.ok
    assert item.advice is not None
    assert "filesystem_delay_s is 90: at " in item.advice
    [longer] = checking._caches(options, seen, 0.0, 600.0)
    assert longer.ok
    assert longer.advice is not None
    assert "only 600 s after its end" in longer.advice


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[SimulatedSlurm]:
    with simulated_slurm(tmp_path / "slurm", node_count=4) as running:
        yield running


@pytest.mark.heavy
@pytest.mark.promise("`hpcq cluster check` finds wrappers of the commands that ask the controller.")
@pytest.mark.promise("`hpcq cluster check` says where locks of the work directory hold on one machine only.")
def test_locks_and_files_of_a_work_directory_are_tried(slurm: SimulatedSlurm, tmp_path: Path) -> None:
    path = slurm.cluster(f"work_directory: {tmp_path}/work") / "sim.yaml"
    items = {one.item: one for one in check_cluster(read_cluster(path))}
    assert items["from a node"].ok
    assert items["locks"].found == "a lock of the head is seen on a node"
    assert items["file attributes"].found.startswith("the head saw a node's file after 0")
    assert items["submit command"].found.endswith("/bin/sbatch is a script"), "the simulated one is"
    assert items["query commands"].found.count("/bin/") == 5
    assert not [one for one in (tmp_path / "work").rglob("*") if one.is_file()], "nothing of the look stays"
    (slurm.folder / "bin" / "flock").write_text("#!/bin/sh\ncase $1 in -n) exit 0 ;; *) exec sleep 90 ;; esac\n")
    (slurm.folder / "bin" / "flock").chmod(0o755)  # as on a file system where each machine has locks of its own
    items = {one.item: one for one in check_cluster(read_cluster(path))}
    assert items["locks"].found == "locks on the work directory hold on one machine only"
    assert items["locks"].advice is not None


@pytest.mark.heavy
@pytest.mark.promise("`hpcq cluster check` says that a partition puts jobs of others on the same nodes.")
def test_a_partition_shared_by_force_is_bad(slurm: SimulatedSlurm) -> None:
    slurm.control(set={"shown": {"partition": "PartitionName=main Default=YES OverSubscribe=FORCE:4 State=UP"}})
    items = {one.item: one for one in check_cluster(read_cluster(slurm.cluster() / "sim.yaml"))}
    assert not items["partition"].ok
    assert "OverSubscribe=FORCE:4" in items["partition"].found
