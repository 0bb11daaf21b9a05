"""Derive a campaign file from another: the same tests on other pairs of one cluster.

Acceptance and re-tests run such files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML


def with_pairs(source: str, target: Path, cluster: str, pairs: Sequence[tuple[str, str]], repetitions_min: int) -> None:
    """Write the campaign of this text to `target` with exactly these pairs (client, server) on this cluster."""
    yaml = _yaml()
    data: dict[str, Any] = yaml.load(source)
    data["clusters"] = [cluster]
    data["pairs"] = {"list": [[client, server] for client, server in pairs]}
    data["repetitions"] = max(int(data.get("repetitions", 3)), repetitions_min)
    nodes = data.get("nodes")
    if isinstance(nodes, dict):
        for name in ("include", "exclude", "at_most"):
            nodes.pop(name, None)
        if not nodes:
            del data["nodes"]
    data.pop("links", None)
    _write(yaml, data, target)


def with_reservation(source: Path, target: Path, reservation: str) -> None:
    """Write a cluster file with this reservation."""
    yaml = _yaml()
    data: dict[str, Any] = yaml.load(source.read_text(encoding="utf-8"))
    data["reservation"] = reservation
    _write(yaml, data, target)


def _yaml() -> YAML:
    yaml = YAML()
    yaml.version = (1, 2)
    yaml.width = 4096
    return yaml


def _write(yaml: YAML, data: Any, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", encoding="utf-8") as file:
        yaml.dump(data, file)
