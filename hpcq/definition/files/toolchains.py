"""`toolchains` of a campaign file: every MPI test once with each of them.

toolchains: [gcc-openmpi, clang-mpich]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpcq.definition.files.yamlfile import Document
from hpcq.definition.model import Test


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
