"""What explains a result stands first: flaws that the evidence shows, tests that only fail, and their commonest reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcq.analysis.series_outcomes import commonest
from tests.history.histories import History, sayer

pytestmark = pytest.mark.fast

LOW_MTU = {"n2": {"nic": {"eth0.mtu_bytes": 1300}}}
SAID = "evidence  alpha: n2 has an MTU of 1300 bytes, n1 of 1500 bytes (2 findings)"
JUDGED: dict[str, Any] = {"counters": {"n2": {}}, "repetitions": 2}


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a verb on a history: exit code, what it printed for programs (or None), and its words."""
    return sayer(capsys)


@pytest.fixture
def wrong(tmp_path: Path) -> History:
    """Three good nights, then n2 has a small MTU."""
    made = History(tmp_path)
    for day in (-4, -3, -2):
        made.night(day, **JUDGED)
    made.night(-1, facts=LOW_MTU, **JUDGED)
    return made


@pytest.mark.heavy
@pytest.mark.promise("A flaw that the evidence shows stands before the table of run, results and compare, and in --json.")
def test_a_flaw_of_a_node_stands_before_the_tables(wrong: History, say: Any) -> None:
    for words in (["results"], ["results", "--since", "2026-11-01"], ["compare", "nightly-20261118", "latest"]):
        code, _, said = say(wrong, *words)
        assert SAID in said, (words, code, said)
        _, found, _ = say(wrong, *words, "--json")
        assert [(one["node"], one["rule"], one["result_count"]) for one in found["flaws"]] == [("n2", "mtu_mismatch", 2)]
    assert "evidence" not in say(wrong, "results", "nightly-20261118")[2]
    assert "evidence" not in say(wrong, "results", "--node", "n3")[2]
    assert "evidence" not in say(wrong, "compare", "nightly-20261118", "latest", "--node", "n3")[2]


@pytest.mark.heavy
@pytest.mark.promise("compare reports no flaw that A had as well.")
def test_a_flaw_that_both_have_explains_no_difference(wrong: History, say: Any) -> None:
    wrong.night(0, facts=LOW_MTU, **JUDGED)
    assert "evidence" not in say(wrong, "compare", "nightly-20261120", "latest")[2]
    assert SAID in say(wrong, "results")[2]


@pytest.mark.heavy
@pytest.mark.promise("`hpcq nodes` says what fails on a node, and why.")
def test_the_node_says_what_is_wrong_with_it(wrong: History, say: Any) -> None:
    _, _, said = say(wrong, "nodes", "n2", "--since", "90d")
    assert "evidence      n2 has an MTU of 1300 bytes, n1 of 1500 bytes (2 findings)" in said
    assert "failing" not in said
    wrong.night(0, failing=["n2"], **JUDGED)
    _, found, _ = say(wrong, "nodes", "n2", "--since", "90d", "--json")
    failed = "tcp_stream 64 KiB n1 > n2: all 2 results of 1 job failed: fewer than two datagrams arrived of 5096 sent"
    assert found["failing"] == [failed]
    assert f"failing       {failed}" in say(wrong, "nodes", "n2", "--since", "90d")[2]
    assert "failing" not in say(wrong, "nodes", "n3", "--since", "90d")[2]


@pytest.mark.promise("Reasons that differ in numbers only are one reason.")
def test_reasons_that_differ_in_numbers_are_one() -> None:
    found = commonest({"rank 3 died": 2, "none of 10 arrived": 1, "none of 11 arrived": 1, "none of 12 arrived": 1})
    assert found == ("none of 10 arrived", 3, 1)
