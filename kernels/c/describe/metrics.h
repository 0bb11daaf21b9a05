/* A kernel's metrics: one row each, pointing at a double in the kernel's metric struct. NAN means "not measured": such
 * a metric is left out of the result line. Either end fills what it knows; the server's travel as `metric.<name>`. */
#ifndef HPCQ_METRICS_H
#define HPCQ_METRICS_H

#include "base/text.h"

#include <stddef.h>

enum metric_better { BETTER_NONE, BETTER_HIGHER, BETTER_LOWER };

struct metric_row {
    const char *name; /* of the field; its suffix is the unit */
    enum metric_better better;
    size_t offset;
    const char *help;
};

#define METRIC_ROW(type, field, better, help) {#field, better, offsetof(type, field), help}

struct metric_table {
    const struct metric_row *rows;
    size_t count;
    size_t struct_bytes;
};

void metrics_clear(const struct metric_table *table, void *metrics);
double metrics_value(const struct metric_row *row, const void *metrics);
void metrics_store(const struct metric_table *table, void *metrics, const char *name, double value);
void metrics_json(const struct metric_table *table, const void *metrics, struct text *json); /* one JSON object */
void metrics_describe(const struct metric_table *table, struct text *json);                  /* a JSON list */
void metrics_help(const struct metric_table *table, struct text *out);

#endif
