/* What the kernel knows of one TCP connection, in a form that fits every kernel and every C library. */
#ifndef HPCQ_TCP_INFO_H
#define HPCQ_TCP_INFO_H

#include "base/text.h"

/* Each of them NAN where the kernel does not tell it. */
double tcp_info_retransmits(int descriptor);       /* segments since the connection began */
double tcp_info_round_trip_ns(int descriptor);     /* the smoothed estimate */
double tcp_info_arrived_bytes(int descriptor);     /* acknowledged since the connection began; Linux 4.1 */
double tcp_info_window(int descriptor);            /* congestion window, segments */
double tcp_info_peer_window_bytes(int descriptor); /* what the receiver last let us have in flight */

/* All of one flow at one time, for series. */
struct tcp_flow {
    double congestion_window_bytes, round_trip_ns, delivery_rate_bps, retransmit_count;
    double busy_ns, receive_window_limited_ns, send_buffer_limited_ns; /* Linux 4.10 */
};
void tcp_info_flow(int descriptor, struct tcp_flow *flow);

/* `name value` lines of the evidence source self.tcp_info; 0 or errno. */
int tcp_info_read(int descriptor, struct text *out);

#endif
