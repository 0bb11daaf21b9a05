/* See fail.h. */
#include "base/fail.h"

#include "base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A peer's words reach our terminal and logs: no control characters, and nothing that is no text. */
static void fail_plain(char *message)
{
    for (unsigned char *s = (unsigned char *)message; *s;) {
        size_t length = utf8_length(s);
        if (!length || *s < ' ' || *s == 0x7f)
            *s = length && (*s == '\n' || *s == '\t') ? ' ' : '?';
        s += length ? length : 1;
    }
}

__attribute__((format(printf, 3, 0))) static void fail_write(struct failure *failure, enum exit_code code,
                                                             const char *format, va_list arguments)
{
    failure->failed = true;
    failure->exit_code = code;
    vsnprintf(failure->message, sizeof failure->message, format, arguments);
    fail_plain(failure->message);
}

bool fail(struct failure *failure, enum exit_code code, const char *format, ...)
{
    if (failure->failed)
        return false;
    va_list arguments;
    va_start(arguments, format);
    fail_write(failure, code, format, arguments);
    va_end(arguments);
    return false;
}

bool fail_system(struct failure *failure, const char *format, ...)
{
    int error = errno;
    if (failure->failed)
        return false;
    va_list arguments;
    va_start(arguments, format);
    fail_write(failure, EXIT_SYSTEM, format, arguments);
    va_end(arguments);
    size_t length = strlen(failure->message);
    snprintf(failure->message + length, sizeof failure->message - length, ": %s (%s)", strerror(error),
             fail_errno_name(error));
    return false;
}

bool fail_hint(struct failure *failure, const char *format, ...)
{
    if (failure->hint[0])
        return false;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure->hint, sizeof failure->hint, format, arguments);
    va_end(arguments);
    fail_plain(failure->hint);
    return false;
}

void fail_print(const struct failure *failure)
{
    fprintf(stderr, "error: %s%s%s\n", failure->state ? failure->state : "", failure->state ? ": " : "",
            failure->message);
    if (failure->hint[0])
        fprintf(stderr, "\nhint: %s\n", failure->hint);
}

const char *fail_errno_name(int error)
{
    static const struct {
        int number;
        const char *name;
    } names[] = {
        {EPERM, "EPERM"},
        {ENOENT, "ENOENT"},
        {EINTR, "EINTR"},
        {EIO, "EIO"},
        {ENXIO, "ENXIO"},
        {EBADF, "EBADF"},
        {EAGAIN, "EAGAIN"},
        {ENOMEM, "ENOMEM"},
        {EACCES, "EACCES"},
        {EBUSY, "EBUSY"},
        {EEXIST, "EEXIST"},
        {ENODEV, "ENODEV"},
        {ENOTDIR, "ENOTDIR"},
        {EISDIR, "EISDIR"},
        {EINVAL, "EINVAL"},
        {EMFILE, "EMFILE"},
        {EFBIG, "EFBIG"},
        {ENOSPC, "ENOSPC"},
        {EPIPE, "EPIPE"},
        {ENOSYS, "ENOSYS"},
        {ELOOP, "ELOOP"},
        {EMSGSIZE, "EMSGSIZE"},
        {EOPNOTSUPP, "EOPNOTSUPP"},
        {ENOPROTOOPT, "ENOPROTOOPT"},
        {EAFNOSUPPORT, "EAFNOSUPPORT"},
        {EADDRINUSE, "EADDRINUSE"},
        {EADDRNOTAVAIL, "EADDRNOTAVAIL"},
        {ENETUNREACH, "ENETUNREACH"},
        {ECONNRESET, "ECONNRESET"},
        {ENOBUFS, "ENOBUFS"},
        {ETIMEDOUT, "ETIMEDOUT"},
        {ECONNREFUSED, "ECONNREFUSED"},
        {EHOSTUNREACH, "EHOSTUNREACH"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].number == error)
            return names[i].name;
    return "errno";
}
