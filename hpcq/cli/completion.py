"""`hpcq completion`: what completes hpcq's words in bash, zsh and fish.

Click completes verbs, options and choices. The names below come from the database, or from files on this machine. What
cannot be read completes nothing: a shell that waits for the next key is no place for an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from hpcq.errors import Exit, HpcqError

_SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
_VARIABLE = "_HPCQ_COMPLETE"
_RUNS_SHOWN = 50


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
def completion(shell: str) -> int:
    """Print what completes hpcq's words in a SHELL: verbs, options, runs, nodes, kernels, clusters.

    \b
    bash: eval "$(hpcq completion bash)"                                   in ~/.bashrc
    zsh:  eval "$(hpcq completion zsh)"                                    in ~/.zshrc
    fish: hpcq completion fish > ~/.config/fish/completions/hpcq.fish

    \b
    Example: hpcq completion bash
    """
    chosen = _SHELLS[shell](click.get_current_context().find_root().command, {}, "hpcq", _VARIABLE)
    click.echo(chosen.source_template % chosen.source_vars())
    return Exit.OK


def complete(root: click.Command, instruction: str) -> int:
    """Answer a shell. instruction: `bash_complete` and the like, from the variable that the printed script sets."""
    shell = _SHELLS.get(instruction.partition("_")[0])
    if shell is None:
        return Exit.USAGE

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

    click.echo(Completing(root, {}, "hpcq", _VARIABLE).complete())
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
    from hpcq.store.time_windows import Window

    with reading(database) as connection:
        return ["latest", *dict.fromkeys(one["run"] for one in runs(connection, None, Window("all time"), _RUNS_SHOWN))]


def _known(what: str) -> Callable[[Path], list[str]]:
    def found(database: Path) -> list[str]:
        from hpcq.store.database import reading
        from hpcq.store.read.known import names

        with reading(database) as connection:
            return names(connection, what)

    return found


def _kernels(database: Path) -> list[str]:  # noqa: ARG001 - the same for every database
    from hpcq.kernels import kernels

    return list(kernels())


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
