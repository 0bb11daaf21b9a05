"""Conditions on flow control, congestion and RDMA ports: what slows a fabric without losing a packet for good.

Only the RDMA port of the interface under test counts (End.rdma_pattern): another card of the node may carry storage.
"""

from __future__ import annotations

import re

from hpcq.evidence import names
from hpcq.evidence.case import Side
from hpcq.evidence.conditions.network import Figures, Matching
from hpcq.evidence.ends import End

#: A single late acknowledgement happens on any fabric.
RDMA_AGAIN_COUNT_MIN = 3
#: Fewer congestion notices or pause frames than these occur at the start of any flow.
CONGESTION_COUNT_MIN = 100
PAUSE_COUNT_MIN = 10
#: Share of the interval in which a port waited for credits; ticks of 4 ns (ConnectX; other cards differ by a small
#: factor).
XMIT_WAIT_RATIO = 0.05
XMIT_WAIT_TICK_NS = 4.0
#: Lanes of an InfiniBand link. Split cables of HDR and NDR have two.
LANES = 4
SPLIT_LANES = 2
_SPLIT_RATES = ("HDR", "NDR", "XDR")


def rdma_sent_again(side: Side) -> Figures | None:
    """Packets of the RDMA port that were out of sequence, acknowledged late or not acknowledged."""
    return Matching(names.RDMA_AGAIN, at_least=RDMA_AGAIN_COUNT_MIN)(side)


def congestion_marked(side: Side) -> Figures | None:
    """Packets that switches marked (ECN), and congestion notices that the ends sent or obeyed."""
    found = Matching(names.CONGESTION_MARKED, at_least=CONGESTION_COUNT_MIN)(side)
    marked = side.here.count(names.IP_CONGESTION_MARKED) or 0
    if found is None and marked >= CONGESTION_COUNT_MIN:
        return {"count": marked, "counter": names.IP_CONGESTION_MARKED[0]}
    return found


def paused(side: Side) -> Figures | None:
    """Pause frames, of the whole link or of a priority (PFC), at the interface under test."""
    found = {name: delta for name, delta in side.here.matching(names.PAUSED).items() if not re.search(names.PAUSED_NOT, name)}
    if not found:
        return None
    largest = max(found, key=lambda name: found[name])
    if found[largest] < PAUSE_COUNT_MIN:
        return None
    match = re.fullmatch(names.PAUSED, largest)
    way = match["way"] if match else "rx"
    return {"count": found[largest], "counter": largest, "way": "received" if way == "rx" else "sent"}


def waited_for_credits(side: Side) -> Figures | None:
    """Time in which the RDMA port had data but the other end of the link had no room for it."""
    found = side.here.matching(names.XMIT_WAIT)
    if not found or side.here.interval_ns <= 0:
        return None
    largest = max(found, key=lambda name: found[name])
    ratio = found[largest] * XMIT_WAIT_TICK_NS / side.here.interval_ns
    return {"count": found[largest], "wait_ratio": min(1.0, ratio), "counter": largest} if ratio >= XMIT_WAIT_RATIO else None


def lanes_missing(side: Side) -> Figures | None:
    """An InfiniBand link with fewer than four lanes, unless both ends have the two of a split cable."""
    here = _lanes(side.here)
    if here is None or here[0] >= LANES:
        return None
    lanes, rate = here
    there = _lanes(side.there) if side.there is not None else None
    split = lanes == SPLIT_LANES and any(word in rate for word in _SPLIT_RATES)
    if split and (there is None or there[0] <= lanes):
        return None
    return {"lanes": lanes, "lanes_max": there[0] if there is not None and there[0] > lanes else LANES, "rate": rate}


def _lanes(end: End) -> tuple[int, str] | None:
    """Lanes and rate of the port behind the interface: `100 Gb/sec (4X EDR)`; None if it is no InfiniBand port."""
    port = str(end.facts.get(f"rdma.{end.interface}.port") or "")
    device, _, number = port.rpartition(".")
    rate = str(end.facts.get(f"rdma.{device}.port{number}.rate") or "")
    layer = str(end.facts.get(f"rdma.{device}.port{number}.link_layer") or "")
    match = re.search(r"\((\d+)X\b", rate)
    return (int(match[1]), rate) if match and layer != "Ethernet" else None
