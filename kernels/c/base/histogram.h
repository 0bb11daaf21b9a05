/* Log-linear histogram of ns: exact below 128 ns, then 128 buckets an octave (under 0.8 % wide), up to 2^40 ns. */
#ifndef HPCQ_HISTOGRAM_H
#define HPCQ_HISTOGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HISTOGRAM_OCTAVE_BITS = 7,
    HISTOGRAM_VALUE_BITS = 40, /* about 18 minutes; larger values fall into the last bucket */
    HISTOGRAM_BUCKET_COUNT = (HISTOGRAM_VALUE_BITS - HISTOGRAM_OCTAVE_BITS + 1) << HISTOGRAM_OCTAVE_BITS
};

struct histogram {
    uint64_t count;
    uint64_t minimum_ns, maximum_ns; /* exact */
    double sum_ns;
    uint64_t buckets[HISTOGRAM_BUCKET_COUNT];
};

size_t histogram_index(uint64_t value_ns);
uint64_t histogram_lower_ns(size_t index); /* smallest value of a bucket */
void histogram_add(struct histogram *histogram, uint64_t value_ns);
/* Value at quantile 0..1, rank interpolated inside its bucket and held within minimum..maximum; NAN when empty. */
/* Whether the samples say anything about this quantile: at least five lie above it. */
bool histogram_supports(const struct histogram *histogram, double quantile);
double histogram_quantile_ns(const struct histogram *histogram, double quantile);
double histogram_mean_ns(const struct histogram *histogram);

#endif
