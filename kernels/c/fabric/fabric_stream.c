/* fabric_stream: tagged messages over a provider of libfabric as fast as it takes them; what arrived is counted at the
 * receiver.
 *
 *   sender    message message message ...          window_count of them are not accounted for, at most
 *   receiver  receives are posted for all of those, so that none finds the receiver without room
 *             <- count        what has arrived, after each half of a window and whenever nothing comes
 *
 * A message is done when the receiver accounted for it: at the stop everything that was sent is there. */
#include "fabric/endpoint.h"

#include <stdlib.h>
#include <string.h>

enum { SENDING = 1, RECEIVING, COUNT_RECEIVING, GREETING, COUNTS = 4, TAG_COUNT = 1, TAG_GREETING = 2 };
static const uint64_t count_after_ns = 50000; /* without a message */

struct stream_options {
    struct common_options common;
    int64_t message_bytes, direction, window_count;
    struct endpoint_settings endpoint;
};

static const struct option_row option_rows[] = {
    OPTION_INTEGER_ROW(struct stream_options, message_bytes, 65536, 0, ENDPOINT_MESSAGE_MAX, "bytes of a message"),
    OPTION_CHOICE_ROW(struct stream_options, direction, fabric_directions, "which end sends"),
    OPTION_INTEGER_ROW(struct stream_options, window_count, 64, 1, ENDPOINT_WINDOW_MAX,
                       "messages that are under way at once: sent, and not yet accounted for by the receiver"),
    OPTION_ROWS_ENDPOINT(struct stream_options),
    OPTION_ROW_ENDPOINT_COUNT(struct stream_options),
    OPTION_ROWS_COMMON(struct stream_options),
    OPTION_ROWS_PLACE(struct stream_options),
    OPTION_ROWS_SERIES(struct stream_options),
    OPTION_ROWS_SWEEP(struct stream_options)};

struct stream_metrics {
    struct common_metrics common;
    double throughput_bps, message_rate_pps, sent_count, sent_bytes, received_count, received_bytes;
};

static const struct metric_row metric_rows[] = {
    METRIC_ROW(struct stream_metrics, throughput_bps, BETTER_HIGHER,
               "bits per second at the receiver, from its first message (which is left out) to its last"),
    METRIC_ROW(struct stream_metrics, message_rate_pps, BETTER_HIGHER, "messages per second over the same time"),
    METRIC_ROW(struct stream_metrics, sent_count, BETTER_NONE, "messages sent"),
    METRIC_ROW(struct stream_metrics, sent_bytes, BETTER_NONE, "bytes sent"),
    METRIC_ROW(struct stream_metrics, received_count, BETTER_NONE, "messages received"),
    METRIC_ROW(struct stream_metrics, received_bytes, BETTER_NONE, "bytes received"),
    METRIC_ROWS_COMMON(struct stream_metrics),
    METRIC_ROWS_PER_BYTE(struct stream_metrics),
};

struct stream {
    struct endpoint endpoint;
    size_t bytes, window, room;           /* room: the window, and up to a whole number of messages for each endpoint */
    struct operation *operations, **free; /* of messages; those that are not posted */
    size_t free_count;
    struct operation counting[COUNTS]; /* sender: receives of what the receiver says */
    uint64_t said[COUNTS], saying;
    struct operation say;
    bool is_saying;
    struct operation greetings[ENDPOINT_COUNT_MAX];
    uint64_t greeted[ENDPOINT_COUNT_MAX]; /* what they bring, which nobody reads */
    bool has_greeted;
    uint64_t told_count;  /* sender: what the receiver accounted for; receiver: what it said; over all phases */
    uint64_t moved_count; /* sent or received, over all phases */
    uint64_t before_count, first_ns, last_ns, told_ns;
    size_t last_slot;
};

static bool stream_server_sends(const void *options)
{
    return ((const struct stream_options *)options)->direction == FABRIC_TO_CLIENT;
}

static bool stream_prepare(struct run *run)
{
    struct stream *state = run->state;
    const struct stream_options *options = run->options;
    state->bytes = (size_t)options->message_bytes;
    state->window = (size_t)options->window_count;
    size_t ways = (size_t)options->endpoint.count, rest = state->window % ways;
    state->room = state->window + (rest ? ways - rest : 0);
    const struct endpoint_need need = {.capabilities = FI_TAGGED,
                                       .access = FI_SEND | FI_RECV,
                                       .sends = run->is_active,
                                       .receives = !run->is_active,
                                       .slot_bytes = state->bytes,
                                       .window_count = state->room + COUNTS};
    state->operations = memory_new(state->room, sizeof *state->operations);
    state->free = memory_new(state->room, sizeof *state->free);
    for (size_t i = 0; i < state->room; i++)
        state->free[state->free_count++] = &state->operations[i];
    if (!endpoint_open(run, &state->endpoint, &options->endpoint, &need))
        return false;
    endpoint_tell(run, &state->endpoint);
    return true;
}

/* Receives of messages, as many as the window has, the same number at each endpoint; STEP_IDLE when the provider takes
 * no more now. */
static bool stream_receives(struct run *run)
{
    struct stream *state = run->state;
    struct endpoint *endpoint = &state->endpoint;
    while (state->free_count) {
        struct operation *operation = state->free[state->free_count - 1];
        const struct way *way = &endpoint->ways[(size_t)(operation - state->operations) % endpoint->way_count];
        void *descriptor;
        operation->kind = RECEIVING;
        operation->slot = endpoint_in(endpoint);
        if (!endpoint_register(run, endpoint, operation, &descriptor))
            return false;
        if (!endpoint_posted(run, operation,
                             fi_trecv(way->ep, endpoint_at(endpoint, operation->slot), state->bytes, descriptor,
                                      FI_ADDR_UNSPEC, endpoint->tag, 0, &operation->context),
                             "fi_trecv"))
            return !run->failure.failed;
        state->free_count--;
    }
    return true;
}

static bool stream_count_receive(struct run *run, size_t which)
{
    struct stream *state = run->state;
    struct endpoint *endpoint = &state->endpoint;
    struct operation *operation = &state->counting[which];
    operation->kind = COUNT_RECEIVING;
    return endpoint_posted(run, operation,
                           fi_trecv(endpoint->ways[0].ep, &state->said[which], sizeof state->said[which],
                                    fi_mr_desc(endpoint->small), FI_ADDR_UNSPEC, endpoint->tag | TAG_COUNT, 0,
                                    &operation->context),
                           "fi_trecv");
}

static ssize_t stream_greeting(struct run *run, const struct way *way, struct operation *operation)
{
    struct stream *state = run->state;
    struct endpoint *endpoint = &state->endpoint;
    uint64_t *word = &state->greeted[operation - state->greetings];
    uint64_t tag = endpoint->tag | TAG_GREETING;
    operation->kind = GREETING;
    if (run->is_active)
        return fi_tsend(way->ep, word, sizeof *word, fi_mr_desc(endpoint->small), way->peer, tag, &operation->context);
    return fi_trecv(way->ep, word, sizeof *word, fi_mr_desc(endpoint->small), FI_ADDR_UNSPEC, tag, 0,
                    &operation->context);
}

static bool stream_greetings_receive(struct run *run)
{
    struct stream *state = run->state;
    for (size_t i = 0; i < state->endpoint.way_count; i++) {
        struct operation *operation = &state->greetings[i];
        if (!endpoint_posted(run, operation, stream_greeting(run, &state->endpoint.ways[i], operation), "fi_trecv"))
            return run->failure.failed ? false : fail(&run->failure, EXIT_SYSTEM, "fi_trecv: the provider takes none");
    }
    return true;
}

/* All connections exist before the first message is timed. */
static bool stream_settle(struct run *run)
{
    struct stream *state = run->state;
    state->has_greeted = state->has_greeted || endpoint_greet(run, &state->endpoint, stream_greeting, state->greetings);
    return state->has_greeted;
}

static bool stream_listen(struct run *run)
{
    return stream_prepare(run);
}

static bool stream_open(struct run *run)
{
    struct stream *state = run->state;
    if ((!run->is_server && !stream_prepare(run)) || !endpoint_join(run, &state->endpoint) ||
        !endpoint_small(run, &state->endpoint, state, sizeof *state))
        return false;
    if (!run->is_active)
        return stream_greetings_receive(run) && stream_receives(run);
    for (size_t which = 0; which < COUNTS; which++)
        if (!stream_count_receive(run, which))
            return run->failure.failed ? false : fail(&run->failure, EXIT_SYSTEM, "fi_trecv: the provider takes none");
    return true;
}

static void stream_begin(struct run *run)
{
    struct stream *state = run->state;
    state->before_count = state->moved_count;
    state->first_ns = state->last_ns = 0;
    state->endpoint.idle_since_ns = 0;
}

/* Sender: what is complete. True when something was. */
static bool stream_took(struct run *run)
{
    struct stream *state = run->state;
    struct operation *operation = endpoint_next(run, &state->endpoint);
    if (!operation)
        return false;
    if (operation->kind == SENDING) {
        state->free[state->free_count++] = operation;
        return true;
    }
    size_t which = (size_t)(operation - state->counting);
    uint64_t count = state->said[which];
    if (count > state->moved_count)
        return fail(&run->failure, EXIT_PEER, "the receiver accounts for %llu messages of %llu",
                    (unsigned long long)count, (unsigned long long)state->moved_count);
    if (count > state->told_count) { /* counts may overtake each other */
        run->operation_count += count - state->told_count;
        run->under_way_count -= count - state->told_count;
        state->told_count = count;
    }
    return stream_count_receive(run, which) || run->failure.failed ||
           fail(&run->failure, EXIT_SYSTEM, "fi_trecv: the provider takes no receive again");
}

static bool stream_may_send(const struct run *run)
{
    const struct stream *state = run->state;
    uint64_t limit = run->phase == PHASE_MEASURE ? (uint64_t)run_common(run)->operation_count_max : 0;
    return !run->closing && state->free_count && run->under_way_count < state->window &&
           (!limit || run->sent_count < limit);
}

static enum step stream_put(struct run *run)
{
    struct stream *state = run->state;
    struct endpoint *endpoint = &state->endpoint;
    bool took = stream_took(run);
    run->now_ns = clock_now_ns();
    if (!run->failure.failed && stream_may_send(run)) {
        struct operation *operation = state->free[state->free_count - 1];
        const struct way *way = &endpoint->ways[state->moved_count % endpoint->way_count];
        void *descriptor;
        operation->kind = SENDING;
        operation->slot = endpoint_out(endpoint);
        if (endpoint_register(run, endpoint, operation, &descriptor) &&
            endpoint_posted(run, operation,
                            fi_tsend(way->ep, endpoint_at(endpoint, operation->slot), state->bytes, descriptor,
                                     way->peer, endpoint->tag, &operation->context),
                            "fi_tsend")) {
            state->free_count--;
            state->moved_count++;
            run->under_way_count++;
            run->sent_count++;
            run->sent_bytes += state->bytes;
            return STEP_MOVED;
        }
    }
    if (run->failure.failed)
        return STEP_FAILED;
    return took ? STEP_MOVED : endpoint_idle(run, endpoint);
}

/* Receiver: says what has arrived. One at a time, since the memory of it is in use until it has left. */
static void stream_say(struct run *run)
{
    struct stream *state = run->state;
    struct endpoint *endpoint = &state->endpoint;
    if (state->is_saying || state->told_count == state->moved_count)
        return;
    state->saying = state->moved_count;
    state->say.kind = SENDING;
    if (!endpoint_posted(run, &state->say,
                         fi_tsend(endpoint->ways[0].ep, &state->saying, sizeof state->saying,
                                  fi_mr_desc(endpoint->small), endpoint->ways[0].peer, endpoint->tag | TAG_COUNT,
                                  &state->say.context),
                         "fi_tsend"))
        return;
    state->is_saying = true;
    state->told_count = state->saying;
}

static bool stream_all_here(const struct run *run)
{
    const struct stream *state = run->state;
    return run->peer_stopped && state->moved_count - state->before_count >= run->peer_sent_count && !state->is_saying;
}

static enum step stream_get(struct run *run)
{
    struct stream *state = run->state;
    struct operation *operation = endpoint_next(run, &state->endpoint);
    bool came = operation && operation->kind == RECEIVING;
    run->now_ns = clock_now_ns();
    if (came) {
        state->last_slot = operation->slot;
        state->free[state->free_count++] = operation;
        state->last_ns = run->now_ns;
        if (!state->first_ns)
            state->first_ns = run->now_ns;
        state->moved_count++;
        run_arrived(run, run->now_ns, (double)state->bytes);
    } else if (operation && operation->kind == SENDING) {
        state->is_saying = false;
    }
    if (run->failure.failed || !stream_receives(run))
        return STEP_FAILED;
    uint64_t open_count = state->moved_count - state->told_count;
    bool quiet = run->now_ns > state->last_ns + count_after_ns || state->endpoint.settings.wait_by == WAIT_OBJECT;
    if (2 * open_count >= state->window || (!operation && quiet))
        stream_say(run);
    if (run->failure.failed)
        return STEP_FAILED;
    if (came)
        return STEP_OPERATION;
    if (stream_all_here(run))
        return STEP_DONE;
    return operation ? STEP_MOVED : endpoint_idle(run, &state->endpoint);
}

static enum step stream_step(struct run *run)
{
    return run->is_active ? stream_put(run) : stream_get(run);
}

static void stream_report(struct run *run)
{
    struct stream *state = run->state;
    struct stream_metrics *metrics = run->metrics;
    endpoint_granted(run, &state->endpoint);
    if (run->is_active) {
        metrics->sent_count = (double)run->sent_count;
        metrics->sent_bytes = (double)run->sent_bytes;
        return;
    }
    double count = (double)(state->moved_count - state->before_count), bytes = count * (double)state->bytes;
    double took_ns = (double)(state->last_ns - state->first_ns);
    metrics->received_count = count;
    metrics->received_bytes = bytes;
    run_ramp(run);
    if (count < 2 || took_ns <= 0) {
        run_invalid(run, "too short: the receiver got %.0f messages; raise duration_s or operation_count_max", count);
        return;
    }
    if (!memory_is_noise(endpoint_at(&state->endpoint, state->last_slot), state->bytes))
        run_invalid(run, "the last message is not what was sent");
    metrics->throughput_bps = (bytes - (double)state->bytes) * 8e9 / took_ns;
    metrics->message_rate_pps = (count - 1) * 1e9 / took_ns;
}

static void stream_close(struct run *run)
{
    struct stream *state = run->state;
    endpoint_forget(state->operations, state->room);
    endpoint_close(&state->endpoint);
    free(state->operations);
    free(state->free);
}

const struct kernel kernel_fabric_stream = {
    .name = "fabric_stream",
    .summary = "throughput and rate of tagged messages over a provider of libfabric, below MPI",
    .method =
        "The sender gives fi_tsend() one message after the other until duration_s is over; at most window_count are "
        "under way. The receiver has posted a receive for each of those before, and says what has arrived after each "
        "half of a window. The rate is the receiver's: messages after its first over the time from that one's "
        "completion to the last one's. Everything that was sent has arrived at the end, and the last message is "
        "compared with what was sent.",
    .size_option = "message_bytes",
    .options = OPTION_TABLE(option_rows, struct stream_options),
    .metrics = METRIC_TABLE(metric_rows, struct stream_metrics),
    .state_bytes = sizeof(struct stream),
    .tells = true,
    .server_sends = stream_server_sends,
    .listen = stream_listen,
    .open = stream_open,
    .begin = stream_begin,
    .settle = stream_settle,
    .step = stream_step,
    .report = stream_report,
    .close = stream_close,
};
