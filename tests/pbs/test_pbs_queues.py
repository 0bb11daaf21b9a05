"""Queues as sites have them: several limits in one attribute, nodes owned by a resource, queues that pass jobs on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hpcq.scheduler.base import JobLimits
from hpcq.scheduler.pbs.nodes import SEPARATOR, read_dsv, read_vnode
from hpcq.scheduler.pbs.queues import Asker, Queues, read_job_limits, submit_limit
from hpcq.scheduler.types import JobState, NodeCondition, Wait
from tests.local.local_desk import LocalDesk
from tests.pbs.test_pbs_campaign import BRIEF, CLUSTER, measured
from tests.schedulers.scheduler_contract import Site, pbs_site
from tests.simulated_pbs.site import SimulatedPbs, simulated_pbs

ANNA = Asker("anna", ("staff", "wheel"), "climate")


@pytest.fixture
def pbs(tmp_path: Path) -> Iterator[SimulatedPbs]:
    with simulated_pbs(tmp_path / "pbs") as simulated:
        simulated.control(set={"sleep_s": 0.0})
        yield simulated


def orders(pbs: SimulatedPbs, *lines: str) -> None:
    """What an administrator types into qmgr."""
    for line in lines:
        done = pbs.as_user("root", "qmgr", "-c", line)
        assert done.returncode == 0, done.stderr


def site(pbs: SimulatedPbs, more: str = "") -> Site:
    return pbs_site(pbs.cluster(more) / "sim.yaml")


def listed(queue: str, *server: str) -> str:
    """One queue of a listing, and the server. Each word is an attribute."""
    words = [word for word in queue.split(" ") if word]
    ours = SEPARATOR.join([f"Queue: {words[0]}", "enabled=True", "started=True", *words[1:]])
    return "\n".join([SEPARATOR.join(["Server: head", "default_queue=workq", *server]), ours])


def limits(queue: str, *server: str, cpus: tuple[int, int] | None = (16, 16)) -> JobLimits:
    return read_job_limits(read_dsv(listed(queue, *server)), None, ANNA, cpus)


@pytest.mark.promise("Of several limits that PBS has in one attribute, the smallest that holds for this user counts.")
@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("max_queued=[o:PBS_ALL=10] max_queued=[u:PBS_GENERIC=2] max_queued=[g:PBS_GENERIC=5]", 2),
        ("max_queued=[u:PBS_GENERIC=2] max_queued=[u:anna=7] max_queued=[o:PBS_ALL=10]", 7),
        ("max_queued=[g:staff=3] max_queued=[g:wheel=1] max_queued=[u:bert=1]", 3),
        ("max_queued=[p:climate=4] max_queued=[p:PBS_GENERIC=1]", 4),
        ('max_queued=[u:PBS_GENERIC=9],[p:"climate"=6]', 6),
        ("max_queued=[u:bert=1]", None),
    ],
)
def test_of_several_limits_the_smallest_that_holds_counts(words: str, limit: int | None) -> None:
    assert submit_limit(read_dsv(listed(f"workq {words}")), None, ANNA) == limit
    assert submit_limit(read_dsv(listed("workq", *words.split(" "))), "workq", ANNA) == limit


@pytest.mark.promise("A PBS queue's limits of processors and of time are limits of nodes and of time in `plan` and `check`.")
@pytest.mark.parametrize(
    ("words", "most", "least", "time"),
    [
        ("resources_max.ncpus=64", 4, None, None),
        ("resources_min.ncpus=28 resources_max.nodect=9", 9, 2, None),
        ("resources_min.ncpus=16", None, None, None),
        ("max_queued_res.ncpus=[o:PBS_ALL=640] max_queued_res.ncpus=[u:PBS_GENERIC=48]", 3, None, None),
        ("max_run_res.nodect=[g:staff=5]", 5, None, None),
        ("resources_min.walltime=00:10:00", None, None, 600),
        ("resources_max.ncpus=8", 0, None, None),
    ],
)
def test_limits_of_processors_are_limits_of_nodes(words: str, most: int | None, least: int | None, time: int | None) -> None:
    found = limits(f"workq {words}")
    assert [one.value if one else None for one in (found.max_nodes, found.nodes_at_least, found.min_walltime_s)] == [
        most,
        least,
        time,
    ]


def test_a_limit_of_processors_says_how_it_became_one_of_nodes() -> None:
    found = limits("workq resources_max.ncpus=64")
    assert found.words() == ["at most 4 nodes per job (resources_max.ncpus of queue workq, 64, in nodes of 16 CPUs)"]
    assert limits("workq resources_max.ncpus=64", cpus=None).max_nodes is None


@pytest.mark.promise("A PBS queue that owns nodes by a resource (default_chunk.Qlist) gets those nodes only.")
def test_a_queue_that_owns_nodes_by_a_resource(pbs: SimulatedPbs) -> None:
    """As sites do it: vnodes have a list of queues, and each queue's chunks ask for the queue's own name."""
    for name, queues in (("pbn1", "workq"), ("pbn2", "workq,debug"), ("pbn3", "debug")):
        pbs.control(nodes={name: {"resources": {"Qlist": queues}}})
    orders(
        pbs, "create queue debug", "set queue debug enabled = True", "set queue debug started = True",
        "set queue debug default_chunk.Qlist = debug", "set queue workq default_chunk.Qlist = workq",
        "set queue workq default_chunk.ncpus = 1",
    )  # fmt: skip
    ours, theirs = site(pbs), site(pbs, "queue: debug\n")
    assert [one.node for one in ours.scheduler.nodes()] == ["pbn1", "pbn2"]
    assert [one.node for one in theirs.scheduler.nodes()] == ["pbn2", "pbn3"]
    assert [one.node for one in site(pbs, "select: Qlist=debug\n").scheduler.nodes()] == ["pbn2", "pbn3"]


PARTITIONS = "\n".join(
    (
        SEPARATOR.join(["Server: head", "default_queue=workq"]),
        *(SEPARATOR.join([f"Queue: {name}", *words]) for name, *words in (
            ["workq", "queue_type=Execution"], ["physics", "queue_type=Execution", "partition=P1"],
            ["prod", "queue_type=Route", "route_destinations=workq,physics"],
        )),
    )
)  # fmt: skip


@pytest.mark.fast
@pytest.mark.promise("Of several schedulers of a PBS server, each serves its own nodes: hpcq plans only those of its queue.")
@pytest.mark.parametrize(("queue", "nodes"), [("workq", ["n1"]), ("physics", ["n2"]), ("prod", ["n1", "n2"])])
def test_nodes_of_another_scheduler_are_none_of_a_queues(queue: str, nodes: list[str]) -> None:
    rows = ("Name=n1", "Name=n2\x1fpartition=P1", "Name=n3\x1fpartition=P2")
    vnodes = [read_vnode(one) for one in read_dsv("\n".join(f"{row}\x1fstate=free" for row in rows))]
    may_run = Queues.of(read_dsv(PARTITIONS)).may_run(queue, vnodes)
    assert [one.name for one in vnodes if may_run(one)] == nodes


@pytest.mark.promise("Jobs of a PBS queue with other nodes do not make hpcq yield.")
def test_jobs_of_a_queue_with_other_nodes_are_not_waited_for(pbs: SimulatedPbs) -> None:
    pbs.control(nodes={f"pbn{n}": {"resources": {"Qlist": "workq" if n < 3 else "debug"}} for n in (1, 2, 3, 4)})
    orders(
        pbs, "set queue workq default_chunk.Qlist = workq", "create queue debug", "set queue debug default_chunk.Qlist = debug"
    )
    scheduler = site(pbs).scheduler
    scheduler.nodes()
    comment = "comment=Not Running: Not enough free nodes available"
    rows = [SEPARATOR.join([f"Job Id: {n}.head", f"queue={queue}", comment]) for n, queue in ((7, "workq"), (8, "debug"))]
    assert [one.scheduler_job_id for one in scheduler.read_others("\n".join(rows))] == ["7.head"]


ROUTED = (
    "create queue prod", "set queue prod queue_type = Route", "set queue prod route_destinations = small,large,far@other",
    "set queue prod enabled = True", "set queue prod started = True",
    "create queue small", "set queue small resources_max.nodect = 2", "set queue small from_route_only = True",
    "set queue small resources_max.walltime = 01:00:00", "set queue small enabled = True", "set queue small started = True",
    "create queue large", "set queue large resources_min.nodect = 3", "set queue large resources_max.nodect = 9",
    "set queue large from_route_only = True", "set queue large enabled = True", "set queue large started = True",
    "set queue large resources_max.walltime = 06:00:00",
)  # fmt: skip


@pytest.mark.promise("A PBS queue that passes jobs on is submitted to; its limits are those of the queues behind it.")
def test_the_limits_of_a_queue_that_passes_jobs_on(pbs: SimulatedPbs) -> None:
    orders(pbs, *ROUTED)
    found = site(pbs, "queue: prod\n").scheduler.job_limits()
    assert (found.refusals, found.state, found.nodes_at_least) == ((), "UP", None)
    assert found.words() == [
        "at most 9 nodes per job (resources_max.nodect of queue large)",
        "at most 21600 s (resources_max.walltime of queue large)",
    ]
    orders(pbs, "set queue prod resources_max.nodect = 4", "set queue small started = False", "set queue large started = False")
    assert site(pbs, "queue: prod\n").scheduler.job_limits().state == "DOWN"
    assert site(pbs, "queue: prod\n").scheduler.job_limits().max_nodes.value == 4  # type: ignore[union-attr]


@pytest.mark.promise("A PBS queue that takes routed jobs only is refused with the queue to name instead.")
def test_a_queue_behind_another_names_the_one_to_write(pbs: SimulatedPbs) -> None:
    orders(pbs, *ROUTED)
    [said] = site(pbs, "queue: small\n").scheduler.job_limits().refusals
    assert said == "queue small: from_route_only: it takes jobs from other queues only: write `queue: prod`"
    orders(pbs, "set queue prod route_destinations = far@other")
    [said] = site(pbs, "queue: prod\n").scheduler.job_limits().refusals
    assert said.startswith("queue prod: queue_type=Route: none of its route_destinations takes jobs of ")


@pytest.mark.promise("A job that no PBS queue takes from the one that passes jobs on says so, and its wait has an end.")
def test_a_job_that_stays_in_the_queue_that_passes_jobs_on(pbs: SimulatedPbs) -> None:
    orders(pbs, *ROUTED, "set queue small enabled = False", "set queue large enabled = False")
    plain = site(pbs, "queue: prod\n")
    place = replace(plain, head=plain.head.replace("#PBS ", "#PBS -q prod ", 1))
    answer = place.submit("waits", "true")
    assert answer.scheduler_job_id
    report = place.wait(answer.scheduler_job_id, JobState.QUEUED)
    assert report.wait is Wait.LIMIT
    assert report.reason == "in queue prod, which passes jobs on to small, large: no queue takes it now"
    orders(pbs, "set queue small enabled = True")
    place.ends(answer.scheduler_job_id, JobState.COMPLETED)


@pytest.mark.long
@pytest.mark.promise(
    "A campaign runs through a PBS queue that passes its jobs on: pairs through one, all nodes through another."
)
@pytest.mark.parametrize(("more", "behind"), [("", "small"), ("allocation: whole\n", "large")])
def test_a_campaign_through_a_queue_that_passes_jobs_on(pbs: SimulatedPbs, tmp_path: Path, more: str, behind: str) -> None:
    orders(pbs, *ROUTED)
    desk = LocalDesk.at(tmp_path)
    desk.cluster("tiny", f"{CLUSTER}queue: prod\n")
    desk.campaign(BRIEF, more=more)
    desk.hpcq("run", "try.yaml")
    assert measured(desk) == 6
    shown = pbs.run("qstat", "-x", "-f").stdout
    assert f"queue = {behind}\n" in shown
    assert "queue = prod\n" not in shown


@pytest.mark.promise("A PBS job gets all processors of its hosts, unless `select` says how many.")
@pytest.mark.parametrize(
    ("more", "asked"),
    [
        pytest.param("", 4, marks=pytest.mark.long),
        ("select: ncpus=2:mpiprocs=2\n", 2),
        pytest.param("select: mem=1gb\n", 4, marks=pytest.mark.long),
    ],
)
def test_a_job_gets_all_processors_of_its_hosts(pbs: SimulatedPbs, tmp_path: Path, more: str, asked: int) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.cluster("tiny", CLUSTER + more)
    path = desk.folder / desk.campaign(BRIEF, more="retries: 0")
    path.write_text(path.read_text().replace("pairs: all", "pairs: {list: [[pbn2, pbn1]]}"))
    desk.hpcq("run", "try.yaml")
    assert measured(desk) == 1
    [select] = [line for line in pbs.run("qstat", "-x", "-f", "-w").stdout.splitlines() if "Resource_List.select" in line]
    assert select.count(f"ncpus={asked}") == 2
    assert select.index("host=pbn2") < select.index("host=pbn1")


@pytest.mark.long
@pytest.mark.promise("`resources` of a cluster file asks PBS for what a job needs as a whole, like file systems.")
def test_resources_of_the_job_as_a_whole(pbs: SimulatedPbs, tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.cluster("tiny", f"{CLUSTER}resources: [filesystems=home:eagle, storage=scratch/ab1]\n")
    path = desk.folder / desk.campaign(BRIEF, more="retries: 0")
    path.write_text(path.read_text().replace("pairs: all", "pairs: {list: [[pbn2, pbn1]]}"))
    desk.hpcq("run", "try.yaml")
    assert measured(desk) == 1
    [script] = desk.run_folder.glob("tiny/jobs/*/1/job.sh")
    assert "\n#PBS -l filesystems=home:eagle,storage=scratch/ab1\n" in script.read_text()


def checked(desk: LocalDesk, *, expect: int = 0) -> dict[str, tuple[bool, str, str]]:
    """What `hpcq cluster check` says: item -> whether it is fine, what was found, advice."""
    said = json.loads(desk.hpcq("cluster", "check", "tiny", "--json", expect=expect).stdout)
    rows = said if isinstance(said, list) else said["items"]
    return {row["item"]: (row["ok"], row["found"], row["advice"] or "") for row in rows}


@pytest.mark.promise("`hpcq cluster check` of a PBS says how many processors jobs get, and that jobs of others are hidden.")
@pytest.mark.promise("`hpcq cluster check` names hosts that PBS always shares, and fails where there are no others.")
def test_what_cluster_check_says_of_a_site(pbs: SimulatedPbs, tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.cluster("tiny", CLUSTER)
    pbs.control(nodes={"pbn4": {"sharing": "ignore_excl", "ncpus": 2}, "pbn3": {"ncpus": 8}})
    orders(pbs, "set server query_other_jobs = False")
    found = checked(desk)
    assert found["processors"] == (True, "4 to 8 a node for each job", "")
    assert found["whole hosts"][:2] == (True, "sharing = ignore_excl: pbn4")
    assert "never yields" in found["jobs of others"][2]
    orders(pbs, "set server query_other_jobs = True", "set queue workq resources_max.ncpus = 12")
    desk.cluster("tiny", f"{CLUSTER}select: ncpus=1\n")
    found = checked(desk)
    assert "jobs of others" not in found
    assert found["processors"][1:] == (
        "1 a node for each job",
        "ncpus in the key select says so: programs get OMP_NUM_THREADS=1",
    )
    assert "at most 12 nodes per job" in found["partition"][1]
    pbs.control(nodes={f"pbn{n}": {"sharing": "ignore_excl"} for n in (1, 2, 3)})
    found = checked(desk, expect=1)
    assert found["whole hosts"][0] is False


@pytest.mark.promise("A PBS host that is always shared (sharing = ignore_excl) is left out of all campaigns.")
def test_a_host_that_is_always_shared_is_left_out(pbs: SimulatedPbs) -> None:
    pbs.control(nodes={"pbn2": {"sharing": "ignore_excl"}})
    states = site(pbs).scheduler.nodes()
    assert [(one.node, one.condition) for one in states] == [(name, NodeCondition.IDLE) for name in ("pbn1", "pbn3", "pbn4")]


def test_the_queues_are_listed_once_and_not_with_each_look(pbs: SimulatedPbs) -> None:
    scheduler = site(pbs).scheduler
    before = pbs.control()["calls"].get("qstat", 0)
    for _ in range(3):
        scheduler.nodes()
    assert pbs.control()["calls"]["qstat"] - before == 2


def test_the_command_line_wins_over_the_directive(pbs: SimulatedPbs) -> None:
    script = "#!/bin/sh\n#PBS -l select=1:host=pbn1\nsleep 0\n"
    (pbs.folder / "job.sh").write_text(script)
    done: subprocess.CompletedProcess[str] = pbs.run("qsub", "-l", "select=1:host=pbn1:ncpus=3", "job.sh")
    assert "Resource_List.select = 1:host=pbn1:ncpus=3" in pbs.run("qstat", "-x", "-f", done.stdout.strip()).stdout
