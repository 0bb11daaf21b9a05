"""Foreign programs that are not there, servers that are never ready, modules that nobody has: each a row with its reason."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.files.cluster import read_cluster
from hpcq.planning.make_plan import make_plan
from hpcq.runner.queue.run_state import all_steps, make_job, write_job
from hpcq.scheduler.types import NodeCondition, NodeState
from tests.described.descriptions import RATE, write
from tests.local.local_desk import LocalDesk

SERVER = '"{{ program }} PEER server {{ port }}"'
CLIENT = '"{{ program }} PEER client {{ address }} {{ port }} {{ mode }} {{ word }}"'
READY = "{words: listening, within_s: 7}"
#: What is wrong, and what the row then says.
CASES = {
    "no_client": "hpcq-no-such-client: No such file or directory (ENOENT)",
    "no_server": "hpcq-no-such-server: No such file or directory (ENOENT)",
    "never_ready": "no_never_ready: its server took too long before it was ready (0.3 s allowed)",
    "dies_at_once": "no_dies_at_once: its server ended before it was ready (7 s allowed); it said last: foreign 1.2",
    "not_allowed": "Permission denied (EACCES)",
}
CHANGES = {
    "no_client": (CLIENT, "hpcq-no-such-client"),
    "no_server": (SERVER, "hpcq-no-such-server"),
    "never_ready": (READY, "{words: and now for something else, within_s: 0.3}"),
    "dies_at_once": (SERVER, '"{{ program }} PEER --version"'),
    "not_allowed": (CLIENT, "/etc/passwd"),
}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> LocalDesk:
    desk = LocalDesk.at(tmp_path_factory.mktemp("desk"))
    for name, change in CHANGES.items():
        assert RATE.count(change[0]) == 1
        write(desk.folder, RATE.replace("name: foreign_rate", f"name: no_{name}").replace(*change))
    desk.campaign(*(f"{{kernel: no_{name}}}" for name in CHANGES), more="retries: 0")
    desk.hpcq("run", "try.yaml", expect=None)
    return desk


@pytest.mark.promise("A foreign server that is not ready in its time is a row with that reason.")
@pytest.mark.parametrize("name", CASES)
def test_what_is_not_there_is_a_row_with_its_reason(done: LocalDesk, name: str) -> None:
    [row] = done.rows(f"SELECT outcome, reason, value FROM v_results WHERE kernel = 'no_{name}'")
    assert (row["outcome"], row["value"]) == ("failed", None)
    assert CASES[name] in row["reason"]


def test_the_next_program_of_the_job_is_not_harmed(done: LocalDesk) -> None:
    """One server of hpcq-net serves all tests of a job."""
    [path] = done.run_folder.glob("tiny/jobs/*/1/exit.json")
    assert json.loads(path.read_text())["reason"] == "done"


@pytest.mark.promise("A job whose module cannot be loaded says which one.")
@pytest.mark.parametrize(
    ("module", "said"),
    [("", "module_not_loaded: foreign/1.2"), ("module() { [ $2 = foreign/1.2 ]; }; export -f module", "")],
)
def test_a_module_that_cannot_be_loaded_ends_the_job_with_its_name(tmp_path: Path, module: str, said: str) -> None:
    """Without a module command at all, and with one that knows the module."""
    write(tmp_path, RATE.replace("shape:", "modules: [foreign/1.2]\nshape:"))
    (tmp_path / "c.yaml").write_text("name: c\nclusters: [alpha]\npairs: {rounds: 1}\ntests: [{kernel: foreign_rate}]\n")
    (tmp_path / "alpha.yaml").write_text("{name: alpha, scheduler: local, nodes: [n1, n2]}\n")
    cluster = read_cluster(tmp_path / "alpha.yaml")
    nodes = [NodeState(name, NodeCondition.IDLE, "idle") for name in ("n1", "n2")]
    campaign = read_campaign(tmp_path / "c.yaml")
    plan = make_plan(campaign, cluster, nodes, "c-1", 7)
    job = make_job(plan, 0, 1, all_steps(plan))
    folder = tmp_path / job.folder
    write_job(job, campaign.kernels, cluster, str(tmp_path), folder)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BASH_FUNC_module")}
    words = ["bash", "-c", f"{module}\nexec bash job.sh"]
    subprocess.run(words, cwd=folder, env=clean, check=False, timeout=60, capture_output=True)
    reason = json.loads((folder / "exit.json").read_text())["reason"]
    assert re.fullmatch(re.escape(said) if said else "server_not_ready.*", reason)
