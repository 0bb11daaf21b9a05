"""What the page of a run says, in the order a person needs it: is everything there, what stands out, the numbers, what
is missing and why, and how the run was made.
"""

from __future__ import annotations

import gc
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hpcq import __version__, nodelist, units
from hpcq.analysis.distances import distances
from hpcq.analysis.expected import Around, around, test_of
from hpcq.analysis.gates import judge_run
from hpcq.analysis.run_verdict import RunVerdict, run_verdict
from hpcq.analysis.standing import ClusterCause
from hpcq.definition.find import kernels_of_texts
from hpcq.errors import UserError
from hpcq.kernels import Kernel, Peer, own_kernels, size_text
from hpcq.reports.links import Links
from hpcq.reports.plots import (
    ALSO_PLOTTED,
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    SHARED,
    TOP,
    UNDER_LOAD,
    WIDTH,
    Axis,
    Curve,
    Dot,
    Lost,
    Plot,
    Tick,
    few,
    kernel_title,
    make_matrices,
    make_nightly,
    make_plots,
    metric_title,
    percent,
    plots_under_load,
    points_text,
    tick_values,
)
from hpcq.run_folder.paths import write_text
from hpcq.store import query
from hpcq.store.database import Connection, reading
from hpcq.store.query import (
    AttemptRow,
    ResultRow,
    RunRow,
    Summary,
    descriptions,
    disturbed_count,
    lost_tries,
    median,
    network_texts,
    node_groups,
    pairs_of_run,
)
from hpcq.store.read.evidence_queries import finding_groups
from hpcq.store.read.grouped import Distribution, PeerValue, distributions, peer_values
from hpcq.store.selection import Selection, find_run
from hpcq.verdict.gates import GateVerdict
from hpcq.verdict.words import Verdict

# ----------------------------------------------------------------------------------------------------------------------
# Programs that measure the same, side by side: what a foreign program says over what a kernel of hpcq says.
#
# Two results are compared when they are of the same two nodes in the same run, and when every option that both programs
# have is equal, except how long they measured. The description of the foreign program says which metric is the same
# quantity (`same_as`).


#: Another figure by more than this is told as disagreement.
DIFFERS_RATIO = 0.10
_Options = tuple[tuple[str, Any], ...]
_HOW_LONG = {"duration_s", "warmup_s", "omit_s", "operation_count_max"}


@dataclass(frozen=True, slots=True)
class ForeignComparison:
    """One foreign program against a kernel of hpcq: medians over the pairs of nodes, and the ratio of each pair.

    theirs, ours: for people. ratios: of each pair, theirs over ours, sorted; empty when nothing was comparable.
    """

    cluster: str
    kernel: str
    quantity: str
    size: str
    theirs: str
    ours: str
    ratios: tuple[float, ...]

    @property
    def program(self) -> tuple[str, str]:
        """Which program on which cluster."""
        return self.cluster, self.kernel

    @property
    def ratio(self) -> float | None:
        """The median over the pairs."""
        return median(self.ratios) if self.ratios else None

    @property
    def differs(self) -> bool:
        """Whether the two programs disagree about the pairs as a whole."""
        return self.ratio is not None and abs(self.ratio - 1) > DIFFERS_RATIO


def compared(database: Connection, run: str) -> list[ForeignComparison]:
    """Every foreign program of a run that has a counterpart, the largest disagreement first."""
    texts = descriptions(database)
    if not texts:
        return []
    known = kernels_of_texts(texts)
    peers = [
        (kernel, one.metric, one.peer)
        for name in sorted(texts)
        if (kernel := known[name]).described is not None
        for one in kernel.described.readings
        if one.peer is not None
    ]
    wanted = {(kernel.name, metric) for kernel, metric, _ in peers} | {(one.kernel, one.metric) for _, _, one in peers}
    values = peer_values(database, run, wanted)
    rows = [row for kernel, metric, peer in peers for row in compare(kernel, metric, peer, values)]
    return sorted(rows, key=lambda row: -abs((row.ratio or 1.0) - 1))


def compare(kernel: Kernel, metric: str, peer: Peer, values: Sequence[PeerValue]) -> list[ForeignComparison]:
    """One metric of a foreign program against its counterpart: one row per cluster and set of shared options."""
    shared = {one.name for one in kernel.options} & {one.name for one in own_kernels()[peer.kernel].options} - _HOW_LONG
    theirs = _by_test([one for one in values if (one.kernel, one.metric) == (kernel.name, metric)], shared, peer.times)
    ours = _by_test([one for one in values if (one.kernel, one.metric) == (peer.kernel, peer.metric)], shared, 1.0)
    unit = units.unit_of(metric) or ""
    rows = []
    for (cluster, options), of_pairs in theirs.items():
        others = ours.get((cluster, options), {})
        pairs = [pair for pair in of_pairs if others.get(pair)]
        shown = [units.human(median(list(found.values())), unit) if found else "" for found in (of_pairs, others)]
        rows.append(
            ForeignComparison(
                cluster=cluster,
                kernel=kernel.name,
                quantity=f"{kernel_title(peer.kernel)}, {metric_title(peer.metric)}",
                size=_size(options),
                theirs=shown[0],
                ours=shown[1],
                ratios=tuple(sorted(of_pairs[pair] / others[pair] for pair in pairs)),
            )
        )
    return rows


def _by_test(
    values: Sequence[PeerValue], shared: set[str], times: float
) -> Mapping[tuple[str, _Options], Mapping[tuple[str, str], float]]:
    """Medians over the repetitions: by cluster and shared options, then by pair of nodes."""
    found: dict[tuple[str, _Options], dict[tuple[str, str], list[float]]] = {}
    for one in values:
        options = tuple(sorted((name, value) for name, value in one.parameters.items() if name in shared))
        pairs = found.setdefault((one.cluster, options), {})
        pairs.setdefault((one.client, one.server), []).append(one.value * times)
    return {key: {pair: median(many) for pair, many in pairs.items()} for key, pairs in found.items()}


def _size(options: _Options) -> str:
    return ", ".join(size_text(value) if name == "message_bytes" else f"{name}={value}" for name, value in options)


# ----------------------------------------------------------------------------------------------------------------------
# The tails of latency: for each kernel, which share of its operations took how long or longer.
#
# Both axes are logarithmic: 1 % and 0.01 % of the operations are as far apart as 100 % and 1 %.


#: Curves of one picture; of more sizes, some are left out, never the first and the last.
_CURVES_MAX = 6
_SHARE_MIN = 1e-6
_PERCENTILES = ((0.5, "half of them"), (0.99, "99 %"), (0.999, "99.9 %"))


@dataclass(frozen=True, slots=True)
class Tails:
    """One picture and its figures: label, number of operations, p50, p90, p99, p99.9, longest."""

    plot: Plot
    rows: tuple[tuple[str, int, str, str, str, str, str], ...]


def make_tails(found: Sequence[Distribution]) -> list[Tails]:
    """One picture for each kernel of which histograms are there."""
    by_kernel: dict[str, list[Distribution]] = {}
    for one in found:
        if one.operation_count and one.buckets[0][0] > 0:
            by_kernel.setdefault(one.kernel, []).append(one)
    return [_tails(kernel, group) for kernel, group in by_kernel.items()]


def _tails(kernel: str, group: Sequence[Distribution]) -> Tails:
    places = {one.cluster for one in group}
    shown = _chosen(group)
    low = min(one.buckets[0][0] for one in shown)
    high = max(one.buckets[-1][0] for one in shown)
    smallest = max(_SHARE_MIN, min(1 / one.operation_count for one in shown))
    x_axis = Axis(low / 1.1, max(high, low * 2) * 1.1, LEFT + 10, WIDTH - RIGHT - 10, log=True)
    y_axis = Axis(smallest / 1.5, 1.0, HEIGHT - BOTTOM, TOP, log=True)
    curves = [
        Curve(_label(one, places), index, _line(one, x_axis, y_axis), "", _dots(one, _label(one, places), x_axis, y_axis))
        for index, one in enumerate(shown)
    ]
    words = f"{kernel_title(kernel)}: how many operations took how long"
    powers = range(round(math.log10(smallest)), 1)
    plot = Plot(
        kind="curve",
        title=words,
        description=f"{words}, for {', '.join(curve.label for curve in curves)}; figures in the table below.",
        x_label="time of one operation, logarithmic",
        y_label="share of the operations that took so long or longer, logarithmic",
        height=HEIGHT,
        x_ticks=tuple(Tick(x_axis.at(value), units.human(value, shown[0].unit)) for value in few(tick_values(x_axis), 6)),
        y_ticks=tuple(Tick(y_axis.at(10.0**power), f"{100 * 10.0**power:g} %") for power in powers),
        curves=tuple(curves),
        rows=(),
    )
    return Tails(plot, tuple(_row(one, _label(one, places)) for one in group))


def _chosen(group: Sequence[Distribution]) -> list[Distribution]:
    """At most so many that a picture can be read: the first, the last, and some between them."""
    count = min(len(group), _CURVES_MAX)
    places = {round(index * (len(group) - 1) / max(1, count - 1)) for index in range(count)}
    return [group[place] for place in sorted(places)]


def _line(one: Distribution, x_axis: Axis, y_axis: Axis) -> str:
    """Steps: between two buckets lies no operation, so a slope would say what was not measured."""
    shares = [(x_axis.at(value), y_axis.at(share)) for value, share in one.at_least()]
    falls = [(here[0], following[1]) for here, following in pairwise(shares)]
    return points_text([point for both in zip(shares, falls, strict=False) for point in both] + shares[-1:])


def _dots(one: Distribution, label: str, x_axis: Axis, y_axis: Axis) -> tuple[Dot, ...]:
    shares = dict(one.at_least())
    found = []
    for share, words in _PERCENTILES:
        value = one.percentile(share)
        if one.operation_count * (1 - share) >= 1:
            text = f"{label}: {words} took at most {units.human(value, one.unit)}"
            found.append(Dot(x_axis.at(value), y_axis.at(shares[value]), text))
    return tuple(found)


def _row(one: Distribution, label: str) -> tuple[str, int, str, str, str, str, str]:
    p50, p90, p99, p999 = (units.human(one.percentile(share), one.unit) for share in (0.5, 0.9, 0.99, 0.999))
    return label, one.operation_count, p50, p90, p99, p999, units.human(one.buckets[-1][0], one.unit)


def _label(one: Distribution, places: set[str]) -> str:
    parts = [one.cluster if len(places) > 1 else "", size_text(one.message_bytes), one.variant]
    return ", ".join(part for part in parts if part) or one.cluster


# ----------------------------------------------------------------------------------------------------------------------


#: Rows per table on the page. A browser should not have to load what a query can find.
_ROWS_MAX = 2000
#: A pair this far on the bad side of the others is worth a look. This is no verdict, because no history is used here.
_APART_RATIO = 0.10
#: Of fewer pairs, none says what is usual.
_APART_PAIRS_MIN = 3
#: Commands of a page that name a node.
_NODES_TO_ASK = 4
#: Pictures of what is told and suspected.
_NIGHTLY_MAX = 4
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

    name: str
    in_verdict: str
    in_list: str


@dataclass(frozen=True, slots=True)
class TestRow:
    """One test of a cluster over all of its pairs. share_ratio: the median of the pairs over what is expected.

    worst: the pair furthest on the bad side; None of one pair. beside_work_count: pairs measured only beside other work.
    """

    cluster: str
    title: str
    message_bytes: int | None
    metric: str
    unit: str
    better: str
    median: float
    pair_count: int
    beside_work_count: int
    worst: Summary | None
    expected: float | None
    source: str

    @property
    def size(self) -> str:
        """The size for people; empty if the test has none."""
        return size_text(self.message_bytes)

    @property
    def share_ratio(self) -> float | None:
        """None where nothing is expected."""
        return self.median / self.expected if self.expected else None

    @property
    def off(self) -> bool:
        """Whether it is more than a tenth on the bad side of what is expected."""
        share = self.share_ratio
        return share is not None and (share < 1 - _APART_RATIO if self.better == "higher" else share > 1 + _APART_RATIO)


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


def write_report(database: Path, run_id: str, path: Path, *, links: Links | None = None) -> RunVerdict:
    """Write the page of a run to `path` and return the verdict that it begins with. links: of a site, to its other pages.

    Raises StoreError, or UserError when the run is not loaded.
    """
    from hpcq.render import render

    with reading(database) as connection, _uncollected():
        context = {**_context(connection, find_run(connection, run_id)), "site": links}
        write_text(path, render("report.html.j2", context))
    verdict: RunVerdict = context["verdict"]
    return verdict


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
    found = query.summaries(database, selection, also=(*ALSO_PLOTTED, *UNDER_LOAD), confirmations=True)
    summaries = [one for one in found if one.purpose == "plan"]
    main = [one for one in summaries if one.main]
    attempts = query.attempts(database, run)
    planned = pairs_of_run(database, run)
    gates, judged = _gates(database, run)
    surroundings = around(database, run, main, judged)
    apart = _apart(main, surroundings)
    not_there = query.not_measured(database, selection)
    plots = [one for one in make_plots(summaries, surroundings.link_bps) if one.kind == "curve" or one.pair_count > 2]
    matrices = make_matrices(summaries, planned, node_groups(database), surroundings, _lost(not_there))
    matrices = sorted(matrices, key=lambda one: -one.off_count)
    verdict = run_verdict(database, run, runs, judged, gates["note"], with_nightly=True)
    complete = all(one.complete for one in runs)
    disturbed = disturbed_count(database, selection)
    clean = 2 * disturbed <= sum(one.measured_count for one in runs)
    return {
        "run": run,
        "campaign": runs[0].campaign,
        "created_utc": _minute(runs[0].created_utc),
        "made_utc": _minute(units.utc_now()),
        "version": __version__,
        "clusters": runs,
        "imported": runs[0].kind == "import",
        "networks": _networks(database, summaries),
        "gates": gates,
        "verdict": verdict,
        "complete": complete,
        "nightly": [make_nightly(one) for one in verdict.nightly[:_NIGHTLY_MAX]],
        "actions": _actions(run, verdict, apart_nodes(apart), complete=complete, off=bool(apart), clean=clean),
        "tests": _tests(main, surroundings),
        "run_nodes": sorted({(at, node) for at, *pair in planned for node in nodelist.nodes_of(*pair)}),
        "sentence": _sentence(runs),
        "again": [one for one in found if one.main and one.purpose != "plan"][:_ROWS_MAX],
        "apart": apart[:_APART_SHOWN],
        "apart_count": len(apart),
        "apart_nodes": apart_nodes(apart),
        "apart_ratio": _APART_RATIO,
        "distances": distances(database, run),
        "compared": compared(database, run)[:_ROWS_MAX],
        "differs_ratio": DIFFERS_RATIO,
        "shared": [one for one in plots if one.title.startswith(SHARED)],
        "plots": [one for one in plots if not one.title.startswith(SHARED)],
        "under_load": plots_under_load(summaries),
        "tails": make_tails(distributions(database, run)),
        "matrices": matrices,
        "groups": _groups(main[:_ROWS_MAX]),
        "row_count": len(main),
        "rows_max": _ROWS_MAX,
        "missing": folded_missing(not_there),
        "ends": _ends(attempts),
        "attempt_count": len(attempts),
        "left_out": query.left_out(database, run)[:_ROWS_MAX],
        "lost_tries": lost_tries(database, run),
        "warnings": query.warnings(database, run),
        "findings": finding_groups(database, run),
        "disturbed_count": disturbed,
        "builds": query.builds(database, run),
    }


def _lost(rows: Sequence[ResultRow]) -> dict[Lost, str]:
    """Why tests that ran brought no valid result, by pair."""
    return {
        (
            one.cluster,
            one.kernel,
            one.client,
            one.server,
            one.message_bytes,
        ): f"{one.outcome}: {one.reason or 'no reason given'}"
        for one in rows
        if one.outcome in {"failed", "invalid"}
    }


def _tests(main: Sequence[Summary], surroundings: Around) -> list[TestRow]:
    """One row for each test, those that are furthest on the bad side of what is expected first, else in order."""
    groups: dict[Any, list[Summary]] = {}
    for one in main:
        groups.setdefault(test_of(one), []).append(one)
    rows = []
    for test, group in groups.items():
        first, expected = group[0], surroundings.expected.get(test)
        worst = (min if first.better == "higher" else max)(group, key=lambda one: one.median)
        rows.append(
            TestRow(
                cluster=first.cluster,
                title=", ".join(part for part in (kernel_title(first.kernel), first.variant) if part),
                message_bytes=first.message_bytes,
                metric=metric_title(first.metric),
                unit=first.unit,
                better=first.better,
                median=median([one.median for one in group]),
                pair_count=len(group),
                beside_work_count=sum(one.disturbed_count == one.n for one in group),
                worst=worst if len(group) > 1 else None,
                expected=expected.value if expected is not None else None,
                source=expected.source if expected is not None else "",
            )
        )
    return sorted(rows, key=lambda row: not row.off)


def _actions(
    run: str, verdict: RunVerdict, nodes: Sequence[ApartNode], *, complete: bool, off: bool, clean: bool
) -> list[tuple[str, str]]:
    """What to do, most urgent first: words, and a command to copy. clean: most of it was measured without work beside it."""
    bad = verdict.verdict in {Verdict.FAILED, Verdict.DEGRADED}
    found = []
    if any("acceptance" in one.words for one in verdict.reasons):
        found.append(("the last verdict on every node, with its reason", "hpcq nodes --verdicts"))
    if bad:
        found.append(("what got worse, since when, and what differs", f"hpcq regressions --since {run}"))
    if bad or nodes:
        found.append(("which node or link is at fault", f"hpcq blame --run {run}"))
        found += of_nodes([*nodes_at_fault(verdict.told), *(one.name for one in nodes[:2])])
    if verdict.suspected and not bad:
        found.append(("which pairs would settle it, as a campaign", f"hpcq blame --run {run} --campaign next.yaml"))
        found += of_nodes(nodes_at_fault([one.cause for one in verdict.nightly]))
    if not complete:
        found.append(("measure what is missing", f"hpcq resume {run}"))
    if verdict.verdict is Verdict.NOT_JUDGED and not nodes and not off:
        if clean:
            found.append(("let this run be what later ones are compared with", f"hpcq baseline set good {run}"))
        else:
            found.append(("what worked beside most measurements: stop it, and run again", f"hpcq results {run} --findings"))
    if not found:
        found.append(("all values", f"hpcq results {run}"))
    return found


def nodes_at_fault(causes: Sequence[ClusterCause]) -> list[str]:
    """The nodes of those causes that are a node or a pair, told ones first, as CLUSTER/NODE."""
    few = [one for one in sorted(causes, key=lambda one: not one.is_told) if one.thing in {"node", "pair", "link"}]
    return [f"{one.cluster}/{name}" for one in few for name in one.names]


def of_nodes(names: Sequence[str]) -> list[tuple[str, str]]:
    """What to do about nodes, each once: words, and a command to copy."""
    return [(f"all that is known of {name}", f"hpcq nodes {name}") for name in list(dict.fromkeys(names))[:_NODES_TO_ASK]]


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
    word = "imported" if runs[0].kind == "import" else "planned"
    return f"{planned} results {word}: {', '.join(told)}."


def _apart(main: Sequence[Summary], surroundings: Around) -> list[Apart]:
    """Pairs on the bad side, furthest first: of what gates or earlier runs say is usual; else of the others, if there are
    three pairs to compare.
    """
    tests: dict[Any, list[Summary]] = {}
    for one in main:
        tests.setdefault(test_of(one), []).append(one)
    pairs: dict[tuple[str, str, str], list[tuple[float, float, Summary]]] = {}
    for test, group in tests.items():
        usual = surroundings.expected.get(test)
        if usual is not None and usual.is_usual:
            reference = usual.value
        else:
            reference = query.median([one.median for one in group]) if len(group) >= _APART_PAIRS_MIN else 0.0
        for one in group if reference else ():
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
            found.append(ApartNode(f"{cluster}/{node}", _in_verdict(node, of_node), in_list))
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
