/* A tournament of MPI tests, all in one step: `hpcq-mpi tournament`, one rank per node. */
#ifndef HPCQ_MPI_TOURNAMENT_H
#define HPCQ_MPI_TOURNAMENT_H

#include "describe/program.h"

int mpi_tournament_main(const struct program *program, int argc, char **argv); /* argv[1] is "tournament" */

#endif
