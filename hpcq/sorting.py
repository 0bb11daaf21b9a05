"""The order in which people read names: n2 before n10."""

from __future__ import annotations

import re
from functools import lru_cache

_DIGITS = re.compile(r"(\d+)")


@lru_cache(maxsize=65536)  # a page sorts a hundred thousand rows by the names of a thousand nodes
def natural(name: str) -> list[tuple[int, int | str]]:
    """A sorting key that compares the numbers within a name as numbers."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in _DIGITS.split(name) if part]
