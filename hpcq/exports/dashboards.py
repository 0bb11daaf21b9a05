"""Dashboards over results.db: one of Grafana with its SQLite data source, and the metadata of Datasette."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpcq.errors import UserError
from hpcq.store.read.stretches import PARAMETERS, QUESTIONS, Question

#: The data source plugin, and the version of Grafana's format that this was written for.
PLUGIN = "frser-sqlite-datasource"
_SCHEMA_VERSION = 39
_SOURCE = {"type": PLUGIN, "uid": "${DS_HPCQ}"}
#: What Grafana puts in place of our parameters. `sqlstring` quotes and escapes.
_GRAFANA_WORDS = {
    "cluster": "${cluster:sqlstring}",
    "kernel": "${kernel:sqlstring}",
    "since_utc": "'${__from:date:iso}'",
    "until_utc": "'${__to:date:iso}'",
}
#: Grafana's names of our units.
_GRAFANA_UNITS = {"bps": "bps", "ns": "ns", "ratio": "percentunit", "": "none"}
_WIDTH, _HEIGHT = 12, 8
_DATASETTE_NAME = re.compile(r"[^/?#%]+")


def grafana() -> dict[str, Any]:
    """Return a dashboard to import. On import Grafana asks for the data source."""
    panels = [_panel(number, one) for number, one in enumerate(QUESTIONS)]
    return {
        "__inputs": [{"name": "DS_HPCQ", "label": "results.db of hpcq", "type": "datasource", "pluginId": PLUGIN}],
        "__requires": [
            {"type": "grafana", "id": "grafana", "name": "Grafana", "version": "10.0.0"},
            {"type": "datasource", "id": PLUGIN, "name": "SQLite", "version": "3.0.0"},
        ],
        "id": None,
        "uid": "hpcq",
        "title": "hpcq",
        "tags": ["hpcq"],
        "timezone": "utc",
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": _SCHEMA_VERSION,
        "refresh": "",
        "time": {"from": "now-90d", "to": "now"},
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [_variable("cluster", "v_runs"), _variable("kernel", "v_series")]},
        "panels": panels,
    }


def grafana_sql(sql: str) -> str:
    """Write a statement with Grafana's variables in place of its named parameters."""
    for name in PARAMETERS:
        sql = sql.replace(f":{name}", _GRAFANA_WORDS[name])
    return sql


def _variable(name: str, view: str) -> dict[str, Any]:
    query = f"SELECT 'all' AS {name} UNION ALL SELECT * FROM (SELECT DISTINCT {name} FROM {view} ORDER BY {name})"  # noqa: S608
    return {
        "name": name,
        "label": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"rawQueryText": query, "queryText": query, "queryType": "table", "timeColumns": []},
        "current": {"selected": True, "text": "all", "value": "all"},
        "refresh": 1,
        "sort": 0,
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
    }


def _panel(number: int, one: Question) -> dict[str, Any]:
    sql = grafana_sql(one.sql)
    target = {
        "refId": "A",
        "datasource": _SOURCE,
        "queryText": sql,
        "rawQueryText": sql,
        "queryType": "time series" if one.over_time else "table",
        "timeColumns": ["time_utc"] if one.over_time else [],
    }
    return {
        "id": number + 1,
        "title": one.title,
        "description": one.words,
        "type": "timeseries" if one.over_time else "table",
        "datasource": _SOURCE,
        "gridPos": {"x": number % 2 * _WIDTH, "y": number // 2 * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": _GRAFANA_UNITS[one.unit]} if one.over_time else {}, "overrides": []},
        "options": {},
        "targets": [target],
    }


def datasette(database: str, described: Mapping[str, tuple[str, Mapping[str, str]]]) -> dict[str, Any]:
    """Return Datasette's metadata for a database of that name.

    described: table or view -> what it holds, and what each column of a table means. Raises UserError for a name that no
    address can hold.
    """
    if not _DATASETTE_NAME.fullmatch(database):
        raise UserError(f"--db: {database!r}: Datasette's addresses cannot hold this name: must be one without /?#%")
    tables = {name: {"description": words, "columns": dict(columns)} for name, (words, columns) in described.items()}
    queries = {one.name: _query(one) for one in QUESTIONS}
    return {
        "title": "hpcq",
        "description": "Results of network test campaigns, with evidence of both ends. Read the views v_*.",
        "databases": {database: {"tables": tables, "queries": queries}},
    }


def _query(one: Question) -> dict[str, Any]:
    return {"title": one.title, "description": one.words, "sql": one.sql, "params": list(one.parameters)}


_TABLE = re.compile(r"^CREATE (?:TABLE|VIEW) (\w+) (?:\( |AS )-- (.+)$")
_COLUMN = re.compile(r"^    (\w+) .*?-- (.+)$")


def described(schema: Sequence[str]) -> dict[str, tuple[str, dict[str, str]]]:
    """Read what tables, views and columns mean from the comments of the database's schema."""
    return {name: (words, columns) for name, words, columns in _described(schema)}


def _described(schema: Sequence[str]) -> Iterator[tuple[str, str, dict[str, str]]]:
    name, words = "", ""
    columns: dict[str, str] = {}
    for line in schema:
        if head := _TABLE.match(line):
            if name:
                yield name, words, columns
            name, words, columns = head[1], head[2], {}
        elif column := _COLUMN.match(line):
            columns[column[1]] = column[2]
    if name:
        yield name, words, columns
