/* fabric_write, fabric_read, fabric_atomic: the client works on memory of the server, whose program has no part in it.
 *
 *   client   fi_write() fi_write() ...  window_count under way     completion completion ...
 *   server   keeps its provider going, where that needs it; looks at its memory at the end
 *
 * Writes and reads go over the server's slots in turn; atomic operations add 1 to one number. */
#include "engine/round_trip.h"
#include "fabric/endpoint.h"

#include <stdlib.h>
#include <string.h>

enum verb { VERB_WRITE, VERB_READ, VERB_ATOMIC };
enum { EDGE_BYTES = 64, ATOMIC_FETCH = 0 };
static const char *const completions[] = {"delivery", "transmit", NULL};
static const char *const atomics[] = {"fetch_add", "add", NULL};
static const double reply_limit_s = 10;

struct one_sided_options {
    struct common_options common;
    int64_t message_bytes, window_count, completion, operation;
    struct endpoint_settings endpoint;
};

#define ROW_WINDOW(standard)                                                                                           \
    OPTION_INTEGER_ROW(struct one_sided_options, window_count, standard, 1, ENDPOINT_WINDOW_MAX,                       \
                       "operations that are under way at once; 1: each is timed alone")

static const struct option_row write_rows[] = {
    OPTION_INTEGER_ROW(struct one_sided_options, message_bytes, 65536, 0, ENDPOINT_MESSAGE_MAX, "bytes of a write"),
    ROW_WINDOW(16),
    OPTION_CHOICE_ROW(struct one_sided_options, completion, completions,
                      "a write is complete when its bytes are in the server's memory, or when the client's may be used "
                      "again"),
    OPTION_ROWS_ENDPOINT(struct one_sided_options),
    OPTION_ROW_ENDPOINT_COUNT(struct one_sided_options),
    OPTION_ROWS_COMMON(struct one_sided_options),
    OPTION_ROWS_PLACE(struct one_sided_options),
    OPTION_ROWS_SWEEP(struct one_sided_options)};

static const struct option_row read_rows[] = {
    OPTION_INTEGER_ROW(struct one_sided_options, message_bytes, 65536, 0, ENDPOINT_MESSAGE_MAX, "bytes of a read"),
    ROW_WINDOW(16),
    OPTION_ROWS_ENDPOINT(struct one_sided_options),
    OPTION_ROW_ENDPOINT_COUNT(struct one_sided_options),
    OPTION_ROWS_COMMON(struct one_sided_options),
    OPTION_ROWS_PLACE(struct one_sided_options),
    OPTION_ROWS_SWEEP(struct one_sided_options)};

/* The number of an atomic operation has its own place: where it lies is not for options to say. */
static const struct option_row atomic_rows[] = {
    OPTION_CHOICE_ROW(struct one_sided_options, operation, atomics,
                      "adds 1 to a number of 8 bytes at the server, and brings what it was before, or not"),
    ROW_WINDOW(1), OPTION_ROWS_ENDPOINT(struct one_sided_options), OPTION_ROW_ENDPOINT_COUNT(struct one_sided_options),
    OPTION_ROWS_COMMON(struct one_sided_options)};

struct one_sided_metrics {
    struct common_metrics common;
    struct round_trip_metrics took;
    double throughput_bps, operation_rate_pps, operation_count, sent_bytes, received_bytes;
};

#define TOOK(end, field, help) {"completion_" end, BETTER_LOWER, offsetof(struct one_sided_metrics, took.field), help}
#define ROWS_TOOK                                                                                                      \
    TOOK("median_ns", round_trip_p50_ns,                                                                               \
         "median time from the call to the completion, from the histogram (within 0.8 %); with a window most of it "   \
         "is its turn"),                                                                                               \
        TOOK("p90_ns", round_trip_p90_ns, "90 of 100 operations took at most this (from 50 of them)"),                 \
        TOOK("p99_ns", round_trip_p99_ns, "99 of 100 operations took at most this (from 500)"),                        \
        TOOK("p999_ns", round_trip_p999_ns, "999 of 1000 operations took at most this (from 5000)"),                   \
        TOOK("min_ns", round_trip_min_ns, "fastest operation (exact)"),                                                \
        TOOK("max_ns", round_trip_max_ns, "slowest operation (exact)"),                                                \
        TOOK("mean_ns", round_trip_mean_ns, "mean time of an operation (exact)")
#define ROWS_COUNT                                                                                                     \
    METRIC_ROW(struct one_sided_metrics, operation_rate_pps, BETTER_HIGHER,                                            \
               "operations per second, from the start of the measurement to the last completion"),                     \
        METRIC_ROW(struct one_sided_metrics, operation_count, BETTER_NONE, "operations completed")
#define ROWS_BYTES                                                                                                     \
    METRIC_ROW(struct one_sided_metrics, throughput_bps, BETTER_HIGHER,                                                \
               "bits per second, from the start of the measurement to the last completion"),                           \
        METRIC_ROW(struct one_sided_metrics, sent_bytes, BETTER_NONE, "bytes that left the memory of one end"),        \
        METRIC_ROW(struct one_sided_metrics, received_bytes, BETTER_NONE,                                              \
                   "bytes that came to the memory of the other")

static const struct metric_row byte_metric_rows[] = {ROWS_BYTES, ROWS_COUNT, ROWS_TOOK,
                                                     METRIC_ROWS_COMMON(struct one_sided_metrics)};
static const struct metric_row atomic_metric_rows[] = {ROWS_TOOK, ROWS_COUNT,
                                                       METRIC_ROWS_COMMON(struct one_sided_metrics)};

struct one_sided {
    struct endpoint endpoint;
    enum verb verb;
    size_t bytes, window;
    struct operation *operations, **free;
    size_t free_count;
    uint64_t *results; /* of atomic operations: what the number was before */
    struct operation greetings[ENDPOINT_COUNT_MAX];
    bool has_greeted;
    uint64_t last_ns;
    size_t last_slot;
};

static enum verb verb_of(const struct run *run)
{
    return run->kernel == &kernel_fabric_write  ? VERB_WRITE
           : run->kernel == &kernel_fabric_read ? VERB_READ
                                                : VERB_ATOMIC;
}

static struct endpoint_need need_of(const struct run *run, const struct one_sided *state)
{
    const struct one_sided_options *options = run->options;
    struct endpoint_need need = {.slot_bytes = state->bytes, .window_count = state->window};
    bool writes = state->verb != VERB_READ;
    need.capabilities = state->verb == VERB_ATOMIC ? FI_ATOMIC : FI_RMA;
    if (state->verb == VERB_WRITE && !options->completion)
        need.flags = FI_DELIVERY_COMPLETE;
    need.access = run->is_server ? (writes ? FI_REMOTE_WRITE : FI_REMOTE_READ) : (writes ? FI_WRITE : FI_READ);
    if (state->verb == VERB_ATOMIC)
        need.access = run->is_server ? FI_REMOTE_WRITE | FI_REMOTE_READ : FI_WRITE | FI_READ;
    need.sends = run->is_server != writes;
    need.receives = !need.sends;
    return need;
}

static bool atomic_known(struct run *run, const struct one_sided *state)
{
    const struct one_sided_options *options = run->options;
    struct fid_ep *ep = state->endpoint.ways[0].ep;
    size_t count = 0;
    const char *provider = state->endpoint.info->fabric_attr->prov_name;
    if (state->verb != VERB_ATOMIC || run->is_server)
        return true;
    /* 1.17 ends with a fault of memory at the client, 2.1 at the server. */
    if (options->operation == ATOMIC_FETCH && !strcmp(provider, "udp;ofi_rxd"))
        return fail(&run->failure, EXIT_USAGE,
                    "operation: found fetch_add, in which libfabric's %s crashes: allowed: add", provider);
    int returned = options->operation == ATOMIC_FETCH ? fi_fetch_atomicvalid(ep, FI_UINT64, FI_SUM, &count)
                                                      : fi_atomicvalid(ep, FI_UINT64, FI_SUM, &count);
    return (!returned && count) || fail(&run->failure, EXIT_USAGE, "operation: found %s: %s does not add to 8 bytes",
                                        atomics[options->operation], provider);
}

static bool one_sided_prepare(struct run *run)
{
    struct one_sided *state = run->state;
    const struct one_sided_options *options = run->options;
    state->verb = verb_of(run);
    state->bytes = state->verb == VERB_ATOMIC ? sizeof(uint64_t) : (size_t)options->message_bytes;
    state->window = (size_t)options->window_count;
    state->operations = memory_new(state->window, sizeof *state->operations);
    state->free = memory_new(state->window, sizeof *state->free);
    state->results = memory_new(state->window, sizeof *state->results);
    for (size_t i = 0; i < state->window; i++)
        state->free[state->free_count++] = &state->operations[i];
    const struct endpoint_need need = need_of(run, state);
    if (!endpoint_open(run, &state->endpoint, &options->endpoint, &need) || !atomic_known(run, state) ||
        !endpoint_small(run, &state->endpoint, state->results, state->window * sizeof *state->results))
        return false;
    endpoint_tell(run, &state->endpoint);
    return true;
}

static bool one_sided_listen(struct run *run)
{
    return one_sided_prepare(run);
}

static bool one_sided_open(struct run *run)
{
    struct one_sided *state = run->state;
    return (run->is_server || one_sided_prepare(run)) && endpoint_join(run, &state->endpoint);
}

/* What arrives in this phase must show: the edges of all room for it are 0 again. */
static void edges_clear(struct endpoint *endpoint)
{
    size_t bytes = endpoint->slot_bytes, edge = bytes < EDGE_BYTES ? bytes : EDGE_BYTES;
    for (size_t slot = endpoint->out_count; slot < endpoint->slot_total; slot++) {
        char *at = endpoint_at(endpoint, slot);
        memset(at, 0, edge);
        memset(at + bytes - edge, 0, edge);
    }
}

static void one_sided_begin(struct run *run)
{
    struct one_sided *state = run->state;
    state->last_ns = 0;
    state->endpoint.idle_since_ns = 0;
    if (run->is_server || state->verb == VERB_READ)
        edges_clear(&state->endpoint);
}

struct call {
    const struct way *way;
    size_t remote_slot, bytes;
    void *descriptor;
    uint64_t *result, added; /* of atomic operations */
};

static ssize_t one_sided_call(struct run *run, struct operation *operation, struct call call)
{
    struct one_sided *state = run->state;
    struct endpoint *endpoint = &state->endpoint;
    const struct one_sided_options *options = run->options;
    const struct way *way = call.way;
    uint64_t remote = endpoint->peer_memory + call.remote_slot * endpoint->slot_stride;
    void *local = endpoint_at(endpoint, operation->slot), *descriptor = call.descriptor;
    if (state->verb == VERB_WRITE)
        return fi_write(way->ep, local, call.bytes, descriptor, way->peer, remote, endpoint->peer_key,
                        &operation->context);
    if (state->verb == VERB_READ)
        return fi_read(way->ep, local, call.bytes, descriptor, way->peer, remote, endpoint->peer_key,
                       &operation->context);
    memcpy(local, &call.added, sizeof call.added);
    if (options->operation == ATOMIC_FETCH)
        return fi_fetch_atomic(way->ep, local, 1, descriptor, call.result, fi_mr_desc(endpoint->small), way->peer,
                               endpoint->peer_memory, endpoint->peer_key, FI_UINT64, FI_SUM, &operation->context);
    return fi_atomic(way->ep, local, 1, descriptor, way->peer, endpoint->peer_memory, endpoint->peer_key, FI_UINT64,
                     FI_SUM, &operation->context);
}

/* Of one byte, or an addition of nothing. */
static ssize_t one_sided_greeting(struct run *run, const struct way *way, struct operation *operation)
{
    struct one_sided *state = run->state;
    operation->slot = state->verb == VERB_READ ? state->endpoint.out_count : 0;
    return one_sided_call(
        run, operation,
        (struct call){
            .way = way, .bytes = 1, .descriptor = fi_mr_desc(state->endpoint.registered), .result = state->results});
}

/* All connections exist before the first operation is timed. */
static bool one_sided_settle(struct run *run)
{
    struct one_sided *state = run->state;
    state->has_greeted = state->has_greeted || !state->bytes ||
                         endpoint_greet(run, &state->endpoint, one_sided_greeting, state->greetings);
    return state->has_greeted;
}

/* True when one more is under way. */
static bool one_sided_begin_one(struct run *run)
{
    struct one_sided *state = run->state;
    struct endpoint *endpoint = &state->endpoint;
    struct operation *operation = state->free[state->free_count - 1];
    size_t remote_slot = (size_t)(run->sent_count % endpoint->slot_count);
    void *descriptor;
    operation->slot = state->verb == VERB_READ ? endpoint_in(endpoint) : endpoint_out(endpoint);
    if (!endpoint_register(run, endpoint, operation, &descriptor))
        return false;
    struct call call = {.way = endpoint_way(endpoint),
                        .remote_slot = remote_slot,
                        .bytes = state->bytes,
                        .descriptor = descriptor,
                        .result = &state->results[operation - state->operations],
                        .added = 1};
    operation->start_ns = clock_now_ns();
    if (!endpoint_posted(run, operation, one_sided_call(run, operation, call), run->kernel->name))
        return false;
    state->free_count--;
    run->under_way_count++;
    run->sent_count++;
    run->sent_bytes += state->bytes;
    return true;
}

static bool one_sided_may_begin(const struct run *run)
{
    const struct one_sided *state = run->state;
    uint64_t limit = run->phase == PHASE_MEASURE ? (uint64_t)run_common(run)->operation_count_max : 0;
    return !run->closing && state->free_count && (!limit || run->sent_count < limit);
}

static enum step one_sided_work(struct run *run)
{
    struct one_sided *state = run->state;
    struct operation *operation = endpoint_next(run, &state->endpoint);
    run->now_ns = clock_now_ns();
    if (operation) {
        run_round_trip(run, run->now_ns - operation->start_ns);
        state->last_ns = run->now_ns;
        state->last_slot = operation->slot;
        state->free[state->free_count++] = operation;
        run->under_way_count--;
        return STEP_OPERATION;
    }
    if (!run->failure.failed && one_sided_may_begin(run) && one_sided_begin_one(run))
        return STEP_MOVED;
    if (run->failure.failed)
        return STEP_FAILED;
    enum step step = endpoint_idle(run, &state->endpoint);
    uint64_t since_ns = state->last_ns ? state->last_ns : run->phase_start_ns;
    if (step == STEP_IDLE && run->under_way_count && run->now_ns > since_ns + clock_ns_from_s(reply_limit_s)) {
        fail(&run->failure, EXIT_PEER, "timed out: nothing was complete for %g s", reply_limit_s);
        return STEP_FAILED;
    }
    return step;
}

/* Server: whether what the client says that it did is in memory. */
static bool one_sided_is_here(const struct run *run)
{
    const struct one_sided *state = run->state;
    uint64_t number = 0;
    if (state->verb == VERB_READ || !run->peer_sent_count)
        return true;
    if (state->verb == VERB_WRITE)
        return memory_is_noise(
            endpoint_at(&state->endpoint, (size_t)((run->peer_sent_count - 1) % state->endpoint.slot_count)),
            state->bytes);
    memcpy(&number, endpoint_at(&state->endpoint, 0), sizeof number);
    return number == run->peer_sent_count;
}

static enum step one_sided_step(struct run *run)
{
    struct one_sided *state = run->state;
    if (!run->is_server)
        return one_sided_work(run);
    endpoint_next(run, &state->endpoint);
    enum step step = endpoint_idle(run, &state->endpoint);
    return step != STEP_FAILED && run->peer_stopped && one_sided_is_here(run) ? STEP_DONE : step;
}

static void one_sided_report(struct run *run)
{
    struct one_sided *state = run->state;
    struct one_sided_metrics *metrics = run->metrics;
    endpoint_granted(run, &state->endpoint);
    if (run->is_server) {
        if (!one_sided_is_here(run))
            run_invalid(run, "the server's memory is not what %llu operations make of it",
                        (unsigned long long)run->peer_sent_count);
        return;
    }
    if (!state->last_ns) {
        run_invalid(run, "too short: no operation was complete; raise duration_s or operation_count_max");
        return;
    }
    if (state->verb == VERB_READ && !memory_is_noise(endpoint_at(&state->endpoint, state->last_slot), state->bytes))
        run_invalid(run, "what was read last is not what the server has");
    double bytes = (double)run->operation_count * (double)state->bytes,
           took_ns = (double)(state->last_ns - run->phase_start_ns);
    round_trip_fill(run->histogram, &metrics->took);
    metrics->operation_count = (double)run->operation_count;
    metrics->operation_rate_pps = metrics->operation_count * 1e9 / took_ns;
    metrics->throughput_bps = bytes * 8e9 / took_ns;
    metrics->sent_bytes = metrics->received_bytes = bytes;
}

static void one_sided_close(struct run *run)
{
    struct one_sided *state = run->state;
    endpoint_forget(state->operations, state->window);
    endpoint_close(&state->endpoint);
    free(state->operations);
    free(state->free);
    free(state->results);
}

#define ONE_SIDED                                                                                                      \
    .state_bytes = sizeof(struct one_sided), .round_trips = true, .tells = true, .listen = one_sided_listen,           \
    .open = one_sided_open, .begin = one_sided_begin, .settle = one_sided_settle, .step = one_sided_step,              \
    .report = one_sided_report, .close = one_sided_close

const struct kernel kernel_fabric_write = {
    .name = "fabric_write",
    .summary = "writes into the memory of the server over a provider of libfabric",
    .method =
        "The client gives fi_write() one message after the other; window_count are under way. An operation takes from "
        "before the call to its completion, which by default says that the bytes are in the server's memory "
        "(FI_DELIVERY_COMPLETE). The server's program only keeps its provider going; at the end it compares where the "
        "last write went with what was sent.",
    .size_option = "message_bytes",
    .options = OPTION_TABLE(write_rows, struct one_sided_options),
    .metrics = METRIC_TABLE(byte_metric_rows, struct one_sided_metrics),
    ONE_SIDED,
};

const struct kernel kernel_fabric_read = {
    .name = "fabric_read",
    .summary = "reads from the memory of the server over a provider of libfabric",
    .method =
        "The client gives fi_read() one message after the other; window_count are under way. An operation takes from "
        "before the call to its completion: the bytes are here. The server's program only keeps its provider going; "
        "the client compares what it read last with what the server has.",
    .size_option = "message_bytes",
    .options = OPTION_TABLE(read_rows, struct one_sided_options),
    .metrics = METRIC_TABLE(byte_metric_rows, struct one_sided_metrics),
    ONE_SIDED,
};

const struct kernel kernel_fabric_atomic = {
    .name = "fabric_atomic",
    .summary = "atomic additions to a number in the memory of the server over a provider of libfabric",
    .method =
        "The client adds 1 to a number of 8 bytes with fi_fetch_atomic() or fi_atomic(); window_count additions are "
        "under way. An operation takes from before the call to its completion. At the end the number must be how many "
        "there were.",
    .options = OPTION_TABLE(atomic_rows, struct one_sided_options),
    .metrics = METRIC_TABLE(atomic_metric_rows, struct one_sided_metrics),
    ONE_SIDED,
};
