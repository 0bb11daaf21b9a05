"""Evidence in blocks: nothing of it is lost, other programs read it, and its size is what a year of a site can bear."""

from __future__ import annotations

import json
import random
import re
import sqlite3
import subprocess
import zlib
from pathlib import Path
from typing import Any

import pytest

from hpcq.store.blocks import packed
from hpcq.store.database import reading
from hpcq.store.keep.check_and_prune import check, merge
from hpcq.store.load.cluster import load_run
from tests import REPOSITORY
from tests.store.run_folders import RunBuilder, ask

pytestmark = pytest.mark.fast

COUNTERS = [f"softirqs.NET_RX.cpu{cpu}" for cpu in range(64)] + [f"netstat.TcpExt.n{number}" for number in range(40)]
HALF_OF = 2


def told(builder: RunBuilder, dice: random.Random) -> dict[str, Any]:
    """A line whose every counter may move, as on a busy node."""
    line = builder.line("j00001", (1, 1))
    for end in ("client", "server"):
        moved = [name for name in COUNTERS if dice.randrange(HALF_OF)]
        line["evidence"][end]["counters"] = {name: int(dice.lognormvariate(6, 3)) + 1 for name in moved}
    return line


@pytest.fixture
def lines(builder: RunBuilder) -> dict[int, dict[str, Any]]:
    """Three repetitions of a test, by their number."""
    dice = random.Random(4)
    builder.submit("j00001")
    made = {repetition: told(builder, dice) for repetition in (1, 2, 3)}
    for repetition, line in made.items():
        builder.write_line("j00001", 1, (1, repetition), line)
    builder.end("j00001")
    return made


@pytest.fixture
def builder(tmp_path: Path) -> RunBuilder:
    return RunBuilder(tmp_path / "runs")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


def counters_of(database: Path) -> dict[int, dict[str, dict[str, int]]]:
    """By repetition, end and name."""
    found: dict[int, dict[str, dict[str, int]]] = {}
    query = 'SELECT x.repetition_no, c."end", c.counter, c.delta FROM v_counters c JOIN result x ON x.result_id = c.result_id'
    with reading(database) as connection:
        for repetition, end, name, delta in connection.execute(query):
            found.setdefault(repetition, {}).setdefault(end, {})[name] = delta
    return found


def wanted(lines: dict[int, dict[str, Any]]) -> dict[int, dict[str, dict[str, int]]]:
    ends = ("client", "server")
    return {number: {end: line["evidence"][end]["counters"] for end in ends} for number, line in lines.items()}


@pytest.mark.promise("Every counter of a result line that moved is in the database, with its value.")
def test_every_counter_is_there(builder: RunBuilder, database: Path, lines: dict[int, dict[str, Any]]) -> None:
    load_run(database, builder.path)
    assert counters_of(database) == wanted(lines)
    assert ask(database, "SELECT count(*) FROM layout") == [1]
    assert all(one.ok for one in check(database))


def test_a_later_load_continues_the_layout_and_changes_no_block(
    builder: RunBuilder, database: Path, lines: dict[int, dict[str, Any]]
) -> None:
    load_run(database, builder.path)
    before = ask(database, "SELECT result_id, hex(block) FROM evidence ORDER BY 1")
    line = told(builder, random.Random(5))
    line["evidence"]["client"]["counters"]["a.new.one"] = 3
    builder.submit("j00002")
    builder.write_line("j00002", 1, (1, 1), line)
    builder.end("j00002")
    load_run(database, builder.path)
    assert ask(database, "SELECT result_id, hex(block) FROM evidence ORDER BY 1")[: len(before)] == before
    assert ask(database, "SELECT DISTINCT delta FROM v_counters WHERE counter = 'a.new.one'") == [3]
    assert ask(database, "SELECT count(*) FROM layout") == [2]


@pytest.mark.heavy
def test_blocks_of_another_site_mean_the_same_here(
    builder: RunBuilder, database: Path, lines: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    other = RunBuilder(tmp_path / "others", cluster="beta", run="nightly-20261122T020000Z-00fe")
    other.submit("j00001")
    strange = other.line("j00001", (1, 1))
    strange["evidence"]["client"]["counters"] = {"first.here.x": 1}
    other.write_line("j00001", 1, (1, 1), strange)
    other.end("j00001")
    load_run(database, other.path)
    there = tmp_path / "there.db"
    load_run(there, builder.path)
    for _ in range(2):
        merge(database, there, {})
    assert ask(database, "SELECT count(*) FROM layout") == [2]
    query = "SELECT x.repetition_no, c.counter, c.client_delta FROM v_evidence c JOIN v_results x ON x.result_id = c.result_id"
    rows = ask(database, f"{query} WHERE x.cluster = 'alpha' AND c.client_delta IS NOT NULL")
    assert {(number, name): delta for number, name, delta in rows} == {
        (number, name): delta for number, ends in wanted(lines).items() for name, delta in ends["client"].items()
    }


def test_the_program_sqlite3_reads_it(builder: RunBuilder, database: Path, lines: dict[int, dict[str, Any]]) -> None:
    load_run(database, builder.path)
    query = "SELECT json FROM v_blocks ORDER BY result_id LIMIT 1"
    done = subprocess.run(["sqlite3", str(database), query], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    there = json.loads(done.stdout)["ends"][0][7]
    values = lines[1]["evidence"]["client"]["counters"].values()
    assert [one for one in values if one not in there] == []


def test_any_program_reads_it_as_the_page_says(
    builder: RunBuilder, database: Path, lines: dict[int, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    load_run(database, builder.path)
    page = (REPOSITORY / "docs" / "database.md").read_text("utf-8")
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    monkeypatch.chdir(database.parent)
    names: dict[str, Any] = {}
    exec(code, names)
    moved = names["database"].execute("SELECT count(*) FROM v_counters").fetchone()[0]
    assert moved == sum(len(one) for ends in wanted(lines).values() for one in ends.values())


@pytest.mark.parametrize("repeats", [1, 40], ids=["digits", "repeated"])
def test_a_block_is_the_shorter_of_two_ways_to_deflate_it(repeats: int) -> None:
    dice = random.Random(5)
    text = ",".join([str(dice.randrange(10**9)) for _ in range(200 // repeats)] * repeats).encode()
    block, plain = packed(text), zlib.compress(text, 9)
    assert zlib.decompress(block) == text
    assert len(block) < len(plain) if repeats == 1 else len(block) == len(plain)


def test_what_deflating_makes_longer_stays_as_it_is() -> None:
    assert packed(b'{"granted":[1]}') == b'{"granted":[1]}'


def test_a_damaged_block_is_found(builder: RunBuilder, database: Path, lines: dict[int, dict[str, Any]]) -> None:
    load_run(database, builder.path)
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE evidence SET block = x'789c00' WHERE result_id = 2")
    [bad] = [one for one in check(database) if not one.ok]
    assert bad.item == "evidence"
    assert "result 2" in bad.found


def test_a_result_takes_a_kilobyte_with_all_its_counters(
    builder: RunBuilder, database: Path, lines: dict[int, dict[str, Any]]
) -> None:
    load_run(database, builder.path)
    sizes = ask(database, "SELECT length(block) FROM evidence")
    assert max(sizes) < 1024
