/* One probe at a time on a connected UDP socket, and what became of it: an answer of the peer, or what a router or this
 * host said of it on the socket's error queue (IP_RECVERR). No root is needed. */
#ifndef HPCQ_PROBE_H
#define HPCQ_PROBE_H

#include "kernels/sockets.h"

enum probe_end {
    PROBE_PENDING,
    PROBE_ANSWERED,       /* by the peer */
    PROBE_EXPIRED,        /* a router threw it away, for its hops were over: `from` */
    PROBE_TOO_LARGE,      /* a router could not pass it on: `from`, and the MTU behind it in `told_mtu_bytes` */
    PROBE_TOO_LARGE_HERE, /* this host's own interface did not take it */
    PROBE_UNREACHABLE,    /* somebody said that the peer cannot be had: `from`, `error` */
    PROBE_LOST,           /* nothing came in time */
    PROBE_FAILED          /* run->failure says why */
};

struct probe {
    int descriptor;
    bool six; /* IPv6 */
    uint64_t number, sent_ns, round_trip_ns, limit_ns;
    size_t bytes; /* of its payload */
    struct address from;
    unsigned told_mtu_bytes;
    int error; /* errno */
};

bool probe_prepare(struct run *run, struct probe *probe, int descriptor);
size_t probe_heads_bytes(const struct probe *probe);
size_t probe_bytes_max(const struct probe *probe); /* payload of the largest packet that IP has */
size_t probe_mtu_bytes(const struct probe *probe); /* of the path, as this host knows it; 0: it does not */
bool probe_hops(struct run *run, struct probe *probe, int hop_count); /* of the probes from now on; -1: the system's */
/* Sends `bytes` of payload, of which the first bytes are overwritten. PROBE_PENDING: it is on its way. */
enum probe_end probe_send(struct run *run, struct probe *probe, uint8_t *payload, size_t bytes, uint64_t wait_ns);
/* Waits a moment for what becomes of it. */
enum probe_end probe_wait(struct run *run, struct probe *probe);
/* The peer's part: answers one datagram with its number and length; false: none came for a moment. */
bool probe_answer(struct run *run, int descriptor);

#endif
