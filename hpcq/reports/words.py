"""Names of kernels and metrics for titles: `tcp_stream` is "TCP stream", `round_trip_p50_ns` is "round trip p50"."""

from __future__ import annotations

from hpcq import units

_SHORT_FORMS = {"tcp": "TCP", "udp": "UDP", "mpi": "MPI", "cpu": "CPU"}


def kernel_title(kernel: str) -> str:
    """A kernel's name in words."""
    return _words(kernel)


def percent(change: float) -> str:
    """A change as a share: `-10 %`."""
    return f"{100 * change:+.0f} %"


def metric_title(metric: str) -> str:
    """A metric's name in words, without its unit: axes and figures show that."""
    unit = units.unit_of(metric)
    return _words(metric.removesuffix(f"_{unit}") if unit else metric)


def _words(name: str) -> str:
    return " ".join(_SHORT_FORMS.get(word, word) for word in name.split("_"))
