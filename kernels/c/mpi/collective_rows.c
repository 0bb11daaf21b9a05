/* See collectives.h. */
#include "mpi/collectives.h"
#include "mpi/exchange.h"

#include <stdlib.h>
#include <string.h>

enum { ROOT = 0, TAG_INCAST = 7, TAG_PAIR = 8, TAG_PAIR_DONE = 9 };

#define SENT call->send, call->bytes, MPI_BYTE
#define GIVEN call->receive, call->bytes, MPI_BYTE
#define GIVEN_V call->receive, call->counts, call->places, MPI_BYTE
#define WORDS call->send, call->receive, call->words, MPI_INT32_T, MPI_SUM

/* name, then the arguments of MPI_<name> up to the communicator */
#define BLOCKING(word, function, ...)                                                                                  \
    static int word(struct collective_call *call)                                                                      \
    {                                                                                                                  \
        return function(__VA_ARGS__ call->communicator);                                                               \
    }
#define NONBLOCKING(word, function, ...)                                                                               \
    static int word(struct collective_call *call, MPI_Request *request)                                                \
    {                                                                                                                  \
        return function(__VA_ARGS__ call->communicator, request);                                                      \
    }
/* A call and its non-blocking form take the same arguments. */
#define BOTH(word, function, ifunction, ...)                                                                           \
    BLOCKING(word, function, __VA_ARGS__)                                                                              \
    NONBLOCKING(i##word, ifunction, __VA_ARGS__)

static int barrier(struct collective_call *call)
{
    return MPI_Barrier(call->communicator);
}

static int ibarrier(struct collective_call *call, MPI_Request *request)
{
    return MPI_Ibarrier(call->communicator, request);
}

/* The root's block stands where the others receive it. */
static char *broadcast(const struct collective_call *call)
{
    return call->rank == ROOT ? call->send : call->receive;
}

BOTH(bcast, MPI_Bcast, MPI_Ibcast, broadcast(call), call->bytes, MPI_BYTE, ROOT, )
BOTH(reduce, MPI_Reduce, MPI_Ireduce, WORDS, ROOT, )
BOTH(allreduce, MPI_Allreduce, MPI_Iallreduce, WORDS, )
BOTH(reduce_scatter, MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, WORDS, )
BOTH(scan, MPI_Scan, MPI_Iscan, WORDS, )
BOTH(gather, MPI_Gather, MPI_Igather, SENT, GIVEN, ROOT, )
BOTH(gatherv, MPI_Gatherv, MPI_Igatherv, SENT, GIVEN_V, ROOT, )
BOTH(scatter, MPI_Scatter, MPI_Iscatter, SENT, GIVEN, ROOT, )
BOTH(scatterv, MPI_Scatterv, MPI_Iscatterv, call->send, call->counts, call->places, MPI_BYTE, GIVEN, ROOT, )
BOTH(allgather, MPI_Allgather, MPI_Iallgather, SENT, GIVEN, )
BOTH(allgatherv, MPI_Allgatherv, MPI_Iallgatherv, SENT, GIVEN_V, )
BOTH(alltoall, MPI_Alltoall, MPI_Ialltoall, SENT, GIVEN, )
BOTH(alltoallv, MPI_Alltoallv, MPI_Ialltoallv, call->send, call->counts, call->places, MPI_BYTE, GIVEN_V, )

/* As gather, but each rank sends to the root itself: all come at once, whatever tree the library would make. */
static int incast(struct collective_call *call)
{
    size_t bytes = (size_t)call->bytes;
    int rc = MPI_SUCCESS, under_way = 0;
    if (call->rank != ROOT)
        return MPI_Send(SENT, ROOT, TAG_INCAST, call->communicator);
    memcpy(call->receive, call->send, bytes);
    for (int rank = 1; rc == MPI_SUCCESS && rank < call->size; rank++)
        rc = MPI_Irecv(call->receive + (size_t)rank * bytes, call->bytes, MPI_BYTE, rank, TAG_INCAST,
                       call->communicator, &call->requests[under_way++]);
    return rc == MPI_SUCCESS ? MPI_Waitall(under_way, call->requests, call->statuses) : rc;
}

/* The rank that this one exchanges messages with: ranks of the first half send to those of the second. */
static int partner(const struct collective_call *call)
{
    int half = call->size / 2;
    return call->rank < half ? call->rank + half : call->rank < 2 * half ? call->rank - half : MPI_PROC_NULL;
}

/* A window of messages of each pair at once, and the empty message that answers it; an odd rank is in none. */
static int multi_pair(struct collective_call *call)
{
    int peer = partner(call), rc = MPI_SUCCESS, under_way = 0;
    bool sends = call->rank < call->size / 2;
    for (; rc == MPI_SUCCESS && peer != MPI_PROC_NULL && under_way < call->window_count; under_way++)
        rc = sends ? MPI_Isend(SENT, peer, TAG_PAIR, call->communicator, &call->requests[under_way])
                   : MPI_Irecv(GIVEN, peer, TAG_PAIR, call->communicator, &call->requests[under_way]);
    if (rc == MPI_SUCCESS)
        rc = MPI_Waitall(under_way, call->requests, call->statuses);
    if (rc != MPI_SUCCESS)
        return rc;
    return sends ? MPI_Recv(NULL, 0, MPI_BYTE, peer, TAG_PAIR_DONE, call->communicator, MPI_STATUS_IGNORE)
                 : MPI_Send(NULL, 0, MPI_BYTE, peer, TAG_PAIR_DONE, call->communicator);
}

#define OPERATIONS(ROW)                                                                                                \
    ROW(barrier, .sends = BLOCK_NONE, .receives = BLOCK_NONE)                                                          \
    ROW(bcast, .sends = BLOCK_ONE, .receives = BLOCK_ONE, .from_root = true)                                           \
    ROW(reduce, .sends = BLOCK_ONE, .receives = BLOCK_ONE, .reduces = true, .to_root = true)                           \
    ROW(allreduce, .sends = BLOCK_ONE, .receives = BLOCK_ONE, .reduces = true)                                         \
    ROW(reduce_scatter, .sends = BLOCK_EACH, .receives = BLOCK_ONE, .reduces = true)                                   \
    ROW(scan, .sends = BLOCK_ONE, .receives = BLOCK_ONE, .reduces = true, .scans = true)                               \
    ROW(gather, .sends = BLOCK_ONE, .receives = BLOCK_EACH, .to_root = true)                                           \
    ROW(gatherv, .sends = BLOCK_ONE, .receives = BLOCK_EACH, .to_root = true)                                          \
    ROW(scatter, .sends = BLOCK_EACH, .receives = BLOCK_ONE, .from_root = true)                                        \
    ROW(scatterv, .sends = BLOCK_EACH, .receives = BLOCK_ONE, .from_root = true)                                       \
    ROW(allgather, .sends = BLOCK_ONE, .receives = BLOCK_EACH)                                                         \
    ROW(allgatherv, .sends = BLOCK_ONE, .receives = BLOCK_EACH)                                                        \
    ROW(alltoall, .sends = BLOCK_EACH, .receives = BLOCK_EACH)                                                         \
    ROW(alltoallv, .sends = BLOCK_EACH, .receives = BLOCK_EACH)

/* Those without a non-blocking form. */
#define ALONE(ROW)                                                                                                     \
    ROW(incast, .sends = BLOCK_ONE, .receives = BLOCK_EACH, .to_root = true)                                           \
    ROW(multi_pair, .sends = BLOCK_ONE, .receives = BLOCK_ONE, .pairs = true)

#define PLAIN_NAME(word, ...) #word,
#define STARTED_NAME(word, ...) "i" #word,
#define PLAIN_ROW(word, ...) {.name = #word, .call = word, __VA_ARGS__},
#define STARTED_ROW(word, ...) {.name = "i" #word, .start = i##word, __VA_ARGS__},

const char *const collective_names[] = {OPERATIONS(PLAIN_NAME) OPERATIONS(STARTED_NAME) ALONE(PLAIN_NAME) NULL};
const struct collective_row collective_rows[] = {OPERATIONS(PLAIN_ROW) OPERATIONS(STARTED_ROW) ALONE(PLAIN_ROW)};

static void places_take(struct collective_call *call)
{
    call->send = buffers_send(&call->buffers);
    call->receive = buffers_receive(&call->buffers);
}

void collective_call_new(struct run *run, struct collective_call *call, struct buffers_asked asked)
{
    size_t ranks = (size_t)call->size, block_bytes = asked.message_bytes;
    size_t under_way = ranks > COLLECTIVE_WINDOW_MAX ? ranks : COLLECTIVE_WINDOW_MAX;
    call->bytes = (int)block_bytes;
    call->words = (int)(block_bytes / sizeof(int32_t));
    asked.message_bytes = block_bytes * ranks;
    buffers_new(run, &call->buffers, asked);
    places_take(call);
    call->counts = memory_new(ranks, sizeof *call->counts);
    call->places = memory_new(ranks, sizeof *call->places);
    call->requests = memory_new(under_way, sizeof *call->requests);
    call->statuses = memory_new(under_way, sizeof *call->statuses);
    for (size_t i = 0; i < ranks; i++) {
        call->counts[i] = call->bytes;
        call->places[i] = (int)(i * block_bytes);
    }
}

void collective_call_next(struct collective_call *call)
{
    buffers_next(&call->buffers);
    places_take(call);
}

void collective_call_free(struct collective_call *call)
{
    free(call->counts);
    free(call->places);
    free(call->requests);
    free(call->statuses);
}

static int32_t word_of(unsigned rank, unsigned block, unsigned operation_no, size_t index)
{
    return pattern(rank, block, operation_no, index);
}

static size_t blocks_of(const struct collective_call *call, enum blocks blocks)
{
    return blocks == BLOCK_NONE ? 0 : blocks == BLOCK_ONE ? 1 : (size_t)call->size;
}

void collective_fill(struct collective_call *call, const struct collective_row *row, unsigned operation_no)
{
    size_t bytes = (size_t)call->bytes, words = (size_t)call->words;
    for (unsigned block = 0; block < blocks_of(call, row->sends); block++) {
        char *to = call->send + block * bytes;
        if (!row->reduces) {
            pattern_fill(to, bytes, (unsigned)call->rank, block, operation_no);
            continue;
        }
        for (size_t i = 0; i < words; i++) {
            int32_t word = word_of((unsigned)call->rank, block, operation_no, i);
            memcpy(to + i * sizeof word, &word, sizeof word);
        }
    }
    pattern_fill(call->receive, bytes * (size_t)call->size, (unsigned)call->size, 0, operation_no + 1);
}

/* The first word of the result that is not the sum over the ranks that belong to it; `words` when all are right. */
static size_t wrong_sum(const struct collective_call *call, const struct collective_row *row, unsigned operation_no)
{
    unsigned last = (unsigned)(row->scans ? call->rank + 1 : call->size);
    unsigned block = row->sends == BLOCK_EACH ? (unsigned)call->rank : 0;
    for (size_t i = 0; i < (size_t)call->words; i++) {
        int32_t sum = 0, found;
        for (unsigned rank = 0; rank < last; rank++)
            sum += word_of(rank, block, operation_no, i);
        memcpy(&found, call->receive + i * sizeof found, sizeof found);
        if (found != sum)
            return i;
    }
    return (size_t)call->words;
}

void collective_check(struct run *run, const struct collective_call *call, const struct collective_row *row,
                      unsigned operation_no)
{
    bool is_root = call->rank == ROOT;
    size_t bytes = (size_t)call->bytes;
    if ((row->to_root && !is_root) || (row->from_root && row->sends == BLOCK_ONE && is_root))
        return; /* nothing was to come here */
    if (row->pairs && call->rank < call->size / 2)
        return;
    if (row->pairs && partner(call) == MPI_PROC_NULL)
        return;
    if (row->reduces) {
        size_t at = wrong_sum(call, row, operation_no);
        if (at < (size_t)call->words)
            run_invalid(run, "%s: word %zu at rank %d is not the sum of what was given", row->name, at, call->rank);
        return;
    }
    for (unsigned block = 0; block < blocks_of(call, row->receives); block++) {
        unsigned sender = row->from_root ? ROOT : row->pairs ? (unsigned)partner(call) : block;
        unsigned theirs = row->sends == BLOCK_EACH ? (unsigned)call->rank : 0;
        size_t at = pattern_check(call->receive + block * bytes, bytes, sender, theirs, operation_no);
        if (at < bytes)
            run_invalid(run, "%s: byte %zu at rank %d is not what rank %u gave", row->name, at, call->rank, sender);
    }
}
