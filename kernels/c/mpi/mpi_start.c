/* See mpi_start.h. */
#include "mpi/mpi_start.h"

#include <mpi.h>
#include <string.h>
#include <time.h>

void mpi_start(int *argc, char ***argv)
{
    static const char needing[] = "Open MPI v";
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Init(argc, argv);
    MPI_Get_library_version(version, &length);
    if (!strncmp(version, needing, sizeof needing - 1)) {
        const struct timespec quiet = {.tv_nsec = MPI_START_QUIET_MS * 1000000L};
        nanosleep(&quiet, NULL);
    }
}
