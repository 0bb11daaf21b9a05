/* Leaving MPI. */
#ifndef HPCQ_MPI_FINISH_H
#define HPCQ_MPI_FINISH_H

/* MPI_Finalize(), and back with `code`. All is measured and printed by then, so where the library does not come back
 * the process ends after `limit_s`. */
enum { MPI_FINISH_LIMIT_S = 5 };
int mpi_finish(int code, unsigned limit_s);

#endif
