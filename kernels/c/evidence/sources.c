/* The table of sources and how they are read. See sources.h. */
#include "evidence/sources.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* In the order of the "before" snapshot; "after" goes backwards, so that the process's own figures lie closest. */
const struct source sources[] = {
    {"interrupts", "proc/interrupts", NULL, NULL, false, parse_interrupts},
    {"softirqs", "proc/softirqs", NULL, NULL, false, parse_interrupts},
    {"vmstat", "proc/vmstat", NULL, parse_vmstat, false, NULL},
    {"meminfo", "proc/meminfo", NULL, parse_meminfo, false, NULL},
    {"loadavg", "proc/loadavg", NULL, parse_loadavg, false, NULL},
    {"schedstat", "proc/schedstat", NULL, parse_schedstat, false, NULL},
    {"pressure.cpu", "proc/pressure/cpu", NULL, parse_pressure, false, NULL},
    {"pressure.memory", "proc/pressure/memory", NULL, parse_pressure, false, NULL},
    {"pressure.io", "proc/pressure/io", NULL, parse_pressure, false, NULL},
    {"cpufreq", NULL, read_cpufreq, parse_gauges, false, NULL},
    {"cpu_power", NULL, read_cpu_power, parse_pairs, false, NULL},
    {"conntrack", "proc/net/stat/nf_conntrack", NULL, parse_conntrack, false, NULL},
    {"infiniband", NULL, read_infiniband, parse_pairs, false, NULL},
    {"ethtool", NULL, read_ethtool, parse_pairs, false, NULL},
    {"qdisc", NULL, read_qdisc, parse_qdisc, false, NULL},
    {"sys_net", NULL, read_sys_net, parse_pairs, false, NULL},
    {"sockstat", "proc/net/sockstat", NULL, parse_sockstat, false, NULL},
    {"sockstat6", "proc/net/sockstat6", NULL, parse_sockstat, false, NULL},
    {"snmp", "proc/net/snmp", NULL, parse_snmp, true, NULL},
    {"snmp6", "proc/net/snmp6", NULL, parse_pairs, true, NULL},
    {"netstat", "proc/net/netstat", NULL, parse_snmp, false, NULL},
    {"softnet", "proc/net/softnet_stat", NULL, parse_softnet, false, NULL},
    {"net_dev", "proc/net/dev", NULL, parse_net_dev, false, NULL},
    {"stat", "proc/stat", NULL, parse_stat, false, NULL},
    {"self.schedstat", "proc/self/schedstat", NULL, parse_self_schedstat, false, NULL},
    {"cgroup", NULL, read_cgroup, parse_cgroup, false, NULL},
    {"self.tcp_info", NULL, read_tcp_info, parse_tcp_info, false, NULL},
    {"clock", NULL, read_clock, parse_gauges, false, NULL},
    {"self.rusage", NULL, read_rusage, parse_pairs, false, NULL},
};
const size_t source_count = sizeof sources / sizeof sources[0];

int source_read_file(const char *root, const char *path, struct text *out)
{
    char block[16384];
    struct text full = {0};
    text_print(&full, "%s/%s", root, path);
    int descriptor = open(text_string(&full), O_RDONLY | O_CLOEXEC), error = errno;
    text_free(&full);
    if (descriptor < 0)
        return error;
    error = 0;
    for (;;) {
        ssize_t got = read(descriptor, block, sizeof block);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            error = errno;
        if (got <= 0)
            break;
        text_add(out, block, (size_t)got);
    }
    close(descriptor);
    return error;
}

int source_read(const struct source *source, const struct source_place *place, struct text *out)
{
    char kept[64];
    snprintf(kept, sizeof kept, "sources/%s", source->name);
    if (place->root[0] && source_read_file(place->root, kept, out) == 0)
        return 0;
    return source->read ? source->read(place, out) : source_read_file(place->root, source->path, out);
}

void source_parse(const struct source *source, const char *before, const char *after, struct counters *before_out,
                  struct counters *after_out)
{
    if (source->parse_both) {
        source->parse_both(source->name, before, after, before_out, after_out);
        return;
    }
    source->parse(source->name, before, before_out);
    source->parse(source->name, after, after_out);
}

bool line_next(const char **text, struct word *line)
{
    if (!**text)
        return false;
    size_t length = strcspn(*text, "\n");
    *line = (struct word){*text, length};
    *text += length + ((*text)[length] == '\n');
    return true;
}

bool word_next(struct word *line, struct word *word)
{
    const char *at = line->at, *end = line->at + line->length;
    while (at < end && (*at == ' ' || *at == '\t' || *at == ':'))
        at++;
    const char *stop = at;
    while (stop < end && *stop != ' ' && *stop != '\t' && *stop != ':')
        stop++;
    *word = (struct word){at, (size_t)(stop - at)};
    *line = (struct word){stop, (size_t)(end - stop)};
    return word->length > 0;
}

uint64_t word_unsigned(struct word word)
{
    uint64_t value = 0;
    for (size_t i = 0; i < word.length && word.at[i] >= '0' && word.at[i] <= '9'; i++)
        value = value * 10 + (uint64_t)(word.at[i] - '0');
    return value;
}

bool word_is(struct word word, const char *text)
{
    return strlen(text) == word.length && !memcmp(word.at, text, word.length);
}

bool word_starts(struct word word, const char *text)
{
    size_t length = strlen(text);
    return length <= word.length && !memcmp(word.at, text, length);
}
