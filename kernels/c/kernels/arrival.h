/* When the kernel took in what a receive brings (SO_TIMESTAMPNS, socket(7)), on our clock: a receiver that had to wait
 * for a CPU does not move it. Stamps are of the wall clock, which may be set while a test runs: how far it is from ours
 * is read again and again. */
#ifndef HPCQ_ARRIVAL_H
#define HPCQ_ARRIVAL_H

#include "engine/run.h"

#include <sys/socket.h>
#include <sys/types.h>

struct arrivals {
    int64_t real_minus_monotonic_ns;             /* 0: not stamped here */
    int64_t before_ns;                           /* the same before the wall clock was set; 0: it was not */
    uint64_t checked_ns, set_after_ns, floor_ns; /* nothing arrived before the floor */
    bool distrusted;                             /* stamps and clock disagree: when something was read counts instead */
};

/* -1: no socket is asked for stamps, and arrivals_told() tells those of others. */
void arrivals_begin(struct arrivals *arrivals, int descriptor);
/* When the wall clock said so, on our clock; it was read from a socket at now_ns. */
uint64_t arrivals_told(struct arrivals *arrivals, int64_t stamp_ns, uint64_t now_ns);
/* The stamp that a message brought; now_ns where it brought none. */
uint64_t arrivals_stamp(struct arrivals *arrivals, struct msghdr *message, uint64_t now_ns);
/* As recv(); *stamp_ns is the arrival of the datagram, or of the last segment of these bytes, else *now_ns. */
ssize_t arrivals_receive(struct arrivals *arrivals, int descriptor, void *buffer, size_t bytes, int flags,
                         uint64_t *now_ns, uint64_t *stamp_ns);
/* At the end: a warning where the wall clock was set, or its stamps cannot be. */
void arrivals_report(struct run *run, const struct arrivals *arrivals);
/* What a stream's rate is divided by: from the first arrival to the last. Where something was lost and nothing came in
 * the last tenth before the stop, that silence is the path's, not the sender's, and belongs to the time. */
double arrivals_span_ns(uint64_t first_ns, uint64_t last_ns, uint64_t stop_ns, bool lost);

#endif
