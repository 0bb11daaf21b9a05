"""A real PBS keeps the scheduler contract: as a user and as root, with job history and without.

HPCQ_TEST_PBS=lab brings up the lab; the path of a cluster file takes the PBS that this names, as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pbs_live.live import Live
from tests.schedulers.scheduler_contract import PROMISES, Site, pbs_site, the_time_limit_ends_a_job

GIVEN = os.environ.get("HPCQ_TEST_PBS", "")


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_promise(live: Live, tmp_path: Path, promise: Callable[[Site], None]) -> None:
    promise(live.site(tmp_path))


def test_the_time_limit(live: Live, tmp_path: Path) -> None:
    the_time_limit_ends_a_job(live.site(tmp_path, walltime="0:00:02"))


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_promise_of_a_given_pbs(promise: Callable[[Site], None]) -> None:
    promise(pbs_site(Path(GIVEN)))


def test_the_time_limit_of_a_given_pbs() -> None:
    the_time_limit_ends_a_job(pbs_site(Path(GIVEN), walltime="0:00:02"))
