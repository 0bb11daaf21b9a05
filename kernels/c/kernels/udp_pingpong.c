/* udp_pingpong: a datagram there and another back; a lost one costs its time-out and nothing else. */
#include "base/sequence.h"
#include "base/signals.h"
#include "kernels/requests.h"
#include "kernels/sockets.h"
#include "kernels/stamps.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static const double block_limit_s = 0.02, exact_limit_s = 0.1, settle_limit_s = 1, settle_interval_s = 0.1;
static const uint64_t settle_number = 0xffffffffffffffULL; /* of the exchange before the clock starts: no request */

struct udp_pingpong_options {
    struct common_options common;
    int64_t message_bytes;
    struct request_settings requests;
    double reply_timeout_s;
    int64_t clock; /* stamps_clocks */
    struct socket_settings sockets;
};

static const struct option_row option_rows[] = {
    OPTION_INTEGER_ROW(struct udp_pingpong_options, message_bytes, 16, DATAGRAM_HEAD_BYTES, 65507,
                       "payload of a request; its first 16 bytes carry number and stamp, and so do those of a reply"),
    OPTION_ROWS_REQUESTS(struct udp_pingpong_options, 65507),
    OPTION_ROWS_COMMON(struct udp_pingpong_options),
    OPTION_ROWS_PLACE(struct udp_pingpong_options),
    OPTION_ROWS_SERIES(struct udp_pingpong_options),
    OPTION_ROWS_SWEEP(struct udp_pingpong_options),
    OPTION_NUMBER_ROW(struct udp_pingpong_options, reply_timeout_s, 0.2, 0.001, 60,
                      "a reply that takes longer counts as lost, or as late if it still comes"),
    OPTION_ROW_CLOCK(struct udp_pingpong_options),
    OPTION_ROWS_CAPTURE(struct udp_pingpong_options),
    OPTION_ROWS_UDP(struct udp_pingpong_options)};

static const struct option_relation relations[] = {RELATIONS_SOURCE, RELATION_FLOWS};

struct udp_pingpong_metrics {
    struct common_metrics common;
    struct round_trip_metrics round_trip;
    struct request_metrics requests;
    struct stamps_metrics stamps;
    double sent_count, received_count, late_count, lost_count, lost_ratio, duplicate_count, request_lost_count;
};

static const struct metric_row metric_rows[] = {
    METRIC_ROWS_ROUND_TRIP(struct udp_pingpong_metrics),
    METRIC_ROW_WIDTH(struct udp_pingpong_metrics),
    METRIC_ROWS_REQUESTS(struct udp_pingpong_metrics),
    METRIC_ROW(struct udp_pingpong_metrics, sent_count, BETTER_NONE, "datagrams that the client sent"),
    METRIC_ROW(struct udp_pingpong_metrics, received_count, BETTER_NONE, "replies that came in time"),
    METRIC_ROW(struct udp_pingpong_metrics, late_count, BETTER_LOWER, "replies that came after reply_timeout_s"),
    METRIC_ROW(struct udp_pingpong_metrics, lost_count, BETTER_LOWER, "datagrams without a reply, in time or late"),
    METRIC_ROW(struct udp_pingpong_metrics, lost_ratio, BETTER_LOWER, "lost_count over sent_count"),
    METRIC_ROW(struct udp_pingpong_metrics, duplicate_count, BETTER_LOWER, "replies that came again"),
    METRIC_ROW(struct udp_pingpong_metrics, request_lost_count, BETTER_LOWER,
               "datagrams that did not reach the server: the part of lost_count on the way there"),
    METRIC_ROWS_STAMPS(struct udp_pingpong_metrics),
    METRIC_ROWS_CAPTURE(struct udp_pingpong_metrics),
    METRIC_ROWS_COMMON(struct udp_pingpong_metrics),
    METRIC_ROWS_CALLS(struct udp_pingpong_metrics),
};

/* A request that waits for its reply. */
struct slot {
    uint64_t sent_ns;
    bool waiting;
};

struct udp_pingpong {
    int listener;
    struct flows flows;
    uint8_t *buffer;
    size_t request_bytes, reply_bytes, buffer_bytes;
    uint64_t limit_ns;
    struct requests requests;
    struct stamps *stamps;
    struct slot *slots; /* client: by number; a power of two of them */
    size_t slot_count, outstanding_max;
    uint64_t oldest, late_count, in_time_count; /* every number below oldest is settled */
    struct sequence sequence;                   /* client: replies; server: requests */
};

static bool udp_pingpong_listen(struct run *run)
{
    struct udp_pingpong *state = run->state;
    const struct udp_pingpong_options *options = run->options;
    return sockets_udp_listen(run, &options->sockets, &state->listener);
}

static void udp_pingpong_sizes(struct run *run)
{
    struct udp_pingpong *state = run->state;
    const struct udp_pingpong_options *options = run->options;
    const struct request_settings *asked = &options->requests;
    state->request_bytes = (size_t)options->message_bytes;
    state->reply_bytes = asked->reply_bytes ? (size_t)asked->reply_bytes : state->request_bytes;
    if (state->reply_bytes < DATAGRAM_HEAD_BYTES)
        state->reply_bytes = DATAGRAM_HEAD_BYTES;
    state->buffer_bytes = state->request_bytes > state->reply_bytes ? state->request_bytes : state->reply_bytes;
    state->buffer = run_noise(run, state->buffer_bytes + 1);
    state->outstanding_max = (size_t)(asked->outstanding_count * asked->flow_count);
    for (state->slot_count = 1024; state->slot_count < 4 * state->outstanding_max;)
        state->slot_count *= 2;
    state->slots = memory_new(state->slot_count, sizeof *state->slots);
    state->limit_ns = clock_ns_from_s(options->reply_timeout_s);
}

static bool udp_pingpong_open(struct run *run)
{
    struct udp_pingpong *state = run->state;
    const struct udp_pingpong_options *options = run->options;
    struct flows *flows = &state->flows;
    double limit_s =
        run->is_server || options->reply_timeout_s > block_limit_s ? block_limit_s : options->reply_timeout_s;
    udp_pingpong_sizes(run);
    requests_prepare(&state->requests, &options->requests);
    if (!sockets_udp_open(run, &options->sockets, state->buffer_bytes, &state->listener, flows,
                          (size_t)options->requests.flow_count))
        return false;
    for (size_t i = 0; i < flows->count; i++)
        if (!sockets_timeout(run, flows->list[i].descriptor, limit_s))
            return false;
    return stamps_open(run, options->clock, flows, state->slot_count, &state->stamps) &&
           flows_prepare(run, flows, (enum flows_wait)options->requests.wait_by);
}

static void udp_pingpong_begin(struct run *run)
{
    struct udp_pingpong *state = run->state;
    flows_begin(&state->flows);
    requests_begin(&state->requests);
    sequence_clear(&state->sequence);
    stamps_begin(state->stamps);
    for (size_t i = 0; i < state->slot_count; i++)
        state->slots[i].waiting = false;
    state->oldest = state->late_count = state->in_time_count = 0;
}

/* Sends one datagram. Errors that pass (full queue, the peer's ICMP) leave it to the time-out. */
static bool udp_pingpong_send(struct run *run, const struct flow *flow, size_t bytes, uint64_t number)
{
    const struct udp_pingpong *state = run->state;
    uint64_t call_ns = state->stamps ? clock_now_ns() : 0;
    run->call_count++;
    bool sent = send(flow->descriptor, state->buffer, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
    int error = errno;
    stamps_sent(state->stamps, flow, sent, number, call_ns);
    if (sent || error == EAGAIN || error == EINTR || error == ENOBUFS || error == ECONNREFUSED)
        return true;
    errno = error;
    return datagram_refused(run, flow->descriptor, run->is_server ? "reply_bytes" : "message_bytes", bytes);
}

static ssize_t udp_pingpong_call(struct run *run, const struct flow *flow, int flags)
{
    struct udp_pingpong *state = run->state;
    if (state->stamps)
        return stamps_receive(state->stamps, flow, state->buffer, state->buffer_bytes + 1, flags, &run->now_ns);
    ssize_t got = recv(flow->descriptor, state->buffer, state->buffer_bytes + 1, flags);
    int error = errno;
    run->now_ns = clock_now_ns();
    errno = error;
    return got;
}

/* Receives one datagram of this phase. STEP_OPERATION when there is one, with its number. */
static enum step udp_pingpong_receive(struct run *run, struct flow *flow, int flags, size_t bytes, uint64_t *number,
                                      uint64_t *stamp_ns)
{
    struct udp_pingpong *state = run->state;
    ssize_t got = udp_pingpong_call(run, flow, flags);
    int error = errno;
    run->call_count++;
    if (got == (ssize_t)bytes && datagram_read(state->buffer, number, stamp_ns) == run->phase)
        return STEP_OPERATION;
    if (got < 0 && error == EAGAIN) {
        flow->readable = false;
        run->call_count += stamps_collect(state->stamps, flow); /* else poll() always has something to tell */
    }
    if (got >= 0)
        return STEP_MOVED;
    if (error == EAGAIN || error == EINTR || error == ECONNREFUSED)
        return STEP_IDLE;
    errno = error;
    fail_system(&run->failure, "recv");
    return STEP_FAILED;
}

/* Asks until an answer comes, or a second has passed: what the path loses is measured afterwards. */
static bool udp_pingpong_settle(struct run *run)
{
    struct udp_pingpong *state = run->state;
    struct flow *flow = &state->flows.list[0];
    uint64_t number = 0, stamp_ns, ask_ns = 0, end_ns = clock_now_ns() + clock_ns_from_s(settle_limit_s);
    for (run->now_ns = clock_now_ns(); run->now_ns < end_ns;) {
        if (run->now_ns >= ask_ns) {
            ask_ns = run->now_ns + clock_ns_from_s(settle_interval_s);
            datagram_write(state->buffer, run->phase, settle_number, run->now_ns);
            if (!udp_pingpong_send(run, flow, state->request_bytes, settle_number))
                return false;
        }
        enum step step = udp_pingpong_receive(run, flow, 0, state->reply_bytes, &number, &stamp_ns);
        if (step == STEP_FAILED || !control_silent(&run->control, &run->failure))
            return false;
        if (signals_stop())
            return fail(&run->failure, EXIT_INVALID, "interrupted by signal %d", signals_stop());
        if (step == STEP_OPERATION && number == settle_number)
            break;
    }
    run->call_count = 0;
    return true;
}

static struct slot *udp_pingpong_slot(struct udp_pingpong *state, uint64_t number)
{
    return &state->slots[number & (state->slot_count - 1)];
}

/* Those whose time is over are lost, or late if they still come. True when there was one. */
static bool udp_pingpong_expire(struct run *run)
{
    struct udp_pingpong *state = run->state;
    bool any = false;
    for (; state->oldest < run->sent_count; state->oldest++) {
        struct slot *slot = udp_pingpong_slot(state, state->oldest);
        if (!slot->waiting)
            continue;
        if (run->now_ns < slot->sent_ns + state->limit_ns)
            break;
        slot->waiting = false;
        run->under_way_count--;
        run->operation_count++; /* one without a reply; the engine counts those with one */
        any = true;
    }
    return any;
}

static uint64_t udp_pingpong_due(struct run *run)
{
    struct udp_pingpong *state = run->state;
    uint64_t due_ns = FLOWS_NEVER;
    if (requests_may_start(run) && run->under_way_count < state->outstanding_max &&
        run->sent_count - state->oldest < state->slot_count)
        due_ns = requests_due(run, &state->requests);
    /* A short time-out is exact: SO_RCVTIMEO counts in ticks of the kernel (up to 10 ms), ppoll() does not. */
    if (state->oldest < run->sent_count && state->limit_ns <= clock_ns_from_s(exact_limit_s)) {
        uint64_t over_ns = udp_pingpong_slot(state, state->oldest)->sent_ns + state->limit_ns;
        due_ns = over_ns < due_ns ? over_ns : due_ns;
    }
    return due_ns;
}

static enum step udp_pingpong_put(struct run *run, struct flow *flow, int flags)
{
    struct udp_pingpong *state = run->state;
    (void)flags; /* a full queue is waited for: 20 ms at most */
    if (udp_pingpong_expire(run))
        return STEP_MOVED;
    if (!requests_may_start(run) || run->under_way_count >= state->outstanding_max ||
        run->sent_count - state->oldest >= state->slot_count || requests_due(run, &state->requests) > run->now_ns)
        return STEP_IDLE;
    uint64_t start_ns = requests_start(run, &state->requests);
    *udp_pingpong_slot(state, run->sent_count) =
        (struct slot){.sent_ns = state->requests.gap_ns > 0 ? run->now_ns : start_ns, .waiting = true};
    datagram_write(state->buffer, run->phase, run->sent_count, start_ns);
    if (!udp_pingpong_send(run, flow, state->request_bytes, run->sent_count))
        return STEP_FAILED;
    run->sent_count++;
    run->sent_bytes += state->request_bytes;
    return STEP_MOVED;
}

static enum step udp_pingpong_get(struct run *run, struct flow *flow, int flags)
{
    struct udp_pingpong *state = run->state;
    uint64_t number, start_ns;
    enum step step = udp_pingpong_receive(run, flow, flags, state->reply_bytes, &number, &start_ns);
    if (step != STEP_OPERATION || number >= run->sent_count)
        return step == STEP_OPERATION ? STEP_MOVED : step;
    if (!sequence_add(&state->sequence, number))
        return STEP_MOVED;
    /* A late one is a round trip too: without it the slowest would be missing from the percentiles. */
    requests_replied(run, &state->requests, start_ns);
    stamps_came(state->stamps, number, run->now_ns);
    run->call_count += stamps_collect(state->stamps, flow);
    struct slot *slot = udp_pingpong_slot(state, number);
    bool waiting = number >= state->oldest && slot->waiting;
    bool in_time = waiting && run->now_ns - slot->sent_ns <= state->limit_ns;
    *(in_time ? &state->in_time_count : &state->late_count) += 1;
    if (!waiting)
        return STEP_MOVED;
    slot->waiting = false;
    run->under_way_count--;
    while (state->oldest < run->sent_count && !udp_pingpong_slot(state, state->oldest)->waiting)
        state->oldest++;
    return STEP_OPERATION;
}

static enum step udp_pingpong_answer(struct run *run, struct flow *flow, int flags)
{
    struct udp_pingpong *state = run->state;
    uint64_t number, start_ns;
    enum step step = udp_pingpong_receive(run, flow, flags, state->request_bytes, &number, &start_ns);
    if (step != STEP_OPERATION)
        return step;
    if (number != settle_number) {
        sequence_add(&state->sequence, number);
        stamps_came(state->stamps, number, run->now_ns);
    }
    if (!udp_pingpong_send(run, flow, state->reply_bytes, number))
        return STEP_FAILED;
    run->call_count += stamps_collect(state->stamps, flow);
    return STEP_OPERATION;
}

static uint64_t never_due(struct run *run)
{
    (void)run;
    return FLOWS_NEVER;
}

static enum step udp_pingpong_step(struct run *run)
{
    static const struct flow_events client = {udp_pingpong_due, udp_pingpong_put, udp_pingpong_get},
                                    server = {never_due, NULL, udp_pingpong_answer};
    struct udp_pingpong *state = run->state;
    if (!run->is_active)
        return run->peer_stopped ? STEP_DONE : flows_step(run, &state->flows, &server);
    enum step step = flows_step(run, &state->flows, &client);
    return step == STEP_IDLE && udp_pingpong_expire(run) ? STEP_MOVED : step;
}

static void udp_pingpong_report(struct run *run)
{
    const struct udp_pingpong *state = run->state;
    const struct udp_pingpong_options *options = run->options;
    struct udp_pingpong_metrics *metrics = run->metrics;
    socket_options_granted(run, state->flows.list[0].descriptor, &options->sockets, SOCK_DGRAM);
    stamps_report(run, state->stamps, &metrics->stamps);
    if (!run->is_active) {
        metrics->request_lost_count = fmax((double)run->peer_sent_count - (double)state->sequence.unique_count, 0);
        return;
    }
    round_trip_fill(run->histogram, &metrics->round_trip);
    requests_report(run, &state->requests, &metrics->requests);
    metrics->sent_count = (double)run->sent_count;
    metrics->received_count = (double)state->in_time_count;
    metrics->late_count = (double)state->late_count;
    metrics->lost_count = (double)(run->sent_count - state->in_time_count - state->late_count);
    metrics->lost_ratio = run->sent_count ? metrics->lost_count / (double)run->sent_count : (double)NAN;
    metrics->duplicate_count = (double)state->sequence.duplicate_count;
    if (!state->in_time_count)
        run_invalid(run, "no reply in time to any of %llu datagrams", (unsigned long long)run->sent_count);
}

static void udp_pingpong_close(struct run *run)
{
    struct udp_pingpong *state = run->state;
    if (state->listener > 0)
        close(state->listener);
    flows_close(&state->flows);
    stamps_close(state->stamps);
    free(state->slots);
}

const struct kernel kernel_udp_pingpong = {
    .name = "udp_pingpong",
    .summary = "round trip and loss of a UDP datagram, one or many under way",
    .method =
        "The client stamps the time before send(), sends a numbered datagram, waits for the reply with that number and "
        "stamps again: one sample is the full round trip. With rate_pps a round trip begins when its datagram was due, "
        "whether or not it could be sent then. A datagram without a reply costs reply_timeout_s and counts as lost; "
        "the next one follows.",
    .size_option = "message_bytes",
    .options = OPTION_TABLE_RELATED(option_rows, struct udp_pingpong_options, NULL, relations),
    .metrics = METRIC_TABLE(metric_rows, struct udp_pingpong_metrics),
    .state_bytes = sizeof(struct udp_pingpong),
    .round_trips = true,
    .listen = udp_pingpong_listen,
    .open = udp_pingpong_open,
    .begin = udp_pingpong_begin,
    .settle = udp_pingpong_settle,
    .step = udp_pingpong_step,
    .report = udp_pingpong_report,
    .close = udp_pingpong_close,
};
