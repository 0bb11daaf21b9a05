/* Sources that are many small files or no file at all: read into `name value` lines, so that both snapshots and a
 * recorded tree look alike. Each gets 0 or errno. */
#include "evidence/sources.h"

#include "base/clock.h"
#include "evidence/ethtool.h"
#include "evidence/qdisc.h"
#include "evidence/sysfs.h"
#include "evidence/tcp_info.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

int read_rusage(const struct source_place *place, struct text *out)
{
    struct rusage usage;
    if (place->root[0])
        return ENOENT;
    if (getrusage(RUSAGE_SELF, &usage))
        return errno;
    text_print(out, "user_us %lld\nsystem_us %lld\n",
               (long long)usage.ru_utime.tv_sec * 1000000 + (long long)usage.ru_utime.tv_usec,
               (long long)usage.ru_stime.tv_sec * 1000000 + (long long)usage.ru_stime.tv_usec);
    text_print(out, "minor_faults %ld\nmajor_faults %ld\n", usage.ru_minflt, usage.ru_majflt);
    text_print(out, "voluntary_context_switches %ld\ninvoluntary_context_switches %ld\n", usage.ru_nvcsw,
               usage.ru_nivcsw);
    return 0;
}

/* Nothing, and nothing missing, where no TCP connection is measured. */
int read_tcp_info(const struct source_place *place, struct text *out)
{
    return place->root[0] || place->test_socket < 0 ? 0 : tcp_info_read(place->test_socket, out);
}

/* Wall clock minus monotonic clock: a step of the wall clock between the snapshots shows as a change. */
int read_clock(const struct source_place *place, struct text *out)
{
    struct timespec wall;
    if (place->root[0])
        return ENOENT;
    uint64_t monotonic_ns = clock_now_ns();
    clock_gettime(CLOCK_REALTIME, &wall);
    uint64_t wall_ns = (uint64_t)wall.tv_sec * NS_PER_S + (uint64_t)wall.tv_nsec;
    text_print(out, "wall_minus_monotonic_us %llu\n", (unsigned long long)((wall_ns - monotonic_ns) / 1000));
    return 0;
}

int read_ethtool(const struct source_place *place, struct text *out)
{
    struct names interfaces = sysfs_lower_interfaces(place->root, place->interface);
    int error = ENODEV;
    for (size_t i = 0; i < interfaces.count; i++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "%s.", interfaces.list[i]);
        int one = ethtool_read(place->root, interfaces.list[i], ETHTOOL_STATISTICS, prefix, out);
        if (i == 0 || !one)
            error = one;
    }
    names_free(&interfaces);
    return error;
}

int read_qdisc(const struct source_place *place, struct text *out)
{
    if (place->root[0])
        return ENOENT;
    return qdisc_read(place->interface, out);
}

/* What /sys/class/net has and /proc/net/dev has not (Documentation/ABI/testing/sysfs-class-net-statistics). */
int read_sys_net(const struct source_place *place, struct text *out)
{
    static const char *const files[] = {"statistics/rx_missed_errors", "statistics/rx_over_errors",
                                        "statistics/rx_crc_errors",    "statistics/rx_length_errors",
                                        "statistics/rx_nohandler",     "statistics/tx_aborted_errors",
                                        "statistics/tx_window_errors", "statistics/tx_heartbeat_errors",
                                        "carrier_down_count",          "carrier_up_count"};
    struct names interfaces = sysfs_lower_interfaces(place->root, place->interface);
    int error = ENOENT;
    for (size_t i = 0; i < interfaces.count; i++) {
        for (size_t file = 0; file < sizeof files / sizeof files[0]; file++) {
            uint64_t value = 0;
            const char *slash = strrchr(files[file], '/');
            if (!sysfs_number(place->root, &value, "sys/class/net/%s/%s", interfaces.list[i], files[file]))
                continue;
            text_print(out, "%s.%s %llu\n", interfaces.list[i], slash ? slash + 1 : files[file],
                       (unsigned long long)value);
            error = 0;
        }
    }
    names_free(&interfaces);
    return error;
}

static void port_read(const struct source_place *place, const char *device, const char *port, const char *folder,
                      struct text *out)
{
    struct names files = sysfs_list(place->root, "sys/class/infiniband/%s/ports/%s/%s", device, port, folder);
    for (size_t i = 0; i < files.count; i++) {
        uint64_t value = 0;
        const char *name = files.list[i];
        /* lifespan is the driver's cache time, not a counter */
        if (!strcmp(name, "lifespan") ||
            !sysfs_number(place->root, &value, "sys/class/infiniband/%s/ports/%s/%s/%s", device, port, folder, name))
            continue;
        /* The data counters count 4-byte words (InfiniBand Architecture Specification, PortCounters). */
        bool words = !strcmp(name, "port_xmit_data") || !strcmp(name, "port_rcv_data");
        text_print(out, "%s.%s.%s%s %llu\n", device, port, name, words ? "_bytes" : "",
                   (unsigned long long)value * (words ? 4 : 1));
    }
    names_free(&files);
}

int read_infiniband(const struct source_place *place, struct text *out)
{
    if (!sysfs_exists(place->root, "sys/class/infiniband"))
        return ENOENT;
    struct names devices = sysfs_list(place->root, "sys/class/infiniband");
    for (size_t i = 0; i < devices.count; i++) {
        struct names ports = sysfs_list(place->root, "sys/class/infiniband/%s/ports", devices.list[i]);
        for (size_t port = 0; port < ports.count; port++) {
            port_read(place, devices.list[i], ports.list[port], "counters", out);
            port_read(place, devices.list[i], ports.list[port], "hw_counters", out);
        }
        names_free(&ports);
    }
    names_free(&devices);
    return 0;
}

static bool cpu_power(const struct source_place *place, int cpu, struct text *out)
{
    static const char *const throttles[] = {"core_throttle_count", "package_throttle_count"};
    char state_name[SYSFS_LINE_BYTES];
    uint64_t value = 0;
    bool found = false;
    for (size_t i = 0; i < 2; i++) {
        if (!sysfs_number(place->root, &value, "sys/devices/system/cpu/cpu%d/thermal_throttle/%s", cpu, throttles[i]))
            continue;
        text_print(out, "cpu%d.%s %llu\n", cpu, throttles[i], (unsigned long long)value);
        found = true;
    }
    for (int state = 0; state < 16; state++) {
        if (!sysfs_line(place->root, state_name, "sys/devices/system/cpu/cpu%d/cpuidle/state%d/name", cpu, state))
            break;
        for (char *blank = state_name; (blank = strpbrk(blank, " :."));)
            *blank = '_';
        if (sysfs_number(place->root, &value, "sys/devices/system/cpu/cpu%d/cpuidle/state%d/time", cpu, state))
            text_print(out, "cpu%d.idle_%.32s_us %llu\n", cpu, state_name, (unsigned long long)value);
        found = true;
    }
    return found;
}

/* Throttling and idle states of the CPUs involved. Not of all: on a node with 256 CPUs these files would take longer
 * than everything else. */
int read_cpu_power(const struct source_place *place, struct text *out)
{
    bool found = false;
    for (size_t i = 0; i < place->cpu_count; i++)
        found |= cpu_power(place, place->cpus[i], out);
    return found ? 0 : ENOENT;
}

/* Gauges. Between Linux 4.13 and 5.16 a read may wait 10 ms for a fresh sample: then our own CPU's is all we take. */
int read_cpufreq(const struct source_place *place, struct text *out)
{
    static const uint64_t slow_read_ns = 1000000;
    int error = ENOENT;
    for (size_t i = 0; i < place->cpu_count; i++) {
        uint64_t value = 0, begin_ns = clock_now_ns();
        if (!sysfs_number(place->root, &value, "sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", place->cpus[i]))
            continue;
        text_print(out, "cpu%d.frequency_hz %llu\n", place->cpus[i], (unsigned long long)value * 1000);
        error = 0;
        if (!place->root[0] && clock_now_ns() - begin_ns > slow_read_ns)
            break;
    }
    return error;
}

static void cpu_add(struct source_place *place, int cpu)
{
    for (size_t i = 0; i < place->cpu_count; i++)
        if (place->cpus[i] == cpu)
            return;
    if (place->cpu_count < CPUS_INVOLVED_MAX)
        place->cpus[place->cpu_count++] = cpu;
}

void source_place_cpus(struct source_place *place, int own)
{
    struct names interfaces = sysfs_lower_interfaces(place->root, place->interface);
    place->cpu_count = 0;
    cpu_add(place, own);
    for (size_t i = 0; i < interfaces.count; i++) {
        struct names numbers = sysfs_interrupts(place->root, interfaces.list[i]);
        for (size_t j = 0; j < numbers.count && place->cpu_count < CPUS_INVOLVED_MAX; j++) {
            char line[SYSFS_LINE_BYTES];
            /* One CPU: where it is handled. A list is where it might be, which says nothing. */
            if (!sysfs_line(place->root, line, "proc/irq/%s/effective_affinity_list", numbers.list[j]) &&
                !sysfs_line(place->root, line, "proc/irq/%s/smp_affinity_list", numbers.list[j]))
                continue;
            if (line[0] && !line[strspn(line, "0123456789")])
                cpu_add(place, atoi(line));
        }
        names_free(&numbers);
    }
    names_free(&interfaces);
}

/* Whether `cpu` is among the controllers of a line of /proc/self/cgroup (version 1: `4:cpu,cpuacct:/path`). */
static bool cgroup_has_cpu(struct word controllers)
{
    for (const char *at = controllers.at, *end = at + controllers.length; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t length = (size_t)((comma ? comma : end) - at);
        if (length == 3 && !memcmp(at, "cpu", 3))
            return true;
        at += length + 1;
    }
    return false;
}

/* Limits of our own control group: a job that was held back shows here. Version 1 has the time in nanoseconds under
 * another name, and its controllers in folders of their own. */
int read_cgroup(const struct source_place *place, struct text *out)
{
    struct text groups = {0}, path = {0};
    struct word line;
    if (place->root[0])
        return ENOENT;
    int error = source_read_file("", "proc/self/cgroup", &groups);
    const char *at = text_string(&groups);
    while (line_next(&at, &line)) {
        const char *first = memchr(line.at, ':', line.length),
                   *second = first ? memchr(first + 1, ':', line.length - (size_t)(first + 1 - line.at)) : NULL;
        if (!second)
            continue;
        struct word controllers = {first + 1, (size_t)(second - first - 1)};
        bool newer = word_starts(line, "0::");
        if (!newer && !cgroup_has_cpu(controllers))
            continue;
        text_clear(&path);
        text_print(&path, "sys/fs/cgroup/%.*s%.*s/cpu.stat", newer ? 0 : (int)controllers.length, controllers.at,
                   (int)(line.at + line.length - second - 1), second + 1);
        error = source_read_file("", text_string(&path), out);
        if (!error)
            break;
    }
    text_free(&groups);
    text_free(&path);
    return error;
}
