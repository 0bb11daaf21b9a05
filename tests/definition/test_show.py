"""hpcq show and hpcq facts over a loaded run, and the page about evidence."""

from __future__ import annotations

import datetime as dt
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hpcq.cli.facts import facts
from hpcq.cli.show import show
from hpcq.errors import UserError
from hpcq.evidence.judge import judge, rules_table
from hpcq.reports.page import write_report
from hpcq.store import query
from hpcq.store.database import reading
from hpcq.store.load.cluster import load_run
from hpcq.store.read import evidence_queries
from hpcq.store.selection import Selection
from tests import REPOSITORY
from tests.evidence.test_evidence_rules import CASES, changed
from tests.store.run_folders import START, RunBuilder, utc

pytestmark = pytest.mark.fast

PAGE = REPOSITORY / "docs" / "evidence.md"
MARCH, APRIL = "march-20260314T020000Z-00aa", "april-20260401T020000Z-00bb"


class Builder(RunBuilder):
    """A run whose kernel line and facts are those of an evidence case."""

    case = "NIC without receive buffers"
    driver = "5.8-1.0"

    def line(self, job_id: str, step: tuple[int, int], **more: Any) -> dict[str, Any]:  # noqa: ARG002
        kernel, parameters = self.planned(step[0])
        pair = changed(next(one for one in CASES if one["name"] == self.case))
        line: dict[str, Any] = {**pair["line"], "kernel": kernel}
        line["options"], line["build_id"] = parameters, "net-1111"
        line["started_utc"] = utc(self.seconds)
        for end in line["evidence"].values():
            end |= {"before_utc": utc(self.seconds), "after_utc": utc(self.seconds + 1)}
        line["series"] = {"interval_ms": 50, "throughput_bps": [1e9, 3e9, 2e9], "tcp_round_trip_ns": [80_000, None, 90_000]}
        return line | more

    def facts(self, node: str) -> dict[str, Any]:
        pair = changed(next(one for one in CASES if one["name"] == self.case))
        found: dict[str, Any] = pair["client_facts" if node == "n1" else "server_facts"]
        found["nic"]["eth0.driver_version"] = self.driver
        found["now"] = {"load_1min": 0.1 if node == "n1" else 0.2}
        return found


@dataclass(frozen=True)
class Loaded:
    path: Path
    result_id: int

    def run(self, *words: str) -> Result:
        command = show if words[0] == "show" else facts
        rest = words[1:] if words[0] == "show" else words
        return CliRunner().invoke(command, [*rest, "--db", str(self.path)], standalone_mode=False)

    def out(self, *words: str) -> str:
        done = self.run(*words)
        if done.exception:
            raise done.exception
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.out(*words, "--json"))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """Two runs of a pair; the driver is newer in the second."""
    folder = tmp_path_factory.mktemp("evidence")
    path = folder / "results.db"
    for run_id, driver in ((MARCH, "5.8-1.0"), (APRIL, "23.10-2.1")):
        builder = Builder(
            folder / "runs",
            pairs=(("n1", "n2"),),
            tests=(("tcp_stream", {"message_bytes": 1472}),),
            repetition_count=2,
            run=run_id,
            campaign=run_id.partition("-")[0],
        )
        builder.driver = driver
        begin = dt.datetime(2026, 4, 1, 2, tzinfo=dt.UTC) if run_id == APRIL else dt.datetime(2026, 3, 14, 2, tzinfo=dt.UTC)
        builder.seconds = (begin - START).total_seconds()
        builder.everything()
        load_run(path, builder.path, judge=judge)
    with reading(path) as database:
        first = query.results(database, Selection(run=MARCH))[0].result_id
    return Loaded(path, first)


@pytest.mark.heavy
def test_a_result_is_told_with_its_finding_first(loaded: Loaded) -> None:
    text = loaded.out("show", str(loaded.result_id))
    lines = text.splitlines()
    assert lines[0].startswith(f"result {loaded.result_id}: tcp_stream, 1472 B, n1 > n2")
    seen = [
        lines.index(line) for line in lines if line.strip().startswith(("loss_in_nic at the server", "Metrics", "Counters"))
    ]
    assert seen == sorted(seen)
    assert len(seen) == 3
    for words in (
        "n2: its NIC dropped 300 packets (ethtool.eth0.rx_out_of_buffer)",
        "means: Packets were lost in this node's NIC",
        "try: Enlarge the rings",
        "bytes went through the interface under test: yes",
        "throughput_bps",
        "ethtool.eth0.rx_out_of_buffer",
        "nic.IF.mtu_bytes",
        "mlx5_core",
        "built by",
        "raw line",
    ):
        assert words in text
    counters = next(line for line in lines if line.strip().startswith("ethtool.eth0.rx_out_of_buffer"))
    assert counters.split() == ["ethtool.eth0.rx_out_of_buffer", "-", "300"]
    assert "interrupts.LOC.cpu4" not in text
    assert "interrupts.LOC.cpu4" in loaded.out("show", str(loaded.result_id), "--all")
    assert max(len(line) for line in lines) <= 130


def test_a_result_for_programs(loaded: Loaded) -> None:
    found = loaded.json("show", str(loaded.result_id))
    assert found["detail"]["findings"][0]["rule"] == "loss_in_nic"
    assert found["facts"]["server"]["nic.eth0.driver"] == "mlx5_core"
    assert {one["counter"] for one in found["detail"]["counters"]} >= {"ethtool.eth0.rx_out_of_buffer"}


@pytest.mark.promise("`hpcq show` draws how a result went, interval by interval.")
def test_the_series_is_drawn(loaded: Loaded) -> None:
    lines = loaded.out("show", str(loaded.result_id)).splitlines()
    drawn = lines[lines.index("Over time, each 50 ms, from the least to the most") + 1 :][:2]
    assert [line.split(maxsplit=2) for line in drawn] == [
        ["tcp_round_trip_ns", "▁█", "80 us to 90 us"],
        ["throughput_bps", "▁█▅", "1 Gbit/s to 3 Gbit/s"],
    ]
    assert loaded.json("show", str(loaded.result_id))["detail"]["intervals"]["tcp_round_trip_ns"] == {"0": 8e4, "100": 9e4}


class Path3(Builder):
    """A way of three hops, of which the second says nothing."""

    def line(self, job_id: str, step: tuple[int, int], **more: Any) -> dict[str, Any]:
        series = {
            "interval_ms": 100,
            "begin_ms": [0, 12, 40],
            "hop_no": [1, 2, 3],
            "hop_round_trip_min_ns": [210_000, None, 950_000],
            "hop_round_trip_p50_ns": [220_000, None, 1_000_000],
            "hop_round_trip_max_ns": [300_000, None, 2_000_000],
            "hop_answered_count": [5, 0, 4],
        }
        granted = {"client_hop_1_address": "10.0.0.1", "client_hop_3_address": "10.0.2.7"}
        return super().line(job_id, step, series=series, granted=granted, **more)


@pytest.mark.promise("`hpcq show` lists a path hop by hop, with addresses and round trips; a hop that says nothing is silent.")
def test_a_way_is_told_hop_by_hop(tmp_path: Path) -> None:
    builder = Path3(tmp_path / "runs", pairs=(("n1", "n2"),), tests=(("path_probe", {}),), repetition_count=1)
    builder.everything()
    load_run(tmp_path / "results.db", builder.path, judge=judge)
    with reading(tmp_path / "results.db") as database:
        [one] = query.results(database, Selection(run=builder.run))
    lines = Loaded(tmp_path / "results.db", one.result_id).out("show", str(one.result_id)).splitlines()
    told = lines[lines.index("The way") + 1 :][:4]
    assert [re.split(r"  +", line.strip()) for line in told] == [
        ["hop", "address", "shortest", "median", "longest", "answered"],
        ["1", "10.0.0.1", "210 us", "220 us", "300 us", "5"],
        ["2", "silent", "0"],
        ["3", "10.0.2.7", "950 us", "1 ms", "2 ms", "4"],
    ]
    assert not any(line.startswith("Over time") for line in lines)


def test_a_result_that_is_not_there(loaded: Loaded) -> None:
    with pytest.raises(UserError, match="99999 is not a result"):
        loaded.out("show", "99999")


def test_findings_are_rows(loaded: Loaded) -> None:
    with reading(loaded.path) as database:
        found = evidence_queries.findings_of(database, Selection(run=MARCH))
        assert [(one["rule"], one["end"], one["role"], one["node"]) for one in found] == [
            ("loss_in_nic", "server", "receiver", "n2")
        ] * 2
        assert found[0]["figures"]["count"] == 300
        assert evidence_queries.findings_of(database, Selection(node="n1"), "retransmits") == []


def test_findings_are_counted_by_rule_and_node(loaded: Loaded) -> None:
    with reading(loaded.path) as database:
        [one] = evidence_queries.finding_groups(database, MARCH)
        assert (one.cluster, one.rule, one.result_count, one.nodes) == ("alpha", "loss_in_nic", 2, (("n2", 2),))
        assert one.example.startswith("n2: its NIC dropped 300 packets")
        assert evidence_queries.finding_groups(database, "other") == []


@pytest.mark.heavy
def test_the_page_says_what_the_evidence_says(loaded: Loaded, tmp_path: Path) -> None:
    write_report(loaded.path, MARCH, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    for words in ("What the evidence says", "loss in nic", "n2 (2)", "its NIC dropped 300 packets", "Enlarge the rings"):
        assert words in text
    assert "disturbed by other work" not in text


@pytest.mark.heavy
def test_disturbed_results_are_counted(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "runs", pairs=(("n1", "n2"),), tests=(("tcp_stream", {"message_bytes": 1472}),), run=MARCH)
    builder.case = "other work"
    builder.everything()
    load_run(tmp_path / "results.db", builder.path, judge=judge)
    with reading(tmp_path / "results.db") as database:
        [summary] = query.summaries(database, Selection(run=MARCH))
    assert summary.disturbed_count == summary.n > 0
    write_report(tmp_path / "results.db", MARCH, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert f"{summary.n} of the measured results were disturbed by other work" in page


def test_what_changed_on_a_node(loaded: Loaded) -> None:
    [one] = loaded.json("diff", "n2", MARCH, APRIL)
    assert one["changed"] == [{"fact": "nic.eth0.driver_version", "a": "5.8-1.0", "b": "23.10-2.1"}]
    assert (one["a"]["run"], one["b"]["run"]) == (MARCH, APRIL)
    assert loaded.json("diff", "n2", "march")[0]["changed"] == one["changed"]
    assert loaded.json("diff", "alpha/n2", "first", "latest")[0]["changed"] == one["changed"]
    assert loaded.json("diff", "n2", APRIL, APRIL)[0]["changed"] == []
    assert "nic.eth0.driver_version\t5.8-1.0\t23.10-2.1" in loaded.out("diff", "n2", MARCH, APRIL)


def test_what_changed_between_runs_and_between_nodes(loaded: Loaded) -> None:
    both = loaded.json("diff", APRIL, MARCH)
    assert [(one["a"]["node"], one["a"]["run"], len(one["changed"])) for one in both] == [("n1", MARCH, 1), ("n2", MARCH, 1)]
    [nodes] = loaded.json("diff", APRIL, "n1", "n2")
    assert {one["fact"] for one in nodes["changed"]} == {"node.hostname", "node.name"}
    [nodes] = loaded.json("diff", APRIL, "n1", "n2", "--all")
    assert {one["fact"] for one in nodes["changed"]} >= {"boot.id", "now.load_1min"}


def test_times_name_facts(loaded: Loaded) -> None:
    with reading(loaded.path) as database:
        for moment, run in (
            ("2999", APRIL),
            ("29999", None),
            ("2999-01", APRIL),
            ("2000-01-01", MARCH),
            (None, APRIL),
            ("first", MARCH),
        ):
            if run is None:
                with pytest.raises(UserError):
                    evidence_queries.facts_at(database, "n1", moment)
            else:
                assert evidence_queries.facts_at(database, "n1", moment).run == run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("diff", "n7", "a", "b"), "'n7' is neither a node with facts nor a run"),
        (("diff", "n1", "nothing"), "'nothing' is not a run"),
        (("diff", APRIL, "n1", "n9"), "'n9' is not a node with facts"),
    ],
)
def test_what_is_not_there_is_named(loaded: Loaded, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(Exception, match=message):
        loaded.out(*words)


def test_facts_of_a_node(loaded: Loaded) -> None:
    done = CliRunner().invoke(facts, ["show", "n1", "--only", "sysctl", "--db", str(loaded.path)])
    assert done.stdout.splitlines()[0] == "fact\tvalue"
    assert "sysctl.net.core.rmem_max\t16777216" in done.stdout
    assert "nic.eth0" not in done.stdout


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_table_of_rules_is_the_code() -> None:
    text = PAGE.read_text("utf-8")
    between = text.split("<!-- rules -->\n")[1]
    assert between == rules_table(), "docs/evidence.md: python -m hpcq.evidence.judge docs/evidence.md makes the table again"


@pytest.mark.parametrize("number", range(6))
def test_documented_queries_run(loaded: Loaded, number: int) -> None:
    queries = re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(queries) == 6
    with reading(loaded.path) as database:
        rows = database.execute(queries[number]).fetchall()
    if "2026-03" in queries[number]:
        assert len(rows) == 2, "both repetitions of the run in March"


@pytest.mark.heavy
def test_reading_imports_nothing_heavy() -> None:
    script = "import sys, hpcq.cli.show, hpcq.cli.facts, hpcq.store.read.evidence_queries; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"numpy", "pydantic", "snakemake", "jinja2", "ruamel", "hpcq.evidence.rules"} & set(done.stdout.split())
