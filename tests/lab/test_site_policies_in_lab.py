"""Policies of sites, put into the configuration of a real Slurm: what hpcq says of them, and what it does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpcq.definition.files.cluster import read_cluster
from hpcq.runner.site.checking import check_cluster
from hpcq.runner.site.place import reach, scheduler_of
from hpcq.scheduler.types import CheckedItem
from tests.lab.campaigns_in_lab import Desk
from tests.lab.driven_in_lab import Driven
from tests.lab.lab_fixture import RunningLab

pytestmark = pytest.mark.lab
#: A site's filter that wants a comment on every job, and greets its users on standard error.
JOB_SUBMIT = """
function slurm_job_submit(job_desc, part_list, submit_uid)
  slurm.log_user("Welcome to Alpha!")
  if job_desc.comment == nil then
    slurm.log_user("ERROR: every job needs --comment=PROJECT")
    return slurm.ERROR
  end
  return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end
return slurm.SUCCESS
"""


@contextmanager
def configured(lab: RunningLab, *lines: str) -> Iterator[None]:
    """The cluster alpha with these lines at the end of its slurm.conf."""
    mark = "# of a test"
    text = "".join(f"{line}  {mark}\n" for line in lines)
    lab.exec("alpha", "sh", "-c", "cat >>/etc/slurm/slurm.conf && scontrol reconfigure", text=text)
    try:
        yield
    finally:
        lab.at_rest("alpha")
        lab.exec("alpha", "sh", "-c", f"sed -i '/{mark}$/d' /etc/slurm/slurm.conf && scontrol reconfigure")


ONE_PAIR = "pairs: {list: [[alpha-n01, alpha-n02]]}"
TWO_PAIRS = "pairs: {list: [[alpha-n01, alpha-n02], [alpha-n03, alpha-n04]]}"


@pytest.mark.promise("A refusal that holds for every job ends the cluster's jobs at once, in the scheduler's words.")
def test_access_that_is_denied_ends_at_once(lab: RunningLab, tmp_path: Path) -> None:
    line = "PartitionName=alloc Nodes=alpha-n[01-04] AllocNodes=alpha-n01 State=UP MaxTime=1:00:00"
    with configured(lab, line):
        cluster = read_cluster(lab.cluster_file("alpha"))
        other = scheduler_of(cluster, reach(cluster))
        other.settings = type(other.settings)(partition="alloc", account="lab")
        [refusal] = other.job_limits().refusals
        assert refusal == "partition alloc: AllocNodes=alpha-n01: jobs are submitted from alpha-head here"
        with pytest.raises(Exception, match="AllocNodes=alpha-n01"):
            Driven(tmp_path, lab, "alpha", f"{TWO_PAIRS}\nnodes: {{partition: alloc}}")


@pytest.mark.long
def test_a_filter_that_refuses_ends_at_once(lab: RunningLab, tmp_path: Path) -> None:
    driven = Driven(tmp_path, lab, "alpha", TWO_PAIRS)
    lab.exec("alpha", "sh", "-c", "cat >/etc/slurm/job_submit.lua", text=JOB_SUBMIT)
    with configured(lab, "JobSubmitPlugins=lua"):
        driven.finish(driven.start(), within_s=60)
    rows = [event for event in driven.events() if event["event"] == "not_run"]
    refused = [event for event in driven.events() if event["event"] == "refused"]
    assert len(refused) == 2
    assert all("every job needs --comment=PROJECT" in event["message"] for event in refused)
    assert {row["pair"][0] for row in rows} | {"alpha-n01", "alpha-n03"} == {"alpha-n01", "alpha-n03"}
    assert driven.load()["not_measured_count"] == 2
    assert any("Unspecified error" in text and "the rest is not run" in text for text in driven.said)


@pytest.mark.parametrize(
    ("keys", "measured"), [("memory: none", True), pytest.param("memory: 3998M", True, marks=pytest.mark.long), ("", False)]
)
def test_memory_can_be_said_otherwise(lab: RunningLab, tmp_path: Path, keys: str, *, measured: bool) -> None:
    """MaxMemPerCPU x CPUs is 2 MiB less than RealMemory: --mem=0 is refused."""
    with configured(lab, "PartitionName=mmc Nodes=alpha-n[01-04] MaxMemPerCPU=1999 State=UP MaxTime=1:00:00"):
        more = f"{ONE_PAIR}\nretries: 0\nnodes: {{partition: mmc}}"
        driven = Driven(tmp_path, lab, "alpha", more, keys=f"\n{keys}\n")
        driven.finish(driven.start())
    assert driven.outcomes() == (["completed"] if measured else []), driven.said
    assert driven.load()["measured_count"] == int(measured)


@contextmanager
def wired(lab: RunningLab, *lines: str) -> Iterator[None]:
    """The cluster alpha with these switches."""
    lab.at_rest("alpha")
    kept = lab.exec("alpha", "cat", "/etc/slurm/topology.conf")
    write = "cat >/etc/slurm/topology.conf && scontrol reconfigure"
    lab.exec("alpha", "sh", "-c", write, text="".join(f"{line}\n" for line in lines))
    try:
        yield
    finally:
        lab.at_rest("alpha")
        lab.exec("alpha", "sh", "-c", write, text=kept)


@pytest.mark.promise("A cluster of two fabrics that no switch joins is measured within each, also in one allocation.")
@pytest.mark.parametrize(
    ("more", "measured"), [pytest.param("pairs: all", 2, marks=pytest.mark.long), ("pairs: all\nallocation: whole", 2)]
)
def test_two_fabrics_are_measured_each(lab: RunningLab, tmp_path: Path, more: str, measured: int) -> None:
    with wired(lab, "SwitchName=leaf1 Nodes=alpha-n[01-02]", "SwitchName=leaf2 Nodes=alpha-n[03-04]"):
        driven = Driven(tmp_path, lab, "alpha", more)
        driven.finish(driven.start())
    assert driven.outcomes() == ["completed"] * 2, driven.said
    assert driven.load()["measured_count"] == measured
    assert not [event for event in driven.events() if event["event"] in {"refused", "not_run"}]


@pytest.mark.promise("Each job measures the interface that its nodes have: `interfaces` names it by feature.")
def test_nodes_that_differ_are_measured_over_their_own_interfaces(lab: RunningLab, tmp_path: Path) -> None:
    driven = Driven(tmp_path, lab, "alpha", "pairs: all", keys="\ninterfaces: {leaf2: mgmt0}\n")
    driven.finish(driven.start())
    assert driven.outcomes() == ["completed"] * 2, driven.said
    assert driven.load()["measured_count"] == 2
    used = {}
    for line in driven.run.path.glob("alpha/jobs/*/1/t1-r1.json"):
        ends = json.loads(line.read_text())["evidence"]
        used[ends["client"]["node"]] = {end["interface"] for end in ends.values()}
    assert sorted(used.values(), key=str) == [{"eth0"}, {"mgmt0"}]


def items_of(lab: RunningLab, tmp_path: Path, keys: str) -> dict[str, CheckedItem]:
    """What `hpcq cluster check` says with these keys in the cluster file."""
    path = tmp_path / "alpha.yaml"
    path.write_text(lab.cluster_file("alpha").read_text().replace("partition: main\n", "") + f"\n{keys}\n")
    return {one.item: one for one in check_cluster(read_cluster(path))}


@pytest.mark.promise("`hpcq cluster check` runs a job with all directives of a real one, on one node of each class.")
def test_the_check_is_a_job_like_any_other(lab: RunningLab, tmp_path: Path) -> None:
    lab.at_rest("alpha")
    lab.exec("alpha", "sh", "-c", "cat >/etc/slurm/job_submit.lua", text=JOB_SUBMIT)
    with configured(lab, "JobSubmitPlugins=lua"):
        without = items_of(lab, tmp_path, "partition: main")
        given = items_of(lab, tmp_path, "partition: main\nextra_directives: [--comment=physics]")
    assert not without["job"].ok
    assert "alpha-n01: refused: " in without["job"].found
    assert "every job needs --comment=PROJECT" in without["job"].found
    assert "from a node" not in without, "nothing ran, so nothing is to say of file systems"
    assert given["job"].found == "started on alpha-n01, alpha-n03, one of each class"
    assert given["from a node"].found.startswith("seen and written from alpha-n01")
    assert given["interface"].ok


@pytest.mark.long
@pytest.mark.promise("`hpcq cluster check` finds the form of a job that a site takes, and names the keys.")
@pytest.mark.parametrize(
    "limit",
    [
        pytest.param("MaxMemPerCPU=1999", id="refused"),
        pytest.param("MaxMemPerNode=1000", id="never started"),
        pytest.param("MaxCPUsPerNode=1", id="not whole nodes"),
    ],
)
def test_the_check_finds_the_form_that_the_site_takes(lab: RunningLab, tmp_path: Path, limit: str) -> None:
    with configured(lab, f"PartitionName=odd Nodes=alpha-n[01-04] {limit} DefMemPerCPU=500 State=UP MaxTime=1:00:00"):
        found = items_of(lab, tmp_path, "partition: odd")["job"]
        taken = items_of(lab, tmp_path, "partition: odd\nmemory: none")["job"]
    assert not found.ok
    if "CPUs" in limit:
        assert str(found.advice).startswith(
            "this site takes it with exclusive: none: write that in the cluster file; only where"
        )
        return
    assert ("refused: " if "CPU" in limit else "the scheduler says MaxMemPerLimit") in found.found
    assert found.advice == "this site takes it with memory: none: write that in the cluster file"
    assert taken.ok


def test_a_constraint_is_part_of_the_check(lab: RunningLab, tmp_path: Path) -> None:
    """Jobs name their nodes; one that asks for features of other nodes is refused, and so is the check's."""
    found = items_of(lab, tmp_path, "partition: main\nconstraint: nosuchfeature")["job"]
    assert not found.ok
    assert "Invalid feature specification" in found.found


def test_a_hidden_list_of_nodes_is_said(lab: RunningLab) -> None:
    with configured(lab, "PrivateData=nodes"):
        items = {one.item: one for one in check_cluster(read_cluster(lab.cluster_file("alpha")))}
    assert not items["scheduler"].ok
    assert "Access/permission denied" in items["scheduler"].found
    assert not items["private data"].ok
    assert "PrivateData=nodes" in items["private data"].found
    assert "cannot choose idle nodes" in str(items["private data"].advice)


@pytest.mark.promise("A drain's reason reaches `hpcq accept` as the person wrote it.")
def test_the_reason_of_a_drain_is_read_whole(lab: RunningLab) -> None:
    reason = "IB link down: port=1 rate=25G see=x [ticket=4711]"
    lab.exec("alpha", "scontrol", "update", "nodename=alpha-n04", "state=drain", f"reason={reason}")
    try:
        cluster = read_cluster(lab.cluster_file("alpha"))
        administration = scheduler_of(cluster, reach(cluster)).administration()
        assert administration is not None
        assert administration.look().nodes["alpha-n04"].reason == reason
    finally:
        lab.exec("alpha", "scontrol", "update", "nodename=alpha-n04", "state=resume")


@pytest.mark.long
@pytest.mark.promise("MPI tests get their environment also where a site demands --export=NONE.")
def test_steps_keep_what_the_script_sets(lab: RunningLab, tmp_path: Path) -> None:
    (tmp_path / "clusters").mkdir()
    more = 'extra_directives: ["--export=NONE"]\ncompiler: {cflags: -O0}\n'
    (tmp_path / "clusters" / "alpha.yaml").write_text(lab.cluster_file("alpha").read_text() + more)
    desk = Desk(tmp_path, lab)
    brief = "parameters: {duration_s: 100ms, warmup_s: 50ms}"
    desk.campaign(f"clusters: [alpha]\n{ONE_PAIR}\nrepetitions: 1\nretries: 0\ntests: [{{kernel: mpi_pingpong, {brief}}}]")
    desk.hpcq("run", "campaign.yaml")
    assert desk.rows("SELECT outcome, reason FROM v_results") == [{"outcome": "measured", "reason": None}]


@contextmanager
def edited(lab: RunningLab, expression: str) -> Iterator[None]:
    """The cluster alpha with its slurm.conf edited by sed."""
    kept = lab.exec("alpha", "cat", "/etc/slurm/slurm.conf")
    lab.exec("alpha", "sh", "-c", f"sed -i '{expression}' /etc/slurm/slurm.conf && scontrol reconfigure")
    try:
        yield
    finally:
        lab.at_rest("alpha")
        lab.exec("alpha", "sh", "-c", "cat >/etc/slurm/slurm.conf && scontrol reconfigure", text=kept)


@pytest.mark.long
def test_nodes_whose_memory_nobody_told(lab: RunningLab, tmp_path: Path) -> None:
    """Without RealMemory a node has 1 MiB, and jobs that ask for all of it have that."""
    with edited(lab, "s/ RealMemory=[0-9]*//; /^DefMemPerCPU/d"):
        driven = Driven(tmp_path, lab, "alpha", f"{ONE_PAIR}\nretries: 0")
        driven.finish(driven.start())
    assert driven.outcomes() == ["completed"], driven.said


@pytest.mark.long
def test_a_hidden_partition_is_used_by_its_name(lab: RunningLab, tmp_path: Path) -> None:
    with configured(lab, "PartitionName=veiled Nodes=alpha-n[01-04] Hidden=YES State=UP MaxTime=1:00:00"):
        driven = Driven(tmp_path, lab, "alpha", f"{ONE_PAIR}\nretries: 0\nnodes: {{partition: veiled}}")
        driven.finish(driven.start())
    assert driven.outcomes() == ["completed"], driven.said


@pytest.mark.long
def test_an_association_of_another_partition_limits_nothing(lab: RunningLab, tmp_path: Path) -> None:
    """One of partition debug, where a job may have one node and two minutes."""
    add, modify, delete = (f"sacctmgr -i {verb} user labuser" for verb in ("add", "modify", "delete"))
    where = "where account=lab partition=debug"
    lab.exec("alpha", "sh", "-c", f"{add} account=lab partition=debug && {modify} {where} set MaxTRES=node=1")
    try:
        driven = Driven(tmp_path, lab, "alpha", "pairs: all\nallocation: whole\nretries: 0\nnodes: {partition: main}")
        driven.finish(driven.start())
        with pytest.raises(Exception, match="MaxTRES of account lab is 1: a pair needs two"):
            Driven(tmp_path, lab, "alpha", f"{ONE_PAIR}\nnodes: {{partition: debug}}")
    finally:
        lab.exec("alpha", "sh", "-c", f"{delete} {where}")
    assert driven.outcomes() == ["completed"], driven.said


@pytest.mark.long
@pytest.mark.promise("What real Slurm lets an account's jobs have together, nodes or memory, is a limit of the plan.")
@pytest.mark.parametrize("share", ["node=3", "mem=12500"])
def test_a_share_of_the_account_that_pays(lab: RunningLab, tmp_path: Path, share: str) -> None:
    """Nodes have 4000 MiB each. Without the limit the plan is one tournament of four nodes, which Slurm would never start."""
    lab.exec("alpha", "sacctmgr", "-i", "modify", "account", "lab", "set", f"GrpTRES={share}")
    try:
        driven = Driven(tmp_path, lab, "alpha", "pairs: all\nallocation: whole\nretries: 0\nnodes: {partition: main}")
        driven.finish(driven.start())
    finally:
        lab.exec("alpha", "sacctmgr", "-i", "modify", "account", "lab", "set", f"GrpTRES={share.partition('=')[0]}=-1")
    [note] = [one for one in driven.plan.notes if "GrpTRES of account lab" in one]
    assert "3" in note
    assert set(driven.outcomes()) == {"completed"}, driven.said
