/* Preloaded before an MPI library: says which library it is, and how long after MPI_Init() the first message came. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static struct timespec started;

int MPI_Init(int *argc, char ***argv)
{
    int rc = PMPI_Init(argc, argv);
    clock_gettime(CLOCK_MONOTONIC, &started);
    return rc;
}

int MPI_Get_library_version(char *version, int *length)
{
    strcpy(version, SAYS);
    *length = (int)strlen(version);
    return MPI_SUCCESS;
}

static void first(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (started.tv_sec)
        fprintf(stderr, "quiet_ms %.1f\n",
                (double)(now.tv_sec - started.tv_sec) * 1e3 + (double)(now.tv_nsec - started.tv_nsec) / 1e6);
    started.tv_sec = 0;
}

int MPI_Allgather(const void *send, int count, MPI_Datatype type, void *receive, int counts, MPI_Datatype types,
                  MPI_Comm communicator)
{
    first();
    return PMPI_Allgather(send, count, type, receive, counts, types, communicator);
}
