"""The simulated PBS keeps the scheduler contract, with history and without, so what is tested on it is tested on a PBS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.schedulers.scheduler_contract import PROMISES, Site, pbs_site, the_time_limit_ends_a_job
from tests.simulated_pbs.site import SimulatedPbs, simulated_pbs


@pytest.fixture(scope="module")
def pbs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedPbs]:
    with simulated_pbs(tmp_path_factory.mktemp("pbs")) as running:
        running.control(set={"sleep_s": 0.0, "kill_delay_s": 0.5, "limits_every_s": 0.3})
        yield running


@pytest.fixture(params=["history", "no-history"])
def site(pbs: SimulatedPbs, request: pytest.FixtureRequest) -> Site:
    pbs.control(set={"history": request.param == "history"})
    return pbs_site(pbs.cluster() / "sim.yaml")


@pytest.mark.promise("A PBS job is found, believed and ended by id, name and user; of the tag, the short name is the proof.")
@pytest.mark.promise("Jobs of a PBS without history are found by their tags while they live.")
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_promise(site: Site, promise: Callable[[Site], None]) -> None:
    promise(site)


def test_the_time_limit(site: Site) -> None:
    the_time_limit_ends_a_job(replace(site, head=site.head.replace("0:01:00", "0:00:02")))
