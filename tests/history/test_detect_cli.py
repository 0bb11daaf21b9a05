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


def test_detect_json(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["detect", "--json", table(drop_series())]) == 3
    found = as_json(capsys)
    assert [one["name"] for one in found["series"]] == ["n1-n2", "n3-n4"]
    assert found["series"][0]["changes"] == []
    [change] = found["series"][1]["changes"]
    assert set(change) == {"index", "before", "after", "effect_ratio", "low", "high"}
    assert change["index"] == 40
    assert change["low"] <= change["effect_ratio"] <= change["high"]
    assert change["effect_ratio"] == pytest.approx(0.9, abs=0.01)


def test_detect_text_says_line_and_size(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(["detect", table(drop_series())])
    text = capsys.readouterr().out
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
    assert run(["detect", "--json", "-"]) == 0
    assert as_json(capsys)["series"][0] == {
        "name": "column_1",
        "verdict": "pass",
        "changes": [{"index": 20, "before": 5.0, "after": 6.0, "effect_ratio": 1.2, "low": 1.2, "high": 1.2}],
    }


def test_missing_values_keep_their_rows(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\ufeffa\r\n" + "5\r\n" * 10 + "\r\nNaN\r\n" + "5\r\n" * 10 + "6\r\n" * 20 + "\r\n"
    run(["detect", "--json", table(text)])
    assert as_json(capsys)["series"][0]["changes"][0]["index"] == 22


@pytest.mark.parametrize("mark", [";", "\t"])
def test_other_separators(table: Any, capsys: pytest.CaptureFixture[str], mark: str) -> None:
    run(["detect", "--json", table(f"a{mark}b\n" + f"1{mark}2\n" * 9)])
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
        ('a\n"1\n', ": row: "),
    ],
)
def test_bad_series_files(table: Any, capsys: pytest.CaptureFixture[str], text: str | bytes, complaint: str) -> None:
    file = table(text)
    assert run(["detect", file]) == 2
    error = capsys.readouterr().err
    assert f"error: {file}" in error
    assert complaint in error


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
        ("1,a,a,5\n", ":1: node_b: a: allowed is a node other than node_a"),
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
