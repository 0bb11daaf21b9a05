"""What acceptance says has changed at a node at fault, from built run folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcq.runner.accept.judging import Judging
from hpcq.store import selection
from hpcq.store.database import reading
from hpcq.store.keep.annotations import Author, set_baseline
from hpcq.verdict.acceptance import Acceptance
from hpcq.verdict.words import Thing, Verdict, VerdictRecord
from tests.history.histories import History

pytestmark = pytest.mark.fast

PARTNERS = ("n3", "n4", "n5")


@pytest.mark.heavy
@pytest.mark.promise("Acceptance reports only what differs from the reference, whichever end a node was at there.")
def test_only_what_differs_from_the_reference_is_told(tmp_path: Path) -> None:
    """The baseline has the node as the server alone, with the same facts throughout; later it is at both ends."""
    history = History(tmp_path, pairs=[(one, "n2") for one in PARTNERS])
    facts = {node: {"node": {"hostname": node}} for node in ("n2", *PARTNERS)}
    set_baseline(history.database, "good", [history.night(1, facts=facts)], Author("me", "first light"))
    both_ways = [pair for one in PARTNERS for pair in ((one, "n2"), ("n2", one))]
    smaller = facts | {"n2": facts["n2"] | {"sysctl": {"net.core.rmem_max": 212992}}}
    now = history.night(2, pairs=both_ways, facts=smaller)
    with reading(history.database) as database:
        reference = selection.baseline_runs(database, "good")
        [run_id] = [row[0] for row in database.execute("SELECT run_id FROM run WHERE name = ?", (now,))]
    failed = VerdictRecord(Thing.NODE, "n2", Verdict.FAILED, "slow", ("n2",))
    said = Judging(history.database, "alpha", reference, "good").changed(Acceptance((failed,)), [run_id])
    assert said == {"n2": "n2: sysctl.net.core.rmem_max 4194304 > 212992"}
