"""The fourteen nights of tests/people, for those who look at what verbs print of them."""

from tests.people.conftest import ask, nights

__all__ = ["ask", "nights"]
