/* The threads of an end that has many flows: each has a part of them, a state of the kernel of its own, and counts of
 * its own; the first thread is the one that speaks on the control channel.
 *
 *   flow        0  1  2  3  4  5  6        thread 0: 0 3 6     thread 1: 1 4     thread 2: 2 5
 *   a phase     begin -> first step: all threads run -> halt: none sends any more -> end: none runs; counts are added
 */
#ifndef HPCQ_LANES_H
#define HPCQ_LANES_H

#include "kernels/flows.h"

#include <pthread.h>

enum { LANES_MAX = 256 };
extern const char *const lane_places[];
enum lane_place { PLACE_AS_IS, PLACE_NIC_NODE, PLACE_EACH };

struct lane_settings {
    int64_t thread_count, thread_place;
    char client_thread_cpus[OPTION_CPUS_BYTES], server_thread_cpus[OPTION_CPUS_BYTES];
};
struct lane_metrics {
    double client_busiest_thread_ratio, server_busiest_thread_ratio;
};

#define OPTION_ROWS_LANES(type)                                                                                        \
    {"thread_count",                                                                                                   \
     OPTION_INTEGER,                                                                                                   \
     offsetof(type, lanes.thread_count),                                                                               \
     1,                                                                                                                \
     1,                                                                                                                \
     LANES_MAX,                                                                                                        \
     NULL,                                                                                                             \
     "threads of each end, which share the flows; no more than flow_count"},                                           \
        {"thread_place",                                                                                               \
         OPTION_CHOICE,                                                                                                \
         offsetof(type, lanes.thread_place),                                                                           \
         0,                                                                                                            \
         0,                                                                                                            \
         0,                                                                                                            \
         lane_places,                                                                                                  \
         "where threads run: as_is (as the system puts them), nic_node (on the CPUs of the interface's NUMA node, "    \
         "one after the other), each (on the CPUs that the process may use, one after the other, from "                \
         "client_cpu_index and server_cpu_index on, if given)"},                                                       \
        {"client_thread_cpus",                                                                                         \
         OPTION_CPUS,                                                                                                  \
         offsetof(type, lanes.client_thread_cpus),                                                                     \
         0,                                                                                                            \
         0,                                                                                                            \
         0,                                                                                                            \
         NULL,                                                                                                         \
         "CPUs of the client's threads, one after the other, as 0-7,16; system: thread_place says it"},                \
        {"server_thread_cpus",                                                                                         \
         OPTION_CPUS,                                                                                                  \
         offsetof(type, lanes.server_thread_cpus),                                                                     \
         0,                                                                                                            \
         0,                                                                                                            \
         0,                                                                                                            \
         NULL,                                                                                                         \
         "the same of the server's threads"}
#define RELATION_LANES {"thread_count", RELATION_AT_MOST, .other = "flow_count"}
#define METRIC_ROWS_LANES(type)                                                                                        \
    {"client_busiest_thread_ratio", BETTER_NONE, offsetof(type, lanes.client_busiest_thread_ratio),                    \
     "with thread_count: CPU time of the client's busiest thread over the measurement (1.0: its core is full)"},       \
        {"server_busiest_thread_ratio", BETTER_NONE, offsetof(type, lanes.server_busiest_thread_ratio),                \
         "with thread_count: CPU time of the server's busiest thread over the measurement"}

struct lane {
    struct run run; /* of the thread: a copy with counts and a series of its own */
    struct lanes *lanes;
    pthread_t thread;
    int cpu;                                             /* -1: none named */
    uint64_t arrived_bytes, arrived_ns, operation_count; /* __atomic, for the first thread to read */
    uint64_t cpu_ns;                                     /* of the phase */
    int halted;                                          /* __atomic: it sends no more */
};

struct lanes {
    struct run *run;
    size_t count; /* with the first thread; 1: there are no others */
    struct lane *list;
    bool running, halted;
    int halt, stop, failed; /* __atomic */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t phase_no, cpu_start_ns, cpu_ns; /* of the first thread */
    size_t working_count;
    bool closing;
    void (*part_close)(void *state);
    uint64_t told_count; /* operations of the others that the engine was told of */
};

/* Once flows are open. part_of: makes the state of the kernel for a thread, with its flows, also that of the first;
 * part_close: takes back what it took, but not the flows. */
bool lanes_open(struct run *run, struct lanes *lanes, const struct lane_settings *settings,
                bool (*part_of)(struct run *run, void *state, size_t index, size_t count),
                void (*part_close)(void *state));
void lanes_begin(struct lanes *lanes); /* a phase starts: each thread's state forgets the one before */
/* Often, by the first thread in its step: the others run from the first time on. False, with a failure, where one
 * failed. The others' step is the kernel's own, with their own run. */
bool lanes_step(struct lanes *lanes);
uint64_t lanes_arrived(const struct lanes *lanes, uint64_t *last_ns); /* bytes of the others; *last_ns: if later */
/* This thread, in its step: what came so far. */
void lane_arrived(struct run *run, uint64_t bytes, uint64_t last_ns);
void lanes_halt(struct lanes *lanes); /* nobody sends any more: what the others sent is the run's too */
void lanes_end(struct lanes *lanes);  /* nobody runs any more: what the others received is the run's too */
void lanes_report(struct lanes *lanes, struct lane_metrics *metrics);
void lanes_close(struct lanes *lanes);

#endif
