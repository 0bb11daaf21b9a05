"""What the judge says, through `hpcq regressions`, of histories that came in by a file."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.support.histories import Fault, Site, draw
from hpcq.analysis.standing import ClusterCause, Standing, standings, with_told
from hpcq.cli.regressions import smallest_words
from hpcq.judge.causes import Coverage, Judged, Thing
from hpcq.judge.judging import watch
from hpcq.judge.values import Values
from hpcq.kernels import PairTest
from hpcq.runner.accept.accepting import _told_by_nights
from hpcq.store.database import reading, writing
from hpcq.store.ledger import decide
from hpcq.verdict.acceptance import Acceptance
from hpcq.verdict.words import Thing as Subject
from hpcq.verdict.words import Verdict, VerdictRecord
from tests.store.test_import import FIRST, Importing

pytestmark = pytest.mark.fast


@pytest.fixture
def importing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Importing:
    return Importing(tmp_path, capsys)


def rows_of(values: Values, *, latencies: bool = False) -> list[str]:
    """Lines of a file for `hpcq import`: one run per night, throughput around 200 Mbit/s, or latencies around 10 us."""
    found: list[str] = []
    for place in np.argsort(values.night, kind="stable"):
        night = int(values.night[place])
        at = FIRST + dt.timedelta(days=night, seconds=len(found) % 3600)
        ends = f"{values.nodes[values.client[place]]},{values.nodes[values.server[place]]}"
        value = 2e8 * float(np.exp(values.value[place]))
        test, told = "site_bw", f"rate,{value:.0f},bps,higher"
        if latencies:
            test, told = "site_lat", f"latency,{2000 / value:.6g},s,lower"
        found.append(f"{at:%Y-%m-%dT%H:%M:%SZ},night-{night:03d},{test},{ends},{told}")
    return found


def causes(importing: Importing, expect: int, *words: str) -> list[dict[str, Any]]:
    said = json.loads(importing.words("regressions", "--since", "2026-03-20", "--json", *words, expect=expect))
    return list(said["causes"])


@pytest.mark.heavy
def test_everything_at_30_percent_last_night_is_told(importing: Importing) -> None:
    importing.bring(rows_of(draw(Site(16, 41, "gauss1", "fixed", fault=Fault("cluster", 0.7, 40)), seed=3)))
    (cause,) = causes(importing, 3)
    assert (cause["thing"], cause["names"], cause["state"], cause["since_run"]) == ("night", [], "told", "night-040")
    assert cause["ratio"] == pytest.approx(0.3, abs=0.02)
    assert "told: cluster alpha: 70." in importing.words("regressions", "--since", "2026-03-20", expect=3)


@pytest.mark.heavy
def test_what_is_told_of_the_cluster_leaves_its_nodes_unaccused_and_no_series_passes(importing: Importing) -> None:
    """Everything loses 20 % over 40 nights: at most one series stands as an example."""
    values = draw(Site(16, 60, "gauss1", "each_run"), seed=8)
    importing.bring(rows_of(replace(values, value=values.value + np.log(1 - 0.2 * np.clip((values.night - 20) / 40, 0, 1)))))
    said = importing.words("regressions", "--since", "2026-03-10", expect=3)
    assert "told: cluster alpha: " in said
    assert "worse: node" not in said
    assert "comes and goes" not in said
    assert said.count("worse: site_bw") <= 1
    assert "that what is told explains; --all or --json has them" in said
    judged = json.loads(importing.words("regressions", "--since", "2026-03-10", "--json", expect=3))["judged"]
    assert judged["degraded_count"] == judged["total_count"]


@pytest.mark.heavy
def test_a_node_is_told_by_regressions_though_no_series_has_a_history(importing: Importing) -> None:
    importing.bring(rows_of(draw(Site(32, 40, "gauss2", "each_run", fault=Fault("node", 0.5, 32)), seed=4)))
    (cause,) = causes(importing, 3)
    assert (cause["thing"], cause["names"], cause["state"], cause["job_count"]) == ("node", ["n0003"], "told", 16)
    assert causes(importing, 3, "--node", "n0003") == [cause]


@pytest.mark.promise("Where regressions passes series, its first line says how slow a node would have been told.")
@pytest.mark.parametrize("noise", ["gauss1", "gauss5"])
def test_the_first_line_says_what_would_have_been_told(importing: Importing, noise: str) -> None:
    """A loss a little larger than it says is told within its nights; one far below it is not."""
    importing.bring(rows_of(draw(Site(8, 40, noise, "fixed"), seed=6)))
    first = importing.words("regressions", "--since", "2026-03-20", expect=0).splitlines()[0]
    said = re.search(r"; a node (\d+) % slower for 6 nights would be told$", first)
    assert said, first
    loss = int(said[1]) / 100
    told = [
        any(one.thing == 3 for one in watch(values).levels[Thing.NODE].messages)
        for size in (1.3 * loss, 0.4 * loss)
        for values in [draw(Site(8, 46, noise, "fixed", fault=Fault("node", size, 40)), seed=6)]
    ]
    assert told == [True, False]


@pytest.mark.heavy
@pytest.mark.promise("Who is slow only when it sends is called that by every verb, and what it receives is called fine.")
def test_a_node_that_is_slow_when_it_sends_is_told_as_that_by_every_verb(importing: Importing, tmp_path: Path) -> None:
    importing.bring(rows_of(draw(Site(24, 60, "gauss1", "each_run", fault=Fault("sends", 0.15, 40)), seed=5)))
    [cause] = causes(importing, 3)
    assert (cause["thing"], cause["names"], cause["state"], cause["role"]) == ("node", ["n0003"], "told", "client")
    words = "told: node alpha/n0003: slow when it sends: "
    assert words in importing.words("regressions", "--since", "2026-03-20", expect=3)
    assert "slow when it sends" in importing.words("blame", expect=3)
    assert "slow when it sends" in importing.words("nodes", "n0003", "--since", "2026-03-20")
    page = tmp_path / "page.html"
    importing.words("report", "--since", "2026-03-20", "--to", str(page), expect=3)
    assert "slow when it sends" in page.read_text()
    newest = json.loads(importing.words("runs", "--limit", "1", "--json"))[0]["run"]
    accepted, _ = json.JSONDecoder().raw_decode(importing.words("accept", "--from", newest, "--json", expect=4))
    [bad] = [one for one in accepted["clusters"][0]["nodes"] if one["name"] == "n0003"]
    assert bad["verdict"] == "inconclusive"
    assert "slow when it sends" in bad["reason"]
    with reading(importing.database) as connection:
        [standing] = standings(connection, ["alpha"], "latest")
    assert [standing.says_of("n0003", "n0004"), standing.says_of("n0004", "n0003")] == ["told", "fine"]


@pytest.mark.heavy
@pytest.mark.promise("What is told of an uplink degrades the pairs that cross it, in the test that shows it, and no others.")
def test_an_uplink_degrades_what_crosses_it_and_nothing_else(importing: Importing, tmp_path: Path) -> None:
    values = draw(Site(64, 60, "gauss1", "fixed", fault=Fault("leaf", 0.15, 40, 2)), seed=5)
    latencies = rows_of(draw(Site(64, 60, "gauss1", "fixed"), seed=5), latencies=True)
    importing.bring([*rows_of(values), *latencies])
    leaves = tmp_path / "leaves.csv"
    leaf = dict(zip(values.nodes, values.node_group.tolist(), strict=True))
    leaves.write_text("node,group\n" + "".join(f"{node},leaf{group}\n" for node, group in leaf.items()))
    importing.words("db", "groups", str(leaves), "--cluster", "alpha")
    said = json.loads(importing.words("regressions", "--since", "2026-03-20", "--json", expect=3))
    [cause] = said["causes"]
    assert (cause["thing"], cause["names"]) == ("group", ["leaf2"])
    assert cause["members"] == [[node for node in values.nodes if leaf[node] == 2]]
    assert cause["reason"].startswith("site_bw: 15.")
    pairs = {(values.nodes[a], values.nodes[b]) for a, b in zip(values.client, values.server, strict=True)}
    crossing = {pair for pair in pairs if (leaf[pair[0]] == 2) != (leaf[pair[1]] == 2)}
    assert 0 < len(crossing) < len(pairs)
    counts = said["judged"]
    assert (counts["degraded_count"], counts["pass_count"]) == (len(crossing), 2 * len(pairs) - len(crossing))
    nodes = json.loads(importing.words("nodes", "--since", "2026-03-20", "--json"))
    assert {row["node"]: row["judged"] for row in nodes} == {
        node: "told with its uplink" if leaf[node] == 2 else "fine" for node in values.nodes
    }
    inside = next(node for node in values.nodes if leaf[node] == 2)
    assert "told: uplink of alpha/leaf2: site_bw: 15." in importing.words("nodes", inside, "--since", "2026-03-20")


@pytest.mark.heavy
@pytest.mark.promise("What the nights tell of an uplink lets `accept --from` pass no node behind it, whatever one run shows.")
@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.FAILED])
def test_nobody_passes_behind_an_uplink_that_the_nights_tell_of(importing: Importing, tmp_path: Path, verdict: Verdict) -> None:
    """What is open or failed keeps the reason that the run gives."""
    values = draw(Site(64, 50, "gauss1", "fixed", fault=Fault("leaf", 0.15, 40, 2)), seed=5)
    leaf = dict(zip(values.nodes, values.node_group.tolist(), strict=True))
    importing.bring(rows_of(values))
    leaves = tmp_path / "leaves.csv"
    leaves.write_text("node,group\n" + "".join(f"{node},leaf{group}\n" for node, group in leaf.items()))
    importing.words("db", "groups", str(leaves), "--cluster", "alpha")
    of_run = Acceptance(tuple(VerdictRecord(Subject.NODE, node, verdict, "of the run", (node,)) for node in values.nodes))
    found = _told_by_nights(importing.database, ["night-049"], of_run, "alpha", left_out=False)
    changed = {one.name for one in found.nodes if one.reason.startswith("told: uplink of alpha/leaf2: 1")}
    assert changed == {node for node in values.nodes if leaf[node] == 2 and verdict is Verdict.PASS}
    assert {one.verdict for one in found.nodes if one.name in changed} <= {Verdict.INCONCLUSIVE}
    assert {(one.verdict, one.reason) for one in found.nodes if one.name not in changed} == {(verdict, "of the run")}


@pytest.mark.heavy
@pytest.mark.promise("Where one night has few pairs inside a bad rack, the rack is named, and no way to a healthy one.")
def test_a_night_with_few_pairs_inside_a_bad_rack_names_the_rack_alone(importing: Importing, tmp_path: Path) -> None:
    values = draw(Site(96, 30, "gauss2", "each_run"), seed=9)
    leaf = dict(zip(values.nodes, values.node_group.tolist(), strict=True))
    met = (values.node_group[values.client] == 2) | (values.node_group[values.server] == 2)
    inside = (values.node_group[values.client] == 2) & (values.node_group[values.server] == 2)
    kept = ~inside | (values.night < 24) | (np.arange(len(inside)) == np.flatnonzero(inside)[-1])
    columns = {name: getattr(values, name)[kept] for name in ("night", "test", "client", "server", "outcome")}
    slow = values.value + np.log(0.8) * (met & (values.night >= 24))
    importing.bring(rows_of(replace(values, value=slow[kept], **columns)))
    leaves = tmp_path / "leaves.csv"
    leaves.write_text("node,group\n" + "".join(f"{node},leaf{group}\n" for node, group in leaf.items()))
    importing.words("db", "groups", str(leaves), "--cluster", "alpha")
    importing.words("baseline", "set", "good", "night-020", "night-021", "night-022", "night-023")
    words = importing.words("accept", "--from", "night-029", "--against", "good", "--json", expect=3)
    said, _ = json.JSONDecoder().raw_decode(words)
    [cluster] = said["clusters"]
    assert [one["name"] for one in (*cluster["clusters"], *cluster["groups"], *cluster["links"])] == ["leaf2"]
    behind = {one["name"] for one in cluster["nodes"] if "behind " in one["reason"]}
    assert len(behind) > 8
    assert {leaf[node] for node in behind} == {2}


@pytest.mark.promise("No node is called fine while its whole cluster is told to be slow, nor is the cluster in its verdicts.")
def test_no_node_is_fine_while_its_cluster_is_told(importing: Importing) -> None:
    importing.bring(rows_of(draw(Site(16, 41, "gauss1", "fixed", fault=Fault("cluster", 0.3, 40)), seed=3)))
    nodes = json.loads(importing.words("nodes", "--since", "2026-03-20", "--json"))
    assert {row["judged"] for row in nodes} == {"told with its cluster"}
    accept(importing, VerdictRecord(Subject.NODE, "n0003", Verdict.PASS, "as expected", ("n0003",), 1.0))
    verdicts = json.loads(importing.words("nodes", "--verdicts", "--exit-code", "--json", expect=3))
    assert ("cluster", "degraded") in {(row["kind"], row["verdict"]) for row in verdicts}


def told_cause(thing: str, names: tuple[str, ...]) -> ClusterCause:
    """n1 and n2 are in the first class or group of `names`, n3 and n4 in the second."""
    members = (("n1", "n2"), ("n3", "n4"))[: len(names)] if thing in {"class", "within", "group", "between"} else ()
    when = "2026-03-01T00:00:00Z"
    what = ("alpha", thing, names, ("tcp_stream 128 KiB",), "told", when, "night-001", when)
    return ClusterCause(*what, 0.5, 0.4, 0.6, 6, "", members=members)


@pytest.mark.promise(
    "Whatever is told, `nodes --verdicts --exit-code` does not pass, and a node without values is no slow one."
)
@pytest.mark.parametrize(
    ("thing", "names", "kind"),
    [
        ("night", (), Subject.CLUSTER),
        ("class", ("old",), Subject.GROUP),
        ("within", ("old",), Subject.GROUP),
        ("group", ("leaf1",), Subject.GROUP),
        ("between", ("leaf1", "leaf2"), Subject.LINK),
        ("node", ("n1",), Subject.NODE),
        ("pair", ("n2", "n1"), Subject.LINK),
    ],
)
def test_whatever_is_told_is_a_verdict(thing: str, names: tuple[str, ...], kind: Subject) -> None:
    cause = told_cause(thing, names)
    coverage = tuple(
        Coverage(Thing.NODE, (node,), judged, 4, "") for node, judged in (("n1", Judged.JUDGED), ("n2", Judged.NOT_MEASURED))
    )
    stood = Standing("alpha", "night-001", (cause,), coverage, frozenset(), frozenset())
    [record] = with_told([], [stood])
    assert (record.kind, record.verdict) == (kind, Verdict.DEGRADED)
    words = {"night": "told with its cluster", "class": "told with its class", "group": "told with its uplink", "node": "told"}
    assert stood.of_node("n1")[0] == words.get(thing, "fine")
    assert [stood.of_node(node)[0] for node in ("n2", "n3")] == ["not measured", "not measured"]


@pytest.mark.parametrize(
    ("thing", "names", "touched"),
    [
        ("node", ("n2",), {("n1", "n2"), ("n2", "n1"), ("n2", "n3"), ("n2", "n2")}),
        ("link", ("n2", "n1"), {("n1", "n2"), ("n2", "n1")}),
        ("pair", ("n1", "n2"), {("n1", "n2")}),
        ("class", ("old",), {("n1", "n2"), ("n2", "n1"), ("n2", "n3"), ("n1", "n3"), ("n2", "n2")}),
        ("within", ("old",), {("n1", "n2"), ("n2", "n1")}),
        ("group", ("old",), {("n1", "n3"), ("n2", "n3")}),
        ("between", ("old", "new"), {("n1", "n3"), ("n2", "n3")}),
        ("night", (), {("n1", "n2"), ("n2", "n1"), ("n1", "n3"), ("n2", "n3"), ("n3", "n4"), ("n2", "n2")}),
    ],
)
def test_a_told_thing_touches_its_own_pairs_in_the_kernels_where_it_shows(
    thing: str, names: tuple[str, ...], touched: set[tuple[str, str]]
) -> None:
    """n1 and n2 are old, and behind one switch; n3 and n4 are new. A node alone is its own server."""
    cause = told_cause(thing, names)
    pairs = [("n1", "n2"), ("n2", "n1"), ("n1", "n3"), ("n2", "n3"), ("n3", "n4"), ("n2", "n2")]

    def found(cluster: str, kernel: str) -> set[tuple[str, str]]:
        return {pair for pair in pairs if cause.touches(PairTest(cluster, kernel, 1, *pair, "eth0"))}

    assert found("alpha", "tcp_stream") == touched
    assert found("beta", "tcp_stream") == found("alpha", "tcp") == set()


@pytest.mark.heavy
def test_what_is_told_in_one_kernel_explains_nothing_in_another(importing: Importing) -> None:
    """The node is slow on the network for weeks; in one pair another test got worse by itself, and is shown."""
    values = draw(Site(16, 40, "gauss1", "fixed", fault=Fault("node", 0.5, 20)), seed=4)
    both = rows_of(values)
    healthy = rows_of(draw(Site(16, 40, "gauss1", "fixed"), seed=9))
    pair = next(",".join(row.split(",")[3:5]) for row in both if "n0003" in row)
    for row in healthy:
        time, night, _, *ends, metric, value, unit, better = row.split(",")
        slow = 0.6 if ",".join(ends) == pair and night >= "night-032" else 1.0
        both.append(",".join([time, night, "other_bw", *ends, metric, f"{slow * float(value):.0f}", unit, better]))
    importing.bring(both)
    said = importing.words("regressions", "--since", "2026-03-20", expect=3)
    assert "told: node alpha/n0003" in said
    assert "worse: other_bw" in said


@pytest.mark.heavy
def test_the_level_of_a_node_is_its_own_and_not_that_of_a_slow_partner(importing: Importing) -> None:
    importing.bring(rows_of(draw(Site(16, 40, "gauss2", "each_run", fault=Fault("node", 0.5, 30)), seed=4)))
    rows = json.loads(importing.words("nodes", "--since", "2026-03-20", "--json", expect=0))
    levels = {one["node"]: one["level_ratio"] for one in rows}
    assert levels.pop("n0003") < 0.55
    assert min(levels.values()) > 0.94


def test_latencies_of_a_node_that_are_a_third_longer_are_told_as_a_third(importing: Importing) -> None:
    importing.bring(rows_of(draw(Site(16, 41, "gauss1", "fixed", fault=Fault("node", 0.25, 30)), seed=4), latencies=True))
    (cause,) = causes(importing, 3)
    assert cause["ratio"] == pytest.approx(0.75, abs=0.01)
    assert float(cause["reason"].split(" % worse than before, ")[0]) == pytest.approx(100 / 0.75 - 100, abs=1.5)


def test_blame_of_one_night_does_not_take_back_what_it_tells(importing: Importing) -> None:
    """The node met one other tonight, and nobody is named by that; the nights before name it."""
    importing.bring(rows_of(draw(Site(12, 60, "gauss2", "each_run", fault=Fault("node", 0.3, 54)), seed=4)))
    said = importing.words("blame", expect=3)
    assert "told: node alpha/n0003" in said
    assert "Nobody is named by these results alone; what is told above rests on earlier nights, too." in said
    assert "Nobody is named." not in said


@pytest.mark.heavy
@pytest.mark.promise("A page accuses no series of what it tells of a node.")
def test_the_page_accuses_no_part_of_what_is_told(importing: Importing, tmp_path: Path) -> None:
    importing.bring(rows_of(draw(Site(12, 60, "gauss2", "each_run", fault=Fault("node", 0.3, 54)), seed=4)))
    said = importing.words("report", "--since", "2026-03-20", "--to", str(tmp_path / "page.html"), expect=3)
    assert "told: node alpha/n0003" in said
    assert "series alpha/" not in said
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count("<td>series, worse</td>") == 1, "an example"
    assert " more that what is told explains: " in page


@pytest.mark.heavy
def test_a_site_where_nothing_happens_has_no_cause(importing: Importing) -> None:
    importing.bring(rows_of(draw(Site(16, 40, "gauss2", "fixed"), seed=5)))
    said = json.loads(importing.words("regressions", "--since", "2026-03-20", "--json", expect=0))
    assert said["causes"] == []


@pytest.mark.heavy
@pytest.mark.promise("A node of an older generation is not told slow; a new node is compared with those of its own hardware.")
def test_a_new_node_is_held_against_its_own_hardware(importing: Importing) -> None:
    random = np.random.default_rng(5)
    made = {f"new{number}": 1.0 for number in range(12)} | {f"old{number}": 0.6 for number in range(10)}
    late = {"new12": 0.4, "old10": 0.6}
    rows = []
    for night in range(20):
        speed = made | late if night >= 10 else made
        nodes = sorted(speed)
        for place in range(len(nodes)):
            for step in (1, 5, 9):
                ends = nodes[place], nodes[(place + step) % len(nodes)]
                value = 2e8 * min(speed[one] for one in ends) * (1 + 0.01 * random.standard_normal())
                at = FIRST + dt.timedelta(days=night, seconds=10 * place + step)
                rows.append(f"{at:%Y-%m-%dT%H:%M:%SZ},night-{night:03d},site_bw,{','.join(ends)},rate,{value:.0f},bps,higher")
    facts = [f"{one},2026-03-01,cpu.model,{'EPYC 9654' if one.startswith('new') else 'Xeon 6148'}" for one in made | late]
    importing.bring(rows, "--facts", importing.file("facts.csv", facts, "node,time,fact,value"))
    said = json.loads(importing.words("regressions", "--since", "2026-03-05", "--json", expect=3))["causes"]
    told = [one for one in said if one["state"] == "told"]
    assert [(one["thing"], one["names"]) for one in told] == [("node", ["new12"])]
    assert "worse than its peers since it was first measured" in told[0]["reason"]


@pytest.mark.fast
@pytest.mark.promise("`regressions` says beside its passes if even a node at half its speed would not be told.")
def test_the_smallest_loss_of_several_clusters_is_the_largest_of_theirs() -> None:
    def standing(smallest: float | None) -> Standing:
        return Standing("alpha", "first", (), (), frozenset(), frozenset(), smallest_told=smallest)

    assert smallest_words([]) == ""
    assert smallest_words([standing(0.03), standing(0.08)]) == "; a node 8 % slower for 6 nights would be told"
    assert smallest_words([standing(0.03), standing(None)]) == "; no node would be told within 6 nights, even at half its speed"


@pytest.mark.heavy
@pytest.mark.promise("No verb calls fine what failed its last acceptance: each says so until it passes one.")
def test_what_failed_its_last_acceptance_is_fine_nowhere(importing: Importing) -> None:
    """Its nights are as they always were: the acceptance alone knows better. An earlier stretch knows nothing of it."""
    importing.bring(rows_of(draw(Site(12, 30, "gauss1", "each_run"), seed=3)))
    assert "failed:" not in importing.words("regressions", "--since", "2026-03-10", expect=0)
    failed = VerdictRecord(Subject.NODE, "n0004", Verdict.FAILED, "bad with n0001, n0002, n0005", ("n0004",))
    accept(importing, failed)
    line = "failed: node alpha/n0004: last acceptance, "
    for words in (("regressions", "--since", "2026-03-10"), ("blame",), ("compare", "night-028", "night-029")):
        said = importing.words(*words, expect=3)
        assert line in said, words
        named = json.loads(importing.words(*words, "--json", expect=3))["failed_acceptances"]
        assert [one["name"] for one in named] == ["n0004"], words
    rows = json.loads(importing.words("nodes", "--since", "2026-03-10", "--json", expect=0))
    assert [one["node"] for one in rows if one["judged"] != "fine"] == ["n0004"]
    assert line in importing.words("nodes", "n0004", "--since", "2026-03-10", expect=0)
    assert line in importing.words("doctor", "--runs", str(importing.database.parent / "runs"), expect=0)
    proposed = ("gate", "propose", "--since", "2026-03-01")
    assert f"left out: {line}" in importing.words(*proposed, expect=4)
    assert line not in importing.words("regressions", "--since", "2026-03-10..2026-03-25", expect=0)
    accept(importing, replace(failed, verdict=Verdict.INCONCLUSIVE, reason="other work ran on it"))
    assert line in importing.words("regressions", "--since", "2026-03-10", expect=3), "no pass"
    accept(importing, replace(failed, verdict=Verdict.PASS, reason="as expected with n0001, n0002, n0005"))
    assert line not in importing.words("regressions", "--since", "2026-03-10", expect=0)


def accept(importing: Importing, record: VerdictRecord) -> None:
    with writing(importing.database) as database:
        decide(database, "alpha", [record], run_id=None, baseline=None)


@pytest.mark.heavy
@pytest.mark.promise("`blame` of several runs names what the newest shows by itself: who was fine before is slow now.")
def test_several_runs_hide_nobody_whom_the_newest_names(importing: Importing) -> None:
    rows = []
    for night, (place, pair) in itertools.product(
        range(2), enumerate(itertools.combinations([f"n{one:04d}" for one in range(8)], 2))
    ):
        value = (1e8 if night and "n0003" in pair else 2e8) * (1 + 0.001 * (place % 7))
        at = f"{FIRST + dt.timedelta(days=night):%Y-%m-%dT%H:%M:%SZ}"
        rows.append(f"{at},night-{night},site_bw,{','.join(pair)},rate,{value:.0f},bps,higher")
    importing.bring(rows)
    assert json.loads(importing.words("blame", "--json", expect=3))["nodes"] == ["n0003"]
    assert json.loads(importing.words("blame", "--since", "2026-03", "--json", expect=3))["nodes"] == ["n0003"]
    assert "of the newest run" in importing.words("blame", "--since", "2026-03", expect=3)
