/* See lanes.h. */
#include "kernels/lanes.h"

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

const char *const lane_places[] = {"as_is", "nic_node", "each", NULL};

static const uint64_t nap_ns = 100000;

static uint64_t thread_cpu_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec;
}

static void lane_phase(struct lane *lane)
{
    struct lanes *lanes = lane->lanes;
    struct run *run = &lane->run;
    uint64_t start_ns = thread_cpu_ns();
    while (!__atomic_load_n(&lanes->stop, __ATOMIC_ACQUIRE)) {
        if (!run->stopped && __atomic_load_n(&lanes->halt, __ATOMIC_ACQUIRE)) {
            run->stopped = true;
            __atomic_store_n(&lane->halted, 1, __ATOMIC_RELEASE);
        }
        if (run->stopped && !run_receives(run))
            break;
        enum step step = run->kernel->step(run);
        if (step == STEP_FAILED)
            break;
        __atomic_store_n(&lane->operation_count, run->sent_count, __ATOMIC_RELAXED);
    }
    lane->cpu_ns = thread_cpu_ns() - start_ns;
    lane->cpu = sched_getcpu();
    if (run->failure.failed)
        __atomic_store_n(&lanes->failed, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&lane->halted, 1, __ATOMIC_RELEASE);
}

static void *lane_live(void *argument)
{
    struct lane *lane = argument;
    struct lanes *lanes = lane->lanes;
    uint64_t seen_no = 0;
    prctl(PR_SET_TIMERSLACK, 1UL);
    for (;;) {
        pthread_mutex_lock(&lanes->mutex);
        while (lanes->phase_no == seen_no && !lanes->closing)
            pthread_cond_wait(&lanes->changed, &lanes->mutex);
        bool closing = lanes->closing;
        seen_no = lanes->phase_no;
        pthread_mutex_unlock(&lanes->mutex);
        if (closing)
            return NULL;
        lane_phase(lane);
        pthread_mutex_lock(&lanes->mutex);
        lanes->working_count--;
        pthread_cond_broadcast(&lanes->changed);
        pthread_mutex_unlock(&lanes->mutex);
    }
}

/* What is the first thread's alone is not the others'. */
static void lane_run_new(struct lane *lane, const struct run *run)
{
    struct run *own = &lane->run;
    *own = *run;
    own->state = memory_new(1, run->kernel->state_bytes);
    own->failure = (struct failure){.state = "measure"};
    own->granted = own->warnings = own->outputs = own->columns = own->told = own->heard = own->others =
        (struct notes){0};
    own->series = (struct series){0};
    own->histogram = NULL;
    own->buffers = NULL;
    own->buffer_count = 0;
}

static bool lane_start(struct lanes *lanes, struct lane *lane)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the first thread's */
    int rc = pthread_create(&lane->thread, NULL, lane_live, lane);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !rc || fail(&lanes->run->failure, EXIT_SYSTEM, "thread_count: pthread_create: %s", fail_errno_name(rc));
}

/* Threads go round the CPUs: thread 0 to the first. */
static bool lanes_place(struct lanes *lanes, const struct lane_settings *settings)
{
    int cpus[RUN_CPUS_MAX];
    bool is_server = lanes->run->is_server, of_nic = settings->thread_place == PLACE_NIC_NODE;
    const char *list = is_server ? settings->server_thread_cpus : settings->client_thread_cpus;
    bool is_listed = strcmp(list, "system") != 0;
    if (!is_listed && settings->thread_place == PLACE_AS_IS)
        return true;
    size_t count = is_listed ? run_cpus_listed(lanes->run, list, cpus) : run_cpus(lanes->run, of_nic, cpus);
    if (!count && is_listed)
        return fail(&lanes->run->failure, EXIT_USAGE,
                    "%s_thread_cpus: found %s: allowed: CPUs that this %s may use, as 0-7,16, each once",
                    is_server ? "server" : "client", list, is_server ? "server" : "client");
    if (!count)
        return fail(&lanes->run->failure, EXIT_USAGE,
                    "thread_place: found nic_node: allowed on this %s: as_is each (it does not say on which NUMA node "
                    "its interface is)",
                    is_server ? "server" : "client");
    for (size_t i = 0; i < lanes->count; i++) {
        pthread_t thread = i ? lanes->list[i].thread : pthread_self();
        if (!run_pin_thread(lanes->run, thread, cpus[i % count]))
            return false;
    }
    return true;
}

bool lanes_open(struct run *run, struct lanes *lanes, const struct lane_settings *settings,
                bool (*part_of)(struct run *run, void *state, size_t index, size_t count),
                void (*part_close)(void *state))
{
    size_t count = (size_t)settings->thread_count;
    *lanes = (struct lanes){.run = run, .count = 1, .part_close = part_close};
    pthread_mutex_init(&lanes->mutex, NULL);
    pthread_cond_init(&lanes->changed, NULL);
    lanes->list = memory_new(count, sizeof *lanes->list);
    for (; lanes->count < count; lanes->count++) {
        struct lane *lane = &lanes->list[lanes->count];
        lane->lanes = lanes;
        lane->cpu = -1;
        lane_run_new(lane, run);
        if (!part_of(run, lane->run.state, lanes->count, count) || !lane_start(lanes, lane))
            return false;
    }
    return part_of(run, run->state, 0, count) && lanes_place(lanes, settings);
}

void lanes_begin(struct lanes *lanes)
{
    lanes->halted = false;
    lanes->told_count = 0;
    lanes->halt = lanes->stop = 0;
    for (size_t i = 1; i < lanes->count; i++) {
        struct lane *lane = &lanes->list[i];
        struct run *own = &lane->run;
        own->phase = lanes->run->phase;
        own->stopped = false;
        own->operation_count = own->sent_count = own->sent_bytes = own->call_count = own->arrived_bytes = 0;
        own->first_left_ns = 0;
        series_begin(&own->series, lanes->run->series.interval_ms);
        lane->arrived_bytes = lane->arrived_ns = lane->operation_count = lane->cpu_ns = 0;
        lane->halted = 0;
        own->kernel->begin(own);
    }
}

static void lanes_run(struct lanes *lanes)
{
    for (size_t i = 1; i < lanes->count; i++) {
        lanes->list[i].run.phase_start_ns = lanes->run->phase_start_ns;
        lanes->list[i].run.now_ns = lanes->run->now_ns;
    }
    pthread_mutex_lock(&lanes->mutex);
    lanes->phase_no++;
    lanes->working_count = lanes->count - 1;
    pthread_cond_broadcast(&lanes->changed);
    pthread_mutex_unlock(&lanes->mutex);
    lanes->cpu_start_ns = thread_cpu_ns();
    lanes->running = true;
}

bool lanes_step(struct lanes *lanes)
{
    struct run *run = lanes->run;
    if (lanes->count < 2)
        return true;
    if (!lanes->running)
        lanes_run(lanes);
    if (run_common(run)->operation_count_max) {
        uint64_t count = 0;
        for (size_t i = 1; i < lanes->count; i++)
            count += __atomic_load_n(&lanes->list[i].operation_count, __ATOMIC_RELAXED);
        run->operation_count += count - lanes->told_count;
        lanes->told_count = count;
    }
    if (!__atomic_load_n(&lanes->failed, __ATOMIC_ACQUIRE))
        return true;
    for (size_t i = 1; i < lanes->count; i++)
        if (__atomic_load_n(&lanes->list[i].halted, __ATOMIC_ACQUIRE) && lanes->list[i].run.failure.failed)
            run->failure = lanes->list[i].run.failure;
    return false;
}

uint64_t lanes_arrived(const struct lanes *lanes, uint64_t *last_ns)
{
    uint64_t bytes = 0;
    for (size_t i = 1; i < lanes->count; i++) {
        const struct lane *lane = &lanes->list[i];
        uint64_t ns = __atomic_load_n(&lane->arrived_ns, __ATOMIC_RELAXED);
        bytes += __atomic_load_n(&lane->arrived_bytes, __ATOMIC_ACQUIRE);
        *last_ns = ns > *last_ns ? ns : *last_ns;
    }
    return bytes;
}

void lane_arrived(struct run *run, uint64_t bytes, uint64_t last_ns)
{
    struct lane *lane = (struct lane *)(void *)run;
    __atomic_store_n(&lane->arrived_ns, last_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&lane->arrived_bytes, bytes, __ATOMIC_RELEASE);
}

void lanes_halt(struct lanes *lanes)
{
    struct run *run = lanes->run;
    if (!lanes->running || lanes->halted || !(run->is_active || run->both_send))
        return;
    __atomic_store_n(&lanes->halt, 1, __ATOMIC_RELEASE);
    for (size_t i = 1; i < lanes->count; i++) {
        const struct lane *lane = &lanes->list[i];
        while (!__atomic_load_n(&lane->halted, __ATOMIC_ACQUIRE))
            clock_sleep_until(clock_now_ns() + nap_ns);
        run->sent_count += lane->run.sent_count;
        run->sent_bytes += lane->run.sent_bytes;
        run->first_left_ns = clock_earlier_ns(run->first_left_ns, lane->run.first_left_ns);
    }
    lanes->halted = true;
}

void lanes_end(struct lanes *lanes)
{
    struct run *run = lanes->run;
    if (!lanes->running)
        return;
    lanes->cpu_ns = thread_cpu_ns() - lanes->cpu_start_ns;
    __atomic_store_n(&lanes->stop, 1, __ATOMIC_RELEASE);
    pthread_mutex_lock(&lanes->mutex);
    while (lanes->working_count)
        pthread_cond_wait(&lanes->changed, &lanes->mutex);
    pthread_mutex_unlock(&lanes->mutex);
    lanes->running = false;
    for (size_t i = 1; i < lanes->count; i++) {
        const struct run *own = &lanes->list[i].run;
        run->call_count += own->call_count;
        run->arrived_bytes += own->arrived_bytes;
        series_join(&run->series, &own->series);
    }
}

void lanes_report(struct lanes *lanes, struct lane_metrics *metrics)
{
    const struct run *run = lanes->run;
    uint64_t most_ns = lanes->cpu_ns;
    int cpu = sched_getcpu();
    if (lanes->count < 2)
        return;
    for (size_t i = 1; i < lanes->count; i++) {
        if (lanes->list[i].cpu_ns <= most_ns)
            continue;
        most_ns = lanes->list[i].cpu_ns;
        cpu = lanes->list[i].cpu;
    }
    double ratio = (double)most_ns / (double)(run->phase_end_ns - run->phase_start_ns);
    *(run->is_server ? &metrics->server_busiest_thread_ratio : &metrics->client_busiest_thread_ratio) = ratio;
    run_grant_number(lanes->run, "busiest_thread_cpu_index", cpu);
}

void lanes_close(struct lanes *lanes)
{
    if (!lanes->list)
        return;
    __atomic_store_n(&lanes->stop, 1, __ATOMIC_RELEASE);
    pthread_mutex_lock(&lanes->mutex);
    lanes->closing = true;
    pthread_cond_broadcast(&lanes->changed);
    pthread_mutex_unlock(&lanes->mutex);
    for (size_t i = 1; i < lanes->count; i++) {
        pthread_join(lanes->list[i].thread, NULL);
        series_free(&lanes->list[i].run.series);
        lanes->part_close(lanes->list[i].run.state);
        free(lanes->list[i].run.state);
    }
    free(lanes->list);
    lanes->list = NULL;
}
