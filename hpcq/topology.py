"""Which node hangs on which switch, as a topology.conf says it: lines of `SwitchName=leaf1 Nodes=n[1-4]`."""

from __future__ import annotations

from hpcq import nodelist


def read_topology(text: str) -> dict[str, str]:
    """The lowest switch of each node; empty where no line names one. Raises ValueError for a bad node list."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        fields = {key.lower(): value for key, _, value in (word.partition("=") for word in line.split("#")[0].split())}
        if "switchname" in fields and "nodes" in fields and not fields.get("switches"):
            found.update(dict.fromkeys(nodelist.expand(fields["nodes"]), fields["switchname"]))
    return found
