"""Toolchains: what a campaign and a cluster file say of them, what is built and started, and what their comparison says."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from hpcq.analysis.expected import around
from hpcq.analysis.run_verdict import verdict_of_run
from hpcq.cli.campaigns import _ended_lines
from hpcq.cli.main import run as hpcq
from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.model import Campaign, Cluster
from hpcq.errors import UserError
from hpcq.gate_kinds import MeasuredSeries, Reference
from hpcq.kernels import own_kernels
from hpcq.planning.make_plan import make_plan
from hpcq.reports import write_report
from hpcq.run_folder.paths import write_json
from hpcq.runner.live import Watch
from hpcq.runner.queue.run_state import all_steps, make_job, write_job
from hpcq.runner.site.build import with_toolchain
from hpcq.scheduler.types import NodeCondition, NodeState
from hpcq.store.database import reading
from hpcq.store.history import series_values
from hpcq.store.query import summaries
from hpcq.store.read.toolchains import compared, level, toolchain_rows
from hpcq.store.selection import Selection
from hpcq.store.series import select
from hpcq.verdict.gates import GateVerdict
from hpcq.verdict.words import Verdict
from tests.store.run_folders import START, RunBuilder, load, utc

pytestmark = pytest.mark.fast

TWO = """toolchains:
  gcc-openmpi: {cc: gcc, mpi: {compiler: mpicc.openmpi, launch: srun --mpi=pmix}, modules: [gcc/14]}
  clang-mpich: {cc: clang, mpi: {compiler: mpicc.mpich, launch: 'mpirun.mpich -np 2 -f {hostfile}'}}
"""
TESTS = "tests:\n- {kernel: tcp_pingpong}\n- {kernel: mpi_pingpong}\n- {kernel: mpi_pingping}\n"
CAMPAIGN = "pairs: {rounds: 1}\ntoolchains: [gcc-openmpi, clang-mpich]\n" + TESTS


def campaign(folder: Path, text: str = CAMPAIGN) -> Campaign:
    path = folder / "c.yaml"
    path.write_text(f"name: c\nclusters: [alpha]\n{text}")
    return read_campaign(path)


def cluster(folder: Path, toolchains: str = TWO) -> Cluster:
    path = folder / "alpha.yaml"
    path.write_text(f"name: alpha\nscheduler: slurm\npartition: main\ninterface: eth0\nwork_directory: /scratch\n{toolchains}")
    return read_cluster(path)


def test_each_mpi_test_comes_once_per_toolchain(tmp_path: Path) -> None:
    found = [(test.test_no, test.kernel, test.toolchain) for test in campaign(tmp_path).tests]
    assert found == [
        (1, "tcp_pingpong", ""),
        (2, "mpi_pingpong", "gcc-openmpi"),
        (3, "mpi_pingping", "gcc-openmpi"),
        (4, "mpi_pingpong", "clang-mpich"),
        (5, "mpi_pingping", "clang-mpich"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CAMPAIGN + "allocation: whole\n", "a tournament runs one program on all nodes"),
        (CAMPAIGN.replace("clang-mpich]", "gcc-openmpi]"), "a name stands twice"),
        ("pairs: all\ntoolchains: [a]\ntests: [{kernel: tcp_stream}]\n", "no test is one of hpcq's MPI kernels"),
    ],
)
def test_what_toolchains_cannot_be_used_for_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        campaign(tmp_path, text)


def test_a_toolchain_that_the_cluster_does_not_name_is_refused(tmp_path: Path) -> None:
    one = TWO.partition("  clang-mpich")[0]
    with pytest.raises(UserError, match="alpha: toolchains: clang-mpich: c asks for it: the cluster file names gcc-openmpi"):
        make_plan(campaign(tmp_path), cluster(tmp_path, one), [], "c-20260101T000000Z-00ff", 1)
    with pytest.raises(UserError, match="means nothing here"):
        cluster(tmp_path, TWO.replace("{hostfile}", "{hosts}"))


@pytest.mark.promise(
    "The environment of a toolchain is that of its build, its launcher and its ranks, and of no other toolchain."
)
def test_an_environment_is_that_of_one_toolchain(tmp_path: Path) -> None:
    own = TWO.replace("cc: clang,", "cc: clang, environment: {I_MPI_ROOT: /opt/it's, MPICH_CC: other, EVEN: 08},")
    site = cluster(tmp_path, own + "environment: {SHARED: yes, EVEN: 06}\n")
    chosen = with_toolchain(site, "clang-mpich").environment
    assert (chosen["I_MPI_ROOT"], chosen["MPICH_CC"], chosen["SHARED"], chosen["EVEN"]) == ("/opt/it's", "other", "yes", "08")
    other = with_toolchain(site, "gcc-openmpi").environment
    assert "I_MPI_ROOT" not in other
    assert other["EVEN"] == "06"
    nodes = [NodeState(f"n{number}", NodeCondition.IDLE, "idle", ("main",)) for number in (1, 2)]
    plan = make_plan(campaign(tmp_path), site, nodes, "c-20260101T000000Z-00ff", 1)
    write_job(make_job(plan, 0, 1, all_steps(plan, 0)), own_kernels(), site, "/r", tmp_path / "job")
    script = (tmp_path / "job" / "job.sh").read_text()
    begin = script.index("with_toolchain() {")
    function = script[begin : script.index("\n}\n", begin) + 3]
    launcher = 'ROOT=/r\non_nodes_mpi() { shift; echo "${I_MPI_ROOT-none}"; "$@"; }\nmodule() { :; }\n'
    said = {}
    for name in ("gcc-openmpi", "clang-mpich"):
        command = f"{launcher}{function}\n(with_toolchain {name} 30 sh -c 'echo \"$EVEN\"')"
        inside = {"PATH": "/usr/bin:/bin", "EVEN": "06"}
        said[name] = subprocess.run(
            ["bash", "-c", command], env=inside, capture_output=True, text=True, check=True
        ).stdout.split()
    assert said == {"gcc-openmpi": ["none", "06"], "clang-mpich": ["/opt/it's", "08"]}


def test_the_compiler_stands_behind_the_wrapper(tmp_path: Path) -> None:
    chosen = with_toolchain(cluster(tmp_path), "clang-mpich")
    assert chosen.compiler.cc == "clang"
    assert chosen.mpi is not None
    assert chosen.mpi.compiler == "mpicc.mpich"
    assert {chosen.environment[name] for name in ("OMPI_CC", "MPICH_CC", "I_MPI_CC")} == {"clang"}


@pytest.mark.promise("Each test of a job is started by the launcher and the build of its own toolchain.")
def test_a_script_starts_each_test_as_its_toolchain_says(tmp_path: Path) -> None:
    site = cluster(tmp_path)
    nodes = [NodeState(f"n{number}", NodeCondition.IDLE, "idle", ("main",)) for number in (1, 2)]
    plan = make_plan(campaign(tmp_path), site, nodes, "c-20260101T000000Z-00ff", 1)
    job = make_job(plan, 0, 1, all_steps(plan, 0))
    write_job(job, own_kernels(), site, "/r", tmp_path / "job")
    script = (tmp_path / "job" / "job.sh").read_text()
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert script.count('with_toolchain gcc-openmpi 30 "$ROOT"/toolchains/gcc-openmpi/bin/hpcq-mpi mpi_ping') == 2 * 3
    assert script.count('with_toolchain clang-mpich 30 "$ROOT"/toolchains/clang-mpich/bin/hpcq-mpi mpi_ping') == 2 * 3
    inside = script[script.index("with_toolchain() {") :]
    assert "module load gcc/14 || exit 3" in inside[: inside.index("\n}")]
    assert "srun --mpi=pmix" in script
    assert 'mpirun.mpich -np "$COUNT" -f' in script.replace("'", "")


@pytest.mark.promise("Whether toolchains differ is judged by jobs, not by repetitions.")
def test_toolchains_differ_by_jobs_not_by_repetitions() -> None:
    """Values are one per job: six clear ones differ, three cannot, and what scatters more than it differs does not."""
    base = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2]
    said, p_value = compared({"a": base, "b": [value * 1.2 for value in base]}, 0.01)
    assert said == "b +20.0% against a"
    assert p_value == pytest.approx(2 / 924)
    assert compared({"a": base[:3], "b": [value * 2 for value in base[:3]]}, 0.01)[0] == "too few jobs to tell (3, 3)"
    mixed = [99.0, 102.0, 98.0, 101.0, 100.0, 100.1]
    assert compared({"a": base, "b": mixed}, 0.01)[0] == "no difference beyond noise"


def test_intervals_are_those_of_order_statistics() -> None:
    assert level("a", [5, 1, 4, 2, 3]).lowest is None  # 1 - 2 / 2^5 covers less than 95 %
    six = level("a", [6, 1, 4, 2, 5, 3])
    assert (six.median, six.lowest, six.highest, six.job_count) == (3.5, 1, 6, 6)
    nine = level("a", list(range(9)))
    assert (nine.lowest, nine.highest) == (1, 7)


def test_a_run_without_toolchains_has_no_such_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = RunBuilder(tmp_path / "runs")
    builder.everything()
    load(tmp_path / "r.db", builder)
    assert hpcq(["results", "--db", str(tmp_path / "r.db"), "--toolchains"]) == 4
    assert "no test of this run was measured with two toolchains" in capsys.readouterr().err


def two_toolchains(folder: Path, pair_count: int = 2, run: str = "nightly-20261121T020000Z-00ff") -> RunBuilder:
    """A run that plans one test with two toolchains, in jobs that the caller adds."""
    size = {"message_bytes": 64}
    pairs = [(f"n{number}", f"m{number}") for number in range(1, pair_count + 1)]
    tests = [("mpi_pingpong", size), ("mpi_pingpong", size)]
    builder = RunBuilder(folder / "runs", pairs=pairs, tests=tests, run=run)
    known = json.loads(builder.folder.run_json.read_text())
    write_json(builder.folder.run_json, {**known, "database": str(folder / "r.db")})
    plan = json.loads(builder.folder.plan("alpha").read_text())
    for test, name in zip(plan["tests"], ("of the campaign's first", "another"), strict=True):
        test["toolchain"] = name
    write_json(builder.folder.plan("alpha"), plan)
    build = builder.build_json()
    each = {one["toolchain"]: {**build, "toolchains": {}} for one in plan["tests"]}
    write_json(builder.folder.build("alpha"), {**build, "toolchains": each})
    return builder


@pytest.mark.promise(
    "`results --toolchains` compares with the toolchain that the campaign names first, whatever was measured first."
)
def test_the_campaigns_first_toolchain_is_what_others_are_compared_with(tmp_path: Path) -> None:
    """Jobs run their tests in drawn order: what came first into the database is another one in every row."""
    builder = two_toolchains(tmp_path)
    builder.attempt("j00001", steps=[(2, 1)])  # its first test is lost
    builder.attempt("j00002", steps=[(1, 1), (2, 1)])
    load(tmp_path / "r.db", builder)
    with reading(tmp_path / "r.db") as database:
        rows = toolchain_rows(database, builder.run)
    assert {tuple(level.toolchain for level in one.levels) for one in rows} == {("of the campaign's first", "another")}


@pytest.mark.heavy
@pytest.mark.promise("The table of toolchains leaves out values beside other work.")
@pytest.mark.promise("The table of toolchains says how many values it left out.")
@pytest.mark.promise("A toolchain that was measured beside other work only is compared with none.")
def test_values_beside_other_work_are_left_out_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = two_toolchains(tmp_path, pair_count=3)
    for number in (1, 2, 3):
        builder.attempt(f"j{number:05}", steps=[(1, 1), (1, 2), (2, 1), (2, 2)])
    load(tmp_path / "r.db", builder)

    def told(condition: str) -> tuple[list[int], set[str], int]:
        """Mark these results, and report: jobs per level, what is said, values left out."""
        with closing(sqlite3.connect(tmp_path / "r.db")) as database, database:
            database.execute(f"UPDATE result SET disturbed = {condition}")
        with reading(tmp_path / "r.db") as database:
            rows = toolchain_rows(database, builder.run)
        (row,) = [one for one in rows if one.metric == "round_trip_p50_ns"]
        return [one.job_count for one in row.levels], {one.said for one in rows}, row.left_out_count

    noisy = "(repetition_no = 2 OR job_id = (SELECT min(job_id) FROM job))"
    few = {"too few jobs to tell (2, 2)"}
    assert told("0") == ([3, 3], {"too few jobs to tell (3, 3)"}, 0)
    assert told(noisy) == ([2, 2], few, 8)
    assert hpcq(["results", "--db", str(tmp_path / "r.db"), "--toolchains"]) == 0
    printed = capsys.readouterr()
    assert "left out" in printed.out
    assert "left out: values beside other work" in printed.err
    assert told("test_no = 2") == ([3], {"another: measured beside other work only"}, 6)
    assert hpcq(["results", "--db", str(tmp_path / "r.db"), "--toolchains"]) == 0
    assert "another: measured beside other work only" in capsys.readouterr().out
    assert told("NOT (test_no = 2 AND repetition_no = 2)")[2] == 9
    assert told("repetition_no < 3 AND NOT (test_no = 2 AND job_id = 1)")[2] == 0  # most of it: that is usual there
    hpcq(["results", "--db", str(tmp_path / "r.db"), "--toolchains"])
    assert "beside other work in most of their jobs, which counts as usual: 2 of 2" in capsys.readouterr().err


@pytest.mark.promise("Where a campaign has several toolchains, whoever names a pair that failed names its toolchain, too.")
def test_a_pair_that_failed_is_named_with_its_toolchain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of one test with two toolchains, one fails on every pair: neither blame nor the run's verdict takes both for one test."""
    builder = two_toolchains(tmp_path, pair_count=3)
    for number in (1, 2, 3):
        attempt = builder.attempt(f"j{number:05}", steps=[(1, 1), (2, 1)])
        (attempt / "t2-r1.json").write_text("")
        (attempt / "t2-r1.status").write_text('{"rc": 3}')
    load(tmp_path / "r.db", builder)
    database = ("--db", str(tmp_path / "r.db"))
    hpcq(["runs", *database])
    capsys.readouterr()
    hpcq(["blame", *database, "--run", builder.run])
    blamed = capsys.readouterr().out
    assert "mpi_pingpong 64 B with another brings nothing on 3 of 3 pairs" in blamed
    with reading(tmp_path / "r.db") as opened:
        reasons = " ".join(one.words for one in verdict_of_run(opened, builder.run).reasons)
        labels = [one.label for one in select(opened, Selection())]
    assert "alpha: n1 > m1 with another, alpha: n2 > m2 with another" in reasons
    assert "with of the campaign's first" not in reasons
    assert len(set(labels)) == len(labels) == 6
    assert sum("toolchain=another" in label for label in labels) == 3


@pytest.mark.promise("A gate judges each toolchain of a test by itself, and names it, and `results` has a row for each.")
def test_a_gate_judges_each_toolchain_by_itself(tmp_path: Path) -> None:
    builder = two_toolchains(tmp_path, pair_count=1)
    builder.attempt("j00001", steps=[(1, 1), (2, 1)])
    load(tmp_path / "r.db", builder)
    with closing(sqlite3.connect(tmp_path / "r.db")) as database, database:
        database.execute(
            "UPDATE metric SET value = 2 * value WHERE result_id IN (SELECT result_id FROM result WHERE test_no = 2)"
        )
    with reading(tmp_path / "r.db") as opened:
        found = [MeasuredSeries(*row) for row in series_values(opened, [builder.run], {"round_trip_p50_ns"})]
        rows = summaries(opened, Selection(run=builder.run))
    (first, other) = sorted((one for one in found if one.values), key=lambda one: one.values)
    assert (first.ends, other.ends) == ("n1 > m1 with of the campaign's first", "n1 > m1 with another")
    assert len(first.values) == len(other.values) == 1
    assert other.values[0] > 1.5 * first.values[0]
    medians = {row.variant: row.median for row in rows if row.metric == "round_trip_p50_ns"}
    assert medians == {f"toolchain={one.toolchain}": pytest.approx(one.values[0]) for one in (first, other)}
    assert first.series_id != other.series_id


def night_of_two(folder: Path, day: int, factor: float = 1.0) -> list[str]:
    """A loaded run of three pairs in which `another` takes twice as long, times the factor; what was told as tests ended."""
    builder = two_toolchains(folder, pair_count=3, run=f"nightly-202611{day}T020000Z-00{day}")
    builder.seconds = (day - START.day) * 86400.0
    known = json.loads(builder.folder.run_json.read_text())
    write_json(builder.folder.run_json, {**known, "created_utc": utc(builder.seconds)})
    for number in (1, 2, 3):
        builder.attempt(f"j{number:05}")
    for path in builder.path.glob("alpha/jobs/*/1/t?-r?.json"):
        line = json.loads(path.read_text())
        for end in line["evidence"].values():
            end["counters"] = {"stat.cpu.user_ticks": 0}
        slower = 2 * factor if path.name.startswith("t2-") else 1.0
        times = {name: value * slower for name, value in line["metrics"].items() if name.startswith("round_trip_")}
        path.write_text(json.dumps({**line, "metrics": line["metrics"] | times}))
    watch = Watch(builder.folder)
    watch.look()
    told = _ended_lines(watch)
    load(folder / "r.db", builder)
    return told


@pytest.mark.promise("While a run goes on, what is usual of a test is what its own toolchain gave in earlier runs.")
def test_what_is_usual_is_told_by_toolchain(tmp_path: Path) -> None:
    first = night_of_two(tmp_path, 21)
    assert len(first) == 6
    second = night_of_two(tmp_path, 22)
    assert all(re.search(r"mpi_pingpong 64 B with \S.*: .* (9\d|10\d) % of usual: ok$", line) for line in second), second
    assert sum("with another: " in line for line in second) == 3
    third = night_of_two(tmp_path, 23, factor=1.5)
    assert [" not ok" in line for line in third] == ["with another: " in line for line in third], third


@pytest.mark.promise("`compare` compares each toolchain of a test with the same one, and names it.")
def test_compare_and_the_page_name_the_toolchain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`another` becomes half as fast on every pair, and nobody says it of the other toolchain."""
    for day in range(21, 29):
        night_of_two(tmp_path, day, factor=2.0 if day > 25 else 1.0)
    runs = [f"nightly-202611{day}T020000Z-00{day}" for day in (25, 28)]
    database = ("--db", str(tmp_path / "r.db"))
    capsys.readouterr()
    hpcq(["compare", *runs, "--all", "--json", *database])
    pairs = json.loads(capsys.readouterr().out)["pairs"]
    changes = {(one["server"], one["variant"]): one["b"] / one["a"] for one in pairs}
    assert len(changes) == 6
    for (_, variant), change in changes.items():
        assert change == pytest.approx(2.0 if variant == "toolchain=another" else 1.0, rel=0.2), changes
    hpcq(["regressions", "--json", *database])
    told = json.loads(capsys.readouterr().out)
    assert "toolchain=another" in json.dumps(told)
    assert "toolchain=of the campaign's first" not in json.dumps(told)
    write_report(tmp_path / "r.db", runs[-1], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "toolchain=another" in page
    assert "toolchain=of the campaign&#39;s first" in page


def test_what_gates_compare_with_is_told_by_toolchain(tmp_path: Path) -> None:
    """The line of what is expected, on a page: not the median of what both toolchains are held against."""
    night_of_two(tmp_path, 21)
    run = "nightly-20261121T020000Z-0021"
    with reading(tmp_path / "r.db") as opened:
        found = [MeasuredSeries(*row) for row in series_values(opened, [run], {"round_trip_p50_ns"})]
        references = {one.toolchain: Reference("peers", one.values[0]) for one in found}
        judged = [GateVerdict(Verdict.PASS, one, "median", 1, "", reference=references[one.toolchain]) for one in found]
        expected = around(opened, run, summaries(opened, Selection(run=run)), judged).expected
    assert {variant.partition("=")[2]: one.value for (*_, variant, _), one in expected.items()} == pytest.approx(
        {toolchain: one.value for toolchain, one in references.items()}
    )
    assert len(expected) == 2


# -- transport -----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("`transport` of a campaign is that of all its MPI tests that give none of their own.")
@pytest.mark.promise("A test's own `transport` stands against the campaign's.")
def test_a_campaigns_transport_is_that_of_its_mpi_tests(tmp_path: Path) -> None:
    own = "- {kernel: mpi_stream, matrix: {transport: [ucx, as_is]}}\n- {kernel: mpi_pingpong, parameters: {transport: ofi}}\n"
    found = campaign(tmp_path, "pairs: all\ntransport: tcp\n" + TESTS + own).tests
    assert [(test.kernel, test.parameters.get("transport")) for test in found] == [
        ("tcp_pingpong", None),
        ("mpi_pingpong", "tcp"),
        ("mpi_pingping", "tcp"),
        ("mpi_stream", "ucx"),
        ("mpi_stream", "as_is"),
        ("mpi_pingpong", "ofi"),
    ]
    assert {test.parameters.get("transport") for test in campaign(tmp_path).tests} == {None, "as_is"}


@pytest.mark.promise("A campaign's `transport` that no test can take is refused.")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "pairs: all\ntransport: rdma\n" + TESTS,
            "c.yaml:4: transport: 'rdma': must be one of as_is, tcp, shared_memory",
        ),
        ("pairs: all\ntransport: [tcp]\n" + TESTS, "c.yaml:4: transport: a list: must be one of as_is, tcp"),
        ("pairs: all\ntransport: tcp\ntests: [{kernel: tcp_stream}]\n", "c.yaml:4: transport: no test is one of hpcq's MPI"),
        ("pairs: all\nallocation: whole\ntransport: tcp\n" + TESTS, "mpi_pingpong with a transport of its own"),
    ],
)
def test_a_transport_that_no_test_can_take_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        campaign(tmp_path, text)
    assert said in caught.value.message
