"""Spools with lines that stand there twice or are damaged: noted, and the answer is the same loaded live or at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.store.run_folders import RunBuilder, ask, load, utc

pytestmark = pytest.mark.fast

STEP = (1, 1)


def spooled(builder: RunBuilder, *, rate: float | None, seconds: int) -> str:
    """One line of a spool about the first measurement of j00001; rate None: it failed."""
    line = builder.line("j00001", STEP)
    if rate is not None:
        line["metrics"]["throughput_bps"] = rate
    head = {"format": 1, "job": "j00001", "test": 1, "repetition": 1, "round": 1, "client": "n1", "server": "n2", "at_once": 1}
    rest: dict[str, Any] = {"rc": 3 if rate is None else 0, "started_utc": utc(seconds), "ended_utc": utc(seconds + 1)}
    rest |= {"reason": "n2: no answer for 5 s" if rate is None else None, "result": None if rate is None else line}
    return json.dumps({**head, **rest}, separators=(",", ":")) + "\n"


@pytest.fixture
def builder(tmp_path: Path) -> RunBuilder:
    made = RunBuilder(tmp_path / "runs", pairs=(("n1", "n2"),), tests=(("tcp_stream", {}),), repetition_count=1)
    tag = made.tag("g00001", 1)
    made.journal("attempt", job="g00001", attempt_no=1, tag=tag, nodes=["n1", "n2"], pairs=["j00001"])
    made.journal("submitted", tag=tag, scheduler_job_id="100")
    made.folder.attempt(made.cluster, "g00001", 1).mkdir(parents=True)
    return made


def spool_of(builder: RunBuilder) -> Path:
    return builder.folder.attempt(builder.cluster, "g00001", 1) / "spool.jsonl"


def ended(builder: RunBuilder) -> None:
    times = {"started_utc": utc(0), "ended_utc": utc(9)}
    tag = builder.tag("g00001", 1)
    ending = {"outcome": "completed", "reason": "", "nodes": ["n1", "n2"], "rc": 0, "measured_of": {}}
    builder.journal("ended", tag=tag, measured=[], **ending, **times)


@pytest.mark.promise("A spool with two lines about one measurement answers the same, loaded live or at the end.")
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("rates", "value"),
    [([1e8, 2e8], 1e8), ([None, 2e8], 2e8), ([1e8, None], 1e8), ([None, None], None), ([None, 3e8, 1e8], 3e8)],
)
def test_live_and_fresh_loading_agree(
    builder: RunBuilder, tmp_path: Path, rates: list[float | None], value: float | None
) -> None:
    live, fresh = tmp_path / "live.db", tmp_path / "fresh.db"
    for seconds, rate in enumerate(rates):
        with spool_of(builder).open("a") as file:
            file.write(spooled(builder, rate=rate, seconds=seconds))
        load(live, builder)
    ended(builder)
    load(live, builder)
    report = load(fresh, builder)
    query = "SELECT outcome, value, reason FROM v_results"
    assert ask(live, query) == ask(fresh, query)
    assert ask(fresh, "SELECT value FROM v_results") == [value]
    assert any(f"{len(rates)} lines about one measurement" in note for note in report.notes)


@pytest.mark.promise("Damaged lines of a spool are noted.")
def test_damaged_lines_are_noted(builder: RunBuilder, tmp_path: Path) -> None:
    good = spooled(builder, rate=1e8, seconds=0)
    spool_of(builder).write_text("\x00\x00\x00 nothing that can be read\n" + good + good[: len(good) // 2])
    ended(builder)
    report = load(tmp_path / "a.db", builder)
    assert any("1 lines that cannot be read, the first at byte 0" in note for note in report.notes)
    assert ask(tmp_path / "a.db", "SELECT outcome FROM v_results") == ["measured"]
