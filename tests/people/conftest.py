"""One history for all tests of this folder: none of them writes into it."""

from __future__ import annotations

import pytest

from tests.history.histories import History
from tests.people.nights import Asked, make_nights


@pytest.fixture(scope="session")
def nights(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Fourteen nights of six nodes, made once."""
    return make_nights(tmp_path_factory.mktemp("nights"))


@pytest.fixture
def ask(nights: History, capsys: pytest.CaptureFixture[str]) -> Asked:
    """Verbs on that history."""
    return Asked(nights.database, capsys)
