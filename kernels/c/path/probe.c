/* See probe.h. */
#include "path/probe.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <string.h>

enum {
    WAIT_MS = 20, /* between looks at the control channel */
    SEND_TRIES = 3,
    IPV4_HEADS_BYTES = 20 + 8,
    IPV6_HEADS_BYTES = 40 + 8,
    UDP_HEAD_BYTES = 8,
    LENGTH_MAX = 65535,   /* IPv4: of the packet; IPv6: of what follows its first head */
    IP_MTU_OPTION = 14,   /* IP_MTU, include/uapi/linux/in.h */
    IPV6_MTU_OPTION = 24, /* IPV6_MTU, include/uapi/linux/in6.h */
    CONTROL_BYTES = 512
};

size_t probe_heads_bytes(const struct probe *probe)
{
    return probe->six ? IPV6_HEADS_BYTES : IPV4_HEADS_BYTES;
}

size_t probe_bytes_max(const struct probe *probe)
{
    return LENGTH_MAX - (probe->six ? UDP_HEAD_BYTES : IPV4_HEADS_BYTES);
}

size_t probe_mtu_bytes(const struct probe *probe)
{
    int mtu = 0;
    socklen_t length = sizeof mtu;
    return getsockopt(probe->descriptor, probe->six ? IPPROTO_IPV6 : IPPROTO_IP,
                      probe->six ? IPV6_MTU_OPTION : IP_MTU_OPTION, &mtu, &length) ||
                   mtu < 0
               ? 0
               : (size_t)mtu;
}

/* PROBE: DF is set, and what this host has learnt of the path's MTU holds nothing back. */
bool probe_prepare(struct run *run, struct probe *probe, int descriptor)
{
    int on = 1, discover = IP_PMTUDISC_PROBE;
    *probe = (struct probe){.descriptor = descriptor, .six = run->peer.storage.ss_family == AF_INET6};
    if (probe->six)
        return (!setsockopt(descriptor, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof on) &&
                !setsockopt(descriptor, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &discover, sizeof discover)) ||
               fail_system(&run->failure, "IPV6_RECVERR");
    return (!setsockopt(descriptor, IPPROTO_IP, IP_RECVERR, &on, sizeof on) &&
            !setsockopt(descriptor, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover)) ||
           fail_system(&run->failure, "IP_RECVERR");
}

bool probe_hops(struct run *run, struct probe *probe, int hop_count)
{
    return !setsockopt(probe->descriptor, probe->six ? IPPROTO_IPV6 : IPPROTO_IP,
                       probe->six ? IPV6_UNICAST_HOPS : IP_TTL, &hop_count, sizeof hop_count) ||
           fail_system(&run->failure, "hop limit %d", hop_count);
}

static bool is_expired(const struct sock_extended_err *error)
{
    return (error->ee_origin == SO_EE_ORIGIN_ICMP && error->ee_type == ICMP_TIME_EXCEEDED) ||
           (error->ee_origin == SO_EE_ORIGIN_ICMP6 && error->ee_type == ICMP6_TIME_EXCEEDED);
}

static enum probe_end error_meaning(struct probe *probe, const struct cmsghdr *one)
{
    struct sock_extended_err error;
    const struct sockaddr *from = SO_EE_OFFENDER((const struct sock_extended_err *)(const void *)CMSG_DATA(one));
    memcpy(&error, CMSG_DATA(one), sizeof error);
    if (error.ee_origin != SO_EE_ORIGIN_ICMP && error.ee_origin != SO_EE_ORIGIN_ICMP6)
        return error.ee_errno == EMSGSIZE ? PROBE_TOO_LARGE_HERE : PROBE_PENDING;
    probe->from = (struct address){.length = probe->six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)};
    if (one->cmsg_len >= CMSG_LEN(sizeof error + probe->from.length))
        memcpy(&probe->from.storage, from, probe->from.length);
    probe->error = (int)error.ee_errno;
    probe->told_mtu_bytes = error.ee_errno == EMSGSIZE ? error.ee_info : 0;
    if (is_expired(&error))
        return PROBE_EXPIRED;
    return error.ee_errno == EMSGSIZE ? PROBE_TOO_LARGE : PROBE_UNREACHABLE;
}

/* One message of the error queue. Of an earlier probe it means nothing; a router that quotes too little of the probe to
 * tell means the latest. */
static bool error_taken(struct run *run, struct probe *probe, enum probe_end *end)
{
    uint8_t quoted[DATAGRAM_HEAD_BYTES];
    uint64_t number, stamp_ns;
    _Alignas(struct cmsghdr) char control[CONTROL_BYTES];
    struct iovec part = {.iov_base = quoted, .iov_len = sizeof quoted};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(probe->descriptor, &message, MSG_ERRQUEUE | MSG_DONTWAIT);
    run->call_count++;
    *end = PROBE_PENDING;
    if (got < 0)
        return false;
    if (got == (ssize_t)sizeof quoted &&
        (datagram_read(quoted, &number, &stamp_ns) != run->phase || number != probe->number))
        return true;
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one))
        if ((one->cmsg_level == IPPROTO_IP && one->cmsg_type == IP_RECVERR) ||
            (one->cmsg_level == IPPROTO_IPV6 && one->cmsg_type == IPV6_RECVERR))
            *end = error_meaning(probe, one);
    return true;
}

/* Throws away what is said of earlier probes, and the error that the next call would return for it. */
static void errors_forget(struct run *run, struct probe *probe)
{
    enum probe_end end;
    int error;
    socklen_t length = sizeof error;
    while (error_taken(run, probe, &end))
        continue;
    getsockopt(probe->descriptor, SOL_SOCKET, SO_ERROR, &error, &length);
}

enum probe_end probe_send(struct run *run, struct probe *probe, uint8_t *payload, size_t bytes, uint64_t wait_ns)
{
    probe->number = run->sent_count++;
    probe->bytes = bytes;
    run->sent_bytes += bytes;
    for (int i = 0; i < SEND_TRIES; i++) { /* an error of the one before may come until the very call */
        errors_forget(run, probe);
        run->now_ns = probe->sent_ns = clock_now_ns();
        probe->limit_ns = probe->sent_ns + wait_ns;
        datagram_write(payload, run->phase, probe->number, probe->sent_ns);
        ssize_t sent = send(probe->descriptor, payload, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        run->call_count++;
        if (sent == (ssize_t)bytes)
            return PROBE_PENDING;
    }
    if (errno == EMSGSIZE)
        return PROBE_TOO_LARGE_HERE;
    if (errno == EAGAIN || errno == ENOBUFS || errno == EINTR)
        return PROBE_LOST;
    fail_system(&run->failure, "send of %zu bytes", bytes);
    return PROBE_FAILED;
}

static enum probe_end answer_taken(struct run *run, struct probe *probe)
{
    uint8_t answer[DATAGRAM_HEAD_BYTES];
    uint64_t number, length;
    ssize_t got = recv(probe->descriptor, answer, sizeof answer, MSG_DONTWAIT | MSG_TRUNC);
    run->call_count++;
    if (got == (ssize_t)sizeof answer && datagram_read(answer, &number, &length) == run->phase &&
        number == probe->number && length == probe->bytes)
        return PROBE_ANSWERED;
    return PROBE_PENDING;
}

enum probe_end probe_wait(struct run *run, struct probe *probe)
{
    struct pollfd poller = {.fd = probe->descriptor, .events = POLLIN};
    enum probe_end end = PROBE_PENDING;
    run->now_ns = clock_now_ns();
    int remaining_ms = clock_remaining_ms(probe->limit_ns);
    int ready = poll(&poller, 1, remaining_ms < WAIT_MS ? remaining_ms : WAIT_MS);
    run->call_count++;
    run->now_ns = clock_now_ns();
    if (ready > 0 && poller.revents & POLLIN)
        end = answer_taken(run, probe);
    while (ready > 0 && end == PROBE_PENDING && error_taken(run, probe, &end))
        continue;
    probe->round_trip_ns = run->now_ns - probe->sent_ns;
    return end == PROBE_PENDING && run->now_ns >= probe->limit_ns ? PROBE_LOST : end;
}

bool probe_answer(struct run *run, int descriptor)
{
    uint8_t head[DATAGRAM_HEAD_BYTES];
    uint64_t number, stamp_ns;
    struct pollfd poller = {.fd = descriptor, .events = POLLIN};
    int ready = poll(&poller, 1, WAIT_MS);
    ssize_t got = ready > 0 ? recv(descriptor, head, sizeof head, MSG_DONTWAIT | MSG_TRUNC) : -1;
    run->call_count += 2;
    run->now_ns = clock_now_ns();
    if (got < (ssize_t)sizeof head || datagram_read(head, &number, &stamp_ns) != run->phase)
        return false;
    datagram_write(head, run->phase, number, (uint64_t)got);
    run->call_count++;
    return send(descriptor, head, sizeof head, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof head;
}
