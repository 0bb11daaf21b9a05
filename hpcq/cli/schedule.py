"""`hpcq schedule`: nightly samples and the watcher after maintenance, by systemd, crontab or a scheduler's own table."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from hpcq.cli.options import Verbs, json_option
from hpcq.cli.output import Column, print_rows, print_words
from hpcq.errors import Exit, UserError
from hpcq.runner.watch.schedule import KINDS

_ENTRY = (
    Column("name"),
    Column("kind"),
    Column("when"),
    Column("command", wrap=True),
    Column("started_utc", "last start"),
    Column("exit_code", "exit code"),
    Column("trouble", wrap=True),
)


@click.group(cls=Verbs)
def schedule() -> None:
    """Run hpcq at set times, without a daemon and without overlapping runs."""


@schedule.command("add")
@click.argument("name")
@click.argument("words", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--when", required=True, help="A local time (02:00), days and a time (Mon,Thu 02:00), or an interval: 5min, 1h.")
@click.option(
    "--with",
    "kind",
    type=click.Choice(KINDS),
    default="systemd",
    show_default=True,
    help="What starts it: a systemd timer of yours, your crontab, or the scheduler's own table.",
)
@click.option("--then", metavar="COMMAND", help="After each start, run this for verdicts that changed: see hpcq notify.")
@click.option("--dry-run", is_flag=True, help="Only show what hpcq would write.")
def add(  # noqa: PLR0917 - Click passes by name
    name: str, words: tuple[str, ...], when: str, kind: str, then: str | None, dry_run: bool
) -> int:
    """Run `hpcq COMMAND...` at set times, in this folder. It replaces an entry of the same name.

    Put -- before a command with options. If the previous start still runs, the next one does nothing. `run` gets --confirm,
    so that what is suspected at night is measured again the same night; --no-confirm leaves it out.

    \b
    Example: hpcq schedule add nightly --when 02:00 --dry-run -- run campaigns/nightly.yaml
             hpcq schedule add watch --when 5min --dry-run -- accept campaigns/after-maintenance.yaml --against good
    """
    from hpcq.runner.watch.schedule import install, new_entry, shown

    context = _check_words(words)
    parameters = context.params
    if context.info_name == "run" and context.get_parameter_source("confirm") is ParameterSource.DEFAULT:
        words = (*words, "--confirm")
    entry = replace(new_entry(name, kind, when, words, Path.cwd()), then=_then(then, parameters))
    for place, text in shown(entry).items():
        click.echo(f"{place}:\n" + "".join(f"    {line}\n" for line in text.splitlines()))
    if dry_run:
        print_words("nothing was written: --dry-run", err=True)
        return Exit.OK
    install(entry)
    return Exit.OK


#: Verbs whose first argument is a campaign file.
_OF_CAMPAIGNS = ("run", "accept", "plan")
#: These end at once, or ask somebody: nothing to do at night.
_NOT_AT_NIGHT = ("schedule", "lab", "check")


def _then(command: str | None, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """The `hpcq notify` that follows each start, on the database of the command itself."""
    if command is None:
        return ()
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"--then {command!r}: {error}: must be a command as in a shell") from None
    if not words or shutil.which(words[0]) is None:
        raise UserError(f"--then {command!r}: no such command", "write its path, or put it on the PATH")
    return ("notify", "--db", str(parameters.get("database") or "results.db"), "--", *words)


def _check_words(words: tuple[str, ...]) -> click.Context:
    """Raise what the command would raise at night because of how it is written: a verb, an option, a missing file.

    Returns the command with its parameters.
    """
    from hpcq.cli.main import hpcq
    from hpcq.kernels import unknown_name

    known = [one for one in hpcq.list_commands(click.Context(hpcq)) if one not in _NOT_AT_NIGHT]
    if words[0] not in known:
        message, hint = unknown_name("command to schedule", words[0], known)
        raise UserError(message, f"leave out {words[0]}: it is hpcq that a schedule calls" if words[0] == "hpcq" else hint)
    context = hpcq.make_context("hpcq", list(words))
    while isinstance(context.command, click.Group):
        left = [*context._protected_args, *context.args]
        if not left:
            break
        _, verb, rest = context.command.resolve_command(context, left)
        if verb is None:
            break
        context = verb.make_context(verb.name, rest, parent=context)
    if words[0] in _OF_CAMPAIGNS:
        from hpcq.definition.find import find_campaign
        from hpcq.runner.site.place import check_definitions

        check_definitions(find_campaign(context.params["campaign"]), context.params["cluster_folders"])
    return context


@schedule.command("list")
@json_option
def list_entries(as_json: bool) -> int:
    """List what is scheduled, and what went wrong: missed starts, failures. Exit code 1 when something did.

    \b
    Example: hpcq schedule list
    """
    from hpcq.runner.watch.schedule import entries, missed

    found = entries()
    troubles = [missed(entry) for entry in found]
    rows = [
        {
            "name": entry.name,
            "kind": entry.kind,
            "when": entry.when,
            "command": " ".join(["hpcq", *entry.words]),
            "folder": entry.folder,
            "started_utc": entry.started_utc,
            "ended_utc": entry.ended_utc,
            "exit_code": entry.exit_code,
            "trouble": trouble,
        }
        for entry, trouble in zip(found, troubles, strict=True)
    ]
    print_rows(rows, _ENTRY, as_json=as_json, empty="nothing is scheduled")
    return Exit.ERROR if any(troubles) else Exit.OK


@schedule.command("remove")
@click.argument("name")
def remove_entry(name: str) -> int:
    """Remove an entry.

    \b
    Example: hpcq schedule remove nightly
    """
    from hpcq.runner.watch.schedule import remove

    remove(name)
    return Exit.OK


@schedule.command("tick")
@click.argument("name")
def tick_entry(name: str) -> int:
    """Run an entry's command now, unless it still runs. Timers call this.

    \b
    Example: hpcq schedule tick nightly
    """
    from hpcq.runner.watch.schedule import tick

    code = tick(name)
    if code is None:
        print_words(f"{name} is still at work; nothing was started", err=True)
        return Exit.OK
    return code
