"""`hpcq regressions`: which series got worse, since when, by how much, and what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcq import units
from hpcq.cli.options import chosen, database_option, filter_options, json_option
from hpcq.cli.output import print_json, print_words, says_that_it_works
from hpcq.errors import Exit

if TYPE_CHECKING:
    from hpcq.analysis.change import Block, Explained, Judged
    from hpcq.analysis.gates import FailedGate
    from hpcq.analysis.standing import ClusterCause, Standing
    from hpcq.store.selection import Selection, Window
    from hpcq.store.series import SeriesRows
    from hpcq.verdict.levels import Level
    from hpcq.verdict.node_sets import PairsOfSet
    from hpcq.verdict.words import Tally, VerdictRecord


# ----------------------------------------------------------------------------------------------------------------------
# Print a change of level, and blocks of them: the same for `regressions`, `history` and `compare`.


def print_change(one: Explained, state: str | None = None) -> None:
    """Print one change with what differs between its sides, events in between, and findings of the evidence."""
    row, level, metric = one.changed.row, one.changed.level, one.changed.metric
    word = level.direction if level.sure else f"perhaps {level.direction}"
    marks = [mark for mark, holds in (("old level is back", level.came_back), (state or "", bool(state))) if holds]
    print_words(f"{word}: {row.label}, {metric.name}, since {_minute(one.changed.at_utc)}{_bracketed(marks)}")
    print_words(
        f"    {_effect(level, metric.unit)}, {level.before_count} points before, {level.after_count} after: {level.reason}"
    )
    if one.own_build:
        print_words("    hpcq's own program changed there: this is no change of the machine until the old program shows it too")
    for cause in one.causes[:4]:
        print_words(f"    differs by {cause.separation * 100:.0f} %  {cause.words}")
    for event in one.events[:4]:
        print_words(f"    meanwhile       {event.words}")
    for symptom in one.symptoms[:4]:
        print_words(f"    evidence        {symptom.words}")
    if not one.causes and not one.events:
        print_words("    hpcq knows of no difference between the two sides")


def print_block(block: Block, states: Mapping[int, str | None], *, everything: bool) -> None:
    """Print a block of changes; one change alone is printed whole. states: of each member's record, by the member's id()."""
    if len(block.members) == 1:
        print_change(block.members[0], states[id(block.members[0])])
        print_pairs(block.pairs)
        return
    marks = sorted({state for state in states.values() if state})
    if all(one.changed.level.came_back for one in block.members):
        marks.insert(0, "old level is back")
    sure = any(one.changed.level.sure for one in block.members)
    word = block.direction if sure else f"perhaps {block.direction}"
    count = f"{len(block.members)} of {units.count_of(block.judged_count, 'series')}"
    since = f", since {_minute(block.since_utc)}" if block.since_utc else ""
    name = block.name if block.kind == "cluster" else f"{block.cluster}/{block.name}"
    print_words(f"{word}: {block.kind} {name}: {count}{_change_of(block)}{since}{_bracketed(marks)}")
    if block.own_build:
        print_words("    hpcq's own program changed there: this is no change of the machine until the old program shows it too")
    for words in block.causes[:_BLOCK_LINES]:
        print_words(f"    differs         {words}")
    for words in block.events[:_BLOCK_LINES]:
        print_words(f"    meanwhile       {words}")
    for words in block.symptoms[:_BLOCK_LINES]:
        print_words(f"    evidence        {words}")
    if not block.causes and not block.events:
        print_words("    hpcq knows of no difference between the two sides")
    print_pairs(block.pairs)
    shown = block.members if everything else block.members[:_BLOCK_SERIES]
    for one in shown:
        changed = one.changed
        print_words(f"    {changed.row.label}: {_effect(changed.level, changed.metric.unit)}")
    if len(block.members) > len(shown):
        print_words(f"    and {len(block.members) - len(shown)} more series; --all shows them")


def print_pairs(pairs: PairsOfSet | None) -> None:
    """Of a set of nodes, print what the pairs of its nodes say: the test alone accuses none of them."""
    if pairs is not None:
        print_words(f"    its pairs       {pairs.words}")


_BLOCK_LINES = 4
_BLOCK_SERIES = 2


def block_json(block: Block) -> dict[str, Any]:
    """For --json: the thing, the moment, how many of its series, and what differs; series by number."""
    ratios = block.ratios
    return {
        **{name: getattr(block, name) for name in ("kind", "cluster", "name", "direction", "since_utc", "judged_count")},
        "ratio": _median(ratios) if ratios else None,
        **{name: getattr(block, name) for name in ("causes", "events", "symptoms", "own_build")},
        "pairs": None if block.pairs is None else pairs_json(block.pairs),
        "series_ids": [one.changed.row.series_id for one in block.members],
    }


def pairs_json(pairs: PairsOfSet) -> dict[str, Any]:
    """What the pairs of a set of nodes say, for --json."""
    return {
        "judged_count": len(pairs.judged),
        **{name: [list(pair) for pair in getattr(pairs, name)] for name in ("slow", "earlier")},
        "without_pair": list(pairs.without_pair),
        "words": pairs.words,
    }


def _change_of(block: Block) -> str:
    """`, -10.3 % (-12.1 to -9.8 %)`: the median over the series, and the range."""
    ratios = block.ratios
    if not ratios:
        return ""
    low, middle, high = (100 * (one - 1) for one in (ratios[0], _median(ratios), ratios[-1]))
    return f", {middle:+.1f} % ({low:+.1f} to {high:+.1f} %)"


def _median(ordered: list[float]) -> float:
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _effect(level: Level, unit: str) -> str:
    before, after = (units.human(one, unit) if one == one else None for one in (level.before, level.after))  # noqa: PLR0124 - NaN
    if after is None:
        return f"{before or 'measured before'} > nothing"
    medians = f"{before} > {after}"
    if level.ratio is None:
        return medians
    change = f"{100 * (level.ratio - 1):+.1f} %"
    if level.low is None or level.high is None:
        return f"{medians}, {change}"
    return f"{medians}, {change} ({100 * (level.low - 1):+.1f} to {100 * (level.high - 1):+.1f} %)"


def whole_stretch(meant: Window) -> Window:
    """Extend a window that is one day or month until now: it marks the beginning of a stretch."""
    from dataclasses import replace

    return replace(meant, until_utc=None) if ".." not in meant.text and meant.run_ids is None else meant


def _minute(utc: str) -> str:
    return utc[:16].replace("T", " ") + " UTC"


def _bracketed(marks: list[str]) -> str:
    return f" [{', '.join(marks)}]" if marks else ""


# ----------------------------------------------------------------------------------------------------------------------


#: To know the old level, a search reads this much history before the stretch in question.
_LOOK_BACK_DAYS = 90
_SHOWN = 20
_COUNTS = ("series_count", "judged_count", "too_few_count", "disturbed_count", "empty_count")


@click.command()
@click.option("--since", default="30d", show_default=True, help="The start of the stretch to judge: 30d, 2026-11-20, a run.")
@click.option("--against", help="Compare with this stretch (90d..30d, baseline:NAME) instead of searching for change points.")
@click.option("--all", "everything", is_flag=True, help="Every series, and what got better, was repaired since, or is unclear.")
@click.option("--record", is_flag=True, help="Record the changes found; hpcq changes lists them.")
@filter_options
@database_option
@json_option
@says_that_it_works
def regressions(  # noqa: PLR0917 - Click passes by name
    since: str,
    against: str | None,
    everything: bool,
    record: bool,
    wanted: Selection,
    database: Path,
    as_json: bool,
) -> int:
    """Show what got worse, since when, by how much, and what differs.

    First come causes: hpcq judges the whole cluster, then its groups, nodes and links, each over all of its jobs. A line
    that begins with `told:` counts, and is false on one night in 100 at most. A line with `suspected:` needs more nights and
    does not count yet. A line with `failed:` is a gate, or an expectation of the campaign, that its newest run fails. So is,
    with `failed:` or `degraded:`, what did not pass its last acceptance. With --against or --fact there are no such lines.

    Then come the series that got worse: those whose level changed since --since, or, with --against, those that differ from
    that other stretch of time. Changes at the same moment that share a node, link, leaf or cluster are one block, with what
    differs since then. A series that was measured before and now only fails is `gone`.

    Exit code 3 when something got worse or is gone, 4 when nothing was judged, or a series is unclear, has too few points, or
    was planned and not measured.

    \b
    Example: hpcq regressions --since 30d --against 90d..30d --node n2
    """
    from hpcq.analysis.changed import record_changes
    from hpcq.store.database import reading

    with reading(database) as connection:
        found = _found(connection, wanted, since, against, everything=everything)
    if record:
        record_changes(database, [one for one in found.told if one.changed.level.sure])
    if as_json:
        print_json({"since": since, "against": against, **found.to_json()})
    else:
        _print_found(found, since, everything=everything)
    return found.exit_code


@dataclass(frozen=True, slots=True)
class _Found:
    """What `regressions` says. told: changes of series, each with the state of its record in `states`, and in `blocks`.

    causes, failed, unfit: what the judge says of the clusters, gates that the newest runs fail, and what failed its last
    acceptance. unclear_count: series. smallest: what would have been told, in words; empty where no cluster was judged.
    """

    judged: Judged
    tally: Tally
    causes: list[ClusterCause]
    failed: list[FailedGate]
    unfit: list[VerdictRecord]
    told: list[Explained]
    states: list[str | None]
    blocks: list[Block]
    unclear_count: int
    smallest: str

    @property
    def exit_code(self) -> Exit:
        bad = self.unfit or any(one.is_told for one in self.causes)
        return Exit.DEGRADED if bad else self.tally.exit_code

    def to_json(self) -> dict[str, Any]:
        return {
            "judged": self.tally.to_json(),
            **{name: getattr(self.judged, name) for name in _COUNTS},
            "inconclusive": self.unclear_count,
            "causes": [one.to_json() for one in self.causes],
            "failed_gates": [one.to_json() for one in self.failed],
            "failed_acceptances": [asdict(one) for one in self.unfit],
            "blocks": [block_json(one) for one in self.blocks],
            "changes": [{**one.to_json(), "state": state} for one, state in zip(self.told, self.states, strict=True)],
        }


def _found(connection: Any, wanted: Selection, since: str, against: str | None, *, everything: bool) -> _Found:
    """Ask all that judge, from the cluster down to the single series, and count each series once."""
    from hpcq.analysis.change import CLOSED, alarms, blocks_of, is_unclear, tally_of
    from hpcq.analysis.changed import explained, known_states
    from hpcq.analysis.gates import failed_gates
    from hpcq.analysis.standing import beside_nights, bounds_of, standings, told_series, touching, unfit_of
    from hpcq.store.query import node_groups

    judged, rows = _judge(connection, wanted, since, against)
    # The judge reads whole clusters: it has no before and after of a person's choice, and no results of some facts alone.
    whole = against is None and not wanted.facts
    found = standings(connection, rows.clusters, since, wanted.metric) if whole else ()
    ids = rows.ids
    failed = failed_gates(connection, *bounds_of(connection, since)) if whole else []
    failed = [one for one in failed if one.series_id in ids]
    beside = beside_nights(judged, rows, found)
    chosen_ones = [
        one for one in judged.changes if _is_told(one.level, everything) and (everything or id(one) not in beside.noise)
    ]
    chosen_ones.sort(key=_severity)
    told = [explained(connection, one) for one in chosen_ones]
    states = known_states(connection, chosen_ones)
    blocks = blocks_of(told, rows.of(judged.judged_ids), node_groups(connection))
    changes = [(one.changed, state) for one, state in zip(told, states, strict=True)]
    pairs = rows.pairs
    causes, unfit = touching(found, pairs, changes), unfit_of(found, pairs)
    declared = {one.row.series_id for one, state in changes if state in CLOSED}
    unclear = {one.row.series_id for one in judged.changes if is_unclear(one.level)} | (beside.unclear - declared)
    worse = [one.changed for one, state in zip(told, states, strict=True) if alarms(one, state)]
    counted = [one for one in worse if id(one) not in beside.noise]
    with_told = told_series(causes, rows, unfit)
    tally = tally_of(judged, counted, unclear, beside.fine, failed={one.series_id for one in failed}, degraded=with_told)
    return _Found(judged, tally, causes, failed, unfit, told, states, blocks, len(unclear), smallest_words(found))


def smallest_words(found: Iterable[Standing]) -> str:
    """`; a node 8 % slower for 6 nights would be told`: what the first line passes may still have lost less."""
    from hpcq.analysis.standing import SMALLEST_NIGHTS

    losses = [one.smallest_told for one in found]
    if not losses:
        return ""
    worst = max((1.0 if one is None else one) for one in losses)
    if worst < 1:
        return f"; a node {100 * worst:.0f} % slower for {SMALLEST_NIGHTS} nights would be told"
    return f"; no node would be told within {SMALLEST_NIGHTS} nights, even at half its speed"


def _print_found(found: _Found, since: str, *, everything: bool) -> None:
    """The first line, what the judge tells and suspects, gates, and then the series that nothing of that explains."""
    from hpcq.analysis.gates import failed_lines
    from hpcq.analysis.standing import unexplained
    from hpcq.verdict.words import Verdict

    passed = found.smallest if found.tally.counts[Verdict.PASS] else ""
    print_words(_first_line(found.tally, found.told, found.judged, since, found.exit_code) + passed, err=True)
    for cause in found.causes:
        print_words(cause.words)
    for line in (*(one.line for one in found.unfit), *failed_lines(found.failed)):
        print_words(line)
    own = found.blocks if everything else unexplained(found.blocks, found.causes)
    shown = own if everything else own[:_SHOWN]
    by_series = {id(one): state for one, state in zip(found.told, found.states, strict=True)}
    for block in shown:
        print_block(block, {id(one): by_series[id(one)] for one in block.members}, everything=everything)
    if everything:
        _print_unclear(found.judged)
    if len(own) > len(shown):
        print_words(f"and {len(own) - len(shown)} more; --all or --json has them all")
    if len(found.blocks) > len(own):
        print_words(f"and {len(found.blocks) - len(own)} that what is told explains; --all or --json has them")


def _judge(connection: Any, wanted: Selection, since: str, against: str | None) -> tuple[Judged, SeriesRows]:
    """What was found, and in which series."""
    import datetime as dt

    from hpcq.analysis.changed import changed, searched
    from hpcq.store.selection import Window, moment, window

    rows, metrics = chosen(connection, wanted)
    if against is not None:
        meant = whole_stretch(window(connection, since))
        return changed(connection, rows, metrics, meant, window(connection, against), facts=wanted.facts), rows
    begin = moment(connection, since)
    try:
        earliest = dt.datetime.fromisoformat(begin if len(begin) >= len("2026-11-20") else f"{begin}-01-01"[:10])
        look_back = (earliest - dt.timedelta(days=_LOOK_BACK_DAYS)).strftime("%Y-%m-%d")
    except (ValueError, OverflowError):
        look_back = ""
    until = window(connection, since).until_utc if ".." in since else None
    history = Window(since, from_utc=look_back, until_utc=until)
    return searched(connection, rows, metrics, begin, history, facts=wanted.facts), rows


def _is_told(level: Level, everything: bool) -> bool:
    if level.direction == "same":
        return False
    return everything or (level.sure and not level.came_back and level.direction != "better")


def _severity(one: Any) -> tuple[bool, bool, bool, float]:
    level = one.level
    size = abs((level.ratio or 1.0) - 1.0)
    return not level.sure, level.direction == "better", level.direction != "gone", -size


def _print_unclear(judged: Judged) -> None:
    """With --all, print the series that stay unclear, with the reason and what would settle it."""
    for one in judged.changes:
        level = one.level
        if level.direction == "same" and level.verdict.value == "inconclusive":
            counts = f"{level.before_count} points before, {level.after_count} after"
            print_words(f"unclear: {one.row.label}, {one.metric.name}: {counts}: {level.reason}")
    lists = (
        ("too few points", judged.too_few),
        ("measured lately only beside other work", judged.disturbed),
        ("planned, not measured", judged.missing),
        ("nothing to compare", judged.idle),
    )
    for words, rows in lists:
        for row in rows:
            print_words(f"{words}: {row.label}")


def _first_line(tally: Tally, told: list[Explained], judged: Judged, since: str, code: Exit) -> str:
    """How much was judged, then the outcome; `none got worse` only where every series passed."""
    counts = Counter(one.changed.level.direction for one in told if one.changed.level.sure)
    words = ", ".join(_SAID[word].format(count=count, s="" if count == 1 else "s") for word, count in counts.items())
    empty_count = judged.empty_count - judged.one_sided_count
    left_out = [
        f"{judged.too_few_count} with too few points" if judged.too_few_count else "",
        f"{judged.disturbed_count} measured lately only beside other work" if judged.disturbed_count else "",
        f"{judged.one_sided_count} with results in one stretch only" if judged.one_sided_count else "",
        f"{empty_count} without results" if empty_count else "",
    ]
    rest = ", ".join(one for one in left_out if one)
    passed = code is Exit.OK
    outcome = words or ("none got worse" if passed else "")
    listed = "--all lists what is open" if tally.exit_code is Exit.INCOMPLETE else ""
    tail = "; ".join(one for one in (outcome, rest, listed) if one)
    return f"since {since}: {tally.first_line('series', 'series')}" + (f"; {tail}" if tail else "")


_SAID = {
    "gone": "{count} gone",
    "worse": "{count} change{s} for the worse",
    "better": "{count} change{s} for the better",
    "changed": "{count} change{s}",
}
