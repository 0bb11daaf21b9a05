"""Series over time: time words, filters, histories, regressions and comparisons on databases with a known truth."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcq.cli.main import run
from hpcq.errors import UserError
from hpcq.store.database import reading
from hpcq.store.selection import Selection, moment, window
from hpcq.store.series import _joined_ranks, select
from tests.history.histories import History, json_of

pytestmark = pytest.mark.fast

NOW = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)
SLOW_SINCE = -12
MTU = {"n2": {"sysctl": {"net.core.rmem_max": 212992}}}


@pytest.fixture(scope="module")
def slowed(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Sixty nights; n2 loses a tenth twelve nights ago, together with a sysctl and a reboot."""
    made = History(tmp_path_factory.mktemp("slowed"))
    for day in range(-60, 0):
        late = day >= SLOW_SINCE
        made.night(day, levels={"n2": 0.9 if late else 1.0}, facts=MTU if late else {}, boots={"n2": "second"} if late else {})
    return made


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a verb with --json; returns exit code and what it printed."""

    def asked(history: History, *words: str) -> tuple[int, Any]:
        code = run([*words, "--db", str(history.database), "--json"])
        said = capsys.readouterr()
        return code, json_of(said.out) if said.out else said.err

    return asked


# -- time words --------------------------------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("text", "from_utc", "until_utc"),
    [
        ("30d", "2026-10-22T12:00:00", None),
        ("now-7d", "2026-11-14T12:00:00", None),
        ("12h", "2026-11-21T00:00:00", None),
        ("90d..30d", "2026-08-23T12:00:00", "2026-10-22T12:00:00"),
        ("2026-10", "2026-10", "2026-10~"),
        ("2026-10..2026-11", "2026-10", "2026-11~"),
        ("2026-10-03T02:00..", "2026-10-03T02:00", None),
        ("..2026-10-03", None, "2026-10-03~"),
        ("yesterday", "2026-11-20", "2026-11-20~"),
    ],
)
def test_time_words(slowed: History, text: str, from_utc: str | None, until_utc: str | None) -> None:
    with reading(slowed.database) as connection:
        found = window(connection, text, NOW)
    assert (found.from_utc, found.until_utc, found.run_ids) == (from_utc, until_utc, None)


@pytest.mark.heavy
def test_runs_are_times_too(slowed: History) -> None:
    with reading(slowed.database) as connection:
        assert moment(connection, "nightly-20261001", NOW) == "2026-10-01T01:59:00"
        assert len(window(connection, "latest", NOW).run_ids or ()) == 1
        for text in ("tomorrow", "30d..90d", "baseline:none"):
            with pytest.raises(UserError) as raised:
                window(connection, text, NOW)
            assert raised.value.hint


# -- series and filters ------------------------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (Selection(), 2),
        (Selection(node="n2"), 1),
        (Selection(client="n2"), 0),
        (Selection(kernel="tcp_stream", server="n4"), 1),
        (Selection(where=(("message_bytes", "64KiB"),)), 2),
        (Selection(where=(("message_bytes", "65536"), ("no_delay", "false"))), 2),
        (Selection(where=(("message_bytes", "1MiB"),)), 0),
        (Selection(cluster="beta"), 0),
    ],
)
def test_filters(slowed: History, wanted: Selection, count: int) -> None:
    with reading(slowed.database) as connection:
        assert len(select(connection, wanted)) == count


@pytest.mark.parametrize(
    "words", [["--where", "sizes=1"], ["--fact", "nic.color=red"], ["--group", "leaf9"], ["--metric", "speed"]]
)
def test_names_that_nothing_has_are_answered_with_those_that_are_there(slowed: History, ask: Any, words: list[str]) -> None:
    code, said = ask(slowed, "history", *words)
    assert code == 2
    assert "hint: " in said


@pytest.mark.promise("`history` of a stretch in which nothing was measured exits 4.")
def test_series_and_history(slowed: History, ask: Any) -> None:
    code, rows = ask(slowed, "history", "--node", "n2")
    assert code == 0
    assert [(row["client"], row["server"], row["result_count"]) for row in rows] == [("n1", "n2", 60)]
    assert rows[0]["message_bytes"] == 65536
    code, found = ask(slowed, "history", "tcp_stream/n1/n2")
    assert len(found["points"]) == 60
    assert found["metric"]["name"] == "throughput_bps"
    [change] = found["changes"]
    assert change["at_utc"].startswith("2026-11-09T02:00")
    assert change["causes"][0]["fact"] == "sysctl.net.core.rmem_max"
    assert [event["kind"] for event in change["events"]] == ["reboot"]
    code, found = ask(slowed, "history", "1", "--since", "2026-11", "--last", "3")
    assert [point["started_utc"][:10] for point in found["points"]] == ["2026-11-18", "2026-11-19", "2026-11-20"]
    assert ask(slowed, "history", "tcp_stream")[0] == 2
    code, found = ask(slowed, "history", "1", "--since", "2027-01")
    assert (code, found["points"]) == (4, [])


def test_filter_by_fact_takes_the_results_that_had_it(slowed: History, ask: Any) -> None:
    code, found = ask(slowed, "regressions", "--since", "2026-10-25", "--fact", "sysctl.net.core.rmem_max=212992")
    assert (code, found["changes"]) == (0, []), "all points that are left lie behind the change"


# -- what got worse ----------------------------------------------------------------------------------------------------


@pytest.mark.heavy
def test_regressions_by_search(slowed: History, ask: Any) -> None:
    code, found = ask(slowed, "regressions", "--since", "2026-10-25")
    assert code == 3
    [change] = found["changes"]
    assert (change["client"], change["server"], change["direction"], change["verdict"]) == ("n1", "n2", "worse", "degraded")
    assert change["low"] < 0.9 < change["high"]
    assert not change["own_build"]
    code, later = ask(slowed, "regressions", "--since", "2026-11-15")
    assert (code, later["changes"]) == (3, []), "what was told stays told while it is as slow as before"
    assert ("link", ["n1", "n2"], "told") in [(one["thing"], one["names"], one["state"]) for one in later["causes"]]
    assert ask(slowed, "regressions", "--since", "2026-10-25", "--node", "n3")[0] == 0


def test_regressions_against_another_stretch(slowed: History, ask: Any) -> None:
    code, found = ask(slowed, "regressions", "--since", "2026-11-09", "--against", "2026-09..2026-11-08")
    assert code == 3
    assert [(one["server"], one["method"]) for one in found["changes"]] == [("n2", "boundary")]


@pytest.mark.heavy
def test_one_bad_run_is_not_told_and_a_repaired_change_does_not_alarm(tmp_path: Path, ask: Any) -> None:
    made = History(tmp_path)
    for day in range(-50, 0):
        made.night(day, levels={"n2": 0.8 if -30 <= day < -15 else 1.0, "n4": 0.7 if day == -1 else 1.0})
    code, found = ask(made, "regressions", "--since", "2026-09-25")
    assert (code, {one["state"] for one in found["causes"]}) == (4, {"suspected"})  # n4, last night: not told, and no pass
    _, found = ask(made, "regressions", "--since", "2026-09-25", "--all")
    told = [(one["server"], one["direction"], one["came_back"]) for one in found["changes"] if one["verdict"] != "inconclusive"]
    assert told == [("n2", "worse", True), ("n2", "better", False)]


@pytest.mark.parametrize("newest", [2, 3, 4])
@pytest.mark.heavy
def test_newest_points_are_not_missed(tmp_path: Path, ask: Any, newest: int) -> None:
    made = History(tmp_path)
    for day in range(-40, 0):
        made.night(day, levels={"n2": 0.9 if day >= -newest else 1.0})
    code, found = ask(made, "regressions", "--since", "2026-11-10")
    assert code == 3
    assert [(one["server"], one["at_utc"][:10]) for one in found["changes"]] == [("n2", f"2026-11-{21 - newest}")]


@pytest.mark.heavy
def test_an_own_build_never_passes_as_a_change_of_the_machine(tmp_path: Path, ask: Any, capsys: Any) -> None:
    made = History(tmp_path)
    for day in range(-40, 0):
        late = day >= -15
        made.night(day, 0.9 if late else 1.0, build="net-2222" if late else "net-1111")
    code, found = ask(made, "regressions", "--since", "2026-10-25")
    assert code == 3
    assert [one["own_build"] for one in found["changes"]] == [True, True]
    assert found["changes"][0]["causes"][0]["fact"] == "source_build_id"
    run(["regressions", "--since", "2026-10-25", "--db", str(made.database)])
    assert "this is no change of the machine" in capsys.readouterr().out


@pytest.mark.promise("`compare` has no verdict for results that it is to compare with themselves, and exits 4.")
@pytest.mark.heavy
def test_compare_pairs_by_pair_and_parameters(tmp_path: Path, ask: Any, capsys: pytest.CaptureFixture[str]) -> None:
    made = History(tmp_path)
    nights = [made.night(day) for day in range(-12, -2)]
    good = made.night(-2, repetitions=8)
    bad = made.night(-1, repetitions=8, levels={"n4": 0.85}, pairs=(("n1", "n2"), ("n3", "n4"), ("n5", "n6")))
    code, found = ask(made, "compare", good, bad)
    assert code == 3
    assert {(one["server"], one["verdict"]) for one in found["pairs"]} == {("n2", "same"), ("n4", "worse")}
    assert [one["server"] for one in found["only_b"]] == ["n6"]
    assert ask(made, "compare", nights[0], good)[0] == 0
    assert run(["compare", nights[0], good, "--db", str(made.database)]) == 0
    assert "2 same; a node 3 % slower for 6 nights would be told\n" in capsys.readouterr().err, "one job a side decides nothing"
    code, found = ask(made, "compare", bad, "latest")
    assert (code, found["pairs"], found["judged"]["total_count"]) == (4, [], 0)


@pytest.mark.heavy
def test_two_jobs_without_a_history_say_little(tmp_path: Path, ask: Any) -> None:
    """Eight repetitions are one job: without a history their agreement says nothing of what another job would bring."""
    made = History(tmp_path)
    good = made.night(-2, repetitions=8)
    slower = made.night(-1, repetitions=8, levels={"n2": 0.93, "n4": 0.5})
    code, found = ask(made, "compare", good, slower)
    told = {one["server"]: (one["verdict"], one["reason"]) for one in found["pairs"]}
    assert code == 3
    assert told["n4"][0] == "worse"  # half the speed is beyond any scatter that is assumed
    assert told["n2"][0] == "unclear"
    assert "assumed" in told["n2"][1]
    assert "more" in told["n2"][1]


@pytest.mark.heavy
def test_evidence_that_goes_along_with_a_change(tmp_path: Path, ask: Any, capsys: pytest.CaptureFixture[str]) -> None:
    made = History(tmp_path)
    for day in range(-30, 0):
        late = day >= -6
        pruned = {"n2": {"netstat.TcpExt.PruneCalled": 50, "netstat.TcpExt.RcvPruned": 50}} if late else {"n2": {}}
        made.night(day, levels={"n2": 0.8 if late else 1.0}, counters=pruned)
    code, found = ask(made, "regressions", "--since", "2026-11-07")
    assert code == 3
    [change] = [one for one in found["changes"] if one["server"] == "n2"]
    [symptom] = [one for one in change["symptoms"] if one["rule"] == "receive_buffer_pruned"]
    assert symptom["where"] == "server n2"
    assert (symptom["before_count"], symptom["after_count"], symptom["after_of"]) == (0, 6, 6)
    assert not any(one["rule"] == "receive_buffer_pruned" for one in change["causes"]), "a symptom is no cause"
    assert run(["regressions", "--since", "2026-11-07", "--db", str(made.database)]) == 3
    assert "evidence        server n2: receive_buffer_pruned in 0 of " in capsys.readouterr().out


@pytest.mark.heavy
def test_for_people_too(slowed: History, capsys: pytest.CaptureFixture[str]) -> None:
    for words, seen in (
        (["history"], "tcp_stream"),
        (["history", "1"], "<- worse from here"),
        (["regressions", "--since", "2026-10-25"], "differs by 100 %"),
        (["compare", "2026-10", "2026-11-10.."], "worse"),
    ):
        assert run([*words, "--db", str(slowed.database)]) in {0, 3}
        assert seen in capsys.readouterr().out


def test_filters_say_what_there_is(slowed: History, ask: Any) -> None:
    code, found = ask(slowed, "history", "--fact", "sysctl.net.core.rmem_max=212992")
    assert (code, [(one["client"], one["server"], one["result_count"]) for one in found]) == (0, [("n1", "n2", -SLOW_SINCE)])
    for words, said in (
        (["--fact", "sysctl.net.core.rmem_max=1"], "no node ever had sysctl.net.core.rmem_max=1"),
        (["--node", "n9"], "--node: 'n9' is not a node of any series here\n\nhint: valid are n1, n2, n3, n4"),
        (["--kernel", "tcp_strem"], "--kernel: 'tcp_strem' is not a kernel of any series here: the nearest is tcp_stream"),
        (["--client", "n2"], "--client: 'n2' is not a client of any series here"),
    ):
        code, told = ask(slowed, "history", *words)
        assert code == 2
        assert said in told
    assert "there are 212992, 4194304" in ask(slowed, "history", "--fact", "sysctl.net.core.rmem_max=1")[1]
    assert "'tcp_strem/n1' is not a series" in ask(slowed, "history", "tcp_strem/n1")[1]


@pytest.mark.fast
def test_places_order_as_the_names_do_where_their_numbers_do_not_fit() -> None:
    """A hundred thousand nodes, thousands of tests and networks: the product of their counts is beyond 64 bits."""
    random = np.random.default_rng(1)
    ranks = [random.integers(0, 2**21, 400) for _ in range(4)]
    place = _joined_ranks(*ranks)
    wanted = sorted(range(400), key=lambda one: tuple(int(rank[one]) for rank in ranks))
    assert np.argsort(place, kind="stable").tolist() == wanted
    assert place.min() >= 0
