"""Write docs/man/*.1 from the command line itself: hpcq(1) with the list of verbs, and one page for each verb.

python -m tools.man_pages        writes the pages; the wheel installs them where man looks
pages()                          file name -> text, for the test that compares them with the committed ones
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from hpcq import __version__
from hpcq.cli.main import _GROUPS, hpcq
from tools.reference import examples, verbs

FOLDER = Path(__file__).parents[1] / "docs" / "man"

_CODES = (
    ("0", "fine"),
    ("1", "something failed: a cluster, a disk, a database"),
    ("2", "hpcq cannot use what you typed, or what a file says"),
    ("3", "measured, and degraded or a gate failed"),
    ("4", "incomplete: something that was planned is missing, or too little to judge"),
)
_VARIABLES = (
    ("HPCQ_DB", "the results database, as --db"),
    ("HPCQ_RUNS", "the folder of run folders, as --runs"),
    ("HPCQ_CLUSTERS", "folders of cluster files, joined by a colon, as --clusters"),
    ("HPCQ_LABS", "yes or no: whether clusters of labs that run on this machine are found; yes unless set"),
    ("NO_COLOR", "no colours on terminals"),
)


def pages() -> dict[str, str]:
    """Return every page by the name of its file."""
    by_verb: dict[str, list[tuple[str, click.Command]]] = {}
    for words, command in verbs():
        by_verb.setdefault(words.partition(" ")[0], []).append((words, command))
    made = {"hpcq.1": _text(_root(list(by_verb)))}
    for verb, below in by_verb.items():
        made[f"hpcq-{verb}.1"] = _text(_verb(verb, below))
    return made


def _root(known: list[str]) -> Iterator[str]:
    yield from _head("hpcq", "run network test campaigns on HPC clusters through their batch systems")
    yield from (".SH SYNOPSIS", ".B hpcq", ".I VERB", "[options] [arguments]")
    yield ".SH DESCRIPTION"
    yield from _prose((hpcq.help or "").partition("\b")[0])
    for group, rows in _GROUPS.items():
        if group:
            yield f".SS {_plain(group)}"
            for verb, (_, line) in rows.items():
                assert verb in known
                yield from (".TP", f".BR hpcq\\-{_plain(verb)} (1)", _line(line))
    yield ".SH ENVIRONMENT"
    yield from _terms(_VARIABLES)
    yield ".SH EXIT STATUS"
    yield from _terms(_CODES)


def _verb(verb: str, below: list[tuple[str, click.Command]]) -> Iterator[str]:
    summary = next(rows[verb][1] for rows in _GROUPS.values() if verb in rows)
    yield from _head(f"hpcq-{verb}", summary[0].lower() + summary[1:].rstrip("."))
    yield ".SH SYNOPSIS"
    leaves = [(words, command) for words, command in below if not isinstance(command, click.Group)]
    for number, (words, command) in enumerate(leaves):
        usage = " ".join(command.collect_usage_pieces(click.Context(command)))
        yield from ([".br"] if number else [])
        yield f".B hpcq {_plain(words)}"
        yield _line(usage)
    yield ".SH DESCRIPTION"
    for words, command in below:
        if len(below) > 1:
            yield f".SS {_plain('hpcq ' + words)}"
        yield from _described(command)
    yield from (".SH SEE ALSO", ".BR hpcq (1)")


def _described(command: click.Command) -> Iterator[str]:
    yield from _prose(inspect.cleandoc(command.help or "").partition("\b\nExample:")[0])
    context = click.Context(command)
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            words, meaning = option.get_help_record(context) or ("", "")
            yield from (".TP", f".B {_plain(words)}", _line(meaning))
    shown = examples(command)
    if shown:
        yield from (".PP", "For example:", ".PP", ".nf", *(f"    {_line(one)}" for one in shown), ".fi")


def _head(name: str, summary: str) -> Iterator[str]:
    yield '.\\" Written by make docs from the program itself.'
    yield f'.TH {_plain(name.upper())} 1 "" "hpcq {__version__}" "hpcq"'
    yield from (".SH NAME", f"{_plain(name)} \\- {_plain(summary)}")


def _terms(rows: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for term, meaning in rows:
        yield from (".TP", f".B {_plain(term)}", _line(meaning))


def _prose(text: str) -> Iterator[str]:
    r"""Paragraphs; those after \b keep their lines."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        yield ".PP"
        if paragraph.startswith("\b\n"):
            yield from (".nf", *(_line(line) for line in paragraph.splitlines()[1:]), ".fi")
        else:
            yield _line(" ".join(paragraph.split()))


def _plain(text: str) -> str:
    """Escape what roff would read: a backslash, a hyphen that must stay one, quotes that it would bend."""
    return (
        text.replace("\\", "\\e")
        .replace("-", "\\-")
        .replace("'", "\\(aq")
        .replace("`", "\\(ga")
        .replace("^", "\\(ha")
        .replace("~", "\\(ti")
    )


def _line(text: str) -> str:
    """Escape a whole line; it is no request, whatever its first sign is."""
    escaped = _plain(text)
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def _text(lines: Iterator[str]) -> str:
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    made = pages()
    for old in FOLDER.glob("*.1"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
