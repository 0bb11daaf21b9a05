"""Answer questions to results.db with plain values; nothing here writes.

    with reading(path) as database:
        summaries(database, Selection(run))           median and spread by pair, size and metric

No heavy imports here: reading verbs start in well under 0.2 s.
"""

from __future__ import annotations

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound
import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from hpcq import units
from hpcq.errors import UserError
from hpcq.kernels import PairTest, size_option, unknown_name
from hpcq.nodelist import natural, single_nodes
from hpcq.store.database import Connection
from hpcq.store.selection import Selection, of_results

if TYPE_CHECKING:
    from hpcq.store.database import Connection


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run on one cluster; the counts of outcomes add up to planned_count."""

    run: str
    campaign: str
    cluster: str
    created_utc: str
    opened_utc: str | None
    closed_utc: str | None
    loaded_utc: str
    planned_count: int
    measured_count: int
    invalid_count: int
    failed_count: int
    not_measured_count: int
    hpcq_version: str
    seed: int | None
    kind: str
    """`campaign`; `import`: other programs measured it, and there is no evidence."""
    suspected_utc: str | None
    """When its suspects were looked for, to measure them again; None: they were not."""

    @property
    def complete(self) -> bool:
        """Whether everything planned was measured."""
        return self.measured_count == self.planned_count


@dataclass(frozen=True, slots=True)
class ResultRow(PairTest):
    """The outcome of one planned repetition, with its main metric."""

    result_id: int
    run: str
    campaign: str
    test_no: int
    repetition_no: int
    outcome: str
    metric: str | None
    value: float | None
    unit: str | None
    reason: str | None
    started_utc: str | None
    exit_code: int | None
    disturbed: int
    crossed_interface: str
    series_id: int
    job: str
    attempt_no: int | None
    parameters: str
    raw_file: str | None
    network_name: str | None
    """What the cluster's file calls it; None: nothing."""
    purpose: str
    """`plan`; `confirmation`: its job measured a suspect again."""


#: Before the toolchain in the variant of a test.
_TOOLCHAIN = "toolchain="


@dataclass(frozen=True, slots=True)
class Summary(PairTest):
    """One metric of one test between two nodes, over its repetitions."""

    variant: str
    """Other parameters that differ between the tests of this kernel: `no_delay=true`; empty if none does."""
    metric: str
    unit: str
    better: str
    main: bool
    n: int
    median: float
    lowest: float
    highest: float
    disturbed_count: int
    """How many of n have evidence of other work on a node during the measurement."""
    purpose: str = "plan"
    """`confirmation`: these repetitions measured a suspect again."""

    @property
    def toolchain(self) -> str:
        """Of a kernel that ran with several; it ends the variant."""
        return self.variant.partition(_TOOLCHAIN)[2]

    @property
    def spread_ratio(self) -> float | None:
        """Highest minus lowest, divided by the median; None if the median is zero."""
        return (self.highest - self.lowest) / abs(self.median) if self.median else None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One submission and how it ended."""

    run: str
    cluster: str
    job: str
    attempt_no: int
    client: str
    server: str
    scheduler_job_id: str | None
    state: str | None
    outcome: str | None
    reason: str | None
    exit_code: int | None
    nodes: str
    committed_utc: str
    submitted_utc: str | None
    started_utc: str | None
    ended_utc: str | None
    tag: str


def runs(database: sqlite3.Connection, run: str | None = None) -> list[RunRow]:
    """Every run and cluster, latest first; or the rows of one run."""
    query = f"SELECT {columns(RunRow)} FROM v_runs WHERE ?1 IS NULL OR run = ?1 ORDER BY created_utc DESC, run, cluster"
    return [RunRow(*row) for row in database.execute(query, (run,))]


def results(
    database: sqlite3.Connection, selection: Selection, *, all_tries: bool = False, missing_only: bool = False
) -> list[ResultRow]:
    """One row per planned repetition, ordered by cluster, job, test and repetition; or every attempt."""
    conditions, values = of_results(database, selection)
    counted = "" if all_tries else " AND final = 1 AND retracted IS NULL"
    # not `<> 'measured'`: the words stand in an index
    counted += " AND outcome IN ('invalid', 'failed', 'not_measured')" if missing_only else ""
    query = (
        f"SELECT {columns(ResultRow)} FROM v_all_results WHERE {conditions}{counted}"
        " ORDER BY run, cluster, job, test_no, repetition_no, attempt_no"
    )
    return [ResultRow(*row) for row in database.execute(query, values)]


def in_metric(database: sqlite3.Connection, rows: Sequence[ResultRow], metric: str) -> list[ResultRow]:
    """The same results with this metric instead of the main one, without those of kernels that lack it."""
    units_of = dict(
        database.execute(
            "SELECT k.name, n.unit FROM metric_name n JOIN kernel k ON k.kernel_id = n.kernel_id WHERE n.name = ?", (metric,)
        ).fetchall()
    )
    query = (
        "SELECT m.value FROM metric m JOIN metric_name n ON n.metric_name_id = m.metric_name_id"
        " WHERE m.result_id = ? AND n.name = ?"
    )
    found = []
    for row in rows:
        if row.kernel in units_of:
            value = database.execute(query, (row.result_id, metric)).fetchone()
            one = None if value is None else float(value[0])
            found.append(replace(row, metric=metric, value=one, unit=str(units_of[row.kernel])))
    return found


def not_measured(database: sqlite3.Connection, selection: Selection) -> list[ResultRow]:
    """Planned measurements that are missing, each with its reason."""
    return results(database, selection, missing_only=True)


def outcome_counts(database: sqlite3.Connection, selection: Selection) -> dict[str, int]:
    """How many planned results have which outcome: measured, invalid, failed, not_measured. Retracted ones do not count."""
    conditions, values = of_results(database, selection)
    query = f"SELECT outcome, count(*) FROM {_COUNTED} WHERE {conditions} GROUP BY outcome"
    return {str(outcome): int(count) for outcome, count in database.execute(query, values)}


def imported_count(database: sqlite3.Connection, selection: Selection) -> int:
    """How many planned results are of runs that `hpcq import` brought. Retracted ones do not count."""
    if database.execute("SELECT 1 FROM run WHERE kind = 'import' LIMIT 1").fetchone() is None:
        return 0
    conditions, values = of_results(database, selection)
    query = f"SELECT count(*) FROM v_results WHERE {conditions} AND run IN (SELECT name FROM run WHERE kind = 'import')"
    return int(database.execute(query, values).fetchone()[0])


def summaries(
    database: sqlite3.Connection,
    selection: Selection,
    *,
    metric: str | None = None,
    all_metrics: bool = False,
    also: Sequence[str] = (),
    confirmations: bool = False,
) -> list[Summary]:
    """Median and spread by cluster, kernel, pair, size and metric. confirmations: what measured suspects again has rows, too.

    metric: only this one. Without it, each kernel's main metric and those of `also`; with all_metrics, every one.
    """
    names = _Names.of(database)
    source, bound = _values(database, selection, names, metric, all_metrics=all_metrics, also=also)
    source += "" if confirmations else " AND v.purpose = 'plan'"
    groups, disturbed = _groups(database, source, bound, names)
    return _made(groups, disturbed, names, {_Test(*key[:5]) for key in groups})


@dataclass(frozen=True, slots=True)
class FirstSummaries:
    """The first rows of `summaries`, and what a table has to know of all of them: how many there are, and their tests."""

    rows: list[Summary]
    count: int
    networks: set[tuple[str, str]]
    """Cluster and network of each."""
    has_variants: bool
    has_confirmations: bool


def first_summaries(
    database: sqlite3.Connection, selection: Selection, limit: int, *, metric: str | None = None, all_metrics: bool = False
) -> FirstSummaries:
    """The first `limit` of `summaries` with confirmations: values are read of these only, and of the others what they are."""
    names = _Names.of(database)
    source, bound = _values(database, selection, names, metric, all_metrics=all_metrics)
    cursor = database.cursor()
    cursor.row_factory = None
    tests = {_Test(*row) for row in cursor.execute(f"SELECT DISTINCT {_TEST_COLUMNS} {source}", bound)}
    rows: list[Summary] = []
    for cluster_id, kernel_id in sorted({(one.cluster_id, names.kernel_ids[one.set_id]) for one in tests}, key=names.order):
        if len(rows) >= limit:
            break
        here = f"{source} AND v.cluster_id = {cluster_id:d} AND v.kernel_id = {kernel_id:d}"
        clients = [row[0] for row in cursor.execute(f"SELECT DISTINCT v.client_node_id {here}", bound)]
        clients.sort(key=names.node_ranks.__getitem__)
        while clients and len(rows) < limit:  # each has a row at least
            last = names.node_ranks[clients[: limit - len(rows)][-1]]
            taken = [one for one in clients if names.node_ranks[one] <= last]
            clients = clients[len(taken) :]
            these = f"{here} AND v.client_node_id IN ({', '.join(map(str, taken))})"
            rows += _made(*_groups(database, these, bound, names), names, tests)
    return FirstSummaries(
        rows[:limit],
        _count(database, source, bound, names, tests, all_metrics=all_metrics),
        {(names.clusters[one.cluster_id], one.network) for one in tests},
        any(_variants(names, tests).values()),
        any(one.purpose != "plan" for one in tests),
    )


class _Test(NamedTuple):
    """What was measured, and why; not between which nodes."""

    cluster_id: int
    set_id: int
    network: str
    toolchain: str
    purpose: str


_TEST_COLUMNS = "v.cluster_id, v.parameter_set_id, v.network, v.toolchain, v.purpose"
#: Results that count, with the columns that conditions on v_results name. A name that no condition has is not looked up; the
#: joins of the view look up each name of each result.
_COUNTED = """
    (SELECT x.result_id, x.series_id, x.parameter_set_id, x.outcome, x.started_utc, x.disturbed, j.client_node_id,
            j.server_node_id, j.purpose, rc.cluster_id, r.name AS run, ps.kernel_id, ps.json AS parameters,
            k.name AS kernel, k.main_metric_name_id, se.network, se.toolchain,
            (SELECT name FROM cluster c7 WHERE c7.cluster_id = rc.cluster_id) AS cluster,
            (SELECT name FROM node n7 WHERE n7.node_id = j.client_node_id) AS client,
            (SELECT name FROM node n7 WHERE n7.node_id = j.server_node_id) AS server,
            (SELECT w7.name FROM network w7 JOIN node n7 ON n7.cluster_id = w7.cluster_id
             WHERE n7.node_id = se.client_node_id AND w7.interface = se.network) AS network_name
     FROM run r
     JOIN run_cluster rc ON rc.run_id = r.run_id
     JOIN job j ON j.run_cluster_id = rc.run_cluster_id
     JOIN result x ON x.job_id = j.job_id
     JOIN series se ON se.series_id = x.series_id
     JOIN parameter_set ps ON ps.parameter_set_id = x.parameter_set_id
     JOIN kernel k ON k.kernel_id = ps.kernel_id
     LEFT JOIN retraction t ON t.result_id = x.result_id
     WHERE x.final = 1 AND t.result_id IS NULL)
"""


@dataclass(frozen=True, slots=True)
class _Names:
    """What the keys in results mean, and in which order they stand. same: of nodes with one name, in links, the first."""

    clusters: dict[int, str]
    nodes: dict[int, str]
    same: dict[int, int]
    node_ranks: dict[int, int]
    kernel_ids: dict[int, int]
    tests: dict[int, tuple[str, int | None, str]]
    """Kernel, message size and parameters of each set."""
    metrics: dict[int, tuple[str, str, str, bool, int]]
    """Name, unit, good direction, whether it is its kernel's main one, and its place."""

    @classmethod
    def of(cls, database: sqlite3.Connection) -> _Names:
        """Read them: few, whatever the number of results."""
        nodes = {int(key): str(name) for key, name in database.execute("SELECT node_id, name FROM node ORDER BY node_id")}
        first: dict[str, int] = {}
        order = {name: natural(name) for name in nodes.values()}
        ranks = {one: rank for rank, one in enumerate(sorted(set(order.values())))}
        sets = database.execute(
            "SELECT p.parameter_set_id, p.kernel_id, k.name, p.message_bytes, p.json FROM parameter_set p"
            " JOIN kernel k ON k.kernel_id = p.kernel_id"
        ).fetchall()
        metrics = database.execute(
            "SELECT n.metric_name_id, n.name, n.unit, n.better, n.metric_name_id = k.main_metric_name_id, n.position_no"
            " FROM metric_name n JOIN kernel k ON k.kernel_id = n.kernel_id"
        )
        return cls(
            clusters=dict(database.execute("SELECT cluster_id, name FROM cluster").fetchall()),
            nodes=nodes,
            same={key: first.setdefault(name, key) for key, name in nodes.items()},
            node_ranks={key: ranks[order[name]] for key, name in nodes.items()},
            kernel_ids={row[0]: row[1] for row in sets},
            tests={row[0]: (row[2], row[3], row[4]) for row in sets},
            metrics={key: (name, unit, better, bool(main), place) for key, name, unit, better, main, place in metrics},
        )

    @property
    def is_shared(self) -> bool:
        """Whether a name is that of several nodes."""
        return any(key != first for key, first in self.same.items())

    def order(self, place: tuple[int, int]) -> tuple[str, str]:
        """By cluster and kernel, of which keys are given."""
        kernels = {self.kernel_ids[one]: kernel for one, (kernel, _, _) in self.tests.items()}
        return self.clusters[place[0]], kernels[place[1]]


def _values(
    database: sqlite3.Connection,
    selection: Selection,
    names: _Names,
    metric: str | None,
    *,
    all_metrics: bool,
    also: Sequence[str] = (),
) -> tuple[str, dict[str, Any]]:
    """From which tables the wanted values of measured results come, and under which condition."""
    conditions, bound = of_results(database, selection, "v.result_id")
    if all_metrics:
        wanted = ""
    else:
        named = {metric} if metric is not None else set(also)
        ids = [str(key) for key, (name, *_) in names.metrics.items() if name in named]
        wanted = f" AND m.metric_name_id IN ({', '.join(ids if metric is not None else ['v.main_metric_name_id', *ids])})"
    source = f"FROM {_COUNTED} v JOIN metric m ON m.result_id = v.result_id{wanted}"
    return f"{source} WHERE v.outcome = 'measured' AND {conditions}", bound


_Groups = dict[tuple[Any, ...], list[float]]


def _groups(
    database: sqlite3.Connection, source: str, bound: Mapping[str, Any], names: _Names
) -> tuple[_Groups, Counter[tuple[Any, ...]]]:
    """The values by _Test, nodes and metric; and how many of them were measured beside other work."""
    cursor = database.cursor()
    cursor.row_factory = None
    query = f"SELECT {_TEST_COLUMNS}, v.client_node_id, v.server_node_id, m.metric_name_id, m.value, v.disturbed {source}"
    groups: _Groups = {}
    disturbed: Counter[tuple[Any, ...]] = Counter()
    once: dict[Any, Any] = {}  # SQLite makes each text anew, and a run repeats the same few a million times
    same = names.same if names.is_shared else None
    for row in cursor.execute(query, bound):
        key = row[:8]
        if same is not None:
            key = (*key[:5], same[key[5]], same[key[6]], key[7])
        if key in groups:
            groups[key].append(row[8])
        else:
            groups[tuple([once.setdefault(one, one) for one in key])] = [row[8]]
        if row[9]:
            disturbed[key] += 1
    return groups, disturbed


def _count(
    database: sqlite3.Connection,
    source: str,
    bound: Mapping[str, Any],
    names: _Names,
    tests: Collection[_Test],
    *,
    all_metrics: bool,
) -> int:
    """How many groups there are. What all have alike tells none from another; three keys make one number."""
    ends = ["v.client_node_id", "v.server_node_id"]
    if names.is_shared:
        first = "(SELECT min(b.node_id) FROM node a JOIN node b ON b.name = a.name WHERE a.node_id = {})"
        ends = [first.format(one) for one in ends]
    keys = (
        f"({ends[0]} * {max(names.nodes, default=0) + 1} + {ends[1]}) * {max(names.tests, default=0) + 1} + v.parameter_set_id"
    )
    varying = [
        f"v.{name}"
        for name in ("cluster_id", "network", "toolchain", "purpose")
        if len({getattr(one, name) for one in tests}) > 1
    ]
    cursor = database.cursor()
    cursor.row_factory = None
    varying += ["m.metric_name_id"] if all_metrics else []
    found = cursor.execute(f"SELECT {', '.join([keys, *varying])} {source}", bound)
    return len(set(found))


def _variants(names: _Names, tests: Collection[_Test]) -> dict[tuple[int, str], str]:
    """By parameter set and toolchain: what distinguishes it from the kernel's other tests among these."""
    told = variant_names({(names.tests[one.set_id][0], names.tests[one.set_id][2]) for one in tests})
    several = _with_several((names.tests[one.set_id][0], one.toolchain) for one in tests)
    found = {}
    for one in tests:
        kernel, _, parameters = names.tests[one.set_id]
        variant = _of_toolchain(told[kernel, parameters], one.toolchain if kernel in several else "")
        found[one.set_id, one.toolchain] = variant
    return found


def _made(groups: _Groups, disturbed: Counter[tuple[Any, ...]], names: _Names, tests: Collection[_Test]) -> list[Summary]:
    """The rows in their order. tests: all that the selection has, which decide what is a variant."""
    variants = _variants(names, tests)
    ordered = sorted({one.set_id for one in tests}, key=lambda one: _test_order(*names.tests[one]))
    ranks = {one: rank for rank, one in enumerate(ordered)}

    def order(key: tuple[Any, ...]) -> tuple[Any, ...]:
        cluster_id, set_id, network, toolchain, purpose, client_id, server_id, metric_id = key
        kernel, nodes, place = names.tests[set_id][0], names.node_ranks, names.metrics[metric_id][4]
        test = (names.clusters[cluster_id], kernel, nodes[client_id], nodes[server_id], ranks[set_id], place, network)
        return *test, toolchain, purpose != "plan"

    made = []
    for key in sorted(groups, key=order):
        found, (cluster_id, set_id, network, toolchain, purpose, client_id, server_id, metric_id) = groups[key], key
        kernel, message_bytes, _ = names.tests[set_id]
        name, unit, better, main, _ = names.metrics[metric_id]
        spread = (len(found), median(found), min(found), max(found), disturbed[key])
        test = (names.clusters[cluster_id], kernel, message_bytes, names.nodes[client_id], names.nodes[server_id], network)
        made.append(Summary(*test, variants[set_id, toolchain], name, unit, better, main, *spread, purpose))
    return made


def _test_order(kernel: str, message_bytes: int | None, parameters: str) -> tuple[str, int, str]:
    return kernel, message_bytes or 0, parameters


def main_medians(database: sqlite3.Connection, run: str) -> Iterator[tuple[tuple[str, str, int | None, str, str], float, bool]]:
    """Of each of `summaries` of a run in its kernel's main metric: cluster, kernel, size, variant and metric; its median; and
    whether all of it was measured beside other work.

    In no order, and for a fifth of the time.
    """
    tests = {
        row[0]: row[1:]
        for row in database.execute(
            "SELECT p.parameter_set_id, k.name, p.message_bytes, p.json, n.name FROM parameter_set p"
            " JOIN kernel k ON k.kernel_id = p.kernel_id JOIN metric_name n ON n.metric_name_id = k.main_metric_name_id"
        )
    }
    cursor = database.cursor()
    cursor.row_factory = None
    groups: dict[tuple[Any, ...], list[float]] = {}
    clean: set[tuple[Any, ...]] = set()
    for *key, value, disturbed in cursor.execute(_MAIN_VALUES, (run,)):
        group = tuple(key)
        groups.setdefault(group, []).append(value)
        if not disturbed:
            clean.add(group)
    variants = variant_names({(tests[key[1]][0], tests[key[1]][2]) for key in groups})
    several = _with_several((tests[key[1]][0], key[5]) for key in groups)
    for key, found in groups.items():
        kernel, message_bytes, parameters, metric = tests[key[1]]
        variant = _of_toolchain(variants[kernel, parameters], key[5] if kernel in several else "")
        yield (key[0], kernel, message_bytes, variant, metric), median(found), key not in clean


def _with_several(used: Iterable[tuple[str, str]]) -> set[str]:
    """The kernels of these (kernel, toolchain) that have more than one toolchain."""
    kernels = Counter(kernel for kernel, _ in set(used))
    return {kernel for kernel, count in kernels.items() if count > 1}


def _of_toolchain(variant: str, toolchain: str) -> str:
    return ", ".join(filter(None, (variant, toolchain and f"{_TOOLCHAIN}{toolchain}")))


_MAIN_VALUES = """
    SELECT c.name, x.parameter_set_id, j.client_node_id, j.server_node_id, se.network, se.toolchain, m.value, x.disturbed
    FROM run r
    JOIN run_cluster rc ON rc.run_id = r.run_id
    JOIN cluster c ON c.cluster_id = rc.cluster_id
    JOIN job j ON j.run_cluster_id = rc.run_cluster_id AND j.purpose = 'plan'
    JOIN result x ON x.job_id = j.job_id AND x.final = 1 AND x.outcome = 'measured'
    JOIN series se ON se.series_id = x.series_id
    JOIN parameter_set ps ON ps.parameter_set_id = x.parameter_set_id
    JOIN kernel k ON k.kernel_id = ps.kernel_id
    JOIN metric m ON m.result_id = x.result_id AND m.metric_name_id = k.main_metric_name_id
    LEFT JOIN retraction t ON t.result_id = x.result_id
    WHERE r.name = ? AND t.result_id IS NULL
"""


def attempts(database: sqlite3.Connection, run: str) -> list[AttemptRow]:
    """Every submission of a run, in the order they were made."""
    query = f"SELECT {columns(AttemptRow)} FROM v_attempts WHERE run = ? ORDER BY cluster, committed_utc, job, attempt_no"
    return [AttemptRow(*row) for row in database.execute(query, (run,))]


def variant_names(tests: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """For each (kernel, parameters as JSON): what, beside the size, distinguishes it from the kernel's other tests."""
    by_kernel: dict[str, dict[str, Mapping[str, Any]]] = {}
    for kernel, text in tests:
        by_kernel.setdefault(kernel, {})[text] = json.loads(text)
    names = {}
    for kernel, sets in by_kernel.items():
        options = {name for parameters in sets.values() for name in parameters} - {size_option(kernel)}
        differing = sorted(
            name for name in options if len({json.dumps(parameters.get(name)) for parameters in sets.values()}) > 1
        )
        for text, parameters in sets.items():
            names[kernel, text] = ", ".join(f"{name}={units.human_of(name, parameters.get(name))}" for name in differing)
    return names


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two in the middle."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def columns(row: type) -> str:
    return ", ".join(row.__dataclass_fields__)  # type: ignore[attr-defined]  # every caller passes a dataclass


# ----------------------------------------------------------------------------------------------------------------------
# Names and counts of results, without the results: a run may have a hundred thousand of them.


@dataclass(frozen=True, slots=True)
class KernelOfPair:
    """A kernel that ran between two nodes."""

    cluster: str
    kernel: str
    client: str
    server: str


def places(database: sqlite3.Connection, selection: Selection) -> list[KernelOfPair]:
    """Every cluster, kernel and pair of the selected results, once."""
    conditions, values = of_results(database, selection)
    query = f"SELECT DISTINCT {columns(KernelOfPair)} FROM v_results WHERE {conditions}"
    return [KernelOfPair(*row) for row in database.execute(query, values)]


def tests_of(database: sqlite3.Connection, selection: Selection) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """The parameters of the selected tests, by cluster, client, server and kernel."""
    conditions, values = of_results(database, selection)
    query = f"SELECT DISTINCT cluster, client, server, kernel, parameters FROM v_results WHERE {conditions}"
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for *names, parameters in database.execute(query, values):
        found.setdefault(tuple(names), []).append(json.loads(parameters))
    return found


def pairs_of_run(database: sqlite3.Connection, run: str) -> set[tuple[str, str, str]]:
    """Cluster, client and server of every planned pair."""
    rows = database.execute("SELECT DISTINCT cluster, client, server FROM v_pairs WHERE run = ?", (run,))
    return {(str(row[0]), str(row[1]), str(row[2])) for row in rows}


def kernels_of_several_toolchains(database: sqlite3.Connection, run_id: int) -> set[str]:
    """The kernels that a run measured with more than one toolchain: a pair does not say which series is meant."""
    rows = database.execute(
        "SELECT k.name FROM run_cluster rc JOIN job j ON j.run_cluster_id = rc.run_cluster_id"
        " JOIN result x ON x.job_id = j.job_id JOIN series s ON s.series_id = x.series_id"
        " JOIN kernel k ON k.kernel_id = s.kernel_id WHERE rc.run_id = ?"
        " GROUP BY k.name HAVING count(DISTINCT s.toolchain) > 1",
        (run_id,),
    )
    return {str(row[0]) for row in rows}


def repeated_series(database: sqlite3.Connection, run: str, job_count: int) -> set[int]:
    """Series of a run that at least so many jobs of any run were to measure: the others have no history."""
    rows = database.execute(
        "SELECT x.series_id FROM result x WHERE x.series_id IN (SELECT y.series_id FROM v_pairs p"
        " JOIN result y ON y.job_id = p.job_id WHERE p.run = ?) GROUP BY x.series_id HAVING count(DISTINCT x.job_id) >= ?",
        (run, job_count),
    )
    return {int(row[0]) for row in rows}


def network_texts(database: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """By cluster and interface: a network for people, `ib (ib0)`. Only those that a cluster's file names."""
    return {key: text for key, (_, text) in named_networks(database).items()}


def network_text(name: str | None, interface: str) -> str:
    """A network for people: its name in the cluster file, if it has one, and the interface."""
    return f"{name} ({interface})" if name and name != interface else interface


def named_networks(database: sqlite3.Connection) -> dict[tuple[str, str], tuple[str, str]]:
    """The same with the bare name before the text."""
    query = "SELECT c.name, w.interface, w.name FROM network w JOIN cluster c ON c.cluster_id = w.cluster_id"
    return {
        (str(cluster), str(interface)): (str(name), network_text(str(name), str(interface)))
        for cluster, interface, name in database.execute(query)
    }


def disturbed_count(database: sqlite3.Connection, selection: Selection) -> int:
    """How many measured results have evidence of other work on a node."""
    conditions, values = of_results(database, replace(selection, outcome="measured"))
    found = database.execute(f"SELECT count(*) FROM v_results WHERE {conditions} AND disturbed", values).fetchone()
    return int(found[0])


# ----------------------------------------------------------------------------------------------------------------------
# Files of a run that a database keeps: its campaign, and the descriptions of foreign programs.


def campaign_text(database: Connection, run: str) -> str | None:
    """The campaign's file as the run used it, or None if it was not kept."""
    row = database.execute(
        "SELECT d.text FROM run r JOIN document d ON d.document_id = r.document_id WHERE r.name = ?", (run,)
    ).fetchone()
    return None if row is None else str(row[0])


def descriptions(database: Connection) -> dict[str, str]:
    """The description files of kernels that are foreign programs, by name."""
    rows = database.execute("SELECT k.name, d.text FROM kernel k JOIN document d ON d.document_id = k.document_id")
    return {str(name): str(text) for name, text in rows}


# ----------------------------------------------------------------------------------------------------------------------
# Names that a database knows: a misspelt one is refused with the nearest, not answered with nothing; and nodes' groups.


_QUERIES = {
    "cluster": "SELECT name FROM cluster",
    "node": "SELECT DISTINCT name FROM node",
    "campaign": "SELECT name FROM campaign",
}
_SHOWN = 40


def names(database: Connection, what: str) -> list[str]:
    """All names of clusters, nodes or campaigns, sorted. A set of nodes is its members."""
    found = {str(row[0]) for row in database.execute(_QUERIES[what])}
    return sorted(single_nodes(found) if what == "node" else found, key=natural)


def metrics_by_kernel(database: Connection) -> dict[str, list[str]]:
    """The metrics of each kernel in this database, by the kernel's name."""
    found: dict[str, list[str]] = {}
    query = "SELECT k.name, n.name FROM metric_name n JOIN kernel k ON k.kernel_id = n.kernel_id ORDER BY n.metric_name_id"
    for kernel, metric in database.execute(query):
        found.setdefault(str(kernel), []).append(str(metric))
    return found


def nodes_of_cluster(database: Connection, cluster: str) -> list[str]:
    """The nodes of one cluster, sorted."""
    query = "SELECT n.name FROM node n JOIN cluster c ON c.cluster_id = n.cluster_id WHERE c.name = ?"
    return sorted((str(row[0]) for row in database.execute(query, (cluster,))), key=natural)


def check_known(database: Connection, **wanted: str | None) -> None:
    """Raise UserError for a cluster, node or campaign that is not in the database; None is not looked for.

    Each name is an option (`--node n99`).
    """
    for what, name in wanted.items():
        known = names(database, what)
        if name is not None and name not in known:
            message, hint = unknown_name(f"{what} in this database", name, known[:_SHOWN])
            raise UserError(f"--{what}: {message}", hint)


def node_groups(database: Connection) -> dict[tuple[str, str], list[str]]:
    """The groups of each node now, by cluster and name: `leaf s1`."""
    found: dict[tuple[str, str], list[str]] = {}
    for cluster, node, kind, group in database.execute('SELECT cluster, node, kind, "group" FROM v_groups'):
        found.setdefault((str(cluster), str(node)), []).append(f"{kind} {group}")
    return found


# ----------------------------------------------------------------------------------------------------------------------
# Failed attempts at results that a later attempt measured: such a result may hide a program that crashed.


#: Words in a reason that point to a signal; see run_folder/crashes.py.
_DIED = "died of "


@dataclass(frozen=True, slots=True)
class LostTries:
    """Attempts of one cluster and kernel that ended for one reason, at results that a later attempt measured.

    pairs: `client > server`, the first few. died: a signal ended the program.
    """

    cluster: str
    kernel: str
    reason: str
    count: int
    pairs: tuple[str, ...]

    @property
    def died(self) -> bool:
        """Whether a signal ended the program."""
        return _DIED in self.reason


def lost_tries(database: Connection, run: str) -> list[LostTries]:
    """Reasons of earlier attempts at the run's measured results, the commonest first."""
    rows = database.execute(
        "SELECT v.cluster, v.kernel, coalesce(v.reason, v.outcome) AS reason, count(*) AS count,"
        " group_concat(DISTINCT v.client || ' > ' || v.server) AS pairs"
        " FROM v_all_results v WHERE v.attempt_no IS NOT NULL AND v.result_id IN (SELECT x.result_id FROM run r"
        " JOIN run_cluster rc ON rc.run_id = r.run_id JOIN job j ON j.run_cluster_id = rc.run_cluster_id"
        " JOIN result x ON x.job_id = j.job_id"
        " WHERE r.name = ? AND x.final = 0 AND x.outcome IN ('failed', 'invalid'))"
        " AND EXISTS (SELECT 1 FROM v_all_results f WHERE f.run = v.run AND f.cluster = v.cluster AND f.job = v.job"
        "             AND f.test_no = v.test_no AND f.repetition_no = v.repetition_no AND f.final = 1"
        "             AND f.outcome = 'measured')"
        " GROUP BY v.cluster, v.kernel, reason ORDER BY count DESC, v.cluster, v.kernel, reason",
        (run,),
    )
    return [
        LostTries(row["cluster"], row["kernel"], row["reason"], row["count"], tuple(str(row["pairs"]).split(",")[:3]))
        for row in rows
    ]


# ----------------------------------------------------------------------------------------------------------------------
# Every value of a run in one table, for programs that read tables.


def metric_rows(database: Connection, selection: Selection) -> Iterator[dict[str, Any]]:
    """One row per result and metric of the results that count, and one row per result that has no metric, with its reason.

    With a metric selected, that one only.
    """
    conditions, values = of_results(database, selection, "v.result_id")
    query = (
        "SELECT v.run, v.campaign, v.cluster, v.kernel, v.client, v.server, v.message_bytes, v.test_no, v.repetition_no,"
        " v.outcome, v.reason, v.started_utc, v.disturbed, v.crossed_interface, n.name AS metric, m.value, n.unit, n.better,"
        " v.series_id, v.result_id, v.job, v.attempt_no, v.parameters, v.network, v.network_name"
        " FROM v_all_results v LEFT JOIN metric m ON m.result_id = v.result_id"
        " LEFT JOIN metric_name n ON n.metric_name_id = m.metric_name_id"
        f" WHERE v.final = 1 AND v.retracted IS NULL AND {conditions}"
        " AND (:metric IS NULL OR n.name = :metric OR m.result_id IS NULL)"
        " ORDER BY v.run, v.cluster, v.job, v.test_no, v.repetition_no, n.position_no"
    )
    cursor = database.cursor()
    cursor.row_factory = None
    rows = cursor.execute(query, values | {"metric": selection.metric})
    names = [column[0] for column in rows.description]
    for row in rows:
        yield dict(zip(names, row, strict=True))


def finding_rows(database: Connection, selection: Selection) -> list[dict[str, Any]]:
    """Findings of the selected results: one row per cluster, rule and pair, with a count and one of the messages."""
    conditions, values = of_results(database, selection, "v.result_id")
    query = (
        "SELECT v.cluster, v.kernel, v.client, v.server, ru.name AS rule, count(*) AS result_count, min(f.message) AS example"
        " FROM v_results v JOIN result_finding f ON f.result_id = v.result_id JOIN rule ru ON ru.rule_id = f.rule_id"
        f" WHERE {conditions} GROUP BY v.cluster, v.kernel, v.client, v.server, ru.name"
        " ORDER BY result_count DESC, v.cluster, ru.name"
    )
    return [dict(row) for row in database.execute(query, values)]


# ----------------------------------------------------------------------------------------------------------------------
# One result with everything that the database knows about it.


@dataclass(frozen=True, slots=True)
class ResultDetail:
    """One result with everything that the database knows about it, as lists of rows from the views."""

    result: ResultRow
    retracted: str | None
    final: bool
    duration_ns: int | None
    parameters: dict[str, Any]
    metrics: list[dict[str, Any]]
    granted: dict[str, Any]
    warnings: list[dict[str, Any]]
    ends: list[dict[str, Any]]
    counters: list[dict[str, Any]]
    gauges: list[dict[str, Any]]
    unavailable: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    histogram: list[dict[str, Any]]
    #: By quantity: values by the beginning of their interval in ms.
    intervals: dict[str, dict[int, float]]
    samples: dict[str, Any] | None
    build: dict[str, Any] | None
    attempt: AttemptRow | None
    #: Whether another program measured it and `hpcq import` brought it; then there is no evidence.
    imported: bool


def detail(database: sqlite3.Connection, result_id: int) -> ResultDetail:
    """One result with both ends' evidence. Raises UserError if no result has that number."""
    query = f"SELECT {columns(ResultRow)} FROM v_all_results WHERE result_id = ?"
    row = database.execute(query, (result_id,)).fetchone()
    if row is None:
        raise UserError(f"{result_id} is not a result in this database", "`hpcq results --json` shows their result_id")
    result = ResultRow(*row)
    more = database.execute(
        "SELECT retracted, final, duration_ns, build_id FROM v_all_results WHERE result_id = ?", (result_id,)
    ).fetchone()
    tries = [one for one in attempts(database, result.run) if (one.job, one.attempt_no) == (result.job, result.attempt_no)]

    def rows(query: str, value: int | None = result_id) -> list[dict[str, Any]]:
        return [dict(row) for row in database.execute(query, (value,))]

    return ResultDetail(
        result=result,
        retracted=more["retracted"],
        final=bool(more["final"]),
        duration_ns=more["duration_ns"],
        parameters=json.loads(result.parameters),
        metrics=rows(
            "SELECT n.name AS metric, m.value, n.unit, n.better, n.help FROM metric m JOIN metric_name n"
            " ON n.metric_name_id = m.metric_name_id WHERE m.result_id = ? ORDER BY n.position_no"
        ),
        granted={one["granted"]: one["value"] for one in rows("SELECT * FROM v_granted WHERE result_id = ? ORDER BY granted")},
        warnings=rows("SELECT name, message FROM warning WHERE result_id = ? ORDER BY warning_no"),
        ends=rows('SELECT * FROM v_ends WHERE result_id = ? ORDER BY "end"'),
        counters=rows("SELECT counter, client_delta, server_delta, unit FROM v_evidence WHERE result_id = ? ORDER BY counter"),
        gauges=rows('SELECT gauge, "end", before, after, unit FROM v_gauges WHERE result_id = ? ORDER BY gauge, "end"'),
        unavailable=rows('SELECT "end", source, reason FROM v_unavailable WHERE result_id = ? ORDER BY "end", source'),
        findings=rows(
            'SELECT rule, "end", message, meaning, advice, figures FROM v_findings WHERE result_id = ? ORDER BY rule'
        ),
        histogram=rows("SELECT lower, unit, sample_count FROM v_histogram WHERE result_id = ? ORDER BY lower"),
        intervals=_intervals(database, result_id),
        samples=next(iter(rows("SELECT path, format, sample_count FROM sample WHERE result_id = ?")), None),
        build=next(iter(rows("SELECT * FROM v_builds WHERE build_id = ?", more["build_id"])), None),
        attempt=tries[0] if tries else None,
        imported=bool(database.execute("SELECT kind = 'import' FROM run WHERE name = ?", (result.run,)).fetchone()[0]),
    )


def _intervals(database: sqlite3.Connection, result_id: int) -> dict[str, dict[int, float]]:
    query = "SELECT quantity, begin_ms, value FROM v_intervals WHERE result_id = ? ORDER BY quantity, begin_ms"
    found: dict[str, dict[int, float]] = {}
    for quantity, begin_ms, value in database.execute(query, (result_id,)):
        found.setdefault(quantity, {})[begin_ms] = value
    return found


# ----------------------------------------------------------------------------------------------------------------------
# Context of a run's results: builds, what the plan left out, warnings of kernels.


@dataclass(frozen=True, slots=True)
class BuildRow:
    """A program as built on a cluster, and how many of the selected results it produced."""

    cluster: str
    toolchain: str
    program: str
    version: str
    source_build_id: str
    compiler: str
    flags: str
    mpi: str
    modules: str
    binary_sha256: str
    built_utc: str | None
    result_count: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A pair that a plan left out, or a node if server is None, and why."""

    cluster: str
    client: str
    server: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class WarningCount:
    """How many measured results have a warning, with one of its messages."""

    cluster: str
    kernel: str
    name: str
    result_count: int
    example: str


def builds(database: sqlite3.Connection, run: str) -> list[BuildRow]:
    """The builds that produced results of a run."""
    columns = ", ".join(f"b.{name}" for name in BuildRow.__dataclass_fields__ if name != "result_count")
    query = (
        f"SELECT {columns}, u.result_count FROM v_builds b JOIN (SELECT x.build_id, count(*) AS result_count FROM result x"
        " JOIN v_pairs p ON p.job_id = x.job_id WHERE p.run = ? GROUP BY x.build_id) u ON u.build_id = b.build_id"
        " ORDER BY b.cluster, b.program"
    )
    return [BuildRow(*row) for row in database.execute(query, (run,))]


def left_out(database: sqlite3.Connection, run: str) -> list[LeftOut]:
    """Pairs and nodes that the plans of a run left out."""
    query = f"SELECT {columns(LeftOut)} FROM v_not_planned WHERE run = ? ORDER BY cluster, server IS NOT NULL, client, server"
    return [LeftOut(*row) for row in database.execute(query, (run,))]


def warnings(database: sqlite3.Connection, run: str) -> list[WarningCount]:
    """Warnings of kernels in the results of a run that count."""
    query = (
        "SELECT v.cluster, v.kernel, w.name, count(*) AS result_count, min(w.message) AS example FROM v_results v"
        " JOIN warning w ON w.result_id = v.result_id WHERE v.run = ? AND v.outcome = 'measured'"
        " GROUP BY v.cluster, v.kernel, w.name ORDER BY result_count DESC, v.cluster, v.kernel, w.name"
    )
    return [WarningCount(*row) for row in database.execute(query, (run,))]


def last_runs(database: sqlite3.Connection) -> dict[str, str]:
    """The newest run of each campaign, by the campaign's name."""
    query = "SELECT c.name, r.name FROM run r JOIN campaign c ON c.campaign_id = r.campaign_id ORDER BY r.created_utc, r.run_id"
    return {str(campaign): str(run) for campaign, run in database.execute(query)}
