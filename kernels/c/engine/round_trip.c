/* See round_trip.h. */
#include "engine/round_trip.h"

#include <math.h>

/* Left out where fewer than five samples lie above it: it would be the maximum by another name. */
static double tail(const struct histogram *histogram, double quantile)
{
    return histogram_supports(histogram, quantile) ? histogram_quantile_ns(histogram, quantile) : (double)NAN;
}

void round_trip_fill(const struct histogram *histogram, struct round_trip_metrics *metrics)
{
    if (!histogram->count)
        return;
    metrics->round_trip_min_ns = (double)histogram->minimum_ns;
    metrics->round_trip_p50_ns = histogram_quantile_ns(histogram, 0.5);
    metrics->round_trip_p90_ns = tail(histogram, 0.9);
    metrics->round_trip_p99_ns = tail(histogram, 0.99);
    metrics->round_trip_p999_ns = tail(histogram, 0.999);
    metrics->clock_read_ns = clock_read_ns();
    metrics->round_trip_max_ns = (double)histogram->maximum_ns;
    metrics->round_trip_mean_ns = histogram_mean_ns(histogram);
}
