"""The tests of a described kernel: one per run of the program, and one more per further size of its table.

The first size is the test that runs; the others name it in `measured_by`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from hpcq.definition.model import ParameterValue, Test
from hpcq.definition.yamlfile import Document, Place
from hpcq.described.commands import LIMIT_MAX_S, OVERHEAD_S, check_sent, check_sizes, limit_s, programs_text, sizes
from hpcq.described_kernel import Shape
from hpcq.errors import UserError
from hpcq.kernels import Kernel

_LAUNCH = {Shape.MPI_PAIR: "mpi", Shape.MPI_RANKS: "mpi", Shape.ONE_NODE: "node"}
#: What a launcher may take on top to start and end the ranks of many nodes.
_LAUNCH_S = 30.0


def described_tests(
    kernel: Kernel,
    parameters: Mapping[str, ParameterValue],
    first_no: int,
    document: Document,
    place: Place,
    *,
    timeout_s: float | None,
) -> list[Test]:
    """The tests of one point of a sweep, numbered from `first_no`. Complaints go to the document."""
    described = kernel.described
    assert described is not None  # noqa: S101 - the caller has looked
    if described.sizes is not None and _gives_size(document, place, described.sizes.option):
        return []
    try:
        needed_s = limit_s(described, parameters)
        check_sizes(described, parameters)
        found = sizes(described, parameters)
        check_sent(described, parameters)
        programs_text([(first_no, kernel, parameters)])
    except UserError as error:
        document.complain(place, error.message, error.hint)
        return []
    if not 0 < needed_s <= LIMIT_MAX_S:
        document.complain(place, f"{kernel.name} may run for {needed_s:g} s: allowed are above 0 to {LIMIT_MAX_S:g} s")
    if timeout_s is not None and timeout_s <= needed_s:
        message = f"{timeout_s:g} s, but {kernel.name} may run for {needed_s:g} s: allowed is more"
        document.complain((*place, "timeout_s"), message)
    launch = _LAUNCH.get(described.shape, "")
    whole_s = math.ceil(timeout_s or needed_s + OVERHEAD_S + (_LAUNCH_S if launch == "mpi" else 0.0))
    points = [{**parameters, described.sizes.option: size} for size in found] if described.sizes else [dict(parameters)]
    return [
        Test(first_no + no, kernel.name, "hpcq-net", point, whole_s, measured_by=first_no if no else 0, launch=launch)
        for no, point in enumerate(points)
    ]


def _gives_size(document: Document, place: Place, option: str) -> bool:
    """Complain about a size that the campaign gives: the program's table has all sizes."""
    entry = document.data["tests"][place[1]]
    given = [key for key in ("parameters", "matrix") if option in (entry.get(key) or {})]
    for key in given:
        said = "the program's table has these sizes: allowed are the options that say which"
        document.complain((*place, key, option), said, at_key=True)
    return bool(given)
