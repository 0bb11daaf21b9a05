"""Deliberate defects in code whose loss hurts somebody; for each, tests that must notice it.

python -m tools.mutants [--area AREA ...] [--fast | --lab | --all] [--jobs N]  apply each mutant to a copy, run its tests

tests/mutants/AREA.toml holds one table per mutant. It names a function and an effect, not a file and a line, so code may
move and be laid out anew:

    [[mutant]]
    at = "Submitting.submit"        # function, method or constant of Python; function of C; or a file (a template, say)
    old = "self._commit(jobs, idle)"   # stands there exactly once; spaces and line ends do not matter
    new = "pass"
    tests = ["tests/driver/test_submitting.py::test_the_journal_comes_first"]
    lab = true      # optional: the tests need the Slurm lab
    c = true        # optional: a C program must be built

Instead of old and new: `returns = "False"` makes a Python function return that at once; `value = "0.0"` is what a constant
is set to. If several definitions have the name, the one that contains `old` is meant.

The run fails if a mutant survives (all its tests pass), if a mutant breaks more than its line (nothing can be imported,
collected or compiled), if it does not apply in exactly one place, or if a test fails without any mutant.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue

from tools import sources
from tools.pytest_forks import Forks

ROOT = sources.ROOT
FOLDER = ROOT / "tests" / "mutants"
#: A test that hangs because of a mutant has detected it; this limits the wait.
_TEST_LIMIT_S = 60
#: As in tools/fast_tests.
FAST = "fast and not quiet and not heavy"
#: pytest's exit codes when a test that it is told to run does not exist (with workers: when none was run).
_NOT_THERE = (4, 5)
#: What the summary of pytest says of a fixture that checked something: its assertion failed, or it hung.
_CHECKED = re.compile(r" - (AssertionError|assert |Failed:)")
_KEYS = {"at": str, "old": str, "new": str, "returns": str, "value": str, "tests": list, "lab": bool, "c": bool}
_EFFECTS = ({"old", "new"}, {"returns"}, {"value"})


class FaultError(Exception):
    """Why a mutant cannot be applied."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect and the tests that notice it. `number` counts within the area, from 1."""

    area: str
    number: int
    at: str
    tests: tuple[str, ...]
    old: str | None = None
    new: str = ""
    returns: str | None = None
    value: str | None = None
    lab: bool = False
    c: bool = False

    @property
    def name(self) -> str:
        """AREA NUMBER: its name in reports."""
        return f"{self.area} {self.number}"


@dataclass(frozen=True, slots=True)
class Change:
    """What a mutant does to a tree: text[begin:end] of the file becomes `new`."""

    path: Path
    begin: int
    end: int
    new: str


class End(Enum):
    """How the tests of a mutant ended."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"


def read_mutants(folder: Path = FOLDER) -> list[Mutant]:
    """All mutants, by area and number.

    Raises ValueError that names the file and the entry if a key is missing, unknown or of another type.
    """
    found: list[Mutant] = []
    for path in sorted(folder.glob("*.toml")):
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        if set(tables) - {"mutant"}:
            raise ValueError(f"{path.name}: unknown tables {sorted(set(tables) - {'mutant'})}: must be [[mutant]]")
        found += [_read_one(path, number, table) for number, table in enumerate(tables.get("mutant", []), start=1)]
    return found


def _read_one(path: Path, number: int, table: dict[str, object]) -> Mutant:
    where = f"{path.name}: mutant {number}"
    for key, value in table.items():
        if key not in _KEYS or not isinstance(value, _KEYS[key]):
            raise ValueError(f"{where}: {key}: unknown key or wrong type: must be one of {', '.join(_KEYS)}")
    if missing := {"at", "tests"} - set(table):
        raise ValueError(f"{where}: lacks {', '.join(sorted(missing))}")
    if set(table) & {"old", "new", "returns", "value"} not in _EFFECTS:
        raise ValueError(f"{where}: has no effect or several: must be one of old with new, returns, value")
    tests = tuple(str(one) for one in table["tests"])  # type: ignore[attr-defined]
    return Mutant(path.stem, number, **{**table, "tests": tests})  # type: ignore[arg-type]


def change_of(mutant: Mutant, root: Path = ROOT) -> Change:
    """Where and how a mutant changes the sources. Raises FaultError with the reason if that is not one place."""
    places = sources.find(mutant.at, root)
    if not places:
        raise FaultError(f"{mutant.at}: no such function, constant or file")
    if mutant.old is not None:
        pattern = re.compile(r"\s*".join(re.escape(one) for one in mutant.old if not one.isspace()))
        changes = [
            Change(place.path, match.start(), match.end(), mutant.new.strip())
            for place in places
            for match in pattern.finditer(place.path.read_text(encoding="utf-8"), place.begin, place.end)
        ]
        what = f"{mutant.old!r} stands there {len(changes)} times"
    else:
        spans = [(one.path, one.body if mutant.value is None else one.value) for one in places]
        text = f"return {mutant.returns}" if mutant.value is None else mutant.value
        changes = [Change(path, *span, text) for path, span in spans if span is not None]
        what = f"{len(changes)} definitions can be changed so"
    if len(changes) != 1:
        raise FaultError(f"{mutant.at}: {what}: must be once")
    [change] = changes
    if change.path.read_text(encoding="utf-8")[change.begin : change.end] == change.new:
        raise FaultError(f"{mutant.at}: the mutant changes nothing")
    return change


def fault_of(mutant: Mutant, root: Path = ROOT) -> str | None:
    """Why a mutant cannot be applied or its tests cannot be found; None if both are possible."""
    try:
        change_of(mutant, root)
    except FaultError as error:
        return str(error)
    if not mutant.tests:
        return "no tests"
    return next((f"{test}: no such test" for test in mutant.tests if not _test_exists(test, root)), None)


def _test_exists(test: str, root: Path) -> bool:
    name, _, function = test.partition("::")
    path = root / name
    if not path.is_file():
        return False
    return function.partition("[")[0].split("::")[-1] in _functions(path.read_text(encoding="utf-8"))


@cache
def _functions(text: str) -> frozenset[str]:
    """Names of all functions of a module; many mutants name tests of one file."""
    return frozenset(node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))


def source_files() -> list[str]:
    """All files of the working tree that git tracks or would add."""
    words = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def copied(target: Path, names: Sequence[str]) -> Path:
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)
    return target


@contextmanager
def _applied(mutant: Mutant, tree: Path) -> Iterator[None]:
    """Yield the tree with the mutant in it."""
    change = change_of(mutant, tree)
    path = change.path
    before, stat = path.read_text(encoding="utf-8"), path.stat()
    forget_compiled(path)
    path.write_text(before[: change.begin] + change.new + before[change.end :], encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(before, encoding="utf-8")
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        forget_compiled(path)


def forget_compiled(path: Path) -> None:
    """Delete compiled modules: Python compares only second and size, and two versions may share both."""
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def run_pytest(
    forks: Forks,
    tree: Path,
    tests: Sequence[str],
    *words: str,
    built: Path | None = None,
    more: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run tests of a copy. Its hpcq precedes the installed one in every program that they start.

    built: the temporary folder of an earlier run; its kernels are compiled again only if they differ.
    more: further variables of the environment.
    """
    argv = ["-q", "-p", "no:cacheprovider", f"--timeout={_TEST_LIMIT_S}", f"--basetemp={tree}.tmp", *words, *tests]
    columns = {"COLUMNS": "400"}  # else the summary cuts the reasons off
    environment = {**os.environ, "PYTHONPATH": str(tree), **columns, **(more or {})}
    if built is not None:
        environment["HPCQ_TEST_BUILT"] = str(built)
    return forks.run(argv, tree, environment)


def _judge(forks: Forks, mutant: Mutant, tree: Path, built: Path) -> tuple[End, str]:
    with _applied(mutant, tree):
        done = run_pytest(forks, tree, mutant.tests, "-x", built=built if mutant.c else None)
    shutil.rmtree(f"{tree}.tmp", ignore_errors=True)
    return end_of(done.returncode, done.stdout), done.stdout + done.stderr


def end_of(exit_code: int, said: str) -> End:
    """How pytest's exit code and summary lines are read.

    A mutant that keeps a fixture from being made (its C does not compile, say) shows nothing of the test: BROKEN. A
    fixture that checks something, or takes too long, shows as much as a test does.
    """
    if exit_code != 1:
        return End.SURVIVED if exit_code == 0 else End.BROKEN
    lines = said.splitlines()
    failed = any(line.startswith("FAILED ") for line in lines)
    checked = any(line.startswith("ERROR ") and _CHECKED.search(line) for line in lines)
    return End.KILLED if failed or checked else End.BROKEN


def run(mutants: Sequence[Mutant], jobs: int, say: Callable[[str], None] = print) -> int:
    """Judge all mutants. Returns how many survived, or 1 if the tests fail without any mutant."""
    faults = [f"{one.name}: {fault}" for one in mutants if (fault := fault_of(one))]
    for fault in faults:
        say(f"error: {fault}")
    if faults or not mutants:
        say("nothing was judged" if faults else "error: no mutant is chosen: nothing was judged")
        return max(1, len(faults))
    begun_s = time.monotonic()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hpcq-mutants-", ignore_cleanup_errors=True))
        Path(folder).chmod(0o755)  # tests that become another user import the mutant too
        names = source_files()
        unchanged = copied(Path(folder) / "unchanged", names)
        tests = sorted({test for one in mutants for test in one.tests})
        # One worker more than jobs, the longest files first: some tests wait.
        spread = ["-n", str(jobs + 1), "--dist", "loadfile", "--no-loadscope-reorder"] if jobs > 1 else []
        with Forks() as forks:
            done = run_pytest(forks, unchanged, tests, *spread)
            if done.returncode in _NOT_THERE:  # workers do not say which one
                done = run_pytest(forks, unchanged, tests, "--collect-only")
        last = done.stdout.strip().splitlines()[-1:] or ["nothing"]
        say(f"without a mutant, {len(tests)} tests: {last[0]}")
        if done.returncode != 0:
            say(done.stdout[-8000:] + done.stderr[-2000:])
            return 1
        trees: SimpleQueue[tuple[Forks, Path]] = SimpleQueue()
        for number in range(jobs):
            trees.put((stack.enter_context(Forks()), copied(Path(folder) / f"tree{number}", names)))

        def judged(mutant: Mutant) -> End:
            forks, tree = trees.get()
            try:
                started_s = time.monotonic()
                end, words = _judge(forks, mutant, tree, Path(f"{unchanged}.tmp"))
            finally:
                trees.put((forks, tree))
            say(f"{end.value:8} {time.monotonic() - started_s:5.1f} s  {mutant.name}: {mutant.at}")
            if end is not End.KILLED:
                say(f"  {', '.join(mutant.tests)}\n{words[-3000:] if end is End.BROKEN else ''}")
            return end

        with ThreadPoolExecutor(jobs) as pool:
            ends = list(pool.map(judged, mutants))
    left = sum(end is not End.KILLED for end in ends)
    say(f"{len(ends) - left} mutants killed, {left} not, in {time.monotonic() - begun_s:.0f} s")
    return left


def _chosen(mutants: Sequence[Mutant], areas: Sequence[str], lab: bool | None) -> list[Mutant]:
    """lab: True selects those that need it, False the others, None all."""
    if unknown := set(areas) - {one.area for one in mutants}:
        known = ", ".join(dict.fromkeys(one.area for one in mutants))
        raise SystemExit(f"error: --area: {', '.join(sorted(unknown))}: must be {known}")
    return [one for one in mutants if (not areas or one.area in areas) and (lab is None or one.lab is lab)]


def _of_the_fast_tier(mutants: Sequence[Mutant]) -> list[Mutant]:
    """The mutants all of whose tests `make test-fast` runs."""
    tests = {test for one in mutants for test in one.tests}
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", FAST, *sorted(tests)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in {0, 5}:  # 5: none of them is fast
        raise SystemExit(f"error: the tests cannot be collected:\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
    known = {name for line in done.stdout.splitlines() if "::" in line for name in (line, line.partition("[")[0])}
    chosen = [one for one in mutants if known.issuperset(one.tests)]
    print(f"of the fast tier: {len(chosen)} of {len(mutants)} mutants", flush=True)
    return chosen


def main() -> int:
    """Entry point of `make mutants`; exits with 1 if a mutant survives."""
    parser = argparse.ArgumentParser(prog="tools.mutants")
    parser.add_argument("--area", action="append", default=[], help="only this area; may be repeated")
    parser.add_argument("--fast", action="store_true", help="only those whose tests are of the fast tier")
    parser.add_argument("--lab", action="store_true", help="those that need the lab, one after the other")
    parser.add_argument("--all", action="store_true", help="both kinds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    words = parser.parse_args()
    mutants = read_mutants()
    chosen = _chosen(mutants, words.area, None if words.all else words.lab)
    chosen = _of_the_fast_tier(chosen) if words.fast else chosen
    jobs = 1 if words.lab or words.all else words.jobs
    return 1 if run(chosen, jobs, partial(print, flush=True)) else 0


if __name__ == "__main__":
    sys.exit(main())
