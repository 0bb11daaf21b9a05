"""Writes docs/promises.md from the promises that tests carry: python -m tools.promises

@pytest.mark.promise("The driver cancels a job only if id, name and user are its own.")
def test_...
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "promises.md"
_HEAD = """\
# Promises

Written by `make docs` from the markers `promise` of the tests; a test compares the two. It is one line per promise, in
the order of the tests that keep them.
"""


@dataclass(frozen=True, slots=True)
class Promise:
    """A sentence and the test that fails when hpcq breaks it. `file` is relative to the root."""

    sentence: str
    file: str
    test: str


def read_promises(root: Path = ROOT) -> list[Promise]:
    """All promises, by file and line. Raises ValueError where a marker does not hold one literal sentence."""
    found: list[Promise] = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.promise" in text:
            found += _of_module(ast.parse(text), str(path.relative_to(root)))
    return found


def _of_module(module: ast.Module, file: str) -> Iterator[Promise]:
    for node in (one for one in ast.walk(module) if isinstance(one, ast.FunctionDef)):
        for marker in node.decorator_list:
            if not (isinstance(marker, ast.Call) and ast.unparse(marker.func) == "pytest.mark.promise"):
                continue
            match marker.args, marker.keywords:
                case [ast.Constant(value=str(sentence))], []:
                    yield Promise(sentence, file, node.name)
                case _:
                    raise ValueError(f'{file}:{marker.lineno}: {ast.unparse(marker)}: must be promise("A sentence.")')


def page(promises: list[Promise]) -> str:
    """docs/promises.md: a section per folder of tests, a line per promise with the tests that keep it."""
    folders: dict[str, dict[str, list[Promise]]] = {}
    for one in promises:
        folders.setdefault(one.file.rpartition("/")[0], {}).setdefault(one.sentence, []).append(one)
    parts = [_HEAD]
    for folder, sentences in folders.items():
        lines = [
            f"- {sentence} ({', '.join(f'`{Path(one.file).name}::{one.test}`' for one in kept_by)})"
            for sentence, kept_by in sentences.items()
        ]
        parts.append("\n".join([f"## {folder}\n", *lines, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(read_promises()), encoding="utf-8")
