"""A series that now only fails: when it is gone, since when, one record of it, and that no page loses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcq.analysis.change import Value, own_build_changed, rank
from hpcq.analysis.gates import judge_run
from hpcq.analysis.run_verdict import RunVerdict, run_verdict
from hpcq.store import query
from hpcq.store.database import reading
from hpcq.verdict.words import Verdict
from tests.history.histories import History

pytestmark = pytest.mark.fast


def failing_from(folder: Path, first_bad: int, days: range) -> History:
    """One run a night; from `first_bad` on every test with n2 fails."""
    made = History(folder)
    for day in days:
        made.night(day, failing=["n2"] if day >= first_bad else [])
    return made


def page_of(made: History, run: str) -> RunVerdict:
    with reading(made.database) as connection:
        return run_verdict(connection, run, query.runs(connection, run), judge_run(connection, run))


def words_of(found: RunVerdict) -> list[str]:
    return [one.words for one in found.reasons if one.verdict is Verdict.FAILED]


@pytest.mark.heavy
@pytest.mark.promise("A job that brought a value is not gone, though its last repetition failed.")
def test_a_job_that_brought_a_value_is_not_gone_though_its_last_repetition_failed(tmp_path: Path, say: Any) -> None:
    made = History(tmp_path)
    for day in range(-6, 0):
        made.night(day, repetitions=3)
    last = made.night(0, repetitions=3, failing_repetitions={"n2": (3,)})
    code, found, _ = say(made, "regressions", "--since", "2026-11-15", "--json")
    assert (code, found["changes"]) == (0, [])
    assert say(made, "results", last)[0] == 4, "the repetition that failed is not lost: the run says so"


@pytest.mark.promise("A series is gone since its first failure, in every stretch, and that is one record.")
@pytest.mark.heavy
def test_a_series_is_gone_since_its_first_failure_and_that_is_one_record(tmp_path: Path, say: Any) -> None:
    made = failing_from(tmp_path, -30, range(-40, 0, 2))
    for since in ("2026-10-10", "2026-11-10"):
        code, found, _ = say(made, "regressions", "--since", since, "--record", "--json")
        assert (code, [(one["direction"], one["at_utc"][:10]) for one in found["changes"]]) == (3, [("gone", "2026-10-22")])
    _, [record], _ = say(made, "changes", "list", "--json")
    assert (record["direction"], record["at_utc"][:10]) == ("gone", "2026-10-22")
    say(made, "changes", "set", "expected", str(record["change_id"]), "--why", "n2 leaves")
    assert say(made, "regressions", "--since", "2026-11-15")[0] == 0, "said once, it holds in every stretch"


@pytest.mark.promise("What failed before a program began is not put down to another program.")
def test_what_failed_before_a_program_began_blames_no_other_program() -> None:
    ran: dict[tuple[str, str], Value] = {("build", "version"): "1.0", ("server n2", "nic.eth0.mtu_bytes"): 1500}
    failed: dict[tuple[str, str], Value] = {("server n2", "nic.eth0.mtu_bytes"): 1300}
    causes = rank([ran] * 3, [failed] * 3)
    assert [one.fact for one in causes] == ["nic.eth0.mtu_bytes"]
    assert not own_build_changed(causes)


@pytest.mark.heavy
@pytest.mark.promise("What has failed for half a year is still gone.")
def test_what_has_failed_for_half_a_year_is_still_gone(tmp_path: Path, say: Any) -> None:
    made = failing_from(tmp_path, -180, range(-200, 0, 20))
    code, found, _ = say(made, "regressions", "--since", "2026-11-01", "--json")
    assert (code, [one["direction"] for one in found["changes"]]) == (3, ["gone"])


@pytest.mark.heavy
@pytest.mark.promise("The page of a run says since when its series are gone.")
def test_the_page_of_a_run_says_since_when_its_series_are_gone(tmp_path: Path) -> None:
    made = failing_from(tmp_path, -2, range(-6, 0))
    found = page_of(made, "nightly-20261120T020000Z-alph")
    assert found.verdict is Verdict.FAILED
    [said] = words_of(found)
    assert said.endswith("; it was measured before, and gone since 2026-11-19 02:00 UTC")


@pytest.mark.heavy
@pytest.mark.promise("The page of a run names what is gone, though it did not run again.")
def test_the_page_of_a_run_names_what_is_gone_though_it_did_not_run_again(tmp_path: Path) -> None:
    made = failing_from(tmp_path, -2, range(-6, 0))
    last = made.night(0, not_run=[("n1", "n2")])
    found = page_of(made, last)
    assert found.verdict is Verdict.FAILED
    [said] = words_of(found)
    assert said.startswith("1 series did not run, and only failed before: alpha: n1 > n2; it was measured before")


@pytest.mark.heavy
@pytest.mark.promise("What a person expects to be gone fails no page.")
def test_what_a_person_expects_to_be_gone_fails_no_page(tmp_path: Path, say: Any) -> None:
    made = failing_from(tmp_path, -2, range(-6, 0))
    say(made, "regressions", "--since", "2026-11-10", "--record")
    _, [record], _ = say(made, "changes", "list", "--json")
    say(made, "changes", "set", "expected", str(record["change_id"]), "--why", "n2 leaves")
    found = page_of(made, "nightly-20261120T020000Z-alph")
    assert found.verdict is Verdict.INCONCLUSIVE, "its results are missing all the same"
    assert [one.verdict for one in found.reasons] == [Verdict.NOT_COVERED]
