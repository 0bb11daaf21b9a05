/* /proc/interrupts and /proc/softirqs of both snapshots at once. On a node with 256 CPUs and 2,000 interrupts the table
 * has half a million cells, and few of them move: only those, and things that came or went, become counters. */
#include "evidence/sources.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CPU_COLUMN_MAX = 8192, IRQ_NAME_BYTES = 64 };

struct row {
    char name[IRQ_NAME_BYTES];
    size_t first, count; /* its cells */
    uint64_t total;
};

struct table {
    unsigned *cpus; /* one per column */
    size_t cpu_count;
    struct row *rows;
    size_t row_count, row_capacity;
    uint64_t *cells;
    size_t cell_count, cell_capacity;
};

/* Name of an interrupt: its action (`eth0-rx-0`, the last word of the line, which may have colons) with its number, or
 * the kernel's short name (`LOC`). */
static void row_name(struct word number, struct word rest, char out[IRQ_NAME_BYTES])
{
    struct word name = number;
    bool numbered = number.length && isdigit((unsigned char)number.at[0]);
    if (numbered && rest.length) {
        const char *blank = memrchr(rest.at, ' ', rest.length), *start = blank ? blank + 1 : rest.at;
        name = (struct word){start, (size_t)(rest.at + rest.length - start)};
    }
    size_t length = 0;
    for (size_t i = 0; i < name.length && length < IRQ_NAME_BYTES - 12; i++)
        out[length++] = name.at[i] == '.' ? '-' : name.at[i];
    out[length] = '\0';
    if (numbered)
        snprintf(out + length, IRQ_NAME_BYTES - length, "%s%.*s", length ? "#" : "", (int)number.length, number.at);
}

/* Takes the numbers at the front of the line, one per CPU at most. By hand: this loop sees every byte of the file. */
static void row_cells(struct table *table, struct row *row, struct word *line)
{
    const char *at = line->at, *end = line->at + line->length;
    while (row->count < table->cpu_count) {
        while (at < end && (*at == ' ' || *at == '\t' || *at == ':'))
            at++;
        if (at == end || *at < '0' || *at > '9')
            break;
        uint64_t value = 0;
        for (; at < end && *at >= '0' && *at <= '9'; at++)
            value = value * 10 + (uint64_t)(*at - '0');
        while (at < end && *at != ' ' && *at != '\t' && *at != ':') /* `12x` is a word */
            at++;
        table->cells[row->first + row->count++] = value;
        row->total += value;
    }
    *line = (struct word){at, (size_t)(end - at)};
}

static void table_head(struct table *table, struct word line)
{
    struct word word;
    table->cpus = memory_new(line.length / 4 + 1, sizeof *table->cpus); /* `CPU0`: at least four bytes each */
    while (table->cpu_count < CPU_COLUMN_MAX && word_next(&line, &word))
        if (word_starts(word, "CPU") && word.length > 3)
            table->cpus[table->cpu_count++] = (unsigned)strtoul(word.at + 3, NULL, 10);
}

static void table_read(const char *text, struct table *table)
{
    struct word line, number;
    if (!line_next(&text, &line))
        return;
    table_head(table, line);
    while (line_next(&text, &line)) {
        if (!word_next(&line, &number))
            continue;
        table->rows = memory_more(table->rows, table->row_count, &table->row_capacity, 1, sizeof *table->rows);
        table->cells =
            memory_more(table->cells, table->cell_count, &table->cell_capacity, table->cpu_count, sizeof *table->cells);
        struct row *row = &table->rows[table->row_count++];
        *row = (struct row){.first = table->cell_count};
        row_cells(table, row, &line);
        row_name(number, line, row->name);
        table->cell_count += row->count;
    }
}

static void table_free(struct table *table)
{
    free(table->cpus);
    free(table->rows);
    free(table->cells);
}

/* For each column the other table's of the same CPU, or its cpu_count. */
static size_t *columns_match(const struct table *table, const struct table *other)
{
    size_t *match = memory_new(table->cpu_count, sizeof *match), hint = 0;
    for (size_t i = 0; i < table->cpu_count; i++) {
        size_t at = 0;
        if (hint < other->cpu_count && other->cpus[hint] == table->cpus[i])
            at = hint;
        else
            while (at < other->cpu_count && other->cpus[at] != table->cpus[i])
                at++;
        match[i] = at;
        hint = at < other->cpu_count ? at + 1 : hint;
    }
    return match;
}

static size_t row_find(const struct table *table, const char *name, size_t hint)
{
    if (hint < table->row_count && !strcmp(table->rows[hint].name, name))
        return hint;
    for (size_t i = 0; i < table->row_count; i++)
        if (!strcmp(table->rows[i].name, name))
            return i;
    return table->row_count;
}

static void cell_add(const char *prefix, const struct row *row, unsigned cpu, uint64_t value, struct counters *out)
{
    counters_add(out, COUNTER_TOTAL, value, "%s.%s.cpu%u", prefix, row->name, cpu);
}

static void total_add(const char *prefix, const struct row *row, struct counters *out)
{
    counters_add(out, COUNTER_TOTAL, row->total, "%s.%s.total", prefix, row->name);
}

struct sides {
    const struct table *before, *after;
    struct counters *before_out, *after_out;
    const size_t *match; /* of after's columns */
};

static void rows_compare(const char *prefix, const struct sides *sides, const struct row *old, const struct row *new)
{
    for (size_t i = 0; i < new->count; i++) {
        size_t j = sides->match[i];
        if (j >= old->count)
            continue;
        uint64_t then = sides->before->cells[old->first + j], now = sides->after->cells[new->first + i];
        if (then == now)
            continue;
        cell_add(prefix, old, sides->after->cpus[i], then, sides->before_out);
        cell_add(prefix, new, sides->after->cpus[i], now, sides->after_out);
    }
    if (old->total != new->total) {
        total_add(prefix, old, sides->before_out);
        total_add(prefix, new, sides->after_out);
    }
}

/* A CPU that only one table has is named once, not once per interrupt. */
static void columns_alone(const char *prefix, const struct table *table, const struct table *other,
                          struct counters *out)
{
    size_t *match = columns_match(table, other);
    for (size_t i = 0; i < table->cpu_count; i++)
        if (match[i] == other->cpu_count)
            counters_add(out, COUNTER_TOTAL, 0, "%s.cpu%u.total", prefix, table->cpus[i]);
    free(match);
}

void parse_interrupts(const char *prefix, const char *before_text, const char *after_text, struct counters *before_out,
                      struct counters *after_out)
{
    struct table before = {0}, after = {0};
    table_read(before_text, &before);
    table_read(after_text, &after);
    bool *paired = memory_new(before.row_count, sizeof *paired);
    size_t *match = columns_match(&after, &before);
    struct sides sides = {&before, &after, before_out, after_out, match};
    for (size_t i = 0, hint = 0; i < after.row_count; i++) {
        size_t found = row_find(&before, after.rows[i].name, hint);
        if (found == before.row_count) {
            total_add(prefix, &after.rows[i], after_out);
            continue;
        }
        paired[found] = true;
        hint = found + 1;
        rows_compare(prefix, &sides, &before.rows[found], &after.rows[i]);
    }
    for (size_t i = 0; i < before.row_count; i++)
        if (!paired[i])
            total_add(prefix, &before.rows[i], before_out);
    columns_alone(prefix, &before, &after, before_out);
    columns_alone(prefix, &after, &before, after_out);
    free(paired);
    free(match);
    table_free(&before);
    table_free(&after);
}
