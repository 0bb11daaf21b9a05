"""`hpcq blame`: which nodes are slow, in any CSV of pair results or in runs, and the campaign that would settle it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcq.cli.judge.blame_words import JOBS_MIN, print_tests, verdicts_of
from hpcq.cli.judge.blame_words import blame_json as _together
from hpcq.cli.options import database_option, json_option
from hpcq.cli.output import check_target
from hpcq.cli.rows import print_json
from hpcq.errors import UserError
from hpcq.kernels import Better
from hpcq.units import count_of

if TYPE_CHECKING:
    from hpcq.analysis.blame_tables import RunTables
    from hpcq.localisation import Blame, Culprit


@click.command()
@click.option("--pairs", "pairs_file", metavar="FILE", help="CSV: round,node_a,node_b,value; - is standard input.")
@click.option("--run", "runs", multiple=True, metavar="RUN", help="A run; repeatable. Default: the latest.")
@click.option("--cluster", metavar="NAME", help="The cluster to judge, if the run has several.")
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
@click.option("--campaign", metavar="FILE", help="Write a campaign of the pairs that would settle what is open.")
@click.option(
    "--like", metavar="CAMPAIGN", help="The campaign whose tests and cluster --campaign takes. Default: those of the run."
)
@database_option
@json_option
def blame(  # noqa: PLR0917 - Click passes by name
    pairs_file: str | None,
    runs: Sequence[str],
    cluster: str | None,
    groups_file: str | None,
    better: str,
    minimum_effect_ratio: float,
    campaign: str | None,
    like: str | None,
    database: Path,
    as_json: bool,
) -> int:
    """Name the slow node, link or group in a table of pair results, or the pairs that would tell.

    Without --pairs it reads the latest run. Every test of a run is a table with one row per job: the repetitions of one job
    share its luck. Nothing is named on fewer than three slow jobs, and a test that fails accuses, too. Findings of the evidence
    that explain it come first. Give the run of the asked pairs as well, and both are judged together. Results of one round of
    a file ran at the same time.

    Exit code 3 when something is named or a test fails, 4 when something is open, a planned job never ran or there is too
    little data.

    \b
    Example: hpcq blame
             hpcq blame --pairs pairs.csv --groups leaves.csv
             hpcq blame --run nightly --campaign next.yaml
    """
    from hpcq.cli.tables import read_groups, read_pairs
    from hpcq.localisation import PairTable
    from hpcq.localisation import blame as find_blame
    from hpcq.verdict.words import Tally

    _check_words(pairs_file, runs, campaign, like)
    groups = read_groups(groups_file) if groups_file else None
    read: RunTables | None = None
    if pairs_file is not None:
        tables = [("", better == Better.HIGHER, PairTable.from_rows(read_pairs(pairs_file), groups))]
        place, source = cluster, None
    else:
        read, source = _read_runs(database, runs or ["latest"], cluster, groups)
        tables, place = list(read.tables), read.cluster
    found = {
        test: find_blame(table, higher_is_better=higher, minimum_effect_ratio=minimum_effect_ratio)
        for test, higher, table in tables
    }
    if read is not None:
        found = {test: _enough(one) for test, one in found.items()}
    written = _write(campaign, like, source, place, found) if campaign else False
    if as_json:
        print_json(_together(found, read))
    else:
        print_tests(found, read)
        if campaign:
            click.echo(f"run them with: hpcq run {campaign}" if written else f"nothing is open: {campaign} was not written")
    return Tally.of(verdicts_of(found, read)).exit_code


def _check_words(pairs_file: str | None, runs: Sequence[str], campaign: str | None, like: str | None) -> None:
    """Refuse options that contradict each other, and a campaign file that could not be written."""
    if pairs_file is not None and runs:
        raise UserError("blame: give either --pairs FILE or --run RUN", "without both it is the latest run")
    if campaign is not None and pairs_file is not None and like is None:
        raise UserError("--campaign: with --pairs, --like CAMPAIGN says which tests to run on which cluster")
    if campaign is not None and Path(campaign).exists():
        raise UserError(f"--campaign: {campaign}: exists already: give the name of a new file")
    check_target(Path(campaign) if campaign is not None else None, "--campaign")


def _read_runs(
    database: Path, runs: Sequence[str], cluster: str | None, groups: dict[str, str] | None
) -> tuple[RunTables, str]:
    """The tables of these runs, and the text of the last one's campaign."""
    from hpcq.analysis.blame_tables import tables_of
    from hpcq.store.database import reading
    from hpcq.store.query import find_run
    from hpcq.store.references import campaign_text

    with reading(database) as connection:
        names = [find_run(connection, name) for name in runs]
        return tables_of(connection, names, cluster, groups), campaign_text(connection, names[-1]) or ""


def _enough(found: Blame) -> Blame:
    """Turn culprits with fewer than three slow jobs into open questions."""
    from dataclasses import replace

    few = [one for one in (*found.nodes, *found.links, *found.groups) if one.slow_count < JOBS_MIN]
    if not few:
        return found
    questions = [f"{' - '.join(one.names)}: {_rests_on(one)}" for one in few]
    pairs = [(one.names[0], one.names[-1]) for one in few if len(one.names) == 2]
    return replace(
        found,
        nodes=tuple(one for one in found.nodes if one not in few),
        links=tuple(one for one in found.links if one not in few),
        groups=tuple(one for one in found.groups if one not in few),
        undecided=True,
        open_questions=(*found.open_questions, *questions),
        next_pairs=(*found.next_pairs, *pairs),
    )


def _rests_on(one: Culprit) -> str:
    have = f"slow in {count_of(one.slow_count, 'job')}"
    return f"{have}: at least {JOBS_MIN} are needed before it is named"


def _write(campaign: str, like: str | None, source: str | None, cluster: str | None, found: dict[str, Blame]) -> bool:
    """Write the campaign of the requested pairs, each once. Returns whether there were any."""
    from hpcq.definition.derive import with_pairs
    from hpcq.definition.files.campaign import read_campaign
    from hpcq.definition.find import find_campaign

    pairs = list(dict.fromkeys(pair for one in found.values() for pair in one.next_pairs))
    if not pairs:
        return False
    target = Path(campaign)
    base = find_campaign(like) if like is not None else None
    if base is not None:
        text = base.read_text(encoding="utf-8")
        clusters = read_campaign(base).clusters
        if cluster is None and len(clusters) > 1:
            raise UserError(f"{base}: clusters: {', '.join(clusters)}: choose one with --cluster")
        cluster = cluster or clusters[0]
    else:
        text = source or ""
    with_pairs(text, target, str(cluster), pairs, 1)
    return True
