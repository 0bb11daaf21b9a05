/* See compare.h.
 *
 *   sender's file    1 2 3 5 6 4      4 was lost before this file saw it: in the sender's own queue
 *   other's file     1 2 5 6 4        3 was lost on the path; it comes again, or not
 *
 * TCP's packets are compared by the bytes that they carry, since both hosts join and cut segments as they like. */
#include "capture/compare.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum { HOLES_MAX = 4096, SEGMENT_BYTES_UNKNOWN = 1448 };

struct range {
    int64_t start, end;
};
struct ranges {
    struct range *list;
    size_t count, capacity;
};

/* Bytes that the sender's file shows for the first time; again: and later once more. */
struct sent {
    int64_t start, end;
    uint64_t ns;
    bool again;
};

struct slice {
    const struct header *list;
    size_t count;
};

/* One connection, one way. */
struct way {
    struct slice sent, arrived;
    bool from_client;
    uint32_t base;
    int64_t limit, segment_bytes;
    struct sent *list;
    size_t count, capacity, acknowledged_count;
};

struct delays {
    int64_t *list;
    size_t count, capacity;
};

struct comparing {
    struct comparison *out;
    struct delays delays;
    double doubled_count;      /* of the duplicates, those that the path made: they were sent once */
    const struct sent *before; /* what the last arrival that was matched is */
    uint64_t before_ns;
};

static void ranges_add(struct ranges *ranges, int64_t start, int64_t end)
{
    if (start >= end || ranges->count == HOLES_MAX)
        return;
    ranges->list = memory_more(ranges->list, ranges->count, &ranges->capacity, 1, sizeof *ranges->list);
    ranges->list[ranges->count++] = (struct range){start, end};
}

/* Takes these bytes out; returns how many of them were in. */
static int64_t ranges_take(struct ranges *ranges, int64_t start, int64_t end)
{
    int64_t taken = 0;
    for (size_t i = 0; i < ranges->count; i++) {
        struct range one = ranges->list[i];
        int64_t from = one.start > start ? one.start : start, to = one.end < end ? one.end : end;
        if (from >= to)
            continue;
        taken += to - from;
        ranges->list[i].end = from;
        ranges_add(ranges, to, one.end);
        if (one.start == from)
            ranges->list[i--] = ranges->list[--ranges->count];
    }
    return taken;
}

/* Sequence numbers as positions in the connection, near the last one. */
static int64_t position(const struct way *way, uint32_t sequence, int64_t near)
{
    return near + (int32_t)(sequence - (way->base + (uint32_t)near));
}

static double segments_of(const struct way *way, int64_t bytes)
{
    return (double)((bytes + way->segment_bytes - 1) / way->segment_bytes);
}

static bool carries(const struct way *way, const struct header *header)
{
    return header->from_client == way->from_client && header->payload_bytes;
}

static int64_t highest_of(const struct way *way, struct slice slice)
{
    int64_t highest = 0;
    for (size_t i = 0; i < slice.count; i++)
        if (carries(way, &slice.list[i])) {
            int64_t end = position(way, slice.list[i].sequence, highest) + slice.list[i].payload_bytes;
            highest = end > highest ? end : highest;
        }
    return highest;
}

/* The first that ends behind this position. */
static size_t sent_from(const struct way *way, int64_t at)
{
    size_t low = 0, high = way->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (way->list[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void sent_new(struct way *way, int64_t start, int64_t end, uint64_t ns)
{
    way->list = memory_more(way->list, way->count, &way->capacity, 1, sizeof *way->list);
    way->list[way->count++] = (struct sent){start, end, ns, false};
}

static void sent_again(struct way *way, int64_t start, int64_t end)
{
    for (size_t i = sent_from(way, start); i < way->count && way->list[i].start < end; i++)
        way->list[i].again = true;
}

/* The round trip is that of the segment which brought the answer, unless it was sent twice (Karn and Partridge 1987).
 */
static void acknowledged(struct comparing *comparing, struct way *way, const struct header *header, int64_t highest)
{
    int64_t to = position(way, header->acknowledged, highest);
    size_t first = way->acknowledged_count;
    while (way->acknowledged_count < way->count && way->list[way->acknowledged_count].end <= to)
        way->acknowledged_count++;
    if (way->acknowledged_count == first)
        return;
    const struct sent *last = &way->list[way->acknowledged_count - 1];
    if (!last->again && header->ns >= last->ns)
        histogram_add(&comparing->out->round_trip, header->ns - last->ns);
}

static void way_sent(struct comparing *comparing, struct way *way)
{
    struct ranges holes = {0};
    int64_t highest = 0;
    for (size_t i = 0; i < way->sent.count; i++) {
        const struct header *header = &way->sent.list[i];
        if (header->from_client != way->from_client && header->flags & HEADER_ACK)
            acknowledged(comparing, way, header, highest);
        if (!carries(way, header))
            continue;
        int64_t start = position(way, header->sequence, highest), end = start + header->payload_bytes;
        end = end < way->limit ? end : way->limit;
        if (start >= end)
            continue;
        comparing->out->sent_count += segments_of(way, end - start);
        int64_t known = end < highest ? end : highest;
        if (start < known) {
            comparing->out->retransmit_count += segments_of(way, known - start);
            sent_again(way, start, known);
            comparing->out->lost_in_host_count += segments_of(way, ranges_take(&holes, start, known));
        }
        ranges_add(&holes, highest, start);
        if (end > highest) {
            sent_new(way, start > highest ? start : highest, end, header->ns);
            highest = end;
        }
    }
    free(holes.list);
}

/* One that arrived, and when it was sent. */
static void matched(struct comparing *comparing, const struct sent *sent, uint64_t sent_ns, uint64_t arrived_ns)
{
    struct delays *delays = &comparing->delays;
    struct comparison *out = comparing->out;
    delays->list = memory_more(delays->list, delays->count, &delays->capacity, 1, sizeof *delays->list);
    delays->list[delays->count++] = (int64_t)(arrived_ns - sent_ns);
    if (comparing->before && comparing->before != sent && sent_ns >= comparing->before->ns &&
        arrived_ns >= comparing->before_ns) {
        uint64_t sending = sent_ns - comparing->before->ns, arriving = arrived_ns - comparing->before_ns;
        histogram_add(&out->spacing, sending);
        histogram_add(&out->arrival_spacing, arriving);
        histogram_add(&out->spacing_change, sending > arriving ? sending - arriving : arriving - sending);
    }
    comparing->before = sent;
    comparing->before_ns = arrived_ns;
}

static void way_arrived(struct comparing *comparing, struct way *way)
{
    struct ranges holes = {0};
    int64_t highest = 0;
    comparing->before = NULL;
    for (size_t i = 0; i < way->arrived.count; i++) {
        const struct header *header = &way->arrived.list[i];
        if (!carries(way, header))
            continue;
        int64_t start = position(way, header->sequence, highest), end = start + header->payload_bytes;
        end = end < way->limit ? end : way->limit;
        if (start >= end)
            continue;
        size_t place = sent_from(way, end - 1);
        const struct sent *sent = place < way->count && way->list[place].start < end ? &way->list[place] : NULL;
        int64_t known = end < highest ? end : highest;
        if (start < known) {
            int64_t filled = ranges_take(&holes, start, known);
            double more = segments_of(way, known - start - filled);
            comparing->out->duplicate_count += more;
            if (sent && !sent->again) {
                comparing->doubled_count += more;
                comparing->out->reordered_count += segments_of(way, filled);
            }
        }
        ranges_add(&holes, highest, start);
        highest = end > highest ? end : highest;
        if (sent && !sent->again)
            matched(comparing, sent, sent->ns, header->ns);
    }
    for (size_t i = 0; i < holes.count; i++)
        comparing->out->lost_on_path_count += segments_of(way, holes.list[i].end - holes.list[i].start);
    if (way->count && way->list[way->count - 1].end > highest)
        comparing->out->lost_on_path_count += segments_of(way, way->list[way->count - 1].end - highest);
    free(holes.list);
}

static bool way_based(struct way *way)
{
    for (size_t i = 0; i < way->sent.count; i++)
        if (carries(way, &way->sent.list[i])) {
            way->base = way->sent.list[i].sequence;
            return true;
        }
    return false;
}

/* Both ends say in their SYN how much a segment to them may carry; none seen: what is usual. */
static int64_t segment_bytes_of(struct slice slice)
{
    int64_t least = 0;
    for (size_t i = 0; i < slice.count; i++) {
        int64_t bytes = slice.list[i].segment_bytes;
        if (bytes && (!least || bytes < least))
            least = bytes;
    }
    return least ? least : SEGMENT_BYTES_UNKNOWN;
}

/* From the SYN to its answer at the client, unless there were several. */
static void syn_compare(struct comparing *comparing, struct slice client)
{
    uint64_t asked_ns = 0;
    size_t asked_count = 0;
    for (size_t i = 0; i < client.count; i++) {
        const struct header *header = &client.list[i];
        if (header->is_udp || !(header->flags & HEADER_SYN))
            continue;
        if (header->from_client) {
            asked_ns = header->ns;
            asked_count++;
        } else if (asked_count == 1 && header->ns >= asked_ns) {
            histogram_add(&comparing->out->syn_round_trip, header->ns - asked_ns);
            return;
        }
    }
}

static void tcp_compare(struct comparing *comparing, struct slice client, struct slice server,
                        const struct compared *captures)
{
    struct way way = {.sent = captures->client_sends ? client : server,
                      .arrived = captures->client_sends ? server : client,
                      .from_client = captures->client_sends,
                      .segment_bytes = segment_bytes_of(client),
                      .limit = INT64_MAX};
    syn_compare(comparing, client);
    if (!way_based(&way))
        return;
    if (captures->client_full || captures->server_full) {
        int64_t sent = highest_of(&way, way.sent), arrived = highest_of(&way, way.arrived);
        way.limit = sent < arrived ? sent : arrived;
    }
    way_sent(comparing, &way);
    way_arrived(comparing, &way);
    free(way.list);
}

static int by_connection(const void *left, const void *right)
{
    const struct header *a = left, *b = right;
    if (a->client_port != b->client_port)
        return a->client_port < b->client_port ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* Those of one connection, from *from on. */
static struct slice slice_of(const struct headers *headers, unsigned client_port, size_t *from)
{
    while (*from < headers->count && headers->list[*from].client_port < client_port)
        ++*from;
    struct slice slice = {headers->list + *from, 0};
    while (*from < headers->count && headers->list[*from].client_port == client_port) {
        ++*from;
        slice.count++;
    }
    return slice;
}

static const uint64_t number_mask = 0xffffffffffffffULL;

static int by_start(const void *left, const void *right)
{
    const struct sent *a = left, *b = right;
    return a->start < b->start ? -1 : a->start > b->start;
}

static bool counts(const struct compared *captures, const struct header *header, bool from_client)
{
    return header->is_udp && header->from_client == from_client && header->number >> 56 == captures->phase &&
           (header->number & number_mask) != captures->no_number;
}

static struct sent *sent_number(const struct way *way, uint64_t number)
{
    struct sent wanted = {.start = (int64_t)(number & number_mask)};
    return way->count ? bsearch(&wanted, way->list, way->count, sizeof *way->list, by_start) : NULL;
}

static void replies_compare(struct comparing *comparing, const struct compared *captures, struct slice client,
                            const struct way *way)
{
    for (size_t i = 0; i < client.count; i++) {
        const struct header *header = &client.list[i];
        const struct sent *sent = counts(captures, header, false) ? sent_number(way, header->number) : NULL;
        if (sent && header->ns >= sent->ns)
            histogram_add(&comparing->out->round_trip, header->ns - sent->ns);
    }
}

static void datagrams_arrived(struct comparing *comparing, const struct compared *captures, const struct way *way)
{
    int64_t highest = -1;
    comparing->before = NULL;
    for (size_t i = 0; i < way->arrived.count; i++) {
        const struct header *header = &way->arrived.list[i];
        struct sent *sent = counts(captures, header, way->from_client) ? sent_number(way, header->number) : NULL;
        if (!sent)
            continue;
        if (sent->again) {
            comparing->out->duplicate_count++;
            continue;
        }
        sent->again = true; /* it is here */
        comparing->out->reordered_count += sent->start < highest;
        highest = sent->start > highest ? sent->start : highest;
        matched(comparing, sent, sent->ns, header->ns);
    }
    int64_t limit = captures->client_full || captures->server_full ? highest : INT64_MAX;
    for (size_t i = 0; i < way->count && way->list[i].start <= limit; i++) {
        comparing->out->sent_count++;
        comparing->out->lost_on_path_count += !way->list[i].again;
    }
}

static void datagrams_compare(struct comparing *comparing, struct slice client, struct slice server,
                              const struct compared *captures)
{
    struct way way = {.sent = captures->client_sends ? client : server,
                      .arrived = captures->client_sends ? server : client,
                      .from_client = captures->client_sends};
    for (size_t i = 0; i < way.sent.count; i++)
        if (counts(captures, &way.sent.list[i], way.from_client)) {
            int64_t number = (int64_t)(way.sent.list[i].number & number_mask);
            sent_new(&way, number, number + 1, way.sent.list[i].ns);
        }
    if (way.count)
        qsort(way.list, way.count, sizeof *way.list, by_start);
    datagrams_arrived(comparing, captures, &way);
    if (captures->answers && way.from_client)
        replies_compare(comparing, captures, client, &way);
    free(way.list);
}

static void connections_compare(struct comparing *comparing, const struct compared *captures)
{
    size_t client_at = 0, server_at = 0;
    qsort(captures->client->list, captures->client->count, sizeof *captures->client->list, by_connection);
    qsort(captures->server->list, captures->server->count, sizeof *captures->server->list, by_connection);
    while (client_at < captures->client->count) {
        unsigned port = captures->client->list[client_at].client_port;
        struct slice client = slice_of(captures->client, port, &client_at);
        struct slice server = slice_of(captures->server, port, &server_at);
        if (comparing->out->is_udp)
            datagrams_compare(comparing, client, server, captures);
        else
            tcp_compare(comparing, client, server, captures);
    }
}

/* A segment that was sent once more had been lost in the sender's queue or on the path, or comes twice. */
static void losses_count(const struct comparing *comparing)
{
    struct comparison *out = comparing->out;
    double in_vain = out->duplicate_count - comparing->doubled_count;
    double lost = out->retransmit_count - out->lost_in_host_count - in_vain;
    out->lost_on_path_count += lost > 0 ? lost : 0;
}

void captures_compare(const struct compared *captures, struct comparison *out)
{
    struct comparing comparing = {.out = out};
    int64_t least = INT64_MAX;
    *out = (struct comparison){.is_udp = captures->client->count && captures->client->list[0].is_udp};
    if (!captures->client->count || !captures->server->count)
        return;
    connections_compare(&comparing, captures);
    losses_count(&comparing);
    for (size_t i = 0; i < comparing.delays.count; i++)
        least = comparing.delays.list[i] < least ? comparing.delays.list[i] : least;
    for (size_t i = 0; i < comparing.delays.count; i++)
        histogram_add(&out->delay_change, (uint64_t)(comparing.delays.list[i] - least));
    free(comparing.delays.list);
}
