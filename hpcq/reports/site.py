"""One folder for any web server: an index, and a page for each cluster, run, node and change, with links between them.

The clusters, their changes and the index are written each time, because what they say depends on the day. A run is written
again when it was loaded again, a node when it was measured again or is judged otherwise, both when a person declared
something; the newest run of a cluster also when an acceptance judged a node. site.json keeps what each was made from. A page
is replaced in one step, so a reader sees the old one or the new one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hpcq import __version__, units
from hpcq.analysis.change import Block
from hpcq.analysis.standing import Standing, standings
from hpcq.errors import UserError
from hpcq.render import render
from hpcq.reports.links import links_of, page_path
from hpcq.reports.page import write_report
from hpcq.reports.stretch import StretchVerdict, change_name, write_change, write_stretch
from hpcq.run_folder.paths import read_json_or_none, write_json, write_text
from hpcq.store import query
from hpcq.store.database import reading
from hpcq.store.query import RunRow
from hpcq.store.read.nodes import NodeRow, node_rows
from hpcq.store.read.stretches import declared_marks
from hpcq.store.selection import Selection, Window, moment
from hpcq.store.series import select
from hpcq.verdict.words import Tally, Verdict

#: What pages of clusters, nodes and changes look back on.
SINCE = "90d"
_RUNS_SHOWN = 500
_STATE = "site.json"


@dataclass(frozen=True, slots=True)
class SiteTold:
    """What was done. verdicts: of each cluster. written, kept: pages made now, and pages that stay as they were."""

    index: Path
    verdicts: dict[str, Verdict]
    written: int
    kept: int

    @property
    def exit_code(self) -> int:
        """Of the clusters together: 3 where one is slow, 4 where too little is known of one."""
        return int(Tally.of(self.verdicts.values()).exit_code)


@dataclass(slots=True)
class _Folder:
    """The folder, and what each page was made from: the last time, and now."""

    folder: Path
    before: dict[str, str]
    nodes: frozenset[str] = frozenset()
    made_from: dict[str, str] = field(default_factory=dict)
    written: int = 0
    kept: int = 0

    def file(self, path: str) -> Path:
        """The file of a page that is written now."""
        self.written += 1
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    def is_due(self, path: str, made_from: object) -> bool:
        """Whether the page is not there, or was made from something else."""
        self.made_from[path] = hashlib.sha256(repr((__version__, made_from)).encode()).hexdigest()
        due = self.before.get(path) != self.made_from[path] or not (self.folder / path).is_file()
        self.kept += not due
        return due


def write_site(database: Path, folder: Path) -> SiteTold:
    """Write what changed since the last time.

    Raises UserError where the folder holds something else, OSError where it cannot be written.
    """
    known = read_json_or_none(folder / _STATE)
    if known is None and folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"--site: {folder}: holds files that are no site of hpcq: must be empty or new", "name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    site = _Folder(folder, dict((known or {}).get("pages", {})))
    write_json(folder / _STATE, {"format": 1, "pages": site.before})
    with reading(database) as connection:
        runs = query.runs(connection)
        clusters = [one for one in query.names(connection, "cluster") if query.nodes_of_cluster(connection, one)]
        standing = standings(connection, clusters, SINCE)
        for one in standing:
            _ = one.values  # a kept standing reads them from this connection, which ends here
        window = Window(SINCE, moment(connection, SINCE))
        tried = {(cluster, end) for cluster, *ends in select(connection, Selection()).pairs for end in ends}
        nodes = {  # of a node that was never tried there is nothing to say
            cluster: [
                one for one in node_rows(connection, Selection(cluster=cluster, window=window)) if (cluster, one.node) in tried
            ]
            for cluster in clusters
        }
        declared = declared_marks(connection)
    site.nodes = frozenset(f"{cluster}/{one.node}" for cluster, rows in nodes.items() for one in rows)
    by_cluster = {one.cluster: one for one in standing}
    judged = {}
    for cluster in clusters:
        path, here = page_path("cluster", cluster), tuple(one for one in standing if one.cluster == cluster)
        judged[cluster] = write_stretch(
            database, SINCE, Selection(cluster=cluster), site.file(path), standing=here, links=links_of(path, site.nodes)
        )
        _changes(database, site, judged[cluster].blocks)
        named = frozenset(change_name(one) for one in judged[cluster].blocks)
        _nodes(database, site, nodes[cluster], by_cluster.get(cluster), (declared, named))
    ledger = {name: [(one.node, one.verdict) for one in rows] for name, rows in nodes.items()}
    _runs(database, site, runs, declared, ledger)
    _index(site, clusters, runs, nodes, judged)
    write_json(folder / _STATE, {"format": 1, "pages": site.made_from})
    return SiteTold(folder / "index.html", {name: one.verdict for name, one in judged.items()}, site.written, site.kept)


def _changes(database: Path, site: _Folder, blocks: Iterable[Block]) -> None:
    for block in blocks:
        path = page_path("change", change_name(block))
        write_change(database, block, site.file(path), links=links_of(path, site.nodes))


def _nodes(
    database: Path, site: _Folder, rows: Iterable[NodeRow], standing: Standing | None, state: tuple[object, frozenset[str]]
) -> None:
    """state: what was declared, and the changes that have a page."""
    declared, changes = state
    for row in rows:
        path = page_path("node", f"{row.cluster}/{row.node}")
        stands = standing.of_node(row.node)[0] if standing is not None else ""
        if site.is_due(path, (row.last_measured_utc, row.verdict, stands, declared, sorted(changes))):
            here = (standing,) if standing is not None else ()
            wanted = Selection(cluster=row.cluster, node=row.node)
            links = links_of(path, site.nodes, changes)
            write_stretch(database, SINCE, wanted, site.file(path), standing=here, links=links)


def _runs(
    database: Path, site: _Folder, runs: Iterable[RunRow], declared: object, ledger: dict[str, list[tuple[str, str | None]]]
) -> None:
    """ledger: last verdicts on the nodes, by cluster."""
    parts: dict[str, list[RunRow]] = {}
    newest: dict[str, str] = {}
    for one in runs:  # latest first
        parts.setdefault(one.run, []).append(one)
        newest.setdefault(one.cluster, one.run)
    for run, rows in parts.items():
        path = page_path("run", run)
        verdicts = [ledger.get(one.cluster) for one in rows if newest[one.cluster] == run]
        if site.is_due(path, (rows, declared, verdicts)):
            write_report(database, run, site.file(path), links=links_of(path, site.nodes))


def _index(
    site: _Folder, clusters: list[str], runs: list[RunRow], nodes: dict[str, list[NodeRow]], judged: dict[str, StretchVerdict]
) -> None:
    path = page_path("index")
    context = {
        "site": links_of(path),
        "clusters": [(name, judged[name]) for name in clusters],
        "changes": [(change_name(block), block) for name in clusters for block in judged[name].blocks],
        "runs": runs[:_RUNS_SHOWN],
        "run_count": len(runs),
        "nodes": nodes,
        "since": SINCE,
        "made_utc": units.utc_now()[:16].replace("T", " ") + " UTC",
        "version": __version__,
    }
    write_text(site.file(path), render("site.html.j2", context))
