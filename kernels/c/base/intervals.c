/* See intervals.h. */
#include "base/intervals.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void intervals_sample(struct intervals *intervals, uint64_t elapsed_ns)
{
    if (!intervals->interval_ns || intervals->seen_count++ % intervals->stride)
        return;
    if (intervals->sample_count == INTERVALS_SAMPLES) {
        intervals->sample_count /= 2;
        intervals->stride *= 2;
        for (size_t i = 0; i < intervals->sample_count; i++)
            intervals->samples[i] = intervals->samples[2 * i];
    }
    intervals->samples[intervals->sample_count++] = elapsed_ns;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

double intervals_median_ns(struct intervals *intervals)
{
    size_t count = intervals->sample_count;
    if (!count)
        return (double)NAN;
    qsort(intervals->samples, count, sizeof intervals->samples[0], compare);
    return ((double)intervals->samples[(count - 1) / 2] + (double)intervals->samples[count / 2]) / 2;
}

void intervals_add(struct intervals *intervals, double value)
{
    if (intervals->count == INTERVALS_MAX)
        return;
    if (intervals->count == intervals->capacity) {
        size_t capacity = intervals->capacity * 2 + 64;
        double *values = memory_new(capacity, sizeof *values);
        if (intervals->count)
            memcpy(values, intervals->values, intervals->count * sizeof *values);
        free(intervals->values);
        intervals->values = values;
        intervals->capacity = capacity;
    }
    intervals->values[intervals->count++] = value;
}

static double mean_of(const double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return sum / (double)count;
}

/* By how much the last intervals differ from those before; infinite where there are too few. */
double intervals_level_ratio(const struct intervals *intervals)
{
    enum { COMPARED = 3 };
    if (intervals->count < 2 * COMPARED)
        return HUGE_VAL;
    const double *last = intervals->values + intervals->count - COMPARED;
    double before = mean_of(last - COMPARED, COMPARED);
    return before > 0 ? fabs(mean_of(last, COMPARED) / before - 1) : HUGE_VAL;
}

void intervals_free(struct intervals *intervals)
{
    free(intervals->values);
    intervals->values = NULL;
}
