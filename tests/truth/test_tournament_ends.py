"""How the end of a job reaches a tournament: the agents may be ended before the conductor is told."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.kernels.kernel_programs import Programs, wait_for
from tests.kernels.test_kernels_tournament import LONG, NEXT, ROUND, tournament


@pytest.mark.promise("What the end of a job cuts off in a tournament is not measured; it is no failure of the nodes.")
def test_what_the_end_of_the_job_cuts_off_is_no_failure(programs: Programs, tmp_path: Path) -> None:
    """Without the wait, each later match would have failed for want of its agents, in a millisecond."""
    with tournament(programs, tmp_path, "abcd", LONG, ROUND, NEXT, [("j5", "a", "b")]) as playing:
        playing.conduct()
        for node in "abcd":
            playing.agent(node)
        wait_for(lambda: len(playing.lines) == 2)
        for node in "abc":
            playing.agents[node].send_signal(signal.SIGTERM)
        time.sleep(0.3)
        playing.conductor.send_signal(signal.SIGTERM)
        code, said = playing.ended()
        assert (code, "ended early: by a signal" in said) == (1, True), said
        assert sorted(playing.lines) == ["j1", "j2"]
        assert {line["rc"] for line in playing.lines.values()} == {0}


@pytest.mark.promise(
    "Where all agents of a tournament are ended and its conductor is not, nothing later is a failure of healthy nodes."
)
def test_where_only_the_agents_are_ended_nothing_later_is_a_failure(programs: Programs, tmp_path: Path) -> None:
    """Slurm ends the steps at the time limit, and leaves the script that conducts them alone for a while."""
    with tournament(programs, tmp_path, "abcd", LONG, ROUND, NEXT, [("j5", "a", "b")]) as playing:
        playing.conduct()
        for node in "abcd":
            playing.agent(node)
        wait_for(lambda: len(playing.lines) == 2)
        for agent in playing.agents.values():
            agent.kill()
        code, said = playing.ended()
        assert (code, "all agents are gone" in said) == (3, True), said
        assert sorted(playing.lines) == ["j1", "j2"]


def test_one_lost_agent_after_another_costs_its_own_pairs_only(programs: Programs, tmp_path: Path) -> None:
    steps = [ROUND, NEXT, [("j5", "a", "b"), ("j6", "c", "d")], [("j7", "b", "a")]]
    with tournament(programs, tmp_path, "abcd", LONG, *steps) as playing:
        playing.conduct()
        for node in "abcd":
            playing.agent(node)
        wait_for(lambda: len(playing.lines) == 2)
        playing.agents["d"].kill()
        wait_for(lambda: "j5" in playing.lines)
        playing.agents["c"].kill()
        code, _ = playing.ended()
        assert code == 0
        found = {job: line["rc"] for job, line in playing.lines.items()}
        assert found == {"j1": 0, "j2": 0, "j3": 0, "j4": 3, "j5": 0, "j6": 3, "j7": 0}
