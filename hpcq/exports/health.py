"""The last verdict on each node as lines that a node's own health check reads with the shell alone.

    # hpcq health 1 2026-11-22T16:00:00Z
    n1 pass 2026-11-21T04:00:00Z as expected
    n2 failed 2026-11-21T04:00:00Z 62 % of what is expected, with 5 of 5 partners

NODE VERDICT DECIDED_UTC REASON. A node without a verdict has the verdict `none`.
"""

from __future__ import annotations

from collections.abc import Iterable

from hpcq.verdict.record import Thing, VerdictRecord

_HEAD = "# hpcq health 1"


def health_text(records: Iterable[VerdictRecord], nodes: Iterable[str], made_utc: str) -> str:
    """The whole file. nodes: all nodes of the cluster; records: the last verdicts, of which those on nodes count."""
    known = {one.name: one for one in records if one.kind is Thing.NODE}
    lines = [f"{_HEAD} {made_utc[:19]}Z"]
    for node in nodes:
        one = known.get(node)
        words = ("none", "-", "not accepted yet") if one is None else (one.verdict.value, one.decided_utc, one.reason)
        lines.append(" ".join([node, *(" ".join(word.split()) for word in words)]))
    return "\n".join(lines) + "\n"
