"""What the ledger of acceptances keeps of nodes, and of links and groups that were at fault."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from hpcq.errors import UserError
from hpcq.store.database import reading, transaction, writing
from hpcq.store.ledger import LedgerNode, Occurrence, at_fault, decide, ensure_nodes, last_verdicts, nodes_of, observed
from hpcq.units import parse_utc, utc_text
from hpcq.verdict.words import Thing, Verdict, VerdictRecord

pytestmark = pytest.mark.fast

EIGHT = [f"n{number}" for number in range(1, 9)]


def of_node(node: str, verdict: Verdict) -> VerdictRecord:
    return VerdictRecord(Thing.NODE, node, verdict, "why", (node,))


def test_the_ledger_remembers_maintenance_and_drains(tmp_path: Path) -> None:
    path = tmp_path / "results.db"

    def see(standing: list[Occurrence], drained: list[str]) -> dict[str, LedgerNode]:
        with writing(path) as database, transaction(database):
            ensure_nodes(database, "alpha", ["n1", "n2"])
            observed(database, "alpha", standing, drained, {"n1": "leaf1"})
        with reading(path) as database:
            return nodes_of(database, "alpha")

    resv = Occurrence("n1", "2026-11-21T00:00:00Z", "swap")
    assert see([], [])["n1"].last is None
    with writing(path) as database, transaction(database):
        boot = "INSERT INTO node_boot (node_id, boot_id, first_seen_utc, last_seen_utc) VALUES (1, ?, ?, ?)"
        database.execute(boot, ("first", "2026-11-20T00:00:00Z", "2026-11-20T00:00:00Z"))
        decide(database, "alpha", [of_node("n1", Verdict.PASS), of_node("n2", Verdict.NOT_COVERED)], run_id=None, baseline=None)
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

    def say(minutes: float, kind: Thing, name: str, verdict: Verdict, nodes: tuple[str, ...]) -> list[tuple[str, bool]]:
        monkeypatch.setattr("hpcq.store.ledger.utc_now", lambda: utc_text(now + dt.timedelta(minutes=minutes)))
        with writing(path) as database, transaction(database):
            ensure_nodes(database, "alpha", EIGHT)
            decide(database, "alpha", [VerdictRecord(kind, name, verdict, "why", nodes)], run_id=None, baseline=None)
            return [(one.name, one.waits) for one in at_fault(database, "alpha")]

    leaf, failed, both = Thing.GROUP, Verdict.FAILED, ("n1", "n5")
    assert say(0, leaf, "leaf2", failed, ("n3", "n4")) == [("leaf2", True)]
    assert say(30, Thing.LINK, "n1 - n5", failed, both) == [("leaf2", False), ("n1 - n5", True)]
    assert say(31, leaf, "leaf2", Verdict.PASS, ("n3", "n4")) == [("n1 - n5", True)]
    assert say(32, Thing.CLUSTER, "alpha", Verdict.DEGRADED, ()) == [("alpha", True), ("n1 - n5", True)]
    assert say(33, Thing.CLUSTER, "alpha", Verdict.PASS, ()) == [("n1 - n5", True)]
    with reading(path) as database:
        last = last_verdicts(database, "alpha", None, each=False)
        assert [(one.kind, one.name, one.verdict) for one in last] == [
            ("cluster", "alpha", "pass"),
            ("link", "n1 - n5", "failed"),
            ("group", "leaf2", "pass"),
        ]
        each = last_verdicts(database, None, "n3", each=True)
        assert [(one.verdict, one.nodes) for one in each] == [("failed", ("n3", "n4")), ("pass", ("n3", "n4"))]
        with pytest.raises(UserError, match="the nearest is n3"):
            last_verdicts(database, None, "n33", each=False)


@pytest.mark.promise("A verdict that is dated in the future keeps no node from being tested again.")
def test_an_inconclusive_node_is_left_alone_for_ever_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, now = tmp_path / "results.db", parse_utc("2026-11-21T00:00:00Z")

    def after(minutes: float) -> None:
        monkeypatch.setattr("hpcq.store.ledger.utc_now", lambda: utc_text(now + dt.timedelta(minutes=minutes)))

    def waits() -> bool:
        with reading(path) as database:
            last = nodes_of(database, "alpha")["n1"].last
            return last is not None and last.waits

    def say(verdict: Verdict) -> None:
        with writing(path) as database, transaction(database):
            ensure_nodes(database, "alpha", ["n1"])
            decide(database, "alpha", [of_node("n1", verdict)], run_id=None, baseline=None)

    after(0)
    say(Verdict.INCONCLUSIVE)
    for minutes, expected in ((9, True), (-1, True), (-60 * 24 * 365, False), (11, False)):
        after(minutes)
        assert waits() is expected
    say(Verdict.INCONCLUSIVE)
    for minutes, expected in ((11 + 19, True), (11 + 21, False)):
        after(minutes)
        assert waits() is expected
    say(Verdict.PASS)
    assert not waits()


def test_a_node_is_asked_for_by_its_whole_name(tmp_path: Path) -> None:
    """Underscores and the like are letters of a name, not patterns."""
    with writing(tmp_path / "results.db") as database, transaction(database):
        ensure_nodes(database, "alpha", ["n_1", "nx1", "n_11"])
        rows = [of_node(node, Verdict.PASS) for node in ("n_1", "nx1", "n_11")]
        decide(database, "alpha", rows, run_id=None, baseline=None)
        assert [one.name for one in last_verdicts(database, None, "n_1", each=False)] == ["n_1"]


def test_a_verdict_follows_a_node_that_is_renamed(tmp_path: Path) -> None:
    with writing(tmp_path / "results.db") as database, transaction(database):
        ensure_nodes(database, "alpha", ["n1", "n2"])
        ensure_nodes(database, "beta", ["n1"])
        for cluster in ("alpha", "beta"):
            decide(database, cluster, [of_node("n1", Verdict.FAILED)], run_id=None, baseline=None)
        database.execute("UPDATE node SET name = 'login1' WHERE node_id = 1")
        assert [(one.cluster, one.name, one.nodes) for one in last_verdicts(database)] == [
            ("alpha", "login1", ("login1",)), ("beta", "n1", ("n1",)),
        ]  # fmt: skip
        assert nodes_of(database, "alpha")["login1"].verdict is Verdict.FAILED
