"""A run's results held against its campaign's gates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcq.definition.campaign import read_campaign
from hpcq.store.runfolder import RunFolder
from hpcq.verdict import GateVerdict, MeasuredSeries, judge_gates

if TYPE_CHECKING:
    from hpcq.store.database import Connection


def judge_run(connection: Connection, run: RunFolder) -> list[GateVerdict]:
    """One verdict a gate and series; none where the campaign has no gates."""
    gates = read_campaign(run.campaign_yaml).gates
    if not gates:
        return []
    from hpcq.store.series import series_values

    wanted = {gate.metric for gate in gates}
    measured = [MeasuredSeries(*row) for row in series_values(connection, run.run_id, wanted)]
    return judge_gates(gates, measured)
