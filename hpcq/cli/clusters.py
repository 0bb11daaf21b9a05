"""`hpcq cluster`: list clusters, describe a new one, check what one has, build the kernels there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from hpcq.cli.options import Verbs, clusters_option, json_option
from hpcq.cli.output import Column, print_json, print_rows, print_words
from hpcq.errors import Exit, UserError

if TYPE_CHECKING:
    from hpcq.runner.site.new_cluster import Choice


@click.group(cls=Verbs)
def cluster() -> None:
    """List clusters, describe a new one, check what one of them has, build the kernels there."""


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


@cluster.command("new")
@click.argument("name", required=False)
@click.option("--ssh", "ssh_host", metavar="HOST", help="A login node, as after ssh. Default: this machine.")
@click.option(
    "--ssh-config",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="An ssh configuration file other than your own.",
)
@click.option(
    "--scheduler", metavar="KIND", help="Kind of scheduler, as in cluster files. Default: the one that answers there."
)
@click.option("--partition", metavar="NAME", help="Partition or queue of the jobs.")
@click.option("--account", metavar="NAME", help="Account to charge.")
@click.option("--interface", metavar="NAME", help="Network interface under test, such as ib0.")
@click.option("--work-directory", metavar="FOLDER", help="A folder there that login node and nodes share.")
@click.option("--module", "modules", multiple=True, metavar="NAME", help="A module that brings MPI; repeatable.")
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Where to write clusters/NAME.yaml and first-NAME.yaml. Default: here.",
)
def new(folder: Path, **given: Any) -> int:
    """Look at a cluster, write its file and a first campaign, and check it.

    It reads scheduler, partitions, accounts, shared folders and MPI where it runs, or on the login node --ssh names, and runs
    a job of one second to see the interfaces of a node. On a terminal it asks where several answers are possible; else it
    takes the first one and says so. It overwrites no file. The exit code is that of `cluster check`.

    \b
    Example: hpcq cluster new here --scheduler local
    """
    from hpcq.runner.site.new_cluster import Wishes, look_around, refuse_existing, write_files
    from hpcq.scheduler.kinds import describe

    wishes = Wishes(**given)
    if wishes.scheduler is not None:
        describe(wishes.scheduler)

    def paths(name: str) -> tuple[Path, Path]:
        return folder / "clusters" / f"{name}.yaml", folder / f"first-{name}.yaml"

    def free(name: str) -> None:
        for path in paths(name):
            refuse_existing(path)

    found = look_around(wishes, _ask, free)
    file, campaign = paths(found.name)
    write_files({file: found.cluster_text(), campaign: found.campaign_text()})
    print_words(f"{file}: {found.version}")
    print_words(f"{campaign}: a first campaign")
    outcome = _check(file, as_json=False)
    words = f"hpcq run {quote(str(campaign))}" if outcome == Exit.OK else f"change {file}, then hpcq cluster check {found.name}"
    print_words(f"next: {words}", err=True)
    return outcome


def _ask(what: str, option: str, choices: Sequence[Choice]) -> str:
    """Ask a person on a terminal; elsewhere take the first choice and say so. Raises UserError if there is none to take."""
    values = ", ".join(one.value for one in choices)
    if not sys.stdin.isatty():
        if not choices:
            raise UserError(f"{what}: hpcq cannot know it: {option} must say it")
        print_words(f"{what}: {choices[0].value}, of {values} ({option} names another)", err=True)
        return choices[0].value
    for one in choices:
        print_words(f"    {one.value:<16} {one.words}".rstrip(), err=True)
    return str(click.prompt(what, default=choices[0].value if choices else None, err=True))


@cluster.command()
@click.argument("name")
@clusters_option
@json_option
def check(name: str, cluster_folders: Sequence[Path], as_json: bool) -> int:
    """Check what a cluster has: access, scheduler, nodes, compilers, MPI, PMIx, work directory.

    For each thing that is missing it says what to do. It runs one job of one second on an idle node,
    and with an MPI or toolchains a short one on two nodes, which starts a small program with each.

    \b
    Example: hpcq cluster check local
    """
    from hpcq.definition.find import find_cluster

    return _check(find_cluster(name, None, cluster_folders), as_json=as_json)


def _check(path: Path, *, as_json: bool) -> int:
    from hpcq.definition.files.cluster import read_cluster
    from hpcq.runner.site.checking import check_cluster

    items = check_cluster(read_cluster(path))
    if as_json:
        print_json([one.to_json() for one in items])
    else:
        for one in items:
            mark = "ok  " if one.ok else "BAD "
            print_words(f"{mark} {one.item:<16} {one.found}")
            if one.advice:
                print_words(f"     {'':<16} -> {one.advice}")
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
    print_words(f"{made['host']}: {made['compiler_version']}")
    if made["mpi_version"]:
        print_words(f"{made['mpi_compiler']}: {made['mpi_version']}")
    for program, facts in made["programs"].items():
        kept = f"  kept since {made['built_utc'][:19]}Z" if program in made["kept"] else ""
        print_words(f"{made['root']}/bin/{program}  sha256 {facts['sha256'][:16]}  build {facts['build_id'][:16]}{kept}")
    return Exit.OK
