"""The verdict of one acceptance run on drawn scenes with a known truth; the seeds are not those of the bench."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bench import run_verdicts
from bench.run_verdicts import Counts, accept, count, play
from bench.support.drawn_scenes import PING, SHARED, STREAM, Scene, Site, draw, several_at_once
from hpcq.judge.acceptance import Known, RunVerdict, Word, judge_run
from hpcq.judge.scatter import scatter_of
from hpcq.judge.values import Values
from hpcq.runner.accept.choice import MEETINGS, PARTNERS, partners

pytestmark = pytest.mark.fast

SEED = 7001


def verdict_of(scene: Scene, seed: int = SEED) -> RunVerdict:
    return accept(scene, seed)[0]


def words_of(verdict: RunVerdict) -> dict[str, Word]:
    return {one.name: one.word for one in verdict.nodes}


def causes_of(verdict: RunVerdict) -> list[tuple[str, str, Word]]:
    return [(one.kind, one.name, one.word) for one in verdict.things]


@pytest.mark.heavy
@pytest.mark.parametrize("seed", [901, pytest.param(902, marks=pytest.mark.long)])
def test_drawn_scenes_keep_the_three_goals(seed: int) -> None:
    counts = play(38, seed)
    assert not counts.bad_pass, counts.wrong
    assert not counts.drained, counts.wrong
    assert counts.inconclusive <= 0.05 * counts.healthy, counts.wrong
    assert counts.bad > 50
    assert counts.healthy > 300


@pytest.mark.heavy
@pytest.mark.promise(
    "Nodes whose pairs share narrow uplinks pass: what is fine alone overrules what was slow beside other pairs."
)
def test_pairs_that_share_narrow_uplinks_leave_healthy_nodes_passing(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = play(10, 904, kind=SHARED)
    assert (counts.bad_pass, counts.drained, counts.accused) == (0, 0, 0), counts.wrong
    assert counts.inconclusive <= 0.05 * counts.healthy, counts.wrong
    assert counts.named == counts.bad > 0
    verdict = verdict_of(draw(24, 5, SHARED), 5024)
    assert set(words_of(verdict).values()) == {Word.PASS}
    assert any("as expected alone: the uplink is shared" in one.reason for one in verdict.nodes)
    assert any(one.endswith("as expected alone: they share an uplink") for one in verdict.notes)
    monkeypatch.setattr(run_verdicts, "Known", lambda allowed, **_: Known(allowed))  # as if nothing were known of being alone
    assert set(words_of(verdict_of(draw(24, 5, SHARED), 5024)).values()) != {Word.PASS}


@pytest.mark.heavy
def test_an_uplink_that_carries_less_than_in_the_baseline_is_no_shared_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lost members: a pair alone is as fast as ever, and in the baseline all pairs together were."""

    class WasWide(Site):
        def baseline(self, pairs: Sequence[tuple[str, str]]) -> Values | None:
            shared, self.scene.shared = self.scene.shared, 8.0
            found = super().baseline(pairs)
            self.scene.shared = shared
            return found

    monkeypatch.setattr(run_verdicts, "Site", WasWide)
    verdict = verdict_of(Scene("lost members", shared=1.2, scatter=0.02))
    assert Word.PASS not in words_of(verdict).values()
    assert [kind for kind, _, word in causes_of(verdict) if word is Word.FAILED]
    assert not verdict.drainable
    assert not [one for one in verdict.notes if "share an uplink" in one]


@pytest.mark.heavy
@pytest.mark.parametrize("level", [0.95, 0.9, 0.5])
def test_everything_slower_is_the_cluster_and_nobody_else(level: float) -> None:
    verdict = verdict_of(Scene("slower", scatter=0.02, level=level))
    assert [(kind, name) for kind, name, _ in causes_of(verdict)] == [("cluster", "sim")]
    assert set(words_of(verdict).values()) == {Word.INCONCLUSIVE}
    assert not verdict.drainable


@pytest.mark.heavy
def test_a_slowdown_of_everything_below_what_is_told_is_the_clusters_and_its_nodes_pass() -> None:
    verdict = verdict_of(Scene("slower", scatter=0.01, level=0.965))
    assert causes_of(verdict) == [("cluster", "sim", Word.DEGRADED)]
    assert set(words_of(verdict).values()) == {Word.PASS}


@pytest.mark.heavy
def test_a_node_on_top_of_a_slow_cluster_is_named_beside_it() -> None:
    words = words_of(verdict_of(Scene("slower", level=0.7, slow={5: 0.6})))
    assert words.pop("n006") is Word.FAILED
    assert set(words.values()) == {Word.INCONCLUSIVE}


@pytest.mark.heavy
def test_a_rack_with_a_wrong_driver_is_one_cause_and_drains_none_of_its_nodes() -> None:
    verdict = verdict_of(Scene("driver", scatter=0.02, racks={1: 0.8}))
    assert causes_of(verdict) == [("group", "leaf2", Word.FAILED)]
    words = words_of(verdict)
    assert {words[f"n{node:03d}"] for node in range(5, 9)} == {Word.INCONCLUSIVE}
    assert {word for name, word in words.items() if name not in {"n005", "n006", "n007", "n008"}} == {Word.PASS}


@pytest.mark.heavy
def test_a_slow_uplink_leaves_its_nodes_unaccused() -> None:
    verdict = verdict_of(Scene("uplink", scatter=0.02, uplinks={2: 0.7}))
    assert causes_of(verdict) == [("group", "leaf3", Word.FAILED)]
    assert {words_of(verdict)[f"n{node:03d}"] for node in range(9, 13)} == {Word.INCONCLUSIVE}


@pytest.mark.heavy
def test_an_older_generation_is_judged_against_its_own_class() -> None:
    older = dict.fromkeys((2, 7, 11), 0.5)
    assert set(words_of(verdict_of(Scene("older", has_baseline=False, generation=older))).values()) == {Word.PASS}
    words = words_of(verdict_of(Scene("older", generation=dict.fromkeys((1, 2, 7, 11, 14), 0.5), slow={7: 0.4})))
    assert words.pop("n008") is Word.FAILED
    assert set(words.values()) == {Word.PASS}


@pytest.mark.heavy
def test_a_bad_day_baseline_passes_nobody_who_was_slow_in_it() -> None:
    verdict = verdict_of(Scene("bad day", slow={3: 0.5}, slow_before={3: 0.5}))
    bad = next(one for one in verdict.nodes if one.name == "n004")
    assert bad.word is Word.FAILED
    assert "slower than its like in the baseline itself" in bad.reason
    better = verdict_of(Scene("bad day for all", slow={13: 0.8}, level_before=0.8))
    assert words_of(better)["n014"] is Word.FAILED
    assert any("better than the baseline" in note for note in better.notes)
    assert sum(word is Word.PASS for word in words_of(better).values()) == 15


@pytest.mark.heavy
def test_a_first_time_site_below_what_its_hardware_should_give_passes_nobody() -> None:
    scene = Scene("first", has_baseline=False, level=0.5, allowed=0.7)
    verdict = verdict_of(scene)
    assert causes_of(verdict) == [("cluster", "sim", Word.FAILED)]
    assert set(words_of(verdict).values()) == {Word.INCONCLUSIVE}
    assert set(words_of(verdict_of(replace(scene, level=1.0))).values()) == {Word.PASS}


@pytest.mark.heavy
def test_latencies_with_two_modes_are_nobodys_fault_and_hide_no_slow_node() -> None:
    words = words_of(verdict_of(Scene("modes", scatter=0.02, modes=True, slow={5: 0.7})))
    assert words.pop("n006") is Word.FAILED
    assert sum(word is Word.PASS for word in words.values()) >= 14


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["black_hole", "half_dead"])
def test_a_node_whose_jobs_fail_is_named_and_its_partners_pass(kind: str) -> None:
    fault = {"black_hole": (6,)} if kind == "black_hole" else {"half_dead": {6: tuple(one for one in range(16) if one % 2)}}
    words = words_of(verdict_of(Scene(kind, **fault)))
    assert words.pop("n007") is Word.FAILED
    assert sum(word is Word.PASS for word in words.values()) >= 14


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("baseline", [False, True])
def test_a_slow_node_a_slow_leaf_and_a_lossy_link_at_once_are_three_causes_and_nobody_else(seed: int, baseline: bool) -> None:
    """Eight nodes, heavy tails; most pairs across leaves are slow, and every node meets two or three healthy ones only."""
    scene = Scene("several", scatter=(0.005, 0.01, 0.02)[seed % 3], tails="heavy", has_baseline=baseline)
    several_at_once(scene, np.random.default_rng([seed, 14]))
    verdict = verdict_of(scene, seed)
    names = scene.names()
    link = " - ".join(names[node] for node in next(iter(scene.links)))
    expected = {("group", f"leaf{next(iter(scene.uplinks)) + 1}"), ("link", link)}
    assert {(kind, name) for kind, name, _ in causes_of(verdict)} == expected
    words = words_of(verdict)
    assert {name for name, word in words.items() if word in {Word.FAILED, Word.DEGRADED}} == {names[next(iter(scene.slow))]}
    assert {words[names[node]] for node in scene.behind} == {Word.INCONCLUSIVE}
    healthy = [words[names[node]] for node in set(range(8)) - scene.behind - set(scene.slow)]
    assert healthy.count(Word.PASS) >= 4, healthy


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(6))
def test_a_link_that_loses_packets_and_passing_traffic_do_not_make_its_ends_flap(seed: int) -> None:
    scene = Scene("lossy link", 8, 4, 0.01, "heavy", traffic=0.05, links={(0, 4): 0.04})
    verdict = verdict_of(scene, seed)
    assert ("link", "n001 - n005", Word.FAILED) in causes_of(verdict)
    assert not {Word.FAILED, Word.DEGRADED} & set(words_of(verdict).values())


@pytest.mark.heavy
def test_a_node_that_fails_with_half_of_its_partners_is_no_pair_of_links() -> None:
    verdict = verdict_of(Scene("half-dead", half_dead={3: (0, 1, 4, 7, 9, 12, 13, 15)}))
    assert words_of(verdict)["n004"] is Word.FAILED
    assert not causes_of(verdict)


@pytest.mark.heavy
def test_what_is_told_grows_with_the_scatter() -> None:
    quiet, noisy = (verdict_of(Scene("well", scatter=scatter)) for scatter in (0.01, 0.05))
    told = [{one.test: one.slower for one in verdict.told} for verdict in (quiet, noisy)]
    assert told[0][STREAM] == pytest.approx(-np.log(0.95))
    assert told[1][STREAM] > told[0][STREAM]
    assert told[1][PING] < 0.15


def test_one_run_alone_suspects_and_does_not_tell_after_two_jobs() -> None:
    scene = Scene("slow", slow={3: 0.5})
    site = Site(scene, SEED)
    few = [("n004", "n001"), ("n001", "n004"), ("n002", "n003"), ("n003", "n002"), ("n005", "n006"), ("n006", "n005")]
    verdict = judge_run(site.names[:6], site.measure(few), site.baseline(few), final=False)
    assert words_of(verdict)["n004"] is Word.INCONCLUSIVE
    assert {"n001", "n004"} <= set(verdict.suspects)


def test_a_node_without_any_row_is_not_covered_and_says_why() -> None:
    site = Site(Scene("well"), SEED)
    pairs = partners(site.names[:15], site.names[:15], meetings=MEETINGS)
    verdict = judge_run(site.names, site.measure(pairs), None, Known(missing={"n016": "down: power"}))
    last = verdict.nodes[-1]
    assert (last.word, last.reason) == (Word.NOT_COVERED, "down: power")


@pytest.mark.heavy
def test_flaws_boots_and_gates_weigh_in() -> None:
    site = Site(Scene("well"), SEED)
    pairs = partners(site.names, site.names, meetings=MEETINGS)
    now = site.measure(pairs)
    rows = [int(row) for row in np.flatnonzero((now.test == 0) & ((now.client == 8) | (now.server == 8)))]
    known = Known(
        flaws={"n001": "MTU 1300"}, booted={"n002": "twice"}, broken=dict.fromkeys(rows, "median must be >= 8 Gbit/s")
    )
    verdict = judge_run(site.names, now, site.baseline(pairs), known)
    words = words_of(verdict)
    assert (words["n001"], words["n002"], words["n009"]) == (Word.DEGRADED, Word.INCONCLUSIVE, Word.FAILED)
    assert "8 Gbit/s" in next(one.reason for one in verdict.nodes if one.name == "n009")


@pytest.mark.heavy
@pytest.mark.promise("A node whose gate could not be judged is no PASS.")
def test_an_open_gate_is_no_pass() -> None:
    site = Site(Scene("well"), SEED)
    pairs = partners(site.names, site.names, meetings=MEETINGS)
    now, before = site.measure(pairs), site.baseline(pairs)
    assert words_of(judge_run(site.names, now, before, Known()))["n009"] is Word.PASS
    rows = [int(row) for row in np.flatnonzero((now.test == 0) & ((now.client == 8) | (now.server == 8)))]
    verdict = judge_run(site.names, now, before, Known(open_gates=dict.fromkeys(rows, "2 peers are too few")))
    said = next(one for one in verdict.nodes if one.name == "n009")
    assert (said.word, said.reason) == (Word.INCONCLUSIVE, "a gate could not be judged: 2 peers are too few")


def test_further_partners_are_met_in_one_direction_and_roles_stay_even() -> None:
    names = [f"n{one:03d}" for one in range(24)]
    pairs = partners(names, names, meetings=MEETINGS)
    met = {name: {end for pair in pairs if name in pair for end in pair} - {name} for name in names}
    assert min(len(one) for one in met.values()) >= PARTNERS + MEETINGS
    sent = [sum(pair[0] == name for pair in pairs) for name in names]
    received = [sum(pair[1] == name for pair in pairs) for name in names]
    assert max(abs(a - b) for a, b in zip(sent, received, strict=True)) <= 3


def test_levels_of_a_test_are_found_and_one_stray_job_is_none() -> None:
    random = np.random.default_rng(SEED)
    ends = [(one % 24, (one * 7 + 1 + one // 24) % 24) for one in range(120)]
    residuals = random.normal(0, 0.01, 120)
    residuals[:40] -= 1.1
    residuals[60] -= 0.4
    top, scatter = scatter_of(residuals, ends, 0.005, lower=True)
    assert top == pytest.approx(0, abs=0.01)
    assert list(scatter.centres) == pytest.approx([0.0, -1.1], abs=0.01)
    assert 0.005 < scatter.sigma < 0.02
    assert scatter_of(residuals, ends, 0.005)[1].centres == (0.0,)


@pytest.mark.heavy
def test_counting_tells_a_bad_node_that_passes() -> None:
    scene = Scene("slow", slow={3: 0.5})
    verdict = verdict_of(Scene("well"))
    counts = Counts()
    count(scene, verdict, counts, "x")
    assert counts.bad_pass == 1
    assert "PASS of n004" in counts.wrong[0]
