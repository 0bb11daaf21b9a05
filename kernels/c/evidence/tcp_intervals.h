/* What TCP says of a sender's flows, interval by interval: states as they are at its end, and what was counted in it.
 */
#ifndef HPCQ_TCP_INTERVALS_H
#define HPCQ_TCP_INTERVALS_H

#include "base/text.h"

#include <stdint.h>

enum {
    TCP_COLUMN_COUNT = 7,
    TCP_INTERVALS_MAX = 36000,
    TCP_FLOWS_MAX = 1024 /* the sum over more is not told */
};

struct tcp_intervals {
    uint64_t interval_ns, start_ns, next_ns;
    int descriptors[TCP_FLOWS_MAX];
    size_t flow_count;
    double before[TCP_COLUMN_COUNT];
    double *values; /* TCP_COLUMN_COUNT for each interval; NAN where this end got no turn */
    size_t length, capacity;
};

/* A phase is about to start; forgets the one before, and its flows. */
void tcp_intervals_begin(struct tcp_intervals *intervals, unsigned interval_ms);
void tcp_intervals_flow(struct tcp_intervals *intervals, int descriptor);
/* To be called often: keeps the values whenever an interval is over. */
void tcp_intervals_look(struct tcp_intervals *intervals, uint64_t start_ns, uint64_t now_ns);
const char *tcp_intervals_name(size_t column);
void tcp_intervals_json(const struct tcp_intervals *intervals, size_t column, struct text *json); /* a list */
void tcp_intervals_free(struct tcp_intervals *intervals);

#endif
