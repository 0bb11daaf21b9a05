"""The tables of docs/transports.md are those of their campaigns and benchmarks, row by row."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ruamel.yaml import YAML

from bench import streams
from bench.kernels import datagrams
from hpcq import units
from tests import REPOSITORY

pytestmark = pytest.mark.fast


def rows_of(section: str) -> list[list[str]]:
    """The cells of the only table of a section of docs/transports.md, without its head."""
    _, _, text = (REPOSITORY / "docs/transports.md").read_text("utf-8").partition(f"\n## {section}\n")
    lines = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def points_of(campaign: str) -> set[tuple[int, int]]:
    """Message and receive buffer of each point of a campaign's first test."""
    test: dict[str, Any] = YAML(typ="safe").load(REPOSITORY / "campaigns" / campaign)["tests"][0]
    columns = test["zip"]
    assert columns["send_buffer_bytes"] == columns["receive_buffer_bytes"]
    sizes, buffers = test["matrix"]["message_bytes"], columns["receive_buffer_bytes"]
    return {(int(units.parse(size, "bytes")), int(units.parse(one, "bytes"))) for size in sizes for one in buffers}


def size_of(text: str) -> int:
    return int(units.parse(text.replace(",", ""), "bytes"))


def first_number(cell: str) -> float:
    found = re.match(r"[\d.]+", cell)
    assert found, cell
    return float(found[0])


@pytest.mark.promise(
    "The table of docs/transports.md has each point of campaigns/lab-streams.yaml, beside the paper's figures."
)
def test_the_table_of_streams_has_the_campaigns_points_and_the_papers_figures() -> None:
    cells = {(size_of(row[0]), size_of(row[1])): row[2:] for row in rows_of("TCP: socket buffer and distance")}
    assert set(cells) == points_of("lab-streams.yaml") == set(streams.PAPER)
    assert {cell: tuple(map(float, row[4:])) for cell, row in cells.items()} == streams.PAPER


@pytest.mark.promise(
    "The figures of docs/transports.md keep what the page says: one window per round trip, or what the line carries."
)
def test_the_figures_of_streams_keep_the_windows_law() -> None:
    """What the page says of them: over the link no more than a window per round trip, and no less than the next smaller."""
    law = {
        (size_of(row[0]), size_of(row[1])): (first_number(row[4]), row[5], first_number(row[3]))
        for row in rows_of("TCP: socket buffer and distance")
    }
    limited = {cell for cell, (_, bound, _) in law.items() if bound[0].isdigit()}
    assert limited == {cell for cell in law if cell[1] <= 100_000}
    for cell, (over, bound, within) in law.items():
        if cell in limited:
            assert 0.75 < over / float(bound) < 1.1, cell
            assert over < 0.75 * within
        else:
            assert over > law[cell[0], 100_000][0]
        assert over < streams.LINE_BPS / 1e6


def test_the_table_of_datagrams_has_the_campaigns_points_and_the_papers_figures() -> None:
    cells = {(size_of(row[0]), size_of(row[1])): row[-1] for row in rows_of("UDP: datagram size and socket buffer")}
    assert set(cells) == points_of("lab-datagrams.yaml")
    for (size, buffer_bytes), theirs in cells.items():
        paper = datagrams.PAPER.get(size, (None,) * len(datagrams.BUFFERS))[datagrams.BUFFERS.index(buffer_bytes)]
        assert theirs == ("" if paper is None else f"{paper:g}")
