"""Acceptance on built run folders: the ways in which "no data" once became PASS, each through loading, points and verdict."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from hpcq.errors import UserError
from hpcq.run_folder.paths import write_json
from hpcq.runner.accept.judging import Judging, since_words
from hpcq.scheduler.administration import NodeUpkeep, Upkeep
from hpcq.store import selection
from hpcq.store.database import reading, transaction, writing
from hpcq.store.keep.annotations import Author, set_baseline
from hpcq.store.keep.check_and_prune import prune
from hpcq.store.load.cluster import load_run
from hpcq.verdict.acceptance import Acceptance
from tests.store.run_folders import RunBuilder, utc

pytestmark = pytest.mark.fast

TESTS = (("tcp_stream", {"message_bytes": 65536}), ("tcp_pingpong", {"message_bytes": 64}))
REASON = "fewer than two datagrams arrived of 5096 sent"
NODES = ("n1", "n2", "n3", "n4", "n5")
EVERY = list(permutations(NODES, 2))
Line = dict[str, Any]
#: Changes a result line of (client, server, kernel), or does not.
Edit = Callable[[Line, str, str], None]


def nothing(line: Line, client: str, server: str) -> None:
    """All is well."""


def slower(level: float, *nodes: str) -> Edit:
    """Pairs with these nodes at this share of their speed; everybody where none is named."""

    def edit(line: Line, client: str, server: str) -> None:
        if not nodes or {client, server} & set(nodes):
            for name, value in line["metrics"].items():
                if name.endswith("_bps"):
                    line["metrics"][name] = value * level
                elif name.startswith("round_trip"):
                    line["metrics"][name] = value / level

    return edit


def failing(kernel: str, chosen: Callable[[str, str], bool]) -> Edit:
    """Tests of a kernel that bring nothing on some pairs."""

    def edit(line: Line, client: str, server: str) -> None:
        if line["kernel"] == kernel and chosen(client, server):
            line |= {
                "valid": False,
                "invalid_reason": "fewer than two datagrams arrived of 5096 sent",
                "exit_code": 1,
                "metrics": {},
            }

    return edit


class Site:
    """A database, its runs, and acceptances of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "results.db"
        self.count = 0

    def run(
        self,
        edit: Edit = nothing,
        *,
        tests: Sequence[tuple[str, Mapping[str, Any]]] = TESTS,
        attempts: Callable[[str, str], bool] = lambda *_: True,
    ) -> str:
        """One run of every pair, loaded; its name.  attempts: pairs that ran at all."""
        self.count += 1
        made = RunBuilder(
            self.folder / "runs", pairs=EVERY, tests=[(name, dict(changed)) for name, changed in tests], seed=self.count,
            counter_count=2, run=f"nightly-202611{self.count:02d}T020000Z-00ff",
        )  # fmt: skip
        made.seconds = 86400.0 * self.count
        write_json(made.folder.run_json, {**json.loads(made.folder.run_json.read_text()), "created_utc": utc(made.seconds)})
        with made.journal_open():
            for number, (client, server) in enumerate(EVERY, 1):
                if not attempts(client, server):
                    continue
                job = f"j{number:05d}"
                made.submit(job)
                made.measure(job, steps=[])
                for step in made.steps:
                    line = made.line(job, step)
                    edit(line, client, server)
                    made.write_line(job, 1, step, line, rc=line["exit_code"])
                made.end(job)
            made.journal("closed")
        load_run(self.database, made.path)
        return made.run

    def baseline(self, *runs: str) -> None:
        set_baseline(self.database, "good", runs, Author("me", "first light"))

    def judging(self, baseline: str | None = "good") -> Judging:
        with reading(self.database) as database:
            reference = selection.baseline_runs(database, baseline) if baseline else ()
        return Judging(self.database, "alpha", reference, baseline)

    def accept(self, *runs: str, baseline: str | None = "good", now: Upkeep | None = None) -> Acceptance:
        judging = self.judging(baseline)
        found = judging.measured(runs)
        return judging.with_since(judging.verdicts(NODES, found, {}, now))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def words(found: Acceptance) -> dict[str, str]:
    return {one.name: one.verdict.value for one in (*found.clusters, *found.nodes, *found.links, *found.groups)}


def reason_of(found: Acceptance, name: str) -> str:
    return next(one.reason for one in (*found.clusters, *found.nodes) if one.name == name)


PASSED = dict.fromkeys(NODES, "pass")


def with_good_baseline(site: Site, runs: int = 3) -> None:
    site.baseline(*(site.run() for _ in range(runs)))


@pytest.fixture(scope="module")
def first_light(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Three good runs, made once; `based` copies their database."""
    site = Site(tmp_path_factory.mktemp("first-light"))
    with_good_baseline(site)
    return site


@pytest.fixture
def based(first_light: Site, tmp_path: Path) -> Site:
    site = Site(tmp_path)
    with closing(sqlite3.connect(first_light.database)) as full, closing(sqlite3.connect(site.database)) as copy:
        full.backup(copy)
    site.count = first_light.count
    return site


@pytest.mark.heavy
def test_all_is_well_and_a_slow_node_is_not(based: Site) -> None:
    assert words(based.accept(based.run())) == PASSED
    assert words(based.accept(based.run(slower(0.5, "n2")))) == PASSED | {"n2": "failed"}


@pytest.mark.heavy
def test_a_test_that_the_baseline_lacks_is_judged_by_the_other_pairs_and_that_is_said(based: Site) -> None:
    """Case 1: another size than the baseline's has no reference there, and no pair is compared with itself."""
    other = based.run(slower(0.5, "n2"), tests=(("tcp_stream", {"message_bytes": 1048576}),))
    found = based.accept(other)
    assert words(found) == PASSED | {"n2": "failed"}
    assert found.notes == ("tcp_stream 1 MiB: the baseline has nothing of it, so its jobs are compared with each other only",)


@pytest.mark.heavy
@pytest.mark.promise("An option at its default begins no new series, so no baseline is lost to it.")
def test_an_option_at_its_default_loses_no_baseline(based: Site) -> None:
    """Case 1: the key is the series, and a series leaves out what has its default."""
    with reading(based.database) as database:
        full, short = database.execute(
            "SELECT max(length(ps.json)), max(length(s.parameters)) FROM result x JOIN series s ON s.series_id = x.series_id"
            " JOIN parameter_set ps ON ps.parameter_set_id = x.parameter_set_id"
        ).fetchone()
    assert short < full / 2
    assert words(based.accept(based.run(slower(0.5, "n2"))))["n2"] == "failed"


@pytest.mark.promise("Acceptance reads a pruned baseline from its roll-ups.")
@pytest.mark.heavy
@pytest.mark.usefixtures("every_job_rolls_up")
def test_a_pruned_baseline_is_read_from_its_roll_ups(site: Site) -> None:
    """Case 2."""
    runs = [site.run() for _ in range(3)]
    prune(site.database, "2099")
    site.baseline(*runs)
    assert words(site.accept(site.run())) == PASSED
    found = site.accept(site.run(slower(0.5)), site.run(slower(0.5)))
    assert words(found) == dict.fromkeys(NODES, "inconclusive") | {"alpha": "failed"}


@pytest.mark.promise("Pruning leaves the runs of a baseline alone.")
@pytest.mark.heavy
@pytest.mark.usefixtures("every_job_rolls_up")
def test_baseline_runs_are_not_pruned(site: Site) -> None:
    """Case 2: what counts as good keeps its single values."""
    first, second = site.run(), site.run()
    site.baseline(first)
    prune(site.database, "2099")
    with reading(site.database) as database:
        query = "SELECT DISTINCT v.run FROM metric m JOIN v_results v ON v.result_id = m.result_id"
        kept = {str(row[0]) for row in database.execute(query)}
    assert kept == {first}
    assert second not in kept


@pytest.mark.promise("Acceptance against a baseline without values is an error.")
def test_an_empty_baseline_is_an_error(site: Site) -> None:
    """Case 2."""
    site.baseline(site.run(attempts=lambda *_: False))
    with pytest.raises(UserError, match="baseline 'good' has no value on alpha"):
        site.judging().check_baseline()


@pytest.mark.heavy
@pytest.mark.parametrize(
    "chosen",
    [
        lambda client, server: "n2" in {client, server},
        lambda client, _: client == "n2",
        lambda client, server: "n2" in {client, server} and "n1" not in {client, server},
    ],
    ids=["every TCP test", "never a client", "reaches one of four"],
)
def test_tests_that_fail_count(based: Site, chosen: Callable[[str, str], bool]) -> None:
    """Case 3: its ping-pong is fine, and that clears nobody."""
    found = based.accept(based.run(failing("tcp_stream", chosen)))
    assert words(found) == PASSED | {"n2": "failed"}
    assert REASON in reason_of(found, "n2")
    assert "tcp_stream 64 KiB brings nothing" in reason_of(found, "n2")


@pytest.mark.heavy
def test_an_attempt_that_brought_nothing_counts_and_one_that_never_ran_does_not(based: Site) -> None:
    """Case 3: a black hole may end the whole job; a job that was never submitted says nothing."""
    found = based.accept(based.run(attempts=lambda client, server: "n2" not in {client, server}))
    assert words(found) == PASSED | {"n2": "not_covered"}
    assert "not run" in reason_of(found, "n2")


@pytest.mark.heavy
@pytest.mark.promise("One fine pair clears no node of its bad ones.")
def test_one_fine_pair_does_not_clear_a_node(based: Site) -> None:
    """Cases 4 and 5."""

    def edit(line: Line, client: str, server: str) -> None:
        if "n2" in {client, server} and "n1" not in {client, server}:
            slower(0.5)(line, client, server)

    found = based.accept(based.run(edit))
    assert words(found) == PASSED | {"n2": "failed"}
    assert "(fine with n1)" in reason_of(found, "n2")


def with_findings(based: Site, run: str, node: str, rule: str, message: str) -> str:
    """What the rules would have found: one finding for each result of a node in this run."""
    with writing(based.database) as database, transaction(database):
        database.execute("INSERT OR IGNORE INTO rule (name, meaning, advice, source) VALUES (?, '', '', '')", (rule,))
        (rule_id,) = database.execute("SELECT rule_id FROM rule WHERE name = ?", (rule,)).fetchone()
        columns = [row[1] for row in database.execute("PRAGMA table_info(result_finding)")]
        more = {"message": message, "figures": "{}", "rule_id": rule_id}
        rows = database.execute("SELECT result_id, client FROM v_results WHERE run = ? AND ? IN (client, server)", (run, node))
        for result_id, client in rows.fetchall():
            row = {**more, "result_id": result_id, "end_index": 0 if client == node else 1}
            names = [one for one in columns if one in row]
            marks = ", ".join("?" * len(names))
            database.execute(f"INSERT INTO result_finding ({', '.join(names)}) VALUES ({marks})", [row[one] for one in names])
    return run


@pytest.mark.heavy
@pytest.mark.parametrize("rule", ["mtu_mismatch", "link_degraded", "pcie_degraded", "link_errors"])
def test_evidence_weighs_in_though_results_are_fine(based: Site, rule: str) -> None:
    """Case 6; what the baseline had already is known and does not."""
    found = based.accept(with_findings(based, based.run(), "n2", rule, "n2 has an MTU of 1300, n1 of 1500"))
    assert words(found) == PASSED | {"n2": "degraded"}
    assert "n2 has an MTU of 1300, n1 of 1500" in reason_of(found, "n2")
    based.baseline(with_findings(based, based.run(), "n2", rule, "as it always was"))
    again = based.accept(with_findings(based, based.run(), "n2", rule, "as it always was"))
    assert words(again)["n2"] != "degraded"


@pytest.mark.promise("Values measured beside other work are left out of a baseline.")
@pytest.mark.heavy
def test_disturbed_values_make_no_baseline_and_accuse_nobody(site: Site) -> None:
    """Case 6."""
    runs = [site.run(), site.run(), site.run(slower(0.5))]
    with writing(site.database) as database:
        query = "UPDATE result SET disturbed = 1 WHERE result_id IN (SELECT result_id FROM v_results WHERE run = ?)"
        database.execute(query, (runs[2],))
    site.baseline(*runs)
    assert words(site.accept(site.run())) == PASSED
    slow = site.run(slower(0.5, "n2"))
    with writing(site.database) as database:
        database.execute(query, (slow,))
    assert not {"failed", "degraded"}.intersection(words(site.accept(slow)).values())


@pytest.mark.heavy
def test_where_everything_runs_beside_other_work_all_values_count(based: Site) -> None:
    runs = [based.run(), based.run(slower(0.5, "n2"))]
    with writing(based.database) as database:
        database.execute("UPDATE result SET disturbed = 1")
    assert words(based.accept(runs[0])) == PASSED
    assert words(based.accept(runs[1])) == PASSED | {"n2": "failed"}


@pytest.mark.heavy
def test_half_speed_in_one_run_and_fine_in_the_next_is_watched(based: Site) -> None:
    """Case 7."""
    found = based.accept(based.run(slower(0.5, "n2")), based.run())
    assert words(found)["n2"] == "inconclusive"
    assert found.drainable == frozenset()
    assert any("n2" in pair for pair in (*found.unsettled, *found.open)), "it is run again"


@pytest.mark.promise("A cluster that is slower as a whole is reported with the run in which that began.")
@pytest.mark.heavy
def test_everything_at_half_its_baseline_is_said_once_with_since_when(based: Site) -> None:
    """Case 8."""
    last_good = based.run()
    first_slow = based.run(slower(0.5))
    found = based.accept(based.run(slower(0.5)), based.run(slower(0.5)))
    assert words(found) == dict.fromkeys(NODES, "inconclusive") | {"alpha": "failed"}
    assert f"slower since run {first_slow}" in reason_of(found, "alpha")
    assert f"as expected last in run {last_good}" in reason_of(found, "alpha")


@pytest.mark.heavy
@pytest.mark.promise("A node that the scheduler saw start after its measurement is not judged by it.")
def test_a_boot_between_measuring_and_deciding_is_seen(based: Site) -> None:
    """Case 9: by the scheduler's word, and by the boot ids of two runs."""
    run = based.run()
    later = Upkeep("me", {"n3": NodeUpkeep("n3", "2027-01-01T00:00:00Z", False, False, "", ("main",))})
    found = based.accept(run, now=later)
    assert words(found) == PASSED | {"n3": "inconclusive"}
    assert "booted after it was measured" in reason_of(found, "n3")


def test_since_when() -> None:
    def level(day: int, change: float) -> tuple[str, str, float]:
        return f"r{day}", f"2026-11-{day:02d}T02:00:00Z", change

    assert since_words([level(3, -0.6), level(2, -0.7), level(1, 0.01)]) == (
        "slower since run r2 (2026-11-02T02:00Z), as expected last in run r1 (2026-11-01T02:00Z)"
    )
    assert since_words([level(3, 0.0), level(2, -0.7)]) == ""
    assert since_words([level(3, -0.6)]) == "slower since run r3 (2026-11-03T02:00Z) at least"
