/* Datagrams of one size, many to a system call: sendmmsg() and recvmmsg(); many to a message: UDP_SEGMENT (GSO, Linux
 * 4.18) and UDP_GRO (Linux 5.0). */
#ifndef HPCQ_PACKETS_H
#define HPCQ_PACKETS_H

#include "kernels/arrival.h"
#include "kernels/flows.h"

enum { PACKETS_CALL_MAX = 256, PACKETS_SEGMENT_MAX = 64, DATAGRAM_BYTES_MAX = 65507 };

struct packet_settings {
    int64_t call_message_count, gso_segment_count, gro;
};

#define PACKET_ROW(type, field, kind, standard, minimum, maximum, help)                                                \
    {#field, kind, offsetof(type, packets.field), standard, minimum, maximum, NULL, help}
#define OPTION_ROWS_PACKETS(type)                                                                                      \
    PACKET_ROW(type, call_message_count, OPTION_INTEGER, 1, 1, PACKETS_CALL_MAX,                                       \
               "messages given to one sendmmsg() and taken by one recvmmsg(); 1: send() and recvmsg()"),               \
        PACKET_ROW(type, gso_segment_count, OPTION_INTEGER, 1, 1, PACKETS_SEGMENT_MAX,                                 \
                   "UDP_SEGMENT: datagrams that one message is cut into, below the socket; at most what fits "         \
                   "65507 bytes; 1: none"),                                                                            \
        PACKET_ROW(type, gro, OPTION_BOOLEAN, 0, 0, 1,                                                                 \
                   "UDP_GRO: the receiver takes datagrams that came together as one message")

/* Room for what one call sends, and for what one call brings. */
struct packets {
    size_t datagram_bytes, message_count, segment_count;
    bool merged; /* UDP_GRO was granted */
    uint8_t *out, *in, *control;
    size_t in_bytes, in_count; /* of one message; messages that the last call brought */
    struct mmsghdr *out_messages, *in_messages;
    struct iovec *out_parts, *in_parts;
};

/* One datagram that came; bytes is its whole length, or more than expected. */
struct packet {
    const uint8_t *data;
    size_t bytes;
    uint64_t stamp_ns;
};

void packets_new(struct run *run, struct packets *packets, const struct packet_settings *settings,
                 size_t datagram_bytes);
void packets_free(struct packets *packets);
/* Sets UDP_SEGMENT and UDP_GRO on one socket; says in run->granted what the first got, warns where it is less. */
bool packets_socket(struct run *run, struct packets *packets, const struct packet_settings *settings, int descriptor,
                    bool first);
size_t packets_room(const struct packets *packets);         /* datagrams that one call can send */
uint8_t *packets_at(struct packets *packets, size_t index); /* the index-th datagram of the next call */
/* Sends the first `count` datagrams in one call. Returns how many the socket took, or -1 with errno. */
ssize_t packets_send(struct packets *packets, int descriptor, size_t count, int flags);
/* One call; run->now_ns is set. -1 with errno, or the number of messages; then packets_each until false. */
ssize_t packets_receive(struct run *run, struct packets *packets, int descriptor, int flags);
struct packet_cursor {
    size_t message, offset, segment;
    uint64_t stamp_ns;
};
bool packets_each(struct packets *packets, struct arrivals *arrivals, uint64_t now_ns, struct packet_cursor *cursor,
                  struct packet *packet);

#endif
