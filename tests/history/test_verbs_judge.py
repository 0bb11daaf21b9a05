"""Every verb that judges: one vocabulary, a first line that says how much was judged, and 4 for too little data.

Each row of the tables is one verb on one history. `good` rows exit with 0, so that 4 is no constant.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hpcq.analysis.blame_tables import RunTables
from hpcq.cli.blame import verdicts_of
from hpcq.cli.main import run
from hpcq.cli.results import print_run
from hpcq.run_folder.paths import RunFolder
from hpcq.runner.accept import accepting
from hpcq.verdict.words import Verdict
from tests.history.histories import PAIRS, History
from tests.store.run_folders import utc

pytestmark = pytest.mark.fast

NODES = ("n1", "n2", "n3", "n4")
GATE = "  - {metric: throughput_bps, kernel: tcp_stream, minimum: 100M}"
#: `3 of 4 nodes judged: 2 PASS, 1 FAIL`, `no series judged: ...`, `0 of 2 planned results measured (2 invalid); ...`
HOW_MUCH = re.compile(
    r"^(since \S+: |\w+: )?(no [a-z ]+ judged: |\d+ (of \d+ )?[a-z ]+ (judged|measured|checked)\b|no node needs a verdict)"
)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, History]:
    """good: 33 quiet nights. lost: one night in which nothing gave a valid result; gated: the same, with a gate.

    one: a single good night, also with a gate. empty: a run whose jobs never ran. bare: no end took evidence.
    """
    names = ("good", "lost", "gated", "one", "unread", "missing", "bare")
    made = {name: History(tmp_path_factory.mktemp(name)) for name in names}
    for day in range(-34, -1):
        made["good"].night(day, noise=0.003)
    made["lost"].night(-1, failing=NODES)
    made["gated"].night(-1, failing=NODES, gates=GATE)
    made["one"].night(-1, gates=GATE)
    made["bare"].night(-1, bare=True)
    made["unread"].night(-1, gates="  - {metric: throughput_bps, kernel: tcp_stream, minimum: 100M, of_a_newer_hpcq: 1}")
    for day in range(-6, 0):
        made["missing"].night(day, noise=0.003, not_run=PAIRS[1:] if day == -1 else ())
    return made


@pytest.fixture
def say(scenes: dict[str, History], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a verb on a scene; returns the exit code and the first line for people (of stderr, else of stdout)."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr("hpcq.definition.find.list_clusters", lambda *_: {})  # a lab of this machine may have some
    monkeypatch.chdir(tmp_path)

    def said(scene: str, words: str) -> tuple[int, str]:
        history = scenes[scene]
        database = [] if words.startswith(("detect", "doctor")) else ["--db", str(history.database)]
        runs = ["--runs", str(history.runs)] if words.startswith("report") else []
        code = run([*words.split(), *database, *runs])
        printed = capsys.readouterr()
        return code, (printed.err or printed.out).splitlines()[0]

    return said


@pytest.fixture
def columns(tmp_path: Path) -> None:
    """CSV files for detect and blame."""
    values = {"long": range(40), "short": range(5), "none": range(0)}
    for name, rows in values.items():
        lines = "".join(f"{100 + i % 3},7\n" for i in rows) or ",\n5,\n"
        (tmp_path / f"{name}.csv").write_text(f"n1-n2,n3-n4\n{lines}")
    pairs = [f"{turn},{a},{b},{100 + turn % 2}" for turn in range(3) for a in NODES for b in NODES if a < b]
    (tmp_path / "pairs.csv").write_text("round,node_a,node_b,value\n" + "\n".join(pairs) + "\n")
    (tmp_path / "pair.csv").write_text("round,node_a,node_b,value\n0,n1,n2,100\n")


@pytest.mark.heavy
@pytest.mark.promise("`hpcq results` over an empty stretch is too little data.")
@pytest.mark.promise("Gates that could not be read let no run exit with 0, in `results`, `report` and `run`.")
@pytest.mark.promise("`regressions` exits with 4 where a series was planned and not measured.")
@pytest.mark.promise("`detect` does not call five values unchanged.")
@pytest.mark.promise("`doctor` exits with 4 where something could not be checked.")
@pytest.mark.promise("`results --findings` exits with 4 where no result has evidence: no finding would say nothing.")
@pytest.mark.promise("`results --links` exits with 4 where nothing was measured over a link.")
@pytest.mark.usefixtures("columns")
@pytest.mark.parametrize(
    ("scene", "words", "code"),
    [
        ("good", "results", 0),
        ("lost", "results", 4),
        ("gated", "results", 3),
        ("one", "results", 0),
        ("unread", "results", 4),
        ("missing", "results", 4),
        ("missing", "results --since 2027", 4),
        ("good", "results --since 2026-10-25..2026-11-05", 0),
        ("good", "results --findings", 0),
        ("bare", "results", 0),
        ("bare", "results --findings", 4),
        ("gated", "results --findings", 3),
        ("good", "results --findings --since 2027", 4),
        ("good", "results --links", 4),
        ("gated", "results --links", 3),
        ("good", "report", 0),
        ("lost", "report", 3),
        ("gated", "report", 3),
        ("unread", "report", 4),
        ("good", "regressions --since 2026-11-01", 0),
        ("one", "regressions --since 2026-11-01", 4),
        ("good", "regressions --since 2027", 4),
        ("missing", "regressions --since 2026-11-20", 4),
        ("good", "regressions --since 2026-11-01 --against 2026-10-15..2026-10-31", 0),
        ("good", "regressions --since 2026-11-01 --against 2025", 4),
        ("good", "compare 2026-10-15..2026-10-31 2026-11", 0),
        ("good", "compare 2025 2026-11", 4),
        ("missing", "compare 2026-11-14..2026-11-18 latest", 4),
        ("good", "gate propose --since 2026", 0),
        ("one", "gate propose --since 2026", 4),
        ("good", "gate propose --since 2027", 4),
        ("good", "gate propose --since 2026 --against peers", 4),
        ("lost", "blame", 3),
        ("missing", "blame", 4),
        ("one", "blame --pairs pairs.csv", 0),
        ("one", "blame --pairs pair.csv", 4),
        ("one", "detect --better higher long.csv", 0),
        ("one", "detect --better higher short.csv", 4),
        ("one", "detect --better higher none.csv", 4),
        ("one", "detect --better higher --boundary 20 long.csv", 0),
        ("one", "detect --better higher --boundary 4 short.csv", 4),
        ("one", "doctor --reach --clusters .", 4),
    ],
)
def test_how_much_was_judged_comes_first_and_too_little_is_4(say: Any, scene: str, words: str, code: int) -> None:
    found, first = say(scene, words)
    assert (found, bool(HOW_MUCH.match(first))) == (code, True), first


@pytest.mark.heavy
@pytest.mark.promise("`gate propose` names tests with too few points, and exits with 4 with --json too.")
@pytest.mark.usefixtures("columns")
@pytest.mark.parametrize(
    "words",
    [
        "results",
        "results --findings",
        "results --links",
        "report",
        "regressions --since 2026-11-20",
        "compare 2026-11-14..2026-11-18 latest",
        "blame",
        "detect --better higher short.csv",
        "gate propose --since 2026",
        "doctor --reach --clusters .",
    ],
)
def test_the_exit_code_is_the_same_with_json(say: Any, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = say("missing", words)
    assert code == 4
    again, first = say("missing", f"{words} --json")
    assert again == 4
    assert first[0] in "{["


@pytest.mark.promise("Series with too few points are counted as inconclusive, exit code 4.")
@pytest.mark.promise("`compare` exits with 4 where B planned a test and did not measure it.")
@pytest.mark.promise("Every verb that judges counts in --json what it judged.")
def test_json_counts_what_was_judged(scenes: dict[str, History], capsys: pytest.CaptureFixture[str]) -> None:
    def judged(scene: str, *words: str) -> Any:
        run([*words, "--json", "--db", str(scenes[scene].database)])
        return json.loads(capsys.readouterr().out)["judged"]

    of_series = judged("missing", "regressions", "--since", "2026-11-20")
    assert (of_series["judged_count"], of_series["not_covered_count"], of_series["pass_count"]) == (1, 1, 1)
    assert judged("missing", "compare", "2026-11-14..2026-11-18", "latest")["not_covered_count"] == 1
    assert judged("one", "regressions", "--since", "2026-11-01")["inconclusive_count"] == 2
    assert judged("gated", "results")["gates"]["failed_count"] == 2
    assert judged("lost", "results")["invalid_count"] == 2


@pytest.mark.promise("`regressions --all` names the series that were not judged.")
def test_all_names_what_is_open(say: Any, scenes: dict[str, History], capsys: pytest.CaptureFixture[str]) -> None:
    run(["regressions", "--since", "2026-11-20", "--all", "--db", str(scenes["missing"].database)])
    assert "planned, not measured: tcp_stream 64 KiB n3 > n4" in capsys.readouterr().out
    run(["regressions", "--since", "2026-11-01", "--all", "--db", str(scenes["one"].database)])
    assert "too few points: tcp_stream 64 KiB n1 > n2" in capsys.readouterr().out
    run(["regressions", "--since", "2027", "--all", "--db", str(scenes["one"].database)])
    assert "nothing to compare: tcp_stream 64 KiB n1 > n2" in capsys.readouterr().out


@pytest.mark.promise("`blame` without a run judges the latest one.")
def test_blame_alone_judges_the_latest_run(scenes: dict[str, History], capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for words in ([], ["--run", "latest"], ["--run", "nightly-20261117"]):
        code = run(["blame", *words, "--json", "--db", str(scenes["missing"].database)])
        said.append((code, capsys.readouterr().out))
    assert said[0] == said[1]
    assert said[0] != said[2], "a pair of the latest run never ran"


@pytest.mark.promise("`blame` clears nobody by jobs that never ran.")
def test_blame_clears_nobody_by_jobs_that_never_ran() -> None:
    assert verdicts_of({}, RunTables("alpha", planned_count=3, ran_count=1)) == [Verdict.NOT_COVERED] * 2


@pytest.mark.heavy
@pytest.mark.promise("A gate on a test that ran without a valid result fails: the series is gone.")
@pytest.mark.parametrize(("scene", "code"), [("good", 0), ("lost", 3), ("gated", 3)])
def test_the_end_of_a_run_says_it_too(
    scenes: dict[str, History], capsys: pytest.CaptureFixture[str], scene: str, code: int
) -> None:
    history = scenes[scene]
    folder = RunFolder(max(history.runs.iterdir()))
    assert print_run(folder, history.database, as_json=False) == code
    assert HOW_MUCH.match(capsys.readouterr().err.splitlines()[0])


@pytest.mark.parametrize(
    "words",
    [
        "regressions --since 2026-02-30",
        "regressions --since 30d --against 2026-13",
        "results --since 2026-11-31",
        "compare 2026-02-30 latest",
        "compare 30d..90d latest",
        "gate propose --since 2026-00",
        "history 1 --since 2026-11-20T25:00",
        "event list --since 2026-02-29",
        "event add note x --at 2026-11-31",
        "event add note x --at 2026-11-20 --until 2026-11-19",
        "db prune --keep 2026-02-30",
    ],
)
def test_a_date_that_no_calendar_has_is_refused(say: Any, words: str) -> None:
    code, first = say("one", words)
    assert code == 2
    assert first.startswith("error: ")


def accept(folder: Path, *words: str) -> int:
    (folder / "after.yaml").write_text("name: after\nclusters: [tiny]\npairs: all\ntests: [{kernel: tcp_stream}]\n")
    (folder / "tiny.yaml").write_text("name: tiny\nscheduler: local\nnodes: [n1, n2]\n")
    return run(["accept", "after.yaml", *words, "--clusters", "."])


@pytest.mark.promise("`accept` exits with 4 where another acceptance left it nothing to judge.")
@pytest.mark.usefixtures("say")
def test_accept_judged_nothing_while_another_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(accepting._Acceptor, "_measure", lambda *_: None)
    with accepting.alone(tmp_path / "runs", "tiny") as mine:
        assert mine
        assert accept(tmp_path) == 4
    assert "tiny: another acceptance is under way: this one judged nothing" in capsys.readouterr().out
    assert accept(tmp_path) == 4, "nothing was measured"
    assert HOW_MUCH.match(capsys.readouterr().out.splitlines()[0])


@pytest.mark.promise("`accept --since` takes no impossible date for the name of a reservation.")
@pytest.mark.usefixtures("say")
def test_accept_takes_no_impossible_date_for_a_reservation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert accept(tmp_path, "--since", "2026-02-30") == 2
    assert "'2026-02-30' is not a date" in capsys.readouterr().err


@pytest.mark.promise("`results --findings --since` keeps to its stretch.")
def test_findings_keep_to_their_stretch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = History(tmp_path)
    for day in (-9, -2):
        history.night(day, counters={"n2": {"netstat.TcpExt.PruneCalled": 50, "netstat.TcpExt.RcvPruned": 50}})
    seen = {}
    for stretch in ("2026-01-01..2026-12-31", f"{utc(-5 * 86400)}..2026-12-31", "2027"):
        code = run(["results", "--findings", "--since", stretch, "--json", "--db", str(history.database)])
        seen[stretch] = (code, len(json.loads(capsys.readouterr().out)))
    (_, every), (_, late), (code, none) = seen.values()
    assert every > late > 0
    assert (code, none) == (4, 0)
