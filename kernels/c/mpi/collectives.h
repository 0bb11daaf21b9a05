/* The table of collective operations: what each calls, and what every rank must hold afterwards. */
#ifndef HPCQ_MPI_COLLECTIVES_H
#define HPCQ_MPI_COLLECTIVES_H

#include "mpi/exchange.h"

enum { COLLECTIVE_WINDOW_MAX = 1024 };

/* The arguments of a call at this rank; both buffers have room for a block of each rank. */
struct collective_call {
    MPI_Comm communicator;
    int rank, size;
    int bytes, words; /* of one block; words of 32 bits for reductions */
    int window_count; /* of multi_pair */
    struct buffers buffers;
    char *send, *receive;  /* of these; they change after each operation where `buffers` says so */
    int *counts, *places;  /* of the v operations: every rank's block */
    MPI_Request *requests; /* of incast: one per rank; of multi_pair: one per message */
    MPI_Status *statuses;
};

enum blocks { BLOCK_NONE, BLOCK_ONE, BLOCK_EACH }; /* one for all, or one for or of each rank */

struct collective_row {
    const char *name;
    int (*call)(struct collective_call *call);
    int (*start)(struct collective_call *call, MPI_Request *request); /* non-blocking: instead of `call` */
    enum blocks sends, receives;
    bool reduces, from_root, to_root, scans, pairs;
};

extern const char *const collective_names[]; /* NULL-terminated, in the order of the rows */
extern const struct collective_row collective_rows[];

/* asked: message_bytes is one block. */
void collective_call_new(struct run *run, struct collective_call *call, struct buffers_asked asked);
void collective_call_next(struct collective_call *call); /* after an operation */
void collective_call_free(struct collective_call *call);
/* Writes what this rank gives in operation number `operation_no`, and spoils what it holds of the one before. */
void collective_fill(struct collective_call *call, const struct collective_row *row, unsigned operation_no);
/* Makes the run invalid when this rank does not hold what the operation gives. */
void collective_check(struct run *run, const struct collective_call *call, const struct collective_row *row,
                      unsigned operation_no);

#endif
