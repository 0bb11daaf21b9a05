"""Where the clusters of a database stand: what the judge says of their nights, groups, nodes and links.

    results.db  ->  job_values  ->  judge  ->  Standing: told and suspected causes, and how much could be judged

Every verb that judges asks here, so that none says fine of what another calls slow.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from hpcq import units
from hpcq.analysis.change import CLOSED, RECORDED, Block, Changed
from hpcq.analysis.change import Judged as JudgedSeries
from hpcq.judge.causes import Cause, Coverage, Judged, Role, State, Thing
from hpcq.kernels import PairTest
from hpcq.store.database import Connection, answered
from hpcq.store.ledger import unfit
from hpcq.store.selection import Window, metrics_of, moment, window
from hpcq.store.series import SeriesRows
from hpcq.verdict.words import Thing as Subject
from hpcq.verdict.words import Verdict, VerdictRecord

if TYPE_CHECKING:
    from hpcq.judge.confirming import Retest
    from hpcq.judge.judging import Watched
    from hpcq.judge.values import Values
    from hpcq.store.read.judged_values import SeriesSeen

#: Sorts after every continuation of a time.
_BEHIND = "~"
#: What is suspected to give this share of before, or less, is no pass until it is settled.
DOUBTFUL_RATIO = 0.9
#: So many series of a node that is suspected say the same as the suspicion.
AGREEING_SERIES = 3
#: The smallest loss of a node that a first line names would be told within so many of its nights.
SMALLEST_NIGHTS = 6
#: What is said of a node that did not pass its last acceptance, where nothing else is told of it.
NOT_ACCEPTED = {Verdict.FAILED: "failed acceptance", Verdict.DEGRADED: "degraded at acceptance"}
#: Things that consist of several nodes.
_OF_MANY = {Thing.CLASS, Thing.WITHIN, Thing.GROUP, Thing.BETWEEN}
#: What a node shares with others that are as slow.
_SHARED = {"night": "cluster", "class": "class", "group": "uplink"}
#: A single series may see the beginning of what is told so many days earlier than all jobs together do.
DECLARED_DAYS = 3
#: Fewer jobs than this decide nothing against what many nights say.
JOBS_MIN = 3


@dataclass(frozen=True)
class ClusterCause:
    """One thing of a cluster at fault: a cause of the judge (hpcq/judge/causes.py) with times and names of runs.

    ratio, low_ratio, high_ratio: 0.9 is 10 % worse than before; 0: nothing comes through. told_utc: None while it is
    suspected. role: client or server, of a node that is slow only as that end of its jobs. nearly_told: little is missing.
    members: of a class, a group, and a way between two groups, the nodes of each of `names`. whole: of a group, its nodes
    are as slow with each other.
    """

    cluster: str
    thing: str
    names: tuple[str, ...]
    tests: tuple[str, ...]
    state: str
    since_utc: str
    since_run: str
    told_utc: str | None
    ratio: float
    low_ratio: float
    high_ratio: float
    job_count: int
    reason: str
    role: str | None = None
    nearly_told: bool = False
    members: tuple[tuple[str, ...], ...] = ()
    whole: bool = False

    @property
    def is_told(self) -> bool:
        """Whether a person is told of it: the verdict of everything that it touches is DEGRADED."""
        return self.state == State.TOLD

    @property
    def is_doubt(self) -> bool:
        """Whether it may have lost a tenth or more, or is nearly told: nothing it touches passes until that is settled."""
        return self.state == State.SUSPECTED and (self.ratio <= DOUBTFUL_RATIO or self.nearly_told)

    @property
    def name(self) -> str:
        """`node alpha/n3`."""
        of_group = "nodes of" if self.whole else "uplink of"
        what = {"night": "cluster", "group": of_group, "within": "inside class"}.get(self.thing, self.thing)
        return f"{what} {self.cluster}" + (f"/{' - '.join(self.names)}" if self.names else "")

    @property
    def words(self) -> str:
        """`told: node alpha/n3: 50 % worse than before, ..., since 2026-11-20 02:00 UTC`."""
        return f"{self.state}: {self.name}: {self.reason}, since {self.since_utc[:16].replace('T', ' ')} UTC"

    def concerns(self, client: str, server: str) -> bool:
        """Whether it can make a test of this pair worse: of a class what meets it, of a group what leaves it."""
        if self.thing in _OF_MANY:
            return self._connects(client, server)
        if self.thing in {Thing.PAIR, Thing.LINK}:
            return self.names == (client, server) or (self.thing == Thing.LINK and self.names == (server, client))
        if self.role is not None:
            return self.names[0] == (client if self.role == Role.CLIENT else server)
        return self.thing == Thing.NIGHT or self.names[0] in {client, server}

    def _connects(self, client: str, server: str) -> bool:
        ends = [{place for place, nodes in enumerate(self._members) if one in nodes} for one in (client, server)]
        if self.thing == Thing.CLASS or self.whole:
            return bool(ends[0] | ends[1])
        if self.thing == Thing.WITHIN:
            return bool(ends[0] & ends[1]) and client != server
        if self.thing == Thing.GROUP:
            return bool(ends[0]) != bool(ends[1]) and bool(server)
        return ends[0] | ends[1] == {0, 1}

    def holds(self, node: str) -> bool:
        """Whether a node is slow together with others: all nodes of its cluster, of its class, or behind its uplink."""
        many = self.thing in {Thing.CLASS, Thing.GROUP} and any(node in nodes for nodes in self._members)
        return self.thing == Thing.NIGHT or many

    def names_node(self, node: str) -> bool:
        """Whether it is the node's, or a link of it, or a way between two groups of which the node is in one."""
        ends = {Thing.NODE, Thing.LINK, Thing.PAIR}
        return node in self.names if self.thing in ends else any(node in nodes for nodes in self._members)

    @cached_property
    def _members(self) -> tuple[frozenset[str], ...]:
        return tuple(frozenset(nodes) for nodes in self.members)

    def touches(self, row: PairTest) -> bool:
        """Whether it makes this test worse: one of its pairs, in a kernel where it shows."""
        return row.cluster == self.cluster and row.kernel in self.kernels and self.concerns(row.client, row.server)

    @cached_property
    def kernels(self) -> frozenset[str]:
        """The kernels of its tests."""
        return frozenset(one.partition(" ")[0] for one in self.tests)

    def to_json(self) -> dict[str, Any]:
        """All fields, by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SecondLook:
    """A node, link or group that was suspected and measured again in the same run. state: told, suspected or fine, after that.

    slow_count: of job_count jobs. why_not: why no job could measure it; empty if one did.
    """

    cluster: str
    thing: str
    names: tuple[str, ...]
    run: str
    suspected_utc: str
    ended_utc: str
    slow_count: int
    job_count: int
    state: str
    why_not: str = ""

    @property
    def words(self) -> str:
        """`suspected at 02:10, confirmed at 02:25 by 6 of 6 jobs`."""
        began, ended = self.suspected_utc[11:16], self.ended_utc[11:16]
        if self.why_not:
            return f"suspected at {began}, could not be confirmed: {self.why_not}"
        jobs = f"{self.slow_count} of {self.job_count} jobs"
        if self.state == State.TOLD:
            return f"suspected at {began}, confirmed at {ended} by {jobs}"
        if self.state == State.FINE:
            return f"suspected at {began}, not confirmed at {ended}: slow in {jobs}"
        return f"suspected at {began}, measured again at {ended} and slow in {jobs}: not enough to tell it tonight"

    @property
    def line(self) -> str:
        """The words with the suspect before them: `alpha/n7: suspected at 02:10, ...`."""
        what = {"node": "", "group": "uplink of ", "between": ""}.get(self.thing, f"{self.thing} ")
        return f"{what}{self.cluster}/{' - '.join(self.names)}: {self.words}"


@dataclass(frozen=True)
class Standing:
    """One cluster on the newest night of a stretch. causes: told, then suspected. second_looks: of that night.

    judged_series: series whose nodes have nights enough in this very test, whoever their partners were: the causes say
    whether it is worse. own_series: those of them that have nights enough themselves. smallest_told: the smallest loss of a
    node (0.1: a tenth) that would be told within SMALLEST_NIGHTS; None: not even a half.
    """

    cluster: str
    newest_run: str
    causes: tuple[ClusterCause, ...]
    coverage: tuple[Coverage, ...]
    judged_series: frozenset[int]
    own_series: frozenset[int]
    second_looks: tuple[SecondLook, ...] = ()
    #: what failed its last acceptance, until it passes one
    unfit: tuple[VerdictRecord, ...] = ()
    smallest_told: float | None = None
    #: when the newest run that was judged began
    newest_utc: str = ""
    #: Gives what was judged: read anew where the standing itself was kept (hpcq/store/database.py).
    values_of: Callable[[], Values] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def values(self) -> Values | None:
        """What was judged."""
        return None if self.values_of is None else self.values_of()

    def says_of(self, client: str, server: str, kernel: str | None = None) -> str:
        """The worst state of a cause that touches a pair, in this kernel or in any: told, suspected, or fine where none does.

        What failed its last acceptance is as good as told.
        """
        if any(one.concerns(client, server) for one in self.unfit):
            return str(State.TOLD)
        its = [one for one in self.causes if kernel is None or kernel in one.kernels]
        states = {one.state for one in its if one.concerns(client, server)}
        return str(next((one for one in (State.TOLD, State.SUSPECTED) if one in states), State.FINE))

    def doubts(self, client: str, server: str) -> bool:
        """Whether something that touches a pair is suspected to have lost a tenth or more: then none of its tests passes."""
        return any(one.is_doubt and one.concerns(client, server) for one in self.causes)

    def of_node(self, node: str) -> tuple[str, ClusterCause | None]:
        """A word on one node: told, suspected, fine, or why neither can be said; and the cause, if there is one.

        `told with its cluster`, class or uplink: nothing is said of the node alone, but it is as slow as they are.
        """
        its = [one for one in self.causes if one.thing == Thing.NODE and one.names[0] == node]
        its.sort(key=lambda cause: not cause.is_told)
        bad = next((one for one in self.unfit if one.kind is Subject.NODE and one.name == node), None)
        if bad is not None and not any(one.is_told for one in its):
            return NOT_ACCEPTED[bad.verdict], None
        for one in its:
            return one.state, one
        covered = self._coverage_of_nodes.get((node,))
        if covered is None or covered.judged is Judged.NOT_MEASURED:
            return str(Judged.NOT_MEASURED), None
        shared = [one for one in self.causes if one.holds(node) and (one.is_told or one.is_doubt)]
        for one in sorted(shared, key=lambda cause: not cause.is_told):
            return f"{one.state} with its {'group' if one.whole else _SHARED[one.thing]}", one
        return str(State.FINE if covered.judged is Judged.JUDGED else covered.judged), None

    @cached_property
    def _coverage_of_nodes(self) -> dict[tuple[str, ...], Coverage]:
        return {one.names: one for one in self.coverage if one.thing is Thing.NODE}

    def of_its_own(self, node: str) -> Standing:
        """The same without what other nodes, and links between others, are accused of."""
        ends = {Thing.NODE, Thing.LINK, Thing.PAIR}
        return replace(self, causes=tuple(one for one in self.causes if one.thing not in ends or node in one.names))

    def beside_one_run(self, thing: Thing, names: tuple[str, ...], series_ids: Collection[int]) -> str | None:
        """Why a node, link or group is not named that one run alone calls slow; None: the nights do not speak against it.

        series_ids: of the test in question, those that touch it. Where it is told, or where too few nights know one of
        them, the run's word stands.
        """
        touching = [
            one for one in self.causes if one.thing not in {Thing.NODE, Thing.LINK, Thing.PAIR} or set(one.names) & set(names)
        ]
        if any(one.is_told for one in touching) or any(set(one.nodes) & set(names) for one in self.unfit):
            return None
        if not series_ids or not self.judged_series.issuperset(series_ids):
            return None
        if any(one.state == State.SUSPECTED for one in touching):
            return "suspected: slow in this run, and not yet on enough nights to be told"
        if thing is Thing.LINK and not self.own_series.issuperset(series_ids):
            return "slow in this run, while both ends are fine with others: measured too rarely to say since when"
        return "slower than the others in this run, and no slower than on its earlier nights"


def standings(database: Connection, clusters: Iterable[str], since: str, metric: str | None = None) -> tuple[Standing, ...]:
    """Where each of these clusters stands at the end of the stretch `since`; coverage counts from its beginning on.

    since: words for a time, as --since takes them: `A..B` means as if it were B, a run as if it were the newest. metric: its
    name; None is each kernel's main one. All nodes and earlier nights are read: what everything has in common is seen only
    where everything is read. A cluster without values is left out. Raises UserError for words that name no time.
    """
    begin, until = bounds_of(database, since)
    # Which nights those are: the same a moment later, where no run began between.
    nights = database.execute(
        "SELECT sum(substr(created_utc, 1, 19) || 'Z' < :begin), sum(created_utc < :until) FROM run",
        {"begin": begin, "until": until},
    ).fetchone()
    found = []
    for cluster in sorted(set(clusters)):
        read = cache(partial(_read, database, cluster, metric, Window(since, until_utc=until)))
        question = {"standing of": cluster, "metric": metric, "runs before": tuple(nights)}
        kept = answered(database, question, partial(_as_kept, database, cluster, read, begin))
        if kept is not None:
            newest = _of_kept(kept, read)
            found.append(replace(newest, unfit=tuple(unfit(database, cluster, until))))
    return tuple(found)


def _read(database: Connection, cluster: str, metric: str | None, within: Window) -> tuple[Values, SeriesSeen]:
    # It loads numpy, which verbs that only read do not need.
    from hpcq.store.read.judged_values import job_values

    return job_values(database, cluster, metrics_of(database, metric), within)


def _as_kept(
    database: Connection, cluster: str, read: Callable[[], tuple[Values, SeriesSeen]], begin: str
) -> dict[str, Any] | None:
    """The newest standing as JSON; None where nothing was measured."""
    from hpcq.judge.judging import watch

    values, seen = read()
    if not values.nights:
        return None
    utc = [_utc(night.utc_s) for night in values.nights]
    first = next((place for place, one in enumerate(utc) if one >= begin), len(utc))
    one = _standing(database, cluster, watch(values), seen, first, len(utc) - 1)
    return {
        "cluster": one.cluster,
        "newest_run": one.newest_run,
        "newest_utc": one.newest_utc,
        "causes": [asdict(each) for each in one.causes],
        "coverage": [astuple(each) for each in one.coverage],
        "judged_series": _steps(one.judged_series),
        "own_series": _steps(one.own_series),
        "second_looks": [asdict(each) for each in one.second_looks],
        "smallest_told": one.smallest_told,
    }


def _of_kept(kept: Mapping[str, Any], read: Callable[[], tuple[Values, SeriesSeen]]) -> Standing:
    return Standing(
        kept["cluster"],
        kept["newest_run"],
        tuple(ClusterCause(**_with_tuples(one)) for one in kept["causes"]),
        tuple(
            Coverage(Thing(thing), tuple(names), Judged(judged), job_count, missing)
            for thing, names, judged, job_count, missing in kept["coverage"]
        ),
        frozenset(accumulate(kept["judged_series"])),
        frozenset(accumulate(kept["own_series"])),
        tuple(SecondLook(**_with_tuples(one)) for one in kept["second_looks"]),
        smallest_told=kept["smallest_told"],
        newest_utc=kept["newest_utc"],
        values_of=lambda: read()[0],
    )


def _steps(numbers: Iterable[int]) -> list[int]:
    """Numbers in their order as steps from one to the next: half a million of them are short text."""
    ordered = sorted(numbers)
    return [number - last for last, number in zip([0, *ordered], ordered, strict=False)]


def _with_tuples(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _tuple(value) if isinstance(value, list) else value for name, value in row.items()}


def _tuple(value: list[Any]) -> tuple[Any, ...]:
    return tuple(_tuple(one) if isinstance(one, list) else one for one in value)


def second_measurements(database: Connection, cluster: str, run: str, jobs_at_most: int | None) -> tuple[Retest, ...]:
    """What to measure again in this run, as if it were the newest: its suspects with good partners.

    jobs_at_most: None is what the judge takes by itself.
    """
    from hpcq.judge.confirming import JOBS_AT_MOST, plan
    from hpcq.judge.judging import watch
    from hpcq.store.read.judged_values import job_values

    until_utc = bounds_of(database, run)[1]
    values, _ = job_values(database, cluster, metrics_of(database, None), Window(run, until_utc=until_utc))
    if not values.nights or values.nights[-1].name != run:
        return ()
    return plan(watch(values), JOBS_AT_MOST if jobs_at_most is None else jobs_at_most)


def _second_looks(database: Connection, cluster: str, watched: Watched) -> tuple[SecondLook, ...]:
    """Each suspect that was to be measured again: what came of it, by the night's run.

    A state of an earlier night is what that night said, of the newest what is said now.
    """
    query = (
        "SELECT r.name AS run, n.name AS client, m.name AS server, rc.suspected_utc, count(DISTINCT j.job_id) AS job_count,"
        " max(a.ended_utc) AS ended_utc, max(x.outcome <> 'not_measured') AS measured, min(x.reason) AS reason"
        " FROM job j INDEXED BY job_confirms"
        " JOIN run_cluster rc ON rc.run_cluster_id = j.run_cluster_id JOIN run r ON r.run_id = rc.run_id"
        " JOIN cluster c ON c.cluster_id = rc.cluster_id JOIN node n ON n.node_id = j.client_node_id"
        " JOIN node m ON m.node_id = j.server_node_id"
        " JOIN result x ON x.job_id = j.job_id AND x.final = 1 LEFT JOIN attempt a ON a.attempt_id = x.attempt_id"
        " WHERE j.purpose = 'confirmation' AND c.name = ? GROUP BY j.run_cluster_id, n.node_id, m.node_id"
        " ORDER BY r.created_utc, n.name, m.name"
    )
    nights = {night.name: index for index, night in enumerate(watched.values.nights)}
    places = {name: index for index, name in enumerate(watched.values.nodes)}
    again = {(one.night, one.thing, one.index): one for one in watched.again}
    jobs: dict[tuple[str, Thing, int], list[dict[str, Any]]] = {}
    for row in database.execute(query, (cluster,)):
        if row["run"] in nights and {row["client"], row["server"]} <= places.keys():
            about = watched.about(nights[row["run"]], places[row["client"]], places[row["server"]])
            jobs.setdefault((row["run"], *about), []).append(dict(row))
    found = []
    for (run, thing, index), rows in jobs.items():
        its = [(thing, index), *watched.roles_of(thing, index)]
        looks = [look for key in its if (look := again.get((nights[run], *key))) is not None]
        look = next((one for one in looks if one.confirmed), looks[0] if looks else None)
        measured = any(row["measured"] for row in rows)
        suspected = any(place in watched.suspects.get(what, []) for what, place in its) or not measured
        state = State.TOLD if look and look.confirmed else State.SUSPECTED if suspected else State.FINE
        why_not = "" if measured else str(rows[0]["reason"]).removeprefix("not run: ")
        slow, count = (look.slow_jobs, look.job_count) if look else (0, sum(int(row["job_count"]) for row in rows))
        began = str(rows[0]["suspected_utc"])
        ended = max((str(row["ended_utc"]) for row in rows if row["ended_utc"]), default=began)
        names = watched.names(thing, index)
        found.append(
            SecondLook(
                cluster,
                str(Thing.NODE if thing is Thing.ROLE else thing),
                names,
                run,
                began,
                ended,
                slow,
                count,
                state.value,
                why_not,
            )
        )
    return tuple(found)


def standing_after(database: Connection, cluster: str, runs: Mapping[str, str]) -> dict[str, Standing]:
    """Where a cluster stood after each of these runs (created_utc by name), in one pass over its nights.

    A run before the first value is left out. What is judged are the series of the run: all of a cluster would be millions of
    numbers by now.
    """
    from hpcq.judge.judging import FALSE_MORNINGS, Watched
    from hpcq.judge.values import by_night
    from hpcq.store.read.judged_values import job_values, series_ids_of_run

    values, seen = job_values(database, cluster, metrics_of(database, None), Window("all"))
    watched = Watched(values, by_night(values), FALSE_MORNINGS)
    utc = [_utc(night.utc_s) for night in values.nights]
    found = {}
    for index, (begin, end) in enumerate(zip(utc, [*utc[1:], _BEHIND], strict=True)):
        watched.add(index)
        for run, created in runs.items():
            if begin <= created[:19] + "Z" < end:
                of_run = seen.only(series_ids_of_run(database, run))
                found[run] = _standing(database, cluster, watched, of_run, index, index)
    return found


def _standing(  # noqa: PLR0917 - a site after some of its nights
    database: Connection, cluster: str, watched: Watched, seen: SeriesSeen, first: int, newest: int
) -> Standing:
    """After the night `newest`, which is the last one that was added; coverage from the night `first` on (an index each)."""
    from hpcq.judge.judging import ENOUGH_NIGHTS
    from hpcq.judge.values import NOBODY

    nights = watched.values.nights
    utc, names = [_utc(night.utc_s) for night in nights], [night.name for night in nights]
    judgement = watched.judgement(first)
    looks = _second_looks(database, cluster, watched)
    open_ones = [one for one in judgement.causes if one.state is not State.ENDED]
    causes = tuple(_cause(cluster, one, (utc, names), looks, watched.values) for one in open_ones)
    enough = watched.levels[Thing.NODE].nights >= ENOUGH_NIGHTS  # nodes x tests
    judged = enough[seen.client, seen.test] & (enough[seen.server, seen.test] | (seen.server == NOBODY))
    own = judged & (seen.night_count >= ENOUGH_NIGHTS)
    ids = [frozenset(seen.series_id[one].tolist()) for one in (judged, own)]
    tonight = tuple(one for one in looks if one.run == names[newest])
    smallest = watched.levels[Thing.NODE].smallest_told(SMALLEST_NIGHTS)
    return Standing(
        cluster,
        names[newest],
        causes,
        judgement.coverage,
        ids[0],
        ids[1],
        tonight,
        smallest_told=smallest,
        newest_utc=utc[-1],
        values_of=lambda: watched.values,
    )


@dataclass(frozen=True, slots=True)
class CauseNight:
    """What the jobs of one thing brought on one night. middle, low, high: shares of what is usual in the test, 1.0 is usual.

    disturbed: all of them were measured beside other work.
    """

    started_utc: str
    run: str
    middle: float
    low: float
    high: float
    job_count: int
    disturbed: bool


@dataclass(frozen=True, slots=True)
class CauseNights:
    """One cause night by night. before, after: its level on both sides of the night since which; None where nothing is known.

    band: the middle 90 % of its jobs before that.
    """

    cause: ClusterCause
    nights: tuple[CauseNight, ...]
    before: float | None
    after: float | None
    band: tuple[float, float] | None


def nights_of_cause(cause: ClusterCause, standing: Standing, from_utc: str) -> CauseNights | None:
    """The nights of a cause from `from_utc` on; None where it measured nothing.

    Usual in a test is the median of the whole cluster before the cause began, of all its nights where there are none.
    """
    import numpy as np

    from hpcq.judge.values import Outcome

    values = standing.values
    if values is None or standing.cluster != cause.cluster:
        return None
    utc = [_utc(night.utc_s) for night in values.nights]
    old = np.array([one < cause.since_utc for one in utc])[values.night]
    quiet = values.outcome == Outcome.MEASURED
    usual = np.full(len(values.tests), np.nan)
    rows = np.isfinite(values.value) & _rows_of(cause, values)
    for test in np.unique(values.test[rows]):
        of_test = np.isfinite(values.value) & (values.test == test)
        first = next((some for some in (of_test & quiet & old, of_test & quiet) if some.any()), of_test)
        usual[test] = np.median(values.value[first])
    share = np.exp(values.value - usual[values.test])
    nights = []
    for night in np.unique(values.night[rows & np.array([one >= from_utc for one in utc])[values.night]]):
        here = rows & (values.night == night)
        undisturbed = here & quiet
        of_night = share[undisturbed if undisturbed.any() else here]
        found = (float(np.median(of_night)), float(of_night.min()), float(of_night.max()))
        nights.append(CauseNight(utc[night], values.nights[night].name, *found, len(of_night), not undisturbed.any()))
    if not nights:
        return None
    before, after = share[rows & quiet & old], share[rows & quiet & ~old]
    return CauseNights(
        cause,
        tuple(nights),
        float(np.median(before)) if len(before) else None,
        float(np.median(after)) if len(after) else None,
        (float(np.quantile(before, 0.05)), float(np.quantile(before, 0.95))) if len(before) else None,
    )


def _rows_of(cause: ClusterCause, values: Values) -> Any:
    """Which jobs say something about a cause: a mask over the jobs."""
    import numpy as np

    tests = np.isin(values.test, [place for place, one in enumerate(values.tests) if one.name in cause.tests])
    return tests & _ends_of(cause, values)


def _ends_of(cause: ClusterCause, values: Values) -> Any:
    """Which jobs have the ends that the judge looks at for such a thing, whatever their test."""
    import numpy as np

    from hpcq.judge.levels import classes_met, groups_crossed

    if cause.thing == Thing.NIGHT:
        return np.ones(len(values.night), bool)
    if cause.thing in {Thing.NODE, Thing.LINK, Thing.PAIR}:
        places = [values.nodes.index(name) for name in cause.names if name in values.nodes]
        client, server = np.isin(values.client, places), np.isin(values.server, places)
        if cause.thing == Thing.PAIR:
            client, server = values.client == places[0], values.server == places[-1]
        if cause.role is not None:
            return client if cause.role == Role.CLIENT else server
        return client | server if cause.thing == Thing.NODE else client & server
    names = values.classes if cause.thing in {Thing.CLASS, Thing.WITHIN} else values.groups
    places = [names.index(name) for name in cause.names if name in names]
    of_jobs = values.client.astype(np.int64), values.server.astype(np.int64)
    if cause.thing in {Thing.CLASS, Thing.WITHIN}:
        ends = classes_met(*of_jobs, values.node_class.astype(np.int64))[cause.thing == Thing.WITHIN]
    else:
        ends = groups_crossed(*of_jobs, values.node_group.astype(np.int64))
    its = np.isin(ends, places)
    return its.all(axis=1) if cause.thing == Thing.BETWEEN else its.any(axis=1)


def touching(
    found: Iterable[Standing], pairs: Iterable[tuple[str, str, str]], changes: Iterable[tuple[Changed, str | None]] = ()
) -> list[ClusterCause]:
    """The causes that can make a test of one of these pairs (cluster, client, server) worse, and those of their nodes.

    Of a node that is slow one way, pairs that measured it the other way are no proof that it is fine.
    changes: those of single series, each with what a person said of it. What was told is `expected` where a person declared
    all of its changes expected or false.
    """
    ends, declared = set(pairs), list(changes)
    return [_with_expected(cause, declared) for one in found for cause in one.causes if _measures(ends, cause)]


def told_before(
    database: Connection, found: Iterable[Standing], pairs: Iterable[tuple[str, str, str]], run_ids: Sequence[int]
) -> list[ClusterCause]:
    """What is told of nodes and links that these runs did not measure, while earlier runs of their campaigns did.

    It stays told until newer values speak for the old level, and a run that has none of it brings no such values. What only
    other campaigns measured is not theirs, and what a person called expected is no alarm. pairs: (cluster, client, server),
    those that the runs measured.
    """
    ends = set(pairs)
    return [
        replace(cause, reason=f"{cause.reason}; not measured this time")
        for one in found
        for cause in one.causes
        if cause.is_told and cause.thing in {Thing.NODE, Thing.LINK, Thing.PAIR} and not _measures(ends, cause)
        if _was_measured(database, cause, run_ids) and not _was_declared(database, cause)
    ]


def _measures(pairs: Collection[tuple[str, str, str]], cause: ClusterCause) -> bool:
    """Whether one of these pairs (cluster, client, server) is the cause's, or one of its node.

    Of a node that is slow one way, pairs that measured it the other way are no proof that it is fine.
    """
    return any(
        cluster == cause.cluster and (cause.concerns(*pair) or (cause.role is not None and cause.names[0] in pair))
        for cluster, *pair in pairs
    )


def _series_of(cause: ClusterCause) -> tuple[str, tuple[str, ...]]:
    """A condition on series `s`, and its values: the cause's node is an end, or its two nodes are both."""
    node = "SELECT n.node_id FROM node n JOIN cluster c ON c.cluster_id = n.cluster_id WHERE c.name = ? AND n.name = ?"
    either = f"(s.client_node_id = ({node}) OR s.server_node_id = ({node}))"
    values = tuple(word for name in cause.names for word in 2 * (cause.cluster, name))
    return " AND ".join(either for _ in cause.names), values


def _was_measured(database: Connection, cause: ClusterCause, run_ids: Sequence[int]) -> bool:
    """Whether an earlier run of the campaigns of these runs measured what the cause names."""
    its, values = _series_of(cause)
    marks = ",".join("?" * len(run_ids))
    query = (  # question marks and names of columns only
        "SELECT 1 FROM series s JOIN result x ON x.series_id = s.series_id AND x.outcome = 'measured'"  # noqa: S608
        " JOIN job j ON j.job_id = x.job_id JOIN run_cluster rc ON rc.run_cluster_id = j.run_cluster_id"
        f" JOIN run r ON r.run_id = rc.run_id WHERE {its}"
        f" AND r.campaign_id IN (SELECT campaign_id FROM run WHERE run_id IN ({marks}))"
        f" AND r.created_utc <= (SELECT max(created_utc) FROM run WHERE run_id IN ({marks})) LIMIT 1"
    )
    return database.execute(query, (*values, *run_ids, *run_ids)).fetchone() is not None


def _was_declared(database: Connection, cause: ClusterCause) -> bool:
    """Whether a person called all recorded changes of what the cause names expected or false, since it began."""
    its, values = _series_of(cause)
    began = (units.parse_utc(cause.since_utc) - dt.timedelta(days=DECLARED_DAYS)).strftime("%Y-%m-%dT%H:%M:%SZ")
    query = (  # names of columns only
        "SELECT (SELECT t.state FROM change_state t WHERE t.change_id = h.change_id ORDER BY t.state_no DESC LIMIT 1) AS state"  # noqa: S608
        f" FROM change h JOIN series s ON s.series_id = h.series_id WHERE h.direction <> 'better' AND {its}"
        " AND h.at_utc >= ?"
    )
    states = {row["state"] for row in database.execute(query, (*values, began))}
    return bool(states) and states <= CLOSED


def unfit_of(found: Iterable[Standing], pairs: Iterable[tuple[str, str, str]]) -> list[VerdictRecord]:
    """What failed its last acceptance, of what these pairs (cluster, client, server) share, and is not told anyway."""
    ends = set(pairs)
    return [
        one
        for standing in found
        for one in standing.unfit
        if not any(cause.is_told and set(cause.names) == set(one.nodes) for cause in standing.causes)
        and any(cluster == standing.cluster and one.concerns(client, server) for cluster, client, server in ends)
    ]


def _with_expected(cause: ClusterCause, changes: Iterable[tuple[Changed, str | None]]) -> ClusterCause:
    its = [
        state in CLOSED
        for one, state in changes
        if one.row.cluster == cause.cluster
        and cause.concerns(one.row.client, one.row.server)
        and one.level.sure
        and one.level.direction != "better"
    ]
    return replace(cause, state="expected") if cause.is_told and its and all(its) else cause


@dataclass(frozen=True, slots=True)
class BesideNights:
    """What the nights say of single series. noise: changes that are no alarm, by id(). unclear, fine: by series_id."""

    noise: frozenset[int] = frozenset()
    unclear: frozenset[int] = frozenset()
    fine: frozenset[int] = frozenset()


def beside_nights(judged: JudgedSeries, rows: SeriesRows, found: Iterable[Standing]) -> BesideNights:
    """Hold what single series say against the nights of their clusters, where both ends are judged in that test.

    Of thousands of series some always look worse by chance: without anything that is told, that is noise. Not so what
    brings nothing any more, what was recorded before, and what three series or more of one suspected node say. Unclear is
    what both suspect, what touches a thing that is suspected to have lost a tenth, and what failed once, on a night before
    the newest, while its nodes are fine with others. The rest is as fine as its nodes, also where it has few values of its
    own.
    """
    by_cluster = {one.cluster: one for one in found}
    sure = [one for one in judged.changes if one.level.sure and one.level.direction not in {"better", "gone"}]
    said_by = Counter((one.row.cluster, node) for one in sure for node in {one.row.client, one.row.server})
    noise, unclear, fine = set[int](), set[int](), set[int]()
    for one in sure:
        row = one.row
        standing = by_cluster.get(row.cluster)
        if standing is None or one.level.method == RECORDED or row.series_id not in standing.judged_series:
            continue
        suspected = {cause.names[0] for cause in standing.causes if cause.thing == Thing.NODE}
        agreed = any(node in suspected and said_by[row.cluster, node] >= AGREEING_SERIES for node in (row.client, row.server))
        if standing.says_of(row.client, row.server) != State.TOLD and not agreed:
            noise.add(id(one))
            unclear |= {row.series_id} if standing.says_of(row.client, row.server) == State.SUSPECTED else set()
    for one in judged.changes:
        if (its := by_cluster.get(one.row.cluster)) is not None and _failed_once(one, its):
            noise.add(id(one))
            unclear.add(one.row.series_id)
    for cluster, standing in by_cluster.items():
        judged_there = rows.of(chain(standing.judged_series, judged.judged_ids)).of_cluster(cluster)
        in_doubt, accused = set[int](), set[int]()
        for cause in standing.causes:
            concerned = judged_there.where(judged_there.concerned_by(cause))
            in_doubt |= concerned.ids if cause.is_doubt else set()
            accused |= concerned.of_kernels(cause.kernels).ids if cause.state in {State.TOLD, State.SUSPECTED} else set()
        for bad in standing.unfit:
            accused |= judged_there.where(judged_there.concerned_by(bad)).ids
        unclear |= in_doubt & judged.judged_ids
        fine |= (judged_there.ids & standing.judged_series) - in_doubt - accused
    return BesideNights(frozenset(noise), frozenset(unclear), frozenset(fine - unclear))


def _failed_once(one: Changed, standing: Standing) -> bool:
    """Whether a single job of a pair failed, on a night before the newest, and neither end is in doubt, nor the link told.

    Where other pairs run each night it is not tried again for weeks, and one job in a hundred always fails.
    """
    if one.level.direction != "gone" or one.level.after_count != 1:
        return False
    row, its_own = one.row, {Thing.LINK, Thing.PAIR}
    its = [cause for cause in standing.causes if cause.concerns(row.client, row.server)]
    fine = all(cause.thing in its_own and not cause.is_told for cause in its) and row.series_id in standing.judged_series
    return fine and one.at_utc < standing.newest_utc


def told_series(causes: Iterable[ClusterCause], rows: SeriesRows, unfit_things: Iterable[VerdictRecord] = ()) -> set[int]:
    """The series that a told thing touches, or one that failed its last acceptance: degraded with it, whatever few values say.

    Returns series_ids.
    """
    found = set[int]()
    for cause in causes:
        if cause.is_told:
            found |= rows.where(rows.concerned_by(cause) & rows.are_of_kernels(cause.kernels)).ids
    for bad in unfit_things:
        found |= rows.where(rows.concerned_by(bad)).ids
    return found


#: A series that kept less than this share of what a told thing leaves it has something of its own, too.
_MUCH_WORSE = 0.85


def explaining(block: Block, causes: Iterable[ClusterCause]) -> list[ClusterCause]:
    """The told things that make all series of a block worse, unless they got worse than that."""
    over = [one for one in causes if one.is_told and all(one.touches(member.changed.row) for member in block.members)]
    lost = min((min(one, 1 / one) for one in block.ratios if one > 0), default=0.0)
    return over if over and block.direction == "worse" and lost >= _MUCH_WORSE * min(one.ratio for one in over) else []


def unexplained(blocks: Iterable[Block], causes: Collection[ClusterCause]) -> list[Block]:
    """Without the blocks that accuse a part of what is told: the first series of each told thing stands as its example."""
    kept, exemplified = list[Block](), set[str]()
    for block in blocks:
        over = explaining(block, causes)
        names, its = {one.name for one in over}, {one.thing for one in over}
        if over and block.kind == "link" and not its & {"link", "pair", "between"}:
            continue
        if over and block.kind in {"node", "nodes"} and not its & {"node", "link", "pair"}:
            continue
        if over and block.kind == "series" and names <= exemplified:
            continue
        exemplified |= names
        kept.append(block)
    return kept


#: What a verdict is about where the judge tells of it. A class is a group of nodes, a way between two groups a link, as where
#: an acceptance names it.
_SUBJECTS = {
    "night": Subject.CLUSTER,
    "class": Subject.GROUP,
    "within": Subject.GROUP,
    "group": Subject.GROUP,
    "between": Subject.LINK,
    "node": Subject.NODE,
    "link": Subject.LINK,
    "pair": Subject.LINK,
}


def with_told(records: Iterable[VerdictRecord], found: Iterable[Standing]) -> list[VerdictRecord]:
    """Verdicts of a ledger, and of what the judge tells of: this is degraded, unless the ledger says that or worse."""
    kept = {(one.cluster, one.kind, one.name): one for one in records}
    for standing in found:
        for cause in standing.causes:
            if not cause.is_told:
                continue
            subject = _SUBJECTS[cause.thing]
            name = " - ".join(sorted(cause.names)) or cause.cluster
            known = kept.get((cause.cluster, subject, name))
            if known is None or known.verdict not in {Verdict.DEGRADED, Verdict.FAILED}:
                kept[cause.cluster, subject, name] = VerdictRecord(
                    subject,
                    name,
                    Verdict.DEGRADED,
                    cause.words,
                    tuple(chain.from_iterable(cause.members)) or cause.names,
                    cause.ratio,
                    cluster=cause.cluster,
                    decided_utc=cause.told_utc or cause.since_utc,
                    run=standing.newest_run,
                )
    return list(kept.values())


def bounds_of(database: Connection, since: str) -> tuple[str, str | None]:
    """When a stretch begins and ends; None: it goes on. Its words may also be a run, several, or `A..B`."""
    meant = window(database, since)
    if meant.run_ids is not None:
        marks = ",".join("?" * len(meant.run_ids))
        query = f"SELECT min(created_utc), max(created_utc) FROM run WHERE run_id IN ({marks})"  # noqa: S608 - question marks only
        first, last = database.execute(query, meant.run_ids).fetchone()
        is_newest = last == database.execute("SELECT max(created_utc) FROM run").fetchone()[0]
        return str(first)[:19], None if is_newest else str(last) + _BEHIND
    return moment(database, since) if meant.from_utc is not None else "", meant.until_utc if ".." in since else None


def _cause(
    cluster: str, one: Cause, nights: tuple[list[str], list[str]], looks: Collection[SecondLook], values: Values
) -> ClusterCause:
    """nights: when each began, and the name of its run."""
    utc, runs = nights
    reason = one.reason
    thing = Thing.LINK if one.thing is Thing.PAIR else one.thing
    for look in looks if one.told is not None else ():
        if (look.thing, set(look.names), look.run) == (thing, set(one.names), runs[one.told or 0]):
            reason = reason.replace("confirmed the same night", look.words)
    if shown := _shown_tests(one.tests, [test.name for test in values.tests]):
        reason = f"{shown}: {reason}"
    return ClusterCause(
        cluster,
        one.thing.value,
        one.names,
        one.tests,
        one.state.value,
        utc[one.since],
        runs[one.since],
        None if one.told is None else utc[one.told],
        one.effect.ratio,
        one.effect.low_ratio,
        one.effect.high_ratio,
        one.job_count,
        reason,
        None if one.role is None else one.role.value,
        one.nearly_told,
        _members(one, values),
        one.whole,
    )


def _members(one: Cause, values: Values) -> tuple[tuple[str, ...], ...]:
    """Of a class, a group or the way between two groups: its nodes, and those of the other end."""
    if one.thing not in _OF_MANY:
        return ()
    of_class = one.thing in {Thing.CLASS, Thing.WITHIN}
    its, names = (values.node_class, values.classes) if of_class else (values.node_group, values.groups)
    places = [names.index(name) if name in names else int(name) for name in one.names]
    return tuple(tuple(node for node, of in zip(values.nodes, its.tolist(), strict=True) if of == place) for place in places)


_TESTS_SHOWN = 3


def _shown_tests(tests: Collection[str], every: Collection[str]) -> str:
    """`udp_pingpong`, `tcp_stream message_bytes=64`: the tests in which a cause shows; empty where all of them do."""
    if set(every) <= set(tests):
        return ""
    kernel_of = {name: name.partition(" ")[0] for name in every}
    whole = {kernel for kernel in kernel_of.values() if all(name in tests for name in every if kernel_of[name] == kernel)}
    shown = [kernel_of[name] if kernel_of[name] in whole else _told_apart(name, every) for name in tests]
    shown = list(dict.fromkeys(shown))
    more = f" and {len(shown) - _TESTS_SHOWN} more tests" if len(shown) > _TESTS_SHOWN else ""
    return ", ".join(shown[:_TESTS_SHOWN]) + more


def _told_apart(name: str, every: Iterable[str]) -> str:
    """A test with what it does not share with all others of its kernel: parameters, and words like network and toolchain."""
    kernel, parameters, words = _parts(name)
    others = [_parts(one) for one in every if one != name and _parts(one)[0] == kernel]
    own = [f"{key}={value}" for key, value in parameters.items() if any(its.get(key) != value for _, its, _ in others)]
    own += [word for word in words if any(word not in theirs for _, _, theirs in others)]
    return " ".join([kernel, *own])


def _parts(name: str) -> tuple[str, dict[str, Any], list[str]]:
    """Kernel, parameters and the other words of a test's name: `tcp_stream {"message_bytes":64} eth0 throughput_bps`."""
    kernel, _, rest = name.partition(" ")
    parameters, end = json.JSONDecoder().raw_decode(rest)
    return kernel, dict(parameters), rest[end:].split()


def _utc(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
