/* What arrived per interval of a measurement: counts by time since its start. */
#ifndef HPCQ_SERIES_H
#define HPCQ_SERIES_H

#include "base/text.h"

enum { SERIES_LENGTH_MAX = 36000 };

struct series {
    unsigned interval_ms; /* 0: nothing is counted */
    double *counts;       /* bytes, by interval */
    size_t length, capacity;
};

void series_begin(struct series *series, unsigned interval_ms);
void series_add(struct series *series, uint64_t since_start_ns, double count);
void series_join(struct series *series, const struct series *other); /* of the same phase */
void series_free(struct series *series);
/* The rates (bits per second) as a JSON list; the last interval, which is not whole, is left out. */
void series_json(const struct series *series, struct text *json);
double series_width_ratio(const struct series *series,
                          double level); /* of the mean over the whole intervals: width.h */
/* The mean rate over the shares from..to (0 to 1) of the whole intervals; NAN with fewer than ten. */
double series_rate_bps(const struct series *series, double from, double to);

#endif
