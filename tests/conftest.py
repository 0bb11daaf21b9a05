"""What every test may use: the lab and the built kernels, for the whole session. And which files come first."""

import os
import sys

import pytest

#: Tests start hpcq, Snakemake and the lab's program hundreds of times, and each worker of a run reads all test modules: where
#: the environment forbids Python to keep what it compiled, that alone takes minutes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

pytest_plugins = ["tests.lab.lab_fixture", "tests.kernels.kernel_programs"]

#: The files that take longest. Workers get a file at a time: the last ones must be short, or one worker ends minutes after the
#: others. What needs the second generation's files, which come over the network meanwhile, is not among the first three.
LONGEST_FIRST = (
    "test_faults_in_lab",
    "test_acceptance_story_in_lab",
    "test_link_faults_in_lab",
    "test_two_generations",
    "test_fault_campaigns_in_lab",
    "test_tournament_in_lab",
    "test_local_campaign",
    "test_launchers_in_lab",
    "test_lab",
    "test_citizen_in_lab",
    "test_campaign_in_lab",
    "test_workflow",
    "test_scheduler_slurm",
    "test_states_change_in_lab",
    "test_driver_faults_in_lab",
    "test_reservations_in_lab",
    "test_sites_in_lab",
    "test_wheel",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; the others as they were collected."""
    ranks = {f"{name}.py": rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(ranks)))
