"""Shared by several verbs: options, default paths, and the answer to an unknown verb."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from hpcq.store.database import Connection
    from hpcq.store.time_windows import Window


class _Number(click.IntRange):
    """A whole number from 1; SQLite can hold no larger one than the maximum."""

    name = "number"

    def __init__(self) -> None:
        super().__init__(1, 2**63 - 1)

    def _describe_range(self) -> str:
        return "x>=1"


#: A row number or a count.
NUMBER = _Number()


class NoSuchVerb(click.UsageError):
    """An unknown verb; `hint` lists the known ones."""

    def __init__(self, message: str, hint: str, context: click.Context) -> None:
        super().__init__(message, context)
        self.hint = hint


class Verbs(click.Group):
    """A group that suggests the nearest of its verbs."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0].startswith("-") or self.get_command(ctx, args[0]) is not None:
            return super().resolve_command(ctx, args)
        from hpcq.kernels import unknown_name

        raise NoSuchVerb(*unknown_name("command", args[0], self.list_commands(ctx)), ctx)


_Function = TypeVar("_Function", bound=Callable[..., Any])


def database_option(function: _Function) -> _Function:
    """--db FILE."""
    return click.option(
        "--db",
        "database",
        type=click.Path(path_type=Path, dir_okay=False),
        default=Path("results.db"),
        envvar="HPCQ_DB",
        show_default=True,
        help="The results database.",
    )(function)


def runs_option(function: _Function) -> _Function:
    """--runs FOLDER."""
    return click.option(
        "--runs",
        "runs_folder",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("runs"),
        envvar="HPCQ_RUNS",
        show_default=True,
        help="The folder of run folders.",
    )(function)


def clusters_option(function: _Function) -> _Function:
    """--clusters FOLDER, repeatable."""
    return click.option(
        "--clusters",
        "cluster_folders",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        multiple=True,
        help="A folder with cluster files, searched first; repeatable.",
    )(function)


def json_option(function: _Function) -> _Function:
    """--json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(function)


def near(path: Path) -> str:
    """A path relative to here, as a person would type it."""
    relative = os.path.relpath(path)
    return relative if not relative.startswith("../..") else str(path)


def since_option(default: str | None = None, help_text: str = "Only this stretch of time") -> Callable[[_Function], _Function]:
    """--since STRETCH, with the same words in every verb; `stretch` reads them."""
    return click.option(
        "--since",
        default=default,
        show_default=default is not None,
        metavar="STRETCH",
        help=f"{help_text}: 30d, 2026-11, 90d..30d, a run.",
    )


def limit_option(default: int | None = None) -> Callable[[_Function], _Function]:
    """--limit N."""
    return click.option(
        "--limit", type=NUMBER, default=default, show_default=default is not None, help="At most this many rows."
    )


def stretch(connection: Connection, since: str | None) -> Window:
    """The stretch of time that --since names. A day or month is where it begins; nothing given is all time."""
    from dataclasses import replace

    from hpcq.store.time_windows import Window, window

    if since is None:
        return Window("all time")
    found = window(connection, since)
    return replace(found, until_utc=None) if ".." not in found.text and found.run_ids is None else found
