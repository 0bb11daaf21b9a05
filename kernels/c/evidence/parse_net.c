/* Parsers of the network's files below /proc/net. */
#include "evidence/sources.h"

#include <stdlib.h>
#include <string.h>

void parse_net_dev(const char *prefix, const char *text, struct counters *out)
{
    static const char *const names[] = {"rx_bytes", "rx_packets",    "rx_errors",     "rx_dropped",
                                        "rx_fifo",  "rx_frame",      "rx_compressed", "rx_multicast",
                                        "tx_bytes", "tx_packets",    "tx_errors",     "tx_dropped",
                                        "tx_fifo",  "tx_collisions", "tx_carrier",    "tx_compressed"};
    struct word line, value;
    while (line_next(&text, &line)) {
        /* The name ends at the last colon: `eth0:1` is a name too. The two head lines have a bar. */
        const char *colon = memrchr(line.at, ':', line.length);
        if (!colon || memchr(line.at, '|', line.length))
            continue;
        struct word name = {line.at, (size_t)(colon - line.at)};
        while (name.length && name.at[0] == ' ')
            name = (struct word){name.at + 1, name.length - 1};
        struct word rest = {colon + 1, line.length - (size_t)(colon + 1 - line.at)};
        for (size_t i = 0; i < 16 && word_next(&rest, &value); i++)
            counters_add(out, COUNTER_TOTAL, word_unsigned(value), "%s.%.*s.%s", prefix, (int)name.length, name.at,
                         names[i]);
    }
}

/* Settings among the counters: constant, or facts of the node. */
static bool snmp_is_setting(struct word name)
{
    static const char *const settings[] = {"Forwarding", "DefaultTTL", "RtoAlgorithm", "RtoMin", "RtoMax",
                                           "MaxConn",    NULL};
    for (size_t i = 0; settings[i]; i++)
        if (word_is(name, settings[i]))
            return true;
    return false;
}

/* Pairs of lines: `Tcp: Name Name ...` and `Tcp: 1 2 ...`. */
void parse_snmp(const char *prefix, const char *text, struct counters *out)
{
    struct word names, values, group, again, name, value;
    while (line_next(&text, &names) && line_next(&text, &values)) {
        if (!word_next(&names, &group) || !word_next(&values, &again) || group.length != again.length)
            return;
        while (word_next(&names, &name) && word_next(&values, &value)) {
            if (snmp_is_setting(name))
                continue;
            counters_add(out, word_is(name, "CurrEstab") ? COUNTER_GAUGE : COUNTER_TOTAL, word_unsigned(value),
                         "%s.%.*s.%.*s", prefix, (int)group.length, group.at, (int)name.length, name.at);
        }
    }
}

void parse_pairs(const char *prefix, const char *text, struct counters *out)
{
    struct word line, name, value;
    while (line_next(&text, &line))
        if (word_next(&line, &name) && word_next(&line, &value))
            counters_add(out, COUNTER_TOTAL, word_unsigned(value), "%s.%.*s", prefix, (int)name.length, name.at);
}

void parse_gauges(const char *prefix, const char *text, struct counters *out)
{
    struct word line, name, value;
    while (line_next(&text, &line))
        if (word_next(&line, &name) && word_next(&line, &value))
            counters_add(out, COUNTER_GAUGE, word_unsigned(value), "%s.%.*s", prefix, (int)name.length, name.at);
}

/* Times and counts, and levels of the moment: a rate, the smallest round trip so far. */
void parse_tcp_info(const char *prefix, const char *text, struct counters *out)
{
    struct word line, name, value;
    while (line_next(&text, &line)) {
        if (!word_next(&line, &name) || !word_next(&line, &value))
            continue;
        bool level = word_is(name, "min_round_trip_us") || word_is(name, "delivery_rate_bps");
        counters_add(out, level ? COUNTER_GAUGE : COUNTER_TOTAL, word_unsigned(value), "%s.%.*s", prefix,
                     (int)name.length, name.at);
    }
}

/* Pairs too, but what waits in the queue goes up and down. */
void parse_qdisc(const char *prefix, const char *text, struct counters *out)
{
    static const char level[] = ".backlog_bytes";
    const size_t length = sizeof level - 1;
    struct word line, name, value;
    while (line_next(&text, &line)) {
        if (!word_next(&line, &name) || !word_next(&line, &value))
            continue;
        bool gauge = name.length > length && !memcmp(name.at + name.length - length, level, length);
        counters_add(out, gauge ? COUNTER_GAUGE : COUNTER_TOTAL, word_unsigned(value), "%s.%.*s", prefix,
                     (int)name.length, name.at);
    }
}

/* A line of names, then hexadecimal columns, one line a CPU; what was refused or forgotten, added up. */
void parse_conntrack(const char *prefix, const char *text, struct counters *out)
{
    static const char *const kept[] = {"insert_failed", "drop", "early_drop", "invalid"};
    enum { KEPT_COUNT = 4, COLUMN_MAX = 32 };
    uint64_t sums[KEPT_COUNT] = {0};
    size_t columns[KEPT_COUNT];
    struct word line, word;
    if (!line_next(&text, &line))
        return;
    for (size_t i = 0; i < KEPT_COUNT; i++)
        columns[i] = COLUMN_MAX;
    for (size_t column = 0; word_next(&line, &word); column++)
        for (size_t i = 0; i < KEPT_COUNT; i++)
            if (word_is(word, kept[i]))
                columns[i] = column;
    while (line_next(&text, &line))
        for (size_t column = 0; word_next(&line, &word); column++)
            for (size_t i = 0; i < KEPT_COUNT; i++)
                if (columns[i] == column)
                    sums[i] += strtoull(word.at, NULL, 16);
    for (size_t i = 0; i < KEPT_COUNT; i++)
        if (columns[i] < COLUMN_MAX)
            counters_add(out, COUNTER_TOTAL, sums[i], "%s.node.%s", prefix, kept[i]);
}

/* Hexadecimal columns, one line a CPU that is online: net/core/net-procfs.c, softnet_seq_show. */
void parse_softnet(const char *prefix, const char *text, struct counters *out)
{
    static const char *const names[] = {"processed", "dropped", "time_squeeze", NULL,           NULL,        NULL,
                                        NULL,        NULL,      NULL,           "received_rps", "flow_limit"};
    enum { COLUMN_COUNT = 15, CPU_COLUMN = 12 };
    struct word line, value;
    for (unsigned row = 0; line_next(&text, &line); row++) {
        uint64_t columns[COLUMN_COUNT] = {0};
        size_t count = 0;
        while (count < COLUMN_COUNT && word_next(&line, &value))
            columns[count++] = strtoull(value.at, NULL, 16);
        /* Since Linux 5.10 the CPU is told; before, lines count the online ones. */
        unsigned cpu = count > CPU_COLUMN ? (unsigned)columns[CPU_COLUMN] : row;
        for (size_t i = 0; i < sizeof names / sizeof names[0] && i < count; i++)
            if (names[i])
                counters_add(out, COUNTER_TOTAL, columns[i], "%s.cpu%u.%s", prefix, cpu, names[i]);
    }
}

/* `TCP: inuse 1 orphan 0 ...`; memory in pages. */
void parse_sockstat(const char *prefix, const char *text, struct counters *out)
{
    struct word line, group, name, value;
    while (line_next(&text, &line)) {
        if (!word_next(&line, &group))
            continue;
        while (word_next(&line, &name) && word_next(&line, &value))
            counters_add(out, COUNTER_GAUGE, word_unsigned(value), "%s.%.*s.%.*s", prefix, (int)group.length, group.at,
                         (int)name.length, name.at);
    }
}
