/* See counters.h. */
#include "evidence/counters.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((format(printf, 2, 0))) static struct counter *counters_new(struct counters *counters, const char *format,
                                                                          va_list arguments)
{
    char name[256];
    counters->list = memory_more(counters->list, counters->count, &counters->capacity, 1, sizeof *counters->list);
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

static size_t hash_of(const char *name)
{
    uint64_t hash = 14695981039346656037ULL; /* FNV-1a, 64 bit */
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 1099511628211ULL;
    return (size_t)(hash ^ hash >> 32);
}

static size_t slot_of(const struct counters *counters, const char *name, const uint32_t *slots, size_t slot_count)
{
    for (size_t at = hash_of(name) & (slot_count - 1); slots[at]; at = (at + 1) & (slot_count - 1))
        if (!strcmp(counters_name(counters, slots[at] - 1), name))
            return slots[at] - 1;
    return counters->count;
}

void counters_index(struct counters *counters)
{
    size_t slot_count = 64;
    while (slot_count < 2 * counters->count)
        slot_count *= 2;
    free(counters->slots);
    counters->slots = memory_new(slot_count, sizeof *counters->slots);
    counters->slot_count = slot_count;
    for (size_t i = counters->count; i > 0; i--) { /* the first of two of one name is found, as without an index */
        size_t at = hash_of(counters_name(counters, i - 1)) & (slot_count - 1);
        while (counters->slots[at] &&
               strcmp(counters_name(counters, counters->slots[at] - 1), counters_name(counters, i - 1)))
            at = (at + 1) & (slot_count - 1);
        counters->slots[at] = (uint32_t)i;
    }
}

size_t counters_find(const struct counters *counters, const char *name, size_t hint)
{
    if (hint < counters->count && !strcmp(counters_name(counters, hint), name))
        return hint;
    if (counters->slots)
        return slot_of(counters, name, counters->slots, counters->slot_count);
    for (size_t i = 0; i < counters->count; i++)
        if (!strcmp(counters_name(counters, i), name))
            return i;
    return counters->count;
}

void counters_free(struct counters *counters)
{
    text_free(&counters->names);
    free(counters->list);
    free(counters->slots);
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
