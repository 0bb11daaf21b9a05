"""Values of one run with everything that decides whether two programs measured the same."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from hpcq.store.database import Connection


@dataclass(frozen=True, slots=True)
class PeerValue:
    """One metric of one measured result."""

    cluster: str
    client: str
    server: str
    kernel: str
    parameters: dict[str, Any]
    metric: str
    unit: str
    value: float


def peer_values(database: Connection, run: str, wanted: Collection[tuple[str, str]]) -> list[PeerValue]:
    """The values of a run that count. wanted: kernel and metric."""
    if not wanted:
        return []
    pairs = ", ".join(["(?, ?)"] * len(wanted))
    rows = database.execute(
        "SELECT m.cluster, m.client, m.server, m.kernel, v.parameters, m.metric, m.unit, m.value"  # noqa: S608 - only ?
        " FROM v_metrics m JOIN v_results v ON v.result_id = m.result_id"
        f" WHERE m.run = ? AND (m.kernel, m.metric) IN (VALUES {pairs}) ORDER BY m.result_id",
        [run, *(word for one in sorted(wanted) for word in one)],
    )
    return [
        PeerValue(cluster, client, server, kernel, json.loads(parameters), metric, unit or "", value)
        for cluster, client, server, kernel, parameters, metric, unit, value in rows
    ]
