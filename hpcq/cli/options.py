"""Shared by several verbs: options, default paths, and the answer to an unknown verb."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click


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
        type=click.Path(path_type=Path, file_okay=False),
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
