"""What the tests of histories share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.history.histories import sayer


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a verb on a history: exit code, what it printed for programs (or None), and its words."""

    return sayer(capsys)
