/* path_probe: who is on the way, how far each is, and the largest packet that gets through.
 *
 *   client   hop limit 1      2            3 ...              size between the largest that came and the smallest
 *   routers  time exceeded    time exceeded                   that did not: too large, or not a word
 *   server                                 answer             answer
 *
 * All probes have the same addresses and ports: routers that choose a path by them choose the same for all. */
#include "path/sizes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOPS_MAX = 64, PROBES_MAX = 64 };

struct path_probe_options {
    struct common_options common;
    int64_t hop_count_max, probe_count, try_count;
    double answer_timeout_s;
    struct socket_settings sockets;
};

static const struct option_row option_rows[] = {
    OPTION_INTEGER_ROW(struct path_probe_options, hop_count_max, 30, 1, HOPS_MAX,
                       "the server must be found within so many hops"),
    OPTION_INTEGER_ROW(struct path_probe_options, probe_count, 5, 1, PROBES_MAX,
                       "round trips to each hop; a Linux router answers six at once, then one per second"),
    OPTION_INTEGER_ROW(struct path_probe_options, try_count, 3, 1, PROBES_MAX,
                       "a hop is silent, and a size too large, after so many probes without a word and none answered"),
    OPTION_NUMBER_ROW(struct path_probe_options, answer_timeout_s, 0.5, 0.001, 10,
                      "a probe that nobody speaks of in this time is lost"),
    OPTION_ROWS_COMMON(struct path_probe_options),
    OPTION_ROWS_PLACE(struct path_probe_options),
    {"dscp", OPTION_INTEGER, offsetof(struct path_probe_options, sockets.dscp), 0, 0, 63, NULL,
     "DSCP of what both ends send (RFC 2474): 46 is EF, 10 AF11; 0: best effort"},
    {"bind_device", OPTION_NAME, offsetof(struct path_probe_options, sockets.bind_device), 0, 0, 15, NULL,
     "SO_BINDTODEVICE of both ends: their packets leave and come by this interface alone; system: by any"},
    OPTION_ROWS_SOURCE(struct path_probe_options) OPTION_ROW_IDLE(struct path_probe_options)};

static const struct option_default option_defaults[] = {{"duration_s", 60}, {"warmup_s", 0}, {NULL, 0}};

struct path_probe_metrics {
    struct common_metrics common;
    double path_mtu_bytes, told_mtu_bytes, silent_size_count, hop_count, silent_hop_count, round_trip_p50_ns,
        round_trip_min_ns, round_trip_max_ns, probe_count, answered_bytes;
};

#define PROBE_ROW(field, better, help) METRIC_ROW(struct path_probe_metrics, field, better, help)

static const struct metric_row metric_rows[] = {
    PROBE_ROW(path_mtu_bytes, BETTER_HIGHER,
              "the largest IP packet that the server answered, while one byte more did not get through"),
    PROBE_ROW(told_mtu_bytes, BETTER_NONE, "the smallest MTU that a router reported; none: no router reported one"),
    PROBE_ROW(silent_size_count, BETTER_LOWER,
              "sizes that were lost without a word, try_count times each: some of the path's MTUs is a black hole"),
    PROBE_ROW(hop_count, BETTER_NONE, "hops to the server: the routers on the way, and itself"),
    PROBE_ROW(silent_hop_count, BETTER_NONE, "hops of these that did not answer"),
    PROBE_ROW(round_trip_p50_ns, BETTER_LOWER, "median round trip to the server (exact)"),
    PROBE_ROW(round_trip_min_ns, BETTER_LOWER, "smallest round trip to the server (exact)"),
    PROBE_ROW(round_trip_max_ns, BETTER_LOWER, "largest round trip to the server (exact)"),
    PROBE_ROW(probe_count, BETTER_NONE, "datagrams sent; the series hop_* have the round trips to each hop"),
    PROBE_ROW(answered_bytes, BETTER_NONE, "payload of the probes that the server answered: so much has crossed"),
    METRIC_ROWS_COMMON(struct path_probe_metrics),
    METRIC_ROWS_CALLS(struct path_probe_metrics),
};

struct hop {
    uint64_t begin_ms, round_trips_ns[PROBES_MAX];
    size_t sent_count, answered_count;
    struct address address;
    bool is_server;
};

struct path_probe {
    int listener;
    struct flows flows;
    struct probe probe;
    uint8_t *buffer;
    size_t probe_bytes;      /* of the one under way */
    uint64_t answered_bytes; /* of those that the server answered */
    struct hop hops[HOPS_MAX];
    size_t hop_count;
    struct sizes sizes;
    bool pending, arrived, finished, refused, moved;
};

static bool path_probe_listen(struct run *run)
{
    struct path_probe *state = run->state;
    const struct path_probe_options *options = run->options;
    return sockets_udp_listen(run, &options->sockets, &state->listener);
}

static bool path_probe_open(struct run *run)
{
    struct path_probe *state = run->state;
    const struct path_probe_options *options = run->options;
    if (!sockets_udp_open(run, &options->sockets, DATAGRAM_HEAD_BYTES, &state->listener, &state->flows, 1))
        return false;
    if (run->is_server)
        return true;
    if (!probe_prepare(run, &state->probe, state->flows.list[0].descriptor))
        return false;
    state->buffer = run_noise(run, probe_bytes_max(&state->probe) + 1);
    return true;
}

static void path_probe_begin(struct run *run)
{
    struct path_probe *state = run->state;
    memset(state->hops, 0, sizeof state->hops);
    state->hop_count = state->answered_bytes = 0;
    state->pending = state->arrived = state->finished = state->refused = state->moved = false;
}

static struct hop *hop_latest(struct path_probe *state)
{
    return &state->hops[state->hop_count - 1];
}

static bool hop_ends(const struct hop *hop, const struct path_probe_options *options)
{
    return hop->sent_count >= (size_t)options->probe_count ||
           (!hop->answered_count && hop->sent_count >= (size_t)options->try_count);
}

static void hop_outcome(struct run *run, struct path_probe *state, enum probe_end end)
{
    struct hop *hop = hop_latest(state);
    if (end == PROBE_LOST)
        return;
    const struct address *from = end == PROBE_ANSWERED ? &run->peer : &state->probe.from;
    state->moved = state->moved || (hop->answered_count && !address_same(from, &hop->address));
    hop->address = *from;
    hop->is_server = end == PROBE_ANSWERED;
    hop->round_trips_ns[hop->answered_count++] = state->probe.round_trip_ns;
    if (end != PROBE_ANSWERED && end != PROBE_EXPIRED)
        state->refused = state->finished = true;
}

/* To the next hop, or from the last one to the sizes; false: a system call failed. */
static bool hop_next(struct run *run, struct path_probe *state, const struct path_probe_options *options)
{
    if (state->hop_count && !hop_ends(hop_latest(state), options))
        return true;
    if (state->hop_count && hop_latest(state)->is_server) {
        state->arrived = true;
        sizes_begin(&state->sizes, &state->probe);
        return probe_hops(run, &state->probe, -1);
    }
    if (state->hop_count == (size_t)options->hop_count_max) {
        state->finished = true;
        return true;
    }
    uint64_t now_ms = (clock_now_ns() - run->phase_start_ns) / 1000000;
    uint64_t least_ms = state->hop_count ? hop_latest(state)->begin_ms + 1 : 0;
    state->hop_count++;
    hop_latest(state)->begin_ms = now_ms > least_ms ? now_ms : least_ms;
    return probe_hops(run, &state->probe, (int)state->hop_count);
}

static enum probe_end path_probe_send(struct run *run, struct path_probe *state)
{
    const struct path_probe_options *options = run->options;
    uint64_t wait_ns = clock_ns_from_s(options->answer_timeout_s);
    size_t bytes = state->probe_bytes = state->arrived ? state->sizes.next : DATAGRAM_HEAD_BYTES;
    if (!state->arrived)
        hop_latest(state)->sent_count++;
    return probe_send(run, &state->probe, state->buffer, bytes, wait_ns);
}

static enum step path_probe_ask(struct run *run)
{
    struct path_probe *state = run->state;
    const struct path_probe_options *options = run->options;
    if (!state->pending && !state->arrived && !hop_next(run, state, options))
        return STEP_FAILED;
    if (!state->pending && state->arrived && sizes_found(&state->sizes))
        state->finished = true;
    if (state->finished)
        return STEP_DONE;
    enum probe_end end = state->pending ? probe_wait(run, &state->probe) : path_probe_send(run, state);
    state->pending = end == PROBE_PENDING;
    if (end == PROBE_FAILED)
        return STEP_FAILED;
    if (state->pending)
        return STEP_BUSY;
    if (end == PROBE_ANSWERED)
        state->answered_bytes += state->probe_bytes;
    if (state->arrived)
        sizes_outcome(&state->sizes, &state->probe, end, (size_t)options->try_count);
    else
        hop_outcome(run, state, end);
    return STEP_OPERATION;
}

static enum step path_probe_step(struct run *run)
{
    struct path_probe *state = run->state;
    if (run->is_active)
        return path_probe_ask(run);
    if (run->peer_stopped)
        return STEP_DONE;
    return probe_answer(run, state->flows.list[0].descriptor) ? STEP_OPERATION : STEP_IDLE;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* What is told of a hop; NAN where it told nothing. */
struct hop_row {
    double begin_ms, no, least_ns, median_ns, most_ns, answered_count;
};

static struct hop_row hop_told(struct hop *hop, size_t no)
{
    uint64_t *list = hop->round_trips_ns;
    size_t count = hop->answered_count;
    struct hop_row row = {.begin_ms = (double)hop->begin_ms, .no = (double)no, .answered_count = (double)count};
    row.least_ns = row.median_ns = row.most_ns = (double)NAN;
    if (count) {
        qsort(list, count, sizeof *list, by_size);
        row.least_ns = (double)list[0];
        row.median_ns = (double)list[(count - 1) / 2];
        row.most_ns = (double)list[count - 1];
    }
    return row;
}

static void report_column(struct run *run, const struct hop_row *rows, size_t count, const char *name, size_t offset)
{
    struct text json = {0};
    json_open(&json, '[');
    for (size_t i = 0; i < count; i++) {
        double value;
        memcpy(&value, (const char *)&rows[i] + offset, sizeof value);
        json_number(&json, value);
    }
    json_close(&json, ']');
    run_column(run, false, name, &json);
}

static void report_hops(struct run *run, struct path_probe *state)
{
    struct path_probe_metrics *metrics = run->metrics;
    struct hop_row rows[HOPS_MAX];
    char name[64], address[ADDRESS_TEXT_BYTES];
    size_t count = state->hop_count;
    metrics->silent_hop_count = 0;
    for (size_t i = 0; i < count; i++) {
        rows[i] = hop_told(&state->hops[i], i + 1);
        metrics->silent_hop_count += !state->hops[i].answered_count;
        if (!state->hops[i].answered_count)
            continue;
        snprintf(name, sizeof name, "hop_%zu_address", i + 1);
        address_text(&state->hops[i].address, address);
        run_grant_text(run, name, address);
    }
    if (!count)
        return;
    report_column(run, rows, count, "begin_ms", offsetof(struct hop_row, begin_ms));
    report_column(run, rows, count, "hop_no", offsetof(struct hop_row, no));
    report_column(run, rows, count, "hop_round_trip_min_ns", offsetof(struct hop_row, least_ns));
    report_column(run, rows, count, "hop_round_trip_p50_ns", offsetof(struct hop_row, median_ns));
    report_column(run, rows, count, "hop_round_trip_max_ns", offsetof(struct hop_row, most_ns));
    report_column(run, rows, count, "hop_answered_count", offsetof(struct hop_row, answered_count));
    if (!state->arrived)
        return;
    metrics->hop_count = (double)count;
    metrics->round_trip_min_ns = rows[count - 1].least_ns;
    metrics->round_trip_p50_ns = rows[count - 1].median_ns;
    metrics->round_trip_max_ns = rows[count - 1].most_ns;
}

static void report_mtu(struct run *run, const struct path_probe *state)
{
    struct path_probe_metrics *metrics = run->metrics;
    const struct sizes *sizes = &state->sizes;
    size_t heads = sizes->heads_bytes;
    char address[ADDRESS_TEXT_BYTES];
    metrics->silent_size_count = (double)sizes->silent_count;
    if (sizes->told_mtu_bytes) {
        address_text(&sizes->told_by, address);
        metrics->told_mtu_bytes = (double)sizes->told_mtu_bytes;
        run_grant_text(run, "mtu_told_by", address);
    }
    if (!state->finished) {
        run_invalid(run, "the path's MTU was not found in duration_s: it is from %zu to %zu", sizes->fits + heads,
                    sizes->fails + heads - 1);
        return;
    }
    metrics->path_mtu_bytes = (double)(sizes->fits + heads);
    run_grant_text(run, "mtu_limit", sizes->limit);
    if (!strcmp(sizes->limit, "silent"))
        run_warn(run, "mtu_black_hole",
                 "packets of more than %zu bytes are lost without a word: TCP stalls on this path until it finds out",
                 sizes->fits + heads);
}

static void path_probe_report(struct run *run)
{
    struct path_probe *state = run->state;
    const struct path_probe_options *options = run->options;
    struct path_probe_metrics *metrics = run->metrics;
    char address[ADDRESS_TEXT_BYTES];
    int descriptor = state->flows.list[0].descriptor;
    socket_options_granted(run, descriptor, &options->sockets, SOCK_DGRAM);
    if (run->is_server)
        return;
    metrics->probe_count = (double)run->sent_count;
    metrics->answered_bytes = (double)state->answered_bytes;
    report_hops(run, state);
    if (state->moved)
        run_warn(run, "path_moved", "routers at the same hop changed while it was asked: the path is not one path");
    if (state->arrived) {
        report_mtu(run, state);
    } else if (state->refused) {
        address_text(&hop_latest(state)->address, address);
        run_invalid(run, "%s, %zu hops away, passed nothing on: %s", address, state->hop_count,
                    strerror(state->probe.error));
    } else {
        run_invalid(run, "the server did not answer within %zu hops", state->hop_count);
    }
}

static void path_probe_close(struct run *run)
{
    struct path_probe *state = run->state;
    if (state->listener > 0)
        close(state->listener);
    flows_close(&state->flows);
}

const struct kernel kernel_path_probe = {
    .name = "path_probe",
    .summary = "round trips to each hop of the path, and its MTU",
    .method =
        "The client sends one probe at a time. The first go one hop, then two, and so on: the router at which a "
        "probe's hops are over says so (ICMP time exceeded, read from the socket's error queue, so no root is needed), "
        "until the server answers. A round trip is from before send() to after the answer or the router's word was "
        "read. Then sizes with DF, by halves, between the largest that the server answered and the smallest that did "
        "not get through: for this host's interface does not take it, a router reported that it is too large, or "
        "try_count probes were lost without a word (a black hole). All have the same addresses and ports, so they take "
        "one path.",
    .options = OPTION_TABLE_WITH(option_rows, struct path_probe_options, option_defaults),
    .metrics = METRIC_TABLE(metric_rows, struct path_probe_metrics),
    .state_bytes = sizeof(struct path_probe),
    .listen = path_probe_listen,
    .open = path_probe_open,
    .begin = path_probe_begin,
    .step = path_probe_step,
    .report = path_probe_report,
    .close = path_probe_close,
};
