"""Completion in the shells themselves: bash is asked as a person asks it, with the printed script."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpcq.cli.main import run
from tests.history.histories import History

pytestmark = pytest.mark.fast

#: Sets what bash sets when somebody types these words and the tabulator, and calls what was registered for hpcq.
_BASH = """
source {folder}/script
complete -p hpcq >/dev/null || exit 9
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_hpcq_completion hpcq
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def shell(nights: History, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with hpcq on the PATH and the script for bash."""
    folder = tmp_path_factory.mktemp("shell")
    (folder / "hpcq").write_text(f'#!/bin/sh\nexec {sys.executable} -m hpcq "$@"\n')
    (folder / "hpcq").chmod(0o755)
    asked = {**os.environ, "_HPCQ_COMPLETE": "bash_source"}
    done = subprocess.run([folder / "hpcq"], env=asked, capture_output=True, text=True, check=True, timeout=60)
    (folder / "script").write_text(done.stdout)
    return folder


@pytest.mark.promise("The shell completes verbs, options, and the names of runs, nodes, kernels and clusters.")
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("hpcq reg", {"regressions"}),
        ("hpcq schedule re", {"remove"}),
        ("hpcq nodes n", {"n1", "n2", "n3", "n4", "n5", "n6"}),
        ("hpcq results lat", {"latest"}),
        ("hpcq results --kernel tcp_s", {"tcp_stream"}),
        ("hpcq nodes --verdicts --cluster al", {"alpha"}),
        ("hpcq export --format ju", {"junit"}),
        ("hpcq nodes --db nowhere.db n", set()),
    ],
)
def test_bash_completes(words: str, expected: set[str], shell: Path, nights: History) -> None:
    environment = {"PATH": f"{shell}:{os.environ['PATH']}", "HPCQ_DB": str(nights.database), "HOME": str(shell)}
    environment |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}  # of a copy, by tools/mutants.py
    text = _BASH.format(folder=shell, words=words)
    argv = ["/bin/bash", "--norc", "-c", text]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=True, cwd=shell)
    assert expected <= set(done.stdout.split()) if expected else done.stdout.strip() == "", done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("name", ["zsh", "fish"])
def test_the_scripts_for_other_shells(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_HPCQ_COMPLETE", f"{name}_source")
    assert run([]) == 0
    script = capsys.readouterr().out
    assert f"_HPCQ_COMPLETE={name}_complete" in script
    if shutil.which(name):
        (tmp_path / "script").write_text(script)
        subprocess.run([name, "-n", tmp_path / "script"], check=True, timeout=20)
