"""What the tests of histories share."""

from __future__ import annotations

from typing import Any

import pytest

from hpcq.cli.main import run
from tests.history.histories import History, json_of


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a verb on a history: exit code, what it printed for programs (or None), and its words."""

    def said(history: History, *words: str) -> tuple[int, Any, str]:
        code = run([*words, "--db", str(history.database)])
        printed = capsys.readouterr()
        return code, json_of(printed.out) if "--json" in words else None, printed.out + printed.err

    return said
