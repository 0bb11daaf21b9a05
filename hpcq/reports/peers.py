"""Programs that measure the same, side by side: what a foreign program says over what a kernel of hpcq says.

Two results are compared when they are of the same two nodes in the same run, and when every option that both programs
have is equal, except how long they measured. The description of the foreign program says which metric is the same
quantity (`same_as`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcq import units
from hpcq.definition.described import know_texts
from hpcq.described_kernel import Peer
from hpcq.kernels import Kernel, kernels
from hpcq.reports.words import kernel_title, metric_title
from hpcq.store.database import Connection
from hpcq.store.query import median, size_text
from hpcq.store.read.peer_values import PeerValue, peer_values
from hpcq.store.references import descriptions

#: Another figure by more than this is told as disagreement.
DIFFERS_RATIO = 0.10
_Options = tuple[tuple[str, Any], ...]
_HOW_LONG = {"duration_s", "warmup_s", "omit_s", "operation_count_max"}


@dataclass(frozen=True, slots=True)
class Compared:
    """One foreign program against a kernel of hpcq: medians over the pairs of nodes, and the ratio of each pair.

    theirs, ours: for people. ratios: of each pair, theirs over ours, sorted; empty when nothing was comparable.
    """

    cluster: str
    kernel: str
    quantity: str
    size: str
    theirs: str
    ours: str
    ratios: tuple[float, ...]

    @property
    def program(self) -> tuple[str, str]:
        """Which program on which cluster."""
        return self.cluster, self.kernel

    @property
    def ratio(self) -> float | None:
        """The median over the pairs."""
        return median(self.ratios) if self.ratios else None

    @property
    def differs(self) -> bool:
        """Whether the two programs disagree about the pairs as a whole."""
        return self.ratio is not None and abs(self.ratio - 1) > DIFFERS_RATIO


def compared(database: Connection, run: str) -> list[Compared]:
    """Every foreign program of a run that has a counterpart, the largest disagreement first."""
    texts = descriptions(database)
    if not texts:
        return []
    know_texts(texts)
    known = kernels()
    peers = [
        (kernel, one.metric, one.peer)
        for name in sorted(texts)
        if (kernel := known[name]).described is not None
        for one in kernel.described.readings
        if one.peer is not None
    ]
    wanted = {(kernel.name, metric) for kernel, metric, _ in peers} | {(one.kernel, one.metric) for _, _, one in peers}
    values = peer_values(database, run, wanted)
    rows = [row for kernel, metric, peer in peers for row in compare(kernel, metric, peer, values)]
    return sorted(rows, key=lambda row: -abs((row.ratio or 1.0) - 1))


def compare(kernel: Kernel, metric: str, peer: Peer, values: Sequence[PeerValue]) -> list[Compared]:
    """One metric of a foreign program against its counterpart: one row per cluster and set of shared options."""
    shared = {one.name for one in kernel.options} & {one.name for one in kernels()[peer.kernel].options} - _HOW_LONG
    theirs = _by_test([one for one in values if (one.kernel, one.metric) == (kernel.name, metric)], shared, peer.times)
    ours = _by_test([one for one in values if (one.kernel, one.metric) == (peer.kernel, peer.metric)], shared, 1.0)
    unit = units.unit_of(metric) or ""
    rows = []
    for (cluster, options), of_pairs in theirs.items():
        others = ours.get((cluster, options), {})
        pairs = [pair for pair in of_pairs if others.get(pair)]
        shown = [units.human(median(list(found.values())), unit) if found else "" for found in (of_pairs, others)]
        rows.append(
            Compared(
                cluster=cluster,
                kernel=kernel.name,
                quantity=f"{kernel_title(peer.kernel)}, {metric_title(peer.metric)}",
                size=_size(options),
                theirs=shown[0],
                ours=shown[1],
                ratios=tuple(sorted(of_pairs[pair] / others[pair] for pair in pairs)),
            )
        )
    return rows


def _by_test(
    values: Sequence[PeerValue], shared: set[str], times: float
) -> Mapping[tuple[str, _Options], Mapping[tuple[str, str], float]]:
    """Medians over the repetitions: by cluster and shared options, then by pair of nodes."""
    found: dict[tuple[str, _Options], dict[tuple[str, str], list[float]]] = {}
    for one in values:
        options = tuple(sorted((name, value) for name, value in one.parameters.items() if name in shared))
        pairs = found.setdefault((one.cluster, options), {})
        pairs.setdefault((one.client, one.server), []).append(one.value * times)
    return {key: {pair: median(many) for pair, many in pairs.items()} for key, pairs in found.items()}


def _size(options: _Options) -> str:
    return ", ".join(size_text(value) if name == "message_bytes" else f"{name}={value}" for name, value in options)
