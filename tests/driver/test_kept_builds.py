"""A program that was built once on a cluster is taken again by later runs while nothing of it changed; never a damaged one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcq import assets
from hpcq.definition.files.cluster import read_cluster
from hpcq.errors import HpcqError
from hpcq.runner.site.build import build_kernels
from hpcq.transport import Here

pytestmark = pytest.mark.fast

MAIN = r"""
#include <stdio.h>
#define TEXT_OF(word) #word
#define TEXT(word) TEXT_OF(word)
int main(void) { puts("{\"version\": \"1\", \"build_id\": \"" TEXT(WORD) "\", \"kernels\": []}"); return 0; }
"""
MAKEFILE = "net:\n\tmkdir -p $(BUILD)\n\t$(CC) $(CFLAGS) -o $(BUILD)/hpcq-net main.c\n"

Build = Callable[..., dict[str, Any]]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """A build of sources of one file, each in a folder of its own; work directory with a blank in its name."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "main.c").write_text(MAIN)
    (sources / "Makefile").write_text(MAKEFILE)
    monkeypatch.setattr(assets, "kernel_sources", lambda: sources)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    work = tmp_path / "my work"

    def made(name: str, word: str = "one", cc: str = "cc") -> dict[str, Any]:
        keys = f"compiler: {{cc: {cc}, cflags: ['-DWORD={word}']}}"
        (tmp_path / "tiny.yaml").write_text(f"name: tiny\nscheduler: local\nnodes: [a, b]\nwork_directory: '{work}'\n{keys}\n")
        cluster = read_cluster(tmp_path / "tiny.yaml")
        return build_kernels(cluster, Here(), str(work / "hpcq" / name / "tiny"), {"hpcq-net"})

    return made


def word_of(made: dict[str, Any]) -> str:
    """What the program in the run's folder says, and build.json of it."""
    said = json.loads(subprocess.run([f"{made['root']}/bin/hpcq-net"], capture_output=True, text=True, check=True).stdout)
    assert said["build_id"] == made["programs"]["hpcq-net"]["build_id"]
    return str(said["build_id"])


@pytest.mark.heavy
def test_the_same_is_taken_and_anything_else_is_built(build: Build, tmp_path: Path) -> None:
    first, again, other = build("1"), build("2"), build("3", word="two")
    assert [one["kept"] for one in (first, again, other)] == [[], ["hpcq-net"], []]
    assert [word_of(one) for one in (first, again, other)] == ["one", "one", "two"]
    assert first["programs"] == again["programs"]
    assert first["built_utc"] == again["built_utc"]
    (tmp_path / "sources" / "main.c").write_text(MAIN + "/* another */")
    assert build("4")["kept"] == []
    assert build("5", word="two")["kept"] == []
    (tmp_path / "sources" / "main.c").write_text(MAIN)
    assert [build("6")["kept"], build("7", word="two")["kept"]] == [["hpcq-net"]] * 2


@pytest.mark.heavy
def test_a_run_that_is_built_again_keeps_what_its_jobs_execute(build: Build, tmp_path: Path) -> None:
    made = build("1")
    program = Path(made["root"]) / "bin" / "hpcq-net"
    with program.open("rb") as executing:
        assert build("1")["kept"] == ["hpcq-net"]
        assert executing.read() == program.read_bytes()
    assert sorted(path.name for path in program.parent.iterdir()) == ["hpcq-net"]


@pytest.mark.heavy
def test_what_was_damaged_or_lost_is_built_anew_and_kept_again(build: Build, tmp_path: Path) -> None:
    build("1")
    [kept] = (tmp_path / "my work" / "hpcq" / "builds").iterdir()
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    (kept / "hpcq-net").write_bytes((kept / "hpcq-net").read_bytes()[:100])
    assert (build("2")["kept"], build("3")["kept"]) == ([], ["hpcq-net"])
    (kept / "hpcq-net").unlink()  # a file system that removes what is old
    assert (build("4")["kept"], build("5")["kept"]) == ([], ["hpcq-net"])
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


@pytest.mark.heavy
def test_where_nothing_can_be_kept_it_is_built_each_time(build: Build, tmp_path: Path) -> None:
    (tmp_path / "my work" / "hpcq").mkdir(parents=True)
    (tmp_path / "my work" / "hpcq" / "builds").write_text("a file in its place")
    assert [word_of(build(name)) for name in ("1", "2")] == ["one", "one"]
    assert build("3")["kept"] == []


@pytest.mark.heavy
def test_a_compiler_that_is_gone_fails_whatever_was_kept(build: Build) -> None:
    build("1")
    with pytest.raises(HpcqError, match="does not build with no-such-cc"):
        build("2", cc="no-such-cc")
    with pytest.raises(HpcqError, match="does not build with cc"):
        build("3", word='"')
    assert build("4")["kept"] == ["hpcq-net"]


@pytest.mark.promise("A machine on which nothing can be started for a build is an error that says so, not a defect of hpcq.")
@pytest.mark.parametrize("program", ["hpcq-net", "hpcq-mpi"])
def test_a_machine_without_programs_is_no_defect_of_hpcq(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = f"work_directory: {tmp_path}/work\nmpi: {{compiler: mpicc}}\n"
    monkeypatch.setenv("PATH", "/nonexistent")
    (tmp_path / "bare.yaml").write_text(f"name: bare\nscheduler: local\n{keys}")
    with pytest.raises(HpcqError, match=r"^bare: .*head: .*not found") as raised:
        build_kernels(read_cluster(tmp_path / "bare.yaml"), Here(), f"{tmp_path}/work/bare", {program})
    assert "must be on PATH there" in str(raised.value.hint)
