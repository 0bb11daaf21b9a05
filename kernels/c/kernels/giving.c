/* See giving.h. */
#include "kernels/giving.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    ZERO_COPY_OPTION = 60,      /* SO_ZEROCOPY, Linux 4.14; older headers lack these names */
    ZERO_COPY_FLAG = 0x4000000, /* MSG_ZEROCOPY */
    ZERO_COPY_ORIGIN = 5,       /* SO_EE_ORIGIN_ZEROCOPY, include/uapi/linux/errqueue.h */
    ZERO_COPY_COPIED = 1,       /* SO_EE_CODE_ZEROCOPY_COPIED */
    CALLS_BETWEEN_LOOKS = 64,   /* at the error queue: the kernel joins what it has to say of calls in a row */
    LOOK_WAIT_MS = 20
};

static const uint64_t end_limit_ns = NS_PER_S;

const char *const giving_choices[] = {"send", "zero_copy", "sendfile", NULL};

static bool open_file(struct run *run, struct giving *giving, const struct flows *flows, size_t bytes)
{
    giving->file = (int)syscall(SYS_memfd_create, "message", 1U /* MFD_CLOEXEC */);
    if (giving->file < 0)
        return fail_system(&run->failure, "send_by: sendfile: a file in memory");
    for (size_t have = 0; have < bytes;) {
        ssize_t wrote = write(giving->file, giving->message + have, bytes - have);
        if (wrote <= 0)
            return fail_system(&run->failure, "send_by: sendfile: %zu bytes in memory", bytes);
        have += (size_t)wrote;
    }
    /* sendfile() knows no MSG_DONTWAIT: a loop over many sockets needs ones that never block. */
    for (size_t i = 0; i < flows->count; i++)
        if ((flows->count > 1 || flows->wait != FLOWS_BLOCK || run->both_send) &&
            fcntl(flows->list[i].descriptor, F_SETFL, O_NONBLOCK))
            return fail_system(&run->failure, "send_by: sendfile: O_NONBLOCK");
    return true;
}

bool giving_open(struct run *run, struct giving *giving, enum giving_by by, const struct flows *flows,
                 const char *message, size_t bytes)
{
    const int one = 1;
    *giving = (struct giving){.by = by, .message = message};
    for (size_t i = 0; by == GIVE_ZERO_COPY && i < flows->count; i++)
        if (setsockopt(flows->list[i].descriptor, SOL_SOCKET, ZERO_COPY_OPTION, &one, sizeof one))
            return fail_system(&run->failure, "send_by: zero_copy: SO_ZEROCOPY");
    return by != GIVE_SENDFILE || open_file(run, giving, flows, bytes);
}

/* Other things come with it, as the time stamp of a flow that receives too. */
static void told(struct giving *giving, struct msghdr *message)
{
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        struct sock_extended_err about = {0};
        bool four = part->cmsg_level == IPPROTO_IP && part->cmsg_type == IP_RECVERR;
        bool six = part->cmsg_level == IPPROTO_IPV6 && part->cmsg_type == IPV6_RECVERR;
        if ((!four && !six) || part->cmsg_len < CMSG_LEN(sizeof about))
            continue;
        memcpy(&about, CMSG_DATA(part), sizeof about);
        if (about.ee_origin != ZERO_COPY_ORIGIN)
            continue;
        uint64_t count = (uint64_t)(about.ee_data - about.ee_info) + 1; /* first and last call, modulo 2^32 */
        *(about.ee_code & ZERO_COPY_COPIED ? &giving->copied_count : &giving->kept_count) += count;
    }
}

/* What the kernel has to say of this flow by now. */
static void look(struct giving *giving, int descriptor)
{
    for (;;) {
        _Alignas(
            struct cmsghdr) char control[CMSG_SPACE(sizeof(struct sock_extended_err) + sizeof(struct sockaddr_in6))];
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
        if (recvmsg(descriptor, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
            return;
        told(giving, &message);
    }
}

static uint64_t open_count(const struct giving *giving)
{
    return giving->given_count - giving->kept_count - giving->copied_count;
}

static void look_at_all(struct giving *giving, const struct flows *flows)
{
    uint64_t deadline_ns = clock_now_ns() + end_limit_ns;
    while (giving->by == GIVE_ZERO_COPY) {
        struct pollfd pollers[FLOWS_MAX];
        for (size_t i = 0; i < flows->count; i++) {
            look(giving, flows->list[i].descriptor);
            pollers[i] = (struct pollfd){.fd = flows->list[i].descriptor}; /* POLLERR comes unasked */
        }
        if (!open_count(giving) || clock_now_ns() > deadline_ns)
            return;
        poll(pollers, flows->count, LOOK_WAIT_MS);
    }
}

void giving_begin(struct giving *giving, const struct flows *flows)
{
    look_at_all(giving, flows);
    giving->given_count = giving->kept_count = giving->copied_count = 0;
}

static ssize_t give_in_place(struct run *run, struct giving *giving, const struct flow *flow, size_t bytes, int flags)
{
    ssize_t sent =
        send(flow->descriptor, giving->message + flow->sent, bytes - flow->sent, MSG_NOSIGNAL | ZERO_COPY_FLAG | flags);
    int error = errno;
    giving->given_count += sent > 0;
    if (sent < 0 || giving->given_count % CALLS_BETWEEN_LOOKS == 0) {
        run->call_count++;
        look(giving, flow->descriptor);
    }
    /* Too much is open for net.core.optmem_max or `ulimit -l`: what the peer acknowledges frees it. */
    if (sent < 0 && error == ENOBUFS && open_count(giving)) {
        struct pollfd poller = {.fd = flow->descriptor};
        run->call_count++;
        poll(&poller, 1, LOOK_WAIT_MS);
        error = EAGAIN;
    }
    errno = error;
    return sent;
}

ssize_t giving_give(struct run *run, struct giving *giving, const struct flow *flow, size_t bytes, int flags)
{
    off_t from = (off_t)flow->sent;
    if (giving->by == GIVE_ZERO_COPY)
        return give_in_place(run, giving, flow, bytes, flags);
    if (giving->by == GIVE_SENDFILE)
        return sendfile(flow->descriptor, giving->file, &from, bytes - flow->sent);
    return send(flow->descriptor, giving->message + flow->sent, bytes - flow->sent, MSG_NOSIGNAL | flags);
}

void giving_end(struct run *run, struct giving *giving, const struct flows *flows)
{
    int value = 0;
    socklen_t length = sizeof value;
    if (giving->by != GIVE_ZERO_COPY)
        return;
    look_at_all(giving, flows);
    if (open_count(giving))
        run_warn(run, "zero_copy_open", "the kernel said nothing of %llu of %llu calls",
                 (unsigned long long)open_count(giving), (unsigned long long)giving->given_count);
    if (!getsockopt(flows->list[0].descriptor, SOL_SOCKET, ZERO_COPY_OPTION, &value, &length))
        run_grant_boolean(run, "zero_copy", value > 0);
}

void giving_join(struct giving *giving, struct giving *other, const struct flows *flows)
{
    look_at_all(other, flows);
    giving->given_count += other->given_count;
    giving->kept_count += other->kept_count;
    giving->copied_count += other->copied_count;
}

void giving_close(struct giving *giving)
{
    if (giving->file > 0)
        close(giving->file);
}
