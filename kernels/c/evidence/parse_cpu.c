/* Parsers of what the kernel tells about CPUs, memory and load (proc(5), Documentation/filesystems/proc).
 */
#include "evidence/sources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const cpu_modes[] = {"user", "nice",    "system", "idle",  "iowait",
                                        "irq",  "softirq", "steal",  "guest", "guest_nice"};

void parse_stat(const char *prefix, const char *text, struct counters *out)
{
    static const struct {
        const char *word, *name;
        enum counter_kind kind;
    } singles[] = {{"intr", "interrupts", COUNTER_TOTAL},
                   {"ctxt", "context_switches", COUNTER_TOTAL},
                   {"processes", "forks", COUNTER_TOTAL},
                   {"softirq", "softirqs", COUNTER_TOTAL},
                   {"btime", "boot_time_s", COUNTER_GAUGE},
                   {"procs_running", "running_count", COUNTER_GAUGE},
                   {"procs_blocked", "blocked_count", COUNTER_GAUGE}};
    struct word line, name, value;
    while (line_next(&text, &line)) {
        if (!word_next(&line, &name))
            continue;
        for (size_t i = 0; word_starts(name, "cpu") && i < 10 && word_next(&line, &value); i++)
            counters_add(out, COUNTER_TOTAL, word_unsigned(value), "%s.%.*s.%s_ticks", prefix, (int)name.length,
                         name.at, cpu_modes[i]);
        for (size_t i = 0; i < sizeof singles / sizeof singles[0]; i++)
            if (word_is(name, singles[i].word) && word_next(&line, &value))
                counters_add(out, singles[i].kind, word_unsigned(value), "%s.node.%s", prefix, singles[i].name);
    }
}

/* Only the lines of CPUs and of this version: field 7 running, 8 waiting (both ns), 9 time slices
 * (Documentation/scheduler/sched-stats). */
void parse_schedstat(const char *prefix, const char *text, struct counters *out)
{
    static const char *const names[] = {"run_ns", "wait_ns", "slices"};
    struct word line, name, value;
    while (line_next(&text, &line)) {
        if (!word_next(&line, &name) || !word_starts(name, "cpu"))
            continue;
        for (size_t i = 0; i < 9 && word_next(&line, &value); i++)
            if (i >= 6)
                counters_add(out, COUNTER_TOTAL, word_unsigned(value), "%s.%.*s.%s", prefix, (int)name.length, name.at,
                             names[i - 6]);
    }
}

void parse_self_schedstat(const char *prefix, const char *text, struct counters *out)
{
    static const char *const names[] = {"run_ns", "wait_ns", "slices"};
    struct word line, value;
    if (!line_next(&text, &line))
        return;
    for (size_t i = 0; i < 3 && word_next(&line, &value); i++)
        counters_add(out, COUNTER_TOTAL, word_unsigned(value), "%s.%s", prefix, names[i]);
}

/* nr_* and workingset_nodes are levels of the moment, of no use beside meminfo; the rest counts. */
static bool vmstat_is_level(struct word name)
{
    return word_starts(name, "nr_") || word_is(name, "workingset_nodes");
}

void parse_vmstat(const char *prefix, const char *text, struct counters *out)
{
    struct word line, name, value;
    while (line_next(&text, &line))
        if (word_next(&line, &name) && !vmstat_is_level(name) && word_next(&line, &value))
            counters_add(out, COUNTER_TOTAL, word_unsigned(value), "%s.node.%.*s", prefix, (int)name.length, name.at);
}

void parse_meminfo(const char *prefix, const char *text, struct counters *out)
{
    static const char *const kept[] = {"MemTotal", "MemFree",  "MemAvailable",   "Cached",
                                       "Dirty",    "SwapFree", "HugePages_Free", NULL};
    struct word line, name, value, unit;
    while (line_next(&text, &line)) {
        if (!word_next(&line, &name) || !word_next(&line, &value))
            continue;
        bool kib = word_next(&line, &unit);
        for (size_t i = 0; kept[i]; i++)
            if (word_is(name, kept[i]))
                counters_add(out, COUNTER_GAUGE, word_unsigned(value) * (kib ? 1024 : 1), "%s.node.%s%s", prefix,
                             kept[i], kib ? "_bytes" : "");
    }
}

void parse_loadavg(const char *prefix, const char *text, struct counters *out)
{
    static const char *const names[] = {"1min", "5min", "15min"};
    struct word line, value;
    if (!line_next(&text, &line))
        return;
    for (size_t i = 0; i < 3 && word_next(&line, &value); i++)
        counters_add_gauge(out, strtod(value.at, NULL), "%s.node.%s", prefix, names[i]);
    if (word_next(&line, &value) && memchr(value.at, '/', value.length))
        counters_add(out, COUNTER_GAUGE, word_unsigned(value), "%s.node.runnable", prefix);
}

/* some avg10=0.00 avg60=0.00 avg300=0.00 total=123 (us); Documentation/accounting/psi.rst */
void parse_pressure(const char *prefix, const char *text, struct counters *out)
{
    struct word line, kind, field;
    while (line_next(&text, &line)) {
        if (!word_next(&line, &kind))
            continue;
        while (word_next(&line, &field)) {
            if (word_starts(field, "avg10="))
                counters_add_gauge(out, strtod(field.at + 6, NULL), "%s.%.*s_avg10", prefix, (int)kind.length, kind.at);
            if (word_starts(field, "total="))
                counters_add(out, COUNTER_TOTAL, strtoull(field.at + 6, NULL, 10), "%s.%.*s_us", prefix,
                             (int)kind.length, kind.at);
        }
    }
}

/* cpu.stat of a control group: what it was denied (Documentation/admin-guide/cgroup-v2.rst). */
void parse_cgroup(const char *prefix, const char *text, struct counters *out)
{
    static const struct {
        const char *name, *kept;
        uint64_t divisor;
    } rows[] = {{"nr_throttled", "throttled", 1},
                {"throttled_usec", "throttled_us", 1},
                {"throttled_time", "throttled_us", 1000}}; /* version 1, in nanoseconds */
    struct word line, name, value;
    while (line_next(&text, &line)) {
        if (!word_next(&line, &name) || !word_next(&line, &value))
            continue;
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            if (word_is(name, rows[i].name))
                counters_add(out, COUNTER_TOTAL, word_unsigned(value) / rows[i].divisor, "%s.self.%s", prefix,
                             rows[i].kept);
    }
}
