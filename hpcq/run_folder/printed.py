"""Read what a kernel of hpcq printed: one line, or of a sweep over sizes one line per size. Pure.

A sweep prints each size as soon as it is measured. Whoever kills it takes only the size under way:

    {"format":1,"kernel":"tcp_pingpong","sizes":[
    RESULT
    ,RESULT
    ],"exit_code":0}                the last line of a sweep that ended
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hpcq.kernels import SIZE_OPTION
from hpcq.run_folder.paths import parse_json

_SIZES_FOLLOW = b'"sizes":['
_LAST = b"]"


class NothingPrintedError(ValueError):
    """The kernel printed no line. What it wrote for people may say why."""


def printed(content: bytes) -> dict[str, Any]:
    """Return the object that a kernel printed; of a killed sweep, its whole sizes, without `exit_code`.

    Raises ValueError that says what is wrong.
    """
    lines = [line for line in content.split(b"\n") if line.strip()]
    if not lines:
        raise NothingPrintedError("no result line")
    if lines[0].endswith(_SIZES_FOLLOW):
        return _sweep(content)
    if len(lines) != 1:
        raise ValueError(f"{len(lines)} lines: allowed is exactly one")
    try:
        return parse_json(lines[0])
    except ValueError as error:
        raise ValueError(f"result line: {error}") from None


def kept_sizes(content: bytes) -> bytes | None:
    """Return, as one line, the object of the sizes that a player of a tournament kept beside the spool, if any.

    Several players may have added to them, and each may have been killed amid a line: what is whole counts.
    """
    found: dict[object, dict[str, Any]] = {}
    skipped: list[int] = []
    for line in content.split(b"\n")[:-1]:
        skipped = skipped or skipped_sizes(line)
        try:
            one = parse_json(line.removeprefix(b","))
        except ValueError:
            continue
        size = size_of(one)
        if size is not None and (size not in found or found[size].get("error") is not None):
            found[size] = one
    if not found:
        return None
    first = next(iter(found.values()))
    head = {"format": first.get("format"), "kernel": first.get("kernel"), **({"skipped": skipped} if skipped else {})}
    return json.dumps({**head, "sizes": [*found.values()]}).encode()


def measured_sizes(content: bytes) -> list[int]:
    """Return the sizes that a sweep, ended or killed, printed a measurement of; empty for all else."""
    try:
        found = _sizes(printed(content))
    except ValueError:
        return []
    known = ((one, size_of(one)) for one in found)
    return [size for one, size in known if isinstance(size, int) and one.get("error") is None]


def skipped_sizes(content: bytes) -> list[int]:
    """Return the sizes that a sweep left out, since an earlier attempt had measured them."""
    head = content.partition(b"\n")[0]
    try:
        found = parse_json(head + b"]}" if head.endswith(_SIZES_FOLLOW) else head).get("skipped")
    except ValueError:
        return []
    return [size for size in found if isinstance(size, int)] if isinstance(found, list) else []


def of_size(
    content: dict[str, Any], parameters: Mapping[str, Any], return_code: int | None
) -> tuple[dict[str, Any], int | None]:
    """Of a sweep, the line of the planned size, with the exit code that belongs to it; else what was given.

    A sweep ends where a size cannot be measured: what was not reached says so. Raises NothingPrintedError for a size that a
    killed sweep did not get to.
    """
    if "sizes" not in content:
        return content, return_code
    sizes, killed = _sizes(content), "exit_code" not in content
    for one in sizes:
        if size_of(one) == parameters.get(SIZE_OPTION):
            own_code_counts = killed or content["exit_code"] == return_code
            return one, one.get("exit_code") if own_code_counts else return_code
    if killed or not sizes:
        last_words = f"the last size that it measured is {size_of(sizes[-1])} bytes" if sizes else "it had measured no size"
        raise NothingPrintedError(f"the sweep was killed before this size was measured; {last_words}")
    last = sizes[-1]
    error = _mapping(last.get("error"))
    words = ": ".join(str(one) for one in (f"the sweep ended at {size_of(last)} bytes", error.get("message")) if one)
    return {**last, "metrics": {}, "error": {"state": error.get("state"), "message": words}}, return_code


def size_of(one: Mapping[str, Any]) -> object:
    """Return the size that a result line of a sweep is about."""
    return _mapping(one.get("options")).get(SIZE_OPTION)


def _sweep(content: bytes) -> dict[str, Any]:
    """Each line by itself: the whole may be longer than any one line may be. A torn last line is no line."""
    head, *lines = content.split(b"\n")[:-1]
    found = parse_json(head + b"]}")
    for number, line in enumerate(lines, start=2):
        try:
            if line.startswith(_LAST):
                return {**found, **parse_json(b'{"sizes":[' + line), "sizes": found["sizes"]}
            found["sizes"].append(parse_json(line.removeprefix(b",")))
        except ValueError as error:
            raise ValueError(f"line {number} of the sweep: {error}") from None
    return found


def _sizes(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = content.get("sizes")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
