/* See series.h. */
#include "base/series.h"

#include "base/width.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void series_begin(struct series *series, unsigned interval_ms)
{
    if (series->length)
        memset(series->counts, 0, series->length * sizeof *series->counts);
    series->length = 0;
    series->interval_ms = interval_ms;
}

void series_add(struct series *series, uint64_t since_start_ns, double count)
{
    if (!series->interval_ms)
        return;
    uint64_t index = since_start_ns / (series->interval_ms * 1000000ULL);
    if (index >= SERIES_LENGTH_MAX)
        return;
    if (index >= series->capacity) {
        size_t capacity = (size_t)index * 2 + 64;
        double *counts = memory_new(capacity, sizeof *counts);
        if (series->length)
            memcpy(counts, series->counts, series->length * sizeof *counts);
        free(series->counts);
        series->counts = counts;
        series->capacity = capacity;
    }
    if (index >= series->length)
        series->length = (size_t)index + 1;
    series->counts[index] += count;
}

void series_join(struct series *series, const struct series *other)
{
    for (size_t i = 0; i < other->length; i++)
        series_add(series, i * (other->interval_ms * 1000000ULL), other->counts[i]);
}

void series_free(struct series *series)
{
    free(series->counts);
    *series = (struct series){0};
}

static double rate_bps(const struct series *series, double count)
{
    return count * 8000 / series->interval_ms;
}

void series_json(const struct series *series, struct text *json)
{
    json_open(json, '[');
    for (size_t i = 0; i + 1 < series->length; i++)
        json_number(json, rate_bps(series, series->counts[i]));
    json_close(json, ']');
}

double series_rate_bps(const struct series *series, double from, double to)
{
    size_t whole = series->length ? series->length - 1 : 0;
    size_t first = (size_t)(from * (double)whole), last = (size_t)(to * (double)whole);
    double sum = 0;
    if (whole < 10 || last <= first)
        return (double)NAN;
    for (size_t i = first; i < last; i++)
        sum += series->counts[i];
    return rate_bps(series, sum / (double)(last - first));
}

double series_width_ratio(const struct series *series, double level)
{
    return series->length ? width_ratio(series->counts, series->length - 1, level) : (double)NAN;
}
