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
from hpcq.definition.model import Budget, Campaign, Cluster
from hpcq.errors import UserError
from hpcq.plan import Plan
from hpcq.runner import linked, runs, stages
from hpcq.runner.cancelling import cancel_run
from hpcq.runner.link_ledger import LinkLedger, SideAttempt
from hpcq.runner.link_part import LinkPart
from hpcq.runner.link_side import LinkSide
from hpcq.runner.live import status_of
from hpcq.runner.workflow import WorkflowRun, groups
from hpcq.scheduler.base import NodeCondition, NodeState, SchedulerSettings
from hpcq.scheduler.local import Local
from hpcq.scheduler.slurm import Slurm
from hpcq.store.database import reading
from hpcq.store.distances import distances
from hpcq.store.journal import Journal, read_journal
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


def cluster_of(folder: Path, name: str, more: str = "") -> Cluster:
    path = folder / f"{name}.yaml"
    head = f"name: {name}\nscheduler: local\nnodes: [n1, n2, n3]\ncompiler: {{cflags: -O0}}\npatience_s: 30\n"
    path.write_text(head + more)
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
        ("east/n3", "n3 state busy (idle)"),
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


def test_the_only_pair_of_a_link_is_given_up_when_its_node_stays_busy(tmp_path: Path, built: Path, own_queue: Path) -> None:
    run = opened(tmp_path, text("{from: east, to: west, list: [[n1, n1]], compare: false}", tests=(TRIP,)), built)
    for name in ("east", "west"):
        path = run.cluster_yaml(name)
        path.write_text(path.read_text().replace("patience_s: 30", "patience_s: 1"))
    with taken(own_queue, "west"):
        drive(run)
    [row] = rows(run, "SELECT outcome, reason FROM v_results")
    assert row["outcome"] == "not_measured"
    assert "not idle for 1 s: east/n1 idle, west/n1" in row["reason"]


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
    run = opened(tmp_path, text("{from: east, to: west, pairs: 1}", tests=(TRIP,)), built)
    note = LinkPart.note

    def dying(self: LinkPart, event: str, **fields: Any) -> None:
        note(self, event, **fields)
        if event == moment:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(LinkPart, "note", dying)
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
    slow = "{kernel: tcp_stream, parameters: {duration_s: 30, warmup_s: 0, direction: client_to_server}}"
    run = opened(tmp_path, text("{from: east, to: west, pairs: 2, directions: one}", tests=(slow,)), built)
    note = LinkPart.note

    def cancelling(self: LinkPart, event: str, **fields: Any) -> None:
        note(self, event, **fields)
        if event == moment:
            (run.path / "cancel").touch()

    monkeypatch.setattr(LinkPart, "note", cancelling)
    drive(run)
    found = rows(run, "SELECT outcome, reason FROM v_results ORDER BY job")
    assert len(found) == 2
    assert all("cancelled by hpcq cancel" in row["reason"] or row["outcome"] == "failed" for row in found)
    assert "cancelled by hpcq cancel" in found[1]["reason"]
    assert all(end["outcome"] for end in rows(run, "SELECT outcome FROM v_links"))


# -- good citizens: a link's jobs are counted with the cluster's own ---------------------------------------------------


def events_of(run: RunFolder, part: str = "east+west") -> list[dict[str, Any]]:
    return read_journal(run.journal(part))


def own_job(seconds: int) -> list[dict[str, Any]]:
    """What one job of a cluster's own pairs leaves in the journal: two nodes for so long."""
    head = {"job_id": "j00001", "attempt_no": 1, "tag": "own-1", "nodes": ["n1", "n2"]}
    times = {"started_utc": "2026-01-01T00:00:00Z", "ended_utc": f"2026-01-01T00:{seconds // 60:02d}:{seconds % 60:02d}Z"}
    end = {"tag": "own-1", "outcome": "completed", "reason": "", "nodes": ["n1", "n2"], "rc": 0, "measured": ALL[:2]}
    return [{"event": "attempt", **head}, {"event": "ended", **end, **times}]


def test_node_seconds_of_own_pairs_and_links_are_one_budget(tmp_path: Path, built: Path) -> None:
    run = opened(tmp_path, text(tests=(TRIP,), more="budget: {node_seconds_at_most: 200}"), built)
    with Journal(run.journal("west")) as journal:
        journal.append_all(own_job(101))
    drive(run)
    found = rows(run, "SELECT outcome, reason FROM v_results ORDER BY job")
    assert [row["outcome"] for row in found] == ["not_measured"] * 2
    assert all("west: budget: 202 node-seconds were used, 200 are allowed" in row["reason"] for row in found)
    assert not [event for event in events_of(run) if event["event"] == "attempt"]


@pytest.mark.fast
def test_a_plan_whose_links_and_pairs_cost_too_much_together_is_refused(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path)
    made = links.plan_link(campaign, campaign.links[0], both := plans(tmp_path, campaign))
    needed = both[0].cost.node_seconds + made.plan.cost.node_seconds / 2
    links.refuse_beyond_budget(campaign, Budget(node_seconds_at_most=needed + 1), made, both[0])
    with pytest.raises(UserError) as caught:
        links.refuse_beyond_budget(campaign, Budget(node_seconds_at_most=needed - 1), made, both[0])
    assert f"its pairs cost {both[0].cost.node_seconds:g} node-seconds and its links" in caught.value.message
    with pytest.raises(UserError, match="walltime: jobs of east\\+west ask for"):
        links.refuse_beyond_budget(campaign, Budget(walltime_at_most_s=60), made, both[0])


def test_no_more_jobs_than_the_budget_allows_whatever_at_once_says(tmp_path: Path, built: Path) -> None:
    run = opened(
        tmp_path, text("{from: east, to: west, pairs: 3, at_once: 3}", tests=(TRIP,), more="budget: {jobs_at_most: 2}"), built
    )
    drive(run)
    live: set[str] = set()
    most = 0
    for event in events_of(run):
        live |= {event["tag"]} if event["event"] == "attempt" and event["side"] == "from" else set()
        live -= {event["tag"]} if event["event"] == "ended" else set()
        most = max(most, len(live))
    assert most == 2
    assert {row["outcome"] for row in rows(run, "SELECT outcome FROM v_results")} == {"measured"}


def test_when_the_hours_end_a_link_ends_after_the_test_in_hand_and_goes_on_later(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = ("{kernel: tcp_stream, parameters: {warmup_s: 0}, matrix: {duration_s: [1s, 1100ms, 1200ms, 1300ms]}}",)
    more = "budget: {hours: 20-06}"
    run = opened(tmp_path, text("{from: east, to: west, pairs: 1, directions: one}", tests=tests, more=more), built)
    hour = [12]
    seen: list[str] = []
    note = LinkPart.note

    def turning(self: LinkPart, event: str, **fields: Any) -> None:
        note(self, event, **fields)
        seen.append(event)
        if event == "ended" or (event == "ways" and seen.count("ways") == 1):
            hour[0] = 22 if event == "ended" else 7

    def say(text: str) -> None:
        assert text.startswith("east+west")
        if "outside of the hours" in text and "attempt" not in seen:
            hour[0] = 21

    monkeypatch.setattr("hpcq.runner.citizen.local_time", lambda: dt.time(hour[0]))
    monkeypatch.setattr(LinkPart, "note", turning)
    linked.drive(run, "east+west", say)
    ends = [event for event in events_of(run) if event["event"] == "ended"]
    assert sorted(event["outcome"] for event in ends[:2]) == ["completed", "withdrawn"]
    assert [event["outcome"] for event in ends[2:]] == ["completed"] * 2
    assert "outside of the hours 20:00-06:00" in next(event["reason"] for event in ends if event["outcome"] == "withdrawn")
    before, after = (sum(len(event["measured"]) for event in found) for found in (ends[:2], ends[2:]))
    assert 0 < before < 4  # the test in hand
    assert before + after == 4  # and nothing twice
    assert [row["attempt_no"] for row in rows(run, "SELECT DISTINCT attempt_no FROM v_results ORDER BY 1")] == [1, 2]


# -- the comparison ----------------------------------------------------------------------------------------------------


def test_the_comparison_is_of_the_same_nodes_and_right_beside(tmp_path: Path, built: Path) -> None:
    run = opened(tmp_path, text("{from: east, to: west, pairs: 3}", tests=(TRIP,)), built)
    linked.drive_group(run, ["east", "west"], lambda _: None)
    order = sorted(
        (event["utc"], part, tuple(event["nodes"]), event["job_id"])
        for part in ("east", "west", "east+west")
        for event in events_of(run, part)
        if event["event"] == "attempt"
    )
    tried = [job_id for _, part, _, job_id in order if part == "east+west"]
    assert tried == [job_id for pair in ("j00001", "j00002", "j00003") for job_id in (pair, pair)]
    used: dict[str, str] = {}
    for utc, part, nodes, _ in order:
        if part == "east+west":
            used = {**used, "last": utc}
            used[nodes[0]] = utc
        else:  # one of its nodes has just been measured over the link, and no other pair of the link came between
            assert used["last"] in {used.get(node) for node in nodes}
    placed = rows(run, "SELECT count(*) AS n FROM v_results")
    assert placed == [{"n": 3}]
    assert all((run.path / part / "driven.json").is_file() for part in ("east", "west", "east+west"))
    assert not [event for part in ("east", "west") for event in events_of(run, part) if event["event"] == "not_run"]
    load_run(tmp_path / "results.db", run.path)
    with reading(tmp_path / "results.db") as connection:
        [shown] = distances(connection, run.run_id)
    [trip] = shown.tests
    assert (shown.from_cluster, shown.to_cluster, trip.far_count, trip.near_count) == ("east", "west", 3, 6)
    assert (shown.trip_ns, trip.back, trip.window_bps) == (trip.there, None, None)
    assert trip.ratio is not None


@pytest.mark.fast
def test_pairs_that_a_campaign_names_are_the_comparison_where_both_ends_are_the_links(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path, "{from: east, to: west, list: [[n1, n1], [n2, n3]]}", more="pairs: all")
    both = plans(tmp_path, campaign)
    made = links.plan_link(campaign, campaign.links[0], both)
    named = [{both[side].pairs[index] for index in links.compared_pairs(campaign, both[side], [made])} for side in (0, 1)]
    assert [{frozenset(pair) for pair in pairs} for pairs in named] == [{frozenset({"n1", "n2"})}, {frozenset({"n1", "n3"})}]


# -- submit, status, cancel --------------------------------------------------------------------------------------------


def test_what_is_handed_in_without_a_driver_leaves_links_to_resume_and_cancel_makes_rows_of_them(tmp_path: Path) -> None:
    run = opened(tmp_path, text("{from: east, to: west, pairs: 1}", tests=(TRIP,)))
    said: list[str] = []
    for part in run.parts():
        linked.hand_in(run, part, said.append)
    assert said == [
        "east: 1 pairs are handed in by hpcq resume: they are compared with those of the link, beside it",
        "west: 1 pairs are handed in by hpcq resume: they are compared with those of the link, beside it",
        "east+west: 1 pairs are handed in by hpcq resume: their two sides meet through the driver",
    ]
    assert [(one.name, one.counts["pending_pair_count"]) for one in status_of(run).clusters] == [
        ("east", 1),
        ("west", 1),
        ("east+west", 1),
    ]
    cancel_run(run, said.append)
    assert [one.counts["not_run_pair_count"] for one in status_of(run).clusters] == [1, 1, 1]
    load_run(tmp_path / "results.db", run.path)
    found = rows(run, "SELECT DISTINCT cluster, outcome, reason FROM v_results ORDER BY cluster")
    assert [(row["cluster"], row["outcome"]) for row in found] == [
        ("east", "not_measured"),
        ("east+west", "not_measured"),
        ("west", "not_measured"),
    ]
    assert all("cancelled by hpcq cancel" in row["reason"] for row in found)
