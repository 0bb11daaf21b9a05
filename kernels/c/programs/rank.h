/* hpcq-net rank: one process of a foreign program that a launcher starts on each node (MPI), or alone on one node.
 *
 *   each rank   snapshot -> its program, once -> snapshot
 *   rank 0      prints the result line, once the others have reported
 *   the others  report -> PREFIX<rank>, a file of the job's folder, which rank 0 takes away
 *
 * The launcher's environment and descriptors reach the program as they came: to its MPI library, ours is not there. */
#ifndef HPCQ_RANK_H
#define HPCQ_RANK_H

#include "describe/program.h"

int rank_main(const struct program *program, int argc, char **argv);

#endif
