"""A plugin of pytest: which functions of some files does each test enter?

    HPCQ_ENTERED_OF=a.py:b.py HPCQ_ENTERED_INTO=FOLDER python -m pytest -p tools.entered ...

Each process writes FOLDER/PID.json: {file: {first line of a function: {test: seconds}}}. What a fixture of more than one test
enters counts for the whole file of tests, since any of them may check it. Functions that a program enters which a test
starts are not seen.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

_wanted = {str(Path(name).resolve()): name for name in os.environ.get("HPCQ_ENTERED_OF", "").split(os.pathsep) if name}
_entered: dict[tuple[str, int], set[str]] = {}
_took_s: dict[str, float] = {}
_codes: dict[int, CodeType] = {}
_now = [""]


def _enter(frame: FrameType, _event: str, _arg: object) -> None:
    code = frame.f_code
    if code.co_filename in _wanted and id(code) not in _codes:
        _codes[id(code)] = code  # it is kept, so its id stays its own
        _entered.setdefault((_wanted[code.co_filename], code.co_firstlineno), set()).add(_now[0])


def _begin(who: str) -> str:
    before, _now[0] = _now[0], who
    _codes.clear()
    return before


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Watch one test with its fixtures."""
    _begin(item.nodeid)
    threading.settrace(_enter)
    sys.settrace(_enter)
    yield
    sys.settrace(None)
    threading.settrace(None)


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
    """What a shared fixture enters is the file's."""
    before = _begin(_now[0].partition("::")[0] if fixturedef.scope != "function" else _now[0])
    yield
    _begin(before)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """How long a test took, and its file as a whole."""
    for who in (report.nodeid, report.nodeid.partition("::")[0]):
        _took_s[who] = _took_s.get(who, 0.0) + report.duration


def pytest_sessionfinish() -> None:
    """Write what was seen."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for (file, line_no), tests in _entered.items():
        found.setdefault(file, {})[line_no] = {test: _took_s.get(test, 0.0) for test in sorted(tests)}
    Path(os.environ["HPCQ_ENTERED_INTO"], f"{os.getpid()}.json").write_text(json.dumps(found), encoding="utf-8")
