"""A PBS that stands somewhere keeps the scheduler contract: HPCQ_TEST_PBS names its cluster file. docs/pbs.md has the steps."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.schedulers.scheduler_contract import PROMISES, Site, pbs_site, the_time_limit_ends_a_job

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif("HPCQ_TEST_PBS" not in os.environ, reason="HPCQ_TEST_PBS names the cluster file of a PBS"),
]


@pytest.fixture
def site() -> Site:
    return pbs_site(Path(os.environ["HPCQ_TEST_PBS"]))


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_promise(site: Site, promise: Callable[[Site], None]) -> None:
    promise(site)


def test_the_time_limit() -> None:
    the_time_limit_ends_a_job(pbs_site(Path(os.environ["HPCQ_TEST_PBS"]), walltime="0:00:02"))
