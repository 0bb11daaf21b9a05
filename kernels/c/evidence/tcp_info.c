/* struct tcp_info grows at its end only, and getsockopt() tells how much of it this kernel has. Headers of C libraries
 * stop at what was there in 2007, those of old kernels before the times that matter here (4.10), so its layout stands
 * here once more (include/uapi/linux/tcp.h). */
#include "evidence/tcp_info.h"

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

struct tcp_information {
    uint8_t states[8];
    uint32_t retransmission_timeout_us, ack_timeout_us, sent_mss_bytes, received_mss_bytes;
    uint32_t unacknowledged, selectively_acknowledged, lost, retransmitted, forward_acknowledged;
    uint32_t last_times_ms[4];
    uint32_t path_mtu_bytes, receive_threshold, round_trip_us, round_trip_deviation_us, slow_start_threshold;
    uint32_t congestion_window, advertised_mss_bytes, reordering, receiver_round_trip_us, receive_space_bytes;
    uint32_t total_retransmits;
    uint64_t pacing_rate, pacing_rate_max, acknowledged_bytes, received_bytes;
    uint32_t segments_out, segments_in, unsent_bytes, round_trip_min_us, data_segments_in, data_segments_out;
    uint64_t delivery_rate; /* bytes per second */
    uint64_t busy_us, receive_window_limited_us, send_buffer_limited_us;
    uint32_t delivered, delivered_marked;
    uint64_t sent_bytes, retransmitted_bytes;
    uint32_t duplicates_acknowledged, reordered, out_of_order, peer_window_bytes;
};
_Static_assert(offsetof(struct tcp_information, total_retransmits) == 100, "as in Linux");
_Static_assert(offsetof(struct tcp_information, delivery_rate) == 160, "as in Linux");
_Static_assert(offsetof(struct tcp_information, retransmitted_bytes) == 208, "as in Linux");
_Static_assert(offsetof(struct tcp_information, peer_window_bytes) == 228, "as in Linux");

#define REACHES(length, field)                                                                                         \
    ((length) >= offsetof(struct tcp_information, field) + sizeof(((struct tcp_information *)0)->field))

/* 0 or errno; *length is what this kernel filled in. */
static int information_get(int descriptor, struct tcp_information *information, socklen_t *length)
{
    *length = sizeof *information;
    memset(information, 0, sizeof *information);
    return getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, information, length) ? errno : 0;
}

double tcp_info_retransmits(int descriptor)
{
    struct tcp_information information;
    socklen_t length;
    return information_get(descriptor, &information, &length) ? (double)NAN : (double)information.total_retransmits;
}

double tcp_info_round_trip_ns(int descriptor)
{
    struct tcp_information information;
    socklen_t length;
    return information_get(descriptor, &information, &length) ? (double)NAN : (double)information.round_trip_us * 1000;
}

double tcp_info_arrived_bytes(int descriptor)
{
    struct tcp_information information;
    socklen_t length;
    if (information_get(descriptor, &information, &length) || !REACHES(length, acknowledged_bytes))
        return (double)NAN;
    return (double)information.acknowledged_bytes;
}

double tcp_info_window(int descriptor)
{
    struct tcp_information information;
    socklen_t length;
    return information_get(descriptor, &information, &length) ? (double)NAN : (double)information.congestion_window;
}

double tcp_info_peer_window_bytes(int descriptor)
{
    struct tcp_information information;
    socklen_t length;
    if (information_get(descriptor, &information, &length) || !REACHES(length, peer_window_bytes)) /* Linux 5.4 */
        return (double)NAN;
    return (double)information.peer_window_bytes;
}

void tcp_info_flow(int descriptor, struct tcp_flow *flow)
{
    struct tcp_information information;
    socklen_t length;
    bool known = !information_get(descriptor, &information, &length);
    bool timed = known && REACHES(length, send_buffer_limited_us);
    const double none = (double)NAN;
    *flow = (struct tcp_flow){
        .congestion_window_bytes = known ? (double)information.congestion_window * information.sent_mss_bytes : none,
        .round_trip_ns = known ? (double)information.round_trip_us * 1000 : none,
        .delivery_rate_bps = timed ? (double)information.delivery_rate * 8 : none,
        .retransmit_count = known ? (double)information.total_retransmits : none,
        .busy_ns = timed ? (double)information.busy_us * 1000 : none,
        .receive_window_limited_ns = timed ? (double)information.receive_window_limited_us * 1000 : none,
        .send_buffer_limited_ns = timed ? (double)information.send_buffer_limited_us * 1000 : none,
    };
}

int tcp_info_read(int descriptor, struct text *out)
{
    struct tcp_information information;
    socklen_t length;
    int error = information_get(descriptor, &information, &length);
    if (error)
        return error;
    if (!REACHES(length, send_buffer_limited_us))
        return ENOPROTOOPT; /* before Linux 4.10 */
    text_print(out, "sent_again_count %u\nmin_round_trip_us %u\n", information.total_retransmits,
               information.round_trip_min_us);
    text_print(out, "delivery_rate_bps %llu\nbusy_us %llu\n", (unsigned long long)information.delivery_rate * 8,
               (unsigned long long)information.busy_us);
    text_print(out, "rwnd_limited_us %llu\nsndbuf_limited_us %llu\n",
               (unsigned long long)information.receive_window_limited_us,
               (unsigned long long)information.send_buffer_limited_us);
    if (REACHES(length, retransmitted_bytes)) /* Linux 4.19 */
        text_print(out, "sent_again_bytes %llu\n", (unsigned long long)information.retransmitted_bytes);
    return 0;
}
