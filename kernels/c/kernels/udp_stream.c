/* udp_stream: numbered, stamped datagrams at a set rate; what arrived is counted at the receiver. */
#include "base/sequence.h"
#include "kernels/companion.h"
#include "kernels/lanes.h"
#include "kernels/packets.h"
#include "kernels/sockets.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static const double block_limit_s = 0.02;
static const uint64_t debt_limit_ns = 10000000; /* held up longer, a sender does not make up for it in a burst */
static const double at_once_ratio = 0.95;
static const double never_ns = 1e18; /* some 30 years */

static const char *const pacings[] = {"sleep", "spin", NULL};
enum { PACING_SPIN = 1 };

struct udp_stream_options {
    struct common_options common;
    int64_t message_bytes, direction, flow_count, wait_by, pacing;
    double rate_bps, settle_s;
    struct packet_settings packets;
    struct lane_settings lanes;
    struct companion_settings companion;
    struct socket_settings sockets;
};

static const struct option_row option_rows[] = {
    OPTION_INTEGER_ROW(struct udp_stream_options, message_bytes, 1452, DATAGRAM_HEAD_BYTES, DATAGRAM_BYTES_MAX,
                       "payload of one datagram, its first 16 bytes number and stamp; 1452 fits 1500 bytes with IPv6"),
    OPTION_CHOICE_ROW(struct udp_stream_options, direction, flows_directions, "which end sends"),
    OPTION_INTEGER_ROW(struct udp_stream_options, flow_count, 1, 1, FLOWS_MAX,
                       "pairs of ports that datagrams go between, in turn, served by the threads of each end"),
    OPTION_ROWS_LANES(struct udp_stream_options),
    OPTION_ROW_WAIT(struct udp_stream_options),
    OPTION_NUMBER_ROW(struct udp_stream_options, rate_bps, 1e9, 0, 1e13,
                      "payload bits per second that the sender aims at, over all flows; 0: as fast as it can"),
    OPTION_CHOICE_ROW(struct udp_stream_options, pacing, pacings,
                      "how the sender waits for a datagram's time: sleep (bursts of some 60 us) or spin (a core)"),
    OPTION_ROWS_PACKETS(struct udp_stream_options),
    OPTION_ROWS_COMMON(struct udp_stream_options),
    OPTION_ROWS_PLACE(struct udp_stream_options),
    OPTION_ROWS_SERIES(struct udp_stream_options),
    OPTION_ROWS_SWEEP(struct udp_stream_options),
    OPTION_NUMBER_ROW(struct udp_stream_options, settle_s, 0.2, 0.001, 10,
                      "silence after the stop after which what is missing is lost"),
    OPTION_ROWS_COMPANION(struct udp_stream_options),
    OPTION_ROWS_CAPTURE(struct udp_stream_options),
    OPTION_ROWS_UDP(struct udp_stream_options)};

/* The system's receive buffer is often 208 KiB, which loses datagrams in the host. */
static const struct option_default option_defaults[] = {{"receive_buffer_bytes", 4194304}, {NULL, 0}};

/* What one direction brought. */
struct udp_way {
    double throughput_bps, sent_bps, sent_count, received_count, lost_count, lost_ratio, reordered_count,
        duplicate_count, socket_drop_count, jitter_ns, pacing_slip_count, pacing_late_max_ns;
};

static const struct option_relation relations[] = {RELATION_LANES, RELATIONS_SOURCE, RELATION_FLOWS};

struct udp_stream_metrics {
    struct common_metrics common;
    struct udp_way way, back;
    double flow_fairness_ratio;
    struct companion_metrics companion;
    struct lane_metrics lanes;
};

#define WAY_ROW(name, field, better, help) {name, better, offsetof(struct udp_stream_metrics, field), help}

static const struct metric_row metric_rows[] = {
    WAY_ROW("throughput_bps", way.throughput_bps, BETTER_HIGHER,
            "payload bits per second at the receiver, each datagram once, from its first arrival to its last as the "
            "kernel stamped them; to the stop where losses left the last tenth before it silent; over the time in "
            "which they "
            "were sent where they came faster than that"),
    WAY_ROW("sent_bps", way.sent_bps, BETTER_NONE, "payload bits per second that the sender's socket took"),
    WAY_ROW("sent_count", way.sent_count, BETTER_NONE, "datagrams sent"),
    WAY_ROW("received_count", way.received_count, BETTER_NONE, "datagrams received, each once"),
    WAY_ROW("lost_count", way.lost_count, BETTER_LOWER, "datagrams sent that never arrived"),
    WAY_ROW("lost_ratio", way.lost_ratio, BETTER_LOWER, "lost_count over sent_count"),
    WAY_ROW("reordered_count", way.reordered_count, BETTER_LOWER,
            "datagrams that came after one of their flow with a higher number"),
    WAY_ROW("duplicate_count", way.duplicate_count, BETTER_LOWER, "datagrams that came again"),
    WAY_ROW(
        "socket_drop_count", way.socket_drop_count, BETTER_LOWER,
        "datagrams that the receiver's full socket buffer refused (SO_MEMINFO): lost in the host; left out with gro, "
        "where the system counts merged messages"),
    WAY_ROW("jitter_ns", way.jitter_ns, BETTER_LOWER,
            "mean change of transit time between datagrams of a flow that arrive one after the other (RFC 3550's D), "
            "up to the kernel's stamp; left out with gro, which stamps many at once"),
    WAY_ROW("pacing_slip_count", way.pacing_slip_count, BETTER_LOWER,
            "times the sender fell over 10 ms behind its rate and let that time go"),
    WAY_ROW("pacing_late_max_ns", way.pacing_late_max_ns, BETTER_LOWER,
            "the most that a datagram left after it was due; up to 10 ms are made up for in a burst"),
    WAY_ROW("flow_fairness_ratio", flow_fairness_ratio, BETTER_HIGHER,
            "Jain's index of what the flows brought: 1 when all brought the same; left out with one flow"),
    WAY_ROW("return_throughput_bps", back.throughput_bps, BETTER_HIGHER,
            "with direction both: throughput_bps from the server to the client, the other metrics are the client's "
            "datagrams"),
    WAY_ROW("return_sent_bps", back.sent_bps, BETTER_NONE,
            "with direction both: payload bits per second that the server's socket took"),
    WAY_ROW("return_sent_count", back.sent_count, BETTER_NONE, "with direction both: datagrams that the server sent"),
    WAY_ROW("return_received_count", back.received_count, BETTER_NONE,
            "with direction both: datagrams that the client received, each once"),
    WAY_ROW("return_lost_count", back.lost_count, BETTER_LOWER, "with direction both: the server's datagrams lost"),
    WAY_ROW("return_lost_ratio", back.lost_ratio, BETTER_LOWER, "return_lost_count over return_sent_count"),
    WAY_ROW("return_socket_drop_count", back.socket_drop_count, BETTER_LOWER,
            "with direction both: datagrams that the client's full socket buffer refused"),
    METRIC_ROWS_CAPTURE(struct udp_stream_metrics),
    METRIC_ROWS_COMMON(struct udp_stream_metrics),
    METRIC_ROWS_PER_BYTE(struct udp_stream_metrics),
    METRIC_ROWS_CALLS(struct udp_stream_metrics),
    METRIC_ROWS_COMPANION(struct udp_stream_metrics),
    METRIC_ROWS_LANES(struct udp_stream_metrics),
};

/* Receiver, of one flow. */
struct udp_arrivals {
    struct sequence sequence;
    double transit_before_ns;
    bool any;
};

/* Of each thread; what is of all of them, the first one has. */
struct udp_stream {
    struct companion *companion;
    int listener;
    struct flows all, flows; /* of all threads, and of this one */
    struct lanes lanes;
    bool is_other; /* not of the first thread */
    uint64_t opened_ns;
    double lane_share; /* of the gap: when this thread's first datagram is due */
    struct packets packets;
    size_t bytes;
    double gap_ns;      /* sender: between datagrams; 0: none */
    uint64_t origin_ns; /* sender: when number 0 is due */
    uint64_t slip_count, late_max_ns;
    struct udp_arrivals *arrived; /* receiver: of each flow */
    struct arrivals arrivals;
    uint64_t unique_count, first_ns, last_ns;
    uint64_t sent_first_ns, sent_last_ns; /* of what arrived, by the sender's clock */
    struct settling settling;
    double transit_change_sum_ns, drops_before;
    uint64_t transit_change_count, reordered_count, duplicate_count;
};

static bool udp_stream_server_sends(const void *options)
{
    return ((const struct udp_stream_options *)options)->direction == SERVER_TO_CLIENT;
}

static bool udp_stream_both_send(const void *options)
{
    return ((const struct udp_stream_options *)options)->direction == BOTH_WAYS;
}

static bool udp_stream_listen(struct run *run)
{
    struct udp_stream *state = run->state;
    const struct udp_stream_options *options = run->options;
    return companion_listen(run, &options->companion, &options->sockets, &state->companion) &&
           sockets_udp_listen(run, &options->sockets, &state->listener);
}

static bool udp_stream_part(struct run *run, void *to, size_t index, size_t count)
{
    const struct udp_stream *first = run->state;
    const struct udp_stream_options *options = run->options;
    struct udp_stream *state = to;
    state->is_other = state != first;
    state->bytes = (size_t)options->message_bytes;
    packets_new(run, &state->packets, &options->packets, state->bytes);
    if (options->rate_bps > 0)
        state->gap_ns = (double)count * (double)state->bytes * 8e9 / options->rate_bps;
    state->lane_share = (double)index / (double)count;
    flows_part(&first->all, &state->flows, index, count);
    state->flows.spin_to_due = options->pacing == PACING_SPIN;
    state->arrived = memory_new(state->flows.count, sizeof *state->arrived);
    for (size_t i = 0; i < state->flows.count; i++) {
        int descriptor = state->flows.list[i].descriptor;
        if (run_receives(run))
            arrivals_begin(&state->arrivals, descriptor);
        state->arrivals.floor_ns = first->opened_ns; /* tokens that came again may lie there */
        if (!packets_socket(run, &state->packets, &options->packets, descriptor, !state->is_other && i == 0) ||
            !sockets_timeout(run, descriptor, block_limit_s))
            return false;
    }
    return flows_prepare(run, &state->flows, (enum flows_wait)options->wait_by);
}

static void udp_stream_part_close(void *part)
{
    struct udp_stream *state = part;
    flows_forget(&state->flows);
    packets_free(&state->packets);
    free(state->arrived);
}

static bool udp_stream_open(struct run *run)
{
    struct udp_stream *state = run->state;
    const struct udp_stream_options *options = run->options;
    prctl(PR_SET_TIMERSLACK, 1UL); /* else every nap is 50 us longer */
    state->opened_ns = clock_now_ns();
    return companion_open(run, &options->companion, &options->sockets, &state->companion) &&
           sockets_udp_open(run, &options->sockets, (size_t)options->message_bytes, &state->listener, &state->all,
                            (size_t)options->flow_count) &&
           lanes_open(run, &state->lanes, &options->lanes, udp_stream_part, udp_stream_part_close);
}

static void udp_stream_begin(struct run *run)
{
    struct udp_stream *state = run->state;
    flows_begin(&state->flows);
    lanes_begin(&state->lanes);
    for (size_t i = 0; i < state->flows.count; i++) {
        if (state->arrived[i].sequence.next) /* 128 KiB a flow are not touched for nothing */
            sequence_clear(&state->arrived[i].sequence);
        state->arrived[i].any = false;
    }
    state->origin_ns = state->slip_count = state->late_max_ns = 0;
    state->unique_count = state->first_ns = state->last_ns = 0;
    state->sent_first_ns = state->sent_last_ns = 0;
    state->settling = (struct settling){0};
    state->transit_change_sum_ns = 0;
    state->transit_change_count = 0;
    state->drops_before = sockets_drops(&state->all);
}

static uint64_t udp_stream_due(struct run *run)
{
    struct udp_stream *state = run->state;
    if (!run_sends(run))
        return FLOWS_NEVER;
    if (state->gap_ns <= 0)
        return 0;
    if (!state->origin_ns)
        state->origin_ns = run->phase_start_ns + (uint64_t)(state->gap_ns * state->lane_share);
    return state->origin_ns + (uint64_t)fmin(state->gap_ns * (double)run->sent_count, never_ns);
}

/* One call goes out late: by how much, and whether that time is let go. */
static void udp_stream_late(struct run *run)
{
    struct udp_stream *state = run->state;
    uint64_t due_ns = udp_stream_due(run), late_ns = run->now_ns > due_ns ? run->now_ns - due_ns : 0;
    if (state->gap_ns <= 0)
        return;
    if (late_ns > state->late_max_ns)
        state->late_max_ns = late_ns;
    if (late_ns > debt_limit_ns) {
        state->slip_count++;
        state->origin_ns += late_ns;
    }
}

/* As many as one call takes, and operation_count_max still allows. */
static size_t udp_stream_count(const struct run *run)
{
    const struct udp_stream *state = run->state;
    uint64_t limit = run->phase == PHASE_MEASURE ? (uint64_t)run_common(run)->operation_count_max : 0;
    size_t room = packets_room(&state->packets);
    return limit && run->sent_count + room > limit && run->sent_count < limit ? (size_t)(limit - run->sent_count)
                                                                              : room;
}

static enum step udp_stream_put(struct run *run, struct flow *flow, int flags)
{
    struct udp_stream *state = run->state;
    size_t count = udp_stream_count(run);
    udp_stream_late(run);
    for (size_t i = 0; i < count; i++)
        datagram_write(packets_at(&state->packets, i), run->phase, flow->count + i, run->now_ns);
    ssize_t sent = packets_send(&state->packets, flow->descriptor, count, flags);
    int error = errno;
    run->call_count++;
    run->now_ns = clock_now_ns();
    if (sent > 0) {
        flow->count += (uint64_t)sent;
        if (!run->first_left_ns)
            run->first_left_ns = run->now_ns;
        run->sent_count += (uint64_t)sent;
        run->sent_bytes += (uint64_t)sent * state->bytes;
        run->operation_count += (uint64_t)sent - 1; /* the engine counts one more */
        return STEP_OPERATION;
    }
    if (error == EAGAIN)
        flow->writable = false;
    if (error == EAGAIN || error == EINTR || error == ENOBUFS || error == ECONNREFUSED)
        return STEP_IDLE;
    errno = error;
    datagram_refused(run, flow->descriptor, "message_bytes", state->bytes);
    return STEP_FAILED;
}

static void udp_stream_arrived(struct run *run, struct flow *flow, uint64_t number, uint64_t sent_ns,
                               uint64_t arrived_ns)
{
    struct udp_stream *state = run->state;
    struct udp_arrivals *arrived = &state->arrived[flow->index];
    if (!sequence_add(&arrived->sequence, number))
        return;
    /* The clocks of the ends differ by an unknown constant, which falls out of the change. */
    double transit_ns = (double)(int64_t)(arrived_ns - sent_ns);
    if (arrived->any) {
        state->transit_change_sum_ns += fabs(transit_ns - arrived->transit_before_ns);
        state->transit_change_count++;
    }
    arrived->any = true;
    arrived->transit_before_ns = transit_ns;
    if (!state->first_ns || arrived_ns < state->first_ns)
        state->first_ns = arrived_ns;
    if (arrived_ns > state->last_ns)
        state->last_ns = arrived_ns;
    if (!state->unique_count || sent_ns < state->sent_first_ns)
        state->sent_first_ns = sent_ns;
    if (sent_ns > state->sent_last_ns)
        state->sent_last_ns = sent_ns;
    state->unique_count++;
    flow->bytes += state->bytes;
}

static enum step udp_stream_get(struct run *run, struct flow *flow, int flags)
{
    struct udp_stream *state = run->state;
    struct packet_cursor cursor = {0};
    struct packet packet;
    uint64_t number, sent_ns, before = state->unique_count, stamp_ns = 0, stamped_bytes = 0;
    if (packets_receive(run, &state->packets, flow->descriptor, flags) < 0) {
        if (errno == EAGAIN)
            flow->readable = false;
        if (errno == EAGAIN || errno == EINTR || errno == ECONNREFUSED)
            return STEP_IDLE;
        fail_system(&run->failure, "recv");
        return STEP_FAILED;
    }
    while (packets_each(&state->packets, &state->arrivals, run->now_ns, &cursor, &packet)) {
        if (packet.bytes != state->bytes || datagram_read(packet.data, &number, &sent_ns) != run->phase)
            continue; /* a late token or a datagram of the warm-up */
        udp_stream_arrived(run, flow, number, sent_ns, packet.stamp_ns);
        if (packet.stamp_ns != stamp_ns && stamped_bytes)
            run_arrived(run, stamp_ns, (double)stamped_bytes);
        stamped_bytes = packet.stamp_ns == stamp_ns ? stamped_bytes + state->bytes : state->bytes;
        stamp_ns = packet.stamp_ns; /* merged datagrams have one */
    }
    if (stamped_bytes)
        run_arrived(run, stamp_ns, (double)stamped_bytes);
    if (state->unique_count == before)
        return STEP_MOVED;
    state->settling.read_ns = run->now_ns;
    if (state->is_other)
        lane_arrived(run, state->unique_count, run->now_ns);
    return run->both_send ? STEP_MOVED : STEP_OPERATION;
}

static bool udp_stream_settled(struct run *run)
{
    struct udp_stream *state = run->state;
    const struct udp_stream_options *options = run->options;
    return run->peer_stopped &&
           datagrams_settled(run, &state->settling,
                             state->unique_count + lanes_arrived(&state->lanes, &state->settling.read_ns),
                             options->settle_s);
}

static enum step udp_stream_step(struct run *run)
{
    static const struct flow_events sender = {udp_stream_due, udp_stream_put, NULL},
                                    both = {udp_stream_due, udp_stream_put, udp_stream_get};
    struct udp_stream *state = run->state;
    if (!lanes_step(&state->lanes))
        return STEP_FAILED;
    if (!state->is_other && run_receives(run) && udp_stream_settled(run))
        return STEP_DONE;
    return flows_step(run, &state->flows, run_receives(run) ? &both : &sender);
}

static void udp_stream_halt(struct run *run)
{
    struct udp_stream *state = run->state;
    lanes_halt(&state->lanes);
}

static uint64_t most_of(uint64_t one, uint64_t other)
{
    return other > one ? other : one;
}

/* What the threads sent and received is added, once. */
static void udp_stream_end(struct run *run)
{
    struct udp_stream *state = run->state;
    lanes_end(&state->lanes);
    state->reordered_count = state->duplicate_count = 0;
    for (size_t i = 0; i < state->lanes.count; i++) {
        const struct udp_stream *part = i ? state->lanes.list[i].run.state : state;
        for (size_t f = 0; f < part->flows.count; f++) {
            state->all.list[f * state->lanes.count + i].bytes = part->flows.list[f].bytes;
            state->reordered_count += part->arrived[f].sequence.reordered_count;
            state->duplicate_count += part->arrived[f].sequence.duplicate_count;
        }
        if (!i)
            continue;
        state->slip_count += part->slip_count;
        state->late_max_ns = most_of(state->late_max_ns, part->late_max_ns);
        state->unique_count += part->unique_count;
        state->first_ns = clock_earlier_ns(state->first_ns, part->first_ns);
        state->last_ns = most_of(state->last_ns, part->last_ns);
        state->sent_first_ns = clock_earlier_ns(state->sent_first_ns, part->sent_first_ns);
        state->sent_last_ns = most_of(state->sent_last_ns, part->sent_last_ns);
        state->transit_change_sum_ns += part->transit_change_sum_ns;
        state->transit_change_count += part->transit_change_count;
    }
}

/* Nothing arrives faster than it was sent, but for what a queue held back and handed over at once. A sender that lost
 * its CPU between the stamp and the call held the first one itself: the span begins when that call had returned. */
static double udp_stream_span_ns(struct run *run, double span_ns)
{
    const struct udp_stream *state = run->state;
    uint64_t begun_ns = most_of(state->sent_first_ns, run->peer_first_left_ns);
    double sent_span_ns = state->sent_last_ns > begun_ns ? (double)(state->sent_last_ns - begun_ns) : 0;
    if (span_ns >= at_once_ratio * sent_span_ns)
        return span_ns;
    run_warn(run, "arrived_at_once",
             "%s: what was sent within %.3g ms arrived within %.3g ms: a queue held it and handed it over at once; the "
             "rate is over the time in which it was sent",
             run->is_server ? "server" : "client", sent_span_ns / 1e6, span_ns / 1e6);
    return sent_span_ns;
}

static void udp_stream_report_receiver(struct run *run, struct udp_way *way)
{
    const struct udp_stream *state = run->state;
    double sent = (double)run->peer_sent_count, received = (double)state->unique_count;
    struct udp_stream_metrics *metrics = run->metrics;
    arrivals_report(run, &state->arrivals);
    way->received_count = received;
    way->lost_count = fmax(sent - received, 0);
    way->lost_ratio = sent > 0 ? way->lost_count / sent : (double)NAN;
    way->reordered_count = (double)state->reordered_count;
    way->duplicate_count = (double)state->duplicate_count;
    if (!state->packets.merged) /* the system counts messages, whatever was merged into them */
        way->socket_drop_count = sockets_drops(&state->all) - state->drops_before;
    if (state->all.count > 1 && way == &metrics->way)
        metrics->flow_fairness_ratio = flows_fairness(&state->all);
    if (state->last_ns <= state->first_ns) {
        run_invalid(run,
                    received < 2 ? "fewer than two datagrams arrived of %.0f sent"
                                 : "all datagrams that arrived of %.0f sent arrived at one moment",
                    sent);
        return;
    }
    double span_ns = udp_stream_span_ns(
        run, arrivals_span_ns(state->first_ns, state->last_ns, state->settling.stop_ns, way->lost_count > 0));
    way->throughput_bps = (received - 1) * (double)state->bytes * 8e9 / span_ns;
    if (state->transit_change_count && !state->packets.merged)
        way->jitter_ns = state->transit_change_sum_ns / (double)state->transit_change_count;
}

static void udp_stream_report_sender(struct run *run, struct udp_way *way)
{
    const struct udp_stream *state = run->state;
    way->sent_count = (double)run->sent_count;
    way->sent_bps = (double)run->sent_bytes * 8e9 / (double)(run->sent_end_ns - run->phase_start_ns);
    way->pacing_slip_count = (double)state->slip_count;
    if (state->gap_ns > 0)
        way->pacing_late_max_ns = (double)state->late_max_ns;
}

static void udp_stream_report(struct run *run)
{
    struct udp_stream *state = run->state;
    const struct udp_stream_options *options = run->options;
    struct udp_stream_metrics *metrics = run->metrics;
    lanes_report(&state->lanes, &metrics->lanes);
    socket_options_granted(run, state->all.list[0].descriptor, &options->sockets, SOCK_DGRAM);
    bool back = run->both_send && run->is_server; /* what the server sends, and the client receives */
    if (run->is_active || run->both_send)
        udp_stream_report_sender(run, back ? &metrics->back : &metrics->way);
    if (run_receives(run))
        udp_stream_report_receiver(run, run->both_send && !run->is_server ? &metrics->back : &metrics->way);
}

static bool udp_stream_moment(struct run *run, enum moment moment)
{
    const struct udp_stream *state = run->state;
    struct udp_stream_metrics *metrics = run->metrics;
    return companion_moment(run, state->companion, moment, &metrics->companion);
}

static void udp_stream_close(struct run *run)
{
    struct udp_stream *state = run->state;
    companion_close(state->companion);
    if (state->listener > 0)
        close(state->listener);
    lanes_close(&state->lanes);
    udp_stream_part_close(state);
    flows_close(&state->all);
}

const struct kernel kernel_udp_stream = {
    .name = "udp_stream",
    .summary = "rate, loss, reordering and jitter of UDP datagrams, one way or both at once",
    .method =
        "The sender numbers and stamps each datagram and sends it when it is due at rate_bps. The receiver counts "
        "first arrivals, reordered and repeated ones apart; the number sent comes over the control channel, so that "
        "loss is known exactly. The rate is the receiver's, from its first datagram to its last. Where one call takes "
        "many datagrams, they leave when the first of them is due.",
    .size_option = "message_bytes",
    .options = OPTION_TABLE_RELATED(option_rows, struct udp_stream_options, option_defaults, relations),
    .metrics = METRIC_TABLE(metric_rows, struct udp_stream_metrics),
    .state_bytes = sizeof(struct udp_stream),
    .server_sends = udp_stream_server_sends,
    .both_send = udp_stream_both_send,
    .listen = udp_stream_listen,
    .open = udp_stream_open,
    .begin = udp_stream_begin,
    .step = udp_stream_step,
    .halt = udp_stream_halt,
    .end = udp_stream_end,
    .moment = udp_stream_moment,
    .report = udp_stream_report,
    .close = udp_stream_close,
};
