"""How far a reader walks: the modules that a verb enters, and modules that exist for one sibling only.

The numbers go down only: who makes a walk shorter lowers them here.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path

from hpcq.store.database import SETTLED_AFTER_S
from tests import REPOSITORY
from tests.house.test_floors import modules
from tests.people.nights import make_nights

#: verb -> how many modules of hpcq may run a function.
ENTERED_MAX = {"results": 20, "regressions": 30, "check": 40}
#: How many modules may have one importer, and that in the same folder. A package's head is the door to its folder.
SIBLINGS_MAX = 10
#: How many names of classes stand twice: whoever searches one must find one thing. Those left are of judge and verdict.
TWICE_MAX = 10

#: Runs the command line and prints on the last line which files of hpcq had a function called.
WATCHED = """
import inspect, sys
import hpcq
entered = set()
root = hpcq.__path__[0] + "/"
def enter(frame, event, arg):
    code = frame.f_code
    if code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(root):  # bodies of modules and classes are not
        entered.add(code.co_filename)
sys.settrace(enter)
from hpcq.cli.main import run
code = run(sys.argv[1:])
sys.settrace(None)
print()
print(code, *sorted(entered))
"""


def entered(*words: str) -> tuple[int, list[str]]:
    """Exit code of a verb, and the modules that it entered."""
    argv = [sys.executable, "-c", WATCHED, *words]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    code, *files = done.stdout.splitlines()[-1].split()
    return int(code), [str(Path(file).relative_to(REPOSITORY)) for file in files]


def test_a_verb_enters_few_modules(tmp_path: Path) -> None:
    nights = ["--db", str(make_nights(tmp_path).database)]
    time.sleep(SETTLED_AFTER_S)  # of a database that was written a moment ago no answer is kept, nor looked for
    calls: dict[str, list[tuple[int, list[str]]]] = {
        "results": [(0, nights), (0, ["--findings", *nights])],
        "regressions": [(3, ["--json", *nights])],
        "check": [(0, ["campaigns/nightly.yaml"]), (2, ["campaigns/peers.yaml"])],  # its cluster is not here
    }
    for verb, variants in calls.items():
        for expected, words in variants:
            code, files = entered(verb, *words)
            assert code == expected, (verb, words)
            assert "hpcq/cli/main.py" in files
            assert len(files) <= ENTERED_MAX[verb], (verb, words, len(files), files)


def test_few_modules_exist_for_one_sibling() -> None:
    importers: dict[str, set[str]] = {name: set() for name in modules()}
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                named = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            else:
                continue
            for one in named:
                if one in importers and one != name:
                    importers[one].add(name)
    alone = {
        name: next(iter(users))
        for name, users in importers.items()
        if modules()[name].name != "__init__.py"
        and len(users) == 1
        and name.rpartition(".")[0] == next(iter(users)).rpartition(".")[0]
    }
    assert len(alone) <= SIBLINGS_MAX, alone


def test_a_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = {}
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name)
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert len(places) > 300
    assert len(twice) <= TWICE_MAX, twice
