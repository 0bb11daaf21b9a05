/* Preloaded into a server: its wall clock is set by SET_MS ms once SET_AFTER_MS ms have passed since the first stamp of an
 * arrival, for readings and for stamps alike. With STAMPS=as_before only readings move, from the start: stamps that have
 * nothing to do with the clock. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { MS = 1000000, S = 1000000000 };

static int real_gettime(clockid_t id, struct timespec *time)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = dlsym(RTLD_NEXT, "clock_gettime");
    return real(id, time);
}

static long long first_ns;

static long long shift_ns(int of_stamp)
{
    struct timespec now;
    long long set_ns = atoll(getenv("SET_MS")) * MS, after_ns = atoll(getenv("SET_AFTER_MS")) * MS;
    if (!strcmp(getenv("STAMPS"), "as_before"))
        return of_stamp ? 0 : set_ns;
    real_gettime(CLOCK_MONOTONIC, &now);
    long long now_ns = (long long)now.tv_sec * S + now.tv_nsec;
    if (of_stamp && !first_ns)
        first_ns = now_ns;
    return first_ns && now_ns - first_ns >= after_ns ? set_ns : 0;
}

static void add(struct timespec *time, long long ns)
{
    ns += time->tv_nsec;
    time->tv_sec += ns / S;
    ns %= S;
    if (ns < 0) {
        ns += S;
        time->tv_sec--;
    }
    time->tv_nsec = ns;
}

int clock_gettime(clockid_t id, struct timespec *time)
{
    int rc = real_gettime(id, time);
    if (id == CLOCK_REALTIME)
        add(time, shift_ns(0));
    return rc;
}

ssize_t recvmsg(int descriptor, struct msghdr *message, int flags)
{
    ssize_t (*real)(int, struct msghdr *, int) = dlsym(RTLD_NEXT, "recvmsg");
    ssize_t got = real(descriptor, message, flags);
    if (got < 0)
        return got;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        struct timespec stamp;
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_TIMESTAMPNS)
            continue;
        memcpy(&stamp, CMSG_DATA(part), sizeof stamp);
        add(&stamp, shift_ns(1));
        memcpy(CMSG_DATA(part), &stamp, sizeof stamp);
    }
    return got;
}
