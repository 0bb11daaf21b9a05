/* udp_oneway: numbered datagrams at a fixed rate; every number and every delay is kept, and judged at the end. */
#include "base/sequence.h"
#include "kernels/arrival.h"
#include "kernels/requests.h"
#include "kernels/sockets.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double block_limit_s = 0.02;
enum { KEPT_MAX = 1 << 22 }; /* datagrams whose delay and number are kept: 32 MiB, touched as they come */

struct udp_oneway_options {
    struct common_options common;
    int64_t message_bytes, direction, wait_by;
    double rate_pps, settle_s;
    struct socket_settings sockets;
};

static const struct option_row option_rows[] = {
    OPTION_INTEGER_ROW(struct udp_oneway_options, message_bytes, 64, DATAGRAM_HEAD_BYTES, 65507,
                       "payload of one datagram, its first 16 bytes number and stamp"),
    {"direction", OPTION_CHOICE, offsetof(struct udp_oneway_options, direction), 0, 0, 0, flows_ways,
     "which end sends"},
    OPTION_ROW_WAIT(struct udp_oneway_options),
    OPTION_NUMBER_ROW(struct udp_oneway_options, rate_pps, 1000, 0.01, 1e7,
                      "datagrams per second, evenly spaced: 1000 is one each ms"),
    OPTION_ROWS_COMMON(struct udp_oneway_options),
    OPTION_ROWS_PLACE(struct udp_oneway_options),
    OPTION_NUMBER_ROW(struct udp_oneway_options, settle_s, 0.2, 0.001, 10,
                      "silence after the stop after which what is missing is lost"),
    OPTION_ROWS_CAPTURE(struct udp_oneway_options),
    OPTION_ROWS_UDP(struct udp_oneway_options)};

static const struct option_default option_defaults[] = {{"receive_buffer_bytes", 4194304}, {NULL, 0}};

static const struct option_relation relations[] = {RELATIONS_SOURCE};

struct udp_oneway_metrics {
    struct common_metrics common;
    double sent_count, received_count, lost_count, lost_ratio, loss_run_count, loss_run_max_count, reordered_count,
        duplicate_count, jitter_ns, jitter_mean_ns, jitter_p50_ns, jitter_p99_ns, jitter_max_ns, delay_change_p50_ns,
        delay_change_p99_ns, delay_change_max_ns, delay_trend_ns, pacing_late_max_ns;
};

#define ONEWAY_ROW(field, better, help) METRIC_ROW(struct udp_oneway_metrics, field, better, help)

static const struct metric_row metric_rows[] = {
    ONEWAY_ROW(lost_ratio, BETTER_LOWER, "lost_count over sent_count"),
    ONEWAY_ROW(lost_count, BETTER_LOWER, "datagrams sent that never arrived"),
    ONEWAY_ROW(loss_run_count, BETTER_LOWER, "runs of datagrams that were lost one after the other"),
    ONEWAY_ROW(loss_run_max_count, BETTER_LOWER, "datagrams in the longest such run"),
    ONEWAY_ROW(sent_count, BETTER_NONE, "datagrams sent"),
    ONEWAY_ROW(received_count, BETTER_NONE, "datagrams received, each once"),
    ONEWAY_ROW(reordered_count, BETTER_LOWER, "datagrams that came after one with a higher number"),
    ONEWAY_ROW(duplicate_count, BETTER_LOWER, "datagrams that came again"),
    ONEWAY_ROW(jitter_ns, BETTER_LOWER, "RFC 3550's J at the end: changes of transit time, smoothed by 16"),
    ONEWAY_ROW(jitter_mean_ns, BETTER_LOWER, "mean change of transit time between datagrams one after the other"),
    ONEWAY_ROW(jitter_p50_ns, BETTER_LOWER, "median change of transit time"),
    ONEWAY_ROW(jitter_p99_ns, BETTER_LOWER, "99 of 100 changes of transit time were at most this (from 500)"),
    ONEWAY_ROW(jitter_max_ns, BETTER_LOWER, "largest change of transit time"),
    ONEWAY_ROW(delay_change_p50_ns, BETTER_LOWER,
               "median of how much longer a datagram took than the fastest one: clocks need not agree, only run alike"),
    ONEWAY_ROW(delay_change_p99_ns, BETTER_LOWER, "99 of 100 took at most this much longer (from 500)"),
    ONEWAY_ROW(delay_change_max_ns, BETTER_LOWER, "the slowest took this much longer"),
    ONEWAY_ROW(delay_trend_ns, BETTER_NONE,
               "the fastest of the second half less the fastest of the first: the path, or the drift of the clocks"),
    ONEWAY_ROW(pacing_late_max_ns, BETTER_LOWER, "the most that a datagram left after it was due"),
    METRIC_ROWS_CAPTURE(struct udp_oneway_metrics),
    METRIC_ROWS_COMMON(struct udp_oneway_metrics),
    METRIC_ROWS_CALLS(struct udp_oneway_metrics),
};

struct udp_oneway {
    int listener;
    struct flows flows;
    uint8_t *buffer;
    size_t bytes;
    struct requests pace; /* sender */
    struct sequence sequence;
    struct arrivals arrivals;
    struct settling settling;
    uint64_t *seen;      /* receiver: a bit for each of the first KEPT_MAX numbers */
    int64_t *transit_ns; /* receiver: of each arrival, in its order */
    size_t count;
    double jitter_ns;
};

static bool udp_oneway_server_sends(const void *options)
{
    return ((const struct udp_oneway_options *)options)->direction == SERVER_TO_CLIENT;
}

static bool udp_oneway_listen(struct run *run)
{
    struct udp_oneway *state = run->state;
    const struct udp_oneway_options *options = run->options;
    return sockets_udp_listen(run, &options->sockets, &state->listener);
}

static bool udp_oneway_open(struct run *run)
{
    struct udp_oneway *state = run->state;
    const struct udp_oneway_options *options = run->options;
    struct request_settings pace = {.rate_pps = options->rate_pps};
    state->bytes = (size_t)options->message_bytes;
    state->buffer = run_noise(run, state->bytes + 1);
    requests_prepare(&state->pace, &pace);
    if (!sockets_udp_open(run, &options->sockets, state->bytes, &state->listener, &state->flows, 1))
        return false;
    if (run_receives(run)) {
        state->seen = memory_new(KEPT_MAX / 64, sizeof *state->seen);
        state->transit_ns = memory_new(KEPT_MAX, sizeof *state->transit_ns);
        arrivals_begin(&state->arrivals, state->flows.list[0].descriptor);
    }
    return sockets_timeout(run, state->flows.list[0].descriptor, block_limit_s) &&
           flows_prepare(run, &state->flows, (enum flows_wait)options->wait_by);
}

static void udp_oneway_begin(struct run *run)
{
    struct udp_oneway *state = run->state;
    flows_begin(&state->flows);
    requests_begin(&state->pace);
    sequence_clear(&state->sequence);
    if (state->seen)
        memset(state->seen, 0, KEPT_MAX / 8);
    state->count = 0;
    state->jitter_ns = 0;
    state->settling = (struct settling){0};
}

static uint64_t udp_oneway_due(struct run *run)
{
    struct udp_oneway *state = run->state;
    return run_sends(run) ? requests_due(run, &state->pace) : FLOWS_NEVER;
}

static enum step udp_oneway_put(struct run *run, struct flow *flow, int flags)
{
    struct udp_oneway *state = run->state;
    requests_start(run, &state->pace);
    run->under_way_count = 0; /* nothing is waited for */
    datagram_write(state->buffer, run->phase, run->sent_count, clock_now_ns());
    ssize_t sent = send(flow->descriptor, state->buffer, state->bytes, flags | MSG_NOSIGNAL);
    int error = errno;
    run->call_count++;
    run->now_ns = clock_now_ns();
    if (sent != (ssize_t)state->bytes && error != EAGAIN && error != EINTR && error != ENOBUFS &&
        error != ECONNREFUSED) {
        errno = error;
        datagram_refused(run, flow->descriptor, "message_bytes", state->bytes);
        return STEP_FAILED;
    }
    run->sent_count++; /* one that the socket refused is lost too */
    run->sent_bytes += state->bytes;
    return STEP_OPERATION;
}

static void udp_oneway_keep(struct udp_oneway *state, uint64_t number, int64_t transit_ns)
{
    if (number < KEPT_MAX)
        state->seen[number / 64] |= (uint64_t)1 << (number % 64);
    if (state->count && state->count <= KEPT_MAX) {
        double change_ns = fabs((double)(transit_ns - state->transit_ns[state->count - 1]));
        state->jitter_ns += (change_ns - state->jitter_ns) / 16; /* RFC 3550, 6.4.1 */
    }
    if (state->count < KEPT_MAX)
        state->transit_ns[state->count++] = transit_ns;
}

static enum step udp_oneway_get(struct run *run, struct flow *flow, int flags)
{
    struct udp_oneway *state = run->state;
    struct datagram one;
    enum step step =
        datagram_get(run, flow, &state->arrivals, state->buffer, state->bytes, flags, &state->settling, &one);
    if (step == STEP_OPERATION && sequence_add(&state->sequence, one.number))
        udp_oneway_keep(state, one.number, (int64_t)(one.arrived_ns - one.sent_ns));
    return step;
}

static enum step udp_oneway_step(struct run *run)
{
    static const struct flow_events sender = {udp_oneway_due, udp_oneway_put, NULL},
                                    receiver = {udp_oneway_due, NULL, udp_oneway_get};
    struct udp_oneway *state = run->state;
    if (run_receives(run) && datagrams_settled(run, &state->settling, state->sequence.unique_count,
                                               ((const struct udp_oneway_options *)run->options)->settle_s))
        return STEP_DONE;
    return flows_step(run, &state->flows, run_receives(run) ? &receiver : &sender);
}

static void udp_oneway_runs(const struct udp_oneway *state, uint64_t sent, struct udp_oneway_metrics *metrics)
{
    uint64_t run_count = 0, longest = 0, length = 0;
    for (uint64_t n = 0; n < sent; n++) {
        bool here = state->seen[n / 64] >> (n % 64) & 1;
        length = here ? 0 : length + 1;
        run_count += length == 1;
        longest = length > longest ? length : longest;
    }
    metrics->loss_run_count = (double)run_count;
    metrics->loss_run_max_count = (double)longest;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The value that this share is at most, of a sorted list. */
static double share_of(const int64_t *sorted, size_t count, double share)
{
    size_t rank = (size_t)ceil(share * (double)count);
    return (double)sorted[rank ? rank - 1 : 0];
}

static int64_t least_of(const int64_t *list, size_t count)
{
    int64_t least = list[0];
    for (size_t i = 1; i < count; i++)
        least = list[i] < least ? list[i] : least;
    return least;
}

static void udp_oneway_delays(struct udp_oneway *state, struct udp_oneway_metrics *metrics)
{
    size_t count = state->count, half = count / 2, change_count = count - 1;
    int64_t *list = state->transit_ns, *changes = memory_new(count, sizeof *changes);
    double sum_ns = 0;
    for (size_t i = 0; i < change_count; i++) {
        changes[i] = llabs(list[i + 1] - list[i]);
        sum_ns += (double)changes[i];
    }
    metrics->delay_trend_ns = (double)(least_of(list + half, count - half) - least_of(list, half));
    qsort(changes, change_count, sizeof *changes, by_size);
    qsort(list, count, sizeof *list, by_size);
    metrics->jitter_ns = state->jitter_ns;
    metrics->jitter_mean_ns = sum_ns / (double)change_count;
    metrics->jitter_p50_ns = share_of(changes, change_count, 0.5);
    metrics->jitter_max_ns = (double)changes[change_count - 1];
    metrics->delay_change_p50_ns = share_of(list, count, 0.5) - (double)list[0];
    metrics->delay_change_max_ns = (double)(list[count - 1] - list[0]);
    if (change_count >= 500) { /* five above it */
        metrics->jitter_p99_ns = share_of(changes, change_count, 0.99);
        metrics->delay_change_p99_ns = share_of(list, count, 0.99) - (double)list[0];
    }
    free(changes);
}

static void udp_oneway_report(struct run *run)
{
    struct udp_oneway *state = run->state;
    const struct udp_oneway_options *options = run->options;
    struct udp_oneway_metrics *metrics = run->metrics;
    socket_options_granted(run, state->flows.list[0].descriptor, &options->sockets, SOCK_DGRAM);
    if (run->is_active) {
        metrics->sent_count = (double)run->sent_count;
        metrics->pacing_late_max_ns = (double)state->pace.late_max_ns;
        return;
    }
    arrivals_report(run, &state->arrivals);
    double sent = (double)run->peer_sent_count, received = (double)state->sequence.unique_count;
    metrics->received_count = received;
    metrics->lost_count = fmax(sent - received, 0);
    metrics->lost_ratio = sent > 0 ? metrics->lost_count / sent : (double)NAN;
    metrics->reordered_count = (double)state->sequence.reordered_count;
    metrics->duplicate_count = (double)state->sequence.duplicate_count;
    if (run->peer_sent_count <= KEPT_MAX)
        udp_oneway_runs(state, run->peer_sent_count, metrics);
    else
        run_warn(run, "samples_truncated", "delays are of the first %d arrivals, runs of loss are left out", KEPT_MAX);
    if (state->count >= 2)
        udp_oneway_delays(state, metrics);
    else
        run_invalid(run, "fewer than two datagrams arrived of %.0f sent", sent);
}

static void udp_oneway_close(struct run *run)
{
    struct udp_oneway *state = run->state;
    if (state->listener > 0)
        close(state->listener);
    flows_close(&state->flows);
    free(state->seen);
    free(state->transit_ns);
}

const struct kernel kernel_udp_oneway = {
    .name = "udp_oneway",
    .summary = "loss and its runs, reordering, jitter and change of delay of evenly spaced datagrams, one way",
    .method =
        "The sender stamps and sends a numbered datagram whenever one is due at rate_pps. The receiver keeps each "
        "number and each transit time, from the sender's stamp to the kernel's own stamp of the arrival. The clocks of "
        "the ends need not agree: only differences of transit times are reported.",
    .size_option = "message_bytes",
    .options = OPTION_TABLE_RELATED(option_rows, struct udp_oneway_options, option_defaults, relations),
    .metrics = METRIC_TABLE(metric_rows, struct udp_oneway_metrics),
    .state_bytes = sizeof(struct udp_oneway),
    .server_sends = udp_oneway_server_sends,
    .listen = udp_oneway_listen,
    .open = udp_oneway_open,
    .begin = udp_oneway_begin,
    .step = udp_oneway_step,
    .report = udp_oneway_report,
    .close = udp_oneway_close,
};
