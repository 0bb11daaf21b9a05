/* udp_dispersion: trains of datagrams, sent back to back, which the narrowest link of the path spaces out.
 *
 *   sender     ||||||||                               ||||||||      every train_interval_s
 *   narrowest  |  |  |  |  |  |  |  |                 |  |  ...
 *   receiver   |<- dispersion ----->|                  capacity = bits of all but the first / dispersion
 */
#include "kernels/arrival.h"
#include "kernels/requests.h"
#include "kernels/sockets.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static const double block_limit_s = 0.02;
/* A sender that took longer than this share of the dispersion may have spaced the train itself. */
static const double sender_ratio_max = 0.5;
/* A datagram that follows the one before in less than this share of the train's mean gap did not queue behind it. */
static const double close_ratio = 0.25, close_ratio_max = 0.1;
/* A bucket of tokens lets the head of a train pass faster than the link's rate: its tail says how much too much the
 * whole train would say. */
static const double head_gain_max = 0.025;
enum { TRAINS_MAX = 1 << 16, TRAINS_MIN = 10, TRAIN_MAX = 256, IPV4_HEADS_BYTES = 20 + 8, IPV6_HEADS_BYTES = 40 + 8 };

struct udp_dispersion_options {
    struct common_options common;
    int64_t message_bytes, train_datagram_count, direction, wait_by;
    double train_interval_s, settle_s;
    struct socket_settings sockets;
};

static const struct option_row option_rows[] = {
    OPTION_INTEGER_ROW(struct udp_dispersion_options, message_bytes, 1452, DATAGRAM_HEAD_BYTES, 65507,
                       "payload of one datagram, its first 16 bytes number and stamp"),
    OPTION_INTEGER_ROW(struct udp_dispersion_options, train_datagram_count, 8, 2, TRAIN_MAX,
                       "datagrams of a train, sent one right after the other; 2: packet pairs"),
    {"direction", OPTION_CHOICE, offsetof(struct udp_dispersion_options, direction), 0, 0, 0, flows_ways,
     "which end sends"},
    OPTION_ROW_WAIT(struct udp_dispersion_options),
    OPTION_NUMBER_ROW(struct udp_dispersion_options, train_interval_s, 0.05, 0.0001, 10,
                      "from the start of a train to that of the next: longer than the narrowest link needs for one"),
    OPTION_ROWS_COMMON(struct udp_dispersion_options),
    OPTION_ROWS_PLACE(struct udp_dispersion_options),
    OPTION_NUMBER_ROW(struct udp_dispersion_options, settle_s, 0.2, 0.001, 10,
                      "silence after the stop after which what is missing is lost"),
    OPTION_ROWS_UDP(struct udp_dispersion_options)};

/* Fragments would be spaced too, and their heads are in no count: rather an error than a wrong capacity. */
static const struct option_default option_defaults[] = {
    {"receive_buffer_bytes", 4194304}, {"do_not_fragment", 1}, {NULL, 0}};

static const struct option_relation relations[] = {RELATIONS_SOURCE};

struct udp_dispersion_metrics {
    struct common_metrics common;
    double capacity_bps, capacity_p25_bps, capacity_p75_bps, dispersion_p50_ns, sender_dispersion_p50_ns,
        train_sent_count, train_used_count, train_incomplete_count, train_sender_bound_count, close_gap_ratio,
        head_gain_ratio;
};

#define DISPERSION_ROW(field, better, help) METRIC_ROW(struct udp_dispersion_metrics, field, better, help)

static const struct metric_row metric_rows[] = {
    DISPERSION_ROW(capacity_bps, BETTER_HIGHER,
                   "rate of the path's narrowest link in bits of IP packets: mean of the narrowest interval that holds "
                   "half of the used trains"),
    DISPERSION_ROW(capacity_p25_bps, BETTER_NONE, "a quarter of the used trains say at most this"),
    DISPERSION_ROW(capacity_p75_bps, BETTER_NONE, "three quarters of the used trains say at most this"),
    DISPERSION_ROW(dispersion_p50_ns, BETTER_NONE,
                   "median time from the arrival of the first datagram of a train to that of its last"),
    DISPERSION_ROW(sender_dispersion_p50_ns, BETTER_NONE, "the same as the trains left the sender"),
    DISPERSION_ROW(train_sent_count, BETTER_NONE, "trains sent"),
    DISPERSION_ROW(train_used_count, BETTER_NONE, "trains that capacity_bps rests on"),
    DISPERSION_ROW(train_incomplete_count, BETTER_LOWER, "trains left out: a datagram was lost, or came out of order"),
    DISPERSION_ROW(train_sender_bound_count, BETTER_LOWER,
                   "trains left out: the sender took more than half as long as the dispersion"),
    DISPERSION_ROW(close_gap_ratio, BETTER_LOWER,
                   "share of the gaps in used trains below a quarter of their train's mean gap: arrivals that were "
                   "stamped together (GRO, interrupt coalescing), or a bucket of tokens that lets bursts pass"),
    DISPERSION_ROW(
        head_gain_ratio, BETTER_NONE,
        "how much more trains say than the later half of their gaps, in the median: the tokens that a bucket "
        "had saved; none with packet pairs"),
    METRIC_ROWS_COMMON(struct udp_dispersion_metrics),
    METRIC_ROWS_CALLS(struct udp_dispersion_metrics),
};

/* The train that is arriving. */
struct train {
    uint64_t number, sent_ns[TRAIN_MAX], arrived_ns[TRAIN_MAX];
    size_t count;
};

struct udp_dispersion {
    int listener;
    struct flows flows;
    uint8_t *buffer;
    size_t bytes, length;
    struct requests pace; /* sender */
    struct arrivals arrivals;
    struct train train;
    double *dispersion_ns, *sender_ns; /* receiver: of each used train; of each complete one */
    double *head_gain;                 /* of each used train */
    size_t used_count, complete_count;
    uint64_t sender_bound_count, gap_count, close_gap_count;
    uint64_t received_count;
    struct settling settling;
};

static bool udp_dispersion_server_sends(const void *options)
{
    return ((const struct udp_dispersion_options *)options)->direction == SERVER_TO_CLIENT;
}

static bool udp_dispersion_listen(struct run *run)
{
    struct udp_dispersion *state = run->state;
    const struct udp_dispersion_options *options = run->options;
    return sockets_udp_listen(run, &options->sockets, &state->listener);
}

static bool udp_dispersion_open(struct run *run)
{
    struct udp_dispersion *state = run->state;
    const struct udp_dispersion_options *options = run->options;
    struct request_settings pace = {.rate_pps = 1 / options->train_interval_s};
    state->bytes = (size_t)options->message_bytes;
    state->length = (size_t)options->train_datagram_count;
    state->buffer = run_noise(run, state->bytes + 1);
    requests_prepare(&state->pace, &pace);
    if (!sockets_udp_open(run, &options->sockets, state->bytes, &state->listener, &state->flows, 1))
        return false;
    if (run_receives(run)) {
        state->dispersion_ns = memory_new(TRAINS_MAX, sizeof *state->dispersion_ns);
        state->sender_ns = memory_new(TRAINS_MAX, sizeof *state->sender_ns);
        state->head_gain = memory_new(TRAINS_MAX, sizeof *state->head_gain);
        arrivals_begin(&state->arrivals, state->flows.list[0].descriptor);
    }
    return sockets_timeout(run, state->flows.list[0].descriptor, block_limit_s) &&
           flows_prepare(run, &state->flows, (enum flows_wait)options->wait_by);
}

static void udp_dispersion_begin(struct run *run)
{
    struct udp_dispersion *state = run->state;
    flows_begin(&state->flows);
    requests_begin(&state->pace);
    state->train.number = state->train.count = 0;
    state->used_count = state->complete_count = 0;
    state->sender_bound_count = state->gap_count = state->close_gap_count = 0;
    state->received_count = 0;
    state->settling = (struct settling){0};
}

static uint64_t udp_dispersion_due(struct run *run)
{
    struct udp_dispersion *state = run->state;
    return run_sends(run) ? requests_due(run, &state->pace) : FLOWS_NEVER;
}

/* A whole train. One that the socket did not take as a whole is incomplete at the receiver. */
static enum step udp_dispersion_put(struct run *run, struct flow *flow, int flags)
{
    struct udp_dispersion *state = run->state;
    requests_start(run, &state->pace);
    run->under_way_count = 0; /* nothing is waited for */
    for (size_t i = 0; i < state->length; i++) {
        datagram_write(state->buffer, run->phase, run->sent_count++, clock_now_ns());
        ssize_t sent = send(flow->descriptor, state->buffer, state->bytes, flags | MSG_NOSIGNAL);
        run->call_count++;
        run->sent_bytes += state->bytes;
        if (sent != (ssize_t)state->bytes && errno != EAGAIN && errno != EINTR && errno != ENOBUFS &&
            errno != ECONNREFUSED) {
            datagram_refused(run, flow->descriptor, "message_bytes", state->bytes);
            return STEP_FAILED;
        }
    }
    run->now_ns = clock_now_ns();
    return STEP_OPERATION;
}

/* All of it is here, in order. */
static void udp_dispersion_complete(struct udp_dispersion *state)
{
    const struct train *train = &state->train;
    size_t last = state->length - 1;
    double dispersion_ns = (double)train->arrived_ns[last] - (double)train->arrived_ns[0];
    double sender_ns = (double)(train->sent_ns[last] - train->sent_ns[0]);
    if (state->complete_count >= TRAINS_MAX)
        return;
    state->sender_ns[state->complete_count++] = sender_ns;
    if (dispersion_ns <= 0 || sender_ns > sender_ratio_max * dispersion_ns) {
        state->sender_bound_count++;
        return;
    }
    double tail_ns = (double)train->arrived_ns[last] - (double)train->arrived_ns[last / 2];
    state->head_gain[state->used_count] = tail_ns * (double)last / (double)(last - last / 2) / dispersion_ns - 1;
    state->dispersion_ns[state->used_count++] = dispersion_ns;
    state->gap_count += last;
    for (size_t i = 0; i < last; i++) {
        double gap_ns = (double)train->arrived_ns[i + 1] - (double)train->arrived_ns[i];
        state->close_gap_count += gap_ns < close_ratio * dispersion_ns / (double)last;
    }
}

static void udp_dispersion_keep(struct udp_dispersion *state, uint64_t number, uint64_t sent_ns, uint64_t arrived_ns)
{
    struct train *train = &state->train;
    size_t index = number % state->length;
    if (!index)
        *train = (struct train){.number = number / state->length};
    if (train->number != number / state->length || train->count != index)
        return; /* one before it is missing */
    train->sent_ns[index] = sent_ns;
    train->arrived_ns[index] = arrived_ns;
    if (++train->count == state->length)
        udp_dispersion_complete(state);
}

static enum step udp_dispersion_get(struct run *run, struct flow *flow, int flags)
{
    struct udp_dispersion *state = run->state;
    struct datagram one;
    enum step step =
        datagram_get(run, flow, &state->arrivals, state->buffer, state->bytes, flags, &state->settling, &one);
    if (step != STEP_OPERATION)
        return step;
    state->received_count++;
    udp_dispersion_keep(state, one.number, one.sent_ns, one.arrived_ns);
    return STEP_OPERATION;
}

static enum step udp_dispersion_step(struct run *run)
{
    static const struct flow_events sender = {udp_dispersion_due, udp_dispersion_put, NULL},
                                    receiver = {udp_dispersion_due, NULL, udp_dispersion_get};
    struct udp_dispersion *state = run->state;
    if (run_receives(run) && datagrams_settled(run, &state->settling, state->received_count,
                                               ((const struct udp_dispersion_options *)run->options)->settle_s))
        return STEP_DONE;
    return flows_step(run, &state->flows, run_receives(run) ? &receiver : &sender);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value that this share is at most, of a sorted list. */
static double share_of(const double *sorted, size_t count, double share)
{
    size_t rank = (size_t)ceil(share * (double)count);
    return sorted[rank ? rank - 1 : 0];
}

/* Mean of the narrowest interval that holds half of a sorted list. Other traffic makes some trains longer, and queues
 * behind the narrowest link make some shorter: neither moves where most of them agree. */
static double narrowest_half_mean(const double *sorted, size_t count)
{
    size_t half = count / 2 + 1, start = 0;
    double sum = 0;
    for (size_t i = 1; i + half <= count; i++)
        if (sorted[i + half - 1] - sorted[i] < sorted[start + half - 1] - sorted[start])
            start = i;
    for (size_t i = start; i < start + half; i++)
        sum += sorted[i];
    return sum / (double)half;
}

static void udp_dispersion_capacity(struct run *run, struct udp_dispersion *state)
{
    struct udp_dispersion_metrics *metrics = run->metrics;
    size_t heads = run->peer.storage.ss_family == AF_INET6 ? IPV6_HEADS_BYTES : IPV4_HEADS_BYTES;
    double bits = (double)(state->bytes + heads) * 8 * (double)(state->length - 1);
    double *list = state->dispersion_ns;
    qsort(list, state->used_count, sizeof *list, by_size);
    metrics->capacity_bps = bits * 1e9 / narrowest_half_mean(list, state->used_count);
    metrics->capacity_p25_bps = bits * 1e9 / share_of(list, state->used_count, 0.75);
    metrics->capacity_p75_bps = bits * 1e9 / share_of(list, state->used_count, 0.25);
    metrics->dispersion_p50_ns = share_of(list, state->used_count, 0.5);
    metrics->close_gap_ratio = (double)state->close_gap_count / (double)state->gap_count;
    if (state->length < 3)
        return;
    qsort(state->head_gain, state->used_count, sizeof *state->head_gain, by_size);
    metrics->head_gain_ratio = share_of(state->head_gain, state->used_count, 0.5);
}

/* What forbids a capacity, in the order in which it helps to know. */
static void udp_dispersion_judge(struct run *run, const struct udp_dispersion *state, double sent)
{
    const struct udp_dispersion_metrics *metrics = run->metrics;
    if (!state->arrivals.real_minus_monotonic_ns)
        run_invalid(run, "the system does not stamp arrivals (SO_TIMESTAMPNS): when a datagram was read says nothing");
    else if ((double)state->sender_bound_count > (double)state->complete_count / 2)
        run_invalid(run,
                    "%llu of %zu trains arrived in less than twice the time that the sender took: the path is faster "
                    "than the sender, or the receiver stamps arrivals together (GRO, interrupt coalescing)",
                    (unsigned long long)state->sender_bound_count, state->complete_count);
    else if (state->used_count < TRAINS_MIN)
        run_invalid(run, "%zu of %.0f trains arrived whole and in order: at least %d are needed", state->used_count,
                    sent, TRAINS_MIN);
    else if (metrics->close_gap_ratio > close_ratio_max)
        run_invalid(
            run,
            "%.0f %% of the gaps are below a quarter of their train's mean: arrivals are stamped together (GRO, "
            "interrupt coalescing), or a bucket of tokens lets bursts pass",
            metrics->close_gap_ratio * 100);
    else if (state->length > 2 && metrics->head_gain_ratio > head_gain_max)
        run_invalid(
            run,
            "trains say %.0f %% more than the later half of their gaps: a bucket of tokens lets their head pass; "
            "raise train_datagram_count",
            metrics->head_gain_ratio * 100);
    else if (state->length == 2)
        run_warn(run, "bucket_unseen",
                 "a pair has one gap, which does not tell a bucket of tokens from a faster link: raise "
                 "train_datagram_count");
}

static void udp_dispersion_report(struct run *run)
{
    struct udp_dispersion *state = run->state;
    const struct udp_dispersion_options *options = run->options;
    struct udp_dispersion_metrics *metrics = run->metrics;
    socket_options_granted(run, state->flows.list[0].descriptor, &options->sockets, SOCK_DGRAM);
    if (run->is_active) {
        metrics->train_sent_count = (double)run->sent_count / (double)state->length;
        return;
    }
    arrivals_report(run, &state->arrivals);
    double sent = (double)run->peer_sent_count / (double)state->length;
    metrics->train_used_count = (double)state->used_count;
    metrics->train_sender_bound_count = (double)state->sender_bound_count;
    if (sent <= TRAINS_MAX)
        metrics->train_incomplete_count = fmax(sent - (double)state->complete_count, 0);
    else
        run_warn(run, "samples_truncated", "the capacity is of the first %d trains", TRAINS_MAX);
    if (state->complete_count) {
        qsort(state->sender_ns, state->complete_count, sizeof *state->sender_ns, by_size);
        metrics->sender_dispersion_p50_ns = share_of(state->sender_ns, state->complete_count, 0.5);
    }
    if (state->used_count)
        udp_dispersion_capacity(run, state);
    udp_dispersion_judge(run, state, sent);
}

static void udp_dispersion_close(struct run *run)
{
    struct udp_dispersion *state = run->state;
    if (state->listener > 0)
        close(state->listener);
    flows_close(&state->flows);
    free(state->dispersion_ns);
    free(state->sender_ns);
    free(state->head_gain);
}

const struct kernel kernel_udp_dispersion = {
    .name = "udp_dispersion",
    .summary = "capacity of the path's narrowest link, from how far it spaces out trains of datagrams",
    .method =
        "The sender sends train_datagram_count datagrams one right after the other, every train_interval_s. The "
        "dispersion of a train runs from the kernel's stamp of its first arrival to that of its last; the bits of all "
        "datagrams but the first, with their UDP and IP heads, over that time are the rate of the narrowest link. "
        "Trains that are not whole, or that the sender itself may have spaced, are left out. The result is invalid "
        "where the sender is not faster than the path, or arrivals are stamped together.",
    .size_option = "message_bytes",
    .options = OPTION_TABLE_RELATED(option_rows, struct udp_dispersion_options, option_defaults, relations),
    .metrics = METRIC_TABLE(metric_rows, struct udp_dispersion_metrics),
    .state_bytes = sizeof(struct udp_dispersion),
    .server_sends = udp_dispersion_server_sends,
    .listen = udp_dispersion_listen,
    .open = udp_dispersion_open,
    .begin = udp_dispersion_begin,
    .step = udp_dispersion_step,
    .report = udp_dispersion_report,
    .close = udp_dispersion_close,
};
