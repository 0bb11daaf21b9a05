/* See evidence.h. */
#include "evidence/evidence.h"

#include "base/clock.h"
#include "base/fail.h"
#include "evidence/reduce.h"
#include "evidence/sources.h"
#include "evidence/sysfs.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

struct snapshot {
    struct text *texts; /* one a source */
    int *errors;
    uint64_t begin_ns, end_ns;
    char utc[UTC_TEXT_BYTES];
};

struct evidence {
    struct source_place before_place, after_place;
    char interface[IF_NAMESIZE];
    char address[ADDRESS_TEXT_BYTES];
    struct snapshot before, after;
    int cpu_index;
    struct counters *before_counters, *after_counters; /* one a source; parsed after the measurement */
    struct counters differences;                       /* what grew, of all sources */
    bool *kept;                                        /* of those, what the result line has */
    size_t kept_count;
    struct text gauges, unavailable; /* JSON objects */
};

static struct evidence *evidence_allocate(void)
{
    struct evidence *evidence = memory_new(1, sizeof *evidence);
    evidence->before_place.root = evidence->after_place.root = "";
    evidence->before_place.test_socket = evidence->after_place.test_socket = -1;
    evidence->before.texts = memory_new(source_count, sizeof(struct text));
    evidence->after.texts = memory_new(source_count, sizeof(struct text));
    evidence->before.errors = memory_new(source_count, sizeof(int));
    evidence->after.errors = memory_new(source_count, sizeof(int));
    evidence->before_counters = memory_new(source_count, sizeof(struct counters));
    evidence->after_counters = memory_new(source_count, sizeof(struct counters));
    evidence->before_place.interface = evidence->after_place.interface = evidence->interface;
    return evidence;
}

struct evidence *evidence_new(const struct address *local, const char *interface)
{
    struct evidence *evidence = evidence_allocate();
    address_text(local, evidence->address);
    if (interface)
        snprintf(evidence->interface, sizeof evidence->interface, "%s", interface);
    else
        address_interface(local, evidence->interface);
    return evidence;
}

const char *evidence_interface(const struct evidence *evidence)
{
    return evidence->interface;
}

struct evidence *evidence_new_recorded(const char *before_root, const char *after_root, const char *interface)
{
    struct evidence *evidence = evidence_allocate();
    evidence->before_place.root = before_root;
    evidence->after_place.root = after_root;
    if (interface)
        snprintf(evidence->interface, sizeof evidence->interface, "%s", interface);
    return evidence;
}

void evidence_socket(struct evidence *evidence, int descriptor)
{
    evidence->before_place.test_socket = evidence->after_place.test_socket = descriptor;
}

#ifdef HPCQ_WITHOUT_SNAPSHOTS /* what snapshots cost is the difference to a build without them: bench/evidence.py */
enum { SNAPSHOTS_TAKEN = 0 };
#else
enum { SNAPSHOTS_TAKEN = 1 };
#endif

static void snapshot_take(struct snapshot *snapshot, const struct source_place *place, bool backwards)
{
    snapshot->begin_ns = clock_now_ns();
    clock_utc(snapshot->utc);
    for (size_t i = 0; SNAPSHOTS_TAKEN && i < source_count; i++) {
        size_t which = backwards ? source_count - 1 - i : i;
        text_clear(&snapshot->texts[which]);
        snapshot->errors[which] = source_read(&sources[which], place, &snapshot->texts[which]);
    }
    snapshot->end_ns = clock_now_ns();
}

void evidence_before(struct evidence *evidence)
{
    source_place_cpus(&evidence->before_place, evidence->before_place.root[0] ? 0 : sched_getcpu());
    memcpy(evidence->after_place.cpus, evidence->before_place.cpus, sizeof evidence->after_place.cpus);
    evidence->after_place.cpu_count = evidence->before_place.cpu_count;
    snapshot_take(&evidence->before, &evidence->before_place, false);
}

/* Difference of one counter by its full name; false when either snapshot lacks it. */
static bool evidence_delta(const struct evidence *evidence, const char *source, const char *name, uint64_t *delta)
{
    for (size_t i = 0; i < source_count; i++) {
        if (strcmp(sources[i].name, source) != 0)
            continue;
        const struct counters *before = &evidence->before_counters[i], *after = &evidence->after_counters[i];
        size_t a = counters_find(before, name, 0), b = counters_find(after, name, a);
        return a < before->count && b < after->count &&
               counter_delta(before->list[a].value, after->list[b].value, delta);
    }
    return false;
}

enum { TICKS_MIN = 10 }; /* fewer tell nothing */

/* Ticks of all CPUs between the snapshots, busy ones and all. */
static void node_ticks(const struct evidence *evidence, double *busy, double *all)
{
    static const char *const modes[] = {"user", "nice", "system", "irq", "softirq", "steal", "idle", "iowait"};
    enum { BUSY_COUNT = 6, MODE_COUNT = 8 };
    *busy = *all = 0;
    for (size_t i = 0; i < MODE_COUNT; i++) {
        char name[64];
        uint64_t delta = 0;
        snprintf(name, sizeof name, "stat.cpu.%s_ticks", modes[i]);
        if (!evidence_delta(evidence, "stat", name, &delta))
            continue;
        *all += (double)delta;
        *busy += i < BUSY_COUNT ? (double)delta : 0;
    }
}

double evidence_node_cpu_ratio(const struct evidence *evidence)
{
    double busy, all;
    node_ticks(evidence, &busy, &all);
    return all < TICKS_MIN ? (double)NAN : busy / all;
}

double evidence_node_cpu_ns(const struct evidence *evidence)
{
    double busy, all;
    node_ticks(evidence, &busy, &all);
    return all < TICKS_MIN ? (double)NAN : busy * 1e9 / (double)sysconf(_SC_CLK_TCK);
}

static void evidence_head(const struct evidence *evidence, struct text *json)
{
    struct utsname system;
    struct text boot_id = {0};
    uname(&system);
    json_key(json, "hostname");
    json_string(json, system.nodename);
    system.nodename[strcspn(system.nodename, ".")] = '\0';
    json_key(json, "node");
    json_string(json, system.nodename);
    /* The name that the scheduler has for this node: the head of every job script sets it. */
    json_key(json, "scheduler_node");
    const char *node = getenv("HPCQ_NODE");
    json_string(json, node && *node ? node : NULL);
    json_key(json, "address");
    json_string(json, evidence->address[0] ? evidence->address : NULL);
    json_key(json, "interface");
    json_string(json, evidence->interface[0] ? evidence->interface : NULL);
    json_key(json, "pid");
    json_integer(json, getpid());
    json_key(json, "cpu_index");
    json_integer(json, evidence->cpu_index);
    source_read_file(evidence->after_place.root, "proc/sys/kernel/random/boot_id", &boot_id);
    json_key(json, "boot_id");
    if (boot_id.length)
        boot_id.data[strcspn(boot_id.data, "\n")] = '\0';
    json_string(json, boot_id.length ? boot_id.data : NULL);
    text_free(&boot_id);
}

static void evidence_times(const struct evidence *evidence, struct text *json)
{
    json_key(json, "before_utc");
    json_string(json, evidence->before.utc);
    json_key(json, "after_utc");
    json_string(json, evidence->after.utc);
    json_key(json, "interval_ns");
    json_unsigned(json, evidence->after.begin_ns - evidence->before.end_ns);
    json_key(json, "snapshot_cost_ns");
    json_open(json, '[');
    json_unsigned(json, evidence->before.end_ns - evidence->before.begin_ns);
    json_unsigned(json, evidence->after.end_ns - evidence->after.begin_ns);
    json_close(json, ']');
}

static void ways_json(const struct evidence *evidence, const char *source, const char *format_names[2],
                      const char *item, struct text *json)
{
    static const char *const ways[] = {"tx", "rx"};
    json_open(json, '{');
    for (size_t i = 0; i < 2; i++) {
        char name[192];
        uint64_t delta = 0;
        snprintf(name, sizeof name, "%s.%s.%s", source, item, format_names[i]);
        json_key(json, ways[i]);
        if (evidence_delta(evidence, source, name, &delta))
            json_unsigned(json, delta);
        else
            json_null(json);
    }
    json_close(json, '}');
}

/* Bytes that crossed the named interface between the snapshots, and its RDMA port's, which bypasses the interface's own
 * counters; null when no counter tells. */
static void evidence_interface_bytes(const struct evidence *evidence, struct text *json)
{
    const char *net_names[2] = {"tx_bytes", "rx_bytes"},
               *rdma_names[2] = {"port_xmit_data_bytes", "port_rcv_data_bytes"};
    struct text port = {0};
    json_key(json, "interface_bytes");
    ways_json(evidence, "net_dev", net_names, evidence->interface, json);
    json_key(json, "rdma_bytes");
    if (sysfs_rdma_port(evidence->after_place.root, evidence->interface, &port))
        ways_json(evidence, "infiniband", rdma_names, text_string(&port), json);
    else
        json_null(json);
    text_free(&port);
}

/* A gauge that was 0 both times is left out; one that did not move is one number. */
static void gauge_json(const char *name, double before, double after, struct text *json)
{
    if (before == after) {
        if (after > 0 || after < 0) {
            json_key(json, name);
            json_number(json, after);
        }
        return;
    }
    json_key(json, name);
    json_open(json, '[');
    json_number(json, before);
    json_number(json, after);
    json_close(json, ']');
}

/* A thing (interface, CPU, interrupt) that only one snapshot has is named once, not once a counter. */
static void missing_json(const char *name, const char *what, char *last, size_t last_size, struct text *json)
{
    size_t length = strlen(name);
    const char *dot = strrchr(name, '.');
    if (dot)
        length = (size_t)(dot - name);
    if (strlen(last) == length && !strncmp(last, name, length))
        return;
    snprintf(last, last_size, "%.*s", (int)length, name);
    json_key(json, last);
    json_string(json, what);
}

/* What of one source goes where: differences, gauges, or the reason why there is none. */
static void source_compare(struct evidence *evidence, const struct source *source, const struct counters *before,
                           const struct counters *after)
{
    char last[256] = "";
    size_t hint = 0;
    for (size_t i = 0; i < after->count; i++) {
        const char *name = counters_name(after, i);
        const struct counter *new = &after->list[i];
        uint64_t delta = 0;
        size_t found = counters_find(before, name, hint);
        if (found == before->count && source->lists_hit_only && !new->is_gauge) {
            counters_add(&evidence->differences, COUNTER_TOTAL, new->value, "%s", name);
            continue;
        }
        if (found == before->count) {
            missing_json(name, "appeared", last, sizeof last, &evidence->unavailable);
            continue;
        }
        hint = found + 1;
        const struct counter *old = &before->list[found];
        if (new->is_gauge) {
            gauge_json(name, old->gauge, new->gauge, &evidence->gauges);
        } else if (!counter_delta(old->value, new->value, &delta)) {
            json_key(&evidence->unavailable, name);
            json_string(&evidence->unavailable, "decreased");
        } else if (delta) {
            counters_add(&evidence->differences, COUNTER_TOTAL, delta, "%s", name);
        }
    }
    hint = 0;
    for (size_t i = 0; i < before->count; i++) {
        size_t found = counters_find(after, counters_name(before, i), hint);
        if (found == after->count)
            missing_json(counters_name(before, i), "vanished", last, sizeof last, &evidence->unavailable);
        else
            hint = found + 1;
    }
}

static void evidence_compare(struct evidence *evidence)
{
    json_open(&evidence->gauges, '{');
    json_open(&evidence->unavailable, '{');
    for (size_t i = 0; i < source_count; i++) {
        int error = evidence->before.errors[i] ? evidence->before.errors[i] : evidence->after.errors[i];
        if (error) {
            json_key(&evidence->unavailable, sources[i].name);
            json_string(&evidence->unavailable, fail_errno_name(error));
            continue;
        }
        counters_index(&evidence->before_counters[i]);
        counters_index(&evidence->after_counters[i]);
        source_compare(evidence, &sources[i], &evidence->before_counters[i], &evidence->after_counters[i]);
    }
    json_close(&evidence->gauges, '}');
    json_close(&evidence->unavailable, '}');
    evidence->kept = memory_new(evidence->differences.count, sizeof *evidence->kept);
    evidence->kept_count = reduce_select(&evidence->differences, evidence->interface, evidence->kept);
}

void evidence_after(struct evidence *evidence)
{
    evidence->cpu_index = sched_getcpu();
    snapshot_take(&evidence->after, &evidence->after_place, true);
    for (size_t i = 0; i < source_count; i++)
        source_parse(&sources[i], text_string(&evidence->before.texts[i]), text_string(&evidence->after.texts[i]),
                     &evidence->before_counters[i], &evidence->after_counters[i]);
    evidence_compare(evidence);
}

static void counters_json(const struct evidence *evidence, bool full, struct text *json)
{
    const struct counters *differences = &evidence->differences;
    json_key(json, "counters");
    json_open(json, '{');
    for (size_t i = 0; i < differences->count; i++) {
        if (!full && !evidence->kept[i])
            continue;
        json_key(json, counters_name(differences, i));
        json_unsigned(json, differences->list[i].value);
    }
    json_close(json, '}');
    json_key(json, "counter_count");
    json_unsigned(json, differences->count);
}

void evidence_json(const struct evidence *evidence, bool full, struct text *json)
{
    json_open(json, '{');
    evidence_head(evidence, json);
    evidence_times(evidence, json);
    evidence_interface_bytes(evidence, json);
    counters_json(evidence, full, json);
    json_key(json, "gauges");
    json_raw(json, text_string(&evidence->gauges));
    json_key(json, "unavailable");
    json_raw(json, text_string(&evidence->unavailable));
    json_close(json, '}');
}

bool evidence_raw(const struct evidence *evidence, size_t index, struct raw_file *file)
{
    size_t which = index / 2;
    const struct snapshot *snapshot = index % 2 ? &evidence->after : &evidence->before;
    if (which >= source_count)
        return false;
    const char *path = sources[which].path;
    snprintf(file->path, sizeof file->path, "%s/%s%s", index % 2 ? "after" : "before", path ? "" : "sources/",
             path ? path : sources[which].name);
    file->text = snapshot->errors[which] ? NULL : text_string(&snapshot->texts[which]);
    return true;
}

void evidence_free(struct evidence *evidence)
{
    if (!evidence)
        return;
    for (size_t i = 0; i < source_count; i++) {
        text_free(&evidence->before.texts[i]);
        text_free(&evidence->after.texts[i]);
        counters_free(&evidence->before_counters[i]);
        counters_free(&evidence->after_counters[i]);
    }
    counters_free(&evidence->differences);
    text_free(&evidence->gauges);
    text_free(&evidence->unavailable);
    free(evidence->kept);
    free(evidence->before.texts);
    free(evidence->after.texts);
    free(evidence->before.errors);
    free(evidence->after.errors);
    free(evidence->before_counters);
    free(evidence->after_counters);
    free(evidence);
}
