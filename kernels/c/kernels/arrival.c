/* See arrival.h. */
#include "kernels/arrival.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* The wall clock less ours, from the tightest of some readings. */
static int64_t clocks_apart_ns(void)
{
    int64_t best_ns = 0;
    uint64_t least_ns = UINT64_MAX;
    for (int i = 0; i < 8; i++) {
        struct timespec real;
        uint64_t before_ns = clock_now_ns();
        clock_gettime(CLOCK_REALTIME, &real);
        uint64_t after_ns = clock_now_ns();
        if (after_ns - before_ns >= least_ns)
            continue;
        least_ns = after_ns - before_ns;
        best_ns = (int64_t)real.tv_sec * (int64_t)NS_PER_S + real.tv_nsec - (int64_t)(before_ns / 2 + after_ns / 2);
    }
    return best_ns;
}

void arrivals_begin(struct arrivals *arrivals, int descriptor)
{
    int one = 1;
    bool stamped = setsockopt(descriptor, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one) == 0;
    arrivals->real_minus_monotonic_ns = stamped ? clocks_apart_ns() : 0;
}

uint64_t arrivals_stamp(const struct arrivals *arrivals, struct msghdr *message, uint64_t now_ns)
{
    if (!arrivals->real_minus_monotonic_ns)
        return now_ns;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        struct timespec stamp;
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_TIMESTAMPNS)
            continue;
        memcpy(&stamp, CMSG_DATA(head), sizeof stamp);
        int64_t ns = (int64_t)stamp.tv_sec * (int64_t)NS_PER_S + stamp.tv_nsec - arrivals->real_minus_monotonic_ns;
        return ns > 0 && (uint64_t)ns < now_ns ? (uint64_t)ns : now_ns;
    }
    return now_ns;
}

ssize_t arrivals_receive(const struct arrivals *arrivals, int descriptor, void *buffer, size_t bytes, int flags,
                         uint64_t *now_ns, uint64_t *stamp_ns)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(struct timespec))];
    } control;
    struct iovec part = {.iov_base = buffer, .iov_len = bytes};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(descriptor, &message, flags);
    int error = errno;
    *now_ns = clock_now_ns();
    *stamp_ns = got >= 0 ? arrivals_stamp(arrivals, &message, *now_ns) : *now_ns;
    errno = error;
    return got;
}

double arrivals_span_ns(uint64_t first_ns, uint64_t last_ns, uint64_t stop_ns, bool lost)
{
    bool silent = lost && stop_ns > last_ns && stop_ns - last_ns > (stop_ns - first_ns) / 10;
    return (double)((silent ? stop_ns : last_ns) - first_ns);
}
