/* What two captures say together: connections written here, packet by packet, and files of strangers. */
#include "base/text.h"
#include "capture/compare.h"
#include "check.h"

#include <stdlib.h>
#include <string.h>

enum { SERVER_PORT = 5000, CLIENT_PORT = 40000, SEGMENT_BYTES = 1000, ETHERNET_BYTES = 14, HEADS_BYTES = 54 };

static void file_begin(struct text *file)
{
    struct pcap_head head = {PCAP_MAGIC_NS, 2, 4, 0, 0, 128, 1};
    text_add(file, &head, sizeof head);
}

static void put_u32(uint8_t *to, uint32_t value)
{
    for (size_t i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* A TCP segment over IPv4 over Ethernet, without its payload. */
static void segment(struct text *file, uint64_t us, bool from_client, uint32_t sequence, uint32_t ack, size_t payload)
{
    uint8_t packet[HEADS_BYTES] = {0};
    size_t whole = HEADS_BYTES + payload, total = whole - ETHERNET_BYTES;
    unsigned from = from_client ? CLIENT_PORT : SERVER_PORT, to = from_client ? SERVER_PORT : CLIENT_PORT;
    packet[12] = 8;
    packet[14] = 0x45;
    packet[16] = (uint8_t)(total >> 8);
    packet[17] = (uint8_t)total;
    packet[23] = 6;
    packet[34] = (uint8_t)(from >> 8);
    packet[35] = (uint8_t)from;
    packet[36] = (uint8_t)(to >> 8);
    packet[37] = (uint8_t)to;
    put_u32(packet + 38, sequence);
    put_u32(packet + 42, ack);
    packet[46] = 5 << 4;
    packet[47] = HEADER_ACK;
    struct pcap_record record = {(uint32_t)(us / 1000000), (uint32_t)(us % 1000000) * 1000, HEADS_BYTES,
                                 (uint32_t)whole};
    text_add(file, &record, sizeof record);
    text_add(file, packet, sizeof packet);
}

static struct comparison *compare(const struct text *client, const struct text *server)
{
    struct headers ours = {0}, theirs = {0};
    struct comparison *found = calloc(1, sizeof *found);
    CHECK(headers_read((const uint8_t *)client->data, client->length, SERVER_PORT, &ours));
    CHECK(headers_read((const uint8_t *)server->data, server->length, SERVER_PORT, &theirs));
    captures_compare(&(struct compared){.client = &ours, .server = &theirs, .client_sends = true}, found);
    headers_free(&ours);
    headers_free(&theirs);
    return found;
}

/* Sequence numbers pass 2^32 on the way. Numbers are those of segments:
 *
 *   client   0 1 2 4 3(host) 5 6 7 8 9 5(path) 6(for nothing)
 *   server   0 1 2 4 3       6 8 7   9 5       6 */
static void check_losses(void)
{
    static const unsigned sent[] = {0, 1, 2, 4, 3, 5, 6, 7, 8, 9, 5, 6}, arrived[] = {0, 1, 2, 4, 3, 6, 8, 7, 9, 5, 6};
    const uint32_t first = 0xfffff000;
    struct text client = {0}, server = {0};
    file_begin(&client);
    file_begin(&server);
    for (size_t i = 0; i < sizeof sent / sizeof sent[0]; i++)
        segment(&client, 1000 + 100 * i, true, first + SEGMENT_BYTES * sent[i], 1, SEGMENT_BYTES);
    segment(&client, 5000, false, 1, first + 10 * SEGMENT_BYTES, 0);
    for (size_t i = 0; i < sizeof arrived / sizeof arrived[0]; i++)
        segment(&server, 900000 + 100 * i, true, first + SEGMENT_BYTES * arrived[i], 1, SEGMENT_BYTES);
    struct comparison *found = compare(&client, &server);
    CHECK(found->sent_count == 12);
    CHECK(found->retransmit_count == 3);
    CHECK(found->lost_in_host_count == 1);
    CHECK(found->duplicate_count == 1);
    CHECK(found->lost_on_path_count == 1);
    CHECK(found->reordered_count == 1);
    free(found);
    text_free(&client);
    text_free(&server);
}

/* The path loses one segment and doubles three others: what it doubled makes up for no loss. */
static void check_doubled(void)
{
    static const unsigned sent[] = {0, 1, 2, 3, 4, 5, 2}, arrived[] = {0, 1, 1, 3, 4, 4, 5, 5, 2};
    struct text client = {0}, server = {0};
    file_begin(&client);
    file_begin(&server);
    for (size_t i = 0; i < sizeof sent / sizeof sent[0]; i++)
        segment(&client, 1000 + 100 * i, true, SEGMENT_BYTES * sent[i], 1, SEGMENT_BYTES);
    for (size_t i = 0; i < sizeof arrived / sizeof arrived[0]; i++)
        segment(&server, 900000 + 100 * i, true, SEGMENT_BYTES * arrived[i], 1, SEGMENT_BYTES);
    struct comparison *found = compare(&client, &server);
    CHECK(found->retransmit_count == 1);
    CHECK(found->lost_on_path_count == 1);
    CHECK(found->duplicate_count == 3);
    CHECK(found->lost_in_host_count == 0 && found->reordered_count == 0);
    free(found);
    text_free(&client);
    text_free(&server);
}

/* 300 us from segment to ACK; every second segment takes 50 us longer, and the clocks are a second apart. */
static void check_times(void)
{
    struct text client = {0}, server = {0};
    file_begin(&client);
    file_begin(&server);
    for (uint32_t i = 0; i < 100; i++) {
        segment(&client, 1000 * i, true, SEGMENT_BYTES * i, 1, SEGMENT_BYTES);
        segment(&server, 1000000 + 1000 * i + (i % 2 ? 50 : 0), true, SEGMENT_BYTES * i, 1, SEGMENT_BYTES);
        segment(&client, 1000 * i + 300, false, 1, SEGMENT_BYTES * (i + 1), 0);
    }
    struct comparison *found = compare(&client, &server);
    CHECK(found->round_trip.count == 100);
    CHECK(found->round_trip.minimum_ns == 300000 && found->round_trip.maximum_ns == 300000);
    CHECK(found->delay_change.minimum_ns == 0 && found->delay_change.maximum_ns == 50000);
    CHECK(found->spacing.minimum_ns == 1000000 && found->spacing.maximum_ns == 1000000);
    CHECK(found->arrival_spacing.minimum_ns == 950000 && found->arrival_spacing.maximum_ns == 1050000);
    CHECK(found->spacing_change.minimum_ns == 50000 && found->spacing_change.maximum_ns == 50000);
    CHECK(found->lost_on_path_count == 0 && found->reordered_count == 0 && found->retransmit_count == 0);
    free(found);
    text_free(&client);
    text_free(&server);
}

/* Every beginning of a file, and bytes turned: nothing is read that is not there (the sanitizers watch). */
static void check_strangers(void)
{
    struct text file = {0};
    file_begin(&file);
    for (uint32_t i = 0; i < 5; i++)
        segment(&file, i, i % 2, i, i, 10);
    for (size_t length = 0; length <= file.length; length++) {
        struct headers found = {0};
        uint8_t *part = malloc(length + 1);
        memcpy(part, file.data, length);
        uint8_t *exact = realloc(part, length ? length : 1);
        headers_read(exact, length, SERVER_PORT, &found);
        CHECK(found.count <= 5);
        headers_free(&found);
        free(exact);
    }
    for (size_t at = 0; at < file.length; at++)
        for (unsigned turn = 1; turn < 256; turn <<= 1) {
            struct headers found = {0};
            file.data[at] = (char)(file.data[at] ^ (int)turn);
            headers_read((const uint8_t *)file.data, file.length, SERVER_PORT, &found);
            headers_free(&found);
            file.data[at] = (char)(file.data[at] ^ (int)turn);
        }
    text_free(&file);
}

void check_capture(void)
{
    check_losses();
    check_doubled();
    check_times();
    check_strangers();
}
