"""Click's complaints in hpcq's words: `where: what: found: allowed`, and a hint.

Click says "'many' is not a valid integer range" or "File 'x' is a directory". It does not say what is allowed, and it
calls an option by the name of a Python variable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from hpcq.cli.options import NoSuchVerb

_FOUND = re.compile(r"^(?:File |Directory |Path )?'(?P<quoted>.*?)' |^(?P<plain>\S+) is not in the range")
_PATH_WORDS = {
    "is a directory": "is a folder: allowed is a file",
    "is a file": "is a file: allowed is a folder",
    "does not exist": "is not there",
    "is not readable": "cannot be read",
    "is not writable": "cannot be written",
}


def usage_words(error: click.ClickException, root: click.Command, words: Sequence[str]) -> tuple[str, str]:
    """Message and hint for a usage error. words: the whole command line, to find the verb where Click forgot it."""
    context = getattr(error, "ctx", None)
    command = context.command if context else _command_of(root, words)
    where = context.command_path if context else path_of(root, words)
    message, hint = _words(error, command)
    return f"{where}: {message}", hint or f"{where} --help"


def _words(error: click.ClickException, command: click.Command) -> tuple[str, str | None]:
    from hpcq.kernels import unknown_name

    if isinstance(error, click.NoSuchOption):
        options = [name for one in command.params if isinstance(one, click.Option) for name in one.opts]
        return unknown_name("option", error.option_name, options)
    if isinstance(error, NoSuchVerb):
        return error.message, error.hint
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return f"{_name(error.param)}: nothing given: it is required{_choices(error.param)}", None
    if isinstance(error, click.BadParameter) and error.param is not None:
        return f"{_name(error.param)}: {_bad_value(error, error.param)}", None
    return _plain_words(error.format_message().rstrip("."), command), None


def _plain_words(message: str, command: click.Command) -> str:
    extra = re.fullmatch(r"Got unexpected extra arguments? \((.*)\)", message)
    if extra:
        takes = " ".join(one.make_metavar(click.Context(command)) for one in command.params if isinstance(one, click.Argument))
        return f"{extra.group(1)!r}: too much: allowed is {takes or 'no argument, only options'}"
    option = re.fullmatch(r"Option '(.*)' (does not take a value|requires an argument)", message)
    if option:
        allowed = "it stands alone" if "not" in option.group(2) else "a value must follow"
        return f"{option.group(1)}: {allowed}"
    return message


def _name(param: click.Parameter) -> str:
    """An option as a person types it; an argument as --help calls it."""
    return param.opts[0] if isinstance(param, click.Option) else str(param.human_readable_name).strip("[]{}").upper()


def _choices(param: click.Parameter) -> str:
    return f": allowed are {', '.join(map(str, param.type.choices))}" if isinstance(param.type, click.Choice) else ""


def _bad_value(error: click.BadParameter, param: click.Parameter) -> str:
    message = error.message.rstrip(".")
    found = _FOUND.match(message)
    value = (found.group("quoted") or found.group("plain") or "") if found else ""
    if isinstance(param.type, click.Choice):
        from difflib import get_close_matches

        names = [str(one) for one in param.type.choices]
        near = get_close_matches(value, names, n=1, cutoff=0.6)
        return f"{value!r}: " + (f"the nearest is {near[0]}; " if near else "") + f"allowed are {', '.join(names)}"
    if isinstance(param.type, (click.IntRange, click.FloatRange)):
        return f"{value!r}: allowed is {_range(param.type)}"
    for theirs, ours in _PATH_WORDS.items():
        if message.endswith(theirs):
            return f"{value}: {ours}"
    return message


def _range(kind: click.IntRange | click.FloatRange) -> str:
    """`a whole number from 1 to 9`, `a number above 0`."""
    number = "a whole number" if isinstance(kind, click.IntRange) else "a number"
    lowest = "" if kind.min is None else f"above {kind.min:g}" if kind.min_open else f"from {kind.min:g}"
    highest = "" if kind.max is None else f"below {kind.max:g}" if kind.max_open else f"to {kind.max:g}"
    if isinstance(kind, click.IntRange) and kind.max is not None and kind.max >= 2**63 - 1:
        highest = "upwards"
    return " ".join(part for part in (number, lowest, highest or "upwards") if part)


def _command_of(root: click.Command, words: Sequence[str]) -> click.Command:
    """The verb that a command line names."""
    command = root
    for word in words:
        if not isinstance(command, click.Group):
            break
        found = command.get_command(click.Context(command), word)
        command = found or command
    return command


def path_of(root: click.Command, words: Sequence[str]) -> str:
    """`hpcq schedule add`: the words of a command line that name its verb."""
    path, command = ["hpcq"], root
    for word in words:
        found = command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
        if found is None:
            continue
        path.append(word)
        command = found
    return " ".join(path)
