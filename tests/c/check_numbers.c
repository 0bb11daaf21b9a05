/* The histogram and the count of numbered datagrams. */
#include "base/histogram.h"
#include "base/sequence.h"
#include "base/text.h"
#include "base/width.h"
#include "check.h"
#include "evidence/ethtool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_buckets(void)
{
    for (size_t i = 0; i + 1 < HISTOGRAM_BUCKET_COUNT; i++) {
        uint64_t lower = histogram_lower_ns(i), next = histogram_lower_ns(i + 1);
        CHECK(histogram_index(lower) == i);
        CHECK(histogram_index(next - 1) == i);
        CHECK(next > lower);
        CHECK(lower < 256 || (double)(next - lower) / (double)lower <= 1.0 / 128);
    }
    CHECK(histogram_index(UINT64_MAX) == HISTOGRAM_BUCKET_COUNT - 1);
}

static void check_quantiles(void)
{
    struct histogram *histogram = memory_new(1, sizeof *histogram);
    CHECK(isnan(histogram_quantile_ns(histogram, 0.5)));
    CHECK(isnan(histogram_mean_ns(histogram)));
    for (uint64_t value = 1; value <= 100000; value++)
        histogram_add(histogram, value);
    CHECK(histogram->minimum_ns == 1 && histogram->maximum_ns == 100000 && histogram->count == 100000);
    CHECK(fabs(histogram_mean_ns(histogram) - 50000.5) < 1e-6);
    for (int percent = 1; percent <= 100; percent++) {
        double wanted = percent * 1000.0, found = histogram_quantile_ns(histogram, percent / 100.0);
        CHECK(fabs(found - wanted) <= wanted / 128 + 1);
    }
    memset(histogram, 0, sizeof *histogram);
    for (int i = 0; i < 10; i++)
        histogram_add(histogram, 70001); /* all equal: each quantile is that value */
    CHECK(histogram_quantile_ns(histogram, 0.5) > 70000.5 && histogram_quantile_ns(histogram, 0.999) < 70001.5);
    free(histogram);
}

/* The quantile q of n values is the one of rank q n, and within a bucket it lies where its rank does. */
static void check_ranks(void)
{
    struct histogram *histogram = memory_new(1, sizeof *histogram);
    for (uint64_t value = 1; value <= 100; value++) /* buckets of one value each */
        histogram_add(histogram, value);
    for (int percent = 1; percent <= 100; percent++)
        CHECK(fabs(histogram_quantile_ns(histogram, percent / 100.0) - percent) < 1e-9);
    CHECK(fabs(histogram_quantile_ns(histogram, 0.505) - 51) < 1e-9);
    memset(histogram, 0, sizeof *histogram);
    uint64_t lower = histogram_lower_ns(histogram_index(1000000)),
             next = histogram_lower_ns(histogram_index(1000000) + 1);
    for (uint64_t value = lower; value < next; value++) /* all of one wide bucket */
        histogram_add(histogram, value);
    for (int percent = 1; percent <= 99; percent++) {
        double wanted = (double)lower + (double)(next - lower) * percent / 100.0;
        CHECK(fabs(histogram_quantile_ns(histogram, percent / 100.0) - wanted) <= 1.0);
    }
    free(histogram);
}

static void check_sequence(void)
{
    struct sequence *sequence = memory_new(1, sizeof *sequence);
    for (uint64_t i = 0; i < 200; i++) /* 10 lost, 20 and 21 swapped, 30 twice */
        if (i != 10 && i != 20 && i != 21)
            CHECK(sequence_add(sequence, i) == 1);
        else if (i == 21) {
            CHECK(sequence_add(sequence, 21) == 1);
            CHECK(sequence_add(sequence, 20) == 1);
        }
    CHECK(sequence_add(sequence, 30) == 0);
    CHECK(sequence->unique_count == 199 && sequence->reordered_count == 1 && sequence->duplicate_count == 1);
    /* A jump beyond the window, a straggler within it, one too old to tell from a duplicate. */
    CHECK(sequence_add(sequence, 5000000) == 1);
    CHECK(sequence_add(sequence, 5000000 - SEQUENCE_WINDOW + 1) == 1);
    CHECK(sequence_add(sequence, 5000000 - SEQUENCE_WINDOW + 1) == 0);
    CHECK(sequence_add(sequence, 10) == 1);
    CHECK(sequence->unique_count == 202 && sequence->reordered_count == 3 && sequence->duplicate_count == 2);
    sequence_clear(sequence);
    for (uint64_t i = 0; i < 3 * (uint64_t)SEQUENCE_WINDOW; i++)
        sequence_add(sequence, i);
    CHECK(sequence->unique_count == 3 * (uint64_t)SEQUENCE_WINDOW);
    CHECK(sequence->reordered_count == 0 && sequence->duplicate_count == 0);
    free(sequence);
}

static void check_speeds(void)
{
    const uint32_t nothing[4] = {1U << 6 | 1U << 13, 0, 1U << 10, 0}; /* autonegotiation, pause, error correction */
    const uint32_t card[4] = {1U << 5 | 1U << 12 | 1U << 31, 1U << 4, 0, 0};
    const uint32_t newest[4] = {0, 0, 0, 1U << 24};
    CHECK(ethtool_speed_bps(nothing, 4) == 0);
    CHECK(ethtool_speed_bps(card, 4) == 100000000000);
    CHECK(ethtool_speed_bps(card, 1) == 25000000000);
    CHECK(ethtool_speed_bps(newest, 4) == 800000000000);
    CHECK(ethtool_speed_bps(newest, 0) == 0);
}

static double uniform(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return ((double)(*state >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(uint64_t *state)
{
    return sqrt(-2 * log(uniform(state))) * cos(6.283185307179586 * uniform(state));
}

/* How often the interval holds the mean that the series were made with; neighbours correlate by rho. */
static double covered(size_t count, double rho, double level)
{
    enum { SERIES = 4000, VALUES_MAX = 50 };
    uint64_t state = 88172645463325252;
    double values[VALUES_MAX], hits = 0;
    for (int series = 0; series < SERIES; series++) {
        double x = normal(&state), mean = 0;
        for (size_t i = 0; i < count; i++) {
            x = rho * x + sqrt(1 - rho * rho) * normal(&state);
            values[i] = 100 + 5 * x;
            mean += values[i] / (double)count;
        }
        hits += fabs(mean - 100) <= width_ratio(values, count, level) * mean / 2;
    }
    return hits / SERIES;
}

static void check_widths(void)
{
    for (size_t count = 10; count <= 50; count *= 2)
        CHECK(covered(count, 0, 0.95) > 0.945 && covered(count, 0, 0.95) < 0.975);
    CHECK(covered(50, 0, 0.5) > 0.48 && covered(50, 0, 0.5) < 0.56);
    CHECK(covered(10, 0.6, 0.95) > 0.85);
    CHECK(covered(20, 0.6, 0.95) > 0.91);
    CHECK(covered(50, 0.6, 0.95) > 0.93);
    CHECK(covered(50, 0.3, 0.95) > 0.93);
}

void check_numbers(void)
{
    check_widths();
    check_buckets();
    check_quantiles();
    check_ranks();
    check_sequence();
    check_speeds();
}
