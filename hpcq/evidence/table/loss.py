"""Rules on what was lost, damaged or sent again. See rules.py."""

from __future__ import annotations

from hpcq.evidence import names
from hpcq.evidence.conditions import network as on
from hpcq.evidence.conditions import rdma
from hpcq.evidence.conditions.network import Counted, Matching
from hpcq.evidence.table.row import Row, Scope, rule

LOSS: tuple[Row, ...] = (
    rule(
        "loss_at_send_socket",
        Scope.EACH_END,
        on.refused_at_send_socket,
        when="UDP SndbufErrors beyond what the queue below dropped",
        message="{node}: the sending socket refused {count} datagrams",
        meaning="Datagrams were lost in the sender's own socket, before any network: its send buffer was full.",
        advice="Raise send_buffer_bytes (and net.core.wmem_max), or lower rate_bps.",
        source="Linux net/ipv4/udp.c (UDP_MIB_SNDBUFERRORS); Documentation/networking/snmp_counter.rst; udp(7)",
    ),
    rule(
        "loss_at_qdisc",
        Scope.EACH_END,
        on.dropped_at_qdisc,
        when="drops of the interface's queueing disciplines; where those cannot be read, Ip OutDiscards",
        message="{node}: the queue of its interface ({qdisc}) dropped {count} packets",
        meaning="Packets were lost in this node's send queue: more was sent than the interface, or a shaper on it, lets out.",
        advice="Lower the rate, or look at `tc -s qdisc show`: a shaper's rate and limit, txqueuelen, BQL.",
        source="tc(8), tc-tbf(8); RFC 4293 ipIfStatsOutDiscards; Linux include/net/sch_generic.h",
    ),
    rule(
        "loss_in_nic",
        Scope.EACH_END,
        on.dropped_in_nic,
        when="overruns (no buffer, FIFO, missed) of interface, driver or RDMA port; plain drops:"
        f" {on.DROPPED_COUNT_MIN} or more, and {on.DROPPED_RATIO:g} of the packets or more",
        message="{node}: its NIC dropped {count} packets ({counter}); its receive ring has {ring}",
        meaning="Packets were lost in this node's NIC: its ring or its memory was full before the CPU came to empty it.",
        advice="Enlarge the rings (`ethtool -G`), add queues (`ethtool -L`), or free the CPU that serves them.",
        source="Documentation/networking/statistics.rst; sysfs-class-net-statistics; the drivers' lists of ethtool statistics",
    ),
    rule(
        "link_errors",
        Scope.EACH_END,
        Matching(names.LINK_ERRORS),
        when="frames or symbols in error (CRC, alignment, carrier), or the link went down",
        message="{node}: {count} errors on the link ({counter})",
        meaning="The cable, the transceiver or the switch port damages frames, or the link went down during the measurement.",
        advice="Clean, reseat or change cable and transceiver; compare with the switch port's own error counters.",
        source="Documentation/networking/statistics.rst; Documentation/ABI/stable/sysfs-class-infiniband; IEEE 802.3 clause 30",
    ),
    rule(
        "loss_in_softnet",
        Scope.EACH_MACHINE,
        on.dropped_in_softnet,
        when="softnet_stat dropped of any CPU",
        message="{node}: the backlog of {cpu} and others dropped {count} packets",
        meaning="The receiving kernel dropped packets between the driver and the protocols: one CPU's backlog was full.",
        advice="Spread receiving over more CPUs (RSS, RPS), or raise net.core.netdev_max_backlog and netdev_budget.",
        source="Linux net/core/net-procfs.c (softnet_seq_show); Documentation/admin-guide/sysctl/net.rst",
    ),
    rule(
        "loss_at_receive_socket",
        Scope.EACH_END,
        on.refused_at_receive_socket,
        when="the test socket's own drops (SO_MEMINFO), else UDP RcvbufErrors",
        message="{node}: the receiving socket's full buffer refused {count} datagrams",
        meaning="Datagrams arrived and were lost at the receiver's socket: the process did not read them in time.",
        advice="Raise receive_buffer_bytes (and net.core.rmem_max), pin the receiver near its NIC, or lower the rate.",
        source="Linux net/ipv4/udp.c (UDP_MIB_RCVBUFERRORS); socket(7); sock_diag(7)",
    ),
    rule(
        "loss_in_network",
        Scope.EACH_END,
        on.lost_in_network,
        when="datagrams lost beyond every drop that both nodes counted",
        message="{count} of {lost_count} lost datagrams ({lost_ratio}) were lost between the nodes, no counter there has them",
        meaning="Neither host dropped these datagrams: switches or links between the nodes did.",
        advice="Look at the switches' discard counters on the path; run `hpcq blame` over a campaign of many pairs.",
        source="the method of UDPmon (R. Hughes-Jones): loss in the host apart from loss in the network",
    ),
    rule(
        "retransmits",
        Scope.EACH_END,
        on.sent_again,
        when=f"Tcp RetransSegs: {on.RETRANSMIT_COUNT_MIN} or more, and {on.RETRANSMIT_RATIO:g} of the segments or more",
        message="{node} sent {count} segments again ({again_ratio} of {sent_count}), {timeout_count} times after a time-out;"
        " both hosts dropped {dropped_in_hosts_count}",
        meaning="TCP had to send again: segments were lost or came late. Where no host dropped them, the network between did."
        " Those counted as in vain (`in_vain_count`) had arrived after all.",
        advice="Look for loss findings at both ends first; then at the path: switch discards, a lossy link, reordering.",
        source="RFC 4022 tcpRetransSegs; RFC 8985 (tail loss probes); Mathis et al. 1997: throughput falls with 1/sqrt(loss)",
    ),
    rule(
        "receive_buffer_pruned",
        Scope.EACH_END,
        Counted((*names.TCP_PRUNED, *names.TCP_BACKLOG_DROPPED), beside={"collapsed_count": names.TCP_COLLAPSED}),
        when="TcpExt PruneCalled, RcvPruned, OfoPruned, TCPRcvQDrop, TCPZeroWindowDrop or TCPBacklogDrop",
        message="{node}: TCP pruned receive buffers {count} times and collapsed {collapsed_count} segments",
        meaning="The receiver's TCP ran out of buffer: it dropped or squeezed data that had arrived.",
        advice="Raise net.ipv4.tcp_rmem and tcp_mem (or receive_buffer_bytes); look why the reader is slow.",
        source="Documentation/networking/snmp_counter.rst (PruneCalled, TCPRcvCollapsed, TCPBacklogDrop)",
    ),
    rule(
        "listen_overflow",
        Scope.EACH_END,
        Counted((*names.LISTEN_OVERFLOWED, *names.LISTEN_DROPPED), beside={"overflow_count": names.LISTEN_OVERFLOWED}),
        when="TcpExt ListenOverflows or ListenDrops",
        message="{node}: listening sockets dropped {count} connection attempts",
        meaning="Connections to a listening socket of this node were dropped; each is tried again a second later.",
        advice="Raise net.core.somaxconn and the server's backlog; look who connects so often.",
        source="Documentation/networking/snmp_counter.rst (TcpExtListenOverflows); listen(2)",
    ),
    rule(
        "conntrack_drops",
        Scope.EACH_END,
        Counted(names.CONNTRACK_DROPPED),
        when="drop, early_drop or insert_failed of the connection tracker",
        message="{node}: its connection tracker dropped {count} packets",
        meaning="The node's firewall lost packets because its table of connections was full or raced.",
        advice="Raise nf_conntrack_max, or leave the cluster network untracked (NOTRACK).",
        source="Documentation/networking/nf_conntrack-sysctl.rst; conntrack(8)",
    ),
    rule(
        "rdma_sent_again",
        Scope.EACH_END,
        rdma.rdma_sent_again,
        when=f"packets of the interface's RDMA port out of sequence or acknowledged late, {rdma.RDMA_AGAIN_COUNT_MIN} or more",
        message="{node}: its RDMA port saw {count} packets that were lost or out of order ({counter})",
        meaning="RoCE or InfiniBand had to send again: the fabric lost or reordered packets, which costs time-outs.",
        advice="Look for congestion and link errors on the path; RoCE without loss needs PFC or ECN on every switch.",
        source="Linux drivers/infiniband/hw (mlx5, bnxt_re, irdma: hw_counters); InfiniBand Architecture Specification 9.7.5",
    ),
)
