/* tcp_pingpong: a message there and back over one TCP connection, one at a time. */
#include "engine/round_trip.h"
#include "evidence/tcp_info.h"
#include "kernels/sockets.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static const double block_limit_s = 0.05;

struct tcp_pingpong_options {
    struct common_options common;
    int64_t message_bytes;
    double reply_timeout_s;
    struct socket_settings sockets;
};

static const struct option_row option_rows[] = {
    OPTION_INTEGER_ROW(struct tcp_pingpong_options, message_bytes, 1, 1, 67108864, "bytes each way"),
    OPTION_ROWS_COMMON(struct tcp_pingpong_options),
    OPTION_NUMBER_ROW(struct tcp_pingpong_options, reply_timeout_s, 10, 0.001, 600,
                      "a reply that takes longer ends the measurement"),
    OPTION_ROWS_TCP(struct tcp_pingpong_options)};

static const struct option_default option_defaults[] = {{"no_delay", 1}, {NULL, 0}};

struct tcp_pingpong_metrics {
    struct common_metrics common;
    struct round_trip_metrics round_trip;
    double operation_count, retransmit_count;
};

static const struct metric_row metric_rows[] = {
    METRIC_ROWS_ROUND_TRIP(struct tcp_pingpong_metrics),
    METRIC_ROW(struct tcp_pingpong_metrics, operation_count, BETTER_NONE, "round trips measured"),
    METRIC_ROW(struct tcp_pingpong_metrics, retransmit_count, BETTER_LOWER,
               "segments that the client sent again (TCP_INFO)"),
    METRIC_ROWS_COMMON(struct tcp_pingpong_metrics),
};

/* One message at a time: sent up to `sent`, then received up to `received`; the server the other way round. */
struct tcp_pingpong {
    int listener, descriptor; /* of the one flow */
    struct flows flows;
    char *buffer;
    size_t bytes, sent, received;
    uint64_t start_ns;
    double retransmits_before;
};

static bool tcp_pingpong_listen(struct run *run)
{
    struct tcp_pingpong *state = run->state;
    const struct tcp_pingpong_options *options = run->options;
    return sockets_tcp_listen(run, &options->sockets, &state->listener);
}

static bool tcp_pingpong_open(struct run *run)
{
    struct tcp_pingpong *state = run->state;
    const struct tcp_pingpong_options *options = run->options;
    state->bytes = (size_t)options->message_bytes;
    state->buffer = memory_noise(state->bytes);
    if (!sockets_tcp_open(run, &options->sockets, &state->listener, &state->flows, 1))
        return false;
    state->descriptor = state->flows.list[0].descriptor;
    return sockets_timeout(run, state->descriptor, block_limit_s);
}

static void tcp_pingpong_begin(struct run *run)
{
    struct tcp_pingpong *state = run->state;
    state->sent = state->received = 0;
    state->start_ns = 0;
    state->retransmits_before = tcp_info_retransmits(state->descriptor);
}

/* Moves *done towards the whole message. True when it is whole; else *step says what to do. */
static bool tcp_pingpong_move(struct run *run, bool sending, size_t *done, enum step *step)
{
    struct tcp_pingpong *state = run->state;
    while (*done < state->bytes) {
        size_t rest = state->bytes - *done;
        ssize_t moved = sending ? send(state->descriptor, state->buffer + *done, rest, MSG_NOSIGNAL)
                                : recv(state->descriptor, state->buffer + *done, rest, 0);
        if (moved > 0) {
            *done += (size_t)moved;
            continue;
        }
        run->now_ns = clock_now_ns();
        *step = STEP_BUSY;
        if (moved == 0 || (errno != EAGAIN && errno != EINTR)) {
            fail(&run->failure, EXIT_PEER, "%s: the peer is gone (%s)", sending ? "send" : "recv",
                 moved ? fail_errno_name(errno) : "closed");
            *step = STEP_FAILED;
        }
        return false;
    }
    return true;
}

static enum step tcp_pingpong_ask(struct run *run)
{
    struct tcp_pingpong *state = run->state;
    const struct tcp_pingpong_options *options = run->options;
    enum step step = STEP_OPERATION;
    if (!state->start_ns)
        state->start_ns = clock_now_ns();
    if (!tcp_pingpong_move(run, true, &state->sent, &step) || !tcp_pingpong_move(run, false, &state->received, &step)) {
        if (step == STEP_BUSY && run->now_ns - state->start_ns > clock_ns_from_s(options->reply_timeout_s)) {
            fail(&run->failure, EXIT_PEER, "timed out: no reply in %g s", options->reply_timeout_s);
            step = STEP_FAILED;
        }
        return step;
    }
    run->now_ns = clock_now_ns();
    run_round_trip(run, run->now_ns - state->start_ns);
    run->sent_count++;
    run->sent_bytes += state->bytes;
    state->sent = state->received = 0;
    state->start_ns = 0;
    return STEP_OPERATION;
}

static enum step tcp_pingpong_answer(struct run *run)
{
    struct tcp_pingpong *state = run->state;
    enum step step = STEP_OPERATION;
    if (run->peer_stopped) /* the client stops after the reply to its last message */
        return STEP_DONE;
    if (!tcp_pingpong_move(run, false, &state->received, &step) || !tcp_pingpong_move(run, true, &state->sent, &step))
        return step;
    state->sent = state->received = 0;
    return STEP_OPERATION;
}

static enum step tcp_pingpong_step(struct run *run)
{
    return run->is_active ? tcp_pingpong_ask(run) : tcp_pingpong_answer(run);
}

static void tcp_pingpong_report(struct run *run)
{
    const struct tcp_pingpong *state = run->state;
    const struct tcp_pingpong_options *options = run->options;
    struct tcp_pingpong_metrics *metrics = run->metrics;
    socket_options_granted(run, state->descriptor, &options->sockets, SOCK_STREAM);
    if (!run->is_active)
        return;
    round_trip_fill(run->histogram, &metrics->round_trip);
    metrics->operation_count = (double)run->operation_count;
    metrics->retransmit_count = tcp_info_retransmits(state->descriptor) - state->retransmits_before;
}

static void tcp_pingpong_close(struct run *run)
{
    struct tcp_pingpong *state = run->state;
    if (state->listener > 0)
        close(state->listener);
    flows_close(&state->flows);
    free(state->buffer);
}

const struct kernel kernel_tcp_pingpong = {
    .name = "tcp_pingpong",
    .summary = "round trip of a message over one TCP connection",
    .method =
        "The client stamps the time before send(), sends message_bytes, receives the same number back and stamps "
        "again: "
        "one sample is the full round trip, not half of it. One message is under way at a time, with blocking calls.",
    .size_option = "message_bytes",
    .options = OPTION_TABLE_WITH(option_rows, struct tcp_pingpong_options, option_defaults),
    .metrics = METRIC_TABLE(metric_rows, struct tcp_pingpong_metrics),
    .state_bytes = sizeof(struct tcp_pingpong),
    .round_trips = true,
    .listen = tcp_pingpong_listen,
    .open = tcp_pingpong_open,
    .begin = tcp_pingpong_begin,
    .step = tcp_pingpong_step,
    .report = tcp_pingpong_report,
    .close = tcp_pingpong_close,
};
