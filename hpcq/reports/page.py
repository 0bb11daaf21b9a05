"""What the page of a run says, in the order a person needs it: is everything there, what stands out, the numbers, what
is missing and why, and how the run was made.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcq import __version__, nodelist, units
from hpcq.analysis.distances import distances
from hpcq.analysis.gates import judge_run
from hpcq.errors import UserError
from hpcq.reports.matrix import make_matrices
from hpcq.reports.peers import DIFFERS_RATIO, compared
from hpcq.reports.plots import ALSO_PLOTTED, make_plots
from hpcq.reports.run_verdict import run_verdict
from hpcq.reports.tails import make_tails
from hpcq.reports.words import kernel_title, metric_title, percent
from hpcq.run_folder.paths import write_text
from hpcq.store import query
from hpcq.store.counted import disturbed_count, network_texts, pairs_of_run
from hpcq.store.database import Connection, reading
from hpcq.store.distributions import distributions
from hpcq.store.query import AttemptRow, ResultRow, RunRow, Selection, Summary
from hpcq.store.read import run_context
from hpcq.store.read.evidence_queries import finding_groups
from hpcq.store.read.known import node_groups
from hpcq.store.read.lost_tries import lost_tries
from hpcq.verdict import GateVerdict, Verdict

#: Rows per table on the page. A browser should not have to load what a query can find.
_ROWS_MAX = 2000
#: A pair this far on the bad side of the others is worth a look. This is no verdict, because no history is used here.
_APART_RATIO = 0.10
_APART_SHOWN = 8
_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Apart:
    """A pair on the bad side of its cluster's pairs: where it is worst, and in how many of its tests."""

    worst: Summary
    reference: float
    change_ratio: float
    off_count: int
    test_count: int


@dataclass(frozen=True, slots=True)
class ApartNode:
    """A node that most of the pairs worth a look have in common, as the verdict and as the list of pairs say it."""

    in_verdict: str
    in_list: str


@dataclass(frozen=True, slots=True)
class Missing:
    """Planned results that are missing for the same reason."""

    cluster: str
    outcome: str
    reason: str
    count: int
    examples: str


@dataclass(frozen=True, slots=True)
class Ends:
    """How many attempts of a cluster ended one way."""

    cluster: str
    outcome: str
    count: int
    example: str


def write_report(database: Path, run_id: str, path: Path) -> Path:
    """Write the page of a run to `path` and return it. Raises StoreError, or UserError when the run is not loaded."""
    from hpcq.render import render

    with reading(database) as connection, _uncollected():
        context = _context(connection, query.find_run(connection, run_id))
        write_text(path, render("report.html.j2", context))
    return path


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without Python's search for circles of objects: a page makes none, and a quarter of its time went into it."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _context(database: Connection, run: str) -> dict[str, Any]:
    selection = Selection(run=run)
    runs = query.runs(database, run)
    summaries = query.summaries(database, selection, also=ALSO_PLOTTED)
    main = [one for one in summaries if one.main]
    attempts = query.attempts(database, run)
    apart = _apart(main)
    planned = pairs_of_run(database, run)
    gates, judged = _gates(database, run)
    return {
        "run": run,
        "campaign": runs[0].campaign,
        "created_utc": _minute(runs[0].created_utc),
        "made_utc": _minute(units.utc_now()),
        "version": __version__,
        "clusters": runs,
        "networks": _networks(database, summaries),
        "gates": gates,
        "verdict": run_verdict(database, run, runs, judged, gates["note"]),
        "complete": all(one.complete for one in runs),
        "sentence": _sentence(runs),
        "apart": apart[:_APART_SHOWN],
        "apart_count": len(apart),
        "apart_nodes": apart_nodes(apart),
        "apart_ratio": _APART_RATIO,
        "distances": distances(database, run),
        "compared": compared(database, run)[:_ROWS_MAX],
        "differs_ratio": DIFFERS_RATIO,
        "plots": make_plots(summaries),
        "tails": make_tails(distributions(database, run)),
        "matrices": make_matrices(summaries, planned, node_groups(database)),
        "groups": _groups(main[:_ROWS_MAX]),
        "row_count": len(main),
        "rows_max": _ROWS_MAX,
        "missing": folded_missing(query.not_measured(database, selection)),
        "ends": _ends(attempts),
        "attempt_count": len(attempts),
        "left_out": run_context.left_out(database, run)[:_ROWS_MAX],
        "lost_tries": lost_tries(database, run),
        "warnings": run_context.warnings(database, run),
        "findings": finding_groups(database, run),
        "disturbed_count": disturbed_count(database, selection),
        "builds": run_context.builds(database, run),
    }


def _networks(database: Connection, summaries: Sequence[Summary]) -> dict[str, str]:
    """By cluster: the network that its results were measured over; one without results has none."""
    named = network_texts(database)
    found: dict[str, dict[str, None]] = {}
    for one in summaries:
        if one.network:
            found.setdefault(one.cluster, {})[named.get((one.cluster, one.network), one.network)] = None
    return {cluster: ", ".join(texts) for cluster, texts in found.items()}


def _gates(database: Connection, run: str) -> tuple[dict[str, Any], list[GateVerdict]]:
    """The gates' results for the template: counts, and all that did not pass, failures first; and each verdict."""
    try:
        verdicts = judge_run(database, run)
    except UserError as error:
        return {"counts": {}, "told": [], "passed": [], "note": f"The gates were not judged: {error.message}"}, []
    counts = Counter(one.verdict.value for one in verdicts)
    told, passed = ([one for one in verdicts if (one.verdict is Verdict.PASS) is wanted] for wanted in (False, True))
    return {"counts": counts, "told": told[:_ROWS_MAX], "passed": passed[:_ROWS_MAX], "note": ""}, verdicts


def _sentence(runs: Sequence[RunRow]) -> str:
    planned = sum(one.planned_count for one in runs)
    counts = {
        "measured": sum(one.measured_count for one in runs),
        "invalid": sum(one.invalid_count for one in runs),
        "failed": sum(one.failed_count for one in runs),
        "not measured": sum(one.not_measured_count for one in runs),
    }
    told = [f"{count} {word}" for word, count in counts.items() if count or word == "measured"]
    return f"{planned} results planned: {', '.join(told)}."


def _apart(main: Sequence[Summary]) -> list[Apart]:
    """Pairs on the bad side of the others, furthest first; empty if there are fewer than three pairs to compare."""
    tests: dict[tuple[Any, ...], list[Summary]] = {}
    for one in main:
        tests.setdefault((one.cluster, one.kernel, one.message_bytes, one.variant), []).append(one)
    pairs: dict[tuple[str, str, str], list[tuple[float, float, Summary]]] = {}
    for group in tests.values():
        reference = query.median([one.median for one in group])
        for one in group if len(group) >= 3 and reference else ():
            change_ratio = (one.median - reference) / abs(reference)
            badness = -change_ratio if one.better == "higher" else change_ratio
            pairs.setdefault((one.cluster, one.client, one.server), []).append((badness, reference, one))
    found = []
    for members in pairs.values():
        badness, reference, one = max(members, key=lambda member: member[0])
        if badness > _APART_RATIO:
            off_count = sum(member[0] > _APART_RATIO for member in members)
            change_ratio = (one.median - reference) / abs(reference)
            found.append((badness, Apart(one, reference, change_ratio, off_count, len(members))))
    return [apart for _, apart in sorted(found, key=lambda item: (-item[1].off_count, -item[0]))]


def apart_nodes(apart: Sequence[Apart]) -> list[ApartNode]:
    """Nodes that most of these pairs of a cluster have in common. A test of several nodes names none of them."""
    found = []
    for cluster in sorted({one.worst.cluster for one in apart}):
        pairs = [one for one in apart if one.worst.cluster == cluster and not nodelist.names_several(one.worst.server)]
        counts = Counter(node for pair in pairs for node in nodelist.nodes_of(pair.worst.client, pair.worst.server))
        node, count = next(iter(counts.most_common(1)), ("", 0))
        if count >= 3 and count > len(pairs) * 0.7:
            of_node = [one for one in pairs if node in nodelist.nodes_of(one.worst.client, one.worst.server)]
            in_list = f"{cluster}: {node} is an end of {count} of these {len(pairs)} pairs."
            found.append(ApartNode(_in_verdict(node, of_node), in_list))
    return found


def _in_verdict(node: str, pairs: Sequence[Apart]) -> str:
    """What the verdict says of a node with these pairs, the furthest first."""
    worst = pairs[0].worst
    test = f"{kernel_title(worst.kernel)} {worst.size_text}".rstrip()
    words = f"{worst.cluster}/{node} is worse than the others of this run, {percent(pairs[0].change_ratio)} in {test}"
    beside_work = all(one.worst.disturbed_count == one.worst.n for one in pairs)
    return f"{words} {worst.client} > {worst.server}{', measured only beside other work' if beside_work else ''}"


def _groups(main: Sequence[Summary]) -> list[tuple[str, list[Summary]]]:
    groups: dict[str, list[Summary]] = {}
    for one in main:
        groups.setdefault(f"{one.cluster}: {kernel_title(one.kernel)}, {metric_title(one.metric)}", []).append(one)
    return list(groups.items())


def folded_missing(rows: Sequence[ResultRow]) -> list[Missing]:
    """What was planned and not measured, one row per reason."""
    groups: dict[tuple[str, str, str], list[ResultRow]] = {}
    for row in rows:
        if row.outcome != "measured":
            groups.setdefault((row.cluster, row.outcome, row.reason or ""), []).append(row)
    return [
        Missing(*key, len(group), _few_places(group))
        for key, group in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))[:_ROWS_MAX]
    ]


def _few_places(group: Sequence[ResultRow]) -> str:
    places = list(dict.fromkeys(f"{row.kernel} {row.client} to {row.server}" for row in group))
    more = f" and {len(places) - _EXAMPLES} more" if len(places) > _EXAMPLES else ""
    return ", ".join(places[:_EXAMPLES]) + more


def _ends(attempts: Sequence[AttemptRow]) -> list[Ends]:
    groups: dict[tuple[str, str], list[AttemptRow]] = {}
    for attempt in attempts:
        groups.setdefault((attempt.cluster, attempt.outcome or attempt.state or "submitted"), []).append(attempt)
    made = []
    for (cluster, outcome), group in sorted(groups.items()):
        first = next((one for one in group if one.reason), None)
        example = f"{first.job} attempt {first.attempt_no} on {first.nodes}: {first.reason}" if first else ""
        made.append(Ends(cluster, outcome, len(group), example))
    return made


def _minute(utc_text: str) -> str:
    return f"{utc_text[:10]} {utc_text[11:16]} UTC"
