"""Defects that nobody chose, in what changed: python -m tools.mutation --since REVISION [--seconds 600] [--seed 1]

cosmic-ray draws the defects in the files of hpcq that differ from a revision, those in changed functions first. Each is
applied to a copy, and the tests of the fast tier that enter its function are run. The time is bounded; what survived is
listed with its difference. A survivor is a question, not a failure: some defects change nothing that anybody could see,
and others are noticed by tests that are not fast, or that start hpcq as a program.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cosmic_ray.commands.init import init
from cosmic_ray.mutating import use_mutation
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB
from cosmic_ray.work_item import MutationSpec

from tools import mutants
from tools.pytest_forks import Forks

#: Tests per defect, the shortest first: a defect that twenty of them pass is a survivor.
_TESTS_MAX = 20
#: Git's head of a hunk without context: the lines that it has now.
_HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")

#: file -> first line of a function -> test -> seconds
Entered = dict[str, dict[int, dict[str, float]]]


@dataclass(frozen=True, slots=True)
class Defect:
    """One defect that can be drawn: cosmic-ray's mutation, and the function that it is in."""

    file: str
    line_no: int
    mutation: MutationSpec
    function: str
    first_line_no: int | None


def changed_lines(since: str, root: Path = mutants.ROOT) -> dict[str, set[int]]:
    """The lines of each Python file of hpcq that differ from a revision, in the working tree. Raises SystemExit."""
    argv = ["git", "-C", str(root), "diff", "--unified=0", "--no-ext-diff", "--relative", since, "--", "hpcq"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: --since {since}: {done.stderr.strip()}")
    found: dict[str, set[int]] = {}
    file = ""
    for line in done.stdout.splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ b/")
        elif (match := _HUNK.match(line)) and file.endswith(".py"):
            begin, count = int(match[1]), int(match[2] or 1)
            found.setdefault(file, set()).update(range(begin, begin + max(1, count)))
    return found


@cache
def _functions(text: str) -> tuple[tuple[int, int, str], ...]:
    """(first line with its decorators, last line, name) of each function, inner ones last."""
    spans = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            spans.append((first, node.end_lineno or first, node.name))
    return tuple(sorted(spans))


def function_at(text: str, line_no: int) -> tuple[int | None, str]:
    """First line and name of the innermost function around a line; (None, "") for a line of the module itself."""
    around = [(first, name) for first, last, name in _functions(text) if first <= line_no <= last]
    return around[-1] if around else (None, "")


@cache
def _unjudged(text: str) -> frozenset[int]:
    """Offsets (line * 1000 + column) in annotations: they are not evaluated, so no test can notice a change there."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        for one in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(one, ast.expr):
                found |= {inner.lineno * 1000 + inner.col_offset for inner in ast.walk(one) if isinstance(inner, ast.expr)}
                end = (one.end_lineno or one.lineno) * 1000 + (one.end_col_offset or 0)
                found |= set(range(one.lineno * 1000 + one.col_offset, end))
    return frozenset(found)


def drawn(changed: dict[str, set[int]], seed: int, root: Path = mutants.ROOT) -> list[Defect]:
    """One defect per place of the changed files, those in changed functions first, else in the order of a seed."""
    dice = random.Random(seed)
    by_place: dict[tuple[str, tuple[int, int]], list[MutationSpec]] = {}
    files = [Path(file) for file in changed if (root / file).is_file()]
    with tempfile.TemporaryDirectory(prefix="hpcq-mutation-") as folder:
        database = WorkDB(f"{folder}/drawn.sqlite", WorkDB.Mode.create)
        try:
            init([root / file for file in files], database, {})
            for item in database.work_items:
                [one] = item.mutations
                file = str(one.module_path.relative_to(root))
                if one.start_pos[0] * 1000 + one.start_pos[1] not in _unjudged((root / file).read_text(encoding="utf-8")):
                    by_place.setdefault((file, one.start_pos), []).append(one)
        finally:
            database.close()
    found = []
    for (file, (line_no, _)), choices in sorted(by_place.items()):
        first_line_no, name = function_at((root / file).read_text(encoding="utf-8"), line_no)
        choices.sort(key=lambda one: (one.operator_name, one.occurrence))  # the database has an order of its own
        found.append(Defect(file, line_no, dice.choice(choices), name, first_line_no))
    dice.shuffle(found)
    touched = set()
    for path in files:
        text = (root / path).read_text(encoding="utf-8")
        lines = text.splitlines()
        here = [number for number in changed[str(path)] if number <= len(lines) and lines[number - 1].strip()]
        touched |= {(str(path), function_at(text, number)[0]) for number in here}
    return sorted(found, key=lambda one: (one.file, one.first_line_no) not in touched)


def entered(forks: Forks, tree: Path, files: Sequence[str], tests: Sequence[str], jobs: int) -> tuple[Entered, list[str]]:
    """Which tests of the fast tier (or of some files of it) enter which function of the files; what pytest says at its end."""
    folder = Path(f"{tree}.entered")
    folder.mkdir()
    every = sorted((tree / "tests").rglob("test_*.py"))
    tests = tests or [str(one.relative_to(tree)) for one in every if "mark.fast" in one.read_text(encoding="utf-8")]
    spread = ["-n", str(jobs + 1), "--dist", "loadfile"] if jobs > 1 else []
    environment = {"HPCQ_ENTERED_INTO": str(folder), "HPCQ_ENTERED_OF": os.pathsep.join(files)}
    done = mutants.run_pytest(forks, tree, tests, "-p", "tools.entered", "-m", mutants.FAST, *spread, more=environment)
    failed = {line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))}
    found: Entered = {}
    for path in folder.glob("*.json"):
        for file, functions in json.loads(path.read_text(encoding="utf-8")).items():
            for line_no, seen in functions.items():
                good = {test: took_s for test, took_s in seen.items() if test not in failed}
                found.setdefault(file, {}).setdefault(int(line_no), {}).update(good)
    lines = done.stdout.strip().splitlines()
    return found, [line for line in lines if line.startswith(("FAILED ", "ERROR "))] + (lines[-1:] or [done.stderr.strip()])


def tests_of(defect: Defect, seen: Entered) -> list[str]:
    """The tests that can notice a defect, the shortest first. Of a line outside functions: all that enter the file."""
    functions = seen.get(defect.file, {})
    if defect.first_line_no is not None:
        tests = functions.get(defect.first_line_no, {})
    else:
        tests = {test: took_s for one in functions.values() for test, took_s in one.items()}
    whole = {test for test in tests if "::" not in test}
    chosen = sorted((took_s, test) for test, took_s in tests.items() if test in whole or test.partition("::")[0] not in whole)
    return [test for _, test in chosen[:_TESTS_MAX]]


def judged(forks: Forks, tree: Path, defect: Defect, tests: Sequence[str]) -> tuple[bool, str]:
    """Whether a test notices a defect, and the lines that it changes."""
    path = tree / defect.file
    operator = get_operator(defect.mutation.operator_name)(**defect.mutation.operator_args)
    mutants.forget_compiled(path)
    try:
        with use_mutation(path, operator, defect.mutation.occurrence) as (before, after):
            if after is None:
                raise RuntimeError(f"{defect}: cosmic-ray cannot apply what it drew")
            done = mutants.run_pytest(forks, tree, tests, "-x")
    finally:
        mutants.forget_compiled(path)
        shutil.rmtree(f"{tree}.tmp", ignore_errors=True)
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))[3:]
    return done.returncode != 0, "\n".join(f"    {line}" for line in lines)


def _in_time(defects: Sequence[Defect], seen: Entered, until_s: float) -> Iterator[Defect]:
    for one in defects:
        if time.monotonic() > until_s:
            return
        if tests_of(one, seen):
            yield one


def run(since: str, seconds: float, seed: int, tests: Sequence[str], jobs: int) -> int:
    """Draw defects, find their tests, then judge for that many seconds; list the survivors. Returns the exit code."""
    changed = changed_lines(since)
    defects = drawn(changed, seed)
    if not defects:
        print(f"no Python file of hpcq differs from {since}: nothing to draw a defect in")
        return 0
    files = sorted({one.file for one in defects})
    print(f"{len(defects)} places for a defect in {len(files)} files that differ from {since}", flush=True)
    ends: Counter[bool] = Counter()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hpcq-mutation-", ignore_cleanup_errors=True))
        names = mutants.source_files()
        with Forks() as forks:
            seen, said = entered(forks, mutants.copied(Path(folder) / "unchanged", names), files, tests, jobs)
        print("which tests enter them:", *said, sep="\n    ", flush=True)
        if not seen:
            print("error: no test of the fast tier enters any of them, or none could be run")
            return 1
        begun_s = time.monotonic()
        copies = [mutants.copied(Path(folder) / f"tree{number}", names) for number in range(jobs)]
        trees = [(stack.enter_context(Forks()), copy) for copy in copies]
        waiting, lock = _in_time(defects, seen, begun_s + seconds), threading.Lock()

        def work(own: tuple[Forks, Path]) -> None:
            while True:
                with lock:
                    defect = next(waiting, None)
                if defect is None:
                    return
                noticed, difference = judged(*own, defect, tests_of(defect, seen))
                with lock:
                    ends[noticed] += 1
                if not noticed:
                    print(f"SURVIVED {defect.file}:{defect.line_no} {defect.function or 'module'}\n{difference}", flush=True)

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(work, trees))
    alone = sorted({f"{one.file}: {one.function}" for one in defects if one.function and not tests_of(one, seen)})
    if alone:
        print("no test of the fast tier enters:", *alone, sep="\n    ")
    left = sum(bool(tests_of(one, seen)) for one in defects) - ends.total()
    print(f"{ends[True]} noticed, {ends[False]} survived, {left} not reached in {time.monotonic() - begun_s:.0f} s")
    return 0


def main() -> int:
    """Entry point of `make mutants-changed`."""
    parser = argparse.ArgumentParser(prog="tools.mutation")
    parser.add_argument("--since", default="HEAD~1", help="the revision to compare the working tree with")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long defects are judged")
    parser.add_argument("--tests", nargs="*", default=[], help="files of tests to search instead of the whole fast tier")
    parser.add_argument("--seed", type=int, default=1, help="another one draws other defects")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    words = parser.parse_args()
    return run(words.since, words.seconds, words.seed, words.tests, words.jobs)


if __name__ == "__main__":
    sys.exit(main())
