/* How precisely the active end knows by now what it measures, from values by interval: what arrived of what it sent
 * (where nothing tells that, what it sent), or the median of the round trips in it. Asked for a width, it measures no
 * longer than that takes. */
#ifndef HPCQ_PRECISION_H
#define HPCQ_PRECISION_H

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

struct run;

enum { PRECISION_SAMPLES = 512, PRECISION_INTERVALS_MAX = 36000 };

struct precision {
    uint64_t interval_ns, next_ns, last_ns;
    double bytes_before;
    uint64_t samples[PRECISION_SAMPLES]; /* of the interval under way: each one, later each second, each fourth, ... */
    size_t sample_count, seen_count, stride;
    double *values; /* one per whole interval */
    size_t count, capacity;
};

void precision_begin(struct run *run);
void precision_sample(struct run *run, uint64_t elapsed_ns); /* a round trip */
/* Often, at the active end: true once the interval is as narrow, or the warm-up as level, as the person asked for. */
bool precision_reached(struct run *run);
void precision_warm(struct run *run); /* at the end of the warm-up: a warning where it was not level */
/* At the end: the metric of round trips and their series, and a warning where a width was not reached. */
void precision_end(struct run *run);
void precision_free(struct precision *precision);

#endif
