/* Records the packets of one test channel with libpcap, in a thread beside the measurement: headers only, bounded
 * bytes, as a pcap file in memory. libpcap is looked for when it is needed: a program that was built with it runs on a
 * node without it, and says so. */
#ifndef HPCQ_CAPTURE_H
#define HPCQ_CAPTURE_H

#include "base/text.h"
#include "wire/address.h"

#include <pthread.h>

enum { CAPTURE_PACKET_BYTES = 128, CAPTURE_REASON_BYTES = 256 };

struct capture {
    pthread_t thread;
    void *library, *handle; /* of libpcap */
    unsigned port;
    int link;
    size_t max_bytes;
    int recording, stopping; /* __atomic */
    bool started;
    struct text file; /* of the thread until it has ended */
    uint64_t packet_count, dropped_count, cpu_start_ns, cpu_ns, wall_start_ns, start_ns;
    int64_t clock_moved_ns; /* how far the wall clock, by which packets are stamped, left the monotonic one */
    bool full;
};

/* NULL, and why. Before it records, it keeps only what opens a connection. */
struct capture *capture_start(const struct address *local, const struct address *peer, unsigned port, size_t max_bytes,
                              char reason[CAPTURE_REASON_BYTES]);
void capture_record(struct capture *capture);
void capture_stop(struct capture *capture); /* takes what is on its way; the file is whole then */
void capture_free(struct capture *capture); /* NULL: nothing */

#endif
