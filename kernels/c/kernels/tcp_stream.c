/* tcp_stream: messages over TCP as fast as the sockets take them; what arrives is counted at the receiver. */
#include "evidence/tcp_info.h"
#include "evidence/tcp_intervals.h"
#include "kernels/arrival.h"
#include "kernels/companion.h"
#include "kernels/giving.h"
#include "kernels/lanes.h"
#include "kernels/sockets.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* Of a blocked call, between looks at the control channel. */
static const double block_limit_s = 0.05;
enum {
    READ_BYTES_MIN = 131072, /* the receiver reads at least this much at once, if nothing is asked for */
    ROW_BYTES_MAX = 1024,    /* calls that move less than this come in rows */
    ROW_CALLS = 16
};

struct tcp_stream_options {
    struct common_options common;
    int64_t message_bytes, read_bytes, direction, flow_count, wait_by, send_by;
    struct lane_settings lanes;
    struct companion_settings companion;
    struct socket_settings sockets;
};

static const struct option_row option_rows[] = {
    OPTION_INTEGER_ROW(struct tcp_stream_options, message_bytes, 131072, 1, 67108864, "bytes given to one call"),
    OPTION_INTEGER_ROW(struct tcp_stream_options, read_bytes, 0, 0, 67108864,
                       "room that the receiver gives one call; 0: as message_bytes, 131072 at least"),
    OPTION_CHOICE_ROW(struct tcp_stream_options, direction, flows_directions, "which end sends"),
    OPTION_INTEGER_ROW(struct tcp_stream_options, flow_count, 1, 1, FLOWS_MAX,
                       "TCP connections that send at once, served in turn by the threads of each end"),
    OPTION_ROWS_LANES(struct tcp_stream_options),
    OPTION_ROW_WAIT(struct tcp_stream_options),
    OPTION_ROW_GIVING(struct tcp_stream_options),
    OPTION_ROWS_COMMON(struct tcp_stream_options),
    OPTION_ROWS_PLACE(struct tcp_stream_options),
    OPTION_ROWS_SERIES(struct tcp_stream_options),
    OPTION_ROWS_SWEEP(struct tcp_stream_options),
    OPTION_ROWS_COMPANION(struct tcp_stream_options),
    OPTION_ROWS_CAPTURE(struct tcp_stream_options),
    OPTION_ROWS_TCP(struct tcp_stream_options)};

static const struct option_relation relations[] = {
    RELATION_LANES,
    RELATION_MSS,
    RELATIONS_SOURCE,
    RELATION_FLOWS,
    {"send_by", RELATION_ONE_OF, .words = "send sendfile", .when = "mptcp", .when_words = "true"}};

struct tcp_stream_metrics {
    struct common_metrics common;
    double throughput_bps, sent_bps, sent_count, sent_bytes, received_bytes, retransmit_count, tcp_round_trip_ns,
        receive_window_bytes, flow_fairness_ratio, return_throughput_bps, return_sent_bytes, return_received_bytes,
        return_retransmit_count, zero_copy_count, zero_copy_copied_count;
    struct companion_metrics companion;
    struct lane_metrics lanes;
};

static const struct metric_row metric_rows[] = {
    METRIC_ROW(struct tcp_stream_metrics, throughput_bps, BETTER_HIGHER,
               "bits per second at the receiver, from the arrival of its first read (whose bytes are left out) to the "
               "last before the stop"),
    METRIC_ROW(struct tcp_stream_metrics, sent_bps, BETTER_NONE, "bits per second that the sender's socket took"),
    METRIC_ROW(struct tcp_stream_metrics, sent_count, BETTER_NONE, "whole messages sent"),
    METRIC_ROW(struct tcp_stream_metrics, sent_bytes, BETTER_NONE, "bytes sent"),
    METRIC_ROW(struct tcp_stream_metrics, received_bytes, BETTER_NONE, "bytes received"),
    METRIC_ROW(struct tcp_stream_metrics, retransmit_count, BETTER_LOWER, "segments sent again (TCP_INFO)"),
    METRIC_ROW(struct tcp_stream_metrics, tcp_round_trip_ns, BETTER_LOWER,
               "mean over the flows of the sender's kernel's smoothed round trip at the end of the measurement, under "
               "load (TCP_INFO)"),
    METRIC_ROW(struct tcp_stream_metrics, receive_window_bytes, BETTER_NONE,
               "what the receiver lets the sender have in flight at the end, all flows together (TCP_INFO, Linux 5.4): "
               "no stream is faster than this per round trip"),
    METRIC_ROW(struct tcp_stream_metrics, flow_fairness_ratio, BETTER_HIGHER,
               "Jain's index of what the flows brought: 1 when all brought the same; left out with one flow"),
    METRIC_ROW(struct tcp_stream_metrics, return_throughput_bps, BETTER_HIGHER,
               "with direction both: throughput_bps from the server to the client, the other metrics are what the "
               "client sends"),
    METRIC_ROW(struct tcp_stream_metrics, return_sent_bytes, BETTER_NONE,
               "with direction both: bytes that the server sent"),
    METRIC_ROW(struct tcp_stream_metrics, return_received_bytes, BETTER_NONE,
               "with direction both: bytes that the client received"),
    METRIC_ROW(struct tcp_stream_metrics, return_retransmit_count, BETTER_LOWER,
               "with direction both: segments that the server sent again (TCP_INFO)"),
    METRIC_ROW(struct tcp_stream_metrics, zero_copy_count, BETTER_NONE,
               "with send_by zero_copy: calls whose bytes the device read where they were; with direction both: the "
               "client's"),
    METRIC_ROW(struct tcp_stream_metrics, zero_copy_copied_count, BETTER_LOWER,
               "with send_by zero_copy: calls whose bytes the kernel copied all the same"),
    METRIC_ROWS_CAPTURE(struct tcp_stream_metrics),
    METRIC_ROWS_COMMON(struct tcp_stream_metrics),
    METRIC_ROWS_PER_BYTE(struct tcp_stream_metrics),
    METRIC_ROWS_CALLS(struct tcp_stream_metrics),
    METRIC_ROWS_COMPANION(struct tcp_stream_metrics),
    METRIC_ROWS_LANES(struct tcp_stream_metrics),
};

/* Of each thread; what is of all of them, the first one has. */
struct tcp_stream {
    struct companion *companion;
    int listener;
    struct flows all, flows; /* of all threads, and of this one */
    struct lanes lanes;
    bool is_other; /* not of the first thread */
    struct giving giving;
    struct tcp_intervals intervals;
    char *out, *in;
    size_t in_bytes;
    uint64_t received_bytes, first_bytes, first_ns, last_ns;
    uint64_t stop_bytes, stop_ns; /* receiver: what of it was there when the sender stopped */
    struct arrivals arrivals;
    double retransmits_before, window_before;
};

static bool tcp_stream_server_sends(const void *options)
{
    return ((const struct tcp_stream_options *)options)->direction == SERVER_TO_CLIENT;
}

static bool tcp_stream_both_send(const void *options)
{
    return ((const struct tcp_stream_options *)options)->direction == BOTH_WAYS;
}

static bool tcp_stream_listen(struct run *run)
{
    struct tcp_stream *state = run->state;
    const struct tcp_stream_options *options = run->options;
    return companion_listen(run, &options->companion, &options->sockets, &state->companion) &&
           sockets_tcp_listen(run, &options->sockets, &state->listener);
}

static bool tcp_stream_part(struct run *run, void *to, size_t index, size_t count)
{
    const struct tcp_stream *first = run->state;
    const struct tcp_stream_options *options = run->options;
    struct tcp_stream *state = to;
    state->is_other = state != first;
    flows_part(&first->all, &state->flows, index, count);
    state->in_bytes = first->in_bytes;
    state->out = first->out;
    if (run_receives(run))
        state->in = run_noise(run, state->in_bytes);
    for (size_t i = 0; i < state->flows.count && run_receives(run); i++)
        arrivals_begin(&state->arrivals, state->flows.list[i].descriptor);
    return flows_prepare(run, &state->flows, (enum flows_wait)options->wait_by) &&
           (!run_sends(run) || giving_open(run, &state->giving, (enum giving_by)options->send_by, &state->flows,
                                           state->out, (size_t)options->message_bytes));
}

static void tcp_stream_part_close(void *part)
{
    struct tcp_stream *state = part;
    flows_forget(&state->flows);
    giving_close(&state->giving);
}

static bool tcp_stream_open(struct run *run)
{
    struct tcp_stream *state = run->state;
    const struct tcp_stream_options *options = run->options;
    size_t bytes = (size_t)options->message_bytes;
    state->in_bytes = options->read_bytes      ? (size_t)options->read_bytes
                      : bytes < READ_BYTES_MIN ? READ_BYTES_MIN
                                               : bytes;
    if (run_sends(run))
        state->out = run_noise(run, bytes);
    if (!companion_open(run, &options->companion, &options->sockets, &state->companion) ||
        !sockets_tcp_open(run, &options->sockets, &state->listener, &state->all, (size_t)options->flow_count))
        return false;
    for (size_t i = 0; i < state->all.count; i++)
        if (!sockets_timeout(run, state->all.list[i].descriptor, block_limit_s))
            return false;
    return lanes_open(run, &state->lanes, &options->lanes, tcp_stream_part, tcp_stream_part_close);
}

/* Of what TCP_INFO says of each flow. */
static double sum_of(const struct flows *flows, double (*value)(int descriptor))
{
    double sum = 0;
    for (size_t i = 0; i < flows->count; i++)
        sum += value(flows->list[i].descriptor);
    return sum;
}

static void tcp_stream_begin(struct run *run)
{
    struct tcp_stream *state = run->state;
    flows_begin(&state->flows);
    giving_begin(&state->giving, &state->flows);
    lanes_begin(&state->lanes);
    tcp_intervals_begin(&state->intervals, (unsigned)run_common(run)->series_interval_ms);
    for (size_t i = 0; i < state->all.count && run->phase == PHASE_MEASURE && run_sends(run); i++)
        tcp_intervals_flow(&state->intervals, state->all.list[i].descriptor);
    state->received_bytes = state->first_bytes = state->first_ns = state->last_ns = 0;
    state->stop_bytes = state->stop_ns = 0;
    state->arrivals.floor_ns = clock_now_ns(); /* all of the phase before has arrived */
    state->retransmits_before = sum_of(&state->all, tcp_info_retransmits);
    state->window_before = sum_of(&state->all, tcp_info_window);
}

static double tcp_stream_arrived_bytes(const struct run *run)
{
    const struct tcp_stream *state = run->state;
    return sum_of(&state->all, tcp_info_arrived_bytes);
}

/* Linux takes back the congestion window of a connection that was idle for long (tcp_slow_start_after_idle). */
static void tcp_stream_first_sent(struct run *run)
{
    const struct tcp_stream *state = run->state;
    double window = sum_of(&state->all, tcp_info_window);
    if (run->phase == PHASE_MEASURE && run_common(run)->warmup_s > 0 && state->all.count == 1 &&
        window < 0.8 * state->window_before)
        run_warn(run, "warmup_undone",
                 "the congestion window fell from %.0f to %.0f segments in the pause between warm-up and measurement",
                 state->window_before, window);
}

static uint64_t tcp_stream_due(struct run *run)
{
    return run_sends(run) ? 0 : FLOWS_NEVER;
}

/* How many calls follow each other with one look at clock, signals and control channel: of calls that move little, a
 * look would be a good part. */
static uint64_t tcp_stream_row(size_t bytes)
{
    return bytes < ROW_BYTES_MAX ? ROW_CALLS : 1;
}

/* A measurement that ends by count sends no message more. */
static uint64_t tcp_stream_row_out(const struct run *run, size_t bytes)
{
    uint64_t limit = run->phase == PHASE_MEASURE ? (uint64_t)run_common(run)->operation_count_max : 0;
    uint64_t row = tcp_stream_row(bytes);
    if (!limit || run->operation_count + row <= limit)
        return row;
    return run->operation_count < limit ? limit - run->operation_count : 1;
}

static enum step tcp_stream_put_one(struct run *run, struct flow *flow, size_t bytes, int flags)
{
    struct tcp_stream *state = run->state;
    ssize_t sent = giving_give(run, &state->giving, flow, bytes, flags);
    run->call_count++;
    if (sent < 0) {
        flow->writable = false;
        if (errno == EAGAIN || errno == EINTR)
            return STEP_IDLE;
        fail(&run->failure, EXIT_PEER, "send: the peer is gone (%s)", fail_errno_name(errno));
        return STEP_FAILED;
    }
    if (!run->sent_bytes)
        tcp_stream_first_sent(run);
    run->sent_bytes += (uint64_t)sent;
    flow->sent += (size_t)sent;
    if (flow->sent < bytes)
        return STEP_MOVED;
    flow->sent = 0;
    run->sent_count++;
    return STEP_OPERATION;
}

/* Only the first call of a row may block. */
static enum step tcp_stream_put(struct run *run, struct flow *flow, int flags)
{
    const struct tcp_stream *state = run->state;
    size_t bytes = (size_t)((const struct tcp_stream_options *)run->options)->message_bytes;
    uint64_t row = state->giving.by == GIVE_SEND ? tcp_stream_row_out(run, bytes) : 1, done = 0;
    enum step step = tcp_stream_put_one(run, flow, bytes, flags);
    while (step == STEP_OPERATION && ++done < row)
        step = tcp_stream_put_one(run, flow, bytes, MSG_DONTWAIT);
    run->now_ns = clock_now_ns();
    if (!done || step == STEP_FAILED)
        return step;
    run->operation_count += done - 1; /* the engine counts one more */
    return STEP_OPERATION;
}

/* The first read has the kernel's stamp of its arrival. */
static ssize_t tcp_stream_read(struct run *run, struct flow *flow, int flags, uint64_t *stamp_ns)
{
    struct tcp_stream *state = run->state;
    run->call_count++;
    if (!state->first_ns)
        return arrivals_receive(&state->arrivals, flow->descriptor, state->in, state->in_bytes, flags, &run->now_ns,
                                stamp_ns);
    ssize_t got = recv(flow->descriptor, state->in, state->in_bytes, flags);
    for (uint64_t row = tcp_stream_row(state->in_bytes); got > 0 && row > 1; row--) {
        run->call_count++;
        ssize_t more = recv(flow->descriptor, state->in, state->in_bytes, MSG_DONTWAIT);
        if (more <= 0) /* nothing is there, or the next call says what is wrong */
            break;
        got += more;
    }
    int error = errno;
    run->now_ns = clock_now_ns();
    errno = error;
    return got;
}

static enum step tcp_stream_get(struct run *run, struct flow *flow, int flags)
{
    struct tcp_stream *state = run->state;
    uint64_t stamp_ns = 0;
    ssize_t got = tcp_stream_read(run, flow, flags, &stamp_ns);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        flow->readable = false;
        return STEP_IDLE;
    }
    if (got <= 0) {
        fail(&run->failure, EXIT_PEER, "recv: the peer is gone (%s)", got ? fail_errno_name(errno) : "closed");
        return STEP_FAILED;
    }
    if (!state->first_ns) {
        state->first_ns = stamp_ns;
        state->first_bytes = (uint64_t)got;
    }
    flow->readable = (size_t)got >= state->in_bytes; /* else its buffer is empty: the next call would only say so */
    state->last_ns = run->now_ns;
    flow->bytes += (uint64_t)got;
    state->received_bytes += (uint64_t)got;
    if (state->is_other)
        lane_arrived(run, state->received_bytes, state->last_ns);
    run_arrived(run, run->now_ns, (double)got);
    return run->both_send ? STEP_MOVED : STEP_OPERATION;
}

static bool tcp_stream_all_here(struct run *run)
{
    struct tcp_stream *state = run->state;
    if (!run->peer_stopped)
        return false;
    uint64_t last_ns = state->last_ns, bytes = state->received_bytes + lanes_arrived(&state->lanes, &last_ns);
    if (!state->stop_ns) {
        state->stop_ns = last_ns;
        state->stop_bytes = bytes;
    }
    return bytes >= run->peer_sent_bytes;
}

/* The message under way at the stop stays a part of one: the next phase begins with a new one. */
static enum step tcp_stream_step(struct run *run)
{
    static const struct flow_events sender = {tcp_stream_due, tcp_stream_put, NULL},
                                    receiver = {tcp_stream_due, tcp_stream_put, tcp_stream_get};
    struct tcp_stream *state = run->state;
    if (run_sends(run))
        tcp_intervals_look(&state->intervals, run->phase_start_ns, run->now_ns);
    if (!lanes_step(&state->lanes))
        return STEP_FAILED;
    if (!state->is_other && run_receives(run) && tcp_stream_all_here(run))
        return STEP_DONE;
    return flows_step(run, &state->flows, run_receives(run) ? &receiver : &sender);
}

static void tcp_stream_halt(struct run *run)
{
    struct tcp_stream *state = run->state;
    lanes_halt(&state->lanes);
}

/* What the threads brought is added, once. */
static void tcp_stream_end(struct run *run)
{
    struct tcp_stream *state = run->state;
    lanes_end(&state->lanes);
    for (size_t i = 0; i < state->lanes.count; i++) {
        struct tcp_stream *part = i ? state->lanes.list[i].run.state : state;
        for (size_t f = 0; f < part->flows.count; f++)
            state->all.list[f * state->lanes.count + i].bytes = part->flows.list[f].bytes;
        if (!i)
            continue;
        state->received_bytes += part->received_bytes;
        if (part->first_ns && (!state->first_ns || part->first_ns < state->first_ns)) {
            state->first_ns = part->first_ns;
            state->first_bytes = part->first_bytes;
        }
        state->last_ns = part->last_ns > state->last_ns ? part->last_ns : state->last_ns;
        giving_join(&state->giving, &part->giving, &part->flows);
    }
}

static void tcp_stream_report_sender(struct run *run)
{
    struct tcp_stream *state = run->state;
    struct tcp_stream_metrics *metrics = run->metrics;
    bool back = run->both_send && run->is_server;
    giving_end(run, &state->giving, &state->flows);
    tcp_intervals_look(&state->intervals, run->phase_start_ns, run->sent_end_ns);
    for (size_t i = 0; i < TCP_COLUMN_COUNT && state->intervals.length; i++) {
        struct text json = {0};
        tcp_intervals_json(&state->intervals, i, &json);
        run_column(run, back, tcp_intervals_name(i), &json);
    }
    double again = sum_of(&state->all, tcp_info_retransmits) - state->retransmits_before;
    *(back ? &metrics->return_sent_bytes : &metrics->sent_bytes) = (double)run->sent_bytes;
    *(back ? &metrics->return_retransmit_count : &metrics->retransmit_count) = again;
    if (back)
        return;
    metrics->sent_count = (double)run->sent_count;
    if (state->giving.by == GIVE_ZERO_COPY) {
        metrics->zero_copy_count = (double)state->giving.kept_count;
        metrics->zero_copy_copied_count = (double)state->giving.copied_count;
    }
    metrics->sent_bps = (double)run->sent_bytes * 8e9 / (double)(run->sent_end_ns - run->phase_start_ns);
    metrics->receive_window_bytes = sum_of(&state->all, tcp_info_peer_window_bytes);
    metrics->tcp_round_trip_ns = sum_of(&state->all, tcp_info_round_trip_ns) / (double)state->all.count;
}

static void tcp_stream_report_receiver(struct run *run)
{
    const struct tcp_stream *state = run->state;
    struct tcp_stream_metrics *metrics = run->metrics;
    bool back = run->both_send && !run->is_server;
    arrivals_report(run, &state->arrivals);
    *(back ? &metrics->return_received_bytes : &metrics->received_bytes) = (double)state->received_bytes;
    run_ramp(run);
    if (state->all.count > 1 && !back)
        metrics->flow_fairness_ratio = flows_fairness(&state->all);
    /* The last flows to end, and what they send again, leave the line idle: not the time of the stream. */
    bool until_stop = state->stop_bytes > state->first_bytes + state->received_bytes / 2;
    uint64_t bytes = (until_stop ? state->stop_bytes : state->received_bytes) - state->first_bytes;
    uint64_t last_ns = until_stop ? state->stop_ns : state->last_ns;
    if (bytes && last_ns > state->first_ns)
        *(back ? &metrics->return_throughput_bps : &metrics->throughput_bps) =
            (double)bytes * 8e9 / (double)(last_ns - state->first_ns);
    else
        run_invalid(run, "too short: the receiver read %s; raise duration_s or operation_count_max",
                    state->first_ns ? "only once" : "nothing");
}

static void tcp_stream_report(struct run *run)
{
    struct tcp_stream *state = run->state;
    struct tcp_stream_metrics *metrics = run->metrics;
    const struct tcp_stream_options *options = run->options;
    socket_options_granted(run, state->all.list[0].descriptor, &options->sockets, SOCK_STREAM);
    lanes_report(&state->lanes, &metrics->lanes);
    if (run->is_active || run->both_send)
        tcp_stream_report_sender(run);
    if (run_receives(run))
        tcp_stream_report_receiver(run);
}

static bool tcp_stream_moment(struct run *run, enum moment moment)
{
    const struct tcp_stream *state = run->state;
    struct tcp_stream_metrics *metrics = run->metrics;
    return companion_moment(run, state->companion, moment, &metrics->companion);
}

static void tcp_stream_close(struct run *run)
{
    struct tcp_stream *state = run->state;
    companion_close(state->companion);
    if (state->listener > 0)
        close(state->listener);
    lanes_close(&state->lanes);
    tcp_stream_part_close(state);
    flows_close(&state->all);
    tcp_intervals_free(&state->intervals);
}

const struct kernel kernel_tcp_stream = {
    .name = "tcp_stream",
    .summary = "throughput of TCP over one connection or many, one way or both at once",
    .method =
        "The sender gives the socket message_bytes at a call until duration_s is over; the receiver reads until it has "
        "every "
        "byte that the sender says, on the control channel, it sent. The rate is the receiver's: bytes after its "
        "first read over the time from their arrival, as the kernel stamped it, to the last read before the stop (to "
        "the very last when over half came later).",
    .size_option = "message_bytes",
    .options = OPTION_TABLE_RELATED(option_rows, struct tcp_stream_options, NULL, relations),
    .metrics = METRIC_TABLE(metric_rows, struct tcp_stream_metrics),
    .state_bytes = sizeof(struct tcp_stream),
    .server_sends = tcp_stream_server_sends,
    .both_send = tcp_stream_both_send,
    .listen = tcp_stream_listen,
    .open = tcp_stream_open,
    .begin = tcp_stream_begin,
    .step = tcp_stream_step,
    .halt = tcp_stream_halt,
    .end = tcp_stream_end,
    .arrived_bytes = tcp_stream_arrived_bytes,
    .moment = tcp_stream_moment,
    .report = tcp_stream_report,
    .close = tcp_stream_close,
};
