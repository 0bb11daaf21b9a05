/* Socket settings that several kernels share: what was asked for, what the system granted, and the warning between. */
#ifndef HPCQ_SOCKETS_H
#define HPCQ_SOCKETS_H

#include "engine/run.h"

struct tcp_settings {
    int64_t send_buffer_bytes, receive_buffer_bytes; /* 0: the system's default */
    int64_t mss_bytes;                               /* 0: the path's */
    int64_t no_delay;
    int64_t congestion_control; /* index into sockets_congestion_controls; 0: the system's */
};

extern const char *const sockets_congestion_controls[];

bool sockets_buffers(struct run *run, int descriptor, int64_t send_bytes, int64_t receive_bytes);
void sockets_buffers_granted(struct run *run, int descriptor, int64_t send_bytes, int64_t receive_bytes);
/* A blocked call comes back after this time, so that flags and deadlines are looked at. */
bool sockets_timeout(struct run *run, int descriptor, double seconds);

/* TCP: listen, then join from both sides; the first bytes are the session's token. */
bool sockets_tcp_listen(struct run *run, const struct tcp_settings *settings, int *listener);
bool sockets_tcp_open(struct run *run, const struct tcp_settings *settings, int *listener, int *descriptor);

/* UDP: the server learns its peer from the first datagram that carries the token. */
bool sockets_udp_listen(struct run *run, int64_t send_bytes, int64_t receive_bytes, int *descriptor);
bool sockets_udp_open(struct run *run, int64_t send_bytes, int64_t receive_bytes, int *descriptor);
double sockets_drops(int descriptor); /* datagrams that this socket's full buffer refused; NAN when unknown */

/* The head of each datagram: 8 bytes phase and sequence number, 8 bytes send stamp, both big-endian. */
enum { DATAGRAM_HEAD_BYTES = 16 };
void datagram_write(uint8_t *datagram, enum phase phase, uint64_t sequence, uint64_t stamp_ns);
enum phase datagram_read(const uint8_t *datagram, uint64_t *sequence, uint64_t *stamp_ns);

#endif
