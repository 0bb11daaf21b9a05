"""The table of rules in docs/evidence.md, made from the data: `python -m hpcq.evidence.page docs/evidence.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from hpcq.evidence.rules import RULES

_MARK = "<!-- rules -->\n"


def rules_table() -> str:
    """A section a rule: where and when it applies, what it means, what to try, where the knowledge comes from."""
    parts = []
    for row in RULES:
        marks = f"Looked for at {row.scope.value}{'; marks the result disturbed' if row.disturbs else ''}."
        parts.append(
            f"### {row.rule.name}\n\n{row.rule.meaning}\n\n"
            f"- **when** {row.when}. {marks}\n- **try** {row.rule.advice}\n- **source** {row.rule.source}\n"
        )
    return "\n" + "\n".join(parts)


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(page.read_text("utf-8").split(_MARK)[0] + _MARK + rules_table(), encoding="utf-8")
