/* tcp_stream: one end sends messages over one TCP connection as fast as the socket takes them, the other receives. */
#include "evidence/tcp_info.h"
#include "kernels/arrival.h"
#include "kernels/sockets.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static const double block_limit_s = 0.05; /* of a blocked send() or recv(), between looks at the control channel */
enum { READ_BYTES_MIN = 131072 };         /* the receiver reads at least this much at once */

static const char *const directions[] = {"client_to_server", "server_to_client", NULL};

struct tcp_stream_options {
    struct common_options common;
    int64_t message_bytes, direction;
    struct socket_settings sockets;
};

static const struct option_row option_rows[] = {
    OPTION_INTEGER_ROW(struct tcp_stream_options, message_bytes, 131072, 1, 67108864, "bytes given to one send()"),
    OPTION_CHOICE_ROW(struct tcp_stream_options, direction, directions, "which end sends"),
    OPTION_ROWS_COMMON(struct tcp_stream_options), OPTION_ROWS_TCP(struct tcp_stream_options)};

struct tcp_stream_metrics {
    struct common_metrics common;
    double throughput_bps, sent_bps, sent_count, sent_bytes, received_bytes, retransmit_count, tcp_round_trip_ns;
};

static const struct metric_row metric_rows[] = {
    METRIC_ROW(struct tcp_stream_metrics, throughput_bps, BETTER_HIGHER,
               "bits per second at the receiver, from the arrival of its first read (whose bytes are left out) to its "
               "last read"),
    METRIC_ROW(struct tcp_stream_metrics, sent_bps, BETTER_NONE, "bits per second that the sender's socket took"),
    METRIC_ROW(struct tcp_stream_metrics, sent_count, BETTER_NONE, "whole messages sent"),
    METRIC_ROW(struct tcp_stream_metrics, sent_bytes, BETTER_NONE, "bytes sent"),
    METRIC_ROW(struct tcp_stream_metrics, received_bytes, BETTER_NONE, "bytes received"),
    METRIC_ROW(struct tcp_stream_metrics, retransmit_count, BETTER_LOWER, "segments sent again (TCP_INFO)"),
    METRIC_ROW(struct tcp_stream_metrics, tcp_round_trip_ns, BETTER_LOWER,
               "the sender's kernel's smoothed round trip at the end of the measurement, under load (TCP_INFO)"),
    METRIC_ROWS_COMMON(struct tcp_stream_metrics),
};

struct tcp_stream {
    int listener, descriptor;
    char *buffer;
    size_t buffer_bytes;
    size_t offset; /* sender: into the message being sent */
    uint64_t received_bytes, first_bytes, first_ns, last_ns;
    struct arrivals arrivals;
    double retransmits_before, window_before;
};

static bool tcp_stream_server_sends(const void *options)
{
    return ((const struct tcp_stream_options *)options)->direction == 1;
}

static bool tcp_stream_listen(struct run *run)
{
    struct tcp_stream *state = run->state;
    const struct tcp_stream_options *options = run->options;
    return sockets_tcp_listen(run, &options->sockets, &state->listener);
}

static bool tcp_stream_open(struct run *run)
{
    struct tcp_stream *state = run->state;
    const struct tcp_stream_options *options = run->options;
    state->buffer_bytes = (size_t)options->message_bytes;
    if (!run->is_active && state->buffer_bytes < READ_BYTES_MIN)
        state->buffer_bytes = READ_BYTES_MIN;
    state->buffer = memory_noise(state->buffer_bytes);
    if (!sockets_tcp_open(run, &options->sockets, &state->listener, &state->descriptor))
        return false;
    if (!run->is_active)
        arrivals_begin(&state->arrivals, state->descriptor);
    return sockets_timeout(run, state->descriptor, block_limit_s);
}

static void tcp_stream_begin(struct run *run)
{
    struct tcp_stream *state = run->state;
    state->offset = 0;
    state->received_bytes = state->first_bytes = state->first_ns = state->last_ns = 0;
    state->retransmits_before = tcp_info_retransmits(state->descriptor);
    state->window_before = tcp_info_window(state->descriptor);
}

/* Linux takes back the congestion window of a connection that was idle for long (tcp_slow_start_after_idle). */
static void tcp_stream_first_sent(struct run *run)
{
    const struct tcp_stream *state = run->state;
    double window = tcp_info_window(state->descriptor);
    if (run->phase == PHASE_MEASURE && run_common(run)->warmup_s > 0 && window < 0.8 * state->window_before)
        run_warn(run, "warmup_undone",
                 "the congestion window fell from %.0f to %.0f segments in the pause between warm-up and measurement",
                 state->window_before, window);
}

static enum step tcp_stream_send(struct run *run)
{
    struct tcp_stream *state = run->state;
    size_t rest = state->buffer_bytes - state->offset;
    ssize_t sent = send(state->descriptor, state->buffer + state->offset, rest, MSG_NOSIGNAL);
    run->now_ns = clock_now_ns();
    if (sent < 0) {
        if (errno == EAGAIN || errno == EINTR)
            return STEP_IDLE;
        fail(&run->failure, EXIT_PEER, "send: the peer is gone (%s)", fail_errno_name(errno));
        return STEP_FAILED;
    }
    if (!run->sent_bytes)
        tcp_stream_first_sent(run);
    run->sent_bytes += (uint64_t)sent;
    state->offset += (size_t)sent;
    if (state->offset < state->buffer_bytes)
        return STEP_IDLE;
    state->offset = 0;
    run->sent_count++;
    return STEP_OPERATION;
}

static enum step tcp_stream_receive(struct run *run)
{
    struct tcp_stream *state = run->state;
    if (run->peer_stopped && state->received_bytes >= run->peer_sent_bytes)
        return STEP_DONE;
    uint64_t stamp_ns = 0;
    ssize_t got;
    if (state->first_ns) {
        got = recv(state->descriptor, state->buffer, state->buffer_bytes, 0);
        run->now_ns = clock_now_ns();
    } else {
        got = arrivals_receive(&state->arrivals, state->descriptor, state->buffer, state->buffer_bytes, 0, &run->now_ns,
                               &stamp_ns);
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return STEP_IDLE;
    if (got <= 0) {
        fail(&run->failure, EXIT_PEER, "recv: the peer is gone (%s)", got ? fail_errno_name(errno) : "closed");
        return STEP_FAILED;
    }
    if (!state->first_ns) {
        state->first_ns = stamp_ns;
        state->first_bytes = (uint64_t)got;
    }
    state->last_ns = run->now_ns;
    state->received_bytes += (uint64_t)got;
    run_arrived(run, run->now_ns, (double)got);
    return STEP_OPERATION;
}

static enum step tcp_stream_step(struct run *run)
{
    return run->is_active ? tcp_stream_send(run) : tcp_stream_receive(run);
}

static void tcp_stream_report(struct run *run)
{
    const struct tcp_stream *state = run->state;
    const struct tcp_stream_options *options = run->options;
    struct tcp_stream_metrics *metrics = run->metrics;
    socket_options_granted(run, state->descriptor, &options->sockets, SOCK_STREAM);
    if (run->is_active) {
        metrics->sent_count = (double)run->sent_count;
        metrics->sent_bytes = (double)run->sent_bytes;
        metrics->sent_bps = (double)run->sent_bytes * 8e9 / (double)(run->phase_end_ns - run->phase_start_ns);
        metrics->retransmit_count = tcp_info_retransmits(state->descriptor) - state->retransmits_before;
        metrics->tcp_round_trip_ns = tcp_info_round_trip_ns(state->descriptor);
        return;
    }
    metrics->received_bytes = (double)state->received_bytes;
    run_ramp(run);
    if (state->received_bytes > state->first_bytes && state->last_ns > state->first_ns)
        metrics->throughput_bps =
            (double)(state->received_bytes - state->first_bytes) * 8e9 / (double)(state->last_ns - state->first_ns);
    else
        run_invalid(run, "too short: the receiver read %s; raise duration_s or operation_count_max",
                    state->first_ns ? "only once" : "nothing");
}

static void tcp_stream_close(struct run *run)
{
    struct tcp_stream *state = run->state;
    if (state->listener > 0)
        close(state->listener);
    if (state->descriptor > 0)
        close(state->descriptor);
    free(state->buffer);
}

const struct kernel kernel_tcp_stream = {
    .name = "tcp_stream",
    .summary = "throughput of one TCP connection, one way",
    .method =
        "The sender calls send() with message_bytes until duration_s is over; the receiver reads until it has every "
        "byte that the sender says, on the control channel, it sent. The rate is the receiver's: bytes after its "
        "first read over the time from their arrival, as the kernel stamped it, to the last read.",
    .size_option = "message_bytes",
    .options = OPTION_TABLE(option_rows, struct tcp_stream_options),
    .metrics = METRIC_TABLE(metric_rows, struct tcp_stream_metrics),
    .state_bytes = sizeof(struct tcp_stream),
    .server_sends = tcp_stream_server_sends,
    .listen = tcp_stream_listen,
    .open = tcp_stream_open,
    .begin = tcp_stream_begin,
    .step = tcp_stream_step,
    .report = tcp_stream_report,
    .close = tcp_stream_close,
};
