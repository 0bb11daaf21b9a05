"""Reading verbs start fast: they import nothing that takes a tenth of a second and that they do not use."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.history.histories import History

pytestmark = pytest.mark.fast

#: What takes long to import, or brings a lot with it.
HEAVY = ("numpy", "pydantic", "ruamel", "jinja2", "rich", "snakemake", "asyncio", "multiprocessing", "email", "http")
#: Verbs that print rows of the database. In one process, in this order: what one of them imports the next would hide.
READING = (
    "--version", "--help", "show 1", "runs --cost", "facts show n1", "facts diff n1 first", "changes list",
    "event list", "baseline list", "kernels", "kernels tcp_stream", "sql 'SELECT 1'", "db check",
)  # fmt: skip
#: These hold results against gates, whose kinds may be plug-ins: importlib.metadata brings `email`.
GATED = ("results", "results --since 3d", "results --group-by driver", "results --each --limit 3", "results --findings")
#: These judge, or put half a million names in order: they need numpy as well, and nothing else of the list.
JUDGING = (
    "history",
    "runs",
    "nodes --verdicts",
    "nodes n1",
    "nodes",
    "history tcp_stream/n1/n2",
    "regressions",
    "compare latest 30d",
    "blame --help",
    "gate propose --help",
)
_PROGRAM = """
import contextlib, io, json, shlex, sys
from hpcq.cli.main import run
found = {}
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = run(shlex.split(words) + ([] if words.startswith("-") or words.startswith("kernels") else ["--db", sys.argv[2]]))
    heavy = sorted({name.partition(".")[0] for name in sys.modules} & set(json.loads(sys.argv[3])))
    found[words] = [code, heavy]
print(json.dumps(found))
"""


def imported_by(verbs: tuple[str, ...], nights: History) -> dict[str, tuple[int, list[str]]]:
    """Exit code of each verb, and the heavy modules that were there after it."""
    argv = [sys.executable, "-c", _PROGRAM, json.dumps(verbs), str(nights.database), json.dumps(HEAVY)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120, cwd=nights.database.parent)
    return {words: (code, heavy) for words, (code, heavy) in json.loads(done.stdout).items()}


@pytest.mark.promise("A reading verb imports nothing heavy.")
@pytest.mark.heavy
def test_a_reading_verb_imports_nothing_heavy(nights: History) -> None:
    found = imported_by(READING, nights)
    assert {words: code for words, (code, _) in found.items() if code not in {0, 3, 4}} == {}
    assert {words: heavy for words, (_, heavy) in found.items() if heavy} == {}
    found = imported_by(GATED, nights)
    assert {words: code for words, (code, _) in found.items() if code not in {0, 3, 4}} == {}
    assert {words: heavy for words, (_, heavy) in found.items() if set(heavy) - {"email"}} == {}


@pytest.mark.heavy
def test_a_judging_verb_imports_little_more(nights: History) -> None:
    found = imported_by(JUDGING, nights)
    assert {words: code for words, (code, _) in found.items() if code not in {0, 3, 4}} == {}
    assert {words: heavy for words, (_, heavy) in found.items() if set(heavy) - {"numpy", "email"}} == {}
