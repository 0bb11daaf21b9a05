/* A sweep over message sizes in one process: message_bytes, doubled as long as sweep_to_bytes allows, and each of these
 * also with sweep_perturbation_bytes less and more (NetPIPE's idea: powers of two are special to caches and to the
 * protocols of MPI). Sizes that the kernel does not take are left out; each is measured once, the smallest first.
 *
 *   message_bytes 64, sweep_to_bytes 256, perturbation 3:   61 64 67 125 128 131 253 256 259
 *
 * Each size is a measurement of its own, with warm-up, snapshots and a result line; all happen in one session between
 * the same two processes. */
#ifndef HPCQ_SWEEP_H
#define HPCQ_SWEEP_H

#include "engine/result.h"

enum { SWEEP_SIZES_MAX = 128 };

struct sweep {
    int64_t sizes[SWEEP_SIZES_MAX];
    size_t count; /* 0: no sweep */
};

bool sweep_sizes(const struct kernel *kernel, const void *options, struct sweep *sweep, struct failure *failure);

/* Measures `one`, whose options have the size. */
typedef bool (*sweep_measure)(struct run *one, void *context);

/* Without a sweep: measures `run`. Else each size in turn, until one cannot be measured. The result lines go to out
 * (NULL: this end has none). Sizes of run->sizes_done are left out. Returns the exit code; run->failure is that of the
 * last measurement. */
int sweep_run(struct run *run, sweep_measure measure, void *context, struct result_out *out);

#endif
