/* What two captures of one test channel say together: that of the end that sends, and that of the other. */
#ifndef HPCQ_COMPARE_H
#define HPCQ_COMPARE_H

#include "base/histogram.h"
#include "capture/headers.h"

/* Counts are of segments of the connection's MSS, or of datagrams. */
struct comparison {
    struct histogram round_trip, syn_round_trip, spacing, arrival_spacing, spacing_change, delay_change;
    double sent_count, retransmit_count, lost_in_host_count, lost_on_path_count, duplicate_count, reordered_count;
    bool is_udp;
};

struct compared {
    struct headers *client, *server; /* sorted anew */
    bool client_sends;
    bool answers;                  /* UDP: a request and its reply have one number */
    uint8_t phase;                 /* UDP: the first byte of what belongs to the measurement */
    uint64_t no_number;            /* UDP: none of them */
    bool client_full, server_full; /* the file ends before the measurement does */
};

void captures_compare(const struct compared *captures, struct comparison *out);

#endif
