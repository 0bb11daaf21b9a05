"""Which tests of a plan start something."""

from __future__ import annotations

from collections.abc import Iterable

from hpcq.definition.model import Test


def running(tests: Iterable[Test]) -> list[Test]:
    """The tests that start something; the others are sizes that one of these measures too."""
    return [test for test in tests if not test.measured_by]
