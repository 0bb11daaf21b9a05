"""`hpcq blame`: who is slow, in anybody's CSV of pair results or in runs; and the campaign that would settle it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcq.cli.options import database_option, json_option
from hpcq.cli.rows import print_json
from hpcq.errors import Exit, UserError
from hpcq.kernels import Better
from hpcq.units import count_of

if TYPE_CHECKING:
    from hpcq.localisation import Blame, Culprit, PairTable

_SHOWN = 12


@click.command()
@click.option("--pairs", "pairs_file", metavar="FILE", help="CSV: round,node_a,node_b,value; - is standard input.")
@click.option("--run", "runs", multiple=True, metavar="RUN", help="A run instead of a file, or latest; repeatable.")
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

    Results of one round ran at the same time. It names a link only after three slow results. Of a run, every test is a table;
    give the run of the asked pairs, too, and both are judged together. Exit code 3 when something is named, 4 when it is open.

    \b
    Example: hpcq blame --pairs pairs.csv --groups leaves.csv
             hpcq blame --run nightly --campaign next.yaml
    """
    from hpcq.cli.tables import read_groups, read_pairs
    from hpcq.localisation import PairTable
    from hpcq.localisation import blame as find_blame

    if (pairs_file is None) == (not runs):
        raise UserError("blame: give either --pairs FILE or --run RUN", "hpcq blame --run latest")
    if campaign is not None and pairs_file is not None and like is None:
        raise UserError("--campaign: with --pairs, --like CAMPAIGN says which tests to run on which cluster")
    if campaign is not None and Path(campaign).exists():
        raise UserError(f"--campaign: {campaign}: is there already: the name of a new file is needed")
    groups = read_groups(groups_file) if groups_file else None
    if pairs_file is not None:
        tables = [("", better == Better.HIGHER, PairTable.from_rows(read_pairs(pairs_file), groups))]
        place, source = cluster, None
    else:
        tables, place, source = _tables(database, runs, cluster, groups)
    found = {
        test: find_blame(table, higher_is_better=higher, minimum_effect_ratio=minimum_effect_ratio)
        for test, higher, table in tables
    }
    written = _write(campaign, like, source, place, found) if campaign else False
    if as_json:
        print_json(_together(found))
    else:
        for test, one in found.items():
            if test:
                click.echo(f"{test}:")
            _print_blame(one)
        if campaign:
            click.echo(f"run them with: hpcq run {campaign}" if written else f"nothing is open: {campaign} was not written")
    if any(one.nodes or one.links or one.groups or one.together for one in found.values()):
        return Exit.DEGRADED
    return Exit.INCOMPLETE if any(one.undecided for one in found.values()) else Exit.OK


def _tables(
    database: Path, runs: Sequence[str], cluster: str | None, groups: dict[str, str] | None
) -> tuple[list[tuple[str, bool, PairTable]], str, str]:
    """Every test of these runs as a table, with its name; the cluster; and the text of the last run's campaign."""
    from hpcq.analysis import pair_values
    from hpcq.localisation import PairTable
    from hpcq.store.database import reading
    from hpcq.store.observed import leaves_of
    from hpcq.store.query import find_run
    from hpcq.store.references import campaign_text

    with reading(database) as connection:
        names = [find_run(connection, name) for name in runs]
        place = pair_values.cluster_of(connection, names, cluster)
        leaves = groups if groups is not None else leaves_of(connection, place)
        rows: dict[str, tuple[str, list[tuple[str, str, str, float]]]] = {}
        for name in names:
            run_id = pair_values.run_id_of(connection, name)
            for (client, server, test), (better, values) in pair_values.values_of(connection, place, [run_id]).items():
                kept = rows.setdefault(test, (better, []))[1]
                kept += [(f"{name} {number}", client, server, value) for number, value in enumerate(values)]
        text = campaign_text(connection, names[-1]) or ""
    if not rows:
        raise UserError(f"{', '.join(names)}: nothing was measured on {place}: results of pairs are needed", "hpcq results")
    tables = [
        (pair_values.words_of_test(test), better == Better.HIGHER.value, PairTable.from_rows(kept, leaves))
        for test, (better, kept) in rows.items()
    ]
    return tables, place, text


def _write(campaign: str, like: str | None, source: str | None, cluster: str | None, found: dict[str, Blame]) -> bool:
    """Write the campaign of the asked pairs, each once; whether there were any."""
    from hpcq.definition.campaign import read_campaign
    from hpcq.definition.derive import with_pairs
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


def _together(found: dict[str, Blame]) -> dict[str, Any]:
    """One object for all tests; of a run also each by itself."""
    parts = {test: _blame_json(one) for test, one in found.items()}
    if list(parts) == [""]:
        return parts[""]
    lists = ("nodes", "links", "groups", "together", "next_pairs", "open_questions")
    merged: dict[str, Any] = {}
    for name in lists:
        merged[name] = []
        for part in parts.values():
            merged[name] += [one for one in part[name] if one not in merged[name]]
    merged["undecided"] = any(part["undecided"] for part in parts.values())
    merged["tests"] = [{"test": test, **part} for test, part in parts.items()]
    return merged


def _print_blame(found: Blame) -> None:
    if found.healthy_value is not None and found.noise_ratio is not None:
        click.echo(
            f"{count_of(found.result_count, 'result')}; a healthy pair gets {found.healthy_value:.4g}, "
            f"give or take {100 * found.noise_ratio:.2g} %."
        )
    for culprit in (*found.groups, *found.nodes, *found.links):
        click.echo(_culprit_line(culprit))
    for culprit in found.together:
        click.echo(f"{_culprit_line(culprit)}, but only when many pairs run at once: load, not a broken part")
    if not (found.groups or found.nodes or found.links or found.together):
        click.echo("Nobody is slow." if not found.undecided else "Nobody is named.")
    if found.noise_count:
        click.echo(
            f"noise  {count_of(found.noise_count, 'slow result')} that nobody in particular explains: passing traffic, say"
        )
    for question in found.open_questions:
        click.echo(f"open   {question}")
    if found.next_pairs:
        use = "These pairs would settle it" if found.undecided else "To be sure about the noise, run these pairs again"
        click.echo(f"{use}:")
        for a, b in found.next_pairs[: 4 * _SHOWN]:
            click.echo(f"  {a} {b}")
        if len(found.next_pairs) > 4 * _SHOWN:
            click.echo(f"  and {len(found.next_pairs) - 4 * _SHOWN} more; --json has them all")


def _culprit_line(culprit: Culprit) -> str:
    slower, most, least = (100 * (1 - ratio) for ratio in (culprit.speed_ratio, culprit.low, culprit.high))
    name = " - ".join(culprit.names) or "everybody"
    counts = f"slow in {culprit.slow_count} of {count_of(culprit.result_count, 'result')}"
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
        "evidence": [
            {
                "kind": one.kind.value,
                "names": list(one.names),
                "speed_ratio": one.speed_ratio,
                "low": one.low,
                "high": one.high,
                "slow_count": one.slow_count,
                "result_count": one.result_count,
            }
            for one in culprits
        ],
    }
