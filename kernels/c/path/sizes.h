/* The search for the largest payload that gets through: by what this host knows, what routers tell, and by halves. */
#ifndef HPCQ_SIZES_H
#define HPCQ_SIZES_H

#include "path/probe.h"

struct sizes {
    size_t fits, fails,
        next; /* payloads: the largest that was answered, the smallest that was not, and the one to try */
    size_t heads_bytes, lost_count, silent_count, told_mtu_bytes; /* 0: no router told one */
    const char *limit;                                            /* what kept `fails` back */
    struct address told_by;
};

void sizes_begin(struct sizes *sizes, const struct probe *probe); /* something small was answered */
/* What became of `next`. It has failed once `try_count` of it were lost. */
void sizes_outcome(struct sizes *sizes, const struct probe *probe, enum probe_end end, size_t try_count);
bool sizes_found(const struct sizes *sizes);

#endif
