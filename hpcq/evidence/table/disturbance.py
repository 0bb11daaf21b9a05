"""Rules on others who shared the node: their findings mark a result as disturbed. See rules.py."""

from __future__ import annotations

from hpcq.evidence.conditions import cpu, host
from hpcq.evidence.conditions import network as on
from hpcq.evidence.table.row import Row, Scope, rule

DISTURBANCE: tuple[Row, ...] = (
    rule(
        "stolen_time",
        Scope.EACH_MACHINE,
        host.stolen,
        when=f"steal of {host.STOLEN_RATIO:.0%} of a core",
        message="{node}: the hypervisor took {stolen_cores} cores away",
        meaning="Other virtual machines had this node's CPU during the measurement.",
        advice="Measure again, or on hosts that are not shared.",
        source="proc_stat(5) steal",
        disturbs=True,
    ),
    rule(
        "other_work",
        Scope.EACH_MACHINE,
        host.others_at_work,
        when="CPU time of neither the test nor interrupts (with threaded NAPI only in user mode):"
        f" {host.OTHER_CORES:g} cores or more",
        message="{node}: other processes used {other_cores} cores, the test {own_cores}",
        meaning="Something else worked on this node during the measurement.",
        advice="Ask for whole nodes (exclusive); look for left-over processes and daemons; measure again.",
        source="proc_stat(5) user, nice and system, less getrusage(2) of the test",
        disturbs=True,
    ),
    rule(
        "waited_for_cpu",
        Scope.EACH_END,
        host.waited_for_cpu,
        when=f"the process waited runnable for {host.WAITED_RATIO:.0%} of the time, and other work was seen that explains it",
        message="{node}: the test's process was ready and had no CPU for {waited_ratio} of the time (last on {cpu})",
        meaning="Something else had the CPU that this process needed.",
        advice="Pin to another CPU, ask for whole nodes, look what runs on that CPU.",
        source="Documentation/scheduler/sched-stats.rst (/proc/<pid>/schedstat, second field)",
        disturbs=True,
    ),
    rule(
        "held_by_quota",
        Scope.EACH_END,
        host.held_by_quota,
        when=f"the control group was throttled for {host.QUOTA_HELD_RATIO:.0%} of the time",
        message="{node}: the CPU quota of its control group stopped the test for {held_us}",
        meaning="The job may use less CPU than the test needs: its control group has a quota.",
        advice="Ask for more CPUs in the job, or for whole nodes.",
        source="Documentation/admin-guide/cgroup-v2.rst (cpu.stat throttled_usec); scheduler/sched-bwc.rst (throttled_time)",
        disturbs=True,
    ),
    rule(
        "other_traffic",
        Scope.EACH_END,
        on.other_traffic,
        when="bytes on the interface beyond the test's, with all headers:"
        f" {on.OTHER_BPS_MIN / 1e6:g} Mbit/s, {on.OTHER_OF_LINK_RATIO:.1%} of the link and {on.OTHER_OF_MEASURED_RATIO:.0%}"
        " of what was measured",
        message="{node}: {interface} carried at least {other_bps} of other traffic ({way}) beside the test's {measured_bps}",
        meaning="The test shared its interface with another flow.",
        advice="Look what else uses this network (storage, MPI of other jobs); measure again when it is quiet.",
        source="proc_net(5) dev; the test's own account of bytes and segments",
        disturbs=True,
    ),
    rule(
        "sibling_busy",
        Scope.EACH_END,
        cpu.sibling_busy,
        when=f"the other hardware thread of the process's core was at work for {cpu.SIBLING_BUSY_RATIO:.0%} of the time",
        message="{node}: {sibling} was {busy_ratio} busy and shares its core with the test's {cpu}",
        meaning="Two threads of one core share its units: the test had little more than half of a core.",
        advice="Ask for whole cores or nodes (--exclusive, --hint=nomultithread); look what ran there.",
        source="sysfs topology/thread_siblings_list; proc_stat(5)",
        disturbs=True,
    ),
)
