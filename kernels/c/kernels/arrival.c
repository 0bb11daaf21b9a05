/* See arrival.h. */
#include "kernels/arrival.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

static const uint64_t check_interval_ns = 10000000, check_least_ns = 100000;
static const uint64_t read_limit_ns = 50000; /* a reading that took longer, a wait for a CPU in it, tells nothing */
static const int64_t set_least_ns = 200000;  /* both clocks are slewed alike: only setting one moves them apart */
static const uint64_t slack_ns = 1000000;

/* The wall clock less ours, and how long that took to read. */
static int64_t apart_ns(uint64_t *took_ns)
{
    struct timespec real;
    uint64_t before_ns = clock_now_ns();
    clock_gettime(CLOCK_REALTIME, &real);
    uint64_t after_ns = clock_now_ns();
    *took_ns = after_ns - before_ns;
    return (int64_t)real.tv_sec * (int64_t)NS_PER_S + real.tv_nsec - (int64_t)(before_ns / 2 + after_ns / 2);
}

/* The tightest of some readings. */
static int64_t clocks_apart_ns(void)
{
    int64_t best_ns = 0;
    uint64_t least_ns = UINT64_MAX, took_ns;
    for (int i = 0; i < 8; i++) {
        int64_t found_ns = apart_ns(&took_ns);
        if (took_ns >= least_ns)
            continue;
        least_ns = took_ns;
        best_ns = found_ns;
    }
    return best_ns;
}

void arrivals_begin(struct arrivals *arrivals, int descriptor)
{
    int one = 1;
    bool stamped = descriptor < 0 || setsockopt(descriptor, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one) == 0;
    *arrivals = (struct arrivals){.floor_ns = clock_now_ns(), .checked_ns = clock_now_ns()};
    arrivals->real_minus_monotonic_ns = stamped ? clocks_apart_ns() : 0;
}

static void arrivals_check(struct arrivals *arrivals, uint64_t now_ns)
{
    uint64_t took_ns;
    int64_t apart = apart_ns(&took_ns);
    if (took_ns > read_limit_ns)
        return;
    if (apart - arrivals->real_minus_monotonic_ns > set_least_ns ||
        arrivals->real_minus_monotonic_ns - apart > set_least_ns) {
        arrivals->before_ns = arrivals->real_minus_monotonic_ns;
        arrivals->real_minus_monotonic_ns = clocks_apart_ns();
        arrivals->set_after_ns = arrivals->checked_ns;
    }
    arrivals->checked_ns = now_ns;
}

/* A time that may be when something arrived which is read now. */
static bool is_between(int64_t ns, uint64_t from_ns, uint64_t to_ns)
{
    return ns > 0 && (uint64_t)ns + slack_ns >= from_ns && (uint64_t)ns <= to_ns + slack_ns;
}

uint64_t arrivals_told(struct arrivals *arrivals, int64_t stamp_ns, uint64_t now_ns)
{
    int64_t ns = stamp_ns - arrivals->real_minus_monotonic_ns;
    uint64_t since_ns = now_ns - arrivals->checked_ns;
    bool odd = !is_between(ns, arrivals->checked_ns, now_ns);
    if (since_ns > check_interval_ns || (odd && since_ns > check_least_ns)) {
        arrivals_check(arrivals, now_ns);
        ns = stamp_ns - arrivals->real_minus_monotonic_ns;
    }
    /* What waited in the socket while the clock was set has a stamp of before. */
    if (arrivals->before_ns && !is_between(ns, arrivals->set_after_ns, now_ns))
        ns = stamp_ns - arrivals->before_ns;
    if (!is_between(ns, arrivals->floor_ns, now_ns)) {
        arrivals->distrusted = true;
        return now_ns;
    }
    return (uint64_t)ns < now_ns ? (uint64_t)ns : now_ns;
}

uint64_t arrivals_stamp(struct arrivals *arrivals, struct msghdr *message, uint64_t now_ns)
{
    if (!arrivals->real_minus_monotonic_ns || arrivals->distrusted)
        return now_ns;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        struct timespec stamp;
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_TIMESTAMPNS)
            continue;
        memcpy(&stamp, CMSG_DATA(head), sizeof stamp);
        return arrivals_told(arrivals, (int64_t)stamp.tv_sec * (int64_t)NS_PER_S + stamp.tv_nsec, now_ns);
    }
    return now_ns;
}

void arrivals_report(struct run *run, const struct arrivals *arrivals)
{
    const char *end = run->is_server ? "server" : "client";
    if (arrivals->distrusted)
        run_warn(run, "clock_set",
                 "%s: the stamps of arrivals and the wall clock disagree: what was read counts as arrived then", end);
    else if (arrivals->before_ns)
        run_warn(run, "clock_set", "%s: the wall clock was set by %.6g s; arrivals are told by the monotonic one", end,
                 (double)(arrivals->real_minus_monotonic_ns - arrivals->before_ns) / 1e9);
}

ssize_t arrivals_receive(struct arrivals *arrivals, int descriptor, void *buffer, size_t bytes, int flags,
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
