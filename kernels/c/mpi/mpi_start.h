/* MPI_Init(), and what must pass before the first message. */
#ifndef HPCQ_MPI_START_H
#define HPCQ_MPI_START_H

/* MPI_Init(). Open MPI leaves it at a fence that does not pass on all ranks at once, and a rank that is still in it
 * dies of a message that comes before its communicator stands (open-mpi/ompi issues 11438 and 12495: version 5; 4.1.4
 * was seen to die at the same place on a busy machine). Under Open MPI this returns MPI_START_QUIET_MS later, so that
 * no rank sends while another is in there. */
enum { MPI_START_QUIET_MS = 100 };
void mpi_start(int *argc, char ***argv);

#endif
