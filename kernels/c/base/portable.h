/* What newer systems have calls for, done as every Linux since 2.6 and every libc can. */
#ifndef HPCQ_PORTABLE_H
#define HPCQ_PORTABLE_H

#include "base/fail.h"

#include <stddef.h>

/* Bytes that nobody can foresee, from /dev/urandom: getrandom() came with Linux 3.17 and glibc 2.25. */
bool random_bytes(void *bytes, size_t length, struct failure *failure);
/* An empty file without a name, to be locked; memfd_create() came with Linux 3.17 and glibc 2.27. -1: a failure. */
int file_unnamed(struct failure *failure);

#endif
