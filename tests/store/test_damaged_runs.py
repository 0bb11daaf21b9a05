"""Lines that are not to be believed and folders that are not whole: each a row with its reason."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcq.errors import StoreError
from hpcq.evidence.judge import judge
from hpcq.evidence.rules import VERSION
from hpcq.run_folder.paths import RunFolder
from hpcq.store.keep.check_and_prune import rejudge
from hpcq.store.load import cluster
from hpcq.store.load.cluster import load_run
from tests import REPOSITORY
from tests.store.run_folders import RunBuilder, ask, load
from tests.store.test_store import builder, damaged, database, reasons

FIXTURES = (
    builder,
    database,
)  # pytest looks for them in this module
pytestmark = pytest.mark.fast


LINE_CASES = [
    (b"", 4, "failed", "no result line; exit code 4; bind: Address already in use"),
    (b"\n \n", 0, "failed", "no result line; exit code 0; bind: Address already in use"),
    (b"{}\n{}\n", 0, "invalid", "2 result lines: must be exactly one; exit code 0"),
    (b'{"format": 1, "kern', 0, "invalid", "result line: not JSON: "),
    (b'{"format": 1, "kern', 137, "failed", "result line: not JSON: "),
    (b"\xff\xfe{}\n", 0, "invalid", "result line: not UTF-8: byte 0"),
    (b"[1, 2]\n", 0, "invalid", "result line: a JSON list: must be one object"),
    (b'{"a": NaN}\n', 0, "invalid", "result line: not JSON: NaN is not a JSON number"),
    (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", 0, "invalid", "result line: not JSON: nested too deep"),
    (b'{"a": ' + b"9" * 10_000 + b"}\n", 0, "invalid", "format nothing: must be 1"),
    (b'{"a": "\\ud800"}\n', 0, "invalid", "result line: not JSON: half a surrogate pair in a string"),
    (b'{"format": 2}\n', 0, "invalid", "format 2: must be 1"),
    (b'{"format": 1}\n', 0, "invalid", "kernel nothing: planned tcp_stream; echo: the line has no options"),
]


@pytest.mark.parametrize(("content", "rc", "outcome", "reason"), LINE_CASES, ids=range(len(LINE_CASES)))
def test_a_damaged_line_is_a_row_with_its_reason(  # noqa: PLR0917
    builder: RunBuilder, database: Path, content: bytes, rc: int, outcome: str, reason: str
) -> None:
    damaged(builder, content, rc, "note\nbind: Address already in use\n")
    load(database, builder)
    [found] = reasons(database, outcome)
    assert found.startswith(reason)
    assert ask(database, "SELECT exit_code FROM v_not_measured WHERE outcome = ?", outcome) == [rc]
    assert load(database, builder).read_count == 0


@pytest.mark.promise("A pipe, a link or a device in place of a file of a job stops no load: it counts as no file.")
@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_is_no_file_is_not_waited_for(builder: RunBuilder, database: Path, kind: str) -> None:
    make: dict[str, Callable[[Path], None]] = {
        "pipe": os.mkfifo,
        "link": lambda path: path.symlink_to("/dev/zero"),
        "folder": lambda path: path.mkdir(),
    }
    damaged(builder, b"", 4, "note\nbind: Address already in use\n")
    line = builder.line_path("j00001", 1, 1, 1)
    for path in (line, line.with_suffix(".err"), line.with_name("facts-n1.json"), line.with_name("spool.jsonl")):
        path.unlink(missing_ok=True)
        make[kind](path)
    load(database, builder)
    [found] = reasons(database, "failed")
    assert found.startswith("no result line; exit code 4")


@pytest.mark.promise("Of a file of a job that fills its disk a bounded part is read, and it costs no other result.")
@pytest.mark.parametrize("name", ["t1-r1.json", "t1-r1.err", "t1-r1.status", "facts-n1.json", "spool.jsonl", "decided"])
def test_a_file_that_fills_a_disk_is_not_read_to_its_end(builder: RunBuilder, database: Path, name: str) -> None:
    folder = builder.attempt("j00001", 1)
    builder.attempt("j00002", 1)
    with (folder / name).open("a") as file:
        file.truncate(2**42)
    load(database, builder)
    assert set(ask(database, "SELECT DISTINCT outcome FROM v_results WHERE job = 'j00002'")) == {"measured"}
    assert ask(database, "SELECT outcome FROM v_results WHERE job = 'j00001'").count("measured") >= len(builder.steps) - 1


@pytest.mark.promise("What a job says it decided is believed as far as it can be read, and costs no other result.")
@pytest.mark.parametrize(
    ("content", "decided"),
    [
        (b"1\n", True),
        (b"\xff\xfe 1\n", True),
        (b"9" * 5000 + b"\n\xd9\xa3\n1\n", True),
        (b"\xff" * 100, False),
    ],
    ids=["a test", "no text before it", "no numbers before it", "no text"],
)
def test_what_a_job_decided_may_be_anything(builder: RunBuilder, database: Path, content: bytes, decided: bool) -> None:
    folder = builder.attempt("j00001", 1)
    builder.line_path("j00001", 1, 1, 1).unlink()
    builder.line_path("j00001", 1, 1, 1).with_suffix(".status").unlink()
    (folder / "decided").write_bytes(content)
    load(database, builder)
    said = "decided: the test failed twice the same way in this job"
    assert ask(database, "SELECT count(*) FROM v_not_measured WHERE reason = ?", said) == [int(decided)]
    assert ask(database, "SELECT count(*) FROM v_results WHERE outcome = 'measured'") != [0]


@pytest.mark.promise("A link in place of a run's campaign or cluster file puts no other file into the database.")
def test_no_link_of_a_run_puts_another_file_into_the_database(builder: RunBuilder, database: Path, tmp_path: Path) -> None:
    """Who loads a run of somebody else gives the database to others, and his own keys with it."""
    key = tmp_path / "id_ed25519"
    key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    builder.attempt("j00001", 1)
    run = RunFolder(builder.path)
    for path in (run.campaign_yaml, run.cluster_yaml("alpha")):
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(key)
    load(database, builder)
    assert ask(database, "SELECT count(*) FROM result") != [0]
    assert ask(database, "SELECT text FROM document") == []


@pytest.mark.promise("Where a node's clock cannot be right, the driver's clock orders its results, and each of them says so.")
@pytest.mark.parametrize(
    ("claimed", "words"),
    [
        ("9999-99-99T99:99:99Z", "is no time: 2026-11-21T02:00:02"),
        ("2099-01-01T00:00:00.000000Z", "days ahead by the driver's clock"),
        ("1970-01-01T00:12:00.000000Z", "days behind by the driver's clock"),
        ("2026-11-21T03:30:00.000000Z", "89 min ahead by the driver's clock"),
    ],
)
def test_a_clock_that_cannot_be_right_orders_nothing(builder: RunBuilder, database: Path, claimed: str, words: str) -> None:
    builder.submit("j00001")
    folder = builder.measure("j00001", steps=[(1, 2)])
    line = builder.line("j00001", (1, 1), started_utc=claimed)
    line["evidence"]["server"] |= {"before_utc": claimed, "after_utc": claimed}
    builder.write_line("j00001", 1, (1, 1), line)
    builder.write_line("j00001", 1, (1, 3), line).with_suffix(".status").write_text(
        json.dumps({"rc": 0, "started_utc": claimed})
    )
    (folder / "started.json").write_text(json.dumps({"started_utc": claimed}))
    seen_utc = "2026-11-21T02:00:40.000000Z"
    tag, nodes = builder.tag("j00001", 1), ["n1", "n2"]
    times = {"started_utc": claimed, "ended_utc": claimed, "utc": seen_utc}
    builder.journal("ended", tag=tag, outcome="completed", reason="", nodes=nodes, rc=0, measured=[], **times)
    load_run(database, builder.path, judge=judge)
    measured = "SELECT started_utc FROM v_results WHERE outcome = 'measured' ORDER BY repetition_no"
    assert ask(database, measured) == ["2026-11-21T02:00:02.000000Z", "2026-11-21T02:00:00.000000Z", seen_utc]
    said = ask(database, "SELECT message FROM warning WHERE name = 'clock_off' ORDER BY result_id")
    assert len(said) == 2
    assert words in said[0]
    assert said[1].endswith(f"{seen_utc} orders it")
    assert ask(database, "SELECT ended_utc FROM attempt") == [seen_utc]
    assert max(ask(database, "SELECT last_seen_utc FROM node_boot")) <= seen_utc
    found = ask(database, "SELECT message FROM v_findings WHERE rule = 'clock_off'")
    assert [one.startswith("n2: its clock is ") for one in found] == [True] * (0 if claimed.startswith("9999") else 2)
    assert rejudge(database, judge, VERSION + 1).changed_count == 0


@pytest.mark.promise("A driver's clock that is set back during a run believes no node that is years off.")
@pytest.mark.parametrize("claimed", ["9999-12-31T23:59:59.999999Z", "2099-01-01T00:00:00Z", "1970-01-01T00:12:00Z", None])
def test_a_driver_whose_clock_is_set_back(builder: RunBuilder, database: Path, claimed: str | None) -> None:
    builder.submit("j00001")
    builder.measure("j00001", steps=[])
    line = builder.line("j00001", (1, 1), started_utc=claimed)
    builder.write_line("j00001", 1, (1, 1), line).with_suffix(".status").write_text('{"rc": 0}')
    seen_utc = "2026-11-20T23:00:00.000000Z"  # three hours before it was submitted
    ended = {"outcome": "completed", "reason": "", "rc": 0, "measured": [], "utc": seen_utc}
    builder.journal("ended", tag=builder.tag("j00001", 1), nodes=["n1", "n2"], started_utc=claimed, ended_utc=claimed, **ended)
    load_run(database, builder.path, judge=judge)
    [started_utc] = ask(database, "SELECT started_utc FROM v_results WHERE outcome = 'measured'")
    assert "2026-11-20T23" <= started_utc < "2026-11-21T03"
    assert ask(database, "SELECT name FROM warning") == ["clock_off"]
    assert ask(database, "SELECT ended_utc < '2026-11-21T03' FROM attempt") == [1]


@pytest.mark.heavy
@pytest.mark.promise("One result with more names or values than a kernel can print costs the others nothing, and says so.")
def test_a_swollen_line_costs_the_others_nothing(builder: RunBuilder, database: Path) -> None:
    """40,000 metric names held a load for minutes; a million buckets became rows."""
    builder.submit("j00001")
    builder.measure("j00001", steps=[(1, 2)])
    line = builder.line("j00001", (1, 1))
    metrics = {**line["metrics"], **{f"invented_{number}_bps": 1.0 for number in range(40_000)}}
    warnings = [{"name": "w", "message": "m" * 500}] * 5000
    evidence = dict(line["evidence"])
    evidence["client"] = evidence["client"] | {"counters": {f"made.up.n{number}": 1 for number in range(70_000)}}
    swollen = {
        "metrics": metrics,
        "warnings": warnings,
        "granted": {f"g{number}": number for number in range(10_000)},
        "histogram": {"unit": "ns", "buckets": [[number, 1] for number in range(100_000)]},
        "series": {"interval_ms": 100, **{f"made_up_{number}_bps": [1.0] for number in range(10_000)}},
        "evidence": evidence,
    }
    builder.write_line("j00001", 1, (1, 1), line | swollen)
    builder.end("j00001")
    begun_s = time.process_time()
    assert load(database, builder).measured_count == 2
    assert time.process_time() - begun_s < 10
    names = "SELECT count(*) FROM metric_name n JOIN kernel k ON k.kernel_id = n.kernel_id WHERE k.name = 'tcp_stream'"
    assert ask(database, names) == [len(builder.kernels["tcp_stream"]["metrics"])]
    assert ask(database, "SELECT count(*) FROM v_histogram") == [3]
    assert ask(database, "SELECT count(*) FROM v_counters WHERE counter LIKE 'made.up%'") == [60_000]
    assert ask(database, "SELECT count(*) FROM evidence_name WHERE kind = 'interval' AND name LIKE 'made_up%'")[0] <= 32
    said = dict(ask(database, "SELECT name, message FROM warning WHERE name <> 'w'"))
    assert said["metrics_left_out"] == "40000 metrics, first invented_0_bps: the kernel's description lacks them"
    assert said["histogram_unusable"] == "100000 buckets: must be at most 4352"
    assert said["warnings_left_out"] == "4900 warnings beyond 100"
    assert {"counters_left_out", "granted_left_out", "series_left_out"} <= said.keys()
    assert min(ask(database, "SELECT json_bytes FROM evidence")) < 4000  # no place is kept for names of the swollen line


def test_the_most_buckets_are_those_of_the_c_program() -> None:
    header = (REPOSITORY / "kernels/c/base/histogram.h").read_text("utf-8")
    bits = dict(re.findall(r"HISTOGRAM_(OCTAVE|VALUE)_BITS = (\d+)", header))
    octave, value = int(bits["OCTAVE"]), int(bits["VALUE"])
    assert (value - octave + 1) << octave == cluster._BUCKETS_MAX


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"valid": False, "invalid_reason": "loss above 10 %", "exit_code": 1}, "loss above 10 %"),
    ({"valid": False, "invalid_reason": None}, "the kernel calls it invalid and does not say why"),
    ({"valid": "yes"}, "the kernel calls it invalid and does not say why"),
    ({"kernel": "udp_stream"}, "kernel udp_stream: planned tcp_stream"),
    ({"metrics": {}}, "no metrics in the line"),
    ({"metrics": {"throughput_bps": "fast"}}, "metric throughput_bps: fast is not a finite number"),
    ({"metrics": {"throughput_bps": True}}, "metric throughput_bps: true is not a finite number"),
    ({"metrics": {"throughput_bps": 10**400}}, "metric throughput_bps: 1000"),
    ({"metrics": [1]}, "no metrics in the line"),
]


@pytest.mark.heavy
@pytest.mark.parametrize(("changed", "reason"), CHANGES, ids=range(len(CHANGES)))
def test_a_line_that_contradicts_itself_is_invalid(
    builder: RunBuilder, database: Path, changed: dict[str, Any], reason: str
) -> None:
    builder.submit("j00001")
    rc = changed.get("exit_code", 0)
    builder.write_line("j00001", 1, (1, 1), builder.line("j00001", (1, 1), **changed), rc=rc)
    builder.end("j00001")
    assert load(database, builder).invalid_count == 1
    assert reasons(database, "invalid")[0].startswith(reason)
    assert ask(database, "SELECT count(*) FROM v_metrics") == [0]


@pytest.mark.promise(
    "A number of 400 digits, or a value of a wrong type, costs the other results nothing, wherever a node writes it."
)
@pytest.mark.parametrize(
    "number",
    ["1" + "0" * 400, "-" + "9" * 60, "1e999", "-1e999", "[]", '{"a": [1]}', "null", "true", '"many"', f'"{"9" * 400}"'],
)
def test_a_number_that_cannot_be_costs_the_others_nothing(builder: RunBuilder, database: Path, number: str) -> None:
    """It stands in every place of a line, of the facts and of the files of an attempt that holds a number or a word."""
    builder.submit("j00001")
    folder = builder.measure("j00001", steps=[(1, 2)])
    whole = builder.line("j00001", (1, 1))
    places = list(_leaves(whole))
    for repetition_no, keys in enumerate(places, start=3):
        changed = json.loads(json.dumps(whole))
        _put(changed, keys, "HERE")
        written = builder.write_line("j00001", 1, (1, repetition_no), {})
        written.write_text(json.dumps(changed).replace('"HERE"', number) + "\n")
    for name in ("started.json", "exit.json", "t1-r1.status", "facts-n1.json"):
        content = (
            builder.facts("n1") if name.startswith("facts") else {"rc": 0, "started_utc": "", "ended_utc": "", "reason": ""}
        )
        for keys in [keys for keys in _leaves(content) if not isinstance(_at(content, keys), (dict, list))]:
            _put(content, keys, "HERE")
        (folder / name).write_text(json.dumps(content).replace('"HERE"', number))
    builder.repetition_count = len(places) + 2
    builder.write_plan()
    builder.end("j00001")
    [loaded] = load_run(database, builder.path, judge=judge).clusters
    assert loaded.measured_count >= 1
    assert loaded.read_count == len(places) + 2
    assert ask(database, "SELECT count(*) FROM v_results WHERE value > 1e300 OR value < -1e300") == [0]


def _leaves(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    if path:
        yield path
    for key, value in inside:
        yield from _leaves(value, (*path, key))


def _at(content: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        content = content[key]
    return content


def _put(content: Any, path: tuple[Any, ...], value: object) -> None:
    _at(content, path[:-1])[path[-1]] = value


ECHOES: list[tuple[dict[str, Any], str]] = [
    ({"message_bytes": 1024}, "echo: message_bytes: planned 65536, the kernel used 1024"),
    ({"no_delay": 0}, "echo: no_delay: planned false, the kernel used 0"),
    ({"zero_copy": True}, "echo: zero_copy: not in the plan, the kernel used true"),
]


@pytest.mark.parametrize(("changed", "reason"), ECHOES)
def test_the_echo_must_equal_the_plan(builder: RunBuilder, database: Path, changed: dict[str, Any], reason: str) -> None:
    builder.submit("j00001")
    line = builder.line("j00001", (1, 1))
    builder.write_line("j00001", 1, (1, 1), {**line, "options": line["options"] | changed})
    lacking = {name: value for name, value in line["options"].items() if name != "duration_s"}
    builder.write_line("j00001", 1, (1, 2), {**line, "options": lacking})
    same = {**line["options"], "duration_s": float(line["options"]["duration_s"])}
    builder.write_line("j00001", 1, (1, 3), {**line, "options": same})
    builder.end("j00001")
    assert load(database, builder).measured_count == 1
    assert reason in reasons(database, "invalid")
    assert any("duration_s: planned 2, the kernel does not mention it" in found for found in reasons(database, "invalid"))


def test_the_exit_code_must_fit_the_line(builder: RunBuilder, database: Path) -> None:
    builder.submit("j00001")
    builder.write_line("j00001", 1, (1, 1), builder.line("j00001", (1, 1)), rc=1)
    builder.write_line("j00001", 1, (1, 2), builder.line("j00001", (1, 2)), rc=139)
    builder.end("j00001")
    load(database, builder)
    assert reasons(database, "invalid") == ["exit code 1, but the line says 0"]
    assert reasons(database, "failed") == ["exit code 139"]


@pytest.mark.promise("Each trial of a search is in the database, with the moment when it began.")
@pytest.mark.parametrize(
    ("begin_ms", "kept"),
    [([0, 612, 1230], [0, 612, 1230]), ([0, 612], []), ([0, 0, 5], []), ([-1, 0, 5], []), ([0, 1, "x"], [])],
)
def test_intervals_that_begin_when_they_like_say_when(
    builder: RunBuilder, database: Path, begin_ms: list[Any], kept: list[int]
) -> None:
    line = builder.line("j00001", (1, 1))
    line["series"] = {"interval_ms": 0, "begin_ms": begin_ms, "trial_rate_bps": [3e7, 2e7, 1e7]}
    builder.submit("j00001")
    builder.write_line("j00001", 1, (1, 1), line)
    builder.end("j00001")
    load(database, builder)
    assert ask(database, "SELECT begin_ms FROM v_intervals WHERE quantity = 'trial_rate_bps' ORDER BY 1") == kept
    assert ("series_unusable" in ask(database, "SELECT name FROM warning")) is not bool(kept)


def test_evidence_that_does_not_fit_is_a_warning_not_a_failure(builder: RunBuilder, database: Path) -> None:
    line = builder.line("j00001", (1, 1))
    line["evidence"]["client"]["counters"] |= {"wild.a": 2**64, "wild.b": "many", "wild.c": 1.5, "quiet": 0, "back": -7}
    line["evidence"]["client"]["gauges"] |= {"odd": [1, 2, 3], "word": "performance"}
    line["evidence"]["server"] = "none"
    line["duration_ns"] = 2**70
    line["samples"] = "later"
    line["histogram"] = {"unit": "furlong", "buckets": [[1, 2], "x"]}
    line["series"] = {"interval_ms": "often", "throughput_bps": [1e8]}
    line["warnings"] = ["text", {"name": "buffer_clipped", "message": "granted 212992"}]
    line["granted"] = []
    builder.submit("j00001")
    builder.write_line("j00001", 1, (1, 1), line)
    builder.end("j00001")
    assert load(database, builder).measured_count == 1
    names = ask(database, "SELECT name FROM warning ORDER BY 1")
    assert names == ["buffer_clipped", "evidence_missing", "evidence_unusable", "histogram_unusable", "series_unusable"]
    assert ask(database, "SELECT client_delta FROM v_evidence WHERE counter = 'back'") == [-7]
    assert ask(database, "SELECT count(*) FROM v_evidence WHERE counter IN ('quiet', 'wild.a')") == [0]
    assert ask(database, "SELECT duration_ns FROM result WHERE attempt_id IS NOT NULL") == [None]


def test_a_file_that_changes_later(builder: RunBuilder, database: Path) -> None:
    damaged(builder, b'{"format": 1, "opt')
    load(database, builder)
    [before] = ask(database, "SELECT result_id FROM v_results WHERE outcome = 'invalid'")
    path = builder.line_path("j00001", 1, 1, 1)
    path.write_text(json.dumps(builder.line("j00001", (1, 1))) + "\n")
    assert load(database, builder).measured_count == 1  # what a slow file system showed half is read again
    assert ask(database, "SELECT result_id FROM v_results WHERE outcome = 'measured'") == [before]
    path.write_text(json.dumps(builder.line("j00001", (1, 1), metrics={"throughput_bps": 1.0})) + "\n")
    kept = load(database, builder)
    assert "changed after it was loaded" in kept.notes[0]  # but a measured one is never replaced
    assert ask(database, "SELECT value > 2 FROM v_results WHERE outcome = 'measured'") == [1]


def test_files_beyond_the_plan_are_noted(builder: RunBuilder, database: Path) -> None:
    folder = builder.attempt("j00001")
    (folder / "t9-r1.json").write_text("{}")
    (folder / "t1-r1.json.part").write_text("{")
    (folder / "facts-n1.json").write_text("{broken")
    loaded = load(database, builder)
    assert loaded.measured_count == 6
    assert Counter(note.split(": ")[1].split(",")[0] for note in loaded.notes) == {"is not in the plan": 1, "not JSON": 1}


# -- folders that are not whole ---------------------------------------------------------------------------------------


def test_a_folder_that_is_no_run(tmp_path: Path, database: Path) -> None:
    with pytest.raises(StoreError, match=r"run\.json: cannot be read"):
        load_run(database, tmp_path)


@pytest.mark.parametrize("name", ["plan.json", "journal.jsonl"])
def test_a_broken_plan_or_journal_is_named_and_nothing_is_half(builder: RunBuilder, database: Path, name: str) -> None:
    builder.everything()
    path = builder.path / "alpha" / name
    whole = path.read_bytes()
    path.write_bytes(b'{"format": 1}\n' + whole[20:] if name.endswith("l") else b'{"format": 1}')
    with pytest.raises(StoreError, match=name):
        load(database, builder)
    assert ask(database, "SELECT count(*) FROM run") == [0]
    path.write_bytes(whole)
    assert load(database, builder).measured_count == 12


def test_a_run_without_build_yaml_or_facts_still_loads(builder: RunBuilder, database: Path) -> None:
    builder.everything()
    builder.folder.build("alpha").unlink()
    builder.folder.campaign_yaml.unlink()
    for path in builder.path.glob("alpha/jobs/*/1/facts-*"):
        path.unlink()
    assert load(database, builder).measured_count == 12
    assert ask(database, "SELECT count(*) FROM v_builds") == [0]


def test_hostile_names_are_only_names(tmp_path: Path, database: Path) -> None:
    names = ("a'; DROP TABLE result; --", 'b"$(x)\n{{7*7}}')
    builder = RunBuilder(tmp_path / "runs", pairs=(names, names[::-1]), campaign="<b>'\"")
    builder.submit("j00001")
    for step in builder.steps:
        builder.write_line("j00001", 1, step, builder.line("j00001", step))
    builder.end("j00001")
    assert load(database, builder).measured_count == 6
    assert ask(database, "SELECT DISTINCT client FROM v_results WHERE outcome = 'measured'") == [names[0]]


def test_another_build_than_recorded_is_said(builder: RunBuilder, database: Path) -> None:
    builder.submit("j00001")
    builder.write_line("j00001", 1, (1, 1), builder.line("j00001", (1, 1), build_id="net-9999"))
    builder.end("j00001")
    assert load(database, builder).measured_count == 1
    assert ask(database, "SELECT name FROM warning") == ["build_mismatch"]
    assert ask(database, "SELECT build_id FROM v_all_results WHERE outcome = 'measured'") == [None]
