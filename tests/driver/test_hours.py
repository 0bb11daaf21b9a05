"""Hours in which jobs may start: by day, over midnight, to the minute, of campaign and cluster together."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from hpcq.definition.checking import read_hours
from hpcq.definition.model import Budget, Hours

pytestmark = pytest.mark.fast


@pytest.mark.promise("Jobs start within hours of one day only between their first and last minute.")
@pytest.mark.promise("Hours over midnight are open on both of its sides.")
@pytest.mark.promise("Hours count minutes too.")
@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("08-18", ("08:00", "12:00", "17:59"), ("07:59", "18:00", "00:00", "23:59")),
        ("08:30-18:15", ("08:30", "18:14"), ("08:29", "18:15")),
        ("20-06", ("20:00", "23:59", "00:00", "05:59"), ("06:00", "12:00", "19:59")),
        ("20:30-06:15", ("20:30", "06:14"), ("20:29", "06:15")),
        ("00-24", ("00:00", "12:00", "23:59"), ()),
        ("00-06", ("00:00", "05:59"), ("06:00", "23:59")),
        ("18-24", ("18:00", "23:59"), ("00:00", "17:59")),
    ],
)
def test_jobs_start_from_the_first_minute_and_not_from_the_last(
    text: str, inside: tuple[str, ...], outside: tuple[str, ...]
) -> None:
    hours = read_hours(text)
    assert [one for one in inside if not hours.open_at(dt.time.fromisoformat(one))] == []
    assert [one for one in outside if hours.open_at(dt.time.fromisoformat(one))] == []


@pytest.mark.parametrize("text", ["", "20", "20-", "25-06", "20-06:60", "20-6-7", "a-b", "20:5-06", "08-08"])
def test_hours_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        read_hours(text)


@pytest.mark.promise("The hours of campaign and cluster hold together.")
def test_hours_of_campaign_and_cluster_hold_together() -> None:
    budget = replace(Budget(), hours=(Hours(20 * 60, 6 * 60),)).tightest(replace(Budget(), hours=(Hours(0, 3 * 60),)))
    open_now = [all(hours.open_at(dt.time(hour)) for hours in budget.hours) for hour in (22, 1, 4, 12)]
    assert open_now == [False, True, False, False]
