"""The result line of a foreign program: from what the program wrote to what a kernel of hpcq would have said.

hpcq-net hands on the program's output as it is. Here it becomes options, metrics and warnings, as the description in
the run's folder says, so that everything after it need not know that the program is foreign.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpcq.described.commands import command, same_command, sent_at_least, sizes
from hpcq.described.numbers import UnreadableError
from hpcq.described.output import Read, read_output
from hpcq.described_kernel import Described, Shape
from hpcq.kernels import Kernel

#: The kernel of hpcq-net that starts a foreign program.
PROGRAM = "program"
_KEPT_CHARACTERS = 4000


def translated(content: Mapping[str, Any], kernel: Kernel, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The line as a kernel's own. What cannot be read makes it invalid, with the reason, and keeps its output.

    A line of a failed program keeps its error and has no metrics.
    """
    described = kernel.described
    assert described is not None  # noqa: S101 - the caller has looked
    line = {**content, "warnings": list(_list(content.get("warnings")))}
    if content.get("kernel") != PROGRAM:
        return line
    line |= {"kernel": kernel.name, "options": dict(parameters), **told_of(kernel, parameters)}
    outputs = _mapping(content.get("outputs"))
    reader = _mapping(outputs.get(described.end))
    if content.get("error") is None and content.get("valid") is True:
        try:
            _check_commands(described, outputs, parameters)
            found = _read(described, reader, parameters)
            _fill(line, described, found, parameters)
        except UnreadableError as error:
            line |= {"valid": False, "invalid_reason": f"{kernel.name}: {error}", "metrics": {}}
    if line.get("valid") is not True:
        line["metrics"] = {}
        _keep(line, outputs)
    return line


def told_of(kernel: Kernel, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What the rules of evidence must know of a described kernel, beside its result: as keys of the line."""
    described = kernel.described
    if described is None:
        return {}
    return {
        "over_mpi": described.shape.over_mpi,
        "one_node": described.shape is Shape.ONE_NODE,
        "many_ranks": described.shape is Shape.MPI_RANKS,
        "sent_at_least_bytes": list(sent_at_least(described, parameters)),
    }


def _read(described: Described, reader: Mapping[str, Any], parameters: Mapping[str, Any]) -> Read:
    if reader.get("cut") is True:
        raise UnreadableError("output: more than 4 MiB: allowed is less")
    text = reader.get(described.stream)
    return read_output(described, text if isinstance(text, str) else "", sizes(described, parameters))


def _fill(line: dict[str, Any], described: Described, found: Read, parameters: Mapping[str, Any]) -> None:
    size = parameters.get(described.sizes.option) if described.sizes else None
    if size in found.complaints:
        raise UnreadableError(found.complaints[size])
    if size not in found.metrics:
        raise UnreadableError(f"no row for size {size}")
    line["metrics"] = {**_mapping(line.get("metrics")), **found.metrics[size]}
    line["warnings"] += [{"name": "program_said", "message": said} for said in found.said]


def _check_commands(described: Described, outputs: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
    """The words that were started are those of the plan: a line of another description is no result of this one."""
    templates = {"client": described.command}
    if described.server is not None:
        templates["server"] = described.server.command
    for end, template in templates.items():
        used = _mapping(outputs.get(end)).get("command")
        expected = command(described, template, parameters)
        if not same_command(expected, used):
            words = " ".join(map(str, used)) if isinstance(used, list) else "nothing"
            raise UnreadableError(f"{end}: started {words}: planned {' '.join(expected)}")


def _keep(line: dict[str, Any], outputs: Mapping[str, Any]) -> None:
    """The ends of what the programs wrote, beside the reason why there is no number."""
    for end, written in outputs.items():
        for stream in ("output", "errors"):
            text = _mapping(written).get(stream)
            if isinstance(text, str) and text.strip():
                message = f"{end}: {text.strip()[-_KEPT_CHARACTERS:]}"
                line["warnings"].append({"name": f"program_{stream}", "message": message})


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
