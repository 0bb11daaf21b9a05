"""Tests carry what hpcq promises; mutants whose loss would hurt apply, and `make mutants` proves that a test notices them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests import REPOSITORY
from tools import mutants, promises

pytestmark = pytest.mark.fast

ENTRY = """[[mutant]]
at = "total"
old = "a + b"
new = "a - b"
tests = ["tests/test_sum.py::test_sum[2-2]"]
"""
SUM = '''LIMIT = 3


def total(a, b):
    """The sum."""
    return (
        a + b
    )


class Row:
    def total(self):
        return total(self.a, self.b)
'''


C_SUM = """long total(long a,
           long b);

long total(long a, long b)
{
    return a +
           b;
}

long x(void)
{
    return total(1, 2);
}
"""


@cache
def committed() -> tuple[promises.Promise, ...]:
    return tuple(promises.read_promises())


@pytest.mark.heavy
@pytest.mark.parametrize("area", sorted(path.stem for path in mutants.FOLDER.glob("*.toml")))
def test_every_mutant_applies_and_its_tests_exist(area: str) -> None:
    faults = [f"{one.name}: {mutants.fault_of(one)}" for one in mutants.read_mutants() if one.area == area]
    assert not [fault for fault in faults if not fault.endswith(": None")]


@pytest.mark.heavy
def test_the_page_of_promises_is_in_step() -> None:
    assert promises.PAGE.read_text() == promises.page(list(committed())), "make docs"


@pytest.mark.heavy
def test_a_promise_is_one_sentence() -> None:
    assert len(committed()) > 300
    odd = [one for one in committed() if not re.fullmatch(r"[A-Z`'\d/-]?.{10,140}\.", one.sentence)]
    assert odd == [], "one sentence, at most 140 characters, with its full stop"


def test_a_test_says_a_promise_once() -> None:
    said = [(one.file, one.test, one.sentence) for one in committed()]
    assert len(said) == len(set(said))


@pytest.mark.parametrize("argument", ["", "SENTENCE", '"One.", "Two."', 'sentence="One."', 'f"One {two}."'])
def test_a_promise_that_nobody_can_read_is_refused(tmp_path: Path, argument: str) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text(f"@pytest.mark.promise({argument})\ndef test_a(): ...\n")
    with pytest.raises(ValueError, match=r"tests/test_a\.py:1: "):
        promises.read_promises(tmp_path)


def test_promises_are_found_with_their_tests(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    marked = '@pytest.mark.promise("It is so.")\n@pytest.mark.promise("Each ends.")\n@pytest.mark.lab\n'
    (tmp_path / "tests/test_a.py").write_text(f"{marked}def test_a(): ...\n\n\ndef test_b(): ...\n")
    found = promises.read_promises(tmp_path)
    assert [(one.sentence, one.test) for one in found] == [("It is so.", "test_a"), ("Each ends.", "test_a")]
    assert "## tests\n\n- It is so. (`test_a.py::test_a`)\n- Each ends." in promises.page(found)


@pytest.mark.parametrize("title", ["Every case and its promise", "Every sequence and its promise"])
def test_each_case_names_promises_that_there_are(title: str) -> None:
    cases = (REPOSITORY / "tests" / "cases.md").read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = [line for line in cases.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 20
    named = [re.findall(r"“(.*?)”", row) for row in rows]
    assert all(named), "a case without a promise"
    assert {one for several in named for one in several} <= {one.sentence for one in committed()}


def test_the_fast_mutants_are_those_of_the_fast_tier() -> None:
    assert f'"{mutants.FAST}"' in (mutants.ROOT / "tools" / "fast_tests").read_text()


@pytest.mark.heavy
def test_no_mutant_stands_there_twice() -> None:
    changes = [mutants.change_of(one) for one in mutants.read_mutants()]
    assert len(changes) == len(set(changes))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with one mutant."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "hpcq").mkdir()
    (tmp_path / "hpcq/sum.py").write_text(SUM)
    (tmp_path / "tests/test_sum.py").write_text("def test_sum(a, b):\n    ...\n")
    (tmp_path / "area.toml").write_text(ENTRY)
    return tmp_path


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("a + b", "a + b", None),
        ('"a + b"', '"return (a +b)"', None),
        ('at = "total"', 'at = "hpcq/sum.py"', None),
        ('old = "a + b"\nnew = "a - b"', 'value = "4"', "total: 0 definitions can be changed so: must be once"),
        ('at = "total"', 'at = "product"', "product: no such function, constant or file"),
        ('at = "total"', 'at = "hpcq/product.py"', "hpcq/product.py: no such function, constant or file"),
        ('"a + b"', '"a * b"', "total: 'a * b' stands there 0 times"),
        ('"a + b"', '"a"', "stands there 3 times"),
        ('"a - b"', '"a + b"', "the mutant changes nothing"),
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
    ("at", "effect", "made"),
    [
        ("total", 'old = "a+b"\nnew = "a - b"', SUM.replace("a + b", "a - b")),
        ("total", 'returns = "0"', SUM.replace('"""The sum."""\n    return (\n        a + b\n    )', "return 0")),
        ("Row.total", 'returns = "0"', SUM.replace("return total(self.a, self.b)", "return 0")),
        ("LIMIT", 'value = "-1"', SUM.replace("LIMIT = 3", "LIMIT = -1")),
    ],
)
def test_a_mutant_names_a_definition_wherever_it_stands(tree: Path, at: str, effect: str, made: str) -> None:
    (tree / "hpcq/deeper").mkdir()
    moved = (tree / "hpcq/sum.py").rename(tree / "hpcq/deeper/sums.py")
    (tree / "area.toml").write_text(ENTRY.replace('"total"', f'"{at}"').replace('old = "a + b"\nnew = "a - b"', effect))
    [mutant] = mutants.read_mutants(tree)
    with mutants._applied(mutant, tree):
        assert moved.read_text() == made
    assert moved.read_text() == SUM


def test_a_function_of_c_is_found_by_its_name(tree: Path) -> None:
    source = tree / "kernels/c/base/sum.c"
    source.parent.mkdir(parents=True)
    source.write_text(C_SUM)
    (tree / "area.toml").write_text(ENTRY.replace('"total"', '"x"').replace("a + b", "total(1, 2)"))
    [mutant] = mutants.read_mutants(tree)
    with mutants._applied(mutant, tree):
        assert source.read_text() == C_SUM.replace("total(1, 2)", "a - b")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("at =", "where =", "area.toml: mutant 1: where: unknown key"),
        ('"total"', "1", "mutant 1: at: unknown key or wrong type"),
        ('at = "total"\n', "", "mutant 1: lacks at"),
        ('new = "a - b"\n', "", "mutant 1: has no effect or several"),
        ('new = "a - b"\n', 'new = "a - b"\nreturns = "0"\n', "mutant 1: has no effect or several"),
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
