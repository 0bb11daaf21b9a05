"""What a tournament file says is what is played; one that contradicts itself is refused with its line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.kernels.kernel_programs import LIMIT_S, Programs, write_secret
from tests.kernels.test_kernels_tournament import tournament

SWEPT = "tournament 1\nnode a\nnode b\ntest 1 tcp_pingpong 9\noption sweep_to_bytes 64\nstep 1 1 1\nmatch j1 a b\n"


@pytest.mark.promise("The sizes that a tournament leaves out are those of one match, and every size of the others is measured.")
def test_sizes_that_an_earlier_attempt_measured_are_left_out(sanitized: Programs, tmp_path: Path) -> None:
    """Of the match that the line follows, and of no other; sizes that the sweep has not are a usage error of that match."""
    given = ["message_bytes 8", "sweep_to_bytes 32", "operation_count_max 50", "duration_s 60", "warmup_s 0"]
    tests = ["test 1 tcp_pingpong 60", *(f"option {one}" for one in given)]
    with tournament(sanitized, tmp_path, "abcdef", tests, [("j1", "a", "b"), ("j2", "c", "d"), ("j3", "e", "f")]) as one:
        path = tmp_path / "tournament.txt"
        text = path.read_text()
        for match, measured in (("match j1 a b\n", "16,8"), ("match j3 e f\n", "9")):
            text = text.replace(match, f"{match}measured {measured}\n")
        path.write_text(text)
        one.conduct()
        for node in "abcdef":
            one.agent(node)
        assert one.ended()[0] == 0
        first, second, third = (one.lines[job]["result"] for job in ("j1", "j2", "j3"))
    assert first["skipped"] == [16, 8]
    assert [size["options"]["message_bytes"] for size in first["sizes"]] == [32]
    assert "skipped" not in second
    assert [size["options"]["message_bytes"] for size in second["sizes"]] == [8, 16, 32]
    assert all(size["valid"] for size in (*first["sizes"], *second["sizes"]))
    assert (one.lines["j3"]["rc"], third["exit_code"], third["metrics"]) == (2, 2, {})
    assert "sizes-done: found 9" in third["error"]["message"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty: not a tournament file"),
        ("node a\n", ":1: not a tournament file"),
        ("tournament 2\n", ":1: format 1 is allowed"),
        ("tournament 1\nnode a\nnode a\n", ":3: this node stands twice"),
        ("tournament 1\nnode a\nstep 1 1 1\n", ":3: no such test before this line"),
        ("tournament 1\nnode a\ntest 1 tcp_stream 5\noption message_bytes 0\n", "message_bytes: found 0"),
        ("tournament 1\nnode a\ntest 1 tcp_stream 5\nstep 1 1 1\nmatch j1 a a\n", ":5: a node stands twice in this step"),
        ("tournament 1\nnode a\ntest 1 tcp_stream 5\nstep 1 1 1\nmatch j1 a b\n", "a node that is not of this tournament"),
        ("tournament 1\nmatch j1\n", ":2: another number of words"),
        ("tournament 1\nplay\n", ":2: unknown: allowed: node, decided_after, test, option, step, match, measured"),
        ("tournament 1\nnode a\nmeasured 8\n", ":3: measured sizes come once, after their match"),
        (f"{SWEPT}measured 8\nmeasured 16\n", ":9: measured sizes come once, after their match"),
    ],
)
def test_a_bad_tournament_file_is_refused_with_its_line(sanitized: Programs, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "t"
    path.write_text(text)
    files = ["--secret-file", str(write_secret(tmp_path / "secret")), "--tournament", str(path), "--spool", str(tmp_path / "s")]
    command = [str(sanitized.net), "conductor", "--interface", "lo", *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 2
    assert words in done.stderr
