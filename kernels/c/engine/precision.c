/* See precision.h. */
#include "engine/precision.h"

#include "base/width.h"
#include "engine/run.h"

#include <math.h>

void precision_begin(struct run *run)
{
    struct intervals *intervals = &run->intervals;
    bool asked = run->phase == PHASE_MEASURE || run_common(run)->warmup_level_ratio > 0;
    bool used = run->is_active && asked;
    intervals->interval_ns = used ? (uint64_t)run_common(run)->series_interval_ms * 1000000 : 0;
    intervals->next_ns = intervals->count = intervals->sample_count = intervals->seen_count = 0;
    intervals->bytes_before = 0;
    intervals->stride = 1;
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
    struct intervals *intervals = &run->intervals;
    double lasted_ns = (double)(run->now_ns - intervals->last_ns);
    double bytes = run->histogram ? 0 : bytes_now(run);
    double value =
        run->histogram ? intervals_median_ns(intervals) : (bytes - intervals->bytes_before) * 8e9 / lasted_ns;
    if (isfinite(value))
        intervals_add(intervals, value);
    intervals->bytes_before = bytes;
    intervals->sample_count = intervals->seen_count = 0;
    intervals->stride = 1;
}

void precision_warm(struct run *run)
{
    double found = intervals_level_ratio(&run->intervals), wanted = run_common(run)->warmup_level_ratio;
    if (run->phase != PHASE_WARMUP || !(wanted > 0) || found <= wanted)
        return;
    if (isinf(found))
        run_warn(run, "warmup_not_level", "%zu intervals of warm-up tell too little: raise warmup_s",
                 run->intervals.count);
    else
        run_warn(run, "warmup_not_level",
                 "the last three intervals of the warm-up differed by %.3g from the three before, not by %g: raise "
                 "warmup_s or warmup_level_ratio",
                 found, wanted);
}

bool precision_reached(struct run *run)
{
    struct intervals *intervals = &run->intervals;
    const struct common_options *common = run_common(run);
    if (!intervals->interval_ns || run->now_ns < intervals->next_ns)
        return false;
    if (intervals->next_ns)
        interval_over(run);
    else if (!run->histogram)
        intervals->bytes_before = bytes_now(run);
    uint64_t passed = run->now_ns > run->phase_start_ns ? run->now_ns - run->phase_start_ns : 0;
    intervals->next_ns = run->phase_start_ns + (passed / intervals->interval_ns + 1) * intervals->interval_ns;
    intervals->last_ns = run->now_ns;
    if (run->phase == PHASE_WARMUP)
        return intervals_level_ratio(intervals) <= common->warmup_level_ratio;
    return common->width_max_ratio > 0 &&
           width_ratio(intervals->values, intervals->count, common->width_level_ratio) <= common->width_max_ratio;
}

void precision_end(struct run *run)
{
    struct intervals *intervals = &run->intervals;
    const struct common_options *common = run_common(run);
    if (!intervals->interval_ns)
        return;
    double width = width_ratio(intervals->values, intervals->count, common->width_level_ratio);
    if (common->width_max_ratio > 0 && isnan(width))
        run_warn(run, "width_not_reached", "%zu intervals are too few: at least %d are needed; raise duration_s",
                 intervals->count, WIDTH_VALUES_MIN);
    else if (common->width_max_ratio > 0 && width > common->width_max_ratio)
        run_warn(
            run, "width_not_reached",
            "after %zu intervals the mean is known to %.3g of itself, not to %g: raise duration_s or width_max_ratio",
            intervals->count, width, common->width_max_ratio);
    if (!run->histogram || !intervals->count)
        return;
    run_common_metrics(run)->round_trip_width_ratio = width;
    struct text json = {0};
    json_open(&json, '[');
    for (size_t i = 0; i < intervals->count; i++)
        json_number(&json, intervals->values[i]);
    json_close(&json, ']');
    run_column(run, false, "round_trip_p50_ns", &json);
}
