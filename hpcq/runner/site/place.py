"""Runs: their folders, and what these contain from the start.

open_run(campaign, clusters) -> runs/<run>/{run.json, campaign.yaml, clusters/, secret}
place(run, cluster)            -> everything about one cluster of it
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcq import __version__, units
from hpcq.definition.model import Campaign, Cluster, Toolchain, Trusted
from hpcq.errors import HpcqError, StoreError, UserError
from hpcq.own_folder import secure
from hpcq.run_folder.paths import RunFolder, open_regular, write_json
from hpcq.runner.site.build import state_folder, work_root
from hpcq.scheduler import kinds
from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.kinds import describe
from hpcq.scheduler.types import NodeState, SchedulerSettings
from hpcq.transport import Here, Ssh, Transport


@dataclass(frozen=True, slots=True)
class ClusterSite:
    """One cluster within a run: what it is, how to reach it, and where the run's folders are on both sides."""

    run: RunFolder
    campaign: Campaign
    cluster: Cluster
    transport: Transport
    scheduler: Scheduler
    #: The cluster's part of the run folder on this machine.
    folder: Path
    #: The counterpart of that folder on the cluster, an absolute path.
    root: str

    def secure(self) -> None:
        """Check that nobody else can change what this part of the run runs on the cluster. `place` checked the run's folder.

        Raises HpcqError that names the folder at fault.
        """
        secure(self.transport, self.cluster.name, [self.root], self.cluster.trusted)


def check_definitions(campaign_path: Path, cluster_folders: Sequence[Path]) -> tuple[Campaign, dict[str, Path]]:
    """Read a campaign and all its clusters. If one of them cannot be used, nothing has happened yet."""
    from hpcq.definition.files.campaign import read_campaign
    from hpcq.definition.files.cluster import read_cluster
    from hpcq.definition.find import find_cluster

    campaign = read_campaign(campaign_path)
    paths = {name: find_cluster(name, campaign_path, cluster_folders) for name in campaign.clusters}
    needs_mpi = any(test.needs_mpi and not test.toolchain for test in campaign.tests)
    for name, path in paths.items():
        cluster = campaign.narrowed(read_cluster(path))
        if needs_mpi and cluster.mpi is None:
            raise UserError(
                f"{path}: mpi: not given, but {campaign_path} has MPI tests",
                f"say how {name} starts MPI programs, for example {kinds.mpi_example(cluster.scheduler)}",
            )
    return campaign, paths


def check_runs_folder(folder: Path) -> None:
    """Raise StoreError if run folders cannot be made below `folder`, which need not exist yet. Writes nothing."""
    nearest = folder.absolute()
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK, effective_ids=True)):
        raise StoreError(f"{folder}: {nearest} cannot be written: a folder for run folders is needed", "--runs names another")


def open_run(
    campaign_path: Path,
    cluster_folders: Sequence[Path],
    database: Path,
    runs_folder: Path,
    run_folder: Path | None = None,
    *,
    confirm: bool = False,
) -> RunFolder:
    """Make a run's folder with all that it needs. Its name is the run's, unless `run_folder` says otherwise.

    confirm: suspects are measured again in the same run. Raises StoreError if it cannot be written, UserError if something is
    already there.
    """
    campaign, paths = check_definitions(campaign_path, cluster_folders)
    moment = dt.datetime.now(dt.UTC)
    run_name = f"{campaign.name}-{moment:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    run = RunFolder((run_folder or runs_folder / run_name).absolute())
    aside = run.path.with_name(f".{run.path.name}.part")
    try:
        aside.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        aside.mkdir(mode=0o700)
        _refuse_above(aside, paths.values())
        (aside / "clusters").mkdir()
        shutil.copyfile(campaign_path, aside / "campaign.yaml")
        for beside in campaign.pairs.files:
            (aside / beside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(campaign_path.parent / beside, aside / beside)
        copy_descriptions(campaign, aside)
        for name, path in paths.items():
            shutil.copyfile(path, aside / "clusters" / f"{name}.yaml")
        descriptor = os.open(aside / "secret", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32) + "\n")
        write_json(
            aside / "run.json",
            {
                "format": 1,
                "run": run_name,
                "campaign": campaign.name,
                "clusters": list(campaign.clusters),
                "links": [{"name": one.name, "from": one.from_cluster, "to": one.to_cluster} for one in campaign.links],
                "seed": campaign.seed_of(run_name),
                "created_utc": units.utc_text(moment),
                "hpcq_version": __version__,
                "database": str(database.absolute()),
                "confirm": confirm,
            },
        )
        if run.path.is_dir() and not any(run.path.iterdir()):
            run.path.rmdir()
        aside.rename(run.path)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        taken = error.errno in {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}
        raise (UserError if taken else StoreError)(
            f"{run.path}: cannot be made: {error.strerror}", "--runs names another folder"
        ) from error
    return run


def _refuse_above(folder: Path, cluster_files: Iterable[Path]) -> None:
    """Remove a new folder and raise HpcqError if others could put another one in its place while it is filled."""
    from hpcq.definition.files.cluster import read_cluster

    found = [read_cluster(path).trusted for path in cluster_files]
    users, groups = {name for one in found for name in one.users}, {name for one in found for name in one.groups}
    try:
        secure(Here(), "", [str(folder)], Trusted(tuple(sorted(users)), tuple(sorted(groups))))
    except HpcqError:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise


def copy_descriptions(campaign: Campaign, folder: Path) -> None:
    """Copy the descriptions of the foreign programs that a campaign runs, to where hpcq looks beside a campaign in `folder`."""
    for name in sorted({test.kernel for test in campaign.tests}):
        described = campaign.kernels[name].described
        if described is not None:
            (folder / "kernels").mkdir(exist_ok=True)
            shutil.copyfile(described.path, folder / "kernels" / f"{name}.yaml")


def refuse_others(run: RunFolder) -> None:
    """Raise HpcqError unless a run's folder is this user's alone: who goes on with a run, or ends it, does what its files say.

    Where it lies, its own cluster files say whom to trust; a folder of somebody else is refused whatever they say.
    """
    from hpcq.definition.checking import parse_document

    named: dict[str, set[str]] = {"trusted_users": set(), "trusted_groups": set()}
    for path in sorted((run.path / "clusters").glob("*.yaml")):
        with contextlib.suppress(HpcqError, OSError), open_regular(path) as file:
            if os.fstat(file.fileno()).st_uid == os.geteuid():  # what lies there may be somebody else's, and say whom to trust
                said = parse_document(file.read().decode("utf-8", errors="replace"), str(path)).data
                for key, names in named.items():
                    names.update(map(str, one if isinstance(one := said.get(key), list) else ()))
    trusted = Trusted(*(tuple(sorted(names)) for names in named.values()))
    try:
        secure(Here(), "", [str(run.path)], trusted)
    except HpcqError as error:
        raise type(error)(
            error.message,
            f"a run is resumed and cancelled by the user who started it, where nobody else can change its folder: {error.hint}",
        ) from None


def place(run: RunFolder, cluster_name: str) -> ClusterSite:
    """Return everything about one cluster of a run, from the run's own copies. Raises HpcqError if others can change them."""
    # Importing the YAML reader takes longer than all other work of loading and reporting, which need no definition.
    from hpcq.definition.files.campaign import read_campaign
    from hpcq.definition.files.cluster import read_cluster

    refuse_others(run)
    campaign = read_campaign(run.campaign_yaml)
    cluster = campaign.narrowed(read_cluster(run.cluster_yaml(cluster_name)))
    transport = reach(cluster)
    folder = run.path / cluster_name
    # A cluster that is this machine and has no work directory works within the run folder.
    work = work_root(cluster, run.run) if cluster.work_directory is not None else str(folder / "work")
    own = run.reservation_name(cluster_name) if cluster.make_reservation else None
    return ClusterSite(run, campaign, cluster, transport, scheduler_of(cluster, transport, own_reservation=own), folder, work)


def nodes_now(scheduler: Scheduler) -> list[NodeState]:
    """Return the present nodes with their switches and fabrics."""
    states, known = scheduler.nodes(), scheduler.topology()
    return [replace(one, switch=known.leaves.get(one.node), fabric=known.fabrics.get(one.node)) for one in states]


def reach(cluster: Cluster) -> Transport:
    """Return the transport to a cluster, for commands of its own scheduler."""
    environment = kinds.commands_environment(cluster.scheduler, cluster.instance)
    if cluster.connection.ssh_host is None:
        return Here(environment)
    config = cluster.connection.ssh_config
    return Ssh(cluster.connection.ssh_host, Path(config).expanduser() if config else None, environment)


def scheduler_of(cluster: Cluster, transport: Transport, *, own_reservation: str | None = None) -> Scheduler:
    """Return the batch system of a cluster. own_reservation: the name of one that the run itself makes."""
    if describe(cluster.scheduler).here_only:
        secure(Here(), "", [local_queue(cluster)], cluster.trusted)
    return kinds.make(
        cluster.scheduler,
        transport,
        SchedulerSettings(
            partition=cluster.partition,
            account=cluster.account,
            qos=cluster.qos,
            reservation=own_reservation or cluster.reservation,
            own_reservation=own_reservation is not None,
            others_period_s=cluster.poll_interval_s,
            extra=cluster.extra,
            nodes=cluster.nodes,
            queue_folder=local_queue(cluster),
        ),
    )


def local_queue(cluster: Cluster) -> str:
    """Return the folder of the embedded scheduler's queue.

    There is one per user and cluster, so that two runs share its nodes in turn.
    """
    return str(state_folder() / f"queue-{cluster.name}")


# ----------------------------------------------------------------------------------------------------------------------


#: How long the server may take to start listening: enough for a slow file system and a slow step start.
_READY_TIMEOUT_S = 60
#: Launcher options that give the number of processes, which is two in a line written for a pair.
_COUNT_FLAGS = {"-n", "-np", "--np", "--n", "--ntasks", "-c"}


def site_context(cluster: Cluster, root: str) -> dict[str, Any]:
    """Return what a script's head and body need of a cluster. The caller adds the job and its folder."""
    return {
        "root": root,
        "programs": None,
        "interface": cluster.interface,
        "ports": str(cluster.ports) if cluster.ports else None,
        "ready_timeout_s": _READY_TIMEOUT_S,
        "modules": cluster.modules,
        "environment": cluster.environment,
        "directives": _directives(cluster),
        "extra": cluster.extra,
        "extra_directives": cluster.extra_directives,
        "start_within_s": cluster.start_within_s,
        "launcher": cluster.launcher,
        "mpi_launch": counted(cluster.mpi.launch) if cluster.mpi else ("false",),
        "toolchains": {},
    }


def launches(toolchains: Mapping[str, Toolchain]) -> dict[str, dict[str, Any]]:
    """Return what a script needs of each toolchain, by name."""
    return {
        name: {"launch": counted(one.mpi.launch), "modules": one.modules, "environment": one.environment}
        for name, one in toolchains.items()
    }


def counted(launch: Sequence[str]) -> tuple[str, ...]:
    """Adapt a launcher line for a pair (`-np 2`) to as many ranks as there are nodes at run time."""
    words = list(launch)
    for place, word in enumerate(words[:-1]):
        if word in _COUNT_FLAGS and words[place + 1] == "2":
            words[place + 1] = "{count}"
    return tuple(words)


def _directives(cluster: Cluster) -> dict[str, str]:
    named = {
        "partition": cluster.partition,
        "account": cluster.account,
        "qos": cluster.qos,
        "reservation": cluster.reservation,
        "constraint": cluster.constraint,
    }
    return {name: value for name, value in named.items() if value}
