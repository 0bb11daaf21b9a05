/* udp_rate_search: trials of evenly spaced datagrams, until the highest rate of which none is lost is known.
 *
 *   sender   | datagrams at a rate, for trial_s | silence | ask, ask ...           | the next rate, or the end
 *   receiver                                                what came, over what time
 *
 * direction says which end is the sender. It searches, whichever it is: the active end.
 *
 * This file runs the trials; rate_search.c judges them, and decides which rate is next and what the result says. */
#include "kernels/arrival.h"
#include "kernels/rate_search.h"
#include "kernels/sockets.h"

#include "base/sequence.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static const double block_limit_s = 0.02, ask_interval_s = 0.05, answer_limit_s = 5;
enum { TRIAL_BITS = 40, ANSWER_BYTES = 2 * DATAGRAM_HEAD_BYTES };
static const uint64_t index_mask = (1ULL << TRIAL_BITS) - 1; /* of a datagram in its trial; this one asks and answers */

struct udp_rate_search_options {
    struct common_options common;
    int64_t message_bytes, direction;
    struct search_settings search;
    double settle_s;
    struct socket_settings sockets;
};

static const struct option_row option_rows[] = {
    OPTION_INTEGER_ROW(struct udp_rate_search_options, message_bytes, 1452, 64, 65507,
                       "payload of one datagram, its first 16 bytes number and stamp"),
    OPTION_CHOICE_ROW(struct udp_rate_search_options, direction, flows_ways, "which end sends"),
    OPTION_ROWS_SEARCH(struct udp_rate_search_options),
    OPTION_ROWS_COMMON(struct udp_rate_search_options),
    OPTION_ROWS_PLACE(struct udp_rate_search_options),
    OPTION_NUMBER_ROW(struct udp_rate_search_options, settle_s, 0.1, 0.001, 10,
                      "silence after a trial before the receiver is asked what came"),
    OPTION_ROWS_UDP(struct udp_rate_search_options)};

static const struct option_default option_defaults[] = {
    {"receive_buffer_bytes", 4194304}, {"duration_s", 30}, {"warmup_s", 0}, {NULL, 0}};

static const struct option_relation relations[] = {RELATIONS_SOURCE};

struct udp_rate_search_metrics {
    struct common_metrics common;
    struct search_metrics search;
};

static const struct metric_row metric_rows[] = {
    METRIC_ROWS_SEARCH(struct udp_rate_search_metrics),
    METRIC_ROWS_COMMON(struct udp_rate_search_metrics),
    METRIC_ROWS_CALLS(struct udp_rate_search_metrics),
};

struct udp_rate_search {
    int listener;
    struct flows flows;
    uint8_t *buffer;
    size_t bytes;
    double bits;                                                                     /* of payload in a datagram */
    struct rate_search search;                                                       /* sender */
    uint64_t number, planned, sent, start_ns, first_ns, last_ns, ask_ns, give_up_ns; /* of the trial in hand */
    double gap_ns;
    bool asks;
    struct sequence sequence; /* receiver: of the trial in hand */
    struct arrivals arrivals;
    uint64_t first_arrival_ns, last_arrival_ns;
    double drops_before, drops_told; /* of the socket: before the trial in hand, and at the last answer */
};

static bool udp_rate_search_server_sends(const void *options)
{
    return ((const struct udp_rate_search_options *)options)->direction == SERVER_TO_CLIENT;
}

static bool udp_rate_search_listen(struct run *run)
{
    struct udp_rate_search *state = run->state;
    const struct udp_rate_search_options *options = run->options;
    return sockets_udp_listen(run, &options->sockets, &state->listener);
}

static bool udp_rate_search_open(struct run *run)
{
    struct udp_rate_search *state = run->state;
    const struct udp_rate_search_options *options = run->options;
    state->bytes = (size_t)options->message_bytes;
    state->bits = (double)state->bytes * 8;
    state->buffer = run_noise(run, state->bytes + 1);
    if (!sockets_udp_open(run, &options->sockets, state->bytes, &state->listener, &state->flows, 1))
        return false;
    state->flows.spin_to_due = true;
    prctl(PR_SET_TIMERSLACK, 1UL);
    if (!run->is_active)
        arrivals_begin(&state->arrivals, state->flows.list[0].descriptor);
    return sockets_timeout(run, state->flows.list[0].descriptor, block_limit_s) &&
           flows_prepare(run, &state->flows, FLOWS_BLOCK);
}

static void trial_begin(struct udp_rate_search *state)
{
    double pps = state->search.rate / state->bits, lasts_s = rate_search_trial_s(&state->search);
    state->number++;
    state->planned = (uint64_t)ceil(pps * lasts_s);
    state->gap_ns = 1e9 / pps;
    state->sent = 0;
    state->asks = false;
    state->start_ns = clock_now_ns();
    state->give_up_ns = state->start_ns + clock_ns_from_s(lasts_s * 1.05); /* a sender at its limit */
}

static void udp_rate_search_begin(struct run *run)
{
    struct udp_rate_search *state = run->state;
    const struct udp_rate_search_options *options = run->options;
    flows_begin(&state->flows);
    sequence_clear(&state->sequence);
    state->number = 0;
    state->first_arrival_ns = state->last_arrival_ns = 0;
    state->asks = false;
    state->drops_before = state->drops_told = sockets_drops(&state->flows);
    rate_search_begin(&state->search, &options->search, state->bits);
}

static uint64_t due(struct run *run)
{
    const struct udp_rate_search *state = run->state;
    return !run->is_active ? FLOWS_NEVER
           : state->asks   ? state->ask_ns
                           : state->start_ns + (uint64_t)(state->gap_ns * (double)state->sent);
}

static bool sender_send(struct run *run, const struct flow *flow, uint64_t index, size_t bytes, uint64_t stamp,
                        int flags)
{
    struct udp_rate_search *state = run->state;
    datagram_write(state->buffer, run->phase, state->number << TRIAL_BITS | index, stamp);
    ssize_t sent = send(flow->descriptor, state->buffer, bytes, flags | MSG_NOSIGNAL);
    int error = errno;
    run->call_count++;
    run->now_ns = clock_now_ns();
    errno = error;
    return sent == (ssize_t)bytes;
}

static enum step refused(struct run *run, const struct flow *flow, size_t bytes)
{
    if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ECONNREFUSED)
        return STEP_IDLE;
    datagram_refused(run, flow->descriptor, "message_bytes", bytes);
    return STEP_FAILED;
}

static void trial_sent(struct run *run, struct udp_rate_search *state)
{
    const struct udp_rate_search_options *options = run->options;
    state->asks = true;
    state->ask_ns = run->now_ns + clock_ns_from_s(options->settle_s);
    state->give_up_ns = state->ask_ns + clock_ns_from_s(answer_limit_s);
}

static enum step sender_put(struct run *run, struct flow *flow, int flags)
{
    struct udp_rate_search *state = run->state;
    uint64_t stamp_ns = clock_now_ns();
    if (!sender_send(run, flow, state->sent, state->bytes, stamp_ns, flags)) {
        if (run->now_ns >= state->give_up_ns)
            trial_sent(run, state);
        return refused(run, flow, state->bytes);
    }
    state->first_ns = state->sent ? state->first_ns : stamp_ns;
    state->last_ns = stamp_ns;
    run->sent_count++;
    run->sent_bytes += state->bytes;
    if (++state->sent >= state->planned || run->now_ns >= state->give_up_ns)
        trial_sent(run, state);
    return STEP_MOVED;
}

static enum step sender_ask(struct run *run, struct flow *flow, int flags)
{
    struct udp_rate_search *state = run->state;
    if (run->now_ns > state->give_up_ns) {
        fail(&run->failure, EXIT_PEER, "timed out: the receiver did not say what came of trial %llu",
             (unsigned long long)state->number);
        return STEP_FAILED;
    }
    state->ask_ns = run->now_ns + clock_ns_from_s(ask_interval_s);
    return sender_send(run, flow, index_mask, ANSWER_BYTES, 0, flags) ? STEP_MOVED : refused(run, flow, ANSWER_BYTES);
}

static enum step sender_get(struct run *run, struct flow *flow, int flags)
{
    struct udp_rate_search *state = run->state;
    uint64_t number, received, took_ns, dropped;
    ssize_t got = recv(flow->descriptor, state->buffer, state->bytes, flags);
    int error = errno;
    run->call_count++;
    run->now_ns = clock_now_ns();
    if (got < 0) {
        if (error == EAGAIN)
            flow->readable = false;
        errno = error;
        return refused(run, flow, 0);
    }
    if (got != ANSWER_BYTES || datagram_read(state->buffer, &number, &received) != run->phase ||
        number != (state->number << TRIAL_BITS | index_mask))
        return STEP_MOVED; /* asked for twice */
    datagram_read(state->buffer + DATAGRAM_HEAD_BYTES, &took_ns, &dropped);
    rate_search_trial(&state->search, &(struct trial_told){.begin_ns = state->start_ns - run->phase_start_ns,
                                                           .sent_in_ns = state->last_ns - state->first_ns,
                                                           .arrived_in_ns = took_ns,
                                                           .sent = state->sent,
                                                           .received = received,
                                                           .dropped = dropped});
    if (!rate_search_ended(&state->search))
        trial_begin(state);
    return STEP_OPERATION;
}

static enum step receiver_answer(struct run *run, const struct flow *flow, uint64_t number)
{
    struct udp_rate_search *state = run->state;
    bool mine = state->number == number >> TRIAL_BITS;
    uint8_t answer[ANSWER_BYTES] = {0};
    datagram_write(answer, run->phase, number, mine ? state->sequence.unique_count : 0);
    state->drops_told = sockets_drops(&state->flows);
    double dropped = mine ? state->drops_told - state->drops_before : 0; /* NAN where the system does not say */
    datagram_write(answer + DATAGRAM_HEAD_BYTES, PHASE_NONE,
                   mine ? state->last_arrival_ns - state->first_arrival_ns : 0, dropped > 0 ? (uint64_t)dropped : 0);
    run->call_count++;
    return send(flow->descriptor, answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT) < 0
               ? refused(run, flow, sizeof answer)
               : STEP_MOVED;
}

static enum step receiver_get(struct run *run, struct flow *flow, int flags)
{
    struct udp_rate_search *state = run->state;
    uint64_t number, sent_ns, arrived_ns;
    ssize_t got = arrivals_receive(&state->arrivals, flow->descriptor, state->buffer, state->bytes + 1, flags,
                                   &run->now_ns, &arrived_ns);
    int error = errno;
    run->call_count++;
    if (got < 0) {
        if (error == EAGAIN)
            flow->readable = false;
        errno = error;
        return refused(run, flow, 0);
    }
    if (got < DATAGRAM_HEAD_BYTES || datagram_read(state->buffer, &number, &sent_ns) != run->phase)
        return STEP_MOVED; /* a late token or a datagram of the warm-up */
    if (got == ANSWER_BYTES && (number & index_mask) == index_mask)
        return receiver_answer(run, flow, number);
    if (got != (ssize_t)state->bytes || number >> TRIAL_BITS < state->number)
        return STEP_MOVED;
    if (number >> TRIAL_BITS > state->number) {
        state->number = number >> TRIAL_BITS;
        state->drops_before = state->drops_told;
        sequence_clear(&state->sequence);
        state->first_arrival_ns = arrived_ns;
    }
    if (sequence_add(&state->sequence, number & index_mask))
        state->last_arrival_ns = arrived_ns;
    return STEP_OPERATION;
}

static enum step udp_rate_search_step(struct run *run)
{
    static const struct flow_events sends = {due, sender_put, NULL}, asks = {due, sender_ask, sender_get},
                                    receives = {due, NULL, receiver_get};
    struct udp_rate_search *state = run->state;
    if (!run->is_active)
        return run->peer_stopped ? STEP_DONE : flows_step(run, &state->flows, &receives);
    if (!state->number)
        trial_begin(state); /* the clock of the phase runs now */
    enum step step = flows_step(run, &state->flows, state->asks ? &asks : &sends);
    return step != STEP_FAILED && rate_search_ended(&state->search) ? STEP_DONE : step;
}

static void udp_rate_search_report(struct run *run)
{
    struct udp_rate_search *state = run->state;
    const struct udp_rate_search_options *options = run->options;
    struct udp_rate_search_metrics *metrics = run->metrics;
    socket_options_granted(run, state->flows.list[0].descriptor, &options->sockets, SOCK_DGRAM);
    if (run->is_active)
        rate_search_report(run, &state->search, &metrics->search);
    else
        arrivals_report(run, &state->arrivals);
}

static void udp_rate_search_close(struct run *run)
{
    struct udp_rate_search *state = run->state;
    if (state->listener > 0)
        close(state->listener);
    flows_close(&state->flows);
}

const struct kernel kernel_udp_rate_search = {
    .name = "udp_rate_search",
    .summary = "the highest rate of evenly spaced datagrams of which none is lost, found by trials",
    .method =
        "The sender (direction) sends datagrams evenly spaced for trial_s, then asks how many came and over what time. "
        "A trial is "
        "fine if no more than loss_ratio_max was lost and the arrivals took at most 1 % longer than the sending: else "
        "a "
        "queue on the path grew. One that failed narrowly is made again before it counts, and one in which only the "
        "receiver's full socket lost something three times. The first trial has rate_max_bps. The next ones go to what "
        "arrived, a little above "
        "what "
        "was fine, and between fine and lossy rates, until these are within resolution_ratio; the last one repeats the "
        "highest fine rate for twice as long. duration_s bounds the whole search.",
    .size_option = "message_bytes",
    .options = OPTION_TABLE_RELATED(option_rows, struct udp_rate_search_options, option_defaults, relations),
    .metrics = METRIC_TABLE(metric_rows, struct udp_rate_search_metrics),
    .state_bytes = sizeof(struct udp_rate_search),
    .server_sends = udp_rate_search_server_sends,
    .listen = udp_rate_search_listen,
    .open = udp_rate_search_open,
    .begin = udp_rate_search_begin,
    .step = udp_rate_search_step,
    .report = udp_rate_search_report,
    .close = udp_rate_search_close,
};
