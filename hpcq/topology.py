"""Which node is on which switch, from a topology.conf: `SwitchName=leaf1 Nodes=n[1-4]`, or `BlockName=b1 Nodes=…`."""

from __future__ import annotations

from hpcq import nodelist


def read_topology(text: str) -> dict[str, str]:
    """The lowest switch, or the block, of each node; empty if no line names one. Raises ValueError for a bad list."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        fields = {key.lower(): value for key, _, value in (word.partition("=") for word in line.split("#")[0].split())}
        name = fields.get("switchname") or fields.get("blockname")
        if name and "nodes" in fields and not fields.get("switches"):
            found.update(dict.fromkeys(nodelist.expand(fields["nodes"]), name))
    return found
