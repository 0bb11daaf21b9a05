"""ReFrame: performance logs (one file per test, columns between bars), reports in JSON, and the database of results.

A row of a log, and a test case of a report, is one run of a test on the nodes of its job. A performance variable with a
value was measured, also where ReFrame calls it a failure because it is outside its reference. Logs before version 4
name neither columns nor nodes, and are refused.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcq import units
from hpcq.errors import DATABASE_HEAD, UserError
from hpcq.imports.others import Maker, files_in, list_of, made, mapping_of, number_of, plain_name, typed
from hpcq.imports.values import Problems, Source, Value, read_bytes
from hpcq.nodelist import expand

SUFFIXES = (".log", ".json", ".db")
_VERSIONS = ("3.", "4.")
_PERFVALUE_LENGTH = 5


#: The sessions in a database of ReFrame, oldest first, each as JSON.
Sessions = Callable[[Path], Sequence[bytes]]


def read(paths: Sequence[Path], maker: Maker, problems: Problems, sessions: Sessions) -> Iterator[Source]:
    """The values in these files, and in those below folders. Raises UserError for a file of another kind."""
    for path in files_in(paths, SUFFIXES):
        content, digest = read_bytes(path)
        if content.startswith(DATABASE_HEAD):
            yield Source(
                str(path), digest, _cases(str(path), [_report(path, blob) for blob in sessions(path)], maker, problems)
            )
        elif content.lstrip().startswith(b"{"):
            yield Source(str(path), digest, _cases(str(path), [_report(path, content)], maker, problems))
        else:
            yield Source(str(path), digest, _log(path, content, maker, problems))


def _log(path: Path, content: bytes, maker: Maker, problems: Problems) -> Iterator[Value]:
    lines = content.decode("utf-8", "replace").splitlines()
    said = maker.roles(path)
    names: list[str] = []
    bar = "|"
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        split = [
            one.split(sep) for sep in ("|", ",") for one in [line] if "result" in one.split(sep) and "name" in one.split(sep)
        ]
        if split:
            names, bar = split[0], "|" if "|" in line else ","
            for needed in ("job_nodelist", "name"):
                if needed not in names:
                    raise UserError(
                        f"{path}:{number}: column {needed}: missing: hpcq must know the nodes", "ReFrame's default has it"
                    )
            continue
        if not names:
            hint = "logs of ReFrame before 4.0 name neither columns nor nodes: use its reports, or a CSV of your own"
            raise UserError(f"{path}:{number}: no head: must be a first line that names the columns, result|...", hint)
        cells = line.split(bar)
        if len(cells) != len(names):
            problems.add(str(path), number, f"{len(cells)} cells: must be {len(names)}, as in the head above")
            continue
        row = dict(zip(names, cells, strict=True))
        values = {
            name.removesuffix("_value"): (
                _number(row[name]),
                _none(row.get(f"{name.removesuffix('_value')}_lower_thres")),
                _none(row.get(f"{name.removesuffix('_value')}_upper_thres")),
                row.get(f"{name.removesuffix('_value')}_unit", ""),
            )
            for name in names
            if name.endswith("_value")
        }
        try:
            time = _time(row.get("job_completion_time_unix"), row.get("job_completion_time"), row.get("job_submit_time"))
            hosts = expand(row["job_nodelist"]) if _none(row["job_nodelist"]) else []
            yield from _values(number, {**row, **said}, (time, hosts), values, maker)
        except ValueError as error:
            problems.add(str(path), number, str(error))


def _report(path: Path, content: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(content)
        version = str(found["session_info"]["data_version"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{path}: is no report of ReFrame: must be JSON with session_info and runs") from None
    if not version.startswith(_VERSIONS):
        raise UserError(f"{path}: has data version {version[:20]}: must be 3 and 4")
    return mapping_of(found)


def _cases(path: str, sessions: Sequence[Mapping[str, Any]], maker: Maker, problems: Problems) -> Iterator[Value]:
    """Values of test cases; the line of a value is the number of its test case in the file."""
    number = 0
    for session in sessions:
        info = mapping_of(session.get("session_info"))
        run = "-".join(("reframe", str(info.get("time_start", "")).partition("+")[0], str(info.get("uuid", ""))[:8]))
        said = {"run": plain_name(run)[:100], **maker.roles(Path(path))}
        parts = [mapping_of(part) for part in list_of(session.get("runs"))]
        for one in (mapping_of(case) for part in parts for case in list_of(part.get("testcases"))):
            number += 1
            try:
                yield from _of_case(number, one, said, maker)
            except ValueError as error:
                problems.add(path, number, f"test case {str(one.get('uuid', number))[:60]}: {error}")


def _of_case(number: int, one: Mapping[str, Any], said: Mapping[str, str], maker: Maker) -> Iterator[Value]:
    """One test case: `perfvalues` by system, partition and variable since ReFrame 4, before it a list `perfvars`."""
    values: dict[str, tuple[object, object, object, str]] = {}
    for key, entry in mapping_of(one.get("perfvalues")).items():
        if len(list_of(entry)) < _PERFVALUE_LENGTH:
            raise ValueError(f"perfvalues.{key}: {str(entry)[:40]!r}: must be value, reference, two bounds and unit")
        values[str(key).rpartition(":")[2]] = (entry[0], entry[2], entry[3], str(entry[4] or ""))
    for entry in map(mapping_of, list_of(one.get("perfvars"))):
        bounds = (entry.get("thres_lower"), entry.get("thres_upper"))
        values[str(entry.get("name", ""))] = (entry.get("value"), *bounds, str(entry.get("unit") or ""))
    if not isinstance(one.get("name"), str):
        raise ValueError("name: missing: must be the name of the test")  # noqa: TRY004 - of a file, not of a caller
    time = _time(one.get("job_completion_time_unix"), one.get("job_completion_time"), one.get("job_submit_time"))
    hosts = [str(host) for host in list_of(one.get("job_nodelist")) or list_of(one.get("nodelist"))]
    yield from _values(number, {**one, **said}, (time, hosts), values, maker)


def _values(
    line: int, row: Mapping[str, Any], when_where: tuple[str, Sequence[str]], values: Mapping[str, Any], maker: Maker
) -> Iterator[Value]:
    """The values of one test case. One without hosts never ran, so it brings nothing but a note."""
    time, hosts = when_where
    columns = maker.meaning.columns
    told = [str(row[columns[role]]) for role in ("client", "server") if role in columns and columns[role] in row]
    told = told or [str(row[role]) for role in ("client", "server") if row.get(role) and role in ("client", "server")]
    if not (told or hosts):
        maker.notes["test cases that never got nodes were left out"] = None
        return
    tasks, per_node = (_number(str(row.get(name))) or 0 for name in ("num_tasks", "num_tasks_per_node"))
    if not told and per_node > 0 and tasks > per_node * len(hosts):  # a job that ends may tell one of two
        maker.notes["test cases of which ReFrame names fewer nodes than their tasks need were left out"] = None
        return
    client, server = maker.nodes(told or hosts)
    time_utc = maker.utc(time)
    name, *parameters = str(row["name"]).split(" %")
    told_of = {key: typed(value) for key, _, value in (one.partition("=") for one in parameters)}
    told_of.pop(columns.get("nodes", ""), None)
    told_of |= {key: str(row[key]) for key in ("environ", "partition") if _none(row.get(key))}
    where = {
        "time_utc": time_utc,
        "run": maker.run({"run": str(row.get("run") or "")}, time_utc),
        "job": "".join(one if one.isalnum() else "_" for one in str(row.get("jobid") or row.get("job") or ""))[:60],
        "test": maker.test(str(row.get("test") or name), told_of),
        "client": client,
        "server": server,
        "repetition_no": None,
    }
    missing = []
    for variable, (value, lower, upper, unit) in values.items():
        if value is None:
            missing.append(variable)
            continue
        metric, factor = maker.metric(variable, unit, maker.better_of(lower, upper))
        yield made(line, where, metric, number_of(value, variable) * factor, None)
    if missing or not values:
        if not values and str(row.get("result")) not in {"fail", "failure", "error"}:
            maker.notes["tests without a performance variable were left out"] = None
        else:
            reason = str(row.get("fail_reason") or f"ReFrame says {row.get('result', 'fail')}")
            yield made(line, where, None, None, f"{', '.join(missing) or name}: {reason}"[:400])


def _time(*found: object) -> str:
    for one in found:
        number = one if isinstance(one, (int, float)) else _number(str(one or ""))
        if isinstance(number, (int, float)):
            try:
                return units.utc_text(dt.datetime.fromtimestamp(number, dt.UTC))
            except (OverflowError, OSError, ValueError):
                raise ValueError(f"job_completion_time_unix: {str(number)[:40]}: must be seconds since 1970") from None
        if isinstance(one, str) and _none(one):
            return one
    raise ValueError("job_completion_time: none: must be when the job ended")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _none(text: object) -> object:
    return None if text in (None, "", "None", "null", "N/A") else text
