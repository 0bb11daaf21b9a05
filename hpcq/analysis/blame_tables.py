"""Tables for blame from runs: one value per job, failures by test, and what the evidence says of nodes.

Repetitions are not independent: those of one job share its luck (the idle state of a CPU, say), and three slow ones are
one slow job. So a table has one row per job, and a job without a valid result counts as the slowest possible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hpcq.analysis import pair_values
from hpcq.analysis.gates import FailedGate
from hpcq.analysis.series_outcomes import SeriesOutcome, of_pairs, outcomes_in
from hpcq.analysis.standing import JOBS_MIN, Standing
from hpcq.judge.causes import Thing
from hpcq.kernels import Better
from hpcq.localisation import MINIMUM_EFFECT_RATIO, Blame, Culprit, PairTable, blame
from hpcq.nodelist import names_several, nodes_of
from hpcq.store.database import Connection
from hpcq.store.ledger import leaves_of
from hpcq.store.read.evidence_queries import flaws_in
from hpcq.store.read.judged_values import classes_of
from hpcq.store.selection import Selection, run_id_of
from hpcq.units import count_of, unit_of
from hpcq.verdict.acceptance import LOST_SHARE, Pair, PairVerdict, find_culprits
from hpcq.verdict.node_sets import set_name
from hpcq.verdict.words import Verdict


def shown_pairs(pairs: Sequence[Pair]) -> str:
    """`n1 > n2, n3 > n2`, and how many more."""
    shown = ", ".join(f"{a} > {b}" for a, b in pairs[:4])
    return shown + (f" and {len(pairs) - 4} more" if len(pairs) > 4 else "")


@dataclass(frozen=True, slots=True)
class FailedTest:
    """A test without a valid result on some pairs. of: pairs that ran it. blamed: nodes and links that explain them.

    why: the commonest reason. unexplained: the pairs that nothing explains yet. of_others: those of nodes that other tests
    name.
    """

    test: str
    pairs: tuple[Pair, ...]
    of: int
    job_count: int
    why: str
    blamed: tuple[str, ...] = ()
    unexplained: tuple[Pair, ...] = ()
    of_others: tuple[Pair, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Always a failure, whether or not blame explains it."""
        return Verdict.FAILED

    @property
    def words(self) -> str:
        """`udp_stream 1472 B brings nothing on 2 of 12 pairs (n1 > n2, n3 > n2): fewer than two datagrams arrived`."""
        return f"{self.test} brings nothing on {len(self.pairs)} of {self.of} pairs ({shown_pairs(self.pairs)}): {self.why}"


@dataclass(frozen=True, slots=True)
class SetTest:
    """A test that a set of nodes ran together. It names none of them: their pairs do. why: the commonest failure.

    lost_count: jobs that ran without a valid result.
    """

    test: str
    nodes: tuple[str, ...]
    planned_count: int
    ran_count: int
    lost_count: int
    why: str = ""

    @property
    def verdict(self) -> Verdict | None:
        """A failure, or jobs that never ran; None where all jobs have a value, which says nothing of nodes."""
        if self.lost_count:
            return Verdict.FAILED
        return Verdict.NOT_COVERED if self.ran_count < self.planned_count else None

    @property
    def words(self) -> str:
        """`mpi_collective 64 KiB on n[1-8] together brings nothing in 2 of 3 jobs: rank 3 died`."""
        name = f"{self.test} on {set_name(self.nodes)} together"
        if self.lost_count:
            return f"{name} brings nothing in {self.lost_count} of {count_of(self.ran_count, 'job')}: {self.why}"
        return f"{name}: {self.ran_count} of {count_of(self.planned_count, 'job')} ran"


@dataclass(frozen=True, slots=True)
class RunTables:
    """Input of blame. tables: (test, higher is better, values). flaws: by node, what its evidence says.

    sleep: by test, in how many of its results a CPU slept deeply, in words. sets: tests of several nodes together, which
    blame does not use. units: of each test's values. pairs: by test, the series of each pair of nodes. failed_gates: what is
    beyond the gates of these runs. undisturbed: of each test with jobs that were measured only beside other work, the table
    without these.
    """

    cluster: str
    planned_count: int
    ran_count: int
    tables: tuple[tuple[str, bool, PairTable], ...] = ()
    failed: tuple[FailedTest, ...] = ()
    flaws: Mapping[str, str] = field(default_factory=dict)
    sleep: Mapping[str, str] = field(default_factory=dict)
    sets: tuple[SetTest, ...] = ()
    units: Mapping[str, str | None] = field(default_factory=dict)
    pairs: Mapping[str, tuple[tuple[int, Pair], ...]] = field(default_factory=dict)
    failed_gates: tuple[FailedGate, ...] = ()
    undisturbed: Mapping[str, PairTable] = field(default_factory=dict)


def tables_of(
    database: Connection,
    names: Sequence[str],
    wanted: Selection,
    groups: Mapping[str, str] | None,
    beside: Sequence[str] = (),
    *,
    named: Sequence[str] = (),
) -> RunTables:
    """The tests of these runs that `wanted` selects. groups: leaf switches, else as the scheduler reported them.

    beside: all runs that are judged; tests are named so that they differ among these. named: nodes that these name.
    Raises UserError if the runs measured several clusters and `wanted` names none.
    """
    place = pair_values.cluster_of(database, names, wanted.cluster)
    leaves = groups if groups is not None else leaves_of(database, place)
    run_ids = [run_id_of(database, name) for name in names]
    outcomes = outcomes_in(database, run_ids, replace(wanted, cluster=place))
    series = of_pairs(outcomes)
    nodes = {node for one in outcomes for node in nodes_of(one.client, one.server)}
    labels = pair_values.names_of_tests(database, [run_id_of(database, name) for name in beside] or run_ids)
    by_test: dict[str, list[SeriesOutcome]] = {}
    for one in series:
        by_test.setdefault(labels[one.test], []).append(one)
    flaws: dict[str, str] = {}
    for flaw in flaws_in(database, run_ids, place):
        if flaw.node in nodes:
            flaws[flaw.node] = f"{flaws[flaw.node]}; {flaw.words}" if flaw.node in flaws else flaw.words
    every = (_failed(test, part, leaves, flaws) for test, part in by_test.items())
    found = with_named_nodes([one for one in every if one is not None], named)
    theirs = {one.test: one.of_others for one in found}
    kinds = classes_of(database, place, sorted(nodes), run_ids)
    size = Counter(kinds.values())
    # the only node of its class has no peers: it is held against most nodes, as one whose facts do not say
    kinds = {node: kind if size[kind] > 1 else max(size, key=size.__getitem__) for node, kind in kinds.items()}
    tables = [
        (test, part[0].better == Better.HIGHER.value, _table(part, leaves, kinds, theirs.get(test, ())))
        for test, part in by_test.items()
    ]
    return RunTables(
        place,
        sum(len(one.jobs) for one in series),
        sum(bool(job.value_count or job.lost_count) for one in series for job in one.jobs),
        tuple(one for one in tables if len(one[2].value)),
        found,
        flaws,
        {test: words for test, words in pair_values.sleep_in(database, run_ids, place).items() if test in by_test},
        tuple(_set_test(labels[one.test], one) for one in outcomes if names_several(one.server)),
        {test: unit_of(part[0].metric) for test, part in by_test.items()},
        {test: tuple((one.series_id, (one.client, one.server)) for one in part) for test, part in by_test.items()},
        undisturbed={
            test: _table(part, leaves, kinds, theirs.get(test, ()), undisturbed=True)
            for test, part in by_test.items()
            if any(job.clean_value is None and job.value is not None for one in part for job in one.jobs)
        },
    )


def _set_test(test: str, one: SeriesOutcome) -> SetTest:
    ran = [job for job in one.jobs if job.value_count or job.lost_count]
    lost = sum(_lost(job.lost_count, job.value_count) for job in ran)
    return SetTest(test, nodes_of(one.client, one.server), len(one.jobs), len(ran), lost, one.why)


def _table(
    series: Sequence[SeriesOutcome],
    leaves: Mapping[str, str],
    kinds: Mapping[str, str],
    of_others: Collection[Pair],
    *,
    undisturbed: bool = False,
) -> PairTable:
    """One row per job. of_others: pairs that fail because of a node that other tests name; that is no result of this one."""
    rows: list[tuple[str, str, str, float]] = []
    for one in series:
        seen: dict[str, int] = {}
        for job in one.jobs:
            value = job.clean_value if undisturbed or job.clean_value is not None else job.value
            if _lost(job.lost_count, job.value_count):
                if (one.client, one.server) in of_others:
                    continue
                value = 0.0 if one.better == Better.HIGHER.value else float("1e300")
            if value is not None and one.better != Better.NONE.value:
                rows.append((f"{job.run} {seen.setdefault(job.run, 0)}", one.client, one.server, value))
                seen[job.run] += 1
    return PairTable.from_rows(rows, leaves, kinds)


def _failed(
    test: str, series: Sequence[SeriesOutcome], leaves: Mapping[str, str], flaws: Mapping[str, str]
) -> FailedTest | None:
    """The failures of a test, and what they accuse."""
    words: dict[Pair, PairVerdict] = {}
    jobs: dict[Pair, int] = {}
    ran = [one for one in series if any(job.value_count or job.lost_count for job in one.jobs)]
    for one in ran:
        lost = [job for job in one.jobs if _lost(job.lost_count, job.value_count)]
        jobs[one.client, one.server] = len(lost)
        tried = [job for job in one.jobs if job.value_count or job.lost_count]
        every = PairVerdict.BAD if len(lost) == len(tried) else PairVerdict.INTERMITTENT
        words[one.client, one.server] = every if lost else PairVerdict.FINE
    bad = sorted(pair for pair, word in words.items() if word is not PairVerdict.FINE)
    if not bad:
        return None
    found = find_culprits(words, dict(leaves), jobs)
    blamed = [*found.nodes, *(" - ".join(ends) for ends in found.links), *found.leaves]
    explained = {pair for part in (found.nodes, found.links, found.leaves) for those in part.values() for pair in those}
    left: list[Pair] = []
    for pair in sorted(set(bad) - explained):
        flawed = [end for end in pair if end in flaws and not set(pair) - {end} & set(flaws)]
        blamed += flawed
        left += [] if flawed else [pair]
    reasons = [one.why for one in ran if (one.client, one.server) in bad and one.why]
    why = min(set(reasons), key=lambda one: (-reasons.count(one), one)) if reasons else "no reason was given"
    return FailedTest(test, tuple(bad), len(words), sum(jobs.values()), why, tuple(dict.fromkeys(blamed)), tuple(left))


def with_named_nodes(failed: Sequence[FailedTest], named: Iterable[str]) -> tuple[FailedTest, ...]:
    """What fails on a pair of a node that another test names is that node's too, as for `hpcq accept`: no link, no open case.

    named: nodes that the values of these runs name, or the nights before them.
    """
    known = {*named, *(name for one in failed for name in one.blamed)}

    def explained(one: FailedTest) -> FailedTest:
        links = [name for name in one.blamed if " - " in name and known & set(name.split(" - "))]
        theirs = [pair for pair in one.pairs if known & set(pair) and (pair in one.unexplained or set(pair) in _ends(links))]
        blamed = [name for name in one.blamed if name not in links] + [end for pair in theirs for end in pair if end in known]
        left = tuple(pair for pair in one.unexplained if pair not in theirs)
        of_others = tuple(dict.fromkeys((*one.of_others, *theirs)))
        return replace(one, blamed=tuple(dict.fromkeys(blamed)), unexplained=left, of_others=of_others)

    return tuple(map(explained, failed))


def _ends(links: Iterable[str]) -> list[set[str]]:
    return [set(name.split(" - ")) for name in links]


def _lost(lost_count: int, value_count: int) -> bool:
    ran = lost_count + value_count
    return ran > 0 and lost_count / ran >= LOST_SHARE


def with_newest_run(found: Blame, newest: Blame) -> Blame:
    """What several runs together say, and whom the newest alone names besides: who was fine before is not slow in most jobs."""
    if found.groups:
        return found  # nodes and links of it are its parts
    named = {(one.kind, one.names) for one in (*found.nodes, *found.links, *found.groups)}
    added = {
        name: tuple(replace(one, in_newest_run=True) for one in getattr(newest, name) if (one.kind, one.names) not in named)
        for name in ("nodes", "links", "groups")
    }
    return replace(found, **{name: getattr(found, name) + more for name, more in added.items()})


def slow_only_beside_work(
    found: Blame,
    undisturbed: PairTable | None,
    *,
    higher_is_better: bool,
    minimum_effect_ratio: float = MINIMUM_EFFECT_RATIO,
) -> dict[Culprit, str]:
    """Culprits that blame would not name but for jobs that were measured beside other work, each with that in words.

    undisturbed: the table of the same test without these jobs, or None where it has none. The rest as blame was given it.
    """
    culprits = (*found.nodes, *found.links, *found.groups)
    if undisturbed is None or not culprits:
        return {}
    sure = blame(undisturbed, higher_is_better=higher_is_better, minimum_effect_ratio=minimum_effect_ratio)
    alone = {(one.kind, one.names) for one in (*sure.nodes, *sure.links, *sure.groups)}
    return {
        one: f"{100 * (1 - one.speed_ratio):.1f} % slower only in jobs beside other work: measure again"
        for one in culprits
        if (one.kind, one.names) not in alone
    }


def with_enough_jobs(
    found: Blame,
    standing: Standing | None,
    pairs: Sequence[tuple[int, Pair]],
    beside_work: Mapping[Culprit, str] | None = None,
) -> Blame:
    """Turn culprits with fewer than three slow jobs into open questions, and those against whom earlier nights speak.

    pairs: the series of the test, with their ends. Where the nights of these are enough to judge it, they decide whether a
    thing is told: one run alone does not. beside_work: of `slow_only_beside_work`; these are open questions too.
    """
    culprits = (*found.nodes, *found.links, *found.groups)
    known: dict[Culprit, str | None] = dict(beside_work or {})
    for one in culprits if standing is not None else ():
        thing, names = Thing(one.kind.value), set(one.names)
        touched = [number for number, ends in pairs if thing is Thing.GROUP or names <= set(ends)]
        said = standing.beside_one_run(thing, one.names, touched) if standing is not None else None
        known[one] = said or known.get(one)
    few = [one for one in culprits if known.get(one) or one.slow_count < JOBS_MIN]
    if not few:
        return found
    questions = [
        f"{' - '.join(one.names)}: "
        + (known.get(one) or f"slow in {count_of(one.slow_count, 'job')}: at least {JOBS_MIN} are needed before it is named")
        for one in few
    ]
    again = [(one.names[0], one.names[-1]) for one in few if len(one.names) == 2]
    return replace(
        found,
        nodes=tuple(one for one in found.nodes if one not in few),
        links=tuple(one for one in found.links if one not in few),
        groups=tuple(one for one in found.groups if one not in few),
        undecided=True,
        open_questions=(*found.open_questions, *questions),
        next_pairs=(*found.next_pairs, *again),
    )
