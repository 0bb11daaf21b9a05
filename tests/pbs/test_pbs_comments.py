"""Every comment that the scheduler of OpenPBS 23.06 can give a waiting job, and what hpcq concludes from it.

The words are those of fctt in src/scheduler/job_info.cpp, with names and numbers filled in.
"""

from __future__ import annotations

import pytest

from hpcq.scheduler.pbs.nodes import SEPARATOR
from hpcq.scheduler.pbs.scheduler import Pbs, is_waiting_for_nodes, read_wait
from hpcq.scheduler.types import OtherJob, SchedulerSettings, Wait
from hpcq.transport import Here

pytestmark = pytest.mark.fast

#: They pass when other jobs end, a person acts, or a time comes.
LIMIT = """
Internal Scheduling Error
Job not in queued state
Queue not started.
Queue not an execution queue.
Queue oldq job limit has been reached.
Server job limit has been reached.
User has reached server running job limit.
User has reached queue newq running job limit.
Group has reached server running limit.
Group has reached queue newq running limit.
Dedicated time conflict
Job would cross dedicated time boundary
Job will run in primetime only
Job will run in nonprimetime only
Job will cross into primetime
Queue oldq per-user limit reached on resource ncpus
Server per-user limit reached on resource ncpus
Queue oldq per-group limit reached on resource ncpus
Server per-group limit reached on resource ncpus
Job has zero shares for fairshare
Node has reached job run limit
Node has reached user run limit
Node has reached group run limit
Node has no PBS license
Max number of small cpusets has been reached
Node ineligible because job requested pack placement and won't fit on node
Insufficient amount of queue resource: lic (R: 8 A: 4 T: 12)
Insufficient amount of server resource: filesystems (eagle != home)
Queue oldq job limit reached for group staff
Queue oldq job limit reached for user anna
Server job limit reached for group staff
Server job limit reached for user anna
would exceed group staff's limit on resource ncpus in complex
would exceed user anna's limit on resource ncpus in complex
would exceed group staff's limit on resource ncpus in queue newq
would exceed user anna's limit on resource ncpus in queue newq
would exceed overall limit on resource ncpus in queue newq
would exceed overall limit on resource ncpus in complex
Cannot provision, provisioning disabled on server
Cannot provision, provisioning disabled on vnode
Cannot provision, requested AOE rhel not available on vnode
Cannot provision, requested EOE uan not available on vnode
Cannot provision, host has multiple vnodes
PBS Error: request rejected by a hook
Project has reached server running limit.
Server per-project limit reached on resource ncpus
would exceed project p1's limit on resource ncpus in complex
Server job limit reached for project p1
Project has reached queue newq's running limit.
Queue oldq per-project limit reached on resource ncpus
would exceed project p1's limit on resource ncpus in queue newq
Queue oldq job limit reached for project p1
Job is under job_sort_formula threshold value
Number of concurrent running subjobs limit reached
Job would exceed mission CPU share
Job exceeds total mission share
"""
#: The nodes are in use: jobs of others that say this wait for nodes that hpcq may hold.
ORDINARY = """
Not enough of the right type of nodes are available
Job would interfere with a top job
No available resources on nodes
Can't preempt enough work to run job
Job is requesting an exclusive node and node is in use
Insufficient amount of resource: ncpus (R: 8 A: 4 T: 12)
Job would conflict with reservation or top job
Job would break strict sorted order
Provisioning for job would interfere with backfill job
Provision conflict with existing job/reservation
Not enough free nodes available
Too few free resources
"""
#: A node of the job is out, or kept for somebody else.
NODE = """
Job would interfere with a confirmed reservation
Node is in an ineligible state: offline
Node is of an ineligible type: 2
Node not eligible for advance reservation
"""
#: The job will not start in this form.
NEVER = """
Specified vnode does not exist: n7
Node can't satisfy a multi-node job
can't fit in the largest placement set, and can't span psets
Not enough total nodes available
Invalid Job/Resv R7
"""
#: Of ours, the hosts may be of several sets; of others, it waits for nodes.
PLACEMENT_SET = "Placement set switch=s1 has too few free resources"
MEANINGS = {Wait.LIMIT: LIMIT, Wait.ORDINARY: ORDINARY, Wait.NODE: NODE, Wait.NEVER: NEVER}


def comments(text: str) -> list[str]:
    return [f"Not Running: {line}" for line in text.strip().splitlines()]


def others(comment: str) -> tuple[OtherJob, ...]:
    """What a poll makes of somebody else's job that waits with this comment."""
    words = ["Job Id: 7.head", "Job_Owner=bert@head", "job_state=Q", "queue=workq", f"comment={comment}"]
    return Pbs(Here(), SchedulerSettings()).read_others(SEPARATOR.join(words))


@pytest.mark.promise("Each of the 78 comments that PBS gives a waiting job is read; what is no wait for nodes has an end.")
@pytest.mark.parametrize("wait", MEANINGS, ids=lambda wait: wait.name)
def test_every_comment_means_one_thing(wait: Wait) -> None:
    assert {one: read_wait("Q", "n", one) for one in comments(MEANINGS[wait]) if read_wait("Q", "n", one) is not wait} == {}


def test_no_comment_of_the_source_is_left_out() -> None:
    assert sum(len(comments(text)) for text in MEANINGS.values()) == 77
    assert read_wait("Q", "n", f"Not Running: {PLACEMENT_SET}") is Wait.UNKNOWN


@pytest.mark.promise("hpcq yields to jobs of others that wait for nodes on PBS, and to none that waits for a limit.")
def test_jobs_of_others_wait_for_nodes_only_where_their_comment_says_so() -> None:
    for_nodes = {*comments(ORDINARY), f"Not Running: {PLACEMENT_SET}"}
    every = [one for text in MEANINGS.values() for one in comments(text)]
    assert {one for one in [*every, *for_nodes] if is_waiting_for_nodes(one)} == for_nodes
    assert {one for one in every if others(one)} == set(comments(ORDINARY))


@pytest.mark.promise("A comment of a PBS release or hook that nobody knows is told at once, and waited for as for a limit.")
def test_a_comment_that_nobody_knows_is_unknown() -> None:
    assert read_wait("Q", "n", "Not Running: the moon is full") is Wait.UNKNOWN
    assert read_wait("Q", "n", "") is Wait.ORDINARY


@pytest.mark.promise("A PBS job that asks a node for a word that it lacks is not waited for without end.")
@pytest.mark.parametrize(
    ("words", "wait", "sure"),
    [
        ("host ", Wait.ORDINARY, False),
        ("vnode (n1[0] != n1[1])", Wait.ORDINARY, False),
        ("hosttype (fat != thin)", Wait.LIMIT, False),
        ("Qlist (debug != workq)", Wait.LIMIT, False),
        ("ngpus (R: 4 A: 0 T: 8)", Wait.ORDINARY, True),
    ],
)
def test_a_resource_of_a_node_is_in_use_or_never_fits(words: str, wait: Wait, sure: bool) -> None:
    comment = f"Not Running: Insufficient amount of resource: {words}"
    assert read_wait("Q", "n", comment) is wait
    assert [one.sure for one in others(comment)] == [sure]


@pytest.mark.promise("Comments of Torque's own scheduler are read: nodes in use, a drain for a job that starves, an error.")
@pytest.mark.parametrize(
    ("comment", "wait", "others_wait"),
    [
        ("Not Running: Not enough cpus available", Wait.ORDINARY, True),
        ("Not Running: Not enough nodes available", Wait.ORDINARY, True),
        ("Not Running: Draining system to allow 12.head to run", Wait.ORDINARY, True),
        ("Not Running: Queue not an execution queue.", Wait.LIMIT, False),
        ("Not Running - PBS Error: Execution server rejected request", Wait.LIMIT, False),
        ("Not Running - a hook of ours", Wait.UNKNOWN, False),
    ],
)
def test_comments_of_torques_scheduler(comment: str, wait: Wait, others_wait: bool) -> None:
    assert read_wait("Q", "n", comment) is wait
    assert is_waiting_for_nodes(comment) is others_wait
