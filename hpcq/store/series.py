"""The series of a site, as columns: every one has its two nodes, a test, a network and a toolchain.

select(database, Selection(...))   those that match, in the order of their names
find_series(database, text)        the one that a person names

It loads numpy, which a driver and verbs that only read do not need: hpcq/store/history.py has what they ask.
"""

from __future__ import annotations

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from hpcq import units
from hpcq.errors import UserError
from hpcq.kernels import PairTest, size_of, size_option, size_text
from hpcq.nodelist import natural
from hpcq.store.database import Connection
from hpcq.store.history import row_id
from hpcq.store.selection import ALL_TIME, COUNTS, Selection, Window, first_defaults, of_series, within

_Named = TypeVar("_Named")


@dataclass(frozen=True, slots=True)
class SeriesRow(PairTest):
    """One series with its names. parameters: complete, except for options that this database never saw."""

    series_id: int
    toolchain: str
    variant: str
    parameters: dict[str, Any]
    parameters_json: str
    """The same as canonical text: series whose texts are equal are the same test of other nodes."""
    network_name: str | None = None
    """What the cluster's file calls its network; None: nothing."""

    @property
    def label(self) -> str:
        """`tcp_stream 128 KiB n1 > n2`: a short name that identifies the series."""
        size = f" {self.size_text}" if self.message_bytes is not None else ""
        return f"{self.kernel}{size} {self.client} > {self.server}" + (f" ({self.variant})" if self.variant else "")


@dataclass(frozen=True, slots=True)
class _Test:
    """What the parameters of a series say, for all series that have them. The fields of SeriesRow."""

    kernel: str
    size: int | None
    variant: str
    parameters: dict[str, Any]
    parameters_json: str


def _test(kernel: str, telling: dict[str, Any], first_defaults_: dict[str, Any]) -> _Test:
    size_name = size_option(kernel)
    parameters = {**first_defaults_, **telling}
    variant = ", ".join(f"{name}={units.human_of(name, value)}" for name, value in telling.items() if name != size_name)
    return _Test(kernel, size_of(size_name, parameters), variant, parameters, json.dumps(parameters, sort_keys=True))


class OfPairs(Protocol):
    """Something of a cluster that concerns some of its pairs."""

    @property
    def cluster(self) -> str: ...
    def concerns(self, client: str, server: str) -> bool: ...


class SeriesRows(Sequence[SeriesRow]):
    """Series in the order of their names, as columns: a site has half a million, and a row is made where it is asked for.

    Masks have the shape (series,).
    """

    def __init__(self, names: _Names, columns: NDArray[np.void]) -> None:
        self._names, self._columns = names, columns

    @property
    def series_id(self) -> NDArray[np.int64]:
        """The number of each."""
        return self._columns["series"]

    @property
    def ids(self) -> set[int]:
        """The numbers of all."""
        return set(self.series_id.tolist())

    @property
    def clusters(self) -> set[str]:
        """The clusters of their clients."""
        return {self._names.cluster_of[one] for one in np.unique(self._columns["client"]).tolist()}

    @property
    def pairs(self) -> set[tuple[str, str, str]]:
        """Cluster, client and server of each pair, once."""
        return {self._pair(*one) for one in self._pairs()[0]}

    def __len__(self) -> int:
        return len(self._columns)

    def __iter__(self) -> Iterator[SeriesRow]:
        return (self._row(*one) for one in self._columns.tolist())

    @overload
    def __getitem__(self, place: int) -> SeriesRow: ...
    @overload
    def __getitem__(self, place: slice) -> SeriesRows: ...
    def __getitem__(self, place: int | slice) -> SeriesRow | SeriesRows:
        chosen = self._columns[place]
        return SeriesRows(self._names, chosen) if isinstance(place, slice) else self._row(*chosen.tolist())

    def where(self, mask: NDArray[np.bool_]) -> SeriesRows:
        """Some of them."""
        return SeriesRows(self._names, self._columns[mask])

    def of(self, ids: Iterable[int]) -> SeriesRows:
        """Those of these numbers."""
        return self.where(self.are(ids))

    def are(self, ids: Iterable[int]) -> NDArray[np.bool_]:
        """Which have one of these numbers."""
        numbers = ids if isinstance(ids, np.ndarray) else np.fromiter(ids, np.int64)
        return np.asarray(np.isin(self.series_id, numbers), bool)

    def of_kernels(self, kernels: Container[str]) -> SeriesRows:
        """Those of these kernels."""
        return self.where(self.are_of_kernels(kernels))

    def are_of_kernels(self, kernels: Container[str]) -> NDArray[np.bool_]:
        """Which are of these kernels."""
        found = np.array([one.kernel in kernels for one in self._names.tests], bool)
        return np.asarray(found[self._columns["test"]], bool)

    def of_cluster(self, cluster: str) -> SeriesRows:
        """Those whose client is in this cluster."""
        return self.where(self.of_pairs(lambda its, _client, _server: its == cluster))

    def concerned_by(self, thing: OfPairs) -> NDArray[np.bool_]:
        """Which are of a pair that this concerns."""
        return self.of_pairs(lambda its, client, server: its == thing.cluster and thing.concerns(client, server))

    def of_pairs(self, fits: Callable[[str, str, str], bool]) -> NDArray[np.bool_]:
        """Of which the pair (cluster, client, server) fits; each pair is asked for once."""
        pairs, place = self._pairs()
        return np.fromiter((fits(*self._pair(*one)) for one in pairs), bool, len(pairs))[place]

    def places_of_tests(self) -> NDArray[np.int64]:
        """Where each stands by kernel, cluster, client, server and parameters, as texts. What shares a place is one test of one
        pair, over other networks or with other toolchains.
        """
        names, columns = self._names, self._columns
        of_node = _ranked(names.nodes, str)
        return _joined_ranks(
            _ranked(dict(enumerate(names.tests)), lambda one: one.kernel)[columns["test"]],
            _ranked(names.cluster_of, str)[columns["client"]],
            of_node[columns["client"]],
            of_node[columns["server"]],
            _ranked(dict(enumerate(names.tests)), lambda one: one.parameters_json)[columns["test"]],
        )

    def places_of_ways(self) -> NDArray[np.int64]:
        """Where each stands by network and toolchain."""
        return _joined_ranks(self._columns["network"].astype(np.int64), self._columns["toolchain"].astype(np.int64))

    def _pairs(self) -> tuple[list[tuple[int, int]], NDArray[np.int64]]:
        """The nodes of each pair, and by series the place of its pair there."""
        client, server = self._columns["client"], self._columns["server"]
        step = int(server.max(initial=0)) + 1
        keys, place = np.unique(client * step + server, return_inverse=True)
        return [divmod(one, step) for one in keys.tolist()], place.reshape(-1)

    def _pair(self, client: int, server: int) -> tuple[str, str, str]:
        names = self._names
        return names.cluster_of[client], names.nodes[client], names.nodes[server]

    def _row(  # noqa: PLR0917 - a row of _COLUMNS
        self, series_id: int, client: int, server: int, test_no: int, network_no: int, toolchain_no: int, variant_no: int
    ) -> SeriesRow:
        names = self._names
        test, network = names.tests[test_no], names.networks[network_no]
        return SeriesRow(
            names.cluster_of[client], test.kernel, test.size, names.nodes[client], names.nodes[server], network, series_id,
            names.toolchains[toolchain_no], names.variants[variant_no], test.parameters, test.parameters_json,
            names.network_names.get((client, network)),
        )  # fmt: skip


#: series: its number; client, server: those of its nodes; the others are places in the lists of _Names.
_COLUMNS = np.dtype(
    [(name, "i8") for name in ("series", "client", "server")]
    + [(name, "i4") for name in ("test", "network", "toolchain", "variant")]
)
_READ = np.dtype([(name, "i8") for name in ("series", "client", "server", "kind")])


@dataclass(frozen=True, slots=True)
class _Names:
    """What a site has a few of, and half a million series refer to. nodes, cluster_of: by the number of a node."""

    nodes: dict[int, str]
    cluster_of: dict[int, str]
    network_names: dict[tuple[int, str], str]
    tests: list[_Test]
    networks: list[str]
    toolchains: list[str]
    variants: list[str]


def select(database: Connection, selection: Selection, only: Iterable[int] | None = None) -> SeriesRows:
    """The series that match, by cluster, kernel, pair and size. Raises UserError for a group or parameter that is none.

    only: none but these, by number; a site may have half a million series and a run a few thousand of them.
    """
    options = first_defaults(database)
    # Joins that bring the names would cost more than the series. What few series differ in is numbered as it is read.
    kinds: dict[tuple[int, str, str, str], int] = {}
    chosen = _chosen_series(database, selection, only)
    read = np.fromiter(((*row[:3], kinds.setdefault(row[3:], len(kinds))) for row in chosen), _READ)
    kernels = dict(_pairs(database, "SELECT kernel_id, name FROM kernel"))
    numbers = {one: number for number, one in enumerate(dict.fromkeys((kind[0], kind[3]) for kind in kinds))}
    tests = [_test(kernels[kernel_id], json.loads(text), options[kernels[kernel_id]]) for kernel_id, text in numbers]
    names = _Names(
        dict(_pairs(database, "SELECT node_id, name FROM node")),
        dict(_pairs(database, "SELECT n.node_id, c.name FROM node n JOIN cluster c ON c.cluster_id = n.cluster_id")),
        {
            (node_id, interface): name
            for node_id, interface, name in database.execute(
                "SELECT n.node_id, w.interface, w.name FROM node n JOIN network w ON w.cluster_id = n.cluster_id"
            )
        },
        tests,
        sorted({kind[1] for kind in kinds}),
        sorted({kind[2] for kind in kinds}),
        list(dict.fromkeys(one.variant for one in tests)),
    )
    columns = np.empty(len(read), _COLUMNS)
    for name in ("series", "client", "server"):
        columns[name] = read[name]
    of_kind = {
        "test": [numbers[kind[0], kind[3]] for kind in kinds],
        "network": [names.networks.index(kind[1]) for kind in kinds],
        "toolchain": [names.toolchains.index(kind[2]) for kind in kinds],
        "variant": [names.variants.index(tests[numbers[kind[0], kind[3]]].variant) for kind in kinds],
    }
    for name, places in of_kind.items():
        columns[name] = np.array(places, np.int32)[read["kind"]]
    for name, values in (("network", names.networks), ("toolchain", names.toolchains)):
        _tell_apart(columns, names, name, values)
    place = _places(columns, names, lambda one: (one.size or 0,), names.variants)
    return SeriesRows(names, columns[np.argsort(place, kind="stable")])


def _pairs(database: Connection, query: str) -> Iterator[tuple[int, str]]:
    return ((int(key), str(name)) for key, name in database.execute(query))


def _places(
    columns: NDArray[np.void], names: _Names, of_test: Callable[[_Test], tuple[Any, ...]], variants: Sequence[str]
) -> NDArray[np.int64]:
    """Where each series stands by cluster, kernel, client, server, what `of_test` says of its test, and variant: a sum.

    Series that share all of them share their place.
    """
    of_node = _ranked(names.nodes, natural)
    return _joined_ranks(
        _ranked(names.cluster_of, str)[columns["client"]],
        _ranked(dict(enumerate(names.tests)), lambda one: one.kernel)[columns["test"]],
        of_node[columns["client"]],
        of_node[columns["server"]],
        _ranked(dict(enumerate(names.tests)), of_test)[columns["test"]],
        _ranked(dict(enumerate(variants)), str)[columns["variant"]],
    )


_PLACE_MAX = 1 << 62


def _joined_ranks(first: NDArray[np.int64], *others: NDArray[np.int64]) -> NDArray[np.int64]:
    """One number that orders as these do, one after the other."""
    place = first
    for rank in others:
        step = int(rank.max(initial=0)) + 1
        if int(place.max(initial=0)) >= _PLACE_MAX // step:  # a site of many names: numbered anew before 64 bits are too few
            place = np.unique(place, return_inverse=True)[1].reshape(-1)
        place = place * step + rank
    return place


def _ranked(named: Mapping[int, _Named], key: Callable[[_Named], Any]) -> NDArray[np.int64]:
    """By number, the place of its name in the order of `key`; equal ones share one."""
    keys = {number: key(name) for number, name in named.items()}
    ranks = {value: place for place, value in enumerate(sorted(set(keys.values())))}
    found = np.zeros(max(named, default=0) + 1, np.int64)
    for number, value in keys.items():
        found[number] = ranks[value]
    return found


def _tell_apart(columns: NDArray[np.void], names: _Names, name: str, values: Sequence[str]) -> None:
    """Name the network or toolchain of series that differ in nothing else: no label stands for two.

    The variants get longer, in `columns` and `names`.
    """
    if len(values) < 2 or not len(columns):
        return
    place = _places(columns, names, lambda one: (size_text(one.size),), names.variants)
    order = np.argsort(place, kind="stable")
    begins = np.flatnonzero(np.diff(place[order], prepend=-1))
    number = columns[name][order]
    several = np.minimum.reduceat(number, begins) != np.maximum.reduceat(number, begins)
    told = order[np.repeat(several, np.diff(np.append(begins, len(order))))]
    ways, way = np.unique(columns["variant"][told] * len(values) + columns[name][told], return_inverse=True)
    first = len(names.variants)
    names.variants.extend(
        ", ".join(filter(None, (names.variants[variant], f"{name}={values[number]}")))
        for variant, number in [divmod(one, len(values)) for one in ways.tolist()]
    )
    columns["variant"][told] = first + way.reshape(-1)


def find_series(database: Connection, text: str) -> SeriesRows:
    """The one series of a number, or of kernel/client/server. Raises UserError that lists the matching ones."""
    if text.isdecimal():
        series_id = row_id(text)
        near = [] if series_id is None else beside(database, series_id)
        fitting = select(database, Selection(), near).of([] if series_id is None else [series_id])
    else:
        kernel, client, server, *more = [*text.split("/"), "", ""]
        if any(more):
            raise UserError(
                f"{text!r} has {text.count('/') + 1} parts: must be KERNEL/CLIENT/SERVER", "hpcq history lists them"
            )
        wanted = Selection(kernel=kernel or None, client=client or None, server=server or None)
        fitting = select(database, wanted)
    if len(fitting) == 1:
        return fitting
    if not fitting:
        raise UserError(f"{text!r} is not a series", "hpcq history lists them; give its number or KERNEL/CLIENT/SERVER")
    shown = "; ".join(f"{row.series_id} {row.label}" for row in fitting[:8])
    raise UserError(f"{text!r} fits {len(fitting)} series", f"name one by its number: {shown}")


#: Numbers in one statement; SQLite reads at most a million characters.
_IDS_MAX = 10_000


def _chosen_series(database: Connection, selection: Selection, only: Iterable[int] | None) -> Iterator[Any]:
    """Series with the keys of their kernel and nodes. The database picks them: a site may have half a million."""
    query = "SELECT series_id, client_node_id, server_node_id, kernel_id, network, toolchain, parameters FROM series"
    condition, values = of_series(database, selection)
    condition = condition if condition == "1" else f"series_id IN (SELECT series_id FROM v_series WHERE {condition})"
    ids = None if only is None else sorted(only)
    chunks = [None] if ids is None else [ids[first : first + _IDS_MAX] for first in range(0, len(ids), _IDS_MAX)]
    for chunk in chunks:
        here = "" if chunk is None else f" AND series_id IN ({', '.join(str(int(one)) for one in chunk)})"
        cursor = database.cursor()
        cursor.row_factory = None
        yield from cursor.execute(f"{query} WHERE {condition}{here} ORDER BY series_id", values)


def beside(database: Connection, series_id: int) -> list[int]:
    """The series of the same two nodes, this one among them: those that its label must differ from."""
    rows = database.execute(
        "SELECT o.series_id FROM series s JOIN series o ON o.client_node_id = s.client_node_id"
        " AND o.server_node_id = s.server_node_id WHERE s.series_id = ?",
        (series_id,),
    )
    return [int(row[0]) for row in rows]


#: More series than this are read in one pass.
_ONE_BY_ONE = 100


def summary(
    database: Connection, rows: SeriesRows, window: Window = ALL_TIME, facts: Sequence[tuple[str, str]] = ()
) -> dict[int, tuple[int, str | None, str | None]]:
    """For each series: how many measured results of the stretch have nodes with these facts, and the first and last time."""
    found: dict[int, tuple[int, str | None, str | None]] = {}
    condition, bound = within(window, facts)
    query = (
        "SELECT count(*), min(x.started_utc), max(x.started_utc) FROM result x"
        f" WHERE x.series_id = :series AND {COUNTS} AND {condition}"
    )
    if len(rows) > _ONE_BY_ONE:
        found = {row.series_id: (0, None, None) for row in rows}
        every = query.replace("SELECT ", "SELECT x.series_id, ", 1).replace("x.series_id = :series AND ", "")
        for series_id, count, first, last in database.execute(f"{every} GROUP BY x.series_id", bound):
            if series_id in found:
                found[series_id] = (int(count), first, last)
        return found
    for row in rows:
        count, first, last = database.execute(query, {**bound, "series": row.series_id}).fetchone()
        found[row.series_id] = (int(count), first, last)
    return found
