"""Campaign and cluster files. YAML and pydantic are imported only when a file is read."""

from __future__ import annotations

from pathlib import Path

from hpcq.definition.find import find_campaign, find_cluster, list_clusters
from hpcq.definition.model import Campaign, Cluster

__all__ = ["Campaign", "Cluster", "find_campaign", "find_cluster", "list_clusters", "read_campaign", "read_cluster"]


def read_campaign(path: Path) -> Campaign:
    """Read and check a campaign file. Raises UserError with every complaint, one per line."""
    from hpcq.definition.files import campaign

    return campaign.read_campaign(path)


def read_cluster(path: Path) -> Cluster:
    """Read and check a cluster file. Raises UserError with every complaint, one per line."""
    from hpcq.definition.files import cluster

    return cluster.read_cluster(path)
