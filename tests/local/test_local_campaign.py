"""Small campaigns on the embedded scheduler, from the command line to the database: no cluster, no root."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcq.cli.main import run
from hpcq.errors import Exit
from tests import REPOSITORY
from tests.local.desk import assert_clean, kill_session
from tests.local.local_desk import CLUSTER, INSTANT, SLOW, LocalDesk

PINGPONG = (
    "{kernel: tcp_pingpong, parameters: {duration_s: 50ms, warmup_s: 0}, matrix: {message_bytes: [1, 1KiB]}}",
    """{kernel: udp_stream, parameters: {duration_s: 9s, operation_count_max: 90, warmup_s: 0, message_bytes: 1400,
       rate_bps: 20mbit}}""",
)
OWN_KERNELS = {
    *("tcp_stream", "tcp_pingpong", "udp_stream", "udp_pingpong", "tcp_connect", "udp_oneway", "udp_dispersion"),
    "udp_rate_search",
    "path_probe",
    "memory_copy",
    *("fabric_pingpong", "fabric_stream", "fabric_write", "fabric_read", "fabric_atomic"),
    *("mpi_pingpong", "mpi_pingping", "mpi_stream", "mpi_one_sided", "mpi_collective", "mpi_matrix_multiply", "mpi_sort"),
}
#: The kernel ends with exit code 4: no machine has that CPU.
REFUSED = "{kernel: tcp_stream, parameters: {duration_s: 50ms, client_cpu_index: 8191}}"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> LocalDesk:
    """A campaign that went well, in a folder with a name that a shell would stumble over."""
    desk = LocalDesk.at(tmp_path_factory.mktemp("desk") / 'it\'s a "test" $(x) {y} #\nnext line')
    desk.campaign(*PINGPONG)
    said = desk.hpcq("run", "try.yaml")
    (desk.folder / "said.txt").write_text(said.stdout)
    return desk


def test_what_was_planned_is_measured(done: LocalDesk) -> None:
    plan = json.loads((done.run_folder / "tiny" / "plan.json").read_text())
    assert plan["goals"]["result_count"] == 3
    assert done.rows("SELECT outcome, count(*) AS n FROM v_results GROUP BY outcome") == [{"outcome": "measured", "n": 3}]
    [run] = done.rows("SELECT * FROM v_runs")
    assert (run["planned_count"], run["measured_count"]) == (3, 3)
    assert len(done.rows("SELECT * FROM v_attempts WHERE outcome = 'completed'")) == 1
    assert_clean(done.run_folder)
    assert [row["program"] for row in done.rows("SELECT * FROM v_builds")] == ["hpcq-net"]


def test_run_ends_with_results_and_where_everything_is(done: LocalDesk) -> None:
    said = (done.folder / "said.txt").read_text()
    run = done.run_folder.name
    assert "tcp_pingpong\t" in said
    assert f"\npage      runs/{run}/report.html\ndatabase  results.db\nfolder    runs/{run}\n" in said
    page = (done.run_folder / "report.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert run in page


def test_reading_verbs_print_json_only(done: LocalDesk) -> None:
    assert {row["outcome"] for row in done.json("results")["results"]} == {"measured"}
    assert [one["stage"] for one in done.json("status")["clusters"]] == ["loaded"]
    assert done.json("db", "load")["clusters"][0]["read_count"] == 0
    assert Path(done.json("report")["report"]) == done.run_folder / "report.html"
    assert [plan["cluster"] for plan in done.json("plan", "try.yaml")] == ["tiny"]
    found = {one["name"]: one["described"] is not None for one in done.json("kernels")}
    delivered = {path.stem for path in (REPOSITORY / "kernels" / "described").glob("*.yaml")}
    assert {name for name, described in found.items() if not described} == OWN_KERNELS
    assert {name for name, described in found.items() if described} == delivered
    assert "tiny" in [one["cluster"] for one in done.json("cluster", "list")]
    for verb in (["results"], ["results", "--each"], ["status"], ["report"], ["kernels"], ["cluster", "list"]):
        words = done.hpcq(*verb).stderr.splitlines()
        known = (
            f"run {done.run_folder.name}",
            "tiny: measured ",
            "3 of 3 planned results measured; no gate judges them",
            "NOT JUDGED: no gate and no history judges this run",
        )
        assert all(line.startswith(known) for line in words), words


def test_check_of_a_cluster(done: LocalDesk) -> None:
    items = {one["item"]: one["ok"] for one in done.json("cluster", "check", "tiny")}
    assert items["nodes"]
    assert items["from a node"]


def test_a_name_that_no_result_has(done: LocalDesk) -> None:
    said = done.hpcq("results", "--kernel", "tcp_pingpog", expect=2).stderr
    assert said.startswith("error: --kernel: 'tcp_pingpog' is not a kernel of this run: the nearest is tcp_pingpong\n")
    assert "--node: 'n1' is not a node of this run" in done.hpcq("results", "--node", "n1", expect=2).stderr
    assert "--metric: 'bps' is not a metric of any kernel" in done.hpcq("results", "--metric", "bps", expect=2).stderr
    assert "'nosuch' is not a run" in done.hpcq("results", "nosuch", expect=2).stderr


def test_submit_returns_and_resume_ends_it(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.campaign(*PINGPONG)
    desk.hpcq("run", "--detach", "try.yaml")  # the same as submit
    assert [event["event"] for event in desk.events()][:4] == ["opened", "wave", "attempt", "submitted"]
    assert not (desk.run_folder / "tiny" / "driven.json").exists()
    ended = desk.json("resume")
    assert ended["runs"][0]["measured_count"] == 3
    assert len([event for event in desk.events() if event["event"] == "attempt"]) == 1
    assert desk.json("resume")["runs"][0]["measured_count"] == 3  # nothing is left to do, and it says so again


@pytest.mark.long
def test_a_run_whose_driver_failed_and_left_its_page_is_resumed(tmp_path: Path) -> None:
    """The page tells what there was; it must not pass for the end."""
    desk = LocalDesk.at(tmp_path / "desk")
    desk.campaign(*PINGPONG)
    desk.hpcq("run", "--detach", "try.yaml")
    lock = desk.run_folder / "tiny" / "journal.jsonl.lock"
    lock.unlink()
    lock.mkdir()
    assert "lock: cannot be written: Is a directory" in desk.hpcq("resume", expect=1).stderr
    assert (desk.run_folder / "report.html").is_file()
    lock.rmdir()
    assert desk.json("resume")["runs"][0]["measured_count"] == 3


def test_cancel_ends_jobs_and_says_what_is_missing(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.campaign(SLOW)
    desk.hpcq("run", "--detach", "try.yaml")
    status = desk.json("cancel")
    counts = status["clusters"][0]["counts"]
    assert (counts["live_attempt_count"], counts["pending_pair_count"], counts["cancelled"]) == (0, 0, True)
    desk.hpcq("db", "load")
    [row] = desk.rows("SELECT outcome, reason FROM v_results")
    assert row["outcome"] != "measured"
    assert row["reason"]
    desk.hpcq("results", expect=4)


@pytest.mark.long
def test_two_runs_side_by_side_one_with_a_failed_gate_one_with_a_failed_kernel(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    gates = "gates: [{metric: round_trip_p50_ns, minimum: 10s}, {metric: round_trip_p50_ns, maximum: 10s}]"
    desk.campaign(INSTANT, name="gate", more=gates)
    desk.campaign(INSTANT, REFUSED, name="fail", more="retries: 0")
    words = [[sys.executable, "-P", "-m", "hpcq", "run", f"{name}.yaml"] for name in ("gate", "fail")]
    both = [
        subprocess.Popen(
            argv, cwd=desk.folder, env=desk.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
        )
        for argv in words
    ]
    (gate_out, _), (_, fail_err) = [child.communicate(timeout=240) for child in both]
    assert [child.returncode for child in both] == [3, 3], gate_out + fail_err
    assert gate_out.count("gate failed: ") == 1
    assert "median round_trip_p50_ns is " in gate_out
    assert ": must be >= 10 s" in gate_out
    assert "tiny: 1 result failed: " in fail_err
    assert desk.rows("SELECT campaign, outcome, count(*) AS n FROM v_results GROUP BY 1, 2 ORDER BY 1, 2") == [
        {"campaign": "fail", "outcome": "failed", "n": 1},
        {"campaign": "fail", "outcome": "measured", "n": 1},
        {"campaign": "gate", "outcome": "measured", "n": 1},
    ]


@pytest.mark.long
@pytest.mark.promise("Where a campaign says `decided_after`, a job repeats no test that failed twice the same way.")
def test_a_test_that_failed_twice_the_same_way_is_not_repeated(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    campaign = desk.folder / desk.campaign(REFUSED, PINGPONG[0], more="decided_after: 3")
    campaign.write_text(campaign.read_text().replace("repetitions: 1", "repetitions: 4"))
    desk.hpcq("run", "try.yaml", expect=None)
    rows = desk.rows(
        "SELECT kernel, outcome, reason, count(*) AS n FROM v_results GROUP BY kernel, outcome, reason ORDER BY 1, 2"
    )
    assert [(row["kernel"], row["outcome"], row["n"]) for row in rows] == [
        ("tcp_pingpong", "measured", 8), ("tcp_stream", "failed", 2), ("tcp_stream", "not_measured", 2),
    ]  # fmt: skip
    assert rows[-1]["reason"] == "decided: the test failed twice the same way in this job"
    assert len(desk.rows("SELECT * FROM v_attempts")) == 1, "it is decided, so it is not tried again"


@pytest.mark.long
@pytest.mark.promise("Where a campaign says `decided_after`, a job ends once each of its tests has failed and none measured.")
def test_a_job_of_which_each_test_failed_ends(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    campaign = desk.folder / desk.campaign(REFUSED, REFUSED.replace("50ms", "60ms"), more="decided_after: 3")
    campaign.write_text(campaign.read_text().replace("repetitions: 1", "repetitions: 4"))
    desk.hpcq("run", "try.yaml", expect=3)
    rows = desk.rows("SELECT outcome, reason, count(*) AS n FROM v_results GROUP BY outcome, reason ORDER BY 1, 2")
    assert [(row["outcome"], row["n"]) for row in rows] == [("failed", 2), ("not_measured", 6)]
    assert rows[-1]["reason"] == "decided: each test of this job failed, and none measured anything"
    assert len(desk.rows("SELECT * FROM v_attempts")) == 1


def test_a_compiler_that_is_not_there(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.cluster("bare", CLUSTER.replace("-O0", "-O0, cc: no-such-cc"))
    desk.campaign(clusters="bare, tiny")
    said = desk.hpcq("run", "try.yaml", expect=1)
    assert "error: bare: hpcq-net: does not build with no-such-cc:\n" in said.stderr
    assert "no-such-cc: " in said.stderr.replace("with no-such-cc:", "")  # the words of make or the shell are quoted
    assert "\nhint: no-such-cc must be on PATH there: " in said.stderr
    assert "Traceback" not in said.stderr
    assert desk.rows("SELECT cluster, outcome FROM v_results WHERE outcome = 'measured'") == [
        {"cluster": "tiny", "outcome": "measured"}
    ]
    error = json.loads((desk.run_folder / "bare" / "build.error.json").read_text())
    assert error["stage"] == "build"
    assert desk.json("status")["clusters"][0]["error"] == error["message"]


@pytest.mark.long
@pytest.mark.parametrize("words", [["cluster", "build", "bare"], ["run", "--detach", "try.yaml"]], ids=" ".join)
def test_each_verb_that_builds_quotes_the_compiler(tmp_path: Path, words: list[str]) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.cluster("bare", CLUSTER.replace("-O0", "-O0, cc: no-such-cc"))
    desk.campaign(clusters="bare, tiny")
    assert "error: bare: hpcq-net: does not build with no-such-cc:\n" in desk.hpcq(*words, expect=1).stderr


def test_a_defect_in_a_stage_reaches_the_person(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.campaign()
    on_path = desk.folder / "home"
    broken = on_path / "sitecustomize.py"  # Python runs it in every process that starts with this folder on its path
    broken.write_text("import hpcq.runner.site.build as build\ndef fail(*_): raise ZeroDivisionError('over nothing')\n"
                      "build.check_description = fail\n")  # fmt: skip
    environment = {**desk.environment(), "PYTHONPATH": str(on_path)}
    argv = [sys.executable, "-P", "-m", "hpcq", "run", "try.yaml"]
    said = subprocess.run(argv, cwd=desk.folder, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert said.returncode == 1
    log = desk.run_folder / "log.txt"
    assert (
        f"error: tiny: build: ZeroDivisionError: over nothing\n\nhint: this is a defect of hpcq: its traceback is in {log}\n"
        in (said.stderr)
    )
    assert "Traceback (most recent call last)" in log.read_text()
    assert "Traceback" not in said.stderr


@pytest.mark.long
def test_a_run_whose_driver_was_killed_is_taken_up(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.campaign("{kernel: tcp_stream, parameters: {duration_s: 500ms, warmup_s: 0}}")
    with desk.running(["-m", "hpcq", "run", "try.yaml"]) as child:
        desk.wait_for(lambda: child.poll() is not None or any(event["event"] == "submitted" for event in desk.events()))
        kill_session(child)
    assert desk.json("resume")["runs"][0]["measured_count"] == 1
    assert len([event for event in desk.events() if event["event"] == "attempt"]) == 1


#: Of types that no field has, in no place; some fields have those of PERHAPS_WRONG.
WRONG: tuple[Any, ...] = ([[1]], {"a": [1]})
PERHAPS_WRONG: tuple[Any, ...] = (None, "../x\0", "\ud800", -1, 10**30, 1.5, True, [], {})
#: What reads run.json and plan.json themselves, so that a wrong value is refused, by its field.
READERS = (("status", "RUN"), ("db", "load", "RUN"))
OTHERS = (("results", "RUN"), ("runs",), ("report", "RUN"), ("cancel", "RUN"), ("blame", "--run", "RUN"), ("doctor",))
FILES = ("run.json", "tiny/plan.json")


def _places(value: object, before: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a JSON document; of a list its first part."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield (*before, key)
        yield from _places(inner, (*before, key))


def _changed(path: Path, values: Sequence[Any]) -> Iterator[str]:
    """Put each value at each place of a JSON file, one after the other. In the end the file is as it was."""
    whole = path.read_text("utf-8")
    try:
        for place, value in itertools.product(list(_places(json.loads(whole))), values):
            document = json.loads(whole)
            at: Any = document
            for part in place[:-1]:
                at = at[part]
            at[place[-1]] = value
            path.write_text(json.dumps(document), "utf-8")
            yield f"{path.name}: {place}: {value!r}"
    finally:
        path.write_text(whole, "utf-8")


def _said(desk: LocalDesk, verb: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = run([desk.run_folder.name if word == "RUN" else word for word in verb])
    return code, capsys.readouterr().err


@pytest.fixture
def at_the_desk(done: LocalDesk, monkeypatch: pytest.MonkeyPatch) -> LocalDesk:
    """The desk of the campaign that went well, in this process."""
    monkeypatch.chdir(done.folder)
    for name, value in done.environment().items():
        monkeypatch.setenv(name, value)
    for name in os.environ.keys() - done.environment().keys():
        monkeypatch.delenv(name)
    return done


@pytest.mark.promise("A field of a wrong type in a run's run.json or plan.json is named with its file, and no defect of hpcq.")
@pytest.mark.parametrize("name", FILES)
def test_a_wrong_type_in_a_file_of_a_run_is_named(
    at_the_desk: LocalDesk, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, faults = at_the_desk.run_folder / name, []
    for what in _changed(path, WRONG):
        for verb in READERS if name != "run.json" else (*READERS, ("resume", "RUN")):
            code, said = _said(at_the_desk, verb, capsys)
            if code != Exit.ERROR or not re.match(rf"error: {re.escape(str(path))}: \S+: .*: must be ", said):
                faults.append(f"{what}: {verb}: exit code {code}: {said}")
    assert not faults, "\n".join(faults)
    assert len(list(_places(json.loads(path.read_text("utf-8"))))) >= 10


@pytest.mark.long
@pytest.mark.timeout(1800)  # plan.json: five minutes of processor time
@pytest.mark.parametrize("name", [*FILES, "tiny/build.json", "tiny/driven.json", "tiny/loaded.json"])
def test_no_value_in_a_file_of_a_run_is_a_defect(at_the_desk: LocalDesk, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    faults = []
    for what in _changed(at_the_desk.run_folder / name, (*WRONG, *PERHAPS_WRONG)):
        for verb in (*READERS, *OTHERS):
            code, said = _said(at_the_desk, verb, capsys)
            if code not in set(Exit) or "defect of hpcq" in said or "Traceback" in said:
                faults.append(f"{what}: {verb}: exit code {code}: {said}")
    assert not faults, "\n".join(faults)
