"""`hpcq kernels`: what hpcq can measure, with its own programs and with described ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from hpcq import units
from hpcq.cli.options import Verbs, json_option
from hpcq.cli.output import Column, print_json, print_rows, print_words
from hpcq.errors import Exit, UserError

if TYPE_CHECKING:
    from hpcq.described import Read
    from hpcq.kernels import Kernel, Option

_LIST = (Column("name", "kernel"), Column("program"), Column("summary", "measures", wrap=True))
_OPTIONS = (Column("name", "parameter"), Column("allowed"), Column("default"), Column("help", "meaning", wrap=True))
_METRICS = (Column("name", "metric"), Column("better"), Column("help", "meaning", wrap=True))
_SAMPLE = (Column("size"), Column("metric"), Column("value"), Column("shown"))


class _Kernels(Verbs):
    """A group whose first word may also be the name of a kernel."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            return "show", show, args
        return super().resolve_command(ctx, args)


@click.group(cls=_Kernels, invoke_without_command=True, subcommand_metavar="[COMMAND] [ARGS]...")
@json_option
@click.pass_context
def kernels(context: click.Context, as_json: bool) -> int:
    """List the kernels, what they measure and their parameters.

    \b
    Example: hpcq kernels tcp_stream
    """
    if context.invoked_subcommand is not None:
        return Exit.OK
    from hpcq.definition.find import all_kernels

    known, unread = all_kernels()
    found = list(known.values())
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        print_rows(found, _LIST)
    for message in unread:
        print_words(f"warning: {message}", err=True)
    return Exit.ERROR if unread else Exit.OK


@click.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> int:
    """Show one kernel."""
    from hpcq.definition.find import kernel_names, kernels_named
    from hpcq.kernels import unknown_name

    known = kernels_named({name})
    if name not in known:
        raise UserError(*unknown_name("kernel", name, kernel_names()))
    one = known[name]
    if as_json:
        print_json([asdict(one)])
    else:
        _print_kernel(one)
    return Exit.OK


@kernels.command()
@click.argument("name")
@click.option("--sample", required=True, type=click.Path(path_type=Path), help="A saved output of the program.")
@click.option("--set", "given", multiple=True, metavar="OPTION=VALUE", help="An option that the program ran with; repeatable.")
@click.option("--exit-code", type=click.IntRange(0, 255), help="The exit code of the program. Default: one that means success.")
@json_option
def check(name: str, sample: Path, given: Sequence[str], exit_code: int | None, as_json: bool) -> int:
    """Read a saved output with a description, and show what hpcq would store.

    NAME is a described kernel or the path of its file. Exit code 1 when the output cannot be read, or reports a failure.

    \b
    Example: hpcq kernels check iperf3_tcp --sample iperf3.json
    """
    from hpcq.definition.find import described_kernel

    kernel = described_kernel(name)
    text, parameters = _read_sample(sample), _parameters(kernel, given)
    failed = _failure(kernel, text, exit_code)
    if failed is not None:
        return _refused("failed", failed, as_json=as_json)
    return _check_sample(kernel, text, parameters, as_json=as_json)


@kernels.command()
@click.argument("name")
@click.option("--mpi", is_flag=True, help="For a program of two MPI ranks instead of a client and a server.")
def new(name: str, mpi: bool) -> int:
    """Write a commented description to start from, in the folder kernels/ beside your campaigns.

    \b
    Example: hpcq kernels new my_latency
    """
    from hpcq.definition.find import write_skeleton

    path = write_skeleton(name, mpi=mpi)
    print_words(f"wrote {path}: fill it in, save an output of the program, then")
    print_words(f"  hpcq kernels check {quote(str(path))} --sample FILE")
    return Exit.OK


def _read_sample(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError as error:
        raise UserError(f"--sample: {path}: cannot be read: {error.strerror}") from None


def _parameters(kernel: Kernel, given: Sequence[str]) -> dict[str, Any]:
    from hpcq.kernels import complete, option_value, unknown_name

    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        option = kernel.option(key)
        if not equals or option is None:
            message, hint = unknown_name(f"parameter of {kernel.name}", key, [one.name for one in kernel.options])
            raise UserError(f"--set: {message}", hint)
        try:
            found[key] = option_value(kernel, option, {"true": True, "false": False}.get(value, value))
        except ValueError as error:
            raise UserError(f"--set: {key}: {error}") from None
    return complete(kernel, found)


def _check_sample(kernel: Kernel, text: str, parameters: dict[str, Any], *, as_json: bool) -> int:
    from hpcq.described import UnreadableError, read_output, sizes

    described = kernel.described
    assert described is not None  # noqa: S101 - only described kernels get here
    try:
        found = read_output(described, text, sizes(described, parameters))
    except UnreadableError as error:
        return _refused("invalid", f"{kernel.name}: {error}", as_json=as_json)
    _print_sample(kernel, found, as_json=as_json)
    return Exit.ERROR if found.complaints else Exit.OK


def _failure(kernel: Kernel, text: str, exit_code: int | None) -> str | None:
    """Why a run with this output failed, in the words of hpcq-net; None: it did not."""
    from hpcq.described import failure_said

    described = kernel.described
    assert described is not None  # noqa: S101 - only described kernels get here
    if exit_code is not None and exit_code not in described.exit_codes:
        allowed = ", ".join(map(str, described.exit_codes))
        return f"{kernel.name}: exit code {exit_code}: must be {allowed}"
    said = failure_said(described, text)
    return None if said is None else f"{kernel.name}: it said: {said}"


def _refused(outcome: str, reason: str, *, as_json: bool) -> int:
    if as_json:
        print_json([{"size": None, "outcome": outcome, "reason": reason, "metrics": {}}])
    else:
        print_words(f"{outcome}: {reason}")
    return Exit.ERROR


def _print_sample(kernel: Kernel, found: Read, *, as_json: bool) -> None:
    results: list[dict[str, Any]] = [
        {"size": size, "outcome": "measured", "reason": None, "metrics": metrics} for size, metrics in found.metrics.items()
    ]
    results += [
        {"size": size, "outcome": "invalid", "reason": reason, "metrics": {}} for size, reason in found.complaints.items()
    ]
    if as_json:
        print_json(results)
        return
    rows = [
        {"size": one["size"], "metric": name, "value": f"{value:.12g}", "shown": _human(kernel, name, value)}
        for one in results
        for name, value in one["metrics"].items()
    ]
    print_rows(rows, _SAMPLE, empty="no metric")
    for one in results:
        if one["reason"]:
            print_words(f"invalid: {'' if one['size'] is None else 'size ' + str(one['size']) + ': '}{one['reason']}")
    for said in found.said:
        print_words(f"warning of the program: {said}")


def _human(kernel: Kernel, name: str, value: float) -> str:
    metric = kernel.metric(name)
    return units.human(value, metric.unit) if metric is not None and metric.unit is not None else f"{value:g}"


def _print_kernel(one: Kernel) -> None:
    print_words(f"{one.name} ({one.program}): {one.summary}\n\n{one.method}\n")
    if one.described is not None:
        print_words(f"described in {one.described.path}; shape: {one.described.shape.value}\n")
    rows = [
        {"name": option.name, "allowed": _allowed(option), "default": json.dumps(option.default), "help": option.help}
        for option in one.options
    ]
    print_rows(rows, _OPTIONS)
    print_words()
    print_rows(one.metrics, _METRICS)


def _allowed(option: Option) -> str:
    words = list(option.choices)
    if option.minimum is not None or option.maximum is not None:
        bounds = (option.minimum, option.maximum)
        words.insert(0, " to ".join("any" if bound is None else f"{bound:.12g}" for bound in bounds))
    return " ".join(words) or option.type.value
