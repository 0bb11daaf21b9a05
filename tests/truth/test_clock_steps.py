"""A clock that moves in steps: what the kernels take for its step, and when they say that it is too coarse."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernels.kernel_programs import LIMIT_S, SOURCES, Programs, Server

pytestmark = pytest.mark.lab

#: Runs a command whose clock moves in steps of so many ns, and jumps so many at every fifth reading; returns what it said.
Coarse = Callable[..., str]


@pytest.fixture(scope="module")
def coarse(tmp_path_factory: pytest.TempPathFactory) -> Coarse:
    shim = tmp_path_factory.mktemp("coarse") / "coarse.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, Path(__file__).with_name("coarse.c")], check=True)

    def said(command: list[str], step_ns: int, jump_ns: int = 0) -> str:
        env = {**os.environ, "LD_PRELOAD": str(shim), "COARSE_NS": str(step_ns), "JUMP_NS": str(jump_ns)}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout

    return said


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that prints the step which the kernels find."""
    made = tmp_path_factory.mktemp("steps") / "steps"
    sources = [Path(__file__).with_name("clock_steps.c"), SOURCES / "base" / "clock.c"]
    subprocess.run(["cc", "-D_GNU_SOURCE", "-O2", "-I", SOURCES, "-o", made, *sources, "-lm"], check=True)
    return made


@pytest.mark.promise("The step of a clock is found, however many readings something else delayed.")
@pytest.mark.parametrize("jump_ns", [0, 100_000])
@pytest.mark.parametrize("step_ns", [20, 30, 100, 5000, 1_000_000])
def test_the_step_of_a_clock_is_found(coarse: Coarse, steps: Path, step_ns: int, jump_ns: int) -> None:
    """Also where every fifth reading is one in which something else ran: on a busy machine they are many."""
    assert float(coarse([str(steps)], step_ns, jump_ns)) == step_ns


@pytest.mark.promise("A clock whose steps are more than 0.1 % of the time measured, or too coarse for its samples, is said.")
def test_a_clock_too_coarse_for_what_was_measured_is_said(server: Server, programs: Programs, coarse: Coarse) -> None:
    """A clock of the timer interrupt, and steps of 5 us below round trips of some 50; the machine's own is fine."""
    place = ["--to", "127.0.0.1", "--port", str(server.port), "--secret-file", str(server.secret)]

    def said(kernel: str, step_ns: int) -> dict[str, str]:
        command = [str(programs.net), kernel, *place, "--duration_s", "0.3", "--warmup_s", "0"]
        return {one["name"]: one["message"] for one in json.loads(coarse(command, step_ns))["warnings"]}

    assert "clock_coarse" not in said("tcp_pingpong", 1)
    assert re.search(
        r"the client's clock moves in steps of 5000 ns, [0-9.]+ % of a mean", said("tcp_pingpong", 5000)["clock_coarse"]
    )
    assert "clock_coarse" not in said("tcp_stream", 5000)
    assert "of the time measured" in said("tcp_stream", 4_000_000)["clock_coarse"]
