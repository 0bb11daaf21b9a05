"""Tables on terminals of any width: nothing is cut off, no line is longer than the terminal is wide."""

from __future__ import annotations

import io
import re
from collections import Counter

import pytest

from hpcq.cli.output import Column, print_rows
from hpcq.cli.show import _table

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


@pytest.mark.promise("`hpcq show` breaks names and times where a reader would, and a file's sum stands on one line of 80.")
def test_show_breaks_names_and_times_at_their_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcq.cli.show._width", lambda: 80)
    facts = _table([
        ("  sysctl.net.core.netdev_max_backlog", "1000", "1000"),
        ("  sysctl.net.ipv4.tcp_congestion_control", "4096 131072 33554432", "4096 131072 33554432"),
    ])  # fmt: skip
    assert [line.split() for line in facts] == [
        ["sysctl.net.core.netdev_max_", "1000", "1000"],
        ["backlog"],
        ["sysctl.net.ipv4.tcp_congestion_", "4096", "131072", "33554432", "4096", "131072", "33554432"],
        ["control"],
    ]
    time, boot = "2026-11-27T19:22:43.555809Z", "3a432e61-e8aa-45b1-b159-0327acfa55dd"
    ends = list(_table([("before_utc", time, time), ("snapshot before_cost_ns", "1 ms", "1 ms"), ("boot_id", boot, boot)]))
    assert ends[1].split() == ["T19:22:43.555809Z"] * 2
    assert ends[-1].split() == ["0327acfa55dd"] * 2
    assert max(map(len, [*ends, *_table([("toolchain", "default"), ("sha256", "f" * 64)])])) <= 80
    assert len(list(_table([("toolchain", "default"), ("sha256", "f" * 64)]))) == 2
