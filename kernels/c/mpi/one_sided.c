/* mpi_one_sided: rank 0 reads and writes the memory of rank 1, which makes no call for it (but under fence).
 *
 *   fence   the operation, then MPI_Win_fence() of both ranks
 *   lock    rank 0 locks rank 1's window, the operation, unlocks it
 *   flush   rank 0 holds a lock on all windows throughout: the operation, then MPI_Win_flush()
 *
 * Each ends when the operation is done at rank 1 too (a get: when the data are here). That is one sample. */
#include "mpi/exchange.h"
#include "mpi/mpi_run.h"
#include "mpi/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum operation { PUT, GET, ACCUMULATE };
enum synchronization { FENCE, LOCK, FLUSH };
enum { ORIGIN = 0, TARGET = 1, WORD_BYTES = (int)sizeof(uint32_t) };

static const char *const operations[] = {"put", "get", "accumulate", NULL};
static const char *const synchronizations[] = {"fence", "lock", "flush", NULL};

struct one_sided_options {
    struct common_options common;
    int64_t message_bytes, transport, operation, synchronization, validate;
};

static const struct option_row option_rows[] = {
    OPTION_CHOICE_ROW(struct one_sided_options, operation, operations,
                      "MPI_Put, MPI_Get, or MPI_Accumulate of a sum of 32-bit words"),
    OPTION_CHOICE_ROW(struct one_sided_options, synchronization, synchronizations,
                      "what ends each operation: a fence of both ranks, a lock of its own, or a flush"),
    OPTION_INTEGER_ROW(struct one_sided_options, message_bytes, 8, 0, 1073741824,
                       "bytes of one operation (accumulate: a multiple of 4)"),
    OPTION_ROWS_COMMON(struct one_sided_options),
    OPTION_ROWS_PLACE(struct one_sided_options),
    OPTION_TRANSPORT_ROW(struct one_sided_options),
    OPTION_BOOLEAN_ROW(struct one_sided_options, validate, 0,
                       "check every byte where it was to arrive; barriers then stand between operations"),
};

static const struct option_relation relations[] = {
    {"message_bytes", RELATION_MULTIPLE, .factor = WORD_BYTES, .when = "operation", .when_words = "accumulate"}};

struct one_sided_metrics {
    struct common_metrics common;
    struct operation_metrics operation;
    double operation_count, throughput_bps;
};

static const struct metric_row metric_rows[] = {
    METRIC_ROWS_OPERATION(struct one_sided_metrics),
    METRIC_ROW(struct one_sided_metrics, operation_count, BETTER_NONE, "operations measured"),
    METRIC_ROW(struct one_sided_metrics, throughput_bps, BETTER_HIGHER,
               "bits of one operation over its median time; left out when message_bytes is 0"),
    METRIC_ROWS_COMMON(struct one_sided_metrics),
};

struct one_sided {
    struct times times;
    MPI_Comm communicator;
    MPI_Win window;
    char *exposed, *local; /* what the other rank may reach, and where rank 0 writes from or reads into */
    size_t bytes;
    int count;
    enum operation operation;
    enum synchronization synchronization;
    bool validate, is_open;
    unsigned operation_no;
};

/* What Open MPI was told to choose its parts for windows from; empty for other libraries. */
static void window_parts(char *out, size_t out_bytes)
{
    int level = 0, index = 0, count = 0;
    MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
    char value[4096] = "";
    out[0] = '\0';
    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &level) != MPI_SUCCESS)
        return;
    if (MPI_T_cvar_get_index("osc", &index) == MPI_SUCCESS &&
        MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) == MPI_SUCCESS) {
        if (count > 0 && count < (int)sizeof value && MPI_T_cvar_read(handle, value) == MPI_SUCCESS && value[0])
            snprintf(out, out_bytes, ", whose osc is %.200s", value);
        MPI_T_cvar_handle_free(&handle);
    }
    MPI_T_finalize();
}

/* Debian's Open MPI is set to use no pt2pt and no ucx: over TCP, nothing is left that serves ranks of two nodes. */
static bool no_window(struct run *run, int rc)
{
    int kind = rc;
    char parts[256];
    MPI_Error_class(rc, &kind);
    if (kind != MPI_ERR_WIN)
        return mpi_run_check(run, rc, "window");
    window_parts(parts, sizeof parts);
    return fail(
        &run->failure, EXIT_PEER,
        "window: this library%s, has no part that serves a window between these ranks: transport: tcp gives it one",
        parts);
}

static bool one_sided_open(struct run *run)
{
    struct one_sided *state = run->state;
    const struct one_sided_options *options = run->options;
    state->operation = (enum operation)options->operation;
    state->synchronization = (enum synchronization)options->synchronization;
    state->validate = options->validate;
    state->bytes = (size_t)options->message_bytes;
    state->count = (int)(state->operation == ACCUMULATE ? options->message_bytes / WORD_BYTES : options->message_bytes);
    state->communicator = mpi_run_communicator(run);
    times_new(&state->times);
    state->local = run_buffer(run, state->bytes);
    /* The library allocates: such memory may be registered with the network card. Whole pages: on one node MPICH 4.0.2
     * puts data beside the window of rank 1 when the size is no multiple of 16. */
    MPI_Aint pages_bytes = (MPI_Aint)(state->bytes / PLACED_PAGE_BYTES + 1) * PLACED_PAGE_BYTES;
    int rc = MPI_Win_allocate(pages_bytes, 1, MPI_INFO_NULL, state->communicator, &state->exposed, &state->window);
    if (rc != MPI_SUCCESS)
        return no_window(run, rc);
    state->is_open = true;
    pattern_fill(state->local, state->bytes, ORIGIN, 0, 0); /* no page is the kernel's zero page */
    pattern_fill(state->exposed, state->bytes, TARGET, 0, 0);
    if (state->synchronization == FENCE)
        return mpi_run_check(run, MPI_Win_fence(0, state->window), "fence");
    if (!mpi_run_check(run, MPI_Barrier(state->communicator), "barrier"))
        return false;
    return state->synchronization != FLUSH || !run->is_active ||
           mpi_run_check(run, MPI_Win_lock_all(0, state->window), "lock");
}

static void one_sided_begin(struct run *run)
{
    struct one_sided *state = run->state;
    state->times.count = 0;
}

static int operate(struct one_sided *state)
{
    switch (state->operation) {
    case GET:
        return MPI_Get(state->local, state->count, MPI_BYTE, TARGET, 0, state->count, MPI_BYTE, state->window);
    case ACCUMULATE:
        return MPI_Accumulate(state->local, state->count, MPI_UINT32_T, TARGET, 0, state->count, MPI_UINT32_T, MPI_SUM,
                              state->window);
    case PUT:
    default:
        return MPI_Put(state->local, state->count, MPI_BYTE, TARGET, 0, state->count, MPI_BYTE, state->window);
    }
}

static int operate_and_end(struct one_sided *state, bool is_active)
{
    int rc = MPI_SUCCESS;
    if (is_active && state->synchronization == LOCK)
        rc = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, TARGET, 0, state->window);
    if (is_active && rc == MPI_SUCCESS)
        rc = operate(state);
    if (rc != MPI_SUCCESS)
        return rc;
    if (state->synchronization == FENCE)
        return MPI_Win_fence(0, state->window);
    if (!is_active)
        return MPI_SUCCESS;
    return state->synchronization == LOCK ? MPI_Win_unlock(TARGET, state->window)
                                          : MPI_Win_flush(TARGET, state->window);
}

/* Untimed: rank 1's memory is its own for a moment, to be written or read by its owner. */
static int own_begin(struct one_sided *state)
{
    if (state->synchronization == FENCE)
        return MPI_SUCCESS; /* between two fences in which nobody else touches it */
    return MPI_Win_lock(MPI_LOCK_SHARED, TARGET, 0, state->window);
}

static int own_end(struct one_sided *state)
{
    return state->synchronization == FENCE ? MPI_SUCCESS : MPI_Win_unlock(TARGET, state->window);
}

/* Untimed: both write what the operation takes, and wait for each other. */
static bool validated_begin(struct run *run, struct one_sided *state)
{
    int rc = MPI_SUCCESS;
    state->operation_no++;
    if (run->is_active)
        pattern_fill(state->local, state->bytes, ORIGIN, 0, state->operation_no);
    else if ((rc = own_begin(state)) == MPI_SUCCESS) {
        pattern_fill(state->exposed, state->bytes, TARGET, 0, state->operation_no);
        rc = own_end(state);
    }
    if (rc == MPI_SUCCESS)
        rc = state->synchronization == FENCE ? MPI_Win_fence(0, state->window) : MPI_Barrier(state->communicator);
    run->now_ns = clock_now_ns();
    return mpi_run_check(run, rc, "barrier");
}

/* The first byte that is not what the operation gives; `bytes` when all are right. */
static size_t wrong_byte(const struct one_sided *state, bool is_active)
{
    const unsigned no = state->operation_no;
    if (is_active)
        return state->operation == GET ? pattern_check(state->local, state->bytes, TARGET, 0, no) : state->bytes;
    if (state->operation != ACCUMULATE)
        return pattern_check(state->exposed, state->bytes, state->operation == PUT ? ORIGIN : TARGET, 0, no);
    for (size_t at = 0; at < state->bytes; at += WORD_BYTES) {
        uint32_t given, had, found;
        char words[2][WORD_BYTES];
        for (size_t i = 0; i < WORD_BYTES; i++) {
            words[0][i] = (char)pattern(ORIGIN, 0, no, at + i);
            words[1][i] = (char)pattern(TARGET, 0, no, at + i);
        }
        memcpy(&given, words[0], sizeof given);
        memcpy(&had, words[1], sizeof had);
        memcpy(&found, state->exposed + at, sizeof found);
        if (found != (uint32_t)(given + had))
            return at;
    }
    return state->bytes;
}

static bool validated_end(struct run *run, struct one_sided *state)
{
    int rc = MPI_Barrier(state->communicator);
    if (rc == MPI_SUCCESS && !run->is_active)
        rc = own_begin(state);
    size_t at = wrong_byte(state, run->is_active);
    if (at < state->bytes)
        run_invalid(run, "byte %zu at rank %d is not what %s gives", at, run->is_active ? ORIGIN : TARGET,
                    operations[state->operation]);
    if (rc == MPI_SUCCESS && !run->is_active)
        rc = own_end(state);
    return mpi_run_check(run, rc, "barrier");
}

static enum step one_sided_step(struct run *run)
{
    struct one_sided *state = run->state;
    if (state->validate && !validated_begin(run, state))
        return STEP_FAILED;
    uint64_t start_ns = run->now_ns; /* the end of the operation before, within a batch */
    int rc = operate_and_end(state, run->is_active);
    run->now_ns = clock_now_ns();
    if (!mpi_run_check(run, rc, operations[state->operation]))
        return STEP_FAILED;
    times_add(&state->times, run, start_ns);
    return state->validate && !validated_end(run, state) ? STEP_FAILED : STEP_OPERATION;
}

static bool one_sided_batch_end(struct run *run)
{
    struct one_sided *state = run->state;
    times_into(&state->times, run);
    return true;
}

static void one_sided_report(struct run *run)
{
    const struct one_sided_options *options = run->options;
    struct one_sided_metrics *metrics = run->metrics;
    if (!run->is_active)
        return;
    metrics->throughput_bps = operations_report(run, options->message_bytes, &metrics->operation);
    metrics->operation_count = (double)run->operation_count;
}

static void one_sided_close(struct run *run)
{
    struct one_sided *state = run->state;
    times_free(&state->times);
    if (!state->is_open || run->failure.failed)
        return; /* freeing a window waits for the other rank, which may never come */
    if (state->synchronization == FLUSH && run->is_active)
        MPI_Win_unlock_all(state->window);
    if (state->synchronization == FENCE)
        MPI_Win_fence(MPI_MODE_NOSUCCEED, state->window);
    MPI_Win_free(&state->window);
}

const struct kernel kernel_mpi_one_sided = {
    .name = "mpi_one_sided",
    .summary = "put, get and accumulate of MPI into the memory of another rank",
    .method =
        "Rank 0 puts into, gets from or accumulates into a window that rank 1 got from MPI_Win_allocate(), and ends "
        "each operation as synchronization says: one sample is the time from the end of the one before until the "
        "operation is done at both ranks. Data lie in the same places each time. Between batches rank 1 waits within "
        "MPI, where a library that needs its help can go on. Batches are those of mpi_pingpong.",
    .size_option = "message_bytes",
    .options = OPTION_TABLE_RELATED(option_rows, struct one_sided_options, NULL, relations),
    .metrics = METRIC_TABLE(metric_rows, struct one_sided_metrics),
    .state_bytes = sizeof(struct one_sided),
    .round_trips = true,
    .open = one_sided_open,
    .begin = one_sided_begin,
    .step = one_sided_step,
    .batch_end = one_sided_batch_end,
    .report = one_sided_report,
    .close = one_sided_close,
};
