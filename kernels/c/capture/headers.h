/* What the packets of a pcap file say: TCP and UDP over IPv4 and IPv6, of one server's port. The file may be a
 * stranger's: what is not whole is left out. */
#ifndef HPCQ_HEADERS_H
#define HPCQ_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PCAP_HEAD_BYTES = 24, PCAP_RECORD_BYTES = 16 };
#define PCAP_MAGIC_NS 0xa1b23c4dU

/* In the file's head and record, as its host writes numbers. */
struct pcap_head {
    uint32_t magic;
    uint16_t major, minor;
    uint32_t zone, accuracy, packet_bytes, link;
};
struct pcap_record {
    uint32_t s, ns, kept_bytes, packet_bytes;
};

enum header_flags { HEADER_SYN = 0x02, HEADER_ACK = 0x10 };

struct header {
    uint64_t ns;
    uint64_t number; /* UDP: the first 8 bytes of the payload */
    size_t at;       /* place in the file */
    uint32_t sequence, acknowledged, payload_bytes;
    uint16_t client_port, segment_bytes; /* of a SYN: what its MSS option leaves for payload, 0: it has none */
    uint8_t flags;
    bool is_udp, from_client;
};

struct headers {
    struct header *list;
    size_t count, capacity;
};

/* One packet; false when it is none of this port's. */
bool header_read(int link, const uint8_t *packet, size_t kept_bytes, size_t packet_bytes, unsigned port,
                 struct header *out);
bool headers_read(const uint8_t *file, size_t length, unsigned port, struct headers *out); /* false: no such file */
void headers_free(struct headers *headers);

#endif
