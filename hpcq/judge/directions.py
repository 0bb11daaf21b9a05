"""Which direction is good for a value, by its name: hpcq's own metrics first, then the usual words."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpcq.kernels import Better

#: What nobody wants to count or wait for, wherever it stands in the name. It goes first: an error rate is no rate.
_LOSSES = frozenset(
    re.findall(
        r"\w+",
        """loss losses lost drop drops dropped discard discards discarded error errors err errs fail fails failed failure
        failures retransmit retransmits retransmitted retransmission retransmissions retrans retries retry timeout timeouts miss
        misses missed imbalance overhead slowdown stall stalls stalled pause pauses collision collisions corrupt corrupted crc
        overrun overruns overflow overflows underrun underruns abort aborts aborted congestion fault faults crash crashes reboot
        reboots restart restarts reset resets flap flaps""",
    )
)
_WAITS = frozenset(
    re.findall(
        r"\w+",
        """latency latencies lat delay delays jitter rtt ping time times duration durations runtime runtimes walltime elapsed
        wait waits seconds milliseconds microseconds nanoseconds late makespan""",
    )
)
_HIGHER = frozenset(
    re.findall(
        r"\w+",
        """throughput throughputs bandwidth bandwidths bw goodput speed speedup speedups rate rates bitrate performance perf
        efficiency score fairness ops iops qps rps tps pps kpps mpps bps kbps mbps gbps tbps flops mflops gflops tflops pflops
        gups teps gteps lups mlups glups fps""",
    )
)
#: Words that turn the others around: an improvement of the latency, a time that was saved.
_TURNING = frozenset({"improvement", "improvements", "reduction", "reductions", "saved", "savings", "avoided", "free"})
_SECONDS = "ns|us|µs|μs|ms|s|sec|secs|usec|msec|nsec|second|seconds|min|mins|minute|minutes|h|hr|hour|hours|day|days"
#: The last part of a name, when it is a unit of time.
_TIMES = frozenset(_SECONDS.split("|")) - {"day", "days", "second", "minute", "hour", "h"}
#: Work that somebody wants more of per second; of others, such as interrupts, the name does not say.
_WORK = (
    "[kmgtp]?i?(?:bits?|bytes?|b)|[kmgtp]?(?:flops?|ops?|ios?|packets?|pkts?|updates?)|frames?|messages?|msgs?|operations?|"
    "requests?|reqs?|queries|transactions?|txns?|samples?|images?|imgs?|tokens?|steps?|iterations?|iters?|its?|particles?|cells?|"
    "atoms?|jobs?|files?|events?|rays?|lookups?|edges?|evaluations?|words?|reads?|writes?|calls?|points?|rows?|records?"
)
#: `GB/s`, `images per second`, `bytes_per_s`, `ns/day`; `MB_s`; anything per time; `us/call`, `ms_per_step`, `days/ns`.
_RATE = re.compile(rf"(?<![a-z])(?:{_WORK}|[num]?s)[\W_]*(?:/|per(?![a-z]))[\W_]*(?:{_SECONDS})(?![a-z])")
_GLUED_RATE = re.compile(rf"(?<![a-z])(?:{_WORK})[ _](?:s|sec|second)(?![a-z])")
_PER_TIME = re.compile(rf"(?:/|(?<![a-z])per(?![a-z]))[\W_]*(?:{_SECONDS})(?![a-z])")
_TIME_PER = re.compile(rf"(?<![a-z])(?:{_SECONDS})[\W_]*(?:/|per(?![a-z]))[\W_]*[a-z]")


def direction_of(name: str, metrics: Mapping[str, Better]) -> Better | None:
    """`round_trip_p50_ns` -> lower; `n1 > n2 throughput_bps` -> higher; None if the name does not say.

    metrics: the metrics that hpcq knows, by name. Words are split at everything but letters and digits, and at CamelCase.
    """
    known = [metrics[part] for part in re.split(r"[^A-Za-z0-9_]+", name) if part in metrics]
    if known:
        return known[-1]
    lower = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()
    words = [word for word in re.split(r"[^a-z0-9µμ]+", lower) if word]
    if _TURNING.intersection(words):
        return None
    ends_in_time = len(words) > 1 and words[-1] in _TIMES and not _PER_TIME.search(lower)
    said = (
        (bool(_LOSSES.intersection(words)), Better.LOWER),
        (_RATE.search(lower) is not None, Better.HIGHER),
        (bool(_WAITS.intersection(words)) or _TIME_PER.search(lower) is not None, Better.LOWER),
        (bool(_HIGHER.intersection(words)) or _GLUED_RATE.search(lower) is not None, Better.HIGHER),
        (ends_in_time, Better.LOWER),
    )
    return next((better for holds, better in said if holds), None)
