/* The table of sources and how they are read. See sources.h. */
#include "evidence/sources.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* In the order of the "before" snapshot; "after" goes backwards, so that the process's own figures lie closest. */
const struct source sources[] = {
    {"interrupts", "proc/interrupts", NULL, parse_interrupts, false},
    {"softirqs", "proc/softirqs", NULL, parse_interrupts, false},
    {"vmstat", "proc/vmstat", NULL, parse_vmstat, false},
    {"meminfo", "proc/meminfo", NULL, parse_meminfo, false},
    {"loadavg", "proc/loadavg", NULL, parse_loadavg, false},
    {"schedstat", "proc/schedstat", NULL, parse_schedstat, false},
    {"pressure.cpu", "proc/pressure/cpu", NULL, parse_pressure, false},
    {"pressure.memory", "proc/pressure/memory", NULL, parse_pressure, false},
    {"pressure.io", "proc/pressure/io", NULL, parse_pressure, false},
    {"cpufreq", NULL, read_cpufreq, parse_gauges, false},
    {"cpu_power", NULL, read_cpu_power, parse_pairs, false},
    {"conntrack", "proc/net/stat/nf_conntrack", NULL, parse_conntrack, false},
    {"infiniband", NULL, read_infiniband, parse_pairs, false},
    {"ethtool", NULL, read_ethtool, parse_pairs, false},
    {"qdisc", NULL, read_qdisc, parse_qdisc, false},
    {"sys_net", NULL, read_sys_net, parse_pairs, false},
    {"sockstat", "proc/net/sockstat", NULL, parse_sockstat, false},
    {"sockstat6", "proc/net/sockstat6", NULL, parse_sockstat, false},
    {"snmp", "proc/net/snmp", NULL, parse_snmp, true},
    {"snmp6", "proc/net/snmp6", NULL, parse_pairs, true},
    {"netstat", "proc/net/netstat", NULL, parse_snmp, false},
    {"softnet", "proc/net/softnet_stat", NULL, parse_softnet, false},
    {"net_dev", "proc/net/dev", NULL, parse_net_dev, false},
    {"stat", "proc/stat", NULL, parse_stat, false},
    {"self.schedstat", "proc/self/schedstat", NULL, parse_self_schedstat, false},
    {"cgroup", NULL, read_cgroup, parse_cgroup, false},
    {"self.tcp_info", NULL, read_tcp_info, parse_tcp_info, false},
    {"clock", NULL, read_clock, parse_gauges, false},
    {"self.rusage", NULL, read_rusage, parse_pairs, false},
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
