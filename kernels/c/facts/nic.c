/* Facts: network interfaces, RDMA devices, queueing disciplines and routes. */
#include "facts/facts.h"

#include "base/fail.h"
#include "evidence/ethtool.h"
#include "evidence/qdisc.h"
#include "evidence/sources.h"
#include "wire/address.h"

#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct nic_file {
    const char *name, *path; /* below sys/class/net/<interface>/ */
};

static const struct nic_file nic_files[] = {
    {"mtu_bytes", "mtu"},
    {"state", "operstate"},
    {"address", "address"},
    {"speed_mbps", "speed"},
    {"duplex", "duplex"},
    {"tx_queue_packets", "tx_queue_len"},
    {"type", "type"},
    {"threaded", "threaded"},
    {"gro_flush_timeout_ns", "gro_flush_timeout"},
    {"napi_defer_hard_irqs", "napi_defer_hard_irqs"},
    {"bond_mode", "bonding/mode"},
    {"ipoib_mode", "mode"},
    {"pci_vendor", "device/vendor"},
    {"pci_device", "device/device"},
    {"pci_speed", "device/current_link_speed"},
    {"pci_speed_maximum", "device/max_link_speed"},
    {"pci_width", "device/current_link_width"},
    {"pci_width_maximum", "device/max_link_width"},
    /* the port above the card: what its slot can */
    {"slot_speed_maximum", "device/../max_link_speed"},
    {"slot_width_maximum", "device/../max_link_width"},
    {"numa_node", "device/numa_node"},
    {"local_cpus", "device/local_cpulist"},
};

static void nic_ethtool(struct facts *facts, const char *interface)
{
    for (int section = ETHTOOL_DRIVER; section < ETHTOOL_SECTION_COUNT; section++) {
        struct text text = {0};
        struct word line, name;
        enum ethtool_section which = (enum ethtool_section)section;
        int error = ethtool_read(facts->root, interface, which, "", &text);
        const char *at = text_string(&text), *group = ethtool_section_name(which);
        if (error && !strcmp(interface, facts->interface)) {
            char source[NAME_MAX_BYTES];
            snprintf(source, sizeof source, "nic.%s.%s", interface, group);
            facts_unavailable(facts, source, fail_errno_name(error));
        }
        while (line_next(&at, &line)) {
            char value[SYSFS_LINE_BYTES];
            if (!word_next(&line, &name))
                continue;
            snprintf(value, sizeof value, "%.*s", line.length ? (int)line.length - 1 : 0, line.at + 1);
            if (which == ETHTOOL_DRIVER)
                fact_value(facts, value, "%s.%.*s", interface, (int)name.length, name.at);
            else
                fact_value(facts, value, "%s.%s.%.*s", interface, group, (int)name.length, name.at);
        }
        text_free(&text);
    }
}

static void nic_queues(struct facts *facts, const char *interface)
{
    struct names queues = sysfs_list(facts->root, "sys/class/net/%s/queues", interface);
    double rx = 0, tx = 0;
    struct text rps = {0}, xps = {0};
    for (size_t i = 0; i < queues.count; i++) {
        char line[SYSFS_LINE_BYTES];
        bool receive = !strncmp(queues.list[i], "rx-", 3);
        rx += receive;
        tx += !receive;
        if (!sysfs_line(facts->root, line, "sys/class/net/%s/queues/%s/%s", interface, queues.list[i],
                        receive ? "rps_cpus" : "xps_cpus"))
            continue;
        struct text *masks = receive ? &rps : &xps;
        if (strspn(line, "0,") != strlen(line) && masks->length < 400) /* all zero: off */
            text_print(masks, "%s%s=%s", masks->length ? " " : "", queues.list[i], line);
    }
    fact_number(facts, rx, "%s.rx_queue_count", interface);
    fact_number(facts, tx, "%s.tx_queue_count", interface);
    fact_text(facts, text_string(&rps), "%s.rps_cpus", interface);
    fact_text(facts, text_string(&xps), "%s.xps_cpus", interface);
    text_free(&rps);
    text_free(&xps);
    names_free(&queues);
}

/* Which CPUs its interrupts may go to: `38=0-1 39=0`. */
static void nic_interrupts(struct facts *facts, const char *interface)
{
    struct names interrupts = sysfs_interrupts(facts->root, interface);
    struct text affinity = {0};
    for (size_t i = 0; i < interrupts.count && affinity.length < 4000; i++) {
        char line[SYSFS_LINE_BYTES];
        if (sysfs_line(facts->root, line, "proc/irq/%s/smp_affinity_list", interrupts.list[i]))
            text_print(&affinity, "%s%s=%s", affinity.length ? " " : "", interrupts.list[i], line);
    }
    fact_number(facts, (double)interrupts.count, "%s.interrupt_count", interface);
    fact_text(facts, text_string(&affinity), "%s.interrupt_affinity", interface);
    text_free(&affinity);
    names_free(&interrupts);
}

static void nic_addresses(struct facts *facts, const char *interface)
{
    struct ifaddrs *list = NULL;
    struct text addresses = {0};
    if (facts->root[0] || getifaddrs(&list))
        return;
    for (struct ifaddrs *i = list; i; i = i->ifa_next) {
        struct address address = {.length = 0};
        char host[ADDRESS_TEXT_BYTES];
        if (!i->ifa_addr || strcmp(i->ifa_name, interface) != 0 ||
            (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
            continue;
        address.length = i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        memcpy(&address.storage, i->ifa_addr, address.length);
        address_text(&address, host);
        text_print(&addresses, "%s%s", addresses.length ? " " : "", host);
    }
    fact_text(facts, text_string(&addresses), "%s.addresses", interface);
    freeifaddrs(list);
    text_free(&addresses);
}

/* Whole for the interface under test and what it stands on; of the others the common part, and nothing of those that
 * come and go with containers. */
static void nic_one(struct facts *facts, const char *interface, bool tested)
{
    char name[NAME_MAX_BYTES], link[SYSFS_LINE_BYTES];
    bool hardware = sysfs_exists(facts->root, "sys/class/net/%s/device", interface);
    if (!tested && !hardware)
        return;
    for (size_t i = 0; i < sizeof nic_files / sizeof nic_files[0]; i++) {
        snprintf(name, sizeof name, "%s.%s", interface, nic_files[i].name);
        fact_file(facts, name, "sys/class/net/%s/%s", interface, nic_files[i].path);
    }
    if (sysfs_link(facts->root, link, "sys/class/net/%s/device", interface))
        fact_text(facts, link, "%s.pci_address", interface);
    if (sysfs_link(facts->root, link, "sys/class/net/%s/master", interface))
        fact_text(facts, link, "%s.master", interface);
    nic_addresses(facts, interface);
    nic_queues(facts, interface);
    nic_interrupts(facts, interface);
    nic_ethtool(facts, interface);
}

void facts_nic(struct facts *facts)
{
    struct names all = sysfs_list(facts->root, "sys/class/net");
    struct names tested = sysfs_lower_interfaces(facts->root, facts->interface);
    for (size_t i = 0; i < all.count; i++) {
        bool is_tested = false;
        for (size_t j = 0; j < tested.count; j++)
            is_tested = is_tested || !strcmp(all.list[i], tested.list[j]);
        nic_one(facts, all.list[i], is_tested);
    }
    if (!all.count)
        facts_unavailable(facts, "nic", "ENOENT");
    names_free(&all);
    names_free(&tested);
}

void facts_qdisc(struct facts *facts)
{
    struct text text = {0}, kinds = {0};
    struct word line;
    if (!facts->interface[0])
        return;
    int error =
        facts->root[0] ? source_read_file(facts->root, "sources/qdisc", &text) : qdisc_read(facts->interface, &text);
    if (error)
        facts_unavailable(facts, "qdisc", fail_errno_name(error));
    const char *at = text_string(&text);
    size_t skip = strlen(facts->interface) + 1;
    while (line_next(&at, &line)) {
        const char *end = memmem(line.at, line.length, ".packets ", 9);
        if (end && line.length > skip)
            text_print(&kinds, "%s%.*s", kinds.length ? " " : "", (int)(end - line.at - (long)skip), line.at + skip);
    }
    fact_text(facts, text_string(&kinds), "%s.kinds", facts->interface);
    double rate_bps = 0;
    if (!facts->root[0] && !qdisc_rate(facts->interface, &rate_bps) && rate_bps > 0)
        fact_number(facts, rate_bps, "%s.tbf_rate_bps", facts->interface);
    text_free(&text);
    text_free(&kinds);
}

void facts_rdma(struct facts *facts)
{
    static const char *const device_files[] = {"hca_type", "fw_ver", "board_id", "node_type", "hw_rev"};
    static const char *const port_files[] = {"state", "phys_state", "rate", "link_layer", "lid"};
    struct names devices = sysfs_list(facts->root, "sys/class/infiniband");
    struct text port = {0};
    char name[NAME_MAX_BYTES];
    if (!devices.count)
        facts_unavailable(facts, "rdma", "ENOENT");
    for (size_t i = 0; i < devices.count; i++) {
        const char *device = devices.list[i];
        for (size_t file = 0; file < 5; file++) {
            snprintf(name, sizeof name, "%s.%s", device, device_files[file]);
            fact_file(facts, name, "sys/class/infiniband/%s/%s", device, device_files[file]);
        }
        struct names ports = sysfs_list(facts->root, "sys/class/infiniband/%s/ports", device);
        for (size_t j = 0; j < ports.count; j++) {
            for (size_t file = 0; file < 5; file++) {
                snprintf(name, sizeof name, "%s.port%s.%s", device, ports.list[j], port_files[file]);
                fact_file(facts, name, "sys/class/infiniband/%s/ports/%s/%s", device, ports.list[j], port_files[file]);
            }
        }
        names_free(&ports);
    }
    if (sysfs_rdma_port(facts->root, facts->interface, &port))
        fact_text(facts, text_string(&port), "%s.port", facts->interface);
    text_free(&port);
    names_free(&devices);
}
