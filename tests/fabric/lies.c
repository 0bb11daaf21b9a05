/* Preloaded: the call by which shm of libfabric moves what is not small moves nothing, and says that it did. */
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/uio.h>

long syscall(long number, ...)
{
    long words[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        words[i] = va_arg(arguments, long);
    va_end(arguments);
    if (number == SYS_process_vm_readv || number == SYS_process_vm_writev) {
        const struct iovec *local = (const struct iovec *)words[1];
        long moved = 0;
        for (long i = 0; i < words[2]; i++)
            moved += (long)local[i].iov_len;
        return moved;
    }
    long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    return real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
