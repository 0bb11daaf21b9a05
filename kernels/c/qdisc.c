/* See qdisc.h. Messages: rtnetlink(7), include/uapi/linux/{rtnetlink,pkt_sched,gen_stats}.h. */
#include "qdisc.h"

#include <errno.h>
#include <linux/gen_stats.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { KIND_MAX = 16, ANSWER_BYTES = 32768 };

struct kind {
    char name[32];
    uint64_t packets, bytes, drops, overlimits, requeues, backlog_bytes;
};

struct kinds {
    struct kind list[KIND_MAX];
    size_t count;
    double root_rate_bps; /* of a tbf at the root; 0: none */
};

/* First attribute in [from, from + length) of this type, or NULL; *size is that of its content. */
static const void *attribute_find(const void *from, size_t length, unsigned short type, size_t *size)
{
    const char *at = from;
    while (length >= sizeof(struct rtattr)) {
        struct rtattr head;
        memcpy(&head, at, sizeof head);
        if (head.rta_len < sizeof head || head.rta_len > length)
            return NULL;
        if ((head.rta_type & 0x3fff) == type) { /* without NLA_F_NESTED and NLA_F_NET_BYTEORDER */
            *size = head.rta_len - RTA_LENGTH(0);
            return at + RTA_LENGTH(0);
        }
        size_t step = RTA_ALIGN(head.rta_len);
        if (step > length)
            return NULL;
        at += step;
        length -= step;
    }
    return NULL;
}

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

/* The rate of a tbf: bytes a second in its parameters, or beside them where 32 bits are too few. */
static double tbf_rate_bps(const char *attributes, size_t length)
{
    struct tc_tbf_qopt parameters;
    uint64_t wide;
    size_t size = 0, part = 0;
    const void *options = attribute_find(attributes, length, TCA_OPTIONS, &size);
    const void *found = options ? attribute_find(options, size, TCA_TBF_RATE64, &part) : NULL;
    if (found && part == sizeof wide) {
        memcpy(&wide, found, sizeof wide);
        return 8.0 * (double)wide;
    }
    found = options ? attribute_find(options, size, TCA_TBF_PARMS, &part) : NULL;
    if (!found || part < sizeof parameters)
        return 0;
    memcpy(&parameters, found, sizeof parameters);
    return 8.0 * parameters.rate.rate;
}

static void qdisc_add(struct kinds *kinds, const struct nlmsghdr *message, int index)
{
    struct tcmsg head;
    size_t size = 0, part = 0, length = message->nlmsg_len - NLMSG_LENGTH(sizeof head);
    const char *attributes = (const char *)message + NLMSG_LENGTH(sizeof head);
    char name[32] = "";
    memcpy(&head, (const char *)message + NLMSG_LENGTH(0), sizeof head);
    if (message->nlmsg_len < NLMSG_LENGTH(sizeof head) || head.tcm_ifindex != index)
        return;
    const void *kind_name = attribute_find(attributes, length, TCA_KIND, &size);
    if (!kind_name)
        return;
    memcpy(name, kind_name, size < sizeof name ? size : sizeof name - 1);
    if (head.tcm_parent == TC_H_ROOT && !strcmp(name, "tbf"))
        kinds->root_rate_bps = tbf_rate_bps(attributes, length);
    struct kind *kind = kind_of(kinds, name);
    const void *statistics = attribute_find(attributes, length, TCA_STATS2, &size);
    if (!kind || !statistics)
        return;
    struct gnet_stats_basic basic;
    struct gnet_stats_queue queue;
    const void *found = attribute_find(statistics, size, TCA_STATS_BASIC, &part);
    /* The kernel's structure is 12 bytes used and 16 with padding; both come. */
    if (found && part >= 12) {
        memcpy(&basic, found, part < sizeof basic ? part : sizeof basic);
        kind->bytes += basic.bytes;
        kind->packets += basic.packets;
    }
    found = attribute_find(statistics, size, TCA_STATS_QUEUE, &part);
    if (found && part >= sizeof queue) {
        memcpy(&queue, found, sizeof queue);
        kind->drops += queue.drops;
        kind->overlimits += queue.overlimits;
        kind->requeues += queue.requeues;
        kind->backlog_bytes += queue.backlog;
    }
}

/* One datagram of the answer. True when the list is at its end. */
static bool answer_take(struct kinds *kinds, const char *answer, size_t length, int index, int *error)
{
    for (size_t at = 0; at + sizeof(struct nlmsghdr) <= length;) {
        struct nlmsghdr head;
        memcpy(&head, answer + at, sizeof head);
        if (head.nlmsg_len < sizeof head || head.nlmsg_len > length - at)
            return true;
        if (head.nlmsg_type == NLMSG_DONE)
            return true;
        if (head.nlmsg_type == NLMSG_ERROR) {
            *error = EIO;
            return true;
        }
        if (head.nlmsg_type == RTM_NEWQDISC)
            qdisc_add(kinds, (const struct nlmsghdr *)(const void *)(answer + at), index);
        at += NLMSG_ALIGN(head.nlmsg_len);
    }
    return false;
}

static int qdisc_ask(int descriptor, int index, struct kinds *kinds)
{
    struct {
        struct nlmsghdr head;
        struct tcmsg body;
    } request = {.head = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct tcmsg)),
                          .nlmsg_type = RTM_GETQDISC,
                          .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                 .body = {.tcm_family = AF_UNSPEC, .tcm_ifindex = index}};
    _Alignas(8) char answer[ANSWER_BYTES];
    int error = 0;
    if (send(descriptor, &request, request.head.nlmsg_len, 0) < 0)
        return errno;
    for (;;) {
        ssize_t got = recv(descriptor, answer, sizeof answer, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got ? errno : EIO;
        if (answer_take(kinds, answer, (size_t)got, index, &error))
            return error;
    }
}

static int qdisc_list(const char *interface, struct kinds *kinds)
{
    struct timeval limit = {.tv_sec = 1, .tv_usec = 0};
    unsigned index = interface[0] ? if_nametoindex(interface) : 0;
    if (!index)
        return ENODEV;
    int descriptor = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (descriptor < 0)
        return errno;
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    int error = qdisc_ask(descriptor, (int)index, kinds);
    close(descriptor);
    return error;
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
