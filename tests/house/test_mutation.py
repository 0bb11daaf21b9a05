"""The defects that nobody chose: where they are drawn, which tests they meet, and what is said of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import mutation
from tools.pytest_forks import Forks

SOURCE = """from __future__ import annotations

LIMIT = 3


def clipped(value: int | None) -> int | None:
    if value is None:
        return None
    return min(value, LIMIT)


def half(value: int) -> int:
    return value // 2
"""
TESTS = """import pytest

from hpcq import small

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module")
def clipped():
    return small.clipped(7)


def test_it_is_called(clipped):
    assert small.half(2)


def test_it_is_checked(clipped):
    assert clipped == 3
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with one module and its tests; then `half` is added."""
    root = tmp_path / "tree"
    for folder in ("hpcq", "tests", "tools"):
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").touch()
    (root / "tools/entered.py").write_text(Path(mutation.__file__).with_name("entered.py").read_text())
    (root / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["fast", "quiet", "heavy"]\n')
    (root / "tests/test_small.py").write_text(TESTS)
    (root / "hpcq/small.py").write_text(SOURCE.partition("\n\n\ndef half")[0] + "\n")
    git = ["git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t@t"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    (root / "hpcq/small.py").write_text(SOURCE)
    return root


def test_defects_are_drawn_in_changed_functions_first_and_none_in_annotations(tree: Path) -> None:
    changed = mutation.changed_lines("HEAD", tree)
    assert changed == {"hpcq/small.py": {10, 11, 12, 13}}
    defects = mutation.drawn(changed, 1, tree)
    assert [one.function for one in defects][:2] == ["half", "half"]
    assert {one.line_no for one in defects} == {3, 7, 13}, "line 6 has `|` in annotations only"
    assert defects == mutation.drawn(changed, 1, tree), "the same seed draws the same"
    assert any(defects != mutation.drawn(changed, seed, tree) for seed in range(2, 9))


@pytest.mark.fast
def test_a_revision_that_there_is_not_is_named(tree: Path) -> None:
    with pytest.raises(SystemExit, match="error: --since nowhere: "):
        mutation.changed_lines("nowhere", tree)


def test_a_defect_meets_the_tests_that_enter_its_function(tree: Path) -> None:
    defects = mutation.drawn(mutation.changed_lines("HEAD", tree), 1, tree)
    with Forks() as forks:
        seen, said = mutation.entered(forks, tree, ["hpcq/small.py"], [], 1)
        assert "2 passed" in said[-1]
        by_line = {line_no: sorted(tests) for line_no, tests in seen["hpcq/small.py"].items()}
        assert by_line == {6: ["tests/test_small.py"], 12: ["tests/test_small.py::test_it_is_called"]}
        ends = {one.line_no: mutation.judged(forks, tree, one, mutation.tests_of(one, seen)) for one in defects}
    noticed, difference = ends[3]
    assert noticed, "the limit is checked by a test that did not call the function itself"
    assert difference.startswith("    -LIMIT = 3\n    +LIMIT = ")
    assert (tree / "hpcq/small.py").read_text() == SOURCE


def test_what_no_test_checks_survives(tree: Path) -> None:
    defects = mutation.drawn(mutation.changed_lines("HEAD", tree), 1, tree)
    (tree / "tests/test_small.py").write_text(TESTS.replace("assert small.half(2)", "small.half(2)"))
    with Forks() as forks:
        seen, _ = mutation.entered(forks, tree, ["hpcq/small.py"], [], 1)
        ends = [mutation.judged(forks, tree, one, mutation.tests_of(one, seen))[0] for one in defects if one.function == "half"]
    assert ends
    assert not all(ends)
