"""What the ledger of acceptances keeps of nodes, and of links and groups that were at fault."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest

from hpcq.errors import UserError
from hpcq.store.database import reading, transaction, writing
from hpcq.store.group_verdicts import Shared, decide_shared, last_verdicts, standing
from hpcq.store.ledger import NodeLedger, Occurrence, decide, ensure_nodes, ledger, observed
from hpcq.units import parse_utc, utc_text

pytestmark = pytest.mark.fast

EIGHT = [f"n{number}" for number in range(1, 9)]


def test_the_ledger_remembers_maintenance_and_drains(tmp_path: Path) -> None:
    path = tmp_path / "results.db"

    def see(standing: list[Occurrence], drained: list[str]) -> dict[str, NodeLedger]:
        with writing(path) as database, transaction(database):
            ensure_nodes(database, "alpha", ["n1", "n2"])
            observed(database, "alpha", standing, drained, {"n1": "leaf1"})
        with reading(path) as database:
            return ledger(database, "alpha")

    resv = Occurrence("n1", "2026-11-21T00:00:00Z", "swap")
    assert see([], [])["n1"].decided_utc is None
    with writing(path) as database, transaction(database):
        boot = "INSERT INTO node_boot (node_id, boot_id, first_seen_utc, last_seen_utc) VALUES (1, ?, ?, ?)"
        database.execute(boot, ("first", "2026-11-20T00:00:00Z", "2026-11-20T00:00:00Z"))
        decide(database, "alpha", [("n1", "pass", "fine"), ("n2", "not_covered", "down")], run_id=None, baseline=None)
        database.execute(boot, ("second", "2026-11-21T00:00:00Z", "2026-11-21T00:00:00Z"))
    assert [(one.since, one.booted) for one in see([], []).values()] == [((), True), ((), False)]
    for _ in range(2):
        see([resv], ["n2"])
    found = see([], [])
    assert found["n1"].since == ("maintenance",)
    assert found["n2"].since == ("resume",)
    with reading(path) as database:
        assert [row[0] for row in database.execute("SELECT kind FROM v_events ORDER BY kind")] == [
            "drain", "maintenance", "reboot", "resume",
        ]  # fmt: skip
        assert database.execute('SELECT "group" FROM v_groups').fetchone()[0] == "leaf1"


def test_the_ledger_keeps_links_and_groups_until_they_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, now = tmp_path / "results.db", parse_utc("2026-11-21T00:00:00Z")

    def say(minutes: float, kind: str, name: str, verdict: str, nodes: tuple[str, ...]) -> list[Shared]:
        for place in ("ledger", "group_verdicts"):
            monkeypatch.setattr(f"hpcq.store.{place}.utc_now", lambda: utc_text(now + dt.timedelta(minutes=minutes)))
        with writing(path) as database, transaction(database):
            ensure_nodes(database, "alpha", EIGHT)
            decide_shared(database, "alpha", [(kind, name, verdict, "why", nodes)], run_id=None, baseline=None)
            return standing(database, "alpha")

    leaf = Shared("group", "leaf2", "failed", ("n3", "n4"), True)
    assert say(0, "group", "leaf2", "failed", ("n3", "n4")) == [leaf]
    link = Shared("link", "n1 - n5", "failed", ("n1", "n5"), True)
    assert say(30, "link", "n1 - n5", "failed", ("n1", "n5")) == [replace(leaf, waits=False), link]
    assert say(31, "group", "leaf2", "pass", ("n3", "n4")) == [link]
    with reading(path) as database:
        last = last_verdicts(database, "alpha", None, each=False)
        assert [(one.kind, one.name, one.verdict) for one in last] == [
            ("link", "n1 - n5", "failed"),
            ("group", "leaf2", "pass"),
        ]
        each = last_verdicts(database, None, "n3", each=True)
        assert [(one.verdict, one.nodes) for one in each] == [("failed", ("n3", "n4")), ("pass", ("n3", "n4"))]
        with pytest.raises(UserError, match="the nearest is n3"):
            last_verdicts(database, None, "n33", each=False)


def test_an_inconclusive_node_is_left_alone_for_ever_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, now = tmp_path / "results.db", parse_utc("2026-11-21T00:00:00Z")

    def after(minutes: float) -> None:
        monkeypatch.setattr("hpcq.store.ledger.utc_now", lambda: utc_text(now + dt.timedelta(minutes=minutes)))

    def waits() -> bool:
        with reading(path) as database:
            return ledger(database, "alpha")["n1"].waits

    def say(verdict: str) -> None:
        with writing(path) as database, transaction(database):
            ensure_nodes(database, "alpha", ["n1"])
            decide(database, "alpha", [("n1", verdict, "why")], run_id=None, baseline=None)

    after(0)
    say("inconclusive")
    for minutes, expected in ((9, True), (11, False)):
        after(minutes)
        assert waits() is expected
    say("inconclusive")
    for minutes, expected in ((11 + 19, True), (11 + 21, False)):
        after(minutes)
        assert waits() is expected
    say("pass")
    assert not waits()


def test_a_node_is_asked_for_by_its_whole_name(tmp_path: Path) -> None:
    """Underscores and the like are letters of a name, not patterns."""
    with writing(tmp_path / "results.db") as database, transaction(database):
        ensure_nodes(database, "alpha", ["n_1", "nx1", "n_11"])
        rows = [(node, "pass", "fine") for node in ("n_1", "nx1", "n_11")]
        decide(database, "alpha", rows, run_id=None, baseline=None)
        assert [one.name for one in last_verdicts(database, None, "n_1", each=False)] == ["n_1"]
