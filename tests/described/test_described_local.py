"""A foreign program inside a campaign, on the embedded scheduler: what becomes a number, and what becomes a reason."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcq.definition.files.campaign import read_campaign
from hpcq.errors import UserError
from hpcq.evidence.judge import judge
from hpcq.evidence.rules import VERSION
from hpcq.runner.queue.run_state import played
from hpcq.store.keep.check_and_prune import rejudge
from tests.described.descriptions import ALONE, FOLDER, RATE, TABLE, write
from tests.local.local_desk import LocalDesk

WORD = "a b; $(c) 'd'"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> LocalDesk:
    desk = LocalDesk.at(tmp_path_factory.mktemp("desk"))
    write(desk.folder, RATE)
    write(desk.folder, TABLE)
    write(desk.folder, FOLDER)
    write(desk.folder, ALONE)
    desk.campaign(
        "{kernel: foreign_rate, matrix: {mode: [good, nan, exit, words, hang]}}",
        f'{{kernel: foreign_rate, parameters: {{word: "{WORD}"}}}}',
        "{kernel: foreign_table}",
        "{kernel: foreign_alone}",
        "{kernel: foreign_folder, parameters: {rate_count: 8, arguments: -c D  D, server_arguments: --quiet}}",
        "{kernel: tcp_stream, parameters: {duration_s: 50ms, warmup_s: 0}}",
        "{kernel: foreign_table, parameters: {message_bytes_max: 8}}",
        more="retries: 0\ngates: [{metric: rate_bps, maximum: 25mbit, kernel: foreign_table, where: {message_bytes_max: 4}}]",
    )
    (desk.folder / "plan.txt").write_text(desk.hpcq("plan", "try.yaml").stdout)
    desk.hpcq("run", "try.yaml", expect=3)  # a gate that one size misses
    return desk


def of_mode(desk: LocalDesk, mode: str, word: str = "plain") -> dict[str, Any]:
    """The one result of foreign_rate with these options, with its parameters read."""
    rows = desk.rows("SELECT * FROM v_results WHERE kernel = 'foreign_rate'")
    wanted = {"mode": mode, "word": word, "arguments": "", "server_arguments": ""}
    [row] = [one for one in rows if json.loads(one["parameters"]) == wanted]
    return row


def outputs(desk: LocalDesk, row: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What both programs of a result wrote."""
    line = json.loads((desk.run_folder / row["raw_file"]).read_text())
    found: dict[str, dict[str, Any]] = line["outputs"]
    return found


def test_its_number_is_a_result_like_any_other(done: LocalDesk) -> None:
    row = of_mode(done, "good")
    assert (row["outcome"], row["metric"], row["value"], row["unit"]) == ("measured", "rate_bps", 12.5e6, "bps")
    granted = done.rows("SELECT granted, value FROM v_granted WHERE granted LIKE '%version' GROUP BY granted")
    assert {one["granted"]: one["value"] for one in granted} == {
        "client_program_version": "foreign 1.2",
        "server_program_version": "foreign 1.2",
    }
    ends = done.rows(f"SELECT end_index FROM evidence_end WHERE result_id = {row['result_id']}")
    assert [one["end_index"] for one in ends] == [0, 1]
    [kernel] = done.rows("SELECT program, summary FROM kernel WHERE name = 'foreign_rate'")
    assert kernel["summary"] == "A rate that a test makes up."


@pytest.mark.promise("Results are shown in a metric that only a described kernel has.")
def test_its_own_metric_is_one_of_the_database(done: LocalDesk) -> None:
    rows = done.json("results", "--metric", "rate_bps", "--kernel", "foreign_table", expect=3)["results"]
    assert {(row["message_bytes"], row["value"]) for row in rows if row["value"]} == {(1, 10.5e6), (2, 21e6), (4, 42.25e6)}
    said = done.hpcq("results", "--metric", "rate_bp", expect=2).stderr
    assert "'rate_bp' is not a metric of any kernel: the nearest is rate_bps\n" in said
    assert len(said) < 1000, "hundreds of names help nobody"


@pytest.mark.promise("db rejudge knows of a described program what loading knew.")
def test_judging_again_knows_what_loading_knew(done: LocalDesk) -> None:
    again = rejudge(done.folder / "results.db", judge, VERSION + 1)
    assert (again.judged_count > 0, again.changed_count) == (True, 0)
    [alone] = done.rows("SELECT outcome, crossed_interface FROM v_results WHERE kernel = 'foreign_alone' LIMIT 1")
    assert alone["outcome"] == "measured"


@pytest.mark.promise("A version command that never answers costs no result: each end waits ten seconds, and warns.")
def test_a_version_command_that_never_answers_costs_no_result(done: LocalDesk) -> None:
    [row] = done.rows("SELECT result_id, outcome FROM v_results WHERE kernel = 'foreign_folder'")
    said = done.rows(f"SELECT message FROM warning WHERE result_id = {row['result_id']} AND name = 'program_version_unknown'")
    assert row["outcome"] == "measured"
    assert {one["message"] for one in said} == {
        f"{end}: its version command: no word within 10 s" for end in ("client", "server")
    }


def test_a_word_of_a_command_is_one_argument_whatever_it_holds(done: LocalDesk) -> None:
    row = of_mode(done, "good", WORD)
    assert row["outcome"] == "measured"
    assert f"word {WORD!r}\n" in outputs(done, row)["client"]["output"]


@pytest.mark.parametrize(
    ("mode", "outcome", "reason"),
    [
        ("nan", "invalid", "foreign_rate: rate_bps: 'nan': must be a number"),
        ("exit", "failed", "program: foreign_rate: exit code 7; it said last: cannot do it"),
        ("words", "failed", "program: foreign_rate: it said: FAILED to do it"),
        ("hang", "failed", "program: foreign_rate: ended at its limit of 3 s; it said last: rate = 12.5 Mbit/s"),
    ],
)
def test_without_a_number_there_is_the_reason_and_the_output(done: LocalDesk, mode: str, outcome: str, reason: str) -> None:
    row = of_mode(done, mode)
    assert (row["outcome"], row["reason"], row["value"]) == (outcome, reason, None)
    warnings = done.rows(f"SELECT name, message FROM warning WHERE result_id = {row['result_id']}")
    kept = {one["name"]: one["message"] for one in warnings if one["message"].startswith("client: ")}
    assert "word 'plain'" in kept["program_output"]
    assert "word 'plain'" in outputs(done, row)["client"]["output"]
    if mode == "exit":
        assert kept["program_errors"] == "client: cannot do it"


def test_what_hangs_ends_with_all_that_it_started(done: LocalDesk) -> None:
    written = outputs(done, of_mode(done, "hang"))
    assert written["client"]["timed_out"] is True
    assert written["client"]["elapsed_ns"] < 60e9
    assert written["server"]["killed"] is True  # one that serves for ever ends with the measurement


@pytest.mark.promise("A campaign adds options of a described program, which stand where its description says, else last.")
@pytest.mark.promise("A described program starts in a new folder with the input files of its description, which goes with it.")
@pytest.mark.promise("A file that a described program writes, as its description says, is read after its output.")
@pytest.mark.promise("The server of a described program can be another program, and have two ports.")
def test_a_server_of_its_own_two_ports_files_and_added_options(done: LocalDesk) -> None:
    [row] = done.rows("SELECT * FROM v_results WHERE kernel = 'foreign_folder'")
    assert (row["outcome"], row["value"]) == ("measured", 8.5e6)
    assert json.loads(row["parameters"])["arguments"] == "-c D D"
    written = outputs(done, row)
    folder, _, has = written["client"]["output"].splitlines()[0].partition(" has ")
    assert has == "['input.txt']"
    assert not Path(folder).exists()
    assert "a file of /usr/bin/env\n\nrate = 8.5 Mbit/s\n" in written["client"]["output"]
    assert "words ['-c', 'D', 'D', '--last']\n" in written["client"]["output"]
    assert written["client"]["command"][0] == "/usr/bin/env"
    port, second_port, last = written["server"]["command"][-3:]
    assert (written["server"]["command"][0], last) == (sys.executable, "--quiet")
    assert written["client"]["command"][5:7] == [port, second_port]


def test_a_table_is_one_result_per_size(done: LocalDesk) -> None:
    rows = done.rows("SELECT * FROM v_results WHERE kernel = 'foreign_table' ORDER BY message_bytes")
    whole = [row for row in rows if json.loads(row["parameters"])["message_bytes_max"] == 4]
    assert [(row["message_bytes"], row["value"]) for row in whole] == [(1, 10.5e6), (2, 21e6), (4, 42.25e6)]
    short = [row for row in rows if json.loads(row["parameters"])["message_bytes_max"] == 8]
    assert [row["message_bytes"] for row in short] == [1, 2, 4, 8]
    assert {row["reason"] for row in short} == {"foreign_table: table: 3 rows: must be exactly 4"}
    assert {row["value"] for row in short} == {None}


def test_a_gate_judges_each_size(done: LocalDesk) -> None:
    verdicts = done.json("results", expect=3)["gates"]
    found = {one["series"]["parameters"]["message_bytes"]: one["verdict"] for one in verdicts}
    assert found == {1: "pass", 2: "pass", 4: "failed"}


@pytest.mark.promise("The page shows programs that measure the same side by side and says where they disagree.")
def test_the_page_shows_both_programs_and_that_they_disagree(done: LocalDesk) -> None:
    page = (done.run_folder / "report.html").read_text()
    _, _, peers = page.partition('<h2 id="peers">')
    row = peers.partition("<td>foreign_rate</td>")[2].partition("</tr>")[0]
    assert "<td>TCP stream, throughput</td>" in row
    assert "12.5 Mbit/s" in row
    assert "they disagree" in row


def test_plan_shows_what_would_be_started(done: LocalDesk) -> None:
    said = (done.folder / "plan.txt").read_text()
    assert "{address} {port} good plain\n" in said
    assert shlex.quote(WORD) in said
    assert "  starts   server: " in said


@pytest.mark.promise("Acceptance runs programs whose descriptions lie beside its campaign.")
def test_acceptance_runs_described_programs(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    write(desk.folder, RATE)
    desk.campaign("{kernel: foreign_rate}")
    said = desk.hpcq("accept", "try.yaml", expect=4).stdout  # of two nodes none can be judged
    assert "2 nodes judged" in said
    assert {row["kernel"] for row in desk.rows("SELECT kernel FROM v_results WHERE outcome = 'measured'")} == {"foreign_rate"}


@pytest.mark.promise("Each campaign has its own kernels: a description of the same name elsewhere changes none of it.")
def test_a_campaign_has_the_kernels_that_lie_beside_it(tmp_path: Path) -> None:
    found = []
    for limit_s in ("60", "70"):
        folder = tmp_path / limit_s
        folder.mkdir()
        write(folder, RATE.replace("else 60", f"else {limit_s}"))
        (folder / "c.yaml").write_text("name: c\nclusters: [tiny]\npairs: all\ntests: [{kernel: foreign_rate}]\n")
        found.append((limit_s, read_campaign(folder / "c.yaml")))
    for limit_s, campaign in found:
        played_test = played(campaign.kernels, campaign.tests[0])
        assert played_test["parameters"]["duration_s"] == int(limit_s)


@pytest.mark.promise(
    "A description beside a campaign that has the name of a kernel of hpcq is refused, not left out in silence."
)
def test_no_description_has_the_name_of_an_own_kernel(tmp_path: Path) -> None:
    write(tmp_path, RATE.replace("name: foreign_rate", "name: tcp_stream"))
    (tmp_path / "c.yaml").write_text("name: c\nclusters: [tiny]\npairs: all\ntests: [{kernel: tcp_stream}]\n")
    with pytest.raises(UserError, match="tcp_stream is a kernel of hpcq itself: must be another name"):
        read_campaign(tmp_path / "c.yaml")


def test_the_run_has_its_own_copy_of_the_description(done: LocalDesk) -> None:
    (done.folder / "kernels" / "foreign_rate.yaml").rename(done.folder / "gone.yaml")
    try:
        assert done.json("db", "load")["clusters"][0]["known_count"] > 0
        (done.folder / "results.db").rename(done.folder / "before.db")
        done.hpcq("db", "load")
        assert of_mode(done, "good")["value"] == 12.5e6
        assert {one["verdict"] for one in done.json("results", expect=3)["gates"]} == {"pass", "failed"}
    finally:
        (done.folder / "gone.yaml").rename(done.folder / "kernels" / "foreign_rate.yaml")
