/* Before each send of a program: LATE_MS milliseconds, in which its peer may end the connection. */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

ssize_t send(int descriptor, const void *bytes, size_t count, int flags)
{
    ssize_t (*real)(int, const void *, size_t, int) = (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
    usleep((useconds_t)atoi(getenv("LATE_MS")) * 1000);
    return real(descriptor, bytes, count, flags);
}
