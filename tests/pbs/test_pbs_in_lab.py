"""The simulated PBS really runs its job scripts on the lab's nodes: a campaign over ssh, with every end on the planned node.

The real PBS is not packaged by Debian; tests/pbs_live/ has it where somebody built one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.campaigns_in_lab import Desk
from tests.lab.lab_fixture import RunningLab
from tests.local.desk import assert_clean
from tests.simulated_pbs.place import Place
from tests.simulated_pbs.site import SimulatedPbs, simulated_pbs

pytestmark = pytest.mark.lab

NODES = tuple(f"beta-n{number:02d}" for number in range(1, 5))
#: A job's processes get TERM; what carries them into the node must live until they have ended.
_CARRIED = ("sh", "-c", 'trap "" TERM; exec "$@"', "sh")
_AS_USER = ("setpriv", "--reset-env", "--init-groups", "--reuid=labuser", "--regid=labuser", "env", "--default-signal=TERM")
CAMPAIGN = """clusters: [beta]
pairs: {{rounds: {rounds}}}
repetitions: 1
allocation: {allocation}
tests:
  - {{kernel: tcp_pingpong, parameters: {{duration_s: 100ms, warmup_s: 0, message_bytes: 1}}}}
  - {{kernel: mpi_pingpong, parameters: {{duration_s: 100ms, warmup_s: 0, message_bytes: 8}}}}
"""

LAUNCHED = """clusters: [beta]
pairs: {list: [[beta-n02, beta-n01], [beta-n01, beta-n03], [beta-n03, beta-n04]]}
allocation: whole
concurrency: alone
repetitions: 1
retries: 0
tests: [{kernel: netpipe_mpi, parameters: {message_bytes_max: 64}}]
"""


def process_in(lab: RunningLab, machine: str) -> int:
    """The first process of a machine, as its number is here."""
    return int((lab.state / "beta" / "var/lib/lab" / f"{machine}.pid").read_text().split()[0])


@pytest.fixture
def pbs(lab: RunningLab) -> Iterator[SimulatedPbs]:
    """A PBS whose nodes are beta's, reached from beta's head as PBS's own commands would be: through /etc/pbs.conf."""
    lab.at_rest("beta")
    root = lab.state / "beta"
    configuration = root / "etc" / "pbs.conf"
    address = json.loads(lab.exec("beta", "ip", "-json", "address", "show", "mgmt0"))[0]["addr_info"][0]["local"]
    network = f"/proc/{process_in(lab, 'beta-head')}/ns/net"
    place = Place(str(root), "/home/labuser", network, address)
    with simulated_pbs(root / "scratch" / "simulated-pbs", user="labuser", names=NODES, place=place) as running:
        entered = {name: ("nsenter", f"--target={process_in(lab, name)}", "--all", "--") for name in NODES}
        nodes = {name: {"prefix": [*_CARRIED, *words, *_AS_USER]} for name, words in entered.items()}
        running.control(set={"sleep_s": 0.0, "history": False}, nodes=nodes)
        configuration.write_text(f"PBS_EXEC={place.inside(running.folder)}\n")
        try:
            yield running
        finally:
            configuration.unlink()


def desk_of(lab: RunningLab, folder: Path) -> Desk:
    """A person's folder whose beta is that PBS."""
    (folder / "clusters").mkdir()
    text = lab.cluster_file("beta").read_text().replace("scheduler: slurm", "scheduler: pbs")
    lines = text.replace(", launch: srun --mpi=pmix", "").splitlines()
    kept = [line for line in lines if line.partition(":")[0] not in {"partition", "account"}]
    (folder / "clusters" / "beta.yaml").write_text("\n".join([*kept, "queue: workq", ""]))
    return Desk(folder, lab)


@pytest.mark.promise("On PBS, each end of a pair runs on the node that the plan gives it.")
@pytest.mark.parametrize(("allocation", "rounds"), [("pair", 1), pytest.param("whole", 3, marks=pytest.mark.long)])
def test_a_campaign_runs_on_the_nodes_of_the_lab(
    lab: RunningLab, pbs: SimulatedPbs, tmp_path: Path, allocation: str, rounds: int
) -> None:
    desk = desk_of(lab, tmp_path)
    desk.campaign(CAMPAIGN.format(allocation=allocation, rounds=rounds))
    desk.hpcq("run", "campaign.yaml", timeout_s=300)
    rows = desk.rows("SELECT kernel, client, server, outcome, reason FROM v_results")
    assert [(row["outcome"], row["reason"]) for row in rows] == [("measured", None)] * 4 * rounds, rows
    assert {row["client"] for row in rows} | {row["server"] for row in rows} == set(NODES)
    assert_clean(desk.run_folder)
    lines = [json.loads(path.read_text()) for path in desk.run_folder.glob("beta/jobs/*/1/**/t*-r*.json")]
    ends = [line["evidence"] for line in lines if "evidence" in line]
    assert len(ends) == (4 * rounds if allocation == "pair" else 0)  # a tournament's are in its spool
    assert all(one["client"]["node"] != one["server"]["node"] for one in ends)
    assert {one[end]["node"] for one in ends for end in ("client", "server")} <= set(NODES)
    assert pbs.control()["states"] == {}
    assert pbs.control()["calls"]["qsub"] == (2 * rounds if allocation == "pair" else 1)


@pytest.mark.promise(
    "In a tournament on PBS, each rank runs on the node that its pair gives it, also where mpirun runs on the server."
)
@pytest.mark.long
def test_ranks_of_a_tournament_are_where_each_pair_has_them(lab: RunningLab, pbs: SimulatedPbs, tmp_path: Path) -> None:
    """Open MPI likes to put rank 0 where mpirun runs, which is the server of one pair, the client of another."""
    desk = desk_of(lab, tmp_path)
    desk.campaign(LAUNCHED)
    desk.hpcq("run", "campaign.yaml", timeout_s=300)
    rows = desk.rows('SELECT v.client, v.server, v.outcome, e."end", e.node FROM v_ends e JOIN v_results v USING (result_id)')
    assert {(row["client"], row["server"]) for row in rows} == {
        (NODES[1], NODES[0]),
        (NODES[0], NODES[2]),
        (NODES[2], NODES[3]),
    }
    assert {row["outcome"] for row in rows} == {"measured"}
    assert all(row["node"] == row[row["end"]] for row in rows), rows
    assert pbs.control()["calls"]["qsub"] == 1
