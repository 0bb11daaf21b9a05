"""Every verb that judges says the same of the same history: none says fine of what another calls slow."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.support.histories import LEAF_SIZE, Fault, Site, draw
from hpcq.analysis.standing import standings
from hpcq.store import database as store
from hpcq.store.database import reading
from hpcq.store.selection import Selection
from hpcq.store.series import select
from tests.judge.test_told_by_regressions import rows_of
from tests.store.test_import import FIRST, HEAD, Importing

FAULTS = {
    "nothing": None,
    "half a node for two nights": Fault("node", 0.5, 28),
    "a tenth of a node": Fault("node", 0.1, 20),
    "a node tonight": Fault("node", 0.3, 29),
    "a node when it sends": Fault("sends", 0.15, 20),
    "a node when it receives": Fault("receives", 0.1, 22),
    "everything tonight": Fault("cluster", 0.7, 29),
    "a tenth of everything": Fault("cluster", 0.1, 26),
    "an uplink": Fault("leaf", 0.15, 20, 2),
    "an uplink tonight": Fault("leaf", 0.4, 29, 2),
}
#: Two runs as a person compares them: the last two, and a good stretch with the newest.
COMPARED = (("night-028", "night-029"), ("2026-03-01..2026-03-20", "latest"))
#: Exit codes that the words of other verbs stand for.
WORDS = {"pass": 0, "degraded": 3, "failed": 3, "inconclusive": 4, "not_covered": 4, "not_judged": 0}
NOISES, PLANS = ("gauss2", "lognormal3", "heavy", "ar1", "modes_iid", "night"), ("fixed", "each_run", "idle")
#: The last column: whether anything is told.
CASES = (
    pytest.param("gauss2", "fixed", "a tenth of a node", True, marks=pytest.mark.long),
    pytest.param("gauss2", "each_run", "everything tonight", True, marks=pytest.mark.long),
    ("gauss2", "fixed", "a node tonight", True),
    pytest.param("gauss2", "each_run", "a node tonight", True, marks=pytest.mark.long),
    ("gauss2", "each_run", "a node when it sends", True),
    ("heavy", "fixed", "nothing", False),
    pytest.param("heavy", "each_run", "half a node for two nights", True, marks=pytest.mark.long),
    ("gauss2", "each_run", "an uplink", True),
    pytest.param("lognormal3", "idle", "an uplink", True, marks=pytest.mark.long),
    pytest.param("gauss2", "fixed", "an uplink tonight", True, marks=pytest.mark.long),
)


def nodes_of(fault: str) -> int:
    """Uplinks are judged where there are several: four leaves."""
    return 4 * LEAF_SIZE if "uplink" in fault else 24


class Verbs(Importing):
    """Exit codes and words of the verbs that judge, on one history."""

    def typed(self, *words: str) -> tuple[int, str, str]:
        from hpcq.cli.main import run

        self.capsys.readouterr()
        code = run([*words, "--db", str(self.database)])
        return int(code), *self.capsys.readouterr()

    def said(self, *words: str) -> tuple[int, Any]:
        code, out, _ = self.typed(*words, "--json")
        return code, json.loads(out)

    def codes(self) -> dict[str, int]:
        calls = {"regressions": ["regressions", "--since", "2026-03-20"], "blame": ["blame"]}
        calls |= {f"compare {a} {b}": ["compare", a, b] for a, b in COMPARED}
        page = str(self.folder / "page.html")
        calls |= {"report": ["report", "--to", page], "report --since": ["report", "--since", "2026-03-20", "--to", page]}
        calls |= {"accept": ["accept", "--from", self.newest()]}
        found = {name: self.said(*words)[0] for name, words in calls.items()}
        for kind in ("junit", "markdown", "prometheus"):
            found[f"export {kind}"] = self.typed("export", "--format", kind)[0]
        found["runs"] = WORDS[self.said("runs", "--limit", "3")[1][0]["verdict"]]
        campaigns = [one for one in self.said("notify", "--dry-run", "true")[1] if one["kind"] == "campaign"]
        found["notify"] = max((WORDS[one["verdict"]] for one in campaigns if one["run"] == self.newest()), default=0)
        return found

    def newest(self) -> str:
        return str(self.said("runs", "--limit", "1")[1][0]["run"])


def judged(folder: Path, capsys: pytest.CaptureFixture[str], site: Site, seed: int) -> Verbs:
    folder.mkdir(parents=True, exist_ok=True)
    verbs = Verbs(folder, capsys)
    values = draw(site, seed=seed)
    verbs.bring(rows_of(values), head=HEAD)
    if len(set(values.node_group.tolist())) > 1:
        leaves = folder / "leaves.csv"
        rows = [f"{node},leaf{group}" for node, group in zip(values.nodes, values.node_group.tolist(), strict=True)]
        leaves.write_text("\n".join(["node,group", *rows]) + "\n")
        verbs.words("db", "groups", str(leaves), "--cluster", "alpha")
    return verbs


def contradictions(verbs: Verbs) -> list[str]:  # noqa: C901 - one question after the other
    """What two verbs say against each other, in words."""
    codes = verbs.codes()
    bad = [name for name, code in codes.items() if code == 3]
    fine = [name for name, code in codes.items() if code == 0]
    found = [f"{one} says fine of what {other} calls slow" for one, other in itertools.product(fine, bad)]
    _, regressions = verbs.said("regressions", "--since", "2026-03-20")
    _, blame = verbs.said("blame")
    _, nodes = verbs.said("nodes", "--since", "2026-03-20")
    words = {row["node"]: row["judged"] for row in nodes}
    for verb, named in (("regressions", regressions["causes"]), ("blame", blame["causes"])):
        for cause in named:
            if cause["thing"] == "node" and words[cause["names"][0]] != cause["state"]:
                found.append(f"{verb} says {cause['state']} of {cause['names'][0]}, nodes says {words[cause['names'][0]]}")
    behind = {"night": set(words), "group": set[str](), "class": set[str]()}
    for cause in regressions["causes"]:
        if cause["thing"] in behind and cause["state"] == "told":
            behind["group"].update(*cause["members"])
            its = behind["night"] if cause["thing"] == "night" else behind["group"]
            found += [f"regressions tells {cause['names']}, nodes says fine of {one}" for one in its if words[one] == "fine"]
    told = {row["node"] for row in nodes if row["judged"] == "told"}
    if told - {one["names"][0] for one in regressions["causes"] if one["thing"] == "node"}:
        found.append("nodes tells of nodes that regressions does not")
    causes = {(one["thing"], *one["names"]) for one in regressions["causes"] if one["state"] == "told"}
    if causes and not regressions["judged"]["degraded_count"] + regressions["judged"]["failed_count"]:
        found.append(f"regressions tells {causes} and counts {regressions['judged']}")
    changed = verbs.said("notify", "--dry-run", "true")[1]
    mailed = {(one["kind"], one["name"]) for one in changed if one["kind"] != "campaign" and one["reason"].startswith("told:")}
    if {("cluster", "alpha") if one[0] == "night" else (one[0], " - ".join(one[1:])) for one in causes} != mailed:
        found.append(f"regressions tells {causes}, notify {mailed}")
    for node in sorted(words)[:: 8 if behind["group"] else 1]:
        story = " ".join(verbs.said("nodes", node, "--since", "2026-03-20")[1]["judged"])
        if ("told:" in story) != any(one[0] == "night" or node in {*one[1:], *behind["group"]} for one in causes):
            found.append(f"regressions tells {causes}, nodes {node} says {story}")
    code, _, _ = verbs.typed("health", "write", str(verbs.folder / "health.txt"))
    kept_out = {line.split()[0] for line in (verbs.folder / "health.txt").read_text().splitlines() if " degraded " in line}
    if code or kept_out != told:
        found.append(f"nodes tells of {told}, health of {kept_out}")
    if verbs.typed("gate", "propose", "--since", "2026-03-01")[2].count("left out: told:") != len(causes):
        found.append(f"gate propose takes values of {causes} for good ones")
    return found


@pytest.mark.promise(
    "No verb says fine of what another calls slow: all that judge, runs, health, exports, pages and mail read one judgement."
)
@pytest.mark.parametrize(("noise", "plan", "fault", "told"), CASES)
def test_no_verb_says_fine_of_what_another_calls_slow(  # noqa: PLR0917 - fixtures, and a case
    tmp_path: Path, capsys: pytest.CaptureFixture[str], noise: str, plan: str, fault: str, told: bool
) -> None:
    verbs = judged(tmp_path, capsys, Site(nodes_of(fault), 30, noise, plan, fault=FAULTS[fault]), seed=1)
    assert contradictions(verbs) == []
    assert (3 in verbs.codes().values()) == told


@pytest.mark.promise("A run passes in no verb while what it measured is nearly told, or looks worse together with a suspect.")
@pytest.mark.parametrize(
    ("noise", "plan", "fault", "seed"),
    [
        ("lognormal3", "idle", "a tenth of everything", 417),
        ("modes_iid", "fixed", "a tenth of everything", 205),
        ("modes_iid", "fixed", "a tenth of a node", 402),
        ("night", "fixed", "a node tonight", 403),
    ],
)
def test_what_is_nearly_told_lets_no_run_pass(  # noqa: PLR0917 - fixtures, and a case
    tmp_path: Path, capsys: pytest.CaptureFixture[str], noise: str, plan: str, fault: str, seed: int
) -> None:
    verbs = judged(tmp_path, capsys, Site(24, 30, noise, plan, fault=FAULTS[fault]), seed=seed)
    assert contradictions(verbs) == []
    assert 0 not in verbs.codes().values()


@pytest.mark.promise("What is told stays told in every verb while newer runs of its campaign do not measure it.")
def test_a_run_that_did_not_measure_a_told_node_says_so_in_every_verb(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = draw(Site(16, 30, "gauss2", "each_run", fault=Fault("node", 0.3, 20)), seed=4)
    kept = (values.night < 28) | ((values.client != 3) & (values.server != 3))
    columns = ("night", "test", "client", "server", "value", "outcome")
    verbs = Verbs(tmp_path, capsys)
    verbs.bring(rows_of(replace(values, **{name: getattr(values, name)[kept] for name in columns})), head=HEAD)
    assert contradictions(verbs) == []
    codes = verbs.codes()
    assert {
        codes[one] for one in ("regressions", "blame", "runs", "report", "export junit", "compare night-028 night-029")
    } == {3}
    assert codes["accept"] == 4
    assert "; not measured this time, since " in verbs.words("blame", expect=3)
    accepted = {one["name"]: one for one in verbs.said("accept", "--from", "night-029")[1]["clusters"][0]["nodes"]}
    assert accepted["n0003"]["verdict"] == "not_covered"
    with sqlite3.connect(verbs.database) as database:  # a campaign of other nodes is not to answer for it
        database.execute("INSERT INTO campaign (name) VALUES ('of-others')")
        database.execute("UPDATE run SET campaign_id = last_insert_rowid() WHERE name = 'night-029'")
    assert verbs.said("blame")[0] != 3
    assert verbs.said("runs", "--limit", "1")[1][0]["verdict"] != "degraded"
    assert verbs.said("regressions", "--since", "2026-03-20")[0] == 3


@pytest.mark.promise("A node that brings nothing with some of its partners is told in every verb, however well the others do.")
def test_a_half_dead_node_is_told_though_its_other_pairs_are_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From night 20 on n0003 reaches no node from n0008 on; single jobs of others fail, too. It is repaired on night 34."""
    rows = []
    for place, row in enumerate(rows_of(draw(Site(16, 46, "gauss2", "each_run"), seed=6))):
        parts = row.split(",")
        far = "n0003" in parts[3:5] and max(parts[3:5]) >= "n0008" and "night-020" <= parts[1] < "night-034"
        lost = far or place % 97 == 0
        rows.append(
            ",".join(
                [*parts[:6], "" if lost else parts[6], *parts[7:], *(("failed", "no route") if lost else ("measured", ""))]
            )
        )
    until_29 = [row for row in rows if row.split(",")[1] <= "night-029"]
    for name, brought, told in (("while", until_29, [["n0003"]]), ("after", rows, [])):
        verbs = Verbs(tmp_path / name, capsys)
        verbs.folder.mkdir()
        verbs.bring(brought, head=f"{HEAD},outcome,reason")
        said = verbs.said("regressions", "--since", "2026-03-20")[1]
        assert [one["names"] for one in said["causes"] if one["state"] == "told"] == told
        assert not told or contradictions(verbs) == []


@pytest.mark.promise(
    "What fails on a pair of a node that another test names is that node's in blame as in accept, and no open case."
)
@pytest.mark.parametrize("other_pair", [False, True])
@pytest.mark.parametrize("night_count", [1, 3])
def test_a_node_that_one_test_names_is_the_reason_of_its_pairs_in_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], night_count: int, other_pair: bool
) -> None:
    """An MTU black hole: n3's datagrams arrive nowhere, and of its streams only one stands still."""
    verbs = Verbs(tmp_path, capsys)
    nodes = [f"n{number}" for number in range(1, 7)]
    rows: list[str] = []
    for night in range(night_count):
        at = FIRST + dt.timedelta(days=night)
        for client, server in itertools.permutations(nodes, 2):
            stands = {"site_udp": "n3" in {client, server}, "site_tcp": (client, server) == ("n3", "n4")}
            stands["site_tcp"] |= night == 2 and (client, server) == ("n3", "n5")
            stands["site_tcp"] |= other_pair and night == night_count - 1 and (client, server) == ("n5", "n6")
            for test, still in stands.items():
                value, end = ("", "failed,nothing arrived") if still else (2e8 + night * 1e5 + len(rows) % 7 * 1e4, "measured,")
                rows.append(f"{at:%Y-%m-%dT%H:%M:%SZ},night-{night},{test},{client},{server},rate,{value},bps,higher,{end}")
    verbs.bring(rows, head=f"{HEAD},outcome,reason")
    code, said = verbs.said("blame", "--since", "2026-03-01")
    assert (code, said["nodes"], said["links"]) == (3, ["n3"], [])
    failed = {one["test"].split()[0]: (one["blamed"], one["unexplained"]) for one in said["failed"]}
    assert failed == {"site_udp": (["n3"], []), "site_tcp": (["n3"], [["n5", "n6"]] if other_pair else [])}
    words = verbs.words("blame", "--since", "2026-03-01", expect=3)
    assert f"{30 * night_count - night_count - (night_count == 3)} results; a healthy pair" in words
    assert ("it is not clear who is to blame of n5 > n6: measure more pairs" in words) is other_pair
    assert said["undecided"] is other_pair
    assert said["next_pairs"] == ([["n5", "n6"]] if other_pair else [])


def test_a_node_that_only_earlier_runs_name_is_the_reason_in_the_newest_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From night 1 on n3 brings nothing; the newest run met it with one partner alone, where streams ran all the time."""
    verbs = Verbs(tmp_path, capsys)
    rows: list[str] = []
    for night in range(4):
        at = FIRST + dt.timedelta(days=night)
        for client, server in itertools.permutations([f"n{number}" for number in range(1, 7)], 2):
            tests = ["site_udp"] if night < 3 or "n3" not in {client, server} else []
            for test in [*tests, *(["site_tcp"] if (client, server) == ("n3", "n4") else [])]:
                still = night > 0 and "n3" in {client, server}
                value, end = ("", "failed,nothing arrived") if still else (2e8 + len(rows) % 7 * 1e4, "measured,")
                rows.append(f"{at:%Y-%m-%dT%H:%M:%SZ},night-{night},{test},{client},{server},rate,{value},bps,higher,{end}")
    verbs.bring(rows, head=f"{HEAD},outcome,reason")
    code, said = verbs.said("blame", "--since", "2026-03-02")
    assert (code, said["nodes"], said["links"], said["undecided"]) == (3, ["n3"], [], False)
    assert {one["test"].split()[0]: one["blamed"] for one in said["failed"]} == {"site_udp": ["n3"], "site_tcp": ["n3"]}


@pytest.mark.promise("`compare` tells of no pair by one job what the nights hardly suspect of its node.")
def test_one_job_of_a_node_that_is_hardly_suspected_decides_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = Site(24, 30, "lognormal3", "each_run", fault=FAULTS["a node when it receives"])
    verbs = judged(tmp_path, capsys, site, seed=313)
    assert contradictions(verbs) == []
    _, said = verbs.said("compare", *COMPARED[1])
    assert "; but the nights until then suspect little, and fewer than 3 jobs on a side decide nothing" in str(said["pairs"])


@pytest.mark.promise("A job that failed once, weeks ago, makes no morning red while its nodes are fine; nor does it pass.")
def test_a_pair_that_failed_once_is_open_while_its_nodes_are_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other pairs run each night. One of a pair that ran before fails eight nights ago, another one tonight."""
    values = draw(Site(16, 30, "gauss2", "each_run"), seed=12)
    pairs = list(zip(values.night.tolist(), values.client.tolist(), values.server.tolist(), strict=True))
    known = {night: {pair[1:] for pair in pairs if pair[0] < night} for night in (22, 29)}
    for failing, code in ((22, 4), (29, 3)):
        rows = rows_of(values)
        place = next(
            i for i, one in enumerate(pairs) if one[0] == failing and one[1:] in known[failing] and pairs[i:].count(one) == 1
        )
        parts = rows[place].split(",")
        rows = [f"{row},measured," for row in rows]
        rows[place] = ",".join([*parts[:6], "", *parts[7:], "failed", "no route to host"])
        one = Verbs(tmp_path / str(failing), capsys)
        one.folder.mkdir()
        one.bring(rows, head=f"{HEAD},outcome,reason")
        said = one.said("regressions", "--since", "2026-03-10")
        assert (said[0], said[1]["judged"]["failed_count"]) == (code, int(code == 3))
        assert contradictions(one) == []


@pytest.mark.promise(
    "`compare` of two runs tells of a node of B all of whose tests fail, also where A did not measure its pairs."
)
def test_a_node_that_fails_with_partners_it_never_met_is_told_by_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verbs = Verbs(tmp_path, capsys)
    rows = []
    for row in rows_of(draw(Site(16, 30, "gauss2", "each_run"), seed=14)):
        parts = row.split(",")
        lost = "n0003" in parts[3:5] and parts[1] >= "night-022"
        rows.append(",".join([*parts[:6], "" if lost else parts[6], *parts[7:], "failed" if lost else "measured", ""]))
    verbs.bring(rows, head=f"{HEAD},outcome,reason")
    code, said = verbs.said("compare", "night-028", "night-029")
    assert (code, [one["names"] for one in said["causes"]]) == (3, [["n0003"]])
    assert contradictions(verbs) == []


@pytest.mark.promise("What is told of one cluster is not held against the runs of another.")
@pytest.mark.fast
def test_a_slow_node_of_one_cluster_leaves_the_other_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verbs = judged(tmp_path, capsys, Site(12, 25, "gauss2", "fixed"), seed=81)
    rows = rows_of(draw(Site(12, 25, "gauss2", "fixed", fault=Fault("node", 0.5, 15)), seed=82))
    beta = verbs.file("beta.csv", [row.replace("night-", "beta-") for row in rows], HEAD)
    verbs.words("import", beta, "--cluster", "beta")
    for name, slow in (("night", False), ("beta", True)):
        run, cluster = f"{name}-024", "beta" if slow else "alpha"
        codes = {
            verbs.said("compare", f"{name}-010", run)[0],
            verbs.said("report", run, "--to", str(tmp_path / "page.html"))[0],
            verbs.said("blame", "--run", run)[0],
            verbs.typed("export", "--format", "junit", run)[0],
            verbs.said("regressions", "--since", "2026-03-05", "--cluster", cluster)[0],
        }
        assert codes == {3} if slow else 3 not in codes
        words = {row["judged"] for row in verbs.said("nodes", "--since", "2026-03-05")[1] if row["cluster"] == cluster}
        assert ("told" in words) == slow


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 5))
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("noise", NOISES)
def test_no_history_makes_two_verbs_contradict_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], noise: str, plan: str, seed: int
) -> None:
    found = {}
    for place, fault in enumerate(FAULTS, start=len(FAULTS) * PLANS.index(plan)):
        site = Site(nodes_of(fault), 30, noise, plan, fault=FAULTS[fault])
        verbs = judged(tmp_path / str(place), capsys, site, seed=100 * seed + place)
        found[fault] = contradictions(verbs)
    assert {key: words for key, words in found.items() if words} == {}


@pytest.mark.long
def test_the_contradictions_of_a_history_would_be_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Torn(Verbs):
        def typed(self, *words: str) -> tuple[int, str, str]:
            code, out, err = super().typed(*words)
            return 0 if words[0] in {"blame", "export"} else code, out, err

    verbs = Torn(tmp_path, capsys)
    verbs.bring(rows_of(draw(Site(24, 30, "gauss2", "fixed", fault=FAULTS["a tenth of a node"]), seed=1)))
    found = contradictions(verbs)
    assert "blame says fine of what regressions calls slow" in found
    assert "export junit says fine of what runs calls slow" in found


@pytest.mark.promise("A judgement that is kept says word for word what a new one says, in every verb that reads it.")
def test_what_is_kept_is_what_a_new_look_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history with something told, suspected and failing; each verb as it is, then kept, then from what was kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    site = Site(24, 30, "gauss2", "each_run", fault=Fault("node", 0.15, 20))
    verbs = judged(tmp_path / "site", capsys, site, 7)
    calls = [
        ["nodes", "--since", "2026-03-20", "--json"],
        ["nodes", "--since", "2026-03-01..2026-03-20", "--json"],
        ["nodes", "n0007", "--json"],
        ["runs", "--json"],
        ["regressions", "--since", "2026-03-20", "--json"],
        ["compare", "night-028", "night-029", "--json"],
        ["blame", "--json"],
        ["report", "--since", "2026-03-20", "--to", str(tmp_path / "page.html")],
    ]

    def all_said() -> list[tuple[int, str, str]]:
        page = tmp_path / "page.html"
        found = [verbs.typed(*words) for words in calls]
        return [*found, (0, re.sub(r"Made [-0-9]+ [:0-9]+ UTC", "", page.read_text()), "")]

    monkeypatch.setattr(store, "SETTLED_AFTER_S", float("inf"))
    new = all_said()
    assert not (tmp_path / "cache").exists()
    monkeypatch.setattr(store, "SETTLED_AFTER_S", 0.0)
    monkeypatch.setattr(store, "KEPT_FROM_S", 0.0)
    assert all_said() == new
    files = set((tmp_path / "cache").rglob("*.json"))
    monkeypatch.setattr("hpcq.judge.judging.watch", None)  # nobody judges any more
    assert all_said() == new
    assert set((tmp_path / "cache").rglob("*.json")) == files
    assert any(cause["state"] == "told" for cause in json.loads(new[4][1])["causes"])


def nights_of(test: str, nights: range, slow: tuple[str, ...], since: int, level: float = 0.5) -> list[str]:
    """All pairs of eight nodes on these nights; pairs of which `slow` names both ends, or one node, lose speed."""
    random = np.random.default_rng(7)
    nodes, rows = [f"n{number}" for number in range(1, 9)], []
    for night in nights:
        for place, (client, server) in enumerate(itertools.permutations(nodes, 2)):
            hit = night >= since and set(slow) <= {client, server}
            at = FIRST + dt.timedelta(days=night, seconds=10 * place)
            value = 2e8 * (level if hit else 1.0) * (1 + 0.003 * random.standard_normal())
            rows.append(f"{at:%Y-%m-%dT%H:%M:%SZ},night-{night:03d},{test},{client},{server},rate,{value:.0f},bps,higher")
    return rows


@pytest.mark.promise("A test that was never run before is not fine because other tests of its nodes are.")
def test_other_tests_of_a_node_do_not_speak_for_a_new_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verbs = Verbs(tmp_path, capsys)
    new = range(28, 30)
    verbs.bring(
        [
            *nights_of("old_test", range(30), (), 30),
            *nights_of("always_slow", new, ("n3",), 0),
            *nights_of("slow_tonight", new, ("n5", "n6"), 29),
        ],
        head=HEAD,
    )
    code, blame = verbs.said("blame")
    assert (code, blame["nodes"]) == (3, ["n3"]), "the run's own word stands where too few nights know the test"
    code, compared = verbs.said("compare", "night-028", "night-029")
    worse = {tuple(sorted((one["client"], one["server"]))) for one in compared["pairs"] if one["verdict"] == "worse"}
    assert (code, worse) == (3, {("n5", "n6")})
    assert verbs.said("regressions", "--since", "2026-03-20")[0] != 0
    with reading(verbs.database) as connection:
        [standing] = standings(connection, ["alpha"], "latest")
        judged = {row.kernel for row in select(connection, Selection()) if row.series_id in standing.judged_series}
    assert judged == {"old_test"}, "a series alone is overruled where its nodes have nights enough in its own test"


@pytest.mark.promise("What is slow next to the others and always was is told as that by blame, not called fine.")
def test_what_was_always_slow_is_an_open_question(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verbs = Verbs(tmp_path, capsys)
    verbs.bring(nights_of("site_bw", range(30), ("n1", "n3"), 0, level=0.7), head=HEAD)
    code, blame = verbs.said("blame", "--run", "night-028", "--run", "night-029")
    assert code == 4
    [said] = [one for one in blame["open_questions"] if one.startswith("n1 - n3: ")]
    assert said == "n1 - n3: slower than the others in this run, and no slower than on its earlier nights"
    assert "Nobody is slow" not in verbs.words("blame", "--run", "night-028", "--run", "night-029", expect=4)


@pytest.mark.fast
@pytest.mark.parametrize("earlier", range(1, 6))
def test_a_young_site_passes_no_node_at_half_its_speed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], earlier: int
) -> None:
    fault = Fault("node", 0.5, earlier)
    verbs = judged(tmp_path, capsys, Site(16, earlier + 1, "gauss2", "each_run", fault=fault), seed=9)
    assert verbs.said("regressions", "--since", "2026-02-01")[0] == 4
    code, blame = verbs.said("blame")
    assert code == 4
    assert not [one for one in blame["open_questions"] if "no slower than on its earlier nights" in one]


@pytest.mark.fast
def test_blame_does_not_pass_a_night_that_is_suspected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verbs = Verbs(tmp_path, capsys)
    slower = draw(Site(12, 30, "gauss2", "each_run", fault=Fault("cluster", 0.25, 29)), seed=10)
    verbs.bring([*rows_of(draw(Site(12, 30, "gauss2", "each_run"), seed=9)), *rows_of(slower, latencies=True)], head=HEAD)
    assert contradictions(verbs) == []
    assert (verbs.said("regressions", "--since", "2026-03-20")[0], verbs.said("blame")[0]) == (4, 4)


@pytest.mark.promise("A first run is DEGRADED in every verb where blame names a node, and an older generation is not named.")
@pytest.mark.fast
@pytest.mark.parametrize("facts", [True, False])
def test_a_first_run_says_the_same_in_every_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str], facts: bool) -> None:
    """Two nodes of an older generation at 0.7, and n5 at half of what its own generation gives."""
    verbs, old = Verbs(tmp_path, capsys), ("n1", "n2")
    rows = []
    for row in nights_of("site_bw", range(2), ("n5",), 0):
        parts = row.split(",")
        if {parts[3], parts[4]} & set(old) and "n5" not in parts:
            parts[6] = str(round(0.7 * float(parts[6])))
        rows.append(",".join(parts))
    of_nodes = [f"n{one},2026-03-01T00:00:00Z,cpu.model,{'old' if f'n{one}' in old else 'new'}" for one in range(1, 9)]
    brought = ("--facts", verbs.file("facts.csv", of_nodes, "node,time,fact,value")) if facts else ()
    verbs.bring(rows, *brought, head=HEAD)
    code, blame = verbs.said("blame")
    assert (code, blame["nodes"]) == (3, ["n5"] if facts else [*old, "n5"])
    assert {row["verdict"] for row in verbs.said("runs")[1]} == {"degraded"}
    assert verbs.said("report", "--to", str(tmp_path / "page.html"))[0] == 3
    assert verbs.typed("export", "--format", "junit")[0] == 3
    accepted = {one["name"]: one["verdict"] for one in verbs.said("accept", "--from", "night-001")[1]["clusters"][0]["nodes"]}
    assert accepted["n5"] == "failed"
    assert not facts or {accepted[one] for one in old} == {"pass"}


@pytest.mark.promise("A first run accuses nobody whom only jobs beside other work show to be slow: that is INCONCLUSIVE.")
@pytest.mark.fast
@pytest.mark.parametrize("disturbed", ["every job", "those of n5"])
def test_a_first_run_beside_other_work_accuses_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], disturbed: str
) -> None:
    verbs = Verbs(tmp_path, capsys)
    verbs.bring(nights_of("site_bw", range(2), ("n5",), 0), head=HEAD)
    code, blame = verbs.said("blame")
    assert (code, blame["nodes"]) == (3, ["n5"])
    with closing(sqlite3.connect(verbs.database)) as database, database:
        of_n5 = "" if disturbed == "every job" else "WHERE client = 'n5' OR server = 'n5'"
        database.execute(f"UPDATE result SET disturbed = 1 WHERE result_id IN (SELECT result_id FROM v_results {of_n5})")
    code, blame = verbs.said("blame")
    assert (code, blame["nodes"]) == (4, [])
    assert any("n5: " in one and "only in jobs beside other work" in one for one in blame["open_questions"])
    assert {row["verdict"] for row in verbs.said("runs")[1]} == {"inconclusive"}
    page = verbs.typed("report", "--to", str(tmp_path / "page.html"))
    assert page[0] == 4
    assert "only in jobs beside other work: measure again" in (tmp_path / "page.html").read_text()


@pytest.mark.promise("A slow node is not taken for healthy because no other node has its hardware.")
@pytest.mark.fast
def test_the_only_node_of_its_hardware_is_not_its_own_measure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verbs = Verbs(tmp_path, capsys)
    facts = [f"n{one},2026-03-01T00:00:00Z,cpu.model,{'old' if one == 3 else 'new'}" for one in range(1, 9)]
    rows = nights_of("site_bw", range(2), ("n3",), 0)
    verbs.bring(rows, "--facts", verbs.file("facts.csv", facts, "node,time,fact,value"), head=HEAD)
    nodes = {one["name"]: one for one in verbs.said("accept", "--from", "night-001")[1]["clusters"][0]["nodes"]}
    assert (nodes["n3"]["verdict"], nodes["n4"]["verdict"]) == ("inconclusive", "pass")
    assert nodes["n3"]["reason"].startswith("no reference: fewer than three other pairs of such hardware")
    code, blame = verbs.said("blame")
    assert (code, blame["nodes"]) == (3, ["n3"])


@pytest.mark.promise("`hpcq accept --from RUN` passes no node that the nights until that run tell of.")
@pytest.mark.fast
def test_accept_passes_nobody_that_the_nights_tell_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything at 0.8 for four nights: as a baseline of the third, and as the run's own values, say of it."""
    verbs = Verbs(tmp_path, capsys)
    verbs.bring(nights_of("site_bw", range(30), (), 26, level=0.8), head=HEAD)
    verbs.words("baseline", "set", "late", "night-028")
    for against in ((), ("--against", "late")):
        code, said = verbs.said("accept", "--from", "night-029", *against)
        assert code == 4
        nodes = said["clusters"][0]["nodes"]
        assert {(one["verdict"], one["reason"].partition(":")[0]) for one in nodes} == {("inconclusive", "told")}
    before = verbs.said("accept", "--from", "night-020", "--against", "late")
    assert {one["verdict"] for one in before[1]["clusters"][0]["nodes"]} == {"pass"}
