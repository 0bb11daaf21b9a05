"""`hpcq blame`: which nodes are slow, in any CSV of pair results or in runs, and the campaign that would settle it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcq.cli.options import (
    FILTERS,
    chosen_results,
    database_option,
    filter_options,
    json_option,
    refuse_beside,
    since_option,
    stretch,
)
from hpcq.cli.output import check_target, print_json, print_words, says_that_it_works
from hpcq.errors import UserError
from hpcq.kernels import Better
from hpcq.units import count_of, human

if TYPE_CHECKING:
    from hpcq.analysis.blame_tables import RunTables
    from hpcq.analysis.standing import Standing
    from hpcq.localisation import Blame, Culprit
    from hpcq.store.database import Connection
    from hpcq.store.selection import Selection
    from hpcq.verdict.words import Verdict


#: Descriptions of foreign programs, by name.
_Texts = Mapping[str, str]

# ----------------------------------------------------------------------------------------------------------------------
# Print what `hpcq blame` found, for people and for --json.


_SHOWN = 12


def verdict_of(found: Blame) -> Verdict:
    """The verdict on one test, as a word that all judging verbs share."""
    from hpcq.verdict.words import Verdict

    if found.nodes or found.links or found.groups or found.together:
        return Verdict.DEGRADED
    return Verdict.INCONCLUSIVE if found.undecided else Verdict.PASS


def verdicts_of(found: Mapping[str, Blame], read: RunTables | None, standing: Standing | None = None) -> list[Verdict]:
    """One per judged test, test that fails, cause that is told or in doubt; NOT COVERED per planned job that never ran."""
    from hpcq.verdict.words import Verdict

    verdicts = [verdict_of(one) for one in found.values()]
    if standing is not None:
        verdicts += [Verdict.DEGRADED for one in standing.causes if one.is_told]
        verdicts += [Verdict.INCONCLUSIVE for one in standing.causes if one.is_doubt]
        verdicts += [one.verdict for one in standing.unfit]
    if read is None:
        return verdicts
    missing = [Verdict.NOT_COVERED] * (read.planned_count - read.ran_count)
    sets = [one.verdict for one in read.sets if one.verdict is not None]
    beyond = [Verdict.FAILED] * len(read.failed_gates)
    return [*verdicts, *beyond, *(one.verdict for one in read.failed), *sets, *missing]


def print_tests(found: Mapping[str, Blame], read: RunTables | None, standing: Standing | None) -> None:
    """Print how much was judged, then the outcome test by test. read, standing: of runs; None for a file."""
    told = standing is not None and bool(standing.unfit or any(one.is_told for one in standing.causes))
    if read is not None:
        from hpcq.analysis.gates import failed_lines

        print_read(read)
        for cause in standing.causes if standing is not None else ():
            print_words(cause.words)
        unfit = [one.line for one in standing.unfit] if standing is not None else []
        for line in (*unfit, *failed_lines(read.failed_gates)):
            print_words(line)
        if not found and not read.failed:
            print_words("Nobody is named: no test of these runs has a value.")
    else:
        print_words(f"{count_of(sum(one.result_count for one in found.values()), 'result')} of pairs judged")
    for test, one in found.items():
        if test:
            print_words(f"{test}:")
        print_blame(one, read.units.get(test) if read is not None else None, in_run=standing is not None, told=told)
        if read is not None and test in read.sleep:
            print_words(f"idle   {read.sleep[test]}: waking is part of these times, and one level per job is no slow link")


def print_read(read: RunTables) -> None:
    """Print how much was judged, what the evidence says about nodes, and what failed."""
    from hpcq.analysis.blame_tables import shown_pairs

    rows = sum(len(table.value) for _, _, table in read.tables)
    tests = f"{count_of(len(read.tables), 'test')} with values"
    print_words(
        f"{read.cluster}: {read.ran_count} of {read.planned_count} jobs of pairs judged, {tests} ({count_of(rows, 'value')})"
    )
    if read.ran_count < read.planned_count:
        count = count_of(read.planned_count - read.ran_count, "planned job")
        print_words(f"open      {count} never ran: nobody is cleared by what was not measured")
    for words in read.flaws.values():
        print_words(f"evidence  {words}")
    for one in read.failed:
        print_words(f"failed    {one.words}")
        if one.blamed:
            others = f" (other tests name the node of {shown_pairs(one.of_others)})" if one.of_others else ""
            print_words(f"          it is {', '.join(one.blamed)}{others}")
        if one.unexplained:
            of = f" of {shown_pairs(one.unexplained)}" if one.blamed else ""
            print_words(f"          it is not clear who is to blame{of}: measure more pairs of these nodes")
    _print_sets(read)


def _print_sets(read: RunTables) -> None:
    """Print what failed or is missing of the tests of several nodes together, and that they name none of them."""
    told = [one for one in read.sets if one.verdict is not None]
    for one in told[:_SHOWN]:
        print_words(f"{'failed' if one.lost_count else 'open':<9} {one.words}")
    if len(told) > _SHOWN:
        print_words(f"          and {len(told) - _SHOWN} more; --json has them all")
    if read.sets:
        count = count_of(len(read.sets), "test")
        asked = "their pairs do" if read.planned_count else "measure pairs of them"
        print_words(f"together  {count} of several nodes together: no node is named by them, {asked}; since when one is slow:")
        print_words("          hpcq regressions")


def blame_json(found: dict[str, Blame], read: RunTables | None, standing: Standing | None) -> dict[str, Any]:
    """One object for all tests; for runs, also one per test."""
    parts = {test: _blame_json(one) for test, one in found.items()}
    if read is None:
        return parts[""]
    lists = ("nodes", "links", "groups", "together", "next_pairs", "open_questions")
    merged: dict[str, Any] = {}
    for name in lists:
        merged[name] = []
        for part in parts.values():
            merged[name] += [one for one in part[name] if one not in merged[name]]
    merged["undecided"] = any(part["undecided"] for part in parts.values())
    for one in read.failed:
        for name in one.blamed:
            ends: Any = name.split(" - ") if " - " in name else name
            place = merged["links"] if isinstance(ends, list) else merged["nodes"]
            if ends not in place:
                place.append(ends)
        merged["undecided"] = merged["undecided"] or bool(one.unexplained)
    for thing, names in _accused(standing):
        if thing in {"node", "group"} and names[0] not in merged[f"{thing}s"]:
            merged[f"{thing}s"].append(names[0])
        if thing in {"link", "pair"} and sorted(names) not in map(sorted, merged["links"]):
            merged["links"].append(list(names))
    merged["causes"] = [] if standing is None else [one.to_json() for one in standing.causes]
    merged["failed_acceptances"] = [] if standing is None else [asdict(one) for one in standing.unfit]
    merged["failed_gates"] = [one.to_json() for one in read.failed_gates]
    merged["tests"] = [{"test": test, **part} for test, part in parts.items()]
    merged["failed"] = [{**asdict(one), "words": one.words} for one in read.failed]
    merged["flaws"] = dict(read.flaws)
    merged["sleep"] = dict(read.sleep)
    merged["sets"] = [{**asdict(one), "words": one.words} for one in read.sets]
    merged["judged"] = {"job_count": read.ran_count, "planned_count": read.planned_count, "cluster": read.cluster}
    return merged


def _accused(standing: Standing | None) -> list[tuple[str, tuple[str, ...]]]:
    """What the nights tell of a cluster, and what failed its last acceptance: thing and names."""
    if standing is None:
        return []
    told = [(one.thing, one.names) for one in standing.causes if one.is_told]
    return told + [(one.kind.value, one.nodes if one.kind == "link" else (one.name,)) for one in standing.unfit]


def print_blame(found: Blame, unit: str | None, *, in_run: bool, told: bool) -> None:
    """Print the outcome of one test. unit: of its values; None for a file. in_run: of one run whose nights came before.

    told: something was named before, by all nights.
    """
    if found.healthy_value is not None and found.noise_ratio is not None:
        print_words(
            f"{count_of(found.result_count, 'result')}; a healthy pair gets {human(found.healthy_value, unit)}, "
            f"give or take {100 * found.noise_ratio:.2g} %."
        )
    for culprit in (*found.groups, *found.nodes, *found.links):
        print_words(_culprit_line(culprit))
    for culprit in found.together:
        print_words(f"{_culprit_line(culprit)}, but only when many pairs run at once: load, not a broken part")
    if not (found.groups or found.nodes or found.links or found.together):
        alone = "Nobody is named by these results alone; what is told above rests on earlier nights, too." if told else None
        nobody = "Nobody is named." if found.undecided else _nobody_is_slow(found, " next to the others" if in_run else "")
        print_words(alone or nobody)
    if found.noise_count:
        print_words(
            f"noise  {count_of(found.noise_count, 'slow result')} that nobody in particular explains: passing traffic, say"
        )
    for question in found.open_questions:
        print_words(f"open   {question}")
    if found.next_pairs:
        use = "These pairs would settle it" if found.undecided else "To be sure about the noise, run these pairs again"
        print_words(f"{use}:")
        for a, b in found.next_pairs[: 4 * _SHOWN]:
            click.echo(f"  {a} {b}")
        if len(found.next_pairs) > 4 * _SHOWN:
            print_words(f"  and {len(found.next_pairs) - 4 * _SHOWN} more; --json has them all")


def _nobody_is_slow(found: Blame, beside: str) -> str:
    if found.smallest_effect_ratio is None:
        return f"Nobody is slow{beside}."
    return f"Nobody is slow{beside}: none by {100 * found.smallest_effect_ratio:.2g} % or more, and less was not looked for."


def _culprit_line(culprit: Culprit) -> str:
    slower, most, least = (100 * (1 - ratio) for ratio in (culprit.speed_ratio, culprit.low, culprit.high))
    name = " - ".join(culprit.names) or "everybody"
    counts = f"slow in {culprit.slow_count} of {count_of(culprit.result_count, 'result')}"
    counts += " of the newest run" if culprit.in_newest_run else ""
    return (
        f"{culprit.kind.value:<6} {name}: {slower:.1f} % slower than healthy ({max(least, 0.0):.1f} to {most:.1f} %), {counts}"
    )


def _blame_json(found: Blame) -> dict[str, Any]:
    culprits = (*found.nodes, *found.links, *found.groups, *found.together)
    return {
        "nodes": [one.names[0] for one in found.nodes],
        "links": [list(one.names) for one in found.links],
        "groups": [one.names[0] for one in found.groups],
        "together": [{"kind": one.kind.value, "names": list(one.names)} for one in found.together],
        "undecided": found.undecided,
        "next_pairs": [list(pair) for pair in found.next_pairs],
        "open_questions": list(found.open_questions),
        "noise_count": found.noise_count,
        "healthy_value": found.healthy_value,
        "noise_ratio": found.noise_ratio,
        "smallest_effect_ratio": found.smallest_effect_ratio,
        "evidence": [
            {
                "kind": one.kind.value,
                "names": list(one.names),
                "speed_ratio": one.speed_ratio,
                "low": one.low,
                "high": one.high,
                "slow_count": one.slow_count,
                "result_count": one.result_count,
                "in_newest_run": one.in_newest_run,
            }
            for one in culprits
        ],
    }


# ----------------------------------------------------------------------------------------------------------------------


@click.command()
@click.option("--pairs", "pairs_file", metavar="FILE", help="CSV: round,node_a,node_b,value; - is standard input.")
@click.option("--run", "runs", multiple=True, metavar="RUN", help="A run; repeatable. Default: the latest.")
@since_option(help_text="All runs in this stretch of time, judged together")
@click.option("--groups", "groups_file", metavar="FILE", help="CSV: node,group (leaf switch, rack).")
@click.option(
    "--better",
    type=click.Choice([Better.HIGHER.value, Better.LOWER.value]),
    default=Better.HIGHER.value,
    show_default=True,
    help="Which direction is good for the values of the file.",
)
@click.option(
    "--minimum-effect-ratio",
    type=click.FloatRange(min=0, max=1, max_open=True),
    default=0.03,
    show_default=True,
    help="Smallest slowdown worth naming.",
)
@click.option("--campaign", metavar="FILE", help="Write a campaign file with the pairs that would settle the undecided cases.")
@click.option(
    "--like", metavar="CAMPAIGN", help="The campaign whose tests and cluster --campaign takes. Default: those of the run."
)
@filter_options
@database_option
@json_option
@says_that_it_works
def blame(  # noqa: PLR0917 - Click passes by name
    pairs_file: str | None,
    runs: Sequence[str],
    since: str | None,
    groups_file: str | None,
    better: str,
    minimum_effect_ratio: float,
    campaign: str | None,
    like: str | None,
    wanted: Selection,
    database: Path,
    as_json: bool,
) -> int:
    """Name the slow node, link or group in a table of pair results, or the pairs to measure next.

    Without --pairs it reads the latest run. It begins with the comparison with earlier runs, as `hpcq regressions` does:
    lines with `told:` (slower, and enough jobs show it) and `suspected:` (more jobs are needed), and gates that the run
    fails. Then it compares the nodes of the run with each other.

    Each test is a table with one row per job, because the repetitions of one job are not independent. hpcq names nothing on
    fewer than three slow jobs. What is slower than the others, but no slower than on its earlier nights, or only in jobs
    beside other work, is an open question.
    A test that fails counts as slow. What fails on a pair of a node that another test names, is that node's: no link and
    no open question. Findings of the evidence that explain a slow result come first.

    When you have measured the pairs that it asks for, name both runs with --run, and it judges them together. What the
    newest of several runs shows alone, because it was fine before, is named too. In a file, results of the same round ran
    at the same time. Options such as --kernel and --node select results of runs; of the comparison you then see the lines
    that concern the selected pairs.

    Exit code 3 when something is named or a test fails, 4 when a case is undecided, a planned job never ran or there is too
    little data.

    \b
    Example: hpcq blame
             hpcq blame --pairs pairs.csv --groups leaves.csv
             hpcq blame --run nightly --campaign next.yaml
    """
    from hpcq.analysis.blame_tables import slow_only_beside_work, with_enough_jobs, with_named_nodes, with_newest_run
    from hpcq.cli.csv_input import read_groups, read_pairs
    from hpcq.definition.find import find_campaign
    from hpcq.localisation import PairTable
    from hpcq.localisation import blame as find_blame
    from hpcq.verdict.words import Tally

    _check_words(pairs_file, runs, since, campaign, like)
    groups = read_groups(groups_file) if groups_file else None
    read: RunTables | None = None
    newest: RunTables | None = None
    standing: Standing | None = None
    if pairs_file is not None:
        tables = [("", better == Better.HIGHER, PairTable.from_rows(read_pairs(pairs_file), groups))]
        place = wanted.cluster
    else:
        read, newest, standing = _read_runs(database, runs, since, wanted, groups)
        tables, place = list(read.tables), read.cluster

    def judged(test: str, higher: bool, table: PairTable, of: RunTables | None) -> Blame:
        one = find_blame(table, higher_is_better=higher, minimum_effect_ratio=minimum_effect_ratio)
        if of is None:
            return one
        beside_work = slow_only_beside_work(
            one, of.undisturbed.get(test), higher_is_better=higher, minimum_effect_ratio=minimum_effect_ratio
        )
        return with_enough_jobs(one, standing, of.pairs[test], beside_work)

    found = {test: judged(test, higher, table, read) for test, higher, table in tables}
    for test, higher, table in newest.tables if newest is not None else ():
        if test in found:  # else all its values are failures of nodes that other tests name
            found[test] = with_newest_run(found[test], judged(test, higher, table, newest))
    if read is not None:
        named = [names[0] for thing, names in _accused(standing) if thing == "node"]
        named += [one.names[0] for part in found.values() for one in part.nodes]
        read = replace(read, failed=with_named_nodes(read.failed, named))
    written = False
    if campaign:
        base = find_campaign(like) if like is not None else None
        written = _write(campaign, base, lambda: _stored(database, runs, since), place, found)
    if as_json:
        print_json(blame_json(found, read, standing))
    else:
        print_tests(found, read, standing)
        if campaign:
            print_words(f"run them with: hpcq run {campaign}" if written else f"nothing is open: {campaign} was not written")
    return Tally.of(verdicts_of(found, read, standing)).exit_code


#: What a judgement of a file, and one of runs, use of the options.
_WRITES = {"groups_file", "minimum_effect_ratio", "campaign", "like"}
_OF_FILE = _WRITES | {"pairs_file", "better", "cluster"}
_OF_RUNS = _WRITES | {"runs", "since"} | FILTERS


def _check_words(
    pairs_file: str | None, runs: Sequence[str], since: str | None, campaign: str | None, like: str | None
) -> None:
    """Refuse options that contradict each other, and a campaign file that could not be written."""
    if pairs_file is not None and runs:
        raise UserError("blame: give either --pairs FILE or --run RUN", "without both it is the latest run")
    refuse_beside("a judgement of runs" if pairs_file is None else "--pairs", _OF_RUNS if pairs_file is None else _OF_FILE)
    if runs and since is not None:
        raise UserError(f"--since {since}: --run names the runs to judge", "leave out one of the two")
    if campaign is not None and pairs_file is not None and like is None:
        raise UserError("--campaign: with --pairs, --like CAMPAIGN says which tests to run on which cluster")
    if campaign is not None and Path(campaign).exists():
        raise UserError(f"--campaign: {campaign}: exists already: give the name of a new file")
    check_target(Path(campaign) if campaign is not None else None, "--campaign")


def _read_runs(
    database: Path, runs: Sequence[str], since: str | None, wanted: Selection, groups: dict[str, str] | None
) -> tuple[RunTables, RunTables | None, Standing | None]:
    """The tables of these runs, of several also the newest alone; and where the cluster stood after it."""
    from hpcq.analysis.blame_tables import tables_of
    from hpcq.analysis.gates import failed_by
    from hpcq.analysis.standing import standings, told_before, touching, unfit_of
    from hpcq.store.database import reading
    from hpcq.store.selection import Selection, Window, run_id_of

    with reading(database) as connection:
        names = _names(connection, runs, since)
        of_runs = Window(since or ", ".join(names), run_ids=tuple(run_id_of(connection, name) for name in names))
        if selects := wanted != Selection(cluster=wanted.cluster):
            wanted = chosen_results(connection, wanted, Selection(window=of_runs))
        read = tables_of(connection, names, wanted, groups)
        known = [name for one in read.failed for name in one.blamed]
        newest = tables_of(connection, names[-1:], wanted, groups, names, named=known) if len(names) > 1 else None
        standing = next(iter(standings(connection, [read.cluster], names[-1], wanted.metric)), None)
        if standing is not None:
            ends = {(read.cluster, *pair) for pairs in read.pairs.values() for _, pair in pairs}
            before = () if selects else told_before(connection, [standing], ends, of_runs.run_ids or ())
            standing = replace(standing, causes=(*touching([standing], ends), *before), unfit=tuple(unfit_of([standing], ends)))
        failed = [one for one in failed_by(connection, names, wanted) if one.verdict.series.cluster == read.cluster]
        return replace(read, failed_gates=tuple(failed)), newest, standing


def _names(connection: Connection, runs: Sequence[str], since: str | None) -> list[str]:
    """The runs to judge together, the newest last."""
    from hpcq.store.query import runs as every_run
    from hpcq.store.selection import find_run, run_ids, runs_in

    if since is None:
        return [find_run(connection, name) for name in runs or ["latest"]]
    numbers, within = run_ids(connection), set(runs_in(connection, stretch(connection, since)))
    names = [name for name in dict.fromkeys(one.run for one in every_run(connection)) if numbers[name] in within]
    if not names:
        raise UserError(f"--since {since}: no run in this stretch of time", "hpcq runs lists them")
    return names[::-1]


def _write(
    campaign: str, base: Path | None, stored: Callable[[], tuple[str, _Texts]], cluster: str | None, found: dict[str, Blame]
) -> bool:
    """Write the campaign of the requested pairs, each once: like `base`, else like the newest run's own.

    Descriptions of its kernels that would not be found from there are written beside it. Returns whether there were any.
    """
    from hpcq.definition.derive import with_pairs
    from hpcq.definition.files.campaign import read_campaign
    from hpcq.definition.find import kernels_of_texts, list_described

    pairs = list(dict.fromkeys(pair for one in found.values() for pair in one.next_pairs))
    if not pairs:
        return False
    if base is not None:
        like = read_campaign(base)
        if cluster is None and len(like.clusters) > 1:
            raise UserError(f"{base}: clusters: {', '.join(like.clusters)}: choose one with --cluster")
        described = {test.kernel: like.kernels[test.kernel].described for test in like.tests}
        texts: _Texts = {name: Path(one.path).read_text("utf-8") for name, one in described.items() if one is not None}
        text, cluster = base.read_text(encoding="utf-8"), cluster or like.clusters[0]
    else:
        text, texts = stored()
    target = Path(campaign)
    with_pairs(text, kernels_of_texts(texts), target, str(cluster), pairs, 1)
    for name in sorted(texts.keys() - list_described(target).keys()):
        (target.parent / "kernels").mkdir(exist_ok=True)
        beside = target.parent / "kernels" / f"{name}.yaml"
        beside.write_text(texts[name], "utf-8")
        print_words(f"wrote {beside}, which {target} needs", err=True)
    return True


def _stored(database: Path, runs: Sequence[str], since: str | None) -> tuple[str, _Texts]:
    """The campaign of the newest of these runs as the database keeps it, and the descriptions of kernels that it names."""
    from hpcq.store.database import reading
    from hpcq.store.query import campaign_text, descriptions

    with reading(database) as connection:
        text = campaign_text(connection, _names(connection, runs, since)[-1]) or ""
        return text, {name: one for name, one in descriptions(connection).items() if name in text}
