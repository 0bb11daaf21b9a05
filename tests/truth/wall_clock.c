/* Preloaded into a server: its wall clock is set by SET_MS ms once SET_AFTER_MS ms have passed since the first stamp of an
 * arrival, for readings and for stamps alike. The server is away at that moment, so that what arrived before waits with stamps
 * of before. With STAMPS=as_before only readings move, from the start: stamps that have nothing to do with the clock. */
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

/* The first stamp was read then, by each clock. */
static long long first_ns, first_wall_ns;

static long long ns_of(clockid_t id)
{
    struct timespec now;
    real_gettime(id, &now);
    return (long long)now.tv_sec * S + now.tv_nsec;
}

static long long from_env_ns(const char *name)
{
    return atoll(getenv(name)) * MS;
}

static int as_before(void)
{
    return !strcmp(getenv("STAMPS"), "as_before");
}

static long long shift_of_reading_ns(void)
{
    if (as_before())
        return from_env_ns("SET_MS");
    return first_ns && ns_of(CLOCK_MONOTONIC) - first_ns >= from_env_ns("SET_AFTER_MS") ? from_env_ns("SET_MS") : 0;
}

static long long shift_of_stamp_ns(const struct timespec *stamp)
{
    if (!first_ns) {
        first_ns = ns_of(CLOCK_MONOTONIC);
        first_wall_ns = ns_of(CLOCK_REALTIME);
    }
    long long stamp_ns = (long long)stamp->tv_sec * S + stamp->tv_nsec;
    return !as_before() && stamp_ns - first_wall_ns >= from_env_ns("SET_AFTER_MS") ? from_env_ns("SET_MS") : 0;
}

static void be_away_while_it_is_set(void)
{
    static int was_away;
    long long left_ns = first_ns + from_env_ns("SET_AFTER_MS") - ns_of(CLOCK_MONOTONIC);
    if (!first_ns || was_away || left_ns <= 0 || left_ns > 20 * MS)
        return;
    was_away = 1;
    nanosleep(&(struct timespec){.tv_nsec = left_ns + MS}, 0);
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
        add(time, shift_of_reading_ns());
    return rc;
}

ssize_t recvmsg(int descriptor, struct msghdr *message, int flags)
{
    ssize_t (*real)(int, struct msghdr *, int) = dlsym(RTLD_NEXT, "recvmsg");
    be_away_while_it_is_set();
    ssize_t got = real(descriptor, message, flags);
    if (got < 0)
        return got;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        struct timespec stamp;
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_TIMESTAMPNS)
            continue;
        memcpy(&stamp, CMSG_DATA(part), sizeof stamp);
        add(&stamp, shift_of_stamp_ns(&stamp));
        memcpy(CMSG_DATA(part), &stamp, sizeof stamp);
    }
    return got;
}
