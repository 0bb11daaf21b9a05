/* See precision.h. */
#include "engine/precision.h"

#include "base/width.h"
#include "engine/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void precision_begin(struct run *run)
{
    struct precision *precision = &run->precision;
    bool asked = run->phase == PHASE_MEASURE || run_common(run)->warmup_level_ratio > 0;
    bool used = run->is_active && asked;
    precision->interval_ns = used ? (uint64_t)run_common(run)->series_interval_ms * 1000000 : 0;
    precision->next_ns = precision->count = precision->sample_count = precision->seen_count = 0;
    precision->bytes_before = 0;
    precision->stride = 1;
}

void precision_sample(struct run *run, uint64_t elapsed_ns)
{
    struct precision *precision = &run->precision;
    if (!precision->interval_ns || precision->seen_count++ % precision->stride)
        return;
    if (precision->sample_count == PRECISION_SAMPLES) {
        precision->sample_count /= 2;
        precision->stride *= 2;
        for (size_t i = 0; i < precision->sample_count; i++)
            precision->samples[i] = precision->samples[2 * i];
    }
    precision->samples[precision->sample_count++] = elapsed_ns;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static double median_of(struct precision *precision)
{
    size_t count = precision->sample_count;
    if (!count)
        return (double)NAN;
    qsort(precision->samples, count, sizeof precision->samples[0], compare);
    return ((double)precision->samples[(count - 1) / 2] + (double)precision->samples[count / 2]) / 2;
}

static void value_keep(struct precision *precision, double value)
{
    if (precision->count == PRECISION_INTERVALS_MAX)
        return;
    if (precision->count == precision->capacity) {
        size_t capacity = precision->capacity * 2 + 64;
        double *values = memory_new(capacity, sizeof *values);
        if (precision->count)
            memcpy(values, precision->values, precision->count * sizeof *values);
        free(precision->values);
        precision->values = values;
        precision->capacity = capacity;
    }
    precision->values[precision->count++] = value;
}

/* A socket takes in bursts as large as its buffer what the line carries evenly: what arrived is the better witness. */
static double bytes_now(const struct run *run)
{
    double arrived = run->kernel->arrived_bytes ? run->kernel->arrived_bytes(run) : (double)NAN;
    return isfinite(arrived) ? arrived : (double)run->sent_bytes;
}

/* An interval without a round trip is left out: the next one has the one that took so long. */
static void interval_over(struct run *run)
{
    struct precision *precision = &run->precision;
    double lasted_ns = (double)(run->now_ns - precision->last_ns);
    double bytes = run->histogram ? 0 : bytes_now(run);
    double value = run->histogram ? median_of(precision) : (bytes - precision->bytes_before) * 8e9 / lasted_ns;
    if (isfinite(value))
        value_keep(precision, value);
    precision->bytes_before = bytes;
    precision->sample_count = precision->seen_count = 0;
    precision->stride = 1;
}

static double mean_of(const double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return sum / (double)count;
}

/* By how much the last intervals differ from those before; infinite where there are too few. */
static double level_ratio(const struct precision *precision)
{
    enum { INTERVALS = 3 };
    if (precision->count < 2 * INTERVALS)
        return HUGE_VAL;
    const double *last = precision->values + precision->count - INTERVALS;
    double before = mean_of(last - INTERVALS, INTERVALS);
    return before > 0 ? fabs(mean_of(last, INTERVALS) / before - 1) : HUGE_VAL;
}

void precision_warm(struct run *run)
{
    double found = level_ratio(&run->precision), wanted = run_common(run)->warmup_level_ratio;
    if (run->phase != PHASE_WARMUP || !(wanted > 0) || found <= wanted)
        return;
    if (isinf(found))
        run_warn(run, "warmup_not_level", "%zu intervals of warm-up tell too little: raise warmup_s",
                 run->precision.count);
    else
        run_warn(run, "warmup_not_level",
                 "the last three intervals of the warm-up differed by %.3g from the three before, not by %g: raise "
                 "warmup_s or warmup_level_ratio",
                 found, wanted);
}

bool precision_reached(struct run *run)
{
    struct precision *precision = &run->precision;
    const struct common_options *common = run_common(run);
    if (!precision->interval_ns || run->now_ns < precision->next_ns)
        return false;
    if (precision->next_ns)
        interval_over(run);
    else if (!run->histogram)
        precision->bytes_before = bytes_now(run);
    uint64_t passed = run->now_ns > run->phase_start_ns ? run->now_ns - run->phase_start_ns : 0;
    precision->next_ns = run->phase_start_ns + (passed / precision->interval_ns + 1) * precision->interval_ns;
    precision->last_ns = run->now_ns;
    if (run->phase == PHASE_WARMUP)
        return level_ratio(precision) <= common->warmup_level_ratio;
    return common->width_max_ratio > 0 &&
           width_ratio(precision->values, precision->count, common->width_level_ratio) <= common->width_max_ratio;
}

void precision_end(struct run *run)
{
    struct precision *precision = &run->precision;
    const struct common_options *common = run_common(run);
    if (!precision->interval_ns)
        return;
    double width = width_ratio(precision->values, precision->count, common->width_level_ratio);
    if (common->width_max_ratio > 0 && isnan(width))
        run_warn(run, "width_not_reached", "%zu intervals are too few: at least %d are needed; raise duration_s",
                 precision->count, WIDTH_VALUES_MIN);
    else if (common->width_max_ratio > 0 && width > common->width_max_ratio)
        run_warn(
            run, "width_not_reached",
            "after %zu intervals the mean is known to %.3g of itself, not to %g: raise duration_s or width_max_ratio",
            precision->count, width, common->width_max_ratio);
    if (!run->histogram || !precision->count)
        return;
    run_common_metrics(run)->round_trip_width_ratio = width;
    struct text json = {0};
    json_open(&json, '[');
    for (size_t i = 0; i < precision->count; i++)
        json_number(&json, precision->values[i]);
    json_close(&json, ']');
    run_column(run, false, "round_trip_p50_ns", &json);
}

void precision_free(struct precision *precision)
{
    free(precision->values);
    precision->values = NULL;
}
