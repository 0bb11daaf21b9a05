/* memory_copy: how fast a node moves memory that no cache holds, as STREAM counts it. No byte crosses a network.
 *
 *   client   pass pass pass ... half of the time | sleeps
 *   server   sleeps                              | pass pass pass ...
 *   a pass   copy c = a | scale b = q c | add c = a + b | triad a = b + q c      by all threads, each its own part
 */
#include "base/clock.h"
#include "base/signals.h"
#include "engine/run.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LOOPS = 4,
    THREADS_MAX = 1024,
    PASSES_MAX = 1 << 16,
    CACHE_FACTOR = 4, /* STREAM's own rule: each array at least four times the last-level cache */
    RAMP = 1024,
    TOUCHES_BETWEEN_LOOKS = 1 << 20
};
static const double array_min_bytes = 64 << 20, known_limit = 1e-9;
static const double q = 0.41421356237309504880; /* sqrt(2) - 1: 2 q + q^2 = 1, so that a pass leaves a as it was */
static const double bytes_moved[LOOPS] = {16, 16, 24, 24}; /* of each element: what is read and written */

struct memory_options {
    struct common_options common;
    int64_t array_bytes, thread_count;
};

static const struct option_row option_rows[] = {
    OPTION_INTEGER_ROW(struct memory_options, array_bytes, 0, 0, 8589934592,
                       "each of the three arrays; 0: four times the last-level cache of the node, 64 MiB at least"),
    OPTION_INTEGER_ROW(struct memory_options, thread_count, 1, 0, THREADS_MAX,
                       "threads at each end, each pinned to a CPU of its own; 0: one for each CPU that it may use"),
    OPTION_ROWS_COMMON(struct memory_options),
    OPTION_ROWS_PLACE(struct memory_options),
};

#define EACH_LOOP(ROW, type, end)                                                                                      \
    ROW(type, end, copy, "c = a", "16"), ROW(type, end, scale, "b = q c", "16"),                                       \
        ROW(type, end, add, "c = a + b", "24"), ROW(type, end, triad, "a = b + q c", "24")

/* In the order of the loops: best, median, slowest. */
struct rates {
    double copy[3], scale[3], add[3], triad[3];
};

static const struct option_relation relations[] = {
    {"array_bytes", RELATION_AT_LEAST, .other = "thread_count", .factor = sizeof(double)},
    {"buffer_offset_bytes", RELATION_MULTIPLE, .factor = sizeof(double)}};

struct memory_metrics {
    struct common_metrics common;
    struct rates client, server;
    double client_pass_count, server_pass_count;
};

#define LOOP_ROWS(type, end, loop, formula, bytes)                                                                     \
    {#end "_" #loop "_p50_bps", BETTER_HIGHER, offsetof(type, end.loop[1]),                                            \
     "median rate of " formula " at the " #end ", in bits: " bytes " bytes per element read and written"},             \
        {#end "_" #loop "_max_bps", BETTER_HIGHER, offsetof(type, end.loop[0]),                                        \
         "fastest " formula " at the " #end ", which is what STREAM reports"},                                         \
    {                                                                                                                  \
        #end "_" #loop "_min_bps", BETTER_HIGHER, offsetof(type, end.loop[2]), "slowest " formula " at the " #end      \
    }

static const struct metric_row metric_rows[] = {
    EACH_LOOP(LOOP_ROWS, struct memory_metrics, client),
    EACH_LOOP(LOOP_ROWS, struct memory_metrics, server),
    METRIC_ROW(struct memory_metrics, client_pass_count, BETTER_NONE, "passes over the arrays at the client"),
    METRIC_ROW(struct memory_metrics, server_pass_count, BETTER_NONE, "passes over the arrays at the server"),
    METRIC_ROWS_COMMON(struct memory_metrics),
};

struct memory;

struct worker {
    struct memory *memory;
    pthread_t thread;
    size_t begin, end;
    int cpu;
};

struct memory {
    double *a, *b, *c;
    size_t count, worker_count, pass_count, kept_count;
    struct worker workers[THREADS_MAX];
    pthread_barrier_t barrier;
    uint64_t deadline_ns; /* for the first writing */
    bool stop, is_up;
    double *took_ns[LOOPS];
};

static double first_value(size_t index)
{
    return 1 + (double)(index % RAMP) / RAMP;
}

static void loop_run(const struct worker *worker, int loop)
{
    const struct memory *memory = worker->memory;
    double *restrict a = memory->a, *restrict b = memory->b, *restrict c = memory->c;
    size_t begin = worker->begin, end = worker->end;
    switch (loop) {
    case 0:
        for (size_t i = begin; i < end; i++)
            c[i] = a[i];
        break;
    case 1:
        for (size_t i = begin; i < end; i++)
            b[i] = q * c[i];
        break;
    case 2:
        for (size_t i = begin; i < end; i++)
            c[i] = a[i] + b[i];
        break;
    default:
        for (size_t i = begin; i < end; i++)
            a[i] = b[i] + q * c[i];
    }
}

static void worker_pin(const struct worker *worker)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)worker->cpu, &set);
    sched_setaffinity(0, sizeof set, &set); /* of this thread; a CPU that went away since leaves it where it may be */
}

/* Pages that the system has to make first may take it a minute. */
static bool touch_over(const struct memory *memory)
{
    return signals_stop() || clock_now_ns() >= memory->deadline_ns;
}

/* Each thread writes its part first: the pages are those of its NUMA node, and no page fault is timed. */
static void worker_touch(const struct worker *worker)
{
    for (size_t i = worker->begin; i < worker->end; i++) {
        if (i % TOUCHES_BETWEEN_LOOKS == 0 && touch_over(worker->memory))
            return;
        worker->memory->a[i] = first_value(i);
        worker->memory->b[i] = 2;
        worker->memory->c[i] = 0;
    }
}

static void *worker_live(void *argument)
{
    struct worker *worker = argument;
    struct memory *memory = worker->memory;
    worker_pin(worker);
    worker_touch(worker);
    pthread_barrier_wait(&memory->barrier);
    for (;;) {
        pthread_barrier_wait(&memory->barrier);
        if (memory->stop)
            return NULL;
        for (int loop = 0; loop < LOOPS; loop++) {
            loop_run(worker, loop);
            pthread_barrier_wait(&memory->barrier);
        }
    }
}

static void pass(struct memory *memory)
{
    pthread_barrier_wait(&memory->barrier);
    for (int loop = 0; loop < LOOPS; loop++) {
        uint64_t start_ns = clock_now_ns();
        loop_run(&memory->workers[0], loop);
        pthread_barrier_wait(&memory->barrier);
        if (memory->kept_count < PASSES_MAX)
            memory->took_ns[loop][memory->kept_count] = (double)(clock_now_ns() - start_ns);
    }
    memory->kept_count += memory->kept_count < PASSES_MAX;
    memory->pass_count++;
}

/* The largest cache of the first CPU, as Linux tells it on every machine (sysconf() does not with musl); 0: unknown. */
static double cache_bytes(void)
{
    double most = 0;
    for (int index = 0; index < 8; index++) {
        char path[64], text[32], unit = 0;
        unsigned long size = 0;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        FILE *file = fopen(path, "r");
        if (!file)
            continue;
        if (fgets(text, sizeof text, file) && sscanf(text, "%lu%c", &size, &unit) >= 1)
            most = fmax(most, (double)size * (unit == 'M' ? 1 << 20 : unit == 'K' ? 1 << 10 : 1));
        fclose(file);
    }
    return most;
}

/* The CPUs that this process may use, which the options may have narrowed. */
static size_t cpus_allowed(int cpus[THREADS_MAX])
{
    cpu_set_t set;
    size_t count = 0;
    if (sched_getaffinity(0, sizeof set, &set))
        return 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && count < THREADS_MAX; cpu++)
        if (CPU_ISSET((size_t)cpu, &set))
            cpus[count++] = cpu;
    return count;
}

static bool workers_start(struct run *run, struct memory *memory, const int *cpus)
{
    memory->deadline_ns = run->deadline_ns;
    pthread_barrier_init(&memory->barrier, NULL, (unsigned)memory->worker_count);
    for (size_t i = 0; i < memory->worker_count; i++) {
        struct worker *worker = &memory->workers[i];
        *worker = (struct worker){.memory = memory, .cpu = cpus[i]};
        worker->begin = memory->count * i / memory->worker_count;
        worker->end = memory->count * (i + 1) / memory->worker_count;
        if (i && pthread_create(&worker->thread, NULL, worker_live, worker) != 0)
            return fail(&run->failure, EXIT_SYSTEM, "pthread_create: thread %zu of %zu could not start", i + 1,
                        memory->worker_count);
    }
    memory->is_up = true;
    worker_pin(&memory->workers[0]);
    worker_touch(&memory->workers[0]);
    pthread_barrier_wait(&memory->barrier);
    if (signals_stop())
        return fail(&run->failure, EXIT_INVALID, "interrupted by signal %d", signals_stop());
    if (!touch_over(memory))
        return true;
    fail_hint(&run->failure, "array_bytes says how large they are, --timeout-s how long everything may take");
    return fail(&run->failure, EXIT_PEER, "timed out: the arrays were not written for the first time");
}

static bool memory_open(struct run *run)
{
    struct memory *memory = run->state;
    const struct memory_options *options = run->options;
    int cpus[THREADS_MAX];
    size_t allowed = cpus_allowed(cpus);
    double bytes = (double)options->array_bytes, cache = cache_bytes();
    if (bytes <= 0)
        bytes = fmax(CACHE_FACTOR * cache, array_min_bytes);
    memory->worker_count = options->thread_count ? (size_t)options->thread_count : allowed;
    if (memory->worker_count > allowed)
        return fail(&run->failure, EXIT_USAGE, "thread_count: found %lld: allowed here: 0 to %zu, the CPUs it may use",
                    (long long)options->thread_count, allowed);
    double has = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (3 * bytes > has)
        return fail(&run->failure, EXIT_USAGE, "array_bytes: found %.0f: allowed here: a third of %.0f bytes of memory",
                    bytes, has);
    memory->count = (size_t)(bytes / sizeof(double));
    if (memory->count < memory->worker_count)
        return fail(&run->failure, EXIT_USAGE, "array_bytes: found %.0f: allowed with %zu threads: %zu and more", bytes,
                    memory->worker_count, memory->worker_count * sizeof(double));
    memory->a = run_buffer(run, memory->count * sizeof(double));
    memory->b = run_buffer(run, memory->count * sizeof(double));
    memory->c = run_buffer(run, memory->count * sizeof(double));
    for (int loop = 0; loop < LOOPS; loop++)
        memory->took_ns[loop] = memory_new(PASSES_MAX, sizeof(double));
    run_grant_number(run, "array_bytes", (double)(memory->count * sizeof(double)));
    run_grant_number(run, "cache_bytes", cache);
    run_grant_number(run, "thread_count", (double)memory->worker_count);
    if (cache > 0 && bytes < CACHE_FACTOR * cache)
        run_warn(run, "fits_in_cache", "arrays of %.0f bytes are less than four times the cache of %.0f", bytes, cache);
    return workers_start(run, memory, cpus);
}

static bool memory_listen(struct run *run)
{
    (void)run;
    return true; /* no test channel */
}

static void memory_begin(struct run *run)
{
    struct memory *memory = run->state;
    memory->kept_count = 0;
}

/* The client has the first half of the time, the server the second one: they may share a machine. */
static enum step memory_step(struct run *run)
{
    struct memory *memory = run->state;
    const struct common_options *common = run_common(run);
    double whole_s = run->phase == PHASE_WARMUP ? common->warmup_s : common->duration_s;
    uint64_t half_ns = run->phase_start_ns + clock_ns_from_s(whole_s / 2);
    run->now_ns = clock_now_ns();
    bool is_over = run->is_server && run->peer_stopped, is_mine = (run->now_ns >= half_ns) == run->is_server;
    if ((is_mine && !is_over) || (!memory->kept_count && (is_over || !run->is_server))) {
        pass(memory);
        run->now_ns = clock_now_ns();
        return run->is_server ? STEP_IDLE : STEP_OPERATION;
    }
    if (is_over)
        return STEP_DONE;
    clock_sleep_until(run->now_ns + 1000000);
    return STEP_IDLE;
}

static int longer(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void rates_fill(struct memory *memory, struct rates *rates)
{
    double *found[LOOPS] = {rates->copy, rates->scale, rates->add, rates->triad};
    for (int loop = 0; loop < LOOPS; loop++) {
        double bits = 8 * bytes_moved[loop] * (double)memory->count, *took_ns = memory->took_ns[loop];
        size_t count = memory->kept_count;
        qsort(took_ns, count, sizeof *took_ns, longer);
        found[loop][0] = bits / took_ns[0] * NS_PER_S;
        found[loop][1] = bits / ((took_ns[(count - 1) / 2] + took_ns[count / 2]) / 2) * NS_PER_S;
        found[loop][2] = bits / took_ns[count - 1] * NS_PER_S;
    }
}

/* What all passes make of an element, done once more, times what it was at first: each loop is linear in a. A pass adds
 * a few roundings of 1e-16 each. */
static void memory_check(struct run *run, const struct memory *memory)
{
    double a = 1, b = 2, c = 0;
    for (size_t i = 0; i < memory->pass_count; i++) {
        c = a;
        b = q * c;
        c = a + b;
        a = b + q * c;
    }
    double limit = known_limit + 1e-15 * (double)memory->pass_count;
    for (size_t i = 0; i < memory->count; i++) {
        double scale = first_value(i);
        if (!(fabs(memory->a[i] - a * scale) <= limit) || !(fabs(memory->b[i] - b * scale) <= limit) ||
            !(fabs(memory->c[i] - c * scale) <= limit)) {
            run_invalid(run, "element %zu of the arrays at the %s is not what %zu passes make of it", i,
                        run->is_server ? "server" : "client", memory->pass_count);
            return;
        }
    }
}

static void memory_report(struct run *run)
{
    struct memory *memory = run->state;
    struct memory_metrics *metrics = run->metrics;
    if (!memory->kept_count)
        return;
    rates_fill(memory, run->is_server ? &metrics->server : &metrics->client);
    *(run->is_server ? &metrics->server_pass_count : &metrics->client_pass_count) = (double)memory->kept_count;
    memory_check(run, memory);
}

static void memory_close(struct run *run)
{
    struct memory *memory = run->state;
    if (memory->is_up) {
        memory->stop = true;
        pthread_barrier_wait(&memory->barrier);
        for (size_t i = 1; i < memory->worker_count; i++)
            pthread_join(memory->workers[i].thread, NULL);
        pthread_barrier_destroy(&memory->barrier);
    }
    for (int loop = 0; loop < LOOPS; loop++)
        free(memory->took_ns[loop]);
}

const struct kernel kernel_memory_copy = {
    .name = "memory_copy",
    .summary = "how fast each node of a pair moves memory that no cache holds, as STREAM counts it",
    .method =
        "Three arrays of doubles, each four times the last-level cache by default. A pass is four loops: copy c = a, "
        "scale b = q c, add c = a + b, triad a = b + q c, by all threads, each pinned and with its own part, which it "
        "wrote first. A rate counts what is read and written, 16 or 24 bytes per element, from before a loop to the "
        "end "
        "of the last thread; in bits per second, so STREAM's MB/s times 8e6. The client measures in the first half of "
        "the time, the server in the second one; nothing crosses the network meanwhile. Afterwards each element must "
        "be what the passes make of it.",
    .options = OPTION_TABLE_RELATED(option_rows, struct memory_options, NULL, relations),
    .metrics = METRIC_TABLE(metric_rows, struct memory_metrics),
    .state_bytes = sizeof(struct memory),
    .listen = memory_listen,
    .open = memory_open,
    .begin = memory_begin,
    .step = memory_step,
    .report = memory_report,
    .close = memory_close,
};
