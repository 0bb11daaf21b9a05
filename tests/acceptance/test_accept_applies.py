"""`hpcq accept` changes nothing on a cluster unless somebody typed --apply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcq.runner.accept import accepting
from hpcq.runner.accept.accepting import Applied
from hpcq.runner.accept.choice import NodeSelection

pytestmark = pytest.mark.fast


@pytest.mark.heavy
@pytest.mark.promise("`hpcq accept` drains and gives back nothing without `--apply`.")
@pytest.mark.promise("`hpcq accept --apply` executes the commands that it printed.")
@pytest.mark.parametrize("typed", [False, True])
def test_nothing_is_drained_or_given_back_without_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: bool) -> None:
    (tmp_path / "after.yaml").write_text("name: after\nclusters: [tiny]\npairs: all\ntests: [{kernel: tcp_stream}]\n")
    (tmp_path / "tiny.yaml").write_text("name: tiny\nscheduler: local\nnodes: [n1, n2]\n")
    applied: list[Any] = []

    def record(*words: Any) -> Applied:
        applied.append(words)
        return Applied((("drain", "drain"),))

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(accepting._Acceptor, "_measure", lambda *_: None)
    monkeypatch.setattr(accepting, "apply", record)
    order = accepting.AcceptRequest(
        tmp_path / "after.yaml",
        (tmp_path,),
        tmp_path / "results.db",
        tmp_path / "runs",
        NodeSelection(),
        against=None,
        apply=typed,
    )
    [outcome] = accepting.accept(order, lambda _: None)
    assert len(applied) == typed
    assert outcome.applied.done == ((("drain", "drain"),) if typed else ())
