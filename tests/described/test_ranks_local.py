"""Foreign programs of MPI and of one node inside a campaign, on the embedded scheduler."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import REPOSITORY
from tests.described.descriptions import write
from tests.local.local_desk import INSTANT, LocalDesk

PROGRAM = REPOSITORY / "tests" / "described" / "ranks.py"
CLUSTER = f"""name: tiny
scheduler: local
nodes: [tiny-a, tiny-b, tiny-c]
per_node: {{numa: 3}}
compiler: {{cflags: -O0}}
mpi: {{compiler: mpicc, launch: [{sys.executable}, {PROGRAM}, launch, "{{count}}"]}}
"""
MPI = """
name: foreign_NAME
summary: Times that a test makes up, one per size.
shape: MPI of SHAPE ranks
program: PYTHON
version: "{{ program }} RANKS --version"
options:
  mode: {type: choice, default: good, choices: [good, nan, exit, silent, hang, killed], help: what the last rank does}
command: "{{ program }} RANKS rank {{ mode }}"
limit_s: "{{ 1 if mode == 'hang' else 60 }}"
sizes: {first: 1, last: 4}
table: {head: '^# Size', columns: [message_bytes, time]}
metrics:
  operation_mean_ns: {better: lower, column: time, times: 1000, help: mean of an operation}
"""
ALONE = """
name: foreign_alone
summary: A rate that a test makes up, of one node.
shape: one node
program: PYTHON
version: "true"
options:
  mode: {type: choice, default: good, choices: [good, dumb], help: what it writes}
command: "{{ program }} RANKS alone {{ mode }}"
limit_s: 60
metrics:
  copy_bps: {better: higher, regex: 'rate = (\\S+) Mbit/s', times: 1.0e6, help: the rate}
"""
MISSING = """
name: foreign_missing
summary: A program that is not there.
shape: MPI of two ranks
program: hpcq-no-such-program
command: "{{ program }}"
limit_s: 60
metrics:
  copy_bps: {better: higher, regex: 'rate = (\\S+) Mbit/s', times: 1.0e6, help: the rate}
"""


def describe(folder: Path, text: str) -> None:
    write(folder, text.replace("RANKS", str(PROGRAM)))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> LocalDesk:
    desk = LocalDesk.at(tmp_path_factory.mktemp("desk"))
    (desk.folder / "clusters" / "tiny.yaml").write_text(CLUSTER)
    describe(desk.folder, MPI.replace("NAME", "two").replace("SHAPE", "two"))
    describe(desk.folder, MPI.replace("NAME", "many").replace("SHAPE", "N"))
    describe(desk.folder, ALONE)
    describe(desk.folder, MISSING)
    name = desk.campaign(
        "{kernel: foreign_two, matrix: {mode: [good, nan, exit, hang, silent]}}",
        "{kernel: foreign_many, matrix: {mode: [good, exit]}}",
        "{kernel: foreign_many, parameters: {ranks_per_node: 2}}",
        "{kernel: foreign_many, parameters: {ranks_per_node: per_numa, rank_binding: numa}}",
        "{kernel: foreign_alone, matrix: {mode: [good, dumb]}}",
        "{kernel: foreign_missing}",
        more="retries: 0",
    )
    path = desk.folder / name
    path.write_text(path.read_text().replace("pairs: all", "pairs: {list: [[tiny-b, tiny-a]]}"))
    (desk.folder / "plan.txt").write_text(desk.hpcq("plan", name).stdout)
    desk.hpcq("run", name, expect=None)
    gpus = desk.campaign("{kernel: foreign_many, parameters: {ranks_per_node: per_gpu}}", name="gpus")
    (desk.folder / "gpus.txt").write_text(desk.hpcq("plan", gpus, expect=2).stderr)
    sockets = desk.campaign("{kernel: foreign_many, parameters: {ranks_per_node: per_socket}}", name="sockets")
    (desk.folder / "sockets.txt").write_text(desk.hpcq("plan", sockets, expect=2).stderr)
    return desk


def of_mode(desk: LocalDesk, kernel: str, mode: str) -> list[dict[str, Any]]:
    rows = desk.rows(f"SELECT * FROM v_results WHERE kernel = '{kernel}' ORDER BY client, message_bytes")
    return [row for row in rows if json.loads(row["parameters"]).get("mode", mode) == mode]


def line_of(desk: LocalDesk, row: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((desk.run_folder / row["raw_file"].partition("#")[0]).read_text())
    return found


def test_two_ranks_bring_one_result_per_size(done: LocalDesk) -> None:
    rows = of_mode(done, "foreign_two", "good")
    assert [(row["client"], row["server"]) for row in rows] == [("tiny-b", "tiny-a")] * 3
    found = [(row["message_bytes"], row["outcome"], row["reason"], row["value"]) for row in rows]
    assert found == [(1, "measured", None, 2500), (2, "measured", None, 3000), (4, "measured", None, 4250)]


@pytest.mark.promise("A foreign MPI program is measured with the evidence of every node that took part.")
@pytest.mark.promise("The database holds the evidence of every node that ran a foreign MPI program, under its own name.")
def test_a_set_of_nodes_runs_n_ranks_with_the_evidence_of_each(done: LocalDesk) -> None:
    rows = [row for row in of_mode(done, "foreign_many", "good") if json.loads(row["parameters"])["ranks_per_node"] == 1]
    assert [(row["client"], row["server"]) for row in rows] == [("tiny-a", "tiny-[b-c]")] * 3 or [
        (row["client"], row["server"]) for row in rows
    ] == [("tiny-a", "tiny-b,tiny-c")] * 3
    assert [row["value"] for row in rows] == [2500, 3000, 4250]
    assert json.loads(rows[0]["parameters"])["node_count"] == 3
    evidence = line_of(done, rows[0])["evidence"]
    assert list(evidence) == ["client", "server", "rank2"]
    assert len({one["pid"] for one in evidence.values()}) == 3
    ends = done.rows(f'SELECT "end", node, pid FROM v_ends WHERE result_id = {rows[0]["result_id"]} ORDER BY pid')
    assert {one["end"]: one["node"] for one in ends} == {"client": "tiny-a", "server": "tiny-b", "rank2": "tiny-c"}
    assert {one["pid"] for one in ends} == {one["pid"] for one in evidence.values()}


@pytest.mark.promise("With several ranks on each node, each node that took part has its evidence once.")
def test_ranks_of_one_node_bring_its_evidence_once(done: LocalDesk) -> None:
    rows = [row for row in of_mode(done, "foreign_many", "good") if json.loads(row["parameters"])["ranks_per_node"] == 2]
    assert [(row["message_bytes"], row["outcome"], row["value"]) for row in rows] == [
        (1, "measured", 2500), (2, "measured", 3000), (4, "measured", 4250)
    ], rows  # fmt: skip
    line = line_of(done, rows[0])
    assert list(line["evidence"]) == ["client", "server", "rank2"]
    ends = done.rows(f'SELECT "end", node FROM v_ends WHERE result_id = {rows[0]["result_id"]}')
    assert {one["end"]: one["node"] for one in ends} == {"client": "tiny-a", "server": "tiny-b", "rank2": "tiny-c"}
    assert "of 6 ranks" in line["outputs"]["client"]["output"]


@pytest.mark.promise("`ranks_per_node: per_gpu` is the number that the cluster file gives, or refused with the key it lacks.")
@pytest.mark.promise("`rank_binding: numa` runs the ranks of a node on its NUMA nodes in turn.")
def test_ranks_per_thing_of_a_node(done: LocalDesk) -> None:
    rows = [row for row in of_mode(done, "foreign_many", "good") if json.loads(row["parameters"])["ranks_per_node"] == 3]
    assert [row["value"] for row in rows] == [2500, 3000, 4250], rows
    line = line_of(done, rows[0])
    assert "of 9 ranks" in line["outputs"]["client"]["output"]
    if Path("/sys/devices/system/node/node0").exists():
        assert line["granted"]["client_numa_index"] == 0
    said = (done.folder / "sockets.txt").read_text()
    assert "ranks_per_node: 'per_socket': must be a number, or one of per_core, per_numa, per_nic, per_gpu" in said
    said = (done.folder / "gpus.txt").read_text()
    assert (
        "tiny: per_node: gpu: missing, but gpus runs foreign_many with ranks_per_node: per_gpu: the cluster file must" in said
    )


@pytest.mark.promise("A program of one node is measured on each node by itself.")
def test_one_node_is_measured_alone_each_in_turn(done: LocalDesk) -> None:
    rows = of_mode(done, "foreign_alone", "good")
    assert [(row["client"], row["server"]) for row in rows] == [(name, name) for name in ("tiny-a", "tiny-b", "tiny-c")]
    assert {(row["outcome"], row["value"]) for row in rows} == {("measured", 12.5e6)}
    named = done.rows(f"SELECT name FROM warning WHERE result_id = {rows[0]['result_id']}")
    assert "evidence_missing" not in {one["name"] for one in named}  # there is no second end


@pytest.mark.promise("A rank of a foreign MPI program that fails ends the measurement, with that rank's number and reason.")
@pytest.mark.parametrize(
    ("kernel", "mode", "outcome", "reason"),
    [
        ("foreign_two", "nan", "invalid", "foreign_two: operation_mean_ns: 'nan': must be a number"),
        ("foreign_two", "exit", "failed", "program: rank 1: foreign_two: exit code 7; it said last: cannot reach anybody"),
        ("foreign_two", "hang", "failed", "program: foreign_two: ended at its limit of 1 s; it said last: "),
        ("foreign_two", "silent", "invalid", "foreign_two: output: nothing: must be what the description reads"),
        ("foreign_many", "exit", "failed", "program: rank 2: foreign_many: exit code 7; it said last: cannot reach anybody"),
        ("foreign_alone", "dumb", "invalid", "foreign_alone: copy_bps: rate = (\\S+) Mbit/s matches 0 times: must match once"),
        ("foreign_missing", "", "failed", "program: hpcq-no-such-program: No such file or directory (ENOENT)"),
    ],
)
def test_without_a_number_there_is_the_reason(done: LocalDesk, kernel: str, mode: str, outcome: str, reason: str) -> None:
    rows = of_mode(done, kernel, mode)
    bad = [row for row in rows if row["outcome"] != "measured"]
    # Both ranks hang, and either may reach its limit first: rank 1 is then named.
    said = {(row["outcome"], row["reason"].replace("rank 1: ", "") if mode == "hang" else row["reason"]) for row in bad}
    assert said == {(outcome, reason)}
    assert {row["value"] for row in bad} == {None}
    assert len(rows) == len(bad) or mode == "nan"  # a row that is no number spoils no other row


def test_what_a_failed_rank_wrote_is_kept(done: LocalDesk) -> None:
    [first, *_] = of_mode(done, "foreign_many", "exit")
    said = done.rows(f"SELECT message FROM warning WHERE result_id = {first['result_id']} AND name = 'program_errors'")
    assert {"message": "rank2: cannot reach anybody"} in said


@pytest.mark.promise("The version command of an MPI program does not run as a rank of the measurement.")
def test_a_version_command_does_not_take_itself_for_a_rank(done: LocalDesk) -> None:
    granted = line_of(done, of_mode(done, "foreign_two", "good")[0])["granted"]
    assert granted["client_program_version"] == "ranks 3.1 alone"


@pytest.mark.promise("A version command that says nothing is a warning of the result, with why.")
def test_a_version_command_that_says_nothing_is_a_warning(done: LocalDesk) -> None:
    [first, *_] = of_mode(done, "foreign_alone", "good")
    said = done.rows(f"SELECT message FROM warning WHERE result_id = {first['result_id']} AND name = 'program_version_unknown'")
    assert said == [{"message": "client: its version command: no word; exit code 0"}]


def test_no_report_of_a_rank_is_left(done: LocalDesk) -> None:
    assert list(done.run_folder.glob("tiny/jobs/*/*/*.rank*")) == []


def test_plan_shows_who_starts_what(done: LocalDesk) -> None:
    said = (done.folder / "plan.txt").read_text()
    assert f"  starts   rank: {sys.executable} {PROGRAM} rank good\n" in said
    assert f"  starts   node: {sys.executable} {PROGRAM} alone good\n" in said
    assert "  alone    tiny-a, tiny-b, tiny-c\n  together 3 nodes: tiny-a," in said


@pytest.fixture(scope="module")
def tournament(tmp_path_factory: pytest.TempPathFactory) -> LocalDesk:
    """Foreign programs of two ranks and a kernel of hpcq, for two pairs of three nodes in one allocation."""
    desk = LocalDesk.at(tmp_path_factory.mktemp("tournament"))
    (desk.folder / "clusters" / "tiny.yaml").write_text(CLUSTER)
    describe(desk.folder, MPI.replace("NAME", "two").replace("SHAPE", "two"))
    describe(desk.folder, MISSING)
    name = desk.campaign(
        INSTANT,
        "{kernel: foreign_two, matrix: {mode: [good, exit, killed]}}",
        "{kernel: foreign_missing}",
        more="retries: 0\nallocation: whole\nconcurrency: alone",
    )
    path = desk.folder / name
    path.write_text(path.read_text().replace("pairs: all", "pairs: {list: [[tiny-b, tiny-a], [tiny-a, tiny-c]]}"))
    desk.hpcq("run", name, expect=None)
    return desk


@pytest.mark.long
@pytest.mark.promise("A tournament launches foreign MPI programs for each pair in turn, in one allocation.")
def test_a_tournament_launches_a_foreign_program_for_each_pair_in_turn(tournament: LocalDesk) -> None:
    assert len([event for event in tournament.events() if event["event"] == "submitted"]) == 1
    rows = of_mode(tournament, "foreign_two", "good")
    assert len(rows) == 2 * 3
    assert {(row["message_bytes"], row["outcome"], row["reason"], row["value"]) for row in rows} == {
        (1, "measured", None, 2500),
        (2, "measured", None, 3000),
        (4, "measured", None, 4250),
    }
    assert {json.loads(row["parameters"])["load"] for row in rows} == {"alone"}
    pairs = {(row["client"], row["server"]) for row in rows}
    assert pairs == {("tiny-b", "tiny-a"), ("tiny-a", "tiny-c")}
    ends = tournament.rows(
        "SELECT e.\"end\", e.node, e.result_id FROM v_ends e JOIN v_results v USING (result_id) WHERE v.kernel = 'foreign_two'"
    )
    by_result: dict[int, dict[str, str]] = {}
    for one in ends:
        by_result.setdefault(one["result_id"], {})[one["end"]] = one["node"]
    assert {(by_result[row["result_id"]]["client"], by_result[row["result_id"]]["server"]) for row in rows} == pairs
    at_once = tournament.rows("SELECT DISTINCT value FROM v_granted WHERE granted = 'pairs_at_once_count'")
    assert [row["value"] for row in at_once] == [1]
    socket = tournament.rows("SELECT outcome FROM v_results WHERE kernel = 'tcp_pingpong'")
    assert {row["outcome"] for row in socket} == {"measured"}


@pytest.mark.promise("A launch of a tournament that left no result is a row with what launcher and program said last.")
def test_of_a_launch_that_failed_a_tournament_tells_why_and_goes_on(tournament: LocalDesk) -> None:
    failed = {(row["outcome"], row["reason"]) for row in of_mode(tournament, "foreign_two", "exit")}
    assert failed == {("failed", "program: rank 1: foreign_two: exit code 7; it said last: cannot reach anybody")}
    killed = {(row["outcome"], row["reason"]) for row in of_mode(tournament, "foreign_two", "killed")}
    assert killed == {("failed", "no result line; exit code 137; died of SIGKILL; launcher: a rank was killed")}
    missing = {(row["outcome"], row["reason"]) for row in of_mode(tournament, "foreign_missing", "")}
    assert missing == {("failed", "program: hpcq-no-such-program: No such file or directory (ENOENT)")}
    [folder] = tournament.run_folder.glob("tiny/jobs/g*/1")
    assert list(folder.glob("launched*")) == [folder / "launched.txt"], "the spool has what the launches left"
