/* See tcp_intervals.h. */
#include "evidence/tcp_intervals.h"

#include "evidence/tcp_info.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* States are told as they are, counts as what came to them in the interval. */
static const struct column {
    const char *name;
    bool counts, is_mean; /* over the flows; else their sum */
} columns[TCP_COLUMN_COUNT] = {
    {"congestion_window_bytes", false, false},
    {"tcp_round_trip_ns", false, true},
    {"delivery_rate_bps", false, false},
    {"retransmit_count", true, false},
    {"busy_ns", true, true},
    {"receive_window_limited_ns", true, true},
    {"send_buffer_limited_ns", true, true},
};

const char *tcp_intervals_name(size_t column)
{
    return columns[column].name;
}

static void values_now(const struct tcp_intervals *intervals, double out[TCP_COLUMN_COUNT])
{
    for (size_t c = 0; c < TCP_COLUMN_COUNT; c++)
        out[c] = 0;
    for (size_t i = 0; i < intervals->flow_count; i++) {
        struct tcp_flow flow;
        tcp_info_flow(intervals->descriptors[i], &flow);
        const double values[TCP_COLUMN_COUNT] = {
            flow.congestion_window_bytes, flow.round_trip_ns, flow.delivery_rate_bps,
            flow.retransmit_count,        flow.busy_ns,       flow.receive_window_limited_ns,
            flow.send_buffer_limited_ns};
        for (size_t c = 0; c < TCP_COLUMN_COUNT; c++)
            out[c] += values[c] / (columns[c].is_mean ? (double)intervals->flow_count : 1);
    }
}

void tcp_intervals_begin(struct tcp_intervals *intervals, unsigned interval_ms)
{
    intervals->interval_ns = (uint64_t)interval_ms * 1000000;
    intervals->next_ns = 0;
    intervals->length = intervals->flow_count = 0;
}

void tcp_intervals_flow(struct tcp_intervals *intervals, int descriptor)
{
    if (intervals->flow_count < TCP_FLOWS_MAX)
        intervals->descriptors[intervals->flow_count++] = descriptor;
}

static double *intervals_upto(struct tcp_intervals *intervals, size_t length)
{
    if (length > intervals->capacity) {
        size_t capacity = length * 2 + 64;
        double *values = memory_new(capacity, TCP_COLUMN_COUNT * sizeof *values);
        if (intervals->length)
            memcpy(values, intervals->values, intervals->length * TCP_COLUMN_COUNT * sizeof *values);
        free(intervals->values);
        intervals->values = values;
        intervals->capacity = capacity;
    }
    for (size_t i = intervals->length * TCP_COLUMN_COUNT; i < length * TCP_COLUMN_COUNT; i++)
        intervals->values[i] = (double)NAN;
    intervals->length = length;
    return intervals->values + (length - 1) * TCP_COLUMN_COUNT;
}

void tcp_intervals_look(struct tcp_intervals *intervals, uint64_t start_ns, uint64_t now_ns)
{
    double now[TCP_COLUMN_COUNT];
    if (now_ns < intervals->next_ns || !intervals->interval_ns || !intervals->flow_count)
        return;
    values_now(intervals, now);
    if (!intervals->next_ns) { /* the phase has just begun */
        intervals->start_ns = start_ns;
        intervals->next_ns = start_ns + intervals->interval_ns;
        memcpy(intervals->before, now, sizeof now);
        return;
    }
    uint64_t count = (now_ns - intervals->start_ns) / intervals->interval_ns;
    intervals->next_ns = intervals->start_ns + (count + 1) * intervals->interval_ns;
    if (count > TCP_INTERVALS_MAX)
        return;
    double *row = intervals_upto(intervals, (size_t)count);
    for (size_t c = 0; c < TCP_COLUMN_COUNT; c++)
        row[c] = columns[c].counts ? now[c] - intervals->before[c] : now[c];
    memcpy(intervals->before, now, sizeof now);
}

void tcp_intervals_json(const struct tcp_intervals *intervals, size_t column, struct text *json)
{
    json_open(json, '[');
    for (size_t i = 0; i < intervals->length; i++)
        json_number(json, intervals->values[i * TCP_COLUMN_COUNT + column]);
    json_close(json, ']');
}

void tcp_intervals_free(struct tcp_intervals *intervals)
{
    free(intervals->values);
    *intervals = (struct tcp_intervals){0};
}
