"""`hpcq import`: files of values become runs that every verb reads, and nothing is half imported."""

from __future__ import annotations

import datetime as dt
import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hpcq.cli.main import run
from tests.people.nights import Asked
from tests.store.run_folders import RunBuilder, load

pytestmark = pytest.mark.fast

HEAD = "time,run,test,client,server,metric,value,unit,better"
NODES = [f"n{number}" for number in range(1, 9)]
FIRST = dt.datetime(2026, 3, 1, 2, tzinfo=dt.UTC)


def nights(count: int, slow: str = "", since: int = 0, seed: int = 1) -> list[str]:
    """Rows of `count` nights, every pair once each night; the node `slow` at half its speed from night `since` on."""
    rng, rows = random.Random(seed), []
    for night in range(count):
        place = 0
        for client in NODES:
            for server in NODES:
                if client == server:
                    continue
                place += 1
                at = FIRST + dt.timedelta(days=night, seconds=10 * place)
                level = 0.5 if slow in {client, server} and night >= since else 1.0
                value = 2e8 * level * rng.gauss(1, 0.003)
                rows.append(f"{at:%Y-%m-%dT%H:%M:%SZ},night-{night:03d},site_bw,{client},{server},rate,{value:.0f},bps,higher")
    return rows


class Importing(Asked):
    """A database, and files to bring into it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(folder / "results.db", capsys)
        self.folder = folder

    def file(self, name: str, rows: list[str], head: str = HEAD) -> str:
        """A file with these rows below its head."""
        path = self.folder / name
        path.write_text("\n".join([head, *rows]) + "\n")
        return str(path)

    def bring(self, rows: list[str], *words: str, head: str = HEAD, expect: int = 0) -> str:
        """Import these rows; what hpcq says."""
        return self.words("import", self.file("values.csv", rows, head), "--cluster", "alpha", *words, expect=expect)

    def count(self, table: str) -> int:
        with sqlite3.connect(self.database) as database:
            return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.database) as database:
            return database.execute(query).fetchall()


@pytest.fixture
def site(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Importing:
    monkeypatch.chdir(tmp_path)  # whoever starts the tests may have runs of their own where they stand
    return Importing(tmp_path, capsys)


@pytest.mark.heavy
def test_a_history_with_a_slow_node_is_read_and_judged(site: Importing) -> None:
    said = site.bring(nights(30, slow="n3", since=25))
    assert "alpha: 1680 new values in 1680 new results; 30 runs (30 new), 2026-03-01 to 2026-03-30" in said
    assert "no evidence stands behind" in said
    assert {row["kind"] for row in site.json("runs")} == {"import"}
    assert "56 of 56 planned results measured; no gate judges them; 56 of them imported: no evidence" in site.words("results")
    assert "n3: 50" in site.words("blame", expect=3)
    told = site.json("regressions", "--since", "2026-03-20..2026-03-30", expect=3)
    worse = [one for one in told["changes"] if one["direction"] == "worse" and one["ratio"] < 0.9]
    assert worse
    assert all("n3" in {one["client"], one["server"]} for one in worse)
    assert all(item["ok"] for item in site.json("db", "check"))
    level = {row["node"]: row["level_ratio"] for row in site.json("nodes", "--since", "2026-03-27")}
    assert (level["n3"] < 0.6, level["n1"] > 0.95) == (True, True)


@pytest.mark.heavy
@pytest.mark.promise("`hpcq accept --from RUN` judges what a run brought, imported ones too, and measures and records nothing.")
def test_accept_judges_what_an_imported_night_brought(site: Importing) -> None:
    site.bring(nights(6, slow="n3", since=4))
    site.words("baseline", "set", "good", "night-000", "night-001")
    against = ("--against", "good")
    [bad] = site.json("accept", "--from", "night-005", *against, expect=3)["clusters"]
    assert {one["name"]: one["verdict"] for one in bad["nodes"]} == dict.fromkeys(NODES, "pass") | {"n3": "failed"}
    assert (bad["links"], bad["groups"], bad["clusters"], bad["runs"]) == ([], [], [], ["night-005"])
    [well] = site.json("accept", "--from", "night-002", "--from", "night-003", *against)["clusters"]
    assert {one["verdict"] for one in well["nodes"]} == {"pass"}
    [without] = site.json("accept", "--from", "night-005", "--node", "n3", expect=3)["clusters"]
    assert [one["verdict"] for one in without["nodes"]] == ["failed"], "without a baseline: against the other nodes"
    assert site.json("nodes", "--verdicts") == []
    assert site.count("run") == 6


@pytest.mark.heavy
@pytest.mark.promise("`hpcq baseline set` warns of nodes that are slower than their like in the runs it is given.")
def test_a_baseline_of_a_bad_day_is_told_when_it_is_set(site: Importing) -> None:
    site.bring(nights(4, slow="n3", since=2))
    assert site.words("baseline", "set", "good", "night-000", "night-001") == "night-000\nnight-001\n"
    said = site.words("baseline", "set", "bad", "night-002", "night-003")
    [warning] = [line for line in said.splitlines() if line.startswith("warning")]
    assert warning.startswith("warning: alpha: n3: bad with n1, n2, n4")
    assert "50 % below what is expected" in warning
    [judged] = site.json("accept", "--from", "night-003", "--against", "bad", expect=3)["clusters"]
    assert {one["name"]: one["verdict"] for one in judged["nodes"]} == dict.fromkeys(NODES, "pass") | {"n3": "failed"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from", "night-000", "--apply"), "--from and --apply"),
        (("campaign.yaml", "--from", "night-000"), "--from and CAMPAIGN"),
        (("--from", "night-000", "--node", "n99"), "'n99': must be a node that night-000 measured"),
        (("--from", "night-999"), "night-999"),
        ((), "CAMPAIGN: not given"),
    ],
)
def test_accept_from_refuses_what_it_cannot_judge(site: Importing, words: tuple[str, ...], said: str) -> None:
    site.bring(nights(1))
    assert said in site.words("accept", *words, expect=2)


@pytest.mark.heavy
@pytest.mark.promise("A past stretch is judged as if it were its end: later results change nothing.")
def test_a_past_stretch_is_judged_as_if_it_were_its_end(site: Importing) -> None:
    site.bring(nights(30, slow="n3", since=25))
    told = site.json("regressions", "--since", "2026-03-10..2026-03-24")
    assert all(one["at_utc"] < "2026-03-25" for one in told["changes"])
    before = json.dumps(told, sort_keys=True)
    site.bring([row.replace("night-", "later-").replace("2026-03", "2026-04") for row in nights(30, slow="n1", since=0)])
    assert json.dumps(site.json("regressions", "--since", "2026-03-10..2026-03-24"), sort_keys=True) == before


@pytest.mark.promise("Imported results say everywhere that no evidence stands behind them.")
def test_show_and_page_say_that_it_was_imported(site: Importing) -> None:
    site.bring(nights(1))
    said = site.words("show", "1")
    assert "another program measured this" in said
    assert "values.csv" in said
    assert "no sign of it" not in said
    assert site.json("show", "1")["detail"]["imported"] is True
    page = site.folder / "page.html"
    site.words("report", "--to", str(page))
    assert "hpcq import</code> brought them" in page.read_text()
    assert "56 results imported: 56 measured" in page.read_text()


@pytest.mark.promise("Importing a file twice changes no byte of the database.")
def test_importing_twice_changes_nothing(site: Importing) -> None:
    rows = nights(3)
    site.bring(rows)
    before = site.database.read_bytes()
    said = site.bring(rows)
    assert "nothing new; 168 values there already; 3 runs (0 new)" in said
    assert site.database.read_bytes() == before


@pytest.mark.heavy
def test_a_file_that_has_grown_adds_its_new_rows(site: Importing) -> None:
    rows = nights(3)
    site.bring(rows[:100])
    assert "68 new values in 68 new results; 100 values there already; 3 runs (1 new)" in site.bring(rows)
    in_pieces = site.ask("SELECT run, client, server, started_utc, value FROM v_results ORDER BY 1, 2, 3")
    site.database.unlink()
    site.bring(rows)
    assert site.ask("SELECT run, client, server, started_utc, value FROM v_results ORDER BY 1, 2, 3") == in_pieces
    assert {row["planned_count"] for row in site.json("runs")} == {56}


@pytest.mark.promise("A value that contradicts an imported one is refused with its line, and then nothing is imported.")
def test_a_changed_value_is_refused_and_nothing_is_imported(site: Importing) -> None:
    site.bring(["2026-03-01T02:00:00Z,a,t,n1,n2,rate,5,bps,higher"])
    before = site.database.read_bytes()
    rows = ["2026-03-02T02:00:00Z,b,t,n1,n2,rate,7,bps,higher", "2026-03-01T02:00:00Z,a,t,n1,n2,rate,6,bps,higher"]
    said = site.bring(rows, expect=2)
    assert "values.csv:3: column value: 6.0: the database has 5.0 of the same measurement" in said
    assert site.database.read_bytes() == before


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("2026-13-01,a,t,n1,n2,rate,5,bps,higher", "column time: '2026-13-01': must be a time in UTC"),
        ("20260101T00,a,t,n1,n2,rate,5,bps,higher", "column time: '20260101T00'"),
        ("2026-03-01,a b,t,n1,n2,rate,5,bps,higher", "column run: 'a b': must be letters"),
        ("2026-03-01,a,t/u,n1,n2,rate,5,bps,higher", "column test: 't/u'"),
        ("2026-03-01,a,t,n 1,n2,rate,5,bps,higher", "column client: 'n 1'"),
        ("2026-03-01,a,t,n1,n[,rate,5,bps,higher", "column server: 'n['"),
        ("2026-03-01,a,t,n1,n2,rate,fast,bps,higher", "column value: 'fast': must be a finite number"),
        ("2026-03-01,a,t,n1,n2,rate,nan,bps,higher", "column value: 'nan'"),
        ("2026-03-01,a,t,n1,n2,rate,,bps,higher", "column value: ''"),
        ("2026-03-01,a,t,n1,n2,rate,5,Gbit/s,higher", "column unit: 'Gbit/s': must be one of bps"),
        ("2026-03-01,a,t,n1,n2,rate_us,5,ns,higher", "column unit: 'ns': rate_us says us itself"),
        ("2026-03-01,a,t,n1,n2,rate,5,bps,bigger", "column better: 'bigger': must be higher, lower or none"),
        ("2026-03-01,a,t,n1,n2,,5,bps,higher", "column metric: ''"),
        ("2026-03-01,a,t,n1,n2,rate,5,bps", "8 cells: must be 9"),
        (
            "2026-03-01,a,tcp_stream,n1,n2,troughput,5,bps,higher",
            "column metric: 'troughput_bps' is not a metric of tcp_stream",
        ),
        (
            "2026-03-01,a,tcp_stream,n1,n2,throughput,5,bps,lower",
            "column better: 'lower': throughput_bps of tcp_stream is better higher",
        ),
    ],
)
def test_a_bad_cell_is_refused_with_its_place(site: Importing, row: str, words: str) -> None:
    said = site.bring(["2026-03-01,a,t,n1,n3,rate,5,bps,higher", row], expect=2)
    assert f"values.csv:3: {words}" in said
    assert "hint: nothing was imported" in said
    assert not site.database.exists()


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("time,run,test,client,server,metric,value,unit", "column better: missing"),
        (f"{HEAD},repitition", "'repitition' is not a column: the nearest is repetition"),
        (f"{HEAD},run", "column run: stands twice"),
        ("", "column time: missing"),
    ],
)
def test_a_bad_head_is_refused(site: Importing, head: str, words: str) -> None:
    assert f"values.csv:1: {words}" in site.bring(["1,2"], head=head, expect=2)


def test_files_that_are_no_csv_are_refused(site: Importing) -> None:
    (site.folder / "bytes.csv").write_bytes(HEAD.encode() + b"\n2026-03-01,a,t,\xff1,n2,rate,5,bps,higher\n")
    assert "bytes.csv:2: byte 0xff is not UTF-8" in site.words(
        "import", str(site.folder / "bytes.csv"), "--cluster", "alpha", expect=2
    )
    assert "values.csv: no row" in site.bring([], expect=2)
    assert "values.csv:2: not CSV" in site.bring(['2026-03-01,a,"t"x,n1,n2,rate,5,bps,higher'], expect=2)


def test_many_bad_rows_are_counted(site: Importing) -> None:
    """Each problem once, however many rows have it."""
    said = site.bring([f"2026-03-01,a,t,n1,n2,rate,x{row % 12},bps,higher" for row in range(60)], expect=2)
    assert "values.csv:11: column value" in said
    assert "(and 4 more rows with the same)" in said
    assert "and 10 more rows" in said
    assert "(and 1 more row with the same)" in site.bring(["2026-03-01,a,t,n1,n2,rate,x,bps,higher"] * 2, expect=2)


@pytest.mark.parametrize(("written", "unit"), [("bit/s", "bps"), ("B", "bytes"), ("packets/s", "pps"), ("", "number")])
def test_units_may_be_written_as_others_do(site: Importing, written: str, unit: str) -> None:
    site.bring([f"2026-03-01,a,t,n1,n2,rate,5,{written},higher"])
    assert site.ask("SELECT DISTINCT unit FROM v_results") == [(unit,)]


def test_jobs_repetitions_and_failures(site: Importing) -> None:
    rows = [
        "2026-03-01T02:00:00Z,a,t,n1,n2,latency,5,us,lower,7,1,,,64",
        "2026-03-01T02:00:00Z,a,t,n1,n2,rate,100,bps,higher,7,1,,,64",
        "2026-03-01T02:00:01Z,a,t,n1,n2,latency,6,us,lower,7,2,,,64",
        "2026-03-01T02:00:02Z,a,t,n1,n2,,,,,7,3,failed,no answer,64",
        "2026-03-01T02:00:02Z,a,t,n1,n2,,,,,7,4,invalid,,64",
        "2026-03-01T02:00:00Z,a,t,n1,n2,latency,9,us,lower,7,1,,,1024",
        "2026-03-01T02:00:00Z,a,t,n1,,latency,9,us,lower,8,1,,,",
    ]
    site.bring(rows, head=f"{HEAD},job,repetition,outcome,reason,message_bytes")
    found = site.ask(
        "SELECT job, client, server, message_bytes, repetition_no, outcome, metric, value, reason FROM v_results"
        " ORDER BY job, message_bytes, repetition_no"
    )
    assert found == [
        ("7/n1>n2", "n1", "n2", 64, 1, "measured", "latency_us", 5.0, None),
        ("7/n1>n2", "n1", "n2", 64, 2, "measured", "latency_us", 6.0, None),
        ("7/n1>n2", "n1", "n2", 64, 3, "failed", "latency_us", None, "no answer"),
        ("7/n1>n2", "n1", "n2", 64, 4, "invalid", "latency_us", None, "the imported file gives no reason"),
        ("7/n1>n2", "n1", "n2", 1024, 1, "measured", "latency_us", 9.0, None),
        ("8/n1", "n1", "n1", None, 1, "measured", "latency_us", 9.0, None),
    ]
    assert site.ask("SELECT value FROM v_metrics WHERE metric = 'rate_bps'") == [(100.0,)]
    assert "5 of 6" not in site.words("results", expect=4)
    assert "4 of 6 planned results measured" in site.words("results", expect=4)


def test_values_at_the_same_time_are_repetitions(site: Importing) -> None:
    rows = [f"2026-03-01T02:00:00Z,a,t,n1,n2,rate,{value},bps,higher" for value in (5, 5, 7)]
    rows += ["2026-03-01T02:00:00Z,a,t,n1,n2,,,,"]
    rows = [f"{row},{outcome}" for row, outcome in zip(rows, ("", "", "", "failed"), strict=True)]
    for _ in range(2):
        site.bring(rows, head=f"{HEAD},outcome")
        assert site.ask("SELECT repetition_no, outcome, value FROM v_results ORDER BY repetition_no") == [
            (1, "measured", 5.0), (2, "measured", 5.0), (3, "measured", 7.0), (4, "failed", None)
        ]  # fmt: skip


def test_contradictions_within_a_file_are_refused(site: Importing) -> None:
    head = f"{HEAD},repetition,outcome"
    first = "2026-03-01T02:00:00Z,a,t,n1,n2,rate,5,bps,higher,1,"
    assert "column metric: rate_bps: line 2 has it" in site.bring([first, first], head=head, expect=2)
    later = first.replace("02:00", "03:00")
    assert "another time: a column `job` tells jobs apart" in site.bring([first, later], head=head, expect=2)
    assert "column outcome: 'failed': line 2 says 'measured'" in site.bring([first, f"{first}failed"], head=head, expect=2)


def test_a_year_is_no_one_job(site: Importing) -> None:
    rows = [f"2026-0{month}-01,all,t,n1,n2,rate,5,bps,higher" for month in (1, 2, 3)]
    said = site.bring(rows, expect=2)
    assert "column run: 'all': its values of n1>n2 are 2026-01-01T00:00 to 2026-03-01T00:00" in said
    site.bring([f"{row},{number}" for number, row in enumerate(rows)], head=f"{HEAD},job")
    assert len(site.ask("SELECT DISTINCT job FROM v_results")) == 3


def test_a_kernel_of_hpcq_keeps_its_own_metrics(site: Importing) -> None:
    site.bring(
        [
            "2026-03-01,a,tcp_pingpong,n1,n2,round_trip_p50,5000,ns,lower,64",
            "2026-03-01,a,osu_latency,n1,n2,half_round_trip,5000,ns,lower,8",
        ],
        head=f"{HEAD},message_bytes",
    )
    found = dict(site.ask("SELECT kernel, metric FROM v_results"))
    assert found["tcp_pingpong"] == "round_trip_p50_ns"
    assert found["osu_latency"] == "half_round_trip_ns"


@pytest.mark.heavy
@pytest.mark.promise("An import never touches a run that hpcq measured.")
def test_a_run_that_hpcq_measured_is_not_touched(site: Importing) -> None:
    measured = RunBuilder(site.folder / "runs")
    measured.everything()
    load(site.database, measured)
    name = site.json("runs")[0]["run"]
    before = site.count("result")
    said = site.bring([f"2026-03-01,{name},t,n1,n2,rate,5,bps,higher"], expect=2)
    assert f"values.csv:2: column run: '{name}': hpcq measured a run of this name" in said
    assert site.count("result") == before
    assert {row["kind"] for row in site.json("runs")} == {"campaign"}


def test_facts_hold_from_their_time_on(site: Importing) -> None:
    site.bring(nights(4))
    facts = [
        "n1,2026-03-01,nic.eth0.speed_bps,100000000000",
        "n1,2026-03-03,nic.eth0.speed_bps,25000000000",
        "n1,2026-03-01,cpu.model,EPYC 7763",
        "n2,2026-04-01,cpu.model,EPYC 7763",
        "n9,2026-03-01,cpu.model,EPYC 7763",
    ]
    words = ("--facts", site.file("facts.csv", facts, "node,time,fact,value"))
    said = site.bring(nights(4), *words)
    assert "warning: n2: their first fact is later" in said
    assert "left out: n9" in said
    query = "SELECT run, value FROM v_facts WHERE node = 'n1' AND fact = 'nic.eth0.speed_bps' GROUP BY run, value ORDER BY run"
    slow, fast = 25_000_000_000, 100_000_000_000
    assert site.ask(query) == [("night-000", fast), ("night-001", fast), ("night-002", slow), ("night-003", slow)]
    assert "EPYC 7763" in site.words("facts", "show", "n1")
    before = site.database.read_bytes()
    site.bring(nights(4), *words)
    assert site.database.read_bytes() == before
    assert site.json("runs", "--cost", "--since", "2026-01") == []


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("n1,yesterday,cpu.model,x", "column time: 'yesterday'"),
        ("n 1,2026-03-01,cpu.model,x", "column node: 'n 1'"),
        ("n1,2026-03-01,model,x", "column fact: 'model'"),
        ("n1,2026-03-01,cpu.model", "3 cells: must be 4"),
        ("n1,2026-03-01,cpu.name,y", "column value: 'y': line 2 says 'x' at the same time"),
    ],
)
def test_bad_facts_are_refused_with_their_place(site: Importing, row: str, words: str) -> None:
    facts = site.file("facts.csv", ["n1,2026-03-01,cpu.name,x", row], "node,time,fact,value")
    assert f"facts.csv:3: {words}" in site.bring(nights(1), "--facts", facts, expect=2)
    assert not site.database.exists()


def test_groups_are_added_as_for_measured_nodes(site: Importing) -> None:
    site.bring(nights(6, slow="n3"))
    leaves = site.file("leaves.csv", [f"{node},{'leaf1' if node < 'n5' else 'leaf2'}" for node in NODES], "node,group")
    assert "8 nodes with a new group" in site.words("db", "groups", leaves, "--cluster", "alpha")
    assert site.json("history", "--group", "leaf1")


def test_a_set_of_nodes_is_a_collective(site: Importing) -> None:
    site.bring(['2026-03-01,a,allreduce_all,n1,"n[2-4]",time,5,us,lower'])
    assert {row["node"] for row in site.json("nodes")} >= {"n1"}
    assert "n[2-4]" in site.words("results", "--node", "n3")


@pytest.mark.usefixtures("every_job_rolls_up")
def test_pruned_results_are_known_again(site: Importing) -> None:
    rows = nights(2)
    site.bring(rows)
    assert run(["db", "prune", "--keep", "2026-04", "--db", str(site.database)]) == 0
    assert "nothing new; 112 values there already" in site.bring(rows)
    assert site.count("metric") == 0


@pytest.mark.heavy
def test_imports_merge_and_prune_and_rejudge_like_others(site: Importing, tmp_path: Path) -> None:
    site.bring(nights(2))
    other = Importing(tmp_path / "other", site.capsys)
    other.folder.mkdir()
    other.words("db", "merge", str(site.database))
    assert {row["kind"] for row in other.json("runs")} == {"import"}
    assert "0 results judged" in other.words("db", "rejudge")
    assert "have no evidence any more" not in other.words("db", "rejudge")


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("2026-11-20T02:00:07Z", "2026-11-20T02:00:07.000000Z"),
        ("2026-11-20 02:00:07", "2026-11-20T02:00:07.000000Z"),
        ("2026-11-20T02:00:07.25Z", "2026-11-20T02:00:07.250000Z"),
        ("2026-11-20T02:00:07+01:00", "2026-11-20T01:00:07.000000Z"),
        ("2026-11-20", "2026-11-20T00:00:00.000000Z"),
    ],
)
def test_times_are_stored_in_utc(site: Importing, text: str, stored: str) -> None:
    site.bring([f"{text},a,t,n1,n2,rate,5,bps,higher"])
    assert site.ask("SELECT started_utc FROM v_results") == [(stored,)]


@pytest.mark.parametrize(
    "text", ["2026-11-20T02:00:61Z", "2026-11-20T02:0a:07Z", "2026-02-30T02:00:07Z", "1969-12-31T00:00:00Z"]
)
def test_a_bad_time_is_quoted_whole(site: Importing, text: str) -> None:
    assert f"values.csv:2: column time: '{text}'" in site.bring([f"{text},a,t,n1,n2,rate,5,bps,higher"], expect=2)


@pytest.mark.promise("A job that a wrong clock dated moves no night of an import: its row is refused, by its line.")
@pytest.mark.parametrize("wrong", ["1970-01-01T00:00:10Z", "2099-01-01T00:00:00Z", "2026-01-31T02:00:00Z"])
def test_a_row_with_the_time_of_a_wrong_clock_is_refused(site: Importing, wrong: str) -> None:
    rows = nights(3)
    rows[60] = ",".join([wrong, *rows[60].split(",")[1:]])
    said = site.bring(rows, expect=2)
    day = (FIRST + dt.timedelta(days=1)).strftime("%Y-%m-%d")
    assert f"values.csv:62: column time: {wrong}: 55 of 56 jobs of run night-001 are of {day}" in said
    assert "nothing was imported" in said


def test_a_run_of_several_weeks_is_none_of_wrong_clocks(site: Importing) -> None:
    """Rows of a run may be far apart where no day has most of them."""
    rows = [row.replace("night-001", "night-000").replace("night-002", "night-000") for row in nights(3)]
    far = [f"2026-0{3 + place // 56}{row[7:]}" for place, row in enumerate(rows)]
    jobs = [f"{row},{place}" for place, row in enumerate(far)]
    site.bring(jobs, head=f"{HEAD},job")
    assert site.count("run") == 1
