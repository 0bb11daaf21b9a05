/* See qdisc.h. Messages: rtnetlink(7), include/uapi/linux/{rtnetlink,pkt_sched,gen_stats}.h. */
#include "evidence/qdisc.h"

#include "evidence/netlink.h"

#include <errno.h>
#include <linux/gen_stats.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { KIND_MAX = 16 };

struct kind {
    char name[32];
    uint64_t packets, bytes, drops, overlimits, requeues, backlog_bytes;
};

struct kinds {
    struct kind list[KIND_MAX];
    size_t count;
    double root_rate_bps; /* of a tbf at the root; 0: none */
};

static struct kind *kind_of(struct kinds *kinds, const char *name)
{
    for (size_t i = 0; i < kinds->count; i++)
        if (!strcmp(kinds->list[i].name, name))
            return &kinds->list[i];
    if (kinds->count == KIND_MAX)
        return NULL;
    struct kind *kind = &kinds->list[kinds->count++];
    snprintf(kind->name, sizeof kind->name, "%s", name);
    return kind;
}

/* The rate of a tbf: bytes per second in its parameters, or beside them where 32 bits are too few. */
static double tbf_rate_bps(const char *attributes, size_t length)
{
    struct tc_tbf_qopt parameters;
    uint64_t wide;
    size_t size = 0, part = 0;
    const void *options = netlink_attribute(attributes, length, TCA_OPTIONS, &size);
    const void *found = options ? netlink_attribute(options, size, TCA_TBF_RATE64, &part) : NULL;
    if (found && part == sizeof wide) {
        memcpy(&wide, found, sizeof wide);
        return 8.0 * (double)wide;
    }
    found = options ? netlink_attribute(options, size, TCA_TBF_PARMS, &part) : NULL;
    if (!found || part < sizeof parameters)
        return 0;
    memcpy(&parameters, found, sizeof parameters);
    return 8.0 * parameters.rate.rate;
}

struct listing {
    struct kinds *kinds;
    int index;
};

static void qdisc_add(void *argument, const void *entry, size_t entry_bytes)
{
    const struct listing *listing = argument;
    struct kinds *kinds = listing->kinds;
    struct tcmsg head;
    char name[32] = "";
    size_t size = 0, part = 0, skip = NLMSG_ALIGN(sizeof head);
    if (entry_bytes < skip)
        return;
    memcpy(&head, entry, sizeof head);
    const char *attributes = (const char *)entry + skip;
    size_t length = entry_bytes - skip;
    if (head.tcm_ifindex != listing->index)
        return;
    const void *kind_name = netlink_attribute(attributes, length, TCA_KIND, &size);
    if (!kind_name)
        return;
    memcpy(name, kind_name, size < sizeof name ? size : sizeof name - 1);
    if (head.tcm_parent == TC_H_ROOT && !strcmp(name, "tbf"))
        kinds->root_rate_bps = tbf_rate_bps(attributes, length);
    struct kind *kind = kind_of(kinds, name);
    const void *statistics = netlink_attribute(attributes, length, TCA_STATS2, &size);
    if (!kind || !statistics)
        return;
    struct gnet_stats_basic basic;
    struct gnet_stats_queue queue;
    const void *found = netlink_attribute(statistics, size, TCA_STATS_BASIC, &part);
    /* The kernel's structure is 12 bytes used and 16 with padding; both come. */
    if (found && part >= 12) {
        memcpy(&basic, found, part < sizeof basic ? part : sizeof basic);
        kind->bytes += basic.bytes;
        kind->packets += basic.packets;
    }
    found = netlink_attribute(statistics, size, TCA_STATS_QUEUE, &part);
    if (found && part >= sizeof queue) {
        memcpy(&queue, found, sizeof queue);
        kind->drops += queue.drops;
        kind->overlimits += queue.overlimits;
        kind->requeues += queue.requeues;
        kind->backlog_bytes += queue.backlog;
    }
}

static int qdisc_list(const char *interface, struct kinds *kinds)
{
    unsigned index = interface[0] ? if_nametoindex(interface) : 0;
    struct tcmsg body = {.tcm_family = AF_UNSPEC, .tcm_ifindex = (int)index};
    struct listing listing = {kinds, (int)index};
    return index ? netlink_dump(RTM_GETQDISC, &body, sizeof body, qdisc_add, &listing) : ENODEV;
}

int qdisc_rate(const char *interface, double *rate_bps)
{
    struct kinds kinds = {.count = 0};
    int error = qdisc_list(interface, &kinds);
    *rate_bps = error ? 0 : kinds.root_rate_bps;
    return error;
}

int qdisc_read(const char *interface, struct text *out)
{
    struct kinds kinds = {.count = 0};
    int error = qdisc_list(interface, &kinds);
    for (size_t i = 0; !error && i < kinds.count; i++) {
        const struct kind *kind = &kinds.list[i];
        const struct {
            const char *name;
            uint64_t value;
        } rows[] = {{"packets", kind->packets},   {"bytes", kind->bytes},
                    {"drops", kind->drops},       {"overlimits", kind->overlimits},
                    {"requeues", kind->requeues}, {"backlog_bytes", kind->backlog_bytes}};
        for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++)
            text_print(out, "%s.%s.%s %llu\n", interface, kind->name, rows[row].name,
                       (unsigned long long)rows[row].value);
    }
    return error;
}
