"""The reference part of docs/kernels.md, from kernels/describe/*.json.

python -m tools.kernel_reference            rewrites it
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "kernels.md"
BEGIN = "<!-- reference: written by python -m tools.kernel_reference -->\n"
END = "<!-- end of reference -->\n"
#: Characters of a prose line; docs/writing.md allows 120.
WIDTH = 116


def reference() -> str:
    """Tables of all options and metrics, kernel by kernel."""
    parts: list[str] = []
    for path in sorted((ROOT / "kernels" / "describe").glob("*.json"), reverse=True):
        program: dict[str, Any] = json.loads(path.read_text("utf-8"))
        parts += [_kernel(program["program"], kernel) for kernel in program["kernels"]]
    return "\n".join(parts)


def with_reference(page: str) -> str:
    """The page with its reference part rewritten."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{reference()}\n{END}{tail}"


def _kernel(program: str, kernel: dict[str, Any]) -> str:
    options = "\n".join(
        f"| `{row['name']}` | {_allowed(row)} | {_plain(row['default'])} | {row['help']} |" for row in kernel["options"]
    )
    metrics = "\n".join(f"| `{row['name']}` | {row['better']} | {row['help']} |" for row in kernel["metrics"])
    related = "".join(_wrapped(f"`{row['option']}`: {row['help']}.") + "\n\n" for row in kernel["relations"])
    prose = f"{kernel['summary'][0].upper()}{kernel['summary'][1:]}. {kernel['method']}"
    return (
        f"### {kernel['name']} ({program})\n\n{_wrapped(prose)}\n\n"
        f"| option | allowed | default | what it is |\n|---|---|---|---|\n{options}\n\n"
        f"{related}"
        f"| metric | better | what it is |\n|---|---|---|\n{metrics}\n"
    )


def _wrapped(prose: str) -> str:
    return textwrap.fill(prose, WIDTH, break_long_words=False, break_on_hyphens=False)


def _allowed(row: dict[str, Any]) -> str:
    if row["choices"]:
        return ", ".join(row["choices"])
    if row["type"] == "boolean":
        return "true, false"
    unit = f" {row['unit']}" if row["unit"] else ""
    return f"{_plain(row['minimum'])} to {_plain(row['maximum'])}{unit}"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    PAGE.write_text(with_reference(PAGE.read_text("utf-8")), "utf-8")
