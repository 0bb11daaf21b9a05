"""Foreign programs that an MPI launcher starts, and those of one node, in jobs of the simulated PBS."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.described.test_ranks_local import ALONE, MPI, PROGRAM, describe
from tests.local.local_desk import LocalDesk
from tests.simulated_pbs.site import simulated_pbs

CLUSTER = f"""name: {{name}}
scheduler: pbs
connection: local
interface: lo
poll_interval_s: 1s
compiler: {{{{cflags: -O0}}}}
mpi: {{{{compiler: mpicc, launch: [{sys.executable}, {PROGRAM}, remote, "{{{{hostfile}}}}"]}}}}
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> LocalDesk:
    folder: Path = tmp_path_factory.mktemp("desk")
    with simulated_pbs(folder / "pbs") as pbs:
        pbs.control(set={"sleep_s": 0.0})
        desk = LocalDesk.at(folder)
        desk.cluster("tiny", CLUSTER)
        describe(desk.folder, MPI.replace("NAME", "two").replace("SHAPE", "two"))
        describe(desk.folder, MPI.replace("NAME", "many").replace("SHAPE", "N"))
        describe(desk.folder, ALONE)
        tests = ("{kernel: foreign_two}", "{kernel: foreign_many, matrix: {mode: [good, exit]}}", "{kernel: foreign_alone}")
        path = desk.folder / desk.campaign(*tests, more="retries: 0")
        path.write_text(path.read_text().replace("pairs: all", "pairs: {list: [[pbn2, pbn1]]}"))
        desk.hpcq("run", path.name, expect=None)
    return desk


@pytest.mark.long
def test_every_program_is_measured_where_it_was_planned(done: LocalDesk) -> None:
    rows = done.rows(
        "SELECT kernel, outcome, reason, client, count(*) AS n FROM v_results GROUP BY 1, 2, 3, 4 ORDER BY 1, 4, 2"
    )
    reason = "program: rank 3: foreign_many: exit code 7; it said last: cannot reach anybody"
    assert [tuple(row.values()) for row in rows] == [
        *(("foreign_alone", "measured", None, f"pbn{number}", 1) for number in (1, 2, 3, 4)),
        ("foreign_many", "failed", reason, "pbn1", 3),
        ("foreign_many", "measured", None, "pbn1", 3),
        ("foreign_two", "measured", None, "pbn2", 3),
    ]


@pytest.mark.promise("A foreign MPI program on PBS runs on all nodes of a job, each with its evidence.")
def test_each_node_that_took_part_has_its_evidence(done: LocalDesk) -> None:
    rows = done.rows(
        'SELECT v.kernel, e."end", e.node FROM v_ends e JOIN v_results v USING (result_id)'
        " WHERE v.kernel LIKE 'foreign%' AND v.outcome = 'measured' AND v.message_bytes = 4 ORDER BY 1, e.node"
    )
    many = [("client", "pbn1"), ("server", "pbn2"), ("rank2", "pbn3"), ("rank3", "pbn4")]
    assert [tuple(row.values())[1:] for row in rows if row["kernel"] == "foreign_many"] == many
    assert [tuple(row.values())[1:] for row in rows if row["kernel"] == "foreign_two"] == [
        ("server", "pbn1"),
        ("client", "pbn2"),
    ]


@pytest.mark.long
@pytest.mark.promise("A tournament whose programs are all launched has the facts of every node.")
def test_a_tournament_launches_each_pair_in_turn_with_the_facts_of_every_node(tmp_path: Path) -> None:
    """No program of hpcq lives through its rounds: the script itself asks each node for its facts."""
    with simulated_pbs(tmp_path / "pbs") as pbs:
        pbs.control(set={"sleep_s": 0.0})
        desk = LocalDesk.at(tmp_path)
        desk.cluster("tiny", CLUSTER)
        describe(desk.folder, MPI.replace("NAME", "two").replace("SHAPE", "two"))
        more = "retries: 0\nallocation: whole\nconcurrency: alone"
        desk.hpcq("run", desk.campaign("{kernel: foreign_two}", more=more))
    assert len([event for event in desk.events() if event["event"] == "submitted"]) == 1
    rows = desk.rows("SELECT client, server, outcome, reason, count(*) AS n FROM v_results GROUP BY 1, 2, 3, 4")
    assert {(row["outcome"], row["reason"], row["n"]) for row in rows} == {("measured", None, 3)}
    assert len(rows) == 6
    ends = desk.rows('SELECT v.client, v.server, e."end", e.node FROM v_ends e JOIN v_results v USING (result_id)')
    assert all(row["node"] == row[row["end"]] for row in ends)
    assert len(list(desk.run_folder.glob("tiny/jobs/g00001/1/facts-pbn*.json"))) == 4
