"""A link between two real PBS clusters, whose job ids are numbered alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.lab_fixture import RunningLab, own_lab
from tests.pbs_live.live import Live, let_root_in
from tests.pbs_live.test_campaigns import LINKED, outcomes


@pytest.fixture(scope="module")
def both() -> Iterator[RunningLab]:
    with own_lab("pbs2", "--alpha", "pbs", "--beta", "pbs") as lab:
        for cluster in ("alpha", "beta"):
            let_root_in(lab, cluster)
        yield lab


@pytest.mark.parametrize(("user", "history"), [("labuser", False), ("labuser", True), ("root", False), ("root", True)])
def test_two_pbs_linked(both: RunningLab, tmp_path: Path, user: str, history: bool) -> None:
    for cluster in ("alpha", "beta"):
        side = Live(both, cluster, user, history)
        side.switch_history()
        side.at_rest()
        desk = side.desk(tmp_path)
    (tmp_path / "campaign.yaml").write_text(LINKED)
    desk.hpcq("run", "campaign.yaml", timeout_s=600)
    assert outcomes(desk) == {"link measured": 12, "cluster measured": 8}
    sides = desk.rows("SELECT side, cluster, outcome FROM v_links ORDER BY job, side")
    assert [(row["side"], row["cluster"], row["outcome"]) for row in sides] == [
        ("from", "alpha", "completed"),
        ("to", "beta", "completed"),
    ] * 2
    assert [Live(both, cluster, user, history).root("qselect") for cluster in ("alpha", "beta")] == ["", ""]
