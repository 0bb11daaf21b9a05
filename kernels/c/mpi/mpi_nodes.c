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

static int listed_count(const char *nodes)
{
    int count = nodes && *nodes ? 1 : 0;
    for (const char *comma = nodes; count && (comma = strchr(comma, ',')); comma++)
        count++;
    return count;
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

/* Whether each place has this many ranks, and whether any rank is not where the launcher put it. */
static bool places_tell(const int *places, int size, int each, bool *moved)
{
    for (int rank = 0; rank < size; rank++) {
        int together = 0;
        for (int other = 0; other < size; other++)
            together += places[other] == places[rank];
        if (places[rank] == ELSEWHERE || together != each)
            return false;
        *moved = *moved || places[rank] != rank / each;
    }
    return true;
}

MPI_Comm mpi_nodes_ranked(const char *nodes, int *server)
{
    int size = 0, listed = listed_count(nodes);
    bool moved = false;
    MPI_Comm ranked = MPI_COMM_WORLD;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int each = listed && size > listed && size % listed == 0 ? size / listed : 1;
    int mine = place_of(nodes, size / each), *places = memory_new((size_t)size, sizeof *places);
    MPI_Allgather(&mine, 1, MPI_INT, places, 1, MPI_INT, MPI_COMM_WORLD);
    bool tell = places_tell(places, size, each, &moved);
    if (tell && moved)
        MPI_Comm_split(MPI_COMM_WORLD, 0, mine, &ranked);
    *server = tell && each < size ? each : 1;
    free(places);
    return ranked;
}
