/* See capturing.h. */
#include "engine/capturing.h"

#include "capture/compare.h"
#include "engine/keep.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const capture_choices[] = {"none", "headers", NULL};

static const uint64_t no_request = 0xffffffffffffffULL; /* of the exchange before the clock starts (udp_pingpong) */
static const int64_t clock_moved_max_ns = 1000000;
static const double slowest_bytes_per_s = 125000;

static bool is_asked(const struct run *run)
{
    return run_common(run)->capture;
}

void capturing_start(struct run *run)
{
    char reason[CAPTURE_REASON_BYTES];
    if (!is_asked(run))
        return;
    run->capture =
        capture_start(&run->local, &run->peer, run->test_port, (size_t)run_common(run)->capture_max_bytes, reason);
    run_grant_boolean(run, "capture", run->capture != NULL);
    if (run->capture)
        run_beside(run, run->capture->thread);
    else
        run_warn(run, "option_not_granted", "capture: asked for headers, granted none at the %s: %s",
                 run->is_server ? "server" : "client", reason);
}

void capturing_record(struct run *run)
{
    if (run->capture)
        capture_record(run->capture);
}

void capturing_stop(struct run *run)
{
    struct capture *capture = run->capture;
    struct capture_metrics *metrics = &run_common_metrics(run)->capture;
    if (!capture)
        return;
    capture_stop(capture);
    double ratio = (double)capture->cpu_ns / (double)(run->phase_end_ns - run->phase_start_ns);
    *(run->is_server ? &metrics->server_capture_cpu_ratio : &metrics->client_capture_cpu_ratio) = ratio;
    *(run->is_server ? &metrics->server_capture_packet_count : &metrics->client_capture_packet_count) =
        (double)capture->packet_count;
    *(run->is_server ? &metrics->server_capture_dropped_count : &metrics->client_capture_dropped_count) =
        (double)capture->dropped_count;
    if (llabs(capture->clock_moved_ns) > clock_moved_max_ns)
        run_warn(run, "clock_set", "capture: the %s's wall clock, which stamps packets, moved by %.3g ms",
                 run->is_server ? "server" : "client", (double)capture->clock_moved_ns / 1e6);
    if (capture->dropped_count)
        run_warn(run, "capture_incomplete", "capture: %llu packets were not recorded at the %s: its ring was full",
                 (unsigned long long)capture->dropped_count, run->is_server ? "server" : "client");
    if (capture->full)
        run_warn(run, "capture_full", "capture: capture_max_bytes was reached at the %s: what followed is in no file",
                 run->is_server ? "server" : "client");
}

void capturing_write(const struct run *run, struct text *message)
{
    static const char digits[] = "0123456789abcdef";
    const struct capture *capture = run->capture;
    if (!capture)
        return;
    message_put_unsigned(message, "capture_full", capture->full);
    message_put_unsigned(message, "capture_moved", llabs(capture->clock_moved_ns) > clock_moved_max_ns);
    message_put_unsigned(message, "capture_dropped", capture->dropped_count);
    char *hexadecimal = memory_new(2 * capture->file.length + 1, 1);
    for (size_t i = 0; i < capture->file.length; i++) {
        uint8_t byte = (uint8_t)capture->file.data[i];
        hexadecimal[2 * i] = digits[byte >> 4];
        hexadecimal[2 * i + 1] = digits[byte & 15];
    }
    message_put(message, "capture", hexadecimal);
    free(hexadecimal);
}

static int digit_of(char letter)
{
    return letter >= '0' && letter <= '9' ? letter - '0' : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

static void file_read(struct text *file, const char *hexadecimal)
{
    size_t length = strlen(hexadecimal) / 2;
    uint8_t *bytes = memory_new(length + 1, 1);
    for (size_t i = 0; i < length; i++) {
        int high = digit_of(hexadecimal[2 * i]), low = digit_of(hexadecimal[2 * i + 1]);
        if (high < 0 || low < 0)
            length = i;
        else
            bytes[i] = (uint8_t)(high << 4 | low);
    }
    text_add(file, bytes, length);
    free(bytes);
}

static void times_put(const struct comparison *found, struct capture_metrics *metrics)
{
    metrics->capture_delay_change_p50_ns = histogram_quantile_ns(&found->delay_change, 0.5);
    if (histogram_supports(&found->delay_change, 0.99))
        metrics->capture_delay_change_p99_ns = histogram_quantile_ns(&found->delay_change, 0.99);
    if (found->delay_change.count)
        metrics->capture_delay_change_max_ns = (double)found->delay_change.maximum_ns;
    metrics->capture_arrival_spacing_p50_ns = histogram_quantile_ns(&found->arrival_spacing, 0.5);
    metrics->capture_spacing_change_p50_ns = histogram_quantile_ns(&found->spacing_change, 0.5);
    if (histogram_supports(&found->spacing_change, 0.99))
        metrics->capture_spacing_change_p99_ns = histogram_quantile_ns(&found->spacing_change, 0.99);
}

static void comparison_put(struct run *run, const struct comparison *found, bool whole, bool timed)
{
    struct capture_metrics *metrics = &run_common_metrics(run)->capture;
    if (found->round_trip.count)
        metrics->capture_round_trip_min_ns = (double)found->round_trip.minimum_ns;
    metrics->capture_round_trip_p50_ns = histogram_quantile_ns(&found->round_trip, 0.5);
    if (histogram_supports(&found->round_trip, 0.99))
        metrics->capture_round_trip_p99_ns = histogram_quantile_ns(&found->round_trip, 0.99);
    metrics->capture_syn_round_trip_ns = histogram_quantile_ns(&found->syn_round_trip, 0.5);
    metrics->capture_spacing_p50_ns = histogram_quantile_ns(&found->spacing, 0.5);
    if (timed)
        times_put(found, metrics);
    if (!whole)
        return;
    metrics->capture_sent_count = found->sent_count;
    metrics->capture_lost_on_path_count = found->lost_on_path_count;
    metrics->capture_duplicate_count = found->duplicate_count;
    metrics->capture_reordered_count = found->reordered_count;
    if (found->is_udp)
        return;
    metrics->capture_retransmit_count = found->retransmit_count;
    metrics->capture_lost_in_host_count = found->lost_in_host_count;
}

void capturing_read(struct run *run, const struct received *message)
{
    const char *hexadecimal = received_get(message, "capture");
    struct capture *own = run->capture;
    struct headers client = {0}, server = {0};
    if (hexadecimal)
        file_read(&run->peer_capture, hexadecimal);
    if (!own || !headers_read((const uint8_t *)own->file.data, own->file.length, run->test_port, &client) ||
        !headers_read((const uint8_t *)run->peer_capture.data, run->peer_capture.length, run->test_port, &server)) {
        headers_free(&client);
        return;
    }
    struct compared captures = {.client = &client,
                                .server = &server,
                                .client_sends = run->is_active,
                                .answers = run->kernel->round_trips,
                                .phase = PHASE_MEASURE,
                                .no_number = no_request,
                                .client_full = own->full,
                                .server_full = received_unsigned(message, "capture_full")};
    struct comparison *found = memory_new(1, sizeof *found);
    captures_compare(&captures, found);
    bool moved = received_unsigned(message, "capture_moved") || llabs(own->clock_moved_ns) > clock_moved_max_ns;
    comparison_put(run, found, !own->dropped_count && !received_unsigned(message, "capture_dropped"), !moved);
    if (!client.count || !server.count)
        run_warn(run, "capture_empty", "capture: the %s saw no packet of the test on its interface",
                 client.count ? "server" : "client");
    free(found);
    headers_free(&client);
    headers_free(&server);
}

double capturing_limit_s(const struct run *run)
{
    return is_asked(run) ? (double)run_common(run)->capture_max_bytes * 2 / slowest_bytes_per_s : 0;
}

static void capture_write(struct run *run, const char *end, const struct text *file)
{
    struct text path = {0}, key = {0};
    if (!file->length)
        return;
    text_print(&path, "%s.%s.pcap", run->keep.capture_path, end);
    text_print(&key, "%s_capture_file", end);
    if (keep_file(run, path.data, file->data, file->length)) {
        struct text json = {0};
        json_string(&json, path.data);
        notes_add(&run->granted, key.data, json.data);
        text_free(&json);
    }
    text_free(&path);
    text_free(&key);
}

void capturing_files(struct run *run)
{
    if (run->failure.failed || run->is_server || !run->keep.capture_path)
        return;
    if (run->capture)
        capture_write(run, "client", &run->capture->file);
    capture_write(run, "server", &run->peer_capture);
}
