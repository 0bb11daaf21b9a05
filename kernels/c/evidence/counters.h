/* Named values read from one snapshot, and the difference of two of them. */
#ifndef HPCQ_COUNTERS_H
#define HPCQ_COUNTERS_H

#include "base/text.h"

enum counter_kind {
    COUNTER_TOTAL, /* only grows: the difference is kept */
    COUNTER_GAUGE  /* goes both ways: both values are kept */
};

struct counter {
    size_t name; /* offset of the name in `names` */
    uint64_t value;
    double gauge;
    bool is_gauge;
};

struct counters {
    struct text names; /* one after the other, each ending in NUL */
    struct counter *list;
    size_t count, capacity;
    uint32_t *slots; /* counters_index: by name; 0 is free, else an index plus one */
    size_t slot_count;
};

void counters_add(struct counters *counters, enum counter_kind kind, uint64_t value, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void counters_add_gauge(struct counters *counters, double value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const char *counters_name(const struct counters *counters, size_t index);
/* Makes counters_find() fast; to be called once nothing is added any more. */
void counters_index(struct counters *counters);
/* Index of a name, or counters->count. Looks at `hint` first: both snapshots list things in the same order. */
size_t counters_find(const struct counters *counters, const char *name, size_t hint);
void counters_free(struct counters *counters);

/* after - before. A counter that went down either wrapped at 32 bit (both values fit, and the step forward through the
 * wrap is under half the range) or was reset; false: reset, and there is no difference to tell. */
bool counter_delta(uint64_t before, uint64_t after, uint64_t *delta);

#endif
