"""A tournament through the whole of hpcq, on this machine's own queue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcq.run_folder.paths import RunFolder
from hpcq.runner import stages
from tests.local.desk import assert_clean, took_at_most
from tests.local.local_desk import SLOW, LocalDesk

CLUSTER = "name: {name}\nscheduler: local\nnodes: [{name}-a, {name}-b, {name}-c, {name}-d]\ncompiler: {{cflags: -O0}}\n"
INSTANT = "{kernel: tcp_pingpong, parameters: {duration_s: 20ms, warmup_s: 0}}"


def spooled_of(desk: LocalDesk) -> dict[str, list[list[int]]]:
    """What the driver has seen of running tournaments: steps by job."""
    seen = [event["measured_of"] for event in desk.events() if event["event"] == "spooled"]
    return {job: steps for one in seen for job, steps in one.items()}


def test_a_campaign_as_one_tournament(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.cluster("tiny", CLUSTER)
    desk.campaign(INSTANT, more="allocation: whole\nconcurrency: [alone, rounds]")
    desk.hpcq("run", "try.yaml")
    assert desk.rows("SELECT outcome, count(*) AS n FROM v_results GROUP BY outcome") == [{"outcome": "measured", "n": 12}]
    assert [event["nodes"] for event in desk.events() if event["event"] == "attempt"] == [
        ["tiny-a", "tiny-b", "tiny-c", "tiny-d"]
    ]
    assert_clean(desk.run_folder)
    variants = desk.rows("SELECT DISTINCT json_extract(parameters, '$.load') AS load FROM series ORDER BY 1")
    assert [row["load"] for row in variants] == ["alone", "rounds"]
    at_once = desk.rows("SELECT DISTINCT value FROM v_granted WHERE granted = 'pairs_at_once_count' ORDER BY 1")
    assert [row["value"] for row in at_once] == [1, 2]
    assert desk.rows("SELECT count(*) AS n FROM v_attempts") == [{"n": 6}]
    said = desk.json("db", "load")
    assert [(one["read_count"], one["known_count"]) for one in said["clusters"]] == [(0, 12)]
    planned = json.loads((desk.run_folder / "tiny" / "plan.json").read_text())
    assert [one["job_count"] for one in planned["cost"]["allocations"]] == [6, 1, 1]


def test_results_of_the_tournament_in_hand_count_as_they_come(tmp_path: Path) -> None:
    """With this seed the instant test of the first round goes first; the endless one that follows is ended."""
    desk = LocalDesk.at(tmp_path)
    desk.cluster("tiny", CLUSTER)
    desk.campaign(INSTANT, SLOW, more="allocation: whole\nseed: 1")
    with desk.running(["-m", "hpcq", "run", "try.yaml"]):
        try:
            desk.wait_for(lambda: len(spooled_of(desk)) == 2)  # the driver may look between the two
            [status] = desk.json("status")["clusters"]
        finally:
            desk.hpcq("cancel", expect=None)
    counts = status["counts"]
    assert (counts["measured_result_count"], counts["attempts"]) == (2, {"running": 1})
    spooled = spooled_of(desk)
    [end] = [event for event in desk.events() if event["event"] == "ended"]
    assert sorted(spooled) == ["j00001", "j00002"]
    assert all(end["measured_of"][job][0] == steps[0] for job, steps in spooled.items())


@pytest.mark.long
def test_more_busy_pairs_than_cores_are_looked_after_and_cancelled(tmp_path: Path) -> None:
    """Four ping-pongs at once keep a small machine's cores busy all the time: the driver must get its turn."""
    desk = LocalDesk.at(tmp_path)
    desk.cluster("tiny", CLUSTER.replace("{name}-d]", "{name}-d, {name}-e, {name}-f, {name}-g, {name}-h]"))
    busy = "{kernel: tcp_pingpong, parameters: {duration_s: 300, warmup_s: 0}}"
    desk.campaign(INSTANT, busy, more="allocation: whole\nseed: 1")
    with desk.running(["-m", "hpcq", "run", "try.yaml"]) as child:
        desk.wait_for(lambda: any(event["event"] == "spooled" for event in desk.events()))
        desk.hpcq("cancel")
        desk.wait_for(lambda: child.poll() is not None)
    [end] = [event for event in desk.events() if event["event"] == "ended"]
    assert end["outcome"] == "cancelled"
    assert len(end["nodes"]) == 8


@pytest.mark.long
def test_groups_share_the_nodes_in_turn(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.cluster("tiny", CLUSTER)
    desk.campaign(INSTANT, more="allocation: group of 3\nbudget: {max_node_seconds: 400}")
    desk.hpcq("run", "try.yaml")
    assert desk.rows("SELECT outcome, count(*) AS n FROM v_results GROUP BY outcome") == [{"outcome": "measured", "n": 6}]
    attempts = [event for event in desk.events() if event["event"] == "attempt"]
    assert 1 < len(attempts) < 6
    assert max(len(event["nodes"]) for event in attempts) == 3
    plan = stages.read_plan(RunFolder(desk.run_folder), "tiny")
    assert max(event["walltime_s"] for event in attempts) <= took_at_most(plan, desk.events()) <= 400


MPI_CLUSTER = (
    CLUSTER
    + """
interface: lo
mpi: {{compiler: mpicc, launch: mpirun --oversubscribe -np {count}}}
environment:
  OMPI_MCA_btl: "tcp,self"
  OMPI_MCA_mpi_yield_when_idle: 1
  OMPI_ALLOW_RUN_AS_ROOT: 1
  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: 1
"""
)


@pytest.mark.long
@pytest.mark.parametrize(("allocation", "ranks"), [("pair", 2), ("whole", 4)])
def test_mpi_alone_brings_the_facts_of_every_node(tmp_path: Path, allocation: str, ranks: int) -> None:
    """hpcq-net is not built for such a campaign; hpcq-mpi says what a node is."""
    desk = LocalDesk.at(tmp_path)
    desk.cluster("tiny", MPI_CLUSTER.replace("{count}", str(ranks)))
    desk.campaign("{kernel: mpi_pingpong, parameters: {duration_s: 20ms, warmup_s: 0}}", more=f"allocation: {allocation}")
    desk.hpcq("run", "try.yaml")
    assert desk.rows("SELECT outcome, count(*) AS n FROM v_results GROUP BY outcome") == [{"outcome": "measured", "n": 6}]
    with_facts = desk.rows(
        "SELECT n.name, count(*) > 0 AS n FROM node_facts nf JOIN node n ON n.node_id = nf.node_id GROUP BY n.name ORDER BY 1"
    )
    assert [row["name"] for row in with_facts] == ["tiny-a", "tiny-b", "tiny-c", "tiny-d"]
    for path in desk.run_folder.glob("tiny/jobs/*/1/facts-*.json"):
        assert json.loads(path.read_text())["node"]["interface"] == "lo"
