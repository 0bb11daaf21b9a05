"""Links: what a campaign may say, what is planned, what the journal means, and whole rendezvous between two local queues."""

from __future__ import annotations

import datetime as dt
import fcntl
import itertools
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcq import links
from hpcq.definition.campaign import read_campaign
from hpcq.definition.cluster import read_cluster
from hpcq.definition.model import Campaign, Cluster
from hpcq.errors import UserError
from hpcq.plan import Plan
from hpcq.runner import linked, runs, stages
from hpcq.runner.link_ledger import LinkLedger, SideAttempt
from hpcq.runner.link_side import LinkSide
from hpcq.runner.workflow import WorkflowRun, groups
from hpcq.scheduler.base import NodeCondition, NodeState, SchedulerSettings
from hpcq.scheduler.local import Local
from hpcq.scheduler.slurm import Slurm
from hpcq.store.load import load_run
from hpcq.store.runfolder import RunFolder
from hpcq.transport import Completed, Here

STREAM = "{kernel: tcp_stream, parameters: {duration_s: 50ms, warmup_s: 0}}"
TRIP = "{kernel: tcp_pingpong, parameters: {operation_count_max: 5, duration_s: 1, warmup_s: 0}}"


def text(link: str = "{from: east, to: west}", *, tests: tuple[str, ...] = (STREAM, TRIP), more: str = "") -> str:
    listed = "".join(f"  - {test}\n" for test in tests)
    return f"name: try\nclusters: [east, west]\nlinks:\n  - {link}\nrepetitions: 1\nretries: 0\n{more}\ntests:\n{listed}"


def campaign_of(folder: Path, *words: str, **more: Any) -> Campaign:
    path = folder / "try.yaml"
    path.write_text(text(*words, **more))
    return read_campaign(path)


def cluster_of(folder: Path, name: str) -> Cluster:
    path = folder / f"{name}.yaml"
    path.write_text(f"name: {name}\nscheduler: local\nnodes: [n1, n2, n3]\ncompiler: {{cflags: -O0}}\npatience_s: 30\n")
    return read_cluster(path)


# -- the campaign file -------------------------------------------------------------------------------------------------


@pytest.mark.fast
@pytest.mark.parametrize(
    ("link", "complaint"),
    [
        ("{from: east, to: moon}", "try.yaml:4: to: 'moon' is not one of the campaign's clusters: east, west"),
        ("{from: east, to: east}", "try.yaml:4: to: 'east' is on both sides: a link has two clusters"),
        ("{from: east}", "try.yaml:4: to: missing: this key is required"),
        ("{from: east, to: west, listen: both}", "try.yaml:4: listen: 'both': allowed are 'from', 'to' or 'either'"),
        ("{from: east, to: west, patience_s: 0}", "try.yaml:4: patience_s: 0 is below the minimum 1"),
        ("{from: east, to: west, pairs: 2, list: [[n1, n1]]}", "try.yaml:4: pairs: list is given too: give one of them"),
        ("{from: east, to: west, list: [[n1]]}", "try.yaml:4: list: a list: allowed is [node of from, node of to]"),
        ("{from: east, to: west, way: 1}", "try.yaml:4: way: not a key here"),
        (
            "{from: east, to: west}\n  - {from: west, to: east}",
            "try.yaml:5: links: east and west stand in a link already: raise pairs instead",
        ),
    ],
)
def test_refused_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str, complaint: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        campaign_of(Path(), link)
    assert complaint in caught.value.message


@pytest.mark.fast
def test_mpi_over_a_link_is_refused_where_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        campaign_of(Path(), tests=(TRIP, "{kernel: mpi_pingpong}"))
    assert caught.value.message == (
        "try.yaml:10: kernel: mpi_pingpong is MPI and cannot run over a link: allowed with links are the socket kernels"
    )
    assert "without links" in str(caught.value.hint)


@pytest.mark.fast
def test_pairs_may_only_be_left_out_where_links_say_them(tmp_path: Path) -> None:
    path = tmp_path / "try.yaml"
    path.write_text(text().replace("[east, west]", "[east, west, far]"))
    with pytest.raises(UserError, match="'far' is in no link, so its pairs must be said"):
        read_campaign(path)
    assert campaign_of(tmp_path).pairs_of_links
    assert not campaign_of(tmp_path, more="pairs: all").pairs_of_links


# -- the plan ----------------------------------------------------------------------------------------------------------


def plans(folder: Path, campaign: Campaign, busy: str = "") -> tuple[Plan, Plan]:
    nodes = [NodeState(n, NodeCondition.BUSY if n == busy else NodeCondition.IDLE, "idle") for n in ("n1", "n2", "n3")]
    made = [links.plan_cluster(campaign, cluster_of(folder, name), nodes, "run-1", 7) for name in ("east", "west")]
    return made[0], made[1]


@pytest.mark.fast
def test_pairs_cross_the_link_and_are_compared_within(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path)
    both = plans(tmp_path, campaign)
    plan = links.plan_link(campaign, campaign.links[0], both).plan
    assert plan.cluster == "east+west"
    assert [[links.split(node)[0] for node in pair] for pair in plan.pairs] == [["east", "west"]] * 2
    for cluster, made in zip(("east", "west"), both, strict=True):
        across = {links.split(node)[1] for pair in plan.pairs for node in pair if node.startswith(cluster)}
        assert across == {node for pair in made.pairs for node in pair} == {one.node for one in made.candidates}
    assert plan.walltime_s > both[0].walltime_s
    assert links.LinkPlan.from_json(links.plan_link(campaign, campaign.links[0], both).to_json()).plan == plan


@pytest.mark.fast
def test_tests_with_a_direction_run_both_ways(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path)
    plan = links.plan_link(campaign, campaign.links[0], plans(tmp_path, campaign)).plan
    assert [(test.kernel, test.parameters.get("direction")) for test in plan.tests] == [
        ("tcp_stream", "client_to_server"),
        ("tcp_stream", "server_to_client"),
        ("tcp_pingpong", None),
    ]
    one_way = campaign_of(tmp_path, "{from: east, to: west, directions: one}")
    assert len(links.plan_link(one_way, one_way.links[0], plans(tmp_path, one_way)).plan.tests) == 2


@pytest.mark.fast
@pytest.mark.parametrize(("listen", "client"), [("from", "west"), ("to", "east"), ("either", "east")])
def test_who_listens_is_the_server(tmp_path: Path, listen: str, client: str) -> None:
    campaign = campaign_of(tmp_path, f"{{from: east, to: west, listen: {listen}}}")
    plan = links.plan_link(campaign, campaign.links[0], plans(tmp_path, campaign)).plan
    assert {links.split(pair[0])[0] for pair in plan.pairs} == {client}


@pytest.mark.fast
def test_listed_pairs_and_those_that_cannot_run(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path, "{from: east, to: west, list: [[n1, n1], [n3, n2], [n9, n1]], compare: false}")
    both = plans(tmp_path, campaign, busy="n3")
    made = links.plan_link(campaign, campaign.links[0], both).plan
    assert made.pairs == (("east/n1", "west/n1"),)
    assert [(one.client, one.reason) for one in made.not_planned] == [
        ("east/n3", "n3 not included by the campaign"),
        ("east/n9", "n9 is not a node of east"),
    ]
    assert all(plan.pairs == () and plan.cost.job_count == 0 for plan in both)


@pytest.mark.fast
def test_more_pairs_than_nodes_use_every_node_as_seldom_as_possible(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path, "{from: east, to: west, pairs: 7}")
    plan = links.plan_link(campaign, campaign.links[0], plans(tmp_path, campaign)).plan
    assert len(set(plan.pairs)) == 7
    assert plan.goals.node_pair_count_min == 2


# -- groups ------------------------------------------------------------------------------------------------------------


@pytest.mark.fast
def test_linked_clusters_have_one_driver() -> None:
    joined = [{"name": "a+c", "from": "a", "to": "c"}, {"name": "c+d", "from": "c", "to": "d"}]
    assert groups(["a", "b", "c", "d"], joined) == [("a", "c", "d"), ("b",)]
    run = WorkflowRun("run", ("a", "b", "c", "d"), None, tuple(joined))
    assert run.parts == ("a", "b", "c", "d", "a+c", "c+d")
    assert run.driven_by("b") == "b/driven.json"
    assert {run.driven_by(part) for part in ("a", "c", "d", "a+c", "c+d")} == {"groups/a+c+d.json"}
    assert run.planned_before("c+d") == ["c", "d"]


# -- expected starts ---------------------------------------------------------------------------------------------------


@pytest.mark.fast
@pytest.mark.parametrize(
    ("said", "wait_s"),
    [
        ("sbatch: Job 7 to start at 2026-11-21T10:00:00 using 2 processors on nodes n1\n2026-11-21T09:59:00\n", 60.0),
        ("sbatch: Job 7 to start at 2026-11-21T10:00:00 using 2 processors on nodes n1\n2026-11-21T10:00:01\n", 0.0),
        ("allocation failure: Requested node configuration is not available\n2026-11-21T09:59:00\n", None),
        ("", None),
    ],
)
def test_expected_start_is_read_beside_that_machines_clock(said: str, wait_s: float | None) -> None:
    assert Slurm(Here(), SchedulerSettings()).read_estimate(Completed(0, said.encode(), "")) == wait_s


# -- the ledger --------------------------------------------------------------------------------------------------------


def ledger_after(folder: Path, *events: dict[str, Any], retries: int = 1) -> LinkLedger:
    campaign = replace(campaign_of(folder), attempt_count_max=retries + 1)
    plan = links.plan_link(campaign, campaign.links[0], plans(folder, campaign))
    return LinkLedger.replay(plan, events)


def attempt(side: str, attempt_no: int = 1) -> dict[str, Any]:
    tag = f"t{attempt_no}-{side}"
    common = {"job_id": "j00001", "attempt_no": attempt_no, "nodes": ["n1"], "first": "from"}
    return {"event": "attempt", "tag": tag, "side": side, **common}


def ended(side: str, outcome: str, measured: tuple[tuple[int, int], ...] = (), attempt_no: int = 1) -> dict[str, Any]:
    return {"event": "ended", "tag": f"t{attempt_no}-{side}", "outcome": outcome, "reason": "x", "measured": measured}


ALL = ((1, 1), (2, 1), (3, 1))


@pytest.mark.fast
def test_a_try_is_over_when_both_sides_are(tmp_path: Path) -> None:
    both = [attempt("from"), attempt("to")]
    ledger = ledger_after(tmp_path, *both, ended("from", "completed", ALL))
    assert [one.index for one in ledger.open_tries] == [0]
    ledger.apply(ended("to", "completed"))
    assert not ledger.open_tries
    assert ledger.measured_count == 3
    assert list(ledger.pending) == [1]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("stop", "end", "again"),
    [
        (None, "node_failed", True),
        (None, "completed", True),
        ({"follows": False, "final": True}, "cancelled", False),  # did not start
        ({"follows": True, "final": False}, "cancelled", True),  # ended because the other side was lost
    ],
)
def test_the_side_that_caused_the_end_decides_about_another_try(
    tmp_path: Path, stop: dict[str, bool] | None, end: str, again: bool
) -> None:
    events = [attempt("from"), attempt("to")]
    events += [{"event": "stop", "tag": "t1-to", "reason": "y", **stop}] if stop else []
    events += [ended("to", end), ended("from", "completed" if stop is None or not stop["final"] else "cancelled")]
    if stop and stop["final"]:
        events.insert(3, {"event": "stop", "tag": "t1-from", "reason": "z", "follows": True, "final": False})
    assert (0 in ledger_after(tmp_path, *events).pending) is again
    if again:
        assert 0 not in ledger_after(tmp_path, *events, retries=0).pending


# -- two queues on this machine, linked --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both clusters' kernels, built once."""
    folder = tmp_path_factory.mktemp("built")
    run = opened(folder, text())
    for name in ("east", "west"):
        stages.build(run, name)
    return run.path


def opened(folder: Path, campaign: str, built: Path | None = None) -> RunFolder:
    """A run, opened and planned; with the kernels of `built`."""
    (folder / "clusters").mkdir(parents=True, exist_ok=True)
    for name in ("east", "west"):
        cluster_of(folder / "clusters", name)
    (folder / "try.yaml").write_text(campaign)
    run = runs.open_run(folder / "try.yaml", [folder / "clusters"], folder / "results.db", folder / "runs")
    for name in ("east", "west"):
        (run.path / name).mkdir()
        stages.plan(run, name)
        if built is not None:
            shutil.copytree(built / name / "work", run.path / name / "work", ignore=shutil.ignore_patterns("jobs", "links"))
            shutil.copyfile(run.path / "secret", run.path / name / "work" / "secret")
            (run.path / name / "work" / "secret").chmod(0o600)
            shutil.copyfile(built / name / "build.json", run.path / name / "build.json")
    linked.plan(run, "east+west")
    return run


@pytest.fixture(autouse=True)
def own_queue(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    return state


def drive(run: RunFolder) -> list[str]:
    said: list[str] = []
    linked.drive(run, "east+west", said.append)
    return said


def rows(run: RunFolder, query: str) -> list[dict[str, Any]]:
    database = run.path.parent.parent / "results.db"
    load_run(database, run.path, clusters=["east+west"])
    assert [one.read_count for one in load_run(database, run.path, clusters=["east+west"]).clusters] == [0]
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(query)]


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


class Walled(LinkSide):
    """A side from which some sides cannot be reached: they are given a port where nobody listens."""

    closed: frozenset[str] = frozenset()

    def tell(self, attempt: SideAttempt, name: str, text: str) -> None:
        super().tell(attempt, name, "127.0.0.1 1" if name == "peer" and self.name in self.closed else text)


def test_where_only_the_other_direction_is_open_the_roles_are_turned(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linked, "LinkSide", Walled)
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
    monkeypatch.setattr(linked, "LinkSide", Walled)
    monkeypatch.setattr(Walled, "closed", frozenset({"from", "to"}))
    run = opened(tmp_path, text("{from: east, to: west, pairs: 1}", tests=(TRIP,)), built)
    drive(run)
    [row] = rows(run, "SELECT outcome, reason FROM v_results")
    assert row["outcome"] == "not_measured"
    assert "neither side could connect to the other: connect" in row["reason"]


@contextmanager
def taken(state: Path, cluster: str, nodes: tuple[str, ...] = ("n1", "n2", "n3")) -> Iterator[None]:
    """Somebody else's job on every node of a local queue."""
    folder = state / "hpcq" / f"queue-{cluster}" / "nodes"
    folder.mkdir(parents=True, exist_ok=True)
    descriptors = [os.open(folder / node, os.O_RDWR | os.O_CREAT) for node in nodes]
    for descriptor in descriptors:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def test_a_side_that_never_starts_ends_both_in_bounded_time(
    tmp_path: Path, built: Path, own_queue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = opened(tmp_path, text("{from: east, to: west, pairs: 1, patience_s: 2}", tests=(TRIP,)), built)

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
    assert waited[0]["s"] < 8


def test_outside_of_a_sides_hours_no_try_of_a_link_starts(tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = opened(tmp_path, text("{from: east, to: west, pairs: 1}", tests=(TRIP,), more="budget: {hours: 20-06}"), built)
    noon = iter([dt.time(12, 0)] * 3)
    monkeypatch.setattr("hpcq.runner.citizen.local_time", lambda: next(noon, dt.time(21, 0)))
    said = drive(run)
    assert sum("outside of the hours 20:00-06:00" in text for text in said) == 1
    assert any("goes on" in text for text in said)
    assert {row["outcome"] for row in rows(run, "SELECT outcome FROM v_results")} == {"measured"}


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


@pytest.mark.parametrize("moment", ["estimate", "attempt", "submitted", "met", "ways", "ended"])
def test_a_driver_that_dies_at_any_event_is_taken_up(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    from hpcq.runner.link_drive import LinkDriver

    run = opened(tmp_path, text("{from: east, to: west, pairs: 1}", tests=(TRIP,)), built)
    note = LinkDriver.note

    def dying(self: LinkDriver, event: str, **fields: Any) -> None:
        note(self, event, **fields)
        if event == moment:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(LinkDriver, "note", dying)
        with pytest.raises(KilledError):
            drive(run)
    drive(run)
    events = [json.loads(line) for line in run.journal("east+west").read_text().splitlines()]
    assert {row["outcome"] for row in rows(run, "SELECT outcome FROM v_results")} == {"measured"}
    assert sum(event["event"] == "ended" and bool(event["measured"]) for event in events) == 1
    lines = list(run.path.glob("east+west/jobs/*/*/*/t1-r1.json"))
    assert len(lines) == 1


@pytest.mark.parametrize("moment", ["estimate", "met"])
def test_cancelling_ends_both_sides_and_leaves_nothing(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    from hpcq.runner.link_drive import LinkDriver

    slow = "{kernel: tcp_stream, parameters: {duration_s: 30, warmup_s: 0, direction: client_to_server}}"
    run = opened(tmp_path, text("{from: east, to: west, pairs: 2, directions: one}", tests=(slow,)), built)
    note = LinkDriver.note

    def cancelling(self: LinkDriver, event: str, **fields: Any) -> None:
        note(self, event, **fields)
        if event == moment:
            (run.path / "cancel").touch()

    monkeypatch.setattr(LinkDriver, "note", cancelling)
    drive(run)
    found = rows(run, "SELECT outcome, reason FROM v_results ORDER BY job")
    assert len(found) == 2
    assert all("cancelled by hpcq cancel" in row["reason"] or row["outcome"] == "failed" for row in found)
    assert "cancelled by hpcq cancel" in found[1]["reason"]
    assert all(end["outcome"] for end in rows(run, "SELECT outcome FROM v_links"))
