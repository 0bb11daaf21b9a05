"""Results by a property of the nodes: driver, firmware, rack, or any fact.

A result has two ends. Where both ends have the same value, that is its group; else both values stand, in order.
"""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hpcq import units
from hpcq.errors import UserError
from hpcq.sorting import natural
from hpcq.store.database import Connection
from hpcq.store.query import Selection, median, size_text, variant_names, where

#: Words that people use, and the end of the fact's name; {interface} is the interface under test.
_WORDS = {
    "driver": "nic.{interface}.driver",
    "firmware": "nic.{interface}.firmware",
    "speed": "nic.{interface}.speed_bps",
    "mtu": "nic.{interface}.mtu_bytes",
    "kernel": "kernel.release",
    "cpu": "cpu.model",
}
_NOT_KNOWN = "(not known)"


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One test in one group, over pairs and repetitions. level_ratio: its median beside that of all groups; 1.1 is better."""

    group: str
    cluster: str
    kernel: str
    message_bytes: int | None
    variant: str
    metric: str
    unit: str
    pair_count: int
    n: int
    median: float
    lowest: float
    highest: float
    level_ratio: float | None

    @property
    def size_text(self) -> str:
        """Its size for people; empty if the test has none."""
        return size_text(self.message_bytes)


def grouped(database: Connection, selection: Selection, by: str) -> list[GroupRow]:
    """Measured results of the selection by `by`: a word of _WORDS, a kind of group (rack, leaf) or a fact's whole name.

    Raises UserError for a word that is none of these; it lists what there is.
    """
    values = _values(database, by)
    groups: dict[tuple[Any, ...], dict[str, list[tuple[str, float]]]] = {}
    conditions, bound = where(selection)
    rows = database.execute(
        "SELECT v.cluster, v.kernel, v.message_bytes, v.parameters, v.metric, v.unit, v.client, v.server, v.value, v.network,"
        " x.attempt_id, j.client_node_id, j.server_node_id"
        f" FROM (SELECT * FROM v_results WHERE outcome = 'measured' AND value IS NOT NULL AND {conditions}) v"
        " JOIN result x ON x.result_id = v.result_id JOIN job j ON j.job_id = x.job_id",
        bound,
    ).fetchall()
    for row in rows:
        ends = [values.of(row["attempt_id"], row[f"{end}_node_id"], row["network"]) for end in ("client", "server")]
        group = ends[0] if ends[0] == ends[1] else " and ".join(sorted(ends, key=natural))
        pair = f"{row['client']} > {row['server']}"
        groups.setdefault(tuple(row)[:6], {}).setdefault(group, []).append((pair, row["value"]))
    return _rows(database, groups)


def _rows(database: Connection, tests: dict[tuple[Any, ...], dict[str, list[tuple[str, float]]]]) -> list[GroupRow]:
    better = {str(row[0]): str(row[1]) for row in database.execute("SELECT DISTINCT name, better FROM metric_name")}
    variants = variant_names((key[1], key[3]) for key in tests)
    found = []
    for (cluster, kernel, message_bytes, parameters, metric, unit), groups in tests.items():
        middle = median([value for members in groups.values() for _, value in members])
        for group, members in groups.items():
            values = [value for _, value in members]
            level = None
            if len(groups) > 1 and middle > 0 and median(values) > 0 and better[metric] != "none":
                level = median(values) / middle if better[metric] == "higher" else middle / median(values)
            spread = (len({pair for pair, _ in members}), len(values), median(values), min(values), max(values))
            head = (group, cluster, kernel, message_bytes, variants[kernel, parameters], metric, unit)
            found.append(GroupRow(*head, *spread, level))
    return sorted(found, key=lambda one: (one.cluster, one.kernel, one.message_bytes or 0, one.variant, natural(one.group)))


@dataclass(slots=True)
class _Values:
    """Looks up the value of a property. facts: by fact set and name. sets: known so far. groups: by node, for racks."""

    database: Connection
    name: str
    facts: dict[tuple[int, str], str] = field(default_factory=dict)
    groups: dict[int, str] | None = None
    sets: dict[tuple[int, int], int] = field(default_factory=dict)

    def of(self, attempt_id: int | None, node_id: int, network: str) -> str:
        """The value for a node in an attempt, measured over this interface."""
        if self.groups is not None:
            return self.groups.get(node_id, _NOT_KNOWN)
        key = (attempt_id or 0, node_id)
        if key not in self.sets:
            row = self.database.execute(
                "SELECT fact_set_id FROM node_facts WHERE attempt_id = ? AND node_id = ?", key
            ).fetchone()
            self.sets[key] = int(row[0]) if row else 0
        return self.facts.get((self.sets[key], self.name.format(interface=network)), _NOT_KNOWN)


def _values(database: Connection, by: str) -> _Values:
    kinds = [str(row[0]) for row in database.execute("SELECT DISTINCT kind FROM v_groups ORDER BY kind")]
    if by in kinds:
        rows = database.execute('SELECT node_id, "group" FROM v_groups WHERE kind = ?', (by,))
        return _Values(database, by, groups={int(row[0]): str(row[1]) for row in rows})
    name = _WORDS.get(by, by)
    pattern = name.format(interface="*")
    names = [str(row[0]) for row in database.execute("SELECT DISTINCT name FROM fact WHERE name GLOB ?", (pattern,))]
    if not names and by not in _WORDS:  # of a word that is: not known of any node
        words = ", ".join(dict.fromkeys([*_WORDS, *kinds]))
        if by in {"rack", "leaf"}:
            raise UserError(f"--group-by: no node has a {by}", "hpcq db groups FILE adds racks and leaf switches of nodes")
        near = database.execute("SELECT DISTINCT name FROM fact WHERE name LIKE ? LIMIT 6", (f"%{by}%",)).fetchall()
        hint = f"near it: {', '.join(str(row[0]) for row in near)}" if near else "hpcq facts show NODE lists the facts"
        raise UserError(f"--group-by: no node has a fact {by!r}: allowed are {words}, or a fact's whole name", hint)
    facts = {
        (int(row[0]), str(row[1])): _said(by, row[2])
        for row in database.execute(
            "SELECT sp.fact_set_id, f.name, f.value FROM fact f JOIN fact_set_part sp ON sp.fact_part_id = f.fact_part_id"
            " WHERE f.name GLOB ?",
            (pattern,),
        )
    }
    return _Values(database, name, facts)


def _said(by: str, value: object) -> str:
    """A fact for people: 100 Gbit/s instead of 100000000000."""
    unit = units.unit_of(_WORDS.get(by, by))
    return units.human(value, unit) if unit is not None and isinstance(value, (int, float)) else str(value)
