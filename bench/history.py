"""How fast the history answers from ten million metrics, and how fast ten thousand series are judged.

    python bench/history.py [--quick] [--database FILE]

Creates a database of 5,000 series over 200 nights with 10 metrics each (1 million results, 10 million metrics, 350 MB,
in a temporary folder). One series in fifty is 10 % slower for the last twenty nights; noise 2 %. Then it queries as
people do: whole processes with a cold interpreter, the file in the page cache. --database keeps the file for the next
time.
"""

from __future__ import annotations

import datetime as dt
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import Claim, claim, cpu_s, finish, parser
from hpcq.analysis.changed import searched
from hpcq.kernels import Better
from hpcq.store.database import Connection, reading, transaction, writing
from hpcq.store.history import timeline
from hpcq.store.selection import Window, metrics_of
from hpcq.store.series import find_series
from hpcq.verdict.levels import Sides, judge_search

PAIRS = 500
TESTS = 10
METRICS = 10
NIGHTS = 200
LATE_NIGHTS = 20
ASKED = 5
_PARTS = (
    "run_cluster_id, run_id, cluster_id, document_id, repetition_count, pair_count, result_count, opened_utc, closed_utc,"
    " loaded_utc"
)


def make(path: Path, nights: int, seed: int) -> None:
    """Fill a database as loading would leave it, without evidence."""
    random = np.random.default_rng(seed)
    begin = dt.datetime.now(dt.UTC) - dt.timedelta(days=nights)
    with writing(path) as database, transaction(database):
        _heads(database)
        names = PAIRS * TESTS
        slow = np.arange(names) % 50 == 0
        for night in range(nights):
            level = np.where(slow & (night >= nights - LATE_NIGHTS), 0.9, 1.0)
            value = 1e10 * level * (1 + 0.02 * random.standard_normal(names))
            at = begin + dt.timedelta(days=night)
            _night(database, night, at, value.tolist())


def _heads(database: Connection) -> None:
    execute = database.execute
    execute("INSERT INTO cluster VALUES (1, 'alpha')")
    database.executemany("INSERT INTO node VALUES (?, 1, ?)", ((i, f"n{i}") for i in range(1, 2 * PAIRS + 1)))
    execute(
        "INSERT INTO kernel (kernel_id, name, program, summary, method)"
        " VALUES (1, 'tcp_stream', 'hpcq-net', 'throughput', 'as it is')"
    )
    metrics = [
        (i, "throughput_bps" if i == 1 else f"other{i}_bps", "higher" if i == 1 else "none", i) for i in range(1, METRICS + 1)
    ]
    database.executemany("INSERT INTO metric_name VALUES (?, 1, ?, 'bps', ?, '', ?)", metrics)
    execute("UPDATE kernel SET main_metric_name_id = 1")
    execute("INSERT INTO option VALUES (1, 1, 'message_bytes', 'integer', 'bytes', '0', '')")
    execute("INSERT INTO campaign VALUES (1, 'nightly')")
    for test in range(TESTS):
        text = json.dumps({"message_bytes": 1024 << test}, separators=(",", ":"))
        execute("INSERT INTO parameter_set VALUES (?, 1, ?, ?, ?)", (test + 1, bytes([test]) * 32, text, 1024 << test))
        rows = ((pair * TESTS + test + 1, text, 2 * pair + 1, 2 * pair + 2) for pair in range(PAIRS))
        database.executemany("INSERT INTO series VALUES (?, 1, ?, ?, ?, 'eth0', 'default')", rows)


def _night(database: Connection, night: int, at: dt.datetime, values: list[float]) -> None:
    moment = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    database.execute(
        "INSERT INTO run VALUES (?, ?, 1, NULL, ?, 1, '0', 'campaign')",
        (night + 1, f"nightly-{at:%Y%m%dT%H%M%SZ}-0000", moment),
    )
    head = (night + 1, night + 1, PAIRS, PAIRS * TESTS, moment)
    database.execute(f"INSERT INTO run_cluster ({_PARTS}) VALUES (?, ?, 1, NULL, 1, ?, ?, NULL, NULL, ?)", head)
    jobs = ((night * PAIRS + pair + 1, night + 1, f"j{pair:05d}", 2 * pair + 1, 2 * pair + 2) for pair in range(PAIRS))
    database.executemany(
        "INSERT INTO job (job_id, run_cluster_id, name, client_node_id, server_node_id) VALUES (?, ?, ?, ?, ?)", jobs
    )
    first = night * len(values)
    database.executemany(
        "INSERT INTO result (result_id, job_id, test_no, repetition_no, final, series_id, parameter_set_id, outcome,"
        " started_utc, disturbed, crossed_interface) VALUES (?, ?, ?, 1, 1, ?, ?, 'measured', ?, 0, 'yes')",
        _results(first, night, at, len(values)),
    )
    rows = (
        (first + i + 1, metric, value if metric == 1 else 1.0)
        for i, value in enumerate(values)
        for metric in range(1, METRICS + 1)
    )
    database.executemany("INSERT INTO metric VALUES (?, ?, ?)", rows)


def _results(first: int, night: int, at: dt.datetime, count: int) -> Iterator[tuple[Any, ...]]:
    for i in range(count):
        pair, test = divmod(i, TESTS)
        moment = (at + dt.timedelta(seconds=pair)).strftime("%Y-%m-%dT%H:%M:%S")
        yield first + i + 1, night * PAIRS + pair + 1, test + 1, i + 1, test + 1, f"{moment}.{i % TESTS:06d}Z"


def ask(path: Path, *words: str) -> tuple[float, float, Any]:
    """Seconds of a whole `hpcq` process, wall and CPU, as medians of several, and its JSON output."""
    seconds, cpu_seconds, printed = [], [], ""
    for _ in range(ASKED):
        start, used = time.perf_counter(), _children_s()
        argv = [sys.executable, "-m", "hpcq", *words, "--db", str(path), "--json"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(_children_s() - used)
        printed = done.stdout
        if done.returncode not in {0, 3}:
            raise SystemExit(done.stderr)
    return float(np.median(seconds)), float(np.median(cpu_seconds)), json.loads(printed)


def _children_s() -> float:
    """CPU seconds of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    options = parser(__doc__ or "", 20261121)
    options.add_argument("--database", type=Path, help="make it here, or use what is there")
    given = options.parse_args()
    nights = 60 if given.quick else NIGHTS
    with tempfile.TemporaryDirectory() as folder:
        path = given.database or Path(folder) / "results.db"
        if not path.exists():
            start = time.perf_counter()
            make(path, nights, given.seed)
            print(f"made {path.stat().st_size / 1e6:.0f} MB in {time.perf_counter() - start:.0f} s")
        claims = [*_asked(path), *_judged(given.seed)]
    return finish("history", claims, quick=given.quick)


def _asked(path: Path) -> list[Claim]:
    history_s, _, found = ask(path, "history", "51")
    query_s = float(np.median([_history(path) for _ in range(ASKED)]))
    since_s, since_cpu_s, told = ask(path, "regressions", "--since", "30d")
    against_s, against_cpu_s, _ = ask(path, "regressions", "--since", "15d", "--against", "90d..30d")
    slow = PAIRS * TESTS // 50
    right = sum((one["series_id"] - 1) % 50 == 0 for one in told["changes"])
    points = len(found["points"])
    return [
        claim(f"one series of {points} points out of all metrics, found, read and judged", "wall", "s", query_s, "< 0.3"),
        claim("the same, whole process with start of Python and numpy", "wall", "s", history_s),
        claim("all changed series of a month, searched, whole process", "wall", "s", since_s, "< 5"),
        claim("the same", "CPU", "s", since_cpu_s),
        claim("all changed series of a month, against another, whole process", "wall", "s", against_s, "< 5"),
        claim("the same, against another", "CPU", "s", against_cpu_s),
        claim("changed series found", "share", "share", right / slow, ">= 0.99"),
        claim("unchanged series told", "count", "count", float(len(told["changes"]) - right), "<= 5"),
    ]


def _history(path: Path) -> float:
    """Seconds from opening the file to points and changes of one series."""
    start = time.perf_counter()
    with reading(path) as database:
        found = find_series(database, "51")
        metrics = metrics_of(database, None)
        timeline(database, found[0].series_id, metrics[found[0].kernel], Window("all"))
        searched(database, found, metrics, "", Window("all"))
    return time.perf_counter() - start


def _judged(seed: int) -> list[Claim]:
    random = np.random.default_rng(seed)
    values = 1e10 * (1 + 0.02 * random.standard_normal((10_000, 100)))
    values[::50, 70:] *= 0.9
    series = [Sides(Better.HIGHER, row, 60, row, 60) for row in values]
    seconds = min(cpu_s(lambda: judge_search(series)) for _ in range(2))
    return [claim("10,000 series of 100 points judged, tails included", "CPU", "s", seconds, "< 3")]


if __name__ == "__main__":
    sys.exit(main())
