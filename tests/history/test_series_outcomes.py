"""What became of every test of every pair: values beside what failed, was invalid, disturbed, pruned or never ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcq.analysis.series_outcomes import _ROLLED_UP, SeriesOutcome, outcomes_in, series_of_run
from hpcq.errors import Exit
from hpcq.store.database import reading, writing
from hpcq.store.keep.check_and_prune import prune
from hpcq.store.selection import Selection
from hpcq.verdict.words import Tally, Verdict
from tests.store.run_folders import RunBuilder, load

pytestmark = pytest.mark.fast

STEPS = [(1, 1), (1, 2), (1, 3)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


def of_database(path: Path, metric: str | None = None) -> dict[tuple[str, str, str], SeriesOutcome]:
    with reading(path) as database:
        runs = [int(row[0]) for row in database.execute("SELECT run_id FROM run")]
        return {(one.client, one.server, one.kernel): one for one in outcomes_in(database, runs, Selection(metric=metric))}


def broken(builder: RunBuilder, job: str, step: tuple[int, int], reason: str) -> None:
    line = builder.line(job, step, valid=False, invalid_reason=reason, exit_code=1, metrics={})
    builder.write_line(job, 1, step, line, rc=1)


@pytest.mark.promise("A test that never ran is not reported as gone.")
def test_values_stand_beside_what_did_not_come(tmp_path: Path, path: Path) -> None:
    builder = RunBuilder(tmp_path / "runs", pairs=(("n1", "n2"), ("n2", "n1"), ("n1", "n3")))
    builder.submit("j00001")
    builder.measure("j00001")
    broken(builder, "j00001", (1, 2), "fewer than two datagrams arrived")
    builder.end("j00001")
    builder.submit("j00002")
    builder.measure("j00002", steps=[(2, 1), (2, 2), (2, 3)])
    for step in STEPS:
        broken(builder, "j00002", step, "fewer than two datagrams arrived")
    builder.end("j00002")
    builder.journal("closed")
    load(path, builder)
    found = of_database(path)
    stream = found["n1", "n2", "tcp_stream"]
    assert (stream.planned_count, stream.measured_count, stream.lost_count) == (3, 2, 1)
    assert not stream.gone
    gone = found["n2", "n1", "tcp_stream"]
    assert (gone.measured_count, gone.lost_count, gone.gone) == (0, 3, True)
    assert gone.why == "fewer than two datagrams arrived"
    fine = found["n2", "n1", "tcp_pingpong"]
    assert (fine.measured_count, fine.lost_count, fine.gone, fine.why) == (3, 0, False, "")
    assert len(fine.values) == 1, "three repetitions of one job are one value"
    never = found["n1", "n3", "tcp_stream"]
    assert (never.measured_count, never.lost_count, never.gone) == (0, 0, False), "what never ran is not gone"
    assert never.jobs[0].not_measured_count == 3
    assert "not run" in never.why


@pytest.mark.promise("Acceptance reads a pruned baseline from its roll-ups.")
@pytest.mark.promise("A pruned job keeps its median in every judgement.")
@pytest.mark.usefixtures("every_job_rolls_up")
def test_a_pruned_run_keeps_its_values_and_a_retracted_result_does_not_count(tmp_path: Path, path: Path) -> None:
    builder = RunBuilder(tmp_path / "runs")
    builder.everything()
    load(path, builder)
    before = of_database(path)
    prune(path, "2099")
    after = of_database(path)
    assert {key: (one.values, one.measured_count, one.planned_count) for key, one in after.items()} == {
        key: (one.values, one.measured_count, one.planned_count) for key, one in before.items()
    }
    with writing(path) as database:
        database.execute("INSERT INTO retraction SELECT result_id, '2026-11-22T00:00:00Z', 'me', 'bad' FROM result")
    assert of_database(path) == {}


def test_another_metric_and_one_that_a_kernel_has_not(tmp_path: Path, path: Path) -> None:
    builder = RunBuilder(tmp_path / "runs")
    builder.everything()
    load(path, builder)
    found = of_database(path, "throughput_bps")
    assert found["n1", "n2", "tcp_stream"].measured_count == 3
    assert (found["n1", "n2", "tcp_pingpong"].metric, found["n1", "n2", "tcp_pingpong"].values) == ("", ())


def test_disturbed_values_are_told_apart(tmp_path: Path, path: Path) -> None:
    builder = RunBuilder(tmp_path / "runs")
    builder.everything()
    load(path, builder)
    with writing(path) as database:
        database.execute("UPDATE result SET disturbed = 1 WHERE repetition_no > 1")
    [job] = of_database(path)["n1", "n2", "tcp_stream"].jobs
    assert (job.disturbed_count, job.value_count) == (2, 3)
    with reading(path) as database:
        first = database.execute(
            "SELECT value FROM v_results WHERE client = 'n1' AND kernel = 'tcp_stream' AND repetition_no = 1"
        ).fetchone()[0]
    assert job.clean_value == first


@pytest.mark.parametrize("harm", ["", "disturbed", "retracted", "pruned"])
@pytest.mark.usefixtures("every_job_rolls_up")
def test_a_run_counted_by_sqlite_is_the_run_read_row_by_row(tmp_path: Path, path: Path, harm: str) -> None:
    builder = RunBuilder(tmp_path / "runs", pairs=(("n1", "n2"), ("n2", "n1"), ("n1", "n3")))
    builder.submit("j00001")
    builder.measure("j00001")
    broken(builder, "j00001", (1, 2), "fewer than two datagrams arrived")
    builder.end("j00001")
    builder.journal("closed")
    load(path, builder)
    with writing(path) as database:
        if harm == "disturbed":
            database.execute("UPDATE result SET disturbed = 1 WHERE test_no = 1")
        if harm == "retracted":
            database.execute("INSERT INTO retraction SELECT result_id, '2026-11-22T00:00:00Z', 'me', 'bad' FROM result LIMIT 2")
    if harm == "pruned":
        prune(path, "2099")
    with reading(path) as database:
        counted = series_of_run(database, 1, None)
        every = outcomes_in(database, [1], Selection())
    assert counted.pairs == {one.series_id: (one.cluster, one.client, one.server) for one in every}
    assert counted.last_utc == max(job.started_utc for one in every for job in one.jobs)
    doubtful = {one.series_id for one in counted.doubtful}
    assert list(counted.doubtful) == [one for one in every if one.series_id in doubtful]
    lacking = {one.series_id for one in every if all(job.clean_value is None for job in one.jobs)}
    assert lacking <= doubtful < counted.pairs.keys() or harm == "pruned"


@pytest.mark.promise("Nothing judged is too little data: exit code 4.")
@pytest.mark.parametrize(
    ("verdicts", "line", "code"),
    [
        ((), "no node judged: there is nothing to judge", Exit.INCOMPLETE),
        (("pass",), "1 node judged: 1 PASS", Exit.OK),
        (("pass", "inconclusive"), "2 nodes judged: 1 PASS, 1 INCONCLUSIVE", Exit.INCOMPLETE),
        (("pass", "not_covered"), "1 of 2 nodes judged: 1 PASS, 1 NOT COVERED", Exit.INCOMPLETE),
        (("not_covered", "degraded"), "1 of 2 nodes judged: 1 DEGRADED, 1 NOT COVERED", Exit.DEGRADED),
        (("failed", "inconclusive"), "2 nodes judged: 1 FAIL, 1 INCONCLUSIVE", Exit.DEGRADED),
    ],
)
def test_the_first_line_says_how_much_was_judged(verdicts: tuple[str, ...], line: str, code: Exit) -> None:
    tally = Tally.of(Verdict(one) for one in verdicts)
    assert (tally.first_line("node"), tally.exit_code) == (line, code)


@pytest.mark.promise("Medians of pruned jobs are found by their series, whatever SQLite believes of an empty table.")
def test_medians_of_pruned_jobs_are_found_by_their_series(tmp_path: Path, path: Path) -> None:
    """After ANALYZE, SQLite read all series for each job of a run of 100,000 results: seven minutes."""
    builder = RunBuilder(tmp_path / "runs")
    builder.everything()
    load(path, builder)
    with writing(path) as database:
        database.execute("ANALYZE")
        plan = database.execute(f"EXPLAIN QUERY PLAN {_ROLLED_UP}", {"series": "[1]", "metric": None})
        first, *steps = [str(row["detail"]) for row in plan]
    assert first.startswith("SCAN s ")
    assert all(step.startswith("SEARCH ") and "AUTOMATIC" not in step for step in steps), steps
