"""The wheel carries all that an installed hpcq needs: built, installed into an empty environment, used from an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests import REPOSITORY

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
    assert {"hpcq/scheduler/local/localq.sh", "hpcq/store/results.db.schema"} <= names
    strangers = [name for name in names if "__pycache__" in name or name.endswith((".o", ".pyc")) or "/build/" in name]
    assert strangers == []


def test_what_an_installation_weighs(installed: Path) -> None:
    """docs/install.md says under 200 MB; compiled modules come with use and do not count."""
    [packages] = (installed.parent / "lib").glob("python3*/site-packages")
    files = [path for path in packages.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files) < 200e6
    assert not list(packages.glob("pyarrow")), "an environment with the tools of development proves nothing"


def test_the_demo_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    desk = tmp_path / "my desk"
    desk.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HPCQ_", "PYTHON", "VIRTUAL_ENV"))}
    environment = {**kept, "HOME": str(tmp_path / "home"), "PATH": f"{installed}:{os.environ['PATH']}"}
    hpcq = str(installed / "hpcq")
    assert "tcp_stream" in command([hpcq, "kernels"], desk, environment)
    assert f"local\t{installed.parent}/lib" in command([hpcq, "cluster", "list"], desk, environment)
    assert "hpcq lab" in command([hpcq, "lab", "--help"], desk, environment)
    said = command([hpcq, "run", "demo"], desk, environment)
    assert "mpi_pingpong" in said
    assert sorted(path.name for path in desk.iterdir()) == ["results.db", "runs"]
    [page] = desk.glob("runs/demo-*/report.html")
    assert page.stat().st_size > 10_000
