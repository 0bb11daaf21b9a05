"""Read one number as a program writes it under LC_ALL=C.

Refuses what only looks like one: 1,5  0x10  nan  1_000  and digits other than 0-9.
"""

from __future__ import annotations

import math
import re

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)


class UnreadableError(ValueError):
    """What a program wrote is not what its description says. The message reads `WHAT: FOUND: ALLOWED`."""


def read_number(text: str, what: str) -> float:
    """A finite number. Raises UnreadableError."""
    if not _NUMBER.fullmatch(text):
        raise UnreadableError(f"{what}: {shown(text)}: allowed is a number")
    number = float(text)
    if not math.isfinite(number):
        raise UnreadableError(f"{what}: {shown(text)}: allowed is a finite number")
    return number


def shown(value: object) -> str:
    """A value of a program's output as messages show it."""
    text = repr(value) if isinstance(value, str) else "nothing" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
