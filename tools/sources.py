"""Finds functions and constants of the sources by their names, whichever file they stand in.

find("Journal.append")   a method of a class of hpcq, lab or tools
find("SCAN_THRESHOLD")   a constant of a module or class: the whole assignment
find("histogram_quantile_ns")   a function of kernels/c
find("templates/claim.sh.j2")   a file: what has a slash or is there
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_PYTHON = ("hpcq", "lab", "tools")
#: clang-format puts the head of each function at the beginning of a line, and its last brace alone on one.
_C_FUNCTION = r"^(?!typedef|return)[A-Za-z][^;{}#]*?\b%s\((?:[^;{}]*)\)\s*\{.*?^\}$"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a name is defined: text[begin:end] of the file. `body` and `value` are such spans too, or None."""

    path: Path
    begin: int
    end: int
    body: tuple[int, int] | None = None
    value: tuple[int, int] | None = None


def find(name: str, root: Path = ROOT) -> list[Place]:
    """All definitions of a name: a qualified name of Python, a function of C, or a file below root."""
    path = root / name
    if path.is_file():
        return [Place(path, 0, len(path.read_text(encoding="utf-8")))]
    if "/" in name:
        return []
    last = name.rsplit(".", maxsplit=1)[-1]
    found: list[Place] = []
    for one in _files(root):
        text = _text(one)
        if last not in text:
            continue
        if one.suffix == ".py":
            found += _of_python(text, one).get(name, ())
        elif one.suffix in {".c", ".h"} and name.isidentifier():
            pattern = re.compile(_C_FUNCTION % re.escape(name), re.MULTILINE | re.DOTALL)
            found += [Place(one, match.start(), match.end()) for match in pattern.finditer(text)]
    return found


@cache
def _files(root: Path) -> tuple[Path, ...]:
    python = [path for folder in _PYTHON for path in sorted((root / folder).rglob("*.py"))]
    return (*python, *sorted((root / "kernels" / "c").rglob("*.[ch]")))


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def _of_python(text: str, path: Path) -> dict[str, list[Place]]:
    """The functions, classes and assignments of a module, by their qualified names."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = text.splitlines(keepends=True)

    def at(line_no: int, column: int) -> int:  # ast counts columns in bytes
        return starts[line_no - 1] + len(lines[line_no - 1].encode()[:column].decode())

    def span(node: ast.stmt | ast.expr) -> tuple[int, int]:
        return at(node.lineno, node.col_offset), at(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def walk(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, Place]]:
        for node in body:
            begin, end = span(node)
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                begin = min([begin, *(span(one)[0] for one in node.decorator_list)])
                inside = (span(node.body[0])[0], end) if isinstance(node, ast.FunctionDef) else None
                yield prefix + node.name, Place(path, begin, end, body=inside)
                yield from walk(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        yield prefix + target.id, Place(path, begin, end, value=span(node.value))

    found: dict[str, list[Place]] = {}
    for name, place in walk(ast.parse(text).body, ""):
        found.setdefault(name, []).append(place)
    return found
