/* See stamps.h. Headers of older systems have neither the names of the newer flags nor the structure
 * (linux/net_tstamp.h and linux/errqueue.h), so both stand here. */
#include "kernels/stamps.h"

#include "wire/address.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

const char *const stamps_clocks[] = {"process", "software", "hardware", NULL};

enum {
    STAMP_OPTION_ID = 1 << 7,     /* Linux 3.17 */
    STAMP_OPTION_ALONE = 1 << 11, /* without the datagram; Linux 4.0 */
    STAMP_OPTION_BOTH = 1 << 14,  /* software beside hardware; Linux 4.13 */
    SOFTWARE_FLAGS = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE,
    HARDWARE_FLAGS = SOF_TIMESTAMPING_TX_HARDWARE | SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE,
    COLLECT_MAX = 64 /* of the error queue at once */
};

static const double enough_share = 0.9; /* of the round trips: else the stamps are of some other kind of datagram */

/* 0: none. */
struct both_stamps {
    uint64_t software_ns, hardware_ns;
};
struct passage {
    uint64_t number, call_ns;
    struct both_stamps left, came;
};

struct stamps {
    bool is_server;
    enum stamps_clock asked;
    int flags;
    int error;
    struct arrivals clock;
    size_t slot_count, flow_count;
    struct passage *passages; /* by number */
    uint64_t(*numbers);       /* by flow, and by count of what the flow sent */
    uint32_t sent_counts[FLOWS_OF_REQUESTS_MAX];
    struct both_stamps last_came;
    struct histogram software, hardware, send, receive;
    uint64_t answered_count;
};

static const uint64_t no_number = UINT64_MAX;

static bool stamps_ask(int descriptor, int flags)
{
    return setsockopt(descriptor, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof flags) == 0;
}

bool stamps_open(struct run *run, int64_t clock, const struct flows *flows, size_t slot_count, struct stamps **out)
{
    if (clock == CLOCK_PROCESS)
        return true;
    struct stamps *stamps = *out = memory_new(1, sizeof *stamps);
    stamps->is_server = run->is_server;
    stamps->asked = (enum stamps_clock)clock;
    stamps->slot_count = slot_count;
    stamps->flow_count = flows->count;
    stamps->passages = memory_new(slot_count, sizeof *stamps->passages);
    stamps->numbers = memory_new(slot_count * flows->count, sizeof *stamps->numbers);
    stamps->flags = SOFTWARE_FLAGS | STAMP_OPTION_ID | STAMP_OPTION_ALONE;
    if (stamps->asked == CLOCK_HARDWARE)
        stamps->flags |= HARDWARE_FLAGS | STAMP_OPTION_BOTH;
    arrivals_begin(&stamps->clock, -1);
    for (size_t i = 0; i < flows->count && !stamps->error; i++)
        if (!stamps_ask(flows->list[i].descriptor, stamps->flags) &&
            !stamps_ask(flows->list[i].descriptor, stamps->flags & ~STAMP_OPTION_BOTH))
            stamps->error = errno;
    stamps_begin(stamps);
    return true;
}

void stamps_begin(struct stamps *stamps)
{
    if (!stamps)
        return;
    for (size_t i = 0; i < stamps->slot_count; i++)
        stamps->passages[i] = (struct passage){.number = no_number};
    for (size_t i = 0; i < stamps->slot_count * stamps->flow_count; i++)
        stamps->numbers[i] = no_number;
    memset(&stamps->software, 0, sizeof stamps->software);
    memset(&stamps->hardware, 0, sizeof stamps->hardware);
    memset(&stamps->send, 0, sizeof stamps->send);
    memset(&stamps->receive, 0, sizeof stamps->receive);
    stamps->answered_count = 0;
}

static struct passage *passage_of(struct stamps *stamps, uint64_t number)
{
    return &stamps->passages[number & (stamps->slot_count - 1)];
}

static uint64_t *number_of(struct stamps *stamps, const struct flow *flow, uint32_t count)
{
    return &stamps->numbers[flow->index * stamps->slot_count + (count & (stamps->slot_count - 1))];
}

void stamps_sent(struct stamps *stamps, const struct flow *flow, bool sent, uint64_t number, uint64_t call_ns)
{
    if (!stamps || stamps->error)
        return;
    if (!sent) { /* old systems count what they could not send, new ones do not: from 0 again */
        stamps_ask(flow->descriptor, 0);
        stamps_ask(flow->descriptor, stamps->flags);
        stamps->sent_counts[flow->index] = 0;
        for (size_t i = 0; i < stamps->slot_count; i++)
            *number_of(stamps, flow, (uint32_t)i) = no_number;
        return;
    }
    *number_of(stamps, flow, stamps->sent_counts[flow->index]++) = number;
    struct passage *passage = passage_of(stamps, number);
    if (passage->number == number) /* the server: it came before it is answered */
        passage->call_ns = call_ns;
    else
        *passage = (struct passage){.number = number, .call_ns = call_ns};
}

/* Both stamps of one kind are there: a round trip at the client, the server's turn at the server. */
static void passage_add(const struct stamps *stamps, struct histogram *histogram, uint64_t left_ns, uint64_t came_ns)
{
    uint64_t first_ns = stamps->is_server ? came_ns : left_ns, second_ns = stamps->is_server ? left_ns : came_ns;
    if (left_ns && came_ns && second_ns >= first_ns)
        histogram_add(histogram, second_ns - first_ns);
}

/* A new stamp of a passage. */
static void passage_take(struct stamps *stamps, struct passage *passage, struct both_stamps *of, struct both_stamps now)
{
    if (now.software_ns && !of->software_ns) {
        of->software_ns = now.software_ns;
        passage_add(stamps, &stamps->software, passage->left.software_ns, passage->came.software_ns);
        if (of == &passage->left && now.software_ns > passage->call_ns)
            histogram_add(&stamps->send, now.software_ns - passage->call_ns);
    }
    if (now.hardware_ns && !of->hardware_ns) {
        of->hardware_ns = now.hardware_ns;
        passage_add(stamps, &stamps->hardware, passage->left.hardware_ns, passage->came.hardware_ns);
    }
}

static uint64_t stamp_ns(const struct timespec *stamp)
{
    return (uint64_t)stamp->tv_sec * NS_PER_S + (uint64_t)stamp->tv_nsec;
}

/* The stamps that a message brought, the software's on our clock; of the error queue, *count is of the datagram. */
static struct both_stamps stamps_read(struct stamps *stamps, struct msghdr *message, uint64_t now_ns, int64_t *count)
{
    struct both_stamps moment = {0};
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        struct timespec stamp[3]; /* of the software, none, of the hardware */
        struct sock_extended_err error;
        if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SO_TIMESTAMPING &&
            head->cmsg_len >= CMSG_LEN(sizeof stamp)) {
            memcpy(stamp, CMSG_DATA(head), sizeof stamp);
            if (stamp_ns(&stamp[0]) && !stamps->clock.distrusted)
                moment.software_ns = arrivals_told(&stamps->clock, (int64_t)stamp_ns(&stamp[0]), now_ns);
            if (stamps->clock.distrusted)
                moment.software_ns = 0;
            moment.hardware_ns = stamp_ns(&stamp[2]);
        } else if (count &&
                   ((head->cmsg_level == IPPROTO_IP && head->cmsg_type == IP_RECVERR) ||
                    (head->cmsg_level == IPPROTO_IPV6 && head->cmsg_type == IPV6_RECVERR)) &&
                   head->cmsg_len >= CMSG_LEN(sizeof error)) {
            memcpy(&error, CMSG_DATA(head), sizeof error);
            if (error.ee_origin == SO_EE_ORIGIN_TIMESTAMPING)
                *count = error.ee_data;
        }
    }
    return moment;
}

union stamps_control {
    struct cmsghdr head;
    char bytes[512];
};

ssize_t stamps_receive(struct stamps *stamps, const struct flow *flow, void *buffer, size_t bytes, int flags,
                       uint64_t *now_ns)
{
    union stamps_control control;
    struct iovec part = {.iov_base = buffer, .iov_len = bytes};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(flow->descriptor, &message, flags);
    int error = errno;
    *now_ns = clock_now_ns();
    stamps->last_came = got >= 0 ? stamps_read(stamps, &message, *now_ns, NULL) : (struct both_stamps){0};
    errno = error;
    return got;
}

void stamps_came(struct stamps *stamps, uint64_t number, uint64_t now_ns)
{
    if (!stamps)
        return;
    struct passage *passage = passage_of(stamps, number);
    if (stamps->is_server)
        *passage = (struct passage){.number = number};
    else if (passage->number != number)
        return;
    stamps->answered_count++;
    if (stamps->last_came.software_ns)
        histogram_add(&stamps->receive, now_ns - stamps->last_came.software_ns);
    passage_take(stamps, passage, &passage->came, stamps->last_came);
}

uint64_t stamps_collect(struct stamps *stamps, const struct flow *flow)
{
    uint64_t calls = 0;
    while (stamps && calls < COLLECT_MAX) {
        union stamps_control control;
        struct msghdr message = {.msg_control = &control, .msg_controllen = sizeof control};
        int64_t count = -1;
        calls++;
        if (recvmsg(flow->descriptor, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
            break;
        struct both_stamps moment = stamps_read(stamps, &message, clock_now_ns(), &count);
        uint64_t number = count < 0 ? no_number : *number_of(stamps, flow, (uint32_t)count);
        struct passage *passage = passage_of(stamps, number);
        if (number != no_number && passage->number == number)
            passage_take(stamps, passage, &passage->left, moment);
    }
    return calls;
}

/* Why the card stamped nothing. */
static void hardware_refusal(const struct run *run, char *text, size_t bytes)
{
    struct hwtstamp_config config = {0};
    struct ifreq request = {.ifr_data = (char *)&config};
    address_interface(&run->local, request.ifr_name);
    int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int error = ioctl(descriptor, SIOCGHWTSTAMP, &request) ? errno : 0;
    if (descriptor >= 0)
        close(descriptor);
    if (error)
        snprintf(text, bytes, "%s: its driver stamps no packets (SIOCGHWTSTAMP: %s)", request.ifr_name,
                 fail_errno_name(error));
    else if (config.tx_type == HWTSTAMP_TX_OFF || config.rx_filter == HWTSTAMP_FILTER_NONE)
        snprintf(text, bytes,
                 "%s: the card's stamps are off; an administrator turns them on: hwstamp_ctl -i %s -t 1 -r 1",
                 request.ifr_name, request.ifr_name);
    else
        snprintf(text, bytes, "%s: the card's filter %d leaves these datagrams out; -r 1 of hwstamp_ctl has all",
                 request.ifr_name, config.rx_filter);
}

static bool is_enough(const struct stamps *stamps, const struct histogram *histogram)
{
    return histogram->count && (double)histogram->count >= enough_share * (double)stamps->answered_count;
}

static enum stamps_clock clock_granted(const struct stamps *stamps)
{
    if (stamps->asked == CLOCK_HARDWARE && is_enough(stamps, &stamps->hardware))
        return CLOCK_HARDWARE;
    return is_enough(stamps, &stamps->software) ? CLOCK_SOFTWARE : CLOCK_PROCESS;
}

static void refusal_warn(struct run *run, const struct stamps *stamps, enum stamps_clock granted)
{
    char reason[160];
    if (stamps->error)
        snprintf(reason, sizeof reason, "SO_TIMESTAMPING: %s", fail_errno_name(stamps->error));
    else if (stamps->asked == CLOCK_HARDWARE)
        hardware_refusal(run, reason, sizeof reason);
    else if (stamps->clock.distrusted)
        snprintf(reason, sizeof reason, "the wall clock, which stamps them, was set");
    else
        snprintf(reason, sizeof reason, "of %llu datagrams %llu have both stamps: the driver stamps none that leave",
                 (unsigned long long)stamps->answered_count, (unsigned long long)stamps->software.count);
    run_warn(run, "option_not_granted", "%s: clock: asked for %s, granted %s: %s", run->is_server ? "server" : "client",
             stamps_clocks[stamps->asked], stamps_clocks[granted], reason);
}

void stamps_report(struct run *run, const struct stamps *stamps, struct stamps_metrics *metrics)
{
    if (!stamps)
        return;
    enum stamps_clock granted = clock_granted(stamps);
    const struct histogram *found = granted == CLOCK_HARDWARE ? &stamps->hardware : &stamps->software;
    run_grant_text(run, "clock", stamps_clocks[granted]);
    arrivals_report(run, &stamps->clock);
    if (granted != stamps->asked && (stamps->answered_count || stamps->error))
        refusal_warn(run, stamps, granted);
    if (granted == CLOCK_PROCESS)
        return;
    if (stamps->is_server) {
        metrics->turn_p50_ns = histogram_quantile_ns(found, 0.5);
        metrics->turn_mean_ns = histogram_mean_ns(found);
        return;
    }
    metrics->min_ns = (double)found->minimum_ns;
    metrics->max_ns = (double)found->maximum_ns;
    metrics->p50_ns = histogram_quantile_ns(found, 0.5);
    metrics->p99_ns = histogram_supports(found, 0.99) ? histogram_quantile_ns(found, 0.99) : (double)NAN;
    metrics->mean_ns = histogram_mean_ns(found);
    metrics->count = (double)found->count;
    metrics->send_p50_ns = histogram_quantile_ns(&stamps->send, 0.5);
    metrics->receive_p50_ns = histogram_quantile_ns(&stamps->receive, 0.5);
}

void stamps_close(struct stamps *stamps)
{
    if (!stamps)
        return;
    free(stamps->passages);
    free(stamps->numbers);
    free(stamps);
}
