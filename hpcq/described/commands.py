"""The command lines of a foreign program: templates over its options, each word one argument, never a shell.

`{address}`, `{client_address}` and `{port}` are known only when the job runs; hpcq-net fills them in.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hpcq.described_kernel import Described, Ready, Sizes, Steps
from hpcq.errors import UserError
from hpcq.kernels import Kernel, ParameterValue
from hpcq.render import render_text

#: A word of a template: pieces without blanks, where what stands in braces counts as one.
_WORD = re.compile(r"(?:\{\{.*?\}\}|\{%.*?%\}|[^\s])+")
_RUNTIME = {"address": "{address}", "client_address": "{client_address}", "port": "{port}"}
_FILLED = re.compile(r"\\\{(?:address|client_address|port)\\\}")
#: What starting, readiness and the ends of both programs cost in addition to the limit.
OVERHEAD_S = 15.0
SIZES_MAX = 200
#: The longest run of a program: the limit of a phase in hpcq-net.
LIMIT_MAX_S = 3600.0
_SIZE_MAX = 1 << 60


def command(described: Described, template: str, parameters: Mapping[str, ParameterValue]) -> tuple[str, ...]:
    """The words of a command. A word that renders to nothing is left out. Raises UserError for a template that fails."""
    values = {**parameters, **_RUNTIME, "program": described.program}
    words = tuple(_one(described, word, values) for word in _WORD.findall(template))
    return tuple(word for word in words if word)


def limit_s(described: Described, parameters: Mapping[str, ParameterValue]) -> float:
    """How long the program may run."""
    return _number(described, "limit_s", described.limit_s, parameters)


def sizes(described: Described, parameters: Mapping[str, ParameterValue]) -> tuple[int, ...]:
    """The sizes that one run measures, in order; empty when it has none. Raises UserError for more than 200."""
    return _sizes(described, described.sizes, parameters) if described.sizes else ()


def sent_at_least(described: Described, parameters: Mapping[str, ParameterValue]) -> tuple[float, ...]:
    """Bytes that the client and the server send at least over the whole run; empty when nobody knows."""
    values = {**parameters, "size_sum": sum(sizes(described, parameters))}
    return tuple(_number(described, "sends_at_least_bytes", one, values) for one in described.sends_at_least)


def check_limit(described: Described, parameters: Mapping[str, ParameterValue]) -> None:
    """Raise UserError for a limit that hpcq-net would not take."""
    needed_s = limit_s(described, parameters)
    if not 0 < needed_s <= LIMIT_MAX_S:
        raise UserError(f"{described.path}: limit_s: {needed_s:g} s: allowed are above 0 to {LIMIT_MAX_S:g} s")


def check_sizes(described: Described, parameters: Mapping[str, ParameterValue]) -> None:
    """Raise UserError for sizes that make no sense: of what is planned. What was measured stays readable."""
    if described.sizes is not None:
        for key, template in (("first", described.sizes.first), ("last", described.sizes.last)):
            number = _number(described, f"sizes: {key}", template, parameters)
            if not number.is_integer() or not 0 <= number <= _SIZE_MAX:
                raise UserError(f"{described.path}: sizes: {key}: {number:g}: allowed is a whole number from 0 to 2^60")


def check_sent(described: Described, parameters: Mapping[str, ParameterValue]) -> None:
    """Raise UserError for bytes that make no sense, of what is planned."""
    low = min(sent_at_least(described, parameters), default=0.0)
    if low < 0:
        raise UserError(f"{described.path}: sends_at_least_bytes: {low:g}: allowed is 0 or more")


def same_command(expected: Sequence[str], used: object) -> bool:
    """Whether a program was started with these words; what is filled in at run time may be anything."""
    if not isinstance(used, list) or len(used) != len(expected):
        return False
    patterns = (_FILLED.sub(".+", re.escape(word)) for word in expected)
    return all(isinstance(word, str) and re.fullmatch(pattern, word) for pattern, word in zip(patterns, used, strict=True))


def programs_text(programs: Sequence[tuple[int, Kernel, Mapping[str, Any]]]) -> str:
    """The programs file of a job: test number, kernel and parameters of each. kernels/c/programs/programs.h defines it."""
    lines = ["programs 1"]
    for test_no, kernel, parameters in programs:
        described = kernel.described
        assert described is not None  # noqa: S101 - only described kernels have programs
        lines += [f"program {test_no}", f"name {kernel.name}", f"limit_s {limit_s(described, parameters):g}"]
        lines += [f"exit_code {code}" for code in described.exit_codes]
        lines += [f"failure_words {words}" for words in described.failure_words]
        lines += [f"version {word}" for word in command(described, described.version, parameters)]
        lines += [f"client {word}" for word in command(described, described.command, parameters)]
        server = described.server
        if server is None:
            continue
        lines += [f"ready {server.ready.value}", f"ready_s {server.ready_s:g}"]
        lines += [f"ready_words {server.ready_words}"] if server.ready is Ready.WORDS else []
        lines += [f"server_ends {'yes' if server.ends else 'no'}"]
        lines += [f"server {word}" for word in command(described, server.command, parameters)]
    return "\n".join(lines) + "\n"


def _one(described: Described, word: str, values: Mapping[str, Any]) -> str:
    rendered = render_text(word, values, described.path)
    if any(ord(character) < 32 for character in rendered):
        raise UserError(f"{described.path}: {word}: renders to {rendered!r}: allowed is one line")
    return rendered


def _number(described: Described, key: str, template: str, parameters: Mapping[str, ParameterValue]) -> float:
    rendered = render_text(template, {**parameters, "program": described.program}, described.path).strip()
    try:
        number = float(rendered)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{described.path}: {key}: renders to {rendered!r}: allowed is a number")
    return number


def _sizes(described: Described, sizes: Sizes, parameters: Mapping[str, ParameterValue]) -> tuple[int, ...]:
    first = int(_number(described, "sizes: first", sizes.first, parameters))
    last = int(_number(described, "sizes: last", sizes.last, parameters))
    found = [0] if first == 0 or sizes.zero else []
    size = max(1, first)
    while size <= last and len(found) <= SIZES_MAX:
        found.append(size)
        half = size + size // 2
        if sizes.steps is Steps.DOUBLES_AND_HALVES and size > 1 and half <= last:
            found.append(half)
        size *= 2
    if not found or len(found) > SIZES_MAX:
        raise UserError(f"{described.path}: sizes: {first} to {last} are {len(found)} sizes: allowed are 1 to {SIZES_MAX}")
    return tuple(found)
