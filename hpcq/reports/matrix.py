"""Node x node tables: which node communicates how well with which, at one look.

Rows are clients, columns are servers. If the plan has only one direction, each pair is one cell above the diagonal. A
bad node shows as a cross, a bad pair as one cell. Colours are relative to the median of the table's cells and end at
20 %. Grey cells were not planned; hatched cells were planned and not measured. With too many nodes for a page, rows and
columns are groups of nodes (leaf switches, racks; else neighbours by name), and a cell is the median of its pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hpcq import nodelist, units
from hpcq.reports.words import kernel_title, metric_title
from hpcq.sorting import natural
from hpcq.store.query import Summary, median, size_text

_CLIP_RATIO = 0.20
#: Up to this many nodes, the cells show their numbers.
_NUMBERS_MAX = 12
#: With more nodes than this, rows and columns are groups of nodes.
NODES_MAX = 128
#: What a sign of a node's name takes, at 12 px.
_SIGN_PX = 7
#: So many groups at most, where no group of the nodes is known.
_BLOCKS = 64


@dataclass(frozen=True, slots=True)
class Cell:
    """One ordered pair. kind: value, missing (planned, not measured), absent (not planned), self."""

    x: int
    y: int
    kind: str
    worse: bool
    strength: float
    number: str
    text: str


@dataclass(frozen=True, slots=True)
class Matrix:
    """One cluster, kernel and size. one_way: a pair is one cell, whatever its direction.

    unit: the metric in words. figures_in: the unit of the numbers in the cells; empty where they show none. grouped: rows
    and columns are groups of nodes.
    """

    title: str
    unit: str
    reference: str
    nodes: tuple[str, ...]
    cell_px: int
    cells: tuple[Cell, ...]
    one_way: bool = False
    figures_in: str = ""
    grouped: bool = False

    @property
    def names_lie(self) -> bool:
        """Whether each name fits above its column; else all stand upright."""
        return max(map(len, self.nodes)) * _SIGN_PX <= self.cell_px


def make_matrices(
    summaries: Sequence[Summary],
    planned: Collection[tuple[str, str, str]],
    groups_of: Mapping[tuple[str, str], Sequence[str]] | None = None,
) -> list[Matrix]:
    """One matrix per cluster and kernel: throughput at its largest size, latency at its smallest.

    planned: (cluster, client, server) of every planned pair. groups_of: the groups of nodes, by cluster and name.
    """
    groups: dict[tuple[str, str], list[Summary]] = {}
    for one in summaries:
        if one.main and not nodelist.names_several(one.server):  # what a set of nodes ran is no pair's
            groups.setdefault((one.cluster, one.kernel), []).append(one)
    made = []
    for (cluster, kernel), group in groups.items():
        choose = max if group[0].better == "higher" else min
        message_bytes = choose((one.message_bytes for one in group if one.message_bytes is not None), default=None)
        here = [one for one in group if one.message_bytes == message_bytes]
        variant = min(one.variant for one in here)
        here = [one for one in here if one.variant == variant]
        pairs = {(client, server) for at, client, server in planned if at == cluster and not nodelist.names_several(server)}
        nodes = sorted({node for pair in pairs for node in pair}, key=natural)
        if len(nodes) > 2:
            words = [
                kernel_title(kernel),
                *([size_text(message_bytes)] if message_bytes is not None else []),
                *([variant] if variant else []),
            ]
            title = f"{cluster}: {', '.join(words)}"
            if len(nodes) <= NODES_MAX:
                made.append(_matrix(title, here, nodes, pairs))
            else:
                known = {node: (groups_of or {}).get((cluster, node), ()) for node in nodes}
                made.append(_of_groups(title, here, pairs, _grouped(nodes, known)))
    return made


def _grouped(nodes: Sequence[str], known: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The group of each node: of the first kind that all have and that is not one for all; else neighbours by name."""
    for kind in dict.fromkeys(name.partition(" ")[0] for names in known.values() for name in names):
        found = {node: name for node in nodes for name in known[node] if name.startswith(f"{kind} ")}
        if len(found) == len(nodes) and 2 < len(set(found.values())) <= NODES_MAX:
            return found
    size = -(-len(nodes) // _BLOCKS)
    blocks = [nodes[first : first + size] for first in range(0, len(nodes), size)]
    return {node: f"{block[0]} to {block[-1]}" if len(block) > 1 else node for block in blocks for node in block}


def _of_groups(
    title: str, here: Sequence[Summary], planned: Collection[tuple[str, str]], group_of: Mapping[str, str]
) -> Matrix:
    """A cell is the median of the pairs between two groups; what is under the mouse names the worst of them."""
    cells: dict[tuple[str, str], list[Summary]] = {}
    for one in here:
        cells.setdefault((group_of[one.client], group_of[one.server]), []).append(one)
    worst = min if here[0].better == "higher" else max
    summaries, said = [], {}
    for (client, server), pairs in cells.items():
        furthest = worst(pairs, key=lambda one: one.median)
        value = median([one.median for one in pairs])
        summaries.append(replace(pairs[0], client=client, server=server, median=value, n=len(pairs)))
        shown = units.human(furthest.median, furthest.unit)
        count = units.count_of(len(pairs), "pair")
        said[client, server] = f"{count}, the worst {furthest.client} to {furthest.server} with {shown}"
    names = sorted(set(group_of.values()), key=natural)
    wanted = {(group_of[client], group_of[server]) for client, server in planned}
    made = _matrix(f"{title}, by {_kind(names)}", summaries, names, wanted, one_way=False)
    told = tuple(
        replace(cell, text=f"{cell.text.partition(', n = ')[0]}; {said[pair]})")
        if (pair := (names[cell.y], names[cell.x])) in said
        else cell
        for cell in made.cells
    )
    kind = f"{_kind(names)} "  # the title says it, so the names need not
    return replace(made, cells=told, nodes=tuple(name.removeprefix(kind) for name in names), grouped=True)


def _kind(names: Sequence[str]) -> str:
    """What the groups are: `leaf`; of neighbours by name, `blocks of nodes`."""
    kinds = {name.partition(" ")[0] for name in names}
    return kinds.pop() if len(kinds) == 1 else "blocks of nodes"


def _matrix(
    title: str,
    here: Sequence[Summary],
    nodes: Sequence[str],
    planned: Collection[tuple[str, str]],
    *,
    one_way: bool | None = None,
) -> Matrix:
    reference = median([one.median for one in here])
    figures_in, written = units.human_like(reference, here[0].unit)
    values = {(one.client, one.server): one for one in here}
    numbered = len(nodes) <= _NUMBERS_MAX
    if one_way is None:
        one_way = not any((server, client) in planned for client, server in planned)
    cells = []
    for y, first in enumerate(nodes):
        for x, second in enumerate(nodes):
            pair = (second, first) if one_way and (second, first) in planned else (first, second)
            if x >= y or not one_way:
                cells.append(_cell((x, y), pair, values.get(pair), planned, reference, written=written if numbered else None))
    return Matrix(
        title=title,
        unit=metric_title(here[0].metric),
        one_way=one_way,
        reference=units.human(reference, here[0].unit),
        nodes=tuple(nodes),
        cell_px=44 if numbered else max(5, 560 // len(nodes)),
        cells=tuple(cells),
        figures_in=figures_in if numbered else "",
    )


def _cell(
    at: tuple[int, int],
    pair: tuple[str, str],
    one: Summary | None,
    planned: Collection[tuple[str, str]],
    reference: float,
    *,
    written: Callable[[float], str] | None,
) -> Cell:
    """written: what writes the number in the cell; None: there is no room for one."""
    client, server = pair
    if one is None:
        kind = "self" if client == server else "missing" if pair in planned else "absent"
        words = {"self": "the same node", "missing": "planned, not measured", "absent": "not planned"}
        return Cell(*at, kind, worse=False, strength=0.0, number="", text=f"{client} to {server}: {words[kind]}")
    change = (one.median - reference) / abs(reference) if reference else 0.0
    worse = change < 0 if one.better == "higher" else change > 0
    text = f"{client} to {server}: {units.human(one.median, one.unit)} ({change:+.1%} from the median, n = {one.n})"
    strength = round(min(abs(change) / _CLIP_RATIO, 1.0), 3)
    return Cell(*at, "value", worse=worse, strength=strength, number=written(one.median) if written else "", text=text)
