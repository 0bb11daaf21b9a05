"""What each verb costs at two sizes of a site's database: 1,000 nodes, 100 thousand results and a million.

    python bench/sizes.py [--quick] [--databases FOLDER] [--only WORD ...]

bench/support/large_site.py makes both (1 and 10 million metrics; half a million series, because each night draws other
pairs). CPU seconds of whole processes, Python's start included, beside what SQLite alone needs to read the main metric of
every result. Each verb is asked twice: the first look, and again, when what it judged is kept (hpcq/store/database.py).
--databases keeps the files for the next time; --only measures the verbs with these words and keeps the
other figures.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import Claim, against, claim, cpu_s, finish, parser, with_older
from bench.support.large_site import SLOW, Size, make_site

SIZES = {"100 thousand results": Size(nights=9, last_pairs=1000), "a million results": Size()}
QUICK = {
    "4 thousand results": Size(nodes=40, nights=9, last_pairs=40),
    "8 thousand results": Size(nodes=40, nights=18, last_pairs=80),
}
#: What a list may take; of one that says what was judged, once that was asked before.
_LIST_S = 0.3
#: Verbs, and the CPU seconds that each may take at both sizes; None: no goal but to grow with the results and no faster.
VERBS: dict[str, tuple[float, float] | None] = {
    "results nightly": (_LIST_S, _LIST_S),
    "results survey --limit 20": (_LIST_S, _LIST_S),
    "history 1": (_LIST_S, _LIST_S),
    f"nodes {SLOW}": (2.0, 5.0),
    "nodes --limit 20": (2.0, 5.0),
    "runs": (2.0, 5.0),
    "doctor": (2.0, 5.0),
    "regressions --since 30d": (2.0, 5.0),
    "compare latest 30d": (2.0, 5.0),
    "report survey --to {folder}/page.html": (3.0, 3.0),
    "export survey --format csv --to {folder}/survey.csv": None,
    "export survey --format prometheus --to {folder}/survey.prom": (3.0, 15.0),
    "db check": (2.0, 12.0),
}
#: Verbs that are a list, the second time.
_LISTS = ("nodes", "runs", "doctor")
_FLOOR = (
    "SELECT count(*), avg(m.value) FROM result x JOIN series s ON s.series_id = x.series_id"
    " JOIN kernel k ON k.kernel_id = s.kernel_id"
    " JOIN metric m ON m.result_id = x.result_id AND m.metric_name_id = k.main_metric_name_id WHERE x.final = 1"
)
_LIMIT_S = 900
_FINE = {0, 3, 4}


def asked(words: str, database: Path, cache: Path) -> tuple[float, float]:
    """CPU seconds and the most memory, in MB, of one verb as a process of its own. cache: where it keeps answers."""
    argv = [sys.executable, "-m", "hpcq", *words.split(), "--db", str(database)]
    root, environment = Path(__file__).resolve().parents[1], {**os.environ, "XDG_CACHE_HOME": str(cache)}
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=root, env=environment)
    deadline = time.monotonic() + _LIMIT_S
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > deadline:
            process.kill()
        time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in {*_FINE, -9}:
        raise SystemExit(f"hpcq {words}: exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def floor_s(database: Path) -> float:
    """CPU seconds that SQLite needs for the main metric of every result."""
    with closing(sqlite3.connect(database)) as connection:
        return cpu_s(lambda: connection.execute(_FLOOR).fetchone())


def claims_of(databases: dict[str, Path], results: list[int], verbs: list[str], folder: Path) -> list[Claim]:
    """The table, and how each verb grows."""
    floors = {size: floor_s(database) for size, database in databases.items()}
    found = []
    for verb in verbs:
        goals, seconds = VERBS[verb], []
        for number, (size, database) in enumerate(databases.items()):
            cache = Path(tempfile.mkdtemp(dir=folder))
            used, memory_mb = asked(verb.format(folder=folder), database, cache)
            seconds.append(used)
            goal = None if goals is None else f"<= {goals[number]:g}"
            name = f"hpcq {verb.partition(' --to')[0]}, {size}"
            found.append(against(name, "CPU", "s", used, peer="SQLite, the main metrics", peer_value=floors[size], goal=goal))
            found.append(claim(name, "memory at most", "MB", memory_mb))
            again, _ = asked(verb.format(folder=folder), database, cache)
            goal = f"<= {_LIST_S:g}" if verb.startswith(_LISTS) else goal
            found.append(claim(f"{name}, again", "CPU", "s", again, goal))
            print(f"{name}: {used:.2f} s, {memory_mb:.0f} MB, again {again:.2f} s", flush=True)
        growth = seconds[1] / seconds[0] / (results[1] / results[0])
        found.append(claim(f"hpcq {verb.partition(' --to')[0]}: CPU a result grows by", "ratio", "", growth, "<= 1.25"))
    for (size, database), count in zip(databases.items(), results, strict=True):
        found.append(
            claim(f"a result with all its evidence, {size}", "file", "bytes", database.stat().st_size / count, "<= 1024")
        )
    return found


def main() -> int:
    options = parser(__doc__ or "", 20261127)
    options.add_argument("--databases", type=Path, help="make them here, or use what is there")
    options.add_argument("--only", nargs="+", default=[], help="verbs with one of these words")
    given = options.parse_args()
    sizes = QUICK if given.quick else SIZES
    verbs = [verb for verb in VERBS if not given.only or set(given.only) & set(verb.split())]
    with tempfile.TemporaryDirectory() as made:
        folder = given.databases or Path(made)
        databases = {size: folder / f"{size.replace(' ', '-')}.db" for size in sizes}
        for size, database in databases.items():
            if not database.exists():
                make_site(database, sizes[size], given.seed)
        claims = claims_of(databases, [one.result_count for one in sizes.values()], verbs, Path(made))
    return finish("sizes", with_older("sizes", claims) if given.only else claims, quick=given.quick)


if __name__ == "__main__":
    sys.exit(main())
