/* The kernels between two ranks. One table: each is a way to exchange messages, and what a sample of it is.
 *
 *   mpi_pingpong   rank 0 > 1 > 0            one sample: there and back
 *   mpi_pingping   0 > 1 and 1 > 0 at once   one sample: until both have arrived
 *   mpi_stream     window_count messages     one sample: a window and the empty message that answers it
 */
#include "engine/round_trip.h"
#include "mpi/between_two.h"
#include "mpi/mpi_run.h"
#include "mpi/transport.h"

#include <math.h>
#include <stdlib.h>

static const char *const calls[] = {"blocking", "synchronous", "nonblocking", "persistent", NULL};
static const char *const sources[] = {"rank", "any", NULL};
static const char *const layouts[] = {"contiguous", "strided", NULL};
static const char *const directions[] = {"client_to_server", "server_to_client", "both", NULL};

struct p2p_options {
    struct common_options common;
    int64_t message_bytes, transport, call, source, layout, buffers, validate;
    int64_t window_count, direction; /* mpi_stream */
};

#define P2P_ROWS                                                                                                       \
    OPTION_TRANSPORT_ROW(struct p2p_options),                                                                          \
        OPTION_CHOICE_ROW(struct p2p_options, call, calls,                                                             \
                          "which calls: MPI_Send/MPI_Recv, MPI_Ssend, MPI_Isend/MPI_Irecv, or persistent requests"),   \
        OPTION_CHOICE_ROW(struct p2p_options, source, sources, "receive from the other rank, or from MPI_ANY_SOURCE"), \
        OPTION_CHOICE_ROW(struct p2p_options, layout, layouts,                                                         \
                          "strided: a derived datatype, 8 bytes used and 8 left out (message_bytes a multiple of 8)"), \
        OPTION_ROWS_BUFFERS(struct p2p_options),                                                                       \
        OPTION_BOOLEAN_ROW(struct p2p_options, validate, 0,                                                            \
                           "check every byte received; a barrier then stands between operations")

static const struct option_row exchange_options[] = {
    OPTION_INTEGER_ROW(struct p2p_options, message_bytes, 8, 0, 1073741824, "bytes each way"),
    OPTION_ROWS_COMMON(struct p2p_options),
    P2P_ROWS,
    OPTION_ROWS_SWEEP(struct p2p_options),
};

static const struct option_row stream_options[] = {
    OPTION_INTEGER_ROW(struct p2p_options, message_bytes, 65536, 0, 1073741824, "bytes of one message"),
    OPTION_INTEGER_ROW(struct p2p_options, window_count, 64, 1, WINDOW_MAX, "messages under way before the answer"),
    OPTION_CHOICE_ROW(struct p2p_options, direction, directions, "which rank sends; both: both at once"),
    OPTION_ROWS_COMMON(struct p2p_options),
    P2P_ROWS,
    OPTION_ROWS_SWEEP(struct p2p_options),
};

struct pingpong_metrics {
    struct common_metrics common;
    struct round_trip_metrics round_trip;
    double operation_count, throughput_bps;
};

static const struct metric_row pingpong_rows[] = {
    METRIC_ROWS_ROUND_TRIP(struct pingpong_metrics),
    METRIC_ROW(struct pingpong_metrics, operation_count, BETTER_NONE, "round trips measured"),
    METRIC_ROW(struct pingpong_metrics, throughput_bps, BETTER_HIGHER,
               "message bits over half the median round trip; left out when message_bytes is 0"),
    METRIC_ROWS_COMMON(struct pingpong_metrics),
};

struct exchange_metrics {
    struct common_metrics common;
    struct operation_metrics operation;
    double operation_count, throughput_bps, message_rate_pps;
};

static const struct metric_row pingping_rows[] = {
    METRIC_ROWS_OPERATION(struct exchange_metrics),
    METRIC_ROW(struct exchange_metrics, operation_count, BETTER_NONE, "exchanges measured"),
    METRIC_ROW(struct exchange_metrics, throughput_bps, BETTER_HIGHER,
               "bits of one message over the median exchange, each way; left out when message_bytes is 0"),
    METRIC_ROWS_COMMON(struct exchange_metrics),
};

static const struct metric_row stream_rows[] = {
    METRIC_ROW(struct exchange_metrics, throughput_bps, BETTER_HIGHER,
               "bits of all messages over the time of all windows, both ways added; left out when message_bytes is 0"),
    METRIC_ROW(struct exchange_metrics, message_rate_pps, BETTER_HIGHER, "messages per second, both ways added"),
    METRIC_ROWS_OPERATION(struct exchange_metrics),
    METRIC_ROW(struct exchange_metrics, operation_count, BETTER_NONE, "windows measured"),
    METRIC_ROWS_COMMON(struct exchange_metrics),
};

#define RELATION_STRIDED                                                                                               \
    {"message_bytes", RELATION_MULTIPLE, .factor = ELEMENT_BYTES, .when = "layout", .when_words = "strided"}

static const struct option_relation exchange_relations[] = {
    RELATION_STRIDED,
    {"buffers", RELATION_ONE_OF, .words = "hot separate", .when = "call", .when_words = "persistent"}};

static const struct option_relation stream_relations[] = {
    RELATION_STRIDED,
    {"call", RELATION_ONE_OF, .words = "blocking nonblocking synchronous"},
    {"call", RELATION_ONE_OF, .words = "nonblocking synchronous", .when = "direction", .when_words = "both"}};

static bool p2p_type(struct run *run, struct p2p *state, const struct p2p_options *options)
{
    state->type = MPI_BYTE;
    state->count = (int)options->message_bytes;
    if (!options->layout)
        return true;
    int blocks = (int)(options->message_bytes / ELEMENT_BYTES);
    state->count = 1;
    state->has_type = true;
    return mpi_run_check(run, MPI_Type_vector(blocks, ELEMENT_BYTES, 2 * ELEMENT_BYTES, MPI_BYTE, &state->type),
                         "derived datatype") &&
           mpi_run_check(run, MPI_Type_commit(&state->type), "derived datatype");
}

static bool p2p_open(struct run *run, int (*exchange)(struct p2p *, bool), bool shared)
{
    struct p2p *state = run->state;
    const struct p2p_options *options = run->options;
    enum buffer_policy policy = (enum buffer_policy)options->buffers;
    state->exchange = exchange;
    state->communicator = mpi_run_communicator(run);
    state->peer = run->is_active ? 1 : 0;
    state->source = options->source ? MPI_ANY_SOURCE : state->peer;
    state->call = (enum call)options->call;
    state->direction = (enum direction)options->direction;
    state->window = (int)options->window_count;
    state->validate = options->validate;
    state->persistent_send = state->persistent_receive = MPI_REQUEST_NULL;
    if (!p2p_type(run, state, options))
        return false;
    buffers_new(run, &state->buffers,
                (struct buffers_asked){(size_t)options->message_bytes * (options->layout ? 2 : 1), policy,
                                       shared && !state->validate});
    times_new(&state->times);
    return state->call != CALL_PERSISTENT ||
           (mpi_run_check(run,
                          MPI_Send_init(buffers_send(&state->buffers), state->count, state->type, state->peer,
                                        TAG_MESSAGE, state->communicator, &state->persistent_send),
                          "persistent request") &&
            mpi_run_check(run,
                          MPI_Recv_init(buffers_receive(&state->buffers), state->count, state->type, state->source,
                                        TAG_MESSAGE, state->communicator, &state->persistent_receive),
                          "persistent request"));
}

static bool pingpong_open(struct run *run)
{
    return p2p_open(run, p2p_pingpong, true);
}

static bool pingping_open(struct run *run)
{
    return p2p_open(run, p2p_pingping, false);
}

static bool stream_open(struct run *run)
{
    return p2p_open(run, p2p_stream, false);
}

static void p2p_begin(struct run *run)
{
    struct p2p *state = run->state;
    state->times.count = 0;
}

/* Both ends write and read only the bytes that the datatype names. */
static size_t wrong_byte(const struct p2p *state, unsigned sender)
{
    const char *from = buffers_receive(&state->buffers);
    size_t bytes = state->buffers.message_bytes;
    for (size_t i = 0; i < bytes; i++)
        if ((!state->has_type || i % (2 * ELEMENT_BYTES) < ELEMENT_BYTES) &&
            (uint8_t)from[i] != pattern(sender, 0, state->operation_no, i))
            return i;
    return bytes;
}

/* Untimed: writes what goes out, spoils what comes in, and waits for the other rank. */
static bool validated_begin(struct run *run, struct p2p *state)
{
    struct buffers *buffers = &state->buffers;
    state->operation_no++;
    pattern_fill(buffers_send(buffers), buffers->message_bytes, run->is_active ? 0 : 1, 0, state->operation_no);
    pattern_fill(buffers_receive(buffers), buffers->message_bytes, 2, 0, state->operation_no + 1);
    if (!mpi_run_check(run, MPI_Barrier(state->communicator), "barrier"))
        return false;
    run->now_ns = clock_now_ns();
    return true;
}

static void validated_end(struct run *run, const struct p2p *state)
{
    bool stream_kernel = state->exchange == p2p_stream, from_client = state->direction == CLIENT_TO_SERVER;
    if (stream_kernel && state->direction != BOTH && from_client == run->is_active)
        return; /* this end received nothing */
    size_t at = wrong_byte(state, run->is_active ? 1 : 0);
    if (at < state->buffers.message_bytes)
        run_invalid(run, "byte %zu of a message was not what rank %d sent", at, run->is_active ? 1 : 0);
}

static enum step p2p_step(struct run *run)
{
    struct p2p *state = run->state;
    if (state->validate && !validated_begin(run, state))
        return STEP_FAILED;
    uint64_t start_ns = run->now_ns; /* the end of the operation before, within a batch */
    int rc = state->exchange(state, run->is_active);
    run->now_ns = clock_now_ns();
    if (!mpi_run_check(run, rc, run->kernel->name))
        return STEP_FAILED;
    times_add(&state->times, run, start_ns);
    if (state->validate)
        validated_end(run, state);
    buffers_next(&state->buffers);
    return STEP_OPERATION;
}

static bool p2p_batch_end(struct run *run)
{
    struct p2p *state = run->state;
    times_into(&state->times, run);
    return true;
}

static void pingpong_report(struct run *run)
{
    const struct p2p_options *options = run->options;
    struct pingpong_metrics *metrics = run->metrics;
    if (!run->is_active)
        return;
    round_trip_fill(run->histogram, &metrics->round_trip);
    metrics->operation_count = (double)run->operation_count;
    if (options->message_bytes && metrics->round_trip.round_trip_p50_ns > 0)
        metrics->throughput_bps = (double)options->message_bytes * 16e9 / metrics->round_trip.round_trip_p50_ns;
}

static void pingping_report(struct run *run)
{
    const struct p2p_options *options = run->options;
    struct exchange_metrics *metrics = run->metrics;
    if (!run->is_active)
        return;
    metrics->throughput_bps = operations_report(run, options->message_bytes, &metrics->operation);
    metrics->operation_count = (double)run->operation_count;
}

static void stream_report(struct run *run)
{
    const struct p2p_options *options = run->options;
    struct exchange_metrics *metrics = run->metrics;
    if (!run->is_active || !run->histogram->count)
        return;
    operation_fill(run->histogram, &metrics->operation);
    double windows = (double)run->operation_count, ways = options->direction == BOTH ? 2 : 1;
    double messages = windows * ways * (double)options->window_count;
    metrics->operation_count = windows;
    metrics->message_rate_pps = messages * 1e9 / run->histogram->sum_ns;
    if (options->message_bytes)
        metrics->throughput_bps = metrics->message_rate_pps * 8 * (double)options->message_bytes;
}

static void p2p_close(struct run *run)
{
    struct p2p *state = run->state;
    times_free(&state->times);
    if (state->persistent_send != MPI_REQUEST_NULL)
        MPI_Request_free(&state->persistent_send);
    if (state->persistent_receive != MPI_REQUEST_NULL)
        MPI_Request_free(&state->persistent_receive);
    if (state->has_type)
        MPI_Type_free(&state->type);
}

#define P2P_HOOKS                                                                                                      \
    .size_option = "message_bytes", .state_bytes = sizeof(struct p2p), .round_trips = true, .begin = p2p_begin,        \
    .step = p2p_step, .batch_end = p2p_batch_end, .close = p2p_close

const struct kernel kernel_mpi_pingpong = {
    .name = "mpi_pingpong",
    .summary = "round trip of an MPI message between two ranks",
    .method =
        "Rank 0 sends a message, receives the same number of bytes back and stamps the time: one sample is the full "
        "round trip, from the end of the one before, not half of it. One message is under way at a time, by default "
        "from and into the same (cache-warm) buffer, with MPI_Send() and MPI_Recv(). Ranks agree on the number of "
        "operations of each batch of some 10 ms beforehand; the first of a batch is not measured.",
    .options = OPTION_TABLE_RELATED(exchange_options, struct p2p_options, NULL, exchange_relations),
    .metrics = METRIC_TABLE(pingpong_rows, struct pingpong_metrics),
    .open = pingpong_open,
    .report = pingpong_report,
    P2P_HOOKS,
};

const struct kernel kernel_mpi_pingping = {
    .name = "mpi_pingping",
    .summary = "two MPI messages that meet: both ranks send at once",
    .method =
        "Each rank starts a send (MPI_Isend), receives the other's message of the same size and waits for its own to "
        "be gone: one sample is the time of that at rank 0, as in PingPing of the Intel MPI Benchmarks. Batches are "
        "those of mpi_pingpong.",
    .options = OPTION_TABLE_RELATED(exchange_options, struct p2p_options, NULL, exchange_relations),
    .metrics = METRIC_TABLE(pingping_rows, struct exchange_metrics),
    .open = pingping_open,
    .report = pingping_report,
    P2P_HOOKS,
};

static const struct option_default stream_defaults[] = {{"call", CALL_NONBLOCKING}, {NULL, 0}};

const struct kernel kernel_mpi_stream = {
    .name = "mpi_stream",
    .summary = "throughput and rate of MPI messages, window_count of them under way, one way or both",
    .method =
        "The sending rank starts window_count messages, all from one place, and waits for them; the receiving rank "
        "has as many receives posted, and answers the window with an empty message. One sample is a window, from the "
        "end of the one before to the answer at rank 0. With direction both, each rank does both at once.",
    .options = OPTION_TABLE_RELATED(stream_options, struct p2p_options, stream_defaults, stream_relations),
    .metrics = METRIC_TABLE(stream_rows, struct exchange_metrics),
    .open = stream_open,
    .report = stream_report,
    P2P_HOOKS,
};
