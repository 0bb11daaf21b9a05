/* See mpi_nodes.h. */
#include "mpi/mpi_nodes.h"

#include "base/text.h"

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

static int place_of(const char *nodes, int count)
{
    char mine[NAME_BYTES], listed[NAME_BYTES];
    mpi_node_name(mine, sizeof mine);
    for (int i = 0; i < count; i++)
        if (mpi_node_listed(nodes, i, listed, sizeof listed) && !strcmp(mine, listed))
            return i;
    return ELSEWHERE;
}

/* Whether each place has one rank, and whether any is not where the launcher put it. */
static bool places_tell(const int *places, int size, bool *moved)
{
    for (int rank = 0; rank < size; rank++) {
        if (places[rank] == ELSEWHERE)
            return false;
        for (int other = 0; other < rank; other++)
            if (places[other] == places[rank])
                return false;
        *moved = *moved || places[rank] != rank;
    }
    return true;
}

MPI_Comm mpi_nodes_ranked(const char *nodes)
{
    int size = 0;
    bool moved = false;
    MPI_Comm ranked = MPI_COMM_WORLD;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int mine = place_of(nodes, size), *places = memory_new((size_t)size, sizeof *places);
    MPI_Allgather(&mine, 1, MPI_INT, places, 1, MPI_INT, MPI_COMM_WORLD);
    if (places_tell(places, size, &moved) && moved)
        MPI_Comm_split(MPI_COMM_WORLD, 0, mine, &ranked);
    free(places);
    return ranked;
}
