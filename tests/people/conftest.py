"""One history for all tests of this folder: none of them writes into it."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from tests.history.histories import History
from tests.people.nights import PAIRS, Asked, make_nights


@pytest.fixture(scope="session")
def nights() -> History:
    """Fourteen nights of six nodes, made once for all processes of a session."""
    folder = Path(os.environ["HPCQ_TEST_BUILDS"]).with_name("nights")
    made = folder.with_name("nights.made")
    with folder.with_name("nights.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)
            make_nights(folder)
            made.touch()
    return History(folder, pairs=PAIRS)


@pytest.fixture
def ask(nights: History, capsys: pytest.CaptureFixture[str]) -> Asked:
    """Verbs on that history."""
    return Asked(nights.database, capsys)
