"""Generate the table of rules in docs/evidence.md: `python -m hpcq.evidence.page docs/evidence.md`."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from hpcq.evidence.rules import RULES

_MARK = "<!-- rules -->\n"
#: Characters of a prose line; docs/writing.md allows 120.
_WIDTH = 116


def rules_table() -> str:
    """One section per rule: where and when it applies, what it means, what to try, and the source of the knowledge."""
    parts = []
    for row in RULES:
        marks = f"Looked for at {row.scope.value}{'; marks the result disturbed' if row.disturbs else ''}."
        lines = (f"when** {row.when}. {marks}", f"try** {row.rule.advice}", f"source** {row.rule.source}")
        items = "".join(f"{_wrapped(f'- **{line}', '  ')}\n" for line in lines)
        parts.append(f"### {row.rule.name}\n\n{_wrapped(row.rule.meaning)}\n\n{items}")
    return "\n" + "\n".join(parts)


def _wrapped(prose: str, indent: str = "") -> str:
    return textwrap.fill(prose, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(page.read_text("utf-8").split(_MARK)[0] + _MARK + rules_table(), encoding="utf-8")
