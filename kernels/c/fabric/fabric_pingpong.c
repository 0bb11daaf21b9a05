/* fabric_pingpong: a tagged message there and another back over a provider of libfabric, below MPI. */
#include "base/signals.h"
#include "engine/round_trip.h"
#include "fabric/endpoint.h"

#include <string.h>

enum { SENDING = 1, RECEIVING, RECEIVES = 2 };

struct pingpong_options {
    struct common_options common;
    int64_t message_bytes, inject;
    double reply_timeout_s;
    struct endpoint_settings endpoint;
};

static const struct option_row option_rows[] = {
    OPTION_INTEGER_ROW(struct pingpong_options, message_bytes, 8, 0, ENDPOINT_MESSAGE_MAX,
                       "bytes of a message, the same there and back"),
    OPTION_BOOLEAN_ROW(
        struct pingpong_options, inject, 1,
        "messages that the provider takes so (inject_bytes) are given to it by fi_tinject(), which needs "
        "no completion"),
    OPTION_ROWS_ENDPOINT(struct pingpong_options),
    OPTION_ROWS_COMMON(struct pingpong_options),
    OPTION_ROWS_PLACE(struct pingpong_options),
    OPTION_ROWS_SERIES(struct pingpong_options),
    OPTION_ROWS_SWEEP(struct pingpong_options),
    OPTION_NUMBER_ROW(struct pingpong_options, reply_timeout_s, 10, 0.001, 600,
                      "a reply that takes longer ends the measurement")};

struct pingpong_metrics {
    struct common_metrics common;
    struct round_trip_metrics round_trip;
    double operation_count;
};

static const struct metric_row metric_rows[] = {
    METRIC_ROWS_ROUND_TRIP(struct pingpong_metrics),
    METRIC_ROW_WIDTH(struct pingpong_metrics),
    METRIC_ROW(struct pingpong_metrics, operation_count, BETTER_NONE, "round trips measured"),
    METRIC_ROWS_COMMON(struct pingpong_metrics),
};

struct pingpong {
    struct endpoint endpoint;
    struct operation sending, receiving[RECEIVES];
    bool injects, under_way, sent; /* client: a round trip; either end: its message has left */
    size_t owed_count;             /* server: replies */
    unsigned unposted;             /* receives that the provider has not, by bit */
    uint64_t start_ns, last_ns;
    size_t last_slot;
    bool any;
};

static bool pingpong_prepare(struct run *run)
{
    struct pingpong *state = run->state;
    const struct pingpong_options *options = run->options;
    const struct endpoint_need need = {.capabilities = FI_TAGGED,
                                       .access = FI_SEND | FI_RECV,
                                       .sends = true,
                                       .receives = true,
                                       .slot_bytes = (size_t)options->message_bytes,
                                       .window_count = RECEIVES + 1};
    if (!endpoint_open(run, &state->endpoint, &options->endpoint, &need))
        return false;
    state->injects = options->inject && (uint64_t)options->message_bytes <= state->endpoint.info->tx_attr->inject_size;
    endpoint_tell(run, &state->endpoint);
    return true;
}

static bool pingpong_listen(struct run *run)
{
    return pingpong_prepare(run);
}

static bool pingpong_receive(struct run *run, size_t which)
{
    struct pingpong *state = run->state;
    struct operation *operation = &state->receiving[which];
    struct endpoint *endpoint = &state->endpoint;
    size_t bytes = (size_t)((const struct pingpong_options *)run->options)->message_bytes;
    void *descriptor;
    operation->kind = RECEIVING;
    operation->slot = endpoint_in(endpoint);
    state->unposted |= 1U << which;
    if (!endpoint_register(run, endpoint, operation, &descriptor))
        return false;
    if (endpoint_posted(run, operation,
                        fi_trecv(endpoint->ways[0].ep, endpoint_at(endpoint, operation->slot), bytes, descriptor,
                                 FI_ADDR_UNSPEC, endpoint->tag, 0, &operation->context),
                        "fi_trecv"))
        state->unposted &= ~(1U << which);
    return !run->failure.failed;
}

static bool pingpong_receives(struct run *run)
{
    const struct pingpong *state = run->state;
    for (size_t which = 0; which < RECEIVES; which++)
        if (state->unposted & 1U << which && !pingpong_receive(run, which))
            return false;
    return true;
}

/* Both receives are there before the peer can send; each is there again before the next but one. */
static bool pingpong_open(struct run *run)
{
    struct pingpong *state = run->state;
    if (!run->is_server && !pingpong_prepare(run))
        return false;
    state->sent = true;
    state->unposted = (1U << RECEIVES) - 1;
    return endpoint_join(run, &state->endpoint) && pingpong_receives(run);
}

static void pingpong_begin(struct run *run)
{
    struct pingpong *state = run->state;
    state->under_way = false;
    state->last_ns = 0;
}

/* True when the message is under way; false when the provider is full, or failed. */
static bool pingpong_send(struct run *run)
{
    struct pingpong *state = run->state;
    struct endpoint *endpoint = &state->endpoint;
    struct operation *operation = &state->sending;
    size_t bytes = (size_t)((const struct pingpong_options *)run->options)->message_bytes;
    void *descriptor;
    if (state->injects)
        return endpoint_posted(run, NULL,
                               fi_tinject(endpoint->ways[0].ep, endpoint_at(endpoint, endpoint_out(endpoint)), bytes,
                                          endpoint->ways[0].peer, endpoint->tag),
                               "fi_tinject");
    operation->kind = SENDING;
    operation->slot = endpoint_out(endpoint);
    if (!endpoint_register(run, endpoint, operation, &descriptor) ||
        !endpoint_posted(run, operation,
                         fi_tsend(endpoint->ways[0].ep, endpoint_at(endpoint, operation->slot), bytes, descriptor,
                                  endpoint->ways[0].peer, endpoint->tag, &operation->context),
                         "fi_tsend"))
        return false;
    state->sent = false;
    return true;
}

/* Takes what is complete: true when a message came. */
static bool pingpong_came(struct run *run)
{
    struct pingpong *state = run->state;
    struct operation *operation = endpoint_next(run, &state->endpoint);
    if (!operation)
        return false;
    if (operation->kind == SENDING) {
        state->sent = true;
        return false;
    }
    state->last_ns = clock_now_ns();
    state->last_slot = operation->slot;
    state->any = true;
    state->unposted |= 1U << (operation - state->receiving);
    return true;
}

static enum step pingpong_patient(struct run *run, uint64_t since_ns)
{
    struct pingpong *state = run->state;
    double limit_s = ((const struct pingpong_options *)run->options)->reply_timeout_s;
    enum step step = endpoint_idle(run, &state->endpoint);
    if (step == STEP_IDLE && run->now_ns > since_ns + clock_ns_from_s(limit_s)) {
        fail(&run->failure, EXIT_PEER, "timed out: no reply in %g s", limit_s);
        return STEP_FAILED;
    }
    return step;
}

static enum step pingpong_ask(struct run *run)
{
    struct pingpong *state = run->state;
    if (!state->under_way) {
        if (!state->sent || state->unposted) { /* the end of the one before */
            if (!pingpong_came(run) && !run->failure.failed && pingpong_receives(run) && state->sent &&
                !state->unposted)
                return STEP_MOVED;
            return run->failure.failed ? STEP_FAILED : endpoint_idle(run, &state->endpoint);
        }
        state->start_ns = clock_now_ns();
        state->under_way = pingpong_send(run);
        if (!state->under_way)
            return pingpong_came(run) ? STEP_MOVED : endpoint_idle(run, &state->endpoint);
        run->under_way_count = 1;
        run->sent_count++;
        run->sent_bytes += (uint64_t)((const struct pingpong_options *)run->options)->message_bytes;
        return STEP_MOVED;
    }
    if (!pingpong_came(run))
        return run->failure.failed ? STEP_FAILED : pingpong_patient(run, state->start_ns);
    state->under_way = false;
    run->under_way_count = 0;
    run->now_ns = state->last_ns;
    run_round_trip(run, state->last_ns - state->start_ns);
    return pingpong_receives(run) ? STEP_OPERATION : STEP_FAILED;
}

static enum step pingpong_answer(struct run *run)
{
    struct pingpong *state = run->state;
    bool came = pingpong_came(run);
    state->owed_count += came;
    if (state->owed_count && state->sent && pingpong_send(run))
        state->owed_count--;
    if (run->failure.failed || !pingpong_receives(run))
        return STEP_FAILED;
    run->now_ns = clock_now_ns();
    if (came)
        return STEP_OPERATION;
    if (run->peer_stopped && state->sent && !state->owed_count)
        return STEP_DONE; /* the client stops after the reply to its last message */
    return endpoint_idle(run, &state->endpoint);
}

static enum step pingpong_step(struct run *run)
{
    return run->is_active ? pingpong_ask(run) : pingpong_answer(run);
}

/* The first exchange makes the connection where a provider needs one. */
static bool pingpong_settle(struct run *run)
{
    struct pingpong *state = run->state;
    uint64_t since_ns = clock_now_ns();
    bool gone = false;
    while (!run->failure.failed) {
        if (signals_stop())
            return fail(&run->failure, EXIT_INVALID, "interrupted by signal %d", signals_stop());
        if (!gone && state->sent && !state->unposted)
            gone = pingpong_send(run);
        bool came = pingpong_came(run);
        if (came)
            return pingpong_receives(run);
        enum step step = pingpong_receives(run) ? pingpong_patient(run, since_ns) : STEP_FAILED;
        if (step == STEP_IDLE && !control_silent(&run->control, &run->failure))
            return false;
    }
    return false;
}

static void pingpong_report(struct run *run)
{
    struct pingpong *state = run->state;
    struct pingpong_metrics *metrics = run->metrics;
    endpoint_granted(run, &state->endpoint);
    run_grant_boolean(run, "injects", state->injects);
    if (state->any && !memory_is_noise(endpoint_at(&state->endpoint, state->last_slot),
                                       (size_t)((const struct pingpong_options *)run->options)->message_bytes))
        run_invalid(run, "the last message at the %s is not what was sent", run->is_server ? "server" : "client");
    if (!run->is_active)
        return;
    round_trip_fill(run->histogram, &metrics->round_trip);
    metrics->operation_count = (double)run->operation_count;
}

static void pingpong_close(struct run *run)
{
    struct pingpong *state = run->state;
    endpoint_forget(state->receiving, RECEIVES);
    endpoint_forget(&state->sending, 1);
    endpoint_close(&state->endpoint);
}

const struct kernel kernel_fabric_pingpong = {
    .name = "fabric_pingpong",
    .summary = "round trip of a tagged message over a provider of libfabric, below MPI",
    .method =
        "The client stamps the time before fi_tsend() or fi_tinject(), and again when the completion of the receive of "
        "the reply is there: one sample is the full round trip, not half of it. Receives are posted before the message "
        "that they take. One message is under way at a time; one exchange before each phase is not measured, since "
        "providers make their connection with it.",
    .size_option = "message_bytes",
    .options = OPTION_TABLE(option_rows, struct pingpong_options),
    .metrics = METRIC_TABLE(metric_rows, struct pingpong_metrics),
    .state_bytes = sizeof(struct pingpong),
    .round_trips = true,
    .tells = true,
    .listen = pingpong_listen,
    .open = pingpong_open,
    .begin = pingpong_begin,
    .settle = pingpong_settle,
    .step = pingpong_step,
    .report = pingpong_report,
    .close = pingpong_close,
};
