/* See headers.h. Link types: https://www.tcpdump.org/linktypes.html */
#include "capture/headers.h"

#include "base/text.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

enum link {
    LINK_ETHERNET = 1,
    LINK_RAW = 12,
    LINK_RAW_2 = 101,
    LINK_COOKED = 113,
    LINK_IPOIB = 242,
    LINK_COOKED_2 = 276
};
enum { TYPE_IPV4 = 0x0800, TYPE_IPV6 = 0x86dd, TYPE_VLAN = 0x8100, TYPE_VLANS = 0x88a8 };
enum { PROTOCOL_HOPS = 0, PROTOCOL_TCP = 6, PROTOCOL_UDP = 17, TCP_HEAD_BYTES = 20, UDP_HEAD_BYTES = 8 };
enum { OPTION_END = 0, OPTION_NONE = 1, OPTION_MSS = 2, OPTION_TIMESTAMPS = 8, TIMESTAMPS_BYTES = 12 };

/* What is left of a packet: kept bytes, and how many it had. */
struct rest {
    const uint8_t *data;
    size_t kept, whole;
};

static bool skip(struct rest *rest, size_t bytes)
{
    if (bytes > rest->kept || bytes > rest->whole)
        return false;
    rest->data += bytes;
    rest->kept -= bytes;
    rest->whole -= bytes;
    return true;
}

static unsigned u16_of(const uint8_t *from)
{
    return (unsigned)from[0] << 8 | from[1];
}

static uint32_t u32_of(const uint8_t *from)
{
    return (uint32_t)u16_of(from) << 16 | u16_of(from + 2);
}

/* To the network header; *type as Ethernet calls it. */
static bool link_skip(int link, struct rest *rest, unsigned *type)
{
    size_t bytes = link == LINK_ETHERNET ? 14 : link == LINK_COOKED ? 16 : link == LINK_COOKED_2 ? 20 : 4;
    size_t place = link == LINK_ETHERNET ? 12 : link == LINK_COOKED ? 14 : 0;
    if (link == LINK_RAW || link == LINK_RAW_2) {
        *type = rest->kept && rest->data[0] >> 4 == 6 ? TYPE_IPV6 : TYPE_IPV4;
        return rest->kept > 0;
    }
    if (link != LINK_ETHERNET && link != LINK_COOKED && link != LINK_COOKED_2 && link != LINK_IPOIB)
        return false;
    if (rest->kept < bytes)
        return false;
    *type = u16_of(rest->data + place);
    if (!skip(rest, bytes))
        return false;
    while (*type == TYPE_VLAN || *type == TYPE_VLANS) {
        if (rest->kept < 4)
            return false;
        *type = u16_of(rest->data + 2);
        skip(rest, 4);
    }
    return true;
}

static bool ipv4_skip(struct rest *rest, unsigned *protocol)
{
    if (rest->kept < 20)
        return false;
    size_t head = (size_t)(rest->data[0] & 15) * 4, total = u16_of(rest->data + 2);
    *protocol = rest->data[9];
    if (u16_of(rest->data + 6) & 0x1fff) /* not the first fragment */
        return false;
    if (total >= head && total < rest->whole) /* 0: more than 64 KiB at once; less: the frame was filled up */
        rest->whole = total;
    return head >= 20 && skip(rest, head);
}

static bool ipv6_skip(struct rest *rest, unsigned *protocol)
{
    if (rest->kept < 40)
        return false;
    size_t payload = u16_of(rest->data + 4);
    *protocol = rest->data[6];
    if (payload && payload + 40 < rest->whole)
        rest->whole = payload + 40;
    skip(rest, 40);
    if (*protocol != PROTOCOL_HOPS) /* of packets above 64 KiB */
        return true;
    if (rest->kept < 8)
        return false;
    *protocol = rest->data[0];
    return skip(rest, ((size_t)rest->data[1] + 1) * 8);
}

/* What one segment may carry, by a SYN: its MSS less the timestamps that each segment then has. */
static uint16_t segment_of(const uint8_t *options, size_t bytes)
{
    unsigned mss = 0, taken = 0;
    for (size_t i = 0; i < bytes && options[i] != OPTION_END;) {
        size_t length = options[i] == OPTION_NONE ? 1 : i + 1 < bytes ? options[i + 1] : 0;
        if (!length || (length < 2 && options[i] != OPTION_NONE) || i + length > bytes)
            break;
        if (options[i] == OPTION_MSS && length == 4)
            mss = u16_of(options + i + 2);
        if (options[i] == OPTION_TIMESTAMPS)
            taken = TIMESTAMPS_BYTES;
        i += length;
    }
    return (uint16_t)(mss > taken ? mss - taken : 0);
}

static bool tcp_read(struct rest *rest, struct header *out)
{
    if (rest->kept < TCP_HEAD_BYTES)
        return false;
    size_t head = (size_t)(rest->data[12] >> 4) * 4;
    const uint8_t *segment = rest->data;
    if (head < TCP_HEAD_BYTES || head > rest->whole)
        return false;
    out->sequence = u32_of(segment + 4);
    out->acknowledged = u32_of(segment + 8);
    out->flags = segment[13];
    out->payload_bytes = (uint32_t)(rest->whole - head);
    if (out->flags & HEADER_SYN)
        out->segment_bytes =
            segment_of(segment + TCP_HEAD_BYTES, (head < rest->kept ? head : rest->kept) - TCP_HEAD_BYTES);
    return true;
}

static bool udp_read(struct rest *rest, struct header *out)
{
    uint64_t number;
    if (rest->kept < UDP_HEAD_BYTES + sizeof number)
        return false;
    memcpy(&number, rest->data + UDP_HEAD_BYTES, sizeof number);
    out->number = be64toh(number);
    out->payload_bytes = (uint32_t)(u16_of(rest->data + 4) - UDP_HEAD_BYTES);
    return true;
}

bool header_read(int link, const uint8_t *packet, size_t kept_bytes, size_t packet_bytes, unsigned port,
                 struct header *out)
{
    struct rest rest = {packet, kept_bytes, packet_bytes};
    unsigned type = 0, protocol = 0;
    *out = (struct header){.ns = 0};
    if (!link_skip(link, &rest, &type) ||
        !(type == TYPE_IPV4   ? ipv4_skip(&rest, &protocol)
          : type == TYPE_IPV6 ? ipv6_skip(&rest, &protocol)
                              : false) ||
        (protocol != PROTOCOL_TCP && protocol != PROTOCOL_UDP) || rest.kept < 4)
        return false;
    unsigned from = u16_of(rest.data), to = u16_of(rest.data + 2);
    if (from != port && to != port)
        return false;
    out->from_client = to == port;
    out->client_port = (uint16_t)(out->from_client ? from : to);
    out->is_udp = protocol == PROTOCOL_UDP;
    return out->is_udp ? udp_read(&rest, out) : tcp_read(&rest, out);
}

bool headers_read(const uint8_t *file, size_t length, unsigned port, struct headers *out)
{
    struct pcap_head head;
    struct pcap_record record;
    struct header header;
    if (length < PCAP_HEAD_BYTES)
        return false;
    memcpy(&head, file, sizeof head);
    if (head.magic != PCAP_MAGIC_NS)
        return false;
    for (size_t at = PCAP_HEAD_BYTES; at + PCAP_RECORD_BYTES <= length;) {
        memcpy(&record, file + at, sizeof record);
        at += PCAP_RECORD_BYTES;
        if (record.kept_bytes > length - at)
            break;
        if (header_read((int)head.link, file + at, record.kept_bytes, record.packet_bytes, port, &header)) {
            header.ns = (uint64_t)record.s * 1000000000ULL + record.ns;
            header.at = out->count;
            out->list = memory_more(out->list, out->count, &out->capacity, 1, sizeof *out->list);
            out->list[out->count++] = header;
        }
        at += record.kept_bytes;
    }
    return true;
}

void headers_free(struct headers *headers)
{
    free(headers->list);
    *headers = (struct headers){0};
}
