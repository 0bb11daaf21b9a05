"""Each report of a real site in docs/sites.md has its tests in tests/cases.md, and these exist."""

from __future__ import annotations

import re

import pytest

from tests import REPOSITORY

pytestmark = pytest.mark.fast
REPORTS = "## What broke elsewhere, and what hpcq does\n"
TESTS = "## Every report of a real site and its tests\n"


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table below a heading."""
    part = (REPOSITORY / page).read_text().partition(heading)[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in part.splitlines() if line.startswith("| ")]
    assert len(cells) > 30
    return cells[1:]


def test_each_report_has_its_tests() -> None:
    tests = tuple(report for report, _ in rows("tests/cases.md", TESTS))
    assert [report for report, *_ in rows("docs/sites.md", REPORTS) if not report.startswith(tests)] == []


def test_each_of_these_tests_exists() -> None:
    for report, words in rows("tests/cases.md", TESTS):
        named = re.findall(r"`(tests/[^`]+)`", words)
        assert named or words.startswith("by hand, 20"), report
        for one in named:
            path, _, function = one.partition("::")
            assert f"def {function}(" in (REPOSITORY / path).read_text() if function else (REPOSITORY / path).exists(), one
