"""`hpcq import`: results that other programs measured, from their files."""

from __future__ import annotations

import datetime as dt
import gc
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcq import units
from hpcq.cli.options import database_option, json_option
from hpcq.cli.output import print_json, print_words, says_that_it_works
from hpcq.errors import Exit, UserError

if TYPE_CHECKING:
    from hpcq.imports.others import Maker
    from hpcq.imports.values import Problems, Source
    from hpcq.store.load.imported import ImportReport

_SHOWN = 8
_CSV = "csv"
#: Outputs of described kernels, whichever each is of.
_LOGS = "logs"


@click.command(name="import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--cluster", required=True, help="The cluster of these nodes, by its name here; a new name is fine.")
@click.option(
    "--format",
    "kind",
    default=_CSV,
    show_default=True,
    metavar="FORMAT",
    help="csv, reframe, jube, superbench, pscheduler, logs (outputs of any described kernel), or the kernel: osu_latency.",
)
@click.option(
    "--facts",
    "facts_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="CSV node,time,fact,value: facts of the nodes and since when they hold, like nic.eth0.speed_bps or cpu.model.",
)
@click.option("--names", metavar="PATTERN", help="What the parts of a path mean: '{run}/{client}_{server}.txt'. Not for csv.")
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="ROLE=NAME",
    help="The column with the time, client, server, ...; jube, reframe.",
)
@click.option("--better", multiple=True, metavar="METRIC=WORD", help="Which direction is good: higher or lower. Not for csv.")
@click.option(
    "--zone", default="UTC", show_default=True, help="The zone of times that have none: Europe/Berlin, +01:00. Not for csv."
)
@database_option
@json_option
@says_that_it_works
def import_(  # noqa: PLR0917 - Click passes by name
    files: tuple[Path, ...],
    cluster: str,
    kind: str,
    facts_file: Path | None,
    names: str | None,
    columns: tuple[str, ...],
    better: tuple[str, ...],
    zone: str,
    database: Path,
    as_json: bool,
) -> int:
    """Import results that other programs measured into the database.

    The columns of a CSV are time,run,test,client,server,metric,value,unit,better, and optionally job, repetition, outcome,
    reason, message_bytes. --format reads the files of other programs; a folder means all files in it. The results become
    runs of kind import: every verb that reads or judges works on them, but they have no evidence. Importing twice changes
    nothing. If anything is wrong, hpcq says where and imports nothing.

    \b
    Example: hpcq import measured.csv --cluster alpha --facts facts.csv
    """
    from hpcq.imports.others import Maker, Meaning, check_names, encodable, zone_of
    from hpcq.imports.table import read_facts
    from hpcq.imports.values import Problems, name_of, runs_of
    from hpcq.store.load.imported import Brought, import_runs

    try:
        name_of(cluster)
    except ValueError as error:
        raise UserError(f"--cluster: {error}") from None
    if names is not None:
        check_names(names)
    if kind == _CSV and (names, columns, better, zone) != (None, (), (), "UTC"):
        raise UserError("--format csv: its columns say all: must be no --names, --column, --better or --zone")
    maker = Maker(kind, Meaning(names, _pairs("--column", columns), _directions(better), zone_of(zone)))
    problems, was = Problems(), gc.isenabled()
    gc.disable()  # a million rows make no circles of objects: Python's search for them would take a third of the time
    try:
        runs, sources = runs_of(_sources(kind, files, maker, problems), problems)
        facts = read_facts(facts_file, problems) if facts_file else {}
        problems.refuse("docs/import.md says what the formats are")
        if not any(run.jobs for run in runs):
            raise UserError(f"{files[0]}: no value: {'; '.join(maker.notes) or 'must be at least one'}")
        done = import_runs(database, cluster, Brought(runs, sources, facts, problems))
    finally:
        if was:
            gc.enable()
    notes = [encodable(note) for note in maker.notes]
    if as_json:
        print_json({**asdict(done), "notes": notes})
    else:
        _print(done, notes)
    return Exit.OK


def _sources(kind: str, files: Sequence[Path], maker: Maker, problems: Problems) -> Iterable[Source]:
    """The reader of a format, on these files. Raises UserError for a format that there is not."""
    from hpcq.imports import jube, logs, pscheduler, reframe, superbench, table

    if kind == _CSV:
        for path in files:
            if path.is_dir():
                raise UserError(f"{path}: is a folder: must be a CSV file; --format names other formats")
        return (table.read_table(path, problems) for path in files)
    if kind == "reframe":
        from hpcq.store.load.imported import reframe_sessions

        return reframe.read(files, maker, problems, reframe_sessions)
    others = {"jube": jube.read, "superbench": superbench.read, "pscheduler": pscheduler.read}
    if kind in others:
        return others[kind](files, maker, problems)
    from hpcq.definition.find import described_kernel, list_described
    from hpcq.kernels import unknown_name

    known = list_described()
    if kind != _LOGS and kind not in known:
        message, hint = unknown_name("format", kind, [_CSV, "reframe", *others, _LOGS, *known])
        raise UserError(f"--format: {message}", hint)
    return logs.read(files, [described_kernel(name) for name in (known if kind == _LOGS else [kind])], maker, problems)


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    from hpcq.imports.others import COLUMN_ROLES

    found = {}
    for text in texts:
        role, sign, name = text.partition("=")
        if not (sign and name) or role not in COLUMN_ROLES:
            raise UserError(f"{option} {text!r}: must be ROLE=NAME", f"the roles are {', '.join(COLUMN_ROLES)}")
        found[role] = name
    return found


def _directions(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, sign, word = text.rpartition("=")
        if not (sign and name) or word not in {"higher", "lower"}:
            raise UserError(f"--better {text!r}: must be METRIC=higher or METRIC=lower")
        found[name] = word
    return found


def _print(done: ImportReport, notes: Sequence[str]) -> None:
    new, known = units.count_of(done.new_value_count, "new value"), done.known_value_count
    kept = f"; {units.count_of(known, 'value')} there already" if known else ""
    runs = f"{units.count_of(done.run_count, 'run')} ({done.new_run_count} new), {done.first_utc[:10]} to {done.last_utc[:10]}"
    made = (
        f"{new} in {units.count_of(done.new_result_count, 'new result')}"
        if done.new_result_count or done.new_value_count
        else "nothing new"
    )
    print_words(f"{done.cluster}: {made}{kept}; {runs}", err=True)
    print_words(f"tests: {_some(done.tests)}; imported: no evidence stands behind these values", err=True)
    for note in notes[:_SHOWN]:
        print_words(f"note: {note}", err=True)
    if len(notes) > _SHOWN:
        print_words(f"and {len(notes) - _SHOWN} more notes: --json has them all", err=True)
    if done.new_fact_count:
        print_words(f"facts: attached to {units.count_of(done.new_fact_count, 'end')} of jobs", err=True)
    if done.late_facts:
        words = "their first fact is later than some of their results, which have no facts"
        print_words(f"warning: {_some(done.late_facts)}: {words}", err=True)
    if done.unknown_nodes:
        print_words(f"warning: facts of nodes without a result, left out: {_some(done.unknown_nodes)}", err=True)
    if done.last_utc > units.utc_text(dt.datetime.now(dt.UTC) + dt.timedelta(days=1)):
        print_words(f"warning: the newest value is of {done.last_utc[:16]} UTC, which is in the future", err=True)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
