/* Preloaded before an MPI library: half of the broadcasts of one value reach the last rank 60 ms later; with LATE=always
 * all of them. */
#include <mpi.h>
#include <stdlib.h>
#include <time.h>

int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm communicator)
{
    static int calls;
    int rc = PMPI_Bcast(buffer, count, type, root, communicator), rank = 0, size = 0;
    const struct timespec pause = {.tv_nsec = 60000000};
    MPI_Comm_rank(communicator, &rank);
    MPI_Comm_size(communicator, &size);
    if (count == 1 && rank == size - 1 && (++calls / 2 % 2 == 1 || getenv("LATE")))
        nanosleep(&pause, NULL);
    return rc;
}
