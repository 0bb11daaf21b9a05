/* How fast one CPU copies memory here and now. Whatever a socket carries is copied by a CPU at either end, so between
 * two processes of one host no test can be faster; between hosts it bounds what the host does, whatever the wire could.
 * The block fits into the caches, as messages do: the fastest that a copy can be, not the speed of the memory chips. */
#include "facts/facts.h"

#include "base/clock.h"
#include "base/placed.h"

#include <stdlib.h>
#include <string.h>

enum { COPY_BYTES = 1 << 20, COPY_PASSES = 64, COPY_LIMIT_NS = 50 * 1000 * 1000 };

/* Shortest time of a copy, the first one with its page faults left out. The pointers are volatile so that no compiler
 * can know what the copies are good for, and leave them away. */
static uint64_t copy_shortest_ns(char *volatile to, char *volatile from)
{
    uint64_t begin = clock_now_ns(), shortest = UINT64_MAX;
    memcpy(to, from, COPY_BYTES);
    for (int pass = 0; pass < COPY_PASSES && clock_now_ns() - begin < COPY_LIMIT_NS; pass++) {
        uint64_t before = clock_now_ns();
        memcpy(to, from, COPY_BYTES);
        uint64_t took = clock_now_ns() - before;
        if (took < shortest)
            shortest = took;
    }
    return shortest;
}

void facts_memory_copy(struct facts *facts)
{
    void *pages[2] = {NULL, NULL}; /* as the kernels' buffers, each begins at a page */
    if (!posix_memalign(&pages[0], PLACED_PAGE_BYTES, COPY_BYTES) &&
        !posix_memalign(&pages[1], PLACED_PAGE_BYTES, COPY_BYTES)) {
        char *from = memset(pages[0], 1, COPY_BYTES), *to = memset(pages[1], 2, COPY_BYTES);
        uint64_t shortest = copy_shortest_ns(to, from);
        if (shortest && shortest != UINT64_MAX && to[COPY_BYTES - 1] == from[COPY_BYTES - 1])
            fact_number(facts, 8e9 * COPY_BYTES / (double)shortest, "memory_copy_bps");
    } else {
        facts_unavailable(facts, "now.memory_copy", "ENOMEM");
    }
    free(pages[0]);
    free(pages[1]);
}
