/* The engine of MPI kernels: rank 0 is the client, rank 1 the server (with more ranks: the first one of the second
 * node, whose evidence is kept), MPI itself their control channel. */
#ifndef HPCQ_MPI_RUN_H
#define HPCQ_MPI_RUN_H

#include "engine/result.h"

#include <mpi.h>

bool mpi_run_check(struct run *run, int rc, const char *what); /* false, with MPI's words, unless rc is MPI_SUCCESS */
enum { MPI_BATCH_MAX = 65536 };                                /* operations of a batch */
/* The ranks of this run: 0 is the client, 1 the server. */
static inline MPI_Comm mpi_run_communicator(const struct run *run)
{
    return *(const MPI_Comm *)run->communicator;
}

/* Runs the kernel on this rank, once or for each size of a sweep (sweep_run()). The result lines go to out, with the
 * report of rank 1; NULL: this rank has none. Returns the exit code. */
int mpi_run(struct run *run, const char *interface, struct result_out *out);

#endif
