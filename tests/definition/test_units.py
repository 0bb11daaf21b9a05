"""Quantities: every suffix has the factor that its name says, and what is printed reads the same."""

from __future__ import annotations

import datetime as dt

import pytest

from hpcq import units

pytestmark = pytest.mark.fast


@pytest.mark.promise("GiB is 2^30 bytes.")
@pytest.mark.promise("Tbit/s is 10^12 bits per second.")
@pytest.mark.promise("A gate of 95 % is the share 0.95, exactly.")
@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1", "bytes", 1), ("1B", "bytes", 1), ("1kB", "bytes", 1000), ("1KiB", "bytes", 1024),
        ("1MB", "bytes", 1_000_000), ("1MiB", "bytes", 1_048_576),
        ("1GB", "bytes", 1_000_000_000), ("1GiB", "bytes", 1_073_741_824), ("0.5GiB", "bytes", 536_870_912),
        ("1bit/s", "bps", 1), ("1kbit", "bps", 1000), ("1Mbit/s", "bps", 1_000_000), ("1gbps", "bps", 1_000_000_000),
        ("1Tbit/s", "bps", 1_000_000_000_000), ("1.6tbit", "bps", 1_600_000_000_000), ("400G", "bps", 400_000_000_000),
        ("1ns", "ns", 1), ("1us", "ns", 1000), ("1µs", "ns", 1000), ("1ms", "ns", 1_000_000), ("1s", "ns", 1_000_000_000),
        ("1.45ms", "ns", 1_450_000), ("1ms", "s", 0.001), ("2m", "s", 120), ("2min", "s", 120), ("1h", "s", 3600),
        ("1d", "s", 86400), ("2s", "ms", 2000), ("3s", "us", 3_000_000),
        ("95%", "ratio", 0.95), ("0.95", "ratio", 0.95), (" 7 ", "count", 7), (65536, "bytes", 65536), (0, "bytes", 0),
    ],
)  # fmt: skip
def test_a_quantity_is_read_in_the_unit_of_its_name(text: str | int, unit: str, value: float) -> None:
    assert units.parse(text, unit) == value


@pytest.mark.parametrize(("text", "unit"), [("1 KiBit", "bytes"), ("1s", "bytes"), ("x", "bps"), ("1%", "s")])
def test_another_unit_is_refused_with_those_allowed(text: str, unit: str) -> None:
    with pytest.raises(ValueError, match=f"is not a quantity in {unit}: must be"):
        units.parse(text, unit)


@pytest.mark.promise("Where a parameter has no unit, the error lists none.")
@pytest.mark.parametrize(("text", "unit"), [("1k", "count"), ("8MiB", ""), ("x", "")])
def test_where_no_unit_is_known_none_is_listed(text: str, unit: str) -> None:
    with pytest.raises(ValueError, match=f"^'{text}' is not a number: must be a number without a unit$"):
        units.parse(text, unit)


@pytest.mark.promise("A bound is written in the unit of what it bounds: message_bytes_max takes 8MiB.")
@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("message_bytes_max", "bytes"), ("loss_ratio_max", "ratio"), ("delay_us_min", "us"), ("operation_count_max", "count"),
        ("message_bytes", "bytes"), ("mode_max", None),
    ],
)  # fmt: skip
def test_a_bound_has_the_unit_of_what_it_bounds(name: str, unit: str | None) -> None:
    assert units.unit_of_option(name) == unit


@pytest.mark.promise("A size is shown in binary prefixes.")
@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1, "bytes", "1 B"), (1024, "bytes", "1 KiB"), (1 << 20, "bytes", "1 MiB"), (1 << 30, "bytes", "1 GiB"),
        (3 << 29, "bytes", "1.5 GiB"), (1e3, "bps", "1 kbit/s"), (1.2e8, "bps", "120 Mbit/s"), (4e11, "bps", "400 Gbit/s"),
        (71_000, "ns", "71 us"), (0.0015, "s", "1.5 ms"), (2500, "ms", "2.5 s"), (1, "ns", "1 ns"),
        (3.5e9, "flops", "3.5 Gflop/s"), (0.9512, "ratio", "95.12 %"), (7, None, "7"), (0, "bytes", "0 B"),
        (-0.0, "ns", "0 ns"),
    ],
)  # fmt: skip
def test_a_stored_value_is_shown_in_the_prefix_that_fits(value: float, unit: str | None, text: str) -> None:
    assert units.human(value, unit) == text


@pytest.mark.promise("A figure never outgrows its prefix: 999.97 Mbit/s is 1 Gbit/s.")
@pytest.mark.promise("A figure loses no digit before its decimal point: a count of 1234567 is not 1.23457e+06.")
@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (999.94e6, "bps", "999.9 Mbit/s"), (999.95e6, "bps", "1 Gbit/s"), (999.97e6, "bps", "1 Gbit/s"),
        (-999.97e6, "bps", "-1 Gbit/s"), (999.97e9, "bps", "1 Tbit/s"), (1.6e12, "bps", "1.6 Tbit/s"),
        (999_999, "ns", "1 ms"), (999.97, "us", "1 ms"), (999.9, "us", "999.9 us"), (1023 << 10, "bytes", "1023 KiB"),
        ((1 << 30) - 1, "bytes", "1 GiB"), (5 << 40, "bytes", "5 TiB"), (12_345, "s", "12345 s"), (1e18, "ns", "1000000000 s"),
        (123.4567, "ratio", "12346 %"), (1_234_567, "count", "1234567"), (1_234_567.0, "count", "1234567"),
        (2e6, "pps", "2000000"), (1_234_567.8, "eps", "1234568"), (10**17 + 1, "count", "100000000000000001"),
    ],
)  # fmt: skip
def test_a_figure_neither_outgrows_its_prefix_nor_loses_digits_before_the_point(value: float, unit: str, text: str) -> None:
    assert units.human(value, unit) == text


def test_values_that_round_to_one_prefix_stand_below_each_other_in_it() -> None:
    assert units.human_column([999.97e6, 1.25e9], "bps") == ["1.00 Gbit/s", "1.25 Gbit/s"]
    assert units.human_column([999.97e6, 500e6], "bps") == ["1 Gbit/s", "500 Mbit/s"]


def test_a_name_carries_its_unit() -> None:
    names = {"size_bytes": "bytes", "rate_bps": "bps", "p50_ns": "ns", "lost_ratio": "ratio", "wall_s": "s", "x": None}
    assert {name: units.unit_of(name) for name in names} == names


def test_moments_are_written_in_utc_and_read_again() -> None:
    moment = dt.datetime(2026, 11, 21, 3, 0, 0, 5, dt.timezone(dt.timedelta(hours=2)))
    assert units.utc_text(moment) == "2026-11-21T01:00:00.000005Z"
    assert units.parse_utc(units.utc_text(moment)) == moment
