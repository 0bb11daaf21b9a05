"""Compare what a link delivers with what the same nodes deliver within their clusters; nothing here writes.

    results over alpha+beta, each way --+
    results within alpha, of its nodes --+--> one row per test: there, back, near, over : within, window / round trip
    results within beta,  of its nodes --+

A transfer moves at most one window per round trip: a rate limited by that falls with distance, any other need not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcq.kernels import size_text
from hpcq.store.database import Connection
from hpcq.store.query import median, network_text, variant_names

#: Kernels whose main metric is a round trip.
_TRIPS = ("tcp_pingpong", "udp_pingpong")

_RESULTS = """
SELECT v.cluster, v.placement, v.kernel, v.client, v.server, v.message_bytes, v.parameters, v.metric, v.unit, v.value,
    v.network, v.network_name, n.better, s.client_cluster, g.value AS buffer_bytes
FROM v_results v
LEFT JOIN v_granted g ON g.result_id = v.result_id AND g.granted = 'server_receive_buffer_bytes'
JOIN v_series s ON s.series_id = v.series_id
JOIN metric_name n ON n.name = v.metric AND n.kernel_id = (SELECT kernel_id FROM kernel WHERE name = v.kernel)
WHERE v.run = ? AND v.outcome = 'measured' AND v.value IS NOT NULL
"""
_LINKS = """
SELECT DISTINCT p.cluster AS link, f.name AS from_cluster, t.name AS to_cluster
FROM v_pairs p
JOIN cluster c ON c.name = p.cluster
JOIN link l ON l.cluster_id = c.cluster_id
JOIN cluster f ON f.cluster_id = l.from_cluster_id
JOIN cluster t ON t.cluster_id = l.to_cluster_id
WHERE p.run = ?
"""


@dataclass(frozen=True, slots=True)
class FarTest:
    """One test over a link, as medians.

    `back` is None without a direction; near values are None without a comparison.
    """

    kernel: str
    message_bytes: int | None
    variant: str
    metric: str
    unit: str
    better: str
    there: float | None
    back: float | None
    far_count: int
    near_from: float | None
    near_to: float | None
    near_count: int
    #: Value over the link divided by value within the clusters; None if nothing was compared.
    ratio: float | None
    #: What one window per round trip would deliver; None if the system chooses the window.
    window_bps: float | None

    @property
    def size_text(self) -> str:
        return size_text(self.message_bytes)

    @property
    def window_limits(self) -> bool:
        """Whether one window per round trip is less than what the nodes deliver to each other within their clusters."""
        near = [value for value in (self.near_from, self.near_to) if value is not None]
        return self.window_bps is not None and bool(near) and self.window_bps < min(near)


@dataclass(frozen=True, slots=True)
class Distance:
    """A link with its tests. Trips are medians of the smallest message, None if none was measured.

    network: what it was measured over, as `fabric (ib0)`; empty if nothing was.
    """

    link: str
    network: str
    from_cluster: str
    to_cluster: str
    trip_ns: float | None
    near_trip_ns: float | None
    tests: tuple[FarTest, ...]


@dataclass(slots=True)
class _Values:
    """Values of one test by where they were measured."""

    there: list[float] = field(default_factory=list)
    back: list[float] = field(default_factory=list)
    near_from: list[float] = field(default_factory=list)
    near_to: list[float] = field(default_factory=list)
    buffers: list[float] = field(default_factory=list)


#: kernel, parameters without the direction, size, metric, unit, whether higher is better.
_Test = tuple[str, str, int | None, str, str, str]


def distances(database: Connection, run: str) -> list[Distance]:
    """Every link of a run, the nearest first."""
    links = database.execute(_LINKS, (run,)).fetchall()
    rows = database.execute(_RESULTS, (run,)).fetchall() if links else []
    found = [_distance(link, rows) for link in links]
    return sorted(found, key=lambda one: (one.trip_ns is None, one.trip_ns or 0.0, one.link))


def _distance(link: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Distance:
    over = [row for row in rows if row["cluster"] == link["link"]]
    used = {node for row in over for node in (row["client"], row["server"])}
    tests: dict[_Test, _Values] = {}
    for row in rows:
        side = {link["from_cluster"]: "near_from", link["to_cluster"]: "near_to"}.get(row["cluster"])
        if row["cluster"] == link["link"] or (side is not None and {row["client"], row["server"]} & used):
            parameters = json.loads(row["parameters"])
            direction = parameters.pop("direction", None)
            key = (row["kernel"], json.dumps(parameters), row["message_bytes"], row["metric"], row["unit"], row["better"])
            values = tests.setdefault(key, _Values())
            if side is not None:
                getattr(values, side).append(row["value"])
                continue
            forward = (row["client_cluster"] == link["from_cluster"]) == (direction != "server_to_client")
            (values.there if forward or direction is None else values.back).append(row["value"])
            if parameters.get("receive_buffer_bytes") and row["buffer_bytes"]:
                values.buffers.append(row["buffer_bytes"])
    tests = {key: values for key, values in tests.items() if values.there or values.back}
    trip_ns, near_trip_ns = _trips(tests)
    variants = variant_names((key[0], key[1]) for key in tests)
    made = [_far(key, values, variants[key[0], key[1]], trip_ns) for key, values in tests.items()]
    made.sort(key=lambda one: (one.kernel, one.message_bytes or 0, one.window_bps or 0.0, one.variant))
    networks = dict.fromkeys(network_text(row["network_name"], row["network"]) for row in over if row["network"])
    return Distance(
        link["link"], ", ".join(networks), link["from_cluster"], link["to_cluster"], trip_ns, near_trip_ns, tuple(made)
    )


def _trips(tests: Mapping[_Test, _Values]) -> tuple[float | None, float | None]:
    """Median round trips over the link and within its clusters, of the smallest message size."""
    trips = [(key[2] or 0, _TRIPS.index(key[0]), values) for key, values in tests.items() if key[0] in _TRIPS]
    if not trips:
        return None, None
    _, _, values = min(trips, key=lambda one: one[:2])
    return _median(values.there + values.back), _median(values.near_from + values.near_to)


def _far(key: _Test, values: _Values, variant: str, trip_ns: float | None) -> FarTest:
    kernel, _, message_bytes, metric, unit, better = key
    far, near = values.there + values.back, values.near_from + values.near_to
    # Linux keeps half of a socket's buffer for its own bookkeeping.
    window_bytes = median(values.buffers) / 2 if values.buffers and kernel == "tcp_stream" else None
    return FarTest(
        kernel=kernel,
        message_bytes=message_bytes,
        variant=variant,
        metric=metric,
        unit=unit,
        better=better,
        there=_median(values.there),
        back=_median(values.back),
        far_count=len(far),
        near_from=_median(values.near_from),
        near_to=_median(values.near_to),
        near_count=len(near),
        ratio=median(far) / median(near) if near and median(near) else None,
        window_bps=window_bytes * 8e9 / trip_ns if window_bytes and trip_ns else None,
    )


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return median(found) if found else None
