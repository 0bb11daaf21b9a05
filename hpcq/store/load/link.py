"""Load a link's part of a run. It works as for a cluster, but an attempt has two jobs, with nodes of two clusters.

    journal: attempts of both sides --one per attempt_no--> attempt        and each side by itself --> link_end
    <link>/jobs/<job>/<attempt>/{from,to}/                                 results lie on the client's side

The plan says which side should be the client. The journal says which side was, if only the other direction was open.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from hpcq.planning.job_ids import job_id_of
from hpcq.planning.links import split
from hpcq.run_folder.journal import EventName, read_journal
from hpcq.run_folder.journal_state import Attempt, JournalState, fold
from hpcq.run_folder.lines import utc_or_none, whole
from hpcq.run_folder.paths import read_json_or_none
from hpcq.store.load import missing
from hpcq.store.load.builds import Builds
from hpcq.store.load.cluster import ClusterLoader
from hpcq.store.load.plan_rows import JobKeys

_SIDES = ("from", "to")
#: An attempt of a job: job_id, attempt_no.
_Key = tuple[str, int]


class LinkLoader(ClusterLoader):
    """Loads one link once; create a new loader for each load."""

    # -- journal ----------------------------------------------------------------------------------------------------

    def _state(self, plan: dict[str, Any]) -> JournalState:
        """Combine both sides into one attempt each. Swap the plan's pairs where the other side was the client."""
        self._link: Mapping[str, Any] = plan["link"]
        events = read_journal(self._folder.journal(self.cluster))
        state = fold(events)
        self._ends: dict[_Key, dict[str, Attempt]] = {}
        for attempt in state.attempts.values():
            self._ends.setdefault((attempt.job_id, attempt.attempt_no), {})[attempt.side] = attempt
        self._told: dict[str, dict[_Key, Mapping[str, Any]]] = {}
        for event in events:
            if event["event"] in {EventName.ESTIMATE, EventName.MET, EventName.WAYS}:
                self._told.setdefault(event["event"], {})[event["job_id"], event["attempt_no"]] = event
        self._turn(plan)
        self._tries = [self._whole(ends) for ends in self._ends.values()]
        return state

    def _turn(self, plan: dict[str, Any]) -> None:
        self._clients: dict[str, str] = {}
        for (job_id, _), event in self._told.get(EventName.WAYS, {}).items():
            if event["client"] is not None:
                self._clients[job_id] = event["client"]
        pairs = []
        for index, (client, server) in enumerate(plan["pairs"]):
            planned = self._side_of(client)
            turned = self._clients.setdefault(job_id_of(index), planned) != planned
            pairs.append([server, client] if turned else [client, server])
        plan["pairs"] = pairs

    def _whole(self, ends: Mapping[str, Attempt]) -> Attempt:
        """Combine the two sides of one attempt. It ends as the side did that caused the end."""
        sides = sorted(ends.values(), key=lambda one: (one.follows, one.outcome == "completed"))
        cause = sides[0]
        over = not any(one.live for one in sides)
        started = [one.started_utc for one in sides if one.started_utc]
        where = self._link[f"{cause.side}_cluster"]
        return Attempt(
            tag=cause.tag.removesuffix(f"-{cause.side}"),
            job_id=cause.job_id,
            attempt_no=cause.attempt_no,
            pairs=cause.pairs,
            nodes=tuple(node for side in _SIDES if side in ends for node in ends[side].nodes),
            committed_utc=min(one.committed_utc for one in sides),
            native_id=" ".join(f"{one.side}:{one.native_id}" for one in ends.values() if one.native_id),
            submitted_utc=cause.submitted_utc,
            state=cause.state,
            outcome=cause.outcome if over else "",
            reason=f"{where}/{cause.nodes[0]}: {cause.reason}" if cause.reason and cause.outcome != "completed" else "",
            exit_code=cause.exit_code,
            started_utc=min(started) if started else None,
            ended_utc=max((one.ended_utc or "" for one in sides), default="") or None if over else None,
        )

    # -- rows -------------------------------------------------------------------------------------------------------

    def _heads(self, plan: Mapping[str, Any], state: JournalState) -> None:
        super()._heads(plan, state)
        ends = {f"{side}_cluster_id": self._cluster_ids[self._link[f"{side}_cluster"]] for side in _SIDES}
        self._database.execute(
            "INSERT OR IGNORE INTO link (cluster_id, from_cluster_id, to_cluster_id) VALUES (?, ?, ?)",
            (self._cluster_id, *ends.values()),
        )

    def _jobs(self, plan: Mapping[str, Any]) -> dict[str, JobKeys]:
        """As for a cluster. Corrects a job that was loaded before its client was known."""
        jobs = super()._jobs(plan)
        for job in jobs.values():
            changed = self._database.execute(
                "UPDATE job SET client_node_id = ?1, server_node_id = ?2 WHERE job_id = ?3 AND client_node_id <> ?1",
                (job.client_node_id, job.server_node_id, job.job_id),
            )
            if changed.rowcount:
                for (job_id, _, _), row in missing.placeholders(self._database, self.run_cluster_id).items():
                    if job_id == job.job_id:
                        missing.remove(self._database, row.result_id)
        return jobs

    def _attempts(self, jobs: Mapping[str, JobKeys]) -> dict[str, list[tuple[Attempt, int]]]:
        found = super()._attempts(jobs)
        for attempts in found.values():
            for attempt, attempt_id in attempts:
                self._put_ends((attempt.job_id, attempt.attempt_no), attempt_id)
        return found

    def _put_ends(self, key: _Key, attempt_id: int) -> None:
        told = {name: events.get(key, {}) for name, events in self._told.items()}
        waits = told.get(EventName.ESTIMATE, {}).get("wait_s", {})
        addresses = told.get(EventName.MET, {}).get("addresses", {})
        ways = told.get(EventName.WAYS, {})
        for side, end in self._ends[key].items():
            address, _, port = addresses.get(side, "").partition(" ")
            wait_s = waits.get(side)
            role = None if ways.get("client") is None else "client" if ways["client"] == side else "server"
            row = {
                "node_id": self._node_id(f"{self._link[f'{side}_cluster']}/{end.nodes[0]}"),
                "tag": end.tag,
                "native_id": end.native_id or None,
                "outcome": end.outcome or None,
                "reason": end.reason or None,
                "exit_code": whole(end.exit_code),
                "role": role,
                "address": address if port not in {"", "0"} else None,
                "port": int(port) if port.isdecimal() and port != "0" else None,
                "reaches": ways.get("ways", {}).get(side),
                "expected_wait_s": float(wait_s) if isinstance(wait_s, (int, float)) else None,
                "submitted_utc": end.submitted_utc,
                "started_utc": utc_or_none(end.started_utc),
                "ended_utc": utc_or_none(end.ended_utc),
            }
            self._replace_end(attempt_id, side, row)

    def _replace_end(self, attempt_id: int, side: str, row: Mapping[str, Any]) -> None:
        """Write only what differs, so loading again changes nothing."""
        query = f"SELECT {', '.join(row)} FROM link_end WHERE attempt_id = ? AND side = ?"  # noqa: S608 - our own names
        found = self._database.execute(query, (attempt_id, side)).fetchone()
        if found is None or tuple(found) != tuple(row.values()):
            names = ", ".join(("attempt_id", "side", *row))
            marks = ", ".join("?" * (len(row) + 2))
            statement = f"INSERT OR REPLACE INTO link_end ({names}) VALUES ({marks})"  # noqa: S608 - our own names
            self._database.execute(statement, (attempt_id, side, *row.values()))

    # -- what a cluster has otherwise -------------------------------------------------------------------------------

    def _node_id(self, name: str) -> int:
        cluster, node = split(name)
        return self._names.node(self._cluster_ids[cluster], node)

    def _nodes_of(self, job: JobKeys) -> tuple[str, ...]:
        return split(job.pair[0])[1], split(job.pair[1])[1]

    def _builds_of(self, job: JobKeys) -> Builds:
        return self._builds_by_cluster[split(job.pair[0])[0]]

    def _attempt_folder(self, attempt: Attempt) -> Path:
        """The folder of the client's side, which holds the results."""
        return super()._attempt_folder(attempt) / self._clients[attempt.job_id]

    def _facts_path(self, folder: Path, node: str) -> Path:
        return folder.parent / self._side_of(node) / f"facts-{split(node)[1]}.json"

    def _side_of(self, name: str) -> str:
        return "from" if split(name)[0] == self._link["from_cluster"] else "to"

    @cached_property
    def _cluster_ids(self) -> dict[str, int]:
        names = [self._link[f"{side}_cluster"] for side in _SIDES]
        return {name: self._names.row("cluster", name=name) for name in names}

    @cached_property
    def _builds_by_cluster(self) -> dict[str, Builds]:
        return {
            name: Builds(self._database, self._names, cluster_id, read_json_or_none(self._folder.build(name)) or {})
            for name, cluster_id in self._cluster_ids.items()
        }
