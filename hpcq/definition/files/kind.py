"""Which kind of file a YAML file is meant to be, from its keys; the readers then say what is wrong with it."""

from __future__ import annotations

from pathlib import Path

from hpcq.definition.yamlfile import read_document

_OF_CLUSTERS = frozenset(
    {"scheduler", "interface", "reach", "work_directory", "partition", "mpi", "compiler", "ports", "networks"}
)
_OF_CAMPAIGNS = frozenset({"tests", "pairs", "clusters", "gates", "repetitions"})


def is_cluster_file(path: Path) -> bool:
    """Whether more of its keys are those of cluster files than of campaigns. Raises UserError for what is no YAML."""
    data = read_document(path).data
    keys = set(data) if isinstance(data, dict) else set()
    return len(keys & _OF_CLUSTERS) > len(keys & _OF_CAMPAIGNS)
