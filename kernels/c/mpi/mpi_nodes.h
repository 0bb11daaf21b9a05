/* Which node a rank is on, as the scheduler calls it: launchers number ranks in orders of their own. */
#ifndef HPCQ_MPI_NODES_H
#define HPCQ_MPI_NODES_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

void mpi_node_name(char *name,
                   size_t bytes); /* this rank's: the scheduler's word, or the machine's without its domain */

/* Node number `index` of the list A,B,...; false when it has no such number. */
bool mpi_node_listed(const char *nodes, int index, char *name, size_t bytes);

/* All ranks as a communicator in which rank i is on node i of the list A,B,...; of a pair, 0 is on the client's node.
 * With several ranks on each node, those of one follow each other. Where names do not tell (NULL, not the same number
 * on each, names other than the scheduler's) the ranks stay as the launcher numbered them. Sets the first rank of the
 * second node, or 1. */
MPI_Comm mpi_nodes_ranked(const char *nodes, int *server);

#endif
