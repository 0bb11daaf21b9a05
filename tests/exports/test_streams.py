"""What a call does when its standard streams, its database's name or its answer are not what one expects."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpcq.cli.main import run
from hpcq.store.load.cluster import load_run
from tests.pages.test_report import nodes_and_sizes

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of one run, which these tests only read."""
    folder = tmp_path_factory.mktemp("streams")
    builder = nodes_and_sizes(folder)
    builder.everything()
    load_run(folder / "results.db", builder.path)
    return folder / "results.db"


def shell(words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run hpcq by a shell, which closes streams as people do."""
    argv = ["bash", "-c", f'"$0" -m hpcq {words}', sys.executable]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.heavy
@pytest.mark.promise("If standard output is closed, every verb that writes ends with an error.")
def test_a_closed_standard_output_is_an_error(database: Path) -> None:
    done = shell(f"runs --db {database} >&-", database.parent)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: standard output: is closed: an open one\n")


@pytest.mark.heavy
def test_an_error_never_stands_among_the_data(database: Path) -> None:
    done = shell(f"runs --db {database} --campaign nosuch 2>&-", database.parent)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


@pytest.mark.promise("No file that hpcq opens takes the number of a closed standard stream.")
def test_no_file_takes_the_number_of_a_closed_stream() -> None:
    code = (
        "import os, hpcq.cli.main as main; main.run(['--version']);"
        " print([os.path.samefile(f'/proc/self/fd/{n}', os.devnull) for n in (0, 2)], os.open('/', os.O_RDONLY) > 2)"
    )
    argv = ["bash", "-c", '"$0" -c "$1" <&- 2>&-', sys.executable, code]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[True, True] True"


@pytest.mark.heavy
@pytest.mark.promise("A database with a name that is no UTF-8 is read.")
def test_a_database_may_have_any_name(database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a b %20?#\xff.db"))
    shutil.copy(database, name)
    assert run(["runs", "--db", str(name), "--limit", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.promise("`hpcq sql` keeps the values of columns of one name apart.")
def test_columns_of_one_name_keep_their_values(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sql", "SELECT 1 AS a, 2 AS a, 3 AS a, 4 AS 'a:1'", "--db", str(database)]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split("\t") == ["a", "a:1", "a:2", "a:1:1"]
    assert row.split("\t") == ["1", "2", "3", "4"]


def test_what_json_cannot_hold_is_no_defect(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sql", "SELECT -1e999 AS low", "--json", "--db", str(database)]) == 2
    assert capsys.readouterr().err.startswith("error: SQL: low: is infinite: JSON has no such number\n")
    assert run(["sql", "SELECT -1e999 AS low", "--db", str(database)]) == 0


@pytest.mark.promise("A table without rows says so in a pipe too.")
def test_a_head_without_rows_is_told(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["runs", "--db", str(database)]) == 0
    assert capsys.readouterr().err == ""
    assert run(["runs", "--cost", "--since", "2030-01", "--db", str(database)]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1
    assert said.err.strip()


@pytest.mark.promise("A disk that is full is exit code 1, and no wrong call.")
def test_a_full_disk_is_no_wrong_call(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", "--format", "csv", "--to", "/dev/full", "--db", str(database)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: --to: /dev/full: cannot be written: No space left on device\n")
    assert "hint: make room there" in said
