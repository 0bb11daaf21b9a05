"""Odd answers of Slurm 20.11 to 26.05: forms after the sources of the commands, with what administrators write into them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hpcq.errors import SchedulerError
from hpcq.scheduler.base import Bound
from hpcq.scheduler.kinds import commands_environment
from hpcq.scheduler.slurm import Slurm
from hpcq.scheduler.slurm.reading import node_condition, read_wait
from hpcq.scheduler.slurm.scheduler import Who, job_limits_command, read_job_limits, read_nodes, read_reservations
from hpcq.scheduler.types import NodeCondition, QueueQuery, SchedulerSettings, Wait
from hpcq.transport import Completed, Here

pytestmark = pytest.mark.fast


def slurm(**settings: str) -> Slurm:
    return Slurm(Here(), SchedulerSettings(partition="main", **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("word", "condition"),
    [
        ("MIXED+PLANNED", NodeCondition.BUSY),
        ("IDLE+PLANNED", NodeCondition.PLANNED),
        ("IDLE+CLOUD", NodeCondition.IDLE),
        ("IDLE+DYNAMIC_NORM", NodeCondition.IDLE),
        ("IDLE+CLOUD+POWER", NodeCondition.POWERED_DOWN),  # 20.11
        ("IDLE+CLOUD+POWERED_DOWN", NodeCondition.POWERED_DOWN),
        ("IDLE+CLOUD+POWER_DOWN+POWERED_DOWN", NodeCondition.POWERED_DOWN),
        ("MIXED#+CLOUD", NodeCondition.POWERED_DOWN),  # 20.11
        ("IDLE+CLOUD+POWERED_DOWN+NOT_RESPONDING", NodeCondition.DOWN),
        ("DOWN*+CLOUD+POWER", NodeCondition.DOWN),
        ("IDLE+DRAIN+MAINTENANCE", NodeCondition.DRAINED),
        ("ALLOCATED+COMPLETING", NodeCondition.BUSY),
        ("IDLE+RESERVED", NodeCondition.RESERVED),
        ("IDLE+REBOOT_REQUESTED", NodeCondition.DOWN),
        ("IDLE+INVALID_REG", NodeCondition.DOWN),
        ("IDLE+EXTERNAL", NodeCondition.UNKNOWN),
        ("planned~", NodeCondition.POWERED_DOWN),  # switched off, and wanted for a larger job
        ("planned*", NodeCondition.DOWN),
        ("planned-", NodeCondition.PLANNED),
        ("IDLE+A_FLAG_OF_2040", NodeCondition.UNKNOWN),
        ("CLOUD", NodeCondition.UNKNOWN),
        ("?", NodeCondition.UNKNOWN),
    ],
)
def test_a_state_of_several_words(word: str, condition: NodeCondition) -> None:
    assert node_condition(word) is condition


@pytest.mark.promise("A reason of several lines, with bars in it, is one reason and makes no node of its own.")
def test_a_reason_with_lines_and_bars_is_no_further_node() -> None:
    answer = (
        "Welcome to the machine\n"
        "n1|drained|main*|ib|disk:\nn9|see ticket|4|7|x\n  sda | sdb | sdc | sdd\n"
        "n2|idle|main*|a:b,c=d|none\nbye\n"
        "c-[1-2]|idle|main*||none\n"
        "n3.cluster.site|mixed-|main*||none\n"
    )
    found = {one.node: one for one in slurm().read_nodes(answer)}
    assert list(found) == ["n1", "n2", "n3.cluster.site"]
    assert found["n1"].reason == "disk: n9|see ticket|4|7|x sda | sdb | sdc | sdd"
    assert (found["n2"].condition, found["n2"].reason, found["n2"].features) == (NodeCondition.IDLE, None, ("a:b", "c=d"))


def test_a_node_of_several_partitions_is_one_node() -> None:
    found = Slurm(Here(), SchedulerSettings()).read_nodes("n1|idle|a|f|none\nn1|idle|b*|f|none\nn1|idle|c|f|none\n")
    assert [(one.node, one.partitions) for one in found] == [("n1", ("b",))]
    found = slurm().read_nodes("n1|idle|a|f|none\nn1|idle|main*|f|none\n")
    assert [(one.node, one.partitions) for one in found] == [("n1", ("a", "main"))]


def node_line(state: str, *behind: str) -> str:
    """A node as `scontrol --oneliner show node` of 26.05 prints it."""
    return " ".join((
        "NodeName=gpu-a1 Arch=x86_64 CoresPerSocket=32  CPUAlloc=0 CPUEfctv=128 CPUTot=128 CPULoad=0.00",
        "AvailableFeatures=ib,gpu:a100 ActiveFeatures=ib Gres=gpu:a100:4(S:0-1),shard:(null):16(S:0-1)",
        "NodeAddr=gpu-a1 NodeHostName=gpu-a1 Version=26.05.3",
        "OS=Linux 5.14.0-427.el9.x86_64 #1 SMP PREEMPT_DYNAMIC a=b Mon Apr 1 2024",
        f"RealMemory=512000 AllocMem=0 FreeMem=N/A Sockets=2 Boards=1 State={state} ThreadsPerCore=2 TmpDisk=0 Weight=1",
        "Owner=N/A MCS_label=N/A Partitions=main,long  BootTime=2026-11-20T01:02:03 SlurmdStartTime=None",
        "LastBusyTime=Unknown ResumeAfterTime=None CfgTRES=cpu=128,mem=500G,billing=128,gres/gpu=4 AllocTRES= ",
        *behind,
    ))  # fmt: skip


@pytest.mark.promise("A node of Slurm 20.11 to 26.05 that is powered down, drained or silent is read as that.")
@pytest.mark.parametrize(
    ("state", "drained", "down"),
    [
        ("IDLE+CLOUD", False, False),
        ("IDLE*+CLOUD", False, True),  # 20.11: does not answer
        ("IDLE+CLOUD+POWER", False, True),  # 20.11: powered down
        ("IDLE+CLOUD+POWERED_DOWN", False, True),
        ("IDLE+CLOUD+POWERING_UP", False, False),
        ("IDLE+NOT_RESPONDING", False, True),
        ("MIXED+DRAIN+PLANNED", True, False),
        ("IDLE+FAIL", True, False),
        ("DOWN*+DRAIN", True, True),
        ("DOWN+DRAIN+INVALID_REG+DYNAMIC_NORM", True, True),
    ],
)
def test_the_upkeep_of_a_node(state: str, drained: bool, down: bool) -> None:
    [found] = read_nodes(node_line(state)).values()
    assert (found.drained, found.down) == (drained, down)
    assert (found.node, found.partitions, found.reason) == ("gpu-a1", ("main", "long"), "")
    assert found.started_utc == "2026-11-20T01:02:03Z"


STAMPS = ("[root@2026-11-21T03:00:00]", "[jane.doe@corp.example.org@2026-11-21T03:00:00]", "[CORP\\jane doe@Unknown]")
BEHIND = (
    "",
    " Comment=old=1 State=IDLE Reason=none",
    " Extra={\"rack\": \"[a=1]\"} InstanceId=i-1 InstanceType=p4d ReservationName=swap",
    " TLSCertTokenSet=No TLSCertLastRenewal=Unknown Topology=topo1:spine:leaf1 Parameters=a=b",
)  # fmt: skip


@pytest.mark.promise("The reason of a drain is read whole, whatever it holds and whoever gave it.")
@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize(
    ("first", "others", "reason"),
    [
        ('IB "down": port=1 [ticket=4711]', (), 'IB "down": port=1 [ticket=4711]'),
        ("disk | sda", ("second=line", "Third [x@y]"), "disk | sda second=line Third [x@y]"),
        ("$(reboot) `x` 'y' ; <&> äöü 缺", (), "$(reboot) `x` 'y' ; <&> äöü 缺"),
    ],
)
def test_a_reason_is_whole(first: str, others: tuple[str, ...], reason: str, stamp: str, behind: str) -> None:
    # Slurm stamps the first line of a reason and puts eight blanks before each further one.
    lines = "".join(f"{' ' * 8}{one}" for one in others)
    [found] = read_nodes(node_line("IDLE+DRAIN", f"Reason={first} {stamp}{lines}{behind}")).values()
    assert found.reason == reason
    assert found.drained


def test_a_comment_of_several_lines_is_no_further_node() -> None:
    text = node_line("IDLE", "Comment=see also\nNodeName=gpu-a2 is worse\nand NodeName=gpu-a3 State=DOWN+DRAIN Reason=x")
    assert list(read_nodes(text)) == ["gpu-a1"]


def reservation(users: str = "(null)", groups: str = "(null)", accounts: str = "(null)", flags: str = "MAINT") -> str:
    """A reservation as 26.05 prints it, of cores, with a comment of two lines."""
    return (
        "ReservationName=swap StartTime=2026-11-21T03:00:00 EndTime=2027-11-21T03:00:00 Duration=365-00:00:00"
        f" Nodes=n[1-3] NodeCnt=3 CoreCnt=12 Features=(null) PartitionName=(null) Flags={flags}"
        "   NodeName=n1 CoreIDs=0-3   NodeName=n2 CoreIDs=0-3 TRES=cpu=12 AllowedPartitions=(null) QOS=(null)"
        f" Users={users} Groups={groups} Accounts={accounts} Licenses=(null) State=ACTIVE BurstBuffer=(null)"
        " MaxStartDelay=(null) Comment=was State=INACTIVE Nodes=n[7-9] Users=me\nReservationName=no more\n"
    )


@pytest.mark.promise("A reservation is this user's by name, group or account, and not if it shuts this user out.")
@pytest.mark.parametrize(
    ("lists", "mine"),
    [
        ({"users": "root,me"}, True),
        ({"users": "root"}, False),
        ({"groups": "ops,netops"}, True),
        ({"accounts": "physics"}, True),
        ({"accounts": "chemistry"}, False),
        ({"users": "-bob"}, True),
        ({"users": "-bob,-me"}, False),
        ({"accounts": "-physics"}, False),
        ({"accounts": "-chemistry"}, True),
        ({}, False),
    ],
)
def test_whose_reservation_it_is(lists: dict[str, str], mine: bool) -> None:
    me = Who("me", frozenset({"me", "netops"}), frozenset({"physics"}))
    [found] = read_reservations(reservation(**lists), me)
    assert (found.name, found.nodes, found.active, found.mine) == ("swap", ("n1", "n2", "n3"), True, mine)


def test_a_reservations_comment_changes_none_of_its_fields() -> None:
    nodes = "".join(f"n{number}|maint|main*||none\n" for number in (1, 7))
    shown = f"@reservation {reservation('me', flags='MAINT,DAILY,PURGE_COMP=00:05:00,SPEC_NODES')}"
    found = slurm(reservation="swap").read_nodes(nodes + shown)
    assert [one.condition for one in found] == [NodeCondition.IDLE, NodeCondition.MAINTENANCE]


TOPOLOGY_WORDS = [
    "Required nodes lack available resources",
    "No suitable topology unit found",
    "Insufficient resources in topology unit",
    "No available nodes in topology",
]


@pytest.mark.promise("With Slurm 26.05 a job that waits for its turn is told by its topology's sentences, too.")
@pytest.mark.parametrize("reason", TOPOLOGY_WORDS)
def test_sentences_of_a_topology_are_waits_for_nodes(reason: str) -> None:
    assert read_wait(reason) is Wait.ORDINARY
    [other] = slurm().read_others(f"main\n1000\n7|1001|n[1-2]|{reason}\n")
    assert (other.sure, other.nodes) == (True, ("n1", "n2"))


@pytest.mark.parametrize(
    ("reason", "wait"),
    [
        ("Job's QOS not permitted to use this partition (gpu allows high not normal)", Wait.NEVER),
        ("Job's account not permitted to use this partition (gpu denies a,b including a)", Wait.NEVER),
        ("uid 1000 not in group permitted to use this partition (gpu). groups allowed: ops", Wait.NEVER),
        ("Reservation swap was deleted", Wait.NEVER),
        ("Job is at or exceeds QOS normal's group max TRES(cpu) minutes of 9 with 10", Wait.LIMIT),
        ("Required nodes do not fit topology", Wait.LIMIT),
        ("PowerNotAvail", Wait.LIMIT),
        ("Reservation", Wait.LIMIT),
        ("a sentence of 2040", Wait.UNKNOWN),
    ],
)
def test_sentences_in_place_of_a_word(reason: str, wait: Wait) -> None:
    assert read_wait(reason) is wait


def test_other_jobs_with_odd_lists_of_nodes_count() -> None:
    found = slurm().read_others("main\n1000\n7_[1-9%2]|1001|n[1-|Resources\n8+0|1001|(null)|Priority\n9|1001||Licenses\n")
    assert [(one.scheduler_job_id, one.nodes) for one in found] == [("7_[1-9%2]", ()), ("8+0", ())]


def test_jobs_with_odd_names_spoil_no_other_row() -> None:
    answer = "1000\n5|RUNNING|1000|a|b\nc|n[1-2]|None\n6_7|PENDING|1000|x|y|z|n|None\n4294967290|RUNNING|1000|tag|n1|None\n"
    reports = {one.scheduler_job_id: one for one in slurm().read_poll(Completed(0, answer.encode(), ""))}
    assert (reports["4294967290"].name, reports["4294967290"].nodes) == ("tag", ("n1",))  # an id of a federation


@pytest.mark.promise("In a federation hpcq lists the nodes and jobs of the cluster that it is on, and no others.")
def test_a_federation_is_looked_at_from_its_own_cluster() -> None:
    environment = commands_environment("slurm", {"SLURM_CONF": "/etc/other.conf"})
    script = f"SINFO_LOCAL=no; {environment.as_shell()}; env"
    seen = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"SINFO_LOCAL=1", "SQUEUE_LOCAL=1", "SACCT_LOCAL=1", "SLURM_CONF=/etc/other.conf"} <= set(seen)
    assert environment.of_this_process()["SQUEUE_LOCAL"] == "1"


PARTITIONS = (
    "PartitionName=gpu AllowGroups=ALL AllowAccounts=physics,chem AllowQos=ALL Default=NO State=UP\n"
    "PartitionName=cpu AllowGroups=ALL DenyAccounts=physics AllowQos=ALL AllocNodes=login[1-2].site Default=NO State=UP\n"
)
SITE = (
    "#!/bin/sh\n"
    'case "$0 $*" in\n'
    '*"scontrol --all"*) cat "${{0%/*}}/partitions";;\n'
    '*"show config"*) echo "SLURM_VERSION           = {release}";;\n'
    '*account=lab-a*ParentName,*) echo "lab|";;\n'
    '*account=lab*ParentName,*) echo "physics|node=3";;\n'
    '*account=physics*ParentName,*) echo "root|cpu=9";;\n'
    '*"show assoc"*) echo "lab-a||normal|normal|||";;\n'
    "esac\n"
)  # fmt: skip


@pytest.mark.promise("From Slurm 23.02 on a partition's list of accounts holds the accounts below them, too.")
@pytest.mark.parametrize(
    ("release", "gpu", "cpu"),
    [
        ("26.05.3", (), ("partition cpu: DenyAccounts=physics: lab-a is below physics",)),
        ("22.05.8", ("partition gpu: AllowAccounts=physics,chem: lab-a is not among them",), ()),
    ],
)
def test_accounts_below_those_of_a_list(tmp_path: Path, release: str, gpu: tuple[str, ...], cpu: tuple[str, ...]) -> None:
    (tmp_path / "partitions").write_text(PARTITIONS)
    for name in ("scontrol", "sacctmgr"):
        (tmp_path / name).write_text(SITE.format(release=release))
        (tmp_path / name).chmod(0o755)
    script = f"PATH={tmp_path}:$PATH; id() {{ echo 1000; }}; uname() {{ echo login2.site; }}; {job_limits_command(None)}"
    answer = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    for partition, refusals in (("gpu", gpu), ("cpu", cpu)):
        found = read_job_limits(answer, partition=partition, account=None, qos=None, reservation=None)
        assert found.refusals == refusals
        assert found.max_nodes == Bound(3, "GrpTRES of account lab, above lab-a"), "in every release"


QUEUE = """#!/bin/sh
echo asked >> {folder}/asked
case " $* " in
*" --me "*) ;;
*) echo "squeue: this site lists your own jobs only" >&2; exit 1;;
esac
"""


@pytest.mark.promise("Where a site forbids the list of other users' jobs, hpcq goes on without it and says so.")
def test_a_site_that_lists_own_jobs_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcq.scheduler.base._OTHERS_PAUSE_PER_ANSWER", 0.0)  # an answer takes a second on a busy machine
    for name, text in (("squeue", QUEUE.format(folder=tmp_path)), ("sinfo", "#!/bin/sh\necho 'n1|idle|main*||none'\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    scheduler = slurm()
    question = QueueQuery(nodes=True, others=True)
    with pytest.raises(SchedulerError, match="own jobs only"):  # once may be a fault of the moment
        scheduler.look(question)
    seen = scheduler.look(question)
    assert ([one.node for one in seen.nodes or ()], seen.others) == (["n1"], ())
    assert scheduler.others_refused == "squeue: this site lists your own jobs only"
    count = len((tmp_path / "asked").read_text().splitlines())
    assert scheduler.look(question).others == ()
    assert len((tmp_path / "asked").read_text().splitlines()) == count  # not asked again soon


def test_a_controller_that_does_not_answer_forbids_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcq.scheduler.base._OTHERS_PAUSE_PER_ANSWER", 0.0)  # an answer takes a second on a busy machine
    for name in ("squeue", "sinfo"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    scheduler = slurm()
    for question in (QueueQuery(others=True), QueueQuery(nodes=True, others=True)) * 2:
        with pytest.raises(SchedulerError):
            scheduler.look(question)
    assert scheduler.others_refused == ""
