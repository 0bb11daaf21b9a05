/* See companion.h. A probe is a datagram, or so many bytes of a connection:
 *
 *   phase and number   when it was due   when it was sent   how long the server held it   nothing
 *   8                  8                 8                  8                             to companion_message_bytes */
#include "kernels/companion.h"

#include "base/sequence.h"
#include "base/signals.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

const char *const companion_choices[] = {"none", "tcp_pingpong", "udp_pingpong", NULL};
enum { COMPANION_NONE, COMPANION_TCP, COMPANION_UDP };

/* Silent: nothing is sent, and replies are still taken. */
enum companion_phase { SILENT, IDLE, LOADED, AFTER, PHASE_COUNT };

static const char port_key[] = "companion_port";
static const uint64_t look_ns = 5000000; /* how late a thread may hear of another phase */
static const uint64_t settle_ns = NS_PER_S;
static const double kept_pace_ratio = 0.9, fast_share = 0.95;

struct part {
    struct histogram whole, path; /* as a program sees it, and of the path alone */
    uint64_t sent_count, answered_count;
};

struct companion {
    bool is_server, is_tcp, started;
    int listener;
    struct flows flows; /* one */
    size_t bytes;
    double gap_ns, alone_s;
    pthread_t thread;
    int phase, ended, error;                 /* __atomic: between the threads */
    uint64_t open_count;                     /* __atomic: probes under way */
    uint64_t loaded_start_ns, loaded_end_ns; /* the former __atomic */
    /* Of the thread, until it is joined. */
    struct arrivals arrivals;
    struct sequence sequence;
    struct part parts[PHASE_COUNT];
    struct histogram host;
    struct intervals intervals; /* medians beside the stream */
    uint64_t interval;
    uint8_t in[COMPANION_BYTES_MAX + 1], out[COMPANION_BYTES_MAX];
    size_t in_have, out_bytes, out_left;
    uint64_t number, in_phase, origin_ns, random;
    int asked_phase;
    double share; /* when in its interval the next probe is due: 0 to 1 */
};

static void field_put(uint8_t *probe, size_t field, uint64_t value)
{
    uint64_t big = htobe64(value);
    memcpy(probe + 8 * field, &big, sizeof big);
}

static uint64_t field_get(const uint8_t *probe, size_t field)
{
    uint64_t big;
    memcpy(&big, probe + 8 * field, sizeof big);
    return be64toh(big);
}

/* What both ends of the companion's socket get of the stream's options: those that say where its packets go. */
static struct socket_settings settings_of(const struct companion_settings *settings,
                                          const struct socket_settings *sockets)
{
    struct socket_settings own = *sockets;
    own.send_buffer_bytes = own.receive_buffer_bytes = own.mss_bytes = own.tcp_cork = 0;
    own.not_sent_low_water_bytes = own.pacing_rate_bps = own.source_port_first_no = own.source_port_last_no =
        own.mptcp = 0;
    own.no_delay = 1;
    snprintf(own.congestion_control, sizeof own.congestion_control, "system"); /* a stream over UDP has none */
    if (settings->companion_dscp >= 0)
        own.dscp = settings->companion_dscp;
    return own;
}

static struct companion *companion_new(const struct run *run, const struct companion_settings *settings)
{
    struct companion *companion = memory_new(1, sizeof *companion);
    companion->is_server = run->is_server;
    companion->is_tcp = settings->companion == COMPANION_TCP;
    companion->listener = -1;
    companion->bytes = (size_t)settings->companion_message_bytes;
    companion->gap_ns = 1e9 / settings->companion_rate_pps;
    companion->alone_s = settings->companion_idle_s;
    companion->intervals.interval_ns = (uint64_t)run_common(run)->series_interval_ms * 1000000;
    companion->intervals.stride = 1;
    companion->random = 0x9e3779b97f4a7c15; /* any but 0 */
    memory_noise(companion->out, sizeof companion->out);
    return companion;
}

bool companion_listen(struct run *run, const struct companion_settings *settings, const struct socket_settings *sockets,
                      struct companion **out)
{
    if (settings->companion == COMPANION_NONE)
        return true;
    struct companion *companion = *out = companion_new(run, settings);
    struct socket_settings own = settings_of(settings, sockets);
    unsigned port_of_stream = run->test_port;
    if (!(companion->is_tcp ? sockets_tcp_listen : sockets_udp_listen)(run, &own, &companion->listener))
        return false;
    char port[16];
    snprintf(port, sizeof port, "%u", run->test_port);
    run->test_port = port_of_stream;
    notes_add(&run->told, port_key, port);
    return true;
}

static void companion_failed(struct companion *companion, int error)
{
    __atomic_store_n(&companion->error, error ? error : ECONNRESET, __ATOMIC_RELAXED);
    __atomic_store_n(&companion->ended, 1, __ATOMIC_RELEASE);
}

static bool is_over(const struct companion *companion)
{
    return __atomic_load_n(&companion->ended, __ATOMIC_ACQUIRE);
}

static bool passes(int error)
{
    return error == EAGAIN || error == EINTR;
}

/* A datagram that the queue of this host refuses is lost, as one that the next queue refuses. */
static void companion_send(struct companion *companion)
{
    ssize_t sent =
        send(companion->flows.list[0].descriptor, companion->out + companion->out_bytes - companion->out_left,
             companion->out_left, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (!companion->is_tcp)
        companion->out_left = 0;
    else if (sent > 0)
        companion->out_left -= (size_t)sent;
    else if (!passes(errno))
        companion_failed(companion, errno);
}

/* The interval of the series to which a probe belongs is that in which it was sent. */
static void interval_add(struct companion *companion, uint64_t sent_ns, uint64_t whole_ns)
{
    struct intervals *intervals = &companion->intervals;
    uint64_t start_ns = __atomic_load_n(&companion->loaded_start_ns, __ATOMIC_ACQUIRE);
    uint64_t index = sent_ns > start_ns ? (sent_ns - start_ns) / intervals->interval_ns : 0;
    while (companion->interval < index && intervals->count < INTERVALS_MAX) {
        intervals_add(intervals, intervals_median_ns(intervals));
        intervals->sample_count = intervals->seen_count = 0;
        intervals->stride = 1;
        companion->interval++;
    }
    intervals_sample(intervals, whole_ns);
}

/* A reply is whole. */
static void reply_taken(struct companion *companion, uint64_t now_ns, uint64_t stamp_ns)
{
    uint64_t head = field_get(companion->in, 0), number = head & 0xffffffffffffffULL, phase = head >> 56;
    uint64_t due_ns = field_get(companion->in, 1), sent_ns = field_get(companion->in, 2),
             held_ns = field_get(companion->in, 3);
    if (phase <= SILENT || phase >= PHASE_COUNT || number >= companion->number || due_ns > now_ns || sent_ns > now_ns ||
        held_ns > now_ns - sent_ns || !sequence_add(&companion->sequence, number))
        return;
    struct part *part = &companion->parts[phase];
    uint64_t whole_ns = now_ns - due_ns, away_ns = stamp_ns > sent_ns ? stamp_ns - sent_ns : 0;
    uint64_t path_ns = away_ns > held_ns ? away_ns - held_ns : 0;
    part->answered_count++;
    histogram_add(&part->whole, whole_ns);
    histogram_add(&part->path, path_ns);
    if (phase == LOADED) {
        histogram_add(&companion->host, whole_ns > path_ns ? whole_ns - path_ns : 0);
        interval_add(companion, sent_ns, whole_ns);
    }
    __atomic_sub_fetch(&companion->open_count, 1, __ATOMIC_RELEASE);
}

/* The server's answer: what came, and how long it lay here. A token is answered too: the client waits for that. */
static void probe_answered(struct companion *companion, size_t bytes, uint64_t stamp_ns)
{
    memcpy(companion->out, companion->in, bytes);
    uint64_t now_ns = clock_now_ns();
    if (bytes == companion->bytes)
        field_put(companion->out, 3, now_ns > stamp_ns ? now_ns - stamp_ns : 0);
    companion->out_bytes = companion->out_left = bytes;
    companion_send(companion);
}

/* One call: true when it brought something. Of a connection never more than one probe, so that each has its stamp. */
static bool companion_receive(struct companion *companion)
{
    uint64_t now_ns, stamp_ns;
    size_t room = companion->is_tcp ? companion->bytes - companion->in_have : companion->bytes + 1;
    ssize_t got = arrivals_receive(&companion->arrivals, companion->flows.list[0].descriptor,
                                   companion->in + companion->in_have, room, MSG_DONTWAIT, &now_ns, &stamp_ns);
    if (got < 0 || (got == 0 && companion->is_tcp)) {
        if (got == 0 || (!passes(errno) && errno != ECONNREFUSED))
            companion_failed(companion, got ? errno : 0);
        return false;
    }
    size_t have = companion->in_have + (size_t)got;
    companion->in_have = companion->is_tcp && have < companion->bytes ? have : 0;
    if (companion->in_have)
        return true;
    if (companion->is_server && (have == companion->bytes || have == SOCKETS_JOIN_BYTES))
        probe_answered(companion, have, stamp_ns);
    else if (have == companion->bytes)
        reply_taken(companion, now_ns, stamp_ns);
    return true;
}

static void companion_wait(const struct companion *companion, uint64_t until_ns)
{
    uint64_t now_ns = clock_now_ns(), rest_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    struct pollfd poller = {.fd = companion->flows.list[0].descriptor,
                            .events = (short)(POLLIN | (companion->out_left ? POLLOUT : 0))};
    struct timespec rest = {.tv_sec = (time_t)(rest_ns / NS_PER_S), .tv_nsec = (long)(rest_ns % NS_PER_S)};
    if (rest_ns)
        ppoll(&poller, 1, &rest, NULL);
}

/* xorshift64 (Marsaglia 2003). */
static double share_next(struct companion *companion)
{
    companion->random ^= companion->random << 13;
    companion->random ^= companion->random >> 7;
    companion->random ^= companion->random << 17;
    return (double)(companion->random >> 11) / 9007199254740992.0;
}

/* Probes are due at a random moment of each interval: what the path does at a fixed rate too is not always met at the
 * same moment (RFC 3432, of the start of a periodic stream). */
static uint64_t companion_due(const struct companion *companion)
{
    return companion->origin_ns + (uint64_t)(companion->gap_ns * ((double)companion->in_phase + companion->share));
}

static void probe_send(struct companion *companion, uint64_t due_ns)
{
    companion->parts[companion->asked_phase].sent_count++;
    __atomic_add_fetch(&companion->open_count, 1, __ATOMIC_RELEASE);
    field_put(companion->out, 0, (uint64_t)companion->asked_phase << 56 | companion->number++);
    field_put(companion->out, 1, due_ns);
    field_put(companion->out, 3, 0);
    companion->in_phase++;
    companion->share = share_next(companion);
    companion->out_bytes = companion->out_left = companion->bytes;
    field_put(companion->out, 2, clock_now_ns());
    companion_send(companion);
}

/* When the client wants to send next. */
static uint64_t client_turn(struct companion *companion)
{
    int phase = __atomic_load_n(&companion->phase, __ATOMIC_ACQUIRE);
    uint64_t now_ns = clock_now_ns();
    if (phase != companion->asked_phase) {
        companion->asked_phase = phase;
        companion->origin_ns = now_ns;
        companion->in_phase = 0;
        companion->share = share_next(companion);
    }
    if (phase == SILENT)
        return FLOWS_NEVER;
    uint64_t due_ns = companion_due(companion);
    if (due_ns > now_ns || companion->out_left)
        return due_ns;
    probe_send(companion, due_ns);
    return companion_due(companion);
}

static void *companion_live(void *argument)
{
    struct companion *companion = argument;
    prctl(PR_SET_TIMERSLACK, 1UL); /* else every nap is 50 us longer */
    while (!is_over(companion)) {
        if (companion->out_left)
            companion_send(companion);
        uint64_t due_ns = companion->is_server ? FLOWS_NEVER : client_turn(companion);
        uint64_t look = clock_now_ns() + (companion->is_server ? 10 * look_ns : look_ns);
        /* A server that cannot answer takes no more. */
        if ((companion->is_server && companion->out_left) || !companion_receive(companion))
            companion_wait(companion, due_ns < look ? due_ns : look);
    }
    return NULL;
}

/* Signals are the first thread's. It runs where the process may, but not where the options pin the stream. */
static bool companion_start(struct run *run, struct companion *companion)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&companion->thread, NULL, companion_live, companion);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return fail(&run->failure, EXIT_SYSTEM, "companion: pthread_create: %s", fail_errno_name(rc));
    companion->started = true;
    run_beside(run, companion->thread);
    return true;
}

bool companion_open(struct run *run, const struct companion_settings *settings, const struct socket_settings *sockets,
                    struct companion **out)
{
    if (settings->companion == COMPANION_NONE)
        return true;
    if (!run->is_server)
        *out = companion_new(run, settings);
    struct companion *companion = *out;
    struct socket_settings own = settings_of(settings, sockets);
    unsigned port_of_stream = run->test_port;
    for (size_t i = 0; i < run->heard.count; i++)
        if (!strcmp(run->heard.list[i].name, port_key))
            run->test_port = (unsigned)strtoul(run->heard.list[i].value, NULL, 10);
    bool met = (companion->is_tcp ? sockets_tcp_beside : sockets_udp_beside)(run, &own, &companion->listener,
                                                                             &companion->flows);
    run->test_port = port_of_stream;
    if (!met)
        return false;
    arrivals_begin(&companion->arrivals, companion->flows.list[0].descriptor);
    return companion_start(run, companion);
}

static bool companion_well(struct run *run, struct companion *companion)
{
    int error = __atomic_load_n(&companion->error, __ATOMIC_RELAXED);
    return !error || fail(&run->failure, EXIT_PEER, "companion: the peer is gone (%s)", fail_errno_name(error));
}

/* Client: alone for that long, then until all replies are here, a second at most. */
static bool companion_alone(struct run *run, struct companion *companion, int phase, double seconds)
{
    uint64_t end_ns = clock_now_ns() + clock_ns_from_s(seconds), limit_ns = end_ns + settle_ns;
    __atomic_store_n(&companion->phase, phase, __ATOMIC_RELEASE);
    for (uint64_t now_ns = clock_now_ns(); now_ns < limit_ns; now_ns = clock_now_ns()) {
        if (now_ns >= end_ns)
            __atomic_store_n(&companion->phase, SILENT, __ATOMIC_RELEASE);
        if (now_ns >= end_ns + 2 * look_ns && !__atomic_load_n(&companion->open_count, __ATOMIC_ACQUIRE))
            break;
        clock_sleep_until(now_ns + 4 * look_ns < end_ns ? now_ns + 4 * look_ns : now_ns + look_ns);
        if (phase == IDLE && !control_silent(&run->control, &run->failure))
            return false;
        if (phase == IDLE && signals_stop())
            return fail(&run->failure, EXIT_INVALID, "interrupted by signal %d", signals_stop());
        if (run->interrupted || signals_stop())
            break;
    }
    return companion_well(run, companion);
}

static double tail_ns(const struct histogram *histogram, double quantile)
{
    return histogram_supports(histogram, quantile) ? histogram_quantile_ns(histogram, quantile) : (double)NAN;
}

static void times_fill(const struct histogram *histogram, struct companion_times *times)
{
    if (!histogram->count)
        return;
    times->p50_ns = histogram_quantile_ns(histogram, 0.5);
    times->p90_ns = tail_ns(histogram, 0.9);
    times->p99_ns = tail_ns(histogram, 0.99);
    times->max_ns = (double)histogram->maximum_ns;
}

/* The mean of the fastest: of a bucket its middle, within 0.4 %. */
static double fast_mean_ns(const struct histogram *histogram)
{
    double rest = fast_share * (double)histogram->count, sum = 0, count = rest;
    for (size_t i = 0; i < HISTOGRAM_BUCKET_COUNT && rest > 0; i++) {
        double here = fmin((double)histogram->buckets[i], rest);
        sum += here * ((double)histogram_lower_ns(i) + (double)histogram_lower_ns(i + 1)) / 2;
        rest -= here;
    }
    return sum / count;
}

static void companion_series(struct run *run, struct companion *companion)
{
    struct text json = {0};
    json_open(&json, '[');
    for (size_t i = 0; i < companion->intervals.count; i++)
        json_number(&json, companion->intervals.values[i]);
    json_close(&json, ']');
    run_column(run, false, "loaded_round_trip_p50_ns", &json);
}

static void companion_stop(struct companion *companion)
{
    __atomic_store_n(&companion->ended, 1, __ATOMIC_RELEASE);
    if (companion->started)
        pthread_join(companion->thread, NULL);
    companion->started = false;
}

static void companion_report(struct run *run, struct companion *companion, struct companion_metrics *metrics)
{
    const struct part *idle = &companion->parts[IDLE], *loaded = &companion->parts[LOADED];
    double wanted = (double)(companion->loaded_end_ns - companion->loaded_start_ns) / companion->gap_ns;
    arrivals_report(run, &companion->arrivals);
    times_fill(&idle->whole, &metrics->idle);
    times_fill(&loaded->whole, &metrics->loaded);
    times_fill(&companion->parts[AFTER].whole, &metrics->after);
    metrics->companion_sent_count = (double)loaded->sent_count;
    metrics->companion_lost_count = (double)(loaded->sent_count - loaded->answered_count);
    if ((double)loaded->sent_count < kept_pace_ratio * floor(wanted))
        run_warn(run, "companion_slow", "the companion sent %llu of %.0f requests: its thread had no CPU",
                 (unsigned long long)loaded->sent_count, wanted);
    if (!loaded->sent_count) {
        run_invalid(run, "the stream ended before the companion sent a request beside it");
        return;
    }
    if (!loaded->answered_count) {
        run_invalid(run, "no reply to any of the companion's %llu requests beside the stream",
                    (unsigned long long)loaded->sent_count);
        return;
    }
    companion_series(run, companion);
    metrics->loaded_host_delay_p50_ns = histogram_quantile_ns(&companion->host, 0.5);
    metrics->responsiveness_rpm = 60e9 / fast_mean_ns(&loaded->whole);
    if (!idle->answered_count)
        return;
    double before_ns = histogram_quantile_ns(&idle->path, 0.5);
    metrics->queueing_delay_p50_ns = histogram_quantile_ns(&loaded->path, 0.5) - before_ns;
    metrics->queueing_delay_p99_ns = tail_ns(&loaded->path, 0.99) - before_ns;
    metrics->queueing_delay_mean_ns = histogram_mean_ns(&loaded->path) - histogram_mean_ns(&idle->path);
}

bool companion_moment(struct run *run, struct companion *companion, enum moment moment,
                      struct companion_metrics *metrics)
{
    if (!companion)
        return true;
    if (moment == MOMENT_OPENED)
        return companion_alone(run, companion, IDLE, companion->alone_s);
    if (moment == MOMENT_STARTED) {
        __atomic_store_n(&companion->loaded_start_ns, run->phase_start_ns, __ATOMIC_RELEASE);
        __atomic_store_n(&companion->phase, LOADED, __ATOMIC_RELEASE);
    } else if (moment == MOMENT_STOPPED) {
        companion->loaded_end_ns = run->sent_end_ns;
        __atomic_store_n(&companion->phase, SILENT, __ATOMIC_RELEASE);
    } else {
        bool well = companion_alone(run, companion, AFTER, run->interrupted ? 0 : companion->alone_s);
        companion_stop(companion);
        if (well)
            companion_report(run, companion, metrics);
        return well;
    }
    return companion_well(run, companion);
}

void companion_close(struct companion *companion)
{
    if (!companion)
        return;
    companion_stop(companion);
    flows_close(&companion->flows);
    if (companion->listener >= 0)
        close(companion->listener);
    intervals_free(&companion->intervals);
    free(companion);
}
