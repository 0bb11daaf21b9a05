"""The table of rules. docs/evidence.md is made from it; judge.py applies it.

A row: where it is looked for, the condition, the condition in words, what is said about the figures, what that means, what to
try, where the knowledge comes from. Conditions and their thresholds stand in conditions.py and conditions_host.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hpcq.evidence import conditions as on
from hpcq.evidence import conditions_host as host
from hpcq.evidence import names
from hpcq.evidence.conditions import Condition, Counted, Matching
from hpcq.evidence.judgement import Rule


class Scope(Enum):
    """Where a rule is looked for."""

    EACH_END = "each end"
    """What one network stack, process or interface counts."""
    EACH_MACHINE = "each machine"
    """What a whole machine counts: told once, for both ends, where they share a kernel."""
    RESULT = "the result"
    """What concerns both ends at once."""


@dataclass(frozen=True, slots=True)
class Row:
    """One rule: `when` is its condition in words, `message` what is said with the figures put in."""

    rule: Rule
    scope: Scope
    condition: Condition
    when: str
    message: str
    disturbs: bool = False


def _row(
    name: str,
    scope: Scope,
    condition: Condition,
    *,
    when: str,
    message: str,
    meaning: str,
    advice: str,
    source: str,
    disturbs: bool = False,
) -> Row:
    return Row(Rule(name, meaning, advice, source), scope, condition, when, message, disturbs)


_LOSS = (
    _row(
        "loss_at_send_socket",
        Scope.EACH_END,
        on.refused_at_send_socket,
        when="UDP SndbufErrors beyond what the queue below dropped",
        message="{node}: the sending socket refused {count} datagrams",
        meaning="Datagrams were lost in the sender's own socket, before any network: its send buffer was full.",
        advice="Raise send_buffer_bytes (and net.core.wmem_max), or lower rate_bps.",
        source="Linux net/ipv4/udp.c (UDP_MIB_SNDBUFERRORS); Documentation/networking/snmp_counter.rst; udp(7)",
    ),
    _row(
        "loss_at_qdisc",
        Scope.EACH_END,
        on.dropped_at_qdisc,
        when="drops of the interface's queueing disciplines; where those cannot be read, Ip OutDiscards",
        message="{node}: the queue of its interface ({qdisc}) dropped {count} packets",
        meaning="Packets were lost in this node's send queue: more was sent than the interface, or a shaper on it, lets out.",
        advice="Lower the rate, or look at `tc -s qdisc show`: a shaper's rate and limit, txqueuelen, BQL.",
        source="tc(8), tc-tbf(8); RFC 4293 ipIfStatsOutDiscards; Linux include/net/sch_generic.h",
    ),
    _row(
        "loss_in_nic",
        Scope.EACH_END,
        on.dropped_in_nic,
        when="overruns (no buffer, FIFO, missed) of interface, driver or RDMA port; plain drops from"
        f" {on.DROPPED_COUNT_MIN} and {on.DROPPED_RATIO:g} of the packets on",
        message="{node}: its NIC dropped {count} packets ({counter})",
        meaning="Packets were lost in this node's NIC: its ring or its memory was full before the CPU came to empty it.",
        advice="Enlarge the rings (`ethtool -G`), add queues (`ethtool -L`), or free the CPU that serves them.",
        source="Documentation/networking/statistics.rst; sysfs-class-net-statistics; the drivers' lists of ethtool statistics",
    ),
    _row(
        "link_errors",
        Scope.EACH_END,
        Matching(names.LINK_ERRORS),
        when="frames or symbols in error (CRC, alignment, carrier), or the link went down",
        message="{node}: {count} errors on the link ({counter})",
        meaning="The cable, the transceiver or the switch port damages frames, or the link went down during the measurement.",
        advice="Clean, reseat or change cable and transceiver; compare with the switch port's own error counters.",
        source="Documentation/networking/statistics.rst; Documentation/ABI/stable/sysfs-class-infiniband; IEEE 802.3 clause 30",
    ),
    _row(
        "loss_in_softnet",
        Scope.EACH_MACHINE,
        on.dropped_in_softnet,
        when="softnet_stat dropped of any CPU",
        message="{node}: the backlog of {cpu} and others dropped {count} packets",
        meaning="The receiving kernel dropped packets between the driver and the protocols: one CPU's backlog was full.",
        advice="Spread receiving over more CPUs (RSS, RPS), or raise net.core.netdev_max_backlog and netdev_budget.",
        source="Linux net/core/net-procfs.c (softnet_seq_show); Documentation/admin-guide/sysctl/net.rst",
    ),
    _row(
        "loss_at_receive_socket",
        Scope.EACH_END,
        on.refused_at_receive_socket,
        when="the test socket's own drops (SO_MEMINFO), else UDP RcvbufErrors",
        message="{node}: the receiving socket's full buffer refused {count} datagrams",
        meaning="Datagrams arrived and were lost at the receiver's socket: the process did not read them in time.",
        advice="Raise receive_buffer_bytes (and net.core.rmem_max), pin the receiver near its NIC, or lower the rate.",
        source="Linux net/ipv4/udp.c (UDP_MIB_RCVBUFERRORS); socket(7); sock_diag(7)",
    ),
    _row(
        "loss_in_network",
        Scope.EACH_END,
        on.lost_in_network,
        when="datagrams lost beyond every drop that both nodes counted",
        message="{count} of {lost_count} lost datagrams ({lost_ratio}) were lost between the nodes, no counter there has them",
        meaning="Neither host dropped these datagrams: switches or links between the nodes did.",
        advice="Look at the switches' discard counters on the path; run `hpcq blame` over a campaign of many pairs.",
        source="the method of UDPmon (R. Hughes-Jones): loss in the host apart from loss in the network",
    ),
    _row(
        "retransmits",
        Scope.EACH_END,
        on.sent_again,
        when=f"Tcp RetransSegs from {on.RETRANSMIT_COUNT_MIN} and {on.RETRANSMIT_RATIO:g} of the segments on",
        message="{node} sent {count} segments again ({again_ratio} of {sent_count}), {timeout_count} times after a time-out;"
        " both hosts dropped {dropped_in_hosts_count}",
        meaning="TCP had to send again: segments were lost or came late. Where no host dropped them, the network between did."
        " in_vain_count of them had arrived after all.",
        advice="Look for loss findings at both ends first; then at the path: switch discards, a lossy link, reordering.",
        source="RFC 4022 tcpRetransSegs; RFC 8985 (tail loss probes); Mathis et al. 1997: throughput falls with 1/sqrt(loss)",
    ),
    _row(
        "receive_buffer_pruned",
        Scope.EACH_END,
        Counted((*names.TCP_PRUNED, *names.TCP_BACKLOG_DROPPED), beside={"collapsed_count": names.TCP_COLLAPSED}),
        when="TcpExt PruneCalled, RcvPruned, OfoPruned, TCPRcvQDrop, TCPZeroWindowDrop or TCPBacklogDrop",
        message="{node}: TCP pruned receive buffers {count} times and collapsed {collapsed_count} segments",
        meaning="The receiver's TCP ran out of buffer: it dropped or squeezed data that had arrived.",
        advice="Raise net.ipv4.tcp_rmem and tcp_mem (or receive_buffer_bytes); look why the reader is slow.",
        source="Documentation/networking/snmp_counter.rst (PruneCalled, TCPRcvCollapsed, TCPBacklogDrop)",
    ),
    _row(
        "listen_overflow",
        Scope.EACH_END,
        Counted((*names.LISTEN_OVERFLOWED, *names.LISTEN_DROPPED), beside={"overflow_count": names.LISTEN_OVERFLOWED}),
        when="TcpExt ListenOverflows or ListenDrops",
        message="{node}: listening sockets dropped {count} connection attempts",
        meaning="Connections to a listening socket of this node were dropped; each is tried again a second later.",
        advice="Raise net.core.somaxconn and the server's backlog; look who connects so often.",
        source="Documentation/networking/snmp_counter.rst (TcpExtListenOverflows); listen(2)",
    ),
    _row(
        "conntrack_drops",
        Scope.EACH_END,
        Counted(names.CONNTRACK_DROPPED),
        when="drop, early_drop or insert_failed of the connection tracker",
        message="{node}: its connection tracker dropped {count} packets",
        meaning="The node's firewall lost packets because its table of connections was full or raced.",
        advice="Raise nf_conntrack_max, or leave the cluster network untracked (NOTRACK).",
        source="Documentation/networking/nf_conntrack-sysctl.rst; conntrack(8)",
    ),
)

_LIMITS = (
    _row(
        "small_buffer",
        Scope.EACH_END,
        on.buffer_too_small,
        when=f"a TCP buffer set by hand that held the flow up for {on.WINDOW_LIMITED_RATIO:.0%} of its time, as the sender's"
        " kernel counted; before Linux 4.10, of which half is below throughput times round trip",
        message="{node}: the {buffer} buffer of {granted_bytes} is small beside the {under_way_bytes} that were under way",
        meaning="The socket buffer, and not the network, may set this throughput: no more can be under way than it holds.",
        advice="Leave send_buffer_bytes and receive_buffer_bytes at 0 (auto-tuned), or set twice rate times round trip.",
        source="RFC 7323 section 1.1 (bandwidth times delay); tcp(7); Linux include/uapi/linux/tcp.h (tcpi_rwnd_limited)",
    ),
    _row(
        "autotuning_limited",
        Scope.EACH_END,
        on.autotuning_at_its_end,
        when=f"a TCP buffer sized by the system that held the flow up for {on.AUTOTUNED_LIMITED_RATIO:.0%} of its time",
        message="{node}: the {buffer} buffer held the flow up for {limited_ratio} of its time; {sysctl} allows {maximum_bytes}",
        meaning="The node's largest TCP buffer, and not the network, may set this throughput; or, at a receiver, the process"
        " reads too slowly and its window stays full.",
        advice="Raise the last value of net.ipv4.tcp_rmem or tcp_wmem to twice rate times round trip; look at CPU findings.",
        source="Documentation/networking/ip-sysctl.rst (tcp_rmem); Linux include/uapi/linux/tcp.h (tcpi_rwnd_limited)",
    ),
    _row(
        "sender_fell_behind",
        Scope.EACH_END,
        on.fell_behind,
        when=f"a datagram sender below {on.RATE_REACHED_RATIO:.0%} of the rate it was asked for",
        message="{node} sent {sent_bps} of the {asked_bps} asked; its send buffer has {send_buffer_bytes}",
        meaning="The sender did not reach its rate: its socket waited for room (a small send buffer, a slow interface),"
        " or its CPU was at its end. Loss at the rate that was asked for is not known.",
        advice="Raise send_buffer_bytes, lower rate_bps below the interface's rate, or look at the sender's CPU findings.",
        source="socket(7) SO_SNDBUF; udp(7): a blocking send waits for room in the send buffer",
    ),
    _row(
        "core_saturated_by_interrupts",
        Scope.EACH_MACHINE,
        host.core_busy_with_interrupts,
        when=f"a core {host.CORE_BUSY_RATIO:.0%} busy, {host.CORE_INTERRUPT_RATIO:.0%} of it in interrupts",
        message="{node}: {cpu} was {busy_ratio} busy, {interrupt_ratio} in interrupts",
        meaning="One core that serves the network was at its end: the number is that core's, not the network's.",
        advice="Spread interrupts and receive queues over cores (RSS, RPS, `ethtool -L`, irqbalance); check GRO and LRO.",
        source="Documentation/networking/scaling.rst; proc_stat(5)",
    ),
    _row(
        "core_saturated_by_process",
        Scope.EACH_END,
        host.core_busy_with_process,
        when=f"the test's own process {host.CORE_BUSY_RATIO:.0%} of the time on a CPU, unless it waits by spinning",
        message="{node}: the test's process used {own_ratio} of a core",
        meaning="The process had no CPU time left: the number is that core's, not the network's.",
        advice="Use larger messages, pin to a core near the NIC, or take the number as the limit of one core.",
        source="getrusage(2); Documentation/networking/scaling.rst",
    ),
    _row(
        "interrupts_far",
        Scope.EACH_END,
        host.interrupts_far,
        when=f"{host.FAR_RATIO:.0%} of {host.FAR_COUNT_MIN} or more interrupts of the NIC on CPUs of another NUMA node",
        message="{node}: {far_ratio} of {count} interrupts of the NIC ran away from its NUMA node {numa_node}",
        meaning="Packets are handled on the socket that the NIC does not hang on: each crosses the link between the sockets.",
        advice="Set the interrupts' affinity to the NIC's node (/proc/irq/*/smp_affinity_list), or run there.",
        source="Documentation/core-api/irq/irq-affinity.rst; sysfs-bus-pci numa_node; perfsonar/pscheduler issue 166",
    ),
    _row(
        "coalescing_floor",
        Scope.RESULT,
        host.coalescing,
        when=f"rx-usecs of both ends make {host.COALESCING_RATIO_MIN:.0%} or more of the median round trip, and at least"
        f" {host.COALESCING_NS_MIN / 1e3:g} us",
        message="interrupt coalescing of both NICs makes {floor_ns} of the {round_trip_p50_ns} median round trip",
        meaning="The latency's floor is the time that the NICs hold interrupts back, not the network.",
        advice="Measure with `ethtool -C IF adaptive-rx off rx-usecs 0`, and weigh latency against the CPU it costs.",
        source="ethtool(8) -c; Documentation/networking/ethtool-netlink.rst; Hpcbench (Huang, Bauer, Katchabaw 2005)",
    ),
    _row(
        "cpu_throttled",
        Scope.EACH_MACHINE,
        host.cpu_throttled,
        when="core or package throttle count moved",
        message="{node}: its CPU throttled {count} times ({counter})",
        meaning="The CPU cut its clock for heat or power during the measurement.",
        advice="Look at cooling, power limits and BMC events of this node.",
        source="sysfs thermal_throttle: Linux drivers/thermal/intel/therm_throt.c",
    ),
    _row(
        "cpu_saves_power",
        Scope.EACH_MACHINE,
        host.cpu_saves_power,
        when="governor powersave of a driver that takes it literally, or the CPU below"
        f" {host.SLOW_CLOCK_RATIO:.0%} of its highest clock at both snapshots",
        message="{node}: governor {governor} ({driver}), its CPU ran at {clock_ratio} of its highest clock",
        meaning="The CPU saved power while it measured: latency and the rate of small messages suffer.",
        advice="Set the governor `performance` (cpupower frequency-set, tuned-adm profile network-latency).",
        source="Documentation/admin-guide/pm/cpufreq.rst; intel_pstate.rst; amd-pstate.rst",
    ),
    _row(
        "mtu_mismatch",
        Scope.EACH_END,
        host.mtu_differs,
        when="the MTU of this end's interface is below that of the other end's",
        message="{node} has an MTU of {mtu_bytes}, {other_node} of {other_mtu_bytes}",
        meaning="The two ends disagree about the largest packet: fragments, smaller segments, or packets that vanish.",
        advice="Give every node of the network the same MTU; check the switches' as well.",
        source="RFC 1191; RFC 2923 section 2; RFC 4821",
    ),
    _row(
        "link_degraded",
        Scope.EACH_END,
        host.link_degraded,
        when="half duplex, or a speed below what the NIC can or, with the same driver, below the other end's",
        message="{node}: its link runs at {speed_bps}, {duplex} duplex; expected {expected_bps}",
        meaning="The link was negotiated below what it should be.",
        advice="Check cable, transceiver, the switch port's settings and autonegotiation (`ethtool IF`).",
        source="Documentation/ABI/testing/sysfs-class-net (speed, duplex); ethtool(8)",
    ),
    _row(
        "pcie_degraded",
        Scope.EACH_END,
        host.pcie_degraded,
        when="current PCIe width or speed below the maximum of slot and card",
        message="{node}: its NIC's slot runs with {lanes} of {lanes_max} lanes at {rate_gt_s} of {rate_max_gt_s} GT/s",
        meaning="The NIC's PCIe link is narrower or slower than it could be, and may be slower than the network.",
        advice="Reseat the card, use another slot, check the BIOS; `lspci -vv` shows LnkCap against LnkSta.",
        source="Documentation/ABI/testing/sysfs-bus-pci (current_link_width, max_link_width)",
    ),
    _row(
        "clock_stepped",
        Scope.EACH_MACHINE,
        host.clock_stepped,
        when=f"wall clock against monotonic clock by {host.STEP_NS_MIN / 1e6:g} ms and {host.SLEW_RATIO * 1e6:g} ppm",
        message="{node}: its wall clock stepped by {step_ns} during the measurement",
        meaning="Somebody set this node's clock. Metrics use the monotonic clock and stand; times of day of this node do not.",
        advice="Look at the node's time daemon (chronyc tracking).",
        source="adjtimex(2): a slewed clock runs at most 500 ppm off; clock_gettime(2)",
    ),
)

_DISTURBANCE = (
    _row(
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
    _row(
        "other_work",
        Scope.EACH_MACHINE,
        host.others_at_work,
        when=f"CPU time of neither the test nor interrupts: {host.OTHER_CORES:g} cores or more",
        message="{node}: other processes used {other_cores} cores, the test {own_cores}",
        meaning="Something else worked on this node during the measurement.",
        advice="Ask for whole nodes (exclusive); look for left-over processes and daemons; measure again.",
        source="proc_stat(5) user, nice and system, less getrusage(2) of the test",
        disturbs=True,
    ),
    _row(
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
    _row(
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
    _row(
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
)

_CROSSING = (
    _row(
        "not_crossed",
        Scope.RESULT,
        host.not_crossed,
        when="the interface's counters moved by less than a tenth of what the test moved",
        message="{reason}",
        meaning="The bytes went another way than the network under test: the number is not that network's, and invalid.",
        advice="Check `interface` in the cluster's file, routes and host names, btl_tcp_if_include or UCX_NET_DEVICES.",
        source="Documentation/networking/statistics.rst; open-mpi/ompi issues 4963, 6377, 10041",
    ),
    _row(
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

#: In the order in which findings are told.
RULES: tuple[Row, ...] = (*_CROSSING, *_LOSS, *_LIMITS, *_DISTURBANCE)
