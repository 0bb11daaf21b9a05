/* The clocks of all ranks, brought onto that of rank 0: offset and drift of each, and how far that may be wrong.
 *
 *   rank r   s = now ->  rank 0  t = now  ->  rank r  e = now      offset = t - (s + e) / 2, within (e - s) / 2
 *
 * Of some such exchanges the fastest counts: one point. Points of the whole measurement make a line (least squares). */
#ifndef HPCQ_MPI_CLOCKS_H
#define HPCQ_MPI_CLOCKS_H

#include "engine/run.h"

#include <mpi.h>

enum { CLOCK_POINTS = 64 };

struct clock_point {
    uint64_t local_ns; /* the middle of the exchange, on this rank's clock */
    int64_t offset_ns; /* rank 0's clock minus this one's */
    uint64_t took_ns;  /* the exchange: the offset is within half of it */
};

struct clocks {
    MPI_Comm communicator;
    int rank, size;
    struct clock_point points[CLOCK_POINTS]; /* a ring: the latest ones */
    size_t count;
    uint64_t reference_ns; /* the line: offset at this local time, and how it grows */
    int64_t offset_ns;
    double slope, error_ns;
};

/* All ranks call these together. */
int clocks_start(struct clocks *clocks, MPI_Comm communicator); /* the first points */
int clocks_point(struct clocks *clocks);                        /* one more, and the line anew */
/* At rank 0: of the rank whose clock is furthest from rank 0's: offset (its clock minus rank 0's) and drift; and the
 * largest error of any rank. */
int clocks_gather(const struct clocks *clocks, double *offset_ns, double *drift_ratio, double *error_ns);

/* A moment of rank 0's clock on this rank's. */
uint64_t clocks_local(const struct clocks *clocks, uint64_t global_ns);

#endif
