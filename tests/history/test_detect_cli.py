"""`hpcq detect` and `hpcq blame` on files: what they print, what they refuse, how they exit."""

from __future__ import annotations

import io
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcq.cli.main import run
from hpcq.definition.files.campaign import read_campaign
from tests.described.descriptions import RATE, write
from tests.history.histories import History

pytestmark = pytest.mark.fast


@pytest.fixture
def table(tmp_path: Path) -> Any:
    def write(text: str | bytes, name: str = "table.csv") -> str:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return write


def drop_series() -> str:
    random = np.random.default_rng(1)
    steady, dropped = 1e9 * (1 + 0.01 * random.standard_normal((2, 60)))
    dropped[40:] *= 0.9
    return "\n".join(["n1-n2,n3-n4", *(f"{a:.0f},{b:.0f}" for a, b in zip(steady, dropped, strict=True))]) + "\n"


def pairs_text(slow: str = "n3", nodes: int = 8) -> str:
    random = np.random.default_rng(2)
    rows = ["round,node_a,node_b,value"]
    for turn in range(nodes - 1):
        line = [0, *np.roll(np.arange(1, nodes), turn)]
        for i in range(nodes // 2):
            a, b = f"n{line[i]}", f"n{line[nodes - 1 - i]}"
            rows.append(f"{turn},{a},{b},{(80 if slow in (a, b) else 100) * (1 + 0.01 * random.standard_normal()):.3f}")
    return "\n".join(rows) + "\n"


def as_json(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("title", ["time", "Date", "utc"])
def test_a_column_that_is_called_time_is_one(table: Any, capsys: pytest.CaptureFixture[str], title: str) -> None:
    rows = "".join(f"2026-07-{day:02d},{100 if day < 20 else 60}\n" for day in range(31, 0, -1))
    assert run(["detect", "--json", table(f"{title},throughput_bps\n{rows}")]) == 3
    (found,) = as_json(capsys)["series"]
    assert (found["name"], found["cuts"]) == ("throughput_bps", [19])


@pytest.mark.parametrize("per_s", [1, 1000], ids=["seconds", "milliseconds"])
def test_seconds_since_1970_are_times_and_run_times_are_not(table: Any, capsys: pytest.CaptureFixture[str], per_s: int) -> None:
    rows = "".join(f"{(1_760_000_000 + 86400 * day) * per_s},{100 if day < 20 else 60}\n" for day in range(31))
    assert run(["detect", "--json", table(f"timestamp,throughput_bps\n{rows}")]) == 3
    (found,) = as_json(capsys)["series"]
    assert (found["name"], found["changes"][0]["time_utc"]) == ("throughput_bps", "2025-10-29T08:53:20Z")
    assert run(["detect", "--json", table("time\n" + "".join(f"{12.5 + one % 3}\n" for one in range(31)))]) == 0
    assert [one["name"] for one in as_json(capsys)["series"]] == ["time"]
    assert run(["detect", "--json", table("time\n" + "".join(f"{2.5e9 + 1e7 * (one % 3)}\n" for one in range(31)))]) == 0
    assert [one["name"] for one in as_json(capsys)["series"]] == ["time"], "run times in ns"


def test_detect_json(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["detect", "--json", "--better", "higher", table(drop_series())]) == 3
    found = as_json(capsys)
    assert [one["name"] for one in found["series"]] == ["n1-n2", "n3-n4"]
    assert [(one["verdict"], one["count"], one["cuts"]) for one in found["series"]] == [
        ("pass", 60, []),
        ("degraded", 60, [40]),
    ]
    assert found["series"][0]["changes"] == []
    [change] = found["series"][1]["changes"]
    assert list(change) == ["kind", "index", "end", "line", "before", "after", "effect_ratio", "low", "high", "ended"]
    assert (change["kind"], change["index"], change["end"], change["line"], change["ended"]) == ("step", 40, 60, 42, None)
    assert change["low"] <= change["effect_ratio"] <= change["high"]
    assert change["effect_ratio"] == pytest.approx(0.9, abs=0.01)


def test_detect_text_says_line_and_size(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(["detect", "--better", "higher", table(drop_series())])
    text = capsys.readouterr().out
    assert "n3-n4: 60 values, higher is better, 1 change" in text
    assert "worse since index 40 (line 42)" in text
    assert "% lower (95 % range" in text
    assert "1 of 2 series changed" in text


def test_detect_direction_decides_the_exit_code(table: Any) -> None:
    file = table(drop_series())
    assert [run(["detect", "--better", word, file]) for word in ("higher", "lower", "none")] == [3, 0, 3]


@pytest.mark.parametrize(
    ("boundary", "better", "expected"),
    [
        (40, "higher", (["pass", "degraded"], 3)),
        (40, "lower", (["pass", "pass"], 0)),
        (59, "higher", (["inconclusive", "inconclusive"], 4)),
    ],
)
def test_boundary(
    table: Any, capsys: pytest.CaptureFixture[str], boundary: int, better: str, expected: tuple[list[str], int]
) -> None:
    verdicts, code = expected
    assert run(["detect", "--json", "--boundary", str(boundary), "--better", better, table(drop_series())]) == code
    assert [one["verdict"] for one in as_json(capsys)["series"]] == verdicts
    run(["detect", "--boundary", str(boundary), "--better", better, table(drop_series())])
    assert verdicts[1] in capsys.readouterr().out


def test_detect_reads_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(["5"] * 20 + ["6"] * 20)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert run(["detect", "--json", "--better", "higher", "-"]) == 0
    [found] = as_json(capsys)["series"]
    assert (found["name"], found["verdict"]) == ("column_1", "pass")
    effect = {"before": 5.0, "after": 6.0, "effect_ratio": 1.2, "low": 1.2, "high": 1.2}
    assert found["changes"] == [{"kind": "step", "index": 20, "end": 40, "line": 21, **effect, "ended": None}]


def test_missing_values_keep_their_rows(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\ufeffa\r\n" + "5\r\n" * 10 + "\r\nNaN\r\n" + "5\r\n" * 10 + "6\r\n" * 20 + "\r\n"
    run(["detect", "--json", "--better", "none", table(text)])
    assert as_json(capsys)["series"][0]["changes"][0]["index"] == 22


@pytest.mark.parametrize("mark", [";", "\t"])
def test_other_separators(table: Any, capsys: pytest.CaptureFixture[str], mark: str) -> None:
    run(["detect", "--json", "--better", "none", table(f"a{mark}b\n" + f"1{mark}2\n" * 9)])
    assert [one["name"] for one in as_json(capsys)["series"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", ":1: rows: none"),
        ("\n\n", ":1: rows: none"),
        ("a,b\n", ":1: rows: none"),
        ("a,b\n1,2\n1\n", ":3: row: 1 cell: 2 are needed"),
        ("1,2\n1,2,3\n", ":2: row: 3 cells: 2 are needed"),
        ("a,b\n1,2\n1,x\n", ":3: b: 'x': a finite number"),
        ("a\n1\ninf\n", ":3: a: 'inf': a finite number"),
        ("a,1\n1,2\n", ":1: header: 'a' beside '1'"),
        ("a,a\n1,2\n", ":1: header: 'a' twice"),
        (b"a\n1\n\xff\n", ":3: text: byte 0xff: UTF-8"),
        (b"a\n1\n\x00\n", ":3: text: a NUL byte"),
        ('a\n"1\n', ": must be valid CSV"),
    ],
)
def test_bad_series_files(table: Any, capsys: pytest.CaptureFixture[str], text: str | bytes, complaint: str) -> None:
    file = table(text)
    assert run(["detect", file]) == 2
    error = capsys.readouterr().err
    assert f"error: {file}" in error
    assert complaint in error


def columns_of(series: dict[str, list[float]], value: str = "round_trip_p50_ns") -> str:
    """A CSV with one value per row, the newest first: time, node, a text, value."""
    rows = [
        f"2026-{1 + night // 28:02d}-{1 + night % 28:02d},{node},ok,{one:.6g}"
        for node, values in series.items()
        for night, one in enumerate(values)
    ]
    return "\n".join(["night,node,state," + value, *sorted(rows, reverse=True)]) + "\n"


def test_columns_by_name_dates_and_direction(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(3)
    steady, worse = 20_000 * (1 + 0.01 * random.standard_normal((2, 56)))
    worse[28:] *= 1.3
    words = ["detect", "--time", "night", "--value", "round_trip_p50_ns", "--by", "node"]
    file = table(columns_of({"n1": list(steady), "n2": list(worse)}))
    assert run([*words, file]) == 3
    text = capsys.readouterr().out
    assert text.startswith("2 series judged: 1 PASS, 1 DEGRADED\n")
    assert "n2: 56 values, lower is better, 1 change\n  worse since 2026-02-01 (line " in text
    assert "n1: 56 values, lower is better, no change" in text
    assert run([*words, "--json", file]) == 3
    [slower] = [one for one in as_json(capsys)["series"] if one["verdict"] == "degraded"]
    assert (slower["name"], slower["better"]) == ("n2", "lower")
    assert slower["changes"][0]["time_utc"] == "2026-02-01T00:00:00Z"
    assert run([*words, "--boundary", "28", file]) == 3
    assert "degraded     n2: clearly worse than before" in capsys.readouterr().out


def test_a_ramp_is_no_pass(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(4)
    values = np.linspace(9e9, 5.76e9, 120) * (1 + 0.01 * random.standard_normal(120))
    assert run(["detect", table("throughput_bps\n" + "\n".join(f"{one:.0f}" for one in values))]) == 3
    text = capsys.readouterr().out
    assert "worse drifts by -3" in text
    assert "% over 120 values from index 0 (line 2) to index 119 (line 121)" in text


def test_a_newest_value_far_off_is_no_pass(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(5)
    values = [*(100 * (1 + 0.01 * random.standard_normal(119))), 30.0]
    assert run(["detect", table("bandwidth\n" + "\n".join(map(str, values)))]) == 4
    assert "the newest value lies far off, but 3 make a level: measure again (" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("2026-11-24", "2026-11-24"),
        ("2026-11-24T03:00:00+01:00", "2026-11-24T02:00:00Z"),
        ("2026.11.24 3:00:00 +0100", "2026-11-24T02:00:00Z"),
        ("24.11.2026 03:00", "2026-11-24T03:00:00Z"),
        ("1795489200", "2026-11-24T03:00:00Z"),
    ],
)
def test_times_are_read_in_the_usual_forms(table: Any, capsys: pytest.CaptureFixture[str], cell: str, shown: str) -> None:
    rows = "".join(f"{cell},{5 + i % 2 + 4 * (i >= 10)}\n" for i in range(20))
    run(["detect", "--time", "at", table("at,latency\n" + rows)])
    assert f"worse since {shown} (line 12)" in capsys.readouterr().out


def two_clusters(label: str = "n") -> str:
    """Two clusters of two nodes, 40 nights; node 2 of `b` loses a fifth on the last six. In CET, and in no order."""
    random = np.random.default_rng(6)
    rows = [
        f"2026-{1 + night // 28:02d}-{1 + night % 28:02d}T01:30:00+01:00,{cluster},{label}{node},"
        f"{9e9 * (1 + 0.01 * random.standard_normal()) * (0.8 if (cluster, node) == ('b', 2) and night >= 34 else 1):.0f}"
        for night in range(40)
        for cluster in "ab"
        for node in (1, 2)
    ]
    random.shuffle(rows)
    return "\n".join(["measured,cluster,node,Bandwidth [bit/s]", *rows]) + "\n"


@pytest.mark.promise("`detect` keeps apart what --by names, also the clusters of one file.")
def test_two_clusters_in_one_file(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["detect", "--by", "cluster", "--by", "node", table(two_clusters())]) == 3
    text = capsys.readouterr().out
    assert text.startswith("4 series judged: 3 PASS, 1 DEGRADED\n")
    assert "b n2: 40 values, higher is better, 1 change\n  worse since 2026-02-07T00:30:00Z (line " in text


@pytest.mark.promise("`detect` makes no series of rows that a column tells apart: the slow node would hide among the others.")
@pytest.mark.parametrize("label", ["n", ""])
@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--value", "Bandwidth [bit/s]"], "--by cluster --by node makes a series of each"),
        (["--value", "Bandwidth [bit/s]", "--by", "node"], "--by cluster makes a series of each"),
        (["--by", "cluster"], "--by node makes a series of each"),
    ],
)
def test_nodes_are_not_mixed(table: Any, capsys: pytest.CaptureFixture[str], label: str, words: list[str], hint: str) -> None:
    assert run(["detect", *words, table(two_clusters(label))]) == 2
    assert f"hint: {hint}" in capsys.readouterr().err


def test_a_column_of_words_that_says_nothing_of_the_series_may_stand_beside(table: Any) -> None:
    rows = "".join(f"2026-07-{day:02d},{100 if day < 20 else 60},{'ok' if day % 5 else 'late'},4\n" for day in range(1, 31))
    assert run(["detect", "--value", "rate", table(f"day,rate,state,repetitions\n{rows}")]) == 3


def test_decimal_commas_between_semicolons(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{day:02d}.07.2026;{100 if day < 20 else 60},5\n" for day in range(1, 31))
    assert run(["detect", "--json", table(f"Tag;Durchsatz [Gbit/s]\n{rows}")]) == 3
    (change,) = as_json(capsys)["series"][0]["changes"]
    assert (change["before"], change["after"], change["time_utc"]) == (100.5, 60.5, "2026-07-20T00:00:00Z")
    assert run(["detect", "--value", "rate", table("rate;n\n9,5;1.0\n")]) == 2, "both marks: nobody knows"


@pytest.mark.parametrize(
    ("cell", "hint"),
    [
        ('"9,5"', "a decimal comma needs semicolons between the cells"),
        ('"1,234,567"', "numbers have no separators of thousands"),
        ("9.5 Gbit/s", "a unit stands in the header, not beside each number"),
    ],
)
def test_numbers_that_are_none_say_what_to_change(table: Any, capsys: pytest.CaptureFixture[str], cell: str, hint: str) -> None:
    assert run(["detect", table(f"date,rate\n2026-07-01,{cell}\n")]) == 2
    assert hint in capsys.readouterr().err


def test_a_date_that_may_be_two_days_is_refused(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["detect", "--time", "at", table("at,rate\n01/02/2026,5\n")]) == 2
    assert "hint: of 01/02/2026 nobody knows which is the month" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--time", "nigth"], ":1: header: no column 'nigth': night, node, state, round_trip_p50_ns"),
        (["--time", "state", "--value", "round_trip_p50_ns"], ": state: 'ok': a time such as 2026-11-24"),
        (["--time", "night", "--by", "node"], ": state: 'ok': a finite number"),
        (
            ["--by", "night", "--by", "node", "--by", "state", "--by", "round_trip_p50_ns"],
            ":1: header: no column is left for values",
        ),
        (["--value", "state"], ": state: 'ok': a finite number"),
        ([], ":2: node: 'n1': a finite number, or a column for --by"),
    ],
)
def test_bad_columns(table: Any, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str) -> None:
    file = table(columns_of({"n1": [20e3, 21e3]}))
    assert run(["detect", *words, file]) == 2
    assert f"error: {file}" in (error := capsys.readouterr().err)
    assert complaint in error
    assert words or "hint: --by node --by state makes a series of each; --value names the columns of values" in error


@pytest.mark.promise("`detect` asks for the direction that no name tells.")
def test_a_direction_that_no_name_tells_is_asked_for(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["detect", file := table(drop_series())]) == 2
    error = capsys.readouterr().err
    assert f"error: {file}: --better: nothing: higher, lower or none, since 'n1-n2' does not tell which is good" in error


@pytest.mark.parametrize("boundary", ["0", "60", "x"])
def test_bad_boundary(table: Any, boundary: str) -> None:
    assert run(["detect", "--boundary", boundary, table(drop_series())]) == 2


def test_no_such_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["detect", str(tmp_path / "none.csv")]) == 2
    assert run(["detect", str(tmp_path)]) == 2
    assert "none.csv: No such file" in capsys.readouterr().err


def test_blame_json(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["blame", "--json", "--pairs", table(pairs_text())]) == 3
    found = as_json(capsys)
    assert (found["nodes"], found["links"], found["groups"], found["undecided"], found["next_pairs"]) == (
        ["n3"],
        [],
        [],
        False,
        [],
    )


def test_blame_text(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(["blame", "--pairs", table(pairs_text())])
    assert "node   n3: 19.4 % slower than healthy (18.8 to 20.0 %), slow in 7 of 7 results" in capsys.readouterr().out
    assert run(["blame", "--pairs", table(pairs_text("nobody"))]) == 0
    assert "Nobody is slow: none by 4.2 % or more, and less was not looked for." in capsys.readouterr().out


def test_blame_undecided_prints_pairs(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = table("1,a,c,100\n1,b,d,101\n2,a,b,60\n")
    assert run(["blame", "--pairs", file]) == 4
    assert "These pairs would settle it:\n  a b" in capsys.readouterr().out
    assert run(["blame", "--json", "--pairs", file]) == 4
    assert as_json(capsys)["next_pairs"][0] == ["a", "b"]


def test_blame_groups_and_column_order(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.split(",") for line in pairs_text().splitlines()]
    turned = "\n".join(",".join([line[3], "x", *line[:3]]) for line in lines)
    groups = table("node,group\n" + "".join(f"n{i},leaf{i // 4}\n" for i in range(8)), "groups.csv")
    assert run(["blame", "--json", "--pairs", table(turned), "--groups", groups]) == 3
    assert as_json(capsys)["nodes"] == ["n3"]


GATE = "  - {metric: throughput_bps, minimum: 1}"
CAMPAIGN = (
    "name: nightly\nclusters: [alpha, beta]\npairs: all\ntests: [{kernel: tcp_stream, parameters: {message_bytes: 65536}}]\n"
)


def test_a_doubt_becomes_a_campaign(table: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    doubt, like, target = table("1,a,c,100\n1,b,d,101\n2,a,b,60\n"), table(CAMPAIGN, "like.yaml"), tmp_path / "next.yaml"
    words = ["blame", "--pairs", doubt, "--campaign", str(target)]
    assert run(words) == 2
    assert run([*words, "--like", like]) == 2
    assert "choose one with --cluster" in capsys.readouterr().err
    assert not target.exists()
    assert run([*words, "--like", like, "--cluster", "beta"]) == 4
    assert f"run them with: hpcq run {target}" in capsys.readouterr().out
    made = read_campaign(target)
    assert (made.clusters, made.pairs.pairs[0], made.tests[0].parameters["message_bytes"]) == (("beta",), ("a", "b"), 65536)
    assert len(set(made.pairs.pairs)) == len(made.pairs.pairs)
    assert run([*words, "--like", like, "--cluster", "beta"]) == 2, "a file that is there is not written over"
    settled = table(pairs_text(), "settled.csv")
    other = tmp_path / "other.yaml"
    assert run(["blame", "--pairs", settled, "--campaign", str(other), "--like", like, "--cluster", "beta"]) == 3
    assert not other.exists()


@pytest.mark.promise("The campaign that blame writes can run where it lies: descriptions that it needs are beside it.")
def test_a_campaign_of_blame_has_its_descriptions_beside_it(table: Any, tmp_path: Path) -> None:
    doubt = table("1,a,c,100\n1,b,d,101\n2,a,b,60\n")
    like = tmp_path / "site" / "like.yaml"
    like.parent.mkdir()
    write(like.parent, RATE)
    like.write_text("name: like\nclusters: [beta]\npairs: all\ntests: [{kernel: foreign_rate}, {kernel: iperf3_tcp}]\n")
    target = tmp_path / "elsewhere" / "next.yaml"
    target.parent.mkdir()
    assert run(["blame", "--pairs", doubt, "--campaign", str(target), "--like", str(like)]) == 4
    assert [test.kernel for test in read_campaign(target).tests] == ["foreign_rate", "iperf3_tcp"]
    beside = sorted(path.name for path in (target.parent / "kernels").iterdir())
    assert beside == ["foreign_rate.yaml"], "what comes with hpcq is found anywhere"


@pytest.mark.heavy
def test_blame_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [f"n{number}" for number in range(1, 7)]
    history = History(tmp_path, pairs=list(combinations(nodes, 2)))
    database = ["--db", str(history.database)]
    first = history.night(0, levels={"n3": 0.8}, pairs=[("n1", "n2"), ("n3", "n4"), ("n5", "n6")], gates=GATE)
    target = tmp_path / "next.yaml"
    assert run(["blame", "--run", "latest", *database, "--campaign", str(target), "--json"]) == 4
    asked = [tuple(pair) for pair in as_json(capsys)["next_pairs"]]
    made = read_campaign(target)
    assert (made.name, made.clusters, list(made.pairs.pairs)) == ("nightly", ("alpha",), list(dict.fromkeys(asked)))
    second = history.night(1, levels={"n3": 0.8}, pairs=list(made.pairs.pairs), repetitions=2)
    assert run(["blame", "--run", first, "--run", second, *database, "--json"]) == 3
    assert as_json(capsys)["nodes"] == ["n3"]
    assert run(["blame", "--run", first, *database, "--cluster", "gamma"]) == 2
    assert "'gamma': alpha were measured" in capsys.readouterr().err
    assert run(["blame", *database]) in {3, 4}, "without anything it is the latest run"
    assert "of" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", ":1: rows: none"),
        ("1,a,b\n", ":1: row: 3 cells: 4 are needed"),
        ("1,a,b,5\n1,c,d\n", ":2: row: 3 cells: 4 are needed"),
        ("1,a,b,x\n", ":1: value: 'x'"),
        ("1,a,b,-1\n", ":1: value: -1: a number of at least 0"),
        ("1,a,a,5\n", ":1: node_b: a: must be a node other than node_a"),
        ("1,,b,5\n", ":1: node_a: nothing"),
        ("round,node_a,value\n1,a,5\n", ":1: header: no column node_b"),
        (b"1,a,b,5\n1,\xe9,b,5\n", ":2: text: byte 0xe9"),
    ],
)
def test_bad_pair_files(table: Any, capsys: pytest.CaptureFixture[str], text: str | bytes, complaint: str) -> None:
    assert run(["blame", "--pairs", table(text)]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", ":1: rows: none"),
        ("n1\n", ":1: row: 1 cell: 2 are needed"),
        ("n1,\n", ":1: group: nothing"),
        ("n1,a\nn1,b\n", ":2: group: n1 in b"),
    ],
)
def test_bad_group_files(table: Any, capsys: pytest.CaptureFixture[str], text: str, complaint: str) -> None:
    assert run(["blame", "--pairs", table(pairs_text()), "--groups", table(text, "groups.csv")]) == 2
    assert complaint in capsys.readouterr().err
