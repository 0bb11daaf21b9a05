/* UDP sockets and the head of a datagram. See sockets.h. */
#include "kernels/sockets.h"

#include "base/signals.h"

#include <endian.h>
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
    uint64_t big = htobe64(value);
    memcpy(to, &big, sizeof big);
}

static uint64_t get_u64(const uint8_t *from)
{
    uint64_t big;
    memcpy(&big, from, sizeof big);
    return be64toh(big);
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

bool sockets_udp_listen(struct run *run, const struct socket_settings *settings, int *listener)
{
    struct address address = run->local;
    *listener = socket_new(&address, SOCK_DGRAM, &run->failure);
    if (*listener < 0 || !socket_options_apply(run, *listener, settings, SOCK_DGRAM, SOCKET_BEFORE) ||
        !socket_bind_range(*listener, false, &address, run->ports, &run->failure))
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

/* One more socket at the listener's port: the server's flows share one port, which is all that a firewall has to let
 * through. The listener allows it only now, so that its own port was nobody else's. */
static int udp_beside(struct run *run, const struct socket_settings *settings, int listener)
{
    struct address address;
    int one = 1;
    if (!address_of_socket(listener, &address)) {
        fail_system(&run->failure, "getsockname");
        return -1;
    }
    struct port_range port = {address_port(&address), address_port(&address)};
    int descriptor = socket_new(&address, SOCK_DGRAM, &run->failure);
    if (descriptor < 0)
        return -1;
    if (setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one))
        fail_system(&run->failure, "SO_REUSEADDR");
    else if (socket_options_apply(run, descriptor, settings, SOCK_DGRAM, SOCKET_BEFORE) &&
             socket_bind_range(descriptor, false, &address, port, &run->failure))
        return descriptor;
    close(descriptor);
    return -1;
}

/* The next flow; the last one is the listener itself, so that nobody else comes. */
static bool udp_flow_new(struct run *run, const struct socket_settings *settings, int *listener, struct flows *flows,
                         size_t index, size_t count, const struct address *from)
{
    int descriptor = flows->count + 1 == count ? *listener : udp_beside(run, settings, *listener);
    if (descriptor < 0)
        return false;
    if (descriptor == *listener)
        *listener = -1;
    flows->list[index].descriptor = descriptor;
    flows->count++;
    return udp_take(run, descriptor, from);
}

/* The server takes the senders of the first datagrams with the right token as its peers, and no others from then on. */
static bool udp_meet(struct run *run, const struct socket_settings *settings, int *listener, struct flows *flows,
                     size_t count, uint64_t deadline_ns)
{
    uint8_t datagram[64], token[CONTROL_TOKEN_BYTES];
    control_token(&run->control, token);
    while (flows->count < count) {
        struct address from = {.length = sizeof from.storage};
        struct pollfd pollers[2] = {{.fd = *listener, .events = POLLIN},
                                    {.fd = run->control.descriptor, .events = POLLIN}};
        int rc = poll(pollers, 2, clock_remaining_ms(deadline_ns));
        if (rc == 0)
            return fail(&run->failure, EXIT_PEER, "timed out: no datagram of the client came");
        if (signals_stop())
            return fail(&run->failure, EXIT_INVALID, "interrupted by signal %d", signals_stop());
        if (rc < 0 && errno != EINTR)
            return fail_system(&run->failure, "poll");
        if (rc > 0 && pollers[1].revents && !control_silent(&run->control, &run->failure))
            return false;
        if (rc < 0 || !pollers[0].revents)
            continue;
        ssize_t got = recvfrom(*listener, datagram, sizeof datagram, MSG_DONTWAIT, (struct sockaddr *)&from.storage,
                               &from.length);
        size_t index = (size_t)(datagram[1] << 8 | datagram[2]);
        if (got == SOCKETS_JOIN_BYTES && datagram[0] == JOIN_PHASE && index < count &&
            flows->list[index].descriptor <= 0 && !memcmp(datagram + 3, token, CONTROL_TOKEN_BYTES) &&
            !udp_flow_new(run, settings, listener, flows, index, count, &from))
            return false;
    }
    return true;
}

static bool udp_client_sockets(struct run *run, const struct socket_settings *settings, struct flows *flows,
                               size_t count)
{
    struct address to = run->peer;
    unsigned port = 0;
    address_set_port(&to, run->test_port);
    while (flows->count < count) {
        int *descriptor = &flows->list[flows->count++].descriptor;
        *descriptor = socket_new(&run->peer, SOCK_DGRAM, &run->failure);
        if (*descriptor < 0 || !socket_options_apply(run, *descriptor, settings, SOCK_DGRAM, SOCKET_BEFORE) ||
            !sockets_bind_source(run, settings, *descriptor, &port))
            return false;
        if (connect(*descriptor, (struct sockaddr *)&to.storage, to.length))
            return connect_refused(&to, errno, &run->failure) || socket_unreached(run, settings);
    }
    return true;
}

/* The client says its token until the server answers: any one of these may be lost. */
static bool udp_join(struct run *run, const struct socket_settings *settings, const struct flows *flows,
                     int answered_on, uint64_t deadline_ns)
{
    uint8_t datagram[SOCKETS_JOIN_BYTES] = {JOIN_PHASE};
    control_token(&run->control, datagram + 3);
    while (clock_now_ns() < deadline_ns) {
        struct pollfd poller = {.fd = answered_on, .events = POLLIN};
        for (size_t i = 0; i < flows->count; i++) {
            datagram[1] = (uint8_t)(i >> 8);
            datagram[2] = (uint8_t)i;
            if (send(flows->list[i].descriptor, datagram, sizeof datagram, MSG_NOSIGNAL) < 0 && errno != EINTR &&
                errno != ECONNREFUSED && errno != ENOBUFS)
                return fail_system(&run->failure, "token on the test channel");
        }
        if (poll(&poller, 1, JOIN_INTERVAL_MS) > 0)
            return true;
        if (signals_stop())
            return fail(&run->failure, EXIT_INVALID, "interrupted by signal %d", signals_stop());
    }
    fail_hint(&run->failure,
              "on the way something drops them: a firewall (`server --ports` names the ports it must let through)");
    return fail(&run->failure, EXIT_PEER, "timed out: the server saw no datagram of ours") ||
           socket_unreached(run, settings);
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

bool datagram_refused(struct run *run, int descriptor, const char *option, size_t bytes)
{
    int error = errno, mtu = path_mtu(run, descriptor);
    int heads = run->peer.storage.ss_family == AF_INET6 ? IPV6_HEADS_BYTES : IPV4_HEADS_BYTES;
    const char *end = run->is_server ? "server" : "client";
    if ((error == EMSGSIZE || error == EINVAL) && mtu > heads && bytes > (size_t)(mtu - heads)) {
        fail_hint(&run->failure,
                  "with do_not_fragment, gso_segment_count and udp_dispersion no datagram goes in fragments");
        return fail(&run->failure, EXIT_USAGE,
                    "%s: found %zu: allowed on this %s: %d at most, which the path's MTU of %d has room for (%s)",
                    option, bytes, end, mtu - heads, mtu, fail_errno_name(error));
    }
    if (error == EPERM)
        fail_hint(&run->failure, "a firewall of this %s forbids it: `nft list ruleset` shows its rules", end);
    errno = error;
    return fail_system(&run->failure, "send of %zu bytes", bytes);
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

bool sockets_udp_open(struct run *run, const struct socket_settings *settings, size_t datagram_bytes, int *listener,
                      struct flows *flows, size_t count)
{
    uint64_t deadline = run_state(run, "open", 10);
    if (!sockets_files(run, count) ||
        !(run->is_server ? udp_meet(run, settings, listener, flows, count, deadline)
                         : udp_client_sockets(run, settings, flows, count) &&
                               udp_join(run, settings, flows, run->control.descriptor, deadline)))
        return false;
    warn_fragments(run, flows->list[0].descriptor, datagram_bytes);
    for (size_t i = 0; i < count; i++)
        if (!socket_options_apply(run, flows->list[i].descriptor, settings, SOCK_DGRAM, SOCKET_AFTER))
            return false;
    return true;
}

bool sockets_udp_beside(struct run *run, const struct socket_settings *settings, int *listener, struct flows *flows)
{
    uint64_t deadline = run_state(run, "open", 10);
    return run->is_server ? udp_meet(run, settings, listener, flows, 1, deadline)
                          : udp_client_sockets(run, settings, flows, 1) &&
                                udp_join(run, settings, flows, flows->list[0].descriptor, deadline);
}

bool datagrams_settled(const struct run *run, struct settling *settling, uint64_t here_count, double settle_s)
{
    if (!run->peer_stopped || here_count >= run->peer_sent_count)
        return run->peer_stopped;
    if (!settling->stop_ns)
        settling->stop_ns = run->now_ns;
    uint64_t quiet_since_ns = settling->read_ns > settling->stop_ns ? settling->read_ns : settling->stop_ns;
    return run->now_ns > quiet_since_ns + clock_ns_from_s(settle_s);
}

enum step datagram_get(struct run *run, struct flow *flow, struct arrivals *arrivals, uint8_t *buffer, size_t bytes,
                       int flags, struct settling *settling, struct datagram *out)
{
    ssize_t got =
        arrivals_receive(arrivals, flow->descriptor, buffer, bytes + 1, flags, &run->now_ns, &out->arrived_ns);
    int error = errno;
    run->call_count++;
    if (got < 0) {
        if (error == EAGAIN)
            flow->readable = false;
        if (error == EAGAIN || error == EINTR || error == ECONNREFUSED)
            return STEP_IDLE;
        errno = error;
        fail_system(&run->failure, "recv");
        return STEP_FAILED;
    }
    if (got != (ssize_t)bytes || datagram_read(buffer, &out->number, &out->sent_ns) != run->phase)
        return STEP_MOVED; /* a late token or a datagram of the warm-up */
    settling->read_ns = run->now_ns;
    return STEP_OPERATION;
}

double sockets_drops(const struct flows *flows)
{
    double sum = 0;
    for (size_t i = 0; i < flows->count; i++) {
        uint32_t values[MEMINFO_COUNT] = {0};
        socklen_t length = sizeof values;
        if (getsockopt(flows->list[i].descriptor, SOL_SOCKET, MEMINFO_OPTION, values, &length) ||
            length < sizeof values)
            return (double)NAN;
        sum += (double)values[MEMINFO_DROPS];
    }
    return sum;
}
