/* Facts: CPU model and topology, frequency and idle policy, NUMA, mitigations. */
#include "facts/facts.h"

#include "base/fail.h"
#include "evidence/sources.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `model name : Intel ...` of the first CPU; other architectures have other names for it. */
static void cpu_model(struct facts *facts)
{
    static const char *const kept[][2] = {{"model name", "model"},
                                          {"vendor_id", "vendor"},
                                          {"microcode", "microcode"},
                                          {"CPU part", "part"},
                                          {"cpu MHz", NULL}};
    struct text text = {0};
    struct word line;
    bool seen[5] = {false};
    int error = source_read_file(facts->root, "proc/cpuinfo", &text);
    if (error)
        facts_unavailable(facts, "cpu.model", fail_errno_name(error));
    const char *at = text_string(&text);
    while (line_next(&at, &line)) {
        const char *colon = memchr(line.at, ':', line.length);
        for (size_t i = 0; colon && i < 5; i++) {
            if (seen[i] || !kept[i][1] || strncmp(line.at, kept[i][0], strlen(kept[i][0])) != 0)
                continue;
            char value[256];
            snprintf(value, sizeof value, "%.*s", (int)(line.at + line.length - colon - 1), colon + 1);
            fact_text(facts, value + (value[0] == ' '), "%s", kept[i][1]);
            seen[i] = true;
        }
    }
    text_free(&text);
}

struct distinct {
    struct names values;
    size_t *counts;
};

static void distinct_add(struct distinct *distinct, const char *value)
{
    for (size_t i = 0; i < distinct->values.count; i++) {
        if (!strcmp(distinct->values.list[i], value)) {
            distinct->counts[i]++;
            return;
        }
    }
    size_t *counts = memory_new(distinct->values.count + 1, sizeof *counts);
    if (distinct->counts)
        memcpy(counts, distinct->counts, distinct->values.count * sizeof *counts);
    free(distinct->counts);
    distinct->counts = counts;
    counts[distinct->values.count] = 1;
    names_add(&distinct->values, value);
}

/* `performance`, or `performance 254, powersave 2` when CPUs differ. */
static void distinct_fact(struct facts *facts, struct distinct *distinct, const char *name)
{
    struct text text = {0};
    for (size_t i = 0; i < distinct->values.count; i++) {
        text_print(&text, "%s%s", i ? ", " : "", distinct->values.list[i]);
        if (distinct->values.count > 1)
            text_print(&text, " %zu", distinct->counts[i]);
    }
    fact_value(facts, text_string(&text), "%s", name);
    text_free(&text);
    names_free(&distinct->values);
    free(distinct->counts);
    *distinct = (struct distinct){.counts = NULL};
}

static void cpu_each(struct facts *facts, const struct names *cpus, const char *file, const char *name)
{
    struct distinct distinct = {.counts = NULL};
    char line[SYSFS_LINE_BYTES];
    for (size_t i = 0; i < cpus->count; i++)
        if (sysfs_line(facts->root, line, "sys/devices/system/cpu/%s/%s", cpus->list[i], file) && line[0])
            distinct_add(&distinct, line);
    distinct_fact(facts, &distinct, name);
}

static size_t cpu_distinct(struct facts *facts, const struct names *cpus, const char *file)
{
    struct distinct distinct = {.counts = NULL};
    char line[SYSFS_LINE_BYTES];
    for (size_t i = 0; i < cpus->count; i++)
        if (sysfs_line(facts->root, line, "sys/devices/system/cpu/%s/topology/%s", cpus->list[i], file))
            distinct_add(&distinct, line);
    size_t count = distinct.values.count;
    names_free(&distinct.values);
    free(distinct.counts);
    return count;
}

static struct names cpu_list(struct facts *facts)
{
    struct names cpus = {0}, entries = sysfs_list(facts->root, "sys/devices/system/cpu");
    for (size_t i = 0; i < entries.count; i++)
        if (!strncmp(entries.list[i], "cpu", 3) && isdigit((unsigned char)entries.list[i][3]))
            names_add(&cpus, entries.list[i]);
    names_free(&entries);
    return cpus;
}

static void cpu_idle_states(struct facts *facts)
{
    struct text states = {0};
    char name[SYSFS_LINE_BYTES], disabled[SYSFS_LINE_BYTES];
    for (int i = 0; sysfs_line(facts->root, name, "sys/devices/system/cpu/cpu0/cpuidle/state%d/name", i); i++) {
        bool off = sysfs_line(facts->root, disabled, "sys/devices/system/cpu/cpu0/cpuidle/state%d/disable", i) &&
                   disabled[0] != '0';
        text_print(&states, "%s%s%s", i ? " " : "", off ? "-" : "", name);
    }
    fact_text(facts, text_string(&states), "idle_states");
    text_free(&states);
}

void facts_cpu(struct facts *facts)
{
    struct names cpus = cpu_list(facts);
    cpu_model(facts);
    fact_number(facts, (double)cpus.count, "thread_count");
    fact_number(facts, (double)cpu_distinct(facts, &cpus, "physical_package_id"), "socket_count");
    fact_number(facts, (double)cpu_distinct(facts, &cpus, "thread_siblings_list"), "core_count");
    fact_file(facts, "online", "sys/devices/system/cpu/online");
    fact_file(facts, "isolated", "sys/devices/system/cpu/isolated");
    fact_file(facts, "nohz_full", "sys/devices/system/cpu/nohz_full");
    fact_file(facts, "smt_active", "sys/devices/system/cpu/smt/active");
    if (!sysfs_exists(facts->root, "sys/devices/system/cpu/cpu0/cpufreq"))
        facts_unavailable(facts, "cpu.governor", "ENOENT");
    cpu_each(facts, &cpus, "cpufreq/scaling_governor", "governor");
    cpu_each(facts, &cpus, "cpufreq/energy_performance_preference", "energy_preference");
    fact_file(facts, "frequency_driver", "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver");
    fact_file(facts, "frequency_maximum_khz", "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq");
    fact_file(facts, "frequency_minimum_khz", "sys/devices/system/cpu/cpu0/cpufreq/scaling_min_freq");
    fact_file(facts, "frequency_base_khz", "sys/devices/system/cpu/cpu0/cpufreq/base_frequency");
    cpu_each(facts, &cpus, "topology/thread_siblings_list", "thread_siblings");
    fact_file(facts, "no_turbo", "sys/devices/system/cpu/intel_pstate/no_turbo");
    fact_file(facts, "boost", "sys/devices/system/cpu/cpufreq/boost");
    fact_file(facts, "idle_driver", "sys/devices/system/cpu/cpuidle/current_driver");
    fact_file(facts, "idle_governor", "sys/devices/system/cpu/cpuidle/current_governor");
    cpu_idle_states(facts);
    names_free(&cpus);
}

void facts_numa(struct facts *facts)
{
    struct names nodes = sysfs_list(facts->root, "sys/devices/system/node");
    size_t count = 0;
    for (size_t i = 0; i < nodes.count; i++) {
        char name[NAME_MAX_BYTES];
        const char *node = nodes.list[i];
        if (strncmp(node, "node", 4) != 0 || !isdigit((unsigned char)node[4]))
            continue;
        count++;
        snprintf(name, sizeof name, "%s.cpus", node);
        fact_file(facts, name, "sys/devices/system/node/%s/cpulist", node);
        snprintf(name, sizeof name, "%s.distance", node);
        fact_file(facts, name, "sys/devices/system/node/%s/distance", node);
    }
    fact_number(facts, (double)count, "node_count");
    fact_file(facts, "balancing", "proc/sys/kernel/numa_balancing");
    names_free(&nodes);
}

void facts_mitigation(struct facts *facts)
{
    struct names names = sysfs_list(facts->root, "sys/devices/system/cpu/vulnerabilities");
    for (size_t i = 0; i < names.count; i++)
        fact_file(facts, names.list[i], "sys/devices/system/cpu/vulnerabilities/%s", names.list[i]);
    if (!names.count)
        facts_unavailable(facts, "mitigation", "ENOENT");
    names_free(&names);
}
