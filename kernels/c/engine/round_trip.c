/* See round_trip.h. */
#include "engine/round_trip.h"

void round_trip_fill(const struct histogram *histogram, struct round_trip_metrics *metrics)
{
    if (!histogram->count)
        return;
    metrics->round_trip_min_ns = (double)histogram->minimum_ns;
    metrics->round_trip_p50_ns = histogram_quantile_ns(histogram, 0.5);
    metrics->round_trip_p90_ns = histogram_quantile_ns(histogram, 0.9);
    metrics->round_trip_p99_ns = histogram_quantile_ns(histogram, 0.99);
    metrics->round_trip_p999_ns = histogram_quantile_ns(histogram, 0.999);
    metrics->round_trip_max_ns = (double)histogram->maximum_ns;
    metrics->round_trip_mean_ns = histogram_mean_ns(histogram);
}
