"""48 nodes, ten rounds: the same pairs as one tournament and as pair jobs. Its table stands in docs/tournaments.md.

make test-long, or: python -m pytest -s -m long tests/local/test_tournament_48.py
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpcq.units import parse_utc
from tests.lab.campaigns_in_lab import Desk
from tests.lab.lab_fixture import RunningLab, lab_command

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.quiet, pytest.mark.timeout(1800)]

ROUND_COUNT = 10
RESULT_COUNT = 240
#: What the tests themselves take: one second on two nodes.
OWN_NODE_SECONDS = 2.0 * RESULT_COUNT


@dataclass(frozen=True, slots=True)
class Taken:
    """What a run took, by the scheduler's accounting."""

    allocation_count: int
    node_seconds: float
    driven_s: float
    measured_count: int
    node_pair_count_min: int

    @property
    def beyond(self) -> float:
        """Node-seconds beyond the tests' own."""
        return self.node_seconds - OWN_NODE_SECONDS


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Desk]:
    lab = RunningLab("test-tour-48")
    try:
        lab_command("up", "--name", lab.name, "--nodes", "48", timeout_s=180)
        yield Desk(tmp_path, lab)
    finally:
        lab_command("down", "--name", lab.name)


def take(desk: Desk, allocation: str) -> Taken:
    test = "- {kernel: tcp_pingpong, parameters: {duration_s: 1, warmup_s: 0}}"
    desk.campaign(
        f"clusters: [alpha]\npairs: {{rounds: {ROUND_COUNT}}}\nrepetitions: 1\nallocation: {allocation}\ntests:\n  {test}",
        allocation,
    )
    desk.hpcq("run", "campaign.yaml", expect=None, timeout_s=1500)
    ends = [event for event in desk.events() if event["event"] == "ended"]
    times = [(parse_utc(end["started_utc"]), parse_utc(end["ended_utc"])) for end in ends if end["ended_utc"]]
    run_id = desk.run_folder.name
    names = {end["tag"] for end in ends if end["started_utc"]}
    told = desk.lab.accounted("alpha", "-X", "-o", "JobName,ElapsedRaw,NNodes", names=names)
    jobs = [row for row in told if row[0].startswith(f"hpcq-{run_id}-")]
    rows = desk.rows("SELECT client, server FROM v_results WHERE outcome = 'measured' AND campaign = ?", allocation)
    nodes = [node for row in rows for node in (row["client"], row["server"])]
    return Taken(
        allocation_count=len(jobs),
        node_seconds=sum(float(elapsed) * float(count) for _, elapsed, count in jobs),
        driven_s=(max(end for _, end in times) - min(start for start, _ in times)).total_seconds(),
        measured_count=len(rows),
        node_pair_count_min=min(map(nodes.count, set(nodes))) if len(set(nodes)) == 48 else 0,
    )


def test_a_tournament_takes_a_fifth_of_what_pair_jobs_take(large: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    time.sleep(5)
    taken = {allocation: take(large, allocation) for allocation in ("whole", "pair")}
    with capsys.disabled():
        print("\n| | allocations | measured | pairs of each node, at least | wall s | node-s | node-s beyond the tests |")
        print("|---|---|---|---|---|---|---|")
        for allocation, one in taken.items():
            counts = f"{one.allocation_count} | {one.measured_count} | {one.node_pair_count_min}"
            print(f"| {allocation} | {counts} | {one.driven_s:.1f} | {one.node_seconds:.0f} | {one.beyond:.0f} |")
    assert {one.measured_count for one in taken.values()} == {RESULT_COUNT}
    assert {one.node_pair_count_min for one in taken.values()} == {ROUND_COUNT}
    assert taken["whole"].allocation_count == 1
    assert taken["pair"].allocation_count >= RESULT_COUNT
    assert taken["pair"].beyond >= 5 * taken["whole"].beyond
