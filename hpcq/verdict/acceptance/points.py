"""The word on a pair over all of its runs. Pure."""

from __future__ import annotations

from enum import StrEnum

#: A job that lost this share of its repetitions brought nothing.
LOST_SHARE = 0.5

Pair = tuple[str, str]


class PairVerdict(StrEnum):
    """The word on a pair (client, server) over all its runs."""

    BAD = "bad"
    FINE = "fine"
    UNCLEAR = "unclear"
    INTERMITTENT = "intermittent"
