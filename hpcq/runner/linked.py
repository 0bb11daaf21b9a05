"""Linked clusters under one driver: what their own pairs and the links between them need of each other is order.

    groups     alpha - beta, gamma   ->   (alpha, beta), (gamma)
    drive      alpha and beta side by side, each by its own driver; then link after link

A node is never asked for by a cluster's pairs and by a link at once, so budgets hold and neither disturbs the other.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hpcq import units
from hpcq.definition.campaign import read_campaign
from hpcq.definition.model import Link
from hpcq.errors import HpcqError, UserError
from hpcq.links import LinkPlan, plan_link
from hpcq.runner import stages
from hpcq.runner.link_drive import LinkDriver
from hpcq.runner.link_ledger import SIDES, LinkLedger, summary
from hpcq.runner.link_side import LinkSide
from hpcq.runner.runs import place
from hpcq.runner.workflow import SIGN
from hpcq.store.journal import Journal
from hpcq.store.runfolder import RunFolder, write_json, write_text


def is_link(part: str) -> bool:
    """Whether a part of a run is a link."""
    return SIGN in part


def plan(run: RunFolder, name: str) -> LinkPlan:
    """Plan one link from the plans of its clusters."""
    link = _link(run, name)
    plans = (stages.read_plan(run, link.from_cluster), stages.read_plan(run, link.to_cluster))
    made = plan_link(read_campaign(run.campaign_yaml), link, plans)
    write_text(run.plan(name), made.to_json())
    return made


def read_plan(run: RunFolder, name: str) -> LinkPlan:
    """The plan of one link of a run, as it was written."""
    path = run.plan(name)
    return LinkPlan.from_json(path.read_text(encoding="utf-8"), str(path))


def drive_group(run: RunFolder, names: Sequence[str], say: stages.Say) -> dict[str, Any]:
    """Run the clusters of a group and the links between them to their end; what is done already is left alone.

    A cluster that fails does not stop the others; its links are not run. Raises the first failure when all else is done.
    """
    with ThreadPoolExecutor(max_workers=len(names)) as pool:
        started = {name: pool.submit(_drive_part, run, name, say) for name in names}
    failures: dict[str, BaseException] = {}
    for name, future in started.items():
        failed = future.exception()
        if failed is not None:
            failures[name] = failed
    for link in read_campaign(run.campaign_yaml).links:
        if link.from_cluster in names and not {link.from_cluster, link.to_cluster} & failures.keys():
            try:
                _drive_part(run, link.name, say)
            except HpcqError as error:
                failures[link.name] = error
    for failed in failures.values():
        raise failed
    return {"format": 1, "ended_utc": units.utc_now(), "parts": list(names)}


def _drive_part(run: RunFolder, name: str, say: stages.Say) -> None:
    if not (run.path / name / "driven.json").is_file():
        drive(run, name, say)


def drive(run: RunFolder, part: str, say: stages.Say) -> dict[str, Any]:
    """Run one part of a run, a cluster's own pairs or a link, to its end; returns what driven.json says."""
    return _drive_link(run, part, say) if is_link(part) else stages.drive(run, part, say)


def _drive_link(run: RunFolder, name: str, say: stages.Say) -> dict[str, Any]:
    link_plan = read_plan(run, name)
    link, started = link_plan.link, time.monotonic()
    sides: dict[str, LinkSide] = {}
    for side, cluster in zip(SIDES, (link.from_cluster, link.to_cluster), strict=True):
        here = place(run, cluster)
        sides[side] = LinkSide(side, here, here.campaign.budget_on(here.cluster), name)
    with Journal(run.journal(name)) as journal:
        ledger = LinkLedger.replay(link_plan, journal.events)
        journal.append("opened", host=socket.gethostname(), pid=os.getpid())
        LinkDriver(sides, journal, ledger, say).drive()
        journal.append("closed")
    driven = {
        "format": 1,
        "ended_utc": units.utc_now(),
        "wall_s": round(time.monotonic() - started, 3),
        "scheduler_query_count": {side.cluster.name: side.scheduler.query_count for side in sides.values()},
        **summary(ledger),
    }
    write_json(run.path / name / "driven.json", driven)
    return driven


def _link(run: RunFolder, name: str) -> Link:
    links = {link.name: link for link in read_campaign(run.campaign_yaml).links}
    if name not in links:
        raise UserError(f"{run.run_id}: no link {name!r}: known are {', '.join(links) or 'none'}")
    return links[name]
