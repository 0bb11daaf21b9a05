/* Differences of counters, and which of them a result line keeps. */
#include "check.h"
#include "evidence/counters.h"
#include "evidence/reduce.h"
#include "evidence/sources.h"

#include <stdlib.h>
#include <string.h>

static void check_delta(void)
{
    uint64_t delta = 0;
    CHECK(counter_delta(5, 5, &delta) && delta == 0);
    CHECK(counter_delta(5, 12, &delta) && delta == 7);
    CHECK(counter_delta(UINT32_MAX - 9, 20, &delta) && delta == 30);              /* wrapped at 32 bit */
    CHECK(counter_delta(UINT32_MAX, 5000000000U, &delta) && delta == 705032705U); /* 64 bit, no wrap */
    CHECK(!counter_delta(1000, 3, &delta));                                       /* reset */
    CHECK(!counter_delta((uint64_t)1 << 40, 7, &delta));                          /* a 64-bit counter that was reset */
}

static void check_find(void)
{
    struct counters counters = {0};
    for (unsigned i = 0; i < 1000; i++)
        counters_add(&counters, COUNTER_TOTAL, i, "a.%u", i);
    CHECK(counters_find(&counters, "a.500", 500) == 500);
    CHECK(counters_find(&counters, "a.500", 3) == 500);
    CHECK(counters_find(&counters, "a.1000", 0) == counters.count);
    counters_index(&counters);
    CHECK(counters_find(&counters, "a.500", 3) == 500);
    CHECK(counters_find(&counters, "a.999", 0) == 999);
    CHECK(counters_find(&counters, "a.1000", 0) == counters.count);
    counters_free(&counters);
}

static bool kept(const struct counters *counters, const bool *keep, const char *name)
{
    size_t i = counters_find(counters, name, 0);
    return i < counters->count && keep[i];
}

static void check_reduction(void)
{
    struct counters counters = {0};
    for (unsigned cpu = 0; cpu < 256; cpu++) {
        counters_add(&counters, COUNTER_TOTAL, cpu == 77 ? 900 : 1, "stat.cpu%u.softirq_ticks", cpu);
        counters_add(&counters, COUNTER_TOTAL, 1000, "stat.cpu%u.idle_ticks", cpu);
        counters_add(&counters, COUNTER_TOTAL, cpu + 1, "interrupts.LOC.cpu%u", cpu);
    }
    counters_add(&counters, COUNTER_TOTAL, 32896, "interrupts.LOC.total");
    counters_add(&counters, COUNTER_TOTAL, 3, "snmp.Udp.RcvbufErrors");
    counters_add(&counters, COUNTER_TOTAL, 2, "net_dev.eth0.rx_dropped");
    for (unsigned i = 0; i < 100; i++)
        counters_add(&counters, COUNTER_TOTAL, 50 + i, "net_dev.veth%u.rx_dropped", i);
    bool *keep = memory_new(counters.count, sizeof *keep);
    size_t count = reduce_select(&counters, "eth0", keep);
    CHECK(count < REDUCE_COUNT_MAX && count > 20);
    CHECK(kept(&counters, keep, "stat.cpu77.softirq_ticks"));
    CHECK(!kept(&counters, keep, "stat.cpu77.idle_ticks"));
    CHECK(kept(&counters, keep, "interrupts.LOC.cpu255"));
    CHECK(!kept(&counters, keep, "interrupts.LOC.cpu0"));
    CHECK(kept(&counters, keep, "interrupts.LOC.total"));
    CHECK(kept(&counters, keep, "snmp.Udp.RcvbufErrors"));
    CHECK(kept(&counters, keep, "net_dev.eth0.rx_dropped"));
    CHECK(!kept(&counters, keep, "net_dev.veth3.rx_dropped"));
    free(keep);
    counters_free(&counters);
}

static void check_parsers_on_noise(void)
{
    static const char *const noise[] = {
        "",        "\n",          "\n\n\n",       "x",        ":",           ": :\n:",
        "cpu",     "cpu\ncpu0\n", "Tcp: a b\n",   "CPU0\n1:", "eth0:\n",     "a b c d e",
        "\t\t 1 ", "1:2:3:4\n",   "Tcp: 1\nUdp:", "-1 -2 -3", "some avg10=", "0x"};
    for (size_t i = 0; i < source_count; i++) {
        for (size_t n = 0; n < sizeof noise / sizeof noise[0]; n++) {
            struct counters counters = {0};
            char *copy = strdup(noise[n]); /* on the heap, so that a read past its end is seen */
            struct counters other = {0};
            source_parse(&sources[i], copy, "1", &counters, &other);
            CHECK(counters.count < 32 && other.count < 32);
            free(copy);
            counters_free(&counters);
            counters_free(&other);
        }
    }
}

/* A row per interrupt; interrupt n moved on CPU n. */
static void table_text(struct text *text, unsigned cpus, unsigned rows, unsigned moved)
{
    for (unsigned cpu = 0; cpu < cpus; cpu++)
        text_print(text, " CPU%u", cpu);
    for (unsigned row = 0; row < rows; row++) {
        text_print(text, "\n%u:", row);
        for (unsigned cpu = 0; cpu < cpus; cpu++)
            text_print(text, " %u", cpu == row % cpus ? 7 + moved : 7);
        text_print(text, " PCI-MSI nic-%u", row);
    }
    text_print(text, "\n");
}

/* What is compared is counted: of half a million cells the two thousand that moved, with the total of their row. */
static void check_interrupts_that_moved(void)
{
    struct text before = {0}, after = {0};
    struct counters old = {0}, new = {0};
    table_text(&before, 256, 2000, 0);
    table_text(&after, 256, 2000, 5);
    parse_interrupts("i", text_string(&before), text_string(&after), &old, &new);
    CHECK(old.count == 4000 && new.count == 4000);
    size_t at = counters_find(&new, "i.nic-300#300.cpu44", 600);
    CHECK(at < new.count && new.list[at].value == 12 && old.list[at].value == 7);
    at = counters_find(&new, "i.nic-300#300.total", 601);
    CHECK(at < new.count && new.list[at].value == 7 * 256 + 5);
    counters_free(&old);
    counters_free(&new);
    parse_interrupts("i", text_string(&before), text_string(&before), &old, &new);
    CHECK(old.count == 0 && new.count == 0);
    text_free(&before);
    text_free(&after);
}

/* CPU 1 went, CPU 2 came; interrupt 5 went, 6 came. */
static void check_interrupts_that_came(void)
{
    static const char before[] = " CPU0 CPU1 CPU3\n5: 1 1 1 x a\n7: 1 2 3 x b\nERR: 4\n";
    static const char after[] = " CPU0 CPU2 CPU3\n6: 1 1 1 x c\n7: 1 9 4 x b\nERR: 6\n";
    static const char *const olds[] = {"i.b#7.cpu3",  "i.b#7.total", "i.ERR.cpu0",
                                       "i.ERR.total", "i.a#5.total", "i.cpu1.total"};
    static const char *const news[] = {"i.c#6.total", "i.b#7.cpu3",  "i.b#7.total",
                                       "i.ERR.cpu0",  "i.ERR.total", "i.cpu2.total"};
    struct counters old = {0}, new = {0};
    parse_interrupts("i", before, after, &old, &new);
    CHECK(old.count == 6 && new.count == 6);
    for (size_t i = 0; i < 6 && old.count == 6 && new.count == 6; i++) {
        CHECK_TEXT(counters_name(&old, i), olds[i]);
        CHECK_TEXT(counters_name(&new, i), news[i]);
    }
    CHECK(old.count == 6 && old.list[0].value == 3 && new.list[1].value == 4);
    counters_free(&old);
    counters_free(&new);
}

void check_counters(void)
{
    check_interrupts_that_moved();
    check_interrupts_that_came();
    check_delta();
    check_find();
    check_reduction();
    check_parsers_on_noise();
}
