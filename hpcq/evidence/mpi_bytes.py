"""How much the ends of hpcq's own MPI kernels, and of path_probe, send at least: enough for a proof of crossing.

Libraries choose their algorithms, so a collective has a lower bound: what a rank gives to others has to leave it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: By operation, without the `i` of the non-blocking ones: blocks that rank 0 and rank 1 send at least; `n`: one per other
#: rank.
_BLOCKS: Mapping[str, tuple[str, str]] = {
    "bcast": ("1", "0"),
    "scatter": ("n", "0"),
    "scatterv": ("n", "0"),
    "scan": ("1", "0"),
    "reduce": ("0", "1"),
    "gather": ("0", "1"),
    "gatherv": ("0", "1"),
    "incast": ("0", "1"),
    "allreduce": ("1", "1"),
    "allgather": ("1", "1"),
    "allgatherv": ("1", "1"),
    "reduce_scatter": ("n", "n"),
    "alltoall": ("n", "n"),
    "alltoallv": ("n", "n"),
}
#: Where kernels tell it themselves.
_TOLD = ("client_moved_bytes", "server_moved_bytes")
#: Of path_probe: what the server answered came from the client.
_ANSWERED = "answered_bytes"
_WAYS = {"client_to_server": (1, 0), "server_to_client": (0, 1), "both": (1, 1)}


def sent_at_least_bytes(kernel: str, parameters: Mapping[str, Any], metrics: Mapping[str, float]) -> tuple[float, ...]:
    """The bytes that the client (rank 0) and the server (rank 1) sent at least; empty if nothing tells."""
    if _ANSWERED in metrics:
        return metrics[_ANSWERED], 0.0
    told = tuple(metrics[name] for name in _TOLD if name in metrics)
    return told if len(told) == len(_TOLD) else _of_messages(kernel, parameters, metrics)


def _of_messages(kernel: str, parameters: Mapping[str, Any], metrics: Mapping[str, float]) -> tuple[float, ...]:
    size, count = parameters.get("message_bytes"), metrics.get("operation_count")
    if not isinstance(size, (int, float)) or count is None:
        return ()
    each = count * size
    if kernel == "mpi_pingping":
        return each, each
    if kernel == "mpi_stream":
        there, back = _WAYS.get(str(parameters.get("direction")), (0, 0))
        messages = each * float(parameters.get("window_count") or 0)
        return there * messages, back * messages
    if kernel == "mpi_one_sided":
        return (0.0, each) if parameters.get("operation") == "get" else (each, 0.0)
    return _of_collective(each, parameters, metrics) if kernel == "mpi_collective" else ()


def _of_collective(each: float, parameters: Mapping[str, Any], metrics: Mapping[str, float]) -> tuple[float, ...]:
    name = str(parameters.get("operation"))
    if name == "multi_pair":  # rank 1 is the receiver of the only pair, or the sender of the second
        messages = each * float(parameters.get("window_count") or 0)
        return messages, messages if metrics.get("pair_count", 0.0) > 1 else 0.0
    blocks = _BLOCKS.get(name) or _BLOCKS.get(name.removeprefix("i"))
    others = metrics.get("rank_count", 0.0) - 1
    return tuple(each * (others if one == "n" else float(one)) for one in blocks) if blocks else ()
