/* A companion of a stream: round trips at a fixed rate over a socket of their own, by a thread of their own at each
 * end.
 *
 *   client   opened    idle: nothing else is sent      started    loaded     stopped     ended   after: as idle
 *              |---- companion_idle_s ----|  warm-up      |---- measurement ----|           |-- companion_idle_s --|
 *
 * A probe is timed twice: as a program sees it, from when it was due to when its reply was read; and as the path has
 * it, from send() to the kernel's stamp of the reply, less the time from the kernel's stamp of the probe at the server
 * to its reply (as RFC 8762 has it). So an end that waits for a CPU is told apart from a queue. */
#ifndef HPCQ_COMPANION_H
#define HPCQ_COMPANION_H

#include "kernels/sockets.h"

enum { COMPANION_HEAD_BYTES = 32, COMPANION_BYTES_MAX = 1400 };
extern const char *const companion_choices[];

struct companion_settings {
    int64_t companion, companion_message_bytes, companion_dscp;
    double companion_rate_pps, companion_idle_s;
};

#define COMPANION_ROW(type, field, kind, standard, minimum, maximum, help)                                             \
    {#field, kind, offsetof(type, companion.field), standard, minimum, maximum, NULL, help}
#define OPTION_ROWS_COMPANION(type)                                                                                    \
    {"companion",                                                                                                      \
     OPTION_CHOICE,                                                                                                    \
     offsetof(type, companion.companion),                                                                              \
     0,                                                                                                                \
     0,                                                                                                                \
     0,                                                                                                                \
     companion_choices,                                                                                                \
     "round trips over TCP or UDP from the client to the server at a fixed rate: before the stream, beside it and "    \
     "after it"},                                                                                                      \
        COMPANION_ROW(type, companion_rate_pps, OPTION_NUMBER, 100, 1, 10000,                                          \
                      "round trips per second, each at a random moment of its interval and timed from then"),          \
        COMPANION_ROW(type, companion_message_bytes, OPTION_INTEGER, 64, COMPANION_HEAD_BYTES, COMPANION_BYTES_MAX,    \
                      "bytes of a request and of its reply"),                                                          \
        COMPANION_ROW(type, companion_idle_s, OPTION_NUMBER, 1, 0, 10,                                                 \
                      "how long the companion runs alone, before the warm-up and again after the stream"),             \
        COMPANION_ROW(type, companion_dscp, OPTION_INTEGER, -1, -1, 63,                                                \
                      "DSCP of the companion; -1: that of the stream, as dscp says")

struct companion_times {
    double p50_ns, p90_ns, p99_ns, max_ns;
};
struct companion_metrics {
    struct companion_times idle, loaded, after;
    double queueing_delay_p50_ns, queueing_delay_p99_ns, queueing_delay_mean_ns, loaded_host_delay_p50_ns,
        responsiveness_rpm, companion_sent_count, companion_lost_count;
};

#define COMPANION_METRIC(type, name, field, better, help) {name, better, offsetof(type, companion.field), help}
#define COMPANION_TIMES(type, phase, when)                                                                             \
    COMPANION_METRIC(type, #phase "_round_trip_p50_ns", phase.p50_ns, BETTER_LOWER,                                    \
                     "with a companion: its median round trip " when ", as a program sees it"),                        \
        COMPANION_METRIC(type, #phase "_round_trip_p90_ns", phase.p90_ns, BETTER_LOWER,                                \
                         "90 of 100 round trips of the companion " when " were at most this"),                         \
        COMPANION_METRIC(type, #phase "_round_trip_p99_ns", phase.p99_ns, BETTER_LOWER,                                \
                         "99 of 100 were at most this (from 500)"),                                                    \
        COMPANION_METRIC(type, #phase "_round_trip_max_ns", phase.max_ns, BETTER_LOWER, "the longest of them")
#define METRIC_ROWS_COMPANION(type)                                                                                    \
    COMPANION_TIMES(type, idle, "before the stream"), COMPANION_TIMES(type, loaded, "beside the stream"),              \
        COMPANION_TIMES(type, after, "after the stream"),                                                              \
        COMPANION_METRIC(                                                                                              \
            type, "queueing_delay_p50_ns", queueing_delay_p50_ns, BETTER_LOWER,                                        \
            "what the stream adds to the companion's round trip over the path: the median beside it less "             \
            "that before it, without the time that either end took"),                                                  \
        COMPANION_METRIC(type, "queueing_delay_p99_ns", queueing_delay_p99_ns, BETTER_LOWER,                           \
                         "the same: what 99 of 100 were at most, less the median before the stream"),                  \
        COMPANION_METRIC(type, "queueing_delay_mean_ns", queueing_delay_mean_ns, BETTER_LOWER,                         \
                         "the same of the means"),                                                                     \
        COMPANION_METRIC(type, "loaded_host_delay_p50_ns", loaded_host_delay_p50_ns, BETTER_LOWER,                     \
                         "median of what both ends took of a round trip beside the stream: sent late, read late, "     \
                         "answered late"),                                                                             \
        COMPANION_METRIC(type, "responsiveness_rpm", responsiveness_rpm, BETTER_HIGHER,                                \
                         "round trips per minute, one after the other, beside the stream: a minute over the mean of "  \
                         "the 95 % that were fastest (draft-ietf-ippm-responsiveness)"),                               \
        COMPANION_METRIC(type, "companion_sent_count", companion_sent_count, BETTER_NONE,                              \
                         "requests of the companion beside the stream"),                                               \
        COMPANION_METRIC(type, "companion_lost_count", companion_lost_count, BETTER_LOWER,                             \
                         "of them, those without a reply a second after the last")

struct companion; /* NULL: none was asked for */

/* Server, in its listen(): another socket beside that of the stream; the client hears of its port. */
bool companion_listen(struct run *run, const struct companion_settings *settings, const struct socket_settings *sockets,
                      struct companion **out);
/* Both ends, before the stream's own sockets are opened. */
bool companion_open(struct run *run, const struct companion_settings *settings, const struct socket_settings *sockets,
                    struct companion **out);
/* Client: what the phase is now. */
bool companion_moment(struct run *run, struct companion *companion, enum moment moment,
                      struct companion_metrics *metrics);
void companion_close(struct companion *companion);

#endif
