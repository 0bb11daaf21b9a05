"""Foreign MPI programs on a real Slurm: Debian's NetPIPE between pairs, a program of all nodes, each with its evidence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.described.descriptions import write
from tests.lab.campaigns_in_lab import Desk, wait_idle
from tests.lab.lab_fixture import RunningLab
from tests.local.test_tournament_in_lab import wait_for_lines

pytestmark = [pytest.mark.lab, pytest.mark.long]

#: A program of the site: all ranks add up numbers; rank 0 says how long it took.
SUM = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    static double in[8192], out[8192];
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0)
        printf("# Size  Time (us)  of %d ranks\n", size);
    for (int count = 1024; count <= 8192; count *= 2) {
        double begun = MPI_Wtime();
        for (int i = 0; i < 10; i++)
            MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0)
            printf("%d  %.3f\n", count * 8, (MPI_Wtime() - begun) / 10 * 1e6);
    }
    return MPI_Finalize();
}
"""
DESCRIPTION = r"""
name: foreign_sum
summary: Sums over all nodes by a program that a test builds.
shape: MPI of N ranks
program: /scratch/foreign-sum
command: "{{ program }}"
limit_s: 60
sizes: {first: 8192, last: 65536}
table: {head: '^# Size', columns: [message_bytes, time]}
sends_at_least_bytes: {client: "{{ 10 * size_sum }}", server: "{{ 10 * size_sum }}"}
metrics:
  operation_mean_ns: {better: lower, column: time, times: 1000, help: mean of an operation}
  ranks_count: {better: none, regex: 'of (\d+) ranks', help: how many there were}
"""
CAMPAIGN = """clusters: [alpha]
pairs: {rounds: 1}
repetitions: 1
tests:
  - {kernel: netpipe_mpi, parameters: {message_bytes_max: 512}}
  - {kernel: foreign_sum, matrix: {ranks_per_node: [1, 2]}}"""


#: Six pairs of four nodes, one after the other in one allocation.
WHOLE = "clusters: [alpha]\npairs: {rounds: 3}\nallocation: whole\nconcurrency: alone\nrepetitions: 1"


@pytest.fixture(scope="module")
def measured(lab: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    assert shutil.which("NPopenmpi"), "tools/packages test installs netpipe-openmpi"
    lab.at_rest("alpha")
    desk = Desk(tmp_path_factory.mktemp("desk"), lab)
    write(desk.folder, DESCRIPTION)
    build = 'printf "%s" "$1" >/scratch/sum.c && mpicc.openmpi -O1 -o /scratch/foreign-sum /scratch/sum.c'
    lab.exec("alpha", "sh", "-c", build, "sh", SUM)
    desk.campaign(CAMPAIGN, "ranks")
    desk.hpcq("run", "campaign.yaml")
    return desk


def test_every_size_of_both_is_measured(measured: Desk) -> None:
    rows = measured.rows("SELECT kernel, outcome, reason, count(*) AS n FROM v_results GROUP BY 1, 2, 3 ORDER BY 1")
    assert [(row["kernel"], row["outcome"], row["reason"]) for row in rows] == [
        ("foreign_sum", "measured", None),
        ("netpipe_mpi", "measured", None),
    ]
    assert rows[0]["n"] == 2 * 4


@pytest.mark.promise("On a real Slurm a foreign MPI program runs on all nodes of a job, each with its evidence.")
@pytest.mark.parametrize("ranks_per_node", [1, 2])
def test_every_node_that_took_part_has_its_evidence(measured: Desk, ranks_per_node: int) -> None:
    ends = measured.rows(
        'SELECT e."end", e.node, e.interface FROM v_ends e JOIN v_results v USING (result_id)'
        " WHERE v.kernel = 'foreign_sum' AND v.message_bytes = 8192"
        f" AND json_extract(v.parameters, '$.ranks_per_node') = {ranks_per_node} ORDER BY e.node"
    )
    nodes = [f"alpha-n{number:02d}" for number in range(1, len(ends) + 1)]
    assert len(ends) >= 4
    assert [one["node"] for one in ends] == nodes
    assert {one["interface"] for one in ends} == {"eth0"}
    sent = measured.rows(
        "SELECT c.node, c.delta FROM v_counters c JOIN v_results v USING (result_id)"
        " WHERE v.kernel = 'foreign_sum' AND v.message_bytes = 8192 AND c.counter = 'net_dev.eth0.tx_bytes'"
        f" AND json_extract(v.parameters, '$.ranks_per_node') = {ranks_per_node}"
    )
    assert {one["node"] for one in sent} == set(nodes)
    assert all(one["delta"] > 10 * 8192 for one in sent)


def test_the_bytes_are_proved_to_have_crossed(measured: Desk) -> None:
    found = measured.rows("SELECT DISTINCT kernel, crossed_interface FROM v_results ORDER BY 1")
    assert {row["crossed_interface"] for row in found} == {"yes"}, found


def test_the_parameters_say_how_many_ranks_there_were(measured: Desk) -> None:
    rows = measured.rows("SELECT parameters, metrics.value FROM v_results JOIN v_metrics metrics USING (result_id)"
                         " WHERE v_results.kernel = 'foreign_sum' AND metrics.metric = 'ranks_count'")  # fmt: skip
    found = {
        (one["node_count"], one["ranks_per_node"]): row["value"] for row in rows for one in [json.loads(row["parameters"])]
    }
    nodes = {node_count for node_count, _ in found}
    assert len(nodes) == 1
    node_count = nodes.pop()
    assert node_count >= 4
    assert found == {(node_count, 1): node_count, (node_count, 2): 2 * node_count}


@pytest.mark.promise("A node that dies amid launches costs its own pairs, each a row that says so.")
@pytest.mark.timeout(500)
def test_a_tournament_goes_on_without_a_node_that_dies(lab: RunningLab, tmp_path: Path) -> None:
    """NetPIPE for each pair in turn, in one allocation; the pairs of the node that dies meanwhile say so."""
    lab.at_rest("alpha")
    desk = Desk(tmp_path, lab)
    tests = "  - {kernel: netpipe_mpi, parameters: {message_bytes_max: 512}}"
    desk.campaign(f"{WHOLE}\nretries: 0\ntests:\n{tests}", "ranks")
    try:
        with desk.running("run", "campaign.yaml") as child:
            desk.wait_for(lambda events: any(event.get("state") == "running" for event in events))
            wait_for_lines(desk, 3)  # one launched and told, another begun
            lab.command("kill-node", "alpha/n03")
            assert child.wait(timeout=400) == 3  # what ran on the dead node brought nothing: it failed, and more is not there
    finally:
        lab.command("start-node", "alpha/n03")
        lab.exec("alpha", "scontrol", "update", "nodename=alpha-n03", "state=resume", check=False)
        wait_idle(lab, "alpha")
    rows = desk.rows("SELECT DISTINCT client, server, outcome, reason, crossed_interface FROM v_results")
    unhurt = [row for row in rows if "alpha-n03" not in (row["client"], row["server"])]
    assert [(row["outcome"], row["crossed_interface"]) for row in unhurt] == [("measured", "yes")] * 3, rows
    hurt = [row for row in rows if row["outcome"] != "measured"]
    assert hurt, rows
    assert all(row["reason"] for row in hurt)
    assert "alpha-n03: no process starts there any more" in {row["reason"] for row in hurt}, rows
    assert len([event for event in desk.events() if event["event"] == "attempt"]) == 1
