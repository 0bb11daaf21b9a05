"""The lab with a real PBS, once for all tests here. They run only with HPCQ_TEST_PBS=lab; docs/pbs.md has the steps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.lab_fixture import RunningLab, lab_command
from tests.pbs_live.live import Live, let_root_in

FOLDER = Path(__file__).parent
FOUR = [(user, history) for user in ("labuser", "root") for history in (False, True)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is here: it takes minutes, and needs a PBS that Debian does not package."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.timeout(900))
            given = os.environ.get("HPCQ_TEST_PBS", "")
            if given in {"", "lab"} if "of_a_given_pbs" in item.name else given != "lab":
                item.add_marker(pytest.mark.skip(reason="HPCQ_TEST_PBS: lab for OpenPBS in /opt/pbs, or a PBS's cluster file"))


@pytest.fixture(scope="session")
def pbs_lab() -> Iterator[RunningLab]:
    """Slurm on alpha, PBS on beta. HPCQ_TEST_LAB names one that is up, and it stays up."""
    given = os.environ.get("HPCQ_TEST_LAB")
    name = given or f"pbs-{os.getpid()}"
    try:
        if not given:
            lab_command("up", "--name", name, "--beta", "pbs", timeout_s=300)
        lab = RunningLab(name)
        if "sshd-root.pid" not in lab.exec("beta", "ls", "/run"):
            let_root_in(lab, "beta")
        yield lab
    finally:
        if not given:
            lab_command("down", "--name", name)


@pytest.fixture(params=FOUR, ids=lambda one: f"{one[0]}-{'history' if one[1] else 'no-history'}", scope="module")
def live(pbs_lab: RunningLab, request: pytest.FixtureRequest) -> Live:
    """beta's PBS as each user, without history and with it."""
    made = Live(pbs_lab, "beta", *request.param)
    made.switch_history()
    return made


@pytest.fixture(params=(False, True), ids=("no-history", "history"), scope="module")
def users(pbs_lab: RunningLab, request: pytest.FixtureRequest) -> Live:
    """beta's PBS as an ordinary user, without history and with it."""
    made = Live(pbs_lab, "beta", "labuser", request.param)
    made.switch_history()
    return made


@pytest.fixture(autouse=True)
def rest(request: pytest.FixtureRequest) -> None:
    """What one test left, the next one must not plan around."""
    for name in ("live", "users"):
        if name in request.fixturenames:
            request.getfixturevalue(name).at_rest()
