"""Every verb that prints a table, on a real pseudo-terminal of 80 columns, on a history of fourteen nights."""

from __future__ import annotations

import datetime as dt
import fcntl
import io
import json
import os
import re
import shlex
import struct
import subprocess
import sys
import termios
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from hpcq.cli import output
from hpcq.cli.campaigns import _ended_lines, progress_bar
from hpcq.cli.main import hpcq as verbs
from hpcq.cli.output import Column, fitted, says_that_it_works, sparkline, wrapped
from hpcq.runner.live import ClusterStatus, Watch
from tests import REPOSITORY
from tests.history.histories import History
from tests.kernels.kernel_programs import wait_for
from tests.pages.test_narrow_terminals import Terminal
from tests.store.run_folders import RunBuilder, load

pytestmark = pytest.mark.fast

VERBS = (
    "runs", "results", "results --all-metrics --limit 40", "results --each", "results --findings", "results --group-by rack",
    "results --since 9d --sort median", "nodes n2", "nodes n4 --all", "nodes", "nodes --sort level", "runs --cost", "show 1",
    "facts show n1", "facts diff n2 first", "nodes --verdicts", "history", "history tcp_stream/n1/n2",
    "history tcp_stream/n1/n4 --since 9d",
    "regressions --since 15d --all", "compare 30d..9d 2d --all", "event list", "baseline list", "changes list", "kernels",
    "kernels udp_stream", "db check", "gate propose", "blame", "sql 'SELECT * FROM v_results LIMIT 5'",
    "sql 'SELECT * FROM v_nodes'", "cluster list", "schedule list",
)  # fmt: skip
#: Runs the verbs in one process whose terminal is the pseudo-terminal, and writes down what each table was made of.
_PROGRAM = """
import json, os, shlex, sys
from hpcq.cli import output
from hpcq.cli.main import run
tables = []
whole = output.print_fitted
def recording(found, columns, title, out):
    print("<table>", file=out, flush=True)
    whole(found, columns, title, out)
    out.flush()
    print("</table>", file=out, flush=True)
    fields = [output.as_mapping(one) for one in found]
    shown = [text for one in columns if any(output.cells(one, fields))
             for text in [output.head(one), *output.cells(one, fields)]]
    tables.append([verb, [" ".join(text.split()) for text in shown]])
output.print_fitted = recording
output.TOLD_AFTER_S = ()
codes = {}
for verb in json.loads(sys.argv[1]):
    plain = verb.split()[0] in {"kernels", "schedule", "cluster"}
    codes[verb] = run(shlex.split(verb) + ([] if plain else ["--db", sys.argv[2]]))
with open(sys.argv[3], "w") as file:
    json.dump([codes, tables], file)
"""


def on_a_terminal(
    argv: list[str], folder: Path, columns: int, *, typed: str = "", expect: int | None = 0, **environment: str
) -> str:
    """What a program writes to a pseudo-terminal of that width, on which a person types."""
    leader, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR", "HPCQ_DB"}}
    kept |= {"TERM": "xterm-256color", "XDG_STATE_HOME": str(folder / "state")} | environment
    with subprocess.Popen(argv, stdin=follower, stdout=follower, stderr=follower, cwd=folder, env=kept) as process:
        os.close(follower)
        os.write(leader, typed.encode())
        said = b""
        try:
            while piece := os.read(leader, 65536):
                said += piece
        except OSError:  # Linux says EIO when the last writer has gone
            pass
        finally:
            os.close(leader)
        code = process.wait(timeout=120)
        assert expect in {None, code}, said.decode()
    return said.decode().replace("\r\n", "\n")


@pytest.mark.promise("No table of any verb loses a character or a unit on a terminal of 80 columns.")
@pytest.mark.heavy
def test_every_table_of_every_verb_is_whole(nights: History, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", _PROGRAM, json.dumps(VERBS), str(nights.database), str(tmp_path / "tables.json")]
    said = on_a_terminal(argv, tmp_path, 80, NO_COLOR="1")
    codes, tables = json.loads((tmp_path / "tables.json").read_text())
    assert {verb: code for verb, code in codes.items() if code not in {0, 3, 4}} == {}
    too_long = [line for line in said.splitlines() if len(line.rstrip()) > 80 and " " in line.rstrip()[20:]]
    assert [line for line in too_long if not line.startswith("  - {")] == [], "sentences break at words; gates stay whole"
    shown = [part.partition("</table>")[0] for part in said.split("<table>")[1:]]
    assert len(shown) == len(tables)
    assert len({verb for verb, _ in tables}) >= 20
    assert max(len(line.rstrip()) for part in shown for line in part.splitlines()) <= 80
    for part, (verb, texts) in zip(shown, tables, strict=True):
        missing = Counter("".join(set(texts)).replace(" ", "")) - Counter(part)
        assert not missing, f"{verb}: {missing}: {part}"
        for number in {text for text in texts if re.fullmatch(r"[-\d.,]+ [A-Za-z%]\S*", text)}:
            assert number in part, f"{verb}: the unit of {number} is on another line"


#: A command of docs/questions.md, and what it prints.
_SHOWN = re.compile(r"^<!-- run[^\n]*-->\n    hpcq ([^\n]+)\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shown_of(words: str, nights: History, folder: Path) -> str:
    """What a command of the page prints on a terminal of 80 columns, without what a line ends with."""
    argv = [sys.executable, "-m", "hpcq", *shlex.split(words), "--db", str(nights.database)]
    said = on_a_terminal(argv, folder, 80, expect=None, NO_COLOR="1")
    return "\n".join(line.rstrip() for line in said.splitlines()).strip("\n")


@pytest.mark.promise("What docs/questions.md shows below a command is what the command prints, but for the day.")
@pytest.mark.heavy
def test_the_page_of_questions_shows_what_is_printed(nights: History, tmp_path: Path) -> None:
    shown = _SHOWN.findall((REPOSITORY / "docs/questions.md").read_text("utf-8"))
    assert len(shown) >= 7

    def on_any_day(text: str) -> str:
        return re.sub(r"20\d\d-\d\d(-\d\d)?|20\d{6}(?=T)", "DAY", text)

    for words, printed in shown:
        lines, expected = (on_any_day(text.strip("\n")).splitlines() for text in (shown_of(words, nights, tmp_path), printed))
        if "--cost" in words:  # has a row per month, and fourteen nights may be of two
            lines, expected = lines[:2], expected[:2]
        assert lines == expected, words


@pytest.mark.promise("Verdicts have colour on terminals, and NO_COLOR takes it away.")
@pytest.mark.heavy
def test_verdicts_have_colour_and_no_color_takes_it_away(nights: History, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", _PROGRAM, json.dumps(["compare 30d..9d 2d --all"]), str(nights.database), "tables.json"]
    assert "\x1b[31mworse" in on_a_terminal(argv, tmp_path, 80)
    assert "\x1b[" not in on_a_terminal(argv, tmp_path, 80, NO_COLOR="1")


@pytest.mark.promise("On a narrow terminal rows stand below what they share, a line each, and constant columns above all.")
def test_rows_share_what_they_have_in_common() -> None:
    sizes = [("tcp_pingpong", "round_trip_p50_ns", f"{2**k} B") for k in range(10)]
    kernels = [("tcp_stream", "throughput_bps", "128 KiB"), ("udp_stream", "throughput_bps", "1400 B")]
    names = ("kernel", "metric", "size")
    same = {"client": "node-a", "server": "node-b", "median": 1e6, "lowest": 9e5, "highest": 2e6, "n": 3, "disturbed": "3 of 3"}
    rows: list[dict[str, object]] = [
        {**dict(zip(names, one, strict=True)), **same, "variant": f"of {one[0]}, 4 flows", "unit": one[1].rpartition("_")[2]}
        for one in [*sizes, *kernels]
    ]
    texts = ("kernel", "client", "server", "size", "variant", "metric")
    numbers = (Column(name, unit_field="unit") for name in ("median", "lowest", "highest"))
    columns = (*(Column(name) for name in texts), *numbers, Column("n"), Column("disturbed"))
    lines = [str(line) for line in fitted(rows, columns, None, width=80)]
    assert lines[0] == "client node-a, server node-b, n 3, disturbed 3 of 3"
    assert len(lines) == 2 + 3 + len(rows), lines
    assert max(map(len, lines)) <= 80
    assert lines[2] == "kernel tcp_pingpong, metric round_trip_p50_ns"
    assert sum("round_trip_p50_ns" in line for line in lines) == 1


@pytest.mark.promise("Where every test was measured once, a narrow terminal shows its value once, and each row on a line.")
def test_numbers_that_agree_in_all_rows_stand_once() -> None:
    rows: list[dict[str, object]] = [
        {"kernel": f"kernel_of_some_length_{k}", "metric": f"metric_{k}_p50_ns", "client": "node-a", "server": "node-b"}
        | {"median": 1e6 + k * 1e5, "lowest": 1e6 + k * 1e5, "highest": 1e6 + k * 1e5, "n": 1, "unit": "ns"}
        for k in range(9)
    ]
    numbers = (Column(name, unit_field="unit") for name in ("median", "lowest", "highest"))
    columns = (*(Column(name) for name in ("kernel", "client", "server", "metric")), *numbers, Column("n"))
    first, table = fitted(rows, columns, None, width=60)
    assert str(first) == "client node-a, server node-b, n 1, lowest = highest = median"
    assert [str(one.header) for one in table.columns] == ["kernel", "metric", "median"]  # type: ignore[union-attr]
    rows[3]["lowest"] = 9e5
    first, *_ = fitted(rows, columns, None, width=60)
    assert str(first) == "client node-a, server node-b, n 1, highest = median"


@pytest.mark.promise("Sentences break at words on a terminal, below the column in which they began; elsewhere they stay whole.")
def test_sentences_break_at_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    line = "    meanwhile       reboot 2026-11-09 02:00 alpha n2: first seen with another boot id"
    assert wrapped(line, io.StringIO()) == line
    *first, last = wrapped(line, Terminal()).splitlines()
    assert first == ["    meanwhile       reboot 2026-11-09", f"{'':20}02:00 alpha n2:", f"{'':20}first seen with"]
    assert last == f"{'':20}another boot id"


@pytest.mark.heavy
@pytest.mark.promise(
    "While a run goes on, a line per test and pair shows its value, the share of what is expected, and ok or not."
)
def test_a_line_as_a_test_ends(tmp_path: Path) -> None:
    tests = [("tcp_stream", {"message_bytes": 65536}), ("tcp_pingpong", {"message_bytes": 64})]
    pairs = [("n1", "n2"), ("n2", "n1"), ("n1", "n3")]

    def told(run: str, text: str = "", *, factor: float = 1.0, other_ticks: int = 0) -> list[str]:
        builder = RunBuilder(tmp_path / "runs", tests=tests, pairs=pairs, run=run)
        known = json.loads(builder.folder.run_json.read_text())
        known["database"] = str(tmp_path / "results.db")
        builder.folder.run_json.write_text(json.dumps(known))
        if text:
            builder.folder.campaign_yaml.write_text(
                f"name: nightly\nclusters: [alpha]\ntests: [{{kernel: tcp_stream}}]\n{text}"
            )
        for number in range(1, len(pairs) + 1):
            builder.attempt(f"j{number:05d}")
        for path in builder.path.glob("alpha/jobs/*/1/facts-*.json"):
            path.write_text(path.read_text().replace('"speed_bps": 100000000000', '"link.speed_bps": 1000000000'))
        for path in builder.path.glob("alpha/jobs/j00003/1/t1-r*.json"):
            line = json.loads(path.read_text())
            line["metrics"]["throughput_bps"] *= factor
            for end in line["evidence"].values():
                end["counters"] = {"stat.cpu.user_ticks": other_ticks}
            path.write_text(json.dumps(line))
        for path in [*builder.path.glob("alpha/jobs/*/1/t?-r?.json")]:
            path.with_suffix(".evidence.json").write_text('{"client": {}, "server": {}}')  # stands beside it, and sorts first
        watch = Watch(builder.folder)
        watch.look()
        lines = _ended_lines(watch)
        assert _ended_lines(watch) == [], "each is told once"
        load(tmp_path / "results.db", builder)
        return lines

    first = told("nightly-20261121T020000Z-00f1")
    assert re.fullmatch(r"alpha: n1 > n2: tcp_stream 64 KiB: 19\d.* Mbit/s, 19 % of link of n1: measured", first[0]), (
        "no bound, no ok"
    )
    assert re.fullmatch(r"alpha: n1 > n2: tcp_pingpong 64 B: \S+ us: measured", first[1]), "nothing says how long it must take"
    second = told("nightly-20261122T020000Z-00f2", factor=0.5)
    assert re.search(r"tcp_pingpong 64 B: \S+ us, (9\d|10\d) % of usual: ok$", second[1]), second
    slow = r"n1 > n3: tcp_stream 64 KiB: .* Mbit/s, (49|5[01]) % of usual: not ok, other pairs and runs differ less"
    assert re.search(slow, second[4]), second
    third = told("nightly-20261123T020000Z-00f3", "expect: {throughput_bps: 180 Mbit/s}\n", factor=0.5)
    assert re.search(r"Mbit/s, 1\d\d % of the campaign's bound: ok$", third[0]), third
    assert re.search(r"n1 > n3: .* Mbit/s, \d\d % of the campaign's bound: not ok, must be >= 162 Mbit/s$", third[4]), third
    fourth = told("nightly-20261124T020000Z-00f4", "expect: {throughput_bps: 180 Mbit/s}\n", factor=0.5, other_ticks=4000)
    beside = r"n1 > n3: .* Mbit/s, 51 % of usual: undecided, other work was there$"
    assert re.search(beside, fourth[4]), "as the verdict of the run will say"


@pytest.mark.promise("The bar of a run that goes on fits the terminal and says how long the run still takes.")
@pytest.mark.parametrize(("measured", "words"), [(0, "10 min left"), (15, "60 s left"), (29, "2 s left")])
def test_a_bar_with_the_time_left(measured: int, words: str) -> None:
    since = (dt.datetime.now(dt.UTC) - dt.timedelta(seconds=60)).isoformat()
    counts = {
        "measured_result_count": measured,
        "planned_result_count": 30,
        "pending_pair_count": 8,
        "live_attempt_count": 2,
        "attempts": {"running": 1, "queued": 1},
        "measuring_since_utc": since,
    }
    bar = progress_bar(ClusterStatus("alpha", "running", None, 60.0, counts), 80)
    assert bar.endswith(f" {measured} of 30, 1 job running, 1 queued, {words}")
    assert bar.startswith("alpha #" if measured else "alpha -")
    assert len(bar) <= 80


@pytest.mark.promise("The line above a history shows its lowest and highest level.")
@pytest.mark.promise("A verb that works for more than two seconds says on a terminal that it still does.")
def test_a_verb_that_takes_its_time_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(output, "TOLD_AFTER_S", (0.0,))
    monkeypatch.setattr(sys, "stderr", said)

    @says_that_it_works
    def verb(words: str) -> int:
        if said.isatty():
            wait_for(lambda: words in said.getvalue())
        return 3

    assert (verb("a pipe"), said.getvalue()) == (3, "")
    monkeypatch.setattr(said, "isatty", lambda: True)
    assert verb("still at work, since 0 s") == 3


@pytest.mark.promise("Every verb that opens the database says on a terminal that it is still at work.")
def test_every_verb_that_opens_the_database_says_that_it_works() -> None:
    silent = {
        name
        for name, command in _commands(verbs)
        if any(one.name == "database" for one in command.params) and not _is_patient(command.callback)
    }
    # these show how many jobs are measured
    assert {name for name in silent if not name.startswith("stage ")} == {"accept", "resume", "run"}


def _commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    with click.Context(group) as context:
        for name in group.list_commands(context):
            found = group.get_command(context, name)
            if isinstance(found, click.Group):
                yield from _commands(found, f"{before}{name} ")
            elif found is not None:
                yield f"{before}{name}", found


def _is_patient(function: Any) -> bool:
    chain = []
    while function is not None:
        chain.append(function.__code__.co_name)
        function = getattr(function, "__wrapped__", None)
    return "patient" in chain


def test_a_history_in_one_line() -> None:
    assert sparkline([1e9, 2e9, 8e9, 8e9], "bps") == "▁▂██  1 Gbit/s to 8 Gbit/s"
    assert sparkline([5.0] * 3, None).startswith("▁▁▁  5")
    many = sparkline([float(k) for k in range(600)], None)
    assert (len(many.partition(" ")[0]), many[0], many.partition(" ")[0][-1]) == (60, "▁", "█")
