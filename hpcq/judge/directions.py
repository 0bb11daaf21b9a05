"""Which direction is good for a value, by its name: hpcq's own metrics first, then the usual words."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpcq.kernels import Better

#: A word that says it, wherever it stands in the name. Lower goes first: an error rate is no rate.
_LOWER = frozenset(
    re.findall(
        r"\w+",
        """latency latencies delay delays jitter rtt time times duration durations runtime walltime elapsed wait seconds late
        loss losses lost drop drops dropped discard discards discarded error errors err errs fail fails failed failure failures
        retransmit retransmits retransmitted retransmissions retries timeout timeouts miss misses missed imbalance overhead""",
    )
)
_HIGHER = frozenset(
    re.findall(
        r"\w+",
        """throughput bandwidth bw goodput speed speedup rate rates performance efficiency score fairness ops iops qps rps tps
        pps bps kbps mbps gbps tbps flops mflops gflops tflops pflops""",
    )
)
#: The last part of a name, when it is a unit of time.
_TIMES = frozenset({"ns", "us", "ms", "s", "sec", "secs", "usec", "msec", "min", "minutes", "hours"})


def direction_of(name: str, metrics: Mapping[str, Better]) -> Better | None:
    """`round_trip_p50_ns` -> lower; `n1 > n2 throughput_bps` -> higher; None if the name does not say.

    metrics: the metrics that hpcq knows, by name. Words are split at everything but letters and digits, and at CamelCase.
    """
    known = [metrics[part] for part in re.split(r"[^A-Za-z0-9_]+", name) if part in metrics]
    if known:
        return known[-1]
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    words = [word for word in re.split(r"[^a-z0-9]+", apart.lower()) if word]
    if any(word in _LOWER for word in words):
        return Better.LOWER
    if any(word in _HIGHER for word in words):
        return Better.HIGHER
    return Better.LOWER if len(words) > 1 and words[-1] in _TIMES else None
