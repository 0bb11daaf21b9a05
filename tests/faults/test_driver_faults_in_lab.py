"""The driver while things break under it: a seeded injector breaks one thing after another; nothing is lost or runs twice.

It is made to grow: a fault is a function of the running campaign; a seed draws which, when and in what order.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from hpcq.definition.files.cluster import read_cluster
from hpcq.runner.site.place import reach
from hpcq.transport import Ssh
from tests.lab.driven_in_lab import Driven, names
from tests.lab.lab_fixture import RunningLab

pytestmark = pytest.mark.lab


def restart_controller(driven: Driven) -> None:
    driven.lab.command("restart-controller", driven.cluster)


def cut_connection(driven: Driven) -> bool:
    """End the ssh process that carries this test's connection; it is found by its id, and it is nobody else's.

    Returns whether there was one.
    """
    cluster = read_cluster(driven.folder / "clusters" / f"{driven.cluster}.yaml")
    transport = reach(cluster)
    assert isinstance(transport, Ssh)
    checked = subprocess.run(
        [*transport._connection(), "-O", "check", transport.host], capture_output=True, text=True, check=False
    )
    running = re.search(r"pid=(\d+)", checked.stderr + checked.stdout)
    if running is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(int(running[1]), signal.SIGKILL)
    return True


def refuse_connections(driven: Driven) -> None:
    """No new connection for six seconds, and the present one cut."""
    config = driven.folder / "ssh_config"
    kept = config.read_text()
    config.write_text("Host *\n    ProxyCommand false\n")
    cut_connection(driven)
    time.sleep(6)
    config.write_text(kept)


FAULTS: dict[str, Callable[[Driven], object]] = {
    "restart_controller": restart_controller,
    "cut_connection": cut_connection,
    "refuse_connections": refuse_connections,
}


def campaign(lab: RunningLab, folder: Path, rounds: int) -> Driven:
    """A campaign on beta over a connection of its own."""
    driven = Driven(folder, lab, "beta", f"pairs: {{rounds: {rounds}}}", duration_s=1.0)
    shutil.copyfile(lab.state / "ssh_config", folder / "ssh_config")
    for path in (driven.run.cluster_yaml("beta"), folder / "clusters" / "beta.yaml"):
        path.write_text(path.read_text().replace(str(lab.state / "ssh_config"), str(folder / "ssh_config")))
    return driven


def everything_once(driven: Driven) -> None:
    """Each pair measured, no job twice by name, every attempt with an end."""
    loaded = driven.load()
    assert loaded["measured_count"] == loaded["planned_count"], (driven.said, loaded)
    events = driven.events()
    ended = Counter(event["tag"] for event in events if event["event"] in {"ended", "refused"})
    attempted = [event["tag"] for event in events if event["event"] == "attempt"]
    assert sorted(ended) == sorted(attempted)
    assert set(ended.values()) == {1}
    measured = Counter(
        (event["tag"].rsplit("-", 2)[1], *step) for event in events if event["event"] == "ended" for step in event["measured"]
    )
    assert set(measured.values()) == {1}


def break_things(driven: Driven, faults: Sequence[str], dice: random.Random) -> None:
    driving = driven.start()
    driven.wait_for(names("submitted"))
    for name in faults:
        time.sleep(dice.uniform(0, 2.5))
        FAULTS[name](driven)
    driven.finish(driving, within_s=240)
    everything_once(driven)


@pytest.mark.long  # make test has a cut connection and a restart in a whole campaign
@pytest.mark.parametrize("name", FAULTS)
def test_one_fault(lab: RunningLab, tmp_path: Path, name: str) -> None:
    break_things(campaign(lab, tmp_path, 2), [name], random.Random(1))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_faults_drawn_by_a_seed(lab: RunningLab, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    break_things(campaign(lab, tmp_path, 6), dice.choices(sorted(FAULTS), k=dice.randint(2, 5)), dice)


def test_a_cut_in_the_middle_of_a_submission_submits_nothing_twice(lab: RunningLab, tmp_path: Path) -> None:
    driven = campaign(lab, tmp_path, 3)
    driving = driven.start()
    driven.wait_for(names("attempt"))
    assert cut_connection(driven)
    driven.finish(driving, within_s=240)
    everything_once(driven)
    assert "completed" in driven.outcomes()
