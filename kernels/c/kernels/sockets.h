/* The test channel: TCP connections and UDP sockets that only the client of this session gets. */
#ifndef HPCQ_SOCKETS_H
#define HPCQ_SOCKETS_H

#include "kernels/arrival.h"
#include "kernels/flows.h"
#include "kernels/socket_options.h"

/* A blocked call comes back after this time, so that flags and deadlines are looked at. */
bool sockets_timeout(struct run *run, int descriptor, double seconds);

/* The client's end of a flow: its address, and the port that the options name. *next: 0 for the first flow; then where
 * the next one begins to search. */
bool sockets_bind_source(struct run *run, const struct socket_settings *settings, int descriptor, unsigned *next);

/* Many flows are more files than the soft limit lets a process have, or more than the hard one. */
bool sockets_files(struct run *run, size_t count);

/* TCP: listen, then join from both sides; the first bytes are the session's token. */
bool sockets_tcp_listen(struct run *run, const struct socket_settings *settings, int *listener);
/* `count` connections, those of the server in the order in which they came. What is granted is that of the first. */
bool sockets_tcp_open(struct run *run, const struct socket_settings *settings, int *listener, struct flows *flows,
                      size_t count);

/* One more connection, of which nothing is told; *flows gets it. */
bool sockets_tcp_beside(struct run *run, const struct socket_settings *settings, int *listener, struct flows *flows);

/* UDP: the server learns its peers from the first datagrams that carry the token. */
bool sockets_udp_listen(struct run *run, const struct socket_settings *settings, int *listener);
/* `count` flows between pairs of ports; those of the server share its port. datagram_bytes: the payload, for the
 * warning that it does not fit the path's MTU. */
bool sockets_udp_open(struct run *run, const struct socket_settings *settings, size_t datagram_bytes, int *listener,
                      struct flows *flows, size_t count);
/* One more pair of ports. The client waits until its token came back on it. */
bool sockets_udp_beside(struct run *run, const struct socket_settings *settings, int *listener, struct flows *flows);
/* A datagram that brings the token: a mark, the flow, the token. */
enum { SOCKETS_JOIN_BYTES = 3 + CONTROL_TOKEN_BYTES };
/* Why the system did not send a datagram of so many bytes (errno): what `option` must be where they are too many. */
bool datagram_refused(struct run *run, int descriptor, const char *option, size_t bytes);
double sockets_drops(const struct flows *flows); /* datagrams that full buffers refused; NAN when unknown */

/* The head of each datagram: 8 bytes phase and sequence number, 8 bytes send stamp, both big-endian. */
enum { DATAGRAM_HEAD_BYTES = 16 };
void datagram_write(uint8_t *datagram, enum phase phase, uint64_t sequence, uint64_t stamp_ns);
enum phase datagram_read(const uint8_t *datagram, uint64_t *sequence, uint64_t *stamp_ns);

/* A receiver's end of a phase: when it read last, and when it heard of the sender's stop. */
struct settling {
    uint64_t read_ns, stop_ns;
};
/* Everything is here, or nothing came for settle_s since the stop: what is missing is lost. */
bool datagrams_settled(const struct run *run, struct settling *settling, uint64_t here_count, double settle_s);
/* What a receiver of one datagram per call reads. */
struct datagram {
    uint64_t number, sent_ns, arrived_ns;
};
/* STEP_OPERATION: one of this phase, of exactly so many bytes; the buffer has room for one byte more. */
enum step datagram_get(struct run *run, struct flow *flow, struct arrivals *arrivals, uint8_t *buffer, size_t bytes,
                       int flags, struct settling *settling, struct datagram *out);

#endif
