"""Whose job is it, and was it taken at all: sequences in which an id, an exit code or a word alone would be believed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hpcq.definition.files.cluster import read_cluster
from hpcq.runner.site.place import reach, scheduler_of
from hpcq.scheduler.slurm.reading import read_submission
from hpcq.scheduler.slurm.scheduler import SlurmAdministration
from hpcq.scheduler.types import Fate, JobKey, JobState, QueueQuery, Submission
from hpcq.transport import Completed
from tests.kernels.kernel_programs import wait_for
from tests.schedulers.scheduler_contract import Site
from tests.simulated_slurm.site import SimulatedSlurm, simulated_slurm

pytestmark = pytest.mark.fast

HEAD = """#SBATCH --job-name={name}
#SBATCH --nodes=2 --exclusive --no-requeue --time=0:30
#SBATCH --partition=main
#SBATCH --nodelist={nodes}"""


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[SimulatedSlurm]:
    with simulated_slurm(tmp_path / "slurm", node_count=6, leaf_size=2) as running:
        yield running


@pytest.fixture
def site(slurm: SimulatedSlurm, tmp_path: Path) -> Site:
    cluster = read_cluster(slurm.cluster() / "sim.yaml")
    return Site(scheduler_of(cluster, reach(cluster)), str(tmp_path / "work"), HEAD)


@pytest.mark.promise("If a wrapper prints more than an id, hpcq looks the job up by name.")
@pytest.mark.heavy
@pytest.mark.parametrize("banner", ["Welcome to the cluster", "2026", "unknown", "Submitted batch job"])
def test_a_wrapper_that_prints_leaves_the_submission_open_and_the_tag_finds_it(
    slurm: SimulatedSlurm, site: Site, banner: str
) -> None:
    slurm.control(set={"banner": banner})
    answer = site.submit("printed", "sleep 300")
    assert (answer.scheduler_job_id, answer.fate) == (None, Fate.UNDETERMINED)
    assert not answer.refused
    assert "no id in the answer" in answer.message
    assert site.scheduler.find(["printed"]) == {"printed": "1"}
    assert site.scheduler.read_scheduler_job_id(Path(site.folder, "printed", "submitted").read_text()) == "", (
        "nor later from the file"
    )


@pytest.mark.heavy
def test_a_submit_command_that_a_signal_ended_is_no_refusal(slurm: SimulatedSlurm, site: Site) -> None:
    slurm.control(set={"killed_answers": 1})
    answer = site.submit("killed", "sleep 300")
    assert (answer.scheduler_job_id, answer.fate) == (None, Fate.UNDETERMINED)
    assert site.scheduler.find(["killed"]) == {"killed": "1"}, "it was taken"


@pytest.mark.promise("hpcq never calls a submission without an answer refused.")
def test_a_shell_that_was_killed_is_no_refusal(slurm: SimulatedSlurm, site: Site) -> None:
    sbatch = slurm.folder / "bin" / "sbatch"
    sbatch.write_text("#!/bin/sh\nkill -KILL $PPID\n")
    answer = site.submit("gone", "exit 0")
    assert (answer.scheduler_job_id, answer.fate) == (None, Fate.UNDETERMINED)


@pytest.mark.heavy
@pytest.mark.promise("A job with our id and another name is not believed.")
@pytest.mark.promise("A job is cancelled only if its id, its name and its user are ours.")
def test_a_job_of_somebody_else_with_our_id_is_neither_read_nor_ended(slurm: SimulatedSlurm, site: Site) -> None:
    answer = site.submit("ours", "sleep 300")
    assert answer.scheduler_job_id
    site.wait(answer.scheduler_job_id, JobState.RUNNING)
    for name, user, words in (("ours", "other", "somebody else's: 'ours'"), ("theirs", "me", "another one: 'theirs'")):
        slurm.control(strange={answer.scheduler_job_id: {"name": name, "user": user}})
        report = site.scheduler.poll([site.key(answer.scheduler_job_id)])[answer.scheduler_job_id]
        assert report.state is JobState.UNKNOWN, "a stranger's state would be taken for ours"
        assert words in report.reason
        assert site.scheduler.cancel([site.key(answer.scheduler_job_id)]) is None
        assert slurm.control()["states"] == {f"{user} RUNNING": 1}, "it is not ours to end"


@pytest.mark.heavy
@pytest.mark.promise("A job with our id and our name, of another user, is not believed.")
def test_the_accounting_is_not_believed_either(slurm: SimulatedSlurm, site: Site) -> None:
    answer = site.submit("ours", "sleep 300")
    assert answer.scheduler_job_id
    (slurm.folder / "bin" / "squeue").write_text("#!/bin/sh\nexit 0\n")  # the queue has forgotten it
    assert site.scheduler.poll([site.key(answer.scheduler_job_id)])[answer.scheduler_job_id].state is JobState.RUNNING
    for name, user in (("ours", "other"), ("theirs", "me")):
        slurm.control(strange={answer.scheduler_job_id: {"name": name, "user": user}})
        report = site.scheduler.poll([site.key(answer.scheduler_job_id)])[answer.scheduler_job_id]
        assert (report.state, "job 1 is" in report.reason) == (JobState.UNKNOWN, True)


@pytest.mark.heavy
@pytest.mark.promise("A malformed job id affects no query and no command for other jobs.")
def test_what_is_no_id_never_reaches_the_accounting(slurm: SimulatedSlurm, site: Site) -> None:
    answer = site.submit("ours", "sleep 300")
    assert answer.scheduler_job_id
    (slurm.folder / "bin" / "squeue").write_text("#!/bin/sh\nexit 0\n")
    reports = site.scheduler.poll([JobKey("unknown", "x"), JobKey("", "y"), site.key(answer.scheduler_job_id)])
    assert reports[answer.scheduler_job_id].state is JobState.RUNNING, "one bad id made all jobs unknown"
    assert reports["unknown"].reason == "'unknown' is no id of this scheduler"


@pytest.mark.heavy
def test_an_id_is_quoted_wherever_it_goes(site: Site, tmp_path: Path) -> None:
    evil = JobKey(f"1; touch {tmp_path}/pwned", "x")
    for command in (site.scheduler.poll_command([evil]), site.scheduler.history_command([evil]) or ""):
        site.scheduler.transport.sh(command)
    site.scheduler.transport.sh(site.scheduler.cancel_command([JobKey("1", f"$(touch {tmp_path}/pwned)"), evil]))
    site.scheduler.transport.sh(site.scheduler.find_command([f"a`touch {tmp_path}/pwned`"]))
    assert not (tmp_path / "pwned").exists()


#: What real sbatch says below the name of a limit, whichever it is.
POLICY = (
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time"
    " limits)"
)


@pytest.mark.promise("hpcq never calls a submit command that a signal ended refused.")
@pytest.mark.promise(
    "A job that alone exceeds a limit (DenyOnLimit) is refused; one beyond the number of jobs is submitted later."
)
@pytest.mark.promise("hpcq reports a refusal only for known words; other words lead to another attempt.")
@pytest.mark.parametrize(
    ("code", "words", "fate"),
    [
        (1, "sbatch: error: Batch job submission failed: Invalid partition name specified", Fate.REFUSED),
        (
            1,
            "sbatch: error: Invalid account or account/partition combination specified",
            Fate.REFUSED,
        ),
        (1, "sbatch: error: Batch job submission failed: Requested node configuration is not available", Fate.REFUSED),
        (1, "sbatch: error: QOSMaxSubmitJobPerUserLimit", Fate.LIMITED),
        (1, f"sbatch: error: AssocGrpSubmitJobsLimit\n{POLICY}", Fate.LIMITED),
        (1, f"sbatch: error: QOSMinGRES\n{POLICY}", Fate.REFUSED),
        (1, f"sbatch: error: QOSMaxCpuPerUserLimit\n{POLICY}", Fate.REFUSED),
        (1, "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", Fate.UNDETERMINED),
        (
            1,
            "sbatch: error: Unable to contact slurm controller (connect failure)",
            Fate.UNDETERMINED,
        ),
        (1, "sbatch: error: Batch job submission failed: Slurm backup controller in standby mode", Fate.UNSURE),
        (1, "sbatch: error: Batch job submission failed: Protocol authentication error", Fate.UNSURE),
        (1, "sbatch: error: our site's wrapper does not like you", Fate.UNSURE),
        (1, "", Fate.UNSURE),
        (1, "sbatch: error: Batch job submission failed: Access/permission denied", Fate.FINAL),
        (1, "sbatch: error: Welcome!\nsbatch: error: Batch job submission failed: Unspecified error", Fate.FINAL),
        (1, "sbatch: error: Batch job submission failed: Required partition not available (inactive or drain)", Fate.FINAL),
        (1, "sbatch: error: Batch job submission failed: Requested nodes not in this partition", Fate.FINAL),
        (1, "sbatch: error: Batch job submission failed: No partition specified or system default partition", Fate.FINAL),
        (1, "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.", Fate.FINAL),
        (1, "sbatch: fatal: Could not establish a configuration source", Fate.UNSURE),
        (2, "sbatch: error: Batch job submission failed: Invalid partition name specified", Fate.UNSURE),
        (127, "sbatch: not found", Fate.UNSURE),
        (137, "sbatch: error: Batch job submission failed: Invalid partition name specified", Fate.UNDETERMINED),
        (143, "Terminated", Fate.UNDETERMINED),
    ],
)
def test_what_a_refusal_proves(code: int, words: str, fate: Fate) -> None:
    answer = read_submission("t", Completed(code, b"", words), "")
    assert (answer.scheduler_job_id, answer.fate) == (None, fate)
    assert [answer.refused, answer.limited, answer.undetermined, answer.unsure].count(True) == 1


#: Texts of Slurm's library (slurm_strerror, 22.05 to 26.05) that a submission may end with, and what each proves.
ERROR_TEXTS = {
    Fate.FINAL: """
Burst Buffer permission denied
Burst Buffer request invalid
Duplicate generic resource (gres) specification
Invalid --nice value
Invalid GRES specification (with and without type identification)
Invalid Trackable RESource (TRES) specification
Invalid mcs_label specified
Invalid preferred feature specification
Invalid time-min specification (exceeds job's time or other limits)
Job --batch option is invalid or not a subset of --constraints
Multiple partition job request not supported when a partition is set in the association
Requested GRES option unsupported by configured SelectType plugin
Requested operation not supported on this system
""",
    Fate.REFUSED: """
CPU count per node can not be satisfied
CPU count specification invalid
Job size specification needs to be provided
Memory required by task is not available
Pathname of a file, directory or other parameter too long
Requested more tasks than available processors
Requested topology configuration is not available
Task count specification invalid
Task distribution specification invalid
""",
    # They pass: a directory service that is away, a node or partition that comes back, a controller that is busy.
    Fate.UNSURE: """
Invalid user id
Invalid group id
Partition in DOWN state
Requested nodes are busy
Requested partition configuration not available now
Required node not available (down, drained or reserved)
System submissions disabled
Unable to create job record, try again
""",
}


@pytest.mark.promise("An error of Slurm's library that would come again ends the run's jobs; one that may pass is tried again.")
@pytest.mark.parametrize("fate", ERROR_TEXTS, ids=lambda fate: fate.name)
def test_the_error_texts_of_slurms_library(fate: Fate) -> None:
    texts = ERROR_TEXTS[fate].strip().splitlines()
    said = {text: f"sbatch: error: Batch job submission failed: {text}" for text in texts}
    assert {text: read_submission("t", Completed(1, b"", said[text]), "").fate for text in texts} == dict.fromkeys(texts, fate)


@pytest.mark.heavy
@pytest.mark.promise("After a limit the rest of a wave is not submitted.")
def test_after_a_limit_the_rest_of_the_wave_is_not_tried(slurm: SimulatedSlurm, site: Site) -> None:
    slurm.control(set={"submit_limit": 1})
    nodes = ("n0001", "n0002")
    wave = [Submission(name, site.script(name, "sleep 300", nodes), nodes, 30) for name in ("a", "b", "c")]
    answers = site.scheduler.submit(wave)
    assert [(one.fate, one.tried) for one in answers] == [(Fate.TAKEN, True), (Fate.LIMITED, True), (Fate.LIMITED, False)]
    assert slurm.control()["calls"]["sbatch"] == 2


@pytest.mark.heavy
def test_a_job_that_still_waits_at_the_end_of_the_hours_ends_by_itself(slurm: SimulatedSlurm, site: Site) -> None:
    first = site.submit("first", "sleep 300")
    assert first.scheduler_job_id
    late = Site(site.scheduler, site.folder, f"{HEAD}\n#SBATCH --deadline=now+31", site.tags)
    answer = late.submit("late", "exit 0")
    assert answer.scheduler_job_id
    assert site.wait(answer.scheduler_job_id, JobState.DEADLINE, within_s=20).state is JobState.DEADLINE


@pytest.mark.heavy
@pytest.mark.promise("The jobs of others are asked for less often than one's own.")
def test_the_jobs_of_others_have_a_period_of_their_own(slurm: SimulatedSlurm, tmp_path: Path) -> None:
    cluster = read_cluster(slurm.cluster("poll_interval_s: 1h") / "sim.yaml")
    scheduler = scheduler_of(cluster, reach(cluster))
    slurm.control(other={"nodes": ["n0001"], "run_s": 300})
    slurm.control(other={"nodes": ["n0001"], "run_s": 300})
    looks = [scheduler.look(QueueQuery(mine=True, others=True)) for _ in range(5)]
    assert [len(one.others or ()) for one in looks] == [1] * 5, "between two answers the last one holds"
    assert slurm.control()["calls"]["squeue"] == 5 + 1, "five times our own, once all others"
    assert scheduler.look(QueueQuery(mine=True)).others is None
    often = scheduler_of(replace(cluster, poll_interval_s=0.0), reach(cluster))
    assert often.look(QueueQuery(others=True)).others

    def asked_again() -> bool:
        assert often.look(QueueQuery(others=True)).others
        return bool(slurm.control()["calls"]["squeue"] == 5 + 1 + 1 + 2)

    wait_for(asked_again)  # an answer of a tenth of a second has a pause of nine


@pytest.mark.heavy
@pytest.mark.promise("A look at one's own jobs makes the controller send no job of others.")
def test_a_look_at_our_jobs_makes_the_controller_send_ours_alone(slurm: SimulatedSlurm, site: Site) -> None:
    for _ in range(20):
        slurm.control(other={"nodes": ["n0005"], "run_s": 300})
    ours = [site.submit(name, "sleep 300").scheduler_job_id for name in ("one", "two")]
    assert all(ours)
    before = slurm.control()["rows"].get("squeue", 0)
    found = site.scheduler.look(QueueQuery(jobs=[site.key(one) for one in ours if one], mine=True))
    assert len(found.reports) == 2
    assert slurm.control()["rows"]["squeue"] - before <= 2 * 2, "several ids would load the whole table"


@pytest.mark.heavy
@pytest.mark.promise("Leaves and reservations are expanded without a process each.")
def test_many_reservations_and_leaves_cost_one_command_each(slurm: SimulatedSlurm, site: Site) -> None:
    """Lists of nodes are expanded here: `scontrol show hostnames` for each would be a process each."""
    slurm.control(set={"reservations": {f"r{number}": ["n0001", "n0002"] for number in range(30)}})
    before = slurm.control()["calls"].get("scontrol", 0)
    found = SlurmAdministration(site.scheduler.transport).look()
    assert len(found.reservations) == 30
    assert [len(one.nodes) for one in found.reservations] == [2] * 30
    assert len(set(found.leaves.values())) == 3
    assert slurm.control()["calls"]["scontrol"] - before == 5, "nodes, reservations, partition, settings, leaves"
