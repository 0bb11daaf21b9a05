"""What the database knows of nodes: one of them whole, and all of them side by side.

    node_story(database, name, selection)     one node: verdict, results, partners, changes, events, telling facts
    node_rows(database, selection)            every node: last verdict, last measurement, level beside the others

The level of a node is that of the newest run that measured it: the median, over its tests, of what its better pairs reached
there as a share of the median of all pairs in the same test over the whole stretch. A slow partner moves the worse pairs; a
slow node moves them all, on the first night already. Values beside other work do not count,
unless most series of the test have no others: then that is usual there.
"""

from __future__ import annotations

import re

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

from hpcq import units
from hpcq.errors import UserError
from hpcq.kernels import size_text, unknown_name
from hpcq.nodelist import names_several, natural
from hpcq.store.database import Connection, answered
from hpcq.store.query import median
from hpcq.store.selection import ALL_TIME, COUNTS, Selection, Window, of_tables, within

#: Facts that people ask for first, by the end or the beginning of their names.
_TELLING = ("kernel.release", "cpu.model", "software.os", ".driver", ".firmware", ".speed_bps", ".mtu_bytes")
_EVENTS_SHOWN = 8
_CHANGES_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Partner:
    """One test with one partner: the median of the stretch, and of the newest run of the pair.

    newest_utc: when that run began. level_ratio: the newest as a share of the median of all pairs in that test, as in a
    node's level; 1.1 is better. None: no other pair ran the test.
    """

    kernel: str
    message_bytes: int | None
    role: str
    partner: str
    metric: str
    unit: str
    median: float
    newest: float
    newest_utc: str
    n: int
    level_ratio: float | None

    @property
    def size_text(self) -> str:
        """Its size for people; empty if the test has none."""
        return size_text(self.message_bytes)


@dataclass(frozen=True, slots=True)
class NodeStory:
    """One node. counts: results by outcome in the stretch. verdict: the last one in the ledger; None: never judged."""

    cluster: str
    node: str
    verdict: dict[str, Any] | None
    boot_id: str | None
    counts: dict[str, int]
    first_utc: str | None
    last_utc: str | None
    partners: tuple[Partner, ...]
    changes: tuple[dict[str, Any], ...]
    events: tuple[dict[str, Any], ...]
    groups: dict[str, str]
    facts: dict[str, Any]
    facts_utc: str | None


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node beside the others. level_ratio: see the module; None: not measured in the stretch, or with no one to compare."""

    cluster: str
    node: str
    verdict: str | None
    last_measured_utc: str | None
    result_count: int
    partner_count: int
    level_ratio: float | None
    #: Results beside other work, which the level leaves out.
    left_out_count: int


@dataclass(frozen=True, slots=True)
class _SeriesMedian:
    test: tuple[Any, ...]
    client: str
    server: str
    value: float
    better: str
    n: int
    left_out: int
    disturbed: bool
    newest: float  # the median of its values in the newest run of them
    newest_run: str  # when that run began, and its key


def find_node(database: Connection, name: str) -> tuple[str, str, int]:
    """Cluster, name and key of a node; `name` may be CLUSTER/NODE. Raises UserError that names the nearest."""
    rows = database.execute(
        "SELECT c.name, n.name, n.node_id FROM node n JOIN cluster c ON c.cluster_id = n.cluster_id"
    ).fetchall()
    fitting = [row for row in rows if name in {row[1], f"{row[0]}/{row[1]}"}]
    if len(fitting) == 1:
        return str(fitting[0][0]), str(fitting[0][1]), int(fitting[0][2])
    if fitting:
        clusters = ", ".join(f"{row[0]}/{row[1]}" for row in fitting)
        raise UserError(f"{name!r} is a node of several clusters: {clusters}", "write the cluster before it")
    message, hint = unknown_name("node in this database", name, sorted({str(row[1]) for row in rows}, key=natural)[:40])
    raise UserError(message, hint)


def node_story(database: Connection, name: str, selection: Selection) -> NodeStory:
    """Everything about one node; the selection bounds what is counted and compared.

    Raises UserError for a node that the database does not know.
    """
    cluster, node, node_id = find_node(database, name)
    verdict = database.execute(
        "SELECT verdict, reason, decided_utc, run FROM v_ledger WHERE cluster = ? AND kind = 'node' AND name = ?",
        (cluster, node),
    ).fetchone()
    boot = database.execute(
        "SELECT boot_id FROM node_boot WHERE node_id = ? ORDER BY last_seen_utc DESC LIMIT 1", (node_id,)
    ).fetchone()
    counts, first, last = _counts(database, node_id, selection)
    facts = database.execute(
        "SELECT fact, value, read_utc FROM v_latest_facts WHERE node_id = ? ORDER BY fact", (node_id,)
    ).fetchall()
    return NodeStory(
        cluster=cluster,
        node=node,
        verdict=dict(verdict) if verdict else None,
        boot_id=boot[0] if boot else None,
        counts=counts,
        first_utc=first,
        last_utc=last,
        partners=_kept_partners(database, cluster, node, selection),
        changes=tuple(_changes(database, cluster, node)),
        events=tuple(_events(database, cluster, node)),
        groups={str(row[0]): str(row[1]) for row in database.execute(_GROUPS, (node_id,))},
        facts={row[0]: row[1] for row in facts if _tells(str(row[0]))},
        facts_utc=facts[0][2] if facts else None,
    )


#: So many results are looked through for the nodes that they measured: a night of a large site.
_NEWEST_ROWS = 50_000
_GROUPS = 'SELECT kind, "group" FROM v_groups WHERE node_id = ? ORDER BY kind'


def node_rows(database: Connection, selection: Selection) -> list[NodeRow]:
    """Every node of the database, or of one cluster, by name. The selection bounds what is counted and compared.

    Where it names tests or facts, only nodes with such results.
    """
    question = {"nodes": _question(database, selection)}
    return [NodeRow(*row) for row in answered(database, question, lambda: [astuple(one) for one in _rows(database, selection)])]


def _kept_partners(database: Connection, cluster: str, node: str, selection: Selection) -> tuple[Partner, ...]:
    question = {"partners": [cluster, node], "of": _question(database, selection)}
    found = answered(database, question, lambda: [astuple(one) for one in _partners(database, cluster, node, selection)])
    return tuple(Partner(*row) for row in found)


def _question(database: Connection, selection: Selection) -> list[Any]:
    return [asdict(replace(selection, window=ALL_TIME)), _within(database, selection.window)]


def _within(database: Connection, window: Window) -> list[Any]:
    """What tells a window from others by what lies in it: a moment later it is the same one, unless something left it."""
    first, last = window.from_utc, window.until_utc
    query = "SELECT {}(x.started_utc) FROM result x WHERE x.final = 1 AND x.outcome = 'measured' AND x.started_utc {} ?"
    bounds = [
        None
        if bound is None
        else [database.execute(query.format(end, sign), (bound,)).fetchone()[0], _runs_before(database, bound)]
        for end, sign, bound in (("min", ">=", first), ("max", "<", last))
    ]
    return [*bounds, window.run_ids]


def _runs_before(database: Connection, utc: str) -> int:
    return int(database.execute("SELECT count(*) FROM run WHERE created_utc < ?", (utc,)).fetchone()[0])


def _rows(database: Connection, selection: Selection) -> list[NodeRow]:
    cluster = selection.cluster
    every = selection == Selection(cluster=cluster, window=selection.window, metric=selection.metric)
    levels: dict[tuple[str, str], list[tuple[str, tuple[Any, ...], float]]] = {}
    partners: dict[tuple[str, str], set[str]] = {}
    counts, left_out = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for test, members in _by_test(_series_medians(database, selection)).items():
        compared = [one.value for one in members if one.n]
        reference = median(compared)
        for one in members:
            if names_several(one.server):
                continue  # what a set of nodes ran together is no node's
            ends = ((test[0], one.client), (test[3][-1], one.server))
            for key, (_, other) in zip(ends, reversed(ends), strict=True):
                counts[key] += one.n + one.left_out
                left_out[key] += one.left_out
                partners.setdefault(key, set()).add(other)
                ratio = _level(one, one.newest, reference)
                if one.n and ratio is not None and len(compared) > 1:
                    levels.setdefault(key, []).append((one.newest_run, test, ratio))
    found = []
    rows = database.execute("SELECT cluster, node, verdict, node_id FROM v_nodes WHERE ?1 IS NULL OR cluster = ?1", (cluster,))
    nodes = rows.fetchall()
    newest = _newest(database, {int(row["node_id"]) for row in nodes})
    for row in nodes:
        key = (str(row["cluster"]), str(row["node"]))
        if names_several(key[1]) or not (every or counts[key]):
            continue
        last_run = max((run for run, _, _ in levels.get(key, ())), default=None)
        tonight: dict[tuple[Any, ...], list[float]] = {}
        for run, test, ratio in levels.get(key, ()):
            if run == last_run:
                tonight.setdefault(test, []).append(ratio)
        level = median([_own(ratios) for ratios in tonight.values()]) if tonight else None
        last = newest[int(row["node_id"])]
        found.append(NodeRow(*key, row["verdict"], last, counts[key], len(partners.get(key, ())), level, left_out[key]))
    return sorted(found, key=lambda one: (one.cluster, natural(one.node)))


def _own(ratios: Sequence[float]) -> float:
    """What a node itself gives in a test: its better pairs say it, for a pair runs at the speed of its slower end.

    The best of three, the upper quartile of more, as the judge takes it (hpcq/judge/levels.py).
    """
    return sorted(ratios)[int(0.75 * (len(ratios) - 1) + 0.5)]


def _counts(database: Connection, node_id: int, selection: Selection) -> tuple[dict[str, int], str | None, str | None]:
    condition, bound = of_tables(database, replace(selection, window=ALL_TIME, cluster=None))
    in_time, times = within(selection.window)
    rows = database.execute(
        "SELECT x.outcome, count(*), min(x.started_utc), max(x.started_utc) FROM result x"
        f" WHERE x.final = 1 AND x.series_id IN ({_OF_NODE})"
        f" AND {condition} AND ({in_time} OR x.started_utc IS NULL AND :all) GROUP BY x.outcome",
        {"node_id": node_id, "all": selection.window.from_utc is None and selection.window.until_utc is None, **bound, **times},
    ).fetchall()
    measured = [row for row in rows if row[0] == "measured"]
    return {str(row[0]): int(row[1]) for row in rows}, *(measured[0][2:] if measured else (None, None))


def _newest(database: Connection, node_ids: set[int]) -> dict[int, str | None]:
    """The newest measurement of each node: results from the newest back until all are seen, then the others one by one."""
    found: dict[int, str | None] = {}
    cursor = database.cursor()
    cursor.row_factory = None
    rows = cursor.execute(
        "SELECT x.started_utc, s.client_node_id, s.server_node_id FROM result x INDEXED BY result_of_time"
        " CROSS JOIN series s ON s.series_id = x.series_id WHERE x.final = 1 AND x.outcome = 'measured'"
        f" ORDER BY x.started_utc DESC LIMIT {_NEWEST_ROWS}"
    )
    for utc, *ends in rows:
        for node_id in ends:
            if node_id in node_ids:
                found.setdefault(node_id, utc)
        if len(found) == len(node_ids):
            break
    return found | {node_id: _last_measured(database, node_id) for node_id in node_ids - found.keys()}


def _last_measured(database: Connection, node_id: int) -> str | None:
    """The newest measurement of a node, from the newest of each of its series: no more than one look at an index each."""
    row = database.execute(
        "SELECT max((SELECT x.started_utc FROM result x WHERE x.series_id = s.series_id AND x.final = 1"
        " AND x.outcome = 'measured' ORDER BY x.started_utc DESC LIMIT 1))"
        " FROM series s WHERE s.client_node_id = ?1 OR s.server_node_id = ?1",
        (node_id,),
    ).fetchone()
    return row[0] if row else None


def _partners(database: Connection, cluster: str, node: str, selection: Selection) -> list[Partner]:
    """This node's tests by partner, the furthest on the bad side of what all pairs give in the same test first."""
    found = []
    wanted = replace(selection, cluster=cluster, node=None)
    for test, members in _by_test(_series_medians(database, wanted)).items():
        compared = [one.value for one in members if one.n]
        usual = median(compared) if len(compared) > 1 else None
        client_cluster, kernel, message_bytes, same, metric, unit = test
        for one in members:
            ends = (("client", client_cluster, one.client, one.server), ("server", same[-1], one.server, one.client))
            roles = [(role, partner) for role, home, name, partner in ends if (home, name) == (cluster, node)]
            if not roles or not one.n or names_several(one.server):
                continue
            ratio = None if usual is None else _level(one, one.newest, usual)
            (role, partner), *_ = roles
            newest = one.newest, one.newest_run.partition(" ")[0]
            found.append(Partner(kernel, message_bytes, role, partner, metric, unit, one.value, *newest, one.n, ratio))
    last = float("inf")
    return sorted(found, key=lambda one: (one.level_ratio or last, natural(one.partner), one.kernel, one.role))


def _series_medians(database: Connection, selection: Selection) -> list[_SeriesMedian]:
    """The median of each selected series' metric. A link belongs to both of its clusters."""
    cluster = selection.cluster
    condition, bound = of_tables(database, replace(selection, cluster=None))
    query = (
        "SELECT x.series_id, m.value, x.disturbed, jb.run_cluster_id FROM result x JOIN series se ON se.series_id = x.series_id"
        " JOIN job jb ON jb.job_id = x.job_id JOIN kernel k ON k.kernel_id = se.kernel_id"
        f" JOIN metric m ON m.result_id = x.result_id AND m.metric_name_id = {_METRIC}"
        f" WHERE {COUNTS} AND {condition}"
    )
    values: dict[int, tuple[list[tuple[int, float]], list[tuple[int, float]]]] = {}
    cursor = database.cursor()
    cursor.row_factory = None
    for series_id, value, disturbed, run in cursor.execute(query, {**bound, "metric": selection.metric}):
        values.setdefault(series_id, ([], []))[disturbed].append((run, value))
    began = {
        int(row[0]): f"{row[1]} {row[2]}"
        for row in database.execute("SELECT run_cluster_id, created_utc, run_id FROM run_cluster JOIN run USING (run_id)")
    }
    found = []
    for series_id, (test, client, server, better) in _heads(database, values, selection.metric).items():
        if cluster in {None, test[0], test[3][-1]}:
            clean, late = values[series_id]
            here, left_out = (clean, len(late)) if clean else (late, 0)
            newest = here[0][0]
            value = last = median([value for _, value in here])
            if any(run != newest for run, _ in here):
                newest = max((run for run, _ in here), key=began.__getitem__)
                last = median([value for run, value in here if run == newest])
            found.append(
                _SeriesMedian(test, client, server, value, better, len(here), left_out, not clean, last, began[newest])
            )
    return found


#: The series of a node. Two looks at an index; one condition on both ends would be a look at every series.
_OF_NODE = (
    "SELECT series_id FROM series WHERE client_node_id = :node_id"
    " UNION ALL SELECT series_id FROM series WHERE server_node_id = :node_id"
)
#: The metric that is read of kernel k.
_METRIC = (
    "CASE WHEN :metric IS NULL THEN k.main_metric_name_id"
    " ELSE (SELECT o.metric_name_id FROM metric_name o WHERE o.kernel_id = k.kernel_id AND o.name = :metric) END"
)


def _heads(
    database: Connection, wanted: Collection[int], metric: str | None
) -> dict[int, tuple[tuple[Any, ...], str, str, str]]:
    """Test, client, server and good direction of each wanted series.

    Names are looked up here: a join that brings five of them costs more than the series themselves, of which a site that
    draws its pairs by lot has half a million.
    """
    nodes = {
        int(row[0]): (str(row[1]), str(row[2]))
        for row in database.execute("SELECT node_id, n.name, c.name FROM node n JOIN cluster c ON c.cluster_id = n.cluster_id")
    }
    kernels = {
        int(row[0]): tuple(row)[1:]
        for row in database.execute(
            "SELECT k.kernel_id, k.name, mn.name, mn.unit, mn.better FROM kernel k"
            f" JOIN metric_name mn ON mn.metric_name_id = {_METRIC}",
            {"metric": metric},
        )
    }
    sizes: dict[tuple[int, str], int | None] = {}
    query = "SELECT series_id, kernel_id, parameters, client_node_id, server_node_id, network, toolchain FROM series"
    found = {}
    cursor = database.cursor()
    cursor.row_factory = None
    for series_id, kernel_id, parameters, client_id, server_id, network, toolchain in cursor.execute(query):
        if series_id not in wanted:
            continue
        key = (kernel_id, parameters)
        if key not in sizes:
            sizes[key] = _size_of(database, series_id)
        kernel, name, unit, better = kernels[kernel_id]
        (client, client_cluster), (server, server_cluster) = nodes[client_id], nodes[server_id]
        same = (parameters, network, toolchain, server_cluster)
        found[series_id] = ((client_cluster, kernel, sizes[key], same, name, unit), client, server, better)
    return found


def _size_of(database: Connection, series_id: int) -> int | None:
    row = database.execute(
        "SELECT ps.message_bytes FROM result x JOIN parameter_set ps ON ps.parameter_set_id = x.parameter_set_id"
        " WHERE x.series_id = ? LIMIT 1",
        (series_id,),
    ).fetchone()
    return row[0] if row else None


def _by_test(found: Iterable[_SeriesMedian]) -> dict[tuple[Any, ...], list[_SeriesMedian]]:
    """Series by test. One that was measured beside other work only counts none of its values, unless most of the test was."""
    tests: dict[tuple[Any, ...], list[_SeriesMedian]] = {}
    for one in found:
        tests.setdefault(one.test, []).append(one)
    for test, members in tests.items():
        if 2 * sum(one.disturbed for one in members) <= len(members):
            tests[test] = [replace(one, n=0, left_out=one.n) if one.disturbed else one for one in members]
    return tests


def _level(one: _SeriesMedian, value: float, reference: float) -> float | None:
    """How good a value of a series is beside a reference: above 1 is better, whichever direction its metric has."""
    if one.better not in {"higher", "lower"} or value <= 0 or reference <= 0:
        return None
    return value / reference if one.better == "higher" else reference / value


def _changes(database: Connection, cluster: str, node: str) -> list[dict[str, Any]]:
    rows = database.execute(
        "SELECT change_id, state, direction, at_utc, kernel, client, server, metric, before, after, unit, ratio, cause"
        # from the changes, which are few, to their series
        " FROM v_changes WHERE change_id IN (SELECT change_id FROM change) AND cluster = ?1 AND (client = ?2 OR server = ?2)"
        " AND instr(server, '[') = 0 AND instr(server, ',') = 0 ORDER BY at_utc DESC, change_id LIMIT ?3",
        (cluster, node, _CHANGES_SHOWN),
    )
    return [dict(row) for row in rows]


def _events(database: Connection, cluster: str, node: str) -> list[dict[str, Any]]:
    rows = database.execute(
        "SELECT kind, started_utc, ended_utc, node, note, who FROM v_events WHERE cluster = ?1 AND (node = ?2 OR node IS NULL)"
        " AND run IS NULL ORDER BY started_utc DESC LIMIT ?3",
        (cluster, node, _EVENTS_SHOWN),
    )
    return [dict(row) for row in rows]


def _tells(fact: str) -> bool:
    return fact.startswith(_TELLING) or fact.endswith(_TELLING)


# ----------------------------------------------------------------------------------------------------------------------
# What runs cost the users of a cluster: node-hours that their allocations held nodes.


#: The key of a cluster file. Its text is in the database as it was when the run began.
_ACCOUNT = re.compile(r"^\s*account:\s*[\"']?([^\s\"'#]+)", re.MULTILINE)
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class RunCost:
    """One month, cluster and account. account: empty if the cluster file names none, so that the user's default paid.

    open_count: allocations that started and have no end yet; their hours are not counted.
    """

    month: str
    cluster: str
    account: str
    run_count: int
    job_count: int
    node_hours: float
    open_count: int


def costs(database: Connection, window: Window, cluster: str | None = None, campaign: str | None = None) -> list[RunCost]:
    """Node-hours by month, cluster and account, newest month first.

    An attempt counts from its start to its end, times its nodes. Pairs of one tournament share an allocation, which counts
    once. Each side of an attempt over a link is an allocation of one node on its own cluster.
    """
    seen: set[str] = set()
    runs: dict[tuple[str, str, str], set[str]] = {}
    jobs: dict[tuple[str, str, str], list[float]] = {}
    unended: dict[tuple[str, str, str], int] = {}
    accounts: dict[int, str] = {}
    for row in database.execute(_ALLOCATIONS, _bound(window, cluster, campaign)):
        tag = str(row["tag"]).partition("/")[0] + str(row["side"])
        if tag in seen:
            continue
        seen.add(tag)
        key = (str(row["started_utc"])[:7], str(row["cluster"]), _account(database, row["document_id"], accounts))
        runs.setdefault(key, set()).add(row["run"])
        jobs.setdefault(key, []).append(_node_seconds(row))
        unended[key] = unended.get(key, 0) + (row["ended_utc"] is None)
    found = [
        RunCost(*key, len(runs[key]), len(each), sum(each) / _SECONDS_PER_HOUR, unended[key]) for key, each in jobs.items()
    ]
    return sorted(sorted(found, key=lambda one: (one.cluster, one.account)), key=lambda one: one.month, reverse=True)


_ALLOCATIONS = """
SELECT a.tag, '' AS side, r.name AS run, c.name AS cluster, rc.document_id, a.started_utc, a.ended_utc,
       CASE a.nodes WHEN '' THEN 2 ELSE length(a.nodes) - length(replace(a.nodes, ' ', '')) + 1 END AS node_count
FROM attempt a JOIN job j ON j.job_id = a.job_id JOIN run_cluster rc ON rc.run_cluster_id = j.run_cluster_id
JOIN run r ON r.run_id = rc.run_id JOIN campaign ca ON ca.campaign_id = r.campaign_id
JOIN cluster c ON c.cluster_id = rc.cluster_id
WHERE a.started_utc >= :from_utc AND a.started_utc < :until_utc AND (:cluster IS NULL OR c.name = :cluster)
  AND (:campaign IS NULL OR ca.name = :campaign) AND c.cluster_id NOT IN (SELECT cluster_id FROM link)
  AND r.kind <> 'import'
UNION ALL
SELECT e.tag, e.side, r.name, c.name, own.document_id, e.started_utc, e.ended_utc, 1
FROM link_end e JOIN attempt a ON a.attempt_id = e.attempt_id JOIN job j ON j.job_id = a.job_id
JOIN run_cluster rc ON rc.run_cluster_id = j.run_cluster_id JOIN run r ON r.run_id = rc.run_id
JOIN campaign ca ON ca.campaign_id = r.campaign_id JOIN node n ON n.node_id = e.node_id
JOIN cluster c ON c.cluster_id = n.cluster_id
LEFT JOIN run_cluster own ON own.run_id = rc.run_id AND own.cluster_id = n.cluster_id
WHERE e.started_utc >= :from_utc AND e.started_utc < :until_utc AND (:cluster IS NULL OR c.name = :cluster)
  AND (:campaign IS NULL OR ca.name = :campaign)
"""


def _bound(window: Window, cluster: str | None, campaign: str | None) -> dict[str, Any]:
    times = {"from_utc": window.from_utc or "", "until_utc": window.until_utc or "~"}
    return {**times, "cluster": cluster, "campaign": campaign}


def _node_seconds(row: Any) -> float:
    """What an allocation held; zero while it has no end."""
    if row["ended_utc"] is None:
        return 0.0
    length = units.parse_utc(row["ended_utc"]) - units.parse_utc(row["started_utc"])
    return max(0.0, length.total_seconds()) * int(row["node_count"])


def _account(database: Connection, document_id: int | None, known: dict[int, str]) -> str:
    if document_id is None:
        return ""
    if document_id not in known:
        text = database.execute("SELECT text FROM document WHERE document_id = ?", (document_id,)).fetchone()[0]
        found = _ACCOUNT.search(text)
        known[document_id] = found.group(1) if found else ""
    return known[document_id]
