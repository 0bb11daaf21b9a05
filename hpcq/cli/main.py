"""The command line: its verbs, and how it reports failures.

A verb lives in the module named in its row, which is imported on use, so `hpcq --help` starts at once.
"""

from __future__ import annotations

import importlib
import keyword
import os
import re
import select
import signal
import stat
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from hpcq import __version__
from hpcq.cli.options import NoSuchVerb, Verbs
from hpcq.cli.output import print_words
from hpcq.errors import Exit, HpcqError, of_the_machine
from hpcq.visible import visible_streams

# ----------------------------------------------------------------------------------------------------------------------
# Completion of hpcq's words in bash, zsh and fish, by the variable of Click: _HPCQ_COMPLETE=bash_source hpcq
#
# Click completes verbs, options and choices. The names below come from the database, or from files on this machine. What
# cannot be read completes nothing: a shell that waits for the next key is no place for an error.


_SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
#: Set by a person to bash_source, and by the printed script when a shell asks.
_COMPLETE = "_HPCQ_COMPLETE"
_RUNS_SHOWN = 50


def complete(root: click.Command, instruction: str) -> int:
    """Answer a shell. instruction: `bash_source` prints the script, `bash_complete` is what the script asks."""
    name, _, action = instruction.partition("_")
    shell = _SHELLS.get(name)
    if shell is None or action not in {"source", "complete"}:
        return Exit.USAGE
    if action == "source":
        click.echo(shell(root, {}, "hpcq", _COMPLETE).source())
        return Exit.OK

    class Completing(shell):  # type: ignore[misc, valid-type]
        """Click's completion, and names that only hpcq knows."""

        def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
            from click.shell_completion import _resolve_context, _resolve_incomplete

            context = _resolve_context(self.cli, self.ctx_args, self.prog_name, args)
            asked, begun = _resolve_incomplete(context, args, incomplete)
            found = _names(asked, context)
            if found is None:
                return list(asked.shell_complete(context, begun))
            return [CompletionItem(name) for name in found if name.startswith(begun)]

    click.echo(Completing(root, {}, "hpcq", _COMPLETE).complete())
    return Exit.OK


def _names(asked: Any, context: click.Context) -> list[str] | None:
    """The names that a parameter may have; None if hpcq knows no names for it."""
    if not isinstance(asked, click.Parameter):
        return None
    label = asked.opts[0].strip("-") if isinstance(asked, click.Option) else asked.human_readable_name.strip("[].").lower()
    source = _SOURCES.get(label.removesuffix("..."))
    if source is None or isinstance(asked.type, (click.Choice, click.Path)):
        return None
    try:
        return source(Path(context.params.get("database") or os.environ.get("HPCQ_DB") or "results.db"))
    except (HpcqError, OSError):
        return []


def _runs(database: Path) -> list[str]:
    from hpcq.store.database import reading
    from hpcq.store.free_query import runs
    from hpcq.store.selection import Selection

    with reading(database) as connection:
        return ["latest", *dict.fromkeys(one["run"] for one in runs(connection, None, Selection(), _RUNS_SHOWN))]


def _known(what: str) -> Callable[[Path], list[str]]:
    def found(database: Path) -> list[str]:
        from hpcq.store.database import reading
        from hpcq.store.query import names

        with reading(database) as connection:
            return names(connection, what)

    return found


def _kernels(database: Path) -> list[str]:  # noqa: ARG001 - the same for every database
    from hpcq.definition.find import kernel_names

    return kernel_names()


_SOURCES: dict[str, Callable[[Path], list[str]]] = {
    "run": _runs,
    "runs": _runs,
    "a": _runs,
    "b": _runs,
    **dict.fromkeys(("node", "client", "server"), _known("node")),
    "cluster": _known("cluster"),
    "campaign": _known("campaign"),
    "kernel": _kernels,
}


# ----------------------------------------------------------------------------------------------------------------------
# Click's complaints in hpcq's words: `where: what: found: allowed`, and a hint.
#
# Click says "'many' is not a valid integer range" or "File 'x' is a directory". It does not say what is allowed, and it
# calls an option by the name of a Python variable.


_FOUND = re.compile(r"^(?:File |Directory |Path )?'(?P<quoted>.*?)' |^(?P<plain>\S+) is not in the range")
_PATH_WORDS = {
    "is a directory": "is a folder: must be a file",
    "is a file": "is a file: must be a folder",
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
        return f"{extra.group(1)!r}: too much: takes {takes or 'no argument, only options'}"
    option = re.fullmatch(r"Option '(.*)' (does not take a value|requires an argument)", message)
    if option:
        allowed = "it stands alone" if "not" in option.group(2) else "a value must follow"
        return f"{option.group(1)}: {allowed}"
    return message


def _name(param: click.Parameter) -> str:
    """An option as a person types it; an argument as --help calls it."""
    return param.opts[0] if isinstance(param, click.Option) else str(param.human_readable_name).strip("[]{}").upper()


def _choices(param: click.Parameter) -> str:
    return f": must be one of {', '.join(map(str, param.type.choices))}" if isinstance(param.type, click.Choice) else ""


def _bad_value(error: click.BadParameter, param: click.Parameter) -> str:
    message = error.message.rstrip(".")
    found = _FOUND.match(message)
    value = (found.group("quoted") or found.group("plain") or "") if found else ""
    if isinstance(param.type, click.Choice):
        from difflib import get_close_matches

        names = [str(one) for one in param.type.choices]
        near = get_close_matches(value, names, n=1, cutoff=0.6)
        return f"{value!r}: " + (f"the nearest is {near[0]}; " if near else "") + f"must be one of {', '.join(names)}"
    if isinstance(param.type, (click.IntRange, click.FloatRange)):
        return f"{value!r}: must be {_range(param.type)}"
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


# ----------------------------------------------------------------------------------------------------------------------


#: Accepted anywhere, before or after the verb.
_DEBUG = "--debug"

#: What a shell sees of a program that SIGPIPE ended: 0 would look like a verdict that nobody has read.
_BY_SIGPIPE = 128 + signal.SIGPIPE

#: Verbs whose jobs may still be in a queue when the keyboard stops them.
_QUEUING = {"run", "resume", "cancel", "status", "accept", "stage"}

#: For the workflow, not for people: no list shows them.
_INTERNAL = "stage"

#: group -> verb -> (module, one line for the list of verbs), in the order of `hpcq --help`.
_GROUPS = {
    "Measure": {
        "run": ("campaigns", "Run a campaign: build, plan, measure, load, report."),
        "plan": ("campaigns", "Show what a campaign would run, where and how long."),
        "check": ("check", "Check campaign and cluster files without a cluster; print their schemas."),
        "status": ("campaigns", "Show the progress of a run."),
        "resume": ("campaigns", "Take over a run whose driver ended; queued jobs are adopted."),
        "cancel": ("campaigns", "End a run's jobs; nothing stays queued."),
        "clean": ("clean", "Show or remove the folders of earlier runs on a cluster."),
        "import": ("imports", "Import results of other programs from their files."),
    },
    "Read": {
        "runs": ("query", "List the runs in the database, newest first, and what they cost."),
        "results": ("results", "Show results, by run, kernel and pair."),
        "nodes": ("nodes", "List nodes, or show all about one: verdicts, measurements, partners, facts."),
        "show": ("show", "Show one result with the evidence of both ends."),
        "facts": ("facts", "Show the facts of a node, and what changed between two times."),
        "report": ("report", "Write an HTML page on a run, a stretch of time, a node or a cluster."),
        "export": ("export", "Write a run, or a dashboard, for other programs: CSV, JUnit, Prometheus, Grafana."),
        "plot": ("plot", "Draw size curves, a heat map or a history as SVG, PNG or PDF."),
        "sql": ("query", "Run a SELECT on the database; it cannot change anything."),
    },
    "Judge": {
        "accept": ("accept", "Test nodes after a maintenance: which may go back to users."),
        "health": ("health", "Pass the verdicts on to the nodes' own health checks."),
        "gate": ("gate", "Propose bounds for gates from past results."),
        "regressions": ("regressions", "Show what got worse, since when, and what differs."),
        "compare": ("compare", "Compare two runs or stretches of time, pair by pair."),
        "history": ("history", "List series, or show one over time, with its changes of level."),
        "blame": ("blame", "Find the slow node, link or group in pair results, or the pairs to measure next."),
        "detect": ("detect", "Find change points in any CSV, or test before against after."),
    },
    "Record": {
        "changes": ("annotations", "List recorded changes, and record what you decided about them."),
        "baseline": ("annotations", "Name the runs that later runs are compared with."),
        "annotate": ("annotations", "Add a note to a run, series, result or node."),
        "retract": ("annotations", "Mark results as bad; they stay in the database, but no longer count."),
        "event": ("annotations", "Record what happened to machines: maintenance, drains, reboots."),
        "db": ("db", "Load runs into the database, check it, merge, prune, set groups."),
    },
    "Set up": {
        "cluster": ("clusters", "Describe a new cluster, check what one has, build the kernels there."),
        "doctor": ("doctor", "Check this installation: schedules, unfinished runs, database, disk space."),
        "kernels": ("kernels", "List the kernels, what they measure and their parameters."),
        "schedule": ("schedule", "Run hpcq at set times: nightly campaigns, tests after a maintenance."),
        "notify": ("notify", "Run your own command when a verdict changes: mail, chat, ticket."),
        "lab": ("lab", "Start a cluster in a box: two real Slurm clusters on this machine."),
    },
    "": {"stage": ("stage", "One stage of a run; what the workflow calls.")},
}
_VERBS = {verb: row for group in _GROUPS.values() for verb, row in group.items()}


class _Verbs(Verbs):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # Click would end the process without a word
            if _nobody_reads():
                raise
            raise HpcqError("a program that hpcq had started ended before it read its input") from error

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [verb for verb in _VERBS if verb != _INTERNAL]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _VERBS:
            return None
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        found = getattr(importlib.import_module(f"hpcq.cli.{_VERBS[cmd_name][0]}"), name)
        return found if isinstance(found, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        widest = max(map(len, _VERBS))
        for group, verbs in _GROUPS.items():
            if group:
                with formatter.section(group):
                    formatter.write_dl([(f"{verb:<{widest}}", line) for verb, (_, line) in verbs.items()])


@click.command(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="hpcq")
@click.option("--debug", is_flag=True, help="Show a traceback when something fails.")
def hpcq(debug: bool) -> None:
    """Run network test campaigns on HPC clusters through their batch systems.

    \b
    Exit codes: 0 fine, 1 error, 2 usage, 3 degraded or failed, 4 incomplete.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    debug = _DEBUG in arguments
    if _open_streams():
        complain("standard output: is closed: an open one", "`> /dev/null` where nobody reads it")
        return Exit.ERROR
    # What hpcq makes is writable by nobody it does not know, whatever the umask: it would refuse such a folder the next time.
    os.umask(os.umask(stat.S_IWOTH) | stat.S_IWOTH)
    # A service may start without it, and not every program that is started from here has a default of its own.
    os.environ.setdefault("PATH", os.defpath)
    with visible_streams():
        return _run(arguments, debug=debug)


def _run(arguments: Sequence[str], *, debug: bool) -> int:
    try:
        words = [word for word in arguments if word != _DEBUG]
        if _COMPLETE in os.environ:
            return complete(hpcq, os.environ[_COMPLETE])
        outcome = hpcq.main(args=words, prog_name="hpcq", standalone_mode=False)
        sys.stdout.flush()  # here, and not at exit: a full disk behind it is an error like any other
        return int(outcome) if isinstance(outcome, int) else Exit.OK
    except BaseException as error:
        if isinstance(error, (BrokenPipeError, SystemExit)) and _nobody_reads():  # Click and Rich make a SystemExit of it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter complains at exit
            return _BY_SIGPIPE
        if debug:
            traceback.print_exc()
        return _tell(error, arguments)


def _nobody_reads() -> bool:
    """Whether the pipe behind standard output has lost its reader: a BrokenPipeError may come from another pipe."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), select.POLLOUT)
    except (OSError, ValueError):
        return False
    return any(found & (select.POLLERR | select.POLLHUP) for _, found in poll.poll(0))


def _open_streams() -> bool:
    """Open closed standard streams on /dev/null, and say whether standard output was one of them.

    Else the next file that hpcq opens gets its number, and a program that hpcq starts writes its errors into a journal.
    """
    closed = [number for number in range(3) if not _is_open(number)]
    for _ in closed:
        os.open(os.devnull, os.O_RDWR)  # takes the lowest free number; programs that hpcq starts are to have it too
    for number in closed:
        os.set_inheritable(number, True)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    return 1 in closed


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _tell(error: BaseException, arguments: Sequence[str]) -> int:
    """Report an error and return the exit code. Re-raises what is no failure of hpcq."""
    if isinstance(error, click.ClickException):
        return _usage(error, arguments)
    if isinstance(error, HpcqError):
        typed = error.exit_code == Exit.USAGE and error.message.startswith(("-", "'"))  # and not written in a file
        complain(error.message, error.hint or (f"{path_of(hpcq, arguments)} --help" if typed else None))
        return error.exit_code
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        queues = next((word for word in arguments if not word.startswith("-")), "") in _QUEUING
        left = "hpcq status shows what is still queued; hpcq resume or hpcq cancel"
        complain("stopped from the keyboard", left if queues else "nothing runs on: type it again when you want it")
        return Exit.ERROR
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        byte = ord(error.object[error.start]) & 0xFF
        words = f"{error.object!r}: byte {byte:#04x} is not UTF-8: must be a text in UTF-8"
        complain(words, "nothing was kept of it; `locale` says which characters this terminal sends")
        return Exit.USAGE
    trouble = _of_output(error) or of_the_machine(error, Path.cwd()) or _of_a_file(error)
    if trouble is not None:
        complain(trouble.message, trouble.hint)
        return trouble.exit_code
    if isinstance(error, Exception):
        complain(
            f"{type(error).__name__}: {error}", "this is a defect of hpcq: run again with --debug and report what it prints"
        )
        return Exit.ERROR
    raise error


def _of_output(error: BaseException) -> HpcqError | None:
    """Whether standard output is what cannot be written: an error without a file's name, raised where the CLI prints."""
    if not isinstance(error, OSError) or error.filename is not None or error.strerror is None:
        return None
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    if str(frame.f_globals.get("__name__")).partition(".")[0] not in {"click", "rich"} and not _prints(frame.f_globals):
        return None
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered would fail again at exit
    return HpcqError(f"standard output: cannot be written: {error.strerror}", "send it to a place with room")


def _of_a_file(error: BaseException) -> HpcqError | None:
    """A file or folder that the system refuses, in its words. What refuses is this machine, and not a defect of hpcq."""
    if not isinstance(error, OSError) or not isinstance(error.filename, str) or error.strerror is None:
        return None
    return HpcqError(f"{error.filename}: cannot be used: {error.strerror}", "check that path and its rights; --debug says more")


def _prints(module: Mapping[str, object]) -> bool:
    return str(module.get("__name__")).startswith(("hpcq.cli.", "hpcq.visible"))


def complain(message: str, hint: str | None = None) -> None:
    """Print an error for a person: the message, a blank line, the hint."""
    text = "\n".join(
        f"error: {line}" if number == 0 or _is_place(line) else line for number, line in enumerate(message.split("\n"))
    )
    print_words(_WORD.sub(_shortened, text), err=True)
    if hint:
        print_words(f"\nhint: {_WORD.sub(_shortened, hint)}", err=True)


#: What is no path and fills more than a screen.
_WORD = re.compile(r"\S{2000,}")


def _shortened(match: re.Match[str]) -> str:
    return f"{match[0][:200]}[... {len(match[0])} characters ...]{match[0][-20:]}"


def _is_place(line: str) -> bool:
    """Whether a further line is a separate complaint (`file:line: …`) and not the end of the previous one."""
    name, _, rest = line.partition(":")
    return bool(rest) and rest.split(":", 1)[0].isdecimal() and not name.startswith(" ")


def _usage(error: click.ClickException, words: Sequence[str]) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(error.format_message(), file=sys.stderr)  # noqa: T201
        return Exit.USAGE

    complain(*usage_words(error, hpcq, words))
    return Exit.USAGE
