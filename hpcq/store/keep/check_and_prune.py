"""Upkeep of the database: check that it is sound, and keep it small.

    check(path)              integrity, references, and that every planned repetition is accounted for
    prune(path, before)      of runs that ended before, counters and histograms go, and the metrics of a test that a job
                             repeated often become one point; runs of a baseline that holds stay as they are

A point takes as much room as POINT_VALUES values, so fewer of them stay as they are. A job is rolled up once. Values that
arrive later (a late file, a withdrawn retraction) stay beside the roll-up, and the point of the job combines both.

A pruned point equals the point that histories show and verdicts use, so neither changes. The single values remain in
the run's folder for as long as you keep it.
"""

from __future__ import annotations

# ruff: noqa: S608 - table and column names come from our own schema
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hpcq.clock import DriverTimes
from hpcq.definition.find import kernels_of_texts
from hpcq.errors import UserError
from hpcq.evidence.case import Judge, JudgedResult
from hpcq.kernels import Kernels
from hpcq.run_folder.lines import told_of
from hpcq.store.blocks import packed, pruned, readable
from hpcq.store.database import Connection, reading, transaction, writing
from hpcq.store.history import counted
from hpcq.store.load.row_keys import RowKeys, canonical
from hpcq.store.query import descriptions, median
from hpcq.units import utc_now

#: Values that take as much room as a point with its index.
POINT_VALUES = 8


@dataclass(frozen=True, slots=True)
class Checked:
    """One check and its outcome."""

    item: str
    ok: bool
    found: str


@dataclass(frozen=True, slots=True)
class Pruned:
    """What pruning did, or would do. result_count: results that lost values or evidence."""

    run_count: int
    result_count: int
    value_count: int
    rollup_count: int
    bytes_before: int
    bytes_after: int


def check(path: Path) -> list[Checked]:
    """Check everything that can be wrong with a database. Reads all of it."""
    with reading(path) as database:
        return list(_checks(database, path))


def prune(path: Path, before_utc: str, *, dry_run: bool = False) -> Pruned:
    """Roll up runs that ended before then, all or nothing, then shrink the file. Retracted results stay as they are."""
    bytes_before = path.stat().st_size if path.exists() else 0
    with writing(path) as database:
        with transaction(database):
            parts = _old_parts(database, before_utc)
            _mark(database, parts)
            rows = list(_rollups(database))
            results, values = _counts(database)
            if not dry_run:
                database.executemany("INSERT INTO rollup VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
                _prune_blocks(database)
                database.execute(f"DELETE FROM metric WHERE result_id IN ({_ROLLED})")
                database.execute("DELETE FROM sample WHERE result_id IN (SELECT result_id FROM temp.old_result)")
            database.execute("DROP TABLE temp.old_result")
        if not dry_run and parts:
            database.execute("VACUUM")
    return Pruned(len(parts), results, values, len(rows), bytes_before, path.stat().st_size)


def interval(values: list[float]) -> tuple[float, float]:
    """The 95 % interval of the median by order statistics; the whole range below 6 values. David & Nagaraja 2003."""
    ordered, count = sorted(values), len(values)
    tail, weight, place = 0.0, 0.5**count, 0
    while tail + weight <= 0.025 and place < count // 2:
        tail += weight
        weight *= (count - place) / (place + 1)
        place += 1
    place = max(place - 1, 0)
    return ordered[place], ordered[count - 1 - place]


def _checks(database: Connection, path: Path) -> Iterator[Checked]:
    said = [str(row[0]) for row in database.execute("PRAGMA integrity_check(20)")]
    yield Checked("integrity", said == ["ok"], "; ".join(said[:5]))
    broken = database.execute("PRAGMA foreign_key_check").fetchall()
    words = (
        f"{len(broken)} rows without what they refer to: {broken[0][0]} > {broken[0][2]}" if broken else "every reference holds"
    )
    yield Checked("references", not broken, words)
    off = database.execute(
        "SELECT run, cluster FROM v_runs"
        " WHERE planned_count <> measured_count + invalid_count + failed_count + not_measured_count"
    ).fetchall()
    words = (
        f"{off[0][0]} on {off[0][1]} does not add up: load it again"
        if off
        else "measured + invalid + failed + not measured = planned"
    )
    yield Checked("accounting", not off, words)
    bare = database.execute(
        "SELECT count(*) FROM result x WHERE x.outcome = 'measured' AND x.final = 1"
        " AND NOT EXISTS (SELECT 1 FROM metric m WHERE m.result_id = x.result_id)"
        " AND NOT EXISTS (SELECT 1 FROM rollup u WHERE u.series_id = x.series_id AND u.job_id = x.job_id)"
    ).fetchone()[0]
    words = (
        f"{bare} measured results have neither values nor a roll-up"
        if bare
        else "every measured result has values or a roll-up"
    )
    yield Checked("values", not bare, words)
    blocks = database.cursor()
    blocks.row_factory = None
    blocks.execute("SELECT result_id, block, json_bytes FROM evidence")
    unread = [number for number, block, size in blocks if not readable(block, size)]
    words = (
        f"the evidence of {len(unread)} results cannot be read, such as that of result {unread[0]}"
        if unread
        else "the evidence of every result can be read"
    )
    yield Checked("evidence", not unread, words)
    mode = str(database.execute("PRAGMA journal_mode").fetchone()[0])
    yield Checked(
        "journal", mode == "delete", f"{mode}: {'safe on shared file systems' if mode == 'delete' else 'must be delete'}"
    )
    counts = {name: database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("run", "result", "metric")}
    yield Checked(
        "size", True, f"{path.stat().st_size / 1e6:.1f} MB: " + ", ".join(f"{n} {name}s" for name, n in counts.items())
    )


def _old_parts(database: Connection, before_utc: str) -> list[int]:
    rows = database.execute(
        "SELECT j.run_cluster_id FROM job j JOIN result x ON x.job_id = j.job_id GROUP BY j.run_cluster_id"
        " HAVING max(coalesce(x.started_utc, '')) BETWEEN '1' AND ?1 AND max(x.reason LIKE 'pending:%') IS NOT 1",
        (before_utc,),
    ).fetchall()
    return [int(row[0]) for row in rows if int(row[0]) not in _of_baselines(database)]


def _of_baselines(database: Connection) -> set[int]:
    """Run parts of baselines that hold. Others are compared with their single values, so pruning leaves them alone."""
    rows = database.execute(
        "SELECT rc.run_cluster_id FROM v_baselines b JOIN run_cluster rc ON rc.run_id = b.run_id WHERE b.holds = 1"
    )
    return {int(row[0]) for row in rows}


_ROLLED = "SELECT result_id FROM temp.old_result WHERE is_rolled"


def _mark(database: Connection, parts: list[int]) -> None:
    """Old results that still have something to lose: is_rolled their values, which are many, the others their evidence."""
    database.execute(
        "CREATE TEMP TABLE old_result (result_id INTEGER PRIMARY KEY, series_id INTEGER, job_id INTEGER, is_rolled INTEGER)"
    )
    database.executemany(
        "INSERT INTO temp.old_result SELECT x.result_id, x.series_id, x.job_id, 0 FROM result x"
        " JOIN job j ON j.job_id = x.job_id"
        " WHERE j.run_cluster_id = ? AND x.outcome = 'measured' AND NOT EXISTS (SELECT 1 FROM retraction t"
        " WHERE t.result_id = x.result_id) AND EXISTS (SELECT 1 FROM metric m WHERE m.result_id = x.result_id)"
        " AND NOT EXISTS (SELECT 1 FROM rollup u WHERE u.series_id = x.series_id AND u.job_id = x.job_id)",
        [(part,) for part in parts],
    )
    database.execute(
        "UPDATE temp.old_result SET is_rolled = 1 WHERE (series_id, job_id) IN"
        " (SELECT series_id, job_id FROM temp.old_result GROUP BY series_id, job_id HAVING count(*) >= ?)",
        (POINT_VALUES,),
    )
    database.execute(
        "DELETE FROM temp.old_result WHERE NOT is_rolled"
        " AND NOT EXISTS (SELECT 1 FROM evidence e WHERE e.result_id = old_result.result_id AND e.counter_count > 0)"
        " AND NOT EXISTS (SELECT 1 FROM sample s WHERE s.result_id = old_result.result_id)"
    )


def _counts(database: Connection) -> tuple[int, int]:
    results = database.execute("SELECT count(*) FROM temp.old_result").fetchone()[0]
    query = f"SELECT count(*) FROM metric WHERE result_id IN ({_ROLLED})"
    return int(results), int(database.execute(query).fetchone()[0])


def _prune_blocks(database: Connection) -> None:
    """Of the blocks of old results, keep what was granted and where each end ran."""
    rows = database.execute(
        "SELECT result_id, block, json_bytes FROM evidence WHERE result_id IN (SELECT result_id FROM temp.old_result)"
    ).fetchall()
    for result_id, block, json_bytes in rows:
        try:
            text = pruned(block, json_bytes)
        except ValueError:  # it stays as it is, for `hpcq db check` to name
            continue
        if text is None:
            database.execute("DELETE FROM evidence WHERE result_id = ?", (result_id,))
        else:
            database.execute(
                "UPDATE evidence SET counter_count = 0, json_bytes = ?, block = ? WHERE result_id = ?",
                (len(text), packed(text), result_id),
            )


def _rollups(database: Connection) -> Iterator[tuple[Any, ...]]:
    rows = database.execute(
        "SELECT x.series_id, m.metric_name_id, x.job_id, x.result_id, coalesce(x.started_utc, ?) AS started_utc, m.value,"
        " x.disturbed"
        " FROM temp.old_result o JOIN result x ON x.result_id = o.result_id JOIN metric m ON m.result_id = x.result_id"
        " WHERE o.is_rolled AND x.final = 1 ORDER BY x.series_id, m.metric_name_id, x.job_id, started_utc, x.result_id",
        (utc_now(),),
    )
    for key, group in itertools.groupby(rows, key=_rollup_key):
        found = counted(list(group))
        values = [row["value"] for row in found]
        spread = (median(values), *interval(values), min(values), max(values))
        yield (*key, found[0]["result_id"], found[0]["started_utc"], len(values), *spread)


def _rollup_key(row: Any) -> tuple[int, int, int]:
    return row["series_id"], row["metric_name_id"], row["job_id"]


# ----------------------------------------------------------------------------------------------------------------------
# Merge the databases of several sites: copy the rows of another database, with the keys of this one.
#
#     tables in the order of their foreign keys; for each:
#         rows of the other, keys replaced  ->  same natural key already here? take that  ->  else insert under a new key
#
# What both sides know (kernels, nodes, parameters, facts) is stored once afterwards. If both have a run's part on a
# cluster, the one here stays as it is. The other database is only read.


@dataclass(frozen=True, slots=True)
class Merged:
    """What the merge copied: new run parts, run parts that were already here, and rows by table."""

    new_count: int
    known_count: int
    rows: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    columns: tuple[str, ...]
    #: column -> table that it refers to
    foreign: dict[str, str]
    #: The table's own key, where it has one.
    key: str | None
    #: Columns that, beside the key, tell rows apart.
    natural: tuple[str, ...]


def merge(path: Path, other: Path, renamed: Mapping[str, str]) -> Merged:
    """Merge everything of `other` into `path`. renamed: clusters with another name here (old name -> new name).

    All or nothing. Raises UserError if both are the same file, or if a cluster does not exist.
    """
    if not other.exists():
        raise UserError(f"{other}: there is no database", "name the file that the other site gave you")
    if path.exists() and path.samefile(other):
        raise UserError(f"{other}: is the same file as {path}", "name another site's database")
    with reading(other) as database:
        clusters = {str(row[0]) for row in database.execute("SELECT name FROM cluster")}
        unknown = sorted(set(renamed) - clusters)
        if unknown:
            raise UserError(f"{unknown[0]!r} is not a cluster of {other}", f"there are {', '.join(sorted(clusters))}")
    with writing(path) as database:
        database.execute("ATTACH ? AS other", (f"file:{quote(str(other.absolute()))}?mode=ro",))
        with transaction(database):
            return _merge(database, renamed)


def _merge(database: Connection, renamed: Mapping[str, str]) -> Merged:
    rows: dict[str, int] = {}
    for table in _in_order(database):
        rows[table.name] = _bring_keyed(database, table, renamed) if table.key else _bring_plain(database, table)
    database.execute(
        "UPDATE kernel SET main_metric_name_id = (SELECT m.new FROM other.kernel o"
        " JOIN temp.map_kernel k ON k.old = o.kernel_id JOIN temp.map_metric_name m ON m.old = o.main_metric_name_id"
        " WHERE k.new = kernel.kernel_id) WHERE main_metric_name_id IS NULL"
    )
    total = int(database.execute("SELECT count(*) FROM other.run_cluster").fetchone()[0])
    return Merged(rows["run_cluster"], total - rows["run_cluster"], {name: count for name, count in rows.items() if count})


def _bring_keyed(database: Connection, table: _Table, renamed: Mapping[str, str]) -> int:
    name, key = table.name, table.key
    database.execute(f"CREATE TEMP TABLE map_{name} (old INTEGER PRIMARY KEY, new INTEGER NOT NULL)")
    database.execute(f"CREATE TEMP TABLE come AS SELECT o.{key} AS old, {_mapped(table)}")
    if name == "cluster":
        database.executemany("UPDATE temp.come SET name = ? WHERE name = ?", [(new, old) for old, new in renamed.items()])
    same = " AND ".join(f"m.{column} IS c.{column}" for column in table.natural)
    database.execute(f"CREATE TEMP TABLE known AS SELECT c.old, m.{key} AS new FROM temp.come c JOIN main.{name} m ON {same}")
    if name == "run_cluster":  # the same submissions are the same run, whatever name its cluster has here
        database.execute(
            "INSERT INTO temp.known SELECT DISTINCT oj.run_cluster_id, mj.run_cluster_id FROM other.attempt oa"
            " JOIN other.job oj ON oj.job_id = oa.job_id JOIN main.attempt ma ON ma.tag = oa.tag"
            " JOIN main.job mj ON mj.job_id = ma.job_id"
        )
    if name != "run_cluster":  # rows of a run part that exists here are not copied either
        database.execute(f"INSERT OR IGNORE INTO temp.map_{name} SELECT old, new FROM temp.known")
    base = int(database.execute(f"SELECT coalesce(max({key}), 0) FROM main.{name}").fetchone()[0])
    columns = ", ".join(table.columns)
    fresh = "FROM temp.come c WHERE c.old NOT IN (SELECT old FROM temp.known)"
    cursor = database.execute(f"INSERT INTO main.{name} ({key}, {columns}) SELECT {base} + c.rowid, {columns} {fresh}")
    database.execute(f"INSERT INTO temp.map_{name} SELECT c.old, {base} + c.rowid {fresh}")
    database.execute("DROP TABLE temp.come")
    database.execute("DROP TABLE temp.known")
    return cursor.rowcount


def _bring_plain(database: Connection, table: _Table) -> int:
    before = database.total_changes
    database.execute(f"INSERT OR IGNORE INTO main.{table.name} ({', '.join(table.columns)}) SELECT {_mapped(table)}")
    return database.total_changes - before


def _mapped(table: _Table) -> str:
    """Columns with the keys of this database, and their sources. Rows whose keys have no counterpart are not copied."""
    columns, joins, conditions = [], [], ["1"]
    for number, column in enumerate(table.columns):
        if (table.name, column) == ("kernel", "main_metric_name_id"):
            columns.append(f"NULL AS {column}")  # kernel and metric_name refer to each other: filled in at the end
        elif column in table.foreign:
            columns.append(f"k{number}.new AS {column}")
            joins.append(f"LEFT JOIN temp.map_{table.foreign[column]} k{number} ON k{number}.old = o.{column}")
            conditions.append(f"(o.{column} IS NULL OR k{number}.new IS NOT NULL)")
        else:
            columns.append(f"o.{column}")
    return f"{', '.join(columns)} FROM other.{table.name} o {' '.join(joins)} WHERE {' AND '.join(conditions)}"


def _in_order(database: Connection) -> list[_Table]:
    """All tables, each after those that it refers to."""
    names = [str(row[0]) for row in database.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")]
    tables = {name: _table(database, name) for name in names if not name.startswith("sqlite_")}
    ordered: dict[str, _Table] = {}

    def visit(name: str) -> None:
        if name in ordered:
            return
        for column, target in tables[name].foreign.items():
            if target != name and (name, column) != ("kernel", "main_metric_name_id"):
                visit(target)
        ordered[name] = tables[name]

    for name in tables:
        visit(name)
    return list(ordered.values())


def _table(database: Connection, name: str) -> _Table:
    described = database.execute(f"PRAGMA main.table_info({name})").fetchall()
    columns = [str(row["name"]) for row in described]
    foreign = {
        str(row["from"]): str(row["table"])
        for row in database.execute(f"PRAGMA main.foreign_key_list({name})")
        if row["table"] != "unit"  # a unit's key is its name
    }
    key = (
        f"{name}_id"
        if any(row["name"] == f"{name}_id" and row["pk"] for row in described) and f"{name}_id" not in foreign
        else None
    )
    if key is not None and sum(bool(row["pk"]) for row in described) > 1:
        key = None
    others = tuple(column for column in columns if column != key)
    return _Table(name, others, foreign, key, _natural(database, name) or others)


def _natural(database: Connection, name: str) -> tuple[str, ...] | None:
    for index in database.execute(f"PRAGMA main.index_list({name})").fetchall():
        if index["unique"] and not index["partial"] and index["origin"] != "pk":
            return tuple(str(row["name"]) for row in database.execute(f"PRAGMA main.index_info({index['name']})"))
    return None


# ----------------------------------------------------------------------------------------------------------------------
# Judge the stored evidence again with the present rules, so that old results get today's findings.
#
#     stored evidence, gauges, metrics, facts  ->  JudgedResult  ->  judge  ->  result_finding, result.disturbed, rules_version
#
# The outcome of a result (measured, invalid) and whether it crossed the interface stay as loading set them: loading may
# have used more than the database keeps. Pruned results have no evidence left and keep their findings.


_ENDS = ("client", "server")


@dataclass(frozen=True, slots=True)
class Rejudged:
    """What judging again changed. changed_count: results whose findings differ now."""

    judged_count: int
    changed_count: int
    pruned_count: int


def rejudge(path: Path, judge: Judge, version: int, run: str | None = None) -> Rejudged:
    """Judge the evidence of measured results (of one run) again if rules other than `version` judged them."""
    judged = changed = 0
    with writing(path) as database, transaction(database):
        old, pruned = _outdated(database, version, run)
        kernels = kernels_of_texts(descriptions(database) if old else {})
        keys = RowKeys(database, kernels)
        for result_id in old:
            judgement = judge(_stored(database, kernels, result_id))
            before = _findings(database, result_id)
            database.execute("DELETE FROM result_finding WHERE result_id = ?", (result_id,))
            for finding in judgement.findings:
                rule = finding.rule
                rule_id = keys.rule(rule.name, rule.meaning, rule.advice, rule.source)
                end_index = _ENDS.index(finding.end) if finding.end else -1
                database.execute(
                    "INSERT INTO result_finding (result_id, rule_id, end_index, message, figures) VALUES (?, ?, ?, ?, ?)",
                    (result_id, rule_id, end_index, finding.message, canonical(finding.figures)),
                )
            database.execute(
                "UPDATE result SET disturbed = ?, rules_version = ? WHERE result_id = ?",
                (int(judgement.disturbed), version, result_id),
            )
            judged += 1
            changed += before != _findings(database, result_id)
    return Rejudged(judged, changed, pruned)


def _outdated(database: Connection, version: int, run: str | None) -> tuple[list[int], int]:
    """Measured results that other rules judged, and how many more have lost their evidence."""
    rows = database.execute(
        "SELECT x.result_id, EXISTS (SELECT 1 FROM evidence e WHERE e.result_id = x.result_id AND e.counter_count > 0)"
        " AS evidence FROM result x"
        " JOIN v_pairs p ON p.job_id = x.job_id WHERE x.outcome = 'measured' AND x.rules_version <> ?1"
        " AND (?2 IS NULL OR p.run = ?2) AND p.run_id IN (SELECT run_id FROM run WHERE kind <> 'import') ORDER BY x.result_id",
        (version, run),
    ).fetchall()
    return [int(row["result_id"]) for row in rows if row["evidence"]], sum(not row["evidence"] for row in rows)


def _findings(database: Connection, result_id: int) -> list[tuple[Any, ...]]:
    query = "SELECT rule_id, end_index, message FROM result_finding WHERE result_id = ? ORDER BY rule_id, end_index"
    return [tuple(row) for row in database.execute(query, (result_id,))]


def _stored(database: Connection, kernels: Kernels, result_id: int) -> JudgedResult:
    """A result in the form in which loading gave it to the rules, from the stored line and the facts of the nodes."""
    head = database.execute(
        "SELECT k.name AS kernel, ps.json AS parameters, x.attempt_id, j.client_node_id, j.server_node_id,"
        " a.committed_utc AS earliest_utc, a.ended_utc AS latest_utc"
        " FROM result x JOIN parameter_set ps ON ps.parameter_set_id = x.parameter_set_id"
        " JOIN kernel k ON k.kernel_id = ps.kernel_id JOIN job j ON j.job_id = x.job_id"
        " LEFT JOIN attempt a ON a.attempt_id = x.attempt_id WHERE x.result_id = ?",
        (result_id,),
    ).fetchone()
    metrics = "SELECT n.name, m.value FROM metric m JOIN metric_name n ON n.metric_name_id = m.metric_name_id"
    line = {
        "kernel": head["kernel"],
        "metrics": _pairs(database, f"{metrics} WHERE m.result_id = ?", result_id),
        "granted": _pairs(database, "SELECT granted, value FROM v_granted WHERE result_id = ?", result_id),
        "warnings": [
            {"name": row[0]} for row in database.execute("SELECT name FROM warning WHERE result_id = ?", (result_id,))
        ],
        "evidence": dict(_ends(database, result_id)),
    }
    described = kernels.get(head["kernel"])
    if described is not None:
        line |= told_of(described, json.loads(head["parameters"]))
    facts = [_facts(database, head["attempt_id"], head[f"{end}_node_id"]) for end in _ENDS]
    known = head["earliest_utc"] and head["latest_utc"]
    times = DriverTimes(head["earliest_utc"], head["latest_utc"]) if known else None
    return JudgedResult(line, json.loads(head["parameters"]), facts[0], facts[1], driver_times=times)


def _ends(database: Connection, result_id: int) -> Iterator[tuple[str, dict[str, Any]]]:
    ends = database.execute(
        "SELECT v.*, e.unavailable_set_id FROM v_ends v JOIN evidence_end e ON e.result_id = v.result_id"
        " AND e.end_index = v.end_index WHERE v.result_id = ? ORDER BY v.end_index",
        (result_id,),
    ).fetchall()
    for row in ends:
        key = (result_id, row["end"])
        gauges = database.execute('SELECT gauge, before, after FROM v_gauges WHERE result_id = ? AND "end" = ?', key)
        yield (
            row["end"],
            {
                **{name: row[name] for name in ("node", "interface", "address", "boot_id", "cpu_index", "interval_ns")},
                **{name: row[name] for name in ("before_utc", "after_utc")},
                "snapshot_cost_ns": [row["before_cost_ns"], row["after_cost_ns"]],
                "counters": _pairs(database, 'SELECT counter, delta FROM v_counters WHERE result_id = ? AND "end" = ?', *key),
                "gauges": {name: before if after is None else [before, after] for name, before, after in gauges},
                "unavailable": _pairs(
                    database, "SELECT source, reason FROM unavailable WHERE unavailable_set_id = ?", row["unavailable_set_id"]
                ),
            },
        )


def _facts(database: Connection, attempt_id: int | None, node_id: int) -> dict[str, Any] | None:
    found = _pairs(
        database,
        "SELECT f.name, f.value FROM node_facts nf JOIN fact_set_part sp ON sp.fact_set_id = nf.fact_set_id"
        " JOIN fact f ON f.fact_part_id = sp.fact_part_id WHERE nf.attempt_id = ? AND nf.node_id = ?",
        attempt_id,
        node_id,
    )
    return found or None


def _pairs(database: Connection, query: str, *values: Any) -> dict[str, Any]:
    return {str(row[0]): row[1] for row in database.execute(query, values)}
