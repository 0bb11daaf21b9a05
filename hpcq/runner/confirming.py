"""Confirmed the same night: the stage that measures the suspects of a run again, in this run.

    loaded -> who is suspected? -> plan.json with their pairs behind its own -> drive -> load -> confirmed.json

A kill in the middle loses nothing: the plan and the journal say how far it came. The jobs are paid from the budget of the
campaign, after those of the plan.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcq.planning.plan import Plan
from hpcq.run_folder.journal import Journal, fold, read_journal
from hpcq.run_folder.paths import RunFolder, write_json, write_text
from hpcq.runner import stages
from hpcq.runner.link.link_group import book
from hpcq.runner.site.place import place
from hpcq.store.database import reading
from hpcq.units import count_of, utc_now

#: How long the jobs of suspects wait for nodes. The night is short, and a suspicion keeps until tomorrow.
CONFIRM_WAIT_S = 900.0


def confirm(run: RunFolder, cluster_name: str, database: Path, say: stages.Say) -> dict[str, Any]:
    """Measure the suspected nodes, links and groups of one cluster again. Returns the content of confirmed.json.

    Nothing is measured where nobody is suspected, where the run was cancelled, or where the budget is used up.
    """
    planned = stages.read_plan(run, cluster_name)
    before = fold(read_journal(run.journal(cluster_name)))
    if not planned.confirmation_count and not before.suspected_utc and not before.cancelled:
        planned = _with_suspects(run, cluster_name, planned, database)
    if not before.suspected_utc:
        with Journal(run.journal(cluster_name)) as journal:
            journal.append("suspected", pair_count=planned.confirmation_count)
    if planned.confirmation_count:
        jobs = count_of(planned.confirmation_count, "job")
        pairs = sorted({" > ".join(pair) for pair in planned.pairs[planned.confirmations_begin :]})
        say(f"{cluster_name}: suspects are measured again now: {jobs} of {', '.join(pairs)}")
        _measure(run, cluster_name, planned, say)
    else:
        why = "the run was cancelled" if before.cancelled else "nothing is suspected, or the budget has no job for it"
        say(f"{cluster_name}: {why}: nothing is measured again")
    write_json(run.path / cluster_name / "loaded.json", stages.load(run, database))
    return {"format": 1, "ended_utc": utc_now(), "job_count": planned.confirmation_count}


def _with_suspects(run: RunFolder, cluster_name: str, planned: Plan, database: Path) -> Plan:
    """Look for suspects, and write their pairs into the plan if there are any."""
    from hpcq.analysis.standing import second_measurements

    here = place(run, cluster_name)
    with reading(database) as connection:
        jobs_at_most = here.campaign.budget_on(here.cluster).max_confirmation_jobs
        found = second_measurements(connection, cluster_name, run.run, jobs_at_most)
    most = max((one.job_count for one in found), default=0)
    pairs = [(one.client, one.server) for number in range(most) for one in found if number < one.job_count]
    if not pairs:
        return planned
    planned = planned.confirming(pairs)
    write_text(run.plan(cluster_name), planned.to_json())
    return planned


def _measure(run: RunFolder, cluster_name: str, planned: Plan, say: stages.Say) -> None:
    """Drive the pairs of suspects to their end. Writes driven.json, newer than the plan: nothing of the run is due again."""
    here = place(run, cluster_name)
    wait_s = min(here.cluster.max_wait_s, CONFIRM_WAIT_S)
    here = replace(here, cluster=replace(here.cluster, max_wait_s=wait_s))
    account = stages.account_at(here)
    for part in run.parts():
        if part != cluster_name:
            book(run, part, {cluster_name: account})
    with stages.opened(run, here, account, say) as driver:
        driver.drive(range(planned.confirmations_begin, len(planned.pairs)), patience_s=wait_s)
        driver.finish()
