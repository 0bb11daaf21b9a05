"""Tables on terminals of any width: nothing is cut off, no line is longer than the terminal is wide."""

from __future__ import annotations

import io
import re
from collections import Counter

import pytest

from hpcq.cli.output import Column, print_rows

pytestmark = pytest.mark.fast

COLUMNS = [*map(Column, ("cluster", "client", "server")), Column("message_bytes", "size"), Column("median_bps", "median")]


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_every_value_is_whole(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    rows = [
        {"cluster": "a-long-name", "client": f"node{number}", "server": "node[9]", "message_bytes": 2048, "median_bps": 9.41e9}
        for number in range(3)
    ]
    out = Terminal()
    print_rows(rows, COLUMNS, file=out)
    said = " ".join(out.getvalue().split())
    for text in ("a-long-name", "node0", "node1", "node2", "node[9]", "2 KiB", "9.41 Gbit/s"):
        assert text in said
    if width == 40:
        assert said.startswith("cluster a-long-name, server node[9], size 2 KiB, median 9.41 Gbit/s")


WIDE = [*map(Column, ("run", "started_utc", "kernel", "client", "server", "metric", "reason")), Column("median_bps", "median")]


@pytest.mark.parametrize("width", [24, 40, 60, 80, 120, 200])
def test_no_character_is_lost_where_every_column_differs(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    rows = [
        {
            "run": f"nightly-2026112{number}T020000Z-00f{number}",
            "started_utc": f"2026-11-2{number}T02:03:04Z",
            "kernel": f"tcp_stream{number}",
            "client": f"a-long-name-of-a-node-{number}",
            "server": f"another-long-name-{number}",
            "metric": f"throughput_bps_{number}",
            "reason": f"changed: {number} of 7 points are lower",
            "median_bps": 9.41e9 - number * 1e8,
        }
        for number in range(1, 4)
    ]
    out = Terminal()
    print_rows(rows, WIDE, file=out)
    said = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert max(len(line.rstrip()) for line in said.splitlines()) <= width
    assert "…" not in said
    values = "".join(f"{row[name]}" for row in rows for name in ("run", "kernel", "client", "server", "metric", "reason"))
    assert not Counter(values.replace(" ", "")) - Counter(said), said
