"""`hpcq db`: fill the database and look after it: load, check, merge, prune, groups."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from pathlib import Path

import click

from hpcq import units
from hpcq.cli.options import Verbs, database_option, json_option, runs_option
from hpcq.cli.output import Column, check_target, print_json, print_rows, print_words, says_that_it_works
from hpcq.cli.results import RUN_COLUMNS
from hpcq.errors import Exit, UserError

_LOADED = (*RUN_COLUMNS[1:], Column("read_count", "read now"))


@click.group(cls=Verbs)
def db() -> None:
    """Maintain the database."""


@db.command()
@database_option
@json_option
@says_that_it_works
def check(database: Path, as_json: bool) -> int:
    """Check that the database is sound and that every planned result is accounted for. Exit code 1 when not.

    \b
    Example: hpcq db check
    """
    from hpcq.store.keep.check_and_prune import check as look

    found = look(database)
    if as_json:
        print_json(found)
    else:
        for one in found:
            print_words(f"{'ok  ' if one.ok else 'BAD '} {one.item:<12} {one.found}")
    return Exit.OK if all(one.ok for one in found) else Exit.ERROR


@db.command()
@click.argument("run", required=False)
@database_option
@runs_option
@json_option
@says_that_it_works
def load(run: str | None, database: Path, runs_folder: Path, as_json: bool) -> int:
    """Load a run's files into the database (again).

    You may do this at any time and as often as you like; hpcq loads nothing twice. Exit code 4 when the run has no plan yet,
    so that there was nothing to load.

    \b
    Example: hpcq db load lab
    """
    from hpcq.run_folder.paths import write_json
    from hpcq.runner import stages
    from hpcq.runner.live import find_run_folder

    found = find_run_folder(run, runs_folder)
    loaded = stages.load(found, database)
    if found.described_run()["database"] == str(database.absolute()):
        for folder in (found.path / part for part in [*found.clusters(), *found.link_names()]):
            if (folder / "driven.json").is_file():
                write_json(folder / "loaded.json", loaded)
    code = Exit.OK if loaded["clusters"] else Exit.INCOMPLETE
    if as_json:
        print_json(loaded)
        return code
    if code is Exit.INCOMPLETE:
        print_words(f"{loaded['run']}: no cluster has a plan yet: nothing was loaded", err=True)
        return code
    print_rows(loaded["clusters"], _LOADED)
    for one in loaded["clusters"]:
        for note in one["notes"]:
            print_words(f"{one['cluster']}: {note}", err=True)
    return Exit.OK


@db.command()
@database_option
@says_that_it_works
def upgrade(database: Path) -> int:
    """Bring a database that an older hpcq made to the version of this one.

    Every verb that writes does it too; one that only reads asks you for it. Nothing is lost, but the older hpcq can no longer
    read the database.

    \b
    Example: hpcq db upgrade --db results.db
    """
    from hpcq.store.database import upgraded

    before, now = upgraded(database)
    became = f"is of version {now} already" if before == now else f"is of version {now} now, was of version {before}"
    print_words(f"{database}: {became}", err=True)
    return Exit.OK


@db.command()
@click.option("--run", help="Only this run.")
@database_option
@says_that_it_works
def rejudge(run: str | None, database: Path) -> int:
    """Apply the present rules to stored evidence that older rules judged.

    Findings and disturbed results become what the present rules say. Which results count does not change. Findings of
    different rules are never compared, so a newer hpcq does not look like a change of the machines.

    \b
    Example: hpcq db rejudge
    """
    from hpcq.evidence.judge import judge
    from hpcq.evidence.rules import VERSION
    from hpcq.store.database import reading
    from hpcq.store.keep.check_and_prune import rejudge as read_again
    from hpcq.store.selection import find_run

    with reading(database) as connection:
        name = None if run is None else find_run(connection, run)
    done = read_again(database, judge, VERSION, name)
    kept = f"; {done.pruned_count} have no evidence any more and keep their findings" if done.pruned_count else ""
    print_words(
        f"{done.judged_count} results judged by the rules of version {VERSION}, {done.changed_count} changed{kept}", err=True
    )
    return Exit.OK


@db.command()
@click.argument("others", metavar="OTHER...", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--rename",
    multiple=True,
    metavar="OLD=NEW",
    help="The name here of a cluster that the other database calls OLD; repeatable.",
)
@database_option
@json_option
@says_that_it_works
def merge(others: tuple[Path, ...], rename: tuple[str, ...], database: Path, as_json: bool) -> int:
    """Copy the databases of other sites into this one; hpcq only reads them.

    The name identifies a cluster: where two sites use the same name for different clusters, --rename one. hpcq copies nothing
    twice, so you may repeat a merge.

    \b
    Example: hpcq db merge siteb.db --rename alpha=siteb-alpha
    """
    from hpcq.store.keep.check_and_prune import merge as bring

    renamed = dict(_renamed(text) for text in rename)
    merged = {str(other): bring(database, other, renamed) for other in others}
    if as_json:
        print_json(merged)
        return Exit.OK
    for name, one in merged.items():
        results = one.rows.get("result", 0)
        print_words(f"{name}: {one.new_count} runs new with {results} results, {one.known_count} were there already", err=True)
    return Exit.OK


@db.command("export-notes")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@database_option
@says_that_it_works
def export_notes(file: Path, database: Path) -> int:
    """Save what people wrote and decided to FILE, from a database of any version.

    These are notes, events, baselines, retractions, decisions about changes, groups of nodes and verdicts of acceptances.
    They are in no run folder.

    \b
    Example: hpcq db export-notes notes.json
    """
    from hpcq.run_folder.paths import write_text
    from hpcq.store.keep.notes import export_notes as exported

    check_target(file, "FILE")
    content = exported(database)
    write_text(file, json.dumps(content, indent=1) + "\n", mode=0o600)
    counts = [f"{len(rows)} of {name}" for name, rows in content.items() if isinstance(rows, list) and rows]
    print_words(f"{file}: {', '.join(counts) or 'there are no notes'}", err=True)
    return Exit.OK


@db.command("import-notes")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@database_option
@json_option
@says_that_it_works
def import_notes(file: Path, database: Path, as_json: bool) -> int:
    """Add what `hpcq db export-notes` saved. Exit code 4 if the database lacks what some of it is about.

    Load the run folders first. hpcq adds nothing twice, so you may repeat it.

    \b
    Example: hpcq db import-notes old_notes.json
    """
    from hpcq.store.keep.notes import import_notes as brought

    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}: not JSON: {error}", "`hpcq db export-notes` writes such a file") from error
    found = brought(database, content if isinstance(content, dict) else {})
    if as_json:
        print_json(asdict(found))
    else:
        for words in found.left_out:
            print_words(f"left out: {words}", err=True)
        print_words(f"{found.new_count} new, {found.known_count} were there already, {len(found.left_out)} left out", err=True)
    return Exit.INCOMPLETE if found.left_out else Exit.OK


@db.command()
@click.option("--keep", required=True, help="Keep everything back to here: 365d, 2026-01. hpcq rolls up what is older.")
@click.option("--dry-run", is_flag=True, help="Only say what hpcq would remove.")
@database_option
@json_option
@says_that_it_works
def prune(keep: str, dry_run: bool, database: Path, as_json: bool) -> int:
    """Make old runs small: remove counters and histograms, and keep the median and interval of what a job repeated often.

    Histories, change points and verdicts do not change, because they rest on those medians. Results, boots, facts, findings
    and all that people wrote stay too. hpcq does not touch the run folders. An age counts back from the newest run, so that a
    clock of this machine that is ahead makes nothing old.

    \b
    Example: hpcq db prune --keep 365d
    """
    from hpcq.store.database import reading
    from hpcq.store.keep.check_and_prune import prune as roll_up
    from hpcq.store.selection import moment, newest_run_at

    with reading(database) as connection:
        before = moment(connection, keep, newest_run_at(connection))
    found = roll_up(database, before, dry_run=dry_run)
    if as_json:
        print_json(asdict(found))
        return Exit.OK
    sizes = f"{units.human(found.bytes_before, 'bytes')} before, {units.human(found.bytes_after, 'bytes')} now"
    word = "would become" if dry_run else "became"
    print_words(
        f"runs before {before}: {found.run_count}; {found.result_count} results without evidence; {found.value_count} values"
        f" {word} {found.rollup_count} points; {sizes}",
        err=True,
    )
    return Exit.OK


@db.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--cluster", required=True, help="The cluster of these nodes.")
@click.option("--kind", default="leaf", show_default=True, help="The kind of the groups: leaf, rack, switch-port.")
@database_option
@says_that_it_works
def groups(file: Path, cluster: str, kind: str, database: Path) -> int:
    """Record which group (leaf switch, rack) each node belongs to, from a CSV node,group.

    Groups select series (--group), show whether a leaf or its nodes are slow, and explain changes when a node moves.

    \b
    Example: hpcq db groups leaves.csv --cluster alpha
    """
    from hpcq.store.database import transaction, writing
    from hpcq.store.keep.annotations import node_ids, set_groups
    from hpcq.store.query import check_known

    rows = _group_rows(file)
    pairs = [(row[0].strip(), row[1].strip()) for row in rows]
    with writing(database) as connection, transaction(connection):
        check_known(connection, cluster=cluster)
        known = node_ids(connection, cluster)
        strangers = sorted({node for node, _ in pairs} - known.keys())
        news = set_groups(connection, cluster, kind, pairs, units.utc_now())
    print_words(f"{news} nodes with a new group", err=True)
    if strangers:
        print_words(f"never measured, so left out: {', '.join(strangers[:12])}", err=True)
    return Exit.OK


def _group_rows(file: Path) -> list[list[str]]:
    """The lines node,group of a file. Raises UserError with the place of the first one that is something else."""
    try:
        with file.open(newline="", encoding="utf-8") as text:
            lines = csv.reader(text)
            rows = [(lines.line_num, row) for row in lines if row and row[0].strip() != "node"]
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: byte 0x{error.object[error.start]:02x} is not UTF-8: must be CSV text: node,group") from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    for number, row in rows:
        if len(row) != 2 or not all(cell.strip() for cell in row):
            raise UserError(f"{file}:{number}: {','.join(row)!r}: must be node,group")
    if not rows:
        raise UserError(f"{file}: no line: must be lines node,group", "one line per node, for example n1,leaf3")
    return [row for _, row in rows]


def _renamed(text: str) -> tuple[str, str]:
    old, sign, new = text.partition("=")
    if not (old and sign and new):
        raise UserError(f"--rename {text!r}: must be OLD=NEW")
    return old, new
