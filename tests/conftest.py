"""What every test may use: the lab and the built kernels, for the whole session. Which files come first, and how many run."""

import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

#: Tests start hpcq, Snakemake and the lab's program hundreds of times, and each worker of a run reads all test modules: where
#: the environment forbids Python to keep what it compiled, that alone takes minutes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

#: A shell starts what it puts into the background with these ignored, and programs inherit that: what a test interrupts would
#: go on for ever. With a handler that does nothing, this process still ignores them, and what it starts has the default.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

#: Labs of other tests come and go: a test that wants one names its clusters.
os.environ["HPCQ_LABS"] = "no"

pytest_plugins = ["tests.kernels.kernel_programs", "tests.lab.lab_fixture"]

#: The files that take longest. Workers get a file at a time: the last ones must be short, or one worker ends minutes after the
#: others. What needs the second generation's files, which come over the network meanwhile, is not among the first three.
LONGEST_FIRST = (
    "test_local_campaign",
    "test_docs",
    "test_campaigns_here",
    "test_link_meetings",
    "test_collectives",
    "test_shared_account",
    "test_two_generations",
    "test_tournament_in_lab",
    "test_faults_in_lab",
    "test_scheduler_slurm",
    "test_requests",
    "test_sweep",
    "test_new_cluster",
    "test_link_citizens",
    "test_fault_campaigns_in_lab",
    "test_campaign_in_lab",
    "test_launchers_in_lab",
    "test_citizen_in_lab",
    "test_ranks_local",
    "test_site_policies_in_lab",
    "test_lab",
    "test_judging",
    "test_applications",
    "test_torque",
    "test_kernels_mpi_tournament",
    "test_reservations_in_lab",
    "test_fabric_kernels",
    "test_pbs_ends",
    "test_described_local",
    "test_pbs_in_lab",
    "test_point_to_point",
    "test_kernels_tournament",
    "test_run_verdicts",
    "test_lab_links",
    "test_workflow",
    "test_site",
    "test_kernels_control",
    "test_two_drivers",
    "test_own_folders",
    "test_truth",
    "test_pbs_hostile",
    "test_local_tournament",
    "test_one_sided",
    "test_sites_in_lab",
    "test_driver_faults_in_lab",
    "test_width",
    "test_storms",
    "test_wall_clock",
    "test_history",
    "test_simulated_pbs",
    "test_nobody_contradicts",
    "test_flows",
    "test_slow_collectives",
    "test_pbs_queues",
    "test_scheduler_local",
    "test_failed_starts",
    "test_transport",
    "test_fabric_campaign",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; the others as they were collected."""
    ranks = {f"{name}.py": rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(ranks)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Tests of the lab mostly wait, so a run has more workers than cores. The others compute: few of those at a time.

    A test's time limit begins when it may start.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None or item.get_closest_marker("lab") is not None:
        return (yield)
    with _place(run, len(os.sched_getaffinity(0)) + 2):
        return (yield)


@contextmanager
def _place(run: str, count: int) -> Iterator[None]:
    """Hold one of the places that the workers of a run share: a name of a socket, free again when its holder dies."""
    with socket.socket(socket.AF_UNIX) as held:
        while not any(_bound(held, f"\0hpcq-tests-{run}-{number}") for number in range(count)):
            time.sleep(0.01)
        yield


def _bound(held: socket.socket, name: str) -> bool:
    try:
        held.bind(name)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


@pytest.fixture
def every_job_rolls_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """`hpcq db prune` makes a point of a job's values, however few they are."""
    monkeypatch.setattr("hpcq.store.keep.check_and_prune.POINT_VALUES", 1)
