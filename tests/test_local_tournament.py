"""A tournament through the whole of hpcq, on this machine's own queue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.local_desk import LocalDesk

pytestmark = pytest.mark.fast

CLUSTER = "name: {name}\nscheduler: local\nnodes: [{name}-a, {name}-b, {name}-c, {name}-d]\ncompiler: {{cflags: -O0}}\n"
INSTANT = "{kernel: tcp_pingpong, parameters: {duration_s: 20ms, warmup_s: 0}}"


def test_a_campaign_as_one_tournament(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.cluster("tiny", CLUSTER)
    desk.campaign(INSTANT, more="pack: whole\ndisturb: [alone, rounds]")
    desk.hpcq("run", "try.yaml")
    assert desk.rows("SELECT outcome, count(*) AS n FROM v_results GROUP BY outcome") == [{"outcome": "measured", "n": 12}]
    assert [event["nodes"] for event in desk.events() if event["event"] == "attempt"] == [
        ["tiny-a", "tiny-b", "tiny-c", "tiny-d"]
    ]
    variants = desk.rows("SELECT DISTINCT json_extract(parameters, '$.load') AS load FROM series ORDER BY 1")
    assert [row["load"] for row in variants] == ["alone", "rounds"]
    at_once = desk.rows("SELECT DISTINCT value FROM granted WHERE name = 'pairs_at_once_count' ORDER BY 1")
    assert [row["value"] for row in at_once] == [1, 2]
    assert desk.rows("SELECT count(*) AS n FROM v_attempts") == [{"n": 6}]
    said = desk.json("load")
    assert [(one["read_count"], one["known_count"]) for one in said["clusters"]] == [(0, 12)]
    planned = json.loads((desk.run_folder / "tiny" / "plan.json").read_text())
    assert [one["job_count"] for one in planned["cost"]["packs"]] == [6, 1, 1]


def test_groups_share_the_nodes_in_turn(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.cluster("tiny", CLUSTER)
    desk.campaign(INSTANT, more="pack: group of 3")
    desk.hpcq("run", "try.yaml")
    assert desk.rows("SELECT outcome, count(*) AS n FROM v_results GROUP BY outcome") == [{"outcome": "measured", "n": 6}]
    attempts = [event for event in desk.events() if event["event"] == "attempt"]
    assert 1 < len(attempts) < 6
    assert max(len(event["nodes"]) for event in attempts) == 3
