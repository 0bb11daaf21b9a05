"""Each promise has a test and a mutant that apply; `make mutants` proves that the test notices the mutant."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tools import mutants

pytestmark = pytest.mark.fast

ENTRY = """[[mutant]]
promise = "Two and two are four."
tests = ["tests/test_sum.py::test_sum[2-2]"]
file = "sum.py"
old = "a + b"
new = "a - b"
"""


@cache
def committed() -> tuple[mutants.Mutant, ...]:
    return tuple(mutants.read_mutants())


@pytest.mark.parametrize("area", sorted(path.stem for path in mutants.FOLDER.glob("*.toml")))
def test_every_mutant_applies_and_its_tests_exist(area: str) -> None:
    faults = [f"{one.name}: {mutants.fault_of(one)}" for one in committed() if one.area == area]
    assert not [fault for fault in faults if not fault.endswith(": None")]


def test_the_page_of_promises_is_in_step() -> None:
    assert mutants.PAGE.read_text() == mutants.page(mutants.read_mutants()), "make docs"


@pytest.mark.parametrize(
    ("page", "title"), [("verdicts", "Every case and its promise"), ("driver", "Every sequence and its promise")]
)
def test_each_case_names_promises_that_there_are(page: str, title: str) -> None:
    _, _, cases = (mutants.PAGE.parent / f"{page}.md").read_text().partition(f"## {title}")
    rows = [line for line in cases.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 20
    named = [re.findall(r"“(.*?)”", row) for row in rows]
    assert all(named), "a case without a promise"
    assert {one for several in named for one in several} <= {one.promise for one in mutants.read_mutants()}


def test_the_fast_mutants_are_those_of_the_fast_tier() -> None:
    assert f'"{mutants._FAST}"' in (mutants.ROOT / "tools" / "fast_tests").read_text()


def test_no_promise_stands_there_twice() -> None:
    changes = [(one.file, one.old, one.new) for one in mutants.read_mutants()]
    assert len(changes) == len(set(changes))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with one promise."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "sum.py").write_text("def total(a, b):\n    return a + b\n")
    (tmp_path / "tests/test_sum.py").write_text("def test_sum(a, b):\n    ...\n")
    (tmp_path / "area.toml").write_text(ENTRY)
    return tmp_path


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("a + b", "a + b", None),
        ('"sum.py"', '"product.py"', "product.py: no such file"),
        ('"a + b"', '"a * b"', "sum.py: the old text occurs 0 times"),
        ('"a + b"', '"a"', "the old text occurs 3 times"),
        ('"a - b"', '"a + b"', "differ from the new text"),
        ("::test_sum", "::test_product", "tests/test_sum.py::test_product[2-2]: no such test"),
        ("test_sum.py", "test_product.py", "no such test"),
        ('["tests/test_sum.py::test_sum[2-2]"]', "[]", "no tests"),
    ],
)
def test_what_cannot_be_applied_is_told(tree: Path, before: str, after: str, fault: str | None) -> None:
    (tree / "area.toml").write_text(ENTRY.replace(before, after))
    [mutant] = mutants.read_mutants(tree)
    found = mutants.fault_of(mutant, tree)
    assert found is None if fault is None else fault in str(found)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("promise", "promised", "area.toml: mutant 1: promised: unknown key"),
        ('"sum.py"', "1", "mutant 1: file: unknown key or wrong type"),
        ('new = "a - b"\n', "", "mutant 1: lacks new"),
        ("[[mutant]]", "[[mutants]]", r"unknown tables \['mutants'\]"),
    ],
)
def test_a_wrong_entry_is_named(tree: Path, before: str, after: str, said: str) -> None:
    (tree / "area.toml").write_text(ENTRY.replace(before, after))
    with pytest.raises(ValueError, match=said):
        mutants.read_mutants(tree)


@pytest.mark.parametrize(
    ("exit_code", "said", "end"),
    [
        (0, "1 passed in 0.1s", "SURVIVED"),
        (1, "FAILED tests/test_sum.py::test_sum - assert 3 == 4\n1 failed in 0.1s", "killed"),
        (1, "ERROR tests/test_sum.py::test_sum - AssertionError: 3\n1 error in 0.1s", "killed"),
        (1, "ERROR tests/test_sum.py::test_sum - subprocess.CalledProcessError: make\n1 error in 0.1s", "BROKEN"),
        (1, "ERROR tests/test_sum.py::test_sum - NameError: total\nFAILED tests/test_sum.py::test_b - x\n", "killed"),
        (2, "1 error during collection", "BROKEN"),
        (4, "no tests ran", "BROKEN"),
    ],
)
def test_a_mutant_is_killed_only_by_what_was_checked(exit_code: int, said: str, end: str) -> None:
    assert mutants.end_of(exit_code, said).value == end
