/* Preloaded before an MPI library: tells at the end from how many places messages were sent, into how many they were
 * received, how many are among both, how many of the first begin at a page, and how many 8 and 16 bytes after
 * the beginning of one. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>

enum { PLACES_MAX = 64 };

struct places {
    const void *list[PLACES_MAX];
    int count;
};

static struct places sent, received;

static int knows(const struct places *places, const void *place)
{
    for (int i = 0; i < places->count; i++)
        if (places->list[i] == place)
            return 1;
    return 0;
}

static void add(struct places *places, const void *place, int count, MPI_Datatype type)
{
    if (type == MPI_BYTE && count > 64 && places->count < PLACES_MAX && !knows(places, place))
        places->list[places->count++] = place;
}

int MPI_Send(const void *from, int count, MPI_Datatype type, int to, int tag, MPI_Comm communicator)
{
    add(&sent, from, count, type);
    return PMPI_Send(from, count, type, to, tag, communicator);
}

int MPI_Recv(void *into, int count, MPI_Datatype type, int from, int tag, MPI_Comm communicator, MPI_Status *status)
{
    add(&received, into, count, type);
    return PMPI_Recv(into, count, type, from, tag, communicator, status);
}

int MPI_Alltoall(const void *from, int count, MPI_Datatype type, void *into, int counts, MPI_Datatype types,
                 MPI_Comm communicator)
{
    add(&sent, from, count, type);
    add(&received, into, counts, types);
    return PMPI_Alltoall(from, count, type, into, counts, types, communicator);
}

int MPI_Finalize(void)
{
    int rank, both = 0, at_pages = 0, at_eight = 0, at_sixteen = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < sent.count; i++) {
        both += knows(&received, sent.list[i]);
        at_pages += (uintptr_t)sent.list[i] % 4096 == 0;
        at_eight += (uintptr_t)sent.list[i] % 4096 == 8;
    }
    for (int i = 0; i < received.count; i++)
        at_sixteen += (uintptr_t)received.list[i] % 4096 == 16;
    if (rank == 0)
        fprintf(stderr, "places: sent %d received %d both %d at pages %d at 8 %d, received at 16 %d\n", sent.count,
                received.count, both, at_pages, at_eight, at_sixteen);
    return PMPI_Finalize();
}
