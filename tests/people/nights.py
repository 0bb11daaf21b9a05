"""A history with a known truth: six nodes, all pairs, fourteen nights, the last one yesterday or today.

n2      90 % since night 6, when its rmem_max fell and it rebooted
n4      60 % since night 10, with another driver
n1 > n3 70 % since night 4, without any reason that hpcq knows
"""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from hpcq.cli.main import run
from hpcq.store.database import transaction, writing
from tests.history.histories import History
from tests.store.run_folders import START

NODES = ("n1", "n2", "n3", "n4", "n5", "n6")
PAIRS = tuple((client, server) for client in NODES for server in NODES if client != server)
NIGHTS = 14
#: As in tests/store/run_folders.py.
_NIC = {"eth0.name": "eth0", "eth0.speed_bps": 100_000_000_000, "eth0.mtu_bytes": 1500}
RACKS = {node: "r1" if node < "n4" else "r2" for node in NODES}


def make_nights(folder: Path, nights: int = NIGHTS) -> History:
    """Write and load the runs."""
    made = History(folder, pairs=PAIRS)
    first = (dt.datetime.now(dt.UTC) - START).days - nights
    for night in range(nights):
        levels, facts, boots = dict[str, float](), dict[str, Any](), dict[str, str]()
        if night >= 4:
            levels["n1>n3"] = 0.7
        if night >= 6:
            levels["n2"], boots["n2"] = 0.9, "second-boot-of-n2"
            facts["n2"] = {"sysctl": {"net.core.rmem_max": 212992}}
        if night >= 10:
            levels["n4"] = 0.6
            facts["n4"] = {"nic": _NIC | {"eth0.driver": "ice"}}
        made.night(first + night, levels=levels, facts=facts, boots=boots, noise=0.004, seed=night + 301)  # on any day the same
    with writing(made.database) as database, transaction(database):
        for node, rack in RACKS.items():
            database.execute(
                "INSERT INTO node_group SELECT node_id, 'rack', '2026-01-01T00:00:00Z', ? FROM node WHERE name = ?",
                (rack, node),
            )
    return made


class Asked:
    """Runs verbs in this process on one database."""

    def __init__(self, database: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.database, self.capsys = database, capsys

    def words(self, *words: str, expect: int = 0) -> str:
        """Standard output and standard error of a verb."""
        self.capsys.readouterr()
        code = run([*words, "--db", str(self.database)])
        said = self.capsys.readouterr()
        assert code == expect, said.out + said.err
        return said.out + said.err

    def json(self, *words: str, expect: int = 0) -> Any:
        """What a verb prints with --json."""
        self.capsys.readouterr()
        code = run([*words, "--json", "--db", str(self.database)])
        said = self.capsys.readouterr()
        assert code == expect, said.out + said.err
        return json.loads(said.out)
