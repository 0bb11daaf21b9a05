"""`hpcq import --format`: what other programs leave becomes the right numbers, and blame names the node that was slowed."""

from __future__ import annotations

import datetime as dt
import json
import random
import sqlite3
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcq.imports.others import Maker, Meaning, base_unit, direction
from tests import REPOSITORY
from tests.store.test_import import Importing

pytestmark = pytest.mark.fast

HERE = Path(__file__).parent / "samples"
DESCRIBED = REPOSITORY / "tests/described/samples"
NODES = [f"n{number}" for number in range(1, 7)]
FIRST = dt.datetime(2026, 11, 20, 2, tzinfo=dt.UTC)


@pytest.fixture
def site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Importing:
    return Importing(tmp_path, capsys)


def bring(site: Importing, form: str, *words: str | Path, expect: int = 0) -> str:
    return site.words("import", *map(str, words), "--cluster", "alpha", "--format", form, expect=expect)


def pairs(seed: int = 3) -> Iterator[tuple[dt.datetime, str, str, float]]:
    """A night of all ordered pairs: time, both nodes, and the level of each; n3 has half of what the others have."""
    rng = random.Random(seed)
    for place, (client, server) in enumerate((one, other) for one in NODES for other in NODES if one != other):
        level = 0.5 if "n3" in {client, server} else 1.0
        yield FIRST + dt.timedelta(seconds=30 * place), client, server, level * rng.gauss(1, 0.01)


# -- ReFrame -----------------------------------------------------------------------------------------------------------


def test_a_performance_log_of_reframe(site: Importing) -> None:
    bring(site, "reframe", HERE / "reframe-4.10.4.log")
    found = site.ask("SELECT kernel, client, server, metric, value, unit, parameters FROM v_results ORDER BY parameters")
    assert [(*row[:6], json.loads(row[6])) for row in found] == [
        (
            "reframe.site_bw",
            "n1",
            "n2",
            "bandwidth_bps",
            8.1e9,
            "bps",
            {"environ": "builtin", "partition": "default", "size": size},
        )
        for size in (65536, 8)
    ]
    latency = site.ask("SELECT value, better FROM v_metrics WHERE metric = 'latency_us'")
    assert latency == [(4.9, "lower"), (4.9, "lower")]
    assert site.ask("SELECT substr(started_utc, 1, 19) FROM v_results LIMIT 1") == [("2026-11-26T19:28:12",)]


def test_a_report_and_the_database_of_reframe_are_the_same_run(site: Importing) -> None:
    report = HERE / "reframe-4.10.4-report.json"
    bring(site, "reframe", report)
    database = site.folder / "reframe.db"
    with sqlite3.connect(database) as made:
        made.execute("CREATE TABLE sessions (uuid TEXT, session_start_unix REAL, session_end_unix REAL, json_blob TEXT)")
        made.execute("INSERT INTO sessions VALUES ('u', 1.0, 2.0, ?)", (report.read_text(),))
    made.close()
    assert "nothing new; 4 values there already" in bring(site, "reframe", database)
    assert [row["run"] for row in site.json("runs")] == ["reframe-20261126T192938-c5e38f8d"]
    assert {row[0] for row in site.ask("SELECT value FROM v_results")} == {1000.5 * 8e6}


def reframe_log(site: Importing) -> tuple[Path, list[str]]:
    head, first, *_ = (HERE / "reframe-4.10.4.log").read_text().splitlines()
    lines = [head]
    for number, (at, client, server, level) in enumerate(pairs()):
        cells = dict(zip(head.split("|"), first.split("|"), strict=True))
        cells |= {"job_completion_time_unix": str(at.timestamp()), "job_nodelist": f"{client},{server}", "jobid": str(number)}
        cells |= {"bandwidth_value": f"{1000 * level:.2f}", "latency_value": f"{5 / level:.3f}"}
        lines.append("|".join(cells.values()))
    path = site.folder / "site_bw.log"
    path.write_text("\n".join(lines) + "\n")
    return path, []


def test_a_failed_case_of_reframe_is_a_failed_result(site: Importing) -> None:
    text = (HERE / "reframe-4.10.4.log").read_text()
    path = site.folder / "failed.log"
    path.write_text(text.replace("pass|", "fail|").replace("|1012.5|MB/s", "|null|MB/s").replace("|4.9|us", "|null|us"))
    bring(site, "reframe", path)
    assert site.ask("SELECT DISTINCT outcome, reason FROM v_results") == [("failed", "bandwidth, latency: ReFrame says fail")]
    slow = site.folder / "slow.log"
    slow.write_text(text.replace("pass|", "fail|").replace("|17930|", "|18930|").replace("|18007|", "|19007|"))
    bring(site, "reframe", slow)
    assert site.ask("SELECT count(*) FROM v_results WHERE outcome = 'measured'") == [(2,)], "outside its reference is a value"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.split("\n", 1)[1], "bad.log:1: no head: must be a first line that names the columns"),
        (lambda text: text.replace("job_nodelist", "nodes"), "bad.log:1: column job_nodelist: missing"),
        (lambda text: text.replace("|17930", ""), "bad.log:2: 35 cells: must be 36"),
        (lambda text: text.replace("n1,n2", "n1[", 1), "bad.log:2: "),
        (lambda text: text.replace("1795721292.9908156", "null").replace("2026-11-26T19:28:12", "noon"), "bad.log:2: 'noon'"),
    ],
)
def test_a_broken_log_of_reframe_is_refused(site: Importing, change: Callable[[str], str], words: str) -> None:
    path = site.folder / "bad.log"
    path.write_text(change((HERE / "reframe-4.10.4.log").read_text()))
    assert words in bring(site, "reframe", path, expect=2)
    assert not site.database.exists()


def test_other_json_and_other_databases_are_no_reports(site: Importing) -> None:
    (site.folder / "other.json").write_text('{"a": 1}')
    assert "is no report of ReFrame" in bring(site, "reframe", site.folder / "other.json", expect=2)
    with sqlite3.connect(site.folder / "other.db") as made:
        made.execute("CREATE TABLE t (a)")
    made.close()
    assert "is no database of ReFrame's results" in bring(site, "reframe", site.folder / "other.db", expect=2)


@pytest.mark.promise("hpcq import leaves out a parameter that only names the nodes, if it is told which: --column nodes=NAME.")
def test_a_parameter_that_names_the_nodes_makes_no_series(site: Importing) -> None:
    path, _ = reframe_log(site)
    head, *lines = path.read_text().splitlines()
    place = head.split("|").index("job_nodelist")
    named = [line.replace(" %size=8", f" %pair={line.split('|')[place].replace(',', '-')}") for line in lines]
    assert named != lines
    path.write_text("\n".join([head, *named]) + "\n")
    bring(site, "reframe", path, "--column", "nodes=pair")
    assert site.ask("SELECT count(DISTINCT parameters) FROM v_results") == [(1,)]
    assert "n3" in site.words("blame", expect=3)


@pytest.mark.promise("A test case of ReFrame that names fewer nodes than its tasks need is left out, and that is said.")
def test_a_test_case_of_reframe_with_a_node_missing_is_left_out(site: Importing) -> None:
    """Slurm tells ReFrame one of two nodes while the job ends: seen with ReFrame 4.10.4."""
    head, first, second, *_ = (HERE / "reframe-4.10.4.log").read_text().splitlines()

    def with_tasks(line: str, hosts: str) -> str:
        cells = dict(zip(head.split("|"), line.split("|"), strict=True))
        return "|".join((cells | {"num_tasks": "2", "num_tasks_per_node": "1", "job_nodelist": hosts}).values())

    path = site.folder / "site_bw.log"
    path.write_text("\n".join([head, with_tasks(first, "n1,n2"), with_tasks(second, "n1")]) + "\n")
    said = bring(site, "reframe", path)
    assert "names fewer nodes than their tasks need were left out" in said
    assert site.ask("SELECT client, server FROM v_results") == [("n1", "n2")]


# -- JUBE --------------------------------------------------------------------------------------------------------------


def test_tables_of_jube(site: Importing) -> None:
    said = bring(site, "jube", HERE / "jube-2.5.1-csv.dat", "--names", "{test}-2.5.1-csv.dat")
    assert "times without a zone were read as UTC" in said
    query = "SELECT client, server, message_bytes, value FROM v_results WHERE kernel = 'jube.jube' ORDER BY 1, 2, 3"
    found = site.ask(query)
    assert len(found) == 8
    assert found[0] == ("n1", "n3", 8, 804e6)
    assert site.ask("SELECT DISTINCT substr(started_utc, 1, 19) FROM v_results") == [("2026-11-26T19:30:05",)]
    pretty = HERE / "jube-2.5.1-pretty.dat"
    bring(site, "jube", pretty, "--better", "round trip=lower", "--names", "{test}-2.5.1-pretty.dat", "--zone", "+01:00")
    assert site.ask("SELECT DISTINCT substr(started_utc, 1, 13) FROM v_results ORDER BY 1") == [
        ("2026-11-26T18",), ("2026-11-26T19",)
    ]  # fmt: skip
    assert site.ask("SELECT DISTINCT better FROM v_metrics WHERE metric = 'round_trip'") == [("lower",)]


def test_a_column_of_jube_without_a_unit_is_asked_for(site: Importing) -> None:
    said = bring(site, "jube", HERE / "jube-2.5.1-pretty.dat", expect=2)
    assert "jube-2.5.1-pretty.dat:4: column round trip: 0.25: has no unit in its head" in said


def test_a_table_of_jube_without_hosts_is_refused(site: Importing) -> None:
    path = site.folder / "result.dat"
    path.write_text("host,bw[MB/s]\nn1,5\n")
    assert "result.dat:1: time: no column jube_benchmark_start" in bring(site, "jube", path, expect=2)
    path.write_text("jube_benchmark_start,host,bw[MB/s]\n2026-11-20T02:00:00,n1,5\n")
    assert "result.dat:1: client: no column client: there are jube_benchmark_start, host" in bring(site, "jube", path, expect=2)
    bring(site, "jube", path, "--column", "client=host")
    assert site.ask("SELECT client, server, value FROM v_results") == [("n1", "n1", 40e6)]
    path.write_text("jube_benchmark_start,client,bw[MB/s]\n2026-11-20T02:00:00,n1,fast\n")
    assert "result.dat:2: column bw: 'fast': must be a number" in bring(site, "jube", path, expect=2)


def jube_table(site: Importing) -> tuple[Path, list[str]]:
    rows = [f"{at:%Y-%m-%dT%H:%M:%S},{client},{server},{1000 * level:.1f}" for at, client, server, level in pairs()]
    path = site.folder / "result.dat"
    path.write_text("\n".join(["jube_benchmark_start,client,server,bw[MiB/s]", *rows]) + "\n")
    return path, []


# -- SuperBench, perfSONAR ---------------------------------------------------------------------------------------------


def test_results_of_superbench(site: Importing) -> None:
    path = site.folder / "2026-11-20_02-00-00" / "results-summary.jsonl"
    path.parent.mkdir()
    line: dict[str, Any] = {"node": "n1", "nccl-bw:nvlink/allreduce_8_busbw:0": 12.5, "nccl-bw:nvlink/allreduce_8_time:0": 36.0}
    line |= {"kernel-launch/event_overhead:3": 0.1, "kernel-launch/return_code": 0, "mem-bw/return_code": 1}
    path.write_text(json.dumps(line) + "\n")
    bring(site, "superbench", path, "--names", "{time}/results-summary.jsonl")
    found = site.ask("SELECT kernel, outcome, value, parameters, substr(started_utc, 1, 19) FROM v_results ORDER BY 1")
    at = "2026-11-20T02:00:00"
    assert found == [
        ("superbench.kernel-launch.event_overhead", "measured", 0.1, '{"rank":3}', at),
        ("superbench.mem-bw.return_code", "failed", None, "{}", at),
        ("superbench.nccl-bw:nvlink.allreduce_8_busbw", "measured", 12.5, '{"rank":0}', at),
        ("superbench.nccl-bw:nvlink.allreduce_8_time", "measured", 36.0, '{"rank":0}', at),
    ]
    better = dict(site.ask("SELECT kernel, better FROM v_metrics"))
    assert better["superbench.nccl-bw:nvlink.allreduce_8_time"] == "lower"
    assert better["superbench.nccl-bw:nvlink.allreduce_8_busbw"] == "higher"
    path.write_text('{"nodes": "n1"}\n')
    assert "no key node" in bring(site, "superbench", path, "--names", "{time}/results-summary.jsonl", expect=2)
    path.write_text('{"node": "n1", "a/b": "x"}\n')
    assert "results-summary.jsonl:1: a/b: 'x': must be a finite number" in bring(site, "superbench", path, expect=2)


def scheduled(
    kind: str, result: dict[str, Any], at: dt.datetime = FIRST, ends: tuple[str, str] = ("n1", "n2")
) -> dict[str, Any]:
    spec = {"source": ends[0], "dest": ends[1], "schema": 1}
    test = {"type": kind, "spec": spec}
    schedule = {"start": at.isoformat(), "duration": "PT15S"}
    return {
        "test": test,
        "tool": {"name": "iperf3"},
        "schedule": schedule,
        "result": {"succeeded": True, **result},
        "id": "r-1",
    }


def test_archives_of_pscheduler(site: Importing) -> None:
    lines = [
        scheduled("throughput", {"summary": {"summary": {"throughput-bits": 9.4e9, "retransmits": 3}}}),
        scheduled("rtt", {"mean": "PT0.0012S", "min": "PT0.0011S", "loss": 0.25}),
        scheduled("latency", {"histogram-latency": {"0.10": 4, "0.30": 5}, "packets-sent": 10, "packets-lost": 1}),
        scheduled("trace", {"paths": []}),
        scheduled("throughput", {"succeeded": False, "error": "no route"}, FIRST + dt.timedelta(hours=1)),
    ]
    path = site.folder / "archive.json"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert "tests of type trace were left out" in bring(site, "pscheduler", path)
    values = dict(
        site.ask("SELECT metric, value FROM v_metrics WHERE kernel <> 'pscheduler.latency' OR metric <> 'loss_ratio'")
    )
    assert site.ask("SELECT value FROM v_metrics WHERE kernel = 'pscheduler.latency' AND metric = 'loss_ratio'") == [(0.1,)]
    assert values == {
        "throughput_bps": 9.4e9,
        "retransmits": 3.0,
        "round_trip_mean_s": 0.0012,
        "round_trip_min_s": 0.0011,
        "loss_ratio": 0.25,
        "one_way_p50_s": pytest.approx(0.0003),
    }
    assert site.ask("SELECT reason FROM v_results WHERE outcome = 'failed'") == [("no route",)]
    path.write_text(json.dumps(lines))
    assert "nothing new" in bring(site, "pscheduler", path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schedule": {}}, "archive.json:1: schedule.start: missing"),
        ({"test": {"type": "throughput", "spec": {"dest": "n2"}}}, "archive.json:1: test.spec: source or dest is missing"),
        ({"test": {}}, "archive.json:1: no test with a type"),
        ({"result": {"succeeded": True}}, "result.summary.summary.throughput-bits: 'None': must be a finite number"),
        ({"test": {"type": "throughput", "spec": {"source": "2001:db8::1", "dest": "n2"}}}, "hosts: '2001:db8::1'"),
    ],
)
def test_a_broken_archive_is_refused(site: Importing, change: dict[str, Any], words: str) -> None:
    one = scheduled("throughput", {"summary": {"summary": {"throughput-bits": 9.4e9}}}) | change
    path = site.folder / "archive.json"
    path.write_text(json.dumps(one))
    assert words in bring(site, "pscheduler", path, expect=2)
    assert not site.database.exists()


def archive(site: Importing) -> tuple[Path, list[str]]:
    lines = [
        scheduled("throughput", {"summary": {"summary": {"throughput-bits": 9.4e9 * level}}}, at, (client, server))
        for at, client, server, level in pairs()
    ]
    path = site.folder / "archive.json"
    path.write_text(json.dumps(lines))
    return path, []


# -- outputs of described programs -------------------------------------------------------------------------------------


def test_an_output_of_iperf3_names_its_hosts_and_time(site: Importing) -> None:
    bring(site, "iperf3_tcp", DESCRIBED / "iperf3_tcp/3.12.json")
    content = json.loads((DESCRIBED / "iperf3_tcp/3.12.json").read_text())
    client, server, value, at = site.ask("SELECT client, server, value, started_utc FROM v_results")[0]
    assert server == content["start"]["connecting_to"]["host"]
    assert client == content["start"]["system_info"].split()[1]
    assert value == content["end"]["sum_received"]["bits_per_second"]
    assert dt.datetime.fromisoformat(at).timestamp() == content["start"]["timestamp"]["timesecs"]


def test_an_iperf3_that_broke_off_is_a_failed_result(site: Importing) -> None:
    content = json.loads((DESCRIBED / "iperf3_tcp/3.12.json").read_text()) | {"error": "the server has terminated"}
    path = site.folder / "broken.json"
    path.write_text(json.dumps(content))
    assert "it said: the server has terminated" in bring(site, "iperf3_tcp", path)
    assert site.ask("SELECT outcome FROM v_results") == [("failed",)]


@pytest.mark.parametrize(
    ("kernel", "sample", "size", "metric"),
    [
        ("osu_latency", "7.4.txt", 8, {"half_round_trip_ns": 230.0}),
        ("imb_pingpong", "2021.11.txt", 0, {}),
        ("nccl_all_reduce", "2.17.9.txt", 0, {}),
    ],
)
def test_outputs_are_read_as_in_a_run(site: Importing, kernel: str, sample: str, size: int, metric: dict[str, float]) -> None:
    folder = site.folder / "20261120T020000Z"
    folder.mkdir()
    (folder / "n1_n2.txt").write_bytes((DESCRIBED / kernel / sample).read_bytes())
    bring(site, kernel, site.folder / "20261120T020000Z", "--names", "{time}/{client}_{server}.txt")
    found = site.ask("SELECT client, server, outcome, started_utc FROM v_results")
    assert set(found) == {("n1", "n2", "measured", "2026-11-20T02:00:00.000000Z")}
    assert len(found) > 1
    for name, value in metric.items():
        assert site.ask(f"SELECT value FROM v_metrics WHERE metric = '{name}' AND message_bytes = {size}") == [(value,)]


SAMPLES = [
    (path.parent.name, sample["file"], sample["rows"])
    for path in sorted(DESCRIBED.glob("*/expected.toml"))
    for sample in tomllib.loads(path.read_text())["sample"]
    if "rows" in sample
]


@pytest.mark.promise("hpcq import finds by itself which program wrote a saved output.")
@pytest.mark.parametrize(("kernel", "sample", "rows"), SAMPLES, ids=[f"{one[0]}-{one[1]}" for one in SAMPLES])
def test_every_sample_is_read_without_its_name_and_parameters(
    site: Importing, kernel: str, sample: str, rows: list[dict[str, float]]
) -> None:
    path = site.folder / "n1_n2.out"
    path.write_bytes((DESCRIBED / kernel / sample).read_bytes())
    form = kernel if kernel == "netpipe_tcp" else "logs"  # which is a table without a word
    bring(site, form, path, "--names", "{client}_{server}.out")
    assert site.ask("SELECT DISTINCT kernel FROM v_results") == [(kernel,)]
    found: dict[int | None, dict[str, float]] = {}
    for size, metric, value in site.ask("SELECT message_bytes, metric, value FROM v_metrics"):
        found.setdefault(size, {})[metric] = value
    expected: dict[Any, dict[str, float]] = {
        row.get("size"): {name: value for name, value in row.items() if name != "size"} for row in rows
    }
    if expected.keys() == {None}:  # the output may say its size
        [found[None]] = found.values()
    for size, metrics in expected.items():
        assert found[size] == pytest.approx(metrics), size
    assert found.keys() >= expected.keys()


@pytest.mark.promise("Imported outputs of one program with other options, which they say, are series of their own.")
@pytest.mark.parametrize(
    ("sample", "parameters"),
    [
        ("iperf3_tcp/3.12.json", {"direction": "client_to_server", "flow_count": 1, "message_bytes": 131072}),
        ("iperf3_udp/3.18.json", {"direction": "client_to_server", "message_bytes": 1400, "rate_bps": 100000000}),
        ("fi_pingpong/2.4.0.txt", {"message_bytes": 2048}),
        ("perftest_write_bw/dgx-spark.txt", {"device": "rocep1s0f1", "message_bytes": 65536, "queue_pair_count": 4}),
        ("perftest_send_lat/roce.txt", {"device": "mlx5_0", "message_bytes": 2}),
        ("nas_parallel/3.3-is.txt", {"benchmark": "is", "problem_class": "S"}),
        ("nvbandwidth/0.8.txt", {"test_case": "host_to_device_memcpy_sm"}),
        ("ior/4.1.0.txt", {"block_bytes": 1 << 20, "segment_count": 4, "transfer_bytes": 1 << 18}),
        (
            "hpl/2.0.txt",
            {"block_count": 192, "matrix_rows_count": 39552, "process_columns_count": 2, "process_rows_count": 2},
        ),
    ],
)
def test_the_options_that_an_output_says(site: Importing, sample: str, parameters: dict[str, Any]) -> None:
    path = site.folder / "n1_n2.out"
    path.write_bytes((DESCRIBED / sample).read_bytes())
    bring(site, "logs", path, "--names", "{client}_{server}.out")
    [(text,)] = site.ask("SELECT DISTINCT parameters FROM v_results")
    assert json.loads(text) == parameters


def test_a_folder_of_many_programs(site: Importing) -> None:
    """Each output is of its program, also a broken one; one that nobody knows is left out, and said."""
    folder = site.folder / "logs"
    folder.mkdir()
    stream = (DESCRIBED / "stream/5.10.txt").read_text()
    (folder / "n1.a").write_text(stream)
    (folder / "n2.a").write_text(stream[: stream.index("Triad")])
    (folder / "n3.a").write_bytes((DESCRIBED / "osu_bw/7.4.txt").read_bytes())
    (folder / "n4.a").write_text("The weather is fine.\n")
    said = bring(site, "logs", folder, "--names", "{client}.a")
    assert "n4.a: left out: no description reads it" in said
    assert site.ask("SELECT DISTINCT client, kernel, outcome, reason FROM v_results ORDER BY 1") == [
        ("n1", "stream", "measured", None),
        ("n2", "stream", "invalid", "stream: output: no line matches ^ *Solution Validates: must be there in a finished one"),
        ("n3", "osu_bw", "measured", None),
    ]


def sample_of(path: str) -> str:
    return (DESCRIBED / path).read_text("utf-8")


@pytest.mark.promise("A saved file that holds several results, of one program or more, gives each of them.")
def test_a_file_with_several_results(site: Importing) -> None:
    """As a job's log has them: tests of a suite one after the other, some twice, one that hpcq does not describe."""
    latency, bandwidth = sample_of("osu_latency/7.4.txt"), sample_of("osu_bw/7.4.txt")
    put = latency.replace("OSU MPI Latency Test", "OSU MPI_Put latency Test")
    path = site.folder / "n1_n2.out"
    path.write_text(f"job 4711 begins\n{latency}{put}{bandwidth}\n{latency}{sample_of('imb_pingpong/2021.11.txt')}")
    said = bring(site, "logs", path, "--names", "{client}_{server}.out")
    assert "n1_n2.out (result 2 of 5): left out: no description reads it; it is of MPI_Put latency" in said
    found = site.ask("SELECT kernel, outcome, count(*) FROM v_results WHERE message_bytes = 64 GROUP BY 1, 2 ORDER BY 1")
    assert found == [("imb_pingpong", "measured", 1), ("osu_bw", "measured", 1), ("osu_latency", "measured", 2)]
    rows = site.ask("SELECT count(*) FROM v_results")
    assert "nothing new" in bring(site, "logs", path, "--names", "{client}_{server}.out")
    assert site.ask("SELECT count(*) FROM v_results") == rows


@pytest.mark.promise("A saved file that holds several results, of one program or more, gives each of them.")
def test_of_a_file_with_several_results_one_program_is_read(site: Importing) -> None:
    path = site.folder / "n1_n2.out"
    path.write_text(sample_of("osu_latency/7.4.txt") + sample_of("osu_bw/7.4.txt"))
    said = bring(site, "osu_bw", path, "--names", "{client}_{server}.out")
    assert "n1_n2.out (result 1 of 2): left out: not osu_bw reads it; it is of Latency" in said
    assert site.ask("SELECT DISTINCT kernel, outcome FROM v_results") == [("osu_bw", "measured")]


def test_a_broken_result_costs_no_other_one_of_its_file(site: Importing) -> None:
    text = sample_of("osu_latency/7.4.txt")
    path = site.folder / "n1_n2.out"
    path.write_text(text.replace("# Size", "# Syze") + text)
    bring(site, "logs", path, "--names", "{client}_{server}.out")
    found = site.ask("SELECT outcome, count(DISTINCT message_bytes) FROM v_results GROUP BY 1 ORDER BY 1")
    assert [outcome for outcome, _ in found] == ["invalid", "measured"]
    assert found[1][1] > 5


def test_an_output_that_holds_titles_of_others_is_one_result(site: Importing) -> None:
    """HPC Challenge runs HPL and STREAM itself, and prints what they do."""
    path = site.folder / "n1_n2.out"
    parts = "STREAM version $Revision: 5.10 $\n", "This is the DARPA/DOE HPC Challenge Benchmark version 1.5.0\n"
    path.write_text(parts[1] + parts[0] * 2 + sample_of("hpcc/1.5.0.txt"))
    bring(site, "logs", path, "--names", "{client}_{server}.out")
    assert site.ask("SELECT kernel, outcome, count(*) FROM v_results GROUP BY 1, 2") == [("hpcc", "measured", 1)]


def test_all_test_cases_of_nvbandwidth(site: Importing) -> None:
    """Without -t it runs all of them; each is a series."""
    text = sample_of("nvbandwidth/0.8.txt")
    case = text[text.index("Running ") : text.index("NOTE:")]
    other = case.replace("host_to_device_memcpy_sm", "device_to_host_memcpy_ce").replace("25.13", "24.50")
    latency = case.replace("host_to_device_memcpy_sm", "host_device_latency_sm").replace("bandwidth (GB/s)", "(ns)")
    path = site.folder / "n1.out"
    path.write_text(text.replace("NOTE:", f"Waived:\n{other}{latency}NOTE:"))
    said = bring(site, "logs", path, "--names", "{client}.out")
    assert "n1.out (result 3 of 3): left out: no description reads it; it is of host_device_latency_sm" in said
    found = site.ask("SELECT parameters, value FROM v_results ORDER BY value")
    assert [(json.loads(row[0])["test_case"], row[1]) for row in found] == [
        ("device_to_host_memcpy_ce", 196e9),
        ("host_to_device_memcpy_sm", pytest.approx(201.04e9)),
    ]


def test_imb_says_how_many_ranks(site: Importing) -> None:
    """IMB runs a collective with 2, 4, 8 ... ranks in turn, and -multi 0 several pairs at once: other series each."""
    text = sample_of("imb_allreduce/2018.1.txt")
    begin = text.index("#-----", text.index("# List of Benchmarks"))
    assert "# #processes = 4" in text[begin:]
    path = site.folder / "n1_n[2-4].out"
    path.write_text(text[:begin] + text[begin:].replace("# #processes = 4", "# #processes = 2") + text[begin:])
    bring(site, "logs", path, "--names", "{client}_{server}.out")
    found = site.ask("SELECT parameters FROM v_results WHERE message_bytes = 64 ORDER BY 1")
    assert [json.loads(one)["rank_count_min"] for (one,) in found] == [2, 4]
    multi = site.folder / "n1_n2.multi"
    multi.write_text(sample_of("imb_multi_pingpong/2021.11.txt"))
    bring(site, "logs", multi, "--names", "{client}_{server}.multi")
    [(parameters,)] = site.ask(
        "SELECT DISTINCT parameters FROM v_results WHERE kernel = 'imb_multi_pingpong' AND message_bytes = 4"
    )
    assert json.loads(parameters)["pair_count"] == 2


def test_an_output_that_two_programs_may_have_written_is_refused(site: Importing) -> None:
    path = site.folder / "n1_n2.out"
    path.write_bytes((DESCRIBED / "netpipe_tcp/3.7.2.txt").read_bytes())
    said = bring(site, "logs", path, "--names", "{client}_{server}.out", expect=2)
    assert "n1_n2.out: may be an output of netpipe_mpi and netpipe_tcp: must be of one" in said
    both = "Send and receive buffers are 16384 and 131072 bytes\n(A bug in Linux doubles the requested buffer sizes)\n"
    path.write_text(both + path.read_text())  # as both outputs into one file give
    bring(site, "logs", path, "--names", "{client}_{server}.out")
    assert site.ask("SELECT DISTINCT kernel FROM v_results") == [("netpipe_tcp",)]


def test_a_size_that_stands_twice_is_invalid_and_the_others_are_read(site: Importing) -> None:
    """nccl-tests -b 1 has some rows of size 0: what is smaller than one element."""
    text = (DESCRIBED / "nccl_all_reduce/before-2.17.txt").read_text()
    path = site.folder / "n1_n2.out"
    path.write_text(text.replace("\n          16 ", "\n           8 "))
    bring(site, "logs", path, "--names", "{client}_{server}.out")
    found = site.ask("SELECT outcome, reason, count(*) FROM v_results WHERE message_bytes <= 32 GROUP BY 1, 2 ORDER BY 1")
    assert found == [
        ("invalid", "nccl_all_reduce: table: size '8' stands twice: must stand there once", 1),
        ("measured", None, 1),
    ]


def test_an_output_without_hosts_is_refused_and_a_broken_one_is_invalid(site: Importing) -> None:
    sample = (DESCRIBED / "osu_latency/7.4.txt").read_text()
    path = site.folder / "n1_n2.txt"
    path.write_text(sample)
    assert "n1_n2.txt: its hosts are not known" in bring(site, "osu_latency", path, expect=2)
    wrong = bring(site, "osu_latency", path, "--names", "{run}/{client}-{server}.txt", expect=2)
    assert "is not named like {run}/{client}-{server}.txt" in wrong
    path.write_text(sample.replace("# Size", "# Syze"))
    bring(site, "osu_latency", path, "--names", "{client}_{server}.txt")
    assert site.ask("SELECT outcome FROM v_results") == [("invalid",)]


def osu_logs(site: Importing) -> tuple[Path, list[str]]:
    folder = site.folder / "logs"
    folder.mkdir()
    for at, client, server, level in pairs():
        rows = "".join(f"{size:<20}{1e4 * level:14.2f}\n" for size in (65536, 131072))
        name = f"{at:%Y%m%dT%H%M%SZ}_{client}_{server}.txt"
        (folder / name).write_text(
            f"# OSU MPI Bandwidth Test v7.4\n# Datatype: MPI_CHAR.\n# Size      Bandwidth (MB/s)\n{rows}"
        )
    return folder, ["--names", "{time}_{client}_{server}.txt"]


def iperf3_logs(site: Importing) -> tuple[Path, list[str]]:
    folder = site.folder / "iperf3"
    folder.mkdir()
    sample = json.loads((DESCRIBED / "iperf3_tcp/3.12.json").read_text())
    for at, client, server, level in pairs():
        sample["start"]["system_info"] = f"Linux {client} 6.1.0 #1 SMP x86_64"
        sample["start"]["connecting_to"]["host"] = server
        sample["start"]["timestamp"]["timesecs"] = int(at.timestamp())
        sample["end"]["sum_received"]["bits_per_second"] = 9.4e9 * level
        (folder / f"{client}-{server}.json").write_text(json.dumps(sample))
    return folder, []


@pytest.mark.heavy
@pytest.mark.promise("Blame over an import of another program's files names the node that was slowed.")
@pytest.mark.parametrize(
    ("form", "made"),
    [
        ("reframe", reframe_log),
        ("jube", jube_table),
        ("pscheduler", archive),
        ("osu_bw", osu_logs),
        ("iperf3_tcp", iperf3_logs),
    ],
)
def test_blame_names_the_node_that_was_slowed(
    site: Importing, form: str, made: Callable[[Importing], tuple[Path, list[str]]]
) -> None:
    path, words = made(site)
    bring(site, form, path, *words)
    before = site.database.read_bytes()
    assert "nothing new" in bring(site, form, path, *words)
    assert site.database.read_bytes() == before
    told = site.words("blame", expect=3)
    assert "n3: " in told
    assert not any(f"node   {node}:" in told for node in NODES if node != "n3")


# -- words that are shared ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "base"),
    [
        ("MB/s", ("bps", 8e6)), ("MiB/s", ("bps", 8 * 2.0**20)), ("GB/sec", ("bps", 8e9)), ("Gbit/s", ("bps", 1e9)),
        ("Gb/s", ("bps", 1e9)), ("Gbps", ("bps", 1e9)), ("Mbits/sec", ("bps", 1e6)), ("us", ("us", 1.0)), ("usec", ("us", 1.0)),
        ("%", ("ratio", 0.01)), ("GFLOPS", ("flops", 1e9)), ("GFlop/s", ("flops", 1e9)), ("KiB", ("bytes", 1024.0)),
        ("", ("number", 1.0)), ("MCUPS", None), ("furlongs", None),
    ],
)  # fmt: skip
def test_units_of_others(unit: str, base: tuple[str, float] | None) -> None:
    assert base_unit(unit) == base


def test_a_unit_that_hpcq_has_not_stays_in_the_name() -> None:
    metric, factor = Maker("jube", Meaning()).metric("rate", "MCUPS")
    assert (metric.name, metric.unit, metric.better, factor) == ("rate_MCUPS", "number", "higher", 1.0)


def test_directions() -> None:
    words = {"steptime": "lower", "platform": "none", "lat_p99": "lower", "busbw": "higher", "platform_rate": "higher"}
    assert {name: direction(name, "") for name in words} == words


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--format", "nosuch"), "--format: 'nosuch' is not a format"),
        (("--format", "jube", "--names", "{host}.txt"), "--names: {host}: must be one of time, run"),
        (("--format", "jube", "--names", "plain.txt"), "names nothing"),
        (("--format", "jube", "--zone", "Mars"), "--zone: 'Mars': must be a zone's name"),
        (("--format", "jube", "--column", "host=x"), "--column 'host=x': must be ROLE=NAME"),
        (("--format", "jube", "--better", "bw=faster"), "--better 'bw=faster': must be METRIC=higher"),
        (("--zone", "+01:00"), "--format csv: its columns say all"),
    ],
)
def test_bad_words_are_refused(site: Importing, words: tuple[str, ...], said: str) -> None:
    path = site.file("values.csv", [])
    assert said in site.words("import", path, "--cluster", "alpha", *words, expect=2)


def test_a_report_of_an_older_reframe(site: Importing) -> None:
    """Data version 3: performance variables as a list of objects, and `nodelist`."""
    report = json.loads((HERE / "reframe-4.10.4-report.json").read_text())
    report["session_info"]["data_version"] = "3.1"
    for case in report["runs"][0]["testcases"]:
        case["nodelist"] = case.pop("job_nodelist")
        del case["perfvalues"]
        bandwidth = {
            "name": "bandwidth",
            "reference": 1000,
            "thres_lower": -0.1,
            "thres_upper": None,
            "unit": "MB/s",
            "value": 990,
        }
        case["perfvars"] = [bandwidth]
    path = site.folder / "old.json"
    path.write_text(json.dumps(report))
    bring(site, "reframe", path)
    assert site.ask("SELECT client, server, value FROM v_results") == [("n1", "n2", 990 * 8e6)] * 2
    report["session_info"]["data_version"] = "9.0"
    path.write_text(json.dumps(report))
    assert "has data version 9.0: must be 3 and 4" in bring(site, "reframe", path, expect=2)
