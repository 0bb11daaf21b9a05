"""The keys `allocation`, `concurrency`, `toolchains` and `transport` of a campaign file: what shares an allocation, and how
its MPI tests run.

allocation: pair | whole | group of 8          concurrency: rounds | alone | [alone, rounds]
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema

from hpcq.definition.checking import refuse
from hpcq.definition.model import Allocation, AllocationKind, Concurrency, ParameterValue, Test
from hpcq.definition.running import launched, of_nodes
from hpcq.definition.yamlfile import Document, shown
from hpcq.kernels import Kernel, own_kernels

_GROUP = re.compile(r"group of ([1-9]\d{0,4})")
_NODE_COUNT_MIN = 3
#: The option of MPI kernels that the campaign's key of this name gives.
TRANSPORT = "transport"


def _allocation_word(value: object) -> object:
    found = _GROUP.fullmatch(value) if isinstance(value, str) else None
    if found and int(found[1]) < _NODE_COUNT_MIN:
        raise refuse(f"{shown(value)}: a group has {_NODE_COUNT_MIN} nodes or more; two are allocation: pair")
    if not found and value not in ("pair", "whole"):
        raise refuse(f"{shown(value)}: allowed are pair, whole and group of N, for example: group of 8")
    return value


def _words(value: object) -> object:
    words = value if isinstance(value, list) else [value]
    if not words or len(set(map(str, words))) != len(words):
        raise refuse(f"{shown(value)}: allowed are rounds, alone, or both once: [alone, rounds]")
    return words


def _transports() -> tuple[str, ...]:
    """The words that hpcq's MPI kernels know."""
    options = (kernel.option(TRANSPORT) for kernel in own_kernels().values())
    return next(option.choices for option in options if option is not None)


def _transport_word(value: object) -> object:
    if value is not None and value not in _transports():
        raise refuse(f"{shown(value)}: allowed are {', '.join(_transports())}", "a test may have its own, under parameters")
    return value


TransportWord = Annotated[
    str | None, BeforeValidator(_transport_word), WithJsonSchema({"type": "string", "enum": list(_transports())})
]
AllocationWord = Annotated[
    str,
    BeforeValidator(_allocation_word),
    WithJsonSchema({"type": "string", "pattern": f"^(pair|whole|{_GROUP.pattern})$"}),
]
ConcurrencyWords = Annotated[
    list[Literal["rounds", "alone"]],
    BeforeValidator(_words),
    WithJsonSchema({"anyOf": [{"enum": ["rounds", "alone"]}, {"type": "array", "items": {"enum": ["rounds", "alone"]}}]}),
]


def read_allocation(document: Document) -> Allocation:
    """What a campaign file says about sharing; reports keys that contradict each other."""
    data: dict[str, Any] = document.data
    if not (document.clean(("allocation",)) and document.clean(("concurrency",))):
        return Allocation()
    text, words = data.get("allocation") or "pair", data.get("concurrency")
    group = _GROUP.fullmatch(text)
    kind = AllocationKind.GROUP if group else AllocationKind(text)
    if words is not None and kind is AllocationKind.PAIR:
        message = "belongs to tournaments: found allocation: pair, where a pair is measured in an allocation of its own"
        document.complain(("concurrency",), message, at_key=True)
    listed = [words] if isinstance(words, str) else words or ["rounds"]
    return Allocation(kind, int(group[1]) if group else None, tuple(Concurrency(word) for word in listed))


def check_sets(document: Document, allocation: Allocation, tests: Sequence[Test]) -> None:
    """Complain about tests of many nodes in tournaments, whose steps are pairs."""
    if allocation.kind is AllocationKind.PAIR:
        return
    for kernel in sorted({test.kernel for test in tests if of_nodes(test)}):
        message = f"a tournament plays pairs: {kernel} runs on all nodes of a set: allowed with it is allocation: pair"
        document.complain(("allocation",), message, "put its tests into a campaign of their own")
    for kernel in sorted({test.kernel for test in tests if test.parameters.get("transport", "as_is") != "as_is"}):
        message = f"the ranks of a tournament start once: {kernel} with a transport of its own: allowed with it is"
        hint = "the cluster file's `environment` sets what holds for all tests"
        document.complain(("allocation",), f"{message} allocation: pair", hint)
    if allocation.concurrency == (Concurrency.ALONE,):
        return
    for kernel in sorted({test.kernel for test in tests if launched(test)}):
        message = f"the MPI launcher starts {kernel} once per pair, so the pairs of a round would not run at once: allowed with"
        hint = "pairs that shall run at once need a kernel of hpcq or a client and a server"
        document.complain(("allocation",), f"{message} it is concurrency: alone", hint)


def with_transport(document: Document, kernel: Kernel, point: Mapping[str, ParameterValue]) -> dict[str, ParameterValue]:
    """A test's parameters with the campaign's `transport`, where its kernel has this option and the test gives none."""
    word = document.data.get(TRANSPORT) if document.clean((TRANSPORT,)) else None
    if not isinstance(word, str) or kernel.option(TRANSPORT) is None or TRANSPORT in point:
        return dict(point)
    return {**point, TRANSPORT: word}


def check_transport(document: Document, tests: Sequence[Test]) -> None:
    """Complain about a transport that no test takes."""
    if document.data.get(TRANSPORT) and tests and not any(TRANSPORT in test.parameters for test in tests):
        document.complain((TRANSPORT,), "no test is one of hpcq's MPI kernels, which alone take it")


def with_toolchains(document: Document, tests: Sequence[Test]) -> list[Test]:
    """The tests with each MPI test once per toolchain. Tests of the first keep their numbers; complaints go to the document."""
    names = document.data.get("toolchains")
    if not names or not document.clean(("toolchains",)):
        return list(tests)
    listed = [names] if isinstance(names, str) else list(names)
    ours = [test for test in tests if test.program == "hpcq-mpi"]
    if len(set(listed)) < len(listed):
        document.complain(("toolchains",), "a name stands twice: each toolchain may stand once")
    if tests and not ours:
        document.complain(("toolchains",), "no test is one of hpcq's MPI kernels, which alone they build")
    if (document.data.get("allocation") or "pair") != "pair":
        message = "a tournament runs one program on all nodes: allowed with toolchains is allocation: pair"
        document.complain(("toolchains",), message)
    swept = [replace(test, toolchain=listed[0]) if test.program == "hpcq-mpi" else test for test in tests]
    for name in listed[1:]:
        swept += [replace(test, test_no=len(swept) + number, toolchain=name) for number, test in enumerate(ours, 1)]
    return swept
