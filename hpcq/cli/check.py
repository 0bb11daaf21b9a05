"""`hpcq check`: everything about files that can be known without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcq.cli.options import clusters_option, json_option, refuse_beside
from hpcq.cli.output import print_json, print_words
from hpcq.errors import Exit, UserError

if TYPE_CHECKING:
    from hpcq.definition.model import Campaign, Cluster


@dataclass(frozen=True, slots=True)
class _Checked:
    """One file that can be used, and what it says."""

    file: str
    kind: str
    says: str


@click.command()
@click.argument("files", metavar="[FILE...]", nargs=-1)
@click.option("--schema", type=click.Choice(["campaign", "cluster"]), help="Print the JSON Schema of these files, for editors.")
@clusters_option
@json_option
def check(files: tuple[str, ...], schema: str | None, cluster_folders: Sequence[Path], as_json: bool) -> int:
    """Check campaign and cluster files without a cluster: nothing is contacted, nothing is written.

    A campaign is checked together with the cluster files that it names. What only a cluster can answer (its nodes, its
    limits) is for `hpcq plan`.

    \b
    Example: hpcq check campaigns/nightly.yaml
             hpcq check --schema campaign > campaign.schema.json
    """
    if schema is not None:
        refuse_beside("--schema", {"schema"})
        from hpcq.definition.files.reference import campaign_schema, cluster_schema

        print_json(campaign_schema() if schema == "campaign" else cluster_schema())
        return Exit.OK
    if not files:
        raise UserError("FILE: nothing given: it is required", "hpcq check CAMPAIGN.yaml; with --schema none is needed")
    found: list[_Checked] = []
    failures: list[UserError] = []
    for name in files:
        try:
            found += _check(name, cluster_folders)
        except UserError as error:
            if error.message not in {one.message for one in failures}:  # several files may name one that is wrong
                failures.append(error)
    if as_json:
        print_json({"files": [asdict(one) for one in found], "errors": [one.message for one in failures]})
    else:
        for one in found:
            print_words(f"ok  {one.kind:<9} {one.file}: {one.says}")
    if not failures:
        return Exit.OK
    from hpcq.cli.main import complain

    for failure in failures[:-1]:
        complain(failure.message, failure.hint)
    raise failures[-1]


def _check(name: str, cluster_folders: Sequence[Path]) -> list[_Checked]:
    from hpcq.definition import read_campaign, read_cluster
    from hpcq.definition.files.cluster import is_cluster_file
    from hpcq.definition.find import find_campaign
    from hpcq.runner.site.place import check_definitions

    path = find_campaign(name)
    if is_cluster_file(path):
        one = read_cluster(path)
        return [_Checked(str(path), "cluster", f"scheduler {one.scheduler}, {_networks(one)}")]
    read_campaign(path)  # all its complaints, also where one of its clusters is missing
    campaign, paths = check_definitions(path, cluster_folders)
    clusters = [_Checked(str(file), "cluster", f"{cluster}, which {path.name} names") for cluster, file in paths.items()]
    return [_Checked(str(path), "campaign", _says(campaign)), *clusters]


def _networks(cluster: Cluster) -> str:
    others = ", ".join(f"{name} {interface}" for name, interface in cluster.networks.items())
    return f"interface {cluster.interface}" + (f", networks {others}" if others else "")


def _says(campaign: Campaign) -> str:
    from hpcq.units import count_of

    tests = count_of(len(campaign.tests), "test")
    links = f", {count_of(len(campaign.links), 'link')}" if campaign.links else ""
    gates = f", {count_of(len(campaign.gates), 'gate')}" if campaign.gates else ", no gates"
    clusters = ", ".join(campaign.clusters)
    network = f" over {', '.join(campaign.networks)}" if campaign.networks else ""
    return f"{tests}, each {count_of(campaign.repetition_count, 'time')}, on {clusters}{network}{links}{gates}"
