/* udp_pingpong: a datagram there and back, one at a time; a lost one costs its time-out and nothing else. */
#include "base/sequence.h"
#include "engine/round_trip.h"
#include "kernels/sockets.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

static const double block_limit_s = 0.02, exact_limit_s = 0.1;

struct udp_pingpong_options {
    struct common_options common;
    int64_t message_bytes;
    double reply_timeout_s;
    struct socket_settings sockets;
};

static const struct option_row option_rows[] = {
    OPTION_INTEGER_ROW(struct udp_pingpong_options, message_bytes, 16, DATAGRAM_HEAD_BYTES, 65507,
                       "payload each way; its first 16 bytes carry number and stamp"),
    OPTION_ROWS_COMMON(struct udp_pingpong_options),
    OPTION_NUMBER_ROW(struct udp_pingpong_options, reply_timeout_s, 0.2, 0.001, 60,
                      "a reply that takes longer counts as lost, or as late if it still comes"),
    OPTION_ROWS_UDP(struct udp_pingpong_options)};

struct udp_pingpong_metrics {
    struct common_metrics common;
    struct round_trip_metrics round_trip;
    double sent_count, received_count, late_count, lost_count, lost_ratio, duplicate_count, request_lost_count;
};

static const struct metric_row metric_rows[] = {
    METRIC_ROWS_ROUND_TRIP(struct udp_pingpong_metrics),
    METRIC_ROW(struct udp_pingpong_metrics, sent_count, BETTER_NONE, "datagrams that the client sent"),
    METRIC_ROW(struct udp_pingpong_metrics, received_count, BETTER_NONE, "replies that came in time"),
    METRIC_ROW(struct udp_pingpong_metrics, late_count, BETTER_LOWER, "replies that came after reply_timeout_s"),
    METRIC_ROW(struct udp_pingpong_metrics, lost_count, BETTER_LOWER, "datagrams without a reply, in time or late"),
    METRIC_ROW(struct udp_pingpong_metrics, lost_ratio, BETTER_LOWER, "lost_count over sent_count"),
    METRIC_ROW(struct udp_pingpong_metrics, duplicate_count, BETTER_LOWER, "replies that came again"),
    METRIC_ROW(struct udp_pingpong_metrics, request_lost_count, BETTER_LOWER,
               "datagrams that did not reach the server: the part of lost_count on the way there"),
    METRIC_ROWS_COMMON(struct udp_pingpong_metrics),
};

struct udp_pingpong {
    int listener, descriptor; /* of the one flow */
    struct flows flows;
    uint8_t *buffer;
    size_t bytes;
    bool waiting; /* client: number sent_count - 1 is under way since start_ns */
    uint64_t start_ns, late_count, in_time_count;
    struct sequence sequence; /* client: replies; server: requests */
};

static bool udp_pingpong_listen(struct run *run)
{
    struct udp_pingpong *state = run->state;
    const struct udp_pingpong_options *options = run->options;
    return sockets_udp_listen(run, &options->sockets, &state->listener);
}

static bool udp_pingpong_open(struct run *run)
{
    struct udp_pingpong *state = run->state;
    const struct udp_pingpong_options *options = run->options;
    double limit_s =
        run->is_server || options->reply_timeout_s > block_limit_s ? block_limit_s : options->reply_timeout_s;
    state->bytes = (size_t)options->message_bytes;
    state->buffer = memory_noise(state->bytes + 1);
    if (!sockets_udp_open(run, &options->sockets, state->bytes, &state->listener, &state->flows, 1))
        return false;
    state->descriptor = state->flows.list[0].descriptor;
    return sockets_timeout(run, state->descriptor, limit_s);
}

static void udp_pingpong_begin(struct run *run)
{
    struct udp_pingpong *state = run->state;
    sequence_clear(&state->sequence);
    state->waiting = false;
    state->late_count = state->in_time_count = 0;
}

/* Sends one datagram. Errors that pass (full queue, the peer's ICMP) leave it to the time-out. */
static bool udp_pingpong_put(struct run *run, size_t bytes)
{
    struct udp_pingpong *state = run->state;
    if (send(state->descriptor, state->buffer, bytes, MSG_NOSIGNAL) == (ssize_t)bytes || errno == EAGAIN ||
        errno == EINTR || errno == ENOBUFS || errno == ECONNREFUSED)
        return true;
    return fail_system(&run->failure, "send of %zu bytes", bytes);
}

/* Receives one datagram of this phase. STEP_OPERATION when there is one, with its number. */
static enum step udp_pingpong_get(struct run *run, uint64_t *number, uint64_t *stamp_ns)
{
    struct udp_pingpong *state = run->state;
    ssize_t got = recv(state->descriptor, state->buffer, state->bytes + 1, 0);
    int error = errno;
    run->now_ns = clock_now_ns();
    if (got == (ssize_t)state->bytes && datagram_read(state->buffer, number, stamp_ns) == run->phase)
        return STEP_OPERATION;
    if (got >= 0 || error == EAGAIN || error == EINTR || error == ECONNREFUSED)
        return STEP_BUSY;
    errno = error;
    fail_system(&run->failure, "recv");
    return STEP_FAILED;
}

/* A short time-out is exact: SO_RCVTIMEO counts in ticks of the kernel (up to 10 ms), ppoll() does not. */
static bool udp_pingpong_await(struct run *run, uint64_t until_ns)
{
    const struct udp_pingpong *state = run->state;
    const struct udp_pingpong_options *options = run->options;
    if (options->reply_timeout_s > exact_limit_s)
        return true;
    run->now_ns = clock_now_ns();
    uint64_t rest_ns = until_ns > run->now_ns ? until_ns - run->now_ns : 0;
    struct pollfd poller = {.fd = state->descriptor, .events = POLLIN};
    struct timespec rest = {.tv_sec = (time_t)(rest_ns / NS_PER_S), .tv_nsec = (long)(rest_ns % NS_PER_S)};
    if (ppoll(&poller, 1, &rest, NULL) > 0)
        return true;
    run->now_ns = clock_now_ns();
    return false;
}

static enum step udp_pingpong_ask(struct run *run)
{
    struct udp_pingpong *state = run->state;
    const struct udp_pingpong_options *options = run->options;
    uint64_t number = 0, sent_ns = 0, limit_ns = clock_ns_from_s(options->reply_timeout_s);
    if (!state->waiting) {
        state->start_ns = clock_now_ns();
        datagram_write(state->buffer, run->phase, run->sent_count, state->start_ns);
        if (!udp_pingpong_put(run, state->bytes))
            return STEP_FAILED;
        run->sent_count++;
        run->sent_bytes += state->bytes;
        state->waiting = true;
    }
    enum step step =
        udp_pingpong_await(run, state->start_ns + limit_ns) ? udp_pingpong_get(run, &number, &sent_ns) : STEP_BUSY;
    if (step == STEP_FAILED)
        return step;
    if (step == STEP_OPERATION && sequence_add(&state->sequence, number)) {
        /* A late one is a round trip too: without it the slowest would be missing from the percentiles. */
        uint64_t took_ns = run->now_ns - (sent_ns < run->now_ns ? sent_ns : run->now_ns);
        run_round_trip(run, took_ns);
        *(took_ns <= limit_ns ? &state->in_time_count : &state->late_count) += 1;
        if (number + 1 == run->sent_count) {
            state->waiting = false;
            return STEP_OPERATION;
        }
    }
    if (run->now_ns - state->start_ns < limit_ns)
        return STEP_BUSY;
    state->waiting = false;
    return STEP_OPERATION; /* an operation too: one without a reply */
}

static enum step udp_pingpong_answer(struct run *run)
{
    struct udp_pingpong *state = run->state;
    uint64_t number, sent_ns;
    if (run->peer_stopped)
        return STEP_DONE;
    enum step step = udp_pingpong_get(run, &number, &sent_ns);
    if (step != STEP_OPERATION)
        return step;
    sequence_add(&state->sequence, number);
    return udp_pingpong_put(run, state->bytes) ? STEP_OPERATION : STEP_FAILED;
}

static enum step udp_pingpong_step(struct run *run)
{
    return run->is_active ? udp_pingpong_ask(run) : udp_pingpong_answer(run);
}

static void udp_pingpong_report(struct run *run)
{
    const struct udp_pingpong *state = run->state;
    const struct udp_pingpong_options *options = run->options;
    struct udp_pingpong_metrics *metrics = run->metrics;
    socket_options_granted(run, state->descriptor, &options->sockets, SOCK_DGRAM);
    if (!run->is_active) {
        metrics->request_lost_count = fmax((double)run->peer_sent_count - (double)state->sequence.unique_count, 0);
        return;
    }
    round_trip_fill(run->histogram, &metrics->round_trip);
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
    free(state->buffer);
}

const struct kernel kernel_udp_pingpong = {
    .name = "udp_pingpong",
    .summary = "round trip and loss of a UDP datagram",
    .method =
        "The client stamps the time before send(), sends a numbered datagram, waits for the reply with that number and "
        "stamps again: one sample is the full round trip. A datagram without a reply costs reply_timeout_s and counts "
        "as lost; the next one follows.",
    .size_option = "message_bytes",
    .options = OPTION_TABLE(option_rows, struct udp_pingpong_options),
    .metrics = METRIC_TABLE(metric_rows, struct udp_pingpong_metrics),
    .state_bytes = sizeof(struct udp_pingpong),
    .round_trips = true,
    .listen = udp_pingpong_listen,
    .open = udp_pingpong_open,
    .begin = udp_pingpong_begin,
    .step = udp_pingpong_step,
    .report = udp_pingpong_report,
    .close = udp_pingpong_close,
};
