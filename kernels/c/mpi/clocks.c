/* See clocks.h. */
#include "mpi/clocks.h"

#include "base/clock.h"

#include <math.h>
#include <stdlib.h>

enum { ROOT = 0, TAG_ASK = 8, TAG_TIME = 9, EXCHANGES = 12, FIRST_POINTS = 8, VALUES = 3 };
/* A line through points that lie closer together than so many exchanges take would carry their noise far (here a drift
 * of 2e-5): then the fastest point alone counts. */
static const uint64_t line_from_exchanges = 25000;

/* Rank 0 answers another rank; that rank keeps its fastest exchange. */
static int exchange(struct clocks *clocks, int other, struct clock_point *best)
{
    int rc = MPI_SUCCESS;
    uint64_t there = 0;
    best->took_ns = UINT64_MAX;
    for (int i = 0; rc == MPI_SUCCESS && i < EXCHANGES; i++) {
        if (clocks->rank == ROOT) {
            rc = MPI_Recv(NULL, 0, MPI_CHAR, other, TAG_ASK, clocks->communicator, MPI_STATUS_IGNORE);
            there = clock_now_ns();
            if (rc == MPI_SUCCESS)
                rc = MPI_Send(&there, 1, MPI_UINT64_T, other, TAG_TIME, clocks->communicator);
            continue;
        }
        uint64_t start_ns = clock_now_ns();
        rc = MPI_Send(NULL, 0, MPI_CHAR, ROOT, TAG_ASK, clocks->communicator);
        if (rc == MPI_SUCCESS)
            rc = MPI_Recv(&there, 1, MPI_UINT64_T, ROOT, TAG_TIME, clocks->communicator, MPI_STATUS_IGNORE);
        uint64_t end_ns = clock_now_ns();
        if (end_ns - start_ns < best->took_ns) {
            best->took_ns = end_ns - start_ns;
            best->local_ns = start_ns + best->took_ns / 2;
            best->offset_ns = (int64_t)(there - best->local_ns);
        }
    }
    return rc;
}

static size_t held(const struct clocks *clocks)
{
    return clocks->count < CLOCK_POINTS ? clocks->count : CLOCK_POINTS;
}

static double residual(const struct clocks *clocks, const struct clock_point *point)
{
    double since_ns = (double)(int64_t)(point->local_ns - clocks->reference_ns);
    return (double)(point->offset_ns - clocks->offset_ns) - clocks->slope * since_ns;
}

/* Least squares over the points whose exchange took at most half as long again as the fastest one. */
static void line(struct clocks *clocks)
{
    const struct clock_point *fastest = clocks->points;
    uint64_t first_ns = UINT64_MAX, last_ns = 0;
    double count = 0, x = 0, y = 0, xx = 0, xy = 0, worst = 0;
    for (size_t i = 1; i < held(clocks); i++)
        if (clocks->points[i].took_ns < fastest->took_ns)
            fastest = &clocks->points[i];
    clocks->reference_ns = fastest->local_ns;
    clocks->offset_ns = fastest->offset_ns;
    clocks->slope = 0;
    for (size_t i = 0; i < held(clocks); i++) {
        const struct clock_point *point = &clocks->points[i];
        if (2 * point->took_ns > 3 * fastest->took_ns)
            continue;
        double at = (double)(int64_t)(point->local_ns - clocks->reference_ns), by = residual(clocks, point);
        first_ns = point->local_ns < first_ns ? point->local_ns : first_ns;
        last_ns = point->local_ns > last_ns ? point->local_ns : last_ns;
        count += 1, x += at, y += by, xx += at * at, xy += at * by;
    }
    if (count >= 3 && last_ns - first_ns >= line_from_exchanges * fastest->took_ns) {
        clocks->slope = (count * xy - x * y) / (count * xx - x * x);
        clocks->offset_ns += llround((y - clocks->slope * x) / count);
    }
    for (size_t i = 0; i < held(clocks); i++)
        if (2 * clocks->points[i].took_ns <= 3 * fastest->took_ns)
            worst = fmax(worst, fabs(residual(clocks, &clocks->points[i])));
    clocks->error_ns = (double)fastest->took_ns / 2 + worst;
}

int clocks_point(struct clocks *clocks)
{
    int rc = MPI_SUCCESS;
    for (int other = 1; rc == MPI_SUCCESS && other < clocks->size; other++) {
        if (clocks->rank != ROOT && clocks->rank != other)
            continue;
        struct clock_point point;
        rc = exchange(clocks, other, &point);
        if (clocks->rank == ROOT || rc != MPI_SUCCESS)
            continue;
        clocks->points[clocks->count++ % CLOCK_POINTS] = point;
        line(clocks);
    }
    return rc;
}

int clocks_start(struct clocks *clocks, MPI_Comm communicator)
{
    int rc = MPI_SUCCESS;
    *clocks = (struct clocks){.communicator = communicator};
    MPI_Comm_rank(communicator, &clocks->rank);
    MPI_Comm_size(communicator, &clocks->size);
    for (int i = 0; rc == MPI_SUCCESS && i < FIRST_POINTS; i++)
        rc = clocks_point(clocks);
    return rc;
}

int clocks_gather(const struct clocks *clocks, double *offset_ns, double *drift_ratio, double *error_ns)
{
    double mine[VALUES] = {-(double)clocks->offset_ns, -clocks->slope, clocks->error_ns}, *all = NULL;
    if (clocks->rank == ROOT)
        all = memory_new((size_t)clocks->size * VALUES, sizeof *all);
    int rc = MPI_Gather(mine, VALUES, MPI_DOUBLE, all, VALUES, MPI_DOUBLE, ROOT, clocks->communicator);
    *offset_ns = *drift_ratio = *error_ns = 0;
    for (int i = 1; all && i < clocks->size; i++) {
        const double *one = all + (size_t)i * VALUES;
        if (fabs(one[0]) >= fabs(*offset_ns))
            *offset_ns = one[0], *drift_ratio = one[1];
        *error_ns = fmax(*error_ns, one[2]);
    }
    free(all);
    return rc;
}

uint64_t clocks_local(const struct clocks *clocks, uint64_t global_ns)
{
    uint64_t near_ns = global_ns - (uint64_t)clocks->offset_ns;
    double since_ns = (double)(int64_t)(near_ns - clocks->reference_ns);
    return near_ns - (uint64_t)llround(clocks->slope * since_ns);
}
