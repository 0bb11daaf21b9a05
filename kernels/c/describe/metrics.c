/* See metrics.h. */
#include "describe/metrics.h"

#include "describe/options.h"

#include <math.h>
#include <string.h>

static double *metric_field(const struct metric_row *row, void *metrics)
{
    return (double *)(void *)((char *)metrics + row->offset);
}

void metrics_clear(const struct metric_table *table, void *metrics)
{
    for (size_t i = 0; i < table->count; i++)
        *metric_field(&table->rows[i], metrics) = (double)NAN;
}

double metrics_value(const struct metric_row *row, const void *metrics)
{
    return *(const double *)(const void *)((const char *)metrics + row->offset);
}

void metrics_store(const struct metric_table *table, void *metrics, const char *name, double value)
{
    for (size_t i = 0; i < table->count; i++)
        if (!strcmp(table->rows[i].name, name))
            *metric_field(&table->rows[i], metrics) = value;
}

void metrics_json(const struct metric_table *table, const void *metrics, struct text *json)
{
    json_open(json, '{');
    for (size_t i = 0; i < table->count; i++) {
        double value = metrics_value(&table->rows[i], metrics);
        if (!isfinite(value))
            continue;
        json_key(json, table->rows[i].name);
        json_number(json, value);
    }
    json_close(json, '}');
}

static const char *better_name(enum metric_better better)
{
    static const char *const names[] = {"none", "higher", "lower"};
    return names[better];
}

void metrics_describe(const struct metric_table *table, struct text *json)
{
    json_open(json, '[');
    for (size_t i = 0; i < table->count; i++) {
        const struct metric_row *row = &table->rows[i];
        json_open(json, '{');
        json_key(json, "name");
        json_string(json, row->name);
        json_key(json, "unit");
        json_string(json, unit_of(row->name));
        json_key(json, "better");
        json_string(json, better_name(row->better));
        json_key(json, "help");
        json_string(json, row->help);
        json_close(json, '}');
    }
    json_close(json, ']');
}

void metrics_help(const struct metric_table *table, struct text *out)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct metric_row *row = &table->rows[i];
        text_print(out, "  %s (better: %s)\n      %s\n", row->name, better_name(row->better), row->help);
    }
}
