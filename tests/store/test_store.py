"""Loading: what comes in, what is refused, what happens when it is done twice, half, or at the wrong moment."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hpcq.store import query
from hpcq.store.database import reading
from hpcq.store.load.cluster import load_run
from hpcq.store.selection import Selection, metrics_of
from tests.store.run_folders import RunBuilder, ask, load

pytestmark = pytest.mark.fast


@pytest.fixture
def builder(tmp_path: Path) -> RunBuilder:
    return RunBuilder(tmp_path / "runs")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


def dump(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        return list(connection.iterdump())


def reasons(database: Path, outcome: str) -> list[str]:
    return ask(database, "SELECT DISTINCT reason FROM v_not_measured WHERE outcome = ? ORDER BY 1", outcome)


# -- the whole of it ---------------------------------------------------------------------------------------------------


@pytest.mark.promise("The series of a result is in the database, each value with the beginning of its interval.")
def test_everything_of_a_line_is_in_the_database(builder: RunBuilder, database: Path) -> None:
    builder.everything()
    loaded = load(database, builder)
    assert (loaded.planned_count, loaded.measured_count, loaded.read_count) == (12, 12, 12)
    line = json.loads(builder.line_path("j00001", 1, 1, 1).read_text())
    with reading(database) as connection:
        [first] = [
            row for row in query.results(connection, Selection(client="n1", kernel="tcp_stream")) if row.repetition_no == 1
        ]
        found = query.detail(connection, first.result_id)
    assert found.parameters == line["options"]
    assert {row["metric"]: row["value"] for row in found.metrics} == line["metrics"]
    assert found.granted == line["granted"]
    for end in ("client", "server"):
        deltas = {row["counter"]: row[f"{end}_delta"] for row in found.counters}
        assert deltas == line["evidence"][end]["counters"]
    assert found.ends[0]["boot_id"] == "boot-of-n1"
    assert {row["gauge"] for row in found.gauges} == set(line["evidence"]["client"]["gauges"])
    assert [row["reason"] for row in found.unavailable] == ["ENOENT", "ENOENT"]
    assert [(row["lower"], row["sample_count"]) for row in found.histogram] == [
        tuple(bucket) for bucket in line["histogram"]["buckets"]
    ]
    assert found.intervals == {"throughput_bps": {0: 1e8, 100: 2e8, 200: 2e8}, "retransmit_count": {0: 3, 200: 0}}
    assert found.samples == {"path": "t1-r1.samples", "format": "u64-ns-le", "sample_count": 1000}
    assert found.build is not None
    assert found.build["mpi"] == ""
    assert found.attempt is not None
    assert found.attempt.scheduler_job_id == "101"
    assert first.raw_file == "alpha/jobs/j00001/1/t1-r1.json"


@pytest.mark.heavy
def test_loading_twice_changes_nothing(builder: RunBuilder, database: Path) -> None:
    builder.everything()
    load(database, builder)
    before = dump(database)
    again = load(database, builder)
    assert (again.read_count, again.known_count) == (0, 12)
    assert dump(database) == before


@pytest.mark.heavy
def test_two_clusters_side_by_side_are_one_run(builder: RunBuilder, database: Path) -> None:
    other = builder.other_cluster("beta")
    builder.everything()
    other.everything()
    report = load_run(database, builder.path)
    assert [(one.cluster, one.measured_count) for one in report.clusters] == [("alpha", 12), ("beta", 12)]
    assert report.complete
    assert ask(database, "SELECT count(*) FROM run") == [1]
    assert ask(database, "SELECT count(*) FROM node") == [6]  # n1, n2 and the excluded n9, of each cluster
    assert json.loads(json.dumps(report.to_json()))["run"] == builder.run


@pytest.mark.heavy
def test_facts_are_stored_once(builder: RunBuilder, database: Path, tmp_path: Path) -> None:
    builder.everything()
    load(database, builder)
    facts, sets = ask(database, "SELECT (SELECT count(*) FROM fact), (SELECT count(*) FROM fact_set)")[0]
    assert sets == 2  # two nodes, which differ in their boot alone
    later = RunBuilder(tmp_path / "runs", run="nightly-20261122T020000Z-00aa")
    later.everything()
    load(database, later)
    assert ask(database, "SELECT (SELECT count(*) FROM fact), (SELECT count(*) FROM fact_set)") == [(facts, sets)]
    assert ask(database, "SELECT DISTINCT value FROM v_facts WHERE fact = 'nic.eth0.driver'") == ["mlx5_core"]
    assert ask(
        database, "SELECT count(*) FROM v_facts WHERE fact = 'sysctl.net.ipv4.tcp_rmem' AND value = '4096 131072 6291456'"
    ) == [8]


def test_boots_are_a_ledger(builder: RunBuilder, database: Path) -> None:
    builder.everything()
    load(database, builder)
    [(first, last)] = ask(database, "SELECT first_seen_utc, last_seen_utc FROM node_boot WHERE boot_id = 'boot-of-n1'")
    assert first < last


# -- while it runs, and what does not come ----------------------------------------------------------------------------


def test_loading_while_it_runs_and_again(builder: RunBuilder, database: Path) -> None:
    loaded = load(database, builder)
    assert (loaded.not_measured_count, loaded.pending_count) == (12, 12)
    assert reasons(database, "not_measured") == ["pending: not submitted yet"]
    builder.submit("j00001")
    load(database, builder)
    assert reasons(database, "not_measured") == ["pending: attempt 1 queued", "pending: not submitted yet"]
    ids = ask(
        database,
        "SELECT result_id FROM v_results WHERE job = 'j00001' ORDER BY message_bytes, repetition_no",
    )
    builder.measure("j00001")
    builder.end("j00001")
    loaded = load(database, builder)
    assert (loaded.measured_count, loaded.pending_count) == (6, 6)
    assert sorted(ask(database, "SELECT result_id FROM v_results WHERE job = 'j00001'")) == sorted(ids)
    builder.journal("not_run", job="j00002", pair=["n2", "n1"], reason="not idle for 60 s: n1 allocated")
    builder.journal("closed")
    loaded = load(database, builder)
    assert (loaded.measured_count, loaded.not_measured_count, loaded.pending_count) == (6, 6, 0)
    assert reasons(database, "not_measured") == ["not run: not idle for 60 s: n1 allocated"]


def test_a_line_without_its_status_waits_while_the_attempt_lives(builder: RunBuilder, database: Path) -> None:
    builder.submit("j00001")
    builder.measure("j00001", steps=[(1, 1)])
    status = builder.line_path("j00001", 1, 1, 1).with_suffix(".status")
    content = status.read_bytes()
    status.unlink()
    assert load(database, builder).read_count == 0
    status.write_bytes(content)
    assert load(database, builder).measured_count == 1


def test_a_later_attempt_fills_what_the_first_left(builder: RunBuilder, database: Path) -> None:
    builder.submit("j00001")
    builder.measure("j00001", 1, steps=[(1, 1), (1, 2)])
    builder.end("j00001", 1, "node_failed", "the scheduler says NODE_FAIL")
    loaded = load(database, builder)
    assert (loaded.measured_count, loaded.not_measured_count) == (2, 10)
    assert "attempt 1 node_failed: the scheduler says NODE_FAIL" in reasons(database, "not_measured")
    builder.attempt("j00001", 2, steps=[(1, 2), (1, 3)])
    loaded = load(database, builder)
    assert loaded.measured_count == 3
    kept = ask(
        database, "SELECT repetition_no, attempt_no FROM v_results WHERE job = 'j00001' AND outcome = 'measured' ORDER BY 1"
    )
    assert kept == [(1, 1), (2, 1), (3, 2)]  # the first measured one counts
    assert ask(database, "SELECT count(*) FROM v_all_results WHERE outcome = 'measured'") == [4]  # and the other stays
    assert any("attempt 2 completed, but left no result" in reason for reason in reasons(database, "not_measured"))
    assert ask(database, "SELECT attempt_no, outcome FROM v_attempts ORDER BY 1") == [(1, "node_failed"), (2, "completed")]


def test_a_better_try_replaces_a_failed_one_and_both_stay(builder: RunBuilder, database: Path) -> None:
    builder.submit("j00001")
    line = builder.line(
        "j00001", (1, 1), valid=False, exit_code=4, metrics={}, error={"state": "connect", "message": "refused"}
    )
    builder.write_line("j00001", 1, (1, 1), line, rc=4)
    builder.end("j00001")
    assert load(database, builder).failed_count == 1
    assert reasons(database, "failed") == ["connect: refused"]
    builder.attempt("j00001", 2, steps=[(1, 1)])
    loaded = load(database, builder)
    assert (loaded.failed_count, loaded.measured_count) == (0, 1)
    tries = ask(
        database, "SELECT attempt_no, outcome, final FROM v_all_results WHERE job = 'j00001' AND attempt_no IS NOT NULL"
    )
    assert sorted(tries) == [(1, "failed", 0), (2, "measured", 1)]


@pytest.mark.heavy
@pytest.mark.parametrize("outcome", ["failed", "cancelled", "timed_out", "preempted", "out_of_memory", "lost", "withdrawn"])
def test_every_end_is_a_row_with_its_reason(builder: RunBuilder, database: Path, outcome: str) -> None:
    builder.submit("j00001")
    builder.end("j00001", 1, outcome, "its words")
    builder.journal("closed")
    load(database, builder)
    assert f"attempt 1 {outcome}: its words" in reasons(database, "not_measured")
    assert "not run: the journal gives no reason" in reasons(database, "not_measured")


@pytest.mark.promise("A test that an order to end the job interrupted is told with the order: it is none that failed.")
@pytest.mark.parametrize("outcome", ["cancelled", "preempted", "withdrawn", "completed", "failed"])
def test_what_an_order_interrupted_is_no_failure(builder: RunBuilder, database: Path, outcome: str) -> None:
    """Neither while it may be an order, nor after it; where nobody ordered its end, it is an invalid result."""
    error = {"state": "measure", "message": "interrupted by signal 15"}
    cut = {"valid": False, "invalid_reason": error["message"], "exit_code": 1, "error": error, "metrics": {}}
    builder.submit("j00001")
    builder.write_line("j00001", 1, (1, 1), builder.line("j00001", (1, 1), **cut), rc=1)
    assert load(database, builder).invalid_count == 0
    builder.end("j00001", 1, outcome, "its words")
    ordered = outcome not in {"completed", "failed"}
    assert load(database, builder).invalid_count == (not ordered)
    assert (f"attempt 1 {outcome}: its words" in reasons(database, "not_measured")) == (ordered or outcome == "failed")
    builder.attempt("j00001", 2, steps=[(1, 1)])
    assert (load(database, builder).measured_count, load(database, builder).invalid_count) == (1, 0)


def test_a_refusal_is_an_end(builder: RunBuilder, database: Path) -> None:
    with_tag = {"job": "j00001", "attempt_no": 1, "tag": builder.tag("j00001", 1), "nodes": ["n1", "n2"]}
    builder.journal("attempt", **with_tag)
    builder.journal("refused", tag=with_tag["tag"], message="sbatch: error: Invalid account")
    builder.journal("not_run", job="j00001", pair=["n1", "n2"], reason="the scheduler refuses")
    load(database, builder)
    expected = "attempt 1 refused: sbatch: error: Invalid account; not tried again: the scheduler refuses"
    assert expected in reasons(database, "not_measured")
    assert ask(database, "SELECT outcome, scheduler_job_id FROM v_attempts") == [("refused", None)]


# -- lines that are not to be believed --------------------------------------------------------------------------------


def damaged(builder: RunBuilder, content: bytes, rc: int = 0, words: str = "") -> None:
    """One job whose first measurement left `content`."""
    builder.submit("j00001")
    path = builder.write_line("j00001", 1, (1, 1), builder.line("j00001", (1, 1)), rc=rc)
    path.write_bytes(content)
    path.with_suffix(".err").write_text(words)
    builder.end("j00001")


@pytest.mark.promise("The main metric of a kernel is what it measures, not what was seen beside it or of its captured packets.")
def test_the_main_metric_is_the_kernels_own(tmp_path: Path) -> None:
    tests = [(kernel, {"message_bytes": 64}) for kernel in ("tcp_stream", "tcp_pingpong", "udp_stream", "udp_pingpong")]
    builder = RunBuilder(tmp_path / "runs", tests=tests)
    builder.everything()
    load_run(tmp_path / "results.db", builder.path)
    with reading(tmp_path / "results.db") as connection:
        found = {name: metrics_of(connection, None)[name].name for name, _ in tests}
    assert found == {
        "tcp_stream": "throughput_bps",
        "tcp_pingpong": "round_trip_p50_ns",
        "udp_stream": "throughput_bps",
        "udp_pingpong": "round_trip_p50_ns",
    }
