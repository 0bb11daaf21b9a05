"""Agents and a conductor on the loopback interface: several nodes' agents on one machine, and what may happen to them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.kernel_programs import (
    ENDLESS_S,
    LIMIT_S,
    Programs,
    children,
    runs,
    state,
    unreported,
    wait_for,
    write_secret,
)

Match = tuple[str, str, str]
#: How an end says that the other is no more; which of the two is a matter of what it did at that moment.
GONE = r"control channel: (closed by the peer|the peer is gone \(E[A-Z]+\))"
INSTANT = {"duration_s": 0.05, "warmup_s": 0}
QUICK = ["test 1 tcp_pingpong 10", *(f"option {name} {value}" for name, value in INSTANT.items())]
#: Leaves the CPUs to others.
CALM = ["test 1 udp_stream 1000", "option rate_bps 1e6", "option warmup_s 0"]
LONG = [*CALM, "option duration_s 1.5"]
#: A first step that has time for what a test does to it, and short ones after it.
SLOW_FIRST = [*CALM, "option duration_s 4", QUICK[0].replace("1", "2", 1), *QUICK[1:]]
ENDLESS = [*CALM, f"option duration_s {ENDLESS_S}"]


class Tournament:
    """A tournament of nodes a, b, c, ...; agents and conductor end with the block."""

    def __init__(self, programs: Programs, folder: Path, nodes: str, tests: Sequence[str], *steps: Sequence[Match]) -> None:
        self.programs = programs
        self.folder = folder
        self.secret = write_secret(folder / "secret")
        lines = ["tournament 1", *(f"node {node}" for node in nodes), *tests]
        for number, matches in enumerate(steps, 1):
            test_no = 2 if tests is SLOW_FIRST and number > 1 else 1
            lines += [f"step {number} {test_no} 1", *(" ".join(("match", *match)) for match in matches)]
        (folder / "tournament.txt").write_text("\n".join(lines) + "\n")
        self.agents: dict[str, subprocess.Popen[str]] = {}

    def conduct(self, *words: str) -> subprocess.Popen[str]:
        """The conductor, which says where it listens."""
        files = ["--secret-file", str(self.secret), "--tournament", "tournament.txt", "--spool", "spool.jsonl"]
        command = [str(self.programs.net), "conductor", "--interface", "lo", *files, "--facts-dir", ".", *words]
        self.conductor = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.conductor.stdout is not None
        said = self.conductor.stdout.readline()
        self.port = json.loads(said)["ready"]["port"] if said else 0
        return self.conductor

    def agent(self, node: str, *words: str, secret: Path | None = None) -> subprocess.Popen[str]:
        place = ["--to", "127.0.0.1", "--port", str(self.port), "--secret-file", str(secret or self.secret)]
        command = [str(self.programs.net), "agent", *place, "--interface", "lo", "--node", node, *words]
        started = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.agents[node] = started
        return started

    def measures(self, node: str) -> bool:
        """Whether a client runs on this node: everybody has come, and it has a process."""
        everybody = all((self.folder / f"facts-{one}.json").exists() for one in self.agents)
        return everybody and len(children(self.agents[node].pid)) == 1

    def ended(self, timeout_s: float = LIMIT_S) -> tuple[int, str]:
        _, err = self.conductor.communicate(timeout=timeout_s)
        return self.conductor.returncode, err

    @property
    def lines(self) -> dict[str, dict[str, Any]]:
        """Results so far, by pair. A line that is still being written is none yet."""
        path = self.folder / "spool.jsonl"
        text = path.read_text().splitlines(keepends=True) if path.exists() else []
        found = [json.loads(line) for line in text if line.endswith("\n")]
        assert len({line["job"] for line in found}) == len(found)
        return {line["job"]: line for line in found}

    def end(self) -> None:
        for process in (self.conductor, *self.agents.values()):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            _, said = process.communicate(timeout=LIMIT_S)  # ends only when its children too have let go of its stderr
            unreported(said or "")


@contextlib.contextmanager
def tournament(
    programs: Programs, folder: Path, nodes: str, tests: Sequence[str], *steps: Sequence[Match]
) -> Iterator[Tournament]:
    made = Tournament(programs, folder, nodes, tests, *steps)
    try:
        yield made
    finally:
        made.end()


def new_folder(parent: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=parent))


#: How long agents are waited for, tried in this order: short, unless the machine is too slow for that.
IN_TIME_S = ("1", "8", "60")
ROUND = [("j1", "a", "b"), ("j2", "c", "d")]
NEXT = [("j3", "a", "c"), ("j4", "d", "b")]


@pytest.mark.parametrize("kind", ["programs", "sanitized"])
def test_rounds_are_played_and_everybody_ends(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    tests = [*QUICK, "test 2 mpi_pingpong 5", "option message_bytes 8"]
    with tournament(request.getfixturevalue(kind), tmp_path, "abcd", tests, ROUND, NEXT) as playing:
        playing.conduct()
        for node in "abcd":
            playing.agent(node)
        assert playing.ended() == (0, "")
        for agent in playing.agents.values():
            assert (agent.wait(timeout=LIMIT_S), agent.communicate()[1]) == (0, "")
        lines = playing.lines
        assert sorted(lines) == ["j1", "j2", "j3", "j4"]
        for line in lines.values():
            assert (line["rc"], line["reason"], line["at_once"], line["result"]["valid"]) == (0, None, 2, True)
            assert line["result"]["options"]["duration_s"] == 0.05
            assert line["result"]["evidence"]["server"]["pid"] != line["result"]["evidence"]["client"]["pid"]
        assert {path.name for path in tmp_path.glob("facts-*.json")} == {f"facts-{node}.json" for node in "abcd"}
        assert json.loads((tmp_path / "facts-a.json").read_text())["kernel"]["release"]


def test_a_round_begins_when_the_one_before_has_ended(programs: Programs, tmp_path: Path) -> None:
    with tournament(programs, tmp_path, "abcd", QUICK, ROUND, NEXT) as playing:
        playing.conduct()
        for node in "abcd":
            playing.agent(node)
        assert playing.ended()[0] == 0
        lines = playing.lines
        first, second = ([lines[match[0]] for match in matches] for matches in (ROUND, NEXT))
        assert max(line["ended_utc"] for line in first) <= min(line["started_utc"] for line in second)


def test_the_pairs_of_a_round_measure_at_once(programs: Programs, tmp_path: Path) -> None:
    with tournament(programs, tmp_path, "abcd", ENDLESS, ROUND) as playing:
        playing.conduct()
        for node in "abcd":
            playing.agent(node)
        wait_for(lambda: playing.measures("a") and playing.measures("c"))
        assert not playing.lines, "neither has ended"


def test_a_killed_agent_costs_its_own_pairs(programs: Programs, tmp_path: Path) -> None:
    with tournament(programs, tmp_path, "abcd", SLOW_FIRST, ROUND, NEXT, [("j5", "a", "b")]) as playing:
        playing.conduct()
        for node in "abcd":
            playing.agent(node)
        wait_for(lambda: playing.measures("c"))
        playing.agents["d"].kill()
        code, said = playing.ended()
        assert code == 0
        assert "lost: d: " in said
        lines = playing.lines
        assert {job: line["rc"] for job, line in lines.items()} == {"j1": 0, "j2": 3, "j3": 0, "j4": 3, "j5": 0}
        assert re.fullmatch(f"d: {GONE}", lines["j4"]["reason"]), "seen at once, and not for want of an answer"
        assert lines["j4"]["result"] is None


def test_an_agent_that_says_nothing_is_lost_after_its_ping(programs: Programs, tmp_path: Path) -> None:
    """As when a node's power goes: nothing tells the other end. What waits is past its start, and dies with its agent."""
    with tournament(programs, tmp_path, "abcd", SLOW_FIRST, ROUND, NEXT) as playing:
        playing.conduct()
        for node in "abcd":
            playing.agent(node)
        wait_for(lambda: playing.measures("c") and [state(pid) for pid in children(playing.agents["d"].pid)] == ["S"])
        playing.agents["d"].send_signal(signal.SIGSTOP)  # from here on it starts nobody and reaps nobody
        for pid in children(playing.agents["d"].pid):
            os.kill(pid, signal.SIGSTOP)
        code, said = playing.ended()
        assert code == 0
        assert "lost: d: no answer for 5 s" in said
        lines = playing.lines
        assert lines["j4"]["reason"] == "d: no answer for 5 s"
        stopped = children(playing.agents["d"].pid)
        playing.agents["d"].kill()
        wait_for(lambda: not any(runs(pid) for pid in stopped))
        assert (lines["j1"]["rc"], lines["j3"]["rc"]) == (0, 0)


def test_a_killed_conductor_loses_nothing_that_was_measured(programs: Programs, tmp_path: Path) -> None:
    steps = [ROUND, NEXT, [("j5", "a", "b")], [("j6", "c", "d")]]
    with tournament(programs, tmp_path, "abcd", LONG, *steps) as playing:
        playing.conduct()
        for node in "abcd":
            playing.agent(node)
        wait_for(lambda: len(playing.lines) == 2)
        playing.conductor.kill()
        playing.conductor.communicate()
        for agent in playing.agents.values():
            assert agent.wait(timeout=LIMIT_S) == 3
            assert re.search(GONE, agent.communicate()[1])
        with (tmp_path / "spool.jsonl").open("a") as file:
            file.write('{"format":1,"job":"j3","te')  # torn in the middle of a line
        playing.conduct()
        for node in "abcd":
            playing.agent(node)
        assert playing.ended()[0] == 0
        text = (tmp_path / "spool.jsonl").read_text().splitlines()
        assert len(text) == 7
        jobs = [json.loads(line)["job"] for line in text if line.endswith("}")]
        assert sorted(jobs) == ["j1", "j2", "j3", "j4", "j5", "j6"], "what was there is not measured again"


def test_an_agent_without_the_secret_is_refused_and_the_others_play(programs: Programs, tmp_path: Path) -> None:
    other = write_secret(tmp_path / "other")
    for within_s in IN_TIME_S:
        with tournament(programs, new_folder(tmp_path), "abcd", QUICK, ROUND) as playing:
            playing.conduct("--join-timeout-s", within_s)
            stranger = playing.agent("d", secret=other)
            for node in "abc":
                playing.agent(node)
            code, said = playing.ended()
            assert stranger.wait(timeout=LIMIT_S) == 3
            refused = stranger.communicate()[1]
            lines = playing.lines
        if said.count("did not come") == 1:
            break
    assert "does not know our secret" in refused
    assert code == 0
    assert "was refused: " in said
    assert lines["j1"]["rc"] == 0
    assert lines["j2"]["reason"] == f"d: its agent did not come within {within_s} s"


def test_strangers_and_silent_connections_hold_nobody_up(programs: Programs, tmp_path: Path) -> None:
    with tournament(programs, tmp_path, "ab", QUICK, [("j1", "a", "b")]) as playing:
        playing.conduct()
        with contextlib.ExitStack() as guests:
            # If each of them cost its five seconds, nobody would come in time.
            for _ in range(24):
                guests.enter_context(socket.create_connection(("127.0.0.1", playing.port)))
            with socket.create_connection(("127.0.0.1", playing.port)) as odd:
                odd.sendall(b"GET / HTTP/1.1\r\n\r\n")
                stranger = playing.agent("z")
                assert stranger.wait(timeout=LIMIT_S) == 3
                for node in "ab":
                    playing.agent(node)
                code, said = playing.ended()
        assert code == 0
        assert "z is not of this tournament" in said
        assert playing.lines["j1"]["rc"] == 0


def test_three_connections_with_one_byte_stop_no_tournament(programs: Programs, tmp_path: Path) -> None:
    """Each of them held the conductor up for ten seconds, one after the other."""
    with tournament(programs, tmp_path, "ab", QUICK, [("j1", "a", "b")]) as playing:
        playing.conduct("--join-timeout-s", "25")
        with contextlib.ExitStack() as guests:
            for _ in range(3):
                guest = guests.enter_context(socket.create_connection(("127.0.0.1", playing.port)))
                guest.sendall(b"\0")
            for node in "ab":
                playing.agent(node)
            code, said = playing.ended()
    assert code == 0, said
    assert playing.lines["j1"]["rc"] == 0


def test_too_few_agents_is_said(programs: Programs, tmp_path: Path) -> None:
    for within_s in IN_TIME_S:
        with tournament(programs, new_folder(tmp_path), "abcd", QUICK, ROUND) as playing:
            playing.conduct("--join-timeout-s", within_s)
            playing.agent("a")
            code, said = playing.ended()
        if "0 of 4" not in said:
            break
    assert code == 3
    assert f"1 of 4 agents came within {within_s} s: a pair needs two" in said


def test_a_kernel_that_cannot_run_is_a_line_and_the_rest_goes_on(programs: Programs, tmp_path: Path) -> None:
    tests = [*QUICK, "option client_cpu_index 8000"]
    with tournament(programs, tmp_path, "ab", tests, [("j1", "a", "b")]) as playing:
        playing.conduct()
        for node in "ab":
            playing.agent(node)
        assert playing.ended()[0] == 0
        line = playing.lines["j1"]
        assert (line["rc"], line["result"]["valid"]) == (2, False)
        assert "client_cpu_index" in line["result"]["error"]["message"]


@pytest.mark.parametrize("by", ["file", "signal"])
def test_it_ends_early_after_the_step_in_hand(programs: Programs, tmp_path: Path, by: str) -> None:
    with tournament(programs, tmp_path, "abcd", SLOW_FIRST, ROUND, NEXT) as playing:
        playing.conduct("--finish-file", "finish")
        for node in "abcd":
            playing.agent(node)
        wait_for(lambda: playing.measures("a"))
        if by == "file":
            (tmp_path / "finish").touch()
        else:
            playing.conductor.send_signal(signal.SIGUSR1)
        code, said = playing.ended()
        assert (code, sorted(playing.lines)) == (1, ["j1", "j2"])
        assert "ended early: asked to, after the current step" in said
        assert [agent.wait(timeout=LIMIT_S) for agent in playing.agents.values()] == [0] * 4


def test_raw_files_and_all_counters_are_kept_when_asked_for(programs: Programs, tmp_path: Path) -> None:
    with tournament(programs, tmp_path, "ab", QUICK, [("j1", "a", "b")]) as playing:
        playing.conduct("--evidence", "full", "--raw-dir", str(tmp_path / "raw"))
        for node in "ab":
            playing.agent(node)
        assert playing.ended()[0] == 0
        assert set(playing.lines["j1"]["evidence"]) == {"client", "server"}
        assert (tmp_path / "raw" / "j1-t1-r1" / "server" / "before" / "proc" / "stat").exists()


@pytest.mark.promise("A companion, a capture, and streams of many threads play in a tournament as in pair jobs.")
def test_companions_and_threads_in_a_tournament(programs: Programs, tmp_path: Path) -> None:
    options = {
        "companion": "udp_pingpong",
        "companion_idle_s": 0.1,
        "flow_count": 4,
        "thread_count": 2,
        "capture": "headers",
        **INSTANT,
        "duration_s": 0.3,
    }
    tests = ["test 1 tcp_stream 60", *(f"option {name} {value}" for name, value in options.items())]
    with tournament(programs, tmp_path, "abcd", tests, [("j1", "a", "b"), ("j2", "c", "d")]) as playing:
        playing.conduct()
        for node in "abcd":
            playing.agent(node)
        assert playing.ended()[0] == 0
    for line in playing.lines.values():
        metrics = line["result"]["metrics"]
        assert line["rc"] == 0, line
        assert metrics["idle_round_trip_p50_ns"] > 0 < metrics["loaded_round_trip_p50_ns"]
        assert metrics["received_bytes"] == metrics["sent_bytes"] > 0
        assert metrics["capture_sent_count"] > 0
        assert line["result"]["granted"]["client_capture_file"] == f"captures/{line['job']}-t1-r1.client.pcap"
        assert (tmp_path / "captures" / f"{line['job']}-t1-r1.server.pcap").stat().st_size > 24
    assert len(playing.lines) == 2
