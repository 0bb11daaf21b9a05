"""What `regressions` and `compare` say of series that fail, that are too short, and of changes that were told before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.history.histories import History

pytestmark = pytest.mark.fast


@pytest.fixture
def failing(tmp_path: Path) -> History:
    """Twelve good nights, then two in which every test with n2 fails; its MTU changed with it."""
    made = History(tmp_path)
    for day in range(-14, 0):
        late = day >= -2
        facts = {"n2": {"nic": {"eth0.mtu_bytes": 1300 if late else 1500}}}
        made.night(day, failing=["n2"] if late else [], facts=facts)
    return made


@pytest.mark.promise("A series that was measured before and now only fails is gone, and exits with 3.")
@pytest.mark.heavy
def test_a_series_that_only_fails_is_gone(failing: History, say: Any) -> None:
    code, found, _ = say(failing, "regressions", "--since", "2026-11-15", "--json")
    assert code == 3
    assert [(one["server"], one["direction"], one["at_utc"][:10]) for one in found["changes"]] == [("n2", "gone", "2026-11-19")]
    assert "fewer than two datagrams" in found["changes"][0]["reason"]
    assert found["changes"][0]["after"] is None
    words = say(failing, "regressions", "--since", "2026-11-15")[2]
    assert "since 2026-11-15: 2 series judged: 1 PASS, 1 FAIL; 1 gone" in words
    assert "gone: tcp_stream 64 KiB n1 > n2" in words
    assert "nic.eth0.mtu_bytes 1500 > 1300" in words, "what differs stands beside it"
    code, found, _ = say(failing, "regressions", "--since", "2026-11-19", "--against", "2026-10-20..2026-11-18", "--json")
    assert (code, [one["direction"] for one in found["changes"]]) == (3, ["gone"])


@pytest.mark.promise("compare says gone where B only failed.")
@pytest.mark.heavy
def test_compare_says_what_is_gone(failing: History, say: Any) -> None:
    code, found, _ = say(failing, "compare", "nightly-20261118", "latest", "--json")
    assert code == 3
    assert {one["server"]: one["verdict"] for one in found["pairs"]} == {"n2": "gone", "n4": "same"}
    assert found["only_a"] == []
    assert "1 gone" in say(failing, "compare", "nightly-20261118", "latest")[2]


@pytest.mark.heavy
def test_a_series_that_works_again_is_not_gone(tmp_path: Path, say: Any) -> None:
    made = History(tmp_path)
    for day in range(-14, 0):
        made.night(day, failing=["n2"] if -5 <= day < -2 else [])
    code, found, _ = say(made, "regressions", "--since", "2026-11-10", "--json")
    assert (code, found["changes"]) == (4, [])  # two nights are not enough to trust it again


@pytest.mark.promise("`regressions --since A..B` reports nothing that came after B.")
@pytest.mark.heavy
def test_a_stretch_that_has_ended_knows_nothing_of_what_came_later(failing: History, say: Any) -> None:
    assert say(failing, "regressions", "--since", "2026-11-15..2026-11-20")[0] == 3
    code, found, _ = say(failing, "regressions", "--since", "2026-11-10..2026-11-17", "--json")
    assert (code, found["changes"], found["judged"]["pass_count"]) == (0, [], 2)
    assert say(failing, "regressions", "--since", "2019..2020")[0] == 4


@pytest.mark.promise("Where no series has enough points, regressions says so and exits with 4.")
@pytest.mark.promise("A date that does not exist is refused.")
@pytest.mark.promise("`regressions --against` counts a series with results in one stretch only once, and says which.")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["--since", "2026-11-01"],
            4,
            "since 2026-11-01: 2 series judged: 2 INCONCLUSIVE; 2 with too few points; --all lists what is open",
        ),
        (["--since", "2026-12-01"], 4, "2 without results"),
        (["--since", "2026-02-30"], 2, "is not a date"),
        (["--since", "2026-13"], 2, "is not a date"),
        (["--since", "20261101"], 2, "no time either"),
        (
            ["--since", "2026-11-01", "--against", "2025"],
            4,
            "since 2026-11-01: 2 series judged: 2 INCONCLUSIVE; 2 with results in one stretch only; --all lists what is open",
        ),
        (["--since", "2026-12-01", "--against", "2025"], 4, "no series judged: there is nothing to judge; 2 without results"),
    ],
)
def test_nothing_to_say_is_said(tmp_path: Path, say: Any, words: list[str], code: int, said: str) -> None:
    made = History(tmp_path)
    made.night(-1)
    found = say(made, "regressions", *words)
    assert found[0] == code
    assert said in found[2]
    assert "none got worse" not in found[2]


@pytest.mark.heavy
def test_all_shows_the_unclear(tmp_path: Path, say: Any) -> None:
    made = History(tmp_path)
    for day in range(-5, 0):
        made.night(day, noise=0.1)
    words = say(made, "regressions", "--since", "2026-11-19", "--against", "2026-11-15..2026-11-18", "--all")[2]
    assert "unclear: tcp_stream 64 KiB n1 > n2" in words
    assert "is not ruled out" in words


@pytest.mark.promise("One change is one record, and expected holds.")
@pytest.mark.heavy
def test_one_change_is_one_record_and_expected_holds(tmp_path: Path, say: Any) -> None:
    made = History(tmp_path)
    for day in range(-40, -20):
        made.night(day, levels={"n2": 0.9 if day >= -24 else 1.0})
    say(made, "regressions", "--since", "2026-10-20", "--record")
    for day in range(-20, 0):
        made.night(day, levels={"n2": 0.9})
    say(made, "regressions", "--since", "2026-10-20", "--record")
    say(made, "regressions", "--since", "2026-10-29", "--against", "2026-10-01..2026-10-27", "--record")
    _, recorded, _ = say(made, "changes", "list", "--json")
    assert [(one["server"], one["direction"]) for one in recorded] == [("n2", "worse")]
    assert say(made, "regressions", "--since", "2026-10-20")[0] == 3
    say(made, "changes", "set", "expected", str(recorded[0]["change_id"]), "--why", "a new limit")
    assert say(made, "regressions", "--since", "2026-10-20")[0] == 0
    assert say(made, "regressions", "--since", "2026-10-29", "--against", "2026-10-01..2026-10-27")[0] == 0


@pytest.mark.promise("A recorded change is reported until its level ends.")
@pytest.mark.heavy
def test_what_was_told_and_recorded_is_told_until_its_level_ends(tmp_path: Path, say: Any) -> None:
    made = History(tmp_path)
    for day in range(-60, -36):
        made.night(day, levels={"n2": 0.9 if day >= -41 else 1.0})
    assert say(made, "regressions", "--since", "2026-10-01", "--record")[0] == 3
    for day in range(-36, -6):
        made.night(day, levels={"n2": 0.9}, noise=0.4)  # in such noise no search finds a step of 10 %
    code, found, _ = say(made, "regressions", "--since", "2026-10-01", "--json")
    assert code == 3
    assert [one["reason"][:11] for one in found["changes"] if one["server"] == "n2"] == ["reported on"]
    for day in range(-6, 0):
        made.night(day, levels={"n2": 1.3})
    for day in range(-6, 0):
        made.night(day + 0.5, levels={"n2": 1.3})
    _, found, _ = say(made, "regressions", "--since", "2026-10-01", "--json")
    assert not any(one["reason"].startswith("told on") for one in found["changes"])


@pytest.mark.promise("results --each --metric X shows X.")
def test_each_result_in_the_metric_that_was_asked_for(tmp_path: Path, say: Any) -> None:
    made = History(tmp_path)
    made.night(-1)
    words = say(made, "results", "--each", "--metric", "sent_bytes")[2]
    assert "sent_bytes" in words
    assert "throughput_bps" not in words
    assert {one["metric"] for one in say(made, "results", "--metric", "sent_bytes", "--json")[1]["results"]} == {"sent_bytes"}
    assert say(made, "results", "--each", "--metric", "nothing")[0] == 2


@pytest.mark.promise(
    "`results --metric` of a metric that no result here has is too little data, and lists those that there are."
)
@pytest.mark.parametrize("ways", [("--each",), ("--each", "--json"), ()])
def test_a_metric_that_no_result_here_has_is_too_little_data(tmp_path: Path, say: Any, ways: tuple[str, ...]) -> None:
    made = History(tmp_path)
    made.night(-1)
    code, _, words = say(made, "results", *ways, "--metric", "lost_ratio")
    assert code == 4
    assert "no result here has lost_ratio: the metrics of the kernels measured here are" in words
    assert "sent_bytes" in words
    assert say(made, "results", *ways, "--metric", "sent_bytes")[0] == 0
