"""`hpcq cluster`: list clusters, check what one has, build the kernels there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from hpcq.cli.options import Verbs, clusters_option, json_option
from hpcq.cli.output import Column, print_json, print_rows
from hpcq.errors import Exit


@click.group(cls=Verbs)
def cluster() -> None:
    """List clusters, check what one of them has, build the kernels there."""


@cluster.command("list")
@clusters_option
@json_option
def list_clusters(cluster_folders: Sequence[Path], as_json: bool) -> int:
    """List the cluster files that a campaign may name.

    \b
    Example: hpcq cluster list
    """
    from hpcq.definition.find import list_clusters as find_all

    found = find_all(None, cluster_folders)
    rows = [{"cluster": name, "file": str(path)} for name, path in found.items()]
    print_rows(rows, (Column("cluster"), Column("file", wrap=True)), as_json=as_json, empty="no cluster file")
    return Exit.OK


@cluster.command()
@click.argument("name")
@clusters_option
@json_option
def check(name: str, cluster_folders: Sequence[Path], as_json: bool) -> int:
    """Check what a cluster has: reach, scheduler, nodes, compilers, MPI, PMIx, work directory.

    For each thing that is missing it says what to do. It runs one job of one second on an idle node.

    \b
    Example: hpcq cluster check local
    """
    from hpcq.definition.files.cluster import read_cluster
    from hpcq.definition.find import find_cluster
    from hpcq.runner.site.checking import check_cluster

    items = check_cluster(read_cluster(find_cluster(name, None, cluster_folders)))
    if as_json:
        print_json([one.to_json() for one in items])
    else:
        for one in items:
            mark = "ok  " if one.ok else "BAD "
            click.echo(f"{mark} {one.item:<16} {one.found}")
            if one.advice:
                click.echo(f"     {'':<16} -> {one.advice}")
    return Exit.OK if all(one.ok for one in items) else Exit.ERROR


@cluster.command()
@click.argument("name", metavar="CLUSTER")
@clusters_option
@json_option
def build(name: str, cluster_folders: Sequence[Path], as_json: bool) -> int:
    """Build the kernels on a cluster, as every run does first.

    \b
    Example: hpcq cluster build local
    """
    from hpcq.definition.files.cluster import read_cluster
    from hpcq.definition.find import find_cluster
    from hpcq.runner.site.build import build_kernels, check_description, work_root
    from hpcq.runner.site.place import reach

    found = read_cluster(find_cluster(name, None, cluster_folders))
    programs = {"hpcq-net", *(["hpcq-mpi"] if found.mpi else [])}
    made = build_kernels(found, reach(found), work_root(found, "build"), programs)
    check_description(made)
    for facts in made["programs"].values():
        facts.pop("kernels")
    if as_json:
        print_json(made)
        return Exit.OK
    click.echo(f"{made['host']}: {made['compiler_version']}")
    if made["mpi_version"]:
        click.echo(f"{made['mpi_compiler']}: {made['mpi_version']}")
    for program, facts in made["programs"].items():
        kept = f"  kept since {made['built_utc'][:19]}Z" if program in made["kept"] else ""
        click.echo(f"{made['root']}/bin/{program}  sha256 {facts['sha256'][:16]}  build {facts['build_id'][:16]}{kept}")
    return Exit.OK
