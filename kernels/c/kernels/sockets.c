/* Buffers and TCP. See sockets.h. */
#include "kernels/sockets.h"

#include "base/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

/* Of a process: standard input and output, control channel, listener, companion, capture, and what /proc is read with.
 */
enum { OTHER_FILES = 24 };

/* Auto-tuned buffers grow later: what they were at first stands beside what they are at the end. */
static void buffers_at_connect(struct run *run, int descriptor)
{
    int send_bytes = 0, receive_bytes = 0;
    socklen_t length = sizeof send_bytes;
    if (getsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &send_bytes, &length) ||
        getsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &receive_bytes, &length))
        return;
    run_grant_number(run, "send_buffer_at_connect_bytes", send_bytes);
    run_grant_number(run, "receive_buffer_at_connect_bytes", receive_bytes);
}

bool sockets_timeout(struct run *run, int descriptor, double seconds)
{
    uint64_t us = clock_ns_from_s(seconds) / 1000;
    struct timeval limit = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
    if (!us)
        limit.tv_usec = 1; /* 0 would mean: for ever */
    return (setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
            setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0) ||
           fail_system(&run->failure, "socket time-out");
}

bool sockets_tcp_listen(struct run *run, const struct socket_settings *settings, int *listener)
{
    struct address address = run->local;
    *listener = socket_tcp_new(run, &address, settings);
    /* Paths to other addresses of this node join the connection here, as `ip mptcp` tells them. Plain TCP has none. */
    if (settings->mptcp && *listener >= 0 && socket_is_mptcp(*listener))
        address_any(&address);
    if (*listener < 0 || !socket_options_apply(run, *listener, settings, SOCK_STREAM, SOCKET_BEFORE) ||
        !socket_bind_range(*listener, true, &address, run->ports, &run->failure))
        return false;
    run->test_port = address_port(&address);
    return true;
}

bool sockets_bind_source(struct run *run, const struct socket_settings *settings, int descriptor, unsigned *next)
{
    struct address from = run->local;
    bool asked = settings->source_port_first_no > 0, begins = !*next;
    unsigned first = asked && begins ? (unsigned)settings->source_port_first_no : *next;
    struct port_range range = {first, settings->source_port_last_no ? (unsigned)settings->source_port_last_no : first};
    int one = 1, kind = 0;
    socklen_t length = sizeof kind;
    /* The same port again, soon after a connection that had it: to another port of the server, so TCP allows it. */
    if (asked && (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &kind, &length) ||
                  (kind == SOCK_STREAM && setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one))))
        return fail_system(&run->failure, "SO_REUSEADDR");
    if (!socket_bind_range(descriptor, false, &from, range, &run->failure))
        return false;
    if (asked)
        *next = address_port(&from) + 1;
    return true;
}

/* Whoever connected to the test port; only the client of this session knows the token. */
struct guest {
    int descriptor;
    size_t have;
    uint8_t token[CONTROL_TOKEN_BYTES];
};
struct lobby {
    struct guest guests[FLOWS_MAX + 16]; /* the oldest first */
    size_t count;
};

/* Out of the lobby, to be closed or measured with. */
static int guest_leave(struct lobby *lobby, size_t index)
{
    int descriptor = lobby->guests[index].descriptor;
    memmove(&lobby->guests[index], &lobby->guests[index + 1], (--lobby->count - index) * sizeof lobby->guests[0]);
    return descriptor;
}

static void guest_arrive(struct lobby *lobby, int listener)
{
    int descriptor = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (descriptor < 0)
        return;
    if (lobby->count == sizeof lobby->guests / sizeof lobby->guests[0])
        close(guest_leave(lobby, 0));
    lobby->guests[lobby->count++] = (struct guest){.descriptor = descriptor};
}

/* True once its whole token is here and right; otherwise it stays, or goes. */
static bool guest_admitted(struct lobby *lobby, size_t index, const uint8_t *token)
{
    struct guest *guest = &lobby->guests[index];
    ssize_t got = recv(guest->descriptor, guest->token + guest->have, sizeof guest->token - guest->have, MSG_DONTWAIT);
    uint8_t difference = 0;
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    guest->have += got > 0 ? (size_t)got : 0;
    for (size_t i = 0; i < sizeof guest->token; i++)
        difference |= guest->token[i] ^ token[i];
    if (guest->have == sizeof guest->token && !difference)
        return true;
    if (got <= 0 || guest->have == sizeof guest->token)
        close(guest_leave(lobby, index));
    return false;
}

/* The client's connection among all that come: a port scanner costs it nothing. */
static bool tcp_admit(struct run *run, int listener, struct flows *flows, size_t count, uint64_t deadline_ns)
{
    struct lobby lobby = {.count = 0};
    struct pollfd pollers[2 + sizeof lobby.guests / sizeof lobby.guests[0]];
    uint8_t token[CONTROL_TOKEN_BYTES];
    control_token(&run->control, token);
    fcntl(listener, F_SETFL, O_NONBLOCK);
    while (flows->count < count && clock_remaining_ms(deadline_ns)) {
        pollers[0] = (struct pollfd){.fd = listener, .events = POLLIN};
        for (size_t i = 0; i < lobby.count; i++)
            pollers[i + 1] = (struct pollfd){.fd = lobby.guests[i].descriptor, .events = POLLIN};
        size_t guest_count = lobby.count;
        pollers[guest_count + 1] = (struct pollfd){.fd = run->control.descriptor, .events = POLLIN};
        if (poll(pollers, guest_count + 2, clock_remaining_ms(deadline_ns)) < 0 && errno != EINTR)
            break;
        if (pollers[guest_count + 1].revents && !control_silent(&run->control, &run->failure))
            break;
        if (signals_stop() && !fail(&run->failure, EXIT_INVALID, "interrupted by signal %d", signals_stop()))
            break;
        for (size_t i = guest_count; flows->count < count && i > 0; i--)
            if (pollers[i].revents && guest_admitted(&lobby, i - 1, token))
                flows->list[flows->count++].descriptor = guest_leave(&lobby, i - 1);
        if (flows->count < count && pollers[0].revents)
            guest_arrive(&lobby, listener);
    }
    while (lobby.count)
        close(guest_leave(&lobby, 0));
    return flows->count == count ||
           fail(&run->failure, EXIT_PEER, "timed out: the client did not come to the test channel");
}

static bool tcp_join(struct run *run, const struct socket_settings *settings, int *descriptor, unsigned *port,
                     uint64_t deadline_ns)
{
    struct address to = run->peer;
    uint8_t token[CONTROL_TOKEN_BYTES];
    address_set_port(&to, run->test_port);
    *descriptor = socket_tcp_new(run, &to, settings);
    if (*descriptor < 0 || !socket_options_apply(run, *descriptor, settings, SOCK_STREAM, SOCKET_BEFORE) ||
        !sockets_bind_source(run, settings, *descriptor, port))
        return false;
    if (!socket_connect(*descriptor, &to, deadline_ns, &run->failure))
        return socket_unreached(run, settings);
    control_token(&run->control, token);
    if (send(*descriptor, token, sizeof token, MSG_NOSIGNAL) == (ssize_t)sizeof token)
        return true;
    if (errno == ECONNRESET || errno == EPIPE) /* its host took the connection, and it has closed its port since */
        return fail(&run->failure, EXIT_PEER, "token on the test channel: the peer is gone (%s)",
                    fail_errno_name(errno));
    return fail_system(&run->failure, "token on the test channel");
}

static bool tcp_join_all(struct run *run, const struct socket_settings *settings, struct flows *flows, size_t count,
                         uint64_t deadline_ns)
{
    unsigned port = 0;
    while (flows->count < count) {
        int *descriptor = &flows->list[flows->count++].descriptor;
        if (!tcp_join(run, settings, descriptor, &port, deadline_ns))
            return false;
    }
    return true;
}

static bool tcp_meet(struct run *run, const struct socket_settings *settings, int *listener, struct flows *flows,
                     size_t count)
{
    uint64_t deadline = run_state(run, "open", 10);
    if (!(run->is_server ? tcp_admit(run, *listener, flows, count, deadline)
                         : tcp_join_all(run, settings, flows, count, deadline)))
        return false;
    /* Further paths of Multipath TCP join at the listener, perhaps in the middle of the measurement. */
    bool others_join = settings->mptcp && run->is_server && socket_is_mptcp(*listener);
    if (run->is_server && !others_join)
        close(*listener);
    if (!others_join)
        *listener = -1;
    for (size_t i = 0; i < count; i++)
        if (!socket_options_apply(run, flows->list[i].descriptor, settings, SOCK_STREAM, SOCKET_AFTER))
            return false;
    return true;
}

bool sockets_files(struct run *run, size_t count)
{
    struct rlimit limit;
    size_t wanted = 2 * count + 64, least = count + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= wanted)
        return true;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (count < 2 || limit.rlim_cur >= least)
        return true;
    return fail(&run->failure, EXIT_SYSTEM,
                "flow_count: found %zu: allowed on this %s: %llu (it may open %llu files, `ulimit -n`)", count,
                run->is_server ? "server" : "client",
                limit.rlim_cur > OTHER_FILES ? (unsigned long long)limit.rlim_cur - OTHER_FILES : 1ULL,
                (unsigned long long)limit.rlim_cur);
}

bool sockets_tcp_open(struct run *run, const struct socket_settings *settings, int *listener, struct flows *flows,
                      size_t count)
{
    if (!sockets_files(run, count) || !tcp_meet(run, settings, listener, flows, count))
        return false;
    buffers_at_connect(run, flows->list[0].descriptor);
    evidence_socket(run->evidence, flows->list[0].descriptor);
    return true;
}

bool sockets_tcp_beside(struct run *run, const struct socket_settings *settings, int *listener, struct flows *flows)
{
    return tcp_meet(run, settings, listener, flows, 1);
}
