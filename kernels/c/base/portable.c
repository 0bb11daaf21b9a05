/* See portable.h. */
#include "base/portable.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool random_bytes(void *bytes, size_t length, struct failure *failure)
{
    int descriptor = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return fail_system(failure, "/dev/urandom");
    char *to = bytes;
    while (length) {
        ssize_t got = read(descriptor, to, length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        to += got;
        length -= (size_t)got;
    }
    bool ok = !length || fail_system(failure, "/dev/urandom");
    close(descriptor);
    return ok;
}

int file_unnamed(struct failure *failure)
{
    const char *const folders[] = {getenv("TMPDIR"), "/dev/shm", "/tmp"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        char path[4096];
        int length = folders[i] ? snprintf(path, sizeof path, "%s/hpcq.XXXXXX", folders[i]) : 0;
        int descriptor = length > 0 && (size_t)length < sizeof path ? mkostemp(path, O_CLOEXEC) : -1;
        if (descriptor < 0)
            continue;
        unlink(path);
        return descriptor;
    }
    fail_system(failure, "a file to lock in $TMPDIR, /dev/shm or /tmp");
    return -1;
}
