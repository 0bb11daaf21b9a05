"""A sweep over message sizes in one process: its sizes, what each of them says, and how hpcq makes results of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from hpcq.kernels import complete, own_kernel, own_kernels, sweep_sizes
from hpcq.run_folder.lines import Outcome, RawLine, kept_sizes, measured_sizes, read_line, skipped_sizes
from tests.kernels.kernel_programs import INSTANT, Server, children
from tests.local.local_desk import CLUSTER, LocalDesk

#: Of each kernel that has sweeps: where one begins and ends, and what else keeps it short.
SWEEPS: dict[str, dict[str, Any]] = {
    "tcp_stream": {"message_bytes": 1000, "sweep_to_bytes": 9000, "sweep_perturbation_bytes": 7, "operation_count_max": 20000},
    "udp_stream": {"message_bytes": 200, "sweep_to_bytes": 1400, "rate_bps": 1e7, "operation_count_max": 1000},
    "tcp_pingpong": {"message_bytes": 1, "sweep_to_bytes": 40, "sweep_perturbation_bytes": 3},
    "udp_pingpong": {"message_bytes": 16, "sweep_to_bytes": 65507, "sweep_perturbation_bytes": 1, "reply_timeout_s": 5},
}


def planned(name: str, **options: Any) -> tuple[int, ...]:
    """The sizes that the plan has."""
    return sweep_sizes(own_kernel(name), complete(own_kernel(name), options))


def said(server: Server, name: str, **changed: Any) -> dict[str, Any]:
    """What one client of a sweep printed."""
    done = server.run(name, **{**INSTANT, **SWEEPS[name], **changed})
    assert done.rc == 0, done.err
    return done.line


def test_sizes_are_doubled_and_perturbed() -> None:
    sizes = planned("tcp_pingpong", message_bytes=64, sweep_to_bytes=300, sweep_perturbation_bytes=3)
    assert sizes == (64, 61, 67, 125, 128, 131, 253, 256, 259)
    assert planned("tcp_pingpong", message_bytes=1, sweep_to_bytes=4, sweep_perturbation_bytes=3) == (1, 2, 4, 5, 7)
    assert planned("mpi_pingpong", message_bytes=0, sweep_to_bytes=4) == (0, 1, 2, 4)
    assert planned("udp_pingpong", message_bytes=16, sweep_to_bytes=16, sweep_perturbation_bytes=1) == (16, 17)
    assert planned("tcp_pingpong", message_bytes=64) == ()


@pytest.mark.promise("A sweep doubles message_bytes up to sweep_to_bytes and measures each size once, the smallest first.")
@pytest.mark.promise("All sizes of a sweep are measured by the same two processes.")
@pytest.mark.parametrize("name", SWEEPS)
def test_each_size_is_a_measurement_of_its_own(server: Server, name: str) -> None:
    line = said(server, name)
    found = [one["options"]["message_bytes"] for one in line["sizes"]]
    assert found == sorted(planned(name, **SWEEPS[name]))
    assert all(one["valid"] and one["metrics"] and one["error"] is None for one in line["sizes"]), line
    for end in ("client", "server"):
        evidence = [one["evidence"][end] for one in line["sizes"]]
        assert all(one["counters"] for one in evidence)
        assert len({one["pid"] for one in evidence}) == 1, "one process at each end"
    assert [one["started_utc"] for one in line["sizes"]] == sorted(one["started_utc"] for one in line["sizes"])
    assert server.serves()


@pytest.mark.parametrize("name", ["tcp_pingpong", "udp_pingpong"])
def test_no_round_trip_of_one_size_is_in_another(server: Server, name: str) -> None:
    line = said(server, name, sweep_to_bytes=64, operation_count_max=50)
    for one in line["sizes"]:
        assert sum(count for _, count in one["histogram"]["buckets"]) == 50
        assert one["metrics"]["operation_count" if name == "tcp_pingpong" else "received_count"] == 50


@pytest.mark.promise("What is kept beside the line of a sweep has a file for each size.")
def test_what_is_kept_beside_has_a_file_per_size(server: Server, tmp_path: Path) -> None:
    given = ["--evidence-file", str(tmp_path / "all.json"), "--samples-file", str(tmp_path / "trips")]
    given += ["--raw-dir", str(tmp_path / "raw")]
    options = {**INSTANT, "message_bytes": 8, "sweep_to_bytes": 16}
    assert server.run("tcp_pingpong", *given, **options).rc == 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "secret") == [
        *("all.json.16", "all.json.8", "raw", "trips.16", "trips.8")
    ]
    assert sorted(path.name for path in (tmp_path / "raw").iterdir()) == ["16", "8"]
    assert all((tmp_path / "raw" / size / end).is_dir() for size in ("8", "16") for end in ("client", "server"))
    assert len((tmp_path / "trips.16").read_bytes()) == 800


@pytest.mark.promise("A sweep that cannot be is refused before anything is measured.")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"message_bytes": 64, "sweep_to_bytes": 63}, "sweep_to_bytes: found 63: allowed: 0, or message_bytes 64 to 65507"),
        ({"sweep_to_bytes": 65508}, "sweep_to_bytes: found 65508: allowed: 0, or message_bytes 16 to 65507"),
        ({"sweep_perturbation_bytes": 3}, "sweep_perturbation_bytes: found 3 without sweep_to_bytes: allowed: 0"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused_before_it_begins(server: Server, options: dict[str, Any], words: str) -> None:
    done = server.run("udp_pingpong", **options)
    assert (done.rc, done.line["metrics"]) == (2, {})
    assert words in done.err


@pytest.mark.long
@pytest.mark.promise("One start of a sweep in a campaign becomes one result per size.")
def test_a_campaign_has_one_result_per_size_of_one_start(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path / "desk")
    desk.campaign(
        "{kernel: tcp_pingpong, parameters: {message_bytes: 1, sweep_to_bytes: 1KiB, sweep_perturbation_bytes: 3, "
        "duration_s: 9s, operation_count_max: 30, warmup_s: 0}}"
    )
    sizes = planned("tcp_pingpong", message_bytes=1, sweep_to_bytes=1024, sweep_perturbation_bytes=3)
    assert len(sizes) == len(set(sizes)) == 28
    desk.hpcq("run", "try.yaml")
    rows = desk.rows("SELECT message_bytes, outcome, reason FROM v_results WHERE metric = 'round_trip_p50_ns' ORDER BY 1")
    assert [(row["message_bytes"], row["outcome"]) for row in rows] == [(size, "measured") for size in sorted(sizes)], rows
    assert len(list(desk.run_folder.glob("tiny/jobs/*/*/t*-r*.json"))) == 1
    kept = desk.rows("SELECT DISTINCT sweep.value AS sweep FROM v_parameters sweep WHERE parameter = 'sweep_to_bytes'")
    assert [float(row["sweep"]) for row in kept] == [1024]


@pytest.mark.long
@pytest.mark.promise("A file of kept sizes goes when its match is in the spool.")
def test_a_tournament_plays_sweeps_too(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path / "desk")
    (desk.folder / "clusters" / "tiny.yaml").write_text(CLUSTER.format(name="tiny").replace("tiny-b]", "tiny-b, tiny-c]"))
    fast = "duration_s: 9s, operation_count_max: 30, warmup_s: 0, rate_bps: 20mbit"
    test = f"{{kernel: udp_stream, parameters: {{message_bytes: 100, sweep_to_bytes: 400, {fast}}}}}"
    desk.campaign(test, more="allocation: whole")
    desk.hpcq("run", "try.yaml")
    rows = desk.rows("SELECT message_bytes, outcome FROM v_results WHERE metric = 'throughput_bps' ORDER BY 1")
    assert [(row["message_bytes"], row["outcome"]) for row in rows] == [
        (size, "measured") for size in (100, 200, 400) for _ in range(3)
    ]
    counts = desk.rows("SELECT DISTINCT value FROM v_granted WHERE granted = 'pairs_at_once_count'")
    assert [float(row["value"]) for row in counts] == [1]
    assert not list(desk.run_folder.rglob("*.sizes")), "they are in the spool"


#: A second per size, from 16 bytes on: nobody sees its end who kills it after some sizes.
LONG = "{kernel: tcp_pingpong, parameters: {message_bytes: 16, sweep_to_bytes: 1MiB, duration_s: 1, warmup_s: 0}}"
LONG_SIZES = planned("tcp_pingpong", message_bytes=16, sweep_to_bytes=2**20)


def _started(*words: str) -> dict[int, list[str]]:
    """The processes whose command lines have all these words, by number."""
    found = {}
    for path in Path("/proc").glob("[1-9]*/cmdline"):
        try:
            line = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if all(any(word in one for one in line) for word in words):
            found[int(path.parent.name)] = line
    return found


def _kill_after(desk: LocalDesk, size_count: int, *, script: bool = False) -> list[int]:
    """Kill the client of LONG, first its job's script if that is wanted, when so many sizes are there; returns these."""

    def measured() -> list[int]:
        return [size for path in desk.found("t1-r1.json.part") for size in measured_sizes(path.read_bytes())]

    desk.wait_for(lambda: len(measured()) >= size_count, 60)
    client = {pid for pid, line in _started(str(desk.folder), "--sweep_to_bytes").items() if line[0].endswith("hpcq-net")}
    assert len(client) == 1
    for pid in (*(_started(str(desk.folder), "job.sh") if script else ()), *client):
        os.kill(pid, signal.SIGKILL)
    return measured()


def _check_kept(desk: LocalDesk, sizes: list[int], end: str) -> None:
    """The measured sizes of LONG are results; each of the others is a row that says how the sweep ended."""
    assert 2 <= len(sizes) < len(LONG_SIZES)
    rows = desk.rows("SELECT DISTINCT message_bytes, outcome, reason FROM v_results ORDER BY 1")
    assert [row["message_bytes"] for row in rows] == sorted(LONG_SIZES)
    assert [row["message_bytes"] for row in rows if row["outcome"] == "measured"] == sizes
    words = f"the sweep was killed before this size was measured; the last size that it measured is {sizes[-1]} bytes; {end}"
    assert {row["reason"] for row in rows if row["outcome"] == "failed"} == {words}
    assert {row["outcome"] for row in rows} == {"measured", "failed"}


@pytest.mark.promise(
    "A sweep that is killed keeps the sizes that it had measured, and says of the others that it was killed before."
)
@pytest.mark.promise("What a sweep had measured counts also if the whole job was killed.")
@pytest.mark.parametrize("script", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_sweep_that_is_killed_keeps_the_sizes_that_it_measured(tmp_path: Path, script: bool) -> None:
    desk = LocalDesk.at(tmp_path / "desk")
    desk.campaign(LONG, more="retries: 0")
    with desk.running(["-m", "hpcq", "run", "try.yaml"]) as hpcq:
        sizes = _kill_after(desk, 2, script=script)
        hpcq.wait(timeout=180)
    _check_kept(desk, sizes, "exit code unknown" if script else "exit code 137; died of SIGKILL")


@pytest.mark.long
@pytest.mark.promise("A sweep of a tournament keeps the sizes that it had measured, also if all of the job is killed.")
@pytest.mark.promise("Sizes that a client of a tournament kept are results when its match has none.")
@pytest.mark.parametrize("all_of_it", [False, True])
def test_a_sweep_of_a_tournament_that_is_killed_keeps_what_it_measured(tmp_path: Path, all_of_it: bool) -> None:
    """Its client's process alone, or the whole job: then nobody is left who could tell the conductor or the spool."""
    desk = LocalDesk.at(tmp_path / "desk")
    desk.campaign(LONG, more="retries: 0\nallocation: whole")
    with desk.running(["-m", "hpcq", "run", "try.yaml"]) as hpcq:
        sizes = _kill_players(desk, 2, all_of_it=all_of_it)
        hpcq.wait(timeout=180)
    _check_kept(desk, sizes, "exit code unknown" if all_of_it else "exit code 3")


def _kill_players(desk: LocalDesk, size_count: int, *, all_of_it: bool, tournament: str = "g00001") -> list[int]:
    desk.wait_for(lambda: len(_measured(desk, tournament)) >= size_count, 60)
    scripts = _started(str(desk.folder), "job.sh") if all_of_it else ()
    programs = [pid for pid, line in _started(str(desk.folder)).items() if line[0].endswith("hpcq-net")]
    victims = [*scripts, *programs] if all_of_it else _players(desk)
    # Stopped first: nobody of them sees another end, and says so, before its own end.
    for stop in (signal.SIGSTOP, signal.SIGKILL):
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):  # who lost its parent may have ended by itself
                os.kill(pid, stop)
    return _measured(desk, tournament)


def _measured(desk: LocalDesk, tournament: str) -> list[int]:
    """The sizes that the client keeps beside the spool of a tournament."""
    kept = {kept_sizes(path.read_bytes()) or b"" for path in desk.found("*.sizes") if tournament in path.parts}
    return sorted({size for content in kept for size in measured_sizes(content)})


def _players(desk: LocalDesk) -> list[int]:
    """The process in which the agent of the client measures, once it is there."""
    [[client, _]] = json.loads((desk.run_folder / "tiny" / "plan.json").read_text())["pairs"]
    every = [pid for pid, line in _started(str(desk.folder)).items() if line[0].endswith("hpcq-net") and line[1] == "agent"]
    agents = [pid for pid in every if f"HPCQ_NODE={client}\0" in Path(f"/proc/{pid}/environ").read_text()]
    return [child for agent in agents for child in children(agent)]


@pytest.mark.promise("Another attempt measures only those sizes of a sweep that no attempt has measured.")
@pytest.mark.promise("A size that an attempt was told to leave out did not fail in it.")
def test_another_attempt_measures_only_the_sizes_that_are_not_there(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path / "desk")
    desk.campaign(LONG.replace("1MiB", "256"), more="retries: 1")
    with desk.running(["-m", "hpcq", "run", "try.yaml"]) as hpcq:
        sizes = _kill_after(desk, 2)
        assert hpcq.wait(timeout=180) == 0
    rest = [size for size in (16, 32, 64, 128, 256) if size not in sizes]
    first, second = sorted(desk.run_folder.glob("tiny/jobs/*/*/t1-r1.json"))
    assert (measured_sizes(first.read_bytes()), measured_sizes(second.read_bytes())) == (sizes, rest)
    rows = desk.rows("SELECT message_bytes, attempt_no FROM v_results WHERE outcome = 'measured' ORDER BY 1")
    assert [tuple(row.values()) for row in rows] == [*((size, 1) for size in sizes), *((size, 2) for size in rest)]
    every = desk.rows("SELECT DISTINCT message_bytes, attempt_no FROM v_all_results WHERE attempt_no = 2")
    assert [row["message_bytes"] for row in every] == rest, "nothing failed that was not wanted"


@pytest.mark.long
@pytest.mark.promise("Another attempt of a tournament leaves out the sizes of a sweep that earlier ones measured.")
def test_another_attempt_of_a_tournament_measures_only_the_sizes_that_are_not_there(tmp_path: Path) -> None:
    """Two attempts are killed: what the third leaves out was measured in two places, one of them a shortened sweep."""
    desk = LocalDesk.at(tmp_path / "desk")
    desk.campaign(LONG.replace("1MiB", "256"), more="retries: 2\nallocation: whole")
    with desk.running(["-m", "hpcq", "run", "try.yaml"]) as hpcq:
        first = _kill_players(desk, 2, all_of_it=False)
        second = _kill_players(desk, 1, all_of_it=False, tournament="g00002")
        assert hpcq.wait(timeout=180) == 0
    rest = [size for size in (16, 32, 64, 128, 256) if size not in (*first, *second)]
    rows = desk.rows("SELECT message_bytes, attempt_no FROM v_results WHERE outcome = 'measured' ORDER BY 1")
    by_attempt = [(size, no) for no, sizes in enumerate((first, second, rest), 1) for size in sizes]
    assert [tuple(row.values()) for row in rows] == by_attempt
    for number, wanted in ((2, second + rest), (3, rest)):
        every = desk.rows("SELECT DISTINCT message_bytes FROM v_all_results WHERE attempt_no = ? ORDER BY 1", number)
        assert [row["message_bytes"] for row in every] == wanted, "nothing failed that was not wanted"


@pytest.mark.promise("Sizes to leave out must be sizes of the sweep.")
@pytest.mark.promise("An empty list of sizes that are done is refused: it would measure nothing and call that fine.")
def test_sizes_that_are_done_are_left_out(server: Server) -> None:
    options = {**INSTANT, "message_bytes": 8, "sweep_to_bytes": 32}
    for done, left in (("8", [16, 32]), ("8,32", [16]), ("32,8,16", [])):
        told = server.run("tcp_pingpong", "--sizes-done", done, **options)
        assert (told.rc, [one["options"]["message_bytes"] for one in told.line["sizes"]]) == (0, left), told.err
        assert told.line["skipped"] == [int(one) for one in done.split(",")]
    for wrong in ("9", "8,8", "8;16", "x", "", "8,", ",8", "+8", "08", " 8"):
        told = server.run("tcp_pingpong", "--sizes-done", wrong, **options)
        assert (told.rc, told.line["metrics"]) == (2, {})
        assert "allowed: A,B,..., sizes of the sweep, each once" in told.err
    for done in ("8", ""):
        assert server.run("tcp_pingpong", "--sizes-done", done, **INSTANT).rc == 2, "no sweep"


@pytest.mark.promise("Of a sweep that was killed, a line counts when it is complete.")
def test_each_size_of_a_sweep_is_printed_when_it_was_measured() -> None:
    whole = b'{"format":1,"kernel":"tcp_pingpong","sizes":[\n' + json.dumps(_one(1)).encode() + b"\n,"
    assert measured_sizes(whole + json.dumps(_one(2)).encode() + b'\n],"exit_code":0}\n') == [1, 2]
    assert measured_sizes(whole + json.dumps(_one(2)).encode()) == [1], "whole by chance, and nobody knows"
    assert measured_sizes(whole.partition(b"\n")[0]) == []
    line = read_line(RawLine(whole, b'{"rc": 143}', b""), Path("t1-r1.json"), own_kernels(), "tcp_pingpong", _one(1)["options"])
    assert (line.outcome, line.exit_code, line.metrics) == (Outcome.MEASURED, 0, {"round_trip_p50_ns": 1000.0})
    line = read_line(RawLine(whole, b'{"rc": 143}', b""), Path("t1-r1.json"), own_kernels(), "tcp_pingpong", _one(2)["options"])
    assert line.outcome is Outcome.FAILED
    assert (line.reason or "").startswith("the sweep was killed before this size was measured; the last size that it ")
    damaged = whole + b"{,\n," + json.dumps(_one(4)).encode() + b"\n]}\n"
    line = read_line(RawLine(damaged, b'{"rc": 0}', b""), Path("t1-r1.json"), own_kernels(), "tcp_pingpong", _one(1)["options"])
    assert (line.outcome, (line.reason or "")[:33]) == (Outcome.INVALID, "line 3 of the sweep: not JSON: Ex")


@pytest.mark.promise("Of sizes that several players kept, whole lines count, and the first that was measured.")
@pytest.mark.promise("Of a sweep of a tournament that was told to leave out sizes and then killed, these sizes did not fail.")
def test_sizes_that_two_players_kept_count_once() -> None:
    def line(size: int, **changed: Any) -> bytes:
        return json.dumps(_one(size, **changed)).encode()

    head = b'\n{"format":1,"kernel":"tcp_pingpong","sizes":[\n'
    gone = line(2, valid=False, exit_code=3, error={"state": "measure", "message": "gone"}, metrics={})
    first = head + line(1) + b"\n," + gone + b"\n," + line(4)[:50]
    kept = kept_sizes(first + head + line(1, metrics={}) + b"\n," + line(2) + b"\n")
    assert measured_sizes(kept or b"") == [1, 2]
    found = read_line(RawLine(kept, None, b""), Path("t1-r1.json"), own_kernels(), "tcp_pingpong", _one(1)["options"])
    assert found.metrics == {"round_trip_p50_ns": 1000.0}, "the first that was measured"
    assert kept_sizes(head + line(1)) is None
    shortened = head.replace(b'"sizes"', b'"skipped":[1,2],"sizes"') + line(4) + b"\n"
    assert (skipped_sizes(kept_sizes(shortened) or b""), skipped_sizes(kept or b"")) == ([1, 2], [])


def test_a_campaign_with_an_impossible_sweep_is_refused(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path / "desk")
    desk.campaign("{kernel: udp_pingpong, parameters: {message_bytes: 64, sweep_to_bytes: 32}}")
    refused = desk.hpcq("plan", "try.yaml", expect=2)
    assert "sweep_to_bytes: 32: must be 0, or 64 (message_bytes) to 65507" in refused.stderr
    with pytest.raises(ValueError, match="sweep_perturbation_bytes: 3 without sweep_to_bytes: must be 0"):
        planned("tcp_pingpong", sweep_perturbation_bytes=3)


def _one(size: int, **changed: Any) -> dict[str, Any]:
    options = complete(own_kernel("tcp_pingpong"), {"message_bytes": size, "sweep_to_bytes": 4})
    line = {"format": 1, "kernel": "tcp_pingpong", "options": options, "valid": True, "exit_code": 0}
    return {**line, "error": None, "metrics": {"round_trip_p50_ns": 1000.0 * size}, **changed}


def _read(size: int, rc: int, *sizes: dict[str, Any]) -> tuple[Outcome, str | None, dict[str, float]]:
    content = {"format": 1, "kernel": "tcp_pingpong", "sizes": list(sizes), "exit_code": rc}
    raw = RawLine(json.dumps(content).encode(), json.dumps({"rc": rc}).encode(), b"")
    line = read_line(raw, Path("t1-r1.json"), own_kernels(), "tcp_pingpong", _one(size)["options"])
    return line.outcome, line.reason, line.metrics


@pytest.mark.promise("A sweep that could not go on keeps the sizes that it measured, and says of the others where it ended.")
def test_a_sweep_that_ended_keeps_what_it_measured() -> None:
    error = {"state": "measure", "message": "recv: the peer is gone (closed)"}
    gone = _one(2, valid=False, exit_code=3, error=error, metrics={})
    assert _read(1, 3, _one(1), gone) == (Outcome.MEASURED, None, {"round_trip_p50_ns": 1000.0})
    assert _read(2, 3, _one(1), gone)[:2] == (Outcome.FAILED, "measure: recv: the peer is gone (closed)")
    reason = "measure: the sweep ended at 2 bytes: recv: the peer is gone (closed)"
    assert _read(4, 3, _one(1), gone) == (Outcome.FAILED, reason, {})


@pytest.mark.promise("An invalid size of a sweep makes no other size invalid.")
def test_an_invalid_size_spoils_no_other() -> None:
    lost = _one(2, valid=False, exit_code=1, invalid_reason="no reply came")
    assert _read(1, 1, _one(1), lost, _one(4))[0] is Outcome.MEASURED
    assert _read(2, 1, _one(1), lost, _one(4))[:2] == (Outcome.INVALID, "no reply came")
    assert _read(4, 0, _one(1), _one(2))[0] is Outcome.INVALID, "a size that is missing without a reason is no result"
