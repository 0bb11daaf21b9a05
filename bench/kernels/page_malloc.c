/* Loaded before the C library (LD_PRELOAD) into each program of mpi_suites.py: what malloc() gives from 1 KiB on begins at a
 * page. Where the heap begins is up to chance, and a copy between two places that lie a few bytes apart within their pages
 * takes up to four times as long on some processors: that would be measured, not the programs. */
#include <stddef.h>
#include <stdlib.h>

enum { PAGE_BYTES = 4096, SMALL_BYTES = 1024 };

extern void *__libc_malloc(size_t bytes); /* glibc's own name for its malloc() */

void *malloc(size_t bytes)
{
    if (bytes < SMALL_BYTES)
        return __libc_malloc(bytes);
    return aligned_alloc(PAGE_BYTES, (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES);
}
