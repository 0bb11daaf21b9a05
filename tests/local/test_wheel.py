"""The wheel carries all that an installed hpcq needs: built, installed into an empty environment, used from an empty folder."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from packaging.version import Version

from tests import REPOSITORY
from tests.local.local_desk import LocalDesk
from tools.one_file import made
from tools.wheel_version import version

UV = Path(sys.executable).with_name("uv")


def command(argv: list[str], cwd: Path, environment: dict[str, str] | None = None) -> str:
    """Standard output of a program that must succeed."""
    done = subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{argv} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel; the development environment has the build backend, so no index is asked for one."""
    folder = tmp_path_factory.mktemp("dist")
    command([str(UV), "build", "--quiet", "--wheel", "--no-build-isolation", "--out-dir", str(folder), "."], REPOSITORY)
    [made] = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with the wheel and what it asks for, in a path with a blank."""
    folder = tmp_path_factory.mktemp("installed") / "an environment"
    command([str(UV), "venv", "--quiet", "--python", sys.executable, str(folder)], wheel.parent)
    install = [str(UV), "pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), str(wheel)]
    install += ["--constraints", str(REPOSITORY / "requirements.lock")]
    # What this machine has downloaded already is enough as a rule; the index is asked for the rest.
    cached = subprocess.run([*install, "--offline"], cwd=wheel.parent, capture_output=True, check=False)
    if cached.returncode != 0:
        command(install, wheel.parent)
    return folder / "bin"


def test_what_the_wheel_carries(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for name in (
        "campaigns/demo.yaml",
        "campaigns/clusters/local.yaml",
        "kernels/c/Makefile",
        "kernels/c/main_net.c",
        "kernels/describe/hpcq-net.json",
        "lab/__main__.py",
        "templates/body.sh.j2",
        "workflow/Snakefile",
    ):
        assert f"hpcq/data/{name}" in names
    assert {"hpcq/scheduler/localq.sh", "hpcq/store/results.db.schema"} <= names
    strangers = [name for name in names if "__pycache__" in name or name.endswith((".o", ".pyc")) or "/build/" in name]
    assert strangers == []


def test_what_an_installation_weighs(installed: Path) -> None:
    """docs/install.md says under 200 MB; compiled modules come with use and do not count."""
    [packages] = (installed.parent / "lib").glob("python3*/site-packages")
    files = [path for path in packages.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files) < 200e6
    assert not list(packages.glob("pyarrow")), "an environment with the tools of development proves nothing"


def environment_of(installed: Path, home: Path) -> dict[str, str]:
    """Of a person who has nothing of this project but the installed program."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HPCQ_", "PYTHON", "VIRTUAL_ENV"))}
    return {**kept, "HOME": str(home), "PATH": f"{installed}:{os.environ['PATH']}"}


def test_an_installed_hpcq_finds_what_it_carries_and_measures(installed: Path, tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path / "my desk")
    environment = environment_of(installed, desk.folder / "home")
    hpcq = str(installed / "hpcq")
    assert "tcp_stream" in command([hpcq, "kernels"], desk.folder, environment)
    assert f"local\t{installed.parent}/lib" in command([hpcq, "cluster", "list"], desk.folder, environment)
    assert "hpcq lab" in command([hpcq, "lab", "--help"], desk.folder, environment)
    assert "tcp_pingpong" in command([hpcq, "run", desk.campaign()], desk.folder, environment)
    assert desk.rows("SELECT outcome FROM v_results") == [{"outcome": "measured"}]


@pytest.mark.long
def test_the_demo_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    desk = tmp_path / "my desk"
    desk.mkdir()
    said = command([str(installed / "hpcq"), "run", "demo"], desk, environment_of(installed, tmp_path / "home"))
    assert "tcp_pingpong" in said
    assert sorted(path.name for path in desk.iterdir()) == ["results.db", "runs"]
    [page] = desk.glob("runs/demo-*/report.html")
    assert page.stat().st_size > 10_000


# -- one file ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that `make one-file` makes, in a folder with a blank."""
    return made(tmp_path_factory.mktemp("one file") / "hpcq.pyz")


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine with programs of the system but no MPI, and a home of its own."""
    (tmp_path / "bin").mkdir()
    for path in Path("/usr/bin").iterdir():
        if not path.name.startswith(("mpi", "orte", "ompi", "hydra", "pkg-config", "srun")):
            (tmp_path / "bin" / path.name).symlink_to(path)
    return {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "bin"), "LANG": "C.UTF-8"}


@pytest.mark.long
@pytest.mark.promise("One file does what the wheel does: the demo, which needs no MPI, without any package of Python.")
@pytest.mark.promise("Where hpcq-mpi does not build, tests of MPI are rows with the reason, and all others run.")
def test_the_demo_from_one_file(one_file: Path, bare: dict[str, str], tmp_path: Path) -> None:
    desk = tmp_path / "desk"
    desk.mkdir()
    for name, expected in (("demo", 0), ("demo-mpi", 3)):
        argv = ["/usr/bin/python3", str(one_file), "run", name]
        done = subprocess.run(argv, cwd=desk, env=bare, capture_output=True, text=True, timeout=500, check=False)
        assert done.returncode == expected, done.stdout + done.stderr
    with closing(sqlite3.connect(desk / "results.db")) as database:
        rows = database.execute("SELECT kernel LIKE 'mpi%', outcome, reason FROM v_results").fetchall()
    assert {(bool(mpi), outcome) for mpi, outcome, _ in rows} == {(False, "measured"), (True, "failed")}, rows
    assert all("hpcq-mpi does not build with mpicc: " in reason for mpi, _, reason in rows if mpi)
    page, over_mpi = sorted(desk.glob("runs/demo-*/report.html"))
    assert min(page.stat().st_size, over_mpi.stat().st_size) > 10_000
    asked = ["schedule", "add", "nightly", "--when", "02:00", "--with", "crontab", "--dry-run", "--", "doctor"]
    shown = subprocess.run(
        ["/usr/bin/python3", str(one_file), *asked], cwd=desk, env=bare, capture_output=True, text=True, check=False
    )
    assert f"'{one_file}' schedule tick nightly" in shown.stdout, shown.stdout + shown.stderr


@pytest.mark.long
@pytest.mark.promise("One-file hpcq runs nothing from a folder that somebody else can change.")
def test_what_others_can_change_is_not_run(one_file: Path, bare: dict[str, str], tmp_path: Path) -> None:
    start = ["/usr/bin/python3", str(one_file), "--version"]
    assert "hpcq" in command(start, tmp_path, bare)
    [unpacked] = (tmp_path / "home" / ".cache" / "hpcq" / "one-file").iterdir()
    (unpacked / "hpcq" / "__init__.py").write_text("raise SystemExit('changed')\n")
    unpacked.chmod(0o777)
    done = subprocess.run(start, cwd=tmp_path, env=bare, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"error: {unpacked}: owner " in done.stderr
    assert "mode 777: must be a folder of yours" in done.stderr
    open_to_all = tmp_path / "cache"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)  # whoever replaces hpcq/ there has his own modules run, whatever the folders in it are
    shared = {**bare, "XDG_CACHE_HOME": str(open_to_all)}
    done = subprocess.run(start, cwd=tmp_path, env=shared, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"error: {open_to_all}: everybody can change it (mode 777): must be writable by nobody else" in done.stderr
    open_to_all.chmod(0o1777)
    assert "hpcq" in command(start, tmp_path, shared)
    full = {**bare, "XDG_CACHE_HOME": "/proc"}
    done = subprocess.run(start, cwd=tmp_path, env=full, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    assert "cannot be unpacked" in done.stderr


@pytest.mark.long
def test_another_python_is_told_which_one_it_was_made_for(one_file: Path, bare: dict[str, str], tmp_path: Path) -> None:
    other = tmp_path / "other.pyz"
    with zipfile.ZipFile(one_file) as given, zipfile.ZipFile(other, "w") as changed:
        about = {**json.loads(given.read("made.json")), "python": "3.99"}
        changed.writestr("__main__.py", given.read("__main__.py"))
        changed.writestr("made.json", json.dumps(about))
    done = subprocess.run(["/usr/bin/python3", str(other)], cwd=tmp_path, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "must be Python 3.99 on" in done.stderr


@pytest.mark.fast
@pytest.mark.promise("`pip install --upgrade` takes a wheel of a later commit for newer; a release has its version alone.")
def test_a_later_build_has_a_later_version(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
        command(["git", "-C", str(tmp_path), *words], tmp_path, {**os.environ, **who, "GIT_COMMITTER_DATE": f"{moment} +0000"})

    source = tmp_path / "hpcq" / "__init__.py"
    source.parent.mkdir()
    source.write_text('__version__ = "1.0.0"\n')
    assert version(tmp_path) == "1.0.0", "without git"
    moment = 1_800_000_000
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "one")
    first = version(tmp_path)
    assert first.startswith("1.0.0+20270115080000.g")
    assert version(tmp_path) == first
    source.write_text('__version__ = "1.0.0"\nMORE = 1\n')
    assert version(tmp_path).endswith(".changed")
    moment += 60
    git("commit", "--quiet", "--all", "--message", "two")
    second = version(tmp_path)
    assert Version(first) < Version(second)
    git("tag", "v1.0.0")
    assert version(tmp_path) == "1.0.0"
    (tmp_path / "PKG-INFO").write_text(f"Metadata-Version: 2.4\nName: hpcq\nVersion: {second}\n")
    assert version(tmp_path) == second, "of a source archive"


def test_the_wheel_says_of_which_commit_it_is(wheel: Path) -> None:
    expected = version().partition("+")[0]
    assert wheel.name.removeprefix("hpcq-").removesuffix("-py3-none-any.whl").partition("+")[0] == expected
    if (REPOSITORY / ".git").exists():
        assert "+" in wheel.name or version() == expected
