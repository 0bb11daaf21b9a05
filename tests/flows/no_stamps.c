/* Preloaded: a system that refuses SO_TIMESTAMPING (WITHOUT=asked), or one whose network driver stamps nothing that leaves
 * (WITHOUT=left). */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int setsockopt(int descriptor, int level, int option, const void *value, socklen_t length)
{
    int (*real)(int, int, int, const void *, socklen_t) = dlsym(RTLD_NEXT, "setsockopt");
    if (level == SOL_SOCKET && option == SO_TIMESTAMPING && !strcmp(getenv("WITHOUT"), "asked")) {
        errno = ENOPROTOOPT;
        return -1;
    }
    return real(descriptor, level, option, value, length);
}

ssize_t recvmsg(int descriptor, struct msghdr *message, int flags)
{
    ssize_t (*real)(int, struct msghdr *, int) = dlsym(RTLD_NEXT, "recvmsg");
    ssize_t got = real(descriptor, message, flags);
    if (got >= 0 && flags & MSG_ERRQUEUE && !strcmp(getenv("WITHOUT"), "left")) {
        errno = EAGAIN;
        return -1;
    }
    return got;
}
