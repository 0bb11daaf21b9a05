"""What a site lets one job be: read as Slurm 22.05 and 24.11 write it, and kept by the plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.model import Budget
from hpcq.errors import UserError
from hpcq.planning.allocations import Basis, choose_allocations, plan_allocations
from hpcq.planning.make_plan import fit_link
from hpcq.planning.plan import Plan
from hpcq.scheduler.base import NO_LIMITS, Bound, JobLimits
from hpcq.scheduler.slurm.scheduler import read_job_limits
from hpcq.scheduler.types import NodeCondition, NodeState

pytestmark = pytest.mark.fast

#: `scontrol --oneliner show partition` of the lab: alpha (22.05) with accounting, beta (24.11) without.
OLD = """\
PartitionName=main AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A DefaultTime=00:30:00 \
DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=1-00:00:00 MinNodes=0 LLN=NO RootOnly=NO \
ReqResv=NO OverSubscribe=NO State=UP TotalCPUs=8 TotalNodes=4 TRES=cpu=8,mem=16000M,node=4,billing=8
PartitionName=staff AllowGroups=ALL AllowAccounts=root AllowQos=ALL Default=NO QoS=N/A MaxNodes=UNLIMITED MaxTime=UNLIMITED \
MinNodes=0 RootOnly=NO ReqResv=NO State=UP
@user 20001
@groups labuser hpc
@assoc lab||normal|normal,small,wide|||
@qos normal||||
@qos small|00:10:00|||
@qos wide|1-12:00:00|node=16||
"""
NEW = """\
PartitionName=short AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A DefaultTime=NONE \
DisableRootJobs=NO ExclusiveUser=NO ExclusiveTopo=NO Hidden=NO MaxNodes=2 MaxTime=00:05:00 MinNodes=0 LLN=NO \
MaxCPUsPerSocket=UNLIMITED Nodes=beta-n[01-02] RootOnly=NO ReqResv=NO State=DRAIN TotalNodes=2
PartitionName=wide AllowGroups=ops DenyAccounts=guest DenyQos=low Default=NO QoS=N/A MaxNodes=64 MaxTime=NONE MinNodes=8 \
RootOnly=NO ReqResv=YES State=UP
@user 20001
@groups labuser hpc
@assoc You are not running a supported accounting_storage plugin
"""


def limits(answer: str, partition: str | None = None, *, memory: str = "all", **mine: str | None) -> JobLimits:
    given = {"account": None, "qos": None, "reservation": None, **mine}
    return read_job_limits(answer, partition=partition, memory=memory, **given)


def test_the_default_partition_and_what_its_qos_adds() -> None:
    found = limits(OLD)
    assert (found.partition, found.state, found.refusals) == ("main", "UP", ())
    assert found.max_walltime_s == Bound(86400, "MaxTime of partition main")
    assert (found.max_nodes, found.nodes_at_least) == (None, None)
    assert limits(OLD, qos="small").max_walltime_s == Bound(600, "MaxWall of QOS small")
    assert limits(OLD, qos="wide").max_nodes == Bound(16, "MaxTRES of QOS wide")


def test_a_partition_without_accounting() -> None:
    found = limits(NEW, "short")
    assert found.max_nodes == Bound(2, "MaxNodes of partition short")
    assert found.max_walltime_s == Bound(300, "MaxTime of partition short")
    assert found.state == "DRAIN"


def test_who_is_not_let_in_is_told_why() -> None:
    assert limits(OLD, "staff").refusals == ("partition staff: AllowAccounts=root: lab is not among them",)
    assert limits(OLD, "staff", account="root").refusals == ()
    assert limits(NEW, "wide", account="guest", qos="low").refusals == (
        "partition wide: AllowGroups=ops: labuser, hpc is not among them",
        "partition wide: DenyAccounts=guest: guest is among them",
        "partition wide: DenyQos=low: low is among them",
        "partition wide: ReqResv=YES: jobs need a reservation there",
    )
    assert limits(NEW.replace("labuser hpc", "labuser ops"), "wide", reservation="maint").refusals == ()
    assert limits(NEW.replace("@user 20001", "@user 0"), "wide").refusals == ()


def test_what_is_not_there_and_what_is_not_told() -> None:
    assert limits(OLD, "nowhere").refusals == ("partition nowhere: not there: there are main, staff",)
    assert limits("", "main") == NO_LIMITS


def planned(folder: Path, found: JobLimits, more: str, duration: str = "1s") -> Plan:
    (folder / "sim.yaml").write_text("name: sim\nscheduler: slurm\ninterface: eth0\npartition: wide\n")
    tests = f"tests: [{{kernel: tcp_pingpong, parameters: {{duration_s: {duration}}}}}]\n"
    (folder / "c.yaml").write_text(f"name: c\nclusters: [sim]\nrepetitions: 1\npairs: all\n{tests}{more}\n")
    nodes = [NodeState(f"n{number}", NodeCondition.IDLE, "idle", ("wide",)) for number in range(1, 7)]
    return plan_allocations(read_campaign(folder / "c.yaml"), Basis(read_cluster(folder / "sim.yaml"), nodes, "c-1", 7, found))


MOST_4 = JobLimits("wide", max_nodes=Bound(4, "MaxNodes of partition wide"))


@pytest.mark.parametrize("allocation", ["whole", "group of 5"])
def test_a_tournament_is_no_larger_than_max_nodes(tmp_path: Path, allocation: str) -> None:
    plan = planned(tmp_path, MOST_4, f"allocation: {allocation}")
    assert (plan.allocation, plan.allocation_node_count) == ("group", 4)
    assert plan.notes == ("MaxNodes of partition wide is 4: jobs of 4 nodes at most",)
    assert "whole" not in {one.allocation for one in plan.cost.allocations}
    idle = {one.node for one in plan.candidates}
    [first, *_] = choose_allocations(plan.planned_pairs(), idle, [], Budget(), plan)
    assert len({node for pair in first for node in (pair.client, pair.server)}) == 4
    assert Plan.from_json(plan.to_json()) == plan


def test_two_nodes_a_job_are_pairs(tmp_path: Path) -> None:
    plan = planned(tmp_path, JobLimits("wide", max_nodes=Bound(2, "MaxNodes of partition wide")), "allocation: whole")
    assert (plan.allocation, plan.allocation_node_count, {test.load for test in plan.tests}) == ("pair", None, {""})
    assert plan.notes == ("MaxNodes of partition wide is 2: jobs of 2 nodes at most",)


def test_a_limit_that_does_not_matter_changes_nothing(tmp_path: Path) -> None:
    for more in ("allocation: group of 4", "allocation: pair"):
        limited, free = planned(tmp_path, MOST_4, more), planned(tmp_path, NO_LIMITS, more)
        assert (limited.pairs, limited.walltime_s, limited.notes) == (free.pairs, free.walltime_s, ())
    wide = JobLimits("wide", max_nodes=Bound(8, "MaxNodes of partition wide"))
    assert planned(tmp_path, wide, "allocation: whole") == planned(tmp_path, NO_LIMITS, "allocation: whole")


def test_jobs_smaller_than_min_nodes_or_of_one_node_are_refused(tmp_path: Path) -> None:
    least = JobLimits("wide", nodes_at_least=Bound(4, "MinNodes of partition wide"))
    with pytest.raises(UserError, match="MinNodes of partition wide is 4: the jobs of this plan have 2 nodes"):
        planned(tmp_path, least, "allocation: pair")
    assert planned(tmp_path, least, "allocation: group of 4").allocation_node_count == 4
    with pytest.raises(UserError, match="MaxNodes of partition wide is 1: a pair needs two"):
        planned(tmp_path, JobLimits("wide", max_nodes=Bound(1, "MaxNodes of partition wide")), "")


def test_time_limits_are_cut_and_what_cannot_fit_is_refused(tmp_path: Path) -> None:
    short = JobLimits("wide", max_walltime_s=Bound(90, "MaxTime of partition wide"))
    plan = planned(tmp_path, short, "")
    assert plan.walltime_s == 90
    assert plan.notes == ("MaxTime of partition wide is 90 s: time limit cut from 120 s",)
    with pytest.raises(UserError, match=r"estimated to take .* MaxTime of partition wide allows 90 s"):
        planned(tmp_path, short, "", duration="200s")
    with pytest.raises(UserError, match="walltime_s: 600 s: MaxTime of partition wide allows 90 s"):
        planned(tmp_path, short, "walltime_s: 10min")
    rounds = planned(tmp_path, JobLimits("wide", max_walltime_s=Bound(180, "MaxTime")), "allocation: whole", duration="20s")
    assert rounds.walltime_s <= 180
    assert rounds.cost.job_count > 1, "a tournament is cut into as many rounds as fit"


def test_a_partition_that_takes_no_job_of_ours_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="AllowAccounts=root: lab is not among them"):
        planned(tmp_path, limits(OLD, "staff"), "")


BOTH = NEW.replace(
    "@user 20001",
    """PartitionName=long AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=NO QoS=N/A \
MaxNodes=UNLIMITED MaxTime=2-00:00:00 MinNodes=0 RootOnly=NO ReqResv=NO State=UP
PartitionName=mid AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=NO QoS=N/A MaxNodes=8 MaxTime=01:00:00 MinNodes=4 \
RootOnly=NO ReqResv=NO State=UP
@user 20001""",
)


def test_of_several_partitions_the_most_generous_that_lets_us_in_counts() -> None:
    found = limits(BOTH, "short,mid")
    assert (found.partition, found.state, found.refusals) == ("short,mid", "UP", ())
    assert found.max_nodes == Bound(8, "MaxNodes of partition mid")
    assert found.max_walltime_s == Bound(3600, "MaxTime of partition mid")
    assert found.nodes_at_least is None
    assert limits(BOTH, "short,long").max_nodes is None
    assert limits(BOTH, "mid,wide").max_walltime_s == Bound(3600, "MaxTime of partition mid"), "wide does not let us in"
    assert len(limits(BOTH.replace("AllowGroups=ALL", "AllowGroups=ops"), "short,mid").refusals) == 2
    assert limits(BOTH, "short,nowhere").refusals == ("partition nowhere: not there: there are short, wide, long, mid",)


def test_where_all_partitions_must_take_a_job_the_tightest_limits_count() -> None:
    strict = BOTH + "@enforce ALL\n"
    found = limits(strict, "short,mid")
    assert found.max_nodes == Bound(2, "MaxNodes of partition short")
    assert found.max_walltime_s == Bound(300, "MaxTime of partition short")
    assert found.nodes_at_least == Bound(4, "MinNodes of partition mid")
    assert limits(strict, "mid,wide").refusals, "one that does not let us in is enough"
    assert limits(BOTH + "@enforce ANY\n", "short,mid") == limits(BOTH, "short,mid")


def test_jobs_of_a_link_keep_the_limits_of_both_clusters(tmp_path: Path) -> None:
    plan = replace(planned(tmp_path, NO_LIMITS, ""), cluster="alpha+beta", walltime_s=240)
    wall = {"alpha": JobLimits(max_walltime_s=Bound(600, "MaxTime of partition a")),
            "beta": JobLimits(max_walltime_s=Bound(180, "MaxWall of QOS q"))}  # fmt: skip
    fitted = fit_link(plan, 120, wall)
    assert (fitted.walltime_s, fitted.notes) == (180, ("beta: MaxWall of QOS q is 180 s: time limit cut from 240 s",))
    assert fit_link(plan, 120, {"alpha": NO_LIMITS, "beta": NO_LIMITS}) == plan
    with pytest.raises(UserError, match=r"c: alpha\+beta on beta: a job may wait 176 s .* MaxWall of QOS q allows 180 s"):
        fit_link(plan, 176, wall)
    with pytest.raises(UserError, match=r"on alpha: MinNodes of partition a is 2: a link's jobs have one node"):
        fit_link(plan, 1, {"alpha": JobLimits(nodes_at_least=Bound(2, "MinNodes of partition a"))})
    with pytest.raises(UserError, match=r"on beta: the site would not take its jobs"):
        fit_link(plan, 1, {"beta": JobLimits(refusals=("no",))})


#: A user who has two accounts, one of them in one partition only, and QOS with limits of a user's jobs together.
SHARES = """\
PartitionName=cpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=YES QoS=N/A MaxTime=1-00:00:00 State=UP
PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=NO QoS=gpus MaxTime=1-00:00:00 State=UP
@user 20001
@enforced associations,limits,qos
@assoc lab|gpu|||00:10:00|node=4|
@assoc lab|||physics||||cpu=4096
@assoc chem|gpu||||node=2|
@qos physics|||cpu=1000|
@qos gpus|||node=8|node=3
@account lab
@cpus cpu|128
@cpus gpu|64+
""".replace("@assoc lab|||physics||||", "@assoc lab|||physics|||")


@pytest.mark.promise("An association of one partition limits jobs of that partition only.")
@pytest.mark.promise("Slurm's limits of a user, of a QOS and of CPUs are limits of a job's nodes.")
def test_whose_share_it_is() -> None:
    cpu, gpu = limits(SHARES, "cpu"), limits(SHARES, "gpu")
    assert cpu.max_nodes == Bound(7, "MaxTRESPU of QOS physics, cpu=1000, in nodes of 128 CPUs"), "its only QOS is that of jobs"
    assert cpu.max_walltime_s == Bound(86400, "MaxTime of partition cpu")
    assert gpu.max_nodes == Bound(3, "GrpTRES of QOS gpus")
    assert gpu.max_walltime_s == Bound(600, "MaxWall of account lab")
    assert limits(SHARES, "gpu", account="chem").max_nodes == Bound(2, "MaxTRES of account chem")
    free = SHARES.replace("associations,limits,qos", "associations,qos")
    assert limits(free, "gpu").max_nodes is None, "limits are not enforced"


ABOVE = """\
@parent lab|physics|cpu=2560,gres/gpu=4
@parent physics|root|node=12
@parent root||
"""


@pytest.mark.promise("What all jobs of an account, and of the accounts above it, may take together limits a job's nodes.")
def test_shares_of_the_accounts_above() -> None:
    above = SHARES + ABOVE
    assert limits(above, "cpu").max_nodes == Bound(7, "MaxTRESPU of QOS physics, cpu=1000, in nodes of 128 CPUs")
    above = above.replace("cpu=1000", "")
    assert limits(above, "cpu").max_nodes == Bound(12, "GrpTRES of account physics, above lab")
    own = above.replace("cpu=2560", "cpu=256")
    assert limits(own, "cpu").max_nodes == Bound(2, "GrpTRES of account lab, cpu=256, in nodes of 128 CPUs")


@pytest.mark.promise("Limits of memory are limits of a job's nodes: of what the cluster file's `memory` asks for on each.")
def test_limits_of_memory() -> None:
    listed = SHARES.replace("cpu=1000", "mem=62.50G").replace("@cpus cpu|128", "@cpus cpu|128|16000+")
    given_out = listed + "@selected CR_CORE_MEMORY\n"
    words = "MaxTRESPU of QOS physics, mem=62.50G, in nodes of {} MiB"
    assert limits(given_out, "cpu").max_nodes == Bound(4, words.format(16000))
    assert limits(given_out, "cpu", memory="32G").max_nodes == Bound(1, words.format(32768))
    assert limits(given_out, "cpu", memory="none").max_nodes == Bound(
        32, "GrpTRES of account lab, cpu=4096, in nodes of 128 CPUs"
    )
    assert limits(listed, "cpu").max_nodes == Bound(32, "GrpTRES of account lab, cpu=4096, in nodes of 128 CPUs"), (
        "not given out"
    )


@pytest.mark.promise("A partition for which you have no association is refused before anything is submitted.")
def test_an_account_of_another_partition() -> None:
    [words] = limits(SHARES, "cpu", account="chem").refusals
    there = "account chem in gpu, account lab in every partition, account lab in gpu"
    assert words == f"partition cpu: you have no association for it: there are {there}"
    assert limits(SHARES.replace("associations,limits,qos", "none"), "cpu", account="chem").refusals == ()
