"""Rules on whether the bytes crossed the network under test. See rules.py."""

from __future__ import annotations

from hpcq.evidence.conditions import host
from hpcq.evidence.table.row import Row, Scope, rule

CROSSING: tuple[Row, ...] = (
    rule(
        "not_crossed",
        Scope.RESULT,
        host.not_crossed,
        when="the interface's counters moved by less than a tenth of what the test moved",
        message="{reason}",
        meaning="The bytes did not cross the network under test: the number is not that network's, and invalid.",
        advice="Check `interface` in the cluster's file, routes and host names, btl_tcp_if_include or UCX_NET_DEVICES.",
        source="Documentation/networking/statistics.rst; open-mpi/ompi issues 4963, 6377, 10041",
    ),
    rule(
        "crossing_unknown",
        Scope.RESULT,
        host.crossing_unknown,
        when="neither the interface nor an RDMA port behind it has counters that tell",
        message="{reason}",
        meaning="No counter tells whether the bytes used the network under test.",
        advice="Trust the number only if you know the way that the library takes (`granted` shows its settings).",
        source="Documentation/ABI/stable/sysfs-class-infiniband; ethtool(8) -c stats-block-usecs",
    ),
)
