"""The stages of a run, one function each. The workflow calls them through `hpcq stage`, in the order of their files.

open -> run.json    build -> build.json    plan -> plan.json
drive -> driven.json    load -> loaded.json    report -> report.html
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcq.clock import Clock
from hpcq.definition.model import Campaign, Cluster
from hpcq.errors import HpcqError, SchedulerError
from hpcq.kernels import Kernels
from hpcq.planning.allocations import Basis
from hpcq.planning.links import plan_cluster, plan_link, refuse_beyond_budget
from hpcq.planning.plan import Plan
from hpcq.run_folder.journal import Journal
from hpcq.run_folder.paths import RunFolder, read_regular, write_text
from hpcq.runner.drive.driver import Driver
from hpcq.runner.queue.account import Account, Limit, Pace, Share, SharedAccount
from hpcq.runner.queue.cluster_queue import ClusterQueue
from hpcq.runner.queue.reservations import OwnReservation, refuse_where_forbidden
from hpcq.runner.queue.run_state import ClusterState, Record, summary
from hpcq.runner.site.build import account_folder, build_toolchains, build_what_can, check_description, write_build
from hpcq.runner.site.checking import clean_by_age
from hpcq.runner.site.place import ClusterSite, check_definitions, nodes_now, place, reach, scheduler_of
from hpcq.scheduler.base import JobLimits

Say = Callable[[str], None]


def build(run: RunFolder, cluster_name: str, say: Say = lambda _: None) -> dict[str, Any]:
    """Build the kernels that the campaign needs on one cluster, and copy the secret there.

    It also removes old run folders there if the cluster file says so.
    """
    here = place(run, cluster_name)
    here.secure()
    refuse_where_forbidden(here.cluster, here.scheduler)
    here.folder.mkdir(parents=True, exist_ok=True)
    programs = {test.program for test in here.campaign.tests if not test.toolchain}
    # Without a program of the cluster's own compiler, hpcq-net describes the nodes.
    made = build_what_can(here.cluster, here.transport, here.root, programs or {"hpcq-net"}, here.campaign)
    check_description(made)
    if "failed" in made:
        say(f"{cluster_name}: {made['failed']}; tests of MPI are rows with this reason, the others run")
    names = here.campaign.toolchains
    made["toolchains"] = build_toolchains(here.cluster, here.transport, here.root, names, alone=not programs)
    for one in made["toolchains"].values():
        if "failed" in one:
            say(f"{cluster_name}: {one['failed']}; its tests are rows with this reason, the others run")
    here.transport.push(run.path, here.root, ["secret"])
    write_build(made, run.build(cluster_name))
    cleaned = clean_by_age(here.cluster, here.scheduler, run.path.parent)
    if cleaned:
        say(f"{cluster_name}: {cleaned}")
    return made


#: A controller that is away for a moment, as while another one takes over, costs no run: the pauses before asking again.
AWAY_PAUSES_S = (5.0, 15.0, 40.0)


def plan(run: RunFolder, cluster_name: str, say: Say = lambda _: None) -> Plan:
    """Plan one cluster. It asks for the node list once; the rest is pure."""
    here = place(run, cluster_name)
    for pause_s in AWAY_PAUSES_S:
        try:
            made = plan_at(here)
            break
        except SchedulerError as error:
            if not any(words in error.message for words in here.scheduler.away_words()):
                raise
            say(f"{cluster_name}: {error.message}: asks again in {pause_s:g} s")
            time.sleep(pause_s)
    else:
        made = plan_at(here)
    write_text(run.plan(cluster_name), made.to_json())
    return made


def read_plan(run: RunFolder, cluster_name: str) -> Plan:
    """Read the plan of one cluster of a run."""
    path = run.plan(cluster_name)
    return Plan.from_json(read_regular(path).decode(), str(path))


def plan_at(here: ClusterSite) -> Plan:
    """Return the plan of one cluster without writing it."""
    seed = int(here.run.described_run()["seed"])
    nodes, limits = nodes_now(here.scheduler), here.scheduler.job_limits()
    return plan_cluster(here.campaign, Basis(here.cluster, nodes, here.run.run, seed, limits))


def drive(
    run: RunFolder, cluster_name: str, say: Say, *, only_submit: bool = False, due: Collection[int] | None = None
) -> dict[str, Any]:
    """Run one cluster's plan, or the due part of it, to its end. Returns the content of driven.json."""
    here = place(run, cluster_name)
    with opened(run, here, account_at(here), say) as driver:
        driver.drive(due, only_submit=only_submit)
        return summary(driver.state) if driver.state.active or driver.state.pending else driver.finish()


def account_at(here: ClusterSite, clock: Clock | None = None) -> Account:
    """Return an empty account of what the run may take of a cluster."""
    clock = clock or Clock()
    folder, cluster = account_folder(here.cluster), here.cluster
    shared = SharedAccount(here.transport, folder, here.run.run, cluster.budget, clock, trusted=cluster.trusted)
    budget = here.campaign.budget_on(here.cluster)
    return Account(budget, Pace.of(here.cluster, clock), Limit(here.scheduler, clock), shared)


def share_of(state: ClusterState) -> Share:
    """Return what a cluster's own pairs take of it."""
    return Share(lambda: state.node_seconds, lambda: list(state.active.values()))


@contextlib.contextmanager
def opened(run: RunFolder, here: ClusterSite, account: Account, say: Say) -> Iterator[Driver]:
    """Open the driver of a cluster's own pairs, with its journal. The account includes what it takes."""
    name = here.cluster.name
    here.secure()
    planned = read_plan(run, name)
    with Journal(run.journal(name)) as journal:
        state = ClusterState.replay(planned, journal.events)
        journal.append("opened", host=socket.gethostname(), pid=os.getpid())
        account.shares.append(share_of(state))
        account.own_reservation = _own_reservation(here, planned, say, account.clock)
        record = Record(name, journal, state, say)
        queue = ClusterQueue(here, account, record, folder=here.folder, root=here.root)
        yield Driver(record, queue)


def _own_reservation(here: ClusterSite, planned: Plan, say: Say, clock: Clock) -> OwnReservation | None:
    """Return the reservation that this part of the run makes, or that an earlier driver of it left."""
    wish = here.cluster.make_reservation
    if wish is None:
        return None
    name = here.run.reservation_name(here.cluster.name)
    tell = lambda text: say(f"{here.cluster.name}: {text}")  # noqa: E731 - one line for a person
    own_reservation = OwnReservation(here.scheduler, name, planned.walltime_s, wish, say=tell, clock=clock)
    own_reservation.adopt([candidate.node for candidate in planned.candidates])
    return own_reservation


def load(run: RunFolder, database: Path) -> dict[str, Any]:
    """Load the results that exist of all clusters of a run into the database. You may repeat it at any time."""
    from hpcq.evidence.judge import judge
    from hpcq.store.load.cluster import load_run

    return load_run(database, run.path, judge=judge).to_json()


def report(run: RunFolder, database: Path) -> Path:
    """Write the run's HTML page."""
    from hpcq.reports import write_report

    write_report(database, run.run, run.report)
    return run.report


# ----------------------------------------------------------------------------------------------------------------------
# `hpcq plan`: the plans of a campaign, made from the present nodes and not written.


@dataclass(frozen=True, slots=True)
class Preview:
    """Plans of clusters and links, and the kernels of their tests; failures: why a cluster or a link has none."""

    kernels: Kernels
    plans: list[Plan] = field(default_factory=list)
    failures: list[HpcqError] = field(default_factory=list)


def preview(campaign_path: Path, cluster_folders: Sequence[Path]) -> Preview:
    """Plan every cluster and link. One that cannot be reached or planned does not keep the others from it.

    Raises UserError for bad files: then nothing can be planned.
    """
    from hpcq.definition.files.cluster import read_cluster

    campaign, paths = check_definitions(campaign_path, cluster_folders)
    found = Preview(campaign.kernels)
    limits: dict[str, JobLimits] = {}
    clusters = {name: campaign.narrowed(read_cluster(path)) for name, path in paths.items()}
    for cluster in clusters.values():
        try:
            plan, limits[cluster.name] = _plan(campaign, cluster)
            found.plans.append(plan)
        except HpcqError as error:
            found.failures.append(error)
    made = {plan.cluster: plan for plan in found.plans}
    for link in campaign.links:
        names = (link.from_cluster, link.to_cluster)
        if not set(names) <= set(made):
            lost = ", ".join(name for name in names if name not in made)
            found.failures.append(
                HpcqError(f"{link.name}: not planned, because {lost} is not", "see the error of that cluster")
            )
            continue
        try:
            linked = plan_link(campaign, link, (made[names[0]], made[names[1]]), {name: limits[name] for name in names})
            for name in names:
                refuse_beyond_budget(campaign, campaign.budget_on(clusters[name]), linked, made[name])
            found.plans.append(linked.plan)
        except HpcqError as error:
            found.failures.append(error)
    return found


def _plan(campaign: Campaign, cluster: Cluster) -> tuple[Plan, JobLimits]:
    scheduler = scheduler_of(cluster, reach(cluster))
    refuse_where_forbidden(cluster, scheduler)
    nodes = nodes_now(scheduler)
    limits = scheduler.job_limits()
    return plan_cluster(campaign, Basis(cluster, nodes, "preview", campaign.seed_of("preview"), limits)), limits
