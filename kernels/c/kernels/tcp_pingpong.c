/* tcp_pingpong: a message there and another back over TCP, one or many under way. */
#include "base/signals.h"
#include "evidence/tcp_info.h"
#include "kernels/requests.h"
#include "kernels/sockets.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static const double block_limit_s = 0.05;
enum { READ_BYTES_MIN = 16384 }; /* many small ones come with one read */

struct tcp_pingpong_options {
    struct common_options common;
    int64_t message_bytes;
    struct request_settings requests;
    double reply_timeout_s;
    struct socket_settings sockets;
};

static const struct option_row option_rows[] = {
    OPTION_INTEGER_ROW(struct tcp_pingpong_options, message_bytes, 1, 1, 67108864, "bytes of a request"),
    OPTION_ROWS_REQUESTS(struct tcp_pingpong_options, 67108864),
    OPTION_ROWS_COMMON(struct tcp_pingpong_options),
    OPTION_ROWS_PLACE(struct tcp_pingpong_options),
    OPTION_ROWS_SERIES(struct tcp_pingpong_options),
    OPTION_ROWS_SWEEP(struct tcp_pingpong_options),
    OPTION_NUMBER_ROW(struct tcp_pingpong_options, reply_timeout_s, 10, 0.001, 600,
                      "a reply that takes longer ends the measurement"),
    OPTION_ROWS_CAPTURE(struct tcp_pingpong_options),
    OPTION_ROWS_TCP(struct tcp_pingpong_options)};

static const struct option_default option_defaults[] = {{"no_delay", 1}, {NULL, 0}};

static const struct option_relation relations[] = {RELATIONS_SOURCE, RELATION_FLOWS, RELATION_MSS};

struct tcp_pingpong_metrics {
    struct common_metrics common;
    struct round_trip_metrics round_trip;
    struct request_metrics requests;
    double operation_count, retransmit_count;
};

static const struct metric_row metric_rows[] = {
    METRIC_ROWS_ROUND_TRIP(struct tcp_pingpong_metrics),
    METRIC_ROW_WIDTH(struct tcp_pingpong_metrics),
    METRIC_ROWS_REQUESTS(struct tcp_pingpong_metrics),
    METRIC_ROW(struct tcp_pingpong_metrics, operation_count, BETTER_NONE, "round trips measured"),
    METRIC_ROW(struct tcp_pingpong_metrics, retransmit_count, BETTER_LOWER,
               "segments that the client sent again (TCP_INFO)"),
    METRIC_ROWS_CAPTURE(struct tcp_pingpong_metrics),
    METRIC_ROWS_COMMON(struct tcp_pingpong_metrics),
    METRIC_ROWS_CALLS(struct tcp_pingpong_metrics),
};

/* The messages of a flow are in order. At both ends flow->sent and flow->received are of the message under way; at the
 * server flow->count is how many replies it owes. */
struct tcp_pingpong {
    int listener;
    struct flows flows;
    char *buffer;
    size_t buffer_bytes, in_bytes, out_bytes; /* of the messages that this end receives and sends */
    struct requests requests;
    size_t outstanding_max;
    uint64_t (*starts)[OUTSTANDING_MAX]; /* client: of each flow's requests under way, by number */
    uint64_t begun[FLOWS_OF_REQUESTS_MAX], ended[FLOWS_OF_REQUESTS_MAX];
    size_t partial_count; /* flows whose message is not wholly in its socket */
    double retransmits_before;
};

static bool tcp_pingpong_listen(struct run *run)
{
    struct tcp_pingpong *state = run->state;
    const struct tcp_pingpong_options *options = run->options;
    return sockets_tcp_listen(run, &options->sockets, &state->listener);
}

static void tcp_pingpong_sizes(struct run *run)
{
    struct tcp_pingpong *state = run->state;
    const struct tcp_pingpong_options *options = run->options;
    size_t request = (size_t)options->message_bytes;
    size_t reply = options->requests.reply_bytes ? (size_t)options->requests.reply_bytes : request;
    state->in_bytes = run->is_active ? reply : request;
    state->out_bytes = run->is_active ? request : reply;
    state->buffer_bytes = request > reply ? request : reply;
    if (state->buffer_bytes < READ_BYTES_MIN)
        state->buffer_bytes = READ_BYTES_MIN;
    state->buffer = run_noise(run, state->buffer_bytes);
    state->outstanding_max = (size_t)options->requests.outstanding_count;
    state->starts = memory_new((size_t)options->requests.flow_count, sizeof *state->starts);
}

static bool tcp_pingpong_open(struct run *run)
{
    struct tcp_pingpong *state = run->state;
    const struct tcp_pingpong_options *options = run->options;
    struct flows *flows = &state->flows;
    tcp_pingpong_sizes(run);
    requests_prepare(&state->requests, &options->requests);
    if (!sockets_tcp_open(run, &options->sockets, &state->listener, flows, (size_t)options->requests.flow_count))
        return false;
    for (size_t i = 0; i < flows->count; i++)
        if (!sockets_timeout(run, flows->list[i].descriptor, block_limit_s))
            return false;
    return flows_prepare(run, flows, (enum flows_wait)options->requests.wait_by);
}

static void tcp_pingpong_begin(struct run *run)
{
    struct tcp_pingpong *state = run->state;
    flows_begin(&state->flows);
    requests_begin(&state->requests);
    for (size_t i = 0; i < state->flows.count; i++) {
        state->begun[i] = state->ended[i] = 0;
        state->flows.list[i].held = !run->is_active;
    }
    state->partial_count = 0;
    state->retransmits_before = tcp_info_retransmits(state->flows.list[0].descriptor);
}

/* Nothing moved: whether it is worth to go on. */
static bool tcp_pingpong_patient(struct run *run, ssize_t moved, uint64_t deadline_ns)
{
    const struct tcp_pingpong_options *options = run->options;
    if (moved == 0 || (errno != EAGAIN && errno != EINTR))
        return fail(&run->failure, EXIT_PEER, "the peer is gone (%s)", moved ? fail_errno_name(errno) : "closed");
    if (signals_stop())
        return fail(&run->failure, EXIT_INVALID, "interrupted by signal %d", signals_stop());
    if (clock_now_ns() > deadline_ns)
        return fail(&run->failure, EXIT_PEER, "timed out: no reply in %g s", options->reply_timeout_s);
    return control_silent(&run->control, &run->failure);
}

static bool tcp_pingpong_settle(struct run *run)
{
    struct tcp_pingpong *state = run->state;
    const struct tcp_pingpong_options *options = run->options;
    int descriptor = state->flows.list[0].descriptor;
    uint64_t deadline_ns = clock_now_ns() + clock_ns_from_s(options->reply_timeout_s);
    for (size_t sent = 0, received = 0; received < state->in_bytes;) {
        bool sends = sent < state->out_bytes;
        ssize_t moved = sends ? send(descriptor, state->buffer + sent, state->out_bytes - sent, MSG_NOSIGNAL)
                              : recv(descriptor, state->buffer, state->in_bytes - received, 0);
        if (moved > 0)
            *(sends ? &sent : &received) += (size_t)moved;
        else if (!tcp_pingpong_patient(run, moved, deadline_ns))
            return false;
    }
    return true;
}

static enum step tcp_pingpong_gone(struct run *run, struct flow *flow, bool sending, ssize_t moved)
{
    *(sending ? &flow->writable : &flow->readable) = false;
    if (moved < 0 && (errno == EAGAIN || errno == EINTR))
        return STEP_IDLE;
    fail(&run->failure, EXIT_PEER, "%s: the peer is gone (%s)", sending ? "send" : "recv",
         moved ? fail_errno_name(errno) : "closed");
    return STEP_FAILED;
}

/* Sends on, from where the message under way stands. STEP_OPERATION: it is wholly in the socket. */
static enum step tcp_pingpong_send(struct run *run, struct flow *flow)
{
    struct tcp_pingpong *state = run->state;
    bool begun = flow->sent > 0;
    ssize_t sent =
        send(flow->descriptor, state->buffer + flow->sent, state->out_bytes - flow->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    run->call_count++;
    if (sent <= 0)
        return tcp_pingpong_gone(run, flow, true, sent ? sent : -1);
    flow->sent += (size_t)sent;
    bool whole = flow->sent == state->out_bytes;
    state->partial_count += (size_t)(!whole && !begun);
    state->partial_count -= (size_t)(whole && begun);
    flow->sent = whole ? 0 : flow->sent;
    return whole ? STEP_OPERATION : STEP_MOVED;
}

/* *count: messages that are whole with this read. */
static enum step tcp_pingpong_receive(struct run *run, struct flow *flow, int flags, size_t *count)
{
    struct tcp_pingpong *state = run->state;
    ssize_t got = recv(flow->descriptor, state->buffer, state->buffer_bytes, flags);
    run->call_count++;
    run->now_ns = clock_now_ns();
    if (got <= 0)
        return tcp_pingpong_gone(run, flow, false, got);
    flow->received += (size_t)got;
    *count = flow->received / state->in_bytes;
    flow->received %= state->in_bytes;
    return STEP_MOVED;
}

static uint64_t tcp_pingpong_due(struct run *run)
{
    struct tcp_pingpong *state = run->state;
    if (state->partial_count)
        return 0;
    if (!requests_may_start(run) || run->under_way_count >= state->outstanding_max * state->flows.count)
        return FLOWS_NEVER;
    return requests_due(run, &state->requests);
}

static enum step tcp_pingpong_ask(struct run *run, struct flow *flow, int flags)
{
    struct tcp_pingpong *state = run->state;
    size_t i = flow->index;
    (void)flags; /* never blocks: replies have to be taken meanwhile */
    if (!flow->sent) {
        if (state->begun[i] - state->ended[i] >= state->outstanding_max || !requests_may_start(run) ||
            requests_due(run, &state->requests) > run->now_ns)
            return STEP_IDLE;
        state->starts[i][state->begun[i]++ % OUTSTANDING_MAX] = requests_start(run, &state->requests);
        flow->held = state->begun[i] - state->ended[i] >= state->outstanding_max;
    }
    enum step step = tcp_pingpong_send(run, flow);
    if (step == STEP_OPERATION) {
        run->sent_count++;
        run->sent_bytes += state->out_bytes;
    } else {
        flow->held = false; /* the rest of it */
    }
    return step == STEP_OPERATION ? STEP_MOVED : step;
}

static enum step tcp_pingpong_hear(struct run *run, struct flow *flow, int flags)
{
    struct tcp_pingpong *state = run->state;
    size_t count = 0, i = flow->index;
    enum step step = tcp_pingpong_receive(run, flow, flags, &count);
    for (size_t n = 0; n < count && state->ended[i] < state->begun[i]; n++) {
        requests_replied(run, &state->requests, state->starts[i][state->ended[i]++ % OUTSTANDING_MAX]);
        run->under_way_count--;
        run->operation_count += n > 0; /* the engine counts the first */
        flow->held = false;
        step = STEP_OPERATION;
    }
    return step;
}

static bool tcp_pingpong_overdue(struct run *run)
{
    const struct tcp_pingpong *state = run->state;
    const struct tcp_pingpong_options *options = run->options;
    uint64_t limit_ns = clock_ns_from_s(options->reply_timeout_s);
    for (size_t i = 0; i < state->flows.count; i++)
        if (state->ended[i] < state->begun[i] &&
            run->now_ns > state->starts[i][state->ended[i] % OUTSTANDING_MAX] + limit_ns)
            return !fail(&run->failure, EXIT_PEER, "timed out: no reply in %g s", options->reply_timeout_s);
    return false;
}

/* The server sends what it owes when the socket did not take it at once. */
static uint64_t tcp_pingpong_owed(struct run *run)
{
    const struct tcp_pingpong *state = run->state;
    return state->requests.started_count ? 0 : FLOWS_NEVER;
}

static enum step tcp_pingpong_pay(struct run *run, struct flow *flow, int flags)
{
    struct tcp_pingpong *state = run->state;
    enum step step = flow->count ? STEP_MOVED : STEP_IDLE;
    (void)flags;
    while (flow->count && (step = tcp_pingpong_send(run, flow)) == STEP_OPERATION) {
        flow->count--;
        state->requests.started_count--;
    }
    flow->held = !flow->count;
    return step;
}

static enum step tcp_pingpong_answer(struct run *run, struct flow *flow, int flags)
{
    struct tcp_pingpong *state = run->state;
    size_t count = 0;
    enum step step = tcp_pingpong_receive(run, flow, flags, &count);
    flow->count += count;
    state->requests.started_count += count; /* owed on all flows */
    enum step paid = count ? tcp_pingpong_pay(run, flow, flags) : step;
    return step != STEP_FAILED && paid == STEP_IDLE ? STEP_MOVED : paid;
}

static enum step tcp_pingpong_step(struct run *run)
{
    static const struct flow_events client = {tcp_pingpong_due, tcp_pingpong_ask, tcp_pingpong_hear},
                                    server = {tcp_pingpong_owed, tcp_pingpong_pay, tcp_pingpong_answer};
    struct tcp_pingpong *state = run->state;
    if (!run->is_active) /* the client stops after the reply to its last message */
        return run->peer_stopped ? STEP_DONE : flows_step(run, &state->flows, &server);
    enum step step = flows_step(run, &state->flows, &client);
    return step == STEP_IDLE && tcp_pingpong_overdue(run) ? STEP_FAILED : step;
}

static void tcp_pingpong_report(struct run *run)
{
    const struct tcp_pingpong *state = run->state;
    const struct tcp_pingpong_options *options = run->options;
    struct tcp_pingpong_metrics *metrics = run->metrics;
    int descriptor = state->flows.list[0].descriptor;
    socket_options_granted(run, descriptor, &options->sockets, SOCK_STREAM);
    if (!run->is_active)
        return;
    round_trip_fill(run->histogram, &metrics->round_trip);
    requests_report(run, &state->requests, &metrics->requests);
    metrics->operation_count = (double)run->operation_count;
    metrics->retransmit_count = tcp_info_retransmits(descriptor) - state->retransmits_before;
}

static void tcp_pingpong_close(struct run *run)
{
    struct tcp_pingpong *state = run->state;
    if (state->listener > 0)
        close(state->listener);
    flows_close(&state->flows);
    free(state->starts);
}

const struct kernel kernel_tcp_pingpong = {
    .name = "tcp_pingpong",
    .summary = "round trip of a message over TCP, one or many under way",
    .method =
        "The client stamps the time before send(), sends message_bytes, receives the reply and stamps again: one "
        "sample is the full round trip, not half of it. With rate_pps a round trip begins when its request was due, "
        "whether or not it could be sent then. By default one message is under way at a time, with blocking calls.",
    .size_option = "message_bytes",
    .options = OPTION_TABLE_RELATED(option_rows, struct tcp_pingpong_options, option_defaults, relations),
    .metrics = METRIC_TABLE(metric_rows, struct tcp_pingpong_metrics),
    .state_bytes = sizeof(struct tcp_pingpong),
    .round_trips = true,
    .listen = tcp_pingpong_listen,
    .open = tcp_pingpong_open,
    .begin = tcp_pingpong_begin,
    .settle = tcp_pingpong_settle,
    .step = tcp_pingpong_step,
    .report = tcp_pingpong_report,
    .close = tcp_pingpong_close,
};
