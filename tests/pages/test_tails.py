"""How long single operations took: histograms added up by test, and the pictures of their tails."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hpcq.reports import write_report
from hpcq.reports.page import make_tails
from hpcq.reports.plots import Axis, few, tick_values
from hpcq.store.database import reading
from hpcq.store.read.grouped import Distribution, distributions
from tests.store.run_folders import RunBuilder, load

pytestmark = pytest.mark.fast

#: 989 operations of 10 us, 10 of 50 us, one of 5 ms.
BUCKETS = ((10_000.0, 989), (50_000.0, 10), (5_000_000.0, 1))


def distribution(**changed: Any) -> Distribution:
    of: dict[str, Any] = {
        "cluster": "alpha",
        "kernel": "tcp_pingpong",
        "message_bytes": 64,
        "variant": "",
        "unit": "ns",
        "buckets": BUCKETS,
    }
    return Distribution(**(of | {"result_count": 1} | changed))


@pytest.mark.promise("A percentile of latency is no shorter than that share of the operations took.")
def test_shares_and_percentiles_of_operations() -> None:
    one = distribution()
    assert [(value, round(share, 4)) for value, share in one.at_least()] == [(10_000, 1), (50_000, 0.011), (5_000_000, 0.001)]
    found = {share: one.percentile(share) for share in (0.5, 0.98, 0.99, 0.999, 1.0)}
    assert found == {0.5: 10_000, 0.98: 10_000, 0.99: 50_000, 0.999: 50_000, 1.0: 5_000_000}


@pytest.mark.promise("A picture of latency tails has steps: it claims no operation between two buckets.")
def test_a_picture_per_kernel_names_its_percentiles() -> None:
    [tails, other] = make_tails([distribution(), distribution(message_bytes=1024), distribution(kernel="mpi_pingpong")])
    assert (len(tails.plot.curves), len(other.plot.curves)) == (2, 1)
    assert tails.rows[0] == ("64 B", 1000, "10 us", "10 us", "50 us", "50 us", "5 ms")
    texts = [dot.text for dot in tails.plot.curves[0].dots]
    assert texts == [f"64 B: {words}" for words in (
        "half of them took at most 10 us", "99 % took at most 50 us", "99.9 % took at most 50 us")]  # fmt: skip
    points = [tuple(map(float, one.split(","))) for one in tails.plot.curves[0].line.split()]
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(points)), "no slope between buckets"
    assert all(78 <= x <= 506 and 14 <= y <= 260 for x, y in points)


def test_of_many_sizes_the_first_and_the_last_are_drawn() -> None:
    [tails] = make_tails([distribution(message_bytes=2**power) for power in range(20)])
    labels = [curve.label for curve in tails.plot.curves]
    assert (len(labels), labels[0], labels[-1], len(tails.rows)) == (6, "1 B", "512 KiB", 20)


@pytest.mark.promise("The page of a run draws times that lie close together.")
def test_operations_between_two_and_five_milliseconds_are_drawn() -> None:
    """Neither 1, 2 nor 5 of any power of ten lies on their axis."""
    [tails] = make_tails([distribution(buckets=((2_250_000.0, 500), (3_800_000.0, 500)))])
    assert [tick.label for tick in tails.plot.x_ticks] == ["2.5 ms", "3 ms", "3.5 ms", "4 ms", "4.5 ms"]


@pytest.mark.parametrize("low", [1.0, 1.7, 2.04, 4.99, 5.1, 9.0])
@pytest.mark.parametrize("factor", [1.001, 1.3, 1.69, 2.4, 9.0, 100.0, 1e6])
def test_every_logarithmic_axis_has_three_marks(low: float, factor: float) -> None:
    marks = tick_values(Axis(low * 1e6, low * factor * 1e6, 0, 1, log=True))
    assert len(marks) >= 3
    assert all(low * 1e6 <= mark <= low * factor * 1e6 for mark in marks)


def test_few_of_no_values_are_none() -> None:
    assert few([]) == []


def test_results_of_a_test_are_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = RunBuilder.line

    def line(self: RunBuilder, job_id: str, step: tuple[int, int], **changed: Any) -> dict[str, Any]:
        return real(self, job_id, step, **changed) | {"histogram": {"unit": "ns", "buckets": [[9000, 3], [12000, 1]]}}

    monkeypatch.setattr(RunBuilder, "line", line)
    tests = [("tcp_pingpong", {"message_bytes": size}) for size in (64, 1024)]
    builder = RunBuilder(tmp_path / "runs", pairs=(("n1", "n2"), ("n3", "n4")), tests=tests)
    builder.everything()
    load(tmp_path / "results.db", builder)
    with reading(tmp_path / "results.db") as database:
        found = distributions(database, builder.run)
    assert [(one.message_bytes, one.buckets, one.result_count) for one in found] == [
        (64, ((9000, 18), (12000, 6)), 6),
        (1024, ((9000, 18), (12000, 6)), 6),
    ]
    write_report(tmp_path / "results.db", builder.run, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert 'id="tails"' in page
    assert re.search(r"<title>64 B: half of them took at most 9 us</title>", page)


def test_a_run_without_histograms_has_no_such_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = RunBuilder.line
    monkeypatch.setattr(RunBuilder, "line", lambda self, *words, **changed: real(self, *words, histogram=None, **changed))
    builder = RunBuilder(tmp_path / "runs", tests=[("tcp_stream", {"message_bytes": 64})])
    builder.everything()
    load(tmp_path / "results.db", builder)
    write_report(tmp_path / "results.db", builder.run, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert 'id="tails"' not in page
