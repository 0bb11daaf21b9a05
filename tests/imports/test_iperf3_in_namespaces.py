"""Folders of what iperf3 itself wrote between network namespaces, one of which is slowed: imported, the slow one is named."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.imports.test_formats import bring, site
from tests.store.test_import import Importing

__all__ = ["site"]
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes network namespaces"),
]

NODES = ["n1", "n2", "n3", "n4", "n5"]
SLOW = "n3"
NIGHTS, SLOW_SINCE = 12, 8
FIRST = dt.datetime(2026, 10, 1, 2, tzinfo=dt.UTC)
RATE_BPS = 100e6


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def _space(node: str) -> str:
    return f"imp{os.getpid()}{node}"


def _shape(node: str, rate_bps: float, how: str) -> None:
    """Both directions of a node at this rate: what it sends, and what the switch sends to it."""
    bucket = ["root", "tbf", "rate", f"{rate_bps:.0f}bit", "burst", "32kb", "latency", "50ms"]
    _run("ip", "netns", "exec", _space(node), "tc", "qdisc", how, "dev", "eth0", *bucket)
    _run("ip", "netns", "exec", _space("sw"), "tc", "qdisc", how, "dev", node, *bucket)


@contextlib.contextmanager
def _switched() -> Iterator[None]:
    """Namespaces at one bridge, each with an iperf3 server at 10.77.0.NUMBER."""
    servers = []
    try:
        for name in ("sw", *NODES):
            _run("ip", "netns", "add", _space(name))
        _run("ip", "-n", _space("sw"), "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", _space("sw"), "link", "set", "bridge", "up")
        for number, node in enumerate(NODES, start=1):
            _run("ip", "-n", _space("sw"), "link", "add", node, "type", "veth", "peer", "name", "eth0", "netns", _space(node))
            _run("ip", "-n", _space("sw"), "link", "set", node, "master", "bridge", "up")
            _run("ip", "-n", _space(node), "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
            _run("ip", "-n", _space(node), "link", "set", "eth0", "up")
            _shape(node, RATE_BPS, "add")
            command = ["ip", "netns", "exec", _space(node), "timeout", "300", "iperf3", "--server"]
            servers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        time.sleep(1)
        yield
    finally:
        for server in servers:
            server.terminate()
            server.wait()
        for name in ("sw", *NODES):
            subprocess.run(["ip", "netns", "delete", _space(name)], check=False, capture_output=True)


def _measure(folder: Path) -> None:
    """One file per pair: 2 MB, so that the buckets decide and not their bursts."""
    folder.mkdir(parents=True)
    for client, server in itertools.combinations(NODES, 2):
        place = f"10.77.0.{NODES.index(server) + 1}"
        command = ["ip", "netns", "exec", _space(client), "timeout", "20", "iperf3", "--client", place, "--json", "-n", "2M"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        (folder / f"{client}_{server}.json").write_text(said)


@pytest.mark.promise("Blame and regressions over imported folders of iperf3 name the node that was slowed.")
def test_the_node_that_tc_slowed_is_named(site: Importing) -> None:
    with _switched():
        for night in range(NIGHTS):
            if night == SLOW_SINCE:
                _shape(SLOW, RATE_BPS / 2, "change")
            _measure(site.folder / "logs" / f"{FIRST + dt.timedelta(days=night):%Y%m%dT%H%M%SZ}")
    bring(site, "logs", site.folder / "logs", "--names", "{time}/{client}_{server}.json")
    assert site.ask("SELECT DISTINCT kernel, outcome FROM v_results") == [("iperf3_tcp", "measured")]
    newest = site.ask("SELECT max(run) FROM v_runs")[0][0]
    blamed = site.words("blame", "--run", newest, expect=3)
    assert f"{SLOW}: " in blamed
    assert not any(f"node   {node}:" in blamed for node in NODES if node != SLOW)
    told = site.words("regressions", expect=3)
    assert f"told: node alpha/{SLOW}" in told
    assert not any(f"told: node alpha/{node}" in told for node in NODES if node != SLOW)
