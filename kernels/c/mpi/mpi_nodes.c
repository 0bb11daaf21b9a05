/* See mpi_nodes.h. */
#include "mpi/mpi_nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

enum { NAME_BYTES = 256, ELSEWHERE = -1 };

void mpi_node_name(char *name, size_t bytes)
{
    struct utsname system;
    const char *given = getenv("HPCQ_NODE");
    uname(&system);
    system.nodename[strcspn(system.nodename, ".")] = '\0';
    snprintf(name, bytes, "%s", given && *given ? given : system.nodename);
}

bool mpi_node_listed(const char *nodes, int index, char *name, size_t bytes)
{
    const char *from = nodes;
    for (int i = 0; i < index && from; i++)
        from = strchr(from, ',') ? strchr(from, ',') + 1 : NULL;
    if (!from)
        return false;
    snprintf(name, bytes, "%.*s", (int)strcspn(from, ","), from);
    return true;
}

static int place_of(const char *nodes)
{
    char mine[NAME_BYTES], listed[NAME_BYTES];
    mpi_node_name(mine, sizeof mine);
    for (int i = 0; i < 2; i++)
        if (mpi_node_listed(nodes, i, listed, sizeof listed) && !strcmp(mine, listed))
            return i;
    return ELSEWHERE;
}

MPI_Comm mpi_nodes_pair(const char *nodes)
{
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2)
        return MPI_COMM_WORLD;
    int mine = place_of(nodes), found[2];
    MPI_Allgather(&mine, 1, MPI_INT, found, 1, MPI_INT, MPI_COMM_WORLD);
    if (found[0] != 1 || found[1] != 0)
        return MPI_COMM_WORLD;
    MPI_Comm turned = MPI_COMM_WORLD;
    MPI_Comm_split(MPI_COMM_WORLD, 0, 1 - rank, &turned);
    return turned;
}
