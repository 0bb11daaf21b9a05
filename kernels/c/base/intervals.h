/* What a measurement came to by interval, one value per whole interval, and the samples of the interval under way. */
#ifndef HPCQ_INTERVALS_H
#define HPCQ_INTERVALS_H

#include <stddef.h>
#include <stdint.h>

enum { INTERVALS_SAMPLES = 512, INTERVALS_MAX = 36000 };

struct intervals {
    uint64_t interval_ns, next_ns, last_ns; /* interval_ns is 0 where nothing is kept */
    double bytes_before;
    uint64_t samples[INTERVALS_SAMPLES]; /* of the interval under way: each one, later each second, each fourth, ... */
    size_t sample_count, seen_count, stride;
    double *values; /* one per whole interval */
    size_t count, capacity;
};

void intervals_sample(struct intervals *intervals, uint64_t elapsed_ns); /* a round trip */
double intervals_median_ns(struct intervals *intervals); /* of the samples so far, which it sorts; NAN without one */
void intervals_add(struct intervals *intervals, double value);
/* By how much the last three values differ from the three before; infinite where there are too few. */
double intervals_level_ratio(const struct intervals *intervals);
void intervals_free(struct intervals *intervals);

#endif
