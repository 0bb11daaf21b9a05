/* When requests and replies left and came, as the system or the network card stamps them (SO_TIMESTAMPING,
 * Documentation/networking/timestamping.rst): a round trip from card to card, and what the server took of it.
 *
 *   client   send()  left ------ the path ------> came  recv()   server
 *                                                  | turn
 *            recv()  came <----- the path ------- left  send()
 *
 * A stamp of what left comes back on the socket's error queue, with the count of datagrams sent before it on that
 * socket. Software stamps are of the wall clock and are told on ours (arrival.h); those of a card are of its own clock,
 * and only the difference of two of them is used. */
#ifndef HPCQ_STAMPS_H
#define HPCQ_STAMPS_H

#include "kernels/arrival.h"
#include "kernels/flows.h"

extern const char *const stamps_clocks[];
enum stamps_clock { CLOCK_PROCESS, CLOCK_SOFTWARE, CLOCK_HARDWARE };

#define OPTION_ROW_CLOCK(type)                                                                                         \
    {"clock",                                                                                                          \
     OPTION_CHOICE,                                                                                                    \
     offsetof(type, clock),                                                                                            \
     0,                                                                                                                \
     0,                                                                                                                \
     0,                                                                                                                \
     stamps_clocks,                                                                                                    \
     "software, hardware: beside the round trip of the process, that from the stamp with which a request left to the " \
     "one with which its reply came, by the system or by the network card (SO_TIMESTAMPING)"}

struct stamps_metrics {
    double min_ns, p50_ns, p99_ns, max_ns, mean_ns, turn_p50_ns, turn_mean_ns, send_p50_ns, receive_p50_ns, count;
};

#define STAMPS_METRIC(type, name, field, better, help) {name, better, offsetof(type, stamps.field), help}
#define METRIC_ROWS_STAMPS(type)                                                                                       \
    STAMPS_METRIC(type, "stamped_round_trip_p50_ns", p50_ns, BETTER_LOWER,                                             \
                  "with clock: median time from the stamp of a request that left to that of its reply"),               \
        STAMPS_METRIC(type, "stamped_round_trip_p99_ns", p99_ns, BETTER_LOWER,                                         \
                      "99 of 100 were at most this (from 500)"),                                                       \
        STAMPS_METRIC(type, "stamped_round_trip_min_ns", min_ns, BETTER_LOWER, "the shortest of them (exact)"),        \
        STAMPS_METRIC(type, "stamped_round_trip_max_ns", max_ns, BETTER_LOWER, "the longest of them (exact)"),         \
        STAMPS_METRIC(type, "stamped_round_trip_mean_ns", mean_ns, BETTER_LOWER,                                       \
                      "their mean (exact): less stamped_server_turn_mean_ns, it is the mean of the path both ways"),   \
        STAMPS_METRIC(type, "stamped_round_trip_count", count, BETTER_NONE, "round trips that have both stamps"),      \
        STAMPS_METRIC(type, "stamped_server_turn_p50_ns", turn_p50_ns, BETTER_LOWER,                                   \
                      "with clock: median time at the server from the stamp of a request to that of its reply"),       \
        STAMPS_METRIC(type, "stamped_server_turn_mean_ns", turn_mean_ns, BETTER_LOWER, "the same, mean (exact)"),      \
        STAMPS_METRIC(type, "stamped_send_p50_ns", send_p50_ns, BETTER_LOWER,                                          \
                      "with clock: median time at the client from before send() to the system's stamp of what left"),  \
        STAMPS_METRIC(type, "stamped_receive_p50_ns", receive_p50_ns, BETTER_LOWER,                                    \
                      "with clock: median time at the client from the system's stamp of a reply to its being read")

struct stamps; /* NULL: the process's clock alone */

/* Asks the system for them on each flow. slot_count: a power of two, more than are under way at once. */
bool stamps_open(struct run *run, int64_t clock, const struct flows *flows, size_t slot_count, struct stamps **out);
void stamps_begin(struct stamps *stamps); /* a phase starts */
/* One left over a flow; call_ns: before the call. Not `sent`: the call failed, and whether it was counted is unknown.
 */
void stamps_sent(struct stamps *stamps, const struct flow *flow, bool sent, uint64_t number, uint64_t call_ns);
/* As recv(), and keeps the stamp of what came until stamps_came() says what it was. *now_ns: after the call. */
ssize_t stamps_receive(struct stamps *stamps, const struct flow *flow, void *buffer, size_t bytes, int flags,
                       uint64_t *now_ns);
/* What was received last has this number, and was read at now_ns. */
void stamps_came(struct stamps *stamps, uint64_t number, uint64_t now_ns);
/* Takes what the error queue of a flow has; returns how many calls that took. */
uint64_t stamps_collect(struct stamps *stamps, const struct flow *flow);
void stamps_report(struct run *run, const struct stamps *stamps, struct stamps_metrics *metrics);
void stamps_close(struct stamps *stamps);

#endif
