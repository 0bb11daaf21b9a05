"""Texts that the tests of campaign and cluster files begin from, and what is said about wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hpcq.definition import Campaign, Cluster, find, read_campaign, read_cluster
from hpcq.errors import UserError

GOOD = "name: c\nclusters: [alpha]\npairs: all\n"
NODE_LIST = "is not a node list: must be names of letters, digits and ._- with ranges like n[01-04,7]"
TESTS = "tests:\n  - kernel: tcp_stream\n"
SIZES = "b, gb, gib, kb, kib, mb, mib"
TIMES = "d, h, m, min, ms, ns, s, us, µs"
RATES = "bit, bit/s, bps, g, gbit, gbit/s, gbps, k, kbit, kbit/s, kbps, m, mbit, mbit/s, mbps, t, tbit, tbit/s, tbps"
NAMES = "is not a name: must be letters, digits and ._-, 64 at most, a letter or digit first"
SLURM = "name: alpha\nscheduler: slurm\ninterface: eth0\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to stand in, with an empty home and no lab."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HPCQ_CLUSTERS", raising=False)
    monkeypatch.delenv("HPCQ_LABS")
    monkeypatch.setattr(find, "LAB_FOLDER", tmp_path / "labs")
    return tmp_path


def refused(read: Callable[[Path], object], path: str, text: str | bytes) -> UserError:
    """What is said about a file with that text."""
    Path(path).write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(UserError) as caught:
        read(Path(path))
    return caught.value


def campaign_says(text: str | bytes) -> list[str]:
    """The complaints about a campaign file, line by line."""
    return refused(read_campaign, "c.yaml", text).message.splitlines()


def cluster_says(text: str | bytes) -> list[str]:
    """The complaints about a cluster file, line by line."""
    return refused(read_cluster, "alpha.yaml", text).message.splitlines()


def read(text: str) -> Campaign:
    """A campaign from its text."""
    Path("c.yaml").write_text(text)
    return read_campaign(Path("c.yaml"))


def read_alpha(text: str) -> Cluster:
    """The cluster alpha from its text."""
    Path("alpha.yaml").write_text(text)
    return read_cluster(Path("alpha.yaml"))
