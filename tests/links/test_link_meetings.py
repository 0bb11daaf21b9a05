"""Whole rendezvous between two queues of this machine: roles, sides that do not come, drivers that die, cancelling."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcq.run_folder.journal import Attempt
from hpcq.run_folder.paths import RunFolder
from hpcq.runner.link import driver, link_group
from hpcq.runner.link.side import LinkSide, Ready
from hpcq.runner.queue.run_state import Record
from hpcq.scheduler.local import Local
from hpcq.scheduler.types import JobState, NodeCondition, NodeState
from tests.links.link_campaigns import TRIP, built, drive, opened, own_queue, rows, taken, text

__all__ = ["built", "own_queue"]


def test_both_sides_meet_and_measure(tmp_path: Path, built: Path) -> None:
    run = opened(tmp_path, text(), built)
    drive(run)
    measured = rows(run, "SELECT cluster, placement, outcome, count(*) AS n FROM v_results GROUP BY outcome")
    assert measured == [{"cluster": "east+west", "placement": "link", "outcome": "measured", "n": 6}]
    ends = rows(run, "SELECT cluster, role, reaches, outcome, port > 0 AS listens FROM v_links ORDER BY job, side")
    assert (
        ends
        == [
            {"cluster": "east", "role": "client", "reaches": "open", "outcome": "completed", "listens": 1},
            {"cluster": "west", "role": "server", "reaches": "open", "outcome": "completed", "listens": 1},
        ]
        * 2
    )
    series = rows(run, "SELECT DISTINCT client_cluster, server_cluster, placement FROM v_series")
    assert series == [{"client_cluster": "east", "server_cluster": "west", "placement": "link"}]
    assert len(rows(run, "SELECT DISTINCT node_id, attempt_id FROM v_facts")) == 4
    for script in run.path.glob("east+west/jobs/*/*/*/job.sh"):
        assert (run.path / "secret").read_text().strip() not in script.read_text()


def test_one_side_listens_and_the_other_is_not_probed(tmp_path: Path, built: Path) -> None:
    run = opened(tmp_path, text("{from: east, to: west, listen: from, pairs: 1}", tests=(TRIP,)), built)
    drive(run)
    assert rows(run, "SELECT cluster, role, reaches, port > 0 AS listens FROM v_links ORDER BY side") == [
        {"cluster": "east", "role": "server", "reaches": "not probed", "listens": 1},
        {"cluster": "west", "role": "client", "reaches": "open", "listens": None},
    ]


@pytest.mark.promise("A node of a link that lacks its interface is a row that says so.")
def test_an_end_without_its_interface_is_a_row_that_says_so(tmp_path: Path, built: Path) -> None:
    run = opened(tmp_path, text("{from: east, to: west, listen: to, pairs: 1}", tests=(TRIP,)), built)
    path = run.path / "east+west" / "plan.json"
    plan = json.loads(path.read_text())
    assert set(plan["interfaces"].values()) == {"lo"}
    plan["interfaces"] = {node: "lo" if node.startswith("east/") else "hpcq-none" for node in plan["interfaces"]}
    path.write_text(json.dumps(plan))
    drive(run)
    [row] = rows(run, "SELECT outcome, reason FROM v_results")
    assert "interface hpcq-none: no such interface" in row["reason"]


class Walled(LinkSide):
    """A side from which some sides cannot be reached: they are given a port where nobody listens."""

    closed: frozenset[str] = frozenset()

    def tell(self, attempt: Attempt, name: str, text: str) -> None:
        super().tell(attempt, name, "127.0.0.1 1" if name == "peer" and self.name in self.closed else text)


def test_where_only_the_other_direction_is_open_the_roles_are_turned(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_group, "LinkSide", Walled)
    monkeypatch.setattr(Walled, "closed", frozenset({"from"}))
    run = opened(tmp_path, text("{from: east, to: west, pairs: 1}"), built)
    drive(run)
    found = rows(run, "SELECT cluster, role, reaches FROM v_links ORDER BY side")
    assert [tuple(row.values()) for row in found] == [("east", "server", "closed"), ("west", "client", "open")]
    assert {row["client_cluster"] for row in rows(run, "SELECT client_cluster FROM v_series")} == {"west"}
    assert {row["outcome"] for row in rows(run, "SELECT outcome FROM v_results")} == {"measured"}


def test_where_no_direction_is_open_both_end_and_the_row_says_so(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_group, "LinkSide", Walled)
    monkeypatch.setattr(Walled, "closed", frozenset({"from", "to"}))
    run = opened(tmp_path, text("{from: east, to: west, pairs: 1}", tests=(TRIP,)), built)
    drive(run)
    [row] = rows(run, "SELECT outcome, reason FROM v_results")
    assert row["outcome"] == "not_measured"
    assert "neither side could connect to the other: connect" in row["reason"]


class Lying(LinkSide):
    """A side whose node says of its port what no port is."""

    port: object = None

    def ready(self, attempt: Attempt) -> Ready | None:
        path = self.folder / attempt.folder / "ready.json"
        if self.name == "to" and path.exists():
            path.write_text(json.dumps({"address": "127.0.0.1", "port": self.port}))
        return super().ready(attempt)


@pytest.mark.parametrize("port", ["ssh", [22], pytest.param(10**30, marks=pytest.mark.long)])
def test_a_node_that_says_nonsense_of_its_port_listens_nowhere(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch, port: object
) -> None:
    monkeypatch.setattr(link_group, "LinkSide", Lying)
    monkeypatch.setattr(Lying, "port", port)
    run = opened(tmp_path, text("{from: east, to: west, pairs: 1}", tests=(TRIP,)), built)
    drive(run)
    [row] = rows(run, "SELECT r.outcome, s.client_cluster FROM v_results r JOIN v_series s USING (series_id)")
    assert (row["outcome"], row["client_cluster"]) == ("measured", "west")


def test_a_side_that_never_starts_ends_both_in_bounded_time(
    tmp_path: Path, built: Path, own_queue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = opened(tmp_path, text("{from: east, to: west, pairs: 1, peer_wait_s: 2}", tests=(TRIP,)), built)

    def promising(self: Local, answer: str) -> list[NodeState]:
        return [NodeState(line.rpartition("|")[0], NodeCondition.IDLE, "idle") for line in answer.splitlines()]

    monkeypatch.setattr(Local, "read_nodes", promising)
    monkeypatch.setattr(Local, "read_estimate", lambda *_: 0.0)
    with taken(own_queue, "west"):
        drive(run)
    [row] = rows(run, "SELECT outcome, reason FROM v_results")
    assert row["outcome"] == "not_measured"
    assert "did not start within 2 s while east/" in row["reason"]
    assert [end["outcome"] for end in rows(run, "SELECT outcome FROM v_links")] == ["cancelled", "cancelled"]
    waited = rows(run, "SELECT (julianday(ended_utc) - julianday(started_utc)) * 86400 AS s FROM v_links WHERE side = 'from'")
    walltime_s = json.loads((run.path / "east+west" / "plan.json").read_text())["walltime_s"]
    assert waited[0]["s"] < walltime_s, "it was told, and did not wait for its time to be over"


def test_the_only_pair_of_a_link_is_given_up_when_its_node_stays_busy(tmp_path: Path, built: Path, own_queue: Path) -> None:
    run = opened(tmp_path, text("{from: east, to: west, list: [[n1, n1]], compare: false}", tests=(TRIP,)), built)
    for name in ("east", "west"):
        path = run.cluster_yaml(name)
        path.write_text(path.read_text().replace("max_wait_s: 30", "max_wait_s: 1"))
    with taken(own_queue, "west"):
        drive(run)
    [row] = rows(run, "SELECT outcome, reason FROM v_results")
    assert row["outcome"] == "not_measured"
    assert "not idle for " in row["reason"]
    assert "s: east/n1 idle, west/n1" in row["reason"]


def test_the_side_that_would_start_later_goes_first_and_the_other_waits_for_it(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = opened(tmp_path, text("{from: east, to: west, pairs: 1}", tests=(TRIP,)), built)
    waits = itertools.cycle([0.0, 3600.0])  # east, then west
    monkeypatch.setattr(Local, "read_estimate", lambda *_: next(waits))
    drive(run)
    events = [json.loads(line) for line in run.journal("east+west").read_text().splitlines()]
    assert [event["goes_first"] for event in events if event["event"] == "estimate"] == ["to"]
    order = [event["side"] for event in events if event["event"] == "attempt"]
    assert order == ["to", "from"]
    running = next(place for place, event in enumerate(events) if event["event"] == "state" and event["tag"].endswith("-to"))
    assert running < [event["event"] for event in events].index("attempt", 3)
    assert {row["outcome"] for row in rows(run, "SELECT outcome FROM v_results")} == {"measured"}


class KilledError(Exception):
    """Stands for SIGKILL: nothing of the driver runs after it."""


@pytest.mark.parametrize(
    "moment",
    ["submitted", *(pytest.param(one, marks=pytest.mark.long) for one in ("attempt", "ended", "estimate", "met", "ways"))],
)
def test_a_driver_that_dies_at_any_event_is_taken_up(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    run = opened(tmp_path, text("{from: east, to: west, pairs: 1}", tests=(TRIP,)), built)
    note_all = Record.note_all

    def dying(self: Record[Any], events: Sequence[Mapping[str, Any]]) -> None:
        note_all(self, events)
        if moment in {event["event"] for event in events}:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Record, "note_all", dying)
        with pytest.raises(KilledError):
            drive(run)
    drive(run)
    events = [json.loads(line) for line in run.journal("east+west").read_text().splitlines()]
    assert {row["outcome"] for row in rows(run, "SELECT outcome FROM v_results")} == {"measured"}
    assert sum(event["event"] == "ended" and bool(event["measured"]) for event in events) == 1
    lines = list(run.path.glob("east+west/jobs/*/*/*/t1-r1.json"))
    assert len(lines) == 1


@pytest.mark.parametrize("moment", [pytest.param("estimate", marks=pytest.mark.long), "met"])
def test_cancelling_ends_both_sides_and_leaves_nothing(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    slow = "{kernel: tcp_stream, parameters: {duration_s: 30, warmup_s: 0, direction: client_to_server}}"
    run = opened(tmp_path, text("{from: east, to: west, pairs: 2, directions: one}", tests=(slow,)), built)
    note_all = Record.note_all

    def cancelling(self: Record[Any], events: Sequence[Mapping[str, Any]]) -> None:
        note_all(self, events)
        if moment in {event["event"] for event in events}:
            (run.path / "cancel").touch()

    monkeypatch.setattr(Record, "note_all", cancelling)
    drive(run)
    found = rows(run, "SELECT outcome, reason FROM v_results ORDER BY job")
    assert len(found) == 2
    assert all("cancelled by hpcq cancel" in row["reason"] or row["outcome"] == "failed" for row in found)
    assert "cancelled by hpcq cancel" in found[1]["reason"]


def cancelled_at_work(folder: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run of one pair that is cancelled once both sides have met; its driver orders the end twice a second."""
    slow = "{kernel: tcp_stream, parameters: {duration_s: 30, warmup_s: 0, direction: client_to_server}}"
    run = opened(folder, text("{from: east, to: west, pairs: 1, directions: one}", tests=(slow,)), built)
    monkeypatch.setattr(driver, "_CANCEL_AGAIN_S", 0.5)
    note_all = Record.note_all

    def cancelling(self: Record[Any], events: Sequence[Mapping[str, Any]]) -> None:
        note_all(self, events)
        if "met" in {event["event"] for event in events}:
            (run.path / "cancel").touch()

    monkeypatch.setattr(Record, "note_all", cancelling)
    return run


@pytest.mark.promise("While a link is cancelled, its driver says which jobs are still there.")
def test_a_cancelled_link_says_what_is_still_there(tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = cancelled_at_work(tmp_path, built, monkeypatch)
    cancel = LinkSide.cancel
    ordered: list[str] = []

    def unheard(self: LinkSide, attempts: Sequence[Attempt], *, queued_only: bool = False) -> str | None:
        ordered.extend(one.tag for one in attempts)
        return cancel(self, attempts, queued_only=queued_only) if len(ordered) > 4 else None

    monkeypatch.setattr(LinkSide, "cancel", unheard)
    said = [line for line in drive(run) if "cancelling: still there: j00001 (" in line]
    assert any(": east: cancelling" in line for line in said), said
    assert any(": west: cancelling" in line for line in said), said
    assert all(line.endswith("running); ordering it again") for line in said), said
    assert all(end["outcome"] for end in rows(run, "SELECT outcome FROM v_links"))


@pytest.mark.promise("While a link is cancelled, a job that has ended is not called still there.")
def test_a_side_that_has_ended_is_not_called_still_there(tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler says that its job has ended, while its exit file is late."""
    run = cancelled_at_work(tmp_path, built, monkeypatch)
    cancel = LinkSide.cancel
    ordered: list[str] = []

    def ended_meanwhile(self: LinkSide, attempts: Sequence[Attempt], *, queued_only: bool = False) -> None:
        ordered.extend(one.tag for one in attempts)
        if len(ordered) > 4:
            cancel(self, attempts, queued_only=queued_only)
            for one in attempts:
                one.state = JobState.COMPLETED

    monkeypatch.setattr(LinkSide, "cancel", ended_meanwhile)
    said = [line for line in drive(run) if "cancelling: still there" in line]
    assert any("running); ordering it again" in line for line in said), said
    assert not [line for line in said if "completed)" in line]
    assert len(ordered) > 4
