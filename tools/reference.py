"""Generate docs/cli.md from the command line itself: every verb with its options, exit codes and example.

python -m tools.reference            writes docs/cli.md
reference()                          the text, for the test that compares it with the committed page
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from hpcq.cli.main import hpcq

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
#: Characters of a prose line; docs/writing.md allows 120.
WIDTH = 116

_HEAD = """\
# The command line

Written by `make docs` from the program itself; a test compares the two. `hpcq VERB --help` shows the same.

Data goes to standard output, messages to standard error. On a terminal, tables are aligned; in a pipe they are
lines with tabs. `--json` prints the same as JSON, with values in base units. `--debug`, anywhere, shows a traceback
when something fails. hpcq obeys `NO_COLOR`. `HPCQ_DB`, `HPCQ_RUNS` and `HPCQ_CLUSTERS` (folders joined by `:`)
stand for `--db`, `--runs` and `--clusters`; `HPCQ_LABS=no` leaves out the clusters of labs that run on this machine.

## Exit codes

| code | meaning |
|---|---|
| 0 | fine |
| 1 | something failed: a cluster, a disk, a database |
| 2 | hpcq cannot use what you typed, or what a file says |
| 3 | measured, and degraded or a gate failed |
| 4 | incomplete: something that was planned is missing |

If several apply, 3 wins over 4. An error reads `error: where: found: allowed`; in most cases a hint follows.
"""


def verbs() -> Iterator[tuple[str, click.Command]]:
    """Every verb with its words: `run`, `cluster list`; a group comes before its verbs."""
    root = click.Context(hpcq, info_name="hpcq")
    for name in hpcq.list_commands(root):
        yield from _below(name, hpcq.get_command(root, name), root)


def examples(command: click.Command) -> list[str]:
    """The command lines under `Example:` in a verb's help."""
    _, found, block = inspect.cleandoc(command.help or "").replace("\b\n", "").partition("Example:")
    return [line.strip() for line in block.splitlines() if line.strip()] if found else []


def reference() -> str:
    """The whole page."""
    sections = [_section(words, command) for words, command in verbs()]
    return _HEAD + "".join(sections)


def _below(words: str, command: click.Command | None, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    if command is None:
        return
    yield words, command
    if isinstance(command, click.Group):
        inner = click.Context(command, info_name=words, parent=context)
        for name in command.list_commands(inner):
            yield from _below(f"{words} {name}", command.get_command(inner, name), inner)


def _section(words: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"hpcq {words}")
    usage = " ".join(command.collect_usage_pieces(context))
    help_text = inspect.cleandoc(command.help or "")
    prose, _, _ = help_text.partition("\b\nExample:")
    parts = [f"\n## hpcq {words}\n", f"    hpcq {words} {usage}".rstrip() + "\n", _prose(prose)]
    shown = examples(command)
    if shown:
        parts.append("For example:\n\n" + "\n".join(f"    {line}" for line in shown) + "\n")
    rows = [_option(option) for option in command.params if isinstance(option, click.Option) and not option.hidden]
    if rows:
        parts.append("| option | meaning |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(part for part in parts if part)


def _prose(text: str) -> str:
    r"""Wrap paragraphs; those after \b keep their lines."""
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if paragraph.startswith("\b\n"):
            paragraphs.append("\n".join(f"    {line}" for line in paragraph.splitlines()[1:]))
        else:
            paragraphs.append(textwrap.fill(" ".join(paragraph.split()), WIDTH, break_long_words=False, break_on_hyphens=False))
    return "\n\n".join(paragraphs) + "\n"


def _option(option: click.Option) -> str:
    context = click.Context(click.Command("none"))
    words, meaning = option.get_help_record(context) or ("", "")
    cells = [f"`{words}`", " ".join(meaning.split())]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
