/* Where an end runs: on which CPU, on the CPUs and with the memory of which NUMA node, and how deep its CPUs may sleep.
 * Before the kernel opens anything, so that its buffers lie where they should. */
#include "engine/run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    CPUS_MAX = 8192,
    NODES_MAX = 1024, /* CONFIG_NODES_SHIFT is 10 at most */
    WORD_BITS = 8 * sizeof(unsigned long),
    POLICY_BIND = 2 /* MPOL_BIND, include/uapi/linux/mempolicy.h */
};

const char *const idle_choices[] = {"as_is", "hold", NULL};

/* The wake-up latency that the node's CPUs may have, in us (pm_qos_interface.rst): 0 keeps them awake as long as this
 * file is open. Reading tells what holds now, whoever else asked. */
static void run_hold(struct run *run)
{
    const int32_t none_us = 0;
    int32_t now_us = -1;
    if (run_common(run)->idle != IDLE_HOLD)
        return;
    int descriptor = open("/dev/cpu_dma_latency", O_RDWR | O_CLOEXEC);
    bool held = descriptor >= 0 && write(descriptor, &none_us, sizeof none_us) == (ssize_t)sizeof none_us &&
                read(descriptor, &now_us, sizeof now_us) == (ssize_t)sizeof now_us && now_us == 0;
    if (!held)
        run_warn(run, "option_not_granted", "%s: idle: /dev/cpu_dma_latency: %s", run->is_server ? "server" : "client",
                 fail_errno_name(errno));
    run_grant_text(run, "idle", idle_choices[held ? IDLE_HOLD : IDLE_AS_IS]);
    run->idle_descriptor = descriptor > 0 ? descriptor : 0;
}

static const char *end_of(const struct run *run)
{
    return run->is_server ? "server" : "client";
}

/* A list as sysfs writes it: 0-3,8,10-11. */
static bool cpus_read(const char *list, cpu_set_t *set, size_t bytes)
{
    char *end = NULL;
    for (const char *next = list; *next && *next != '\n'; next = *end == ',' ? end + 1 : end) {
        unsigned long first = strtoul(next, &end, 10), last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        if (end == next || last < first || last >= CPUS_MAX || (*end && *end != ',' && *end != '\n'))
            return false;
        for (unsigned long cpu = first; cpu <= last; cpu++)
            CPU_SET_S((size_t)cpu, bytes, set);
    }
    return CPU_COUNT_S(bytes, set) > 0;
}

static bool line_of(const char *path, char *line, size_t bytes)
{
    FILE *file = fopen(path, "r");
    bool ok = file && fgets(line, (int)bytes, file);
    if (file)
        fclose(file);
    if (ok)
        line[strcspn(line, "\n")] = '\0';
    return ok;
}

static bool node_unknown(struct run *run, int64_t index)
{
    char known[256] = "";
    if (!line_of("/sys/devices/system/node/online", known, sizeof known))
        snprintf(known, sizeof known, "none: this system reports no NUMA nodes");
    return fail(&run->failure, EXIT_USAGE, "%s_numa_index: found %lld: allowed on this %s: -1, %s", end_of(run),
                (long long)index, end_of(run), known);
}

/* The node that new memory comes from, as the system has it; -1: any. */
static int64_t node_bound(void)
{
    unsigned long mask[NODES_MAX / WORD_BITS] = {0};
    int mode = -1;
    if (syscall(SYS_get_mempolicy, &mode, mask, NODES_MAX, NULL, 0) || mode != POLICY_BIND)
        return -1;
    for (size_t i = 0; i < NODES_MAX; i++)
        if (mask[i / WORD_BITS] & 1UL << i % WORD_BITS)
            return (int64_t)i;
    return -1;
}

static bool node_cpus(struct run *run, int64_t index, cpu_set_t *set, size_t bytes)
{
    char path[80], list[4096];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%lld/cpulist", (long long)index);
    if (!line_of(path, list, sizeof list) || !cpus_read(list, set, bytes))
        return node_unknown(run, index);
    return true;
}

/* What is allocated from now on lies on the node, and so do the buffers of the sockets that this process fills. */
static bool node_memory(struct run *run, int64_t index)
{
    unsigned long mask[NODES_MAX / WORD_BITS] = {0};
    mask[(size_t)index / WORD_BITS] = 1UL << (size_t)index % WORD_BITS;
    if (syscall(SYS_set_mempolicy, POLICY_BIND, mask, NODES_MAX))
        return fail_system(&run->failure, "%s_numa_index: memory of node %lld", end_of(run), (long long)index);
    run_grant_number(run, "numa_index", (double)node_bound());
    return true;
}

/* Those that the process might use before it was pinned. The caller frees. */
static cpu_set_t *cpus_allowed(const struct run *run, size_t bytes)
{
    cpu_set_t *allowed = memory_new(1, bytes);
    if (run->cpus_before)
        memcpy(allowed, run->cpus_before, bytes);
    else
        sched_getaffinity(0, bytes, allowed);
    return allowed;
}

/* As sysfs writes it. */
static void cpus_write(const cpu_set_t *set, size_t bytes, char *out, size_t out_bytes)
{
    size_t length = 0;
    for (size_t first = 0; first < CPUS_MAX && length < out_bytes; first++) {
        size_t last = first;
        if (!CPU_ISSET_S(first, bytes, set))
            continue;
        while (last + 1 < CPUS_MAX && CPU_ISSET_S(last + 1, bytes, set))
            last++;
        length += (size_t)snprintf(out + length, out_bytes - length, first == last ? "%s%zu" : "%s%zu-%zu",
                                   length ? "," : "", first, last);
        first = last;
    }
}

/* What the system does not let this process run on, and what it does. */
static bool pin_refused(struct run *run, const char *what, int64_t index)
{
    const char *reason = fail_errno_name(errno);
    char known[256] = "";
    cpu_set_t *set = cpus_allowed(run, CPU_ALLOC_SIZE(CPUS_MAX));
    cpus_write(set, CPU_ALLOC_SIZE(CPUS_MAX), known, sizeof known);
    free(set);
    fail_hint(&run->failure, "`taskset -cp $$` shows what a process may use, which a scheduler may have narrowed");
    return fail(&run->failure, EXIT_USAGE, "%s_%s: found %lld: allowed on this %s: -1, or %s of the CPUs %s (%s)",
                end_of(run), what, (long long)index, end_of(run), strcmp(what, "cpu_index") ? "a node with one" : "one",
                known, reason);
}

static bool pin_to(struct run *run, int64_t cpu, int64_t node, cpu_set_t *set, size_t bytes)
{
    CPU_ZERO_S(bytes, set);
    if (node >= 0 && (!node_cpus(run, node, set, bytes) || !node_memory(run, node)))
        return false;
    if (cpu >= 0) { /* may be one of another node: its memory is remote then, as asked for */
        CPU_ZERO_S(bytes, set);
        CPU_SET_S((size_t)cpu, bytes, set);
    }
    if (!sched_setaffinity(0, bytes, set))
        return true;
    return pin_refused(run, cpu >= 0 ? "cpu_index" : "numa_index", cpu >= 0 ? cpu : node);
}

bool run_pin(struct run *run)
{
    const struct common_options *common = run_common(run);
    int64_t cpu = run->is_server ? common->server_cpu_index : common->client_cpu_index;
    int64_t node = run->is_server ? common->server_numa_index : common->client_numa_index;
    run_hold(run);
    if (cpu < 0 && node < 0)
        return true;
    cpu_set_t *set = CPU_ALLOC(CPUS_MAX);
    if (!set)
        return fail(&run->failure, EXIT_SYSTEM, "out of memory");
    if (cpu >= 0 && !run->cpus_before) {
        run->cpus_before = memory_new(1, CPU_ALLOC_SIZE(CPUS_MAX));
        sched_getaffinity(0, CPU_ALLOC_SIZE(CPUS_MAX), run->cpus_before);
    }
    bool ok = pin_to(run, cpu, node, set, CPU_ALLOC_SIZE(CPUS_MAX));
    CPU_FREE(set);
    return ok;
}

void run_beside(const struct run *run, pthread_t thread)
{
    const struct common_options *common = run_common(run);
    size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX);
    int64_t cpu = run->is_server ? common->server_cpu_index : common->client_cpu_index;
    if (!run->cpus_before)
        return;
    cpu_set_t *set = memory_new(1, bytes);
    memcpy(set, run->cpus_before, bytes);
    CPU_CLR_S((size_t)cpu, bytes, set);
    if (CPU_COUNT_S(bytes, set))
        pthread_setaffinity_np(thread, bytes, set);
    free(set);
}

/* As many as there are in `set`, from CPU `first` on, those before it last. */
static size_t cpus_from(const cpu_set_t *set, size_t bytes, int64_t first, int cpus[RUN_CPUS_MAX])
{
    size_t count = 0, begin = first > 0 ? (size_t)first : 0;
    for (size_t i = 0; i < CPUS_MAX && count < RUN_CPUS_MAX; i++)
        if (CPU_ISSET_S((begin + i) % CPUS_MAX, bytes, set))
            cpus[count++] = (int)((begin + i) % CPUS_MAX);
    return count;
}

size_t run_cpus_listed(const struct run *run, const char *list, int cpus[RUN_CPUS_MAX])
{
    size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX), count = 0;
    cpu_set_t *left = cpus_allowed(run, bytes);
    char *end = NULL;
    bool is_list = true;
    for (const char *next = list; is_list && *next; next = *end == ',' && end[1] ? end + 1 : end) {
        unsigned long first = strtoul(next, &end, 10), last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        is_list = end != next && first <= last && last < CPUS_MAX && (!*end || (*end == ',' && end[1]));
        for (unsigned long cpu = first; is_list && cpu <= last; cpu++) {
            is_list = CPU_ISSET_S((size_t)cpu, bytes, left) && count < RUN_CPUS_MAX;
            CPU_CLR_S((size_t)cpu, bytes, left);
            if (is_list)
                cpus[count++] = (int)cpu;
        }
    }
    free(left);
    return is_list ? count : 0;
}

size_t run_cpus(const struct run *run, bool of_nic, int cpus[RUN_CPUS_MAX])
{
    const struct common_options *common = run_common(run);
    size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX), count = 0;
    cpu_set_t *allowed = cpus_allowed(run, bytes), *near = memory_new(1, bytes);
    char path[128], line[4096], list[4096];
    snprintf(path, sizeof path, "/sys/class/net/%.32s/device/numa_node", evidence_interface(run->evidence));
    if (of_nic && line_of(path, line, sizeof line) && line[0] != '-') {
        snprintf(path, sizeof path, "/sys/devices/system/node/node%.16s/cpulist", line);
        if (line_of(path, list, sizeof list) && cpus_read(list, near, bytes))
            CPU_AND_S(bytes, allowed, allowed, near);
    }
    if (!of_nic || CPU_COUNT_S(bytes, near))
        count = cpus_from(allowed, bytes, run->is_server ? common->server_cpu_index : common->client_cpu_index, cpus);
    free(allowed);
    free(near);
    return count;
}

static int is_numa_node(const struct dirent *entry)
{
    return !fnmatch("node[0-9]*", entry->d_name, 0);
}

int run_numa_node_count(void)
{
    struct dirent **nodes = NULL;
    int count = scandir("/sys/devices/system/node", &nodes, is_numa_node, NULL);
    for (int i = 0; i < count; i++)
        free(nodes[i]);
    free(nodes);
    return count > 0 ? count : 0;
}

bool run_pin_in_turn(struct run *run, int turn)
{
    int count = run_numa_node_count();
    if (!count) {
        run_warn(run, "option_not_granted", "rank_binding: this system reports no NUMA nodes");
        return true;
    }
    cpu_set_t *set = CPU_ALLOC(CPUS_MAX);
    if (!set)
        return fail(&run->failure, EXIT_SYSTEM, "out of memory");
    bool ok = pin_to(run, -1, turn % count, set, CPU_ALLOC_SIZE(CPUS_MAX));
    CPU_FREE(set);
    return ok;
}

bool run_pin_thread(struct run *run, pthread_t thread, int cpu)
{
    size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX);
    cpu_set_t *set = memory_new(1, bytes);
    CPU_SET_S((size_t)cpu, bytes, set);
    int rc = pthread_setaffinity_np(thread, bytes, set);
    free(set);
    errno = rc;
    return !rc || fail_system(&run->failure, "thread_place: pin to CPU %d", cpu);
}
