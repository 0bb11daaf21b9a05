/* Preloaded before an MPI library: what is received or gathered loses a bit in its last byte, as in a broken network. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static void spoil(void *buffer, int count, MPI_Datatype type)
{
    MPI_Aint lower = 0, extent = 0;
    MPI_Type_get_extent(type, &lower, &extent);
    if (count > 0 && extent > 0)
        ((unsigned char *)buffer)[(MPI_Aint)(count - 1) * extent + (type == MPI_BYTE ? extent - 1 : 0)] ^= 0x40;
}

int MPI_Recv(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm communicator, MPI_Status *status)
{
    int rc = PMPI_Recv(buffer, count, type, from, tag, communicator, status);
    if (type == MPI_BYTE && count > 64)
        spoil(buffer, count, type);
    return rc;
}

/* Of windows of messages, as multi_pair has them: into the first place, after all came. */
static void *first_place;
static int first_bytes;

int MPI_Irecv(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm communicator, MPI_Request *request)
{
    if (type == MPI_BYTE && count > 64)
        first_place = buffer, first_bytes = count;
    return PMPI_Irecv(buffer, count, type, from, tag, communicator, request);
}

int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses)
{
    int rc = PMPI_Waitall(count, requests, statuses);
    if (first_place && count > 16)
        spoil(first_place, first_bytes, MPI_BYTE);
    first_place = NULL;
    return rc;
}

/* One-sided: the last element does not arrive. */
static int short_by_one(int count)
{
    return count > 64 ? count - 1 : count;
}

int MPI_Put(const void *from, int count, MPI_Datatype type, int target, MPI_Aint place, int counts, MPI_Datatype types,
            MPI_Win window)
{
    return PMPI_Put(from, short_by_one(count), type, target, place, short_by_one(counts), types, window);
}

int MPI_Get(void *to, int count, MPI_Datatype type, int target, MPI_Aint place, int counts, MPI_Datatype types, MPI_Win window)
{
    return PMPI_Get(to, short_by_one(count), type, target, place, short_by_one(counts), types, window);
}

int MPI_Accumulate(const void *from, int count, MPI_Datatype type, int target, MPI_Aint place, int counts, MPI_Datatype types,
                   MPI_Op operation, MPI_Win window)
{
    return PMPI_Accumulate(from, short_by_one(count), type, target, place, short_by_one(counts), types, operation, window);
}

int MPI_Allreduce(const void *send, void *receive, int count, MPI_Datatype type, MPI_Op operation, MPI_Comm communicator)
{
    int rc = PMPI_Allreduce(send, receive, count, type, operation, communicator), rank = 0;
    PMPI_Comm_rank(communicator, &rank);
    if (count > 16 && rank == 2)
        spoil(receive, count, type);
    return rc;
}

int MPI_Alltoall(const void *send, int count, MPI_Datatype type, void *receive, int counts, MPI_Datatype types,
                 MPI_Comm communicator)
{
    int rc = PMPI_Alltoall(send, count, type, receive, counts, types, communicator), rank = 0, size = 0;
    PMPI_Comm_rank(communicator, &rank);
    PMPI_Comm_size(communicator, &size);
    if (rank == 1 && types == MPI_BYTE)
        spoil(receive, counts * size, types);
    return rc;
}

/* Of many numbers, the last one changes by some 1e-5 of itself. */
int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm communicator)
{
    int rc = PMPI_Bcast(buffer, count, type, root, communicator), rank = 0, size = 0;
    PMPI_Comm_rank(communicator, &rank);
    PMPI_Comm_size(communicator, &size);
    if (type == MPI_DOUBLE && count > 1000 && size > 1 && rank == 1 && root != rank)
        ((unsigned char *)buffer)[8 * count - 4] ^= 0x10;
    return rc;
}

/* By the word in SPOIL, at rank 1: a byte changes, two elements change places, or one comes twice and another not. */
int MPI_Alltoallv(const void *send, const int *counts, const int *places, MPI_Datatype type, void *receive,
                  const int *receive_counts, const int *receive_places, MPI_Datatype types, MPI_Comm communicator)
{
    int rc = PMPI_Alltoallv(send, counts, places, type, receive, receive_counts, receive_places, types, communicator);
    const char *word = getenv("SPOIL");
    int rank = 0, bytes = 0;
    unsigned char *first = receive, *second, kept[256];
    PMPI_Comm_rank(communicator, &rank);
    PMPI_Type_size(types, &bytes);
    if (!word || rank != 1 || receive_counts[0] < 2 || bytes > (int)sizeof kept)
        return rc;
    second = first + bytes;
    memcpy(kept, first, (size_t)bytes);
    if (!strcmp(word, "byte"))
        second[bytes - 1] ^= 0x40;
    if (!strcmp(word, "places"))
        memcpy(first, second, (size_t)bytes), memcpy(second, kept, (size_t)bytes);
    if (!strcmp(word, "twice"))
        memcpy(second, kept, (size_t)bytes);
    return rc;
}

/* With SPOIL=samples rank 1 sees samples that are all the smallest key, and gives all it has to the last rank. */
int MPI_Allgather(const void *send, int count, MPI_Datatype type, void *receive, int counts, MPI_Datatype types,
                  MPI_Comm communicator)
{
    int rc = PMPI_Allgather(send, count, type, receive, counts, types, communicator), rank = 0, size = 0;
    const char *word = getenv("SPOIL");
    PMPI_Comm_rank(communicator, &rank);
    PMPI_Comm_size(communicator, &size);
    if (word && !strcmp(word, "samples") && rank == 1 && type == MPI_BYTE && count > 1000)
        memset(receive, 0, (size_t)counts * (size_t)size);
    return rc;
}
