"""The names that kernels give to counters, gauges and facts: a rename in kernels/c is one line here.

Counters of one tuple are added up. {interface} stands for the interface under test, {cpu} for the CPU that an end ran on. A
fact may have had several names; the first one that is there counts.
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

#: A qdisc that stands on others repeats their drops, so the largest counts.
QDISC_DROPPED = r"qdisc\.(?P<device>.+)\.(?P<kind>[^.]+)\.drops"
SOFTNET_DROPPED = r"softnet\.cpu\d+\.dropped"
INTERFACE_BYTES = {"tx": "net_dev.{interface}.tx_bytes", "rx": "net_dev.{interface}.rx_bytes"}
INTERFACE_PACKETS = {"tx": "net_dev.{interface}.tx_packets", "rx": "net_dev.{interface}.rx_packets"}
ANY_INTERFACE_BYTES = {"tx": r"net_dev\.(?P<interface>.+)\.tx_bytes", "rx": r"net_dev\.(?P<interface>.+)\.rx_bytes"}
RDMA_BYTES = {
    "tx": r"infiniband\..+\.\d+\.port_xmit_data_bytes",
    "rx": r"infiniband\..+\.\d+\.port_rcv_data_bytes",
}
#: Each of these says that a packet was lost for want of a buffer or of time: nothing else counts there.
NIC_OVERRUN = (
    r"net_dev\.{interface}\.[rt]x_fifo"
    r"|sys_net\.[^ ]+\.rx_(missed|over)_errors"
    r"|ethtool\.[^ ]+\.\S*(discard|out_of_buffer|no_dma_resources|missed_errors|fifo_err|over_err|ovfl)\S*"
    r"|infiniband\.\S+\.(port_xmit_discards|out_of_buffer)"
)
#: These count packets too that nobody wanted (unknown protocols, filters), a few a second on any network.
NIC_DROPPED = r"net_dev\.{interface}\.[rt]x_dropped|ethtool\.[^ ]+\.\S*(?<!xdp_)drop(s|ped|_count|_packets)?\S*"
NIC_DROPPED_NOT = r"ethtool\.\S*(xdp|filter|vlan|arp|encap|steer|tls|ipsec|unknown)\S*"
LINK_ERRORS = (
    r"net_dev\.{interface}\.(rx_frame|tx_carrier)"
    r"|sys_net\.[^ ]+\.(rx_crc_errors|carrier_down_count)"
    r"|ethtool\.[^ ]+\.\S*(crc_err|symbol_err|align_err|link_down_events)\S*"
    r"|infiniband\.\S+\.(symbol_error|link_error_recovery|link_downed|local_link_integrity_errors|port_rcv_errors)"
)

# -- CPU ----------------------------------------------------------------------------------------------------------------

TICKS = r"stat\.cpu\d*\.\w+_ticks"
WORK_MODES = ("user", "nice", "system")
INTERRUPT_MODES = ("irq", "softirq")
IDLE_MODES = ("idle", "iowait")
OWN_CPU_US = ("self.rusage.user_us", "self.rusage.system_us")
OWN_WAIT_NS = ("self.schedstat.wait_ns",)
OWN_SWITCHED_AWAY = ("self.rusage.involuntary_context_switches",)
QUOTA_HELD_US = ("cgroup.self.throttled_us",)
THROTTLED = r"cpu_power\.cpu\d+\.(core|package)_throttle_count"
FREQUENCY = "cpufreq.cpu{cpu}.frequency_hz"
INTERRUPTS = r"interrupts\.(?P<name>.+)\.cpu(?P<cpu>\d+)"
MEMORY_TOTAL = "meminfo.node.MemTotal_bytes"
WALL_MINUS_MONOTONIC = "clock.wall_minus_monotonic_us"
#: Of the connection that is measured, by its sender's kernel (struct tcp_info, Linux 4.10).
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
#: CPUs of each NUMA node, as the kernel lists them: 0-15,32-47.
NUMA_CPUS = r"numa\.node(?P<node>\d+)\.cpus"
