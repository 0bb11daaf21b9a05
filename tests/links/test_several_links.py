"""Three clusters and two links that share one of them, in one campaign: accounts, pairs, comparison and the table of links."""

from __future__ import annotations

from typing import Any

import pytest

from tests.local.local_desk import INSTANT, LocalDesk

pytestmark = pytest.mark.long

NAMES = ("east", "west", "north")
CLUSTER = "name: {name}\nscheduler: local\nnodes: [{name}-a, {name}-b, {name}-c]\ncompiler: {{cflags: -O0}}\n"
LINKS = """links:
  - {from: east, to: west, pairs: 2}
  - {from: north, to: east, pairs: 2}
budget: {max_jobs: 1, max_node_seconds: 400}
"""
#: What each of its jobs may take at most: nodes times time limit.
OWN_S, LINK_S = 2 * 120, 240


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> LocalDesk:
    desk = LocalDesk.at(tmp_path_factory.mktemp("desk"))
    for name in NAMES:
        desk.cluster(name, CLUSTER)
    path = desk.folder / desk.campaign(INSTANT, more=LINKS, clusters=", ".join(NAMES))
    path.write_text(path.read_text().replace("pairs: all\n", ""))
    desk.hpcq("run", "try.yaml")
    return desk


def of_cluster(desk: LocalDesk, name: str) -> list[dict[str, Any]]:
    """What happened on one cluster, of its own pairs and of both links, in time order."""
    events = [{**event, "tag": event.get("tag", "")} for event in desk.events(name)]
    for link in ("east+west", "north+east"):
        journal = desk.events(link)
        mine = {one["tag"] for one in journal if one["event"] == "attempt" and one["cluster"] == name}
        events += [one for one in journal if one.get("tag") in mine]
    return sorted(events, key=lambda event: event["utc"])


def test_every_pair_of_every_link_and_the_comparison_is_measured(done: LocalDesk) -> None:
    found = done.rows("SELECT cluster, outcome, count(*) AS n FROM v_results GROUP BY 1, 2 ORDER BY 1")
    wanted = {"east": 1, "east+west": 2, "north": 1, "north+east": 2, "west": 1}
    assert {row["cluster"]: (row["outcome"], row["n"]) for row in found} == {
        name: ("measured", count) for name, count in wanted.items()
    }
    ends = done.rows("SELECT DISTINCT client, server FROM v_results WHERE placement = 'link'")
    assert len(ends) == 4, "no node is in two pairs of a link"
    linked = {node for row in ends for node in row.values() if node.startswith("east")}
    own = done.rows("SELECT client, server FROM v_results WHERE cluster = 'east'")
    assert {node for row in own for node in row.values()} == linked, "the comparison is of the very nodes of both links"


@pytest.mark.parametrize("name", NAMES)
def test_what_all_parts_take_of_a_cluster_is_one_account(done: LocalDesk, name: str) -> None:
    live: dict[str, float] = {}
    seen = 0
    for event in of_cluster(done, name):
        if event["event"] == "attempt":
            live[event["tag"]] = OWN_S if len(event["nodes"]) == 2 else LINK_S
            seen += 1
        elif event["event"] == "ended":
            live.pop(event["tag"])
        assert len(live) <= 1, live
        assert sum(live.values()) <= 400
    assert seen == (5 if name == "east" else 3)


def test_the_table_of_links_has_each_of_them_beside_its_own_comparison(done: LocalDesk) -> None:
    found = {one["link"]: one for one in done.json("results")["links"]}
    assert set(found) == {"east+west", "north+east"}
    medians = {
        row["cluster"]: row["median"]
        for row in done.rows(
            "SELECT cluster, avg(value) AS median FROM v_metrics WHERE metric = 'round_trip_p50_ns' GROUP BY 1"
        )
    }
    for name, one in found.items():
        [test] = one["tests"]
        from_cluster, to_cluster = name.split("+")
        assert (test["far_count"], test["near_count"]) == (2, 2)
        assert test["near_from"] == pytest.approx(medians[from_cluster])
        assert test["near_to"] == pytest.approx(medians[to_cluster])
        assert test["there"] == pytest.approx(medians[name])
    table = done.hpcq("results", "--links").stdout
    assert all(name in table for name in found)
