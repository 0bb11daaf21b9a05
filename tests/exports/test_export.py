"""hpcq export: what other programs read of a run, read with those programs' own parsers."""

from __future__ import annotations

import csv
import errno
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hpcq.cli.main import run as hpcq
from hpcq.errors import UserError
from hpcq.exports import COLUMNS, Exported, collect, junit_text, prometheus_text
from hpcq.run_folder.paths import write_text
from hpcq.store.database import reading
from hpcq.store.load.cluster import load_run
from hpcq.store.selection import Selection
from hpcq.verdict.words import Verdict
from hpcq.visible import visible
from tests.store.run_folders import RunBuilder

pytestmark = pytest.mark.fast

#: Two pairs, two tests, three repetitions.
RESULTS = 12
GATED = """name: nightly
clusters: [alpha]
pairs: all
tests:
  - {kernel: tcp_stream, parameters: {message_bytes: 65536}}
  - {kernel: tcp_pingpong, parameters: {message_bytes: 64}}
gates:
  - {metric: throughput_bps, kernel: tcp_stream, minimum: BOUND}
"""


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A database with one run of which everything was measured."""
    builder = RunBuilder(tmp_path / "runs")
    builder.everything()
    load_run(tmp_path / "results.db", builder.path)
    return tmp_path / "results.db"


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """The same, but one pair was never tried and one line is no result."""
    builder = RunBuilder(tmp_path / "runs")
    builder.attempt("j00001", 1)
    builder.line_path("j00001", 1, 1, 1).write_text("")
    load_run(tmp_path / "results.db", builder.path)
    return tmp_path / "results.db"


def exported(database: Path, kind: str, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, int]:
    code = hpcq(["export", "--db", str(database), "--format", kind, *words])
    return capsys.readouterr().out, code


@pytest.mark.heavy
def test_csv_has_every_value_of_every_result(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, code = exported(whole, "csv", capsys)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert code == 0
    assert tuple(rows[0]) == COLUMNS
    with reading(whole) as database:
        known = {(row[0], row[1]): row[2] for row in database.execute("SELECT result_id, metric, value FROM v_metrics")}
    assert {(int(row["result_id"]), row["metric"]): float(row["value"]) for row in rows} == known
    assert len(rows) == len(known) > RESULTS


@pytest.mark.promise("An export has a row with its reason for every planned result that is not there.")
def test_a_result_that_is_missing_is_a_row_with_its_reason(torn: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.loads(line) for line in exported(torn, "jsonl", capsys)[0].splitlines()]
    lost = [row for row in rows if row["outcome"] != "measured"]
    assert len(lost) == 1 + RESULTS // 2
    assert all(row["reason"] and row["metric"] is None and row["value"] is None for row in lost)
    assert rows[0]["parameters"]["message_bytes"] == 65536


@pytest.mark.promise("Each row of a table for other programs says over which network it was measured.")
def test_a_row_names_its_network(torn: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with reading(torn) as database:
        known = {row[0]: (row[1], row[2]) for row in database.execute("SELECT result_id, network, network_name FROM v_results")}
    rows = [json.loads(line) for line in exported(torn, "jsonl", capsys)[0].splitlines()]
    assert {(row["network"], row["network_name"]) for row in rows} == set(known.values())
    assert all(known[row["result_id"]] == (row["network"], row["network_name"]) for row in rows)
    assert rows[0]["network"]


@pytest.mark.parametrize("formula", ['=cmd|"/c calc"!A1', " =1+1", "\uff1d1+1", "\n@SUM(A1)", "\t-2"])
def test_text_that_a_spreadsheet_would_run_is_quoted(formula: str) -> None:
    from hpcq.exports import csv_lines

    row = dict.fromkeys(COLUMNS, None) | {"reason": formula, "client": "n1\nn2", "value": -1.5}
    [_, read] = csv.reader(io.StringIO("".join(csv_lines([row]))))
    assert read[COLUMNS.index("reason")] == f"'{formula}"
    assert (read[COLUMNS.index("client")], read[COLUMNS.index("value")]) == ("n1\nn2", "-1.5")


def test_csv_is_what_the_csv_module_writes() -> None:
    from hpcq.exports import csv_lines

    texts = ["", " ", "a,b", 'say "no"', "n1\nn2", "n1\r\nn2", "n1\rn2", "\u00e4", "1e5", "'", '""', "{}", '{"a": 1}']
    numbers: list[object] = [0, -1, 10**18, 0.1, 1e-9, 1e300, -0.0, 2.0, None]
    rows = [dict.fromkeys(COLUMNS, text) | {"value": number} for text in texts for number in numbers]
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\r\n")
    writer.writerows([COLUMNS, *([row[name] for name in COLUMNS] for row in rows)])
    assert "".join(csv_lines(rows)) == written.getvalue()


@pytest.mark.promise("No word from elsewhere costs a collector the Prometheus file, nor a CI system the JUnit file.")
def test_words_of_nodes_leave_the_files_readable(whole: Path) -> None:
    """Of `\\` in a label Prometheus takes `\\\\`, `\\"` and `\\n` only; XML has no U+FFFE."""
    with reading(whole) as database:
        found: Exported = collect(database, Selection(run="nightly-20261121T020000Z-00ff"))
    words = 'eth\x1b[31m\u202e\\ "0"\r\n\ufffe'
    hostile = replace(found, summaries=tuple(replace(row, network=words, variant=words) for row in found.summaries))
    text = visible(prometheus_text(hostile))
    assert not re.search(r'\\[^\\"n]', text.replace("\\\\", ""))
    [name] = {
        sample.labels["network"]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "network" in sample.labels
    }
    assert name == visible(words.replace("\r\n", "\n"))
    assert ET.fromstring(visible(junit_text(hostile))) is not None


def gated(tmp_path: Path, bound: str) -> Path:
    builder = RunBuilder(tmp_path / "runs")
    write_text(builder.folder.campaign_yaml, GATED.replace("BOUND", bound))
    builder.everything()
    load_run(tmp_path / "results.db", builder.path)
    return tmp_path / "results.db"


@pytest.mark.parametrize(("bound", "failures", "code"), [("1k", 0, 0), ("900T", 2, 3)])
def test_junit_counts_what_its_cases_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bound: str, failures: int, code: int
) -> None:
    text, found = exported(gated(tmp_path, bound), "junit", capsys)
    [suite, whole] = ET.fromstring(text).findall("testsuite")
    assert found == code
    assert (len(whole.findall("testcase")), len(whole.findall("testcase/failure"))) == (1, int(code == 3))
    assert int(suite.get("tests", "")) == len(suite.findall("testcase")) == 4 + 2
    assert int(suite.get("failures", "")) == len(suite.findall("testcase/failure")) == failures
    assert suite.get("errors") == suite.get("skipped") == "0"
    assert all("must be" in one.get("message", "") for one in suite.findall("testcase/failure"))


@pytest.mark.promise("JUnit calls a result that was planned and not measured an error.")
def test_junit_calls_what_is_missing_an_error(torn: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, code = exported(torn, "junit", capsys)
    [suite, run] = ET.fromstring(text).findall("testsuite")
    assert code == 4
    assert run.findall("testcase/skipped")[0].get("message", "").startswith("INCONCLUSIVE: ")
    assert int(suite.get("errors", "")) == len(suite.findall("testcase/error")) == 1 + RESULTS // 2


def test_prometheus_reads_every_median(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, code = exported(whole, "prometheus", capsys)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert code == 0, "nothing judges this run, and all of it is there"
    words = {one.labels["verdict"]: one.value for one in families["hpcq_verdict"].samples}
    assert words == {word: word == "not_judged" for word in Verdict}
    with reading(whole) as database:
        summaries = collect(database, Selection(run="nightly-20261121T020000Z-00ff")).summaries
    read = {
        (family.name, sample.labels["client"], sample.labels["server"]): sample.value
        for family in families.values()
        for sample in family.samples
        if "client" in sample.labels
    }
    assert read == {(f"hpcq_{row.metric}", row.client, row.server): row.median for row in summaries}
    assert families["hpcq_measured_results"].samples[0].value == RESULTS


@pytest.mark.promise("A Prometheus file of more pairs than a scrape should hold has the main metrics by node instead.")
def test_prometheus_refuses_more_series_than_a_scrape_should_hold(whole: Path) -> None:
    with reading(whole) as database:
        found: Exported = collect(database, Selection(run="nightly-20261121T020000Z-00ff"))
    many = replace(found, summaries=found.summaries * 5)  # the same medians, of five times as many pairs
    families = {one.name: one for one in text_string_to_metric_families(prometheus_text(many, series_at_most=15))}
    assert not [name for name in families if f"hpcq_{found.summaries[0].metric}" == name]
    by_node: dict[tuple[str, str, str], list[float]] = {}
    for row in found.summaries:
        for node in (row.client, row.server) if row.main else ():
            by_node.setdefault((f"hpcq_node_{row.metric}", row.kernel, node), []).append(row.median)
    read = {
        (family.name, sample.labels["kernel"], sample.labels["node"]): sample.value
        for family in families.values()
        for sample in family.samples
        if "node" in sample.labels
    }
    assert read == {key: median(values) for key, values in by_node.items()}
    with pytest.raises(UserError, match="at most 3"):
        prometheus_text(found, series_at_most=3)


@pytest.mark.promise("An export of an incomplete run exits with 4.")
def test_markdown_says_what_was_seen_first(torn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, code = exported(torn, "markdown", capsys)
    assert code == 4
    said = f"**INCONCLUSIVE**: no gate and no history judges what was measured. 5 of {RESULTS} planned results measured."
    assert text.splitlines()[2] == said
    assert text.splitlines()[3] == f"- {RESULTS - 5} of {RESULTS} planned results are not there"
    assert "### Not measured" in text


@pytest.mark.heavy
def test_markdown_passes_only_what_is_judged(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "**NOT JUDGED**: no gate and no history judges this run." in exported(whole, "markdown", capsys)[0]
    assert "**PASS**: 2 gates judged: 2 PASS." in exported(gated(tmp_path / "gated", "1k"), "markdown", capsys)[0]


@pytest.mark.heavy
@pytest.mark.promise("An exported file is written whole or not at all.")
def test_a_file_is_written_whole_or_not_at_all(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out.csv"
    assert exported(whole, "csv", capsys, "--to", str(target)) == ("", 0)
    assert target.read_bytes().startswith(b"run,campaign,")
    assert hpcq(["export", "--db", str(whole), "--format", "csv", "--to", str(tmp_path / "no" / "out.csv")]) == 2
    said = capsys.readouterr().err
    assert "cannot be written: No such file or directory" in said
    assert "hint:" in said
    assert sorted(path.name for path in tmp_path.iterdir() if "out" in path.name) == ["out.csv"]


def test_a_name_that_the_run_has_not_is_refused(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hpcq(["export", "--db", str(whole), "--format", "csv", "--node", "n9"]) == 2
    assert "--node" in capsys.readouterr().err


@pytest.mark.promise("No verb writes over a database.")
@pytest.mark.parametrize(
    "words",
    [
        "export --format csv --to",
        "report --to",
        "report --node n1 --to",
        "export --format grafana --to",
        "health write",
        "plot curve -o",
        "db export-notes",
    ],
)
def test_no_verb_writes_over_a_database(whole: Path, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One slip of --to and --db, and years of results were gone."""
    before = whole.read_bytes()
    other = whole.with_name("other.svg")
    other.write_bytes(before)
    assert hpcq([*words.split(), str(other), "--db", str(whole)]) == 2
    assert f"{other}: is a database: it is not written over" in capsys.readouterr().err
    assert other.read_bytes() == before
    assert whole.read_bytes() == before


@pytest.mark.heavy
@pytest.mark.promise("No verb writes over what SQLite keeps beside a database, or puts a file in its place.")
@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
def test_no_verb_writes_a_file_that_belongs_to_a_database(whole: Path, end: str, capsys: pytest.CaptureFixture[str]) -> None:
    """SQLite would take it for its own: what was committed last is in `-wal`."""
    beside = whole.with_name(f"{whole.name}{end}")
    before = beside.read_bytes() if beside.exists() else None
    assert hpcq(["export", "--format", "csv", "--to", str(beside), "--db", str(whole)]) == 2
    assert f"{beside}: belongs to the database {whole.name} beside it" in capsys.readouterr().err
    assert (beside.read_bytes() if beside.exists() else None) == before
    for name in (f"other{end}", end):
        assert hpcq(["export", "--format", "csv", "--to", str(whole.with_name(name)), "--db", str(whole)]) == 0


@pytest.mark.promise("hpcq does not overwrite a file that it cannot read: it may be a database.")
def test_what_cannot_be_read_is_not_written_over(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = whole.with_name("other.csv")
    other.write_bytes(whole.read_bytes())
    real = Path.open

    def refuse(path: Path, *words: Any, **more: Any) -> Any:
        if path == other:
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *words, **more)

    monkeypatch.setattr(Path, "open", refuse)
    assert hpcq(["export", "--format", "csv", "--to", str(other), "--db", str(whole)]) == 2
    monkeypatch.undo()
    assert other.read_bytes() == whole.read_bytes()


@pytest.mark.promise("A number that no row of a database can have is refused.")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("history 99999999999999999999", "'99999999999999999999' is not a series"),
        ("history \N{SUPERSCRIPT TWO}", "'\N{SUPERSCRIPT TWO}' is not a series"),
        ("annotate result 99999999999999999999 note", "'99999999999999999999' is not the number of a result"),
        ("annotate result \N{SUPERSCRIPT TWO} note", "'\N{SUPERSCRIPT TWO}' is not the number of a result"),
        (f"history {'9' * 5000}", "9' is not a series"),
        (f"annotate result {'9' * 5000} note", "9' is not the number of a result"),
        ("show 99999999999999999999", "'99999999999999999999': must be a whole number from 1 upwards"),
    ],
)
def test_a_number_that_none_has_is_refused(whole: Path, words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert hpcq([*words.split(), "--db", str(whole)]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_is_no_database(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["runs", "--db", ""], ["db", "merge", "", "--db", str(whole)]):
        assert hpcq(words) == 1
        assert ".: is a folder: must be the file of a database" in capsys.readouterr().err
