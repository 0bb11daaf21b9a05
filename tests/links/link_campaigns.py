"""Campaigns over one link between two queues of this machine, east and west, and whole rendezvous between them."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.model import Campaign, Cluster
from hpcq.planning import links
from hpcq.planning.allocations import Basis
from hpcq.planning.plan import Plan
from hpcq.run_folder.journal import read_journal
from hpcq.run_folder.paths import RunFolder
from hpcq.runner import stages
from hpcq.runner.link import link_group
from hpcq.runner.site import place
from hpcq.scheduler.types import NodeCondition, NodeState
from hpcq.store.load.cluster import load_run

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
    head = f"name: {name}\nscheduler: local\nnodes: [n1, n2, n3]\ncompiler: {{cflags: -O0}}\nmax_wait_s: 30\n"
    path.write_text(head + more)
    return read_cluster(path)


def plans(folder: Path, campaign: Campaign, busy: str = "", more: str = "") -> tuple[Plan, Plan]:
    nodes = [NodeState(n, NodeCondition.BUSY if n == busy else NodeCondition.IDLE, "idle") for n in ("n1", "n2", "n3")]
    made = [links.plan_cluster(campaign, Basis(cluster_of(folder, name, more), nodes, "run-1", 7)) for name in ("east", "west")]
    return made[0], made[1]


@pytest.fixture(scope="session")
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
    run = place.open_run(folder / "try.yaml", [folder / "clusters"], folder / "results.db", folder / "runs")
    for name in ("east", "west"):
        (run.path / name).mkdir()
        stages.plan(run, name)
        if built is not None:
            shutil.copytree(built / name / "work", run.path / name / "work", ignore=shutil.ignore_patterns("jobs", "links"))
            shutil.copyfile(run.path / "secret", run.path / name / "work" / "secret")
            (run.path / name / "work" / "secret").chmod(0o600)
            shutil.copyfile(built / name / "build.json", run.path / name / "build.json")
    link_group.plan(run, "east+west")
    return run


@pytest.fixture(autouse=True)
def own_queue(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    return state


def drive(run: RunFolder) -> list[str]:
    said: list[str] = []
    link_group.drive(run, "east+west", said.append)
    return said


def rows(run: RunFolder, query: str) -> list[dict[str, Any]]:
    database = run.path.parent.parent / "results.db"
    load_run(database, run.path, clusters=["east+west"])
    assert [one.read_count for one in load_run(database, run.path, clusters=["east+west"]).clusters] == [0]
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(query)]


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


def events_of(run: RunFolder, part: str = "east+west") -> list[dict[str, Any]]:
    return read_journal(run.journal(part))
