/* See facts.h. */
#include "facts/facts.h"

#include "base/aside.h"
#include "base/fail.h"
#include "describe/arguments.h"
#include "describe/kernel.h"
#include "describe/program.h"
#include "evidence/sources.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

__attribute__((format(printf, 2, 0))) static bool name_make(struct facts *facts, const char *format, va_list arguments)
{
    char name[NAME_MAX_BYTES];
    vsnprintf(name, sizeof name, format, arguments);
    json_key(&facts->json, name);
    return true;
}

void fact_text(struct facts *facts, const char *value, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (value && *value && name_make(facts, format, arguments))
        json_string(&facts->json, value);
    va_end(arguments);
}

void fact_number(struct facts *facts, double value, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (name_make(facts, format, arguments))
        json_number(&facts->json, value);
    va_end(arguments);
}

static void value_json(struct facts *facts, const char *value)
{
    char *end = NULL;
    long long number = strtoll(value, &end, 10);
    bool plain = *value && !isspace((unsigned char)*value) && *value != '+' && end && !*end && strlen(value) < 18 &&
                 (value[0] != '0' || !value[1]);
    if (plain)
        json_integer(&facts->json, number);
    else
        json_string(&facts->json, value);
}

void fact_value(struct facts *facts, const char *value, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (value && *value && name_make(facts, format, arguments))
        value_json(facts, value);
    va_end(arguments);
}

bool fact_file(struct facts *facts, const char *name, const char *format, ...)
{
    char path[SYSFS_LINE_BYTES], line[SYSFS_LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    if (!sysfs_line(facts->root, line, "%s", path) || !line[0])
        return false;
    for (char *tab = line; (tab = strchr(tab, '\t'));)
        *tab = ' ';
    fact_value(facts, line, "%s", name);
    return true;
}

void facts_unavailable(struct facts *facts, const char *source, const char *reason)
{
    json_key(&facts->unavailable, source);
    json_string(&facts->unavailable, reason);
}

static void facts_kernel(struct facts *facts)
{
    fact_file(facts, "release", "proc/sys/kernel/osrelease");
    fact_file(facts, "version", "proc/sys/kernel/version");
    fact_file(facts, "cmdline", "proc/cmdline");
    fact_file(facts, "tainted", "proc/sys/kernel/tainted");
    fact_file(facts, "clocksource", "sys/devices/system/clocksource/clocksource0/current_clocksource");
}

static void facts_boot(struct facts *facts)
{
    struct text stat = {0};
    struct word line, name, value;
    fact_file(facts, "id", "proc/sys/kernel/random/boot_id");
    int error = source_read_file(facts->root, "proc/stat", &stat);
    if (error)
        facts_unavailable(facts, "boot.time", fail_errno_name(error));
    const char *at = text_string(&stat);
    while (line_next(&at, &line)) {
        if (!word_next(&line, &name) || !word_is(name, "btime") || !word_next(&line, &value))
            continue;
        char utc[32];
        struct tm broken;
        time_t seconds = (time_t)word_unsigned(value);
        strftime(utc, sizeof utc, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &broken));
        fact_text(facts, utc, "time_utc");
    }
    text_free(&stat);
}

static void facts_node(struct facts *facts)
{
    char line[SYSFS_LINE_BYTES];
    if (!sysfs_line(facts->root, line, "proc/sys/kernel/hostname"))
        return;
    fact_text(facts, line, "hostname");
    line[strcspn(line, ".")] = '\0';
    fact_text(facts, line, "name");
    if (!facts->root[0])
        fact_text(facts, getenv("HPCQ_NODE"), "scheduler_node");
    fact_text(facts, facts->interface, "interface");
}

static const struct {
    const char *name;
    void (*collect)(struct facts *facts);
} groups[] = {
    {"node", facts_node},
    {"machine", facts_machine},
    {"kernel", facts_kernel},
    {"boot", facts_boot},
    {"cpu", facts_cpu},
    {"numa", facts_numa},
    {"mitigation", facts_mitigation},
    {"nic", facts_nic},
    {"qdisc", facts_qdisc},
    {"rdma", facts_rdma},
    {"route", facts_route},
    {"sysctl", facts_sysctl},
    {"software", facts_software},
    {"module", facts_module},
    {"now", facts_now},
};

void facts_collect(const char *root, const char *interface, struct text *json)
{
    struct facts facts = {.root = root, .interface = interface};
    json_open(json, '{');
    json_open(&facts.unavailable, '{');
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        text_clear(&facts.json);
        json_open(&facts.json, '{');
        groups[i].collect(&facts);
        json_close(&facts.json, '}');
        json_key(json, groups[i].name);
        json_raw(json, text_string(&facts.json));
    }
    json_close(&facts.unavailable, '}');
    json_key(json, "unavailable");
    json_raw(json, text_string(&facts.unavailable));
    json_close(json, '}');
    text_free(&facts.json);
    text_free(&facts.unavailable);
}

void facts_write(const char *folder, const char *node, const char *facts)
{
    struct text path = {0};
    struct aside aside;
    if (!folder || !facts || !json_check(facts) || strchr(node, '/'))
        return;
    text_print(&path, "%s/facts-%s.json", folder, node);
    aside_open(&aside, path.data);
    if (!aside_close(&aside, aside.file && fprintf(aside.file, "%s\n", facts) > 0))
        fprintf(stderr, "warning: %s: not written\n", path.data);
    text_free(&path);
}

int facts_main(int argc, char **argv)
{
    const char *interface = NULL, *root = NULL;
    const struct flag flags[] = {{"interface", &interface}, {"root", &root}};
    struct failure failure = {.state = "facts"};
    if (!arguments_parse(argc, argv, 2, flags, ROW_COUNT(flags), NULL, NULL, &failure)) {
        fail_print(&failure);
        return (int)failure.exit_code;
    }
    struct text json = {0};
    facts_collect(root ? root : "", interface ? interface : "", &json);
    return program_print("facts", &json);
}
