"""No option is ignored: each pair of options of a verb with several views is obeyed, or refused with exit code 2."""

from __future__ import annotations

import csv
import importlib
import io
import json
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import click
import pytest

from hpcq.cli.main import run
from hpcq.cli.options import FILTERS
from hpcq.store.database import reading, transaction, writing
from hpcq.store.load.cluster import load_run
from tests.history.histories import History
from tests.store.run_folders import RunBuilder

pytestmark = pytest.mark.fast

#: Verb -> module with `_USED`, and by view what a person types for it.
VIEWS = {
    "results": (
        "results",
        {
            "--each": ["--each"],
            "--findings": ["--findings"],
            "--group-by": ["--group-by", "driver"],
            "--links": ["--links"],
            "--toolchains": ["--toolchains"],
            "--json": ["--json"],
            "the table of medians": [],
        },
    ),
    "nodes": ("nodes", {"NODE": ["n2"], "--verdicts": ["--verdicts"], "the list of nodes": []}),
    "runs": ("query", {"--cost": ["--cost"], "the list of runs": []}),
    "history": ("history", {"SERIES": ["tcp_stream/n1/n2"], "the list of series": []}),
}
#: A value that every option with a value takes here.
VALUES = {
    "kernel": "tcp_stream", "cluster": "alpha", "node": "n2", "client": "n1", "server": "n2", "since": "365d",
    "metric": "throughput_bps", "sort": "median", "limit": "1", "age": "14d", "campaign": "nightly",
    "last": "1", "group": "leaf1", "network": "eth0", "where": "message_bytes=131072",
    "fact": "sysctl.net.core.rmem_max=212992", "by": "driver",
}  # fmt: skip


def options_of(verb: str, module: str) -> list[click.Option]:
    command = getattr(importlib.import_module(f"hpcq.cli.{module}"), verb)
    return [one for one in command.params if isinstance(one, click.Option) and one.name not in {"database", "as_json"}]


@pytest.mark.heavy
@pytest.mark.promise("No option is ignored: what a view does not use is refused.")
@pytest.mark.parametrize("verb", VIEWS)
def test_what_a_view_does_not_use_is_refused(
    verb: str, nights: History, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    module, views = VIEWS[verb]
    used = importlib.import_module(f"hpcq.cli.{module}")._USED
    assert used.keys() == views.keys()
    options = options_of(verb, module)
    unknown = set().union(*used.values()) - {one.name for one in options} - {"run", "name"}
    assert unknown == set()
    for view, typed in views.items():
        for one in options:
            if one.name in used[view] or one.opts[0] in typed:
                continue
            value = [] if one.is_flag else [VALUES[str(one.name)]]
            code = run([verb, *typed, one.opts[0], *value, "--db", str(nights.database)])
            said = capsys.readouterr()
            switches = one.opts[0] in views or {"judging", "each"} & {one.name}  # it asks for another view by itself
            assert code == 2 or switches, (view, one.opts[0])
            if code == 2:
                assert one.opts[0] in said.err or view in said.err, (view, one.opts[0], said.err)
                assert said.out == ""


@pytest.mark.promise("Each view obeys every option that it takes.")
def test_rows_and_order_are_obeyed_by_every_table_of_results(nights: History, capsys: pytest.CaptureFixture[str]) -> None:
    def lines(*words: str) -> list[str]:
        run(["results", *words, "--db", str(nights.database)])
        return capsys.readouterr().out.splitlines()

    for view in (["--each"], ["--group-by", "driver"], []):
        all_rows = lines(*view)
        assert len(lines(*view, "--limit", "1")) == 2 < len(all_rows), view
    for view in (["--each"], []):
        name = "value" if view else "median"
        up, down = lines(*view, "--sort", name), lines(*view, "--sort", f"-{name}")
        assert sorted(up) == sorted(down) and up != down, view  # noqa: PT018 - the same rows in another order


@pytest.mark.heavy
@pytest.mark.promise("hpcq facts diff of two runs takes --cluster, --node and --group as every reading verb does.")
def test_facts_of_two_runs_are_those_of_the_chosen_nodes(nights: History, capsys: pytest.CaptureFixture[str]) -> None:
    def nodes(*words: str, expect: int = 0) -> list[str]:
        runs = [row["run"] for row in _json_of(capsys, "runs", nights)]
        assert run(["facts", "diff", runs[0], runs[-1], *words, "--json", "--db", str(nights.database)]) == expect
        said = capsys.readouterr()
        return [one["a"]["node"] for one in json.loads(said.out)] if expect == 0 else [said.err]

    assert nodes() == ["n1", "n2", "n3", "n4", "n5", "n6"]
    assert nodes("--node", "n2") == ["n2"]
    assert nodes("--group", "r2", "--cluster", "alpha") == ["n4", "n5", "n6"]
    assert "compared are alpha/n1, alpha/n2" in nodes("--node", "n77", expect=2)[0]


def _json_of(capsys: pytest.CaptureFixture[str], verb: str, nights: History) -> Any:
    run([verb, "--json", "--db", str(nights.database)])
    return json.loads(capsys.readouterr().out)


# ----------------------------------------------------------------------------------------------------------------------
# Each filter filters: two runs of two clusters, of which every option selects some results and leaves out others.


class _Run(RunBuilder):
    """n1 has a firmware of its own; the run was made on the day in its name."""

    def _run_json(self, clusters: list[str]) -> dict[str, Any]:
        day = self.run.split("-")[1]
        return {**super()._run_json(clusters), "created_utc": f"{day[:4]}-{day[4:6]}-{day[6:8]}T01:59:00Z"}

    def facts(self, node: str) -> dict[str, Any]:
        made = super().facts(node)
        return made | ({"site": {"firmware": "old"}} if node == "n1" else {})


#: Option -> what a person types, and the same in plain SQL over v_results.
FITTING = {
    "kernel": ("tcp_stream", "kernel = 'tcp_stream'"),
    "cluster": ("alpha", "cluster = 'alpha'"),
    "client": ("n1", "client = 'n1'"),
    "server": ("n2", "server = 'n2'"),
    "node": ("n3", "'n3' IN (client, server)"),
    "group": ("r2", "client IN ('n3', 'n4') OR server IN ('n3', 'n4')"),
    "network": ("ib0", "network = 'ib0'"),
    "where": ("message_bytes=64KiB", "message_bytes = 65536"),
    "fact": ("site.firmware=old", "'n1' IN (client, server)"),
    "since": ("2026-11-24", "started_utc >= '2026-11-24'"),
}


def _with_values(found: Any) -> int:
    return int(found["series_count"]) - int(found["empty_count"])


#: Verb -> what is typed, the options that it does not take, and how many things its answer (--json, or a file) has.
READING: dict[str, tuple[list[str], set[str], Callable[[Any], int]]] = {
    "history": (["history"], set(), len),
    "runs": (["runs"], set(), len),
    "nodes": (["nodes", "--since", "2026"], set(), lambda found: sum(one["result_count"] for one in found)),
    "compare": (["compare", "2026-11-21", "2026-11-24"], {"since"}, lambda found: len(found["pairs"])),
    "regressions": (["regressions", "--since", "2026-11-24"], {"since"}, _with_values),
    "blame": (
        ["blame", "--cluster", "alpha", "--since", "2026"],
        {"cluster", "network"},
        lambda found: int(found["judged"]["job_count"]),
    ),
    "report": (["report", "--since", "2026"], {"since"}, lambda found: sum(found["judged"].values())),
}


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database whose results differ in all that an option selects."""
    folder = tmp_path_factory.mktemp("two_runs")
    path = folder / "results.db"
    for day, name in ((0, "nightly-20261121T020000Z-00ff"), (3, "nightly-20261124T020000Z-00ff")):
        tests = (*_Run.tests, ("tcp_stream", {"message_bytes": 1048576}))
        pairs = (("n1", "n2"), ("n2", "n1"), ("n2", "n3"), ("n4", "n5"))[: 4 if day == 0 else 3]
        made = _Run(folder / "runs", run=name, pairs=pairs, tests=tests)
        other = made.other_cluster("beta", pairs=(("n7", "n8"),), interface="ib0", tests=_Run.tests[1:])
        for one in (made, other):
            one.seconds = day * 86400
            one.everything()
        load_run(path, made.path)
    with writing(path) as database, transaction(database):
        database.execute(
            "INSERT INTO node_group SELECT node_id, 'rack', '2026-01-01T00:00:00Z',"
            " CASE WHEN name IN ('n3', 'n4') THEN 'r2' ELSE 'r1' END FROM node"
        )
    return path


def _truth(path: Path, *names: str) -> set[int]:
    """The results that fit all of these options."""
    condition = " AND ".join(["1", *(f"({FITTING[name][1]})" for name in names)])
    with reading(path) as database:
        return {int(row[0]) for row in database.execute(f"SELECT result_id FROM v_results WHERE {condition}")}


def _typed(names: Sequence[str]) -> list[str]:
    return [word for name in names for word in (f"--{name}", FITTING[name][0])]


@pytest.mark.heavy
@pytest.mark.promise("The same options select results in every verb that reads or judges, and each of them selects.")
def test_each_pair_of_options_selects_what_plain_sql_does(two_runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {*FITTING, "metric"} == {*FILTERS, "since"}
    every = _truth(two_runs)
    for names in [(name,) for name in FITTING] + list(combinations(FITTING, 2)):
        expected = _truth(two_runs, *names)
        assert len(expected) < len(every), names
        typed = _typed(names) + ([] if "since" in names else ["--since", "2026"]) + ["--db", str(two_runs)]
        code = run(["results", *typed, "--json"])
        said = capsys.readouterr()
        code_of_csv = run(["export", "--format", "csv", *typed])
        table = capsys.readouterr().out
        if not expected:
            assert (code, code_of_csv) == (2, 2), names
            continue
        assert {one["result_id"] for one in json.loads(said.out)["results"]} == expected, names
        assert {int(row["result_id"]) for row in csv.DictReader(io.StringIO(table))} == expected, names


@pytest.mark.heavy
@pytest.mark.parametrize("verb", READING)
def test_each_option_makes_the_answer_smaller(
    verb: str, two_runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    words, without, count = READING[verb]

    def counted(*more: str) -> int:
        run([*words, *more, "--json", "--db", str(two_runs)])
        return count(json.loads(capsys.readouterr().out))

    every = counted()
    for name in FITTING.keys() - without:
        assert 0 < counted(*_typed([name])) < every, name


@pytest.mark.heavy
def test_series_of_each_option_are_those_of_its_results(two_runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with reading(two_runs) as database:
        series_of = dict(database.execute("SELECT result_id, series_id FROM v_results").fetchall())
    for name in FITTING:
        run(["history", *_typed([name]), "--json", "--db", str(two_runs)])
        found = {one["series_id"] for one in json.loads(capsys.readouterr().out)}
        assert found == {series_of[one] for one in _truth(two_runs, name)}, name


def test_metric_is_read_instead_of_the_main_one(two_runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--metric", "throughput_bps", "--db", str(two_runs)]
    run(["export", "--format", "jsonl", *words])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["metric"] for row in rows} == {"throughput_bps"}
    run(["nodes", "--since", "2026", *words, "--json"])
    by_streams = json.loads(capsys.readouterr().out)
    run(["nodes", "--since", "2026", "--db", str(two_runs), "--json"])
    by_all = json.loads(capsys.readouterr().out)
    assert sum(one["result_count"] for one in by_streams) < sum(one["result_count"] for one in by_all)


@pytest.mark.parametrize(
    "words",
    [
        ["results", "--kernel", "tcp_stream", "--where", "message_bytes=64"],
        ["results", "--group", "r9"],
        ["export", "--format", "csv", "--fact", "site.firmware=new"],
        ["export", "--format", "junit", "--since", "2026"],
        ["history", "--network", "ib1"],
        ["runs", "--where", "message_bites=64KiB"],
        ["nodes", "--metric", "throughput"],
        ["plot", "curve", "--client", "n9", "-o", "curve.svg"],
        ["report", "--kernel", "tcp_streams"],
        ["blame", "--cluster", "alpha", "--network", "ib0"],
        ["blame", "--cluster", "alpha", "--metric", "throughput"],
        ["blame", "--since", "2020"],
        ["blame", "--run", "latest", "--since", "2026"],
        ["blame", "--better", "lower"],
        ["blame", "--pairs", "pairs.csv", "--kernel", "tcp_stream"],
    ],
)
def test_what_nothing_fits_is_refused(words: list[str], two_runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--db", str(two_runs)]) == 2
    assert capsys.readouterr().out == ""
