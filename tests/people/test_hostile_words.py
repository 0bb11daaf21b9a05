"""Words of nodes, programs and schedulers that would act on a terminal: every output shows them, and none sends them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcq.visible import visible
from tests.store.run_folders import RunBuilder, load

pytestmark = pytest.mark.fast

#: Colours of an innocent iperf3, a window's title, C1 controls, an override of direction, a line that starts over, what is no
#: character (a reader of XML stops there), a letter without width, a pile of marks.
HOSTILE = (
    "\x1b[31mred\x1b[0m \x1b]0;owned\x07 \x9b2J \u202egnp.exe \u200b\rerror: all is fine \x7f \ufffe\uffff \u3164 o"
    + "\u0301" * 40
)
#: The same, and a line that looks like one of hpcq's.
LINES = f"{HOSTILE}\tand\nFORGED: all is fine"
#: What no output may hold. A carriage return may end a line of CSV.
ACTING = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\u3164\ufffe\uffff]|\r(?!\n)|\u0301{5}|^FORGED", re.M
)
#: Colours that hpcq itself writes to a terminal.
OWN_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database in which everything that comes from elsewhere is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    run = RunBuilder(folder / "runs")
    run.submit("j00001")
    run.measure("j00001")
    path = run.line_path("j00001", 1, 1, 1)
    line: dict[str, Any] = json.loads(path.read_text())
    line["warnings"] = [{"name": LINES, "message": LINES}]
    line["granted"]["congestion_control"] = HOSTILE
    line["evidence"]["client"] |= {"unavailable": {"schedstat": HOSTILE}, "hostname": HOSTILE, "interface": LINES}
    path.write_text(json.dumps(line) + "\n")
    path = run.line_path("j00001", 1, 2, 1)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"valid": False, "invalid_reason": LINES, "exit_code": 1}) + "\n")
    path.with_suffix(".err").write_text(LINES)
    facts = path.with_name("facts-n1.json")
    found = json.loads(facts.read_text())
    found["kernel"]["cmdline"] = LINES
    facts.write_text(json.dumps(found))
    run.end("j00001")
    run.submit("j00002")
    run.end("j00002", outcome="failed", reason=LINES)
    run.journal("closed")
    load(folder / "results.db", run)
    return folder


VERBS = [
    ["results"],
    ["results", "--each"],
    ["results", "--findings"],
    ["results", "--group-by", "kernel.cmdline"],
    ["show", "1"],
    ["show", "4"],
    ["nodes", "n1"],
    ["nodes"],
    ["history"],
    ["blame"],
    ["facts", "show", "n1"],
    ["status"],
    ["sql", "SELECT * FROM v_results"],
    ["sql", f"SELECT 1 AS \"{HOSTILE}\", '{HOSTILE}' AS words"],
    ["export", "--format", "csv"],
    ["export", "--format", "jsonl"],
    ["export", "--format", "junit"],
    ["export", "--format", "markdown"],
    ["export", "--format", "prometheus"],
    ["no-such-verb-\x1b[31m"],
    ["results", "--cluster", HOSTILE],
]


def hpcq(home: Path, words: Sequence[str | bytes], **more: Any) -> Any:
    environment = {**os.environ, "COLUMNS": "400", "TERM": "xterm"}
    argv = [sys.executable, "-P", "-m", "hpcq", *words]
    return subprocess.run(argv, cwd=home, env=environment, stdin=subprocess.DEVNULL, timeout=120, check=False, **more)


def on_terminal(home: Path, words: list[str]) -> str:
    """What a verb writes to a pseudo-terminal."""
    leader, follower = os.openpty()
    argv = [sys.executable, "-P", "-m", "hpcq", *words]
    environment = {**os.environ, "COLUMNS": "400", "TERM": "xterm"}
    said = b""
    with subprocess.Popen(argv, stdin=follower, stdout=follower, stderr=follower, cwd=home, env=environment):
        os.close(follower)
        with contextlib.suppress(OSError):  # Linux says EIO when the last writer has gone
            while piece := os.read(leader, 65536):
                said += piece
    os.close(leader)
    return said.decode()


@pytest.mark.heavy
@pytest.mark.promise("No word of a node, a program or a scheduler acts on the terminal of who reads it.")
@pytest.mark.parametrize("words", VERBS, ids=lambda words: visible(" ".join(words))[:40])
def test_nothing_acts_on_a_pipe_or_a_terminal(home: Path, words: list[str]) -> None:
    done = hpcq(home, words, capture_output=True)
    said = done.stdout.decode() + done.stderr.decode()
    assert "Traceback" not in said
    assert said.strip()
    assert not ACTING.findall(said), [repr(line) for line in said.split("\n") if ACTING.search(line)][:3]
    shown = OWN_COLOURS.sub("", on_terminal(home, words)).replace("\r\n", "\n")
    assert shown.strip()
    assert not ACTING.findall(shown), [repr(line) for line in shown.split("\n") if ACTING.search(line)][:3]


@pytest.mark.heavy
def test_the_words_are_shown_and_not_lost(home: Path) -> None:
    said = on_terminal(home, ["results"])
    assert "\\u001b[31mred\\u001b[0m" in said
    assert "\\u202egnp.exe" in said


@pytest.mark.heavy
@pytest.mark.promise("JSON keeps words from elsewhere as they are, and is safe to look at.")
def test_json_stays_what_it_was(home: Path) -> None:
    done = hpcq(home, ["results", "--each", "--json"], capture_output=True, text=True)
    assert not ACTING.findall(done.stdout)
    rows = json.loads(done.stdout)["results"]
    assert any(HOSTILE in str(row["reason"]) for row in rows)
    lines = hpcq(home, ["export", "--format", "jsonl"], capture_output=True, text=True).stdout.splitlines()
    assert any(HOSTILE in (json.loads(line)["reason"] or "") for line in lines)


@pytest.mark.heavy
@pytest.mark.promise("Words of several lines from elsewhere are one line where hpcq tells them; none looks like its own.")
def test_the_log_of_a_run_has_one_event_per_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hpcq.run_folder.paths import RunFolder
    from hpcq.runner.workflow import say

    [path] = home.glob("runs/*")
    say(RunFolder(path), f"refused={LINES}")
    for text in (capsys.readouterr().err, (path / "log.txt").read_text()):
        assert "FORGED" in text
        assert not ACTING.findall(text)


@pytest.mark.heavy
def test_an_interface_is_a_word(home: Path) -> None:
    """A node that calls its interface a sentence begins no series of that name."""
    said = hpcq(home, ["sql", "SELECT DISTINCT network FROM v_all_results"], capture_output=True, text=True).stdout
    assert said.split() == ["network", "eth0"]


@pytest.mark.heavy
@pytest.mark.promise("A note, name or reason that a terminal does not send in UTF-8 is refused by its byte.")
@pytest.mark.parametrize(
    "words",
    [
        ["annotate", "node", "n1"],
        ["annotate", "run", "latest", "fine", "--who"],
        ["retract", "1", "--why"],
        ["event", "add", "note"],
        ["results", "--cluster"],
        ["runs", "--campaign"],
    ],
    ids=lambda words: words[0],
)
def test_words_in_another_encoding(home: Path, words: list[str]) -> None:
    done = hpcq(home, [*words, b"caf\xe9"], capture_output=True)
    said = done.stderr.decode()
    assert done.returncode == 2, said
    assert "Unicode" not in said
    assert "\\udce9" in said or "0xe9 is not UTF-8" in said


@pytest.mark.heavy
@pytest.mark.promise("A word of an error message that is longer than a screen is shortened.")
def test_a_long_word_leaves_an_error_readable(home: Path) -> None:
    said = hpcq(home, ["history", "x" * 70_000], capture_output=True, text=True).stderr
    assert said.startswith("error: 'xxx")
    assert len(said) < 2000
    assert "70002 characters" in said


@pytest.mark.heavy
def test_files_and_pages_hold_nothing_that_acts(home: Path) -> None:
    for words in (["export", "--format", "csv", "--to", "out.csv"], ["report"]):
        done = hpcq(home, words, capture_output=True, text=True)
        assert "Traceback" not in done.stderr, done.stderr
    [page] = home.glob("runs/*/report.html")
    for path in (home / "out.csv", page):
        text = path.read_bytes().decode()
        assert not ACTING.findall(text), path


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é → 日本\n\tx\r\n", "plain é → 日本\n\tx\r\n"),
        ("a\rb", "a\\u000db"),
        ("\x1b[0m\x9b\x7f", "\\u001b[0m\\u009b\\u007f"),
        ("\U000e0041", "\\udb40\\udc41"),
        ("\udcff", "\\udcff"),
        ("\u2028\ufeff\u061c", "\\u2028\\ufeff\\u061c"),
        ("\uffff\u3164\u180e", "\\uffff\\u3164\\u180e"),
        ("e\u0301\u0302\u0303\u0304 \u0939\u093f \u26a0\ufe0f", "e\u0301\u0302\u0303\u0304 \u0939\u093f \u26a0\ufe0f"),
        ("e" + "\u0301" * 6, "e" + "\u0301" * 4 + "\\u0301" * 2),
    ],
)
def test_what_is_visible(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown) == shown
    if "\udcff" not in text and "\r" not in text:
        assert json.loads(visible(json.dumps(text, ensure_ascii=False))) == text
