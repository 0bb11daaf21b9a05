"""The descriptions that come with hpcq, read in advance: kernels/described/index.json.

NAME.yaml --python -m hpcq.definition.foreign.index--> index.json --indexed--> Kernel

Verbs that only list kernels need neither a reader of YAML nor the checks. The index holds the SHA-256 of each file; a
file that has changed since is read itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from hpcq.described_kernel import Described, Peer, Reading, Ready, Server, Shape, Sizes, Steps, Table
from hpcq.kernels import Better, Kernel, Metric, Option, OptionType

INDEX = "index.json"


def index_text(found: Iterable[Kernel]) -> str:
    """The index of these kernels, each with the sum of the file that it was read from."""
    rows = {}
    for kernel in found:
        described = kernel.described
        assert described is not None  # noqa: S101 - only described kernels have files
        path = Path(described.path)
        kept = replace(kernel, described=replace(described, path=""))
        rows[kernel.name] = {"sha256": _sum(path), "kernel": asdict(kept)}
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def indexed(path: Path) -> Kernel | None:
    """The kernel of this file by the index beside it; None if there is no index, or the file is another one now."""
    row = _rows(str(path.parent / INDEX)).get(path.stem)
    if row is None or row["sha256"] != _sum(path):
        return None
    return _kernel(row["kernel"], str(path))


@lru_cache(maxsize=4)
def _rows(index: str) -> Mapping[str, Any]:
    try:
        found = json.loads(Path(index).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _sum(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _kernel(row: Mapping[str, Any], path: str) -> Kernel:
    return Kernel(
        **{
            **row,
            "options": tuple(_option(one) for one in row["options"]),
            "metrics": tuple(Metric(**{**one, "better": Better(one["better"])}) for one in row["metrics"]),
            "described": _described({**row["described"], "path": path}),
        }
    )


def _option(row: Mapping[str, Any]) -> Option:
    return Option(**{**row, "type": OptionType(row["type"]), "choices": tuple(row["choices"])})


def _described(row: Mapping[str, Any]) -> Described:
    server, table, sizes = row["server"], row["table"], row["sizes"]
    lists = {key: tuple(row[key]) for key in ("modules", "exit_codes", "failure_words", "sends_at_least")}
    return Described(
        **{
            **row,
            **lists,
            "shape": Shape(row["shape"]),
            "server": server and Server(**{**server, "ready": Ready(server["ready"])}),
            "table": table and Table(**{**table, "columns": tuple(table["columns"])}),
            "sizes": sizes and Sizes(**{**sizes, "steps": Steps(sizes["steps"])}),
            "readings": tuple(_reading(one) for one in row["readings"]),
        }
    )


def _reading(row: Mapping[str, Any]) -> Reading:
    return Reading(**{**row, "units": tuple(map(tuple, row["units"])), "peer": row["peer"] and Peer(**row["peer"])})
