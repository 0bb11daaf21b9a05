"""Bad input through the real command line: `error: where: found: allowed`, a hint, an exit code, nothing half-written."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hpcq.cli.main import run as hpcq_main
from tests.local.local_desk import INSTANT, LocalDesk

pytestmark = pytest.mark.fast

#: Text that a shell, a YAML reader or a pattern would take for something else.
NASTY = 'it\'s a "test" $(x) `y` {z} [0-9]*\nnext line'


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalDesk:
    """A desk to stand at: the command line runs within this process."""
    made = LocalDesk.at(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HPCQ_CLUSTERS", raising=False)
    return made


Says = Callable[..., tuple[int, str]]


@pytest.fixture
def says(desk: LocalDesk, capsys: pytest.CaptureFixture[str]) -> Says:
    """Exit code and standard error of a command line that must print nothing on standard output and no traceback."""

    def run(*words: str) -> tuple[int, str]:
        code = hpcq_main(words)
        out, err = capsys.readouterr()
        assert out == ""
        assert "Traceback" not in err
        return code, err

    return run


def written(desk: LocalDesk) -> list[str]:
    """What a failed command left in the folder or in its home, beside what stood there."""
    left = [
        path.name for path in desk.folder.iterdir() if path.suffix != ".yaml" and path.name not in {"clusters", "home", "re.py"}
    ]
    at_home = {str(path.relative_to(desk.folder)) for path in (desk.folder / "home").glob("**/*")}
    kept = ("home/.cache", "home/.local")  # where builds and their checksums go, made by the campaign that the desk ran before
    return sorted([*left, *(one for one in at_home if not one.startswith(kept))])


# -- campaign files -------------------------------------------------------------------------------------------------


def test_unknown_kernel(desk: LocalDesk, says: Says) -> None:
    desk.campaign("{kernel: tcp_pinpong}")
    code, err = says("run", "try.yaml")
    assert code == 2
    assert err.startswith(
        "error: try.yaml:6: kernel: 'tcp_pinpong' is not a kernel: the nearest is tcp_pingpong\n\n"
        "hint: valid are tcp_stream, tcp_pingpong, udp_stream, udp_pingpong, tcp_connect, udp_oneway, udp_dispersion, "
        "udp_rate_search, path_probe, memory_copy, fabric_pingpong, fabric_stream, fabric_write, fabric_read, "
        "fabric_atomic, mpi_pingpong, mpi_pingping, mpi_stream, mpi_one_sided, mpi_collective, mpi_matrix_multiply, "
        "mpi_sort, "
    )
    assert written(desk) == []


def test_parameter_out_of_range(desk: LocalDesk, says: Says) -> None:
    desk.campaign("{kernel: udp_pingpong, parameters: {message_bytes: 64KiB}}")
    code, err = says("run", "try.yaml")
    assert code == 2
    assert err.startswith("error: try.yaml:6: message_bytes: ")
    assert "(65536) is above udp_pingpong's maximum 65507" in err
    assert "\n\nhint: use tcp_pingpong above 65507 bytes\n" in err


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        ("5", "expect: 5: must be link, or values by metric like {throughput_bps: 190mbit}"),
        ("{}", "expect: keys with values: must be link, or values by metric"),
        ("{thruput_bps: 1gbit}", "thruput_bps: 'thruput_bps' is not a metric of tcp_pingpong"),
        ("{round_trip_p50_ns: soon}", "round_trip_p50_ns: 'soon' is not a quantity in ns"),
        ("{round_trip_p50_ns: 0}", "round_trip_p50_ns: 0: round_trip_p50_ns must be above 0"),
        ("link", "expect: link: none of the tests can fill a link"),
    ],
)
def test_what_cannot_be_expected(desk: LocalDesk, says: Says, expect: str, said: str) -> None:
    desk.campaign("{kernel: tcp_pingpong}", more=f"expect: {expect}")
    code, err = says("plan", "try.yaml")
    assert code == 2
    assert said in err
    assert written(desk) == []


def test_unknown_key_with_the_nearest(desk: LocalDesk, says: Says) -> None:
    desk.campaign(more="repetition: 3")
    code, err = says("plan", "try.yaml")
    assert code == 2
    assert err.startswith("error: try.yaml:7: repetition: ")
    assert "repetitions" in err


def test_all_complaints_at_once_each_with_its_own_error(desk: LocalDesk, says: Says) -> None:
    desk.campaign("{kernel: nosuch}", INSTANT, more="repetition: 3")
    code, err = says("run", "try.yaml")
    assert code == 2
    assert [line.split(": ")[:2] for line in err.splitlines() if line.startswith("error")] == [
        ["error", "try.yaml:6"],
        ["error", "try.yaml:8"],
    ]


def test_not_utf8(desk: LocalDesk, says: Says) -> None:
    (desk.folder / "latin.yaml").write_bytes("name: caf\xe9\n".encode("latin-1"))
    code, err = says("run", "latin.yaml")
    assert code == 2
    assert err.startswith("error: latin.yaml:1: byte 0xe9 at offset 9 is not UTF-8: must be UTF-8 text\n\nhint: ")


def test_missing_file_and_folder_instead_of_a_file(says: Says) -> None:
    code, err = says("run", "nosuch.yaml")
    assert (code, err.splitlines()[0]) == (2, "error: 'nosuch.yaml': no such campaign file")
    code, err = says("run", "clusters")
    assert (code, err.splitlines()[0]) == (2, "error: 'clusters': this is a folder: name the file in it")
    assert says("run", "")[0] == 2


@pytest.mark.parametrize(
    "name", ["a b.yaml", "it's.yaml", '"q".yaml', "$(touch x).yaml", "two\nlines.yaml", "-.yaml", "{a}.yaml"]
)
def test_any_name_of_a_campaign_file(desk: LocalDesk, says: Says, name: str) -> None:
    code, err = says("plan", "--", name)
    assert code == 2
    assert err.splitlines()[0].startswith("error: ")
    (desk.folder / name).write_text("name: a\nnonsense: 1\n")
    code, err = says("plan", "--", name)
    assert code == 2
    assert f"{name if name.isprintable() else repr(name)}:2: nonsense: " in err
    assert written(desk) == []


@pytest.mark.parametrize("value", ["a b", "it's", "$(x)", '"two\\nlines"', "a/b", "../up", "-n"])
def test_names_within_files_are_names(desk: LocalDesk, says: Says, value: str) -> None:
    (desk.folder / "c.yaml").write_text(f"name: {value}\nclusters: [tiny]\npairs: all\ntests: [{INSTANT}]\n")
    code, err = says("run", "c.yaml")
    assert code == 2
    assert err.startswith("error: c.yaml:1: name: ")
    assert "is not a name" in err


# -- clusters -------------------------------------------------------------------------------------------------------


def test_unknown_cluster(desk: LocalDesk, says: Says) -> None:
    desk.campaign(clusters="tinny")
    code, err = says("run", "try.yaml")
    assert code == 2
    assert err.startswith("error: 'tinny': no such cluster: the nearest is tiny\n\nhint: known are ")
    assert written(desk) == []


def test_too_few_nodes(desk: LocalDesk, says: Says) -> None:
    desk.cluster("lone", "name: lone\nscheduler: local\nnodes: [only]\n")
    desk.campaign(clusters="lone")
    code, err = says("plan", "try.yaml")
    assert (code, err) == (2, "error: clusters/lone.yaml:3: nodes: only: at least two different names are needed\n")
    assert written(desk) == []


def test_nodes_that_nobody_has(desk: LocalDesk, says: Says) -> None:
    desk.campaign(more="nodes: {include: ['gone[1-4]']}")
    code, err = says("plan", "try.yaml")
    assert code == 2
    assert err.splitlines() == [
        "error: tiny: 0 of 6 nodes can be used: at least two are needed",
        "  gone1, gone2, gone3, gone4: not a node of tiny",
        "  tiny-a, tiny-b: not included by the campaign",
    ]


def test_a_cluster_out_of_reach(desk: LocalDesk, says: Says) -> None:
    reach = "connection: {{ssh: nowhere.invalid}}\nwork_directory: /tmp\ninterface: eth0\n"
    desk.cluster("far", f"name: far\nscheduler: slurm\n{reach}")
    desk.campaign(clusters="far")
    code, err = says("plan", "try.yaml")
    assert code == 1
    assert err.startswith("error: ssh nowhere.invalid: cannot be reached: ")
    assert "hint: try: ssh " in err


def test_check_of_a_cluster_out_of_reach(desk: LocalDesk, capsys: pytest.CaptureFixture[str]) -> None:
    reach = "connection: {{ssh: nowhere.invalid}}\nwork_directory: /tmp\ninterface: eth0\n"
    desk.cluster("far", f"name: far\nscheduler: slurm\n{reach}")
    assert hpcq_main(["cluster", "check", "far"]) == 1
    out, _ = capsys.readouterr()
    assert out.startswith("BAD ")
    assert "nowhere.invalid: cannot be reached" in out


@pytest.mark.parametrize("name", ["x y", "it's", "$(x)", "two\nlines", "../../etc/passwd"])
def test_any_name_of_a_cluster(says: Says, name: str) -> None:
    for verb in (["cluster", "build"], ["cluster", "check"]):
        code, err = says(*verb, name)
        assert code == 2
        assert "no such cluster" in err


# -- databases and folders ------------------------------------------------------------------------------------------


def test_a_database_in_no_folder(desk: LocalDesk, says: Says) -> None:
    desk.campaign()
    code, err = says("run", "try.yaml", "--db", "no/such/folder/x.db")
    assert code == 2
    assert err.startswith("error: no/such/folder/x.db: cannot be written: ")
    assert "hint: " in err
    assert written(desk) == []


def test_a_file_that_is_no_database(desk: LocalDesk, says: Says) -> None:
    desk.campaign()
    code, err = says("run", "try.yaml", "--db", "try.yaml")
    assert code == 1
    assert err == "error: try.yaml: is not a database\n\nhint: name another file with --db\n"
    for verb in (["results"], ["db", "load"]):
        assert says(*verb, "--db", "try.yaml")[0] in {1, 2}
    assert written(desk) == []


def test_a_database_of_somebody_else(desk: LocalDesk, says: Says) -> None:
    desk.campaign()
    with closing(sqlite3.connect(desk.folder / "other.db")) as database:
        database.execute("CREATE TABLE recipes (name TEXT)")
        database.commit()
    before = (desk.folder / "other.db").read_bytes()
    code, err = says("run", "try.yaml", "--db", "other.db")
    assert code == 1
    assert err.startswith("error: other.db: is a database, but not one of hpcq's\n\nhint: ")
    assert (desk.folder / "other.db").read_bytes() == before
    assert written(desk) == ["other.db"]


def test_no_database_yet(says: Says) -> None:
    code, err = says("results")
    assert code == 1
    assert err == "error: results.db: there is no database\n\nhint: `hpcq run` makes one; --db names another\n"


def test_a_runs_folder_that_is_a_file(desk: LocalDesk, says: Says) -> None:
    desk.campaign()
    code, err = says("run", "try.yaml", "--runs", "try.yaml")
    assert code == 2
    assert err.startswith("error: hpcq run: --runs: ")
    code, err = says("run", "try.yaml", "--runs", "try.yaml/below")
    assert code == 1
    assert err.startswith("error: try.yaml/below: ")
    assert "hint: --runs names another" in err
    assert written(desk) == []


@pytest.fixture
def unwritable() -> Iterator[Path]:
    """A folder that this process may read but not write; root gives its rights away for it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield folder
        finally:
            os.seteuid(user)
            folder.chmod(0o755)


def test_folders_without_the_right_to_write(desk: LocalDesk, says: Says, unwritable: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        campaign = Path(name) / "try.yaml"
        campaign.write_text(f"name: try\nclusters: [local]\npairs: all\ntests: [{INSTANT}]\n")
        code, err = says("run", str(campaign), "--db", f"{unwritable}/x.db", "--runs", f"{name}/runs")
        assert code == 1
        assert err.startswith(f"error: {unwritable}/x.db: cannot be written: ")
        code, err = says("run", str(campaign), "--db", f"{name}/x.db", "--runs", f"{unwritable}/runs")
        assert code == 1
        assert err.startswith(f"error: {unwritable}/runs: {unwritable} cannot be written: ")
        assert [path.name for path in Path(name).iterdir()] == ["try.yaml"]


# -- command lines --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "first"),
    [
        (["frobnicate"], "error: hpcq: 'frobnicate' is not a command"),
        (["resuls"], "error: hpcq: 'resuls' is not a command: the nearest is results"),
        (["cluster", "chek"], "error: hpcq cluster: 'chek' is not a command: the nearest is check"),
        (["run"], "error: hpcq run: CAMPAIGN: nothing given: it is required"),
        (["run", "--bd", "x", "y"], "error: hpcq run: '--bd' is not an option: the nearest is --db"),
        (["run", "a", "b"], "error: hpcq run: 'b': too much: takes CAMPAIGN"),
        (["run", "--db"], "error: hpcq run: --db: a value must follow"),
        (["check", "--schema", "node"], "error: hpcq check: --schema: 'node': must be one of campaign, cluster"),
        (["run", NASTY], f"error: {NASTY!r}: no such campaign file"),
        (["status", "x"], "error: runs: there is no such folder"),
        (["resume", NASTY], "error: runs: there is no such folder"),
        (["cancel"], "error: runs: there is no such folder"),
        (["report"], "error: runs: there is no such folder"),
        (["db", "load", "x"], "error: runs: there is no such folder"),
        (["kernels", "tcp"], "error: 'tcp' is not a kernel"),
        (["detect", "nosuch.csv"], "error: nosuch.csv: No such file or directory: a CSV file that can be read"),
        (["blame", "--pairs", "nosuch.csv"], "error: nosuch.csv: "),
    ],
)  # fmt: skip
def test_wrong_words(desk: LocalDesk, says: Says, words: list[str], first: str) -> None:
    code, err = says(*words)
    assert code == 2
    assert err.splitlines()[0].startswith(first)
    assert written(desk) == []


def test_every_error_of_usage_has_a_hint(says: Says) -> None:
    for words in (
        ["frobnicate"],
        ["run"],
        ["run", "--bd"],
        ["cluster", "chek"],
        ["kernels", "tcp"],
        ["status"],
        ["check", "--schema", "x"],
    ):
        assert "\n\nhint: " in says(*words)[1]


def test_a_traceback_only_when_asked_for(desk: LocalDesk, says: Says, capsys: pytest.CaptureFixture[str]) -> None:
    says("run", "nosuch.yaml")
    for words in (["--debug", "run", "nosuch.yaml"], ["run", "nosuch.yaml", "--debug"]):
        assert hpcq_main(words) == 2
        err = capsys.readouterr().err
        assert "Traceback" in err
        assert "error: 'nosuch.yaml': no such campaign file" in err


def test_a_defect_is_told_as_one(says: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("one over nothing")

    monkeypatch.setattr("hpcq.definition.find.find_campaign", broken)
    code, err = says("plan", "demo")
    assert code == 1
    assert err.startswith(
        "error: ZeroDivisionError: one over nothing\n\nhint: this is a defect of hpcq: run again with --debug"
    )
