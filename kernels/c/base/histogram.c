/* See histogram.h. */
#include "base/histogram.h"

#include <math.h>

size_t histogram_index(uint64_t value_ns)
{
    if (value_ns < (1U << HISTOGRAM_OCTAVE_BITS))
        return (size_t)value_ns;
    unsigned top = 63U - (unsigned)__builtin_clzll(value_ns);
    unsigned shift = top - HISTOGRAM_OCTAVE_BITS;
    size_t index = ((size_t)shift << HISTOGRAM_OCTAVE_BITS) + (size_t)(value_ns >> shift);
    return index < HISTOGRAM_BUCKET_COUNT ? index : HISTOGRAM_BUCKET_COUNT - 1;
}

uint64_t histogram_lower_ns(size_t index)
{
    size_t octave = index >> HISTOGRAM_OCTAVE_BITS;
    if (octave < 2)
        return index;
    uint64_t mantissa = (index & ((1U << HISTOGRAM_OCTAVE_BITS) - 1)) | (1U << HISTOGRAM_OCTAVE_BITS);
    return mantissa << (octave - 1);
}

void histogram_add(struct histogram *histogram, uint64_t value_ns)
{
    if (!histogram->count || value_ns < histogram->minimum_ns)
        histogram->minimum_ns = value_ns;
    if (value_ns > histogram->maximum_ns)
        histogram->maximum_ns = value_ns;
    histogram->count++;
    histogram->sum_ns += (double)value_ns;
    histogram->buckets[histogram_index(value_ns)]++;
}

double histogram_quantile_ns(const struct histogram *histogram, double quantile)
{
    if (!histogram->count)
        return (double)NAN;
    double rank = quantile * (double)histogram->count, whole = rint(rank);
    if (fabs(rank - whole) < 1e-9 * whole) /* 0.07 of 100 values is the 7th, though 0.07 * 100 is a little more */
        rank = whole;
    double seen = 0, value = (double)histogram->maximum_ns;
    for (size_t i = 0; i < HISTOGRAM_BUCKET_COUNT; i++) {
        double here = (double)histogram->buckets[i];
        if (here > 0 && seen + here >= rank) {
            double lower = (double)histogram_lower_ns(i), width = (double)histogram_lower_ns(i + 1) - lower;
            value = width > 1 ? lower + width * (rank - seen) / here : lower;
            break;
        }
        seen += here;
    }
    return fmin(fmax(value, (double)histogram->minimum_ns), (double)histogram->maximum_ns);
}

bool histogram_supports(const struct histogram *histogram, double quantile)
{
    return (double)histogram->count * (1 - quantile) >= 5 - 1e-9;
}

double histogram_mean_ns(const struct histogram *histogram)
{
    return histogram->count ? histogram->sum_ns / (double)histogram->count : (double)NAN;
}
