"""Derive a campaign file from another: the same tests on other pairs of one cluster.

Acceptance and re-tests run such files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from hpcq.definition.model import LINKS, NODE_COUNT, NODES, PAIRS
from hpcq.errors import UserError
from hpcq.kernels import Kernels

#: A node that failed with so many partners that are fine with others has failed: the rest of its pairs tells nothing new.
DECIDED_AFTER = 3


def with_pairs(  # noqa: PLR0917 - what of a campaign changes
    source: str,
    kernels: Kernels,
    target: Path,
    cluster: str,
    pairs: Sequence[tuple[str, str]],
    repetitions_min: int,
    *,
    alone: bool = False,
) -> tuple[str, ...]:
    """Write the campaign of this text to `target` with exactly these pairs (client, server) on this cluster.

    kernels: those of its tests. alone: one pair at a time, so that none shares an uplink with another.

    Returns the kernels whose tests it leaves out, because they run over links, or on several nodes together: those name
    no node, and would take nodes that nobody asked about. Raises UserError where no other test is left.
    """
    yaml = _yaml()
    data: dict[str, Any] = yaml.load(source)
    data["clusters"] = [cluster]
    data["pairs"] = {"list": [[client, server] for client, server in pairs]}
    data["repetitions"] = max(int(data.get("repetitions", 3)), repetitions_min)
    data.setdefault("decided_after", DECIDED_AFTER)
    if alone:
        data["budget"] = {**(data.get("budget") or {}), "max_jobs": 1}
    nodes = data.get("nodes")
    if isinstance(nodes, dict):
        for name in ("include", "exclude", "at_most"):
            nodes.pop(name, None)
        if not nodes:
            del data["nodes"]
    data.pop("links", None)
    left_out = _keep_tests_of_pairs(data, target.name, kernels)
    _write(yaml, data, target)
    return left_out


def with_set(  # noqa: PLR0917 - what of a campaign changes
    source: str, kernels: Kernels, target: Path, cluster: str, nodes: Sequence[str], repetitions_min: int
) -> None:
    """Write the campaign of this text to `target` with its tests of several nodes together alone, and these nodes alone."""
    yaml = _yaml()
    data: dict[str, Any] = yaml.load(source)
    data["clusters"] = [cluster]
    data["repetitions"] = max(int(data.get("repetitions", 3)), repetitions_min)
    given = data.get("nodes") if isinstance(data.get("nodes"), dict) else {}
    kept = {name: one for name, one in (given or {}).items() if name not in {"include", "exclude", "at_most"}}
    data["nodes"] = {**kept, "include": list(nodes)}
    data.pop("links", None)
    data["pairs"] = "all"
    data["tests"] = [one for one in data["tests"] if is_collective(one, kernels)]
    data["gates"] = [
        one for one in data.get("gates") or [] if _judges(one, {test["kernel"] for test in data["tests"]}, kernels)
    ]
    _write(yaml, data, target)


def _keep_tests_of_pairs(data: dict[str, Any], name: str, kernels: Kernels) -> tuple[str, ...]:
    """Leave out the other tests, keys that hold for none of the rest, and the word `links`."""
    tests = [one for one in data["tests"] if _stays(one, kernels)]
    if not tests:
        raise UserError(f"{name}: tests: none of them runs on pairs: at least one must")
    kept = {one["kernel"] for one in tests}
    left_out = tuple(dict.fromkeys(str(one["kernel"]) for one in data["tests"] if one not in tests))
    if left_out:
        data["tests"] = tests
        data["gates"] = [one for one in data.get("gates") or [] if _judges(one, kept, kernels)]
    for one in tests:
        if "on" in one:
            one["on"] = [place for place in _places(one) if place != LINKS]
    if not any(kernel.program == "hpcq-mpi" for kernel in map(kernels.get, kept) if kernel is not None):
        for key in ("toolchains", "transport"):
            data.pop(key, None)
    return left_out


def _judges(gate: Any, kept: set[Any], kernels: Kernels) -> bool:
    """Whether a gate judges one of these kernels."""
    if gate.get("kernel") is not None:
        return gate["kernel"] in kept
    known = [kernels.get(name) for name in kept]
    return any(kernel is None or kernel.metric(gate["metric"]) is not None for kernel in known)


def _places(test: Any) -> list[str]:
    on = test.get("on", [PAIRS, NODES])
    return [on] if isinstance(on, str) else list(on)


def _stays(test: Any, kernels: Kernels) -> bool:
    """Whether a test runs within the clusters, on a pair or on one node alone."""
    return not is_collective(test, kernels) and _places(test) != [LINKS]


def plays_tournaments(source: str) -> bool:
    """Whether pairs of this campaign share allocations: each of its tests is then one under its load (`concurrency`)."""
    return (_yaml().load(source).get("allocation") or "pair") != "pair"


def measures_alone(source: str) -> bool:
    """Whether runs of this campaign measure one pair at a time: none shares an uplink with another."""
    data = _yaml().load(source)
    return not plays_tournaments(source) and (data.get("budget") or {}).get("max_jobs") == 1


def collectives_of(source: str, kernels: Kernels) -> list[str]:
    """The kernels of the tests of several nodes together in the campaign of this text, each once."""
    return list(dict.fromkeys(str(one["kernel"]) for one in _yaml().load(source)["tests"] if is_collective(one, kernels)))


def is_collective(test: Any, kernels: Kernels) -> bool:
    """Whether several nodes run the test together."""
    kernel = kernels.get(test["kernel"])
    return kernel is not None and kernel.needs_mpi and kernel.option(NODE_COUNT) is not None


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
