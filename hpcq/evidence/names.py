"""Names that the kernels give to counters, gauges and facts. A rename in kernels/c changes one line here.

Counters of one tuple are added. {interface} stands for the interface under test, {cpu} for the CPU that an end ran on.
A fact may have had several names; the first existing one counts.
"""

from __future__ import annotations

# -- sockets and protocols: /proc/net/snmp, snmp6, netstat (Documentation/networking/snmp_counter.rst) ------------------

UDP_SEND_REFUSED = (
    "snmp.Udp.SndbufErrors",
    "snmp.UdpLite.SndbufErrors",
    "snmp6.Udp6SndbufErrors",
    "snmp6.UdpLite6SndbufErrors",
)
UDP_RECEIVE_REFUSED = (
    "snmp.Udp.RcvbufErrors",
    "snmp.UdpLite.RcvbufErrors",
    "snmp6.Udp6RcvbufErrors",
    "snmp6.UdpLite6RcvbufErrors",
)
UDP_SENT = ("snmp.Udp.OutDatagrams", "snmp6.Udp6OutDatagrams")
UDP_RECEIVED = ("snmp.Udp.InDatagrams", "snmp6.Udp6InDatagrams")
IP_OUT_DISCARDED = ("snmp.Ip.OutDiscards", "snmp6.Ip6OutDiscards")
TCP_SENT = ("snmp.Tcp.OutSegs",)
TCP_RECEIVED = ("snmp.Tcp.InSegs",)
TCP_SENT_AGAIN = ("snmp.Tcp.RetransSegs",)
TCP_TIMEOUTS = ("netstat.TcpExt.TCPTimeouts",)
TCP_SENT_AGAIN_IN_VAIN = ("netstat.TcpExt.TCPDSACKRecv",)
TCP_PRUNED = (
    "netstat.TcpExt.PruneCalled",
    "netstat.TcpExt.RcvPruned",
    "netstat.TcpExt.OfoPruned",
    "netstat.TcpExt.TCPRcvQDrop",
    "netstat.TcpExt.TCPZeroWindowDrop",
)
TCP_BACKLOG_DROPPED = ("netstat.TcpExt.TCPBacklogDrop",)
TCP_COLLAPSED = ("netstat.TcpExt.TCPRcvCollapsed",)
LISTEN_DROPPED = ("netstat.TcpExt.ListenDrops",)
LISTEN_OVERFLOWED = ("netstat.TcpExt.ListenOverflows",)
CONNTRACK_DROPPED = ("conntrack.node.drop", "conntrack.node.insert_failed", "conntrack.node.early_drop")

# -- queues and interfaces ----------------------------------------------------------------------------------------------

#: A qdisc on top of others repeats their drops, so the largest counts.
QDISC_DROPPED = r"qdisc\.(?P<device>.+)\.(?P<kind>[^.]+)\.drops"
SOFTNET_DROPPED = r"softnet\.cpu\d+\.dropped"
INTERFACE_BYTES = {"tx": "net_dev.{interface}.tx_bytes", "rx": "net_dev.{interface}.rx_bytes"}
INTERFACE_PACKETS = {"tx": "net_dev.{interface}.tx_packets", "rx": "net_dev.{interface}.rx_packets"}
ANY_INTERFACE_BYTES = {"tx": r"net_dev\.(?P<interface>.+)\.tx_bytes", "rx": r"net_dev\.(?P<interface>.+)\.rx_bytes"}
RDMA_BYTES = {
    "tx": r"infiniband\..+\.\d+\.port_xmit_data_bytes",
    "rx": r"infiniband\..+\.\d+\.port_rcv_data_bytes",
}
#: Each of these counts packets lost for lack of a buffer or of time, and nothing else.
NIC_OVERRUN = (
    r"net_dev\.{interface}\.[rt]x_fifo"
    r"|sys_net\.[^ ]+\.rx_(missed|over)_errors"
    r"|ethtool\.[^ ]+\.\S*(discard|out_of_buffer|no_dma_resources|missed_errors|fifo_err|over_err|ovfl)\S*"
    r"|infiniband\.{rdma}\.(port_xmit_discards|out_of_buffer)"
)
#: These also count unwanted packets (unknown protocols, filters), a few per second on any network.
NIC_DROPPED = r"net_dev\.{interface}\.[rt]x_dropped|ethtool\.[^ ]+\.\S*(?<!xdp_)drop(s|ped|_count|_packets)?\S*"
NIC_DROPPED_NOT = r"ethtool\.\S*(xdp|filter|vlan|arp|encap|steer|tls|ipsec|unknown)\S*"
LINK_ERRORS = (
    r"net_dev\.{interface}\.(rx_frame|tx_carrier)"
    r"|sys_net\.[^ ]+\.(rx_crc_errors|carrier_down_count)"
    r"|ethtool\.[^ ]+\.\S*(crc_err|symbol_err|align_err|link_down_events)\S*"
    r"|ethtool\.[^ ]+\.\S*fec\S*uncorrect\S*"
    r"|infiniband\.{rdma}\.(symbol_error|link_error_recovery|link_downed|local_link_integrity_errors|port_rcv_errors"
    r"|port_rcv_remote_physical_errors|excessive_buffer_overrun_errors)"
)

#: Of an RDMA port: what was sent again or arrived out of order (Documentation of rdma hw_counters; mlx5, bnxt_re,
#: irdma).
RDMA_AGAIN = (
    r"infiniband\.{rdma}\.(packet_seq_err|out_of_sequence|local_ack_timeout_err|implied_nak_seq_err|rnr_nak_retry_err"
    r"|roce_adp_retrans\w*|to_retransmits|seq_err_naks_rcvd|max_retry_exceeded|retransSegs|tcpRetransSegs)"
)
#: Packets that switches marked for congestion, and the notices that follow (CNP).
CONGESTION_MARKED = (
    r"infiniband\.{rdma}\.(np_ecn_marked_roce_packets|np_cnp_sent|rp_cnp_handled|rx_ecn_marked_pkts|rx_cnp_pkts|tx_cnp_pkts"
    r"|cnpHandled|cnpSent|RxECNMrkd)"
    r"|ethtool\.{interface}\.rx_\S*ecn_mark\S*"
)
IP_CONGESTION_MARKED = ("netstat.IpExt.InCEPkts",)
#: Pause frames of the link or of a priority, without durations and the counters of pause storms.
PAUSED = r"ethtool\.{interface}\.(port\.)?(?P<way>[rt]x)_\S*(pause|xoff|pfc_frames)\S*"
PAUSED_NOT = r"duration|transition|xon|disabled|error|storm"
#: Ticks in which a port had data but no credits.
XMIT_WAIT = r"infiniband\.{rdma}\.port_xmit_wait"

# -- CPU ----------------------------------------------------------------------------------------------------------------

TICKS = r"stat\.cpu\d*\.\w+_ticks"
WORK_MODES = ("user", "nice", "system")
INTERRUPT_MODES = ("irq", "softirq")
IDLE_MODES = ("idle", "iowait")
OWN_CPU_US = ("self.rusage.user_us", "self.rusage.system_us")
OWN_USER_US = ("self.rusage.user_us",)
OWN_WAIT_NS = ("self.schedstat.wait_ns",)
OWN_SWITCHED_AWAY = ("self.rusage.involuntary_context_switches",)
QUOTA_HELD_US = ("cgroup.self.throttled_us",)
THROTTLED = r"cpu_power\.cpu\d+\.(core|package)_throttle_count"
#: Idle states of the CPUs involved, in us: from C2 on, waking takes tens of us (cpuidle).
DEEP_IDLE = r"cpu_power\.cpu{cpu}\.idle_(?P<state>\S*C([2-9]|1\d)\S*)_us"
#: Linux compacted memory for lack of large pages, and processes waited for it (vm/transhuge.rst).
COMPACTION_STALLED = ("vmstat.node.compact_stall", "vmstat.node.thp_split_page")
FREQUENCY = "cpufreq.cpu{cpu}.frequency_hz"
INTERRUPTS = r"interrupts\.(?P<name>.+)\.cpu(?P<cpu>\d+)"
MEMORY_TOTAL = "meminfo.node.MemTotal_bytes"
WALL_MINUS_MONOTONIC = "clock.wall_minus_monotonic_us"
#: Of the measured connection, from the sender's Linux (struct tcp_info, Linux 4.10).
FLOW_BUSY_US = ("self.tcp_info.busy_us",)
WINDOW_LIMITED_US = {"send": ("self.tcp_info.sndbuf_limited_us",), "receive": ("self.tcp_info.rwnd_limited_us",)}

# -- facts --------------------------------------------------------------------------------------------------------------

#: key -> (name, factor to the unit of the key)
FACTS: dict[str, tuple[tuple[str, float], ...]] = {
    "driver": (("nic.{interface}.driver", 1),),
    "mtu_bytes": (("nic.{interface}.mtu_bytes", 1),),
    "speed_bps": (("nic.{interface}.link.speed_bps", 1), ("nic.{interface}.speed_mbps", 1e6)),
    "speed_max_bps": (("nic.{interface}.link.speed_maximum_bps", 1),),
    "partner_speed_max_bps": (("nic.{interface}.link.partner_speed_maximum_bps", 1),),
    "duplex": (("nic.{interface}.link.duplex", 1), ("nic.{interface}.duplex", 1)),
    "pci_address": (("nic.{interface}.pci_address", 1),),
    "pci_width": (("nic.{interface}.pci_width", 1),),
    "pci_width_max": (("nic.{interface}.pci_width_maximum", 1),),
    "pci_speed": (("nic.{interface}.pci_speed", 1),),
    "pci_speed_max": (("nic.{interface}.pci_speed_maximum", 1),),
    "slot_width_max": (("nic.{interface}.slot_width_maximum", 1),),
    "slot_speed_max": (("nic.{interface}.slot_speed_maximum", 1),),
    "threaded": (("nic.{interface}.threaded", 1),),
    "ring_rx": (("nic.{interface}.ring.rx", 1),),
    "ring_rx_max": (("nic.{interface}.ring.rx_max", 1),),
    "cpu_model": (("cpu.model", 1),),
    "frequency_base_hz": (("cpu.frequency_base_khz", 1e3),),
    "thread_siblings": (("cpu.thread_siblings", 1),),
    "transparent_hugepage": (("machine.transparent_hugepage", 1),),
    "numa_node": (("nic.{interface}.numa_node", 1),),
    "interrupt_affinity": (("nic.{interface}.interrupt_affinity", 1),),
    "rx_usecs": (("nic.{interface}.coalescing.rx_usecs", 1),),
    "adaptive_rx": (("nic.{interface}.coalescing.adaptive_rx", 1),),
    "tcp_send_limits": (("sysctl.net.ipv4.tcp_wmem", 1),),
    "tcp_receive_limits": (("sysctl.net.ipv4.tcp_rmem", 1),),
    "governor": (("cpu.governor", 1),),
    "frequency_driver": (("cpu.frequency_driver", 1),),
    "frequency_max_hz": (("cpu.frequency_maximum_khz", 1e3),),
}
#: CPUs of each NUMA node as Linux lists them: 0-15,32-47.
NUMA_CPUS = r"numa\.node(?P<node>\d+)\.cpus"
#: Distances of a NUMA node to all nodes in their order: `10 12 32 32`.
NUMA_DISTANCE = "numa.node{node}.distance"
