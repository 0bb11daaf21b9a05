/* udp_stream: numbered, stamped datagrams at a set rate, one way; what arrived is counted at the receiver. */
#include "base/sequence.h"
#include "kernels/arrival.h"
#include "kernels/sockets.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static const double block_limit_s = 0.02;
static const uint64_t debt_limit_ns =
    10000000;                                  /* a sender that was held up longer does not make up for it in a burst */
static const double never_ns = 1e18;           /* some 30 years */
static const uint64_t nap_limit_ns = 50000000; /* between looks at the control channel */

static const char *const directions[] = {"client_to_server", "server_to_client", NULL};
static const char *const pacings[] = {"sleep", "spin", NULL};
enum { PACING_SLEEP };

struct udp_stream_options {
    struct common_options common;
    int64_t message_bytes, direction, pacing;
    double rate_bps, settle_s;
    struct socket_settings sockets;
};

static const struct option_row option_rows[] = {
    OPTION_INTEGER_ROW(struct udp_stream_options, message_bytes, 1452, DATAGRAM_HEAD_BYTES, 65507,
                       "payload of one datagram, its first 16 bytes number and stamp; 1452 fits 1500 bytes with IPv6"),
    OPTION_CHOICE_ROW(struct udp_stream_options, direction, directions, "which end sends"),
    OPTION_NUMBER_ROW(struct udp_stream_options, rate_bps, 1e9, 0, 1e13,
                      "payload bits per second that the sender aims at; 0: as fast as it can"),
    OPTION_CHOICE_ROW(
        struct udp_stream_options, pacing, pacings,
        "how the sender waits for the next datagram's time: sleep (bursts of some 60 us) or spin (a core)"),
    OPTION_ROWS_COMMON(struct udp_stream_options),
    OPTION_NUMBER_ROW(struct udp_stream_options, settle_s, 0.2, 0.001, 10,
                      "silence after the stop after which what is missing is lost"),
    OPTION_ROWS_UDP(struct udp_stream_options)};

/* The system's receive buffer is often 208 KiB, which loses datagrams in the host. */
static const struct option_default option_defaults[] = {{"receive_buffer_bytes", 4194304}, {NULL, 0}};

struct udp_stream_metrics {
    struct common_metrics common;
    double throughput_bps, sent_bps, sent_count, received_count, lost_count, lost_ratio, reordered_count,
        duplicate_count, socket_drop_count, jitter_ns, pacing_slip_count, pacing_late_max_ns;
};

static const struct metric_row metric_rows[] = {
    METRIC_ROW(struct udp_stream_metrics, throughput_bps, BETTER_HIGHER,
               "payload bits per second at the receiver, each datagram once, from its first arrival to its last (as "
               "the kernel stamped them)"),
    METRIC_ROW(struct udp_stream_metrics, sent_bps, BETTER_NONE,
               "payload bits per second that the sender's socket took"),
    METRIC_ROW(struct udp_stream_metrics, sent_count, BETTER_NONE, "datagrams sent"),
    METRIC_ROW(struct udp_stream_metrics, received_count, BETTER_NONE, "datagrams received, each once"),
    METRIC_ROW(struct udp_stream_metrics, lost_count, BETTER_LOWER, "datagrams sent that never arrived"),
    METRIC_ROW(struct udp_stream_metrics, lost_ratio, BETTER_LOWER, "lost_count over sent_count"),
    METRIC_ROW(struct udp_stream_metrics, reordered_count, BETTER_LOWER,
               "datagrams that came after one with a higher number"),
    METRIC_ROW(struct udp_stream_metrics, duplicate_count, BETTER_LOWER, "datagrams that came again"),
    METRIC_ROW(struct udp_stream_metrics, socket_drop_count, BETTER_LOWER,
               "datagrams that the receiver's full socket buffer refused (SO_MEMINFO): lost in the host"),
    METRIC_ROW(struct udp_stream_metrics, jitter_ns, BETTER_LOWER,
               "mean change of transit time between datagrams that arrive one after the other (RFC 3550's D), up to "
               "the kernel's stamp"),
    METRIC_ROW(struct udp_stream_metrics, pacing_slip_count, BETTER_LOWER,
               "times the sender fell over 10 ms behind its rate and let that time go"),
    METRIC_ROW(struct udp_stream_metrics, pacing_late_max_ns, BETTER_LOWER,
               "the most that a datagram left after it was due; up to 10 ms are made up for in a burst"),
    METRIC_ROWS_COMMON(struct udp_stream_metrics),
};

struct udp_stream {
    int descriptor;
    uint8_t *buffer;
    size_t bytes;
    double gap_ns;      /* sender: between datagrams; 0: none */
    uint64_t origin_ns; /* sender: when number 0 is due */
    uint64_t slip_count;
    struct sequence sequence; /* receiver */
    struct arrivals arrivals;
    uint64_t first_ns, last_ns, stop_ns, read_ns, late_max_ns;
    double transit_before_ns, transit_change_sum_ns, drops_before;
};

static bool udp_stream_server_sends(const void *options)
{
    return ((const struct udp_stream_options *)options)->direction == 1;
}

static bool udp_stream_listen(struct run *run)
{
    struct udp_stream *state = run->state;
    const struct udp_stream_options *options = run->options;
    return sockets_udp_listen(run, &options->sockets, &state->descriptor);
}

static bool udp_stream_open(struct run *run)
{
    struct udp_stream *state = run->state;
    const struct udp_stream_options *options = run->options;
    state->bytes = (size_t)options->message_bytes;
    state->buffer = memory_noise(state->bytes + 1); /* one more, so that a longer datagram shows */
    if (options->rate_bps > 0)
        state->gap_ns = (double)state->bytes * 8e9 / options->rate_bps;
    prctl(PR_SET_TIMERSLACK, 1UL); /* else every nap is 50 us longer */
    if (!sockets_udp_open(run, &options->sockets, state->bytes, &state->descriptor))
        return false;
    if (!run->is_active)
        arrivals_begin(&state->arrivals, state->descriptor);
    return sockets_timeout(run, state->descriptor, block_limit_s);
}

static void udp_stream_begin(struct run *run)
{
    struct udp_stream *state = run->state;
    sequence_clear(&state->sequence);
    state->origin_ns = state->slip_count = 0;
    state->first_ns = state->last_ns = state->stop_ns = state->read_ns = state->late_max_ns = 0;
    state->transit_change_sum_ns = 0;
    state->drops_before = sockets_drops(state->descriptor);
}

/* True when the next datagram is due; false after a nap that ended early or was long enough. */
static bool udp_stream_due(struct run *run)
{
    struct udp_stream *state = run->state;
    const struct udp_stream_options *options = run->options;
    if (state->gap_ns <= 0)
        return true;
    if (!state->origin_ns)
        state->origin_ns = run->now_ns;
    double after_ns = fmin(state->gap_ns * (double)run->sent_count, never_ns);
    uint64_t due_ns = state->origin_ns + (uint64_t)after_ns;
    if (run->now_ns >= due_ns) {
        if (run->now_ns - due_ns > state->late_max_ns)
            state->late_max_ns = run->now_ns - due_ns;
        if (run->now_ns - due_ns > debt_limit_ns) {
            state->slip_count++;
            state->origin_ns += run->now_ns - due_ns;
        }
        return true;
    }
    if (options->pacing == PACING_SLEEP)
        clock_sleep_until(due_ns - run->now_ns > nap_limit_ns ? run->now_ns + nap_limit_ns : due_ns);
    run->now_ns = clock_now_ns();
    return run->now_ns >= due_ns;
}

static enum step udp_stream_send(struct run *run)
{
    struct udp_stream *state = run->state;
    if (!udp_stream_due(run))
        return STEP_IDLE;
    datagram_write(state->buffer, run->phase, run->sent_count, run->now_ns);
    ssize_t sent = send(state->descriptor, state->buffer, state->bytes, MSG_NOSIGNAL);
    int error = errno;
    run->now_ns = clock_now_ns();
    if (sent == (ssize_t)state->bytes) {
        run->sent_count++;
        run->sent_bytes += state->bytes;
        return STEP_OPERATION;
    }
    if (error == EAGAIN || error == EINTR || error == ENOBUFS || error == ECONNREFUSED)
        return STEP_IDLE;
    errno = error;
    fail_system(&run->failure, "send of %zu bytes", state->bytes);
    return STEP_FAILED;
}

static bool udp_stream_settled(struct run *run)
{
    struct udp_stream *state = run->state;
    const struct udp_stream_options *options = run->options;
    if (!run->peer_stopped)
        return false;
    if (state->sequence.unique_count >= run->peer_sent_count)
        return true;
    if (!state->stop_ns)
        state->stop_ns = run->now_ns;
    uint64_t quiet_since_ns = state->read_ns > state->stop_ns ? state->read_ns : state->stop_ns;
    return run->now_ns > quiet_since_ns + clock_ns_from_s(options->settle_s);
}

static void udp_stream_arrived(struct run *run, uint64_t number, uint64_t sent_ns, uint64_t arrived_ns)
{
    struct udp_stream *state = run->state;
    if (!sequence_add(&state->sequence, number))
        return;
    /* The clocks of the ends differ by an unknown constant, which falls out of the change. */
    double transit_ns = (double)(int64_t)(arrived_ns - sent_ns);
    if (state->first_ns)
        state->transit_change_sum_ns += fabs(transit_ns - state->transit_before_ns);
    else
        state->first_ns = arrived_ns;
    state->transit_before_ns = transit_ns;
    state->last_ns = arrived_ns;
    state->read_ns = run->now_ns;
    run_arrived(run, arrived_ns, (double)state->bytes);
}

static enum step udp_stream_receive(struct run *run)
{
    struct udp_stream *state = run->state;
    uint64_t number, sent_ns, arrived_ns;
    if (udp_stream_settled(run))
        return STEP_DONE;
    ssize_t got = arrivals_receive(&state->arrivals, state->descriptor, state->buffer, state->bytes + 1, 0,
                                   &run->now_ns, &arrived_ns);
    int error = errno;
    if (got < 0) {
        if (error == EAGAIN || error == EINTR || error == ECONNREFUSED)
            return STEP_IDLE;
        errno = error;
        fail_system(&run->failure, "recv");
        return STEP_FAILED;
    }
    if (got != (ssize_t)state->bytes || datagram_read(state->buffer, &number, &sent_ns) != run->phase)
        return STEP_IDLE; /* a late token or a datagram of the warm-up */
    udp_stream_arrived(run, number, sent_ns, arrived_ns);
    return STEP_OPERATION;
}

static enum step udp_stream_step(struct run *run)
{
    return run->is_active ? udp_stream_send(run) : udp_stream_receive(run);
}

static void udp_stream_report_receiver(struct run *run)
{
    const struct udp_stream *state = run->state;
    const struct sequence *sequence = &state->sequence;
    struct udp_stream_metrics *metrics = run->metrics;
    double sent = (double)run->peer_sent_count, received = (double)sequence->unique_count;
    metrics->received_count = received;
    metrics->lost_count = fmax(sent - received, 0);
    metrics->lost_ratio = sent > 0 ? metrics->lost_count / sent : (double)NAN;
    metrics->reordered_count = (double)sequence->reordered_count;
    metrics->duplicate_count = (double)sequence->duplicate_count;
    metrics->socket_drop_count = sockets_drops(state->descriptor) - state->drops_before;
    if (state->last_ns <= state->first_ns) {
        run_invalid(run, "fewer than two datagrams arrived of %.0f sent", sent);
        return;
    }
    metrics->throughput_bps = (received - 1) * (double)state->bytes * 8e9 / (double)(state->last_ns - state->first_ns);
    metrics->jitter_ns = state->transit_change_sum_ns / (received - 1);
}

static void udp_stream_report(struct run *run)
{
    const struct udp_stream *state = run->state;
    const struct udp_stream_options *options = run->options;
    struct udp_stream_metrics *metrics = run->metrics;
    socket_options_granted(run, state->descriptor, &options->sockets, SOCK_DGRAM);
    if (!run->is_active) {
        udp_stream_report_receiver(run);
        return;
    }
    metrics->sent_count = (double)run->sent_count;
    metrics->sent_bps = (double)run->sent_bytes * 8e9 / (double)(run->phase_end_ns - run->phase_start_ns);
    metrics->pacing_slip_count = (double)state->slip_count;
    if (state->gap_ns > 0)
        metrics->pacing_late_max_ns = (double)state->late_max_ns;
}

static void udp_stream_close(struct run *run)
{
    struct udp_stream *state = run->state;
    if (state->descriptor > 0)
        close(state->descriptor);
    free(state->buffer);
}

const struct kernel kernel_udp_stream = {
    .name = "udp_stream",
    .summary = "rate, loss, reordering and jitter of UDP datagrams, one way",
    .method =
        "The sender numbers and stamps each datagram and sends it when it is due at rate_bps. The receiver counts "
        "first arrivals, reordered and repeated ones apart; the number sent comes over the control channel, so that "
        "loss is known exactly. The rate is the receiver's, from its first datagram to its last.",
    .size_option = "message_bytes",
    .options = OPTION_TABLE_WITH(option_rows, struct udp_stream_options, option_defaults),
    .metrics = METRIC_TABLE(metric_rows, struct udp_stream_metrics),
    .state_bytes = sizeof(struct udp_stream),
    .server_sends = udp_stream_server_sends,
    .listen = udp_stream_listen,
    .open = udp_stream_open,
    .begin = udp_stream_begin,
    .step = udp_stream_step,
    .report = udp_stream_report,
    .close = udp_stream_close,
};
