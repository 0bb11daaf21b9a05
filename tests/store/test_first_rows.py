"""The first rows of a table are those of the whole table, without the work for the others."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcq.cli.main import run as hpcq
from hpcq.store import query
from hpcq.store.database import reading
from hpcq.store.load.cluster import load_run
from hpcq.store.read.toolchains import toolchain_rows
from hpcq.store.selection import Selection
from tests.store.run_folders import RunBuilder

pytestmark = pytest.mark.fast

#: Two kernels, one of them with two variants of one size; n10 comes after n2.
TESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("tcp_stream", {"message_bytes": 65536}),
    ("tcp_stream", {"message_bytes": 65536, "no_delay": True}),
    ("tcp_pingpong", {"message_bytes": 64}),
)
PAIRS = (("n10", "n2"), ("n2", "n10"), ("n1", "n2"), ("n1", "n10"))


@pytest.fixture(scope="module")
def two_clusters(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run on two clusters whose nodes have the same names."""
    folder = tmp_path_factory.mktemp("two")
    alpha = RunBuilder(folder / "runs", tests=TESTS, pairs=PAIRS)
    alpha.everything()
    alpha.other_cluster("beta").everything()
    load_run(folder / "results.db", alpha.path)
    return folder / "results.db", alpha.run


@pytest.mark.promise("hpcq results --limit shows the first rows of the same table, whatever decides its columns.")
@pytest.mark.parametrize("wanted", [{}, {"metric": "throughput_bps"}, {"all_metrics": True}], ids=str)
@pytest.mark.parametrize("filters", [{}, {"node": "n10"}, {"kernel": "tcp_pingpong"}, {"cluster": "beta"}], ids=str)
def test_the_first_rows_are_those_of_all(
    two_clusters: tuple[Path, str], wanted: dict[str, Any], filters: dict[str, Any]
) -> None:
    path, run = two_clusters
    with reading(path) as database:
        selection = Selection(run=run, **filters)
        whole = query.summaries(database, selection, **wanted, confirmations=True)
        for limit in (1, 2, 3, 5, len(whole), len(whole) + 1):
            first = query.first_summaries(database, selection, limit, **wanted)
            assert first.rows == whole[:limit]
            assert first.count == len(whole)
            assert first.has_variants == any(one.variant for one in whole)
            assert first.networks == {(one.cluster, one.network) for one in whole}


def test_a_limit_makes_no_medians_of_the_rest(two_clusters: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    path, run = two_clusters
    made: list[int] = []

    def counted(values: list[float]) -> float:
        made.append(len(values))
        return sorted(values)[len(values) // 2]

    monkeypatch.setattr(query, "median", counted)
    with reading(path) as database:
        whole = query.summaries(database, Selection(run=run))
        made.clear()
        query.first_summaries(database, Selection(run=run), 1)
    clients = {one.client for one in whole}
    assert len(made) <= len(whole) / len(clients), "values of other clients were read"


def test_the_table_says_how_many_rows_there_are(two_clusters: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    path, run = two_clusters
    hpcq(["results", run, "--db", str(path)])
    whole = capsys.readouterr().out.splitlines()
    hpcq(["results", run, "--limit", "3", "--db", str(path)])
    told = capsys.readouterr()
    assert told.out.splitlines() == whole[:4]
    assert f"the first 3 of {len(whole) - 1} rows" in told.err


def test_a_run_of_one_toolchain_is_not_read_for_its_toolchains(two_clusters: tuple[Path, str]) -> None:
    path, run = two_clusters
    with reading(path) as database:

        def steps(ask: Callable[[], object]) -> int:
            count = itertools.count()
            database.set_progress_handler(lambda: next(count) < 0, 10)
            assert not ask()
            return next(count)

        every = steps(lambda: database.execute("SELECT 1 FROM v_metrics WHERE run = ? AND value < 0", (run,)).fetchall())
        assert steps(lambda: toolchain_rows(database, run)) < every / 2
