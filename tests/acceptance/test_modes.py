"""A round trip with two levels, one per job, as idle states of a CPU give: nobody is named, and the sleep is said beside it."""

from __future__ import annotations

import json
import random

import pytest

from hpcq.cli.main import run
from hpcq.store.database import transaction, writing
from tests.acceptance.test_acceptance_cases import Line, Site, with_good_baseline, words

pytestmark = pytest.mark.fast

RUNS = 3


def with_modes(site: Site) -> list[str]:
    """Runs in which a job's round trips are all about 22 us or all about 72 us; each job of 72 us slept deeply."""
    flips = random.Random(5)
    level: dict[tuple[str, str], float] = {}

    def edit(line: Line, client: str, server: str) -> None:
        if line["kernel"] == "tcp_pingpong":
            ratio = level.setdefault((client, server), 72 / 22 if flips.random() < 0.4 else 1.0)
            line["metrics"] = {
                name: value * ratio if name.startswith("round_trip") else value for name, value in line["metrics"].items()
            }

    runs = []
    for _ in range(RUNS):
        level.clear()
        name = site.run(edit)
        asleep(site, name, {pair for pair, ratio in level.items() if ratio > 1})
        runs.append(name)
    return runs


def asleep(site: Site, name: str, pairs: set[tuple[str, str]]) -> None:
    """What the rule deep_sleep would have found on these pairs."""
    with writing(site.database) as database, transaction(database):
        database.execute("INSERT OR IGNORE INTO rule (name, meaning, advice, source) VALUES ('deep_sleep', '', '', '')")
        for client, server in sorted(pairs):
            database.execute(
                "INSERT INTO result_finding (result_id, rule_id, end_index, message, figures)"
                " SELECT v.result_id, r.rule_id, 0, 'asleep', '{}' FROM v_results v, rule r WHERE r.name = 'deep_sleep'"
                " AND v.run = ? AND v.client = ? AND v.server = ? AND v.kernel = 'tcp_pingpong'",
                (name, client, server),
            )


@pytest.fixture(scope="module")
def modes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, list[str]]:
    """Made once: a good run as the baseline, and runs with modes."""
    site = Site(tmp_path_factory.mktemp("modes"))
    with_good_baseline(site, 1)
    return site, with_modes(site)


@pytest.mark.promise("A latency with one level per job accuses no node, even among five nodes.")
@pytest.mark.promise("Acceptance says beside a time that scatters in how many results a CPU slept deeply.")
@pytest.mark.heavy
def test_acceptance_names_nobody_for_a_latency_with_modes_and_says_that_cpus_slept(modes: tuple[Site, list[str]]) -> None:
    site, runs = modes
    found = site.accept(*runs)
    assert not {"failed", "degraded"} & set(words(found).values()), words(found)
    assert any("its speed changes from job to job; a CPU slept deeply in" in one for one in found.notes), found.notes


@pytest.mark.heavy
@pytest.mark.promise(
    "`blame` says beside a test in how many results a CPU slept deeply, and names no link for one level per job."
)
def test_blame_names_no_link_for_one_level_per_job_and_says_that_cpus_slept(
    modes: tuple[Site, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    site, runs = modes
    words = [part for name in runs for part in ("--run", name)]
    run(["blame", *words, "--db", str(site.database), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["nodes"] == found["links"] == found["groups"] == []
    [said] = found["sleep"].values()
    assert said.startswith("a CPU slept deeply in ")
    run(["blame", *words, "--db", str(site.database)])
    assert f"idle   {said}: waking is part of these times" in capsys.readouterr().out
