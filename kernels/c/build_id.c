/* What this program was built from: a hash that the Makefile passes. The one object that is not the same in both
 * programs, so that all others are compiled once. */

/* Counters of bytes and ns are uint64_t, sizes of buffers size_t: neither is checked where they differ. Ahead of all
 * headers, which a compiler may lack for such a system. */
_Static_assert(sizeof(void *) == 8, "hpcq's kernels need a 64-bit system");

#include "describe/program.h"

const char hpcq_build_id[] = HPCQ_BUILD_ID;
