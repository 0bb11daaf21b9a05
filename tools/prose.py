"""Wrap the prose of pages, so that no line is longer than docs/writing.md allows: python -m tools.prose PAGE...

Paragraphs and list items are wrapped. Tables, code, headings and comments stay as they are, and every word is kept.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

#: Characters of a line; docs/writing.md allows 120.
WIDTH = 116
_ITEM = re.compile(r" *([-*]|\d+\.) ")
_FIXED = ("|", "#", "<!--", "![")


def wrapped(text: str) -> str:
    """The page with its paragraphs and list items wrapped at WIDTH."""
    return "\n".join(_lines(text.split("\n")))


def _lines(lines: list[str]) -> Iterator[str]:
    paragraph: list[str] = []
    fenced = in_list = False
    for line in lines:
        fence = line.lstrip().startswith("```")
        fixed = fenced or fence or not line.strip() or line.lstrip().startswith(_FIXED)
        code = line.startswith("    ") and not paragraph and not (in_list and _ITEM.match(line))
        if fixed or code:
            yield from _flow(paragraph)
            paragraph = []
            fenced ^= fence
            yield line
            continue
        if _ITEM.match(line):
            yield from _flow(paragraph)
            paragraph, in_list = [], True
        elif not paragraph and not line.startswith(" "):
            in_list = False
        paragraph.append(line)
    yield from _flow(paragraph)


def _flow(paragraph: list[str]) -> list[str]:
    if not paragraph:
        return []
    item = _ITEM.match(paragraph[0])
    lead = item[0] if item else paragraph[0][: len(paragraph[0]) - len(paragraph[0].lstrip())]
    body = " ".join([paragraph[0][len(lead) :].strip(), *(line.strip() for line in paragraph[1:])])
    hanging = " " * len(lead)
    return textwrap.wrap(
        body, WIDTH, initial_indent=lead, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name)
        page.write_text(wrapped(page.read_text("utf-8")), "utf-8")
