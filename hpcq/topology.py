"""Which node is on which switch, and which nodes no switch joins, from lines as in a topology.conf.

SwitchName=leaf1 Nodes=n[1-4]          a leaf switch and its nodes
SwitchName=spine Switches=leaf[1-2]    what joins switches
BlockName=b1 Nodes=n[1-4]              a block, or a ring: one leaf each; jobs may have nodes of several
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcq import nodelist


@dataclass(frozen=True, slots=True)
class Topology:
    """leaves: the lowest switch, or the block, of each node.

    fabrics: the top switch of each node where switches of a tree have no common one, so that no job has nodes of both.
    Empty otherwise.
    """

    leaves: Mapping[str, str] = field(default_factory=dict)
    fabrics: Mapping[str, str] = field(default_factory=dict)


def read_topology(text: str, *, spans: bool = False) -> Topology:
    """Read such lines; no line that names a switch gives an empty topology. Raises ValueError for a bad list.

    spans: jobs may have nodes of switches that nothing joins (TopologyParam=TopoOptional).
    """
    leaves: dict[str, str] = {}
    joined: dict[str, str] = {}
    members: dict[str, str] = {}

    def top(switch: str) -> str:
        while joined.setdefault(switch, switch) != switch:
            switch = joined[switch]
        return switch

    for line in text.splitlines():
        fields = {key.lower(): value for key, _, value in (word.partition("=") for word in line.split("#")[0].split())}
        name = fields.get("switchname") or fields.get("blockname") or fields.get("ringname")
        below, nodes = (fields.get(key, "").replace("(null)", "") for key in ("switches", "nodes"))
        if name and below:
            for switch in nodelist.expand(below):
                joined[top(switch)] = top(name)
        elif name and nodes:
            mine = dict.fromkeys(nodelist.expand(nodes), name)
            leaves.update(mine)
            members.update(mine if "switchname" in fields else {})
    fabrics = {node: top(leaf) for node, leaf in members.items()}
    return Topology(leaves, fabrics if not spans and len(set(fabrics.values())) > 1 else {})
