/* UDP sockets and the head of a datagram. See sockets.h. */
#include "kernels/sockets.h"

#include "base/signals.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <string.h>

#include <unistd.h>

enum {
    JOIN_PHASE = 0xff, /* in the place of the phase: this datagram brings the token */
    JOIN_INTERVAL_MS = 20,
    IP_MTU_OPTION = 14,   /* IP_MTU, include/uapi/linux/in.h */
    IPV6_MTU_OPTION = 24, /* IPV6_MTU, include/uapi/linux/in6.h */
    IPV4_HEADS_BYTES = 20 + 8,
    IPV6_HEADS_BYTES = 40 + 8,
    MEMINFO_OPTION = 55, /* SO_MEMINFO, Linux 4.12; older headers lack the name */
    MEMINFO_COUNT = 9,
    MEMINFO_DROPS = 8 /* SK_MEMINFO_DROPS, include/uapi/linux/sock_diag.h */
};

static void put_u64(uint8_t *to, uint64_t value)
{
    for (unsigned i = 0; i < 8; i++)
        to[i] = (uint8_t)(value >> (56 - 8 * i));
}

static uint64_t get_u64(const uint8_t *from)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < 8; i++)
        value = value << 8 | from[i];
    return value;
}

void datagram_write(uint8_t *datagram, enum phase phase, uint64_t sequence, uint64_t stamp_ns)
{
    put_u64(datagram, (uint64_t)phase << 56 | sequence);
    put_u64(datagram + 8, stamp_ns);
}

enum phase datagram_read(const uint8_t *datagram, uint64_t *sequence, uint64_t *stamp_ns)
{
    uint64_t head = get_u64(datagram);
    *sequence = head & 0xffffffffffffffULL;
    *stamp_ns = get_u64(datagram + 8);
    return head >> 56 <= PHASE_MEASURE ? (enum phase)(head >> 56) : PHASE_NONE;
}

bool sockets_udp_listen(struct run *run, const struct socket_settings *settings, int *descriptor)
{
    struct address address = run->local;
    *descriptor = socket_new(&address, SOCK_DGRAM, &run->failure);
    if (*descriptor < 0 || !socket_options_apply(run, *descriptor, settings, SOCK_DGRAM, SOCKET_BEFORE) ||
        !socket_bind_range(*descriptor, false, &address, run->ports, &run->failure))
        return false;
    run->test_port = address_port(&address);
    return true;
}

/* Hears this client alone from now on; what others sent before is thrown away (the client has sent only its token). */
static bool udp_take(struct run *run, int descriptor, const struct address *from)
{
    uint8_t byte;
    if (connect(descriptor, (const struct sockaddr *)&from->storage, from->length))
        return fail_system(&run->failure, "connect to the client's port");
    while (recv(descriptor, &byte, sizeof byte, MSG_DONTWAIT | MSG_TRUNC) >= 0)
        continue;
    return true;
}

/* The server takes the sender of the first datagram with the right token as its peer, and no other from then on. */
static bool udp_meet(struct run *run, int descriptor, uint64_t deadline_ns)
{
    uint8_t datagram[64], token[CONTROL_TOKEN_BYTES];
    control_token(&run->control, token);
    for (;;) {
        struct address from = {.length = sizeof from.storage};
        struct pollfd pollers[2] = {{.fd = descriptor, .events = POLLIN},
                                    {.fd = run->control.descriptor, .events = POLLIN}};
        if (!clock_remaining_ms(deadline_ns))
            return fail(&run->failure, EXIT_PEER, "timed out: no datagram with the token");
        if (poll(pollers, 2, clock_remaining_ms(deadline_ns)) < 0 && errno != EINTR)
            return fail_system(&run->failure, "poll");
        if (signals_stop())
            return fail(&run->failure, EXIT_INVALID, "interrupted by signal %d", signals_stop());
        if (pollers[1].revents && !control_silent(&run->control, &run->failure))
            return false;
        if (!pollers[0].revents)
            continue;
        ssize_t got = recvfrom(descriptor, datagram, sizeof datagram, MSG_DONTWAIT, (struct sockaddr *)&from.storage,
                               &from.length);
        if (got == 1 + CONTROL_TOKEN_BYTES && datagram[0] == JOIN_PHASE &&
            !memcmp(datagram + 1, token, CONTROL_TOKEN_BYTES))
            return udp_take(run, descriptor, &from);
    }
}

/* The client says its token until the server answers on the control channel: any one of these may be lost. */
static bool udp_join(struct run *run, int *descriptor, uint64_t deadline_ns)
{
    struct address to = run->peer, from = run->local;
    uint8_t datagram[1 + CONTROL_TOKEN_BYTES] = {JOIN_PHASE};
    control_token(&run->control, datagram + 1);
    address_set_port(&to, run->test_port);
    if (!socket_bind_range(*descriptor, false, &from, (struct port_range){0, 0}, &run->failure))
        return false;
    if (connect(*descriptor, (struct sockaddr *)&to.storage, to.length))
        return fail_system(&run->failure, "connect to the server's port");
    while (clock_now_ns() < deadline_ns) {
        struct pollfd poller = {.fd = run->control.descriptor, .events = POLLIN};
        if (send(*descriptor, datagram, sizeof datagram, MSG_NOSIGNAL) < 0 && errno != EINTR && errno != ECONNREFUSED &&
            errno != ENOBUFS)
            return fail_system(&run->failure, "token on the test channel");
        if (poll(&poller, 1, JOIN_INTERVAL_MS) > 0)
            return true;
        if (signals_stop())
            return fail(&run->failure, EXIT_INVALID, "interrupted by signal %d", signals_stop());
    }
    return fail(&run->failure, EXIT_PEER, "timed out: the server saw no datagram of ours");
}

/* The MTU of the path to the peer, as this host knows it; 0: unknown. */
static int path_mtu(const struct run *run, int descriptor)
{
    bool six = run->peer.storage.ss_family == AF_INET6;
    int mtu = 0;
    socklen_t length = sizeof mtu;
    return getsockopt(descriptor, six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_MTU_OPTION : IP_MTU_OPTION, &mtu, &length)
               ? 0
               : mtu;
}

static void warn_fragments(struct run *run, int descriptor, size_t datagram_bytes)
{
    int mtu = path_mtu(run, descriptor);
    size_t heads = run->peer.storage.ss_family == AF_INET6 ? IPV6_HEADS_BYTES : IPV4_HEADS_BYTES;
    if (mtu > 0 && datagram_bytes + heads > (size_t)mtu && !run->is_server)
        run_warn(run, "fragments",
                 "%zu bytes and %zu of heads are more than the MTU %d: each datagram goes in fragments", datagram_bytes,
                 heads, mtu);
}

bool sockets_udp_open(struct run *run, const struct socket_settings *settings, size_t datagram_bytes, int *descriptor)
{
    uint64_t deadline = run_state(run, "open", 10);
    if (run->is_server) {
        if (!udp_meet(run, *descriptor, deadline))
            return false;
    } else {
        *descriptor = socket_new(&run->peer, SOCK_DGRAM, &run->failure);
        if (*descriptor < 0 || !socket_options_apply(run, *descriptor, settings, SOCK_DGRAM, SOCKET_BEFORE) ||
            !udp_join(run, descriptor, deadline))
            return false;
    }
    warn_fragments(run, *descriptor, datagram_bytes);
    return socket_options_apply(run, *descriptor, settings, SOCK_DGRAM, SOCKET_AFTER);
}

double sockets_drops(int descriptor)
{
    uint32_t values[MEMINFO_COUNT] = {0};
    socklen_t length = sizeof values;
    if (getsockopt(descriptor, SOL_SOCKET, MEMINFO_OPTION, values, &length) || length < sizeof values)
        return (double)NAN;
    return (double)values[MEMINFO_DROPS];
}
