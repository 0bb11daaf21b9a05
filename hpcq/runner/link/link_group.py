"""Linked clusters under one driver: the links between them, each followed by its comparison within the clusters.

    groups     alpha - beta, gamma   ->   (alpha, beta), (gamma)
    drive      1  all pairs except the comparison: alpha and beta side by side, each by its own driver
               2  link after link, batch after batch of pairs; after each batch, the same nodes' pairs in their clusters
               3  what is left of the comparison

A cluster's pairs and a link never ask for the same node at once. One account covers what both use of a cluster, so
budgets hold for the whole run, and neither disturbs the other.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

from hpcq import units
from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.model import Link
from hpcq.errors import HpcqError, UserError
from hpcq.planning.links import LinkPlan, compared_pairs, plan_link, refuse_beyond_budget
from hpcq.run_folder.journal import Journal, read_journal
from hpcq.run_folder.paths import RunFolder, read_regular, write_text
from hpcq.runner import stages
from hpcq.runner.drive.driver import Driver
from hpcq.runner.link.driver import LinkDriver
from hpcq.runner.link.side import SIDES, LinkSide, LinkState
from hpcq.runner.queue.account import Account, Share
from hpcq.runner.queue.run_state import ClusterState, Record
from hpcq.runner.queue.yield_policy import RetryLater
from hpcq.runner.site.place import ClusterSite, place
from hpcq.runner.workflow import SIGN


def is_link(part: str) -> bool:
    """Whether a part of a run is a link."""
    return SIGN in part


def plan(run: RunFolder, name: str) -> LinkPlan:
    """Plan one link from the plans of its clusters."""
    link, campaign = _link(run, name), read_campaign(run.campaign_yaml)
    plans = (stages.read_plan(run, link.from_cluster), stages.read_plan(run, link.to_cluster))
    limits = {one.cluster: place(run, one.cluster).scheduler.job_limits() for one in plans}
    made = plan_link(campaign, link, plans, limits)
    for own in plans:
        cluster = campaign.narrowed(read_cluster(run.cluster_yaml(own.cluster)))
        refuse_beyond_budget(campaign, campaign.budget_on(cluster), made, own)
    write_text(run.plan(name), made.to_json())
    return made


def read_plan(run: RunFolder, name: str) -> LinkPlan:
    """Read the plan of one link of a run."""
    path = run.plan(name)
    return LinkPlan.from_json(read_regular(path).decode(), str(path))


def drive(run: RunFolder, part: str, say: stages.Say) -> dict[str, Any]:
    """Run one part of a run alone, a cluster's own pairs or a link, to its end. Returns the content of driven.json."""
    if not is_link(part):
        return stages.drive(run, part, say)
    link = _link(run, part)
    places = {name: place(run, name) for name in (link.from_cluster, link.to_cluster)}
    accounts = {name: stages.account_at(here) for name, here in places.items()}
    for other in run.parts():
        if other != part:
            book(run, other, accounts)
    with _opened(run, part, places, accounts, say) as driver:
        driver.drive()
        return driver.finish()


def submit_first(run: RunFolder, part: str, say: stages.Say) -> None:
    """Submit the first jobs of a part and leave. What needs a driver beside it waits for one."""
    if is_link(part):
        count = len(read_plan(run, part).plan.pairs)
        say(f"{part}: {count} pairs are submitted by hpcq resume: their two sides meet through the driver")
        return
    made, kept = stages.read_plan(run, part), _compared(run, part)
    if kept:
        say(f"{part}: {len(kept)} pairs are submitted by hpcq resume: they are compared with those of the link, beside it")
    stages.drive(run, part, say, only_submit=True, due=frozenset(range(len(made.pairs))) - kept)


def drive_group(run: RunFolder, names: Sequence[str], say: stages.Say) -> dict[str, Any]:
    """Run the clusters of a group and the links between them to their end. Skips parts that are done.

    A cluster that fails does not stop the others, but its links do not run. Raises the first failure at the end.
    """
    with contextlib.ExitStack() as stack:
        group = _Group(run, names, say, stack)
        group.play()
    for failed in group.failures.values():
        raise failed
    return {"format": 1, "ended_utc": units.utc_now(), "parts": list(names)}


_Driver = TypeVar("_Driver", Driver, LinkDriver)


class _Group:
    """The open drivers of linked clusters and of their links. `failures`: of those that could not continue."""

    def __init__(self, run: RunFolder, names: Sequence[str], say: stages.Say, stack: contextlib.ExitStack) -> None:
        self._run = run
        self._stack = stack
        self.failures: dict[str, BaseException] = {}
        self._closed: set[str] = set()
        places = {name: place(run, name) for name in names}
        self._accounts = {name: stages.account_at(here) for name, here in places.items()}
        self._clusters: dict[str, Driver] = {}
        self._links: dict[str, LinkDriver] = {}
        for name in names:
            self._open(name, stages.opened(run, places[name], self._accounts[name], say), self._clusters)
        for link in read_campaign(run.campaign_yaml).links:
            if link.from_cluster in names and not self._failed(link):
                self._open(link.name, _opened(run, link.name, places, self._accounts, say), self._links)
        self._compared = {name: _compared(run, name) for name in self._clusters}

    def play(self) -> None:
        """Run everything to its end. Closes what it can, even if something else failed."""
        for name, link in self._links.items():  # jobs that an earlier driver left running count until they have ended
            if link.state.open_tries and not self._failed(link.link):
                self._beside(link, self._batch(name, link))
        others = {name: self._pending(name) - compared for name, compared in self._compared.items()}
        self._side_by_side({name: due for name, due in others.items() if due or self._clusters[name].state.active})
        self._close_what_is_done()
        going = dict(self._links)
        while going:
            for name, link in list(going.items()):
                tried = [] if self._failed(link.link) else self._batch(name, link)
                if tried:
                    self._beside(link, tried)
                else:
                    del going[name]
                    self._close_what_is_done()
        self._side_by_side(dict.fromkeys(self._clusters))
        self._close_what_is_done()
        for account in self._accounts.values():
            if account.own_reservation is not None:
                account.own_reservation.drop(patiently=True)

    def _close_what_is_done(self) -> None:
        drivers: dict[str, Driver | LinkDriver] = {**self._clusters, **self._links}
        for name, driver in drivers.items():
            if name not in {*self.failures, *self._closed} and not driver.state.pending and not driver.state.active:
                self._closed.add(name)
                driver.finish()

    def _batch(self, name: str, link: LinkDriver) -> list[int]:
        try:
            return link.batch()
        except HpcqError as error:
            self.failures[name] = error
            return []

    def _beside(self, link: LinkDriver, tried: Sequence[int]) -> None:
        """Run the comparison with the pairs of a link that are just over: the same nodes within their clusters."""
        over = [index for index in tried if index not in link.state.pending]
        dues: dict[str, Collection[int]] = {}
        for side in SIDES:
            name = link.state.cluster_of(side)
            nodes = {link.state.node(index, side) for index in over}
            if name in self._clusters:
                pairs = self._clusters[name].state.plan.pairs
                due = {index for index in self._compared[name] & self._pending(name) if nodes & set(pairs[index])}
                dues |= {name: due} if due else {}
        self._side_by_side(dues)

    def _side_by_side(self, dues: Mapping[str, Collection[int] | None]) -> None:
        """Run these pairs of each cluster, all clusters at once."""
        wanted = {name: due for name, due in dues.items() if name not in self.failures}
        if not wanted:
            return
        with ThreadPoolExecutor(max_workers=len(wanted)) as pool:
            started = {name: pool.submit(self._clusters[name].drive, due) for name, due in wanted.items()}
        for name, future in started.items():
            failed = future.exception()
            if failed is not None:
                self.failures[name] = failed

    def _pending(self, name: str) -> frozenset[int]:
        return frozenset(self._clusters[name].state.pending)

    def _failed(self, link: Link) -> bool:
        return bool({link.from_cluster, link.to_cluster} & self.failures.keys())

    def _open(self, name: str, opening: AbstractContextManager[_Driver], drivers: dict[str, _Driver]) -> None:
        if (self._run.path / name / "driven.json").is_file():
            book(self._run, name, self._accounts)
            return
        try:
            drivers[name] = self._stack.enter_context(opening)
        except HpcqError as error:
            self.failures[name] = error


@contextlib.contextmanager
def _opened(
    run: RunFolder, name: str, places: Mapping[str, ClusterSite], accounts: Mapping[str, Account], say: stages.Say
) -> Iterator[LinkDriver]:
    """Open the driver of a link, with its journal. The account of each side's cluster includes what the link uses."""
    link_plan = read_plan(run, name)
    with Journal(run.journal(name)) as journal:
        record = Record(name, journal, LinkState.replay(link_plan, journal.events), say)
        journal.append("opened", host=socket.gethostname(), pid=os.getpid())
        sides = {side: record.state.cluster_of(side) for side in SIDES}
        _book_link(record.state, accounts)
        retry_later = RetryLater()
        ends = {
            side: LinkSide(side, places[cluster], accounts[cluster], record, retry_later) for side, cluster in sides.items()
        }
        yield LinkDriver(ends, record, retry_later)


def book(run: RunFolder, part: str, accounts: Mapping[str, Account]) -> None:
    """Add to these accounts what a part used that is done or that another driver drives."""
    if is_link(part):
        _book_link(LinkState.replay(read_plan(run, part), read_journal(run.journal(part))), accounts)
    elif part in accounts:
        state = ClusterState.replay(stages.read_plan(run, part), read_journal(run.journal(part)))
        accounts[part].shares.append(stages.share_of(state))


def _book_link(state: LinkState, accounts: Mapping[str, Account]) -> None:
    for side in SIDES:
        cluster = state.cluster_of(side)
        if cluster in accounts:
            spent, live = partial(state.node_seconds.__getitem__, side), partial(state.live_on, side)
            accounts[cluster].shares.append(Share(spent, live))


def _compared(run: RunFolder, cluster: str) -> frozenset[int]:
    """Return the pairs of a cluster that are the comparison of its links."""
    campaign = read_campaign(run.campaign_yaml)
    touching = [link.name for link in campaign.links if cluster in {link.from_cluster, link.to_cluster}]
    made = [read_plan(run, name) for name in touching if run.plan(name).is_file()]
    return compared_pairs(campaign, stages.read_plan(run, cluster), made) if touching else frozenset()


def _link(run: RunFolder, name: str) -> Link:
    links = {link.name: link for link in read_campaign(run.campaign_yaml).links}
    if name not in links:
        raise UserError(f"{run.run}: no link {name!r}: known are {', '.join(links) or 'none'}")
    return links[name]
