"""A foreign client and server over a link between two clusters; what a launcher starts stays within each of them."""

from __future__ import annotations

import pytest

from tests.described.descriptions import RATE, write
from tests.local.local_desk import LocalDesk

pytestmark = pytest.mark.long

ALONE = """
name: foreign_alone
summary: A number of one node.
shape: one node
program: echo
command: "{{ program }} rate = 7"
limit_s: 60
metrics:
  copy_bps: {better: higher, regex: 'rate = (\\S+)', help: the rate}
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> LocalDesk:
    desk = LocalDesk.at(tmp_path_factory.mktemp("desk"))
    desk.cluster("east")
    desk.cluster("west")
    write(desk.folder, RATE)
    write(desk.folder, ALONE)
    desk.campaign(
        "{kernel: foreign_rate}",
        "{kernel: foreign_rate, parameters: {mode: exit}}",
        "{kernel: foreign_alone}",
        more="links: [{from: east, to: west, pairs: 1, compare: false}]\nretries: 0",
        clusters="east, west",
    )
    desk.hpcq("run", "try.yaml", expect=None)
    return desk


def test_a_link_measures_it_between_the_clusters(done: LocalDesk) -> None:
    rows = done.rows("SELECT kernel, outcome, value, reason FROM v_results WHERE cluster = 'east+west' ORDER BY outcome")
    assert [(row["kernel"], row["outcome"], row["value"]) for row in rows] == [
        ("foreign_rate", "failed", None),
        ("foreign_rate", "measured", 12.5e6),
    ]
    assert rows[0]["reason"] == "program: foreign_rate: exit code 7; it said last: cannot do it"


def test_the_evidence_of_both_ends_is_there(done: LocalDesk) -> None:
    ends = done.rows(
        'SELECT e."end", e.node FROM v_ends e JOIN v_results v USING (result_id)'
        " WHERE v.cluster = 'east+west' AND v.outcome = 'measured'"
    )
    assert sorted(one["end"] for one in ends) == ["client", "server"]
    assert {one["node"].partition("-")[0] for one in ends} == {"east", "west"}


@pytest.mark.promise("A foreign client and server is measured over a link; a program of one node stays within its cluster.")
def test_a_program_of_one_node_runs_within_the_clusters_only(done: LocalDesk) -> None:
    rows = done.rows("SELECT cluster, client, server, outcome FROM v_results WHERE kernel = 'foreign_alone' ORDER BY client")
    wanted = [(name, f"{name}-{node}", f"{name}-{node}", "measured") for name in ("east", "west") for node in "ab"]
    assert [tuple(row.values()) for row in rows] == wanted
