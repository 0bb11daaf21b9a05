"""What a program can check of docs/writing.md: lines of prose of at most 120 characters, and no phrase of the list."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import REPOSITORY
from tools import prose

pytestmark = pytest.mark.fast

LINE_CHARACTERS = 120
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md"))]
#: Shows the phrases beside what to write instead.
RULES = REPOSITORY / "docs" / "writing.md"
#: Generated: one line per promise, however long.
PROMISES = REPOSITORY / "docs" / "promises.md"
#: Folders and files whose text people read, with what their names end with.
TEXTS = {
    "hpcq": "*.py",
    "lab": "*.py",
    "kernels": "*.[ch]",
    "campaigns": "*.yaml",
    "workflow": "Snakefile",
    "templates": "*.j2",
    "tools": "*",
}

#: phrase -> what to write
REFUSED = {
    r"\b(bits|packets|bytes|once|twice|times) an? (second|minute|job|pair|node|round|cluster|run|step)\b": "per",
    r"\b(one|a|an) (job|line|row|rank|server|agent|process|command|finding|point|section|file|name|connection) an? "
    r"(pair|node|job|line|row|result|cluster|series|run|test|step|rule|round|option|verb|rack|core)\b": "one job per pair",
    r"\bno \w+ is meant\b": "no result matches",
    r"\ballowed (is|are) (?!None\b)": "must be",
    r"\b(is|was|are|were) no tr(y|ies)\b": "does not count as an attempt",
    r"\bplanned anew\b": "planned again",
    r"\bso (often|long|many) at most\b": "at most this many times",
    r"\bmakes? nothing of\b": "contradicts",
    r"\btaken for dead\b": "lost its lease",
    r"\bsomebody who may\b": "an administrator",
    r"\b(test|step|one|measurement|turn) in hand\b": "current test",
    r"\bhand(s|ed|ing)? in (a|the|one|all|what|its|of|any|some|nothing|now|first)\b": "submit",
    r"\bgiv(e|es|ing) way\b": "yield",
    r"\blet(s|ting)? go of\b": "withdraw",
    r"\bremark(s|ed)?\b": "note",
    r"\bfindings? (list|set|show)\b": "hpcq changes",
    r"\bnobody can tell\b": "name who cannot know what",
    r"\bwhoever may not\b": "if you may not",
    r"\ball the same does\b": "say what happens",
    r"\b1 jobs\b": "1 job",
    r"(?<!each )\b(an)?other \w+ than\b": "a ... other than, or: differs from",
}
_PATTERNS = {re.compile(pattern, re.IGNORECASE): better for pattern, better in REFUSED.items()}


def prose_lines(page: Path) -> Iterator[tuple[int, str]]:
    """Line numbers and lines of a page that are neither table nor code nor heading."""
    fenced = False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith(("    ", "|", "#")):
            yield number, line


def texts() -> Iterator[Path]:
    yield from (page for page in PAGES if page != RULES)
    for folder, pattern in TEXTS.items():
        yield from (path for path in sorted((REPOSITORY / folder).rglob(pattern)) if path.suffix != ".pyc" and path.is_file())


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page != PROMISES], ids=lambda page: str(page.relative_to(REPOSITORY))
)
def test_lines_of_prose_fit(page: Path) -> None:
    assert [f"{page}:{number}" for number, line in prose_lines(page) if len(line) > LINE_CHARACTERS] == [], (
        "make docs wraps them"
    )


@pytest.mark.heavy
def test_no_phrase_that_reads_as_if_translated() -> None:
    found = []
    for path in texts():
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            for pattern, better in _PATTERNS.items():
                if hit := pattern.search(line):
                    found.append(f"{path.relative_to(REPOSITORY)}:{number}: {hit[0]!r}: write {better!r}")
    assert found == [], "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "sentence",
    [
        "one job a pair",
        "two million bits a second",
        "no result is meant",
        "x.yaml:3: on: 'x': allowed are pairs, links",
        "it was no try",
        "Remark something",
        "1 jobs wait",
        "another node than n1",
    ],
)
def test_the_list_knows_its_phrases(sentence: str) -> None:
    assert any(pattern.search(sentence) for pattern in _PATTERNS)


def test_wrapping_keeps_every_word_and_all_that_is_no_prose() -> None:
    rows = "   | " + "cell " * 40 + "|\n   | " + "cell " * 40 + "|\n"
    code = rows + "\n    " + "x" * 200 + "\n\n```\n" + "y " * 100 + "\n```\n\n| " + "z" * 200 + " |\n"
    page = f"# {'heading ' * 30}\n\n{'word ' * 60}end.\n\n- {'item ' * 60}end\n  {'more ' * 5}\n\n{code}"
    made = prose.wrapped(page)
    assert made.split() == page.split()
    assert made.endswith(code)
    assert max(len(line) for line in made.split("\n") if line[:4] in {"word", "- it", "  it"}) <= prose.WIDTH
    assert prose.wrapped(made) == made


def test_pages_name_files_that_exist() -> None:
    """Paths of this repository that a page names; those with `<kind>` and the like are patterns."""
    named = re.compile(
        r"(?<![\w/<>.-])(?:hpcq|tests|tools|lab|bench|kernels|templates|workflow)/[\w./-]+\.(?:py|c|h|j2|yaml|toml|json|txt)\b"
    )
    missing = [
        f"{page.relative_to(REPOSITORY)}: {path}"
        for page in PAGES
        for path in sorted(set(named.findall(page.read_text("utf-8"))))
        if not (REPOSITORY / path).exists()
    ]
    assert missing == []


ARCHITECTURE = REPOSITORY / "docs" / "architecture.md"


def section(title: str) -> str:
    """A section of docs/architecture.md, up to the next heading of its level."""
    return ARCHITECTURE.read_text("utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_map_names_every_package_and_every_file_of_the_lowest_folder() -> None:
    inside = [path for path in (REPOSITORY / "hpcq").iterdir() if path.suffix == ".py" or any(path.rglob("*.py"))]
    there = [path for path in inside if path.name != "__init__.py"]
    names = [f"{path.name}/" if path.is_dir() else path.name for path in there]
    assert len(names) > 20
    assert [name for name in names if name not in section("The map")] == []


def test_each_walk_names_each_file_once() -> None:
    walks = section("Three walks").split("\n### ")[1:]
    assert len(walks) == 3
    for walk in walks:
        files = re.findall(r"`((?:hpcq|kernels|templates|workflow)/[\w./-]+\.\w+)`", walk)
        assert len(files) >= 10
        assert sorted(files) == sorted(set(files)), walk.partition("\n")[0]


@pytest.mark.heavy
def test_rows_of_a_table_stand_on_lines_of_their_own() -> None:
    """Wrapped as prose once, a table is one paragraph for ever."""
    joined = re.compile(r"\S.*\|---\|")
    flowed = [
        f"{page.relative_to(REPOSITORY)}:{number}"
        for page in PAGES
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1)
        if not line.lstrip().startswith("|---") and joined.search(line)
    ]
    assert flowed == []


def test_no_conflict_of_a_merge_is_left() -> None:
    marks = ("<" * 7 + " ", ">" * 7 + " ")
    assert [page.name for page in PAGES if any(line.startswith(marks) for line in page.read_text("utf-8").splitlines())] == []
