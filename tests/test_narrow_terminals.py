"""Tables on terminals of any width: nothing is cut off."""

from __future__ import annotations

import io

import pytest

from hpcq.cli.rows import Column, print_rows

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
