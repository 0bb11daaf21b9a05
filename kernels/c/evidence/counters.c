/* See counters.h. */
#include "evidence/counters.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct counter *counters_new(struct counters *counters, const char *format, va_list arguments)
{
    char name[256];
    if (counters->count == counters->capacity) {
        counters->capacity = counters->capacity ? 2 * counters->capacity : 256;
        counters->list = realloc(counters->list, counters->capacity * sizeof *counters->list);
        if (!counters->list) {
            fputs("error: out of memory\n", stderr);
            exit(4);
        }
    }
    struct counter *counter = &counters->list[counters->count++];
    *counter = (struct counter){.name = counters->names.length};
    vsnprintf(name, sizeof name, format, arguments);
    text_add(&counters->names, name, strlen(name) + 1);
    return counter;
}

void counters_add(struct counters *counters, enum counter_kind kind, uint64_t value, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    struct counter *counter = counters_new(counters, format, arguments);
    va_end(arguments);
    counter->value = value;
    counter->gauge = (double)value;
    counter->is_gauge = kind == COUNTER_GAUGE;
}

void counters_add_gauge(struct counters *counters, double value, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    struct counter *counter = counters_new(counters, format, arguments);
    va_end(arguments);
    counter->gauge = value;
    counter->is_gauge = true;
}

const char *counters_name(const struct counters *counters, size_t index)
{
    return counters->names.data + counters->list[index].name;
}

size_t counters_find(const struct counters *counters, const char *name, size_t hint)
{
    if (hint < counters->count && !strcmp(counters_name(counters, hint), name))
        return hint;
    for (size_t i = 0; i < counters->count; i++)
        if (!strcmp(counters_name(counters, i), name))
            return i;
    return counters->count;
}

void counters_free(struct counters *counters)
{
    text_free(&counters->names);
    free(counters->list);
    *counters = (struct counters){0};
}

bool counter_delta(uint64_t before, uint64_t after, uint64_t *delta)
{
    const uint64_t range = (uint64_t)1 << 32;
    *delta = after - before;
    if (after >= before)
        return true;
    if (before >= range)
        return false;
    *delta = range - before + after;
    return *delta < range / 2;
}
