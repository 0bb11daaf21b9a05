/* The metrics that every ping-pong reports about its round trips, from the histogram. */
#ifndef HPCQ_ROUND_TRIP_H
#define HPCQ_ROUND_TRIP_H

#include "engine/run.h"

struct round_trip_metrics {
    double round_trip_min_ns, round_trip_p50_ns, round_trip_p90_ns, round_trip_p99_ns, round_trip_p999_ns,
        round_trip_max_ns, round_trip_mean_ns, clock_read_ns;
};

#define METRIC_ROUND_TRIP(type, field, help) {#field, BETTER_LOWER, offsetof(type, round_trip.field), help}

/* The median first: a kernel's first metric with a direction is what a reader sees first. */
#define METRIC_ROWS_ROUND_TRIP(type)                                                                                   \
    METRIC_ROUND_TRIP(type, round_trip_p50_ns, "median round trip, from the histogram (within 0.8 %)"),                \
        METRIC_ROUND_TRIP(type, round_trip_p90_ns, "90 of 100 round trips were at most this (from 50 of them)"),       \
        METRIC_ROUND_TRIP(type, round_trip_p99_ns, "99 of 100 round trips were at most this (from 500)"),              \
        METRIC_ROUND_TRIP(type, round_trip_p999_ns, "999 of 1000 round trips were at most this (from 5000)"),          \
        METRIC_ROUND_TRIP(type, round_trip_min_ns, "smallest round trip (exact)"),                                     \
        METRIC_ROUND_TRIP(type, round_trip_max_ns, "largest round trip (exact)"),                                      \
        METRIC_ROUND_TRIP(type, round_trip_mean_ns, "mean round trip (exact)"),                                        \
        {"clock_read_ns", BETTER_NONE, offsetof(type, round_trip.clock_read_ns),                                       \
         "what one reading of the clock takes at the client: every round trip has one of it inside"}

void round_trip_fill(const struct histogram *histogram, struct round_trip_metrics *metrics);

#endif
