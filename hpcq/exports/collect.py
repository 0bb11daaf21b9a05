"""The content of a run that all formats share, read from the database once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcq.errors import UserError
from hpcq.nodelist import takes_part

if TYPE_CHECKING:
    from hpcq.store.database import Connection
    from hpcq.store.query import ResultRow, RunRow, Selection, Summary
    from hpcq.verdict import GateVerdict

#: The columns of the table formats, in order. One row per result and metric; a result without metrics is one row.
COLUMNS = (
    "run",
    "campaign",
    "cluster",
    "kernel",
    "client",
    "server",
    "message_bytes",
    "test_no",
    "repetition_no",
    "outcome",
    "reason",
    "started_utc",
    "disturbed",
    "crossed_interface",
    "metric",
    "value",
    "unit",
    "better",
    "series_id",
    "result_id",
    "job",
    "attempt_no",
    "parameters",
    "network",
    "network_name",
)


@dataclass(frozen=True, slots=True)
class Exported:
    """One run for the summary formats. gates_unread: why its gates could not be judged; empty if they were.

    networks: by cluster and interface, the name in the cluster's file and a text for people, `ib (ib0)`.
    """

    run: str
    clusters: tuple[RunRow, ...]
    summaries: tuple[Summary, ...]
    missing: tuple[ResultRow, ...]
    gates: tuple[GateVerdict, ...]
    gates_unread: str
    findings: tuple[dict[str, Any], ...]
    networks: Mapping[tuple[str, str], tuple[str, str]]

    def network_name(self, row: Summary) -> str:
        """The network of a row as the cluster's file names it, else its interface."""
        return self.networks.get((row.cluster, row.network), (row.network, ""))[0]

    def network_text(self, row: Summary) -> str:
        """For people; empty where the cluster's file names no networks."""
        return self.networks.get((row.cluster, row.network), ("", ""))[1]

    @property
    def exit_code(self) -> int:
        """The code of `hpcq results`: 3 if a gate failed, 4 if something is missing or could not be judged, else 0."""
        words = {one.verdict.value for one in self.gates}
        if "failed" in words:
            return 3
        whole = all(one.complete for one in self.clusters) and bool(self.clusters)
        return 0 if whole and not self.gates_unread and "inconclusive" not in words else 4


def collect(database: Connection, selection: Selection) -> Exported:
    """Read a run's summaries (main metrics), what is missing, its gates and its findings."""
    from hpcq.analysis.gates import judge_run
    from hpcq.store import query
    from hpcq.store.counted import named_networks

    assert selection.run is not None  # noqa: S101 - the caller names one
    gates: Sequence[GateVerdict] = ()
    unread = ""
    try:
        gates = judge_run(database, selection.run)
    except UserError as error:
        unread = error.message
    return Exported(
        run=selection.run,
        clusters=tuple(query.runs(database, selection.run)),
        summaries=tuple(query.summaries(database, selection)),
        missing=tuple(query.not_measured(database, selection)),
        gates=tuple(one for one in gates if _selected(one, selection)),
        gates_unread=unread,
        findings=tuple(_findings(database, selection.run)),
        networks=named_networks(database),
    )


def rows(database: Connection, selection: Selection) -> Iterator[dict[str, Any]]:
    """The results of the selection as rows of COLUMNS, with every metric; read from the database one by one."""
    from hpcq.store.read.metric_rows import metric_rows

    for row in metric_rows(database, selection):
        yield {name: row[name] for name in COLUMNS}


def _selected(one: GateVerdict, selection: Selection) -> bool:
    series = one.series
    return (
        selection.kernel in {None, series.kernel}
        and selection.cluster in {None, series.cluster}
        and (selection.node is None or takes_part(selection.node, series.client, series.server))
    )


def _findings(database: Connection, run: str) -> Iterator[dict[str, Any]]:
    from hpcq.store.read.metric_rows import finding_rows

    yield from finding_rows(database, run)
